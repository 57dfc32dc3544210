// y = f(x) elementwise; i[0] = the function (snd_kfn), any but relu, which is an op of its own. Backward dx = dy f'(x).
// Exponents: abs is homogeneous and keeps it; the others act on the true value, and where that would leave the
// type (f32: 2^72 and more) number by number in double, since small ones stand beside the large; gelu, silu, softplus are
// relu for the latter. gelu, silu, tanh, erf are linear near 0; sqrt halves the exponent, log adds to its result, exp
// makes its own.
#include "ops/ops_impl.h"

#include <float.h>
#include <math.h>

static snd_kfn fn_of(const snd_node *n) {
    return (snd_kfn)n->attr.i[0];
}

static bool homogeneous(snd_kfn f) {
    return f == SND_KFN_ABS;
}

static bool like_relu(snd_kfn f) {
    return f == SND_KFN_GELU || f == SND_KFN_GELU_TANH || f == SND_KFN_SILU || f == SND_KFN_SOFTPLUS;
}

// Slope at 0 of the functions that vanish there; 0 for the others.
static double slope_at_zero(snd_kfn f) {
    switch (f) {
    case SND_KFN_GELU:
    case SND_KFN_GELU_TANH:
    case SND_KFN_SILU: return 0.5;
    case SND_KFN_TANH: return 1;
    case SND_KFN_ERF: return 1.1283791670955126; // 2/sqrt(pi)
    default: return 0;
    }
}

// Beyond this exponent the true numbers need not exist in the type.
static int far_out(snd_dtype t) {
    return snd_safe_bits(t) + snd_mantissa(t);
}

static double factor_for(snd_dtype t, int64_t e) {
    const int64_t least = -2 * far_out(t); // as good as 0
    return snd_pow2(e < least ? least : e);
}

// The relu-like functions are relu to rounding where |x| is this large.
enum { LARGE = 1000 };

static void run_far(snd_oprun *r, snd_kfn f, int64_t n) {
    const snd_rv *x = snd_in(r, 0);
    void *y = snd_out(r, 0)->p;
    const int e = x->e, e_out = like_relu(f) ? e : 0;
    for (int64_t i = 0; i < n; i++) {
        const double b = snd_load(r->t, x->p, i), v = ldexp(b, e);
        if (e_out && fabs(v) > LARGE)
            snd_store(r->t, y, i, b > 0 ? b : 0);
        else
            snd_store(r->t, y, i, ldexp(snd_k_fn(f, v), -e_out));
    }
    snd_out_done(r, 0, e_out, -1);
}

// exp(x) = 2^k exp(x - k ln 2), with k from the largest x.
static void run_exp(snd_oprun *r, int64_t n) {
    const snd_rv *x = snd_in(r, 0);
    void *y = snd_out(r, 0)->p;
    const double s = snd_pow2(x->e), limit = r->t == SND_F64 ? 600 : 60;
    double top = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        const double v = snd_load(r->t, x->p, i);
        if (isfinite(v) && v > top) top = v;
    }
    top *= s;
    if (!isfinite(top) || fabs(top) < limit || fabs(top) > 1e8) {
        if (x->e > far_out(r->t))
            run_far(r, SND_KFN_EXP, n);
        else
            snd_out_done(r, 0, 0, snd_k_unary(r->threads, r->t, SND_KFN_EXP, n, factor_for(r->t, x->e), x->p, y));
        return;
    }
    const double k = floor(top / M_LN2);
    for (int64_t i = 0; i < n; i++) snd_store(r->t, y, i, exp(snd_load(r->t, x->p, i) * s - k * M_LN2));
    snd_out_done(r, 0, (int64_t)k, -1);
}

// log(x 2^e) = log x + e ln 2, which cancels where the product is near 1; so only for products that no double holds.
static void run_log(snd_oprun *r, int64_t n) {
    const snd_rv *x = snd_in(r, 0);
    for (int64_t i = 0; i < n; i++) {
        const double b = snd_load(r->t, x->p, i), v = ldexp(b, x->e);
        const bool held = isfinite(v) && fabs(v) > DBL_MIN;
        snd_store(r->t, snd_out(r, 0)->p, i, held ? log(v) : log(b) + x->e * M_LN2);
    }
    snd_out_done(r, 0, 0, -1);
}

static void run_scaled(snd_oprun *r, snd_kfn f, int64_t n) {
    const snd_rv *x = snd_in(r, 0);
    void *y = snd_out(r, 0)->p;
    const int64_t e = x->e;
    const double slope = slope_at_zero(f), amax = e < 0 && slope > 0 ? snd_in_amax(r, 0) : 0;
    if (f == SND_KFN_SQRT) {
        const int64_t odd = e & 1;
        snd_out_done(r, 0, (e - odd) / 2, snd_k_unary(r->threads, r->t, f, n, odd ? 2 : 1, x->p, y));
    } else if (f == SND_KFN_LOG) {
        run_log(r, n);
    } else if (e > far_out(r->t)) {
        run_far(r, f, n);
    } else if (amax > 0 && isfinite(amax) && e + ilogb(amax) < -snd_mantissa(r->t) - 4) {
        snd_out_done(r, 0, e, snd_k_affine(r->threads, r->t, n, slope, x->p, 0, y));
    } else {
        snd_out_done(r, 0, 0, snd_k_unary(r->threads, r->t, f, n, factor_for(r->t, e), x->p, y));
    }
}

static void unary_run(snd_oprun *r) {
    const snd_kfn f = fn_of(r->n);
    const int64_t n = snd_shape_size(snd_in_shape(r, 0));
    const snd_rv *x = snd_in(r, 0);
    if (f == SND_KFN_EXP)
        run_exp(r, n);
    else if (x->e == 0 || homogeneous(f))
        snd_out_done(r, 0, x->e, snd_k_unary(r->threads, r->t, f, n, 1, x->p, snd_out(r, 0)->p));
    else
        run_scaled(r, f, n);
}

static void unary_grad(snd_graph *g, const snd_node *n, const snd_id *dout, const bool *need, snd_id *din) {
    (void)need;
    const snd_id x = n->in[0], y = n->out[0], dy = dout[0];
    switch (fn_of(n)) {
    case SND_KFN_EXP: din[0] = snd_g_mul(g, dy, y); return;
    case SND_KFN_LOG: din[0] = snd_g_div(g, dy, x); return;
    case SND_KFN_SQRT: din[0] = snd_g_div_by(g, 0.5, dy, y); return;
    default: break;
    }
    din[0] = snd_g_op(g, SND_OP_UNARY_BWD, (snd_id[]){x, dy}, 2, &n->attr, NULL);
}

#define FN(f, l, h)                                                                                                    \
    { .label = #f, .n_in = 1, .in = {{2, {3, 5}}}, .attr = {.i = {SND_KFN_##f}}, .lo = (l), .hi = (h) }
static const snd_op_case unary_cases[] = {
    FN(GELU, -4, 4), FN(GELU_TANH, -4, 4), FN(SILU, -4, 4),  FN(TANH, -2, 2), FN(SIGMOID, -4, 4), FN(ERF, -2, 2),
    FN(EXP, -3, 3),  FN(SOFTPLUS, -4, 4),  FN(SQRT, 0.5, 3), FN(LOG, 0.3, 4), FN(ABS, -2, 2),
};

const snd_op_info snd_op_unary = {.name = "unary",
                                  .cheap = true,
                                  .shape = snd_same_shape,
                                  .run = unary_run,
                                  .grad = unary_grad,
                                  .inplace = snd_inplace_first,
                                  .cost = snd_cost_some,
                                  SND_CASES(unary_cases)};

snd_id snd_g_unary(snd_graph *g, snd_kfn fn, snd_id x) {
    if (!x) return 0;
    if (fn == SND_KFN_RELU) return snd_g_op(g, SND_OP_RELU, &x, 1, NULL, NULL);
    const snd_attr a = {.i = {fn}};
    return snd_g_op(g, SND_OP_UNARY, &x, 1, &a, NULL);
}

// ---- backward: in x, dy -----------------------------------------------------------------------------------

static void bwd_far(snd_oprun *r, snd_kfn f, int64_t n) {
    const snd_rv *x = snd_in(r, 0), *dy = snd_in(r, 1);
    void *dx = snd_out(r, 0)->p;
    for (int64_t i = 0; i < n; i++) {
        const double v = ldexp(snd_load(r->t, x->p, i), x->e);
        const bool relu = like_relu(f) && fabs(v) > LARGE;
        snd_store(r->t, dx, i, snd_load(r->t, dy->p, i) * (relu ? v > 0 : snd_k_fn_grad(f, v)));
    }
    snd_out_done(r, 0, dy->e, -1);
}

static void bwd_run(snd_oprun *r) {
    const snd_rv *x = snd_in(r, 0), *dy = snd_in(r, 1);
    const snd_kfn f = fn_of(r->n);
    const int64_t n = snd_shape_size(snd_in_shape(r, 0));
    if (!homogeneous(f) && x->e > far_out(r->t)) {
        bwd_far(r, f, n);
        return;
    }
    const double s = homogeneous(f) ? 1 : factor_for(r->t, x->e);
    snd_out_done(r, 0, dy->e, snd_k_unary_bwd(r->threads, r->t, f, n, s, x->p, 1, dy->p, snd_out(r, 0)->p));
}

const snd_op_info snd_op_unary_bwd = {
    .name = "unary_bwd", .shape = snd_same_shape, .run = bwd_run, .inplace = snd_inplace_second, .cost = snd_cost_some};
