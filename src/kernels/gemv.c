// Front of the product of a few rows with a matrix: bound by reading the matrix, which libraries for large products copy
// first. A task is a range of the matrix's rows of some 128 KiB, whatever the number of threads.
#include "kernels/rows.h"

typedef struct gemv_job {
    snd_kt_gemv *gemv;
    snd_cut cut;
    int64_t M, K, ldx, ldw, ldy;
    double alpha, beta;
    const void *x, *w;
    void *y;
    size_t size;
} gemv_job;

static void gemv_task(void *ctx, int64_t i) {
    const gemv_job *j = ctx;
    const int64_t first = snd_cut_begin(&j->cut, i), n = snd_cut_end(&j->cut, i) - first;
    j->gemv(j->M, n, j->K, j->alpha, j->x, j->ldx, snd_at(j->w, first * j->ldw, j->size), j->ldw, j->beta,
            snd_at_mut(j->y, first, j->size), j->ldy);
}

bool snd_k_few_rows(bool ta, bool tb, int64_t M, int64_t N, int64_t K) {
    enum { FEW = 8 };
    return !ta && tb && M <= FEW && N > 1 && K >= 32;
}

void snd_k_gemv(int th, snd_dtype t, int64_t M, int64_t N, int64_t K, double alpha, const void *x, int64_t ldx,
                const void *w, int64_t ldw, double beta, void *y, int64_t ldy) {
    const int64_t grain = 32768 / K;
    const gemv_job j = {.gemv = SND_PICK(gemv, t),
                        .cut = snd_cut_make(N, grain > 0 ? grain : 1, 1),
                        .M = M,
                        .K = K,
                        .ldx = ldx,
                        .ldw = ldw,
                        .ldy = ldy,
                        .alpha = alpha,
                        .beta = beta,
                        .x = x,
                        .w = w,
                        .y = y,
                        .size = snd_k_size(t)};
    snd_parallel(th, j.cut.tasks, gemv_task, (void *)&j);
}
