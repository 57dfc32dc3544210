// Which nodes run, in which order, and where their values live.
// Order: steps as sequence.c lists them, except that one runs as soon as it can when that costs no memory: its outputs
// are small, or its inputs die and make room for them. So statistics run when their value appears and a gradient chain
// as soon as its exit is there, and what only they need dies early.
// Placement: in order of time, best fit among the free places; output 0 takes over a dying operand's place where the op
// allows it. Small values live in a zone of their own so that they do not cut up the large places.
// Invariant: snd_plan_check. Does not know threads, seeds or parameter sources.
#include "graph/graph_impl.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

enum { SMALL = 4096, ALIGN = 64 };

// ---- what is needed -------------------------------------------------------------------------------------------------

// Scratch of one snd_plan_make; everything here is heap memory freed at the end. Instances are those of the sequence; what
// is said of a buffer is said of the root instance.
typedef struct planner {
    const snd_graph *g;
    snd_plan *p;
    bool *needed; // by node
    snd_sequence q;
    bool *done;               // by step
    int32_t *rem;             // by instance: readers that have not run
    int32_t *first, *readers; // readers of instance i: readers[first[i]] .. readers[first[i+1]-1]
    int32_t *at;              // by position: the step
    int32_t *work;
    int64_t n_work, cap_work;
    int32_t *holder; // by instance: the one that took over its place, or itself once the place was given back
} planner;

static const snd_value *value(const planner *w, int32_t inst) {
    return w->g->values[w->q.inst[inst].v];
}

static const snd_node *node_of(const planner *w, int32_t step) {
    return snd_part_of(w->g, w->q.step[step].node, w->q.step[step].part);
}

static int32_t in_root(const planner *w, int32_t step, int k) {
    return w->q.inst[w->q.arg[w->q.step[step].in + k]].root; // instance 0 is its own root
}

static int32_t out_inst(const planner *w, int32_t step, int k) {
    return w->q.arg[w->q.step[step].out + k];
}

static bool is_root(const planner *w, int32_t inst) {
    return w->q.inst[inst].root == inst;
}

static bool is_view(const planner *w, int32_t step) {
    return w->p->view[w->q.step[step].node];
}

static size_t bytes_of(const snd_value *v) {
    return (size_t)snd_shape_size(v->shape) * snd_dtype_size(v->dtype);
}

static bool kept(const planner *w, int32_t root) {
    return w->p->keep[w->q.inst[root].v];
}

// May its place be given to others once it is dead?
static bool recyclable(const planner *w, int32_t root) {
    return value(w, root)->role == SND_R_NODE && !kept(w, root);
}

static bool repeated(const planner *w, int32_t step, int k) {
    for (int j = 0; j < k; j++)
        if (in_root(w, step, j) == in_root(w, step, k)) return true;
    return false;
}

// Has input k of this step a reader's part in its buffer's life that no earlier input has?
static bool reads(const planner *w, int32_t step, int k) {
    return in_root(w, step, k) && !repeated(w, step, k);
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
        if (w->g->values[from]->role == SND_R_PARAM && p->keep[n->out[0]]) continue;
        p->view[i] = true;
        p->root[n->out[0]] = from;
    }
    for (int i = 0; i < n_keep; i++) p->keep[p->root[keep[i]]] = true;
}

static void list_readers(planner *w) {
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t i = 0; i < w->q.n; i++) {
            for (int k = 0; k < node_of(w, i)->n_in; k++) {
                if (!reads(w, i, k)) continue;
                const int32_t r = in_root(w, i, k);
                if (pass == 0)
                    w->first[r + 1]++;
                else
                    w->readers[w->first[r] + w->rem[r]++] = i;
            }
        }
        for (int64_t v = 0; pass == 0 && v < w->q.n_inst; v++) w->first[v + 1] += w->first[v];
    }
}

// ---- order ----------------------------------------------------------------------------------------------------------

static bool ready(const planner *w, int32_t step) {
    for (int k = 0; k < node_of(w, step)->n_in; k++) {
        const int32_t i = w->q.arg[w->q.step[step].in + k];
        const snd_inst *s = &w->q.inst[i];
        if (i && s->maker >= 0 && !w->done[s->maker]) return false;
        if (s->before && w->rem[s->before] > 0) return false;
    }
    return true;
}

static bool costs_nothing(const planner *w, int32_t step) {
    const snd_node *n = node_of(w, step);
    size_t made = 0, freed = 0;
    if (w->q.step[step].again) return false; // its time is when the backward pass comes to it
    for (int k = 0; k < n->n_out && !is_view(w, step); k++) made += bytes_of(value(w, out_inst(w, step, k)));
    if (made <= SMALL) return true;
    for (int k = 0; k < n->n_in; k++) {
        if (!reads(w, step, k)) continue;
        const int32_t r = in_root(w, step, k);
        if (recyclable(w, r) && w->rem[r] == 1) freed += bytes_of(value(w, r));
    }
    return made <= freed;
}

static bool push(planner *w, int32_t step) {
    if (w->done[step]) return true;
    if (!snd_grow((void **)&w->work, &w->cap_work, w->n_work + 1, sizeof *w->work)) return false;
    w->work[w->n_work++] = step;
    return true;
}

static bool push_readers(planner *w, int32_t root) {
    bool ok = true;
    for (int32_t j = w->first[root + 1] - 1; ok && j >= w->first[root]; j--) ok = push(w, w->readers[j]);
    return ok;
}

// Puts a step next and lists those whose turn may have come through it: the last reader of an operand, readers of its
// results, and, to be looked at first, whatever else (its statistics) reads a parameter that is here now.
static bool schedule(planner *w, int32_t step) {
    const snd_node *n = node_of(w, step);
    bool ok = true;
    w->at[w->p->n_order++] = step;
    w->done[step] = true;
    for (int k = 0; ok && k < n->n_in; k++)
        if (reads(w, step, k) && --w->rem[in_root(w, step, k)] == 1) ok = push_readers(w, in_root(w, step, k));
    for (int k = n->n_out - 1; ok && k >= 0; k--) ok = push_readers(w, w->q.inst[out_inst(w, step, k)].root);
    for (int k = 0; ok && k < n->n_in; k++)
        if (reads(w, step, k) && value(w, in_root(w, step, k))->role == SND_R_PARAM)
            ok = push_readers(w, in_root(w, step, k));
    return ok;
}

static bool make_order(planner *w) {
    for (int32_t next = 0; next < w->q.n; next++) {
        if (w->done[next]) continue;
        if (!schedule(w, next)) return false;
        while (w->n_work > 0) {
            const int32_t i = w->work[--w->n_work];
            if (!w->done[i] && ready(w, i) && costs_nothing(w, i) && !schedule(w, i)) return false;
        }
    }
    return true;
}

static bool in_slab(const planner *w, int32_t root) { // of parameters
    return w->p->o.params != SND_PARAMS_SOURCE && w->q.inst[root].whole;
}

static void find_lives(planner *w) {
    snd_plan *p = w->p;
    for (int64_t i = 0; i < w->q.n_inst; i++)
        p->life[i] = (snd_life){.v = w->q.inst[i].v, .birth = -1, .death = -1, .offset = -1};
    for (int pos = 0; pos < p->n_order; pos++) {
        const int32_t step = w->at[pos];
        const snd_node *n = node_of(w, step);
        for (int k = 0; k < n->n_out; k++) {
            const int32_t i = out_inst(w, step, k), r = w->q.inst[i].root;
            if (i == r) p->life[i].birth = pos;
            if (p->life[r].death < pos) p->life[r].death = pos;
        }
        for (int k = 0; k < n->n_in; k++) {
            const int32_t r = in_root(w, step, k);
            if (!r) continue;
            if (value(w, r)->role == SND_R_PARAM && p->life[r].birth < 0) p->life[r].birth = pos;
            p->life[r].death = pos;
        }
    }
    for (int32_t i = 1; i < w->q.n_inst; i++)
        if (is_root(w, i) && value(w, i)->role != SND_R_PARAM && !recyclable(w, i)) p->life[i].death = p->n_order;
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

// Instance whose place output 0 of a step may take over at this position, or 0.
static int32_t place_to_inherit(const planner *w, int32_t step, int pos) {
    const snd_node *n = node_of(w, step);
    const snd_op_info *info = snd_op_info_at(n->op);
    const unsigned mask = info->inplace ? info->inplace(w->g, n) : 0;
    for (int k = 0; k < n->n_in; k++) {
        if (!(mask >> k & 1) || !n->in[k]) continue;
        const int32_t r = in_root(w, step, k);
        const snd_life *l = &w->p->life[r];
        if (!recyclable(w, r) || l->death != pos || l->size != bytes_of(value(w, out_inst(w, step, 0)))) continue;
        bool shared = false;
        for (int j = 0; j < n->n_in; j++) shared |= !(mask >> j & 1) && n->in[j] && in_root(w, step, j) == r;
        if (!shared) return r;
    }
    return 0;
}

// The small zone's places are stored as -2 - place until the large zone's size is known.
static void place(planner *w, zone *large, zone *small, int32_t inst) {
    snd_life *l = &w->p->life[inst];
    l->size = bytes_of(value(w, inst));
    const size_t size = rounded(l->size);
    l->offset = size <= SMALL ? -2 - (int64_t)take(small, size) : (int64_t)take(large, size);
}

// Parameters that come with this step. What is read in pieces has no place but is told, so that nobody finds an old one.
static void place_params(planner *w, zone *large, zone *small, int pos) {
    const int32_t step = w->at[pos];
    snd_plan *p = w->p;
    p->first_load[pos + 1] = p->first_load[pos];
    if (p->o.params == SND_PARAMS_SOURCE) return;
    for (int k = 0; k < node_of(w, step)->n_in; k++) {
        const int32_t r = in_root(w, step, k);
        if (!reads(w, step, k) || value(w, r)->role != SND_R_PARAM || p->life[r].birth != pos) continue;
        if (in_slab(w, r)) place(w, large, small, r);
        p->loads[p->first_load[pos + 1]++] = (snd_load){w->q.inst[r].v, r};
    }
}

static void place_outputs(planner *w, zone *large, zone *small, int pos) {
    const int32_t step = w->at[pos], from = place_to_inherit(w, step, pos);
    for (int k = 0; k < node_of(w, step)->n_out; k++) {
        const int32_t i = out_inst(w, step, k);
        if (!is_root(w, i)) continue;
        if (k > 0 || !from) {
            place(w, large, small, i);
            continue;
        }
        w->p->life[i].size = w->p->life[from].size;
        w->p->life[i].offset = w->p->life[from].offset;
        w->holder[from] = i;
    }
}

// Frees what dies here; a place that was taken over is still in use.
static bool free_places(planner *w, zone *large, zone *small, int pos) {
    const int32_t step = w->at[pos];
    const snd_node *n = node_of(w, step);
    bool ok = true;
    for (int k = 0; ok && k < n->n_in + n->n_out; k++) {
        const int32_t r = w->q.inst[w->q.arg[w->q.step[step].in + k]].root; // outputs follow inputs
        const snd_life *l = &w->p->life[r];
        if (!r || l->death != pos || w->holder[r] || l->offset == -1) continue;
        w->holder[r] = r; // not twice
        const size_t size = rounded(l->size);
        ok = l->offset < 0 ? give(small, (size_t)(-2 - l->offset), size) : give(large, (size_t)l->offset, size);
    }
    return ok;
}

static void place_inputs(planner *w, zone *large) {
    for (int32_t i = 1; i < w->q.n_inst; i++) {
        const snd_value *v = value(w, i);
        if (v->role == SND_R_PARAM && w->p->o.params == SND_PARAMS_SOURCE) w->p->param_bytes += bytes_of(v);
        if (v->role != SND_R_INPUT) continue;
        w->p->life[i].size = bytes_of(v);
        w->p->life[i].offset = (int64_t)take(large, rounded(w->p->life[i].size));
    }
}

// What the executor needs, from lives and steps.
static void write_places(planner *w) {
    snd_plan *p = w->p;
    for (int pos = 0; pos < p->n_order; pos++) {
        const int32_t step = w->at[pos];
        p->order[pos] = w->q.step[step].node;
        p->part[pos] = w->q.step[step].part;
        p->again[pos] = w->q.step[step].again;
        for (int k = 0; k < node_of(w, step)->n_out; k++)
            p->place[pos][k] = is_view(w, step) ? -1 : p->life[out_inst(w, step, k)].offset;
    }
    for (int i = 0; i < p->first_load[p->n_order]; i++) p->loads[i].offset = p->life[p->loads[i].offset].offset;
}

static bool place_all(planner *w) {
    snd_plan *p = w->p;
    zone large = {0}, small = {0};
    place_inputs(w, &large);
    bool ok = true;
    size_t scratch = 0;
    for (int pos = 0; ok && pos < p->n_order; pos++) {
        const snd_node *n = node_of(w, w->at[pos]);
        const snd_op_info *info = snd_op_info_at(n->op);
        const size_t need = info->scratch ? info->scratch(w->g, n) : 0;
        if (need > scratch) scratch = need;
        place_params(w, &large, &small, pos);
        place_outputs(w, &large, &small, pos);
        ok = free_places(w, &large, &small, pos);
    }
    for (int64_t i = 1; i < w->q.n_inst; i++)
        if (p->life[i].offset < -1) p->life[i].offset = (int64_t)large.top + (-2 - p->life[i].offset);
    p->scratch_at = large.top + small.top;
    p->bytes = p->scratch_at + rounded(scratch);
    write_places(w);
    snd_free(large.holes);
    snd_free(small.holes);
    return ok;
}

// ---- time -----------------------------------------------------------------------------------------------------------

// What moving a byte and drawing a number cost, in floating-point operations of a large product (two cores of a 2023
// server: 190 GFLOP/s, 20 GB/s, 0.8 G draws/s). For the time left only, so the ratios need not be exact.
static const double WORK_BYTE = 10, WORK_DRAW = 240;

static void count_work(snd_plan *p) {
    for (int pos = 0; pos < p->n_order; pos++) {
        const snd_node *n = snd_plan_node(p, pos);
        double flops = 0, bytes = 0, draws = 0;
        if (snd_op_info_at(n->op)->cost) snd_op_info_at(n->op)->cost(p->g, n, &flops, &bytes);
        for (int i = p->first_load[pos]; i < p->first_load[pos + 1]; i++)
            draws += (double)snd_shape_size(p->g->values[p->loads[i].v]->shape);
        p->flops += flops;
        p->flops_again += p->again[pos] ? flops : 0;
        p->work[pos + 1] = p->work[pos] + flops + WORK_BYTE * bytes + WORK_DRAW * draws;
    }
}

double snd_plan_flops(const snd_plan *p) {
    return p->flops;
}
double snd_plan_flops_again(const snd_plan *p) {
    return p->flops_again;
}

double snd_plan_share(const snd_plan *p, int done) {
    const double all = p->work[p->n_order];
    return all > 0 ? p->work[done] / all : 1;
}

// ---- the front functions --------------------------------------------------------------------------------------------

static sonde_status make_arrays(snd_arena *a, snd_plan *p) {
    const snd_graph *g = p->g;
    SND_NEW(a, p->view, g->n_nodes + 1);
    SND_NEW(a, p->root, g->n_values + 1);
    SND_NEW(a, p->keep, g->n_values + 1);
    return SONDE_OK;
}

// Arrays whose size is known once the steps are.
static sonde_status make_step_arrays(snd_arena *a, planner *w, snd_plan *p) {
    p->n_lives = (int)w->q.n_inst;
    SND_NEW(a, p->order, w->q.n + 1);
    SND_NEW(a, p->part, w->q.n + 1);
    SND_NEW(a, p->again, w->q.n + 1);
    SND_NEW(a, p->place, w->q.n + 1);
    SND_NEW(a, p->first_load, w->q.n + 2);
    SND_NEW(a, p->life, w->q.n_inst + 1);
    SND_NEW(a, p->loads, w->q.n_inst + 1);
    SND_NEW(a, p->work, w->q.n + 1);
    const size_t n = (size_t)w->q.n + 1, ni = (size_t)w->q.n_inst + 2;
    w->done = snd_calloc(n, sizeof *w->done);
    w->at = snd_calloc(n, sizeof *w->at);
    w->rem = snd_calloc(ni, sizeof *w->rem);
    w->first = snd_calloc(ni, sizeof *w->first);
    w->readers = snd_calloc((size_t)w->q.n_args + 1, sizeof *w->readers);
    w->holder = snd_calloc(ni, sizeof *w->holder);
    return w->done && w->at && w->rem && w->first && w->readers && w->holder ? SONDE_OK : SONDE_ENOMEM;
}

static void free_scratch(planner *w) {
    snd_sequence_free(&w->q);
    snd_free(w->needed);
    snd_free(w->done);
    snd_free(w->at);
    snd_free(w->rem);
    snd_free(w->first);
    snd_free(w->readers);
    snd_free(w->holder);
    snd_free(w->work);
}

static sonde_status check_kept(const snd_graph *g, const snd_id *keep, int n_keep) {
    for (int i = 0; i < n_keep; i++) {
        SND_FAIL_IF(keep[i] < 1 || keep[i] >= g->n_values, SONDE_EINTERNAL, "value %d to keep does not exist", keep[i]);
        SND_FAIL_IF(g->values[keep[i]]->role == SND_R_NODE && g->values[keep[i]]->node < 0, SONDE_EINTERNAL,
                    "value %d to keep was fused away", keep[i]);
        SND_FAIL_IF(g->values[keep[i]]->role == SND_R_PARAM, SONDE_EUNSUPPORTED,
                    "parameter '%s' cannot be kept by a plan, an alias of it can", g->values[keep[i]]->name);
    }
    return SONDE_OK;
}

static bool make(snd_arena *a, planner *w, const snd_id *keep, int n_keep) {
    w->needed = snd_calloc((size_t)w->g->n_nodes + 1, sizeof *w->needed);
    if (!w->needed) return false;
    mark_needed(w, keep, n_keep);
    resolve_views(w, keep, n_keep);
    if (!snd_sequence_make(w->p, w->needed, &w->q) || make_step_arrays(a, w, w->p) != SONDE_OK) return false;
    list_readers(w);
    if (!make_order(w)) return false;
    find_lives(w);
    return place_all(w);
}

sonde_status snd_plan_make_by(snd_arena *a, const snd_graph *g, const snd_id *keep, int n_keep, const snd_plan_opts *o,
                              snd_plan **out) {
    *out = NULL;
    SND_TRY(snd_graph_status(g));
    SND_TRY(check_kept(g, keep, n_keep));
    snd_plan *p;
    SND_NEW(a, p, 1);
    p->g = g;
    p->o = *o;
    p->n_values = g->n_values;
    SND_TRY(make_arrays(a, p));
    planner w = {.g = g, .p = p};
    const bool ok = make(a, &w, keep, n_keep);
    free_scratch(&w);
    SND_FAIL_IF(!ok, SONDE_ENOMEM, "no memory for planning %d nodes", g->n_nodes);
    count_work(p);
    *out = p;
    return SONDE_OK;
}

sonde_status snd_plan_make(snd_arena *a, const snd_graph *g, const snd_id *keep, int n_keep, snd_plan **out) {
    return snd_plan_make_by(a, g, keep, n_keep, &(snd_plan_opts){0}, out);
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
        const snd_node *n = snd_plan_node(p, pos);
        for (int i = p->first_load[pos]; i < p->first_load[pos + 1]; i++)
            snd_buf_printf(b, "%d load %%%d @%" PRId64 "\n", pos, p->loads[i].v, p->loads[i].offset);
        snd_buf_printf(b, "%d %s", pos, snd_op_info_at(n->op)->name);
        for (int k = 0; k < n->n_out; k++) {
            if (p->place[pos][k] < 0)
                snd_buf_printf(b, " %%%d in %%%d", n->out[k], p->root[n->out[k]]);
            else
                snd_buf_printf(b, " %%%d @%" PRId64, n->out[k], p->place[pos][k]);
        }
        snd_buf_put(b, "\n");
    }
}

static bool disjoint(const snd_life *a, const snd_life *b) {
    return a->offset + (int64_t)a->size <= b->offset || b->offset + (int64_t)b->size <= a->offset;
}

// Two values may share a place only when one is dead before the other is born, or hands over at the same node.
static bool may_live_together(const snd_life *a, const snd_life *b) {
    if (disjoint(a, b)) return true;
    if (a->death < b->birth || b->death < a->birth) return true;
    const bool hand_over = a->death == b->birth || b->death == a->birth;
    return hand_over && a->offset == b->offset && a->size == b->size && a->birth != b->birth;
}

bool snd_plan_ok(const snd_plan *p) {
    for (int i = 1; i < p->n_lives; i++) {
        const snd_life *a = &p->life[i];
        if (a->offset < 0) continue;
        if ((size_t)a->offset + a->size > p->scratch_at || a->offset % ALIGN != 0) return false;
        for (int j = i + 1; j < p->n_lives; j++)
            if (p->life[j].offset >= 0 && !may_live_together(a, &p->life[j])) return false;
    }
    return true;
}

void snd_plan_check(const snd_plan *p) {
    assert(snd_plan_ok(p));
    (void)p;
}
