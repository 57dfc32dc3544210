// Which nodes run, in which order, and where their values live.
// Order: nodes as built, except that a node runs as soon as it can when that costs no memory: its outputs are small, or
// its inputs die and make room for them. So statistics run when their value appears and a gradient chain as soon as its
// exit is there, and what only they need dies early.
// Placement: in order of time, best fit among the free places; output 0 takes over a dying operand's place where the op
// allows it. Small values live in a zone of their own so that they do not cut up the large places.
// Invariant: snd_plan_check. Does not know threads, seeds or parameter sources.
#include "graph/graph_impl.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

enum { SMALL = 4096, ALIGN = 64 };

// ---- what is needed -------------------------------------------------------------------------------------------------

// Scratch of one snd_plan_make; everything here is heap memory freed at the end.
typedef struct planner {
    const snd_graph *g;
    snd_plan *p;
    bool *needed, *done;      // by node
    int32_t *rem;             // by root value: readers that have not run
    int32_t *first, *readers; // readers of root v: readers[first[v]] .. readers[first[v+1]-1]
    int32_t *work;
    int64_t n_work, cap_work;
    snd_id *holder; // by root value: the root whose place it took over, or itself
} planner;

static const snd_value *value(const planner *w, snd_id v) {
    return w->g->values[v];
}

static size_t bytes_of(const snd_value *v) {
    return (size_t)snd_shape_size(v->shape) * snd_dtype_size(v->dtype);
}

// May its place be given to others once it is dead?
static bool recyclable(const planner *w, snd_id root) {
    return value(w, root)->role == SND_R_NODE && !w->p->keep[root];
}

static bool repeated(const planner *w, const snd_node *n, int k) {
    for (int j = 0; j < k; j++) {
        if (n->in[j] && w->p->root[n->in[j]] == w->p->root[n->in[k]]) return true;
    }
    return false;
}

static void mark_needed(planner *w, const snd_id *keep, int n_keep) {
    snd_plan *p = w->p;
    for (int i = 0; i < n_keep; i++) p->root[keep[i]] = keep[i];
    for (int i = w->g->n_nodes - 1; i >= 0; i--) {
        const snd_node *n = w->g->nodes[i];
        for (int k = 0; n && k < n->n_out; k++) w->needed[i] |= p->root[n->out[k]] != 0;
        if (!n || !w->needed[i]) continue;
        for (int k = 0; k < n->n_out; k++) p->root[n->out[k]] = n->out[k];
        for (int k = 0; k < n->n_in; k++) {
            if (n->in[k]) p->root[n->in[k]] = n->in[k];
        }
    }
}

// Views share their operand's buffer; a kept view of a parameter is a copy, since parameters come and go.
static void resolve_views(planner *w, const snd_id *keep, int n_keep) {
    snd_plan *p = w->p;
    for (int i = 0; i < n_keep; i++) p->keep[keep[i]] = true;
    for (int i = 0; i < w->g->n_nodes; i++) {
        const snd_node *n = w->g->nodes[i];
        if (!n || !w->needed[i] || !snd_op_info_at(n->op)->view) continue;
        const snd_id from = p->root[n->in[0]];
        if (value(w, from)->role == SND_R_PARAM && p->keep[n->out[0]]) continue;
        p->view[i] = true;
        p->root[n->out[0]] = from;
    }
    for (int i = 0; i < n_keep; i++) p->keep[p->root[keep[i]]] = true;
}

static void list_readers(planner *w) {
    const snd_graph *g = w->g;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < g->n_nodes; i++) {
            const snd_node *n = g->nodes[i];
            if (!n || !w->needed[i]) continue;
            for (int k = 0; k < n->n_in; k++) {
                if (!n->in[k] || repeated(w, n, k)) continue;
                const snd_id r = w->p->root[n->in[k]];
                if (pass == 0)
                    w->first[r + 1]++;
                else
                    w->readers[w->first[r] + w->rem[r]++] = i;
            }
        }
        for (int v = 0; pass == 0 && v < g->n_values; v++) w->first[v + 1] += w->first[v];
    }
}

// ---- order ----------------------------------------------------------------------------------------------------------

static bool ready(const planner *w, int i) {
    const snd_node *n = w->g->nodes[i];
    for (int k = 0; k < n->n_in; k++) {
        if (n->in[k] && value(w, n->in[k])->role == SND_R_NODE && !w->done[value(w, n->in[k])->node]) return false;
    }
    return true;
}

static bool costs_nothing(const planner *w, int i) {
    const snd_node *n = w->g->nodes[i];
    size_t made = 0, freed = 0;
    for (int k = 0; k < n->n_out && !w->p->view[i]; k++) made += bytes_of(value(w, n->out[k]));
    if (made <= SMALL) return true;
    for (int k = 0; k < n->n_in; k++) {
        if (!n->in[k] || repeated(w, n, k)) continue;
        const snd_id r = w->p->root[n->in[k]];
        if (recyclable(w, r) && w->rem[r] == 1) freed += bytes_of(value(w, r));
    }
    return made <= freed;
}

static bool push(planner *w, int node) {
    if (w->done[node]) return true;
    if (!snd_grow((void **)&w->work, &w->cap_work, w->n_work + 1, sizeof *w->work)) return false;
    w->work[w->n_work++] = node;
    return true;
}

static bool push_readers(planner *w, snd_id root) {
    bool ok = true;
    for (int32_t j = w->first[root + 1] - 1; ok && j >= w->first[root]; j--) ok = push(w, w->readers[j]);
    return ok;
}

// Puts node i next and lists the nodes whose turn may have come through it.
static bool schedule(planner *w, int i) {
    const snd_node *n = w->g->nodes[i];
    bool ok = true;
    w->p->order[w->p->n_order++] = i;
    w->done[i] = true;
    for (int k = 0; ok && k < n->n_in; k++) {
        if (!n->in[k] || repeated(w, n, k)) continue;
        const snd_id r = w->p->root[n->in[k]];
        if (--w->rem[r] == 1) ok = push_readers(w, r);
    }
    for (int k = n->n_out - 1; ok && k >= 0; k--) ok = push_readers(w, w->p->root[n->out[k]]);
    return ok;
}

static bool make_order(planner *w) {
    for (int next = 0; next < w->g->n_nodes; next++) {
        if (!w->needed[next] || w->done[next]) continue;
        if (!schedule(w, next)) return false;
        while (w->n_work > 0) {
            const int i = w->work[--w->n_work];
            if (!w->done[i] && ready(w, i) && costs_nothing(w, i) && !schedule(w, i)) return false;
        }
    }
    return true;
}

static void find_lives(planner *w) {
    snd_plan *p = w->p;
    for (snd_id v = 1; v < w->g->n_values; v++) p->birth[v] = p->death[v] = -1;
    for (int pos = 0; pos < p->n_order; pos++) {
        const snd_node *n = w->g->nodes[p->order[pos]];
        for (int k = 0; k < n->n_out; k++) {
            if (p->root[n->out[k]] == n->out[k]) p->birth[n->out[k]] = pos;
            if (p->death[p->root[n->out[k]]] < pos) p->death[p->root[n->out[k]]] = pos;
        }
        for (int k = 0; k < n->n_in; k++) {
            if (n->in[k]) p->death[p->root[n->in[k]]] = pos;
        }
    }
    for (snd_id v = 1; v < w->g->n_values; v++) {
        if (p->root[v] != v) continue;
        if (!recyclable(w, v)) p->death[v] = p->n_order;
    }
}

// ---- placement ------------------------------------------------------------------------------------------------------

typedef struct hole {
    size_t at, size;
} hole;
typedef struct zone {
    hole *holes;
    int64_t n, cap;
    size_t top;
} zone; // holes by place, never touching each other

static void close_hole(zone *z, int64_t i) {
    memmove(&z->holes[i], &z->holes[i + 1], (size_t)(z->n - i - 1) * sizeof *z->holes);
    z->n--;
}

static size_t take(zone *z, size_t size) {
    int64_t best = -1;
    for (int64_t i = 0; i < z->n; i++) {
        if (z->holes[i].size >= size && (best < 0 || z->holes[i].size < z->holes[best].size)) best = i;
    }
    if (best >= 0) {
        const size_t at = z->holes[best].at;
        z->holes[best].at += size;
        z->holes[best].size -= size;
        if (z->holes[best].size == 0) close_hole(z, best);
        return at;
    }
    size_t at = z->top;
    if (z->n && z->holes[z->n - 1].at + z->holes[z->n - 1].size == z->top) at = z->holes[--z->n].at;
    z->top = at + size;
    return at;
}

static bool give(zone *z, size_t at, size_t size) {
    int64_t i = 0;
    while (i < z->n && z->holes[i].at < at) i++;
    const bool left = i > 0 && z->holes[i - 1].at + z->holes[i - 1].size == at;
    const bool right = i < z->n && at + size == z->holes[i].at;
    if (left && right) {
        z->holes[i - 1].size += size + z->holes[i].size;
        close_hole(z, i);
    } else if (left) {
        z->holes[i - 1].size += size;
    } else if (right) {
        z->holes[i].at = at;
        z->holes[i].size += size;
    } else {
        if (!snd_grow((void **)&z->holes, &z->cap, z->n + 1, sizeof *z->holes)) return false;
        memmove(&z->holes[i + 1], &z->holes[i], (size_t)(z->n - i) * sizeof *z->holes);
        z->holes[i] = (hole){at, size};
        z->n++;
    }
    return true;
}

static size_t rounded(size_t bytes) {
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

// Root value whose place output 0 of node n may take over at this position, or 0.
static snd_id place_to_inherit(const planner *w, const snd_node *n, int pos) {
    const snd_op_info *info = snd_op_info_at(n->op);
    const snd_plan *p = w->p;
    const unsigned mask = info->inplace ? info->inplace(w->g, n) : 0;
    for (int k = 0; k < n->n_in; k++) {
        if (!(mask >> k & 1) || !n->in[k]) continue;
        const snd_id r = p->root[n->in[k]];
        if (p->death[r] != pos || p->size[r] != bytes_of(value(w, n->out[0]))) continue;
        bool shared = false;
        for (int j = 0; j < n->n_in; j++) shared |= !(mask >> j & 1) && n->in[j] && p->root[n->in[j]] == r;
        if (!shared) return r;
    }
    return 0;
}

// The small zone's places are stored as -2 - place until the large zone's size is known.
static bool place_node(planner *w, zone *large, zone *small, int pos) {
    snd_plan *p = w->p;
    const snd_node *n = w->g->nodes[p->order[pos]];
    const snd_id from = place_to_inherit(w, n, pos);
    for (int k = 0; k < n->n_out; k++) {
        const snd_id v = n->out[k];
        if (p->root[v] != v) continue;
        p->size[v] = bytes_of(value(w, v));
        const size_t size = rounded(p->size[v]);
        if (k == 0 && from) {
            p->offset[v] = p->offset[from];
            w->holder[from] = v;
        } else if (size <= SMALL) {
            p->offset[v] = -2 - (int64_t)take(small, size);
        } else {
            p->offset[v] = (int64_t)take(large, size);
        }
    }
    return true;
}

// Frees what dies here; a place that was taken over is still in use.
static bool free_node(planner *w, zone *large, zone *small, int pos) {
    snd_plan *p = w->p;
    const snd_node *n = w->g->nodes[p->order[pos]];
    bool ok = true;
    for (int k = 0; ok && k < n->n_in + n->n_out; k++) {
        const snd_id v = k < n->n_in ? n->in[k] : n->out[k - n->n_in];
        const snd_id r = v ? p->root[v] : 0;
        if (!r || p->death[r] != pos || w->holder[r]) continue;
        w->holder[r] = r; // not twice
        const size_t size = rounded(p->size[r]);
        ok =
            p->offset[r] < 0 ? give(small, (size_t)(-2 - p->offset[r]), size) : give(large, (size_t)p->offset[r], size);
    }
    return ok;
}

static void place_inputs(planner *w, zone *large) {
    snd_plan *p = w->p;
    for (snd_id v = 1; v < w->g->n_values; v++) {
        p->offset[v] = -1;
        if (p->root[v] != v) continue;
        if (value(w, v)->role == SND_R_PARAM) p->param_bytes += bytes_of(value(w, v));
        if (value(w, v)->role != SND_R_INPUT) continue;
        p->size[v] = bytes_of(value(w, v));
        p->offset[v] = (int64_t)take(large, rounded(p->size[v]));
    }
}

static bool place_all(planner *w) {
    snd_plan *p = w->p;
    zone large = {0}, small = {0};
    place_inputs(w, &large);
    bool ok = true;
    size_t scratch = 0;
    for (int pos = 0; ok && pos < p->n_order; pos++) {
        const snd_node *n = w->g->nodes[p->order[pos]];
        const snd_op_info *info = snd_op_info_at(n->op);
        const size_t need = info->scratch ? info->scratch(w->g, n) : 0;
        if (need > scratch) scratch = need;
        ok = place_node(w, &large, &small, pos) && free_node(w, &large, &small, pos);
    }
    for (snd_id v = 1; v < w->g->n_values; v++) {
        if (p->offset[v] < -1) p->offset[v] = (int64_t)large.top + (-2 - p->offset[v]);
    }
    p->scratch_at = large.top + small.top;
    p->bytes = p->scratch_at + rounded(scratch);
    snd_free(large.holes);
    snd_free(small.holes);
    return ok;
}

// ---- the front functions --------------------------------------------------------------------------------------------

static sonde_status make_arrays(snd_arena *a, snd_plan *p) {
    const snd_graph *g = p->g;
    SND_NEW(a, p->order, g->n_nodes + 1);
    SND_NEW(a, p->view, g->n_nodes + 1);
    SND_NEW(a, p->root, g->n_values + 1);
    SND_NEW(a, p->offset, g->n_values + 1);
    SND_NEW(a, p->birth, g->n_values + 1);
    SND_NEW(a, p->death, g->n_values + 1);
    SND_NEW(a, p->size, g->n_values + 1);
    SND_NEW(a, p->keep, g->n_values + 1);
    return SONDE_OK;
}

static bool make_scratch(planner *w) {
    size_t reads = 1;
    for (int i = 0; i < w->g->n_nodes; i++) reads += w->g->nodes[i] ? (size_t)w->g->nodes[i]->n_in : 0;
    const size_t n = (size_t)w->g->n_nodes + 1, nv = (size_t)w->g->n_values + 2;
    w->needed = snd_calloc(n, sizeof *w->needed);
    w->done = snd_calloc(n, sizeof *w->done);
    w->rem = snd_calloc(nv, sizeof *w->rem);
    w->first = snd_calloc(nv, sizeof *w->first);
    w->readers = snd_calloc(reads, sizeof *w->readers);
    w->holder = snd_calloc(nv, sizeof *w->holder);
    return w->needed && w->done && w->rem && w->first && w->readers && w->holder;
}

static void free_scratch(planner *w) {
    snd_free(w->needed);
    snd_free(w->done);
    snd_free(w->rem);
    snd_free(w->first);
    snd_free(w->readers);
    snd_free(w->holder);
    snd_free(w->work);
}

sonde_status snd_plan_make(snd_arena *a, const snd_graph *g, const snd_id *keep, int n_keep, snd_plan **out) {
    *out = NULL;
    SND_TRY(snd_graph_status(g));
    for (int i = 0; i < n_keep; i++) {
        SND_FAIL_IF(keep[i] < 1 || keep[i] >= g->n_values, SONDE_EINTERNAL, "value %d to keep does not exist", keep[i]);
        SND_FAIL_IF(g->values[keep[i]]->role == SND_R_NODE && g->values[keep[i]]->node < 0, SONDE_EINTERNAL,
                    "value %d to keep was fused away", keep[i]);
        SND_FAIL_IF(g->values[keep[i]]->role == SND_R_PARAM, SONDE_EUNSUPPORTED,
                    "parameter '%s' cannot be kept by a plan, an alias of it can", g->values[keep[i]]->name);
    }
    snd_plan *p;
    SND_NEW(a, p, 1);
    p->g = g;
    p->n_values = g->n_values;
    SND_TRY(make_arrays(a, p));
    planner w = {.g = g, .p = p};
    bool ok = make_scratch(&w);
    if (ok) {
        mark_needed(&w, keep, n_keep);
        resolve_views(&w, keep, n_keep);
        list_readers(&w);
        ok = make_order(&w);
    }
    if (ok) {
        find_lives(&w);
        ok = place_all(&w);
    }
    free_scratch(&w);
    SND_FAIL_IF(!ok, SONDE_ENOMEM, "no memory for planning %d nodes", g->n_nodes);
    *out = p;
    return SONDE_OK;
}

size_t snd_plan_bytes(const snd_plan *p) {
    return p->bytes;
}
size_t snd_plan_param_bytes(const snd_plan *p) {
    return p->param_bytes;
}

void snd_plan_print(const snd_plan *p, snd_buf *b) {
    snd_buf_printf(b, "%d nodes, %zu bytes of values, %zu of parameters\n", p->n_order, p->bytes, p->param_bytes);
    for (int pos = 0; pos < p->n_order; pos++) {
        const snd_node *n = p->g->nodes[p->order[pos]];
        snd_buf_printf(b, "%d %s", pos, snd_op_info_at(n->op)->name);
        for (int k = 0; k < n->n_out; k++) {
            const snd_id v = n->out[k], r = p->root[v];
            if (p->offset[r] < 0)
                snd_buf_printf(b, " %%%d in %%%d", v, r);
            else
                snd_buf_printf(b, " %%%d @%" PRId64 "+%zu until %d", v, p->offset[r], p->size[r], p->death[r]);
        }
        snd_buf_put(b, "\n");
    }
}

static bool disjoint(const snd_plan *p, snd_id a, snd_id b) {
    return p->offset[a] + (int64_t)p->size[a] <= p->offset[b] || p->offset[b] + (int64_t)p->size[b] <= p->offset[a];
}

// Two values may share a place only when one is dead before the other is born, or hands over at the same node.
static bool may_live_together(const snd_plan *p, snd_id a, snd_id b) {
    if (disjoint(p, a, b)) return true;
    if (p->death[a] < p->birth[b] || p->death[b] < p->birth[a]) return true;
    const bool hand_over = p->death[a] == p->birth[b] || p->death[b] == p->birth[a];
    return hand_over && p->offset[a] == p->offset[b] && p->size[a] == p->size[b] && p->birth[a] != p->birth[b];
}

bool snd_plan_ok(const snd_plan *p) {
    for (snd_id a = 1; a < p->n_values; a++) {
        if (p->root[a] != a || p->offset[a] < 0) continue;
        if ((size_t)p->offset[a] + p->size[a] > p->scratch_at || p->offset[a] % ALIGN != 0) return false;
        for (snd_id b = a + 1; b < p->n_values; b++) {
            if (p->root[b] == b && p->offset[b] >= 0 && !may_live_together(p, a, b)) return false;
        }
    }
    return true;
}

void snd_plan_check(const snd_plan *p) {
    assert(snd_plan_ok(p));
    (void)p;
}
