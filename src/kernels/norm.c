// Fronts of the norms of rows: rows are cut for the forward pass and dx, columns for parameter gradients, so every sum is
// taken by one task in one order. Batch norm: batchnorm.c.
#include "kernels/rows.h"
#include <assert.h>

typedef struct norm_job {
    snd_normspec s;
    int64_t R;
    snd_cut cut;
    size_t size;
    const void *x, *dy;
    void *y, *dx, *dg, *db;
    double *mw, *rw;
    const double *m, *r;
    snd_kt_norm_fwd *fwd;
    snd_kt_norm_dx *bwd_dx;
    snd_kt_norm_cols *cols;
} norm_job;

static snd_cut columns(int64_t D) {
    return (snd_cut){.n = D, .step = SND_COLS, .tasks = (D + SND_COLS - 1) / SND_COLS};
}

// Threads are not worth waking for less than this many elements.
static int worth(int th, int64_t R, int64_t D) {
    return R * D < 32768 ? 1 : th;
}

static void fwd_task(void *ctx, int64_t i) {
    norm_job *j = ctx;
    const int64_t r0 = snd_cut_begin(&j->cut, i), rows = snd_cut_end(&j->cut, i) - r0, at = r0 * j->s.D;
    j->fwd(&j->s, rows, snd_at(j->x, at, j->size), snd_at_mut(j->y, at, j->size), j->mw ? j->mw + r0 : NULL,
           j->rw + r0);
}

void snd_k_norm_fwd(int th, snd_dtype t, snd_knorm k, int64_t R, int64_t D, double eps, double gain0, double gadd,
                    const void *x, const void *g, const void *b, void *y, double *m, double *r) {
    assert(r && (m || k != SND_KNORM_LAYER));
    if (R <= 0 || D <= 0) return;
    norm_job j = {.s = {.kind = k, .D = D, .eps = eps, .gain0 = gain0, .gadd = gadd, .g = g, .b = b},
                  .cut = snd_cut_rows(R, D),
                  .size = snd_k_size(t),
                  .x = x,
                  .y = y,
                  .mw = k == SND_KNORM_LAYER ? m : NULL,
                  .rw = r,
                  .fwd = SND_PICK(norm_fwd, t)};
    snd_parallel(th, j.cut.tasks, fwd_task, &j);
}

static void dx_task(void *ctx, int64_t i) {
    norm_job *j = ctx;
    const int64_t r0 = snd_cut_begin(&j->cut, i), rows = snd_cut_end(&j->cut, i) - r0, at = r0 * j->s.D;
    j->bwd_dx(&j->s, rows, snd_at(j->dy, at, j->size), snd_at(j->x, at, j->size), j->m ? j->m + r0 : NULL, j->r + r0,
              snd_at_mut(j->dx, at, j->size));
}

static void cols_task(void *ctx, int64_t i) {
    norm_job *j = ctx;
    j->cols(&j->s, j->R, snd_cut_begin(&j->cut, i), snd_cut_end(&j->cut, i), j->dy, j->x, j->m, j->r, j->dg, j->db);
}

void snd_k_norm_bwd(int th, snd_dtype t, snd_knorm k, int64_t R, int64_t D, double eps, double gain0, double gadd,
                    const void *dy, const void *x, const void *g, const double *m, const double *r, void *dx, void *dg,
                    void *db) {
    assert(r && (m || k != SND_KNORM_LAYER));
    if (D <= 0) return;
    norm_job j = {.s = {.kind = k, .D = D, .eps = eps, .gain0 = gain0, .gadd = gadd, .g = g},
                  .R = R,
                  .size = snd_k_size(t),
                  .x = x,
                  .dy = dy,
                  .dx = dx,
                  .dg = dg,
                  .db = db,
                  .m = k == SND_KNORM_LAYER ? m : NULL,
                  .r = r,
                  .bwd_dx = SND_PICK(norm_dx, t),
                  .cols = SND_PICK(norm_cols, t)};
    if (dg || db) { // before dx, which may overwrite dy
        j.cut = columns(D);
        snd_parallel(worth(th, R, D), j.cut.tasks, cols_task, &j);
    }
    if (!dx || R <= 0) return;
    j.cut = snd_cut_rows(R, D);
    snd_parallel(th, j.cut.tasks, dx_task, &j);
}
