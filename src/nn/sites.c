// Norm sites and learned maps: parameters by their contract names (formulas.md section 7), initial values, nodes.
#include "nn/nn.h"

#include <math.h>

static const char *part(const snd_nn *m, const char *site, const char *name) {
    return snd_arena_printf(snd_graph_arena(m->g), "%s.%s", site, name);
}

// One tensor per name: with several exits, the sites of out: stand in the graph several times and share theirs.
snd_id snd_nn_param(snd_graph *g, const char *name, snd_shape shape, const snd_init *init, bool is_state) {
    const snd_id old = snd_g_find(g, name);
    if (old) return old;
    return is_state ? snd_g_state(g, name, shape, init) : snd_g_param(g, name, shape, init);
}

static sonde_status param(const snd_nn *m, const char *site, const char *name, const char *role, int64_t n, double v,
                          snd_id *out) {
    const char *full = part(m, site, name);
    if (!full) return SONDE_ENOMEM;
    snd_init init;
    SND_TRY(snd_nn_init_value(m, role, v, &init));
    *out = 0;
    // integrated nets have no learning in sight: a gain of 1 or a bias of 0 does nothing
    const double neutral = *role == 'g' ? 1 : 0;
    if (m->integrate && (*role == 'g' || *role == 'b') && n > 1 && init.kind == SND_INIT_CONST &&
        init.a * init.factor == neutral)
        return SONDE_OK;
    *out = snd_nn_param(m->g, full, SND_SHAPE(n), &init, false);
    return SONDE_OK;
}

static sonde_status state(const snd_nn *m, const char *site, const char *name, int64_t n, double v, snd_id *out) {
    const char *full = part(m, site, name);
    if (!full) return SONDE_ENOMEM;
    const snd_init init = {.kind = SND_INIT_CONST, .a = v, .factor = 1};
    *out = snd_nn_param(m->g, full, SND_SHAPE(n), &init, true);
    return SONDE_OK;
}

static sonde_status extra(const snd_nn *m, const char *site, const char *name, snd_id v) {
    if (!m->extra) return SONDE_OK;
    const char *full = part(m, site, name);
    return full ? m->extra(m->ctx, full, v) : SONDE_ENOMEM;
}

static sonde_status batch(const snd_nn *m, const char *site, const snd_norm_args *n, snd_id x, int64_t d, snd_id g,
                          snd_id b, snd_id *out) {
    snd_id mean = 0, var = 0, new_mean = 0, new_var = 0;
    const bool plus1 = n->affine && n->plus1 && g;
    if (m->integrate) {
        *out = snd_g_batchnorm(m->g, x, g, b, n->eps, plus1, 0, 0, 0.1, NULL, NULL);
        return SONDE_OK;
    }
    SND_TRY(state(m, site, "running_mean", d, 0, &mean));
    SND_TRY(state(m, site, "running_var", d, 1, &var));
    if (m->eval) {
        *out = snd_g_batchnorm_eval(m->g, x, g, b, n->eps, plus1, mean, var);
        return SONDE_OK;
    }
    *out = m->lengths ? snd_g_batchnorm_part(m->g, x, m->lengths, g, b, n->eps, plus1, mean, var, SND_BATCH_SHARE,
                                             &new_mean, &new_var)
                      : snd_g_batchnorm(m->g, x, g, b, n->eps, plus1, mean, var, SND_BATCH_SHARE, &new_mean, &new_var);
    SND_TRY(extra(m, site, "running_mean", new_mean));
    return extra(m, site, "running_var", new_var);
}

static sonde_status dyt(const snd_nn *m, const char *site, const snd_norm_args *n, snd_id x, int64_t d, snd_id g,
                        snd_id b, snd_id *out) {
    snd_id alpha, shift = 0;
    (void)d;
    SND_TRY(param(m, site, "alpha", "alpha", 1, 0.5, &alpha));
    if (n->kind == SND_NORM_DERF) SND_TRY(param(m, site, "shift", "shift", 1, 0, &shift));
    snd_id y = snd_g_mul(m->g, x, alpha);
    if (shift) y = snd_g_add(m->g, y, shift);
    y = snd_g_unary(m->g, shift ? SND_KFN_ERF : SND_KFN_TANH, y);
    if (g) y = snd_g_mul(m->g, y, n->plus1 ? snd_g_affine(m->g, 1, g, 1) : g);
    *out = b ? snd_g_add(m->g, y, b) : y;
    return SONDE_OK;
}

sonde_status snd_nn_norm(const snd_nn *m, const char *site, const snd_norm_args *n, snd_id x, int64_t d, snd_id *out) {
    snd_id g = 0, b = 0;
    const bool scale = n->kind == SND_NORM_SCALE, plus1 = n->plus1 && !scale;
    double gain = n->has_gain ? n->gain : scale ? sqrt((double)d) : 1;
    if (n->kind == SND_NORM_NONE) {
        *out = snd_g_alias(m->g, x);
        return SONDE_OK;
    }
    // an integrated net leaves out weights that are neutral; with plus1 the stored start is gain - 1
    if (n->affine && !(m->integrate && plus1 && gain == 1))
        SND_TRY(param(m, site, "weight", "g", scale ? 1 : d, plus1 ? gain - 1 : gain, &g));
    const bool has_bias =
        n->kind == SND_NORM_LAYER || n->kind == SND_NORM_BATCH || n->kind == SND_NORM_DYT || n->kind == SND_NORM_DERF;
    if (n->affine && n->bias && has_bias) SND_TRY(param(m, site, "bias", "b", d, 0, &b));
    switch (n->kind) {
    case SND_NORM_LAYER: *out = snd_g_layernorm(m->g, x, g, b, n->eps, plus1 && g); return SONDE_OK;
    case SND_NORM_RMS: *out = snd_g_rmsnorm(m->g, x, g, b, n->eps, plus1 && g); return SONDE_OK;
    case SND_NORM_BATCH: return batch(m, site, n, x, d, g, b, out);
    case SND_NORM_SCALE:
        *out = snd_g_unit(m->g, x, n->affine ? 1 : sqrt((double)d));
        if (n->affine && g) *out = snd_g_mul(m->g, *out, g);
        return SONDE_OK;
    case SND_NORM_DYT:
    case SND_NORM_DERF: return dyt(m, site, n, x, d, g, b, out);
    default: SND_FAIL(SONDE_EINTERNAL, "%s: a norm without a kind", site);
    }
}

sonde_status snd_nn_linear(const snd_nn *m, const char *site, const char *role, const char *alt, snd_id x, int64_t in,
                           int64_t out_features, double gain, bool zero, bool bias, snd_id *out) {
    snd_init init;
    SND_TRY(snd_nn_init_map(m, role, alt, in, out_features, gain, zero, &init));
    if (m->integrate && init.kind != SND_INIT_CONST) {
        *out = snd_g_glinear(m->g, x, out_features, snd_nn_init_var(&init));
    } else {
        const char *name = part(m, site, "weight");
        if (!name) return SONDE_ENOMEM;
        *out = snd_g_linear(m->g, x, snd_nn_param(m->g, name, SND_SHAPE(out_features, in), &init, false));
    }
    if (!bias) return SONDE_OK;
    snd_id b;
    SND_TRY(param(m, site, "bias", "b", out_features, 0, &b));
    if (b) *out = snd_g_add(m->g, *out, b);
    return SONDE_OK;
}

sonde_status snd_nn_conv(const snd_nn *m, const char *site, const char *role, snd_id x, int64_t in, int64_t channels,
                         int64_t k, int64_t stride, snd_id *out) {
    snd_init init;
    const char *name = part(m, site, "weight");
    if (!name) return SONDE_ENOMEM;
    SND_TRY(snd_nn_init_map(m, role, NULL, in * k * k, channels * k * k, -1, false, &init));
    const snd_id w = snd_nn_param(m->g, name, SND_SHAPE(channels, in, k, k), &init, false);
    *out = snd_g_conv(m->g, x, w, stride);
    return SONDE_OK;
}

snd_kfn snd_nn_kfn(snd_fn f) {
    static const snd_kfn KFN[SND_FN_COUNT] = {
        [SND_FN_RELU] = SND_KFN_RELU, [SND_FN_GELU] = SND_KFN_GELU, [SND_FN_GELU_TANH] = SND_KFN_GELU_TANH,
        [SND_FN_SILU] = SND_KFN_SILU, [SND_FN_TANH] = SND_KFN_TANH, [SND_FN_SIGMOID] = SND_KFN_SIGMOID,
        [SND_FN_ERF] = SND_KFN_ERF,   [SND_FN_EXP] = SND_KFN_EXP,   [SND_FN_SOFTPLUS] = SND_KFN_SOFTPLUS,
        [SND_FN_SQRT] = SND_KFN_SQRT, [SND_FN_LOG] = SND_KFN_LOG,   [SND_FN_ABS] = SND_KFN_ABS};
    return KFN[f];
}
