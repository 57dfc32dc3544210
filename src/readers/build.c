// The build reader: a formula becomes a graph. Each operation of the language is a node or two; sites get their
// parameters from nn/; every value that has a name in the contract is kept in the tap table.
#include "readers/build_impl.h"

#include <string.h>

// The graph remembers its first error; here it becomes a status with the formula's place in front.
sonde_status snd_b_check(snd_builder *b, const char *what) {
    const sonde_status s = snd_graph_status(b->nn.g);
    return s == SONDE_OK ? s : snd_fail_prefix(s, "%s: ", what);
}

static sonde_status give(snd_builder *b, snd_id v, snd_val *out, const char *what) {
    out->id = v;
    return snd_b_check(b, what);
}

// Arena-backed growth: doubles by copying, since everything here lives as long as the model.
sonde_status snd_b_room(snd_arena *a, void **p, int64_t *cap, int n, size_t size) {
    if (n < *cap) return SONDE_OK;
    const int64_t want = *cap ? 2 * *cap : 64;
    void *q = snd_arena_array(a, (size_t)want, size);
    if (!q) return SONDE_ENOMEM;
    if (n) memcpy(q, *p, (size_t)n * size);
    *p = q;
    *cap = want;
    return SONDE_OK;
}

sonde_status snd_b_tap(snd_builder *b, const char *name, snd_id v) {
    if (b->silent) return SONDE_OK;
    SND_TRY(snd_b_room(b->arena, (void **)&b->m->taps, &b->cap_taps, b->m->n_taps, sizeof *b->m->taps));
    b->m->taps[b->m->n_taps++] = (snd_tap){name, v};
    return SONDE_OK; // not snd_g_name: a named value is one that fusion must keep, and only the asked-for ones are kept
}

sonde_status snd_b_input(snd_builder *b, const char *name, snd_shape s, snd_dtype t, snd_id *out) {
    SND_TRY(snd_b_room(b->arena, (void **)&b->m->inputs, &b->cap_inputs, b->m->n_inputs, sizeof *b->m->inputs));
    *out = snd_g_input(b->nn.g, name, s, t);
    b->m->inputs[b->m->n_inputs++] = (snd_tap){name, *out};
    return snd_b_check(b, name);
}

// ---- operations -----------------------------------------------------------------------------------------------------------

static sonde_status b_unary(void *self, snd_fn fn, snd_val a, snd_val *out) {
    snd_builder *b = self;
    if (fn == SND_FN_NEG) return give(b, snd_g_affine(b->nn.g, -1, a.id, 0), out, "-");
    return give(b, snd_g_unary(b->nn.g, snd_nn_kfn(fn), a.id), out, snd_fn_name(fn));
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
    snd_builder *b = self;
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
    snd_builder *b = self;
    b->nn.layer = site->layer;
    SND_TRY(snd_nn_norm(&b->nn, site->name, n, a.id, a.cols, &out->id));
    return snd_b_check(b, site->name);
}

static sonde_status b_linear(void *self, const snd_site *site, const snd_linear_args *l, snd_val a, snd_val *out) {
    snd_builder *b = self;
    b->nn.layer = site->layer;
    SND_TRY(snd_nn_linear(&b->nn, site->name, l->role, l->alt, a.id, a.kind == SND_V_TOKEN ? 1 : a.cols, l->out,
                          l->has_gain ? l->gain : -1, l->zero, l->bias, &out->id));
    return snd_b_check(b, site->name);
}

static sonde_status learned(snd_builder *b, const snd_site *site, const char *role, int64_t n, double init,
                            snd_val *out) {
    snd_init i;
    b->nn.layer = site->layer;
    SND_TRY(snd_nn_init_value(&b->nn, role, init, &i));
    return give(b, snd_nn_param(b->nn.g, site->name, SND_SHAPE(n), &i, false), out, site->name);
}

static sonde_status b_scalar(void *self, const snd_site *site, double init, snd_val *out) {
    return learned(self, site, "scalar", 1, init, out);
}

static sonde_status b_vector(void *self, const snd_site *site, double init, snd_val *out) {
    snd_builder *b = self;
    return learned(b, site, "vector", b->stack.d, init, out);
}

static sonde_status b_unit(void *self, snd_val a, snd_val *out) {
    snd_builder *b = self;
    return give(b, snd_g_unit(b->nn.g, a.id, 1), out, "unit");
}

static sonde_status b_dot(void *self, snd_val p, snd_val q, snd_val *out) {
    snd_builder *b = self;
    return give(b, snd_g_rowdot(b->nn.g, p.id, q.id), out, "dot");
}

static sonde_status b_rms(void *self, snd_val a, snd_val *out) {
    snd_builder *b = self;
    return give(b, snd_g_rowrms(b->nn.g, a.id), out, "rms");
}

static sonde_status b_stop(void *self, snd_val a, snd_val *out) {
    snd_builder *b = self;
    return give(b, snd_g_stop(b->nn.g, a.id), out, "stop");
}

// A value that belongs to no example (a vector, a learned scalar) has one draw of droppath.
static sonde_status b_drop(void *self, bool path, snd_val a, snd_val *out) {
    snd_builder *b = self;
    const double rate = path ? b->nn.spec->droppath : b->nn.spec->dropout;
    if (!b->nn.training || rate == 0) return SONDE_OK;
    const snd_shape s = snd_shape_of(b->nn.g, a.id);
    const bool examples = s.nd > 1 && s.dim[0] == b->nn.rows;
    return give(b, snd_g_dropout(b->nn.g, a.id, rate, examples ? b->nn.rows : 0, path), out,
                path ? "droppath" : "drop");
}

static sonde_status b_alias(void *self, snd_val a, snd_val *out) {
    snd_builder *b = self;
    return give(b, snd_g_alias(b->nn.g, a.id), out, "a name");
}

// [B, features] in the file; of a Transformer it stands once before all tokens of an example, of a convnet before all
// places of an image.
static sonde_status b_cond(void *self, snd_val *out) {
    snd_builder *b = self;
    const int64_t B = b->m->rows, n = b->stack.cond;
    if (!b->cond) {
        SND_TRY(snd_b_input(b, "cond", SND_SHAPE(B, n), SND_DT_NONE, &b->m->cond));
        b->cond = b->stack.mlp       ? b->m->cond
                  : b->stack.convnet ? snd_g_reshape(b->nn.g, b->m->cond, SND_SHAPE(B, 1, 1, n))
                                     : snd_g_reshape(b->nn.g, b->m->cond, SND_SHAPE(B, 1, n));
    }
    return give(b, b->cond, out, "c");
}

static sonde_status b_sublayer(void *self, const snd_site *site, const snd_sub_args *s, snd_val a, snd_val *out) {
    snd_builder *b = self;
    b->nn.layer = site->layer;
    SND_TRY(snd_nn_sublayer(&b->nn, &b->seq, site->name, s, a.id, &out->id));
    return snd_b_check(b, site->name);
}

static sonde_status b_conv(void *self, const snd_site *site, snd_val a, int64_t channels, int64_t k, int64_t stride,
                           snd_val *out) {
    snd_builder *b = self;
    b->nn.layer = site->layer;
    SND_TRY(snd_nn_conv(&b->nn, site->name, "conv", a.id, a.cols, channels, k, stride, &out->id));
    return snd_b_check(b, site->name);
}

static sonde_status b_shortcut(void *self, const snd_site *site, snd_val x, snd_val u, int64_t channels, int64_t stride,
                               snd_val *out) {
    (void)x; // where the shape stays, the walker returns it without asking
    return b_conv(self, site, u, channels, 1, stride, out);
}

static sonde_status b_pool(void *self, snd_val a, snd_val *out) {
    snd_builder *b = self;
    return give(b, snd_g_pool(b->nn.g, a.id), out, "pool");
}

// Learned weights over the list so far, one-hot on the latest at start.
static sonde_status b_depthmix(void *self, const snd_site *site, const snd_val *list, int n, snd_val *out) {
    snd_builder *b = self;
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
    snd_builder *b = self;
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
static sonde_status note_call(snd_builder *b, const char *name, snd_id v) {
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
    SND_TRY(snd_b_room(b->arena, (void **)&m->calls, &b->cap_calls, m->n_calls, sizeof *m->calls));
    const char *call = snd_arena_strn(b->arena, name, strlen(name) - 3);
    if (!call) return SONDE_ENOMEM;
    m->calls[m->n_calls++] = (snd_call){.name = call, .layer = b->nn.layer, .in = v, .x = b->x_before};
    return SONDE_OK;
}

// out.x is the decoder's, whatever its prefix.
static sonde_status b_tap(void *self, const char *name, snd_val v) {
    snd_builder *b = self;
    if (b->silent) return SONDE_OK;
    const char *local = name + strlen(b->stack.prefix);
    const bool last = strcmp(b->stack.prefix, "encoder.") != 0;
    SND_TRY(note_call(b, name, v.id));
    if (last && !strcmp(local, "in.x")) b->m->in_x = v.id;
    return snd_b_tap(b, last && !strcmp(local, "out.x") ? local : name, v.id);
}

static sonde_status b_stmt(void *self, const snd_stmt *s, snd_section sec, int layer, snd_val x) {
    snd_builder *b = self;
    (void)s;
    (void)sec;
    b->nn.layer = layer;
    b->x_before = x.id;
    return SONDE_OK;
}

const snd_reader snd_build_ops = {.unary = b_unary,
                                  .binary = b_binary,
                                  .norm = b_norm,
                                  .linear = b_linear,
                                  .scalar = b_scalar,
                                  .vector = b_vector,
                                  .unit = b_unit,
                                  .dot = b_dot,
                                  .rms = b_rms,
                                  .stop = b_stop,
                                  .drop = b_drop,
                                  .cond = b_cond,
                                  .depthmix = b_depthmix,
                                  .depthattn = b_depthattn,
                                  .sublayer = b_sublayer,
                                  .conv = b_conv,
                                  .shortcut = b_shortcut,
                                  .pool = b_pool,
                                  .alias = b_alias,
                                  .tap = b_tap,
                                  .stmt = b_stmt};
