// Sequences of tokens for a measurement: uniform, or pieces of a file at seeded places. A file stays in memory in its own
// type; only the pieces asked for are converted and checked.
#include "data/inner.h"

#include <string.h>

struct snd_corpus {
    snd_array a;
    const snd_set *set; // NULL: a
    snd_split split;
    int64_t n;
};

static bool is_integer(snd_dtype t) {
    return t == SND_U8 || t == SND_I8 || t == SND_I16 || t == SND_I32 || t == SND_I64;
}

sonde_status snd_corpus_open(const char *path, snd_corpus **out) {
    *out = NULL;
    SND_FAIL_IF(snd_set_is_images(path), SONDE_EUNSUPPORTED,
                "%s: images; family=transformer takes tokens, images need family=convnet or mlp", path);
    snd_array a;
    SND_TRY(snd_tokens_load(path, &a));
    snd_corpus *c = is_integer(a.t.dtype) ? snd_calloc(1, sizeof *c) : NULL;
    if (c) {
        *c = (snd_corpus){.a = a, .n = snd_shape_size(a.t.shape)};
        *out = c;
        return SONDE_OK;
    }
    const snd_dtype t = a.t.dtype;
    snd_array_free(&a);
    SND_FAIL_IF(!is_integer(t), SONDE_ETYPE, "%s: holds %s; token numbers are integers", path, snd_dtype_name(t));
    return SONDE_ENOMEM;
}

sonde_status snd_corpus_of(const snd_set *set, snd_split split, snd_corpus **out) {
    *out = NULL;
    snd_corpus *c = snd_calloc(1, sizeof *c);
    if (!c) return SONDE_ENOMEM;
    *c = (snd_corpus){.set = set, .split = split, .n = snd_set_token_count(set, split)};
    *out = c;
    return SONDE_OK;
}

void snd_corpus_close(snd_corpus *c) {
    if (!c) return;
    snd_array_free(&c->a);
    snd_free(c);
}

const char *snd_corpus_name(const snd_corpus *c) {
    return c->set ? snd_set_name(c->set) : c->a.t.name;
}

int64_t snd_corpus_size(const snd_corpus *c) {
    return c->n;
}

static sonde_status take_piece(const snd_corpus *c, int64_t first, int64_t n, int64_t vocab, int64_t *out) {
    const char *base = c->a.t.data;
    if (c->set)
        snd_set_tokens(c->set, c->split, first, n, out);
    else
        snd_convert(base + (size_t)first * snd_dtype_size(c->a.t.dtype), c->a.t.dtype, out, SND_I64, n);
    for (int64_t i = 0; i < n; i++)
        SND_FAIL_IF(out[i] < 0 || out[i] >= vocab, SONDE_ERANGE, "%s: token %lld is %lld; the vocabulary has 0 to %lld",
                    snd_corpus_name(c), (long long)(first + i), (long long)out[i], (long long)vocab - 1);
    return SONDE_OK;
}

sonde_status snd_data_sequences(const snd_corpus *c, uint64_t seed, const char *name, int64_t B, int64_t n,
                                int64_t vocab, int64_t *out) {
    if (!c) {
        snd_data_targets(seed, name, B * n, vocab, out);
        return SONDE_OK;
    }
    SND_FAIL_IF(c->n < n, SONDE_ESHAPE, "%s: has %lld tokens; a sequence needs %lld", snd_corpus_name(c),
                (long long)c->n, (long long)n);
    int64_t *place = snd_malloc((size_t)B * sizeof *place);
    if (!place) return SONDE_ENOMEM;
    snd_data_targets(seed, name, B, c->n - n + 1, place);
    sonde_status s = SONDE_OK;
    for (int64_t b = 0; b < B && s == SONDE_OK; b++) s = take_piece(c, place[b], n, vocab, out + b * n);
    snd_free(place);
    return s;
}
