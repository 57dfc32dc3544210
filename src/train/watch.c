// The rules over a training run (watch.def): each looks at the steps as they come and keeps the first place where it had
// something to say. At the end they become verdicts of the run's record.
#include "train/inner.h"

#include <math.h>
#include <string.h>

typedef enum rule {
#define SND_WATCH(id, name, level, threshold, unit, source) id,
#include "train/watch.def"
#undef SND_WATCH
    RULES
} rule;

static const struct row {
    const char *name;
    snd_level level;
    double threshold;
} ROWS[RULES] = {
#define SND_WATCH(id, name, level, threshold, unit, source) {name, level, threshold},
#include "train/watch.def"
#undef SND_WATCH
};

enum { RECENT = 20, IN_A_ROW = 3 };
enum { SETTLED = 5 }; // looks before a mean of earlier ones means something
enum { BATCHES = 5 }; // of a look each: what one batch's variance says of batch norm is chance

// A geometric mean, and how many went into it.
typedef struct usual {
    double sum;
    int64_t n;
} usual;

typedef struct layer_watch {
    usual update;
    int dead; // looks in a row
    int64_t dead_since;
    double gap[BATCHES]; // ln(batch's variance over the running one), of the last looks that had one
    int64_t gaps;
} layer_watch;

struct snd_watcher {
    snd_arena *arena;
    const snd_trainer *t;
    double classes, unigram; // ln(classes); entropy of the tokens' frequencies, NaN: not known
    double first, recent[RECENT];
    int64_t n;
    double lost[RECENT]; // shares of gradients that f16 made 0
    usual norm;
    int near_unigram; // validations in a row
    layer_watch *layers;
    struct finding {
        bool found, moved; // moved: an update had been made by then
        snd_level level;
        const char *where, *why;
        double value, threshold;
    } found[RULES];
};

// What to try. shorter: before that, shorter updates, once there was one; unmoved: in its place, before the first.
static const struct remedy {
    bool shorter;
    const char *text, *unmoved;
} REMEDY[RULES] = {
    [FIRST_LOSS] = {.text = "make the head or the embedding smaller (init, logit_scale, embed_scale), or expect some "
                            "hundred steps of nothing but shrinking"},
    [NONFINITE] = {true, "a wiring that keeps the stream's size (pre, deepnorm) where a stream grew over the layers",
                   "look at what the formula does there (a division, a root, a logarithm, exp), at the init and at "
                   "factors of the stream; no update had been made, so lr, warm-up and clip have no part in it"},
    [SCALE_FIXED] = {.text = "a smaller --loss-scale, or --loss-scale dynamic, which finds it and skips such steps"},
    [SCALE_COLLAPSE] = {true,
                        "train in bf16 or f32; or keep what overflowed small: a norm before each branch "
                        "(wiring=pre), smaller weights, qk_norm for attention's scores",
                        NULL},
    [F16_OVERFLOW] = {true,
                      "train in bf16 or f32; or keep that value small: a norm before each branch (wiring=pre), "
                      "smaller weights, qk_norm for attention's scores",
                      NULL},
    [F16_GRADIENT] = {.text = "nothing to do when it stays at the first few steps; else a lower lr"},
    [F16_UNDERFLOW] = {.text = "a larger --loss-scale, or dynamic; train in bf16 or f32"},
    [BATCH_NORM] = {.text = "a difference between training and evaluation is expected, the larger the fewer the steps "
                            "and the smaller the batch; train on, at a falling rate, or take larger batches, before "
                            "evaluation is trusted"},
    [DIVERGED] = {true, "", NULL},
    [PLATEAU] = {.text =
                     "another wiring or depth: attention may see tokens that have become alike (sonde measure shows "
                     "tokcos); a longer warm-up or another lr"},
    [DEAD_BRANCH] = {.text = "look at its init, at gates that start at zero, at a norm that shrinks it"},
    [UPDATE_SPIKE] = {true, "a smaller beta2", NULL},
    [GRADIENT_SPIKE] = {true, "look at the batch of that step", NULL},
};

// ---- findings -------------------------------------------------------------------------------------------------------------------

static void find(snd_watcher *w, rule r, const char *where, double value, double threshold, const char *why) {
    struct finding *f = &w->found[r];
    if (f->found) return;
    *f = (struct finding){.found = true,
                          .moved = w->t->step > w->t->skipped,
                          .level = ROWS[r].level,
                          .where = snd_arena_str(w->arena, where),
                          .why = why,
                          .value = value,
                          .threshold = threshold};
}

static char *num(char out[40], double v) {
    return snd_pretty(out, v, 4);
}

// How many times the usual a number is; NaN: too few were seen. Takes it into account afterwards.
static double against(usual *u, double v) {
    if (!(v > 0) || !isfinite(v)) return NAN;
    const double times = u->n >= SETTLED ? v / exp(u->sum / (double)u->n) : NAN;
    u->sum += log(v);
    u->n++;
    return times;
}

// Of the first step that has one: it was found before any update, whether its own was skipped or not.
static void look_at_first(snd_watcher *w, const snd_step *s) {
    char a[40], b[40];
    const double loss = s->loss;
    if (!isfinite(loss)) return;
    w->first = loss;
    if (!(fabs(loss - w->classes) > ROWS[FIRST_LOSS].threshold)) return;
    find(w, FIRST_LOSS, snd_arena_printf(w->arena, "step %lld", (long long)s->step), loss, w->classes,
         snd_arena_printf(w->arena, "the first loss is %s; classes that look alike give ln(classes) = %s", num(a, loss),
                          num(b, w->classes)));
}

// A run of fewer steps is judged at its end, by what there is.
static bool has_diverged(snd_watcher *w, int64_t step, bool last) {
    double sum = 0;
    const int n = w->n < RECENT ? (int)w->n : RECENT;
    if (n < RECENT && !last) return false;
    for (int i = 0; i < n; i++) sum += w->recent[i];
    const double mean = sum / n, limit = fmax(w->first, w->classes) + ROWS[DIVERGED].threshold;
    if (!(mean > limit)) return false;
    char a[40], b[40];
    find(w, DIVERGED, snd_arena_printf(w->arena, "step %lld", (long long)step), mean, limit,
         snd_arena_printf(w->arena, "the mean loss of the last %d steps is %s; it began at %s", n, num(a, mean),
                          num(b, w->first)));
    return true;
}

static void look_at_norm(snd_watcher *w, const snd_step *s) {
    const double times = against(&w->norm, s->grad_norm);
    char a[40], b[40];
    if (!(times > ROWS[GRADIENT_SPIKE].threshold) || w->found[GRADIENT_SPIKE].found) return;
    find(w, GRADIENT_SPIKE, snd_arena_printf(w->arena, "step %lld", (long long)s->step), times,
         ROWS[GRADIENT_SPIKE].threshold,
         snd_arena_printf(w->arena, "the gradient's norm was %s, %s times its usual size", num(a, s->grad_norm),
                          num(b, times)));
}

static void look_at_layer(snd_watcher *w, const snd_step *s, int i) {
    const snd_layer_state *l = &s->layers[i];
    layer_watch *k = &w->layers[i];
    const double times = against(&k->update, l->update);
    const char *name = *l->name ? l->name : "embedding, head and final norm";
    char a[40], b[40];
    if (times > ROWS[UPDATE_SPIKE].threshold && !w->found[UPDATE_SPIKE].found)
        find(w, UPDATE_SPIKE, snd_arena_printf(w->arena, "%s, step %lld", name, (long long)s->step), times,
             ROWS[UPDATE_SPIKE].threshold,
             snd_arena_printf(w->arena, "an update of %s of the weights' size, %s times the usual", num(a, l->update),
                              num(b, times)));
    k->dead = l->write < ROWS[DEAD_BRANCH].threshold ? k->dead + 1 : 0;
    if (k->dead == 1) k->dead_since = s->step;
    if (k->dead == IN_A_ROW && !w->found[DEAD_BRANCH].found)
        find(w, DEAD_BRANCH, snd_arena_printf(w->arena, "%s, step %lld", name, (long long)k->dead_since), l->write,
             ROWS[DEAD_BRANCH].threshold,
             snd_arena_printf(w->arena, "a sublayer adds %s of the stream's size: the layer does nothing",
                              num(a, l->write)));
}

// The mean gap of a layer's last looks; NaN: there was none.
static double mean_gap(const layer_watch *k) {
    const int n = k->gaps < BATCHES ? (int)k->gaps : BATCHES;
    double sum = 0;
    for (int i = 0; i < n; i++) sum += k->gap[i];
    return n ? sum / n : NAN;
}

// U41: evaluation divides by the running variance, which is behind. The last looks count, so a finding may go again.
static void look_at_batch_norms(snd_watcher *w, const snd_step *s) {
    const int64_t updates = s->step * w->t->s.accumulate;
    const double start = pow(1 - SND_BATCH_SHARE, (double)updates);
    int worst = -1;
    char a[40], b[40], c[40];
    for (int i = 0; i < s->n_layers; i++) {
        layer_watch *k = &w->layers[i];
        const double gap = log(s->layers[i].batch_running);
        if (isfinite(gap)) k->gap[k->gaps++ % BATCHES] = gap;
        if (k->gaps && (worst < 0 || fabs(mean_gap(k)) > fabs(mean_gap(&w->layers[worst])))) worst = i;
    }
    if (worst < 0) return;
    const double ratio = exp(mean_gap(&w->layers[worst])), limit = ROWS[BATCH_NORM].threshold;
    const int64_t n = w->layers[worst].gaps < BATCHES ? w->layers[worst].gaps : BATCHES;
    const char *name = *s->layers[worst].name ? s->layers[worst].name : "outside layers";
    w->found[BATCH_NORM].found = false;
    if (fabs(log(ratio)) <= log(limit) && start <= 0.1) return;
    find(w, BATCH_NORM, snd_arena_printf(w->arena, "%s, step %lld", name, (long long)s->step), ratio, limit,
         snd_arena_printf(
             w->arena,
             "in the last %lld looks the batch's variance is %s times the running one (geometric mean), after %lld "
             "updates, by which %s %% of the running averages is still their start: what training normed to size 1, "
             "evaluation norms to %s",
             (long long)n, num(a, ratio), (long long)updates, num(b, 100 * start), num(c, sqrt(ratio))));
}

// ---- the run's events -----------------------------------------------------------------------------------------------------------

static sonde_status unigram_entropy(snd_watcher *w) {
    enum { MOST = 1 << 20 };
    const snd_set *set = w->t->set;
    const int64_t all = snd_set_token_count(set, SND_SPLIT_TRAIN), n = all < MOST ? all : MOST, V = w->t->spec->vocab;
    w->unigram = NAN;
    if (n < 1 || V < 1 || snd_set_task(set) == SND_TASK_SEQ2SEQ) return SONDE_OK;
    int64_t *ids = snd_malloc((size_t)n * sizeof *ids), *count = snd_calloc((size_t)V, sizeof *count);
    if (ids && count) {
        w->unigram = 0;
        snd_set_tokens(set, SND_SPLIT_TRAIN, 0, n, ids);
        for (int64_t i = 0; i < n; i++) count[ids[i] >= 0 && ids[i] < V ? ids[i] : 0]++;
        for (int64_t v = 0; v < V; v++) {
            const double p = (double)count[v] / (double)n;
            if (p > 0) w->unigram -= p * log(p);
        }
    }
    const bool lost = !ids || !count;
    snd_free(ids);
    snd_free(count);
    return lost ? SONDE_ENOMEM : SONDE_OK;
}

sonde_status snd_watcher_make(snd_trainer *t, double first_loss, snd_watcher **out) {
    const snd_model *m = t->nets[0].m;
    const snd_shape s = m->logits ? snd_g_value(m->g, m->logits)->shape : SND_SHAPE(1);
    snd_watcher *w;
    SND_NEW(t->arena, w, 1);
    SND_NEW(t->arena, w->layers, t->n_layers + 1);
    w->arena = t->arena;
    w->t = t;
    w->classes = log((double)s.dim[s.nd - 1]);
    w->first = first_loss;
    SND_TRY(unigram_entropy(w));
    *out = w;
    return SONDE_OK;
}

// Where the step's numbers stopped being finite.
static sonde_status say_nonfinite(snd_watcher *w, snd_trainer *t, rule r, const char *why_then, const char **out) {
    const char *where, *text;
    const long long step = (long long)t->failed_step + 1;
    SND_TRY(snd_trainer_find_nonfinite(t, w->arena, &where, &text));
    const char *place = snd_arena_printf(w->arena, "%s, step %lld", where, step);
    const char *why = snd_arena_printf(w->arena, "in step %lld %s%s", step, text, why_then);
    if (!place || !why) return SONDE_ENOMEM;
    const double limit = r == NONFINITE ? NAN : ROWS[r].threshold;
    find(w, r, place, r == SCALE_COLLAPSE || r == SCALE_FIXED ? t->scale : NAN, limit, why);
    *out = why;
    return SONDE_OK;
}

// A loss that is finite says that the forward pass had nothing: in f16 it is then the scale that was too much. One that is not
// is no matter of the scale, and where that stays as it was said there is no step to skip to.
static sonde_status name_nonfinite(snd_watcher *w, snd_trainer *t, const snd_step *s) {
    char then[80] = "", scale[40];
    const char *why;
    const bool fixed = s->scale > 0 && !t->dynamic;
    const rule r = t->dynamic ? SCALE_COLLAPSE : !fixed ? NONFINITE : isfinite(s->loss) ? SCALE_FIXED : F16_OVERFLOW;
    if (r == SCALE_COLLAPSE) snprintf(then, sizeof then, ", and the loss scale has fallen to 1 already");
    if (r == SCALE_FIXED) snprintf(then, sizeof then, ", with a loss scale that stays at %s", num(scale, t->scale));
    if (r == F16_OVERFLOW)
        snprintf(then, sizeof then, ", in f16, whose largest number is 65504, whatever the loss scale");
    SND_TRY(say_nonfinite(w, t, r, then, &why));
    w->found[r].level = SND_LEVEL_ERROR; // it ends the run
    SND_FAIL(SONDE_EDIVERGED, "%s", why);
}

// The first of either kind is looked for; a loss that is not finite says that the forward pass had it.
static sonde_status look_at_skipped(snd_watcher *w, snd_trainer *t, const snd_step *s) {
    const char *why;
    const rule r = isfinite(s->loss) ? F16_GRADIENT : F16_OVERFLOW;
    if (w->found[r].found) return SONDE_OK;
    return say_nonfinite(
        w, t, r, ", in f16, whose largest number is 65504; the step is skipped and the loss scale halved", &why);
}

static void look_at_lost(snd_watcher *w, const snd_step *s) {
    double mean = 0;
    char a[40], b[40];
    w->lost[(w->n - 1) % RECENT] = s->lost; // as w->recent, which has this step already
    for (int i = 0; i < RECENT; i++) mean += w->lost[i] / RECENT;
    if (w->n < RECENT || !(mean > ROWS[F16_UNDERFLOW].threshold) || w->found[F16_UNDERFLOW].found) return;
    find(w, F16_UNDERFLOW, snd_arena_printf(w->arena, "step %lld", (long long)s->step), mean,
         ROWS[F16_UNDERFLOW].threshold,
         snd_arena_printf(w->arena,
                          "%s %% of the backward pass's numbers are too small for f16 with a loss scale of %s",
                          num(a, 100 * mean), num(b, s->scale)));
}

static void look_at_course(snd_watcher *w, const snd_step *s) {
    w->recent[w->n++ % RECENT] = s->loss;
    look_at_norm(w, s);
    look_at_lost(w, s);
    for (int i = 0; i < s->n_layers && s->step > w->t->s.warmup; i++) look_at_layer(w, s, i);
    look_at_batch_norms(w, s);
}

void snd_watcher_recall(snd_watcher *w, const snd_step *s) {
    if (snd_step_is_finite(s)) look_at_course(w, s);
}

sonde_status snd_watcher_step(snd_watcher *w, snd_trainer *t, const snd_step *s) {
    if (isnan(w->first)) look_at_first(w, s);
    if (s->skipped) return look_at_skipped(w, t, s);
    if (!snd_step_is_finite(s)) return name_nonfinite(w, t, s);
    look_at_course(w, s);
    SND_FAIL_IF(has_diverged(w, s->step, s->step == t->s.steps), SONDE_EDIVERGED, "step %lld: %s", (long long)s->step,
                w->found[DIVERGED].why);
    return SONDE_OK;
}

// A loss that has left the plateau takes the finding back.
void snd_watcher_valid(snd_watcher *w, int64_t step, double loss) {
    char a[40], b[40];
    const bool near = fabs(loss - w->unigram) <= ROWS[PLATEAU].threshold * w->unigram;
    w->near_unigram = near ? w->near_unigram + 1 : 0;
    if (!near) w->found[PLATEAU].found = false;
    if (w->near_unigram < IN_A_ROW || w->found[PLATEAU].found) return;
    find(w, PLATEAU, snd_arena_printf(w->arena, "step %lld", (long long)step), loss, w->unigram,
         snd_arena_printf(
             w->arena,
             "the loss stands at %s, the entropy of the tokens' frequencies is %s: nothing is read from the "
             "tokens before",
             num(a, loss), num(b, w->unigram)));
}

// In f16 the first overflow is the place, where a step had one; and in the middle of a run it may pass, so only the end is asked.
sonde_status snd_watcher_end(snd_watcher *w, const snd_trainer *t, double loss, bool validated) {
    if (isfinite(loss)) return SONDE_OK;
    const rule r = t->stored ? F16_OVERFLOW : NONFINITE;
    struct finding *f = &w->found[r];
    const char *weight = f->found ? NULL : snd_trainer_bad_weight(t), *kind = validated ? "validation loss" : "loss";
    const char *why = snd_arena_printf(w->arena, "the %s after step %lld, the run's last, is not finite%s%s", kind,
                                       (long long)t->step, weight ? ", nor is the weight " : "", weight ? weight : "");
    const char *all = f->found && why ? snd_arena_printf(w->arena, "%s; %s", f->why, why) : why;
    if (!all) return SONDE_ENOMEM;
    find(w, r, snd_arena_printf(w->arena, "%s, step %lld", validated ? "validation" : "loss", (long long)t->step), NAN,
         r == NONFINITE ? NAN : ROWS[r].threshold, all);
    f->why = all;
    f->level = SND_LEVEL_ERROR; // it ends the run
    SND_FAIL(SONDE_EDIVERGED, "%s", why);
}

// By what is set, and by whether anything was moved yet.
static const char *remedy_of(const snd_watcher *w, rule i, snd_record *r) {
    const struct remedy *m = &REMEDY[i];
    const double clip = w->t->s.clip;
    if (!w->found[i].moved && m->unmoved) return m->unmoved;
    if (!w->found[i].moved || !m->shorter) return m->text;
    return snd_record_text(r, "a lower lr, a longer warm-up%s%s%s", clip > 0 && clip <= 1 ? "" : ", clip=1",
                           *m->text ? "; " : "", m->text);
}

void snd_watcher_tell(const snd_watcher *w, snd_record *r, const char *label) {
    int told = 0;
    for (int i = 0; i < RULES; i++) {
        const struct finding *f = &w->found[i];
        snd_verdict *v =
            f->found && f->where && f->why ? snd_record_verdict(r, ROWS[i].name, f->level, f->where) : NULL;
        if (!v) continue;
        v->run = snd_record_text(r, "%s", label);
        v->value = f->value;
        v->threshold = f->threshold;
        v->why = snd_record_text(r, "%s", f->why);
        v->remedy = remedy_of(w, i, r);
        told++;
    }
    if (told) return;
    snd_verdict *v = snd_record_verdict(r, "ok", SND_LEVEL_OK, NULL);
    if (!v) return;
    v->run = snd_record_text(r, "%s", label);
    v->why = "the loss, the gradient, updates and branches of all layers were looked at; nothing stood out";
}
