// Random numbers: known answers, the exact recipe, accuracy of the polynomials, moments, independence of names.
#include "check.h"

#include "base/base.h"
#include "base/rngmath.h"

#include <Random123/philox.h>

static void philox_gives_the_known_answers(void **state) {
    (void)state;
    uint32_t w[4];
    // Key 0, counter 0, and the last row, are in Random123's own list of known answers (kat_vectors).
    snd_philox((snd_key){{0, 0}}, 0, w);
    const uint32_t zero[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    assert_memory_equal(w, zero, sizeof w);
    snd_philox((snd_key){{0xdeadbeef, 0x2a}}, 0, w);
    const uint32_t beef[4] = {0xfbf1cb87, 0x898e5010, 0x63330d05, 0xd3727efb};
    assert_memory_equal(w, beef, sizeof w);
    const uint32_t key[2] = {0xa4093822, 0x299f31d0}, ctr[4] = {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344};
    const uint32_t pi[4] = {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1};
    snd_philox_block(key, ctr, w);
    assert_memory_equal(w, pi, sizeof w);
}

static void philox_agrees_with_random123(void **state) {
    (void)state;
    for (uint64_t i = 0; i < 5000; i++) {
        const uint64_t block = i * UINT64_C(0x9E3779B97F4A7C15);
        const uint32_t k0 = (uint32_t)(i * 2654435761u), k1 = (uint32_t)i;
        uint32_t w[4];
        snd_philox((snd_key){{k0, k1}}, block, w);
        const philox4x32_ctr_t c = {{(uint32_t)block, (uint32_t)(block >> 32), 0, 0}};
        const philox4x32_key_t k = {{k0, k1}};
        const philox4x32_ctr_t r = philox4x32(c, k);
        assert_memory_equal(w, r.v, sizeof w);
    }
}

// Words near every edge of the recipe, then a spread of others.
static uint32_t word(int i) {
    static const uint32_t edges[] = {0,          1,          2,          0x1fffffff, 0x20000000, 0x20000001,
                                     0x3fffffff, 0x40000000, 0x5fffffff, 0x60000000, 0x7fffffff, 0x80000000,
                                     0x9fffffff, 0xa0000000, 0xb504f332, 0xb504f333, 0xb504f334, 0xbfffffff,
                                     0xc0000000, 0xdfffffff, 0xe0000000, 0xfffffffe, 0xffffffff, 0x5a82799a};
    const int n = (int)(sizeof edges / sizeof *edges);
    return i < n ? edges[i] : (uint32_t)i * 2654435761u;
}

static void log_and_circle_are_accurate(void **state) {
    (void)state;
    const long double turn = 2 * 3.14159265358979323846264338327950288L;
    for (int i = 0; i < 300000; i++) {
        const uint32_t w = word(i);
        const long double u = ((long double)w + 0.5L) / 4294967296.0L, a = turn * w / 4294967296.0L;
        CHECK_REL(snd_rng_log(w), (double)logl(u), 4 * 0x1p-53);
        double c, s;
        snd_rng_cos_sin(w, &c, &s);
        if (!(fabsl(c - cosl(a)) <= 3 * 0x1p-53L && fabsl(s - sinl(a)) <= 3 * 0x1p-53L)) {
            fail_msg("word %08x: cos %.17g sin %.17g", w, c, s);
        }
    }
    double c, s;
    snd_rng_cos_sin(0x40000000, &c, &s); // a quarter turn, exactly
    assert_true(c == 0 && s == 1);
}

static void normals_follow_the_written_recipe(void **state) {
    (void)state;
    const snd_key key = snd_key_make(7, "layers.3.W1.weight");
    for (uint64_t i = 0; i < 64; i++) {
        uint32_t w[4];
        snd_philox(key, i / 4, w);
        const int p = i % 4 < 2 ? 0 : 2;
        const double r = sqrt(-2 * log((w[p] + 0.5) / 4294967296.0)), a = 2 * acos(-1) * (w[p + 1] / 4294967296.0);
        CHECK_CLOSE(snd_normal_at(key, i), i % 2 ? r * sin(a) : r * cos(a), 1e-14);
        CHECK_SAME(snd_uniform_at(key, i), w[i % 4] / 4294967296.0);
        double four[4];
        snd_rng_normal4(w, four);
        CHECK_SAME(snd_normal_at(key, i), four[i % 4]);
    }
}

// The stream is part of the interface: seeds in old results must give the old numbers.
static void streams_never_change(void **state) {
    (void)state;
    const snd_key key = snd_key_make(0, "layers.0.W1.weight");
    assert_int_equal(key.k[0], 0xac99aac7u);
    assert_int_equal(key.k[1], 0xc77d414cu);
    CHECK_SAME(snd_normal_at(key, 0), -0x1.615772855e60cp-1);
    CHECK_SAME(snd_normal_at(key, 1000003), -0x1.21fe25758bbd8p+1);
    CHECK_SAME(snd_rng_trunc(key.k, 77), 0x1.61b698c0b9a09p-2);
    // Every bit of many elements: changed coefficients or contraction to FMA show here.
    static double z[50000];
    for (uint64_t i = 0; i < 50000; i++) z[i] = snd_normal_at(key, i);
    assert_true(snd_hash(z, sizeof z) == UINT64_C(0x4c4ab54f824c544f));
}

static void keys_differ_in_seed_and_name(void **state) {
    (void)state;
    const snd_key a = snd_key_make(1, "x"), b = snd_key_make(2, "x"), c = snd_key_make(1, "y");
    assert_true(a.k[0] != b.k[0] && a.k[0] != c.k[0] && a.k[1] != b.k[1] && a.k[1] != c.k[1]);
    enum { N = 40000 };
    double ab = 0, ac = 0, lag = 0;
    for (uint64_t i = 0; i < N; i++) {
        const double z = snd_normal_at(a, i);
        ab += z * snd_normal_at(b, i);
        ac += z * snd_normal_at(c, i);
        lag += z * snd_normal_at(a, i + 1);
    }
    const double five_sigma = 5 * sqrt(N);
    assert_true(fabs(ab) < five_sigma && fabs(ac) < five_sigma && fabs(lag) < five_sigma);
}

static void moments_are_those_of_the_normal(void **state) {
    (void)state;
    enum { N = 1 << 18 };
    const snd_key key = snd_key_make(3, "moments");
    double m[9] = {0}, uniform = 0, cut = 0;
    int tail = 0;
    for (uint64_t i = 0; i < N; i++) {
        const double z = snd_normal_at(key, i);
        double p = 1;
        for (int k = 1; k <= 8; k++) m[k] += p *= z;
        tail += fabs(z) > 3;
        const double u = snd_uniform_at(key, i), t = snd_rng_trunc(key.k, i);
        assert_true(u >= 0 && u < 1 && fabs(t) <= 2);
        uniform += u;
        cut += t * t;
    }
    // Five standard errors each: Var z^k = E z^2k - (E z^k)^2 with E z^2k = (2k-1)!!.
    assert_true(fabs(m[1] / N) < 5 / sqrt(N));
    assert_true(fabs(m[2] / N - 1) < 5 * sqrt(2.0 / N));
    assert_true(fabs(m[3] / N) < 5 * sqrt(15.0 / N));
    assert_true(fabs(m[4] / N - 3) < 5 * sqrt(96.0 / N));
    assert_true(fabs(uniform / N - 0.5) < 5 * sqrt(1.0 / 12 / N));
    // P(|z| > 3) = 0.0026998; variance of the normal cut at +-2 is 1 - 4 phi(2)/(2 Phi(2) - 1) = 0.7737.
    assert_true(fabs(tail / (double)N - 0.0026998) < 5 * sqrt(0.0027 / N));
    assert_true(fabs(cut / N - 0.7737413) < 5 * sqrt(0.65 / N));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_known_answers),
        cmocka_unit_test(philox_agrees_with_random123),
        cmocka_unit_test(log_and_circle_are_accurate),
        cmocka_unit_test(normals_follow_the_written_recipe),
        cmocka_unit_test(streams_never_change),
        cmocka_unit_test(keys_differ_in_seed_and_name),
        cmocka_unit_test(moments_are_those_of_the_normal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
