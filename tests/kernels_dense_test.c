// Small dense algebra: Gram matrices and pivoted Cholesky factors of every size, rank-deficient and with bad rows.
#include "kernels_common.h"

static double *gram_of(snd_dtype t, int64_t R, int64_t K, const arr *x) {
    double *G = snd_malloc((size_t)(R * R + 1) * sizeof *G);
    for (int64_t i = 0; i < R * R; i++) G[i] = NAN; // above the diagonal: not to be read
    snd_k_gram(t, R, K, x->p, G);
    for (int64_t i = 0; i < R; i++)
        for (int64_t j = i + 1; j < R; j++) G[i * R + j] = NAN;
    return G;
}

static void grams(void **state) {
    (void)state;
    EACH_ISA(isa) EACH_TYPE(t) for (int64_t R = 1; R <= 19; R++) for (int64_t K = 0; K <= 70; K += K < 18 ? 1 : 13) {
        arr x = arr_draw(t, R * K, (int)(K % 3), "gram", 1);
        double *G = gram_of(t, R, K, &x);
        for (int64_t i = 0; i < R; i++)
            for (int64_t j = 0; j <= i; j++) {
                long double want = 0, size = 1;
                for (int64_t k = 0; k < K; k++) {
                    want += (long double)at(&x, i * K + k) * at(&x, j * K + k);
                    size += fabsl((long double)at(&x, i * K + k) * at(&x, j * K + k));
                }
                CHECK_CLOSE(G[i * R + j] / (double)size, (double)(want / size), 8 * DBL_EPSILON);
            }
        snd_free(G);
        arr_free(&x);
    }
}

// L LT = G, columns after the rank and elements in rows of earlier pivots are zero.
static void check_factor(int64_t R, const double *G, const double *L, const int32_t *piv, int64_t p, double top) {
    for (int64_t i = 0; i < R; i++)
        for (int64_t j = 0; j <= i; j++) {
            double s = 0;
            for (int64_t k = 0; k < p; k++) s += L[i * R + k] * L[j * R + k];
            if (isfinite(G[i * R + i]) && isfinite(G[j * R + j]))
                CHECK_CLOSE(s / top, G[i * R + j] / top, 2e-14);
            else
                CHECK_SAME(s, 0);
        }
    for (int64_t k = 0; k < R; k++)
        for (int64_t q = 0; q < (k < p ? k : 0); q++) CHECK_SAME(L[piv[q] * R + k], 0);
    for (int64_t i = 0; i < R; i++)
        for (int64_t k = p; k < R; k++) CHECK_SAME(L[i * R + k], 0);
}

static void factors(void **state) {
    (void)state;
    EACH_ISA(isa)
    for (int64_t R = 1; R <= 140; R += R < 20 ? 1 : 24)
        for (int variant = 0; variant < 3; variant++) {
            const int64_t K = R + 20, rank = variant == 1 ? (R + 1) / 2 : R;
            arr x = arr_draw(SND_F64, R * K, 0, "chol", 1);
            for (int64_t i = rank; i < R; i++) // copies, twice as long
                for (int64_t k = 0; k < K; k++) put(&x, i * K + k, 2 * at(&x, (i - rank) * K + k));
            if (variant == 2) put(&x, R / 2 * K + 3, R % 2 ? NAN : INFINITY);
            double *G = gram_of(SND_F64, R, K, &x), *L = snd_malloc((size_t)(R * R + 2 * R) * sizeof *L), top = 0;
            int32_t piv[140];
            for (int64_t i = 0; i < R; i++)
                if (isfinite(G[i * R + i])) top = fmax(top, G[i * R + i]);
            const int64_t p = snd_k_cholesky(R, 1e-14, G, L, L + R * R, piv);
            assert_int_equal(p, variant == 2 ? R - 1 : rank);
            check_factor(R, G, L, piv, p, top > 0 ? top : 1);
            snd_free(G), snd_free(L);
            arr_free(&x);
        }
}

static void nothing_gives_nothing(void **state) {
    (void)state;
    double G[4] = {0, 0, 0, 0}, L[4], d[4];
    int32_t piv[2];
    assert_int_equal(snd_k_cholesky(2, 1e-14, G, L, d, piv), 0);
    for (int i = 0; i < 4; i++) CHECK_SAME(L[i], 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(grams, reset_hooks),
        cmocka_unit_test_teardown(factors, reset_hooks),
        cmocka_unit_test(nothing_gives_nothing),
    };
    return cmocka_run_group_tests_name("dense", tests, NULL, reset_hooks);
}
