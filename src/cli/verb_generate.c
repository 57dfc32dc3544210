// sonde generate: a decoder goes on from a prompt, shown as it comes.
#include "cli/trained.h"

#include <string.h>

typedef struct screen {
    snd_cli *c;
    const snd_loaded *l;
    snd_buf *text; // by sample
    size_t shown;  // bytes of sample 0 that are out
    bool live;     // one sample, for people: bytes go out as they come
    sonde_status status;
} screen;

// Bytes of whole characters: a token may end within one.
static size_t whole_characters(const snd_buf *b) {
    size_t n = b->len;
    for (size_t back = 1; back <= 3 && back <= b->len; back++) {
        const unsigned char ch = (unsigned char)b->s[b->len - back];
        const size_t needs = ch >= 0xf0 ? 4 : ch >= 0xe0 ? 3 : ch >= 0xc0 ? 2 : 1;
        if (ch >= 0x80 && ch < 0xc0) continue;
        if (needs > back) n = b->len - back;
        break;
    }
    return n;
}

static void show(screen *s, bool all) {
    const size_t n = all ? s->text[0].len : whole_characters(&s->text[0]);
    if (!s->live || n <= s->shown) return;
    snd_put_bytes(s->c, s->text[0].s + s->shown, n - s->shown);
    fflush(stdout);
    s->shown = n;
}

static void on_token(void *ctx, int64_t sample, int64_t token, bool done) {
    screen *s = ctx;
    if (token >= 0 && s->status == SONDE_OK)
        s->status = snd_tokenizer_decode(s->l->tokenizer, &token, 1, &s->text[sample]);
    if (sample == 0) show(s, done);
}

static sonde_status note_unknown(snd_cli *c, const snd_loaded *l, const char *text, size_t n) {
    snd_unknown u = {0};
    sonde_status s = snd_tokenizer_unknown(l->tokenizer, (const uint8_t *)text, n, &u);
    if (s == SONDE_OK) s = snd_cli_note_unknown(c, &u);
    snd_unknown_free(&u);
    return s;
}

static sonde_status read_prompt(snd_cli *c, const snd_loaded *l, char **text, size_t *n, snd_ids *ids) {
    const char *said = snd_opt_str(c, "prompt", NULL);
    const snd_fact drawn = {"temperature", snd_opt_num(c, "temperature", 1) > 0 ? "more" : "0"};
    SND_TRY(snd_opt_check_use(c, &drawn, 1));
    SND_FAIL_IF(!said, SONDE_EUSAGE, "generate needs --prompt TEXT, or --prompt - to read it from stdin");
    if (!strcmp(said, "-")) {
        SND_TRY(snd_cli_read_text(c, "-", text, n));
    } else {
        *n = strlen(said);
        *text = snd_malloc(*n + 1);
        if (!*text) return SONDE_ENOMEM;
        memcpy(*text, said, *n + 1);
    }
    SND_TRY(snd_tokenizer_encode(l->tokenizer, "--prompt", (const uint8_t *)*text, *n, ids));
    SND_TRY(note_unknown(c, l, *text, *n));
    const int64_t bos = snd_tokenizer_special(l->tokenizer, SND_SPECIAL_BOS);
    SND_FAIL_IF(ids->n == 0 && bos < 0, SONDE_EUSAGE, "the prompt is empty; the model needs a token to go on from");
    return SONDE_OK;
}

static void put_speed(snd_cli *c, const snd_loaded *l, const snd_generated *g, int64_t prompt) {
    char read[40], speed[40];
    const double sec = g->seconds > 0 ? g->seconds : 1e-9;
    snd_note(c, "%s: %lld tokens read in %s s, %lld made, %s a second%s", l->weights, (long long)prompt,
             snd_format_num(read, g->prompt_seconds, 3), (long long)g->tokens,
             snd_format_num(speed, (double)g->tokens / sec, 4),
             g->reread ? "; the context was full: the last half of it was read again" : "");
}

static sonde_status put_json(snd_cli *c, const screen *s, const snd_generate_opts *o, const char *prompt,
                             const snd_generated *g, int64_t n) {
    snd_buf b = {0};
    snd_json j = snd_json_start(&b);
    snd_json_open(&j, NULL, '{');
    snd_json_str(&j, "schema", "sonde.generate/1");
    snd_json_str(&j, "weights", s->l->weights);
    snd_json_str(&j, "prompt", prompt);
    snd_json_int(&j, "prompt_tokens", n);
    snd_json_num(&j, "temperature", o->sampling.temperature);
    snd_json_int(&j, "top_k", o->sampling.top_k);
    snd_json_num(&j, "top_p", o->sampling.top_p);
    snd_json_int(&j, "seed", (int64_t)o->seed);
    snd_json_int(&j, "tokens", g->tokens);
    snd_json_num(&j, "prompt_seconds", g->prompt_seconds);
    snd_json_num(&j, "seconds", g->seconds);
    snd_json_int(&j, "reread", g->reread);
    snd_json_open(&j, "samples", '[');
    for (int64_t r = 0; r < o->samples; r++) snd_json_str(&j, NULL, s->text[r].s ? s->text[r].s : "");
    snd_json_close(&j, ']');
    snd_json_close(&j, '}');
    snd_put(c, &b);
    snd_buf_free(&b);
    return SONDE_OK;
}

static void put_samples(snd_cli *c, const screen *s, int64_t samples, const char *prompt) {
    for (int64_t r = 0; r < samples; r++) {
        if (samples > 1) snd_print(c, "%s--- sample %lld\n", r ? "\n" : "", (long long)r + 1);
        if (!s->live || samples > 1) snd_print(c, "%s%s", prompt, s->text[r].s ? s->text[r].s : "");
        snd_print(c, "\n");
    }
}

static sonde_status generate(snd_cli *c, const snd_loaded *l, const char *prompt, const snd_ids *ids) {
    const int64_t bos = snd_tokenizer_special(l->tokenizer, SND_SPECIAL_BOS), n = ids->n > 0 ? ids->n : 1;
    snd_generate_opts o = {.sampling = {.temperature = snd_opt_num(c, "temperature", 1),
                                        .top_k = snd_opt_int(c, "top-k", 0),
                                        .top_p = snd_opt_num(c, "top-p", 1)},
                           .samples = snd_opt_int(c, "samples", 1),
                           .tokens = snd_opt_int(c, "tokens", 200),
                           .end = snd_tokenizer_special(l->tokenizer, SND_SPECIAL_EOS),
                           .limit = snd_tokenizer_plain(l->tokenizer),
                           .seed = (uint64_t)snd_opt_int(c, "seed", 0),
                           .stop = c->stop,
                           .token = on_token};
    screen s = {.c = c, .l = l, .live = o.samples == 1 && !c->json};
    int64_t *tokens;
    SND_NEW(c->arena, tokens, n);
    SND_NEW(c->arena, s.text, o.samples);
    for (int64_t i = 0; i < n; i++) tokens[i] = ids->n > 0 ? ids->v[i] : bos;
    SND_TRY(snd_cli_window(c, l->spec, "context", n + o.tokens, SND_GENERATE_WINDOW, &o.capacity));
    if (o.capacity > n + o.tokens) o.capacity = n + o.tokens;
    o.ctx = &s;
    if (s.live) snd_put_bytes(c, prompt, strlen(prompt));
    snd_generated g;
    snd_weights net = l->net; // its graphs are the decoder's own
    sonde_status status = snd_generate(&net, &o, tokens, n, &g);
    if (status == SONDE_OK) status = s.status;
    show(&s, true);
    if (status == SONDE_OK && c->json)
        status = put_json(c, &s, &o, prompt, &g, n);
    else if (status == SONDE_OK || status == SONDE_EINTERRUPTED)
        put_samples(c, &s, o.samples, prompt);
    if (status == SONDE_OK) put_speed(c, l, &g, n);
    for (int64_t r = 0; r < o.samples; r++) snd_buf_free(&s.text[r]);
    return status;
}

sonde_status snd_verb_generate(snd_cli *c) {
    snd_loaded l;
    char *prompt = NULL;
    size_t n = 0;
    snd_ids ids = {0};
    sonde_status s = snd_cli_load_trained(c, false, &l);
    if (s == SONDE_OK) s = snd_decodes(l.spec);
    if (s == SONDE_EUNSUPPORTED) s = SONDE_EUSAGE; // nothing is wrong with the file: it was given to the wrong verb
    if (s == SONDE_OK && l.spec->arch == SND_ARCH_ENCDEC)
        s = snd_fail(SONDE_EUSAGE, __FILE__, __LINE__, "this model translates: use 'sonde translate'");
    if (s == SONDE_OK) s = snd_loaded_need_tokenizer(c, &l);
    if (s == SONDE_OK) s = read_prompt(c, &l, &prompt, &n, &ids);
    if (s == SONDE_OK) s = generate(c, &l, prompt, &ids);
    snd_free(ids.v);
    snd_free(prompt);
    snd_loaded_close(&l);
    return s;
}
