// The kernels that sonde itself runs on, for programs of other kinds: norms, residual add and norm in one pass, attention
// that never stores its scores, cross-entropy. They work on the caller's arrays, know no graph, and keep no state.
//
// Arrays are dense and row-major, of `type` elements unless a comment says float, double or int64_t; no alignment is needed
// beyond the element's. `threads` 0 takes all cores; results have the same bits for any number of threads. The instruction set
// (baseline, AVX2, AVX-512) is chosen at run time; SONDE_ISA=base|avx2|avx512 in the environment sets a limit. Norms and
// losses have the same bits on each of them, attention fuses multiply-adds where it can.
// A NaN or Inf in a row makes results of that row NaN or Inf and of no other.
#ifndef SONDE_KERNELS_H
#define SONDE_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include <sonde/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/// BF16: arrays of rows are uint16_t, the upper halves of f32 numbers (bfloat16). Arithmetic and sums are those of F32, on the
/// widened numbers, and each result is rounded once, to nearest even, as it is stored; a NaN stays NaN. Gains, biases and their
/// gradients are float, as mixed precision keeps them (PyTorch's autocast leaves parameters of norms in f32); statistics are
/// double.
typedef enum sonde_type { SONDE_TYPE_NONE, SONDE_TYPE_F32, SONDE_TYPE_F64, SONDE_TYPE_BF16 } sonde_type;

// ---- norms over the features of a row -------------------------------------------------------------------------------

typedef enum sonde_norm_kind { SONDE_NORM_NONE, SONDE_NORM_LAYER, SONDE_NORM_RMS } sonde_norm_kind;

/// A LayerNorm or RMSNorm of rows [features]. Fill with {0} and set what is wanted.
typedef struct sonde_norm {
    sonde_norm_kind kind;
    sonde_type type;
    int64_t features;           ///< D, at least 1
    double eps;                 ///< added to the variance (mean square), not to the deviation; at least 0
    const void *gain;           ///< g [D], or NULL: 1; float for BF16
    const void *bias;           ///< b [D], or NULL: 0; float for BF16
    int plus1;                  ///< 1: the gain is stored as g and used as 1 + g
    int threads;
} sonde_norm;

/// y = (x - m) r g + b, r = 1/sqrt(v + eps).   LAYER: m = mean x, v = mean (x-m)^2;  RMS: m = 0, v = mean x^2
/// x, y        [rows, D]; y overlaps nothing
/// mean, rstd  [rows] double, what backward needs; mean may be NULL for RMS
/// numerics    sums in lanes of the type over 1024 features, in double beyond; the variance about the mean, never
///             E[x^2] - m^2; rows out of the type's safe range are redone in double under a power of two, so 1e30,
///             subnormals and large offsets are right; a constant row gives b exactly
/// errors      SONDE_ERANGE, SONDE_EUSAGE: a description or array that can't be; nothing is written then
/// source      Ba, Kiros, Hinton 2016; Zhang, Sennrich 2019
SONDE_API sonde_status sonde_norm_forward(const sonde_norm *n, int64_t rows, const void *x, void *y, double *mean,
                                          double *rstd) SONDE_MUST_CHECK;

/// s = alpha x + beta y, then z = norm(s), one pass over the rows; the bits of the two steps taken apart. BF16: z, mean and
/// rstd are those of s as it is stored, rounded, which is what backward reads: else it would be the gradient of another function.
/// x, y, s, z  [rows, D]; s may be x or y, z overlaps nothing
/// source      LayerNorm(x + Sublayer(x)): Vaswani et al. 2017, section 3.1; alpha: DeepNorm, Wang et al. 2022
SONDE_API sonde_status sonde_addnorm_forward(const sonde_norm *n, int64_t rows, double alpha, const void *x, double beta,
                                             const void *y, void *s, void *z, double *mean,
                                             double *rstd) SONDE_MUST_CHECK;

/// Backward of both. With u = dz g:  ds = r (u - mean u - xh mean(u xh)) + plus,  dg = sum dz xh,  db = sum dz over the rows
/// (RMS: without mean u). The gradients of x and y are alpha ds and beta ds.
/// dz, s       [rows, D]: gradient of the norm's result; what the norm read (x of sonde_norm_forward, s of the fused one)
/// plus        [rows, D] or NULL: the gradient of s through everything else, such as the residual stream behind it
/// ds          [rows, D] or NULL; may be dz or plus
/// dg, db      [D] or NULL; overwritten; float for BF16
/// scratch     sonde_norm_backward_scratch bytes, 8-byte aligned, where dg or db is wanted; NULL: taken from the heap
/// errors      as forward; SONDE_ENOMEM
SONDE_API sonde_status sonde_norm_backward(const sonde_norm *n, int64_t rows, const void *dz, const void *s,
                                           const double *mean, const double *rstd, const void *plus, void *ds, void *dg,
                                           void *db, void *scratch) SONDE_MUST_CHECK;
SONDE_API size_t sonde_norm_backward_scratch(int64_t rows, int64_t features);

// ---- attention --------------------------------------------------------------------------------------------------------

/// softmax(scale q k^T) v of every head; query head h reads key and value head h / (heads / kv_heads). Query i stands at
/// position past + i, past = keys - queries. Fill with {0} and set what is wanted.
typedef struct sonde_attention {
    sonde_type type;
    int64_t batch, queries, keys;
    int64_t heads, kv_heads, head_dim;  ///< kv_heads divides heads; 0: heads
    double scale;                       ///< 0: 1/sqrt(head_dim)
    double softcap;                     ///< c: scores become c tanh(score/c) before the mask; 0: none
    int causal;                         ///< 1: no key behind the query; queries <= keys
    int64_t window;                     ///< w: causal: position - key < w, else |position - key| < w; 0: none
    const int64_t *lengths;             ///< [batch]: keys that there are, 1 .. keys; NULL: all
    int threads;
} sonde_attention;

/// q, out [batch, queries, heads head_dim];  k, v [batch, keys, kv_heads head_dim];  lse [batch, heads, queries] double: the
/// logarithms of the softmax's sums, for backward.
/// memory      scores exist 64 x 64 at a time; scratch does not grow with keys. NULL: taken from the heap. BF16: some heads or
///             examples at a time are widened, 32 MiB or one head of keys with those that read it, whatever the batch is
/// numerics    sums in the type within 64 keys, in double across; softmax with a running maximum
/// errors      SONDE_ERANGE, SONDE_EUSAGE, SONDE_ENOMEM; nothing is written then
/// source      Vaswani et al. 2017, section 3.2; online softmax: Milakov, Gimelshein 2018; tiles: Dao et al. 2022
SONDE_API sonde_status sonde_attention_forward(const sonde_attention *a, const void *q, const void *k, const void *v,
                                               void *out, double *lse, void *scratch) SONDE_MUST_CHECK;
/// Gradients of q, k, v (each may be NULL) of dout; out and lse are forward's. Scores are computed again. BF16: out's rounding
/// shows in dq and dk, as it is read again.
SONDE_API sonde_status sonde_attention_backward(const sonde_attention *a, const void *q, const void *k, const void *v,
                                                const void *out, const double *lse, const void *dout, void *dq, void *dk,
                                                void *dv, void *scratch) SONDE_MUST_CHECK;
/// Bytes of scratch, 64-byte aligned, for either direction.
SONDE_API size_t sonde_attention_scratch(const sonde_attention *a);

// ---- losses -----------------------------------------------------------------------------------------------------------

/// Mean over rows with a target of  lse - (1 - smoothing) logit[target] - smoothing mean(logit).
/// logits      [rows, classes]
/// target      [rows], 0 .. classes - 1, or `ignore`: the row does not count
/// lse         [rows] double, for backward;  *used: rows that count;  *loss: NaN where none does
/// errors      SONDE_ERANGE: a target that is neither a class nor `ignore`, which is named; SONDE_ENOMEM: BF16, which
///             widens some rows at a time on the heap
/// source      label smoothing: Szegedy et al. 2016, section 7
SONDE_API sonde_status sonde_cross_entropy_forward(sonde_type type, int64_t rows, int64_t classes, double smoothing,
                                                   const void *logits, const int64_t *target, int64_t ignore, double *lse,
                                                   int64_t *used, double *loss, int threads) SONDE_MUST_CHECK;
/// dlogits = dloss/used (softmax(logits) - target's distribution), 0 in rows that do not count; may be logits.
SONDE_API sonde_status sonde_cross_entropy_backward(sonde_type type, int64_t rows, int64_t classes, double smoothing,
                                                    const void *logits, const int64_t *target, int64_t ignore,
                                                    const double *lse, int64_t used, double dloss, void *dlogits,
                                                    int threads) SONDE_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
