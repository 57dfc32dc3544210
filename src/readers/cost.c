// Counts: FLOPs and bytes of one example, forward and backward, operation by operation. Products are exact (2mnk, twice
// that backward: one product for the input's gradient, one for the weights'). The rest are nominal counts, good to a
// factor of two: what a plain loop does per element, with a transcendental function taken as FN flops. Bytes are what each
// operation alone reads and writes of activations in f32; a fused kernel moves less. Weights are counted apart.
#include "readers/describe_impl.h"

enum { F32 = 4, FN = 12, SOFTMAX_FN = 15 };

snd_cost snd_cost_beyond(const snd_cost *all, const snd_cost *less) {
    return (snd_cost){.gemm = all->gemm - less->gemm,
                      .attention = all->attention - less->attention,
                      .norm = all->norm - less->norm,
                      .elementwise = all->elementwise - less->elementwise,
                      .bytes = all->bytes - less->bytes};
}

void snd_cost_gemm(snd_description *d, double rows, double in, double out) {
    d->forward.gemm += 2 * rows * in * out;
    d->forward.bytes += F32 * rows * (in + out);
    d->backward.gemm += 4 * rows * in * out;
    d->backward.bytes += F32 * rows * (2 * in + 2 * out); // dy twice, x, dx
}

// pairs: (query, key) pairs that the mask lets through. q.k, the weighted sum and, where there is one, the product with the
// distance are 2 head_dim each; softmax is a maximum, a subtraction, an exponential, a sum and a division per pair. Backward:
// two products for one, and p*(dp - sum).
void snd_cost_attention(snd_description *d, double queries, double pairs, double heads, double head_dim,
                        double products) {
    d->forward.attention += heads * pairs * (2 * products * head_dim + SOFTMAX_FN);
    d->forward.bytes += F32 * heads * (4 * queries * head_dim + 2 * pairs);
    d->backward.attention += heads * pairs * (4 * products * head_dim + 4);
    d->backward.bytes += F32 * heads * (8 * queries * head_dim + 4 * pairs);
}

void snd_cost_norm(snd_description *d, snd_norm_kind kind, double elements) {
    // forward: sum, centre, square-sum, scale, gain, bias; rms and scale have no mean and no bias
    const double fwd = kind == SND_NORM_LAYER || kind == SND_NORM_BATCH ? 7
                       : kind == SND_NORM_RMS                           ? 4
                       : kind == SND_NORM_SCALE                         ? 3
                                                                        : FN + 3;
    const double bwd = kind == SND_NORM_LAYER || kind == SND_NORM_BATCH ? 13
                       : kind == SND_NORM_RMS                           ? 9
                       : kind == SND_NORM_SCALE                         ? 6
                                                                        : 8;
    if (kind == SND_NORM_NONE) return;
    d->forward.norm += fwd * elements;
    d->forward.bytes += F32 * 2 * elements;
    d->backward.norm += bwd * elements;
    d->backward.bytes += F32 * 3 * elements;
}

void snd_cost_unary(snd_description *d, snd_fn fn, double elements) {
    const bool cheap = fn == SND_FN_RELU || fn == SND_FN_ABS || fn == SND_FN_NEG || fn == SND_FN_NONE;
    d->forward.elementwise += (cheap ? 1 : FN) * elements;
    d->forward.bytes += F32 * 2 * elements;
    d->backward.elementwise += (cheap ? 1 : FN + 1) * elements;
    d->backward.bytes += F32 * 3 * elements;
}

// in: elements read, of all operands together.
void snd_cost_binary(snd_description *d, double in, double out) {
    d->forward.elementwise += out;
    d->forward.bytes += F32 * (in + out);
    d->backward.elementwise += in;
    d->backward.bytes += F32 * (in + out);
}

double snd_cost_elements(const snd_describer *b, const snd_val *v) {
    switch (v->kind) {
    case SND_V_STREAM: return (double)b->tokens * (double)v->cols;
    case SND_V_TOKEN: return (double)b->tokens;
    case SND_V_EXAMPLE: return (double)v->cols;
    case SND_V_MAP: return (double)v->cols * (double)v->h * (double)v->w;
    default: return 0; // learned numbers and vectors: once for the whole batch
    }
}
