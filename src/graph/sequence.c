// What a plan computes, in a valid order: the nodes that the kept values need, and, when the plan drops values, a second
// run of those that the backward pass still wants. A pure function of graph and plan options. The bits are those of the
// first run: ops are functions of their inputs, seed and place in the graph.
// Segments: the forward pass is cut at the graph's boundaries. A value lasts when another segment reads it, when it is
// kept, or when it belongs to the last segment, whose backward pass follows at once; all others end with their segment.
// When a backward node wants one of these, the segment's nodes that lead to it from lasting values run again, once for
// the whole stretch of backward nodes that read this segment.
// Cheap values: the result of a cheap op (op.h) that reads only what is there in the backward pass anyway is not kept for
// it, and its node runs again, once, just before the first backward node that wants it. So nothing else need live longer
// because of what is dropped.
#include "graph/graph_impl.h"

#include <string.h>

typedef struct writer {
    const snd_graph *g;
    const snd_plan *p;
    const bool *needed;
    snd_sequence *q;
    int32_t *cut, n_cuts;   // nodes that end segments 0 .. n_cuts - 1
    int32_t *segment;       // by node of the forward pass
    bool *backward, *again; // by node
    bool *lasts;            // by root value: beyond its segment
    bool *drops;            // by root value: what the backward pass wants of it is computed again
    uint8_t *links;         // by root value: see chain()
    bool *wanted;           // by value
    int32_t *now;           // by value: its latest instance
    int32_t *visit_of;      // by parameter's value: the visit of that instance
    int32_t at, visit;      // segment and stretch of steps: parameters in the slab live within one visit
} writer;

static const snd_value *value(const writer *w, snd_id v) {
    return w->g->values[v];
}

static bool is_param(const writer *w, snd_id v) {
    return value(w, w->p->root[v])->role == SND_R_PARAM;
}

// A view of a parameter has nothing to do: its readers get the parameter itself.
static bool runs(const writer *w, int i) {
    return w->needed[i] && !(w->p->view[i] && is_param(w, w->g->nodes[i]->in[0]));
}

// ---- segments -------------------------------------------------------------------------------------------------------

static void find_cuts(writer *w) {
    for (int i = 0; i < w->g->n_ends; i++) {
        const int32_t node = value(w, w->g->ends[i].v)->node;
        if (w->g->ends[i].cut && node >= 0 && (w->n_cuts == 0 || node > w->cut[w->n_cuts - 1]))
            w->cut[w->n_cuts++] = node;
    }
}

// Whatever depends on an upstream gradient.
static void find_backward(writer *w) {
    bool *from = w->wanted; // borrowed
    for (int i = 0; i < w->g->n_seeds; i++) from[w->g->seeds[i]] = true;
    for (int i = 0; i < w->g->n_nodes; i++) {
        const snd_node *n = w->g->nodes[i];
        for (int k = 0; n && k < n->n_in; k++) w->backward[i] |= n->in[k] && from[n->in[k]];
        for (int k = 0; n && k < n->n_out; k++) from[n->out[k]] |= w->backward[i];
    }
    memset(from, 0, (size_t)w->g->n_values * sizeof *from);
}

// The segment of a reader that comes after the last cut: that of what it reads, or the next one for a boundary.
static int32_t segment_after(const writer *w, snd_id v) {
    const int32_t n = value(w, v)->node;
    if (n < 0) return 0;
    const int32_t s = w->segment[n];
    return s < w->n_cuts && w->cut[s] == n ? s + 1 : s;
}

// By place in the graph up to the last cut; statistics of any layer may come after it.
static void assign_segments(writer *w) {
    int32_t s = 0;
    for (int i = 0; i < w->g->n_nodes; i++) {
        const snd_node *n = w->g->nodes[i];
        if (s < w->n_cuts && w->cut[s] < i) s++;
        if (!n || !w->needed[i] || w->backward[i]) continue;
        w->segment[i] = s < w->n_cuts ? s : 0;
        for (int k = 0; s == w->n_cuts && k < n->n_in; k++) {
            const int32_t after = n->in[k] ? segment_after(w, n->in[k]) : 0;
            if (after > w->segment[i]) w->segment[i] = after;
        }
    }
}

// A second run makes of a fused pair whose middle value is kept the second node's part alone.
static bool in_part(const writer *w, int i) {
    return w->p->o.again == SND_AGAIN_CHEAP && w->g->nodes[i]->second;
}

static const snd_node *second_run(const writer *w, int i) {
    return snd_part_of(w->g, i, in_part(w, i));
}

static void find_lasting(writer *w) {
    for (int i = 0; i < w->g->n_nodes; i++) {
        const snd_node *n = w->g->nodes[i];
        if (!n || !w->needed[i] || w->backward[i]) continue;
        for (int k = 0; k < n->n_out; k++) {
            const snd_id r = w->p->root[n->out[k]];
            w->lasts[r] |= w->segment[i] == w->n_cuts || w->p->keep[n->out[k]];
        }
        for (int k = 0; k < n->n_in; k++) {
            const snd_id r = n->in[k] ? w->p->root[n->in[k]] : 0;
            if (r && value(w, r)->node >= 0) w->lasts[r] |= w->segment[value(w, r)->node] != w->segment[i];
        }
    }
}

static bool from_forward(const writer *w, snd_id v) {
    return v && value(w, v)->node >= 0 && !w->backward[value(w, v)->node] && !is_param(w, v);
}

static void note_kept(writer *w) {
    for (int i = 0; i < w->g->n_nodes; i++) {
        const snd_node *n = w->g->nodes[i];
        if (!n || !w->needed[i] || !w->backward[i]) continue;
        for (int k = 0; k < n->n_in; k++)
            if (n->in[k]) w->links[w->p->root[n->in[k]]] = 1;
    }
    for (snd_id v = 1; v < w->g->n_values; v++)
        if (value(w, v)->role == SND_R_INPUT || value(w, v)->role == SND_R_PARAM) w->links[v] = 1;
}

// links: 0 for what is not there in the backward pass, 1 for what is kept, n + 1 for what n second runs in a row make of
// that. Of a node: what its results' links less one would be; 0: it is not to run again.
static uint8_t chain(const writer *w, const snd_node *n) {
    enum { LONGEST = 8 }; // else a product in every layer makes one of all layers
    uint8_t most = 1;
    if (!snd_op_info_at(n->op)->cheap) return 0;
    for (int k = 0; k < n->n_in; k++) {
        const uint8_t c = n->in[k] ? w->links[w->p->root[n->in[k]]] : 1;
        if (c == 0) return 0;
        if (c > most) most = c;
    }
    return most <= LONGEST ? most : 0;
}

static void find_cheap(writer *w) {
    note_kept(w);
    for (int i = 0; i < w->g->n_nodes; i++) {
        if (!w->g->nodes[i] || !w->needed[i] || w->backward[i] || w->p->view[i]) continue;
        const snd_node *n = second_run(w, i);
        const uint8_t c = chain(w, n);
        for (int k = 0; c && k < n->n_out; k++) {
            if (w->p->keep[n->out[k]]) continue;
            w->drops[n->out[k]] = true;
            w->links[n->out[k]] = (uint8_t)(c + 1);
        }
    }
}

static void find_dropped(writer *w) {
    if (w->p->o.again == SND_AGAIN_CHEAP) find_cheap(w);
    for (snd_id v = 1; w->p->o.again == SND_AGAIN_SEGMENT && v < w->g->n_values; v++) w->drops[v] = !w->lasts[v];
}

// From the backward nodes to what they read, and on through nodes whose results are dropped.
static void find_again(writer *w) {
    for (int i = w->g->n_nodes - 1; i >= 0; i--) {
        if (!w->g->nodes[i] || !runs(w, i)) continue;
        const snd_node *n = w->backward[i] ? w->g->nodes[i] : second_run(w, i);
        for (int k = 0; !w->backward[i] && k < n->n_out; k++)
            w->again[i] |= w->wanted[n->out[k]] && w->drops[w->p->root[n->out[k]]];
        for (int k = 0; (w->backward[i] || w->again[i]) && k < n->n_in; k++)
            if (from_forward(w, n->in[k])) w->wanted[n->in[k]] = true;
    }
}

// ---- steps ----------------------------------------------------------------------------------------------------------

static int32_t new_instance(writer *w, snd_id v, int32_t root, int32_t maker) {
    snd_sequence *q = w->q;
    if (!snd_grow((void **)&q->inst, &q->cap_inst, q->n_inst + 1, sizeof *q->inst)) return 0;
    const int32_t i = (int32_t)q->n_inst++;
    q->inst[i] = (snd_inst){.v = v, .root = root ? root : i, .maker = maker};
    w->now[v] = i;
    return i;
}

static bool reads_parameters_only(const writer *w, const snd_node *n) {
    for (int k = 0; k < n->n_in; k++)
        if (n->in[k] && !is_param(w, n->in[k])) return false;
    return true;
}

// A parameter in the slab is one instance per visit; its statistics take the one that is there.
static int32_t param_instance(writer *w, snd_id root, const snd_node *n, int k) {
    const bool here = w->now[root] && (w->p->o.params == SND_PARAMS_SOURCE || w->visit_of[root] == w->visit ||
                                       reads_parameters_only(w, n));
    const int32_t before = w->now[root], i = here ? before : new_instance(w, root, 0, -1);
    if (!i) return 0;
    if (!here) {
        w->visit_of[root] = w->visit;
        w->q->inst[i].before = before;
    }
    const snd_op_info *info = snd_op_info_at(n->op);
    if (!(info->pieces && info->pieces(w->g, n) >> k & 1)) w->q->inst[i].whole = true;
    return i;
}

static int32_t instance_read(writer *w, const snd_node *n, int k) {
    const snd_id v = n->in[k];
    return is_param(w, v) ? param_instance(w, w->p->root[v], n, k) : w->now[v];
}

static bool add_step(writer *w, int i, bool again) {
    snd_sequence *q = w->q;
    const bool part = again && in_part(w, i);
    const snd_node *n = snd_part_of(w->g, i, part);
    if (!snd_grow((void **)&q->step, &q->cap, q->n + 1, sizeof *q->step) ||
        !snd_grow((void **)&q->arg, &q->cap_args, q->n_args + n->n_in + n->n_out, sizeof *q->arg))
        return false;
    const int32_t step = (int32_t)q->n++, in = (int32_t)q->n_args, out = in + n->n_in;
    q->step[step] = (snd_step){.node = i, .in = in, .out = out, .again = again, .part = part};
    q->n_args += n->n_in + n->n_out;
    if (w->p->o.params == SND_PARAMS_USE) w->visit++;
    for (int k = 0; k < n->n_in; k++) {
        q->arg[in + k] = n->in[k] ? instance_read(w, n, k) : 0;
        if (n->in[k] && !q->arg[in + k]) return false;
    }
    for (int k = 0; k < n->n_out; k++) {
        q->arg[out + k] = new_instance(w, n->out[k], w->p->view[i] ? q->inst[q->arg[in]].root : 0, step);
        if (!q->arg[out + k]) return false;
    }
    return true;
}

// Goes to the segment of a value that does not last, and computes it again where that was planned.
static bool enter(writer *w, int32_t segment) {
    if (w->at == segment) return true;
    w->at = segment;
    w->visit++;
    for (int i = 0; w->p->o.again == SND_AGAIN_SEGMENT && i < w->g->n_nodes; i++)
        if (w->again[i] && w->segment[i] == segment && !add_step(w, i, true)) return false;
    return true;
}

// Makes a cheap value again, after those that it is made of.
static bool make_again(writer *w, snd_id v) {
    const int32_t i = value(w, v)->node;
    if (w->p->o.again != SND_AGAIN_CHEAP || !w->again[i]) return true;
    w->again[i] = false; // once
    const snd_node *n = second_run(w, i);
    for (int k = 0; k < n->n_in; k++)
        if (from_forward(w, n->in[k]) && !make_again(w, n->in[k])) return false;
    return add_step(w, i, true);
}

static bool add_backward(writer *w, int i) {
    const snd_node *n = w->g->nodes[i];
    for (int k = 0; k < n->n_in; k++) {
        if (!from_forward(w, n->in[k])) continue;
        const bool stays = w->lasts[w->p->root[n->in[k]]];
        if (!stays && !enter(w, w->segment[value(w, n->in[k])->node])) return false;
        if (!make_again(w, n->in[k])) return false;
    }
    return add_step(w, i, false);
}

static bool add_forward(writer *w, int i) {
    w->visit = w->p->o.params == SND_PARAMS_USE ? w->visit : w->segment[i];
    return add_step(w, i, false);
}

// There before the first step: inputs, and the caller's buffers.
static bool was_there(const snd_value *v) {
    return v->role == SND_R_INPUT || v->role == SND_R_BUFFER;
}

static bool add_inputs(writer *w) {
    if (!snd_grow((void **)&w->q->inst, &w->q->cap_inst, 1, sizeof *w->q->inst)) return false;
    w->q->inst[0] = (snd_inst){0};
    w->q->n_inst = 1;
    for (snd_id v = 1; v < w->g->n_values; v++)
        if (w->p->root[v] && was_there(value(w, v)) && !new_instance(w, v, 0, -1)) return false;
    return true;
}

static bool write_steps(writer *w) {
    // else nodes stay as they were built
    const bool apart = w->p->o.again != SND_AGAIN_NONE || w->p->o.params != SND_PARAMS_SOURCE;
    for (int i = 0; i < w->g->n_nodes; i++)
        if (runs(w, i) && (!apart || !w->backward[i]) && !add_forward(w, i)) return false;
    w->at = w->n_cuts;
    if (w->visit < w->at) w->visit = w->at;
    for (int i = 0; apart && i < w->g->n_nodes; i++)
        if (runs(w, i) && w->backward[i] && !add_backward(w, i)) return false;
    return true;
}

bool snd_sequence_make(const snd_plan *p, const bool *needed, snd_sequence *q) {
    const snd_graph *g = p->g;
    const size_t n = (size_t)g->n_nodes + 1, nv = (size_t)g->n_values + 1;
    writer w = {.g = g, .p = p, .needed = needed, .q = q};
    *q = (snd_sequence){0};
    w.cut = snd_calloc((size_t)g->n_ends + 1, sizeof *w.cut);
    w.segment = snd_calloc(n, sizeof *w.segment);
    w.backward = snd_calloc(n, sizeof *w.backward);
    w.again = snd_calloc(n, sizeof *w.again);
    w.lasts = snd_calloc(nv, sizeof *w.lasts);
    w.links = snd_calloc(nv, sizeof *w.links);
    w.drops = snd_calloc(nv, sizeof *w.drops);
    w.wanted = snd_calloc(nv, sizeof *w.wanted);
    w.now = snd_calloc(nv, sizeof *w.now);
    w.visit_of = snd_calloc(nv, sizeof *w.visit_of);
    bool ok =
        w.cut && w.segment && w.backward && w.again && w.lasts && w.links && w.drops && w.wanted && w.now && w.visit_of;
    if (ok) {
        find_cuts(&w);
        find_backward(&w);
        assign_segments(&w);
        find_lasting(&w);
        find_dropped(&w);
        find_again(&w);
        ok = add_inputs(&w) && write_steps(&w);
    }
    snd_free(w.cut);
    snd_free(w.segment);
    snd_free(w.backward);
    snd_free(w.again);
    snd_free(w.lasts);
    snd_free(w.links);
    snd_free(w.drops);
    snd_free(w.wanted);
    snd_free(w.now);
    snd_free(w.visit_of);
    return ok;
}

void snd_sequence_free(snd_sequence *q) {
    snd_free(q->step);
    snd_free(q->arg);
    snd_free(q->inst);
    *q = (snd_sequence){0};
}
