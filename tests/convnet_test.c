// Convnets as whole models: published sizes and counts, the same parameters described as built, gradients of the loss by
// central differences, batch norm in training and at evaluation, fused and unfused alike, bits for any number of threads,
// and theory against measurement.
#include "lab/lab.h"

#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define KEYS(...) (const char *const[]){__VA_ARGS__}, (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static snd_spec *load(snd_arena *a, const char *text, const char *const *keys, int n) {
    snd_spec *s;
    CHECK_OK(snd_spec_load(a, text, keys, n, &s));
    return s;
}

// ---- sizes ----------------------------------------------------------------------------------------------------------

// He et al. 2015, table 6: 0.27, 0.85 and 1.7 million, that is 269722, 853018 and 1727962 with the head's bias and shortcuts
// without weights. Here two 1x1 shortcuts add 16*32 + 32*64 and the head has no bias. 40.6 million multiply-adds for 20 layers
// without shortcuts, which add 16*32*16*16 + 32*64*8*8.
static void published_sizes(void **state) {
    (void)state;
    static const struct {
        const char *layers;
        int64_t n;
    } table[] = {{"layers=9", 269722}, {"layers=27", 853018}, {"layers=54", 1727962}};
    for (int i = 0; i < 3; i++) {
        snd_arena *a = snd_arena_create();
        snd_description *d;
        CHECK_OK(snd_describe(a, load(a, "resnet-v1", KEYS(table[i].layers)), &d));
        assert_int_equal(d->n_learned, table[i].n + 16 * 32 + 32 * 64 - 10);
        if (i == 0) {
            const double stem = 27.0 * 16 * 1024, stage = 9.0 * 16 * 16 * 1024, down = 9.0 * 16 * 32 * 256;
            const double all = stem + 6 * stage + 2 * down + 5 * stage + 5 * stage + 640, ones = 2.0 * 16 * 32 * 256;
            CHECK_CLOSE(d->forward.gemm, 2 * (all + ones), 0.5);
            assert_true(fabs(all - 40.55e6) < 0.05e6);
        }
        snd_arena_destroy(a);
    }
}

static void described_as_built(void **state) {
    (void)state;
    static const char *const texts[] = {
        "resnet-v1", "resnet-v2",
        "in: x = conv(x, 5, 3)\nlayer: x = shortcut(x, x, d + l, stride=1 + l % 2) + 0\nout: x = pool(RMS(x))"};
    for (int i = 0; i < 3; i++) {
        snd_arena *a = snd_arena_create();
        snd_spec *s = load(a, texts[i], KEYS("layers=4", "width=6", "inputs=2", "outputs=3"));
        snd_description *d;
        snd_model *m;
        CHECK_OK(snd_describe(a, s, &d));
        CHECK_OK(snd_model_build(a, s, &(snd_build){.dtype = SND_F64, .rows = 2, .height = 9, .width = 11}, &m));
        assert_int_equal(snd_g_param_count(m->g), d->n_params);
        for (int k = 0; k < d->n_params; k++) {
            const snd_id v = snd_g_find(m->g, d->params[k].name);
            if (!v) fail_msg("%s is described and not built", d->params[k].name);
            assert_true(snd_shape_same(snd_g_value(m->g, v)->shape, d->params[k].shape));
            const snd_init *init = snd_g_param_init(m->g, snd_g_value(m->g, v)->param);
            CHECK_REL(d->params[k].var, snd_nn_init_var(init), 1e-12);
        }
        snd_arena_destroy(a);
    }
}

// ---- a net at work --------------------------------------------------------------------------------------------------

enum { SIDE = 7, IMAGES = 3, CHANNELS = 2, CLASSES = 4, MOST = 64 };

typedef struct net {
    snd_arena *a;
    snd_model *m;
    snd_graph *g;
    snd_id wrt[MOST], grad[MOST];
    int n;
    snd_plan *plan;
    snd_source src;
    snd_exec *x;
    int fused;
} net;

static void feed(net *n) {
    double x[IMAGES * CHANNELS * SIDE * SIDE];
    const int64_t size = snd_shape_size(snd_g_value(n->g, n->m->input)->shape), targets[IMAGES] = {1, 3, 0};
    for (int64_t i = 0; i < size; i++) x[i] = snd_normal_at(snd_key_make(5, "image"), (uint64_t)i);
    CHECK_OK(snd_exec_set(n->x, n->m->input, x, SND_F64));
    if (n->m->targets) CHECK_OK(snd_exec_set(n->x, n->m->targets, targets, SND_I64));
}

// Loss, gradients of every parameter and of the input, and all taps.
static net *open_net(const char *text, const char *width, snd_dtype t, int threads, bool eval, bool fuse,
                     bool gradients) {
    snd_arena *a = snd_arena_create();
    net *n = snd_arena_alloc(a, sizeof *n);
    assert_non_null(n);
    *n = (net){.a = a};
    const snd_spec *s = load(n->a, text, KEYS("layers=3", width, "inputs=2", "outputs=4"));
    const snd_build b = {
        .dtype = t, .rows = IMAGES, .height = SIDE, .width = SIDE, .eval = eval, .with_targets = gradients};
    CHECK_OK(snd_model_build(n->a, s, &b, &n->m));
    n->g = n->m->g;
    snd_id keep[2 * MOST + 256];
    int k = 0;
    if (gradients) {
        n->wrt[n->n++] = n->m->input;
        for (int i = 0; i < snd_g_param_count(n->g); i++)
            if (!snd_g_param_is_state(n->g, i)) n->wrt[n->n++] = snd_g_param_at(n->g, i);
        const snd_id one = snd_g_const(n->g, snd_g_value(n->g, n->m->loss)->shape, 1);
        snd_g_grad(n->g, &n->m->loss, &one, 1, n->wrt, n->n, n->grad);
        for (int i = 0; i < n->n; i++) keep[k++] = n->grad[i];
        keep[k++] = n->m->loss;
    }
    for (int i = 0; i < n->m->n_taps; i++)
        if (strstr(n->m->taps[i].name, ".running_") || !strcmp(n->m->taps[i].name, "out.x"))
            keep[k++] = n->m->taps[i].v;
    if (fuse) n->fused = snd_g_fuse(n->g, keep, k);
    CHECK_OK(snd_graph_status(n->g));
    CHECK_OK(snd_plan_make(n->a, n->g, keep, k, &n->plan));
    assert_true(snd_plan_ok(n->plan));
    CHECK_OK(snd_source_resident(n->g, 3, threads, &n->src));
    CHECK_OK(snd_exec_create(n->g, n->plan, &n->src, &(snd_exec_opts){.threads = threads}, &n->x));
    feed(n);
    return n;
}

static void close_net(net *n) {
    snd_exec_destroy(n->x);
    snd_source_close(&n->src);
    snd_arena_destroy(n->a);
}

static int64_t value_of(const net *n, snd_id v, double *out, int64_t room) {
    const int64_t size = snd_shape_size(snd_g_value(n->g, v)->shape);
    assert_true(size <= room);
    CHECK_OK(snd_exec_get(n->x, v, out));
    return size;
}

static double loss_of(net *n) {
    double l;
    CHECK_OK(snd_exec_run(n->x));
    value_of(n, n->m->loss, &l, 1);
    return l;
}

static const char *const NETS[] = {
    "resnet-v1", "resnet-v2",
    "in: x = conv(x, d, 5)\nlayer: x = silu(BN(conv(x, d + 2*l, 2 + l % 2, stride=1 + l % 2)))\nout: x = pool(LN(x))"};

// ---- gradients ------------------------------------------------------------------------------------------------------

// Moves all entries of a parameter along random directions at once: the sum of gradient times direction, signed.
static void check_direction(net *n, int k) {
    static double g[65536];
    const int param = (int)snd_g_value(n->g, n->wrt[k])->param;
    const char *name = snd_g_value(n->g, n->wrt[k])->name;
    void *data;
    CHECK_OK(snd_source_data(&n->src, n->g, param, &data));
    double *w = data, sum = 0, scale = 0, got = 0;
    CHECK_OK(snd_exec_run(n->x));
    const int64_t size = value_of(n, n->grad[k], g, 65536);
    static const double at[] = {1, -1, 2, -2}, weight[] = {8, -8, -1, 1}, h = 2e-5;
    for (int64_t i = 0; i < size; i++) {
        const double d = snd_normal_at(snd_key_make(9, name), (uint64_t)i);
        got += g[i] * d;
        scale += fabs(g[i] * d);
    }
    for (int q = 0; q < 4; q++) {
        for (int64_t i = 0; i < size; i++) w[i] += at[q] * h * snd_normal_at(snd_key_make(9, name), (uint64_t)i);
        sum += weight[q] * loss_of(n);
        for (int64_t i = 0; i < size; i++) w[i] -= at[q] * h * snd_normal_at(snd_key_make(9, name), (uint64_t)i);
    }
    const double want = sum / (12 * h); // noise: eps of the loss over h
    if (!(fabs(got - want) <= 1e-8 * scale + 1e-10))
        fail_msg("%s: along a random direction the gradient says %.12g, differences %.12g", name, got, want);
}

static void gradients_of_the_loss(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++)
        for (int eval = 0; eval < 2; eval++) {
            net *n = open_net(NETS[i], "width=4", SND_F64, 1, eval, true, true);
            for (int k = 1; k < n->n; k++) check_direction(n, k);
            close_net(n);
        }
}

// ---- batch norm -----------------------------------------------------------------------------------------------------

// Running averages that are the batch's own statistics make evaluation the same as training; others do not.
static void evaluation_by_the_batch_is_training(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        net *train = open_net(NETS[i], "width=4", SND_F64, 1, false, false, false),
            *eval = open_net(NETS[i], "width=4", SND_F64, 1, true, false, false);
        double a[256], b[256], c[256];
        CHECK_OK(snd_exec_run(train->x));
        CHECK_OK(snd_exec_run(eval->x));
        const int64_t size = value_of(train, train->m->out_x, a, 256);
        value_of(eval, eval->m->out_x, b, 256);
        for (int k = 0; k < snd_g_param_count(eval->g); k++) {
            if (!snd_g_param_is_state(eval->g, k)) continue;
            const char *name = snd_g_value(eval->g, snd_g_param_at(eval->g, k))->name;
            const bool var = strstr(name, "running_var") != NULL;
            const snd_id updated = snd_model_tap(train->m, name);
            assert_true(updated != 0);
            double v[64];
            void *data;
            const int64_t channels = value_of(train, updated, v, 64);
            CHECK_OK(snd_source_data(&eval->src, eval->g, k, &data));
            // new = 0.9 start + 0.1 batch; the batch's variance is that of rows/(rows - 1), known from its layer's map
            const char *layer = strstr(name, "layers.");
            const int64_t side = layer && layer[7] == '2'   ? 2
                                 : layer && layer[7] == '1' ? 4
                                 : !strncmp(name, "out", 3) ? 2
                                                            : 7;
            const int64_t before =
                i == 1 && layer && strstr(name, ".N1.") && layer[7] != '0' ? (layer[7] == '1' ? 7 : 4) : side;
            const double rows = (double)(IMAGES * before * before);
            for (int64_t q = 0; q < channels; q++) {
                const double batch = (v[q] - (var ? 0.9 : 0)) / 0.1;
                ((double *)data)[q] = var ? batch * (rows - 1) / rows : batch;
            }
        }
        CHECK_OK(snd_exec_run(eval->x));
        value_of(eval, eval->m->out_x, c, 256);
        double apart = 0;
        for (int64_t q = 0; q < size; q++) {
            CHECK_CLOSE(c[q], a[q], 1e-9);
            apart += fabs(a[q] - b[q]);
        }
        assert_true(apart > 0.1);
        close_net(train), close_net(eval);
    }
}

// Fused batch norm and relu, forward and backward, give the bits of the ops apart, for any number of threads. Widths of one
// block of columns, of several, and of blocks that are no whole words of bits and stay apart.
static void check_fused(const char *text, const char *width, snd_dtype t, int threads, bool fuses) {
    static double a[1 << 18], b[1 << 18];
    net *plain = open_net(text, width, t, 1, false, false, true),
        *fused = open_net(text, width, t, threads, false, true, true);
    assert_int_equal(fused->fused > 0, fuses);
    CHECK_SAME(loss_of(plain), loss_of(fused));
    for (int k = 0; k < plain->n; k++) {
        const int64_t size = value_of(plain, plain->grad[k], a, 1 << 18);
        value_of(fused, fused->grad[k], b, 1 << 18);
        for (int64_t q = 0; q < size; q++) CHECK_SAME(a[q], b[q]);
    }
    close_net(plain), close_net(fused);
}

static void fused_equals_unfused(void **state) {
    (void)state;
    static const char *const widths[] = {"width=4", "width=32", "width=35"};
    for (int i = 0; i < 3; i++)
        for (int t = 0; t < 2; t++) {
            for (int threads = 1; threads <= 3; threads++)
                check_fused(NETS[i], "width=4", t ? SND_F32 : SND_F64, threads, i < 2);
            for (int w = 1; w < 3 && i < 2; w++) check_fused(NETS[i], widths[w], t ? SND_F32 : SND_F64, 2, true);
        }
}

// ---- theory ---------------------------------------------------------------------------------------------------------

// Where the algebra is exact (no relu of a sum) and the net wide, the mean square meets it; the gradient to what the border
// and sixteen images do to it.
static void theory_meets_measurement(void **state) {
    (void)state;
    snd_arena *a = snd_arena_create();
    const snd_spec *s = load(a, "resnet-v2", KEYS("layers=3", "width=48"));
    snd_record *r = snd_record_create(a, SND_REC_MEASURE);
    const snd_measure_opts o = {.seeds = 3, .bands = SND_BANDS_NONE, .no_params = true, .height = 16, .width = 16};
    CHECK_OK(snd_lab_measure(r, s, "v2", &o));
    static const char *const names[] = {"in.x", "layers.0.x", "layers.1.x", "layers.2.x", "out.x"};
    for (int i = 0; i < 5; i++) {
        const snd_rvalue *v = snd_run_find(r->runs[0], names[i]);
        const snd_metric *q = snd_value_find(v, "q"), *gq = snd_value_find(v, "gq");
        CHECK_CLOSE(q->mean, q->predicted, log10(1.08));
        CHECK_CLOSE(gq->mean, gq->predicted, log10(1.3));
    }
    snd_arena_destroy(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_sizes),       cmocka_unit_test(described_as_built),
        cmocka_unit_test(gradients_of_the_loss), cmocka_unit_test(evaluation_by_the_batch_is_training),
        cmocka_unit_test(fused_equals_unfused),  cmocka_unit_test(theory_meets_measurement),
    };
    return cmocka_run_group_tests_name("convnet", tests, NULL, NULL);
}
