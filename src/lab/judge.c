// Verdicts for the runs that a measurement or a prediction has appended: each is judged as the model it was, a depth
// sweep's runs at their own depth.
#include "lab/lab.h"

snd_spec snd_lab_at_depth(const snd_spec *s, int64_t layers) {
    snd_spec t = *s;
    t.layers = t.encoder_layers = t.decoder_layers = layers;
    return t;
}

sonde_status snd_lab_judge(snd_record *r, const snd_spec *spec, int first_run, int64_t rows) {
    const snd_rules_opts o = {.rows = rows > 0 ? rows : SND_DEFAULT_ROWS};
    for (int i = first_run; i < r->n_runs; i++) {
        const bool as_is = r->runs[i]->depth == spec->layers; // stacks may differ in depth
        const snd_spec own = as_is ? *spec : snd_lab_at_depth(spec, r->runs[i]->depth);
        snd_description *d;
        SND_TRY(snd_describe_facts(r->arena, &own, &d));
        SND_TRY(snd_rules_run(&own, d, r->runs[i], &o));
    }
    return snd_record_status(r);
}
