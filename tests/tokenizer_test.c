// Tokenizers: whatever the text, decoding gives it back; what bpe learns is what the definition says; JSON is read to the
// same tokenizer, and a bad one is refused with a sentence that says where.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // mkstemp
#endif
#include "check.h"

#include "data/data.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEXT(s) (const uint8_t *)(s), strlen(s)

static const char *const texts[] = {"",
                                    "a",
                                    " ",
                                    "\n\n  \t x  y\r\n",
                                    "It's 1999, isn't it? -- \"No.\"  ",
                                    "ñandú größer 日本語 \xF0\x9F\x98\x80!",
                                    "aaaaaaaaaaaaaaaa",
                                    "  leading, trailing  \n",
                                    "x_y-z;{}[]()0123456789abc"};
enum { TEXTS = sizeof texts / sizeof *texts };

static char *austen(size_t *n) {
    char *text;
    CHECK_OK(snd_read_file(SONDE_SOURCE_DIR "/data/austen/austen.txt", 1 << 24, &text, n));
    return text;
}

static snd_tokenizer *make(snd_tokenizer_kind kind, const char *text, size_t n, int64_t vocab, unsigned specials) {
    snd_tokenizer *t = NULL;
    CHECK_OK(snd_tokenizer_make(kind, "text", (const uint8_t *)text, n, vocab, specials, &t));
    return t;
}

static snd_ids encode(const snd_tokenizer *t, const uint8_t *text, size_t n) {
    snd_ids ids = {0};
    CHECK_OK(snd_tokenizer_encode(t, "text", text, n, &ids));
    return ids;
}

static void round_trip(const snd_tokenizer *t, const uint8_t *text, size_t n) {
    const snd_ids ids = encode(t, text, n);
    int64_t *wide = malloc((size_t)(ids.n + 1) * sizeof *wide);
    assert_non_null(wide);
    for (int64_t i = 0; i < ids.n; i++) {
        wide[i] = ids.v[i];
        for (int s = 0; s < SND_SPECIAL_COUNT; s++) assert_true(ids.v[i] != snd_tokenizer_special(t, (snd_special)s));
    }
    snd_buf back = {0};
    CHECK_OK(snd_tokenizer_decode(t, wide, ids.n, &back));
    assert_int_equal(back.len, n);
    if (n) assert_memory_equal(back.s, text, n);
    snd_buf_free(&back);
    snd_free(ids.v);
    free(wide);
}

static void decoding_gives_the_text_back(void **state) {
    (void)state;
    size_t n;
    char *book = austen(&n);
    const unsigned all = (1u << SND_SPECIAL_COUNT) - 1;
    snd_tokenizer *bytes = make(SND_TOK_BYTES, NULL, 0, 0, all), *bpe = make(SND_TOK_BPE, book, 200000, 1000, all);
    round_trip(bytes, (const uint8_t *)book, n);
    round_trip(bpe, (const uint8_t *)book, n);
    for (int i = 0; i < TEXTS; i++) {
        snd_tokenizer *chars = make(SND_TOK_CHARS, texts[i], strlen(texts[i]), 0, 0);
        round_trip(bytes, TEXT(texts[i]));
        round_trip(bpe, TEXT(texts[i]));
        round_trip(chars, TEXT(texts[i]));
        snd_tokenizer_destroy(chars);
    }
    uint8_t noise[4096]; // no text at all: every byte, runs longer than a piece
    for (int i = 0; i < 4096; i++)
        noise[i] = i < 1024   ? (uint8_t)i
                   : i < 2048 ? 'x'
                              : (uint8_t)(snd_uniform_at(snd_key_make(1, "noise"), (uint64_t)i) * 256);
    round_trip(bytes, noise, sizeof noise);
    round_trip(bpe, noise, sizeof noise);
    snd_tokenizer_destroy(bytes);
    snd_tokenizer_destroy(bpe);
    snd_free(book);
}

static void chars_are_code_points(void **state) {
    (void)state;
    snd_tokenizer *t = make(SND_TOK_CHARS, "bañb\n", 6, 0, 1u << SND_SPECIAL_EOS);
    assert_int_equal(snd_tokenizer_vocab(t), 6); // \n a b ñ <unk> <eos>
    assert_int_equal(snd_tokenizer_special(t, SND_SPECIAL_UNK), 4);
    assert_int_equal(snd_tokenizer_special(t, SND_SPECIAL_EOS), 5);
    assert_int_equal(snd_tokenizer_special(t, SND_SPECIAL_PAD), -1);
    const snd_ids ids = encode(t, TEXT("añx\xE2\x82\xAC"
                                       "b"));
    const int32_t want[] = {1, 3, 4, 4, 2};
    assert_int_equal(ids.n, 5);
    assert_memory_equal(ids.v, want, sizeof want);
    snd_buf back = {0};
    const int64_t wide[] = {1, 3, 4, 5, 2};
    CHECK_OK(snd_tokenizer_decode(t, wide, 5, &back));
    assert_string_equal(back.s, "añ\xEF\xBF\xBD"
                                "b"); // <unk> shows, <eos> does not
    snd_buf_free(&back);
    snd_free(ids.v);
    snd_tokenizer_destroy(t);
}

// The definition, slowly: count all pairs inside pieces, join the most frequent one, the smaller of equals.
// Each once, as they come; what cannot be shown has its number alone; eight are named.
static void unknown_characters_are_named(void **state) {
    (void)state;
    snd_tokenizer *t = make(SND_TOK_CHARS, "ab\n", 3, 0, 0), *bytes = make(SND_TOK_BYTES, "", 0, 0, 0);
    snd_unknown u = {0};
    snd_buf b = {0};
    CHECK_OK(snd_tokenizer_unknown(bytes, TEXT("\xE2\x82\xACx"), &u));
    CHECK_OK(snd_tokenizer_unknown(t, TEXT("ab\n"), &u));
    assert_int_equal(u.n, 0);
    CHECK_OK(snd_tokenizer_unknown(t,
                                   TEXT("a\xE2\x82\xAC\x07\xE2\x82\xAC"
                                        "b"),
                                   &u));
    snd_unknown_put(&u, &b);
    assert_string_equal(b.s, "'\xE2\x82\xAC' (U+20AC), U+0007");
    snd_buf_free(&b);
    CHECK_OK(snd_tokenizer_unknown(t, TEXT("0123456789\x07"), &u));
    assert_int_equal(u.n, 12);
    snd_unknown_put(&u, &b);
    assert_true(strstr(b.s, "'5' (U+0035) and 4 more") != NULL);
    snd_buf_free(&b);
    snd_unknown_free(&u);
    snd_tokenizer_destroy(t);
    snd_tokenizer_destroy(bytes);
}

static void bpe_learns_by_the_definition(void **state) {
    (void)state;
    const char *text = "low low low lower lower newest newest newest newest widest widest wild 111 11 1111 aaaa";
    enum { MOST = 256 };
    int32_t v[MOST], word[MOST], n = 0, words = 0; // tokens, and the piece each belongs to
    for (const char *s = text; *s; s++) {
        if (s == text || *s == ' ') words++;
        word[n] = words;
        v[n++] = (unsigned char)*s;
    }
    snd_tokenizer *t = make(SND_TOK_BPE, text, strlen(text), 1000, 0);
    const int merges = (int)snd_tokenizer_vocab(t) - 256;
    assert_true(merges > 15);
    for (int m = 0; m <= merges; m++) {
        int32_t left = -1, right = -1, best = 0;
        for (int i = 0; i + 1 < n; i++) {
            int32_t count = 0;
            for (int k = 0; k + 1 < n; k++) count += v[k] == v[i] && v[k + 1] == v[i + 1] && word[k] == word[k + 1];
            if (word[i] != word[i + 1] || count < best) continue;
            if (count == best && (v[i] > left || (v[i] == left && v[i + 1] >= right))) continue;
            best = count, left = v[i], right = v[i + 1];
        }
        assert_true(m < merges ? best > 1 : best <= 1);
        if (m == merges) break;
        size_t a, b, whole;
        const char *sa = snd_tokenizer_token(t, left, &a), *sb = snd_tokenizer_token(t, right, &b);
        const char *s = snd_tokenizer_token(t, 256 + m, &whole);
        assert_int_equal(whole, a + b);
        assert_memory_equal(s, sa, a);
        assert_memory_equal(s + a, sb, b);
        int kept = 0;
        for (int i = 0; i < n; kept++) {
            const bool hit = i + 1 < n && v[i] == left && v[i + 1] == right && word[i] == word[i + 1];
            word[kept] = word[i];
            v[kept] = hit ? 256 + m : v[i];
            i += 1 + hit;
        }
        n = kept;
    }
    const snd_ids ids = encode(t, TEXT(text)); // what was learned on is encoded as it was left
    assert_int_equal(ids.n, n);
    assert_memory_equal(ids.v, v, (size_t)n * sizeof *v);
    snd_free(ids.v);
    snd_tokenizer_destroy(t);
}

// Of two merges that fit, the one learned first: ab c, not a bc.
static void earlier_merges_go_first(void **state) {
    (void)state;
    const char *json = "{\"format\": \"sonde tokenizer\", \"version\": 1, \"kind\": \"bpe\", \"specials\": [], "
                       "\"merges\": [[97, 98], [98, 99], [256, 257]]}";
    snd_tokenizer *t;
    CHECK_OK(snd_tokenizer_parse("t", json, strlen(json), &t));
    const snd_ids ids = encode(t, TEXT("abcbcabbcab")), one = encode(t, TEXT("abbc"));
    const int32_t want[] = {256, 99, 257, 258, 256};
    assert_int_equal(ids.n, 5);
    assert_memory_equal(ids.v, want, sizeof want);
    assert_true(one.n == 1 && one.v[0] == 258);
    snd_free(ids.v);
    snd_free(one.v);
    snd_tokenizer_destroy(t);
}

static void bpe_stops_when_nothing_repeats(void **state) {
    (void)state;
    snd_tokenizer *t = make(SND_TOK_BPE, "abab", 4, 1000, 0); // ab, then abab occurs once
    assert_int_equal(snd_tokenizer_vocab(t), 257);
    snd_tokenizer_destroy(t);
    t = make(SND_TOK_BPE, "", 0, 1000, 3u << SND_SPECIAL_BOS);
    assert_int_equal(snd_tokenizer_vocab(t), 258);
    snd_tokenizer_destroy(t);
}

// ---- files ----------------------------------------------------------------------------------------------------------------

static void json_reads_back(void **state) {
    (void)state;
    size_t n;
    char *book = austen(&n), path[] = "/tmp/sonde-tokenizer-XXXXXX";
    close(mkstemp(path));
    for (int k = SND_TOK_BYTES; k <= SND_TOK_BPE; k++) {
        snd_tokenizer *t = make((snd_tokenizer_kind)k, book, 100000, 700,
                                1u << SND_SPECIAL_PAD | 1u << SND_SPECIAL_MASK),
                      *u;
        CHECK_OK(snd_tokenizer_save(t, path));
        CHECK_OK(snd_tokenizer_load(path, &u));
        assert_int_equal(snd_tokenizer_vocab(t), snd_tokenizer_vocab(u));
        for (int64_t i = 0; i < snd_tokenizer_vocab(t); i++) {
            size_t a, b;
            const char *sa = snd_tokenizer_token(t, i, &a), *sb = snd_tokenizer_token(u, i, &b);
            assert_true(a == b && !memcmp(sa, sb, a));
        }
        const snd_ids x = encode(t, (uint8_t *)book, 50000), y = encode(u, (uint8_t *)book, 50000);
        assert_int_equal(x.n, y.n);
        assert_memory_equal(x.v, y.v, (size_t)x.n * sizeof *x.v);
        snd_free(x.v);
        snd_free(y.v);
        snd_tokenizer_destroy(u);
        CHECK_OK(snd_tokenizer_with(t, 1u << SND_SPECIAL_EOS, &u));
        assert_int_equal(snd_tokenizer_special(u, SND_SPECIAL_MASK), -1);
        assert_true(snd_tokenizer_special(u, SND_SPECIAL_EOS) >= snd_tokenizer_vocab(u) - 1);
        snd_tokenizer_destroy(u);
        snd_tokenizer_destroy(t);
    }
    unlink(path);
    snd_free(book);
}

static void bad_json_is_refused(void **state) {
    (void)state;
#define HEAD "{\"format\": \"sonde tokenizer\", \"version\": 1, \"specials\": [], "
    static const struct {
        const char *json, *why;
        sonde_status status;
    } bad[] = {
        {"", "t.json:", SONDE_ESYNTAX},
        {"[1, 2", "t.json:1", SONDE_ESYNTAX},
        {"[]", "\"format\" must be \"sonde tokenizer\"", SONDE_EINPUT},
        {"{\"format\": \"other\"}", "\"format\" must be", SONDE_EINPUT},
        {"{\"format\": \"sonde tokenizer\", \"version\": 2}", "\"version\" 2; this build reads 1", SONDE_EUNSUPPORTED},
        {HEAD "\"kind\": \"words\"}", "\"kind\" is 'words'", SONDE_EINPUT},
        {HEAD "\"kind\": \"bpe\"}", "\"merges\" is not a list", SONDE_EINPUT},
        {HEAD "\"kind\": \"bpe\", \"merges\": [[1, 2], [3]]}", "\"merges\"[1] is not a pair", SONDE_EINPUT},
        {HEAD "\"kind\": \"bpe\", \"merges\": [[1, 256]]}",
         "merge 0 joins tokens 1 and 256; the tokens before it are 0 to 255", SONDE_EINPUT},
        {HEAD "\"kind\": \"bpe\", \"merges\": [[1, -2]]}", "not a pair", SONDE_EINPUT},
        {HEAD "\"kind\": \"bpe\", \"merges\": [[1, 2], [1, 2]]}", "merge 1 is merge 0 again", SONDE_EINPUT},
        {HEAD "\"kind\": \"bpe\", \"merges\": [[1, 2], [256, 256], [257, 257], [258, 258], [259, 259], [260, 260], "
              "[261, 261], [262, 262]]}",
         "merge 7 makes a token of 256 bytes; at most 128", SONDE_EINPUT},
        {HEAD "\"kind\": \"chars\", \"points\": [97, 97]}", "character 1 (U+0061) is not above", SONDE_EINPUT},
        {HEAD "\"kind\": \"chars\", \"points\": [55296]}", "no Unicode character", SONDE_EINPUT},
        {HEAD "\"kind\": \"chars\", \"points\": [1114112]}", "no Unicode character", SONDE_EINPUT},
        {HEAD "\"kind\": \"chars\", \"points\": [1.5]}", "\"points\"[0] is not a character's number", SONDE_EINPUT},
        {"{\"format\": \"sonde tokenizer\", \"version\": 1, \"kind\": \"bytes\", \"specials\": [\"end\"]}",
         "special 0 is 'end'", SONDE_EINPUT},
        {"{\"format\": \"sonde tokenizer\", \"version\": 1, \"kind\": \"bytes\"}", "\"specials\" is not a list",
         SONDE_EINPUT},
    };
    const size_t before = snd_alloc_bytes();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snd_tokenizer *t = (snd_tokenizer *)1;
        const sonde_status s = snd_tokenizer_parse("t.json", bad[i].json, strlen(bad[i].json), &t);
        if (s == bad[i].status && !t && strstr(sonde_error_message(), bad[i].why)) continue;
        fail_msg("%s: status %s, message '%s', want '%s'", bad[i].json, sonde_status_name(s), sonde_error_message(),
                 bad[i].why);
    }
    assert_int_equal(snd_alloc_bytes(), before);
}

static void bad_calls_are_refused(void **state) {
    (void)state;
    snd_tokenizer *t;
    CHECK_STATUS(snd_tokenizer_make(SND_TOK_CHARS, "f.txt", TEXT("ok\nno \xFFno"), 0, 0, &t), SONDE_EINPUT);
    assert_non_null(strstr(sonde_error_message(), "f.txt: line 2 (byte 6): 0xff is not UTF-8"));
    CHECK_STATUS(snd_tokenizer_make(SND_TOK_CHARS, "f.txt", TEXT("cut \xE2\x82"), 0, 0, &t), SONDE_EINPUT);
    static const char *const no_utf8[] = {"\xC0\x80",         "\xE0\x80\x80",     "\xED\xA0\x80",
                                          "\xF0\x80\x80\x80", "\xF4\x90\x80\x80", "\x80"};
    for (int i = 0; i < 6; i++) // overlong, a surrogate, beyond U+10FFFF, a continuation alone
        CHECK_STATUS(snd_tokenizer_make(SND_TOK_CHARS, "f.txt", TEXT(no_utf8[i]), 0, 0, &t), SONDE_EINPUT);
    CHECK_STATUS(snd_tokenizer_make(SND_TOK_BPE, "f.txt", TEXT("x"), 256, 1u << SND_SPECIAL_EOS, &t), SONDE_ERANGE);
    CHECK_STATUS(snd_tokenizer_make(SND_TOK_BPE, "f.txt", TEXT("x"), 70000, 0, &t), SONDE_ERANGE);
    t = make(SND_TOK_BYTES, NULL, 0, 0, 1u << SND_SPECIAL_EOS);
    snd_buf b = {0};
    const int64_t over[] = {65, 257}, under[] = {-1};
    CHECK_STATUS(snd_tokenizer_decode(t, over, 2, &b), SONDE_ERANGE);
    assert_non_null(strstr(sonde_error_message(), "token 1 is 257; the vocabulary has 0 to 256"));
    CHECK_STATUS(snd_tokenizer_decode(t, under, 1, &b), SONDE_ERANGE);
    snd_buf_free(&b);
    snd_tokenizer_destroy(t);
    t = make(SND_TOK_CHARS, "ab", 2, 0, 0);
    snd_ids ids = {0};
    CHECK_STATUS(snd_tokenizer_encode(t, "prompt", TEXT("a\x80"), &ids), SONDE_EINPUT);
    snd_free(ids.v);
    snd_tokenizer_destroy(t);
}

static void survives_lack_of_memory(void **state) {
    (void)state;
    const char *text = "the cat and the hat and the mat";
    const size_t before = snd_alloc_bytes();
    for (int kind = SND_TOK_BYTES; kind <= SND_TOK_BPE; kind++) {
        sonde_status s = SONDE_ENOMEM;
        for (int k = 1; s != SONDE_OK; k++) {
            snd_tokenizer *t = NULL, *u = NULL;
            snd_ids ids = {0};
            snd_buf json = {0};
            snd_alloc_fail_at(k);
            s = snd_tokenizer_make((snd_tokenizer_kind)kind, "t", TEXT(text), 270, 2, &t);
            if (s == SONDE_OK) s = snd_tokenizer_encode(t, "t", TEXT(text), &ids);
            if (s == SONDE_OK) s = snd_tokenizer_write(t, &json);
            if (s == SONDE_OK) s = snd_tokenizer_parse("t", json.s, json.len, &u);
            if (s == SONDE_OK) {
                snd_tokenizer_destroy(u);
                s = snd_tokenizer_with(t, 4, &u);
            }
            snd_alloc_fail_at(0);
            assert_true(s == SONDE_OK || s == SONDE_ENOMEM);
            snd_tokenizer_destroy(t);
            snd_tokenizer_destroy(u);
            snd_free(ids.v);
            snd_buf_free(&json);
            assert_int_equal(snd_alloc_bytes(), before);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decoding_gives_the_text_back),
        cmocka_unit_test(chars_are_code_points),
        cmocka_unit_test(unknown_characters_are_named),
        cmocka_unit_test(bpe_learns_by_the_definition),
        cmocka_unit_test(bpe_stops_when_nothing_repeats),
        cmocka_unit_test(earlier_merges_go_first),
        cmocka_unit_test(json_reads_back),
        cmocka_unit_test(bad_json_is_refused),
        cmocka_unit_test(bad_calls_are_refused),
        cmocka_unit_test(survives_lack_of_memory),
    };
    return cmocka_run_group_tests_name("tokenizer", tests, NULL, NULL);
}
