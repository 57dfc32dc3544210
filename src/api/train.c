// <sonde/train.h> over data/ and train/: no training is done here. Texts and arrays of the caller are copied before a call
// returns, except what a batch holds, which is read at once.
#include "api/inner.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

struct sonde_data {
    snd_arena *arena;
    snd_set *set;
    snd_task task;
    const char **pairs; // "key=value", as a spec's data: part has them; n 0: nothing that could be opened again
    int n_pairs;
    const char *text;
};

struct sonde_trainer {
    snd_arena *arena;
    snd_spec spec; // the caller's, with parts that say how it is trained
    const sonde_data *data;
    snd_train_settings s;
    snd_trainer_opts o;
    snd_trainer *t;
    snd_train_state state;
    sonde_layer_state *layers;
    int n_layers;
};

// ---- settings -------------------------------------------------------------------------------------------------------------------

// The two halves of "key=value", in the arena.
static sonde_status cut(snd_arena *a, const char *pair, const char **key, const char **text) {
    const char *eq = strchr(pair, '=');
    char shown[72];
    SND_FAIL_IF(!eq, SONDE_EUSAGE, "setting '%s': key=value is needed", snd_shown(shown, pair));
    *key = snd_arena_strn(a, pair, (size_t)(eq - pair));
    *text = snd_arena_str(a, eq + 1);
    return *key && *text ? SONDE_OK : SONDE_ENOMEM;
}

static sonde_status read_data_settings(sonde_data *d, const char *const *settings, int n, snd_data_settings *s) {
    *s = snd_data_defaults();
    for (int i = 0; i < n; i++) {
        const char *key = NULL, *text = NULL;
        SND_TRY(cut(d->arena, settings[i], &key, &text));
        SND_TRY(snd_data_setting(s, "", key, text));
    }
    return SONDE_OK;
}

// The spec's own part holds seed and dtype as well, which are no settings of training.
static sonde_status read_train_settings(snd_arena *a, const snd_spec *spec, const sonde_train_opts *o,
                                        snd_train_settings *s) {
    const char *const *part;
    const int n = snd_spec_section(spec, "train", &part);
    *s = snd_train_defaults();
    for (int i = 0; i < n + o->n_settings; i++) {
        const char *key = NULL, *text = NULL;
        SND_TRY(cut(a, i < n ? part[i] : o->settings[i - n], &key, &text));
        if (i < n && (!strcmp(key, "seed") || !strcmp(key, "dtype"))) continue;
        SND_TRY(snd_train_setting(s, "", key, text));
    }
    return snd_train_resolve(s, spec);
}

// ---- data -----------------------------------------------------------------------------------------------------------------------

static snd_task task_of(sonde_task t) {
    return t == SONDE_TASK_LM        ? SND_TASK_LM
           : t == SONDE_TASK_MLM     ? SND_TASK_MLM
           : t == SONDE_TASK_SEQ2SEQ ? SND_TASK_SEQ2SEQ
           : t == SONDE_TASK_CLASS   ? SND_TASK_CLASS
                                     : SND_TASK_INVALID;
}

static sonde_status new_data(sonde_task task, sonde_data **out) {
    *out = NULL;
    SND_FAIL_IF(task_of(task) == SND_TASK_INVALID, SONDE_EUSAGE, "task %d; one of LM, MLM, SEQ2SEQ, CLASS is needed",
                (int)task);
    sonde_data *d = snd_calloc(1, sizeof *d);
    if (!d) return SONDE_ENOMEM;
    d->task = task_of(task);
    d->arena = snd_arena_create();
    if (!d->arena) {
        snd_free(d);
        return SONDE_ENOMEM;
    }
    *out = d;
    return SONDE_OK;
}

// The settings with path and folder, so that the command can go on with a run of the program's.
static sonde_status keep_pairs(sonde_data *d, const char *path, const char *const *settings, int n) {
    char here[4096];
    SND_NEW(d->arena, d->pairs, n + 2);
    for (int i = 0; i < n; i++) {
        d->pairs[i] = snd_arena_str(d->arena, settings[i]);
        if (!d->pairs[i]) return SONDE_ENOMEM;
    }
    d->pairs[n] = snd_arena_printf(d->arena, "path=%s", path);
    d->n_pairs = n + 1;
    if (snd_data_is_relative("path", path) && getcwd(here, sizeof here))
        d->pairs[d->n_pairs++] = snd_arena_printf(d->arena, "folder=%s", here);
    return d->pairs[n] && d->pairs[d->n_pairs - 1] ? SONDE_OK : SONDE_ENOMEM;
}

static sonde_status open_file(sonde_data *d, const char *path, const char *const *settings, int n) {
    snd_data_settings s;
    SND_TRY(read_data_settings(d, settings, n, &s));
    SND_TRY(keep_pairs(d, path, settings, n));
    s.path = path;
    return snd_set_open(&s, d->task, &d->set);
}

static sonde_status open_memory(sonde_data *d, const snd_memory *m, const char *const *settings, int n) {
    snd_data_settings s;
    SND_TRY(read_data_settings(d, settings, n, &s));
    return snd_set_of(m, &s, d->task, &d->set);
}

static sonde_status give(sonde_data *d, sonde_status s, sonde_data **out) {
    if (s == SONDE_OK)
        *out = d;
    else
        sonde_data_destroy(d);
    return s;
}

sonde_status sonde_data_open(sonde_task task, const char *path, const char *const *settings, int n, sonde_data **out) {
    sonde_data *d;
    SND_TRY(new_data(task, &d));
    return give(d, open_file(d, path, settings, n), out);
}

sonde_status sonde_data_text(sonde_task task, const char *text, size_t n_bytes, const char *const *settings, int n,
                             sonde_data **out) {
    sonde_data *d;
    SND_TRY(new_data(task, &d));
    return give(d, open_memory(d, &(snd_memory){.text = text, .n_text = n_bytes}, settings, n), out);
}

sonde_status sonde_data_tokens(const int64_t *tokens, int64_t n_tokens, const char *const *settings, int n,
                               sonde_data **out) {
    sonde_data *d;
    SND_TRY(new_data(SONDE_TASK_LM, &d));
    return give(d, open_memory(d, &(snd_memory){.tokens = tokens, .n_tokens = n_tokens}, settings, n), out);
}

sonde_status sonde_data_rows(const float *x, const int64_t *labels, int64_t rows, const int64_t shape[3],
                             const char *const *settings, int n, sonde_data **out) {
    sonde_data *d;
    const snd_memory m = {.x = x, .labels = labels, .rows = rows, .row = {shape[0], shape[1], shape[2]}};
    SND_TRY(new_data(SONDE_TASK_CLASS, &d));
    return give(d, open_memory(d, &m, settings, n), out);
}

sonde_status sonde_data_batches(sonde_task task, const int64_t shape[3], int64_t classes, sonde_data **out) {
    sonde_data *d;
    SND_FAIL_IF(task == SONDE_TASK_CLASS && (!shape || classes < 1), SONDE_EUSAGE,
                "batches of classes need the shape of a row and the number of classes");
    SND_TRY(new_data(task, &d));
    return give(d, snd_set_fed(d->task, shape, classes, &d->set), out);
}

void sonde_data_destroy(sonde_data *d) {
    if (!d) return;
    snd_set_close(d->set);
    snd_arena_destroy(d->arena);
    snd_free(d);
}

int64_t sonde_data_vocab(const sonde_data *d) {
    return snd_set_vocab(d->set);
}
int64_t sonde_data_classes(const sonde_data *d) {
    return snd_set_classes(d->set);
}

const char *sonde_data_describe(sonde_data *d) {
    snd_buf b = {0};
    if (!d->text) {
        snd_set_describe(d->set, &b);
        d->text = b.failed || !b.s ? NULL : snd_arena_str(d->arena, b.s);
        snd_buf_free(&b);
    }
    return d->text;
}

static sonde_status complete(snd_arena *a, const char *spec, const char *const *overrides, int n, const sonde_data *d,
                             int64_t tokens, sonde_spec **out) {
    sonde_spec *open;
    const char *more[SND_LAB_COMPLETE], **all;
    int n_more;
    SND_NEW(a, all, n + SND_LAB_COMPLETE);
    SND_TRY(snd_api_spec(spec, true, overrides, n, &open));
    const sonde_status s = snd_lab_complete(a, open->spec, d->set, d->task, tokens > 0 ? tokens : 128, more, &n_more);
    sonde_spec_destroy(open);
    SND_TRY(s);
    for (int i = 0; i < n; i++) all[i] = overrides[i];
    for (int i = 0; i < n_more; i++) all[n + i] = more[i];
    return sonde_spec_load(spec, all, n + n_more, out);
}

sonde_status sonde_spec_for_data(const char *spec, const char *const *overrides, int n, const sonde_data *d,
                                 int64_t tokens, sonde_spec **out) {
    snd_arena *a = snd_arena_create();
    const sonde_status s = a ? complete(a, spec, overrides, n, d, tokens, out) : SONDE_ENOMEM;
    snd_arena_destroy(a);
    return s;
}

// ---- a trainer ------------------------------------------------------------------------------------------------------------------

static sonde_status opts_of(const sonde_train_opts *o, snd_trainer_opts *out) {
    static const snd_dtype types[] = {SND_F32, SND_F64, SND_BF16, SND_F16};
    *out = (snd_trainer_opts){.dtype = o->f64 ? SND_F64 : SND_F32, .seed = o->seed, .threads = o->threads};
    if (!o->dtype) return SONDE_OK;
    char shown[72];
    int i = 0;
    while (i < 4 && strcmp(o->dtype, snd_dtype_name(types[i])) != 0) i++;
    SND_FAIL_IF(i == 4, SONDE_ENAME, "dtype '%s'; one of f32, f64, bf16, f16 is needed", snd_shown(shown, o->dtype));
    SND_FAIL_IF(o->f64 && types[i] != SND_F64, SONDE_EUSAGE, "dtype is %s, and f64 is asked for as well", o->dtype);
    out->dtype = types[i];
    return SONDE_OK;
}

static sonde_status check_task(const snd_spec *s, const sonde_data *d) {
    static const char *const names[] = {"nothing", "LM", "MLM", "SEQ2SEQ", "CLASS"};
    const snd_task wants = snd_train_task(s);
    SND_FAIL_IF(wants != d->task, SONDE_ESHAPE, "the data is for the task %s, the model's is %s", names[d->task],
                names[wants]);
    SND_FAIL_IF(wants != SND_TASK_CLASS && s->vocab < 1, SONDE_ESHAPE,
                "the model has no vocab; sonde_spec_for_data takes it from the data");
    return SONDE_OK;
}

static sonde_status set_up(sonde_trainer *t, const snd_spec *spec, const sonde_train_opts *o) {
    t->spec = *spec;
    SND_TRY(opts_of(o, &t->o));
    t->state = (snd_train_state){.first_loss = NAN, .valid = NAN, .best_valid = NAN, .accuracy = NAN};
    SND_TRY(check_task(spec, t->data));
    SND_TRY(read_train_settings(t->arena, spec, o, &t->s));
    SND_TRY(snd_lab_train_parts(t->arena, &t->spec, &t->s, &t->o, t->data->pairs, t->data->n_pairs));
    return snd_trainer_create(&t->spec, &t->s, t->data->set, &t->o, &t->t);
}

sonde_status sonde_trainer_create(const sonde_spec *s, const sonde_data *d, const sonde_train_opts *o,
                                  sonde_trainer **out) {
    sonde_trainer *t = snd_calloc(1, sizeof *t);
    if (!t) return SONDE_ENOMEM;
    t->arena = snd_arena_create();
    t->data = d;
    const sonde_status status = t->arena ? set_up(t, s->spec, o) : SONDE_ENOMEM;
    if (status == SONDE_OK)
        *out = t;
    else
        sonde_trainer_destroy(t);
    return status;
}

void sonde_trainer_destroy(sonde_trainer *t) {
    if (!t) return;
    snd_trainer_destroy(t->t);
    snd_arena_destroy(t->arena);
    snd_free(t);
}

static sonde_status take_layers(sonde_trainer *t, const snd_step *s) {
    if (s->n_layers > t->n_layers) {
        SND_NEW(t->arena, t->layers, s->n_layers);
        t->n_layers = s->n_layers;
    }
    for (int i = 0; i < s->n_layers; i++) {
        const snd_layer_state *l = &s->layers[i];
        t->layers[i] = (sonde_layer_state){.name = l->name,
                                           .rms = l->rms,
                                           .grms = l->grms,
                                           .mean = l->mean,
                                           .var = l->var,
                                           .write = l->write,
                                           .entropy = l->entropy,
                                           .wrms = l->wrms,
                                           .wgrms = l->wgrms,
                                           .update = l->update,
                                           .batch_running = l->batch_running};
    }
    return SONDE_OK;
}

static sonde_status take_step(sonde_trainer *t, const snd_step *s, sonde_step *out) {
    SND_TRY(take_layers(t, s));
    if (isnan(t->state.first_loss) && isfinite(s->loss)) t->state.first_loss = s->loss;
    t->state.targets += s->targets;
    *out = (sonde_step){.step = s->step,
                        .loss = s->loss,
                        .lr = s->lr,
                        .grad_norm = s->grad_norm,
                        .targets = s->targets,
                        .seconds = s->seconds,
                        .layers = s->layers ? t->layers : NULL,
                        .n_layers = s->n_layers,
                        .loss_scale = s->scale,
                        .underflow = s->lost,
                        .skipped = s->skipped};
    return SONDE_OK;
}

// The arrays are read alone: the inner batch is one that readers share with writers.
static snd_batch batch_of(const sonde_batch *b) {
    return (snd_batch){.shape = {b->rows, b->n_tokens, b->n_src_tokens},
                       .tokens = (int64_t *)(uintptr_t)b->tokens,
                       .targets = (int64_t *)(uintptr_t)b->targets,
                       .src_tokens = (int64_t *)(uintptr_t)b->src_tokens,
                       .src_lengths = (int64_t *)(uintptr_t)b->src_lengths,
                       .x = (float *)(uintptr_t)b->x};
}

sonde_status sonde_trainer_step(sonde_trainer *t, sonde_step *out) {
    snd_step s;
    SND_TRY(snd_trainer_step(t->t, &s));
    return take_step(t, &s, out);
}

sonde_status sonde_trainer_step_on(sonde_trainer *t, const sonde_batch *b, sonde_step *out) {
    snd_step s;
    const snd_batch given = batch_of(b);
    SND_TRY(snd_trainer_step_on(t->t, &given, &s));
    return take_step(t, &s, out);
}

int64_t sonde_trainer_steps(const sonde_trainer *t) {
    return snd_trainer_steps(t->t);
}
size_t sonde_trainer_bytes(const sonde_trainer *t) {
    const snd_train_cost c = snd_trainer_cost(t->t);
    return snd_train_cost_bytes(&c);
}

static void put_eval(double loss, double accuracy, double *to_loss, double *to_accuracy) {
    if (to_loss) *to_loss = loss;
    if (to_accuracy) *to_accuracy = accuracy;
}

sonde_status sonde_trainer_eval(sonde_trainer *t, sonde_split split, int64_t batches, double *loss, double *accuracy) {
    double l, a;
    SND_FAIL_IF(split < SONDE_SPLIT_TRAIN || split > SONDE_SPLIT_TEST, SONDE_EUSAGE, "split %d; TRAIN, VALID or TEST",
                (int)split);
    SND_TRY(snd_trainer_eval(t->t, (snd_split)(split - SONDE_SPLIT_TRAIN), batches, &l, &a));
    if (split == SONDE_SPLIT_VALID) snd_train_validated(&t->state, snd_trainer_steps(t->t), l, a);
    put_eval(l, a, loss, accuracy);
    return SONDE_OK;
}

sonde_status sonde_trainer_eval_on(sonde_trainer *t, const sonde_batch *b, double *loss, double *accuracy) {
    double l, a;
    const snd_batch given = batch_of(b);
    SND_TRY(snd_trainer_eval_on(t->t, &given, &l, &a));
    put_eval(l, a, loss, accuracy);
    return SONDE_OK;
}

sonde_status sonde_trainer_scores(sonde_trainer *t, const float *x, int64_t rows, double *scores) {
    int64_t shape[3];
    snd_set_row_shape(t->data->set, shape);
    const size_t n = (size_t)(rows * shape[0] * shape[1] * shape[2]);
    SND_FAIL_IF(t->data->task != SND_TASK_CLASS, SONDE_EUNSUPPORTED, "scores are for models of classes");
    SND_FAIL_IF(rows < 1 || rows > t->s.batch, SONDE_ESHAPE, "%lld rows; 1 to %lld are possible (batch)",
                (long long)rows, (long long)t->s.batch);
    float *copy = snd_malloc(n * sizeof *copy);
    int64_t *targets = snd_calloc((size_t)rows, sizeof *targets);
    sonde_status s = copy && targets ? SONDE_OK : SONDE_ENOMEM;
    if (s == SONDE_OK) {
        memcpy(copy, x, n * sizeof *copy);
        snd_set_normalise(t->data->set, rows, copy);
        const snd_batch b = {.shape = {rows, 1, 0}, .targets = targets, .x = copy};
        s = snd_trainer_scores(t->t, &b, scores);
    }
    snd_free(copy);
    snd_free(targets);
    return s;
}

// ---- weights --------------------------------------------------------------------------------------------------------------------

static const snd_graph *graph_of(const sonde_trainer *t) {
    const snd_graph *g;
    (void)snd_trainer_source(t->t, &g);
    return g;
}

int sonde_trainer_parameters(const sonde_trainer *t) {
    return snd_g_param_count(graph_of(t));
}

sonde_status sonde_trainer_parameter(const sonde_trainer *t, int i, const char **name, int64_t shape[6], int *nd) {
    const snd_graph *g = graph_of(t);
    SND_FAIL_IF(i < 0 || i >= snd_g_param_count(g), SONDE_ENAME, "the model has %d parameters, no parameter %d",
                snd_g_param_count(g), i);
    const snd_value *v = snd_g_value(g, snd_g_param_at(g, i));
    *name = v->name;
    *nd = v->shape.nd;
    for (int k = 0; k < v->shape.nd; k++) shape[k] = v->shape.dim[k];
    return SONDE_OK;
}

static sonde_status find(const sonde_trainer *t, const char *name, void **data, int64_t *n) {
    const snd_graph *g;
    char shown[72];
    snd_source *source = snd_trainer_source(t->t, &g);
    for (int i = 0; i < snd_g_param_count(g); i++) {
        const snd_value *v = snd_g_value(g, snd_g_param_at(g, i));
        if (strcmp(v->name, name) != 0) continue;
        *n = snd_shape_size(v->shape);
        return snd_source_data(source, g, i, data);
    }
    SND_FAIL(SONDE_ENAME, "the model has no parameter '%s'", snd_shown(shown, name));
}

sonde_status sonde_trainer_read(const sonde_trainer *t, const char *name, double *out) {
    void *data;
    int64_t n;
    SND_TRY(find(t, name, &data, &n));
    snd_convert(data, t->o.dtype, out, SND_F64, n);
    return SONDE_OK;
}

sonde_status sonde_trainer_write(sonde_trainer *t, const char *name, const double *values) {
    void *data;
    int64_t n;
    SND_TRY(find(t, name, &data, &n));
    snd_convert(values, SND_F64, data, t->o.dtype, n);
    return SONDE_OK;
}

// ---- checkpoints ------------------------------------------------------------------------------------------------------------------

sonde_status sonde_trainer_save(sonde_trainer *t, const char *folder) {
    return snd_checkpoint_save(t->t, &t->state, folder);
}

sonde_status sonde_trainer_load(sonde_trainer *t, const char *folder) {
    snd_trained found;
    SND_TRY(snd_trained_find(t->arena, folder, NULL, &found));
    SND_FAIL_IF(!found.folder, SONDE_EIO, "%s: there is no checkpoint", folder);
    return snd_checkpoint_load(t->t, &t->state, found.folder);
}

// ---- text -------------------------------------------------------------------------------------------------------------------------

typedef struct writer {
    sonde_trainer *t;
    const int64_t *prompt;
    int64_t n;
    snd_generate_opts o;
    int64_t *out, n_out;
} writer;

static void take_token(void *ctx, int64_t sample, int64_t token, bool done) {
    writer *w = ctx;
    (void)sample;
    (void)done;
    if (token >= 0) w->out[w->n_out++] = token;
}

static sonde_status write_tokens(void *ctx, snd_source *source, const snd_graph *g) {
    writer *w = ctx;
    snd_generated made;
    snd_weights net = {
        .spec = &w->t->spec, .dtype = w->t->o.dtype, .threads = w->t->o.threads, .source = *source, .g = g};
    return snd_generate(&net, &w->o, w->prompt, w->n, &made);
}

sonde_status sonde_trainer_generate(sonde_trainer *t, const int64_t *prompt, int64_t n, const sonde_sampling *o,
                                    int64_t *out, int64_t *n_out) {
    const snd_tokenizer *k = snd_set_tokenizer(t->data->set);
    const int64_t context = snd_trained_window(&t->spec, SND_GENERATE_WINDOW);
    writer w = {.t = t, .prompt = prompt, .n = n, .out = out};
    SND_TRY(snd_decodes(&t->spec));
    SND_FAIL_IF(o->tokens < 1, SONDE_ERANGE, "%lld tokens; 1 or more are possible", (long long)o->tokens);
    for (int64_t i = 0; i < n; i++)
        SND_FAIL_IF(prompt[i] < 0 || prompt[i] >= t->spec.vocab, SONDE_ERANGE,
                    "the prompt's token %lld is %lld; 0 to %lld", (long long)i, (long long)prompt[i],
                    (long long)t->spec.vocab - 1);
    w.o = (snd_generate_opts){
        .sampling = {.temperature = o->temperature, .top_k = o->top_k, .top_p = o->top_p > 0 ? o->top_p : 1},
        .samples = 1,
        .tokens = o->tokens,
        .capacity = n + o->tokens < context ? n + o->tokens : context,
        .end = k ? snd_tokenizer_special(k, SND_SPECIAL_EOS) : -1,
        .limit = k ? snd_tokenizer_plain(k) : 0,
        .seed = o->seed,
        .token = take_token,
        .ctx = &w};
    const sonde_status s = snd_trainer_use(t->t, write_tokens, &w);
    *n_out = w.n_out;
    return s;
}

static sonde_status write_text(sonde_trainer *t, const snd_ids *ids, const sonde_sampling *o, snd_buf *text) {
    snd_arena *a = snd_arena_create();
    int64_t *prompt = a ? snd_arena_array(a, (size_t)ids->n + 1, sizeof *prompt) : NULL, n = 0;
    int64_t *out = prompt && o->tokens > 0 ? snd_arena_array(a, (size_t)o->tokens, sizeof *out) : prompt;
    sonde_status s = prompt && out ? SONDE_OK : SONDE_ENOMEM;
    for (int64_t i = 0; s == SONDE_OK && i < ids->n; i++) prompt[i] = ids->v[i];
    if (s == SONDE_OK) s = sonde_trainer_generate(t, prompt, ids->n, o, out, &n);
    if (s == SONDE_OK) s = snd_tokenizer_decode(snd_set_tokenizer(t->data->set), out, n, text);
    snd_arena_destroy(a);
    return s;
}

sonde_status sonde_trainer_generate_text(sonde_trainer *t, const char *prompt, const sonde_sampling *o, char **text) {
    const snd_tokenizer *k = snd_set_tokenizer(t->data->set);
    snd_ids ids = {0};
    snd_buf b = {0};
    SND_FAIL_IF(!k, SONDE_EUSAGE, "the data has no tokenizer; sonde_trainer_generate takes token numbers");
    SND_FAIL_IF(!*prompt, SONDE_EUSAGE, "the prompt is empty; the model needs a token to go on from");
    sonde_status s = snd_tokenizer_encode(k, "prompt", (const uint8_t *)prompt, strlen(prompt), &ids);
    if (s == SONDE_OK) s = write_text(t, &ids, o, &b);
    snd_buf_put(&b, ""); // also of no token at all there is a text
    if (s == SONDE_OK && b.failed) s = SONDE_ENOMEM;
    snd_free(ids.v);
    if (s == SONDE_OK)
        *text = b.s;
    else
        snd_buf_free(&b);
    return s;
}

// ---- a whole run ------------------------------------------------------------------------------------------------------------------

typedef struct teller {
    const sonde_run_folder *r;
    snd_stop stop;
} teller;

static void tell(void *ctx, const snd_train_point *p) {
    teller *t = ctx;
    const sonde_progress now = {.step = p->step,
                                .steps = p->steps,
                                .loss = p->loss,
                                .valid = p->valid,
                                .accuracy = p->accuracy,
                                .lr = p->lr,
                                .grad_norm = p->grad_norm,
                                .tokens_per_s = p->tokens_per_s,
                                .seconds = p->seconds,
                                .seconds_left = p->seconds_left};
    if (t->r->progress && t->r->progress(t->r->ctx, &now)) t->stop.flag = 1;
}

static sonde_status train(sonde_record *rec, const snd_spec *given, const sonde_data *d, const sonde_train_opts *o,
                          const sonde_run_folder *r, bool *told) {
    snd_spec spec = *given;
    snd_train_settings s;
    teller t = {.r = r};
    snd_train_result result;
    snd_train_opts all = {.dir = r->folder, .resume = r->resume != 0, .point = tell, .progress = tell, .ctx = &t};
    SND_TRY(opts_of(o, &all.t));
    all.t.stop = &t.stop;
    SND_TRY(check_task(&spec, d));
    SND_TRY(read_train_settings(rec->arena, &spec, o, &s));
    SND_TRY(snd_lab_train_parts(rec->arena, &spec, &s, &all.t, d->pairs, d->n_pairs));
    all.run = snd_lab_train_open(rec->rec, &spec, d->set, &all.t);
    if (!all.run) return SONDE_ENOMEM;
    const sonde_status status = snd_train_run(&spec, &s, d->set, &all, &result);
    *told = status == SONDE_OK || status == SONDE_EDIVERGED || status == SONDE_EINTERRUPTED;
    if (*told) snd_lab_train_close(all.run, &result);
    const sonde_status recorded = snd_record_status(rec->rec);
    return status == SONDE_OK ? recorded : status;
}

sonde_status sonde_train(const sonde_spec *s, const sonde_data *d, const sonde_train_opts *o, const sonde_run_folder *r,
                         sonde_record **out) {
    sonde_record *rec;
    bool told = false;
    *out = NULL;
    SND_TRY(snd_api_record(SND_REC_TRAIN, &rec));
    const sonde_status status = train(rec, s->spec, d, o, r, &told);
    if (told)
        *out = rec;
    else
        sonde_record_destroy(rec);
    return status;
}
