// Draws: every element equals its scalar definition in base/, for any start, length, misalignment and instruction set.
#include "base/rngmath.h"
#include "kernels_common.h"

typedef void fill_fn(int th, snd_dtype t, snd_key key, uint64_t first, int64_t n, double a, void *out);

static double normal(snd_key k, uint64_t i) {
    return snd_normal_at(k, i);
}
static double cut(snd_key k, uint64_t i) {
    return snd_rng_trunc(k.k, i);
}

static void compare(snd_dtype t, fill_fn *fill, double (*scalar)(snd_key, uint64_t), uint64_t first, int64_t n, int th,
                    int shift) {
    const snd_key key = snd_key_make(5, "layers.3.block.up.weight");
    arr a = arr_make(t, n, shift);
    fill(th, t, key, first, n, 0.3, a.p);
    for (int64_t i = 0; i < n; i++) {
        const double z = 0.3 * scalar(key, first + (uint64_t)i);
        CHECK_SAME(at(&a, i), t == SND_F64 ? z : (double)(float)z);
    }
    arr_free(&a);
}

static void normals_and_cut_normals_equal_the_scalar_recipe(void **state) {
    (void)state;
    EACH_ISA(isa) EACH_TYPE(t) {
        for (int64_t n = 0; n <= 2 * 256 + 1; n += n < 20 || n > 500 ? 1 : 13)
            for (uint64_t first = 0; first < 5; first++) {
                compare(t, snd_k_fill_normal, normal, first, n, 1, (int)(n % 7));
                compare(t, snd_k_fill_trunc, cut, first + 1000, n, 1, (int)(first % 4));
            }
        // the block counter carries into its upper word
        compare(t, snd_k_fill_normal, normal, 4 * UINT64_C(0x100000000) - 130, 700, 1, 0);
        for (int th = 1; th <= 4; th++) compare(t, snd_k_fill_normal, normal, 3, 40000, th, 1);
    }
}

static void uniforms_equal_the_scalar_recipe(void **state) {
    (void)state;
    const snd_key key = snd_key_make(9, "u");
    EACH_ISA(isa) EACH_TYPE(t) for (int64_t n = 0; n < 600; n += 37) for (uint64_t first = 0; first < 6; first++) {
        arr a = arr_make(t, n, 1);
        snd_k_fill_uniform(2, t, key, first, n, -2, 3, a.p);
        for (int64_t i = 0; i < n; i++) {
            const double u = -2 + (3 - -2) * snd_uniform_at(key, first + (uint64_t)i);
            CHECK_SAME(at(&a, i), t == SND_F64 ? u : (double)(float)u);
        }
        arr_free(&a);
    }
}

// Moments of a million draws, within five standard errors.
static void draws_have_their_moments(void **state) {
    (void)state;
    const int64_t n = 1 << 20;
    const snd_key key = snd_key_make(1, "moments");
    arr a = arr_make(SND_F64, n, 0);
    const double se = 1 / sqrt((double)n);
    for (int cut_at_two = 0; cut_at_two < 2; cut_at_two++) {
        (cut_at_two ? snd_k_fill_trunc : snd_k_fill_normal)(2, SND_F64, key, 0, n, 1, a.p);
        double m = 0, v = 0, q = 0, lag = 0, top = 0;
        for (int64_t i = 0; i < n; i++) {
            const double z = at(&a, i);
            m += z, v += z * z, q += z * z * z * z, top = fmax(top, fabs(z));
            if (i) lag += z * at(&a, i - 1);
        }
        // cut at two: variance 1 - 4 phi(2)/(2 Phi(2) - 1) = 0.77374
        const double var = cut_at_two ? 0.7737413035 : 1;
        assert_true(fabs(m / (double)n) <= 5 * se && fabs(v / (double)n - var) <= 5 * 1.5 * se &&
                    fabs(lag / (double)n) <= 5 * se);
        if (cut_at_two)
            assert_true(top <= 2);
        else
            assert_true(fabs(q / (double)n - 3) <= 5 * sqrt(96.0) * se && top > 4.5);
    }
    arr_free(&a);
}

static void constants(void **state) {
    (void)state;
    EACH_TYPE(t) {
        arr a = arr_make(t, 70000, 3);
        snd_k_fill_const(3, t, 70000, -1.5, a.p);
        for (int64_t i = 0; i < 70000; i++) CHECK_SAME(at(&a, i), -1.5);
        arr_free(&a);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(normals_and_cut_normals_equal_the_scalar_recipe),
        cmocka_unit_test(uniforms_equal_the_scalar_recipe),
        cmocka_unit_test(draws_have_their_moments),
        cmocka_unit_test(constants),
    };
    return cmocka_run_group_tests_name("draws", tests, NULL, reset_hooks);
}
