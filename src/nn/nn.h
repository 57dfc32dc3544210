// Front header of nn/: what a norm site or a learned map is made of (parameters by name, ops, initial values). It turns
// sites of a wiring into nodes of a graph; it knows neither stacks nor families.
#ifndef SND_NN_H
#define SND_NN_H

#include "ops/ops.h"
#include "spec/spec.h"

// How sites are built: with weights, or with Gaussian maps integrated out (finite-width law without weights).
typedef struct snd_nn {
    snd_graph *g;
    const snd_spec *spec;
    const snd_stack *stack;    // constants for init rules
    int layer;                 // from 0; -1 outside layers
    bool integrate;            // linear maps by snd_g_glinear; gains of 1 and biases of 0 left out
    bool eval;                 // batch norm by running statistics
    /// Called for values that can be asked for besides the walker's (updated running statistics). May be NULL.
    sonde_status (*extra)(void *ctx, const char *name, snd_id v);
    void *ctx;
} snd_nn;

/// Initial value of a parameter by the init rules of formulas.md section 5: base kind, then the wiring's rules, then the
/// key's. role: "W", "stem", "head", "up", ...; alt: a second role the map answers to, or NULL. gain < 0: no explicit one.
sonde_status snd_nn_init_map(const snd_nn *m, const char *role, const char *alt, int64_t fan_in, int64_t fan_out, double gain,
                             bool zero, snd_init *out) SONDE_MUST_CHECK;
/// The same for what does not follow the base kind (gains, biases, scalars, vectors, ...): v unless a rule names the role.
sonde_status snd_nn_init_value(const snd_nn *m, const char *role, double v, snd_init *out) SONDE_MUST_CHECK;
/// Variance of one entry of a drawn parameter; a constant has variance 0.
double snd_nn_init_var(const snd_init *i);
/// "normal(0.0442)", "one", "zero" for describe.
void snd_nn_init_text(const snd_init *i, snd_buf *b);
/// Base kind in force: "xavier", "normal", ...
const char *snd_nn_base_kind(const snd_spec *s);

/// The parameter (or state) of this name, made on first use.
snd_id snd_nn_param(snd_graph *g, const char *name, snd_shape shape, const snd_init *init, bool is_state);
sonde_status snd_nn_norm(const snd_nn *m, const char *site, const snd_norm_args *n, snd_id x, int64_t d, snd_id *out) SONDE_MUST_CHECK;
/// y = x Wᵀ (+ b), parameters site.weight and site.bias.
sonde_status snd_nn_linear(const snd_nn *m, const char *site, const char *role, const char *alt, snd_id x, int64_t in, int64_t out_features,
                           double gain, bool zero, bool bias, snd_id *out) SONDE_MUST_CHECK;

#endif
