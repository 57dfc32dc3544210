// Convolution of images with their channels last, and its two backward passes.
//   x: [B, H, W, in]; w: [out, in, k, k];  y: [B, Ho, Wo, out].  i[0] = stride
//   conv_dx  in dy, w; i[0] = stride, i[1] = H, i[2] = W.   conv_dw  in dy, x; i[0] = stride, i[1] = k
// Bilinear: exponents add, and each of the three is the gradient of the others.
#include "ops/ops_impl.h"

static int64_t stride_of(const snd_node *n) {
    return n->attr.i[0] > 0 ? n->attr.i[0] : 1;
}

static sonde_status check_image(snd_shape s, const char *what) {
    char a[160];
    SND_FAIL_IF(s.nd != 4 || snd_shape_size(s) < 1, SONDE_ESHAPE,
                "%s of shape %s is no batch of images [B, H, W, channels]", what, snd_shape_text(s, a));
    return SONDE_OK;
}

// What the kernel has to know, from the shapes of x and w; fails where they do not fit.
static sonde_status conv_of(snd_shape x, snd_shape w, int64_t stride, snd_kconv *c) {
    char a[160], b[160];
    SND_TRY(check_image(x, "input"));
    SND_FAIL_IF(w.nd != 4 || w.dim[2] != w.dim[3] || w.dim[1] != x.dim[3] || snd_shape_size(w) < 1, SONDE_ESHAPE,
                "images of shape %s do not fit weights of shape %s (out, in, k, k)", snd_shape_text(x, a),
                snd_shape_text(w, b));
    *c = (snd_kconv){
        .B = x.dim[0], .H = x.dim[1], .W = x.dim[2], .Ci = x.dim[3], .Co = w.dim[0], .k = w.dim[2], .stride = stride};
    const int64_t border = 2 * (c->k / 2);
    SND_FAIL_IF(c->H + border < c->k || c->W + border < c->k, SONDE_ESHAPE,
                "a kernel of %lld does not fit images of shape %s", (long long)c->k, snd_shape_text(x, a));
    return SONDE_OK;
}

static snd_shape result_shape(const snd_kconv *c) {
    return SND_SHAPE(c->B, snd_k_conv_size(c->H, c->k, c->stride), snd_k_conv_size(c->W, c->k, c->stride), c->Co);
}

static sonde_status check_gradient(snd_shape dy, const snd_kconv *c) {
    char a[160], b[160];
    SND_FAIL_IF(!snd_shape_same(dy, result_shape(c)), SONDE_ESHAPE, "gradient of shape %s; the convolution gives %s",
                snd_shape_text(dy, a), snd_shape_text(result_shape(c), b));
    return SONDE_OK;
}

static snd_kconv forward_of(const snd_graph *g, const snd_node *n) {
    const snd_shape x = snd_shape_of(g, n->in[0]), w = snd_shape_of(g, n->in[1]);
    return (snd_kconv){x.dim[0], x.dim[1], x.dim[2], x.dim[3], w.dim[0], w.dim[2], stride_of(n)};
}

static snd_kconv dx_of(const snd_graph *g, const snd_node *n) {
    const snd_shape dy = snd_shape_of(g, n->in[0]), w = snd_shape_of(g, n->in[1]);
    return (snd_kconv){dy.dim[0], n->attr.i[1], n->attr.i[2], w.dim[1], w.dim[0], w.dim[2], stride_of(n)};
}

static snd_kconv dw_of(const snd_graph *g, const snd_node *n) {
    const snd_shape dy = snd_shape_of(g, n->in[0]), x = snd_shape_of(g, n->in[1]);
    return (snd_kconv){x.dim[0], x.dim[1], x.dim[2], x.dim[3], dy.dim[3], n->attr.i[1], stride_of(n)};
}

static void cost_of(const snd_graph *g, const snd_node *n, const snd_kconv *c, double *flops, double *bytes) {
    snd_cost_each(g, n, 0, flops, bytes);
    *flops = 2 * (double)snd_shape_size(result_shape(c)) * (double)(c->Ci * c->k * c->k);
}

static void done(snd_oprun *r) {
    snd_out_done(r, 0, (int64_t)snd_in(r, 0)->e + snd_in(r, 1)->e, -1);
}

// ---- forward --------------------------------------------------------------------------------------------------------

static sonde_status conv_shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    (void)dtype;
    snd_kconv c = {0};
    SND_TRY(conv_of(snd_shape_of(g, n->in[0]), snd_shape_of(g, n->in[1]), stride_of(n), &c));
    *out = result_shape(&c);
    return SONDE_OK;
}

static void conv_run(snd_oprun *r) {
    const snd_kconv c = forward_of(r->g, r->n);
    snd_k_conv_fwd(r->threads, r->t, &c, snd_in(r, 0)->p, snd_in(r, 1)->p, snd_out(r, 0)->p, r->scratch);
    done(r);
}

static void conv_grad(snd_graph *g, const snd_node *n, const snd_id *dout, const bool *need, snd_id *din) {
    const snd_shape x = snd_shape_of(g, n->in[0]), w = snd_shape_of(g, n->in[1]);
    const snd_attr for_w = {.i = {stride_of(n), w.dim[2]}}, for_x = {.i = {stride_of(n), x.dim[1], x.dim[2]}};
    // The weights' gradient first: dy may then die in dx.
    if (need[1]) din[1] = snd_g_op(g, SND_OP_CONV_DW, (snd_id[]){dout[0], n->in[0]}, 2, &for_w, NULL);
    if (need[0]) din[0] = snd_g_op(g, SND_OP_CONV_DX, (snd_id[]){dout[0], n->in[1]}, 2, &for_x, NULL);
}

static size_t conv_scratch(const snd_graph *g, const snd_node *n) {
    const snd_kconv c = forward_of(g, n);
    return snd_k_conv_fwd_scratch(snd_graph_dtype(g), &c);
}

static void conv_cost(const snd_graph *g, const snd_node *n, double *flops, double *bytes) {
    const snd_kconv c = forward_of(g, n);
    cost_of(g, n, &c, flops, bytes);
}

static const snd_op_case conv_cases[] = {
    {.label = "3x3", .n_in = 2, .in = {{4, {2, 5, 4, 3}}, {4, {2, 3, 3, 3}}}, .attr = {.i = {1}}},
    {.label = "3x3, stride 2, odd", .n_in = 2, .in = {{4, {2, 5, 7, 3}}, {4, {5, 3, 3, 3}}}, .attr = {.i = {2}}},
    {.label = "3x3, stride 2, even", .n_in = 2, .in = {{4, {2, 6, 4, 2}}, {4, {3, 2, 3, 3}}}, .attr = {.i = {2}}},
    {.label = "1x1", .n_in = 2, .in = {{4, {2, 3, 4, 5}}, {4, {3, 5, 1, 1}}}, .attr = {.i = {1}}},
    {.label = "1x1, stride 2", .n_in = 2, .in = {{4, {2, 5, 4, 3}}, {4, {2, 3, 1, 1}}}, .attr = {.i = {2}}},
    {.label = "1x1, stride 3", .n_in = 2, .in = {{4, {1, 7, 5, 2}}, {4, {2, 2, 1, 1}}}, .attr = {.i = {3}}},
    {.label = "5x5", .n_in = 2, .in = {{4, {1, 5, 6, 2}}, {4, {3, 2, 5, 5}}}, .attr = {.i = {1}}},
    {.label = "5x5, stride 3", .n_in = 2, .in = {{4, {2, 7, 8, 2}}, {4, {2, 2, 5, 5}}}, .attr = {.i = {3}}},
    {.label = "7x7, stride 2", .n_in = 2, .in = {{4, {1, 7, 9, 1}}, {4, {2, 1, 7, 7}}}, .attr = {.i = {2}}},
    {.label = "2x2", .n_in = 2, .in = {{4, {1, 4, 5, 2}}, {4, {2, 2, 2, 2}}}, .attr = {.i = {1}}},
    {.label = "4x4, stride 2", .n_in = 2, .in = {{4, {1, 5, 6, 2}}, {4, {2, 2, 4, 4}}}, .attr = {.i = {2}}},
    {.label = "one place", .n_in = 2, .in = {{4, {2, 1, 1, 3}}, {4, {4, 3, 3, 3}}}, .attr = {.i = {2}}},
    {.label = "more channels than vectors",
     .n_in = 2,
     .in = {{4, {1, 3, 3, 19}}, {4, {37, 19, 3, 3}}},
     .attr = {.i = {1}}},
    {.label = "a wide image", .n_in = 2, .in = {{4, {1, 2, 33, 2}}, {4, {16, 2, 3, 3}}}, .attr = {.i = {1}}},
};

const snd_op_info snd_op_conv = {.name = "conv",
                                 .shape = conv_shape,
                                 .run = conv_run,
                                 .grad = conv_grad,
                                 .scratch = conv_scratch,
                                 .cost = conv_cost,
                                 SND_CASES(conv_cases)};

snd_id snd_g_conv(snd_graph *g, snd_id x, snd_id w, int64_t stride) {
    const snd_attr a = {.i = {stride}};
    return x && w ? snd_g_op(g, SND_OP_CONV, (snd_id[]){x, w}, 2, &a, NULL) : 0;
}

// ---- dx -------------------------------------------------------------------------------------------------------------

static sonde_status dx_shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    (void)dtype;
    snd_kconv c = {0};
    const snd_shape dy = snd_shape_of(g, n->in[0]), w = snd_shape_of(g, n->in[1]);
    SND_TRY(check_image(dy, "gradient"));
    *out = SND_SHAPE(dy.dim[0], n->attr.i[1], n->attr.i[2], w.nd == 4 ? w.dim[1] : 0);
    SND_TRY(conv_of(*out, w, stride_of(n), &c));
    return check_gradient(dy, &c);
}

static void dx_run(snd_oprun *r) {
    const snd_kconv c = dx_of(r->g, r->n);
    snd_k_conv_dx(r->threads, r->t, &c, snd_in(r, 0)->p, snd_in(r, 1)->p, snd_out(r, 0)->p, r->scratch);
    done(r);
}

static void dx_grad(snd_graph *g, const snd_node *n, const snd_id *dout, const bool *need, snd_id *din) {
    const snd_attr for_w = {.i = {stride_of(n), snd_shape_of(g, n->in[1]).dim[2]}};
    if (need[1]) din[1] = snd_g_op(g, SND_OP_CONV_DW, (snd_id[]){n->in[0], dout[0]}, 2, &for_w, NULL);
    if (need[0]) din[0] = snd_g_conv(g, dout[0], n->in[1], stride_of(n));
}

static size_t dx_scratch(const snd_graph *g, const snd_node *n) {
    const snd_kconv c = dx_of(g, n);
    return snd_k_conv_dx_scratch(snd_graph_dtype(g), &c);
}

static void dx_cost(const snd_graph *g, const snd_node *n, double *flops, double *bytes) {
    const snd_kconv c = dx_of(g, n);
    cost_of(g, n, &c, flops, bytes);
}

static const snd_op_case dx_cases[] = {
    {.label = "stride 2", .n_in = 2, .in = {{4, {2, 3, 2, 4}}, {4, {4, 3, 3, 3}}}, .attr = {.i = {2, 5, 4}}}};

const snd_op_info snd_op_conv_dx = {.name = "conv_dx",
                                    .shape = dx_shape,
                                    .run = dx_run,
                                    .grad = dx_grad,
                                    .scratch = dx_scratch,
                                    .cost = dx_cost,
                                    SND_CASES(dx_cases)};

// ---- dw -------------------------------------------------------------------------------------------------------------

static sonde_status dw_shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    (void)dtype;
    snd_kconv c = {0};
    const snd_shape dy = snd_shape_of(g, n->in[0]), x = snd_shape_of(g, n->in[1]);
    SND_TRY(check_image(dy, "gradient"));
    SND_TRY(check_image(x, "input"));
    *out = SND_SHAPE(dy.dim[3], x.dim[3], n->attr.i[1], n->attr.i[1]);
    SND_TRY(conv_of(x, *out, stride_of(n), &c));
    return check_gradient(dy, &c);
}

static void dw_run(snd_oprun *r) {
    const snd_kconv c = dw_of(r->g, r->n);
    snd_k_conv_dw(r->threads, r->t, &c, snd_in(r, 0)->p, snd_in(r, 1)->p, snd_out(r, 0)->p, r->scratch);
    done(r);
}

static void dw_grad(snd_graph *g, const snd_node *n, const snd_id *dout, const bool *need, snd_id *din) {
    const snd_shape x = snd_shape_of(g, n->in[1]);
    const snd_attr for_x = {.i = {stride_of(n), x.dim[1], x.dim[2]}};
    if (need[1]) din[1] = snd_g_op(g, SND_OP_CONV_DX, (snd_id[]){n->in[0], dout[0]}, 2, &for_x, NULL);
    if (need[0]) din[0] = snd_g_conv(g, n->in[1], dout[0], stride_of(n));
}

static size_t dw_scratch(const snd_graph *g, const snd_node *n) {
    const snd_kconv c = dw_of(g, n);
    return snd_k_conv_dw_scratch(snd_graph_dtype(g), &c);
}

static void dw_cost(const snd_graph *g, const snd_node *n, double *flops, double *bytes) {
    const snd_kconv c = dw_of(g, n);
    cost_of(g, n, &c, flops, bytes);
}

static const snd_op_case dw_cases[] = {
    {.label = "stride 2", .n_in = 2, .in = {{4, {2, 3, 2, 4}}, {4, {2, 5, 4, 3}}}, .attr = {.i = {2, 3}}}};

const snd_op_info snd_op_conv_dw = {.name = "conv_dw",
                                    .shape = dw_shape,
                                    .run = dw_run,
                                    .grad = dw_grad,
                                    .scratch = dw_scratch,
                                    .cost = dw_cost,
                                    SND_CASES(dw_cases)};

// ---- pool -----------------------------------------------------------------------------------------------------------

snd_id snd_g_pool(snd_graph *g, snd_id x) {
    if (!x) return 0;
    const snd_shape s = snd_shape_of(g, x);
    if (s.nd != 4) return snd_g_fail(g, SONDE_ESHAPE, "pool: images [B, H, W, channels] are needed");
    const int64_t places = s.dim[1] * s.dim[2];
    const snd_id sum =
        snd_g_sum_to(g, snd_g_reshape(g, x, SND_SHAPE(s.dim[0], places, s.dim[3])), SND_SHAPE(s.dim[0], 1, s.dim[3]));
    return snd_g_reshape(g, snd_g_scale(g, 1 / (double)places, sum), SND_SHAPE(s.dim[0], 1, 1, s.dim[3]));
}
