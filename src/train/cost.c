// What a run takes: bytes of its slabs and operations of a step, of a trainer or before there is one.
#include "train/inner.h"

size_t snd_train_cost_bytes(const snd_train_cost *c) {
    return c->values + c->weights + c->moments + c->average + c->sums + c->halves;
}

snd_train_cost snd_trainer_cost(const snd_trainer *t) {
    snd_train_cost c = {.values = t->slab_bytes,
                        .gradients = t->gradient_bytes,
                        .weights = t->param_bytes,
                        .moments = t->moment_bytes,
                        .average = t->average_bytes,
                        .sums = t->sum_bytes,
                        .halves = t->half_bytes};
    const double parts = (double)t->s.accumulate;
    for (int i = 0; i < t->n_nets; i++) {
        const snd_plan *p = t->nets[i].plan;
        if (parts * snd_plan_flops(p) <= c.flops) continue;
        c.flops = parts * snd_plan_flops(p);
        c.flops_again = parts * snd_plan_flops_again(p);
    }
    return c;
}

sonde_status snd_train_foresee(snd_arena *a, const snd_spec *spec, const snd_train_settings *s, snd_dtype dtype,
                               const int64_t image[3], snd_train_cost *out) {
    const snd_task task = snd_train_task(spec);
    snd_trainer t = {.arena = a,
                     .spec = spec,
                     .s = *s,
                     .opt = snd_optimizer_find(s->optimizer),
                     .task = task,
                     .row = {image[0], image[1], image[2]},
                     .o = {.dtype = dtype}};
    const snd_batch_shape largest = {.rows = s->batch,
                                     .tokens = task == SND_TASK_CLASS ? 1 : s->tokens,
                                     .src_tokens = task == SND_TASK_SEQ2SEQ ? s->tokens : 0};
    snd_trainer_type(&t);
    SND_TRY(snd_nets_make(&t, &largest, 1));
    snd_weights_measure(&t);
    *out = snd_trainer_cost(&t);
    return SONDE_OK;
}
