// tensor/: shapes, element types and their conversion (16-bit types exhaustively), comparison of arrays.
#include "check.h"

#include "tensor/tensor.h"

#include <float.h>
#include <string.h>

static float from_bits(uint32_t b) {
    float v;
    memcpy(&v, &b, sizeof v);
    return v;
}

// ---- 16-bit types: an independent reading of their definition ---------------------------------------------------------

static double bf16_value(uint16_t v) {
    const int e = v >> 7 & 255, m = v & 127;
    const double a = e == 255 ? (m ? NAN : INFINITY) : e ? ldexp(128 + m, e - 127 - 7) : ldexp(m, -126 - 7);
    return v & 0x8000 ? -a : a;
}

static double f16_value(uint16_t v) {
    const int e = v >> 10 & 31, m = v & 1023;
    const double a = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(1024 + m, e - 15 - 10) : ldexp(m, -14 - 10);
    return v & 0x8000 ? -a : a;
}

static void sixteen_bits_widen_exactly(void **state) {
    (void)state;
    for (int i = 0; i < 65536; i++) {
        const uint16_t v = (uint16_t)i;
        CHECK_SAME((double)snd_bf16_to_f32(v), bf16_value(v));
        CHECK_SAME((double)snd_f16_to_f32(v), f16_value(v));
        if (isnan(bf16_value(v))) {
            assert_true(isnan(snd_bf16_to_f32(snd_f32_to_bf16(snd_bf16_to_f32(v)))));
        } else {
            assert_int_equal(snd_f32_to_bf16(snd_bf16_to_f32(v)), v);
        }
        if (isnan(f16_value(v))) {
            assert_true(isnan(snd_f16_to_f32(snd_f32_to_f16(snd_f16_to_f32(v)))));
        } else {
            assert_int_equal(snd_f32_to_f16(snd_f16_to_f32(v)), v);
        }
    }
}

// Between each two neighbours: the midpoint goes to the even one, anything off it to the nearer one.
static void narrow_between(uint16_t lo, double a, double b, snd_dtype t) {
    const double mid = a + (b - a) / 2;
    const double in[5] = {a, nextafter(mid, a), mid, nextafter(mid, b), nextafter(b, a)};
    const int up[5] = {0, 0, lo & 1, 1, 1};
    uint16_t out[5];
    snd_convert(in, SND_F64, out, t, 5);
    for (int k = 0; k < 5; k++) {
        if (out[k] != lo + up[k])
            fail_msg("%s: %.20g became %04x, want %04x", snd_dtype_name(t), in[k], out[k], lo + up[k]);
    }
    // The same from f32, where the midpoint is exact there.
    const float f[3] = {nextafterf((float)mid, (float)a), (float)mid, nextafterf((float)mid, (float)b)};
    for (int k = 0; k < 3; k++) {
        const uint16_t got = t == SND_F16 ? snd_f32_to_f16(f[k]) : snd_f32_to_bf16(f[k]);
        const uint16_t neg = t == SND_F16 ? snd_f32_to_f16(-f[k]) : snd_f32_to_bf16(-f[k]);
        if (got != lo + up[k + 1]) fail_msg("%s: %.9g became %04x", snd_dtype_name(t), (double)f[k], got);
        assert_int_equal(neg, got | 0x8000);
    }
}

static void sixteen_bits_narrow_to_nearest_even(void **state) {
    (void)state;
    for (int i = 0; i < 0x7f80; i++) {
        const double b = i == 0x7f7f ? 0x1p128 : bf16_value((uint16_t)(i + 1)); // infinity stands for 2^128
        if (i > 0 && i != 0x7f7f) narrow_between((uint16_t)i, bf16_value((uint16_t)i), b, SND_BF16);
    }
    for (int i = 0; i < 0x7c00; i++) {
        const double b = i == 0x7bff ? 65536 : f16_value((uint16_t)(i + 1));
        narrow_between((uint16_t)i, f16_value((uint16_t)i), b, SND_F16);
    }
    assert_int_equal(snd_f32_to_bf16(FLT_MAX), 0x7f80);
    assert_int_equal(snd_f32_to_f16(65519.996f), 0x7bff);
    assert_int_equal(snd_f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(snd_f32_to_f16(-1e30f), 0xfc00);
    assert_int_equal(snd_f32_to_f16(1e-30f), 0);
    assert_int_equal(snd_f32_to_bf16(from_bits(0x7f800001)), 0x7fc0); // a NaN whose payload would be cut away
    assert_true((snd_f32_to_f16(from_bits(0xff800001)) & 0x7fff) > 0x7c00);
}

static void f64_narrows_with_one_rounding(void **state) {
    (void)state;
    // 1 + 2^-8 + 2^-40: just above the midpoint of two bf16; f32 in between would round it onto the midpoint.
    const double in[4] = {1 + 0x1p-8 + 0x1p-40, 1 + 0x1p-11 + 0x1p-40, 1e300, 5e-324};
    uint16_t b[4], h[4];
    snd_convert(in, SND_F64, b, SND_BF16, 4);
    snd_convert(in, SND_F64, h, SND_F16, 4);
    assert_int_equal(b[0], 0x3f81);
    assert_int_equal(h[1], 0x3c01);
    assert_int_equal(b[2], 0x7f80);
    assert_int_equal(h[2], 0x7c00);
    assert_int_equal(b[3], 0);
    assert_int_equal(h[3], 0);
}

// ---- conversion in general ----------------------------------------------------------------------------------------------

static void conversion_saturates_and_truncates(void **state) {
    (void)state;
    const double in[9] = {-1.9, 1.9, 300, -300, NAN, INFINITY, -INFINITY, 0.5, -0.0};
    int8_t i8[9];
    uint8_t u8[9], yes[9];
    int64_t i64[9];
    snd_convert(in, SND_F64, i8, SND_I8, 9);
    snd_convert(in, SND_F64, u8, SND_U8, 9);
    snd_convert(in, SND_F64, i64, SND_I64, 9);
    snd_convert(in, SND_F64, yes, SND_BOOL, 9);
    const int8_t want8[9] = {-1, 1, 127, -128, 0, 127, -128, 0, 0};
    const uint8_t wantu[9] = {0, 1, 255, 0, 0, 255, 0, 0, 0}, wanty[9] = {1, 1, 1, 1, 1, 1, 1, 1, 0};
    const int64_t want64[9] = {-1, 1, 300, -300, 0, INT64_MAX, INT64_MIN, 0, 0};
    assert_memory_equal(i8, want8, sizeof i8);
    assert_memory_equal(u8, wantu, sizeof u8);
    assert_memory_equal(i64, want64, sizeof i64);
    assert_memory_equal(yes, wanty, sizeof yes);
}

static void integers_stay_exact(void **state) {
    (void)state;
    const int64_t in[4] = {INT64_MIN, INT64_MAX, (INT64_C(1) << 53) + 1, -7};
    int64_t same[4];
    int32_t narrow[4];
    snd_convert(in, SND_I64, same, SND_I64, 4);
    assert_memory_equal(same, in, sizeof in);
    snd_convert(in, SND_I64, narrow, SND_I32, 4);
    const int32_t want[4] = {INT32_MIN, INT32_MAX, INT32_MAX, -7};
    assert_memory_equal(narrow, want, sizeof want);
    const uint8_t raw[2] = {2, 0};
    int16_t truth[2];
    snd_convert(raw, SND_BOOL, truth, SND_I16, 2);
    assert_true(truth[0] == 1 && truth[1] == 0);
}

// Every pair of types, over more elements than one block, there and back where the way there is exact.
static void every_pair_converts(void **state) {
    (void)state;
    enum { N = 1000 };
    static double pool[2][N];
    int8_t small[N];
    for (int i = 0; i < N; i++) small[i] = (int8_t)(i % 101);
    for (int a = SND_F64; a < SND_BOOL; a++) {
        for (int b = SND_F64; b < SND_BOOL; b++) {
            int8_t back[N];
            snd_convert(small, SND_I8, pool[0], (snd_dtype)a, N);
            snd_convert(pool[0], (snd_dtype)a, pool[1], (snd_dtype)b, N);
            snd_convert(pool[1], (snd_dtype)b, back, SND_I8, N);
            assert_memory_equal(back, small, N);
        }
    }
    snd_convert(NULL, SND_F32, NULL, SND_F64, 0);
}

static void types_have_names_and_sizes(void **state) {
    (void)state;
    for (int t = SND_F64; t < SND_DT_COUNT; t++) assert_int_equal(snd_dtype_find(snd_dtype_name((snd_dtype)t)), t);
    assert_int_equal(snd_dtype_find("BF16"), SND_BF16);
    assert_int_equal(snd_dtype_find("f3"), SND_DT_NONE);
    assert_int_equal(snd_dtype_find("f321"), SND_DT_NONE);
    assert_int_equal(snd_dtype_size(SND_F16), 2);
    assert_int_equal(snd_dtype_size(SND_I64), 8);
    assert_int_equal(snd_dtype_size(SND_DT_NONE), 0);
}

// ---- shapes -----------------------------------------------------------------------------------------------------------------

static void shapes_know_size_and_text(void **state) {
    (void)state;
    char text[160];
    const snd_shape s = SND_SHAPE(4, 64, 256), scalar = snd_shape_make(0, NULL);
    assert_int_equal(snd_shape_size(s), 4 * 64 * 256);
    assert_int_equal(snd_shape_size(scalar), 1);
    assert_int_equal(snd_shape_size(SND_SHAPE(5, 0, 7)), 0);
    assert_true(snd_shape_size(SND_SHAPE(INT64_MAX / 2, 3)) == INT64_MAX);
    assert_string_equal(snd_shape_text(s, text), "[4, 64, 256]");
    assert_string_equal(snd_shape_text(scalar, text), "[]");
    const int64_t m = INT64_MAX;
    assert_true(strlen(snd_shape_text(SND_SHAPE(m, m, m, m, m, m), text)) < 160);
    assert_true(snd_shape_same(s, SND_SHAPE(4, 64, 256)));
    assert_false(snd_shape_same(s, SND_SHAPE(4, 64)));
    assert_false(snd_shape_same(s, SND_SHAPE(4, 64, 255)));
}

static void shapes_broadcast_like_numpy(void **state) {
    (void)state;
    snd_shape out;
    assert_true(snd_shape_broadcast(SND_SHAPE(4, 1, 256), SND_SHAPE(8, 1), &out));
    assert_true(snd_shape_same(out, SND_SHAPE(4, 8, 256)));
    assert_true(snd_shape_broadcast(SND_SHAPE(256), SND_SHAPE(4, 8, 256), &out));
    assert_true(snd_shape_same(out, SND_SHAPE(4, 8, 256)));
    assert_true(snd_shape_broadcast(snd_shape_make(0, NULL), SND_SHAPE(3), &out));
    assert_true(snd_shape_same(out, SND_SHAPE(3)));
    assert_true(snd_shape_broadcast(SND_SHAPE(1), SND_SHAPE(0), &out));
    assert_int_equal(out.dim[0], 0);
    assert_false(snd_shape_broadcast(SND_SHAPE(4, 3), SND_SHAPE(4), &out));
    assert_false(snd_shape_broadcast(SND_SHAPE(4, 3), SND_SHAPE(5, 3), &out));
}

// ---- comparison ---------------------------------------------------------------------------------------------------------------

static void comparison_is_relative_to_rms(void **state) {
    (void)state;
    const double want[4] = {3, -4, 0, 5}, got[4] = {3, -4.1, 0, 5};
    const snd_diff d = snd_compare(got, want, 4);
    assert_int_equal(d.at, 1);
    CHECK_REL(d.rms_ref, sqrt(50.0 / 4), 1e-15);
    CHECK_REL(d.score, 0.1 / sqrt(12.5), 1e-12);
    CHECK_SAME(d.got, -4.1);
    CHECK_SAME(snd_compare(want, want, 4).score, 0);
    CHECK_SAME(snd_compare(want, want, 0).score, 0);
    const double huge[2] = {1e300, -1e300}, near[2] = {1e300, -1.1e300};
    CHECK_REL(snd_compare(near, huge, 2).score, 0.1, 1e-12);
    const double zero[2] = {0, 0}, tiny[2] = {0, 1e-300};
    CHECK_SAME(snd_compare(tiny, zero, 2).score, INFINITY);
    CHECK_SAME(snd_compare(zero, zero, 2).score, 0);
}

static void comparison_sees_nonfinite_values(void **state) {
    (void)state;
    const double a[4] = {1, NAN, INFINITY, 2}, same[4] = {1, NAN, INFINITY, 2}, b[4] = {1, 0, INFINITY, 2},
                 c[4] = {1, NAN, -INFINITY, 2};
    CHECK_SAME(snd_compare(a, same, 4).score, 0);
    assert_int_equal(snd_compare(a, same, 4).nonfinite, 2);
    CHECK_SAME(snd_compare(a, b, 4).score, INFINITY);
    CHECK_SAME(snd_compare(b, a, 4).score, INFINITY);
    assert_int_equal(snd_compare(b, a, 4).at, 1);
    CHECK_SAME(snd_compare(c, a, 4).score, INFINITY);
    assert_int_equal(snd_compare(c, a, 4).at, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sixteen_bits_widen_exactly),
        cmocka_unit_test(sixteen_bits_narrow_to_nearest_even),
        cmocka_unit_test(f64_narrows_with_one_rounding),
        cmocka_unit_test(conversion_saturates_and_truncates),
        cmocka_unit_test(integers_stay_exact),
        cmocka_unit_test(every_pair_converts),
        cmocka_unit_test(types_have_names_and_sizes),
        cmocka_unit_test(shapes_know_size_and_text),
        cmocka_unit_test(shapes_broadcast_like_numpy),
        cmocka_unit_test(comparison_is_relative_to_rms),
        cmocka_unit_test(comparison_sees_nonfinite_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
