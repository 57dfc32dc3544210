// Names of functions and norms, and arithmetic of constants: what is folded before anything runs.
#include "formula/inner.h"

#include <math.h>
#include <string.h>

static const char *const FN_NAMES[SND_FN_COUNT] = {[SND_FN_NONE] = "",           [SND_FN_RELU] = "relu",
                                                   [SND_FN_GELU] = "gelu",       [SND_FN_GELU_TANH] = "gelu_tanh",
                                                   [SND_FN_SILU] = "silu",       [SND_FN_TANH] = "tanh",
                                                   [SND_FN_SIGMOID] = "sigmoid", [SND_FN_ERF] = "erf",
                                                   [SND_FN_EXP] = "exp",         [SND_FN_SOFTPLUS] = "softplus",
                                                   [SND_FN_SQRT] = "sqrt",       [SND_FN_LOG] = "log",
                                                   [SND_FN_ABS] = "abs",         [SND_FN_NEG] = "neg"};

const char *snd_fn_name(snd_fn f) {
    return FN_NAMES[f];
}

snd_fn snd_fn_find(const char *name, size_t n) {
    for (int f = SND_FN_RELU; f < SND_FN_NEG; f++)
        if (strlen(FN_NAMES[f]) == n && !memcmp(FN_NAMES[f], name, n)) return (snd_fn)f;
    return SND_FN_NONE;
}

static const char *const NORM_NAMES[] = {"", "layer", "rms", "batch", "scale", "dyt", "derf", "none"};

const char *snd_norm_name(snd_norm_kind k) {
    return NORM_NAMES[k];
}

snd_norm_kind snd_norm_find(const char *name) {
    for (int k = SND_NORM_LAYER; k <= SND_NORM_NONE; k++)
        if (!strcmp(name, NORM_NAMES[k])) return (snd_norm_kind)k;
    return SND_NORM_INVALID;
}

double snd_fn_apply(snd_fn f, double x) {
    switch (f) {
    case SND_FN_RELU: return x > 0 ? x : x != x ? x : 0;
    case SND_FN_GELU: return 0.5 * x * erfc(-x * M_SQRT1_2);
    case SND_FN_GELU_TANH: return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case SND_FN_SILU: return x / (1 + exp(-x));
    case SND_FN_TANH: return tanh(x);
    case SND_FN_SIGMOID: return 1 / (1 + exp(-x));
    case SND_FN_ERF: return erf(x);
    case SND_FN_EXP: return exp(x);
    case SND_FN_SOFTPLUS: return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
    case SND_FN_SQRT: return sqrt(x);
    case SND_FN_LOG: return log(x);
    case SND_FN_ABS: return fabs(x);
    case SND_FN_NEG: return -x;
    default: return NAN;
    }
}

double snd_const_binary(char op, double a, double b) {
    switch (op) {
    case '+': return a + b;
    case '-': return a - b;
    case '*': return a * b;
    case '/': return a / b;
    case '^': return pow(a, b);
    case '%': return fmod(a, b) + (fmod(a, b) * b < 0 ? b : 0); // the sign of the divisor: -1 % 3 is 2
    case '<': return a < b;
    case '>': return a > b;
    case 'l': return a <= b;
    case 'g': return a >= b;
    case 'e': return a == b;
    case 'n': return a != b;
    default: return NAN;
    }
}

bool snd_const_call(const char *name, const double *args, int n, double *out) {
    const snd_fn f = snd_fn_find(name, strlen(name));
    if (f != SND_FN_NONE && n == 1) {
        *out = snd_fn_apply(f, args[0]);
        return true;
    }
    if (!strcmp(name, "floor") && n == 1) {
        *out = floor(args[0]);
        return true;
    }
    const bool is_min = !strcmp(name, "min"), is_max = !strcmp(name, "max");
    if ((!is_min && !is_max) || n < 2) return false;
    *out = args[0];
    for (int i = 1; i < n; i++) *out = is_min ? fmin(*out, args[i]) : fmax(*out, args[i]);
    return true;
}

static sonde_status const_name(const snd_expr *x, const snd_const *env, int n_env, double *out) {
    for (int i = 0; i < n_env; i++)
        if (!strcmp(env[i].name, x->name)) {
            *out = env[i].v;
            return SONDE_OK;
        }
    if (!strcmp(x->name, "pi"))
        *out = M_PI;
    else if (!strcmp(x->name, "e"))
        *out = M_E;
    else
        SND_FAIL(SONDE_ENAME, "line %d, column %d: '%s' is not a constant here", x->line, x->col, x->name);
    return SONDE_OK;
}

static sonde_status const_call(const snd_expr *x, const snd_const *env, int n_env, double *out) {
    double v[32];
    SND_FAIL_IF(x->n_args != x->n_pos || x->n_args > 32, SONDE_ETYPE, "line %d, column %d: %s takes no such arguments",
                x->line, x->col, x->name);
    for (int i = 0; i < x->n_args; i++) SND_TRY(snd_expr_const(x->args[i].x, env, n_env, &v[i]));
    SND_FAIL_IF(!snd_const_call(x->name, v, x->n_args, out), SONDE_ENAME,
                "line %d, column %d: '%s' of %d arguments is not a function of constants", x->line, x->col, x->name,
                x->n_args);
    return SONDE_OK;
}

sonde_status snd_expr_const(const snd_expr *x, const snd_const *env, int n_env, double *out) {
    double a, b;
    switch (x->kind) {
    case SND_X_NUM: *out = x->num; return SONDE_OK;
    case SND_X_NAME: return const_name(x, env, n_env, out);
    case SND_X_CALL: return const_call(x, env, n_env, out);
    case SND_X_NEG:
        SND_TRY(snd_expr_const(x->a, env, n_env, &a));
        *out = -a;
        return SONDE_OK;
    case SND_X_BIN:
        SND_TRY(snd_expr_const(x->a, env, n_env, &a));
        SND_TRY(snd_expr_const(x->b, env, n_env, &b));
        *out = snd_const_binary(x->op, a, b);
        return SONDE_OK;
    case SND_X_COND:
        SND_TRY(snd_expr_const(x->a, env, n_env, &a));
        return snd_expr_const(a != 0 ? x->b : x->c, env, n_env, out);
    default: SND_FAIL(SONDE_EINTERNAL, "an expression node without a kind");
    }
}
