// describe against what is known from elsewhere: published parameter counts, the build reader's own parameters for every
// wiring, measured gradients (zero exactly where describe says so), and hand-made texts of layer kinds and multipliers.
#include "check.h"
#include "lab/lab.h"
#include "readers/readers.h"

#include <string.h>

static snd_description *describe(snd_arena *a, const char *spec, const char *const *keys, int n, snd_spec **out) {
    snd_spec *s = NULL;
    snd_description *d = NULL;
    CHECK_OK(snd_spec_load(a, spec, keys, n, &s));
    CHECK_OK(snd_describe(a, s, &d));
    if (out) *out = s;
    return d;
}
#define KEYS(...) (const char *const[]){__VA_ARGS__}, (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *))

static const snd_param_row *param(const snd_description *d, const char *name) {
    for (int i = 0; i < d->n_params; i++)
        if (!strcmp(d->params[i].name, name)) return &d->params[i];
    fail_msg("no parameter %s", name);
    return NULL;
}

static bool has_line(const snd_description *d, const char *text) {
    for (int i = 0; i < d->n_lines; i++)
        if (strstr(d->lines[i], text)) return true;
    return false;
}

// Sizes as published or in the models' own files; what a spec lacks is in the preset's notes.
static void test_published_counts(void **state) {
    (void)state;
    static const struct {
        const char *preset;
        int64_t n;
    } table[] = {{"gpt2", 124439808},        {"gpt2-medium", 354823168},  {"gpt2-large", 774030080},
                 {"gpt2-xl", 1557611200},    {"llama2-7b", 6738415616},   {"llama3-8b", 8030261248},
                 {"olmo2-7b", 7298617344},   {"qwen3-0.6b", 596049920},   {"gemma3-270m", 268098176},
                 {"t5-base", 222903552},     {"t5-v1.1-base", 247577856}, {"palm-8b", 8632012800},
                 {"gpt3-175b", 174604259328}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        snd_arena *a = snd_arena_create();
        const snd_description *d = describe(a, table[i].preset, NULL, 0, NULL);
        assert_int_equal(d->n_learned, table[i].n);
        snd_arena_destroy(a);
    }
}

// Every wiring that the mlp family can run: the same parameters, shapes and starts as the graph that is measured.
static void same_as_build(const snd_spec *s, const snd_description *d, snd_arena *a) {
    snd_model *m = NULL;
    CHECK_OK(snd_model_build(a, s, &(snd_build){.dtype = SND_F64, .rows = 4}, &m));
    assert_int_equal(snd_g_param_count(m->g), d->n_params);
    for (int i = 0; i < snd_g_param_count(m->g); i++) {
        const snd_value *v = snd_g_value(m->g, snd_g_param_at(m->g, i));
        const snd_param_row *p = param(d, v->name);
        assert_true(snd_shape_same(v->shape, p->shape));
        assert_int_equal(snd_g_param_is_state(m->g, i), p->state);
        CHECK_REL(p->var, snd_nn_init_var(snd_g_param_init(m->g, i)), 1e-12);
        if (snd_g_param_init(m->g, i)->kind == SND_INIT_CONST)
            CHECK_CLOSE(p->mean, snd_g_param_init(m->g, i)->a * snd_g_param_init(m->g, i)->factor, 1e-12);
    }
    assert_int_equal(m->n_sublayers, d->n_sublayers);
    assert_int_equal(m->n_calls, d->n_calls);
    for (int i = 0; i < d->n_calls; i++) assert_string_equal(m->calls[i].name, d->calls[i].name);
}

static void test_same_as_build(void **state) {
    (void)state;
    int n = 0;
    for (int i = 0; i < snd_wiring_count(); i++) {
        const snd_wiring *w = snd_wiring_at(i);
        if (strcmp(w->family, "any") != 0) continue;
        snd_arena *a = snd_arena_create();
        snd_spec *s;
        const snd_description *d =
            describe(a, w->key, KEYS("layers=3", "width=6", "hidden=5", "cond=4", "inputs=7", "outputs=2"), &s);
        same_as_build(s, d, a);
        snd_arena_destroy(a);
        n++;
    }
    assert_true(n > 30);
    static const char *const norms[] = {"norm=layer", "norm=rms",  "norm=batch", "norm=scale",
                                        "norm=dyt",   "norm=derf", "norm=none"};
    for (size_t k = 0; k < sizeof norms / sizeof *norms; k++) {
        snd_arena *a = snd_arena_create();
        snd_spec *s;
        const snd_description *d =
            describe(a, "each: x = x + N0(F(N(x, gain=0.5)))",
                     KEYS("layers=2", "width=6", norms[k], "plus1=true", "init=he; W *= l; g = one"), &s);
        same_as_build(s, d, a);
        snd_arena_destroy(a);
    }
}

// Transformers: every wiring in every arch, with what adds parts to sublayers and around the stacks.
static void test_transformers_same_as_build(void **state) {
    (void)state;
    static const char *const arch[] = {"arch=decoder", "arch=encoder", "arch=encoder-decoder"};
    static const char *const extra[][4] = {{"position=learned", "qk_norm=rms-head", "tie=false", "init=gpt2"},
                                           {"position=t5", "qk_norm=rms-full", "gated=true", "init=t5; W *= 0.5"},
                                           {"position=xl", "qk_norm=l2", "bias=false", "norm=scale"},
                                           {"position=sinusoidal", "kv_heads=1", "norm=batch", "plus1=true"}};
    int n = 0;
    for (int i = 0; i < snd_wiring_count(); i++) {
        const snd_wiring *w = snd_wiring_at(i);
        for (int k = 0; strcmp(w->family, "convnet") != 0 && k < 3; k++, n++) {
            const char *const *x = extra[n % 4];
            snd_arena *a = snd_arena_create();
            snd_spec *s;
            const snd_description *d = describe(a, w->key,
                                                KEYS("layers=2", "decoder_layers=3", "width=12", "heads=2", "hidden=5",
                                                     "cond=4", "vocab=9", "context=7", arch[k], x[0], x[1], x[2], x[3]),
                                                &s);
            same_as_build(s, d, a);
            snd_arena_destroy(a);
        }
    }
    assert_true(n > 100);
    snd_arena *a = snd_arena_create();
    snd_spec *s;
    const snd_description *d =
        describe(a, "each: x = x + F(N(x), inner=1, headgain=1, vnorm=1)",
                 KEYS("layers=2", "width=12", "heads=4", "kv_heads=2*l", "arch=encoder-decoder"), &s);
    same_as_build(s, d, a);
    snd_arena_destroy(a);
}

// Deviations of first entries as the papers and their code have them; width 12, hidden 48, 2 heads unless said.
static void test_transformer_starts(void **state) {
    (void)state;
    const double x = sqrt(2.0 / 24), up = sqrt(2.0 / 60), cut = 0.77374130354992; // xavier; what a cut at 2 sd leaves
    const struct {
        const char *spec, *key, *more, *name;
        double sd;
    } table[] = {
        {"deepnorm", "layers=24", "arch=decoder", "layers.3.A.v.weight", x * pow(8 * 24, -0.25)},
        {"deepnorm", "layers=24", "arch=encoder", "layers.3.M.up.weight", up * pow(8 * 24, -0.25)},
        {"deepnorm", "layers=24", "arch=decoder", "layers.3.A.k.weight", x},
        {"deepnorm", "layers=6", "arch=encoder-decoder", "encoder.layers.3.A.o.weight", x * 0.4970},
        {"deepnorm", "layers=6", "arch=encoder-decoder", "decoder.layers.3.C.o.weight", x * 0.3433},
        {"deepnorm", "layers=18", "decoder_layers=6|arch=encoder-decoder", "encoder.layers.0.A.v.weight",
         x * 0.87 * pow(18.0 * 18 * 18 * 18 * 6, -1.0 / 16)},
        {"subln", "layers=6", "arch=decoder", "layers.0.A.v.weight", x * sqrt(log(12))},
        {"subln", "layers=6", "arch=encoder-decoder", "encoder.layers.0.M.down.weight",
         up * sqrt(log(18) * log(12) / 3)},
        {"subln", "layers=6", "arch=encoder-decoder", "decoder.layers.0.M.down.weight", up * sqrt(log(18))},
        {"tfixup", "layers=6", "arch=encoder-decoder", "encoder.layers.0.A.o.weight", x * 0.4281},
        {"tfixup", "layers=6", "arch=encoder-decoder", "decoder.layers.0.A.o.weight", x * 0.3689},
        {"tfixup", "layers=6", "arch=encoder-decoder", "embed.token.weight", 0.3689 / sqrt(12)},
        {"ngpt", "layers=6", "arch=decoder", "layers.0.M.down.weight", 1 / sqrt(12)},
        {"ngpt", "layers=6", "arch=decoder", "embed.token.weight", 1 / sqrt(12)},
        {"pre", "layers=6", "init=gpt2", "layers.0.M.down.weight", 0.02 / sqrt(12)},
        {"pre", "layers=6", "init=gpt2", "layers.0.M.up.weight", 0.02},
        {"pre", "layers=6", "init=gpt2", "embed.position.weight", 0.01},
        {"pre", "layers=6", "init=llama", "layers.0.A.o.weight", 0.02},
        {"pre", "layers=6", "init=bert", "layers.0.A.o.weight", 0.02 * sqrt(cut)},
        {"pre", "layers=6", "init=t5|head_dim=5|tie=false", "layers.0.A.q.weight", 1 / sqrt(12 * 5)},
        {"pre", "layers=6", "init=t5|head_dim=5|tie=false", "layers.0.A.o.weight", 1 / sqrt(2 * 5)},
        {"pre", "layers=6", "init=t5|head_dim=5|tie=false", "layers.0.A.k.weight", 1 / sqrt(12)},
        {"pre", "layers=6", "init=t5|head_dim=5|tie=false", "layers.0.M.down.weight", 1 / sqrt(48)},
        {"pre", "layers=6", "init=t5|head_dim=5|tie=false", "embed.token.weight", 1},
        {"pre", "layers=6", "init=t5|head_dim=5|tie=false", "head.weight", 1 / sqrt(12)},
        {"pre", "layers=6", "init=t5|position=t5", "embed.relative.weight", 1 / sqrt(12)},
        {"pre", "layers=6", "init=xavier", "embed.token.weight", sqrt(0.5)},
        {"pre", "layers=6", "init=xavier", "embed.position.weight", sqrt(0.5)},
        {"pre", "layers=6", "init=he|position=rope", "embed.token.weight", 1},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const char *keys[12] = {"width=12", "heads=2", "vocab=9", "context=7", "position=learned", table[i].key};
        char more[100], *save = NULL;
        int n = 6;
        snprintf(more, sizeof more, "%s", table[i].more);
        for (char *w = strtok_r(more, "|", &save); w; w = strtok_r(NULL, "|", &save)) keys[n++] = w;
        snd_arena *a = snd_arena_create();
        const snd_description *d = describe(a, table[i].spec, keys, n, NULL);
        const double sd = sqrt(param(d, table[i].name)->var);
        if (!(fabs(sd - table[i].sd) <= 2e-4 * table[i].sd))
            fail_msg("%s %s %s: %s starts with %g, %g expected", table[i].spec, table[i].key, table[i].more,
                     table[i].name, sd, table[i].sd);
        snd_arena_destroy(a);
    }
}

// Where describe says that a gradient is exactly zero in the first step it is, and nowhere else.
static void check_gradients(const char *spec, const char *const *keys, int n) {
    snd_arena *a = snd_arena_create();
    snd_spec *s;
    const snd_description *d = describe(a, spec, keys, n, &s);
    snd_record *r = snd_record_create(a, SND_REC_MEASURE);
    CHECK_OK(snd_lab_measure(
        r, s, "t",
        &(snd_measure_opts){.rows = 5, .seeds = 1, .dtype = SND_F64, .bands = SND_BANDS_NONE, .threads = 1}));
    const snd_run *u = r->runs[0];
    int seen = 0;
    for (int i = 0; i < u->n_params; i++) {
        const snd_metric *m = snd_value_find(u->params[i], "wgrms");
        const snd_param_row *p = param(d, u->params[i]->name);
        if (!m || p->state) continue;
        seen++;
        if (p->no_grad == (m->mean == -INFINITY)) continue;
        // mixing streams that are still equal: the gradient is x.g - y.g, zero because of values, not by construction
        if (!p->no_grad && !strcmp(spec, "mhc")) continue;
        fail_msg("%s: %s: described %s, measured log10 %g", spec, p->name, p->no_grad ? "zero" : "not zero", m->mean);
    }
    if (d->n_learned) assert_true(seen > 0);
    snd_arena_destroy(a);
}

static void test_zero_gradients(void **state) {
    (void)state;
    for (int i = 0; i < snd_wiring_count(); i++) {
        const snd_wiring *w = snd_wiring_at(i);
        if (strcmp(w->family, "any") != 0 || strstr(w->formula, "(c)")) continue;
        check_gradients(w->key, KEYS("layers=3", "width=6"));
    }
    static const char *const formulas[] = {"each: x = x + N(F(x), gain=0)",
                                           "each: x = x + relu(scalar(0))*F(x)",
                                           "each: x = stop(x) + F(N(x))",
                                           "each: x = x + scalar(0)*N(F(x))",
                                           "each: x = x + (scalar(1) - 1)*F(x)",
                                           "each: x = x + tanh(scalar(0))*F(x)",
                                           "each: x = x + abs(vector(0))*F(x)",
                                           "each: y = W(x, d, zero=1); x = x + W(y)*F(x)",
                                           "in: y = x\neach: x = x + 0*F(y); y = y + F(x)\nout: x = x + y"};
    for (size_t i = 0; i < sizeof formulas / sizeof *formulas; i++)
        check_gradients(formulas[i], KEYS("layers=2", "width=6"));
    check_gradients("pre", KEYS("layers=2", "width=6", "init=down=zero"));
    check_gradients("pre", KEYS("layers=2", "width=6", "init=up=zero"));
}

static void test_layer_kinds(void **state) {
    (void)state;
    snd_arena *a = snd_arena_create();
    const snd_description *d = describe(a, "mixln", KEYS("layers=32"), NULL);
    assert_int_equal(d->n_kinds, 2);
    assert_string_equal(d->kinds[0].layers, "0..7");
    assert_string_equal(d->kinds[0].text, "each:  x = N(x + F(x))");
    assert_string_equal(d->kinds[1].layers, "8..31");
    assert_string_equal(d->kinds[1].text, "each:  x = x + F(N(x))");
    assert_int_equal(d->kinds[1].count, 24);
    d = describe(a, "deepnorm", KEYS("layers=24"),
                 NULL); // (2*24)^(1/4), (8*24)^(-1/4): the paper's numbers for 24 layers
    assert_string_equal(d->kinds[0].text, "each:  x = N(2.6321*x + F(x))");
    CHECK_CLOSE(sqrt(param(d, "layers.5.F.block.W1.weight")->var / (2.0 / 256)), 0.2686, 1e-3);
    d = describe(a, "scaled-by-index", KEYS("layers=64"), NULL);
    assert_int_equal(d->n_kinds, 1);
    assert_string_equal(d->kinds[0].text, "each:  x = x + F(x)/sqrt(l)");
    assert_string_equal(d->kinds[0].first_text, "each:  x = x + F(x)");
    assert_string_equal(d->kinds[0].last_text, "each:  x = x + F(x)/8");
    d = describe(a, "hyper-connections", KEYS("layers=8"), NULL);
    assert_int_equal(d->n_kinds, 2);
    assert_string_equal(d->kinds[1].layers, "1, 3 .. 7");
    d = describe(a, "gemma3-270m", NULL, 0, NULL);
    assert_int_equal(d->n_kinds, 2);
    assert_string_equal(d->kinds[0].layers, "0..4, 6..10, 12..16");
    assert_non_null(strstr(d->kinds[0].subs, "window 512"));
    assert_null(strstr(d->kinds[1].subs, "window"));
    d = describe(a, "each: x = x + (s > 1 ? F(N(x)) : F(x))", KEYS("heads=2", "width=8", "layers=2"), NULL);
    assert_int_equal(d->n_kinds, 2);
    assert_string_equal(d->kinds[0].text, "A:     x = x + F(x)\nM:     x = x + F(N(x))");
    assert_string_equal(d->kinds[1].text, "each:  x = x + F(N(x))");
    snd_arena_destroy(a);
}

static void test_multipliers(void **state) {
    (void)state;
    snd_arena *a = snd_arena_create();
    const snd_description *d = describe(a, "scaled-by-index", KEYS("layers=64"), NULL);
    assert_int_equal(d->n_mults, 1);
    assert_string_equal(d->mults[0].on, "branch");
    CHECK_CLOSE(d->mults[0].last, 0.125, 1e-12);
    assert_string_equal(d->mults[0].last_at, "layers.63");
    d = describe(a, "scale-in", KEYS("layers=16"), NULL);
    assert_string_equal(d->mults[0].on, "branch input");
    CHECK_CLOSE(d->mults[0].first, 0.25, 1e-12);
    d = describe(a, "scale-stream", KEYS("layers=4"), NULL);
    assert_int_equal(d->n_mults, 1);
    assert_string_equal(d->mults[0].on, "stream");
    d = describe(a, "scaled-half", KEYS("layers=4"), NULL);
    assert_string_equal(d->mults[0].on, "sum");
    d = describe(a, "deepnorm", KEYS("layers=4", "heads=2"), NULL);
    assert_int_equal(d->n_mults, 1);
    assert_string_equal(d->mults[0].on, "stream");
    assert_string_equal(d->mults[0].last_at, "layers.3.M");
    d = describe(a, "rezero", KEYS("layers=4"), NULL);
    assert_true(d->mults[0].learned && d->mults[0].first == 0);
    snd_arena_destroy(a);
}

static void test_norms(void **state) {
    (void)state;
    snd_arena *a = snd_arena_create();
    const snd_description *d = describe(a, "pre", KEYS("layers=4"), NULL);
    assert_true(d->final_norm && d->all_normed && d->identity && d->n_branches == 0);
    assert_int_equal(d->n_site_groups, 2);
    assert_string_equal(d->site_groups[0].text, "layer norm, eps 1e-05, weight and bias");
    d = describe(a, "pre-nofinal", KEYS("layers=4", "norm=rms", "eps=1e-6", "plus1=true"), NULL);
    assert_true(!d->final_norm && d->n_branches == 4);
    assert_string_equal(d->sites[0].text, "rms norm, eps 1e-06, weight w used as 1 + w");
    assert_true(param(d, "layers.0.F.N1.weight")->mean == 0);
    d = describe(a, "each: f = F(N(x)); x = x + f - dot(f, x)/dot(x, x)*x", KEYS("layers=4"),
                 NULL); // one stream, met twice
    assert_int_equal(d->n_branches, 4);
    d = describe(a, "residual", KEYS("layers=4"), NULL); // no norm anywhere: growth is another matter
    assert_int_equal(d->n_branches, 0);
    d = describe(a, "plain", KEYS("layers=4"), NULL);
    assert_false(d->identity);
    d = describe(a, "each: x = N(x + F(x))\nout: x = N(x)", KEYS("layers=4"), NULL);
    assert_string_equal(d->sites[4].after, "layers.3.F.N1");
    d = describe(a, "each: x = N(x + F(x))\nout: x = LN(x)", KEYS("layers=4", "norm=rms"),
                 NULL); // subtracts a mean: not redundant
    assert_null(d->sites[4].after);
    d = describe(a, "respost", KEYS("layers=4"), NULL);
    for (int i = 0; i < d->n_sites; i++) assert_null(d->sites[i].after);
    d = describe(a, "layer: x = x + A(N(x)) + M(N(x))", KEYS("arch=encoder-decoder"), NULL);
    assert_true(has_line(d, "never calls C"));
    d = describe(a, "pre", KEYS("norm=none"), NULL);
    assert_true(has_line(d, "identity"));
    snd_arena_destroy(a);
}

// 2mnk for each product, twice that backward; norms and elementwise are a small rest.
static void test_costs(void **state) {
    (void)state;
    snd_arena *a = snd_arena_create();
    const snd_description *d =
        describe(a, "residual", KEYS("layers=3", "width=8", "hidden=5", "inputs=4", "outputs=2"), NULL);
    CHECK_CLOSE(d->forward.gemm, 2.0 * (4 * 8 + 3 * (8 * 5 + 5 * 8) + 8 * 2), 0);
    CHECK_CLOSE(d->backward.gemm, 2 * d->forward.gemm, 0);
    CHECK_CLOSE(d->forward.elementwise, 3.0 * (5 + 8), 0); // relu and the sum
    assert_int_equal(d->n_learned, 4 * 8 + 3 * 80 + 16);
    assert_int_equal(d->n_weights, d->n_learned);
    CHECK_CLOSE(d->bytes_weights, 4.0 * (double)d->n_learned, 0);
    d = describe(a, "gpt2", NULL, 0, NULL); // 24 d^2 per token and layer, the head, causal pairs
    const double t = 1024, gemm = t * (12.0 * 24 * 768 * 768 + 2.0 * 768 * 50257);
    CHECK_REL(d->forward.gemm, gemm, 1e-12);
    CHECK_REL(d->forward.attention, 12.0 * 12 * (t * (t + 1) / 2) * (4 * 64 + 15), 1e-12);
    // xl: a map for each distance (a decoder looks back only) and a third product per pair
    const char *const xl[] = {"layers=1", "width=8", "heads=2", "context=5", "position=xl", "arch=decoder"};
    d = describe(a, "pre", xl, 6, NULL);
    CHECK_CLOSE(d->forward.gemm, 2.0 * 5 * 13 * 64, 0);
    CHECK_CLOSE(d->forward.attention, 2.0 * 15 * (3 * 2 * 4 + 15), 0);
    d = describe(a, "pre", KEYS(xl[0], xl[1], xl[2], xl[3], xl[4], "arch=encoder"), NULL);
    CHECK_CLOSE(d->forward.gemm, 2.0 * (5 * 12 + 9) * 64, 0);
    CHECK_CLOSE(d->forward.attention, 2.0 * 25 * (3 * 2 * 4 + 15), 0);
    d = describe(a, "pre", KEYS("layers=2", "norm=batch", "width=4"), NULL);
    assert_int_equal(d->n_state, 3 * 2 * 4);
    snd_arena_destroy(a);
}

// By hand: a decoder's next token costs 2 FLOPs per weight of its products and reads the keys that its mask shows.
static void test_next_token(void **state) {
    (void)state;
    snd_arena *a = snd_arena_create();
    const struct {
        const char *preset;
        double weights;               // of the products
        double heads, head_dim, keys; // keys read by the last query, of all layers
        double kv_width, cross_keys;
    } table[] = {{"gpt2", 12 * 12 * 768 * 768. + 768 * 50257., 12, 64, 12 * 1024., 768, 0},
                 {"llama3-8b", 32 * (2 * 4096 * 4096. + 2 * 4096 * 1024. + 3 * 4096 * 14336.) + 4096 * 128256., 32, 128,
                  32 * 8192., 1024, 0},
                 // 15 layers see 512 keys, layers 6, 12 and 18 the whole context
                 {"gemma3-270m", 18 * (2 * 640 * 1024. + 2 * 640 * 256. + 3 * 640 * 2048.) + 640 * 262144., 4, 256,
                  15 * 512. + 3 * 32768., 256, 0},
                 // the decoder alone, its cross-attention without keys and values; 64 tokens where no context is given
                 {"t5-base", 12 * (4 * 768 * 768. + 2 * 768 * 768. + 2 * 768 * 3072.) + 768 * 32128., 12, 64, 12 * 64.,
                  768, 12 * 64.}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const snd_decoding *n = &describe(a, table[i].preset, NULL, 0, NULL)->next;
        assert_true(n->possible);
        CHECK_REL(n->cost.gemm, 2 * table[i].weights, 1e-12);
        CHECK_REL(n->weight_bytes, 4 * table[i].weights, 1e-12);
        CHECK_REL(n->cost.attention,
                  table[i].heads * (table[i].keys + table[i].cross_keys) * (4 * table[i].head_dim + 15), 1e-12);
        CHECK_REL(n->cache_bytes, 4 * 2 * table[i].kv_width * table[i].keys, 1e-12);
        CHECK_REL(n->memory_bytes, 4 * 2 * table[i].kv_width * table[i].cross_keys, 1e-12);
        CHECK_REL(n->flops, n->cost.gemm + n->cost.attention + n->cost.norm + n->cost.elementwise, 1e-12);
        assert_true(n->cost.bytes > n->cache_bytes + n->memory_bytes);
    }
    const snd_description *d = describe(a, "gpt2", NULL, 0, NULL);
    CHECK_REL(d->next.cost.norm, 25 * 7 * 768., 1e-12);
    CHECK_REL(d->next.cost.elementwise, d->forward.elementwise / 1024, 1e-12);
    // what depends on c alone is computed once per sequence
    d = describe(a, "adaln", KEYS("heads=2", "width=8", "layers=1", "cond=3", "context=5"), NULL);
    CHECK_REL(d->next.cost.gemm, 2 * 12 * 8 * 8., 1e-12);
    // norms on the keys of the memory likewise: what is left are 4 of the stream, q and k of A and q of C, 8 features each
    d = describe(a, "pre", KEYS("heads=2", "width=8", "layers=1", "arch=encoder-decoder", "qk_norm=rms-head"), NULL);
    CHECK_REL(d->next.cost.norm, 8 * (4 * 7 + 3 * 4.), 1e-12);
    d = describe(a, "pre", KEYS("heads=2", "width=8", "layers=1", "context=1"), NULL); // a context of one token
    CHECK_REL(d->next.flops, d->flops_forward, 1e-12);
    CHECK_REL(d->next.cache_bytes, 4 * 2 * 8., 1e-12);
    static const char *const none[] = {"bert-base", "residual"};
    for (int i = 0; i < 2; i++) {
        const snd_decoding *n = &describe(a, none[i], NULL, 0, NULL)->next;
        assert_true(!n->possible && n->flops == 0 && n->cache_bytes == 0 && n->memory_bytes == 0);
    }
    snd_arena_destroy(a);
}

static void test_starts(void **state) {
    (void)state;
    snd_arena *a = snd_arena_create();
    const snd_description *d = describe(a, "rezero", KEYS("layers=4", "width=8"), NULL);
    for (int i = 0; i < d->n_calls; i++) {
        assert_true(d->calls[i].no_grad && !d->calls[i].out_zero);
        assert_non_null(strstr(d->calls[i].gate, ".s1"));
    }
    d = describe(a, "adaln-zero", KEYS("layers=2", "width=8", "cond=3", "heads=2"), NULL);
    assert_string_equal(d->calls[0].gate, "layers.0.A.W1");
    d = describe(a, "fixup", KEYS("layers=4", "width=8", "outputs=3"), NULL);
    for (int i = 0; i < d->n_calls; i++) assert_true(!d->calls[i].no_grad && d->calls[i].out_zero);
    assert_true(d->head_zero);
    assert_true(param(d, "layers.0.F.block.W1.weight")->no_grad && !param(d, "layers.0.F.block.W2.weight")->no_grad);
    d = describe(a, "gpt2", NULL, 0, NULL);
    CHECK_CLOSE(sqrt(param(d, "layers.3.M.down.weight")->var), 0.02 / sqrt(24), 1e-12);
    CHECK_CLOSE(sqrt(param(d, "embed.position.weight")->var), 0.01, 1e-12);
    assert_string_equal(param(d, "layers.3.A.q.weight")->init, "normal(0.02)");
    // the input stream has unit variance under every kind that follows fans; a rule for the role says otherwise
    static const char *const kinds[] = {"init=lecun", "init=he", "init=xavier", "init=xavier_uniform"};
    for (int i = 0; i < 4; i++) {
        d = describe(a, "pre", KEYS("layers=2", "width=8", "inputs=5", "outputs=3", kinds[i]), NULL);
        CHECK_CLOSE(param(d, "stem.weight")->var, 1 / 5.0, 1e-12);
        CHECK_CLOSE(param(d, "head.weight")->var, 1 / 8.0, 1e-12);
    }
    d = describe(a, "pre", KEYS("layers=2", "width=8", "inputs=5", "outputs=3", "init=lecun; stem,head = he"), NULL);
    CHECK_CLOSE(param(d, "stem.weight")->var, 2 / 5.0, 1e-12);
    CHECK_CLOSE(param(d, "head.weight")->var, 2 / 8.0, 1e-12);
    snd_arena_destroy(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_published_counts),
                                       cmocka_unit_test(test_same_as_build),
                                       cmocka_unit_test(test_transformers_same_as_build),
                                       cmocka_unit_test(test_transformer_starts),
                                       cmocka_unit_test(test_zero_gradients),
                                       cmocka_unit_test(test_layer_kinds),
                                       cmocka_unit_test(test_multipliers),
                                       cmocka_unit_test(test_norms),
                                       cmocka_unit_test(test_costs),
                                       cmocka_unit_test(test_next_token),
                                       cmocka_unit_test(test_starts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
