// sonde bench: the kernels against this machine's own limits (lab/bench.h), as a table or as JSON. Rows that were
// finished before an interrupt or the time limit are shown.
#include "cli/inner.h"

#include "kernels/kernels.h"
#include "lab/lab.h"
#include "record/record.h"

#include <string.h>

static bool progress(void *ctx, int done, int total) {
    snd_progress *p = ctx;
    p->total = total;
    return snd_progress_step(p, done);
}

static void put_json(snd_cli *c, const snd_bench_row *rows, int n) {
    snd_buf b = {0};
    snd_json j = snd_json_start(&b);
    snd_json_open(&j, NULL, '{');
    snd_json_str(&j, "schema", "sonde.bench/1");
    snd_json_str(&j, "gemm_f32", snd_k_gemm_name(SND_F32));
    snd_json_str(&j, "gemm_f64", snd_k_gemm_name(SND_F64));
    snd_json_open(&j, "rows", '[');
    for (int i = 0; i < n; i++) {
        snd_json_open_flat(&j, NULL, '{');
        snd_json_str(&j, "group", rows[i].group);
        snd_json_str(&j, "name", rows[i].name);
        snd_json_int(&j, "threads", rows[i].threads);
        snd_json_num(&j, "rate", rows[i].rate);
        snd_json_str(&j, "unit", rows[i].unit);
        snd_json_str(&j, "bound", *rows[i].bound ? rows[i].bound : NULL);
        snd_json_num(&j, "bound_rate", rows[i].bound_rate);
        snd_json_num(&j, "share", rows[i].share);
        snd_json_close(&j, '}');
    }
    snd_json_close(&j, ']');
    snd_json_close(&j, '}');
    snd_put(c, &b);
    snd_buf_free(&b);
}

static void put_table(snd_cli *c, const snd_bench_row *rows, int n) {
    static const char *const head[] = {"", "threads", "rate", "unit", "bound", "", "share"};
    snd_text_table *t = snd_table(c, 7);
    snd_table_head(t, head);
    snd_table_left(t, 0);
    snd_table_left(t, 3);
    snd_table_left(t, 5);
    for (int i = 0; i < n; i++) {
        char name[80];
        snprintf(name, sizeof name, "%s %s", rows[i].group, rows[i].name);
        snd_table_cell(t, name);
        snd_table_int(t, rows[i].threads);
        snd_table_num(t, rows[i].rate, 3);
        snd_table_cell(t, rows[i].unit);
        snd_table_num(t, rows[i].bound_rate, 3);
        snd_table_cell(t, rows[i].bound);
        snd_table_num(t, rows[i].share, 2);
    }
    snd_print(c, "f32 products by %s, f64 by %s\n\n", snd_k_gemm_name(SND_F32), snd_k_gemm_name(SND_F64));
    snd_table_print(t);
    snd_note(c, "\nshare: median over turns of rate / bound, timed alternately; a busy machine slows both");
}

// "64x4096x1024NT".
static sonde_status read_product(const char *word, snd_bench_product *p) {
    static const char *const layouts[] = {"NN", "NT", "TN"};
    int64_t *const sizes[] = {&p->M, &p->N, &p->K};
    enum { MOST = 1 << 24 }; // of a size; 2^30 elements of an operand
    const char *at = word;
    bool good = true;
    for (int i = 0; i < 3 && good; i++) {
        int digits = 0;
        for (*sizes[i] = 0; *at >= '0' && *at <= '9' && *sizes[i] < MOST; at++, digits++)
            *sizes[i] = 10 * *sizes[i] + (*at - '0');
        good = digits && *sizes[i] > 0 && *sizes[i] < MOST && (i == 2 || *at++ == 'x');
    }
    int how = 0;
    while (how < 3 && good && strcmp(at, layouts[how])) how++;
    good = good && how < 3 && p->K * (p->M + p->N) <= 1 << 30 && p->M * p->N <= 1 << 30;
    SND_FAIL_IF(!good, SONDE_EUSAGE,
                "--products: '%s' is no product; give MxNxK and NN, NT or TN, as in 64x4096x1024NT, matrices of up to "
                "2^30 elements",
                word);
    p->tb = how == 1;
    p->ta = how == 2;
    return SONDE_OK;
}

static sonde_status read_products(const snd_cli *c, snd_bench_product *p, int *n) {
    const char *const *words;
    *n = snd_opt_strs(c, "products", &words);
    SND_FAIL_IF(*n > SND_BENCH_ROWS, SONDE_EUSAGE, "--products: %d products; at most %d at a time", *n, SND_BENCH_ROWS);
    for (int i = 0; i < *n; i++) SND_TRY(read_product(words[i], &p[i]));
    return SONDE_OK;
}

sonde_status snd_verb_bench(snd_cli *c) {
    snd_bench_product products[SND_BENCH_ROWS];
    int n_products;
    SND_TRY(read_products(c, products, &n_products));
    snd_progress p = snd_progress_start(c, "bench", 1);
    const snd_bench_opts o = {.threads = (int)snd_opt_int(c, "threads", 0),
                              .quick = snd_opt_flag(c, "quick"),
                              .time_limit = snd_opt_num(c, "time-limit", 0),
                              .stop = c->stop,
                              .progress = progress,
                              .ctx = &p};
    snd_bench_row rows[SND_BENCH_ROWS];
    int n = 0;
    const sonde_status s = snd_opt_flag(c, "gemm") ? snd_bench_gemm(&o, products, n_products, rows, &n)
                           : n_products            ? snd_bench_products(&o, products, n_products, rows, &n)
                                                   : snd_bench_kernels(&o, rows, &n);
    snd_progress_end(&p);
    if (s != SONDE_OK && s != SONDE_EINTERRUPTED) return s;
    if (c->json)
        put_json(c, rows, n);
    else
        put_table(c, rows, n);
    return s;
}
