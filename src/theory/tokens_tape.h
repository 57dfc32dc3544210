// Inside of the token algebra, shared by tokens.c, tokens_attend.c and tokens_back.c only.
#ifndef SND_THEORY_TOKENS_TAPE_H
#define SND_THEORY_TOKENS_TAPE_H

#include "theory/softmax.h"
#include "theory/tokens.h"

typedef enum k_op {
    K_NONE,
    K_FIXED,  // a number per position and nothing random: its mean
    K_BASE,   // its own variable, independent of all older ones: kernel `own`
    K_SUM,    // c0 + sum coef*in, coefficients per position: norms too
    K_CENTRE, // coef * (in - its mean over all rows)
    K_FUNC,   // fn(in)
    K_MUL     // product of two
} k_op;

typedef enum k_from { K_FROM_NONE, K_FROM_LINEAR, K_FROM_DOT, K_FROM_RMS, K_FROM_ATTEND, K_FROM_WAVES } k_from; // what the reverse pass sees

// How rows of a net of finite width stray by themselves, in units of their mean square q: variance of one row's mean
// square; and of two rows, its covariance with the other's and with their product, and the variance of their product, when
// they are two tokens of an example, one position of two examples, any other pair.
typedef struct k_rows { double loose, both[3], tied[3], pair[3]; } k_rows;

typedef struct k_node {
    uint8_t op, from, fn;
    bool gauss, approx, gradless, slope; // slope: fn'
    int stack;             // -1: a constant, at home in all
    int64_t dim;           // features; 1: a number per row; 0: constant
    int n;
    snd_mid *in;
    double (*coef)[SND_PLACES], c0[SND_PLACES]; // K_SUM, K_CENTRE
    double mean[SND_PLACES];
    double *own;           // K_BASE: its kernel, before its features' luck; NULL: 0
    const double *wide;    // K_FUNC, K_MUL: the same, once its kernel has been asked for
    double *series, *tab;  // K_FUNC: per class, or once when `alike`
    double sd[SND_PLACES];
    bool alike;
    double var;            // K_FROM_LINEAR
    const snd_attend *how; // K_FROM_ATTEND
    double entropy;
    snd_mid same;          // stands for this node times 1
    snd_mid grad;
    bool norm, centred;    // K_SUM: a norm of in[0], which takes the mean out
    double features;       // K_BASE: how many of them are drawn apart; 0: all
    bool projected;        // a gradient that has come through a norm
    double carried;        // a gradient: by so many rows, when these are few; 0: by all
    k_rows rows;           // tokens_spread.c
} k_node;

typedef struct k_slot { uint64_t key; const double *kernel; } k_slot;

struct snd_tokens {
    snd_arena *arena;
    double batch;
    bool failed;
    k_node *node; int64_t n, cap, n_forward;
    bool is_net; snd_tk_net net;
    snd_places stack[4]; int n_stacks, at;
    k_slot *pairs; int64_t n_pairs, cap_pairs;
    const snd_gauss_rule *rule;
    snd_soft_table *soft;
};

// A kernel seen as [a][b]; NULL k: zero.
typedef struct k_view {
    const double *k;
    const int16_t *flip;   // NULL: as it stands
} k_view;
static inline double k_at(k_view v, int e) { return !v.k ? 0 : v.k[v.flip ? v.flip[e] : e]; }
k_view k_pair(snd_tokens *t, snd_mid a, snd_mid b);
k_view k_wide_pair(snd_tokens *t, snd_mid a, snd_mid b); // before the luck of features that are drawn here
const snd_places *k_places(const snd_tokens *t, snd_mid a, snd_mid b);

snd_mid k_new(snd_tokens *t, k_op op, int stack, int64_t dim);
void k_operands(snd_tokens *t, snd_mid y, int n, const snd_mid *in);
double *k_numbers(snd_tokens *t, size_t n);              // zeros; NULL: failed
snd_mid k_func(snd_tokens *t, snd_gfn fn, bool slope, snd_mid x);
snd_mid k_weighted(snd_tokens *t, snd_mid x, const double *coef); // x times a number per position
snd_mid k_centre(snd_tokens *t, snd_mid x);              // x less its mean over all rows

/// tokens_spread.c: what the finite number of its features makes of a node's kernel.
const double *k_strayed(snd_tokens *t, snd_mid y, const double *kernel);
k_rows k_rows_of(snd_tokens *t, snd_mid x);
/// What a norm's projections leave of a gradient's energy.
double k_left_by_norm(snd_tokens *t, snd_mid norm, snd_mid g);
/// Luck of a mean over few ties of scores, see there. *rows: how many carry what comes of it.
double k_tie_luck(const snd_tokens *t, snd_mid attend, int which, double rate, double *rows);
double k_carried(snd_tokens *t, snd_mid g);              // rows of the batch that carry a gradient
double k_head_luck(const snd_tokens *t, snd_mid attend, int which); // N(0, 1)
/// Variance of the product of two rows, over q^2, of what x reads when x is a map: zeros in the limit.
void k_pair_luck(snd_tokens *t, snd_mid x, double out[3]);
/// What a mean cosine of rows of one kind (0: of one example, 1, 2: of two) has beside the cosine of their means.
double k_row_bias(const k_rows *r, int kind, double cosine);

/// Gradients of an attend node's q, k, v (per feature) from that of its result: three new nodes.
void k_attend_back(snd_tokens *t, snd_mid y, snd_mid g, snd_mid out[3]);

#endif
