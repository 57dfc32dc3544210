// The roof of products of bf16 numbers: dot products of pairs that never leave the registers. Compiled with AVX512_BF16's
// flags by this file's name; elementwise.c asks the processor before it calls.
#include "kernels/peak.h"

#include <math.h>

#if defined(__AVX512BF16__)
#include <immintrin.h>

double snd_k_peak_bf16_avx512bf16(int64_t rounds) {
    enum { N = 12, FLOP = 64 }; // chains enough for two units of latency five; of one instruction
    const __m512bh a = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5F), _mm512_set1_ps(0.5F));
    __m512 acc[N];
#pragma GCC unroll 12
    for (int i = 0; i < N; i++) acc[i] = _mm512_set1_ps((float)i);
    for (int64_t r = 0; r < rounds; r++) {
#pragma GCC unroll 12
        for (int i = 0; i < N; i++) acc[i] = _mm512_dpbf16_ps(acc[i], a, a);
    }
    float total = 0;
#pragma GCC unroll 12
    for (int i = 0; i < N; i++) total += _mm512_reduce_add_ps(acc[i]);
    return isfinite(total) ? (double)N * FLOP * (double)rounds : 0; // always: it keeps the loop alive
}
#else
double snd_k_peak_bf16_avx512bf16(int64_t rounds) {
    (void)rounds;
    return 0;
}
#endif
