// tokenizer: any bytes as its JSON; one that is read knows all of its tokens, gives texts back and writes what it was read
// from.
#include "fuzz.h"

#include "data/data.h"

static void use(const snd_tokenizer *t) {
    static const uint8_t text[] = "It is a truth, universally acknowledged: 1813, \xC3\xB1.\n  \x80\xFF";
    const int64_t vocab = snd_tokenizer_vocab(t);
    size_t n;
    for (int64_t i = 0; i < vocab; i++) {
        const char *s = snd_tokenizer_token(t, i, &n);
        fuzz_touch(s, n);
    }
    snd_ids ids = {0};
    snd_buf back = {0};
    const bool chars = snd_tokenizer_kind_of(t) == SND_TOK_CHARS;
    if (fuzz_fine(snd_tokenizer_encode(t, "text", text, sizeof text - 1, &ids))) {
        int64_t wide[sizeof text];
        MUST(ids.n < (int64_t)sizeof text);
        for (int64_t i = 0; i < ids.n; i++) wide[i] = ids.v[i];
        MUST(snd_tokenizer_decode(t, wide, ids.n, &back) == SONDE_OK);
        MUST(chars || (back.len == sizeof text - 1 && !memcmp(back.s, text, back.len)));
    }
    snd_free(ids.v);
    snd_buf_free(&back);
}

static void again(const snd_tokenizer *t) {
    snd_buf one = {0}, two = {0};
    snd_tokenizer *u;
    MUST(snd_tokenizer_write(t, &one) == SONDE_OK);
    MUST(snd_tokenizer_parse("again", one.s, one.len, &u) == SONDE_OK);
    MUST(snd_tokenizer_write(u, &two) == SONDE_OK);
    MUST(one.len == two.len && !memcmp(one.s, two.s, one.len));
    snd_tokenizer_destroy(u);
    snd_buf_free(&one);
    snd_buf_free(&two);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    const size_t before = snd_alloc_bytes();
    snd_tokenizer *t;
    if (fuzz_fine(snd_tokenizer_parse("bytes", (const char *)data, n, &t))) {
        use(t);
        again(t);
        snd_tokenizer_destroy(t);
    }
    MUST(snd_alloc_bytes() == before);
    return 0;
}
