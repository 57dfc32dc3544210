// Gaussian expectations of elementwise functions: the quadrature and the Hermite series
// that the moment algebra stands on. Pure arithmetic; knows no formula and no network.
//
// Invariant: a rule (nodes z, weights w) integrates against the standard normal density and is
// split where the functions of interest have a kink, so piecewise polynomials are exact.
#ifndef SND_THEORY_GAUSS_H
#define SND_THEORY_GAUSS_H

enum {
  SND_GAUSS_HALF = 32,                  // nodes on each side of the split
  SND_GAUSS_NODES = 2 * SND_GAUSS_HALF, // nodes of one rule
  SND_HERMITE_TERMS = 40                // terms kept of a Hermite series
};

typedef enum snd_gfn {
  SND_GFN_NONE = 0,
  SND_GFN_IDENTITY,
  SND_GFN_RELU,
  SND_GFN_GELU,
  SND_GFN_GELU_TANH,
  SND_GFN_SILU,
  SND_GFN_TANH,
  SND_GFN_SIGMOID,
  SND_GFN_ERF,
  SND_GFN_EXP,
  SND_GFN_SOFTPLUS,
  SND_GFN_SQRT,
  SND_GFN_LOG,
  SND_GFN_ABS,
  SND_GFN_RECIP,
} snd_gfn;

typedef struct snd_gauss_rule {
  double z[SND_GAUSS_NODES]; // nodes, increasing
  double w[SND_GAUSS_NODES]; // weights, sum 1
  // he[i][k] = w_i * He_k(z_i)/sqrt(k!): sum of f_i he[i][k] is f's k-th normalised Hermite coefficient
  double he[SND_GAUSS_NODES][SND_HERMITE_TERMS];
} snd_gauss_rule;

/// The function and its derivative at t. relu'(0) = abs'(0) = 0; sqrt and log of a negative number are NaN.
double snd_gfn_value(snd_gfn fn, double t);
double snd_gfn_slope(snd_gfn fn, double t);

/// Rule split at 0: half-range Gauss rules on both sides (Stieltjes procedure, then Golub-Welsch).
/// Exact for piecewise polynomials of degree 63 with a kink at 0.
void snd_gauss_rule_centred(snd_gauss_rule *rule);

/// Rule split at `at` (standard deviations): Legendre panels on [-9.5, at] and [at, 9.5].
void snd_gauss_rule_split(snd_gauss_rule *rule, double at);

/// E f = sum w f;  E f h for tables f, h on one rule.
double snd_gauss_mean(const snd_gauss_rule *rule, const double *f);
double snd_gauss_inner(const snd_gauss_rule *rule, const double *f, const double *h);

/// a[k] = E f(z) He_k(z)/sqrt(k!), k < SND_HERMITE_TERMS.
void snd_gauss_series(const snd_gauss_rule *rule, const double *f, double *a);

/// E f(z1) h(z2) for unit normals with correlation rho, from their series (Mehler's formula).
/// full = E f(z) h(z) where both are functions of one variable: what the series leaves out of it is
/// given the tail of a function with a kink, k^-5/2. Without that number pass NAN: no tail.
double snd_gauss_mehler(const double *a, const double *b, double rho, double full);

/// E relu(z1) relu(z2) for unit normals with correlation rho (arc-cosine kernel), and the
/// expectation of their derivatives' product.
double snd_gauss_relu_pair(double rho);
double snd_gauss_step_pair(double rho);

#endif
