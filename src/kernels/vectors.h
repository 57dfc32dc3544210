// The few vector operations that loops need by name; + - * on these types are the language's, each rounded once.
// Sums need explicit vectors since the compiler may not reorder them; the matrix product's innermost loop wants fused
// multiply-add, which does not follow from plain C as contraction is off everywhere. Forms for AVX-512, AVX2 and plain
// 16-byte vectors; SND_FMA says whether vec_fma fuses. vec_low_product is that of the lanes' lower halves.
#ifndef SND_KERNELS_VECTORS_H
#define SND_KERNELS_VECTORS_H

#include <stdint.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#define SND_FMA 1
enum { SND_VEC_BYTES = 64, SND_STRIP = 8 };  // strips of 8 rows x 2 vectors: 16 of 32 registers hold sums
typedef __m512 vec_f32;
typedef __m512d vec_f64;
typedef uint64_t vec_u64 __attribute__((vector_size(64)));
static inline vec_f32 vec_load_f32(const float *p) { return _mm512_loadu_ps(p); }
static inline vec_f64 vec_load_f64(const double *p) { return _mm512_loadu_pd(p); }
static inline vec_f64 vec_wide_f32(const float *p) { return _mm512_cvtps_pd(_mm256_loadu_ps(p)); }
static inline vec_f32 vec_all_f32(float v) { return _mm512_set1_ps(v); }
static inline vec_f64 vec_all_f64(double v) { return _mm512_set1_pd(v); }
static inline void vec_stream_f32(float *p, vec_f32 v) { _mm512_stream_ps(p, v); }
static inline void vec_stream_f64(double *p, vec_f64 v) { _mm512_stream_pd(p, v); }
static inline void vec_fence(void) { _mm_sfence(); }
static inline vec_f32 vec_fma_f32(vec_f32 a, vec_f32 b, vec_f32 c) { return _mm512_fmadd_ps(a, b, c); }
static inline vec_f64 vec_fma_f64(vec_f64 a, vec_f64 b, vec_f64 c) { return _mm512_fmadd_pd(a, b, c); }
static inline vec_f64 vec_sqrt_f64(vec_f64 v) { return _mm512_sqrt_pd(v); }
static inline vec_u64 vec_low_product(vec_u64 a, vec_u64 b) { return (vec_u64)_mm512_mul_epu32((__m512i)a, (__m512i)b); }
static inline void vec_store_f32(float *p, vec_f32 v) { _mm512_storeu_ps(p, v); }
static inline void vec_store_f64(double *p, vec_f64 v) { _mm512_storeu_pd(p, v); }
// Bit i: element i is not <= 0 (so NaN counts). vec_keep: the elements whose bit is set, 0 elsewhere.
static inline uint64_t vec_above0_f32(vec_f32 v) { return _mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_NLE_UQ); }
static inline uint64_t vec_above0_f64(vec_f64 v) { return _mm512_cmp_pd_mask(v, _mm512_setzero_pd(), _CMP_NLE_UQ); }
static inline vec_f32 vec_keep_f32(uint64_t bits, vec_f32 v) { return _mm512_maskz_mov_ps((__mmask16)bits, v); }
static inline vec_f64 vec_keep_f64(uint64_t bits, vec_f64 v) { return _mm512_maskz_mov_pd((__mmask8)bits, v); }
// The larger magnitudes, by their bits, so that NaN is above Inf.
static inline vec_f32 vec_top_f32(vec_f32 top, vec_f32 v) {
    return _mm512_castsi512_ps(_mm512_max_epi32(_mm512_castps_si512(top), _mm512_castps_si512(_mm512_abs_ps(v))));
}
static inline vec_f64 vec_top_f64(vec_f64 top, vec_f64 v) {
    return _mm512_castsi512_pd(_mm512_max_epi64(_mm512_castpd_si512(top), _mm512_castpd_si512(_mm512_abs_pd(v))));
}
// Numbers kept as bf16. vec_bf16: nearest even, a NaN stays one, as snd_f32_to_bf16 says; vcvtneps2bf16 would take what is
// subnormal for 0.
typedef __m256i vec_half;
static inline vec_f32 vec_from_bf16(vec_half v) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
}
static inline vec_half vec_bf16(vec_f32 v) {
    const __m512i u = _mm512_castps_si512(v), odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_mask_or_epi32(up, nan, u, _mm512_set1_epi32(0x400000)), 16));
}
static inline vec_half vec_load_half(const uint16_t *p) { return _mm256_loadu_si256((const __m256i *)(const void *)p); }
static inline void vec_store_half(uint16_t *p, vec_half v) { _mm256_storeu_si256((__m256i *)(void *)p, v); }
static inline void vec_stream_half(uint16_t *p, vec_half v) { _mm256_stream_si256((__m256i *)(void *)p, v); }
#elif defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#define SND_FMA 1
enum { SND_VEC_BYTES = 32, SND_STRIP = 6 };  // 12 of 16 registers
typedef __m256 vec_f32;
typedef __m256d vec_f64;
typedef uint64_t vec_u64 __attribute__((vector_size(32)));
static inline vec_f32 vec_load_f32(const float *p) { return _mm256_loadu_ps(p); }
static inline vec_f64 vec_load_f64(const double *p) { return _mm256_loadu_pd(p); }
static inline vec_f64 vec_wide_f32(const float *p) { return _mm256_cvtps_pd(_mm_loadu_ps(p)); }
static inline vec_f32 vec_all_f32(float v) { return _mm256_set1_ps(v); }
static inline vec_f64 vec_all_f64(double v) { return _mm256_set1_pd(v); }
static inline void vec_stream_f32(float *p, vec_f32 v) { _mm256_stream_ps(p, v); }
static inline void vec_stream_f64(double *p, vec_f64 v) { _mm256_stream_pd(p, v); }
static inline void vec_fence(void) { _mm_sfence(); }
static inline vec_f32 vec_fma_f32(vec_f32 a, vec_f32 b, vec_f32 c) { return _mm256_fmadd_ps(a, b, c); }
static inline vec_f64 vec_fma_f64(vec_f64 a, vec_f64 b, vec_f64 c) { return _mm256_fmadd_pd(a, b, c); }
static inline vec_f64 vec_sqrt_f64(vec_f64 v) { return _mm256_sqrt_pd(v); }
static inline vec_u64 vec_low_product(vec_u64 a, vec_u64 b) { return (vec_u64)_mm256_mul_epu32((__m256i)a, (__m256i)b); }
static inline void vec_store_f32(float *p, vec_f32 v) { _mm256_storeu_ps(p, v); }
static inline void vec_store_f64(double *p, vec_f64 v) { _mm256_storeu_pd(p, v); }
static inline uint64_t vec_above0_f32(vec_f32 v) {
    return (uint64_t)_mm256_movemask_ps(_mm256_cmp_ps(v, _mm256_setzero_ps(), _CMP_NLE_UQ));
}
static inline uint64_t vec_above0_f64(vec_f64 v) {
    return (uint64_t)_mm256_movemask_pd(_mm256_cmp_pd(v, _mm256_setzero_pd(), _CMP_NLE_UQ));
}
static inline vec_f32 vec_keep_f32(uint64_t bits, vec_f32 v) {
    const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i on = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)(bits & 255)), lane), lane);
    return _mm256_and_ps(v, _mm256_castsi256_ps(on));
}
static inline vec_f64 vec_keep_f64(uint64_t bits, vec_f64 v) {
    const __m256i lane = _mm256_setr_epi64x(1, 2, 4, 8);
    const __m256i on = _mm256_cmpeq_epi64(_mm256_and_si256(_mm256_set1_epi64x((int64_t)(bits & 15)), lane), lane);
    return _mm256_and_pd(v, _mm256_castsi256_pd(on));
}
static inline vec_f32 vec_top_f32(vec_f32 top, vec_f32 v) {
    const __m256i u = _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x7fffffff));
    return _mm256_castsi256_ps(_mm256_max_epi32(_mm256_castps_si256(top), u));
}
static inline vec_f64 vec_top_f64(vec_f64 top, vec_f64 v) {
    const __m256i u = _mm256_and_si256(_mm256_castpd_si256(v), _mm256_set1_epi64x(0x7fffffffffffffff));
    const __m256i more = _mm256_cmpgt_epi64(u, _mm256_castpd_si256(top));
    return _mm256_blendv_pd(top, _mm256_castsi256_pd(u), _mm256_castsi256_pd(more));
}
typedef __m128i vec_half;
static inline vec_f32 vec_from_bf16(vec_half v) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16));
}
static inline vec_half vec_bf16(vec_f32 v) {
    const __m256i u = _mm256_castps_si256(v), odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const __m256i all = _mm256_blendv_epi8(up, _mm256_or_si256(u, _mm256_set1_epi32(0x400000)), nan);
    const __m256i words = _mm256_srli_epi32(all, 16);
    return _mm256_castsi256_si128(_mm256_permute4x64_epi64(_mm256_packus_epi32(words, words), 0x08));
}
static inline vec_half vec_load_half(const uint16_t *p) { return _mm_loadu_si128((const __m128i *)(const void *)p); }
static inline void vec_store_half(uint16_t *p, vec_half v) { _mm_storeu_si128((__m128i *)(void *)p, v); }
static inline void vec_stream_half(uint16_t *p, vec_half v) { _mm_stream_si128((__m128i *)(void *)p, v); }
#else
#if defined(__SSE2__)
#include <emmintrin.h>
#endif
#define SND_FMA 0
enum { SND_VEC_BYTES = 16, SND_STRIP = 6 };
typedef float vec_f32 __attribute__((vector_size(16)));
typedef double vec_f64 __attribute__((vector_size(16)));
typedef uint64_t vec_u64 __attribute__((vector_size(16)));
static inline vec_f32 vec_load_f32(const float *p) {
    vec_f32 v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline vec_f64 vec_load_f64(const double *p) {
    vec_f64 v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline vec_f64 vec_wide_f32(const float *p) { return (vec_f64){(double)p[0], (double)p[1]}; }
static inline vec_f32 vec_all_f32(float v) { return (vec_f32){v, v, v, v}; }
static inline vec_f64 vec_all_f64(double v) { return (vec_f64){v, v}; }
static inline void vec_stream_f32(float *p, vec_f32 v) { memcpy(p, &v, sizeof v); }
static inline void vec_stream_f64(double *p, vec_f64 v) { memcpy(p, &v, sizeof v); }
static inline void vec_fence(void) {}
static inline vec_f32 vec_fma_f32(vec_f32 a, vec_f32 b, vec_f32 c) { return a * b + c; }
static inline vec_f64 vec_fma_f64(vec_f64 a, vec_f64 b, vec_f64 c) { return a * b + c; }
static inline vec_f64 vec_sqrt_f64(vec_f64 v) { return (vec_f64){sqrt(v[0]), sqrt(v[1])}; }
#if defined(__SSE2__)
static inline vec_u64 vec_low_product(vec_u64 a, vec_u64 b) { return (vec_u64)_mm_mul_epu32((__m128i)a, (__m128i)b); }
#else
static inline vec_u64 vec_low_product(vec_u64 a, vec_u64 b) { return (a & 0xffffffffu) * (b & 0xffffffffu); }
#endif
static inline void vec_store_f32(float *p, vec_f32 v) { memcpy(p, &v, sizeof v); }
static inline void vec_store_f64(double *p, vec_f64 v) { memcpy(p, &v, sizeof v); }
static inline uint64_t vec_above0_f32(vec_f32 v) {
    uint64_t bits = 0;
    for (int i = 0; i < 4; i++) bits |= (uint64_t)!(v[i] <= 0) << i;
    return bits;
}
static inline uint64_t vec_above0_f64(vec_f64 v) { return (uint64_t)!(v[0] <= 0) | (uint64_t)!(v[1] <= 0) << 1; }
static inline vec_f32 vec_keep_f32(uint64_t bits, vec_f32 v) {
    for (int i = 0; i < 4; i++) v[i] = bits >> i & 1 ? v[i] : 0;
    return v;
}
static inline vec_f64 vec_keep_f64(uint64_t bits, vec_f64 v) {
    return (vec_f64){bits & 1 ? v[0] : 0, bits & 2 ? v[1] : 0};
}
static inline vec_f32 vec_top_f32(vec_f32 top, vec_f32 v) {
    typedef int32_t bits __attribute__((vector_size(16)));
    const bits t = (bits)top, u = (bits)v & 0x7fffffff, more = u > t;
    return (vec_f32)((u & more) | (t & ~more));
}
static inline vec_f64 vec_top_f64(vec_f64 top, vec_f64 v) {
    typedef int64_t bits __attribute__((vector_size(16)));
    const bits t = (bits)top, u = (bits)v & 0x7fffffffffffffff, more = u > t;
    return (vec_f64)((u & more) | (t & ~more));
}
typedef uint16_t vec_half __attribute__((vector_size(8)));
static inline vec_f32 vec_from_bf16(vec_half v) {
    typedef uint32_t bits __attribute__((vector_size(16)));
    return (vec_f32)((bits){v[0], v[1], v[2], v[3]} << 16);
}
static inline vec_half vec_bf16(vec_f32 v) {
    typedef uint32_t bits __attribute__((vector_size(16)));
    const bits u = (bits)v, up = u + 0x7fff + (u >> 16 & 1), nan = (bits)(v != v);
    const bits all = ((up & ~nan) | ((u | 0x400000) & nan)) >> 16;
    return (vec_half){(uint16_t)all[0], (uint16_t)all[1], (uint16_t)all[2], (uint16_t)all[3]};
}
static inline vec_half vec_load_half(const uint16_t *p) {
    vec_half v;
    memcpy(&v, p, sizeof v);
    return v;
}
static inline void vec_store_half(uint16_t *p, vec_half v) { memcpy(p, &v, sizeof v); }
static inline void vec_stream_half(uint16_t *p, vec_half v) { memcpy(p, &v, sizeof v); }
#endif

// Sum of a vector's elements by halves: l with l + half, and so on.
#if SND_FMA
static inline double vec_sum_quarter(__m256d v) {
    const __m128d h = _mm_add_pd(_mm256_castpd256_pd128(v), _mm256_extractf128_pd(v, 1));
    return _mm_cvtsd_f64(h) + _mm_cvtsd_f64(_mm_unpackhi_pd(h, h));
}
#if defined(__AVX512F__)
static inline double vec_sum_f64(vec_f64 v) {
    return vec_sum_quarter(_mm256_add_pd(_mm512_castpd512_pd256(v), _mm512_extractf64x4_pd(v, 1)));
}
#else
static inline double vec_sum_f64(vec_f64 v) { return vec_sum_quarter(v); }
#endif
#else
static inline double vec_sum_f64(vec_f64 v) { return v[0] + v[1]; }
#endif

#if SND_FMA
// out[i] = sum of v[i]'s elements.
static inline void vec_sums4(const vec_f64 v[4], double out[4]) {
    __m256d h[4];
    for (int i = 0; i < 4; i++) {
#if defined(__AVX512F__)
        h[i] = _mm256_add_pd(_mm512_castpd512_pd256(v[i]), _mm512_extractf64x4_pd(v[i], 1));
#else
        h[i] = v[i];
#endif
    }
    const __m256d a = _mm256_hadd_pd(h[0], h[1]), b = _mm256_hadd_pd(h[2], h[3]);
    _mm256_storeu_pd(out, _mm256_add_pd(_mm256_permute2f128_pd(a, b, 0x20), _mm256_permute2f128_pd(a, b, 0x31)));
}
#else
static inline void vec_sums4(const vec_f64 v[4], double out[4]) {
    for (int i = 0; i < 4; i++) out[i] = v[i][0] + v[i][1];
}
#endif

static inline vec_f64 vec_wide_f64(const double *p) { return vec_load_f64(p); }

// The larger of `most` and the bits of the largest of a vector's elements that vec_top gave.
static inline uint32_t vec_top_bits_f32(vec_f32 top, uint32_t most) {
    uint32_t bits[SND_VEC_BYTES / 4];
    memcpy(bits, &top, sizeof bits);
    for (int i = 0; i < SND_VEC_BYTES / 4; i++) most = bits[i] > most ? bits[i] : most;
    return most;
}
static inline uint64_t vec_top_bits_f64(vec_f64 top, uint64_t most) {
    uint64_t bits[SND_VEC_BYTES / 8];
    memcpy(bits, &top, sizeof bits);
    for (int i = 0; i < SND_VEC_BYTES / 8; i++) most = bits[i] > most ? bits[i] : most;
    return most;
}

// A block of an array that is read soon, of which cache lines are asked for (into the second cache) step by step while
// something else is done: what has not been asked for yet.
typedef struct vec_ahead {
    const char *row;           // of `bytes` each, ld apart
    int64_t rows, bytes, ld;
    int64_t at, lines;         // bytes of the row that have been asked for; lines of a step
} vec_ahead;

// All of it within so many steps. x NULL: nothing.
static inline vec_ahead vec_ahead_of(const void *x, int64_t rows, int64_t bytes, int64_t ld, int64_t steps) {
    const int64_t lines = x ? rows * (bytes / 64 + 1) : 0;
    return (vec_ahead){.row = (const char *)x, .rows = lines ? rows : 0, .bytes = bytes, .ld = ld,
                       .lines = lines ? (lines + steps - 1) / steps : 0};
}

static inline void vec_ask(vec_ahead *w) {
    for (int64_t i = 0; i < w->lines && w->rows > 0; i++) {
        __builtin_prefetch(w->row + w->at, 0, 2);
        w->at += 64;
        if (w->at < w->bytes) continue;
        w->at = 0;
        if (--w->rows) w->row += w->ld;
    }
}

// Sums run in a fixed number of lanes whatever the instruction set: 128 bytes of T, or 16 doubles.
enum {
    SND_LANE_VECS = 128 / SND_VEC_BYTES,  // vectors that make up the lanes
    SND_WIDE = SND_VEC_BYTES / 8,         // doubles per vector
    SND_DLANES = 16,
};

#endif
