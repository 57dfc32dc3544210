// What goes into a probe's graph for a seed: examples drawn or from a file, targets, the upstream gradient. Every input
// is known by its name, and what stands in it depends on that name and the seed alone.
#include "lab/probe.h"

#include <math.h>
#include <string.h>

static const double MLM_SHARE = 0.15; // of the tokens are asked for (Devlin et al. 2018, section 3.1)

typedef struct feed {
    const snd_probe *p;
    snd_exec *x;
    uint64_t seed;
    double *values;
    int64_t *ids, *targets; // tokens; T + 1 of them where the next one is asked for
} feed;

static snd_shape shape_at(const feed *f, snd_id v) {
    return snd_g_value(f->p->m->g, v)->shape;
}

// ---- numbers --------------------------------------------------------------------------------------------------------------

static sonde_status set_normal(const feed *f, const char *name, snd_id v, double scale) {
    const int64_t n = snd_shape_size(shape_at(f, v));
    snd_k_fill_normal(1, SND_F64, snd_key_make(f->seed, name), 0, n, scale, f->values);
    return snd_exec_set(f->x, v, f->values, SND_F64);
}

static sonde_status set_rows(const feed *f) {
    const snd_probe *p = f->p;
    const snd_model *m = p->m;
    const int64_t n = snd_shape_size(shape_at(f, m->input));
    if (m->targets) snd_data_targets(f->seed, "targets", m->rows, p->spec->outputs, f->targets);
    SND_TRY(
        snd_data_inputs(p->o.data, f->seed, m->rows, n / m->rows, p->o.cos, f->values, m->targets ? f->targets : NULL));
    for (int64_t i = 0; p->o.scale != 1 && i < n; i++) f->values[i] *= p->o.scale;
    SND_TRY(snd_exec_set(f->x, m->input, f->values, SND_F64));
    return m->targets ? snd_exec_set(f->x, m->targets, f->targets, SND_I64) : SONDE_OK;
}

// ---- tokens ---------------------------------------------------------------------------------------------------------------

enum { IGNORED = -100 };

// Tokens 0..T-1 go in, tokens 1..T are asked for.
static void next_token(const feed *f, int64_t B, int64_t T) {
    for (int64_t b = 0; b < B; b++) {
        const int64_t *from = f->ids + b * (T + 1);
        for (int64_t t = 0; t < T; t++) {
            const bool skipped = f->p->o.last_token && t < T - 1;
            f->targets[b * T + t] = skipped ? IGNORED : from[t + 1];
        }
        memmove(f->ids + b * T, from, (size_t)T * sizeof *f->ids);
    }
}

// A share of the places is asked for, at least one; a random token stands there, since a spec has no mask token.
static void masked_tokens(const feed *f, int64_t n) {
    const snd_key place = snd_key_make(f->seed, "mlm"), with = snd_key_make(f->seed, "mlm.token");
    double least = 1;
    for (int64_t i = 0; i < n; i++) least = fmin(least, snd_uniform_at(place, (uint64_t)i));
    for (int64_t i = 0; i < n; i++) {
        const bool asked = snd_uniform_at(place, (uint64_t)i) <= fmax(least, MLM_SHARE);
        f->targets[i] = asked ? f->ids[i] : IGNORED;
        const double vocab = (double)f->p->spec->vocab;
        if (asked) f->ids[i] = (int64_t)fmin(snd_uniform_at(with, (uint64_t)i) * vocab, vocab - 1);
    }
}

static sonde_status set_tokens(const feed *f, const char *name, snd_id v, bool with_targets) {
    const snd_probe *p = f->p;
    const snd_shape s = shape_at(f, v);
    const int64_t B = s.dim[0], T = s.dim[1];
    const bool next = with_targets && p->spec->objective != SND_OBJ_MLM;
    SND_TRY(snd_data_sequences(p->o.corpus, f->seed, name, B, T + next, p->spec->vocab, f->ids));
    if (next)
        next_token(f, B, T);
    else if (with_targets)
        masked_tokens(f, B * T);
    SND_TRY(snd_exec_set(f->x, v, f->ids, SND_I64));
    return with_targets ? snd_exec_set(f->x, p->m->targets, f->targets, SND_I64) : SONDE_OK;
}

// ---- all of them ------------------------------------------------------------------------------------------------------------

static sonde_status set_one(const feed *f, const char *name, snd_id v) {
    const snd_model *m = f->p->m;
    if (v == m->targets) return SONDE_OK; // comes with the tokens
    if (v == m->cond) return set_normal(f, name, v, 1);
    if (snd_g_value(m->g, v)->dtype == SND_I64) return set_tokens(f, name, v, v == m->input && m->targets);
    return set_normal(f, name, v, f->p->o.scale);
}

static sonde_status set_all(const feed *f) {
    const snd_model *m = f->p->m;
    if (f->p->spec->family != SND_FAM_TRANSFORMER) {
        SND_TRY(set_rows(f));
        if (m->cond) SND_TRY(set_normal(f, "cond", m->cond, 1));
    } else {
        for (int i = 0; i < m->n_inputs; i++) SND_TRY(set_one(f, m->inputs[i].name, m->inputs[i].v));
    }
    return f->p->dy ? set_normal(f, "dy", f->p->dy, 1) : SONDE_OK;
}

int64_t snd_probe_largest_input(const snd_probe *p) {
    const snd_model *m = p->m;
    int64_t most = m->rows * (m->tokens + 1);
    for (int i = 0; i <= m->n_inputs; i++) {
        const snd_id v = i < m->n_inputs ? m->inputs[i].v : p->dy;
        const int64_t n = v ? snd_shape_size(snd_g_value(m->g, v)->shape) : 0;
        if (n > most) most = n;
    }
    return most;
}

sonde_status snd_probe_feed(const snd_probe *p, snd_exec *x, uint64_t seed) {
    const size_t ids = (size_t)(p->m->rows * (p->m->tokens + 1)) * sizeof(int64_t);
    feed f = {.p = p,
              .x = x,
              .seed = seed,
              .values = snd_malloc((size_t)snd_probe_largest_input(p) * sizeof *f.values),
              .ids = snd_malloc(ids),
              .targets = snd_malloc(ids)};
    const sonde_status s = f.values && f.ids && f.targets ? set_all(&f) : SONDE_ENOMEM;
    snd_free(f.values);
    snd_free(f.ids);
    snd_free(f.targets);
    return s;
}
