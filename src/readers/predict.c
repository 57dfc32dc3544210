// The predict reader: each operation of the language becomes nodes of the moment algebra (theory/moments.h), named
// values are remembered, and metrics are read off afterwards. It holds no mathematics of its own beyond the metrics'
// definitions.
#include "readers/predict_impl.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

typedef snd_predictor reader;

static sonde_status give(reader *r, snd_mid v, snd_val *out) {
    SND_FAIL_IF(r->m->failed(r->m->self), SONDE_ENOMEM, "no memory for the moment algebra");
    out->id = v;
    return SONDE_OK;
}

// ---- operations ---------------------------------------------------------------------------------------------------------

static const snd_gfn GFN[SND_FN_COUNT] = {
    [SND_FN_RELU] = SND_GFN_RELU, [SND_FN_GELU] = SND_GFN_GELU, [SND_FN_GELU_TANH] = SND_GFN_GELU_TANH,
    [SND_FN_SILU] = SND_GFN_SILU, [SND_FN_TANH] = SND_GFN_TANH, [SND_FN_SIGMOID] = SND_GFN_SIGMOID,
    [SND_FN_ERF] = SND_GFN_ERF,   [SND_FN_EXP] = SND_GFN_EXP,   [SND_FN_SOFTPLUS] = SND_GFN_SOFTPLUS,
    [SND_FN_SQRT] = SND_GFN_SQRT, [SND_FN_LOG] = SND_GFN_LOG,   [SND_FN_ABS] = SND_GFN_ABS};

static snd_mid scaled(reader *r, snd_mid a, double c) {
    return r->m->sum(r->m->self, 1, &a, &c, 0);
}
static snd_mid added(reader *r, snd_mid a, snd_mid b, double ca, double cb) {
    return r->m->sum(r->m->self, 2, (snd_mid[]){a, b}, (double[]){ca, cb}, 0);
}

snd_mid snd_p_fn(reader *r, snd_fn fn, snd_mid x) {
    return r->m->unary(r->m->self, GFN[fn], x);
}

static sonde_status p_unary(void *self, snd_fn fn, snd_val a, snd_val *out) {
    reader *r = self;
    if (fn == SND_FN_NEG) return give(r, scaled(r, a.id, -1), out);
    return give(r, snd_p_fn(r, fn, a.id), out);
}

static snd_mid value_of(reader *r, snd_val v) {
    return v.kind == SND_V_CONST ? r->m->constant(r->m->self, v.num) : v.id;
}
static snd_mid recip(reader *r, snd_mid v) {
    return r->m->unary(r->m->self, SND_GFN_RECIP, v);
}

// max(a, b) = a + relu(b - a), min(a, b) = a - relu(a - b)
static snd_mid extreme(reader *r, snd_mid a, snd_mid b, double sign) {
    const snd_mid gap = added(r, b, a, sign, -sign);
    return added(r, a, r->m->unary(r->m->self, SND_GFN_RELU, gap), 1, sign);
}

static sonde_status p_binary(void *self, snd_bin op, snd_val a, snd_val b, snd_val *out) {
    reader *r = self;
    const snd_algebra *m = r->m;
    const bool ca = a.kind == SND_V_CONST, cb = b.kind == SND_V_CONST;
    if (op == SND_BIN_MUL && (ca || cb)) return give(r, scaled(r, ca ? b.id : a.id, ca ? a.num : b.num), out);
    if (op == SND_BIN_DIV && cb) return give(r, scaled(r, a.id, 1 / b.num), out);
    const double sb = op == SND_BIN_SUB ? -1 : 1;
    if ((op == SND_BIN_ADD || op == SND_BIN_SUB) && ca) return give(r, m->sum(m->self, 1, &b.id, &sb, a.num), out);
    if ((op == SND_BIN_ADD || op == SND_BIN_SUB) && cb)
        return give(r, m->sum(m->self, 1, &a.id, (double[]){1}, sb * b.num), out);
    const snd_mid p = value_of(r, a), q = value_of(r, b);
    switch (op) {
    case SND_BIN_ADD:
    case SND_BIN_SUB: return give(r, added(r, p, q, 1, sb), out);
    case SND_BIN_MUL: return give(r, m->mul(m->self, p, q), out);
    case SND_BIN_DIV: return give(r, m->mul(m->self, p, recip(r, q)), out);
    case SND_BIN_MIN: return give(r, extreme(r, p, q, -1), out);
    case SND_BIN_MAX: return give(r, extreme(r, p, q, 1), out);
    default: SND_FAIL(SONDE_EINTERNAL, "an operator without a kind");
    }
}

// A learned number or vector that the init rules start at v: its constant, or features drawn once for all rows.
static sonde_status learned(reader *r, const char *role, double v, int64_t dim, double *num, snd_mid *id) {
    snd_init i;
    SND_TRY(snd_nn_init_value(&r->nn, role, v, &i));
    if (i.kind == SND_INIT_CONST || i.kind == SND_INIT_LAST) {
        *num = i.a * i.factor;
        if (id) *id = r->m->constant(r->m->self, *num);
        return SONDE_OK;
    }
    *num = sqrt(snd_nn_init_var(&i));
    if (id) *id = r->m->shared(r->m->self, dim, *num * *num);
    return SONDE_OK;
}

sonde_status snd_p_norm(reader *r, const char *site, const snd_norm_args *n, snd_mid x, int64_t features,
                        snd_mid *out) {
    const snd_algebra *m = r->m;
    const bool scale = n->kind == SND_NORM_SCALE, plus1 = n->plus1 && !scale;
    const double d = (double)features, start = n->has_gain ? n->gain : scale ? sqrt(d) : 1;
    double gain = scale ? sqrt(d) : 1, bias = 0, alpha = 0.5, shift = 0;
    if (n->kind == SND_NORM_NONE) {
        *out = m->alias(m->self, x);
        return SONDE_OK;
    }
    if (n->affine) {
        SND_TRY(learned(r, "g", plus1 ? start - 1 : start, features, &gain, NULL));
        if (plus1) gain += 1;
        if (n->bias && n->kind != SND_NORM_RMS && !scale) SND_TRY(learned(r, "b", 0, features, &bias, NULL));
    }
    snd_mid y = 0;
    switch (n->kind) {
    case SND_NORM_LAYER: y = m->layer_norm(m->self, x, n->eps); break;
    case SND_NORM_RMS: y = m->rms_norm(m->self, x, n->eps); break;
    case SND_NORM_BATCH: y = m->batch_norm(m->self, x, n->eps); break;
    case SND_NORM_SCALE:
        y = m->rms_norm(m->self, x, 0);
        gain /= sqrt(d);
        break;
    case SND_NORM_DYT:
    case SND_NORM_DERF:
        SND_TRY(learned(r, "alpha", 0.5, 1, &alpha, NULL));
        if (n->kind == SND_NORM_DERF) SND_TRY(learned(r, "shift", 0, 1, &shift, NULL));
        y = m->sum(m->self, 1, (snd_mid[]){x}, &alpha, shift);
        y = m->unary(m->self, n->kind == SND_NORM_DYT ? SND_GFN_TANH : SND_GFN_ERF, y);
        break;
    default: SND_FAIL(SONDE_EINTERNAL, "%s: a norm without a kind", site);
    }
    if (gain != 1 || bias != 0) y = m->sum(m->self, 1, &y, &gain, bias);
    *out = y;
    return SONDE_OK;
}

static sonde_status p_norm(void *self, const snd_site *site, const snd_norm_args *n, snd_val a, snd_val *out) {
    reader *r = self;
    snd_mid y = 0;
    r->nn.layer = site->layer;
    SND_TRY(snd_p_norm(r, site->name, n, a.id, a.cols, &y));
    return give(r, y, out);
}

sonde_status snd_p_map(reader *r, const char *role, const char *alt, snd_mid x, int64_t in, int64_t features,
                       double gain, bool zero, bool bias, snd_mid *out) {
    snd_init i;
    SND_TRY(snd_nn_init_map(&r->nn, role, alt, in, features, gain, zero, &i));
    const double c = i.kind == SND_INIT_CONST ? i.a * i.factor : 0;
    char text[40];
    SND_FAIL_IF(c != 0, SONDE_EUNSUPPORTED, "predict: a map whose entries all start at %s is not random",
                snd_format_num(text, c, 6));
    *out = r->m->linear(r->m->self, x, in, features, snd_nn_init_var(&i));
    if (!bias) return SONDE_OK;
    double b;
    snd_mid v;
    SND_TRY(learned(r, "b", 0, features, &b, &v));
    if (b != 0) *out = added(r, *out, v, 1, 1);
    return SONDE_OK;
}

static sonde_status p_linear(void *self, const snd_site *site, const snd_linear_args *l, snd_val a, snd_val *out) {
    reader *r = self;
    snd_mid y = 0;
    r->nn.layer = site->layer;
    SND_TRY(snd_p_map(r, l->role, l->alt, a.id, a.kind == SND_V_TOKEN ? 1 : a.cols, l->out, l->has_gain ? l->gain : -1,
                      l->zero, l->bias, &y));
    return give(r, y, out);
}

static sonde_status p_scalar(void *self, const snd_site *site, double init, snd_val *out) {
    reader *r = self;
    double v;
    snd_mid id = 0;
    r->nn.layer = site->layer;
    SND_TRY(learned(r, "scalar", init, 1, &v, &id));
    return give(r, id, out);
}

static bool has_profile(const snd_init_rule *rule) {
    for (; rule; rule = rule->next)
        if (rule->kind && !strcmp(rule->kind, "profile")) return true;
    return false;
}

// "layers.3.F.v1", "encoder.layers.3.A.v1": a vector of each:
static bool in_repetition(const char *name) {
    const char *v = strrchr(name, '.');
    return v && v[1] == 'v' && v - name > 2 && v[-2] == '.' && strchr("FACM", v[-1]);
}

static sonde_status p_vector(void *self, const snd_site *site, double init, snd_val *out) {
    reader *r = self;
    double v;
    snd_mid id = 0;
    r->nn.layer = site->layer;
    if (r->profile && in_repetition(site->name)) return give(r, r->m->constant(r->m->self, sqrt(1 + r->branches)), out);
    SND_TRY(learned(r, "vector", init, r->stack.d, &v, &id));
    return give(r, id, out);
}

static sonde_status p_unit(void *self, snd_val a, snd_val *out) {
    reader *r = self;
    return give(r, scaled(r, r->m->rms_norm(r->m->self, a.id, 0), 1 / sqrt((double)a.cols)), out);
}

static sonde_status p_dot(void *self, snd_val a, snd_val b, snd_val *out) {
    reader *r = self;
    return give(r, r->m->dot(r->m->self, a.id, b.id), out);
}

static sonde_status p_rms(void *self, snd_val a, snd_val *out) {
    reader *r = self;
    return give(r, r->m->rms(r->m->self, a.id), out);
}

static sonde_status p_stop(void *self, snd_val a, snd_val *out) {
    reader *r = self;
    return give(r, r->m->stop(r->m->self, a.id), out);
}

static sonde_status p_alias(void *self, snd_val a, snd_val *out) {
    reader *r = self;
    return give(r, r->m->alias(r->m->self, a.id), out);
}

static sonde_status p_cond(void *self, snd_val *out) {
    reader *r = self;
    if (!r->cond) r->cond = r->m->example(r->m->self, r->stack.cond, 1);
    return give(r, r->cond, out);
}

static sonde_status p_depthmix(void *self, const snd_site *site, const snd_val *list, int n, snd_val *out) {
    reader *r = self;
    snd_init i;
    r->nn.layer = site->layer;
    SND_TRY(snd_nn_init_value(&r->nn, "depthmix", 1, &i));
    const double w = i.a * i.factor;
    if (i.kind != SND_INIT_CONST || w == 1)
        return give(r, r->m->alias(r->m->self, list[n - 1].id), out); // one-hot on the latest
    snd_mid *id;
    double *c;
    SND_NEW(r->p->arena, id, n);
    SND_NEW(r->p->arena, c, n);
    for (int k = 0; k < n; k++) id[k] = list[k].id, c[k] = w;
    return give(r, r->m->sum(r->m->self, n, id, c, 0), out);
}

// Query 0 at the start: the plain mean of the list, made from the mean of all but the latest.
static sonde_status p_depthattn(void *self, const snd_site *site, const snd_val *list, int n, double eps,
                                snd_val *out) {
    reader *r = self;
    (void)site;
    (void)eps;
    if (n > r->cap_means) {
        int64_t cap = r->cap_means;
        if (!snd_grow((void **)&r->means, &cap, n, sizeof *r->means)) return SONDE_ENOMEM;
        r->cap_means = (int)cap;
    }
    r->means[n - 1] = n == 1 ? r->m->alias(r->m->self, list[0].id)
                             : added(r, r->means[n - 2], list[n - 1].id, (n - 1.0) / n, 1.0 / n);
    return give(r, r->m->alias(r->m->self, r->means[n - 1]), out);
}

// ---- images -------------------------------------------------------------------------------------------------------------
// A place of an image is a row. Two places see different pixels through the same weights, tap by tap, as two examples do,
// so what holds for pairs of examples holds for pairs of places, in one image or two (Xiao et al. 2018, section 2), but for
// the border: there taps meet zeros.

// Of k taps at each of the `out` places along one side, the share that falls inside.
static double inside(int64_t size, int64_t out, int64_t k, int64_t stride) {
    int64_t n = 0;
    for (int64_t i = 0; i < out; i++)
        for (int64_t u = 0; u < k; u++) {
            const int64_t at = i * stride + u - k / 2;
            n += at >= 0 && at < size;
        }
    return (double)n / (double)(out * k);
}

// A result sums k k a.cols numbers; backward, a number sums the gradients of those results that read it, k k / stride^2 times
// as many as there are channels.
static sonde_status convolved(reader *r, const snd_site *site, const char *role, snd_val a, int64_t channels, int64_t k,
                              int64_t stride, snd_val *out) {
    snd_mid y = 0;
    snd_init i;
    r->nn.layer = site->layer;
    SND_TRY(snd_nn_init_map(&r->nn, role, NULL, a.cols * k * k, channels * k * k, -1, false, &i));
    const double c = i.kind == SND_INIT_CONST ? i.a * i.factor : 0;
    char text[40];
    SND_FAIL_IF(c != 0, SONDE_EUNSUPPORTED, "predict: a map whose entries all start at %s is not random",
                snd_format_num(text, c, 6));
    const double readers = (double)(channels * k * k) * (double)(out->h * out->w) / (double)(a.h * a.w);
    y = r->m->linear(r->m->self, a.id, a.cols * k * k, (int64_t)(readers + 0.5), snd_nn_init_var(&i));
    const double share = inside(a.h, out->h, k, stride) * inside(a.w, out->w, k, stride);
    return give(r, share == 1 ? y : scaled(r, y, sqrt(share)), out);
}

static sonde_status p_conv(void *self, const snd_site *site, snd_val a, int64_t channels, int64_t k, int64_t stride,
                           snd_val *out) {
    return convolved(self, site, "conv", a, channels, k, stride, out);
}

static sonde_status p_shortcut(void *self, const snd_site *site, snd_val x, snd_val u, int64_t channels, int64_t stride,
                               snd_val *out) {
    (void)x;
    return convolved(self, site, "conv", u, channels, 1, stride, out);
}

// The mean over places keeps what all places share, in one image and between images, and of the rest a part of 1/places of
// its variance, Gaussian as a mean of many. The gradient goes to every place alike, divided by their number.
static sonde_status p_pool(void *self, snd_val a, snd_val *out) {
    reader *r = self;
    const snd_algebra *m = r->m;
    const double places = (double)(a.h * a.w), q = pow(10, m->log10_q(m->self, a.id)), mean = m->mean(m->self, a.id);
    const double c = q > 0 ? q * m->cos(m->self, a.id, false) : 0, common = c - mean * mean;
    const snd_mid share = scaled(r, a.id, 1 / places);
    const snd_mid part[] = {m->shared(m->self, a.cols, common > 1e-12 * q ? common : 0),
                            m->example(m->self, a.cols, (q - c) / places), share, m->stop(m->self, share)};
    return give(r, m->sum(m->self, 4, part, (double[]){1, 1, 1, -1}, mean), out);
}

// ---- names and places ---------------------------------------------------------------------------------------------------

static sonde_status add_tap(reader *r, snd_ptap tap) {
    snd_prediction *p = r->p;
    if (p->n_taps >= r->cap_taps) {
        const int64_t want = r->cap_taps ? 2 * r->cap_taps : 256;
        snd_ptap *q;
        SND_NEW(p->arena, q, want);
        if (p->n_taps) memcpy(q, p->taps, (size_t)p->n_taps * sizeof *q);
        p->taps = q;
        r->cap_taps = want;
    }
    p->taps[p->n_taps++] = tap;
    return SONDE_OK;
}

// The name without "encoder." or "decoder.".
static const char *in_stack(const char *name) {
    return !strncmp(name, "encoder.", 8) || !strncmp(name, "decoder.", 8) ? name + 8 : name;
}

// "layers.3.x" -> stream: no letter between the number and the name. Sets *stream to the stream's name.
static bool layer_stream(const char *name, const char **stream) {
    name = in_stack(name);
    if (!strncmp(name, "in.", 3))
        *stream = name + 3;
    else if (!strncmp(name, "layers.", 7)) {
        const char *s = strchr(name + 7, '.');
        if (!s) return false;
        *stream = s + 1;
    } else {
        return false;
    }
    return !strchr(*stream, '.');
}

static bool same_shape(const snd_val *a, const snd_val *b) {
    return a->cols == b->cols && a->h == b->h && a->w == b->w;
}

static snd_mid stream_above(const snd_prediction *p, const char *stream, int layer, const snd_val *like) {
    for (int i = p->n_taps - 1; i >= 0; i--) {
        const char *s;
        if (p->taps[i].layer == layer - 1 && p->taps[i].stream && layer_stream(p->taps[i].name, &s) &&
            !strcmp(s, stream))
            return same_shape(&p->taps[i].shape, like) ? p->taps[i].v : 0;
        if (p->taps[i].layer < layer - 1 && p->taps[i].layer >= 0) break;
    }
    return 0;
}

static bool ends_with(const char *s, const char *tail) {
    const size_t n = strlen(s), k = strlen(tail);
    return n >= k && !strcmp(s + n - k, tail);
}

// Variance of the value that is about to be tapped, in the profile, which has met the same ones in the same order.
static double profiled_var(const reader *r) {
    const snd_algebra *m = &r->profile->m;
    return pow(10, m->log10_var(m->self, r->profile->taps[r->p->n_taps].v));
}

static sonde_status p_tap(void *self, const char *name, snd_val v) {
    reader *r = self;
    const int layer = strncmp(in_stack(name), "layers.", 7) ? -1 : r->nn.layer;
    if (!strcmp(name, "decoder.out.x")) name = "out.x";
    snd_ptap tap = {.name = name, .v = v.id, .shape = v, .layer = layer, .exit = r->exit};
    const char *stream;
    if ((v.kind == SND_V_STREAM || v.kind == SND_V_MAP) && layer_stream(name, &stream)) {
        tap.stream = true;
        if (layer >= 0) tap.before = stream_above(r->p, stream, layer, &v);
    }
    if (ends_with(name, ".in")) r->call_x = r->x_before;
    const char *site = strrchr(name, '.');
    const bool of_norm = strstr(name, ".N") || ends_with(name, ".inner.out");
    const bool of_call = ends_with(name, ".out") && site - name >= 2 && layer >= 0 && !of_norm;
    if (of_call) tap.x = r->call_x, tap.attended = r->attended;
    if (of_call && r->profile) r->branches += profiled_var(r);
    if (!strcmp(in_stack(name), "in.x")) r->in_x = v;
    tap.first = same_shape(&v, &r->in_x) ? r->in_x.id : 0;
    return add_tap(r, tap);
}

static sonde_status p_enter(void *self, snd_section sec, int layer, char rep) {
    reader *r = self;
    (void)rep;
    if (sec == SND_SEC_OUT) r->exit = r->next_exit;
    if (layer == r->layer && sec != SND_SEC_OUT) return SONDE_OK;
    if (sec != SND_SEC_OUT) r->layer = layer;
    r->nn.layer = layer;
    r->m->boundary(r->m->self);
    return SONDE_OK;
}

static sonde_status p_stmt(void *self, const snd_stmt *s, snd_section sec, int layer, snd_val x) {
    reader *r = self;
    (void)s;
    (void)sec;
    r->nn.layer = layer;
    r->x_before = x.id;
    return SONDE_OK;
}

static sonde_status finish_exit(reader *r, int layers, snd_val out_x, bool tapped) {
    const snd_mid out = out_x.id;
    snd_prediction *p = r->p;
    const snd_spec *s = r->nn.spec;
    r->nn.layer = -1;
    r->exit = r->next_exit;
    if (!tapped) SND_TRY(add_tap(r, (snd_ptap){.name = "out.x", .v = out, .layer = -1, .exit = r->exit}));
    snd_mid logits = 0;
    if (s->family == SND_FAM_TRANSFORMER)
        SND_TRY(snd_p_head(r, out, &logits));
    else if (s->outputs > 0)
        SND_TRY(snd_p_map(r, "head", NULL, out, out_x.cols, s->outputs, -1, false, false, &logits));
    if (logits) SND_TRY(add_tap(r, (snd_ptap){.name = "logits", .v = logits, .layer = -1, .exit = r->exit}));
    p->exits[p->n_exits++] = (snd_pexit){.layers = layers, .out = out};
    r->next_exit++;
    r->exit = -1;
    return SONDE_OK;
}

static sonde_status p_exit(void *self, int layers, snd_val out_x) {
    return finish_exit(self, layers, out_x, false);
}

// ---- the whole ----------------------------------------------------------------------------------------------------------

static const snd_reader OPS = {.unary = p_unary,
                               .binary = p_binary,
                               .norm = p_norm,
                               .linear = p_linear,
                               .scalar = p_scalar,
                               .vector = p_vector,
                               .unit = p_unit,
                               .dot = p_dot,
                               .rms = p_rms,
                               .stop = p_stop,
                               .cond = p_cond,
                               .depthmix = p_depthmix,
                               .depthattn = p_depthattn,
                               .sublayer = snd_p_sublayer,
                               .conv = p_conv,
                               .shortcut = p_shortcut,
                               .pool = p_pool,
                               .alias = p_alias,
                               .tap = p_tap,
                               .enter = p_enter,
                               .stmt = p_stmt};

static sonde_status walk(reader *r, const int *exits, int n_exits, snd_mid x, snd_val *out) {
    snd_reader ops = OPS;
    ops.self = r;
    snd_walk w = {.arena = r->p->arena,
                  .stack = &r->stack,
                  .reader = &ops,
                  .exits = exits,
                  .n_exits = n_exits,
                  .on_exit = p_exit};
    snd_val begin = r->in;
    begin.id = x;
    const sonde_status status = snd_walk_stack(&w, begin, out);
    return status == SONDE_OK ? SONDE_OK : snd_fail_prefix(status, "wiring: ");
}

// The stack whose output is out.x, at each of its exits.
static sonde_status walk_exits(reader *r, const snd_predict_opts *o, snd_mid x) {
    snd_val out;
    const bool several = o->n_exits > 0 && r->nn.spec->arch != SND_ARCH_ENCDEC; // whose stacks have depths of their own
    r->next_exit = 0;
    SND_NEW(r->p->arena, r->p->exits, several ? o->n_exits : 1);
    SND_TRY(walk(r, several ? o->exits : NULL, several ? o->n_exits : 0, x, &out));
    return several ? SONDE_OK : finish_exit(r, r->stack.L, out, true);
}

static sonde_status examples(reader *r, const snd_predict_opts *o) {
    const snd_spec *s = r->nn.spec;
    const bool stem = s->inputs > 0 && s->family == SND_FAM_MLP;
    snd_mid x = snd_m_input(r->p->examples, stem ? s->inputs : r->in.cols, o->q > 0 ? o->q : 1, o->cos);
    if (stem) SND_TRY(snd_p_map(r, "stem", NULL, x, s->inputs, s->width, -1, false, false, &x));
    return walk_exits(r, o, x);
}

// The next stack begins: what belonged to the one before is over.
static void begin_stack(reader *r, const snd_stack *stack) {
    r->stack = *stack;
    r->layer = r->nn.layer = -1;
    r->exit = r->next_exit = -1;
    r->cond = 0;
    r->branches = 0;
}

static sonde_status sequences(reader *r, const snd_predict_opts *o) {
    snd_stack stack[2];
    snd_mid x;
    snd_val memory = {0};
    const int n = snd_model_stacks(r->nn.spec, stack);
    for (int i = 0; i < n - 1; i++) {
        begin_stack(r, &stack[i]);
        SND_TRY(snd_p_embed(r, o, memory.id, &x));
        SND_TRY(walk(r, NULL, 0, x, &memory));
    }
    begin_stack(r, &stack[n - 1]);
    SND_TRY(snd_p_embed(r, o, memory.id, &x));
    return walk_exits(r, o, x);
}

// One sweep per exit; its gradients are copied out, since the next sweep writes over them.
static sonde_status gradients(snd_prediction *p, const snd_mid *nodes, bool bands) {
    for (int e = 0; e < p->n_exits; e++) {
        snd_pexit *x = &p->exits[e];
        SND_NEW(p->arena, x->log10_gq, p->n_taps);
        SND_NEW(p->arena, x->log10_gtok, p->n_taps);
        SND_NEW(p->arena, x->gq_law, p->n_taps);
        p->m.backward(p->m.self, x->out);
        if (bands) p->m.grad_spread(p->m.self, x->out, nodes, p->n_taps);
        for (int i = 0; i < p->n_taps; i++) {
            const snd_mid v = p->taps[i].v;
            // no path to the output: exactly 0, unless the value comes later than this exit
            x->log10_gq[i] = p->m.reached(p->m.self, v) ? p->m.log10_gq(p->m.self, v) : v <= x->out ? -INFINITY : NAN;
            x->log10_gtok[i] = p->m.log10_gtok(p->m.self, v);
            if (!bands || !p->m.log_gq_law(p->m.self, v, p->rows, &x->gq_law[i])) x->gq_law[i].var = NAN;
        }
    }
    return SONDE_OK;
}

// Bands before gradients: the backward sweeps' own nodes would only be in the way.
static sonde_status evaluate(snd_prediction *p, const snd_predict_opts *o) {
    snd_mid *nodes;
    SND_NEW(p->arena, nodes, p->n_taps);
    for (int i = 0; i < p->n_taps; i++) nodes[i] = p->taps[i].v;
    if (!o->no_bands) p->m.spread(p->m.self, nodes, p->n_taps);
    return o->forward_only ? SONDE_OK : gradients(p, nodes, !o->no_bands);
}

static sonde_status create(snd_prediction *p, const snd_spec *spec, const snd_predict_opts *o) {
    const bool tokens = spec->family == SND_FAM_TRANSFORMER;
    const snd_val in = snd_model_stream(spec, o->height, o->width);
    const int64_t rows = in.kind == SND_V_MAP ? o->rows * in.h * in.w : o->rows; // of batch norm
    if (tokens && (p->tokens = snd_tokens_create(p->arena, (double)o->rows))) p->m = snd_algebra_tokens(p->tokens);
    if (!tokens && (p->examples = snd_moments_create(p->arena, (int)(rows < INT_MAX ? rows : INT_MAX))))
        p->m = snd_algebra_moments(p->examples);
    return p->m.self ? SONDE_OK : SONDE_ENOMEM;
}

static sonde_status follow(snd_prediction *p, const snd_spec *spec, const snd_predict_opts *o,
                           const snd_prediction *profile) {
    // the first segment holds the input and all of in:, where functions of the input still count as its own noise
    reader r = {.p = p, .m = &p->m, .layer = -1, .exit = -1, .profile = profile};
    r.in = snd_model_stream(spec, o->height, o->width);
    r.nn = (snd_nn){.spec = spec, .stack = &r.stack, .layer = -1};
    snd_model_stack(spec, &r.stack);
    const sonde_status s = p->tokens ? sequences(&r, o) : examples(&r, o);
    snd_free(r.means);
    return s;
}

typedef struct maker { // what nets of finite width are made from
    const snd_spec *spec;
    const snd_predict_opts *o;
    const snd_prediction *profile;
} maker;

static sonde_status make_net(void *self, snd_prediction *net) {
    const maker *m = self;
    SND_TRY(follow(net, m->spec, m->o, m->profile));
    return m->o->forward_only ? SONDE_OK : gradients(net, NULL, false);
}

static sonde_status follow_all(snd_prediction *p, const snd_spec *spec, const snd_predict_opts *o,
                               const snd_prediction *profile) {
    SND_TRY(follow(p, spec, o, profile));
    SND_TRY(evaluate(p, o));
    if (p->tokens && !o->no_bands) SND_TRY(snd_p_nets(p, make_net, &(maker){spec, o, profile}));
    return SONDE_OK;
}

// The profile is a net of its own: with vectors at 1 a stream's tokens meet sooner, and attention writes more.
static sonde_status follow_profiled(snd_prediction *p, const snd_spec *spec, const snd_predict_opts *o) {
    snd_prediction first = {.arena = p->arena, .rows = p->rows};
    SND_TRY(create(&first, spec, o));
    sonde_status s = follow(&first, spec, o, NULL);
    if (s == SONDE_OK) s = follow_all(p, spec, o, &first);
    snd_prediction_free(&first);
    return s;
}

static sonde_status run(snd_prediction *p, const snd_spec *spec, const snd_predict_opts *o) {
    const bool profiled = has_profile(spec->init) || has_profile(spec->formula->init);
    SND_TRY(profiled ? follow_profiled(p, spec, o) : follow_all(p, spec, o, NULL));
    SND_FAIL_IF(p->m.failed(p->m.self), SONDE_ENOMEM, "no memory for the moment algebra");
    return SONDE_OK;
}

sonde_status snd_predict(snd_arena *a, const snd_spec *spec, const snd_predict_opts *o, snd_prediction **out) {
    SND_FAIL_IF(o->rows < 1, SONDE_ERANGE, "%lld examples; theory needs at least 1", (long long)o->rows);
    snd_prediction *p;
    SND_NEW(a, p, 1);
    p->arena = a;
    p->rows = (double)o->rows;
    SND_TRY(create(p, spec, o));
    const sonde_status s = run(p, spec, o);
    if (s == SONDE_OK)
        *out = p;
    else
        snd_prediction_free(p);
    return s;
}

void snd_prediction_free(snd_prediction *p) {
    if (!p) return;
    if (p->examples) snd_moments_destroy(p->examples);
    if (p->tokens) snd_tokens_destroy(p->tokens);
}

// ---- metrics ------------------------------------------------------------------------------------------------------------

static const struct {
    const char *name;
    bool log;
} METRICS[SND_PM_COUNT] = {[SND_PM_NONE] = {"", false},          [SND_PM_Q] = {"q", true},
                           [SND_PM_RMS] = {"rms", true},         [SND_PM_MEAN] = {"mean", false},
                           [SND_PM_VAR] = {"var", true},         [SND_PM_BVAR] = {"bvar", true},
                           [SND_PM_COS] = {"cos", false},        [SND_PM_PEARSON] = {"pearson", false},
                           [SND_PM_ADJCOS] = {"adjcos", false},  [SND_PM_COS0] = {"cos0", false},
                           [SND_PM_WRITE] = {"write", true},     [SND_PM_GQ] = {"gq", true},
                           [SND_PM_GRMS] = {"grms", true},       [SND_PM_TOKCOS] = {"tokcos", false},
                           [SND_PM_GTOK] = {"gtok", true},       [SND_PM_GDEV] = {"gdev", true},
                           [SND_PM_ENTROPY] = {"entropy", false}};

const char *snd_pmetric_name(snd_pmetric m) {
    return METRICS[m].name;
}
bool snd_pmetric_log(snd_pmetric m) {
    return METRICS[m].log;
}
snd_pmetric snd_pmetric_find(const char *name) {
    for (int m = 1; m < SND_PM_COUNT; m++)
        if (!strcmp(METRICS[m].name, name)) return (snd_pmetric)m;
    return SND_PM_NONE;
}

static double log10_positive(double v) {
    return v > 0 ? log10(v) : v <= 0 ? -INFINITY : NAN;
}

// log10 of a metric that is never negative
static bool log_metric(const snd_prediction *p, const snd_ptap *v, snd_pmetric metric, double *out) {
    const snd_algebra *m = &p->m;
    switch (metric) {
    case SND_PM_Q: *out = m->log10_q(m->self, v->v); return true;
    case SND_PM_RMS: *out = m->log10_q(m->self, v->v) / 2; return true;
    case SND_PM_VAR: *out = m->log10_var(m->self, v->v); return true;
    case SND_PM_BVAR: *out = m->log10_bvar(m->self, v->v); return true;
    case SND_PM_WRITE: *out = v->x ? m->log10_ratio(m->self, v->v, v->x) : NAN; return v->x != 0;
    default: return false;
    }
}

static bool linear_metric(const snd_prediction *p, const snd_ptap *v, snd_pmetric metric, double *out) {
    const snd_algebra *m = &p->m;
    switch (metric) {
    case SND_PM_MEAN: *out = m->mean(m->self, v->v); return true;
    case SND_PM_COS: *out = m->cos(m->self, v->v, false); return p->rows >= 2;
    case SND_PM_PEARSON: *out = m->cos(m->self, v->v, true); return p->rows >= 2;
    case SND_PM_TOKCOS: *out = m->tokcos(m->self, v->v); return true;
    case SND_PM_ENTROPY: *out = v->attended ? snd_tk_entropy(p->tokens, v->attended) : NAN; return v->attended != 0;
    case SND_PM_ADJCOS: *out = v->before ? m->align(m->self, v->v, v->before) : NAN; return v->before != 0;
    case SND_PM_COS0: *out = v->stream && v->first ? m->align(m->self, v->v, v->first) : NAN; return v->stream;
    default: return false;
    }
}

// log10 of a metric of the gradient; NAN: not reached
static double grad_metric(const snd_pexit *x, int i, snd_pmetric metric) {
    switch (metric) {
    case SND_PM_GQ: return x->log10_gq[i];
    case SND_PM_GRMS: return x->log10_gq[i] / 2;
    case SND_PM_GTOK: return x->log10_gtok[i];
    case SND_PM_GDEV: {
        const double gap = x->log10_gtok[i] - x->log10_gq[i]; // gq = gtok + gdev
        return gap < -1e-12 ? x->log10_gq[i] + log10(1 - pow(10, gap)) : isnan(gap) ? NAN : -INFINITY;
    }
    default: return NAN;
    }
}

static bool of_gradient(snd_pmetric m) {
    return m == SND_PM_GQ || m == SND_PM_GRMS || m == SND_PM_GTOK || m == SND_PM_GDEV;
}

// From the natural log of one network's q (gq) to log10, halved for the root.
static void set_log_band(snd_predicted *out, const snd_log_law *law, double power) {
    if (!(law->var >= 0)) return;
    out->sd = power * sqrt(law->var) / M_LN10;
    out->shift = power * law->shift / M_LN10;
    out->error = power * law->error / M_LN10;
}

static void set_band(const snd_prediction *p, int exit, int i, snd_pmetric m, snd_predicted *out) {
    const snd_ptap *v = &p->taps[i];
    double var;
    snd_log_law law;
    if (p->laws) {
        const snd_plaw *l = snd_p_law(p, exit, i, m);
        out->sd = l->sd, out->shift = l->shift, out->error = l->error, out->nets = l->nets;
    } else if (m == SND_PM_MEAN && p->m.mean_var(p->m.self, v->v, p->rows, &var)) {
        out->sd = sqrt(var) * pow(10, p->m.log10_q(p->m.self, v->v) / 2);
    } else if ((m == SND_PM_Q || m == SND_PM_RMS) && p->m.log_q_law(p->m.self, v->v, p->rows, &law)) {
        set_log_band(out, &law, m == SND_PM_Q ? 1 : 0.5);
    } else if (m == SND_PM_GQ || m == SND_PM_GRMS) {
        set_log_band(out, &p->exits[exit].gq_law[i], m == SND_PM_GQ ? 1 : 0.5);
    }
}

// On the metric's own scale.
bool snd_p_centre(const snd_prediction *p, int exit, int i, snd_pmetric m, double *out) {
    const snd_ptap *v = &p->taps[i];
    if (v->exit >= 0 && v->exit != exit) return false;
    if (of_gradient(m)) {
        if (!p->exits[exit].log10_gq) return false;
        *out = grad_metric(&p->exits[exit], i, m);
        return !isnan(*out);
    }
    return (snd_pmetric_log(m) ? log_metric(p, v, m, out) : linear_metric(p, v, m, out)) && !isnan(*out);
}

bool snd_predicted_at(const snd_prediction *p, int exit, int i, snd_pmetric m, snd_predicted *out) {
    *out = (snd_predicted){.value = NAN, .log10 = NAN, .sd = NAN};
    double x;
    if (exit < 0 || exit >= p->n_exits || i < 0 || i >= p->n_taps || !snd_p_centre(p, exit, i, m, &x)) return false;
    const bool log = snd_pmetric_log(m);
    out->value = log ? pow(10, x) : x;
    out->log10 = log ? x : log10_positive(fabs(x));
    out->approx = p->m.approx(p->m.self, of_gradient(m) ? p->exits[exit].out : p->taps[i].v);
    set_band(p, exit, i, m, out);
    return true;
}

const char *snd_predicted_note(const snd_prediction *p) {
    return p->note;
}
int64_t snd_predicted_tokens(const snd_prediction *p) {
    return p->tokens ? snd_tk_places(p->tokens, 0)->tokens : 0;
}
int snd_predicted_exits(const snd_prediction *p) {
    return p->n_exits;
}
int snd_predicted_depth(const snd_prediction *p, int exit) {
    return p->exits[exit].layers;
}
int snd_predicted_count(const snd_prediction *p) {
    return p->n_taps;
}
const char *snd_predicted_name(const snd_prediction *p, int i) {
    return p->taps[i].name;
}
int snd_predicted_layer(const snd_prediction *p, int i) {
    return p->taps[i].layer;
}

int snd_predicted_find(const snd_prediction *p, int exit, const char *name) {
    for (int i = p->n_taps - 1; i >= 0; i--)
        if ((p->taps[i].exit < 0 || p->taps[i].exit == exit) && !strcmp(p->taps[i].name, name)) return i;
    return -1;
}

bool snd_predicted_belongs(const snd_prediction *p, int exit, int i) {
    return p->taps[i].exit < 0 || p->taps[i].exit == exit;
}

bool snd_predicted_metric(const snd_prediction *p, const char *name, snd_pmetric m, snd_predicted *out) {
    return snd_predicted_at(p, p->n_exits - 1, snd_predicted_find(p, p->n_exits - 1, name), m, out);
}
