// Where numbers stopped being finite: the step's batch once more, part by part, through a graph in which every named value
// and its gradient is looked at. It has memory of its own, which a run that goes well never takes. Weights' gradients are
// asked for last, by the sums that the step itself took for their norm.
#include "train/inner.h"

#include <math.h>
#include <string.h>

// Statistics nodes by tap; one more in front, for an input of numbers.
typedef struct probe {
    snd_net net;
    snd_id *forward, *backward; // 0: none
    int n_taps;
} probe;

static snd_id stat_of(const snd_net *n, snd_id v) {
    const bool number = v && snd_g_value(n->m->g, v)->dtype != SND_I64 && !snd_g_many(n->m->g, v);
    return number ? snd_g_stat(n->m->g, v, 0, SND_SM_ONLY_Q) : 0;
}

static sonde_status look_at_all(snd_trainer *t, probe *p) {
    snd_net *n = &p->net;
    snd_graph *g = n->m->g;
    snd_id *wrt, *grad, *keep;
    int k = 0;
    p->n_taps = n->m->n_taps;
    SND_NEW(t->arena, p->forward, p->n_taps + 1);
    SND_NEW(t->arena, p->backward, p->n_taps + 1);
    SND_NEW(t->arena, wrt, p->n_taps + 1);
    SND_NEW(t->arena, grad, p->n_taps + 1);
    SND_NEW(t->arena, keep, 2 * p->n_taps + 3);
    n->dloss = snd_g_input(g, "dloss", snd_g_value(g, n->loss)->shape, SND_DT_NONE);
    for (int i = 0; i < p->n_taps; i++) wrt[i] = n->m->taps[i].v;
    for (int i = 0; i <= p->n_taps; i++) p->forward[i] = stat_of(n, i ? wrt[i - 1] : n->m->input);
    snd_g_grad(g, &n->loss, &n->dloss, 1, wrt, p->n_taps, grad);
    for (int i = 1; i <= p->n_taps; i++) p->backward[i] = stat_of(n, grad[i - 1]);
    keep[k++] = n->loss;
    for (int i = 0; i <= p->n_taps; i++) {
        if (p->forward[i]) keep[k++] = p->forward[i];
        if (p->backward[i]) keep[k++] = p->backward[i];
    }
    SND_TRY(snd_graph_status(g));
    const snd_plan_opts way = snd_net_way(t);
    return snd_plan_make_by(t->arena, g, keep, k, &way, &n->plan);
}

static sonde_status make_probe(snd_trainer *t, snd_batch_shape shape, probe *p) {
    *p = (probe){.net = {.shape = shape}};
    SND_TRY(snd_net_model(t, shape, SND_NET_WATCH, &p->net.m));
    p->net.loss = snd_net_loss_value(t, p->net.m);
    SND_TRY(look_at_all(t, p));
    const snd_exec_opts o = {.threads = t->o.threads};
    return snd_exec_create(p->net.m->g, p->net.plan, snd_trainer_weights(t), &o, &p->net.x);
}

static bool bad(const probe *p, snd_id stat) {
    const double *s = stat ? snd_exec_raw(p->net.x, stat, NULL) : NULL;
    return s && s[SND_ST_NONFINITE] > 0;
}

// The first value in running order, the loss behind them, else the first gradient on the way back.
static void first_bad(const probe *p, snd_arena *a, const char **where, const char **text) {
    static const char input[] = "input";
    for (int i = 0; i <= p->n_taps; i++) {
        if (!bad(p, p->forward[i])) continue;
        *where = i ? p->net.m->taps[i - 1].name : input;
        *text = snd_arena_printf(a, "%s is the first value that is not finite", *where);
        return;
    }
    if (!isfinite(snd_net_loss(&p->net))) {
        *where = "loss";
        *text = "all values with names are finite; the loss is not";
        return;
    }
    for (int i = p->n_taps; i > 0; i--) {
        if (!bad(p, p->backward[i])) continue;
        *where = snd_arena_printf(a, "grad.%s", p->net.m->taps[i - 1].name);
        *text = snd_arena_printf(a, "all values are finite; the gradient of %s is the first that is not",
                                 p->net.m->taps[i - 1].name);
        return;
    }
}

// A weight comes before all values: what they become is its doing.
const char *snd_trainer_bad_weight(const snd_trainer *t) {
    for (int i = 0; i < t->n_weights; i++) {
        const snd_weight *w = &t->weights[i];
        const void *read = t->halves ? t->halves[w->param] : w->w; // a weight may leave f16
        if (!isfinite(snd_k_absmax(t->o.threads, t->o.dtype, w->n, read))) return w->name;
    }
    return NULL;
}

// Of the step itself: no graph need run for it. On the way back the last weights come first.
static void name_weight_gradient(const snd_trainer *t, snd_arena *a, const char **where, const char **text) {
    static const char before[] = "all values and gradients with names are finite";
    char size[40];
    int i = t->n_weights - 1;
    while (i >= 0 && isfinite(t->weights[i].gsq)) i--;
    if (i < 0) {
        *where = "gradient";
        *text = snd_arena_printf(a, "%s, and so is every weight's; the sum of their squares is not", before);
        return;
    }
    const snd_weight *w = &t->weights[i];
    *where = snd_arena_printf(a, "grad.%s", w->name);
    if (isfinite(w->gmax))
        *text = snd_arena_printf(
            a, "%s; the gradient of the weight %s reaches %s, and the sum of its squares is beyond f64", before,
            w->name, snd_pretty(size, w->gmax, 4));
    else
        *text = snd_arena_printf(a, "%s; the gradient of the weight %s is not", before, w->name);
}

// The step that failed may have been counted since, and its scale changed.
static void swap_failed(snd_trainer *t) {
    const int64_t step = t->step;
    const double scale = t->scale;
    t->step = t->failed_step;
    t->scale = t->failed_scale;
    t->failed_step = step;
    t->failed_scale = scale;
}

static sonde_status search_part(snd_trainer *t, snd_arena *a, int64_t part, const char **where, const char **text) {
    probe p;
    SND_TRY(snd_batches_get(t->batches, SND_SPLIT_TRAIN, t->step, part, t->s.accumulate, &t->batch));
    if (t->batch.asked == 0) return SONDE_OK;
    sonde_status s = make_probe(t, t->batch.shape, &p);
    const int64_t first = part * t->batch.shape.rows;
    const double share = (double)t->batch.asked / (double)t->batch.asked_all;
    if (s == SONDE_OK) s = snd_net_run(t, &p.net, snd_trainer_step_seed(t), first, share);
    if (s == SONDE_OK) first_bad(&p, a, where, text);
    snd_exec_destroy(p.net.x);
    return s;
}

sonde_status snd_trainer_find_nonfinite(snd_trainer *t, snd_arena *a, const char **where, const char **text) {
    *where = snd_trainer_bad_weight(t);
    *text = *where ? snd_arena_printf(a, "the weight %s is not finite", *where) : NULL;
    swap_failed(t);
    sonde_status s = SONDE_OK;
    for (int64_t part = 0; part < t->s.accumulate && !*text && s == SONDE_OK; part++)
        s = search_part(t, a, part, where, text);
    swap_failed(t);
    SND_TRY(s);
    if (!*text) name_weight_gradient(t, a, where, text);
    return *where && *text ? SONDE_OK : SONDE_ENOMEM;
}
