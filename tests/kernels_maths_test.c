// Elementary functions: errors in units in the last place against long double, limits, NaN, the same bits on every
// instruction set, in vectors and alone, and derivatives against differences.
#include "kernels_common.h"

static const char *const names[SND_KFN_COUNT] = {"none", "relu", "gelu",     "gelu_tanh", "silu", "tanh", "sigmoid",
                                                 "erf",  "exp",  "softplus", "sqrt",      "log",  "abs"};

static long double sigmoid(long double x) {
    return x < 0 ? expl(x) / (1 + expl(x)) : 1 / (1 + expl(-x));
}
static const long double k0 = 1.595769121605730711759784239737L; // sqrt(8/pi)

static long double value(snd_kfn f, long double x) {
    switch (f) {
    case SND_KFN_GELU: return 0.5L * x * erfcl(-x * sqrtl(0.5L));
    case SND_KFN_GELU_TANH: return x * sigmoid(k0 * (x + 0.044715L * x * x * x));
    case SND_KFN_SILU: return x * sigmoid(x);
    case SND_KFN_TANH: return tanhl(x);
    case SND_KFN_SIGMOID: return sigmoid(x);
    case SND_KFN_ERF: return erfl(x);
    case SND_KFN_EXP: return expl(x);
    case SND_KFN_SOFTPLUS: return (x > 0 ? x : 0) + log1pl(expl(-fabsl(x)));
    case SND_KFN_SQRT: return sqrtl(x);
    case SND_KFN_LOG: return logl(x);
    case SND_KFN_ABS: return fabsl(x);
    default: return x;
    }
}

static long double slope(snd_kfn f, long double x) {
    const long double v = k0 * (x + 0.044715L * x * x * x);
    switch (f) {
    case SND_KFN_GELU: return 0.5L * erfcl(-x * sqrtl(0.5L)) + x * expl(-x * x / 2) * 0.398942280401432677939946059934L;
    case SND_KFN_GELU_TANH: return sigmoid(v) + x * sigmoid(v) * sigmoid(-v) * k0 * (1 + 3 * 0.044715L * x * x);
    case SND_KFN_SILU: return sigmoid(x) * (1 + x * sigmoid(-x));
    case SND_KFN_TANH: return 4 * sigmoid(2 * x) * sigmoid(-2 * x);
    case SND_KFN_SIGMOID: return sigmoid(x) * sigmoid(-x);
    case SND_KFN_ERF: return 1.128379167095512573896158903122L * expl(-x * x);
    case SND_KFN_EXP: return expl(x);
    case SND_KFN_SOFTPLUS: return sigmoid(x);
    case SND_KFN_SQRT: return 0.5L / sqrtl(x);
    case SND_KFN_LOG: return 1 / x;
    case SND_KFN_ABS: return x > 0 ? 1 : x < 0 ? -1 : 0;
    default: return 1;
    }
}

// |got - want| over the spacing of T at want; results below the smallest normal count its spacing.
static double ulps(snd_dtype t, double got, long double want) {
    const double lowest = t == SND_F64 ? DBL_MIN : (double)FLT_MIN, top = t == SND_F64 ? DBL_MAX : (double)FLT_MAX;
    if (fabsl(want) > top) return isinf(got) && (got > 0) == (want > 0) ? 0 : 1e9;
    const double size = fmax((double)fabsl(want), lowest);
    int e;
    frexp(size, &e);
    return (double)fabsl((long double)got - want) / ldexp(eps_of(t), e - 1);
}

// Measured maxima, rounded up: the error table of the approximations. Derivatives with a zero crossing, and the tanh
// form's exponent (a cubic rounded in T), are relative to max(|value|, floor).
typedef struct bound {
    snd_kfn f;
    double value32, value64, slope32, slope64;
} bound;
static const bound bounds[] = {
    {SND_KFN_GELU, 5, 7.5, 3, 3},
    {SND_KFN_GELU_TANH, 8, 8, 3, 3},
    {SND_KFN_SILU, 3, 3, 3, 3},
    {SND_KFN_TANH, 1.5, 1.5, 4.5, 4.5},
    {SND_KFN_SIGMOID, 2.5, 2.5, 4.5, 4.5},
    {SND_KFN_ERF, 2.5, 2, 2.5, 2},
    {SND_KFN_EXP, 1.1, 1.1, 1.1, 1.1},
    {SND_KFN_SOFTPLUS, 2.5, 2.5, 2.5, 2.5},
    {SND_KFN_SQRT, 0.5, 0.5, 1.5, 1.5},
    {SND_KFN_LOG, 1.7, 1.7, 0.5, 0.5},
    {SND_KFN_ABS, 0, 0, 0, 0},
};

enum { POINTS = 40000 };

// Points over the function's whole interesting range, dense around 0, both signs.
static double point(snd_dtype t, snd_kfn f, int i) {
    const double u = (i + 0.5) / POINTS;
    if (f == SND_KFN_LOG || f == SND_KFN_SQRT) return exp((2 * u - 1) * (t == SND_F64 ? 700 : 80));
    const double wide =
        f == SND_KFN_EXP || f == SND_KFN_SOFTPLUS || f == SND_KFN_SIGMOID || f == SND_KFN_SILU ? 85 : 12;
    const double far = t == SND_F64 ? wide * (wide > 20 ? 8.2 : 3.1) : wide;
    const double s = i % 2 ? 1 : -1;
    if (i % 3 == 0) return s * exp(log(1e-8) * u + log(far) * (1 - u));
    return s * far * u;
}

static void errors_stay_in_their_table(void **state) {
    (void)state;
    EACH_ISA(isa) EACH_TYPE(t) for (unsigned c = 0; c < sizeof bounds / sizeof *bounds; c++) {
        const snd_kfn f = bounds[c].f;
        arr x = arr_make(t, POINTS, 0), y = arr_make(t, POINTS, 0), dx = arr_make(t, POINTS, 0),
            one = arr_make(t, POINTS, 0);
        double worst = 0, worst_slope = 0, at_value = 0, at_slope = 0;
        for (int i = 0; i < POINTS; i++) put(&x, i, point(t, f, i)), put(&one, i, 1);
        snd_k_unary(1, t, f, POINTS, 1, x.p, y.p);
        snd_k_unary_bwd(1, t, f, POINTS, 1, x.p, 1, one.p, dx.p);
        for (int i = 0; i < POINTS; i++) {
            const double z = at(&x, i), uv = ulps(t, at(&y, i), value(f, z));
            // near a derivative's zero, and in the tail of the tanh form, only the absolute error is small
            const long double d = slope(f, z);
            const bool loose = f == SND_KFN_GELU_TANH || f == SND_KFN_SILU || f == SND_KFN_GELU;
            const double floor = loose ? 0.5 : 0, e = fabs((double)(at(&dx, i) - d));
            const double us = loose && fabsl(d) < floor ? e / (eps_of(t) * floor) : ulps(t, at(&dx, i), d);
            const double v = f == SND_KFN_GELU_TANH && fabs(at(&y, i)) < 0.01 * fabs(z)
                                 ? fabs((double)(at(&y, i) - value(f, z))) / (eps_of(t) * 0.01 * fabs(z))
                                 : uv;
            if (!(v <= worst)) worst = v, at_value = z;
            if (!(us <= worst_slope)) worst_slope = us, at_slope = z;
        }
        if (getenv("SONDE_SHOW_ULPS"))
            print_message("%-10s %s isa %d: %.2f ulp at %g, derivative %.2f at %g\n", names[f],
                          t == SND_F64 ? "f64" : "f32", isa, worst, at_value, worst_slope, at_slope);
        const double allow = t == SND_F64 ? bounds[c].value64 : bounds[c].value32;
        const double allow_slope = t == SND_F64 ? bounds[c].slope64 : bounds[c].slope32;
        if (!(worst <= allow && worst_slope <= allow_slope)) {
            print_error("%s %s: %.3g ulp at %.17g (allowed %g), derivative %.3g at %.17g (allowed %g)\n", names[f],
                        t == SND_F64 ? "f64" : "f32", worst, at_value, allow, worst_slope, at_slope, allow_slope);
            fail();
        }
        arr_free(&x), arr_free(&y), arr_free(&dx), arr_free(&one);
    }
}

static double one_value(snd_dtype t, snd_kfn f, double x) {
    arr a = arr_make(t, 1, 0);
    put(&a, 0, x);
    const double top = snd_k_unary(1, t, f, 1, 1, a.p, a.p), y = at(&a, 0);
    CHECK_SAME(top, fabs(y));
    arr_free(&a);
    return y;
}

static void limits(void **state) {
    (void)state;
    EACH_ISA(isa) EACH_TYPE(t) {
        assert_true(isnan(one_value(t, SND_KFN_NONE, NAN)));
        for (int f = SND_KFN_GELU; f < SND_KFN_COUNT; f++) assert_true(isnan(one_value(t, (snd_kfn)f, NAN)));
        const double big[] = {40, 200, 1e4, 1e30, INFINITY};
        for (int i = 0; i < 5; i++) {
            const double x = big[i], tx = t == SND_F64 ? x : (double)(float)x;
            CHECK_SAME(one_value(t, SND_KFN_GELU, x), tx);
            CHECK_SAME(one_value(t, SND_KFN_GELU_TANH, x), tx);
            CHECK_SAME(one_value(t, SND_KFN_SILU, x), tx);
            CHECK_SAME(one_value(t, SND_KFN_SOFTPLUS, x), tx);
            CHECK_SAME(one_value(t, SND_KFN_TANH, x), 1);
            CHECK_SAME(one_value(t, SND_KFN_TANH, -x), -1);
            CHECK_SAME(one_value(t, SND_KFN_ERF, -x), -1);
            CHECK_SAME(one_value(t, SND_KFN_SIGMOID, x), 1);
            CHECK_SAME(one_value(t, SND_KFN_ABS, -x), tx);
            CHECK_SAME(one_value(t, SND_KFN_GELU, -x), 0);
            CHECK_SAME(one_value(t, SND_KFN_GELU_TANH, -x), 0);
            if (x < 150) continue;
            if (x > 1000 || t == SND_F32) {
                CHECK_SAME(one_value(t, SND_KFN_SILU, -x), 0);
                CHECK_SAME(one_value(t, SND_KFN_SOFTPLUS, -x), 0);
                CHECK_SAME(one_value(t, SND_KFN_EXP, x), INFINITY);
                CHECK_SAME(one_value(t, SND_KFN_EXP, -x), 0);
            }
        }
        assert_true(signbit(one_value(t, SND_KFN_SILU, -1e4)) && signbit(one_value(t, SND_KFN_GELU, -INFINITY)));
        CHECK_SAME(one_value(t, SND_KFN_LOG, 0), -INFINITY);
        CHECK_SAME(one_value(t, SND_KFN_LOG, INFINITY), INFINITY);
        CHECK_SAME(one_value(t, SND_KFN_LOG, 1), 0);
        assert_true(isnan(one_value(t, SND_KFN_LOG, -1)) && isnan(one_value(t, SND_KFN_SQRT, -1)));
        const double small = t == SND_F64 ? 5e-324 : (double)1.4e-45f;
        CHECK_REL(one_value(t, SND_KFN_LOG, small), log(small), 2 * eps_of(t));
        CHECK_SAME(one_value(t, SND_KFN_TANH, small), small);
        CHECK_SAME(one_value(t, SND_KFN_EXP, 0), 1);
        CHECK_REL(one_value(t, SND_KFN_EXP, t == SND_F64 ? -740 : -100), exp(t == SND_F64 ? -740 : -100),
                  0.1); // subnormal
        CHECK_SAME(one_value(t, SND_KFN_GELU, 0), 0);
    }
}

// Exponents are put together from bits, and bounds are taken by bits: no NaN may become a number on the way.
static void put_nan(arr *a, int64_t i, bool negative, uint64_t low_bits) {
    const uint32_t narrow = 0x7fc00000u | (uint32_t)negative << 31 | (uint32_t)(low_bits & 0x3fffff);
    const uint64_t wide = 0x7ff8000000000000u | (uint64_t)negative << 63 | low_bits;
    if (a->t == SND_F64)
        memcpy((double *)a->p + i, &wide, sizeof wide);
    else
        memcpy((float *)a->p + i, &narrow, sizeof narrow);
}
static void a_nan_stays_one_whatever_its_bits(void **state) {
    (void)state;
    static const uint64_t low_bits[] = {0, 1, 2, 64, 0x155555, 0x3fffff, 0x7ffffffffffff};
    EACH_ISA(isa) EACH_TYPE(t) for (int f = SND_KFN_GELU; f < SND_KFN_COUNT; f++) for (int k = 0; k < 14; k++) {
        arr x = arr_make(t, 37, 0), dy = arr_make(t, 37, 0), y = arr_make(t, 37, 0);
        for (int i = 0; i < 37; i++) put_nan(&x, i, k % 2, low_bits[k / 2]), put(&dy, i, 1);
        assert_true(isnan(snd_k_unary(1, t, (snd_kfn)f, 37, 1, x.p, y.p)));
        for (int i = 0; i < 37; i++) assert_true(isnan(at(&y, i)));
        snd_k_unary_bwd(1, t, (snd_kfn)f, 37, 1, x.p, 1, dy.p, y.p);
        for (int i = 0; i < 37; i++) assert_true(isnan(at(&y, i)));
        arr_free(&x), arr_free(&dy), arr_free(&y);
    }
}

static void derivatives_at_the_ends(void **state) {
    (void)state;
    static const double xs[] = {-INFINITY, -1e30, -1e4, -40, 40, 1e4, 1e30, INFINITY};
    EACH_TYPE(t)
    for (int i = 0; i < 8; i++)
        for (int f = SND_KFN_GELU; f <= SND_KFN_ABS; f++) {
            const double want =
                f == SND_KFN_ABS ? (xs[i] > 0 ? 1 : -1)
                : f == SND_KFN_GELU || f == SND_KFN_GELU_TANH || f == SND_KFN_SILU || f == SND_KFN_SOFTPLUS ? xs[i] > 0
                                                                                                            : 0;
            if (f == SND_KFN_EXP || f == SND_KFN_LOG || f == SND_KFN_SQRT) continue;
            CHECK_CLOSE(snd_k_fn_grad((snd_kfn)f, xs[i]), want, 1e-15);
            arr x = arr_make(t, 1, 0), dy = arr_make(t, 1, 0);
            put(&x, 0, xs[i]), put(&dy, 0, 1);
            snd_k_unary_bwd(1, t, (snd_kfn)f, 1, 1, x.p, 1, dy.p, dy.p);
            CHECK_CLOSE(at(&dy, 0), want, 1e-15);
            arr_free(&x), arr_free(&dy);
        }
    CHECK_SAME(snd_k_fn_grad(SND_KFN_ABS, 0), 0);
}

static void slopes_are_differences_of_values(void **state) {
    (void)state;
    for (int f = SND_KFN_GELU; f <= SND_KFN_ABS; f++)
        for (int i = 0; i < 50; i++) {
            const double x = f == SND_KFN_LOG || f == SND_KFN_SQRT ? 0.1 + fabs(draw("u", i)) : 1.5 * draw("u", i),
                         h = 1e-3 * fmin(1, fabs(x));
            double v[4];
            for (int k = 0; k < 4; k++) v[k] = snd_k_fn((snd_kfn)f, x + h * (k < 2 ? k - 2 : k - 1));
            CHECK_CLOSE((v[0] - 8 * v[1] + 8 * v[2] - v[3]) / (12 * h), snd_k_fn_grad((snd_kfn)f, x), 1e-9);
            // with the scales s and c: d/dx of f(s x), times c dy
            const double s = -0.7, z = s * x;
            if (z < 0 && (f == SND_KFN_LOG || f == SND_KFN_SQRT)) continue;
            double dx, dy = 1.3;
            snd_k_unary_bwd(1, SND_F64, (snd_kfn)f, 1, s, &x, 2.5, &dy, &dx);
            CHECK_CLOSE(dx, 2.5 * 1.3 * snd_k_fn_grad((snd_kfn)f, s * x), 1e-15);
        }
}

static void every_length_place_thread_and_isa_agree(void **state) {
    (void)state;
    EACH_TYPE(t)
    for (int f = SND_KFN_GELU; f < SND_KFN_COUNT; f++)
        for (int64_t n = 0; n < 1100; n += n < 66 ? 1 : 491) {
            arr x = arr_draw(t, n, 0, "len", 2), dy = arr_draw(t, n, 0, "dy", 1);
            for (int64_t i = 0; i < n; i++)
                if (f == SND_KFN_LOG || f == SND_KFN_SQRT) put(&x, i, fabs(at(&x, i)));
            arr y = arr_make(t, n, 0), dx = arr_make(t, n, 0);
            snd_k_limit_isa(SND_ISA_BASE);
            const double top = snd_k_unary(1, t, (snd_kfn)f, n, 0.9, x.p, y.p);
            snd_k_unary_bwd(1, t, (snd_kfn)f, n, 0.9, x.p, 1.1, dy.p, dx.p);
            double want = 0;
            for (int64_t i = 0; i < n; i++) want = fmax(want, fabs(at(&y, i)));
            CHECK_SAME(top, want);
            EACH_ISA(isa) {
                arr a = arr_copy(&x, (int)(n % 13)), b = arr_copy(&dy, (int)(n % 5));
                snd_k_unary_bwd(2, t, (snd_kfn)f, n, 0.9, a.p, 1.1, b.p, b.p); // in place on dy
                CHECK_SAME(snd_k_unary(2, t, (snd_kfn)f, n, 0.9, a.p, a.p), top);
                assert_true(same_bits(&a, &y) && same_bits(&b, &dx));
                arr_free(&a), arr_free(&b);
            }
            arr_free(&x), arr_free(&dy), arr_free(&y), arr_free(&dx);
        }
}

static bool kept(double x) {
    return !(x <= 0);
}

static void check_relu(snd_dtype t, int64_t n, int shift) {
    arr x = arr_draw(t, n, shift, "x", 1), dy = arr_draw(t, n, shift, "dy", 1), y = arr_make(t, n, shift);
    uint64_t above[20];
    if (n > 3) put(&x, 1, NAN), put(&x, 2, 0), put(&x, 3, -0.0);
    const double top = snd_k_relu(2, t, n, x.p, y.p, above);
    double want = 0;
    for (int64_t i = 0; i < n; i++) {
        CHECK_SAME(at(&y, i), kept(at(&x, i)) ? at(&x, i) : 0);
        assert_int_equal(above[i / 64] >> (i % 64) & 1, kept(at(&x, i)));
        if (!isnan(at(&y, i))) want = fmax(want, at(&y, i));
    }
    assert_true(n > 3 ? isnan(top) : top == want);
    if (n) put(&dy, n - 1, INFINITY);
    arr dx = arr_copy(&dy, shift);
    snd_k_relu_bwd(2, t, n, above, dx.p, dx.p); // in place
    for (int64_t i = 0; i < n; i++) CHECK_SAME(at(&dx, i), kept(at(&x, i)) ? at(&dy, i) : 0);
    arr_free(&x), arr_free(&dy), arr_free(&y), arr_free(&dx);
}

static void relu_by_bits(void **state) {
    (void)state;
    EACH_TYPE(t)
    EACH_ISA(isa)
    for (int64_t n = 0; n < 1100; n += n < 140 ? 1 : 491) check_relu(t, n, (int)(n % 5));
    static double x[70000], y[70000]; // more than one task
    static uint64_t above[1100];
    for (int i = 0; i < 70000; i++) x[i] = draw("many", i);
    snd_k_relu(3, SND_F64, 70000, x, y, above);
    for (int i = 0; i < 70000; i++) assert_int_equal(above[i / 64] >> (i % 64) & 1, x[i] > 0);
}

static void one_value_is_the_vector_value(void **state) {
    (void)state;
    for (int f = SND_KFN_GELU; f < SND_KFN_COUNT; f++)
        for (int i = 0; i < 200; i++) {
            const double x = f == SND_KFN_LOG || f == SND_KFN_SQRT ? fabs(draw("s", i)) : 3 * draw("s", i);
            CHECK_SAME(snd_k_fn((snd_kfn)f, x), one_value(SND_F64, (snd_kfn)f, x));
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_stay_in_their_table),
        cmocka_unit_test(limits),
        cmocka_unit_test(a_nan_stays_one_whatever_its_bits),
        cmocka_unit_test(derivatives_at_the_ends),
        cmocka_unit_test(slopes_are_differences_of_values),
        cmocka_unit_test(every_length_place_thread_and_isa_agree),
        cmocka_unit_test(relu_by_bits),
        cmocka_unit_test(one_value_is_the_vector_value),
    };
    return cmocka_run_group_tests_name("elementary functions", tests, NULL, reset_hooks);
}
