// The predict reader: each operation of the language becomes nodes of the moment algebra (theory/moments.h), named
// values are remembered, and metrics are read off afterwards. It holds no mathematics of its own beyond the metrics'
// definitions.
#include "readers/predict.h"
#include "readers/readers.h"
#include "theory/moments.h"

#include <math.h>
#include <string.h>

typedef struct ptap {
    const char *name;
    snd_mid v;
    int layer, exit; // exit -1: not of out:
    snd_mid before;  // the same stream one layer up (adjcos), or 0
    snd_mid x;       // sublayer outputs: the stream before the statement, or 0
    bool stream;
} ptap;

typedef struct pexit {
    int layers;
    snd_mid out;
    double *log10_gq; // per tap; NAN: not reached
    double *gq_var;   // variance of one net's log gq, NAN: not known
} pexit;

struct snd_prediction {
    snd_arena *arena;
    snd_moments *t;
    double rows;
    ptap *taps;
    int n_taps;
    pexit *exits;
    int n_exits;
    snd_mid in_x;
};

typedef struct reader {
    snd_prediction *p;
    snd_moments *t;
    snd_nn nn; // for init rules; there is no graph
    snd_stack stack;
    int64_t cap_taps;
    int layer; // layer whose boundary was marked last
    int exit;  // of the next out:, -1 outside
    int next_exit;
    snd_mid x_before, call_x;
    bool profiled;   // Admin: vectors start at the root of 1 + the branch variances so far
    double branches; // that sum
    snd_mid cond;
    snd_mid *means;
    int cap_means; // depthattn: mean of the first i+1 values of its list
} reader;

static sonde_status give(reader *r, snd_mid v, snd_val *out) {
    SND_FAIL_IF(snd_moments_failed(r->t), SONDE_ENOMEM, "no memory for the moment algebra");
    out->id = v;
    return SONDE_OK;
}

// ---- operations ---------------------------------------------------------------------------------------------------------

static const snd_gfn GFN[SND_FN_COUNT] = {
    [SND_FN_RELU] = SND_GFN_RELU, [SND_FN_GELU] = SND_GFN_GELU, [SND_FN_GELU_TANH] = SND_GFN_GELU_TANH,
    [SND_FN_SILU] = SND_GFN_SILU, [SND_FN_TANH] = SND_GFN_TANH, [SND_FN_SIGMOID] = SND_GFN_SIGMOID,
    [SND_FN_ERF] = SND_GFN_ERF,   [SND_FN_EXP] = SND_GFN_EXP,   [SND_FN_SOFTPLUS] = SND_GFN_SOFTPLUS,
    [SND_FN_SQRT] = SND_GFN_SQRT, [SND_FN_LOG] = SND_GFN_LOG,   [SND_FN_ABS] = SND_GFN_ABS};

static sonde_status p_unary(void *self, snd_fn fn, snd_val a, snd_val *out) {
    reader *r = self;
    if (fn == SND_FN_NEG) return give(r, snd_m_scale(r->t, a.id, -1), out);
    return give(r, snd_m_unary(r->t, GFN[fn], a.id), out);
}

static snd_mid value_of(reader *r, snd_val v) {
    return v.kind == SND_V_CONST ? snd_m_const(r->t, v.num) : v.id;
}
static snd_mid recip(reader *r, snd_mid v) {
    return snd_m_unary(r->t, SND_GFN_RECIP, v);
}

// max(a, b) = a + relu(b - a), min(a, b) = a - relu(a - b)
static snd_mid extreme(reader *r, snd_mid a, snd_mid b, double sign) {
    const snd_mid gap = snd_m_add(r->t, b, a, sign, -sign);
    return snd_m_add(r->t, a, snd_m_unary(r->t, SND_GFN_RELU, gap), 1, sign);
}

static sonde_status p_binary(void *self, snd_bin op, snd_val a, snd_val b, snd_val *out) {
    reader *r = self;
    snd_moments *t = r->t;
    const bool ca = a.kind == SND_V_CONST, cb = b.kind == SND_V_CONST;
    if (op == SND_BIN_MUL && (ca || cb)) return give(r, snd_m_scale(t, ca ? b.id : a.id, ca ? a.num : b.num), out);
    if (op == SND_BIN_DIV && cb) return give(r, snd_m_scale(t, a.id, 1 / b.num), out);
    const double sb = op == SND_BIN_SUB ? -1 : 1;
    if ((op == SND_BIN_ADD || op == SND_BIN_SUB) && ca) return give(r, snd_m_sum(t, 1, &b.id, &sb, a.num), out);
    if ((op == SND_BIN_ADD || op == SND_BIN_SUB) && cb)
        return give(r, snd_m_sum(t, 1, &a.id, (double[]){1}, sb * b.num), out);
    const snd_mid p = value_of(r, a), q = value_of(r, b);
    switch (op) {
    case SND_BIN_ADD:
    case SND_BIN_SUB: return give(r, snd_m_add(t, p, q, 1, sb), out);
    case SND_BIN_MUL: return give(r, snd_m_mul(t, p, q), out);
    case SND_BIN_DIV: return give(r, snd_m_mul(t, p, recip(r, q)), out);
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
        if (id) *id = snd_m_const(r->t, *num);
        return SONDE_OK;
    }
    *num = sqrt(snd_nn_init_var(&i));
    if (id) *id = snd_m_input(r->t, dim, *num * *num, 1);
    return SONDE_OK;
}

static sonde_status p_norm(void *self, const snd_site *site, const snd_norm_args *n, snd_val a, snd_val *out) {
    reader *r = self;
    snd_moments *t = r->t;
    r->nn.layer = site->layer;
    const bool scale = n->kind == SND_NORM_SCALE, plus1 = n->plus1 && !scale;
    const double d = (double)a.cols, start = n->has_gain ? n->gain : scale ? sqrt(d) : 1;
    double gain = scale ? sqrt(d) : 1, bias = 0, alpha = 0.5, shift = 0;
    if (n->kind == SND_NORM_NONE) return give(r, snd_m_alias(t, a.id), out);
    if (n->affine) {
        SND_TRY(learned(r, "g", plus1 ? start - 1 : start, a.cols, &gain, NULL));
        if (plus1) gain += 1;
        if (n->bias && n->kind != SND_NORM_RMS && !scale) SND_TRY(learned(r, "b", 0, a.cols, &bias, NULL));
    }
    snd_mid y = 0;
    switch (n->kind) {
    case SND_NORM_LAYER: y = snd_m_layer_norm(t, a.id, n->eps); break;
    case SND_NORM_RMS: y = snd_m_rms_norm(t, a.id, n->eps); break;
    case SND_NORM_BATCH: y = snd_m_batch_norm(t, a.id, n->eps); break;
    case SND_NORM_SCALE:
        y = snd_m_rms_norm(t, a.id, 0);
        gain /= sqrt(d);
        break;
    case SND_NORM_DYT:
    case SND_NORM_DERF:
        SND_TRY(learned(r, "alpha", 0.5, 1, &alpha, NULL));
        if (n->kind == SND_NORM_DERF) SND_TRY(learned(r, "shift", 0, 1, &shift, NULL));
        y = snd_m_sum(t, 1, (snd_mid[]){a.id}, &alpha, shift);
        y = snd_m_unary(t, n->kind == SND_NORM_DYT ? SND_GFN_TANH : SND_GFN_ERF, y);
        break;
    default: SND_FAIL(SONDE_EINTERNAL, "%s: a norm without a kind", site->name);
    }
    if (gain != 1 || bias != 0) y = snd_m_sum(t, 1, &y, &gain, bias);
    return give(r, y, out);
}

static sonde_status map(reader *r, const char *role, const char *alt, snd_mid x, int64_t in, int64_t features,
                        double gain, bool zero, bool bias, snd_mid *out) {
    snd_init i;
    SND_TRY(snd_nn_init_map(&r->nn, role, alt, in, features, gain, zero, &i));
    const double c = i.kind == SND_INIT_CONST ? i.a * i.factor : 0;
    char text[40];
    SND_FAIL_IF(c != 0, SONDE_EUNSUPPORTED, "predict: a map whose entries all start at %s is not random",
                snd_format_num(text, c, 6));
    *out = snd_m_linear(r->t, x, in, features, snd_nn_init_var(&i));
    if (!bias) return SONDE_OK;
    double b;
    snd_mid v;
    SND_TRY(learned(r, "b", 0, features, &b, &v));
    if (b != 0) *out = snd_m_add(r->t, *out, v, 1, 1);
    return SONDE_OK;
}

static sonde_status p_linear(void *self, const snd_site *site, const snd_linear_args *l, snd_val a, snd_val *out) {
    reader *r = self;
    snd_mid y = 0;
    r->nn.layer = site->layer;
    SND_TRY(map(r, l->role, l->alt, a.id, a.kind == SND_V_TOKEN ? 1 : a.cols, l->out, l->has_gain ? l->gain : -1,
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

static sonde_status p_vector(void *self, const snd_site *site, double init, snd_val *out) {
    reader *r = self;
    double v;
    snd_mid id = 0;
    r->nn.layer = site->layer;
    if (r->profiled && strstr(site->name, ".F.v")) return give(r, snd_m_const(r->t, sqrt(1 + r->branches)), out);
    SND_TRY(learned(r, "vector", init, r->stack.d, &v, &id));
    return give(r, id, out);
}

static sonde_status p_unit(void *self, snd_val a, snd_val *out) {
    reader *r = self;
    return give(r, snd_m_scale(r->t, snd_m_rms_norm(r->t, a.id, 0), 1 / sqrt((double)a.cols)), out);
}

static sonde_status p_dot(void *self, snd_val a, snd_val b, snd_val *out) {
    reader *r = self;
    return give(r, snd_m_dot(r->t, a.id, b.id), out);
}

static sonde_status p_rms(void *self, snd_val a, snd_val *out) {
    reader *r = self;
    return give(r, snd_m_rms(r->t, a.id), out);
}

static sonde_status p_stop(void *self, snd_val a, snd_val *out) {
    reader *r = self;
    return give(r, snd_m_stop(r->t, a.id), out);
}

static sonde_status p_alias(void *self, snd_val a, snd_val *out) {
    reader *r = self;
    return give(r, snd_m_alias(r->t, a.id), out);
}

static sonde_status p_cond(void *self, snd_val *out) {
    reader *r = self;
    if (!r->cond) r->cond = snd_m_input(r->t, r->stack.cond, 1, 0);
    return give(r, r->cond, out);
}

static sonde_status p_depthmix(void *self, const snd_site *site, const snd_val *list, int n, snd_val *out) {
    reader *r = self;
    snd_init i;
    r->nn.layer = site->layer;
    SND_TRY(snd_nn_init_value(&r->nn, "depthmix", 1, &i));
    const double w = i.a * i.factor;
    if (i.kind != SND_INIT_CONST || w == 1)
        return give(r, snd_m_alias(r->t, list[n - 1].id), out); // one-hot on the latest
    snd_mid *id;
    double *c;
    SND_NEW(r->p->arena, id, n);
    SND_NEW(r->p->arena, c, n);
    for (int k = 0; k < n; k++) id[k] = list[k].id, c[k] = w;
    return give(r, snd_m_sum(r->t, n, id, c, 0), out);
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
    r->means[n - 1] = n == 1 ? snd_m_alias(r->t, list[0].id)
                             : snd_m_add(r->t, r->means[n - 2], list[n - 1].id, (n - 1.0) / n, 1.0 / n);
    return give(r, snd_m_alias(r->t, r->means[n - 1]), out);
}

// ---- names and places ---------------------------------------------------------------------------------------------------

static sonde_status add_tap(reader *r, ptap tap) {
    snd_prediction *p = r->p;
    if (p->n_taps >= r->cap_taps) {
        const int64_t want = r->cap_taps ? 2 * r->cap_taps : 256;
        ptap *q;
        SND_NEW(p->arena, q, want);
        if (p->n_taps) memcpy(q, p->taps, (size_t)p->n_taps * sizeof *q);
        p->taps = q;
        r->cap_taps = want;
    }
    p->taps[p->n_taps++] = tap;
    return SONDE_OK;
}

// "layers.3.x" -> stream: no letter between the number and the name. Sets *stream to the stream's name.
static bool layer_stream(const char *name, const char **stream) {
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

static snd_mid stream_above(const snd_prediction *p, const char *stream, int layer) {
    for (int i = p->n_taps - 1; i >= 0; i--) {
        const char *s;
        if (p->taps[i].stream && p->taps[i].layer == layer - 1 && layer_stream(p->taps[i].name, &s) &&
            !strcmp(s, stream))
            return p->taps[i].v;
        if (p->taps[i].layer < layer - 1 && p->taps[i].layer >= 0) break;
    }
    return 0;
}

static bool ends_with(const char *s, const char *tail) {
    const size_t n = strlen(s), k = strlen(tail);
    return n >= k && !strcmp(s + n - k, tail);
}

static sonde_status p_tap(void *self, const char *name, snd_val v) {
    reader *r = self;
    const int layer = strncmp(name, "layers.", 7) ? -1 : r->nn.layer;
    ptap tap = {.name = name, .v = v.id, .layer = layer, .exit = r->exit};
    const char *stream;
    if (v.kind == SND_V_STREAM && layer_stream(name, &stream)) {
        tap.stream = true;
        if (layer >= 0) tap.before = stream_above(r->p, stream, layer);
    }
    if (ends_with(name, ".in")) r->call_x = r->x_before;
    const char *site = strrchr(name, '.');
    const bool of_norm = strstr(name, ".N") || ends_with(name, ".inner.out");
    const bool of_call = ends_with(name, ".out") && site - name >= 2 && layer >= 0 && !of_norm;
    if (of_call) tap.x = r->call_x;
    if (of_call && r->profiled) {
        const double m = snd_m_mean_ratio(r->t, v.id);
        r->branches += pow(10, snd_m_log10_q(r->t, v.id)) * (1 - m * m);
    }
    if (!strcmp(name, "in.x")) r->p->in_x = v.id;
    return add_tap(r, tap);
}

static sonde_status p_enter(void *self, snd_section sec, int layer, char rep) {
    reader *r = self;
    (void)rep;
    if (sec == SND_SEC_OUT) r->exit = r->next_exit;
    if (layer == r->layer && sec != SND_SEC_OUT) return SONDE_OK;
    if (sec != SND_SEC_OUT) r->layer = layer;
    r->nn.layer = layer;
    snd_m_boundary(r->t);
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

static sonde_status finish_exit(reader *r, int layers, snd_mid out, bool tapped) {
    snd_prediction *p = r->p;
    const snd_spec *s = r->nn.spec;
    r->nn.layer = -1;
    r->exit = r->next_exit;
    if (!tapped) SND_TRY(add_tap(r, (ptap){.name = "out.x", .v = out, .layer = -1, .exit = r->exit}));
    if (s->outputs > 0) {
        snd_mid logits = 0;
        SND_TRY(map(r, "head", NULL, out, s->width, s->outputs, -1, false, false, &logits));
        SND_TRY(add_tap(r, (ptap){.name = "logits", .v = logits, .layer = -1, .exit = r->exit}));
    }
    p->exits[p->n_exits++] = (pexit){.layers = layers, .out = out};
    r->next_exit++;
    r->exit = -1;
    return SONDE_OK;
}

static sonde_status p_exit(void *self, int layers, snd_val out_x) {
    return finish_exit(self, layers, out_x.id, false);
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
                               .alias = p_alias,
                               .tap = p_tap,
                               .enter = p_enter,
                               .stmt = p_stmt};

static sonde_status walk(reader *r, const snd_predict_opts *o) {
    const snd_spec *s = r->nn.spec;
    const bool stem = s->inputs > 0;
    snd_mid x = snd_m_input(r->t, stem ? s->inputs : s->width, o->q > 0 ? o->q : 1, o->cos);
    if (stem) SND_TRY(map(r, "stem", NULL, x, s->inputs, s->width, -1, false, false, &x));
    SND_NEW(r->p->arena, r->p->exits, o->n_exits > 0 ? o->n_exits : 1);
    snd_reader ops = OPS;
    ops.self = r;
    snd_walk w = {.arena = r->p->arena,
                  .stack = &r->stack,
                  .reader = &ops,
                  .exits = o->exits,
                  .n_exits = o->n_exits,
                  .on_exit = p_exit};
    snd_val out;
    const sonde_status status = snd_walk_stack(&w, (snd_val){.kind = SND_V_STREAM, .cols = s->width, .id = x}, &out);
    if (status != SONDE_OK) return snd_fail_prefix(status, "wiring: ");
    return o->n_exits > 0 ? SONDE_OK : finish_exit(r, r->stack.L, out.id, true);
}

// One sweep per exit; its gradients are copied out, since the next sweep writes over them.
static sonde_status gradients(snd_prediction *p, const snd_mid *nodes, bool bands) {
    for (int e = 0; e < p->n_exits; e++) {
        pexit *x = &p->exits[e];
        SND_NEW(p->arena, x->log10_gq, p->n_taps);
        SND_NEW(p->arena, x->gq_var, p->n_taps);
        snd_m_backward(p->t, x->out);
        if (bands) snd_m_grad_spread(p->t, x->out, nodes, p->n_taps);
        for (int i = 0; i < p->n_taps; i++) {
            const snd_mid v = p->taps[i].v;
            // no path to the output: exactly 0, unless the value comes later than this exit
            x->log10_gq[i] = snd_m_reached(p->t, v) ? snd_m_log10_gq(p->t, v) : v <= x->out ? -INFINITY : NAN;
            if (!bands || !snd_m_log_gq_var(p->t, p->taps[i].v, p->rows, &x->gq_var[i])) x->gq_var[i] = NAN;
        }
    }
    return SONDE_OK;
}

// Bands before gradients: the backward sweeps' own nodes would only be in the way.
static sonde_status evaluate(snd_prediction *p, const snd_predict_opts *o) {
    snd_mid *nodes;
    SND_NEW(p->arena, nodes, p->n_taps);
    for (int i = 0; i < p->n_taps; i++) nodes[i] = p->taps[i].v;
    if (!o->no_bands) snd_m_spread(p->t, nodes, p->n_taps);
    return o->forward_only ? SONDE_OK : gradients(p, nodes, !o->no_bands);
}

sonde_status snd_predict(snd_arena *a, const snd_spec *spec, const snd_predict_opts *o, snd_prediction **out) {
    SND_FAIL_IF(spec->family != SND_FAM_MLP, SONDE_EUNSUPPORTED,
                "family %s: theory of this build covers the mlp family; other specs can be described only",
                snd_family_name(spec->family));
    SND_FAIL_IF(o->rows < 1, SONDE_ERANGE, "%lld examples; theory needs at least 1", (long long)o->rows);
    snd_prediction *p;
    SND_NEW(a, p, 1);
    p->arena = a;
    p->rows = (double)o->rows;
    p->t = snd_moments_create(a, (int)o->rows);
    if (!p->t) return SONDE_ENOMEM;
    // the first segment holds the input and all of in:, where functions of the input still count as its own noise
    reader r = {.p = p, .t = p->t, .layer = -1, .exit = -1};
    r.nn = (snd_nn){.spec = spec, .stack = &r.stack, .layer = -1};
    snd_model_stack(spec, &r.stack);
    r.profiled = has_profile(spec->init) || has_profile(spec->formula->init);
    sonde_status s = walk(&r, o);
    if (s == SONDE_OK) s = evaluate(p, o);
    snd_free(r.means);
    if (s == SONDE_OK && snd_moments_failed(p->t))
        s = snd_fail(SONDE_ENOMEM, __FILE__, __LINE__, "no memory for the moment algebra");
    if (s != SONDE_OK)
        snd_moments_destroy(p->t);
    else
        *out = p;
    return s;
}

void snd_prediction_free(snd_prediction *p) {
    if (p) snd_moments_destroy(p->t);
}

// ---- metrics ------------------------------------------------------------------------------------------------------------

static const struct {
    const char *name;
    bool log;
} METRICS[SND_PM_COUNT] = {[SND_PM_NONE] = {"", false},         [SND_PM_Q] = {"q", true},
                           [SND_PM_RMS] = {"rms", true},        [SND_PM_MEAN] = {"mean", false},
                           [SND_PM_VAR] = {"var", true},        [SND_PM_BVAR] = {"bvar", true},
                           [SND_PM_COS] = {"cos", false},       [SND_PM_PEARSON] = {"pearson", false},
                           [SND_PM_ADJCOS] = {"adjcos", false}, [SND_PM_COS0] = {"cos0", false},
                           [SND_PM_WRITE] = {"write", true},    [SND_PM_GQ] = {"gq", true},
                           [SND_PM_GRMS] = {"grms", true}};

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
static bool log_metric(const snd_prediction *p, const ptap *v, snd_pmetric m, double *out) {
    snd_moments *t = p->t;
    const double lq = snd_m_log10_q(t, v->v), m1 = snd_m_mean_ratio(t, v->v), cos = snd_m_cos(t, v->v);
    const bool zero = !(lq > -INFINITY);
    switch (m) {
    case SND_PM_Q: *out = lq; return true;
    case SND_PM_RMS: *out = lq / 2; return true;
    case SND_PM_VAR: *out = zero ? lq : lq + log10_positive(1 - m1 * m1); return true;
    case SND_PM_BVAR:
        if (!zero && !(1 - cos > 1e-13)) return false; // what is left of 1 - cos is rounding
        *out = zero ? lq : lq + log10_positive((1 - cos) * (1 - 1 / p->rows));
        return true;
    case SND_PM_WRITE:
        if (!v->x) return false;
        *out = (lq - snd_m_log10_q(t, v->x)) / 2;
        return true;
    default: return false;
    }
}

static bool linear_metric(const snd_prediction *p, const ptap *v, snd_pmetric m, double *out) {
    snd_moments *t = p->t;
    switch (m) {
    case SND_PM_MEAN: *out = snd_m_mean(t, v->v); return true;
    case SND_PM_COS: *out = snd_m_cos(t, v->v); return p->rows >= 2;
    case SND_PM_PEARSON: {
        const double r = snd_m_mean_ratio(t, v->v);
        *out = (snd_m_cos(t, v->v) - r * r) / (1 - r * r);
        return p->rows >= 2;
    }
    case SND_PM_ADJCOS: *out = v->before ? snd_m_align(t, v->v, v->before) : NAN; return v->before != 0;
    case SND_PM_COS0:
        *out = v->stream && p->in_x ? snd_m_align(t, v->v, p->in_x) : NAN;
        return v->stream && p->in_x != 0;
    default: return false;
    }
}

// Variance of the natural log of one network's q (gq): sd and shift of its log10, halved for the root.
static void set_log_band(snd_predicted *out, double var, double power) {
    if (!(var >= 0)) return;
    out->sd = power * sqrt(var) / M_LN10;
    out->shift = -power * 0.5 * var / M_LN10;
}

static void set_band(const snd_prediction *p, const ptap *v, snd_pmetric m, snd_predicted *out) {
    double var;
    if (m == SND_PM_MEAN && snd_m_mean_var(p->t, v->v, p->rows, &var))
        out->sd = sqrt(var) * pow(10, snd_m_log10_q(p->t, v->v) / 2);
    if ((m == SND_PM_Q || m == SND_PM_RMS) && snd_m_log_q_var(p->t, v->v, p->rows, &var))
        set_log_band(out, var, m == SND_PM_Q ? 1 : 0.5);
}

bool snd_predicted_at(const snd_prediction *p, int exit, int i, snd_pmetric m, snd_predicted *out) {
    *out = (snd_predicted){.value = NAN, .log10 = NAN, .sd = NAN};
    if (exit < 0 || exit >= p->n_exits || i < 0 || i >= p->n_taps) return false;
    const ptap *v = &p->taps[i];
    if (v->exit >= 0 && v->exit != exit) return false;
    out->approx = snd_m_approx(p->t, v->v);
    if (snd_pmetric_log(m)) {
        if (m == SND_PM_GQ || m == SND_PM_GRMS) {
            const double *g = p->exits[exit].log10_gq;
            if (!g || isnan(g[i])) return false;
            out->log10 = m == SND_PM_GQ ? g[i] : g[i] / 2;
            out->approx = snd_m_approx(p->t, p->exits[exit].out);
            set_log_band(out, p->exits[exit].gq_var[i], m == SND_PM_GQ ? 1 : 0.5);
        } else if (!log_metric(p, v, m, &out->log10)) {
            return false;
        }
        out->value = pow(10, out->log10);
        set_band(p, v, m, out);
        return !isnan(out->log10);
    }
    if (!linear_metric(p, v, m, &out->value)) return false;
    out->log10 = log10_positive(fabs(out->value));
    set_band(p, v, m, out);
    return !isnan(out->value);
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
