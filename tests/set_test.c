// Data to train on: permutations are permutations and every epoch has its own; a batch is a function of its index; all
// there is to see is seen once an epoch; splits share nothing; files that are not what they seem get one clear sentence.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // mkdtemp
#endif
#include "check.h"
#include "folder.h"

#include "data/inner.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

static const char *write_bytes(const char *name, const void *data, size_t n) {
    static char path[4][256];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    CHECK_OK(snd_write_file(path[turn], data, n));
    return path[turn];
}
static const char *write_text(const char *name, const char *text) {
    return write_bytes(name, text, strlen(text));
}

static snd_set *open_set(const char *path, snd_task task, const char *const *keys, int n) {
    snd_data_settings s = snd_data_defaults();
    snd_set *d = NULL;
    s.path = path;
    for (int i = 0; i + 1 < n; i += 2) CHECK_OK(snd_data_setting(&s, "", keys[i], keys[i + 1]));
    CHECK_OK(snd_set_open(&s, task, &d));
    return d;
}
#define OPEN(path, task, ...)                                                                                          \
    open_set(path, task, (const char *const[]){"", __VA_ARGS__} + 1,                                                   \
             (int)(sizeof((const char *[]){"", __VA_ARGS__}) / sizeof(char *)) - 1)

static snd_batches *cut(const snd_set *d, int64_t rows, int64_t tokens, uint64_t seed) {
    snd_batches *b = NULL;
    CHECK_OK(snd_batches_open(d, &(snd_batching){.rows = rows, .tokens = tokens, .seed = seed}, &b));
    return b;
}

static void get(const snd_batches *b, snd_split s, int64_t index, snd_batch *x) {
    CHECK_OK(snd_batches_get(b, s, index, 0, 1, x));
}

// ---- permutations ---------------------------------------------------------------------------------------------------------

static void every_permutation_is_one(void **state) {
    (void)state;
    const int64_t sizes[] = {1, 2, 3, 4, 5, 7, 16, 17, 63, 64, 65, 1000, 4097, 10007};
    const snd_key key = snd_key_make(3, "order");
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        const int64_t n = sizes[k];
        char *seen = malloc((size_t)n);
        int64_t same = 0, fixed = 0;
        for (uint64_t which = 0; which < 5; which++) {
            memset(seen, 0, (size_t)n);
            for (int64_t i = 0; i < n; i++) {
                const int64_t at = snd_permuted(key, which, n, i);
                assert_true(at >= 0 && at < n && !seen[at]);
                seen[at] = 1;
                fixed += at == i;
                same += at == snd_permuted(key, which + 1, n, i);
            }
        }
        // about one place in each of five permutations is fixed, and as many agree with the next; Poisson, five sigmas
        if (n >= 63) assert_true(fixed <= 5 + 5 * 3 && same <= 5 + 5 * 3);
        free(seen);
    }
    assert_int_equal(snd_permuted(key, 7, INT64_C(1) << 40, 12345), snd_permuted(key, 7, INT64_C(1) << 40, 12345));
    assert_true(snd_permuted(key, 7, (INT64_C(1) << 40) + 1, 99) <= INT64_C(1) << 40);
}

// Where a place goes is uniform: 20 places over 20000 permutations of 20, chi-squared with 19 degrees of freedom.
static void permutations_are_fair(void **state) {
    (void)state;
    enum { N = 20, TIMES = 20000 };
    const snd_key key = snd_key_make(4, "order");
    for (int64_t i = 0; i < N; i += 7) {
        int count[N] = {0};
        double chi = 0;
        for (uint64_t which = 0; which < TIMES; which++) count[snd_permuted(key, which, N, i)]++;
        for (int k = 0; k < N; k++) chi += pow(count[k] - TIMES / N, 2) / (TIMES / N);
        assert_true(chi < 19 + 6 * sqrt(2 * 19)); // six sigmas
    }
}

// ---- text -----------------------------------------------------------------------------------------------------------------

// Sixteen-bit numbers 0 .. n-1: a token's number is its place.
static const char *write_numbers(const char *name, int64_t n, bool header) {
    uint16_t *v = calloc((size_t)n + 512, sizeof *v);
    int32_t head[3] = {20240520, 1, (int32_t)n};
    if (header) memcpy(v, head, sizeof head);
    for (int64_t i = 0; i < n; i++) v[i + (header ? 512 : 0)] = (uint16_t)i;
    const char *path = write_bytes(name, v, ((size_t)n + (header ? 512 : 0)) * sizeof *v);
    free(v);
    return path;
}

static void windows_cover_the_text_once(void **state) {
    (void)state;
    for (int64_t n = 40; n <= 1003; n += 107)
        for (int64_t T = 1; T <= 16; T += 5) {
            snd_set *d = OPEN(write_numbers("n.bin", n, n % 2), SND_TASK_LM, "valid", "0");
            snd_batches *b = cut(d, 3, T, 1);
            snd_batch x;
            CHECK_OK(snd_batch_make(b, &x));
            assert_int_equal(snd_set_token_count(d, SND_SPLIT_TRAIN), n);
            const int64_t windows = (n - T) / T; // of an epoch
            int64_t order[4][1024], first[4];
            for (int64_t e = 0; e < 4; e++) {
                char seen[1024] = {0};
                int64_t covered = 0;
                first[e] = INT64_MAX;
                for (int64_t k = e * windows; k < (e + 1) * windows; k++) {
                    get(b, SND_SPLIT_TRAIN, k / 3, &x);
                    const int64_t *in = x.tokens + k % 3 * T, *out = x.targets + k % 3 * T;
                    order[e][k - e * windows] = in[0] / T;
                    if (in[0] < first[e]) first[e] = in[0];
                    for (int64_t t = 0; t < T; t++) {
                        assert_true(in[t] == in[0] + t && out[t] == in[t] + 1 && out[t] < n);
                        assert_int_equal(seen[in[t]]++, 0);
                        covered++;
                    }
                }
                assert_true(n - 1 - covered < 2 * T);
            }
            if (windows > 20) assert_memory_not_equal(order[0], order[1], (size_t)windows * sizeof(int64_t));
            if (T > 4) assert_true(first[0] != first[1] || first[0] != first[2] || first[0] != first[3]);
            snd_batch_free(&x);
            snd_batches_close(b);
            snd_set_close(d);
        }
}

static void validation_is_complete_and_in_order(void **state) {
    (void)state;
    snd_set *d = OPEN(write_numbers("v.bin", 200, false), SND_TASK_LM, "valid", "0.5");
    snd_batches *b = cut(d, 4, 9, 1);
    snd_batch x;
    CHECK_OK(snd_batch_make(b, &x));
    assert_int_equal(snd_batches_count(b, SND_SPLIT_VALID), 3); // 99 targets, 11 windows of 9, batches of 4
    int64_t next = 101, asked = 0;
    for (int64_t i = 0; i < 3; i++) {
        get(b, SND_SPLIT_VALID, i, &x);
        for (int64_t k = 0; k < 36; k++) {
            if (x.targets[k] == -100) continue;
            assert_int_equal(x.targets[k], next);
            assert_int_equal(x.tokens[k], next - 1);
            next++;
        }
        asked += x.asked;
    }
    assert_int_equal(next, 200);
    assert_int_equal(asked, 99);
    CHECK_STATUS(snd_batches_get(b, SND_SPLIT_VALID, 3, 0, 1, &x), SONDE_ERANGE);
    CHECK_STATUS(snd_batches_get(b, SND_SPLIT_TEST, 0, 0, 1, &x), SONDE_ERANGE);
    for (int64_t i = 0; i < 60; i++) { // what is trained on is not validated on
        get(b, SND_SPLIT_TRAIN, i, &x);
        for (int64_t k = 0; k < 36; k++) assert_true(x.targets[k] < 100);
    }
    snd_batch_free(&x);
    snd_batches_close(b);
    snd_set_close(d);
}

static const char *const TASKS_DATA[] = {"lm", "mlm", "seq2seq", "class"};

static snd_set *some_set(int task) {
    static char pairs[40000], table[20000];
    if (!pairs[0]) {
        char *p = pairs, *q = table;
        for (int i = 0; i < 600; i++) {
            p += sprintf(p, "id%d\tsource %.*s %d\tziel %.*s\n", i, i % 23, "abcdefghijklmnopqrstuvwxyz", i,
                         (i * 7) % 25, "zyxwvutsrqponmlkjihgfedcba");
            if (i < 300) q += sprintf(q, "%d,%d.5,%d\n", i, i % 17, i % 3);
        }
    }
    switch (task) {
    case 0: return OPEN(SONDE_SOURCE_DIR "/data/austen/austen.txt", SND_TASK_LM, "test", "0.01");
    case 1: return OPEN(SONDE_SOURCE_DIR "/data/austen/austen.txt", SND_TASK_MLM, "tokenizer", "bytes");
    case 2: return OPEN(write_text("p.tsv", pairs), SND_TASK_SEQ2SEQ, "tokenizer", "bytes", "valid", "0.2");
    default: return OPEN(write_text("t.csv", table), SND_TASK_CLASS, "valid", "0.2");
    }
}

static int64_t row_of(const snd_batch *x, const snd_set *d, int task, int64_t r, int64_t *out) {
    int64_t n = 0;
    if (task == 3) {
        int64_t s[3];
        snd_set_row_shape(d, s);
        for (int64_t i = 0; i < s[0]; i++) {
            int32_t bits;
            memcpy(&bits, &x->x[r * s[0] + i], sizeof bits);
            out[n++] = bits;
        }
        out[n++] = x->targets[r];
        return n;
    }
    const int64_t T = x->shape.tokens, S = x->shape.src_tokens;
    for (int64_t t = 0; t < T; t++) out[n++] = x->tokens[r * T + t];
    for (int64_t t = 0; t < T; t++) out[n++] = x->targets[r * T + t];
    for (int64_t t = 0; t < S; t++) out[n++] = x->src_tokens[r * S + t];
    if (task == 2) out[n++] = x->src_lengths[r];
    return n;
}

// The same batch again, in another order, in parts, from a set opened anew: U62 and U63 for the data's side.
static void a_batch_is_a_function_of_its_index(void **state) {
    (void)state;
    enum { ROWS = 12, T = 40 };
    static int64_t want[4096], got[4096];
    for (int task = 0; task < 4; task++) {
        snd_set *d = some_set(task), *again = some_set(task);
        snd_batches *b = cut(d, ROWS, T, 9), *c = cut(again, ROWS, T, 9), *other = cut(d, ROWS, T, 10);
        snd_batch x, y;
        CHECK_OK(snd_batch_make(b, &x));
        CHECK_OK(snd_batch_make(c, &y));
        assert_true(snd_set_fingerprint(d) == snd_set_fingerprint(again));
        bool differs = false;
        for (int64_t i = 0; i < 40; i++) {
            const int64_t index = i * 37 % 41;
            get(b, SND_SPLIT_TRAIN, index, &x);
            const snd_batch_shape shape = snd_batches_shape(b, SND_SPLIT_TRAIN, index);
            assert_memory_equal(&shape, &x.shape, sizeof shape);
            for (int64_t parts = 1; parts <= 4; parts *= 2) {
                int64_t asked = 0;
                for (int64_t p = 0; p < parts; p++) {
                    CHECK_OK(snd_batches_get(c, SND_SPLIT_TRAIN, index, p, parts, &y));
                    assert_int_equal(y.shape.rows * parts, x.shape.rows);
                    assert_int_equal(y.asked_all, x.asked);
                    asked += y.asked;
                    for (int64_t r = 0; r < y.shape.rows; r++) {
                        const int64_t n = row_of(&x, d, task, p * y.shape.rows + r, want);
                        assert_int_equal(row_of(&y, d, task, r, got), n);
                        if (memcmp(want, got, (size_t)n * sizeof *want))
                            fail_msg("%s: batch %d, part %d of %d differs", TASKS_DATA[task], (int)index, (int)p,
                                     (int)parts);
                    }
                }
                assert_int_equal(asked, x.asked);
            }
            CHECK_OK(snd_batches_get(other, SND_SPLIT_TRAIN, index, 0, 1, &y));
            const int64_t n = row_of(&x, d, task, 0, want), m = row_of(&y, d, task, 0, got);
            differs = differs || n != m || memcmp(want, got, (size_t)n * sizeof *want);
        }
        assert_true(differs);
        snd_batch_free(&x);
        snd_batch_free(&y);
        snd_batches_close(b);
        snd_batches_close(c);
        snd_batches_close(other);
        snd_set_close(d);
        snd_set_close(again);
    }
}

// The run's examples do not depend on how many of them make a batch.
static void examples_do_not_depend_on_the_batch(void **state) {
    (void)state;
    snd_set *d = some_set(0);
    snd_batches *three = cut(d, 3, 16, 1), *four = cut(d, 4, 16, 1);
    snd_batch x, y;
    CHECK_OK(snd_batch_make(three, &x));
    CHECK_OK(snd_batch_make(four, &y));
    for (int64_t k = 0; k < 120; k++) {
        get(three, SND_SPLIT_TRAIN, k / 3, &x);
        get(four, SND_SPLIT_TRAIN, k / 4, &y);
        assert_memory_equal(x.tokens + k % 3 * 16, y.tokens + k % 4 * 16, 16 * sizeof(int64_t));
    }
    CHECK_CLOSE(snd_batches_epochs(four, 4 * snd_batches_count(four, SND_SPLIT_TRAIN)), 4, 1e-3);
    snd_batch_free(&x);
    snd_batch_free(&y);
    snd_batches_close(three);
    snd_batches_close(four);
    snd_set_close(d);
}

static void texts_are_cut_at_lines(void **state) {
    (void)state;
    size_t n;
    char *all;
    CHECK_OK(snd_read_file(SONDE_SOURCE_DIR "/data/austen/austen.txt", 1 << 24, &all, &n));
    snd_set *d = OPEN(SONDE_SOURCE_DIR "/data/austen/austen.txt", SND_TASK_LM, "valid", "0.1", "test", "0.05");
    snd_buf joined = {0};
    for (int s = 0; s < SND_SPLIT_COUNT; s++) {
        const int64_t tokens = snd_set_token_count(d, (snd_split)s);
        int64_t *ids = malloc((size_t)tokens * sizeof *ids);
        snd_set_tokens(d, (snd_split)s, 0, tokens, ids);
        CHECK_OK(snd_tokenizer_decode(snd_set_tokenizer(d), ids, tokens, &joined));
        assert_int_equal(snd_set_byte_count(d, (snd_split)s), tokens); // ASCII
        if (s < 2) assert_int_equal(joined.s[joined.len - 1], '\n');
        free(ids);
    }
    assert_int_equal(joined.len, n);
    assert_memory_equal(joined.s, all, n);
    CHECK_CLOSE((double)snd_set_token_count(d, SND_SPLIT_VALID) / (double)n, 0.1, 1e-3);
    CHECK_CLOSE((double)snd_set_token_count(d, SND_SPLIT_TEST) / (double)n, 0.05, 1e-3);
    assert_int_equal(snd_set_vocab(d), 78);
    snd_buf_free(&joined);
    snd_set_close(d);
    snd_free(all);
}

static void folders_and_files_of_their_own(void **state) {
    (void)state;
    char path[256], name[300];
    snprintf(path, sizeof path, "%s/texts", folder);
    mkdir(path, 0777);
    CHECK_STATUS(snd_set_open(&(snd_data_settings){.path = path}, SND_TASK_LM, &(snd_set *){NULL}), SONDE_EINPUT);
    assert_non_null(strstr(sonde_error_message(), "no .txt file"));
    write_text("texts/b.txt", "second");
    write_text("texts/a.txt", "first\n");
    write_text("texts/c.md", "not read");
    snprintf(name, sizeof name, "%s/texts/d.txt.gz", folder);
    gzFile z = gzopen(name, "wb");
    assert_int_equal(gzputs(z, "third\n"), 6);
    gzclose(z);
    const char *valid = write_text("own.txt", "other words");
    snd_set *d = OPEN(path, SND_TASK_LM, "tokenizer", "bytes", "valid_path", valid, "valid", "0.5");
    int64_t ids[19], v[11];
    assert_int_equal(snd_set_token_count(d, SND_SPLIT_TRAIN), 19);
    assert_int_equal(snd_set_token_count(d, SND_SPLIT_VALID), 11);
    snd_set_tokens(d, SND_SPLIT_TRAIN, 0, 19, ids);
    for (int i = 0; i < 19; i++) assert_int_equal(ids[i], "first\nsecond\nthird\n"[i]);
    snd_set_tokens(d, SND_SPLIT_VALID, 0, 11, v);
    for (int i = 0; i < 11; i++) assert_int_equal(v[i], "other words"[i]);
    snd_set_close(d);
}

// ---- mlm ------------------------------------------------------------------------------------------------------------------

static void masks_are_as_bert_has_them(void **state) {
    (void)state;
    enum { ROWS = 50, T = 128, BATCHES = 30, N = ROWS * T * BATCHES };
    snd_set *d = some_set(1);
    assert_int_equal(snd_set_vocab(d), 257);
    snd_batches *b = cut(d, ROWS, T, 1);
    snd_batch x;
    CHECK_OK(snd_batch_make(b, &x));
    int64_t asked = 0, masked = 0, other = 0, kept = 0;
    for (int64_t i = 0; i < BATCHES; i++) {
        get(b, SND_SPLIT_TRAIN, i, &x);
        int64_t of_batch = 0;
        for (int64_t k = 0; k < ROWS * T; k++) {
            if (x.targets[k] == -100) {
                assert_true(x.tokens[k] < 128); // Austen is ASCII
                continue;
            }
            of_batch++;
            assert_true(x.targets[k] >= 0 && x.targets[k] < 128);
            masked += x.tokens[k] == 256;
            kept += x.tokens[k] == x.targets[k];
            other += x.tokens[k] != 256 && x.tokens[k] != x.targets[k];
        }
        assert_int_equal(of_batch, x.asked);
        asked += of_batch;
    }
    // binomial, five sigmas
    CHECK_CLOSE((double)asked / N, 0.15, 5 * sqrt(0.15 * 0.85 / N));
    CHECK_CLOSE((double)masked / (double)asked, 0.8, 5 * sqrt(0.16 / (0.15 * N)));
    CHECK_CLOSE((double)other / (double)asked, 0.1 * 255 / 256, 5 * sqrt(0.09 / (0.15 * N)));
    CHECK_CLOSE((double)kept / (double)asked, 0.1 + 0.1 / 256, 5 * sqrt(0.09 / (0.15 * N)));
    snd_batch_free(&x);
    snd_batches_close(b);
    b = cut(d, 64, 1, 1); // one token each: every row asks for it
    CHECK_OK(snd_batch_make(b, &x));
    get(b, SND_SPLIT_TRAIN, 0, &x);
    assert_int_equal(x.asked, 64);
    snd_batch_free(&x);
    snd_batches_close(b);
    snd_set_close(d);
}

// ---- pairs ----------------------------------------------------------------------------------------------------------------

static void check_pair(const snd_set *d, const snd_batch *x, int64_t r, char *source, size_t most) {
    const snd_tokenizer *t = snd_set_tokenizer(d);
    const int64_t S = x->shape.src_tokens, T = x->shape.tokens, pad = snd_tokenizer_special(t, SND_SPECIAL_PAD);
    const int64_t eos = snd_tokenizer_special(t, SND_SPECIAL_EOS), *src = x->src_tokens + r * S,
                  *in = x->tokens + r * T, *out = x->targets + r * T;
    const int64_t n = x->src_lengths[r];
    assert_true(n >= 2 && n <= S && src[n - 1] == eos);
    for (int64_t i = n; i < S; i++) assert_int_equal(src[i], pad);
    int64_t m = 0;
    while (m < T && out[m] != -100) m++;
    assert_true(m >= 1 && out[m - 1] == eos && in[0] == snd_tokenizer_special(t, SND_SPECIAL_BOS));
    for (int64_t i = 1; i < T; i++) assert_int_equal(in[i], i < m ? out[i - 1] : pad);
    for (int64_t i = m; i < T; i++) assert_int_equal(out[i], -100);
    assert_int_equal(x->lengths[r], m);
    snd_buf text = {0};
    CHECK_OK(snd_tokenizer_decode(t, src, n, &text));
    snprintf(source, most, "%s", text.s);
    snd_buf_free(&text);
}

static void pairs_come_by_length_and_all_of_them(void **state) {
    (void)state;
    snd_set *d = some_set(2);
    const int64_t n_train = snd_set_pair_count(d, SND_SPLIT_TRAIN), n_valid = snd_set_pair_count(d, SND_SPLIT_VALID);
    assert_int_equal(n_train + n_valid, 600);
    CHECK_CLOSE((double)n_valid / 600, 0.2, 5 * sqrt(0.16 / 600));
    snd_batches *b = cut(d, 8, 40, 3);
    const snd_batch_shape *shapes;
    const int n_shapes = snd_batches_shapes(b, &shapes);
    assert_true(n_shapes >= 2);
    for (int k = 0; k < n_shapes; k++) {
        assert_true(k == 0 || shapes[k].tokens > shapes[k - 1].tokens);
        assert_int_equal(shapes[k].rows, 8 * (40 / shapes[k].tokens));
    }
    snd_batch x;
    CHECK_OK(snd_batch_make(b, &x));
    int seen[600] = {0};
    char source[256];
    const int64_t passes = 4, batches = passes * snd_batches_count(b, SND_SPLIT_TRAIN);
    for (int64_t i = 0; i < batches; i++) {
        get(b, SND_SPLIT_TRAIN, i, &x);
        for (int64_t r = 0; r < x.shape.rows; r++) {
            check_pair(d, &x, r, source, sizeof source);
            seen[atoi(strrchr(source, ' ') + 1)]++;
        }
    }
    int most = 0, least = 1000, n = 0;
    for (int64_t i = 0; i < n_train; i++) {
        snd_text s, t;
        snd_set_pair(d, SND_SPLIT_TRAIN, i, &s, &t);
        snprintf(source, sizeof source, "%.*s", (int)s.n, s.s);
        int *c = &seen[atoi(strrchr(source, ' ') + 1)];
        most = *c > most ? *c : most;
        least = *c < least ? *c : least;
        *c = 0;
        n++;
    }
    for (int i = 0; i < 600; i++) assert_int_equal(seen[i], 0); // nothing of validation
    assert_true(least >= passes / 2 && most <= 2 * passes);     // rounding of a bucket's batches: within a half
    int64_t rows = 0;
    for (int64_t i = 0; i < snd_batches_count(b, SND_SPLIT_VALID); i++) {
        get(b, SND_SPLIT_VALID, i, &x);
        for (int64_t r = 0; r < x.shape.rows; r++) {
            assert_true(x.src_lengths[r] >= 1);
            if (x.targets[r * x.shape.tokens] == -100) {
                assert_int_equal(x.lengths[r], 0);
                continue;
            }
            check_pair(d, &x, r, source, sizeof source);
            assert_int_equal(seen[atoi(strrchr(source, ' ') + 1)]++, 0);
            rows++;
        }
    }
    assert_int_equal(rows + snd_batches_dropped(b, SND_SPLIT_VALID), n_valid);
    snd_batch_free(&x);
    snd_batches_close(b);
    b = cut(d, 8, 12, 3);
    assert_true(snd_batches_dropped(b, SND_SPLIT_TRAIN) > 0);
    snd_batches_close(b);
    CHECK_STATUS(snd_batches_open(d, &(snd_batching){.rows = 8, .tokens = 2}, &b), SONDE_EINPUT);
    assert_non_null(strstr(sonde_error_message(), "at most 2 tokens"));
    snd_set_close(d);
}

static void equal_sources_share_a_split(void **state) {
    (void)state;
    char text[20000], *p = text;
    for (int i = 0; i < 400; i++) p += sprintf(p, "satz %d\tsentence %d\n", i % 50, i);
    snd_set *d = OPEN(write_text("e.tsv", text), SND_TASK_SEQ2SEQ, "valid", "0.3", "test", "0.2", "columns", "2,1",
                      "bpe_vocab", "300");
    snd_set *e = OPEN(write_text("e2.tsv", text), SND_TASK_SEQ2SEQ, "valid", "0.3", "test", "0.2", "bpe_vocab", "300");
    for (int s = 0; s < SND_SPLIT_COUNT; s++) assert_int_equal(snd_set_pair_count(e, (snd_split)s) % 8, 0);
    assert_true(snd_set_pair_count(e, SND_SPLIT_VALID) > 0 && snd_set_pair_count(e, SND_SPLIT_TEST) > 0);
    snd_text a, b;
    snd_set_pair(d, SND_SPLIT_TRAIN, 0, &a, &b);
    assert_memory_equal(a.s, "sentence", 8);
    assert_memory_equal(b.s, "satz", 4);
    snd_set_close(d);
    snd_set_close(e);
}

// ---- images and tables ----------------------------------------------------------------------------------------------------

static void write_idx(const char *name, int dims, const int *dim, const uint8_t *v) {
    uint8_t bytes[8192] = {0, 0, 8, (uint8_t)dims};
    size_t n = 4, size = 1;
    for (int i = 0; i < dims; i++, n += 4) {
        bytes[n + 3] = (uint8_t)dim[i];
        size *= (size_t)dim[i];
    }
    for (size_t i = 0; i < size; i++) bytes[n++] = v[i];
    write_bytes(name, bytes, n);
}

// 40 images of 4 x 5 whose pixels hold their number, 10 for the test.
static const char *write_images(void) {
    static char path[256];
    uint8_t pixels[40 * 20], labels[40];
    snprintf(path, sizeof path, "%s/images", folder);
    mkdir(path, 0777);
    for (int i = 0; i < 40 * 20; i++) pixels[i] = (uint8_t)(i / 20 + i % 20 * 5);
    for (int i = 0; i < 40; i++) labels[i] = (uint8_t)(i % 7);
    write_idx("images/train-images-idx3-ubyte", 3, (int[]){40, 4, 5}, pixels);
    write_idx("images/train-labels-idx1-ubyte", 1, (int[]){40}, labels);
    write_idx("images/t10k-images-idx3-ubyte", 3, (int[]){10, 4, 5}, pixels);
    write_idx("images/t10k-labels-idx1-ubyte", 1, (int[]){10}, labels);
    return path;
}

static void images_are_normalised_and_split(void **state) {
    (void)state;
    snd_set *d = OPEN(write_images(), SND_TASK_CLASS, "valid", "0.25");
    int64_t shape[3];
    snd_set_row_shape(d, shape);
    assert_true(shape[0] == 1 && shape[1] == 4 && shape[2] == 5 && snd_set_classes(d) == 7);
    assert_int_equal(snd_set_row_count(d, SND_SPLIT_TRAIN), 30);
    assert_int_equal(snd_set_row_count(d, SND_SPLIT_VALID), 10);
    assert_int_equal(snd_set_row_count(d, SND_SPLIT_TEST), 10);
    snd_batches *b = cut(d, 30, 1, 2);
    snd_batch x;
    CHECK_OK(snd_batch_make(b, &x));
    get(b, SND_SPLIT_TRAIN, 0, &x);
    double sum = 0, square = 0;
    for (int i = 0; i < 600; i++) sum += (double)x.x[i] / 600, square += (double)x.x[i] * (double)x.x[i] / 600;
    CHECK_CLOSE(sum, 0, 1e-6);
    CHECK_CLOSE(square, 1, 1e-6);
    const double level = ((double)x.x[1] - (double)x.x[0]) / 5; // one grey level
    double first[40], least = INFINITY;
    int seen[40] = {0};
    for (int split = 0, n = 0; split < 2; split++) { // 30 rows, then 10 and room for 20 more
        get(b, (snd_split)split, 0, &x);
        assert_int_equal(x.asked, split ? 10 : 30);
        for (int r = 0; r < 30; r++) {
            assert_true((x.targets[r] == -100) == (split && r >= 10));
            if (x.targets[r] == -100) continue;
            for (int i = 1; i < 20; i++)
                CHECK_CLOSE((double)x.x[r * 20 + i] - (double)x.x[r * 20], i * 5 * level, 1e-5);
            first[n] = (double)x.x[r * 20];
            least = fmin(least, first[n++]);
        }
    }
    for (int n = 0; n < 40; n++) seen[(int)((first[n] - least) / level + 0.5)]++;
    for (int i = 0; i < 40; i++) assert_int_equal(seen[i], 1); // every image once, on one side
    snd_batch_free(&x);
    snd_batches_close(b);
    snd_set_close(d);
}

// Every augmented image is the plain one moved by at most 4 pixels, perhaps mirrored, raw zeros coming in.
static void augmentation_moves_and_mirrors(void **state) {
    (void)state;
    const char *path = write_images();
    snd_set *plain = OPEN(path, SND_TASK_CLASS, "valid", "0"),
            *moved = OPEN(path, SND_TASK_CLASS, "valid", "0", "augment", "true");
    snd_batches *a = cut(plain, 40, 1, 2), *b = cut(moved, 40, 1, 2);
    snd_batch x, y;
    CHECK_OK(snd_batch_make(a, &x));
    CHECK_OK(snd_batch_make(b, &y));
    int left = 0, right = 0, up = 0, down = 0, plain_way = 0, mirrored = 0;
    for (int64_t k = 0; k < 20; k++) {
        get(a, SND_SPLIT_TRAIN, k, &x);
        get(b, SND_SPLIT_TRAIN, k, &y);
        for (int r = 0; r < 40; r++) {
            const float *p = x.x + r * 20, *q = y.x + r * 20;
            const double level = ((double)p[1] - (double)p[0]) / 5;
            int ways = 0, way = 0;
            for (int m = 0; m < 162; m++) {
                const int dx = m % 9 - 4, dy = m / 9 % 9 - 4, flip = m / 81;
                bool fits = true;
                for (int i = 0; i < 20 && fits; i++) {
                    const int fy = i / 5 + dy, fx = (flip ? 4 - i % 5 : i % 5) + dx;
                    const bool in = fy >= 0 && fy < 4 && fx >= 0 && fx < 5;
                    // outside: raw 0, no more than any pixel
                    fits = in ? q[i] == p[fy * 5 + fx] : (double)q[i] <= (double)p[0] + 1e-3 * level;
                }
                ways += fits;
                way = fits ? m : way;
            }
            assert_true(ways > 0);
            if (ways == 1) { // of those that can be told
                left += way % 9 < 4, right += way % 9 > 4, up += way / 9 % 9 < 4, down += way / 9 % 9 > 4;
                plain_way += way < 81, mirrored += way >= 81;
            }
            assert_int_equal(x.targets[r], y.targets[r]);
        }
    }
    // 800 images, a third of which can be told; each side has 4 of 9 moves, each way a half
    assert_true(left > 40 && right > 40 && up > 40 && down > 40 && plain_way > 60 && mirrored > 60);
    snd_batch_free(&x);
    snd_batch_free(&y);
    snd_batches_close(a);
    snd_batches_close(b);
    snd_set_close(plain);
    snd_set_close(moved);
}

static void tables_are_standardised(void **state) {
    (void)state;
    const char *text = "x,kind,y,z\n1,0,1e9,5\n2,1,1000000001,5\n3,2,1000000002,5\n6,1,1000000005,5\n";
    snd_set *d = OPEN(write_text("s.csv", text), SND_TASK_CLASS, "valid", "0", "label", "kind");
    snd_batches *b = cut(d, 4, 1, 0);
    snd_batch x;
    CHECK_OK(snd_batch_make(b, &x));
    get(b, SND_SPLIT_TRAIN, 0, &x);
    double mean = 0, square = 0;
    int classes[3] = {0};
    for (int r = 0; r < 4; r++) {
        mean += (double)x.x[3 * r] / 4, square += (double)x.x[3 * r] * (double)x.x[3 * r] / 4;
        CHECK_CLOSE((double)x.x[3 * r + 1], (double)x.x[3 * r], 1e-6); // the same numbers plus 1e9
        CHECK_SAME((double)x.x[3 * r + 2], 0);
        classes[x.targets[r]]++;
    }
    CHECK_CLOSE(mean, 0, 1e-6);
    CHECK_CLOSE(square, 1, 1e-6);
    assert_true(classes[0] == 1 && classes[1] == 2 && classes[2] == 1);
    snd_batch_free(&x);
    snd_batches_close(b);
    snd_set_close(d);
    d = OPEN(write_text("s.csv", "0,5,6\n1,7,8\n"), SND_TASK_CLASS, "valid", "0", "label", "1");
    assert_int_equal(snd_set_classes(d), 2);
    snd_set_close(d);
}

static void fashion_mnist_opens(void **state) {
    (void)state;
    if (!snd_fashion_mnist_dir()) skip();
    snd_set *d = OPEN("fashion-mnist", SND_TASK_CLASS, "valid", "0");
    assert_int_equal(snd_set_row_count(d, SND_SPLIT_TRAIN), 60000);
    assert_int_equal(snd_set_row_count(d, SND_SPLIT_TEST), 10000);
    snd_batches *b = cut(d, 1000, 1, 0);
    snd_batch x;
    CHECK_OK(snd_batch_make(b, &x));
    get(b, SND_SPLIT_TRAIN, 0, &x);
    float least = 0;
    for (int i = 0; i < 784000; i++) least = x.x[i] < least ? x.x[i] : least;
    CHECK_CLOSE((double)least, -0.2860 / 0.3530, 1e-3); // black: the published mean and deviation
    snd_batch_free(&x);
    snd_batches_close(b);
    snd_set_close(d);
}

// ---- what is refused --------------------------------------------------------------------------------------------------------

static void refused(const char *path, snd_task task, const char *key, const char *value, sonde_status status,
                    const char *why) {
    snd_data_settings s = snd_data_defaults();
    snd_set *d = (snd_set *)1;
    const size_t before = snd_alloc_bytes();
    s.path = path;
    if (key) CHECK_OK(snd_data_setting(&s, "", key, value));
    const sonde_status got = snd_set_open(&s, task, &d);
    if (got != status || d || !strstr(sonde_error_message(), why))
        fail_msg("%s: status %s, message '%s', want '%s'", path, sonde_status_name(got), sonde_error_message(), why);
    if (strchr(sonde_error_message(), '\n')) fail_msg("'%s' is more than a line", sonde_error_message());
    assert_int_equal(snd_alloc_bytes(), before);
}

static void hostile_files(void **state) {
    (void)state;
    refused("no/such/file", SND_TASK_LM, NULL, NULL, SONDE_EIO, "no/such/file");
    refused(write_text("empty", ""), SND_TASK_LM, NULL, NULL, SONDE_EINPUT,
            "empty; there is nothing to learn from or to score");
    refused(write_text("empty.bin", ""), SND_TASK_LM, NULL, NULL, SONDE_EINPUT, "nothing to learn from");
    refused(write_text("empty.tsv", ""), SND_TASK_SEQ2SEQ, NULL, NULL, SONDE_EINPUT, "nothing to learn from");
    refused(write_text("latin.txt", "caf\xE9 au lait\n"), SND_TASK_LM, NULL, NULL, SONDE_EINPUT,
            "line 1 (byte 3): 0xe9 is not UTF-8");
    refused(write_text("odd.bin", "abc"), SND_TASK_LM, NULL, NULL, SONDE_EINPUT,
            "3 bytes, which are no whole number of 16-bit tokens");
    refused(write_text("x.txt", "1,0\ntext,1"), SND_TASK_CLASS, NULL, NULL, SONDE_EINPUT,
            "line 2, column 1: 'text' is not");
    refused(write_text("x.txt", "text"), SND_TASK_LM, "kind", "pairs", SONDE_EUNSUPPORTED,
            "data of kind pairs do not serve the objective lm, which needs text or tokens");
    refused(write_text("x.bin", "text"), SND_TASK_MLM, NULL, NULL, SONDE_EUNSUPPORTED, "have no mask token");
    refused("fashion-mnist", SND_TASK_LM, NULL, NULL, SONDE_EUNSUPPORTED,
            "data of kind images do not serve the objective lm, which needs text or tokens; family=transformer takes "
            "tokens, images need family=convnet or mlp");
    refused("fashion-mnist", SND_TASK_SEQ2SEQ, NULL, NULL, SONDE_EUNSUPPORTED, "images need family=convnet or mlp");
    refused(write_text("x.csv", "1,0"), SND_TASK_LM, "kind", "table", SONDE_EUNSUPPORTED, "a table needs family=mlp");
    refused(write_text("x.txt", "text"), SND_TASK_CLASS, "kind", "text", SONDE_EUNSUPPORTED,
            "do not serve the objective class, which needs images or a table; text, tokens and pairs need "
            "family=transformer");
    refused(write_text("x.txt", "text"), SND_TASK_LM, "tokenizer", "no/such.json", SONDE_EIO, "no/such.json");
    refused(write_text("x.txt", "text"), SND_TASK_LM, "valid_path", "no/such.txt", SONDE_EIO, "no/such.txt");
    uint8_t head[1026] = {0};
    const int32_t magics[] = {20240801, 20240520, 20240520}, versions[] = {7, 2, 1}, counts[] = {1, 1, 5};
    const char *const why[] = {"magic 20240801, version 7; 20240520, version 1", "version 2;",
                               "the header says 5 tokens, the file has 1"};
    for (int i = 0; i < 3; i++) {
        memcpy(head, &magics[i], 4), memcpy(head + 4, &versions[i], 4), memcpy(head + 8, &counts[i], 4);
        refused(write_bytes("h.bin", head, sizeof head), SND_TASK_LM, NULL, NULL,
                i < 2 ? SONDE_EUNSUPPORTED : SONDE_EINPUT, why[i]);
    }
}

static void hostile_pairs(void **state) {
    (void)state;
    refused(write_text("p.tsv", "no tab here\n"), SND_TASK_SEQ2SEQ, NULL, NULL, SONDE_EINPUT, "line 1: no tab");
    refused(write_text("p.tsv", "a\tb\n\nc\td\te\n"), SND_TASK_SEQ2SEQ, NULL, NULL, SONDE_EINPUT,
            "line 3: 3 fields, the lines before have 2");
    refused(write_text("p.tsv", "a\tb\nc\n"), SND_TASK_SEQ2SEQ, NULL, NULL, SONDE_EINPUT,
            "line 2: 1 field, the lines before have 2");
    refused(write_text("p.tsv", "a\tb\r\n \tb\r\n"), SND_TASK_SEQ2SEQ, NULL, NULL, SONDE_EINPUT,
            "line 2: the source is empty");
    refused(write_text("p.tsv", "a\tb\nb\t\n"), SND_TASK_SEQ2SEQ, NULL, NULL, SONDE_EINPUT,
            "line 2: the target is empty");
    refused(write_text("p.tsv", "a\tb\n"), SND_TASK_SEQ2SEQ, "columns", "1,3", SONDE_EINPUT,
            "2 fields, columns 1,3 are asked for");
    refused(write_text("p.tsv", "a\tb\n"), SND_TASK_SEQ2SEQ, "columns", "1", SONDE_ERANGE, "'1' is not SOURCE,TARGET");
    refused(write_text("p.tsv", "\n\n"), SND_TASK_SEQ2SEQ, NULL, NULL, SONDE_EINPUT, "no pairs in it");
    refused(write_text("p.tsv", "a\tb\xFF\nb\tc\n"), SND_TASK_SEQ2SEQ, "tokenizer", "chars", SONDE_EINPUT,
            "is not UTF-8");
}

static void hostile_rows(void **state) {
    (void)state;
    char path[256], name[300];
    snprintf(path, sizeof path, "%s/bad", folder);
    mkdir(path, 0777);
    refused(path, SND_TASK_CLASS, NULL, NULL, SONDE_EIO, "no train-images-idx3-ubyte or train-images-idx3-ubyte.gz");
    snprintf(name, sizeof name, "%s/train-images-idx3-ubyte.gz", path);
    gzFile z = gzopen(name, "wb");
    for (int i = 0; i < 3000; i++) gzputc(z, (int)(snd_uniform_at(snd_key_make(1, "gz"), (uint64_t)i) * 256));
    gzclose(z);
    struct stat st;
    assert_int_equal(stat(name, &st), 0);
    assert_int_equal(truncate(name, st.st_size / 2), 0);
    refused(path, SND_TASK_CLASS, NULL, NULL, SONDE_EINPUT, "train-images-idx3-ubyte.gz");
    unlink(name);
    write_bytes("bad/train-images-idx3-ubyte",
                "\0\0\x08\x03\0\0\0\x02\0\0\0\x01\0\0\0\x01"
                "ab",
                18);
    refused(path, SND_TASK_CLASS, NULL, NULL, SONDE_EIO, "no train-labels-idx1-ubyte");
    write_bytes("bad/train-labels-idx1-ubyte",
                "\0\0\x08\x01\0\0\0\x03"
                "\1\2\3",
                11);
    refused(path, SND_TASK_CLASS, NULL, NULL, SONDE_ESHAPE, "3 labels for 2 images");
    write_bytes("bad/train-images-idx3-ubyte",
                "\1\0\x08\x03\0\0\0\x02\0\0\0\x01\0\0\0\x01"
                "ab",
                18);
    refused(path, SND_TASK_CLASS, NULL, NULL, SONDE_EINPUT, "neither safetensors, idx, npy nor text");
    refused(write_text("t.csv", "1,2\n3\n"), SND_TASK_CLASS, NULL, NULL, SONDE_EINPUT,
            "line 2: 1 columns, the lines before have 2");
    refused(write_text("t.csv", "1,0\nnan,1\n"), SND_TASK_CLASS, NULL, NULL, SONDE_EINPUT,
            "row 2, column 1: nan; a finite number is needed");
    refused(write_text("t.csv", "1,0\n2,1.5\n"), SND_TASK_CLASS, NULL, NULL, SONDE_EINPUT, "row 2: the class is 1.5");
    refused(write_text("t.csv", "1,0\n2,-1\n"), SND_TASK_CLASS, NULL, NULL, SONDE_EINPUT, "row 2: the class is -1");
    refused(write_text("t.csv", "x,y\n1,0\n"), SND_TASK_CLASS, "label", "z", SONDE_ENAME, "no column 'z' among its 2");
    refused(write_text("t.csv", "1\n2\n"), SND_TASK_CLASS, NULL, NULL, SONDE_ESHAPE,
            "a table has rows of features and a class");
}

static void what_does_not_fit(void **state) {
    (void)state;
    snd_batches *b;
    snd_set *d = OPEN(write_numbers("f.bin", 100, false), SND_TASK_LM, "valid", "0");
    CHECK_STATUS(snd_batches_open(d, &(snd_batching){.rows = 1, .tokens = 100}, &b), SONDE_EINPUT);
    assert_non_null(strstr(sonde_error_message(), "100 tokens to train on; a sequence needs 101"));
    CHECK_STATUS(snd_batches_open(d, &(snd_batching){.rows = 0, .tokens = 10}, &b), SONDE_ERANGE);
    CHECK_STATUS(snd_batches_open(d, &(snd_batching){.rows = 1, .tokens = 0}, &b), SONDE_ERANGE);
    CHECK_OK(snd_batches_open(d, &(snd_batching){.rows = 1, .tokens = 99, .vocab = 99}, &b));
    snd_batch x;
    CHECK_OK(snd_batch_make(b, &x));
    CHECK_STATUS(snd_batches_get(b, SND_SPLIT_TRAIN, 0, 0, 1, &x), SONDE_ERANGE);
    assert_non_null(strstr(sonde_error_message(), "token 99 of train is 99; the vocabulary has 0 to 98"));
    snd_batch_free(&x);
    snd_batches_close(b);
    snd_set_close(d);
    d = some_set(0);
    CHECK_STATUS(snd_batches_open(d, &(snd_batching){.rows = 1, .tokens = 10, .vocab = 70}, &b), SONDE_ESHAPE);
    assert_non_null(strstr(sonde_error_message(), "vocabulary has 70 tokens"));
    assert_non_null(strstr(sonde_error_message(), "give vocab=78"));
    snd_set_close(d);
    CHECK_STATUS(snd_set_open(&(snd_data_settings){0}, SND_TASK_LM, &d), SONDE_EUSAGE);
}

static void settings(void **state) {
    (void)state;
    const snd_data_settings s = snd_data_defaults();
    CHECK_SAME(s.valid, 0.05);
    CHECK_SAME(s.test, 0);
    CHECK_SAME(s.mask, 0.15);
    assert_true(s.kind == SND_DATA_AUTO && s.bpe_vocab == 8192 && !s.augment && !s.path && !s.tokenizer);
    static const struct {
        const char *key, *text, *why;
        sonde_status status;
    } bad[] = {{"kinds", "text", "unknown data key 'kinds'; the nearest known is kind", SONDE_ENAME},
               {"kind", "txt", "'txt' is none of", SONDE_ENAME},
               {"valid", "half", "valid: 'half' is no number", SONDE_ETYPE},
               {"valid", "0,1", "valid: '0,1' is no number", SONDE_ETYPE},
               {"valid", "1", "valid: 1 is outside 0 to 0.9", SONDE_ERANGE},
               {"valid", "nan", "outside", SONDE_ERANGE},
               {"bpe_vocab", "8e3", "no whole number", SONDE_ETYPE},
               {"bpe_vocab", "12", "outside 257 to 65536", SONDE_ERANGE},
               {"augment", "yes", "neither true nor false", SONDE_ETYPE}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snd_data_settings t = snd_data_defaults();
        CHECK_STATUS(snd_data_setting(&t, "spec.yaml: ", bad[i].key, bad[i].text), bad[i].status);
        if (!strstr(sonde_error_message(), bad[i].why))
            fail_msg("'%s' does not say '%s'", sonde_error_message(), bad[i].why);
        assert_non_null(strstr(sonde_error_message(), "spec.yaml: "));
    }
}

static void sets_have_fingerprints(void **state) {
    (void)state;
    uint64_t seen[8];
    int n = 0;
    char *text = malloc(400001);
    for (int i = 0; i < 400000; i++) text[i] = (char)('a' + i % 26);
    text[400000] = 0;
    const char *path = write_text("f.txt", text);
    static const char *const keys[][2] = {
        {"valid", "0.05"}, {"valid", "0.1"}, {"tokenizer", "bytes"}, {"tokenizer", "bpe"}};
    for (int k = 0; k < 5; k++) {
        if (k == 4) {
            text[77] = '!';
            path = write_text("g.txt", text);
        }
        snd_set *d = OPEN(path, SND_TASK_LM, keys[k % 4][0], keys[k % 4][1], "bpe_vocab", "300");
        seen[n++] = snd_set_fingerprint(d);
        snd_set_close(d);
        for (int i = 0; i + 1 < n; i++) assert_true(seen[i] != seen[n - 1]);
    }
    free(text);
}

static void refuse(const snd_data_settings *s, snd_task task, sonde_status status, const char *why) {
    snd_set *d;
    const size_t before = snd_alloc_bytes();
    assert_int_equal(snd_set_open(s, task, &d), status);
    if (!strstr(sonde_error_message(), why)) fail_msg("'%s', want '%s'", sonde_error_message(), why);
    assert_int_equal(snd_alloc_bytes(), before);
}

// Words are classes in the order of the alphabet, or in the settings'; a second file has to know them.
static void classes_may_be_words(void **state) {
    (void)state;
    const char *path = write_text("w.csv", "x,kind\n1,sun\n2,rain\n3,sun\n4,fog\n");
    snd_set *d = OPEN(path, SND_TASK_CLASS, "valid", "0");
    assert_int_equal(snd_set_classes(d), 3);
    assert_string_equal(snd_set_class_name(d, 0), "fog");
    assert_string_equal(snd_set_class_name(d, 1), "rain");
    assert_string_equal(snd_set_class_name(d, 2), "sun");
    assert_null(snd_set_class_name(d, 3));
    float x;
    int64_t label, seen[3] = {0}, sum = 0;
    for (int r = 0; r < 4; r++) {
        snd_set_row(d, SND_SPLIT_TRAIN, r, &x, &label);
        seen[label]++;
        if (label == 0) assert_true(x > 1); // 4, the largest
        sum += label;
    }
    assert_true(seen[0] == 1 && seen[1] == 1 && seen[2] == 2 && sum == 5);
    snd_set_close(d);
    d = OPEN(path, SND_TASK_CLASS, "valid", "0", "classes", "sun,rain,fog,snow");
    assert_int_equal(snd_set_classes(d), 4);
    assert_string_equal(snd_set_class_name(d, 3), "snow");
    snd_set_close(d);
    snd_data_settings o = snd_data_defaults();
    o.path = path;
    o.classes = "sun,rain";
    refuse(&o, SND_TASK_CLASS, SONDE_EINPUT, "'fog' is none of the 2 classes (sun, ...)");
    o.classes = NULL;
    o.valid_path = write_text("v.csv", "x,kind\n1,hail\n");
    refuse(&o, SND_TASK_CLASS, SONDE_EINPUT, "'hail' is none of the 3 classes (fog, ...)");
    o.valid_path = NULL;
    o.path = write_text("c.csv", "1,\"a,b\"\n2,c\n");
    refuse(&o, SND_TASK_CLASS, SONDE_EINPUT, "'a,b' has a comma in it");
}

// Relative paths begin in the settings' folder; where nothing is there, here.
static void paths_begin_in_their_folder(void **state) {
    (void)state;
    static const char name[] = "set_test_place.txt", here[] = "what is here, what is here";
    write_text(name, "what is there, what is there, and more");
    CHECK_OK(snd_write_file(name, here, sizeof here - 1));
    snd_data_settings o = snd_data_defaults();
    o.path = name;
    o.valid = 0;
    snd_set *d;
    o.folder = folder;
    CHECK_OK(snd_set_open(&o, SND_TASK_LM, &d));
    assert_int_equal(snd_set_byte_count(d, SND_SPLIT_TRAIN), 38);
    assert_string_equal(snd_set_name(d), name);
    snd_set_close(d);
    o.folder = "/nowhere";
    CHECK_OK(snd_set_open(&o, SND_TASK_LM, &d));
    assert_int_equal(snd_set_byte_count(d, SND_SPLIT_TRAIN), 26);
    snd_set_close(d);
    unlink(name);
    refuse(&o, SND_TASK_LM, SONDE_EIO, "it was read from /nowhere and is not there any more; --data-folder DIR");
    o.folder = "."; // nothing was ever read: no place is spoken of
    refuse(&o, SND_TASK_LM, SONDE_EIO, "no such file or folder here");
    assert_true(snd_data_is_relative("path", "p.txt") && !snd_data_is_relative("path", "/p.txt"));
    assert_true(!snd_data_is_relative("path", "fashion-mnist") && !snd_data_is_relative("tokenizer", "bpe"));
    assert_true(snd_data_is_relative("tokenizer", "bpe.json") && !snd_data_is_relative("columns", "1,2"));
}

static void survives_lack_of_memory(void **state) {
    (void)state;
    char images[256];
    snprintf(images, sizeof images, "%s", write_images());
    static const char *const names[] = {"m.txt", "m2.txt", "m.tsv", "m.csv"};
    static const char *const text[] = {"some text to learn from, some text", "more of it, more of it",
                                       "a b\tc d\ne f\tg h\n", "1,2,yes\n3,4,no\n"};
    for (int task = SND_TASK_LM; task <= SND_TASK_CLASS + 1; task++) {
        const bool pictures = task > SND_TASK_CLASS;
        const char *path = pictures ? images : write_text(names[task - 1], text[task - 1]);
        const size_t before = snd_alloc_bytes();
        sonde_status s = SONDE_ENOMEM;
        for (int k = 1; s != SONDE_OK; k++) {
            snd_data_settings o = snd_data_defaults();
            snd_set *d = NULL;
            snd_batches *b = NULL;
            snd_batch x = {0};
            o.path = path;
            o.valid = 0;
            o.bpe_vocab = 270;
            o.augment = pictures;
            snd_alloc_fail_at(k);
            s = snd_set_open(&o, pictures ? SND_TASK_CLASS : (snd_task)task, &d);
            if (s == SONDE_OK) s = snd_batches_open(d, &(snd_batching){.rows = 2, .tokens = 8}, &b);
            if (s == SONDE_OK) s = snd_batch_make(b, &x);
            if (s == SONDE_OK) s = snd_batches_get(b, SND_SPLIT_TRAIN, 0, 0, 1, &x);
            snd_alloc_fail_at(0);
            if (s != SONDE_OK && s != SONDE_ENOMEM) fail_msg("%s: %s", path, sonde_error_message());
            snd_batch_free(&x);
            snd_batches_close(b);
            snd_set_close(d);
            assert_int_equal(snd_alloc_bytes(), before);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_permutation_is_one),
        cmocka_unit_test(permutations_are_fair),
        cmocka_unit_test(windows_cover_the_text_once),
        cmocka_unit_test(validation_is_complete_and_in_order),
        cmocka_unit_test(a_batch_is_a_function_of_its_index),
        cmocka_unit_test(examples_do_not_depend_on_the_batch),
        cmocka_unit_test(texts_are_cut_at_lines),
        cmocka_unit_test(folders_and_files_of_their_own),
        cmocka_unit_test(masks_are_as_bert_has_them),
        cmocka_unit_test(pairs_come_by_length_and_all_of_them),
        cmocka_unit_test(equal_sources_share_a_split),
        cmocka_unit_test(images_are_normalised_and_split),
        cmocka_unit_test(augmentation_moves_and_mirrors),
        cmocka_unit_test(tables_are_standardised),
        cmocka_unit_test(classes_may_be_words),
        cmocka_unit_test(paths_begin_in_their_folder),
        cmocka_unit_test(fashion_mnist_opens),
        cmocka_unit_test(hostile_files),
        cmocka_unit_test(hostile_pairs),
        cmocka_unit_test(hostile_rows),
        cmocka_unit_test(what_does_not_fit),
        cmocka_unit_test(settings),
        cmocka_unit_test(sets_have_fingerprints),
        cmocka_unit_test(survives_lack_of_memory),
    };
    return cmocka_run_group_tests_name("set", tests, make_folder, remove_folder);
}
