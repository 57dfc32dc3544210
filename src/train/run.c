// A run: steps, validations, the lines of metrics.jsonl. What is shown and where is the caller's business.
#include "train/inner.h"

#include <math.h>
#include <string.h>

typedef struct run {
    snd_trainer *t;
    const snd_train_settings *s;
    const snd_train_opts *o;
    snd_train_result *out;
    snd_log *log;
    snd_watcher *watcher;
    snd_history *history;
    snd_train_state state;
    double start, since_loss, since_sec;                // sums since the last point
    int64_t since_steps, since_targets, targets, steps; // the last two: in all that this process did
    bool looked;
} run;

void snd_train_validated(snd_train_state *st, int64_t step, double loss, double accuracy) {
    st->valid = loss;
    st->accuracy = accuracy;
    if (isnan(loss) || st->best_valid <= loss) return;
    st->best_valid = loss;
    st->best_step = step;
}

// ---- a point --------------------------------------------------------------------------------------------------------------------

static sonde_status validate(run *r, double *valid) {
    *valid = NAN;
    if (snd_batches_count(r->t->batches, SND_SPLIT_VALID) == 0) return SONDE_OK;
    double accuracy;
    SND_TRY(snd_trainer_eval(r->t, SND_SPLIT_VALID, r->s->eval_batches, valid, &accuracy));
    snd_train_validated(&r->state, r->t->step, *valid, accuracy);
    snd_watcher_valid(r->watcher, r->t->step, *valid);
    snd_history_valid(r->history, r->t->step, *valid);
    return SONDE_OK;
}

// What every step has to show.
static snd_train_point point_at(const run *r, const snd_step *last) {
    const double sec = snd_now() - r->start;
    return (snd_train_point){.step = last->step,
                             .steps = r->s->steps,
                             .epochs = snd_trainer_epochs(r->t),
                             .loss = last->loss,
                             .valid = NAN,
                             .accuracy = r->state.accuracy,
                             .lr = last->lr,
                             .grad_norm = last->grad_norm,
                             .tokens_per_s = (double)r->since_targets / r->since_sec,
                             .seconds = sec,
                             .seconds_left = sec / (double)r->steps * (double)(r->s->steps - last->step),
                             .layers = r->t->layers,
                             .n_layers = r->looked ? r->t->n_layers : 0,
                             .scale = r->t->stored ? r->t->scale : 0,
                             .skipped = r->t->skipped};
}

static sonde_status point(run *r, const snd_step *last) {
    const bool ends = last->step == r->s->steps, validated = snd_batches_count(r->t->batches, SND_SPLIT_VALID) > 0;
    double valid;
    SND_TRY(validate(r, &valid));
    snd_train_point p = point_at(r, last);
    p.loss = r->since_loss / (double)r->since_steps;
    p.valid = valid;
    if (isnan(valid)) p.accuracy = NAN;
    r->since_loss = r->since_sec = 0;
    r->since_steps = r->since_targets = 0;
    if (r->o->point) r->o->point(r->o->ctx, &p);
    SND_TRY(snd_log_valid(r->log, last->step, valid, p.accuracy));
    return ends ? snd_watcher_end(r->watcher, r->t, validated ? valid : last->loss, validated) : SONDE_OK;
}

// ---- the loop -------------------------------------------------------------------------------------------------------------------

static bool due(int64_t every, int64_t step, int64_t steps) {
    return step == steps || (every > 0 && step % every == 0);
}

static void count(run *r, const snd_step *s) {
    if (isnan(r->state.first_loss) && isfinite(s->loss)) r->state.first_loss = s->loss;
    r->out->loss = s->loss;
    if (!s->skipped) r->since_loss += s->loss;
    r->since_sec += s->seconds;
    r->since_targets += s->targets;
    r->since_steps += !s->skipped;
    r->steps++;
    r->looked |= s->layers != NULL;
    r->targets += s->targets;
    r->state.targets += s->targets;
}

static sonde_status save(run *r) {
    return r->o->dir ? snd_checkpoint_save(r->t, &r->state, r->o->dir) : SONDE_OK;
}

// A step that was not made, since its numbers are not finite, is told by the number that it would have had.
static snd_step as_told(snd_step s) {
    s.step += !s.skipped && !snd_step_is_finite(&s);
    return s;
}

static sonde_status one_step(run *r) {
    snd_step s;
    SND_TRY(snd_trainer_step(r->t, &s));
    count(r, &s);
    const snd_step told = as_told(s);
    SND_TRY(snd_log_step(r->log, &told));
    snd_history_step(r->history, &told); // first: the step that the watcher ends the run for is part of it
    SND_TRY(snd_watcher_step(r->watcher, r->t, &told));
    const snd_train_point now = point_at(r, &s);
    if (r->o->progress) r->o->progress(r->o->ctx, &now);
    if (due(r->s->eval_every, s.step, r->s->steps)) SND_TRY(point(r, &s));
    return due(r->s->save_every, s.step, r->s->steps) ? save(r) : SONDE_OK;
}

static sonde_status loop(run *r) {
    while (r->t->step < r->s->steps) {
        if (r->o->t.stop && r->o->t.stop->flag) {
            SND_TRY(save(r));
            SND_FAIL(SONDE_EINTERRUPTED, "interrupted after step %lld", (long long)r->t->step);
        }
        SND_TRY(one_step(r));
    }
    return SONDE_OK;
}

static sonde_status resume(run *r) {
    const char *path;
    if (!r->o->resume) return SONDE_OK;
    SND_TRY(snd_checkpoint_newest(r->t->arena, r->o->dir, &path));
    return snd_checkpoint_load(r->t, &r->state, path);
}

static sonde_status start(run *r, const snd_spec *spec, const snd_set *set) {
    SND_TRY(snd_trainer_create(spec, r->s, set, &r->o->t, &r->t));
    SND_TRY(resume(r));
    SND_TRY(snd_watcher_make(r->t, r->state.first_loss, &r->watcher));
    SND_TRY(snd_history_make(r->t, &r->history));
    return r->o->dir ? snd_log_open(r->o->dir, r->t->step, r->history, r->watcher, &r->log) : SONDE_OK;
}

sonde_status snd_train_run(const snd_spec *spec, const snd_train_settings *s, const snd_set *set,
                           const snd_train_opts *o, snd_train_result *out) {
    run r = {.s = s, .o = o, .out = out, .start = snd_now()};
    r.state = (snd_train_state){.first_loss = NAN, .valid = NAN, .best_valid = NAN, .accuracy = NAN};
    *out = (snd_train_result){.loss = NAN, .step_sec = NAN};
    sonde_status status = start(&r, spec, set);
    if (status == SONDE_OK) status = loop(&r);
    if (r.history) out->step_sec = snd_history_step_sec(r.history);
    if (r.history && o->run) {
        snd_watcher_tell(r.watcher, o->run->rec, o->run->label);
        const sonde_status told = snd_history_tell(r.history, o->run);
        if (status == SONDE_OK) status = told;
    }
    out->state = r.state;
    out->step = r.t ? r.t->step : 0;
    out->scale = r.t && r.t->stored ? r.t->scale : 0;
    out->skipped = r.t ? r.t->skipped : 0;
    out->seconds = snd_now() - r.start;
    out->tokens_per_s = (double)r.targets / out->seconds;
    snd_log_close(r.log);
    snd_trainer_destroy(r.t);
    return status;
}
