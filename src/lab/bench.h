// The kernels and whole training steps against this machine's limits. Every row is timed in turns with the limit that bounds
// it (register-only multiply-adds, or a copy or add of the same bytes), in the same process, so a busy or throttled machine
// slows both; and, where a rival takes part, in turns with the same work of his. Touches nothing but its own buffers.
#ifndef SND_LAB_BENCH_H
#define SND_LAB_BENCH_H

#include "base/base.h"
#include "lab/rival.h"

typedef struct snd_bench_opts {
    int threads;              // 0: all
    bool cpu_time;            // seconds of processor time in place of the clock's; only with one thread
    bool quick;               // fewer turns, and no row that takes long: about three seconds in place of a minute
    double time_limit;        // seconds, 0: none; what is done by then is returned
    const char *const *only; int n_only;   // groups, or parts of "GROUP NAME" as shell patterns; 0: all but the largest rows
    snd_rival *rival;         // NULL: none. Else only rows that he has too, on all threads
    const snd_stop *stop;     // looked at between turns; may be NULL
    bool (*progress)(void *ctx, int done, int total);   // after every row; true: stop. May be NULL
    void *ctx;
} snd_bench_opts;

/// Over turns: the median, and the middle half (from the first to the third quartile). NaN: does not apply, or a turn had none.
typedef struct snd_bench_stat { double mid, lo, hi; } snd_bench_stat;

typedef struct snd_bench_row {
    const char *group;        // "limit", "gemm", "attention", "conv", "norm", "loss", "elementwise", "update", "stats", "draw", "step", "monitor"
    char name[48];            // "f32 256x256x256 NT"
    int threads;
    const char *unit;         // "GFLOP/s", "GB/s", "G/s"
    snd_bench_stat rate;
    const char *bound;        // what it is held against, "" for none
    snd_bench_stat bound_rate, share;      // the bound's in the same turns; rate / bound
    const char *item;         // steps: "tokens", "rows", "images"; else NULL
    double seconds, items, mib;            // steps: of one, median; items of one; most memory of the process
    snd_bench_stat rival, ratio;           // his rate; rate / his: above 1 where we are faster
    double rival_mib;
} snd_bench_row;

enum { SND_BENCH_ROWS = 256 };
/// Fills rows[SND_BENCH_ROWS], *n of them. SONDE_EUSAGE: a word of `only` that no row has; SONDE_EIO: the rival is gone;
/// SONDE_ENOMEM; SONDE_EINTERRUPTED with the rows so far; a time limit that passes is no failure.
sonde_status snd_bench_all(const snd_bench_opts *o, snd_bench_row *rows, int *n) SONDE_MUST_CHECK;
// C [M, N] = A B in f32; ta: A is stored [K, M], else [M, K]; tb: B is stored [N, K], else [K, N]; not both.
typedef struct snd_bench_product { int64_t M, N, K; bool ta, tb; } snd_bench_product;
/// The products alone, on all threads, at most SND_BENCH_ROWS. Errors as above.
sonde_status snd_bench_products(const snd_bench_opts *o, const snd_bench_product *p, int n, snd_bench_row *rows, int *done) SONDE_MUST_CHECK;
/// Our front against oneDNN's own threads, dnnl_sgemm and its matmul, in interleaved rounds; n = 0: forward, dx and dW of
/// some maps. Four rows each: the ratio to the better of the two, then ours, dnnl_sgemm and matmul against the
/// multiply-adds; medians of ten rounds (three if quick). SONDE_EUSAGE without oneDNN; others as above.
sonde_status snd_bench_gemm(const snd_bench_opts *o, const snd_bench_product *p, int n, snd_bench_row *rows, int *done) SONDE_MUST_CHECK;
// ---- saved results -----------------------------------------------------------------------------------------------------

/// What made the rows.
typedef struct snd_bench_about {
    const char *version, *cpu, *isa, *gemm_f32, *gemm_f64;     // of the program; of the machine; what products are made by
    const char *rival, *setting;                               // NULL: none
    bool quick, cpu_time;
    double load;                       // other work on the machine, in processors, before the run
} snd_bench_about;
/// Of this program on this machine. Texts live as long as the arena.
sonde_status snd_bench_here(snd_arena *a, const snd_bench_opts *o, snd_bench_about *out) SONDE_MUST_CHECK;

typedef struct snd_bench_file { const char *path; snd_bench_about about; snd_bench_row *rows; int n; } snd_bench_file;
/// A saved `sonde bench --json`, in the arena.
/// errors  SONDE_EIO; SONDE_ESYNTAX: no JSON, with line; SONDE_EINPUT: JSON of something else, or a row without name or rate
sonde_status snd_bench_read(snd_arena *a, const char *path, snd_bench_file *out) SONDE_MUST_CHECK;

// SLOWER, FASTER: by more than the tolerance, and the middle halves of both do not meet. LOST: no finite number now where
// there was one. UNKNOWN: none then. MACHINE: a limit, which says nothing of the program. MISSING: not measured now.
// NEW: not in the file.
typedef enum snd_bench_verdict {
    SND_BENCH_SAME, SND_BENCH_SLOWER, SND_BENCH_FASTER, SND_BENCH_LOST, SND_BENCH_UNKNOWN, SND_BENCH_MACHINE,
    SND_BENCH_MISSING, SND_BENCH_NEW, SND_BENCH_VERDICTS
} snd_bench_verdict;
const char *snd_bench_verdict_name(snd_bench_verdict v);       // "slower"
typedef struct snd_bench_change {
    const char *group, *name, *by;     // by: "share" of the bound, where both have one; else "rate"
    int threads;
    double then, now, ratio;           // medians; now / then. NaN: none
    snd_bench_verdict verdict;
} snd_bench_change;
/// Rows of now in their order, then those that the file alone has: out has room for both. Returns how many.
int snd_bench_compare(const snd_bench_file *then, const snd_bench_row *now, int n, double tolerance, snd_bench_change *out);
/// How many have this verdict.
int snd_bench_count(const snd_bench_change *c, int n, snd_bench_verdict v);

/// The document of `sonde bench --json`; changes NULL: no baseline.
void snd_bench_json(const snd_bench_about *about, const snd_bench_row *rows, int n, const snd_bench_file *then, double tolerance,
                    const snd_bench_change *changes, int n_changes, snd_buf *out);

/// Of n >= 1 numbers, which it sorts; NaN among them makes all three NaN.
snd_bench_stat snd_bench_stat_of(double *v, int n);

#endif
