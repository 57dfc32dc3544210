// Statistics of a value as an f64 vector (ops.h lists its entries): reading a value or a gradient is a node like any
// other, so it is planned, ordered early and costs nothing when nobody asks.
//   in: v and, for cos(v, w) and |v|/|w|, w.  i[0] = mask.  Rows are all dimensions but the last; of [B, T, d] they are
//   the tokens of B examples, of [B, H, W, d] the places of B images, which count as tokens.
// Entries are those of the buffer; the exponent stands beside them, so that squares beyond double range can be told.
#include "ops/ops_impl.h"

#include <math.h>
#include <string.h>

enum { RANK_ROWS = 1024 };

static sonde_status shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    char a[160], b[160];
    if (n->in[1]) {
        const snd_shape v = snd_shape_of(g, n->in[0]), w = snd_shape_of(g, n->in[1]);
        SND_FAIL_IF(!snd_shape_same(v, w), SONDE_ESHAPE, "values of shapes %s and %s are to be compared",
                    snd_shape_text(v, a), snd_shape_text(w, b));
    }
    for (int k = 0; k < 2; k++) {
        const snd_dtype t = n->in[k] ? snd_g_value(g, n->in[k])->dtype : snd_graph_dtype(g);
        SND_FAIL_IF(t != snd_graph_dtype(g), SONDE_ETYPE, "statistics of %s values in a graph of %s", snd_dtype_name(t),
                    snd_dtype_name(snd_graph_dtype(g)));
    }
    *out = SND_SHAPE(SND_ST_COUNT);
    dtype[0] = SND_F64;
    return SONDE_OK;
}

static int64_t rank_rows(int64_t R) {
    return R < RANK_ROWS ? R : RANK_ROWS;
}

// A parameter's plain statistics are taken in pieces: all of it need not be in memory.
static bool in_pieces(const snd_graph *g, const snd_node *n) {
    return n->attr.i[0] == 0 && !n->in[1] && snd_g_value(g, n->in[0])->role == SND_R_PARAM;
}

static unsigned pieces(const snd_graph *g, const snd_node *n) {
    return in_pieces(g, n) ? 1 : 0;
}

static size_t scratch(const snd_graph *g, const snd_node *n) {
    int64_t R, D;
    snd_rows(snd_shape_of(g, n->in[0]), &R, &D);
    if (in_pieces(g, n)) return snd_piece_bytes(snd_graph_dtype(g), R, D);
    if (!(n->attr.i[0] & SND_SM_RANK)) return 0;
    const int64_t m = rank_rows(R);
    return (size_t)(m * D + m * m + 4 * m + (R > m ? m * D : 0)) * sizeof(double);
}

// At most RANK_ROWS rows, evenly spaced.
static double effective_rank(const snd_run *r, int64_t R, int64_t D, const void *x) {
    const int64_t m = rank_rows(R);
    double *work = r->scratch;
    if (m == R) return snd_k_effective_rank(r->threads, r->t, R, D, x, work);
    char *rows = (char *)(work + m * D + m * m + 4 * m);
    const size_t bytes = (size_t)D * snd_dtype_size(r->t);
    for (int64_t i = 0; i < m; i++)
        memcpy(rows + (size_t)i * bytes, (const char *)x + (size_t)(i * R / m) * bytes, bytes);
    return snd_k_effective_rank(r->threads, r->t, m, D, rows, work);
}

// q less the mean of squared row means, row by row about the mean where the difference would cancel.
static double row_variance(const snd_run *r, const snd_kmoments *m, int64_t R, int64_t D, const void *x) {
    const double n = (double)R * (double)D, q = m->sumsq / n, var = q - m->sum_rowmean2 / (double)R;
    if (!(var < 1e-6 * q) || m->nonfinite) return var;
    double sum = 0;
    for (int64_t i = 0; i < R; i++) {
        const double shift = snd_load(r->t, x, i * D);
        double mean = 0;
        for (int64_t j = 0; j < D; j++) mean += snd_load(r->t, x, i * D + j) - shift;
        mean /= (double)D;
        for (int64_t j = 0; j < D; j++) {
            const double d = snd_load(r->t, x, i * D + j) - shift - mean;
            sum += d * d;
        }
    }
    return sum / n;
}

static void put_moments(double *s, const snd_kmoments *m, int64_t R, int64_t D, int mask) {
    const double n = (double)R * (double)D, q = m->sumsq / n;
    s[SND_ST_Q] = q;
    s[SND_ST_MEAN] = m->sum / n;
    s[SND_ST_ABSMAX] = m->absmax;
    s[SND_ST_AT] = (double)m->at;
    s[SND_ST_ABSMIN] = m->absmin;
    s[SND_ST_NONFINITE] = (double)m->nonfinite;
    if (mask & SND_SM_BVAR && R > 1) s[SND_ST_BVAR] = m->bvar;
    if (mask & SND_SM_COS) {
        s[SND_ST_COS] = m->cos;
        s[SND_ST_PEARSON] = m->pearson;
    }
    if (mask & SND_SM_KURT && q > 0) s[SND_ST_KURT] = m->sum4 / n / (q * q);
}

static double *clear(const snd_oprun *r) {
    double *s = snd_out(r, 0)->p;
    for (int i = 0; i < SND_ST_COUNT; i++) s[i] = NAN;
    return s;
}

void snd_stat_put(const snd_oprun *r, int64_t rows, int64_t cols, const snd_kmoments *m, int64_t e) {
    double *s = clear(r);
    put_moments(s, m, rows, cols, 0);
    s[SND_ST_EXP] = (double)snd_clamp_e(e);
    *snd_out(r, 0) = (snd_rv){.p = s, .e = 0, .amax = -1};
}

void snd_stat_of_pieces(const snd_oprun *r, int64_t rows, int64_t cols, snd_piece_fn *piece, int64_t e) {
    snd_kmoments m;
    snd_moments_of_pieces(r, rows, cols, piece, r->scratch, &m);
    snd_stat_put(r, rows, cols, &m, e);
}

static const void *param_piece(const snd_oprun *r, int64_t first, int64_t n, void *tmp) {
    int64_t R, D;
    snd_rows(snd_in_shape(r, 0), &R, &D);
    return snd_param_read(r, 0, first * D, n * D, tmp);
}

// What needs to know which rows are tokens of one example.
static void put_tokens(const snd_oprun *r, snd_shape shape, int mask, double *s) {
    const int what = (mask & SND_SM_COS ? SND_KT_COS : 0) | (mask & SND_SM_TOKCOS ? SND_KT_TOKCOS : 0) |
                     (mask & SND_SM_SPLIT ? SND_KT_SPLIT : 0);
    snd_ktokens k;
    const int64_t D = shape.dim[shape.nd - 1], T = snd_shape_size(shape) / (shape.dim[0] * D);
    snd_k_tokens(r->threads, r->t, shape.dim[0], T, D, snd_in(r, 0)->p, what, &k);
    s[SND_ST_COS] = k.cos;
    s[SND_ST_PEARSON] = k.pearson;
    s[SND_ST_TOKCOS] = k.tokcos;
    s[SND_ST_TOKPEARSON] = k.tokpearson;
    s[SND_ST_TOKMEAN] = k.mean_sq;
    s[SND_ST_TOKDEV] = k.dev_sq;
}

// Sums alone, in one pass. Numbers that are not finite are counted where there are any; finite ones of a buffer have squares
// that a double holds.
static void run_light(const snd_run *r, int64_t R, int64_t D, bool only_q) {
    const snd_rv *v = snd_in(r, 0);
    const double n = (double)R * (double)D;
    double *s = clear(r), sums[3] = {NAN, 0, NAN};
    snd_kmoments m = {0};
    if (only_q)
        sums[1] = snd_k_sumsq(r->threads, r->t, R * D, v->p);
    else
        snd_k_row_sums(r->threads, r->t, R, D, v->p, sums);
    if (!isfinite(sums[1])) snd_k_moments(r->threads, r->t, R, D, v->p, SND_KM_BASIC, &m);
    s[SND_ST_Q] = sums[1] / n;
    s[SND_ST_MEAN] = sums[0] / n;
    s[SND_ST_VAR] = sums[2] / n;
    s[SND_ST_NONFINITE] = (double)m.nonfinite;
    s[SND_ST_EXP] = v->e;
    *snd_out(r, 0) = (snd_rv){.p = s, .e = 0, .amax = -1};
}

static void run(snd_run *r) {
    int64_t R, D;
    snd_rows(snd_in_shape(r, 0), &R, &D);
    if (in_pieces(r->g, r->n)) {
        snd_stat_of_pieces(r, R, D, param_piece, snd_in(r, 0)->e);
        return;
    }
    const int mask = (int)r->n->attr.i[0];
    if (mask & (SND_SM_ONLY_Q | SND_SM_LIGHT)) {
        run_light(r, R, D, mask & SND_SM_ONLY_Q);
        return;
    }
    const snd_rv *v = snd_in(r, 0), *w = snd_in(r, 1);
    double *s = clear(r);
    const snd_shape shape = snd_in_shape(r, 0);
    const bool tokens = (shape.nd == 3 || shape.nd == 4) && R * D > 0;
    const int what = SND_KM_BASIC | (mask & SND_SM_BVAR ? SND_KM_BVAR : 0) |
                     (mask & SND_SM_COS && !tokens ? SND_KM_COS : 0) | (mask & SND_SM_KURT ? SND_KM_FOURTH : 0);
    snd_kmoments m;
    snd_k_moments(r->threads, r->t, R, D, v->p, what, &m);
    put_moments(s, &m, R, D, mask);
    if (tokens) put_tokens(r, shape, mask, s);
    s[SND_ST_VAR] = row_variance(r, &m, R, D, v->p);
    s[SND_ST_EXP] = v->e;
    if (w && mask & SND_SM_ROWCOS) {
        snd_k_rowcos(r->threads, r->t, R, D, v->p, w->p, &s[SND_ST_ROWCOS], &s[SND_ST_RATIO]);
        s[SND_ST_RATIO] = ldexp(s[SND_ST_RATIO], (int)snd_clamp_e((int64_t)v->e - w->e));
    }
    if (mask & SND_SM_RANK) s[SND_ST_RANK] = effective_rank(r, R, D, v->p);
    if (mask & SND_SM_UNDER) {
        s[SND_ST_UNDER_F16] = snd_k_underflow_share(r->threads, r->t, R * D, v->p, v->e, SND_F16);
        s[SND_ST_UNDER_BF16] = snd_k_underflow_share(r->threads, r->t, R * D, v->p, v->e, SND_BF16);
    }
    *snd_out(r, 0) = (snd_rv){.p = s, .e = 0, .amax = -1};
}

static void cost(const snd_graph *g, const snd_node *n, double *flops, double *bytes) {
    snd_cost_each(g, n, 0, flops, bytes);
    *flops = 6 * (double)snd_size_of(g, n->in[0]);
}

const snd_op_info snd_op_stat = {
    .name = "stat", .shape = shape, .run = run, .scratch = scratch, .pieces = pieces, .cost = cost};

snd_id snd_g_stat(snd_graph *g, snd_id v, snd_id w, int mask) {
    if (!v) return 0;
    const snd_attr a = {.i = {mask}};
    return snd_g_op(g, SND_OP_STAT, (snd_id[]){v, w}, 2, &a, NULL);
}
