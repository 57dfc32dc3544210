// Rules about the start: branches that do not act yet, parameters that begin off their recipe, layers that are copies.
#include "rules/inner.h"

#include <math.h>
#include <string.h>

// ---- branches that are zero -------------------------------------------------------------------------------------------------------

typedef enum idle { IDLE_GATED, IDLE_UNUSED, IDLE_ZERO_MAP } idle;

static bool is_idle(const snd_call_row *c, idle why) {
    switch (why) {
    case IDLE_GATED: return c->no_grad && c->gate;   // a learned factor that starts at zero
    case IDLE_UNUSED: return c->no_grad && !c->gate; // no path to the output that could ever open
    case IDLE_ZERO_MAP: return c->out_zero && !c->no_grad;
    }
    return false;
}

static const snd_call_row *first_call(const snd_description *d, idle why, int *n) {
    const snd_call_row *first = NULL;
    *n = 0;
    for (int i = 0; i < d->n_calls; i++) {
        if (!is_idle(&d->calls[i], why)) continue;
        if (!first) first = &d->calls[i];
        ++*n;
    }
    return first;
}

static void say_gated(snd_judge *j, const snd_call_row *c, int n) {
    char why[500], where[200];
    snprintf(where, sizeof where, "%s.out", c->name);
    snprintf(why, sizeof why,
             "not started, not vanished: %d of %d branches are multiplied by an exact zero (%s), so in the first step "
             "the gradient of everything inside them is exactly zero",
             n, j->d->n_calls, c->gate);
    const size_t len = strlen(why);
    snprintf(why + len, sizeof why - len, "%s",
             j->d->head_zero ? "; the head is zero too, so from a loss only the head learns in the first step"
                             : " and only the gates learn");
    snd_judge_say(j, SND_LEVEL_INFO, where, NAN, false, why,
                  j->d->head_zero ? "start the head at its usual size, or expect one step more"
                                  : "nothing, if this is meant (ReZero, SkipInit, adaLN-Zero); else start the gate at "
                                    "a small number such as 0.1");
}

static void say_zero_map(snd_judge *j, const snd_call_row *c, int n) {
    char why[500], where[200];
    snprintf(where, sizeof where, "%s.out", c->name);
    snprintf(why, sizeof why,
             "not started, not vanished: %d of %d branches return exact zeros because their last map is zero; in the "
             "first step only that map gets a gradient%s",
             n, j->d->n_calls,
             j->d->head_zero ? ", and from a loss not even it, since the head is zero too and only the head learns"
                             : "");
    snd_judge_say(j, SND_LEVEL_INFO, where, NAN, false, why,
                  "nothing, if this is meant (Fixup); else give the last map a variance");
}

void snd_rule_not_started(snd_judge *j) {
    int n;
    const snd_call_row *c = first_call(j->d, IDLE_GATED, &n);
    if (c) say_gated(j, c, n);
    const bool gated = c != NULL;
    c = first_call(j->d, IDLE_ZERO_MAP, &n);
    if (c) say_zero_map(j, c, n);
    if (gated || c || !j->d->head_zero) return;
    snd_judge_say(j, SND_LEVEL_INFO, "head.weight", NAN, false,
                  "the head starts at zero: all outputs are equal, and from a loss only the head gets a gradient in "
                  "the first step",
                  "nothing, if this is meant; else leave the head's init to its kind");
}

// ---- branches and layers that never act -------------------------------------------------------------------------------------------

static const snd_stmt *assigned(const snd_formula *f, snd_section s, const char *name) {
    for (const snd_stmt *t = f->sec[s]; t; t = t->next)
        if (!name || !strcmp(t->name, name)) return t;
    return NULL;
}

static bool layers_assign_stream(const snd_spec *s) {
    static const snd_section body[] = {SND_SEC_LAYER, SND_SEC_EACH, SND_SEC_LAYER2};
    for (int k = 0; k < 3; k++) {
        if (assigned(s->formula, body[k], "x")) return true;
        for (const snd_stmt *t = assigned(s->formula, SND_SEC_IN, NULL); t; t = t->next) // further streams
            if (assigned(s->formula, body[k], t->name)) return true;
    }
    return false;
}

// A paper's "y = LN(x + F(x))": right as a function, wrong as a program.
void snd_rule_idle(snd_judge *j) {
    if (layers_assign_stream(j->spec) || j->run->depth == 0) return;
    const snd_stmt *t = assigned(j->spec->formula, SND_SEC_EACH, NULL);
    if (!t) t = assigned(j->spec->formula, SND_SEC_LAYER, NULL);
    char why[400], remedy[200];
    snprintf(why, sizeof why,
             "no statement of the layers assigns x, so the stream leaves as it came: %.60s is forgotten when its layer "
             "ends",
             t ? t->name : "what they compute");
    snprintf(remedy, sizeof remedy, "write 'x = ...'%s%.60s%s", t ? " where it says '" : "", t ? t->name : "",
             t ? " = ...'" : "");
    snd_judge_say(j, SND_LEVEL_WARN, "layers.0.x", NAN, false, why, remedy);
}

void snd_rule_unused(snd_judge *j) {
    int n;
    const snd_call_row *c = first_call(j->d, IDLE_UNUSED, &n);
    if (!c || !layers_assign_stream(j->spec)) return; // the rule above has said why
    char why[400], where[200];
    snprintf(where, sizeof where, "%s.out", c->name);
    snprintf(
        why, sizeof why,
        "%d of %d branches never reach the output: what they return is dropped, stopped or multiplied by a constant "
        "zero, so nothing inside them ever learns",
        n, j->d->n_calls);
    snd_judge_say(j, SND_LEVEL_WARN, where, NAN, false, why,
                  "use the branch in what is assigned to x, or leave it out");
}

// ---- recipes ----------------------------------------------------------------------------------------------------------------------

static double size_of(double var, double mean) {
    return sqrt(var + mean * mean);
}

static bool off(double got, double want, double by) {
    return fabs(got - want) > by * (want > 0 ? want : got > 0 ? got : 1);
}

static bool off_recipe(const snd_judge *j, const snd_param_row *p) {
    const double got = size_of(p->var, p->mean), want = size_of(p->own_var, p->own_mean), by = j->row->threshold;
    // a token embedding may start small when its factor makes up for it: what enters the stream is as large
    const bool made_up = !strcmp(p->role, "embed") && !off(got * fabs(j->spec->embed_scale), want, by);
    return !p->state && !made_up && off(got, want, by);
}

// The init key's role rules against what the wiring, or the base kind, wants of the role.
void snd_rule_recipe(snd_judge *j) {
    const snd_description *d = j->d;
    if (!j->spec->init) return;
    const bool own = j->spec->formula->init != NULL;
    const snd_param_row *first = NULL;
    int n = 0;
    for (int i = 0; i < d->n_params; i++) {
        const snd_param_row *p = &d->params[i];
        if (!off_recipe(j, p)) continue;
        if (!first) first = p;
        n++;
    }
    if (!first) return;
    char why[500], a[40], b[40];
    const double got = size_of(first->var, first->mean), want = size_of(first->own_var, first->own_mean);
    snprintf(why, sizeof why,
             "the init key starts %s (role %s) with size %s where the %s has %s; %d parameter%s by more than 5 %%",
             first->name, first->role, snd_format_num(a, got, 4), own ? "wiring's own recipe" : "base kind",
             snd_format_num(b, want, 4), n, n == 1 ? " differs" : "s differ");
    snd_judge_say(j, own ? SND_LEVEL_WARN : SND_LEVEL_INFO, first->name, want > 0 ? got / want - 1 : NAN, false, why,
                  own ? "leave out the rule for this role: the wiring's guarantee rests on its own numbers"
                      : "nothing, if the recipe you follow has this rule");
}

static const snd_param_row *row_of(const snd_description *d, const char *name, int *hint) {
    for (int k = 0; k < d->n_params; k++) { // both lists are nearly in the same order
        const int i = (*hint + k) % d->n_params;
        if (strcmp(d->params[i].name, name) != 0) continue;
        *hint = i + 1;
        return &d->params[i];
    }
    return NULL;
}

static bool measured_size(const snd_rvalue *v, double *out) {
    const snd_metric *m = snd_value_find(v, "wrms");
    if (!m || !m->measured) return false;
    *out = snd_metric_linear(m, m->mean);
    return !isnan(*out);
}

// What was drawn against what the spec says.
void snd_rule_measured(snd_judge *j) {
    int hint = 0, n = 0;
    const snd_rvalue *first = NULL;
    double first_got = 0, first_want = 0, got;
    for (int i = 0; i < j->run->n_params; i++) {
        const snd_rvalue *v = j->run->params[i];
        const snd_param_row *p = measured_size(v, &got) ? row_of(j->d, v->name, &hint) : NULL;
        if (!p || p->state) continue;
        const double want = size_of(p->var, p->mean), entries = (double)snd_shape_size(p->shape);
        // sd of the RMS of n normal entries is 1/sqrt(2 n); a constant has none
        const double noise = p->var > 0 ? 4 / sqrt(2 * entries) : 0, limit = fmax(j->row->threshold, noise);
        const bool last_only = p->var == 0 && !strncmp(p->init, "last", 4); // one-hot: the RMS counts the zeros
        if (last_only || !off(got, want, limit)) continue;
        if (!first) {
            first = v;
            first_got = got;
            first_want = want;
        }
        n++;
    }
    if (!first) return;
    char why[400], a[40], b[40];
    snprintf(why, sizeof why,
             "%s has RMS %s where its init says %s; %d parameter%s off by more than 5 %% and more than chance",
             first->name, snd_format_num(a, first_got, 4), snd_format_num(b, first_want, 4), n,
             n == 1 ? " is" : "s are");
    snd_judge_say(j, SND_LEVEL_ERROR, first->name, first_want > 0 ? first_got / first_want - 1 : NAN, false, why,
                  "compare the init rules of the spec with the code that drew these weights: a later reset or a "
                  "skipped module is the usual cause");
}

// ---- copies -------------------------------------------------------------------------------------------------------------------------

typedef struct layer_params {
    int first, n;
} layer_params; // rows of run->params, contiguous

static int layers_of(const snd_run *u, layer_params *out, int cap) {
    int n = 0;
    for (int i = 0; i < u->n_params; i++) {
        const int l = u->params[i]->layer;
        if (l < 0) continue;
        if (n && u->params[out[n - 1].first]->layer == l && out[n - 1].first + out[n - 1].n == i)
            out[n - 1].n++;
        else if (n < cap)
            out[n++] = (layer_params){i, 1};
    }
    return n;
}

static const char *local_name(const char *name) {
    const char *at = strstr(name, "layers.");
    at = at ? strchr(at + 7, '.') : NULL;
    return at ? at : name;
}

// Do all drawn parameters of the two layers have the same RMS, digit by digit?
static bool copies(const snd_judge *j, layer_params p, layer_params q, int *hint) {
    int drawn = 0;
    if (p.n != q.n) return false;
    for (int k = 0; k < p.n; k++) {
        const snd_rvalue *a = j->run->params[p.first + k], *b = j->run->params[q.first + k];
        double x, y;
        if (strcmp(local_name(a->name), local_name(b->name)) != 0 || !measured_size(a, &x) || !measured_size(b, &y))
            return false;
        const snd_param_row *row = row_of(j->d, a->name, hint);
        if (!row || row->var == 0 || x == 0) continue;
        if (x != y) return false;
        drawn++;
    }
    return drawn > 0;
}

void snd_rule_identical(snd_judge *j) {
    enum { MOST = 1024 };
    layer_params layers[MOST];
    const int n = layers_of(j->run, layers, MOST);
    int same = 0, hint = 0;
    const snd_rvalue *first = NULL, *of = NULL;
    for (int i = 1; i < n; i++) {
        if (!copies(j, layers[0], layers[i], &hint) && !copies(j, layers[i - 1], layers[i], &hint)) continue;
        if (!first) {
            first = j->run->params[layers[i].first];
            of = j->run->params[copies(j, layers[0], layers[i], &hint) ? layers[0].first : layers[i - 1].first];
        }
        same++;
    }
    if (!first) return;
    char why[400], where[64];
    snprintf(where, sizeof where, "layers.%d", first->layer);
    snprintf(why, sizeof why, "layers %d and %d have the same weights to the last digit; %d of %d layers are copies",
             of->layer, first->layer, same + 1, n);
    snd_judge_say(j, SND_LEVEL_ERROR, where, NAN, false, why,
                  "draw every layer on its own: a cloned module keeps the first one's weights");
}
