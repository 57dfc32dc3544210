// Norms over the last dimension: layer, rms, unit (one op), its backward, and the fused residual add followed by one.
//   x: [.., d] as R rows; g, b: [d] or absent;  y: like x;  r, m: [R] f64, of the buffer, kept for backward
//   y = (x - m) r (g + gadd) + b      (layer: m = mean; rms, unit: m = 0)
// in: x, g, b.  out: y, r, m (m for layer only).  f[0] = eps, f[1] = gain0 (unit), f[2] = gadd; i[0] = kind.
// Exponents: the norm of X*2^e with eps is the norm of X with eps*2^-2e (unit's clamp: 2^-e), so y has exponent 0 and
// dx that of dy less that of x. When eps rules (a stream that has all but vanished) y is linear in x and keeps e.
#include "ops/ops_impl.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

enum { DX = 1, DG = 2, DB = 4 }; // i[1] of the backward op: which outputs, in this order

static snd_knorm kind_of(const snd_attr *a) {
    return (snd_knorm)a->i[0];
}
static int power_of(const snd_attr *a) {
    return kind_of(a) == SND_KNORM_UNIT ? 1 : 2;
}

static sonde_status norm_shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    char a[160], b[160];
    const snd_shape x = snd_shape_of(g, n->in[0]);
    int64_t R, D;
    snd_rows(x, &R, &D);
    SND_FAIL_IF(x.nd < 1, SONDE_ESHAPE, "a scalar has no features to normalise");
    for (int k = 1; k < n->n_in; k++) {
        if (!n->in[k]) continue;
        const snd_shape s = snd_shape_of(g, n->in[k]);
        SND_FAIL_IF(s.nd != 1 || s.dim[0] != D, SONDE_ESHAPE, "%s of shape %s does not fit input of shape %s",
                    k == 1 ? "gain" : "bias", snd_shape_text(s, a), snd_shape_text(x, b));
    }
    SND_FAIL_IF(!(n->attr.f[0] >= 0), SONDE_ERANGE, "eps is negative or not a number, must be at least 0");
    n->n_out = kind_of(&n->attr) == SND_KNORM_LAYER ? 3 : 2;
    out[0] = x;
    out[1] = out[2] = SND_SHAPE(R);
    dtype[1] = dtype[2] = SND_F64;
    return SONDE_OK;
}

// y keeps x's exponent unless a bias is there to join at exponent 0.
static void run_linear_limit(const snd_run *r, const snd_rv *x, int64_t R, int64_t D, const void *g, const void *b,
                             const double *m, double *rstd, int k_out) {
    const snd_attr *a = &r->n->attr;
    const bool unit = kind_of(a) == SND_KNORM_UNIT;
    const double slope = unit ? a->f[1] / a->f[0] : 1 / sqrt(a->f[0]);
    const bool biased = b && snd_k_absmax(1, r->t, D, b) != 0;
    const double s = biased ? slope * snd_pow2(x->e) : slope;
    void *y = snd_out(r, k_out)->p;
    for (int64_t i = 0; i < R; i++) {
        const double bad = isnan(rstd[i]) ? NAN : 1; // a row that is not finite stays one
        rstd[i] = slope * bad;
        for (int64_t j = 0; j < D; j++) {
            const double gain = g ? snd_load(r->t, g, j) + a->f[2] : 1, shift = biased ? snd_load(r->t, b, j) : 0;
            const double c = (snd_load(r->t, x->p, i * D + j) - (m ? m[i] : 0)) * (s * bad);
            snd_store(r->t, y, i * D + j, c * gain + shift);
        }
    }
    snd_out_done(r, k_out, biased ? 0 : x->e, -1);
}

static snd_normspec spec_of(const snd_attr *a, int64_t D, double eps, const void *g, const void *b) {
    return (snd_normspec){.kind = kind_of(a), .D = D, .eps = eps, .gain0 = a->f[1], .gadd = a->f[2], .g = g, .b = b};
}

// Far below a row beyond 2^200 (f64 only) ordinary rows feel an eps that no double holds at the buffer's exponent: every
// row under an exponent of its own, through a copy.
static bool rows_apart(double eps, int power, int64_t e) {
    return e > 0 && eps > 0 && ilogb(eps) - power * e < -1000;
}

static void run_rows_apart(const snd_run *r, const snd_rv *x, int64_t R, int64_t D, const void *g, const void *b,
                           void *y, double *m, double *rstd, void *row) {
    const snd_attr *a = &r->n->attr;
    const size_t bytes = (size_t)D * snd_dtype_size(r->t);
    for (int64_t i = 0; i < R; i++) {
        const char *src = (const char *)x->p + (size_t)i * bytes;
        const double amax = snd_k_absmax(1, r->t, D, src);
        const int k = amax > 0 && isfinite(amax) ? -ilogb(amax) : 0;
        double mean = 0;
        snd_scale_into(r, src, D, k, row);
        const double eps = snd_eps_for(a->f[0], power_of(a), x->e - k);
        const snd_normspec one = spec_of(a, D, eps, g, b);
        snd_k_norm_fwd(1, r->t, &one, 1, row, (char *)y + (size_t)i * bytes, m ? &mean : NULL, &rstd[i]);
        const bool constant = m && rstd[i] == 1 / sqrt(eps); // then eps is all there is, however small
        const double lifted = constant ? ldexp(1 / sqrt(a->f[0]), x->e) : ldexp(rstd[i], k);
        rstd[i] = lifted > DBL_MAX ? DBL_MAX : lifted;
        if (m) m[i] = ldexp(mean, -k);
    }
}

// Shared with addnorm, whose norm reads an output. Scratch: gain and bias with their exponents folded in, a row.
static void norm_of(const snd_run *r, const snd_rv *x, int64_t R, int64_t D, int k_gain, int k_out) {
    const snd_attr *a = &r->n->attr;
    char *tmp = r->scratch;
    const void *g = r->n->in[k_gain] ? snd_in_plain(r, k_gain, tmp) : NULL;
    const void *b = r->n->in[k_gain + 1] ? snd_in_plain(r, k_gain + 1, tmp + (size_t)D * snd_dtype_size(r->t)) : NULL;
    double *rstd = snd_out(r, k_out + 1)->p, *m = kind_of(a) == SND_KNORM_LAYER ? snd_out(r, k_out + 2)->p : NULL;
    const double eps = snd_eps_for(a->f[0], power_of(a), x->e);
    void *y = snd_out(r, k_out)->p;
    double amax = -1;
    if (rows_apart(a->f[0], power_of(a), x->e)) {
        run_rows_apart(r, x, R, D, g, b, y, m, rstd, tmp + 2 * (size_t)D * snd_dtype_size(r->t));
    } else {
        const snd_normspec s = spec_of(a, D, eps, g, b);
        amax = snd_k_norm_fwd(r->threads, r->t, &s, R, x->p, y, m, rstd);
    }
    if (snd_eps_rules(r->t, a->f[0], power_of(a), x->e))
        run_linear_limit(r, x, R, D, g, b, m, rstd, k_out);
    else
        snd_out_done(r, k_out, 0, amax);
}

static void norm_run(snd_run *r) {
    int64_t R, D;
    snd_rows(snd_in_shape(r, 0), &R, &D);
    norm_of(r, snd_in(r, 0), R, D, 1, 0);
}

static size_t norm_scratch(const snd_graph *g, const snd_node *n) {
    int64_t R, D;
    snd_rows(snd_shape_of(g, n->in[0]), &R, &D);
    return 3 * (size_t)D * snd_dtype_size(snd_graph_dtype(g));
}

// Emits the backward node for input x, gain and bias; d[0..2] are their gradients (0: not wanted).
static void emit_backward(snd_graph *g, const snd_attr *attr, snd_id dy, snd_id x, snd_id gain, snd_id r, snd_id m,
                          bool want_x, bool want_g, bool want_b, snd_id d[3]) {
    snd_attr a = *attr;
    a.i[1] = (want_x ? DX : 0) | (want_g ? DG : 0) | (want_b ? DB : 0);
    snd_id out[SND_MAX_OUT];
    d[0] = d[1] = d[2] = 0;
    if (!a.i[1]) return;
    snd_g_op(g, SND_OP_NORM_BWD, (snd_id[]){dy, x, gain, r, m}, 5, &a, out);
    int k = 0;
    if (want_x) d[0] = out[k++];
    if (want_g) d[1] = out[k++];
    if (want_b) d[2] = out[k++];
}

static void norm_grad(snd_graph *g, const snd_node *n, const snd_id *dout, const bool *need, snd_id *din) {
    if (!dout[0]) return;
    snd_id d[3];
    const snd_id m = n->n_out > 2 ? n->out[2] : 0;
    emit_backward(g, &n->attr, dout[0], n->in[0], n->in[1], n->out[1], m, need[0], need[1], need[2], d);
    memcpy(din, d, sizeof d);
}

#define NORM_CASE(l, k, gain0, gadd, ...)                                                                              \
    {                                                                                                                  \
        .label = l, .n_in = 3, .in = {__VA_ARGS__, {1, {6}}, {1, {6}}}, .attr = {.f = {1e-2, gain0, gadd}, .i = {k} }  \
    }
static const snd_op_case norm_cases[] = {
    NORM_CASE("layer", SND_KNORM_LAYER, 0, 0, {2, {4, 6}}),
    NORM_CASE("layer with gain 1 + w", SND_KNORM_LAYER, 0, 1, {3, {2, 3, 6}}),
    NORM_CASE("rms", SND_KNORM_RMS, 0, 0, {2, {4, 6}}),
    NORM_CASE("rms of a vector", SND_KNORM_RMS, 0, 0, {1, {6}}),
    {.label = "layer without bias",
     .n_in = 3,
     .in = {{2, {4, 6}}, {1, {6}}, {1, {6}}},
     .absent = 4,
     .attr = {.f = {1e-5}, .i = {SND_KNORM_LAYER}}},
    {.label = "rms alone",
     .n_in = 3,
     .in = {{2, {4, 6}}, {1, {6}}, {1, {6}}},
     .absent = 6,
     .attr = {.f = {1e-5}, .i = {SND_KNORM_RMS}}},
    {.label = "unit",
     .n_in = 3,
     .in = {{2, {4, 6}}, {1, {6}}, {1, {6}}},
     .absent = 6,
     .attr = {.f = {1e-12, 1.5}, .i = {SND_KNORM_UNIT}}},
    {.label = "unit, clamped",
     .n_in = 3,
     .in = {{2, {4, 6}}, {1, {6}}, {1, {6}}},
     .absent = 6,
     .attr = {.f = {100, 1.5}, .i = {SND_KNORM_UNIT}}},
};

const snd_op_info snd_op_norm = {.name = "norm",
                                 .cheap = true,
                                 .shape = norm_shape,
                                 .run = norm_run,
                                 .grad = norm_grad,
                                 .scratch = norm_scratch,
                                 .cost = snd_cost_some,
                                 SND_CASES(norm_cases)};

static snd_id norm(snd_graph *g, snd_knorm k, snd_id x, snd_id gain, snd_id bias, double eps, double gain0,
                   double gadd) {
    if (!x) return 0;
    const snd_attr a = {.f = {eps, gain0, gadd}, .i = {k}};
    return snd_g_op(g, SND_OP_NORM, (snd_id[]){x, gain, bias}, 3, &a, NULL);
}

snd_id snd_g_layernorm(snd_graph *g, snd_id x, snd_id gain, snd_id bias, double eps, bool plus1) {
    return norm(g, SND_KNORM_LAYER, x, gain, bias, eps, 0, plus1);
}
snd_id snd_g_rmsnorm(snd_graph *g, snd_id x, snd_id gain, snd_id bias, double eps, bool plus1) {
    return norm(g, SND_KNORM_RMS, x, gain, bias, eps, 0, plus1);
}
snd_id snd_g_unit(snd_graph *g, snd_id x, double gain0) {
    return norm(g, SND_KNORM_UNIT, x, 0, 0, 1e-12, gain0, 0);
}

// ---- backward: in dy, x, g, r, m and, where fused, what is added to dx; out the wanted ones of dx, dg, db -------------------------------------------------

static sonde_status bwd_shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    (void)dtype;
    int64_t R, D;
    snd_rows(snd_shape_of(g, n->in[1]), &R, &D);
    const int64_t want = n->attr.i[1];
    int k = 0;
    if (want & DX) out[k++] = snd_shape_of(g, n->in[1]);
    if (want & DG) out[k++] = SND_SHAPE(D);
    if (want & DB) out[k++] = SND_SHAPE(D);
    n->n_out = k;
    return SONDE_OK;
}

// Where eps rules: dx = slope (u - mean u), u = (g + gadd) dy;  dg = sum dy (x - m) slope.
static void bwd_linear_limit(const snd_run *r, int64_t R, int64_t D, const void *g, void *dx, void *dg) {
    const snd_attr *a = &r->n->attr;
    const void *dy = snd_in(r, 0)->p, *x = snd_in(r, 1)->p;
    const double *rstd = snd_in(r, 3)->p, *m = r->n->in[4] ? snd_in(r, 4)->p : NULL;
    for (int64_t j = 0; dg && j < D; j++) {
        double sum = 0;
        for (int64_t i = 0; i < R; i++)
            sum += snd_load(r->t, dy, i * D + j) * (snd_load(r->t, x, i * D + j) - (m ? m[i] : 0)) * rstd[i];
        snd_store(r->t, dg, j, sum);
    }
    for (int64_t i = 0; dx && i < R; i++) {
        double mean = 0;
        for (int64_t j = 0; m && j < D; j++)
            mean += snd_load(r->t, dy, i * D + j) * (g ? snd_load(r->t, g, j) + a->f[2] : 1) / (double)D;
        for (int64_t j = 0; j < D; j++) {
            const double u = snd_load(r->t, dy, i * D + j) * (g ? snd_load(r->t, g, j) + a->f[2] : 1);
            snd_store(r->t, dx, i * D + j, rstd[i] * (u - mean));
        }
    }
}

// The gradient that joins dx, when the pair is fused: dx += plus.
static void bwd_join(const snd_run *r, int k) {
    double a = 1, b = 1;
    snd_rv *dx = snd_out(r, k), *plus = snd_in(r, 5);
    const int64_t n = snd_shape_size(snd_out_shape(r, k)), dim[3] = {1, 1, n}, step[3] = {0, 0, 1};
    const int64_t e = snd_align(r, dx, n, plus, n, &a, &b);
    const double amax = snd_k_binary(r->threads, r->t, SND_KBIN_ADD, dim, a, dx->p, step, b, plus->p, step, dx->p);
    snd_out_done(r, k, e, amax);
}

static void bwd_run(snd_run *r) {
    const snd_attr *a = &r->n->attr;
    int64_t R, D;
    snd_rows(snd_in_shape(r, 1), &R, &D);
    const snd_rv *dy = snd_in(r, 0), *x = snd_in(r, 1), *plus = r->n->n_in > 5 ? snd_in(r, 5) : NULL;
    char *tmp = (char *)r->scratch + snd_k_norm_bwd_scratch(R, D); // behind the sums over columns: the gain
    const void *g = r->n->in[2] ? snd_in_plain(r, 2, tmp) : NULL;
    const double *rstd = snd_in(r, 3)->p, *m = r->n->in[4] ? snd_in(r, 4)->p : NULL;
    const int64_t want = a->i[1];
    int k = 0;
    const int kx = want & DX ? k++ : -1, kg = want & DG ? k++ : -1, kb = want & DB ? k++ : -1;
    void *dx = kx >= 0 ? snd_out(r, kx)->p : NULL, *dg = kg >= 0 ? snd_out(r, kg)->p : NULL;
    void *db = kb >= 0 ? snd_out(r, kb)->p : NULL;
    const bool limit = snd_eps_rules(r->t, a->f[0], power_of(a), x->e);
    const int64_t edy = dy->e, ex = x->e, e = limit ? edy : edy - ex; // dx may lie on dy
    const bool joined = plus && !limit && plus->e == e;
    double amax = -1;
    if (!limit) {
        const snd_normspec s = spec_of(a, D, snd_eps_for(a->f[0], power_of(a), ex), g, NULL);
        amax = snd_k_norm_bwd(r->threads, r->t, &s, R, dy->p, x->p, m, rstd, joined ? plus->p : NULL, dx, dg, db,
                              r->scratch);
    } else {
        if (db) snd_k_sum_to(r->threads, r->t, (int64_t[]){1, R, D}, dy->p, 1, (int64_t[]){0, 0, 1}, D, db);
        bwd_linear_limit(r, R, D, g, dx, dg);
    }
    if (dx) snd_out_done(r, kx, e, amax);
    if (dg) snd_out_done(r, kg, limit ? edy + ex : edy, -1);
    if (db) snd_out_done(r, kb, edy, -1);
    if (plus && !joined) bwd_join(r, kx);
}

static unsigned bwd_inplace(const snd_graph *g, const snd_node *n) {
    (void)g;
    return n->attr.i[1] & DX ? 1 : 0;
}

static size_t bwd_scratch(const snd_graph *g, const snd_node *n) {
    int64_t R, D;
    snd_rows(snd_shape_of(g, n->in[1]), &R, &D);
    return snd_k_norm_bwd_scratch(R, D) + (size_t)D * snd_dtype_size(snd_graph_dtype(g));
}

const snd_op_info snd_op_norm_bwd = {.name = "norm_bwd",
                                     .shape = bwd_shape,
                                     .run = bwd_run,
                                     .inplace = bwd_inplace,
                                     .scratch = bwd_scratch,
                                     .cost = snd_cost_some};

// ---- addnorm: s = a x + b y, z = norm(s).  in: x, y, g, b.  out: s, z, r, m.  f[3] = a, f[4] = b --------------------

static sonde_status addnorm_shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    snd_node add = {.in = n->in, .n_in = 2};
    SND_TRY(snd_bcast_shape(g, &add, &out[0], dtype));
    int64_t R, D;
    snd_rows(out[0], &R, &D);
    n->n_out = kind_of(&n->attr) == SND_KNORM_LAYER ? 4 : 3;
    out[1] = out[0];
    out[2] = out[3] = SND_SHAPE(R);
    dtype[2] = dtype[3] = SND_F64;
    return SONDE_OK;
}

// Rows of the sum are normalised while they are at hand; false where the operands differ in shape, or where the sum is
// one of those whose norm takes more than the plain loop. Then the sum alone stands, if `summed`.
static bool addnorm_at_once(const snd_run *r, int64_t R, int64_t D, double a, double b, int64_t e, bool *summed) {
    const snd_attr *attr = &r->n->attr;
    *summed = false;
    if (!snd_shape_same(snd_in_shape(r, 0), snd_in_shape(r, 1)) || rows_apart(attr->f[0], power_of(attr), e) ||
        snd_eps_rules(r->t, attr->f[0], power_of(attr), e))
        return false;
    char *tmp = r->scratch;
    const void *g = r->n->in[2] ? snd_in_plain(r, 2, tmp) : NULL;
    const void *bias = r->n->in[3] ? snd_in_plain(r, 3, tmp + (size_t)D * snd_dtype_size(r->t)) : NULL;
    const snd_normspec s = spec_of(attr, D, snd_eps_for(attr->f[0], power_of(attr), e), g, bias);
    double *m = kind_of(attr) == SND_KNORM_LAYER ? snd_out(r, 3)->p : NULL, sum_amax;
    const double amax = snd_k_addnorm_fwd(r->threads, r->t, &s, R, a, snd_in(r, 0)->p, b, snd_in(r, 1)->p,
                                          snd_out(r, 0)->p, snd_out(r, 1)->p, m, snd_out(r, 2)->p, &sum_amax);
    snd_out_done(r, 0, e, sum_amax);
    *summed = true;
    if (snd_out(r, 0)->e != snd_clamp_e(e)) return false; // the norm shall be that of the sum as it is kept
    snd_out_done(r, 1, 0, amax);
    return true;
}

static void addnorm_run(snd_run *r) {
    double a = r->n->attr.f[3], b = r->n->attr.f[4];
    const snd_shape shape = snd_out_shape(r, 0);
    const int64_t e = snd_align(r, snd_in(r, 0), snd_shape_size(snd_in_shape(r, 0)), snd_in(r, 1),
                                snd_shape_size(snd_in_shape(r, 1)), &a, &b);
    int64_t R, D;
    bool summed;
    snd_rows(shape, &R, &D);
    if (addnorm_at_once(r, R, D, a, b, e, &summed)) return;
    if (!summed) {
        snd_bcast s = {0};
        const bool ok = snd_bcast_make(snd_in_shape(r, 0), snd_in_shape(r, 1), shape, &s);
        assert(ok);
        (void)ok;
        const double amax = snd_k_binary(r->threads, r->t, SND_KBIN_ADD, s.dim, a, snd_in(r, 0)->p, s.sx, b,
                                         snd_in(r, 1)->p, s.sy, snd_out(r, 0)->p);
        snd_out_done(r, 0, e, amax);
    }
    norm_of(r, snd_out(r, 0), R, D, 2, 1);
}

static void addnorm_grad(snd_graph *g, const snd_node *n, const snd_id *dout, const bool *need, snd_id *din) {
    snd_id d[3] = {0}, ds = dout[0];
    const bool through = need[0] || need[1];
    const snd_id m = n->n_out > 3 ? n->out[3] : 0;
    if (dout[1]) emit_backward(g, &n->attr, dout[1], n->out[0], n->in[2], n->out[2], m, through, need[2], need[3], d);
    din[2] = d[1];
    din[3] = d[2];
    if (d[0]) ds = ds ? snd_g_sum_values(g, ds, d[0]) : d[0];
    for (int k = 0; ds && k < 2; k++) {
        const snd_id part = need[k] ? snd_reduce_like(g, ds, n->in[k]) : 0;
        if (part) din[k] = n->attr.f[3 + k] == 1 ? part : snd_g_affine(g, n->attr.f[3 + k], part, 0);
    }
}

static size_t addnorm_scratch(const snd_graph *g, const snd_node *n) {
    int64_t R, D;
    snd_rows(snd_shape_of(g, n->out[0]), &R, &D);
    return 3 * (size_t)D * snd_dtype_size(snd_graph_dtype(g));
}

static const snd_op_case addnorm_cases[] = {
    {.label = "layer",
     .n_in = 4,
     .in = {{2, {4, 6}}, {2, {4, 6}}, {1, {6}}, {1, {6}}},
     .attr = {.f = {1e-2, 0, 0, 1, 1}, .i = {SND_KNORM_LAYER}}},
    {.label = "rms, weighted",
     .n_in = 4,
     .in = {{2, {4, 6}}, {2, {4, 6}}, {1, {6}}, {1, {6}}},
     .absent = 8,
     .attr = {.f = {1e-2, 0, 1, 0.7, -2}, .i = {SND_KNORM_RMS}}},
};

const snd_op_info snd_op_addnorm = {.name = "addnorm",
                                    .shape = addnorm_shape,
                                    .run = addnorm_run,
                                    .grad = addnorm_grad,
                                    .inplace = snd_bcast_inplace,
                                    .scratch = addnorm_scratch,
                                    .cost = snd_cost_some,
                                    SND_CASES(addnorm_cases)};
