// Checkpoints: what a run needs to go on bit for bit, as a folder that appears whole or not at all.
// Order of writing: files into checkpoints/STEP.tmp, each through to the disk, then the folder's entries, then the rename,
// then the entries of checkpoints/. What is removed gets another name first. So a folder whose name is a number is whole.
#include "train/inner.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

static const char SCHEMA[] = "sonde.checkpoint/1";

// ---- names ----------------------------------------------------------------------------------------------------------------------

static const char *join(snd_arena *a, const char *dir, const char *name) {
    return snd_arena_printf(a, "%s/%s", dir, name);
}

// The step that a folder's name stands for; -1: none.
static int64_t step_of(const char *name) {
    int64_t step;
    return *name >= '0' && *name <= '9' && snd_parse_int(name, &step, NULL) ? step : -1;
}

typedef struct found {
    int64_t *steps, n, cap;
    bool failed;
} found;

static void note_step(void *ctx, const char *name) {
    found *f = ctx;
    const int64_t step = step_of(name);
    if (step < 0) return;
    f->failed |= !snd_grow((void **)&f->steps, &f->cap, f->n + 1, sizeof *f->steps);
    if (!f->failed) f->steps[f->n++] = step;
}

static int64_t newest_below(const found *f, int64_t limit) {
    int64_t best = -1;
    for (int64_t i = 0; i < f->n; i++)
        if (f->steps[i] < limit && f->steps[i] > best) best = f->steps[i];
    return best;
}

static sonde_status list_steps(const char *folder, found *f) {
    *f = (found){0};
    SND_TRY(snd_list_folder(folder, note_step, f));
    return f->failed ? SONDE_ENOMEM : SONDE_OK;
}

// ---- tensors --------------------------------------------------------------------------------------------------------------------

static snd_tensor tensor(const snd_trainer *t, int param, const char *name, void *data) {
    const snd_value *v = snd_g_value(t->nets[0].m->g, snd_g_param_at(t->nets[0].m->g, param));
    return (snd_tensor){.name = name ? name : v->name, .dtype = v->dtype, .shape = v->shape, .data = data};
}

static sonde_status list_model(snd_arena *a, const snd_trainer *t, snd_tensor **out, int64_t *n) {
    const snd_graph *g = t->nets[0].m->g;
    *n = snd_g_param_count(g);
    SND_NEW(a, *out, *n + 1);
    for (int i = 0; i < *n; i++) {
        void *data;
        SND_TRY(snd_source_data((snd_source *)&t->source, g, i, &data)); // they are all there: nothing is drawn
        (*out)[i] = tensor(t, i, NULL, data);
    }
    return SONDE_OK;
}

// The running average in the weights' place; what is not learned as it is.
static sonde_status list_average(snd_arena *a, const snd_trainer *t, snd_tensor **out, int64_t *n) {
    SND_TRY(list_model(a, t, out, n));
    for (int i = 0; i < t->n_weights; i++) (*out)[t->weights[i].param].data = t->weights[i].ema;
    return SONDE_OK;
}

static sonde_status list_moments(snd_arena *a, const snd_trainer *t, snd_tensor **out, int64_t *n) {
    *n = 0;
    SND_NEW(a, *out, 2 * t->n_weights + 1);
    for (int i = 0; i < t->n_weights; i++) {
        const snd_weight *w = &t->weights[i];
        const char *m = snd_arena_printf(a, "m.%s", w->name), *v = snd_arena_printf(a, "v.%s", w->name);
        if (!m || !v) return SONDE_ENOMEM;
        (*out)[(*n)++] = tensor(t, w->param, m, w->m);
        if (w->v) (*out)[(*n)++] = tensor(t, w->param, v, w->v);
    }
    return SONDE_OK;
}

typedef sonde_status list_fn(snd_arena *a, const snd_trainer *t, snd_tensor **out, int64_t *n);

static const struct part {
    const char *file;
    list_fn *list;
} PARTS[] = {
    {"model.safetensors", list_model}, {"optimizer.safetensors", list_moments}, {"ema.safetensors", list_average}};
enum { N_PARTS = (int)(sizeof PARTS / sizeof *PARTS) };

static bool has_part(const snd_trainer *t, int i) {
    return PARTS[i].list != list_average || t->average;
}

// ---- writing --------------------------------------------------------------------------------------------------------------------

static sonde_status write_text(snd_arena *a, const char *folder, const char *name, snd_buf *b) {
    const char *path = join(a, folder, name);
    const sonde_status s = !path || b->failed ? SONDE_ENOMEM : snd_write_file(path, b->s ? b->s : "", b->len);
    snd_buf_free(b);
    SND_TRY(s);
    return snd_sync(path);
}

// As the run's settings call it.
static const char *dtype_of(const snd_trainer *t) {
    return snd_dtype_name(t->stored ? t->stored : t->products ? t->products : t->o.dtype);
}

static sonde_status write_state(snd_arena *a, const snd_trainer *t, const snd_train_state *st, const char *folder) {
    snd_buf b = {0};
    char seed[32], print[32];
    snprintf(seed, sizeof seed, "%" PRIu64, t->o.seed);
    snprintf(print, sizeof print, "%016" PRIx64, snd_set_fingerprint(t->set));
    snd_json j = snd_json_start(&b);
    snd_json_open(&j, NULL, '{');
    snd_json_str(&j, "schema", SCHEMA);
    snd_json_int(&j, "step", t->step);
    snd_json_int(&j, "batch", t->step); // of the data: one a step
    snd_json_str(&j, "seed", seed);
    snd_json_str(&j, "dtype", dtype_of(t));
    snd_json_str(&j, "optimizer", t->opt->name);
    snd_json_str(&j, "data", snd_set_name(t->set));
    snd_json_str(&j, "data_fingerprint", print);
    snd_json_int(&j, "targets", st->targets);
    snd_json_num(&j, "first_loss", st->first_loss);
    snd_json_num(&j, "valid_loss", st->valid);
    snd_json_num(&j, "accuracy", st->accuracy);
    snd_json_num(&j, "best_valid_loss", st->best_valid);
    snd_json_int(&j, "best_step", st->best_step);
    if (t->stored) {
        snd_json_num(&j, "loss_scale", t->scale);
        snd_json_int(&j, "good_steps", t->good);
        snd_json_int(&j, "skipped_steps", t->skipped);
    }
    const sonde_status s = snd_intact_put(a, folder, &j);
    if (s != SONDE_OK) snd_buf_free(&b);
    SND_TRY(s);
    snd_json_close(&j, '}');
    snd_buf_put(&b, "\n");
    return write_text(a, folder, "state.json", &b);
}

static sonde_status write_tokenizer(snd_arena *a, const snd_trainer *t, const char *folder) {
    const snd_tokenizer *k = snd_set_tokenizer(t->set);
    snd_buf b = {0};
    if (!k) return SONDE_OK;
    SND_TRY(snd_tokenizer_write(k, &b));
    return write_text(a, folder, "tokenizer.json", &b);
}

static sonde_status write_all(snd_arena *a, const snd_trainer *t, const snd_train_state *st, const char *folder) {
    SND_TRY(snd_make_dirs(folder));
    for (int i = 0; i < N_PARTS; i++) {
        snd_tensor *list;
        int64_t n;
        const char *path = join(a, folder, PARTS[i].file);
        if (!path) return SONDE_ENOMEM;
        if (!has_part(t, i)) continue;
        SND_TRY(PARTS[i].list(a, t, &list, &n));
        SND_TRY(snd_st_write(path, list, n, NULL, 0));
        SND_TRY(snd_sync(path));
    }
    snd_buf spec = {0};
    snd_spec_print_yaml(t->spec, &spec);
    SND_TRY(write_text(a, folder, "spec.yaml", &spec));
    SND_TRY(write_tokenizer(a, t, folder));
    SND_TRY(write_state(a, t, st, folder));
    return snd_sync(folder);
}

static sonde_status remove_step(snd_arena *a, const char *checkpoints, int64_t step) {
    const char *path = snd_arena_printf(a, "%s/%lld", checkpoints, (long long)step);
    const char *gone = snd_arena_printf(a, "%s/%lld.old", checkpoints, (long long)step);
    if (!path || !gone) return SONDE_ENOMEM;
    SND_TRY(snd_rename(path, gone));
    return snd_remove_folder(gone);
}

// All but the last two and the best.
static sonde_status remove_old(snd_arena *a, const char *checkpoints, const snd_train_state *st) {
    found f;
    sonde_status s = list_steps(checkpoints, &f);
    const int64_t last = newest_below(&f, INT64_MAX), before = newest_below(&f, last);
    for (int64_t i = 0; i < f.n && s == SONDE_OK; i++) {
        const int64_t k = f.steps[i];
        if (k != last && k != before && k != st->best_step) s = remove_step(a, checkpoints, k);
    }
    snd_free(f.steps);
    return s;
}

// What an interrupted save or removal left: folders with other names than steps.
typedef struct sweep {
    snd_arena *arena;
    const char *folder;
    sonde_status s;
} sweep;

static void sweep_one(void *ctx, const char *name) {
    sweep *w = ctx;
    const char *dot = strrchr(name, '.');
    if (!dot || (strcmp(dot, ".tmp") != 0 && strcmp(dot, ".old") != 0) || w->s != SONDE_OK) return;
    const char *path = join(w->arena, w->folder, name);
    w->s = path ? snd_remove_folder(path) : SONDE_ENOMEM;
}

static sonde_status save(snd_arena *a, const snd_trainer *t, const snd_train_state *st, const char *dir) {
    const char *all = join(a, dir, "checkpoints");
    const char *path = snd_arena_printf(a, "%s/checkpoints/%lld", dir, (long long)t->step);
    const char *tmp = snd_arena_printf(a, "%s/checkpoints/%lld.tmp", dir, (long long)t->step);
    if (!all || !path || !tmp) return SONDE_ENOMEM;
    if (snd_is_folder(path)) return SONDE_OK; // this step has been saved; it can only be the same
    SND_TRY(snd_make_dirs(all));
    sweep w = {.arena = a, .folder = all};
    SND_TRY(snd_list_folder(all, sweep_one, &w));
    SND_TRY(w.s);
    sonde_status s = write_all(a, t, st, tmp);
    if (s == SONDE_OK) s = snd_rename(tmp, path);
    if (s != SONDE_OK) {
        snd_fail_prefix(s, "checkpoint of step %lld: ", (long long)t->step);
        const sonde_status cleared = snd_remove_folder(tmp);
        (void)cleared; // the first error is the one to tell
        return s;
    }
    SND_TRY(snd_sync(all));
    return remove_old(a, all, st);
}

sonde_status snd_checkpoint_save(const snd_trainer *t, const snd_train_state *state, const char *dir) {
    snd_arena *a = snd_arena_create();
    const sonde_status s = a ? save(a, t, state, dir) : SONDE_ENOMEM;
    snd_arena_destroy(a);
    return s;
}

// ---- reading --------------------------------------------------------------------------------------------------------------------

sonde_status snd_checkpoint_newest(snd_arena *a, const char *dir, const char **path) {
    const char *all = join(a, dir, "checkpoints");
    found f;
    if (!all) return SONDE_ENOMEM;
    SND_FAIL_IF(!snd_is_folder(all), SONDE_EIO, "%s holds no checkpoint of a run (no folder %s)", dir, all);
    SND_TRY(list_steps(all, &f));
    const int64_t step = newest_below(&f, INT64_MAX);
    snd_free(f.steps);
    SND_FAIL_IF(step < 0, SONDE_EIO, "%s holds no checkpoint of a run", all);
    *path = snd_arena_printf(a, "%s/%lld", all, (long long)step);
    return *path ? SONDE_OK : SONDE_ENOMEM;
}

static sonde_status read_tensor(const snd_stfile *f, const snd_tensor *want) {
    char a[160], b[160];
    const snd_tensor *t = snd_st_find(f, want->name);
    SND_FAIL_IF(!t, SONDE_EINPUT, "%s: found no tensor '%s', which this run has", snd_st_path(f), want->name);
    SND_FAIL_IF(t->dtype != want->dtype || !snd_shape_same(t->shape, want->shape), SONDE_EINPUT,
                "%s: %s is %s %s; this run has %s %s", snd_st_path(f), want->name, snd_dtype_name(t->dtype),
                snd_shape_text(t->shape, a), snd_dtype_name(want->dtype), snd_shape_text(want->shape, b));
    memcpy((void *)(uintptr_t)want->data, t->data, (size_t)snd_shape_size(t->shape) * snd_dtype_size(t->dtype));
    return SONDE_OK;
}

static sonde_status read_part(snd_arena *a, const snd_trainer *t, const char *folder, int i) {
    snd_tensor *list;
    int64_t n;
    snd_stfile *f;
    const char *path = join(a, folder, PARTS[i].file);
    if (!path) return SONDE_ENOMEM;
    SND_TRY(PARTS[i].list(a, t, &list, &n));
    SND_TRY(snd_st_open(path, &f));
    sonde_status s = SONDE_OK;
    // the average's file holds running statistics too, which the model's has already brought
    for (int64_t k = 0; k < n && s == SONDE_OK; k++) s = read_tensor(f, &list[k]);
    snd_st_close(f);
    return s;
}

static double number_or_nan(const json_t *o, const char *key) {
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

static sonde_status same_text(const json_t *o, const char *path, const char *key, const char *want) {
    const char *got = json_string_value(json_object_get(o, key));
    char shown[72];
    SND_FAIL_IF(!got || strcmp(got, want) != 0, SONDE_EINPUT, "%s: %s is %s; this run has %s", path, key,
                got ? snd_shown(shown, got) : "missing", want);
    return SONDE_OK;
}

// A scale that the settings name stays theirs.
static sonde_status take_scale(const json_t *o, const char *path, snd_trainer *t) {
    const double scale = number_or_nan(o, "loss_scale");
    SND_FAIL_IF(!(scale > 0) || !isfinite(scale), SONDE_EINPUT, "%s: loss_scale is missing", path);
    if (t->dynamic) t->scale = scale;
    t->good = json_integer_value(json_object_get(o, "good_steps"));
    t->skipped = json_integer_value(json_object_get(o, "skipped_steps"));
    return SONDE_OK;
}

static sonde_status take_state(const json_t *o, const char *path, snd_trainer *t, snd_train_state *st) {
    char seed[32], print[32];
    snprintf(seed, sizeof seed, "%" PRIu64, t->o.seed);
    snprintf(print, sizeof print, "%016" PRIx64, snd_set_fingerprint(t->set));
    SND_TRY(same_text(o, path, "schema", SCHEMA));
    SND_TRY(same_text(o, path, "seed", seed));
    SND_TRY(same_text(o, path, "dtype", dtype_of(t)));
    SND_TRY(same_text(o, path, "optimizer", t->opt->name));
    const char *was = json_string_value(json_object_get(o, "data_fingerprint"));
    SND_FAIL_IF(!was || strcmp(was, print) != 0, SONDE_EINPUT,
                "%s: this is not the data that the run was trained on: contents, splits or tokenizer of %s differ",
                path, snd_set_name(t->set));
    const json_t *step = json_object_get(o, "step");
    SND_FAIL_IF(!json_is_integer(step) || json_integer_value(step) < 0, SONDE_EINPUT, "%s: step is missing", path);
    t->step = json_integer_value(step);
    if (t->stored) SND_TRY(take_scale(o, path, t));
    *st = (snd_train_state){.first_loss = number_or_nan(o, "first_loss"),
                            .valid = number_or_nan(o, "valid_loss"),
                            .best_valid = number_or_nan(o, "best_valid_loss"),
                            .accuracy = number_or_nan(o, "accuracy"),
                            .best_step = json_integer_value(json_object_get(o, "best_step")),
                            .targets = json_integer_value(json_object_get(o, "targets"))};
    return SONDE_OK;
}

static sonde_status read_state(snd_arena *a, const char *folder, snd_trainer *t, snd_train_state *st) {
    const char *path = join(a, folder, "state.json");
    char *text;
    size_t n;
    json_t *o;
    if (!path) return SONDE_ENOMEM;
    SND_TRY(snd_state_load(path, &text, &n, &o));
    snd_free(text);
    const sonde_status s = take_state(o, path, t, st);
    json_decref(o);
    return s;
}

// The data brings the run's tokenizer, made anew; the file is for who uses the model, and must not say another.
static sonde_status check_tokenizer(snd_arena *a, const snd_trainer *t, const char *folder) {
    const char *path = join(a, folder, "tokenizer.json");
    const snd_tokenizer *own = snd_set_tokenizer(t->set);
    snd_tokenizer *saved;
    snd_buf want = {0}, there = {0};
    if (!path) return SONDE_ENOMEM;
    if (!own) return SONDE_OK;
    SND_TRY(snd_tokenizer_load(path, &saved));
    sonde_status s = snd_tokenizer_write(own, &want);
    if (s == SONDE_OK) s = snd_tokenizer_write(saved, &there);
    if (s == SONDE_OK && strcmp(want.s, there.s) != 0)
        s = snd_fail(SONDE_EINPUT, __FILE__, __LINE__, "%s: %lld tokens, which are not those of this run's data (%lld)",
                     path, (long long)snd_tokenizer_vocab(saved), (long long)snd_tokenizer_vocab(own));
    snd_buf_free(&want);
    snd_buf_free(&there);
    snd_tokenizer_destroy(saved);
    return s;
}

sonde_status snd_checkpoint_load(snd_trainer *t, snd_train_state *state, const char *path) {
    snd_arena *a = snd_arena_create();
    sonde_status s = a ? snd_checkpoint_check(a, path, NULL, -1) : SONDE_ENOMEM;
    if (s == SONDE_OK) s = read_state(a, path, t, state);
    if (s == SONDE_OK) s = check_tokenizer(a, t, path);
    for (int i = 0; i < N_PARTS && s == SONDE_OK; i++)
        if (has_part(t, i)) s = read_part(a, t, path, i);
    snd_arena_destroy(a);
    return s;
}
