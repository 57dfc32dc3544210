// Front of dropout. Any cut gives the same numbers, since an element's factor depends on (key, number) only.
#include "kernels/rows.h"

#include <math.h>

typedef struct drop_job {
    snd_kt_dropout *fn;
    snd_dropspec s;
    snd_cut cut;
    const void *x;
    void *y;
    double absmax[SND_MAX_TASKS];
} drop_job;

static void drop_task(void *ctx, int64_t i) {
    drop_job *j = ctx;
    j->absmax[i] = j->fn(&j->s, snd_cut_begin(&j->cut, i), snd_cut_end(&j->cut, i), j->x, j->y);
}

snd_dropspec snd_drop_at(snd_key key, double rate) {
    const double below = floor(rate * 0x1p32 + 0.5);
    snd_dropspec s = {.key = key, .below = below < 0x1p32 ? (uint32_t)below : UINT32_MAX, .group = 1};
    s.c = 0x1p32 / (0x1p32 - (double)s.below); // what the words really keep: the expectation is exact
    return s;
}

double snd_k_dropout(int th, snd_dtype t, snd_key key, double rate, uint64_t first, int64_t group, int64_t n,
                     const void *x, void *y) {
    if (n <= 0) return 0;
    drop_job j = {
        .fn = SND_PICK(dropout, t), .s = snd_drop_at(key, rate), .cut = snd_cut_make(n, 16384, 1024), .x = x, .y = y};
    j.s.group = group;
    j.s.first = first;
    snd_parallel(th, j.cut.tasks, drop_task, &j);
    return snd_max_nan(j.absmax, j.cut.tasks);
}
