// Images between the order of files, [B, C, H, W], and that of graphs, [B, H, W, C]: there a channel is a feature and a
// place of an image a row, so norms, elementwise operations and statistics serve images as they serve tokens.
#include "ops/ops_impl.h"

#include <string.h>

// out[b][j][i] = in[b][i][j], i < n, j < m
static void transpose(size_t size, int64_t B, int64_t n, int64_t m, const char *in, char *out) {
    if (n == 1 || m == 1) {
        memcpy(out, in, (size_t)(B * n * m) * size);
        return;
    }
    for (int64_t b = 0; b < B; b++, in += (size_t)(n * m) * size, out += (size_t)(n * m) * size)
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < m; j++)
                memcpy(out + (size_t)(j * n + i) * size, in + (size_t)(i * m + j) * size, size);
}

static sonde_status shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    (void)dtype;
    char a[160];
    const snd_shape x = snd_shape_of(g, n->in[0]);
    SND_FAIL_IF(x.nd != 4, SONDE_ESHAPE, "%s is no shape of a batch of images, which has 4 dimensions",
                snd_shape_text(x, a));
    const bool last = n->op == SND_OP_CHANNELS_LAST;
    *out = last ? SND_SHAPE(x.dim[0], x.dim[2], x.dim[3], x.dim[1]) : SND_SHAPE(x.dim[0], x.dim[3], x.dim[1], x.dim[2]);
    return SONDE_OK;
}

static void run(snd_oprun *r) {
    const snd_shape s = snd_in_shape(r, 0);
    const bool last = r->n->op == SND_OP_CHANNELS_LAST;
    const int64_t n = last ? s.dim[1] : s.dim[1] * s.dim[2], m = last ? s.dim[2] * s.dim[3] : s.dim[3];
    const snd_rv *x = snd_in(r, 0);
    transpose(snd_dtype_size(r->t), s.dim[0], n, m, x->p, snd_out(r, 0)->p);
    snd_out_done(r, 0, x->e, x->amax);
}

static void grad(snd_graph *g, const snd_node *n, const snd_id *dout, const bool *need, snd_id *din) {
    (void)need;
    din[0] = n->op == SND_OP_CHANNELS_LAST ? snd_g_channels_first(g, dout[0]) : snd_g_channels_last(g, dout[0]);
}

static const snd_op_case cases[] = {{.label = "2x3x4x5", .n_in = 1, .in = {{4, {2, 3, 4, 5}}}},
                                    {.label = "one channel", .n_in = 1, .in = {{4, {2, 1, 3, 4}}}}};

const snd_op_info snd_op_channels_last = {
    .name = "channels_last", .shape = shape, .run = run, .grad = grad, .cost = snd_cost_few, SND_CASES(cases)};
const snd_op_info snd_op_channels_first = {
    .name = "channels_first", .shape = shape, .run = run, .grad = grad, .cost = snd_cost_few, SND_CASES(cases)};

snd_id snd_g_channels_last(snd_graph *g, snd_id x) {
    return x ? snd_g_op(g, SND_OP_CHANNELS_LAST, &x, 1, NULL, NULL) : 0;
}

snd_id snd_g_channels_first(snd_graph *g, snd_id x) {
    return x ? snd_g_op(g, SND_OP_CHANNELS_FIRST, &x, 1, NULL, NULL) : 0;
}
