// The moment algebra against closed forms and against brute-force integrals. What a random net really does is compared
// in the measuring tests; here every number has a formula.
#include "check.h"

#include "theory/moments.h"

#define PI 3.14159265358979323846

// ---- Gaussian expectations ----------------------------------------------------------------------------------------------

// E f(z1) h(z2) by the midpoint rule on a fine grid: slow, and wrong only by the kink's share of a cell.
static double brute_pair(snd_gfn f, snd_gfn h, double s, double rho) {
    enum { N = 1600 };
    const double lo = -8, step = 16.0 / N, r = sqrt(1 - rho * rho);
    double sum = 0;
    for (int i = 0; i < N; i++) {
        const double x = lo + (i + 0.5) * step, fx = snd_gfn_value(f, s * x) * exp(-0.5 * x * x);
        for (int j = 0; j < N; j++) {
            const double y = lo + (j + 0.5) * step;
            sum += fx * exp(-0.5 * y * y) * snd_gfn_value(h, s * (rho * x + r * y));
        }
    }
    return sum * step * step / (2 * PI);
}

static void table_of(const snd_gauss_rule *r, snd_gfn f, double s, double *tab) {
    for (int i = 0; i < SND_GAUSS_NODES; i++) tab[i] = snd_gfn_value(f, s * r->z[i]);
}

static void rule_is_exact_on_each_side_of_its_kink(void **state) {
    (void)state;
    snd_gauss_rule r;
    snd_gauss_rule_centred(&r);
    double odd = 1; // (k-1)!!
    for (int k = 0; k <= 40; k += 2) {
        double right = 0, left = 0;
        for (int i = 0; i < SND_GAUSS_NODES; i++) *(r.z[i] > 0 ? &right : &left) += r.w[i] * pow(r.z[i], k);
        if (k > 1) odd *= k - 1;
        CHECK_REL(right, odd / 2, 1e-11);
        CHECK_REL(left, odd / 2, 1e-11);
    }
    double f[SND_GAUSS_NODES];
    table_of(&r, SND_GFN_RELU, 1, f);
    CHECK_REL(snd_gauss_mean(&r, f), 1 / sqrt(2 * PI), 1e-13);
    CHECK_REL(snd_gauss_inner(&r, f, f), 0.5, 1e-13);
}

static void split_rule_integrates_a_shifted_rectifier(void **state) {
    (void)state;
    for (double m = -3; m <= 3; m += 0.5) { // relu(m + z): m Phi(m) + phi(m)
        snd_gauss_rule r;
        snd_gauss_rule_split(&r, -m);
        double f[SND_GAUSS_NODES];
        for (int i = 0; i < SND_GAUSS_NODES; i++) f[i] = snd_gfn_value(SND_GFN_RELU, m + r.z[i]);
        const double cdf = 0.5 * erfc(-m / sqrt(2)), pdf = exp(-0.5 * m * m) / sqrt(2 * PI);
        CHECK_CLOSE(snd_gauss_mean(&r, f), m * cdf + pdf, 1e-9);
        CHECK_CLOSE(snd_gauss_inner(&r, f, f), (m * m + 1) * cdf + m * pdf, 1e-9);
    }
}

static void second_moments_match_the_reference_table(void **state) {
    (void)state;
    static const struct {
        snd_gfn f;
        double q, f2, d2;
    } rows[] = {{SND_GFN_TANH, 1, 0.39429, 0.46440},
                {SND_GFN_GELU, 1, 0.42522, 0.45585},
                {SND_GFN_GELU, 2, 0.92208, 0.48951},
                {SND_GFN_SILU, 1, 0.35578, 0.37948},
                {SND_GFN_SILU, 2, 0.79915, 0.42687}};
    snd_gauss_rule r;
    snd_gauss_rule_centred(&r);
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        double f[SND_GAUSS_NODES], d[SND_GAUSS_NODES];
        table_of(&r, rows[k].f, sqrt(rows[k].q), f);
        for (int i = 0; i < SND_GAUSS_NODES; i++) d[i] = snd_gfn_slope(rows[k].f, sqrt(rows[k].q) * r.z[i]);
        CHECK_CLOSE(snd_gauss_inner(&r, f, f), rows[k].f2, 6e-6); // five printed digits
        CHECK_CLOSE(snd_gauss_inner(&r, d, d), rows[k].d2, 6e-6);
    }
}

static void slopes_are_derivatives(void **state) {
    (void)state;
    static const snd_gfn smooth[] = {SND_GFN_GELU,    SND_GFN_GELU_TANH, SND_GFN_SILU, SND_GFN_TANH,
                                     SND_GFN_SIGMOID, SND_GFN_ERF,       SND_GFN_EXP,  SND_GFN_SOFTPLUS};
    for (size_t k = 0; k < sizeof smooth / sizeof *smooth; k++)
        for (double x = -4.1; x < 4.2; x += 0.37) {
            const double h = 1e-5, d = (snd_gfn_value(smooth[k], x + h) - snd_gfn_value(smooth[k], x - h)) / (2 * h);
            CHECK_CLOSE(snd_gfn_slope(smooth[k], x), d, 1e-8);
        }
    for (double x = 0.3; x < 4; x += 0.37) {
        CHECK_CLOSE(snd_gfn_slope(SND_GFN_SQRT, x), 0.5 / sqrt(x), 1e-14);
        CHECK_CLOSE(snd_gfn_slope(SND_GFN_LOG, x), 1 / x, 1e-14);
        CHECK_CLOSE(snd_gfn_slope(SND_GFN_RECIP, -x), -1 / (x * x), 1e-14);
    }
}

static void pairs_match_a_double_integral(void **state) {
    (void)state;
    static const snd_gfn fs[] = {SND_GFN_RELU, SND_GFN_GELU, SND_GFN_TANH, SND_GFN_SILU, SND_GFN_SIGMOID, SND_GFN_ABS};
    snd_gauss_rule r;
    snd_gauss_rule_centred(&r);
    for (size_t k = 0; k < sizeof fs / sizeof *fs; k++)
        for (int m = 0; m < 2; m++) {
            const double rho = m ? 0.95 : -0.4, s = 1.3;
            double f[SND_GAUSS_NODES], h[SND_GAUSS_NODES], a[SND_HERMITE_TERMS], b[SND_HERMITE_TERMS];
            table_of(&r, fs[k], s, f);
            table_of(&r, SND_GFN_RELU, s, h);
            snd_gauss_series(&r, f, a);
            snd_gauss_series(&r, h, b);
            CHECK_CLOSE(snd_gauss_mehler(a, a, rho, snd_gauss_inner(&r, f, f)), brute_pair(fs[k], fs[k], s, rho), 2e-4);
            CHECK_CLOSE(snd_gauss_mehler(a, b, rho, snd_gauss_inner(&r, f, h)), brute_pair(fs[k], SND_GFN_RELU, s, rho),
                        2e-4);
        }
    CHECK_CLOSE(snd_gauss_relu_pair(0.6), brute_pair(SND_GFN_RELU, SND_GFN_RELU, 1, 0.6), 1e-4);
}

static void series_of_a_rectifier_meets_the_arc_cosine_kernel(void **state) {
    (void)state;
    snd_gauss_rule r;
    snd_gauss_rule_centred(&r);
    double f[SND_GAUSS_NODES], a[SND_HERMITE_TERMS];
    table_of(&r, SND_GFN_RELU, 1, f);
    snd_gauss_series(&r, f, a);
    const double rho[] = {0, 0.3, 0.7, 0.9, 0.99, 0.9999, 1};
    for (size_t i = 0; i < sizeof rho / sizeof *rho; i++)
        CHECK_CLOSE(snd_gauss_mehler(a, a, rho[i], snd_gauss_inner(&r, f, f)), snd_gauss_relu_pair(rho[i]), 3e-6);
}

// ---- nets ---------------------------------------------------------------------------------------------------------------

typedef struct net {
    snd_arena *arena;
    snd_moments *t;
    int64_t d, n;
    snd_mid x0;
} net;

static net open_net(int batch, int64_t d, int64_t n, double cos) {
    net a = {.arena = snd_arena_create(), .d = d, .n = n};
    assert_non_null(a.arena);
    a.t = snd_moments_create(a.arena, batch);
    assert_non_null(a.t);
    a.x0 = snd_m_input(a.t, d, 1, cos);
    return a;
}

static void close_net(net *a) {
    assert_false(snd_moments_failed(a->t));
    snd_moments_destroy(a->t);
    snd_arena_destroy(a->arena);
}

static snd_mid block2(net *a, snd_gfn f, double gain, snd_mid u) {
    const snd_mid h = snd_m_unary(a->t, f, snd_m_linear(a->t, u, a->d, a->n, gain / (double)a->d));
    return snd_m_linear(a->t, h, a->n, a->d, 1 / (double)a->n);
}

static snd_mid block1(net *a, snd_mid u) {
    return snd_m_unary(a->t, SND_GFN_RELU, snd_m_linear(a->t, u, a->d, a->d, 2 / (double)a->d));
}

static double q_of(net *a, snd_mid v) {
    return pow(10, snd_m_log10_q(a->t, v));
}
static double gq_of(net *a, snd_mid v) {
    return pow(10, snd_m_log10_gq(a->t, v));
}

static double kappa(double c) {
    return (sqrt(1 - c * c) + c * (PI - acos(c))) / PI;
}

static double pair_of(net *a, snd_mid x, snd_mid y) { // E x y in one row
    return ldexp(snd_m_e2(a->t, x, y, 0), snd_m_exponent(a->t, x) + snd_m_exponent(a->t, y));
}

// Rectifiers of multiples, and their sums and products: with z of variance q, E relu(-2z)^2 = 2q, E relu(-2z) z = -q;
// f = relu(z) + relu(-2z)/4 has E f^2 = (1 + 1/4) q/2, E f z = (1 - 1/2) q/2, E f relu(z) = q/2.
static void multiples_and_sums_of_functions_of_one_variable(void **state) {
    (void)state;
    net a = open_net(2, 64, 64, 0.3);
    for (int i = 0; i < 2; i++) { // a second layer of another size asks for the same functions
        const double q = i ? 9 : 1;
        const snd_mid z = snd_m_linear(a.t, a.x0, 64, 64, q / 64);
        const snd_mid right = snd_m_unary(a.t, SND_GFN_RELU, z);
        const snd_mid left = snd_m_unary(a.t, SND_GFN_RELU, snd_m_scale(a.t, z, -2));
        const snd_mid f = snd_m_add(a.t, right, left, 1, 0.25), g = snd_m_sum(a.t, 1, &right, (double[]){2}, -1);
        const snd_mid square = snd_m_mul(a.t, left, left);
        CHECK_REL(q_of(&a, left), 2 * q, 1e-12);
        CHECK_REL(pair_of(&a, left, z), -q, 1e-12);
        CHECK_REL(q_of(&a, f), 1.25 * q / 2, 1e-12);
        CHECK_REL(pair_of(&a, f, z), q / 4, 1e-12);
        CHECK_REL(pair_of(&a, f, right), q / 2, 1e-12);
        CHECK_REL(q_of(&a, g), 2 * q - 4 * sqrt(q / (2 * PI)) + 1, 1e-12);
        CHECK_REL(snd_m_mean(a.t, square), 2 * q, 1e-12);
    }
    close_net(&a);
}

static void correlation_maps_match_the_reference_table(void **state) {
    (void)state;
    static const struct {
        snd_gfn f;
        double q, c, k;
    } rows[] = {{SND_GFN_RELU, 1, 0, .3183},   {SND_GFN_RELU, 1, .25, .4533}, {SND_GFN_RELU, 1, .9, .9095},
                {SND_GFN_RELU, 1, .99, .9903}, {SND_GFN_TANH, 1, .25, .2335}, {SND_GFN_TANH, 1, .9, .8856},
                {SND_GFN_TANH, 1, .99, .9883}, {SND_GFN_GELU, 1, 0, .1871},   {SND_GFN_GELU, 1, .5, .5345},
                {SND_GFN_GELU, 1, .99, .9893}, {SND_GFN_SILU, 1, 0, .1200},   {SND_GFN_SILU, 1, .75, .7456},
                {SND_GFN_SILU, 1, .99, .9894}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        net a = open_net(64, 256, 256, rows[i].c);
        const snd_mid z = snd_m_linear(a.t, a.x0, a.d, a.n, rows[i].q / (double)a.d);
        CHECK_CLOSE(snd_m_cos(a.t, snd_m_unary(a.t, rows[i].f, z)), rows[i].k, 6e-5);
        close_net(&a);
    }
}

// Branch scale alpha(l) on a He block; forward and backward products are exact at any width.
static void scaled_residuals_have_the_closed_forms(void **state) {
    (void)state;
    enum { L = 40 };
    for (int kind = 0; kind < 4; kind++) {
        net a = open_net(64, 128, 192, 0.3);
        snd_mid x = a.x0, xs[L + 1] = {x};
        for (int l = 1; l <= L; l++) {
            const double alpha = kind == 0 ? 1 : kind == 1 ? 1 / sqrt(l) : 1 / sqrt(L);
            snd_m_boundary(a.t);
            const snd_mid f = block2(&a, SND_GFN_RELU, 2, x);
            xs[l] = x = kind == 3 ? f : snd_m_add(a.t, x, f, 1, alpha);
        }
        snd_m_backward(a.t, x);
        double rho = 0.3;
        for (int l = 0; l <= L; l++) {
            const double q[] = {pow(2, l), l + 1, pow(1 + 1.0 / L, l), 1};
            const double g[] = {pow(2, L - l), (L + 1.0) / (l + 1), pow(1 + 1.0 / L, L - l), 1};
            CHECK_REL(q_of(&a, xs[l]), q[kind], 1e-10);
            CHECK_REL(gq_of(&a, xs[l]), g[kind], 1e-9);
            if (kind == 0) CHECK_CLOSE(snd_m_cos(a.t, xs[l]), rho, 1e-10);
            if (kind == 0) CHECK_CLOSE(snd_m_align(a.t, xs[l], xs[0]), pow(2, -0.5 * l), 1e-10);
            rho = 0.5 * (rho + kappa(rho));
        }
        close_net(&a);
    }
}

static void growth_leaves_the_range_of_double(void **state) {
    (void)state;
    net a = open_net(64, 64, 64, 0);
    snd_mid x = a.x0;
    for (int l = 0; l < 2000; l++) {
        snd_m_boundary(a.t);
        x = snd_m_add(a.t, x, block2(&a, SND_GFN_RELU, 2, x), 1, 1);
    }
    snd_m_backward(a.t, x);
    CHECK_REL(snd_m_log10_q(a.t, x), 2000 * log10(2), 1e-9);
    CHECK_REL(snd_m_log10_gq(a.t, a.x0), 2000 * log10(2), 1e-9);
    close_net(&a);
}

// eps = 0: pre-norm q = 1 + l, gradient (1 + L)/(1 + l) without, 1/(1 + l) with a final norm; post-norm 1 and 1.
static void norms_have_the_closed_forms(void **state) {
    (void)state;
    enum { L = 32 };
    for (int kind = 0; kind < 6; kind++) { // pre, pre + final, post; LayerNorm, then RMSNorm
        snd_mid (*norm)(snd_moments *, snd_mid, double) = kind < 3 ? snd_m_layer_norm : snd_m_rms_norm;
        net a = open_net(64, 256, 256, 0.3);
        snd_mid x = a.x0, xs[L + 1] = {x};
        for (int l = 1; l <= L; l++) {
            snd_m_boundary(a.t);
            xs[l] = x = kind % 3 < 2 ? snd_m_add(a.t, x, block2(&a, SND_GFN_RELU, 2, norm(a.t, x, 0)), 1, 1)
                                     : norm(a.t, snd_m_add(a.t, x, block2(&a, SND_GFN_RELU, 2, x), 1, 1), 0);
        }
        snd_m_backward(a.t, kind % 3 == 1 ? norm(a.t, x, 0) : x);
        for (int l = 0; l <= L; l++) {
            CHECK_REL(q_of(&a, xs[l]), kind % 3 == 2 ? 1 : l + 1, 1e-10);
            const double g[] = {(L + 1.0) / (l + 1), 1.0 / (l + 1), 1};
            CHECK_REL(gq_of(&a, xs[l]), g[kind % 3], 1e-6);
        }
        close_net(&a);
    }
}

// One or two features: the forward values span the width, so there is no room for noise beside them, and a stream of one
// feature is no number per row. The law is the infinitely wide net's all the same, at a cost linear in depth.
static void narrow_streams_keep_the_law(void **state) {
    (void)state;
    enum { L = 48 };
    for (int width = 1; width <= 3; width++) {
        net a = open_net(64, width, width, 0.3);
        snd_mid x = a.x0, xs[L + 1] = {x};
        for (int l = 1; l <= L; l++) {
            snd_m_boundary(a.t);
            xs[l] = x = snd_m_add(a.t, x, block2(&a, SND_GFN_RELU, 2, snd_m_rms_norm(a.t, x, 0)), 1, 1);
        }
        snd_m_backward(a.t, x);
        for (int l = 0; l <= L; l++) {
            CHECK_REL(q_of(&a, xs[l]), l + 1, 1e-10);
            CHECK_REL(gq_of(&a, xs[l]), (L + 1.0) / (l + 1), 1e-6);
        }
        close_net(&a);
    }
}

static void eps_stands_beside_the_variance(void **state) {
    (void)state;
    net a = open_net(64, 256, 256, 0.3);
    const snd_mid small = snd_m_scale(a.t, a.x0, 0.02);
    CHECK_REL(q_of(&a, snd_m_layer_norm(a.t, small, 1e-4)), 4e-4 / (4e-4 + 1e-4), 1e-12);
    CHECK_REL(q_of(&a, snd_m_rms_norm(a.t, small, 1e-4)), 4e-4 / (4e-4 + 1e-4), 1e-12);
    const double v = 4e-4 * (1 - 0.3) * (1 - 1.0 / 64);
    CHECK_REL(q_of(&a, snd_m_batch_norm(a.t, small, 1e-4)), v / (v + 1e-4), 1e-12);
    close_net(&a);
}

// One-matrix residual net: r' = (r + 1/sqrt(pi))/sqrt(2 + 2r/sqrt(pi)), growth 2 + 2r/sqrt(pi) -> 2.9041.
static void one_matrix_nets_grow_by_their_mean(void **state) {
    (void)state;
    enum { L = 256 };
    net a = open_net(256, 128, 128, 0.2916);
    snd_mid x = block1(&a, a.x0);
    double r = 1 / sqrt(PI), log_q = 0;
    for (int l = 1; l <= L; l++) {
        snd_m_boundary(a.t);
        x = snd_m_add(a.t, x, block1(&a, x), 1, 1);
        const double growth = 2 + 2 * r / sqrt(PI);
        log_q += log10(growth);
        r = (r + 1 / sqrt(PI)) / sqrt(growth);
        CHECK_REL(snd_m_log10_q(a.t, x), log_q, 1e-10);
        CHECK_REL(snd_m_mean_ratio(a.t, x), r, 1e-10);
    }
    CHECK_CLOSE(pow(10, log_q / L), 2.903, 1e-3);
    CHECK_CLOSE(r, 0.8012, 1e-4);
    close_net(&a);
}

// Pre-norm with a stem: mean (l+1)/sqrt(pi), centred correlation c_l = (l c + f(c))/(l+1), raw cosine from both.
static void one_matrix_pre_norm_has_the_lecture_correlations(void **state) {
    (void)state;
    enum { L = 256 };
    net a = open_net(256, 128, 128, 0.2916);
    snd_mid x = block1(&a, a.x0);
    CHECK_CLOSE(snd_m_cos(a.t, x), kappa(0.2916), 1e-12);
    double c = (kappa(0.2916) - 1 / PI) / (1 - 1 / PI), first = 0, last = 0;
    for (int l = 1; l <= L; l++) {
        snd_m_boundary(a.t);
        x = snd_m_add(a.t, x, block1(&a, snd_m_layer_norm(a.t, x, 0)), 1, 1);
        c = (l * c + (kappa(c) - 1 / PI) / (1 - 1 / PI)) / (l + 1);
        const double m2 = (l + 1) / PI, t = m2 / (m2 + 1 - 1 / PI);
        CHECK_REL(q_of(&a, x), (l + 1) * (m2 + 1 - 1 / PI), 1e-10);
        CHECK_REL(snd_m_mean(a.t, x), (l + 1) / sqrt(PI), 1e-10);
        CHECK_CLOSE(snd_m_cos(a.t, x), t + (1 - t) * c, 1e-9);
        const double normed = snd_m_cos(a.t, snd_m_layer_norm(a.t, x, 0));
        CHECK_CLOSE(normed, c, 1e-9);
        if (l == 1) first = normed;
        last = normed;
    }
    CHECK_CLOSE(first, 0.209, 6e-4);
    CHECK_CLOSE(last, 0.069, 6e-4);
    close_net(&a);
}

// x.g is the same at every layer of a homogeneous net, so the gradient along x grows like q and overtakes the noise:
// depth 32, width 512, input cosine 0.3: measured 2.5e12 to 4.7e12 over seeds; noise alone gives 2^32.
static void coherent_gradients_overtake(void **state) {
    (void)state;
    net a = open_net(32, 512, 512, 0.3);
    snd_mid x = a.x0;
    for (int l = 0; l < 32; l++) {
        snd_m_boundary(a.t);
        x = snd_m_add(a.t, x, block1(&a, x), 1, 1);
    }
    snd_m_backward(a.t, x);
    const double g = gq_of(&a, a.x0), along = q_of(&a, x) / 512;
    assert_true(g > 2.5e12 && g < 4.7e12);
    assert_true(g > along);
    close_net(&a);
    // plain one-matrix nets: nothing grows, the gradient stays what it is
    a = open_net(32, 512, 512, 0.3);
    x = a.x0;
    for (int l = 0; l < 32; l++) {
        snd_m_boundary(a.t);
        x = block1(&a, x);
    }
    snd_m_backward(a.t, x);
    CHECK_REL(gq_of(&a, a.x0), 1, 1e-9);
    close_net(&a);
}

// Batch norm in a large batch: variance over the batch 1 + (1 - 1/pi) l; gradient x (1 + 1/c), x 2/(2 - 1/pi), x pi/(pi-1).
static void batch_norm_has_the_closed_forms(void **state) {
    (void)state;
    enum { L = 20, BATCH = 100000000 };
    for (int kind = 0; kind < 3; kind++) {
        net a = open_net(BATCH, 256, 256, 0);
        snd_mid x = a.x0, xs[L + 1] = {x};
        for (int l = 1; l <= L; l++) {
            snd_m_boundary(a.t);
            if (kind == 0) x = snd_m_add(a.t, x, block2(&a, SND_GFN_RELU, 2, snd_m_batch_norm(a.t, x, 0)), 1, 1);
            if (kind == 1) x = snd_m_batch_norm(a.t, snd_m_add(a.t, x, block2(&a, SND_GFN_RELU, 2, x), 1, 1), 0);
            if (kind == 2) x = snd_m_batch_norm(a.t, block1(&a, x), 0);
            xs[l] = x;
        }
        snd_m_backward(a.t, x);
        double g = 1;
        for (int l = L; l >= 1; l--) {
            CHECK_REL(q_of(&a, xs[l]), kind == 0 ? 1 + l : 1, 1e-6);
            CHECK_REL(gq_of(&a, xs[l]), g, 1e-5);
            const double c = 1 + (1 - 1 / PI) * (l - 1);
            if (kind == 0) CHECK_REL(q_of(&a, xs[l]) * (1 - snd_m_cos(a.t, xs[l])), c + 1 - 1 / PI, 1e-6);
            // the first post- or plain layer reads the raw input, which is as good as normalised
            g *= kind == 0 ? 1 + 1 / c : kind == 1 ? 2 / (2 - 1 / PI) : PI / (PI - 1);
        }
        CHECK_REL(gq_of(&a, xs[0]), g, 1e-5);
        close_net(&a);
    }
}

// Post-norm with a smooth activation: (1 + chi)/(1 + a) per sublayer; pre-norm q = 1 + S a, gradient prod (1 + chi/q).
static void other_activations_have_chi_and_a(void **state) {
    (void)state;
    static const struct {
        snd_gfn f;
        double v1, a, chi;
    } rows[] = {{SND_GFN_GELU, 2, 0.92208, 2 * 0.48951},
                {SND_GFN_TANH, 1, 0.39429, 0.46440},
                {SND_GFN_SILU, 2, 0.79915, 2 * 0.42687}};
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++)
        for (int pre = 0; pre < 2; pre++) {
            net a = open_net(64, 512, 1024, 0.3);
            snd_mid x = a.x0;
            double g = 1, q = 1;
            for (int l = 0; l < 16; l++) {
                snd_m_boundary(a.t);
                if (pre)
                    x = snd_m_add(a.t, x, block2(&a, rows[k].f, rows[k].v1, snd_m_layer_norm(a.t, x, 0)), 1, 1);
                else
                    x = snd_m_layer_norm(a.t, snd_m_add(a.t, x, block2(&a, rows[k].f, rows[k].v1, x), 1, 1), 0);
                g *= pre ? 1 + rows[k].chi / q : (1 + rows[k].chi) / (1 + rows[k].a);
                q += pre ? rows[k].a : 0;
            }
            snd_m_backward(a.t, x);
            CHECK_REL(q_of(&a, x), q, 3e-5);
            CHECK_REL(gq_of(&a, a.x0), g, 4e-3); // five-digit constants, and what returns along forward values
            close_net(&a);
        }
}

// y = (1-t) x + t F(x), t = sigmoid(W x - 1): E over independent gates, forward; backward adds the gate's own path.
static void gates_are_independent_of_what_they_gate(void **state) {
    (void)state;
    net a = open_net(64, 512, 512, 0.3);
    const snd_mid z = snd_m_linear(a.t, a.x0, a.d, a.d, 1 / (double)a.d);
    const snd_mid t = snd_m_unary(a.t, SND_GFN_SIGMOID, snd_m_sum(a.t, 1, &z, (double[]){1}, -1));
    const snd_mid keep = snd_m_sum(a.t, 1, &t, (double[]){-1}, 1), f = block2(&a, SND_GFN_RELU, 2, a.x0);
    const snd_mid y = snd_m_add(a.t, snd_m_mul(a.t, keep, a.x0), snd_m_mul(a.t, t, f), 1, 1);
    double t1 = 0, t2 = 0, d2 = 0;
    for (int i = 0; i < 4000; i++) {
        const double g = -10 + (i + 0.5) * 0.005, w = exp(-0.5 * g * g) / sqrt(2 * PI) * 0.005,
                     s = 1 / (1 + exp(1 - g));
        t1 += w * s, t2 += w * s * s, d2 += w * s * s * (1 - s) * (1 - s);
    }
    CHECK_REL(q_of(&a, y), 1 - 2 * t1 + 2 * t2, 1e-9);
    snd_m_backward(a.t, y);
    // skip (1-t)^2, branch t^2 chi with chi = 1, gate (F - x)^2 t'^2 = 2 t'^2
    CHECK_REL(gq_of(&a, a.x0), (1 - 2 * t1 + t2) + t2 + 2 * d2, 5e-3);
    assert_false(snd_m_approx(a.t, y));
    close_net(&a);
}

static void functions_of_one_variable_are_exact(void **state) {
    (void)state;
    net a = open_net(64, 256, 256, 0.4);
    const snd_mid z = snd_m_linear(a.t, a.x0, a.d, a.d, 2 / (double)a.d);
    const snd_mid silu = snd_m_unary(a.t, SND_GFN_SILU, z),
                  gate = snd_m_mul(a.t, z, snd_m_unary(a.t, SND_GFN_SIGMOID, z));
    CHECK_REL(q_of(&a, gate), q_of(&a, silu), 1e-12);
    CHECK_CLOSE(snd_m_align(a.t, gate, silu), 1, 1e-12);
    CHECK_CLOSE(snd_m_cos(a.t, gate), snd_m_cos(a.t, silu), 1e-12);
    const snd_mid twice = snd_m_unary(a.t, SND_GFN_RELU, snd_m_unary(a.t, SND_GFN_RELU, z));
    CHECK_REL(q_of(&a, twice), 1, 1e-12);
    const snd_mid abs = snd_m_unary(a.t, SND_GFN_ABS, z);
    CHECK_REL(snd_m_mean(a.t, abs), sqrt(2) * sqrt(2 / PI), 1e-12);
    snd_m_backward(a.t, gate);
    close_net(&a);
}

static void stops_and_zeros_have_no_gradient(void **state) {
    (void)state;
    net a = open_net(64, 256, 256, 0.4);
    const snd_mid f = block2(&a, SND_GFN_RELU, 2, a.x0), off = snd_m_mul(a.t, f, snd_m_const(a.t, 0));
    const snd_mid x = snd_m_alias(a.t, a.x0);
    const snd_mid y = snd_m_add(a.t, snd_m_add(a.t, x, off, 1, 1), snd_m_stop(a.t, x), 1, 0.5);
    CHECK_REL(q_of(&a, y), 2.25, 1e-12);
    snd_m_backward(a.t, y);
    CHECK_REL(gq_of(&a, x), 1, 1e-12);
    assert_false(gq_of(&a, f) > 0);
    close_net(&a);
}

// What came through a value without moments is not known; it is neither 0 nor what came another way alone.
static void lost_moments_lose_the_gradient(void **state) {
    (void)state;
    net a = open_net(64, 256, 256, 0.4);
    const snd_mid x = snd_m_alias(a.t, a.x0), lost = snd_m_unary(a.t, SND_GFN_LOG, x);
    const snd_mid h = block2(&a, SND_GFN_RELU, 2, lost), y = snd_m_add(a.t, x, h, 1, 1);
    snd_m_backward(a.t, y);
    CHECK_REL(gq_of(&a, y), 1, 1e-12);
    CHECK_REL(gq_of(&a, h), 1, 1e-12);
    assert_true(snd_m_reached(a.t, x) && isnan(snd_m_log10_gq(a.t, x)));
    assert_true(snd_m_reached(a.t, lost) && isnan(snd_m_log10_gq(a.t, lost)));
    close_net(&a);
    a = open_net(64, 256, 256, 0.4); // no gradient comes through stop
    const snd_mid log_x = snd_m_unary(a.t, SND_GFN_LOG, a.x0);
    const snd_mid fine = snd_m_add(a.t, a.x0, snd_m_stop(a.t, log_x), 1, 1);
    snd_m_backward(a.t, fine);
    CHECK_REL(gq_of(&a, a.x0), 1, 1e-12);
    assert_false(snd_m_reached(a.t, log_x));
    close_net(&a);
}

static void approximations_say_so(void **state) {
    (void)state;
    net a = open_net(64, 256, 256, 0.4);
    const snd_mid gauss = snd_m_add(a.t, a.x0, block2(&a, SND_GFN_RELU, 2, a.x0), 1, 1);
    assert_false(snd_m_approx(a.t, snd_m_unary(a.t, SND_GFN_TANH, gauss)));
    const snd_mid bent = snd_m_add(a.t, a.x0, block1(&a, a.x0), 1, 1);
    assert_false(snd_m_approx(a.t, bent));
    const snd_mid y = snd_m_unary(a.t, SND_GFN_RELU, bent);
    assert_true(snd_m_approx(a.t, y));
    assert_true(snd_m_approx(a.t, block2(&a, SND_GFN_RELU, 2, y)));
    close_net(&a);
}

// E tanh(v) x for jointly Gaussian v, x is E tanh'(v) cov(v, x).
static void functions_of_a_stream_stay_aligned_with_it(void **state) {
    (void)state;
    net a = open_net(64, 256, 256, 0.3);
    const snd_mid v = snd_m_add(a.t, a.x0, block2(&a, SND_GFN_RELU, 2, a.x0), 1, 2);
    const snd_mid y = snd_m_unary(a.t, SND_GFN_TANH, v);
    double slope = 0, square = 0;
    for (int i = 0; i < 4000; i++) {
        const double z = -10 + (i + 0.5) * 0.005, w = exp(-0.5 * z * z) / sqrt(2 * PI) * 0.005, u = tanh(sqrt(5) * z);
        slope += w * (1 - u * u);
        square += w * u * u;
    }
    CHECK_REL(snd_m_align(a.t, y, a.x0), slope / sqrt(square), 1e-6);
    close_net(&a);
}

// After nets whose gradient grows along x, a norm takes that away: x.g = 0 below it. A norm written out by hand does too.
static void norms_end_coherent_growth(void **state) {
    (void)state;
    double g[4];
    for (int kind = 0; kind < 4; kind++) {
        net a = open_net(32, 512, 512, 0.3);
        snd_mid x = a.x0, y = 0;
        for (int l = 0; l < 32; l++) {
            snd_m_boundary(a.t);
            x = snd_m_add(a.t, x, block1(&a, x), 1, 1);
        }
        if (kind == 0) y = snd_m_scale(a.t, x, pow(10, -0.5 * snd_m_log10_q(a.t, x)));
        if (kind == 1) y = snd_m_layer_norm(a.t, x, 0);
        if (kind == 2) y = snd_m_rms_norm(a.t, x, 0);
        if (kind == 3) y = snd_m_mul(a.t, x, snd_m_unary(a.t, SND_GFN_RECIP, snd_m_rms(a.t, x)));
        snd_m_backward(a.t, y);
        g[kind] = gq_of(&a, a.x0) * pow(10, snd_m_log10_q(a.t, x));
        if (kind == 1) g[kind] *= 1 - pow(snd_m_mean_ratio(a.t, x), 2);
        close_net(&a);
    }
    assert_true(g[0] > 2.5e12);
    CHECK_REL(g[3], g[2], 0.01); // the number per row itself is one direction in 512
    assert_true(g[1] < 0.02 * g[0] && g[2] < 0.02 * g[0]);
}

static void batch_norm_counts_its_rows(void **state) {
    (void)state;
    net a = open_net(8, 256, 256, 0);
    const snd_mid z = snd_m_linear(a.t, a.x0, a.d, a.d, 1 / (double)a.d), y = snd_m_batch_norm(a.t, z, 0);
    snd_m_backward(a.t, y);
    // chi-squared of 7: E 1/var = 8/(7 - 2), and 2 of 8 directions are gone
    CHECK_REL(gq_of(&a, z), 8.0 / 5 * (1 - 2.0 / 8), 1e-9);
    CHECK_CLOSE(snd_m_cos(a.t, y), -1.0 / 7, 1e-12);
    close_net(&a);
}

static void numbers_per_row_have_their_values(void **state) {
    (void)state;
    net a = open_net(64, 256, 256, 0.2);
    const snd_mid x = snd_m_scale(a.t, a.x0, 3);
    CHECK_REL(snd_m_mean(a.t, snd_m_dot(a.t, x, a.x0)), 3 * 256, 1e-12);
    CHECK_REL(snd_m_mean(a.t, snd_m_rms(a.t, x)), 3, 1e-12);
    const snd_mid f = block2(&a, SND_GFN_RELU, 2, a.x0), noise = snd_m_dot(a.t, f, a.x0);
    CHECK_REL(q_of(&a, noise), 256, 1e-9); // sum of 256 products of independent unit normals
    CHECK_CLOSE(snd_m_mean(a.t, noise), 0, 1e-12);
    close_net(&a);
}

// n Var[log q] of one network: 2 + 5L, 2 + 7L, 2 + 11/4 L, 2 + sum (7 a^4 + 4 a^2)/(1 + a^2)^2, and pre-norm
// [2 + sum (7 + 4 q)]/q_L^2 for one row; the reference's figures for a batch of 32. White gradients mirror the forward.
static void one_network_strays_as_the_law_says(void **state) {
    (void)state;
    enum { L = 64, N = 256 };
    static const double batch_of_32[] = {283, 396, 136, 4.1, 0.82};
    for (int kind = 0; kind < 5; kind++) {
        net a = open_net(32, N, N, 0);
        snd_mid x = a.x0, ends[2];
        double sum = 2, q = 1;
        for (int l = 1; l <= L; l++) {
            const double b = 1 / sqrt(l), b2 = b * b;
            snd_m_boundary(a.t);
            if (kind == 0) x = block1(&a, x);
            if (kind == 1) x = block2(&a, SND_GFN_RELU, 2, x);
            if (kind == 2) x = snd_m_add(a.t, x, block2(&a, SND_GFN_RELU, 2, x), 1, 1);
            if (kind == 3) x = snd_m_add(a.t, x, block2(&a, SND_GFN_RELU, 2, x), 1, b);
            if (kind == 4) x = snd_m_add(a.t, x, block2(&a, SND_GFN_RELU, 2, snd_m_layer_norm(a.t, x, 0)), 1, 1);
            sum += kind == 0   ? 5
                   : kind == 1 ? 7
                   : kind == 2 ? 2.75
                   : kind == 3 ? (7 * b2 * b2 + 4 * b2) / ((1 + b2) * (1 + b2))
                               : 7 + 4 * q;
            q += 1;
        }
        if (kind == 4) sum /= q * q;
        ends[0] = a.x0, ends[1] = x;
        snd_m_spread(a.t, ends, 2);
        double one, many, back;
        assert_true(snd_m_log_q_var(a.t, x, 1, &one));
        assert_true(snd_m_log_q_var(a.t, x, 32, &many));
        CHECK_REL(N * one, sum, 1e-6);
        CHECK_CLOSE(N * many, batch_of_32[kind], 5e-3); // printed to two or three digits
        assert_true(snd_m_log_q_var(a.t, a.x0, 32, &many));
        CHECK_REL(N * many, 2.0 / 32, 1e-9);
        snd_m_backward(a.t, x);
        snd_m_grad_spread(a.t, x, ends, 2);
        assert_true(snd_m_log_gq_var(a.t, a.x0, 1, &back));
        if (kind < 4) CHECK_REL(N * back, sum, 1e-6);
        if (kind == 4) assert_true(N * back > 25 && N * back < 40); // scaled by 1/sqrt(l), plus the divisors' spread
        close_net(&a);
    }
}

// Depth alone uses no limit up: 4000 residual layers spread as 64 do, forward and backward, and in a second or two.
static void any_depth_has_a_spread(void **state) {
    (void)state;
    enum { L = 4000, N = 256 };
    net a = open_net(32, N, N, 0);
    snd_mid x = a.x0;
    for (int l = 1; l <= L; l++) {
        snd_m_boundary(a.t);
        x = snd_m_add(a.t, x, block2(&a, SND_GFN_RELU, 2, x), 1, 1);
    }
    const snd_mid ends[] = {a.x0, x};
    double forward, back;
    snd_m_spread(a.t, ends, 2);
    assert_true(snd_m_log_q_var(a.t, x, 1, &forward));
    CHECK_REL(N * forward, 2 + 2.75 * L, 1e-6);
    snd_m_backward(a.t, x);
    snd_m_grad_spread(a.t, x, ends, 2);
    assert_true(snd_m_log_gq_var(a.t, a.x0, 1, &back));
    CHECK_REL(N * back, 2 + 2.75 * L, 1e-6);
    close_net(&a);
}

// A norm's output has no spread of its own; a sum of independent halves does not care how it is written.
static void spread_follows_the_algebra(void **state) {
    (void)state;
    net a = open_net(32, 256, 256, 0.2);
    snd_m_boundary(a.t);
    const snd_mid x = snd_m_add(a.t, a.x0, block2(&a, SND_GFN_GELU, 2, a.x0), 1, 0.7);
    const snd_mid n = snd_m_layer_norm(a.t, x, 0), twice = snd_m_scale(a.t, x, 2), r = snd_m_rms_norm(a.t, x, 0);
    const snd_mid by_hand = snd_m_mul(a.t, x, snd_m_unary(a.t, SND_GFN_RECIP, snd_m_rms(a.t, x)));
    const snd_mid want[] = {x, n, twice, r, by_hand};
    snd_m_spread(a.t, want, 5);
    double v[5];
    for (int i = 0; i < 5; i++) assert_true(snd_m_log_q_var(a.t, want[i], 8, &v[i]));
    assert_true(v[0] > 0);
    CHECK_REL(v[2], v[0], 1e-12);
    assert_true(v[1] < 1e-12 * v[0] && v[3] < 1e-12 * v[0] && v[4] < 1e-12 * v[0]);
    close_net(&a);
}

// A stream that is multiplied with functions of itself in every layer: exact expansions grow exponentially (two minutes
// at eight layers), so they are cut, the numbers stay finite, and the values say that they are estimates.
static void long_expansions_are_cut(void **state) {
    (void)state;
    snd_arena *a = snd_arena_create();
    snd_moments *t = snd_moments_create(a, 64);
    snd_mid x = snd_m_input(t, 512, 1, 0);
    for (int l = 0; l < 48; l++) {
        const snd_mid f = snd_m_linear(t, snd_m_layer_norm(t, x, 1e-5), 512, 512, 1.0 / 512);
        const snd_mid gap = snd_m_unary(t, SND_GFN_ABS, snd_m_add(t, x, f, 1, -1)); // min(x, f) = (x + f - |x - f|)/2
        x = snd_m_sum(t, 3, (snd_mid[]){x, f, gap}, (double[]){1, 0.5, -0.5}, 0);
        snd_m_boundary(t);
    }
    assert_true(isfinite(snd_m_log10_q(t, x)));
    assert_true(snd_m_approx(t, x));
    snd_m_backward(t, x);
    assert_true(isfinite(snd_m_log10_gq(t, 1)));
    snd_moments_destroy(t);
    snd_arena_destroy(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_expansions_are_cut),
        cmocka_unit_test(rule_is_exact_on_each_side_of_its_kink),
        cmocka_unit_test(split_rule_integrates_a_shifted_rectifier),
        cmocka_unit_test(second_moments_match_the_reference_table),
        cmocka_unit_test(slopes_are_derivatives),
        cmocka_unit_test(pairs_match_a_double_integral),
        cmocka_unit_test(series_of_a_rectifier_meets_the_arc_cosine_kernel),
        cmocka_unit_test(multiples_and_sums_of_functions_of_one_variable),
        cmocka_unit_test(correlation_maps_match_the_reference_table),
        cmocka_unit_test(scaled_residuals_have_the_closed_forms),
        cmocka_unit_test(growth_leaves_the_range_of_double),
        cmocka_unit_test(norms_have_the_closed_forms),
        cmocka_unit_test(narrow_streams_keep_the_law),
        cmocka_unit_test(eps_stands_beside_the_variance),
        cmocka_unit_test(one_matrix_nets_grow_by_their_mean),
        cmocka_unit_test(one_matrix_pre_norm_has_the_lecture_correlations),
        cmocka_unit_test(coherent_gradients_overtake),
        cmocka_unit_test(batch_norm_has_the_closed_forms),
        cmocka_unit_test(other_activations_have_chi_and_a),
        cmocka_unit_test(gates_are_independent_of_what_they_gate),
        cmocka_unit_test(functions_of_one_variable_are_exact),
        cmocka_unit_test(stops_and_zeros_have_no_gradient),
        cmocka_unit_test(lost_moments_lose_the_gradient),
        cmocka_unit_test(approximations_say_so),
        cmocka_unit_test(functions_of_a_stream_stay_aligned_with_it),
        cmocka_unit_test(norms_end_coherent_growth),
        cmocka_unit_test(batch_norm_counts_its_rows),
        cmocka_unit_test(numbers_per_row_have_their_values),
        cmocka_unit_test(one_network_strays_as_the_law_says),
        cmocka_unit_test(any_depth_has_a_spread),
        cmocka_unit_test(spread_follows_the_algebra),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
