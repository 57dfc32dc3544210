// Every rule of rules.def: a record in which it must fire (place, level, numbers, reason), and one in which it must not.
// Records are made by hand, so each number in a verdict is known; the last tests judge records that were really measured.
#include "check.h"
#include "lab/lab.h"
#include "rules/rules.h"

#include <math.h>
#include <string.h>

typedef struct stage {
    snd_arena *a;
    snd_spec *s;
    snd_description *d;
    snd_record *r;
    snd_run *u;
} stage;

static stage begin(const char *spec, const char *const *keys, int n) {
    stage t = {.a = snd_arena_create()};
    CHECK_OK(snd_spec_load(t.a, spec, keys, n, &t.s));
    CHECK_OK(snd_describe(t.a, t.s, &t.d));
    t.r = snd_record_create(t.a, SND_REC_MEASURE);
    t.u = snd_record_run(t.r, "t", t.d->formula);
    t.u->depth = t.s->layers;
    t.u->seeds = 1;
    return t;
}
#define KEYS(...) (const char *const[]){__VA_ARGS__}, (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *))

static void put(stage *t, const char *value, int layer, const char *metric, bool log, double v) {
    const snd_rvalue *old = snd_run_find(t->u, value);
    snd_rvalue *w = old ? (snd_rvalue *)(uintptr_t)old : snd_run_value(t->u, value, layer);
    snd_metric *m = snd_value_metric(w, metric, log);
    m->measured = true;
    m->mean = v;
}

static void predict(stage *t, const char *value, int layer, const char *metric, bool log, double v) {
    put(t, value, layer, metric, log, NAN);
    snd_metric *m = snd_value_metric((snd_rvalue *)(uintptr_t)snd_run_find(t->u, value), metric, log);
    m->measured = false;
    m->predicted = v;
}

// A stream whose metric goes from `first` at in.x in equal steps, one per layer.
static void ramp(stage *t, const char *metric, bool log, double first, double step) {
    char name[64];
    put(t, "in.x", -1, metric, log, first);
    for (int l = 0; l < (int)t->u->depth; l++) {
        snprintf(name, sizeof name, "layers.%d.x", l);
        put(t, name, l, metric, log, first + step * (l + 1));
    }
}

static const snd_verdict *find(const stage *t, const char *rule) {
    for (int i = 0; i < t->r->n_verdicts; i++)
        if (!strcmp(t->r->verdicts[i]->rule, rule)) return t->r->verdicts[i];
    return NULL;
}

static const snd_verdict *need(const stage *t, const char *rule, snd_level level, const char *where) {
    const snd_verdict *v = find(t, rule);
    if (!v) fail_msg("no verdict %s", rule);
    assert_int_equal(v->level, level);
    assert_string_equal(v->where, where);
    assert_true(strlen(v->why) > 20 && (level == SND_LEVEL_OK || strlen(v->remedy) > 10));
    assert_string_equal(v->run, t->u->label);
    return v;
}

static void run(stage *t, int64_t rows) {
    CHECK_OK(snd_rules_run(t->s, t->d, t->u, &(snd_rules_opts){.rows = rows}));
}
static void end(stage *t) {
    snd_arena_destroy(t->a);
}

// Encoder-decoder: both stacks are judged, each by its own input.
static void test_stacks(void **state) {
    (void)state;
    stage t =
        begin("post", KEYS("arch=encoder-decoder", "encoder_layers=3", "decoder_layers=2", "heads=4", "layers=2"));
    const char *const names[] = {"encoder.in.x",       "encoder.layers.0.x", "encoder.layers.1.x",
                                 "encoder.layers.2.x", "encoder.out.x",      "decoder.in.x",
                                 "decoder.layers.0.x", "decoder.layers.1.x", "out.x"};
    const double gq[] = {4, 3.5, 0.5, 0, 0, -4, -1, 0, 0}, tok[] = {1, 1, 1, 1, 1, 0, 0.5, 0.995, 0.995};
    const int layer[] = {-1, 0, 1, 2, -1, -1, 0, 1, -1};
    for (int i = 0; i < 9; i++) {
        put(&t, names[i], layer[i], "gq", true, gq[i]);
        put(&t, names[i], layer[i], "tokcos", false, tok[i]);
    }
    run(&t, 8);
    const snd_verdict *v = need(&t, "gradient-ratio", SND_LEVEL_WARN, "encoder.layers.1.x");
    CHECK_CLOSE(v->value, 4, 1e-12);
    assert_non_null(strstr(v->why, "encoder.layers.2.x over 3 layers"));
    CHECK_CLOSE(v->threshold, 3, 1e-12);
    v = t.r->verdicts[1];
    assert_string_equal(v->rule, "gradient-ratio");
    assert_string_equal(v->where, "decoder.layers.0.x");
    CHECK_CLOSE(v->value, -4, 1e-12);
    CHECK_CLOSE(v->threshold, -3, 1e-12);
    v = need(&t, "token-collapse", SND_LEVEL_WARN, "decoder.layers.1.x"); // the encoder's tokens came in equal
    assert_non_null(strstr(v->why, "at decoder.in.x 0"));
    end(&t);
}

// A small embedding is at fault wherever a norm makes its first layer large: after the sum (Post-LN), and in a sweep that
// shows the last layer alone.
static void test_small_input(void **state) {
    (void)state;
    stage t = begin("post", KEYS("layers=3", "heads=4"));
    const double q[] = {-3.4, 0, 0, 0}, gq[] = {3.4, 0, 0, 0};
    char name[32];
    for (int l = -1; l < 3; l++) {
        snprintf(name, sizeof name, l < 0 ? "in.x" : "layers.%d.x", l);
        put(&t, name, l, "q", true, q[l + 1]);
        put(&t, name, l, "gq", true, gq[l + 1]);
    }
    run(&t, 8);
    assert_non_null(strstr(need(&t, "gradient-ratio", SND_LEVEL_WARN, "layers.0.x")->remedy, "embedding"));
    end(&t);
    for (int small = 0; small < 2; small++) {
        t = begin("post", KEYS("layers=3", "heads=4"));
        put(&t, "in.x", -1, "q", true, small ? -3.4 : 0);
        put(&t, "in.x", -1, "gq", true, 3.4);
        put(&t, "layers.2.x", 2, "q", true, 0);
        put(&t, "layers.2.x", 2, "gq", true, 0);
        run(&t, 8);
        const snd_verdict *v = need(&t, "gradient-ratio", SND_LEVEL_WARN, "in.x");
        assert_int_equal(strstr(v->remedy, "embedding") != NULL, small);
        end(&t);
    }
}

static void test_ok(void **state) {
    (void)state;
    stage t = begin("pre", KEYS("layers=4"));
    ramp(&t, "q", true, 0, 0.1);
    ramp(&t, "gq", true, 0.5, -0.1);
    ramp(&t, "cos", false, 0, 0.02);
    run(&t, 64);
    assert_int_equal(t.r->n_verdicts, 1);
    const snd_verdict *v = need(&t, "ok", SND_LEVEL_OK, "");
    assert_non_null(strstr(v->why, "5 values"));
    assert_non_null(strstr(v->why, "gradient ratio"));
    end(&t);
}

static void test_stream(void **state) {
    (void)state;
    stage t = begin("residual", KEYS("layers=256"));
    ramp(&t, "q", true, 0, 0.463); // 2.904 a layer
    run(&t, 64);
    // four RMS over 65504: q/2 + log10 4 > 4.81627, so q > 8.4284: the 19th layer
    const snd_verdict *v = need(&t, "stream-f16", SND_LEVEL_WARN, "layers.18.x");
    CHECK_CLOSE(v->value, 19 * 0.463 / 2 + log10(4), 1e-12);
    CHECK_CLOSE(v->threshold, log10(65504), 1e-6);
    assert_non_null(strstr(v->why, "more than f16 can hold (65504)"));
    assert_true(v->log);
    v = need(&t, "stream-f32", SND_LEVEL_ERROR, "layers.163.x");
    CHECK_CLOSE(v->threshold, 128 * log10(2), 1e-6);
    assert_non_null(strstr(v->why, "four RMS"));
    end(&t);

    t = begin("residual", KEYS("layers=3"));
    ramp(&t, "q", true, 0, 1);
    put(&t, "layers.1.F.out", 1, "absmax", true, 5); // measured peaks win over four RMS, wherever they are
    run(&t, 64);
    v = need(&t, "stream-f16", SND_LEVEL_WARN, "layers.1.F.out");
    assert_null(strstr(v->why, "four RMS"));
    assert_null(find(&t, "stream-f32"));
    end(&t);

    t = begin("residual", KEYS("layers=3"));
    ramp(&t, "absmax", true, 1, 1.1); // 10^4.3: 1.7 bits below the limit
    run(&t, 64);
    v = need(&t, "stream-f16", SND_LEVEL_INFO, "layers.2.x");
    assert_non_null(strstr(v->why, "1.7 bits"));
    end(&t);

    t = begin("residual", KEYS("layers=4"));
    predict(&t, "in.x", -1, "q", true, 0);
    predict(&t, "layers.0.x", 0, "q", true, 90);
    run(&t, 0);
    v = need(&t, "stream-f32", SND_LEVEL_ERROR, "layers.0.x");
    assert_non_null(strstr(v->why, "predicted"));
    end(&t);
}

static void test_vanishing_stream(void **state) {
    (void)state;
    stage t = begin("plain", KEYS("layers=40"));
    ramp(&t, "q", true, 0, -0.301);
    run(&t, 64);
    const snd_verdict *v =
        need(&t, "stream-vanishes", SND_LEVEL_WARN, "layers.28.x"); // 2^(-k/2) < 2^-14 first for k = 29
    CHECK_CLOSE(v->value, -29 * 0.301 / 2, 1e-12);
    assert_non_null(strstr(v->remedy, "residual connection"));
    end(&t);
    t = begin("plain", KEYS("layers=4"));
    ramp(&t, "q", true, -INFINITY, 0); // an exact zero is not a small number
    run(&t, 64);
    assert_null(find(&t, "stream-vanishes"));
    end(&t);
}

// Under norms the size of the stream that enters is nobody's business but the input gradient's.
static void test_gradient_of_a_small_input(void **state) {
    (void)state;
    stage t = begin("pre", KEYS("layers=8"));
    ramp(&t, "gq", true, 0.8, -0.1);
    put(&t, "in.x", -1, "gq", true, 6);
    ramp(&t, "q", true, 0.5, 0.1);
    put(&t, "in.x", -1, "q", true, -4);
    run(&t, 64);
    assert_non_null(strstr(need(&t, "gradient-ratio", SND_LEVEL_WARN, "layers.0.x")->remedy, "larger input stream"));
    end(&t);
    t = begin("pre", KEYS("layers=40")); // grows all the way: the wiring's affair, but it has its norms already
    ramp(&t, "gq", true, 8, -0.2);
    ramp(&t, "q", true, 0, 0.2);
    run(&t, 64);
    const char *remedy = need(&t, "gradient-ratio", SND_LEVEL_WARN, "layers.0.x")->remedy;
    assert_true(strstr(remedy, "wiring=lns") && !strstr(remedy, "wiring=pre"));
    end(&t);
}

static void test_gradient(void **state) {
    (void)state;
    stage t = begin("residual", KEYS("layers=32"));
    ramp(&t, "gq", true, 9.6, -0.3);
    run(&t, 64);
    const snd_verdict *v = need(&t, "gradient-ratio", SND_LEVEL_WARN, "layers.0.x");
    CHECK_CLOSE(v->value, 9.6, 1e-9);
    CHECK_CLOSE(v->threshold, 3, 1e-9);
    assert_non_null(strstr(v->why, "layers 0..31, a factor of 2.00 per layer"));
    end(&t);

    t = begin("plain", KEYS("layers=32"));
    ramp(&t, "gq", true, 0, 0);
    for (int l = 10; l < 32; l++) { // vanishes in layers 10, 11 and 12 alone: 1e-4 going back
        char name[64];
        snprintf(name, sizeof name, "layers.%d.x", l);
        put(&t, name, l, "gq", true, l == 10 ? 1 : l == 11 ? 2.5 : 4);
    }
    run(&t, 64);
    v = need(&t, "gradient-ratio", SND_LEVEL_WARN, "layers.10.x");
    CHECK_CLOSE(v->value, -4, 1e-9);
    CHECK_CLOSE(v->threshold, -3, 1e-9);
    assert_non_null(strstr(v->why, "layers 10..12"));
    end(&t);

    t = begin("residual", KEYS("layers=4"));
    ramp(&t, "gq", true, 2.9, -0.725);
    run(&t, 64);
    assert_null(find(&t, "gradient-ratio"));
    end(&t);

    t = begin("residual", KEYS("layers=4"));
    ramp(&t, "gq", true, 80, -1);
    run(&t, 64);
    need(&t, "gradient-f32", SND_LEVEL_ERROR, "layers.1.x"); // 78/2 is the first over 38.53, coming from the top
    end(&t);
}

static void test_collapse(void **state) {
    (void)state;
    stage t = begin("plain", KEYS("layers=10"));
    ramp(&t, "cos", false, 0.9, 0.0121);
    run(&t, 64);
    const snd_verdict *v = need(&t, "collapse", SND_LEVEL_WARN, "layers.7.x");
    CHECK_CLOSE(v->value, 0.9 + 8 * 0.0121, 1e-12);
    end(&t);
    t = begin("plain", KEYS("layers=4"));
    ramp(&t, "cos", false, 0.995, 0.001); // they came in that way
    run(&t, 64);
    assert_null(find(&t, "collapse"));
    end(&t);
}

// What the last layer's tokens share, of the stack that the head reads.
static void test_token_stall(void **state) {
    (void)state;
    stage t = begin("post", KEYS("layers=10", "heads=2"));
    ramp(&t, "tokcos", false, 0.05, 0.091);
    run(&t, 64);
    const snd_verdict *v = need(&t, "token-stall", SND_LEVEL_WARN, "layers.9.x");
    CHECK_CLOSE(v->value, 0.96, 1e-12);
    CHECK_CLOSE(v->threshold, 0.95, 0);
    assert_null(find(&t, "token-collapse"));
    end(&t);
    t = begin("post", KEYS("layers=10", "heads=2"));
    ramp(&t, "tokcos", false, 0.04, 0.09); // 0.94
    run(&t, 64);
    assert_null(find(&t, "token-stall"));
    put(&t, "layers.5.x", 5, "tokcos", false, 0.98); // not what the head reads
    run(&t, 64);
    assert_null(find(&t, "token-stall"));
    end(&t);
    t = begin("post", KEYS("layers=10", "heads=2"));
    ramp(&t, "tokcos", false, 0.96, 0.001); // they came in that way
    run(&t, 64);
    assert_null(find(&t, "token-stall"));
    end(&t);
    t = begin("post", KEYS("layers=2", "heads=2", "arch=encoder-decoder"));
    put(&t, "encoder.layers.1.x", 1, "tokcos", false, 0.98);
    put(&t, "decoder.layers.1.x", 1, "tokcos", false, 0.5);
    run(&t, 64);
    assert_null(find(&t, "token-stall"));
    put(&t, "decoder.layers.1.x", 1, "tokcos", false, 0.95);
    run(&t, 64);
    need(&t, "token-stall", SND_LEVEL_WARN, "decoder.layers.1.x");
    end(&t);
}

// Nets of docs/training.md, predicted and measured: the one that stalls is told, its neighbours that train are not.
static void test_token_stall_of_nets(void **state) {
    (void)state;
    const struct {
        const char *wiring, *key;
        bool stalls;
    } nets[] = {{"post", "init=xavier", true}, {"post", "init=q,k,v,o,up,down *= 1/sqrt(L)", false},
                {"post", "init=gpt2", false},  {"b2t", "init=xavier", false},
                {"pre", "init=xavier", false}, {"deepnorm", "bias=true", false}};
    const snd_measure_opts o = {
        .rows = 4, .tokens = 32, .seeds = 1, .bands = SND_BANDS_NONE, .no_params = true, .threads = 1};
    for (size_t i = 0; i < 2 * sizeof nets / sizeof *nets; i++) {
        stage t = begin(nets[i / 2].wiring, KEYS("layers=12", "heads=4", "width=128", "vocab=77", "tie=false",
                                                 "position=learned", "context=32", nets[i / 2].key));
        t.r = snd_record_create(t.a, i % 2 ? SND_REC_MEASURE : SND_REC_PREDICT);
        CHECK_OK(i % 2 ? snd_lab_measure(t.r, t.s, "t", &o) : snd_lab_predict(t.r, t.s, "t", &o));
        t.u = t.r->runs[0];
        run(&t, 4);
        if (nets[i / 2].stalls)
            need(&t, "token-stall", SND_LEVEL_WARN, "layers.11.x");
        else if (find(&t, "token-stall"))
            fail_msg("%s %s: %s", nets[i / 2].wiring, nets[i / 2].key, find(&t, "token-stall")->why);
        end(&t);
    }
}

static void test_tokens(void **state) {
    (void)state;
    stage t = begin("post", KEYS("layers=10", "heads=2"));
    ramp(&t, "tokcos", false, 0.9, 0.0121);
    ramp(&t, "gdev", true, -3.5, 0.34); // at the last layer -0.1
    run(&t, 64);
    const snd_verdict *v = need(&t, "token-collapse", SND_LEVEL_WARN, "layers.7.x");
    CHECK_CLOSE(v->value, 0.9 + 8 * 0.0121, 1e-12);
    v = need(&t, "token-gradient", SND_LEVEL_WARN, "in.x");
    CHECK_CLOSE(v->value, -3.4, 1e-12);
    CHECK_CLOSE(v->threshold, -3, 0);
    assert_null(find(&t, "collapse"));
    end(&t);
    t = begin("pre", KEYS("layers=10", "heads=2"));
    ramp(&t, "tokcos", false, 0.1, 0.05);
    ramp(&t, "gdev", true, -2.9, 0.29);
    run(&t, 64);
    assert_true(!find(&t, "token-collapse") && !find(&t, "token-gradient"));
    end(&t);
    t = begin("post", KEYS("layers=2", "heads=2", "arch=encoder-decoder")); // the decoder's are judged, by full names
    put(&t, "encoder.in.x", -1, "gq", true, 9);
    put(&t, "decoder.in.x", -1, "gq", true, 4);
    put(&t, "decoder.layers.0.x", 0, "gq", true, 0.5);
    put(&t, "decoder.layers.1.x", 1, "gq", true, 0);
    put(&t, "decoder.layers.1.x", 1, "tokcos", false, 0.995);
    run(&t, 64);
    need(&t, "token-collapse", SND_LEVEL_WARN, "decoder.layers.1.x");
    v = need(&t, "gradient-ratio", SND_LEVEL_WARN, "decoder.layers.0.x");
    CHECK_CLOSE(v->value, 4, 1e-12);
    end(&t);
}

// Each stack's gradients are compared with those of its own last layer.
static void test_tokens_of_both_stacks(void **state) {
    (void)state;
    for (int lost = 0; lost < 2; lost++) {
        stage t = begin("post", KEYS("layers=2", "heads=2", "arch=encoder-decoder"));
        const char *const names[2][3] = {{"encoder.in.x", "encoder.layers.0.x", "encoder.layers.1.x"},
                                         {"decoder.in.x", "decoder.layers.0.x", "decoder.layers.1.x"}};
        for (int s = 0; s < 2; s++)
            for (int l = -1; l < 2; l++)
                put(&t, names[s][l + 1], l, "gdev", true, (s == lost && l < 0 ? -3.5 : 0) - (s == 0 ? 2.5 : 0));
        run(&t, 64);
        const snd_verdict *v = need(&t, "token-gradient", SND_LEVEL_WARN, names[lost][0]);
        CHECK_CLOSE(v->value, -3.5, 1e-12);
        CHECK_CLOSE(v->threshold, -3, 0);
        assert_non_null(strstr(v->why, names[lost][2]));
        assert_int_equal(t.r->n_verdicts, 1);
        end(&t);
    }
}

// Scores of size scale*sqrt(head_dim)*|q||k|, by whatever makes queries and keys: maps, biases, norms.
static void test_scores(void **state) {
    (void)state;
    const struct {
        const char *keys[4];
        double q;    // log10 of the mean square of what attention reads
        double want; // 0: no verdict
    } row[] = {
        {{"attn_scale=1/64", "init=lecun", "width=128", "heads=2"}, 0, 1.0 / 8},
        {{"attn_scale=1/64", "init=lecun", "width=128", "heads=2"}, log10(4), 0}, // half of size 1 is not small
        {{"attn_scale=1", "init=lecun", "width=128", "heads=2"}, log10(4), 32},
        {{"attn_scale=1", "init=lecun; q = normal(1/128)", "width=128", "heads=2"}, 0, 0}, // as T5
        {{"attn_scale=1/8", "init=lecun", "width=128", "heads=2"}, 3, 0}, // large, but not by its scale
        {{"attn_scale=1", "init=lecun; b = normal(2)", "width=128", "heads=2"}, 0, 8 * 5},
        {{"attn_scale=1", "qk_norm=rms-head", "width=128", "heads=2"}, -4, 8},
        {{"attn_scale=1", "qk_norm=rms-full", "width=128", "heads=8"}, 4, 4},
        {{"attn_scale=1", "qk_norm=rms-head", "plus1=true", "heads=16"}, 0, 4}, // gains stored as 0
        {{"attn_scale=1/2", "qk_norm=rms-head", "init=lecun; g = normal(1/4)", "heads=2"}, 0, 0},
        {{"attn_scale=8", "qk_norm=l2", "width=128", "heads=2"}, 9, 0},
        {{"attn_scale=-64", "qk_norm=l2", "width=128", "heads=2"}, 9, 8},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        stage t = begin("pre", row[i].keys, 4);
        predict(&t, "layers.1.A.in", 1, "q", true, row[i].q);
        run(&t, 64);
        if (row[i].want == 0) {
            assert_null(find(&t, "attention-scale"));
        } else {
            const bool small = row[i].want < 1;
            const snd_verdict *v =
                need(&t, "attention-scale", small ? SND_LEVEL_INFO : SND_LEVEL_WARN, "layers.1.A.out");
            CHECK_CLOSE(v->value, log10(row[i].want), 1e-9);
            CHECK_CLOSE(v->threshold, small ? -log10(2) : log10(2), 1e-6);
            assert_non_null(strstr(v->why, "predicted size of layers.1.A.in"));
        }
        end(&t);
    }
}

static void test_saturated_weights(void **state) {
    (void)state;
    stage t = begin("pre", KEYS("layers=3", "heads=2"));
    put(&t, "layers.0.A.out", 0, "entropy", false, 0.26);
    put(&t, "layers.1.A.out", 1, "entropy", false, 0.24);
    put(&t, "layers.1.A.out", 1, "maxlogit", false, 77);
    put(&t, "layers.2.A.out", 2, "entropy", false, 0.1);
    run(&t, 64);
    const snd_verdict *v = need(&t, "attention-saturated", SND_LEVEL_WARN, "layers.1.A.out");
    CHECK_CLOSE(v->value, 0.24, 0);
    assert_true(strstr(v->why, "in 2 of 3 sublayers") && strstr(v->why, "score is 77"));
    assert_non_null(strstr(v->remedy, "qk_norm"));
    end(&t);
    t = begin("pre", KEYS("layers=3", "heads=2", "attn_scale=1"));
    predict(&t, "layers.0.A.out", 0, "entropy", false, 0.2);
    run(&t, 64);
    assert_non_null(strstr(need(&t, "attention-saturated", SND_LEVEL_WARN, "layers.0.A.out")->remedy, "attn_scale"));
    end(&t);
}

// Among them U04 and U05 of docs/cases.md.
static void test_sites(void **state) {
    (void)state;
    stage t = begin("each: x = N(x + F(x))\nout: x = N(x)", KEYS("layers=4"));
    run(&t, 64);
    const snd_verdict *v = need(&t, "norm-after-norm", SND_LEVEL_INFO, "out.N1");
    assert_non_null(strstr(v->why, "layers.3.F.N1"));
    assert_null(find(&t, "no-final-norm")); // post has its norm
    end(&t);
    t = begin("pre-nofinal", KEYS("layers=16"));
    predict(&t, "out.x", -1, "rms", true, log10(sqrt(17)));
    run(&t, 0);
    v = need(&t, "no-final-norm", SND_LEVEL_WARN, "out.x");
    assert_non_null(strstr(v->why, "predicted RMS 4.12"));
    assert_null(find(&t, "norm-after-norm"));
    end(&t);
    static const char *const fine[] = {"pre", "post", "residual", "deepnorm", "resi-dual", "mixln", "norm-then-split"};
    for (size_t i = 0; i < sizeof fine / sizeof *fine; i++) {
        t = begin(fine[i], KEYS("layers=8"));
        run(&t, 64);
        assert_null(find(&t, "no-final-norm"));
        end(&t);
    }
    const struct {
        int64_t rows;
        snd_level level;
    } batches[] = {{1, SND_LEVEL_ERROR}, {4, SND_LEVEL_WARN}, {8, SND_LEVEL_INVALID}, {0, SND_LEVEL_INVALID}};
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        t = begin("pre", KEYS("layers=2", "norm=batch"));
        run(&t, batches[i].rows);
        if (batches[i].level == SND_LEVEL_INVALID)
            assert_null(find(&t, "batch-norm-small-batch"));
        else
            need(&t, "batch-norm-small-batch", batches[i].level, "layers.0.F.N1");
        end(&t);
    }
}

// Among them U13 of docs/cases.md.
static void test_start(void **state) {
    (void)state;
    stage t = begin("rezero", KEYS("layers=4", "outputs=3"));
    run(&t, 64);
    const snd_verdict *v = need(&t, "not-started", SND_LEVEL_INFO, "layers.0.F.out");
    assert_non_null(strstr(v->why, "not vanished"));
    assert_non_null(strstr(v->why, "layers.0.s1"));
    assert_non_null(strstr(v->why, "only the gates learn"));
    end(&t);
    t = begin("rezero", KEYS("layers=4", "outputs=3", "init=head=zero"));
    run(&t, 64);
    assert_non_null(strstr(need(&t, "not-started", SND_LEVEL_INFO, "layers.0.F.out")->why, "only the head learns"));
    end(&t);
    t = begin("fixup", KEYS("layers=4"));
    run(&t, 64);
    assert_non_null(strstr(need(&t, "not-started", SND_LEVEL_INFO, "layers.0.F.out")->why, "last map"));
    end(&t);
    t = begin("layerscale", KEYS("layers=4"));
    run(&t, 64);
    assert_null(find(&t, "not-started"));
    end(&t);
}

static void test_recipe(void **state) {
    (void)state;
    stage t = begin("deepnorm", KEYS("layers=4", "init=down *= 2"));
    run(&t, 64);
    const snd_verdict *v = need(&t, "init-recipe", SND_LEVEL_WARN, "layers.0.F.block.W2.weight");
    CHECK_CLOSE(v->value, 1, 1e-9);
    assert_non_null(strstr(v->why, "4 parameters"));
    end(&t);
    t = begin("pre", KEYS("layers=4", "heads=2", "init=normal(0.02); o,down *= 1/sqrt(2*L)"));
    run(&t, 64);
    need(&t, "init-recipe", SND_LEVEL_INFO, "layers.0.A.o.weight");
    end(&t);
    static const char *const fine[] = {"init=gpt2", "init=xavier", "init=W *= 1.04"};
    for (size_t i = 0; i < sizeof fine / sizeof *fine; i++) {
        t = begin("deepnorm", KEYS("layers=4", "heads=2", fine[i]));
        run(&t, 64);
        assert_null(find(&t, "init-recipe"));
        end(&t);
    }
}

// A preset follows its own recipe, whatever its init key says.
static void test_presets_follow_their_recipes(void **state) {
    (void)state;
    for (int i = 0; i < snd_preset_count(); i++) {
        stage t = begin(snd_preset_name(i), NULL, 0);
        run(&t, 64);
        if (find(&t, "init-recipe")) fail_msg("%s: %s", snd_preset_name(i), find(&t, "init-recipe")->why);
        end(&t);
    }
    stage t = begin("transformer-base", KEYS("embed_scale=1")); // nothing makes up for its small tokens then
    run(&t, 64);
    need(&t, "init-recipe", SND_LEVEL_INFO, "embed.token.weight");
    end(&t);
}

static void put_param(stage *t, const char *name, int layer, double rms) {
    snd_metric *m = snd_value_metric(snd_run_param(t->u, name, layer), "wrms", true);
    m->measured = true;
    m->mean = log10(rms);
}

// Parameters as drawn, with relative errors e0 (layer 0's W1) and each layer its own small deviation unless `copies`.
static void put_params(stage *t, double e0, bool copies) {
    for (int i = 0; i < t->d->n_params; i++) {
        const snd_param_row *p = &t->d->params[i];
        const double own = copies || p->var == 0 ? 0 : 1e-3 * (p->layer + 2), first = i == 0 ? e0 : 0;
        put_param(t, p->name, p->layer, sqrt(p->var + p->mean * p->mean) * (1 + own) * (1 + first));
    }
}

static void test_measured_init(void **state) {
    (void)state;
    stage t = begin("residual", KEYS("layers=4", "width=64"));
    put_params(&t, 0.07, false);
    run(&t, 64);
    const snd_verdict *v = need(&t, "init-measured", SND_LEVEL_ERROR, "layers.0.F.block.W1.weight");
    CHECK_CLOSE(v->value, 1.07 * 1.002 - 1, 1e-9);
    assert_null(find(&t, "layers-identical"));
    end(&t);
    t = begin("residual", KEYS("layers=4", "width=64"));
    put_params(&t, 0.03, false);
    run(&t, 64);
    assert_null(find(&t, "init-measured"));
    end(&t);
    t = begin("residual", KEYS("layers=4", "width=8")); // 64 entries: 4 sd are 35 %
    put_params(&t, 0.3, false);
    run(&t, 64);
    assert_null(find(&t, "init-measured"));
    end(&t);
}

static void test_identical(void **state) {
    (void)state;
    stage t = begin("pre", KEYS("layers=4", "width=64"));
    put_params(&t, 0, true);
    run(&t, 64);
    const snd_verdict *v = need(&t, "layers-identical", SND_LEVEL_ERROR, "layers.1");
    assert_non_null(strstr(v->why, "layers 0 and 1"));
    assert_non_null(strstr(v->why, "4 of 4"));
    end(&t);
    t = begin("pre", KEYS("layers=4", "width=64"));
    put_params(&t, 0, false);
    run(&t, 64);
    assert_null(find(&t, "layers-identical"));
    end(&t);
    t = begin("pre", KEYS("layers=4", "width=64"));
    put_params(&t, 0, true);
    for (int i = 0; i < t.u->n_params; i++) // one matrix of each layer is its own
        if (strstr(t.u->params[i]->name, "W2"))
            snd_value_metric(t.u->params[i], "wrms", true)->mean += 1e-6 * t.u->params[i]->layer;
    run(&t, 64);
    assert_null(find(&t, "layers-identical"));
    end(&t);
}

static void test_nonfinite(void **state) {
    (void)state;
    stage t = begin("residual", KEYS("layers=3"));
    ramp(&t, "q", true, 0, 0.3);
    put(&t, "layers.1.x", 1, "q", true, NAN);
    t.u->nonfinite = 3;
    put(&t, "in.x", -1, "gq", true, NAN); // a gradient is lost because a value is: the value is the news
    run(&t, 64);
    assert_non_null(strstr(need(&t, "nonfinite", SND_LEVEL_ERROR, "layers.1.x")->why, "value of layers.1.x"));
    assert_null(find(&t, "ok"));
    end(&t);
    t = begin("residual", KEYS("layers=3"));
    ramp(&t, "q", true, 0, 0.3);
    ramp(&t, "gq", true, NAN, 0);
    put(&t, "layers.2.x", 2, "gq", true, 0);
    t.u->nonfinite = 3;
    run(&t, 64); // going back, layers.1.x comes first
    assert_non_null(strstr(need(&t, "nonfinite", SND_LEVEL_ERROR, "layers.1.x")->why, "gradient of layers.1.x"));
    end(&t);
}

// Where theory has no number, a prediction must not say that all is well.
static void test_theory_lost(void **state) {
    (void)state;
    stage t = begin("residual", KEYS("layers=2"));
    predict(&t, "in.x", -1, "q", true, 0);
    predict(&t, "layers.0.x", 0, "q", true, -INFINITY); // an exact zero is a number
    predict(&t, "layers.1.x", 1, "cos", false, 0.5);
    run(&t, 0);
    need(&t, "theory-lost", SND_LEVEL_WARN, "layers.1.x");
    assert_null(find(&t, "ok"));
    end(&t);
    t = begin("residual", KEYS("layers=1"));
    predict(&t, "in.x", -1, "q", true, 0);
    predict(&t, "layers.0.x", 0, "q", true, 0.3);
    run(&t, 0);
    assert_null(find(&t, "theory-lost"));
    end(&t);
    t = begin("residual", KEYS("layers=2"));
    ramp(&t, "q", true, 0, 0.3);
    snd_run_value(t.u, "out.x", -1); // measured: other rules speak
    run(&t, 0);
    assert_null(find(&t, "theory-lost"));
    end(&t);
}

// Layers that change nothing, branches that lead nowhere: what a paper's line becomes when typed as it stands.
static void test_idle(void **state) {
    (void)state;
    stage t = begin("each: y = LN(x + F(x))", KEYS("layers=2"));
    run(&t, 64);
    const snd_verdict *v = need(&t, "idle-layers", SND_LEVEL_WARN, "layers.0.x");
    assert_non_null(strstr(v->why, "y is forgotten"));
    assert_non_null(strstr(v->remedy, "'y = ...'"));
    assert_null(find(&t, "branch-unused"));
    assert_null(find(&t, "not-started"));
    end(&t);
    t = begin("each: y = F(x); x = x + 0*F(x)", KEYS("layers=2"));
    run(&t, 64);
    assert_non_null(strstr(need(&t, "branch-unused", SND_LEVEL_WARN, "layers.0.F.out")->why, "4 of 4 branches"));
    assert_null(find(&t, "idle-layers"));
    assert_null(find(&t, "not-started"));
    end(&t);
    t = begin("in: y = x  each: y = y + F(y)  out: x = y", KEYS("layers=2")); // a stream of another name
    run(&t, 64);
    assert_null(find(&t, "idle-layers"));
    assert_null(find(&t, "branch-unused"));
    end(&t);
}

// The stream is named by its usual name where a repetition ends with it.
static void test_alias(void **state) {
    (void)state;
    stage t = begin("residual", KEYS("layers=2"));
    predict(&t, "in.x", -1, "q", true, 0);
    predict(&t, "layers.0.F.x", 0, "q", true, 20);
    predict(&t, "layers.0.x", 0, "q", true, 20);
    run(&t, 0);
    assert_null(strstr(need(&t, "stream-f16", SND_LEVEL_WARN, "layers.0.x")->why, "F.x"));
    end(&t);
}

// A sweep: what was said of a smaller depth is not said again, and an "ok" does not survive a finding.
static void test_sweep(void **state) {
    (void)state;
    stage t = begin("residual", KEYS("layers=64"));
    snd_run *runs[3] = {t.u, snd_record_run(t.r, "t", ""), snd_record_run(t.r, "t", "")};
    const int64_t depths[3] = {4, 16, 64};
    for (int i = 0; i < 3; i++) {
        t.u = runs[i];
        t.u->depth = depths[i];
        ramp(&t, "gq", true, 0.3 * (double)depths[i], -0.3);
    }
    for (int i = 0; i < 3; i++) {
        t.u = runs[i];
        run(&t, 64);
    }
    assert_int_equal(t.r->n_verdicts, 1);
    assert_non_null(strstr(need(&t, "gradient-ratio", SND_LEVEL_WARN, "layers.0.x")->why, "at depth 16"));
    end(&t);
}

// Real measurements: a sound net is sound, the lecture's one-matrix net is not.
static void test_measured(void **state) {
    (void)state;
    const snd_measure_opts o = {.rows = 16, .seeds = 1, .bands = SND_BANDS_NONE, .threads = 1};
    stage t = begin("pre", KEYS("layers=8", "width=32"));
    t.r = snd_record_create(t.a, SND_REC_MEASURE);
    CHECK_OK(snd_lab_measure(t.r, t.s, "t", &o));
    t.u = t.r->runs[0];
    run(&t, 16);
    need(&t, "ok", SND_LEVEL_OK, "");
    end(&t);
    t = begin("residual", KEYS("layers=64", "width=32", "block=one-matrix"));
    t.r = snd_record_create(t.a, SND_REC_MEASURE);
    CHECK_OK(snd_lab_measure(t.r, t.s, "t", &o));
    t.u = t.r->runs[0];
    run(&t, 16);
    assert_true(find(&t, "stream-f16") && find(&t, "gradient-ratio") && find(&t, "collapse"));
    assert_null(find(&t, "ok"));
    end(&t);
}

static void test_table(void **state) {
    (void)state;
    for (int i = 0; i < snd_rule_count(); i++) {
        const snd_rule_row *r = snd_rule_at(i);
        assert_true(strlen(r->source) > 10 && strlen(r->unit) > 0 && r->level > SND_LEVEL_OK);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_stacks),
                                       cmocka_unit_test(test_small_input),
                                       cmocka_unit_test(test_ok),
                                       cmocka_unit_test(test_stream),
                                       cmocka_unit_test(test_vanishing_stream),
                                       cmocka_unit_test(test_gradient),
                                       cmocka_unit_test(test_gradient_of_a_small_input),
                                       cmocka_unit_test(test_collapse),
                                       cmocka_unit_test(test_tokens),
                                       cmocka_unit_test(test_token_stall),
                                       cmocka_unit_test(test_token_stall_of_nets),
                                       cmocka_unit_test(test_tokens_of_both_stacks),
                                       cmocka_unit_test(test_scores),
                                       cmocka_unit_test(test_saturated_weights),
                                       cmocka_unit_test(test_sites),
                                       cmocka_unit_test(test_start),
                                       cmocka_unit_test(test_recipe),
                                       cmocka_unit_test(test_presets_follow_their_recipes),
                                       cmocka_unit_test(test_measured_init),
                                       cmocka_unit_test(test_identical),
                                       cmocka_unit_test(test_nonfinite),
                                       cmocka_unit_test(test_sweep),
                                       cmocka_unit_test(test_measured),
                                       cmocka_unit_test(test_table),
                                       cmocka_unit_test(test_theory_lost),
                                       cmocka_unit_test(test_idle),
                                       cmocka_unit_test(test_alias)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
