// The rules over training steps (src/train/watch.def): steps are made by hand, so each place and number of a finding is known.
// Every rule once where it must speak and once where it must not.
#include "check.h"
#include "train/inner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[64];

// A trainer to watch, of two layers; the text has "a" three times as often as "b", and there is a third token for what is unknown.
typedef struct scene {
    snd_arena *arena;
    snd_set *set;
    snd_trainer *t;
    snd_watcher *w;
    snd_record *r;
    snd_layer_state layers[3];
    int64_t step;
} scene;

static int make_text(void **state) {
    (void)state;
    char text[4000];
    snprintf(path, sizeof path, "/tmp/sonde-watch-XXXXXX");
    const int f = mkstemp(path);
    if (f < 0) return 1;
    close(f);
    for (int i = 0; i < (int)sizeof text; i++) text[i] = i % 4 == 3 ? 'b' : 'a';
    return snd_write_file(path, text, sizeof text) != SONDE_OK;
}

static int remove_text(void **state) {
    (void)state;
    return unlink(path);
}

static scene open_scene(void) {
    scene s = {.arena = snd_arena_create()};
    snd_spec *spec;
    snd_train_settings set = snd_train_defaults();
    snd_data_settings d = snd_data_defaults();
    d.path = path;
    CHECK_OK(snd_set_open(&d, SND_TASK_LM, &s.set));
    static const char *const keys[] = {"layers=2",           "width=8",         "heads=1", "vocab=3", "context=4",
                                       "family=transformer", "position=learned"};
    CHECK_OK(snd_spec_load(s.arena, "pre", keys, 7, &spec));
    CHECK_OK(snd_train_setting(&set, "", "steps", "1000"));
    CHECK_OK(snd_train_setting(&set, "", "warmup", "2"));
    CHECK_OK(snd_train_setting(&set, "", "batch", "2"));
    CHECK_OK(snd_train_resolve(&set, spec));
    CHECK_OK(snd_trainer_create(spec, &set, s.set, &(snd_trainer_opts){.dtype = SND_F32, .threads = 1}, &s.t));
    CHECK_OK(snd_watcher_make(s.t, NAN, &s.w));
    s.r = snd_record_create(s.arena, SND_REC_TRAIN);
    for (int i = 0; i < 3; i++)
        s.layers[i] = (snd_layer_state){.name = i == 2 ? ""
                                                : i    ? "layers.1"
                                                       : "layers.0",
                                        .batch_running = NAN,
                                        .write = 0.1,
                                        .update = 0.01};
    return s;
}

static void close_scene(scene *s) {
    snd_trainer_destroy(s->t);
    snd_set_close(s->set);
    snd_arena_destroy(s->arena);
}

static sonde_status step(scene *s, double loss, double norm) {
    return snd_watcher_step(
        s->w, s->t,
        &(snd_step){.step = ++s->step, .loss = loss, .grad_norm = norm, .layers = s->layers, .n_layers = 3});
}

static void steps(scene *s, int n, double loss) {
    for (int i = 0; i < n; i++) CHECK_OK(step(s, loss, 1));
}

// What was found: the rule's verdict, NULL for none.
static const snd_verdict *told(scene *s, const char *rule) {
    const int before = s->r->n_verdicts;
    snd_watcher_tell(s->w, s->r, "t");
    for (int i = before; i < s->r->n_verdicts; i++)
        if (!strcmp(s->r->verdicts[i]->rule, rule)) return s->r->verdicts[i];
    return NULL;
}

static void need(scene *s, const char *rule, const char *where, double value) {
    const snd_verdict *v = told(s, rule);
    if (!v) fail_msg("no verdict %s", rule);
    assert_string_equal(v->where, where);
    CHECK_CLOSE(v->value, value, 1e-9);
    assert_true(strlen(v->why) > 20 && strlen(v->remedy) > 5);
}

static void a_quiet_run(void **state) {
    (void)state;
    scene s = open_scene();
    steps(&s, 100, log(3));
    assert_non_null(told(&s, "ok"));
    assert_int_equal(s.r->n_verdicts, 1);
    close_scene(&s);
}

// U64: the first loss against ln(classes).
static void the_first_loss(void **state) {
    (void)state;
    scene s = open_scene();
    steps(&s, 1, log(3) + 0.6);
    need(&s, "first-loss", "step 1", log(3) + 0.6);
    close_scene(&s);
    s = open_scene();
    steps(&s, 1, log(3) + 0.4);
    steps(&s, 3, log(3) + 0.9); // later losses are no first ones
    assert_null(told(&s, "first-loss"));
    close_scene(&s);
}

// U73: the update of a layer jumps while the loss has not moved.
static void an_update_jumps(void **state) {
    (void)state;
    scene s = open_scene();
    steps(&s, 20, log(3));
    s.layers[1].update = 0.11;
    s.layers[0].update = 0.09;
    steps(&s, 3, log(3));
    need(&s, "update-spike", "layers.1, step 21", 11);
    close_scene(&s);
    s = open_scene();
    steps(&s, 20, log(3));
    s.layers[1].update = 0.09;
    steps(&s, 3, log(3));
    assert_null(told(&s, "update-spike"));
    close_scene(&s);
}

static void a_gradient_jumps(void **state) {
    (void)state;
    scene s = open_scene();
    steps(&s, 20, log(3));
    CHECK_OK(step(&s, log(3), 21));
    need(&s, "gradient-spike", "step 21", 21);
    close_scene(&s);
    s = open_scene();
    steps(&s, 20, log(3));
    CHECK_OK(step(&s, log(3), 19));
    assert_null(told(&s, "gradient-spike"));
    close_scene(&s);
}

static void a_branch_dies(void **state) {
    (void)state;
    scene s = open_scene();
    steps(&s, 10, log(3));
    s.layers[0].write = 1e-5;
    steps(&s, 2, log(3));
    s.layers[0].write = 0.1;
    steps(&s, 1, log(3));
    assert_null(told(&s, "dead-branch")); // two looks are none
    s.layers[1].write = 1e-5;
    steps(&s, 3, log(3));
    need(&s, "dead-branch", "layers.1, step 14", 1e-5);
    close_scene(&s);
}

// Stuck where a model is that knows the letters' frequencies alone; a loss that leaves takes it back.
static void the_unigram_plateau(void **state) {
    (void)state;
    const double unigram = 0.25 * log(4) + 0.75 * log(4.0 / 3);
    scene s = open_scene();
    snd_watcher_valid(s.w, 10, unigram * 1.015);
    snd_watcher_valid(s.w, 20, unigram * 0.985);
    assert_null(told(&s, "unigram-plateau"));
    snd_watcher_valid(s.w, 30, unigram);
    assert_non_null(told(&s, "unigram-plateau"));
    snd_watcher_valid(s.w, 40, unigram * 0.97);
    assert_null(told(&s, "unigram-plateau"));
    close_scene(&s);
}

static void a_loss_that_runs_away(void **state) {
    (void)state;
    scene s = open_scene();
    steps(&s, 1, log(3));
    steps(&s, 30, log(3) + 0.9);
    sonde_status status = SONDE_OK;
    for (int i = 0; i < 20 && status == SONDE_OK; i++) status = step(&s, log(3) + 2.8, 1);
    assert_int_equal(status, SONDE_EDIVERGED);
    assert_int_equal(s.step, 31 + 2); // of 20 losses 18 are 0.9 above, 2 are 2.8: 1.09 in the mean
    const snd_verdict *v = told(&s, "diverged");
    assert_non_null(v);
    assert_string_equal(v->where, "step 33");
    close_scene(&s);
}

// Too few steps for the usual mean: the last one judges by all.
static void a_short_run_that_runs_away(void **state) {
    (void)state;
    scene s = open_scene();
    s.t->s.steps = 8;
    steps(&s, 1, log(3));
    steps(&s, 6, log(3) + 50);
    assert_int_equal(step(&s, log(3) + 50, 1), SONDE_EDIVERGED);
    assert_non_null(told(&s, "diverged"));
    close_scene(&s);
    s = open_scene();
    s.t->s.steps = 8;
    steps(&s, 8, log(3) + 0.9);
    assert_null(told(&s, "diverged"));
    close_scene(&s);
}

// U72: in f16 the first overflow of either pass is named, and what ends a run; skipped steps say nothing to the other rules.
static void f16_overflows(void **state) {
    (void)state;
    scene s = open_scene();
    steps(&s, 30, log(3));
    s.t->failed_step = 30;
    CHECK_OK(snd_watcher_step(s.w, s.t, &(snd_step){.step = 31, .loss = 1, .grad_norm = INFINITY, .skipped = true}));
    assert_null(told(&s, "f16-overflow"));
    s.t->failed_step = 31;
    CHECK_OK(snd_watcher_step(s.w, s.t, &(snd_step){.step = 32, .loss = NAN, .grad_norm = NAN, .skipped = true}));
    s.t->failed_step = 40;
    CHECK_OK(snd_watcher_step(s.w, s.t, &(snd_step){.step = 41, .loss = NAN, .grad_norm = NAN, .skipped = true}));
    steps(&s, 30, log(3));
    assert_string_equal(told(&s, "f16-overflow")->where, "gradient, step 32"); // nothing of this trainer's overflows
    assert_string_equal(told(&s, "f16-gradient-overflow")->where, "gradient, step 31");
    assert_int_equal(told(&s, "f16-overflow")->level, SND_LEVEL_WARN);
    assert_null(told(&s, "gradient-spike"));
    assert_null(told(&s, "nonfinite"));
    s.t->scale = 1024;
    s.t->failed_step = 79;
    CHECK_STATUS(snd_watcher_step(s.w, s.t, &(snd_step){.step = 79, .loss = 1, .grad_norm = INFINITY, .scale = 1024}),
                 SONDE_EDIVERGED);
    assert_string_equal(told(&s, "loss-scale-too-large")->where, "gradient, step 80");
    CHECK_SAME(told(&s, "loss-scale-too-large")->value, 1024);
    assert_null(told(&s, "nonfinite")); // the forward pass had nothing
    s.t->dynamic = true;
    s.t->failed_step = 99;
    CHECK_STATUS(snd_watcher_step(s.w, s.t, &(snd_step){.step = 99, .loss = NAN, .grad_norm = NAN}), SONDE_EDIVERGED);
    assert_string_equal(told(&s, "scale-collapse")->where, "gradient, step 100");
    assert_null(told(&s, "nonfinite"));
    close_scene(&s);
    s = open_scene(); // a scale that stays: the forward pass has the same verdict, which ends the run
    s.t->scale = 1024;
    CHECK_STATUS(snd_watcher_step(s.w, s.t, &(snd_step){.step = 1, .loss = NAN, .grad_norm = NAN, .scale = 1024}),
                 SONDE_EDIVERGED);
    assert_non_null(told(&s, "f16-overflow"));
    assert_int_equal(told(&s, "f16-overflow")->level, SND_LEVEL_ERROR);
    assert_true(!told(&s, "nonfinite") && !told(&s, "loss-scale-too-large"));
    close_scene(&s);
}

// Shorter updates are no advice before the first, nor is clip=1 where it is set; skipped steps are none.
static void advice_fits_the_moment(void **state) {
    (void)state;
    for (int k = 0; k < 4; k++) {
        scene s = open_scene();
        s.t->step = k ? 3 : 2;
        s.t->skipped = 2;
        s.t->s.clip = k == 2 ? 0 : k == 3 ? 5 : 1;
        CHECK_STATUS(step(&s, NAN, NAN), SONDE_EDIVERGED);
        const char *advice = told(&s, "nonfinite")->remedy;
        assert_true(!strncmp(advice, "a lower lr", 10) == (k > 0));
        assert_true(!strstr(advice, "clip=1") == (k < 2));
        assert_true(!strstr(advice, "no update had been made") == (k > 0));
        close_scene(&s);
    }
}

// The first loss is that of the first step that has one, though its update was skipped.
static void the_first_loss_is_the_first(void **state) {
    (void)state;
    scene s = open_scene();
    CHECK_OK(snd_watcher_step(s.w, s.t, &(snd_step){.step = 1, .loss = NAN, .grad_norm = NAN, .skipped = true}));
    CHECK_OK(snd_watcher_step(s.w, s.t, &(snd_step){.step = 2, .loss = 9, .grad_norm = INFINITY, .skipped = true}));
    s.step = 2;
    steps(&s, 1, log(3));
    need(&s, "first-loss", "step 2", 9);
    close_scene(&s);
}

// U72: gradients that f16 makes 0, as a mean of 20 steps.
static void f16_underflows(void **state) {
    (void)state;
    scene s = open_scene();
    for (int i = 0; i < 60; i++) {
        const double lost = i < 20 ? 0.09 : i == 20 ? 0.15 : 0.095;
        CHECK_OK(snd_watcher_step(s.w, s.t,
                                  &(snd_step){.step = i + 1, .loss = 1, .grad_norm = 1, .scale = 1, .lost = lost}));
    }
    assert_null(told(&s, "f16-underflow"));
    CHECK_OK(snd_watcher_step(s.w, s.t, &(snd_step){.step = 61, .loss = 1, .grad_norm = 1, .scale = 1, .lost = 0.295}));
    need(&s, "f16-underflow", "step 61", 0.105);
    close_scene(&s);
}

// U41: how far the running variance is behind the batches' of the last five looks, in the geometric mean; one batch is chance.
static void batch_norm_is_behind(void **state) {
    (void)state;
    scene s = open_scene();
    for (int i = 0; i < 3; i++) s.layers[i].batch_running = NAN;
    steps(&s, 30, log(3));
    assert_null(told(&s, "batch-norm-gap"));
    s.layers[0].batch_running = 1.2;
    s.layers[1].batch_running = 0.5;
    steps(&s, 1, log(3));
    need(&s, "batch-norm-gap", "layers.1, step 31", 0.5);
    s.layers[1].batch_running = 1;
    steps(&s, 2, log(3));
    need(&s, "batch-norm-gap", "layers.1, step 33", cbrt(0.5));
    steps(&s, 2, log(3)); // 0.5^(1/5) is within the limit
    assert_null(told(&s, "batch-norm-gap"));
    s.layers[0].batch_running = 2.2; // one batch of five, then two: 1.2^0.6 2.2^0.4
    steps(&s, 1, log(3));
    need(&s, "batch-norm-gap", "layers.0, step 36", pow(1.2, 0.8) * pow(2.2, 0.2));
    s.layers[0].batch_running = 1 / 2.2;
    steps(&s, 1, log(3));
    assert_null(told(&s, "batch-norm-gap"));
    s.layers[0].batch_running = 1.2;
    s.layers[2].batch_running = 1.3;
    steps(&s, 1, log(3));
    need(&s, "batch-norm-gap", "outside layers, step 38", 1.3);
    close_scene(&s);
    s = open_scene(); // 0.9^21 > 0.1 > 0.9^22
    for (int i = 0; i < 3; i++) s.layers[i].batch_running = 1;
    steps(&s, 21, log(3));
    need(&s, "batch-norm-gap", "layers.0, step 21", 1);
    steps(&s, 1, log(3));
    assert_null(told(&s, "batch-norm-gap"));
    close_scene(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_quiet_run),
        cmocka_unit_test(the_first_loss),
        cmocka_unit_test(an_update_jumps),
        cmocka_unit_test(a_gradient_jumps),
        cmocka_unit_test(a_branch_dies),
        cmocka_unit_test(the_unigram_plateau),
        cmocka_unit_test(a_loss_that_runs_away),
        cmocka_unit_test(a_short_run_that_runs_away),
        cmocka_unit_test(f16_overflows),
        cmocka_unit_test(advice_fits_the_moment),
        cmocka_unit_test(the_first_loss_is_the_first),
        cmocka_unit_test(f16_underflows),
        cmocka_unit_test(batch_norm_is_behind),
    };
    return cmocka_run_group_tests(tests, make_text, remove_text);
}
