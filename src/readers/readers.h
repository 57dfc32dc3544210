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

// What comes in at the bottom of a stack of a Transformer: I64 tokens through the embedding, the stream itself in its place,
// or (encoder-decoder) the memory in place of the whole encoder.
typedef enum snd_feed { SND_FEED_INVALID, SND_FEED_TOKENS, SND_FEED_STREAM, SND_FEED_MEMORY } snd_feed;

// xl: a sublayer ("layers.3.A") that also reads so many tokens of the segment before, as input "mem.layers.3.A" [B, tokens, d].
typedef struct snd_past { const char *site; int64_t tokens; } snd_past;

typedef struct snd_model {
    const snd_spec *spec;
    snd_graph *g;
    // Every input of the graph, by the name that files of `run` use: "input" [B, inputs or d] (mlp) or [B, inputs or d, H, W]
    // (convnet); "tokens" (I64 [B, T]) or
    // "x" [B, T, d], "src_tokens", "src_x" or "memory" [B, Ts, d], "mem.SITE" (transformer); "cond" [B, cond]; "targets"
    // (I64 [B], or [B, T]). Which of them there are depends on spec and snd_build.
    snd_tap *inputs; int n_inputs;
    snd_id input, cond, targets;       // "input", "x" or "tokens", whichever there is; "cond"; "targets". 0: none
    snd_id in_x;                       // "in.x" of the decoder or only stack
    snd_id out_x, logits, loss;        // of the deepest exit; 0: none. Logits are [B, outputs], or [B, T, vocab]
    snd_exit *exits; int n_exits;
    // Of a model of continuing tokens (snd_build.capacity): where they stand (I64 [T]: p, p+1, ..); the buffers it wants bound:
    // "layers.3.A.k" and ".v" [B, capacity, features], which its runs fill, and those of `fixed` in the model that computes them.
    snd_id positions;
    snd_tap *buffers; int n_buffers;
    snd_tap *fixed; int n_fixed;       // what no token of the decoder changes: "decoder.layers.3.C.k", ".v"; xl: "layers.3.A.r"
    snd_tap *taps; int n_taps;         // every value with a name, in running order
    snd_call *calls; int n_calls;
    int n_sublayers;                   // S of the decoder or only stack
    int64_t rows, tokens;              // examples B; T (mlp, convnet: 1). A Transformer's or an mlp's stream has rows * tokens
                                       // rows of d features, a convnet's is [B, H, W, channels], [B, 1, 1, channels] once pooled
} snd_model;

typedef struct snd_build {
    snd_dtype dtype;
    int64_t rows;                      // examples
    int64_t height, width;             // of a convnet's images; 0: SND_IMAGE_SIDE
    // Transformers alone; tokens and src_tokens 0: 1; feeds 0: tokens where there is a vocab, else the stream
    bool lengths;                      // input "lengths" (I64 [B]): tokens of each decoder's sequence that batch norm counts
    bool src_lengths;                  // input "src_lengths" (I64 [B]): tokens of each source that are no padding
    int64_t tokens, src_tokens;        // length of the (decoder's) sequence; of the encoder's sequence or of the memory
    snd_feed feed, src_feed;           // of the decoder or only stack; of the encoder
    const snd_past *past; int n_past;
    int64_t capacity;                  // > 0: the tokens continue sequences of up to so many (decoders); an encoder is not run
    bool last;                         // out.x and logits of each example's last token alone: [B, 1, ..]
    bool eval;                         // batch norm by running statistics
    bool training;                     // dropout, attn_dropout and droppath act
    double label_smoothing;            // of the loss
    bool integrate;                    // Gaussian maps integrated out
    bool with_cond;                    // the input "cond" even where the wiring never reads c
    bool with_targets;                 // targets input and loss (needs outputs, or vocab and tokens)
    const int *exits; int n_exits;     // depths that get an out: of their own; NULL: only L. Encoder-decoder: the decoder's
} snd_build;

/// Builds the graph of a spec. All parameters of the spec are in it, those that the inputs leave unused
/// too. Errors carry the formula's place; SONDE_EINPUT: more tokens than learned positions, targets without logits, a past
/// that no sublayer reads; SONDE_EUNSUPPORTED: a capacity where tokens read those behind them (encoders, the mlp family).
sonde_status snd_model_build(snd_arena *a, const snd_spec *spec, const snd_build *o, snd_model **out) SONDE_MUST_CHECK;
/// Node of a call's attention, the one of its kind between what the call reads and what it gives. -1: none. Before fusing.
int32_t snd_model_attention(const snd_model *m, const snd_call *c);
/// "layers.3." and what stands before it, of a name inside a layer: bytes up to behind that dot, and the layer. 0: outside.
size_t snd_layer_prefix(const char *name, int *layer);
/// "layers.3.y" -> "y": a stream at a layer's end; NULL for every other tap.
const char *snd_layer_stream(const char *name);
/// Marks the streams at the end of each layer as a boundary of the graph. Before fusing. Not those of the last layer: its
/// backward pass follows at once.
sonde_status snd_model_cut(snd_arena *a, const snd_model *m) SONDE_MUST_CHECK;
snd_id snd_model_tap(const snd_model *m, const char *name);    // 0: no such value
snd_id snd_model_input(const snd_model *m, const char *name);  // 0: no such input
/// The stacks of a spec in running order, as the walker wants them: one, or encoder and decoder. Returns their number.
int snd_model_stacks(const snd_spec *spec, snd_stack out[2]);
/// A stream as it enters a stack; of a convnet an image of this size, 0: SND_IMAGE_SIDE.
enum { SND_IMAGE_SIDE = 32 };
snd_val snd_model_stream(const snd_spec *s, int64_t height, int64_t width);
/// The last of the stacks.
void snd_model_stack(const snd_spec *spec, snd_stack *out);

// ---- describe -----------------------------------------------------------------------------------------------------------------
// What a spec is, found by walking its formula without a graph: parameters, norm sites, layer kinds, constants, costs, and
// what is known of the start (values and gradients that are exactly zero). Every family; nothing is drawn or computed.

typedef struct snd_param_row {
    const char *name, *role, *init;    // init: "normal(0.0442)", "one", "zero", "= 0.5"
    const char *alt;                   // a second role (the mlp block's maps: "up", "down"), or NULL
    snd_shape shape;
    double var, mean;                  // of one entry at the start
    double own_var, own_mean;          // the same by the recipe of the wiring or of the base kind alone, without the key's role rules
    int layer;                         // from 0; -1: in no layer
    bool state;                        // running statistics: not learned
    bool no_grad;                      // its gradient is exactly zero in the first step
} snd_param_row;

typedef struct snd_site_row {          // text: "layer norm, eps 1e-05, weight and bias"
    const char *name, *text; int layer;
    snd_norm_kind kind;
    double eps, gain;                  // gain: initial, as used
    const char *after;                 // the norm whose output this one reads directly and that makes it redundant, or NULL
} snd_site_row;

typedef struct snd_layer_kind {        // equal layers in one
    const char *stack;                 // "", "encoder.", "decoder."
    int first, last;
    const char *text;                  // the formula as it stands for them, constants folded where all agree
    const char *first_text, *last_text;    // NULL, or the formula of the first and the last with constants folded
    const char *subs;                  // what the sublayers are, one line each; "" when nothing is to be said
    const char *layers;                // "0..7", "0, 2 .. 30"
    int count;
} snd_layer_kind;

typedef struct snd_mult_row {          // a number that multiplies a value of every layer
    const char *on;                    // "branch", "branch input", "stream", "sum"
    const char *first_at, *last_at;    // "layers.0.A"
    double first, last;
    bool learned;                      // first, last: initial values
    int count;
} snd_mult_row;

typedef struct snd_call_row {          // one sublayer call
    const char *name; int layer;
    bool normed;                       // it reads a norm's output
    bool out_zero;                     // what it returns is exactly zero at the start (last map zero)
    bool no_grad;                      // the gradient of what it returns is exactly zero in the first step (gate zero)
    const char *gate;                  // the parameter that makes it so, or NULL
} snd_call_row;

typedef struct snd_param_group {       // equal parameters of several layers in one
    const char *pattern;               // "layers.*.A.q.weight"
    const char *role, *init, *init_last;   // init_last: NULL when all start alike
    const char *layers;                // "0..11"; "" outside layers
    snd_shape shape; int count;
    bool state;
} snd_param_group;

typedef struct snd_site_group { const char *pattern, *text, *layers; int count; } snd_site_group;

// Counted, not measured: a product of [m,k] and [k,n] is 2mnk; the rest by the nominal counts of cost.c. Bytes: what each
// operation alone reads and writes of activations, in f32; weights apart.
typedef struct snd_cost { double gemm, attention, norm, elementwise, bytes; } snd_cost;

// A causal stack (a decoder) that goes on by one token at the end of its context, with the keys and values of the tokens
// before at hand: what the forward pass of the whole costs beyond that of all tokens but the last. The encoder and the keys and
// values made of its output were computed before. Per sequence; bytes in f32.
typedef struct snd_decoding {
    bool possible;                     // false: no decoder, and the rest is 0
    snd_cost cost; double flops;       // bytes: activations, the keys and values that the token reads among them
    double weight_bytes;               // every entry of a matrix that is multiplied, once
    double cache_bytes, memory_bytes;  // keys and values kept: of the context (with a window, of its last tokens); of the memory
} snd_decoding;

typedef struct snd_description {
    const char *formula;               // sections as text
    snd_param_row *params; int n_params;
    snd_site_row *sites; int n_sites;
    const char *const *lines; int n_lines;      // notes: final norm, start, warnings
    int64_t n_weights, n_learned, n_state;      // entries: matrices; all learned; running statistics
    double flops_forward, flops_backward, bytes_weights;   // per example; bytes_weights in f32
    snd_layer_kind *kinds; int n_kinds;
    const char *in_text, *out_text;    // sections in: and out: with constants folded; "" when there are none
    snd_mult_row *mults; int n_mults;
    snd_call_row *calls; int n_calls;
    snd_param_group *groups; int n_groups;
    snd_site_group *site_groups; int n_site_groups;
    snd_cost forward, backward;
    snd_decoding next;                 // snd_describe_facts: not filled
    const char *example;               // what one example is: "a row", "a sequence of 1024 tokens", "an image of 32 x 32"
    int64_t tokens;                    // of one example
    int n_sublayers;                   // S (decoder or only stack)
    int n_branches;                    // normalised branches that add up in out.x since the last norm of the stream
    bool final_norm;                   // out.x is a norm's output
    bool identity;                     // the stream reaches out.x by a path around the sublayers
    bool all_normed;                   // every sublayer call reads a norm's output
    bool head_zero;                    // there is a head and it starts at zero
    bool has_batch;                    // some site is a batch norm
    const char *own_init;              // base kind in force, "xavier"
} snd_description;
sonde_status snd_describe(snd_arena *a, const snd_spec *spec, snd_description **out) SONDE_MUST_CHECK;
/// The same without `next` and the layers' texts (in_text, out_text, kinds), which take most of the time.
sonde_status snd_describe_facts(snd_arena *a, const snd_spec *spec, snd_description **out) SONDE_MUST_CHECK;

#endif
