// Front header of graph/: a static graph of coarse operations on named values, its derivative (more nodes of the same
// graph), a memory plan by liveness, and an executor. Knows no model and no formula.
//
//   snd_graph *g = snd_graph_create(arena, SND_F32);
//   snd_id x = snd_g_input(g, "input", SND_SHAPE(64, 256), SND_DT_NONE);
//   snd_id w = snd_g_param(g, "stem.weight", SND_SHAPE(256, 256), &init);
//   snd_id y = snd_g_linear(g, x, w);                 // constructors after a first error return 0 and do nothing
//   snd_g_grad(g, &y, &dy, 1, wrt, n, grads);         // appends backward nodes
//   snd_plan / snd_exec ...
#ifndef SND_GRAPH_H
#define SND_GRAPH_H

#include "kernels/kernels.h"
#include "tensor/tensor.h"

typedef int32_t snd_id;      // a value; 0 is invalid

// Every value is (buffer, exponent): the number is buffer * 2^e. An op computes on buffers and does the exponents'
// arithmetic; results whose largest absolute value leaves [2^-48, 2^48] (f32; 2^+-200 in f64: fourth powers still fit) are renormalised by an
// exact power of two. So q = 1e116 fits f32. Within the range e stays 0 and bits are those of plain arithmetic.
typedef enum snd_vrole { SND_R_NONE, SND_R_INPUT, SND_R_PARAM, SND_R_NODE, SND_R_BUFFER } snd_vrole;

typedef struct snd_init {    // how a parameter starts; the source draws it
    enum { SND_INIT_NONE, SND_INIT_CONST, SND_INIT_NORMAL, SND_INIT_TRUNC, SND_INIT_UNIFORM,
           SND_INIT_LAST /* zero but for the last element, which is a */ } kind;
    double a;                // CONST: the value; NORMAL: sd; TRUNC: sd of the uncut normal, cut at 2 sd; UNIFORM: half width
    double factor;           // multiplies the draw; has to be given (1 for none)
} snd_init;

typedef struct snd_value {
    const char *name;        // first name, or "" ; names given later are in the tap table
    snd_vrole role;
    snd_dtype dtype;         // float values have the graph's dtype; targets I64; statistics F64
    snd_shape shape;
    int32_t node;            // producing node, -1 for inputs, parameters and buffers
    int out_index;
    int32_t param;           // index of the parameter, -1
} snd_value;

enum { SND_MAX_OUT = 5 };
typedef struct snd_attr { double f[6]; int64_t i[8]; } snd_attr;   // meaning per op, documented in its file
typedef struct snd_node {
    const struct snd_node *second;     // of a fused pair whose middle value stayed: the second node as it was, by which its
                                       // results can be made again from that value alone; else NULL
    int op;                  // row of ops.def
    snd_id *in; int n_in;
    snd_id out[SND_MAX_OUT]; int n_out;
    snd_attr attr;
} snd_node;

typedef struct snd_graph snd_graph;
typedef struct snd_source snd_source;
#include "graph/op.h"        // what an op is, and what ops may use

snd_graph *snd_graph_create(snd_arena *a, snd_dtype dtype);   // NULL: out of memory
snd_dtype snd_graph_dtype(const snd_graph *g);
snd_arena *snd_graph_arena(const snd_graph *g);
/// Linear maps, forward and backward, round both operands of their products to this type and sum in f32: SND_BF16, in a graph
/// of f32. NONE, as a graph begins: nothing is rounded. Products within attention and convolutions are not maps of this kind.
void snd_graph_round_products(snd_graph *g, snd_dtype to);
snd_dtype snd_graph_products(const snd_graph *g);
/// Every result of a node, and every input, is rounded to this type as it is stored: SND_F16, in a graph of f32, with what lies
/// beyond 65504 becoming infinite and what is too small 0 (exponents are no way out). Left alone are scalars, statistics and
/// an op's `exact` outputs, and what ops do inside (sums, softmax, norms' statistics); attention's scores overflow as they
/// would if they were stored. Weights are the source's business. NONE, as a graph begins: nothing is rounded. Such a graph is
/// not to be fused: a middle value that is not stored is not rounded.
void snd_graph_store(snd_graph *g, snd_dtype as);
snd_dtype snd_graph_stored(const snd_graph *g);
sonde_status snd_graph_status(const snd_graph *g);            // the builder's first error (its message re-recorded)
/// Records the builder's first error; returns 0.
snd_id snd_g_fail(snd_graph *g, sonde_status code, const char *fmt, ...) SND_PRINTF(3, 4);

snd_id snd_g_input(snd_graph *g, const char *name, snd_shape s, snd_dtype dtype /* NONE: the graph's */);
snd_id snd_g_param(snd_graph *g, const char *name, snd_shape s, const snd_init *init);
/// Buffers that are state, not learned (running statistics): a parameter without gradient.
snd_id snd_g_state(snd_graph *g, const char *name, snd_shape s, const snd_init *init);
/// Memory of the caller's (snd_exec_bind) that outlasts runs and may serve several graphs, one at a time: ops of the kind
/// snd_op_info.fills write to it, what it holds beyond that is left alone.
snd_id snd_g_buffer(snd_graph *g, const char *name, snd_shape s);
/// Generic node; shapes of the outputs come from the op's shape rule. out[] gets n_out ids.
snd_id snd_g_op(snd_graph *g, int op, const snd_id *in, int n_in, const snd_attr *attr, snd_id *out /* may be NULL */);
void snd_g_name(snd_graph *g, snd_id v, const char *name);    // adds a name (tap); a value may have several
/// v are the streams between two layers. The nodes up to the one made last and after the boundary before form a segment, the
/// unit in which a plan drops values and computes them again; fusion keeps what lies on both sides of any of them apart.
/// Boundaries come in running order.
void snd_g_boundary(snd_graph *g, const snd_id *v, int n);
snd_id snd_g_find(const snd_graph *g, const char *name);      // by any of its names; 0: none
const snd_value *snd_g_value(const snd_graph *g, snd_id v);
int snd_g_value_count(const snd_graph *g);                    // ids are 1..count
int snd_g_node_count(const snd_graph *g);
const snd_node *snd_g_node(const snd_graph *g, int i);
int snd_g_param_count(const snd_graph *g);
snd_id snd_g_param_at(const snd_graph *g, int i);
const snd_init *snd_g_param_init(const snd_graph *g, int i);
bool snd_g_param_is_state(const snd_graph *g, int i);
int snd_g_name_count(const snd_graph *g);                     // tap table, in order of naming
const char *snd_g_name_at(const snd_graph *g, int i, snd_id *v);

/// Reverse-mode derivative: given dy[i] (values) of y[i], returns in grads[k] the value holding the gradient of wrt[k]
/// (0: does not depend, i.e. zero). Sums over all uses. May be called several times (several exits); each call makes
/// its own chain. Nothing is computed that no requested gradient needs.
void snd_g_grad(snd_graph *g, const snd_id *y, const snd_id *dy, int n, const snd_id *wrt, int n_wrt, snd_id *grads);

/// Rewrites by fusions.def over nodes whose intermediate values are not taps; returns the number of rewrites.
int snd_g_fuse(snd_graph *g, const snd_id *keep, int n_keep);
void snd_g_dump(const snd_graph *g, snd_buf *b);              // one line a node, stable: refactors compare it

// ---- plan: which nodes run, in which order, and where values live ---------------------------------------------------
typedef struct snd_plan snd_plan;
// How a plan trades time for memory. The numbers computed are the same bits whatever is chosen.
//   again   which values that only the backward pass still needs are dropped and computed again there. CHEAP: results of ops
//           that are so (snd_op_info.cheap), once their last reader of the forward pass has run, where everything that they
//           are made of is there anyway. SEGMENT: all of a segment (snd_g_boundary) at its end, again when the backward pass
//           comes to it; the last segment's stay. Costs up to one forward pass.
//   params  SOURCE: the source holds them (snd_plan_param_bytes). SEGMENT: they live in the plan's slab, drawn at their
//           first use in a segment and gone after the last; once in the forward pass, once for the recomputed segment
//           and its backward pass. USE: drawn for each use. Huge ones are read in pieces by ops that can.
typedef struct snd_plan_opts {
    enum { SND_AGAIN_NONE, SND_AGAIN_CHEAP, SND_AGAIN_SEGMENT } again;
    enum { SND_PARAMS_SOURCE, SND_PARAMS_SEGMENT, SND_PARAMS_USE } params;
} snd_plan_opts;
/// Everything that `keep` values need (others are dropped). Kept values stay readable after the run.
sonde_status snd_plan_make(snd_arena *a, const snd_graph *g, const snd_id *keep, int n_keep, snd_plan **out) SONDE_MUST_CHECK;
sonde_status snd_plan_make_by(snd_arena *a, const snd_graph *g, const snd_id *keep, int n_keep, const snd_plan_opts *o,
                              snd_plan **out) SONDE_MUST_CHECK;
size_t snd_plan_bytes(const snd_plan *p);                     // the slab: activations, and parameters that it holds
size_t snd_plan_param_bytes(const snd_plan *p);               // what the source has to hold
double snd_plan_flops(const snd_plan *p);                     // nominal, by the ops' own counts; what runs twice counts twice
double snd_plan_flops_again(const snd_plan *p);               // of these, what runs for the second time
double snd_plan_share(const snd_plan *p, int done);           // of the expected time, after so many operations: 0 to 1
void snd_plan_print(const snd_plan *p, snd_buf *b);
bool snd_plan_ok(const snd_plan *p);                          // no two live values overlap
void snd_plan_check(const snd_plan *p);                       // asserts that

// ---- parameter sources ----------------------------------------------------------------------------------------------
// The executor acquires a parameter before its use and releases it after. `drawn` makes it from (seed, name) at any time,
// `resident` keeps one copy of each (drawn at first use, filled by the caller, or the caller's own, as a mapped file). A
// source serves every graph of one spec, which all have its parameters in one order.
// read() copies n elements from the first-th on, in the parameter's type, to a place of the caller's, and keeps nothing:
// how plans with parameters in their slab, and ops that need a few rows of a huge matrix, come by them.
struct snd_source {
    void *self;
    void (*read)(void *self, const snd_graph *g, int param, int64_t first, int64_t n, void *dst);
    sonde_status (*acquire)(void *self, const snd_graph *g, int param, const void **data, int32_t *e);
    void (*release)(void *self, const snd_graph *g, int param);
    void (*destroy)(void *self);
};
sonde_status snd_source_drawn(const snd_graph *g, uint64_t seed, int threads, snd_source *out) SONDE_MUST_CHECK;
sonde_status snd_source_resident(const snd_graph *g, uint64_t seed, int threads, snd_source *out) SONDE_MUST_CHECK;
/// The writable copy of a parameter (draws it unless filled before), which stays from then on.
sonde_status snd_source_data(snd_source *s, const snd_graph *g, int param, void **data) SONDE_MUST_CHECK;
/// The parameter is this memory of the caller's (a mapped file), of its size, type and alignment, which is only read and
/// outlives the source. Resident sources, before its first use.
void snd_source_borrow(snd_source *s, const snd_graph *g, int param, const void *data);
/// Time spent drawing so far; of drawn and resident sources.
double snd_source_seconds(const snd_source *s);
void snd_source_close(snd_source *s);

// ---- executor -------------------------------------------------------------------------------------------------------
typedef struct snd_exec snd_exec;
typedef struct snd_exec_opts {
    int threads;               // 0: all
    uint64_t seed;             // for ops that draw (integrated linear maps)
    void (*progress)(void *ctx, int done, int total); void *ctx;    // after every operation
    const snd_stop *stop;
    void *slab;                // for the values, of at least snd_plan_bytes, 64-byte aligned, the caller's; several executors may
                               // run in one, one after the other, each with its inputs set anew. NULL: one of its own
    int count_from;            // snd_exec_lost is about this node and those behind it
} snd_exec_opts;
sonde_status snd_exec_create(const snd_graph *g, const snd_plan *p, snd_source *src, const snd_exec_opts *o, snd_exec **out) SONDE_MUST_CHECK;
void snd_exec_destroy(snd_exec *x);
/// Copies n elements in (converted to the value's type; exponent chosen).
sonde_status snd_exec_set(snd_exec *x, snd_id v, const void *data, snd_dtype dtype) SONDE_MUST_CHECK;
/// Buffer v is `b`, which stays the caller's and changes as runs write to it: numbers p * 2^e, p of the value's size and the
/// graph's type; amax at least their largest absolute value (NaN and Inf as such), 0 while nothing was written.
void snd_exec_bind(snd_exec *x, snd_id v, snd_rv *b);
sonde_status snd_exec_run(snd_exec *x) SONDE_MUST_CHECK;
void snd_exec_reseed(snd_exec *x, uint64_t seed);
/// This run's examples are number `first` and on of a larger batch: their draws are those of the batch in one piece.
void snd_exec_first_example(snd_exec *x, int64_t first);
/// Kept values: raw buffer and exponent, or converted to double with the exponent applied (may give Inf).
const void *snd_exec_raw(const snd_exec *x, snd_id v, int32_t *e);
sonde_status snd_exec_get(const snd_exec *x, snd_id v, double *out) SONDE_MUST_CHECK;
int64_t snd_exec_op_count(const snd_exec *x);
/// Of the results of the last run's nodes from count_from on that were not 0, the share that storing made 0. 0: nothing rounded.
double snd_exec_lost(const snd_exec *x);
/// Test hook: stores input v as (buffer * 2^-k, exponent + k): the same numbers in another representation.
void snd_exec_shift(snd_exec *x, snd_id v, int k);

#endif
