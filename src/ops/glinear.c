// A linear map whose iid N(0, v) weights W [n, k] are integrated out: the same law of outputs and gradients as
// y = x Wᵀ, dx = dy W, at a cost that does not hold W. For finite-width bands over many seeds; R rows, R small.
//   x = L Q, L [R, p], Q [p, k] with orthonormal rows (p the rank of x; pivoted Cholesky of x xᵀ = L Lᵀ)
//   forward   y = sqrt(v) L Z,  Z [p, n] iid N(0, 1): the columns of x Wᵀ are iid N(0, v x xᵀ)
//   backward  W = sqrt(v) (Zᵀ Q + G P), P the projection off the rows of x and G fresh, so
//             dx = sqrt(v) (dy Zᵀ Q + F P),  F = dy G = chol(dy dyᵀ) Z2
// Z is drawn again in the backward op from the same key, which is exact and keeps y free. The fresh part's key holds
// the backward node, so several chains through one map draw differently (each chain's law is exact, their joint law is
// not: real weights are shared by all chains).
// Invariants: Gram matrices, Cholesky factors and Q in double, since nearly equal rows cancel there; the long products,
// which are well conditioned (Q is orthonormal), in the graph's type. No memory is taken beyond the node's scratch;
// rank-deficient x is fine; a row with a number that is not finite gives NaN in its own row.
// in: x.  out: y.  i[0] = n, f[0] = v.   backward in: dy, x; i[0] = the forward node, f[0] = v.
#include "ops/ops_impl.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static uint64_t mix(uint64_t x) { // splitmix64
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static void draw(const snd_run *r, int64_t node, int64_t n, void *out) {
    const uint64_t k = mix(mix(r->seed) ^ mix((uint64_t)node + 1));
    snd_k_fill_normal(1, r->t, (snd_key){{(uint32_t)k, (uint32_t)(k >> 32)}}, 0, n, sqrt(r->n->attr.f[0]), out);
}

// y becomes NaN in the rows whose entry of the Gram matrix's diagonal is not finite: there the operand was not.
static void mark_bad_rows(const snd_run *r, int64_t R, int64_t n, void *y, const bool *bad) {
    for (int64_t i = 0; i < R; i++) {
        for (int64_t j = 0; bad[i] && j < n; j++) snd_store(r->t, y, i * n + j, NAN);
    }
}

// ---- forward --------------------------------------------------------------------------------------------------------------------

static sonde_status forward_shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    (void)dtype;
    const snd_shape x = snd_shape_of(g, n->in[0]);
    SND_FAIL_IF(x.nd < 1 || n->attr.i[0] < 1, SONDE_ESHAPE, "a scalar input or no outputs");
    SND_FAIL_IF(!(n->attr.f[0] >= 0), SONDE_ERANGE, "the weights' variance is negative or not a number");
    *out = x;
    out->dim[x.nd - 1] = n->attr.i[0];
    return SONDE_OK;
}

// Scratch. In double: wide [R, max(n,k)] (a widened operand, later Q), G, L, M [R,R], d [2R]. In the graph's type, named
// by t: tL, tA [R,R], tZ [R, max(n,k)], tQ [R,k].
typedef struct work {
    double *wide, *G, *L, *M, *d;
    void *tL, *tA, *tZ, *tQ;
    int32_t *piv;
    bool *bad, *bad_dy; // [R]
} work;

static size_t layout(int64_t R, int64_t k, int64_t n, void *base, work *w) {
    const int64_t m = n > k ? n : k, sizes[] = {R * m, R * R, R * R, R * R, 2 * R, R * R, R * R, R * m, R * k};
    double *at[9];
    int64_t total = 0;
    for (int i = 0; i < 9; i++) { // f32 parts get the room of doubles: simple, and small
        at[i] = base ? (double *)base + total : NULL;
        total += (sizes[i] + 7) / 8 * 8;
    }
    int32_t *piv = base ? (int32_t *)((double *)base + total) : NULL;
    bool *bad = base ? (bool *)(piv + R) : NULL;
    *w = (work){at[0], at[1], at[2], at[3], at[4], at[5], at[6], at[7], at[8], piv, bad, bad ? bad + R : NULL};
    return (size_t)(total + R) * sizeof(double);
}

static size_t forward_scratch(const snd_graph *g, const snd_node *n) {
    int64_t R, k;
    snd_rows(snd_shape_of(g, n->in[0]), &R, &k);
    work w;
    return layout(R, k, n->attr.i[0], NULL, &w);
}

static void widen(snd_dtype t, const void *restrict src, int64_t n, double *restrict dst) {
    const float *f = src;
    if (t == SND_F64)
        memcpy(dst, src, (size_t)n * sizeof *dst);
    else
        for (int64_t i = 0; i < n; i++) dst[i] = (double)f[i];
}

static void narrow(snd_dtype t, const double *restrict src, int64_t n, void *restrict dst) {
    float *f = dst;
    if (t == SND_F64)
        memcpy(dst, src, (size_t)n * sizeof *src);
    else
        for (int64_t i = 0; i < n; i++) f[i] = (float)src[i];
}

// v widened into w->wide, its factor into w->L and, in the graph's type, w->tL. Returns the rank. A row that is not
// finite has a Gram entry that is not: its part of the factor is zero, and it must not touch the others (0 * Inf).
static int64_t factor(const snd_run *r, const snd_rv *v, int64_t R, int64_t cols, work *w) {
    widen(r->t, v->p, R * cols, w->wide);
    snd_k_gram(SND_F64, R, cols, w->wide, w->G);
    for (int64_t i = 0; i < R; i++) {
        w->bad[i] = !isfinite(w->G[i * R + i]);
        if (w->bad[i]) memset(w->wide + i * cols, 0, (size_t)cols * sizeof *w->wide);
    }
    const int64_t p = snd_k_cholesky(R, 1e-14, w->G, w->L, w->d, w->piv);
    narrow(r->t, w->L, R * R, w->tL);
    return p;
}

static void forward_run(snd_run *r) {
    int64_t R, k;
    snd_rows(snd_in_shape(r, 0), &R, &k);
    const int64_t n = r->n->attr.i[0];
    const snd_rv *x = snd_in(r, 0);
    void *y = snd_out(r, 0)->p;
    work w;
    layout(R, k, n, r->scratch, &w);
    const int64_t p = factor(r, x, R, k, &w);
    draw(r, r->index, p * n, w.tZ);
    if (p == 0)
        snd_k_fill_const(1, r->t, R * n, 0, y);
    else
        snd_k_gemm(1, r->t, false, false, R, n, p, 1, w.tL, R, w.tZ, n, 0, y, n);
    mark_bad_rows(r, R, n, y, w.bad);
    snd_out_done(r, 0, x->e, -1);
}

static void forward_grad(snd_graph *g, const snd_node *n, const snd_id *dout, const bool *need, snd_id *din) {
    (void)need;
    const snd_attr a = {.f = {n->attr.f[0]}, .i = {snd_g_value(g, n->out[0])->node}};
    din[0] = snd_g_op(g, SND_OP_GLINEAR_DX, (snd_id[]){dout[0], n->in[0]}, 2, &a, NULL);
}

static void forward_cost(const snd_graph *g, const snd_node *n, double *flops, double *bytes) {
    snd_cost_each(g, n, 0, flops, bytes);
    int64_t R, k;
    snd_rows(snd_shape_of(g, n->in[0]), &R, &k);
    *flops = 2.0 * (double)R * (double)R * (double)(k + n->attr.i[0]);
}

const snd_op_info snd_op_glinear = {.name = "glinear",
                                    .shape = forward_shape,
                                    .run = forward_run,
                                    .grad = forward_grad,
                                    .scratch = forward_scratch,
                                    .cost = forward_cost};

snd_id snd_g_glinear(snd_graph *g, snd_id x, int64_t n, double var) {
    if (!x) return 0;
    const snd_attr a = {.f = {var}, .i = {n}};
    return snd_g_op(g, SND_OP_GLINEAR, &x, 1, &a, NULL);
}

// ---- backward --------------------------------------------------------------------------------------------------------------------

static sonde_status backward_shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    (void)dtype;
    *out = snd_shape_of(g, n->in[1]);
    return SONDE_OK;
}

static size_t backward_scratch(const snd_graph *g, const snd_node *n) {
    int64_t R, k, no;
    snd_rows(snd_shape_of(g, n->in[1]), &R, &k);
    snd_rows(snd_shape_of(g, n->in[0]), &R, &no);
    work w;
    return layout(R, k, no, NULL, &w);
}

// Q = M x with L M = 1 at the pivot rows, M's columns at the pivots' places. x stands in w->wide, Q in w->tQ.
static void row_space(const snd_run *r, int64_t R, int64_t k, int64_t p, const work *w) {
    double *M = w->M, *Q = w->G; // G [R,R] is free, but Q is R x k: bands of columns, each R wide
    memset(M, 0, (size_t)(R * R) * sizeof *M);
    for (int64_t i = 0; i < p; i++) {
        const double *l = w->L + w->piv[i] * R;
        double *m = M + i * R;
        for (int64_t j = 0; j < i; j++) {
            for (int64_t c = 0; c <= j; c++) m[w->piv[c]] -= l[j] * M[j * R + w->piv[c]];
        }
        m[w->piv[i]] = 1;
        for (int64_t c = 0; c <= i; c++) m[w->piv[c]] /= l[i];
    }
    const size_t size = snd_dtype_size(r->t);
    for (int64_t c = 0; c < k; c += R) {
        const int64_t b = k - c < R ? k - c : R;
        snd_k_gemm(1, SND_F64, false, false, p, b, R, 1, M, R, w->wide + c, k, 0, Q, R);
        for (int64_t i = 0; i < p; i++) narrow(r->t, Q + i * R, b, (char *)w->tQ + (size_t)(i * k + c) * size);
    }
}

static void backward_run(snd_run *r) {
    int64_t R, k, n;
    snd_rows(snd_in_shape(r, 1), &R, &k);
    snd_rows(snd_in_shape(r, 0), &R, &n);
    const snd_rv *dy = snd_in(r, 0), *x = snd_in(r, 1);
    void *F = snd_out(r, 0)->p;
    work w;
    layout(R, k, n, r->scratch, &w);
    // the fresh part F = chol(dy dyᵀ) Z2
    const int64_t p2 = factor(r, dy, R, n, &w);
    memcpy(w.bad_dy, w.bad, (size_t)R * sizeof *w.bad);
    draw(r, r->index, p2 * k, w.tZ);
    if (p2 == 0)
        snd_k_fill_const(1, r->t, R * k, 0, F);
    else
        snd_k_gemm(1, r->t, false, false, R, k, p2, 1, w.tL, R, w.tZ, k, 0, F, k);
    // the rows of x, and Z as the forward drew it: F + (dy Zᵀ - F Qᵀ) Q
    const int64_t p = factor(r, x, R, k, &w);
    if (p > 0) {
        row_space(r, R, k, p, &w);
        draw(r, r->n->attr.i[0], p * n, w.tZ);
        snd_k_gemm(1, r->t, false, true, R, p, n, 1, dy->p, n, w.tZ, n, 0, w.tA, R);
        snd_k_gemm(1, r->t, false, true, R, p, k, -1, F, k, w.tQ, k, 1, w.tA, R);
        snd_k_gemm(1, r->t, false, false, R, k, p, 1, w.tA, R, w.tQ, k, 1, F, k);
    }
    mark_bad_rows(r, R, k, F, w.bad_dy);
    snd_out_done(r, 0, dy->e, -1);
}

const snd_op_info snd_op_glinear_dx = {.name = "glinear_dx",
                                       .shape = backward_shape,
                                       .run = backward_run,
                                       .scratch = backward_scratch,
                                       .cost = snd_cost_some};
