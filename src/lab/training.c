// What a record holds of a trained model before and after train/ did its work: the run's head, and how it ended.
#include "lab/lab.h"

#include <math.h>
#include <string.h>

const char *snd_lab_label(const snd_spec *s) {
    enum { SHORT = 24 };
    if (s->wiring_key) return s->wiring_key;
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
}
