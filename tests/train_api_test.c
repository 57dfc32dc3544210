// <sonde/train.h>: a step moves the weights by the gradient that differences of the loss give; a checkpoint goes on bit for
// bit; what a program feeds is what a file would have brought; refusals name what was found. Public names alone.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // mkdtemp
#endif
#include "check.h"
#include "folder.h"

#include <sonde/sonde.h>

#include <string.h>

static void refused(sonde_status got, sonde_status want, const char *why) {
    if (got != want || !strstr(sonde_error_message(), why))
        fail_msg("status %s, message '%s', want %s, '%s'", sonde_status_name(got), sonde_error_message(),
                 sonde_status_name(want), why);
}

// ---- what is trained ------------------------------------------------------------------------------------------------------------

enum { ROWS = 60, FEATURES = 3, CLASSES = 3 };
static const int64_t ROW[3] = {FEATURES, 1, 1};

static float x_of[ROWS][FEATURES];
static int64_t label_of[ROWS];

// Three clouds, far from unit size.
static void make_rows(void) {
    uint32_t state = 7;
    for (int r = 0; r < ROWS; r++) {
        label_of[r] = r % CLASSES;
        for (int k = 0; k < FEATURES; k++) {
            state = state * 1664525u + 1013904223u;
            const float noise = (float)(state >> 8) / 16777216.0f;
            x_of[r][k] = 100 + 10 * noise + (k == r % CLASSES ? 15.0f : 0.0f);
        }
    }
}

static sonde_data *rows_data(const char *share) {
    sonde_data *d;
    make_rows();
    CHECK_OK(sonde_data_rows(x_of[0], label_of, ROWS, ROW, &share, 1, &d));
    return d;
}

static sonde_spec *spec_for(const char *wiring, const char *const *keys, int n, const sonde_data *d, int64_t tokens) {
    sonde_spec *s;
    CHECK_OK(sonde_spec_for_data(wiring, keys, n, d, tokens, &s));
    return s;
}

static sonde_trainer *trainer_of(const sonde_spec *s, const sonde_data *d, const char *const *settings, int n,
                                 int f64) {
    sonde_trainer *t;
    sonde_train_opts o = {0};
    o.settings = settings;
    o.n_settings = n;
    o.f64 = f64;
    CHECK_OK(sonde_trainer_create(s, d, &o, &t));
    return t;
}

static double loss_on(sonde_trainer *t, const sonde_batch *b) {
    double loss;
    CHECK_OK(sonde_trainer_eval_on(t, b, &loss, NULL));
    return loss;
}

// ---- a step -----------------------------------------------------------------------------------------------------------------------

static const char *const PLAIN[] = {"optimizer=sgd",  "lr=1",   "beta1=0", "schedule=constant", "warmup=0",
                                    "weight_decay=0", "clip=0", "batch=4", "tokens=5",          "monitor_every=1"};
enum { N_PLAIN = sizeof PLAIN / sizeof *PLAIN };

// After a plain step of rate 1 a weight is less by the derivative of the loss, which central differences give as well.
static void steps_down_the_gradient(sonde_trainer *t, const sonde_batch *b, const char *name, int n, int nth) {
    double before[512], after[512], nudged[512];
    const double h = 1e-5, start = loss_on(t, b);
    sonde_step step;
    assert_true(n <= 512);
    CHECK_OK(sonde_trainer_read(t, name, before));
    memcpy(nudged, before, sizeof nudged);
    double loss[2];
    for (int side = 0; side < 2; side++) {
        nudged[nth] = before[nth] + (side ? h : -h);
        CHECK_OK(sonde_trainer_write(t, name, nudged));
        loss[side] = loss_on(t, b);
    }
    CHECK_OK(sonde_trainer_write(t, name, before));
    CHECK_OK(sonde_trainer_step_on(t, b, &step));
    CHECK_OK(sonde_trainer_read(t, name, after));
    CHECK_REL(step.loss, start, 1e-13);
    const double want = (loss[1] - loss[0]) / (2 * h);
    assert_true(fabs(want) > 1e-6);
    CHECK_CLOSE(before[nth] - after[nth], want, 1e-9); // differences: h^2 and eps/h
    assert_true(step.grad_norm >= fabs(want));
}

static void steps_are_the_gradient(void **state) {
    (void)state;
    static const int64_t tokens[20] = {1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5, 6};
    static const int64_t next[20] = {2, 3, 4, 5, 6, 0, 1, -100, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5, 6, -100};
    static const int64_t lengths[4] = {5, 3, 1, 4};
    static const char *const one_vocab[] = {"layers=2", "width=8",          "heads=2",
                                            "vocab=7",  "position=learned", "context=5"};
    sonde_data *d;
    CHECK_OK(sonde_data_batches(SONDE_TASK_LM, NULL, 0, &d));
    sonde_spec *s = spec_for("pre", one_vocab, 6, d, 0);
    sonde_trainer *t = trainer_of(s, d, PLAIN, N_PLAIN, 1);
    const sonde_batch b = {.rows = 4, .n_tokens = 5, .tokens = tokens, .targets = next};
    steps_down_the_gradient(t, &b, "layers.1.A.q.weight", 64, 5);
    steps_down_the_gradient(t, &b, "layers.0.M.up.weight", 256, 100);
    steps_down_the_gradient(t, &b, "embed.token.weight", 56, 9);
    assert_int_equal(sonde_trainer_steps(t), 3);
    sonde_trainer_destroy(t);
    sonde_spec_destroy(s);
    sonde_data_destroy(d);

    CHECK_OK(sonde_data_batches(SONDE_TASK_SEQ2SEQ, NULL, 0, &d));
    static const char *const pairs[] = {"layers=1", "width=8",       "heads=2",
                                        "vocab=7",  "position=rope", "arch=encoder-decoder"};
    s = spec_for("pre", pairs, 6, d, 0);
    t = trainer_of(s, d, PLAIN, N_PLAIN, 1);
    const sonde_batch two = {.rows = 4,
                             .n_tokens = 5,
                             .n_src_tokens = 5,
                             .tokens = tokens,
                             .targets = next,
                             .src_tokens = next,
                             .src_lengths = lengths};
    refused(sonde_trainer_step_on(t, &two, &(sonde_step){0}), SONDE_ERANGE,
            "src_tokens[7] is -100; 0 to 6 are possible");
    int64_t source[20];
    for (int i = 0; i < 20; i++) source[i] = i % 7;
    sonde_batch good = two;
    good.src_tokens = source;
    steps_down_the_gradient(t, &good, "encoder.layers.0.A.v.weight", 64, 3);
    const double padded = loss_on(t, &good);
    source[4] = 6; // a place that counts, of the row that is as long as it can be; then one behind a length
    assert_true(fabs(loss_on(t, &good) - padded) > 1e-9);
    source[4] = 4;
    source[9] = 0;
    CHECK_SAME(loss_on(t, &good), padded);
    good.src_lengths = NULL;
    assert_true(fabs(loss_on(t, &good) - padded) > 1e-9);
    sonde_trainer_destroy(t);
    sonde_spec_destroy(s);
    sonde_data_destroy(d);
}

// A step of t goes down the gradient of the loss in training, of which `look`, whose rate is 0, gives central differences.
static void steps_of_rate_0_tell(sonde_trainer *t, sonde_trainer *look, const sonde_batch *b, const char *const *names,
                                 int n_names) {
    sonde_step step;
    double loss[2], before[64], nudged[64], after[64];
    for (int k = 0; k < n_names; k++) {
        const double h = 1e-5;
        const int nth = k ? 2 : 11;
        CHECK_OK(sonde_trainer_read(t, names[k], before));
        for (int i = 0; i < sonde_trainer_parameters(t); i++) { // the same weights in both
            const char *name;
            int64_t shape[6];
            int nd;
            double w[512];
            CHECK_OK(sonde_trainer_parameter(t, i, &name, shape, &nd));
            CHECK_OK(sonde_trainer_read(t, name, w));
            CHECK_OK(sonde_trainer_write(look, name, w));
        }
        memcpy(nudged, before, sizeof nudged);
        for (int side = 0; side < 2; side++) {
            nudged[nth] = before[nth] + (side ? h : -h);
            CHECK_OK(sonde_trainer_write(look, names[k], nudged));
            CHECK_OK(sonde_trainer_step_on(look, b, &step));
            loss[side] = step.loss;
        }
        CHECK_OK(sonde_trainer_step_on(t, b, &step));
        CHECK_OK(sonde_trainer_read(t, names[k], after));
        if (!(fabs(loss[1] - loss[0]) > 1e-10))
            fail_msg("%s: the loss does not depend on it: %g", names[k], loss[1] - loss[0]);
        CHECK_CLOSE(before[nth] - after[nth], (loss[1] - loss[0]) / (2 * h), 1e-9);
    }
}

// An encoder's batch norm knows the tokens that there are: what stands behind a length is read by nobody, and the step goes
// down the gradient of the loss in training, which steps of rate 0 tell.
static void padding_is_no_part_of_a_batch(void **state) {
    (void)state;
    static const char *const keys[] = {
        "layers=1", "width=8", "heads=2", "vocab=7", "norm=batch", "position=rope", "arch=encoder-decoder"};
    static const int64_t tokens[20] = {1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5, 6},
                         lengths[4] = {5, 3, 1, 4};
    int64_t source[20], targets[20];
    for (int i = 0; i < 20; i++) source[i] = i * i % 7, targets[i] = (i + 3) % 7;
    const sonde_batch b = {.rows = 4,
                           .n_tokens = 5,
                           .n_src_tokens = 5,
                           .tokens = tokens,
                           .targets = targets,
                           .src_tokens = source,
                           .src_lengths = lengths};
    const char *still[N_PLAIN];
    memcpy(still, PLAIN, sizeof PLAIN);
    still[1] = "lr=0";
    sonde_data *d;
    CHECK_OK(sonde_data_batches(SONDE_TASK_SEQ2SEQ, NULL, 0, &d));
    sonde_spec *s = spec_for("pre", keys, 7, d, 0);
    sonde_trainer *t = trainer_of(s, d, PLAIN, N_PLAIN, 1), *look = trainer_of(s, d, still, N_PLAIN, 1);
    sonde_step step;
    double mean[8];
    CHECK_OK(sonde_trainer_step_on(look, &b, &step));
    const double start = step.loss;
    CHECK_OK(sonde_trainer_read(look, "encoder.layers.0.A.N1.running_mean", mean));
    source[9] = (source[9] + 1) % 7;   // behind 3
    source[14] = (source[14] + 3) % 7; // behind 1
    CHECK_OK(sonde_trainer_step_on(look, &b, &step));
    CHECK_CLOSE(step.loss, start, 1e-14);
    source[4] = (source[4] + 1) % 7; // the fifth of five
    CHECK_OK(sonde_trainer_step_on(look, &b, &step));
    assert_true(fabs(step.loss - start) > 1e-6);
    source[4] = (source[4] + 6) % 7;
    // the running mean is a tenth of the mean over the 13 tokens' rows of the embedding
    double embed[56];
    CHECK_OK(sonde_trainer_read(look, "embed.token.weight", embed));
    for (int j = 0; j < 8; j++) {
        double want = 0;
        for (int r = 0; r < 4; r++)
            for (int i = 0; i < lengths[r]; i++) want += 0.1 * embed[source[5 * r + i] * 8 + j] / 13;
        CHECK_CLOSE(mean[j], want, 1e-14);
    }
    static const char *const names[] = {"encoder.layers.0.A.v.weight", "encoder.layers.0.M.N1.weight",
                                        "encoder.layers.0.M.N1.bias"};
    steps_of_rate_0_tell(t, look, &b, names, 3);
    sonde_trainer_destroy(t);
    sonde_trainer_destroy(look);
    sonde_spec_destroy(s);
    sonde_data_destroy(d);
}

// So does a decoder's: what stands behind the last target that is asked for counts in no statistics.
static void padding_is_no_part_of_a_decoders_batch(void **state) {
    (void)state;
    static const char *const keys[] = {
        "layers=1", "width=8", "heads=2", "vocab=7", "norm=batch", "position=rope", "arch=encoder-decoder"};
    static const int64_t lengths[4] = {5, 3, 1, 4};
    int64_t source[20], tokens[20], targets[20];
    for (int i = 0; i < 20; i++) {
        source[i] = i * i % 7;
        tokens[i] = (2 * i + 1) % 7;
        targets[i] = i % 5 < lengths[i / 5] ? (i + 3) % 7 : -100;
    }
    targets[1] = -100; // not asked for, yet no padding: more follows
    const sonde_batch b = {
        .rows = 4, .n_tokens = 5, .n_src_tokens = 5, .tokens = tokens, .targets = targets, .src_tokens = source};
    const char *still[N_PLAIN];
    memcpy(still, PLAIN, sizeof PLAIN);
    still[1] = "lr=0";
    sonde_data *d;
    CHECK_OK(sonde_data_batches(SONDE_TASK_SEQ2SEQ, NULL, 0, &d));
    sonde_spec *s = spec_for("pre", keys, 7, d, 0);
    sonde_trainer *t = trainer_of(s, d, PLAIN, N_PLAIN, 1), *look = trainer_of(s, d, still, N_PLAIN, 1);
    sonde_step step;
    double mean[8], embed[56];
    CHECK_OK(sonde_trainer_step_on(look, &b, &step));
    const double start = step.loss;
    CHECK_OK(sonde_trainer_read(look, "decoder.layers.0.A.N1.running_mean", mean));
    CHECK_OK(sonde_trainer_read(look, "embed.token.weight", embed));
    for (int j = 0; j < 8; j++) {
        double want = 0;
        for (int r = 0; r < 4; r++)
            for (int i = 0; i < lengths[r]; i++) want += 0.1 * embed[tokens[5 * r + i] * 8 + j] / 13;
        CHECK_CLOSE(mean[j], want, 1e-14);
    }
    tokens[8] = (tokens[8] + 1) % 7;   // behind 3
    tokens[14] = (tokens[14] + 3) % 7; // behind 1
    CHECK_OK(sonde_trainer_step_on(look, &b, &step));
    CHECK_CLOSE(step.loss, start, 1e-14);
    tokens[1] = (tokens[1] + 1) % 7; // where nothing is asked
    CHECK_OK(sonde_trainer_step_on(look, &b, &step));
    assert_true(fabs(step.loss - start) > 1e-6);
    static const char *const names[] = {"decoder.layers.0.A.v.weight", "decoder.layers.0.M.N1.weight",
                                        "decoder.layers.0.M.N1.bias"};
    steps_of_rate_0_tell(t, look, &b, names, 3);
    sonde_trainer_destroy(t);
    sonde_trainer_destroy(look);
    sonde_spec_destroy(s);
    sonde_data_destroy(d);
}

// In two parts the same step, but for the order of sums; and what a step looked at.
static void parts_make_the_same_step(void **state) {
    (void)state;
    static const char *const keys[] = {"layers=2", "width=8", "inputs=3", "outputs=3"};
    const char *settings[N_PLAIN + 1];
    memcpy(settings, PLAIN, sizeof PLAIN);
    settings[N_PLAIN] = "accumulate=2";
    make_rows();
    float x[4][FEATURES];
    for (int r = 0; r < 4; r++)
        for (int k = 0; k < FEATURES; k++) x[r][k] = (x_of[r][k] - 110) / 10;
    const int64_t targets[4] = {0, 1, 2, -100};
    const sonde_batch b = {.rows = 4, .n_tokens = 1, .targets = targets, .x = x[0]};
    sonde_data *d;
    CHECK_OK(sonde_data_batches(SONDE_TASK_CLASS, ROW, CLASSES, &d));
    sonde_spec *s = spec_for("pre", keys, 4, d, 0);
    double w[2][64];
    for (int k = 0; k < 2; k++) {
        sonde_trainer *t = trainer_of(s, d, settings, N_PLAIN + k, 1);
        sonde_step step;
        CHECK_OK(sonde_trainer_step_on(t, &b, &step));
        CHECK_OK(sonde_trainer_read(t, "layers.1.F.block.W1.weight", w[k]));
        assert_int_equal(step.targets, 3);
        assert_int_equal(step.n_layers, 3); // two, and what is in none
        assert_string_equal(step.layers[1].name, "layers.1");
        assert_true(step.layers[0].rms > 0 && step.layers[0].grms > 0 && step.layers[0].update > 0);
        assert_true(isnan(step.layers[0].entropy));
        assert_true(step.layers[0].var > 0 && step.layers[0].var <= step.layers[0].rms * step.layers[0].rms);
        assert_true(fabs(step.layers[0].mean) < step.layers[0].rms);
        refused(sonde_trainer_step(t, &step), SONDE_EUSAGE, "every batch has to be given");
        sonde_trainer_destroy(t);
    }
    for (int i = 0; i < 64; i++) CHECK_CLOSE(w[0][i], w[1][i], 1e-14);
    sonde_spec_destroy(s);
    sonde_data_destroy(d);
}

// Every type that the command has: the narrower, the further from f32, and none far; f16 says its scale and what it skipped.
static void types_are_those_of_the_command(void **state) {
    (void)state;
    static const char *const names[] = {"f64", "f32", NULL, "bf16", "f16"};
    static const char *const keys[] = {"layers=2", "width=16"}, *const settings[] = {"steps=20", "batch=20", "lr=3e-3",
                                                                                     "scale_every=3"};
    sonde_data *d = rows_data("valid=0");
    sonde_spec *s = spec_for("pre", keys, 2, d, 0);
    double loss[5], first[5];
    for (int k = 0; k < 5; k++) {
        sonde_trainer *t;
        const sonde_train_opts o = {.settings = settings, .n_settings = 4, .dtype = names[k], .threads = 1};
        CHECK_OK(sonde_trainer_create(s, d, &o, &t));
        sonde_step step;
        int skipped = 0, doubled = 0;
        for (int i = 0; i < 20; i++) {
            CHECK_OK(sonde_trainer_step(t, &step));
            if (i == 0) first[k] = step.loss;
            assert_int_equal(step.step, i + 1);
            skipped += step.skipped;
            doubled += step.loss_scale > 65536;
            if (k < 4) assert_true(step.loss_scale == 0 && step.underflow == 0);
        }
        assert_true(k == 4 ? doubled > 0 && step.loss_scale > 0 : skipped == 0);
        CHECK_OK(sonde_trainer_eval(t, SONDE_SPLIT_TRAIN, 0, &loss[k], NULL));
        sonde_trainer_destroy(t);
    }
    CHECK_SAME(loss[1], loss[2]);
    assert_true(loss[0] != loss[1] && loss[1] != loss[3] && loss[3] != loss[4]);
    CHECK_REL(first[0], first[1], 1e-5);
    CHECK_REL(first[3], first[1], 3e-2);
    CHECK_REL(first[4], first[1], 3e-3);
    assert_true(first[3] != first[1] && first[4] != first[1]);
    for (int k = 0; k < 5; k++) assert_true(loss[k] < 0.8 * first[1]);
    sonde_trainer *t = NULL;
    sonde_train_opts o = {.settings = settings, .n_settings = 4, .dtype = "f8"};
    refused(sonde_trainer_create(s, d, &o, &t), SONDE_ENAME, "one of f32, f64, bf16, f16");
    o.dtype = "bf16";
    o.f64 = 1;
    refused(sonde_trainer_create(s, d, &o, &t), SONDE_EUSAGE, "f64 is asked for as well");
    sonde_spec_destroy(s);
    sonde_data_destroy(d);
}

// ---- rows -------------------------------------------------------------------------------------------------------------------------

static double log_sum(const double *v, int n) {
    double top = v[0], sum = 0;
    for (int i = 1; i < n; i++) top = v[i] > top ? v[i] : top;
    for (int i = 0; i < n; i++) sum += exp(v[i] - top);
    return top + log(sum);
}

// Scores of rows as they were given are those that validation's loss and accuracy are made of.
static void rows_are_learned(void **state) {
    (void)state;
    static const char *const keys[] = {"layers=2", "width=16"}, *const settings[] = {"steps=150", "batch=20",
                                                                                     "lr=3e-3"};
    sonde_data *d = rows_data("valid=0");
    assert_int_equal(sonde_data_classes(d), CLASSES);
    assert_int_equal(sonde_data_vocab(d), 0);
    assert_non_null(strstr(sonde_data_describe(d), "60 rows to train on"));
    sonde_spec *s = spec_for("pre", keys, 2, d, 0);
    assert_non_null(strstr(sonde_spec_yaml(s), "outputs: 3"));
    sonde_trainer *t = trainer_of(s, d, settings, 3, 0);
    sonde_step step;
    double first = NAN, loss, accuracy, scores[ROWS][CLASSES], sum = 0;
    for (int i = 0; i < 150; i++) {
        CHECK_OK(sonde_trainer_step(t, &step));
        if (i == 0) first = step.loss;
    }
    assert_true(step.loss < 0.1 * first && step.step == 150);
    CHECK_OK(sonde_trainer_step(t, &step)); // beyond the schedule's end
    CHECK_OK(sonde_trainer_eval(t, SONDE_SPLIT_TRAIN, 3, &loss, &accuracy));
    int right = 0;
    for (int r = 0; r < ROWS; r += 12) CHECK_OK(sonde_trainer_scores(t, x_of[r], 12, scores[r]));
    for (int r = 0; r < ROWS; r++) {
        int best = 0;
        for (int c = 1; c < CLASSES; c++)
            if (scores[r][c] > scores[r][best]) best = c;
        right += best == label_of[r];
        sum += log_sum(scores[r], CLASSES) - scores[r][label_of[r]];
    }
    CHECK_CLOSE(loss, sum / ROWS, 1e-5);
    CHECK_CLOSE(accuracy, (double)right / ROWS, 1e-12);
    assert_true(accuracy > 0.95);
    refused(sonde_trainer_scores(t, x_of[0], 21, scores[0]), SONDE_ESHAPE, "21 rows; 1 to 20 are possible");
    refused(sonde_trainer_eval(t, SONDE_SPLIT_NONE, 0, &loss, NULL), SONDE_EUSAGE, "TRAIN, VALID or TEST");
    sonde_trainer_destroy(t);
    sonde_spec_destroy(s);
    sonde_data_destroy(d);
}

// ---- checkpoints ------------------------------------------------------------------------------------------------------------------

static void all_weights(const sonde_trainer *t, double *out, int room) {
    int at = 0;
    for (int i = 0; i < sonde_trainer_parameters(t); i++) {
        const char *name;
        int64_t shape[6], n = 1;
        int nd;
        CHECK_OK(sonde_trainer_parameter(t, i, &name, shape, &nd));
        for (int k = 0; k < nd; k++) n *= shape[k];
        assert_true(at + n <= room);
        CHECK_OK(sonde_trainer_read(t, name, out + at));
        at += (int)n;
    }
    assert_true(at > 100);
}

static void checkpoints_go_on(void **state) {
    (void)state;
    enum { ROOM = 4000 };
    static double whole[ROOM], resumed[ROOM];
    static const char *const keys[] = {"layers=2", "width=16", "dropout=0.1"}, *const settings[] = {"batch=20",
                                                                                                    "ema=0.9"};
    char run[64], checkpoint[128];
    snprintf(run, sizeof run, "%s/run", folder);
    sonde_data *d = rows_data("valid=0.2");
    sonde_spec *s = spec_for("post", keys, 3, d, 0);
    sonde_step step;
    sonde_trainer *t = trainer_of(s, d, settings, 2, 0);
    refused(sonde_trainer_load(t, run), SONDE_EIO, "there is no checkpoint");
    for (int i = 0; i < 7; i++) {
        CHECK_OK(sonde_trainer_step(t, &step));
        if (i == 3) CHECK_OK(sonde_trainer_eval(t, SONDE_SPLIT_VALID, 0, NULL, NULL));
        if (i == 3) CHECK_OK(sonde_trainer_save(t, run));
    }
    all_weights(t, whole, ROOM);
    sonde_trainer_destroy(t);
    snprintf(checkpoint, sizeof checkpoint, "%s/checkpoints/4", run);
    for (int k = 0; k < 2; k++) {
        t = trainer_of(s, d, settings, 2, 0);
        CHECK_OK(sonde_trainer_load(t, k ? checkpoint : run));
        assert_int_equal(sonde_trainer_steps(t), 4);
        for (int i = 0; i < 3; i++) CHECK_OK(sonde_trainer_step(t, &step));
        all_weights(t, resumed, ROOM);
        assert_memory_equal(whole, resumed, sizeof whole);
        sonde_trainer_destroy(t);
    }
    sonde_train_opts other = {0};
    other.seed = 1;
    CHECK_OK(sonde_trainer_create(s, d, &other, &t));
    refused(sonde_trainer_load(t, run), SONDE_EINPUT, "seed is 0; this run has 1");
    sonde_trainer_destroy(t);
    sonde_spec_destroy(s);
    sonde_data_destroy(d);
    // a run's own spec brings its settings along
    char yaml[256];
    snprintf(yaml, sizeof yaml, "%s/spec.yaml", checkpoint);
    d = rows_data("valid=0.2");
    CHECK_OK(sonde_spec_load(yaml, NULL, 0, &s));
    t = trainer_of(s, d, NULL, 0, 0);
    CHECK_OK(sonde_trainer_load(t, run));
    sonde_trainer_destroy(t);
    sonde_spec_destroy(s);
    sonde_data_destroy(d);
}

// ---- text -------------------------------------------------------------------------------------------------------------------------

static const char WORDS[] = "the cat sat on the mat and the dog sat on the log and the cat sat on the dog\n"
                            "the dog sat on the mat and the cat sat on the log and the dog sat on the cat\n";

static void text_is_gone_on_with(void **state) {
    (void)state;
    static const char *const keys[] = {"layers=1", "width=32", "heads=2"}, *const settings[] = {"steps=60", "batch=4",
                                                                                                "tokens=16", "lr=3e-3"};
    char text[4 * sizeof WORDS] = "", *out = NULL, *again = NULL;
    for (int i = 0; i < 4; i++) strcat(text, WORDS);
    sonde_data *d;
    const char *share = "valid=0.1";
    CHECK_OK(sonde_data_text(SONDE_TASK_LM, text, strlen(text), &share, 1, &d));
    assert_true(sonde_data_vocab(d) > 10 && sonde_data_vocab(d) < 30);
    sonde_spec *s = spec_for("pre", keys, 3, d, 16);
    sonde_trainer *t = trainer_of(s, d, settings, 4, 0);
    sonde_step step;
    for (int i = 0; i < 60; i++) CHECK_OK(sonde_trainer_step(t, &step));
    assert_true(step.loss < 2);
    sonde_sampling o = {0};
    o.tokens = 40; // beyond the context of 16
    CHECK_OK(sonde_trainer_generate_text(t, "the ", &o, &out));
    CHECK_OK(sonde_trainer_generate_text(t, "the ", &o, &again));
    assert_string_equal(out, again);
    assert_int_equal(strlen(out), 40);
    for (const char *c = out; *c; c++) assert_non_null(strchr(WORDS, *c)); // <unk> is no text
    sonde_free(again);
    o.temperature = 3;
    CHECK_OK(sonde_trainer_generate_text(t, "the ", &o, &again));
    assert_string_not_equal(out, again);
    sonde_free(out);
    sonde_free(again);
    refused(sonde_trainer_generate_text(t, "", &o, &out), SONDE_EUSAGE, "the prompt is empty");
    const int64_t prompt[2] = {3, 99};
    int64_t made[40], n;
    refused(sonde_trainer_generate(t, prompt, 2, &o, made, &n), SONDE_ERANGE, "the prompt's token 1 is 99");
    o.temperature = 0;
    CHECK_OK(sonde_trainer_generate(t, prompt, 1, &o, made, &n));
    assert_int_equal(n, 40);
    sonde_trainer_destroy(t);
    sonde_spec_destroy(s);
    sonde_data_destroy(d);
}

// A model without a context looks back on as many tokens as it was trained on, also where these are more than 4096: the first
// of 4100 is then within sight.
static void long_training_is_looked_back_on(void **state) {
    (void)state;
    enum { LONG = 4100, NEW = 60 };
    static const char *const keys[] = {"layers=1", "width=8", "heads=1", "vocab=8", "position=none", "init=normal(2)"};
    static const char *const settings[2][2] = {{"batch=1", "tokens=4200"}, {"batch=1", "tokens=64"}};
    static int64_t tokens[2 * LONG], prompt[LONG];
    for (int i = 0; i < 2 * LONG; i++) tokens[i] = i * 5 % 8;
    sonde_data *d;
    CHECK_OK(sonde_data_tokens(tokens, 2 * LONG, NULL, 0, &d));
    for (int k = 0; k < 2; k++) {
        sonde_spec *s;
        CHECK_OK(sonde_spec_load("pre", keys, 6, &s));
        sonde_trainer *t = trainer_of(s, d, settings[k], 2, 0);
        int64_t made[2][NEW], n;
        for (int which = 0; which < 2; which++) {
            for (int i = 0; i < LONG; i++) prompt[i] = which && i < 4 ? 7 : i % 7;
            CHECK_OK(sonde_trainer_generate(t, prompt, LONG, &(sonde_sampling){.tokens = NEW, .temperature = 30},
                                            made[which], &n));
            assert_int_equal(n, NEW);
        }
        assert_true(!memcmp(made[0], made[1], sizeof made[0]) == (k == 1));
        sonde_trainer_destroy(t);
        sonde_spec_destroy(s);
    }
    sonde_data_destroy(d);
}

// Numbers from memory are the numbers of a text of bytes: the same steps, bit for bit.
static void tokens_are_as_good_as_text(void **state) {
    (void)state;
    static const char *const settings[] = {"batch=4", "tokens=16"}, *const bytes[] = {"valid=0", "tokenizer=bytes"};
    static const char *const keys[] = {"layers=1", "width=16", "heads=2", "vocab=256", "position=rope"};
    int64_t tokens[sizeof WORDS];
    double loss[2][5];
    for (size_t i = 0; i + 1 < sizeof WORDS; i++) tokens[i] = (unsigned char)WORDS[i];
    for (int k = 0; k < 2; k++) {
        sonde_data *d;
        if (k)
            CHECK_OK(sonde_data_tokens(tokens, sizeof WORDS - 1, bytes, 1, &d));
        else
            CHECK_OK(sonde_data_text(SONDE_TASK_LM, WORDS, sizeof WORDS - 1, bytes, 2, &d));
        sonde_spec *s;
        CHECK_OK(sonde_spec_load("pre", keys, 5, &s));
        sonde_trainer *t = trainer_of(s, d, settings, 2, 0);
        for (int i = 0; i < 5; i++) {
            sonde_step step;
            CHECK_OK(sonde_trainer_step(t, &step));
            loss[k][i] = step.loss;
        }
        char *text;
        if (k)
            refused(sonde_trainer_generate_text(t, "a", &(sonde_sampling){.tokens = 3}, &text), SONDE_EUSAGE,
                    "has no tokenizer");
        sonde_trainer_destroy(t);
        sonde_spec_destroy(s);
        sonde_data_destroy(d);
    }
    for (int i = 0; i < 5; i++) CHECK_SAME(loss[0][i], loss[1][i]);
}

// ---- a whole run ------------------------------------------------------------------------------------------------------------------

typedef struct course {
    int steps, validations, stop_at;
} course;

static int note(void *ctx, const sonde_progress *p) {
    course *c = ctx;
    if (isnan(p->valid))
        c->steps++;
    else
        c->validations++;
    assert_true(p->step >= 1 && p->step <= p->steps && p->steps == 30);
    return c->stop_at && p->step == c->stop_at;
}

static void a_run_leaves_a_record(void **state) {
    (void)state;
    static const char *const keys[] = {"layers=2", "width=16"}, *const settings[] = {"steps=30", "batch=10",
                                                                                     "eval_every=10"};
    char run[64];
    snprintf(run, sizeof run, "%s/whole", folder);
    sonde_data *d = rows_data("valid=0.2");
    sonde_spec *s = spec_for("x = x + F(N(x))", keys, 2, d, 0);
    sonde_train_opts o = {0};
    o.settings = settings;
    o.n_settings = 3;
    course c = {.stop_at = 15};
    sonde_run_folder r = {.folder = run, .progress = note, .ctx = &c};
    sonde_record *record = NULL;
    refused(sonde_train(s, d, &o, &r, &record), SONDE_EINTERRUPTED, "interrupted after step 15");
    assert_non_null(record);
    sonde_record_destroy(record);
    assert_int_equal(c.steps, 15);
    assert_int_equal(c.validations, 1);
    c = (course){0};
    r.resume = 1;
    CHECK_OK(sonde_train(s, d, &o, &r, &record));
    assert_int_equal(c.steps, 15);
    assert_int_equal(c.validations, 2);
    sonde_spec_destroy(s); // the record keeps nothing of them
    sonde_data_destroy(d);
    char *json;
    CHECK_OK(sonde_record_json(record, &json));
    assert_non_null(strstr(json, "sonde.train/1"));
    assert_non_null(strstr(json, "valid_loss"));
    assert_non_null(strstr(json, "x = x + F(N(x))"));
    sonde_free(json);
    CHECK_OK(sonde_record_write(record, run));
    sonde_record_destroy(record);
}

// ---- refusals ---------------------------------------------------------------------------------------------------------------------

static void what_does_not_fit(void **state) {
    (void)state;
    sonde_data *d = (sonde_data *)1;
    make_rows();
    refused(sonde_data_rows(x_of[0], label_of, 0, ROW, NULL, 0, &d), SONDE_EUSAGE, "0 rows of 3 x 1 x 1");
    assert_ptr_equal(d, (sonde_data *)1);
    x_of[4][1] = NAN;
    refused(sonde_data_rows(x_of[0], label_of, ROWS, ROW, NULL, 0, &d), SONDE_EINPUT, "row 4, feature 1: nan");
    make_rows();
    label_of[2] = -1;
    refused(sonde_data_rows(x_of[0], label_of, ROWS, ROW, NULL, 0, &d), SONDE_EINPUT, "row 2: the class is -1");
    const int64_t large[3] = {1, 65536, 2};
    refused(sonde_data_tokens(large, 3, NULL, 0, &d), SONDE_ERANGE, "token 1 is 65536; 0 to 65535 are possible");
    const char *bad = "vlaid=0.1", *none = "valid";
    refused(sonde_data_text(SONDE_TASK_LM, "some text", 9, &bad, 1, &d), SONDE_ENAME, "the nearest known is valid");
    refused(sonde_data_text(SONDE_TASK_LM, "some text", 9, &none, 1, &d), SONDE_EUSAGE, "key=value is needed");
    refused(sonde_data_text(SONDE_TASK_CLASS, "some text", 9, NULL, 0, &d), SONDE_EUNSUPPORTED,
            "do not serve the objective");
    refused(sonde_data_text(SONDE_TASK_NONE, "some text", 9, NULL, 0, &d), SONDE_EUSAGE, "task 0");
    refused(sonde_data_open(SONDE_TASK_LM, "/nowhere/at/all", NULL, 0, &d), SONDE_EIO, "/nowhere/at/all");
    refused(sonde_data_batches(SONDE_TASK_CLASS, NULL, 3, &d), SONDE_EUSAGE, "need the shape");

    d = rows_data("valid=0");
    sonde_spec *s;
    sonde_trainer *t = NULL;
    sonde_train_opts o = {0};
    CHECK_OK(sonde_spec_load("gpt2", NULL, 0, &s));
    refused(sonde_trainer_create(s, d, &o, &t), SONDE_ESHAPE, "the data is for the task CLASS, the model's is LM");
    sonde_spec_destroy(s);
    static const char *const narrow[] = {"width=8", "layers=1", "inputs=4", "outputs=3"};
    CHECK_OK(sonde_spec_load("pre", narrow, 4, &s));
    refused(sonde_trainer_create(s, d, &o, &t), SONDE_ESHAPE, "rows have 3 features, the model reads 4");
    assert_null(t);
    sonde_spec_destroy(s);
    static const char *const fits[] = {"width=8", "layers=1", "inputs=3", "outputs=3"}, *const unknown[] = {"lrate=1"};
    CHECK_OK(sonde_spec_load("pre", fits, 4, &s));
    o.settings = unknown;
    o.n_settings = 1;
    refused(sonde_trainer_create(s, d, &o, &t), SONDE_ENAME, "lrate");
    static const char *const small[] = {"batch=4"};
    o.settings = small;
    CHECK_OK(sonde_trainer_create(s, d, &o, &t));
    const int64_t targets[4] = {0, 1, 3, 2}, good[4] = {0, 1, 2, -100};
    sonde_batch b = {.rows = 4, .n_tokens = 1, .targets = targets, .x = x_of[0]};
    sonde_step step;
    refused(sonde_trainer_step_on(t, &b, &step), SONDE_ERANGE, "targets[2] is 3; 0 to 2 are possible");
    b.targets = good;
    b.rows = 3;
    refused(sonde_trainer_step_on(t, &b, &step), SONDE_ESHAPE, "the batch has 3 rows; 4 are needed");
    double loss, accuracy;
    CHECK_OK(sonde_trainer_eval_on(t, &b, &loss, &accuracy)); // fewer are fine here
    b.rows = 4;
    CHECK_SAME(loss_on(t, &b), loss); // the fourth is not asked for
    b.n_tokens = 2;
    refused(sonde_trainer_step_on(t, &b, &step), SONDE_ESHAPE, "have 2 tokens and 0 of a source; 1 and 0 are needed");
    b.n_tokens = 1;
    b.x = NULL;
    refused(sonde_trainer_step_on(t, &b, &step), SONDE_EUSAGE, "the batch has no x");
    double w[64];
    refused(sonde_trainer_read(t, "layers.9.F", w), SONDE_ENAME, "no parameter 'layers.9.F'");
    assert_int_equal(sonde_trainer_steps(t), 0);
    CHECK_OK(sonde_trainer_step(t, &step)); // what was refused has left the data's own batches alone
    assert_true(step.step == 1 && sonde_trainer_bytes(t) > 1000);
    // a loss that is not finite moves nothing
    CHECK_OK(sonde_trainer_read(t, "stem.weight", w));
    const double kept = w[1];
    w[0] = NAN;
    CHECK_OK(sonde_trainer_write(t, "stem.weight", w));
    CHECK_OK(sonde_trainer_step(t, &step));
    assert_true(isnan(step.loss) && step.step == 1);
    CHECK_OK(sonde_trainer_read(t, "stem.weight", w));
    CHECK_SAME(w[1], kept);
    refused(sonde_trainer_generate(t, good, 1, &(sonde_sampling){.tokens = 1}, (int64_t *)targets, (int64_t *)targets),
            SONDE_EUNSUPPORTED, "family mlp");
    sonde_trainer_destroy(t);
    sonde_spec_destroy(s);
    sonde_data_destroy(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_the_gradient),
        cmocka_unit_test(types_are_those_of_the_command),
        cmocka_unit_test(parts_make_the_same_step),
        cmocka_unit_test(padding_is_no_part_of_a_batch),
        cmocka_unit_test(padding_is_no_part_of_a_decoders_batch),
        cmocka_unit_test(rows_are_learned),
        cmocka_unit_test(checkpoints_go_on),
        cmocka_unit_test(text_is_gone_on_with),
        cmocka_unit_test(long_training_is_looked_back_on),
        cmocka_unit_test(tokens_are_as_good_as_text),
        cmocka_unit_test(a_run_leaves_a_record),
        cmocka_unit_test(what_does_not_fit),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
