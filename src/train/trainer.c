// A trainer: nets for all shapes of the batches, the weights, and the step.
// A step's gradient is that of the mean over all targets of the batch, in however many parts it is worked through: part p
// has a_p targets and contributes a_p/a times the gradient of its own mean.
#include "train/inner.h"

#include <math.h>
#include <string.h>

// ---- life -----------------------------------------------------------------------------------------------------------------------

// What the model lacks for the data, and the keys that give it.
typedef struct lack {
    snd_buf why, keys;
} lack;

// "rows have 3 features, the model reads 4"
static void lacks(lack *l, const char *key, int64_t needed, const char *who, const char *what, const char *model,
                  int64_t has) {
    snd_buf_printf(&l->why, "%s%s %lld %s, %s %lld", l->why.len ? "; " : "", who, (long long)needed, what, model,
                   (long long)has);
    snd_buf_printf(&l->keys, " %s=%lld", key, (long long)needed);
}

static void look_at_rows(const snd_trainer *t, lack *l) {
    const int64_t *row = t->row, classes = snd_set_classes(t->set);
    const snd_spec *s = t->spec;
    const bool images = s->family == SND_FAM_CONVNET;
    const int64_t has = images ? row[0] : row[0] * row[1] * row[2], wants = s->inputs > 0 ? s->inputs : s->width;
    if (has != wants && images) lacks(l, "inputs", has, "images have", "channels", "the model reads", wants);
    if (has != wants && !images) lacks(l, "inputs", has, "rows have", "features", "the model reads", wants);
    if (s->outputs < classes) lacks(l, "outputs", classes, "there are", "classes", "the model has", s->outputs);
}

// Pairs may be shorter than the longest that are taken.
static void look_at_tokens(const snd_trainer *t, lack *l) {
    const int64_t vocab = snd_set_vocab(t->set);
    const snd_spec *s = t->spec;
    const bool ends = s->position == SND_POS_LEARNED && t->task != SND_TASK_SEQ2SEQ;
    if (s->vocab < vocab) lacks(l, "vocab", vocab, "the vocabulary has", "tokens", "the model's", s->vocab);
    if (ends && s->context < t->s.tokens)
        lacks(l, "context", t->s.tokens, "a sequence has", "tokens", "learned positions end at context,", s->context);
}

// All of it in one sentence.
static sonde_status check_fit(const snd_trainer *t) {
    lack l = {0};
    if (t->task == SND_TASK_CLASS)
        look_at_rows(t, &l);
    else
        look_at_tokens(t, &l);
    sonde_status s = l.why.failed || l.keys.failed ? SONDE_ENOMEM : SONDE_OK;
    if (s == SONDE_OK && l.why.len)
        s = snd_fail(SONDE_ESHAPE, __FILE__, __LINE__, "%s: %s; give%s", snd_set_name(t->set), l.why.s, l.keys.s);
    snd_buf_free(&l.why);
    snd_buf_free(&l.keys);
    return s;
}

static sonde_status open_batches(snd_trainer *t) {
    const snd_batching b = {.rows = t->s.batch, .tokens = t->s.tokens, .vocab = t->spec->vocab, .seed = t->o.seed};
    SND_TRY(snd_batches_open(t->set, &b, &t->batches));
    return snd_batch_make(t->batches, &t->batch);
}

static sonde_status make_net(snd_trainer *t, snd_batch_shape shape, snd_net_kind kind, snd_net *n) {
    SND_TRY(snd_net_make(t, shape, kind, n));
    const size_t bytes = snd_plan_bytes(n->plan);
    if (bytes > t->slab_bytes) t->slab_bytes = bytes;
    return SONDE_OK;
}

sonde_status snd_nets_make(snd_trainer *t, const snd_batch_shape *shapes, int n) {
    t->n_nets = n;
    SND_NEW(t->arena, t->nets, t->n_nets);
    SND_NEW(t->arena, t->evals, t->n_nets);
    const bool always = t->s.monitor_every == 1 && t->s.accumulate == 1; // then no other step is made
    if (t->s.monitor_every > 0 && !always) SND_NEW(t->arena, t->watches, t->n_nets);
    for (int i = 0; i < t->n_nets; i++) {
        snd_batch_shape part = shapes[i];
        part.rows /= t->s.accumulate;
        SND_TRY(make_net(t, part, always ? SND_NET_WATCH : SND_NET_TRAIN, &t->nets[i]));
        SND_TRY(make_net(t, part, SND_NET_EVAL, &t->evals[i]));
        if (t->watches) SND_TRY(make_net(t, part, SND_NET_WATCH, &t->watches[i]));
    }
    if (always) t->watches = t->nets;
    return SONDE_OK;
}

static sonde_status start_nets(snd_trainer *t) {
    t->slab = snd_slab_alloc(t->slab_bytes);
    SND_FAIL_IF(!t->slab, SONDE_ENOMEM, "no memory for the values of a step (%zu bytes)", t->slab_bytes);
    SND_TRY(snd_source_resident(t->nets[0].m->g, t->o.seed, t->o.threads, &t->source));
    for (int i = 0; i < t->n_nets; i++) {
        SND_TRY(snd_net_start(t, &t->nets[i]));
        SND_TRY(snd_net_start(t, &t->evals[i]));
        if (t->watches && t->watches != t->nets) SND_TRY(snd_net_start(t, &t->watches[i]));
    }
    return SONDE_OK;
}

static sonde_status set_up(snd_trainer *t) {
    const snd_batch_shape *shapes;
    if (t->task == SND_TASK_CLASS) snd_set_row_shape(t->set, t->row);
    SND_TRY(check_fit(t));
    SND_TRY(open_batches(t));
    const int n = snd_batches_shapes(t->batches, &shapes);
    snd_scale_start(t);
    SND_TRY(snd_nets_make(t, shapes, n));
    SND_TRY(start_nets(t));
    const int P = snd_g_param_count(t->nets[0].m->g);
    SND_NEW(t->arena, t->batch_running, P + 1);
    for (int i = 0; i < P; i++) t->batch_running[i] = NAN;
    SND_TRY(snd_weights_make(t));
    if (t->stored) SND_TRY(snd_halves_make(t));
    return t->watches ? snd_layers_make(t) : SONDE_OK;
}

void snd_trainer_type(snd_trainer *t) {
    if (t->o.dtype == SND_BF16) t->products = SND_BF16;
    if (t->o.dtype == SND_F16) t->stored = SND_F16;
    if (t->products || t->stored) t->o.dtype = SND_F32;
    t->scale = 1;
}

sonde_status snd_trainer_create(const snd_spec *spec, const snd_train_settings *settings, const snd_set *set,
                                const snd_trainer_opts *o, snd_trainer **out) {
    *out = NULL;
    snd_trainer *t = snd_calloc(1, sizeof *t);
    if (!t) return SONDE_ENOMEM;
    *t = (snd_trainer){.arena = snd_arena_create(),
                       .spec = spec,
                       .s = *settings,
                       .opt = snd_optimizer_find(settings->optimizer),
                       .set = set,
                       .task = snd_set_task(set),
                       .o = *o};
    snd_trainer_type(t);
    if (t->o.threads <= 0) t->o.threads = snd_cpu_count();
    const sonde_status s = t->arena ? set_up(t) : SONDE_ENOMEM;
    if (s != SONDE_OK) {
        snd_trainer_destroy(t);
        return s;
    }
    *out = t;
    return SONDE_OK;
}

void snd_trainer_destroy(snd_trainer *t) {
    if (!t) return;
    for (int i = 0; i < t->n_nets && t->nets && t->evals; i++) {
        snd_exec_destroy(t->nets[i].x);
        snd_exec_destroy(t->evals[i].x);
        if (t->watches && t->watches != t->nets) snd_exec_destroy(t->watches[i].x);
    }
    snd_source_close(&t->source);
    snd_free(t->half_slab);
    snd_free(t->moments);
    snd_free(t->average);
    snd_free(t->sums);
    snd_free(t->slab);
    snd_batch_free(&t->batch);
    snd_batches_close(t->batches);
    snd_arena_destroy(t->arena);
    snd_free(t);
}

int64_t snd_trainer_steps(const snd_trainer *t) {
    return t->step;
}
double snd_trainer_epochs(const snd_trainer *t) {
    return snd_batches_epochs(t->batches, t->step);
}

// ---- a step ---------------------------------------------------------------------------------------------------------------------

static snd_net *net_for(const snd_trainer *t, snd_net *nets, const snd_batch_shape *s) {
    for (int i = 0; i < t->n_nets; i++)
        if (nets[i].shape.rows == s->rows && nets[i].shape.tokens == s->tokens &&
            nets[i].shape.src_tokens == s->src_tokens)
            return &nets[i];
    return NULL;
}

// The seed of a step's draws: one of the run's own stream.
uint64_t snd_trainer_step_seed(const snd_trainer *t) {
    uint32_t w[4];
    snd_philox(snd_key_make(t->o.seed, "train.step"), (uint64_t)t->step, w);
    return (uint64_t)w[0] << 32 | w[1];
}

static sonde_status run_part(snd_trainer *t, int64_t part, bool watch, snd_net **net, double *share) {
    SND_TRY(snd_batches_get(t->batches, SND_SPLIT_TRAIN, t->step, part, t->s.accumulate, &t->batch));
    snd_net *n = net_for(t, watch ? t->watches : t->nets, &t->batch.shape);
    SND_FAIL_IF(!n, SONDE_EINTERNAL, "a batch of a shape that was not planned");
    *net = n;
    *share = (double)t->batch.asked / (double)t->batch.asked_all;
    if (t->batch.asked == 0) return SONDE_OK; // a part without targets has no mean
    SND_TRY(snd_net_run(t, n, snd_trainer_step_seed(t), part * t->batch.shape.rows, *share));
    return snd_net_keep_states(t, n);
}

static sonde_status gradients(snd_trainer *t, bool watch, snd_net **net, double *loss) {
    bool first = true;
    *loss = 0;
    for (int64_t part = 0; part < t->s.accumulate; part++) {
        double share = 0;
        SND_TRY(run_part(t, part, watch && first, net, &share));
        if (share == 0) continue;
        *loss += share * snd_net_loss(*net);
        if (watch && first) snd_layers_read(t, *net); // of the first part
        if (t->s.accumulate > 1) snd_weights_collect(t, *net, first);
        first = false;
    }
    SND_FAIL_IF(first, SONDE_EINPUT, "batch %lld has no targets", (long long)t->step);
    return SONDE_OK;
}

sonde_status snd_trainer_step(snd_trainer *t, snd_step *out) {
    const double start = snd_now();
    snd_net *net = NULL;
    double loss;
    const bool watch = t->watches && (t->step == 0 || (t->step + 1) % t->s.monitor_every == 0);
    SND_TRY(gradients(t, watch, &net, &loss));
    const double norm = snd_weights_norm(t, net), lr = snd_train_lr(&t->s, t->step + 1);
    const double scale = t->s.clip > 0 && norm > t->s.clip ? t->s.clip / norm : 1;
    const bool finite = isfinite(loss) && isfinite(norm);
    const double loss_scale = t->scale;
    if (finite) {
        snd_weights_update(t, net, lr, scale, watch);
        t->step++;
    }
    if (watch) snd_layers_weigh(t, finite);
    const bool skipped = snd_scale_step(t, finite);
    *out = (snd_step){.step = t->step,
                      .loss = loss,
                      .lr = lr,
                      .grad_norm = norm,
                      .targets = t->batch.asked_all,
                      .seconds = snd_now() - start,
                      .layers = watch ? t->layers : NULL,
                      .n_layers = watch ? t->n_layers : 0,
                      .scale = t->stored ? loss_scale : 0,
                      .lost = t->stored ? snd_exec_lost(net->x) : 0,
                      .skipped = skipped};
    return SONDE_OK;
}

// ---- validation -----------------------------------------------------------------------------------------------------------------

// The running average takes the weights' place, and gives it back by the same call.
static void swap_average(snd_trainer *t) {
    for (int i = 0; t->average && i < t->n_weights; i++) {
        const snd_weight *w = &t->weights[i];
        char *a = w->w, *b = w->ema, c;
        for (size_t k = 0; k < (size_t)w->n * snd_dtype_size(t->o.dtype); k++) c = a[k], a[k] = b[k], b[k] = c;
    }
}

static sonde_status sum_losses(snd_trainer *t, snd_split split, int64_t batches, double *loss, double *accuracy) {
    double sum = 0, asked = 0, hits = 0;
    for (int64_t b = 0; b < batches; b++) {
        for (int64_t part = 0; part < t->s.accumulate; part++) {
            SND_TRY(snd_batches_get(t->batches, split, b, part, t->s.accumulate, &t->batch));
            if (t->batch.asked == 0) continue;
            snd_net *n = net_for(t, t->evals, &t->batch.shape);
            SND_FAIL_IF(!n, SONDE_EINTERNAL, "a batch of a shape that was not planned");
            SND_TRY(snd_net_run(t, n, t->o.seed, 0, 1));
            sum += snd_net_loss(n) * (double)t->batch.asked;
            asked += (double)t->batch.asked;
            hits += (double)snd_net_hits(t, n);
        }
    }
    *loss = asked > 0 ? sum / asked : NAN;
    *accuracy = asked > 0 && t->task == SND_TASK_CLASS ? hits / asked : NAN;
    return SONDE_OK;
}

sonde_status snd_trainer_eval(snd_trainer *t, snd_split split, int64_t batches, double *loss, double *accuracy) {
    const int64_t n = snd_batches_count(t->batches, split);
    swap_average(t);
    const sonde_status s = sum_losses(t, split, batches > 0 && batches < n ? batches : n, loss, accuracy);
    swap_average(t);
    return s;
}

// ---- on what the caller brings ----------------------------------------------------------------------------------------------------

sonde_status snd_trainer_step_on(snd_trainer *t, const snd_batch *b, snd_step *out) {
    snd_batches_give(t->batches, b);
    const sonde_status s = snd_trainer_step(t, out);
    const bool stands = s == SONDE_OK && !out->skipped && !(isfinite(out->loss) && isfinite(out->grad_norm));
    if (!stands) snd_batches_give(t->batches, NULL); // else it may be asked where that began
    return s;
}

sonde_status snd_trainer_eval_on(snd_trainer *t, const snd_batch *b, double *loss, double *accuracy) {
    snd_batches_give(t->batches, b);
    const sonde_status s = snd_trainer_eval(t, SND_SPLIT_VALID, 1, loss, accuracy);
    snd_batches_give(t->batches, NULL);
    return s;
}

// The rows that there are, part by part.
static sonde_status read_scores(snd_trainer *t, int64_t rows, double *out) {
    const int64_t C = t->spec->outputs;
    for (int64_t part = 0, done = 0; part < t->s.accumulate && done < rows; part++) {
        SND_TRY(snd_batches_get(t->batches, SND_SPLIT_VALID, 0, part, t->s.accumulate, &t->batch));
        snd_net *n = net_for(t, t->evals, &t->batch.shape);
        SND_FAIL_IF(!n, SONDE_EINTERNAL, "a batch of a shape that was not planned");
        const int64_t here = t->batch.shape.rows < rows - done ? t->batch.shape.rows : rows - done;
        double *all = snd_malloc((size_t)(t->batch.shape.rows * C) * sizeof *all);
        if (!all) return SONDE_ENOMEM;
        sonde_status s = snd_net_run(t, n, t->o.seed, 0, 1);
        if (s == SONDE_OK) s = snd_exec_get(n->x, n->scores, all);
        if (s == SONDE_OK) memcpy(out + done * C, all, (size_t)(here * C) * sizeof *out);
        snd_free(all);
        SND_TRY(s);
        done += here;
    }
    return SONDE_OK;
}

sonde_status snd_trainer_scores(snd_trainer *t, const snd_batch *b, double *out) {
    SND_FAIL_IF(t->task != SND_TASK_CLASS, SONDE_EUNSUPPORTED, "scores are for models of classes");
    snd_batches_give(t->batches, b);
    swap_average(t);
    const sonde_status s = read_scores(t, b->shape.rows, out);
    swap_average(t);
    snd_batches_give(t->batches, NULL);
    return s;
}

snd_source *snd_trainer_source(snd_trainer *t, const snd_graph **g) {
    *g = t->nets[0].m->g;
    return &t->source;
}

sonde_status snd_trainer_use(snd_trainer *t, sonde_status (*use)(void *ctx, snd_source *source, const snd_graph *g),
                             void *ctx) {
    swap_average(t);
    const sonde_status s = use(ctx, &t->source, t->nets[0].m->g);
    swap_average(t);
    return s;
}
