// CRC-32C (Castagnoli), for files that must show when a byte of them changed: by the processor's own instruction where it has
// one, else by eight tables. Both give the same sums. Sums of pieces join (`times`), so three pieces are summed side by side:
// the instruction answers after three cycles and begins every cycle.
// Bits are reversed throughout, as the standard has them: bit 31 of a remainder belongs to x^0.
// Source: RFC 3720, appendix B.4; eight tables: Kounavis, Berry 2005; joined sums: zlib's crc32_combine.
#include "base/base.h"

#include <string.h>
#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

static const uint32_t POLY = 0x82F63B78; // 0x1EDC6F41 with its bits reversed

// ---- by tables ----------------------------------------------------------------------------------------------------------

typedef struct tables {
    uint32_t of[8][256]; // [k]: of a byte with k zeros behind it
} tables;

static void make_tables(tables *t, int count) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int k = 0; k < 8; k++) c = c >> 1 ^ (c & 1 ? POLY : 0);
        t->of[0][i] = c;
    }
    for (int k = 1; k < count; k++)
        for (int i = 0; i < 256; i++) t->of[k][i] = t->of[k - 1][i] >> 8 ^ t->of[0][t->of[k - 1][i] & 255];
}

static uint32_t by_tables(uint32_t c, const uint8_t *p, size_t n) {
    enum { LONG = 1 << 12 }; // where seven more tables are worth making
    tables t;
    make_tables(&t, n < LONG ? 1 : 8);
    for (size_t words = n < LONG ? 0 : n / 8; words; words--, p += 8, n -= 8) {
        const uint32_t low = c ^ (p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
        c = t.of[7][low & 255] ^ t.of[6][low >> 8 & 255] ^ t.of[5][low >> 16 & 255] ^ t.of[4][low >> 24] ^
            t.of[3][p[4]] ^ t.of[2][p[5]] ^ t.of[1][p[6]] ^ t.of[0][p[7]];
    }
    for (; n; p++, n--) c = c >> 8 ^ t.of[0][(c ^ *p) & 255];
    return c;
}

// ---- by the instruction ---------------------------------------------------------------------------------------------------

#if defined(__x86_64__)

// a b mod POLY
static uint32_t times(uint32_t a, uint32_t b) {
    uint32_t out = 0;
    for (int i = 31; i >= 0; i--) {
        if (a >> i & 1) out ^= b;
        b = b >> 1 ^ (b & 1 ? POLY : 0);
    }
    return out;
}

// x^(8 n): what a sum is multiplied by when n bytes follow.
static uint32_t behind(size_t n) {
    uint32_t out = 1u << 31, square = 1u << 23; // x^0, x^8
    for (; n; n >>= 1) {
        if (n & 1) out = times(square, out);
        square = times(square, square);
    }
    return out;
}

__attribute__((target("sse4.2"))) static uint64_t of_word(uint64_t c, const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return _mm_crc32_u64(c, v);
}

__attribute__((target("sse4.2"))) static uint32_t by_instruction(uint32_t c, const uint8_t *p, size_t n) {
    enum { PIECE = 1 << 14 }; // three fit the first cache, and joining them is some percent of summing them
    if (n >= 3 * PIECE) {
        const uint32_t one = behind(PIECE), two = times(one, one);
        for (; n >= 3 * PIECE; p += 3 * PIECE, n -= 3 * PIECE) {
            uint64_t s[3] = {c, 0, 0};
            for (size_t i = 0; i < PIECE; i += 8) {
                s[0] = of_word(s[0], p + i);
                s[1] = of_word(s[1], p + i + PIECE);
                s[2] = of_word(s[2], p + i + 2 * PIECE);
            }
            c = times(two, (uint32_t)s[0]) ^ times(one, (uint32_t)s[1]) ^ (uint32_t)s[2];
        }
    }
    uint64_t s = c;
    for (; n >= 8; p += 8, n -= 8) s = of_word(s, p);
    c = (uint32_t)s;
    for (; n; p++, n--) c = _mm_crc32_u8(c, *p);
    return c;
}

static bool has_instruction(void) {
    return snd_isa_best() > SND_ISA_BASE; // a processor with AVX2 has SSE4.2
}

#else

static uint32_t by_instruction(uint32_t c, const uint8_t *p, size_t n) {
    return by_tables(c, p, n);
}
static bool has_instruction(void) {
    return false;
}

#endif

uint32_t snd_crc32c(const void *data, size_t n) {
    return ~(has_instruction() ? by_instruction : by_tables)(UINT32_MAX, data, n);
}
