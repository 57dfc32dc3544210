// Building and running a probe. Cells are made in running order; two names of one buffer share one statistics node;
// the plan keeps the statistics only, so every activation lives as short as its uses allow. Where that is still too much
// for the memory, layers are computed again in the backward pass and weights drawn when they are used.
#include "lab/fit.h"
#include "lab/probe.h"
#include "lab/weights.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

typedef struct maker {
    snd_probe *p;
    snd_graph *g;
    snd_id *stat_of; // by root value id: its forward statistics node, 0: none yet
    bool *is_stream; // by root value id: some stream has these numbers
    int64_t cap_cells;
    int forward_mask, costly_mask;
} maker;

// ---- cells ----------------------------------------------------------------------------------------------------------------

static sonde_status add_cell(maker *k, snd_cell_spec c) {
    snd_probe *p = k->p;
    if (p->n_cells == k->cap_cells) {
        snd_cell_spec *more;
        k->cap_cells = k->cap_cells ? 2 * k->cap_cells : 256;
        SND_NEW(p->arena, more, k->cap_cells);
        if (p->n_cells) memcpy(more, p->cells, (size_t)p->n_cells * sizeof *more);
        p->cells = more;
    }
    p->cells[p->n_cells++] = c;
    return SONDE_OK;
}

// "in.x", "layers.3.x", "out.x", behind a stack's prefix: where costly metrics are worth their price.
static bool is_stream_name(const char *name) {
    return snd_layer_stream(name) || (!strstr(name, "layers.") && (strstr(name, "in.") || !strcmp(name, "out.x")));
}

// All metrics of one kind that the statistics node can give.
static sonde_status add_cells(maker *k, snd_mwhere where, const char *name, int layer, int exit, snd_id stat,
                              int64_t width) {
    if (!stat) return SONDE_OK;
    const bool costly = k->p->o.costly && is_stream_name(name);
    for (int i = 0; i < snd_metric_count(); i++) {
        const snd_metric_row *r = snd_metric_at(i);
        if (r->where != where || (r->costly && !costly)) continue;
        const bool param = where == SND_MW_PARAM || where == SND_MW_PGRAD;
        SND_TRY(add_cell(k, (snd_cell_spec){.name = name,
                                            .layer = layer,
                                            .metric = i,
                                            .exit = exit,
                                            .param = param,
                                            .stat = stat,
                                            .width = width}));
    }
    return SONDE_OK;
}

static int mask_of(snd_mwhere where, bool costly) {
    int mask = 0;
    for (int i = 0; i < snd_metric_count(); i++) {
        const snd_metric_row *r = snd_metric_at(i);
        if (r->where == where && r->costly == costly) mask |= r->mask;
    }
    return mask;
}

// The value whose buffer this one shares through aliases: same numbers, same statistics.
static snd_id root(const snd_graph *g, snd_id v) {
    for (;;) {
        const snd_value *x = snd_g_value(g, v);
        if (x->node < 0 || snd_g_node(g, x->node)->op != SND_OP_ALIAS) return v;
        v = snd_g_node(g, x->node)->in[0];
    }
}

static snd_id forward_stat(maker *k, snd_id v) {
    const snd_id r = root(k->g, v);
    const bool costly = k->p->o.costly && k->is_stream[r];
    if (!k->stat_of[r]) k->stat_of[r] = snd_g_stat(k->g, r, 0, k->forward_mask | (costly ? k->costly_mask : 0));
    return k->stat_of[r];
}

static int layer_of(const char *name) {
    const char *p = strstr(name, "layers.");
    int64_t l;
    const char *end;
    return p && snd_parse_int(p + 7, &l, &end) ? (int)l : -1;
}

static int64_t width_of(const snd_graph *g, snd_id v) {
    const snd_shape s = snd_g_value(g, v)->shape;
    return s.nd ? s.dim[s.nd - 1] : 1;
}

static bool same_shape(const snd_graph *g, snd_id a, snd_id b) {
    return a && b && snd_shape_same(snd_g_value(g, a)->shape, snd_g_value(g, b)->shape);
}

// This stream after another layer of the same stack; layer -1: as it enters the first.
static snd_id stream_at(const maker *k, const char *like, int layer, const char *stream) {
    snd_arena *a = k->p->arena;
    const int prefix = (int)(strstr(like, "layers.") - like);
    const char *name = layer < 0 ? snd_arena_printf(a, "%.*sin.%s", prefix, like, stream)
                                 : snd_arena_printf(a, "%.*slayers.%d.%s", prefix, like, layer, stream);
    return name ? snd_model_tap(k->p->m, name) : 0;
}

// ---- forward ----------------------------------------------------------------------------------------------------------------

static bool is_statistic_of(const char *name) { // running statistics are state, not signal
    return strstr(name, ".running_") != NULL;
}

static sonde_status add_stream_cells(maker *k, const char *name, snd_id v, int exit) {
    const char *stream = snd_layer_stream(name);
    if (!stream) return SONDE_OK;
    const int layer = layer_of(name);
    const snd_id prev = stream_at(k, name, layer - 1, stream), first = stream_at(k, name, -1, "x");
    const int64_t w = width_of(k->g, v);
    if (same_shape(k->g, v, prev))
        SND_TRY(add_cells(k, SND_MW_PREV, name, layer, exit,
                          snd_g_stat(k->g, root(k->g, v), root(k->g, prev), SND_SM_ROWCOS), w));
    if (same_shape(k->g, v, first))
        SND_TRY(add_cells(k, SND_MW_FIRST, name, layer, exit,
                          snd_g_stat(k->g, root(k->g, v), root(k->g, first), SND_SM_ROWCOS), w));
    return SONDE_OK;
}

static snd_id attention_stat(maker *k, const snd_call *c) {
    const int32_t n = snd_model_attention(k->p->m, c);
    return n < 0 ? 0 : snd_g_attention_stats_of(k->g, n);
}

static sonde_status add_call_cells(maker *k, const char *name, snd_id v) {
    const snd_model *m = k->p->m;
    const snd_call *c = NULL;
    for (int i = 0; i < m->n_calls && !c; i++)
        if (m->calls[i].out == v) c = &m->calls[i];
    if (!c) return SONDE_OK;
    const int64_t w = width_of(k->g, v);
    if (same_shape(k->g, v, c->x))
        SND_TRY(add_cells(k, SND_MW_CALL, name, c->layer, -1,
                          snd_g_stat(k->g, root(k->g, v), root(k->g, c->x), SND_SM_ROWCOS), w));
    return add_cells(k, SND_MW_ATTN, name, c->layer, -1, attention_stat(k, c), w);
}

// Is this name shown? A repetition's stream that is the layer's stream too is shown once, as the layer's.
static bool shown(const maker *k, int i) {
    const snd_model *m = k->p->m;
    const char *name = m->taps[i].name;
    if (is_statistic_of(name)) return false;
    for (int j = i + 1; j < m->n_taps && j < i + 8; j++)
        if (m->taps[j].v == m->taps[i].v && layer_of(m->taps[j].name) == layer_of(name)) return false;
    return snd_g_value(k->g, m->taps[i].v)->shape.nd >= 2;
}

static sonde_status add_value(maker *k, const char *name, snd_id v, int exit) {
    SND_TRY(add_cells(k, SND_MW_VALUE, name, layer_of(name), exit, forward_stat(k, v), width_of(k->g, v)));
    return add_stream_cells(k, name, v, exit);
}

static const char *stack_prefix(const snd_probe *p) {
    snd_stack t;
    snd_model_stack(p->spec, &t);
    return t.prefix;
}

static const char *first_stream(const maker *k) {
    return snd_arena_printf(k->p->arena, "%sin.x", stack_prefix(k->p));
}

static const char *last_stream(const maker *k, int layers) {
    if (!layers) return first_stream(k);
    return snd_arena_printf(k->p->arena, "%slayers.%d.x", stack_prefix(k->p), layers - 1);
}

static sonde_status add_forward(maker *k) {
    const snd_model *m = k->p->m;
    const char *first = first_stream(k);
    if (!first) return SONDE_ENOMEM;
    for (int i = 0; i < m->n_taps; i++) {
        const char *name = m->taps[i].name;
        if (k->p->o.sparse ? strcmp(name, first) != 0 : !shown(k, i) || !strcmp(name, "out.x")) continue;
        SND_TRY(add_value(k, name, m->taps[i].v, -1));
        if (!k->p->o.sparse) SND_TRY(add_call_cells(k, name, m->taps[i].v));
    }
    for (int e = 0; e < m->n_exits; e++) {
        const char *last = last_stream(k, m->exits[e].layers);
        if (!last) return SONDE_ENOMEM;
        const snd_id v = snd_model_tap(m, last);
        if (k->p->o.sparse && v && m->exits[e].layers) SND_TRY(add_value(k, last, v, e));
        SND_TRY(add_value(k, "out.x", m->exits[e].out_x, e));
        const snd_id logits = m->exits[e].logits; // those of a large batch over a large vocabulary never exist
        if (logits && !snd_g_many(k->g, logits)) SND_TRY(add_value(k, "logits", logits, e));
    }
    return SONDE_OK;
}

// ---- backward -----------------------------------------------------------------------------------------------------------------

static bool is_matrix(const snd_graph *g, int param) {
    return snd_g_value(g, snd_g_param_at(g, param))->shape.nd >= 2;
}

// The first matrix in the net's order: where the lecture looks at "the first layer's gradient".
static int first_matrix(const snd_graph *g) {
    for (int i = 0; i < snd_g_param_count(g); i++)
        if (is_matrix(g, i)) return i;
    return -1;
}

typedef struct wanted {
    const char *name;
    snd_id v;
    int layer;
    bool param;
} wanted;

// Of a sweep: the first matrix, and of a Transformer (where the question is what the last layer gets) those of the last
// layer. Of an encoder that a memory replaces: none.
static bool param_wanted(const maker *k, int i, int last_layer) {
    const snd_probe *p = k->p;
    const char *name = snd_g_value(k->g, snd_g_param_at(k->g, i))->name;
    if (snd_g_param_is_state(k->g, i)) return false;
    if (snd_model_input(p->m, "memory") && !strncmp(name, "encoder.", 8)) return false;
    if (!p->o.sparse || i == first_matrix(k->g)) return true;
    return p->spec->family == SND_FAM_TRANSFORMER && layer_of(name) == last_layer && is_matrix(k->g, i);
}

static int list_wanted(maker *k, int exit, wanted *w) {
    const snd_probe *p = k->p;
    const snd_model *m = p->m;
    const char *first = first_stream(k), *last = last_stream(k, m->exits[exit].layers);
    int n = 0;
    for (int i = 0; i < m->n_taps; i++) {
        const char *name = m->taps[i].name;
        const bool sparse_one = (first && !strcmp(name, first)) || (last && !strcmp(name, last));
        if (!strcmp(name, "out.x") || (p->o.sparse ? !sparse_one : !shown(k, i))) continue;
        w[n++] = (wanted){name, m->taps[i].v, layer_of(name), false};
    }
    w[n++] = (wanted){"out.x", m->exits[exit].out_x, -1, false};
    if (!p->o.params) return n;
    for (int i = 0; i < snd_g_param_count(k->g); i++) {
        if (!param_wanted(k, i, m->exits[exit].layers - 1)) continue;
        const snd_id v = snd_g_param_at(k->g, i);
        w[n++] = (wanted){snd_g_value(k->g, v)->name, v, layer_of(snd_g_value(k->g, v)->name), true};
    }
    return n;
}

static sonde_status add_exit_gradients(maker *k, int exit, wanted *w, snd_id *wrt, snd_id *grad) {
    snd_probe *p = k->p;
    const snd_exit *e = &p->m->exits[exit];
    const int n = list_wanted(k, exit, w);
    for (int i = 0; i < n; i++) wrt[i] = w[i].v;
    const snd_id y = p->o.loss ? snd_g_loss_in_pieces(k->g, e->loss, false) : e->out_x;
    const snd_id dy = p->o.loss ? snd_g_const(k->g, snd_g_value(k->g, e->loss)->shape, 1) : p->dy;
    snd_g_grad(k->g, &y, &dy, 1, wrt, n, grad);
    const int ex = p->o.sparse || p->m->n_exits > 1 ? exit : -1;
    if (p->o.loss)
        SND_TRY(add_cell(k, (snd_cell_spec){.name = "loss",
                                            .layer = -1,
                                            .metric = snd_metric_find("mean"),
                                            .exit = ex,
                                            .stat = snd_g_stat(k->g, y, 0, 0),
                                            .width = 1}));
    for (int i = 0; i < n; i++) {
        // a value that the output does not depend on has the gradient 0, and that is worth knowing
        const snd_id gr = grad[i] ? grad[i] : snd_g_const(k->g, snd_g_value(k->g, wrt[i])->shape, 0);
        const snd_id stat = snd_g_stat(k->g, gr, 0, w[i].param ? SND_SM_ONLY_Q : mask_of(SND_MW_GRAD, false));
        SND_TRY(add_cells(k, w[i].param ? SND_MW_PGRAD : SND_MW_GRAD, w[i].name, w[i].layer, ex, stat,
                          width_of(k->g, wrt[i])));
    }
    return SONDE_OK;
}

static sonde_status add_backward(maker *k) {
    snd_probe *p = k->p;
    const int most = p->m->n_taps + snd_g_param_count(k->g) + 4;
    wanted *w;
    snd_id *wrt, *grad;
    SND_NEW(p->arena, w, most);
    SND_NEW(p->arena, wrt, most);
    SND_NEW(p->arena, grad, most);
    if (!p->o.loss) p->dy = snd_g_input(k->g, "dy", snd_g_value(k->g, p->m->exits[0].out_x)->shape, SND_DT_NONE);
    for (int e = 0; e < p->m->n_exits; e++) SND_TRY(add_exit_gradients(k, e, w, wrt, grad));
    return SONDE_OK;
}

static sonde_status add_params(maker *k) {
    for (int i = 0; k->p->o.params && !k->p->o.sparse && i < snd_g_param_count(k->g); i++) {
        const snd_id v = snd_g_param_at(k->g, i);
        if (snd_g_param_is_state(k->g, i)) continue;
        const char *name = snd_g_value(k->g, v)->name;
        SND_TRY(add_cells(k, SND_MW_PARAM, name, layer_of(name), -1, snd_g_stat(k->g, v, 0, 0), width_of(k->g, v)));
    }
    return SONDE_OK;
}

// ---- admin's profiling ----------------------------------------------------------------------------------------------------------

static bool has_profile(const snd_init_rule *r) {
    for (; r; r = r->next)
        if (r->kind && !strcmp(r->kind, "profile")) return true;
    return false;
}

// Vectors of a repetition ("layers.3.F.v1") start at sqrt(1 + sum of the branch variances before it).
static sonde_status find_profiled(maker *k) {
    snd_probe *p = k->p;
    if (p->o.weights) return SONDE_OK; // they have been trained since
    if (!has_profile(p->spec->init) && !has_profile(p->spec->formula->init)) return SONDE_OK;
    SND_NEW(p->arena, p->profile_param, snd_g_param_count(k->g) + 1);
    SND_NEW(p->arena, p->profile_call, snd_g_param_count(k->g) + 1);
    SND_NEW(p->arena, p->profile_stat, p->m->n_calls + 1);
    for (int c = 0; c < p->m->n_calls; c++) p->profile_stat[c] = forward_stat(k, p->m->calls[c].out);
    for (int i = 0; i < snd_g_param_count(k->g); i++) {
        const char *name = snd_g_value(k->g, snd_g_param_at(k->g, i))->name;
        for (int c = 0; c < p->m->n_calls; c++) {
            const size_t n = strlen(p->m->calls[c].name);
            // ".v" alone is an attention's map to its values
            if (strncmp(name, p->m->calls[c].name, n) || strncmp(name + n, ".v", 2)) continue;
            if (!isdigit((unsigned char)name[n + 2])) continue;
            p->profile_param[p->n_profile] = i;
            p->profile_call[p->n_profile++] = c;
        }
    }
    return SONDE_OK;
}

// ---- making -------------------------------------------------------------------------------------------------------------------

static sonde_status list_kept(maker *k, snd_id **keep, int *n) {
    const snd_probe *p = k->p;
    *n = 0;
    SND_NEW(p->arena, *keep, p->n_cells + p->m->n_calls + 1);
    for (int i = 0; i < p->n_cells; i++)
        if (i == 0 || p->cells[i].stat != p->cells[i - 1].stat) (*keep)[(*n)++] = p->cells[i].stat;
    for (int c = 0; p->n_profile && c < p->m->n_calls; c++) (*keep)[(*n)++] = p->profile_stat[c];
    return snd_graph_status(k->g);
}

static sonde_status make_graph(maker *k, bool boundaries) {
    snd_probe *p = k->p;
    const snd_build b = {.dtype = p->o.dtype,
                         .rows = p->o.rows,
                         .tokens = p->o.tokens,
                         .height = p->o.height,
                         .width = p->o.width,
                         .src_tokens = p->o.tokens,
                         .src_feed = p->spec->vocab > 0 ? SND_FEED_TOKENS : SND_FEED_MEMORY,
                         .integrate = p->o.integrate,
                         .eval = p->o.eval,
                         .with_targets = p->o.loss,
                         .exits = p->o.exits,
                         .n_exits = p->o.n_exits};
    SND_TRY(snd_model_build(p->arena, p->spec, &b, &p->m));
    k->g = p->m->g;
    k->forward_mask = mask_of(SND_MW_VALUE, false);
    k->costly_mask = mask_of(SND_MW_VALUE, true);
    SND_NEW(p->arena, k->stat_of, snd_g_value_count(k->g) + 1); // roots are the model's own values
    SND_NEW(p->arena, k->is_stream, snd_g_value_count(k->g) + 1);
    for (int i = 0; i < p->m->n_taps; i++)
        if (is_stream_name(p->m->taps[i].name)) k->is_stream[root(k->g, p->m->taps[i].v)] = true;
    for (int e = 0; e < p->m->n_exits; e++) k->is_stream[root(k->g, p->m->exits[e].out_x)] = true;
    if (boundaries) SND_TRY(snd_model_cut(p->arena, p->m));
    SND_TRY(add_forward(k));
    SND_TRY(add_params(k));
    SND_TRY(find_profiled(k));
    return p->o.backward ? add_backward(k) : SONDE_OK;
}

static const size_t MEMORY = (size_t)2 << 30; // aimed at when nothing was said
// More weights than this are drawn again rather than kept, unless many gradient chains read them: their first touch
// takes longer (32 layers of width 1024: 2.4 s of processor time kept, 1.7 s drawn twice).
static const size_t WORTH_KEEPING = (size_t)64 << 20;

// The fastest way that fits into the limit, or the leanest. False: this graph has none that fits.
static sonde_status choose_plan(maker *k, int first, int last, bool *fits) {
    snd_probe *p = k->p;
    snd_id *keep;
    int n;
    SND_TRY(list_kept(k, &keep, &n));
    (void)snd_g_fuse(k->g, keep, n);
    *fits = false;
    for (int i = first; i <= last && !*fits; i++) {
        p->way = snd_fit_way(i);
        if (p->o.weights && p->way.params != SND_PARAMS_SOURCE) continue; // a file's are nowhere else
        SND_TRY(snd_plan_make_by(p->arena, k->g, keep, n, &p->way, &p->plan));
        const bool slow = !p->o.weights && p->m->n_exits == 1 && snd_plan_param_bytes(p->plan) > WORTH_KEEPING;
        *fits = !slow && snd_probe_bytes(p) <= (p->o.max_memory ? p->o.max_memory : MEMORY);
    }
    return SONDE_OK;
}

sonde_status snd_probe_make(snd_arena *a, const snd_spec *spec, const snd_probe_opts *o, snd_probe **out) {
    bool fits = false;
    for (int lean = 0; lean < 2 && !fits; lean++) {
        snd_probe *p;
        SND_NEW(a, p, 1);
        *p = (snd_probe){.arena = a, .o = *o, .spec = spec};
        maker k = {.p = p};
        SND_TRY(make_graph(&k, lean));
        SND_TRY(choose_plan(&k, lean, lean ? SND_FIT_WAYS - 1 : 0, &fits));
        *out = p;
    }
    return SONDE_OK;
}

size_t snd_probe_bytes(const snd_probe *p) {
    const size_t inputs = 2 * (size_t)snd_probe_largest_input(p) * sizeof(double);
    return snd_plan_bytes(p->plan) + snd_plan_param_bytes(p->plan) + inputs + snd_fit_overhead(p->m->g);
}

// ---- running --------------------------------------------------------------------------------------------------------------------

// Does the decoder's part of an encoder-decoder begin with this call?
static bool begins_decoder(const snd_model *m, int call) {
    static const char encoder[] = "encoder.";
    const size_t n = strlen(encoder);
    return call > 0 && !strncmp(m->calls[call - 1].name, encoder, n) && strncmp(m->calls[call].name, encoder, n) != 0;
}

// First run with the vectors at their start, then omega_s^2 = 1 + sum of Var[F_j], j < s in its stack (Liu et al. 2020).
static sonde_status profile(const snd_probe *p, snd_exec *x, snd_source *src) {
    if (!p->n_profile) return SONDE_OK;
    SND_TRY(snd_exec_run(x));
    double sum = 1;
    int done = 0;
    for (int c = 0; c < p->m->n_calls; c++) {
        if (begins_decoder(p->m, c)) sum = 1;
        for (; done < p->n_profile && p->profile_call[done] == c; done++) {
            void *data;
            const int i = p->profile_param[done];
            const snd_value *v = snd_g_value(p->m->g, snd_g_param_at(p->m->g, i));
            SND_TRY(snd_source_data(src, p->m->g, i, &data));
            snd_k_fill_const(1, v->dtype, snd_shape_size(v->shape), sqrt(sum), data);
        }
        const double *s = snd_exec_raw(x, p->profile_stat[c], NULL);
        sum += ldexp(s[SND_ST_VAR], 2 * (int)s[SND_ST_EXP]);
    }
    return SONDE_OK;
}

static double read_cell(const snd_exec *x, const snd_cell_spec *c) {
    const double *s = snd_exec_raw(x, c->stat, NULL);
    const snd_metric_row *r = snd_metric_at(c->metric);
    const double v = r->get(s);
    // NaN of finite numbers: the metric does not apply (a cosine of zeros, of one example); else a NaN counts
    const bool lost = r->where == SND_MW_ATTN ? isnan(s[SND_AS_MAXLOGIT]) : s[SND_ST_NONFINITE] > 0;
    if (isnan(v) && lost) return INFINITY;
    if (!strcmp(r->name, "absmax_row")) return floor(v / (double)c->width);
    if (!strcmp(r->name, "absmax_feature")) return v - (double)c->width * floor(v / (double)c->width);
    return v;
}

typedef struct batch {
    const snd_probe *p;
    uint64_t first;
    int n, threads; // threads inside one run
    double *values;
    sonde_status *status;
    const snd_probe_times *times;
    void (*done)(void *, int steps);
    void *ctx;
} batch;

// Tells progress in whole steps.
typedef struct teller {
    const batch *b;
    int told;
} teller;

static void tell(teller *t, int steps) {
    if (t->b->done && steps > t->told) t->b->done(t->b->ctx, steps - t->told);
    t->told = steps;
}

static void ran_some(void *ctx, int done, int total) {
    teller *t = ctx;
    (void)total;
    tell(t, (int)(SND_PROBE_STEPS * snd_plan_share(t->b->p->plan, done)));
}

static sonde_status open_source(const batch *b, uint64_t seed, snd_source *src) {
    const snd_probe *p = b->p;
    if (p->way.params != SND_PARAMS_SOURCE) return snd_source_drawn(p->m->g, seed, b->threads, src);
    SND_TRY(snd_source_resident(p->m->g, seed, b->threads, src));
    return p->o.weights ? snd_weights_fill(p->o.weights, p->m->g, true, src) : SONDE_OK;
}

static sonde_status run_seed(teller *t, int i, snd_source *src, snd_exec **x) {
    const batch *b = t->b;
    const snd_probe *p = b->p;
    const uint64_t seed = b->first + (uint64_t)i;
    SND_TRY(open_source(b, seed, src));
    const snd_exec_opts eo = {
        .threads = b->threads, .seed = seed, .stop = p->o.stop, .progress = b->done ? ran_some : NULL, .ctx = t};
    SND_TRY(snd_exec_create(p->m->g, p->plan, src, &eo, x));
    SND_TRY(snd_probe_feed(p, *x, seed));
    SND_TRY(profile(p, *x, src));
    SND_TRY(snd_exec_run(*x));
    for (int c = 0; c < p->n_cells; c++) b->values[(int64_t)c * b->n + i] = read_cell(*x, &p->cells[c]);
    return SONDE_OK;
}

static void seed_task(void *ctx, int64_t i) {
    const batch *b = ctx;
    snd_source src = {0};
    snd_exec *x = NULL;
    sonde_status s = b->p->o.stop && b->p->o.stop->flag ? SONDE_EINTERRUPTED : SONDE_OK;
    teller t = {.b = b};
    const double start = snd_now();
    if (s == SONDE_OK) s = run_seed(&t, (int)i, &src, &x);
    b->status[i] = s;
    if (b->times) {
        b->times->draw[i] = src.self ? snd_source_seconds(&src) : 0;
        b->times->run[i] = snd_now() - start - b->times->draw[i];
    }
    snd_exec_destroy(x);
    snd_source_close(&src);
    tell(&t, SND_PROBE_STEPS);
}

// Seeds side by side need no synchronisation at all; one after the other they need less memory.
static bool side_by_side(const snd_probe *p, int n, int threads) {
    const size_t limit = p->o.max_memory ? p->o.max_memory : (size_t)1 << 29;
    return n >= threads && threads > 1 && snd_probe_bytes(p) * (size_t)threads <= limit;
}

sonde_status snd_probe_run(const snd_probe *p, uint64_t first, int n, double *values, int *whole,
                           const snd_probe_times *times, void (*done)(void *, int), void *ctx) {
    const int threads = p->o.threads > 0 ? p->o.threads : snd_cpu_count();
    sonde_status *status = snd_calloc((size_t)n + 1, sizeof *status);
    *whole = 0;
    if (!status) return SONDE_ENOMEM;
    const bool wide = side_by_side(p, n, threads);
    batch b = {.p = p,
               .first = first,
               .n = n,
               .threads = wide ? 1 : threads,
               .values = values,
               .status = status,
               .times = times,
               .done = done,
               .ctx = ctx};
    snd_parallel(wide ? threads : 1, n, seed_task, &b);
    sonde_status s = SONDE_OK;
    for (int i = 0; i < n && s == SONDE_OK; i++) *whole += (s = status[i]) == SONDE_OK;
    if (wide && s != SONDE_OK && s != SONDE_ENOMEM && s != SONDE_EINTERRUPTED) {
        seed_task(&b, *whole); // the message stayed on the thread that wrote it
        s = status[*whole];
    }
    snd_free(status);
    if (s == SONDE_ENOMEM)
        SND_FAIL(s, "no memory for a run of %zu MiB", snd_probe_bytes(p) >> 20); // said on another thread
    if (s == SONDE_EINTERRUPTED) SND_FAIL(s, "interrupted");
    return s;
}
