// Whole pieces of work with the n-th allocation failing, for n = 1, 2, 3, ... until nothing fails any more: each time
// the work must say "memory" (or do without), crash nowhere and give everything back.
#include "check.h"

#include "lab/lab.h"
#include "rules/rules.h"

#include <sonde/train.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef sonde_status work_fn(snd_arena *a);

// The first allocations one by one, later ones in growing steps: a few hundred runs in all.
static void with_every_allocation_failing(work_fn *work, const char *what) {
    snd_arena *warm = snd_arena_create();
    CHECK_OK(work(warm)); // also fills what is made once per process
    snd_arena_destroy(warm);
    const size_t before = snd_alloc_bytes();
    int failures = 0;
    for (int64_t n = 1;; n += 1 + n / 40) {
        const int64_t count = snd_alloc_count();
        snd_alloc_fail_at(n);
        snd_arena *a = snd_arena_create();
        const sonde_status s = a ? work(a) : SONDE_ENOMEM;
        const bool reached = snd_alloc_count() - count >= n;
        snd_alloc_fail_at(0);
        snd_arena_destroy(a);
        if (s != SONDE_OK && s != SONDE_ENOMEM) {
            fail_msg("%s, allocation %d: %s: %s", what, (int)n, sonde_status_name(s), sonde_error_message());
        }
        if (snd_alloc_bytes() != before) {
            fail_msg("%s, allocation %d: %d bytes kept", what, (int)n, (int)(snd_alloc_bytes() - before));
        }
        failures += s == SONDE_ENOMEM;
        if (!reached) break;
    }
    print_message("%s: %d failing runs\n", what, failures);
    assert_true(failures > 3);
}

static sonde_status load(snd_arena *a, snd_spec **spec) {
    const char *const small[] = {"layers=2", "width=8", "inputs=6", "outputs=3"};
    return snd_spec_load(a, "pre", small, 4, spec);
}

static sonde_status load_and_print(snd_arena *a) {
    snd_spec *spec;
    snd_buf b = {0};
    SND_TRY(load(a, &spec));
    snd_spec_print_yaml(spec, &b);
    const bool failed = b.failed;
    snd_buf_free(&b);
    return failed ? SONDE_ENOMEM : SONDE_OK;
}

static sonde_status read_formulas(snd_arena *a) {
    snd_formula *f;
    for (int i = 0; i < snd_wiring_count(); i++) {
        snd_buf b = {0};
        SND_TRY(snd_formula_parse(a, snd_wiring_at(i)->formula, &f));
        snd_formula_print(f, &b);
        const bool failed = b.failed;
        snd_buf_free(&b);
        if (failed) return SONDE_ENOMEM;
    }
    return SONDE_OK;
}

static sonde_status as_text(const snd_record *r) {
    SND_TRY(snd_record_status(r));
    snd_buf json = {0}, csv = {0};
    snd_record_json(r, &json);
    snd_record_csv(r, &csv);
    const bool failed = json.failed || csv.failed;
    snd_buf_free(&json);
    snd_buf_free(&csv);
    return failed ? SONDE_ENOMEM : SONDE_OK;
}

static sonde_status predict(snd_arena *a) {
    snd_spec *spec;
    SND_TRY(load(a, &spec));
    snd_record *r = snd_record_create(a, SND_REC_PREDICT);
    if (!r) return SONDE_ENOMEM;
    const int64_t depths[] = {1, 2};
    const snd_measure_opts o = {.rows = 4, .depths = depths, .n_depths = 2, .threads = 1};
    SND_TRY(snd_lab_predict(r, spec, "pre", &o));
    return as_text(r);
}

static sonde_status predict_tokens(snd_arena *a) {
    static const char *const small[] = {"layers=1", "width=8", "heads=2", "arch=encoder-decoder"};
    snd_spec *spec;
    SND_TRY(snd_spec_load(a, "pre", small, 4, &spec));
    snd_record *r = snd_record_create(a, SND_REC_PREDICT);
    if (!r) return SONDE_ENOMEM;
    const snd_measure_opts o = {.rows = 2, .tokens = 3, .threads = 1};
    SND_TRY(snd_lab_predict(r, spec, "pre", &o));
    return as_text(r);
}

static sonde_status measure(snd_arena *a) {
    snd_spec *spec;
    SND_TRY(load(a, &spec));
    snd_record *r = snd_record_create(a, SND_REC_MEASURE);
    if (!r) return SONDE_ENOMEM;
    const snd_measure_opts o = {.rows = 4, .seeds = 2, .threads = 1};
    SND_TRY(snd_lab_measure(r, spec, "pre", &o));
    return as_text(r);
}

static sonde_status judge(snd_arena *a) { // a Transformer, which needs no numbers to be described
    const char *const keys[] = {"layers=3", "width=8",       "heads=2",
                                "vocab=11", "position=rope", "init=gpt2; down = zero"};
    snd_spec *spec;
    snd_description *d;
    SND_TRY(snd_spec_load(a, "each: x = x + scalar(0)*F(N(N(x)))/sqrt(l)", keys, 6, &spec));
    SND_TRY(snd_describe(a, spec, &d));
    snd_record *r = snd_record_create(a, SND_REC_PREDICT);
    snd_run *u = r ? snd_record_run(r, "t", d->formula) : NULL;
    if (!u) return SONDE_ENOMEM;
    SND_TRY(snd_rules_run(spec, d, u, NULL));
    return as_text(r);
}

static char folder[] = "/tmp/sonde-nomem-XXXXXX";

static sonde_status run(snd_arena *a) {
    snd_spec *spec;
    SND_TRY(load(a, &spec));
    char in[100], out[100];
    snprintf(in, sizeof in, "%s/in.safetensors", folder);
    snprintf(out, sizeof out, "%s/out.safetensors", folder);
    float x[2 * 6] = {1, -2, 3, 0.5f}, dy[2 * 3] = {1};
    const snd_tensor tensors[] = {{"input", SND_F32, SND_SHAPE(2, 6), x}, {"dy", SND_F32, SND_SHAPE(2, 3), dy}};
    SND_TRY(snd_st_write(in, tensors, 2, NULL, 0));
    const char *const taps[] = {"*"};
    const snd_run_opts o = {
        .input = in, .output = out, .taps = taps, .n_taps = 1, .backward = true, .dtype = SND_F32, .threads = 1};
    snd_run_result result;
    return snd_lab_run(a, spec, &o, &result);
}

static sonde_status run_transformer(snd_arena *a) {
    const char *const keys[] = {"arch=encoder-decoder", "layers=1", "width=4",          "heads=2",
                                "position=xl",          "vocab=5",  "qk_norm=rms-head", "cond=2"};
    snd_spec *spec;
    SND_TRY(snd_spec_load(a, "each: x = x + F(N(x), inner=1, headgain=1)*W(c)", keys, 8, &spec));
    char in[100], out[100];
    snprintf(in, sizeof in, "%s/in.safetensors", folder);
    snprintf(out, sizeof out, "%s/out.safetensors", folder);
    int64_t tokens[4] = {1, 0, 4, 2};
    float x[8] = {1, -2, 3, 0.5f}, cond[4] = {1, 2};
    const snd_tensor tensors[] = {{"tokens", SND_I64, SND_SHAPE(2, 2), tokens},
                                  {"targets", SND_I64, SND_SHAPE(2, 2), tokens},
                                  {"memory", SND_F32, SND_SHAPE(2, 1, 4), x},
                                  {"mem.decoder.layers.0.A", SND_F32, SND_SHAPE(2, 1, 4), x},
                                  {"cond", SND_F32, SND_SHAPE(2, 2), cond}};
    SND_TRY(snd_st_write(in, tensors, 5, NULL, 0));
    const snd_run_opts o = {.input = in, .output = out, .backward = true, .dtype = SND_F32, .threads = 1};
    snd_run_result result;
    return snd_lab_run(a, spec, &o, &result);
}

// Plans that compute again, of every kind.
static sonde_status foresee(snd_arena *a) {
    static const char *const words[] = {"norms", "layers"};
    const int64_t no_image[3] = {0, 0, 0};
    snd_spec *spec;
    snd_train_cost cost;
    SND_TRY(load(a, &spec));
    for (int i = 0; i < 2; i++) {
        snd_train_settings s = snd_train_defaults();
        s.recompute = words[i];
        s.batch = 4;
        SND_TRY(snd_train_resolve(&s, spec));
        SND_TRY(snd_train_foresee(a, spec, &s, SND_F32, no_image, &cost));
    }
    return SONDE_OK;
}

// A program's own rows, a step on them, one on a batch that it brings, and text. What is saved is another matter.
static sonde_status train_api(snd_arena *a) {
    static const float x[8] = {1, 2, -1, 0.5f, 3, -2, 0, 1};
    static const int64_t labels[4] = {0, 1, 0, 1}, shape[3] = {2, 1, 1};
    static const char *const keys[] = {"layers=1", "width=8"}, *const settings[] = {"batch=2", "steps=4"},
                             *share = "valid=0";
    (void)a;
    sonde_data *d = NULL;
    sonde_spec *s = NULL;
    sonde_trainer *t = NULL;
    sonde_step step;
    double scores[4];
    const sonde_batch b = {.rows = 2, .n_tokens = 1, .targets = labels, .x = x};
    const sonde_train_opts o = {.settings = settings, .n_settings = 2, .threads = 1};
    sonde_status status = sonde_data_rows(x, labels, 4, shape, &share, 1, &d);
    if (status == SONDE_OK) status = sonde_spec_for_data("pre", keys, 2, d, 0, &s);
    if (status == SONDE_OK) status = sonde_trainer_create(s, d, &o, &t);
    if (status == SONDE_OK) status = sonde_trainer_step(t, &step);
    if (status == SONDE_OK) status = sonde_trainer_step_on(t, &b, &step);
    if (status == SONDE_OK) status = sonde_trainer_scores(t, x, 2, scores);
    sonde_trainer_destroy(t);
    sonde_spec_destroy(s);
    sonde_data_destroy(d);
    return status;
}

static sonde_status text_api(snd_arena *a) {
    static const char *const keys[] = {"layers=1", "width=8", "heads=2"}, *const settings[] = {"batch=2", "steps=4",
                                                                                               "tokens=4"};
    (void)a;
    sonde_data *d = NULL;
    sonde_spec *s = NULL;
    sonde_trainer *t = NULL;
    char *text = NULL;
    const sonde_train_opts o = {.settings = settings, .n_settings = 3, .threads = 1};
    sonde_status status = sonde_data_text(SONDE_TASK_LM, "a text of some words, a text", 28, NULL, 0, &d);
    if (status == SONDE_OK) status = sonde_spec_for_data("pre", keys, 3, d, 4, &s);
    if (status == SONDE_OK) status = sonde_trainer_create(s, d, &o, &t);
    if (status == SONDE_OK) status = sonde_trainer_generate_text(t, "a", &(sonde_sampling){.tokens = 3}, &text);
    sonde_free(text);
    sonde_trainer_destroy(t);
    sonde_spec_destroy(s);
    sonde_data_destroy(d);
    return status;
}

static void formulas_survive(void **state) {
    (void)state;
    with_every_allocation_failing(read_formulas, "formulas");
}

static void specs_survive(void **state) {
    (void)state;
    with_every_allocation_failing(load_and_print, "spec");
}

static void predict_survives(void **state) {
    (void)state;
    with_every_allocation_failing(predict, "predict");
    with_every_allocation_failing(predict_tokens, "predict of a Transformer");
}

static void measure_survives(void **state) {
    (void)state;
    with_every_allocation_failing(measure, "measure");
}

static void judging_survives(void **state) {
    (void)state;
    with_every_allocation_failing(judge, "describe and judge");
}

static void run_survives(void **state) {
    (void)state;
    assert_non_null(mkdtemp(folder));
    with_every_allocation_failing(run, "run");
    with_every_allocation_failing(run_transformer, "run of a Transformer");
    char command[100];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    assert_int_equal(system(command), 0);
}

static void training_survives(void **state) {
    (void)state;
    with_every_allocation_failing(train_api, "training on a program's rows");
    with_every_allocation_failing(foresee, "what training would take");
    with_every_allocation_failing(text_api, "text from a model");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formulas_survive),  cmocka_unit_test(specs_survive),    cmocka_unit_test(predict_survives),
        cmocka_unit_test(measure_survives),  cmocka_unit_test(judging_survives), cmocka_unit_test(run_survives),
        cmocka_unit_test(training_survives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
