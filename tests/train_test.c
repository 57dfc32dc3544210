// Training: ten steps against an independent computation (tools/train_golden.py), and what must hold of any run: the same
// bits for any number of threads and after a resume, the same gradient however a batch is parted, schedules without corners.
// "train_test --dump CASE DIR" writes what the tool computes from: starting weights and batches.
#include "lab/trained.h"
#include "train/inner.h"

#include "check.h"
#include "tsv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 10 };

// ---- little data -----------------------------------------------------------------------------------------------------------------

static char folder[64];

static const char *in_folder(const char *name) {
    static char path[4][256];
    static int at;
    at = (at + 1) % 4;
    snprintf(path[at], sizeof path[at], "%s/%s", folder, name);
    return path[at];
}

static const char *const WORDS[] = {"the",  "sea", "of", "time", "was", "a",
                                    "door", "and", "we", "open", "it",  "slowly"};

static const char *word(const char *stream, int64_t i) {
    return WORDS[(int)(snd_uniform_at(snd_key_make(1, stream), (uint64_t)i) * 12)];
}

static void write_text(const char *name, int64_t words) {
    snd_buf b = {0};
    for (int64_t i = 0; i < words; i++) snd_buf_printf(&b, "%s%s", word("text", i), i % 9 == 8 ? ".\n" : " ");
    CHECK_OK(snd_write_file(in_folder(name), b.s, b.len));
    snd_buf_free(&b);
}

static void write_pairs(const char *name, int64_t n) {
    snd_buf b = {0};
    for (int64_t i = 0; i < n; i++) {
        for (int64_t w = 0; w < 2 + i % 3; w++) snd_buf_printf(&b, "%s%s", w ? " " : "", word("source", 7 * i + w));
        snd_buf_put(&b, "\t");
        for (int64_t w = 0; w < 1 + i % 2; w++) snd_buf_printf(&b, "%s%s", w ? " " : "", word("target", 7 * i + w));
        snd_buf_put(&b, "\n");
    }
    CHECK_OK(snd_write_file(in_folder(name), b.s, b.len));
    snd_buf_free(&b);
}

static void put_word(snd_buf *b, uint32_t v) {
    const char bytes[4] = {(char)(v >> 24), (char)(v >> 16), (char)(v >> 8), (char)v};
    snd_buf_putn(b, bytes, 4);
}

enum { SIDE = 8, CLASSES = 4 };

// n images of noise with a bright row, whose place is the class.
static void write_images(const char *kind, int64_t n) {
    char path[128];
    snd_buf x = {0}, y = {0};
    put_word(&x, 0x803), put_word(&x, (uint32_t)n), put_word(&x, SIDE), put_word(&x, SIDE);
    put_word(&y, 0x801), put_word(&y, (uint32_t)n);
    for (int64_t i = 0; i < n; i++) {
        const int c = (int)(snd_uniform_at(snd_key_make(2, kind), (uint64_t)i) * CLASSES);
        const char label = (char)c;
        snd_buf_putn(&y, &label, 1);
        for (int64_t k = 0; k < SIDE * SIDE; k++) {
            const double u = snd_uniform_at(snd_key_make(3, kind), (uint64_t)(i * SIDE * SIDE + k));
            const char pixel = (char)(unsigned char)(150 * u + (k / SIDE == 2 * c ? 100 : 0));
            snd_buf_putn(&x, &pixel, 1);
        }
    }
    snprintf(path, sizeof path, "images/%s-images-idx3-ubyte", kind);
    CHECK_OK(snd_write_file(in_folder(path), x.s, x.len));
    snprintf(path, sizeof path, "images/%s-labels-idx1-ubyte", kind);
    CHECK_OK(snd_write_file(in_folder(path), y.s, y.len));
    snd_buf_free(&x), snd_buf_free(&y);
}

// ---- cases ----------------------------------------------------------------------------------------------------------------------

typedef struct golden_case {
    const char *name, *preset;
    const char *model[16], *train[16];
    const char *data;
    snd_task task;
} golden_case;

static const golden_case CASES[] = {
    {.name = "gpt",
     .preset = "gpt2",
     .model = {"layers=2", "width=16", "heads=2", "hidden=32", "context=12", "dropout=0", "attn_dropout=0"},
     .train = {"steps=10", "batch=4", "tokens=12", "lr=0.01", "warmup=3", "schedule=cosine", "clip=0.5", "accumulate=2",
               "weight_decay=0.1"},
     .data = "text",
     .task = SND_TASK_LM},
    {.name = "bert",
     .preset = "bert-base",
     .model = {"layers=2", "width=16", "heads=2", "hidden=32", "context=12", "dropout=0", "attn_dropout=0"},
     .train = {"steps=10", "batch=4", "tokens=12", "lr=0.005", "warmup=0", "schedule=linear", "lr_end=0", "clip=0",
               "beta2=0.999", "weight_decay=0.2", "accumulate=4"},
     .data = "text",
     .task = SND_TASK_MLM},
    {.name = "encdec",
     .preset = "transformer-base",
     .model = {"encoder_layers=2", "decoder_layers=2", "width=16", "heads=2", "hidden=32", "dropout=0"},
     .train = {"steps=10", "batch=2", "tokens=40", "lr=0.02", "warmup=4", "schedule=invsqrt", "label_smoothing=0.1",
               "beta2=0.98", "weight_decay=0.05", "decay=all"},
     .data = "pairs",
     .task = SND_TASK_SEQ2SEQ},
    {.name = "resnet",
     .preset = "resnet-v2",
     .model = {"layers=3", "width=4", "inputs=1", "outputs=4"},
     .train = {"steps=10", "batch=8", "lr=0.01", "warmup=2", "schedule=constant", "clip=1", "weight_decay=0.1",
               "beta2=0.99"},
     .data = "images",
     .task = SND_TASK_CLASS},
};
enum { N_CASES = (int)(sizeof CASES / sizeof *CASES) };

// A case's data, spec and settings, with further settings behind them.
typedef struct job {
    snd_arena *arena;
    snd_set *set;
    snd_spec *spec;
    snd_train_settings s;
} job;

static void apply(snd_train_settings *s, const char *pair) {
    char key[32];
    const char *eq = strchr(pair, '=');
    snprintf(key, sizeof key, "%.*s", (int)(eq - pair), pair);
    CHECK_OK(snd_train_setting(s, "", key, eq + 1));
}

static job open_job(const golden_case *c, const char *const *model, const char *const *train) {
    job j = {.arena = snd_arena_create(), .s = snd_train_defaults()};
    const char *all[32];
    char vocab[32];
    int n = 0;
    snd_data_settings d = snd_data_defaults();
    d.path = in_folder(c->data);
    d.tokenizer = c->task == SND_TASK_SEQ2SEQ ? "chars" : NULL;
    CHECK_OK(snd_set_open(&d, c->task, &j.set));
    for (int i = 0; c->model[i]; i++) all[n++] = c->model[i];
    snprintf(vocab, sizeof vocab, "vocab=%d", (int)snd_set_vocab(j.set));
    if (c->task != SND_TASK_CLASS) all[n++] = vocab;
    for (int i = 0; model && model[i]; i++) all[n++] = model[i];
    CHECK_OK(snd_spec_load(j.arena, c->preset, all, n, &j.spec));
    for (int i = 0; c->train[i]; i++) apply(&j.s, c->train[i]);
    for (int i = 0; train && train[i]; i++) apply(&j.s, train[i]);
    CHECK_OK(snd_train_resolve(&j.s, j.spec));
    return j;
}

static void close_job(job *j) {
    snd_set_close(j->set);
    snd_arena_destroy(j->arena);
}

static snd_trainer *start(const job *j, snd_dtype t, int threads) {
    snd_trainer *tr;
    const snd_trainer_opts o = {.dtype = t, .seed = 3, .threads = threads};
    CHECK_OK(snd_trainer_create(j->spec, &j->s, j->set, &o, &tr));
    return tr;
}

// ---- against an independent computation ---------------------------------------------------------------------------------------------

static const snd_train_state NO_STATE = {0};

// The tensors of the newest checkpoint.
static snd_stfile *saved(snd_trainer *t, const char *dir) {
    const char *path;
    char file[512];
    snd_stfile *f;
    snd_arena *a = snd_arena_create();
    CHECK_OK(snd_checkpoint_save(t, &NO_STATE, dir));
    CHECK_OK(snd_checkpoint_newest(a, dir, &path));
    snprintf(file, sizeof file, "%s/model.safetensors", path);
    CHECK_OK(snd_st_open(file, &f));
    snd_arena_destroy(a);
    return f;
}

// What the rows of train.tsv are compared with: case, kind, then step: number, loss, gradient norm, learning rate; weight:
// name, sum of w_k cos k (every element moves it, each by its own factor), sum of squares.
static struct now {
    const golden_case *c;
    snd_trainer *t;
    snd_stfile *f;
    double tol;
    int steps, weights;
} now;

static double number(const char *text) {
    double v;
    assert_true(snd_parse_num(text, &v, NULL));
    return v;
}

static void check_step(char **cells, int n) {
    snd_step s;
    if (strcmp(cells[0], now.c->name) || strcmp(cells[1], "step")) return;
    assert_int_equal(n, 6);
    CHECK_OK(snd_trainer_step(now.t, &s));
    assert_int_equal(s.step, (int)number(cells[2]));
    CHECK_REL(s.loss, number(cells[3]), now.tol);
    CHECK_REL(s.grad_norm, number(cells[4]), now.tol);
    CHECK_REL(s.lr, number(cells[5]), 1e-12);
    now.steps++;
}

static void check_weight(char **cells, int n) {
    if (strcmp(cells[0], now.c->name) || strcmp(cells[1], "weight")) return;
    assert_int_equal(n, 5);
    const snd_tensor *t = snd_st_find(now.f, cells[2]);
    assert_non_null(t);
    const int64_t size = snd_shape_size(t->shape);
    double *x = calloc((size_t)size, sizeof *x), dot = 0, sq = 0;
    assert_non_null(x);
    snd_convert(t->data, t->dtype, x, SND_F64, size);
    for (int64_t k = 0; k < size; k++) {
        dot += x[k] * cos((double)k);
        sq += x[k] * x[k];
    }
    free(x);
    const double want_dot = number(cells[3]), want_sq = number(cells[4]);
    const double scale = sqrt(want_sq * (double)size) + 0.01; // of biases: they have moved by a few steps of lr
    now.weights++;
    // keys' biases have no gradient but rounding, which Adam makes as large as any
    if (want_sq < 1e-12) {
        assert_true(now.tol > 1e-6 || sq < 1e-12);
        return;
    }
    if (!(fabs(dot - want_dot) <= now.tol * scale) || !(fabs(sq - want_sq) <= now.tol * (want_sq + 0.01)))
        fail_msg("%s: %s: %.17g and %.17g, want %s and %s", now.c->name, cells[2], dot, sq, cells[3], cells[4]);
}

static void check_golden(const golden_case *c, snd_dtype t, double tol) {
    char dir[64];
    job j = open_job(c, NULL, NULL);
    now = (struct now){.c = c, .t = start(&j, t, 2), .tol = tol};
    tsv_each("train.tsv", check_step);
    assert_int_equal(now.steps, STEPS);
    snprintf(dir, sizeof dir, "%s-%s", c->name, snd_dtype_name(t));
    now.f = saved(now.t, in_folder(dir));
    tsv_each("train.tsv", check_weight);
    assert_int_equal(now.weights, snd_st_count(now.f));
    snd_st_close(now.f);
    snd_trainer_destroy(now.t);
    close_job(&j);
}

static void ten_steps_equal_an_independent_computation(void **state) {
    (void)state;
    for (int i = 0; i < N_CASES; i++) {
        check_golden(&CASES[i], SND_F64, 1e-8);
        check_golden(&CASES[i], SND_F32, 1e-3);
    }
}

// ---- what must hold of any run ------------------------------------------------------------------------------------------------------

static const char *const DROPPING[] = {"dropout=0.2", "attn_dropout=0.1", NULL};
enum { N_SEQUENCES = 3 }; // cases of Transformers

static const char *const *dropping(int i) {
    return i < N_SEQUENCES ? DROPPING : NULL;
}

typedef struct trace {
    double loss[STEPS], norm[STEPS], valid, accuracy;
} trace;

static void go(snd_trainer *t, int from, int to, trace *out) {
    for (int i = from; i < to; i++) {
        snd_step s;
        CHECK_OK(snd_trainer_step(t, &s));
        out->loss[i] = s.loss;
        out->norm[i] = s.grad_norm;
    }
}

static trace run_of(const golden_case *c, const char *const *model, const char *const *train, int threads,
                    snd_dtype t) {
    trace out;
    job j = open_job(c, model, train);
    snd_trainer *tr = start(&j, t, threads);
    go(tr, 0, STEPS, &out);
    CHECK_OK(snd_trainer_eval(tr, SND_SPLIT_VALID, 0, &out.valid, &out.accuracy));
    snd_trainer_destroy(tr);
    close_job(&j);
    return out;
}

static void threads_change_no_bit(void **state) {
    (void)state;
    for (int i = 0; i < N_CASES; i++) {
        const char *const ema[] = {"ema=0.9", NULL};
        const trace a = run_of(&CASES[i], dropping(i), ema, 1, SND_F32),
                    b = run_of(&CASES[i], dropping(i), ema, 3, SND_F32);
        assert_memory_equal(&a, &b, sizeof a);
        assert_true(a.loss[STEPS - 1] < a.loss[0]);
        const trace c = run_of(&CASES[i], dropping(i), ema, 1, SND_BF16),
                    d = run_of(&CASES[i], dropping(i), ema, 4, SND_BF16);
        assert_memory_equal(&c, &d, sizeof c);
        assert_true(c.loss[STEPS - 1] < c.loss[0] && c.norm[0] != a.norm[0]);
        const trace e = run_of(&CASES[i], dropping(i), ema, 1, SND_F16),
                    f = run_of(&CASES[i], dropping(i), ema, 4, SND_F16);
        assert_memory_equal(&e, &f, sizeof e);
        assert_true(e.loss[STEPS - 1] < e.loss[0] && e.norm[0] != a.norm[0]);
    }
}

static void watching_changes_no_bit(void **state) {
    (void)state;
    for (int i = 0; i < N_CASES; i++) {
        const char *const never[] = {"monitor_every=0", NULL}, *const always[] = {"monitor_every=1", NULL};
        const trace a = run_of(&CASES[i], dropping(i), never, 2, SND_F32),
                    b = run_of(&CASES[i], dropping(i), always, 2, SND_F32);
        assert_memory_equal(&a, &b, sizeof a);
        const trace c = run_of(&CASES[i], dropping(i), never, 2, SND_F16),
                    d = run_of(&CASES[i], dropping(i), always, 2, SND_F16);
        assert_memory_equal(&c, &d, sizeof c);
    }
}

// What a look says of the layers, against what can be computed from outside: norms of gradients add up to the whole one.
static void looks_are_right(void **state) {
    (void)state;
    job j = open_job(&CASES[0], NULL, NULL);
    snd_trainer *t = start(&j, SND_F64, 1);
    snd_step s;
    for (int i = 0; i < 3; i++) {
        CHECK_OK(snd_trainer_step(t, &s));
        assert_int_equal(s.n_layers, 3);
        assert_string_equal(s.layers[1].name, "layers.1");
        double sum = 0;
        for (int l = 0; l < 3; l++) {
            const double n = l < 2 ? 4 * (16 * 16 + 16) + (16 * 32 + 32) + (32 * 16 + 16) + 4 * 16
                                   : (double)(j.spec->vocab * 16 + 12 * 16 + 2 * 16);
            sum += s.layers[l].wgrms * s.layers[l].wgrms * n;
            assert_true(s.layers[l].update > 0 && s.layers[l].update < 0.5);
            assert_int_equal(isnan(s.layers[l].rms) != 0, l == 2);
            if (l < 2) assert_true(s.layers[l].entropy > 0.3 && s.layers[l].entropy <= 1 && s.layers[l].write > 0);
        }
        CHECK_REL(sqrt(sum), s.grad_norm, 1e-12);
    }
    snd_trainer_destroy(t);
    close_job(&j);
}

// ---- looks against plain sums -------------------------------------------------------------------------------------------------------

// The batch of the step to come through a graph of its own, in which streams, sublayers' outputs and gradients are kept.
typedef struct bare {
    snd_net net;
    const char *name[16];
    snd_id x[16], g[16], call[16][4];
    int n, n_calls[16];
} bare;

static void list_layers(bare *b) {
    const snd_model *m = b->net.m;
    int layer;
    for (int i = 0; i < m->n_taps; i++) {
        const size_t prefix = snd_layer_prefix(m->taps[i].name, &layer);
        if (!prefix || strcmp(m->taps[i].name + prefix, "x")) continue;
        b->name[b->n] = m->taps[i].name;
        b->x[b->n++] = m->taps[i].v;
    }
    for (int i = 0; i < m->n_calls; i++)
        for (int l = 0; l < b->n; l++) {
            const size_t prefix = snd_layer_prefix(b->name[l], &layer);
            if (!strncmp(b->name[l], m->calls[i].name, prefix)) b->call[l][b->n_calls[l]++] = m->calls[i].out;
        }
}

static bare run_bare(snd_trainer *t) {
    bare b = {0};
    snd_id keep[128];
    int k = 0;
    CHECK_OK(snd_batches_get(t->batches, SND_SPLIT_TRAIN, t->step, 0, t->s.accumulate, &t->batch));
    CHECK_OK(snd_net_model(t, t->batch.shape, SND_NET_TRAIN, &b.net.m));
    snd_graph *g = b.net.m->g;
    list_layers(&b);
    b.net.loss = b.net.m->loss;
    b.net.dloss = snd_g_input(g, "dloss", snd_g_value(g, b.net.loss)->shape, SND_DT_NONE);
    snd_g_grad(g, &b.net.loss, &b.net.dloss, 1, b.x, b.n, b.g);
    for (int l = 0; l < b.n; l++) {
        keep[k++] = b.x[l];
        if (b.g[l]) keep[k++] = b.g[l];
        for (int c = 0; c < b.n_calls[l]; c++) keep[k++] = b.call[l][c];
    }
    CHECK_OK(snd_plan_make(t->arena, g, keep, k, &b.net.plan));
    CHECK_OK(snd_exec_create(g, b.net.plan, &t->source, &(snd_exec_opts){.threads = 1}, &b.net.x));
    const double share = (double)t->batch.asked / (double)t->batch.asked_all;
    CHECK_OK(snd_net_run(t, &b.net, snd_trainer_step_seed(t), 0, share));
    return b;
}

// Mean square, mean, and variance within rows of a value.
static void plain_figures(const bare *b, snd_id v, double *q, double *mean, double *var) {
    const snd_shape s = snd_g_value(b->net.m->g, v)->shape;
    const int64_t n = snd_shape_size(s), D = s.dim[s.nd - 1];
    double *x = calloc((size_t)n, sizeof *x);
    assert_non_null(x);
    CHECK_OK(snd_exec_get(b->net.x, v, x));
    *q = *mean = *var = 0;
    for (int64_t r = 0; r < n; r += D) {
        double m = 0;
        for (int64_t j = r; j < r + D; j++) m += x[j] / (double)D;
        for (int64_t j = r; j < r + D; j++) {
            *q += x[j] * x[j] / (double)n;
            *mean += x[j] / (double)n;
            *var += (x[j] - m) * (x[j] - m) / (double)n;
        }
    }
    free(x);
}

// tol: that of the type where fusion rounds otherwise; sums are double in both.
static void check_layer(const bare *b, int l, const snd_layer_state *s, double tol) {
    double q, mean, var, unused[2], least = INFINITY, gq = NAN;
    plain_figures(b, b->x[l], &q, &mean, &var);
    if (b->g[l]) plain_figures(b, b->g[l], &gq, &unused[0], &unused[1]);
    for (int c = 0; c < b->n_calls[l]; c++) {
        double of;
        plain_figures(b, b->call[l][c], &of, &unused[0], &unused[1]);
        least = fmin(least, sqrt(of / q));
    }
    CHECK_REL(s->rms, sqrt(q), tol);
    CHECK_CLOSE(s->mean, mean, tol * sqrt(q));
    CHECK_REL(s->var, var, tol);
    CHECK_REL(s->grms, sqrt(gq), tol);
    if (b->n_calls[l])
        CHECK_REL(s->write, least, tol);
    else
        assert_true(isnan(s->write));
}

// The weights of all layers as they are, one behind the other.
static double *copy_weights(const snd_trainer *t, int64_t *n) {
    *n = 0;
    for (int i = 0; i < t->n_weights; i++) *n += t->weights[i].n;
    double *all = calloc((size_t)*n, sizeof *all), *at = all;
    assert_non_null(all);
    for (int i = 0; i < t->n_weights; at += t->weights[i++].n)
        snd_convert(t->weights[i].w, t->o.dtype, at, SND_F64, t->weights[i].n);
    return all;
}

static void check_updates(const snd_trainer *t, const snd_step *s, const double *before, double tol) {
    int64_t n;
    double *after = copy_weights(t, &n);
    for (int l = 0; l < s->n_layers; l++) {
        double w = 0, u = 0, count = 0;
        int64_t at = 0;
        for (int i = 0; i < t->n_weights; at += t->weights[i++].n)
            for (int64_t k = at; t->weights[i].layer == l && k < at + t->weights[i].n; k++) {
                w += after[k] * after[k];
                u += (after[k] - before[k]) * (after[k] - before[k]);
                count++;
            }
        CHECK_REL(s->layers[l].wrms, sqrt(w / count), tol);
        CHECK_REL(s->layers[l].update, sqrt(u / w), tol);
    }
    free(after);
}

static void check_looks(const golden_case *c, const char *const *train, snd_dtype type) {
    job j = open_job(c, NULL, train);
    snd_trainer *t = start(&j, type, 2);
    for (int i = 0; i < 3; i++) {
        int64_t n;
        snd_step s;
        double *before = copy_weights(t, &n);
        bare b = run_bare(t);
        CHECK_OK(snd_trainer_step(t, &s));
        assert_int_equal(s.n_layers, b.n + 1);
        for (int l = 0; l < b.n; l++) check_layer(&b, l, &s.layers[l], type == SND_F64 ? 1e-12 : 1e-5);
        check_updates(t, &s, before, (double)n * 0x1p-52);
        free(before);
        snd_exec_destroy(b.net.x);
    }
    snd_trainer_destroy(t);
    close_job(&j);
}

static void same_net(const snd_net *a, const snd_net *b) {
    const snd_graph *g = a->m->g, *h = b->m->g;
    assert_int_equal(snd_g_node_count(g), snd_g_node_count(h));
    for (int i = 0; i < snd_g_node_count(g); i++) {
        const snd_node *x = snd_g_node(g, i), *y = snd_g_node(h, i);
        assert_int_equal(x ? x->op : -1, y ? y->op : -1); // none: fused away
        assert_int_equal(x ? x->n_out : 0, y ? y->n_out : 0);
    }
    assert_int_equal(snd_plan_bytes(a->plan), snd_plan_bytes(b->plan));
}

// A step without a look runs the graph of a run that never looks; where every step looks there is one graph alone.
static void steps_without_a_look_know_of_none(void **state) {
    (void)state;
    const char *const never[] = {"monitor_every=0", "accumulate=1", NULL},
                      *const at_times[] = {"monitor_every=7", "accumulate=1", NULL},
                      *const always[] = {"monitor_every=1", "accumulate=1", NULL};
    for (int i = 0; i < N_CASES; i++) {
        job a = open_job(&CASES[i], NULL, never), b = open_job(&CASES[i], NULL, at_times),
            c = open_job(&CASES[i], NULL, always);
        snd_trainer *s = start(&a, SND_F32, 1), *t = start(&b, SND_F32, 1), *u = start(&c, SND_F32, 1);
        for (int n = 0; n < s->n_nets; n++) same_net(&s->nets[n], &t->nets[n]);
        assert_null(s->watches);
        assert_true(t->watches && t->watches != t->nets && u->watches == u->nets);
        assert_true(snd_g_node_count(u->nets[0].m->g) > snd_g_node_count(s->nets[0].m->g));
        snd_trainer_destroy(s), snd_trainer_destroy(t), snd_trainer_destroy(u);
        close_job(&a), close_job(&b), close_job(&c);
    }
}

static void looks_equal_plain_sums(void **state) {
    (void)state;
    static const char *const ways[][3] = {{"monitor_every=1", "accumulate=1", NULL}, {"monitor_every=1", NULL}};
    for (int i = 0; i < N_CASES; i++)
        for (int w = 0; w < 2; w++) {
            check_looks(&CASES[i], ways[w], SND_F64);
            check_looks(&CASES[i], ways[w], SND_F32);
        }
}

// U41: the batch's variance over the running one, by the running variances before and after a step.
static void batch_norms_are_held_against_their_averages(void **state) {
    (void)state;
    const char *const always[] = {"monitor_every=1", NULL};
    const char *const batch[] = {"norm=batch", NULL};
    for (int k = 0; k < 3; k++) {
        const bool images = k == 2;
        job j = open_job(&CASES[images ? 3 : k], images ? NULL : batch, always);
        snd_trainer *t = start(&j, SND_F64, 1);
        const snd_graph *g = t->nets[0].m->g;
        const int P = snd_g_param_count(g);
        double *before = calloc((size_t)P * 64, sizeof *before);
        int found = 0;
        snd_step s;
        for (int step = 0; step < 2; step++) {
            for (int i = 0; i < P; i++) {
                void *data;
                const int64_t n = snd_shape_size(snd_g_value(g, snd_g_param_at(g, i))->shape);
                if (!snd_g_param_is_state(g, i)) continue;
                CHECK_OK(snd_source_data(&t->source, g, i, &data));
                memcpy(before + 64 * i, data, (size_t)n * sizeof *before);
            }
            CHECK_OK(snd_trainer_step(t, &s));
            for (int l = 0; l + 1 < s.n_layers; l++) {
                const char *layer = s.layers[l].name;
                double worst = NAN;
                for (int i = 0; i < P; i++) {
                    const snd_value *v = snd_g_value(g, snd_g_param_at(g, i));
                    const size_t n = strlen(v->name), m = strlen(layer);
                    void *data;
                    if (strncmp(v->name, layer, m) != 0 || v->name[m] != '.' || n < 11 ||
                        strcmp(v->name + n - 11, "running_var") != 0)
                        continue;
                    CHECK_OK(snd_source_data(&t->source, g, i, &data));
                    double batch_sum = 0, running = 0;
                    for (int64_t e = 0; e < snd_shape_size(v->shape); e++) {
                        running += before[64 * i + e];
                        batch_sum += 10 * (((double *)data)[e] - 0.9 * before[64 * i + e]);
                    }
                    if (isnan(worst) || fabs(log(batch_sum / running)) > fabs(log(worst))) worst = batch_sum / running;
                    found++;
                }
                // with parts the look is at the first one, whose successors have moved the averages again
                if (j.s.accumulate == 1) CHECK_REL(s.layers[l].batch_running, worst, 1e-9);
                assert_true(s.layers[l].batch_running > 0);
            }
        }
        assert_true(found >= 8);
        free(before);
        snd_trainer_destroy(t);
        close_job(&j);
    }
    job j = open_job(&CASES[0], NULL, always);
    snd_trainer *t = start(&j, SND_F32, 1);
    snd_step s;
    CHECK_OK(snd_trainer_step(t, &s));
    for (int l = 0; l < s.n_layers; l++) assert_true(isnan(s.layers[l].batch_running));
    snd_trainer_destroy(t);
    close_job(&j);
}

// ---- products of bf16 operands -------------------------------------------------------------------------------------------------------

static double norm_of(int64_t n, const float *x, const float *y) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += ((double)x[i] - (y ? (double)y[i] : 0)) * ((double)x[i] - (y ? (double)y[i] : 0));
    return sqrt(sum);
}

// First moments after one step: the gradient times 1 - beta1.
static snd_stfile *gradients_of(const job *j, snd_dtype t) {
    const char *path;
    char dir[32], file[512];
    trace unused;
    snd_stfile *f;
    snd_trainer *tr = start(j, t, 2);
    go(tr, 0, 1, &unused);
    static int runs; // a folder holds one run's steps
    snprintf(dir, sizeof dir, "gradient-%d", runs++);
    CHECK_OK(snd_checkpoint_save(tr, &NO_STATE, in_folder(dir)));
    CHECK_OK(snd_checkpoint_newest(j->arena, in_folder(dir), &path));
    snprintf(file, sizeof file, "%s/optimizer.safetensors", path);
    CHECK_OK(snd_st_open(file, &f));
    snd_trainer_destroy(tr);
    return f;
}

// An operand errs by at most 2^-9 of itself, a product by 2^-8 of its size. On the longest way from a weight to the loss and
// back lie the head and six maps a layer, twice; where each adds all that it may, a gradient is off by
// 2 (6 layers + 1) 2^-8 of its norm: 0.1. Errors of independent sign add up to a third of that at most.
static void bf16_gradients_are_near(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        const char *const once[] = {"clip=0", "accumulate=1", NULL};
        job j = open_job(&CASES[i], NULL, once);
        snd_stfile *a = gradients_of(&j, SND_F32), *b = gradients_of(&j, SND_BF16);
        double all = 0;
        int seen = 0;
        for (int k = 0; k < snd_st_count(a); k++) {
            const snd_tensor *t = snd_st_at(a, k);
            if (*t->name == 'm') all = fmax(all, norm_of(snd_shape_size(t->shape), t->data, NULL));
        }
        for (int k = 0; k < snd_st_count(a); k++) {
            const snd_tensor *t = snd_st_at(a, k), *u = snd_st_find(b, t->name);
            if (*t->name != 'm') continue;
            const int64_t n = snd_shape_size(t->shape);
            const double size = norm_of(n, t->data, NULL), off = norm_of(n, t->data, u->data);
            if (!(off <= 26 * 0x1p-8 * size + 1e-4 * all)) fail_msg("%s: off by %g of %g", t->name, off, size);
            if (strstr(t->name, "weight") && size > 0.01 * all) {
                if (!(off > 0x1p-12 * size)) fail_msg("%s: nothing was rounded: off by %g of %g", t->name, off, size);
                seen++;
            }
        }
        assert_true(seen > 3);
        snd_st_close(a), snd_st_close(b);
        close_job(&j);
    }
}

// Logits in pieces, and maps as well: the same products, cut in other places; sums over the vocabulary join in another order.
static void bf16_in_pieces_is_the_same(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        const trace a = run_of(&CASES[i], NULL, NULL, 2, SND_BF16);
        snd_pieces_limit(50);
        const trace b = run_of(&CASES[i], NULL, NULL, 2, SND_BF16);
        snd_pieces_limit(0);
        CHECK_REL(b.loss[0], a.loss[0], 1e-5);
        CHECK_REL(b.norm[0], a.norm[0],
                  1e-2); // a sum of pieces is rounded where it is added, by half a digit of bf16 at most
        CHECK_REL(b.loss[STEPS - 1], a.loss[STEPS - 1], 1e-2);
    }
}

// A fortieth of the way from where it began: no run of its own luck.
static void bf16_learns_as_f32_does(void **state) {
    (void)state;
    const char *const longer[] = {"steps=60", "schedule=constant", NULL};
    job j = open_job(&CASES[0], NULL, longer);
    double first = 0, last[2];
    for (int k = 0; k < 2; k++) {
        snd_trainer *t = start(&j, k ? SND_BF16 : SND_F32, 2);
        double accuracy;
        snd_step s;
        for (int i = 0; i < 60; i++) {
            CHECK_OK(snd_trainer_step(t, &s));
            if (i == 0) first = s.loss;
        }
        CHECK_OK(snd_trainer_eval(t, SND_SPLIT_VALID, 0, &last[k], &accuracy));
        snd_trainer_destroy(t);
    }
    assert_true(last[0] < first - 0.5);
    if (!(fabs(last[1] - last[0]) <= (first - last[0]) / 40))
        fail_msg("from %g to %g in f32, to %g in bf16", first, last[0], last[1]);
    close_job(&j);
}

// ---- f16 ------------------------------------------------------------------------------------------------------------------------------

// First moments after one step of the case in f16 by this scale: the gradient times 1 - beta1.
static snd_stfile *gradients_by(const golden_case *c, const char *scale, snd_dtype t) {
    const char *const once[] = {"clip=0", "accumulate=1", scale, NULL};
    job j = open_job(c, NULL, once);
    snd_stfile *f = gradients_of(&j, t);
    close_job(&j);
    return f;
}

static double distance(const snd_stfile *a, const snd_stfile *b) {
    double off = 0, all = 0;
    for (int k = 0; k < snd_st_count(a); k++) {
        const snd_tensor *t = snd_st_at(a, k), *u = snd_st_find(b, t->name);
        if (*t->name != 'm') continue;
        off += pow(norm_of(snd_shape_size(t->shape), t->data, u->data), 2);
        all += pow(norm_of(snd_shape_size(t->shape), t->data, NULL), 2);
    }
    return sqrt(off / all);
}

// Each of some 20 results on the way to the loss and back errs by 2^-11 of itself: 2^-6 in all where no error helps another.
// The scale is taken back, and powers of two change nothing as long as everything fits; by a scale of 2^-24 little does.
static void f16_gradients_are_near(void **state) {
    (void)state;
    for (int i = 0; i < N_CASES; i++) {
        snd_stfile *exact = gradients_by(&CASES[i], "loss_scale=dynamic", SND_F32);
        snd_stfile *near = gradients_by(&CASES[i], "loss_scale=1024", SND_F16);
        const double off = distance(exact, near);
        if (!(off < 0x1p-6 && off > 0x1p-13)) fail_msg("%s: f16 is off by %g", CASES[i].name, off);
        snd_st_close(near);
        near = gradients_by(&CASES[i], "loss_scale=4096", SND_F16);
        const double other = distance(exact, near);
        if (!(other < 0x1p-6)) fail_msg("%s: by another scale f16 is off by %g", CASES[i].name, other);
        snd_st_close(near);
        near = gradients_by(&CASES[i], "loss_scale=5.9604644775390625e-8", SND_F16);
        const double lost = distance(exact, near);
        if (!(lost > 0.05)) fail_msg("%s: nothing underflows: off by %g", CASES[i].name, lost);
        snd_st_close(exact), snd_st_close(near);
    }
}

// What the nets read are weights in f16: a change by less than half a digit of theirs is none, one by two digits is.
static void f16_nets_read_rounded_weights(void **state) {
    (void)state;
    job j = open_job(&CASES[0], NULL, NULL);
    snd_trainer *t = start(&j, SND_F16, 1);
    double loss[3], accuracy;
    for (int k = 0; k < 3; k++) {
        for (int i = 0; i < t->n_weights; i++) {
            float *w = t->weights[i].w;
            for (int64_t n = 0; n < t->weights[i].n; n++) {
                if (k == 0) w[n] = snd_f16_to_f32(snd_f32_to_f16(w[n]));
                w[n] *= k == 0 ? 1 : k == 1 ? 1 + 0x1p-13f : 1 + 0x1p-9f;
            }
        }
        CHECK_OK(snd_trainer_eval(t, SND_SPLIT_VALID, 0, &loss[k], &accuracy));
    }
    CHECK_SAME(loss[1], loss[0]);
    assert_true(loss[2] != loss[0]);
    snd_trainer_destroy(t);
    close_job(&j);
}

// A step that overflows moves nothing, counts, and halves the scale; so many good ones double it. Adam's first update has the
// size lr wherever it comes, so the steps that were skipped are no steps of Adam's.
static void f16_skips_what_overflows(void **state) {
    (void)state;
    const char *const train[] = {"scale_every=2",  "lr=0.01", "schedule=constant", "warmup=0",
                                 "weight_decay=0", "clip=0",  "accumulate=1",      NULL};
    job j = open_job(&CASES[0], NULL, train);
    snd_trainer *t = start(&j, SND_F16, 1);
    snd_step s;
    int64_t n;
    assert_true(t->scale == 65536);
    t->scale = 0x1p38;
    double *before = copy_weights(t, &n);
    for (int i = 1; i <= 3; i++) {
        CHECK_OK(snd_trainer_step(t, &s));
        assert_true(s.skipped && s.step == i && t->skipped == i && t->scale == 0x1p38 / (1 << i));
        assert_true(isfinite(s.loss) && !isfinite(s.grad_norm) && s.scale == 0x1p38 / (1 << (i - 1)));
    }
    double *after = copy_weights(t, &n);
    assert_memory_equal(before, after, (size_t)n * sizeof *before);
    t->scale = 1024;
    CHECK_OK(snd_trainer_step(t, &s));
    assert_true(!s.skipped && s.step == 4 && t->skipped == 3 && t->scale == 1024 && t->good == 1);
    double most = 0;
    free(after);
    after = copy_weights(t, &n);
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(after[i] - before[i]));
    CHECK_REL(most, 0.01, 1e-3);
    CHECK_OK(snd_trainer_step(t, &s));
    assert_true(!s.skipped && s.scale == 1024 && t->scale == 2048 && t->good == 0);
    free(before), free(after);
    snd_trainer_destroy(t);
    close_job(&j);
}

// At scale 1 there is nothing left to halve, and a scale that was said stays: then an overflow is what a NaN is elsewhere.
static void f16_ends_where_no_scale_helps(void **state) {
    (void)state;
    for (int k = 0; k < 2; k++) {
        const char *const train[] = {k ? "loss_scale=1" : "loss_scale=dynamic", NULL};
        const char *const huge[] = {"init=normal(1000)", NULL}, *where, *text;
        job j = open_job(&CASES[0], huge, train);
        snd_trainer *t = start(&j, SND_F16, 1);
        snd_step s;
        int steps = 0;
        do {
            CHECK_OK(snd_trainer_step(t, &s));
            assert_false(isfinite(s.loss) && isfinite(s.grad_norm));
        } while (s.skipped && ++steps < 20);
        assert_int_equal(steps, k ? 0 : 16);
        assert_true(t->scale == 1 && t->step == steps);
        CHECK_OK(snd_trainer_find_nonfinite(t, j.arena, &where, &text));
        assert_non_null(strstr(text, "is the first value that is not finite"));
        assert_true(t->step == steps && t->scale == 1);
        snd_trainer_destroy(t);
        close_job(&j);
    }
}

static void a_loss_scale_is_for_f16(void **state) {
    (void)state;
    const snd_dtype types[] = {SND_F32, SND_BF16}; // a spec that says a scale trains in these too, without one
    for (int k = 0; k < 2; k++) {
        snd_stfile *plain = gradients_by(&CASES[0], "loss_scale=dynamic", types[k]);
        snd_stfile *said = gradients_by(&CASES[0], "loss_scale=9", types[k]); // no power of two: bits would show it
        assert_true(distance(plain, said) == 0);
        snd_st_close(plain), snd_st_close(said);
    }
    job j = open_job(&CASES[0], NULL, NULL);
    static const char *const bad[] = {"0", "-1", "nan", "1e20", "static", ""};
    for (int k = 0; k < 6; k++) {
        CHECK_OK(snd_train_setting(&j.s, "", "loss_scale", bad[k]));
        CHECK_STATUS(snd_train_resolve(&j.s, j.spec), SONDE_ERANGE);
    }
    close_job(&j);
}

// Dropout's draws included: they belong to the examples, not to the parts. (Batch norm sees parts: it has no such law.)
static void parts_change_no_gradient(void **state) {
    (void)state;
    for (int i = 0; i < N_SEQUENCES; i++) {
        const char *const parts[3][3] = {
            {"batch=4", "accumulate=1", NULL}, {"batch=4", "accumulate=2", NULL}, {"batch=4", "accumulate=4", NULL}};
        const trace a = run_of(&CASES[i], dropping(i), parts[0], 2, SND_F64);
        for (int p = 1; p < 3; p++) {
            const trace b = run_of(&CASES[i], dropping(i), parts[p], 2, SND_F64);
            for (int k = 0; k < STEPS; k++) {
                CHECK_REL(b.loss[k], a.loss[k], 1e-10);
                CHECK_REL(b.norm[k], a.norm[k], 1e-9);
            }
            CHECK_REL(b.valid, a.valid, 1e-9);
        }
    }
}

static void dropout_acts_in_training_alone(void **state) {
    (void)state;
    const char *const still[] = {"lr=0", "steps=3", NULL};
    const trace a = run_of(&CASES[0], NULL, still, 2, SND_F64), b = run_of(&CASES[0], DROPPING, still, 2, SND_F64);
    assert_true(fabs(a.loss[0] - b.loss[0]) > 1e-6);
    CHECK_SAME(a.valid, b.valid);
}

static void a_resumed_run_goes_on_bit_for_bit(void **state) {
    (void)state;
    for (int n = 0; n < 3 * N_CASES; n++) {
        const int i = n / 3;
        const snd_dtype types[] = {SND_F32, SND_BF16, SND_F16}, type = types[n % 3];
        char dir[64];
        const char *path;
        const char *const train[] = {"ema=0.9", i == 1 ? "optimizer=lion" : "optimizer=adamw", "scale_every=3", NULL};
        job j = open_job(&CASES[i], dropping(i), train); // of three good steps the checkpoint has seen one
        trace whole, parts;
        snd_train_state st = {.best_valid = 1.25, .valid = NAN, .first_loss = 3, .best_step = 2, .targets = 7};
        snd_trainer *a = start(&j, type, 2), *b = start(&j, type, 1), *c = start(&j, type, 1);
        go(a, 0, STEPS, &whole);
        CHECK_OK(snd_trainer_eval(a, SND_SPLIT_VALID, 0, &whole.valid, &whole.accuracy));
        go(b, 0, 4, &parts);
        snprintf(dir, sizeof dir, "resume-%d", n);
        CHECK_OK(snd_checkpoint_save(b, &st, in_folder(dir)));
        CHECK_OK(snd_checkpoint_newest(j.arena, in_folder(dir), &path));
        st = (snd_train_state){0};
        CHECK_OK(snd_checkpoint_load(c, &st, path));
        assert_int_equal(st.targets, 7);
        assert_int_equal(st.best_step, 2);
        CHECK_SAME(st.best_valid, 1.25);
        CHECK_SAME(st.valid, NAN);
        go(c, 4, STEPS, &parts);
        CHECK_OK(snd_trainer_eval(c, SND_SPLIT_VALID, 0, &parts.valid, &parts.accuracy));
        assert_memory_equal(&whole, &parts, sizeof whole);
        assert_true(type == SND_F16 ? a->skipped > 0 || a->scale > 65536 : a->skipped == 0 && a->scale == 1);
        assert_true(c->skipped == a->skipped && c->good == a->good && c->scale == a->scale);
        snd_trainer_destroy(a), snd_trainer_destroy(b), snd_trainer_destroy(c);
        close_job(&j);
    }
}

// ---- computing again ------------------------------------------------------------------------------------------------------------------

// One row per wiring and what it asks of a plan that drops values: several streams, values of older layers, norms that fuse
// with sums, gates, draws, running statistics.
#define SMALL_TEXT   "layers=3", "width=16", "heads=2", "hidden=32", "context=12"
#define SMALL_WIRING "family=transformer", "position=learned", SMALL_TEXT
#define TEXT_STEPS   "batch=4", "tokens=12", "lr=0.01"
static const golden_case AGAIN[] = {
    {.name = "mlp, norms",
     .preset = "pre",
     .model = {"family=mlp", "layers=4", "width=16", "inputs=64", "outputs=4", "dropout=0.1"},
     .train = {"batch=8"},
     .data = "images",
     .task = SND_TASK_CLASS},
    {.name = "mlp, batch norm",
     .preset = "post",
     .model = {"family=mlp", "layers=4", "width=16", "inputs=64", "outputs=4", "norm=batch"},
     .train = {"batch=8"},
     .data = "images",
     .task = SND_TASK_CLASS},
    {.name = "decoder, pre, all draws",
     .preset = "gpt2",
     .model = {SMALL_TEXT, "dropout=0.1", "attn_dropout=0.1", "droppath=0.2"},
     .train = {TEXT_STEPS, "accumulate=2"},
     .data = "text",
     .task = SND_TASK_LM},
    {.name = "decoder, gates, rope, norms on q and k",
     .preset = "qwen3-0.6b",
     .model = {SMALL_TEXT, "kv_heads=1", "head_dim=8", "dropout=0.1"},
     .train = {TEXT_STEPS},
     .data = "text",
     .task = SND_TASK_LM},
    {.name = "decoder, values of the first layer",
     .preset = "value-residual",
     .model = {SMALL_WIRING},
     .train = {TEXT_STEPS},
     .data = "text",
     .task = SND_TASK_LM},
    {.name = "decoder, a mean over all layers",
     .preset = "denseformer",
     .model = {SMALL_WIRING},
     .train = {TEXT_STEPS},
     .data = "text",
     .task = SND_TASK_LM},
    {.name = "decoder, attention over depth",
     .preset = "attnres",
     .model = {SMALL_WIRING, "dropout=0.1"},
     .train = {TEXT_STEPS},
     .data = "text",
     .task = SND_TASK_LM},
    {.name = "decoder, two streams, one never normalised",
     .preset = "resi-dual",
     .model = {SMALL_WIRING, "dropout=0.1"},
     .train = {TEXT_STEPS},
     .data = "text",
     .task = SND_TASK_LM},
    {.name = "decoder, four streams",
     .preset = "hyper-connections-4",
     .model = {SMALL_WIRING},
     .train = {TEXT_STEPS},
     .data = "text",
     .task = SND_TASK_LM},
    {.name = "decoder, a gate in every layer",
     .preset = "highway",
     .model = {SMALL_WIRING},
     .train = {TEXT_STEPS},
     .data = "text",
     .task = SND_TASK_LM},
    {.name = "encoder, post",
     .preset = "bert-base",
     .model = {SMALL_TEXT, "dropout=0.1", "attn_dropout=0.1"},
     .train = {TEXT_STEPS},
     .data = "text",
     .task = SND_TASK_MLM},
    {.name = "encoder and decoder",
     .preset = "transformer-base",
     .model = {"encoder_layers=2", "decoder_layers=3", "width=16", "heads=2", "hidden=32", "dropout=0.1"},
     .train = {"batch=2", "tokens=40", "lr=0.02", "label_smoothing=0.1"},
     .data = "pairs",
     .task = SND_TASK_SEQ2SEQ},
    {.name = "encoder and decoder, batch norm beside padding",
     .preset = "transformer-base",
     .model = {"encoder_layers=2", "decoder_layers=2", "width=16", "heads=2", "hidden=32", "norm=batch"},
     .train = {"batch=2", "tokens=40", "lr=0.02"},
     .data = "pairs",
     .task = SND_TASK_SEQ2SEQ},
    {.name = "resnet, relu after the sum",
     .preset = "resnet-v1",
     .model = {"layers=3", "width=4", "inputs=1", "outputs=4"},
     .train = {"batch=8"},
     .data = "images",
     .task = SND_TASK_CLASS},
    {.name = "resnet, activation first",
     .preset = "resnet-v2",
     .model = {"layers=3", "width=4", "inputs=1", "outputs=4"},
     .train = {"batch=8", "accumulate=2"},
     .data = "images",
     .task = SND_TASK_CLASS},
};
enum { N_AGAIN = (int)(sizeof AGAIN / sizeof *AGAIN) };
static const char *const AGAIN_WORDS[] = {"recompute=none", "recompute=norms", "recompute=layers"};

// Ten steps, of which some watch: losses, norms, and every byte of weights, running statistics and moments.
typedef struct outcome {
    trace t;
    char *model, *optimizer;
    size_t n_model, n_optimizer;
    snd_train_cost cost;
} outcome;

static void read_part(const char *checkpoint, const char *name, char **text, size_t *n) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", checkpoint, name);
    CHECK_OK(snd_read_file(path, (size_t)1 << 26, text, n));
}

static outcome outcome_of(const golden_case *c, snd_dtype t, int word, int threads) {
    const char *const train[] = {"steps=10", "monitor_every=3", AGAIN_WORDS[word], NULL};
    const char *path;
    outcome o;
    job j = open_job(c, NULL, train);
    snd_trainer *tr = start(&j, t, threads);
    go(tr, 0, STEPS, &o.t);
    CHECK_OK(snd_trainer_eval(tr, SND_SPLIT_VALID, 0, &o.t.valid, &o.t.accuracy));
    char dir[32];
    static int runs;
    snprintf(dir, sizeof dir, "outcome-%d", runs++);
    CHECK_OK(snd_checkpoint_save(tr, &NO_STATE, in_folder(dir)));
    CHECK_OK(snd_checkpoint_newest(j.arena, in_folder(dir), &path));
    read_part(path, "model.safetensors", &o.model, &o.n_model);
    read_part(path, "optimizer.safetensors", &o.optimizer, &o.n_optimizer);
    o.cost = snd_trainer_cost(tr);
    snd_trainer_destroy(tr);
    close_job(&j);
    return o;
}

static void drop_outcome(outcome *o) {
    snd_free(o->model);
    snd_free(o->optimizer);
}

static void same_outcome(const char *name, const outcome *a, const outcome *b) {
    if (memcmp(&a->t, &b->t, sizeof a->t) != 0) fail_msg("%s: losses or gradients differ", name);
    assert_int_equal(a->n_model, b->n_model);
    if (memcmp(a->model, b->model, a->n_model) != 0) fail_msg("%s: weights differ", name);
    assert_int_equal(a->n_optimizer, b->n_optimizer);
    if (memcmp(a->optimizer, b->optimizer, a->n_optimizer) != 0) fail_msg("%s: moments differ", name);
}

static void check_again(const golden_case *c, snd_dtype t) {
    outcome kept = outcome_of(c, t, 0, 1);
    CHECK_SAME(kept.cost.flops_again, 0);
    assert_true(isfinite(kept.t.loss[STEPS - 1]));
    for (int word = 1; word < 3; word++) {
        for (int threads = 1; threads <= 3; threads++) {
            outcome again = outcome_of(c, t, word, threads);
            same_outcome(c->name, &kept, &again);
            assert_true(again.cost.flops_again > 0 || word == 1);
            drop_outcome(&again);
        }
    }
    drop_outcome(&kept);
}

static void computing_again_changes_no_bit(void **state) {
    (void)state;
    for (int i = 0; i < N_AGAIN; i++) check_again(&AGAIN[i], SND_F32);
    check_again(&AGAIN[2], SND_F64);
    check_again(&AGAIN[2], SND_BF16);
    for (int i = 0; i < N_AGAIN; i += 2) check_again(&AGAIN[i], SND_F16);
}

// What is said before a run is what the run takes. Pairs come in shapes that the data decides, but for one of 8 tokens.
static void the_cost_is_foreseen(void **state) {
    (void)state;
    const char *const more[] = {"ema=0.9", "optimizer=sgd", "accumulate=2", NULL};
    for (int i = 0; i < N_AGAIN; i++) {
        for (int word = 0; word < 6; word++) {
            const char *train[] = {AGAIN_WORDS[word % 3],
                                   AGAIN[i].task == SND_TASK_SEQ2SEQ ? "tokens=8" : "steps=10",
                                   NULL,
                                   NULL,
                                   NULL,
                                   NULL};
            for (int k = 0; word >= 3 && k < 3; k++) train[2 + k] = more[k];
            job j = open_job(&AGAIN[i], NULL, train);
            int64_t row[3] = {0, 0, 0};
            if (AGAIN[i].task == SND_TASK_CLASS) snd_set_row_shape(j.set, row);
            const snd_dtype types[] = {SND_F32, SND_F64, SND_BF16, SND_F16}, type = types[(i + word) % 4];
            snd_trainer *t = start(&j, type, 1);
            snd_train_cost took = snd_trainer_cost(t), said;
            CHECK_OK(snd_train_foresee(j.arena, j.spec, &j.s, type, row, &said));
            assert_memory_equal(&took, &said, sizeof took);
            assert_int_equal(snd_train_cost_bytes(&took),
                             took.values + took.weights + took.moments + took.average + took.sums + took.halves);
            assert_int_equal(took.halves, type == SND_F16 ? took.gradients : 0);
            assert_int_equal(took.moments, (word < 3 ? 2 : 1) * took.gradients);
            assert_int_equal(took.average, word < 3 ? 0 : took.gradients);
            snd_trainer_destroy(t);
            close_job(&j);
        }
    }
}

// What the values of one layer more take in a decoder at 8 x 256 tokens, in rows of the width, which is small so that weights
// count for little. A layer of pre keeps the stream twice, two norms' results, q, k, v, what attention gives, and four each for
// the wide layer before and behind gelu: 16; without what norms and gelu make, 10; computed again, its streams.
enum { FORESEEN_ROWS = 8 * 256, FORESEEN_D = 64 };

static snd_train_cost foreseen(const char *wiring, int layers, const char *accumulate, int word) {
    char count[16];
    snprintf(count, sizeof count, "layers=%d", layers);
    const golden_case c = {
        .preset = wiring,
        .model = {"family=transformer", "width=64", "heads=2", "hidden=256", "context=256", "position=rope", count},
        .train = {"batch=8", "tokens=256", "monitor_every=0", accumulate, AGAIN_WORDS[word]},
        .data = "text",
        .task = SND_TASK_LM};
    job j = open_job(&c, NULL, NULL);
    snd_train_cost cost;
    CHECK_OK(snd_train_foresee(j.arena, j.spec, &j.s, SND_F32, (int64_t[3]){0, 0, 0}, &cost));
    close_job(&j);
    return cost;
}

static void a_layer_keeps_its_streams(void **state) {
    (void)state;
    static const struct {
        const char *wiring;
        int none, norms, layers;
    } rows[] = {{"pre", 16, 10, 1},     {"post", 16, 10, 1},    {"value-residual", 16, 10, 1},
                {"siamese", 18, 14, 2}, {"highway", 22, 16, 1}, {"hyper-connections-4", 26, 20, 4}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const int want[] = {rows[i].none, rows[i].norms, rows[i].layers};
        for (int word = 0; word < 3; word++) {
            const size_t six = foreseen(rows[i].wiring, 6, "accumulate=1", word).values,
                         twelve = foreseen(rows[i].wiring, 12, "accumulate=1", word).values;
            const double kept = ((double)twelve - (double)six) / (6.0 * FORESEEN_ROWS * FORESEEN_D * 4);
            if (!(fabs(kept - want[word]) < 0.35)) // statistics of rows; bits of a relu would be 0.125
                fail_msg("%s, %s: %g streams, want %d", rows[i].wiring, AGAIN_WORDS[word], kept, want[word]);
        }
    }
}

static void computing_again_costs_what_it_runs(void **state) {
    (void)state;
    enum { L = 6, D = FORESEEN_D };
    const snd_train_cost none = foreseen("pre", L, "accumulate=1", 0), norms = foreseen("pre", L, "accumulate=1", 1),
                         layers = foreseen("pre", L, "accumulate=1", 2), parts = foreseen("pre", L, "accumulate=2", 2);
    // of a layer of 12 d^2 weights, all but the last map runs again, in all layers but the last
    const double products = 2.0 * FORESEEN_ROWS * D * D * 8 * (L - 1),
                 attention = 4.0 * FORESEEN_ROWS * 256 * D * (L - 1);
    assert_true(layers.flops_again > products && layers.flops_again < 1.25 * products + attention);
    assert_true(norms.flops_again > 0 && norms.flops_again < 0.1 * layers.flops_again);
    CHECK_REL(norms.flops - norms.flops_again, none.flops, 1e-12);
    // sums and norms at boundaries stay apart, and are counted so
    CHECK_REL(layers.flops - layers.flops_again, none.flops, 0.01);
    CHECK_REL(parts.flops, layers.flops, 0.01);
    CHECK_REL(parts.flops_again, layers.flops_again, 0.01);
    assert_true(parts.values < layers.values);
}

static void a_resumed_run_may_compute_again(void **state) {
    (void)state;
    const golden_case *c = &AGAIN[2];
    for (int word = 0; word < 3; word++) {
        const char *const before[] = {AGAIN_WORDS[word], NULL}, *const after[] = {AGAIN_WORDS[(word + 1) % 3], NULL};
        job j = open_job(c, NULL, before), k = open_job(c, NULL, after);
        trace whole, parts;
        const char *path;
        char dir[32];
        snd_train_state st = {0};
        snd_trainer *a = start(&j, SND_F32, 2), *b = start(&k, SND_F32, 1);
        go(a, 0, 4, &whole);
        snprintf(dir, sizeof dir, "again-%d", word);
        CHECK_OK(snd_checkpoint_save(a, &NO_STATE, in_folder(dir)));
        CHECK_OK(snd_checkpoint_newest(j.arena, in_folder(dir), &path));
        CHECK_OK(snd_checkpoint_load(b, &st, path));
        go(a, 4, STEPS, &whole);
        go(b, 4, STEPS, &parts);
        assert_memory_equal(&whole.loss[4], &parts.loss[4], (STEPS - 4) * sizeof *whole.loss);
        assert_memory_equal(&whole.norm[4], &parts.norm[4], (STEPS - 4) * sizeof *whole.norm);
        snd_trainer_destroy(a), snd_trainer_destroy(b);
        close_job(&j), close_job(&k);
    }
}

static void a_checkpoint_of_another_run_is_refused(void **state) {
    (void)state;
    const char *path;
    const char *const wider[] = {"hidden=48", NULL}, *const sgd[] = {"optimizer=sgd", NULL};
    snd_train_state st = {0};
    job a = open_job(&CASES[0], NULL, NULL), b = open_job(&CASES[0], wider, NULL), c = open_job(&CASES[0], NULL, sgd);
    snd_trainer *ta = start(&a, SND_F32, 1), *tb = start(&b, SND_F32, 1), *tc = start(&c, SND_F32, 1),
                *td = start(&a, SND_F64, 1), *te = start(&a, SND_BF16, 1);
    CHECK_OK(snd_checkpoint_save(ta, &st, in_folder("other")));
    CHECK_OK(snd_checkpoint_newest(a.arena, in_folder("other"), &path));
    CHECK_STATUS(snd_checkpoint_load(tb, &st, path), SONDE_EINPUT);
    CHECK_STATUS(snd_checkpoint_load(tc, &st, path), SONDE_EINPUT);
    CHECK_STATUS(snd_checkpoint_load(td, &st, path), SONDE_EINPUT);
    CHECK_STATUS(snd_checkpoint_load(te, &st, path), SONDE_EINPUT);
    CHECK_OK(snd_checkpoint_load(ta, &st, path));
    CHECK_STATUS(snd_checkpoint_newest(a.arena, in_folder("nowhere"), &path), SONDE_EIO);
    snd_trainer_destroy(ta), snd_trainer_destroy(tb), snd_trainer_destroy(tc), snd_trainer_destroy(td);
    snd_trainer_destroy(te);
    close_job(&a), close_job(&b), close_job(&c);
}

// One byte turned over at any of some places, a file cut or emptied or gone: refused by name, and whole again it loads. For eval
// and its like what they read is checked, which the optimizer's moments are not.
static void a_damaged_checkpoint_is_refused(void **state) {
    (void)state;
    static const char *const FILES[] = {"model.safetensors", "ema.safetensors", "spec.yaml",
                                        "tokenizer.json",    "state.json",      "optimizer.safetensors"};
    const char *const ema[] = {"ema=0.9", NULL};
    const char *path;
    snd_train_state st;
    snd_trained found;
    trace unused;
    job j = open_job(&CASES[0], NULL, ema);
    snd_trainer *t = start(&j, SND_F32, 1);
    go(t, 0, 2, &unused);
    CHECK_OK(snd_checkpoint_save(t, &NO_STATE, in_folder("damaged")));
    CHECK_OK(snd_checkpoint_newest(j.arena, in_folder("damaged"), &path));
    CHECK_OK(snd_checkpoint_load(t, &st, path));
    for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++) {
        const char *file = snd_arena_printf(j.arena, "%s/%s", path, FILES[i]);
        const bool read = i != 0 && i != 5; // by eval: the average is there, so the weights are not
        char *text;
        size_t n;
        CHECK_OK(snd_read_file(file, 1 << 24, &text, &n));
        for (size_t k = 0; k < 9; k++) {
            const size_t at = (n - 1) * k / 8;
            text[at] ^= 1;
            CHECK_OK(snd_write_file(file, text, n));
            CHECK_STATUS(snd_checkpoint_load(t, &st, path), SONDE_EINPUT);
            assert_non_null(strstr(sonde_error_message(), FILES[i]));
            if (read) CHECK_STATUS(snd_trained_find(j.arena, path, NULL, &found), SONDE_EINPUT);
            text[at] ^= 1;
        }
        for (size_t size = 0; size < n; size += n / 3 + 1) {
            CHECK_OK(snd_write_file(file, text, size));
            CHECK_STATUS(snd_checkpoint_load(t, &st, path), SONDE_EINPUT);
            assert_non_null(strstr(sonde_error_message(), FILES[i]));
            CHECK_STATUS(snd_trained_find(j.arena, path, NULL, &found), read ? SONDE_EINPUT : SONDE_OK);
        }
        assert_int_equal(remove(file), 0);
        assert_int_not_equal(snd_checkpoint_load(t, &st, path), SONDE_OK);
        if (i == 5) CHECK_OK(snd_trained_find(j.arena, path, NULL, &found)); // eval does without
        CHECK_OK(snd_write_file(file, text, n));
        snd_free(text);
        CHECK_OK(snd_checkpoint_load(t, &st, path));
        CHECK_OK(snd_trained_find(j.arena, path, NULL, &found));
    }
    snd_trainer_destroy(t);
    close_job(&j);
}

// A state as it was before there were sums.
static void strip_sums(snd_arena *a, const char *checkpoint) {
    const char *path = snd_arena_printf(a, "%s/state.json", checkpoint);
    char *text;
    size_t n;
    CHECK_OK(snd_read_file(path, 1 << 20, &text, &n));
    char *files = strstr(text, ",\n  \"files\"");
    assert_non_null(files);
    strcpy(files, "\n}\n");
    CHECK_OK(snd_write_file(path, text, strlen(text)));
    snd_free(text);
}

// A checkpoint without sums loads; its tokenizer must still be one, and the run's.
static void a_checkpoint_without_sums_loads(void **state) {
    (void)state;
    const char *path;
    snd_train_state st;
    snd_trained found;
    job j = open_job(&CASES[0], NULL, NULL);
    snd_trainer *t = start(&j, SND_F32, 1);
    CHECK_OK(snd_checkpoint_save(t, &NO_STATE, in_folder("bare")));
    CHECK_OK(snd_checkpoint_newest(j.arena, in_folder("bare"), &path));
    strip_sums(j.arena, path);
    CHECK_OK(snd_checkpoint_load(t, &st, path));
    CHECK_OK(snd_trained_find(j.arena, path, NULL, &found));
    static const char other[] =
        "{\"format\": \"sonde tokenizer\", \"version\": 1, \"kind\": \"bytes\", \"specials\": []}";
    const char *file = snd_arena_printf(j.arena, "%s/tokenizer.json", path);
    CHECK_OK(snd_write_file(file, "", 0));
    CHECK_STATUS(snd_checkpoint_load(t, &st, path), SONDE_ESYNTAX);
    CHECK_OK(snd_write_file(file, other, strlen(other)));
    CHECK_STATUS(snd_checkpoint_load(t, &st, path), SONDE_EINPUT);
    assert_non_null(strstr(sonde_error_message(), "tokenizer.json: 256 tokens"));
    snd_trainer_destroy(t);
    close_job(&j);
}

static void note_name(void *ctx, const char *name) {
    snd_buf_printf(ctx, "%s ", name);
}

// The last two and the best; what an interrupted save left goes away.
static void old_checkpoints_go(void **state) {
    (void)state;
    job j = open_job(&CASES[0], NULL, NULL);
    snd_trainer *t = start(&j, SND_F32, 1);
    snd_train_state st = {.best_step = 2};
    trace unused;
    CHECK_OK(snd_make_dirs(in_folder("old/checkpoints/7.tmp")));
    CHECK_OK(snd_make_dirs(in_folder("old/checkpoints/1.old")));
    CHECK_OK(snd_write_file(in_folder("old/checkpoints/7.tmp/model.safetensors"), "half", 4));
    for (int i = 0; i < 5; i++) {
        go(t, i, i + 1, &unused);
        CHECK_OK(snd_checkpoint_save(t, &st, in_folder("old")));
    }
    snd_buf names = {0};
    CHECK_OK(snd_list_folder(in_folder("old/checkpoints"), note_name, &names));
    assert_string_equal(names.s, "2 4 5 ");
    snd_buf_free(&names);
    snd_trainer_destroy(t);
    close_job(&j);
}

static void no_number_is_never_the_best(void **state) {
    (void)state;
    const double losses[] = {NAN, 3, 2, NAN, 2.5, 2, INFINITY};
    snd_train_state st = {.best_valid = NAN};
    for (int i = 0; i < 7; i++) {
        snd_train_validated(&st, i, losses[i], 0.5);
        CHECK_SAME(st.valid, losses[i]);
        CHECK_SAME(st.best_valid, i == 0 ? NAN : i == 1 ? 3 : 2);
        assert_int_equal(st.best_step, i < 2 ? i : 2);
    }
}

// A gradient that is not finite is told, and moves nothing.
static void a_nan_is_not_learned(void **state) {
    (void)state;
    const char *const huge[] = {"optimizer=sgd", "lr=1e6", "clip=0", "warmup=0", "weight_decay=0", NULL};
    job j = open_job(&CASES[0], NULL, huge);
    snd_trainer *t = start(&j, SND_F32, 1);
    snd_step s = {.loss = 0};
    for (int i = 0; i < STEPS && isfinite(s.loss) && isfinite(s.grad_norm); i++) CHECK_OK(snd_trainer_step(t, &s));
    assert_false(isfinite(s.loss) && isfinite(s.grad_norm));
    const int64_t stood = s.step;
    CHECK_OK(snd_trainer_step(t, &s));
    assert_int_equal(s.step, stood);
    snd_trainer_destroy(t);
    close_job(&j);
}

// ---- settings and schedules -----------------------------------------------------------------------------------------------------------

static void schedules_have_no_corner(void **state) {
    (void)state;
    static const char *const names[] = {"constant", "linear", "cosine", "invsqrt", "wsd"};
    static const int64_t steps[] = {1, 2, 3, 10, 1000, 1000000000000}, warm[] = {0, 1, 2, 10, 5000};
    static const double ends[] = {0, 0.1, 1};
    for (int n = 0; n < 5; n++)
        for (int a = 0; a < 6; a++)
            for (int b = 0; b < 5; b++)
                for (int e = 0; e < 3; e++) {
                    const snd_train_settings s = {.schedule = names[n],
                                                  .lr = 2,
                                                  .steps = steps[a],
                                                  .warmup = warm[b],
                                                  .lr_end = ends[e],
                                                  .decay_share = ends[e]};
                    const int64_t at[] = {1,        2,           warm[b], warm[b] + 1, steps[a] / 2, steps[a] - 1,
                                          steps[a], steps[a] + 5};
                    for (int k = 0; k < 8; k++) {
                        const double lr = at[k] > 0 ? snd_train_lr(&s, at[k]) : 1;
                        if (!(lr > 0 && lr <= 2))
                            fail_msg("%s: step %lld of %lld: %g", names[n], (long long)at[k], (long long)steps[a], lr);
                    }
                    const int64_t top = warm[b] > 1 ? warm[b] : 1;
                    if (top <= steps[a]) CHECK_REL(snd_train_lr(&s, top), 2, 1e-15);
                }
}

static void settings_are_checked(void **state) {
    (void)state;
    snd_train_settings s = snd_train_defaults();
    for (int i = 0; i < snd_train_key_count(); i++)
        CHECK_OK(snd_train_setting(&s, "", snd_train_key_at(i)->name, snd_train_key_at(i)->dflt));
    CHECK_STATUS(snd_train_setting(&s, "", "stepz", "3"), SONDE_ENAME);
    assert_non_null(strstr(sonde_error_message(), "nearest known is steps"));
    CHECK_STATUS(snd_train_setting(&s, "", "steps", "0"), SONDE_ERANGE);
    CHECK_STATUS(snd_train_setting(&s, "", "steps", "1.5"), SONDE_ETYPE);
    CHECK_STATUS(snd_train_setting(&s, "", "lr", "nan"), SONDE_ERANGE);
    CHECK_STATUS(snd_train_setting(&s, "", "beta1", "1"), SONDE_ERANGE);
    CHECK_STATUS(snd_train_setting(&s, "", "optimizer", "ada"), SONDE_ENAME);
    CHECK_STATUS(snd_train_setting(&s, "", "optimizer", ""), SONDE_ENAME);
}

// ---- what the tool computes from --------------------------------------------------------------------------------------------------------

static void put_batch(const snd_set *set, const snd_batch *b, const char *path) {
    int64_t row[3];
    if (b->x) {
        snd_set_row_shape(set, row);
        snd_tensor t[2] = {{"x", SND_F32, SND_SHAPE(b->shape.rows, row[0], row[1], row[2]), b->x},
                           {"targets", SND_I64, SND_SHAPE(b->shape.rows), b->targets}};
        CHECK_OK(snd_st_write(path, t, 2, NULL, 0));
        return;
    }
    const snd_shape ids = SND_SHAPE(b->shape.rows, b->shape.tokens),
                    src = SND_SHAPE(b->shape.rows, b->shape.src_tokens);
    snd_tensor t[4] = {{"tokens", SND_I64, ids, b->tokens},
                       {"targets", SND_I64, ids, b->targets},
                       {"src_tokens", SND_I64, src, b->src_tokens},
                       {"src_lengths", SND_I64, SND_SHAPE(b->shape.rows), b->src_lengths}};
    CHECK_OK(snd_st_write(path, t, b->src_tokens ? 4 : 2, NULL, 0));
}

static void dump(const char *name, const char *dir) {
    for (int i = 0; i < N_CASES; i++) {
        if (strcmp(CASES[i].name, name) != 0) continue;
        job j = open_job(&CASES[i], NULL, NULL);
        snd_trainer *t = start(&j, SND_F64, 1);
        CHECK_OK(snd_checkpoint_save(t, &NO_STATE, dir));
        snd_batches *batches;
        snd_batch b;
        const snd_batching how = {j.s.batch, j.s.tokens, j.spec->vocab, 3};
        CHECK_OK(snd_batches_open(j.set, &how, &batches));
        CHECK_OK(snd_batch_make(batches, &b));
        for (int k = 0; k < STEPS; k++) {
            char path[512];
            snprintf(path, sizeof path, "%s/batch-%d.safetensors", dir, k);
            CHECK_OK(snd_batches_get(batches, SND_SPLIT_TRAIN, k, 0, 1, &b));
            put_batch(j.set, &b, path);
        }
        snd_batch_free(&b);
        snd_batches_close(batches);
        snd_trainer_destroy(t);
        close_job(&j);
    }
}

static int set_up(void **state) {
    (void)state;
    snprintf(folder, sizeof folder, "train-test-%ld", (long)getpid());
    CHECK_OK(snd_make_dirs(folder));
    write_text("text", 700);
    write_pairs("pairs", 60);
    CHECK_OK(snd_make_dirs(in_folder("images")));
    write_images("train", 120);
    write_images("t10k", 8);
    return 0;
}

static int clear(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

int main(int argc, char **argv) {
    if (argc == 4 && !strcmp(argv[1], "--dump")) {
        set_up(NULL);
        dump(argv[2], argv[3]);
        return clear(NULL);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_steps_equal_an_independent_computation),
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(watching_changes_no_bit),
        cmocka_unit_test(bf16_gradients_are_near),
        cmocka_unit_test(bf16_in_pieces_is_the_same),
        cmocka_unit_test(bf16_learns_as_f32_does),
        cmocka_unit_test(batch_norms_are_held_against_their_averages),
        cmocka_unit_test(f16_gradients_are_near),
        cmocka_unit_test(f16_nets_read_rounded_weights),
        cmocka_unit_test(f16_skips_what_overflows),
        cmocka_unit_test(f16_ends_where_no_scale_helps),
        cmocka_unit_test(a_loss_scale_is_for_f16),
        cmocka_unit_test(looks_are_right),
        cmocka_unit_test(looks_equal_plain_sums),
        cmocka_unit_test(steps_without_a_look_know_of_none),
        cmocka_unit_test(parts_change_no_gradient),
        cmocka_unit_test(dropout_acts_in_training_alone),
        cmocka_unit_test(a_resumed_run_goes_on_bit_for_bit),
        cmocka_unit_test(computing_again_changes_no_bit),
        cmocka_unit_test(the_cost_is_foreseen),
        cmocka_unit_test(a_layer_keeps_its_streams),
        cmocka_unit_test(computing_again_costs_what_it_runs),
        cmocka_unit_test(a_resumed_run_may_compute_again),
        cmocka_unit_test(a_checkpoint_of_another_run_is_refused),
        cmocka_unit_test(a_damaged_checkpoint_is_refused),
        cmocka_unit_test(a_checkpoint_without_sums_loads),
        cmocka_unit_test(old_checkpoints_go),
        cmocka_unit_test(no_number_is_never_the_best),
        cmocka_unit_test(a_nan_is_not_learned),
        cmocka_unit_test(schedules_have_no_corner),
        cmocka_unit_test(settings_are_checked),
    };
    return cmocka_run_group_tests(tests, set_up, clear);
}
