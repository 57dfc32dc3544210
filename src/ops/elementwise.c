// Operations on two operands that broadcast: lin (a x + b y), mul (a x y), div (a x / y), min, max, and the backward of
// the last two. Attributes: f[0] = a, f[1] = b.
// Exponents: lin, min, max bring both operands to one; mul adds, div subtracts.
// Backward, each summed down to its operand's shape:
//   lin  dx = a dy, dy' = b dy        mul  dx = a dy*y            div (z = a x/y)  dx = a dy/y, dy' = -dy*z/y
//   min, max: dy goes to the operand that was taken, half to each in a tie
#include "ops/ops_impl.h"

#include <assert.h>
#include <math.h>

static snd_bcast grid_of(const snd_oprun *r, int x, int y, snd_shape out) {
    snd_bcast b = {0};
    const bool ok = snd_bcast_make(snd_in_shape(r, x), snd_in_shape(r, y), out, &b);
    assert(ok);
    (void)ok;
    return b;
}

static double binary(const snd_oprun *r, snd_kbin op, double a, double b) {
    const snd_bcast s = grid_of(r, 0, 1, snd_out_shape(r, 0));
    return snd_k_binary(r->threads, r->t, op, s.dim, a, snd_in(r, 0)->p, s.sx, b, snd_in(r, 1)->p, s.sy,
                        snd_out(r, 0)->p);
}

static int64_t align(const snd_oprun *r, double *a, double *b) {
    return snd_align(r, snd_in(r, 0), snd_shape_size(snd_in_shape(r, 0)), snd_in(r, 1),
                     snd_shape_size(snd_in_shape(r, 1)), a, b);
}

// A factor that the type may not hold is split into a moderate one and an exponent.
static int64_t split(double *a) {
    if (*a == 0 || !isfinite(*a) || (fabs(*a) < 0x1p60 && fabs(*a) > 0x1p-60)) return 0;
    const int e = ilogb(*a);
    *a = ldexp(*a, -e);
    return e;
}

// ---- lin ------------------------------------------------------------------------------------------------------------

static void lin_run(snd_oprun *r) {
    double a = r->n->attr.f[0], b = r->n->attr.f[1];
    const int64_t e = align(r, &a, &b);
    snd_out_done(r, 0, e, binary(r, SND_KBIN_ADD, a, b));
}

static snd_id times(snd_graph *g, double a, snd_id d) {
    return a == 1 ? d : snd_g_affine(g, a, d, 0);
}

static void lin_grad(snd_graph *g, const snd_node *n, const snd_id *dout, const bool *need, snd_id *din) {
    for (int k = 0; k < 2; k++) {
        if (need[k]) din[k] = times(g, n->attr.f[k], snd_reduce_like(g, dout[0], n->in[k]));
    }
}

#define TWO(A, B) .n_in = 2, .in = {A, B}
#define S(...)                                                                                                         \
    {                                                                                                                  \
        sizeof((int[]){__VA_ARGS__}) / sizeof(int), {                                                                  \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }

static const snd_op_case lin_cases[] = {
    {.label = "same shape", TWO(S(3, 4), S(3, 4)), .attr = {.f = {0.7, -1.3}}},
    {.label = "stream and vector", TWO(S(2, 3, 4), S(4)), .attr = {.f = {1, 1}}},
    {.label = "vector and stream", TWO(S(4), S(3, 4)), .attr = {.f = {2, 1}}},
    {.label = "scalar", TWO(S(1), S(3, 4)), .attr = {.f = {1, 0.5}}},
    {.label = "per row", TWO(S(3, 4), S(3, 1)), .attr = {.f = {1, 1}}},
    {.label = "per example", TWO(S(2, 1, 4), S(2, 3, 4)), .attr = {.f = {1, 3}}},
    {.label = "row and column", TWO(S(3, 1), S(4)), .attr = {.f = {1, 1}}},
    {.label = "per token and per example", TWO(S(2, 3, 1), S(2, 1, 4)), .attr = {.f = {1, 1}}},
    {.label = "scalars", TWO(S(1), S(1)), .attr = {.f = {1, 1}}},
};

const snd_op_info snd_op_lin = {.name = "lin",
                                .shape = snd_bcast_shape,
                                .run = lin_run,
                                .grad = lin_grad,
                                .inplace = snd_bcast_inplace,
                                .cost = snd_cost_few,
                                SND_CASES(lin_cases)};

static snd_id two(snd_graph *g, int op, double a, double b, snd_id x, snd_id y) {
    if (!x || !y) return 0;
    const snd_attr attr = {.f = {a, b}};
    return snd_g_op(g, op, (snd_id[]){x, y}, 2, &attr, NULL);
}

snd_id snd_g_lin(snd_graph *g, double a, snd_id x, double b, snd_id y) {
    return two(g, SND_OP_LIN, a, b, x, y);
}
snd_id snd_g_sum_values(snd_graph *g, snd_id a, snd_id b) {
    return snd_g_lin(g, 1, a, 1, b);
}

// ---- mul, div -------------------------------------------------------------------------------------------------------

static void mul_run(snd_oprun *r) {
    double a = r->n->attr.f[0];
    const int64_t e = split(&a) + snd_in(r, 0)->e + snd_in(r, 1)->e;
    snd_out_done(r, 0, e, binary(r, SND_KBIN_MUL, a, 1));
}

static void mul_grad(snd_graph *g, const snd_node *n, const snd_id *dout, const bool *need, snd_id *din) {
    for (int k = 0; k < 2; k++) {
        if (need[k]) din[k] = snd_mul_reduce(g, n->attr.f[0], dout[0], n->in[1 - k], n->in[k]);
    }
}

static void div_run(snd_oprun *r) {
    double a = r->n->attr.f[0];
    const int64_t e = split(&a) + snd_in(r, 0)->e - snd_in(r, 1)->e;
    snd_out_done(r, 0, e, binary(r, SND_KBIN_DIV, a, 1));
}

static void div_grad(snd_graph *g, const snd_node *n, const snd_id *dout, const bool *need, snd_id *din) {
    const snd_id x = n->in[0], y = n->in[1], z = n->out[0];
    if (need[1]) {
        const snd_id t = snd_g_mul_by(g, 1, dout[0], z);
        din[1] = snd_reduce_like(g, snd_g_div_by(g, -1, t, y), y);
    }
    if (need[0]) din[0] = snd_reduce_like(g, snd_g_div_by(g, n->attr.f[0], dout[0], y), x);
}

static const snd_op_case mul_cases[] = {
    {.label = "same shape", TWO(S(3, 4), S(3, 4)), .attr = {.f = {0.7}}},
    {.label = "gain", TWO(S(2, 3, 4), S(4)), .attr = {.f = {1}}},
    {.label = "gain first", TWO(S(4), S(3, 4)), .attr = {.f = {1}}},
    {.label = "scalar", TWO(S(1), S(3, 4)), .attr = {.f = {-2}}},
    {.label = "per row", TWO(S(3, 1), S(3, 4)), .attr = {.f = {1}}},
    {.label = "per token", TWO(S(2, 3, 4), S(2, 3, 1)), .attr = {.f = {1.5}}},
    {.label = "per example", TWO(S(2, 3, 4), S(2, 1, 4)), .attr = {.f = {1}}},
    {.label = "row and column", TWO(S(3, 1), S(4)), .attr = {.f = {1}}},
};
static const snd_op_case div_cases[] = {
    {.label = "same shape", TWO(S(3, 4), S(3, 4)), .attr = {.f = {0.7}}, .lo = 0.5, .hi = 2},
    {.label = "by row", TWO(S(3, 4), S(3, 1)), .attr = {.f = {1}}, .lo = -2, .hi = -0.5},
    {.label = "scalar by stream", TWO(S(1), S(3, 4)), .attr = {.f = {1}}, .lo = 0.5, .hi = 2},
    {.label = "row by vector", TWO(S(3, 1), S(4)), .attr = {.f = {-1}}, .lo = 0.5, .hi = 2},
};

const snd_op_info snd_op_mul = {.name = "mul",
                                .cheap = true,
                                .shape = snd_bcast_shape,
                                .run = mul_run,
                                .grad = mul_grad,
                                .inplace = snd_bcast_inplace,
                                .cost = snd_cost_few,
                                SND_CASES(mul_cases)};
const snd_op_info snd_op_div = {.name = "div",
                                .shape = snd_bcast_shape,
                                .run = div_run,
                                .grad = div_grad,
                                .inplace = snd_bcast_inplace,
                                .cost = snd_cost_few,
                                SND_CASES(div_cases)};

snd_id snd_g_mul_by(snd_graph *g, double a, snd_id x, snd_id y) {
    return two(g, SND_OP_MUL, a, 0, x, y);
}
snd_id snd_g_div_by(snd_graph *g, double a, snd_id x, snd_id y) {
    return two(g, SND_OP_DIV, a, 0, x, y);
}
snd_id snd_g_mul(snd_graph *g, snd_id x, snd_id y) {
    return snd_g_mul_by(g, 1, x, y);
}
snd_id snd_g_div(snd_graph *g, snd_id x, snd_id y) {
    return snd_g_div_by(g, 1, x, y);
}

// ---- min, max -------------------------------------------------------------------------------------------------------

static void minmax_run(snd_oprun *r) {
    double a = 1, b = 1;
    const int64_t e = align(r, &a, &b);
    snd_out_done(r, 0, e, binary(r, r->n->op == SND_OP_MAX ? SND_KBIN_MAX : SND_KBIN_MIN, a, b));
}

// in: x, y, dy; i[0]: max, i[1]: gradient of the second operand. Of the full shape; the caller sums it down.
static void minmax_bwd_run(snd_oprun *r) {
    double a = 1, b = 1;
    align(r, &a, &b);
    const snd_bcast s = grid_of(r, 0, 1, snd_out_shape(r, 0));
    const snd_rv *dy = snd_in(r, 2);
    snd_k_minmax_bwd(r->threads, r->t, r->n->attr.i[0] != 0, r->n->attr.i[1] != 0, s.dim, a, snd_in(r, 0)->p, s.sx, b,
                     snd_in(r, 1)->p, s.sy, dy->p, snd_out(r, 0)->p);
    snd_out_done(r, 0, dy->e, -1);
}

static sonde_status like_third(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    (void)dtype;
    *out = snd_shape_of(g, n->in[2]);
    return SONDE_OK;
}

static void minmax_grad(snd_graph *g, const snd_node *n, const snd_id *dout, const bool *need, snd_id *din) {
    for (int k = 0; k < 2; k++) {
        if (!need[k]) continue;
        const snd_attr a = {.i = {n->op == SND_OP_MAX, k}};
        const snd_id d = snd_g_op(g, SND_OP_MINMAX_BWD, (snd_id[]){n->in[0], n->in[1], dout[0]}, 3, &a, NULL);
        din[k] = snd_reduce_like(g, d, n->in[k]);
    }
}

static const snd_op_case minmax_cases[] = {
    {.label = "same shape", TWO(S(3, 4), S(3, 4))},
    {.label = "scalar", TWO(S(3, 4), S(1))},
    {.label = "vector first", TWO(S(4), S(2, 3, 4))},
    {.label = "row and column", TWO(S(3, 1), S(4))},
};

const snd_op_info snd_op_min = {.name = "min",
                                .shape = snd_bcast_shape,
                                .run = minmax_run,
                                .grad = minmax_grad,
                                .inplace = snd_bcast_inplace,
                                .cost = snd_cost_few,
                                SND_CASES(minmax_cases)};
const snd_op_info snd_op_max = {.name = "max",
                                .shape = snd_bcast_shape,
                                .run = minmax_run,
                                .grad = minmax_grad,
                                .inplace = snd_bcast_inplace,
                                .cost = snd_cost_few,
                                SND_CASES(minmax_cases)};
const snd_op_info snd_op_minmax_bwd = {
    .name = "minmax_bwd", .shape = like_third, .run = minmax_bwd_run, .cost = snd_cost_few};

snd_id snd_g_min(snd_graph *g, snd_id x, snd_id y) {
    return two(g, SND_OP_MIN, 1, 1, x, y);
}
snd_id snd_g_max(snd_graph *g, snd_id x, snd_id y) {
    return two(g, SND_OP_MAX, 1, 1, x, y);
}

// ---- affine ---------------------------------------------------------------------------------------------------------

// a x + b with f[0] = a, f[1] = b; the constant joins at the larger of the two exponents.
static void affine_run(snd_oprun *r) {
    double a = r->n->attr.f[0], b = r->n->attr.f[1];
    snd_rv *x = snd_in(r, 0);
    const int64_t n = snd_shape_size(snd_in_shape(r, 0));
    int64_t e = x->e + split(&a);
    if (b != 0 && (e != 0 || fabs(b) > 0x1p60 || fabs(b) < 0x1p-60)) {
        const int64_t eb = split(&b), top = snd_in_amax(r, 0) == 0 || a == 0 || eb > e ? eb : e;
        a = ldexp(a, (int)snd_clamp_e(e - top > 0 ? 0 : e - top));
        b = ldexp(b, (int)snd_clamp_e(eb - top));
        e = top;
    }
    snd_out_done(r, 0, e, snd_k_affine(r->threads, r->t, n, a, x->p, b, snd_out(r, 0)->p));
}

static void affine_grad(snd_graph *g, const snd_node *n, const snd_id *dout, const bool *need, snd_id *din) {
    (void)need;
    din[0] = times(g, n->attr.f[0], dout[0]);
}

static const snd_op_case affine_cases[] = {
    {.label = "scale", .n_in = 1, .in = {S(3, 4)}, .attr = {.f = {-1.7}}},
    {.label = "shift", .n_in = 1, .in = {S(3, 4)}, .attr = {.f = {1, 0.3}}},
    {.label = "both", .n_in = 1, .in = {S(7)}, .attr = {.f = {0.01, -3}}},
};

const snd_op_info snd_op_affine = {.name = "affine",
                                   .shape = snd_same_shape,
                                   .run = affine_run,
                                   .grad = affine_grad,
                                   .inplace = snd_inplace_first,
                                   .cost = snd_cost_few,
                                   SND_CASES(affine_cases)};

snd_id snd_g_affine(snd_graph *g, double a, snd_id x, double b) {
    if (!x) return 0;
    const snd_attr attr = {.f = {a, b}};
    return snd_g_op(g, SND_OP_AFFINE, &x, 1, &attr, NULL);
}
