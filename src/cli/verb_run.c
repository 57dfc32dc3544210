// sonde run: exact outputs and gradients of a spec for given weights and inputs.
#include "cli/trained.h"

sonde_status snd_verb_run(snd_cli *c) {
    snd_spec *spec;
    snd_trained t; // in place of SPEC it brings its weights
    SND_TRY(snd_cli_find_trained(c, snd_cli_names_trained(c), &t));
    const char *weights = snd_opt_str(c, "weights", t.weights);
    if (t.folder) snd_note(c, "weights: %s", weights);
    SND_TRY(snd_cli_load_spec(c, &spec));
    snd_run_opts o = {.weights = weights,
                      .input = snd_opt_str(c, "input", NULL),
                      .output = snd_opt_str(c, "output", NULL),
                      .backward = snd_opt_flag(c, "backward"),
                      .eval = snd_opt_flag(c, "eval"),
                      .seed = (uint64_t)snd_opt_int(c, "seed", 0),
                      .threads = (int)snd_opt_int(c, "threads", 0),
                      .max_memory = (size_t)snd_opt_int(c, "max-memory", 0),
                      .dtype = snd_dtype_find(snd_opt_str(c, "dtype", "f32")),
                      .round_weights = snd_dtype_find(snd_opt_str(c, "round-weights", "none")),
                      .stop = c->stop};
    o.n_taps = snd_opt_strs(c, "taps", &o.taps);
    snd_run_result r;
    const sonde_status s = snd_lab_run(c->arena, spec, &o, &r);
    // what a file holds is the file's fault; a bad wiring is where the spec says
    c->file_at_fault = r.file_at_fault || s == SONDE_EINPUT || s == SONDE_EIO;
    SND_TRY(s);
    if (r.n_nonfinite)
        snd_note(c, "%lld values are not finite, the first in %s; they are written as they are",
                 (long long)r.n_nonfinite, r.first_nonfinite);
    snd_note(c, "wrote %lld tensors to %s", (long long)r.n_written, o.output);
    return SONDE_OK;
}
