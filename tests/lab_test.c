// The lab: a depth sweep is the same nets as single depths; seeds and threads; bands hold the mean; time limits; the
// closed forms of the lecture within their bands; the one-matrix net's growth.
#include "lab/probe.h"

#include "check.h"

#include <math.h>
#include <string.h>

typedef struct env {
    snd_arena *a;
    snd_record *r;
} env;

static env start(void) {
    env e = {.a = snd_arena_create()};
    e.r = snd_record_create(e.a, SND_REC_MEASURE);
    assert_non_null(e.r);
    return e;
}

static const snd_spec *load(const env *e, const char *text, const char *const *over, int n) {
    snd_spec *s;
    CHECK_OK(snd_spec_load(e->a, text, over, n, &s));
    return s;
}

static const snd_metric *metric(const snd_run *u, const char *value, const char *name) {
    const snd_rvalue *v = snd_run_find(u, value);
    if (!v) fail_msg("no value %s", value);
    const snd_metric *m = snd_value_find(v, name);
    if (!m) fail_msg("no %s at %s", name, value);
    return m;
}

static void sweep_equals_single_depths(void **state) {
    (void)state;
    const env e = start();
    const char *over[] = {"width=48", "layers=9", "inputs=20", "outputs=4"};
    const int64_t depths[] = {9, 3};
    const char *const formulas[] = {
        "pre", "in: y = x  each: o = F(x + N(y)); x = N(x + o); y = y + o  out: x = x + N(y)", "scaled-by-depth",
        "layer: x = depthmix(x)  each: x = x + F(N(x))  out: x = W(N(x))"};
    for (size_t f = 0; f < sizeof formulas / sizeof *formulas; f++) {
        const int first = e.r->n_runs;
        snd_measure_opts o = {
            .rows = 8, .seeds = 2, .bands = SND_BANDS_NONE, .dtype = SND_F64, .depths = depths, .n_depths = 2};
        CHECK_OK(snd_lab_measure(e.r, load(&e, formulas[f], over, 4), "sweep", &o));
        assert_int_equal(e.r->n_runs, first + 2);
        assert_int_equal(e.r->runs[first]->depth, 3); // ascending
        for (int i = 0; i < 2; i++) {
            const snd_run *swept = e.r->runs[first + i];
            char layers[32], last[32];
            snprintf(layers, sizeof layers, "layers=%d", (int)swept->depth);
            snprintf(last, sizeof last, "layers.%d.x", (int)swept->depth - 1);
            const char *single[] = {"width=48", layers, "inputs=20", "outputs=4"};
            o.depths = NULL, o.n_depths = 0;
            CHECK_OK(snd_lab_measure(e.r, load(&e, formulas[f], single, 4), "single", &o));
            const snd_run *one = e.r->runs[e.r->n_runs - 1];
            CHECK_CLOSE(metric(swept, last, "q")->mean, metric(one, last, "q")->mean, 1e-12);
            CHECK_CLOSE(metric(swept, "out.x", "q")->mean, metric(one, "out.x", "q")->mean, 1e-12);
            CHECK_CLOSE(metric(swept, "out.x", "cos")->mean, metric(one, "out.x", "cos")->mean, 1e-12);
            CHECK_CLOSE(metric(swept, "in.x", "gq")->mean, metric(one, "in.x", "gq")->mean, 1e-12);
            CHECK_CLOSE(metric(swept, last, "gq")->mean, metric(one, last, "gq")->mean, 1e-12);
        }
    }
    snd_arena_destroy(e.a);
}

static void threads_change_no_bit(void **state) {
    (void)state;
    snd_buf text[3] = {{0}, {0}, {0}};
    for (int t = 0; t < 3; t++) {
        const env e = start();
        const char *over[] = {"width=65", "layers=5"};
        const snd_measure_opts o = {.rows = 33, .seeds = 3, .threads = t + 1, .band_runs = 8};
        CHECK_OK(snd_lab_measure(e.r, load(&e, "post", over, 2), "post", &o));
        snd_record_json(e.r, &text[t]);
        snd_arena_destroy(e.a);
    }
    assert_string_equal(text[0].s, text[1].s);
    assert_string_equal(text[0].s, text[2].s);
    for (int t = 0; t < 3; t++) snd_buf_free(&text[t]);
}

// Share of layers whose seed mean lies in its 95 % band, over q, cos and gq of several wirings: far from it only if
// theory or bands break.
static void bands_hold_the_means(void **state) {
    (void)state;
    const env e = start();
    const char *over[] = {"width=96", "layers=24"};
    const char *const wirings[] = {"residual", "pre", "post", "scaled-by-depth", "each: x = x + tanh(W(x))*F(N(x))"};
    static const char *const names[] = {"q", "cos", "gq"};
    int inside = 0, all = 0, far = 0;
    for (size_t w = 0; w < sizeof wirings / sizeof *wirings; w++) {
        const snd_measure_opts o = {.rows = 16, .seeds = 6, .no_params = true, .seed = 100};
        CHECK_OK(snd_lab_measure(e.r, load(&e, wirings[w], over, 2), wirings[w], &o));
        const snd_run *u = e.r->runs[e.r->n_runs - 1];
        for (int l = 0; l < 24; l++)
            for (int k = 0; k < 3; k++) {
                char name[32];
                snprintf(name, sizeof name, "layers.%d.x", l);
                const snd_metric *m = metric(u, name, names[k]);
                assert_true(m->lo <= m->hi);
                all++;
                inside += m->mean >= m->lo && m->mean <= m->hi;
                far += !(m->mean >= m->lo999 && m->mean <= m->hi999);
            }
    }
    if (inside < 0.8 * all) fail_msg("%d of %d means are inside their 95 %% band", inside, all);
    if (far > 0.06 * all) fail_msg("%d of %d means are outside their 99.9 %% band", far, all);
    snd_arena_destroy(e.a);
}

// x + relu(W x) grows by 2.904 a block, and so does, from the gradient's coherent part, the gradient's energy.
static void one_matrix_growth(void **state) {
    (void)state;
    const env e = start();
    const char *over[] = {"width=256", "layers=48", "block=one-matrix"};
    const snd_measure_opts o = {.rows = 16, .seeds = 4, .no_params = true, .bands = SND_BANDS_NONE};
    CHECK_OK(snd_lab_measure(e.r, load(&e, "residual", over, 3), "residual", &o));
    const snd_run *u = e.r->runs[0];
    const double per = (metric(u, "layers.47.x", "q")->mean - metric(u, "layers.15.x", "q")->mean) / 32;
    CHECK_CLOSE(pow(10, per), 2.904, 0.12);
    const double back = (metric(u, "in.x", "gq")->mean - metric(u, "layers.19.x", "gq")->mean) / 20;
    CHECK_CLOSE(pow(10, back), 2.904, 0.25);
    CHECK_CLOSE(metric(u, "layers.47.x", "q")->predicted - metric(u, "layers.46.x", "q")->predicted, log10(2.9041),
                1e-3);
    snd_arena_destroy(e.a);
}

static void nothing_overflows(void **state) {
    (void)state;
    const env e = start();
    const char *over[] = {"width=32", "layers=700", "block=one-matrix"};
    double q[2];
    for (int t = 0; t < 2; t++) {
        const snd_measure_opts o = {
            .rows = 4, .seeds = 1, .no_params = true, .bands = SND_BANDS_NONE, .dtype = t ? SND_F64 : SND_F32};
        CHECK_OK(snd_lab_measure(e.r, load(&e, "residual", over, 3), "deep", &o));
        const snd_run *u = e.r->runs[t];
        assert_int_equal(u->nonfinite, 0);
        q[t] = metric(u, "out.x", "q")->mean;
        assert_true(q[t] > 280); // far beyond f32's 38
    }
    CHECK_CLOSE(q[0], q[1], 0.01);
    snd_arena_destroy(e.a);
}

// The input's scale is a unit to the theory as well: what a net without eps does is the same at 1e150 and at 1e-150.
static void theory_holds_at_every_scale(void **state) {
    (void)state;
    const env e = start();
    const char *over[] = {"width=32", "layers=3", "eps=0"};
    const char *const wirings[] = {"residual", "post", "pre"};
    const double shifts[] = {0, 60, 150, -50, -150};
    for (int w = 0; w < 3; w++) {
        double gq0 = 0, q0 = 0, g0 = 0;
        for (int i = 0; i < 5; i++) {
            const snd_measure_opts o = {.scale = pow(10, shifts[i]), .bands = SND_BANDS_THEORY, .rows = 8};
            const int at = e.r->n_runs;
            CHECK_OK(snd_lab_predict(e.r, load(&e, wirings[w], over, 3), "scaled", &o));
            const snd_run *u = e.r->runs[at];
            const bool scales = w == 0; // the others have a norm
            const double q = metric(u, "layers.0.x", "q")->predicted, gq = metric(u, "in.x", "gq")->predicted;
            const double g = metric(u, "layers.0.x", "gq")->predicted;
            if (i == 0) q0 = q, gq0 = gq, g0 = g;
            CHECK_CLOSE(q, scales ? q0 + 2 * shifts[i] : w == 1 ? q0 : q, 1e-9);
            CHECK_CLOSE(metric(u, "in.x", "q")->predicted, 2 * shifts[i], 1e-9);
            if (w == 0) CHECK_CLOSE(gq, gq0, 1e-9);
            if (w == 1) CHECK_CLOSE(gq, gq0 - 2 * shifts[i], 1e-9);
            assert_true(isfinite(gq) && isfinite(g));
            if (w < 2) CHECK_CLOSE(g, g0, 1e-9);
            CHECK_CLOSE(metric(u, "in.x", "q")->hi - metric(u, "in.x", "q")->lo, 0.16, 0.5);
        }
    }
    snd_arena_destroy(e.a);
}

// A seed without a number is not averaged away; a metric without a meaning is not there.
static void what_is_no_number(void **state) {
    (void)state;
    const env e = start();
    const char *over[] = {"width=8", "layers=1"};
    snd_measure_opts o = {.rows = 1, .seeds = 6, .bands = SND_BANDS_NONE, .dtype = SND_F64};
    CHECK_OK(snd_lab_measure(e.r, load(&e, "x = sqrt(dot(x, x) - 8) * x", over, 2), "some seeds", &o));
    const snd_run *u = e.r->runs[0];
    assert_true(isnan(metric(u, "layers.0.x", "q")->mean));
    assert_true(metric(u, "layers.0.x", "q")->measured);
    const int64_t lost = u->nonfinite;
    assert_true(lost > 0);
    assert_true(isfinite(metric(u, "in.x", "q")->mean));
    assert_null(snd_value_find(snd_run_find(u, "in.x"), "cos")); // of one example
    assert_null(snd_value_find(snd_run_find(u, "in.x"), "bvar"));
    const char *zero[] = {"width=64", "layers=2", "block=W(relu(W(u, n)), d, zero=1)"};
    o.rows = 4;
    CHECK_OK(snd_lab_measure(e.r, load(&e, "residual", zero, 3), "branches of zero", &o));
    u = e.r->runs[1];
    assert_int_equal(u->nonfinite, 0);
    assert_true(metric(u, "layers.0.F.out", "q")->mean == -INFINITY);
    assert_null(snd_value_find(snd_run_find(u, "layers.0.F.out"), "kurt"));
    CHECK_OK(snd_lab_measure(e.r, load(&e, "x = x + 1e9", over, 2), "far from zero", &o));
    u = e.r->runs[2];
    CHECK_CLOSE(metric(u, "layers.0.x", "var")->mean, metric(u, "in.x", "var")->mean, 1e-6);
    snd_arena_destroy(e.a);
}

static void a_time_limit_is_kept(void **state) {
    (void)state;
    const env e = start();
    const char *over[] = {"width=128", "layers=32"};
    const snd_measure_opts o = {.seeds = 100000, .time_limit = 0.5};
    const double t0 = snd_now();
    CHECK_OK(snd_lab_measure(e.r, load(&e, "pre", over, 2), "pre", &o));
    assert_true(snd_now() - t0 < 30); // generous: machines are shared
    assert_true(e.r->runs[0]->seeds < 100000);
    assert_true(e.r->n_notes > 0);
    snd_arena_destroy(e.a);
}

static void what_cannot_be_is_refused(void **state) {
    (void)state;
    const env e = start();
    const char *over[] = {"width=16", "layers=2"};
    snd_measure_opts o = {.loss = true};
    CHECK_STATUS(snd_lab_measure(e.r, load(&e, "pre", over, 2), "pre", &o), SONDE_EUSAGE);
    o = (snd_measure_opts){.max_memory = 1000};
    CHECK_STATUS(snd_lab_measure(e.r, load(&e, "pre", over, 2), "pre", &o), SONDE_EUSAGE);
    o = (snd_measure_opts){.dtype = SND_BF16};
    CHECK_STATUS(snd_lab_measure(e.r, load(&e, "pre", over, 2), "pre", &o), SONDE_EUSAGE);
    const char *panel = "plots-varianec";
    const snd_demo_opts d = {.quick = true};
    CHECK_STATUS(snd_lab_demo(e.r, &panel, 1, &d), SONDE_ENAME);
    assert_non_null(strstr(sonde_error_message(), "plots-variance"));
    snd_arena_destroy(e.a);
}

// Dropout is off while measuring, which a note says, once for all wirings that have the same rates.
static void what_is_inactive_is_said(void **state) {
    (void)state;
    const env e = start();
    const char *over[] = {"width=16", "layers=2", "dropout=0.1", "droppath=0.25"};
    const snd_measure_opts o = {.rows = 4, .seeds = 1, .bands = SND_BANDS_NONE, .threads = 1};
    CHECK_OK(snd_lab_measure(e.r, load(&e, "pre", over, 2), "plain", &o));
    assert_int_equal(e.r->n_notes, 0);
    CHECK_OK(snd_lab_measure(e.r, load(&e, "pre", over, 4), "pre", &o));
    CHECK_OK(snd_lab_measure(e.r, load(&e, "post", over, 4), "post", &o));
    assert_int_equal(e.r->n_notes, 1);
    assert_string_equal(e.r->notes[0],
                        "pre, post: dropout 0.1, droppath 0.25: acts in training only and was inactive here");
    snd_arena_destroy(e.a);
}

// SIGINT when `left` nets have been measured.
typedef struct interrupt {
    snd_stop stop;
    int left;
} interrupt;

static void count_nets(void *ctx, const char *stage, int64_t done, int64_t total) {
    interrupt *i = ctx;
    if (!strcmp(stage, "seeds") && done == total && --i->left == 0) i->stop.flag = 1;
}

static void demo_until(const env *e, const char *const *names, int n, int nets) {
    interrupt i = {.left = nets, .stop.flag = nets == 0};
    const snd_demo_opts o = {.quick = true, .stop = &i.stop, .progress = count_nets, .ctx = &i};
    CHECK_STATUS(snd_lab_demo(e->r, names, n, &o), SONDE_EINTERRUPTED);
    for (int k = 0; k < e->r->n_panels; k++) assert_true(e->r->panels[k]->n_series > 0);
    for (int k = 0; k < e->r->n_tables; k++) assert_int_equal(e->r->tables[k]->n_cells % e->r->tables[k]->n_columns, 0);
    assert_non_null(strstr(e->r->notes[0], "Interrupted in panel"));
}

// An interrupted demo keeps its whole panels, and of the one at work the nets that were measured; later panels add nothing.
static void an_interrupted_demo_keeps_what_it_has(void **state) {
    (void)state;
    for (int i = 0; i < snd_panel_count(); i++) { // before anything was measured
        const env e = start();
        const char *name = snd_panel_name(i);
        demo_until(&e, &name, 1, 0);
        assert_int_equal(e.r->n_panels + e.r->n_tables + e.r->n_runs, 0);
        snd_arena_destroy(e.a);
    }
    static const struct {
        const char *names[2];
        int nets, rows, panels, series;
    } row[] = {{{"closed-forms", "slides-forward"}, 2, 2, 0, 0},   {{"closed-forms", "slides-forward"}, 11, 9, 1, 2},
               {{"token-gradient", "slides-forward"}, 2, 0, 1, 3}, {{"last-gradient", "slides-forward"}, 1, 0, 1, 1},
               {{"gpt2-init", "token-gradient"}, 1, 0, 1, 1},      {{"plots-variance", "plots-gradient"}, 2, 0, 1, 2}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const env e = start();
        demo_until(&e, row[i].names, 2, row[i].nets);
        assert_int_equal(e.r->n_tables ? e.r->tables[0]->n_cells / e.r->tables[0]->n_columns : 0, row[i].rows);
        assert_int_equal(e.r->n_panels, row[i].panels);
        if (row[i].panels) assert_int_equal(e.r->panels[0]->n_series, row[i].series);
        snd_arena_destroy(e.a);
    }
}

// A probe under ever smaller limits: every way to fit is taken, and not one bit of a result changes.
static void limits_change_no_number(void **state) {
    (void)state;
    static const char *const wirings[] = {"pre", "post", "hyper-connections", "denseformer", "admin"};
    bool seen[SND_AGAIN_SEGMENT + 1][3] = {{false}};
    for (size_t k = 0; k < sizeof wirings / sizeof *wirings; k++) {
        const env e = start();
        const char *over[] = {"width=256", "layers=12", "inputs=20", "outputs=4"};
        const snd_spec *spec = load(&e, wirings[k], over, 4);
        const int depth = 12;
        double *want = NULL;
        size_t limit = 0, need = 0;
        while (need <= limit) {
            const snd_probe_opts o = {.rows = 24,
                                      .dtype = SND_F32,
                                      .scale = 1,
                                      .loss = true,
                                      .backward = true,
                                      .params = true,
                                      .exits = &depth,
                                      .n_exits = 1,
                                      .threads = 2,
                                      .max_memory = limit};
            snd_arena *a = snd_arena_create();
            snd_probe *p;
            CHECK_OK(snd_probe_make(a, spec, &o, &p));
            need = snd_probe_bytes(p);
            if (!limit || need <= limit) {
                double *got = snd_arena_array(e.a, (size_t)p->n_cells, sizeof *got);
                int whole;
                CHECK_OK(snd_probe_run(p, 7, 1, got, &whole, NULL, NULL, NULL));
                if (want) assert_memory_equal(got, want, (size_t)p->n_cells * sizeof *got);
                want = got;
                seen[p->way.again][p->way.params] = true;
                limit = need - 65536;
                need = 0;
            }
            snd_arena_destroy(a);
        }
        snd_arena_destroy(e.a);
    }
    const bool *once = seen[SND_AGAIN_NONE], *twice = seen[SND_AGAIN_SEGMENT];
    assert_true(once[SND_PARAMS_SOURCE] && once[SND_PARAMS_SEGMENT]);
    assert_true(twice[SND_PARAMS_SEGMENT] && twice[SND_PARAMS_USE]);
}

// The same for run: forward alone, and with all gradients, from weights that are drawn.
static void limits_change_no_result(void **state) {
    (void)state;
    enum { R = 8, D = 256 };
    const env e = start();
    const char *over[] = {"width=256", "layers=16"};
    const snd_spec *spec = load(&e, "pre", over, 2);
    static float x[2][R * D];
    for (int i = 0; i < 2 * R * D; i++)
        x[i / (R * D)][i % (R * D)] = (float)snd_normal_at(snd_key_make(3, "x"), (uint64_t)i);
    const snd_tensor in[] = {{.name = "input", .dtype = SND_F32, .shape = SND_SHAPE(R, D), .data = x[0]},
                             {.name = "dy", .dtype = SND_F32, .shape = SND_SHAPE(R, D), .data = x[1]}};
    const char *input = SONDE_BUILD_DIR "/limits-in.safetensors", *output = SONDE_BUILD_DIR "/limits-out.safetensors";
    CHECK_OK(snd_st_write(input, in, 2, NULL, 0));
    for (int backward = 0; backward < 2; backward++) {
        snd_run_opts o = {.input = input, .output = output, .backward = backward, .dtype = SND_F32, .threads = 2};
        char *want = NULL;
        size_t n_want = 0;
        int fitted = 0;
        sonde_status s = SONDE_OK;
        for (size_t limit = 0; s == SONDE_OK; limit = limit ? limit - limit / 64 : (size_t)80 << 20) {
            char *got;
            size_t n;
            snd_run_result r;
            snd_arena *a = snd_arena_create();
            o.max_memory = limit;
            s = snd_lab_run(a, spec, &o, &r);
            snd_arena_destroy(a);
            if (s != SONDE_OK) break;
            CHECK_OK(snd_read_file(output, (size_t)1 << 26, &got, &n));
            if (want) assert_int_equal(n, n_want);
            if (want) assert_memory_equal(got, want, n);
            snd_free(want);
            want = got;
            n_want = n;
            fitted++;
        }
        CHECK_STATUS(s, SONDE_EUSAGE);
        assert_non_null(strstr(sonde_error_message(), "--max-memory is"));
        assert_true(fitted > 5);
        snd_free(want);
    }
    snd_arena_destroy(e.a);
}

typedef struct heard {
    int64_t calls, last, total;
} heard;
static void hear(void *ctx, const char *what, int64_t done, int64_t total) {
    heard *h = ctx;
    (void)what;
    assert_true((done == 0 || done >= h->last) && done <= total); // 0: a stage begins
    *h = (heard){h->calls + 1, done, total};
}

static void progress_and_limits_are_told(void **state) {
    (void)state;
    const env e = start();
    const char *over[] = {"width=256", "layers=8"};
    heard h = {0};
    snd_measure_opts o = {
        .rows = 4, .seeds = 1, .bands = SND_BANDS_NONE, .max_memory = (size_t)1 << 20, .progress = hear, .ctx = &h};
    CHECK_STATUS(snd_lab_measure(e.r, load(&e, "pre", over, 2), "small", &o), SONDE_EUSAGE);
    assert_non_null(strstr(sonde_error_message(), "--max-memory is 1 MiB; one run needs "));
    o.max_memory = (size_t)64 << 20;
    CHECK_OK(snd_lab_measure(e.r, load(&e, "pre", over, 2), "free", &o));
    assert_int_equal(h.last, h.total);
    assert_true(h.calls > 50); // within one seed
    assert_non_null(strstr(e.r->notes[0], "all weights in memory"));
    o.max_memory = (size_t)36 << 20; // 4 MiB of weights do not fit beside the program
    CHECK_OK(snd_lab_measure(e.r, load(&e, "pre", over, 2), "tight", &o));
    assert_non_null(strstr(e.r->notes[1], "a layer's weights in memory at a time"));
    snd_arena_destroy(e.a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sweep_equals_single_depths), cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(bands_hold_the_means),       cmocka_unit_test(one_matrix_growth),
        cmocka_unit_test(nothing_overflows),          cmocka_unit_test(a_time_limit_is_kept),
        cmocka_unit_test(what_cannot_be_is_refused),  cmocka_unit_test(an_interrupted_demo_keeps_what_it_has),
        cmocka_unit_test(what_is_inactive_is_said),   cmocka_unit_test(theory_holds_at_every_scale),
        cmocka_unit_test(what_is_no_number),          cmocka_unit_test(limits_change_no_number),
        cmocka_unit_test(limits_change_no_result),    cmocka_unit_test(progress_and_limits_are_told)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
