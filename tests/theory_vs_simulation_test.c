// Theory, simulation and measurement agree, on formulas that exercise every part of the algebra: the mean over seeds of
// measured nets lies in the simulated bands as often as it should, and no more; the infinite-width algebra is the centre
// of wide simulated nets; its own bands are as wide as the simulated ones. tools/validate.py does the same at full size.
#include "lab/lab.h"

#include "check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct subject {
    const char *formula;
    const char *keys[3];
    bool exact; // the algebra is exact at infinite width
} subject;

static const subject SUBJECTS[] = {
    {"residual", {"block=one-matrix"}, true},
    {"plain", {NULL}, true},
    {"pre", {"norm=rms", "block=W(tanh(W(u, n, gain=2)), d)"}, true},
    {"post", {NULL}, true},
    {"siamese", {"norm=scale"}, true},
    {"each: n = N(x); x = x + sigmoid(W(n, 1))*F(n)*scalar(0.7)\nout: x = N(x)", {NULL}, true},
    {"each: f = F(LN(x)); x = x/2 + f*sigmoid(W(x)) - dot(f, x)/dot(x, x)*x/2", {NULL}, true},
    {"in: x = depthmix(x)\neach: x = x + F(DYT(x))/sqrt(l)\nlayer: x = depthmix(x)\nout: x = DERF(x)", {NULL}, true},
    {"each: x = F(N(depthattn(x)))\nout: x = N(depthattn(x))", {NULL}, true},
    {"each: x = x + F(relu(BN(x)))/sqrt(L)\nout: x = BN(x)", {NULL}, true},
    {"each: x = tanh(1.1*x + F(silu(x))/3)", {"block=W(gelu(W(u, n, gain=2)), d)"}, false},
    {"in: y = x\neach: f = F(RMS(x)); y = tanh(y + f); x = LN(gelu(x) + stop(f) + y)", {NULL}, false},
    {"each: f = F(LN(x)); x = max(x, f)/2 + min(abs(x), 1)/3", {"block=W(silu(W(u, n))*W(u, n), d)"}, false},
};
enum { N_SUBJECTS = sizeof SUBJECTS / sizeof *SUBJECTS };

static const char *const METRICS[] = {"q", "cos", "gq"};

static const snd_spec *load(snd_arena *a, const subject *s, const char *width, const char *layers) {
    const char *over[5] = {width, layers};
    int n = 2;
    for (int i = 0; i < 3 && s->keys[i]; i++) over[n++] = s->keys[i];
    snd_spec *spec;
    CHECK_OK(snd_spec_load(a, s->formula, over, n, &spec));
    return spec;
}

static const snd_metric *metric(const snd_run *u, int layer, const char *name) {
    char value[40];
    snprintf(value, sizeof value, "layers.%d.x", layer);
    const snd_rvalue *v = snd_run_find(u, value);
    const snd_metric *m = v ? snd_value_find(v, name) : NULL;
    if (!m) fail_msg("no %s at %s", name, value);
    return m;
}

static double centre(const snd_metric *m) {
    return (m->lo + m->hi) / 2;
}

static double half_width(const snd_metric *m) {
    return (m->hi - m->lo) / 2;
}

// Spread beyond rounding? The mean square of a stream that ends in a norm has none, whatever the seed.
static bool spreads(const snd_metric *m) {
    return half_width(m) > 1e-4;
}

static void bands_hold_the_mean(void **state) {
    (void)state;
    enum { L = 12, SEEDS = 10 };
    double inside = 0, far = 0, z2 = 0, cells = 0;
    for (int i = 0; i < N_SUBJECTS; i++) {
        snd_arena *a = snd_arena_create();
        snd_record *r = snd_record_create(a, SND_REC_MEASURE);
        // seeds of their own: equal weights would give all formulas the same luck
        const snd_measure_opts o = {.rows = 16, .seeds = SEEDS, .seed = 1000 + 100 * (uint64_t)i, .no_params = true};
        CHECK_OK(snd_lab_measure(r, load(a, &SUBJECTS[i], "width=64", "layers=12"), "bands", &o));
        double own = 0, own_far = 0;
        for (int l = 0; l < L; l++)
            for (int k = 0; k < 3; k++) {
                const snd_metric *m = metric(r->runs[0], l, METRICS[k]);
                assert_true(m->lo < m->hi && m->lo999 < m->lo && m->hi999 > m->hi);
                const double ok = m->lo <= m->mean && m->mean <= m->hi;
                const double out = !(m->lo999 <= m->mean && m->mean <= m->hi999);
                inside += ok, far += out, cells++, own += ok, own_far += out;
                z2 += m->z * m->z * (spreads(m) ? 1 : 0);
            }
        if (own_far > 0)
            print_message("inside %.2f, far %.2f: %s\n", own / (3 * L), own_far / (3 * L), SUBJECTS[i].formula);
        assert_true(own_far <= 0.1 * 3 * L);
        snd_arena_destroy(a);
    }
    print_message("all: inside %.3f, far %.4f, mean z^2 %.2f\n", inside / cells, far / cells, z2 / cells);
    assert_true(inside >= 0.9 * cells && far <= 0.01 * cells);
    assert_true(z2 >= 0.4 * cells && z2 <= 1.6 * cells); // bands too wide would hold everything
}

static void algebra_is_the_centre(void **state) {
    (void)state;
    enum { L = 6 };
    for (int i = 0; i < N_SUBJECTS; i++) {
        if (!SUBJECTS[i].exact) continue;
        snd_arena *a = snd_arena_create();
        snd_record *r = snd_record_create(a, SND_REC_PREDICT);
        const snd_measure_opts o = {.rows = 16, .bands = SND_BANDS_SIMULATED, .band_runs = 24, .seeds = 1000};
        const snd_spec *spec = load(a, &SUBJECTS[i], "width=768", "layers=6");
        CHECK_OK(snd_lab_predict(r, spec, "wide", &o));
        for (int l = 0; l < L; l++)
            for (int k = 0; k < 3; k++) {
                const snd_metric *m = metric(r->runs[0], l, METRICS[k]);
                const double gap = fabs(centre(m) - m->predicted);
                if (gap <= 0.012 + half_width(m)) continue; // 0.012: what is left of 1/width at 768
                fail_msg("%s after layer %d of %s: simulated %.4f +- %.4f, algebra %.4f", METRICS[k], l + 1,
                         SUBJECTS[i].formula, centre(m), half_width(m), m->predicted);
            }
        snd_arena_destroy(a);
    }
}

// Where the algebra is an estimate, predict's numbers come from the quick simulation: they follow the measurement.
static void estimates_are_looked_up(void **state) {
    (void)state;
    for (int i = 0; i < N_SUBJECTS; i++) {
        if (SUBJECTS[i].exact) continue;
        snd_arena *a = snd_arena_create();
        snd_record *r = snd_record_create(a, SND_REC_MEASURE);
        const snd_spec *spec = load(a, &SUBJECTS[i], "width=96", "layers=6");
        CHECK_OK(
            snd_lab_measure(r, spec, "measured",
                            &(snd_measure_opts){.rows = 16, .seeds = 20, .no_params = true, .bands = SND_BANDS_NONE}));
        snd_record *p = snd_record_create(a, SND_REC_PREDICT);
        CHECK_OK(snd_lab_predict(p, spec, "predicted", &(snd_measure_opts){.rows = 16}));
        for (int k = 0; k < 3; k++) {
            const snd_metric *m = metric(r->runs[0], 5, METRICS[k]), *t = metric(p->runs[0], 5, METRICS[k]);
            const double error = hypot(m->sd / sqrt(20), half_width(t) / 2 / sqrt(24)); // means of 20 nets and of 24
            if (!(fabs(m->mean - t->predicted) <= 4 * error + 1e-5))
                fail_msg("%s of %s: measured %.4f, predicted %.4f, standard error %.4f", METRICS[k],
                         SUBJECTS[i].formula, m->mean, t->predicted, error);
        }
        snd_arena_destroy(a);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(bands_hold_the_mean), cmocka_unit_test(algebra_is_the_centre),
                                       cmocka_unit_test(estimates_are_looked_up)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
