// The algebra of examples as a table of operations.
#include "theory/algebra.h"

#include <math.h>

static bool failed(const void *t) {
    return snd_moments_failed(t);
}
static snd_mid constant(void *t, double v) {
    return snd_m_const(t, v);
}
static snd_mid shared(void *t, int64_t dim, double q) {
    return snd_m_input(t, dim, q, 1);
}
static snd_mid example(void *t, int64_t dim, double q) {
    return snd_m_input(t, dim, q, 0);
}
static snd_mid linear(void *t, snd_mid x, int64_t fan_in, int64_t out, double var) {
    return snd_m_linear(t, x, fan_in, out, var);
}
static snd_mid sum(void *t, int n, const snd_mid *id, const double *coef, double c0) {
    return snd_m_sum(t, n, id, coef, c0);
}
static snd_mid mul(void *t, snd_mid a, snd_mid b) {
    return snd_m_mul(t, a, b);
}
static snd_mid unary(void *t, snd_gfn fn, snd_mid a) {
    return snd_m_unary(t, fn, a);
}
static snd_mid layer_norm(void *t, snd_mid x, double eps) {
    return snd_m_layer_norm(t, x, eps);
}
static snd_mid rms_norm(void *t, snd_mid x, double eps) {
    return snd_m_rms_norm(t, x, eps);
}
static snd_mid batch_norm(void *t, snd_mid x, double eps) {
    return snd_m_batch_norm(t, x, eps);
}
static snd_mid dot(void *t, snd_mid a, snd_mid b) {
    return snd_m_dot(t, a, b);
}
static snd_mid rms(void *t, snd_mid a) {
    return snd_m_rms(t, a);
}
static snd_mid stop(void *t, snd_mid a) {
    return snd_m_stop(t, a);
}
static snd_mid alias(void *t, snd_mid a) {
    return snd_m_alias(t, a);
}
static void boundary(void *t) {
    snd_m_boundary(t);
}

// ---- answers --------------------------------------------------------------------------------------------------------------

static bool approx(const void *t, snd_mid a) {
    return snd_m_approx(t, a);
}
static double mean(void *t, snd_mid a) {
    return snd_m_mean(t, a);
}
static double log10_q(void *t, snd_mid a) {
    return snd_m_log10_q(t, a);
}

static double log10_positive(double v) {
    return v > 0 ? log10(v) : v <= 0 ? -INFINITY : NAN;
}

static double log10_var(void *t, snd_mid a) {
    const double q = snd_m_log10_q(t, a), m = snd_m_mean_ratio(t, a);
    return q > -INFINITY ? q + log10_positive(1 - m * m) : q;
}

static double log10_bvar(void *t, snd_mid a) {
    const double q = snd_m_log10_q(t, a), c = snd_m_cos(t, a);
    if (!(q > -INFINITY)) return q;
    if (!(1 - c > 1e-13)) return NAN; // what is left of 1 - c is rounding
    return q + log10_positive((1 - c) * (1 - 1 / (double)snd_m_batch(t)));
}

static double cosine(void *t, snd_mid a, bool centred) {
    const double m = centred ? snd_m_mean_ratio(t, a) : 0;
    return (snd_m_cos(t, a) - m * m) / (1 - m * m);
}
static double tokcos(void *t, snd_mid a) {
    (void)t;
    (void)a;
    return NAN;
}
static double align(void *t, snd_mid a, snd_mid b) {
    return snd_m_align(t, a, b);
}
static double log10_ratio(void *t, snd_mid a, snd_mid b) {
    return (snd_m_log10_q(t, a) - snd_m_log10_q(t, b)) / 2;
}
static void backward(void *t, snd_mid out) {
    snd_m_backward(t, out);
}
static bool reached(const void *t, snd_mid a) {
    return snd_m_reached(t, a);
}
static double log10_gq(void *t, snd_mid a) {
    return snd_m_log10_gq(t, a);
}

static void spread(void *t, const snd_mid *want, int n) {
    snd_m_spread(t, want, n);
}
static void grad_spread(void *t, snd_mid out, const snd_mid *want, int n) {
    snd_m_grad_spread(t, out, want, n);
}
// log q is close to normal with mean -V/2
static bool log_q_law(void *t, snd_mid a, double rows, snd_log_law *law) {
    double var;
    if (!snd_m_log_q_var(t, a, rows, &var)) return false;
    *law = (snd_log_law){.var = var, .shift = -var / 2};
    return true;
}
static bool log_gq_law(void *t, snd_mid a, double rows, snd_log_law *law) {
    double var;
    if (!snd_m_log_gq_var(t, a, rows, &var)) return false;
    *law = (snd_log_law){.var = var, .shift = -var / 2};
    return true;
}
static bool mean_var(void *t, snd_mid a, double rows, double *var) {
    return snd_m_mean_var(t, a, rows, var);
}

snd_algebra snd_algebra_moments(snd_moments *t) {
    return (snd_algebra){.self = t,
                         .failed = failed,
                         .constant = constant,
                         .shared = shared,
                         .example = example,
                         .linear = linear,
                         .sum = sum,
                         .mul = mul,
                         .unary = unary,
                         .layer_norm = layer_norm,
                         .rms_norm = rms_norm,
                         .batch_norm = batch_norm,
                         .dot = dot,
                         .rms = rms,
                         .stop = stop,
                         .alias = alias,
                         .boundary = boundary,
                         .approx = approx,
                         .mean = mean,
                         .log10_q = log10_q,
                         .log10_var = log10_var,
                         .log10_bvar = log10_bvar,
                         .cos = cosine,
                         .tokcos = tokcos,
                         .align = align,
                         .log10_ratio = log10_ratio,
                         .backward = backward,
                         .reached = reached,
                         .log10_gq = log10_gq,
                         .log10_gtok = tokcos,
                         .spread = spread,
                         .grad_spread = grad_spread,
                         .log_q_law = log_q_law,
                         .mean_var = mean_var,
                         .log_gq_law = log_gq_law};
}
