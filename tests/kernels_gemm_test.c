// Matrix product: against long double in every layout, exact where sums are exact, bitwise equal for 1 to 4 threads.
#include "kernels_common.h"

#include <signal.h>
#include <sys/time.h>

static const snd_kgemm kinds[5] = {SND_KGEMM_OWN, SND_KGEMM_OPENBLAS, SND_KGEMM_ONEDNN, SND_KGEMM_NONE,
                                   SND_KGEMM_BF16X3};

typedef struct shape {
    int64_t M, N, K;
} shape;

static long double element(const arr *a, bool trans, int64_t ld, int64_t i, int64_t k) {
    return at(a, trans ? k * ld + i : i * ld + k);
}

static void against_reference(snd_dtype t, int th, bool ta, bool tb, shape s, double alpha, double beta, int shift) {
    const int64_t lda = (ta ? s.M : s.K) + 3, ldb = (tb ? s.K : s.N) + 1, ldc = s.N + 2;
    arr A = arr_draw(t, lda * (ta ? s.K : s.M) + 1, shift, "A", 1),
        B = arr_draw(t, ldb * (tb ? s.N : s.K) + 1, shift, "B", 1);
    arr C = arr_draw(t, ldc * s.M, shift, "C", 1), C0 = arr_copy(&C, 0);
    if (beta == 0)
        for (int64_t i = 0; i < s.M; i++)
            for (int64_t j = 0; j < s.N; j++) put(&C, i * ldc + j, NAN); // must not be read
    snd_k_gemm(th, t, ta, tb, s.M, s.N, s.K, alpha, A.p, lda, B.p, ldb, beta, C.p, ldc);
    for (int64_t i = 0; i < s.M; i++)
        for (int64_t j = 0; j < ldc; j++) {
            if (j >= s.N) { // the gap between rows stays
                CHECK_SAME(at(&C, i * ldc + j), at(&C0, i * ldc + j));
                continue;
            }
            long double sum = 0, size = 0;
            for (int64_t k = 0; k < s.K; k++) {
                const long double p = element(&A, ta, lda, i, k) * element(&B, !tb, ldb, j, k);
                sum += p, size += fabsl(p);
            }
            const double old = beta == 0 ? 0 : at(&C0, i * ldc + j);
            const double want = (double)(alpha * sum + beta * old);
            // a sum of K products in any order errs by at most K eps of the sum of magnitudes
            const double tol = eps_of(t) * ((double)s.K + 4) * (double)(fabs(alpha) * size + fabs(beta * old)) + 1e-300;
            if (!(fabs(at(&C, i * ldc + j) - want) <= tol)) {
                print_error("%s %s ta %d tb %d [%d,%d,%d] at %d %d: got %.9g want %.9g\n", t == SND_F64 ? "f64" : "f32",
                            snd_k_gemm_name(t), ta, tb, (int)s.M, (int)s.N, (int)s.K, (int)i, (int)j,
                            at(&C, i * ldc + j), want);
                fail();
            }
        }
    arr_free(&A), arr_free(&B), arr_free(&C), arr_free(&C0);
}

static void every_layout_and_backend(void **state) {
    (void)state;
    static const shape shapes[] = {{1, 1, 1},     {1, 7, 5},     {5, 1, 9},   {33, 34, 35},  {64, 64, 64},
                                   {65, 1, 300},  {1, 130, 257}, {3, 200, 0}, {130, 129, 7}, {129, 257, 40},
                                   {31, 65, 129}, {0, 4, 4},     {4, 0, 4},   {259, 401, 5}};
    for (int k = 0; k < 5; k++) {
        snd_k_limit_gemm(kinds[k]);
        EACH_TYPE(t)
        for (unsigned c = 0; c < sizeof shapes / sizeof *shapes; c++)
            for (int layout = 0; layout < 4; layout++) {
                against_reference(t, 2, layout & 1, layout & 2, shapes[c], 1, 0, layout);
                against_reference(t, 1, layout & 1, layout & 2, shapes[c], -0.5, 2, 1);
            }
    }
    snd_k_limit_gemm(SND_KGEMM_NONE);
}

// Small integers: every partial sum is exact, so every order gives the same bits.
static void exact_sums_are_equal(void **state) {
    (void)state;
    EACH_TYPE(t) {
        const int64_t n = 160;
        arr A = arr_make(t, n * n, 0), B = arr_make(t, n * n, 0), C = arr_make(t, n * n, 0);
        for (int64_t i = 0; i < n * n; i++) put(&A, i, (double)(i * 7 % 15 - 7)), put(&B, i, (double)(i * 11 % 13 - 6));
        for (int k = 0; k < 5; k++) {
            snd_k_limit_gemm(kinds[k]);
            EACH_ISA(isa) {
                snd_k_gemm(2, t, false, true, n, n, n, 1, A.p, n, B.p, n, 0, C.p, n);
                for (int64_t i = 0; i < n; i++)
                    for (int64_t j = 0; j < n; j += 7) {
                        double want = 0;
                        for (int64_t q = 0; q < n; q++) want += at(&A, i * n + q) * at(&B, j * n + q);
                        CHECK_SAME(at(&C, i * n + j), want);
                    }
            }
        }
        snd_k_limit_gemm(SND_KGEMM_NONE);
        arr_free(&A), arr_free(&B), arr_free(&C);
    }
}

static void threads_agree_bitwise(void **state) {
    (void)state;
    static const shape shapes[] = {{256, 256, 256}, {64, 256, 256},  {131, 259, 67}, {97, 61, 501},  {300, 40, 200},
                                   {1, 1000, 300},  {513, 127, 129}, {64, 384, 128}, {77, 1023, 33}, {300, 777, 90}};
    EACH_TYPE(t)
    for (unsigned c = 0; c < sizeof shapes / sizeof *shapes; c++)
        for (int layout = 0; layout < 4; layout++) {
            const shape s = shapes[c];
            const bool ta = layout & 1, tb = layout & 2;
            const int64_t lda = ta ? s.M : s.K, ldb = tb ? s.K : s.N;
            arr A = arr_draw(t, s.M * s.K, 1, "A", 1), B = arr_draw(t, s.K * s.N, 0, "B", 1),
                one = arr_make(t, s.M * s.N, 0);
            snd_k_gemm(1, t, ta, tb, s.M, s.N, s.K, 1, A.p, lda, B.p, ldb, 0, one.p, s.N);
            for (int th = 1; th <= 4; th++) {
                arr C = arr_make(t, s.M * s.N, 0);
                snd_k_gemm(th, t, ta, tb, s.M, s.N, s.K, 1, A.p, lda, B.p, ldb, 0, C.p, s.N);
                if (!same_bits(&C, &one))
                    print_error("[%d,%d,%d] %d threads differ\n", (int)s.M, (int)s.N, (int)s.K, th);
                assert_true(same_bits(&C, &one));
                arr_free(&C);
            }
            arr_free(&A), arr_free(&B), arr_free(&one);
        }
}

static void nan_and_inf_travel(void **state) {
    (void)state;
    for (int k = 0; k < 5; k++) EACH_TYPE(t) {
            snd_k_limit_gemm(kinds[k]);
            const int64_t n = 70;
            arr A = arr_draw(t, n * n, 0, "A", 1), B = arr_draw(t, n * n, 0, "B", 1), C = arr_make(t, n * n, 0);
            put(&A, 3 * n + 5, NAN);
            put(&A, 9 * n + 5, INFINITY);
            snd_k_gemm(2, t, false, false, n, n, n, 1, A.p, n, B.p, n, 0, C.p, n);
            for (int64_t i = 0; i < n * n; i++) {
                assert_int_equal(isnan(at(&C, i)) != 0, i / n == 3);
                assert_int_equal(isinf(at(&C, i)) != 0, i / n == 9);
            }
            arr_free(&A), arr_free(&B), arr_free(&C);
        }
}

// The bias as a sum of its own, and the largest magnitude, of every kind; in the last shape C is streamed past the caches.
static void bias_and_top(void **state) {
    (void)state;
    static const shape shapes[] = {{3, 70, 40}, {130, 259, 67}, {600, 530, 40}, {2100, 4100, 33}};
    for (int k = 0; k < 5; k++) EACH_TYPE(t)
    for (unsigned c = 0; c < 4; c++)
        for (int with = 0; with < 3; with++) { // a bias, none, none and a NaN
            const shape s = shapes[c];
            if (c == 3 && (t == SND_F64 || with == 2 || (k != 4 && k != 0))) continue;
            snd_k_limit_gemm(kinds[k]);
            arr A = arr_draw(t, s.M * s.K, 0, "A", 1), B = arr_draw(t, s.N * s.K, 0, "B", 1),
                b = arr_draw(t, s.N, 1, "b", 30), C = arr_make(t, s.M * s.N, 0), W = arr_make(t, s.M * s.N, 0);
            put(&A, (s.M - 1) * s.K + 3, with == 2 ? NAN : 500); // the last row has the largest numbers
            snd_k_gemm(2, t, false, true, s.M, s.N, s.K, 1, A.p, s.K, B.p, s.K, 0, W.p, s.N);
            const double top = snd_k_gemm_bias(2, t, false, true, s.M, s.N, s.K, 1, A.p, s.K, B.p, s.K, 0, C.p, s.N,
                                               with ? NULL : b.p);
            double want = 0;
            for (int64_t i = 0; i < s.M * s.N; i++) {
                if (!with) put(&W, i, at(&W, i) + at(&b, i % s.N));
                want = isnan(want) || isnan(at(&W, i)) ? NAN : fmax(want, fabs(at(&W, i)));
            }
            assert_true(same_bits(&C, &W));
            CHECK_SAME(top, want);
            arr_free(&A), arr_free(&B), arr_free(&b), arr_free(&C), arr_free(&W);
        }
}

// ---- f32 operands taken apart in bf16 numbers ------------------------------------------------------------------------

// By plain C, and by tiles where there are any.
#define EACH_WAY(way) for (int way = 0; way < 2 && (snd_k_limit_isa(way ? SND_ISA_NONE : SND_ISA_BASE), true); way++)

// C = A I is A: every number is the sum of its parts, exactly, and a product with 1 loses nothing.
static void parts_sum_to_the_number(void **state) {
    (void)state;
    const int64_t n = 96;
    arr A = arr_make(SND_F32, n * n, 0), I = arr_make(SND_F32, n * n, 0), C = arr_make(SND_F32, n * n, 0);
    for (int64_t i = 0; i < n * n; i++) {
        put(&I, i, i / n == i % n);
        // all digits, and such as round up to the next power of two; 2^-80 to 2^80
        const double digits = i % 3 == 0 ? draw("digits", i) : i % 3 == 1 ? 0x1.fffffep0 : 0x1.00fffep0;
        put(&A, i, ldexp(i % 2 ? -digits : digits, (int)(i * 37 % 161) - 80));
    }
    snd_k_limit_gemm(SND_KGEMM_BF16X3);
    EACH_WAY(way)
    for (int layout = 0; layout < 4; layout++)
        for (int side = 0; side < 2; side++) {
            const arr *a = side ? &I : &A, *b = side ? &A : &I;
            snd_k_gemm(2, SND_F32, layout & 1, layout & 2, n, n, n, 1, a->p, n, b->p, n, 0, C.p, n);
            const bool turned = side ? layout & 2 : layout & 1;
            for (int64_t i = 0; i < n * n; i++) {
                const double want = at(&A, turned ? i % n * n + i / n : i);
                if (at(&C, i) != want)
                    fail_msg("way %d layout %d side %d at %d: got %a, want %a", way, layout, side, (int)i, at(&C, i),
                             want);
            }
        }
    arr_free(&A), arr_free(&I), arr_free(&C);
}

// Root mean square of the error in 2^-24 of the sum of magnitudes.
static double error_of(snd_kgemm kind, const arr *A, const arr *B, int64_t M, int64_t N, int64_t K) {
    arr C = arr_make(SND_F32, M * N, 0);
    snd_k_limit_gemm(kind);
    snd_k_gemm(2, SND_F32, false, true, M, N, K, 1, A->p, K, B->p, K, 0, C.p, N);
    double sum = 0;
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < N; j++) {
            double want = 0, size = 0;
            for (int64_t k = 0; k < K; k++) {
                const double p = at(A, i * K + k) * at(B, j * K + k);
                want += p, size += fabs(p);
            }
            const double e = (at(&C, i * N + j) - want) / size * 0x1p24;
            sum += e * e;
        }
    arr_free(&C);
    return sqrt(sum / (double)(M * N));
}

// Blocks of k and exact products leave less to round than a chain of multiply-adds.
static void taking_apart_loses_nothing(void **state) {
    (void)state;
    const int64_t M = 40, N = 50, K = 1000;
    arr A = arr_draw(SND_F32, M * K, 0, "A", 1), B = arr_draw(SND_F32, N * K, 0, "B", 1);
    for (int positive = 0; positive < 2; positive++) {
        for (int64_t i = 0; positive && i < A.n; i++) put(&A, i, fabs(at(&A, i)));
        for (int64_t i = 0; positive && i < B.n; i++) put(&B, i, fabs(at(&B, i)));
        EACH_WAY(way) {
            const double fma = error_of(SND_KGEMM_OWN, &A, &B, M, N, K),
                         x3 = error_of(SND_KGEMM_BF16X3, &A, &B, M, N, K);
            if (!(x3 < fma)) fail_msg("way %d: error %g, that of multiply-adds %g", way, x3, fma);
        }
    }
    arr_free(&A), arr_free(&B);
}

// Rows that are tiny, huge, subnormal, zero or not numbers, in either operand.
static void out_of_range_is_multiplied_as_ever(void **state) {
    (void)state;
    static const uint32_t odd[] = {0x7fc00000, 0x7f800000, 0xff800000, 0x7fffffff, 0xffffffff, 0x7f800001,
                                   0x7f7fffff, 0xff7fffff, 0x7f000000, 0x00000001, 0x807fffff, 0x00800000};
    const int64_t n = 64;
    arr C = arr_make(SND_F32, n * n, 0), W = arr_make(SND_F32, n * n, 0);
    EACH_WAY(way)
    for (unsigned c = 0; c < 12 + 3; c++)
        for (int layout = 0; layout < 8; layout++) {
            arr A = arr_draw(SND_F32, n * n, 0, "A", 1), B = arr_draw(SND_F32, n * n, 0, "B", 1);
            arr *x = layout & 4 ? &B : &A;
            if (c < 12) memcpy((float *)x->p + 7 * n + 11, &odd[c], sizeof odd[c]);
            if (c >= 12) // a line, or all, that underflows or whose products do
                for (int64_t i = 0; i < n * n; i++)
                    if (c == 13 || i % n == 5 || i / n == 5) put(x, i, at(x, i) * (c == 14 ? 0x1p-110 : 0x1p-122));
            snd_k_limit_gemm(SND_KGEMM_BF16X3);
            snd_k_gemm(2, SND_F32, layout & 1, layout & 2, n, n, n, 1, A.p, n, B.p, n, 0, C.p, n);
            snd_k_limit_gemm(SND_KGEMM_OWN);
            snd_k_gemm(2, SND_F32, layout & 1, layout & 2, n, n, n, 1, A.p, n, B.p, n, 0, W.p, n);
            for (int64_t i = 0; i < n * n; i++) {
                const double got = at(&C, i), want = at(&W, i);
                double size = 0;
                for (int64_t k = 0; k < n; k++)
                    size += fabs((double)element(&A, layout & 1, n, i / n, k) *
                                 (double)element(&B, !(layout & 2), n, i % n, k));
                if (isfinite(want) ? !(fabs(got - want) <= 64 * 0x1p-24 * size + 0x1p-140)
                                   : !(isnan(want) ? isnan(got) : got == want))
                    fail_msg("way %d case %u layout %d at %d: got %a, multiply-adds give %a", way, c, layout, (int)i,
                             got, want);
            }
            arr_free(&A), arr_free(&B);
        }
    arr_free(&C), arr_free(&W);
}

static void parts_agree_for_all_threads(void **state) {
    (void)state;
    static const shape shapes[] = {{700, 300, 140}, {64, 1100, 129}, {520, 520, 257}};
    for (unsigned c = 0; c < sizeof shapes / sizeof *shapes; c++)
        for (int layout = 0; layout < 4; layout++) {
            const shape s = shapes[c];
            const bool ta = layout & 1, tb = layout & 2;
            arr A = arr_draw(SND_F32, s.M * s.K, 1, "A", 1), B = arr_draw(SND_F32, s.K * s.N, 0, "B", 1),
                one = arr_make(SND_F32, s.M * s.N, 0), C = arr_make(SND_F32, s.M * s.N, 0);
            snd_k_limit_gemm(SND_KGEMM_BF16X3);
            for (int th = 1; th <= 4; th++) {
                snd_k_gemm(th, SND_F32, ta, tb, s.M, s.N, s.K, 1, A.p, ta ? s.M : s.K, B.p, tb ? s.K : s.N, 0,
                           th == 1 ? one.p : C.p, s.N);
                if (th > 1) assert_true(same_bits(&C, &one));
            }
            arr_free(&A), arr_free(&B), arr_free(&C), arr_free(&one);
        }
}

static volatile sig_atomic_t n_signals, n_strays;
static char *volatile stack_here;

static void on_alarm(int sig) {
    (void)sig;
    char here;
    const ptrdiff_t d = stack_here - &here;
    n_signals++;
    n_strays += d > (4 << 20) || d < -(4 << 20); // this frame lies elsewhere than the stack
}

// A handler's frame must land on the stack, never in a kernel's operands.
static void signals_find_the_stack(void **state) {
    (void)state;
    char here;
    stack_here = &here;
    struct sigaction now = {.sa_handler = on_alarm, .sa_flags = SA_RESTART}, before;
    sigaction(SIGALRM, &now, &before);
    const struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &often, NULL);
    EACH_TYPE(t) {
        const int64_t n = 150;
        arr A = arr_draw(t, n * n, 0, "A", 1), B = arr_draw(t, n * n, 0, "B", 1), C = arr_make(t, n * n, 0);
        const int signals = n_signals;
        for (int i = 0; i < 200 || (i < 20000 && n_signals < signals + 50); i++)
            snd_k_gemm(1, t, i & 1, i & 2, n, n, n, 1, A.p, n, B.p, n, 0, C.p, n);
        arr_free(&A), arr_free(&B), arr_free(&C);
    }
    setitimer(ITIMER_REAL, &never, NULL);
    sigaction(SIGALRM, &before, NULL);
    assert_true(n_signals > 0);
    assert_int_equal(n_strays, 0);
}

static void names_say_what_runs(void **state) {
    (void)state;
    snd_k_limit_gemm(SND_KGEMM_OWN);
    assert_string_equal(snd_k_gemm_name(SND_F32), "own");
    snd_k_limit_gemm(SND_KGEMM_NONE);
    EACH_TYPE(t) assert_true(strlen(snd_k_gemm_name(t)) >= 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(every_layout_and_backend, reset_hooks),
        cmocka_unit_test_teardown(exact_sums_are_equal, reset_hooks),
        cmocka_unit_test(threads_agree_bitwise),
        cmocka_unit_test_teardown(nan_and_inf_travel, reset_hooks),
        cmocka_unit_test_teardown(bias_and_top, reset_hooks),
        cmocka_unit_test_teardown(parts_sum_to_the_number, reset_hooks),
        cmocka_unit_test_teardown(taking_apart_loses_nothing, reset_hooks),
        cmocka_unit_test_teardown(out_of_range_is_multiplied_as_ever, reset_hooks),
        cmocka_unit_test_teardown(parts_agree_for_all_threads, reset_hooks),
        cmocka_unit_test(signals_find_the_stack),
        cmocka_unit_test_teardown(names_say_what_runs, reset_hooks),
    };
    return cmocka_run_group_tests_name("gemm", tests, NULL, reset_hooks);
}
