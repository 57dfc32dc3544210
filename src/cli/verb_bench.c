// sonde bench: kernels and training steps against this machine's own limits, and against PyTorch, in turns (lab/bench.h), as
// tables or as JSON, beside a saved result where one is given. Rows that were finished before an interrupt or the time limit
// are shown.
#include "cli/inner.h"

#include "kernels/kernels.h"
#include "lab/lab.h"
#include "record/record.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool progress(void *ctx, int done, int total) {
    snd_progress *p = ctx;
    p->total = total;
    return snd_progress_step(p, done);
}

// ---- tables ----------------------------------------------------------------------------------------------------------

static void put_spread(snd_text_table *t, snd_bench_stat s, int digits) {
    char lo[40], hi[40], text[96] = "";
    if (isfinite(s.mid))
        snprintf(text, sizeof text, "(%s .. %s)", snd_pretty(lo, s.lo, digits), snd_pretty(hi, s.hi, digits));
    snd_table_cell(t, text);
}

static void put_stat(snd_text_table *t, snd_bench_stat s, int digits) {
    snd_table_num(t, s.mid, digits);
    put_spread(t, s, digits);
}

static void put_name(snd_text_table *t, const char *group, const char *name) {
    char text[80];
    snprintf(text, sizeof text, "%s %s", group, name);
    snd_table_cell(t, text);
}

static void put_kernels(snd_cli *c, const snd_bench_row *rows, int n, const char *rival) {
    const char *head[] = {"", "threads", "rate", "", "unit", "bound", "", "share", "", "theirs", "times theirs", ""};
    snd_text_table *t = snd_table(c, rival ? 12 : 9);
    snd_table_head(t, head);
    static const int left[] = {0, 3, 4, 6, 8, 11};
    for (int i = 0; i < (rival ? 6 : 5); i++) snd_table_left(t, left[i]);
    for (int i = 0; i < n; i++) {
        const snd_bench_row *r = &rows[i];
        if (r->item) continue;
        put_name(t, r->group, r->name);
        snd_table_int(t, r->threads);
        put_stat(t, r->rate, 3);
        snd_table_cell(t, r->unit);
        snd_table_num(t, r->bound_rate.mid, 3);
        snd_table_cell(t, r->bound);
        put_stat(t, r->share, strcmp(r->group, "monitor") ? 2 : 3);
        if (!rival) continue;
        snd_table_num(t, r->rival.mid, 3);
        put_stat(t, r->ratio, 3);
    }
    snd_table_print(t);
}

// Of a rate's spread, the seconds'.
static snd_bench_stat inverse(snd_bench_stat s, double of) {
    return (snd_bench_stat){of / s.mid, of / s.hi, of / s.lo};
}

static void put_steps(snd_cli *c, const snd_bench_row *rows, int n, const char *rival) {
    const char *head[] = {"training step", "threads", "ms", "",    "per second",    "", "MiB", "GFLOP/s",
                          "share",         "theirs",  "",   "MiB", "times as fast", ""};
    snd_text_table *t = snd_table(c, rival ? 14 : 9);
    snd_table_head(t, head);
    static const int left[] = {0, 3, 5, 10, 13};
    for (int i = 0; i < (rival ? 5 : 3); i++) snd_table_left(t, left[i]);
    for (int i = 0; i < n; i++) {
        const snd_bench_row *r = &rows[i];
        if (!r->item) continue;
        const double work = r->seconds * r->rate.mid * 1e3; // GFLOP of a step, times ms in a second
        snd_table_cell(t, r->name);
        snd_table_int(t, r->threads);
        put_stat(t, inverse(r->rate, work), 3);
        snd_table_num(t, r->items / r->seconds, 4);
        snd_table_cell(t, r->item);
        snd_table_num(t, r->mib, 4);
        snd_table_num(t, r->rate.mid, 3);
        snd_table_num(t, r->share.mid, 2);
        if (!rival) continue;
        put_stat(t, inverse(r->rival, work), 3);
        snd_table_num(t, r->rival_mib, 4);
        put_stat(t, r->ratio, 3);
    }
    snd_table_print(t);
}

static void put_tables(snd_cli *c, const snd_bench_about *a, const snd_bench_row *rows, int n) {
    char load[40];
    int steps = 0;
    for (int i = 0; i < n; i++) steps += rows[i].item != NULL;
    snd_print(c, "%s · %s\nf32 products by %s, f64 by %s\n", a->cpu, a->isa, a->gemm_f32, a->gemm_f64);
    if (a->rival) snd_print(c, "beside %s · %s\n", a->rival, a->setting);
    if (n > steps) snd_print(c, "\n");
    if (n > steps) put_kernels(c, rows, n, a->rival);
    if (steps) snd_print(c, "\n");
    if (steps) put_steps(c, rows, n, a->rival);
    snd_note(c, "\nmedians over turns, middle half in brackets; share: of rate / bound, timed in turns, so a busy "
                "machine slows both");
    if (steps) snd_note(c, "GFLOP/s of a step: its products' alone, against the multiply-adds");
    if (strstr(a->gemm_f32, "bf16x3"))
        snd_note(
            c,
            "large f32 products are made of bf16 numbers here, three to an operand: that may pass the multiply-adds");
    const double busy = 0.3; // of a processor
    if (a->load > busy && !a->cpu_time)
        snd_note(c, "the machine was busy just before (load %s): spreads tell how much that matters%s",
                 snd_pretty(load, a->load, 2),
                 a->rival ? ", and a rival whose threads wait for each other loses more" : "");
}

// ---- a saved result --------------------------------------------------------------------------------------------------

typedef struct baseline {
    snd_bench_file file;
    double tolerance;
    snd_bench_change *changes;
    int n;
} baseline;

static sonde_status read_baseline(snd_cli *c, const snd_bench_about *here, baseline *b) {
    b->tolerance = snd_opt_num(c, "tolerance", 0.05);
    const char *path = snd_opt_str(c, "baseline", NULL);
    if (!path) return SONDE_OK;
    c->file_at_fault = true; // until it has been understood
    SND_TRY(snd_bench_read(c->arena, path, &b->file));
    const snd_bench_about *then = &b->file.about;
    SND_FAIL_IF(strcmp(then->cpu, here->cpu) != 0, SONDE_EINPUT,
                "%s: measured on '%s', this is '%s'; two machines are not compared", path, then->cpu, here->cpu);
    c->file_at_fault = false;
    if (then->version && strcmp(then->version, here->version) != 0)
        snd_note(c, "%s is of version %s, this is %s", path, then->version, here->version);
    if (then->isa && strcmp(then->isa, here->isa) != 0)
        snd_note(c, "%s was measured with %s, this run uses %s", path, then->isa, here->isa);
    if (then->gemm_f32 && strcmp(then->gemm_f32, here->gemm_f32) != 0)
        snd_note(c, "%s: f32 products by %s, now by %s", path, then->gemm_f32, here->gemm_f32);
    if (then->quick != here->quick)
        snd_note(c, "%s was measured %s --quick, this run is %s", path, then->quick ? "with" : "without",
                 then->quick ? "not" : "with it");
    if (then->cpu_time != here->cpu_time)
        snd_note(c, "%s was measured %s --cpu-time, this run is %s", path, then->cpu_time ? "with" : "without",
                 then->cpu_time ? "not" : "with it");
    return SONDE_OK;
}

static sonde_status compare(snd_cli *c, baseline *b, const snd_bench_row *rows, int n) {
    if (!b->file.path) return SONDE_OK;
    SND_NEW(c->arena, b->changes, b->file.n + n + 1);
    b->n = snd_bench_compare(&b->file, rows, n, b->tolerance, b->changes);
    if (snd_bench_count(b->changes, b->n, SND_BENCH_SLOWER) + snd_bench_count(b->changes, b->n, SND_BENCH_LOST) > 0)
        c->exit_code = 1;
    return SONDE_OK;
}

static void put_changes(snd_cli *c, const baseline *b) {
    static const char *const head[] = {"", "threads", "by", "then", "now", "now / then", ""};
    static const snd_ink inks[SND_BENCH_VERDICTS] = {
        [SND_BENCH_SLOWER] = SND_INK_RED, [SND_BENCH_LOST] = SND_INK_RED, [SND_BENCH_FASTER] = SND_INK_GREEN};
    char tolerance[40];
    snd_text_table *t = snd_table(c, 7);
    snd_table_head(t, head);
    snd_table_left(t, 0);
    snd_table_left(t, 2);
    snd_table_left(t, 6);
    for (int i = 0; i < b->n; i++) {
        const snd_bench_change *k = &b->changes[i];
        if (k->verdict == SND_BENCH_MISSING) continue;
        put_name(t, k->group, k->name);
        snd_table_int(t, k->threads);
        snd_table_cell(t, k->by);
        snd_table_num(t, k->then, 3);
        snd_table_num(t, k->now, 3);
        snd_table_num(t, k->ratio, 3);
        snd_table_cell(t, k->verdict == SND_BENCH_SAME ? "" : snd_bench_verdict_name(k->verdict));
        snd_table_ink(t, inks[k->verdict]);
    }
    snd_print(c, "\nAgainst %s\n\n", b->file.path);
    snd_table_print(t);
    const int missing = snd_bench_count(b->changes, b->n, SND_BENCH_MISSING);
    snd_print(c, "\n%d slower and %d faster by more than %s %% and beyond both spreads, %d without a number now\n",
              snd_bench_count(b->changes, b->n, SND_BENCH_SLOWER), snd_bench_count(b->changes, b->n, SND_BENCH_FASTER),
              snd_pretty(tolerance, 100 * b->tolerance, 3), snd_bench_count(b->changes, b->n, SND_BENCH_LOST));
    if (missing) snd_print(c, "%d of its rows were not measured now\n", missing);
}

static void show(snd_cli *c, const snd_bench_about *about, const snd_bench_row *rows, int n, const baseline *b) {
    snd_buf json = {0};
    if (c->json) {
        snd_bench_json(about, rows, n, &b->file, b->tolerance, b->changes, b->n, &json);
        snd_put(c, &json);
        snd_buf_free(&json);
        return;
    }
    put_tables(c, about, rows, n);
    if (b->changes) put_changes(c, b);
}

// ---- what is asked for ----------------------------------------------------------------------------------------------

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

static sonde_status check_together(const snd_cli *c) {
    const bool gemm = snd_opt_flag(c, "gemm"), products = snd_opt_given(c, "products");
    SND_FAIL_IF(snd_opt_given(c, "only") && (gemm || products), SONDE_EUSAGE,
                "--only picks among all rows; with --%s there are products alone", gemm ? "gemm" : "products");
    SND_FAIL_IF(gemm && snd_opt_given(c, "against"), SONDE_EUSAGE,
                "--gemm has a rival of its own, oneDNN; leave out --against, or --gemm");
    SND_FAIL_IF(snd_opt_flag(c, "cpu-time") && snd_opt_int(c, "threads", 0) != 1, SONDE_EUSAGE,
                "--cpu-time is of one thread's work: give --threads 1");
    SND_FAIL_IF(snd_opt_given(c, "tolerance") && !snd_opt_given(c, "baseline"), SONDE_EUSAGE,
                "--tolerance is of a comparison; give --baseline FILE too");
    return SONDE_OK;
}

// ---- PyTorch's side --------------------------------------------------------------------------------------------------

static const char SCRIPT[] = "torch_rounds.py";

// Where the scripts that come with the command lie: $SONDE_SHARE, else beside an installed command (bin/../share/sonde), else
// beside one in its build's folder (share/sonde). NULL: nowhere.
static const char *find_script(snd_cli *c) {
    char self[PATH_MAX] = "";
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    char *slash = n > 0 ? strrchr(self, '/') : NULL;
    if (slash) *slash = 0;
    const char *share = getenv("SONDE_SHARE");
    if (share && !*share) share = NULL;
    const char *at[] = {share ? snd_arena_printf(c->arena, "%s/%s", share, SCRIPT) : NULL,
                        snd_arena_printf(c->arena, "%s/../share/sonde/%s", self, SCRIPT),
                        snd_arena_printf(c->arena, "%s/share/sonde/%s", self, SCRIPT)};
    for (int i = share ? 0 : 1; i < (share ? 1 : 3); i++)
        if (at[i] && access(at[i], R_OK) == 0) return at[i];
    return NULL;
}

static sonde_status open_rival(snd_cli *c, int threads, snd_rival **out) {
    *out = NULL;
    if (!snd_opt_given(c, "against")) return SONDE_OK;
    const char *script = find_script(c);
    SND_FAIL_IF(!script, SONDE_EUSAGE,
                "--against torch: %s, which comes with the command, is not in ../share/sonde beside it nor in "
                "$SONDE_SHARE",
                SCRIPT);
    const char *argv[] = {"python3", script, snd_arena_printf(c->arena, "%d", threads), NULL};
    if (!argv[2]) return SONDE_ENOMEM;
    const sonde_status s = snd_rival_open(argv, c->stop, out);
    return s == SONDE_OK ? s : snd_fail_prefix(s, "--against torch: ");
}

// ---- the verb --------------------------------------------------------------------------------------------------------

static sonde_status run(snd_cli *c, snd_bench_opts *o, const snd_bench_product *products, int n_products) {
    snd_bench_row *rows;
    snd_bench_about about;
    baseline b = {0};
    int n = 0;
    SND_NEW(c->arena, rows, SND_BENCH_ROWS);
    SND_TRY(snd_bench_here(c->arena, o, &about));
    SND_TRY(read_baseline(c, &about, &b));
    snd_progress p = snd_progress_start(c, "bench", 1);
    o->ctx = &p;
    const sonde_status s = snd_opt_flag(c, "gemm") ? snd_bench_gemm(o, products, n_products, rows, &n)
                           : n_products            ? snd_bench_products(o, products, n_products, rows, &n)
                                                   : snd_bench_all(o, rows, &n);
    snd_progress_end(&p);
    if (s != SONDE_OK && s != SONDE_EINTERRUPTED) return s;
    SND_TRY(compare(c, &b, rows, n));
    show(c, &about, rows, n, &b);
    return s;
}

sonde_status snd_verb_bench(snd_cli *c) {
    snd_bench_product products[SND_BENCH_ROWS];
    int n_products;
    SND_TRY(check_together(c));
    SND_TRY(read_products(c, products, &n_products));
    snd_bench_opts o = {.threads = (int)snd_opt_int(c, "threads", 0),
                        .quick = snd_opt_flag(c, "quick"),
                        .cpu_time = snd_opt_flag(c, "cpu-time"),
                        .time_limit = snd_opt_num(c, "time-limit", 0),
                        .stop = c->stop,
                        .progress = progress};
    o.n_only = snd_opt_strs(c, "only", &o.only);
    SND_TRY(open_rival(c, o.threads > 0 ? o.threads : snd_cpu_count(), &o.rival));
    const sonde_status s = run(c, &o, products, n_products);
    snd_rival_close(o.rival);
    return s;
}
