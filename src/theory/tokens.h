// The moment algebra of a Transformer: what a wide random network does to the tokens of its sequences, without weights.
//
// A node stands for one feature of a value at every position. What is known of two nodes a, b is a kernel: E a_s b_t for
// all positions s, t (in classes, places.h), in one example and across two. Fresh maps turn kernels into kernels of new
// Gaussian variables; attention averages them with weights whose second moments follow from the scores' own kernel;
// sums, products and functions are opened newest first, as in moments.h.
//
// Exact at infinite width and infinitely many heads, except: a function of, or a product of, dependent values that are
// not jointly Gaussian (`approx`); the softmax, whose pairs of weights are interpolated between limits that are exact
// (tokens_attend.c); the gradient, of which only the part is followed that is white over features (tokens_back.c).
// Numbers are doubles: what leaves their range comes out as not finite.
#ifndef SND_THEORY_TOKENS_H
#define SND_THEORY_TOKENS_H

#include "theory/moments.h"
#include "theory/places.h"

typedef struct snd_tokens snd_tokens;

/// batch: examples (batch norm). Memory comes from the arena; destroy frees the rest. NULL: no memory.
snd_tokens *snd_tokens_create(snd_arena *arena, double batch);
void snd_tokens_destroy(snd_tokens *t);

// One network of finite width in place of the limit: every value strays from what it should be as its features make it
// (tokens_spread.c), in few classes of positions.
typedef struct snd_tk_net {
    bool lucky;     // false: the limit itself in as few classes, to compare with
    int number;     // of its luck
    bool mirrored;  // all luck turned into its opposite
    double attends; // two queries meet this much more often in a key than predicted (logarithm)
} snd_tk_net;
/// `of` lends its tables and must outlive the net.
snd_tokens *snd_tokens_create_net(snd_arena *arena, snd_tokens *of, const snd_tk_net *net);
bool snd_tokens_failed(const snd_tokens *t);

/// Sequences of a stack; nodes made from now on belong to it, until the next call. At most four; returns its number.
int snd_tk_stack(snd_tokens *t, int64_t tokens, snd_cut cut);
const snd_places *snd_tk_places(const snd_tokens *t, int stack);

// Builders: return the new node.
snd_mid snd_tk_const(snd_tokens *t, double v);
// E v v' of two rows: one token, two tokens of one example, one position in two examples, two positions in two examples.
typedef struct snd_tk_rows { double same, other, cross_same, cross_other; } snd_tk_rows;
/// Gaussian features of mean 0. learned: its gradient is not followed (vectors, biases, c).
snd_mid snd_tk_input(snd_tokens *t, int64_t dim, snd_tk_rows q, bool learned);
/// The sines and cosines of sinusoidal positions: sin(p/10000^(2i/d)), cos(...), i < d/2.
snd_mid snd_tk_waves(snd_tokens *t, int64_t dim);
snd_mid snd_tk_linear(snd_tokens *t, snd_mid x, int64_t fan_in, int64_t out, double var);
snd_mid snd_tk_sum(snd_tokens *t, int n, const snd_mid *id, const double *coef, double c0);
snd_mid snd_tk_mul(snd_tokens *t, snd_mid a, snd_mid b);
snd_mid snd_tk_unary(snd_tokens *t, snd_gfn fn, snd_mid a);
snd_mid snd_tk_layer_norm(snd_tokens *t, snd_mid x, double eps);
snd_mid snd_tk_rms_norm(snd_tokens *t, snd_mid x, double eps);
snd_mid snd_tk_batch_norm(snd_tokens *t, snd_mid x, double eps);
snd_mid snd_tk_dot(snd_tokens *t, snd_mid a, snd_mid b);
snd_mid snd_tk_rms(snd_tokens *t, snd_mid a);
snd_mid snd_tk_stop(snd_tokens *t, snd_mid a);

// One attention sublayer between its maps. Scores: scale q.k over head_dim features, then as said below.
typedef struct snd_attend {
    const snd_sight *sight;
    double scale, head_dim, group;  // group: query heads per key head
    double softcap;                 // 0: none
    const double *turn;             // rope: mean cosine of the rotation by 0, 1, 2, ... steps; NULL: none
    const double *relative;         // xl: E r_0 r_j per feature of its position keys at distance j; NULL: none
    double bias_var;                // t5: variance of a bias;
    const int16_t *bucket;          // its number for classes [q, k]; NULL: none
} snd_attend;
/// softmax(scores) v, per head. q stands in the stack of the result, k and v in one stack. `how` must outlive t.
snd_mid snd_tk_attend(snd_tokens *t, const snd_attend *how, snd_mid q, snd_mid k, snd_mid v);

// What is known of a node, averaged over positions as docs/metrics.md has it.
int64_t snd_tk_dim(const snd_tokens *t, snd_mid a);
bool snd_tk_approx(const snd_tokens *t, snd_mid a);
double snd_tk_log10_q(snd_tokens *t, snd_mid a);
double snd_tk_mean(snd_tokens *t, snd_mid a);
double snd_tk_log10_var(snd_tokens *t, snd_mid a);        // over features, within a row
double snd_tk_log10_bvar(snd_tokens *t, snd_mid a);       // over all rows, per feature
double snd_tk_cos(snd_tokens *t, snd_mid a, bool centred);// one position in two examples; centred: less the feature mean
double snd_tk_tokcos(snd_tokens *t, snd_mid a);           // two tokens of one example; NAN: there is one token
double snd_tk_align(snd_tokens *t, snd_mid a, snd_mid b); // one row
double snd_tk_log10_ratio(snd_tokens *t, snd_mid a, snd_mid b); // mean over rows of |a|/|b|
double snd_tk_entropy(snd_tokens *t, snd_mid a);          // of an attend node: over the log of the keys seen; NAN: none

/// Gradient of N(0, 1) noise on `out`.
void snd_tk_backward(snd_tokens *t, snd_mid out);
bool snd_tk_reached(const snd_tokens *t, snd_mid a);
double snd_tk_log10_gq(snd_tokens *t, snd_mid a);         // NAN: not reached
double snd_tk_log10_gtok(snd_tokens *t, snd_mid a);       // mean square of the mean over an example's tokens

#endif
