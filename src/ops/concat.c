// Joining and cutting along the last dimension: concat, slice (i[0] = first, i[1] = n) and its transpose pad
// (i[0] = first, i[1] = full length). Exponents: concat brings its parts to the largest one.
#include "ops/ops_impl.h"

#include <math.h>
#include <string.h>

static int64_t last(snd_shape s) {
    return s.nd > 0 ? s.dim[s.nd - 1] : 1;
}

static snd_shape with_last(snd_shape s, int64_t n) {
    if (s.nd > 0) s.dim[s.nd - 1] = n;
    return s;
}

// dst[row][at ..] = src[row][from ..], n numbers a row.
static void copy_columns(size_t size, int64_t R, const void *src, int64_t ld_src, int64_t from, void *dst,
                         int64_t ld_dst, int64_t at, int64_t n) {
    for (int64_t i = 0; i < R; i++) {
        memcpy((char *)dst + (size_t)(i * ld_dst + at) * size, (const char *)src + (size_t)(i * ld_src + from) * size,
               (size_t)n * size);
    }
}

// ---- concat ---------------------------------------------------------------------------------------------------------

static sonde_status concat_shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    (void)dtype;
    char a[160], b[160];
    SND_FAIL_IF(n->n_in < 1, SONDE_ESHAPE, "nothing to join");
    const snd_shape first = snd_shape_of(g, n->in[0]);
    int64_t sum = 0;
    for (int k = 0; k < n->n_in; k++) {
        const snd_shape s = snd_shape_of(g, n->in[k]);
        SND_FAIL_IF(s.nd < 1 || !snd_shape_same(with_last(s, 1), with_last(first, 1)), SONDE_ESHAPE,
                    "part %d of shape %s does not join one of shape %s", k + 1, snd_shape_text(s, a),
                    snd_shape_text(first, b));
        sum += last(s);
    }
    *out = with_last(first, sum);
    return SONDE_OK;
}

static int64_t common_exponent(const snd_run *r) {
    bool same = true, any = false;
    int64_t e = 0;
    for (int k = 1; k < r->n->n_in; k++) same &= snd_in(r, k)->e == snd_in(r, 0)->e;
    if (same) return snd_in(r, 0)->e;
    for (int k = 0; k < r->n->n_in; k++) {
        if (snd_in_amax(r, k) == 0) continue;
        if (!any || snd_in(r, k)->e > e) e = snd_in(r, k)->e;
        any = true;
    }
    return e;
}

static void concat_run(snd_run *r) {
    const int64_t total = last(snd_out_shape(r, 0)), e = common_exponent(r);
    const size_t size = snd_dtype_size(r->t);
    int64_t at = 0;
    for (int k = 0; k < r->n->n_in; k++) {
        int64_t R, D;
        snd_rows(snd_in_shape(r, k), &R, &D);
        const snd_rv *x = snd_in(r, k);
        copy_columns(size, R, x->p, D, 0, snd_out(r, 0)->p, total, at, D);
        for (int64_t i = 0; x->e != e && i < R; i++)
            snd_scale_into(r, (char *)snd_out(r, 0)->p + (size_t)(i * total + at) * size, D, x->e - e,
                           (char *)snd_out(r, 0)->p + (size_t)(i * total + at) * size);
        at += D;
    }
    snd_out_done(r, 0, e, -1);
}

static void concat_grad(snd_graph *g, const snd_node *n, const snd_id *dout, const bool *need, snd_id *din) {
    int64_t at = 0;
    for (int k = 0; k < n->n_in; k++) {
        const int64_t D = last(snd_shape_of(g, n->in[k]));
        if (need[k]) din[k] = snd_g_slice(g, dout[0], at, D);
        at += D;
    }
}

static const snd_op_case concat_cases[] = {
    {.label = "two", .n_in = 2, .in = {{2, {3, 2}}, {2, {3, 4}}}},
    {.label = "numbers per token", .n_in = 3, .in = {{3, {2, 3, 1}}, {3, {2, 3, 1}}, {3, {2, 3, 1}}}},
    {.label = "one", .n_in = 1, .in = {{1, {3}}}},
};
const snd_op_info snd_op_concat = {.name = "concat",
                                   .shape = concat_shape,
                                   .run = concat_run,
                                   .grad = concat_grad,
                                   .cost = snd_cost_few,
                                   SND_CASES(concat_cases)};

snd_id snd_g_concat(snd_graph *g, const snd_id *x, int n) {
    for (int k = 0; k < n; k++) {
        if (!x[k]) return 0;
    }
    return snd_g_op(g, SND_OP_CONCAT, x, n, NULL, NULL);
}

// ---- slice, pad -----------------------------------------------------------------------------------------------------

static sonde_status slice_shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    (void)dtype;
    char a[160];
    const snd_shape x = snd_shape_of(g, n->in[0]);
    const int64_t first = n->attr.i[0], len = n->attr.i[1];
    SND_FAIL_IF(x.nd < 1 || first < 0 || len < 1 || first + len > last(x), SONDE_ESHAPE,
                "columns %lld to %lld of shape %s", (long long)first, (long long)(first + len - 1),
                snd_shape_text(x, a));
    *out = with_last(x, len);
    return SONDE_OK;
}

static void slice_run(snd_run *r) {
    int64_t R, D;
    snd_rows(snd_in_shape(r, 0), &R, &D);
    const int64_t n = r->n->attr.i[1];
    copy_columns(snd_dtype_size(r->t), R, snd_in(r, 0)->p, D, r->n->attr.i[0], snd_out(r, 0)->p, n, 0, n);
    snd_out_done(r, 0, snd_in(r, 0)->e, -1);
}

static void slice_grad(snd_graph *g, const snd_node *n, const snd_id *dout, const bool *need, snd_id *din) {
    (void)need;
    const snd_attr a = {.i = {n->attr.i[0], last(snd_shape_of(g, n->in[0]))}};
    din[0] = snd_g_op(g, SND_OP_PAD, dout, 1, &a, NULL);
}

static sonde_status pad_shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    (void)dtype;
    const snd_shape x = snd_shape_of(g, n->in[0]);
    SND_FAIL_IF(n->attr.i[0] < 0 || n->attr.i[0] + last(x) > n->attr.i[1], SONDE_ESHAPE,
                "columns beyond the padded width");
    *out = with_last(x, n->attr.i[1]);
    return SONDE_OK;
}

static void pad_run(snd_run *r) {
    int64_t R, D;
    snd_rows(snd_in_shape(r, 0), &R, &D);
    const int64_t total = r->n->attr.i[1];
    const size_t size = snd_dtype_size(r->t);
    memset(snd_out(r, 0)->p, 0, (size_t)(R * total) * size);
    copy_columns(size, R, snd_in(r, 0)->p, D, 0, snd_out(r, 0)->p, total, r->n->attr.i[0], D);
    snd_out_done(r, 0, snd_in(r, 0)->e, -1);
}

static void pad_grad(snd_graph *g, const snd_node *n, const snd_id *dout, const bool *need, snd_id *din) {
    (void)need;
    din[0] = snd_g_slice(g, dout[0], n->attr.i[0], last(snd_shape_of(g, n->in[0])));
}

static const snd_op_case slice_cases[] = {
    {.label = "middle", .n_in = 1, .in = {{2, {3, 5}}}, .attr = {.i = {1, 3}}},
    {.label = "of a vector", .n_in = 1, .in = {{1, {5}}}, .attr = {.i = {4, 1}}},
};
static const snd_op_case pad_cases[] = {{.label = "middle", .n_in = 1, .in = {{2, {3, 2}}}, .attr = {.i = {2, 5}}}};

const snd_op_info snd_op_slice = {.name = "slice",
                                  .shape = slice_shape,
                                  .run = slice_run,
                                  .grad = slice_grad,
                                  .cost = snd_cost_few,
                                  SND_CASES(slice_cases)};
const snd_op_info snd_op_pad = {
    .name = "pad", .shape = pad_shape, .run = pad_run, .grad = pad_grad, .cost = snd_cost_few, SND_CASES(pad_cases)};

snd_id snd_g_slice(snd_graph *g, snd_id x, int64_t first, int64_t n) {
    if (!x) return 0;
    if (first == 0 && n == last(snd_shape_of(g, x))) return x;
    const snd_attr a = {.i = {first, n}};
    return snd_g_op(g, SND_OP_SLICE, &x, 1, &a, NULL);
}
