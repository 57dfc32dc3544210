// Softmax over random scores: what is left of n exchangeable Gaussian scores once they are weights that sum to one.
// Pure arithmetic; knows no position and no network.
#ifndef SND_THEORY_SOFTMAX_H
#define SND_THEORY_SOFTMAX_H

#include <stdbool.h>

// Of A = softmax(s), s_1..s_n iid N(0, sd^2).
typedef struct snd_soft_law {
    double square;   // E sum A^2: 1/n when sd is 0, 1 when one key takes all
    double spread;   // E [sum A^2 - 2 sum A^3 + (sum A^2)^2]: energy of A (h - sum A h) for white h, iid keys
    double entropy;  // E -sum A log A, nats
} snd_soft_law;

/// n >= 1 keys (need not be whole: an effective number), sd >= 0 (above 8 by the law 1/sd of what the largest leaves).
/// By Z^-k = integral of lambda^(k-1) e^(-lambda Z)/Gamma(k), which makes expectations of powers of A one-dimensional
/// integrals over products of independent factors. Relative error below 1e-4.
snd_soft_law snd_softmax_law(double n, double sd);

// The same as factors on what small scores would give, from a table that fills as it is used (exact at its points, within
// 1 % between them).
typedef struct snd_soft_factors {
    double exponent; // g/sd^2, where n exchangeable weights of exponent g (one key twice e^g, two keys 1) have this E sum A^2
    double spread;   // of the law's spread on E sum A^2 (1 - 1/n)
    double entropy;  // over log n
} snd_soft_factors;
enum { SND_SOFT_KEYS = 28, SND_SOFT_SPREADS = 26 };
// The scores of one query and head are Gaussian with a variance of its own: |q|^2 of head_dim features.
typedef struct snd_soft_table {
    double head_dim;
    snd_soft_factors at[SND_SOFT_KEYS][SND_SOFT_SPREADS];
    bool known[SND_SOFT_KEYS][SND_SOFT_SPREADS];
} snd_soft_table;
snd_soft_factors snd_softmax_factors(snd_soft_table *t, double n, double sd);

/// exponent for the weights that two queries give one key, when their scores have correlation r >= 0: what both have in
/// common is the softmax of the common part of the scores, smoothed by the rest. Within 0.02 of E sum A A' for up to 16
/// keys, within 15 % for 64 (simulated, sd 1 to 16).
double snd_softmax_common(snd_soft_table *t, double n, double sd, double r);

#endif
