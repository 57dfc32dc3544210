// y = max(x, 0). out: y, and one bit per element for the backward pass, which needs nothing else: 64 of them a word, set
// unless x <= 0. Kept over the backward pass they are a thirty-second of y. The exponent of x is y's, as relu is
// homogeneous. Backward: dx = dy where the bit is set; in: bits, dy.
#include "ops/ops_impl.h"

static sonde_status relu_shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    n->n_out = 2;
    out[0] = snd_shape_of(g, n->in[0]);
    out[1] = SND_SHAPE((snd_shape_size(out[0]) + 63) / 64);
    dtype[1] = SND_I64;
    return SONDE_OK;
}

static void relu_run(snd_oprun *r) {
    const snd_rv *x = snd_in(r, 0);
    const int64_t n = snd_shape_size(snd_in_shape(r, 0));
    snd_out_done(r, 0, x->e, snd_k_relu(r->threads, r->t, n, x->p, snd_out(r, 0)->p, snd_out(r, 1)->p));
}

static void relu_grad(snd_graph *g, const snd_node *n, const snd_id *dout, const bool *need, snd_id *din) {
    (void)need;
    din[0] = snd_g_op(g, SND_OP_RELU_BWD, (snd_id[]){n->out[1], dout[0]}, 2, NULL, NULL);
}

static const snd_op_case relu_cases[] = {{.label = "relu", .n_in = 1, .in = {{2, {3, 5}}}, .lo = -2, .hi = 2},
                                         {.label = "two words", .n_in = 1, .in = {{2, {3, 30}}}, .lo = -2, .hi = 2}};

const snd_op_info snd_op_relu = {.name = "relu",
                                 .cheap = true,
                                 .shape = relu_shape,
                                 .run = relu_run,
                                 .grad = relu_grad,
                                 .inplace = snd_inplace_first,
                                 .cost = snd_cost_few,
                                 SND_CASES(relu_cases)};

static sonde_status bwd_shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    (void)dtype;
    out[0] = snd_shape_of(g, n->in[1]);
    return SONDE_OK;
}

static void bwd_run(snd_oprun *r) {
    const snd_rv *dy = snd_in(r, 1);
    const int64_t n = snd_shape_size(snd_in_shape(r, 1));
    snd_out_done(r, 0, dy->e, snd_k_relu_bwd(r->threads, r->t, n, snd_in(r, 0)->p, dy->p, snd_out(r, 0)->p));
}

const snd_op_info snd_op_relu_bwd = {
    .name = "relu_bwd", .shape = bwd_shape, .run = bwd_run, .inplace = snd_inplace_second, .cost = snd_cost_few};
