// How fast text becomes tokens and tokens batches, on one thread: what training waits for where it does not compute.
// Usage: data_bench SOURCE_DIR. Medians of five; a busy machine slows all of it.
#include "data/data.h"

#include <stdlib.h>
#include <string.h>

enum { TURNS = 5 };

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void fail(sonde_status s) {
    if (s == SONDE_OK) return;
    fprintf(stderr, "data_bench: %s\n", sonde_error_message());
    exit(1);
}

static void show(const char *what, double amount, double *seconds, const char *unit) {
    qsort(seconds, TURNS, sizeof *seconds, by_value);
    printf("%-46s %9.1f ms %10.1f M%s/s\n", what, 1e3 * seconds[TURNS / 2], amount / seconds[TURNS / 2] / 1e6, unit);
}

static void tokenizer(snd_tokenizer_kind kind, const char *text, size_t n) {
    double learn[TURNS], encode[TURNS], decode[TURNS];
    char what[64];
    for (int k = 0; k < TURNS; k++) {
        snd_tokenizer *t;
        snd_ids ids = {0};
        snd_buf back = {0};
        const double a = snd_now();
        fail(snd_tokenizer_make(kind, "text", (const uint8_t *)text, n, 8192, 0, &t));
        const double b = snd_now();
        fail(snd_tokenizer_encode(t, "text", (const uint8_t *)text, n, &ids));
        const double c = snd_now();
        int64_t *wide = malloc((size_t)(ids.n + 1) * sizeof *wide);
        if (!wide) exit(1);
        for (int64_t i = 0; i < ids.n; i++) wide[i] = ids.v[i];
        const double d = snd_now();
        fail(snd_tokenizer_decode(t, wide, ids.n, &back));
        learn[k] = b - a;
        encode[k] = c - b;
        decode[k] = snd_now() - d;
        free(wide);
        snd_buf_free(&back);
        snd_free(ids.v);
        snd_tokenizer_destroy(t);
    }
    const char *name = snd_tokenizer_kind_name(kind);
    const double amount = (double)n;
    snprintf(what, sizeof what, "%s: made from %.2f MB%s", name, amount / 1e6,
             kind == SND_TOK_BPE ? ", 8192 tokens" : "");
    if (kind != SND_TOK_BYTES) show(what, amount, learn, "B");
    snprintf(what, sizeof what, "%s: encode", name);
    show(what, amount, encode, "B");
    snprintf(what, sizeof what, "%s: decode", name);
    show(what, amount, decode, "B");
}

static void batches(const char *path, snd_task task, const char *what, int64_t rows, int64_t tokens, int64_t n) {
    snd_data_settings s = snd_data_defaults();
    snd_set *d;
    snd_batches *b;
    snd_batch x;
    double seconds[TURNS], amount = 0;
    s.path = path;
    s.augment = task == SND_TASK_CLASS;
    fail(snd_set_open(&s, task, &d));
    fail(snd_batches_open(d, &(snd_batching){.rows = rows, .tokens = tokens, .seed = 1}, &b));
    fail(snd_batch_make(b, &x));
    for (int k = 0; k < TURNS; k++) {
        const double start = snd_now();
        amount = 0;
        for (int64_t i = 0; i < n; i++) {
            fail(snd_batches_get(b, SND_SPLIT_TRAIN, i, 0, 1, &x));
            amount += (double)(x.shape.rows * (x.shape.tokens + x.shape.src_tokens));
        }
        seconds[k] = snd_now() - start;
    }
    show(what, amount, seconds, task == SND_TASK_CLASS ? "images" : "tokens");
    snd_batch_free(&x);
    snd_batches_close(b);
    snd_set_close(d);
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: data_bench SOURCE_DIR\n");
        return 2;
    }
    char path[4096], pairs[] = "/tmp/sonde-pairs-XXXXXX";
    char *text;
    size_t n;
    snprintf(path, sizeof path, "%s/data/austen/austen.txt", argv[1]);
    fail(snd_read_file(path, 1 << 26, &text, &n));
    for (int k = SND_TOK_BYTES; k <= SND_TOK_BPE; k++) tokenizer((snd_tokenizer_kind)k, text, n);
    batches(path, SND_TASK_LM, "lm batches, 32 x 256", 32, 256, 500);
    batches(path, SND_TASK_MLM, "mlm batches, 32 x 256", 32, 256, 200);
    snd_buf b = {0}; // the novels' lines, each with the next as its translation
    for (const char *s = text, *next; (next = strchr(s, '\n')) && strchr(next + 1, '\n'); s = next + 1) {
        const size_t here = (size_t)(next - s), then = (size_t)(strchr(next + 1, '\n') - next - 1);
        if (here < 8 || then < 8) continue;
        snd_buf_putn(&b, s, here);
        snd_buf_put(&b, "\t");
        snd_buf_putn(&b, next + 1, then + 1);
    }
    const int fd = mkstemp(pairs);
    if (fd < 0 || b.failed) return 1;
    fail(snd_write_file(pairs, b.s, b.len));
    batches(pairs, SND_TASK_SEQ2SEQ, "seq2seq batches, 32 x 64", 32, 64, 500);
    remove(pairs);
    if (snd_fashion_mnist_dir())
        batches("fashion-mnist", SND_TASK_CLASS, "Fashion-MNIST, moved and mirrored, 128", 128, 1, 100);
    snd_buf_free(&b);
    snd_free(text);
    return 0;
}
