// The rows of fusions.def: when a pair fits and what the fused node is. Fused and unfused give the same bits,
// but for sums of statistics that are taken in pieces and for a head's gradients, which are summed in other pieces.
#include "ops/ops_impl.h"

#include <string.h>

// ---- residual add followed by a norm of the sum ---------------------------------------------------------------------

static bool add_norm_fits(const snd_graph *g, const snd_node *first, const snd_node *second, int port) {
    (void)second;
    int64_t R, D;
    snd_rows(snd_shape_of(g, first->out[0]), &R, &D);
    return port == 0 && D > 1;
}

static void add_norm_merge(const snd_graph *g, const snd_node *first, const snd_node *second, int port,
                           snd_node *fused) {
    (void)g;
    (void)port;
    memcpy(fused->in, (snd_id[]){first->in[0], first->in[1], second->in[1], second->in[2]}, 4 * sizeof(snd_id));
    fused->n_in = 4;
    fused->attr = second->attr;
    fused->attr.f[3] = first->attr.f[0];
    fused->attr.f[4] = first->attr.f[1];
    fused->out[0] = first->out[0];
    for (int k = 0; k < second->n_out; k++) fused->out[k + 1] = second->out[k];
    fused->n_out = second->n_out + 1;
}

// ---- a norm's backward pass followed by the sum with the residual's gradient ----------------------------------------

// The first output is dx, where it is wanted.
static bool norm_join_fits(const snd_graph *g, const snd_node *first, const snd_node *second, int port) {
    const snd_id other = second->in[1 - port];
    const bool plain = second->attr.f[0] == 1 && second->attr.f[1] == 1;
    return plain && first->n_in == 5 && first->attr.i[1] & 1 && other != first->out[0] &&
           snd_shape_same(snd_shape_of(g, other), snd_shape_of(g, first->out[0]));
}

static void norm_join_merge(const snd_graph *g, const snd_node *first, const snd_node *second, int port,
                            snd_node *fused) {
    (void)g;
    memcpy(fused->in, first->in, 5 * sizeof *fused->in);
    fused->in[5] = second->in[1 - port];
    fused->n_in = 6;
    fused->attr = first->attr;
    memcpy(fused->out, first->out, sizeof fused->out);
    fused->out[0] = second->out[0];
    fused->n_out = first->n_out;
}

// ---- linear map followed by its bias ------------------------------------------------------------------------------------------------------------------------------------------------------------

static bool linear_bias_fits(const snd_graph *g, const snd_node *first, const snd_node *second, int port) {
    const snd_id bias = second->in[1 - port];
    const snd_shape s = snd_shape_of(g, bias), y = snd_shape_of(g, first->out[0]);
    const bool plain = second->attr.f[0] == 1 && second->attr.f[1] == 1;
    return plain && first->n_in == 2 && bias != first->out[0] && s.nd == 1 && y.nd > 0 && s.dim[0] == y.dim[y.nd - 1] &&
           snd_shape_same(y, snd_shape_of(g, second->out[0]));
}

static void linear_bias_merge(const snd_graph *g, const snd_node *first, const snd_node *second, int port,
                              snd_node *fused) {
    (void)g;
    memcpy(fused->in, (snd_id[]){first->in[0], first->in[1], second->in[1 - port]}, 3 * sizeof(snd_id));
    fused->n_in = 3;
    fused->out[0] = second->out[0];
    fused->n_out = 1;
}

// ---- the gradient of weights or of a table followed by its statistics -----------------------------------------------

static bool map_stat_fits(const snd_graph *g, const snd_node *first, const snd_node *second, int port) {
    (void)g;
    (void)first;
    return port == 0 && (second->attr.i[0] & ~SND_SM_ONLY_Q) == 0 && !second->in[1];
}

static void stat_merge(const snd_graph *g, const snd_node *first, const snd_node *second, int port, snd_node *fused) {
    (void)g;
    (void)port;
    memcpy(fused->in, first->in, (size_t)first->n_in * sizeof *fused->in);
    fused->n_in = first->n_in;
    fused->attr = first->attr;
    fused->out[0] = second->out[0];
    fused->n_out = 1;
}

static void map_stat_merge(const snd_graph *g, const snd_node *first, const snd_node *second, int port,
                           snd_node *fused) {
    stat_merge(g, first, second, port, fused);
    fused->attr.i[0] = second->attr.i[0];
}

static bool table_stat_fits(const snd_graph *g, const snd_node *first, const snd_node *second, int port) {
    return map_stat_fits(g, first, second, port);
}

static void table_stat_merge(const snd_graph *g, const snd_node *first, const snd_node *second, int port,
                             snd_node *fused) {
    stat_merge(g, first, second, port, fused);
}

// Output 0 is dW where it is wanted; dx, when there is one, stays.
static bool loss_stat_fits(const snd_graph *g, const snd_node *first, const snd_node *second, int port) {
    return first->attr.i[0] & 1 && map_stat_fits(g, first, second, port);
}

static void loss_stat_merge(const snd_graph *g, const snd_node *first, const snd_node *second, int port,
                            snd_node *fused) {
    stat_merge(g, first, second, port, fused);
    fused->out[1] = first->out[1];
    fused->n_out = first->n_out;
}

// ---- the loss of a head and its gradients -----------------------------------------------------------------------------

// Where that is wanted, and nobody has changed the backward pass.
static bool loss_once_fits(const snd_graph *g, const snd_node *first, const snd_node *second, int port) {
    (void)g;
    return first->attr.i[1] && port == 4 && second->in[5] == first->out[2] &&
           !memcmp(first->in, second->in, 3 * sizeof(snd_id));
}

static void loss_once_merge(const snd_graph *g, const snd_node *first, const snd_node *second, int port,
                            snd_node *fused) {
    (void)g;
    (void)port;
    memcpy(fused->in, second->in, 4 * sizeof(snd_id));
    fused->n_in = 4;
    fused->attr = second->attr;
    memcpy(fused->out, first->out, 3 * sizeof(snd_id));
    memcpy(fused->out + 3, second->out, (size_t)second->n_out * sizeof(snd_id));
    fused->n_out = 3 + second->n_out;
}

// ---- batch norm followed by a relu, and their backward ----------------------------------------------------------------

// Bits of a block of columns must be whole words.
static bool whole_words(const snd_graph *g, snd_id x) {
    int64_t R, D;
    snd_rows(snd_shape_of(g, x), &R, &D);
    return D < 64 || D % 64 == 0;
}

static bool batch_relu_fits(const snd_graph *g, const snd_node *first, const snd_node *second, int port) {
    (void)second;
    return port == 0 && !first->attr.i[2] && whole_words(g, first->in[0]);
}

static void batch_relu_merge(const snd_graph *g, const snd_node *first, const snd_node *second, int port,
                             snd_node *fused) {
    (void)g;
    (void)port;
    memcpy(fused->in, first->in, (size_t)first->n_in * sizeof *fused->in);
    fused->n_in = first->n_in;
    fused->attr = first->attr;
    fused->attr.i[2] = 1;
    memcpy(fused->out, first->out, sizeof fused->out);
    fused->out[0] = second->out[0];
    fused->out[first->n_out] = second->out[1];
    fused->n_out = first->n_out + 1;
}

static bool relu_batch_bwd_fits(const snd_graph *g, const snd_node *first, const snd_node *second, int port) {
    (void)first;
    return port == 0 && second->n_in == 4 && whole_words(g, second->in[1]);
}

static void relu_batch_bwd_merge(const snd_graph *g, const snd_node *first, const snd_node *second, int port,
                                 snd_node *fused) {
    (void)g;
    (void)port;
    memcpy(fused->in, second->in, 4 * sizeof *fused->in);
    fused->in[0] = first->in[1];
    fused->in[4] = first->in[0];
    fused->n_in = 5;
    fused->attr = second->attr;
    memcpy(fused->out, second->out, sizeof fused->out);
    fused->n_out = second->n_out;
}

// ---- attention followed by the statistics of its weights ---------------------------------------------------------------

// They name the attention that they belong to where it would have positions.
static bool attention_stat_fits(const snd_graph *g, const snd_node *first, const snd_node *second, int port) {
    (void)g;
    return port == 6 && !first->in[port] && second->n_in == first->n_in && first->n_out == 2;
}

static void attention_stat_merge(const snd_graph *g, const snd_node *first, const snd_node *second, int port,
                                 snd_node *fused) {
    (void)g;
    (void)port;
    memcpy(fused->in, first->in, (size_t)first->n_in * sizeof *fused->in);
    fused->n_in = first->n_in;
    fused->attr = first->attr;
    memcpy(fused->out, (snd_id[]){first->out[0], first->out[1], second->out[0]}, 3 * sizeof(snd_id));
    fused->n_out = 3;
}

// ---- the gradient of a table added to another one --------------------------------------------------------------------

static bool table_sum_fits(const snd_graph *g, const snd_node *first, const snd_node *second, int port) {
    const snd_id other = second->in[1 - port];
    const bool plain = second->attr.f[0] == 1 && second->attr.f[1] == 1 && other != first->out[0];
    return plain && snd_shape_same(snd_shape_of(g, other), snd_shape_of(g, first->out[0]));
}

static void table_sum_merge(const snd_graph *g, const snd_node *first, const snd_node *second, int port,
                            snd_node *fused) {
    (void)g;
    memcpy(fused->in, (snd_id[]){second->in[1 - port], first->in[0], first->in[1]}, 3 * sizeof(snd_id));
    fused->n_in = 3;
    fused->attr = first->attr;
    fused->out[0] = second->out[0];
    fused->n_out = 1;
}

static const snd_fusion rows[] = {
#define SND_FUSION_ROW(row, a, b, ab, output, stays, later)                                                            \
    {.name = #row,                                                                                                     \
     .first = SND_OP_##a,                                                                                              \
     .second = SND_OP_##b,                                                                                             \
     .fused = SND_OP_##ab,                                                                                             \
     .out = output,                                                                                                    \
     .fits = row##_fits,                                                                                               \
     .merge = row##_merge,                                                                                             \
     .keeps_middle = stays,                                                                                            \
     .late = later},
#include "ops/fusions.def"
#undef SND_FUSION_ROW
};

const snd_fusion *snd_fusion_at(int i) {
    return i >= 0 && i < (int)(sizeof rows / sizeof *rows) ? &rows[i] : NULL;
}
