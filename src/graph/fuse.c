// Rewrites pairs of nodes into fused ones, as the rows of ops/fusions.def say.
// Invariants: the fused node's outputs are the values of the pair, so every other node, name and gradient stays valid;
// node order stays topological: the fused node stands where the first stood, and the second's other inputs must be there
// by then; or, where the row says so, it stands where the second stood, and the first's only output is the middle value.
// Unless the row keeps that value, nobody else may read it.
#include "graph/graph_impl.h"

#include <assert.h>
#include <string.h>

enum { MAX_FUSED_IN = 8 };

typedef struct fuser {
    snd_graph *g;
    int32_t *uses; // by value: reading nodes, names and keeps
    bool *ends;    // by value: a boundary between two segments
} fuser;

static void count_uses(fuser *f, const snd_id *keep, int n_keep) {
    const snd_graph *g = f->g;
    for (int i = 0; i < g->n_nodes; i++) {
        for (int k = 0; g->nodes[i] && k < g->nodes[i]->n_in; k++) f->uses[g->nodes[i]->in[k]]++;
    }
    for (int i = 0; i < n_keep; i++) f->uses[keep[i]]++;
    for (int i = 0; i < g->n_names; i++) f->uses[g->names[i].v]++;
    for (int i = 0; i < g->n_ends; i++) f->ends[g->ends[i].v] = true;
}

// Other outputs of the first than the middle value are inputs of the pair itself; fits() has to know them.
static bool others_are_there(const snd_graph *g, const snd_node *n, int port, int first) {
    for (int k = 0; k < n->n_in; k++) {
        const snd_value *v = n->in[k] && k != port ? snd_g_value(g, n->in[k]) : NULL;
        const bool own = v && v->node == first && n->in[k] != n->in[port];
        if (v && v->node >= first && !own) return false;
    }
    return true;
}

// Node `at` takes over; both old nodes' outputs point to it.
static bool replace(fuser *f, const snd_fusion *row, int first, int second, int port) {
    snd_graph *g = f->g;
    snd_id in[MAX_FUSED_IN] = {0};
    snd_node fused = {.op = row->fused, .in = in};
    row->merge(g, g->nodes[first], g->nodes[second], port, &fused);
    assert(fused.n_in <= MAX_FUSED_IN);
    snd_node *n = snd_arena_alloc(g->arena, sizeof *n);
    snd_id *ids = snd_arena_array(g->arena, (size_t)fused.n_in, sizeof *ids);
    if (!n || !ids) {
        snd_g_fail(g, SONDE_ENOMEM, "no memory for a fused node");
        return false;
    }
    memcpy(ids, in, (size_t)fused.n_in * sizeof *ids);
    *n = fused;
    n->in = ids;
    const snd_id middle = g->nodes[second]->in[port];
    // mostly the first's: of a gradient's statistics that is in the backward pass of its layer, not after all of them
    const int at = row->late ? second : first;
    if (row->keeps_middle) n->second = g->nodes[second];
    g->nodes[first] = g->nodes[second] = NULL;
    g->nodes[at] = n;
    if (!row->keeps_middle) g->values[middle]->node = -1;
    for (int k = 0; k < n->n_out; k++) {
        snd_value *v = g->values[n->out[k]];
        v->node = at;
        v->out_index = k;
    }
    return true;
}

static bool try_row(fuser *f, const snd_fusion *row, int second, int port) {
    snd_graph *g = f->g;
    const snd_node *b = g->nodes[second];
    const snd_id mid = b->in[port];
    const snd_value *v = mid ? snd_g_value(g, mid) : NULL;
    if (!v || v->role != SND_R_NODE || v->out_index != row->out) return false;
    const snd_node *a = g->nodes[v->node];
    if (a->op != row->first || b->op != row->second) return false;
    if (row->late ? a->n_out != 1 : !others_are_there(g, b, port, v->node)) return false;
    if (f->ends[mid] || (!row->keeps_middle && f->uses[mid] != 1)) return false;
    if (!row->fits(g, a, b, port)) return false;
    if (!replace(f, row, v->node, second, port)) return false;
    f->uses[mid]--;
    return true;
}

static bool fuse_node(fuser *f, int i) {
    for (int r = 0; snd_fusion_at(r); r++) {
        for (int k = 0; k < f->g->nodes[i]->n_in; k++) {
            if (try_row(f, snd_fusion_at(r), i, k)) return true;
        }
    }
    return false;
}

int snd_g_fuse(snd_graph *g, const snd_id *keep, int n_keep) {
    if (g->status != SONDE_OK || g->n_values == 0) return 0;
    fuser f = {.g = g,
               .uses = snd_calloc((size_t)g->n_values, sizeof *f.uses),
               .ends = snd_calloc((size_t)g->n_values, sizeof *f.ends)};
    int n = 0;
    if (f.uses && f.ends) {
        count_uses(&f, keep, n_keep);
        for (int i = 0; i < g->n_nodes && g->status == SONDE_OK; i++) {
            while (g->nodes[i] && fuse_node(&f, i)) n++;
        }
    } else {
        snd_g_fail(g, SONDE_ENOMEM, "no memory for fusing %d nodes", g->n_nodes);
    }
    snd_free(f.uses);
    snd_free(f.ends);
    return n;
}
