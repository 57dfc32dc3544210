// A linear map whose iid N(0, v) weights W [n, k] are integrated out: the same law of outputs and gradients as
// y = x Wᵀ, dx = dy W, at a cost that does not hold W. For finite-width bands over many seeds; R rows, R small.
//   x = L Q, L [R, p], Q [p, k] with orthonormal rows (p the rank of x; pivoted Cholesky of x xᵀ = L Lᵀ)
//   forward   y = sqrt(v) L Z,  Z [p, n] iid N(0, 1): the columns of x Wᵀ are iid N(0, v x xᵀ)
//   backward  W = sqrt(v) (Zᵀ Q + G P), P the projection off the rows of x and G fresh, so
//             dx = sqrt(v) (dy Zᵀ Q + F P),  F = dy G = chol(dy dyᵀ) Z2
// Z is drawn again in the backward op from the same key, which is exact and keeps y free. The fresh part's key holds
// the backward node, so several chains through one map draw differently (each chain's law is exact, their joint law is
// not: real weights are shared by all chains).
// Invariants: everything in double, in the node's scratch; no memory is taken; rank-deficient x is fine; a row with a
// number that is not finite gives NaN in its own row.
// in: x.  out: y.  i[0] = n, f[0] = v.   backward in: dy, x; i[0] = the forward node, f[0] = v.
#include "ops/ops_impl.h"

#include <assert.h>
#include <math.h>
#include <string.h>

// ---- small dense algebra in double -----------------------------------------------------------------------------------------

enum { OWN_LOOP = 8 };   // below this many rows a library call costs more than the product

static double dot(int64_t n, const double *a, const double *b) {
    double s[8] = {0};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        for (int l = 0; l < 8; l++) s[l] += a[i + l] * b[i + l];
    }
    for (int l = 0; i + l < n; l++) s[l] += a[i + l] * b[i + l];
    return ((s[0] + s[4]) + (s[1] + s[5])) + ((s[2] + s[6]) + (s[3] + s[7]));
}

// C[m,p] = A[m,n] B[p,n]ᵀ; rows of C have stride ldc.
static void mul_t(int64_t m, int64_t p, int64_t n, const double *A, const double *B, double *C, int64_t ldc) {
    if (m >= OWN_LOOP && p > 0) {
        snd_k_gemm(1, SND_F64, false, true, m, p, n, 1, A, n, B, n, 0, C, ldc);
        return;
    }
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < p; j++) C[i * ldc + j] = dot(n, A + i * n, B + j * n);
    }
}

// C[m,n] += A[m,p] B[p,n]; rows of A have stride lda.
static void mul_add(int64_t m, int64_t p, int64_t n, const double *A, int64_t lda, const double *B, double *C) {
    if (m >= OWN_LOOP && p > 0) {
        snd_k_gemm(1, SND_F64, false, false, m, n, p, 1, A, lda, B, n, 1, C, n);
        return;
    }
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < p; j++) {
            const double a = A[i * lda + j];
            for (int64_t l = 0; l < n; l++) C[i * n + l] += a * B[j * n + l];
        }
    }
}

// Pivoted Cholesky of the Gram matrix G [R,R]: G = L Lᵀ up to a relative 1e-14 of the largest diagonal; L [R,R] with
// rank columns, zero beyond the pivot in pivot rows. d [R] is scratch. Rows that are not finite are left out (zero).
static int64_t cholesky(int64_t R, const double *G, double *L, double *d, int32_t *piv) {
    double top = 0;
    memset(L, 0, (size_t)(R * R) * sizeof *L);
    for (int64_t i = 0; i < R; i++) {
        d[i] = isfinite(G[i * R + i]) ? G[i * R + i] : 0;
        if (d[i] > top) top = d[i];
    }
    const double tol = top * 1e-14 + 1e-300;
    int64_t p = 0;
    for (; p < R; p++) {
        int64_t best = 0;
        for (int64_t i = 1; i < R; i++) {
            if (d[i] > d[best]) best = i;
        }
        if (!(d[best] > tol)) break;
        const double root = sqrt(d[best]);
        piv[p] = (int32_t)best;
        L[best * R + p] = root;
        d[best] = 0;
        for (int64_t i = 0; i < R; i++) {
            if (!(d[i] > 0)) continue;
            const double v = (G[i * R + best] - dot(p, L + i * R, L + best * R)) / root;
            L[i * R + p] = v;
            d[i] -= v * v;
        }
    }
    return p;
}

static void widen(snd_dtype t, const void *src, int64_t n, double *dst) { snd_convert(src, t, dst, SND_F64, n); }

static uint64_t mix(uint64_t x) { // splitmix64
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static void draw(uint64_t seed, int64_t node, int64_t n, double a, double *out) {
    const uint64_t k = mix(mix(seed) ^ mix((uint64_t)node + 1));
    snd_k_fill_normal(1, SND_F64, (snd_key){{(uint32_t)k, (uint32_t)(k >> 32)}}, 0, n, a, out);
}

static bool row_is_finite(int64_t n, const double *x) {
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) return false;
    }
    return true;
}

// A row that is not finite must not touch the others (0 * Inf): it counts as zero here and gives NaN at the end.
static void blank_bad_rows(int64_t R, int64_t n, double *x) {
    for (int64_t i = 0; i < R; i++) {
        if (!row_is_finite(n, x + i * n)) memset(x + i * n, 0, (size_t)n * sizeof *x);
    }
}

static void narrow_rows(const snd_run *r, int64_t R, int64_t n, const double *src, int64_t n_check, const void *check) {
    void *dst = snd_out(r, 0)->p;
    for (int64_t i = 0; i < R; i++) {
        bool ok = true;
        for (int64_t j = 0; j < n_check; j++) ok &= isfinite(snd_load(r->t, check, i * n_check + j)) != 0;
        for (int64_t j = 0; j < n; j++) snd_store(r->t, dst, i * n + j, ok ? src[i * n + j] : NAN);
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

typedef struct work { double *x, *y, *G, *L, *d, *Z, *Q, *F; int32_t *piv; } work;

// Doubles in the scratch: x [R,k], y [R,n], G, L [R,R], d [R], Z [R,max(n,k)], Q, F [R,k] and the pivots.
static size_t layout(int64_t R, int64_t k, int64_t n, double *base, work *w) {
    const int64_t m = n > k ? n : k;
    const int64_t sizes[] = {R * k, R * n, R * R, R * R, R, R * m, R * k, R * k};
    double **const parts[] = {&w->x, &w->y, &w->G, &w->L, &w->d, &w->Z, &w->Q, &w->F};
    int64_t at = 0;
    for (int i = 0; i < 8; i++) {
        if (base) *parts[i] = base + at;
        at += (sizes[i] + 7) / 8 * 8;
    }
    if (base) w->piv = (int32_t *)(base + at);
    return (size_t)(at + R) * sizeof(double);
}

static size_t forward_scratch(const snd_graph *g, const snd_node *n) {
    int64_t R, k;
    snd_rows(snd_shape_of(g, n->in[0]), &R, &k);
    work w;
    return layout(R, k, n->attr.i[0], NULL, &w);
}

static void forward_run(snd_run *r) {
    int64_t R, k;
    snd_rows(snd_in_shape(r, 0), &R, &k);
    const int64_t n = r->n->attr.i[0];
    const snd_rv *x = snd_in(r, 0);
    work w;
    layout(R, k, n, r->scratch, &w);
    widen(r->t, x->p, R * k, w.x);
    blank_bad_rows(R, k, w.x);
    mul_t(R, R, k, w.x, w.x, w.G, R);
    const int64_t p = cholesky(R, w.G, w.L, w.d, w.piv);
    draw(r->seed, r->index, p * n, sqrt(r->n->attr.f[0]), w.Z);
    memset(w.y, 0, (size_t)(R * n) * sizeof *w.y);
    mul_add(R, p, n, w.L, R, w.Z, w.y);
    narrow_rows(r, R, n, w.y, k, x->p);
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

const snd_op_info snd_op_glinear = {.name = "glinear", .shape = forward_shape, .run = forward_run, .grad = forward_grad,
                                    .scratch = forward_scratch, .cost = forward_cost};

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

// Q from L Q = x at the pivot rows, by forward substitution.
static void row_space(int64_t R, int64_t k, int64_t p, const work *w) {
    for (int64_t j = 0; j < p; j++) {
        double *q = w->Q + j * k;
        const double *l = w->L + w->piv[j] * R;
        memcpy(q, w->x + w->piv[j] * k, (size_t)k * sizeof *q);
        for (int64_t m = 0; m < j; m++) {
            for (int64_t i = 0; i < k; i++) q[i] -= l[m] * w->Q[m * k + i];
        }
        for (int64_t i = 0; i < k; i++) q[i] /= l[j];
    }
}

static void backward_run(snd_run *r) {
    int64_t R, k, n;
    snd_rows(snd_in_shape(r, 1), &R, &k);
    snd_rows(snd_in_shape(r, 0), &R, &n);
    const double sd = sqrt(r->n->attr.f[0]);
    const snd_rv *dy = snd_in(r, 0), *x = snd_in(r, 1);
    work w;
    layout(R, k, n, r->scratch, &w);
    widen(r->t, dy->p, R * n, w.y);
    widen(r->t, x->p, R * k, w.x);
    blank_bad_rows(R, n, w.y);
    blank_bad_rows(R, k, w.x);
    // the fresh part F = chol(dy dyᵀ) Z2
    mul_t(R, R, n, w.y, w.y, w.G, R);
    const int64_t p2 = cholesky(R, w.G, w.L, w.d, w.piv);
    draw(r->seed, r->index, p2 * k, sd, w.Z);
    memset(w.F, 0, (size_t)(R * k) * sizeof *w.F);
    mul_add(R, p2, k, w.L, R, w.Z, w.F);
    // the rows of x, and Z as the forward drew it
    mul_t(R, R, k, w.x, w.x, w.G, R);
    const int64_t p = cholesky(R, w.G, w.L, w.d, w.piv);
    row_space(R, k, p, &w);
    draw(r->seed, r->n->attr.i[0], p * n, sd, w.Z);
    // F + (dy Zᵀ - F Qᵀ) Q
    double *A = w.G, *B = w.L;
    mul_t(R, p, n, w.y, w.Z, A, R);
    mul_t(R, p, k, w.F, w.Q, B, R);
    for (int64_t i = 0; i < R; i++) {
        for (int64_t j = 0; j < p; j++) A[i * R + j] -= B[i * R + j];
    }
    mul_add(R, p, k, A, R, w.Q, w.F);
    narrow_rows(r, R, k, w.F, n, dy->p);
    snd_out_done(r, 0, dy->e, -1);
}

const snd_op_info snd_op_glinear_dx = {.name = "glinear_dx", .shape = backward_shape, .run = backward_run,
                                       .scratch = backward_scratch, .cost = snd_cost_some};
