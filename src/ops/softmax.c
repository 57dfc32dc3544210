// Softmax over the last dimension, weighted sums of several values, cross-entropy.
//   softmax  p = softmax(x)               dx = p (dp - p . dp)
//   wsum     o = sum_k w_k v_k            dv_k = w_k do, dw_k = sum do*v_k (per row when w is)
//   xent     mean of lse(x) - x[target]   dx = (softmax(x) - onehot) dloss / n, 0 for ignored rows; smoothed: the target
//            distribution is (1 - s) onehot + s / V in both places
#include "ops/ops_impl.h"

#include <assert.h>
#include <math.h>

double snd_logit_factor(snd_dtype t, int32_t e) {
    const int most = t == SND_F64 ? 600 : 78;
    return snd_pow2(e > most ? most : e);
}

// ---- softmax --------------------------------------------------------------------------------------------------------

static void softmax_run(snd_run *r) {
    int64_t R, D;
    snd_rows(snd_in_shape(r, 0), &R, &D);
    snd_k_softmax(r->threads, r->t, R, D, snd_logit_factor(r->t, snd_in(r, 0)->e), snd_in(r, 0)->p, snd_out(r, 0)->p);
    snd_out_done(r, 0, 0, -1);
}

static void softmax_grad(snd_graph *g, const snd_node *n, const snd_id *dout, const bool *need, snd_id *din) {
    (void)need;
    din[0] = snd_g_op(g, SND_OP_SOFTMAX_BWD, (snd_id[]){n->out[0], dout[0]}, 2, NULL, NULL);
}

static void softmax_bwd_run(snd_run *r) {
    int64_t R, D;
    snd_rows(snd_in_shape(r, 0), &R, &D);
    const snd_rv *dp = snd_in(r, 1);
    snd_k_softmax_bwd(r->threads, r->t, R, D, 1, snd_in(r, 0)->p, dp->p, snd_out(r, 0)->p);
    snd_out_done(r, 0, (int64_t)dp->e + snd_in(r, 0)->e, -1);
}

static const snd_op_case softmax_cases[] = {
    {.label = "3x5", .n_in = 1, .in = {{2, {3, 5}}}},
    {.label = "a vector", .n_in = 1, .in = {{1, {4}}}},
    {.label = "large numbers", .n_in = 1, .in = {{2, {2, 4}}}, .lo = 998, .hi = 1002},
};
const snd_op_info snd_op_softmax = {.name = "softmax",
                                    .shape = snd_same_shape,
                                    .run = softmax_run,
                                    .grad = softmax_grad,
                                    .inplace = snd_inplace_first,
                                    .cost = snd_cost_some,
                                    SND_CASES(softmax_cases)};
const snd_op_info snd_op_softmax_bwd = {
    .name = "softmax_bwd", .shape = snd_same_shape, .run = softmax_bwd_run, .cost = snd_cost_some};

snd_id snd_g_softmax(snd_graph *g, snd_id x) {
    return x ? snd_g_op(g, SND_OP_SOFTMAX, &x, 1, NULL, NULL) : 0;
}

// ---- wsum: in w, v_1 .. v_K -----------------------------------------------------------------------------------------

static sonde_status wsum_shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    (void)dtype;
    char a[160], b[160];
    const int K = n->n_in - 1;
    SND_FAIL_IF(K < 1, SONDE_ESHAPE, "no values to sum");
    const snd_shape w = snd_shape_of(g, n->in[0]), v = snd_shape_of(g, n->in[1]);
    for (int k = 2; k <= K; k++) {
        const snd_shape s = snd_shape_of(g, n->in[k]);
        SND_FAIL_IF(!snd_shape_same(s, v), SONDE_ESHAPE, "value %d has shape %s, the first has %s", k,
                    snd_shape_text(s, a), snd_shape_text(v, b));
    }
    snd_shape rows = v;
    if (rows.nd > 0) rows.dim[rows.nd - 1] = K;
    const bool fits = (w.nd == 1 && w.dim[0] == K) || snd_shape_same(w, rows);
    SND_FAIL_IF(!fits, SONDE_ESHAPE, "%d weights expected for values of shape %s, found shape %s", K,
                snd_shape_text(v, b), snd_shape_text(w, a));
    n->attr.i[0] = w.nd > 1;
    *out = v;
    return SONDE_OK;
}

static size_t wsum_scratch(const snd_graph *g, const snd_node *n) {
    (void)g;
    return (size_t)(n->n_in - 1) * (sizeof(double) + sizeof(void *));
}

static void wsum_run(snd_run *r) {
    const int K = r->n->n_in - 1;
    double *scale = r->scratch;
    const void **v = (const void **)(scale + K);
    bool any = false;
    int64_t e = 0, R, D;
    for (int k = 1; k <= K; k++) {
        if (snd_in(r, k)->e != 0 && snd_in_amax(r, k) == 0) continue; // the exponent of a zero means nothing
        if (!any || snd_in(r, k)->e > e) e = snd_in(r, k)->e;
        any = true;
    }
    for (int k = 0; k < K; k++) {
        v[k] = snd_in(r, k + 1)->p;
        const int64_t d = snd_in(r, k + 1)->e - e;
        scale[k] = d > 0 ? 1 : ldexp(1, (int)d);
    }
    snd_rows(snd_out_shape(r, 0), &R, &D);
    const double amax =
        snd_k_wsum(r->threads, r->t, R, D, K, snd_in(r, 0)->p, r->n->attr.i[0] != 0, scale, v, snd_out(r, 0)->p);
    snd_out_done(r, 0, e + snd_in(r, 0)->e, amax);
}

static void wsum_grad(snd_graph *g, const snd_node *n, const snd_id *dout, const bool *need, snd_id *din) {
    const int K = n->n_in - 1;
    const snd_id w = n->in[0];
    for (int k = 1; k <= K; k++) {
        if (need[k]) din[k] = snd_g_mul(g, dout[0], snd_g_slice(g, w, k - 1, 1));
    }
    if (!need[0]) return;
    snd_id *parts = snd_arena_array(snd_graph_arena(g), (size_t)K, sizeof *parts);
    if (!parts) {
        snd_g_fail(g, SONDE_ENOMEM, "no memory for the gradient of %d weights", K);
        return;
    }
    for (int k = 0; k < K; k++) parts[k] = snd_g_rowdot(g, dout[0], n->in[k + 1]);
    din[0] = snd_reduce_like(g, snd_g_concat(g, parts, K), w);
}

static const snd_op_case wsum_cases[] = {
    {.label = "weights", .n_in = 4, .in = {{1, {3}}, {2, {4, 5}}, {2, {4, 5}}, {2, {4, 5}}}},
    {.label = "weights per row", .n_in = 3, .in = {{2, {4, 2}}, {2, {4, 5}}, {2, {4, 5}}}},
    {.label = "weights per token", .n_in = 3, .in = {{3, {2, 3, 2}}, {3, {2, 3, 5}}, {3, {2, 3, 5}}}},
    {.label = "one", .n_in = 2, .in = {{1, {1}}, {2, {4, 5}}}},
};
static void wsum_cost(const snd_graph *g, const snd_node *n, double *flops, double *bytes) {
    snd_cost_each(g, n, 2 * (n->n_in - 1), flops, bytes);
}
const snd_op_info snd_op_wsum = {.name = "wsum",
                                 .shape = wsum_shape,
                                 .run = wsum_run,
                                 .grad = wsum_grad,
                                 .scratch = wsum_scratch,
                                 .cost = wsum_cost,
                                 SND_CASES(wsum_cases)};

snd_id snd_g_wsum(snd_graph *g, snd_id w, const snd_id *v, int k) {
    if (!w || snd_graph_status(g) != SONDE_OK) return 0;
    snd_id *in = snd_arena_array(snd_graph_arena(g), (size_t)k + 1, sizeof *in);
    if (!in) return snd_g_fail(g, SONDE_ENOMEM, "no memory for a sum of %d values", k);
    in[0] = w;
    for (int i = 0; i < k; i++) {
        if (!v[i]) return 0;
        in[i + 1] = v[i];
    }
    return snd_g_op(g, SND_OP_WSUM, in, k + 1, NULL, NULL);
}

// ---- cross-entropy: in logits, targets; f[0] = label smoothing; out loss, lse, number of rows that count ------------------------------------

static sonde_status xent_shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    char a[160], b[160];
    const snd_shape x = snd_shape_of(g, n->in[0]), t = snd_shape_of(g, n->in[1]);
    int64_t R, V;
    snd_rows(x, &R, &V);
    SND_FAIL_IF(snd_g_value(g, n->in[1])->dtype != SND_I64, SONDE_ETYPE, "targets are %s, must be i64",
                snd_dtype_name(snd_g_value(g, n->in[1])->dtype));
    SND_FAIL_IF(x.nd < 1 || t.nd != x.nd - 1 || snd_shape_size(t) != R, SONDE_ESHAPE,
                "targets of shape %s do not fit logits of shape %s", snd_shape_text(t, a), snd_shape_text(x, b));
    out[0] = snd_shape_make(0, NULL);
    out[1] = SND_SHAPE(R);
    out[2] = SND_SHAPE(1);
    dtype[1] = dtype[2] = SND_F64;
    n->n_out = 3;
    return SONDE_OK;
}

bool snd_targets_exist(const int64_t *t, int64_t R, int64_t V) {
    for (int64_t i = 0; i < R; i++) {
        if (t[i] != SND_IGNORED && (t[i] < 0 || t[i] >= V)) return false;
    }
    return true;
}

static void xent_run(snd_run *r) {
    int64_t R, V, used = 0;
    snd_rows(snd_in_shape(r, 0), &R, &V);
    if (!snd_targets_exist(snd_in(r, 1)->p, R, V)) {
        const double nan = NAN;
        snd_out_store(r, 0, &nan, 1);
        return;
    }
    const double loss = snd_k_xent_fwd(r->threads, r->t, R, V, snd_logit_factor(r->t, snd_in(r, 0)->e), r->n->attr.f[0],
                                       snd_in(r, 0)->p, snd_in(r, 1)->p, SND_IGNORED, snd_out(r, 1)->p, &used);
    *(double *)snd_out(r, 2)->p = (double)used;
    snd_out_store(r, 0, &loss, 1);
}

static void xent_grad(snd_graph *g, const snd_node *n, const snd_id *dout, const bool *need, snd_id *din) {
    if (!need[0] || !dout[0]) return;
    const snd_id in[] = {dout[0], n->in[0], n->in[1], n->out[1], n->out[2]};
    din[0] = snd_g_op(g, SND_OP_XENT_BWD, in, 5, &n->attr, NULL);
}

static sonde_status xent_bwd_shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    (void)dtype;
    *out = snd_shape_of(g, n->in[1]);
    return SONDE_OK;
}

// The kernel differentiates by the buffer, which is 2^-e times the logits.
static void xent_bwd_run(snd_run *r) {
    int64_t R, V;
    snd_rows(snd_in_shape(r, 1), &R, &V);
    const snd_rv *d = snd_in(r, 0), *x = snd_in(r, 1);
    const double s = snd_logit_factor(r->t, x->e);
    if (!snd_targets_exist(snd_in(r, 2)->p, R, V)) {
        snd_k_fill_const(r->threads, r->t, R * V, NAN, snd_out(r, 0)->p);
        snd_out_done(r, 0, 0, NAN);
        return;
    }
    snd_k_xent_bwd(r->threads, r->t, R, V, s, r->n->attr.f[0], x->p, snd_in(r, 2)->p, SND_IGNORED, snd_in(r, 3)->p,
                   (int64_t) * (const double *)snd_in(r, 4)->p, snd_load(r->t, d->p, 0) / s, snd_out(r, 0)->p);
    snd_out_done(r, 0, d->e, -1);
}

static const snd_op_case xent_cases[] = {
    {.label = "6 rows, 5 classes", .n_in = 2, .in = {{2, {6, 5}}, {1, {6}}}, .target = 2, .classes = 5},
    {.label = "tokens", .n_in = 2, .in = {{3, {2, 3, 4}}, {2, {2, 3}}}, .target = 2, .classes = 4},
    {.label = "smoothed", .n_in = 2, .in = {{2, {6, 5}}, {1, {6}}}, .attr = {.f = {0.1}}, .target = 2, .classes = 5},
};
const snd_op_info snd_op_xent = {.name = "xent",
                                 .shape = xent_shape,
                                 .run = xent_run,
                                 .grad = xent_grad,
                                 .cost = snd_cost_some,
                                 SND_CASES(xent_cases)};
const snd_op_info snd_op_xent_bwd = {
    .name = "xent_bwd", .shape = xent_bwd_shape, .run = xent_bwd_run, .cost = snd_cost_some};

snd_id snd_g_xent_smooth(snd_graph *g, snd_id logits, snd_id targets, double smooth) {
    const snd_attr a = {.f = {smooth}};
    return logits && targets ? snd_g_op(g, SND_OP_XENT, (snd_id[]){logits, targets}, 2, &a, NULL) : 0;
}
snd_id snd_g_xent(snd_graph *g, snd_id logits, snd_id targets) {
    return snd_g_xent_smooth(g, logits, targets, 0);
}
