// The kernels against this machine's limits. Every kernel is timed in turns with the limit that bounds it (register-only
// multiply-adds, or a copy or add of the same bytes), in the same process, so a busy or throttled machine slows both.
// Medians over turns. Touches nothing but its own buffers.
#ifndef SND_LAB_BENCH_H
#define SND_LAB_BENCH_H

#include "base/base.h"

typedef struct snd_bench_opts {
    int threads;              // 0: all
    bool quick;               // fewer turns: about two seconds in place of ten
    double time_limit;        // seconds, 0: none; what is done by then is returned
    const snd_stop *stop;     // looked at between turns; may be NULL
    bool (*progress)(void *ctx, int done, int total);   // after every row; true: stop. May be NULL
    void *ctx;
} snd_bench_opts;

typedef struct snd_bench_row {
    const char *group;        // "gemm", "attention", "norm", "elementwise", "stats", "draw", "limit"
    char name[48];            // "f32 256x256x256 NT"
    int threads;
    const char *unit;         // "GFLOP/s", "GB/s", "G/s"
    double rate;              // median over turns
    const char *bound;        // what it is held against, "" for none
    double bound_rate;        // the bound's median in the same turns
    double share;             // median over turns of rate / bound
} snd_bench_row;

enum { SND_BENCH_ROWS = 128 };
/// Fills rows[SND_BENCH_ROWS], *n of them. SONDE_ENOMEM; SONDE_EINTERRUPTED with the rows so far; a time limit that
/// passes is no failure.
sonde_status snd_bench_kernels(const snd_bench_opts *o, snd_bench_row *rows, int *n) SONDE_MUST_CHECK;
// C [M, N] = A B in f32; ta: A is stored [K, M], else [M, K]; tb: B is stored [N, K], else [K, N]; not both.
typedef struct snd_bench_product { int64_t M, N, K; bool ta, tb; } snd_bench_product;
/// The products alone, on all threads, at most SND_BENCH_ROWS. Errors as above.
sonde_status snd_bench_products(const snd_bench_opts *o, const snd_bench_product *p, int n, snd_bench_row *rows, int *done) SONDE_MUST_CHECK;
/// Our front against oneDNN's own threads, dnnl_sgemm and its matmul, in interleaved rounds; n = 0: forward, dx and dW of
/// some maps. Four rows each: the ratio to the better of the two, then ours, dnnl_sgemm and matmul against the
/// multiply-adds; medians of ten rounds (three if quick). SONDE_EUSAGE without oneDNN; others as above.
sonde_status snd_bench_gemm(const snd_bench_opts *o, const snd_bench_product *p, int n, snd_bench_row *rows, int *done) SONDE_MUST_CHECK;
/// Of n >= 1 numbers, which it sorts.
double snd_bench_median(double *v, int n);
/// The rows as a table of text.
void snd_bench_text(const snd_bench_row *rows, int n, snd_buf *text);

#endif
