// Element types: sizes, names, and conversion with one rounding.
// Invariant: bf16 and f16 are stored as their bit patterns in uint16_t; every narrowing rounds once, to nearest even,
// also from f64 (no double rounding by way of f32). No arithmetic here.
#include "tensor/tensor.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static const struct {
    const char *name;
    size_t size;
} types[SND_DT_COUNT] = {
    [SND_DT_NONE] = {"none", 0}, [SND_F64] = {"f64", 8}, [SND_F32] = {"f32", 4},   [SND_BF16] = {"bf16", 2},
    [SND_F16] = {"f16", 2},      [SND_I64] = {"i64", 8}, [SND_I32] = {"i32", 4},   [SND_I16] = {"i16", 2},
    [SND_I8] = {"i8", 1},        [SND_U8] = {"u8", 1},   [SND_BOOL] = {"bool", 1},
};

size_t snd_dtype_size(snd_dtype t) {
    return t > SND_DT_NONE && t < SND_DT_COUNT ? types[t].size : 0;
}

const char *snd_dtype_name(snd_dtype t) {
    return t >= 0 && t < SND_DT_COUNT ? types[t].name : "none";
}

static bool same_word(const char *a, const char *b) {
    for (; *a && *b; a++, b++) {
        const char x = *a >= 'A' && *a <= 'Z' ? (char)(*a - 'A' + 'a') : *a;
        if (x != *b) return false;
    }
    return *a == *b;
}

snd_dtype snd_dtype_find(const char *name) {
    for (int t = SND_DT_NONE + 1; t < SND_DT_COUNT; t++) {
        if (same_word(name, types[t].name)) return (snd_dtype)t;
    }
    return SND_DT_NONE;
}

static uint32_t bits_of(float v) {
    uint32_t b;
    memcpy(&b, &v, sizeof b);
    return b;
}

static float from_bits(uint32_t b) {
    float v;
    memcpy(&v, &b, sizeof v);
    return v;
}

float snd_bf16_to_f32(uint16_t v) {
    return from_bits((uint32_t)v << 16);
}

uint16_t snd_f32_to_bf16(float v) {
    const uint32_t b = bits_of(v);
    if ((b & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(b >> 16 | 0x40); // a NaN stays one, quiet
    return (uint16_t)((b + 0x7fffu + (b >> 16 & 1)) >> 16);
}

float snd_f16_to_f32(uint16_t v) {
    const uint32_t sign = (uint32_t)(v & 0x8000) << 16, exponent = v >> 10 & 31, mantissa = v & 0x3ff;
    if (exponent == 31) return from_bits(sign | 0x7f800000u | mantissa << 13);
    if (exponent == 0) { // zero or subnormal: mantissa * 2^-24, exact in f32
        const float m = (float)mantissa * 0x1p-24f;
        return from_bits(bits_of(m) | sign);
    }
    return from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

uint16_t snd_f32_to_f16(float v) {
    const uint32_t b = bits_of(v), a = b & 0x7fffffffu;
    const uint16_t sign = (uint16_t)(b >> 16 & 0x8000);
    if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00 | (a >> 13 & 0x3ff));
    if (a >= 0x477ff000u) return (uint16_t)(sign | 0x7c00); // 65520 and above round to infinity
    if (a < 0x38800000u) {
        // Below 2^-14: adding 1/2 makes the unit of the sum 2^-24, that of f16's subnormals, and rounds to even.
        const float shifted = from_bits(a) + 0.5f;
        return (uint16_t)(sign | (bits_of(shifted) - 0x3f000000u));
    }
    const uint32_t rounded = a + 0xfffu + (a >> 13 & 1);
    return (uint16_t)(sign | (rounded - (112u << 23)) >> 13);
}

// f64 to f32 rounded to odd: an inexact result has its last bit set, so that a second rounding to a shorter type
// gives what one rounding would have given (Boldo, Melquiond 2008).
static float round_to_odd(double v) {
    const float f = (float)v;
    if (isnan(v) || (double)f == v) return f;
    uint32_t b = bits_of(f);
    if (fabs((double)f) > fabs(v)) b--;
    return from_bits(b | 1);
}

static int64_t truncate(double v, int64_t lo, int64_t hi) {
    if (isnan(v)) return 0;
    if (v <= (double)lo) return lo;
    if (v >= (double)hi) return hi;
    return (int64_t)v;
}

static int64_t clamp(int64_t v, int64_t lo, int64_t hi) {
    return v < lo ? lo : v > hi ? hi : v;
}

static bool is_float(snd_dtype t) {
    return t == SND_F64 || t == SND_F32 || t == SND_BF16 || t == SND_F16;
}

enum { BLOCK = 256 };

static void load_floats(const void *src, snd_dtype t, int64_t first, int n, double *out) {
    for (int i = 0; i < n; i++) {
        const int64_t k = first + i;
        switch (t) {
        case SND_F64: out[i] = ((const double *)src)[k]; break;
        case SND_F32: out[i] = (double)((const float *)src)[k]; break;
        case SND_BF16: out[i] = (double)snd_bf16_to_f32(((const uint16_t *)src)[k]); break;
        case SND_F16: out[i] = (double)snd_f16_to_f32(((const uint16_t *)src)[k]); break;
        default: assert(!"not a float type");
        }
    }
}

static void load_integers(const void *src, snd_dtype t, int64_t first, int n, int64_t *out) {
    for (int i = 0; i < n; i++) {
        const int64_t k = first + i;
        switch (t) {
        case SND_I64: out[i] = ((const int64_t *)src)[k]; break;
        case SND_I32: out[i] = ((const int32_t *)src)[k]; break;
        case SND_I16: out[i] = ((const int16_t *)src)[k]; break;
        case SND_I8: out[i] = ((const int8_t *)src)[k]; break;
        case SND_U8: out[i] = ((const uint8_t *)src)[k]; break;
        case SND_BOOL: out[i] = ((const uint8_t *)src)[k] != 0; break;
        default: assert(!"not an integer type");
        }
    }
}

static void store_floats(const double *in, void *dst, snd_dtype t, int64_t first, int n) {
    for (int i = 0; i < n; i++) {
        const int64_t k = first + i;
        switch (t) {
        case SND_F64: ((double *)dst)[k] = in[i]; break;
        case SND_F32: ((float *)dst)[k] = (float)in[i]; break;
        case SND_BF16: ((uint16_t *)dst)[k] = snd_f32_to_bf16(round_to_odd(in[i])); break;
        case SND_F16: ((uint16_t *)dst)[k] = snd_f32_to_f16(round_to_odd(in[i])); break;
        default: assert(!"not a float type");
        }
    }
}

static void store_integers(const int64_t *in, void *dst, snd_dtype t, int64_t first, int n) {
    for (int i = 0; i < n; i++) {
        const int64_t k = first + i;
        switch (t) {
        case SND_I64: ((int64_t *)dst)[k] = in[i]; break;
        case SND_I32: ((int32_t *)dst)[k] = (int32_t)clamp(in[i], INT32_MIN, INT32_MAX); break;
        case SND_I16: ((int16_t *)dst)[k] = (int16_t)clamp(in[i], INT16_MIN, INT16_MAX); break;
        case SND_I8: ((int8_t *)dst)[k] = (int8_t)clamp(in[i], INT8_MIN, INT8_MAX); break;
        case SND_U8: ((uint8_t *)dst)[k] = (uint8_t)clamp(in[i], 0, UINT8_MAX); break;
        case SND_BOOL: ((uint8_t *)dst)[k] = in[i] != 0; break;
        default: assert(!"not an integer type");
        }
    }
}

// From pivot to pivot: floats meet as doubles, integers as int64.
static void floats_to_integers(const double *f, int64_t *k, int n, snd_dtype dt) {
    for (int i = 0; i < n; i++) k[i] = dt == SND_BOOL ? f[i] != 0 : truncate(f[i], INT64_MIN, INT64_MAX);
}

static void integers_to_floats(const int64_t *k, double *f, int n) {
    for (int i = 0; i < n; i++) f[i] = (double)k[i];
}

// src and dst must not overlap. Out of range: saturates; NaN to an integer: 0; anything but 0 is true.
void snd_convert(const void *src, snd_dtype st, void *dst, snd_dtype dt, int64_t n) {
    assert(n >= 0 && snd_dtype_size(st) && snd_dtype_size(dt));
    if (n == 0) return;
    if (st == dt) {
        memcpy(dst, src, (size_t)n * snd_dtype_size(st));
        return;
    }
    double f[BLOCK];
    int64_t k[BLOCK];
    for (int64_t first = 0; first < n; first += BLOCK) {
        const int m = n - first < BLOCK ? (int)(n - first) : BLOCK;
        if (is_float(st)) {
            load_floats(src, st, first, m, f);
            if (!is_float(dt)) floats_to_integers(f, k, m, dt);
        } else {
            load_integers(src, st, first, m, k);
            if (is_float(dt)) integers_to_floats(k, f, m);
        }
        if (is_float(dt))
            store_floats(f, dst, dt, first, m);
        else
            store_integers(k, dst, dt, first, m);
    }
}
