// Products of bf16 operands, every way that this machine has: what packing rounds against a scalar model, the product of
// what was rounded against double, exact where sums are exact, bitwise equal for 1 to 4 threads.
#include "kernels/bf16.h"
#include "kernels_common.h"

#define EACH_WAY(w)                                                                                                    \
    for (snd_kbf16 w = SND_KBF16_BASE; w <= snd_k_bf16_best() && (snd_k_limit_bf16(w), true); w = (snd_kbf16)(w + 1))

static int reset_way(void **state) {
    snd_k_limit_bf16(SND_KBF16_NONE);
    return reset_hooks(state);
}

static snd_kt_bf16_pack *const PACKS[] = {
    [SND_KBF16_BASE] = snd_k_bf16_pack_base,     [SND_KBF16_AVX2] = snd_k_bf16_pack_avx2,
    [SND_KBF16_AVX512] = snd_k_bf16_pack_avx512, [SND_KBF16_PAIRS] = snd_k_bf16_pack_avx512bf16,
    [SND_KBF16_TILES] = snd_k_bf16_pack_amx,
};

// ---- rounding -------------------------------------------------------------------------------------------------------

static float from_bits(uint32_t b) {
    float v;
    memcpy(&v, &b, sizeof v);
    return v;
}

// By arithmetic in double: the nearest multiple of the last of 8 digits, halves to even.
static uint16_t model(float v) {
    uint32_t b;
    memcpy(&b, &v, sizeof b);
    if (isnan(v)) return (uint16_t)(b >> 16 | 0x40);
    if (isinf(v)) return (uint16_t)(b >> 16);
    if (fabsf(v) < FLT_MIN) return (uint16_t)(b >> 16 & 0x8000);
    const double unit = ldexp(1, ilogb((double)v) - 7), near = nearbyint((double)v / unit) * unit;
    const float f = (float)near; // beyond the largest bf16: Inf
    memcpy(&b, &f, sizeof b);
    return (uint16_t)(b >> 16);
}

// Number i of a list with every exponent, each with ties, their neighbours and a draw, of both signs.
static float special(int64_t i) {
    static const uint32_t low[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff, 0x17fff, 0x18000, 0x18001, 0x7f8000, 0x7fffff};
    const uint32_t sign = (uint32_t)(i & 1) << 31, exponent = (uint32_t)(i / 2 % 256) << 23,
                   kind = (uint32_t)(i / 512 % 12);
    return from_bits(sign | exponent | (kind < 11 ? low[kind] : (uint32_t)(fabs(draw("mantissa", i)) * 0x7ffff)));
}

static void against_model(snd_kbf16 w, bool along, bool down, int64_t n, int64_t kn, int shift) {
    const int64_t ld = (along ? kn : n) + shift, lines = (n + 31) / 32 * 32, kt = (kn + 31) / 32;
    arr x = arr_make(SND_F32, ld * (along ? n : kn), shift), out = arr_make(SND_F32, lines * kt * 16, 0);
    for (int64_t i = 0; i < x.n; i++) put(&x, i, 1e30);
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < kn; k++) {
            const float v = special(i * 997 + k * 131 + n + kn);
            memcpy((float *)x.p + (along ? i * ld + k : k * ld + i), &v, sizeof v);
        }
    PACKS[w](along, down, n, kn, x.p, ld, out.p);
    for (int64_t i = 0; i < lines; i++)
        for (int64_t k = 0; k < kt * 32; k++) {
            const int64_t tile = (i / 32 * kt + k / 32) * 2 + i % 32 / 16, line = i % 16, pair = k % 32 / 2;
            const uint16_t got =
                ((uint16_t *)out.p)[(tile * 256 + (down ? pair * 16 + line : line * 16 + pair)) * 2 + k % 2];
            const bool here = i < n && k < kn;
            const float v = here ? ((float *)x.p)[along ? i * ld + k : k * ld + i] : 0;
            if (got != model(v))
                fail_msg("way %d along %d down %d [%d, %d] at %d %d: %a gave %04x, want %04x", (int)w, along, down,
                         (int)n, (int)kn, (int)i, (int)k, (double)v, got, model(v));
        }
    arr_free(&x), arr_free(&out);
}

static void packing_rounds_to_nearest_even(void **state) {
    (void)state;
    EACH_WAY(w)
    for (int kind = 0; kind < 4; kind++)
        for (int64_t n = 0; n <= 65; n++) {
            against_model(w, kind & 1, kind & 2, n, 1 + n % 7, (int)(n % 3));
            against_model(w, kind & 1, kind & 2, 1 + n % 5, n, (int)(n % 4));
            against_model(w, kind & 1, kind & 2, n, n, 1);
        }
    EACH_WAY(w)
    for (int kind = 0; kind < 4; kind++) {
        against_model(w, kind & 1, kind & 2, 64, SND_BF16_DEPTH, 0);
        against_model(w, kind & 1, kind & 2, 600, 70, 1); // wider than what is turned at a time
    }
}

// ---- products -------------------------------------------------------------------------------------------------------

typedef struct shape {
    int64_t M, N, K;
} shape;

// What a product is to see of a.
static arr rounded(const arr *a) {
    arr r = arr_make(SND_F32, a->n, 0);
    for (int64_t i = 0; i < a->n; i++) put(&r, i, (double)snd_bf16_to_f32(model((float)at(a, i))));
    return r;
}

static double element(const arr *a, bool trans, int64_t ld, int64_t i, int64_t k) {
    return (double)((const float *)a->p)[trans ? k * ld + i : i * ld + k];
}

// The product in memory of its own, with guards behind the scratch.
static double product_bias(int th, bool ta, bool tb, shape s, double alpha, const arr *A, int64_t lda, const arr *B,
                           int64_t ldb, double beta, arr *C, int64_t ldc, const arr *bias) {
    arr scratch = arr_make(SND_F32, (int64_t)(snd_k_gemm_bf16_scratch(s.M, s.K) / sizeof(float)), 0);
    const double top = snd_k_gemm_bf16(th, ta, tb, s.M, s.N, s.K, alpha, A->p, lda, B->p, ldb, beta, C->p, ldc,
                                       bias ? bias->p : NULL, scratch.p);
    arr_free(&scratch);
    return top;
}

static void product(int th, bool ta, bool tb, shape s, double alpha, const arr *A, int64_t lda, const arr *B,
                    int64_t ldb, double beta, arr *C, int64_t ldc) {
    product_bias(th, ta, tb, s, alpha, A, lda, B, ldb, beta, C, ldc, NULL);
}

static void against_reference(int th, bool ta, bool tb, shape s, double alpha, double beta, int shift) {
    const int64_t lda = (ta ? s.M : s.K) + 3, ldb = (tb ? s.K : s.N) + 1, ldc = s.N + 2;
    arr A = arr_draw(SND_F32, lda * (ta ? s.K : s.M) + 1, shift, "A", 1),
        B = arr_draw(SND_F32, ldb * (tb ? s.N : s.K) + 1, shift, "B", 1);
    arr C = arr_draw(SND_F32, ldc * s.M, shift, "C", 1), C0 = arr_copy(&C, 0), a = rounded(&A), b = rounded(&B);
    if (beta == 0)
        for (int64_t i = 0; i < s.M; i++)
            for (int64_t j = 0; j < s.N; j++) put(&C, i * ldc + j, NAN); // must not be read
    product(th, ta, tb, s, alpha, &A, lda, &B, ldb, beta, &C, ldc);
    for (int64_t i = 0; i < s.M; i++)
        for (int64_t j = 0; j < ldc; j++) {
            if (j >= s.N) { // the gap between rows stays
                CHECK_SAME(at(&C, i * ldc + j), at(&C0, i * ldc + j));
                continue;
            }
            double sum = 0, size = 0;
            for (int64_t k = 0; k < s.K; k++) {
                const double p = element(&a, ta, lda, i, k) * element(&b, !tb, ldb, j, k);
                sum += p, size += fabs(p);
            }
            const double old = beta == 0 ? 0 : at(&C0, i * ldc + j);
            const double want = alpha * sum + beta * old;
            // products of bf16 numbers are exact in f32: only the K sums round, in any order
            const double tol =
                (double)FLT_EPSILON * ((double)s.K + 4) * (fabs(alpha) * size + fabs(beta * old)) + 1e-300;
            if (!(fabs(at(&C, i * ldc + j) - want) <= tol))
                fail_msg("%s ta %d tb %d [%d,%d,%d] at %d %d: got %.9g want %.9g", snd_k_bf16_name(), ta, tb, (int)s.M,
                         (int)s.N, (int)s.K, (int)i, (int)j, at(&C, i * ldc + j), want);
        }
    arr_free(&A), arr_free(&B), arr_free(&C), arr_free(&C0), arr_free(&a), arr_free(&b);
}

static void every_layout_and_way(void **state) {
    (void)state;
    static const shape shapes[] = {{65, 1, 300}, {1, 130, 257},   {3, 200, 0},
                                   {64, 64, 64}, {130, 257, 513}, {545, 33, 40}};
    EACH_WAY(w)
    for (unsigned c = 0; c < sizeof shapes / sizeof *shapes; c++)
        for (int layout = 0; layout < 4; layout++) {
            against_reference(2, layout & 1, layout & 2, shapes[c], 1, 0, layout);
            against_reference(1, layout & 1, layout & 2, shapes[c], 1, 1, 0);
            against_reference(1, layout & 1, layout & 2, shapes[c], -0.5, 2, 1);
        }
}

static void every_length(void **state) {
    (void)state;
    EACH_WAY(w)
    for (int64_t n = 0; n <= 65; n++) {
        const int layout = (int)n % 4;
        against_reference(1, layout & 1, layout & 2, (shape){n, 5, 9}, 1, 0, layout);
        against_reference(1, layout & 1, layout & 2, (shape){5, n, 9}, 1, 0, layout);
        against_reference(1, layout & 1, layout & 2, (shape){5, 9, n}, 1, 0, layout);
        against_reference(1, layout & 1, layout & 2, (shape){n, n, n}, 1, 1, layout);
    }
}

// Small integers are bf16 numbers and every partial sum is exact, so every way and order gives the same bits; a quarter
// more than 256 is not, and has to be rounded away.
static void exact_sums_are_equal(void **state) {
    (void)state;
    const int64_t n = 160;
    arr A = arr_make(SND_F32, n * n, 0), B = arr_make(SND_F32, n * n, 0), C = arr_make(SND_F32, n * n, 0);
    for (int64_t i = 0; i < n * n; i++)
        put(&A, i, i % 5 ? (double)(i * 7 % 15 - 7) : 256.25), put(&B, i, (double)(i * 11 % 13 - 6));
    EACH_WAY(w) {
        product(2, false, true, (shape){n, n, n}, 1, &A, n, &B, n, 0, &C, n);
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++) {
                double want = 0;
                for (int64_t q = 0; q < n; q++) want += floor(at(&A, i * n + q)) * at(&B, j * n + q);
                CHECK_SAME(at(&C, i * n + j), want);
            }
    }
    arr_free(&A), arr_free(&B), arr_free(&C);
}

// Nor does the cut: a part of the rows and columns alone has the same bits.
static void threads_and_parts_agree_bitwise(void **state) {
    (void)state;
    static const shape shapes[] = {{256, 256, 256}, {131, 259, 67}, {97, 61, 501}, {1, 1000, 300}, {513, 127, 129}};
    EACH_WAY(w)
    for (unsigned c = 0; c < sizeof shapes / sizeof *shapes; c++)
        for (int layout = 0; layout < 4; layout++) {
            const shape s = shapes[c], part = {(s.M + 1) / 2, (s.N + 1) / 2, s.K};
            const bool ta = layout & 1, tb = layout & 2;
            const int64_t lda = ta ? s.M : s.K, ldb = tb ? s.K : s.N;
            arr A = arr_draw(SND_F32, s.M * s.K, 1, "A", 1), B = arr_draw(SND_F32, s.K * s.N, 0, "B", 1),
                one = arr_make(SND_F32, s.M * s.N, 0), C = arr_make(SND_F32, s.M * s.N, 0);
            product(1, ta, tb, s, 1, &A, lda, &B, ldb, 0, &one, s.N);
            for (int th = 1; th <= 4; th++) {
                memset(C.p, 0, (size_t)(s.M * s.N) * sizeof(float));
                product(th, ta, tb, s, 1, &A, lda, &B, ldb, 0, &C, s.N);
                if (!same_bits(&C, &one)) fail_msg("%s: %d threads differ", snd_k_bf16_name(), th);
            }
            product(2, ta, tb, part, 1, &A, lda, &B, ldb, 0, &C, s.N);
            if (!same_bits(&C, &one)) fail_msg("%s: a part differs", snd_k_bf16_name());
            arr_free(&A), arr_free(&B), arr_free(&one), arr_free(&C);
        }
}

// What goes past the caches is the same, wherever C begins.
static void large_results_are_the_same(void **state) {
    (void)state;
    const shape s = {2100, 4001, 3}, part = {2100, 65, 3};
    for (int shift = 0; shift < 2; shift++) {
        arr A = arr_draw(SND_F32, s.M * s.K, 0, "A", 1), B = arr_draw(SND_F32, s.N * s.K, 0, "B", 1),
            C = arr_make(SND_F32, s.M * s.N, shift), D = arr_make(SND_F32, s.M * part.N, 0), a = rounded(&A),
            b = rounded(&B);
        product(2, false, true, s, 1, &A, s.K, &B, s.K, 0, &C, s.N);
        product(2, false, true, part, 1, &A, s.K, &B, s.K, 0, &D, part.N);
        for (int64_t i = 0; i < s.M; i++)
            assert_memory_equal((float *)C.p + i * s.N, (float *)D.p + i * part.N, (size_t)part.N * sizeof(float));
        for (int64_t i = 0; i < s.M * s.N; i += 1009) {
            double want = 0;
            for (int64_t k = 0; k < s.K; k++)
                want += element(&a, false, s.K, i / s.N, k) * element(&b, false, s.K, i % s.N, k);
            if (!(fabs(at(&C, i) - want) <= 1e-5)) fail_msg("at %d: got %g want %g", (int)i, at(&C, i), want);
        }
        arr_free(&A), arr_free(&B), arr_free(&C), arr_free(&D), arr_free(&a), arr_free(&b);
    }
}

// The bits of the product and the sum apart, and the largest magnitude of what was written, wherever it stands.
static void bias_is_a_sum_of_its_own(void **state) {
    (void)state;
    static const struct {
        shape s;
        double alpha, beta;
    } cases[] = {{{70, 83, 40}, 1, 0}, {{70, 83, 300}, -0.5, 0}, {{33, 300, 7}, 1, 2}, {{1030, 1100, 5}, 1, 0},
                 {{5, 7, 0}, 1, 0},    {{0, 7, 3}, 1, 0},        {{520, 16, 9}, 1, 1}};
    EACH_WAY(w)
    for (unsigned c = 0; c < sizeof cases / sizeof *cases; c++) {
        const shape s = cases[c].s;
        const int64_t ldc = s.N + (c % 2 ? 3 : 0);
        arr A = arr_draw(SND_F32, s.M * s.K, 0, "A", 1), B = arr_draw(SND_F32, s.N * s.K, 0, "B", 1),
            bias = arr_draw(SND_F32, s.N, 1, "bias", 1), C = arr_draw(SND_F32, s.M * ldc, 0, "C", 1),
            want = arr_copy(&C, 0);
        product(2, false, true, s, cases[c].alpha, &A, s.K, &B, s.K, cases[c].beta, &want, ldc);
        double most = 0;
        for (int64_t i = 0; i < s.M; i++)
            for (int64_t j = 0; j < s.N; j++) {
                put(&want, i * ldc + j, at(&want, i * ldc + j) + at(&bias, j));
                most = fmax(most, fabs(at(&want, i * ldc + j)));
            }
        CHECK_SAME(product_bias(2, false, true, s, cases[c].alpha, &A, s.K, &B, s.K, cases[c].beta, &C, ldc, &bias),
                   most);
        if (!same_bits(&C, &want)) fail_msg("%s: case %u: another sum with the bias", snd_k_bf16_name(), c);
        for (int64_t i = 0; i < s.M * s.K && c == 0; i += 13) { // each place in turns: the largest, then NaN
            const double old = at(&A, i), f = cases[c].beta;
            put(&A, i, 1e4);
            const double top = product_bias(2, false, true, s, 1, &A, s.K, &B, s.K, f, &C, ldc, NULL);
            double largest = 0;
            for (int64_t j = 0; j < s.N; j++) largest = fmax(largest, fabs(at(&C, i / s.K * ldc + j)));
            CHECK_SAME(top, largest);
            put(&A, i, NAN);
            assert_true(isnan(product_bias(2, false, true, s, 1, &A, s.K, &B, s.K, f, &C, ldc, &bias)));
            put(&A, i, old);
        }
        arr_free(&A), arr_free(&B), arr_free(&bias), arr_free(&C), arr_free(&want);
    }
}

static void nan_and_inf_travel(void **state) {
    (void)state;
    const int64_t n = 70;
    EACH_WAY(w) {
        arr A = arr_draw(SND_F32, n * n, 0, "A", 1), B = arr_draw(SND_F32, n * n, 0, "B", 1),
            C = arr_make(SND_F32, n * n, 0);
        put(&A, 3 * n + 5, NAN);
        put(&A, 9 * n + 5, INFINITY);
        put(&A, 20 * n + 5, 3.4e38); // rounds to Inf
        product(2, false, false, (shape){n, n, n}, 1, &A, n, &B, n, 0, &C, n);
        for (int64_t i = 0; i < n * n; i++) {
            assert_int_equal(isnan(at(&C, i)) != 0, i / n == 3);
            assert_int_equal(isinf(at(&C, i)) != 0, i / n == 9 || i / n == 20);
        }
        arr_free(&A), arr_free(&B), arr_free(&C);
    }
}

static void the_best_way_is_limited_by_the_instruction_set(void **state) {
    (void)state;
    snd_k_limit_isa(SND_ISA_BASE);
    assert_int_equal(snd_k_bf16_best(), SND_KBF16_BASE);
    assert_string_equal(snd_k_bf16_name(), "f32 by plain C");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packing_rounds_to_nearest_even),
        cmocka_unit_test_teardown(every_layout_and_way, reset_way),
        cmocka_unit_test_teardown(every_length, reset_way),
        cmocka_unit_test_teardown(exact_sums_are_equal, reset_way),
        cmocka_unit_test_teardown(threads_and_parts_agree_bitwise, reset_way),
        cmocka_unit_test(large_results_are_the_same),
        cmocka_unit_test_teardown(bias_is_a_sum_of_its_own, reset_way),
        cmocka_unit_test_teardown(nan_and_inf_travel, reset_way),
        cmocka_unit_test_teardown(the_best_way_is_limited_by_the_instruction_set, reset_way),
    };
    return cmocka_run_group_tests_name("bf16", tests, NULL, reset_way);
}
