// Fronts of products by bf16 numbers. C is cut into a grid of tiles that depends on the shape only.
// Rounded operands: op(A) is rounded and packed once, into the caller's memory; a tile's thread rounds and packs the columns
// of op(B) that it reads, block by block of k, and multiplies in the best way that the processor has.
// Operands taken apart in three, which gives f32 products faster than multiply-adds can be where there are tiles: a tile's
// thread packs all that it reads.
#include "kernels/bf16.h"
#include "kernels/rows.h"
#include <assert.h>
#include <stdatomic.h>

typedef struct way {
    const char *name;
    snd_kt_bf16_pack *pack;
    snd_kt_bf16_block *block;
    snd_kt_bf16_put *put;
    snd_kt_bf16x3_tile *tile; // of operands taken apart; NULL where nobody wants that
} way;

static const way ways[] = {
    [SND_KBF16_BASE] = {"f32 by plain C", snd_k_bf16_pack_base, snd_k_bf16_block_base, snd_k_bf16_put_base,
                        snd_k_bf16_tile_x3_base},
    [SND_KBF16_AVX2] = {"f32 by AVX2", snd_k_bf16_pack_avx2, snd_k_bf16_block_avx2, snd_k_bf16_put_avx2, NULL},
    [SND_KBF16_AVX512] = {"f32 by AVX-512", snd_k_bf16_pack_avx512, snd_k_bf16_block_avx512, snd_k_bf16_put_avx512,
                          NULL},
    [SND_KBF16_PAIRS] = {"AVX512-BF16", snd_k_bf16_pack_avx512bf16, snd_k_bf16_block_avx512bf16,
                         snd_k_bf16_put_avx512bf16, NULL},
    [SND_KBF16_TILES] = {"AMX", snd_k_bf16_pack_amx, snd_k_bf16_block_amx, snd_k_bf16_put_amx, snd_k_bf16_tile_x3_amx},
};

static _Atomic int limit; // test hook

void snd_k_limit_bf16(snd_kbf16 w) {
    atomic_store_explicit(&limit, (int)w, memory_order_relaxed);
}

snd_kbf16 snd_k_bf16_best(void) {
    const snd_isa isa = snd_k_isa();
    if (isa < SND_ISA_AVX512) return isa == SND_ISA_AVX2 ? SND_KBF16_AVX2 : SND_KBF16_BASE;
    return snd_cpu_amx_bf16() ? SND_KBF16_TILES : snd_cpu_avx512_bf16() ? SND_KBF16_PAIRS : SND_KBF16_AVX512;
}

static const way *way_now(void) {
    const snd_kbf16 best = snd_k_bf16_best(), most = (snd_kbf16)atomic_load_explicit(&limit, memory_order_relaxed);
    return &ways[most && most < best ? most : best];
}

const char *snd_k_bf16_name(void) {
    return way_now()->name;
}

// ---- one tile -------------------------------------------------------------------------------------------------------

// Of a tile at most: what is packed and the sums stay in the second cache. STRIP: pairs of a strip's block.
enum { ROWS = 512, COLS = 256, LINES = SND_BF16_LINES, STRIP = LINES * SND_BF16_DEPTH / 2 };

typedef struct job {
    const way *w;
    bool ta, tb, stream, ask;
    int64_t M, N, K, lda, ldb, ldc, rows, cols, across; // tiles are rows x cols, `across` of them side by side
    int64_t strips, together;                           // of op(A), each of SND_BF16_LINES rows; those of one task
    double alpha, beta;
    const float *A, *B;
    float *C;
    snd_gemm_end *end; // NULL: nothing
    uint32_t *packed;  // op(A): all strips of a block of k, blocks in order
} job;

static int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

static int64_t depth_at(const job *j, int64_t k) {
    return j->K - k < SND_BF16_DEPTH ? j->K - k : SND_BF16_DEPTH;
}

static uint32_t *packed_rows(const job *j, int64_t r, int64_t k) {
    const int64_t tiles = ceil_div(depth_at(j, k), 32);
    return j->packed + k / SND_BF16_DEPTH * j->strips * STRIP + r / SND_BF16_LINES * tiles * 32 * SND_BF16_LINES / 2;
}

static void pack_task(void *ctx, int64_t t) {
    const job *j = ctx;
    const int64_t groups = ceil_div(j->strips, j->together), most = j->together * LINES, r = t % groups * most;
    const int64_t k = t / groups * SND_BF16_DEPTH;
    j->w->pack(!j->ta, false, j->M - r < most ? j->M - r : most, depth_at(j, k),
               j->A + (j->ta ? k * j->lda + r : r * j->lda + k), j->lda, packed_rows(j, r, k));
}

// What of op(B) tile t packs for the block at k.
static const float *columns(const job *j, int64_t t, int64_t k) {
    const int64_t c = t % j->across * j->cols;
    return j->B + (j->tb ? c * j->ldb + k : k * j->ldb + c);
}

static int64_t width_of(const job *j, int64_t t) {
    const int64_t left = j->N - t % j->across * j->cols;
    return left < j->cols ? left : j->cols;
}

// The product of a block, while what is packed behind it is asked for: the next one's columns, else those that the next
// tile begins with, which this thread takes, too.
static void block(const job *j, int64_t t, int64_t k, int64_t m, const uint32_t *packed, float *sums) {
    const int64_t below = k + SND_BF16_DEPTH, next_t = below < j->K ? t : t + 1, next_k = below < j->K ? below : 0;
    const int64_t deep = depth_at(j, next_k), wide = width_of(j, next_t), size = sizeof *j->B;
    j->w->block(m, width_of(j, t), depth_at(j, k), packed_rows(j, t / j->across * j->rows, k), packed, k > 0, sums,
                j->ask ? columns(j, next_t, next_k) : NULL, j->tb ? wide : deep, (j->tb ? deep : wide) * size,
                j->ldb * size);
}

// Writes a tile of C.
static void finish(const job *j, int64_t t, int64_t m, int64_t down, int64_t apart, const float *sums) {
    const int64_t c = t % j->across * j->cols;
    const float *bias = j->end ? snd_at(j->end->bias, c, sizeof *bias) : NULL;
    const double top = j->w->put(m, width_of(j, t), down, apart, j->stream, sums, (float)j->alpha, (float)j->beta, bias,
                                 j->C + t / j->across * j->rows * j->ldc + c, j->ldc);
    if (j->end) snd_k_gemm_top(j->end, top);
}

static void tile_task(void *ctx, int64_t t) {
    const job *j = ctx;
    _Alignas(64) uint32_t pb[COLS * SND_BF16_DEPTH / 2];
    _Alignas(64) float sums[ROWS * COLS];
    const int64_t r = t / j->across * j->rows, m = j->M - r < j->rows ? j->M - r : j->rows;
    int64_t k = 0;
    do { // once even when K = 0: sums of nothing
        j->w->pack(j->tb, true, width_of(j, t), depth_at(j, k), columns(j, t, k), j->ldb, pb);
        block(j, t, k, m, pb, sums);
        k += SND_BF16_DEPTH;
    } while (k < j->K);
    finish(j, t, m, LINES * LINES, ceil_div(m, LINES) * LINES * LINES, sums);
}

// ---- the grid -------------------------------------------------------------------------------------------------------

static void cut(job *j, int64_t down, int64_t over) {
    j->rows = ceil_div(ceil_div(j->M, down), LINES) * LINES;
    j->cols = ceil_div(ceil_div(j->N, over), LINES) * LINES;
    j->across = ceil_div(j->N, j->cols);
}

// Where there would be few tiles they are made narrower, so that two or four threads find equal shares.
static void choose_grid(job *j) {
    int64_t down = ceil_div(j->M, ROWS), over = ceil_div(j->N, COLS);
    const int64_t narrow = ceil_div(j->N, 64);
    if (down * over < 16)
        while (over < narrow && (down * over < 4 || down * over % 4)) over++;
    cut(j, down, over);
}

size_t snd_k_gemm_bf16_scratch(int64_t M, int64_t K) {
    return (size_t)(ceil_div(M, SND_BF16_LINES) * ceil_div(K, 32)) * SND_BF16_LINES * 32 * sizeof(uint16_t);
}

static job job_of(bool ta, bool tb, int64_t M, int64_t N, int64_t K, double alpha, const float *A, int64_t lda,
                  const float *B, int64_t ldb, double beta, float *C, int64_t ldc) {
    assert(lda >= (ta ? M : K) && ldb >= (tb ? K : N) && ldc >= N);
    return (job){.ta = ta,
                 .tb = tb,
                 .stream =
                     (double)M * (double)N * sizeof *C >= 4 << 20, // more than the second cache holds until it is read
                 .M = M,
                 .N = N,
                 .K = K > 0 ? K : 0,
                 .lda = lda,
                 .ldb = ldb,
                 .ldc = ldc,
                 .alpha = alpha,
                 .beta = beta,
                 .A = A,
                 .B = B,
                 .C = C};
}

// How many are worth waking.
static int threads_of(const job *j, int th) {
    return j->M * j->N * j->K < 1 << 18 ? 1 : th;
}

double snd_k_gemm_bf16(int th, bool ta, bool tb, int64_t M, int64_t N, int64_t K, double alpha, const float *A,
                       int64_t lda, const float *B, int64_t ldb, double beta, float *C, int64_t ldc, const float *bias,
                       void *scratch) {
    job j = job_of(ta, tb, M, N, K, alpha, A, lda, B, ldb, beta, C, ldc);
    if (M <= 0 || N <= 0) return 0;
    snd_gemm_end end = {.bias = bias};
    j.end = &end;
    j.ask = snd_cpu_is_amd(); // measured on Zen 4 alone: 1 % of large products
    j.w = way_now();
    j.strips = ceil_div(M, LINES);
    j.together = j.strips < 32 ? 4 : 8; // the more, the longer the rows that are read where op(A) is stored transposed
    j.packed = scratch;
    choose_grid(&j);
    const int threads = threads_of(&j, th);
    snd_parallel(threads, ceil_div(j.K, SND_BF16_DEPTH) * ceil_div(j.strips, j.together), pack_task, &j);
    snd_parallel(threads, ceil_div(M, j.rows) * j.across, tile_task, &j);
    return snd_k_gemm_end_top(&end);
}

// ---- operands taken apart -------------------------------------------------------------------------------------------

bool snd_k_bf16x3_is_fast(void) {
    return snd_k_bf16_best() == SND_KBF16_TILES;
}

// Taking apart is exact, and no part of a line's larger products is lost below the least normal number, where
//   all numbers are below 2^127 (so NaN and Inf are not among them), and
//   each line that is not zero has one of at least 2^-104, those of two lines a product of at least 2^-96.
// What is lost is below 2^-126 a product then, or 2^-126 of a number times the other; what is below 2^-133 counts as zero.
static bool in_range(const snd_bf16_range *a, const snd_bf16_range *b) {
    const uint32_t huge = (127 + 127) << 23, tiny = 127 - 104, least_a = a->least >> 23, least_b = b->least >> 23;
    return a->most < huge && b->most < huge && least_a >= tiny && least_b >= tiny && least_a + least_b >= 2 * 127 - 96;
}

static void apart_task(void *ctx, int64_t t) {
    const job *j = ctx;
    _Alignas(64) float sums[SND_BF16X3_ROWS * SND_BF16X3_COLS];
    const int64_t r = t / j->across * j->rows, c = t % j->across * j->cols;
    const snd_bf16x3_tile tile = {.ta = j->ta,
                                  .tb = j->tb,
                                  .m = j->M - r < j->rows ? j->M - r : j->rows,
                                  .n = j->N - c < j->cols ? j->N - c : j->cols,
                                  .K = j->K,
                                  .lda = j->lda,
                                  .ldb = j->ldb,
                                  .A = j->A + (j->ta ? r : r * j->lda),
                                  .B = j->B + (j->tb ? c * j->ldb : c)};
    snd_bf16_range of_a, of_b;
    j->w->tile(&tile, sums, &of_a, &of_b);
    if (in_range(&of_a, &of_b)) {
        finish(j, t, tile.m, ceil_div(tile.n, LINES) * LINES * LINES, LINES * LINES, sums);
        return;
    }
    float *const C = j->C + r * j->ldc + c; // by multiply-adds, then
    SND_PICK(gemm, SND_F32)
    (j->ta, j->tb, tile.m, tile.n, j->K, j->alpha, tile.A, j->lda, tile.B, j->ldb, j->beta, C, j->ldc, false, NULL);
    snd_k_gemm_end(j->end, SND_F32, c, tile.m, tile.n, C, j->ldc);
}

// Both operands are packed for every tile: the squarer it is, the less.
static void choose_square_grid(job *j) {
    int64_t down = ceil_div(j->M, SND_BF16X3_ROWS), over = ceil_div(j->N, SND_BF16X3_COLS);
    while (down * over < 4 || (down * over < 16 && down * over % 2)) {
        const int64_t rows = ceil_div(j->M, down), cols = ceil_div(j->N, over);
        if (rows <= 64 && cols <= 64) break;
        if (rows > cols)
            down++;
        else
            over++;
    }
    cut(j, down, over);
}

void snd_k_gemm_bf16x3(int th, bool ta, bool tb, int64_t M, int64_t N, int64_t K, double alpha, const float *A,
                       int64_t lda, const float *B, int64_t ldb, double beta, float *C, int64_t ldc,
                       snd_gemm_end *end) {
    job j = job_of(ta, tb, M, N, K, alpha, A, lda, B, ldb, beta, C, ldc);
    if (M <= 0 || N <= 0) return;
    assert(K > 0);
    j.w = &ways[snd_k_bf16x3_is_fast() ? SND_KBF16_TILES : SND_KBF16_BASE];
    j.end = end;
    choose_square_grid(&j);
    snd_parallel(threads_of(&j, th), ceil_div(M, j.rows) * j.across, apart_task, &j);
}
