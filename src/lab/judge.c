// Verdicts for the runs that a measurement or a prediction has appended: each is judged as the model it was, a depth
// sweep's runs at their own depth.
#include "lab/lab.h"

snd_spec snd_lab_at_depth(const snd_spec *s, int64_t layers) {
    snd_spec t = *s;
    t.layers = t.encoder_layers = t.decoder_layers = layers;
    return t;
}

int64_t snd_lab_depth(const snd_spec *s) {
    snd_stack t;
    snd_model_stack(s, &t);
    return t.L;
}

snd_measure_opts snd_lab_batch(const snd_spec *spec, const snd_measure_opts *o) {
    snd_measure_opts b = *o;
    const bool sequences = spec->family == SND_FAM_TRANSFORMER;
    const bool limited = spec->position == SND_POS_LEARNED && spec->context < SND_DEFAULT_TOKENS;
    const bool images = spec->family == SND_FAM_CONVNET;
    if (!b.rows) b.rows = sequences ? SND_DEFAULT_BATCH : images ? SND_DEFAULT_IMAGES : SND_DEFAULT_ROWS;
    if (!sequences)
        b.tokens = 1;
    else if (!b.tokens)
        b.tokens = limited ? spec->context : SND_DEFAULT_TOKENS;
    return b;
}

sonde_status snd_lab_judge(snd_record *r, const snd_spec *spec, int first_run, const snd_measure_opts *given) {
    const snd_measure_opts b = snd_lab_batch(spec, given);
    const snd_rules_opts o = {.rows = b.rows * b.tokens, .trained = b.weights != NULL};
    for (int i = first_run; i < r->n_runs; i++) {
        const bool as_is = r->runs[i]->depth == snd_lab_depth(spec); // stacks may differ in depth
        const snd_spec own = as_is ? *spec : snd_lab_at_depth(spec, r->runs[i]->depth);
        snd_description *d;
        SND_TRY(snd_describe_facts(r->arena, &own, &d));
        SND_TRY(snd_rules_run(&own, d, r->runs[i], &o));
    }
    return snd_record_status(r);
}
