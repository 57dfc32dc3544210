// What the files of the bench share: one row's measurement. bench.c has the turns and the kernels, bench_step.c the training
// steps, bench_gemm.c the products of oneDNN.
#ifndef SND_LAB_BENCH_IMPL_H
#define SND_LAB_BENCH_IMPL_H

#include "lab/bench.h"

typedef struct snd_bench_work {
    const char *group, *name, *unit, *bound;
    int threads;
    double work, allowed;      // of a call of run, of limit: in the unit, times 1e9
    sonde_status (*run)(void *ctx);
    void (*limit)(void *ctx);  // NULL: none
    void *ctx;
    const char *rival;         // what the rival is asked for, NULL: he has none
    int turns;
    double patience;           // seconds after which three turns are enough, 0: no end
    double least, least_limit; // seconds of a turn, filled with calls
} snd_bench_work;

/// Turns of the work, its limit and the rival, after a call of each. SONDE_EINTERRUPTED: o->stop.
sonde_status snd_bench_measure(const snd_bench_opts *o, const snd_bench_work *w, snd_bench_row *row) SONDE_MUST_CHECK;

/// Seconds, by the clock that the options ask for.
double snd_bench_now(const snd_bench_opts *o);

/// How readily a row is run: always, not with `quick`, only when it is named.
typedef enum snd_bench_rank { SND_BENCH_EVER, SND_BENCH_LONG, SND_BENCH_NAMED } snd_bench_rank;
bool snd_bench_picks(const snd_bench_opts *o, const char *group, const char *name, snd_bench_rank rank);

// Training steps: how many there are, the name of one, and the row of one.
int snd_bench_step_count(void);
const char *snd_bench_step_name(int i);
bool snd_bench_step_picked(const snd_bench_opts *o, int i);
sonde_status snd_bench_step(const snd_bench_opts *o, int i, snd_bench_row *row) SONDE_MUST_CHECK;

#endif
