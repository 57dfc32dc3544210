// What kernels/ offers. `t` is SND_F32 or SND_F64 (type of every void* array), of norms SND_BF16 too; `th` the number of threads
// allowed.
// Arrays are dense row-major unless strides are given. R rows, D features. Statistics (mean, rstd, sums) are double.
// In-place use (out == x) is allowed where "in place" is said. All results are bitwise independent of `th` and, but for
// the matrix product, attention and the effective rank, of the instruction set: nothing else fuses a multiply-add or sums
// in an order of its own. Errors of the elementary functions in ulp: tests/kernels_maths_test.c. No alignment is needed
// beyond the type's.
#ifndef SND_KERNELS_API_H
#define SND_KERNELS_API_H

#include "tensor/tensor.h"

// ---- matrix product ------------------------------------------------------------------------------------------------
/// C[M,N] = alpha op(A) op(B) + beta C; op(A) is [M,K] (ta: A stored [K,M]), op(B) is [K,N] (tb: B stored [N,K]).
/// The product is cut into a tile grid that depends on the shape only; each tile is one single-threaded library call
/// (f32: oneDNN; OpenBLAS where its build may be called from several threads; both loaded with dlopen at the first
/// product worth it) or our own kernel (f32 x W' with AVX-512, where it is faster than oneDNN's; f64 where OpenBLAS may
/// not or does not know the processor; everything up to 32^3). beta = 0 ignores C's contents; C may not overlap A or B.
/// f32 sums in f32, f64 in f64, both with FMA: bits depend on library and CPU.
/// f32 where the CPU has tiles for bf16 (AMX): large products take each number apart in three bf16 numbers, exactly, and
/// sum the six larger products of parts, in f32 in blocks of 128 of K: errors are a half to a quarter of those of
/// multiply-adds. Tiles of C whose operands leave the range of that (bf16.c, in_range; NaN and Inf do) are made by
/// multiply-adds. SONDE_ISA=avx512 in the environment does without.
void snd_k_gemm(int th, snd_dtype t, bool ta, bool tb, int64_t M, int64_t N, int64_t K, double alpha, const void *A,
                int64_t lda, const void *B, int64_t ldb, double beta, void *C, int64_t ldc);
/// The same plus bias[N] on every row (NULL: none), rounded as a sum of its own. Returns the largest |C|, NaN where there is
/// one: both are taken from tiles that are still in the cache.
double snd_k_gemm_bias(int th, snd_dtype t, bool ta, bool tb, int64_t M, int64_t N, int64_t K, double alpha, const void *A,
                       int64_t lda, const void *B, int64_t ldb, double beta, void *C, int64_t ldc, const void *bias);
const char *snd_k_gemm_name(snd_dtype t);        // "oneDNN 2.6.3", "OpenBLAS 0.3.21", "own"

/// The same in f32 memory with op(A) and op(B) rounded to bf16 (nearest even; NaN and Inf stay, what is subnormal becomes
/// 0), sums in f32. Bits depend on the CPU alone: by AMX or AVX512-BF16, whose instructions also take results that are
/// subnormal for 0, or by f32 multiply-adds; never on th. beta = 0 ignores C's contents. bias, result: as snd_k_gemm_bias.
/// scratch: as many bytes as said, 64-byte aligned.
size_t snd_k_gemm_bf16_scratch(int64_t M, int64_t K);
double snd_k_gemm_bf16(int th, bool ta, bool tb, int64_t M, int64_t N, int64_t K, double alpha, const float *A, int64_t lda,
                       const float *B, int64_t ldb, double beta, float *C, int64_t ldc, const float *bias, void *scratch);
const char *snd_k_bf16_name(void);               // "AMX", "AVX512-BF16", "f32 by AVX2"

/// oneDNN's own products with its own threads, for the bench. Open gives NULL without oneDNN 2; signals of the calling
/// thread must wait while one runs (see gemm.c).
typedef struct snd_kpeer snd_kpeer;
snd_kpeer *snd_k_peer_open(int threads);
void snd_k_peer_close(snd_kpeer *d);
/// The product that the next calls make: dense matrices as for snd_k_gemm, f32. False: oneDNN refuses.
bool snd_k_peer_set(snd_kpeer *d, bool ta, bool tb, int64_t M, int64_t N, int64_t K, const float *A, const float *B, float *C);
void snd_k_peer_sgemm(const snd_kpeer *d);         // by dnnl_sgemm
void snd_k_peer_matmul(const snd_kpeer *d);        // by the matmul primitive

// ---- convolution ---------------------------------------------------------------------------------------------------
// Of images with channels last: x [B, H, W, Ci], w [Co, Ci, k, k], y [B, Ho, Wo, Co]; zeros around x, floor(k/2) wide.
//   y[b, i, j, o] = sum over c, u, v of x[b, i*stride + u - k/2, j*stride + v - k/2, c] * w[o, c, u, v]
// Sums in T, with FMA where the instruction set has it; those of a result run in one order whatever the cut, which
// depends on the shape alone. f32, k = 3, stride 1, Ci and Co multiples of 16, H and W above 3: by tiles of 2x2 results
// (winograd.inc), whose error is some times that of a sum, relative to the results around; there a number that is not
// finite also reaches the other results of a tile that reads it. scratch: as many bytes as said by the function of that name, 64-byte aligned.
typedef struct snd_kconv { int64_t B, H, W, Ci, Co, k, stride; } snd_kconv;
/// Ho of H, Wo of W: floor((size + 2 floor(k/2) - k)/stride) + 1; at least 1 in what follows.
int64_t snd_k_conv_size(int64_t size, int64_t k, int64_t stride);
size_t snd_k_conv_fwd_scratch(snd_dtype t, const snd_kconv *c);
void snd_k_conv_fwd(int th, snd_dtype t, const snd_kconv *c, const void *x, const void *w, void *y, void *scratch);
/// dx of dy; places that no y reads get 0.
size_t snd_k_conv_dx_scratch(snd_dtype t, const snd_kconv *c);
void snd_k_conv_dx(int th, snd_dtype t, const snd_kconv *c, const void *dy, const void *w, void *dx, void *scratch);
/// dw of dy and x: the sum, in order, of at most 16 parts, which come from whole strips of images.
size_t snd_k_conv_dw_scratch(snd_dtype t, const snd_kconv *c);
void snd_k_conv_dw(int th, snd_dtype t, const snd_kconv *c, const void *dy, const void *x, void *dw, void *scratch);

// ---- elementwise ---------------------------------------------------------------------------------------------------
typedef enum snd_kbin { SND_KBIN_ADD, SND_KBIN_MUL, SND_KBIN_DIV, SND_KBIN_MIN, SND_KBIN_MAX } snd_kbin;
/// out = a*x + b*y (ADD), a*x*y (MUL), a*x/y (DIV), min/max(a*x, b*y) over dim[3] with element strides (0 broadcasts);
/// out is dense. Returns the largest absolute value of out (NaN if any is NaN). In place on an operand of full shape.
double snd_k_binary(int th, snd_dtype t, snd_kbin op, const int64_t dim[3], double a, const void *x, const int64_t sx[3],
                    double b, const void *y, const int64_t sy[3], void *out);
/// out = a*x + b; in place.
double snd_k_affine(int th, snd_dtype t, int64_t n, double a, const void *x, double b, void *out);
/// min/max backward: dx = dy where a*x is the smaller/larger (half of it in a tie), else 0; same strides as binary.
void snd_k_minmax_bwd(int th, snd_dtype t, bool max, bool second, const int64_t dim[3], double a, const void *x,
                      const int64_t sx[3], double b, const void *y, const int64_t sy[3], const void *dy, void *dx);

typedef enum snd_kfn {
    SND_KFN_NONE, SND_KFN_RELU, SND_KFN_GELU, SND_KFN_GELU_TANH, SND_KFN_SILU, SND_KFN_TANH, SND_KFN_SIGMOID, SND_KFN_ERF,
    SND_KFN_EXP, SND_KFN_SOFTPLUS, SND_KFN_SQRT, SND_KFN_LOG, SND_KFN_ABS, SND_KFN_COUNT
} snd_kfn;
/// y = f(s*x), f any but relu (below); right for every finite input (no overflow inside: softplus(1000) = 1000,
/// silu(-1000) = -0), NaN in NaN out.
double snd_k_unary(int th, snd_dtype t, snd_kfn f, int64_t n, double s, const void *x, void *y);      // in place
/// dx = c * dy * f'(s*x)   (abs'(0) = 0).  In place on dy.
double snd_k_unary_bwd(int th, snd_dtype t, snd_kfn f, int64_t n, double s, const void *x, double c, const void *dy, void *dx);
/// y = max(x, 0) (in place), and for its backward one bit per element: bit i % 64 of above[i / 64] is set unless x[i] <= 0,
/// so for NaN too; above has (n + 63)/64 words. Returns the largest absolute value of y (NaN if any is NaN).
double snd_k_relu(int th, snd_dtype t, int64_t n, const void *x, void *y, uint64_t *above);
/// dx = dy where the bit is set, else 0 (in place on dy); returns the largest absolute value of dx.
double snd_k_relu_bwd(int th, snd_dtype t, int64_t n, const uint64_t *above, const void *dy, void *dx);
double snd_k_fn(snd_kfn f, double x);            // one value in double
double snd_k_fn_grad(snd_kfn f, double x);

/// out[o] = c * sum over the broadcast dimensions; so[k] = 0 where dim[k] is summed. Sums in double, fixed tree.
void snd_k_sum_to(int th, snd_dtype t, const int64_t dim[3], const void *x, double c, const int64_t so[3], int64_t n_out, void *out);

// ---- norms (wirings.md section 2) ----------------------------------------------------------------------------------
typedef enum snd_knorm { SND_KNORM_LAYER, SND_KNORM_RMS, SND_KNORM_UNIT } snd_knorm;
typedef struct snd_normspec {
    snd_knorm kind;
    int64_t D;                // features of a row
    double eps;               // added to the variance or mean square; UNIT: least norm
    double gain0;             // UNIT: what |y| is without a gain
    double gadd;              // the gain of feature j is g[j] + gadd (1 when g is NULL)
    const void *g, *b;        // [D] each, or NULL
} snd_normspec;
/// y = xhat*(g + gadd) + b per row of x, y [R, D];  LAYER: m = mean x, r = 1/sqrt(mean (x-m)^2 + eps); RMS: m = 0,
/// r = 1/sqrt(mean x^2 + eps); UNIT: r = gain0/max(|x|_2, eps). m (LAYER only), r: [R] double, kept for backward. y must
/// not overlap x. Returns the largest |y|, NaN if any is NaN.
/// Sums in double about the row's first element (f64: then about its mean); rows whose statistics leave the type's safe
/// range are redone under a power-of-two scale, so 1e30, subnormals and offsets are right; a constant row gives b
/// exactly; a NaN or Inf in a row makes exactly that row NaN. A row with no spread and eps = 0 has r = 0. Large results
/// (24 MiB) are stored past the caches.
/// SND_BF16, here and in the next two: x, y and gradients of rows are bf16; g, b, dg and db f32, as is the arithmetic. What is
/// stored is rounded once, to nearest even; magnitudes are those before.
double snd_k_norm_fwd(int th, snd_dtype t, const snd_normspec *s, int64_t R, const void *x, void *y, double *m, double *r);
/// sum = a x + b y, then z = the norm of sum, in one pass over the rows: the bits of snd_k_binary and snd_k_norm_fwd. sum
/// may be x or y; z overlaps nothing. Returns the largest |z| and, in *sum_absmax, the largest |sum|. SND_BF16: z is the norm
/// of the sum as it is stored, which backward reads.
double snd_k_addnorm_fwd(int th, snd_dtype t, const snd_normspec *s, int64_t R, double a, const void *x, double b,
                         const void *y, void *sum, void *z, double *m, double *r, double *sum_absmax);
/// With u = dy*gain: dx = r*(u - mean(u) - xhat*mean(u*xhat)) + plus, dg = sum dy*xhat, db = sum dy over the rows (RMS,
/// UNIT: see norm.inc). x is what forward read; plus (may be NULL) a gradient that joins, such as the residual's. dx, dg,
/// db may be NULL; dx may be dy or plus. scratch: snd_k_norm_bwd_scratch bytes where dg or db is wanted. Sums over rows in
/// double, by blocks of a size that the shape gives. Returns the largest |dx|.
double snd_k_norm_bwd(int th, snd_dtype t, const snd_normspec *s, int64_t R, const void *dy, const void *x,
                      const double *m, const double *r, const void *plus, void *dx, void *dg, void *db, double *scratch);
size_t snd_k_norm_bwd_scratch(int64_t R, int64_t D);
/// Batch norm over R rows per feature, biased variance, numerics as for rows; m, r: [D]. var_unbiased (may be NULL): [D]
/// for running averages. y NULL: statistics only. above: NULL, or a relu follows, with one bit per element of its input as
/// in snd_k_relu; then D < 64 or a multiple of 64. In place. Returns the largest absolute value of y.
double snd_k_batch_fwd(int th, snd_dtype t, int64_t R, int64_t D, double eps, double gadd, const void *x, const void *g,
                       const void *b, void *y, double *m, double *r, double *var_unbiased, uint64_t *above);
/// dx, dg, db may each be NULL. above: of the relu behind the norm, which dy comes from. dx in place on dy. Returns the
/// largest absolute value of dx.
double snd_k_batch_bwd(int th, snd_dtype t, int64_t R, int64_t D, double eps, double gadd, const void *dy, const void *x,
                       const void *g, const double *m, const double *r, const uint64_t *above, void *dx, void *dg, void *db);

// ---- tables --------------------------------------------------------------------------------------------------------
/// y[r] = table[ids[r]], table [V,D], y [R,D]; a row of NaN where the number lies outside 0 .. V-1.
void snd_k_gather(int th, snd_dtype t, int64_t V, int64_t D, const void *table, int64_t R, const int64_t *ids, void *y);
/// table[v] = sum of x[r] over the rows with ids[r] = v, r ascending, in the type itself; 0 where there is none. Numbers
/// outside the table are passed by.
void snd_k_scatter_add(int th, snd_dtype t, int64_t R, int64_t D, const int64_t *ids, const void *x, int64_t V, void *table);

// ---- rows ----------------------------------------------------------------------------------------------------------
void snd_k_rowdot(int th, snd_dtype t, int64_t R, int64_t D, double c, const void *x, const void *y, void *out);   // out [R] of type t
void snd_k_softmax(int th, snd_dtype t, int64_t R, int64_t D, double s, const void *x, void *p);                   // softmax(s*x), in place
void snd_k_softmax_bwd(int th, snd_dtype t, int64_t R, int64_t D, double s, const void *p, const void *dp, void *dx);
/// out = sum_k scale[k] w[k] v_k (w: [K], or [R,K] when per_row), K arrays of [R,D]; scale NULL: all 1.
double snd_k_wsum(int th, snd_dtype t, int64_t R, int64_t D, int K, const void *w, bool per_row, const double *scale,
                  const void *const *v, void *out);
/// Mean cross-entropy over rows whose target is not `ignore`; s scales the logits. Returns the loss (NaN over no rows);
/// saves lse[R] (double). smooth: so much of a target's weight is spread evenly over all V classes (Szegedy et al. 2016).
double snd_k_xent_fwd(int th, snd_dtype t, int64_t R, int64_t V, double s, double smooth, const void *logits,
                      const int64_t *target, int64_t ignore, double *lse, int64_t *n_used);
/// In place. A target of V or more is a class outside these columns, where lse stands for more than them.
void snd_k_xent_bwd(int th, snd_dtype t, int64_t R, int64_t V, double s, double smooth, const void *logits,
                    const int64_t *target, int64_t ignore, const double *lse, int64_t n_used, double dloss, void *dlogits);

// ---- attention -----------------------------------------------------------------------------------------------------
// q [B, Tq, heads*hd], k, v [B, Tk, kv_heads*hd]; head h reads kv head h / (heads / kv_heads). Query i stands at index
// past + i and reads the keys j with past + i - back <= j <= past + i + front, 0 <= j < Tk; at least one for each i.
//   s_ij = cap(scale q_i.k_j + scale_r qr_i.r_(past+i-j)) + bias[h][i - j + Tk - 1],  cap(s) = c tanh(s/c)
//   p = softmax of s over j,  out_i = sum_j p_ij v_j,  lse_i = log sum_j e^(s_ij)
// Keys are taken SND_ATTN_K at a time with a running maximum, scores never exist as Tq x Tk. Sums run in T (FMA where the
// instruction set has it) within such a block, row sums in double across blocks. The work is cut by shape alone.
// With `careful` a number that is not finite reaches exactly the results that read it, at some cost; without, it may
// reach further (0 times NaN at masked places), never less far.
enum { SND_ATTN_Q = 64, SND_ATTN_K = 64 };       // queries and keys of a tile
typedef struct snd_kattn {
    int64_t B, Tq, Tk, heads, kv_heads, hd;
    int64_t past, front, back;
    double scale, scale_r, softcap;               // softcap 0: none
    const void *q, *k, *v;
    const void *qr, *r;                           // [B, Tq, heads*hd], [>= past + Tq, heads*hd], or NULL; then no key read
                                                  // lies behind its query
    const void *bias;                             // [heads, Tq + Tk - 1] by distance, the smallest first; or NULL
    double fq, fk, fv, fqr, fr;                   // powers of two: the operands meant are q*fq, k*fk, ...
    const int64_t *lengths;                       // by example: keys that there are, 1 .. Tk; NULL: Tk. A query that reads none
                                                  // of them (a window behind their end) gives 0
    double drop;                                  // dropout of the weights p behind the softmax, 0: none. The weight of
    snd_key drop_key;                             // query i and key j is draw number (((b + first) heads + h) Tk + j) Tq + i
    int64_t first;                                // of snd_k_dropout's stream
    bool careful;
} snd_kattn;
typedef enum snd_kattn_use { SND_KATTN_FWD, SND_KATTN_BWD, SND_KATTN_STATS } snd_kattn_use;
/// Bytes of scratch (64-byte aligned) of snd_k_attn_fwd and snd_k_attn_stats; of a, only the shape and whether r and
/// bias are NULL count.
size_t snd_k_attn_scratch(snd_dtype t, const snd_kattn *a, snd_kattn_use use);
/// lse: [B, heads, Tq]. stats: NULL, or what snd_k_attn_stats gives, bit for bit, from the scores that are at hand.
void snd_k_attn_fwd(int th, snd_dtype t, const snd_kattn *a, void *out, double *lse, double *stats, void *scratch);
/// Gradients, each may be NULL; without the factor scale (dq, dk) or scale_r (dqr, dr), which the caller knows better.
/// out and dout: [B, Tq, heads*hd], meant as out*fout and dout*fdout. dbias: like bias, in double.
typedef struct snd_kattn_grads {
    const void *out, *dout;
    double fout, fdout;
    const double *lse;
    void *dq, *dk, *dv, *dqr, *dr;
    int64_t r_rows;                               // of r and dr
    double *dbias;
} snd_kattn_grads;
size_t snd_k_attn_bwd_scratch(snd_dtype t, const snd_kattn *a, const snd_kattn_grads *g);
void snd_k_attn_bwd(int th, snd_dtype t, const snd_kattn *a, const snd_kattn_grads *g, void *scratch);
/// out[3]: mean over rows of the entropy of p (nats); largest s_ij (NaN if any is NaN); mean of the entropy over the
/// logarithm of the number of keys read, over rows that read more than one (NaN: there are none).
void snd_k_attn_stats(int th, snd_dtype t, const snd_kattn *a, double *out, void *scratch);

// ---- arrays stored as bf16 -----------------------------------------------------------------------------------------
// Norms take SND_BF16 for t. Here: cross-entropy and attention on logits, q, k, v, out and gradients stored as bf16; statistics
// are double. Arithmetic is that of the f32 loops on the widened numbers; what is stored is rounded once, to nearest even.
/// The largest magnitude, NaN where there is one.
double snd_k_bf16_absmax(int64_t n, const uint16_t *x);
/// Bytes of `blocks`, 64-byte aligned: some rows of V in f32 for each of th threads.
size_t snd_k_bf16_rows_scratch(int th, int64_t V);
double snd_k_bf16_xent_fwd(int th, int64_t R, int64_t V, double s, double smooth, const uint16_t *logits,
                           const int64_t *target, int64_t ignore, double *lse, int64_t *n_used, void *blocks);
void snd_k_bf16_xent_bwd(int th, int64_t R, int64_t V, double s, double smooth, const uint16_t *logits,
                         const int64_t *target, int64_t ignore, const double *lse, int64_t n_used, double dloss,
                         uint16_t *dlogits, void *blocks);
/// Attention without r, bias and dropout; fq, fk, fv, fout and fdout are 1. Heads are widened some at a time, so scratch
/// (64-byte aligned) grows with the tokens of one head where that is much, else with a part of the whole.
size_t snd_k_bf16_attn_scratch(const snd_kattn *a);
void snd_k_bf16_attn_fwd(int th, const snd_kattn *a, uint16_t *out, double *lse, void *scratch);
/// dq, dk, dv of g alone, with the factor scale.
size_t snd_k_bf16_attn_bwd_scratch(const snd_kattn *a, const snd_kattn_grads *g);
void snd_k_bf16_attn_bwd(int th, const snd_kattn *a, const snd_kattn_grads *g, void *scratch);

/// Rotates pairs of the first `rotated` features of every head of x [B, T, heads*hd] by sign*(past + t)*theta^(-2i/rotated),
/// i the pair: features (i, i + rotated/2), or (2i, 2i + 1) when interleaved. Angles in double. In place.
void snd_k_rope(int th, snd_dtype t, int64_t B, int64_t T, int64_t heads, int64_t hd, int64_t rotated, bool interleaved,
                double theta, int64_t past, double sign, const void *x, void *y);

// ---- draws ---------------------------------------------------------------------------------------------------------
/// Elements first .. first+n-1 of the key's stream (base.h), vectorised; equal to snd_normal_at bit for bit per type and
/// for every instruction set. out = a*z.
void snd_k_fill_normal(int th, snd_dtype t, snd_key key, uint64_t first, int64_t n, double a, void *out);
void snd_k_fill_trunc(int th, snd_dtype t, snd_key key, uint64_t first, int64_t n, double a, void *out);    // z cut at +-2: snd_rng_trunc
void snd_k_fill_uniform(int th, snd_dtype t, snd_key key, uint64_t first, int64_t n, double lo, double hi, void *out);
void snd_k_fill_const(int th, snd_dtype t, int64_t n, double a, void *out);

/// y_i = f x_i with f = 0 with probability `rate` and else 1/(1 - rate), so E y = x: Philox word number (first + i) / group of
/// `key` against rate 2^32, rounded; the factor is that of the rounded rate, so the expectation is exact. A pure function
/// of (key, number): the backward pass is the same call on dy. In place. 0 <= rate < 1. Returns the largest absolute
/// value of y; a NaN stays NaN wherever it meets.
double snd_k_dropout(int th, snd_dtype t, snd_key key, double rate, uint64_t first, int64_t group, int64_t n,
                     const void *x, void *y);

/// x[i] = the f16 nearest to x[i] 2^e (ties to even): infinity from 65520 on, below 2^-14 a multiple of 2^-24. Returns the
/// largest magnitude of the result, NaN where there is one. counts: NULL, or grows by how many were not 0 and how many of
/// these became 0.
double snd_k_round_f16(int th, int64_t n, int64_t e, float *x, int64_t counts[2]);

// ---- optimizers ----------------------------------------------------------------------------------------------------
typedef enum snd_krule {
    SND_KRULE_NONE, SND_KRULE_ADAMW, SND_KRULE_ADAM, SND_KRULE_SGD, SND_KRULE_NESTEROV, SND_KRULE_LION
} snd_krule;
/// What a step of an optimizer does to a tensor w with gradient g; g' = scale g (clipping and exponents).
///   ADAMW     m = b1 m + (1-b1) g';  v = b2 v + (1-b2) g'^2;  w -= lr decay (w - toward);
///             w -= lr/(1-b1^step) m / (sqrt(v/(1-b2^step)) + eps)                 Loshchilov, Hutter 2019
///   ADAM      the same, with decay (w - toward) added to g' in place of shrinking w  Kingma, Ba 2015
///   SGD       m = b1 m + g' + decay (w - toward);  w -= lr m
///   NESTEROV  m as for SGD;  w -= lr (g' + decay (w - toward) + b1 m)             Sutskever et al. 2013
///   LION      w -= lr (sign(b1 m + (1-b1) g') + decay (w - toward));  m = b2 m + (1-b2) g'    Chen et al. 2023
typedef struct snd_kupdate {
    snd_krule rule;
    double lr, beta1, beta2, eps, decay, toward, scale;
    int64_t step;                                 // from 1
} snd_kupdate;
/// One step on n elements, in place in w, m and v (v: ADAMW and ADAM alone, else NULL). m and v start at zero. Factors are
/// worked out in double and rounded once to t, the arithmetic is t's. A NaN in g, w, m or v makes that element of w NaN.
/// sums: NULL, or two sums of squares in double by the tree of snd_k_sumsq: of w afterwards, and of what it changed by, in
/// the same pass and without a difference to w, m and v.
void snd_k_update(int th, snd_dtype t, const snd_kupdate *k, int64_t n, const void *g, void *w, void *m, void *v,
                  double *sums);
/// Sum of squares in double; a fixed tree.
double snd_k_sumsq(int th, snd_dtype t, int64_t n, const void *x);

// ---- statistics ----------------------------------------------------------------------------------------------------
typedef struct snd_kmoments {
    double sum, sumsq, sum4;       // over all elements, non-finite ones included
    double sum_rowmean2;           // sum over rows of (row mean)^2
    double bvar;                   // mean over features of the biased variance over rows (sums about the first row)
    double cos, pearson;           // mean over pairs of different rows; NaN when R < 2 or a row is zero (constant for pearson)
    double absmax; int64_t at;     // largest absolute value and its flat index, the first of equals; NaN wins
    double absmin;                 // smallest non-zero absolute value (0 if none)
    int64_t nonfinite;
} snd_kmoments;
enum { SND_KM_BASIC = 1, SND_KM_BVAR = 2, SND_KM_COS = 4, SND_KM_FOURTH = 8, SND_KM_ALL = 15 };
/// Rows are examples. cos from |sum_i x_i/|x_i||^2 in O(RD).
void snd_k_moments(int th, snd_dtype t, int64_t R, int64_t D, const void *x, int what, snd_kmoments *out);
/// out: sums over all elements of x, of x^2, and of (x - mean of its row)^2, in one pass: what a step that is watched can
/// afford. Each is right to rounding of its own size: a row that hardly differs from its mean is looked at again while it is
/// at hand. Any NaN or Inf shows in out[1].
void snd_k_row_sums(int th, snd_dtype t, int64_t R, int64_t D, const void *x, double out[3]);
// Of x [B, T, D], examples of tokens; NaN what was not asked for.
typedef struct snd_ktokens {
    double cos, pearson;           // mean over pairs of the same position in different examples; NaN as above, B for R
    double tokcos, tokpearson;     // mean over pairs of different tokens of one example; NaN as above, T for R
    double mean_sq, dev_sq;        // mean square of an example's mean over tokens, and of what differs from it
} snd_ktokens;
enum { SND_KT_COS = 1, SND_KT_TOKCOS = 2, SND_KT_SPLIT = 4 };
void snd_k_tokens(int th, snd_dtype t, int64_t B, int64_t T, int64_t D, const void *x, int what, snd_ktokens *out);
/// Mean over rows of the cosine of x_r and y_r (NaN where a row is zero), and of |x_r|/|y_r|.
void snd_k_rowcos(int th, snd_dtype t, int64_t R, int64_t D, const void *x, const void *y, double *cos, double *ratio);
/// Effective rank: exp of the entropy of the normalised eigenvalues of the centred rows' Gram matrix; rows are centred on
/// their mean row. NaN for fewer than two rows, equal rows, or a non-finite element.
double snd_k_effective_rank(int th, snd_dtype t, int64_t R, int64_t D, const void *x, double *scratch /* R*D + R*R + 4*R doubles */);
double snd_k_absmax(int th, snd_dtype t, int64_t n, const void *x);            // NaN if any is NaN
/// Share of the n values that are not 0 but whose magnitude, times 2^e, would round to zero in f16 / bf16.
double snd_k_underflow_share(int th, snd_dtype t, int64_t n, const void *x, int e, snd_dtype target);

// ---- small dense algebra, in double --------------------------------------------------------------------------------
/// G [R,R] = x xT of x [R,K], sums in double; the lower triangle (what lies above it is not to be read). One thread.
void snd_k_gram(snd_dtype t, int64_t R, int64_t K, const void *x, double *G);
/// Pivoted Cholesky factor of the matrix whose lower triangle is G [R,R]: G = L LT up to `relative` times the largest
/// diagonal element. Returns the rank p; L [R,R] has p columns, zero in the rows of earlier pivots; piv[0..p-1] are the
/// pivots in order. A row whose diagonal is not finite is left out (zero). d: 2R doubles of scratch. One thread.
int64_t snd_k_cholesky(int64_t R, double relative, const double *G, double *L, double *d, int32_t *piv);

// ---- limits, for benchmarks ----------------------------------------------------------------------------------------
/// Multiply-adds that never leave the registers, `rounds` on each of th threads at once: the roof of matrix products.
/// Returns the floating-point operations done.
double snd_k_peak(int th, snd_dtype t, int64_t rounds);
/// y = x; stream: written past the caches.
void snd_k_copy(int th, snd_dtype t, int64_t n, bool stream, const void *x, void *y);
/// z = x + y/2, likewise.
void snd_k_triad(int th, snd_dtype t, int64_t n, bool stream, const void *x, const void *y, void *z);

// ---- table of variants ---------------------------------------------------------------------------------------------
typedef struct snd_krow { const char *family, *name; snd_isa isa; snd_dtype t; } snd_krow;
int snd_k_row_count(void);
const snd_krow *snd_k_row_at(int i);            // every compiled variant
bool snd_k_row_chosen(int i);                    // does this CPU (and SONDE_ISA) pick it?

#endif
