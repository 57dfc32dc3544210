// Sampling, beams and evaluation on small models: distributions by chi-square, greedy as temperature 0, one beam as greedy,
// many beams as the best of all outputs, losses of windows as sums over tokens, and what must be refused.

#include "lab/lab.h"

#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEYS(...) (const char *const[]){__VA_ARGS__}, (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *))
enum { SEED = 3 };

typedef struct model {
    snd_arena *a;
    snd_spec *spec;
    snd_weights net;
} model;

static void open_model(model *m, const char *spec, const char *const *keys, int n) {
    *m = (model){.a = snd_arena_create()};
    CHECK_OK(snd_spec_load(m->a, spec, keys, n, &m->spec));
    CHECK_OK(snd_weights_open(m->a, m->spec, NULL, SND_F64, SEED, 1, &m->net));
}

static void close_model(model *m) {
    snd_weights_close(&m->net);
    snd_arena_destroy(m->a);
}

// Logits of the last of n tokens, the whole sequence in one pass.
static void last_logits(model *m, const int64_t *tokens, int64_t n, const int64_t *src, int64_t S, double *out) {
    snd_arena *a = snd_arena_create();
    snd_model *g;
    snd_plan *plan;
    snd_exec *x;
    const snd_build b = {.dtype = SND_F64, .rows = 1, .tokens = n, .src_tokens = S, .last = true, .eval = true};
    CHECK_OK(snd_model_build(a, m->spec, &b, &g));
    CHECK_OK(snd_plan_make(a, g->g, &g->logits, 1, &plan));
    CHECK_OK(snd_exec_create(g->g, plan, &m->net.source, NULL, &x));
    CHECK_OK(snd_exec_set(x, g->input, tokens, SND_I64));
    if (src) CHECK_OK(snd_exec_set(x, snd_model_input(g, "src_tokens"), src, SND_I64));
    CHECK_OK(snd_exec_run(x));
    CHECK_OK(snd_exec_get(x, g->logits, out));
    snd_exec_destroy(x);
    snd_arena_destroy(a);
}

static double log_sum(const double *x, int64_t n) {
    double top = x[0], sum = 0;
    for (int64_t i = 1; i < n; i++) top = fmax(top, x[i]);
    for (int64_t i = 0; i < n; i++) sum += exp(x[i] - top);
    return top + log(sum);
}

// ---- one token --------------------------------------------------------------------------------------------------------------

enum { SIX = 6, DRAWS = 20000 };
static const double six[SIX] = {1.0, 3.0, 0.5, 2.0, 3.0, -1.0};

// Pearson's statistic of DRAWS draws against p; tokens of probability 0 must not be drawn.
static double chi_square(const snd_sampling *s, const double *p, int *freedom) {
    int64_t count[SIX] = {0}, token;
    snd_choice work[SIX];
    for (int i = 0; i < DRAWS; i++) {
        CHECK_OK(snd_sample(s, six, SIX, snd_uniform_at(snd_key_make(SEED, "draws"), (uint64_t)i), work, &token));
        count[token]++;
    }
    double x = 0;
    *freedom = -1;
    for (int i = 0; i < SIX; i++) {
        if (p[i] == 0) assert_int_equal(count[i], 0);
        if (p[i] == 0) continue;
        const double want = p[i] * DRAWS;
        x += ((double)count[i] - want) * ((double)count[i] - want) / want;
        ++*freedom;
    }
    return x;
}

// Mean f, variance 2f; 6 standard deviations above it is beyond 1e-5 for up to five degrees of freedom.
static void follows(const snd_sampling *s, const double *p) {
    int f;
    const double x = chi_square(s, p, &f);
    if (!(x <= f + 6 * sqrt(2 * (double)f))) fail_msg("chi-square is %.3g with %d degrees of freedom", x, f);
}

static void softmax(double t, double *p) {
    double scaled[SIX];
    for (int i = 0; i < SIX; i++) scaled[i] = six[i] / t;
    const double lse = log_sum(scaled, SIX);
    for (int i = 0; i < SIX; i++) p[i] = exp(scaled[i] - lse);
}

static void draws_follow_the_distribution(void **state) {
    (void)state;
    double p[SIX];
    softmax(1, p);
    follows(&(snd_sampling){.temperature = 1, .top_p = 1}, p);
    softmax(2.5, p);
    follows(&(snd_sampling){.temperature = 2.5, .top_p = 1}, p);
    int f;
    softmax(1, p);
    assert_true(chi_square(&(snd_sampling){.temperature = 1.2, .top_p = 1}, p, &f) > 100); // the test has power
    // the three likeliest: tokens 1 and 4 (equal), then 3
    softmax(1, p);
    const double sum = p[1] + p[4] + p[3];
    const double three[SIX] = {0, p[1] / sum, 0, p[3] / sum, p[4] / sum, 0};
    follows(&(snd_sampling){.temperature = 1, .top_k = 3, .top_p = 1}, three);
    // p1 = p4 = 0.37: 0.5 is reached with the second, 0.3 with the first of equals
    const double two[SIX] = {0, 0.5, 0, 0, 0.5, 0}, one[SIX] = {0, 1, 0, 0, 0, 0};
    follows(&(snd_sampling){.temperature = 1, .top_p = 0.5}, two);
    follows(&(snd_sampling){.temperature = 1, .top_p = 0.3}, one);
    follows(&(snd_sampling){.temperature = 1, .top_k = 1, .top_p = 1}, one);
    follows(&(snd_sampling){.temperature = 0, .top_p = 1}, one);
}

static void bad_logits(void **state) {
    (void)state;
    snd_choice work[3];
    int64_t token;
    const snd_sampling s = {.temperature = 1, .top_p = 1};
    const double nan[3] = {0, NAN, 1}, none[3] = {-INFINITY, -INFINITY, -INFINITY}, some[3] = {-INFINITY, 2, -INFINITY};
    assert_int_equal(snd_sample(&s, nan, 3, 0.5, work, &token), SONDE_ERANGE);
    assert_int_equal(snd_sample(&s, none, 3, 0.5, work, &token), SONDE_ERANGE);
    CHECK_OK(snd_sample(&s, some, 3, 0.999, work, &token));
    assert_int_equal(token, 1);
}

// ---- texts ------------------------------------------------------------------------------------------------------------------

enum { V = 7, LONG = 24, MANY = 3 };

typedef struct text {
    int64_t t[MANY][LONG];
    int n[MANY];
} text;

static void collect(void *ctx, int64_t sample, int64_t token, bool done) {
    text *x = ctx;
    (void)done;
    if (token >= 0) x->t[sample][x->n[sample]++] = token;
}

static text generate(model *m, snd_generate_opts o, const int64_t *prompt, int64_t n, snd_generated *g) {
    text x = {0};
    o.token = collect;
    o.ctx = &x;
    CHECK_OK(snd_generate(&m->net, &o, prompt, n, g));
    return x;
}

#define TINY "width=16", "heads=2", "vocab=7", "layers=2", "context=12", "init=normal(0.5)"

// What the model sees when the context is full: the last half, then one more each time.
static void greedy(void **state) {
    (void)state;
    model m;
    open_model(&m, "pre", KEYS(TINY, "position=learned"));
    const snd_generate_opts o = {.sampling = {.top_p = 1}, .samples = 1, .tokens = LONG, .capacity = 12, .end = -1};
    snd_generated g;
    int64_t seen[LONG + 3] = {1, 5, 2}, first = 0, n = 3;
    const text x = generate(&m, o, seen, 3, &g);
    assert_int_equal(g.tokens, LONG);
    assert_true(g.reread > 1);
    double logits[V];
    for (int i = 0; i < LONG; i++) {
        if (n - first > 12) first = n - 6;
        last_logits(&m, seen + first, n - first, NULL, 1, logits);
        int best = 0;
        for (int v = 1; v < V; v++)
            if (logits[v] > logits[best]) best = v;
        assert_int_equal(x.t[0][i], best);
        seen[n++] = best;
    }
    close_model(&m);
}

static void samples_are_their_own(void **state) {
    (void)state;
    model m;
    open_model(&m, "pre", KEYS(TINY, "position=rope"));
    snd_generate_opts o = {
        .sampling = {.temperature = 1, .top_p = 1}, .samples = 3, .tokens = 20, .capacity = 12, .end = -1};
    snd_generated g;
    const int64_t prompt[2] = {1, 4};
    const text three = generate(&m, o, prompt, 2, &g), again = generate(&m, o, prompt, 2, &g);
    assert_memory_equal(&three, &again, sizeof three);
    assert_memory_not_equal(three.t[0], three.t[1], sizeof three.t[0]);
    o.samples = 1;
    const text one = generate(&m, o, prompt, 2, &g);
    assert_memory_equal(one.t[0], three.t[0], sizeof one.t[0]);
    o.seed = 1;
    const text other = generate(&m, o, prompt, 2, &g);
    assert_memory_not_equal(one.t[0], other.t[0], sizeof one.t[0]);
    o.seed = 0;
    o.end = three.t[0][4]; // its first appearance ends the text, and is not given
    const text ended = generate(&m, o, prompt, 2, &g);
    assert_true(ended.n[0] <= 4);
    assert_int_equal(g.tokens, ended.n[0]);
    assert_memory_equal(ended.t[0], one.t[0], (size_t)ended.n[0] * sizeof *one.t[0]);
    o.end = -1;
    o.limit = 3;
    const text low = generate(&m, o, prompt, 2, &g);
    for (int i = 0; i < low.n[0]; i++) assert_true(low.t[0][i] < 3);
    // an end behind the limit, as among special tokens, still ends; what stands between never comes
    o = (snd_generate_opts){
        .sampling = {.temperature = 1, .top_p = 1}, .samples = 3, .tokens = 20, .capacity = 12, .end = 5, .limit = 3};
    const text short_ones = generate(&m, o, prompt, 2, &g);
    int64_t made = 0;
    for (int r = 0; r < 3; r++)
        for (int i = 0; i < short_ones.n[r]; i++, made++) assert_true(short_ones.t[r][i] < 3);
    assert_int_equal(made, g.tokens);
    assert_true(made < 3 * 20 && made > 0);
    assert_int_equal(snd_generate(&m.net, &o, prompt, 0, &g), SONDE_EINPUT);
    close_model(&m);
}

// ---- beams ------------------------------------------------------------------------------------------------------------------

enum { SRC = 3, MOST = 4, BEGIN = 5, END = 6 };

typedef struct best {
    double score;
    int64_t t[MOST], n;
} best;

static double penalised(double logp, int64_t length, double a) {
    return logp / pow((5 + (double)length) / 6, a);
}

// Every output of up to MOST tokens, its end counted.
// limit: the tokens that may come are those below it, and END.
static void try_all(model *m, const int64_t *src, double a, int64_t limit, int64_t *tokens, int64_t n, double logp,
                    best *b) {
    double logits[V];
    if (n == MOST) {
        if (penalised(logp, n, a) > b->score) {
            *b = (best){.score = penalised(logp, n, a), .n = n};
            memcpy(b->t, tokens + 1, (size_t)n * sizeof *b->t);
        }
        return;
    }
    last_logits(m, tokens, n + 1, src, SRC, logits);
    for (int64_t v = limit; v < V; v++)
        if (v != END) logits[v] = -INFINITY;
    const double lse = log_sum(logits, V);
    for (int v = 0; v < V; v++) {
        if (v >= limit && v != END) continue;
        const double now = logp + logits[v] - lse;
        tokens[n + 1] = v;
        if (v != END) {
            try_all(m, src, a, limit, tokens, n + 1, now, b);
        } else if (penalised(now, n + 1, a) > b->score) {
            *b = (best){.score = penalised(now, n + 1, a), .n = n};
            memcpy(b->t, tokens + 1, (size_t)n * sizeof *b->t);
        }
    }
}

static void beams_find_the_best(void **state) {
    (void)state;
    static const double penalties[] = {0, 0.6, 2};
    model m;
    open_model(&m, "pre", KEYS(TINY, "position=learned", "arch=encoder-decoder", "tie=false", "logit_scale=3"));
    enum { SOURCES = 5 };
    const int64_t src[SOURCES * SRC] = {0, 3, 6, 2, 2, 6, 1, 1, 6, 4, 0, 6, 3, 5, 6};
    int at_once = 0, later = 0, cut = 0; // later: where its length counts
    for (int k = 0; k < 4; k++) {        // the last time without the token between the text's and the end
        const int64_t limit = k == 3 ? BEGIN : V;
        const snd_beam_opts o = {.beams = 216,
                                 .tokens = MOST,
                                 .length_penalty = penalties[k % 3],
                                 .begin = BEGIN,
                                 .end = END,
                                 .limit = limit};
        snd_hypothesis h[SOURCES];
        CHECK_OK(snd_beam_search(m.a, &m.net, &o, src, SOURCES, SRC, h));
        for (int i = 0; i < SOURCES; i++) {
            int64_t tokens[MOST + 1] = {BEGIN};
            at_once += h[i].ended && h[i].n == 0;
            later += h[i].ended && h[i].n > 0 && penalties[k % 3] > 0;
            cut += !h[i].ended;
            best b = {.score = -INFINITY};
            try_all(&m, src + i * SRC, penalties[k % 3], limit, tokens, 0, 0, &b);
            assert_true(fabs(h[i].score - b.score) <= 1e-10 * fabs(b.score));
            assert_int_equal(h[i].n, b.n);
            assert_memory_equal(h[i].tokens, b.t, (size_t)b.n * sizeof *b.t);
        }
    }
    assert_true(at_once > 0 && later > 0 && cut > 0);
    close_model(&m);
}

static void one_beam_is_greedy(void **state) {
    (void)state;
    model m;
    open_model(&m, "pre", KEYS(TINY, "position=rope", "arch=encoder-decoder"));
    const int64_t src[2 * SRC] = {1, 3, 6, 4, 0, 6};
    const snd_beam_opts o = {.beams = 1, .tokens = 10, .begin = BEGIN, .end = END};
    snd_hypothesis h[2];
    CHECK_OK(snd_beam_search(m.a, &m.net, &o, src, 2, SRC, h));
    for (int i = 0; i < 2; i++) {
        int64_t tokens[11] = {BEGIN}, n = 0;
        double logits[V];
        for (; n < 10; n++) {
            last_logits(&m, tokens, n + 1, src + i * SRC, SRC, logits);
            int at = 0;
            for (int v = 1; v < V; v++)
                if (logits[v] > logits[at]) at = v;
            if (at == END) break;
            tokens[n + 1] = at;
        }
        assert_int_equal(h[i].n, n);
        assert_int_equal(h[i].ended, n < 10);
        assert_memory_equal(h[i].tokens, tokens + 1, (size_t)n * sizeof *tokens);
    }
    close_model(&m);
}

// ---- evaluation ---------------------------------------------------------------------------------------------------------------

static void write_text(const char *path, const char *s) {
    CHECK_OK(snd_write_file(path, s, strlen(s)));
}

static snd_set *text_set(const char *path) {
    snd_data_settings d = snd_data_defaults();
    snd_set *set;
    d.path = d.valid_path = path;
    d.tokenizer = "bytes";
    CHECK_OK(snd_set_open(&d, SND_TASK_LM, &set));
    return set;
}

// Token by token: each with the tokens of its window before it.
static double by_tokens(model *m, const int64_t *t, int64_t n, int64_t W, int64_t stride) {
    static double logits[256];
    double sum = 0;
    for (int64_t i = 1; i < n; i++) {
        const int64_t behind = i - W > 0 ? (i - W + stride - 1) / stride * stride : 0;
        last_logits(m, t + behind, i - behind, NULL, 1, logits);
        sum += log_sum(logits, 256) - logits[t[i]];
    }
    return sum / (double)(n - 1);
}

static void windows_score_every_token_once(void **state) {
    (void)state;
    static const struct {
        int64_t window, stride, rows;
    } how[] = {{8, 4, 2}, {8, 3, 3}, {8, 8, 1}, {8, 1, 4}, {40, 20, 2}, {0, 0, 0}};
    const char *path = "generate_test.txt";
    const char words[] = "What an excellent device the use of a sheepskin.";
    write_text(path, words);
    model m;
    open_model(&m, "pre", KEYS("width=16", "heads=2", "vocab=256", "layers=1", "context=16", "position=rope"));
    snd_set *set = text_set(path);
    int64_t t[64], n = (int64_t)strlen(words);
    for (int64_t i = 0; i < n; i++) t[i] = (unsigned char)words[i];
    for (size_t k = 0; k < sizeof how / sizeof *how; k++) {
        snd_eval_result r;
        const snd_eval_opts o = {
            .split = SND_SPLIT_VALID, .rows = how[k].rows, .window = how[k].window, .stride = how[k].stride};
        CHECK_OK(snd_eval(m.a, &m.net, set, &o, &r));
        const double want = by_tokens(&m, t, n, r.window, r.stride);
        assert_int_equal(r.targets, n - 1);
        assert_int_equal(r.bytes, n - 1);
        if (!(fabs(r.nats - want) <= 1e-10))
            fail_msg("window %d, stride %d: %.15g nats, token by token %.15g", (int)r.window, (int)r.stride, r.nats,
                     want);
        assert_true(fabs(r.uniform - log(256)) < 1e-15);
    }
    snd_eval_result r;
    const snd_eval_opts wide = {.split = SND_SPLIT_VALID, .window = 8, .stride = 9};
    assert_int_equal(snd_eval(m.a, &m.net, set, &wide, &r), SONDE_EUSAGE);
    snd_set_close(set);
    close_model(&m);
    // two symbols, 3 to 1: their own entropy
    write_text(path, "babbbabbb");
    open_model(&m, "pre", KEYS("width=16", "heads=2", "vocab=256", "layers=1", "context=16", "position=rope"));
    set = text_set(path);
    CHECK_OK(snd_eval(m.a, &m.net, set, &(snd_eval_opts){.split = SND_SPLIT_VALID}, &r));
    assert_true(fabs(r.unigram - (0.25 * log(4) + 0.75 * log(4.0 / 3))) < 1e-14);
    snd_set_close(set);
    close_model(&m);
    unlink(path);
}

// Of a masked model: right where the largest score of an asked place is its token, and a place without a target never is.
static void masked_tokens_are_counted(void **state) {
    (void)state;
    const char *path = "generate_test.txt";
    write_text(path, "the sea of time was a door and we open it slowly, and the door was a sea");
    snd_data_settings d = snd_data_defaults();
    snd_set *set;
    d.path = d.valid_path = path;
    d.tokenizer = "bytes";
    CHECK_OK(snd_set_open(&d, SND_TASK_MLM, &set));
    model m;
    open_model(&m, "pre",
               KEYS("width=16", "heads=2", "vocab=257", "layers=1", "context=16", "position=rope", "arch=encoder",
                    "init=normal(0.5)"));
    snd_eval_result r;
    CHECK_OK(snd_eval(m.a, &m.net, set, &(snd_eval_opts){.split = SND_SPLIT_VALID, .rows = 2}, &r));
    assert_int_equal(r.looked, r.targets);
    assert_true(r.targets > 0 && r.right >= 0 && r.right < r.targets && r.classes == 0);
    // a head that answers one token always is right as often as that token is asked for
    snd_batching how = {.rows = 2, .tokens = 16, .vocab = 257};
    snd_batches *batches;
    snd_batch b;
    CHECK_OK(snd_batches_open(set, &how, &batches));
    CHECK_OK(snd_batch_make(batches, &b));
    int64_t spaces = 0;
    for (int64_t i = 0; i < snd_batches_count(batches, SND_SPLIT_VALID); i++) {
        CHECK_OK(snd_batches_get(batches, SND_SPLIT_VALID, i, 0, 1, &b));
        for (int64_t k = 0; k < 2 * 16; k++) spaces += b.targets[k] == ' ';
    }
    double *bias = NULL, *embed = NULL;
    for (int p = 0; p < snd_g_param_count(m.net.g); p++) { // out.x becomes the embedding of ' ', the longest of all
        const snd_value *v = snd_g_value(m.net.g, snd_g_param_at(m.net.g, p));
        void *data;
        CHECK_OK(snd_source_data(&m.net.source, m.net.g, p, &data));
        if (!strcmp(v->name, "out.N1.weight")) memset(data, 0, 16 * sizeof(double));
        if (!strcmp(v->name, "out.N1.bias")) bias = data;
        if (!strcmp(v->name, "embed.token.weight")) embed = data;
    }
    assert_true(bias && embed);
    for (int k = 0; k < 16; k++) bias[k] = embed[' ' * 16 + k] *= 100;
    CHECK_OK(snd_eval(m.a, &m.net, set, &(snd_eval_opts){.split = SND_SPLIT_VALID, .rows = 2}, &r));
    assert_true(spaces > 0);
    assert_int_equal(r.right, spaces);
    snd_batch_free(&b);
    snd_batches_close(batches);
    snd_set_close(set);
    close_model(&m);
    unlink(path);
}

static void classes_are_counted(void **state) {
    (void)state;
    const char *path = "generate_test.csv";
    write_text(path, "a,b,class\n1,2,0\n-1,0.5,1\n3,-2,2\n0.1,0.2,1\n-2,-1,0\n1,1,2\n2,-1,1\n");
    snd_data_settings d = snd_data_defaults();
    snd_set *set;
    d.path = d.valid_path = path;
    CHECK_OK(snd_set_open(&d, SND_TASK_CLASS, &set));
    model m;
    open_model(&m, "pre", KEYS("width=8", "layers=2", "inputs=2", "outputs=3", "family=mlp"));
    snd_eval_result r, parts;
    CHECK_OK(snd_eval(m.a, &m.net, set, &(snd_eval_opts){.split = SND_SPLIT_VALID}, &r));
    CHECK_OK(snd_eval(m.a, &m.net, set, &(snd_eval_opts){.split = SND_SPLIT_VALID, .rows = 2}, &parts));
    assert_int_equal(r.targets, 7);
    assert_int_equal(r.classes, 3);
    assert_int_equal(r.looked, 7);
    assert_int_equal(r.right, r.confusion[0] + r.confusion[4] + r.confusion[8]);
    assert_int_equal(r.confusion[3] + r.confusion[4] + r.confusion[5], 3); // three rows of class 1
    assert_memory_equal(r.confusion, parts.confusion, 9 * sizeof *r.confusion);
    assert_true(fabs(r.nats - parts.nats) <= 1e-12);
    assert_true(fabs(r.uniform - log(3)) < 1e-15);
    snd_set_close(set);
    close_model(&m);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_follow_the_distribution),
        cmocka_unit_test(bad_logits),
        cmocka_unit_test(greedy),
        cmocka_unit_test(samples_are_their_own),
        cmocka_unit_test(beams_find_the_best),
        cmocka_unit_test(one_beam_is_greedy),
        cmocka_unit_test(windows_score_every_token_once),
        cmocka_unit_test(masked_tokens_are_counted),
        cmocka_unit_test(classes_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
