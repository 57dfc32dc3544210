// Weights from a file into graphs: checked against the spec's parameters, then mapped or copied.
#include "lab/weights.h"

sonde_status snd_weights_check(const snd_stfile *f, const snd_graph *g) {
    const char *path = snd_st_path(f);
    char s[160], sw[160];
    for (int i = 0; i < snd_g_param_count(g); i++) {
        const snd_value *v = snd_g_value(g, snd_g_param_at(g, i));
        const snd_tensor *t = snd_st_find(f, v->name);
        SND_FAIL_IF(!t, SONDE_EINPUT, "%s: tensor %s %s is missing", path, v->name, snd_shape_text(v->shape, sw));
        SND_FAIL_IF(!snd_shape_same(t->shape, v->shape), SONDE_ESHAPE, "%s: tensor %s has shape %s; the model needs %s",
                    path, v->name, snd_shape_text(t->shape, s), snd_shape_text(v->shape, sw));
        SND_FAIL_IF(t->dtype > SND_F16, SONDE_ETYPE, "%s: %s is %s; floating point is needed", path, t->name,
                    snd_dtype_name(t->dtype));
    }
    for (int64_t i = 0; i < snd_st_count(f); i++) {
        const char *name = snd_st_at(f, i)->name;
        const snd_id v = snd_g_find(g, name);
        char shown[72];
        SND_FAIL_IF(!v || snd_g_value(g, v)->role != SND_R_PARAM, SONDE_EINPUT,
                    "%s: tensor %s is no parameter of this model", path, snd_shown(shown, name));
    }
    return SONDE_OK;
}

sonde_status snd_weights_fill(const snd_stfile *f, const snd_graph *g, bool borrow, snd_source *s) {
    for (int pass = 0; pass < 2; pass++) // what is borrowed first: copies then know how many they are
        for (int i = 0; i < snd_g_param_count(g); i++) {
            const snd_value *v = snd_g_value(g, snd_g_param_at(g, i));
            const snd_tensor *t = snd_st_find(f, v->name);
            const bool as_it_is = borrow && t->dtype == v->dtype;
            void *data;
            if (as_it_is && pass == 0) snd_source_borrow(s, g, i, t->data);
            if (as_it_is || pass == 0) continue;
            SND_TRY(snd_source_data(s, g, i, &data));
            snd_convert(t->data, t->dtype, data, v->dtype, snd_shape_size(v->shape));
        }
    return SONDE_OK;
}

static sonde_status open_net(snd_arena *a, const char *weights, uint64_t seed, snd_weights *n) {
    snd_model *m;
    const snd_build b = {.dtype = n->dtype, .rows = 1, .eval = true};
    SND_TRY(snd_model_build(a, n->spec, &b, &m));
    n->g = m->g;
    SND_TRY(snd_source_resident(m->g, seed, n->threads, &n->source));
    if (!weights) return SONDE_OK;
    SND_TRY(snd_st_open(weights, &n->file));
    SND_TRY(snd_weights_check(n->file, m->g));
    return snd_weights_fill(n->file, m->g, true, &n->source);
}

sonde_status snd_weights_open(snd_arena *a, const snd_spec *spec, const char *weights, snd_dtype dtype, uint64_t seed,
                              int threads, snd_weights *out) {
    const bool bf16 = dtype == SND_BF16;
    *out = (snd_weights){
        .spec = spec, .dtype = bf16 ? SND_F32 : dtype, .products = bf16 ? SND_BF16 : SND_DT_NONE, .threads = threads};
    const sonde_status s = open_net(a, weights, seed, out);
    if (s != SONDE_OK) snd_weights_close(out);
    return s;
}

void snd_weights_close(snd_weights *n) {
    snd_source_close(&n->source);
    snd_st_close(n->file);
    n->file = NULL;
}

size_t snd_weights_bytes(const snd_weights *n) {
    size_t bytes = 0;
    for (int i = 0; i < snd_g_param_count(n->g); i++)
        bytes += (size_t)snd_shape_size(snd_g_value(n->g, snd_g_param_at(n->g, i))->shape) * snd_dtype_size(n->dtype);
    return bytes;
}
