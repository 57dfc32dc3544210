// Batch norm: every feature over all rows, biased variance; and its backward. At evaluation it is made of other ops.
//   x: [.., d] as R rows; g, b, running mean and variance: [d] or absent
//   y = (x - m) r (g + gadd) + b;  m = mean over rows, r = 1/sqrt(var + eps)
//   new mean = (1 - p) mean + p m, new variance likewise with the unbiased one (both true values)
// in: x, g, b, running mean, running variance.  out: y, r, m (f64, of the buffer) and, with running averages, those.
// r and m share one output of [2 d]: r first.  f[0] = eps, f[1] = gadd, f[2] = p.  Exponents as in norm.c.
// i[2] = 1, made by fusion: y is the relu of that, and the last output its bits (relu.c), which the backward pass reads.
#include "ops/ops_impl.h"

#include <math.h>

enum { DX = 1, DG = 2, DB = 4 };

static sonde_status shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    static const char *const what[] = {"input", "gain", "bias", "running mean", "running variance"};
    char a[160], b[160];
    const snd_shape x = snd_shape_of(g, n->in[0]);
    int64_t R, D;
    snd_rows(x, &R, &D);
    for (int k = 1; k < n->n_in; k++) {
        if (!n->in[k]) continue;
        const snd_shape s = snd_shape_of(g, n->in[k]);
        SND_FAIL_IF(s.nd != 1 || s.dim[0] != D, SONDE_ESHAPE, "%s of shape %s does not fit input of shape %s", what[k],
                    snd_shape_text(s, a), snd_shape_text(x, b));
    }
    SND_FAIL_IF(R < 2, SONDE_ESHAPE, "batch norm of shape %s has one row, needs at least 2", snd_shape_text(x, a));
    SND_FAIL_IF((n->in[3] == 0) != (n->in[4] == 0), SONDE_EINTERNAL, "running averages come in pairs");
    out[0] = x;
    out[1] = SND_SHAPE(2 * D);
    dtype[1] = SND_F64;
    out[2] = out[3] = SND_SHAPE(D);
    n->n_out = n->in[3] ? 4 : 2; // one more with a relu: fusion knows
    return SONDE_OK;
}

static uint64_t *bits_of(const snd_run *r) {
    return r->n->attr.i[2] ? snd_out(r, r->n->n_out - 1)->p : NULL;
}

static size_t scratch(const snd_graph *g, const snd_node *n) {
    int64_t R, D;
    snd_rows(snd_shape_of(g, n->in[0]), &R, &D);
    return 3 * (size_t)D * sizeof(double);
}

static void update_running(const snd_run *r, int64_t D, const double *m, const double *var, double *tmp) {
    const double p = r->n->attr.f[2];
    const int64_t e = snd_in(r, 0)->e;
    for (int k = 0; k < 2; k++) {
        const snd_rv *old = snd_in(r, 3 + k);
        for (int64_t j = 0; j < D; j++) {
            const double batch = k == 0 ? ldexp(m[j], (int)e) : ldexp(var[j], (int)snd_clamp_e(2 * e));
            tmp[j] = (1 - p) * ldexp(snd_load(r->t, old->p, j), old->e) + p * batch;
        }
        snd_out_store(r, 2 + k, tmp, D);
    }
}

static void run_linear_limit(const snd_run *r, int64_t R, int64_t D, const void *g, const void *b) {
    const snd_attr *a = &r->n->attr;
    const snd_rv *x = snd_in(r, 0);
    double *rstd = snd_out(r, 1)->p, *m = rstd + D;
    const bool biased = b && snd_k_absmax(1, r->t, D, b) != 0;
    const double slope = 1 / sqrt(a->f[0]), s = biased ? slope * snd_pow2(x->e) : slope;
    for (int64_t i = 0; i < R * D; i++) {
        const int64_t j = i % D;
        const double gain = g ? snd_load(r->t, g, j) + a->f[1] : 1, shift = biased ? snd_load(r->t, b, j) : 0;
        snd_store(r->t, snd_out(r, 0)->p, i, (snd_load(r->t, x->p, i) - m[j]) * s * gain + shift);
    }
    for (int64_t j = 0; j < D; j++) rstd[j] = isnan(rstd[j]) ? NAN : slope;
    void *y = snd_out(r, 0)->p;
    const double amax = bits_of(r) ? snd_k_relu(r->threads, r->t, R * D, y, y, bits_of(r)) : -1;
    snd_out_done(r, 0, biased ? 0 : x->e, amax);
}

static void run(snd_run *r) {
    const snd_attr *a = &r->n->attr;
    int64_t R, D;
    snd_rows(snd_in_shape(r, 0), &R, &D);
    const snd_rv *x = snd_in(r, 0);
    double *var = r->scratch, *rstd = snd_out(r, 1)->p;
    const void *g = r->n->in[1] ? snd_in_plain(r, 1, var + D) : NULL;
    const void *b = r->n->in[2] ? snd_in_plain(r, 2, var + 2 * D) : NULL;
    const double eps = snd_eps_for(a->f[0], 2, x->e);
    const bool limit = snd_eps_rules(r->t, a->f[0], 2, x->e);
    void *y = limit ? NULL : snd_out(r, 0)->p;
    const double amax =
        snd_k_batch_fwd(r->threads, r->t, R, D, eps, a->f[1], x->p, g, b, y, rstd + D, rstd, var, bits_of(r));
    if (limit)
        run_linear_limit(r, R, D, g, b);
    else
        snd_out_done(r, 0, 0, amax);
    if (r->n->in[3]) update_running(r, D, rstd + D, var, var + D);
}

static void grad(snd_graph *g, const snd_node *n, const snd_id *dout, const bool *need, snd_id *din) {
    if (!dout[0]) return;
    snd_attr a = n->attr;
    a.i[1] = (need[0] ? DX : 0) | (need[1] ? DG : 0) | (need[2] ? DB : 0);
    if (!a.i[1]) return;
    snd_id out[SND_MAX_OUT];
    const snd_id in[] = {dout[0], n->in[0], n->in[1], n->out[1], n->out[n->n_out - 1]};
    snd_g_op(g, SND_OP_BATCHNORM_BWD, in, n->attr.i[2] ? 5 : 4, &a, out);
    int k = 0;
    for (int j = 0; j < 3; j++) din[j] = need[j] ? out[k++] : 0;
}

static const snd_op_case cases[] = {
    {.label = "gain and bias",
     .n_in = 5,
     .in = {{2, {5, 4}}, {1, {4}}, {1, {4}}, {1, {4}}, {1, {4}}},
     .absent = 24,
     .attr = {.f = {1e-2, 0, 0.1}}},
    {.label = "gain 1 + w",
     .n_in = 5,
     .in = {{3, {2, 3, 4}}, {1, {4}}, {1, {4}}, {1, {4}}, {1, {4}}},
     .absent = 24,
     .attr = {.f = {1e-5, 1, 0.1}}},
    {.label = "bare",
     .n_in = 5,
     .in = {{2, {5, 4}}, {1, {4}}, {1, {4}}, {1, {4}}, {1, {4}}},
     .absent = 30,
     .attr = {.f = {1e-5, 0, 0.1}}},
};

const snd_op_info snd_op_batchnorm = {.name = "batchnorm",
                                      .cheap = true,
                                      .exact = 1u << 2 | 1u << 3,
                                      .shape = shape,
                                      .run = run,
                                      .grad = grad,
                                      .scratch = scratch,
                                      .cost = snd_cost_some,
                                      SND_CASES(cases)};

snd_id snd_g_batchnorm(snd_graph *g, snd_id x, snd_id gain, snd_id bias, double eps, bool plus1, snd_id running_mean,
                       snd_id running_var, double momentum, snd_id *new_mean, snd_id *new_var) {
    if (new_mean) *new_mean = 0;
    if (new_var) *new_var = 0;
    if (!x) return 0;
    const bool wanted = new_mean && new_var;
    const snd_attr a = {.f = {eps, plus1, momentum}};
    const snd_id in[] = {x, gain, bias, wanted ? running_mean : 0, wanted ? running_var : 0};
    snd_id out[SND_MAX_OUT];
    snd_g_op(g, SND_OP_BATCHNORM, in, 5, &a, out);
    if (new_mean) *new_mean = out[2];
    if (new_var) *new_var = out[3];
    return out[0];
}

snd_id snd_g_batchnorm_eval(snd_graph *g, snd_id x, snd_id gain, snd_id bias, double eps, bool plus1,
                            snd_id running_mean, snd_id running_var) {
    const snd_id sd = snd_g_unary(g, SND_KFN_SQRT, snd_g_affine(g, 1, running_var, eps));
    snd_id y = snd_g_div(g, snd_g_sub(g, x, running_mean), sd);
    if (gain) y = snd_g_mul(g, y, plus1 ? snd_g_affine(g, 1, gain, 1) : gain);
    return bias ? snd_g_add(g, y, bias) : y;
}

// ---- backward: in dy, x, g, (r, m) and the bits of a relu; out the wanted ones of dx, dg, db -----------------------------------------------

static sonde_status bwd_shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    (void)dtype;
    int64_t R, D;
    snd_rows(snd_shape_of(g, n->in[1]), &R, &D);
    int k = 0;
    if (n->attr.i[1] & DX) out[k++] = snd_shape_of(g, n->in[1]);
    if (n->attr.i[1] & DG) out[k++] = SND_SHAPE(D);
    if (n->attr.i[1] & DB) out[k++] = SND_SHAPE(D);
    n->n_out = k;
    return SONDE_OK;
}

static const uint64_t *bits_read(const snd_run *r) {
    return r->n->n_in > 4 ? snd_in(r, 4)->p : NULL;
}

// Element i of dy behind the relu, where there is one.
static double dy_at(const snd_run *r, int64_t i) {
    const uint64_t *above = bits_read(r);
    return above && !(above[i / 64] >> i % 64 & 1) ? 0 : snd_load(r->t, snd_in(r, 0)->p, i);
}

// Where eps rules: dx = slope g (dy - mean over rows of dy);  dg = sum dy (x - m) slope.
static void bwd_linear_limit(const snd_run *r, int64_t R, int64_t D, const void *g, void *dx, void *dg, void *db) {
    const void *x = snd_in(r, 1)->p;
    const double *rstd = snd_in(r, 3)->p, *m = rstd + D;
    for (int64_t j = 0; j < D; j++) {
        double sum = 0, sum_x = 0;
        for (int64_t i = j; i < R * D; i += D) {
            sum += dy_at(r, i);
            sum_x += dy_at(r, i) * (snd_load(r->t, x, i) - m[j]);
        }
        if (dg) snd_store(r->t, dg, j, sum_x * rstd[j]);
        if (db) snd_store(r->t, db, j, sum);
        const double gain = g ? snd_load(r->t, g, j) + r->n->attr.f[1] : 1;
        for (int64_t i = j; dx && i < R * D; i += D)
            snd_store(r->t, dx, i, rstd[j] * gain * (dy_at(r, i) - sum / (double)R));
    }
}

static void bwd_run(snd_run *r) {
    const snd_attr *a = &r->n->attr;
    int64_t R, D;
    snd_rows(snd_in_shape(r, 1), &R, &D);
    const snd_rv *dy = snd_in(r, 0), *x = snd_in(r, 1);
    const double *rstd = snd_in(r, 3)->p;
    const void *g = r->n->in[2] ? snd_in_plain(r, 2, r->scratch) : NULL;
    int k = 0;
    const int kx = a->i[1] & DX ? k++ : -1, kg = a->i[1] & DG ? k++ : -1, kb = a->i[1] & DB ? k++ : -1;
    void *dx = kx >= 0 ? snd_out(r, kx)->p : NULL, *dg = kg >= 0 ? snd_out(r, kg)->p : NULL;
    void *db = kb >= 0 ? snd_out(r, kb)->p : NULL;
    const bool limit = snd_eps_rules(r->t, a->f[0], 2, x->e);
    const int64_t edy = dy->e, ex = x->e;
    const double eps = snd_eps_for(a->f[0], 2, ex);
    double amax = -1;
    if (limit)
        bwd_linear_limit(r, R, D, g, dx, dg, db);
    else
        amax = snd_k_batch_bwd(r->threads, r->t, R, D, eps, a->f[1], dy->p, x->p, g, rstd + D, rstd, bits_read(r), dx,
                               dg, db);
    if (dx) snd_out_done(r, kx, limit ? edy : edy - ex, amax);
    if (dg) snd_out_done(r, kg, limit ? edy + ex : edy, -1);
    if (db) snd_out_done(r, kb, edy, -1);
}

static size_t bwd_scratch(const snd_graph *g, const snd_node *n) {
    int64_t R, D;
    snd_rows(snd_shape_of(g, n->in[1]), &R, &D);
    return (size_t)D * sizeof(double);
}

// dx takes dy's place: element by element, after the sums.
static unsigned bwd_inplace(const snd_graph *g, const snd_node *n) {
    (void)g;
    return n->attr.i[1] & DX ? 1 : 0;
}

const snd_op_info snd_op_batchnorm_bwd = {.name = "batchnorm_bwd",
                                          .shape = bwd_shape,
                                          .run = bwd_run,
                                          .inplace = bwd_inplace,
                                          .scratch = bwd_scratch,
                                          .cost = snd_cost_some};
