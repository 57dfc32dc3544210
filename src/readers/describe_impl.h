// What the files of the describing reader share. describe.c walks; describe_param.c lists what is learned; describe_text.c
// folds constants into formulas; describe_flow.c follows what is known of the start; cost.c counts.
#ifndef SND_DESCRIBE_IMPL_H
#define SND_DESCRIBE_IMPL_H

#include "readers/readers.h"

// One operation of the net. Ids start at 1 and inputs come before what reads them, so one pass up follows values and one
// pass down follows gradients.
typedef enum snd_dop {
    SND_D_SOURCE, SND_D_ALIAS, SND_D_ADD, SND_D_MUL, SND_D_DIV, SND_D_MINMAX, SND_D_UNARY, SND_D_NORM, SND_D_MAP, SND_D_SUBLAYER,
    SND_D_STOP, SND_D_DOT, SND_D_LIST, SND_D_PICK_LAST
} snd_dop;

typedef struct snd_dnode {
    snd_dop op;
    snd_fn fn;
    bool minus;                // ADD: a - b
    int32_t *in; int n_in;
    bool known; double start;  // every entry is this number at the start
    bool closed;               // MAP, NORM, SUBLAYER: weights are zero, so no gradient gets through
    bool stream;               // the residual stream is in it
    bool sum;                  // it is stream + branch and nothing else since
    bool normed;               // a norm's output, up to scaling and shifting
    int norm;                  // 1 + index of the norm site whose output it is, up to a number; 0: none
    bool had_stream;           // norm output: of the stream
    int acc, acc_normed;       // sublayer outputs added since the last norm of the stream; those that are normalised
    int mult;                  // 1 + index of the multiplier that this node applies; 0: none
    const char *site;          // parameter or map that it comes from, or NULL
    int first_param, n_params; // rows of what is learned here
    bool grad;                 // pass down: its gradient is not exactly zero
} snd_dnode;

typedef struct snd_dconst { const char *name; double v; bool is_const; } snd_dconst;
enum { SND_D_CONSTS = 160 };

// The text of one layer, while it is being walked.
typedef struct snd_dpiece { snd_section sec; char rep; const char *folded, *plain; } snd_dpiece;
typedef struct snd_dlayer { const char *stack; int layer; const char *folded, *plain, *subs; } snd_dlayer;

typedef struct snd_dmult { const char *stack, *at, *on; char rep; int ord, layer; double v; bool learned; } snd_dmult;

typedef struct snd_describer {
    snd_arena *arena;
    const snd_spec *spec;
    snd_spec bare;             // the spec without the init key's role rules: the recipe
    snd_stack stack;
    const snd_walk *walk;      // knows S
    snd_description *d;
    int64_t tokens, memory;    // of the stack under way; of the encoder's output
    int layer;
    char rep;
    int calls, ord;            // sublayer calls so far in this stack; multipliers so far in this section
    snd_dnode *nodes; int n_nodes; int64_t cap_nodes, cap_params, cap_sites, cap_calls, cap_mults, cap_layers;
    int *call_in, *call_out; int64_t cap_call_in, cap_call_out;     // nodes, one per row of d->calls
    snd_dmult *mults; int n_mults;
    snd_dlayer *layers; int n_layers;
    // text under way; none where only facts are asked for
    bool texts;
    snd_dconst consts[SND_D_CONSTS]; int n_consts, n_base, n_in, n_layer;
    snd_dpiece pieces[8]; int n_pieces;
    snd_buf folded, plain, subs;
    const char *sub_seen[4];
    int text_layer;            // layer that the pieces belong to
} snd_describer;

/// Arena-backed growth: makes room for one more.
sonde_status snd_d_room(snd_arena *a, void **p, int64_t *cap, int n, size_t size) SONDE_MUST_CHECK;

// describe_flow.c: nodes. out->id is set; kind and columns are the walker's.
sonde_status snd_d_node(snd_describer *b, snd_dop op, bool minus, const snd_val *in, int n_in, snd_val *out, snd_dnode **node) SONDE_MUST_CHECK;
void snd_d_known(snd_dnode *n, bool known, double v);
void snd_d_backward(snd_describer *b, int32_t out_x);
const char *snd_d_gate(const snd_describer *b, int32_t v);             // the zero parameter that hides v, or NULL

// describe_param.c
sonde_status snd_d_map(snd_describer *b, const char *site, const char *role, const char *alt, int64_t in, int64_t out, int64_t k,
                       double gain, bool zero, bool bias, bool *is_zero) SONDE_MUST_CHECK;
sonde_status snd_d_value(snd_describer *b, const char *name, const char *role, snd_shape shape, double v, bool last, double *start) SONDE_MUST_CHECK;
sonde_status snd_d_norm(snd_describer *b, const char *site, const snd_norm_args *n, int64_t d, bool *zero) SONDE_MUST_CHECK;
sonde_status snd_d_sublayer(snd_describer *b, const char *site, const snd_sub_args *s, bool *out_zero, bool *closed) SONDE_MUST_CHECK;
sonde_status snd_d_embedding(snd_describer *b) SONDE_MUST_CHECK;
sonde_status snd_d_positions(snd_describer *b) SONDE_MUST_CHECK;
sonde_status snd_d_head(snd_describer *b, int64_t width) SONDE_MUST_CHECK;
void snd_d_norm_text(const snd_norm_args *n, snd_buf *b);
sonde_status snd_d_groups(snd_describer *b) SONDE_MUST_CHECK;
/// "0..7", "0, 2 .. 30", "0..4, 6..10, 12": an ascending list of layers.
const char *snd_d_layers(snd_arena *a, const int *v, int n);

// describe_text.c
sonde_status snd_d_text_begin(snd_describer *b) SONDE_MUST_CHECK;      // of one stack
sonde_status snd_d_text_enter(snd_describer *b, snd_section sec, int layer, char rep) SONDE_MUST_CHECK;
sonde_status snd_d_text_stmt(snd_describer *b, const snd_stmt *s) SONDE_MUST_CHECK;
sonde_status snd_d_text_leave(snd_describer *b, snd_section sec, char rep) SONDE_MUST_CHECK;
sonde_status snd_d_text_sub(snd_describer *b, char which, const char *text) SONDE_MUST_CHECK;
sonde_status snd_d_text_block(snd_describer *b) SONDE_MUST_CHECK;    // of the mlp family
sonde_status snd_d_text_end(snd_describer *b) SONDE_MUST_CHECK;
sonde_status snd_d_kinds(snd_describer *b) SONDE_MUST_CHECK;

// cost.c: adds one operation, forward and backward, to d->forward and d->backward. rows: per example.
snd_cost snd_cost_beyond(const snd_cost *all, const snd_cost *less);      // all - less
void snd_cost_gemm(snd_description *d, double rows, double in, double out);
void snd_cost_attention(snd_description *d, double queries, double pairs, double heads, double head_dim, double products);
void snd_cost_norm(snd_description *d, snd_norm_kind kind, double elements);
void snd_cost_unary(snd_description *d, snd_fn fn, double elements);
void snd_cost_binary(snd_description *d, double in, double out);
double snd_cost_elements(const snd_describer *b, const snd_val *v);    // of one example

#endif
