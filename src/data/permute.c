// Permutations of any length without memory: element i is computed, not looked up.
#include "base/rngmath.h"
#include "data/inner.h"

#include <assert.h>

enum { ROUNDS = 6 };

// One turn on two halves of `bits` bits each: a bijection of 0 .. 4^bits - 1 whatever the round function is.
static uint64_t feistel(snd_key key, uint64_t which, int bits, uint64_t x) {
    const uint32_t mask = (uint32_t)((UINT64_C(1) << bits) - 1);
    uint32_t left = (uint32_t)(x >> bits), right = (uint32_t)x & mask;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        const uint32_t ctr[4] = {right, round, (uint32_t)which, (uint32_t)(which >> 32)};
        uint32_t w[4];
        snd_philox_block(key.k, ctr, w);
        const uint32_t next = left ^ (w[0] & mask);
        left = right;
        right = next;
    }
    return (uint64_t)left << bits | right;
}

int64_t snd_permuted(snd_key key, uint64_t which, int64_t n, int64_t i) {
    assert(i >= 0 && i < n);
    int bits = 1;
    while (bits < 31 && (INT64_C(1) << 2 * bits) < n) bits++;
    uint64_t x = (uint64_t)i;
    do x = feistel(key, which, bits, x);
    while (x >= (uint64_t)n);
    return (int64_t)x;
}
