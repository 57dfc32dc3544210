// sonde/kernels.h: values against plain loops in double, gradients by central differences with random cotangents, the other
// types against f64, and a clear refusal of what can't be. The kernels themselves are tested in kernels_*_test.c.
#include "check.h"
#include "kernels/kernels.h"

#include <math.h>
#include <sonde/kernels.h>
#include <string.h>

enum { MOST = 4096 };

static void draw(const char *name, int64_t n, double *out) {
    for (int64_t i = 0; i < n; i++) out[i] = snd_normal_at(snd_key_make(3, name), (uint64_t)i);
}
static double dot(int64_t n, const double *a, const double *b) {
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += a[i] * b[i];
    return s;
}

// Derivative of f along every element of x, which is `grad` says.
typedef double objective(void *ctx);
static void differences(objective *f, void *ctx, int64_t n, double *x, const double *grad) {
    double size = 1e-12;
    for (int64_t i = 0; i < n; i++) size = fmax(size, fabs(grad[i]));
    for (int64_t i = 0; i < n; i++) {
        const double keep = x[i], h = 1e-4;
        double v[4];
        for (int k = 0; k < 4; k++) {
            x[i] = keep + h * (k < 2 ? k - 2 : k - 1);
            v[k] = f(ctx);
        }
        x[i] = keep;
        CHECK_CLOSE(grad[i] / size, (v[0] - 8 * v[1] + 8 * v[2] - v[3]) / (12 * h) / size, 2e-9);
    }
}

// ---- norms --------------------------------------------------------------------------------------------------------------

typedef struct norm_case {
    sonde_norm n;
    int64_t rows;
    double alpha, beta;
    double x[MOST], y[MOST], s[MOST], z[MOST], cot_s[MOST], cot_z[MOST], gain[64], bias[64], mean[64], rstd[64];
} norm_case;

static double norm_objective(void *ctx) {
    norm_case *c = ctx;
    CHECK_OK(sonde_addnorm_forward(&c->n, c->rows, c->alpha, c->x, c->beta, c->y, c->s, c->z, c->mean, c->rstd));
    return dot(c->rows * c->n.features, c->cot_s, c->s) + dot(c->rows * c->n.features, c->cot_z, c->z);
}

static void norm_reference(const norm_case *c) {
    const int64_t D = c->n.features;
    for (int64_t r = 0; r < c->rows; r++) {
        double m = 0, v = 0;
        for (int64_t j = 0; j < D; j++) m += (c->alpha * c->x[r * D + j] + c->beta * c->y[r * D + j]) / (double)D;
        if (c->n.kind == SONDE_NORM_RMS) m = 0;
        for (int64_t j = 0; j < D; j++) v += (c->s[r * D + j] - m) * (c->s[r * D + j] - m) / (double)D;
        for (int64_t j = 0; j < D; j++) {
            const double sum = c->alpha * c->x[r * D + j] + c->beta * c->y[r * D + j];
            CHECK_CLOSE(c->s[r * D + j], sum, 1e-14);
            const double gain = c->n.gain ? c->gain[j] + c->n.plus1 : 1, bias = c->n.bias ? c->bias[j] : 0;
            CHECK_CLOSE(c->z[r * D + j], (sum - m) / sqrt(v + c->n.eps) * gain + bias, 1e-12);
        }
    }
}

static void norms_and_their_gradients(void **state) {
    (void)state;
    static norm_case c;
    static double ds[MOST], dx[MOST], dg[64], db[64];
    for (int kind = SONDE_NORM_LAYER; kind <= SONDE_NORM_RMS; kind++)
        for (int variant = 0; variant < 4; variant++) {
            c.n = (sonde_norm){.kind = (sonde_norm_kind)kind,
                               .type = SONDE_TYPE_F64,
                               .features = 5 + 7 * variant,
                               .eps = 1e-3,
                               .gain = variant ? c.gain : NULL,
                               .bias = variant > 1 ? c.bias : NULL,
                               .plus1 = variant == 3,
                               .threads = 2};
            c.rows = 3, c.alpha = 1.5, c.beta = -0.5;
            const int64_t n = c.rows * c.n.features;
            draw("x", n, c.x), draw("y", n, c.y), draw("cs", n, c.cot_s), draw("cz", n, c.cot_z);
            draw("g", c.n.features, c.gain), draw("b", c.n.features, c.bias);
            norm_objective(&c);
            norm_reference(&c);
            CHECK_OK(sonde_norm_backward(&c.n, c.rows, c.cot_z, c.s, c.mean, c.rstd, c.cot_s, ds, dg, db, NULL));
            for (int64_t i = 0; i < n; i++) dx[i] = c.alpha * ds[i];
            differences(norm_objective, &c, n, c.x, dx);
            if (c.n.gain) differences(norm_objective, &c, c.n.features, c.gain, dg);
            if (c.n.bias) differences(norm_objective, &c, c.n.features, c.bias, db);
            // the norm alone is the fused pass on a sum that is there, with scratch of the caller's
            norm_objective(&c);
            static double z[MOST], dg2[64], scratch[MOST];
            assert_true(sonde_norm_backward_scratch(c.rows, c.n.features) <= sizeof scratch);
            CHECK_OK(sonde_norm_forward(&c.n, c.rows, c.s, z, c.mean, c.rstd));
            assert_memory_equal(z, c.z, (size_t)n * sizeof *z);
            CHECK_OK(sonde_norm_backward(&c.n, c.rows, c.cot_z, c.s, c.mean, c.rstd, NULL, NULL, dg2, NULL, scratch));
            assert_memory_equal(dg2, dg, (size_t)c.n.features * sizeof *dg);
        }
}

static void norms_in_f32_follow_f64(void **state) {
    (void)state;
    enum { R = 5, D = 100 };
    double x[R * D], z[R * D], m[R], r[R];
    float xf[R * D], zf[R * D];
    draw("x", R * D, x);
    for (int i = 0; i < R * D; i++) x[i] = xf[i] = (float)(1000 + x[i]);
    sonde_norm n = {.kind = SONDE_NORM_LAYER, .type = SONDE_TYPE_F64, .features = D, .eps = 1e-5};
    CHECK_OK(sonde_norm_forward(&n, R, x, z, m, r));
    n.type = SONDE_TYPE_F32;
    CHECK_OK(sonde_norm_forward(&n, R, xf, zf, m, r));
    for (int i = 0; i < R * D; i++) CHECK_CLOSE((double)zf[i], z[i], 1e-5);
}

// ---- attention ------------------------------------------------------------------------------------------------------------

typedef struct attention_case {
    sonde_attention a;
    double q[MOST], k[MOST], v[MOST], out[MOST], lse[512], cot[MOST];
} attention_case;

static int64_t out_size(const sonde_attention *a) {
    return a->batch * a->queries * a->heads * a->head_dim;
}
static double attention_objective(void *ctx) {
    attention_case *c = ctx;
    CHECK_OK(sonde_attention_forward(&c->a, c->q, c->k, c->v, c->out, c->lse, NULL));
    return dot(out_size(&c->a), c->cot, c->out);
}

static bool reads(const sonde_attention *a, int64_t b, int64_t i, int64_t j) {
    const int64_t gap = a->keys - a->queries + i - j, far = gap < 0 ? -gap : gap;
    if (a->lengths && j >= a->lengths[b]) return false;
    if (a->causal && gap < 0) return false;
    return !a->window || far < a->window;
}

static void attention_reference(const attention_case *c) {
    const sonde_attention *a = &c->a;
    const int64_t kv = a->kv_heads ? a->kv_heads : a->heads, hd = a->head_dim;
    const double scale = a->scale != 0 ? a->scale : 1 / sqrt((double)hd);
    for (int64_t b = 0; b < a->batch; b++)
        for (int64_t h = 0; h < a->heads; h++)
            for (int64_t i = 0; i < a->queries; i++) {
                double p[64], total = 0;
                const double *q = c->q + ((b * a->queries + i) * a->heads + h) * hd;
                for (int64_t j = 0; j < a->keys; j++) {
                    const double s = scale * dot(hd, q, c->k + ((b * a->keys + j) * kv + h / (a->heads / kv)) * hd);
                    const double capped = a->softcap > 0 ? a->softcap * tanh(s / a->softcap) : s;
                    total += p[j] = reads(a, b, i, j) ? exp(capped) : 0;
                }
                CHECK_CLOSE(c->lse[(b * a->heads + h) * a->queries + i], log(total), 1e-12);
                for (int64_t e = 0; e < hd; e++) {
                    double want = 0;
                    for (int64_t j = 0; j < a->keys; j++)
                        want += p[j] / total * c->v[((b * a->keys + j) * kv + h / (a->heads / kv)) * hd + e];
                    CHECK_CLOSE(c->out[((b * a->queries + i) * a->heads + h) * hd + e], want, 1e-12);
                }
            }
}

static void attention_and_its_gradients(void **state) {
    (void)state;
    static attention_case c;
    static double dq[MOST], dk[MOST], dv[MOST];
    static const int64_t lengths[2] = {3, 7};
    const sonde_attention cases[] = {
        {.type = SONDE_TYPE_F64, .batch = 2, .queries = 5, .keys = 7, .heads = 2, .head_dim = 3},
        {.type = SONDE_TYPE_F64,
         .batch = 1,
         .queries = 6,
         .keys = 6,
         .heads = 4,
         .kv_heads = 2,
         .head_dim = 2,
         .causal = 1},
        {.type = SONDE_TYPE_F64,
         .batch = 1,
         .queries = 4,
         .keys = 9,
         .heads = 2,
         .kv_heads = 1,
         .head_dim = 4,
         .causal = 1,
         .window = 3,
         .softcap = 2,
         .scale = 1.7,
         .threads = 2},
        {.type = SONDE_TYPE_F64, .batch = 2, .queries = 7, .keys = 7, .heads = 1, .head_dim = 5, .lengths = lengths},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        c.a = cases[i];
        const int64_t kv = c.a.kv_heads ? c.a.kv_heads : c.a.heads, n = out_size(&c.a),
                      nk = c.a.batch * c.a.keys * kv * c.a.head_dim;
        draw("q", n, c.q), draw("k", nk, c.k), draw("v", nk, c.v), draw("cot", n, c.cot);
        attention_objective(&c);
        attention_reference(&c);
        void *scratch = snd_aligned_alloc(64, (sonde_attention_scratch(&c.a) + 127) / 64 * 64);
        CHECK_OK(sonde_attention_backward(&c.a, c.q, c.k, c.v, c.out, c.lse, c.cot, dq, dk, dv, scratch));
        snd_free(scratch);
        differences(attention_objective, &c, n, c.q, dq);
        differences(attention_objective, &c, nk, c.k, dk);
        differences(attention_objective, &c, nk, c.v, dv);
    }
}

// A NaN, or a score that overflows, reaches the queries that read it and the keys that these read, and no others.
static void attention_keeps_bad_numbers_to_their_readers(void **state) {
    (void)state;
    enum { T = 70, HD = 8, N = T * HD };
    static const struct {
        int query, key, value; // a row made bad, -1: none
        float bad;
        int first, last; // queries whose results are not finite
    } cases[] = {{-1, -1, -1, 0, T, T},
                 {10, -1, -1, NAN, 10, 11},
                 {-1, 40, -1, NAN, 40, T},
                 {-1, -1, 66, INFINITY, 66, T},
                 {10, 5, -1, 1e30f, 10, 11}};
    static float q[N], k[N], v[N], cot[N], out[N], dq[N], dk[N], dv[N];
    static const char *const names[] = {"q", "k", "v", "cot"};
    float *const arrays[] = {q, k, v, cot};
    double lse[T], draws[N];
    const sonde_attention a = {
        .type = SONDE_TYPE_F32, .batch = 1, .queries = T, .keys = T, .heads = 1, .head_dim = HD, .causal = 1};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int rows[] = {cases[i].query, cases[i].key, cases[i].value};
        for (int m = 0; m < 4; m++) {
            draw(names[m], N, draws);
            for (int n = 0; n < N; n++) arrays[m][n] = m < 3 && n / HD == rows[m] ? cases[i].bad : (float)draws[n];
        }
        CHECK_OK(sonde_attention_forward(&a, q, k, v, out, lse, NULL));
        CHECK_OK(sonde_attention_backward(&a, q, k, v, out, lse, cot, dq, dk, dv, NULL));
        for (int n = 0; n < N; n++) {
            const bool bad = n / HD >= cases[i].first && n / HD < cases[i].last;
            assert_int_equal(!isfinite(out[n]), bad);
            assert_int_equal(!isfinite(dq[n]), bad);
            if (n / HD >= cases[i].last) assert_true(isfinite(dk[n]) && isfinite(dv[n]));
        }
    }
}

// ---- losses -----------------------------------------------------------------------------------------------------------------

typedef struct loss_case {
    double logits[60], lse[6], smoothing;
    int64_t target[6], used;
} loss_case;

static double loss_objective(void *ctx) {
    loss_case *c = ctx;
    double loss = NAN;
    CHECK_OK(sonde_cross_entropy_forward(SONDE_TYPE_F64, 6, 10, c->smoothing, c->logits, c->target, -100, c->lse,
                                         &c->used, &loss, 1));
    return 2.5 * loss;
}

static void cross_entropy_and_its_gradient(void **state) {
    (void)state;
    for (int smooth = 0; smooth < 2; smooth++) {
        loss_case c = {.target = {0, 9, -100, 4, 4, -100}, .smoothing = smooth ? 0.1 : 0};
        double d[60], want = 0;
        draw("logits", 60, c.logits);
        const double got = loss_objective(&c);
        for (int i = 0; i < 6; i++) {
            if (c.target[i] < 0) continue;
            double sum = 0, mean = 0;
            for (int j = 0; j < 10; j++) sum += exp(c.logits[i * 10 + j]), mean += c.logits[i * 10 + j] / 10;
            want += (log(sum) - (1 - c.smoothing) * c.logits[i * 10 + c.target[i]] - c.smoothing * mean) / 4;
        }
        CHECK_CLOSE(got, 2.5 * want, 1e-12);
        assert_int_equal(c.used, 4);
        CHECK_OK(sonde_cross_entropy_backward(SONDE_TYPE_F64, 6, 10, c.smoothing, c.logits, c.target, -100, c.lse,
                                              c.used, 2.5, d, 1));
        differences(loss_objective, &c, 60, c.logits, d);
    }
}

// ---- bf16 -------------------------------------------------------------------------------------------------------------------

// n draws as bf16, and the numbers that these are.
static void draw_bf16(const char *name, int64_t n, uint16_t *half, double *wide) {
    draw(name, n, wide);
    snd_convert(wide, SND_F64, half, SND_BF16, n);
    snd_convert(half, SND_BF16, wide, SND_F64, n);
}

// The bf16 next to what f64 says: half a step is at most 2^-8 of a number; f32 in between, of numbers of this size.
static void near_bf16(int64_t n, const uint16_t *got, const double *want, double size) {
    const double slack = 32 * 0x1p-23 * size;
    for (int64_t i = 0; i < n; i++) {
        const double v = (double)snd_bf16_to_f32(got[i]), tol = 0x1p-8 * (fabs(want[i]) + slack) + slack;
        if (!(fabs(v - want[i]) <= tol)) fail_msg("[%d]: %.9g, want %.9g within %.3g", (int)i, v, want[i], tol);
    }
}

// Everything by the f64 kernels on the same numbers; s as the fused pass stored it.
static void norms_on_bf16_follow_f64(void **state) {
    (void)state;
    enum { R = 40, D = 300, N = R * D };
    static uint16_t x[N], y[N], s[N], z[N], z2[N], dz[N], plus[N], ds[N];
    static double wx[N], wy[N], ws[N], wz[N], wdz[N], wplus[N], wds[N], gain[D], bias[D], dg[D], db[D], m[R], r[R],
        m2[R], r2[R];
    static float fgain[D], fbias[D], fdg[D], fdb[D];
    draw_bf16("x", N, x, wx), draw_bf16("y", N, y, wy), draw_bf16("dz", N, dz, wdz), draw_bf16("plus", N, plus, wplus);
    draw("g", D, gain), draw("b", D, bias);
    for (int j = 0; j < D; j++) gain[j] = fgain[j] = (float)gain[j], bias[j] = fbias[j] = (float)bias[j];
    for (int kind = SONDE_NORM_LAYER; kind <= SONDE_NORM_RMS; kind++) {
        sonde_norm n = {.kind = (sonde_norm_kind)kind, .type = SONDE_TYPE_BF16, .features = D, .eps = 1e-5};
        n.gain = fgain, n.bias = fbias, n.plus1 = kind == SONDE_NORM_RMS;
        CHECK_OK(sonde_addnorm_forward(&n, R, 1, x, 0.5, y, s, z, m, r));
        CHECK_OK(sonde_norm_forward(&n, R, s, z2, m2, r2));
        assert_memory_equal(z2, z, sizeof z);
        assert_memory_equal(r2, r, sizeof r);
        CHECK_OK(sonde_norm_backward(&n, R, dz, s, m, r, plus, ds, fdg, fdb, NULL));
        for (int i = 0; i < N; i++) ws[i] = wx[i] + 0.5 * wy[i];
        near_bf16(N, s, ws, 4);
        snd_convert(s, SND_BF16, ws, SND_F64, N);
        n.type = SONDE_TYPE_F64, n.gain = gain, n.bias = bias;
        CHECK_OK(sonde_norm_forward(&n, R, ws, wz, m2, r2));
        for (int i = 0; i < R; i++) CHECK_REL(r[i], r2[i], 1e-6);
        near_bf16(N, z, wz, 8);
        CHECK_OK(sonde_norm_backward(&n, R, wdz, ws, m2, r2, wplus, wds, dg, db, NULL));
        near_bf16(N, ds, wds, 8);
        for (int j = 0; j < D; j++) CHECK_CLOSE((double)fdg[j], dg[j], 1e-5), CHECK_CLOSE((double)fdb[j], db[j], 1e-5);
    }
}

static void attention_on_bf16_follows_f64(void **state) {
    (void)state;
    enum { B = 2, T = 90, H = 4, KV = 2, HD = 16, N = B * T * H * HD, NK = B * T * KV * HD, ROWS = B * T * H };
    static uint16_t q[N], k[NK], v[NK], out[N], dout[N], dq[N], dk[NK], dv[NK];
    static double wq[N], wk[NK], wv[N], wout[N], wdout[N], wdq[N], wdk[NK], wdv[NK], lse[ROWS], wlse[ROWS];
    draw_bf16("q", N, q, wq), draw_bf16("k", NK, k, wk), draw_bf16("v", NK, v, wv), draw_bf16("cot", N, dout, wdout);
    sonde_attention a = {
        .type = SONDE_TYPE_BF16, .batch = B, .queries = T, .keys = T, .heads = H, .kv_heads = KV, .head_dim = HD};
    a.causal = 1;
    void *scratch = snd_aligned_alloc(64, (sonde_attention_scratch(&a) + 63) / 64 * 64);
    CHECK_OK(sonde_attention_forward(&a, q, k, v, out, lse, scratch));
    CHECK_OK(sonde_attention_backward(&a, q, k, v, out, lse, dout, dq, dk, dv, scratch));
    snd_free(scratch);
    a.type = SONDE_TYPE_F64;
    CHECK_OK(sonde_attention_forward(&a, wq, wk, wv, wout, wlse, NULL));
    near_bf16(N, out, wout, 4);
    for (int i = 0; i < ROWS; i++) CHECK_CLOSE(lse[i], wlse[i], 1e-5);
    snd_convert(out, SND_BF16, wout, SND_F64, N); // backward's result is that of what it reads
    CHECK_OK(sonde_attention_backward(&a, wq, wk, wv, wout, wlse, wdout, wdq, wdk, wdv, NULL));
    near_bf16(N, dq, wdq, 8);
    near_bf16(NK, dk, wdk, 8);
    near_bf16(NK, dv, wdv, 8);
}

static void cross_entropy_on_bf16_follows_f64(void **state) {
    (void)state;
    static uint16_t x[60], d[60];
    static double wx[60], wd[60], lse[6], wlse[6];
    const int64_t target[6] = {0, 9, -100, 4, 4, -100};
    double loss, wloss;
    int64_t used;
    draw_bf16("logits", 60, x, wx);
    CHECK_OK(sonde_cross_entropy_forward(SONDE_TYPE_BF16, 6, 10, 0.1, x, target, -100, lse, &used, &loss, 2));
    CHECK_OK(sonde_cross_entropy_backward(SONDE_TYPE_BF16, 6, 10, 0.1, x, target, -100, lse, used, 1, d, 2));
    CHECK_OK(sonde_cross_entropy_forward(SONDE_TYPE_F64, 6, 10, 0.1, wx, target, -100, wlse, &used, &wloss, 1));
    CHECK_OK(sonde_cross_entropy_backward(SONDE_TYPE_F64, 6, 10, 0.1, wx, target, -100, wlse, used, 1, wd, 1));
    CHECK_CLOSE(loss, wloss, 1e-6);
    near_bf16(60, d, wd, 0.25);
}

// Without memory for what is widened a call says so, keeps nothing and writes nothing.
static void bf16_without_memory(void **state) {
    (void)state;
    uint16_t x[8] = {0}, z[8] = {7, 7, 7, 7, 7, 7, 7, 7};
    double lse[2] = {1, 1}, loss;
    const int64_t target[2] = {0, 1};
    int64_t used;
    const sonde_attention a = {.type = SONDE_TYPE_BF16, .batch = 1, .queries = 2, .keys = 2, .heads = 1, .head_dim = 4};
    const size_t before = snd_alloc_bytes();
    for (int k = 0; k < 4; k++) {
        snd_alloc_fail_at(1);
        const sonde_status got =
            k == 0   ? sonde_attention_forward(&a, x, x, x, z, lse, NULL)
            : k == 1 ? sonde_attention_backward(&a, x, x, x, x, lse, x, z, z, z, NULL)
            : k == 2 ? sonde_cross_entropy_forward(SONDE_TYPE_BF16, 2, 4, 0, x, target, -100, lse, &used, &loss, 1)
                     : sonde_cross_entropy_backward(SONDE_TYPE_BF16, 2, 4, 0, x, target, -100, lse, 2, 1, z, 1);
        snd_alloc_fail_at(0);
        assert_int_equal(got, SONDE_ENOMEM);
        assert_int_equal(snd_alloc_bytes(), before);
        for (int i = 0; i < 8; i++) assert_int_equal(z[i], 7);
    }
    CHECK_OK(sonde_cross_entropy_forward(SONDE_TYPE_BF16, 2, 4, 0, x, target, -100, lse, &used, &loss, 1));
    assert_int_equal(snd_alloc_bytes(), before);
}

// ---- what can't be ------------------------------------------------------------------------------------------------------------

#define CHECK_FAILS(call, want, part)                                                                                  \
    do {                                                                                                               \
        CHECK_STATUS(call, want);                                                                                      \
        if (!strstr(sonde_error_message(), part)) fail_msg("'%s' lacks '%s'", sonde_error_message(), part);            \
    } while (0)

static void refusals_say_what_was_found(void **state) {
    (void)state;
    double x[8] = {0}, y[8], z[8], m[2], r[2], loss;
    const int64_t target[2] = {0, 7};
    int64_t used;
    sonde_norm n = {.kind = SONDE_NORM_LAYER, .type = SONDE_TYPE_F64, .features = 4, .eps = -1};
    CHECK_FAILS(sonde_norm_forward(&n, 2, x, y, m, r), SONDE_ERANGE, "eps is -1");
    n.eps = NAN;
    CHECK_FAILS(sonde_norm_forward(&n, 2, x, y, m, r), SONDE_ERANGE, "eps is nan");
    n.eps = 1e-5;
    CHECK_FAILS(sonde_norm_forward(&n, 2, x, x, m, r), SONDE_EUSAGE, "y is x");
    CHECK_FAILS(sonde_norm_forward(&n, 2, x, y, NULL, r), SONDE_EUSAGE, "mean is NULL");
    CHECK_FAILS(sonde_norm_forward(&n, -1, x, y, m, r), SONDE_ERANGE, "-1 rows");
    CHECK_FAILS(sonde_addnorm_forward(&n, 2, 1, x, 1, y, z, z, m, r), SONDE_EUSAGE, "z is also");
    CHECK_FAILS(sonde_norm_backward(&n, 2, y, x, m, r, NULL, x, NULL, NULL, NULL), SONDE_EUSAGE, "ds is s");
    n.features = 0;
    CHECK_FAILS(sonde_norm_forward(&n, 2, x, y, m, r), SONDE_ERANGE, "0 features");
    n = (sonde_norm){.kind = SONDE_NORM_RMS, .features = 4};
    CHECK_FAILS(sonde_norm_forward(&n, 2, x, y, m, r), SONDE_ERANGE, "element type 0");
    n.type = (sonde_type)4;
    CHECK_FAILS(sonde_norm_forward(&n, 2, x, y, m, r), SONDE_ERANGE, "element type 4");

    sonde_attention a = {
        .type = SONDE_TYPE_F64, .batch = 1, .queries = 2, .keys = 1, .heads = 2, .head_dim = 2, .causal = 1};
    CHECK_FAILS(sonde_attention_forward(&a, x, x, x, y, z, NULL), SONDE_ERANGE, "2 causal queries on 1 keys");
    assert_int_equal(sonde_attention_scratch(&a), 0);
    a.keys = 2, a.heads = 3, a.kv_heads = 2;
    CHECK_FAILS(sonde_attention_forward(&a, x, x, x, y, z, NULL), SONDE_ERANGE, "3 heads share 2");
    a.heads = 2;
    const int64_t none = 0;
    a.lengths = &none;
    CHECK_FAILS(sonde_attention_forward(&a, x, x, x, y, z, NULL), SONDE_ERANGE, "lengths[0] is 0");

    CHECK_FAILS(sonde_cross_entropy_forward(SONDE_TYPE_F64, 2, 4, 0, x, target, -100, m, &used, &loss, 1), SONDE_ERANGE,
                "target[1] is 7");
    CHECK_FAILS(sonde_cross_entropy_forward(SONDE_TYPE_F64, 2, 4, 1, x, target, -100, m, &used, &loss, 1), SONDE_ERANGE,
                "smoothing is 1");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_and_their_gradients),   cmocka_unit_test(norms_in_f32_follow_f64),
        cmocka_unit_test(attention_and_its_gradients), cmocka_unit_test(cross_entropy_and_its_gradient),
        cmocka_unit_test(norms_on_bf16_follow_f64),    cmocka_unit_test(attention_on_bf16_follows_f64),
        cmocka_unit_test(bf16_without_memory),         cmocka_unit_test(cross_entropy_on_bf16_follows_f64),
        cmocka_unit_test(refusals_say_what_was_found), cmocka_unit_test(attention_keeps_bad_numbers_to_their_readers),
    };
    return cmocka_run_group_tests_name("public kernels", tests, NULL, NULL);
}
