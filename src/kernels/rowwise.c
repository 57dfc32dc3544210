// Fronts of the row operations: rows are cut into tasks; each row is one task's.
#include "kernels/narrow.h"
#include <math.h>

typedef struct row_job {
    int64_t D;
    snd_cut cut;
    size_t size;
    double a;
    const void *x, *y;
    void *out;
    snd_kt_rowdot *dot;
    snd_kt_softmax *softmax;
    snd_kt_softmax_bwd *softmax_bwd;
    snd_kt_wsum *wsum;
    snd_kt_xent *xent;
    snd_kt_xent_bwd *xent_bwd;
    snd_narrow *narrow; // logits are bf16; NULL: of the loops' type
    int K;
    bool per_row;
    const double *scale;
    const void *const *v;
    const int64_t *target;
    int64_t ignore;
    double *lse, c, smooth;
    double part[SND_MAX_TASKS];
    int64_t used[SND_MAX_TASKS];
} row_job;

static void dot_task(void *ctx, int64_t i) {
    row_job *j = ctx;
    const int64_t r0 = snd_cut_begin(&j->cut, i), at = r0 * j->D;
    j->dot(snd_cut_end(&j->cut, i) - r0, j->D, j->a, snd_at(j->x, at, j->size), snd_at(j->y, at, j->size),
           snd_at_mut(j->out, r0, j->size));
}
void snd_k_rowdot(int th, snd_dtype t, int64_t R, int64_t D, double c, const void *x, const void *y, void *out) {
    if (R <= 0) return;
    row_job j = {.D = D,
                 .cut = snd_cut_rows(R, D),
                 .size = snd_k_size(t),
                 .a = c,
                 .x = x,
                 .y = y,
                 .out = out,
                 .dot = SND_PICK(rowdot, t)};
    snd_parallel(th, j.cut.tasks, dot_task, &j);
}

static void softmax_task(void *ctx, int64_t i) {
    row_job *j = ctx;
    const int64_t r0 = snd_cut_begin(&j->cut, i), n = snd_cut_end(&j->cut, i) - r0, at = r0 * j->D;
    const void *x = snd_at(j->x, at, j->size), *y = snd_at(j->y, at, j->size);
    void *out = snd_at_mut(j->out, at, j->size);
    if (j->softmax)
        j->softmax(n, j->D, j->a, x, out);
    else
        j->softmax_bwd(n, j->D, j->a, x, y, out);
}
void snd_k_softmax(int th, snd_dtype t, int64_t R, int64_t D, double s, const void *x, void *p) {
    if (R <= 0 || D <= 0) return;
    row_job j = {.D = D,
                 .cut = snd_cut_rows(R, D),
                 .size = snd_k_size(t),
                 .a = s,
                 .x = x,
                 .out = p,
                 .softmax = SND_PICK(softmax, t)};
    snd_parallel(th, j.cut.tasks, softmax_task, &j);
}
void snd_k_softmax_bwd(int th, snd_dtype t, int64_t R, int64_t D, double s, const void *p, const void *dp, void *dx) {
    if (R <= 0 || D <= 0) return;
    row_job j = {.D = D,
                 .cut = snd_cut_rows(R, D),
                 .size = snd_k_size(t),
                 .a = s,
                 .x = p,
                 .y = dp,
                 .out = dx,
                 .softmax_bwd = SND_PICK(softmax_bwd, t)};
    snd_parallel(th, j.cut.tasks, softmax_task, &j);
}

static void wsum_task(void *ctx, int64_t i) {
    row_job *j = ctx;
    j->part[i] = j->wsum(snd_cut_begin(&j->cut, i), snd_cut_end(&j->cut, i), j->D, j->K, j->x, j->per_row, j->scale,
                         j->v, j->out);
}
double snd_k_wsum(int th, snd_dtype t, int64_t R, int64_t D, int K, const void *w, bool per_row, const double *scale,
                  const void *const *v, void *out) {
    if (R <= 0 || D <= 0) return 0;
    row_job j = {.D = D,
                 .cut = snd_cut_rows(R, D),
                 .x = w,
                 .out = out,
                 .K = K,
                 .per_row = per_row,
                 .scale = scale,
                 .v = v,
                 .wsum = SND_PICK(wsum, t)};
    snd_parallel(th, j.cut.tasks, wsum_task, &j);
    return snd_max_nan(j.part, j.cut.tasks);
}

static void xent_task(void *ctx, int64_t i) {
    row_job *j = ctx;
    const int64_t r0 = snd_cut_begin(&j->cut, i), n = snd_cut_end(&j->cut, i) - r0;
    const void *x = snd_at(j->x, r0 * j->D, j->size);
    if (j->narrow && j->xent)
        j->part[i] = snd_narrow_xent(j->narrow, j->xent, n, j->a, j->smooth, x, j->target + r0, j->ignore, j->lse + r0,
                                     &j->used[i]);
    else if (j->narrow)
        snd_narrow_xent_bwd(j->narrow, j->xent_bwd, n, j->a, j->smooth, x, j->target + r0, j->ignore, j->lse + r0, j->c,
                            snd_at_mut(j->out, r0 * j->D, j->size));
    else if (j->xent)
        j->part[i] = j->xent(n, j->D, j->a, j->smooth, x, j->target + r0, j->ignore, j->lse + r0, &j->used[i]);
    else
        j->xent_bwd(n, j->D, j->a, j->smooth, x, j->target + r0, j->ignore, j->lse + r0, j->c,
                    snd_at_mut(j->out, r0 * j->D, j->size));
}
// The mean over the rows that count. narrow: NULL, or what rows stored as bf16 are widened by.
static double mean_loss(int th, size_t size, snd_kt_xent *loop, snd_narrow *narrow, int64_t R, int64_t V, double s,
                        double smooth, const void *logits, const int64_t *target, int64_t ignore, double *lse,
                        int64_t *n_used) {
    row_job j = {.D = V,
                 .cut = snd_cut_rows(R, V),
                 .size = size,
                 .a = s,
                 .smooth = smooth,
                 .x = logits,
                 .target = target,
                 .ignore = ignore,
                 .lse = lse,
                 .xent = loop,
                 .narrow = narrow};
    if (R > 0) snd_parallel(th, j.cut.tasks, xent_task, &j);
    *n_used = 0;
    for (int64_t i = 0; i < j.cut.tasks; i++) *n_used += j.used[i];
    return *n_used ? snd_tree_sum(j.part, j.cut.tasks) / (double)*n_used : NAN;
}
double snd_k_xent_fwd(int th, snd_dtype t, int64_t R, int64_t V, double s, double smooth, const void *logits,
                      const int64_t *target, int64_t ignore, double *lse, int64_t *n_used) {
    return mean_loss(th, snd_k_size(t), SND_PICK(xent, t), NULL, R, V, s, smooth, logits, target, ignore, lse, n_used);
}
double snd_k_bf16_xent_fwd(int th, int64_t R, int64_t V, double s, double smooth, const uint16_t *logits,
                           const int64_t *target, int64_t ignore, double *lse, int64_t *n_used, void *blocks) {
    snd_narrow n = snd_narrow_make(th, V, blocks);
    return mean_loss(n.threads, sizeof *logits, SND_PICK(xent, SND_F32), &n, R, V, s, smooth, logits, target, ignore,
                     lse, n_used);
}
static void loss_gradient(int th, size_t size, snd_kt_xent_bwd *loop, snd_narrow *narrow, int64_t R, int64_t V,
                          double s, double smooth, const void *logits, const int64_t *target, int64_t ignore,
                          const double *lse, int64_t n_used, double dloss, void *dlogits) {
    row_job j = {.D = V,
                 .cut = snd_cut_rows(R, V),
                 .size = size,
                 .a = s,
                 .smooth = smooth,
                 .x = logits,
                 .target = target,
                 .ignore = ignore,
                 .lse = (double *)lse,
                 .c = n_used ? dloss / (double)n_used : 0,
                 .out = dlogits,
                 .xent_bwd = loop,
                 .narrow = narrow};
    if (R > 0) snd_parallel(th, j.cut.tasks, xent_task, &j);
}
void snd_k_xent_bwd(int th, snd_dtype t, int64_t R, int64_t V, double s, double smooth, const void *logits,
                    const int64_t *target, int64_t ignore, const double *lse, int64_t n_used, double dloss,
                    void *dlogits) {
    loss_gradient(th, snd_k_size(t), SND_PICK(xent_bwd, t), NULL, R, V, s, smooth, logits, target, ignore, lse, n_used,
                  dloss, dlogits);
}
void snd_k_bf16_xent_bwd(int th, int64_t R, int64_t V, double s, double smooth, const uint16_t *logits,
                         const int64_t *target, int64_t ignore, const double *lse, int64_t n_used, double dloss,
                         uint16_t *dlogits, void *blocks) {
    snd_narrow n = snd_narrow_make(th, V, blocks);
    loss_gradient(n.threads, sizeof *logits, SND_PICK(xent_bwd, SND_F32), &n, R, V, s, smooth, logits, target, ignore,
                  lse, n_used, dloss, dlogits);
}
