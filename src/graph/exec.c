// Runs a plan: one slab for all values, parameters acquired around the nodes that read them.
// Invariants: graph and plan are const, so several executors may share them on different threads; running a node takes
// no memory from the heap; the numbers do not depend on the number of threads.
#include "graph/graph_impl.h"

#include <assert.h>
#include <math.h>
#include <string.h>

struct snd_exec {
    const snd_graph *g;
    const snd_plan *p;
    snd_source *src;
    snd_exec_opts o;
    unsigned char *slab;
    snd_rv *v;
    snd_rv **bound; // by value: the caller's buffer
    bool *set;      // by value: input has been given
    bool ran;
    int64_t first_example;
    int64_t counts[2]; // results that were not 0; those that storing made 0
};

static bool make_memory(snd_exec *x) {
    const size_t n = (size_t)x->p->n_values + 1, bytes = x->p->bytes ? x->p->bytes : 64;
    x->slab = x->o.slab ? x->o.slab : snd_slab_alloc(bytes);
    x->v = snd_calloc(n, sizeof *x->v);
    x->bound = snd_calloc(n, sizeof *x->bound);
    x->set = snd_calloc(n, sizeof *x->set);
    return x->slab && x->v && x->bound && x->set;
}

sonde_status snd_exec_create(const snd_graph *g, const snd_plan *p, snd_source *src, const snd_exec_opts *o,
                             snd_exec **out) {
    assert(p->g == g);
    *out = NULL;
    snd_exec *x = snd_calloc(1, sizeof *x);
    if (!x) return SONDE_ENOMEM;
    *x = (snd_exec){.g = g, .p = p, .src = src, .o = o ? *o : (snd_exec_opts){0}};
    if (x->o.threads <= 0) x->o.threads = snd_cpu_count();
    if (!make_memory(x)) {
        const size_t bytes = p->bytes;
        snd_exec_destroy(x);
        SND_FAIL(SONDE_ENOMEM, "no memory for the values of a run (%zu bytes)", bytes);
    }
    for (int i = 1; i < p->n_lives; i++) { // the others get their places step by step
        if (g->values[p->life[i].v]->role == SND_R_INPUT) x->v[p->life[i].v].p = x->slab + p->life[i].offset;
    }
    *out = x;
    return SONDE_OK;
}

void snd_exec_destroy(snd_exec *x) {
    if (!x) return;
    if (!x->o.slab) snd_free(x->slab);
    snd_free(x->v);
    snd_free(x->bound);
    snd_free(x->set);
    snd_free(x);
}

// ---- storing --------------------------------------------------------------------------------------------------------

static bool is_stored(const snd_graph *g, snd_id v) {
    const snd_value *val = g->values[v];
    const bool exact = val->role == SND_R_NODE && snd_op_info_at(g->nodes[val->node]->op)->exact >> val->out_index & 1;
    return g->stored && val->dtype == g->dtype && val->shape.nd > 0 && !exact;
}

static void store(const snd_exec *x, snd_id v, int64_t counts[2]) {
    snd_rv *r = &x->v[v];
    r->amax = snd_k_round_f16(x->o.threads, snd_shape_size(x->g->values[v]->shape), r->e, r->p, counts);
    r->e = 0;
}

static void store_results(snd_exec *x, const snd_node *n, int index) {
    for (int k = 0; k < n->n_out; k++)
        if (n->out[k] && is_stored(x->g, n->out[k])) store(x, n->out[k], index >= x->o.count_from ? x->counts : NULL);
}

// ---- inputs ---------------------------------------------------------------------------------------------------------

enum { CHUNK = 256 };

// Largest absolute value among the finite numbers.
static double absmax_of(const char *src, snd_dtype t, int64_t n) {
    double buf[CHUNK], amax = 0;
    for (int64_t i = 0; i < n; i += CHUNK) {
        const int64_t m = n - i < CHUNK ? n - i : CHUNK;
        snd_convert(src + (size_t)i * snd_dtype_size(t), t, buf, SND_F64, m);
        for (int64_t j = 0; j < m; j++) amax = isfinite(buf[j]) && fabs(buf[j]) > amax ? fabs(buf[j]) : amax;
    }
    return amax;
}

static void copy_scaled(const char *src, snd_dtype st, char *dst, snd_dtype dt, int64_t n, int shift) {
    double buf[CHUNK];
    for (int64_t i = 0; i < n; i += CHUNK) {
        const int64_t m = n - i < CHUNK ? n - i : CHUNK;
        snd_convert(src + (size_t)i * snd_dtype_size(st), st, buf, SND_F64, m);
        for (int64_t j = 0; j < m; j++) buf[j] = ldexp(buf[j], shift);
        snd_convert(buf, SND_F64, dst + (size_t)i * snd_dtype_size(dt), dt, m);
    }
}

sonde_status snd_exec_set(snd_exec *x, snd_id v, const void *data, snd_dtype dtype) {
    const snd_value *val = snd_g_value(x->g, v);
    SND_FAIL_IF(val->role != SND_R_INPUT, SONDE_EINTERNAL, "'%s' is not an input", val->name);
    if (v >= x->p->n_values || !x->v[v].p) return SONDE_OK; // nothing kept needs it
    const int64_t n = snd_shape_size(val->shape);
    snd_rv *r = &x->v[v];
    *r = (snd_rv){.p = r->p, .e = 0, .amax = -1};
    x->set[v] = true;
    if (val->dtype != SND_F32 && val->dtype != SND_F64) {
        snd_convert(data, dtype, r->p, val->dtype, n);
        return SONDE_OK;
    }
    const int s = (int)snd_fit_exponent(val->dtype, absmax_of(data, dtype, n));
    copy_scaled(data, dtype, r->p, val->dtype, n, -s);
    r->e = s;
    if (is_stored(x->g, v)) store(x, v, NULL);
    return SONDE_OK;
}

void snd_exec_shift(snd_exec *x, snd_id v, int k) {
    snd_rv *r = &x->v[v];
    if (!r->p) return;
    const snd_value *val = snd_g_value(x->g, v);
    copy_scaled(r->p, val->dtype, r->p, val->dtype, snd_shape_size(val->shape), -k);
    r->e += k;
    r->amax = -1;
}

void snd_exec_bind(snd_exec *x, snd_id v, snd_rv *b) {
    assert(snd_g_value(x->g, v)->role == SND_R_BUFFER);
    if (v < x->p->n_values) x->bound[v] = b;
}

static sonde_status inputs_given(const snd_exec *x) {
    for (snd_id v = 1; v < x->p->n_values; v++) {
        const snd_value *val = snd_g_value(x->g, v);
        SND_FAIL_IF(val->role == SND_R_INPUT && x->p->root[v] && !x->set[v], SONDE_EINPUT,
                    "input '%s' has not been given", val->name);
        SND_FAIL_IF(val->role == SND_R_BUFFER && x->p->root[v] && !x->bound[v], SONDE_EINPUT,
                    "buffer '%s' has not been given", val->name);
    }
    return SONDE_OK;
}

// Others may have written to them since the last run.
static void fetch_buffers(snd_exec *x) {
    for (snd_id v = 1; v < x->p->n_values; v++)
        if (x->bound[v]) x->v[v] = *x->bound[v];
}

static void fill(snd_exec *x, const snd_node *n, snd_oprun *r) {
    snd_rv *b = x->bound[x->p->root[n->out[0]]];
    snd_op_info_at(n->op)->run(r);
    *b = x->v[n->out[0]];
}

// ---- running --------------------------------------------------------------------------------------------------------

static const snd_value *param_behind(const snd_exec *x, snd_id v) {
    const snd_value *val = v ? snd_g_value(x->g, x->p->root[v]) : NULL;
    return val && val->role == SND_R_PARAM ? val : NULL;
}

static void release_params(snd_exec *x, const snd_node *n, int n_in) {
    if (x->p->o.params != SND_PARAMS_SOURCE) return;
    for (int k = 0; k < n_in; k++) {
        const snd_value *val = param_behind(x, n->in[k]);
        if (val && x->src->release) x->src->release(x->src->self, x->g, val->param);
    }
}

static sonde_status acquire(snd_exec *x, snd_id root, snd_rv *out) {
    const void *data = NULL;
    *out = (snd_rv){.p = x->v[root].p, .amax = -1};
    if (x->p->o.params != SND_PARAMS_SOURCE) return SONDE_OK; // loaded, or read in pieces
    SND_TRY(x->src->acquire(x->src->self, x->g, snd_g_value(x->g, root)->param, &data, &out->e));
    // Ops never write to their inputs (in-place results need a node's value), so const may go.
    out->p = (void *)(uintptr_t)data;
    return SONDE_OK;
}

static sonde_status acquire_params(snd_exec *x, const snd_node *n) {
    for (int k = 0; k < n->n_in; k++) {
        if (!param_behind(x, n->in[k])) continue;
        snd_rv here;
        const sonde_status s = acquire(x, x->p->root[n->in[k]], &here);
        if (s != SONDE_OK) {
            release_params(x, n, k);
            return s;
        }
        x->v[n->in[k]] = here;
    }
    return SONDE_OK;
}

// Parameters that the plan keeps in the slab from here on.
static void load_params(snd_exec *x, int pos) {
    for (int i = x->p->first_load[pos]; i < x->p->first_load[pos + 1]; i++) {
        const snd_load *l = &x->p->loads[i];
        const snd_value *val = snd_g_value(x->g, l->v);
        x->v[l->v] = (snd_rv){.p = l->offset < 0 ? NULL : x->slab + l->offset, .amax = -1};
        if (l->offset >= 0) x->src->read(x->src->self, x->g, val->param, 0, snd_shape_size(val->shape), x->v[l->v].p);
    }
}

static sonde_status run_node(snd_exec *x, int pos) {
    const int index = x->p->order[pos];
    const snd_node *n = snd_plan_node(x->p, pos);
    load_params(x, pos);
    SND_TRY(acquire_params(x, n));
    for (int k = 0; k < n->n_out && !x->p->view[index]; k++)
        x->v[n->out[k]] = (snd_rv){.p = x->slab + x->p->place[pos][k], .amax = -1};
    snd_oprun r = {.g = x->g,
                   .n = n,
                   .index = index,
                   .v = x->v,
                   .t = x->g->dtype,
                   .threads = x->o.threads,
                   .seed = x->o.seed,
                   .first_example = x->first_example,
                   .src = x->src,
                   .scratch = x->slab + x->p->scratch_at};
    if (x->p->view[index])
        x->v[n->out[0]] = x->v[n->in[0]];
    else
        snd_op_info_at(n->op)->run(&r);
    if (x->p->view[index] && snd_op_info_at(n->op)->fills) fill(x, n, &r);
    if (x->g->stored && !x->p->view[index]) store_results(x, n, index);
    release_params(x, n, n->n_in);
    return SONDE_OK;
}

sonde_status snd_exec_run(snd_exec *x) {
    SND_TRY(inputs_given(x));
    x->ran = false;
    fetch_buffers(x);
    x->counts[0] = x->counts[1] = 0;
    const int n = x->p->n_order;
    for (int pos = 0; pos < n; pos++) {
        SND_FAIL_IF(x->o.stop && x->o.stop->flag, SONDE_EINTERRUPTED, "stopped after %d of %d operations", pos, n);
        SND_TRY(run_node(x, pos));
        if (x->o.progress) x->o.progress(x->o.ctx, pos + 1, n);
    }
    x->ran = true;
    return SONDE_OK;
}

void snd_exec_reseed(snd_exec *x, uint64_t seed) {
    x->o.seed = seed;
}

void snd_exec_first_example(snd_exec *x, int64_t first) {
    x->first_example = first;
}

double snd_exec_lost(const snd_exec *x) {
    return x->counts[0] ? (double)x->counts[1] / (double)x->counts[0] : 0;
}

int64_t snd_exec_op_count(const snd_exec *x) {
    return x->p->n_order;
}

// ---- results --------------------------------------------------------------------------------------------------------

const void *snd_exec_raw(const snd_exec *x, snd_id v, int32_t *e) {
    const bool readable =
        v > 0 && v < x->p->n_values && x->p->keep[v] && (x->ran || snd_g_value(x->g, v)->role == SND_R_INPUT);
    if (e) *e = readable ? x->v[v].e : 0;
    return readable ? x->v[v].p : NULL;
}

sonde_status snd_exec_get(const snd_exec *x, snd_id v, double *out) {
    int32_t e = 0;
    const void *p = snd_exec_raw(x, v, &e);
    SND_FAIL_IF(!p, SONDE_EINTERNAL, "value %d ('%s') was not kept by the plan, or the run has not ended", v,
                snd_g_value(x->g, v)->name);
    const snd_value *val = snd_g_value(x->g, v);
    const int64_t n = snd_shape_size(val->shape);
    snd_convert(p, val->dtype, out, SND_F64, n);
    for (int64_t i = 0; e != 0 && i < n; i++) out[i] = ldexp(out[i], e);
    return SONDE_OK;
}
