// Fronts of the statistics: moments and cosines of rows, effective rank, underflow shares. Sums over tasks in a tree.
#include "kernels/rows.h"
#include <math.h>
#include <string.h>

typedef struct stat_job {
    int64_t R, D;
    snd_cut cut;
    size_t size;
    const void *x, *y;
    snd_kt_moments *moments;
    snd_kt_row_sums *row_sums;
    snd_kt_bvar *bvar;
    snd_kt_row_norms *norms;
    snd_kt_unit_cols *unit;
    snd_kt_rowcos *rowcos;
    snd_kt_count_below *below;
    double limit;
    snd_momsum sum[SND_MAX_TASKS];
    double rows[SND_MAX_TASKS][3];
    double a[SND_MAX_TASKS], b[SND_MAX_TASKS];
} stat_job;

// ---- moments -------------------------------------------------------------------------------------------------------

static void moments_task(void *ctx, int64_t i) {
    stat_job *j = ctx;
    j->moments(snd_cut_begin(&j->cut, i), snd_cut_end(&j->cut, i), j->D, j->x, &j->sum[i]);
}

static double gather(stat_job *j, size_t member) {
    for (int64_t i = 0; i < j->cut.tasks; i++) memcpy(&j->a[i], (const char *)&j->sum[i] + member, sizeof(double));
    return snd_tree_sum(j->a, j->cut.tasks);
}

static void basic(int th, stat_job *j, snd_kmoments *o) {
    j->cut = snd_cut_rows(j->R, j->D);
    snd_parallel(th, j->cut.tasks, moments_task, j);
    o->sum = gather(j, offsetof(snd_momsum, sum));
    o->sumsq = gather(j, offsetof(snd_momsum, sumsq));
    o->sum4 = gather(j, offsetof(snd_momsum, sum4));
    o->sum_rowmean2 = gather(j, offsetof(snd_momsum, rowmean2));
    o->absmin = INFINITY;
    for (int64_t i = 0; i < j->cut.tasks; i++) {
        const snd_momsum *s = &j->sum[i];
        if (i == 0 || (!(s->absmax <= o->absmax) && !isnan(o->absmax))) {
            o->absmax = s->absmax;
            o->at = s->at;
        }
        o->absmin = s->absmin < o->absmin ? s->absmin : o->absmin;
        o->nonfinite += s->nonfinite;
    }
    if (isinf(o->absmin)) o->absmin = 0;
}

static void row_sums_task(void *ctx, int64_t i) {
    stat_job *j = ctx;
    j->row_sums(snd_cut_begin(&j->cut, i), snd_cut_end(&j->cut, i), j->D, j->x, j->rows[i]);
}

void snd_k_row_sums(int th, snd_dtype t, int64_t R, int64_t D, const void *x, double out[3]) {
    out[0] = out[1] = out[2] = 0;
    if (R <= 0 || D <= 0) return;
    stat_job j = {.D = D, .cut = snd_cut_rows(R, D), .x = x, .row_sums = SND_PICK(row_sums, t)};
    snd_parallel(th, j.cut.tasks, row_sums_task, &j);
    for (int k = 0; k < 3; k++) {
        for (int64_t i = 0; i < j.cut.tasks; i++) j.a[i] = j.rows[i][k];
        out[k] = snd_tree_sum(j.a, j.cut.tasks);
    }
}

// Columns in at most SND_MAX_TASKS tasks, each of whole blocks.
static snd_cut column_cut(int64_t D) {
    return snd_cut_make(D, SND_COLS, SND_COLS);
}

static void bvar_task(void *ctx, int64_t i) {
    stat_job *j = ctx;
    j->a[i] = 0;
    for (int64_t c = snd_cut_begin(&j->cut, i); c < snd_cut_end(&j->cut, i); c += SND_COLS) {
        double unused;
        j->a[i] += j->bvar(j->R, j->D, c, c + SND_COLS < j->D ? c + SND_COLS : j->D, j->x, &unused);
    }
}

// ---- mean cosine over pairs of rows: (|sum u_r|^2 - R)/(R(R-1)) with unit rows u_r ---------------------------------

// Norms of up to CHUNK rows, sums of up to SPAN columns are held at a time; wider and taller arrays recompute the norms per
// span.
enum { CHUNK = 2048, SPAN = 4096 };
typedef struct cos_job {
    const stat_job *j;
    const void *x; // rows ld elements apart
    int64_t ld, r0, rows, c0, span;
    snd_cut cut;
    double mean[CHUNK], inv[CHUNK], dev[CHUNK];
    double u[SPAN], v[SPAN];
} cos_job;

static void norms_task(void *ctx, int64_t i) {
    cos_job *c = ctx;
    const int64_t k = snd_cut_begin(&c->cut, i), n = snd_cut_end(&c->cut, i) - k;
    c->j->norms(n, c->j->D, c->ld, snd_at(c->x, (c->r0 + k) * c->ld, c->j->size), c->mean + k, c->inv + k, c->dev + k);
}

static void unit_task(void *ctx, int64_t i) {
    cos_job *c = ctx;
    const int64_t k = i * SND_COLS, n = c->span - k < SND_COLS ? c->span - k : SND_COLS;
    c->j->unit(c->rows, n, c->ld, snd_at(c->x, c->r0 * c->ld + c->c0 + k, c->j->size), c->mean, c->inv, c->dev,
               c->u + k, c->v + k);
}

// Of `rows` rows of x.
static void pair_cosines(int th, const stat_job *j, const void *x, int64_t rows, int64_t ld, double *cosine,
                         double *pearson) {
    cos_job c; // large: only what is used is written
    c.j = j;
    c.x = x;
    c.ld = ld;
    double uu = 0, vv = 0;
    bool zero = false, constant = false;
    for (c.c0 = 0; c.c0 < j->D; c.c0 += SPAN) {
        c.span = j->D - c.c0 < SPAN ? j->D - c.c0 : SPAN;
        memset(c.u, 0, (size_t)c.span * sizeof *c.u);
        memset(c.v, 0, (size_t)c.span * sizeof *c.v);
        for (c.r0 = 0; c.r0 < rows; c.r0 += CHUNK) {
            c.rows = rows - c.r0 < CHUNK ? rows - c.r0 : CHUNK;
            c.cut = snd_cut_rows(c.rows, j->D);
            if (c.c0 == 0 || rows > CHUNK) snd_parallel(th, c.cut.tasks, norms_task, &c);
            snd_parallel(c.rows * c.span < 32768 ? 1 : th, (c.span + SND_COLS - 1) / SND_COLS, unit_task, &c);
            for (int64_t r = 0; r < c.rows; r++) {
                zero |= c.inv[r] == 0;
                constant |= c.dev[r] == 0;
            }
        }
        for (int64_t k = 0; k < c.span; k++) {
            c.u[k] *= c.u[k];
            c.v[k] *= c.v[k];
        }
        uu += snd_tree_sum(c.u, c.span);
        vv += snd_tree_sum(c.v, c.span);
    }
    const double R = (double)rows;
    *cosine = zero || rows < 2 ? NAN : (uu - R) / (R * (R - 1));
    *pearson = constant || rows < 2 ? NAN : (vv - R) / (R * (R - 1));
}

void snd_k_moments(int th, snd_dtype t, int64_t R, int64_t D, const void *x, int what, snd_kmoments *out) {
    *out = (snd_kmoments){.cos = NAN, .pearson = NAN};
    if (R <= 0 || D <= 0) return;
    stat_job j = {.R = R,
                  .D = D,
                  .size = snd_k_size(t),
                  .x = x,
                  .moments = SND_PICK(moments, t),
                  .bvar = SND_PICK(bvar, t),
                  .norms = SND_PICK(row_norms, t),
                  .unit = SND_PICK(unit_cols, t)};
    if (what & (SND_KM_BASIC | SND_KM_FOURTH)) basic(th, &j, out);
    if (what & SND_KM_BVAR) {
        j.cut = column_cut(D);
        snd_parallel(R * D < 32768 ? 1 : th, j.cut.tasks, bvar_task, &j);
        out->bvar = snd_tree_sum(j.a, j.cut.tasks) / (double)D;
    }
    if (what & SND_KM_COS) pair_cosines(th, &j, x, R, D, &out->cos, &out->pearson);
}

// ---- examples of tokens --------------------------------------------------------------------------------------------

// `groups` groups of `rows` rows each: group g begins at row g*step, its rows are ld elements apart. Small or many groups
// are taken side by side, few large ones one after the other, each by all threads.
enum { MANY = 16 };
typedef struct group_job {
    stat_job j;
    int64_t groups, step, rows, ld;
    int threads; // inside a group
} group_job;

static void group_cosines_task(void *ctx, int64_t i) {
    group_job *g = ctx;
    stat_job *j = &g->j;
    j->a[i] = j->b[i] = 0;
    for (int64_t k = snd_cut_begin(&j->cut, i); k < snd_cut_end(&j->cut, i); k++) {
        double cosine, pearson;
        pair_cosines(g->threads, j, snd_at(j->x, k * g->step * j->D, j->size), g->rows, g->ld, &cosine, &pearson);
        j->a[i] += cosine;
        j->b[i] += pearson;
    }
}

static void group_cosines(int th, group_job *g, double *cosine, double *pearson) {
    const bool large = g->rows * g->j.D >= 4 * 32768 && g->groups < MANY;
    g->threads = large ? th : 1;
    g->j.cut = snd_cut_rows(g->groups, g->rows * g->j.D);
    snd_parallel(large ? 1 : th, g->j.cut.tasks, group_cosines_task, g);
    *cosine = snd_tree_sum(g->j.a, g->j.cut.tasks) / (double)g->groups;
    *pearson = snd_tree_sum(g->j.b, g->j.cut.tasks) / (double)g->groups;
}

static int64_t column_blocks(int64_t D) {
    return (D + SND_COLS - 1) / SND_COLS;
}

static void split_task(void *ctx, int64_t i) {
    group_job *g = ctx;
    stat_job *j = &g->j;
    const int64_t blocks = column_blocks(j->D);
    j->a[i] = j->b[i] = 0;
    for (int64_t k = snd_cut_begin(&j->cut, i); k < snd_cut_end(&j->cut, i); k++) {
        const int64_t c = k % blocks * SND_COLS;
        double mean_sq;
        j->a[i] += j->bvar(g->rows, j->D, c, c + SND_COLS < j->D ? c + SND_COLS : j->D,
                           snd_at(j->x, k / blocks * g->step * j->D, j->size), &mean_sq);
        j->b[i] += mean_sq;
    }
}

void snd_k_tokens(int th, snd_dtype t, int64_t B, int64_t T, int64_t D, const void *x, int what, snd_ktokens *out) {
    *out = (snd_ktokens){NAN, NAN, NAN, NAN, NAN, NAN};
    if (B <= 0 || T <= 0 || D <= 0) return;
    group_job g = {.j = {.D = D,
                         .size = snd_k_size(t),
                         .x = x,
                         .bvar = SND_PICK(bvar, t),
                         .norms = SND_PICK(row_norms, t),
                         .unit = SND_PICK(unit_cols, t)}};
    g.groups = T, g.step = 1, g.rows = B, g.ld = T * D;
    if (what & SND_KT_COS) group_cosines(th, &g, &out->cos, &out->pearson);
    g.groups = B, g.step = T, g.rows = T, g.ld = D;
    if (what & SND_KT_TOKCOS) group_cosines(th, &g, &out->tokcos, &out->tokpearson);
    if (!(what & SND_KT_SPLIT)) return;
    g.j.cut = snd_cut_rows(B * column_blocks(D), T * SND_COLS);
    snd_parallel(th, g.j.cut.tasks, split_task, &g);
    out->dev_sq = snd_tree_sum(g.j.a, g.j.cut.tasks) / (double)(B * D);
    out->mean_sq = snd_tree_sum(g.j.b, g.j.cut.tasks) / (double)(B * D);
}

// ---- cosines of corresponding rows ---------------------------------------------------------------------------------

static void rowcos_task(void *ctx, int64_t i) {
    stat_job *j = ctx;
    const int64_t r0 = snd_cut_begin(&j->cut, i), at = r0 * j->D;
    j->rowcos(snd_cut_end(&j->cut, i) - r0, j->D, snd_at(j->x, at, j->size), snd_at(j->y, at, j->size), &j->a[i],
              &j->b[i]);
}

void snd_k_rowcos(int th, snd_dtype t, int64_t R, int64_t D, const void *x, const void *y, double *cos, double *ratio) {
    *cos = *ratio = NAN;
    if (R <= 0 || D <= 0) return;
    stat_job j = {.R = R,
                  .D = D,
                  .cut = snd_cut_rows(R, D),
                  .size = snd_k_size(t),
                  .x = x,
                  .y = y,
                  .rowcos = SND_PICK(rowcos, t)};
    snd_parallel(th, j.cut.tasks, rowcos_task, &j);
    *cos = snd_tree_sum(j.a, j.cut.tasks) / (double)R;
    *ratio = snd_tree_sum(j.b, j.cut.tasks) / (double)R;
}

// ---- underflow -----------------------------------------------------------------------------------------------------

static void below_task(void *ctx, int64_t i) {
    stat_job *j = ctx;
    const int64_t i0 = snd_cut_begin(&j->cut, i);
    j->a[i] = (double)j->below(snd_cut_end(&j->cut, i) - i0, snd_at(j->x, i0, j->size), j->limit);
}

double snd_k_underflow_share(int th, snd_dtype t, int64_t n, const void *x, int e, snd_dtype target) {
    if (n <= 0) return 0;
    // half of the smallest subnormal (2^-24 and 2^-133) rounds to even, that is to zero
    const int log2_limit = target == SND_F16 ? -25 : -134;
    stat_job j = {.cut = snd_cut_make(n, 32768, 64),
                  .size = snd_k_size(t),
                  .x = x,
                  .below = SND_PICK(count_below, t),
                  .limit = ldexp(1.0, log2_limit - e)};
    snd_parallel(th, j.cut.tasks, below_task, &j);
    return snd_tree_sum(j.a, j.cut.tasks) / (double)n;
}
