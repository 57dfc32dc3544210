// Attention kernels against plain loops over the whole matrix of scores, in double: results and all gradients, for each
// type and instruction set, one to four threads bit for bit, with guarded and misaligned arrays.
#include "kernels_common.h"

enum { NEAR = 0 };
static const int64_t FAR = INT64_C(1) << 60;

typedef struct setup {
    const char *what;
    int64_t B, Tq, Tk, heads, kv_heads, hd, past, front, back;
    double softcap;
    bool bias, relative;
} setup;

static const setup setups[] = {
    {"causal, strips fit", 2, 80, 80, 2, 2, 64, 0, NEAR, FAR, 0, false, false},
    {"causal, ragged", 1, 133, 133, 2, 1, 20, 0, NEAR, FAR, 0, false, false},
    {"all keys", 1, 70, 200, 3, 1, 32, 0, FAR, FAR, 0, false, false},
    {"window", 1, 300, 300, 1, 1, 16, 0, NEAR, 75, 0, false, false},
    {"window both ways, softcap", 1, 150, 150, 2, 2, 8, 0, 30, 30, 2, false, false},
    {"bias", 2, 66, 100, 2, 2, 7, 34, NEAR, FAR, 0, true, false},
    {"bias, all keys, softcap", 1, 65, 129, 2, 1, 33, 0, FAR, FAR, 1.5, true, false},
    {"relative", 3, 72, 104, 2, 1, 32, 32, NEAR, FAR, 0, false, true},
    {"relative, window, softcap", 1, 70, 75, 2, 2, 5, 5, NEAR, 40, 2, false, true},
    {"keys in several ranges", 1, 330, 330, 1, 1, 260, 0, NEAR, FAR, 0, false, false},
    {"relative, several ranges", 1, 90, 140, 1, 1, 600, 50, NEAR, 100, 0, false, true},
    {"many heads", 9, 3, 3, 16, 16, 2, 0, NEAR, FAR, 0, true, false},
    {"many heads, relative", 9, 3, 3, 16, 16, 2, 0, NEAR, FAR, 0, false, true},
    {"one query", 2, 1, 70, 2, 2, 16, 69, NEAR, FAR, 0, false, false},
    {"one of each", 1, 1, 1, 1, 1, 1, 0, NEAR, FAR, 0, false, false},
};

enum { OUT, DQ, DK, DV, DQR, DR, RESULTS };
typedef struct tensors {
    arr q, k, v, qr, r, bias, dout, result[RESULTS];
    double *lse, *dbias, stats[3];
} tensors;

static int64_t query_count(const setup *s) {
    return s->B * s->Tq * s->heads * s->hd;
}
static int64_t key_count(const setup *s) {
    return s->B * s->Tk * s->kv_heads * s->hd;
}
static int64_t relative_count(const setup *s) {
    return s->relative ? (s->past + s->Tq) * s->heads * s->hd : 1;
}
static int64_t bias_count(const setup *s) {
    return s->heads * (s->Tq + s->Tk - 1);
}
static int64_t result_count(const setup *s, int k) {
    return k == DK || k == DV ? key_count(s) : k == DR ? relative_count(s) : query_count(s);
}

static tensors furnish(snd_dtype t, const setup *s, int shift) {
    const double size = 1.5 / sqrt(sqrt((double)s->hd)); // scores of about 2
    tensors x = {.q = arr_draw(t, query_count(s), shift, "q", size),
                 .k = arr_draw(t, key_count(s), shift, "k", size),
                 .v = arr_draw(t, key_count(s), shift, "v", 1),
                 .qr = arr_draw(t, query_count(s), shift, "qr", size),
                 .r = arr_draw(t, relative_count(s), shift, "r", size),
                 .bias = arr_draw(t, bias_count(s), shift, "bias", 1),
                 .dout = arr_draw(t, query_count(s), shift, "dout", 1)};
    for (int k = 0; k < RESULTS; k++) x.result[k] = arr_make(t, result_count(s, k), shift);
    x.lse = snd_calloc((size_t)(s->B * s->heads * s->Tq), sizeof(double));
    x.dbias = snd_calloc((size_t)bias_count(s), sizeof(double));
    return x;
}

static void clear(tensors *x) {
    arr *const all[] = {&x->q, &x->k, &x->v, &x->qr, &x->r, &x->bias, &x->dout};
    for (int i = 0; i < 7; i++) arr_free(all[i]);
    for (int k = 0; k < RESULTS; k++) arr_free(&x->result[k]);
    snd_free(x->lse);
    snd_free(x->dbias);
}

static const double scale = 0.8;

static snd_kattn call_of(const setup *s, const tensors *x) {
    return (snd_kattn){.B = s->B,
                       .Tq = s->Tq,
                       .Tk = s->Tk,
                       .heads = s->heads,
                       .kv_heads = s->kv_heads,
                       .hd = s->hd,
                       .past = s->past,
                       .front = s->front,
                       .back = s->back,
                       .scale = scale,
                       .scale_r = scale,
                       .softcap = s->softcap,
                       .q = x->q.p,
                       .k = x->k.p,
                       .v = x->v.p,
                       .qr = s->relative ? x->qr.p : NULL,
                       .r = s->relative ? x->r.p : NULL,
                       .bias = s->bias ? x->bias.p : NULL,
                       .fq = 1,
                       .fk = 1,
                       .fv = 1,
                       .fqr = 1,
                       .fr = 1};
}

static void run(int th, snd_dtype t, const snd_kattn *a, const setup *s, tensors *x) {
    void **const p[] = {&x->result[DQ].p, &x->result[DK].p, &x->result[DV].p, &x->result[DQR].p, &x->result[DR].p};
    const snd_kattn_grads g = {.out = x->result[OUT].p,
                               .dout = x->dout.p,
                               .fout = 1,
                               .fdout = 1,
                               .lse = x->lse,
                               .dq = *p[0],
                               .dk = *p[1],
                               .dv = *p[2],
                               .dqr = s->relative ? *p[3] : NULL,
                               .dr = s->relative ? *p[4] : NULL,
                               .r_rows = s->relative ? s->past + s->Tq : 0,
                               .dbias = s->bias ? x->dbias : NULL};
    const size_t bytes[] = {snd_k_attn_scratch(t, a, SND_KATTN_FWD), snd_k_attn_bwd_scratch(t, a, &g),
                            snd_k_attn_scratch(t, a, SND_KATTN_STATS)};
    for (int i = 0; i < 3; i++) {
        arr scratch = arr_make(SND_F64, (int64_t)(bytes[i] / sizeof(double)) + 1, 0);
        if (i == 0) snd_k_attn_fwd(th, t, a, x->result[OUT].p, x->lse, NULL, scratch.p);
        if (i == 1) snd_k_attn_bwd(th, t, a, &g, scratch.p);
        if (i == 2) snd_k_attn_stats(th, t, a, x->stats, scratch.p);
        arr_free(&scratch);
    }
}

// The forward pass that takes its statistics along gives what each of the two gives alone.
static void run_with_stats(int th, snd_dtype t, const snd_kattn *a, const setup *s, const tensors *x) {
    const int64_t rows = s->B * s->heads * s->Tq;
    const size_t bytes = snd_k_attn_scratch(t, a, SND_KATTN_FWD);
    arr scratch = arr_make(SND_F64, (int64_t)(bytes / sizeof(double)) + 1, 0), out = arr_make(t, x->result[OUT].n, 1),
        lse = arr_make(SND_F64, rows, 0);
    double stats[3];
    snd_k_attn_fwd(th, t, a, out.p, lse.p, stats, scratch.p);
    if (!same_bits(&out, &x->result[OUT])) fail_msg("%s: the result is another with statistics", s->what);
    assert_memory_equal(lse.p, x->lse, (size_t)rows * sizeof(double));
    for (int k = 0; k < 3; k++) CHECK_SAME(stats[k], x->stats[k]);
    arr_free(&scratch), arr_free(&out), arr_free(&lse);
}

// ---- reference ------------------------------------------------------------------------------------------------------

typedef struct wanted {
    double *result[RESULTS], *lse, *dbias, stats[3];
} wanted;

// One row of scores and what follows from it. p, ds: [Tk].
static void reference_row(const setup *s, const tensors *x, int64_t b, int64_t h, int64_t i, double *p, double *ds,
                          wanted *w, int64_t *choices) {
    const int64_t n = s->hd, kv = h / (s->heads / s->kv_heads), q0 = ((b * s->Tq + i) * s->heads + h) * n;
    const int64_t from = s->past + i - s->back > 0 ? s->past + i - s->back : 0, width = s->heads * n;
    const int64_t to = s->past + i + s->front + 1 < s->Tk ? s->past + i + s->front + 1 : s->Tk;
    const int64_t nd = s->Tq + s->Tk - 1;
    double top = -INFINITY, l = 0, entropy = 0, delta = 0;
    for (int64_t j = from; j < to; j++) {
        const int64_t k0 = ((b * s->Tk + j) * s->kv_heads + kv) * n, r0 = (s->past + i - j) * width + h * n;
        double sum = 0;
        for (int64_t d = 0; d < n; d++) sum += at(&x->q, q0 + d) * at(&x->k, k0 + d);
        for (int64_t d = 0; s->relative && d < n; d++) sum += at(&x->qr, q0 + d) * at(&x->r, r0 + d);
        sum *= scale;
        ds[j] = s->softcap > 0 ? 1 - pow(tanh(sum / s->softcap), 2) : 1;
        if (s->softcap > 0) sum = s->softcap * tanh(sum / s->softcap);
        if (s->bias) sum += at(&x->bias, h * nd + i - j + s->Tk - 1);
        p[j] = sum;
        top = fmax(top, sum);
    }
    for (int64_t j = from; j < to; j++) l += exp(p[j] - top);
    w->lse[(b * s->heads + h) * s->Tq + i] = top + log(l);
    for (int64_t j = from; j < to; j++) {
        const int64_t k0 = ((b * s->Tk + j) * s->kv_heads + kv) * n;
        double dp = 0;
        entropy -= exp(p[j] - top) / l * (p[j] - top - log(l));
        p[j] = exp(p[j] - top) / l;
        for (int64_t d = 0; d < n; d++) {
            w->result[OUT][q0 + d] += p[j] * at(&x->v, k0 + d);
            w->result[DV][k0 + d] += p[j] * at(&x->dout, q0 + d);
            dp += at(&x->dout, q0 + d) * at(&x->v, k0 + d);
        }
        delta += p[j] * dp;
    }
    for (int64_t j = from; j < to; j++) {
        const int64_t k0 = ((b * s->Tk + j) * s->kv_heads + kv) * n, r0 = (s->past + i - j) * width + h * n;
        double dp = 0;
        for (int64_t d = 0; d < n; d++) dp += at(&x->dout, q0 + d) * at(&x->v, k0 + d);
        const double dbias = p[j] * (dp - delta), g = dbias * ds[j];
        w->dbias[h * nd + i - j + s->Tk - 1] += dbias;
        for (int64_t d = 0; d < n; d++) {
            w->result[DQ][q0 + d] += g * at(&x->k, k0 + d);
            w->result[DK][k0 + d] += g * at(&x->q, q0 + d);
            if (!s->relative) continue;
            w->result[DQR][q0 + d] += g * at(&x->r, r0 + d);
            w->result[DR][r0 + d] += g * at(&x->qr, q0 + d);
        }
    }
    w->stats[0] += entropy;
    w->stats[1] = fmax(w->stats[1], top);
    if (to - from > 1) w->stats[2] += entropy / log((double)(to - from));
    *choices += to - from > 1;
}

static wanted reference(const setup *s, const tensors *x) {
    wanted w = {.stats = {0, -INFINITY, 0}};
    int64_t choices = 0;
    for (int k = 0; k < RESULTS; k++) w.result[k] = snd_calloc((size_t)result_count(s, k), sizeof(double));
    w.lse = snd_calloc((size_t)(s->B * s->heads * s->Tq), sizeof(double));
    w.dbias = snd_calloc((size_t)bias_count(s), sizeof(double));
    double *p = snd_calloc((size_t)s->Tk, sizeof(double)), *ds = snd_calloc((size_t)s->Tk, sizeof(double));
    for (int64_t b = 0; b < s->B; b++)
        for (int64_t h = 0; h < s->heads; h++)
            for (int64_t i = 0; i < s->Tq; i++) reference_row(s, x, b, h, i, p, ds, &w, &choices);
    w.stats[0] /= (double)(s->B * s->heads * s->Tq);
    w.stats[2] /= (double)choices;
    snd_free(p);
    snd_free(ds);
    return w;
}

static void drop(wanted *w) {
    for (int k = 0; k < RESULTS; k++) snd_free(w->result[k]);
    snd_free(w->lse);
    snd_free(w->dbias);
}

// ---- tests ----------------------------------------------------------------------------------------------------------

// Errors grow with the roots of the lengths summed over; the largest number of a result sets the scale.
static double tolerance(snd_dtype t, const setup *s) {
    return eps_of(t) * (4 + sqrt((double)s->hd) + sqrt((double)s->Tk)) * 4;
}

static void check(const setup *s, const char *what, int64_t n, const arr *got, const double *list, const double *want,
                  double tol) {
    double top = 1e-6;
    for (int64_t i = 0; i < n; i++) top = fmax(top, fabs(want[i]));
    for (int64_t i = 0; i < n; i++) {
        const double v = got ? at(got, i) : list[i];
        if (fabs(v - want[i]) <= tol * top) continue;
        fail_msg("%s: %s[%d] is %.12g, want %.12g (largest %g)", s->what, what, (int)i, v, want[i], top);
    }
}

static void check_all(snd_dtype t, const setup *s, const tensors *x, const wanted *w) {
    static const char *const name[] = {"out", "dq", "dk", "dv", "dqr", "dr"};
    const double tol = tolerance(t, s);
    // the kernel leaves the factor scale of these to its caller
    for (int k = 0; k < RESULTS; k++) {
        if ((k == DQR || k == DR) && !s->relative) continue;
        check(s, name[k], result_count(s, k), &x->result[k], NULL, w->result[k], tol);
    }
    check(s, "lse", s->B * s->heads * s->Tq, NULL, x->lse, w->lse, tol);
    if (s->bias) check(s, "dbias", bias_count(s), NULL, x->dbias, w->dbias, tol);
    check(s, "stats", s->Tk > 1 ? 3 : 2, NULL, x->stats, w->stats, tol);
}

static void plain_loops_agree(void **state) {
    (void)state;
    EACH_TYPE(t)
    for (size_t c = 0; c < sizeof setups / sizeof *setups; c++) {
        const setup *s = &setups[c];
        tensors x = furnish(t, s, (int)(c % 3));
        const snd_kattn a = call_of(s, &x);
        wanted w = reference(s, &x);
        EACH_ISA(isa) {
            run(2, t, &a, s, &x);
            check_all(t, s, &x, &w);
            run_with_stats(1, t, &a, s, &x);
            run_with_stats(3, t, &a, s, &x);
        }
        snd_k_limit_isa(SND_ISA_NONE);
        drop(&w);
        clear(&x);
    }
}

static void threads_agree(void **state) {
    (void)state;
    EACH_TYPE(t)
    for (size_t c = 0; c < sizeof setups / sizeof *setups; c++) {
        const setup *s = &setups[c];
        tensors one = furnish(t, s, 0), many = furnish(t, s, 0);
        const snd_kattn a = call_of(s, &one);
        run(1, t, &a, s, &one);
        for (int th = 2; th <= 4; th++) {
            run(th, t, &a, s, &many);
            for (int k = 0; k < RESULTS; k++) {
                if ((k == DQR || k == DR) && !s->relative) continue;
                if (!same_bits(&one.result[k], &many.result[k])) fail_msg("%s: result %d, %d threads", s->what, k, th);
            }
            assert_memory_equal(one.lse, many.lse, (size_t)(s->B * s->heads * s->Tq) * sizeof(double));
            assert_memory_equal(one.dbias, many.dbias, (size_t)bias_count(s) * sizeof(double));
            if (s->Tk > 1) assert_memory_equal(one.stats, many.stats, sizeof one.stats);
        }
        clear(&one);
        clear(&many);
    }
}

// careful changes nothing but rounding where all numbers are finite.
static void care_costs_no_meaning(void **state) {
    (void)state;
    EACH_TYPE(t)
    for (size_t c = 0; c < sizeof setups / sizeof *setups; c++) {
        const setup *s = &setups[c];
        tensors x = furnish(t, s, 0);
        snd_kattn a = call_of(s, &x);
        wanted w = reference(s, &x);
        a.careful = true;
        run(2, t, &a, s, &x);
        check_all(t, s, &x, &w);
        drop(&w);
        clear(&x);
    }
}

// Factors of the operands and of the scores cancel: powers of two, so the bits stay.
static void factors_cancel(void **state) {
    (void)state;
    EACH_TYPE(t)
    for (size_t c = 0; c < sizeof setups / sizeof *setups; c++) {
        const setup *s = &setups[c];
        tensors x = furnish(t, s, 0), y = furnish(t, s, 0);
        snd_kattn a = call_of(s, &x), b = call_of(s, &y);
        arr *const scaled[] = {&y.q, &y.k, &y.v, &y.qr, &y.r};
        double *const factor[] = {&b.fq, &b.fk, &b.fv, &b.fqr, &b.fr};
        for (int k = 0; k < 5; k++) {
            *factor[k] = ldexp(1, k % 2 ? 20 : -30);
            for (int64_t i = 0; i < scaled[k]->n; i++) put(scaled[k], i, at(scaled[k], i) / *factor[k]);
        }
        run(1, t, &a, s, &x);
        run(1, t, &b, s, &y);
        for (int k = 0; k < RESULTS; k++) {
            if ((k == DQR || k == DR) && !s->relative) continue;
            if (!same_bits(&x.result[k], &y.result[k])) fail_msg("%s: result %d", s->what, k);
        }
        clear(&x);
        clear(&y);
    }
}

// Scores of 1e8: all weight stands on one key, and no rounding may leave a gradient that large queries and keys multiply.
static void saturated_scores_have_no_gradient(void **state) {
    (void)state;
    EACH_ISA(isa) EACH_TYPE(t) for (int c = 0; c < 4; c++) {
        const setup *s = &setups[c];
        tensors x = furnish(t, s, 0);
        for (int64_t i = 0; i < query_count(s); i++) put(&x.q, i, 1e4 * at(&x.q, i));
        for (int64_t i = 0; i < key_count(s); i++) put(&x.k, i, 1e4 * at(&x.k, i));
        const snd_kattn a = call_of(s, &x);
        run(2, t, &a, s, &x);
        for (int64_t i = 0; i < query_count(s); i++) CHECK_SAME(fabs(at(&x.result[DQ], i)), 0);
        for (int64_t i = 0; i < key_count(s); i++) CHECK_SAME(fabs(at(&x.result[DK], i)), 0);
        clear(&x);
    }
}

// Keys and values that are one: nothing depends on the scores, and what rounding says of their gradient is rounding squared.
static void equal_tokens_leave_queries_no_gradient(void **state) {
    (void)state;
    const setup s = {"equal tokens", 2, 60, 60, 4, 2, 64, 0, NEAR, FAR, 0, false, false};
    EACH_ISA(isa) EACH_TYPE(t) {
        tensors x = furnish(t, &s, 0);
        for (int64_t i = 0; i < key_count(&s); i++) {
            put(&x.k, i, at(&x.k, i % (s.kv_heads * s.hd)));
            put(&x.v, i, at(&x.v, i % (s.kv_heads * s.hd)));
        }
        const snd_kattn a = call_of(&s, &x);
        run(1, t, &a, &s, &x);
        const double tol = t == SND_F64 ? 1e-20 : 1e-11;
        for (int64_t i = 0; i < query_count(&s); i++)
            if (!(fabs(at(&x.result[DQ], i)) <= tol)) fail_msg("query gradient %g", at(&x.result[DQ], i));
        clear(&x);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_loops_agree),
        cmocka_unit_test(threads_agree),
        cmocka_unit_test(care_costs_no_meaning),
        cmocka_unit_test(factors_cancel),
        cmocka_unit_test_teardown(saturated_scores_have_no_gradient, reset_hooks),
        cmocka_unit_test_teardown(equal_tokens_leave_queries_no_gradient, reset_hooks),
    };
    return cmocka_run_group_tests(tests, NULL, reset_hooks);
}
