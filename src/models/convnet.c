// The convnet family: images -> stack -> pooled features -> head. Convolutions, stages and pooling are the wiring's business.
#include "models/models.h"

sonde_status snd_convnet_begin(const snd_nn *m, snd_id input, snd_id *x) {
    *x = snd_g_channels_last(m->g, input);
    return SONDE_OK;
}

sonde_status snd_convnet_head(const snd_nn *m, snd_id out_x, snd_id *logits) {
    const snd_spec *s = m->spec;
    *logits = 0;
    if (s->outputs <= 0 || !out_x) return SONDE_OK;
    const snd_shape x = snd_shape_of(m->g, out_x);
    SND_FAIL_IF(x.dim[1] != 1 || x.dim[2] != 1, SONDE_ESHAPE,
                "out.x is a map of %lld x %lld places; the head reads pooled features (out: x = pool(x))",
                (long long)x.dim[1], (long long)x.dim[2]);
    const snd_id rows = snd_g_reshape(m->g, out_x, SND_SHAPE(x.dim[0], x.dim[3]));
    return snd_nn_linear(m, "head", "head", NULL, rows, x.dim[3], s->outputs, -1, false, false, logits);
}
