// Convolution and its two gradients: against plain loops in long double for every class of shape, instruction set and
// type; equal where sums are exact; bitwise equal for 1 to 4 threads; zeros where nothing is read.
#include "kernels_common.h"

typedef enum pass { FWD, DX, DW, PASSES } pass;

static const snd_kconv shapes[] = {
    {1, 1, 1, 1, 1, 1, 1},
    {2, 5, 7, 3, 2, 3, 1},
    {1, 6, 9, 17, 33, 3, 1},
    {3, 7, 7, 4, 8, 3, 2},
    {2, 8, 6, 5, 16, 3, 2},
    {2, 5, 5, 2, 3, 1, 1},
    {1, 9, 8, 3, 20, 1, 2},
    {1, 10, 11, 2, 5, 1, 4},
    {1, 6, 7, 3, 4, 5, 1},
    {2, 11, 8, 2, 3, 5, 3},
    {1, 9, 12, 2, 2, 7, 2},
    {1, 3, 4, 2, 3, 7, 1},
    {1, 4, 5, 3, 2, 2, 1},
    {1, 6, 7, 2, 3, 4, 2},
    {1, 5, 5, 1, 2, 2, 3},
    {2, 2, 29, 1, 40, 3, 1},
    {40, 3, 3, 2, 3, 3, 1},
    {1, 2, 15, 16, 48, 3, 1},
    {1, 70, 71, 20, 3, 3, 1},
    {1, 75, 70, 20, 2, 3, 2},
    {2, 1, 13, 32, 31, 3, 1},
    {1, 2, 2, 64, 8, 3, 2},
    // by tiles of 2x2 in f32
    {2, 4, 4, 16, 16, 3, 1},
    {1, 7, 9, 32, 16, 3, 1},
    {3, 8, 5, 16, 48, 3, 1},
    {1, 40, 66, 32, 16, 3, 1},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static int64_t out_h(const snd_kconv *c) {
    return snd_k_conv_size(c->H, c->k, c->stride);
}
static int64_t out_w(const snd_kconv *c) {
    return snd_k_conv_size(c->W, c->k, c->stride);
}
static int64_t n_x(const snd_kconv *c) {
    return c->B * c->H * c->W * c->Ci;
}
static int64_t n_y(const snd_kconv *c) {
    return c->B * out_h(c) * out_w(c) * c->Co;
}
static int64_t n_w(const snd_kconv *c) {
    return c->Co * c->Ci * c->k * c->k;
}
static int64_t results(const snd_kconv *c, pass p) {
    return p == FWD ? n_y(c) : p == DX ? n_x(c) : n_w(c);
}

// What the pass sums up, as plain sums and as sums of magnitudes: a is x (FWD), dy (DX, DW); b is w (FWD, DX), x (DW).
static void reference(const snd_kconv *c, pass p, const arr *a, const arr *b, long double *sum, long double *size) {
    const int64_t n = results(c, p);
    for (int64_t i = 0; i < n; i++) sum[i] = size[i] = 0;
    for (int64_t im = 0; im < c->B; im++)
        for (int64_t i = 0; i < out_h(c); i++)
            for (int64_t j = 0; j < out_w(c); j++)
                for (int64_t u = 0; u < c->k; u++)
                    for (int64_t v = 0; v < c->k; v++) {
                        const int64_t y = i * c->stride + u - c->k / 2, x = j * c->stride + v - c->k / 2;
                        if (y < 0 || y >= c->H || x < 0 || x >= c->W) continue;
                        for (int64_t o = 0; o < c->Co; o++)
                            for (int64_t q = 0; q < c->Ci; q++) {
                                const int64_t at_x = ((im * c->H + y) * c->W + x) * c->Ci + q,
                                              at_y = ((im * out_h(c) + i) * out_w(c) + j) * c->Co + o,
                                              at_w = ((o * c->Ci + q) * c->k + u) * c->k + v;
                                const int64_t to = p == FWD ? at_y : p == DX ? at_x : at_w;
                                const long double t =
                                    (long double)at(a, p == FWD ? at_x : at_y) * at(b, p == DW ? at_x : at_w);
                                sum[to] += t;
                                size[to] += fabsl(t);
                            }
                    }
}

static arr operand(const snd_kconv *c, snd_dtype t, pass p, int which, int shift, bool whole) {
    const int64_t n = which == 0 ? (p == FWD ? n_x(c) : n_y(c)) : (p == DW ? n_x(c) : n_w(c));
    arr a = arr_draw(t, n, shift, which ? "b" : "a", 1);
    for (int64_t i = 0; whole && i < n; i++) put(&a, i, (double)((i * (which ? 7 : 11) + 3) % 9 - 4));
    return a;
}

// The result, between guards, from poisoned scratch.
static arr computed(const snd_kconv *c, snd_dtype t, pass p, int th, const arr *a, const arr *b, int shift) {
    static size_t (*const sizes[])(snd_dtype, const snd_kconv *) = {snd_k_conv_fwd_scratch, snd_k_conv_dx_scratch,
                                                                    snd_k_conv_dw_scratch};
    arr out = arr_make(t, results(c, p), shift), scratch = arr_make(SND_F32, (int64_t)(sizes[p](t, c) / 4), 0);
    for (int64_t i = 0; i < out.n; i++) put(&out, i, NAN);
    for (int64_t i = 0; i < scratch.n; i++) put(&scratch, i, NAN);
    if (p == FWD) snd_k_conv_fwd(th, t, c, a->p, b->p, out.p, scratch.p);
    if (p == DX) snd_k_conv_dx(th, t, c, a->p, b->p, out.p, scratch.p);
    if (p == DW) snd_k_conv_dw(th, t, c, a->p, b->p, out.p, scratch.p);
    arr_free(&scratch);
    return out;
}

static int64_t terms(const snd_kconv *c, pass p) {
    return p == FWD ? c->Ci * c->k * c->k : p == DX ? c->Co * c->k * c->k : c->B * out_h(c) * out_w(c);
}

static bool tiles(const snd_kconv *c, snd_dtype t) {
    return t == SND_F32 && c->k == 3 && c->stride == 1 && c->Ci % 16 == 0 && c->Co % 16 == 0;
}

static void check(const snd_kconv *c, snd_dtype t, pass p, int isa, bool whole) {
    static const char *const names[] = {"forward", "dx", "dw"};
    const int shift = isa + (int)p;
    arr a = operand(c, t, p, 0, shift, whole), b = operand(c, t, p, 1, shift + 1, whole);
    arr got = computed(c, t, p, 2, &a, &b, shift);
    long double *sum = calloc((size_t)got.n, sizeof *sum), *size = calloc((size_t)got.n, sizeof *size);
    assert_true(sum && size);
    reference(c, p, &a, &b, sum, size);
    double mean = 0;
    for (int64_t i = 0; i < got.n; i++) mean += (double)size[i] / (double)got.n;
    for (int64_t i = 0; i < got.n; i++) {
        // n products in any order err by at most n eps of the sum of magnitudes; whole numbers not at all. By tiles the
        // error of a result is that of the largest ones around it: random operands make them about alike.
        const double around = (double)(terms(c, p) + 12) * (tiles(c, t) ? 4 * mean : (double)size[i]);
        const double tol = whole ? 0 : eps_of(t) * around;
        if (fabs(at(&got, i) - (double)sum[i]) <= tol) continue;
        fail_msg("%s of %lld x [%lld, %lld, %lld] to %lld, k %lld, stride %lld, %s, instruction set %d, [%lld]: got "
                 "%.9g, want %.9g",
                 names[p], (long long)c->B, (long long)c->H, (long long)c->W, (long long)c->Ci, (long long)c->Co,
                 (long long)c->k, (long long)c->stride, snd_dtype_name(t), isa, (long long)i, at(&got, i),
                 (double)sum[i]);
    }
    free(sum), free(size);
    arr_free(&a), arr_free(&b), arr_free(&got);
}

static void every_shape(void **state) {
    (void)state;
    EACH_TYPE(t)
    EACH_ISA(isa)
    for (int i = 0; i < SHAPES; i++)
        for (pass p = FWD; p < PASSES; p++) check(&shapes[i], t, p, isa, false);
}

// Small whole numbers: every partial sum is exact, so any order gives the same bits.
static void exact_sums_are_equal(void **state) {
    (void)state;
    EACH_TYPE(t)
    EACH_ISA(isa)
    for (int i = 0; i < SHAPES; i++)
        for (pass p = FWD; p < PASSES; p++) check(&shapes[i], t, p, isa, true);
}

static void threads_agree_bitwise(void **state) {
    (void)state;
    static const snd_kconv many[] = {
        {37, 9, 9, 17, 19, 3, 1}, {5, 20, 30, 16, 32, 3, 2}, {1, 75, 70, 20, 9, 3, 1}, {35, 9, 12, 16, 32, 3, 1}};
    EACH_TYPE(t)
    for (int i = 0; i < 4; i++)
        for (pass p = FWD; p < PASSES; p++) {
            arr a = operand(&many[i], t, p, 0, 0, false), b = operand(&many[i], t, p, 1, 1, false);
            arr one = computed(&many[i], t, p, 1, &a, &b, 0);
            for (int th = 2; th <= 4; th++) {
                arr other = computed(&many[i], t, p, th, &a, &b, 1);
                assert_true(same_bits(&one, &other));
                arr_free(&other);
            }
            arr_free(&a), arr_free(&b), arr_free(&one);
        }
}

// A place whose kernel misses the NaN is a number, one that reads it is not.
static void nan_reaches_its_readers(void **state) {
    (void)state;
    const snd_kconv c = {1, 7, 9, 3, 18, 3, 1};
    EACH_TYPE(t) {
        arr x = operand(&c, t, FWD, 0, 0, false), w = operand(&c, t, FWD, 1, 0, false);
        put(&x, (3 * c.W + 4) * c.Ci + 1, NAN);
        arr y = computed(&c, t, FWD, 1, &x, &w, 0);
        for (int64_t i = 0; i < y.n; i++) {
            const int64_t place = i / c.Co, row = place / c.W, col = place % c.W;
            assert_int_equal(isnan(at(&y, i)) != 0, row >= 2 && row <= 4 && col >= 3 && col <= 5);
        }
        arr_free(&x), arr_free(&w), arr_free(&y);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(every_shape, reset_hooks),
        cmocka_unit_test_teardown(exact_sums_are_equal, reset_hooks),
        cmocka_unit_test(threads_agree_bitwise),
        cmocka_unit_test(nan_reaches_its_readers),
    };
    return cmocka_run_group_tests_name("conv", tests, NULL, reset_hooks);
}
