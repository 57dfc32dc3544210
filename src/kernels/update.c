// Fronts of the optimizer steps: what a step multiplies by, in double; cuts of a tensor that depend on its size alone.
#include "kernels/rows.h"

#include <math.h>

enum { GRAIN = 32768, ALIGN = 64 };

typedef struct update_job {
    snd_kt_update *fn;
    snd_kt_sumsq *sumsq;
    snd_updatespec u;
    snd_cut cut;
    size_t size;
    const void *g;
    void *w, *m, *v;
    bool sums;
    double part[SND_MAX_TASKS], sum[SND_MAX_TASKS][2];
} update_job;

static void update_task(void *ctx, int64_t i) {
    update_job *j = ctx;
    const int64_t i0 = snd_cut_begin(&j->cut, i);
    j->fn(&j->u, snd_cut_end(&j->cut, i) - i0, snd_at(j->g, i0, j->size), snd_at_mut(j->w, i0, j->size),
          snd_at_mut(j->m, i0, j->size), snd_at_mut(j->v, i0, j->size), j->sums ? j->sum[i] : NULL);
}

// 1 - beta^step without cancellation.
static double unbias(double beta, int64_t step) {
    return beta > 0 ? -expm1((double)step * log(beta)) : 1;
}

static double tree_of(update_job *j, int which) {
    for (int64_t i = 0; i < j->cut.tasks; i++) j->part[i] = j->sum[i][which];
    return snd_tree_sum(j->part, j->cut.tasks);
}

void snd_k_update(int th, snd_dtype t, const snd_kupdate *k, int64_t n, const void *g, void *w, void *m, void *v,
                  double *sums) {
    if (sums) sums[0] = sums[1] = 0;
    if (n <= 0) return;
    update_job j = {.fn = SND_PICK(update, t),
                    .u = {.rule = k->rule,
                          .lr = k->lr,
                          .beta1 = k->beta1,
                          .beta2 = k->beta2,
                          .rest1 = 1 - k->beta1,
                          .rest2 = 1 - k->beta2,
                          .eps = k->eps,
                          .decay = k->decay,
                          .toward = k->toward,
                          .scale = k->scale,
                          .shrink = k->lr * k->decay,
                          .step = k->lr / unbias(k->beta1, k->step),
                          .unbias = 1 / sqrt(unbias(k->beta2, k->step))},
                    .cut = snd_cut_make(n, GRAIN, ALIGN),
                    .size = snd_k_size(t),
                    .g = g,
                    .w = w,
                    .m = m,
                    .v = v,
                    .sums = sums != NULL};
    snd_parallel(th, j.cut.tasks, update_task, &j);
    for (int i = 0; sums && i < 2; i++) sums[i] = tree_of(&j, i);
}

static void sumsq_task(void *ctx, int64_t i) {
    update_job *j = ctx;
    const int64_t i0 = snd_cut_begin(&j->cut, i);
    j->part[i] = j->sumsq(snd_cut_end(&j->cut, i) - i0, snd_at(j->g, i0, j->size));
}

double snd_k_sumsq(int th, snd_dtype t, int64_t n, const void *x) {
    if (n <= 0) return 0;
    update_job j = {.sumsq = SND_PICK(sumsq, t), .cut = snd_cut_make(n, GRAIN, ALIGN), .size = snd_k_size(t), .g = x};
    snd_parallel(th, j.cut.tasks, sumsq_task, &j);
    return snd_tree_sum(j.part, j.cut.tasks);
}
