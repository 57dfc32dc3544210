// A formula all the way: described, judged, predicted, and measured on a tiny net. Whatever the formula, each step gives
// a result or a message. (A text such as "layers=5" is a setting and is refused like any wrong formula.)
#include "fuzz.h"

#include "lab/lab.h"

static void describe(snd_arena *a, const snd_spec *spec) {
    snd_description *d;
    if (!fuzz_fine(snd_describe(a, spec, &d))) return;
    snd_record *r = snd_record_create(a, SND_REC_PREDICT);
    snd_run *u = r ? snd_record_run(r, "fuzz", spec->wiring_text) : NULL;
    MUST(u);
    fuzz_fine(snd_rules_run(spec, d, u, NULL));
}

static void both(snd_arena *a, const snd_spec *spec) {
    const snd_measure_opts o = {.rows = 2, .seeds = 1, .threads = 1, .bands = SND_BANDS_THEORY};
    snd_record *theory = snd_record_create(a, SND_REC_PREDICT), *measured = snd_record_create(a, SND_REC_MEASURE);
    MUST(theory && measured);
    snd_buf json = {0};
    if (fuzz_fine(snd_lab_predict(theory, spec, "fuzz", &o))) snd_record_json(theory, &json);
    if (fuzz_fine(snd_lab_measure(measured, spec, "fuzz", &o))) snd_record_json(measured, &json);
    MUST(!json.failed);
    snd_buf_free(&json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (n > 2000) return 0;
    const size_t before = snd_alloc_bytes();
    snd_arena *a = snd_arena_create();
    char *text = fuzz_text(data, n);
    const char *wiring = snd_arena_printf(a, "wiring=%s", text);
    const char *const settings[] = {wiring, "family=mlp", "layers=2", "width=4", "hidden=3", "cond=3"};
    snd_spec *spec;
    if (fuzz_fine(snd_spec_load(a, "plain", settings, 6, &spec))) {
        describe(a, spec);
        both(a, spec);
    }
    free(text);
    snd_arena_destroy(a);
    MUST(snd_alloc_bytes() == before);
    return 0;
}
