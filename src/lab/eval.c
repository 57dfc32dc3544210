// Evaluation: windows of a text, or batches of a set, through the graph of the loss. Sums over windows are in double; a loss
// of a batch is its mean times the number of its targets.
#include "lab/eval.h"

#include <math.h>
#include <string.h>

typedef struct job {
    snd_arena *arena;
    snd_weights *net;
    const snd_set *set;
    const snd_eval_opts *o;
    snd_eval_result *out;
    snd_model *m;
    snd_exec *x;
    snd_id loss, scores; // scores 0: not kept
    double sum;
    int64_t *seen, vocab; // targets by number
    int64_t *best;        // by target of a batch: the place of its largest score
} job;

// ---- the graph ----------------------------------------------------------------------------------------------------------------

// scores: the logits are kept, unless they are too many.
static sonde_status make_graph(job *j, const snd_build *b, bool scores) {
    snd_plan *plan;
    snd_exec_destroy(j->x);
    j->x = NULL;
    SND_TRY(snd_model_build(j->arena, j->net->spec, b, &j->m));
    snd_graph_round_products(j->m->g, j->net->products);
    SND_FAIL_IF(!j->m->loss, SONDE_EUNSUPPORTED, "this model has no loss to evaluate: it needs vocab or outputs");
    SND_FAIL_IF(j->m->cond, SONDE_EUNSUPPORTED,
                "this wiring reads c, a vector per example that the data does not bring");
    j->scores = scores && !snd_g_many(j->m->g, j->m->logits) ? j->m->logits : 0;
    const bool logits = j->scores != 0;
    j->loss = logits ? j->m->loss : snd_g_loss_in_pieces(j->m->g, j->m->loss, false);
    const snd_id keep[2] = {j->loss, j->scores};
    (void)snd_g_fuse(j->m->g, keep, logits ? 2 : 1);
    SND_TRY(snd_plan_make(j->arena, j->m->g, keep, logits ? 2 : 1, &plan));
    const snd_exec_opts eo = {.threads = j->net->threads, .stop = j->o->stop};
    return snd_exec_create(j->m->g, plan, &j->net->source, &eo, &j->x);
}

// Runs and adds up; a batch without targets has no mean.
static sonde_status score(job *j, const int64_t *targets, int64_t n) {
    int64_t asked = 0;
    double loss;
    for (int64_t i = 0; i < n; i++) {
        if (targets[i] < 0) continue;
        SND_FAIL_IF(targets[i] >= j->vocab, SONDE_ERANGE, "%s: token %lld; the model's vocabulary goes from 0 to %lld",
                    snd_set_name(j->set), (long long)targets[i], (long long)j->vocab - 1);
        asked++;
        j->seen[targets[i]]++;
    }
    if (!asked) return SONDE_OK;
    SND_TRY(snd_exec_set(j->x, j->m->targets, targets, SND_I64));
    SND_TRY(snd_exec_run(j->x));
    SND_TRY(snd_exec_get(j->x, j->loss, &loss));
    j->sum += loss * (double)asked;
    j->out->targets += asked;
    return SONDE_OK;
}

static void tell(const job *j, int64_t done, int64_t total) {
    if (j->o->progress) j->o->progress(j->o->ctx, done, total);
}

// ---- language models ------------------------------------------------------------------------------------------------------------

// Row of the windows that begin at `first`, of a text of n tokens: what the window before has scored is left out.
static void fill_window(const job *j, int64_t first, int64_t n, int64_t *tokens, int64_t *targets) {
    const int64_t W = j->out->window, stride = j->out->stride, here = n - first < W + 1 ? n - first : W + 1;
    for (int64_t i = 0; i < W; i++) {
        tokens[i] = 0;
        targets[i] = -100;
    }
    if (here < 2) return;
    snd_set_tokens(j->set, j->o->split, first, here - 1, tokens);
    snd_set_tokens(j->set, j->o->split, first + 1, here - 1, targets);
    for (int64_t i = 0; first > 0 && i < W - stride; i++) targets[i] = -100;
}

static sonde_status windows(job *j, int64_t n, int64_t rows, int64_t *tokens, int64_t *targets) {
    const int64_t W = j->out->window, stride = j->out->stride;
    const int64_t count = n - 1 <= W ? 1 : 1 + (n - 1 - W + stride - 1) / stride;
    for (int64_t k = 0; k < count; k += rows) {
        for (int64_t r = 0; r < rows; r++)
            fill_window(j, k + r < count ? (k + r) * stride : n, n, tokens + r * W, targets + r * W);
        for (int64_t i = 0; i < rows * W; i++)
            SND_FAIL_IF(tokens[i] >= j->vocab, SONDE_ERANGE,
                        "%s: token %lld; the model's vocabulary goes from 0 to %lld", snd_set_name(j->set),
                        (long long)tokens[i], (long long)j->vocab - 1);
        SND_TRY(snd_exec_set(j->x, j->m->input, tokens, SND_I64));
        SND_TRY(score(j, targets, rows * W));
        tell(j, k + rows < count ? k + rows : count, count);
    }
    return SONDE_OK;
}

// Targets that stand for characters which the tokenizer does not know.
static int64_t unknown(const job *j) {
    const snd_tokenizer *t = snd_set_tokenizer(j->set);
    const int64_t unk = t ? snd_tokenizer_special(t, SND_SPECIAL_UNK) : -1;
    return unk >= 0 && unk < j->vocab ? j->seen[unk] : 0;
}

static sonde_status language(job *j) {
    const snd_spec *s = j->net->spec;
    const int64_t n = snd_set_token_count(j->set, j->o->split);
    SND_FAIL_IF(n < 2, SONDE_EINPUT, "%s: %s has %lld tokens; two are the least that can be scored",
                snd_set_name(j->set), snd_split_name(j->o->split), (long long)n);
    int64_t W = j->o->window ? j->o->window : s->context ? s->context : 1024;
    SND_FAIL_IF(s->position == SND_POS_LEARNED && W > s->context, SONDE_ERANGE,
                "a window of %lld tokens; learned positions end at context, %lld", (long long)W, (long long)s->context);
    W = W < n - 1 ? W : n - 1;
    j->out->window = W;
    j->out->stride = j->o->stride ? j->o->stride : (W + 1) / 2;
    SND_FAIL_IF(j->o->stride > W, SONDE_EUSAGE,
                "a stride of %lld is beyond the window of %lld: tokens would be left out", (long long)j->o->stride,
                (long long)W);
    const int64_t rows = j->o->rows ? j->o->rows : 8;
    const snd_build b = {.dtype = j->net->dtype, .rows = rows, .tokens = W, .eval = true, .with_targets = true};
    SND_TRY(make_graph(j, &b, false));
    int64_t *tokens, *targets;
    SND_NEW(j->arena, tokens, rows * W);
    SND_NEW(j->arena, targets, rows * W);
    SND_TRY(windows(j, n, rows, tokens, targets));
    j->out->bytes = snd_set_byte_count(j->set, j->o->split) - snd_set_first_bytes(j->set, j->o->split);
    j->out->unknown = unknown(j);
    return SONDE_OK;
}

// ---- batches ----------------------------------------------------------------------------------------------------------------------

static sonde_status set_inputs(job *j, const snd_batch *b) {
    for (int i = 0; i < j->m->n_inputs; i++) {
        const char *name = j->m->inputs[i].name;
        const snd_id v = j->m->inputs[i].v;
        if (!strcmp(name, "tokens")) SND_TRY(snd_exec_set(j->x, v, b->tokens, SND_I64));
        if (!strcmp(name, "src_tokens")) SND_TRY(snd_exec_set(j->x, v, b->src_tokens, SND_I64));
        if (!strcmp(name, "src_lengths")) SND_TRY(snd_exec_set(j->x, v, b->src_lengths, SND_I64));
        if (!strcmp(name, "input")) SND_TRY(snd_exec_set(j->x, v, b->x, SND_F32));
    }
    return SONDE_OK;
}

// Place of the largest of n scores, the first of equals.
static int64_t largest(const job *j, const void *scores, int64_t first, int64_t n) {
    int64_t best = first;
    for (int64_t i = first + 1; i < first + n; i++) {
        const bool more = j->net->dtype == SND_F64 ? ((const double *)scores)[i] > ((const double *)scores)[best]
                                                   : ((const float *)scores)[i] > ((const float *)scores)[best];
        if (more) best = i;
    }
    return best - first;
}

// Targets that one task looks at, so that it is some work even where there are few classes.
enum { TOGETHER = 64 };

typedef struct search {
    const job *j;
    const void *scores;
    const int64_t *targets;
    int64_t n;
} search;

static void search_task(void *ctx, int64_t task) {
    const search *s = ctx;
    for (int64_t r = task * TOGETHER; r < (task + 1) * TOGETHER && r < s->n; r++)
        if (s->targets[r] >= 0) s->j->best[r] = largest(s->j, s->scores, r * s->j->vocab, s->j->vocab);
}

static void count_right(job *j, const snd_batch *b) {
    search s = {j, j->scores ? snd_exec_raw(j->x, j->scores, NULL) : NULL, b->targets, b->shape.rows * b->shape.tokens};
    if (!s.scores) return;
    const int threads = j->net->threads > 0 ? j->net->threads : snd_cpu_count();
    snd_parallel(threads, (s.n + TOGETHER - 1) / TOGETHER, search_task, &s);
    for (int64_t r = 0; r < s.n; r++) {
        if (b->targets[r] < 0) continue;
        const int64_t best = j->best[r];
        if (j->out->confusion) j->out->confusion[b->targets[r] * j->vocab + best]++;
        j->out->right += best == b->targets[r];
        j->out->looked++;
    }
}

static sonde_status build_for(job *j, snd_batch_shape shape, bool class) {
    int64_t image[3] = {0, 0, 0};
    if (class) snd_set_row_shape(j->set, image);
    const bool images = j->net->spec->family == SND_FAM_CONVNET;
    const snd_build b = {.dtype = j->net->dtype,
                         .rows = shape.rows,
                         .tokens = shape.tokens,
                         .src_tokens = shape.src_tokens,
                         .src_lengths = snd_set_task(j->set) == SND_TASK_SEQ2SEQ,
                         .height = images ? image[1] : 0,
                         .width = images ? image[2] : 0,
                         .eval = true,
                         .with_targets = true};
    SND_NEW(j->arena, j->best, shape.rows * shape.tokens);
    return make_graph(j, &b, true);
}

static sonde_status each_batch(job *j, const snd_batches *batches, snd_batch *b, bool class) {
    snd_batch_shape made = {0};
    const int64_t n = snd_batches_count(batches, j->o->split);
    SND_FAIL_IF(n < 1, SONDE_EINPUT, "%s: %s has no data", snd_set_name(j->set), snd_split_name(j->o->split));
    for (int64_t i = 0; i < n; i++) {
        SND_TRY(snd_batches_get(batches, j->o->split, i, 0, 1, b));
        if (memcmp(&made, &b->shape, sizeof made) != 0) SND_TRY(build_for(j, b->shape, class));
        made = b->shape;
        SND_TRY(set_inputs(j, b));
        SND_TRY(score(j, b->targets, b->shape.rows * b->shape.tokens));
        count_right(j, b);
        tell(j, i + 1, n);
    }
    return SONDE_OK;
}

static sonde_status in_batches(job *j, bool class) {
    snd_batches *batches = NULL;
    snd_batch b = {0};
    const snd_spec *s = j->net->spec;
    const snd_batching how = {.rows = j->o->rows ? j->o->rows
                                      : class    ? 64
                                                 : 8,
                              .tokens = class          ? 1
                                        : j->o->window ? j->o->window
                                        : s->context   ? s->context
                                                       : 512,
                              .vocab = class ? 0 : s->vocab};
    if (class) {
        j->out->classes = j->vocab;
        SND_NEW(j->arena, j->out->confusion, j->vocab * j->vocab);
    } else {
        j->out->window = how.tokens;
    }
    SND_TRY(snd_batches_open(j->set, &how, &batches));
    sonde_status status = snd_batch_make(batches, &b);
    if (status == SONDE_OK) status = each_batch(j, batches, &b, class);
    snd_batch_free(&b);
    snd_batches_close(batches);
    return status;
}

// ---- the whole --------------------------------------------------------------------------------------------------------------------

static double entropy(const int64_t *count, int64_t n, int64_t all) {
    double h = 0;
    for (int64_t i = 0; i < n; i++) {
        const double p = (double)count[i] / (double)all;
        if (count[i]) h -= p * log(p);
    }
    return h;
}

static sonde_status evaluate(job *j) {
    const snd_task task = snd_set_task(j->set);
    const bool class = task == SND_TASK_CLASS;
    j->vocab = class ? j->net->spec->outputs : j->net->spec->vocab;
    SND_FAIL_IF(j->vocab < 1, SONDE_EUNSUPPORTED, "this model has no %s to evaluate",
                class ? "outputs, hence no classes" : "vocab, hence no tokens");
    SND_NEW(j->arena, j->seen, j->vocab);
    SND_TRY(task == SND_TASK_LM ? language(j) : in_batches(j, class));
    j->out->nats = j->sum / (double)j->out->targets;
    j->out->unigram = entropy(j->seen, j->vocab, j->out->targets);
    j->out->uniform = log((double)j->vocab);
    return SONDE_OK;
}

sonde_status snd_eval(snd_arena *a, snd_weights *net, const snd_set *set, const snd_eval_opts *o,
                      snd_eval_result *out) {
    *out = (snd_eval_result){0};
    job j = {.arena = a, .net = net, .set = set, .o = o, .out = out};
    const sonde_status s = evaluate(&j);
    snd_exec_destroy(j.x);
    return s;
}
