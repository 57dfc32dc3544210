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

sonde_status snd_verb_bench(snd_cli *c) {
    snd_progress p = snd_progress_start(c, "bench", 1);
    const snd_bench_opts o = {.threads = (int)snd_opt_int(c, "threads", 0),
                              .quick = snd_opt_flag(c, "quick"),
                              .time_limit = snd_opt_num(c, "time-limit", 0),
                              .stop = c->stop,
                              .progress = progress,
                              .ctx = &p};
    snd_bench_row rows[SND_BENCH_ROWS];
    int n = 0;
    const sonde_status s = snd_bench_kernels(&o, rows, &n);
    snd_progress_end(&p);
    if (s != SONDE_OK && s != SONDE_EINTERRUPTED) return s;
    if (c->json)
        put_json(c, rows, n);
    else
        put_table(c, rows, n);
    return s;
}
