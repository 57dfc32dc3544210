// Elementary functions of one value and their derivatives, shared by every loop: no table look-ups, no branches on
// data where it matters for vectorising, no fused multiply-add. f32 and f64 forms.
#ifndef SND_KERNELS_MATHS_H
#define SND_KERNELS_MATHS_H

#include "kernels/kernels.h"
#include <math.h>

#define SND_EACH_FN(X)                                                                                                 \
    X(SND_KFN_RELU)                                                                                                    \
    X(SND_KFN_GELU)                                                                                                    \
    X(SND_KFN_GELU_TANH)                                                                                               \
    X(SND_KFN_SILU)                                                                                                    \
    X(SND_KFN_TANH)                                                                                                    \
    X(SND_KFN_SIGMOID)                                                                                                 \
    X(SND_KFN_ERF)                                                                                                     \
    X(SND_KFN_EXP)                                                                                                     \
    X(SND_KFN_SOFTPLUS)                                                                                                \
    X(SND_KFN_SQRT)                                                                                                    \
    X(SND_KFN_LOG)                                                                                                     \
    X(SND_KFN_ABS)

enum { SND_LANES = 16, SND_SUMBLOCK = 512 };

#define SND_SQRT1_2 0.70710678118654752440
#define SND_INV_SQRT_2PI 0.39894228040143267794
#define SND_2_SQRTPI 1.12837916709551257390
#define SND_SQRT_2_PI 0.79788456080286535588

static inline double snd_m_sigmoid(double x) {
    const double e = exp(-fabs(x));
    return x >= 0 ? 1 / (1 + e) : x < 0 ? e / (1 + e) : x + 0.5;
}
// x*Phi(x); erfc keeps the left tail's relative accuracy. At -Inf the limit is 0.
static inline double snd_m_gelu(double x) { return x == -INFINITY ? -0.0 : 0.5 * x * erfc(-x * SND_SQRT1_2); }
static inline double snd_m_gelu_tanh(double x) {
    const double v = 2 * SND_SQRT_2_PI * (x + 0.044715 * x * x * x);
    return x == -INFINITY ? -0.0 : x * snd_m_sigmoid(v);  // 0.5*(1 + tanh(u)) = sigmoid(2u)
}
static inline double snd_m_softplus(double x) { return (x > 0 ? x : x <= 0 ? 0 : x) + log1p(exp(-fabs(x))); }

static inline double fn_value_f64(snd_kfn f, double x) {
    switch (f) {
    case SND_KFN_RELU: return x > 0 ? x : x <= 0 ? 0 : x;
    case SND_KFN_GELU: return snd_m_gelu(x);
    case SND_KFN_GELU_TANH: return snd_m_gelu_tanh(x);
    case SND_KFN_SILU: return x == -INFINITY ? -0.0 : x * snd_m_sigmoid(x);
    case SND_KFN_TANH: return tanh(x);
    case SND_KFN_SIGMOID: return snd_m_sigmoid(x);
    case SND_KFN_ERF: return erf(x);
    case SND_KFN_EXP: return exp(x);
    case SND_KFN_SOFTPLUS: return snd_m_softplus(x);
    case SND_KFN_SQRT: return sqrt(x);
    case SND_KFN_LOG: return log(x);
    case SND_KFN_ABS: return fabs(x);
    default: return x;
    }
}

static inline double snd_m_gelu_grad(double x) {
    if (isinf(x)) return x > 0;
    return 0.5 * erfc(-x * SND_SQRT1_2) + x * SND_INV_SQRT_2PI * exp(-0.5 * x * x);
}
// With p = sigmoid(v): (x p)' = p + x p (1-p) v'.
static inline double snd_m_gelu_tanh_grad(double x) {
    if (fabs(x) > 1e3) return x > 0;
    const double v = 2 * SND_SQRT_2_PI * (x + 0.044715 * x * x * x), dv = 2 * SND_SQRT_2_PI * (1 + 3 * 0.044715 * x * x);
    return snd_m_sigmoid(v) + x * snd_m_sigmoid(v) * snd_m_sigmoid(-v) * dv;
}
static inline double snd_m_silu_grad(double x) {
    if (isinf(x)) return x > 0;
    return snd_m_sigmoid(x) * (1 + x * snd_m_sigmoid(-x));
}

static inline double fn_grad_f64(snd_kfn f, double x) {
    switch (f) {
    case SND_KFN_RELU: return x > 0 ? 1 : x <= 0 ? 0 : x;
    case SND_KFN_GELU: return snd_m_gelu_grad(x);
    case SND_KFN_GELU_TANH: return snd_m_gelu_tanh_grad(x);
    case SND_KFN_SILU: return snd_m_silu_grad(x);
    case SND_KFN_TANH: return 4 * snd_m_sigmoid(2 * x) * snd_m_sigmoid(-2 * x);
    case SND_KFN_SIGMOID: return snd_m_sigmoid(x) * snd_m_sigmoid(-x);
    case SND_KFN_ERF: return SND_2_SQRTPI * exp(-x * x);
    case SND_KFN_EXP: return exp(x);
    case SND_KFN_SOFTPLUS: return snd_m_sigmoid(x);
    case SND_KFN_SQRT: return 0.5 / sqrt(x);
    case SND_KFN_LOG: return 1 / x;
    case SND_KFN_ABS: return x > 0 ? 1 : x < 0 ? -1 : x == 0 ? 0 : x;
    default: return 1;
    }
}

static inline float fn_value_f32(snd_kfn f, float x) { return (float)fn_value_f64(f, (double)x); }
static inline float fn_grad_f32(snd_kfn f, float x) { return (float)fn_grad_f64(f, (double)x); }

#endif
