// Private to the products of bf16 operands (bf16.c, bf16.inc): what a way of making them offers.
#ifndef SND_KERNELS_BF16_H
#define SND_KERNELS_BF16_H

#include <stdbool.h>
#include <stdint.h>

enum { SND_BF16_LINES = 32, SND_BF16_DEPTH = 256 };    // lines packed together; of a block of k

/// Packs n lines by kn <= SND_BF16_DEPTH of k, as bf16.inc says. along: a line's k are side by side, lines ld apart; else
/// the other way round. down: for op(B).
typedef void snd_kt_bf16_pack(bool along, bool down, int64_t n, int64_t kn, const float *x, int64_t ld, uint32_t *out);
/// The product of packed operands in squares of SND_BF16_LINES, those of one column of squares together: sums = (add ? sums :
/// 0) + a b. Meanwhile `rows` rows of row_bytes, ld bytes apart, are asked for, which will be packed next. next NULL: nothing.
typedef void snd_kt_bf16_block(int64_t m, int64_t n, int64_t kn, const uint32_t *a, const uint32_t *b, bool add, float *sums,
                               const float *next, int64_t rows, int64_t row_bytes, int64_t ld);
/// C [m, n] = alpha sums + beta C + bias[n] (NULL: none), the squares of a column `down` apart and those of a row `apart`;
/// stream: C leaves the caches. Returns the largest |C|, NaN where there is one.
typedef double snd_kt_bf16_put(int64_t m, int64_t n, int64_t down, int64_t apart, bool stream, const float *sums, float alpha,
                               float beta, const float *bias, float *C, int64_t ldc);

#define SND_BF16_WAY(way)                                                                                              \
    snd_kt_bf16_pack snd_k_bf16_pack_##way;                                                                            \
    snd_kt_bf16_block snd_k_bf16_block_##way;                                                                          \
    snd_kt_bf16_put snd_k_bf16_put_##way;
SND_BF16_WAY(base)
SND_BF16_WAY(avx2)
SND_BF16_WAY(avx512)
SND_BF16_WAY(avx512bf16)
SND_BF16_WAY(amx)
#undef SND_BF16_WAY

enum { SND_BF16X3_DEPTH = 128, SND_BF16X3_ROWS = 512, SND_BF16X3_COLS = 512 }; // of a block of k; of a tile at most

/// A tile of a product of operands that are taken apart: m x n of C, all of K > 0. op(A) is [m, K], stored [K, m] where ta;
/// op(B) is [K, n], stored [n, K] where tb.
typedef struct snd_bf16x3_tile {
    bool ta, tb;
    int64_t m, n, K, lda, ldb;
    const float *A, *B;
} snd_bf16x3_tile;
/// Bits of magnitudes, cut off to 16: the largest, and the least of the largest of each line that is not zero (else all ones).
typedef struct snd_bf16_range {
    uint32_t most, least;
} snd_bf16_range;
/// sums = op(A) op(B) in squares of SND_BF16_LINES, those of one row of squares together.
typedef void snd_kt_bf16x3_tile(const snd_bf16x3_tile *t, float *sums, snd_bf16_range *of_a, snd_bf16_range *of_b);
snd_kt_bf16x3_tile snd_k_bf16_tile_x3_base, snd_k_bf16_tile_x3_amx;

#endif
