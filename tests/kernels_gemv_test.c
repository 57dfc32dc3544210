// Products of a few rows with a matrix: against long double for every number of rows, every length up to some tiles and
// one, misaligned, on every instruction set; guards; exact where sums are exact; the same bits for 1 to 4 threads, and for
// a row of W wherever it stands.
#include "kernels_common.h"

static void against_reference(snd_dtype t, int64_t M, int64_t N, int64_t K, int shift, double alpha, double beta) {
    const int64_t ldx = K + 3, ldw = K + 1, ldy = N + 2;
    arr x = arr_draw(t, M * ldx, shift, "x", 1), w = arr_draw(t, N * ldw, shift + 1, "w", 1);
    arr y = arr_draw(t, M * ldy, shift, "y", 1), old = arr_copy(&y, 0);
    for (int64_t i = 0; beta == 0 && i < M; i++)
        for (int64_t j = 0; j < N; j++) put(&y, i * ldy + j, NAN); // must not be read
    snd_k_gemv(2, t, M, N, K, alpha, x.p, ldx, w.p, ldw, beta, y.p, ldy);
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < ldy; j++) {
            if (j >= N) {
                CHECK_SAME(at(&y, i * ldy + j), at(&old, i * ldy + j));
                continue;
            }
            long double sum = 0, size = 0;
            for (int64_t k = 0; k < K; k++) {
                const long double p = (long double)at(&x, i * ldx + k) * at(&w, j * ldw + k);
                sum += p, size += fabsl(p);
            }
            const double before = beta == 0 ? 0 : at(&old, i * ldy + j), want = (double)(alpha * sum + beta * before);
            // a sum of K products in any order errs by at most K eps of the sum of magnitudes
            const double tol =
                eps_of(t) * ((double)K + 4) * (double)(fabs(alpha) * size + fabs(beta * before)) + 1e-300;
            if (!(fabs(at(&y, i * ldy + j) - want) <= tol)) {
                print_error("[%d,%d,%d] shift %d at %d %d: got %.9g want %.9g\n", (int)M, (int)N, (int)K, shift, (int)i,
                            (int)j, at(&y, i * ldy + j), want);
                fail();
            }
        }
    arr_free(&x), arr_free(&w), arr_free(&y), arr_free(&old);
}

static void every_size(void **state) {
    (void)state;
    EACH_TYPE(t)
    EACH_ISA(isa) {
        for (int64_t M = 1; M <= 17; M++)
            for (int64_t N = 1; N <= 9; N++) against_reference(t, M, N, 67 + N, (int)(M % 5), 1, 0);
        for (int64_t K = 1; K <= 2 * 8 * 16 + 1; K++)
            against_reference(t, 1 + K % 8, 5, K, (int)(K % 7), -0.5, K % 2 ? 2 : 0);
    }
}

// Small integers: every partial sum is exact, so every order gives the same bits.
static void exact_sums_are_equal(void **state) {
    (void)state;
    enum { M = 5, N = 23, K = 300 };
    EACH_TYPE(t)
    EACH_ISA(isa) {
        arr x = arr_make(t, M * K, 0), w = arr_make(t, N * K, 0), y = arr_make(t, M * N, 0);
        for (int64_t i = 0; i < M * K; i++) put(&x, i, (double)(i * 7 % 15 - 7));
        for (int64_t i = 0; i < N * K; i++) put(&w, i, (double)(i * 11 % 13 - 6));
        snd_k_gemm(2, t, false, true, M, N, K, 1, x.p, K, w.p, K, 0, y.p, N);
        for (int64_t i = 0; i < M; i++)
            for (int64_t j = 0; j < N; j++) {
                double want = 0;
                for (int64_t k = 0; k < K; k++) want += at(&x, i * K + k) * at(&w, j * K + k);
                CHECK_SAME(at(&y, i * N + j), want);
            }
        arr_free(&x), arr_free(&w), arr_free(&y);
    }
}

static void threads_agree_bitwise(void **state) {
    (void)state;
    enum { N = 1001, K = 333 };
    EACH_TYPE(t)
    for (int64_t M = 1; M <= 8; M++) {
        arr x = arr_draw(t, M * K, 1, "x", 1), w = arr_draw(t, N * K, 0, "w", 1), one = arr_make(t, M * N, 0);
        snd_k_gemv(1, t, M, N, K, 1, x.p, K, w.p, K, 0, one.p, N);
        for (int th = 2; th <= 4; th++) {
            arr y = arr_make(t, M * N, 0);
            snd_k_gemv(th, t, M, N, K, 1, x.p, K, w.p, K, 0, y.p, N);
            assert_true(same_bits(&y, &one));
            arr_free(&y);
        }
        arr last = arr_make(t, M, 0); // among others or alone: the same bits
        const size_t size = t == SND_F64 ? 8 : 4;
        snd_k_gemv(1, t, M, 1, K, 1, x.p, K, (const char *)w.p + (N - 3) * K * size, K, 0, last.p, 1);
        for (int64_t i = 0; i < M; i++) CHECK_SAME(at(&last, i), at(&one, i * N + N - 3));
        arr_free(&x), arr_free(&w), arr_free(&one), arr_free(&last);
    }
}

static void nan_travels(void **state) {
    (void)state;
    enum { N = 6, K = 70 };
    EACH_TYPE(t) {
        arr x = arr_draw(t, 2 * K, 0, "x", 1), w = arr_draw(t, N * K, 0, "w", 1), y = arr_make(t, 2 * N, 0);
        put(&w, 2 * K + 69, NAN);
        put(&x, K + 3, INFINITY);
        snd_k_gemv(1, t, 2, N, K, 1, x.p, K, w.p, K, 0, y.p, N);
        for (int64_t j = 0; j < N; j++) {
            assert_int_equal(isnan(at(&y, j)), j == 2);
            assert_false(isfinite(at(&y, N + j)));
        }
        arr_free(&x), arr_free(&w), arr_free(&y);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size),
        cmocka_unit_test(exact_sums_are_equal),
        cmocka_unit_test(threads_agree_bitwise),
        cmocka_unit_test(nan_travels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
