// The mlp family: stem -> stack -> head. The layers themselves are the wiring's business.
#include "models/models.h"

sonde_status snd_mlp_begin(const snd_nn *m, snd_id input, snd_id *x) {
    const snd_spec *s = m->spec;
    *x = input;
    if (s->inputs <= 0) return SONDE_OK;
    return snd_nn_linear(m, "stem", "stem", NULL, input, s->inputs, s->width, -1, false, false, x);
}

sonde_status snd_mlp_head(const snd_nn *m, snd_id out_x, snd_id *logits) {
    const snd_spec *s = m->spec;
    *logits = 0;
    if (s->outputs <= 0) return SONDE_OK;
    // the head is never integrated out: its gradient is asked for by name, and it is one matrix
    snd_nn head = *m;
    head.integrate = false;
    SND_TRY(snd_nn_linear(&head, "head", "head", NULL, out_x, s->width, s->outputs, -1, false, false, logits));
    return SONDE_OK;
}
