// What a record holds of a trained model before and after train/ did its work: the run's head, and how it ended.
#include "lab/lab.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

// ---- the spec -------------------------------------------------------------------------------------------------------------------

typedef struct overrides {
    snd_arena *arena;
    const char **text;
    int n;
    bool failed;
} overrides;

static void put_override(void *to, const char *key, const char *text) {
    overrides *o = to;
    o->text[o->n] = snd_arena_printf(o->arena, "%s=%s", key, text);
    o->failed |= !o->text[o->n++];
}

static void put_number(overrides *o, const char *key, int64_t v) {
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, v);
    put_override(o, key, text);
}

static sonde_status complete_vocab(const snd_spec *s, const snd_set *set, overrides *o) {
    const int64_t said = snd_set_vocab(set), vocab = said ? said : snd_set_token_range(set);
    SND_FAIL_IF(vocab == 0, SONDE_EUSAGE, "the data does not say how many tokens there are; give vocab=NUMBER");
    SND_FAIL_IF(s->family_given && s->family != SND_FAM_TRANSFORMER, SONDE_EUSAGE,
                "family is %s, which has no tokens; a text needs family=transformer", snd_family_name(s->family));
    if (s->family != SND_FAM_TRANSFORMER) put_override(o, "family", "transformer");
    put_number(o, "vocab", vocab);
    return SONDE_OK;
}

static sonde_status complete_text(const snd_spec *s, const snd_set *set, int64_t tokens, overrides *o) {
    const bool open = s->vocab == 0, learned = !s->position_given || s->position == SND_POS_LEARNED;
    if (open) SND_TRY(complete_vocab(s, set, o));
    if (!s->position_given) put_override(o, "position", "learned");
    if (s->context == 0 && (open || learned)) put_number(o, "context", tokens);
    // a tied head of unit variance begins tens of nats above ln(vocab)
    if (open && !s->init_text && (s->tie || s->family != SND_FAM_TRANSFORMER))
        put_override(o, "init", "embed,pos = normal(0.02)");
    return SONDE_OK;
}

static void complete_rows(const snd_spec *s, const snd_set *set, overrides *o) {
    int64_t shape[3];
    snd_set_row_shape(set, shape);
    const int64_t features = s->family == SND_FAM_CONVNET ? shape[0] : shape[0] * shape[1] * shape[2];
    if (s->inputs == 0) put_number(o, "inputs", features);
    put_number(o, "outputs", snd_set_classes(set));
}

sonde_status snd_lab_complete(snd_arena *a, const snd_spec *s, const snd_set *set, snd_task task, int64_t tokens,
                              const char *more[SND_LAB_COMPLETE], int *n) {
    overrides o = {.arena = a, .text = more};
    if (task != SND_TASK_CLASS) SND_TRY(complete_text(s, set, tokens, &o));
    if (task == SND_TASK_CLASS && s->outputs == 0) complete_rows(s, set, &o);
    *n = o.n;
    return o.failed ? SONDE_ENOMEM : SONDE_OK;
}

sonde_status snd_lab_train_parts(snd_arena *a, snd_spec *spec, const snd_train_settings *s, const snd_trainer_opts *o,
                                 const char *const *data, int n_data) {
    overrides train = {.arena = a};
    char seed[32];
    SND_NEW(a, train.text, snd_train_key_count() + 2);
    snd_train_each(s, put_override, &train);
    snprintf(seed, sizeof seed, "%" PRIu64, o->seed);
    put_override(&train, "seed", seed);
    put_override(&train, "dtype", snd_dtype_name(o->dtype));
    if (train.failed) return SONDE_ENOMEM;
    spec->part[0] = (struct snd_spec_part){"train", train.text, train.n};
    spec->part[1] = (struct snd_spec_part){"data", data, n_data};
    return SONDE_OK;
}

// ---- the record -----------------------------------------------------------------------------------------------------------------

const char *snd_lab_label(const snd_spec *s) {
    enum { SHORT = 24 };
    if (s->wiring_key) return s->wiring_key;
    if (s->title && !s->from_command_line) return s->title; // of a preset or a file whose wiring is its own
    return strlen(s->wiring_text) <= SHORT && !strchr(s->wiring_text, '\n') ? s->wiring_text : "your formula";
}

static const char *print(snd_record *r, void (*to)(const void *, snd_buf *), const void *what) {
    snd_buf b = {0};
    to(what, &b);
    const char *text = b.failed || !b.s ? "" : snd_record_text(r, "%s", b.s);
    snd_buf_free(&b);
    return text;
}
static void print_formula(const void *spec, snd_buf *b) {
    snd_formula_print(((const snd_spec *)spec)->formula, b);
}
static void print_spec(const void *spec, snd_buf *b) {
    snd_spec_print_yaml(spec, b);
}
static void print_set(const void *set, snd_buf *b) {
    snd_set_describe(set, b);
}

snd_run *snd_lab_train_open(snd_record *r, const snd_spec *spec, const snd_set *set, const snd_trainer_opts *o) {
    snd_run *u = snd_record_run(r, snd_lab_label(spec), print(r, print_formula, spec));
    u->input = print(r, print_set, set);
    u->dtype = snd_dtype_name(o->dtype);
    u->seed = o->seed;
    u->seeds = 1;
    u->depth = snd_lab_depth(spec);
    u->band_level = 0.95;
    u->spec_yaml = print(r, print_spec, spec);
    snd_spec_each(spec, snd_run_put, u);
    return u;
}

static void put(snd_run *u, const char *name, double v) {
    if (!isnan(v)) snd_value_metric(u->summary, name, false)->mean = v;
}

void snd_lab_train_close(snd_run *u, const snd_train_result *r) {
    put(u, "steps", (double)r->step);
    put(u, "first_loss", r->state.first_loss);
    put(u, "loss", r->loss);
    put(u, "valid_loss", r->state.valid);
    put(u, "accuracy", r->state.accuracy);
    put(u, "best_valid_loss", r->state.best_valid);
    put(u, "best_step", isnan(r->state.best_valid) ? NAN : (double)r->state.best_step);
    put(u, "tokens_per_s", r->tokens_per_s);
    put(u, "seconds", r->seconds);
    put(u, "step_seconds", r->step_sec);
    if (r->scale > 0) {
        put(u, "loss_scale", r->scale);
        put(u, "skipped_steps", (double)r->skipped);
    }
}
