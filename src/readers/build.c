// The build reader: a formula becomes a graph. Each operation of the language is a node or two; sites get their
// parameters from nn/; every value that has a name in the contract is kept in the tap table.
#include "readers/readers.h"

#include <string.h>

typedef struct builder {
    snd_nn nn;
    snd_model *m;
    snd_arena *arena;
    const snd_build *o;
    snd_stack stack;
    int64_t cap_taps, cap_calls, cap_exits;
    snd_id x_before; // the stream before the statement that runs
} builder;

// The graph remembers its first error; here it becomes a status with the formula's place in front.
static sonde_status check(builder *b, const char *what) {
    const sonde_status s = snd_graph_status(b->nn.g);
    return s == SONDE_OK ? s : snd_fail_prefix(s, "%s: ", what);
}

static sonde_status give(builder *b, snd_id v, snd_val *out, const char *what) {
    out->id = v;
    return check(b, what);
}

// Arena-backed growth: doubles by copying, since everything here lives as long as the model.
static sonde_status room(snd_arena *a, void **p, int64_t *cap, int n, size_t size) {
    if (n < *cap) return SONDE_OK;
    const int64_t want = *cap ? 2 * *cap : 64;
    void *q = snd_arena_array(a, (size_t)want, size);
    if (!q) return SONDE_ENOMEM;
    if (n) memcpy(q, *p, (size_t)n * size);
    *p = q;
    *cap = want;
    return SONDE_OK;
}

static sonde_status add_tap(builder *b, const char *name, snd_id v) {
    SND_TRY(room(b->arena, (void **)&b->m->taps, &b->cap_taps, b->m->n_taps, sizeof *b->m->taps));
    b->m->taps[b->m->n_taps++] = (snd_tap){name, v};
    return SONDE_OK; // not snd_g_name: a named value is one that fusion must keep, and only the asked-for ones are kept
}

static sonde_status on_extra(void *ctx, const char *name, snd_id v) {
    return add_tap(ctx, name, v);
}

// ---- operations -----------------------------------------------------------------------------------------------------------

static const snd_kfn KFN[SND_FN_COUNT] = {
    [SND_FN_RELU] = SND_KFN_RELU, [SND_FN_GELU] = SND_KFN_GELU, [SND_FN_GELU_TANH] = SND_KFN_GELU_TANH,
    [SND_FN_SILU] = SND_KFN_SILU, [SND_FN_TANH] = SND_KFN_TANH, [SND_FN_SIGMOID] = SND_KFN_SIGMOID,
    [SND_FN_ERF] = SND_KFN_ERF,   [SND_FN_EXP] = SND_KFN_EXP,   [SND_FN_SOFTPLUS] = SND_KFN_SOFTPLUS,
    [SND_FN_SQRT] = SND_KFN_SQRT, [SND_FN_LOG] = SND_KFN_LOG,   [SND_FN_ABS] = SND_KFN_ABS};

static sonde_status b_unary(void *self, snd_fn fn, snd_val a, snd_val *out) {
    builder *b = self;
    if (fn == SND_FN_NEG) return give(b, snd_g_affine(b->nn.g, -1, a.id, 0), out, "-");
    return give(b, snd_g_unary(b->nn.g, KFN[fn], a.id), out, snd_fn_name(fn));
}

// A constant operand becomes a coefficient; only min, max and a constant numerator need it as a value.
static snd_id with_const(snd_graph *g, snd_bin op, snd_val a, snd_val b) {
    const bool left = a.kind == SND_V_CONST;
    const double c = left ? a.num : b.num;
    const snd_id v = left ? b.id : a.id;
    switch (op) {
    case SND_BIN_ADD: return snd_g_affine(g, 1, v, c);
    case SND_BIN_SUB: return left ? snd_g_affine(g, -1, v, c) : snd_g_affine(g, 1, v, -c);
    case SND_BIN_MUL: return snd_g_affine(g, c, v, 0);
    case SND_BIN_DIV:
        if (!left) return snd_g_affine(g, 1 / c, v, 0);
        return snd_g_div(g, snd_g_const(g, SND_SHAPE(1), c), v);
    default: break;
    }
    const snd_id k = snd_g_const(g, SND_SHAPE(1), c);
    const snd_id p = left ? k : v, q = left ? v : k;
    return op == SND_BIN_MIN ? snd_g_min(g, p, q) : snd_g_max(g, p, q);
}

static sonde_status b_binary(void *self, snd_bin op, snd_val p, snd_val q, snd_val *out) {
    builder *b = self;
    snd_graph *g = b->nn.g;
    if (p.kind == SND_V_CONST || q.kind == SND_V_CONST) return give(b, with_const(g, op, p, q), out, "arithmetic");
    snd_id v = 0;
    switch (op) {
    case SND_BIN_ADD: v = snd_g_lin(g, 1, p.id, 1, q.id); break;
    case SND_BIN_SUB: v = snd_g_lin(g, 1, p.id, -1, q.id); break;
    case SND_BIN_MUL: v = snd_g_mul(g, p.id, q.id); break;
    case SND_BIN_DIV: v = snd_g_div(g, p.id, q.id); break;
    case SND_BIN_MIN: v = snd_g_min(g, p.id, q.id); break;
    case SND_BIN_MAX: v = snd_g_max(g, p.id, q.id); break;
    default: SND_FAIL(SONDE_EINTERNAL, "an operator without a kind");
    }
    return give(b, v, out, "arithmetic");
}

static sonde_status b_norm(void *self, const snd_site *site, const snd_norm_args *n, snd_val a, snd_val *out) {
    builder *b = self;
    b->nn.layer = site->layer;
    SND_TRY(snd_nn_norm(&b->nn, site->name, n, a.id, a.cols, &out->id));
    return check(b, site->name);
}

static sonde_status b_linear(void *self, const snd_site *site, const snd_linear_args *l, snd_val a, snd_val *out) {
    builder *b = self;
    b->nn.layer = site->layer;
    SND_TRY(snd_nn_linear(&b->nn, site->name, l->role, l->alt, a.id, a.kind == SND_V_TOKEN ? 1 : a.cols, l->out,
                          l->has_gain ? l->gain : -1, l->zero, l->bias, &out->id));
    return check(b, site->name);
}

static sonde_status learned(builder *b, const snd_site *site, const char *role, int64_t n, double init, snd_val *out) {
    snd_init i;
    b->nn.layer = site->layer;
    SND_TRY(snd_nn_init_value(&b->nn, role, init, &i));
    return give(b, snd_nn_param(b->nn.g, site->name, SND_SHAPE(n), &i, false), out, site->name);
}

static sonde_status b_scalar(void *self, const snd_site *site, double init, snd_val *out) {
    return learned(self, site, "scalar", 1, init, out);
}

static sonde_status b_vector(void *self, const snd_site *site, double init, snd_val *out) {
    builder *b = self;
    return learned(b, site, "vector", b->stack.d, init, out);
}

static sonde_status b_unit(void *self, snd_val a, snd_val *out) {
    builder *b = self;
    return give(b, snd_g_unit(b->nn.g, a.id, 1), out, "unit");
}

static sonde_status b_dot(void *self, snd_val p, snd_val q, snd_val *out) {
    builder *b = self;
    return give(b, snd_g_rowdot(b->nn.g, p.id, q.id), out, "dot");
}

static sonde_status b_rms(void *self, snd_val a, snd_val *out) {
    builder *b = self;
    return give(b, snd_g_rowrms(b->nn.g, a.id), out, "rms");
}

static sonde_status b_stop(void *self, snd_val a, snd_val *out) {
    builder *b = self;
    return give(b, snd_g_stop(b->nn.g, a.id), out, "stop");
}

static sonde_status b_alias(void *self, snd_val a, snd_val *out) {
    builder *b = self;
    return give(b, snd_g_alias(b->nn.g, a.id), out, "a name");
}

static sonde_status b_cond(void *self, snd_val *out) {
    builder *b = self;
    if (!b->m->cond) b->m->cond = snd_g_input(b->nn.g, "cond", SND_SHAPE(b->o->rows, b->stack.cond), SND_DT_NONE);
    return give(b, b->m->cond, out, "c");
}

// Learned weights over the list so far, one-hot on the latest at start.
static sonde_status b_depthmix(void *self, const snd_site *site, const snd_val *list, int n, snd_val *out) {
    builder *b = self;
    snd_graph *g = b->nn.g;
    snd_id *v;
    SND_NEW(b->arena, v, n);
    for (int i = 0; i < n; i++) v[i] = list[i].id;
    snd_init init;
    SND_TRY(snd_nn_init_value(&b->nn, "depthmix", 1, &init));
    if (init.kind == SND_INIT_CONST && init.a == 1)
        init.kind = SND_INIT_LAST; // no rule replaced the start [0, .., 0, 1]
    const snd_id w = snd_nn_param(g, site->name, SND_SHAPE(n), &init, false);
    return give(b, snd_g_wsum(g, w, v, n), out, site->name);
}

// Softmax over depth of w . RMS0(v), one pseudo-query w, zero at start.
static sonde_status b_depthattn(void *self, const snd_site *site, const snd_val *list, int n, double eps,
                                snd_val *out) {
    builder *b = self;
    snd_graph *g = b->nn.g;
    snd_id *v, *score;
    snd_init init;
    SND_NEW(b->arena, v, n);
    SND_NEW(b->arena, score, n);
    SND_TRY(snd_nn_init_value(&b->nn, "depthattn", 0, &init));
    const snd_id w = snd_nn_param(g, site->name, SND_SHAPE(list[0].cols), &init, false);
    for (int i = 0; i < n; i++) {
        v[i] = list[i].id;
        score[i] = snd_g_rowdot(g, snd_g_rmsnorm(g, v[i], 0, 0, eps, false), w);
    }
    const snd_id p = snd_g_softmax(g, snd_g_concat(g, score, n));
    return give(b, snd_g_wsum(g, p, v, n), out, site->name);
}

// ---- names and places --------------------------------------------------------------------------------------------------------

static bool ends_with(const char *s, const char *tail) {
    const size_t n = strlen(s), k = strlen(tail);
    return n >= k && !strcmp(s + n - k, tail);
}

// "layers.3.F.in" opens a call, "layers.3.F.out" closes the latest one of that name.
static sonde_status note_call(builder *b, const char *name, snd_id v) {
    snd_model *m = b->m;
    if (ends_with(name, ".out")) {
        const size_t len = strlen(name) - 4;
        for (int i = m->n_calls - 1; i >= 0; i--)
            if (!m->calls[i].out && strlen(m->calls[i].name) == len && !strncmp(m->calls[i].name, name, len)) {
                m->calls[i].out = v;
                return SONDE_OK;
            }
    }
    if (!ends_with(name, ".in")) return SONDE_OK;
    SND_TRY(room(b->arena, (void **)&m->calls, &b->cap_calls, m->n_calls, sizeof *m->calls));
    const char *call = snd_arena_strn(b->arena, name, strlen(name) - 3);
    if (!call) return SONDE_ENOMEM;
    m->calls[m->n_calls++] = (snd_call){.name = call, .layer = b->nn.layer, .in = v, .x = b->x_before};
    return SONDE_OK;
}

static sonde_status b_tap(void *self, const char *name, snd_val v) {
    builder *b = self;
    SND_TRY(note_call(b, name, v.id));
    if (!strcmp(name, "in.x")) b->m->in_x = v.id;
    return add_tap(b, name, v.id);
}

static sonde_status b_stmt(void *self, const snd_stmt *s, snd_section sec, int layer, snd_val x) {
    builder *b = self;
    (void)s;
    (void)sec;
    b->nn.layer = layer;
    b->x_before = x.id;
    return SONDE_OK;
}

// ---- whole models ------------------------------------------------------------------------------------------------------------

void snd_model_stack(const snd_spec *s, snd_stack *t) {
    *t = (snd_stack){.prefix = "",
                     .f = s->formula,
                     .block = s->block,
                     .mlp = s->family == SND_FAM_MLP,
                     .convnet = s->family == SND_FAM_CONVNET,
                     .L = (int)s->layers,
                     .d = s->width,
                     .n = s->hidden,
                     .cond = s->cond};
    t->norm = (snd_norm_args){
        .kind = s->norm, .eps = s->eps, .gain = 1, .plus1 = s->plus1, .affine = true, .bias = s->norm_bias};
}

static sonde_status finish(builder *b, int layers, snd_id out_x) {
    snd_model *m = b->m;
    snd_exit e = {.layers = layers, .out_x = out_x};
    SND_TRY(snd_mlp_head(&b->nn, out_x, &e.logits));
    SND_TRY(check(b, "head"));
    SND_FAIL_IF(b->o->with_targets && !e.logits, SONDE_EINPUT,
                "targets need logits, but this model has no head; give outputs=CLASSES");
    if (b->o->with_targets) {
        if (!m->targets) m->targets = snd_g_input(b->nn.g, "targets", SND_SHAPE(b->o->rows), SND_I64);
        e.loss = snd_g_xent(b->nn.g, e.logits, m->targets);
    }
    SND_TRY(room(b->arena, (void **)&m->exits, &b->cap_exits, m->n_exits, sizeof *m->exits));
    m->exits[m->n_exits++] = e;
    m->out_x = e.out_x;
    m->logits = e.logits;
    m->loss = e.loss;
    if (e.logits && layers == b->stack.L) SND_TRY(add_tap(b, "logits", e.logits));
    if (e.loss && layers == b->stack.L) SND_TRY(add_tap(b, "loss", e.loss));
    return check(b, "head");
}

static sonde_status b_exit(void *self, int layers, snd_val out_x) {
    return finish(self, layers, out_x.id);
}

static sonde_status supported(const snd_spec *s) {
    SND_FAIL_IF(s->family != SND_FAM_MLP, SONDE_EUNSUPPORTED,
                "family %s: this build computes the mlp family; %s specs can be described only",
                s->family == SND_FAM_CONVNET ? "convnet" : "transformer",
                s->family == SND_FAM_CONVNET ? "convnet" : "transformer");
    return SONDE_OK;
}

static sonde_status run_walk(builder *b, snd_id x) {
    static const snd_reader ops = {.unary = b_unary,
                                   .binary = b_binary,
                                   .norm = b_norm,
                                   .linear = b_linear,
                                   .scalar = b_scalar,
                                   .vector = b_vector,
                                   .unit = b_unit,
                                   .dot = b_dot,
                                   .rms = b_rms,
                                   .stop = b_stop,
                                   .cond = b_cond,
                                   .depthmix = b_depthmix,
                                   .depthattn = b_depthattn,
                                   .alias = b_alias,
                                   .tap = b_tap,
                                   .stmt = b_stmt};
    snd_reader r = ops;
    r.self = b;
    snd_walk w = {.arena = b->arena,
                  .stack = &b->stack,
                  .reader = &r,
                  .exits = b->o->exits,
                  .n_exits = b->o->n_exits,
                  .on_exit = b_exit};
    const snd_val in = {.kind = SND_V_STREAM, .cols = b->stack.d, .id = x};
    snd_val out;
    const sonde_status s = snd_walk_stack(&w, in, &out);
    if (s != SONDE_OK) return snd_fail_prefix(s, "wiring: ");
    b->m->n_sublayers = w.n_sublayers;
    return b->o->n_exits ? SONDE_OK : finish(b, b->stack.L, out.id);
}

static sonde_status check_formula(snd_arena *a, const snd_stack *stack) {
    snd_walk w = {.arena = a, .stack = stack};
    snd_val in = {.kind = SND_V_STREAM, .cols = stack->d, .id = 1};
    if (stack->convnet) in = (snd_val){.kind = SND_V_MAP, .cols = stack->d, .h = 32, .w = 32, .id = 1};
    const sonde_status s = snd_walk_check(&w, in);
    return s == SONDE_OK ? s : snd_fail_prefix(s, "wiring: ");
}

sonde_status snd_model_build(snd_arena *a, const snd_spec *spec, const snd_build *o, snd_model **out) {
    snd_model *m;
    SND_NEW(a, m, 1);
    m->spec = spec;
    m->rows = o->rows;
    m->g = snd_graph_create(a, o->dtype);
    if (!m->g) return SONDE_ENOMEM;
    builder b = {.m = m, .arena = a, .o = o};
    b.nn = (snd_nn){.g = m->g,
                    .spec = spec,
                    .stack = &b.stack,
                    .layer = -1,
                    .integrate = o->integrate,
                    .eval = o->eval,
                    .extra = on_extra,
                    .ctx = &b};
    snd_model_stack(spec, &b.stack);
    SND_TRY(check_formula(a, &b.stack)); // a formula's own errors come first, whatever the family
    SND_TRY(supported(spec));
    snd_id x;
    SND_TRY(snd_mlp_begin(&b.nn, o->rows, &m->input, &x));
    SND_TRY(check(&b, "stem"));
    SND_TRY(run_walk(&b, x));
    SND_TRY(check(&b, "model"));
    *out = m;
    return SONDE_OK;
}

snd_id snd_model_tap(const snd_model *m, const char *name) {
    for (int i = 0; i < m->n_taps; i++)
        if (!strcmp(m->taps[i].name, name)) return m->taps[i].v;
    return 0;
}
