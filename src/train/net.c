// The graph of a model for batches of one shape, and running it. The nets of all shapes share one slab and the parameters,
// whose order is that of the spec whatever the shape.
#include "train/inner.h"

#include <math.h>
#include <string.h>

// ---- making -------------------------------------------------------------------------------------------------------------------

snd_plan_opts snd_net_way(const snd_trainer *t) {
    snd_plan_opts o = {.again = SND_AGAIN_NONE};
    if (!strcmp(t->s.recompute, "norms")) o.again = SND_AGAIN_CHEAP;
    if (!strcmp(t->s.recompute, "layers")) o.again = SND_AGAIN_SEGMENT;
    return o;
}

sonde_status snd_net_model(snd_trainer *t, snd_batch_shape shape, snd_net_kind kind, snd_model **out) {
    const bool train = kind != SND_NET_EVAL;
    const snd_build b = {.dtype = t->o.dtype,
                         .rows = shape.rows,
                         .tokens = shape.tokens,
                         .src_tokens = shape.src_tokens,
                         .lengths = train && shape.src_tokens > 0,
                         .src_lengths = shape.src_tokens > 0,
                         .height = t->row[1],
                         .width = t->row[2],
                         .feed = SND_FEED_TOKENS,
                         .src_feed = SND_FEED_TOKENS,
                         .eval = !train,
                         .training = train,
                         .label_smoothing = train ? t->s.label_smoothing : 0,
                         .with_targets = true};
    SND_TRY(snd_model_build(t->arena, t->spec, &b, out));
    snd_graph_round_products((*out)->g, t->products);
    snd_graph_store((*out)->g, t->stored);
    SND_FAIL_IF(!(*out)->loss, SONDE_EUNSUPPORTED, "this model has no loss to train on");
    return train && snd_net_way(t).again == SND_AGAIN_SEGMENT ? snd_model_cut(t->arena, *out) : SONDE_OK;
}

// Parameters and, where layers are looked at, the streams at their ends.
static sonde_status differentiate(snd_trainer *t, snd_net *n) {
    snd_graph *g = n->m->g;
    const int P = snd_g_param_count(g), all = P + n->n_looks;
    snd_id *wrt;
    SND_NEW(t->arena, wrt, all + 1);
    SND_NEW(t->arena, n->grad, all + 1);
    n->back = snd_g_node_count(g);
    n->dloss = snd_g_input(g, "dloss", snd_g_value(g, n->loss)->shape, SND_DT_NONE);
    for (int i = 0; i < P; i++) wrt[i] = snd_g_param_is_state(g, i) ? 0 : snd_g_param_at(g, i);
    for (int i = 0; i < n->n_looks; i++) wrt[P + i] = n->looks[i].x;
    snd_g_grad(g, &n->loss, &n->dloss, 1, wrt, all, n->grad);
    for (int i = 0; i < n->n_looks; i++)
        if (n->grad[P + i]) n->looks[i].gq = snd_g_stat(g, n->grad[P + i], 0, SND_SM_ONLY_Q);
    return snd_graph_status(g);
}

static sonde_status find_states(snd_trainer *t, snd_net *n) {
    const snd_graph *g = n->m->g;
    SND_NEW(t->arena, n->state, snd_g_param_count(g) + 1);
    for (int i = 0; i < snd_g_param_count(g); i++)
        if (snd_g_param_is_state(g, i)) n->state[i] = snd_model_tap(n->m, snd_g_value(g, snd_g_param_at(g, i))->name);
    return SONDE_OK;
}

static int keep_looks(const snd_net *n, snd_id *keep) {
    int k = 0;
    for (int i = 0; i < n->n_looks; i++) {
        const snd_look *l = &n->looks[i];
        if (l->q) keep[k++] = l->q;
        if (l->gq) keep[k++] = l->gq;
        for (int c = 0; c < l->n_calls; c++) keep[k++] = l->call[c];
        for (int c = 0; c < l->n_attn; c++) keep[k++] = l->attn[c];
    }
    return k;
}

static sonde_status make_plan(snd_trainer *t, snd_net *n) {
    snd_graph *g = n->m->g;
    const int P = snd_g_param_count(g);
    snd_id *keep;
    int k = 0;
    SND_NEW(t->arena, keep, 2 * P + 2 + n->n_looks * (2 + 2 * SND_LOOK_CALLS));
    keep[k++] = n->loss;
    n->scores = !n->grad && t->task == SND_TASK_CLASS ? n->m->logits : 0;
    if (n->scores) keep[k++] = n->scores;
    for (int i = 0; n->grad && i < P; i++) {
        if (n->grad[i]) keep[k++] = n->grad[i];
        if (n->state[i]) keep[k++] = n->state[i];
    }
    k += keep_looks(n, keep + k);
    if (!t->stored) (void)snd_g_fuse(g, keep, k);
    const snd_plan_opts way = snd_net_way(t);
    return snd_plan_make_by(t->arena, g, keep, k, &way, &n->plan);
}

// Logits that are to be stored have to be there.
snd_id snd_net_loss_value(const snd_trainer *t, const snd_model *m) {
    return t->stored ? m->loss : snd_g_loss_in_pieces(m->g, m->loss, true);
}

sonde_status snd_net_make(snd_trainer *t, snd_batch_shape shape, snd_net_kind kind, snd_net *out) {
    *out = (snd_net){.shape = shape};
    SND_TRY(snd_net_model(t, shape, kind, &out->m));
    out->loss = snd_net_loss_value(t, out->m);
    if (kind == SND_NET_WATCH) SND_TRY(snd_looks_make(t, out));
    if (kind != SND_NET_EVAL) {
        SND_TRY(differentiate(t, out));
        SND_TRY(find_states(t, out));
    }
    return make_plan(t, out);
}

sonde_status snd_net_start(snd_trainer *t, snd_net *n) {
    const snd_exec_opts o = {
        .threads = t->o.threads, .seed = t->o.seed, .stop = NULL, .slab = t->slab, .count_from = n->back};
    return snd_exec_create(n->m->g, n->plan, snd_trainer_weights(t), &o, &n->x);
}

// ---- running ------------------------------------------------------------------------------------------------------------------

static sonde_status set_input(const snd_trainer *t, const snd_net *n, const char *name, snd_id v) {
    const snd_batch *b = &t->batch;
    if (v == n->m->targets) return snd_exec_set(n->x, v, b->targets, SND_I64);
    if (!strcmp(name, "tokens")) return snd_exec_set(n->x, v, b->tokens, SND_I64);
    if (!strcmp(name, "src_tokens")) return snd_exec_set(n->x, v, b->src_tokens, SND_I64);
    if (!strcmp(name, "lengths")) return snd_exec_set(n->x, v, b->lengths, SND_I64);
    if (!strcmp(name, "src_lengths")) return snd_exec_set(n->x, v, b->src_lengths, SND_I64);
    if (!strcmp(name, "input")) return snd_exec_set(n->x, v, b->x, SND_F32);
    SND_FAIL(SONDE_EUNSUPPORTED, "training data has nothing for the input '%s'", name);
}

sonde_status snd_net_run(snd_trainer *t, snd_net *n, uint64_t seed, int64_t first, double dloss) {
    for (int i = 0; i < n->m->n_inputs; i++) SND_TRY(set_input(t, n, n->m->inputs[i].name, n->m->inputs[i].v));
    dloss *= t->scale;
    if (n->dloss) SND_TRY(snd_exec_set(n->x, n->dloss, &dloss, SND_F64));
    if (t->stored) snd_halves_round(t);
    snd_exec_reseed(n->x, seed);
    snd_exec_first_example(n->x, first);
    return snd_exec_run(n->x);
}

double snd_net_loss(const snd_net *n) {
    double v;
    return snd_exec_get(n->x, n->loss, &v) == SONDE_OK ? v : 0.0 / 0.0;
}

int64_t snd_net_hits(const snd_trainer *t, const snd_net *n) {
    const snd_shape s = n->scores ? snd_g_value(n->m->g, n->scores)->shape : SND_SHAPE(0);
    const void *p = n->scores ? snd_exec_raw(n->x, n->scores, NULL) : NULL;
    const int64_t C = s.dim[s.nd - 1], R = p ? snd_shape_size(s) / C : 0;
    int64_t hits = 0;
    for (int64_t r = 0; r < R; r++) {
        int64_t best = 0;
        for (int64_t c = 1; c < C; c++) {
            const int64_t a = r * C + c, b = r * C + best;
            const bool more = t->o.dtype == SND_F64 ? ((const double *)p)[a] > ((const double *)p)[b]
                                                    : ((const float *)p)[a] > ((const float *)p)[b];
            if (more) best = c;
        }
        hits += best == t->batch.targets[r];
    }
    return hits;
}

static double element(snd_dtype t, const void *x, int64_t i) {
    return t == SND_F64 ? ((const double *)x)[i] : (double)((const float *)x)[i];
}

// The batch's mean variance over the running one: new = (1 - share) old + share batch.
static double batch_over_running(snd_dtype dt, const void *new, int32_t e, const void *old, int64_t n) {
    double batch = 0, running = 0;
    for (int64_t i = 0; i < n; i++) {
        const double was = element(dt, old, i);
        batch += (ldexp(element(dt, new, i), e) - (1 - SND_BATCH_SHARE) * was) / SND_BATCH_SHARE;
        running += was;
    }
    return batch / running;
}

static bool is_variance(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot && !strcmp(dot, ".running_var");
}

sonde_status snd_net_keep_states(snd_trainer *t, snd_net *n) {
    const snd_graph *g = n->m->g;
    for (int i = 0; i < snd_g_param_count(g); i++) {
        void *data;
        if (!n->state[i]) continue;
        const snd_value *v = snd_g_value(g, n->state[i]);
        const int64_t size = snd_shape_size(v->shape);
        int32_t e;
        const void *p = snd_exec_raw(n->x, n->state[i], &e);
        SND_TRY(snd_source_data(&t->source, g, i, &data));
        if (is_variance(snd_g_value(g, snd_g_param_at(g, i))->name))
            t->batch_running[i] = batch_over_running(v->dtype, p, e, data, size);
        snd_k_affine(1, v->dtype, size, snd_pow2(e), p, 0, data);
    }
    return SONDE_OK;
}
