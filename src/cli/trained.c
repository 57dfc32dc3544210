// What the verbs that take a trained model share: finding it, its tokenizer and its data.
#include "cli/trained.h"

#include <limits.h>
#include <string.h>
#include <unistd.h>

static sonde_status open_tokenizer(snd_cli *c, const char *beside, snd_loaded *l) {
    const char *said = snd_opt_str(c, "tokenizer", beside);
    if (!said && l->spec->vocab == 256) said = "bytes"; // no other reading has a byte for each token
    if (!said) return SONDE_OK;
    if (!strcmp(said, "bytes")) return snd_tokenizer_make(SND_TOK_BYTES, "bytes", NULL, 0, 0, 0, &l->tokenizer);
    l->tokenizer_path = said;
    c->file_at_fault = true;
    SND_TRY(snd_tokenizer_load(said, &l->tokenizer));
    c->file_at_fault = false;
    return SONDE_OK;
}

sonde_status snd_cli_find_trained(snd_cli *c, bool look, snd_trained *out) {
    const char *which = snd_opt_str(c, "checkpoint", NULL);
    *out = (snd_trained){0};
    const sonde_status s = look ? snd_trained_find(c->arena, c->spec_word, which, out) : SONDE_OK;
    c->file_at_fault = s == SONDE_EIO;
    SND_TRY(s);
    SND_FAIL_IF(which && !out->folder, SONDE_EUSAGE, "--checkpoint is for a run's folder; %s is none", c->spec_word);
    if (out->folder) c->spec_word = out->spec;
    return SONDE_OK;
}

static const char *dtype_of_training(snd_cli *c, const snd_trained *t) {
    if (!t->dtype || snd_opt_given(c, "dtype")) return "f32";
    if (!strcmp(t->dtype, "f64") || !strcmp(t->dtype, "bf16")) return t->dtype;
    if (!strcmp(t->dtype, "f16")) snd_note(c, "trained in f16 with all results rounded; computed in f32 here");
    return "f32";
}

sonde_status snd_cli_load_trained(snd_cli *c, bool as_trained, snd_loaded *out) {
    *out = (snd_loaded){0};
    const double start = snd_now();
    snd_trained t;
    SND_TRY(snd_cli_find_trained(c, true, &t));
    SND_TRY(snd_cli_load_spec(c, &out->spec));
    out->weights = snd_opt_str(c, "weights", t.weights);
    SND_FAIL_IF(!out->weights, SONDE_EUSAGE,
                "%s needs weights: a run's folder or a checkpoint in place of SPEC, or --weights FILE", c->verb->name);
    SND_TRY(open_tokenizer(c, t.tokenizer, out));
    const char *dtype = snd_opt_str(c, "dtype", as_trained ? dtype_of_training(c, &t) : "f32");
    const sonde_status s = snd_weights_open(c->arena, out->spec, out->weights, snd_dtype_find(dtype), 0,
                                            (int)snd_opt_int(c, "threads", 0), &out->net);
    c->file_at_fault = s != SONDE_OK;
    out->seconds = snd_now() - start;
    return s;
}

bool snd_cli_names_trained(const snd_cli *c) {
    const char *w = c->spec_word;
    if (!w || snd_preset_find(w) || snd_wiring_find(w)) return false;
    return snd_is_folder(w) || snd_trained_is_file(w);
}

void snd_loaded_close(snd_loaded *l) {
    snd_weights_close(&l->net);
    snd_tokenizer_destroy(l->tokenizer);
}

// ---- its data -----------------------------------------------------------------------------------------------------------------

// What the run was trained on, as its spec says.
static sonde_status run_settings(snd_cli *c, const snd_spec *spec, snd_data_settings *d) {
    const char *const *part;
    const int n = snd_spec_section(spec, "data", &part);
    *d = snd_data_defaults();
    for (int i = 0; i < n; i++) {
        const char *eq = strchr(part[i], '=');
        const char *key = snd_arena_strn(c->arena, part[i], (size_t)(eq - part[i]));
        if (!key) return SONDE_ENOMEM;
        c->file_at_fault = true;
        SND_TRY(snd_data_setting(d, "data: ", key, eq + 1));
        c->file_at_fault = false;
    }
    return SONDE_OK;
}

sonde_status snd_cli_check_folder(snd_cli *c, const char *path) {
    c->file_at_fault = !snd_is_folder(path);
    SND_FAIL_IF(c->file_at_fault, SONDE_EIO, "--data-folder: %s is no folder", path);
    return SONDE_OK;
}

static snd_split split_asked(const snd_cli *c) {
    const char *said = snd_opt_str(c, "split", NULL);
    for (int i = 0; said && i < SND_SPLIT_COUNT; i++)
        if (!strcmp(said, snd_split_name((snd_split)i))) return (snd_split)i;
    return SND_SPLIT_VALID;
}

// --data FILE stands for the whole file, whatever share a run kept for validation; a folder has a test of its own.
sonde_status snd_cli_open_set(snd_cli *c, const snd_loaded *l, snd_split *split, snd_set **set) {
    snd_data_settings d;
    const char *data = snd_opt_str(c, "data", NULL);
    SND_TRY(run_settings(c, l->spec, &d));
    d.folder = snd_opt_str(c, "data-folder", d.folder);
    if (snd_opt_said(c, "data-folder")) SND_TRY(snd_cli_check_folder(c, d.folder));
    *split = split_asked(c);
    if (data) {
        const bool folder = snd_is_folder(data) || !strcmp(data, "fashion-mnist");
        const bool table = !folder && snd_train_task(l->spec) == SND_TASK_CLASS; // normalised by the rows trained on
        SND_FAIL_IF(!folder && snd_opt_said(c, "split"), SONDE_EUSAGE,
                    "--split has no effect with --data %s, which is taken whole", data);
        SND_FAIL_IF(!table && snd_opt_said(c, "data-folder"), SONDE_EUSAGE,
                    "--data-folder has no effect with --data %s, which stands in for the run's data", data);
        if (!table || !d.path) {
            d.path = data;
            d.folder = NULL;
        }
        d.valid_path = NULL;
        if (!folder) SND_TRY(snd_cli_full_path(c, data, &d.valid_path));
        d.test_path = NULL;
        if (folder && !snd_opt_given(c, "split")) *split = SND_SPLIT_TEST;
    }
    *set = NULL;
    if (!d.path) return SONDE_OK;
    SND_FAIL_IF(snd_opt_said(c, "data-folder") && !snd_data_any_relative(&d), SONDE_EUSAGE,
                "--data-folder has no effect with data-path %s, only with relative", d.path);
    if (l->tokenizer_path)
        SND_TRY(snd_cli_full_path(c, l->tokenizer_path, &d.tokenizer));
    else if (l->tokenizer)
        d.tokenizer = "bytes";
    c->file_at_fault = true;
    const sonde_status s = snd_set_open(&d, snd_train_task(l->spec), set);
    if (s == SONDE_EIO && d.path != data)
        return snd_fail_prefix(s, data ? "the run's data, by which rows are normalised: "
                                       : "the run's data, for which --data PATH stands in: ");
    SND_TRY(s);
    c->file_at_fault = false;
    if (snd_set_tokenizer(*set)) SND_TRY(snd_loaded_need_tokenizer(c, l)); // not one that was made of this data now
    return snd_cli_note_unknown_in(c, *set, *split, *split);
}

// ---- how far it sees ------------------------------------------------------------------------------------------------------------

sonde_status snd_cli_window(snd_cli *c, const snd_spec *s, const char *option, int64_t needed, int64_t dflt,
                            int64_t *out) {
    const int64_t asked = snd_opt_int(c, option, 0), trained = snd_trained_tokens(s);
    const bool learned = s->position == SND_POS_LEARNED;
    SND_FAIL_IF(learned && asked > s->context, SONDE_EUSAGE,
                "--%s: %lld tokens; learned positions end at context, %lld", option, (long long)asked,
                (long long)s->context);
    *out = asked ? asked : snd_trained_window(s, dflt);
    if (trained && learned && asked > trained)
        snd_note(c,
                 "--%s %lld: the model was trained on %lld tokens at a time, positions behind them were never learned",
                 option, (long long)asked, (long long)trained);
    else if (!asked && trained && s->context > trained && needed > trained)
        snd_note(c, "%lld tokens at a time, as the model was trained; its context is %lld (--%s %lld)",
                 (long long)trained, (long long)s->context, option, (long long)s->context);
    return SONDE_OK;
}

// ---- text -----------------------------------------------------------------------------------------------------------------------

sonde_status snd_loaded_need_tokenizer(const snd_cli *c, const snd_loaded *l) {
    SND_FAIL_IF(!l->tokenizer, SONDE_EUSAGE, "%s needs to know what the tokens stand for: --tokenizer FILE, or bytes",
                c->verb->name);
    const int64_t n = snd_tokenizer_vocab(l->tokenizer);
    SND_FAIL_IF(n > l->spec->vocab, SONDE_EUSAGE,
                "the tokenizer has %lld tokens, the model %lld; another one is needed", (long long)n,
                (long long)l->spec->vocab);
    return SONDE_OK;
}

sonde_status snd_cli_note_unknown(snd_cli *c, const snd_unknown *u) {
    snd_buf b = {0};
    if (u->n == 0) return SONDE_OK;
    snd_unknown_put(u, &b);
    if (!b.failed) snd_note(c, "characters that the tokenizer does not know, all read as <unk>: %s", b.s);
    const sonde_status s = b.failed ? SONDE_ENOMEM : SONDE_OK;
    snd_buf_free(&b);
    return s;
}

sonde_status snd_cli_note_unknown_in(snd_cli *c, const snd_set *set, snd_split first, snd_split last) {
    snd_unknown u = {0};
    sonde_status s = SONDE_OK;
    for (int k = first; s == SONDE_OK && k <= (int)last; k++) s = snd_set_unknown(set, (snd_split)k, &u);
    if (s == SONDE_OK) s = snd_cli_note_unknown(c, &u);
    snd_unknown_free(&u);
    return s;
}

sonde_status snd_cli_full_path(snd_cli *c, const char *path, const char **out) {
    char here[PATH_MAX];
    SND_FAIL_IF(*path != '/' && !getcwd(here, sizeof here), SONDE_EIO, "the current folder has no name any more");
    *out = *path == '/' ? path : snd_arena_printf(c->arena, "%s%s%s", here, *path ? "/" : "", path);
    return *out ? SONDE_OK : SONDE_ENOMEM;
}

sonde_status snd_cli_read_text(snd_cli *c, const char *path, char **text, size_t *n) {
    const bool in = !strcmp(path, "-");
    const sonde_status s = snd_read_file(in ? "/dev/stdin" : path, (size_t)1 << 30, text, n);
    c->file_at_fault = s != SONDE_OK;
    return s;
}
