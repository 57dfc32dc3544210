// Whole training steps: drawn data, forward, loss, backward, clipping, AdamW, by the trainer that `sonde train` uses. Held
// against the multiply-adds are the products' operations alone, so the share is what all else leaves of the processor.
// What statistics of all layers cost is measured in turns with the same step of a trainer that knows nothing of them.
#include "base/machine.h"
#include "kernels/kernels.h"
#include "lab/bench_impl.h"
#include "lab/lab.h"
#include "lab/rival.h"

#include <math.h>
#include <string.h>

typedef struct step {
    const char *name, *spec, *over[8]; // of the row; as on the command line
    int64_t batch, tokens;
    const char *rival;
    snd_bench_rank rank;
} step;

#define NO_DROPOUT "dropout=0", "attn_dropout=0"
static const step steps[] = {
    {"mlp 8x256 batch 64",
     "pre",
     {"family=mlp", "layers=8", "width=256", "inputs=256", "outputs=10"},
     64,
     0,
     "step-mlp 8 256 10 64",
     SND_BENCH_EVER},
    {"resnet-20 batch 64", "resnet-v1", {"layers=9"}, 64, 0, "step-resnet 3 64", SND_BENCH_LONG},
    {"gpt 24x256 4x64",
     "gpt2",
     {"layers=24", "width=256", "heads=4", "context=64", NO_DROPOUT},
     4,
     64,
     "step-gpt 24 256 4 50257 4 64",
     SND_BENCH_LONG},
    {"gpt 12x384 4x64",
     "gpt2",
     {"layers=12", "width=384", "heads=6", "context=64", NO_DROPOUT},
     4,
     64,
     "step-gpt 12 384 6 50257 4 64",
     SND_BENCH_LONG},
    {"gpt2 124M 4x64", "gpt2", {"context=64", NO_DROPOUT}, 4, 64, "step-gpt 12 768 12 50257 4 64", SND_BENCH_LONG},
    {"gpt2 124M 8x256", "gpt2", {"context=256", NO_DROPOUT}, 8, 256, "step-gpt 12 768 12 50257 8 256", SND_BENCH_NAMED},
};
enum { N_STEPS = (int)(sizeof steps / sizeof *steps), SIDE = 32, CHANNELS = 3, PEAK_ROUNDS = 500000 };

// Steps with statistics, which stand behind the others: of the step of that name.
enum { BETWEEN = 1 << 30 };
static const struct look {
    const char *step, *name;
    int64_t monitor_every; // BETWEEN: a run that looks at other steps than these
    snd_bench_rank rank;
} looks[] = {
    {"mlp 8x256 batch 64", "8x256 batch 64 each step", 1, SND_BENCH_EVER},
    {"gpt 24x256 4x64", "gpt 24x256 4x64 each step", 1, SND_BENCH_LONG},
    {"gpt 24x256 4x64", "gpt 24x256 4x64 other steps", BETWEEN, SND_BENCH_LONG},
    {"gpt2 124M 4x64", "gpt2 124M 4x64 each step", 1, SND_BENCH_NAMED},
    {"gpt2 124M 4x64", "gpt2 124M 4x64 other steps", BETWEEN, SND_BENCH_NAMED},
};
enum { N_LOOKS = (int)(sizeof looks / sizeof *looks) };

int snd_bench_step_count(void) {
    return N_STEPS + N_LOOKS;
}
const char *snd_bench_step_name(int i) {
    return i < N_STEPS ? steps[i].name : looks[i - N_STEPS].name;
}
bool snd_bench_step_picked(const snd_bench_opts *o, int i) {
    if (i < N_STEPS) return snd_bench_picks(o, "step", steps[i].name, steps[i].rank);
    const struct look *l = &looks[i - N_STEPS];
    return !o->rival && snd_bench_picks(o, "monitor", l->name, l->rank);
}

// ---- a trainer ---------------------------------------------------------------------------------------------------------

typedef struct training {
    const step *s;
    int threads;
    int64_t monitor_every; // 0: never
    snd_arena *arena;
    snd_spec *spec;
    snd_data_settings data;
    snd_set *set;
    snd_trainer *t;
    snd_train_settings settings;
    double sink;
} training;

static snd_train_settings settings_of(const step *s, int64_t monitor_every) {
    snd_train_settings t = snd_train_defaults();
    t.batch = s->batch;
    if (s->tokens) t.tokens = s->tokens;
    t.lr = 1e-4;
    t.schedule = "constant";
    t.warmup = t.eval_every = 0;
    t.monitor_every = monitor_every;
    return t;
}

static int64_t draw(const char *name, int64_t i, int64_t below) {
    const int64_t v = (int64_t)(snd_uniform_at(snd_key_make(1, name), (uint64_t)i) * (double)below);
    return v < below ? v : below - 1;
}

static sonde_status draw_tokens(training *g, int64_t n) {
    int64_t *tokens;
    SND_NEW(g->arena, tokens, n);
    for (int64_t i = 0; i < n; i++) tokens[i] = draw("bench.tokens", i, g->spec->vocab);
    const snd_memory m = {.tokens = tokens, .n_tokens = n};
    return snd_set_of(&m, &g->data, SND_TASK_LM, &g->set);
}

static sonde_status draw_rows(training *g, int64_t n, int64_t channels, int64_t side) {
    const int64_t size = n * channels * side * side;
    float *x;
    int64_t *labels;
    SND_NEW(g->arena, x, size);
    SND_NEW(g->arena, labels, n);
    snd_k_fill_normal(1, SND_F32, snd_key_make(1, "bench.rows"), 0, size, 1, x);
    for (int64_t i = 0; i < n; i++) labels[i] = draw("bench.labels", i, g->spec->outputs);
    const snd_memory m = {.x = x, .labels = labels, .rows = n, .row = {channels, side, side}};
    return snd_set_of(&m, &g->data, SND_TASK_CLASS, &g->set);
}

// Some batches' worth, all of it to train on.
static sonde_status draw_set(training *g) {
    enum { BATCHES = 4 };
    const snd_spec *s = g->spec;
    const int64_t n = BATCHES * g->s->batch;
    g->data = snd_data_defaults();
    g->data.valid = g->data.test = 0;
    if (s->family == SND_FAM_TRANSFORMER) return draw_tokens(g, n * (g->s->tokens + 1));
    return s->family == SND_FAM_CONVNET ? draw_rows(g, n, CHANNELS, SIDE) : draw_rows(g, n, s->inputs, 1);
}

static sonde_status open_training(training *g) {
    int n = 0;
    while (n < (int)(sizeof g->s->over / sizeof *g->s->over) && g->s->over[n]) n++;
    g->arena = snd_arena_create();
    if (!g->arena) return SONDE_ENOMEM;
    SND_TRY(snd_spec_load(g->arena, g->s->spec, (const char **)(void *)g->s->over, n, &g->spec));
    SND_TRY(draw_set(g));
    g->settings = settings_of(g->s, g->monitor_every);
    SND_TRY(snd_train_resolve(&g->settings, g->spec));
    const snd_trainer_opts o = {.dtype = SND_F32, .seed = 1, .threads = g->threads};
    return snd_trainer_create(g->spec, &g->settings, g->set, &o, &g->t);
}

static void close_training(training *g) {
    snd_trainer_destroy(g->t);
    snd_set_close(g->set);
    snd_arena_destroy(g->arena);
}

static sonde_status run(void *ctx) {
    training *g = ctx;
    snd_step out;
    SND_TRY(snd_trainer_step(g->t, &out));
    SND_FAIL_IF(!isfinite(out.loss), SONDE_EDIVERGED, "%s: the loss of step %lld is not finite", g->s->name,
                (long long)out.step);
    return SONDE_OK;
}
static void limit(void *ctx) {
    training *g = ctx;
    g->sink += snd_k_peak(g->threads, SND_F32, PEAK_ROUNDS);
}

// ---- what a step is ----------------------------------------------------------------------------------------------------

// Operations of the products: maps, convolutions, logits, and of attention the six products of the half that is read.
static sonde_status product_flops(const training *g, double *flops) {
    const snd_spec *s = g->spec;
    snd_description *d;
    SND_TRY(snd_describe_facts(g->arena, s, &d));
    const double T = (double)g->s->tokens;
    const double attention = s->family == SND_FAM_TRANSFORMER ? 6 * (double)(s->layers * s->width) * T * (T + 1) : 0;
    *flops = (double)g->s->batch * (d->forward.gemm + d->backward.gemm + attention);
    return SONDE_OK;
}

static void put_facts(const training *g, double flops, snd_bench_row *row) {
    const snd_family f = g->spec->family;
    row->item = f == SND_FAM_TRANSFORMER ? "tokens" : f == SND_FAM_CONVNET ? "images" : "rows";
    row->items = (double)(g->s->batch * (g->s->tokens ? g->s->tokens : 1));
    row->seconds = flops * 1e-9 / row->rate.mid;
    row->mib = snd_memory_peak() / 1048576;
}

static sonde_status measure_step(const snd_bench_opts *o, training *g, snd_bench_row *row) {
    double flops;
    SND_TRY(open_training(g));
    SND_TRY(product_flops(g, &flops));
    const snd_bench_work w = {.group = "step",
                              .name = g->s->name,
                              .unit = "GFLOP/s",
                              .bound = "multiply-adds",
                              .threads = g->threads,
                              .work = flops,
                              .allowed = snd_k_peak(g->threads, SND_F32, 16) / 16 * PEAK_ROUNDS,
                              .run = run,
                              .limit = limit,
                              .ctx = g,
                              .rival = g->s->rival,
                              .turns = o->quick ? 3 : 5,
                              .patience = 10,
                              .least = 0.02,
                              .least_limit = 0.05};
    SND_TRY(snd_bench_measure(o, &w, row));
    put_facts(g, flops, row);
    if (o->rival) row->rival_mib = snd_rival_mib(o->rival);
    return SONDE_OK;
}

// ---- with statistics and without ---------------------------------------------------------------------------------------

typedef struct pair {
    training with, without;
    sonde_status s; // of the latter's steps
} pair;

static sonde_status run_with(void *ctx) {
    pair *p = ctx;
    SND_TRY(p->s);
    return run(&p->with);
}
static void run_without(void *ctx) {
    pair *p = ctx;
    if (p->s == SONDE_OK) p->s = run(&p->without);
}

static sonde_status measure_pair(const snd_bench_opts *o, const char *name, pair *p, snd_bench_row *row) {
    SND_TRY(open_training(&p->with));
    SND_TRY(open_training(&p->without));
    SND_TRY(run(&p->with)); // a run's first step is always looked at
    const snd_bench_work w = {.group = "monitor",
                              .name = name,
                              .unit = "steps/s",
                              .bound = "no statistics",
                              .threads = p->with.threads,
                              .work = 1e9,
                              .allowed = 1e9,
                              .run = run_with,
                              .limit = run_without,
                              .ctx = p,
                              .turns = o->quick ? 5 : 11,
                              .patience = 10,
                              .least = 0.02,
                              .least_limit = 0.02};
    SND_TRY(snd_bench_measure(o, &w, row));
    return p->s;
}

static sonde_status bench_look(const snd_bench_opts *o, const struct look *l, snd_bench_row *row) {
    const step *s = steps;
    while (strcmp(s->name, l->step) != 0) s++;
    pair p = {.without = {.s = s, .threads = o->threads > 0 ? o->threads : snd_cpu_count()}};
    p.with = p.without;
    p.with.monitor_every = l->monitor_every;
    const sonde_status status = measure_pair(o, l->name, &p, row);
    close_training(&p.with);
    close_training(&p.without);
    return status;
}

sonde_status snd_bench_step(const snd_bench_opts *o, int i, snd_bench_row *row) {
    if (i >= N_STEPS) return bench_look(o, &looks[i - N_STEPS], row);
    training g = {.s = &steps[i], .threads = o->threads > 0 ? o->threads : snd_cpu_count()};
    snd_memory_peak_start();
    const sonde_status s = measure_step(o, &g, row);
    close_training(&g);
    return s;
}
