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
    REP_FUNC,           // table over an atom
    REP_PROD,           // a*b
    REP_CENTRE          // coef * (a - mean of a over the batch)
} m_rep;

typedef struct m_node {
    uint8_t op, rep, fn;
    bool gauss, approx, gradless;
    int32_t k;            // value = node * 2^k
    int64_t dim;          // features; 1: a number per row; 0: constant
    int32_t n;            // operands
    snd_mid *in;
    int32_t n_terms;      // REP_SUM
    snd_mid *term;
    double *coef, c0;
    int32_t atom;
    double *tab, *series; // REP_FUNC; series made when first needed
    double m1;            // NAN: not yet known
    double s;             // norms, rms: the divisor is s * 2^(exponent of the operand)
    int64_t fan_in;       // OP_LINEAR
    double *opcoef;       // OP_SUM: true coefficients of the operands
    double base_q, base_c; // REP_BASE
    double var;           // OP_LINEAR
    snd_mid slope;        // OP_UNARY: node of the derivative, 0: not made
    double gq;            // backward result, node scale 2^gk
    int32_t gk;
    bool reached;
} m_node;

typedef struct m_atom {
    snd_mid src;          // the node whose Gaussian variable this is
    snd_mid ident;        // the FUNC node z -> src (for a fresh map src itself)
    bool fresh;
    double mean, sd;      // node units of src
    double rho;           // between rows
    const snd_gauss_rule *rule;
} m_atom;

typedef struct m_slot { uint64_t key; double v; } m_slot;

struct snd_moments {
    snd_arena *arena;
    int batch;
    bool failed;
    m_node *node; int64_t n, cap, n_forward;       // n_forward: set by the first backward sweep; no building after it
    m_atom *atom; int64_t n_atoms, cap_atoms;
    m_slot *cache; int64_t cache_cap, cache_n;     // second moments
    m_slot *prods; int64_t prods_cap, prods_n;     // product nodes by operands
    snd_gauss_rule rule;
};

snd_mid m_product(snd_moments *t, snd_mid a, snd_mid b); // remembered: same operands, same node
snd_mid m_slope(snd_moments *t, snd_mid y);              // derivative of y = fn(x) with respect to x, as a node

double m_kurtosis(snd_moments *t, snd_mid a);            // E (a - mean)^4 / var^2; 3 when there is no spread

#endif