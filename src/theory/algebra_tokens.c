// The algebra of tokens as a table of operations.
#include "theory/algebra.h"

static bool failed(const void *t) {
    return snd_tokens_failed(t);
}
static snd_mid constant(void *t, double v) {
    return snd_tk_const(t, v);
}
static snd_mid shared(void *t, int64_t dim, double q) {
    return snd_tk_input(t, dim, (snd_tk_rows){q, q, q, q}, true);
}
static snd_mid example(void *t, int64_t dim, double q) {
    return snd_tk_input(t, dim, (snd_tk_rows){.same = q, .other = q}, true);
}
static snd_mid linear(void *t, snd_mid x, int64_t fan_in, int64_t out, double var) {
    return snd_tk_linear(t, x, fan_in, out, var);
}
static snd_mid sum(void *t, int n, const snd_mid *id, const double *coef, double c0) {
    return snd_tk_sum(t, n, id, coef, c0);
}
static snd_mid mul(void *t, snd_mid a, snd_mid b) {
    return snd_tk_mul(t, a, b);
}
static snd_mid unary(void *t, snd_gfn fn, snd_mid a) {
    return snd_tk_unary(t, fn, a);
}
static snd_mid layer_norm(void *t, snd_mid x, double eps) {
    return snd_tk_layer_norm(t, x, eps);
}
static snd_mid rms_norm(void *t, snd_mid x, double eps) {
    return snd_tk_rms_norm(t, x, eps);
}
static snd_mid batch_norm(void *t, snd_mid x, double eps) {
    return snd_tk_batch_norm(t, x, eps);
}
static snd_mid dot(void *t, snd_mid a, snd_mid b) {
    return snd_tk_dot(t, a, b);
}
static snd_mid rms(void *t, snd_mid a) {
    return snd_tk_rms(t, a);
}
static snd_mid stop(void *t, snd_mid a) {
    return snd_tk_stop(t, a);
}
static snd_mid alias(void *t, snd_mid a) {
    return snd_tk_sum(t, 1, &a, (double[]){1}, 0);
}
static void boundary(void *t) {
    (void)t;
}

// ---- answers --------------------------------------------------------------------------------------------------------------

static bool approx(const void *t, snd_mid a) {
    return snd_tk_approx(t, a);
}
static double mean(void *t, snd_mid a) {
    return snd_tk_mean(t, a);
}
static double log10_q(void *t, snd_mid a) {
    return snd_tk_log10_q(t, a);
}

static double log10_var(void *t, snd_mid a) {
    return snd_tk_log10_var(t, a);
}
static double log10_bvar(void *t, snd_mid a) {
    return snd_tk_log10_bvar(t, a);
}
static double cosine(void *t, snd_mid a, bool centred) {
    return snd_tk_cos(t, a, centred);
}
static double tokcos(void *t, snd_mid a) {
    return snd_tk_tokcos(t, a);
}
static double align(void *t, snd_mid a, snd_mid b) {
    return snd_tk_align(t, a, b);
}
static double log10_ratio(void *t, snd_mid a, snd_mid b) {
    return snd_tk_log10_ratio(t, a, b);
}
static void backward(void *t, snd_mid out) {
    snd_tk_backward(t, out);
}
static bool reached(const void *t, snd_mid a) {
    return snd_tk_reached(t, a);
}
static double log10_gq(void *t, snd_mid a) {
    return snd_tk_log10_gq(t, a);
}

static double log10_gtok(void *t, snd_mid a) {
    return snd_tk_log10_gtok(t, a);
}

// Bands come from networks of finite width (snd_tokens_create_net).
static void spread(void *t, const snd_mid *want, int n) {
    (void)t;
    (void)want;
    (void)n;
}
static void grad_spread(void *t, snd_mid out, const snd_mid *want, int n) {
    (void)out;
    spread(t, want, n);
}
static bool log_law(void *t, snd_mid a, double rows, snd_log_law *law) {
    (void)t;
    (void)a;
    (void)rows;
    (void)law;
    return false;
}
static bool mean_var(void *t, snd_mid a, double rows, double *var) {
    (void)t;
    (void)a;
    (void)rows;
    (void)var;
    return false;
}

snd_algebra snd_algebra_tokens(snd_tokens *t) {
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
                         .log10_gtok = log10_gtok,
                         .spread = spread,
                         .grad_spread = grad_spread,
                         .log_q_law = log_law,
                         .mean_var = mean_var,
                         .log_gq_law = log_law};
}
