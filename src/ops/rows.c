// Numbers per row: dot products and root mean squares; and sums over, and copies along, broadcast dimensions.
//   rowdot  o[i] = x_i . y_i        dx = o' y, dy = o' x
//   rowrms  o[i] = |x_i|/sqrt(d)    dx_i = o'_i x_i/(d o_i), 0 for a zero row; no eps
//   sum_to  the transpose of broadcasting; expand  broadcasting.  i[0..5], f[0]: the target shape.
#include "ops/ops_impl.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static snd_shape per_row(snd_shape s) {
    if (s.nd > 0) s.dim[s.nd - 1] = 1;
    return s;
}

// ---- rowdot ---------------------------------------------------------------------------------------------------------

static sonde_status dot_shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    (void)dtype;
    char a[160], b[160];
    const snd_shape x = snd_shape_of(g, n->in[0]), y = snd_shape_of(g, n->in[1]);
    SND_FAIL_IF(!snd_shape_same(x, y) || x.nd < 1, SONDE_ESHAPE, "rows of shapes %s and %s", snd_shape_text(x, a),
                snd_shape_text(y, b));
    *out = per_row(x);
    return SONDE_OK;
}

static void dot_run(snd_run *r) {
    int64_t R, D;
    snd_rows(snd_in_shape(r, 0), &R, &D);
    const snd_rv *x = snd_in(r, 0), *y = snd_in(r, 1);
    snd_k_rowdot(r->threads, r->t, R, D, 1, x->p, y->p, snd_out(r, 0)->p);
    snd_out_done(r, 0, (int64_t)x->e + y->e, -1);
}

static void dot_grad(snd_graph *g, const snd_node *n, const snd_id *dout, const bool *need, snd_id *din) {
    for (int k = 0; k < 2; k++) {
        if (need[k]) din[k] = snd_g_mul(g, dout[0], n->in[1 - k]);
    }
}

static void row_cost(const snd_graph *g, const snd_node *n, double *flops, double *bytes) {
    snd_cost_each(g, n, 0, flops, bytes);
    *flops = 2 * (double)snd_size_of(g, n->in[0]);
}

static const snd_op_case dot_cases[] = {
    {.label = "4x6", .n_in = 2, .in = {{2, {4, 6}}, {2, {4, 6}}}},
    {.label = "2x3x5", .n_in = 2, .in = {{3, {2, 3, 5}}, {3, {2, 3, 5}}}},
    {.label = "vectors", .n_in = 2, .in = {{1, {5}}, {1, {5}}}},
};
const snd_op_info snd_op_rowdot = {
    .name = "rowdot", .shape = dot_shape, .run = dot_run, .grad = dot_grad, .cost = row_cost, SND_CASES(dot_cases)};

snd_id snd_g_rowdot(snd_graph *g, snd_id x, snd_id y) {
    if (!x || !y) return 0;
    snd_shape s;
    const snd_shape sx = snd_shape_of(g, x), sy = snd_shape_of(g, y);
    if (!snd_shape_same(sx, sy) && snd_shape_broadcast(sx, sy, &s)) {
        x = snd_g_expand(g, x, s);
        y = snd_g_expand(g, y, s);
    }
    return x && y ? snd_g_op(g, SND_OP_ROWDOT, (snd_id[]){x, y}, 2, NULL, NULL) : 0;
}

// ---- rowrms ---------------------------------------------------------------------------------------------------------

static sonde_status rms_shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    (void)dtype;
    *out = per_row(snd_shape_of(g, n->in[0]));
    return SONDE_OK;
}

static void rms_run(snd_run *r) {
    int64_t R, D;
    snd_rows(snd_in_shape(r, 0), &R, &D);
    const snd_rv *x = snd_in(r, 0);
    void *o = snd_out(r, 0)->p;
    // Squares in double: rows far below the largest one must not underflow in f32.
    for (int64_t i = 0; i < R; i++) {
        double acc[8] = {0};
        for (int64_t j = 0; j < D; j++) {
            const double v = snd_load(r->t, x->p, i * D + j);
            acc[j % 8] += v * v;
        }
        const double sum = ((acc[0] + acc[1]) + (acc[2] + acc[3])) + ((acc[4] + acc[5]) + (acc[6] + acc[7]));
        snd_store(r->t, o, i, sqrt(sum / (double)D));
    }
    snd_out_done(r, 0, x->e, -1);
}

static void rms_grad(snd_graph *g, const snd_node *n, const snd_id *dout, const bool *need, snd_id *din) {
    (void)need;
    din[0] = snd_g_op(g, SND_OP_ROWRMS_BWD, (snd_id[]){dout[0], n->in[0], n->out[0]}, 3, NULL, NULL);
}

static const snd_op_case rms_cases[] = {
    {.label = "4x6", .n_in = 1, .in = {{2, {4, 6}}}},
    {.label = "2x3x5", .n_in = 1, .in = {{3, {2, 3, 5}}}},
};
const snd_op_info snd_op_rowrms = {
    .name = "rowrms", .shape = rms_shape, .run = rms_run, .grad = rms_grad, .cost = row_cost, SND_CASES(rms_cases)};

snd_id snd_g_rowrms(snd_graph *g, snd_id x) {
    return x ? snd_g_op(g, SND_OP_ROWRMS, &x, 1, NULL, NULL) : 0;
}

// in: do, x, o. The three exponents: x/o has that of x less that of o.
static sonde_status rms_bwd_shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    (void)dtype;
    *out = snd_shape_of(g, n->in[1]);
    return SONDE_OK;
}

static void rms_bwd_run(snd_run *r) {
    int64_t R, D;
    snd_rows(snd_in_shape(r, 1), &R, &D);
    const snd_rv *d = snd_in(r, 0), *x = snd_in(r, 1), *o = snd_in(r, 2);
    const int64_t e = (int64_t)d->e + x->e - o->e;
    void *dx = snd_out(r, 0)->p;
    for (int64_t i = 0; i < R; i++) {
        const double rms = snd_load(r->t, o->p, i), c = rms == 0 ? 0 : snd_load(r->t, d->p, i) / ((double)D * rms);
        for (int64_t j = i * D; j < (i + 1) * D; j++) snd_store(r->t, dx, j, c * snd_load(r->t, x->p, j));
    }
    snd_out_done(r, 0, e, -1);
}

const snd_op_info snd_op_rowrms_bwd = {
    .name = "rowrms_bwd", .shape = rms_bwd_shape, .run = rms_bwd_run, .cost = snd_cost_few};

// ---- sum_to, expand -------------------------------------------------------------------------------------------------

static snd_shape target_of(const snd_node *n) {
    return snd_shape_make((int)n->attr.f[0], n->attr.i);
}

static sonde_status to_shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    (void)dtype;
    char a[160], b[160];
    const snd_shape x = snd_shape_of(g, n->in[0]), s = target_of(n);
    const bool sums = n->op == SND_OP_SUM_TO;
    const snd_shape small = sums ? s : x, large = sums ? x : s;
    snd_shape both;
    snd_bcast grid;
    SND_FAIL_IF(!snd_shape_broadcast(small, large, &both) || !snd_shape_same(both, large), SONDE_ESHAPE,
                "shape %s does not broadcast to %s", snd_shape_text(small, a), snd_shape_text(large, b));
    SND_FAIL_IF(!snd_bcast_make(large, small, large, &grid), SONDE_EUNSUPPORTED,
                "shapes %s and %s alternate in more than three groups of dimensions", snd_shape_text(small, a),
                snd_shape_text(large, b));
    *out = s;
    return SONDE_OK;
}

static void sum_run(snd_run *r) {
    const snd_shape x = snd_in_shape(r, 0), s = snd_out_shape(r, 0);
    snd_bcast b = {0};
    const bool ok = snd_bcast_make(x, s, x, &b);
    assert(ok);
    (void)ok;
    snd_k_sum_to(r->threads, r->t, b.dim, snd_in(r, 0)->p, 1, b.sy, snd_shape_size(s), snd_out(r, 0)->p);
    snd_out_done(r, 0, snd_in(r, 0)->e, -1);
}

static void expand_run(snd_run *r) {
    const snd_shape x = snd_in_shape(r, 0), s = snd_out_shape(r, 0);
    snd_bcast b = {0};
    const bool ok = snd_bcast_make(x, s, s, &b);
    assert(ok);
    (void)ok;
    double one = 1;
    if (r->t == SND_F32) {
        const float one_f = 1;
        memcpy(&one, &one_f, sizeof one_f);
    }
    const double amax = snd_k_binary(r->threads, r->t, SND_KBIN_MUL, b.dim, 1, snd_in(r, 0)->p, b.sx, 1, &one,
                                     (int64_t[]){0, 0, 0}, snd_out(r, 0)->p);
    snd_out_done(r, 0, snd_in(r, 0)->e, amax);
}

static void sum_grad(snd_graph *g, const snd_node *n, const snd_id *dout, const bool *need, snd_id *din) {
    (void)need;
    din[0] = snd_g_expand(g, dout[0], snd_shape_of(g, n->in[0]));
}

static void expand_grad(snd_graph *g, const snd_node *n, const snd_id *dout, const bool *need, snd_id *din) {
    (void)need;
    din[0] = snd_g_sum_to(g, dout[0], snd_shape_of(g, n->in[0]));
}

static const snd_op_case sum_cases[] = {
    {.label = "to a vector", .n_in = 1, .in = {{3, {2, 3, 4}}}, .attr = {.f = {1}, .i = {4}}},
    {.label = "to a scalar", .n_in = 1, .in = {{2, {3, 4}}}, .attr = {.f = {1}, .i = {1}}},
    {.label = "to nothing", .n_in = 1, .in = {{2, {3, 4}}}, .attr = {.f = {0}}},
    {.label = "per row", .n_in = 1, .in = {{2, {3, 4}}}, .attr = {.f = {2}, .i = {3, 1}}},
    {.label = "per example", .n_in = 1, .in = {{3, {2, 3, 4}}}, .attr = {.f = {3}, .i = {2, 1, 4}}},
};
static const snd_op_case expand_cases[] = {
    {.label = "vector", .n_in = 1, .in = {{1, {4}}}, .attr = {.f = {3}, .i = {2, 3, 4}}},
    {.label = "scalar", .n_in = 1, .in = {{1, {1}}}, .attr = {.f = {2}, .i = {3, 4}}},
    {.label = "per row", .n_in = 1, .in = {{2, {3, 1}}}, .attr = {.f = {2}, .i = {3, 4}}},
    {.label = "per example", .n_in = 1, .in = {{3, {2, 1, 4}}}, .attr = {.f = {3}, .i = {2, 3, 4}}},
};
const snd_op_info snd_op_sum_to = {
    .name = "sum_to", .shape = to_shape, .run = sum_run, .grad = sum_grad, .cost = row_cost, SND_CASES(sum_cases)};
const snd_op_info snd_op_expand = {.name = "expand",
                                   .shape = to_shape,
                                   .run = expand_run,
                                   .grad = expand_grad,
                                   .cost = snd_cost_few,
                                   SND_CASES(expand_cases)};

static snd_id to(snd_graph *g, int op, snd_id x, snd_shape s) {
    if (!x || snd_shape_same(snd_shape_of(g, x), s)) return x;
    snd_attr a = {.f = {s.nd}};
    memcpy(a.i, s.dim, sizeof s.dim);
    return snd_g_op(g, op, &x, 1, &a, NULL);
}

snd_id snd_g_sum_to(snd_graph *g, snd_id x, snd_shape s) {
    return to(g, SND_OP_SUM_TO, x, s);
}
snd_id snd_g_expand(snd_graph *g, snd_id x, snd_shape s) {
    return to(g, SND_OP_EXPAND, x, s);
}
