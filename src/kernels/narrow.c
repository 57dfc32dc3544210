// Logits stored as bf16: a block of rows becomes f32, passes through the loops for f32 in the caches, and what comes out is
// rounded once. How rows make blocks depends on their length alone. And conversion of whole arrays.
#include "kernels/narrow.h"

enum { BLOCK = 4 << 10 }; // numbers, unless one row has more

// ---- conversion -------------------------------------------------------------------------------------------------------

void snd_k_bf16_widen(int64_t n, const uint16_t *x, float *y) {
    static snd_kt_bf16_widen *const fn[] = {snd_k_bf16_widen_f32_base, snd_k_bf16_widen_f32_avx2,
                                            snd_k_bf16_widen_f32_avx512};
    fn[snd_k_isa() - 1](n, x, y);
}

void snd_k_bf16_narrow(int64_t n, const float *x, uint16_t *y) {
    static snd_kt_bf16_narrow *const fn[] = {snd_k_bf16_narrow_f32_base, snd_k_bf16_narrow_f32_avx2,
                                             snd_k_bf16_narrow_f32_avx512};
    fn[snd_k_isa() - 1](n, x, y);
}

double snd_k_bf16_absmax(int64_t n, const uint16_t *x) {
    uint32_t most = 0; // magnitudes order like their bits, with NaN above Inf
    for (int64_t i = 0; i < n; i++) most = (x[i] & 0x7fffu) > most ? x[i] & 0x7fffu : most;
    return (double)snd_bf16_to_f32((uint16_t)most);
}

// ---- blocks -----------------------------------------------------------------------------------------------------------

snd_narrow snd_narrow_make(int th, int64_t D, void *scratch) {
    const int64_t rows = D > 0 && D < BLOCK ? BLOCK / D : 1;
    snd_narrow n = {.D = D, .rows = rows, .threads = th < SND_SLOTS ? th : SND_SLOTS};
    n.slots.base = scratch;
    n.slots.bytes = snd_slot_up(rows * D * (int64_t)sizeof(float));
    return n;
}

size_t snd_k_bf16_rows_scratch(int th, int64_t D) {
    const snd_narrow n = snd_narrow_make(th, D, NULL);
    return D > 0 && th > 0 ? (size_t)(n.threads * n.slots.bytes) : 0;
}

// Rows of the block that begins with row i.
static int64_t rows_from(const snd_narrow *n, int64_t i, int64_t rows) {
    return rows - i < n->rows ? rows - i : n->rows;
}

double snd_narrow_xent(snd_narrow *n, snd_kt_xent *f, int64_t rows, double s, double smooth, const uint16_t *logits,
                       const int64_t *target, int64_t ignore, double *lse, int64_t *used) {
    const int slot = snd_slot_take(&n->slots);
    float *const in = snd_slot_at(&n->slots, slot);
    double loss = 0;
    *used = 0;
    for (int64_t i = 0; i < rows; i += n->rows) {
        const int64_t k = rows_from(n, i, rows);
        int64_t some;
        snd_k_bf16_widen(k * n->D, logits + i * n->D, in);
        loss += f(k, n->D, s, smooth, in, target + i, ignore, lse + i, &some);
        *used += some;
    }
    snd_slot_give(&n->slots, slot);
    return loss;
}

void snd_narrow_xent_bwd(snd_narrow *n, snd_kt_xent_bwd *f, int64_t rows, double s, double smooth,
                         const uint16_t *logits, const int64_t *target, int64_t ignore, const double *lse, double scale,
                         uint16_t *dx) {
    const int slot = snd_slot_take(&n->slots);
    float *const wide = snd_slot_at(&n->slots, slot);
    for (int64_t i = 0; i < rows; i += n->rows) {
        const int64_t k = rows_from(n, i, rows), at = i * n->D;
        snd_k_bf16_widen(k * n->D, logits + at, wide);
        f(k, n->D, s, smooth, wide, target + i, ignore, lse + i, scale, wide);
        snd_k_bf16_narrow(k * n->D, wide, dx + at);
    }
    snd_slot_give(&n->slots, slot);
}
