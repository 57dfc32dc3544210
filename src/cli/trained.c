// What eval, generate and translate share: finding the model and its tokenizer.
#include "cli/trained.h"

#include <string.h>

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

sonde_status snd_cli_load_trained(snd_cli *c, snd_loaded *out) {
    *out = (snd_loaded){0};
    const double start = snd_now();
    snd_trained t;
    sonde_status s = snd_trained_find(c->arena, c->spec_word, snd_opt_str(c, "checkpoint", NULL), &t);
    c->file_at_fault = s == SONDE_EIO;
    SND_TRY(s);
    SND_FAIL_IF(!t.folder && snd_opt_given(c, "checkpoint"), SONDE_EUSAGE,
                "--checkpoint is for a run's folder; %s is none", c->spec_word);
    if (t.folder) c->spec_word = t.spec;
    SND_TRY(snd_cli_load_spec(c, &out->spec));
    out->weights = snd_opt_str(c, "weights", t.weights);
    SND_FAIL_IF(!out->weights, SONDE_EUSAGE,
                "%s needs weights: a run's folder or a checkpoint in place of SPEC, or --weights FILE", c->verb->name);
    SND_TRY(open_tokenizer(c, t.tokenizer, out));
    s = snd_weights_open(c->arena, out->spec, out->weights, snd_dtype_find(snd_opt_str(c, "dtype", "f32")), 0,
                         (int)snd_opt_int(c, "threads", 0), &out->net);
    c->file_at_fault = s != SONDE_OK;
    out->seconds = snd_now() - start;
    return s;
}

void snd_loaded_close(snd_loaded *l) {
    snd_weights_close(&l->net);
    snd_tokenizer_destroy(l->tokenizer);
}

sonde_status snd_loaded_need_tokenizer(const snd_cli *c, const snd_loaded *l) {
    SND_FAIL_IF(!l->tokenizer, SONDE_EUSAGE, "%s needs to know what the tokens stand for: --tokenizer FILE, or bytes",
                c->verb->name);
    const int64_t n = snd_tokenizer_vocab(l->tokenizer);
    SND_FAIL_IF(n > l->spec->vocab, SONDE_EUSAGE,
                "the tokenizer has %lld tokens, the model %lld; another one is needed", (long long)n,
                (long long)l->spec->vocab);
    return SONDE_OK;
}

sonde_status snd_cli_read_text(snd_cli *c, const char *path, char **text, size_t *n) {
    const bool in = !strcmp(path, "-");
    const sonde_status s = snd_read_file(in ? "/dev/stdin" : path, (size_t)1 << 30, text, n);
    c->file_at_fault = s != SONDE_OK;
    return s;
}
