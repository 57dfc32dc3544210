// Rules about attention's scores: too large, and one key takes all; too small, and attention is an average.
#include "rules/inner.h"

#include <math.h>
#include <string.h>

// The scale as a multiple of the usual one, 1/sqrt(head_dim).
static double relative_scale(const snd_spec *s) {
    return fabs(s->attn_scale) * sqrt((double)s->head_dim);
}

// ---- the size of the scores -------------------------------------------------------------------------------------------------

static const snd_param_row *param_of(const snd_judge *j, const char *call, const char *part, const char *what) {
    char name[120];
    snprintf(name, sizeof name, "%s.%s.%s", call, part, what);
    for (int i = 0; i < j->d->n_params; i++)
        if (!strcmp(j->d->params[i].name, name)) return &j->d->params[i];
    return NULL;
}

static double mean_sq(const snd_param_row *p, double shift) {
    return p->var + (p->mean + shift) * (p->mean + shift);
}

// Mean square of an entry of the queries or keys: what their norm leaves, or what their map makes of an input of mean
// square q. False: the description has no such parameter.
static bool entries(const snd_judge *j, const char *call, char map, double q, double *out) {
    const char part[] = {map, '\0'}, norm[] = {map, '_', 'n', 'o', 'r', 'm', '\0'};
    if (j->spec->qk_norm == SND_QK_L2) {
        *out = 1 / (double)j->spec->head_dim;
        return true;
    }
    const bool normed = j->spec->qk_norm != SND_QK_NONE;
    const snd_param_row *w = param_of(j, call, normed ? norm : part, "weight");
    const snd_param_row *b = normed ? NULL : param_of(j, call, part, "bias");
    if (!w) return false;
    if (normed)
        *out = mean_sq(w, j->spec->plus1 ? 1 : 0);
    else
        *out = (double)w->shape.dim[1] * w->var * q + (b ? mean_sq(b, 0) : 0);
    return true;
}

// log10 of the RMS of scale*q.k over independent queries and keys, before biases and softcap.
static bool score_size(const snd_judge *j, const char *call, snd_found *out) {
    char input[120];
    double q, k;
    snprintf(input, sizeof input, "%s.in", call);
    if (!snd_judge_number(snd_run_find(j->run, input), "q", out)) return false;
    if (!entries(j, call, 'q', pow(10, out->v), &q) || !entries(j, call, 'k', pow(10, out->v), &k)) return false;
    out->v = log10(relative_scale(j->spec)) + log10(q * k) / 2;
    return isfinite(out->v);
}

static bool is_self_attention(const snd_call_row *c) {
    const size_t n = strlen(c->name);
    return n > 2 && !strcmp(c->name + n - 2, ".A");
}

static const char *usual_scale(const snd_judge *j, char out[200]) {
    char usual[40];
    snprintf(out, 200,
             "attn_scale=1/sqrt(head_dim), %s here: queries and keys whose entries have size 1 then have scores of "
             "size 1",
             snd_format_num(usual, 1 / sqrt((double)j->spec->head_dim), 4));
    return out;
}

// An unusual scale that the start of queries and keys does not make up for (T5's does).
void snd_rule_attention_scale(snd_judge *j) {
    if (j->spec->family != SND_FAM_TRANSFORMER) return;
    const double scale = log10(relative_scale(j->spec)), limit = j->row->threshold;
    for (int i = 0; i < j->d->n_calls; i++) {
        const snd_call_row *c = &j->d->calls[i];
        snd_found size;
        if (!is_self_attention(c) || !score_size(j, c->name, &size)) continue;
        const bool large = scale > limit && size.v > limit, small = scale < -limit && size.v < -limit;
        if (!large && !small) continue;
        char where[120], why[400], remedy[200], a[40], b[40], s[40];
        snprintf(where, sizeof where, "%s.out", c->name);
        snprintf(why, sizeof why,
                 "scores of size %s (from the %s size of %s.in and the start of queries and keys): attn_scale %s is %s "
                 "times 1/sqrt(head_dim)%s",
                 snd_judge_text(a, size.v), snd_judge_word(size.measured), c->name,
                 snd_format_num(s, j->spec->attn_scale, 4), snd_judge_text(b, scale),
                 small ? ", as if it were applied twice, and attention is nearly an average" : "");
        j->threshold = large ? limit : -limit;
        snd_judge_say(j, large ? SND_LEVEL_WARN : SND_LEVEL_INFO, where, size.v, true, why,
                      large ? usual_scale(j, remedy)
                            : "attn_scale=1/sqrt(head_dim); nothing, if 1/head_dim is meant (muP, whose queries and "
                              "keys grow alike in training)");
        return;
    }
}

// ---- what the weights are ---------------------------------------------------------------------------------------------------

void snd_rule_attention_saturated(snd_judge *j) {
    const snd_rvalue *first = NULL;
    snd_found low = {0}, f;
    int n = 0, of = 0;
    for (int i = 0; i < j->run->n_values; i++) {
        const snd_rvalue *v = j->run->values[i];
        if (!snd_judge_number(v, "entropy", &f)) continue;
        of++;
        if (f.v >= j->row->threshold) continue;
        if (!first) first = v, low = f;
        n++;
    }
    if (!first) return;
    char why[400], remedy[200], a[40], b[40];
    int used =
        snprintf(why, sizeof why,
                 "%s entropy of the attention weights is %s of that of an equal average over the keys seen, in %d "
                 "of %d sublayers below a quarter: a few keys take all",
                 snd_judge_word(low.measured), snd_pretty(a, low.v, 2), n, of);
    if (snd_judge_number(first, "maxlogit", &f))
        snprintf(why + used, sizeof why - (size_t)used, "; the largest score is %s", snd_pretty(b, f.v, 3));
    snd_judge_say(j, SND_LEVEL_WARN, first->name, low.v, false, why,
                  log10(relative_scale(j->spec)) > log10(2)
                      ? usual_scale(j, remedy)
                      : "queries and keys of size 1: qk_norm=rms-head, a norm before attention (wiring=pre), or a "
                        "smaller start of their maps (q,k = normal(s) in init)");
}
