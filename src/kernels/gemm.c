// Matrix product, first form: plain loops in double.
#include "kernels/rows.h"

static double get(snd_dtype t, const void *p, int64_t i) {
    return t == SND_F64 ? ((const double *)p)[i] : (double)((const float *)p)[i];
}

void snd_k_gemm(int th, snd_dtype t, bool ta, bool tb, int64_t M, int64_t N, int64_t K, double alpha, const void *A,
                int64_t lda, const void *B, int64_t ldb, double beta, void *C, int64_t ldc) {
    (void)th;
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < N; j++) {
            double s = 0;
            for (int64_t k = 0; k < K; k++)
                s += get(t, A, ta ? k * lda + i : i * lda + k) * get(t, B, tb ? j * ldb + k : k * ldb + j);
            s = alpha * s + (beta != 0 ? beta * get(t, C, i * ldc + j) : 0);
            if (t == SND_F64) ((double *)C)[i * ldc + j] = s;
            else ((float *)C)[i * ldc + j] = (float)s;
        }
}

const char *snd_k_gemm_name(snd_dtype t) {
    (void)t;
    return "own";
}
