// Positions of a sequence in classes, and what a query in one class sees of the keys in another.
//
// A sequence of T tokens is cut into at most SND_PLACES runs of neighbours. Tokens of one run are treated alike; a run's
// tokens are still different tokens, so a kernel over positions has two entries for a run with itself: of a token with
// itself and of two different tokens. Runs of a causal stack grow with their position, since position t averages t + 1
// values; those of the others are equal.
#ifndef SND_THEORY_PLACES_H
#define SND_THEORY_PLACES_H

#include "base/base.h"

enum { SND_PLACES = 32, SND_SLOPES = 8 };

typedef struct snd_places {
    int64_t tokens;
    int n;                        // classes
    double first[SND_PLACES], count[SND_PLACES]; // tokens [first, first + count)
    double at[SND_PLACES];        // its middle
    // entries of a kernel: same token [n], different tokens [n,n], then both for two examples
    int size;                     // 2 n + 2 n^2
    int16_t *row, *col, *flip;    // [size]: classes of an entry; the entry with both exchanged
    double *weight;               // [size] share of all pairs of its kind (same token, different tokens, ...): each kind sums to 1
} snd_places;

// GROWING: causal without a window. EVEN: what matters is the distance. FINE: ... and it is short (windows). FEW: all
// tokens are alike. Twenty growing runs of 64 tokens predict what 64 runs do to 0.001. ROUGH: what bands need of each.
typedef enum snd_cut {
    SND_CUT_NONE, SND_CUT_GROWING, SND_CUT_EVEN, SND_CUT_FINE, SND_CUT_FEW,
    SND_CUT_ROUGH_GROWING, SND_CUT_ROUGH_EVEN, SND_CUT_ROUGH_FINE, SND_CUT_ONE
} snd_cut;
snd_cut snd_cut_rough(snd_cut cut);
/// Errors: SONDE_ENOMEM.
sonde_status snd_places_make(snd_arena *a, int64_t tokens, snd_cut cut, snd_places *out) SONDE_MUST_CHECK;

// First entry of each kind.
static inline int snd_same(const snd_places *p) { return 0 * p->n; }
static inline int snd_other(const snd_places *p) { return p->n; }
static inline int snd_cross_same(const snd_places *p) { return p->n + p->n * p->n; }
static inline int snd_cross_other(const snd_places *p) { return 2 * p->n + p->n * p->n; }

// Which keys a query sees, and with what weight before the scores: 1, or exp(-slope |distance|) (ALiBi).
typedef struct snd_sight {
    const snd_places *q, *k;
    int n_slopes;                 // 1 without ALiBi
    double *mass;                 // [slopes, q, k] sum of weights over the class's visible keys
    double *both;                 // [slopes, q, q, k] sum of products of weights over keys that both queries see
} snd_sight;

/// causal: key <= query. window 0: none; causal query - key < window, else |query - key| < window. slopes NULL: none.
sonde_status snd_sight_make(snd_arena *a, const snd_places *q, const snd_places *k, bool causal, double window,
                            const double *slopes, int n_slopes, snd_sight *out) SONDE_MUST_CHECK;

#endif
