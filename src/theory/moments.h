// The moment algebra: what a wide random network does to its values, computed without weights.
//
// A tape of nodes, one per operation. A node stands for one feature of a value, seen in two different examples
// (rows 0 and 1, exchangeable): a random variable over features and weights. Every map with fresh weights gives a new
// Gaussian variable, independent of all older ones; elementwise functions of one Gaussian are tables on its
// quadrature nodes; everything else is a sum or a product of nodes. Moments (means, second moments in one row and
// across rows, products of several nodes) are worked out on demand by expanding newest first, and remembered.
//
// Exact in the limit of infinite width, except where a function is applied to, or a product taken of, dependent
// values that are not jointly Gaussian: those are treated as Gaussian with the right moments, and the node and all that
// follow from it say so (`approx`).
//
// A value is node * 2^k, so that growth may leave the range of double.
//
// Backward (backward.c): a gradient is noise (white vectors times forward nodes) plus a coherent part (random numbers
// times forward nodes), see there.
#ifndef SND_THEORY_MOMENTS_H
#define SND_THEORY_MOMENTS_H

#include "base/base.h"
#include "gauss.h"

typedef int32_t snd_mid; // node; 0 is the constant 1

// How far the natural logarithm of one network's mean square strays from the predicted one.
typedef struct snd_log_law {
    double var, shift; // over networks of one width: variance, and the mean's distance
    double error;      // the prediction's own standard error, the same for all networks: approximations in the algebra
} snd_log_law;

typedef struct snd_moments snd_moments;

/// batch: number of examples (batch norm, bvar). Memory comes from the arena. NULL: no memory.
snd_moments *snd_moments_create(snd_arena *arena, int batch);
void snd_moments_destroy(snd_moments *t); // frees what is not the arena's
bool snd_moments_failed(const snd_moments *t);

// Builders: return the new node.
snd_mid snd_m_const(snd_moments *t, double v);
/// iid N(0, q) features with cosine `cos` between two examples.
snd_mid snd_m_input(snd_moments *t, int64_t dim, double q, double cos);
/// y = W x, W [out, fan_in] fresh with iid zero-mean entries of variance var (0: all zero).
snd_mid snd_m_linear(snd_moments *t, snd_mid x, int64_t fan_in, int64_t out, double var);
/// c0 + sum coef[i]*id[i]
snd_mid snd_m_sum(snd_moments *t, int n, const snd_mid *id, const double *coef, double c0);
snd_mid snd_m_add(snd_moments *t, snd_mid a, snd_mid b, double ca, double cb);
snd_mid snd_m_scale(snd_moments *t, snd_mid a, double c);
snd_mid snd_m_mul(snd_moments *t, snd_mid a, snd_mid b);
snd_mid snd_m_unary(snd_moments *t, snd_gfn fn, snd_mid a);
/// y = (x - mean)/sqrt(var + eps) over features; x/sqrt(q + eps); per feature over the batch.
snd_mid snd_m_layer_norm(snd_moments *t, snd_mid x, double eps);
snd_mid snd_m_rms_norm(snd_moments *t, snd_mid x, double eps);
snd_mid snd_m_batch_norm(snd_moments *t, snd_mid x, double eps);
/// One number per row.
snd_mid snd_m_dot(snd_moments *t, snd_mid a, snd_mid b);
snd_mid snd_m_rms(snd_moments *t, snd_mid a);
/// The value without its gradient; the value with a gradient of its own.
snd_mid snd_m_stop(snd_moments *t, snd_mid a);
snd_mid snd_m_alias(snd_moments *t, snd_mid a);
/// Marks the end of a layer: the backward sweep collects there what is still alive.
void snd_m_boundary(snd_moments *t);

// What is known of a node. Numbers may be 0, negative (means, cosines) or leave double's range (log10).
int snd_m_batch(const snd_moments *t);                // examples
int64_t snd_m_dim(const snd_moments *t, snd_mid a);
bool snd_m_approx(const snd_moments *t, snd_mid a);
double snd_m_log10_q(snd_moments *t, snd_mid a);      // log10 E v^2, -inf for 0
double snd_m_mean(snd_moments *t, snd_mid a);         // E v (may overflow to inf)
double snd_m_mean_ratio(snd_moments *t, snd_mid a);   // E v / sqrt(E v^2)
double snd_m_cos(snd_moments *t, snd_mid a);          // E v v' / E v^2 between examples, NAN for 0
double snd_m_align(snd_moments *t, snd_mid a, snd_mid b); // E a b / sqrt(E a^2 E b^2), one row

/// Runs the gradient of N(0, 1) noise on `out` back to the beginning.
void snd_m_backward(snd_moments *t, snd_mid out);
bool snd_m_reached(const snd_moments *t, snd_mid a);    // by a gradient, known or not
double snd_m_log10_gq(const snd_moments *t, snd_mid a); // NAN: not reached, or through moments that are not known

/// Finite width (spread.c): finds for the nodes in `want` how the logarithm of E v^2, as one network has it, varies.
void snd_m_spread(snd_moments *t, const snd_mid *want, int n_want);
/// Variance of log(mean square over `rows` rows and all features); of (mean over them)/rms. False: not known.
bool snd_m_log_q_var(const snd_moments *t, snd_mid a, double rows, double *var);
bool snd_m_mean_var(const snd_moments *t, snd_mid a, double rows, double *var);
/// The same for gradients of white noise on `out`; after snd_m_backward(t, out). False: not known, as where the gradient
/// is more than white noise.
void snd_m_grad_spread(snd_moments *t, snd_mid out, const snd_mid *want, int n_want);
bool snd_m_log_gq_var(const snd_moments *t, snd_mid a, double rows, double *var);

// ---- for backward.c and tests ----
double snd_m_e1(snd_moments *t, snd_mid a);                       // E a, in node units
double snd_m_e2(snd_moments *t, snd_mid a, snd_mid b, int cross); // E a b in one row (0) or across (1), node units
int snd_m_exponent(const snd_moments *t, snd_mid a);

#endif
