// Elementary functions of one value and their derivatives, f32 and f64 (fn_value_f32, fn_grad_f64, ...), shared by every
// loop. Own polynomials (polynomials.h), no tables, no branches but selections, so loops over them become vectors; no
// libm and no fused multiply-add but where the product is exact, so the bits are the same on every machine and instruction set.
// Errors are measured by tests/kernels_maths_test.c. A function's limit is returned for infinite arguments.
#ifndef SND_KERNELS_MATHS_H
#define SND_KERNELS_MATHS_H

#include "kernels/kernels.h"
#include "kernels/polynomials.h"
#include <math.h>
#include <string.h>

#define SND_EACH_FN(X)                                                                                                 \
    X(SND_KFN_NONE)                                                                                                    \
    X(SND_KFN_GELU)                                                                                                    \
    X(SND_KFN_GELU_TANH)                                                                                               \
    X(SND_KFN_SILU)                                                                                                    \
    X(SND_KFN_TANH)                                                                                                    \
    X(SND_KFN_SIGMOID)                                                                                                 \
    X(SND_KFN_ERF)                                                                                                     \
    X(SND_KFN_EXP)                                                                                                     \
    X(SND_KFN_SOFTPLUS)                                                                                                \
    X(SND_KFN_SQRT)                                                                                                    \
    X(SND_KFN_LOG)                                                                                                     \
    X(SND_KFN_ABS)

enum { SND_BLOCK = 1024 };  // elements that a loop over a long range takes at a time

#define SND_PASTE2_(a, b) a##_##b
#define SND_PASTE2(a, b) SND_PASTE2_(a, b)
#define FN(name) SND_PASTE2(name, TS)  // a helper of this type
#define SND_INLINE static inline __attribute__((always_inline))

#define T float
#define TS f32
#define UINT uint32_t
#define INT int32_t
#define C(f32, f64) f32##f
#define MANTISSA 23
#define BIAS 127u
#define SPLIT_MASK 0xfffff000u  // keeps half the digits: the square of what is left is exact
#define SQRT1_2_BITS 0x3f3504f3u
#include "kernels/maths.inc"
#undef T
#undef TS
#undef UINT
#undef INT
#undef C
#undef MANTISSA
#undef BIAS
#undef SPLIT_MASK
#undef SQRT1_2_BITS

#define T double
#define TS f64
#define UINT uint64_t
#define INT int64_t
#define C(f32, f64) f64
#define MANTISSA 52
#define BIAS UINT64_C(1023)
#define SPLIT_MASK UINT64_C(0xfffffffff8000000)
#define SQRT1_2_BITS UINT64_C(0x3fe6a09e667f3bcd)
#include "kernels/maths.inc"
#undef T
#undef TS
#undef UINT
#undef INT
#undef C
#undef MANTISSA
#undef BIAS
#undef SPLIT_MASK
#undef SQRT1_2_BITS

#endif
