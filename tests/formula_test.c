// The wiring language: grammar, printing, constants, scopes, sites and names, sublayer counting, the catalogue. The
// expected names and places are those of docs/formulas.md.
#include "formula/formula.h"

#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- grammar --------------------------------------------------------------------------------------------------------------

static double constant(const char *text) {
    snd_arena *a = snd_arena_create();
    snd_expr *x;
    const snd_const env[] = {{"l", 3}, {"L", 12}, {"d", 64}};
    double v = NAN;
    if (snd_expr_parse(a, text, &x) != SONDE_OK || snd_expr_const(x, env, 3, &v) != SONDE_OK) v = NAN;
    snd_arena_destroy(a);
    return v;
}

static void constants(void **state) {
    (void)state;
    const struct {
        const char *text;
        double v;
    } cases[] = {{"-2^2", -4},
                 {"2^3^2", 512},
                 {"2^-1", 0.5},
                 {"2*-3", -6},
                 {"7 - 2 - 1", 4},
                 {"8/4/2", 1},
                 {"1 + 2*3", 7},
                 {"7 % 3", 1},
                 {"l < 2 ? 0.5 : l == 3 ? 0.25 : -1", 0.25},
                 {"(l >= 3)*2 + (L != 12)", 2},
                 {"min(3, floor(3.9), max(1, 2))", 2},
                 {".5 + 2. + 1e-2", 2.51},
                 {"sqrt(L*3)", 6},
                 {"log(e)*abs(-2)", 2},
                 {"sigmoid(0) + relu(-1)", 0.5},
                 {"- - 2", 2},
                 {"(\n1 +\n2)", 3},
                 {"L <= 18 ? 0.1 : 1", 0.1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) CHECK_CLOSE(constant(cases[i].text), cases[i].v, 1e-12);
}

static void refuse(const char *text, const char *words) {
    snd_arena *a = snd_arena_create();
    snd_formula *f;
    if (snd_formula_parse(a, text, &f) == SONDE_OK) fail_msg("'%s' was accepted", text);
    if (!strstr(sonde_error_message(), words))
        fail_msg("'%s': the message lacks '%s': %s", text, words, sonde_error_message());
    snd_arena_destroy(a);
}

// "each: x = x" and then `part` n times: readers recurse over the tree, so its height has a bound.
static void refuse_long(const char *head, const char *part, int n, const char *words) {
    const size_t len = strlen(part);
    char *text = malloc(strlen(head) + len * (size_t)n + 2);
    assert_non_null(text);
    char *p = stpcpy(text, head);
    for (int i = 0; i < n; i++) p = stpcpy(p, part);
    strcpy(p, "x");
    refuse(text, words);
    free(text);
}

static void syntax_errors(void **state) {
    (void)state;
    refuse("each: x = x + F(N(x)) + @", "line 1, column 25");
    refuse("each: x = x + F(N(x))\nout: x = = x", "line 2, column 10");
    refuse("eech: x = x + F(N(x))", "each");
    refuse("each: x = x + F(N(x))  outt: x = N(x)", "out");
    refuse("each: x + F(N(x))", "'='");
    refuse("each: x = x + F(N(x)", ")");
    refuse("each: x = 1 < 2 < 3", "chain");
    refuse("each: x = x  each: x = x", "twice");
    refuse("layer: y = x  layer: y = x", "twice");
    refuse("in: in = x", "label");
    refuse("each: x = F(eps=1, x)", "named");
    refuse("", "statement");
    refuse("# nothing", "statement");
    refuse("init: xavir", "xavier");
    refuse("each: x = F(x) init: v *= 2; xavier", "first");
    refuse("each: x = F(x) init: vv *= 2", "role");
    refuse("each: x = F(x) init: normal", "normal(0.02)");
    refuse("each: x = 2 ? 3", "':'");
    refuse("each: x = x +\nF(x)", "end of the line");
    refuse_long("each: x = ", "x + ", 100000, "give a part a name");
    refuse_long("each: x = ", "2^", 100000, "nested deeper");
    refuse_long("each: x = ", "-", 100000, "nested deeper");
    refuse_long("each: x = ", "(", 100000, "nested deeper");
    refuse_long("each: x = ", "l ? x : ", 100000, "nested deeper");
}

static void sections(void **state) {
    (void)state;
    snd_arena *a = snd_arena_create();
    snd_formula *f;
    assert_int_equal(snd_formula_parse(a, "x = x + F(x)", &f), SONDE_OK);
    assert_true(f->has[SND_SEC_EACH] && !f->has[SND_SEC_LAYER]);
    assert_int_equal(snd_formula_parse(a, "h = N(x + A(x)); x = h", &f), SONDE_OK);
    assert_true(f->has[SND_SEC_LAYER] && !f->has[SND_SEC_EACH]);
    assert_int_equal(snd_formula_parse(a, "layer: y = x each: x = F(x) layer: x = x + y", &f), SONDE_OK);
    assert_true(f->has[SND_SEC_LAYER] && f->has[SND_SEC_EACH] && f->has[SND_SEC_LAYER2]);
    assert_int_equal(snd_formula_parse(a, "each: x = F(x) layer: x = x/2", &f), SONDE_OK);
    assert_true(!f->has[SND_SEC_LAYER] && f->has[SND_SEC_LAYER2]);
    snd_arena_destroy(a);
}

// Every catalogue entry prints to a text that parses to the same print.
static void catalogue_prints(void **state) {
    (void)state;
    assert_true(snd_wiring_count() >= 42);
    for (int i = 0; i < snd_wiring_count(); i++) {
        const snd_wiring *w = snd_wiring_at(i);
        snd_arena *a = snd_arena_create();
        snd_formula *f;
        snd_buf one = {0}, two = {0};
        if (snd_formula_parse(a, w->formula, &f) != SONDE_OK) fail_msg("%s: %s", w->key, sonde_error_message());
        snd_formula_print(f, &one);
        assert_int_equal(snd_formula_parse(a, one.s, &f), SONDE_OK);
        snd_formula_print(f, &two);
        assert_string_equal(one.s, two.s);
        assert_true(*w->title && *w->source && *w->notes);
        snd_buf_free(&one);
        snd_buf_free(&two);
        snd_arena_destroy(a);
    }
    static const char *const must[] = {"plain",
                                       "residual",
                                       "scaled-by-index",
                                       "scaled-by-depth",
                                       "scaled-half",
                                       "scale-in",
                                       "scale-stream",
                                       "post",
                                       "pre",
                                       "pre-nofinal",
                                       "norm-then-split",
                                       "sandwich",
                                       "peri",
                                       "respost",
                                       "subln",
                                       "deepnorm",
                                       "b2t",
                                       "resi-dual",
                                       "admin",
                                       "rezero",
                                       "skipinit",
                                       "fixup",
                                       "tfixup",
                                       "layerscale",
                                       "mixln",
                                       "lns",
                                       "keel",
                                       "parallel",
                                       "normformer",
                                       "hybridnorm",
                                       "ngpt",
                                       "adaln",
                                       "adaln-zero",
                                       "highway",
                                       "gpas",
                                       "ortho",
                                       "siamese",
                                       "denseformer",
                                       "attnres",
                                       "hyper-connections",
                                       "mhc",
                                       "value-residual",
                                       "resnet-v1",
                                       "resnet-v2"};
    for (size_t i = 0; i < sizeof must / sizeof *must; i++)
        if (!snd_wiring_find(must[i])) fail_msg("the catalogue lacks %s", must[i]);
    assert_null(snd_wiring_find("prallel"));
    assert_string_equal(snd_wiring_nearest("prallel"), "parallel");
}

// ---- the walker: a reader that writes down what it is asked -------------------------------------------------------------------

typedef struct notes {
    snd_buf log;
    int32_t id;
} notes;

static sonde_status new_id(notes *n, snd_val *out) {
    out->id = ++n->id;
    return SONDE_OK;
}

static sonde_status r_unary(void *s, snd_fn f, snd_val a, snd_val *o) {
    return (void)f, (void)a, new_id(s, o);
}
static sonde_status r_binary(void *s, snd_bin op, snd_val a, snd_val b, snd_val *o) {
    return (void)op, (void)a, (void)b, new_id(s, o);
}
static sonde_status r_one(void *s, snd_val a, snd_val *o) {
    return (void)a, new_id(s, o);
}
static sonde_status r_two(void *s, snd_val a, snd_val b, snd_val *o) {
    return (void)a, (void)b, new_id(s, o);
}

static sonde_status r_norm(void *s, const snd_site *site, const snd_norm_args *n, snd_val a, snd_val *o) {
    notes *t = s;
    (void)a;
    snd_buf_printf(&t->log, "%s:%s%s ", site->name, snd_norm_name(n->kind), n->affine ? "" : "0");
    return new_id(t, o);
}

static sonde_status r_linear(void *s, const snd_site *site, const snd_linear_args *l, snd_val a, snd_val *o) {
    notes *t = s;
    (void)a;
    snd_buf_printf(&t->log, "%s:%lld ", site->name, (long long)l->out);
    return new_id(t, o);
}

static sonde_status r_learned(void *s, const snd_site *site, double v, snd_val *o) {
    notes *t = s;
    snd_buf_printf(&t->log, "%s=", site->name);
    snd_buf_num(&t->log, v, 6);
    snd_buf_put(&t->log, " ");
    return new_id(t, o);
}

static sonde_status r_sublayer(void *s, const snd_site *site, const snd_sub_args *g, snd_val a, snd_val *o) {
    notes *t = s;
    (void)a;
    (void)g;
    snd_buf_printf(&t->log, "%s() ", site->name);
    return new_id(t, o);
}

static sonde_status r_depth(void *s, const snd_site *site, const snd_val *list, int n, snd_val *o) {
    notes *t = s;
    (void)list;
    snd_buf_printf(&t->log, "%s[%d] ", site->name, n);
    return new_id(t, o);
}

static const snd_reader READER = {.unary = r_unary,
                                  .binary = r_binary,
                                  .norm = r_norm,
                                  .linear = r_linear,
                                  .scalar = r_learned,
                                  .vector = r_learned,
                                  .unit = r_one,
                                  .dot = r_two,
                                  .rms = r_one,
                                  .stop = r_one,
                                  .depthmix = r_depth,
                                  .sublayer = r_sublayer,
                                  .alias = r_one};

static sonde_status walk(const char *text, bool mlp, int layers, char *log, size_t size, int *calls) {
    snd_arena *a = snd_arena_create();
    snd_formula *f;
    snd_expr *block = NULL;
    notes n = {0};
    snd_reader r = READER;
    r.self = &n;
    sonde_status s = snd_formula_parse(a, text, &f);
    if (s == SONDE_OK) s = snd_expr_parse(a, "W(relu(W(u, n, gain=2)), d, gain=1)", &block);
    if (s == SONDE_OK) {
        const snd_stack stack = {
            .prefix = "",
            .f = f,
            .block = mlp ? block : NULL,
            .mlp = mlp,
            .L = layers,
            .d = 12,
            .n = 30,
            .norm = {.kind = SND_NORM_LAYER, .eps = 1e-5, .gain = 1, .affine = true, .bias = true}};
        snd_walk w = {.arena = a, .stack = &stack, .reader = &r};
        snd_val out;
        s = snd_walk_stack(&w, (snd_val){.kind = SND_V_STREAM, .cols = 12, .id = 1}, &out);
        if (calls) *calls = w.n_sublayers;
    }
    snprintf(log, size, "%s", s == SONDE_OK && n.log.s ? n.log.s : "");
    snd_buf_free(&n.log);
    snd_arena_destroy(a);
    return s;
}

static void expect(const char *text, bool mlp, int layers, const char *want) {
    char log[4096];
    if (walk(text, mlp, layers, log, sizeof log, NULL) != SONDE_OK) fail_msg("%s: %s", text, sonde_error_message());
    if (strcmp(log, want)) fail_msg("%s gave\n  %s\nnot\n  %s", text, log, want);
}

static void sites_and_names(void **state) {
    (void)state;
    expect(
        "each: x = x + N(F(N(x)))", false, 1,
        "layers.0.A.N1:layer layers.0.A() layers.0.A.N2:layer layers.0.M.N1:layer layers.0.M() layers.0.M.N2:layer ");
    expect("layer: x = x + 0.5*M(N(x))  each: x = x + F(N(x))", false, 1,
           "layers.0.N1:layer layers.0.M() layers.0.A.N1:layer layers.0.A() layers.0.M.N1:layer layers.0.M2() ");
    expect("each: x = x + scalar(1)*F(x)", true, 2,
           "layers.0.F.s1=1 layers.0.F.block.W1:30 layers.0.F.block.W2:12 "
           "layers.1.F.s1=1 layers.1.F.block.W1:30 layers.1.F.block.W2:12 ");
    expect("layer: h = N(x + M(x)); x = N(x + h + M(h))", true, 1,
           "layers.0.M.block.W1:30 layers.0.M.block.W2:12 layers.0.N1:layer "
           "layers.0.M2.block.W1:30 layers.0.M2.block.W2:12 layers.0.N2:layer ");
    // an arm that is not taken has no sites; kinds and N0 share N's counter
    expect("each: x = l == 1 ? N(x) + RMS(x) : N0(SN(x))", true, 2,
           "layers.0.F.N1:layer layers.0.F.N2:rms layers.1.F.N1:scale layers.1.F.N2:layer0 ");
    // both parts of layer: count on; in: and out: have counters of their own
    expect("in: x = W(N(x))  layer: y = N(x)  each: x = x + F(y)  layer: x = N(x)  out: x = N(W(x))", true, 1,
           "in.N1:layer in.W1:12 layers.0.N1:layer layers.0.F.block.W1:30 layers.0.F.block.W2:12 layers.0.N2:layer "
           "out.W1:12 out.N1:layer ");
    expect("layer: x = depthmix(x)  each: x = x + F(x)", false, 2,
           "layers.0.depthmix1[1] layers.0.A() layers.0.M() layers.1.depthmix1[2] layers.1.A() layers.1.M() ");
}

static void counting(void **state) {
    (void)state;
    char log[4096];
    int calls = 0;
    assert_int_equal(walk("each: x = S*x + F(x)", false, 3, log, sizeof log, &calls), SONDE_OK);
    assert_int_equal(calls, 6);
    // s numbers the statement's first call, and in a statement without one the next call
    expect("each: y = scalar(s); x = scalar(s)*F(x)", false, 2,
           "layers.0.A.s1=1 layers.0.A.s2=1 layers.0.A() layers.0.M.s1=2 layers.0.M.s2=2 layers.0.M() "
           "layers.1.A.s1=3 layers.1.A.s2=3 layers.1.A() layers.1.M.s1=4 layers.1.M.s2=4 layers.1.M() ");
    expect("each: x = scalar(S)*x + F(x)", true, 2,
           "layers.0.F.s1=2 layers.0.F.block.W1:30 layers.0.F.block.W2:12 layers.1.F.s1=2 layers.1.F.block.W1:30 "
           "layers.1.F.block.W2:12 ");
    assert_int_equal(walk("each: x = F(x)\nlayer: x = s*x", true, 1, log, sizeof log, NULL), SONDE_ENAME);
    assert_int_equal(walk("each: x = S > 1 ? F(x) : x", true, 2, log, sizeof log, NULL), SONDE_ETYPE);
    assert_int_equal(walk("each: x = S > 1 ? x*2 : x", true, 2, log, sizeof log, NULL), SONDE_OK);
}

static void refuse_walk(const char *text, bool mlp, const char *words) {
    char log[4096];
    if (walk(text, mlp, 2, log, sizeof log, NULL) == SONDE_OK) fail_msg("'%s' was accepted", text);
    if (!strstr(sonde_error_message(), words))
        fail_msg("'%s': the message lacks '%s': %s", text, words, sonde_error_message());
}

static void meaning_errors(void **state) {
    (void)state;
    refuse_walk("each: x = x + F(gelo(N(x)))", false, "gelu");
    refuse_walk("each: y = F(N(x)); x = x + z", false, "'z'");
    refuse_walk("each: y = F(x); x = x + yy", false, "'y'");
    refuse_walk("layer: x = x + F(N(x))", false, "layer:");
    refuse_walk("each: x = rms(x) > 1 ? x : x + F(x)", false, "constant");
    refuse_walk("each: x = x + W(F(N(x)), n)", false, "30");
    refuse_walk("layer: x = x + A(N(x))", true, "mlp");
    refuse_walk("layer: x = x + C(N(x))", false, "encoder");
    refuse_walk("each: x = x + F(N(x, epz=1))", false, "eps");
    refuse_walk("each: x = x + F(N(x, eps=rms(x)))", false, "constant");
    refuse_walk("each: x = x + dot(F(N(x)))*x", false, "2");
    refuse_walk("each: x = x + F(N(x))*W(c)", false, "cond");
    refuse_walk("each: x = 1", false, "x is the stream");
    refuse_walk("each: x = x^2", true, "constants");
    refuse_walk("each: x = x + log(0)*F(x)", true, "finite");
    refuse_walk("in: y = l  each: x = F(x)", true, "in:");
    refuse_walk("each: x = W(x, 0.5)", true, "whole number");
    refuse_walk("each: x = floor(x)", true, "constants");
    refuse_walk("each: x = F(x, vnorm=1)", true, "attention");
}

static void scoping(void **state) {
    (void)state;
    char log[4096];
    // a name of layer: lives for that layer only, one of each: for that repetition only
    refuse_walk("layer: y = l > 1 ? z : x; z = x  each: x = x + F(y)", true, "'z'");
    refuse_walk("each: x = x + F(x); t = x  layer: x = t", true, "'t'");
    // assigning a constant's name shadows it; the block still sees the constant
    assert_int_equal(walk("layer: n = N(x); x = x + M(n)", true, 2, log, sizeof log, NULL), SONDE_OK);
    assert_non_null(strstr(log, "layers.1.M.block.W1:30"));
    // a name of in: is a stream, carried on and assigned from inside
    assert_int_equal(
        walk("in: y = x  each: o = F(x + y); y = y + o; x = N(o)  out: x = x + y", true, 2, log, sizeof log, NULL),
        SONDE_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(constants),       cmocka_unit_test(syntax_errors),
                                       cmocka_unit_test(sections),        cmocka_unit_test(catalogue_prints),
                                       cmocka_unit_test(sites_and_names), cmocka_unit_test(counting),
                                       cmocka_unit_test(meaning_errors),  cmocka_unit_test(scoping)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
