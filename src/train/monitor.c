// What a step that watches shows of every layer: statistics nodes on streams, on what sublayers give, on attention weights
// and on the gradients of streams.
#include "train/inner.h"

#include <math.h>
#include <string.h>

// ---- nodes ----------------------------------------------------------------------------------------------------------------------

// "layers.3.x", of any stack.
static bool ends_layer(const char *name, size_t prefix) {
    return prefix > 0 && !strcmp(name + prefix, "x");
}

static sonde_status find_layers(snd_trainer *t, snd_net *n) {
    const snd_model *m = n->m;
    int layer;
    SND_NEW(t->arena, n->looks, m->n_taps + 1);
    for (int i = 0; i < m->n_taps; i++) {
        const size_t prefix = snd_layer_prefix(m->taps[i].name, &layer);
        if (!ends_layer(m->taps[i].name, prefix)) continue;
        n->looks[n->n_looks++] = (snd_look){.prefix = prefix, .name = m->taps[i].name, .x = m->taps[i].v};
    }
    return SONDE_OK;
}

static snd_look *look_of(const snd_net *n, const char *name) {
    int layer;
    const size_t prefix = snd_layer_prefix(name, &layer);
    for (int i = 0; i < n->n_looks; i++)
        if (prefix == n->looks[i].prefix && !strncmp(n->looks[i].name, name, prefix)) return &n->looks[i];
    return NULL;
}

static void add_call(snd_net *n, const snd_call *c) {
    char name[160];
    snprintf(name, sizeof name, "%s.", c->name);
    snd_look *l = look_of(n, name);
    if (!l || l->n_calls == SND_LOOK_CALLS) return;
    const int32_t attention = snd_model_attention(n->m, c);
    l->call[l->n_calls++] = snd_g_stat(n->m->g, c->out, 0, SND_SM_ONLY_Q);
    if (attention >= 0) l->attn[l->n_attn++] = snd_g_attention_stats_of(n->m->g, attention);
}

sonde_status snd_looks_make(snd_trainer *t, snd_net *n) {
    SND_TRY(find_layers(t, n));
    for (int i = 0; i < n->n_looks; i++) n->looks[i].q = snd_g_stat(n->m->g, n->looks[i].x, 0, SND_SM_LIGHT);
    for (int i = 0; i < n->m->n_calls; i++) add_call(n, &n->m->calls[i]);
    return snd_graph_status(n->m->g);
}

// ---- layers ---------------------------------------------------------------------------------------------------------------------

sonde_status snd_layers_make(snd_trainer *t) {
    const snd_net *n = &t->watches[0];
    t->n_layers = n->n_looks + 1;
    SND_NEW(t->arena, t->layers, t->n_layers);
    for (int i = 0; i < n->n_looks; i++) {
        t->layers[i].name = snd_arena_strn(t->arena, n->looks[i].name, n->looks[i].prefix - 1);
        if (!t->layers[i].name) return SONDE_ENOMEM;
    }
    t->layers[n->n_looks].name = "";
    for (int i = 0; i < t->n_weights; i++) {
        const snd_look *l = look_of(n, t->weights[i].name);
        t->weights[i].layer = l ? (int)(l - n->looks) : n->n_looks;
    }
    return SONDE_OK;
}

// A figure by a statistics node, of dimension value^power; NaN: there is none, or a number was not finite.
static double figure(const snd_net *n, snd_id stat, int which, int power) {
    const double *s = stat ? snd_exec_raw(n->x, stat, NULL) : NULL;
    if (!s || s[SND_ST_NONFINITE] > 0) return NAN;
    return ldexp(s[which], power * (int)s[SND_ST_EXP]);
}

static double mean_square(const snd_net *n, snd_id stat) {
    return figure(n, stat, SND_ST_Q, 2);
}

// Its root is a number where the square itself is beyond f64.
static double root_mean_square(const snd_net *n, snd_id stat) {
    const double *s = stat ? snd_exec_raw(n->x, stat, NULL) : NULL;
    return s && s[SND_ST_NONFINITE] == 0 ? ldexp(sqrt(s[SND_ST_Q]), (int)s[SND_ST_EXP]) : NAN;
}

static double smaller(double a, double b) {
    return isnan(a) || b < a ? b : a;
}

// Of a layer's batch norms the one whose ratio is furthest from 1.
static void read_batch_norms(snd_trainer *t, const snd_net *n) {
    for (int i = 0; i < t->n_layers; i++) t->layers[i].batch_running = NAN;
    for (int i = 0; i < snd_g_param_count(n->m->g); i++) {
        const double ratio = t->batch_running[i];
        if (isnan(ratio)) continue;
        const snd_look *l = look_of(n, snd_g_value(n->m->g, snd_g_param_at(n->m->g, i))->name);
        double *worst = &t->layers[l ? l - n->looks : n->n_looks].batch_running;
        if (isnan(*worst) || fabs(log(ratio)) > fabs(log(*worst))) *worst = ratio;
    }
}

void snd_layers_read(snd_trainer *t, const snd_net *n) {
    read_batch_norms(t, n);
    for (int i = 0; i < n->n_looks; i++) {
        const snd_look *l = &n->looks[i];
        snd_layer_state *s = &t->layers[i];
        const double q = mean_square(n, l->q);
        s->rms = root_mean_square(n, l->q);
        s->mean = figure(n, l->q, SND_ST_MEAN, 1);
        s->var = figure(n, l->q, SND_ST_VAR, 2);
        s->grms = root_mean_square(n, l->gq) / t->scale;
        s->write = s->entropy = NAN;
        for (int c = 0; c < l->n_calls; c++) s->write = smaller(s->write, sqrt(mean_square(n, l->call[c]) / q));
        for (int c = 0; c < l->n_attn; c++) {
            const double *a = snd_exec_raw(n->x, l->attn[c], NULL);
            s->entropy = smaller(s->entropy, a[SND_AS_SHARE]);
        }
    }
    snd_layer_state *rest = &t->layers[n->n_looks];
    rest->rms = rest->mean = rest->var = rest->grms = rest->write = rest->entropy = NAN;
}

void snd_layers_weigh(snd_trainer *t, bool moved) {
    for (int i = 0; i < t->n_layers; i++) {
        double w = 0, g = 0, u = 0, n = 0;
        for (int k = 0; k < t->n_weights && moved; k++) {
            const snd_weight *p = &t->weights[k];
            if (p->layer != i) continue;
            w += p->wsq;
            g += p->gsq;
            u += p->usq;
            n += (double)p->n;
        }
        t->layers[i].wrms = n > 0 ? sqrt(w / n) : NAN;
        t->layers[i].wgrms = n > 0 ? sqrt(g / n) : NAN;
        t->layers[i].update = w > 0 ? sqrt(u / w) : NAN;
    }
}
