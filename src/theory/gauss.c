#include "gauss.h"

#include <math.h>
#include <string.h>

#define PI 3.14159265358979323846

double snd_gfn_value(snd_gfn fn, double t) {
    switch (fn) {
    case SND_GFN_NONE:
    case SND_GFN_IDENTITY: return t;
    case SND_GFN_RELU: return t > 0 ? t : (t <= 0 ? 0 : t);
    case SND_GFN_GELU: return 0.5 * t * erfc(-t * M_SQRT1_2);
    case SND_GFN_GELU_TANH: return 0.5 * t * (1 + tanh(0.79788456080286535588 * (t + 0.044715 * t * t * t)));
    case SND_GFN_SILU: return t < -700 ? 0 : t / (1 + exp(-t));
    case SND_GFN_TANH: return tanh(t);
    case SND_GFN_SIGMOID: return 1 / (1 + exp(-t));
    case SND_GFN_ERF: return erf(t);
    case SND_GFN_EXP: return exp(t);
    case SND_GFN_SOFTPLUS: return t > 0 ? t + log1p(exp(-t)) : log1p(exp(t));
    case SND_GFN_SQRT: return sqrt(t);
    case SND_GFN_LOG: return log(t);
    case SND_GFN_ABS: return fabs(t);
    case SND_GFN_RECIP: return 1 / t;
    }
    return NAN;
}

double snd_gfn_slope(snd_gfn fn, double t) {
    switch (fn) {
    case SND_GFN_NONE:
    case SND_GFN_IDENTITY: return 1;
    case SND_GFN_RELU: return t > 0 ? 1 : 0;
    case SND_GFN_GELU: return 0.5 * erfc(-t * M_SQRT1_2) + t * exp(-0.5 * t * t) / sqrt(2 * PI);
    case SND_GFN_GELU_TANH: {
        const double c = 0.79788456080286535588, u = tanh(c * (t + 0.044715 * t * t * t));
        const double up = (1 - u * u) * c * (1 + 3 * 0.044715 * t * t);
        return 0.5 * (1 + u) + (up == 0 ? 0 : 0.5 * t * up);
    }
    case SND_GFN_SILU: {
        if (fabs(t) > 700) return t > 0 ? 1 : 0;
        const double s = 1 / (1 + exp(-t));
        return s + t * s * (1 - s);
    }
    case SND_GFN_TANH: {
        const double u = tanh(t);
        return 1 - u * u;
    }
    case SND_GFN_SIGMOID: {
        const double s = 1 / (1 + exp(-t));
        return s * (1 - s);
    }
    case SND_GFN_ERF: return 2 / sqrt(PI) * exp(-t * t);
    case SND_GFN_EXP: return exp(t);
    case SND_GFN_SOFTPLUS: return 1 / (1 + exp(-t));
    case SND_GFN_SQRT: return 0.5 / sqrt(t);
    case SND_GFN_LOG: return 1 / t;
    case SND_GFN_ABS: return t > 0 ? 1 : t < 0 ? -1 : 0;
    case SND_GFN_RECIP: return -1 / (t * t);
    }
    return NAN;
}

// ---- quadrature rules ----

// Gauss-Legendre nodes on [-1, 1] by Newton's iteration on P_n.
static void legendre(int n, double *x, double *w) {
    for (int i = 0; i < (n + 1) / 2; i++) {
        double t = cos(PI * (i + 0.75) / (n + 0.5)), slope = 1;
        for (int it = 0; it < 100; it++) {
            double p0 = 1, p1 = t;
            for (int k = 2; k <= n; k++) {
                const double p2 = ((2 * k - 1) * t * p1 - (k - 1) * p0) / k;
                p0 = p1;
                p1 = p2;
            }
            slope = n * (t * p1 - p0) / (t * t - 1);
            const double step = p1 / slope;
            t -= step;
            if (fabs(step) < 1e-15) break;
        }
        x[i] = -t;
        x[n - 1 - i] = t;
        w[i] = w[n - 1 - i] = 2 / ((1 - t * t) * slope * slope);
    }
}

// Eigenvalues (into diag) and first components (into first) of a symmetric tridiagonal matrix: implicit QL.
static void tridiagonal(int n, double *diag, double *off, double *first) {
    for (int l = 0; l < n; l++) {
        for (int it = 0; it < 200; it++) {
            int m = l;
            for (; m < n - 1; m++) {
                const double size = fabs(diag[m]) + fabs(diag[m + 1]);
                if (fabs(off[m]) <= 1e-17 * size) break;
            }
            if (m == l) break;
            double g = (diag[l + 1] - diag[l]) / (2 * off[l]), r = hypot(g, 1);
            g = diag[m] - diag[l] + off[l] / (g + copysign(r, g));
            double s = 1, c = 1, p = 0;
            for (int i = m - 1; i >= l; i--) {
                double f = s * off[i];
                const double b = c * off[i];
                r = hypot(f, g);
                off[i + 1] = r;
                if (r == 0) {
                    diag[i + 1] -= p;
                    off[m] = 0;
                    break;
                }
                s = f / r;
                c = g / r;
                g = diag[i + 1] - p;
                r = (diag[i] - g) * s + 2 * c * b;
                p = s * r;
                diag[i + 1] = g + p;
                g = c * r - b;
                f = first[i + 1];
                first[i + 1] = s * first[i] + c * f;
                first[i] = c * first[i] - s * f;
            }
            diag[l] -= p;
            off[l] = g;
            off[m] = 0;
        }
    }
}

static void fill_hermite(snd_gauss_rule *rule) {
    for (int i = 0; i < SND_GAUSS_NODES; i++) {
        double h0 = 0, h1 = 1;
        for (int k = 0; k < SND_HERMITE_TERMS; k++) {
            rule->he[i][k] = rule->w[i] * h1;
            const double h2 = (rule->z[i] * h1 - sqrt((double)k) * h0) / sqrt((double)k + 1);
            h0 = h1;
            h1 = h2;
        }
    }
}

void snd_gauss_rule_centred(snd_gauss_rule *rule) {
    enum { PANELS = 12, PER = 20, FINE = PANELS * PER, N = SND_GAUSS_HALF };
    double gx[PER], gw[PER], t[FINE], w[FINE], p0[FINE], p1[FINE];
    legendre(PER, gx, gw);
    for (int q = 0; q < PANELS; q++)
        for (int i = 0; i < PER; i++) {
            t[q * PER + i] = q + 0.5 * (gx[i] + 1);
            w[q * PER + i] = 0.5 * gw[i] * exp(-0.5 * t[q * PER + i] * t[q * PER + i]) / sqrt(2 * PI);
        }
    // Recurrence of the polynomials orthonormal on [0, inf) against the normal density.
    double diag[N], off[N] = {0}, first[N] = {1};
    double mass = 0;
    for (int j = 0; j < FINE; j++) mass += w[j];
    for (int j = 0; j < FINE; j++) p0[j] = 0, p1[j] = 1 / sqrt(mass);
    double beta = 0;
    for (int k = 0; k < N; k++) {
        double alpha = 0, norm = 0;
        for (int j = 0; j < FINE; j++) alpha += w[j] * t[j] * p1[j] * p1[j];
        for (int j = 0; j < FINE; j++) {
            const double next = (t[j] - alpha) * p1[j] - beta * p0[j];
            norm += w[j] * next * next;
            p0[j] = p1[j];
            p1[j] = next;
        }
        beta = sqrt(norm);
        for (int j = 0; j < FINE; j++) p1[j] /= beta;
        diag[k] = alpha;
        off[k] = beta;
    }
    off[N - 1] = 0;
    tridiagonal(N, diag, off, first);
    for (int i = 1; i < N; i++) // insertion sort, nodes increasing
        for (int j = i; j > 0 && diag[j] < diag[j - 1]; j--) {
            const double d = diag[j], f = first[j];
            diag[j] = diag[j - 1], first[j] = first[j - 1];
            diag[j - 1] = d, first[j - 1] = f;
        }
    double sum = 0;
    for (int i = 0; i < N; i++) sum += first[i] * first[i];
    for (int i = 0; i < N; i++) {
        const double weight = 0.5 * first[i] * first[i] / sum;
        rule->z[N + i] = diag[i], rule->w[N + i] = weight;
        rule->z[N - 1 - i] = -diag[i], rule->w[N - 1 - i] = weight;
    }
    fill_hermite(rule);
}

void snd_gauss_rule_split(snd_gauss_rule *rule, double at) {
    enum { N = SND_GAUSS_HALF };
    const double edge = 9.5;
    double gx[N], gw[N], sum = 0;
    if (!(at > -8)) at = -8; // the part beyond carries no weight
    if (at > 8) at = 8;
    legendre(N, gx, gw);
    for (int side = 0; side < 2; side++) {
        const double lo = side ? at : -edge, hi = side ? edge : at;
        for (int i = 0; i < N; i++) {
            const double z = lo + 0.5 * (hi - lo) * (gx[i] + 1);
            rule->z[side * N + i] = z;
            sum += rule->w[side * N + i] = 0.5 * (hi - lo) * gw[i] * exp(-0.5 * z * z);
        }
    }
    for (int i = 0; i < SND_GAUSS_NODES; i++) rule->w[i] /= sum;
    fill_hermite(rule);
}

double snd_gauss_mean(const snd_gauss_rule *rule, const double *f) {
    double s = 0;
    for (int i = 0; i < SND_GAUSS_NODES; i++) s += rule->w[i] * f[i];
    return s;
}

double snd_gauss_inner(const snd_gauss_rule *rule, const double *f, const double *h) {
    double s = 0;
    for (int i = 0; i < SND_GAUSS_NODES; i++) s += rule->w[i] * f[i] * h[i];
    return s;
}

void snd_gauss_series(const snd_gauss_rule *rule, const double *f, double *a) {
    for (int k = 0; k < SND_HERMITE_TERMS; k++) a[k] = 0;
    for (int i = 0; i < SND_GAUSS_NODES; i++)
        for (int k = 0; k < SND_HERMITE_TERMS; k++) a[k] += rule->he[i][k] * f[i];
}

// 3/2 E_{5/2}(tau): the mean of exp(-tau u) under the weight u^{-5/2} on [1, inf).
static double kink_tail(double tau) {
    if (!(tau > 0)) return 1;
    if (tau > 50) return 0;
    const double e = exp(-tau), half = sqrt(PI / tau) * erfc(sqrt(tau));
    const double three = (e - tau * half) / 0.5;
    return e - tau * three;
}

double snd_gauss_mehler(const double *a, const double *b, double rho, double full) {
    if (rho > 1) rho = 1;
    if (rho < -1) rho = -1;
    double s = 0, kept = 0, r = 1;
    for (int k = 0; k < SND_HERMITE_TERMS; k++) {
        s += r * a[k] * b[k];
        kept += a[k] * b[k];
        r *= rho;
    }
    if (isnan(full) || rho == 0) return s;
    const double tail = full - kept;
    if (rho > 0) return s + tail * kink_tail(-(SND_HERMITE_TERMS - 0.5) * log(rho));
    return s; // odd and even tail terms cancel to leading order
}

double snd_gauss_relu_pair(double rho) {
    if (rho >= 1) return 0.5;
    if (rho <= -1) return 0;
    return (sqrt((1 - rho) * (1 + rho)) + rho * (PI - acos(rho))) / (2 * PI);
}

double snd_gauss_step_pair(double rho) {
    if (rho >= 1) return 0.5;
    if (rho <= -1) return 0;
    return (PI - acos(rho)) / (2 * PI);
}
