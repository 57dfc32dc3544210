// Fronts of the norms of rows: rows are cut into tasks; sums over rows, of the parameters' gradients, are kept per task
// and added in the tasks' order. Batch norm: batchnorm.c.
#include "kernels/rows.h"
#include <assert.h>
#include <stdatomic.h>
#include <string.h>

typedef struct norm_job {
    snd_normspec s;
    int64_t R;
    snd_cut cut;
    size_t size;
    bool stream;
    double a, b; // factors of a sum
    const void *x, *dy, *plus;
    void *y, *sum, *dx, *dg, *db;
    double *mw, *rw, *partial;
    const double *m, *r;
    snd_kt_norm_fwd *fwd;
    snd_kt_addnorm_fwd *add;
    snd_kt_norm_bwd *bwd;
    double absmax[SND_MAX_TASKS], sum_absmax[SND_MAX_TASKS];
} norm_job;

// ---- streaming --------------------------------------------------------------------------------------------------------

// Results of at least this size are gone from the caches before anyone reads them again.
enum { STREAM_BYTES = 24 << 20 };
static _Atomic int64_t stream_from = STREAM_BYTES;

void snd_k_stream_from(int64_t bytes) {
    atomic_store_explicit(&stream_from, bytes < 0 ? STREAM_BYTES : bytes, memory_order_relaxed);
}
static bool streams(int64_t n, size_t size) {
    return n * (int64_t)size >= atomic_load_explicit(&stream_from, memory_order_relaxed);
}
// Of rows that long the first cache does not hold the three that run abreast and the gain. AMD's processors then wait for
// the second cache and the memory in turns.
enum { ALONE_BYTES = 8 << 10 };
static snd_norm_way way(const norm_job *j) {
    if (!j->stream) return SND_NORM_KEEP;
    return snd_cpu_is_amd() && j->s.D * (int64_t)j->size >= ALONE_BYTES ? SND_NORM_ALONE : SND_NORM_STREAM;
}

// ---- row norms --------------------------------------------------------------------------------------------------------

static void fwd_task(void *ctx, int64_t i) {
    norm_job *j = ctx;
    const int64_t r0 = snd_cut_begin(&j->cut, i), rows = snd_cut_end(&j->cut, i) - r0, at = r0 * j->s.D;
    const void *x = snd_at(j->x, at, j->size);
    void *y = snd_at_mut(j->y, at, j->size);
    double *m = j->mw ? j->mw + r0 : NULL, *r = j->rw + r0;
    if (j->add)
        j->absmax[i] = j->add(&j->s, rows, j->stream, j->a, x, j->b, snd_at(j->plus, at, j->size),
                              snd_at_mut(j->sum, at, j->size), y, m, r, &j->sum_absmax[i]);
    else
        j->absmax[i] = j->fwd(&j->s, rows, way(j), x, y, m, r);
}

// Cuts the rows and runs; the largest magnitude of the norm's result.
static double forward(int th, snd_dtype t, int64_t R, norm_job *j) {
    assert(j->rw && (j->mw || j->s.kind != SND_KNORM_LAYER));
    if (R <= 0 || j->s.D <= 0) return 0;
    if (j->s.kind != SND_KNORM_LAYER) j->mw = NULL;
    j->cut = snd_cut_rows(R, j->s.D);
    j->size = snd_dtype_size(t);
    j->stream = streams(R * j->s.D, j->size);
    snd_parallel(th, j->cut.tasks, fwd_task, j);
    return snd_max_nan(j->absmax, j->cut.tasks);
}

double snd_k_norm_fwd(int th, snd_dtype t, const snd_normspec *s, int64_t R, const void *x, void *y, double *m,
                      double *r) {
    norm_job j = {.s = *s, .x = x, .y = y, .mw = m, .rw = r, .fwd = SND_PICK(norm_fwd, t)};
    return forward(th, t, R, &j);
}

double snd_k_addnorm_fwd(int th, snd_dtype t, const snd_normspec *s, int64_t R, double a, const void *x, double b,
                         const void *y, void *sum, void *z, double *m, double *r, double *sum_absmax) {
    norm_job j = {.s = *s, .a = a, .b = b, .x = x, .plus = y, .sum = sum, .y = z, .mw = m, .rw = r};
    j.add = SND_PICK(addnorm_fwd, t);
    const double absmax = forward(th, t, R, &j);
    *sum_absmax = snd_max_nan(j.sum_absmax, j.cut.tasks);
    return absmax;
}

// Sums over columns are kept per task, so a task takes some rows at least: the sums are then an eighth of what is read.
static snd_cut backward_cut(int64_t R, int64_t D) {
    enum { ROWS = 16 };
    const int64_t grain = 32768 / D;
    return snd_cut_make(R, grain > ROWS ? grain : ROWS, 1);
}

// A task's share, in doubles: its sums, and those of a block of rows, which are of the type and begin on a cache line.
static int64_t share(int64_t D) {
    return (4 * D + 15) / 8 * 8;
}

size_t snd_k_norm_bwd_scratch(int64_t R, int64_t D) {
    return R > 0 && D > 0 ? (size_t)(backward_cut(R, D).tasks * share(D)) * sizeof(double) : 0;
}

static void bwd_task(void *ctx, int64_t i) {
    norm_job *j = ctx;
    const int64_t r0 = snd_cut_begin(&j->cut, i), rows = snd_cut_end(&j->cut, i) - r0, D = j->s.D, at = r0 * D;
    double *sums = j->dg || j->db ? j->partial + i * share(D) : NULL;
    void *part = sums ? (void *)(((uintptr_t)(sums + 2 * D) + 63) / 64 * 64) : NULL;
    if (sums) memset(sums, 0, (size_t)(2 * D) * sizeof *sums);
    j->absmax[i] = j->bwd(&j->s, rows, j->stream, snd_at(j->dy, at, j->size), snd_at(j->x, at, j->size),
                          j->m ? j->m + r0 : NULL, j->r + r0, j->plus ? snd_at(j->plus, at, j->size) : NULL,
                          j->dx ? snd_at_mut(j->dx, at, j->size) : NULL, sums, part);
}

// out = the tasks' sums in their order.
static void fold(snd_dtype t, const norm_job *j, int k, void *out) {
    for (int64_t i = 0; out && i < j->s.D; i++) {
        double sum = 0;
        for (int64_t task = 0; task < j->cut.tasks; task++) sum += j->partial[task * share(j->s.D) + k * j->s.D + i];
        if (t == SND_F64)
            ((double *)out)[i] = sum;
        else
            ((float *)out)[i] = (float)sum;
    }
}

double snd_k_norm_bwd(int th, snd_dtype t, const snd_normspec *s, int64_t R, const void *dy, const void *x,
                      const double *m, const double *r, const void *plus, void *dx, void *dg, void *db,
                      double *scratch) {
    assert(r && (m || s->kind != SND_KNORM_LAYER) && (scratch || !(dg || db) || R <= 0));
    if (s->D <= 0) return 0;
    norm_job j = {.s = *s,
                  .size = snd_dtype_size(t),
                  .x = x,
                  .dy = dy,
                  .plus = plus,
                  .dx = dx,
                  .dg = dg,
                  .db = db,
                  .partial = scratch,
                  .m = s->kind == SND_KNORM_LAYER ? m : NULL,
                  .r = r,
                  .bwd = SND_PICK(norm_bwd, t)};
    if (R > 0) j.cut = backward_cut(R, s->D);
    j.stream = dx != dy && dx != plus && streams(R * s->D, j.size); // what was just read is in the cache anyway
    snd_parallel(th, j.cut.tasks, bwd_task, &j);
    fold(t, &j, 0, dg);
    fold(t, &j, 1, db);
    return snd_max_nan(j.absmax, j.cut.tasks);
}
