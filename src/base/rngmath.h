// The exact recipe behind snd_normal_at, as inline functions that base/ and kernels/ share.
// Invariant: only integer operations, +, -, *, / and sqrt on doubles, each rounded once (compile with
// -ffp-contract=off; no FMA in vector forms either) and always in the order written here. So scalar, AVX2 and AVX-512
// forms give the same bits on every machine. No libm: its last digits differ between versions.
//
//   element i of key's stream  <-  block b = i/4, words w = philox4x32-10(key, {b mod 2^32, b / 2^32, 0, 0})
//   pair p = 0, 1:  u = (w[2p] + 1/2) / 2^32        in (0, 1)
//                   r = sqrt(-2 ln u),  angle = 2 pi w[2p+1] / 2^32
//                   element 4b+2p = r cos(angle),  element 4b+2p+1 = r sin(angle)        (Box, Muller 1958)
//   An f32 stream is the f64 stream multiplied in double and rounded once: (float)(a*z). |z| <= 6.77.
#ifndef SND_RNGMATH_H
#define SND_RNGMATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

// Philox 4x32 with 10 rounds: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
static inline void snd_philox_block(const uint32_t key[2], const uint32_t ctr[4], uint32_t out[4]) {
    uint32_t c0 = ctr[0], c1 = ctr[1], c2 = ctr[2], c3 = ctr[3], k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        const uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

// ln((w + 1/2) / 2^32). With x = m 2^k, m in [sqrt(1/2), sqrt(2)):  ln m = 2 atanh(s), s = (m-1)/(m+1), |s| < 0.1716.
// The series sum s^(2j)/(2j+1) is cut where s^20/21 < 3e-17. k = 0 leaves no cancellation as u < 1.
static inline double snd_rng_log(uint32_t w) {
    const double x = (double)w + 0.5; // exact; 2^32 ln u = ln x - 32 ln 2
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    // The high word decides the octave, so vectors need no 64-bit shifts: 0x3fe6a09e is that of sqrt(1/2).
    const uint32_t hi = (uint32_t)(bits >> 32) + (0x3ff00000u - 0x3fe6a09eu);
    const int32_t k = (int32_t)(hi >> 20) - (1023 + 32);
    bits = ((uint64_t)((hi & 0xfffffu) + 0x3fe6a09eu) << 32) | (bits & 0xffffffffu);
    double m;
    memcpy(&m, &bits, sizeof m);
    const double s = (m - 1.0) / (m + 1.0), z = s * s;
    double p = 1.0 / 19.0;
    p = p * z + 1.0 / 17.0;
    p = p * z + 1.0 / 15.0;
    p = p * z + 1.0 / 13.0;
    p = p * z + 1.0 / 11.0;
    p = p * z + 1.0 / 9.0;
    p = p * z + 1.0 / 7.0;
    p = p * z + 1.0 / 5.0;
    p = p * z + 1.0 / 3.0;
    p = p * z + 1.0;
    return (double)k * 0x1.62e42fefa39efp-1 + (2.0 * s) * p;
}

// cos and sin of 2 pi w / 2^32. The quadrant q is taken off in integers, exactly; the rest y lies in [-pi/4, pi/4),
// where Taylor's series are cut below 5e-17.
static inline void snd_rng_cos_sin(uint32_t w, double *c, double *s) {
    const uint32_t q = (w + 0x20000000u) >> 30;
    const double y = (double)(int32_t)(w - (q << 30)) * 0x1.921fb54442d18p-30; // 2 pi / 2^32
    const double z = y * y;
    double a = 1.0 / 20922789888000.0;
    a = a * z - 1.0 / 87178291200.0;
    a = a * z + 1.0 / 479001600.0;
    a = a * z - 1.0 / 3628800.0;
    a = a * z + 1.0 / 40320.0;
    a = a * z - 1.0 / 720.0;
    a = a * z + 1.0 / 24.0;
    a = a * z - 1.0 / 2.0;
    a = a * z + 1.0; // cos y
    double b = -1.0 / 1307674368000.0;
    b = b * z + 1.0 / 6227020800.0;
    b = b * z - 1.0 / 39916800.0;
    b = b * z + 1.0 / 362880.0;
    b = b * z - 1.0 / 5040.0;
    b = b * z + 1.0 / 120.0;
    b = b * z - 1.0 / 6.0;
    b = b * z + 1.0;
    b = b * y; // sin y
    // Quadrants 1 and 3 swap the two; cos changes sign in 1 and 2, sin in 2 and 3.
    const double cc = q & 1 ? b : a, ss = q & 1 ? a : b;
    *c = (q + 1) & 2 ? -cc : cc;
    *s = q & 2 ? -ss : ss;
}

static inline void snd_rng_pair(uint32_t w0, uint32_t w1, double z[2]) {
    double c, s;
    const double r = sqrt(-2.0 * snd_rng_log(w0));
    snd_rng_cos_sin(w1, &c, &s);
    z[0] = r * c;
    z[1] = r * s;
}

// The four normals of one block.
static inline void snd_rng_normal4(const uint32_t w[4], double z[4]) {
    snd_rng_pair(w[0], w[1], z);
    snd_rng_pair(w[2], w[3], z + 2);
}

// [0, 1) from one word.
static inline double snd_rng_uniform(uint32_t w) {
    return (double)w * 0x1p-32;
}

// Element i of the normal stream cut at +-2 by redrawing: draw number t = 0, 1, ... is element i of the stream whose
// counter's third word is t; the first with |z| <= 2 is taken. (4.6 % are redrawn; 32 misses in a row do not happen,
// and would give 0.)
static inline double snd_rng_trunc(const uint32_t key[2], uint64_t i) {
    for (uint32_t t = 0; t < 32; t++) {
        const uint32_t ctr[4] = {(uint32_t)(i / 4), (uint32_t)(i / 4 >> 32), t, 0};
        uint32_t w[4];
        double z[2];
        snd_philox_block(key, ctr, w);
        snd_rng_pair(w[i & 2], w[(i & 2) + 1], z);
        if (fabs(z[i & 1]) <= 2.0) return z[i & 1];
    }
    return 0;
}

#endif
