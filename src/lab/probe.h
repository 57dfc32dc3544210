// A probe: one model's graph with statistics hung on its values and gradients, and the way to run it for a seed. The
// same probe serves weights that are drawn (measuring) and weights that are integrated out (finite-width bands).
// Private to lab/.
#ifndef SND_LAB_PROBE_H
#define SND_LAB_PROBE_H

#include "lab/lab.h"

// One number per seed: a metric of a value or parameter, read off a statistics node.
typedef struct snd_cell_spec {
    const char *name;          // "layers.3.x", or a parameter's name
    int layer;                 // from 0; -1
    int metric;                // row of metrics.def
    int exit;                  // index of the exit that it belongs to; -1: all
    bool param;
    snd_id stat;
    int64_t width;             // features, to split flat indices
} snd_cell_spec;

typedef struct snd_probe_opts {
    int64_t rows, tokens;      // examples; of each, so many tokens (mlp, convnet: unused)
    int64_t height, width;     // of a convnet's images; 0: SND_IMAGE_SIDE
    snd_dtype dtype;
    double cos, scale;
    const snd_dataset *data;   // NULL: Gaussian
    const snd_corpus *corpus;  // NULL: uniform tokens
    const snd_stfile *weights; // NULL: drawn
    bool eval;                 // batch norm by its running statistics
    bool loss, backward, params;
    bool last_token;           // of each example, the loss of the last token alone
    bool integrate;
    bool sparse;               // only what a depth sweep shows: in.x, the last stream, out.x, the first matrix
    bool costly;               // metrics marked so
    const int *exits; int n_exits;
    int threads;
    size_t max_memory;
    const snd_stop *stop;
} snd_probe_opts;

typedef struct snd_probe {
    snd_arena *arena;
    snd_probe_opts o;
    const snd_spec *spec;
    snd_model *m;
    snd_plan *plan;
    snd_plan_opts way;             // fast or lean, as memory allows; the numbers are the same
    snd_cell_spec *cells; int n_cells;
    snd_id dy;
    // admin's profiling: vectors to set from the branches' variances, in running order
    int *profile_param; snd_id *profile_stat; int *profile_call; int n_profile;
} snd_probe;

/// What a run for this seed reads: examples, upstream gradient, targets. All of it is a function of (seed, name).
sonde_status snd_probe_feed(const snd_probe *p, snd_exec *x, uint64_t seed) SONDE_MUST_CHECK;
sonde_status snd_probe_make(snd_arena *a, const snd_spec *spec, const snd_probe_opts *o, snd_probe **out) SONDE_MUST_CHECK;
enum { SND_PROBE_STEPS = 1000 };                 // that a run's progress is told in
typedef struct snd_probe_times { double *draw, *run; } snd_probe_times;   // seconds of each seed
/// Runs seeds first .. first+n-1 and writes values[cell * n + i]. Seeds run side by side when that is faster. `done` is
/// told of progress, SND_PROBE_STEPS per seed in all (from any thread; may be NULL). *whole: how many of the first seeds
/// have all their values, n unless this fails; SONDE_EINTERRUPTED leaves those behind.
/// times: for n seeds each; NULL: not wanted. What is not drawing is running.
sonde_status snd_probe_run(const snd_probe *p, uint64_t first, int n, double *values, int *whole, const snd_probe_times *times, void (*done)(void *ctx, int steps), void *ctx) SONDE_MUST_CHECK;
size_t snd_probe_bytes(const snd_probe *p);      // of one run: values, parameters, what holds the graph, the program

// ---- for its files ----------------------------------------------------------------------------------------------------------
/// Elements of the largest input: what feeding a run needs room for, twice.
int64_t snd_probe_largest_input(const snd_probe *p);

#endif
