// The curves of a run, in bounded memory: losses, rates and gradient norms in windows of steps, every layer at a few moments.
// At the end they become panels of the run's record.
#include "train/inner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_WINDOWS = 400, MOST_VALID = 400, MOMENTS = 5 };

typedef struct window {
    double step, loss, lr, log_norm, sec; // sums
    int64_t n, timed;
} window;

struct snd_history {
    int64_t steps;
    int windows;
    window w[MOST_WINDOWS];
    double valid_step[MOST_VALID], valid[MOST_VALID];
    int n_valid, n_layers, n_moments;
    int64_t moment[MOMENTS + 1];
    snd_layer_state *layers; // [MOMENTS + 1][n_layers]
};

sonde_status snd_history_make(snd_trainer *t, snd_history **out) {
    snd_history *h;
    SND_NEW(t->arena, h, 1);
    h->steps = t->s.steps;
    h->windows = h->steps < MOST_WINDOWS ? (int)h->steps : MOST_WINDOWS;
    h->n_layers = t->n_layers;
    SND_NEW(t->arena, h->layers, (MOMENTS + 1) * t->n_layers + 1);
    *out = h;
    return SONDE_OK;
}

// Moments stand about evenly over the run, the first at the first look; the newest look stands behind them.
static void keep_layers(snd_history *h, const snd_step *s) {
    const size_t bytes = (size_t)h->n_layers * sizeof *h->layers;
    if (h->n_moments < MOMENTS && s->step * MOMENTS >= h->steps * h->n_moments) {
        h->moment[h->n_moments] = s->step;
        memcpy(h->layers + h->n_moments++ * h->n_layers, s->layers, bytes);
    }
    h->moment[MOMENTS] = s->step;
    memcpy(h->layers + MOMENTS * h->n_layers, s->layers, bytes);
}

void snd_history_step(snd_history *h, const snd_step *s) {
    if (s->layers) keep_layers(h, s);
    const int64_t at = (s->step - 1) * h->windows / h->steps;
    if (at < 0 || at >= h->windows) return;
    window *w = &h->w[at];
    w->step += (double)s->step;
    w->loss += s->loss;
    w->lr += s->lr;
    w->log_norm += log10(s->grad_norm);
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
    snd_series *s = n ? snd_panel_series(p, label, x, n) : NULL;
    if (s) snd_series_y(p, s, y);
}

static void tell_curves(const snd_history *h, snd_record *r, const char *label) {
    double x[MOST_WINDOWS], loss[MOST_WINDOWS], lr[MOST_WINDOWS], norm[MOST_WINDOWS];
    int n = 0;
    for (int i = 0; i < h->windows; i++) {
        const window *w = &h->w[i];
        if (!w->n) continue;
        x[n] = w->step / (double)w->n;
        loss[n] = w->loss / (double)w->n;
        lr[n] = w->lr / (double)w->n;
        norm[n++] = w->log_norm / (double)w->n;
    }
    snd_panel *p = snd_record_panel(r, "Loss", "step", "nats per target", false);
    put_curve(p, label, x, loss, n);
    put_curve(p, snd_record_text(r, "%s, validation", label), h->valid_step, h->valid, h->n_valid);
    p = snd_record_panel(r, "Norm of the gradient", "step", "norm before clipping", true);
    put_curve(p, label, x, norm, n);
    p = snd_record_panel(r, "Learning rate", "step", "learning rate", false);
    put_curve(p, label, x, lr, n);
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
static double entropy(const snd_layer_state *l) {
    return l->entropy;
}

// Only layers: what stands outside them comes last.
static sonde_status tell_layers(const snd_history *h, snd_record *r, const char *title, const char *y_name, bool log,
                                pick *get) {
    const int n = h->n_layers - 1;
    double *x, *y;
    SND_NEW(r->arena, x, n + 1);
    SND_NEW(r->arena, y, n + 1);
    bool any = false;
    for (int i = 0; i < n; i++) x[i] = i;
    snd_panel *p = NULL;
    for (int m = 0; m <= MOMENTS; m++) {
        const bool newest = m == MOMENTS && h->n_moments && h->moment[m] > h->moment[h->n_moments - 1];
        if (m >= h->n_moments && !newest) continue;
        for (int i = 0; i < n; i++) {
            y[i] = get(&h->layers[m * h->n_layers + i]);
            any |= isfinite(y[i]);
        }
        if (!any) return SONDE_OK;
        if (!p) p = snd_record_panel(r, title, "layer", y_name, log);
        put_curve(p, snd_record_text(r, "step %lld", (long long)h->moment[m]), x, y, n);
    }
    return SONDE_OK;
}

static void put(snd_rvalue *v, const char *metric, double rms) {
    if (!isnan(rms)) snd_value_metric(v, metric, true)->mean = 2 * log10(rms);
}

// The newest look, as values of the run.
static void tell_values(const snd_history *h, snd_run *u) {
    const snd_layer_state *l = h->layers + MOMENTS * h->n_layers;
    for (int i = 0; h->n_moments && i + 1 < h->n_layers; i++) {
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
    if (h->n_layers > 1) {
        SND_TRY(tell_layers(h, r, "Stream at the end of each layer", "root mean square", true, stream));
        SND_TRY(
            tell_layers(h, r, "Gradient of the stream at the end of each layer", "root mean square", true, gradient));
        SND_TRY(tell_layers(h, r, "Update of each layer's weights", "|update| / |weights|", true, update));
        SND_TRY(tell_layers(h, r, "Least entropy of each layer's attention", "share of the largest possible", false,
                            entropy));
    }
    return snd_record_status(r);
}
