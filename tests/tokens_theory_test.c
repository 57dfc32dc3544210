// What the token algebra stands on: softmax over random scores against simulation, classes of positions against sums over
// all of them, and kernels against closed forms. Whole models: predict_tokens_test.c.
#include "check.h"

#include "theory/softmax.h"
#include "theory/tokens.h"

#include <math.h>
#include <stdlib.h>

// ---- softmax --------------------------------------------------------------------------------------------------------------

// 2e5 draws each (64 keys: 2e4), standard errors below 0.3 %.
static void softmax_laws_match_simulation(void **state) {
    (void)state;
    static const struct {
        double n, sd, square, spread, entropy;
    } rows[] = {{2, 0.5, 0.55103, 0.20523, 0.63965},        {2, 1, 0.63681, 0.14812, 0.53954},
                {2, 2, 0.75948, 0.08762, 0.37602},          {2, 4, 0.86531, 0.04620, 0.21764},
                {5, 0.5, 0.23851, 0.16414, 1.51679},        {5, 1, 0.33267, 0.15840, 1.30655},
                {5, 2, 0.52331, 0.12549, 0.90444},          {5, 4, 0.72546, 0.07898, 0.49844},
                {64, 0.5, 0.01992, 0.01932, 4.03672},       {64, 1, 0.03873, 0.03402, 3.68592},
                {64, 2, 0.16004, 0.08072, 2.64640},         {64, 4, 0.45939, 0.10020, 1.30603},
                {16, 32, 1 - 1.7613 / 32, 0.5631 / 32, -1}, {64, 64, 1 - 2.3601 / 64, 0.7656 / 64, -1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const snd_soft_law l = snd_softmax_law(rows[i].n, rows[i].sd);
        CHECK_REL(l.square, rows[i].square, 0.01);
        CHECK_REL(l.spread, rows[i].spread, rows[i].sd > 8 ? 0.06 : 0.01);
        if (rows[i].entropy > 0) CHECK_REL(l.entropy, rows[i].entropy, 0.01);
    }
}

static void softmax_laws_have_their_limits(void **state) {
    (void)state;
    for (double n = 1; n < 3000; n *= 3) {
        const snd_soft_law even = snd_softmax_law(n, 0), near = snd_softmax_law(n, 1e-3);
        CHECK_REL(even.square, 1 / n, 1e-12);
        CHECK_CLOSE(even.entropy, log(n), 1e-12);
        CHECK_CLOSE(near.square, even.square, 1e-5);
        CHECK_CLOSE(near.spread, even.spread, 1e-5);
        CHECK_CLOSE(near.entropy, even.entropy, 1e-4);
        CHECK_CLOSE(snd_softmax_law(n, 1e6).square, 1, 1e-4);
    }
    CHECK_REL(snd_softmax_law(1, 5).square, 1, 1e-12);
    // n e^(sd^2) while both are small against n
    CHECK_REL(snd_softmax_law(1e4, 0.7).square, exp(0.49) / 1e4, 0.01);
}

static void tables_of_laws_follow_them(void **state) {
    (void)state;
    static snd_soft_table t;
    t.head_dim = 1e12; // scores that are Gaussian
    for (double n = 1.5; n < 5000; n *= 2.3)
        for (double sd = 0.2; sd < 60; sd *= 1.7) {
            const snd_soft_law l = snd_softmax_law(n, sd);
            const snd_soft_factors f = snd_softmax_factors(&t, n, sd);
            const double e = exp(f.exponent * sd * sd);
            CHECK_REL(e / (e + n - 1), l.square, 0.05);
            CHECK_REL(f.spread * l.square * (1 - 1 / n), l.spread, 0.05);
            CHECK_CLOSE(f.entropy, l.entropy / log(n), 0.02);
            CHECK_REL(snd_softmax_common(&t, n, sd, 1), f.exponent, 1e-9);
        }
}

// E sum_s A_s A'_s of two queries whose scores have correlation r: 2e4 draws.
static void two_queries_share_what_their_scores_share(void **state) {
    (void)state;
    static snd_soft_table t;
    t.head_dim = 1e12;
    static const struct {
        double n, sd, r, want;
    } rows[] = {{4, 1, 0.5, 0.316},   {4, 4, 0.5, 0.442},   {4, 16, 0.9, 0.741},  {16, 2, 0.25, 0.099},
                {16, 4, 0.75, 0.342}, {16, 16, 0.5, 0.236}, {64, 1, 0.75, 0.031}, {64, 2, 0.5, 0.056},
                {64, 4, 0.9, 0.331},  {64, 16, 0.5, 0.130}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const double n = rows[i].n, var = rows[i].sd * rows[i].sd * rows[i].r;
        const double e = exp(snd_softmax_common(&t, n, rows[i].sd, rows[i].r) * var);
        CHECK_CLOSE(e / (e + n - 1), rows[i].want, 0.02 + 0.12 * rows[i].want);
    }
}

// ---- places -----------------------------------------------------------------------------------------------------------------

static void classes_cover_all_positions(void **state) {
    (void)state;
    static const int64_t lengths[] = {1, 2, 5, 20, 21, 64, 100, 1024, 8192};
    for (int c = SND_CUT_GROWING; c <= SND_CUT_FEW; c++)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            snd_arena *a = snd_arena_create();
            snd_places p;
            CHECK_OK(snd_places_make(a, lengths[i], (snd_cut)c, &p));
            assert_true(p.n >= 1 && p.n <= SND_PLACES);
            double next = 0;
            for (int k = 0; k < p.n; k++) {
                assert_true(p.first[k] == next && p.count[k] >= 1);
                next += p.count[k];
            }
            CHECK_REL(next, (double)lengths[i], 1e-15);
            double share[4] = {0};
            const int to[4] = {snd_other(&p), snd_cross_same(&p), snd_cross_other(&p), p.size};
            for (int e = 0, k = 0; e < p.size; e++) {
                while (e >= to[k]) k++;
                share[k] += p.weight[e];
                assert_int_equal(p.flip[p.flip[e]], e);
                assert_int_equal(p.row[p.flip[e]], p.col[e]);
            }
            for (int k = 0; k < 4; k++) CHECK_CLOSE(share[k], k % 2 && lengths[i] == 1 ? 0 : 1, 1e-12);
            snd_arena_destroy(a);
        }
}

// One position per class: sums over keys are what they say.
static void sights_are_sums_over_visible_keys(void **state) {
    (void)state;
    enum { T = 16 };
    snd_arena *a = snd_arena_create();
    snd_places p;
    snd_sight s;
    CHECK_OK(snd_places_make(a, T, SND_CUT_FINE, &p));
    assert_int_equal(p.n, T);
    static const double slopes[] = {0.5, 0.03};
    for (int causal = 0; causal < 2; causal++)
        for (int window = 0; window < 8; window += 3) {
            CHECK_OK(snd_sight_make(a, &p, &p, causal, window, slopes, 2, &s));
            for (int h = 0; h < 2; h++)
                for (int q = 0; q < T; q++)
                    for (int k = 0; k < T; k++) {
                        const int far = abs(q - k);
                        const bool seen = (!causal || k <= q) && (!window || far < window);
                        const double m = seen ? exp(-slopes[h] * far) : 0;
                        CHECK_CLOSE(s.mass[(h * T + q) * T + k], m, 1e-12);
                        for (int u = 0; u < T; u++) {
                            const bool too = (!causal || k <= u) && (!window || abs(u - k) < window);
                            const double want = too ? m * exp(-slopes[h] * abs(u - k)) : 0;
                            CHECK_CLOSE(s.both[((h * T + q) * T + u) * T + k], want, 1e-12);
                        }
                    }
        }
    snd_arena_destroy(a);
}

// The middle token of a class speaks for it.
static void wide_classes_weigh_their_keys(void **state) {
    (void)state;
    snd_arena *a = snd_arena_create();
    snd_places p;
    snd_sight s;
    const double m = 0.2;
    CHECK_OK(snd_places_make(a, 20, SND_CUT_FEW, &p));
    assert_int_equal(p.n, 4);
    CHECK_OK(snd_sight_make(a, &p, &p, false, 0, &m, 1, &s));
    for (int q = 0; q < 4; q++)
        for (int u = 0; u < 4; u++)
            for (int k = 0; k < 4; k++) {
                double one = 0, two = 0;
                for (int j = 5 * k; j < 5 * k + 5; j++) {
                    const double w = exp(-m * abs(5 * q + 2 - j));
                    one += w;
                    two += w * exp(-m * abs(5 * u + 2 - j));
                }
                CHECK_REL(s.mass[q * 4 + k], one, 1e-12);
                CHECK_REL(s.both[(q * 4 + u) * 4 + k], two, 1e-12);
            }
    snd_arena_destroy(a);
}

static void wide_classes_see_as_many_keys(void **state) {
    (void)state;
    snd_arena *a = snd_arena_create();
    snd_places p;
    snd_sight s;
    CHECK_OK(snd_places_make(a, 1024, SND_CUT_GROWING, &p));
    CHECK_OK(snd_sight_make(a, &p, &p, true, 0, NULL, 1, &s));
    double all = 0;
    for (int q = 0; q < p.n; q++)
        for (int k = 0; k < p.n; k++) all += p.count[q] * s.mass[q * p.n + k];
    CHECK_REL(all, 1024.0 * 1025 / 2, 1e-12);
    snd_arena_destroy(a);
}

// ---- kernels ------------------------------------------------------------------------------------------------------------------

typedef struct fixture {
    snd_arena *a;
    snd_tokens *t;
} fixture;

static fixture begin(int64_t tokens, snd_cut cut) {
    fixture f = {.a = snd_arena_create()};
    f.t = snd_tokens_create(f.a, 4);
    (void)snd_tk_stack(f.t, tokens, cut);
    return f;
}
static void end(fixture f) {
    assert_false(snd_tokens_failed(f.t));
    snd_tokens_destroy(f.t);
    snd_arena_destroy(f.a);
}

static void functions_have_the_arc_cosine_kernel(void **state) {
    (void)state;
    const fixture f = begin(8, SND_CUT_FEW);
    const snd_mid x = snd_tk_input(f.t, 64, (snd_tk_rows){2, 1.2, 0.8, -0.4}, false);
    const snd_mid y = snd_tk_unary(f.t, SND_GFN_RELU, snd_tk_linear(f.t, x, 64, 32, 1.0 / 64));
    CHECK_CLOSE(snd_tk_log10_q(f.t, y), 0, 1e-9);
    CHECK_CLOSE(snd_tk_tokcos(f.t, y), 2 * snd_gauss_relu_pair(0.6), 1e-4);
    CHECK_CLOSE(snd_tk_cos(f.t, y, false), 2 * snd_gauss_relu_pair(0.4), 1e-4);
    CHECK_CLOSE(snd_tk_mean(f.t, y), 2 / sqrt(4 * 3.14159265358979), 1e-9);
    end(f);
}

// A product of independent factors has the product of their kernels; with itself x has Wick's.
static void products_have_their_kernels(void **state) {
    (void)state;
    const fixture f = begin(8, SND_CUT_FEW);
    const snd_mid x = snd_tk_input(f.t, 64, (snd_tk_rows){1, 0.5, 0.25, 0}, false);
    const snd_mid u = snd_tk_linear(f.t, x, 64, 64, 1.0 / 64), v = snd_tk_linear(f.t, x, 64, 64, 1.0 / 64);
    const snd_mid uv = snd_tk_mul(f.t, u, v), uu = snd_tk_mul(f.t, u, u);
    CHECK_CLOSE(snd_tk_tokcos(f.t, uv), 0.25, 1e-12);
    CHECK_CLOSE(snd_tk_cos(f.t, uv, false), 0.0625, 1e-12);
    CHECK_CLOSE(snd_tk_log10_q(f.t, uu), log10(3), 1e-12);
    CHECK_CLOSE(snd_tk_tokcos(f.t, uu), (1 + 2 * 0.25) / 3, 1e-12);
    assert_false(snd_tk_approx(f.t, uu));
    end(f);
}

static void sums_norms_and_alignment(void **state) {
    (void)state;
    const fixture f = begin(8, SND_CUT_GROWING);
    const snd_mid x = snd_tk_input(f.t, 64, (snd_tk_rows){1, 0, 0, 0}, false);
    const snd_mid y = snd_tk_linear(f.t, x, 64, 64, 3.0 / 64);
    const snd_mid s = snd_tk_sum(f.t, 2, (snd_mid[]){x, y}, (double[]){2, 1}, 1);
    CHECK_CLOSE(snd_tk_log10_q(f.t, s), log10(4 + 3 + 1), 1e-12);
    CHECK_CLOSE(snd_tk_log10_var(f.t, s), log10(7), 1e-12);
    CHECK_CLOSE(snd_tk_tokcos(f.t, s), 1 / 8.0, 1e-12);
    CHECK_CLOSE(snd_tk_cos(f.t, s, true), 0, 1e-12);
    CHECK_CLOSE(snd_tk_align(f.t, s, x), 2 / sqrt(8), 1e-12);
    CHECK_CLOSE(snd_tk_log10_ratio(f.t, y, s), log10(3 / 8.0) / 2, 1e-12);
    const snd_mid n = snd_tk_layer_norm(f.t, s, 1), r = snd_tk_rms_norm(f.t, s, 2);
    CHECK_CLOSE(snd_tk_log10_q(f.t, n), log10(7 / 8.0), 1e-12);
    CHECK_CLOSE(snd_tk_mean(f.t, n), 0, 1e-12);
    CHECK_CLOSE(snd_tk_log10_q(f.t, r), log10(8 / 10.0), 1e-12);
    end(f);
}

// Per feature over 4 x 8 rows: what rows share goes, the biased variance becomes 1.
static void batch_norm_takes_what_rows_share(void **state) {
    (void)state;
    const fixture f = begin(8, SND_CUT_FEW);
    const snd_mid x = snd_tk_input(f.t, 64, (snd_tk_rows){5, 2, 2, 2}, false), y = snd_tk_batch_norm(f.t, x, 0);
    CHECK_CLOSE(snd_tk_log10_q(f.t, y), 0, 1e-12);
    CHECK_CLOSE(snd_tk_tokcos(f.t, y), -1 / 31.0, 1e-12);
    CHECK_CLOSE(snd_tk_log10_bvar(f.t, x), log10(3 * 31 / 32.0), 1e-12);
    end(f);
}

static void gradients_are_transposes(void **state) {
    (void)state;
    const fixture f = begin(8, SND_CUT_FEW);
    const snd_mid x = snd_tk_input(f.t, 64, (snd_tk_rows){1, 0.5, 0, 0}, false);
    const snd_mid h = snd_tk_unary(f.t, SND_GFN_RELU, snd_tk_linear(f.t, x, 64, 128, 2.0 / 64));
    const snd_mid y =
        snd_tk_sum(f.t, 2, (snd_mid[]){x, snd_tk_linear(f.t, h, 128, 64, 1.0 / 128)}, (double[]){3, 1}, 0);
    const snd_mid z = snd_tk_rms_norm(f.t, y, 0);
    snd_tk_backward(f.t, z);
    // a branch of gain 1 both ways: g_x = 9 g + g, divided by q of the sum
    CHECK_CLOSE(snd_tk_log10_gq(f.t, y), -log10(10), 1e-9);
    CHECK_CLOSE(snd_tk_log10_gq(f.t, x), 0, 1e-9);
    CHECK_CLOSE(snd_tk_log10_gtok(f.t, x), -log10(8), 1e-9);
    end(f);
}

// ---- nets of finite width ---------------------------------------------------------------------------------------------------

// Over nets: mean and variance of log q, and mean of tokcos, of what `make` builds on inputs with these rows.
typedef struct law {
    double mean, var, tokcos;
} law;

static law law_of(snd_mid (*make)(snd_tokens *t, snd_mid x), snd_tk_rows rows, int64_t tokens) {
    enum { PAIRS = 600 };
    const fixture f = begin(tokens, SND_CUT_FEW);
    law l = {0};
    double square = 0;
    for (int i = 0; i < 2 * PAIRS; i++) {
        snd_arena *a = snd_arena_create();
        snd_tokens *t = snd_tokens_create_net(a, f.t, &(snd_tk_net){.lucky = true, .number = i / 2, .mirrored = i % 2});
        (void)snd_tk_stack(t, tokens, SND_CUT_FEW);
        const snd_mid y = make(t, snd_tk_input(t, 1 << 30, rows, false)); // its own luck is none
        const double q = snd_tk_log10_q(t, y) * log(10);
        l.mean += q / (2 * PAIRS), square += q * q;
        if (tokens > 1) l.tokcos += snd_tk_tokcos(t, y) / (2 * PAIRS);
        assert_false(snd_tokens_failed(t));
        snd_tokens_destroy(t);
        snd_arena_destroy(a);
    }
    l.var = square / (2 * PAIRS) - l.mean * l.mean;
    end(f);
    return l;
}

enum { FEATURES = 100 };
static snd_mid map_of(snd_tokens *t, snd_mid x) {
    return snd_tk_linear(t, x, FEATURES, FEATURES, 1.0 / FEATURES);
}
static snd_mid relu_of(snd_tokens *t, snd_mid x) {
    return snd_tk_unary(t, SND_GFN_RELU, map_of(t, x));
}
static snd_mid product_of(snd_tokens *t, snd_mid x) {
    return snd_tk_mul(t, map_of(t, x), map_of(t, x));
}
static snd_mid sum_of(snd_tokens *t, snd_mid x) {
    return snd_tk_sum(t, 2, (snd_mid[]){map_of(t, x), map_of(t, x)}, (double[]){1, 1}, 0);
}
static snd_mid normed(snd_tokens *t, snd_mid x) {
    return snd_tk_rms_norm(t, map_of(t, x), 0);
}

// Of n Gaussian features a row's mean square has variance 2/n of its square, of relu's 5/n (E r^4/(E r^2)^2 - 1), of a
// product's 8/n; a sum is Gaussian again. 1200 nets in pairs know a variance to 6 %.
static void lucks_have_the_variance_of_their_features(void **state) {
    (void)state;
    static const struct {
        snd_mid (*make)(snd_tokens *t, snd_mid x);
        double n_var;
    } makes[] = {{map_of, 2}, {relu_of, 5}, {product_of, 8}, {sum_of, 2}};
    const snd_tk_rows alike = {1, 1, 1, 1}, apart = {1, 0, 0, 0};
    for (int i = 0; i < 4; i++) {
        const law one = law_of(makes[i].make, alike, 16), many = law_of(makes[i].make, apart, 16);
        CHECK_REL(one.var, makes[i].n_var / FEATURES, 0.2);
        CHECK_CLOSE(one.mean - many.mean, -one.var / 2, 0.3 * one.var); // log q falls by half its variance
        CHECK_REL(many.var, makes[i].n_var / FEATURES / (4 * 16), i == 1 ? 0.35 : 0.2); // relu: its mean is in all rows
    }
}

// The mean cosine of n Gaussian features lies c (1 - c^2)/2n nearer to 0 than c, of rows divided one by one as well.
static void cosines_of_few_features_are_smaller(void **state) {
    (void)state;
    for (double c = 0.2; c < 0.9; c += 0.3) {
        const snd_tk_rows rows = {1, c, 0, 0};
        const law l = law_of(map_of, rows, 64), n = law_of(normed, rows, 64);
        const double want = -c * (1 - c * c) / 2 / FEATURES;
        CHECK_CLOSE(l.tokcos - c, want, 0.3 / FEATURES * c * (1 - c));
        CHECK_CLOSE(n.tokcos, l.tokcos, 0.1 / FEATURES);
        CHECK_CLOSE(n.mean, 0, 1e-9);
        CHECK_CLOSE(n.var, 0, 1e-9);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(softmax_laws_match_simulation),
        cmocka_unit_test(softmax_laws_have_their_limits),
        cmocka_unit_test(tables_of_laws_follow_them),
        cmocka_unit_test(two_queries_share_what_their_scores_share),
        cmocka_unit_test(classes_cover_all_positions),
        cmocka_unit_test(sights_are_sums_over_visible_keys),
        cmocka_unit_test(wide_classes_weigh_their_keys),
        cmocka_unit_test(wide_classes_see_as_many_keys),
        cmocka_unit_test(functions_have_the_arc_cosine_kernel),
        cmocka_unit_test(products_have_their_kernels),
        cmocka_unit_test(sums_norms_and_alignment),
        cmocka_unit_test(batch_norm_takes_what_rows_share),
        cmocka_unit_test(gradients_are_transposes),
        cmocka_unit_test(lucks_have_the_variance_of_their_features),
        cmocka_unit_test(cosines_of_few_features_are_smaller),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
