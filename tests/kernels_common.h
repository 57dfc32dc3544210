// What the kernel tests share: guarded, misaligned arrays of f32, f64 or bf16, draws, and loops over types, instruction sets
// and thread counts.
#ifndef SND_TESTS_KERNELS_COMMON_H
#define SND_TESTS_KERNELS_COMMON_H

#include "check.h"
#include "kernels/rows.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// n elements of type t that start `shift` elements off a cache line, between guard bytes.
typedef struct arr {
    snd_dtype t;
    int64_t n;
    unsigned char *raw;
    size_t shift;
    void *p;
} arr;
enum { GUARD = 64, POISON = 0xA5 };

static inline size_t elem(snd_dtype t) { return snd_dtype_size(t); }

static inline arr arr_make(snd_dtype t, int64_t n, int shift) {
    arr a = {.t = t, .n = n, .shift = (size_t)shift * elem(t)};
    const size_t bytes = 2 * GUARD + a.shift + (size_t)n * elem(t);
    a.raw = snd_aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_non_null(a.raw);
    memset(a.raw, POISON, (bytes + 63) / 64 * 64);
    a.p = a.raw + GUARD + a.shift;
    return a;
}
static inline double at(const arr *a, int64_t i) {
    if (a->t == SND_BF16) return (double)snd_bf16_to_f32(((uint16_t *)a->p)[i]);
    return a->t == SND_F64 ? ((double *)a->p)[i] : (double)((float *)a->p)[i];
}
static inline void put(arr *a, int64_t i, double v) {
    if (a->t == SND_BF16) ((uint16_t *)a->p)[i] = snd_f32_to_bf16((float)v);
    else if (a->t == SND_F64) ((double *)a->p)[i] = v;
    else ((float *)a->p)[i] = (float)v;
}
static inline void arr_check(const arr *a) {
    for (size_t i = 0; i < GUARD + a->shift; i++) assert_int_equal(a->raw[i], POISON);
    const unsigned char *end = (unsigned char *)a->p + (size_t)a->n * elem(a->t);
    for (size_t i = 0; i < GUARD; i++) assert_int_equal(end[i], POISON);
}
static inline void arr_free(arr *a) {
    arr_check(a);
    snd_free(a->raw);
    a->raw = NULL;
}
static inline arr arr_copy(const arr *a, int shift) {
    arr b = arr_make(a->t, a->n, shift);
    memcpy(b.p, a->p, (size_t)a->n * elem(a->t));
    return b;
}
static inline bool same_bits(const arr *a, const arr *b) { return memcmp(a->p, b->p, (size_t)a->n * elem(a->t)) == 0; }

// Element i of a test's own stream of normals.
static inline double draw(const char *name, int64_t i) { return snd_normal_at(snd_key_make(11, name), (uint64_t)i); }
static inline arr arr_draw(snd_dtype t, int64_t n, int shift, const char *name, double scale) {
    arr a = arr_make(t, n, shift);
    const snd_key k = snd_key_make(11, name);
    for (int64_t i = 0; i < n; i++) put(&a, i, scale * snd_normal_at(k, (uint64_t)i));
    return a;
}
static inline double eps_of(snd_dtype t) { return t == SND_F64 ? DBL_EPSILON : (double)FLT_EPSILON; }

static const snd_dtype both_types[2] = {SND_F32, SND_F64};
#define EACH_TYPE(t) for (int t##_i = 0; t##_i < 2; t##_i++) for (snd_dtype t = both_types[t##_i], *t##_once = &t; t##_once; t##_once = NULL)
// Every instruction set that this machine runs; the hook is taken off by the group's teardown.
#define EACH_ISA(isa) for (int isa = SND_ISA_BASE; isa <= (int)snd_isa_best() && (snd_k_limit_isa((snd_isa)isa), true); isa++)

static inline int reset_hooks(void **state) {
    (void)state;
    snd_k_limit_isa(SND_ISA_NONE);
    snd_k_limit_gemm(SND_KGEMM_NONE);
    return 0;
}

#endif
