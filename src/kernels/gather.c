// Rows of a table by number, and the transpose: rows added into a table. Copies and additions only, so one text serves
// every instruction set. scatter_add is cut by columns: each task passes over all rows in their order, hence the sums
// do not depend on the number of threads.
#include "kernels/rows.h"

#include <math.h>
#include <string.h>

typedef struct gather_job {
    int64_t R, V, D;
    const int64_t *ids;
    const void *from;
    void *to;
    snd_cut cut;
    snd_dtype t;
} gather_job;

static bool exists(const gather_job *j, int64_t r) {
    return j->ids[r] >= 0 && j->ids[r] < j->V;
}

static void gather_task(void *ctx, int64_t i) {
    const gather_job *j = ctx;
    const size_t size = snd_k_size(j->t);
    for (int64_t r = snd_cut_begin(&j->cut, i); r < snd_cut_end(&j->cut, i); r++) {
        void *y = snd_at_mut(j->to, r * j->D, size);
        if (exists(j, r))
            memcpy(y, snd_at(j->from, j->ids[r] * j->D, size), (size_t)j->D * size);
        else
            snd_k_fill_const(1, j->t, j->D, NAN, y);
    }
}

void snd_k_gather(int th, snd_dtype t, int64_t V, int64_t D, const void *table, int64_t R, const int64_t *ids,
                  void *y) {
    if (R <= 0 || D <= 0) return;
    gather_job j = {.R = R, .V = V, .D = D, .ids = ids, .from = table, .to = y, .cut = snd_cut_rows(R, D), .t = t};
    snd_parallel(th, j.cut.tasks, gather_task, &j);
}

static void scatter_task(void *ctx, int64_t i) {
    const gather_job *j = ctx;
    const size_t size = snd_k_size(j->t);
    const int64_t c0 = snd_cut_begin(&j->cut, i), n = snd_cut_end(&j->cut, i) - c0;
    for (int64_t v = 0; v < j->V; v++) memset(snd_at_mut(j->to, v * j->D + c0, size), 0, (size_t)n * size);
    for (int64_t r = 0; r < j->R; r++) {
        if (!exists(j, r)) continue;
        const void *x = snd_at(j->from, r * j->D + c0, size);
        void *sum = snd_at_mut(j->to, j->ids[r] * j->D + c0, size);
        for (int64_t k = 0; j->t == SND_F32 && k < n; k++) ((float *)sum)[k] += ((const float *)x)[k];
        for (int64_t k = 0; j->t == SND_F64 && k < n; k++) ((double *)sum)[k] += ((const double *)x)[k];
    }
}

void snd_k_scatter_add(int th, snd_dtype t, int64_t R, int64_t D, const int64_t *ids, const void *x, int64_t V,
                       void *table) {
    if (V <= 0 || D <= 0) return;
    const int64_t work = 32768 / (R + V);
    gather_job j = {.R = R,
                    .V = V,
                    .D = D,
                    .ids = ids,
                    .from = x,
                    .to = table,
                    .cut = snd_cut_make(D, work > 16 ? work : 16, 16),
                    .t = t};
    snd_parallel(th, j.cut.tasks, scatter_task, &j);
}
