// Effective rank: exp of the entropy of the normalised eigenvalues of the centred rows' Gram matrix. Rows are centred on
// their mean row. Eigenvalues by Householder tridiagonalisation and implicit QL (symmetric, values only), in double.
#include "kernels/rows.h"
#include <math.h>

// Copies x as double, divided by its largest magnitude, and subtracts the mean row. False if nothing is left.
static bool centre(snd_dtype t, int64_t R, int64_t D, const void *x, double *c) {
    const double amax = snd_k_absmax(1, t, R * D, x);
    if (!(amax > 0) || isinf(amax)) return false;
    for (int64_t i = 0; i < R * D; i++)
        c[i] = (t == SND_F64 ? ((const double *)x)[i] : (double)((const float *)x)[i]) / amax;
    for (int64_t j = 0; j < D; j++) {
        double m = 0;
        for (int64_t r = 0; r < R; r++) m += c[r * D + j] - c[j];
        m = c[j] + m / (double)R;
        for (int64_t r = 0; r < R; r++) c[r * D + j] -= m;
    }
    return true;
}

// a[n,n] symmetric -> diagonal d, subdiagonal e[1..n-1]; only the lower triangle of a is used and destroyed.
static void tridiagonal(int64_t n, double *a, double *d, double *e) {
    for (int64_t i = n - 1; i >= 1; i--) {
        double *v = a + i * n, scale = 0, h = 0;
        for (int64_t k = 0; k < i; k++) scale += fabs(v[k]);
        if (i == 1 || scale == 0) {
            e[i] = v[i - 1];
            d[i] = a[i * n + i];
            continue;
        }
        for (int64_t k = 0; k < i; k++) {
            v[k] /= scale;
            h += v[k] * v[k];
        }
        const double g = v[i - 1] > 0 ? -sqrt(h) : sqrt(h);
        e[i] = scale * g;
        h -= v[i - 1] * g;
        v[i - 1] -= g;
        // p = A v / h (kept in e[0..i-1]), K = v.p / 2h, A -= v q' + q v' with q = p - K v
        double vp = 0;
        for (int64_t r = 0; r < i; r++) {
            double s = 0;
            for (int64_t k = 0; k <= r; k++) s += a[r * n + k] * v[k];
            for (int64_t k = r + 1; k < i; k++) s += a[k * n + r] * v[k];
            e[r] = s / h;
            vp += e[r] * v[r];
        }
        const double K = vp / (2 * h);
        for (int64_t r = 0; r < i; r++) e[r] -= K * v[r];
        for (int64_t r = 0; r < i; r++)
            for (int64_t k = 0; k <= r; k++) a[r * n + k] -= v[r] * e[k] + e[r] * v[k];
        d[i] = a[i * n + i];
    }
    d[0] = a[0];
}

// Eigenvalues of a symmetric tridiagonal matrix by QL with implicit shifts; e is destroyed.
static void tridiagonal_ql(int64_t n, double *d, double *e) {
    for (int64_t i = 1; i < n; i++) e[i - 1] = e[i];
    e[n - 1] = 0;
    for (int64_t l = 0; l < n; l++) {
        for (int iter = 0; iter < 60; iter++) {
            int64_t m = l;
            while (m < n - 1 && fabs(e[m]) > 0x1p-52 * (fabs(d[m]) + fabs(d[m + 1]))) m++;
            if (m == l) break;
            double g = (d[l + 1] - d[l]) / (2 * e[l]), r = hypot(g, 1);
            g = d[m] - d[l] + e[l] / (g + copysign(r, g));
            double s = 1, c = 1, p = 0;
            int64_t i = m - 1;
            for (; i >= l; i--) {
                const double f = s * e[i], b = c * e[i];
                r = hypot(f, g);
                e[i + 1] = r;
                if (r == 0) {
                    d[i + 1] -= p;
                    e[m] = 0;
                    break;
                }
                s = f / r;
                c = g / r;
                g = d[i + 1] - p;
                r = (d[i] - g) * s + 2 * c * b;
                p = s * r;
                d[i + 1] = g + p;
                g = c * r - b;
            }
            if (r == 0 && i >= l) continue;
            d[l] -= p;
            e[l] = g;
            e[m] = 0;
        }
    }
}

void snd_k_gram(snd_dtype t, int64_t R, int64_t K, const void *x, double *G) {
    SND_PICK(gram, t)(R, K, x, G);
}

int64_t snd_k_cholesky(int64_t R, double relative, const double *G, double *L, double *d, int32_t *piv) {
    static snd_kt_cholesky *const fn[] = {snd_k_cholesky_f64_base, snd_k_cholesky_f64_avx2, snd_k_cholesky_f64_avx512};
    return fn[snd_k_isa() - 1](R, relative, G, L, d, d + R, piv);
}

double snd_k_effective_rank(int th, snd_dtype t, int64_t R, int64_t D, const void *x, double *scratch) {
    double *c = scratch, *gram = c + R * D, *d = gram + R * R, *e = d + R;
    if (R < 2 || D < 1 || !centre(t, R, D, x, c)) return NAN;
    // the smaller of the two Gram matrices has the same non-zero eigenvalues
    const bool small = D < R;
    const int64_t n = small ? D : R;
    if (small)
        snd_k_gemm(th, SND_F64, true, false, n, n, R, 1, c, D, c, D, 0, gram, n);
    else
        snd_k_gemm(th, SND_F64, false, true, n, n, D, 1, c, D, c, D, 0, gram, n);
    tridiagonal(n, gram, d, e);
    tridiagonal_ql(n, d, e);
    double total = 0, entropy = 0;
    for (int64_t i = 0; i < n; i++) total += d[i] > 0 ? d[i] : 0;
    if (!(total > 0)) return NAN;
    for (int64_t i = 0; i < n; i++) {
        const double p = d[i] > 0 ? d[i] / total : 0;
        if (p > 0) entropy -= p * log(p);
    }
    return exp(entropy);
}
