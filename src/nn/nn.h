// Front header of nn/: what a norm site, a learned map or a sublayer is made of (parameters by name, ops, initial
// values). It turns sites of a wiring into nodes of a graph; it knows neither whole stacks nor families.
#ifndef SND_NN_H
#define SND_NN_H

#include "ops/ops.h"
#include "spec/spec.h"

// How sites are built: with weights, or with Gaussian maps integrated out (finite-width law without weights).
#define SND_BATCH_SHARE 0.1      // of a batch in batch norm's running averages

typedef struct snd_nn {
    snd_graph *g;
    const snd_spec *spec;
    const snd_stack *stack;    // constants for init rules
    int layer;                 // from 0; -1 outside layers
    bool integrate;            // linear maps by snd_g_glinear; gains of 1 and biases of 0 left out
    bool eval;                 // batch norm by running statistics
    snd_id positions;          // I64 [T]: where the tokens stand in sequences that began earlier; 0: at 0 .. T-1
    snd_id lengths;            // I64 [B]: tokens of each sequence that are no padding, for batch norm; 0: all
    bool training;             // dropout acts
    int64_t rows;              // examples in the batch
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
/// Convolution without bias of x [B, H, W, in], parameter site.weight [channels, in, k, k]; never integrated out.
sonde_status snd_nn_conv(const snd_nn *m, const char *site, const char *role, snd_id x, int64_t in, int64_t channels, int64_t k,
                         int64_t stride, snd_id *out) SONDE_MUST_CHECK;
/// The kernel's name for a function of the language.
snd_kfn snd_nn_kfn(snd_fn f);

// ---- sublayers of Transformers ------------------------------------------------------------------------------------------

typedef enum snd_part_kind {
    SND_PART_NONE,
    SND_PART_MAP,      // NAME.weight [out, in] and, where `bias`, NAME.bias [out]
    SND_PART_VALUE,    // NAME itself, of this shape, starting at `start`
    SND_PART_TABLE,    // NAME.weight [in, out]: a row per token, position or bucket
    SND_PART_RMS,      // rms norm of `in` features with NAME.weight [in]: the spec's eps and plus1, no bias
    SND_PART_UNIT,     // x/|x| of `in` features; nothing is learned
    SND_PART_NORM      // the model's norm of `in` features
} snd_part_kind;

// One thing that a sublayer is made of. `name` stands behind the sublayer's: "q", "k_norm", "pos_u", "inner".
typedef struct snd_subpart {
    snd_part_kind kind;
    const char *name, *role;           // role: of the init rules
    int64_t in, out, each;             // each: norms stand on so many pieces of a row (heads), 1 otherwise
    bool bias;
    snd_shape shape; double start;
} snd_subpart;
enum { SND_MAX_PARTS = 12 };

/// The parts of A, C or M in this layer (from 0) of a stack, in the order of their use. Returns their number.
int snd_nn_parts(const snd_spec *s, const snd_stack *t, int layer, const snd_sub_args *a, snd_subpart parts[SND_MAX_PARTS]);
const snd_subpart *snd_nn_part(const snd_subpart *parts, int n, const char *name);   // NULL: there is none
/// What a part of kind RMS or NORM is as a norm.
snd_norm_args snd_nn_part_norm(const snd_subpart *p, const snd_stack *t);
/// Does this stack's self-attention look back only? (decoders)
bool snd_nn_causal(const snd_spec *s, const snd_stack *t);

// What the sublayers of one stack share; one for each walk over a stack.
typedef struct snd_seq {
    snd_id memory;             // what C attends to: [B, Tm, d]; 0: this stack has no encoder
    snd_id lengths, memory_lengths;    // I64 [B]: tokens of A's input, of C's, that are no padding; 0: all
    snd_id relative;           // t5: the stack's table [buckets, heads]; 0: none
    snd_id first_v[2];         // values of the stack's first A and first C, for v1=; start at 0
    /// xl: the segment before, as this sublayer read it [B, Tp, d]; *out = 0: there was none. May be NULL.
    sonde_status (*past)(void *ctx, const char *site, snd_id *out);
    /// Sequences that go on (m->positions): keys and values of self-attention, "k" and "v", joined to those of the tokens
    /// before: [B, T, kv*hd] -> [B, C, kv*hd].
    sonde_status (*append)(void *ctx, const char *site, const char *what, snd_id x, snd_id *all);
    /// What no token of this stack changes: "k" and "v" of cross-attention [B, Tm, kv*hd], "r" of xl [C, heads*hd], all from
    /// earlier runs; then it is not computed. May be NULL.
    sonde_status (*known)(void *ctx, const char *site, const char *what, int64_t features, snd_id *out);
    /// Told of the same where it is computed. May be NULL.
    sonde_status (*fixed)(void *ctx, const char *site, const char *what, snd_id x);
    void *ctx;
} snd_seq;

/// A(u), C(u) or M(u) of formulas.md section 6 at `site` ("layers.3.A"), u [B, T, d] -> [B, T, d]. m->layer is the layer.
/// Errors: SONDE_ESHAPE where v1= meets values of another shape; else what the ops say.
sonde_status snd_nn_sublayer(const snd_nn *m, snd_seq *q, const char *site, const snd_sub_args *a, snd_id u, snd_id *out) SONDE_MUST_CHECK;

#endif
