// Reverse-mode derivative: walks the nodes backwards from y and lets every op emit the nodes of its own backward rule.
// Invariant: only nodes on a path from a requested value to y are visited, and an op is told which of its inputs lie on
// such a path, so nothing is emitted that no requested gradient needs. A value used n times gets n - 1 additions, in
// reverse order of use. Does not differentiate backward nodes (their ops have no rule, which is an error).
#include "graph/graph_impl.h"

#include <assert.h>
#include <string.h>

typedef struct walk {
    snd_graph *g;
    int n_values, n_nodes; // before any backward node
    bool *dep;             // by value: depends on a requested value
    snd_id *adj;           // by value: its gradient so far, 0: none
} walk;

static int widest_node(const snd_graph *g) {
    int n = 1;
    for (int i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i] && g->nodes[i]->n_in > n) n = g->nodes[i]->n_in;
    }
    return n;
}

static void mark_dependent(walk *w, const snd_id *wrt, int n_wrt) {
    for (int i = 0; i < n_wrt; i++) {
        if (wrt[i]) w->dep[wrt[i]] = true;
    }
    for (int i = 0; i < w->n_nodes; i++) {
        const snd_node *n = w->g->nodes[i];
        bool any = false;
        for (int k = 0; n && k < n->n_in; k++) any |= n->in[k] && w->dep[n->in[k]];
        for (int k = 0; any && k < n->n_out; k++) w->dep[n->out[k]] = true;
    }
}

static void accumulate(walk *w, snd_id v, snd_id d) {
    if (!d || !w->dep[v]) return;
    if (!snd_shape_same(snd_shape_of(w->g, v), snd_shape_of(w->g, d))) {
        char want[160], got[160];
        snd_g_fail(w->g, SONDE_EINTERNAL, "gradient of shape %s for value '%s' of shape %s",
                   snd_shape_text(snd_shape_of(w->g, d), got), snd_g_value(w->g, v)->name,
                   snd_shape_text(snd_shape_of(w->g, v), want));
        return;
    }
    w->adj[v] = w->adj[v] ? snd_g_sum_values(w->g, w->adj[v], d) : d;
}

static void step(walk *w, const snd_node *n, bool *need, snd_id *din) {
    snd_id dout[SND_MAX_OUT] = {0};
    bool any = false, reaches = false;
    for (int k = 0; k < n->n_out; k++) {
        dout[k] = w->dep[n->out[k]] ? w->adj[n->out[k]] : 0;
        any |= dout[k] != 0;
    }
    for (int k = 0; k < n->n_in; k++) {
        need[k] = n->in[k] && w->dep[n->in[k]];
        reaches |= need[k];
        din[k] = 0;
    }
    if (!any || !reaches) return;
    const snd_op_info *info = snd_op_info_at(n->op);
    if (!info->grad) {
        snd_g_fail(w->g, SONDE_EUNSUPPORTED, "%s has no derivative", info->name);
        return;
    }
    info->grad(w->g, n, dout, need, din);
    for (int k = 0; k < n->n_in; k++) {
        if (need[k]) accumulate(w, n->in[k], din[k]);
    }
}

void snd_g_grad(snd_graph *g, const snd_id *y, const snd_id *dy, int n, const snd_id *wrt, int n_wrt, snd_id *grads) {
    for (int i = 0; i < n_wrt; i++) grads[i] = 0;
    if (g->status != SONDE_OK || g->n_values == 0) return;
    walk w = {.g = g, .n_values = g->n_values, .n_nodes = g->n_nodes};
    const int width = widest_node(g);
    w.dep = snd_calloc((size_t)w.n_values, sizeof *w.dep);
    w.adj = snd_calloc((size_t)w.n_values, sizeof *w.adj);
    bool *need = snd_calloc((size_t)width, sizeof *need);
    snd_id *din = snd_calloc((size_t)width, sizeof *din);
    if (w.dep && w.adj && need && din) {
        mark_dependent(&w, wrt, n_wrt);
        for (int i = 0; i < n; i++) {
            accumulate(&w, y[i], dy[i]);
            snd_graph_seed(g, dy[i]);
        }
        for (int i = w.n_nodes - 1; i >= 0 && g->status == SONDE_OK; i--) {
            if (g->nodes[i]) step(&w, g->nodes[i], need, din);
        }
        for (int i = 0; i < n_wrt && g->status == SONDE_OK; i++) grads[i] = wrt[i] ? w.adj[wrt[i]] : 0;
    } else {
        snd_g_fail(g, SONDE_ENOMEM, "no memory for the derivative of %d values", w.n_values);
    }
    snd_free(w.dep);
    snd_free(w.adj);
    snd_free(need);
    snd_free(din);
}
