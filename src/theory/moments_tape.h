// Inside of the moment algebra, shared by moments.c and backward.c only.
#ifndef SND_THEORY_MOMENTS_TAPE_H
#define SND_THEORY_MOMENTS_TAPE_H

#include "moments.h"

typedef enum m_op {
    OP_NONE, OP_CONST, OP_INPUT, OP_LINEAR, OP_SUM, OP_MUL, OP_UNARY, OP_LN, OP_RMSNORM, OP_BN, OP_DOT, OP_RMS, OP_STOP,
    OP_BOUNDARY, OP_SLOPE
} m_op;

// How moments of the node are found.
typedef enum m_rep {
    REP_NONE, REP_BASE, // input: q and cross known
    REP_SUM,            // c0 + sum coef*term
    REP_FUNC,           // scale * curve of an atom
    REP_PROD,           // a*b
    REP_CENTRE          // coef * (a - mean of a over the batch)
} m_rep;

// A function of one standard Gaussian, as a table on the nodes of its rule. Nodes of all layers share curves: where only
// the sizes of the values differ (relu's), each layer asks for the same few, made and expanded once.
typedef enum m_curve_op {
    CURVE_NONE,
    CURVE_Z,     // z; of one atom's rule where that has its own
    CURVE_VALUE, // fn(p * a * 2^b)
    CURVE_SLOPE, // fn'(p * a * 2^b)
    CURVE_MUL,   // a * b
    CURVE_ADD,   // p * a + q * b
    CURVE_SHIFT  // p * a + q
} m_curve_op;

typedef struct m_curve_key { int32_t op, fn, a, b; double p, q; } m_curve_key;
typedef struct m_curve {
    m_curve_key key;
    const snd_gauss_rule *rule;
    double mean;
    double *series;       // made when first needed
    double tab[SND_GAUSS_NODES];
} m_curve;

// Finite width: variances of log E v^2 and of mean/rms (spread.c) and of the gradient's log mean square (mirror.c), one
// row and two rows.
typedef struct m_band {
    bool has_value, has_grad;
    double log_var[2], mean_var[2], grad_log_var[2];
} m_band;

// Tens of thousands are made for a deep net, so members stand by size and what few nodes have stands elsewhere.
typedef struct m_node {
    uint8_t op, rep, fn;
    bool gauss, approx, has_m1, reached;
    int32_t k;            // value = node * 2^k
    int32_t n;            // operands
    int32_t n_terms;      // REP_SUM
    int32_t atom, lo, hi; // its variable; all that it depends on lie in lo..hi (none: lo > hi)
    int32_t curve;        // REP_FUNC
    snd_mid normed;       // a function of this norm's output (spread.c), 0: of none
    snd_mid slope;        // OP_UNARY: node of the derivative, 0: not made
    snd_mid norm_of;      // mirror.c: this multiple of a gradient is the one of a norm, by 1/divisor
    snd_mid same;         // an alias or a multiple of this node, 0: neither
    int32_t gk;           // gq is in units of 2^gk
    int64_t dim;          // features; 1: a number per row; 0: constant
    snd_mid *in;
    snd_mid *term;
    double *coef, c0;
    double *opcoef, opc0; // OP_SUM: true coefficients of the operands, true constant
    double scale;         // REP_FUNC
    double m1;            // mean, once has_m1
    double s;             // norms, rms: the divisor is s * 2^(exponent of the operand)
    double base_q, base_c; // REP_BASE
    double var;           // OP_LINEAR
    int64_t fan_in;       // OP_LINEAR
    double gq;            // backward result
    m_band *band;         // NULL: nobody has asked
} m_node;

typedef struct m_atom {
    snd_mid src;          // the node whose Gaussian variable this is
    snd_mid ident;        // the FUNC node z -> src (for a fresh map src itself)
    bool fresh;
    double mean, sd;      // node units of src
    double rho;           // between rows
    const snd_gauss_rule *rule;
} m_atom;

// Keys in the order of arrival, with a hash table of their places: values stand in an array beside it. Dense, so that a
// net of a thousand layers touches few pages.
typedef struct m_map {
    uint64_t *key; int64_t n, cap;
    int32_t *at; int64_t slots;
} m_map;
int64_t m_map_find(const m_map *m, uint64_t key);        // place in the order of arrival, -1: not there
bool m_map_add(m_map *m, uint64_t key);                  // a new one, at place n; false: no memory
void m_map_clear(m_map *m);                              // no keys, the memory stays
void m_map_free(m_map *m);

// What spread.c found in one layer of the forward pass, for the gradients that come back through it.
typedef struct m_segment {
    snd_mid from, to;
    int n_old, n_base;    // statistics at its start; those and its noises
    double *cov[2];       // [n_base, n_base] one row, two rows
    int n_next;           // statistics at its end
    double *next;         // [n_next, n_base] their forms
    int n_norms;
    snd_mid *norm;        // norms in it
    double *scale;        // [n_norms, n_base] relative change of the squared divisor
} m_segment;

struct snd_moments {
    snd_arena *arena;
    int batch;
    bool failed;
    int64_t work;                                  // steps of moment(), for those who must stop in time
    int64_t limit;                                 // of work, for the expansion that runs; 0: none
    bool cut;                                      // some expansion was too long, see moments.c
    m_node **page; int64_t n_pages, cap_pages;     // nodes, which stay where they are
    int64_t n, n_forward;                          // nodes; n_forward: set by the first backward sweep; no building after it
    m_atom *atom; int64_t n_atoms, cap_atoms;
    m_curve **curve; int64_t n_curves, cap_curves; // 0: none
    int32_t *curve_at; int64_t curve_slots;        // hash table of curves
    m_map pairs; double *pair; int64_t cap_pairs;  // second moments
    m_map products; snd_mid *product; int64_t cap_products; // product nodes by operands
    m_segment *segment; int64_t n_segments, cap_segments; bool segments_whole;
    snd_gauss_rule rule;
};

enum { NODE_PAGE = 128 };
static inline m_node *m_at(const snd_moments *t, int64_t i) {
    return &t->page[i / NODE_PAGE][i % NODE_PAGE];
}

snd_mid m_product(snd_moments *t, snd_mid a, snd_mid b); // remembered: same operands, same node
snd_mid m_slope(snd_moments *t, snd_mid y);              // derivative of y = fn(x) with respect to x, as a node

/// E f He_k/sqrt(k!) of a REP_FUNC node f, k < SND_HERMITE_TERMS.
double m_coefficient(snd_moments *t, snd_mid f, int k);
double m_kurtosis(snd_moments *t, snd_mid a);            // E (a - mean)^4 / var^2; 3 when there is no spread

m_band *m_band_of(snd_moments *t, snd_mid a);            // made when first asked for, NULL: no memory

double m_moment(snd_moments *t, const snd_mid *id, const int *row, int n); // E of a product of nodes, rows 0 or 1

/// spread.c for a mirrored pass that starts at node `from`: what stands before it counts as drawn afresh, except the
/// norms' divisors, which follow the forward segments from the one that holds `out` backwards.
void m_spread_mirror(snd_moments *t, snd_mid from, snd_mid out, const snd_mid *want, int n_want);

#endif
