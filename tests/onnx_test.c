// Node tests of the ONNX project (tests/golden/onnx, made by tools/convert_onnx.py): each operator put together from ours, in
// f64 and f32, with every output compared. Layouts are prepared here, since ours reduce over the last dimension only. The
// expected numbers are f32 (a few f16), so that is how close f64 can come. docs/onnx.md says which cases are not here.
#include "graph_common.h"
#include "tsv.h"

#include "io/io.h"

static snd_stfile *tensors;

typedef struct node {
    snd_arena *arena;
    snd_dtype t;
    const char *name, *operator, * attributes, *inputs, *outputs;
} node;

typedef struct array {
    snd_shape shape;
    snd_dtype from; // as stored; SND_DT_NONE: absent
    double *v;
} array;

// ---- what the table says ----------------------------------------------------------------------------------------------

// "axis=1 epsilon=0.1": the text of one key, or NULL.
static const char *word(const node *c, const char *list, const char *key) {
    const size_t n = strlen(key);
    for (const char *s = list; *s;) {
        const size_t length = strcspn(s, " ");
        if (length > n && !strncmp(s, key, n) && s[n] == '=')
            return snd_arena_strn(c->arena, s + n + 1, length - n - 1);
        s += length + (s[length] == ' ');
    }
    return NULL;
}

static double number(const node *c, const char *key, double otherwise) {
    const char *text = word(c, c->attributes, key);
    double v = otherwise;
    if (text && !snd_parse_num(text, &v, NULL)) fail_msg("%s: %s=%s", c->name, key, text);
    return v;
}

static int64_t whole(const node *c, const char *key, int64_t otherwise) {
    return (int64_t)number(c, key, (double)otherwise);
}

static array array_new(const node *c, snd_shape s, snd_dtype from) {
    array a = {s, from, snd_arena_array(c->arena, (size_t)snd_shape_size(s) + 1, sizeof(double))};
    assert_non_null(a.v);
    return a;
}

static array load(const node *c, const char *list, const char *role) {
    const char *name = word(c, list, role);
    if (!name) return (array){0};
    const snd_tensor *t = snd_st_find(tensors, name);
    if (!t) fail_msg("%s: no tensor %s", c->name, name);
    array a = array_new(c, t->shape, t->dtype);
    snd_convert(t->data, t->dtype, a.v, SND_F64, snd_shape_size(t->shape));
    return a;
}

// ---- layouts ----------------------------------------------------------------------------------------------------------

static array shaped(array a, snd_shape s) {
    if (a.from) assert_int_equal(snd_shape_size(s), snd_shape_size(a.shape));
    return (array){s, a.from, a.v};
}

// Dimension k of the result is dimension axes[k] of a.
static array permuted(const node *c, array a, const int *axes) {
    snd_shape s = a.shape;
    int64_t step[SND_MAX_DIMS], at[SND_MAX_DIMS] = {0}, stride = 1;
    if (!a.from) return a;
    for (int k = s.nd - 1; k >= 0; k--) {
        step[k] = stride;
        stride *= a.shape.dim[k];
    }
    for (int k = 0; k < s.nd; k++) s.dim[k] = a.shape.dim[axes[k]];
    array out = array_new(c, s, a.from);
    for (int64_t i = 0; i < stride; i++) {
        int64_t from = 0;
        for (int k = 0; k < s.nd; k++) from += at[k] * step[axes[k]];
        out.v[i] = a.v[from];
        for (int k = s.nd - 1; k >= 0 && ++at[k] == s.dim[k]; k--) at[k] = 0;
    }
    return out;
}

static array axis_last(const node *c, array a, int axis) {
    int axes[SND_MAX_DIMS], n = 0;
    for (int k = 0; k < a.shape.nd; k++)
        if (k != axis) axes[n++] = k;
    axes[n] = axis;
    return permuted(c, a, axes);
}

static int axis_of(const node *c, array a, int otherwise) {
    const int axis = (int)whole(c, "axis", otherwise);
    return axis < 0 ? axis + a.shape.nd : axis;
}

static int64_t product(snd_shape s, int first, int last) {
    int64_t n = 1;
    for (int k = first; k < last; k++) n *= s.dim[k];
    return n;
}

// [B, T, heads*n] or [B, heads, T, n] as the latter.
static array by_heads(const node *c, array a, int64_t heads) {
    if (!a.from || a.shape.nd == 4) return a;
    const int64_t *d = a.shape.dim;
    return permuted(c, shaped(a, SND_SHAPE(d[0], d[1], heads, d[2] / heads)), (int[]){0, 2, 1, 3});
}

// ---- graphs -----------------------------------------------------------------------------------------------------------

typedef struct program {
    net n;
    const double *data[NET_IN];
} program;

static program begin(const node *c) {
    return (program){.n = net_open(c->t)};
}

static snd_id feed_as(program *p, array a, snd_dtype t) {
    p->data[p->n.n_in] = a.v;
    return net_input(&p->n, a.shape, t);
}

// Absent: none.
static snd_id feed(program *p, array a) {
    return a.from ? feed_as(p, a, SND_DT_NONE) : 0;
}

static array finish(const node *c, program *p, snd_id y) {
    net *n = &p->n;
    if (snd_graph_status(n->g) != SONDE_OK) fail_msg("%s: %s", c->name, sonde_error_message());
    n->y[n->n_y++] = y;
    net_close_graph(n, false, 1, 7);
    for (int k = 0; k < n->n_in; k++) CHECK_OK(snd_exec_set(n->exec, n->in[k], p->data[k], SND_F64));
    CHECK_OK(snd_exec_run(n->exec));
    array out = array_new(c, snd_g_value(n->g, y)->shape, c->t);
    CHECK_OK(snd_exec_get(n->exec, y, out.v));
    net_destroy(n);
    return out;
}

// `want` in the layout of `got`. Both sides round (the expected one once more where it was kept in f16): an error of a unit in
// the last place for each term of the longest sum, and a few for functions.
static void expect(const node *c, const char *role, array got, array want, int64_t terms) {
    const double tol = (want.from == SND_F16 ? 0x1p-10 : 0x1p-23) * (double)(terms + 8);
    const int64_t n = snd_shape_size(want.shape);
    assert_int_not_equal(want.from, SND_DT_NONE);
    if (snd_shape_size(got.shape) != n) fail_msg("%s: %s has another size", c->name, role);
    for (int64_t i = 0; i < n; i++) {
        const double g = got.v[i], w = want.v[i];
        if (g == w || fabs(g - w) <= tol * fmax(1, fabs(w))) continue;
        fail_msg("%s in %s: %s[%lld] is %.9g, expected %.9g, allowed %.3g", c->name, snd_dtype_name(c->t), role,
                 (long long)i, g, w, tol);
    }
}

// ---- functions --------------------------------------------------------------------------------------------------------

static void gelu(const node *c) {
    program p = begin(c);
    const char *form = word(c, c->attributes, "approximate");
    const snd_kfn fn = form && !strcmp(form, "tanh") ? SND_KFN_GELU_TANH : SND_KFN_GELU;
    const snd_id y = snd_g_unary(p.n.g, fn, feed(&p, load(c, c->inputs, "x")));
    expect(c, "y", finish(c, &p, y), load(c, c->outputs, "y"), 1);
}

static void swish(const node *c) {
    program p = begin(c);
    snd_graph *g = p.n.g;
    const snd_id x = feed(&p, load(c, c->inputs, "x"));
    const snd_id y = snd_g_mul(g, x, snd_g_unary(g, SND_KFN_SIGMOID, snd_g_scale(g, number(c, "alpha", 1), x)));
    expect(c, "y", finish(c, &p, y), load(c, c->outputs, "y"), 1);
}

static void softmax(const node *c) {
    program p = begin(c);
    const array x = load(c, c->inputs, "x");
    const int axis = axis_of(c, x, -1);
    snd_id y = snd_g_softmax(p.n.g, feed(&p, axis_last(c, x, axis)));
    if (!strcmp(c->operator, "LogSoftmax")) y = snd_g_unary(p.n.g, SND_KFN_LOG, y);
    expect(c, "y", finish(c, &p, y), axis_last(c, load(c, c->outputs, "y"), axis), x.shape.dim[axis]);
}

// ---- norms ------------------------------------------------------------------------------------------------------------

typedef enum norm_part { NORMED, MEAN, INV_STD } norm_part;

static snd_id mean_of(snd_graph *g, snd_id x, snd_id y, int64_t n) { // of x*y, per row
    return snd_g_scale(g, 1 / (double)n, snd_g_rowdot(g, x, y));
}

// One row per index of the dimensions before the axis.
static array norm(const node *c, bool layer, norm_part which, int64_t *n) {
    program p = begin(c);
    snd_graph *g = p.n.g;
    const array x = load(c, c->inputs, "X"), w = load(c, c->inputs, "W"), b = load(c, c->inputs, "B");
    const int axis = axis_of(c, x, -1);
    const double eps = number(c, "epsilon", 1e-5);
    *n = product(x.shape, axis, x.shape.nd);
    const snd_id in = feed(&p, shaped(x, SND_SHAPE(product(x.shape, 0, axis), *n)));
    if (which == NORMED) {
        const snd_id gain = feed(&p, shaped(w, SND_SHAPE(*n))), bias = feed(&p, shaped(b, SND_SHAPE(*n)));
        return finish(c, &p, (layer ? snd_g_layernorm : snd_g_rmsnorm)(g, in, gain, bias, eps, false));
    }
    const snd_id mean = mean_of(g, in, snd_g_const(g, SND_SHAPE(*n), 1), *n);
    if (which == MEAN) return finish(c, &p, mean);
    const snd_id apart = snd_g_sub(g, in, mean), var = mean_of(g, apart, apart, *n);
    return finish(
        c, &p,
        snd_g_div(g, snd_g_const(g, SND_SHAPE(1), 1), snd_g_unary(g, SND_KFN_SQRT, snd_g_affine(g, 1, var, eps))));
}

static void norms(const node *c) {
    static const char *const roles[] = {"Y", "Mean", "InvStdDev"};
    const bool layer = !strcmp(c->operator, "LayerNormalization");
    for (int k = 0; k < (layer ? 3 : 1); k++) {
        int64_t n;
        const array got = norm(c, layer, (norm_part)k, &n);
        expect(c, roles[k], got, load(c, c->outputs, roles[k]), n);
    }
}

// ---- losses -----------------------------------------------------------------------------------------------------------

typedef struct loss {
    array x, y, w; // [rows, classes], [rows], [classes]
    bool log_probs, has_w;
    int64_t rows, classes;
    double ignored;
} loss;

static loss read_loss(const node *c) {
    const bool nll = !strcmp(c->operator, "NegativeLogLikelihoodLoss");
    const array x = axis_last(c, load(c, c->inputs, nll ? "input" : "x"), 1);
    loss l = {.log_probs = nll, .classes = x.shape.dim[x.shape.nd - 1]};
    l.rows = snd_shape_size(x.shape) / l.classes;
    l.x = shaped(x, SND_SHAPE(l.rows, l.classes));
    l.y = shaped(load(c, c->inputs, nll ? "target" : "y"), SND_SHAPE(l.rows));
    l.w = load(c, c->inputs, nll ? "weight" : "w");
    l.has_w = l.w.from != SND_DT_NONE;
    l.ignored = number(c, "ignore_index", -100);
    return l;
}

// Targets with the ignored ones as `as`.
static array targets(const node *c, const loss *l, double as) {
    array y = array_new(c, l->y.shape, SND_I64);
    for (int64_t i = 0; i < l->rows; i++) y.v[i] = l->y.v[i] == l->ignored ? as : l->y.v[i];
    return y;
}

// Row t: the weight of class t at its place; a row of zeros for targets that are ignored.
static array one_hots(const node *c, const loss *l) {
    array a = array_new(c, SND_SHAPE(l->classes + 1, l->classes), SND_F64);
    for (int64_t k = 0; k < l->classes; k++) a.v[k * l->classes + k] = l->has_w ? l->w.v[k] : 1;
    return a;
}

static snd_id log_probs(snd_graph *g, const loss *l, snd_id x) {
    return l->log_probs ? x : snd_g_unary(g, SND_KFN_LOG, snd_g_softmax(g, x));
}

// Gathered one-hot rows times log-probabilities.
static array composed_loss(const node *c, const loss *l, const char *reduction) {
    program p = begin(c);
    snd_graph *g = p.n.g;
    const snd_id x = feed(&p, l->x), table = feed(&p, one_hots(c, l));
    const snd_id hot = snd_g_embed(g, table, feed_as(&p, targets(c, l, (double)l->classes), SND_I64));
    const snd_id each = snd_g_scale(g, -1, snd_g_rowdot(g, hot, log_probs(g, l, x)));
    if (!strcmp(reduction, "none")) return finish(c, &p, each);
    const snd_id sum = snd_g_sum_to(g, each, SND_SHAPE(1, 1));
    if (!strcmp(reduction, "sum")) return finish(c, &p, sum);
    const snd_id weight = snd_g_rowdot(g, hot, snd_g_const(g, SND_SHAPE(l->classes), 1));
    return finish(c, &p, snd_g_div(g, sum, snd_g_sum_to(g, weight, SND_SHAPE(1, 1))));
}

// The loss that models have: the mean over the targets that count.
static array own_loss(const node *c, const loss *l, bool sum) {
    program p = begin(c);
    const array y = targets(c, l, -100);
    int64_t n = 0;
    for (int64_t i = 0; i < l->rows; i++) n += y.v[i] != -100;
    const snd_id x = feed(&p, l->x), mean = snd_g_xent(p.n.g, x, feed_as(&p, y, SND_I64));
    return finish(c, &p, snd_g_scale(p.n.g, sum ? (double)n : 1, mean));
}

static void losses(const node *c) {
    const loss l = read_loss(c);
    const char *reduction = word(c, c->attributes, "reduction"), *role = l.log_probs ? "loss" : "z";
    if (!reduction) reduction = "mean";
    const array want = load(c, c->outputs, role), prob = load(c, c->outputs, "log_prob");
    const bool none = !strcmp(reduction, "none");
    const int64_t terms = none ? l.classes : l.rows + l.classes;
    expect(c, role, composed_loss(c, &l, reduction), want, terms);
    if (!l.log_probs && !l.has_w && !none) expect(c, role, own_loss(c, &l, !strcmp(reduction, "sum")), want, terms);
    if (!prob.from) return;
    program p = begin(c);
    const snd_id y = log_probs(p.n.g, &l, feed(&p, l.x));
    expect(c, "log_prob", finish(c, &p, y), axis_last(c, prob, 1), l.classes);
}

// ---- rotary positions ---------------------------------------------------------------------------------------------------

// cos, sin [B, 1, T, pairs]: given per token, or rows of a table picked by position.
static snd_id angles(program *p, const node *c, const char *role, array positions) {
    array a = load(c, c->inputs, role);
    const int64_t pairs = a.shape.dim[a.shape.nd - 1];
    snd_id v = feed(p, a);
    if (positions.from) v = snd_g_embed(p->n.g, v, feed_as(p, positions, SND_I64));
    const snd_shape s = positions.from ? positions.shape : a.shape;
    return snd_g_reshape(p->n.g, v, SND_SHAPE(s.dim[0], 1, s.dim[1], pairs));
}

// Cosines and sines are numbers of no angle here, so snd_g_rope cannot make them: pairs turn by slices, products and sums.
static void rotary(const node *c) {
    program p = begin(c);
    snd_graph *g = p.n.g;
    const int64_t heads = whole(c, "num_heads", 0);
    const array in = by_heads(c, load(c, c->inputs, "input"), heads), positions = load(c, c->inputs, "position_ids");
    const int64_t n = in.shape.dim[3], given = whole(c, "rotary_embedding_dim", 0), r = given ? given : n;
    const bool interleaved = whole(c, "interleaved", 0) != 0;
    const snd_id x = feed(&p, in), cosine = angles(&p, c, "cos_cache", positions);
    const snd_id sine = angles(&p, c, "sin_cache", positions);
    snd_id part[64];
    assert_true(n <= 64);
    for (int64_t i = r; i < n; i++) part[i] = snd_g_slice(g, x, i, 1);
    for (int64_t i = 0; i < r / 2; i++) {
        const int64_t at = interleaved ? 2 * i : i, with = interleaved ? 2 * i + 1 : i + r / 2;
        const snd_id a = snd_g_slice(g, x, at, 1), b = snd_g_slice(g, x, with, 1);
        const snd_id cs = snd_g_slice(g, cosine, i, 1), sn = snd_g_slice(g, sine, i, 1);
        part[at] = snd_g_sub(g, snd_g_mul(g, a, cs), snd_g_mul(g, b, sn));
        part[with] = snd_g_add(g, snd_g_mul(g, a, sn), snd_g_mul(g, b, cs));
    }
    const array got = finish(c, &p, snd_g_concat(g, part, (int)n));
    expect(c, "output", got, by_heads(c, load(c, c->outputs, "output"), heads), 2);
}

// ---- attention ----------------------------------------------------------------------------------------------------------

typedef struct attention {
    array q, k, v, mask,
        lengths; // [B, heads, T, n]; keys and values with the past in front; keys that count, per example
    int64_t B, heads, kv_heads, tq, tk, n, nv, past;
    double scale, softcap;
    bool causal;
} attention;

// [B, H, T1, n] and [B, H, T2, n] -> [B, H, T1 + T2, n]
static array joined(const node *c, array past, array now) {
    if (!past.from) return now;
    const int64_t *d = now.shape.dim, t = past.shape.dim[2];
    program p = begin(c);
    const snd_id parts[] = {feed(&p, shaped(past, SND_SHAPE(d[0], d[1], t * d[3]))),
                            feed(&p, shaped(now, SND_SHAPE(d[0], d[1], d[2] * d[3])))};
    return shaped(finish(c, &p, snd_g_concat(p.n.g, parts, 2)), SND_SHAPE(d[0], d[1], t + d[2], d[3]));
}

static attention read_attention(const node *c) {
    const int64_t hq = whole(c, "q_num_heads", 0), hkv = whole(c, "kv_num_heads", 0);
    const array past = load(c, c->inputs, "past_key");
    attention a = {.q = by_heads(c, load(c, c->inputs, "Q"), hq),
                   .k = joined(c, past, by_heads(c, load(c, c->inputs, "K"), hkv)),
                   .v = joined(c, load(c, c->inputs, "past_value"), by_heads(c, load(c, c->inputs, "V"), hkv)),
                   .mask = load(c, c->inputs, "attn_mask"),
                   .lengths = load(c, c->inputs, "nonpad_kv_seqlen"),
                   .past = past.from ? past.shape.dim[2] : 0,
                   .softcap = number(c, "softcap", 0),
                   .causal = whole(c, "is_causal", 0) != 0};
    const int64_t *d = a.q.shape.dim;
    a.B = d[0], a.heads = d[1], a.tq = d[2], a.n = d[3];
    a.kv_heads = a.k.shape.dim[1], a.tk = a.k.shape.dim[2], a.nv = a.v.shape.dim[3];
    a.scale = number(c, "scale", 1 / sqrt((double)a.n));
    return a;
}

static int64_t keys_of(const attention *a, int64_t b) {
    return a->lengths.from ? (int64_t)a->lengths.v[b] : a->tk;
}
static int64_t past_of(const attention *a, int64_t b) {
    return a->lengths.from ? keys_of(a, b) - a->tq : a->past;
}

// The given mask broadcasts; what a flag or causality hides is -Inf.
static double mask_at(const attention *a, int64_t b, int64_t h, int64_t i, int64_t j) {
    if (a->causal && j > past_of(a, b) + i) return -INFINITY;
    if (!a->mask.from) return 0;
    const snd_shape s = a->mask.shape;
    const int64_t at[] = {b, h, i, j};
    int64_t index = 0;
    for (int k = 0; k < s.nd; k++) index = index * s.dim[k] + (s.dim[k] == 1 ? 0 : at[4 - s.nd + k]);
    const double v = a->mask.v[index];
    return a->mask.from == SND_BOOL ? (v != 0 ? 0 : -INFINITY) : v;
}

static array mask_of(const node *c, const attention *a, int64_t b, int64_t h) {
    const int64_t keys = keys_of(a, b);
    array m = array_new(c, SND_SHAPE(a->tq, keys), SND_F64);
    for (int64_t i = 0; i < a->tq; i++)
        for (int64_t j = 0; j < keys; j++) m.v[i * keys + j] = mask_at(a, b, h, i, j);
    return m;
}

// One head of one example of x [B, H, T, n], its first `rows` rows.
static array head_of(array x, int64_t b, int64_t h, int64_t rows) {
    const int64_t *d = x.shape.dim;
    return (array){SND_SHAPE(rows, d[3]), x.from, x.v + (b * d[1] + h) * d[2] * d[3]};
}

typedef enum stage { SCALED, CAPPED, MASKED, WEIGHTS, RESULT } stage; // the first four: qk_matmul_output_mode

static array one_head(const node *c, const attention *a, int64_t b, int64_t h, stage upto) {
    program p = begin(c);
    snd_graph *g = p.n.g;
    const int64_t kv = h / (a->heads / a->kv_heads), keys = keys_of(a, b);
    const snd_id q = feed(&p, head_of(a->q, b, h, a->tq)), k = feed(&p, head_of(a->k, b, kv, keys));
    snd_id s = snd_g_scale(g, a->scale, snd_g_linear(g, q, k));
    if (upto >= CAPPED && a->softcap > 0)
        s = snd_g_scale(g, a->softcap, snd_g_unary(g, SND_KFN_TANH, snd_g_scale(g, 1 / a->softcap, s)));
    if (upto >= MASKED) s = snd_g_add(g, s, feed(&p, mask_of(c, a, b, h)));
    if (upto >= WEIGHTS) s = snd_g_softmax(g, s);
    if (upto == RESULT) s = snd_g_linear(g, s, feed(&p, permuted(c, head_of(a->v, b, kv, keys), (int[]){1, 0})));
    return finish(c, &p, s);
}

static array all_heads(const node *c, const attention *a, stage upto) {
    const int64_t columns = upto == RESULT ? a->nv : a->tk, size = a->tq * columns;
    array out = array_new(c, SND_SHAPE(a->B, a->heads, a->tq, columns), c->t);
    for (int64_t k = 0; k < a->B * a->heads; k++) {
        const array y = one_head(c, a, k / a->heads, k % a->heads, upto);
        assert_int_equal(snd_shape_size(y.shape), size);
        memcpy(out.v + k * size, y.v, (size_t)size * sizeof *y.v);
    }
    return out;
}

// [1, rows, H*width] of example b of x [B, H, T, n]; further features are zeros, which no product notices.
static array tokens_of(const node *c, array x, int64_t b, int64_t rows, int64_t width) {
    const int64_t heads = x.shape.dim[1], n = x.shape.dim[3];
    array out = array_new(c, SND_SHAPE(1, rows, heads * width), x.from);
    for (int64_t h = 0; h < heads; h++)
        for (int64_t t = 0; t < rows; t++)
            memcpy(out.v + (t * heads + h) * width, head_of(x, b, h, rows).v + t * n, (size_t)n * sizeof *x.v);
    return out;
}

// The same by the op that models use, where the mask is one that it knows. A key beyond the last query is seen by none.
static array fused(const node *c, const attention *a) {
    const int64_t width = a->n > a->nv ? a->n : a->nv;
    array out = array_new(c, SND_SHAPE(a->B, a->heads, a->tq, a->nv), c->t);
    for (int64_t b = 0; b < a->B; b++) {
        program p = begin(c);
        const int64_t past = a->causal ? past_of(a, b) : 0, all = keys_of(a, b);
        const int64_t keys = a->causal && all > past + a->tq ? past + a->tq : all;
        const snd_attn o = {.heads = a->heads,
                            .kv_heads = a->kv_heads,
                            .scale = a->scale,
                            .softcap = a->softcap,
                            .causal = a->causal,
                            .past = past,
                            .bias = SND_ATTN_PLAIN};
        const snd_id q = feed(&p, tokens_of(c, a->q, b, a->tq, width)),
                     k = feed(&p, tokens_of(c, a->k, b, keys, width));
        const snd_id v = feed(&p, tokens_of(c, a->v, b, keys, width));
        const array y = finish(c, &p, snd_g_attention(p.n.g, &o, q, k, v, 0, 0, 0));
        for (int64_t h = 0; h < a->heads; h++)
            for (int64_t t = 0; t < a->tq; t++)
                memcpy(out.v + ((b * a->heads + h) * a->tq + t) * a->nv, y.v + (t * a->heads + h) * width,
                       (size_t)a->nv * sizeof *y.v);
    }
    return out;
}

static int n_fused;

static void attends(const node *c) {
    const attention a = read_attention(c);
    const array want = by_heads(c, load(c, c->outputs, "Y"), a.heads), qk = load(c, c->outputs, "qk_matmul_output");
    const int64_t terms = a.n + a.tk;
    expect(c, "Y", all_heads(c, &a, RESULT), want, terms);
    if (!a.mask.from) {
        expect(c, "Y of the fused op", fused(c, &a), want, terms);
        n_fused++;
    }
    if (qk.from)
        expect(c, "qk_matmul_output", all_heads(c, &a, (stage)whole(c, "qk_matmul_output_mode", SCALED)), qk, terms);
    if (!a.past) return;
    expect(c, "present_key", a.k, load(c, c->outputs, "present_key"), 0);
    expect(c, "present_value", a.v, load(c, c->outputs, "present_value"), 0);
}

// ---- all of them ----------------------------------------------------------------------------------------------------------

static void run_case(char **cells, int n) {
    static const struct {
        const char *name;
        void (*run)(const node *c);
    } operators[] = {{"Attention", attends},
                     {"Gelu", gelu},
                     {"LayerNormalization", norms},
                     {"LogSoftmax", softmax},
                     {"NegativeLogLikelihoodLoss", losses},
                     {"RMSNormalization", norms},
                     {"RotaryEmbedding", rotary},
                     {"Softmax", softmax},
                     {"SoftmaxCrossEntropyLoss", losses},
                     {"Swish", swish}};
    static const snd_dtype types[] = {SND_F64, SND_F32};
    assert_int_equal(n, 5);
    size_t k = 0;
    while (k < sizeof operators / sizeof *operators && strcmp(operators[k].name, cells[1]) != 0) k++;
    if (k == sizeof operators / sizeof *operators) fail_msg("%s: operator %s", cells[0], cells[1]);
    for (int i = 0; i < 2; i++) {
        const node c = {snd_arena_create(), types[i], cells[0], cells[1], cells[2], cells[3], cells[4]};
        assert_non_null(c.arena);
        operators[k].run(&c);
        snd_arena_destroy(c.arena);
    }
}

static void node_tests(void **state) {
    (void)state;
    CHECK_OK(snd_st_open(SONDE_SOURCE_DIR "/tests/golden/onnx/tensors.safetensors", &tensors));
    assert_int_equal(tsv_each("onnx/index.tsv", run_case), 181);
    snd_st_close(tensors);
    assert_int_equal(n_fused, 2 * 32); // those without a mask
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(node_tests)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
