// Transformers as a whole, where no golden case stands: gradients of every parameter and input by central differences,
// laws (a memory is the encoder's output, segments join, x is the embedding, tokens permute, no look ahead), which
// parameters there are, and what must be refused.
#include "lab/lab.h"

#include "check.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEYS(...) (const char *const[]){__VA_ARGS__}, (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *))
// Biases and gains that show: at their usual start many faults would not.
#define DRAWN "init=normal(0.3); b = normal(0.2); g = normal(0.6); headgain = normal(0.7); scalar = normal(0.5)"

static snd_spec *load(snd_arena *a, const char *spec, const char *const *keys, int n) {
    snd_spec *s = NULL;
    CHECK_OK(snd_spec_load(a, spec, keys, n, &s));
    return s;
}

static void draw(const char *name, int64_t n, double *out) {
    for (int64_t i = 0; i < n; i++) out[i] = snd_normal_at(snd_key_make(5, name), (uint64_t)i);
}

// ---- gradients ----------------------------------------------------------------------------------------------------------

enum { MOST = 4096 };

typedef struct net {
    const snd_graph *g;
    snd_model *m;
    snd_source source;
    snd_exec *exec;
    snd_id dy;
} net;

static double loss(net *n) {
    static double y[MOST], dy[MOST];
    const int64_t size = snd_shape_size(snd_g_value(n->g, n->m->out_x)->shape);
    CHECK_OK(snd_exec_run(n->exec));
    CHECK_OK(snd_exec_get(n->exec, n->m->out_x, y));
    draw("dy", size, dy);
    double sum = 0;
    for (int64_t i = 0; i < size; i++) sum += y[i] * dy[i];
    return sum;
}

static void set_inputs(net *n) {
    static double x[MOST];
    int64_t ids[64];
    for (int i = 0; i < n->m->n_inputs; i++) {
        const snd_value *v = snd_g_value(n->g, n->m->inputs[i].v);
        const int64_t size = snd_shape_size(v->shape);
        draw(v->name, size, x);
        const bool tokens = v->dtype == SND_I64;
        for (int64_t k = 0; tokens && k < size; k++) ids[k] = (int64_t)(fabs(x[k]) * 100) % n->m->spec->vocab;
        CHECK_OK(snd_exec_set(n->exec, n->m->inputs[i].v, tokens ? (void *)ids : x, tokens ? SND_I64 : SND_F64));
    }
    draw("dy", snd_shape_size(snd_g_value(n->g, n->dy)->shape), x);
    CHECK_OK(snd_exec_set(n->exec, n->dy, x, SND_F64));
}

// Adds t times a random direction to parameter i, or to input i of the model.
static void move(net *n, int param, const snd_tap *input, double t) {
    static double d[MOST], x[MOST];
    const snd_value *v = snd_g_value(n->g, input ? input->v : snd_g_param_at(n->g, param));
    const int64_t size = snd_shape_size(v->shape);
    draw("direction", size, d);
    if (input) {
        draw(v->name, size, x);
        for (int64_t k = 0; k < size; k++) x[k] += t * d[k];
        CHECK_OK(snd_exec_set(n->exec, input->v, x, SND_F64));
        return;
    }
    void *data;
    CHECK_OK(snd_source_data(&n->source, n->g, param, &data));
    for (int64_t k = 0; k < size; k++) ((double *)data)[k] += t * d[k];
}

// Fourth-order difference along the direction.
static double difference(net *n, int param, const snd_tap *input) {
    static const double at[] = {1, -1, 2, -2}, weight[] = {8, -8, -1, 1};
    const double h = 1e-4; // norms of small rows bend sharply
    double sum = 0;
    for (int k = 0; k < 4; k++) {
        move(n, param, input, at[k] * h);
        sum += weight[k] * loss(n);
        move(n, param, input, input ? 0 : -at[k] * h);
    }
    return sum / (12 * h);
}

static double along(net *n, snd_id gradient) {
    static double g[MOST], d[MOST];
    if (!gradient) return 0;
    const int64_t size = snd_shape_size(snd_g_value(n->g, gradient)->shape);
    double sum = 0;
    CHECK_OK(snd_exec_get(n->exec, gradient, g));
    draw("direction", size, d);
    for (int64_t k = 0; k < size; k++) sum += g[k] * d[k];
    return sum;
}

static void check_gradients(const char *wiring, const snd_build *b, const char *const *keys, int n_keys) {
    snd_arena *a = snd_arena_create();
    net n = {0};
    CHECK_OK(snd_model_build(a, load(a, wiring, keys, n_keys), b, &n.m));
    snd_graph *g = n.m->g;
    n.g = g;
    snd_id wrt[256], grad[256], keep[257], y = n.m->out_x;
    const int n_params = snd_g_param_count(g), all = n_params + n.m->n_inputs;
    assert_true(all < 256);
    for (int i = 0; i < n_params; i++) wrt[i] = snd_g_param_at(g, i);
    for (int i = n_params; i < all; i++) wrt[i] = n.m->inputs[i - n_params].v;
    n.dy = snd_g_input(g, "dy", snd_g_value(g, y)->shape, SND_DT_NONE);
    snd_g_grad(g, &y, &n.dy, 1, wrt, all, grad);
    CHECK_OK(snd_graph_status(g));
    int n_keep = 0;
    keep[n_keep++] = y;
    for (int i = 0; i < all; i++)
        if (grad[i]) keep[n_keep++] = grad[i];
    snd_plan *plan;
    CHECK_OK(snd_plan_make(a, g, keep, n_keep, &plan));
    CHECK_OK(snd_source_resident(g, 3, 1, &n.source));
    CHECK_OK(snd_exec_create(g, plan, &n.source, &(snd_exec_opts){.threads = 1}, &n.exec));
    set_inputs(&n);
    (void)loss(&n);
    double got[256];
    for (int i = 0; i < all; i++) got[i] = along(&n, grad[i]);
    for (int i = 0; i < all; i++) {
        const snd_tap *input = i < n_params ? NULL : &n.m->inputs[i - n_params];
        if (input && (snd_g_value(g, input->v)->dtype == SND_I64 || !strncmp(input->name, "mem.", 4))) continue;
        if (!input && snd_g_param_is_state(g, i)) continue;
        const double want = difference(&n, i, input);
        if (!(fabs(got[i] - want) <= 1e-8 * fmax(1, fabs(want))))
            fail_msg("%s: gradient of %s along a direction is %.15g, differences say %.15g", wiring,
                     snd_g_value(g, wrt[i])->name, got[i], want);
    }
    snd_exec_destroy(n.exec);
    snd_source_close(&n.source);
    snd_arena_destroy(a);
}

static void gradients(void **state) {
    (void)state;
    const snd_build one = {.dtype = SND_F64, .rows = 2, .tokens = 5, .src_tokens = 3};
    check_gradients(
        "layer: h = A(N(x), headgain=1, vnorm=1, v1=0.3, inner=1); x = x + h; x = x + M(N(x), inner=1)", &one,
        KEYS("layers=2", "width=8", "hidden=6", "heads=4", "kv_heads=2", "vocab=7", "position=learned", "context=6",
             "embed_scale=0.5", "qk_norm=rms-full", "act=silu", "gated=true", "plus1=true", DRAWN));
    check_gradients("each: x = x + W(silu(c), d, bias=1)*F(N(x)) + N0(x)*W(c, 1)", &one,
                    KEYS("layers=3", "width=6", "heads=2", "head_dim=4", "cond=3", "norm=rms", "softcap=1.5",
                         "position=l % 2 == 1 ? rope : alibi", "rope_style=interleaved", "rope_fraction=0.5",
                         "window=l == 2 ? 3 : 0", "qk_norm=l2", "bias=false", DRAWN));
    const snd_build xl = {.dtype = SND_F64,
                          .rows = 2,
                          .tokens = 4,
                          .past = (const snd_past[]){{"layers.0.A", 3}, {"layers.1.A", 2}},
                          .n_past = 2};
    check_gradients("post", &xl, KEYS("layers=2", "width=8", "heads=2", "position=xl", "window=5", DRAWN));
    check_gradients("pre", &(snd_build){.dtype = SND_F64, .rows = 2, .tokens = 5},
                    KEYS("layers=1", "width=8", "heads=2", "position=xl", "arch=encoder", "norm=batch", DRAWN));
    snd_build two = one;
    const char *const both[] = {"encoder_layers=1", "decoder_layers=2", "arch=encoder-decoder", "width=6", "heads=2",
                                "position=t5",      "vocab=5",          "qk_norm=rms-head",     DRAWN};
    const char *const wiring =
        "layer: x = x + A(N(x)); x = cross ? x + C(N(x), headgain=1, vnorm=1, v1=0.4) : x; x = N(x "
        "+ M(x))";
    for (two.src_feed = SND_FEED_TOKENS; two.src_feed <= SND_FEED_MEMORY; two.src_feed++) {
        two.feed = two.src_feed == SND_FEED_TOKENS ? SND_FEED_STREAM : SND_FEED_TOKENS;
        check_gradients(wiring, &two, both, sizeof both / sizeof *both);
    }
}

// ---- laws ---------------------------------------------------------------------------------------------------------------

static char in_path[64], out_path[64];

typedef struct model {
    snd_arena *arena;
    snd_spec *spec;
    snd_tensor in[8];
    int n_in;
    snd_stfile *out;
} model;

static model open_model(const char *spec, const char *const *keys, int n) {
    model m = {.arena = snd_arena_create()};
    m.spec = load(m.arena, spec, keys, n);
    return m;
}

static double *give(model *m, const char *name, int64_t B, int64_t T, int64_t d) {
    double *x = snd_arena_array(m->arena, (size_t)(B * T * d), sizeof *x);
    draw(name, B * T * d, x);
    m->in[m->n_in++] = (snd_tensor){name, SND_F64, SND_SHAPE(B, T, d), x};
    return x;
}

static int64_t *give_tokens(model *m, const char *name, int64_t B, int64_t T) {
    int64_t *x = snd_arena_array(m->arena, (size_t)(B * T), sizeof *x);
    for (int64_t i = 0; i < B * T; i++) x[i] = (i * 7 + 3) % (m->spec->vocab ? m->spec->vocab : 5);
    m->in[m->n_in++] = (snd_tensor){name, SND_I64, SND_SHAPE(B, T), x};
    return x;
}

static sonde_status try_run(model *m, bool backward) {
    snd_run_result r;
    const char *const taps[] = {"*"};
    const snd_run_opts o = {.input = in_path,
                            .output = out_path,
                            .taps = taps,
                            .n_taps = 1,
                            .backward = backward,
                            .dtype = SND_F64,
                            .threads = 1};
    CHECK_OK(snd_st_write(in_path, m->in, m->n_in, NULL, 0));
    return snd_lab_run(m->arena, m->spec, &o, &r);
}

static void run(model *m) {
    bool backward = false;
    for (int i = 0; i < m->n_in; i++) backward = backward || !strcmp(m->in[i].name, "dy");
    snd_st_close(m->out);
    CHECK_OK(try_run(m, backward));
    CHECK_OK(snd_st_open(out_path, &m->out));
}

static const double *result(const model *m, const char *name, int64_t *n) {
    const snd_tensor *t = snd_st_find(m->out, name);
    if (!t) fail_msg("no %s", name);
    *n = snd_shape_size(t->shape);
    return t->data;
}

static void close_model(model *m) {
    snd_st_close(m->out);
    snd_arena_destroy(m->arena);
}

// Rows t0 .. of every example of a [B, T, d] result against rows u0 .. of another's.
static void same_tokens(const model *a, const char *x, int64_t t0, const model *b, const char *y, int64_t u0,
                        int64_t n) {
    const snd_tensor *p = snd_st_find(a->out, x), *q = snd_st_find(b->out, y);
    assert_non_null(p);
    assert_non_null(q);
    const int64_t d = p->shape.dim[2], T = p->shape.dim[1], U = q->shape.dim[1];
    assert_true(p->shape.dim[0] == q->shape.dim[0] && q->shape.dim[2] == d && t0 + n <= T && u0 + n <= U);
    for (int64_t b0 = 0; b0 < p->shape.dim[0]; b0++)
        for (int64_t i = 0; i < n * d; i++)
            CHECK_CLOSE(((const double *)p->data)[(b0 * T + t0) * d + i],
                        ((const double *)q->data)[(b0 * U + u0) * d + i], 1e-12);
}

static void memory_is_the_encoders_output(void **state) {
    (void)state;
    const char *const keys[] = {"arch=encoder-decoder",
                                "encoder_layers=2",
                                "decoder_layers=2",
                                "width=8",
                                "heads=2",
                                "vocab=7",
                                "position=rope",
                                DRAWN};
    model a = open_model("b2t", keys, 8), b = open_model("b2t", keys, 8);
    give_tokens(&a, "tokens", 2, 4);
    give_tokens(&a, "src_tokens", 2, 5);
    give(&a, "dy", 2, 4, 8);
    run(&a);
    give_tokens(&b, "tokens", 2, 4);
    give(&b, "dy", 2, 4, 8);
    int64_t n;
    double *memory = give(&b, "memory", 2, 5, 8);
    memcpy(memory, result(&a, "encoder.out.x", &n), 2 * 5 * 8 * sizeof *memory);
    run(&b);
    same_tokens(&a, "out.x", 0, &b, "out.x", 0, 4);
    same_tokens(&a, "logits", 0, &b, "logits", 0, 4);
    same_tokens(&a, "grad.encoder.out.x", 0, &b, "grad.memory", 0, 5);
    const double *unused = result(&b, "grad.encoder.layers.1.M.up.weight", &n);
    for (int64_t i = 0; i < n; i++) CHECK_SAME(unused[i], 0);
    assert_null(snd_st_find(b.out, "encoder.out.x"));
    close_model(&a);
    close_model(&b);
}

// A source with padding behind it, of whatever tokens, is the source alone.
static void padding_is_not_read(void **state) {
    (void)state;
    static const char *const positions[] = {"position=rope", "position=t5", "position=alibi", "position=sinusoidal"};
    for (int k = 0; k < 4; k++) {
        const char *const keys[] = {"arch=encoder-decoder",
                                    "encoder_layers=2",
                                    "decoder_layers=2",
                                    "width=8",
                                    "heads=2",
                                    "vocab=7",
                                    positions[k],
                                    DRAWN};
        model padded = open_model("pre", keys, 8), alone = open_model("pre", keys, 8);
        static const int64_t lengths[] = {3, 3};
        int64_t *wide = give_tokens(&padded, "src_tokens", 2, 6), *exact = give_tokens(&alone, "src_tokens", 2, 3);
        for (int b = 0; b < 2; b++) memcpy(exact + 3 * b, wide + 6 * b, 3 * sizeof *exact);
        give_tokens(&padded, "tokens", 2, 4);
        give_tokens(&alone, "tokens", 2, 4);
        give(&padded, "dy", 2, 4, 8);
        give(&alone, "dy", 2, 4, 8);
        padded.in[padded.n_in++] = (snd_tensor){"src_lengths", SND_I64, SND_SHAPE(2), (void *)lengths};
        run(&padded);
        run(&alone);
        same_tokens(&padded, "logits", 0, &alone, "logits", 0, 4);
        same_tokens(&padded, "grad.encoder.in.x", 0, &alone, "grad.encoder.in.x", 0, 3);
        int64_t n;
        const double *g = result(&padded, "grad.encoder.in.x", &n);
        for (int64_t i = 0; i < n; i++)
            if (i / 8 % 6 >= 3) CHECK_SAME(g[i], 0);
        close_model(&padded);
        close_model(&alone);
    }
}

// What a sublayer read of the first half, as the memory of the second: the whole sequence's second half.
static void segments_join(void **state) {
    (void)state;
    const char *const keys[] = {"layers=2", "width=6", "heads=3", "position=xl", "qk_norm=rms-head", DRAWN};
    model whole = open_model("post", keys, 6), half = open_model("post", keys, 6);
    const double *x = give(&whole, "x", 2, 7, 6);
    run(&whole);
    double *second = give(&half, "x", 2, 4, 6);
    for (int64_t b = 0; b < 2; b++) memcpy(second + b * 24, x + (b * 7 + 3) * 6, 24 * sizeof *x);
    for (int l = 0; l < 2; l++) {
        const char *const mem[] = {"mem.layers.0.A", "mem.layers.1.A"}, *const read[] = {"layers.0.A.in",
                                                                                         "layers.1.A.in"};
        int64_t n;
        double *m = give(&half, mem[l], 2, 3, 6);
        const double *u = result(&whole, read[l], &n);
        for (int64_t b = 0; b < 2; b++) memcpy(m + b * 18, u + b * 42, 18 * sizeof *m);
    }
    run(&half);
    same_tokens(&half, "out.x", 0, &whole, "out.x", 3, 4);
    assert_null(snd_st_find(half.out, "grad.mem.layers.0.A"));
    close_model(&whole);
    close_model(&half);
}

static void x_is_the_embedding(void **state) {
    (void)state;
    const char *const keys[] = {"layers=2",  "width=6",   "heads=2",         "vocab=7", "position=learned",
                                "context=9", "tie=false", "embed_scale=1.5", DRAWN};
    model a = open_model("pre", keys, 9), b = open_model("pre", keys, 9);
    give_tokens(&a, "tokens", 2, 4);
    give(&a, "dy", 2, 4, 6);
    run(&a);
    int64_t n;
    memcpy(give(&b, "x", 2, 4, 6), result(&a, "in.x", &n), 2 * 4 * 6 * sizeof(double));
    give(&b, "dy", 2, 4, 6);
    run(&b);
    same_tokens(&a, "out.x", 0, &b, "out.x", 0, 4);
    same_tokens(&a, "grad.in.x", 0, &b, "grad.x", 0, 4);
    assert_null(snd_st_find(b.out, "logits"));
    const double *unused = result(&b, "grad.head.weight", &n);
    for (int64_t i = 0; i < n; i++) CHECK_SAME(unused[i], 0);
    close_model(&a);
    close_model(&b);
}

static void logits_scale(void **state) {
    (void)state;
    const char *const one[] = {"layers=1", "width=6", "heads=2", "vocab=7", "position=none", DRAWN};
    const char *const two[] = {"layers=1", "width=6", "heads=2", "vocab=7", "position=none", DRAWN, "logit_scale=-2"};
    model a = open_model("pre", one, 6), b = open_model("pre", two, 7);
    give_tokens(&a, "tokens", 1, 3);
    give_tokens(&b, "tokens", 1, 3);
    run(&a);
    run(&b);
    int64_t n;
    const double *x = result(&a, "logits", &n), *y = result(&b, "logits", &n);
    for (int64_t i = 0; i < n; i++) CHECK_CLOSE(y[i], -2 * x[i], 1e-14);
    close_model(&a);
    close_model(&b);
}

// An encoder without positions does not know the order; a decoder does not know what comes later.
static void order(void **state) {
    (void)state;
    const char *const keys[] = {"layers=2", "width=6", "heads=2", "arch=encoder", DRAWN};
    model a = open_model("pre", keys, 5), b = open_model("pre", keys, 5);
    const double *x = give(&a, "x", 1, 4, 6);
    double *y = give(&b, "x", 1, 4, 6);
    for (int t = 0; t < 4; t++) memcpy(y + 6 * t, x + 6 * ((t + 1) % 4), 6 * sizeof *x);
    run(&a);
    run(&b);
    same_tokens(&b, "out.x", 0, &a, "out.x", 1, 3);
    same_tokens(&b, "out.x", 3, &a, "out.x", 0, 1);
    close_model(&a);
    close_model(&b);
    model c = open_model("pre", keys, 3), d = open_model("pre", keys, 3);
    give(&c, "x", 1, 4, 6);
    give(&d, "x", 1, 4, 6)[3 * 6] += 1;
    run(&c);
    run(&d);
    same_tokens(&c, "out.x", 0, &d, "out.x", 0, 3);
    int64_t n;
    assert_true(fabs(result(&c, "out.x", &n)[18] - result(&d, "out.x", &n)[18]) > 1e-3);
    close_model(&c);
    close_model(&d);
}

// ---- parameters depend on the spec alone --------------------------------------------------------------------------------------

static void same_parameters(void **state) {
    (void)state;
    snd_arena *a = snd_arena_create();
    const snd_spec *s = load(a, "pre",
                             KEYS("arch=encoder-decoder", "layers=2", "width=6", "heads=2", "vocab=7", "context=8",
                                  "position=learned", "tie=false", "norm=batch"));
    snd_model *first = NULL;
    for (snd_feed f = SND_FEED_TOKENS; f <= SND_FEED_STREAM; f++)
        for (snd_feed src = SND_FEED_TOKENS; src <= SND_FEED_MEMORY; src++) {
            snd_model *m;
            const snd_build b = {.dtype = SND_F32, .rows = 1, .tokens = 2, .src_tokens = 2, .feed = f, .src_feed = src};
            CHECK_OK(snd_model_build(a, s, &b, &m));
            if (!first) first = m;
            assert_int_equal(snd_g_param_count(m->g), snd_g_param_count(first->g));
            for (int i = 0; i < snd_g_param_count(m->g); i++) {
                const snd_value *p = snd_g_value(m->g, snd_g_param_at(m->g, i));
                const snd_id q = snd_g_find(first->g, p->name);
                assert_true(q != 0 && snd_shape_same(snd_g_value(first->g, q)->shape, p->shape));
            }
        }
    assert_true(snd_g_find(first->g, "decoder.head.weight") && snd_g_find(first->g, "encoder.embed.position.weight"));
    snd_arena_destroy(a);
}

// ---- what is refused ------------------------------------------------------------------------------------------------------------

static void refused(const char *what, model *m, sonde_status code, const char *words) {
    char list[200], *save = NULL;
    CHECK_STATUS(try_run(m, false), code);
    snprintf(list, sizeof list, "%s", words);
    for (char *w = strtok_r(list, "|", &save); w; w = strtok_r(NULL, "|", &save))
        if (!strstr(sonde_error_message(), w))
            fail_msg("%s: the message lacks '%s': %s", what, w, sonde_error_message());
    m->n_in = 0;
}

static void bad_inputs(void **state) {
    (void)state;
    model m = open_model("pre", KEYS("layers=1", "width=6", "heads=2", "vocab=7", "context=4", "position=learned"));
    give_tokens(&m, "tokens", 1, 3);
    give(&m, "x", 1, 3, 6);
    refused("both", &m, SONDE_EINPUT, "both tokens and x|one of them");
    give(&m, "dy", 1, 3, 6);
    refused("neither", &m, SONDE_EINPUT, "none of tokens, x|tokens [examples, tokens]");
    give(&m, "x", 1, 3, 5);
    refused("width", &m, SONDE_ESHAPE, "x has shape [1, 3, 5]|[examples, tokens, 6]");
    give(&m, "tokens", 1, 3, 6);
    refused("floats", &m, SONDE_ETYPE, "tokens is f64|I64");
    give_tokens(&m, "tokens", 1, 3)[2] = -1;
    refused("negative", &m, SONDE_ERANGE, "tokens[0, 2] is -1|0 to 6");
    give_tokens(&m, "tokens", 2, 5);
    refused("too long", &m, SONDE_EINPUT, "5 tokens|context, 4");
    give_tokens(&m, "tokens", 2, 3);
    give_tokens(&m, "src_tokens", 2, 3);
    refused("no encoder", &m, SONDE_ENAME, "unknown input 'src_tokens'|tokens, x, cond, dy, targets");
    give_tokens(&m, "tokens", 2, 3);
    give_tokens(&m, "targets", 2, 4);
    refused("targets", &m, SONDE_ESHAPE, "targets has shape [2, 4]|[2, 3]");
    give(&m, "x", 1, 3, 6);
    give_tokens(&m, "targets", 1, 3);
    refused("no logits", &m, SONDE_EINPUT, "targets need logits|tokens");
    give_tokens(&m, "tokens", 2, 3);
    give(&m, "mem.layers.0.A", 2, 3, 6);
    refused("no xl", &m, SONDE_ENAME, "mem.layers.0.A");
    close_model(&m);
    m = open_model("pre", KEYS("layers=1", "width=6", "heads=2", "position=xl", "arch=encoder-decoder"));
    give_tokens(&m, "tokens", 1, 3);
    give(&m, "src_x", 1, 3, 6);
    refused("no vocab", &m, SONDE_EINPUT, "no vocab|give x");
    give(&m, "x", 1, 3, 6);
    refused("no source", &m, SONDE_EINPUT, "none of src_tokens, src_x, memory|src_x [examples, tokens, width]");
    give(&m, "x", 2, 3, 6);
    give(&m, "memory", 1, 3, 6);
    refused("examples", &m, SONDE_ESHAPE, "x has 2 examples, memory has 1");
    give(&m, "x", 2, 3, 6);
    give(&m, "src_x", 2, 3, 6);
    give(&m, "mem.decoder.layers.0.A", 1, 2, 6);
    refused("examples of a past", &m, SONDE_ESHAPE, "mem.decoder.layers.0.A has shape [1, 2, 6]|2 examples");
    static const int64_t lengths[] = {3, 4, 1};
    for (int k = 0; k < 2; k++) {
        give(&m, "x", 2, 3, 6);
        give(&m, "src_x", 2, 3, 6);
        m.in[m.n_in++] = (snd_tensor){"src_lengths", SND_I64, SND_SHAPE(2 + k), (void *)lengths};
        refused("lengths", &m, k ? SONDE_ESHAPE : SONDE_ERANGE,
                k ? "src_lengths has shape [3]|[2] is needed" : "src_lengths[1] is 4|1 to 3 source tokens");
    }
    give(&m, "x", 2, 3, 6);
    give(&m, "src_x", 2, 3, 6);
    give(&m, "mem.decoder.layers.0.C", 2, 2, 6);
    refused("cross-attention", &m, SONDE_EINPUT, "mem.decoder.layers.0.C|self-attention");
    close_model(&m);
    m = open_model("layer: x = x + A(x, v1=0.5)", KEYS("layers=2", "width=6", "heads=2", "kv_heads=l"));
    give(&m, "x", 1, 3, 6);
    refused("first values", &m, SONDE_ESHAPE, "layers.1.A|v1|have 3 features|they have 6");
    close_model(&m);
}

int main(void) {
    snprintf(in_path, sizeof in_path, "/tmp/sonde-tf-in-%ld.safetensors", (long)getpid());
    snprintf(out_path, sizeof out_path, "/tmp/sonde-tf-out-%ld.safetensors", (long)getpid());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients),
        cmocka_unit_test(memory_is_the_encoders_output),
        cmocka_unit_test(padding_is_not_read),
        cmocka_unit_test(segments_join),
        cmocka_unit_test(x_is_the_embedding),
        cmocka_unit_test(logits_scale),
        cmocka_unit_test(order),
        cmocka_unit_test(same_parameters),
        cmocka_unit_test(bad_inputs),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(in_path);
    unlink(out_path);
    return failed;
}
