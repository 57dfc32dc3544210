// Fronts of batch norm. Columns are cut into blocks of at most SND_COLS; within one, rows are cut as well, each part has
// sums of its own, and they are added in order: both cuts depend on the shape alone. One block shares its rows among the
// threads (images: many rows of few channels), several blocks are shared themselves.
#include "kernels/rows.h"
#include <assert.h>
#include <math.h>
#include <string.h>

typedef struct batch_job {
    int th;
    snd_dtype t;
    size_t size;
    int64_t R, D;
    double eps, gadd;
    const void *x, *dy, *g, *b;
    void *y, *dx, *dg, *db;
    double *mw, *rw, *var;
    const double *m, *r;
    uint64_t *above;
    const uint64_t *was_above;
    snd_cut cut; // of the rows
    double *most;
    void (*block)(const struct batch_job *j, int th, int64_t j0, int64_t n);
} batch_job;

// One block of columns at work.
typedef struct block {
    const batch_job *j;
    int64_t j0, n;
    const double *p;
    snd_batchline line;
    double s[SND_MAX_TASKS][SND_COLS], v[SND_MAX_TASKS][SND_COLS], most[SND_MAX_TASKS];
} block;

static double value_at(snd_dtype t, const void *p, int64_t i) {
    return t == SND_F64 ? ((const double *)p)[i] : (double)((const float *)p)[i];
}

static void put_at(snd_dtype t, void *p, int64_t i, double v) {
    if (t == SND_F64)
        ((double *)p)[i] = v;
    else
        ((float *)p)[i] = (float)v;
}

static int64_t rows_of(const batch_job *j, int64_t task, int64_t *first) {
    *first = snd_cut_begin(&j->cut, task);
    return snd_cut_end(&j->cut, task) - *first;
}

static double gain_of(const batch_job *j, int64_t k) {
    return j->g ? value_at(j->t, j->g, k) + j->gadd : 1;
}

// Sums of all parts, in order, into the first.
static void add_parts(block *b) {
    for (int64_t k = 1; k < b->j->cut.tasks; k++)
        for (int64_t c = 0; c < b->n; c++) {
            b->s[0][c] += b->s[k][c];
            b->v[0][c] += b->v[k][c];
        }
}

static void run(block *b, int th, void (*task)(void *, int64_t)) {
    snd_parallel(th, b->j->cut.tasks, task, b);
}

static double largest(const block *b) {
    return snd_max_nan(b->most, b->j->cut.tasks);
}

// ---- forward --------------------------------------------------------------------------------------------------------

static void sums_task(void *ctx, int64_t i) {
    block *b = ctx;
    const batch_job *j = b->j;
    int64_t r0;
    const int64_t rows = rows_of(j, i, &r0);
    memset(b->s[i], 0, sizeof b->s[i]);
    memset(b->v[i], 0, sizeof b->v[i]);
    SND_PICK(batch_sums, j->t)(rows, b->n, j->D, snd_at(j->x, r0 * j->D + b->j0, j->size), b->p, b->s[i], b->v[i]);
}

static void sums_about(block *b, int th, const double *p) {
    b->p = p;
    run(b, th, sums_task);
    add_parts(b);
}

// One pass relative to the first row; f64 takes a second one about the mean.
static void statistics(block *b, int th) {
    const batch_job *j = b->j;
    const double R = (double)j->R;
    double p[SND_COLS];
    for (int64_t c = 0; c < b->n; c++) p[c] = value_at(j->t, j->x, b->j0 + c);
    sums_about(b, th, p);
    if (j->t == SND_F64) {
        for (int64_t c = 0; c < b->n; c++) p[c] += b->s[0][c] / R;
        sums_about(b, th, p);
    }
    for (int64_t c = 0; c < b->n; c++) {
        const int64_t k = b->j0 + c;
        const double corr = b->s[0][c] / R, q = b->v[0][c] / R - corr * corr, w = q + j->eps;
        double var = q > 0 ? q : 0;
        j->mw[k] = p[c] + corr;
        j->rw[k] = 1 / sqrt(w);
        if (!(w >= 0x1p-900 && w <= 0x1p900))
            SND_PICK(batch_column, j->t)(j->R, j->D, snd_at(j->x, k, j->size), j->eps, &j->mw[k], &j->rw[k], &var);
        if (j->var) j->var[k] = j->R > 1 ? var * (R / (R - 1)) : var;
    }
}

static void write_task(void *ctx, int64_t i) {
    block *b = ctx;
    const batch_job *j = b->j;
    int64_t r0;
    const int64_t rows = rows_of(j, i, &r0), at = r0 * j->D + b->j0;
    b->most[i] = SND_PICK(batch_write, j->t)(rows, b->n, j->D, snd_at(j->x, at, j->size), &b->line,
                                             snd_at_mut(j->y, at, j->size), j->above, at);
}

static void forward_block(const batch_job *j, int th, int64_t j0, int64_t n) {
    block b; // large: what is read is written before
    b.j = j, b.j0 = j0, b.n = n;
    statistics(&b, th);
    if (!j->y) return;
    for (int64_t c = 0; c < n; c++) {
        const int64_t k = j0 + c;
        b.line.half[c] = fabs(j->mw[k]) > 1 ? 0.5 : 1; // x - m may reach twice the largest double
        b.line.m[c] = j->mw[k];
        b.line.r[c] = j->rw[k];
        b.line.f[c] = j->rw[k] * gain_of(j, k);
        b.line.half_m[c] = b.line.m[c] * b.line.half[c];
        b.line.f_half[c] = b.line.f[c] / b.line.half[c];
        b.line.b[c] = j->b ? value_at(j->t, j->b, k) : 0;
        b.line.s1[c] = b.line.s2[c] = 0;
    }
    run(&b, th, write_task);
    if (j->most) j->most[j0 / SND_COLS] = largest(&b);
}

// ---- backward -------------------------------------------------------------------------------------------------------

static void bwd_sums_task(void *ctx, int64_t i) {
    block *b = ctx;
    const batch_job *j = b->j;
    int64_t r0;
    const int64_t rows = rows_of(j, i, &r0), at = r0 * j->D + b->j0;
    memset(b->s[i], 0, sizeof b->s[i]);
    memset(b->v[i], 0, sizeof b->v[i]);
    SND_PICK(batch_bwd_sums, j->t)
    (rows, b->n, j->D, snd_at(j->dy, at, j->size), snd_at(j->x, at, j->size), &b->line, j->was_above, at, b->s[i],
     b->v[i]);
}

static void dx_task(void *ctx, int64_t i) {
    block *b = ctx;
    const batch_job *j = b->j;
    int64_t r0;
    const int64_t rows = rows_of(j, i, &r0), at = r0 * j->D + b->j0;
    b->most[i] = SND_PICK(batch_dx, j->t)(rows, b->n, j->D, snd_at(j->dy, at, j->size), snd_at(j->x, at, j->size),
                                          &b->line, j->was_above, at, snd_at_mut(j->dx, at, j->size));
}

static void backward_block(const batch_job *j, int th, int64_t j0, int64_t n) {
    block b; // large: what is read is written before
    b.j = j, b.j0 = j0, b.n = n;
    memcpy(b.line.m, j->m + j0, (size_t)n * sizeof *b.line.m);
    memcpy(b.line.r, j->r + j0, (size_t)n * sizeof *b.line.r);
    for (int64_t c = 0; c < n; c++)
        b.line.f[c] = gain_of(j, j0 + c) * j->r[j0 + c], b.line.s1[c] = b.line.s2[c] = b.line.b[c] = 0;
    run(&b, th, bwd_sums_task);
    add_parts(&b);
    for (int64_t c = 0; c < n; c++) {
        const int64_t k = j0 + c;
        if (j->dg) put_at(j->t, j->dg, k, b.v[0][c]);
        if (j->db) put_at(j->t, j->db, k, b.s[0][c]);
        b.line.s1[c] = b.s[0][c] / (double)j->R;
        b.line.s2[c] = b.v[0][c] / (double)j->R;
    }
    if (!j->dx) return;
    run(&b, th, dx_task);
    if (j->most) j->most[j0 / SND_COLS] = largest(&b);
}

// ---- blocks ---------------------------------------------------------------------------------------------------------

static void block_task(void *ctx, int64_t i) {
    const batch_job *j = ctx;
    const int64_t j0 = i * SND_COLS, n = j->D - j0 < SND_COLS ? j->D - j0 : SND_COLS;
    j->block(j, 1, j0, n);
}

// Rows of a part: about 32k elements, whole words of bits.
static snd_cut cut_rows(int64_t R, int64_t D) {
    const int64_t n = D < SND_COLS ? D : SND_COLS, grain = 32768 / n;
    int64_t align = 64;
    while (align > 1 && n * (align / 2) % 64 == 0) align /= 2;
    return snd_cut_make(R, grain, align);
}

// The largest magnitude of what the blocks wrote; -1: they are too many to remember, so it is not known.
static double blocks(batch_job *j) {
    enum { REMEMBERED = 64 };
    const int64_t n = (j->D + SND_COLS - 1) / SND_COLS;
    double most[REMEMBERED] = {0};
    j->most = n <= REMEMBERED ? most : NULL;
    j->cut = cut_rows(j->R, j->D);
    if (n == 1)
        j->block(j, j->R * j->D < 32768 ? 1 : j->th, 0, j->D);
    else
        snd_parallel(j->R * j->D < 32768 ? 1 : j->th, n, block_task, j);
    return j->most ? snd_max_nan(most, n) : -1;
}

double snd_k_batch_fwd(int th, snd_dtype t, int64_t R, int64_t D, double eps, double gadd, const void *x, const void *g,
                       const void *b, void *y, double *m, double *r, double *var_unbiased, uint64_t *above) {
    assert(!above || D < SND_COLS || D % 64 == 0);
    if (R <= 0 || D <= 0) return 0;
    batch_job j = {.th = th,
                   .t = t,
                   .size = snd_k_size(t),
                   .R = R,
                   .D = D,
                   .eps = eps,
                   .gadd = gadd,
                   .x = x,
                   .g = g,
                   .b = b,
                   .y = y,
                   .mw = m,
                   .rw = r,
                   .var = var_unbiased,
                   .above = above,
                   .block = forward_block};
    return blocks(&j);
}

double snd_k_batch_bwd(int th, snd_dtype t, int64_t R, int64_t D, double eps, double gadd, const void *dy,
                       const void *x, const void *g, const double *m, const double *r, const uint64_t *above, void *dx,
                       void *dg, void *db) {
    assert(!above || D < SND_COLS || D % 64 == 0);
    if (R <= 0 || D <= 0) return 0;
    batch_job j = {.th = th,
                   .t = t,
                   .size = snd_k_size(t),
                   .R = R,
                   .D = D,
                   .eps = eps,
                   .gadd = gadd,
                   .dy = dy,
                   .x = x,
                   .g = g,
                   .dx = dx,
                   .dg = dg,
                   .db = db,
                   .m = m,
                   .r = r,
                   .was_above = above,
                   .block = backward_block};
    return blocks(&j);
}
