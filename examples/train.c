// A small net learns from a program's own array: points of a square, which of them lie in a ring. Its layers are on show, the
// weights are saved, and new points are asked about. Also a program in C++.
//   cc train.c $(pkg-config --cflags --libs sonde) -o train && ./train
// "./train bf16" trains in another type: f64, bf16, or f16 emulated.
#include <sonde/sonde.h>
#include <stdio.h>
#include <string.h>

enum { POINTS = 1000, STEPS = 300, SIDE = 9 };

static int fail(void) {
    fprintf(stderr, "train: %s\n", sonde_error_message());
    return 1;
}

static int in_ring(const float *p) {
    const float square = p[0] * p[0] + p[1] * p[1];
    return square > 0.2F && square < 0.7F;
}

// The next of a row of numbers from -1 to 1.
static float next(uint32_t *state) {
    *state = *state * 1664525U + 1013904223U;
    return (float)(*state >> 8) / 8388608.0F - 1;
}

static void put_layers(const sonde_step *s) {
    printf("step %d: loss %.2f\n", (int)s->step, s->loss);
    for (int i = 0; i < s->n_layers; i++)
        if (s->layers[i].name[0])
            printf("  %-9s stream %.2f, gradient of the loss by it %.0e, weights move by %.1f %% of their size\n",
                   s->layers[i].name, s->layers[i].rms, s->layers[i].grms, 100 * s->layers[i].update);
}

// What the net thinks of the points of a grid.
static sonde_status put_map(sonde_trainer *trainer) {
    float ask[SIDE][2];
    double scores[SIDE][2];
    for (int row = 0; row < SIDE; row++) {
        for (int i = 0; i < SIDE; i++) {
            ask[i][0] = (float)(2 * i) / (SIDE - 1) - 1;
            ask[i][1] = (float)(2 * row) / (SIDE - 1) - 1;
        }
        const sonde_status s = sonde_trainer_scores(trainer, ask[0], SIDE, scores[0]);
        if (s != SONDE_OK) return s;
        printf("  ");
        for (int i = 0; i < SIDE; i++) printf("%c ", scores[i][1] > scores[i][0] ? 'o' : '.');
        printf("\n");
    }
    return SONDE_OK;
}

int main(int argc, char **argv) {
    static float x[POINTS][2];
    static int64_t labels[POINTS];
    static const int64_t shape[3] = {2, 1, 1}; // two features
    static const char *const of_data[] = {"valid=0.2"}, *const of_spec[] = {"layers=4", "width=32"};
    static const char *const of_training[] = {"steps=300", "batch=50", "lr=3e-3", "monitor_every=150"};
    sonde_data *data = NULL;
    sonde_spec *spec = NULL;
    sonde_trainer *trainer = NULL;
    sonde_train_opts opts;
    double loss, accuracy;
    uint32_t state = 1;

    for (int i = 0; i < POINTS; i++) {
        x[i][0] = next(&state);
        x[i][1] = next(&state);
        labels[i] = in_ring(x[i]);
    }
    memset(&opts, 0, sizeof opts); // zero in any field means its default
    opts.settings = of_training;
    opts.n_settings = 4;
    if (argc > 1) opts.dtype = argv[1];
    if (sonde_data_rows(x[0], labels, POINTS, shape, of_data, 1, &data) != SONDE_OK) return fail();
    if (sonde_spec_for_data("pre", of_spec, 2, data, 0, &spec) != SONDE_OK) return fail();
    if (sonde_trainer_create(spec, data, &opts, &trainer) != SONDE_OK) return fail();
    printf("%s\n", sonde_data_describe(data));
    while (sonde_trainer_steps(trainer) < STEPS) {
        sonde_step step;
        if (sonde_trainer_step(trainer, &step) != SONDE_OK) return fail();
        if (step.layers) put_layers(&step);
    }
    if (sonde_trainer_eval(trainer, SONDE_SPLIT_VALID, 0, &loss, &accuracy) != SONDE_OK) return fail();
    printf("validation: loss %.2f, %.0f %% right\n", loss, 100 * accuracy);
    if (put_map(trainer) != SONDE_OK) return fail();
    if (sonde_trainer_save(trainer, "ring") != SONDE_OK) return fail();
    printf("wrote ring/checkpoints/%d: sonde measure ring\n", (int)sonde_trainer_steps(trainer));
    sonde_trainer_destroy(trainer);
    sonde_spec_destroy(spec);
    sonde_data_destroy(data);
    return accuracy > 0.9 ? 0 : 1;
}
