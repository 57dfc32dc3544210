// Private to graph/: how a graph and a plan are stored. Values, nodes and names only ever grow; everything lives in the
// graph's arena. Node order is a topological order at all times (fusion keeps it).
#ifndef SND_GRAPH_IMPL_H
#define SND_GRAPH_IMPL_H

#include "graph/graph.h"

typedef struct snd_tapname { const char *name; snd_id v; } snd_tapname;
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
};

// The slab:   | large values, reused | small values, reused | scratch |
// A value is live from `birth` (position of its producer in `order`, -1 for inputs) to `death` (position of its last
// reader; n_order for kept ones). Values of one buffer (views, results placed on an operand) share offset.
struct snd_plan {
    const snd_graph *g;
    int32_t *order; int n_order;
    snd_id *root;                 // by value: the value whose buffer it is (itself unless a view), 0: not in the plan
    int64_t *offset;              // by root value: place in the slab, -1: none (parameters)
    int32_t *birth, *death;       // by root value
    size_t *size;                 // by root value, bytes
    bool *keep;                   // by value
    bool *view;                   // by node: runs as a view
    size_t bytes, scratch_at, param_bytes;
    int n_values;                 // when the plan was made
};

#endif
