// Front header of readers/: the same formula read in several ways. build makes a graph; describe says what every site
// is; cost counts; predict runs the moment algebra (predict.h).
#ifndef SND_READERS_H
#define SND_READERS_H

#include "models/models.h"
#include "record/record.h"

// ---- build ----------------------------------------------------------------------------------------------------------------

typedef struct snd_tap { const char *name; snd_id v; } snd_tap;

// One sublayer call, in running order: what it read and gave, and the stream before its statement (for `write`).
typedef struct snd_call { const char *name; int layer; snd_id in, out, x; } snd_call;

typedef struct snd_exit { int layers; snd_id out_x, logits, loss; } snd_exit;

typedef struct snd_model {
    const snd_spec *spec;
    snd_graph *g;
    snd_id input, cond, targets;       // 0: none
    snd_id in_x;                       // "in.x"
    snd_id out_x, logits, loss;        // of the deepest exit; 0: none
    snd_exit *exits; int n_exits;
    snd_tap *taps; int n_taps;         // every value with a name, in running order
    snd_call *calls; int n_calls;
    int n_sublayers;                   // S
    int64_t rows;
} snd_model;

typedef struct snd_build {
    snd_dtype dtype;
    int64_t rows;                      // examples
    bool eval;                         // batch norm by running statistics
    bool integrate;                    // Gaussian maps integrated out
    bool with_targets;                 // targets input and loss (needs outputs or vocab)
    const int *exits; int n_exits;     // depths that get an out: of their own; NULL: only L
} snd_build;

/// Builds the graph of a spec. Errors carry the formula's place.
sonde_status snd_model_build(snd_arena *a, const snd_spec *spec, const snd_build *o, snd_model **out) SONDE_MUST_CHECK;
snd_id snd_model_tap(const snd_model *m, const char *name);    // 0: no such value
/// The stack's constants and norm as the walker wants them (decoder or only stack).
void snd_model_stack(const snd_spec *spec, snd_stack *out);

// ---- describe -----------------------------------------------------------------------------------------------------------------

typedef struct snd_param_row { const char *name, *role, *init; snd_shape shape; double var; int layer; } snd_param_row;
typedef struct snd_site_row { const char *name, *text; int layer; } snd_site_row;   // text: "layer norm, eps 1e-05, weight and bias"
typedef struct snd_layer_kind { int first, last; const char *text; int count; } snd_layer_kind;  // equal layers in one

typedef struct snd_description {
    const char *formula;               // sections as text
    snd_param_row *params; int n_params;
    snd_site_row *sites; int n_sites;
    const char *const *lines; int n_lines;      // notes: final norm, multipliers, warnings
    int64_t n_weights, n_learned, n_state;      // entries: matrices; all learned; running statistics
    double flops_forward, flops_backward, bytes_weights;   // per example
} snd_description;
sonde_status snd_describe(snd_arena *a, const snd_spec *spec, snd_description **out) SONDE_MUST_CHECK;

#endif
