// Our front of the matrix product against oneDNN's two own calls, with its own threads, in turns with the machine's
// multiply-adds: dnnl_sgemm and the matmul primitive. Without oneDNN there is nothing to compare with.
#include "kernels/kernels.h"
#include "lab/bench_impl.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct work {
    const snd_bench_opts *o;
    const snd_bench_product *p;
    int threads;
    float *a, *b, *c;
    snd_kpeer *peer;
} work;

static void ours(const work *w) {
    const snd_bench_product *p = w->p;
    snd_k_gemm(w->threads, SND_F32, p->ta, p->tb, p->M, p->N, p->K, 1, w->a, p->ta ? p->M : p->K, w->b,
               p->tb ? p->K : p->N, 0, w->c, p->N);
}
static void by_sgemm(const work *w) {
    snd_k_peer_sgemm(w->peer);
}
static void by_matmul(const work *w) {
    snd_k_peer_matmul(w->peer);
}

// ---- rounds ---------------------------------------------------------------------------------------------------------

enum { WAYS = 3, MOST_ROUNDS = 10 };
static void (*const ways[WAYS])(const work *) = {ours, by_sgemm, by_matmul};
static const char *const way_name[WAYS] = {"", " dnnl_sgemm", " matmul"};

// OpenMP's threads, and ours, wait for the next call with open eyes for some milliseconds: let them fall asleep.
static void rest(void) {
    nanosleep(&(struct timespec){0, 20000000}, NULL);
}

// GFLOP/s over `calls` calls. One call before the clock starts brings the operands into the caches, whoever had them.
static double rate(const work *w, int way, int calls) {
    rest();
    ways[way](w);
    const double start = snd_bench_now(w->o);
    for (int i = 0; i < calls; i++) ways[way](w);
    return 2e-9 * (double)w->p->M * (double)w->p->N * (double)w->p->K * calls / (snd_bench_now(w->o) - start);
}

static double peak(const work *w) {
    rest();
    const double start = snd_bench_now(w->o), flop = snd_k_peak(w->threads, SND_F32, 2000000);
    return flop * 1e-9 / (snd_bench_now(w->o) - start);
}

// Four rows: ours against the better of the two in each round, then all three against the multiply-adds.
static void compare(const work *w, int rounds, snd_bench_row *rows) {
    const snd_bench_product *p = w->p;
    double r[WAYS][MOST_ROUNDS], share[WAYS][MOST_ROUNDS], roof[MOST_ROUNDS], best[MOST_ROUNDS], ratio[MOST_ROUNDS];
    const double flop = 2 * (double)p->M * (double)p->N * (double)p->K, guess = peak(w) * 1e9;
    const int calls = (int)(0.01 * guess / flop) + 1; // ten milliseconds
    for (int k = 0; k < rounds; k++) {
        roof[k] = peak(w);
        for (int i = 0; i < WAYS; i++) {
            const int way = (i + k) % WAYS; // nobody is always the first
            r[way][k] = rate(w, way, calls);
            share[way][k] = r[way][k] / roof[k];
        }
        best[k] = fmax(r[1][k], r[2][k]);
        ratio[k] = r[0][k] / best[k];
    }
    const snd_bench_stat bound = snd_bench_stat_of(roof, rounds), none = {NAN, NAN, NAN};
    for (int i = 0; i <= WAYS; i++) {
        const int way = i ? i - 1 : 0;
        rows[i] = (snd_bench_row){.group = "gemm", .threads = w->threads, .unit = "GFLOP/s", .bound = "multiply-adds"};
        rows[i].rival = rows[i].ratio = none;
        rows[i].seconds = rows[i].items = rows[i].mib = rows[i].rival_mib = NAN;
        snprintf(rows[i].name, sizeof rows[i].name, "%lldx%lldx%lld %s%s", (long long)p->M, (long long)p->N,
                 (long long)p->K,
                 p->ta   ? "TN"
                 : p->tb ? "NT"
                         : "NN",
                 way_name[way]);
        if (i > 0) rows[i].share = snd_bench_stat_of(share[way], rounds);
        rows[i].bound_rate = bound;
    }
    rows[0].bound = "best of oneDNN";
    rows[0].bound_rate = snd_bench_stat_of(best, rounds);
    rows[0].share = snd_bench_stat_of(ratio, rounds);
    for (int way = 0; way < WAYS; way++) rows[way + 1].rate = snd_bench_stat_of(r[way], rounds);
    rows[0].rate = rows[1].rate;
}

// y = x Wᵀ, dx = dy W, dW = dyᵀ x of a map from k to n features, for m tokens.
#define MAP(m, n, k)                                                                                                   \
    {m, n, k, false, true}, {m, k, n, false, false}, {                                                                 \
        n, k, m, true, false                                                                                           \
    }
static const snd_bench_product classes[] = {
    MAP(256, 768, 768),  MAP(256, 3072, 768), MAP(256, 768, 3072), MAP(256, 128, 128),  MAP(256, 256, 256),
    MAP(256, 1024, 256), MAP(256, 384, 384),  MAP(256, 512, 512),  MAP(2048, 768, 768), {256, 50257, 768, false, true}};
#undef MAP

// oneDNN's kernels bear no signals (see kernels/gemm.c): they wait until a product's rounds are done.
static bool compare_quietly(work *w, int rounds, snd_bench_row *rows) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    const snd_bench_product *p = w->p;
    const bool made = snd_k_peer_set(w->peer, p->ta, p->tb, p->M, p->N, p->K, w->a, w->b, w->c);
    if (made) compare(w, rounds, rows);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return made;
}

static sonde_status compare_all(const snd_bench_opts *o, work *w, const snd_bench_product *p, int n,
                                snd_bench_row *rows, int *done) {
    for (int i = 0; i < n && *done + WAYS < SND_BENCH_ROWS; i++) {
        w->p = &p[i];
        SND_FAIL_IF(!compare_quietly(w, o->quick ? 3 : MOST_ROUNDS, rows + *done), SONDE_EINTERNAL,
                    "oneDNN makes no product of %lld x %lld x %lld", (long long)p[i].M, (long long)p[i].N,
                    (long long)p[i].K);
        *done += WAYS + 1;
        SND_FAIL_IF((o->stop && o->stop->flag) || (o->progress && o->progress(o->ctx, i + 1, n)), SONDE_EINTERRUPTED,
                    "stopped after %d of %d products", i + 1, n);
    }
    return SONDE_OK;
}

// Operands for the largest of the products, drawn.
static sonde_status furnish(work *w, const snd_bench_product *p, int n) {
    float **const data[3] = {&w->a, &w->b, &w->c};
    for (int k = 0; k < 3; k++) {
        int64_t most = 0;
        for (int i = 0; i < n; i++) {
            const int64_t size = (k < 2 ? p[i].K : p[i].M) * (k == 0 ? p[i].M : p[i].N);
            most = size > most ? size : most;
        }
        *data[k] = snd_aligned_alloc(64, (size_t)most * sizeof(float));
        SND_FAIL_IF(!*data[k], SONDE_ENOMEM, "no memory for a matrix of %lld elements", (long long)most);
        snd_k_fill_normal(w->threads, SND_F32, snd_key_make(1, "gemm"), (uint64_t)k << 32, most, 1, *data[k]);
    }
    return SONDE_OK;
}

sonde_status snd_bench_gemm(const snd_bench_opts *o, const snd_bench_product *p, int n, snd_bench_row *rows,
                            int *done) {
    if (!n) p = classes, n = (int)(sizeof classes / sizeof *classes);
    work w = {.o = o, .threads = o->threads > 0 ? o->threads : snd_cpu_count()};
    *done = 0;
    w.peer = snd_k_peer_open(w.threads);
    SND_FAIL_IF(!w.peer, SONDE_EUSAGE,
                "--gemm compares with oneDNN, which is not installed; it needs version 2 (libdnnl2)");
    sonde_status s = furnish(&w, p, n);
    if (s == SONDE_OK) s = compare_all(o, &w, p, n, rows, done);
    snd_free(w.a);
    snd_free(w.b);
    snd_free(w.c);
    snd_k_peer_close(w.peer);
    return s;
}
