// Private to graph/: how a graph and a plan are stored. Values, nodes and names only ever grow; everything lives in the
// graph's arena. Node order is a topological order at all times (fusion keeps it).
#ifndef SND_GRAPH_IMPL_H
#define SND_GRAPH_IMPL_H

#include "graph/graph.h"

typedef struct snd_tapname { const char *name; snd_id v; } snd_tapname;
typedef struct snd_end { snd_id v; bool cut; } snd_end;             // a stream at a boundary; cut: the one made last
typedef struct snd_param { snd_id v; snd_init init; bool state; } snd_param;

struct snd_graph {
    snd_arena *arena;
    snd_dtype dtype;
    sonde_status status;
    const char *message;
    snd_value **values; int n_values, cap_values;      // [1 .. n_values]
    snd_node **nodes; int n_nodes, cap_nodes;          // NULL: removed by fusion
    snd_param *params; int n_params, cap_params;
    snd_tapname *names; int n_names, cap_names;
    int32_t *slots; int n_slots;                       // open addressing: index into names + 1
    snd_end *ends; int n_ends, cap_ends;               // boundaries, as they were named
    snd_id *seeds; int n_seeds, cap_seeds;             // upstream gradients: what depends on them is the backward pass
    snd_dtype products;                                // what their operands are rounded to; NONE: nothing
    snd_dtype stored;                                  // what results are rounded to; NONE: nothing
};

/// Remembers an upstream gradient.
void snd_graph_seed(snd_graph *g, snd_id dy);

// What is to be computed, as steps in a valid order: a node stands there twice when a plan computes it again, the second
// time perhaps in part: the second node of a fused pair alone. What steps read and make are instances of values; a view's
// instance has the buffer of another one. Heap memory.
typedef struct snd_step { int32_t node, in, out; bool again, part; } snd_step; // in, out: places in `arg`
typedef struct snd_inst {
    snd_id v;
    int32_t root, maker;          // the instance whose buffer it is; the step that makes it, -1: none
    int32_t before;               // parameters: the one of an earlier visit, 0: none; they are never there together
    bool whole;                   // parameters: some reader needs all of it in memory
} snd_inst;
typedef struct snd_sequence {
    snd_step *step; int64_t n, cap;
    int32_t *arg; int64_t n_args, cap_args;       // instances; 0: none
    snd_inst *inst; int64_t n_inst, cap_inst;     // from 1
} snd_sequence;
/// Fills q (to be freed by the caller) from the plan's root, view and keep. False: out of memory.
bool snd_sequence_make(const snd_plan *p, const bool *needed, snd_sequence *q);
void snd_sequence_free(snd_sequence *q);

// The slab:   | large values, reused | small values, reused | scratch |
// One stay of a value in it, from `birth` (position of its producer in `order`, -1 for inputs) to `death` (position of its
// last reader; n_order for kept ones). Values of one buffer (views, results placed on an operand) share offset.
typedef struct snd_life {
    snd_id v;
    int32_t birth, death;
    size_t size;
    int64_t offset;               // -1: none (views; parameters that the source holds, or that are read in pieces)
} snd_life;
typedef struct snd_load { snd_id v; int64_t offset; } snd_load;    // a parameter to be put there; -1: it is read in pieces

struct snd_plan {
    const snd_graph *g;
    snd_plan_opts o;
    int32_t *order; int n_order;  // nodes
    bool *part, *again;           // by position: snd_step's
    int64_t (*place)[SND_MAX_OUT]; // by position and output; -1: a view
    snd_load *loads;              // before position i: loads[first_load[i]] .. loads[first_load[i + 1] - 1]
    int32_t *first_load;
    snd_life *life; int n_lives;
    snd_id *root;                 // by value: the value whose buffer it is (itself unless a view), 0: not in the plan
    bool *keep;                   // by value
    bool *view;                   // by node: runs as a view
    double *work;                 // before position i, in the time of a floating-point operation; see plan.c
    double flops, flops_again;
    size_t bytes, scratch_at, param_bytes;
    int n_values;                 // when the plan was made
};

static inline const snd_node *snd_part_of(const snd_graph *g, int32_t node, bool part) {
    return part ? g->nodes[node]->second : g->nodes[node];
}
/// What runs at a position of the order.
static inline const snd_node *snd_plan_node(const snd_plan *p, int pos) {
    return snd_part_of(p->g, p->order[pos], p->part[pos]);
}

#endif
