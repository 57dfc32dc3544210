// The curves of a run, in bounded memory: losses, rates and gradient norms in windows of steps, every layer at some moments.
// At the end they become panels and heat maps of the run's record.
#include "train/inner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_WINDOWS = 400, MOST_VALID = 400, MOST_LOOKS = 80 };

typedef struct window {
    double step, loss, lr, log_norm, log_scale, lost, sec; // sums
    int64_t n, timed;
} window;

struct snd_history {
    int64_t steps;
    int windows;
    window w[MOST_WINDOWS];
    double valid_step[MOST_VALID], valid[MOST_VALID];
    int n_valid, n_layers, n_looks;
    int64_t seen, stride; // looks so far; every how manyth is kept
    int64_t look[MOST_LOOKS + 1];
    snd_layer_state *layers; // [MOST_LOOKS + 2][n_layers]; behind what is kept the newest look, and the names alone
};

sonde_status snd_history_make(snd_trainer *t, snd_history **out) {
    snd_history *h;
    SND_NEW(t->arena, h, 1);
    h->steps = t->s.steps;
    h->windows = h->steps < MOST_WINDOWS ? (int)h->steps : MOST_WINDOWS;
    h->n_layers = t->n_layers;
    h->stride = 1;
    SND_NEW(t->arena, h->layers, (MOST_LOOKS + 2) * t->n_layers + 1);
    for (int i = 0; i < t->n_layers; i++) h->layers[(MOST_LOOKS + 1) * t->n_layers + i].name = t->layers[i].name;
    *out = h;
    return SONDE_OK;
}

static snd_layer_state *look(const snd_history *h, int i) {
    return h->layers + (int64_t)i * h->n_layers;
}

snd_layer_state *snd_history_layers(const snd_history *h, int *n) {
    *n = h->n_layers;
    return look(h, MOST_LOOKS + 1);
}

static void put_look(snd_history *h, int i, const snd_step *s) {
    h->look[i] = s->step;
    memcpy(look(h, i), s->layers, (size_t)h->n_layers * sizeof *h->layers);
}

// With more looks than room, every second one goes, and from then on only as many are kept: they stay evenly spaced.
static void keep_layers(snd_history *h, const snd_step *s) {
    put_look(h, MOST_LOOKS, s);
    if (h->seen++ % h->stride != 0) return;
    if (h->n_looks == MOST_LOOKS) {
        for (int i = 1; i < MOST_LOOKS / 2; i++) {
            h->look[i] = h->look[2 * i];
            memcpy(look(h, i), look(h, 2 * i), (size_t)h->n_layers * sizeof *h->layers);
        }
        h->n_looks = MOST_LOOKS / 2;
        h->stride *= 2;
    }
    put_look(h, h->n_looks++, s);
}

void snd_history_step(snd_history *h, const snd_step *s) {
    if (!snd_step_is_finite(s)) return; // nothing was moved
    if (s->layers) keep_layers(h, s);
    const int64_t at = (s->step - 1) * h->windows / h->steps;
    if (at < 0 || at >= h->windows) return;
    window *w = &h->w[at];
    w->step += (double)s->step;
    w->loss += s->loss;
    w->lr += s->lr;
    w->log_norm += log10(s->grad_norm);
    w->log_scale += s->scale > 0 ? log10(s->scale) : NAN;
    w->lost += s->lost;
    w->n++;
    if (isnan(s->seconds)) return; // an earlier part of a resumed run
    w->sec += s->seconds;
    w->timed++;
}

// With more validations than room, every second one goes.
void snd_history_valid(snd_history *h, int64_t step, double loss) {
    if (h->n_valid == MOST_VALID) {
        for (int i = 0; i < MOST_VALID / 2; i++) {
            h->valid_step[i] = h->valid_step[2 * i + 1];
            h->valid[i] = h->valid[2 * i + 1];
        }
        h->n_valid = MOST_VALID / 2;
    }
    h->valid_step[h->n_valid] = (double)step;
    h->valid[h->n_valid++] = loss;
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double snd_history_step_sec(const snd_history *h) {
    double sec[MOST_WINDOWS];
    int n = 0;
    for (int i = 0; i < h->windows; i++)
        if (h->w[i].timed) sec[n++] = h->w[i].sec / (double)h->w[i].timed;
    qsort(sec, (size_t)n, sizeof *sec, ascending);
    return n ? sec[n / 2] : NAN;
}

// ---- panels ---------------------------------------------------------------------------------------------------------------------

static void put_curve(snd_panel *p, const char *label, const double *x, const double *y, int n) {
    snd_series *s = snd_panel_series(p, label, x, n);
    if (s) snd_series_y(p, s, y);
}

static void tell_curves(const snd_history *h, snd_record *r, const char *label) {
    double x[MOST_WINDOWS], loss[MOST_WINDOWS], lr[MOST_WINDOWS], norm[MOST_WINDOWS], scale[MOST_WINDOWS],
        lost[MOST_WINDOWS];
    int n = 0;
    for (int i = 0; i < h->windows; i++) {
        const window *w = &h->w[i];
        if (!w->n) continue;
        x[n] = w->step / (double)w->n;
        loss[n] = w->loss / (double)w->n;
        lr[n] = w->lr / (double)w->n;
        scale[n] = w->log_scale / (double)w->n;
        lost[n] = w->lost / (double)w->n;
        norm[n++] = w->log_norm / (double)w->n;
    }
    if (n == 0) return; // not one step was made
    snd_panel *p = snd_record_panel_of(r, "Loss", "step", "nats per target", false);
    put_curve(p, label, x, loss, n);
    if (h->n_valid) {
        p = snd_record_panel_of(r, "Loss in validation", "step", "nats per target", false);
        put_curve(p, label, h->valid_step, h->valid, h->n_valid);
    }
    p = snd_record_panel_of(r, "Norm of the gradient", "step", "norm before clipping", true);
    put_curve(p, label, x, norm, n);
    p = snd_record_panel_of(r, "Learning rate", "step", "learning rate", false);
    put_curve(p, label, x, lr, n);
    if (isnan(scale[n - 1])) return; // not in f16
    p = snd_record_panel_of(r, "Loss scale", "step", "factor of the loss", true);
    put_curve(p, label, x, scale, n);
    p = snd_record_panel_of(r, "Gradients that f16 makes 0", "step", "share of the backward pass's numbers", false);
    put_curve(p, label, x, lost, n);
}

typedef double pick(const snd_layer_state *l);
static double stream(const snd_layer_state *l) {
    return log10(l->rms);
}
static double gradient(const snd_layer_state *l) {
    return log10(l->grms);
}
static double update(const snd_layer_state *l) {
    return log10(l->update);
}
static double batch_running(const snd_layer_state *l) {
    return log10(l->batch_running);
}
static double entropy(const snd_layer_state *l) {
    return l->entropy;
}

typedef struct columns {
    int n, at[MOST_LOOKS + 1]; // which looks
    double step[MOST_LOOKS + 1];
} columns;

static columns columns_of(const snd_history *h) {
    columns c = {0};
    for (int i = 0; i <= MOST_LOOKS; i++) {
        const bool newest = i == MOST_LOOKS && h->n_looks && h->look[i] > h->look[h->n_looks - 1];
        if (i >= h->n_looks && !newest) continue;
        c.at[c.n] = i;
        c.step[c.n++] = (double)h->look[i];
    }
    return c;
}

// Only layers: what stands outside them comes last. A quantity that no layer has makes no map.
static sonde_status tell_layers(const snd_history *h, snd_run *u, const char *title, const char *z_name, bool log,
                                pick *get) {
    const columns c = columns_of(h);
    const int n = h->n_layers - 1;
    const char **names;
    bool any = false;
    for (int k = 0; k < c.n; k++)
        for (int i = 0; i < n; i++) any |= isfinite(get(&look(h, c.at[k])[i]));
    if (!any) return SONDE_OK;
    SND_NEW(u->rec->arena, names, n);
    for (int i = 0; i < n; i++) names[i] = look(h, 0)[i].name;
    snd_heatmap *m = snd_record_heatmap(u->rec, title, u->label, c.step, c.n, names, n);
    snd_heatmap_axes(m, "step", "layer", z_name, log);
    for (int k = 0; k < c.n; k++)
        for (int i = 0; i < n; i++) snd_heatmap_put(m, i, k, get(&look(h, c.at[k])[i]));
    return SONDE_OK;
}

static void put(snd_rvalue *v, const char *metric, double rms) {
    if (!isnan(rms)) snd_value_metric(v, metric, true)->mean = 2 * log10(rms);
}

// The newest look, as values of the run.
static void tell_values(const snd_history *h, snd_run *u) {
    const snd_layer_state *l = look(h, MOST_LOOKS);
    for (int i = 0; h->n_looks && i + 1 < h->n_layers; i++) {
        int layer = 0;
        const char *name = snd_record_text(u->rec, "%s.x", l[i].name);
        (void)snd_layer_prefix(name, &layer);
        snd_rvalue *v = snd_run_value(u, name, layer);
        put(v, "q", l[i].rms);
        put(v, "gq", l[i].grms);
    }
}

sonde_status snd_history_tell(const snd_history *h, snd_run *u) {
    snd_record *r = u->rec;
    tell_curves(h, r, u->label);
    tell_values(h, u);
    if (h->n_layers > 1 && h->n_looks) {
        SND_TRY(tell_layers(h, u, "Stream at the end of each layer", "root mean square", true, stream));
        SND_TRY(tell_layers(h, u, "Gradient of that stream", "root mean square", true, gradient));
        SND_TRY(tell_layers(h, u, "Update of each layer's weights", "|update| / |weights|", true, update));
        SND_TRY(tell_layers(h, u, "Batch norm of each layer", "variance of the batch / running variance", true,
                            batch_running));
        SND_TRY(tell_layers(h, u, "Least entropy of each layer's attention", "share of the largest possible", false,
                            entropy));
    }
    return snd_record_status(r);
}
