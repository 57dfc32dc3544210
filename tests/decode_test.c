// Decoding: tokens one after the other, with keys and values kept, give the logits of the whole sequence in one pass. The
// law is checked in f64 for every wiring of the catalogue and every variant of the sublayers, then for batches, reordered
// beams, forgotten tokens, memories, and numbers of far exponents.
#include "lab/lab.h"

#include "check.h"

#include <stdlib.h>
#include <string.h>

#define KEYS(...) (const char *const[]){__VA_ARGS__}, (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *))
// Biases, gains and weights that show: at their usual start many faults would not.
#define DRAWN                                                                                                          \
    "init=normal(0.3); b = normal(0.2); g = normal(0.6); headgain = normal(0.7); scalar = normal(0.5); "               \
    "relative = normal(0.5)"
enum { V = 11, ROWS = 2, T = 13, S = 5, SEED = 4 };

static snd_spec *load(snd_arena *a, const char *spec, const char *const *keys, int n) {
    snd_spec *s = NULL;
    CHECK_OK(snd_spec_load(a, spec, keys, n, &s));
    return s;
}

static void draw_tokens(const char *name, int64_t n, int64_t *out) {
    snd_data_targets(SEED, name, n, V, out);
}

// Logits [rows, n, V] of whole sequences.
static void whole(snd_weights *net, int64_t rows, int64_t n, const int64_t *tokens, const int64_t *src, double *out) {
    snd_arena *a = snd_arena_create();
    snd_model *m;
    snd_plan *plan;
    snd_exec *x;
    const snd_build b = {.dtype = net->dtype, .rows = rows, .tokens = n, .src_tokens = S, .eval = true};
    CHECK_OK(snd_model_build(a, net->spec, &b, &m));
    CHECK_OK(snd_plan_make(a, m->g, &m->logits, 1, &plan));
    CHECK_OK(snd_exec_create(m->g, plan, &net->source, NULL, &x));
    CHECK_OK(snd_exec_set(x, m->input, tokens, SND_I64));
    if (src) CHECK_OK(snd_exec_set(x, snd_model_input(m, "src_tokens"), src, SND_I64));
    CHECK_OK(snd_exec_run(x));
    CHECK_OK(snd_exec_get(x, m->logits, out));
    snd_exec_destroy(x);
    snd_arena_destroy(a);
}

static void same(const char *what, const double *got, const double *want, int64_t n, double tol) {
    double scale = 1e-300;
    for (int64_t i = 0; i < n; i++) scale = fmax(scale, fabs(want[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <= tol * scale))
            fail_msg("%s: logit %lld (token %lld) is %.17g, the whole sequence gives %.17g", what, (long long)i,
                     (long long)(i / V), got[i], want[i]);
}

// Columns first .. first+n-1 of [ROWS, T].
static void columns(const int64_t *tokens, int64_t first, int64_t n, int64_t *out) {
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t i = 0; i < n; i++) out[r * n + i] = tokens[r * T + first + i];
}

// Seven tokens at once (4 + 2 + 1), then one at a time.
static void steps(const char *what, snd_weights *net, const int64_t *tokens, const int64_t *src, const double *want,
                  double tol) {
    enum { FIRST = 7 };
    double got[ROWS * FIRST * V], part[ROWS * FIRST * V];
    int64_t piece[ROWS * FIRST];
    snd_decoder *d;
    const snd_decoder_opts o = {.rows = ROWS, .capacity = T, .src_tokens = S, .every = true};
    CHECK_OK(snd_decoder_open(net, &o, &d));
    if (src) CHECK_OK(snd_decoder_encode(d, src));
    for (int64_t at = 0; at < T; at += at ? 1 : FIRST) {
        const int64_t n = at ? 1 : FIRST;
        columns(tokens, at, n, piece);
        CHECK_OK(snd_decoder_push(d, piece, n, got));
        for (int64_t r = 0; r < ROWS; r++)
            memcpy(part + r * n * V, want + (r * T + at) * V, (size_t)(n * V) * sizeof *part);
        same(what, got, part, ROWS * n * V, tol);
    }
    assert_int_equal(snd_decoder_length(d), T);
    snd_decoder_close(d);
}

static void law_of(const char *spec, const char *const *keys, int n, snd_dtype t, double tol) {
    static double want[ROWS * T * V];
    int64_t tokens[ROWS * T], src[ROWS * S];
    snd_arena *a = snd_arena_create();
    snd_weights net;
    draw_tokens("tokens", ROWS * T, tokens);
    draw_tokens("src", ROWS * S, src);
    const snd_spec *s = load(a, spec, keys, n);
    CHECK_OK(snd_weights_open(a, s, NULL, t, SEED, 2, &net));
    const int64_t *from = s->arch == SND_ARCH_ENCDEC ? src : NULL;
    whole(&net, ROWS, T, tokens, from, want);
    steps(spec, &net, tokens, from, want, tol);
    snd_weights_close(&net);
    snd_arena_destroy(a);
}

#define SMALL          "width=16", "hidden=12", "heads=4", "vocab=11", "context=16"
#define LAW(spec, ...) law_of(spec, KEYS(SMALL, DRAWN, __VA_ARGS__), SND_F64, 1e-11)

// ---- the law ----------------------------------------------------------------------------------------------------------------

static bool reads_c(const snd_wiring *w) {
    return !strncmp(w->key, "adaln", 5);
}

static void catalogue(void **state) {
    (void)state;
    int seen = 0;
    for (int i = 0; i < snd_wiring_count(); i++) {
        const snd_wiring *w = snd_wiring_at(i);
        if (reads_c(w) || strstr(w->formula, "conv(")) continue;
        seen++;
        LAW(w->key, "layers=3", "position=rope", "family=transformer");
        LAW(w->key, "layers=3", "position=learned", "arch=encoder-decoder", "encoder_layers=2", "family=transformer");
    }
    assert_true(seen > 30);
}

static void sublayers(void **state) {
    (void)state;
    LAW("pre", "layers=2", "position=none");
    LAW("pre", "layers=2", "position=sinusoidal", "tie=false", "embed_scale=3");
    LAW("pre", "layers=2", "position=rope", "rope_style=interleaved", "rope_fraction=0.5", "kv_heads=2");
    LAW("pre", "layers=2", "position=rope", "qk_norm=rms-head", "kv_heads=1", "window=4");
    LAW("pre", "layers=2", "position=rope", "qk_norm=rms-full", "attn_bias=true");
    LAW("pre", "layers=2", "position=rope", "qk_norm=l2", "softcap=2", "gated=true", "act=silu");
    LAW("pre", "layers=2", "position=alibi", "heads=6", "width=24", "softcap=3");
    LAW("pre", "layers=2", "position=alibi", "window=l % 2 == 0 ? 0 : 3");
    LAW("pre", "layers=2", "position=t5", "t5_buckets=6", "t5_max_distance=9");
    LAW("pre", "layers=2", "position=t5", "arch=encoder-decoder", "t5_buckets=8", "norm=rms");
    LAW("pre", "layers=2", "position=xl");
    LAW("pre", "layers=2", "position=xl", "window=5", "kv_heads=2", "arch=encoder-decoder", "qk_norm=rms-head");
    LAW("pre", "layers=3", "position=l == 2 ? alibi : rope", "norm=scale");
    LAW("pre", "layers=2", "position=rope", "norm=batch");
    LAW("pre", "layers=2", "position=rope", "norm=derf", "plus1=true");
    LAW("layer: x = x + A(N(x), headgain=1, vnorm=1, v1=0.3, inner=1); x = x + M(N(x), inner=1); out: x = N(x)",
        "layers=3", "position=rope");
    LAW("layer: x = x + A(N(x), v1=0.4); x = cross ? x + C(N(x), v1=0.3, vnorm=1) : x; x = x + M(N(x)); x = x + A(x, "
        "v1=0.2)",
        "layers=2", "position=xl", "arch=encoder-decoder", "qk_norm=rms-head");
    LAW("layer: x = x + A(N(x)); x = x + M(N(x)); out: x = N(x)", "layers=2", "position=learned",
        "arch=encoder-decoder");
    LAW("in: y = x; x = depthmix(x); layer: x = x + A(x); y = y + M(N(x)); x = depthmix(N(x + y))", "layers=3",
        "position=rope");
}

// ---- other numbers, other types -----------------------------------------------------------------------------------------------

// Without a norm and with large maps, values of the last layers are far beyond f32.
static void far_exponents(void **state) {
    (void)state;
    law_of("layer: x = x + A(x); x = x + 1e15*M(x); out: x = N(x)",
           KEYS(SMALL, "init=normal(0.5)", "layers=4", "position=none", "attn_scale=1e-30", "act=relu"), SND_F32, 2e-5);
    law_of("layer: x = 1e-20*(x + A(x)); x = x + M(x); out: x = N(x)",
           KEYS(SMALL, "init=normal(0.5)", "layers=4", "position=none", "act=relu", "eps=1e-200"), SND_F32, 2e-5);
}

static void single_precision(void **state) {
    (void)state;
    law_of("pre", KEYS(SMALL, "layers=3", "position=rope"), SND_F32, 1e-5);
}

// ---- what a decoder can do ----------------------------------------------------------------------------------------------------

typedef struct bench {
    snd_arena *a;
    snd_weights net;
    snd_decoder *d;
} bench;

static void open_bench(bench *b, const char *const *keys, int n, const snd_decoder_opts *o) {
    *b = (bench){.a = snd_arena_create()};
    CHECK_OK(snd_weights_open(b->a, load(b->a, "pre", keys, n), NULL, SND_F64, SEED, 1, &b->net));
    CHECK_OK(snd_decoder_open(&b->net, o, &b->d));
}

static void close_bench(bench *b) {
    snd_decoder_close(b->d);
    snd_weights_close(&b->net);
    snd_arena_destroy(b->a);
}

// Two sources, two beams of each; sequences are exchanged within their source after four tokens.
static void beams(void **state) {
    (void)state;
    const char *const keys[] = {SMALL, DRAWN, "layers=2", "position=rope", "arch=encoder-decoder"};
    const snd_decoder_opts o = {.rows = 4, .capacity = T, .src_tokens = S, .src_rows = 2};
    bench b;
    open_bench(&b, keys, (int)(sizeof keys / sizeof *keys), &o);
    int64_t src[2 * S], wide[4 * S], first[16], next[8], joined[24];
    const int64_t from[4] = {1, 1, 3, 2};
    double got[4 * V], want[24 * V], last[4 * V];
    draw_tokens("src", 2 * S, src);
    draw_tokens("first", 16, first);
    draw_tokens("next", 8, next);
    CHECK_OK(snd_decoder_encode(b.d, src));
    CHECK_OK(snd_decoder_push(b.d, first, 4, NULL));
    CHECK_OK(snd_decoder_select(b.d, from));
    CHECK_OK(snd_decoder_push(b.d, next, 2, got));
    for (int r = 0; r < 4; r++) {
        memcpy(joined + r * 6, first + from[r] * 4, 4 * sizeof *joined);
        memcpy(joined + r * 6 + 4, next + r * 2, 2 * sizeof *joined);
        memcpy(wide + r * S, src + r / 2 * S, S * sizeof *wide);
    }
    whole(&b.net, 4, 6, joined, wide, want);
    for (int r = 0; r < 4; r++) memcpy(last + r * V, want + (r * 6 + 5) * V, V * sizeof *last);
    same("beams", got, last, 4 * V, 1e-11);
    close_bench(&b);
}

// What was forgotten shows in nothing, be it NaN.
static void forgotten(void **state) {
    (void)state;
    const char *const keys[] = {SMALL, DRAWN, "layers=2", "position=alibi"};
    const snd_decoder_opts o = {.rows = 1, .capacity = T};
    bench b;
    open_bench(&b, keys, (int)(sizeof keys / sizeof *keys), &o);
    int64_t tokens[T];
    double got[V], again[V];
    void *table;
    draw_tokens("tokens", T, tokens);
    CHECK_OK(snd_decoder_push(b.d, tokens, 5, NULL));
    CHECK_OK(snd_decoder_push(b.d, tokens + 5, 1, got));
    snd_decoder_cut(b.d, 5);
    CHECK_OK(snd_decoder_push(b.d, tokens + 8, 3, NULL));
    snd_decoder_cut(b.d, 5);
    CHECK_OK(snd_decoder_push(b.d, tokens + 5, 1, again));
    assert_memory_equal(got, again, sizeof got);
    int at = 0;
    while (strcmp(snd_g_value(b.net.g, snd_g_param_at(b.net.g, at))->name, "embed.token.weight") != 0) at++;
    CHECK_OK(snd_source_data(&b.net.source, b.net.g, at, &table));
    double *row = (double *)table + tokens[9] * 16, kept[16];
    memcpy(kept, row, sizeof kept);
    for (int i = 0; i < 16; i++) row[i] = NAN;
    snd_decoder_cut(b.d, 0);
    CHECK_OK(snd_decoder_push(b.d, tokens, 10, again));
    assert_true(isnan(again[0]));
    memcpy(row, kept, sizeof kept);
    snd_decoder_cut(b.d, 0);
    CHECK_OK(snd_decoder_push(b.d, tokens, 6, again));
    same("after a NaN", again, got, V, 1e-12);
    close_bench(&b);
}

// A segment that was read before is xl's memory: `run` takes it as mem.SITE.
static void memory_of_xl(void **state) {
    (void)state;
    enum { PAST = 6, NOW = 4 };
    const char *const keys[] = {SMALL, DRAWN, "layers=1", "position=xl"};
    const snd_decoder_opts o = {.rows = 1, .capacity = T, .every = true};
    bench b;
    open_bench(&b, keys, (int)(sizeof keys / sizeof *keys), &o);
    int64_t tokens[PAST + NOW];
    static double got[NOW * V], want[NOW * V], in[PAST * 16];
    draw_tokens("tokens", PAST + NOW, tokens);
    CHECK_OK(snd_decoder_push(b.d, tokens, PAST, NULL));
    CHECK_OK(snd_decoder_push(b.d, tokens + PAST, NOW, got));
    snd_model *m;
    snd_plan *plan;
    snd_exec *x;
    const snd_build first = {.dtype = SND_F64, .rows = 1, .tokens = PAST};
    CHECK_OK(snd_model_build(b.a, b.net.spec, &first, &m));
    const snd_id read = snd_model_tap(m, "layers.0.A.in");
    CHECK_OK(snd_plan_make(b.a, m->g, &read, 1, &plan));
    CHECK_OK(snd_exec_create(m->g, plan, &b.net.source, NULL, &x));
    CHECK_OK(snd_exec_set(x, m->input, tokens, SND_I64));
    CHECK_OK(snd_exec_run(x));
    CHECK_OK(snd_exec_get(x, read, in));
    snd_exec_destroy(x);
    const snd_past past = {"layers.0.A", PAST};
    const snd_build second = {.dtype = SND_F64, .rows = 1, .tokens = NOW, .past = &past, .n_past = 1};
    CHECK_OK(snd_model_build(b.a, b.net.spec, &second, &m));
    CHECK_OK(snd_plan_make(b.a, m->g, &m->logits, 1, &plan));
    CHECK_OK(snd_exec_create(m->g, plan, &b.net.source, NULL, &x));
    CHECK_OK(snd_exec_set(x, m->input, tokens + PAST, SND_I64));
    CHECK_OK(snd_exec_set(x, snd_model_input(m, "mem.layers.0.A"), in, SND_F64));
    CHECK_OK(snd_exec_run(x));
    CHECK_OK(snd_exec_get(x, m->logits, want));
    same("xl's memory", got, want, NOW * V, 1e-11);
    snd_exec_destroy(x);
    close_bench(&b);
}

static void threads(void **state) {
    (void)state;
    double got[2][V];
    int64_t tokens[T];
    draw_tokens("tokens", T, tokens);
    for (int t = 0; t < 2; t++) {
        const char *const keys[] = {"width=256", "heads=4", "vocab=11", "context=16", "layers=2", "position=rope"};
        snd_arena *a = snd_arena_create();
        snd_weights net;
        snd_decoder *d;
        const snd_decoder_opts o = {.rows = 1, .capacity = T};
        CHECK_OK(snd_weights_open(a, load(a, "pre", keys, 6), NULL, SND_F32, SEED, 1 + 2 * t, &net));
        CHECK_OK(snd_decoder_open(&net, &o, &d));
        CHECK_OK(snd_decoder_push(d, tokens, T, got[t]));
        snd_decoder_close(d);
        snd_weights_close(&net);
        snd_arena_destroy(a);
    }
    assert_memory_equal(got[0], got[1], sizeof got[0]);
}

// ---- what is refused ------------------------------------------------------------------------------------------------------------

static void refused(const char *spec, const char *const *keys, int n, int64_t capacity, const char *why) {
    snd_arena *a = snd_arena_create();
    snd_weights net;
    snd_decoder *d;
    CHECK_OK(snd_weights_open(a, load(a, spec, keys, n), NULL, SND_F32, SEED, 1, &net));
    const snd_decoder_opts o = {.rows = 1, .capacity = capacity};
    assert_int_not_equal(snd_decoder_open(&net, &o, &d), SONDE_OK);
    assert_null(d);
    if (!strstr(sonde_error_message(), why)) fail_msg("'%s' does not say '%s'", sonde_error_message(), why);
    snd_weights_close(&net);
    snd_arena_destroy(a);
}

static void refusals(void **state) {
    (void)state;
    refused("pre", KEYS(SMALL, "layers=1", "position=rope", "arch=encoder"), 8, "an encoder");
    refused("pre", KEYS("layers=1", "width=8"), 8, "family mlp");
    refused("pre", KEYS("heads=2", "width=8", "layers=1"), 8, "no vocab");
    refused("pre", KEYS(SMALL, "layers=1", "position=learned"), 17, "context, 16");
    refused("adaln", KEYS(SMALL, "layers=1", "position=rope", "cond=3", "family=transformer"), 8, "reads c");
    const char *const keys[] = {SMALL, "layers=1", "position=rope"};
    const snd_decoder_opts o = {.rows = 1, .capacity = 4};
    bench b;
    open_bench(&b, keys, (int)(sizeof keys / sizeof *keys), &o);
    assert_int_equal(snd_decoder_push(b.d, (int64_t[]){1, 2, 3, 4, 5}, 5, NULL), SONDE_ERANGE);
    assert_int_equal(snd_decoder_push(b.d, (int64_t[]){1, 11}, 2, NULL), SONDE_ERANGE);
    assert_int_equal(snd_decoder_length(b.d), 0);
    close_bench(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(catalogue),        cmocka_unit_test(sublayers), cmocka_unit_test(far_exponents),
        cmocka_unit_test(single_precision), cmocka_unit_test(beams),     cmocka_unit_test(forgotten),
        cmocka_unit_test(memory_of_xl),     cmocka_unit_test(threads),   cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
