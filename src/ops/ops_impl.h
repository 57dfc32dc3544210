// Private to ops/: the rows' names, and what several ops share.
#ifndef SND_OPS_IMPL_H
#define SND_OPS_IMPL_H

#include "ops/ops.h"

#define snd_run snd_oprun // old name; new code says snd_oprun (record/ has a snd_run of its own)

#define SND_OP_ROW(NAME, info) extern const snd_op_info info;
#include "ops/ops.def"
#undef SND_OP_ROW

#define SND_CASES(table) .cases = (table), .n_cases = (int)(sizeof(table) / sizeof *(table))

/// Two operands broadcast to `out`, its dimensions merged to at most three.
typedef struct snd_bcast { int64_t dim[3], sx[3], sy[3]; } snd_bcast;
bool snd_bcast_make(snd_shape x, snd_shape y, snd_shape out, snd_bcast *b);
/// Shape rule of two broadcast operands.
sonde_status snd_bcast_shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype);
/// Bit k: operand k (of 0, 1) has the full shape, so the result may be placed on it.
unsigned snd_bcast_inplace(const snd_graph *g, const snd_node *n);

/// d summed down to the shape of value `like`, where they differ.
snd_id snd_reduce_like(snd_graph *g, snd_id d, snd_id like);
/// d * y with a factor, summed down to the shape of `like`.
snd_id snd_mul_reduce(snd_graph *g, double a, snd_id d, snd_id y, snd_id like);
snd_id snd_g_mul_by(snd_graph *g, double a, snd_id x, snd_id y);      // a x y
snd_id snd_g_div_by(snd_graph *g, double a, snd_id x, snd_id y);      // a x / y

sonde_status snd_same_shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype);   // output like input 0
unsigned snd_inplace_first(const snd_graph *g, const snd_node *n);
unsigned snd_inplace_second(const snd_graph *g, const snd_node *n);
/// Bytes of all inputs and outputs; flops = per * elements of output 0.
void snd_cost_each(const snd_graph *g, const snd_node *n, double per, double *flops, double *bytes);
void snd_cost_few(const snd_graph *g, const snd_node *n, double *flops, double *bytes);    // 1 per element
void snd_cost_some(const snd_graph *g, const snd_node *n, double *flops, double *bytes);   // 8 per element

/// C = alpha op(A) op(B) + beta C as snd_k_gemm has it, its operands rounded as the graph wants them (linear.c). scratch:
/// as many bytes as said, which may be none.
size_t snd_product_scratch(const snd_graph *g, int64_t M, int64_t K);
void snd_product(const snd_oprun *r, bool ta, bool tb, int64_t M, int64_t N, int64_t K, double alpha, const void *A,
                 int64_t lda, const void *B, int64_t ldb, double beta, void *C, int64_t ldc, void *scratch);
/// The same plus a bias (NULL: none); returns the largest |C|, NaN where there is one.
double snd_product_bias(const snd_oprun *r, bool ta, bool tb, int64_t M, int64_t N, int64_t K, double alpha, const void *A,
                        int64_t lda, const void *B, int64_t ldb, double beta, void *C, int64_t ldc, const void *bias,
                        void *scratch);

int64_t snd_size_of(const snd_graph *g, snd_id v);
static inline double snd_load(snd_dtype t, const void *p, int64_t i) {
    return t == SND_F64 ? ((const double *)p)[i] : (double)((const float *)p)[i];
}
static inline void snd_store(snd_dtype t, void *p, int64_t i, double v) {
    if (t == SND_F64) ((double *)p)[i] = v;
    else ((float *)p)[i] = (float)v;
}
/// Significant bits of the type: 24, 53.
static inline int snd_mantissa(snd_dtype t) { return t == SND_F64 ? 53 : 24; }

/// When eps dwarfs every square that a buffer with exponent e can hold, 1/sqrt(v + eps) is the constant 1/sqrt(eps) and
/// the norm a linear map; its result then keeps an exponent. `power`: 2 for variances, 1 for UNIT's clamp.
bool snd_eps_rules(snd_dtype t, double eps, int power, int64_t e);
/// eps as seen by the buffer: eps * 2^(-power e), kept positive and finite.
double snd_eps_for(double eps, int power, int64_t e);

// ---- matrices in pieces of whole rows (pieces.c) ----
/// Rows of a piece; all of them when the array is small. A few MiB.
int64_t snd_piece_rows(snd_dtype t, int64_t rows, int64_t cols);
size_t snd_piece_bytes(snd_dtype t, int64_t rows, int64_t cols);
/// Is the matrix so large that its products go piece by piece? By its shape alone.
bool snd_is_huge(snd_shape s);
int64_t snd_huge_elements(void);
/// Rows first .. first+n-1, where they are or written to tmp (room for a piece).
typedef const void *snd_piece_fn(const snd_oprun *r, int64_t first, int64_t n, void *tmp);
/// Basic moments (snd_k_moments) of [rows, cols], piece by piece; the others are NaN.
void snd_moments_of_pieces(const snd_oprun *r, int64_t rows, int64_t cols, snd_piece_fn *piece, void *tmp,
                           snd_kmoments *out);
/// Adds those of rows first .. first+rows-1 to what the rows before them gave (zeroed at first).
void snd_moments_add(const snd_oprun *r, int64_t rows, int64_t cols, const void *x, int64_t first, snd_kmoments *all);
/// Writes basic moments as output 0, a statistics vector (snd_g_stat), of a value [rows, cols] with exponent e. No variance
/// within rows: where it is small beside q it would take a second pass.
void snd_stat_put(const snd_oprun *r, int64_t rows, int64_t cols, const snd_kmoments *m, int64_t e);
/// Both, with the node's scratch.
void snd_stat_of_pieces(const snd_oprun *r, int64_t rows, int64_t cols, snd_piece_fn *piece, int64_t e);

/// Key of the draws of dropout at a place of the graph, in this run.
snd_key snd_drop_key(const snd_oprun *r, int64_t site);

// ---- targets ----
enum { SND_IGNORED = -100 };
/// 2^e, no more than keeps factor times buffer within the type; a softmax is one-hot long before.
double snd_logit_factor(snd_dtype t, int32_t e);
/// A class that does not exist must not reach a kernel. Whoever feeds targets checks them and says which; here they only
/// make the result NaN.
bool snd_targets_exist(const int64_t *target, int64_t R, int64_t V);

#endif
