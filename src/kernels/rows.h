// Private header of kernels/: the loops behind the front functions. Every loop is single-threaded, works on a range
// that its caller chose, and exists once per type and instruction set, all from the same text (rows.inc). But for gemm,
// attention, gram and cholesky no loop uses a fused multiply-add or reorders a sum by vector width, so the bits are the
// same on every instruction set.
// Cutting work into tasks is the business of the front functions; a cut depends on shapes only, never on `th`.
#ifndef SND_KERNELS_ROWS_H
#define SND_KERNELS_ROWS_H

#include "kernels/kernels.h"

// Up to three dimensions of an elementwise operation after merging; out is dense.
typedef struct snd_grid {
    int64_t dim[3], sx[3], sy[3];
} snd_grid;

// Accumulators of one task of snd_k_moments.
typedef struct snd_momsum {
    double sum, sumsq, sum4, rowmean2, absmax, absmin;
    int64_t at, nonfinite;
} snd_momsum;

// Loops over columns take at most SND_COLS at a time and sum over rows in blocks of SND_ROWBLOCK.
enum { SND_COLS = 64, SND_ROWBLOCK = 64 };
// Norms: elements of a sum's row that can be kept aside; rows, and bytes of them, between two looks at them.
enum { SND_ROW = 4096, SND_NORM_ROWS = 32, SND_NORM_BLOCK = 512 << 10 };

// ---- signatures, one per family of kernels.def ---------------------------------------------------------------------
typedef double snd_kt_binary(snd_kbin op, const snd_grid *g, int64_t i0, int64_t i1, double a, const void *x, double b,
                             const void *y, void *out);
typedef double snd_kt_affine(int64_t n, double a, const void *x, double b, void *out);
typedef void snd_kt_minmax_bwd(bool max, bool second, const snd_grid *g, int64_t i0, int64_t i1, double a, const void *x,
                               double b, const void *y, const void *dy, void *dx);
typedef double snd_kt_unary(snd_kfn f, int64_t n, double s, const void *x, void *y);
typedef double snd_kt_unary_bwd(snd_kfn f, int64_t n, double s, const void *x, double c, const void *dy, void *dx);
typedef double snd_kt_relu(int64_t n, const void *x, void *y, uint64_t *above);
typedef double snd_kt_relu_bwd(int64_t n, const uint64_t *above, const void *dy, void *dx);
typedef double snd_kt_sum(int64_t n, const void *x);
/// acc[j] += sum over the rows of x[r*ld + j], j < n <= SND_COLS.
typedef void snd_kt_sum_cols(int64_t rows, int64_t n, int64_t ld, const void *x, double *acc);
/// How rows go: y stays in the caches; it leaves them; it does and the passes over one row are not run beside those over others.
typedef enum snd_norm_way { SND_NORM_KEEP, SND_NORM_STREAM, SND_NORM_ALONE } snd_norm_way;
/// Returns the largest |y|.
typedef double snd_kt_norm_fwd(const snd_normspec *s, int64_t rows, snd_norm_way way, const void *x, void *y, double *m,
                               double *r);
/// `stream`: sum and z leave the caches.
typedef double snd_kt_addnorm_fwd(const snd_normspec *s, int64_t rows, bool stream, double a, const void *x, double b,
                                  const void *y, void *sum, void *z, double *m, double *r, double *sum_absmax);
/// dx may be NULL; sums [2][D] (or NULL): adds the rows' part of dg and db, by way of part [2][D] of T, which may hold
/// anything. Returns the largest |dx|. stream: dx is neither dy nor plus.
typedef double snd_kt_norm_bwd(const snd_normspec *s, int64_t rows, bool stream, const void *dy, const void *x,
                             const double *m, const double *r, const void *plus, void *dx, double *sums,
                             void *part);
// What batch norm does to columns, at most SND_COLS of them:  y = (x half - m half) f/half + b,
//   dx = (dy - s1 - (x - m) r s2) f.  half is 1 where x - m may not reach twice the largest double; half_m = m half and
//   f_half = f/half are read forward alone. The others are set in both passes, 0 where a pass has none.
typedef struct snd_batchline { double half[64], half_m[64], f_half[64], m[64], r[64], f[64], b[64], s1[64], s2[64]; } snd_batchline;
/// s[j] += sum of x[i*D + j] - p[j], v[j] += that of their squares; j < n <= SND_COLS.
typedef void snd_kt_batch_sums(int64_t rows, int64_t n, int64_t D, const void *x, const double *p, double *s, double *v);
/// One column over all rows, under a power-of-two scale.
typedef void snd_kt_batch_column(int64_t R, int64_t D, const void *x, double eps, double *mean, double *rstd, double *var);
/// above: NULL, or bits as of snd_k_relu, and a relu follows (precedes, backward); x[0] has bit `first`, a multiple of 64,
/// and n = D or n = 64, D a multiple of 64. In place. Returns the largest magnitude.
typedef double snd_kt_batch_write(int64_t rows, int64_t n, int64_t D, const void *x, const snd_batchline *c, void *y,
                                  uint64_t *above, int64_t first);
/// s1[j] += sum dy, s2[j] += sum dy (x - m) r.
typedef void snd_kt_batch_bwd_sums(int64_t rows, int64_t n, int64_t D, const void *dy, const void *x, const snd_batchline *c,
                                   const uint64_t *above, int64_t first, double *s1, double *s2);
typedef double snd_kt_batch_dx(int64_t rows, int64_t n, int64_t D, const void *dy, const void *x, const snd_batchline *c,
                               const uint64_t *above, int64_t first, void *dx);
typedef void snd_kt_rowdot(int64_t rows, int64_t D, double c, const void *x, const void *y, void *out);
typedef void snd_kt_softmax(int64_t rows, int64_t D, double s, const void *x, void *p);
typedef void snd_kt_softmax_bwd(int64_t rows, int64_t D, double s, const void *p, const void *dp, void *dx);
/// Rows r0..r1-1 of the arrays.
typedef double snd_kt_wsum(int64_t r0, int64_t r1, int64_t D, int K, const void *w, bool per_row, const double *scale,
                           const void *const *v, void *out);
/// Sum over rows of lse - (1 - smooth)*s*logit[target] - smooth*s*mean logit; rows whose target is `ignore` give 0 and do not
/// count.
typedef double snd_kt_xent(int64_t rows, int64_t V, double s, double smooth, const void *logits, const int64_t *target,
                           int64_t ignore, double *lse, int64_t *used);
typedef void snd_kt_xent_bwd(int64_t rows, int64_t V, double s, double smooth, const void *logits, const int64_t *target,
                             int64_t ignore, const double *lse, double scale, void *dx);
typedef void snd_kt_fill_normal(snd_key key, uint64_t first, int64_t n, double a, void *out);
typedef snd_kt_fill_normal snd_kt_fill_trunc;
typedef void snd_kt_fill_uniform(snd_key key, uint64_t first, int64_t n, double lo, double hi, void *out);
typedef void snd_kt_fill_const(int64_t n, double a, void *out);
typedef void snd_kt_moments(int64_t r0, int64_t r1, int64_t D, const void *x, snd_momsum *out);
/// out[3] as in snd_k_row_sums, of rows r0..r1-1.
typedef void snd_kt_row_sums(int64_t r0, int64_t r1, int64_t D, const void *x, double *out);
/// Sums over columns j0..j1-1 of the biased variance over rows and, in *mean_sq, of the squared mean over rows.
typedef double snd_kt_bvar(int64_t R, int64_t D, int64_t j0, int64_t j1, const void *x, double *mean_sq);
/// Per row (ld elements apart): mean, 1/|x| and 1/|x - mean| (0 where the norm is 0).
typedef void snd_kt_row_norms(int64_t rows, int64_t D, int64_t ld, const void *x, double *mean, double *inv, double *inv_dev);
/// u[j] += sum x*inv, v[j] += sum (x - mean)*inv_dev over rows, j < n <= SND_COLS.
typedef void snd_kt_unit_cols(int64_t rows, int64_t n, int64_t ld, const void *x, const double *mean, const double *inv,
                              const double *inv_dev, double *u, double *v);
/// Sums over rows of cos(x_r, y_r) and |x_r|/|y_r|.
typedef void snd_kt_rowcos(int64_t rows, int64_t D, const void *x, const void *y, double *cos, double *ratio);
typedef double snd_kt_absmax(int64_t n, const void *x);
/// m rows of n: C += bias, of each column, where there is one. Returns the largest magnitude, NaN where there is one.
typedef double snd_kt_finish(int64_t m, int64_t n, const void *bias, void *C, int64_t ldc);
typedef int64_t snd_kt_count_below(int64_t n, const void *x, double limit);

/// See snd_k_gemm; `ask`: while a block of B is multiplied the one behind it is asked for, at last that of `next`, the B of
/// a call to come of the same shape, or NULL.
typedef void snd_kt_gemm(bool ta, bool tb, int64_t M, int64_t N, int64_t K, double alpha, const void *A, int64_t lda,
                         const void *B, int64_t ldb, double beta, void *C, int64_t ldc, bool ask, const void *next);
/// Rows of w (n of them) with M rows of x: y[i][j] = alpha x_i.w_j + beta y[i][j].
typedef void snd_kt_gemv(int64_t M, int64_t n, int64_t K, double alpha, const void *x, int64_t ldx, const void *w, int64_t ldw,
                         double beta, void *y, int64_t ldy);
/// Is a product one of few rows with a matrix that is read once? And then it is C = alpha A Bᵀ + beta C by snd_k_gemv.
bool snd_k_few_rows(bool ta, bool tb, int64_t M, int64_t N, int64_t K);
void snd_k_gemv(int th, snd_dtype t, int64_t M, int64_t N, int64_t K, double alpha, const void *x, int64_t ldx, const void *w,
                int64_t ldw, double beta, void *y, int64_t ldy);
/// Lower triangle (and up to three elements right of the diagonal) of x xT.
typedef void snd_kt_gram(int64_t R, int64_t K, const void *x, double *G);
/// See snd_k_cholesky; d and row are scratch of R each. Double only, so outside the table's types.
typedef int64_t snd_kt_cholesky(int64_t R, double relative, const double *G, double *L, double *d, double *row, int32_t *piv);
snd_kt_cholesky snd_k_cholesky_f64_base, snd_k_cholesky_f64_avx2, snd_k_cholesky_f64_avx512;
snd_isa snd_k_isa(void);   // the one that runs now

// Rows stored as bf16 beside arithmetic in f32: norms, which SND_PICK finds, and conversion (nearest even).
typedef void snd_kt_bf16_widen(int64_t n, const uint16_t *x, float *y);
typedef void snd_kt_bf16_narrow(int64_t n, const float *x, uint16_t *y);
#define SND_ON_BF16(isa)                                                                                               \
    snd_kt_norm_fwd snd_k_norm_fwd_bf16_##isa;                                                                         \
    snd_kt_addnorm_fwd snd_k_addnorm_fwd_bf16_##isa;                                                                   \
    snd_kt_norm_bwd snd_k_norm_bwd_bf16_##isa;                                                                         \
    snd_kt_bf16_widen snd_k_bf16_widen_f32_##isa;                                                                      \
    snd_kt_bf16_narrow snd_k_bf16_narrow_f32_##isa;
SND_ON_BF16(base)
SND_ON_BF16(avx2)
SND_ON_BF16(avx512)
#undef SND_ON_BF16
snd_kt_bf16_widen snd_k_bf16_widen;
snd_kt_bf16_narrow snd_k_bf16_narrow;

/// Floating-point operations done in `rounds` of register-only multiply-adds.
typedef double snd_kt_peak(int64_t rounds);
typedef void snd_kt_copy(int64_t n, bool stream, const void *x, void *y);
typedef void snd_kt_triad(int64_t n, bool stream, const void *x, const void *y, void *z);

// Words below `below` drop, the others multiply by c; element i belongs to draw number (first + i) / group.
typedef struct snd_dropspec {
    snd_key key;
    uint32_t below;
    int64_t group;
    uint64_t first;
    double c;
} snd_dropspec;
/// For dropping with probability `rate`; c as the rounded rate wants it.
snd_dropspec snd_drop_at(snd_key key, double rate);

/// Bytes of the working memory of one task.
typedef int64_t snd_kt_attn_slot(const snd_kattn *a, snd_kattn_use use);
/// Queries i0 .. i0+n-1 (n <= SND_ATTN_Q) of head h in example b.
/// stats: NULL, or [3] as snd_kt_attn_stats gives them.
typedef void snd_kt_attn_fwd(const snd_kattn *a, int64_t b, int64_t h, int64_t i0, int64_t n, void *slot, void *out,
                             double *lse, double *stats);
/// The same for keys j0 .. j1-1: adds to g's dk, dv, dr, dbias; the queries' rows of dq and dqr are set by the call with
/// the first key that they read, and added to by later ones.
typedef void snd_kt_attn_bwd(const snd_kattn *a, const snd_kattn_grads *g, int64_t b, int64_t h, int64_t i0, int64_t n,
                             int64_t j0, int64_t j1, void *slot);
/// out[3]: sums over the queries of the entropy and of its share of the largest possible, largest score.
typedef void snd_kt_attn_stats(const snd_kattn *a, int64_t b, int64_t h, int64_t i0, int64_t n, void *slot, double *out);

typedef struct snd_ropespec {
    int64_t B, tokens, heads, hd, rotated, past;
    bool interleaved;
    double theta, sign;
} snd_ropespec;
/// Positions t0 .. t1-1 of all examples and heads.
typedef void snd_kt_rope(const snd_ropespec *s, int64_t t0, int64_t t1, const void *x, void *y);

// One image of a convolution, channels last; steps in elements.
//   out[y*out_y + x*out_x + c] = sum over t < taps, i < n of in[y*in_y + x*in_x + t*in_row + i] * w[t*n + i][c]
// w stands in panels, each [taps*n][SND_CONV_PANEL bytes of channels], zeros behind the last channel.
enum { SND_CONV_PANEL = 64 };
typedef struct snd_convspec {
    int64_t rows, cols, taps, n;
    int64_t in_row, in_y, in_x, out_y, out_x;
    int64_t channels;
} snd_convspec;
typedef void snd_kt_conv(const snd_convspec *s, const void *in, const void *w, void *out);
/// dw[t*n + i][c] += sum over y, x of in[..] * dy[y*out_y + x*out_x + c]; dy has whole panels of channels.
typedef void snd_kt_conv_dw(const snd_convspec *s, const void *in, const void *dy, void *dw);

// One optimizer step as the loops want it: everything that does not depend on the element. rest: 1 - beta; shrink: lr decay;
// step: lr over the first moment's bias correction; unbias: 1/sqrt of the second's.
typedef struct snd_updatespec {
    snd_krule rule;
    double lr, beta1, beta2, rest1, rest2, eps, decay, toward, scale, shrink, step, unbias;
} snd_updatespec;
/// sums: NULL, or [2], see snd_k_update.
typedef void snd_kt_update(const snd_updatespec *u, int64_t n, const void *g, void *w, void *m, void *v, double *sums);
typedef double snd_kt_sumsq(int64_t n, const void *x);

/// Elements i0 .. i1-1 of the arrays; the largest absolute value of y.
typedef double snd_kt_dropout(const snd_dropspec *s, int64_t i0, int64_t i1, const void *x, void *y);

/// The same for 3 x 3 taps (n: channels of `in`, in whole panels as those of out) through u [16][n][channels], in panels: the
/// weights turned by G; du likewise. `in` has one more row and column of places than the taps see, of any finite numbers.
/// work: snd_wino_elements of T.
typedef void snd_kt_wino(const snd_convspec *s, const void *in, const void *u, void *out, void *work);
typedef void snd_kt_wino_dw(const snd_convspec *s, const void *in, const void *dy, void *du, void *work);
/// Rows of tiles that are turned at once: about 32 tiles.
static inline int64_t snd_wino_rows(int64_t across, int64_t down) {
    const int64_t rows = (32 + across - 1) / across;
    return rows < down ? rows : down;
}
static inline int64_t snd_wino_elements(int64_t rows, int64_t cols, int64_t in, int64_t out) {
    const int64_t across = (cols + 1) / 2;
    return 16 * snd_wino_rows(across, (rows + 1) / 2) * across * (in + out);
}

// ---- table ---------------------------------------------------------------------------------------------------------
typedef enum snd_kfamily {
    SND_KF_NONE,
#define SND_FAMILY(name) SND_KF_##name,
#include "kernels/kernels.def"
#undef SND_FAMILY
    SND_KF_COUNT
} snd_kfamily;

/// Every family has all its instruction sets and types: row[isa - 1][t == SND_F64].
#define SND_FAMILY(name)                                                                                               \
    snd_kt_##name snd_k_##name##_f32_base, snd_k_##name##_f64_base, snd_k_##name##_f32_avx2, snd_k_##name##_f64_avx2,    \
        snd_k_##name##_f32_avx512, snd_k_##name##_f64_avx512;
#include "kernels/kernels.def"
#undef SND_FAMILY

typedef void snd_kfn_any(void);
snd_kfn_any *snd_k_pick(snd_kfamily f, snd_dtype t);
#define SND_PICK(name, t) ((snd_kt_##name *)snd_k_pick(SND_KF_##name, t))

/// Test hook: norms store results of at least so many bytes past the caches (-1: the usual).
void snd_k_stream_from(int64_t bytes);
/// Test hook: attention on bf16 widens at most so many bytes at a time (-1: the usual), one head of keys at least.
void snd_k_bf16_part_bytes(int64_t bytes);
/// Test hook: use at most this instruction set (SND_ISA_NONE: the best).
void snd_k_limit_isa(snd_isa isa);
/// Test hook: the best kind of matrix product allowed (NONE: the best there is).
typedef enum snd_kgemm { SND_KGEMM_NONE, SND_KGEMM_OWN, SND_KGEMM_OPENBLAS, SND_KGEMM_ONEDNN, SND_KGEMM_BF16X3 } snd_kgemm;
void snd_k_limit_gemm(snd_kgemm g);

// Ways of a product of bf16 operands, each needing more of the processor than the one before. The first three multiply in f32.
typedef enum snd_kbf16 {
    SND_KBF16_NONE, SND_KBF16_BASE, SND_KBF16_AVX2, SND_KBF16_AVX512, SND_KBF16_PAIRS, SND_KBF16_TILES
} snd_kbf16;
snd_kbf16 snd_k_bf16_best(void);
/// Test hook: the best way allowed (NONE: the best there is).
void snd_k_limit_bf16(snd_kbf16 w);

/// What is left to do with a tile of C while it is in the cache: the bias, and the largest magnitude of all.
typedef struct snd_gemm_end {
    const void *bias;     // of each column of C; may be NULL
    _Atomic uint64_t top; // bits of a double; those of NaN are the largest
} snd_gemm_end;
/// snd_k_gemm in f32 by operands taken apart in three bf16 numbers each (bf16.inc), K > 0. Fast only
/// where there are tiles.
bool snd_k_bf16x3_is_fast(void);
void snd_k_gemm_bf16x3(int th, bool ta, bool tb, int64_t M, int64_t N, int64_t K, double alpha, const float *A, int64_t lda,
                       const float *B, int64_t ldb, double beta, float *C, int64_t ldc, snd_gemm_end *end);
void snd_k_gemm_end(snd_gemm_end *e, snd_dtype t, int64_t col, int64_t m, int64_t n, void *C, int64_t ldc);
void snd_k_gemm_top(snd_gemm_end *e, double top);
double snd_k_gemm_end_top(const snd_gemm_end *e);

// ---- cutting work --------------------------------------------------------------------------------------------------
// At most SND_MAX_TASKS tasks of at least `grain` elements or rows; a function of the shape only.
enum { SND_MAX_TASKS = 64 };
typedef struct snd_cut {
    int64_t n, step, tasks;
} snd_cut;
snd_cut snd_cut_make(int64_t n, int64_t grain, int64_t align);
/// Rows for which a task has at least ~32k elements.
snd_cut snd_cut_rows(int64_t R, int64_t D);
static inline int64_t snd_cut_begin(const snd_cut *c, int64_t task) { return task * c->step; }
static inline int64_t snd_cut_end(const snd_cut *c, int64_t task) {
    const int64_t e = (task + 1) * c->step;
    return e < c->n ? e : c->n;
}
/// Sum of a[0..n-1] by halves: the tree depends on n only. Overwrites a.
double snd_tree_sum(double *a, int64_t n);
/// Maximum in which a NaN wins.
double snd_max_nan(const double *a, int64_t n);

static inline size_t snd_k_size(snd_dtype t) { return t == SND_F64 ? 8 : 4; }
static inline const void *snd_at(const void *p, int64_t i, size_t size) {
    return p ? (const char *)p + (size_t)i * size : NULL;
}
static inline void *snd_at_mut(void *p, int64_t i, size_t size) { return p ? (char *)p + (size_t)i * size : NULL; }

#endif
