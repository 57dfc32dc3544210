// The weights: which tensors are learned, where their moments lie, who decays, and one step of the optimizer over all of
// them. Sums over tensors run in the order of the parameters, so the bits are those of any number of threads.
#include "train/inner.h"

#include <math.h>
#include <string.h>

// ---- who decays -----------------------------------------------------------------------------------------------------------------

static const snd_param_row *row_of(const snd_description *d, const char *name) {
    for (int i = 0; i < d->n_params; i++)
        if (!strcmp(d->params[i].name, name)) return &d->params[i];
    return NULL;
}

// Matrices and tables that multiply; not what is added (biases, XL's u and v, T5's table) nor what scales.
static bool is_matrix(const snd_param_row *r) {
    return r->shape.nd >= 2 && *r->role != 'b' && strcmp(r->role, "relative") != 0;
}

// A gain is at rest at 1, which a gain stored as 1 + w has at w = 0.
void snd_train_decay(const snd_train_settings *s, const snd_spec *spec, const snd_param_row *p, double *rate,
                     double *toward) {
    const bool gain = !strcmp(p->role, "g") || !strcmp(p->role, "headgain"), all = !strcmp(s->decay, "all");
    *rate = all || is_matrix(p) ? s->weight_decay : 0;
    *toward = gain && !(spec->plus1 && !strcmp(p->role, "g")) ? 1 : 0;
}

// ---- slabs ----------------------------------------------------------------------------------------------------------------------

static size_t aligned(size_t bytes) {
    return (bytes + 63) / 64 * 64;
}

static sonde_status make_slab(size_t bytes, char **out) {
    *out = snd_slab_alloc(bytes ? bytes : 64);
    SND_FAIL_IF(!*out, SONDE_ENOMEM, "no memory for training (%zu bytes)", bytes);
    memset(*out, 0, bytes);
    return SONDE_OK;
}

static sonde_status list_weights(snd_trainer *t, const snd_description *d) {
    const snd_graph *g = t->nets[0].m->g;
    const int P = snd_g_param_count(g);
    SND_NEW(t->arena, t->weights, P + 1);
    for (int i = 0; i < P; i++) {
        const snd_value *v = snd_g_value(g, snd_g_param_at(g, i));
        void *data;
        SND_TRY(snd_source_data(&t->source, g, i, &data)); // states too: the first run reads them where they stay
        if (!t->nets[0].grad[i]) continue;
        snd_weight *w = &t->weights[t->n_weights++];
        *w = (snd_weight){.param = i, .n = snd_shape_size(v->shape), .name = v->name, .w = data};
        const snd_param_row *r = row_of(d, v->name);
        if (r) snd_train_decay(&t->s, t->spec, r, &w->decay, &w->toward);
    }
    return SONDE_OK;
}

void snd_weights_measure(snd_trainer *t) {
    const snd_graph *g = t->nets[0].m->g;
    size_t one = 0;
    for (int i = 0; i < snd_g_param_count(g); i++) {
        const snd_value *v = snd_g_value(g, snd_g_param_at(g, i));
        const size_t bytes = aligned((size_t)snd_shape_size(v->shape) * snd_dtype_size(v->dtype));
        t->param_bytes += bytes;
        if (t->nets[0].grad[i]) one += bytes;
    }
    t->gradient_bytes = one;
    t->moment_bytes = one * (size_t)t->opt->moments;
    t->average_bytes = t->s.ema > 0 ? one : 0;
    t->sum_bytes = t->s.accumulate > 1 ? one : 0;
    t->half_bytes = t->stored ? one : 0;
}

static void *take(char *slab, size_t *at, size_t bytes) {
    void *p = slab + *at;
    *at += bytes;
    return p;
}

sonde_status snd_weights_make(snd_trainer *t) {
    snd_description *d;
    size_t moment = 0, average = 0, sum = 0;
    const size_t size = snd_dtype_size(t->o.dtype);
    SND_TRY(snd_describe_facts(t->arena, t->spec, &d));
    SND_TRY(list_weights(t, d));
    snd_weights_measure(t);
    SND_TRY(make_slab(t->moment_bytes, &t->moments));
    if (t->average_bytes) SND_TRY(make_slab(t->average_bytes, &t->average));
    if (t->sum_bytes) SND_TRY(make_slab(t->sum_bytes, &t->sums));
    for (int i = 0; i < t->n_weights; i++) {
        snd_weight *w = &t->weights[i];
        const size_t bytes = aligned((size_t)w->n * size);
        w->m = take(t->moments, &moment, bytes);
        if (t->opt->moments == 2) w->v = take(t->moments, &moment, bytes);
        if (t->average) w->ema = take(t->average, &average, bytes);
        if (t->sums) w->sum = take(t->sums, &sum, bytes);
        if (w->ema) memcpy(w->ema, w->w, (size_t)w->n * size);
    }
    return SONDE_OK;
}

// ---- gradients ------------------------------------------------------------------------------------------------------------------

static void add(const snd_trainer *t, int64_t n, double a, const void *x, double b, void *y) {
    const int64_t dim[3] = {1, 1, n}, stride[3] = {0, 0, 1};
    snd_k_binary(t->o.threads, t->o.dtype, SND_KBIN_ADD, dim, a, x, stride, b, y, stride, y);
}

void snd_weights_collect(snd_trainer *t, const snd_net *n, bool first) {
    for (int i = 0; i < t->n_weights; i++) {
        const snd_weight *w = &t->weights[i];
        int32_t e;
        const void *g = snd_exec_raw(n->x, n->grad[w->param], &e);
        if (first)
            snd_k_affine(t->o.threads, t->o.dtype, w->n, snd_pow2(e), g, 0, w->sum);
        else
            add(t, w->n, snd_pow2(e), g, 1, w->sum);
    }
}

// Where the gradient of a weight is, and what it is to be multiplied by.
static const void *gradient(const snd_net *n, const snd_weight *w, double scale, double *factor) {
    int32_t e = 0;
    const void *g = w->sum ? w->sum : snd_exec_raw(n->x, n->grad[w->param], &e);
    *factor = snd_pow2(e) / scale;
    return g;
}

// Weights of fewer elements are tasks of one loop: a loop for each waits for its threads as long as it works.
enum { ALONE = 1 << 19 };

typedef struct each_job {
    snd_trainer *t;
    const snd_net *n;
    const snd_kupdate *k;
    double scale;
    bool watch;
    void (*one)(const struct each_job *, snd_weight *);
} each_job;

static void small_task(void *ctx, int64_t i) {
    const each_job *j = ctx;
    if (j->t->weights[i].n < ALONE) j->one(j, &j->t->weights[i]);
}
static void each_weight(each_job *j) {
    snd_parallel(j->t->o.threads, j->t->n_weights, small_task, j);
    for (int i = 0; i < j->t->n_weights; i++)
        if (j->t->weights[i].n >= ALONE) j->one(j, &j->t->weights[i]);
}

static void norm_of(const each_job *j, snd_weight *w) {
    const snd_trainer *t = j->t;
    double factor;
    const void *g = gradient(j->n, w, t->scale, &factor);
    w->gsq = factor * factor * snd_k_sumsq(t->o.threads, t->o.dtype, w->n, g);
    w->gmax = isfinite(w->gsq) ? NAN : fabs(factor) * snd_k_absmax(t->o.threads, t->o.dtype, w->n, g);
}

double snd_weights_norm(snd_trainer *t, const snd_net *n) {
    each_weight(&(each_job){.t = t, .n = n, .one = norm_of});
    double sum = 0;
    for (int i = 0; i < t->n_weights; i++) sum += t->weights[i].gsq;
    return sqrt(sum);
}

static void update_one(const each_job *j, snd_weight *w) {
    const snd_trainer *t = j->t;
    snd_kupdate k = *j->k;
    double factor, sums[2];
    const void *g = gradient(j->n, w, t->scale, &factor);
    k.decay = w->decay;
    k.toward = w->toward;
    k.scale = j->scale * factor;
    snd_k_update(t->o.threads, t->o.dtype, &k, w->n, g, w->w, w->m, w->v, j->watch ? sums : NULL);
    if (j->watch) {
        w->wsq = sums[0];
        w->usq = sums[1];
    }
    if (w->ema) add(t, w->n, 1 - t->s.ema, w->w, t->s.ema, w->ema);
}

void snd_weights_update(snd_trainer *t, const snd_net *n, double lr, double scale, bool watch) {
    const snd_kupdate k = {.rule = t->opt->rule,
                           .lr = lr,
                           .beta1 = t->s.beta1,
                           .beta2 = t->s.beta2,
                           .eps = t->s.opt_eps,
                           .step = t->step - t->skipped + 1};
    each_weight(&(each_job){.t = t, .n = n, .k = &k, .scale = scale, .watch = watch, .one = update_one});
}
