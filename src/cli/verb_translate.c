// sonde translate: lines through an encoder-decoder, by beam search; BLEU where there are references.
// Lines of equal length in tokens go through together, so that none is padded.
#include "cli/trained.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct line {
    const char *s;
    size_t n;
    int64_t *tokens, length; // <eos> at the end
    snd_buf out;
    double score;
} line;

typedef struct job {
    snd_cli *c;
    const snd_loaded *l;
    line *lines;
    int64_t n, *order; // by length
    snd_beam_opts o;
    int64_t batch;
} job;

// ---- lines ------------------------------------------------------------------------------------------------------------------

// Cuts a text at its line ends; the last one need not have any. \r\n counts as \n.
static sonde_status cut_lines(snd_arena *a, const char *text, size_t n, line **out, int64_t *count) {
    *count = 0;
    for (size_t i = 0; i < n; i++) *count += text[i] == '\n' || i + 1 == n;
    SND_NEW(a, *out, *count + 1);
    size_t first = 0;
    for (int64_t k = 0; k < *count; k++) {
        size_t end = first;
        while (end < n && text[end] != '\n') end++;
        const size_t len = end > first && text[end - 1] == '\r' ? end - 1 - first : end - first;
        (*out)[k] = (line){.s = text + first, .n = len};
        first = end + 1;
    }
    return SONDE_OK;
}

static sonde_status encode(job *j, line *l) {
    snd_ids ids = {0};
    sonde_status s = snd_tokenizer_encode(j->l->tokenizer, "line", (const uint8_t *)l->s, l->n, &ids);
    l->length = ids.n + 1;
    l->tokens = s == SONDE_OK ? snd_arena_array(j->c->arena, (size_t)l->length, sizeof *l->tokens) : NULL;
    for (int64_t i = 0; l->tokens && i < ids.n; i++) l->tokens[i] = ids.v[i];
    if (l->tokens) l->tokens[ids.n] = j->o.end;
    snd_free(ids.v);
    return s != SONDE_OK ? s : l->tokens ? SONDE_OK : SONDE_ENOMEM;
}

static const line *sorted; // of qsort's comparison: one thread, one call

static int by_length(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    if (sorted[x].length != sorted[y].length) return sorted[x].length < sorted[y].length ? -1 : 1;
    return x < y ? -1 : 1;
}

static sonde_status note_unknown(const job *j) {
    snd_unknown u = {0};
    sonde_status s = SONDE_OK;
    for (int64_t i = 0; s == SONDE_OK && i < j->n; i++)
        s = snd_tokenizer_unknown(j->l->tokenizer, (const uint8_t *)j->lines[i].s, j->lines[i].n, &u);
    if (s == SONDE_OK) s = snd_cli_note_unknown(j->c, &u);
    snd_unknown_free(&u);
    return s;
}

// Lines beyond the positions that were trained on, where these are learned.
static void note_long(const job *j) {
    const int64_t trained = snd_trained_tokens(j->l->spec);
    int64_t n = 0;
    for (int64_t i = 0; i < j->n; i++) n += j->lines[i].length > trained;
    if (n && trained && j->l->spec->position == SND_POS_LEARNED)
        snd_note(j->c,
                 "%lld of %lld lines have more than the %lld tokens that the model was trained on; positions behind "
                 "them were never learned",
                 (long long)n, (long long)j->n, (long long)trained);
}

static sonde_status prepare(job *j) {
    SND_NEW(j->c->arena, j->order, j->n + 1);
    const int64_t most = j->l->spec->position == SND_POS_LEARNED ? j->l->spec->context : 0;
    for (int64_t i = 0; i < j->n; i++) {
        const sonde_status s = encode(j, &j->lines[i]);
        if (s != SONDE_OK) return snd_fail_prefix(s, "line %lld: ", (long long)i + 1);
        SND_FAIL_IF(most && j->lines[i].length > most, SONDE_EINPUT,
                    "line %lld has %lld tokens; the model's positions end at context, %lld", (long long)i + 1,
                    (long long)j->lines[i].length, (long long)most);
        j->order[i] = i;
    }
    SND_TRY(note_unknown(j));
    note_long(j);
    sorted = j->lines;
    qsort(j->order, (size_t)j->n, sizeof *j->order, by_length);
    return SONDE_OK;
}

// ---- translating --------------------------------------------------------------------------------------------------------------

// Lines order[at] .. order[at+m-1], all of one length.
static sonde_status together(job *j, int64_t at, int64_t m) {
    snd_arena *a = snd_arena_create();
    if (!a) return SONDE_ENOMEM;
    const int64_t S = j->lines[j->order[at]].length;
    int64_t *src = snd_arena_array(a, (size_t)(m * S), sizeof *src);
    snd_hypothesis *h = snd_arena_array(a, (size_t)m, sizeof *h);
    snd_weights net = j->l->net;
    sonde_status s = src && h ? SONDE_OK : SONDE_ENOMEM;
    for (int64_t i = 0; s == SONDE_OK && i < m; i++)
        memcpy(src + i * S, j->lines[j->order[at + i]].tokens, (size_t)S * sizeof *src);
    if (s == SONDE_OK) s = snd_beam_search(a, &net, &j->o, src, m, S, h);
    for (int64_t i = 0; s == SONDE_OK && i < m; i++) {
        line *l = &j->lines[j->order[at + i]];
        l->score = h[i].score;
        s = snd_tokenizer_decode(j->l->tokenizer, h[i].tokens, h[i].n, &l->out);
    }
    snd_arena_destroy(a);
    return s;
}

static sonde_status translate(job *j) {
    snd_progress bar = snd_progress_start(j->c, "translating", j->n);
    sonde_status s = SONDE_OK;
    for (int64_t at = 0; s == SONDE_OK && at < j->n;) {
        int64_t m = 1;
        while (m < j->batch && at + m < j->n && j->lines[j->order[at + m]].length == j->lines[j->order[at]].length) m++;
        s = together(j, at, m);
        at += m;
        if (snd_progress_step(&bar, at) && s == SONDE_OK && at < j->n)
            s = snd_fail(SONDE_EINTERRUPTED, __FILE__, __LINE__, "stopped after %lld of %lld lines", (long long)at,
                         (long long)j->n);
    }
    snd_progress_end(&bar);
    return s;
}

// ---- what is shown --------------------------------------------------------------------------------------------------------------

static sonde_status compare(const job *j, const char *path, char *text, size_t n, snd_bleu *out) {
    line *ref;
    int64_t count;
    SND_TRY(cut_lines(j->c->arena, text, n, &ref, &count));
    j->c->file_at_fault = true;
    SND_FAIL_IF(count != j->n, SONDE_EINPUT, "%s has %lld lines, the source has %lld; as many are needed", path,
                (long long)count, (long long)j->n);
    j->c->file_at_fault = false;
    snd_text *a, *b;
    SND_NEW(j->c->arena, a, j->n + 1);
    SND_NEW(j->c->arena, b, j->n + 1);
    for (int64_t i = 0; i < j->n; i++) {
        a[i] = (snd_text){j->lines[i].out.s ? j->lines[i].out.s : "", j->lines[i].out.len};
        b[i] = (snd_text){ref[i].s, ref[i].n};
    }
    return snd_bleu_corpus(a, b, j->n, out);
}

static sonde_status measure_bleu(const job *j, const char *path, snd_bleu *out) {
    char *text;
    size_t n;
    SND_TRY(snd_cli_read_text(j->c, path, &text, &n));
    const sonde_status s = compare(j, path, text, n, out);
    snd_free(text);
    return s;
}

static void put_json(const job *j, const snd_bleu *bleu) {
    snd_buf b = {0};
    snd_json w = snd_json_start(&b);
    snd_json_open(&w, NULL, '{');
    snd_json_str(&w, "schema", "sonde.translate/1");
    snd_json_str(&w, "weights", j->l->weights);
    snd_json_int(&w, "beams", j->o.beams);
    snd_json_num(&w, "length_penalty", j->o.length_penalty);
    if (bleu) {
        snd_json_num(&w, "bleu", bleu->score);
        snd_json_str(&w, "signature", snd_bleu_signature());
    }
    snd_json_open(&w, "lines", '[');
    for (int64_t i = 0; i < j->n; i++) {
        snd_json_open_flat(&w, NULL, '{');
        snd_json_str(&w, "text", j->lines[i].out.s ? j->lines[i].out.s : "");
        snd_json_num(&w, "score", j->lines[i].score);
        snd_json_close(&w, '}');
    }
    snd_json_close(&w, ']');
    snd_json_close(&w, '}');
    snd_put(j->c, &b);
    snd_buf_free(&b);
}

static sonde_status put_results(const job *j) {
    const char *reference = snd_opt_str(j->c, "reference", NULL);
    snd_bleu bleu;
    if (reference) SND_TRY(measure_bleu(j, reference, &bleu));
    if (j->c->json) {
        put_json(j, reference ? &bleu : NULL);
        return SONDE_OK;
    }
    for (int64_t i = 0; i < j->n; i++) snd_print(j->c, "%s\n", j->lines[i].out.s ? j->lines[i].out.s : "");
    if (!reference) return SONDE_OK;
    snd_buf b = {0};
    snd_bleu_text(&bleu, &b);
    snd_note(j->c, "%s\n%s", b.s ? b.s : "", snd_bleu_signature());
    snd_buf_free(&b);
    return SONDE_OK;
}

// ---- the verb -------------------------------------------------------------------------------------------------------------------

static sonde_status options(job *j) {
    const snd_tokenizer *t = j->l->tokenizer;
    const snd_spec *s = j->l->spec;
    int64_t longest;
    SND_TRY(snd_cli_window(j->c, s, "tokens", 0, 256, &longest));
    j->batch = snd_opt_int(j->c, "batch", 16);
    j->o = (snd_beam_opts){.beams = snd_opt_int(j->c, "beams", 4),
                           .tokens = longest,
                           .length_penalty = snd_opt_num(j->c, "length-penalty", 0.6),
                           .begin = snd_tokenizer_special(t, SND_SPECIAL_BOS),
                           .end = snd_tokenizer_special(t, SND_SPECIAL_EOS),
                           .limit = snd_tokenizer_plain(t),
                           .stop = j->c->stop};
    SND_FAIL_IF(j->o.begin < 0 || j->o.end < 0, SONDE_EUSAGE,
                "the tokenizer has no <bos> and <eos>, between which a translation stands");
    return SONDE_OK;
}

static sonde_status run(snd_cli *c, const snd_loaded *l, char **text) {
    SND_FAIL_IF(l->spec->arch != SND_ARCH_ENCDEC, SONDE_EUSAGE,
                "translate needs an encoder-decoder; this model is arch %s", snd_arch_name(l->spec->arch));
    SND_TRY(snd_loaded_need_tokenizer(c, l));
    job j = {.c = c, .l = l};
    SND_TRY(options(&j));
    size_t n;
    SND_TRY(snd_cli_read_text(c, snd_opt_str(c, "source", "-"), text, &n));
    SND_TRY(cut_lines(c->arena, *text, n, &j.lines, &j.n));
    sonde_status s = prepare(&j);
    c->file_at_fault = s != SONDE_OK;
    if (s == SONDE_OK) s = translate(&j);
    if (s == SONDE_OK) s = put_results(&j);
    for (int64_t i = 0; i < j.n; i++) snd_buf_free(&j.lines[i].out);
    return s;
}

sonde_status snd_verb_translate(snd_cli *c) {
    snd_loaded l;
    char *text = NULL;
    sonde_status s = snd_cli_load_trained(c, false, &l);
    if (s == SONDE_OK) s = run(c, &l, &text);
    snd_free(text);
    snd_loaded_close(&l);
    return s;
}
