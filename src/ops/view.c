// alias, stop, reshape: the same buffer under another value; and const, a value known when the graph is built.
// A view has a gradient of its own: that of the uses through it. reshape: i[0..5] = dimensions, f[0] = their number.
// const: the same, f[1] = the number.
#include "ops/ops_impl.h"

#include <string.h>

static const snd_op_case one_case[] = {{.label = "3x4", .n_in = 1, .in = {{2, {3, 4}}}}};

// Only for a kept view of a parameter, which has to be a copy.
static void copy(snd_oprun *r) {
    const snd_rv *x = snd_in(r, 0);
    snd_rv *y = snd_out(r, 0);
    const size_t bytes = (size_t)snd_shape_size(snd_in_shape(r, 0)) * snd_dtype_size(r->t);
    memcpy(y->p, x->p, bytes);
    y->e = x->e;
    y->amax = x->amax;
}

static void pass(snd_graph *g, const snd_node *n, const snd_id *dout, const bool *need, snd_id *din) {
    (void)g;
    (void)n;
    (void)need;
    din[0] = dout[0];
}

static void block(snd_graph *g, const snd_node *n, const snd_id *dout, const bool *need, snd_id *din) {
    (void)g;
    (void)n;
    (void)dout;
    (void)need;
    din[0] = 0;
}

static void free_of_cost(const snd_graph *g, const snd_node *n, double *flops, double *bytes) {
    (void)g;
    (void)n;
    *flops = *bytes = 0;
}

const snd_op_info snd_op_alias = {.name = "alias",
                                  .shape = snd_same_shape,
                                  .run = copy,
                                  .grad = pass,
                                  .view = true,
                                  .cost = free_of_cost,
                                  SND_CASES(one_case)};
const snd_op_info snd_op_stop = {
    .name = "stop", .shape = snd_same_shape, .run = copy, .grad = block, .view = true, .cost = free_of_cost};

snd_id snd_g_alias(snd_graph *g, snd_id x) {
    return x ? snd_g_op(g, SND_OP_ALIAS, &x, 1, NULL, NULL) : 0;
}
snd_id snd_g_stop(snd_graph *g, snd_id x) {
    return x ? snd_g_op(g, SND_OP_STOP, &x, 1, NULL, NULL) : 0;
}

// ---- shapes in attributes -------------------------------------------------------------------------------------------

static snd_shape attr_shape(const snd_attr *a) {
    return snd_shape_make((int)a->f[0], a->i);
}

static sonde_status reshape_shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    (void)dtype;
    char a[160], b[160];
    *out = attr_shape(&n->attr);
    const snd_shape x = snd_shape_of(g, n->in[0]);
    SND_FAIL_IF(snd_shape_size(x) != snd_shape_size(*out), SONDE_ESHAPE, "%s has not as many elements as %s",
                snd_shape_text(x, a), snd_shape_text(*out, b));
    return SONDE_OK;
}

static void reshape_grad(snd_graph *g, const snd_node *n, const snd_id *dout, const bool *need, snd_id *din) {
    (void)need;
    din[0] = snd_g_reshape(g, dout[0], snd_shape_of(g, n->in[0]));
}

static const snd_op_case reshape_cases[] = {
    {.label = "3x4 to 2x6", .n_in = 1, .in = {{2, {3, 4}}}, .attr = {.f = {2}, .i = {2, 6}}}};
const snd_op_info snd_op_reshape = {.name = "reshape",
                                    .shape = reshape_shape,
                                    .run = copy,
                                    .grad = reshape_grad,
                                    .view = true,
                                    .cost = free_of_cost,
                                    SND_CASES(reshape_cases)};

snd_id snd_g_reshape(snd_graph *g, snd_id x, snd_shape s) {
    if (!x) return 0;
    if (snd_shape_same(snd_shape_of(g, x), s)) return x;
    snd_attr a = {.f = {s.nd}};
    memcpy(a.i, s.dim, sizeof s.dim);
    return snd_g_op(g, SND_OP_RESHAPE, &x, 1, &a, NULL);
}

// ---- const ----------------------------------------------------------------------------------------------------------

static sonde_status const_shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    (void)g;
    (void)dtype;
    *out = attr_shape(&n->attr);
    return SONDE_OK;
}

static void const_run(snd_oprun *r) {
    const double v = r->n->attr.f[1];
    snd_out_store(r, 0, &v, 1); // picks the exponent
    const double stored = snd_load(r->t, snd_out(r, 0)->p, 0);
    snd_k_fill_const(r->threads, r->t, snd_shape_size(snd_out_shape(r, 0)), stored, snd_out(r, 0)->p);
}

const snd_op_info snd_op_const = {.name = "const", .shape = const_shape, .run = const_run, .cost = snd_cost_few};

snd_id snd_g_const(snd_graph *g, snd_shape s, double v) {
    snd_attr a = {.f = {s.nd, v}};
    memcpy(a.i, s.dim, sizeof s.dim);
    return snd_g_op(g, SND_OP_CONST, NULL, 0, &a, NULL);
}
