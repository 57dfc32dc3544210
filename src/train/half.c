// Training in f16, emulated: the copy of the weights that the nets read, and the loss scale. The weights themselves, moments
// and running averages stay f32; results are rounded by the executor (snd_graph_store).
// A dynamic scale (Micikevicius et al. 2018, section 3.2; the constants are those of torch.cuda.amp.GradScaler): a gradient
// that overflows costs its step and halves the scale; after so many good steps it is doubled. It never falls below 1: what
// overflows there is no matter of scale.
#include "train/inner.h"

#include <math.h>
#include <string.h>

static const double START = 65536, LEAST = 1, MOST = 0x1p40;

void snd_scale_start(snd_trainer *t) {
    t->dynamic = t->stored && !strcmp(t->s.loss_scale, "dynamic");
    t->scale = t->dynamic ? START : 1;
    if (t->stored && !t->dynamic) (void)snd_parse_num(t->s.loss_scale, &t->scale, NULL); // resolving has read it
}

bool snd_scale_step(snd_trainer *t, bool finite) {
    if (!finite) {
        t->failed_step = t->step;
        t->failed_scale = t->scale;
    }
    if (!t->dynamic) return false;
    if (finite) {
        if (++t->good < t->s.scale_every) return false;
        if (t->scale < MOST) t->scale *= 2;
        t->good = 0;
        return false;
    }
    if (t->scale <= LEAST) return false;
    t->scale /= 2;
    t->good = 0;
    t->step++;
    t->skipped++;
    return true;
}

// ---- the copy -------------------------------------------------------------------------------------------------------------------

static sonde_status acquire(void *self, const snd_graph *g, int param, const void **data, int32_t *e) {
    snd_trainer *t = self;
    if (!t->halves || !t->halves[param]) return t->source.acquire(t->source.self, g, param, data, e);
    *data = t->halves[param];
    *e = 0;
    return SONDE_OK;
}

static void release(void *self, const snd_graph *g, int param) {
    snd_trainer *t = self;
    if ((!t->halves || !t->halves[param]) && t->source.release) t->source.release(t->source.self, g, param);
}

static void read(void *self, const snd_graph *g, int param, int64_t first, int64_t n, void *dst) {
    snd_trainer *t = self;
    if (t->halves && t->halves[param])
        memcpy(dst, t->halves[param] + first, (size_t)n * sizeof(float));
    else
        t->source.read(t->source.self, g, param, first, n, dst);
}

snd_source *snd_trainer_weights(snd_trainer *t) {
    if (!t->stored) return &t->source;
    t->rounded = (snd_source){.self = t, .read = read, .acquire = acquire, .release = release};
    return &t->rounded;
}

sonde_status snd_halves_make(snd_trainer *t) {
    size_t at = 0;
    SND_NEW(t->arena, t->halves, snd_g_param_count(t->nets[0].m->g) + 1);
    t->half_slab = snd_slab_alloc(t->half_bytes ? t->half_bytes : 64);
    SND_FAIL_IF(!t->half_slab, SONDE_ENOMEM, "no memory for the weights in f16 (%zu bytes)", t->half_bytes);
    for (int i = 0; i < t->n_weights; i++) {
        t->halves[t->weights[i].param] = (float *)(void *)(t->half_slab + at);
        at += ((size_t)t->weights[i].n * sizeof(float) + 63) / 64 * 64;
    }
    return SONDE_OK;
}

void snd_halves_round(snd_trainer *t) {
    for (int i = 0; i < t->n_weights; i++) {
        const snd_weight *w = &t->weights[i];
        float *to = t->halves[w->param];
        memcpy(to, w->w, (size_t)w->n * sizeof *to);
        (void)snd_k_round_f16(t->o.threads, w->n, 0, to, NULL);
    }
}
