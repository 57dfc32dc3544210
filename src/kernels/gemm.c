// Front of the matrix product. C is cut into a grid of tiles that depends on the shape only; a tile is one call of a
// single-threaded kernel: oneDNN's dnnl_sgemm (f32), OpenBLAS' cblas_*gemm (f64; f32 without oneDNN), our own loop, or
// where the processor has tiles for bf16, f32 operands taken apart (bf16.c), chosen by shape as measured. So the bits do
// not depend on the thread count, which neither library promises for its own threading.
// oneDNN's kernels (2.6.3, AVX-512) keep the stack pointer in their packed operands: a signal handler that runs on the
// stack meanwhile writes its frame into the heap. So signals wait until the product is done.
// The libraries are opened at the first product that is worth it and never closed; nothing links to them.
#include "kernels/rows.h"
#include <assert.h>
#include <dlfcn.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

// ---- the libraries -------------------------------------------------------------------------------------------------

// oneapi/dnnl/dnnl.h (2.x): row-major, returns dnnl_success = 0.
typedef int dnnl_sgemm_fn(char ta, char tb, int64_t M, int64_t N, int64_t K, float alpha, const float *A, int64_t lda,
                          const float *B, int64_t ldb, float beta, float *C, int64_t ldc);
typedef struct dnnl_version_head {
    int major, minor, patch;
} dnnl_version_head;
typedef const dnnl_version_head *dnnl_version_fn(void);

typedef int omp_get_fn(void);
typedef void omp_set_fn(int n);

// cblas.h with 32-bit integers.
enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112 };
typedef void sgemm_fn(int order, int ta, int tb, int M, int N, int K, float alpha, const float *A, int lda,
                      const float *B, int ldb, float beta, float *C, int ldc);
typedef void dgemm_fn(int order, int ta, int tb, int M, int N, int K, double alpha, const double *A, int lda,
                      const double *B, int ldb, double beta, double *C, int ldc);
typedef void set_threads_fn(int n);
typedef char *config_fn(void);

typedef struct library {
    dnnl_sgemm_fn *dnnl;
    omp_get_fn *omp_get; // of the OpenMP that oneDNN brings
    omp_set_fn *omp_set;
    sgemm_fn *sgemm;
    dgemm_fn *dgemm;
    char dnnl_name[40], blas_name[40], all_names[80];
} library;

static library lib; // each half written once, under its flag
static pthread_once_t dnnl_opened = PTHREAD_ONCE_INIT, blas_opened = PTHREAD_ONCE_INIT;
static _Atomic int hook; // test hook: snd_kgemm

void snd_k_limit_gemm(snd_kgemm g) {
    atomic_store_explicit(&hook, (int)g, memory_order_relaxed);
}

// dlsym returns an object pointer; POSIX says it converts, C wants it said with bytes.
static bool symbol(void *handle, const char *name, void *fn) {
    void *p = handle ? dlsym(handle, name) : NULL;
    memcpy(fn, &p, sizeof p);
    return p != NULL;
}

// Of the calling thread; the pool's own threads take none. Signals of a thread's own faults stay: they cannot wait.
static void hold_signals(sigset_t *before) {
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};
    sigset_t all;
    sigfillset(&all);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&all, faults[i]);
    pthread_sigmask(SIG_BLOCK, &all, before);
}

// dlsym also looks through what the library depends on: the OpenMP that it runs on is found the same way.
static void open_dnnl(void) {
    void *h = dlopen("libdnnl.so.2", RTLD_NOW | RTLD_LOCAL);
    dnnl_version_fn *version;
    if (!symbol(h, "omp_get_max_threads", &lib.omp_get) || !symbol(h, "omp_set_num_threads", &lib.omp_set) ||
        !symbol(h, "dnnl_version", &version) || !symbol(h, "dnnl_sgemm", &lib.dnnl))
        return;
    const dnnl_version_head *v = version();
    snprintf(lib.dnnl_name, sizeof lib.dnnl_name, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
    snprintf(lib.all_names, sizeof lib.all_names, "bf16x3 on AMX, small ones by %s", lib.dnnl_name);
}

// OpenBLAS starts threads as it is opened; the program's signals are none of their business.
static void *open_quietly(const char *name) {
    sigset_t before;
    hold_signals(&before);
    void *h = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return h;
}

// Whether OpenBLAS' kernels for that core use what the processor has.
static bool core_suits(const char *core) {
    static const char *const wide[] = {"Haswell", "Excavator", "Zen", "SkylakeX", "Cooperlake", "SapphireRapids"};
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++)
        if (strcasecmp(core, wide[i]) == 0) return true;
    return snd_k_isa() == SND_ISA_BASE;
}

static void open_blas(void) {
    void *h = open_quietly("libopenblas.so.0");
    set_threads_fn *set_threads;
    config_fn *config;
    if (!symbol(h, "openblas_set_num_threads", &set_threads) || !symbol(h, "openblas_get_config", &config)) return;
    // "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ... SINGLE_THREADED": a build without threads takes no lock around its
    // buffers unless it says USE_LOCKING, and two callers at a time then give wrong products (seen with Debian's serial
    // 0.3.21). Such a build is of no use to us.
    const char *text = config(), *space = strchr(text, ' ');
    if (strstr(text, "SINGLE_THREADED") && !strstr(text, "USE_LOCKING")) return;
    // Debian's 0.3.21 takes processors newer than itself for a Prescott, a fifth of the speed of our own loop.
    config_fn *core;
    if (symbol(h, "openblas_get_corename", &core) && !core_suits(core())) return;
    set_threads(1);
    symbol(h, "cblas_sgemm", &lib.sgemm);
    symbol(h, "cblas_dgemm", &lib.dgemm);
    const char *end = space ? strchr(space + 1, ' ') : NULL;
    snprintf(lib.blas_name, sizeof lib.blas_name, "%.*s", end ? (int)(end - text) : 30, text);
}

// Each is opened when it is first wanted: f32 has no use for OpenBLAS and its threads.
static snd_kgemm backend(snd_dtype t) {
    const snd_kgemm limit = (snd_kgemm)atomic_load_explicit(&hook, memory_order_relaxed);
    if (limit == SND_KGEMM_OWN || (limit == SND_KGEMM_BF16X3 && t == SND_F32)) return limit;
    if (t == SND_F32 && limit != SND_KGEMM_OPENBLAS) {
        pthread_once(&dnnl_opened, open_dnnl);
        if (lib.dnnl) return SND_KGEMM_ONEDNN;
    }
    pthread_once(&blas_opened, open_blas);
    if (t == SND_F32 ? lib.sgemm != NULL : lib.dgemm != NULL) return SND_KGEMM_OPENBLAS;
    return SND_KGEMM_OWN;
}

const char *snd_k_gemm_name(snd_dtype t) {
    const bool free = atomic_load_explicit(&hook, memory_order_relaxed) == SND_KGEMM_NONE,
               apart = free && t == SND_F32 && snd_k_bf16x3_is_fast();
    switch (backend(t)) {
    case SND_KGEMM_ONEDNN: return apart ? lib.all_names : lib.dnnl_name;
    case SND_KGEMM_OPENBLAS: return lib.blas_name;
    case SND_KGEMM_BF16X3: return "bf16x3";
    default: return "own";
    }
}

// ---- one tile ------------------------------------------------------------------------------------------------------

typedef struct gemm_job {
    snd_kgemm how;
    snd_dtype t;
    snd_kt_gemm *own;
    bool ta, tb, ask;
    int64_t M, N, K, lda, ldb, ldc, rows, cols, across; // tiles are rows x cols, `across` of them side by side
    double alpha, beta;
    const void *A, *B;
    void *C;
    snd_gemm_end *end; // NULL: nothing
} gemm_job;

// oneDNN would take all threads of its OpenMP: each of ours tells it, once per call as the setting is the thread's own.
static bool dnnl_tile(const gemm_job *j, int64_t m, int64_t n, const float *a, const float *b, float *c) {
    const int threads = lib.omp_get();
    if (threads != 1) lib.omp_set(1);
    const int status = lib.dnnl(j->ta ? 'T' : 'N', j->tb ? 'T' : 'N', m, n, j->K, (float)j->alpha, a, j->lda, b, j->ldb,
                                (float)j->beta, c, j->ldc);
    if (threads != 1) lib.omp_set(threads);
    return status == 0;
}

static void blas_tile(const gemm_job *j, int64_t m, int64_t n, const void *a, const void *b, void *c) {
    const int ta = j->ta ? TRANS : NO_TRANS, tb = j->tb ? TRANS : NO_TRANS;
    if (j->t == SND_F64)
        lib.dgemm(ROW_MAJOR, ta, tb, (int)m, (int)n, (int)j->K, j->alpha, a, (int)j->lda, b, (int)j->ldb, j->beta, c,
                  (int)j->ldc);
    else
        lib.sgemm(ROW_MAJOR, ta, tb, (int)m, (int)n, (int)j->K, (float)j->alpha, a, (int)j->lda, b, (int)j->ldb,
                  (float)j->beta, c, (int)j->ldc);
}

// Of op(B), those of tile i.
static const void *columns(const gemm_job *j, int64_t i) {
    const int64_t c0 = i % j->across * j->cols;
    return snd_at(j->B, j->tb ? c0 * j->ldb : c0, snd_k_size(j->t));
}

void snd_k_gemm_top(snd_gemm_end *e, double top) {
    uint64_t bits, old = atomic_load_explicit(&e->top, memory_order_relaxed);
    memcpy(&bits, &top, sizeof bits);
    while (old < bits &&
           !atomic_compare_exchange_weak_explicit(&e->top, &old, bits, memory_order_relaxed, memory_order_relaxed)) {}
}

double snd_k_gemm_end_top(const snd_gemm_end *e) {
    const uint64_t bits = atomic_load(&e->top);
    double top;
    memcpy(&top, &bits, sizeof top);
    return top;
}

void snd_k_gemm_end(snd_gemm_end *e, snd_dtype t, int64_t col, int64_t m, int64_t n, void *C, int64_t ldc) {
    if (e) snd_k_gemm_top(e, SND_PICK(finish, t)(m, n, snd_at(e->bias, col, snd_k_size(t)), C, ldc));
}

// A thread takes tiles in order: the next one will be its own, too.
static void tile_task(void *ctx, int64_t i) {
    const gemm_job *j = ctx;
    const size_t size = snd_k_size(j->t);
    const int64_t r0 = i / j->across * j->rows, c0 = i % j->across * j->cols;
    const int64_t m = j->M - r0 < j->rows ? j->M - r0 : j->rows, n = j->N - c0 < j->cols ? j->N - c0 : j->cols;
    const void *a = snd_at(j->A, j->ta ? r0 : r0 * j->lda, size), *b = columns(j, i);
    void *c = snd_at_mut(j->C, r0 * j->ldc + c0, size);
    const bool done = j->how == SND_KGEMM_ONEDNN && dnnl_tile(j, m, n, a, b, c);
    if (j->how == SND_KGEMM_OPENBLAS)
        blas_tile(j, m, n, a, b, c);
    else if (!done)
        j->own(j->ta, j->tb, m, n, j->K, j->alpha, a, j->lda, b, j->ldb, j->beta, c, j->ldc, j->ask, columns(j, i + 1));
    snd_k_gemm_end(j->end, j->t, c0, m, n, c, j->ldc);
}

// ---- the grid ------------------------------------------------------------------------------------------------------

static int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

static bool fits_int(const gemm_job *j) {
    return j->M <= INT_MAX && j->N <= INT_MAX && j->K <= INT_MAX && j->lda <= INT_MAX && j->ldb <= INT_MAX &&
           j->ldc <= INT_MAX;
}

// oneDNN 2.6.3 packs an operand that is stored transposed slowly: on Zen 4 x Wᵀ runs at 0.6 (64 rows) to 0.89 of a core's
// roof, by our own loop at 0.90 to 0.95; where nothing is transposed or A is, oneDNN reaches 0.97 to 0.98, we 0.92 to 0.96.
// On Emerald Rapids x Wᵀ is 0.87 to 0.95 and 0.94 to 1.04 of the better of oneDNN's own calls, the other two 0.98 to 1.0
// and 0.75 to 0.92. A strip of fewer rows than ours would be multiplied in vain.
static bool own_is_faster(const gemm_job *j) {
    return j->t == SND_F32 && snd_k_isa() == SND_ISA_AVX512 && j->tb && !j->ta && j->M > 8;
}

// Taking the operands apart is worth it where each number meets many others. One Emerald Rapids core, GFLOP/s, apart beside
// the better of the others, whichever operand is transposed: 256x256x256 160 (148) NT, 172 (171) NN; 256x768x768 188 to 198
// (150 to 172); 2304x768x2048 198 to 223 (126 to 160). Tiles gain nothing where a shared host holds them back, and whole
// steps of width 256 lost a tenth by them: so only from 2^27 products of numbers on.
static bool apart_is_faster(const gemm_job *j) {
    const int64_t least = 128, products = (int64_t)1 << 27;
    return j->t == SND_F32 && snd_k_bf16x3_is_fast() && j->M >= least && j->N >= least && j->K >= least &&
           j->M * j->N * j->K >= products;
}

static snd_kgemm choose_kernel(const gemm_job *j) {
    const bool tiny = j->K <= 0 || j->M * j->N * j->K <= 32 * 32 * 32; // not worth a library, nor its loading
    if (tiny || !fits_int(j)) return SND_KGEMM_OWN;
    const bool forced = atomic_load_explicit(&hook, memory_order_relaxed) != SND_KGEMM_NONE;
    if (forced) return backend(j->t);
    return apart_is_faster(j) ? SND_KGEMM_BF16X3 : own_is_faster(j) ? SND_KGEMM_OWN : backend(j->t);
}

// Our own loop copies up to 128 columns of B at a time, for all rows of a tile: 1024 in f32, whose sums the second cache
// still holds (a quarter of the copying that 256 rows need, and 2 to 3 % of the time of x Wᵀ with 2048 rows of 768). So few
// tiles have fewer columns, not fewer rows, down to a panel's 32, where two and four threads then have less to do at most:
// 1152 columns as nine tiles leave one of two threads idle for a tenth of the time.
enum { OWN_PANEL = 32 };
static int64_t own_columns(int64_t N, int64_t down) {
    int64_t best = 4, least = INT64_MAX;
    for (int64_t panels = 4; panels > 0; panels--) {
        const int64_t tiles = ceil_div(N, panels * OWN_PANEL) * down;
        if (tiles >= 16 && panels == 4) break;
        const int64_t most = (ceil_div(tiles, 2) + ceil_div(tiles, 4)) * panels;
        if (most < least) best = panels, least = most;
    }
    return best * OWN_PANEL;
}

// oneDNN packs both operands anew for every tile, a number in the time of some 15 multiply-adds (Zen 4; more from memory):
// tiles are large. But with a few of them threads that find no equal share wait for each other. Of the tiles of up to
// 512 x 768 those with the least product of both, two and four threads alike.
static void large_grid(const gemm_job *j, int64_t *down, int64_t *over) {
    const int64_t least_down = ceil_div(j->M, 512), least_over = ceil_div(j->N, 768), more = 8;
    double least = INFINITY;
    *down = least_down, *over = least_over;
    for (int64_t d = least_down; d < least_down + more; d++)
        for (int64_t o = least_over; o < least_over + more; o++) {
            const double rows = (double)ceil_div(j->M, d), cols = (double)ceil_div(j->N, o), tiles = (double)(d * o);
            const double longest = (double)(2 * ceil_div(d * o, 2) + 4 * ceil_div(d * o, 4)) / tiles;
            const double cost = longest * (1 + 15 / rows + 15 / cols);
            if (cost < least) least = cost, *down = d, *over = o;
        }
}

// False: of so few tiles rows are worth cutting, too.
static bool own_grid(const gemm_job *j, int64_t *down, int64_t *over) {
    *down = ceil_div(j->M, 4096 / (int64_t)snd_k_size(j->t));
    *over = ceil_div(j->N, own_columns(j->N, *down));
    return *down * *over >= 4;
}

static bool is_small(const gemm_job *j) {
    return j->M * j->N * j->K < 1 << 21;
}

// Small products are not worth cutting further than 128 x 128; those in between are cut once more, by rows where there are
// enough, so that two or four threads find equal shares.
static void small_grid(const gemm_job *j, int64_t *down, int64_t *over) {
    *down = ceil_div(j->M, 128);
    *over = ceil_div(j->N, 128);
    if (is_small(j) || *down * *over % 2 == 0 || *down * *over >= 8) return;
    if (j->M >= 128)
        ++*down;
    else if (j->N >= 128)
        ++*over;
}

static void choose_grid(gemm_job *j) {
    const bool own = j->how == SND_KGEMM_OWN;
    int64_t down, over, multiple = 16;
    if (own && own_grid(j, &down, &over))
        multiple = OWN_PANEL;
    else if (own || j->M <= 128 || is_small(j))
        small_grid(j, &down, &over);
    else
        large_grid(j, &down, &over);
    j->rows = ceil_div(j->M, down);
    j->cols = ceil_div(ceil_div(j->N, over), multiple) * multiple;
    j->across = ceil_div(j->N, j->cols);
}

static void gemm(int th, snd_dtype t, bool ta, bool tb, int64_t M, int64_t N, int64_t K, double alpha, const void *A,
                 int64_t lda, const void *B, int64_t ldb, double beta, void *C, int64_t ldc, snd_gemm_end *end) {
    assert(t == SND_F32 || t == SND_F64);
    assert(lda >= (ta ? M : K) && ldb >= (tb ? K : N) && ldc >= N);
    if (M <= 0 || N <= 0) return;
    if (snd_k_few_rows(ta, tb, M, N, K)) {
        snd_k_gemv(th, t, M, N, K, alpha, A, lda, B, ldb, beta, C, ldc);
        snd_k_gemm_end(end, t, 0, M, N, C, ldc);
        return;
    }
    gemm_job j = {.t = t,
                  .own = SND_PICK(gemm, t),
                  .ask = snd_cpu_is_amd(),
                  .ta = ta,
                  .tb = tb,
                  .M = M,
                  .N = N,
                  .K = K,
                  .lda = lda,
                  .ldb = ldb,
                  .ldc = ldc,
                  .alpha = alpha,
                  .beta = beta,
                  .A = A,
                  .B = B,
                  .C = C,
                  .end = end};
    j.how = choose_kernel(&j);
    if (j.how == SND_KGEMM_BF16X3) {
        snd_k_gemm_bf16x3(th, ta, tb, M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, end);
        return;
    }
    choose_grid(&j);
    const int64_t tiles = ceil_div(M, j.rows) * j.across;
    const bool hold = j.how == SND_KGEMM_ONEDNN;
    sigset_t before;
    if (hold) hold_signals(&before);
    snd_parallel(M * N * K < 1 << 18 ? 1 : th, tiles, tile_task, &j);
    if (hold) pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void snd_k_gemm(int th, snd_dtype t, bool ta, bool tb, int64_t M, int64_t N, int64_t K, double alpha, const void *A,
                int64_t lda, const void *B, int64_t ldb, double beta, void *C, int64_t ldc) {
    gemm(th, t, ta, tb, M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, NULL);
}

double snd_k_gemm_bias(int th, snd_dtype t, bool ta, bool tb, int64_t M, int64_t N, int64_t K, double alpha,
                       const void *A, int64_t lda, const void *B, int64_t ldb, double beta, void *C, int64_t ldc,
                       const void *bias) {
    snd_gemm_end end = {.bias = bias};
    gemm(th, t, ta, tb, M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, &end);
    return snd_k_gemm_end_top(&end);
}
