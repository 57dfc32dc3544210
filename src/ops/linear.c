// Linear map y = x Wᵀ (+ b) and its two backward products.
//   x: [.., k] as R rows; W: [n, k]; b: [n];  y: [.., n]
//   dx = dy W;   dW = dyᵀ x;   db = sum of dy over rows
// Exponents add. The bias is there only after fusion and gives the same bits as the two ops apart.
#include "ops/ops_impl.h"

static sonde_status linear_shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    (void)dtype;
    char a[160], b[160];
    const snd_shape x = snd_shape_of(g, n->in[0]), w = snd_shape_of(g, n->in[1]);
    SND_FAIL_IF(x.nd < 1 || w.nd != 2 || x.dim[x.nd - 1] != w.dim[1], SONDE_ESHAPE,
                "input of shape %s does not fit weights of shape %s (a matrix, out by in)", snd_shape_text(x, a),
                snd_shape_text(w, b));
    *out = x;
    out->dim[x.nd - 1] = w.dim[0];
    return SONDE_OK;
}

static void linear_run(snd_oprun *r) {
    int64_t R, k, n;
    snd_rows(snd_in_shape(r, 0), &R, &k);
    n = snd_in_shape(r, 1).dim[0];
    snd_rv *x = snd_in(r, 0), *w = snd_in(r, 1), *y = snd_out(r, 0);
    snd_k_gemm(r->threads, r->t, false, true, R, n, k, 1, x->p, k, w->p, k, 0, y->p, n);
    snd_out_done(r, 0, (int64_t)x->e + w->e, -1);
    if (r->n->n_in < 3) return;
    double a = 1, c = 1;
    const int64_t e = snd_align(r, y, R * n, snd_in(r, 2), n, &a, &c);
    const double amax = snd_k_binary(r->threads, r->t, SND_KBIN_ADD, (int64_t[]){1, R, n}, a, y->p,
                                     (int64_t[]){0, n, 1}, c, snd_in(r, 2)->p, (int64_t[]){0, 0, 1}, y->p);
    snd_out_done(r, 0, e, amax);
}

static void linear_grad(snd_graph *g, const snd_node *n, const snd_id *dout, const bool *need, snd_id *din) {
    const snd_id dy = dout[0];
    // The weights' gradient first: dy may then die in dx.
    if (need[1]) din[1] = snd_g_op(g, SND_OP_LINEAR_DW, (snd_id[]){dy, n->in[0]}, 2, NULL, NULL);
    if (n->n_in > 2 && need[2]) din[2] = snd_g_sum_to(g, dy, snd_shape_of(g, n->in[2]));
    if (need[0]) din[0] = snd_g_op(g, SND_OP_LINEAR_DX, (snd_id[]){dy, n->in[1]}, 2, NULL, NULL);
}

static void product_cost(const snd_graph *g, const snd_node *n, double *flops, double *bytes) {
    snd_cost_each(g, n, 0, flops, bytes);
    int64_t R, k;
    snd_rows(snd_shape_of(g, n->in[0]), &R, &k);
    const double other = (double)snd_size_of(g, n->in[1]);
    *flops = 2 * (n->op == SND_OP_LINEAR_DW ? (double)k * other : (double)R * other);
}

static const snd_op_case linear_cases[] = {
    {.label = "5x4 by 3", .n_in = 2, .in = {{2, {5, 4}}, {2, {3, 4}}}},
    {.label = "2x3x4 by 7", .n_in = 2, .in = {{3, {2, 3, 4}}, {2, {7, 4}}}},
    {.label = "with bias", .n_in = 3, .in = {{2, {5, 4}}, {2, {3, 4}}, {1, {3}}}},
    {.label = "a vector", .n_in = 2, .in = {{1, {4}}, {2, {3, 4}}}},
    {.label = "70x65 by 33", .n_in = 2, .in = {{2, {70, 65}}, {2, {33, 65}}}},
};

const snd_op_info snd_op_linear = {.name = "linear",
                                   .shape = linear_shape,
                                   .run = linear_run,
                                   .grad = linear_grad,
                                   .cost = product_cost,
                                   SND_CASES(linear_cases)};

snd_id snd_g_linear(snd_graph *g, snd_id x, snd_id w) {
    return x && w ? snd_g_op(g, SND_OP_LINEAR, (snd_id[]){x, w}, 2, NULL, NULL) : 0;
}

// ---- dx = dy W ------------------------------------------------------------------------------------------------------

static sonde_status dx_shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    (void)dtype;
    char a[160], b[160];
    const snd_shape dy = snd_shape_of(g, n->in[0]), w = snd_shape_of(g, n->in[1]);
    SND_FAIL_IF(dy.nd < 1 || w.nd != 2 || dy.dim[dy.nd - 1] != w.dim[0], SONDE_ESHAPE,
                "gradient of shape %s does not fit weights of shape %s", snd_shape_text(dy, a), snd_shape_text(w, b));
    *out = dy;
    out->dim[dy.nd - 1] = w.dim[1];
    return SONDE_OK;
}

static void dx_run(snd_oprun *r) {
    int64_t R, n;
    snd_rows(snd_in_shape(r, 0), &R, &n);
    const int64_t k = snd_in_shape(r, 1).dim[1];
    const snd_rv *dy = snd_in(r, 0), *w = snd_in(r, 1);
    snd_k_gemm(r->threads, r->t, false, false, R, k, n, 1, dy->p, n, w->p, k, 0, snd_out(r, 0)->p, k);
    snd_out_done(r, 0, (int64_t)dy->e + w->e, -1);
}

// Bilinear in dy and W like the map itself: d(dy) = g Wᵀ, dW = dyᵀ g.
static void dx_grad(snd_graph *g, const snd_node *n, const snd_id *dout, const bool *need, snd_id *din) {
    if (need[1]) din[1] = snd_g_op(g, SND_OP_LINEAR_DW, (snd_id[]){n->in[0], dout[0]}, 2, NULL, NULL);
    if (need[0]) din[0] = snd_g_op(g, SND_OP_LINEAR, (snd_id[]){dout[0], n->in[1]}, 2, NULL, NULL);
}

static const snd_op_case dx_cases[] = {{.label = "5x3 by 3x4", .n_in = 2, .in = {{2, {5, 3}}, {2, {3, 4}}}}};

const snd_op_info snd_op_linear_dx = {
    .name = "linear_dx", .shape = dx_shape, .run = dx_run, .grad = dx_grad, .cost = product_cost, SND_CASES(dx_cases)};

// ---- dW = dyᵀ x -----------------------------------------------------------------------------------------------------

static sonde_status dw_shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    (void)dtype;
    char a[160], b[160];
    int64_t R, R2, no, k;
    const snd_shape dy = snd_shape_of(g, n->in[0]), x = snd_shape_of(g, n->in[1]);
    snd_rows(dy, &R, &no);
    snd_rows(x, &R2, &k);
    SND_FAIL_IF(R != R2, SONDE_ESHAPE, "gradient of shape %s and input of shape %s differ in rows",
                snd_shape_text(dy, a), snd_shape_text(x, b));
    *out = SND_SHAPE(no, k);
    return SONDE_OK;
}

static void dw_run(snd_oprun *r) {
    int64_t R, n, k;
    snd_rows(snd_in_shape(r, 0), &R, &n);
    snd_rows(snd_in_shape(r, 1), &R, &k);
    const snd_rv *dy = snd_in(r, 0), *x = snd_in(r, 1);
    snd_k_gemm(r->threads, r->t, true, false, n, k, R, 1, dy->p, n, x->p, k, 0, snd_out(r, 0)->p, k);
    snd_out_done(r, 0, (int64_t)dy->e + x->e, -1);
}

static const snd_op_case dw_cases[] = {{.label = "5x3, 5x4", .n_in = 2, .in = {{2, {5, 3}}, {2, {5, 4}}}}};

const snd_op_info snd_op_linear_dw = {
    .name = "linear_dw", .shape = dw_shape, .run = dw_run, .cost = product_cost, SND_CASES(dw_cases)};
