// What people reported of other libraries, and what comes out right here. The numbers are those of docs/cases.md, which names
// the threads and says where the cases are that stand in other files.
#include "graph_common.h"

#include "lab/lab.h"
#include "rules/rules.h"

static snd_spec *spec_of(snd_arena *a, const char *text, const char *const *keys, int n) {
    snd_spec *s = NULL;
    CHECK_OK(snd_spec_load(a, text, keys, n, &s));
    return s;
}
#define KEYS(...) (const char *const[]){__VA_ARGS__}, (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *))

static snd_description *described(snd_arena *a, const char *text, const char *const *keys, int n) {
    snd_description *d = NULL;
    CHECK_OK(snd_describe(a, spec_of(a, text, keys, n), &d));
    return d;
}

static const snd_param_row *param(const snd_description *d, const char *name) {
    for (int i = 0; i < d->n_params; i++)
        if (!strcmp(d->params[i].name, name)) return &d->params[i];
    fail_msg("no parameter %s", name);
    return NULL;
}

static double sd(const snd_description *d, const char *name) {
    return sqrt(param(d, name)->var);
}

// ---- theory -------------------------------------------------------------------------------------------------------------

typedef struct theory {
    snd_arena *a;
    snd_prediction *p;
} theory;

static theory predict(const char *text, const char *const *keys, int n) {
    theory t = {.a = snd_arena_create()};
    const snd_predict_opts o = {.rows = 64, .forward_only = true, .no_bands = true};
    CHECK_OK(snd_predict(t.a, spec_of(t.a, text, keys, n), &o, &t.p));
    return t;
}

static void forget(theory *t) {
    snd_prediction_free(t->p);
    snd_arena_destroy(t->a);
}

static double q_of(const theory *t, const char *value) {
    snd_predicted q;
    if (!snd_predicted_metric(t->p, value, SND_PM_Q, &q)) fail_msg("no mean square at %s", value);
    return q.value;
}

static double q_after(const theory *t, int layer) {
    char name[40];
    snprintf(name, sizeof name, "layers.%d.x", layer);
    return q_of(t, name);
}

// A rule's verdict on the prediction of a spec, or on what one seed measures; NULL: none.
static const snd_verdict *verdict(snd_arena *a, const char *rule, bool measured, const char *text,
                                  const char *const *keys, int n) {
    const snd_spec *s = spec_of(a, text, keys, n);
    snd_record *r = snd_record_create(a, measured ? SND_REC_MEASURE : SND_REC_PREDICT);
    const snd_measure_opts o = {.bands = SND_BANDS_NONE, .threads = 1, .seeds = 1, .dtype = SND_F32};
    CHECK_OK(measured ? snd_lab_measure(r, s, "t", &o) : snd_lab_predict(r, s, "t", &o));
    CHECK_OK(snd_lab_judge(r, s, 0, &o));
    for (int i = 0; i < r->n_verdicts; i++)
        if (!strcmp(r->verdicts[i]->rule, rule)) return r->verdicts[i];
    return NULL;
}

// The reason of a rule's verdict on the prediction of a spec, or NULL.
static const char *reason(snd_arena *a, const char *rule, const char *text, const char *const *keys, int n) {
    const snd_verdict *v = verdict(a, rule, false, text, keys, n);
    return v ? v->why : NULL;
}

// ---- a net that runs, in f64 ------------------------------------------------------------------------------------------------

enum { EXAMPLES = 2, TOKENS = 4, KEPT = 512, ENTRIES = 4096 };

typedef struct machine {
    snd_arena *a;
    snd_model *m;
    snd_id grad[KEPT]; // of each parameter, where asked for
    snd_id kept[KEPT];
    int n_kept;
    snd_plan *plan;
    snd_source source;
    snd_exec *exec;
} machine;

static void keep(machine *k, snd_id v) {
    for (int i = 0; i < k->n_kept; i++)
        if (k->kept[i] == v) return;
    assert_true(v && k->n_kept < KEPT);
    k->kept[k->n_kept++] = v;
}

// Gradients of the loss by every parameter.
static void differentiate(machine *k) {
    snd_graph *g = k->m->g;
    const snd_id one = snd_g_const(g, (snd_shape){0}, 1);
    snd_id wrt[KEPT];
    const int n = snd_g_param_count(g);
    assert_true(k->m->loss && n <= KEPT);
    for (int i = 0; i < n; i++) wrt[i] = snd_g_param_at(g, i);
    snd_g_grad(g, &k->m->loss, &one, 1, wrt, n, k->grad);
    for (int i = 0; i < n; i++)
        if (k->grad[i]) keep(k, k->grad[i]);
}

static void set_inputs(machine *k) {
    static double v[ENTRIES];
    for (int i = 0; i < k->m->n_inputs; i++) {
        const snd_id in = k->m->inputs[i].v;
        const snd_value *x = snd_g_value(k->m->g, in);
        const int64_t n = snd_shape_size(x->shape);
        assert_true(n <= ENTRIES);
        for (int64_t e = 0; e < n; e++)
            v[e] = x->dtype == SND_I64 ? (double)(e % 3) : draw_normal(k->m->inputs[i].name, 0, e);
        CHECK_OK(snd_exec_set(k->exec, in, v, SND_F64));
    }
}

// Lives in its own arena: the executor keeps a pointer to its source.
static machine *build(const char *text, const char *const *keys, int n, bool loss) {
    snd_arena *a = snd_arena_create();
    machine *k = snd_arena_alloc(a, sizeof *k);
    assert_non_null(k);
    k->a = a;
    const snd_build o = {
        .dtype = SND_F64, .rows = EXAMPLES, .tokens = TOKENS, .src_tokens = TOKENS, .with_targets = loss};
    CHECK_OK(snd_model_build(a, spec_of(a, text, keys, n), &o, &k->m));
    for (int i = 0; i < k->m->n_taps; i++) keep(k, k->m->taps[i].v);
    if (loss) differentiate(k);
    CHECK_OK(snd_graph_status(k->m->g));
    CHECK_OK(snd_plan_make(a, k->m->g, k->kept, k->n_kept, &k->plan));
    CHECK_OK(snd_source_resident(k->m->g, 7, 1, &k->source));
    CHECK_OK(snd_exec_create(k->m->g, k->plan, &k->source, &(snd_exec_opts){.threads = 1}, &k->exec));
    set_inputs(k);
    CHECK_OK(snd_exec_run(k->exec));
    return k;
}

static void scrap(machine *k) {
    snd_exec_destroy(k->exec);
    snd_source_close(&k->source);
    snd_arena_destroy(k->a);
}

typedef struct numbers {
    int64_t n;
    double v[ENTRIES];
} numbers;

static void read_id(const machine *k, snd_id v, numbers *out) {
    out->n = snd_shape_size(snd_g_value(k->m->g, v)->shape);
    assert_true(out->n <= ENTRIES);
    CHECK_OK(snd_exec_get(k->exec, v, out->v));
}

static void read(const machine *k, const char *name, numbers *out) {
    const snd_id v = snd_model_tap(k->m, name);
    if (!v) fail_msg("no value %s", name);
    read_id(k, v, out);
}

static bool same(const numbers *a, const numbers *b) {
    return a->n == b->n && !memcmp(a->v, b->v, (size_t)a->n * sizeof *a->v);
}

static double largest(const numbers *a) {
    double top = 0;
    for (int64_t i = 0; i < a->n; i++) top = fmax(top, fabs(a->v[i]));
    return top;
}

// ---- wirings ------------------------------------------------------------------------------------------------------------------

// x = n + F(n) with n = N(x) is no pre-norm: each sublayer gives 2, whatever came before, where pre-norm adds 1 to what
// there is; and the first block already differs, by x - n.
static void u01_norm_then_split(void **state) {
    (void)state;
    theory split = predict("norm-then-split", KEYS("layers=24")), pre = predict("pre", KEYS("layers=24"));
    for (int l = 0; l < 24; l++) {
        CHECK_REL(q_after(&split, l), 2, 1e-4);
        CHECK_REL(q_after(&pre, l), l + 2, 1e-4);
    }
    forget(&split);
    forget(&pre);
    static numbers a, b, x, n, f;
    machine *s = build("norm-then-split", KEYS("layers=2", "width=16"), false);
    machine *p = build("pre", KEYS("layers=2", "width=16"), false);
    read(s, "in.x", &x), read(s, "layers.0.F.N1.out", &n), read(s, "layers.0.F.out", &f);
    read(p, "layers.0.F.out", &a);
    assert_true(same(&a, &f)); // the same branch of the same norm
    read(s, "layers.0.x", &a), read(p, "layers.0.x", &b);
    assert_false(same(&a, &b));
    for (int64_t i = 0; i < a.n; i++) CHECK_CLOSE(b.v[i] - a.v[i], x.v[i] - n.v[i], 1e-13);
    scrap(s);
    scrap(p);
}

// Some weights were trained so, so it is a wiring like any other, and its entry says what it is not.
static void u02_norm_then_split_has_a_name(void **state) {
    (void)state;
    const snd_wiring *w = snd_wiring_find("norm-then-split");
    assert_non_null(w);
    assert_non_null(strstr(w->notes, "Not Pre-LN"));
    assert_non_null(strstr(w->source, "norm_first"));
    machine *k = build("norm-then-split", KEYS("layers=1", "width=8", "heads=2", "vocab=5", "position=rope"), true);
    static numbers g;
    for (int i = 0; i < snd_g_param_count(k->m->g);
         i++) { // trainable: everything has a gradient, but for what softmax hides
        if (strstr(snd_g_value(k->m->g, snd_g_param_at(k->m->g, i))->name, "k.bias")) continue;
        read_id(k, k->grad[i], &g);
        assert_true(largest(&g) > 0);
    }
    scrap(k);
}

// Each norm of a post-norm encoder and decoder acts in its own place: with its gain changed, nothing before it changes, it
// does, and so does the output. A norm that is used twice, or that another stands in for, fails one of the three.
static void u03_each_norm_in_its_place(void **state) {
    (void)state;
    static numbers before[KEPT], after;
    machine *k =
        build("post", KEYS("arch=encoder-decoder", "layers=1", "width=8", "heads=2", "vocab=7", "position=sinusoidal"),
              false);
    int sites = 0;
    for (int i = 0; i < k->m->n_taps; i++) read_id(k, k->m->taps[i].v, &before[i]);
    for (int p = 0; p < snd_g_param_count(k->m->g); p++) {
        const char *name = snd_g_value(k->m->g, snd_g_param_at(k->m->g, p))->name;
        char site[80];
        double *gain;
        if (!strstr(name, ".N1.weight")) continue;
        snprintf(site, sizeof site, "%.*s.out", (int)(strlen(name) - strlen(".weight")), name);
        CHECK_OK(snd_source_data(&k->source, k->m->g, p, (void **)&gain));
        gain[3] += 0.5;
        CHECK_OK(snd_exec_run(k->exec));
        bool passed = false;
        for (int i = 0; i < k->m->n_taps; i++) {
            read_id(k, k->m->taps[i].v, &after);
            const bool here = !strcmp(k->m->taps[i].name, site), end = !strcmp(k->m->taps[i].name, "out.x");
            passed = passed || k->m->taps[i].v == snd_model_tap(k->m, site);
            if ((!passed || here || end) && same(&before[i], &after) != !passed)
                fail_msg("%s: %s %s", name, k->m->taps[i].name, passed ? "is the same" : "has changed");
        }
        assert_true(passed);
        gain[3] -= 0.5;
        sites++;
    }
    assert_int_equal(sites, 5);
    scrap(k);
}

// A norm after a norm changes nothing but by eps, and costs its parameters. (The verdict: rules_test.)
static void u04_post_norm_with_a_final_norm(void **state) {
    (void)state;
    static numbers last, out;
    const char *twice = "each: x = N(x + F(x))\nout: x = N(x)";
    machine *k = build(twice, KEYS("layers=2", "width=16", "heads=2"), false);
    read(k, "layers.1.x", &last), read(k, "out.x", &out);
    assert_false(same(&last, &out));
    for (int64_t i = 0; i < out.n; i++) CHECK_REL(out.v[i], last.v[i], 0.51 * 1e-5); // 1/sqrt(1 + eps)
    const snd_description *with = described(k->a, twice, KEYS("layers=2", "width=16", "heads=2"));
    const snd_description *without = described(k->a, "post", KEYS("layers=2", "width=16", "heads=2"));
    assert_int_equal(with->n_learned - without->n_learned, 2 * 16);
    scrap(k);
}

// Two normalised branches per layer and no norm at the end: E x0^2 + 2 L. The verdict names the RMS.
static void u05_no_final_norm(void **state) {
    (void)state;
    static const struct {
        int depth;
        const char *words;
    } table[] = {{2, "RMS 2.24 after 2"}, {12, "RMS 5.00 after 12"}, {48, "RMS 9.85 after 48"}};
    const char *two = "layer: x = x + M(N(x)); x = x + M(N(x))";
    for (int i = 0; i < 3; i++) {
        char layers[20];
        snprintf(layers, sizeof layers, "layers=%d", table[i].depth);
        theory t = predict(two, KEYS(layers));
        CHECK_REL(q_of(&t, "out.x"), 1 + 2 * table[i].depth, 1e-4);
        const char *why = reason(t.a, "no-final-norm", two, KEYS(layers));
        if (!why || !strstr(why, table[i].words)) fail_msg("%s: %s", table[i].words, why ? why : "no verdict");
        assert_null(reason(t.a, "no-final-norm", "post", KEYS(layers)));
        forget(&t);
    }
}

// A norm whose output nobody reads: its parameters, and no others, have a gradient of exactly zero, and describe knows.
static void u06_unused_norm(void **state) {
    (void)state;
    const char *unused = "each: n = N(x); x = x + F(x)";
    machine *k = build(unused, KEYS("layers=2", "width=8", "outputs=3"), true);
    const snd_description *d = described(k->a, unused, KEYS("layers=2", "width=8", "outputs=3"));
    static numbers g;
    for (int i = 0; i < snd_g_param_count(k->m->g); i++) {
        const char *name = snd_g_value(k->m->g, snd_g_param_at(k->m->g, i))->name;
        const bool norm = strstr(name, ".N1.") != NULL;
        if (k->grad[i]) read_id(k, k->grad[i], &g);
        assert_int_equal(k->grad[i] && largest(&g) > 0, !norm);
        assert_int_equal(param(d, name)->no_grad, norm);
    }
    scrap(k);
}

// x = LN(alpha x + F(x)), alpha = (2N)^(1/4), beta = (8N)^(-1/4); beta concerns values, outputs and the feed-forward.
static void u07_deepnorm(void **state) {
    (void)state;
    static const struct {
        int n;
        double alpha, beta;
    } published[] = {{6, 1.8612, 0.3799}, {12, 2.2134, 0.3195}, {24, 2.6322, 0.2686}, {48, 3.1302, 0.2259}};
    static const char *const scaled[] = {"A.v", "A.o", "M.up", "M.down"}, *const plain[] = {"A.q", "A.k"};
    for (int i = 0; i < 4; i++) {
        snd_arena *a = snd_arena_create();
        char layers[20], name[60];
        snprintf(layers, sizeof layers, "layers=%d", published[i].n);
        const snd_description *d = described(a, "deepnorm", KEYS(layers, "width=32", "heads=2"));
        assert_int_equal(d->n_mults, 1);
        assert_string_equal(d->mults[0].on, "stream");
        CHECK_CLOSE(d->mults[0].first, published[i].alpha, 5.1e-5);
        assert_non_null(
            strstr(d->kinds[0].text, "*x + F(x))")); // the factor is the stream's, and a norm is around both
        assert_non_null(strstr(d->kinds[0].text, "x = N("));
        for (int k = 0; k < 6; k++) {
            const char *map = k < 4 ? scaled[k] : plain[k - 4];
            snprintf(name, sizeof name, "layers.%d.%s.weight", published[i].n - 1, map);
            const snd_shape s = param(d, name)->shape;
            const double xavier = sqrt(2.0 / (double)(s.dim[0] + s.dim[1]));
            CHECK_CLOSE(sd(d, name) / xavier, k < 4 ? published[i].beta : 1, 5.1e-5);
        }
        snd_arena_destroy(a);
    }
}

// ---- how things start -----------------------------------------------------------------------------------------------------------

// g x/|x| has coordinates of size 1 for g = sqrt(d); with d^-1/2 their mean square is 1/d^2, and a rule says so.
static void u10_scale_norm(void **state) {
    (void)state;
    static const int widths[] = {64, 256, 1024};
    for (int i = 0; i < 3; i++) {
        char width[20];
        snprintf(width, sizeof width, "width=%d", widths[i]);
        theory t = predict("pre", KEYS("layers=1", "norm=scale", width));
        CHECK_REL(q_of(&t, "layers.0.F.N1.out"), 1, 1e-9);
        assert_null(reason(t.a, "init-recipe", "pre", KEYS("layers=1", "norm=scale", width)));
        assert_non_null(reason(t.a, "init-recipe", "pre", KEYS("layers=1", "norm=scale", width, "init=g *= 1/d")));
        CHECK_REL(param(described(t.a, "pre", KEYS("layers=1", "norm=scale", width)), "out.N1.weight")->mean,
                  sqrt(widths[i]), 1e-12);
        forget(&t);
        t = predict("pre", KEYS("layers=1", "norm=scale", width, "init=g *= 1/d"));
        CHECK_REL(q_of(&t, "layers.0.F.N1.out") * widths[i] * widths[i], 1, 1e-9);
        forget(&t);
    }
}

// Gains drawn again with the weights' N(0, 0.02): the branch's input is 50 times smaller.
static void u11_drawn_gains(void **state) {
    (void)state;
    const char *drawn = "init=lecun; g = normal(0.02)";
    theory t = predict("pre", KEYS("layers=2", drawn));
    CHECK_REL(sqrt(q_of(&t, "layers.0.F.N1.out")), 0.02, 1e-3);
    const char *why = reason(t.a, "init-recipe", "pre", KEYS("layers=2", drawn));
    assert_non_null(why);
    assert_non_null(strstr(why, "N1.weight"));
    forget(&t);
}

// adaLN-Zero: every block is the identity, bit for bit; in the first step only gates and head learn, and with a zero head
// nothing but the head. (What is said about it: rules_test, test_start.)
static void u13_adaln_zero(void **state) {
    (void)state;
    static numbers x, y, g;
    for (int zero = 0; zero < 2; zero++) {
        machine *k = build("adaln-zero",
                           KEYS("layers=2", "width=8", "heads=2", "cond=3", "vocab=5", "position=rope", "tie=false",
                                zero ? "init=xavier; head = zero" : "init=xavier"),
                           true);
        read(k, "in.x", &x);
        read(k, "layers.1.x", &y);
        assert_true(same(&x, &y));
        int learning = 0;
        for (int i = 0; i < snd_g_param_count(k->m->g); i++) {
            const char *name = snd_g_value(k->m->g, snd_g_param_at(k->m->g, i))->name;
            g.n = 0;
            if (k->grad[i]) read_id(k, k->grad[i], &g);
            const bool inside = strstr(name, ".A.q") || strstr(name, ".A.k") || strstr(name, ".A.v") ||
                                strstr(name, ".A.o") || strstr(name, ".M.up") || strstr(name, ".M.down");
            if (largest(&g) > 0) {
                assert_false(inside);
                assert_true(!zero || !strcmp(name, "head.weight"));
                learning++;
            }
        }
        assert_true(zero ? learning == 1 : learning > 4);
        scrap(k);
    }
}

// Output maps times 1/sqrt(2 L): all 2 L sublayers together add what one adds without; without, the sum grows with L.
static void u15_scaled_output_maps(void **state) {
    (void)state;
    static const int depths[] = {2, 12, 48};
    const char *two = "layer: x = x + M(N(x)); x = x + M(N(x))\nout: x = N(x)";
    for (int i = 0; i < 3; i++) {
        char layers[20];
        snprintf(layers, sizeof layers, "layers=%d", depths[i]);
        theory with = predict(two, KEYS(layers, "init=lecun; down *= 1/sqrt(2*L)")),
               without = predict(two, KEYS(layers));
        CHECK_REL(q_after(&with, depths[i] - 1) - 1, 1, 1e-4);
        CHECK_REL(q_after(&without, depths[i] - 1) - 1, 2 * depths[i], 1e-4);
        forget(&with);
        forget(&without);
    }
}

// ---- what is told -----------------------------------------------------------------------------------------------------------------

// Sequential or parallel is the wiring's to say: a stream between attention and feed-forward exists in one of them alone.
static void u16_parallel_or_not(void **state) {
    (void)state;
    machine *one = build("pre", KEYS("layers=1", "width=8", "heads=2"), false);
    machine *both = build("parallel", KEYS("layers=1", "width=8", "heads=2"), false);
    assert_true(snd_model_tap(one->m, "layers.0.A.x") != 0 && snd_model_tap(both->m, "layers.0.A.x") == 0);
    static numbers x, a, m, y;
    read(both, "in.x", &x), read(both, "layers.0.A.out", &a), read(both, "layers.0.M.out", &m);
    read(both, "layers.0.x", &y);
    for (int64_t i = 0; i < y.n; i++) CHECK_CLOSE(y.v[i], x.v[i] + a.v[i] + m.v[i], 1e-14);
    read(both, "layers.0.A.in", &a), read(both, "layers.0.M.in", &m);
    assert_true(same(&a, &m));
    read(one, "layers.0.A.in", &a), read(one, "layers.0.M.in", &m);
    assert_false(same(&a, &m));
    assert_non_null(strstr(described(one->a, "parallel", KEYS("layers=1", "heads=2"))->kinds[0].text, "A(n) + M(n)"));
    scrap(one);
    scrap(both);
}

// A factor on the branch (Granite's 0.22, MiniCPM's 1.4/sqrt(40)): the stream takes m F, exactly, and describe shows m.
static void u19_branch_factor(void **state) {
    (void)state;
    machine *k = build("each: x = x + 0.22*F(N(x))\nout: x = N(x)", KEYS("layers=1", "width=8", "heads=2"), false);
    static numbers x, f, y;
    read(k, "in.x", &x), read(k, "layers.0.A.out", &f), read(k, "layers.0.A.x", &y);
    for (int64_t i = 0; i < y.n; i++) CHECK_CLOSE(y.v[i], x.v[i] + 0.22 * f.v[i], 1e-15);
    const snd_description *d =
        described(k->a, "each: x = x + 1.4/sqrt(L)*F(N(x))\nout: x = N(x)", KEYS("layers=40", "heads=2"));
    assert_int_equal(d->n_mults, 1);
    assert_string_equal(d->mults[0].on, "branch");
    CHECK_CLOSE(d->mults[0].first, 0.2213594362, 1e-9);
    scrap(k);
}

// Version 2: activation before the split, shortcuts that read it, batch norm and ReLU after the last sum. Version 1: none.
static void u20_resnet_details(void **state) {
    (void)state;
    snd_arena *a = snd_arena_create();
    const snd_description *v1 = described(a, "resnet-v1", NULL, 0), *v2 = described(a, "resnet-v2", NULL, 0);
    assert_null(strstr(v1->out_text, "BN"));
    assert_non_null(strstr(v2->out_text, "relu(BN(x))"));
    assert_non_null(strstr(v1->in_text, "relu(BN(conv("));
    assert_null(strstr(v2->in_text, "BN"));
    for (int i = 0; i < v1->n_kinds; i++) {
        assert_non_null(strstr(v1->kinds[i].text, "x = relu(shortcut(x, x,"));
        assert_null(strstr(v1->kinds[i].text, "u = "));
    }
    for (int i = 0; i < v2->n_kinds; i++) {
        assert_non_null(strstr(v2->kinds[i].text, "u = relu(BN(x))"));
        assert_non_null(strstr(v2->kinds[i].text, "x = shortcut(x, u,"));
        assert_non_null(strstr(v2->kinds[i].text, "conv(u,"));
    }
    snd_arena_destroy(a);
}

// The norm on the branch's output keeps no stream flat: each sublayer adds exactly 1 to what the embedding brought.
static void u21_norm_on_the_branch_adds_one(void **state) {
    (void)state;
    theory t = predict("in: x = 0.02*x\nlayer: x = x + N(M(x)); x = x + N(M(x))\nout: x = N(x)",
                       KEYS("layers=16", "eps=1e-12"));
    for (int l = 0; l < 16; l++) CHECK_REL(q_after(&t, l), 4e-4 + 2 * (l + 1), 1e-6);
    forget(&t);
}

// Whatever is described, every layer is shown with its formula, every norm with its kind and eps, and the end is told.
static void u22_every_layer_is_shown(void **state) {
    (void)state;
    for (int i = 0; i < snd_preset_count(); i++) {
        snd_arena *a = snd_arena_create();
        const snd_spec *s = spec_of(a, snd_preset_name(i), NULL, 0);
        const snd_description *d = described(a, snd_preset_name(i), NULL, 0);
        int64_t shown = 0;
        for (int k = 0; k < d->n_kinds; k++) {
            assert_non_null(strstr(d->kinds[k].text, "x = "));
            shown += d->kinds[k].count;
        }
        assert_int_equal(shown, s->arch == SND_ARCH_ENCDEC ? s->encoder_layers + s->decoder_layers : s->layers);
        bool end = d->n_sites == 0;
        for (int k = 0; k < d->n_lines; k++)
            end = end || strstr(d->lines[k], "out.x is normalised") || strstr(d->lines[k], "no norm after");
        for (int k = 0; k < d->n_sites; k++)
            assert_true(strstr(d->sites[k].text, "eps") || d->sites[k].kind == SND_NORM_SCALE);
        if (!end) fail_msg("%s: nothing is said about its end", snd_preset_name(i));
        snd_arena_destroy(a);
    }
}

// Nothing that is said of norm on the branch's output calls it stable: no verdict, no line of describe, no remedy of another
// net, and the catalogue sends its reader to the measured learning rates (docs/training.md).
static void u24_norm_on_the_branch_is_not_called_stable(void **state) {
    (void)state;
    static const char *const NETS[] = {"respost", "post", "b2t", "residual", "plain"};
    assert_non_null(strstr(snd_wiring_find("respost")->notes, "learning rate"));
    for (int i = 0; i < 5; i++) {
        snd_arena *a = snd_arena_create();
        const char *const keys[] = {"layers=18", "heads=2", "width=64", "vocab=50", "position=rope"};
        snd_spec *spec = (snd_spec *)(uintptr_t)spec_of(a, NETS[i], keys, 5);
        const snd_description *d = described(a, NETS[i], keys, 5);
        snd_record *r = snd_record_create(a, SND_REC_PREDICT);
        CHECK_OK(snd_lab_predict(r, spec, NETS[i], &(snd_measure_opts){.rows = 4, .tokens = 16, .threads = 1}));
        CHECK_OK(snd_rules_run(spec, d, r->runs[0], NULL));
        assert_true(r->n_verdicts > 0);
        for (int k = 0; k < r->n_verdicts; k++) {
            const snd_verdict *v = r->verdicts[k];
            assert_null(strstr(v->why, "stable"));
            if (v->remedy) assert_true(!strstr(v->remedy, "stable") && !strstr(v->remedy, "respost"));
        }
        for (int k = 0; k < d->n_lines; k++) assert_null(strstr(d->lines[k], "stable"));
        snd_arena_destroy(a);
    }
}

// x + N(F(N(x))) leaves the stream alone, N(x + F(N(x))) stands on it: two wirings, told apart.
static void u25_two_sandwiches(void **state) {
    (void)state;
    snd_arena *a = snd_arena_create();
    const snd_description *branch = described(a, "sandwich", KEYS("layers=2", "heads=2"));
    const snd_description *trunk = described(a, "each: x = N(x + F(N(x)))", KEYS("layers=2", "heads=2"));
    assert_non_null(strstr(branch->kinds[0].text, "x = x + N(F(N(x)))"));
    assert_non_null(strstr(trunk->kinds[0].text, "x = N(x + F(N(x)))"));
    assert_non_null(strstr(snd_wiring_find("sandwich")->notes, "LN(x + F(LN(x)))"));
    theory grows = predict("sandwich", KEYS("layers=8")), stays = predict("each: x = N(x + F(N(x)))", KEYS("layers=8"));
    CHECK_REL(q_after(&grows, 7), 9, 1e-4);
    CHECK_REL(q_after(&stays, 7), 1, 1e-4);
    forget(&grows);
    forget(&stays);
    snd_arena_destroy(a);
}

// ---- attention's scale ------------------------------------------------------------------------------------------------------------

enum { QUERIES = 64 };

typedef struct seen {
    double sd, stats[SND_AS_COUNT]; // of the scores; of the weights
} seen;

// Scores of normal q and k of one head (each of size sqrt(hd) when `normed`), and what attention makes of them.
static seen attend(int64_t hd, double scale, bool normed) {
    static double x[2][QUERIES * 512], s[QUERIES * QUERIES];
    net n = net_open(SND_F64);
    snd_id in[2], use[2];
    for (int k = 0; k < 2; k++) {
        for (int64_t i = 0; i < QUERIES * hd; i++) x[k][i] = draw_normal("attend", k, i);
        use[k] = in[k] = net_input(&n, SND_SHAPE(1, QUERIES, hd), SND_DT_NONE);
        if (normed) use[k] = snd_g_rmsnorm(n.g, in[k], 0, 0, 1e-12, false);
    }
    const snd_attn a = {.heads = 1, .kv_heads = 1, .scale = scale, .bias = SND_ATTN_PLAIN};
    n.y[0] = snd_g_attention_stats(n.g, &a, use[0], use[1], use[1], 0, 0, 0);
    n.y[1] = snd_g_scale(n.g, scale, snd_g_linear(n.g, use[0], snd_g_reshape(n.g, use[1], SND_SHAPE(QUERIES, hd))));
    n.n_y = 2;
    net_close_graph(&n, false, 1, 7);
    for (int k = 0; k < 2; k++) CHECK_OK(snd_exec_set(n.exec, in[k], x[k], SND_F64));
    CHECK_OK(snd_exec_run(n.exec));
    seen out = {0};
    CHECK_OK(snd_exec_get(n.exec, n.y[0], out.stats));
    CHECK_OK(snd_exec_get(n.exec, n.y[1], s));
    for (int i = 0; i < QUERIES * QUERIES; i++) out.sd += s[i] * s[i] / (QUERIES * QUERIES);
    out.sd = sqrt(out.sd);
    net_destroy(&n);
    return out;
}

// Scores have sd scale*sqrt(hd): 1 with the usual scale, hd^-1/2 when it was applied twice, and then attention is nearly an
// average: the entropy, ln n - sd^2/2 for normal scores, tells them apart. describe shows the scale; a verdict, of theory
// as of measurement, gives the size of the scores and names the scale.
static void u54_scale_applied_twice(void **state) {
    (void)state;
    const double once = 1 / sqrt(64), least = 1 - 0.5 / log(QUERIES);
    const seen right = attend(64, once, false), twice = attend(64, once * once, false);
    CHECK_CLOSE(right.sd, 1, 0.05);
    CHECK_CLOSE(twice.sd, once, 0.05 * once);
    CHECK_CLOSE(right.stats[SND_AS_SHARE], least, 0.03);
    CHECK_CLOSE(twice.stats[SND_AS_SHARE], 1 - 0.5 * once * once / log(QUERIES), 0.001);
    snd_arena *a = snd_arena_create();
    const snd_description *d = described(a, "pre", KEYS("layers=1", "width=128", "heads=2"));
    assert_non_null(strstr(d->kinds[0].subs, "scale 0.125"));
    d = described(a, "pre", KEYS("layers=1", "width=128", "heads=2", "attn_scale=1/64"));
    assert_non_null(strstr(d->kinds[0].subs, "scale 0.01562"));
    for (int measured = 0; measured < 2; measured++) {
        const char *keys[] = {"layers=1", "width=128", "heads=2", "attn_scale=1/8"};
        assert_null(verdict(a, "attention-scale", measured, "pre", keys, 4));
        keys[3] = "attn_scale=1/64";
        const snd_verdict *v = verdict(a, "attention-scale", measured, "pre", keys, 4);
        assert_non_null(v);
        assert_string_equal(v->where, "layers.0.A.out");
        CHECK_REL(pow(10, v->value), 1.0 / 8, 1e-3);
        assert_non_null(strstr(v->why, "applied twice"));
    }
    snd_arena_destroy(a);
}

static void saturated_verdicts(snd_arena *a, int64_t hd, bool measured) {
    char width[32];
    snprintf(width, sizeof width, "width=%d", (int)hd);
    const char *keys[] = {"layers=1", "heads=1", "qk_norm=rms-head", width, "attn_scale=1/sqrt(head_dim)"};
    assert_null(verdict(a, "attention-scale", measured, "pre", keys, 5));
    assert_null(verdict(a, "attention-saturated", measured, "pre", keys, 5));
    keys[4] = "attn_scale=1";
    const snd_verdict *size = verdict(a, "attention-scale", measured, "pre", keys, 5);
    const snd_verdict *weights = verdict(a, "attention-saturated", measured, "pre", keys, 5);
    assert_true(size && weights);
    CHECK_REL(pow(10, size->value), sqrt((double)hd), 1e-6);
    assert_true(weights->value < 0.2);
    assert_int_equal(strstr(weights->why, "largest score") != NULL, measured);
    assert_non_null(strstr(weights->remedy, "attn_scale=1/sqrt(head_dim)"));
}

// Queries and keys that were normalised have size sqrt(hd), so a scale of 1 gives scores of sd sqrt(hd): one key takes all.
// Verdicts say both, of theory as of measurement.
static void u56_normed_queries_and_scale_one(void **state) {
    (void)state;
    static const int widths[] = {64, 256, 512};
    for (int i = 0; i < 3; i++) {
        const double root = sqrt(widths[i]);
        const seen one = attend(widths[i], 1, true), usual = attend(widths[i], 1 / root, true);
        CHECK_REL(one.sd, root, 0.05);
        CHECK_REL(usual.sd, 1, 0.05);
        assert_true(one.stats[SND_AS_SHARE] < 0.2 && usual.stats[SND_AS_SHARE] > 0.8);
        CHECK_REL(one.stats[SND_AS_MAXLOGIT], root * usual.stats[SND_AS_MAXLOGIT], 1e-9);
        assert_true(one.stats[SND_AS_MAXLOGIT] > 3 * root);
        snd_arena *a = snd_arena_create();
        for (int measured = 0; measured < 2; measured++) saturated_verdicts(a, widths[i], measured);
        snd_arena_destroy(a);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(u01_norm_then_split),
                                       cmocka_unit_test(u02_norm_then_split_has_a_name),
                                       cmocka_unit_test(u03_each_norm_in_its_place),
                                       cmocka_unit_test(u04_post_norm_with_a_final_norm),
                                       cmocka_unit_test(u05_no_final_norm),
                                       cmocka_unit_test(u06_unused_norm),
                                       cmocka_unit_test(u07_deepnorm),
                                       cmocka_unit_test(u10_scale_norm),
                                       cmocka_unit_test(u11_drawn_gains),
                                       cmocka_unit_test(u13_adaln_zero),
                                       cmocka_unit_test(u15_scaled_output_maps),
                                       cmocka_unit_test(u16_parallel_or_not),
                                       cmocka_unit_test(u19_branch_factor),
                                       cmocka_unit_test(u20_resnet_details),
                                       cmocka_unit_test(u21_norm_on_the_branch_adds_one),
                                       cmocka_unit_test(u22_every_layer_is_shown),
                                       cmocka_unit_test(u24_norm_on_the_branch_is_not_called_stable),
                                       cmocka_unit_test(u25_two_sandwiches),
                                       cmocka_unit_test(u54_scale_applied_twice),
                                       cmocka_unit_test(u56_normed_queries_and_scale_one)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
