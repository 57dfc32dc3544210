// Front header of ops/: the operations of the graph. One row of ops.def and one file per op or family of ops; these
// helpers build nodes, so that a model reads like its formula. Every helper returns a value, or 0 after the graph's
// first error (which snd_graph_status reports). Operands broadcast as in numpy, aligned at the last dimension, and
// either operand may be the smaller one; gradients are summed back to the operand's own shape.
#ifndef SND_OPS_H
#define SND_OPS_H

#include "graph/graph.h"

typedef enum snd_op {
    SND_OP_NONE,
#define SND_OP_ROW(NAME, info) SND_OP_##NAME,
#include "ops/ops.def"
#undef SND_OP_ROW
    SND_OP_COUNT
} snd_op;

/// Row of ops.def with this name, or SND_OP_NONE.
int snd_op_find(const char *name);

// ---- views and constants --------------------------------------------------------------------------------------------
snd_id snd_g_alias(snd_graph *g, snd_id x);                      ///< same numbers, a gradient of its own
snd_id snd_g_stop(snd_graph *g, snd_id x);                       ///< same numbers, no gradient
snd_id snd_g_reshape(snd_graph *g, snd_id x, snd_shape s);       ///< same elements in row-major order
snd_id snd_g_const(snd_graph *g, snd_shape s, double v);

// ---- linear maps ----------------------------------------------------------------------------------------------------
/// y = x Wᵀ;  x [.., k], W [n, k] -> [.., n]
snd_id snd_g_linear(snd_graph *g, snd_id x, snd_id w);
/// The same law as snd_g_linear with iid N(0, var) weights drawn anew in every run, without the weights: x [.., k] ->
/// [.., n]. Its backward follows the conditional law given the forward, and each snd_g_grad call draws its own.
snd_id snd_g_glinear(snd_graph *g, snd_id x, int64_t n, double var);

// ---- images: [B, H, W, channels] within a graph ----------------------------------------------------------------------
snd_id snd_g_channels_last(snd_graph *g, snd_id x);              ///< [B, C, H, W] -> [B, H, W, C]
snd_id snd_g_channels_first(snd_graph *g, snd_id x);             ///< [B, H, W, C] -> [B, C, H, W]
/// y[b,i,j,o] = sum over c, u, v of x[b, i*stride + u - p, j*stride + v - p, c] w[o,c,u,v], p = floor(k/2), zeros outside x.
///   x [B, H, W, in]   w [out, in, k, k]   y [B, Ho, Wo, out], Ho = floor((H + 2p - k)/stride) + 1
/// numerics  sums in the graph's type; bits do not depend on the thread count. memory: a strip of an image per task
/// errors    ESHAPE where x and w do not fit or the kernel is larger than the image with its border
snd_id snd_g_conv(snd_graph *g, snd_id x, snd_id w, int64_t stride);
/// Mean over the places of each image: [B, H, W, C] -> [B, 1, 1, C]
snd_id snd_g_pool(snd_graph *g, snd_id x);

// ---- tokens and positions -------------------------------------------------------------------------------------------
/// y[..] = table[tokens[..]];  table [V, d], tokens (I64) [..] -> [.., d]. A token outside 0 .. V-1 gives a row of NaN:
/// whoever feeds tokens checks them and says which.
snd_id snd_g_embed(snd_graph *g, snd_id table, snd_id tokens);
/// Sines and cosines of positions p = first .. first+rows-1 (Vaswani et al. 2017, section 3.5) -> [rows, d]: feature 2i is
/// sin(p 10000^(-2i/d)), feature 2i+1 the cosine; halves: all sines, then all cosines (Transformer-XL).
snd_id snd_g_sinusoid(snd_graph *g, int64_t rows, int64_t d, int64_t first, bool halves);

// Tokens that continue a sequence: their places come as a value, positions (I64 [T]: p, p+1, .. p+T-1), known when the graph
// runs. No derivative leads through what reads them.
/// Sines and cosines of these positions -> [T, d].
snd_id snd_g_sinusoid_at(snd_graph *g, snd_id positions, int64_t d, bool halves);
/// Writes x [B, T, D] into rows p .. p+T-1 of every example of the buffer [B, C, D], which holds the rows before; the result
/// is the buffer as it then stands, for attention (snd_attn.positions). p + T <= C. p = 0 begins anew. What is not finite
/// stays as it is; numbers of far exponents share the larger one.
/// errors  ESHAPE
snd_id snd_g_append(snd_graph *g, snd_id buffer, snd_id x, snd_id positions);

// ---- elementwise ----------------------------------------------------------------------------------------------------
snd_id snd_g_lin(snd_graph *g, double a, snd_id x, double b, snd_id y);    ///< a x + b y
snd_id snd_g_affine(snd_graph *g, double a, snd_id x, double b);           ///< a x + b
snd_id snd_g_mul(snd_graph *g, snd_id x, snd_id y);
snd_id snd_g_div(snd_graph *g, snd_id x, snd_id y);
snd_id snd_g_min(snd_graph *g, snd_id x, snd_id y);                        ///< ties: half the gradient each
snd_id snd_g_max(snd_graph *g, snd_id x, snd_id y);
snd_id snd_g_unary(snd_graph *g, snd_kfn fn, snd_id x);                    ///< relu passes gradients where x is not <= 0

// ---- norms (over the last dimension; gain, bias [d] or 0) -----------------------------------------------------------
/// (x - mean)/sqrt(var + eps) * (gain + plus1) + bias
snd_id snd_g_layernorm(snd_graph *g, snd_id x, snd_id gain, snd_id bias, double eps, bool plus1);
snd_id snd_g_rmsnorm(snd_graph *g, snd_id x, snd_id gain, snd_id bias, double eps, bool plus1);
/// gain0 * x / max(‖x‖₂, 1e-12), per row
snd_id snd_g_unit(snd_graph *g, snd_id x, double gain0);
/// Batch norm over all rows of x [.., d], biased variance. new_mean, new_var (NULL, or with running_mean, running_var
/// given): (1 - momentum) running + momentum batch, the variance unbiased.
snd_id snd_g_batchnorm(snd_graph *g, snd_id x, snd_id gain, snd_id bias, double eps, bool plus1, snd_id running_mean,
                       snd_id running_var, double momentum, snd_id *new_mean, snd_id *new_var);
/// The same of x [B, T, d] whose example i has lengths[i] rows (I64 [B]): the statistics leave out what is behind.
snd_id snd_g_batchnorm_part(snd_graph *g, snd_id x, snd_id lengths, snd_id gain, snd_id bias, double eps, bool plus1,
                            snd_id running_mean, snd_id running_var, double momentum, snd_id *new_mean, snd_id *new_var);
/// (x - running_mean)/sqrt(running_var + eps) * (gain + plus1) + bias
snd_id snd_g_batchnorm_eval(snd_graph *g, snd_id x, snd_id gain, snd_id bias, double eps, bool plus1,
                            snd_id running_mean, snd_id running_var);

// ---- rows -----------------------------------------------------------------------------------------------------------
snd_id snd_g_rowdot(snd_graph *g, snd_id x, snd_id y);           ///< [.., d], [.., d] -> [.., 1]; operands broadcast
snd_id snd_g_rowrms(snd_graph *g, snd_id x);                     ///< sqrt(mean x²) -> [.., 1]; no eps; gradient 0 at 0
snd_id snd_g_sum_to(snd_graph *g, snd_id x, snd_shape s);        ///< sums the dimensions along which s broadcasts to x
snd_id snd_g_expand(snd_graph *g, snd_id x, snd_shape s);        ///< broadcasts x to s
snd_id snd_g_concat(snd_graph *g, const snd_id *x, int n);       ///< along the last dimension: [.., k_i] -> [.., sum k_i]
snd_id snd_g_slice(snd_graph *g, snd_id x, int64_t first, int64_t n);   ///< x[.., first : first+n]
snd_id snd_g_softmax(snd_graph *g, snd_id x);                    ///< over the last dimension
/// sum_k w_k v_k;  w [K] or [.., K], K values of one shape [.., d]
snd_id snd_g_wsum(snd_graph *g, snd_id w, const snd_id *v, int k);
/// Mean cross-entropy over the rows whose target is not -100 -> []; logits [.., V], targets (I64) [..]
snd_id snd_g_xent(snd_graph *g, snd_id logits, snd_id targets);
/// The same with so much of each target's weight spread evenly over all classes (label smoothing).
snd_id snd_g_xent_smooth(snd_graph *g, snd_id logits, snd_id targets, double smooth);

/// f x with f = 0 with probability `rate` and else 1/(1 - rate), drawn for each element, or (path) once for each example;
/// x [examples, ..], or examples = 0: a value that belongs to none, one draw. Draws are a pure function of the run's seed,
/// the place in the graph and the number of the element in the whole batch (snd_exec_reseed, snd_exec_first_example).
/// source  Srivastava et al. 2014; Huang et al. 2016 (stochastic depth), scaled so that the expectation is x
snd_id snd_g_dropout(snd_graph *g, snd_id x, double rate, int64_t examples, bool path);

// ---- attention ------------------------------------------------------------------------------------------------------
typedef enum snd_attn_bias { SND_ATTN_PLAIN, SND_ATTN_ALIBI, SND_ATTN_T5, SND_ATTN_XL } snd_attn_bias;
typedef struct snd_attn {                ///< what attention does besides q, k, v
    int64_t heads, kv_heads;             ///< head h reads kv head h / (heads / kv_heads)
    double scale, softcap;               ///< scores q.k scale; then softcap tanh(s / softcap) when softcap > 0
    bool causal;                         ///< key index <= past + query index
    int64_t window;                      ///< 0: none; causal: query - key < window, else |query - key| < window
    int64_t past;                        ///< keys that stand before the first query; a query's index counts from there
    snd_attn_bias bias;                  ///< after softcap; ALIBI: -m_h |query - key|, m_h as in docs/formulas.md
    int64_t max_distance;                ///< T5; the table's rows are the buckets, causal picks the decoder's
    snd_id positions;                    ///< of the queries (I64 [Tq]), in place of `past`: keys behind the last one are
                                         ///< not read; causal only. 0: none
    snd_id lengths;                      ///< I64 [B], 1 .. Tk: keys that there are, the rest is padding; 0: all. A query
                                         ///< whose window holds none of them gives 0
    double dropout;                      ///< rate of dropping weights behind the softmax; draws as in snd_g_dropout
} snd_attn;
/// ALiBi's m_h = 2^(-8(h+1)/heads), heads a power of two; else those of the power p below, then every second one of 2p.
double snd_alibi_slope(int64_t heads, int64_t h);
/// T5's bucket of a key that stands `distance` before the query (docs/formulas.md section 6).
int64_t snd_t5_bucket(int64_t buckets, int64_t max_distance, bool causal, int64_t distance);
/// Softmax over keys of the masked scores, times v: q [B, Tq, heads*hd], k, v [B, Tk, kv_heads*hd] -> [B, Tq, heads*hd].
/// table: T5, [buckets, heads], else 0.  XL: scores (q.k + qr.r_(i-j)) scale with qr [B, Tq, heads*hd] (u is in q, v in
/// qr) and r [past + Tq, heads*hd] (more rows with positions), row = distance from query to key; not causal: r [Tq + Tk - 1, heads*hd], which begins
/// with the smallest distance, past - (Tk - 1); else 0.
/// numerics  online softmax over tiles of keys in the graph's type, row sums in double; scores in true value whatever the
///           operands' exponents; memory is O(T). Bits do not depend on the thread count. A NaN or Inf reaches exactly
///           the queries that read it.
/// errors    ESHAPE; ERANGE for numbers out of range and for a window that leaves a query without a key: a row with all
///           keys masked does not exist.
/// source    Vaswani et al. 2017, 3.2; tiles: Milakov & Gimelshein 2018, Dao et al. 2022; ALiBi: Press et al. 2021; T5:
///           Raffel et al. 2020; XL: Dai et al. 2019, 3.3
snd_id snd_g_attention(snd_graph *g, const snd_attn *a, snd_id q, snd_id k, snd_id v, snd_id table, snd_id qr, snd_id r);
/// Rotates pairs of each head's first `rotated` features of x [B, T, heads*hd]: position past + t, pair i by the angle
/// position * theta^(-2i / rotated); pairs (i, i + rotated/2), or (2i, 2i + 1) when interleaved. positions: in place of
/// past + t, or 0. Su et al. 2021.
snd_id snd_g_rope(snd_graph *g, snd_id x, int64_t heads, int64_t rotated, bool interleaved, double theta, int64_t past,
                  snd_id positions);
enum { SND_AS_ENTROPY, SND_AS_MAXLOGIT, SND_AS_SHARE, SND_AS_COUNT };
/// Measured, not differentiated, [SND_AS_COUNT] f64: mean entropy (nats) of the attention rows; largest score after
/// softcap and bias; mean of entropy / log(keys the row reads) over rows that read more than one. NaN stays NaN.
snd_id snd_g_attention_stats(snd_graph *g, const snd_attn *a, snd_id q, snd_id k, snd_id v, snd_id table, snd_id qr,
                             snd_id r);
/// The same of an attention that is in the graph, by its node.
snd_id snd_g_attention_stats_of(snd_graph *g, int32_t node);
/// A value of so many elements (2^26) that it had better not exist.
bool snd_g_many(const snd_graph *g, snd_id v);
/// The same loss without its logits when these are so many and a linear map's (or a multiple of one): W is read and the
/// classes are worked through in pieces. Else, and where labels are smoothed, `loss` itself.
/// once: fusion may make forward and backward pass one node, which makes pieces of the logits but once, by rows; then the
/// gradients of x and W are kept whole.
snd_id snd_g_loss_in_pieces(snd_graph *g, snd_id loss, bool once);

// ---- statistics: an f64 vector per value ----------------------------------------------------------------------------
// True figures from the stored ones s and e = s[SND_ST_EXP]: mean, absmax, absmin times 2^e; q, var, bvar, tokmean, tokdev
// times 2^2e; the rest as they are. What was not asked for, or does not exist, is NaN. Definitions: docs/metrics.md.
enum {
    SND_ST_Q, SND_ST_MEAN, SND_ST_VAR, SND_ST_BVAR, SND_ST_COS, SND_ST_PEARSON, SND_ST_ABSMAX, SND_ST_AT, SND_ST_ABSMIN,
    SND_ST_KURT, SND_ST_NONFINITE, SND_ST_ROWCOS /* cos(v, w) */, SND_ST_RATIO /* |v|/|w| with exponents */,
    SND_ST_RANK, SND_ST_UNDER_F16, SND_ST_UNDER_BF16, SND_ST_TOKCOS, SND_ST_TOKPEARSON, SND_ST_TOKMEAN, SND_ST_TOKDEV,
    SND_ST_EXP, SND_ST_COUNT
};
enum {
    SND_SM_BVAR = 1, SND_SM_COS = 2, SND_SM_KURT = 4, SND_SM_ROWCOS = 8 /* needs w */, SND_SM_RANK = 16, SND_SM_UNDER = 32,
    SND_SM_TOKCOS = 64 /* tokcos, tokpearson */, SND_SM_SPLIT = 128 /* tokmean, tokdev: q of the token means and of what differs from them */,
    // The cheapest there is, without others beside them: q, nonfinite and exp are all that is wanted, the rest may be NAN; the
    // same with mean and var.
    SND_SM_ONLY_Q = 256, SND_SM_LIGHT = 512
};
/// q, mean, var, absmax, at, absmin, nonfinite always; more by mask. w: 0 or a value of v's shape. Of a parameter, and of
/// a gradient that is reduced as it appears, nothing by mask and no var. Rows of v [B, T, d] are the tokens of B examples,
/// those of [B, H, W, d] the places of B images: cos and pearson pair the same position of two examples; of other shapes
/// the tok* do not exist.
snd_id snd_g_stat(snd_graph *g, snd_id v, snd_id w, int mask);

/// Test hook: elements of a piece, and of a matrix so large that it is read in pieces; 0: the usual ones.
void snd_pieces_limit(int64_t elements);

static inline snd_id snd_g_add(snd_graph *g, snd_id x, snd_id y) { return snd_g_lin(g, 1, x, 1, y); }
static inline snd_id snd_g_sub(snd_graph *g, snd_id x, snd_id y) { return snd_g_lin(g, 1, x, -1, y); }
static inline snd_id snd_g_scale(snd_graph *g, double a, snd_id x) { return snd_g_affine(g, a, x, 0); }

#endif
