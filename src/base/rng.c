// Random numbers as a pure function of (seed, name, element): any slice of any tensor, at any time, in any order.
// The arithmetic is in rngmath.h, which the vectorised fills of kernels/ follow bit for bit.
// Invariant: nothing here may change the numbers: results of earlier versions must be reproducible from their seeds.
#include "base/base.h"
#include "base/rngmath.h"

// Finaliser of splitmix64 (Steele, Lea, Flood 2014): every input bit moves every output bit.
static uint64_t mix(uint64_t x) {
    x += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

snd_key snd_key_make(uint64_t seed, const char *name) {
    const uint64_t x = mix(mix(seed) ^ snd_hash_str(name));
    return (snd_key){{(uint32_t)x, (uint32_t)(x >> 32)}};
}

void snd_philox(snd_key key, uint64_t block, uint32_t out[4]) {
    const uint32_t ctr[4] = {(uint32_t)block, (uint32_t)(block >> 32), 0, 0};
    snd_philox_block(key.k, ctr, out);
}

double snd_normal_at(snd_key key, uint64_t i) {
    uint32_t w[4];
    double z[2];
    snd_philox(key, i / 4, w);
    snd_rng_pair(w[i & 2], w[(i & 2) + 1], z);
    return z[i & 1];
}

double snd_uniform_at(snd_key key, uint64_t i) {
    uint32_t w[4];
    snd_philox(key, i / 4, w);
    return snd_rng_uniform(w[i & 3]);
}
