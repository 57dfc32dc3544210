// Benchmarks of the kernels; see bench.h. A case is a row of `cases`: what runs, on which shape, and which limit bounds
// it. A turn runs the case and its limit once each, long enough for the clock.
#include "lab/bench.h"
#include "kernels/kernels.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// One set of buffers serves all cases: their largest array has ROOM elements of 8 bytes, or BIG_ROOM where the cases are
// run whose arrays leave every cache.
enum { ROOM = 2048 * 1024, BIG_ROOM = 8192 * 4096 / 2, MAX_TURNS = 31 };
typedef struct desk {
    int threads;
    void *x, *y, *z, *w, *g, *b, *work;
    double *m, *r;
    uint64_t *bits;
    snd_key key;
    double sink; // results that nothing else uses
} desk;

typedef struct job job;
struct job {
    const char *group, *what, *unit, *bound;
    void (*run)(const job *j, desk *d);
    void (*limit)(const job *j, desk *d);
    double (*work)(const job *j);  // units of run: flop, bytes or elements
    double (*allow)(const job *j); // the limit's, in the same unit
    snd_dtype t;
    int64_t a, b, c; // shape: M,N,K or rows,features
    int how;         // layout, function, kind
    bool big;        // arrays beyond the caches; not for a quick run
};

// ---- limits ---------------------------------------------------------------------------------------------------------

enum { PEAK_ROUNDS = 200000 };
static void peak(const job *j, desk *d) {
    d->sink += snd_k_peak(d->threads, j->t, PEAK_ROUNDS);
}
static void copy(const job *j, desk *d) {
    snd_k_copy(d->threads, j->t, j->a * j->b, false, d->x, d->z);
}
static void stream(const job *j, desk *d) {
    snd_k_copy(d->threads, j->t, j->a * j->b, true, d->x, d->z);
}
static void triad(const job *j, desk *d) {
    snd_k_triad(d->threads, j->t, j->a * j->b, false, d->x, d->y, d->z);
}
static void stream_triad(const job *j, desk *d) {
    snd_k_triad(d->threads, j->t, j->a * j->b, true, d->x, d->y, d->z);
}
static void read_all(const job *j, desk *d) {
    d->sink += snd_k_absmax(d->threads, j->t, j->a * j->b, d->x);
}

static double size_of(const job *j) {
    return (double)snd_dtype_size(j->t);
}
static double two(const job *j) {
    return 2 * size_of(j) * (double)j->a * (double)j->b;
}
static double three(const job *j) {
    return 3 * size_of(j) * (double)j->a * (double)j->b;
}
static double four(const job *j) {
    return 4 * size_of(j) * (double)j->a * (double)j->b;
}
static double one(const job *j) {
    return size_of(j) * (double)j->a * (double)j->b;
}
static double elements(const job *j) {
    return (double)j->a * (double)j->b;
}
static double flops(const job *j) {
    return 2 * (double)j->a * (double)j->b * (double)j->c;
}

// ---- kernels --------------------------------------------------------------------------------------------------------

enum { NN, NT, TN };
static void gemm(const job *j, desk *d) {
    const bool ta = j->how == TN, tb = j->how == NT;
    snd_k_gemm(d->threads, j->t, ta, tb, j->a, j->b, j->c, 1, d->x, ta ? j->a : j->c, d->y, tb ? j->c : j->b, 0, d->z,
               j->b);
}
static snd_normspec norm_call(const job *j, const desk *d) {
    return (snd_normspec){
        .kind = (snd_knorm)j->how, .D = j->b, .eps = 1e-5, .g = d->g, .b = j->how == SND_KNORM_LAYER ? d->b : NULL};
}
static void norm_fwd(const job *j, desk *d) {
    const snd_normspec s = norm_call(j, d);
    d->sink += snd_k_norm_fwd(d->threads, j->t, &s, j->a, d->x, d->z, d->m, d->r);
}
static void norm_bwd(const job *j, desk *d) {
    const snd_normspec s = norm_call(j, d);
    d->sink += snd_k_norm_bwd(d->threads, j->t, &s, j->a, d->y, d->x, d->m, d->r, NULL, d->z, d->b, NULL, d->work);
}
// The residual's sum and its norm; the gradient of the norm's input and of the residual.
static void addnorm_fwd(const job *j, desk *d) {
    const snd_normspec s = norm_call(j, d);
    double top;
    d->sink += snd_k_addnorm_fwd(d->threads, j->t, &s, j->a, 1, d->x, 1, d->y, d->w, d->z, d->m, d->r, &top);
}
static void addnorm_bwd(const job *j, desk *d) {
    const snd_normspec s = norm_call(j, d);
    d->sink += snd_k_norm_bwd(d->threads, j->t, &s, j->a, d->y, d->x, d->m, d->r, d->w, d->z, d->b, NULL, d->work);
}
static void batch_fwd(const job *j, desk *d) {
    snd_k_batch_fwd(d->threads, j->t, j->a, j->b, 1e-5, 0, d->x, d->g, d->b, d->z, d->m, d->r, NULL, NULL);
}
static void unary(const job *j, desk *d) {
    d->sink += snd_k_unary(d->threads, j->t, (snd_kfn)j->how, j->a * j->b, 1, d->x, d->z);
}
static void unary_bwd(const job *j, desk *d) {
    d->sink += snd_k_unary_bwd(d->threads, j->t, (snd_kfn)j->how, j->a * j->b, 1, d->x, 1, d->y, d->z);
}
static void relu(const job *j, desk *d) {
    d->sink += snd_k_relu(d->threads, j->t, j->a * j->b, d->x, d->z, d->bits);
}
static void relu_bwd(const job *j, desk *d) {
    d->sink += snd_k_relu_bwd(d->threads, j->t, j->a * j->b, d->bits, d->y, d->z);
}
static void normals(const job *j, desk *d) {
    snd_k_fill_normal(d->threads, j->t, d->key, 0, j->a * j->b, 0.02, d->z);
}
static void moments(const job *j, desk *d) {
    snd_kmoments m;
    snd_k_moments(d->threads, j->t, j->a, j->b, d->x, j->how, &m);
    d->sink += m.sumsq;
}

// Causal attention, forward and backward: a examples, b tokens, c heads of HEAD features. x holds q, k, v, out; y dout;
// z the gradients. Counted are the six products of the half that is read; backward computes the scores a second time.
enum { HEAD = 64 };
static int64_t tokens_size(const job *j) {
    return j->a * j->b * j->c * HEAD;
}
static double attention_flops(const job *j) {
    return 6 * (double)j->a * (double)j->c * HEAD * (double)j->b * (double)(j->b + 1);
}
static void *part(const job *j, void *p, int k) {
    return (char *)p + (size_t)(k * tokens_size(j)) * snd_dtype_size(j->t);
}
static snd_kattn attention_call(const job *j, desk *d) {
    return (snd_kattn){.B = j->a,
                       .Tq = j->b,
                       .Tk = j->b,
                       .heads = j->c,
                       .kv_heads = j->c,
                       .hd = HEAD,
                       .back = j->b,
                       .scale = 1 / sqrt(HEAD),
                       .q = d->x,
                       .k = part(j, d->x, 1),
                       .v = part(j, d->x, 2),
                       .fq = 1,
                       .fk = 1,
                       .fv = 1};
}
static snd_kattn_grads attention_grads(const job *j, desk *d) {
    return (snd_kattn_grads){.out = part(j, d->x, 3),
                             .dout = d->y,
                             .fout = 1,
                             .fdout = 1,
                             .lse = d->m,
                             .dq = d->z,
                             .dk = part(j, d->z, 1),
                             .dv = part(j, d->z, 2)};
}
static void attention(const job *j, desk *d) {
    const snd_kattn a = attention_call(j, d);
    const snd_kattn_grads g = attention_grads(j, d);
    snd_k_attn_fwd(d->threads, j->t, &a, part(j, d->x, 3), d->m, NULL, d->work);
    snd_k_attn_bwd(d->threads, j->t, &a, &g, d->work);
}

#define GEMM(t, M, N, K, how)                                                                                          \
    { "gemm", #M "x" #N "x" #K " " #how, "GFLOP/s", "multiply-adds", gemm, peak, flops, NULL, t, M, N, K, how, false }
#define NORM(what, R, D, run, limit, bytes, bound, how)                                                                \
    { "norm", what " " #R "x" #D, "GB/s", bound, run, limit, bytes, bytes, SND_F32, R, D, 0, how, false }
// Rates are of the bytes that the work names; the bound's of those that it names itself.
#define BIG(what, R, D, run, bytes, limit, own, bound, how)                                                            \
    { "norm", what " " #R "x" #D, "GB/s", bound, run, limit, bytes, own, SND_F32, R, D, 0, how, true }
#define BIGS(R, D)                                                                                                     \
    BIG("layer fwd", R, D, norm_fwd, two, stream, two, "streaming copy", SND_KNORM_LAYER),                             \
        BIG("rms fwd", R, D, norm_fwd, two, stream, two, "streaming copy", SND_KNORM_RMS),                             \
        BIG("layer bwd", R, D, norm_bwd, three, stream_triad, three, "streaming add", SND_KNORM_LAYER),                \
        BIG("rms bwd", R, D, norm_bwd, three, stream_triad, three, "streaming add", SND_KNORM_RMS),                    \
        BIG("add+layer fwd", R, D, addnorm_fwd, four, stream_triad, three, "streaming add", SND_KNORM_LAYER),          \
        BIG("add+layer bwd", R, D, addnorm_bwd, four, stream_triad, three, "streaming add", SND_KNORM_LAYER)
#define ATTN(t, B, T, H)                                                                                               \
    {                                                                                                                  \
        "attention", "causal " #B "x" #T " " #H "x64", "GFLOP/s", "multiply-adds", attention, peak, attention_flops,   \
            NULL, t, B, T, H, 0, false                                                                                 \
    }
#define EACH(what, R, D, run, limit, bytes, bound, how)                                                                \
    { "elementwise", what " " #R "x" #D, "GB/s", bound, run, limit, bytes, bytes, SND_F32, R, D, 0, how, false }
static const job jobs[] = {
    GEMM(SND_F32, 256, 256, 256, NN),
    GEMM(SND_F32, 256, 256, 256, NT),
    GEMM(SND_F32, 256, 256, 256, TN),
    GEMM(SND_F32, 64, 256, 256, NT),
    GEMM(SND_F32, 64, 512, 512, NT),
    GEMM(SND_F32, 256, 1024, 1024, NT),
    GEMM(SND_F64, 256, 256, 256, NN),
    GEMM(SND_F64, 64, 64, 256, NT),
    ATTN(SND_F32, 4, 256, 12),
    ATTN(SND_F32, 1, 1024, 12),
    ATTN(SND_F32, 1, 4096, 2),
    ATTN(SND_F64, 1, 256, 12),
    NORM("layer fwd", 256, 256, norm_fwd, copy, two, "copy", SND_KNORM_LAYER),
    NORM("layer bwd", 256, 256, norm_bwd, triad, three, "add", SND_KNORM_LAYER),
    NORM("layer fwd", 2048, 768, norm_fwd, copy, two, "copy", SND_KNORM_LAYER),
    NORM("layer bwd", 2048, 768, norm_bwd, triad, three, "add", SND_KNORM_LAYER),
    NORM("rms fwd", 2048, 768, norm_fwd, copy, two, "copy", SND_KNORM_RMS),
    NORM("rms bwd", 2048, 768, norm_bwd, triad, three, "add", SND_KNORM_RMS),
    NORM("add+layer fwd", 2048, 768, addnorm_fwd, triad, four, "add", SND_KNORM_LAYER),
    NORM("add+layer bwd", 2048, 768, addnorm_bwd, triad, four, "add", SND_KNORM_LAYER),
    BIGS(32768, 768),
    BIGS(8192, 4096),
    NORM("batch fwd", 256, 256, batch_fwd, copy, two, "copy", 0),
    EACH("relu", 256, 256, relu, copy, two, "copy", 0),
    EACH("relu bwd", 256, 256, relu_bwd, copy, two, "copy", 0),
    EACH("gelu", 256, 256, unary, copy, two, "copy", SND_KFN_GELU),
    EACH("gelu bwd", 256, 256, unary_bwd, triad, three, "add", SND_KFN_GELU),
    EACH("tanh", 256, 256, unary, copy, two, "copy", SND_KFN_TANH),
    EACH("exp", 256, 256, unary, copy, two, "copy", SND_KFN_EXP),
    {"stats", "moments 256x256", "GB/s", "read", moments, read_all, one, one, SND_F32, 256, 256, 0, SND_KM_BASIC,
     false},
    {"stats", "all moments 256x256", "GB/s", "read", moments, read_all, one, one, SND_F32, 256, 256, 0, SND_KM_ALL,
     false},
    {"draw", "normals 256x256", "G/s", "", normals, NULL, elements, NULL, SND_F32, 256, 256, 0, 0, false},
    {"draw", "normals 256x256", "G/s", "", normals, NULL, elements, NULL, SND_F64, 256, 256, 0, 0, false},
    {"limit", "multiply-adds", "GFLOP/s", "", peak, NULL, NULL, NULL, SND_F32, 0, 0, 0, 0, false},
    {"limit", "multiply-adds", "GFLOP/s", "", peak, NULL, NULL, NULL, SND_F64, 0, 0, 0, 0, false},
    {"limit", "copy 256x256", "GB/s", "", copy, NULL, two, NULL, SND_F32, 256, 256, 0, 0, false},
    {"limit", "copy 2048x768", "GB/s", "", copy, NULL, two, NULL, SND_F32, 2048, 768, 0, 0, false},
    {"limit", "streaming copy 2048x768", "GB/s", "", stream, NULL, two, NULL, SND_F32, 2048, 768, 0, 0, false},
};
#undef GEMM
#undef NORM
#undef BIG
#undef BIGS
#undef ATTN
#undef EACH

// ---- turns ----------------------------------------------------------------------------------------------------------

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
double snd_bench_median(double *v, int n) {
    qsort(v, (size_t)n, sizeof *v, by_value);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

// Seconds per call, over enough calls for `least` seconds as `guess` says.
static double seconds(void (*run)(const job *, desk *), const job *j, desk *d, double guess, double least) {
    const int n = guess > least ? 1 : (int)(least / (guess > 1e-7 ? guess : 1e-7)) + 1;
    const double start = snd_now();
    for (int i = 0; i < n; i++) run(j, d);
    return (snd_now() - start) / n;
}

// flop of one call of `peak` for d's threads: what snd_k_peak returns, measured once with a few rounds.
static double peak_work(const job *j, const desk *d) {
    return snd_k_peak(d->threads, j->t, 16) / 16 * PEAK_ROUNDS;
}

static bool stopped(const snd_bench_opts *o) {
    return o->stop && o->stop->flag;
}
static bool late(const snd_bench_opts *o, double start) {
    return o->time_limit > 0 && snd_now() - start > o->time_limit;
}

static bool measure(const snd_bench_opts *o, const job *j, desk *d, snd_bench_row *row) {
    const int turns = o->quick ? 5 : 15;
    const double least = o->quick ? 1e-3 : 3e-3;
    const double work = j->work ? j->work(j) : peak_work(j, d);
    const double allowed = !j->limit ? 0 : j->allow ? j->allow(j) : peak_work(j, d);
    double rate[MAX_TURNS], bound[MAX_TURNS], share[MAX_TURNS];
    const double g0 = seconds(j->run, j, d, 1, 0), g1 = j->limit ? seconds(j->limit, j, d, 1, 0) : 0; // warm
    for (int i = 0; i < turns; i++) {
        if (stopped(o)) return false;
        rate[i] = work / seconds(j->run, j, d, g0, least) * 1e-9;
        bound[i] = j->limit ? allowed / seconds(j->limit, j, d, g1, least) * 1e-9 : 0;
        share[i] = j->limit ? rate[i] / bound[i] : 0;
    }
    *row = (snd_bench_row){.group = j->group, .threads = d->threads, .unit = j->unit, .bound = j->bound};
    snprintf(row->name, sizeof row->name, "%s %s", snd_dtype_name(j->t), j->what);
    row->rate = snd_bench_median(rate, turns);
    row->bound_rate = j->limit ? snd_bench_median(bound, turns) : NAN;
    row->share = j->limit ? snd_bench_median(share, turns) : NAN;
    return true;
}

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

// Working memory for the greediest of the jobs.
static size_t work_bytes(desk *d, bool big) {
    size_t most = 0;
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        const job *j = &jobs[i];
        if (j->run == norm_bwd || j->run == addnorm_bwd)
            most = big || !j->big ? larger(most, snd_k_norm_bwd_scratch(j->a, j->b)) : most;
        if (j->run != attention) continue;
        const snd_kattn a = attention_call(j, d);
        const snd_kattn_grads g = attention_grads(j, d);
        most = larger(most, snd_k_attn_scratch(j->t, &a, SND_KATTN_FWD));
        most = larger(most, snd_k_attn_bwd_scratch(j->t, &a, &g));
    }
    return most;
}

enum { ARRAYS = 10 };
static void arrays(desk *d, void **all[ARRAYS]) {
    void **const each[ARRAYS] = {
        &d->x, &d->y, &d->z, &d->w, &d->g, &d->b, (void **)&d->m, (void **)&d->r, (void **)&d->bits, &d->work};
    memcpy(all, each, sizeof each);
}

// x, y, z and w have room for `most` elements of 8 bytes. Rows of 16 KiB in arrays that start alike fall on the same sets
// of a cache: each array starts some lines after the last.
static sonde_status furnish(desk *d, size_t most, bool big) {
    void **all[ARRAYS];
    arrays(d, all);
    const size_t rows = big ? 32768 : 16384;
    const size_t room[ARRAYS] = {most, most, most, most, 4096, 4096, rows, rows, ROOM / 64, work_bytes(d, big) / 8 + 1};
    for (size_t i = 0; i < ARRAYS; i++) {
        const size_t bytes = room[i] * 8 + ARRAYS * 1088;
        char *p = snd_slab_alloc(bytes);
        if (!p) return SONDE_ENOMEM;
        memset(p, 0, bytes); // pages touched once, here
        *all[i] = p + i * 1088;
    }
    return SONDE_OK;
}

static void clear(desk *d) {
    void **all[ARRAYS];
    arrays(d, all);
    for (size_t i = 0; i < ARRAYS; i++)
        if (*all[i]) snd_free((char *)*all[i] - i * 1088);
}

// Inputs of the job's type; the statistics that a backward pass reads.
static void prepare(const job *j, desk *d) {
    const int64_t products = j->c ? j->a * j->c + j->c * j->b : j->a * j->b;
    const int64_t n = j->run == attention ? 3 * tokens_size(j) : products;
    snd_k_fill_normal(1, j->t, d->key, 1, n, 1, d->x);
    snd_k_fill_normal(1, j->t, d->key, (uint64_t)n + 1, n, 1, d->y);
    snd_k_fill_normal(1, j->t, d->key, 7, 4096, 1, d->g);
    snd_k_fill_normal(1, j->t, d->key, 5000, 4096, 1, d->b);
    if (j->run == norm_bwd || j->run == addnorm_bwd) norm_fwd(j, d);
}

sonde_status snd_bench_kernels(const snd_bench_opts *o, snd_bench_row *rows, int *n) {
    const int n_jobs = (int)(sizeof jobs / sizeof *jobs), most = o->threads > 0 ? o->threads : snd_cpu_count();
    const int passes = most > 1 ? 2 : 1; // one thread, all threads
    const double start = snd_now();
    desk d = {.key = snd_key_make(1, "bench")};
    sonde_status s = furnish(&d, o->quick ? ROOM : BIG_ROOM, !o->quick);
    bool on = s == SONDE_OK;
    *n = 0;
    for (int k = 0; on && k < n_jobs * passes && k < SND_BENCH_ROWS; k++) {
        const job *j = &jobs[k / passes];
        if (j->big && o->quick) continue;
        d.threads = k % passes == 0 ? 1 : most;
        prepare(j, &d);
        on = measure(o, j, &d, &rows[*n]);
        if (on) ++*n;
        if (!on || (o->progress && o->progress(o->ctx, *n, n_jobs * passes)))
            s = snd_fail(SONDE_EINTERRUPTED, __FILE__, __LINE__, "stopped after %d of %d rows", *n, n_jobs * passes);
        on = s == SONDE_OK && !late(o, start);
    }
    clear(&d);
    return s;
}

// The shape may be the caller's: one row, on all threads.
static bool product(const snd_bench_opts *o, const snd_bench_product *p, desk *d, snd_bench_row *row) {
    static const char *const layout[] = {"NN", "NT", "TN"};
    char name[sizeof row->name - 4];
    snprintf(name, sizeof name, "%lldx%lldx%lld %s", (long long)p->M, (long long)p->N, (long long)p->K,
             layout[p->ta   ? TN
                    : p->tb ? NT
                            : NN]);
    const job j = {.group = "gemm",
                   .what = name,
                   .unit = "GFLOP/s",
                   .bound = "multiply-adds",
                   .run = gemm,
                   .limit = peak,
                   .work = flops,
                   .t = SND_F32,
                   .a = p->M,
                   .b = p->N,
                   .c = p->K,
                   .how = p->ta   ? TN
                          : p->tb ? NT
                                  : NN};
    prepare(&j, d);
    return measure(o, &j, d, row);
}

sonde_status snd_bench_products(const snd_bench_opts *o, const snd_bench_product *p, int n, snd_bench_row *rows,
                                int *done) {
    size_t most = 2048;
    for (int i = 0; i < n; i++) {
        const int64_t in = p[i].K * (p[i].M + p[i].N), out = p[i].M * p[i].N;
        const size_t floats = (size_t)(in > out ? in : out);
        most = floats > most ? floats : most;
    }
    desk d = {.key = snd_key_make(1, "bench"), .threads = o->threads > 0 ? o->threads : snd_cpu_count()};
    sonde_status s = furnish(&d, most / 2 + 1, false);
    for (*done = 0; s == SONDE_OK && *done < n; ++*done) {
        if (o->progress && o->progress(o->ctx, *done, n)) s = SONDE_EINTERRUPTED;
        if (s == SONDE_OK && !product(o, &p[*done], &d, &rows[*done])) s = SONDE_EINTERRUPTED;
        if (s == SONDE_EINTERRUPTED) {
            s = snd_fail(s, __FILE__, __LINE__, "stopped after %d of %d products", *done, n);
            break;
        }
    }
    clear(&d);
    return s;
}

// ---- text -----------------------------------------------------------------------------------------------------------

static void number(snd_buf *text, double v, int width) {
    char s[40];
    const double step = v >= 100 ? 1 : v >= 10 ? 10 : 100;
    snd_buf_printf(text, "%*s", width, isnan(v) ? "-" : snd_format_num(s, round(v * step) / step, 6));
}

void snd_bench_text(const snd_bench_row *rows, int n, snd_buf *text) {
    snd_buf_printf(text, "f32 products by %s, f64 by %s\n", snd_k_gemm_name(SND_F32), snd_k_gemm_name(SND_F64));
    const char *group = "";
    for (int i = 0; i < n; i++) {
        const snd_bench_row *r = &rows[i];
        if (strcmp(group, r->group) != 0) {
            group = r->group;
            snd_buf_printf(text, "\n%-34s %7s %9s %-8s %9s  %-14s %s\n", group, "threads", "rate", "", "bound", "",
                           "share");
        }
        snd_buf_printf(text, "%-34s %7d ", r->name, r->threads);
        number(text, r->rate, 9);
        snd_buf_printf(text, " %-8s ", r->unit);
        number(text, r->bound_rate, 9);
        snd_buf_printf(text, "  %-14s ", r->bound);
        number(text, r->share, 5);
        snd_buf_put(text, "\n");
    }
}
