// Matrices that are worked through in pieces of whole rows: statistics of a parameter or of its gradient, which never
// need all of it at once, and the maps of a huge parameter (a vocabulary's head). How an array is cut depends on its
// shape alone, so results do not depend on whether it was in memory or drawn piece by piece.
#include "ops/ops_impl.h"

#include <math.h>
#include <stdatomic.h>

// A piece stays in the cache between being made and being read. 2^26 elements are 256 MiB in f32: all matrices of an 8B
// model but its embedding and head.
static const int64_t PIECE_BYTES = (int64_t)4 << 20, HUGE_ELEMENTS = (int64_t)1 << 26;

static _Atomic int64_t hook; // test hook: elements of a piece and of a huge matrix; 0: as above

void snd_pieces_limit(int64_t elements) {
    atomic_store_explicit(&hook, elements, memory_order_relaxed);
}

int64_t snd_piece_rows(snd_dtype t, int64_t rows, int64_t cols) {
    const int64_t limit = atomic_load_explicit(&hook, memory_order_relaxed);
    const int64_t elements = limit ? limit : PIECE_BYTES / (int64_t)snd_dtype_size(t);
    const int64_t n = cols < elements ? elements / cols : 1;
    return n < rows ? n : rows;
}

size_t snd_piece_bytes(snd_dtype t, int64_t rows, int64_t cols) {
    return (size_t)(snd_piece_rows(t, rows, cols) * cols) * snd_dtype_size(t);
}

int64_t snd_huge_elements(void) {
    const int64_t limit = atomic_load_explicit(&hook, memory_order_relaxed);
    return limit ? limit : HUGE_ELEMENTS;
}

bool snd_is_huge(snd_shape s) {
    return s.nd == 2 && snd_shape_size(s) > snd_huge_elements();
}

// The rows of the piece stand after all rows added so far; `first` is the flat index of its first element.
static void join(snd_kmoments *all, const snd_kmoments *piece, int64_t first) {
    all->sum += piece->sum;
    all->sumsq += piece->sumsq;
    all->sum4 += piece->sum4;
    all->sum_rowmean2 += piece->sum_rowmean2;
    if (first == 0 || (!(piece->absmax <= all->absmax) && !isnan(all->absmax))) {
        all->absmax = piece->absmax;
        all->at = first + piece->at;
    }
    if (piece->absmin > 0 && (all->absmin == 0 || piece->absmin < all->absmin)) all->absmin = piece->absmin;
    all->nonfinite += piece->nonfinite;
}

void snd_moments_add(const snd_oprun *r, int64_t rows, int64_t cols, const void *x, int64_t first, snd_kmoments *all) {
    snd_kmoments m;
    snd_k_moments(r->threads, r->t, rows, cols, x, SND_KM_BASIC, &m);
    join(all, &m, first * cols);
}

void snd_moments_of_pieces(const snd_oprun *r, int64_t rows, int64_t cols, snd_piece_fn *piece, void *tmp,
                           snd_kmoments *out) {
    const int64_t step = snd_piece_rows(r->t, rows, cols);
    *out = (snd_kmoments){.bvar = NAN, .cos = NAN, .pearson = NAN};
    for (int64_t i = 0; i < rows; i += step) {
        const int64_t n = rows - i < step ? rows - i : step;
        snd_moments_add(r, n, cols, piece(r, i, n, tmp), i, out);
    }
}
