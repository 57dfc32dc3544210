// Optimizer steps against a reference row in double, dropout against its scalar definition: any length, misalignment,
// instruction set and number of threads; what a NaN does.
#include "base/rngmath.h"
#include "kernels_common.h"

static const snd_krule RULES[] = {SND_KRULE_ADAMW, SND_KRULE_ADAM, SND_KRULE_SGD, SND_KRULE_NESTEROV, SND_KRULE_LION};
enum { N_RULES = (int)(sizeof RULES / sizeof *RULES) };

// The formulas of api.h as they stand there.
static void reference(const snd_kupdate *k, double g, double *w, double *m, double *v) {
    const double pull = k->decay * (*w - k->toward), b1 = k->beta1, b2 = k->beta2, old = *m;
    g *= k->scale;
    const bool adam = k->rule == SND_KRULE_ADAM, adamw = k->rule == SND_KRULE_ADAMW;
    if (adam || k->rule == SND_KRULE_SGD || k->rule == SND_KRULE_NESTEROV) g += pull;
    if (adam || adamw) {
        *m = b1 * old + (1 - b1) * g;
        *v = b2 * *v + (1 - b2) * g * g;
        if (adamw) *w -= k->lr * pull;
        *w -= k->lr * (*m / (1 - pow(b1, (double)k->step))) / (sqrt(*v / (1 - pow(b2, (double)k->step))) + k->eps);
    } else if (k->rule == SND_KRULE_LION) {
        const double c = b1 * old + (1 - b1) * g;
        *w -= k->lr * ((c > 0) - (c < 0) + pull);
        *m = b2 * old + (1 - b2) * g;
    } else {
        *m = b1 * old + g;
        *w -= k->lr * (k->rule == SND_KRULE_SGD ? *m : g + b1 * *m);
    }
}

// Largest error in units of eps: a handful of roundings per step, each of the size of the largest operand.
static void compare(const arr *x, const double *want, int64_t n, double size, int steps) {
    for (int64_t i = 0; i < n; i++) {
        const double err = fabs(at(x, i) - want[i]);
        assert_true(err <= 8 * steps * eps_of(x->t) * size);
    }
}

enum { STEPS = 3 };

static void steps_of(snd_krule rule, snd_dtype t, int64_t n, int shift, int th) {
    arr w = arr_draw(t, n, shift, "w", 1), m = arr_make(t, n, shift + 1), v = arr_make(t, n, shift + 2);
    double *rw = calloc((size_t)n + 1, sizeof *rw), *rm = calloc((size_t)n + 1, sizeof *rm),
           *rv = calloc((size_t)n + 1, sizeof *rv);
    for (int64_t i = 0; i < n; i++) {
        rw[i] = at(&w, i);
        put(&m, i, 0);
        put(&v, i, 0);
    }
    snd_kupdate k = {.rule = rule, .lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .decay = 0.1, .toward = 1};
    for (k.step = 1; k.step <= STEPS; k.step++) {
        k.scale = k.step == 2 ? 0.25 : 1;
        char name[16];
        snprintf(name, sizeof name, "g%d", (int)k.step);
        arr g = arr_draw(t, n, 3, name, 1);
        snd_k_update(th, t, &k, n, g.p, w.p, m.p, rule <= SND_KRULE_ADAM ? v.p : NULL, NULL);
        for (int64_t i = 0; i < n; i++) reference(&k, at(&g, i), &rw[i], &rm[i], &rv[i]);
        arr_free(&g);
    }
    compare(&w, rw, n, 4, STEPS);
    compare(&m, rm, n, 4, STEPS);
    if (rule <= SND_KRULE_ADAM) compare(&v, rv, n, 16, STEPS);
    free(rw), free(rm), free(rv);
    arr_free(&w), arr_free(&m), arr_free(&v);
}

static void updates_follow_their_formulas(void **state) {
    (void)state;
    EACH_ISA(isa) EACH_TYPE(t) for (int r = 0; r < N_RULES; r++) {
        for (int64_t n = 0; n <= 130; n += n < 40 ? 1 : 17) steps_of(RULES[r], t, n, (int)(n % 5), 1);
        steps_of(RULES[r], t, 100003, 1, 2);
    }
}

// Threads and instruction sets change no bit; nor does the way a tensor lies in memory.
static void updates_have_the_same_bits(void **state) {
    (void)state;
    const int64_t n = 3 * 32768 + 77;
    EACH_TYPE(t) for (int r = 0; r < N_RULES; r++) {
        arr first = {0};
        EACH_ISA(isa) for (int th = 1; th <= 4; th++) {
            arr w = arr_draw(t, n, th, "w", 1), m = arr_draw(t, n, 1, "m", 1), v = arr_draw(t, n, 2, "v", 1),
                g = arr_draw(t, n, 0, "g", 1);
            for (int64_t i = 0; i < n; i++) put(&v, i, fabs(at(&v, i)));
            const snd_kupdate k = {RULES[r], 0.1, 0.9, 0.99, 1e-6, 0.01, 0, 0.5, 7};
            snd_k_update(th, t, &k, n, g.p, w.p, m.p, RULES[r] <= SND_KRULE_ADAM ? v.p : NULL, NULL);
            if (!first.raw) first = arr_copy(&w, 0);
            assert_true(same_bits(&first, &w));
            arr_free(&w), arr_free(&m), arr_free(&v), arr_free(&g);
        }
        arr_free(&first);
    }
}

static void a_nan_reaches_its_own_weight_alone(void **state) {
    (void)state;
    EACH_ISA(isa) EACH_TYPE(t) for (int r = 0; r < N_RULES; r++) {
        const int64_t n = 70;
        arr w = arr_draw(t, n, 0, "w", 1), m = arr_draw(t, n, 0, "m", 1), v = arr_make(t, n, 0),
            g = arr_draw(t, n, 0, "g", 1);
        for (int64_t i = 0; i < n; i++) put(&v, i, 1);
        put(&g, 33, NAN);
        const snd_kupdate k = {RULES[r], 0.1, 0.9, 0.99, 1e-6, 0.01, 0, 1, 2};
        snd_k_update(1, t, &k, n, g.p, w.p, m.p, RULES[r] <= SND_KRULE_ADAM ? v.p : NULL, NULL);
        for (int64_t i = 0; i < n; i++) assert_int_equal(isnan(at(&w, i)) != 0, i == 33);
        arr_free(&w), arr_free(&m), arr_free(&v), arr_free(&g);
    }
}

// One step with and without its sums, from the same start. w, m, v of the latter are in `plain`.
typedef struct measured {
    arr w, m, v, plain[3];
    double sums[2];
} measured;

static measured step_measured(const snd_kupdate *k, int th, const arr *g, const arr *from, const arr *m) {
    const bool second = k->rule <= SND_KRULE_ADAM;
    const snd_dtype t = g->t;
    const int64_t n = g->n;
    measured s = {.w = arr_copy(from, 1), .m = arr_copy(m, 2), .v = arr_make(t, n, 3)};
    for (int64_t i = 0; i < n; i++) put(&s.v, i, fabs(at(m, i)));
    const arr *const all[] = {&s.w, &s.m, &s.v};
    for (int i = 0; i < 3; i++) s.plain[i] = arr_copy(all[i], i);
    snd_k_update(th, t, k, n, g->p, s.w.p, s.m.p, second ? s.v.p : NULL, s.sums);
    snd_k_update(th, t, k, n, g->p, s.plain[0].p, s.plain[1].p, second ? s.plain[2].p : NULL, NULL);
    return s;
}

static void measured_free(measured *s) {
    arr_free(&s->w), arr_free(&s->m), arr_free(&s->v);
    for (int i = 0; i < 3; i++) arr_free(&s->plain[i]);
}

// The step is that without sums; the weights' sum is that of snd_k_sumsq; that of the way has n additions, each rounded once.
static void a_step_is_measured_without_changing_it(void **state) {
    (void)state;
    const int64_t sizes[] = {0, 1, 15, 16, 17, 511, 512, 513, 1040, 3 * 32768 + 77};
    EACH_TYPE(t) for (int r = 0; r < N_RULES; r++) for (int c = 0; c < 10; c++) {
        const int64_t n = sizes[c];
        const snd_kupdate k = {RULES[r], 0.1, 0.9, 0.99, 1e-6, 0.01, 0, 0.5, 7};
        arr from = arr_draw(t, n, 0, "w", 1), g = arr_draw(t, n, 2, "g", 1), m = arr_draw(t, n, 2, "m", 1);
        double first[2] = {0, 0};
        EACH_ISA(isa) for (int th = 1; th <= 4; th++) {
            measured s = step_measured(&k, th, &g, &from, &m);
            double way = 0;
            for (int64_t i = 0; i < n; i++) way += (at(&s.w, i) - at(&from, i)) * (at(&s.w, i) - at(&from, i));
            assert_true(same_bits(&s.w, &s.plain[0]) && same_bits(&s.m, &s.plain[1]) && same_bits(&s.v, &s.plain[2]));
            CHECK_SAME(s.sums[0], snd_k_sumsq(1, t, n, s.w.p));
            assert_true(fabs(s.sums[1] - way) <= 2 * (double)n * DBL_EPSILON * way);
            if (isa == SND_ISA_BASE && th == 1) memcpy(first, s.sums, sizeof first);
            assert_memory_equal(first, s.sums, sizeof first);
            measured_free(&s);
        }
        arr_free(&from), arr_free(&g), arr_free(&m);
    }
}

// w = i, g = 2i - 5 and lr = 1 give w = 5 - i after a step of 5 - 2i: every sum is exact. A NaN shows in both.
static void sums_of_a_step_are_exact_where_they_can_be(void **state) {
    (void)state;
    EACH_ISA(isa) EACH_TYPE(t) for (int64_t n = 0; n < 5000; n = n < 40 ? n + 1 : n * 3) {
        const snd_kupdate k = {.rule = SND_KRULE_SGD, .lr = 1, .scale = 1, .step = 1};
        arr w = arr_make(t, n, 1), m = arr_make(t, n, 0), g = arr_make(t, n, 2);
        double sums[2], now = 0, way = 0;
        for (int64_t i = 0; i < n; i++) {
            const double x = (double)(i % 29);
            put(&w, i, x), put(&m, i, 0), put(&g, i, 2 * x - 5);
            now += (5 - x) * (5 - x);
            way += (5 - 2 * x) * (5 - 2 * x);
        }
        snd_k_update(2, t, &k, n, g.p, w.p, m.p, NULL, sums);
        CHECK_SAME(sums[0], now);
        CHECK_SAME(sums[1], way);
        if (n) put(&g, n / 2, NAN);
        snd_k_update(2, t, &k, n, g.p, w.p, m.p, NULL, sums);
        assert_true(n == 0 || (isnan(sums[0]) && isnan(sums[1])));
        arr_free(&w), arr_free(&m), arr_free(&g);
    }
}

static void sums_of_squares_are_exact_where_they_can_be(void **state) {
    (void)state;
    EACH_ISA(isa) EACH_TYPE(t) for (int64_t n = 0; n < 70000; n = n < 40 ? n + 1 : n * 3) {
        arr x = arr_make(t, n, (int)(n % 7));
        double want = 0;
        for (int64_t i = 0; i < n; i++) {
            put(&x, i, (double)(i % 17 - 8));
            want += at(&x, i) * at(&x, i);
        }
        for (int th = 1; th <= 3; th++) CHECK_SAME(snd_k_sumsq(th, t, n, x.p), want);
        arr_free(&x);
    }
    const float large[2] = {3e30f, 4e30f}, bad[3] = {1, NAN, 2};
    assert_true(fabs(sqrt(snd_k_sumsq(1, SND_F32, 2, large)) / (double)5e30f - 1) < 1e-6);
    assert_true(isnan(snd_k_sumsq(1, SND_F32, 3, bad)));
}

// ---- dropout ------------------------------------------------------------------------------------------------------------

static double factor(snd_key key, double rate, uint64_t draw) {
    uint32_t w[4];
    snd_philox(key, draw / 4, w);
    const double below = floor(rate * 0x1p32 + 0.5);
    return (double)w[draw % 4] < below ? 0 : 1 / (1 - below / 0x1p32);
}

static void dropout_equals_its_definition(void **state) {
    (void)state;
    const snd_key key = snd_key_make(3, "dropout.7");
    const int64_t sizes[] = {0, 1, 3, 31, 32, 33, 65, 130, 257, 1000, 70001}, groups[] = {1, 5, 300};
    EACH_ISA(isa)
    EACH_TYPE(t)
    for (int s = 0; s < 11; s++)
        for (int q = 0; q < 3; q++)
            for (uint64_t first = 0; first < 7; first += 3) {
                const int64_t n = sizes[s];
                arr x = arr_draw(t, n, (int)first, "x", 1), y = arr_make(t, n, 1);
                double most = 0;
                const double amax = snd_k_dropout(1 + q, t, key, 0.3, first, groups[q], n, x.p, y.p);
                for (int64_t i = 0; i < n; i++) {
                    const double f = factor(key, 0.3, (first + (uint64_t)i) / (uint64_t)groups[q]);
                    const double want = t == SND_F64 ? f * at(&x, i) : (double)((float)f * (float)at(&x, i));
                    CHECK_SAME(at(&y, i), want);
                    most = fmax(most, fabs(want));
                }
                CHECK_SAME(amax, most);
                arr_free(&x), arr_free(&y);
            }
}

// The share of zeros within five standard errors; rate 0 is the identity; a NaN survives where it would be dropped.
static void dropout_has_its_rate(void **state) {
    (void)state;
    enum { N = 1 << 20 };
    arr x = arr_make(SND_F32, N, 0), y = arr_make(SND_F32, N, 0);
    for (int64_t i = 0; i < N; i++) put(&x, i, 1);
    for (double rate = 0.01; rate < 1; rate += 0.245) {
        int64_t zeros = 0;
        double sum = 0;
        snd_k_dropout(2, SND_F32, snd_key_make(1, "d"), rate, 0, 1, N, x.p, y.p);
        for (int64_t i = 0; i < N; i++) {
            zeros += at(&y, i) == 0;
            sum += at(&y, i);
        }
        const double sd = sqrt(rate * (1 - rate) / N);
        assert_true(fabs((double)zeros / N - rate) <= 5 * sd);
        assert_true(fabs(sum / N - 1) <= 5 * sd / (1 - rate));
    }
    snd_k_dropout(1, SND_F32, snd_key_make(1, "d"), 0, 0, 1, N, x.p, y.p);
    assert_true(same_bits(&x, &y));
    for (int64_t i = 0; i < N; i++) put(&x, i, NAN);
    assert_true(isnan(snd_k_dropout(2, SND_F32, snd_key_make(1, "d"), 0.5, 0, 1, N, x.p, y.p)));
    for (int64_t i = 0; i < N; i++) assert_true(isnan(at(&y, i)));
    arr_free(&x), arr_free(&y);
}

// ---- rounding to f16 ----------------------------------------------------------------------------------------------------

static float to_f16(float v) {
    return snd_f16_to_f32(snd_f32_to_f16(v));
}

static void same_float(float got, float want) {
    if (memcmp(&got, &want, sizeof got) != 0 && !(isnan(got) && isnan(want))) fail_msg("%a, not %a", got, want);
}

// Every f16, what lies between two and beside that, by either sign; one value of a call at a time.
static void rounding_to_f16_is_that_of_the_type(void **state) {
    (void)state;
    enum { HALVES = 0x7c00, EACH = 6 };
    static float x[HALVES * EACH], was[HALVES * EACH];
    for (int i = 0; i < HALVES; i++) {
        const float a = snd_f16_to_f32((uint16_t)i), b = snd_f16_to_f32((uint16_t)(i + 1));
        const float middle = isinf(b) ? 65520 : a + (b - a) / 2, sign = i % 3 ? 1 : -1;
        const float all[EACH] = {a, middle, nextafterf(middle, 0), nextafterf(middle, INFINITY), -middle, a * 0x1p-12f};
        for (int k = 0; k < EACH; k++) was[i * EACH + k] = sign * all[k];
    }
    was[1] = NAN;
    was[2] = -INFINITY;
    was[3] = 0x1p-25f;
    was[4] = 3e38f;
    for (int th = 1; th <= 3; th++) {
        int64_t some = 0, lost = 0, counts[2] = {0, 0};
        memcpy(x, was, sizeof x);
        assert_true(isnan(snd_k_round_f16(th, HALVES * EACH, 0, x, counts)));
        for (int i = 0; i < HALVES * EACH; i++) {
            same_float(x[i], to_f16(was[i]));
            some += was[i] != 0;
            lost += was[i] != 0 && to_f16(was[i]) == 0;
        }
        assert_int_equal(counts[0], some);
        assert_int_equal(counts[1], lost);
        assert_true(lost > 1000);
    }
}

static void rounding_to_f16_takes_an_exponent_along(void **state) {
    (void)state;
    float x[] = {1.0009765625f, -3, 0, 1e-3f}, y[] = {1, 2, 3}, z[] = {0, 0};
    CHECK_SAME(snd_k_round_f16(1, 4, 14, x, NULL), to_f16(0x1.8p15f));
    same_float(x[0], to_f16(1.0009765625f * 0x1p14f));
    same_float(x[1], -0x1.8p15f);
    same_float(x[2], 0);
    same_float(x[3], to_f16(1e-3f * 0x1p14f));
    CHECK_SAME(snd_k_round_f16(1, 3, 60, y, NULL), INFINITY);
    assert_true(isinf(y[0]) && isinf(y[2]));
    int64_t counts[2] = {5, 1};
    float small[] = {1, 2, 3};
    CHECK_SAME(snd_k_round_f16(1, 3, -60, small, counts), 0);
    assert_true(counts[0] == 8 && counts[1] == 4);
    CHECK_SAME(snd_k_round_f16(1, 2, 0, z, NULL), 0);
    CHECK_SAME(snd_k_round_f16(1, 0, 0, NULL, NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(updates_follow_their_formulas),
        cmocka_unit_test(updates_have_the_same_bits),
        cmocka_unit_test(a_nan_reaches_its_own_weight_alone),
        cmocka_unit_test(a_step_is_measured_without_changing_it),
        cmocka_unit_test(sums_of_a_step_are_exact_where_they_can_be),
        cmocka_unit_test(sums_of_squares_are_exact_where_they_can_be),
        cmocka_unit_test(dropout_equals_its_definition),
        cmocka_unit_test(dropout_has_its_rate),
        cmocka_unit_test(rounding_to_f16_is_that_of_the_type),
        cmocka_unit_test(rounding_to_f16_takes_an_exponent_along),
    };
    return cmocka_run_group_tests(tests, NULL, reset_hooks);
}
