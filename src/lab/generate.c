// Sampling: a prompt is read once for all samples side by side, then each goes on by one token at a time.
#include "lab/generate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- one token --------------------------------------------------------------------------------------------------------------

static int by_probability(const void *a, const void *b) {
    const snd_choice *x = a, *y = b;
    if (x->p != y->p) return x->p > y->p ? -1 : 1;
    return x->token < y->token ? -1 : 1;
}

static int64_t most_likely(const double *logits, int64_t V) {
    int64_t best = 0;
    for (int64_t i = 1; i < V; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

// Sorted choices that top_k and top_p leave; *sum is of their probabilities.
static int64_t cut(const snd_sampling *s, const snd_choice *c, int64_t n, double *sum) {
    int64_t k = s->top_k > 0 && s->top_k < n ? s->top_k : n;
    double whole = 0;
    for (int64_t i = 0; i < k; i++) whole += c[i].p;
    *sum = 0;
    for (int64_t i = 0; i < k; i++) {
        *sum += c[i].p;
        if (*sum >= s->top_p * whole) return i + 1;
    }
    return k;
}

sonde_status snd_sample(const snd_sampling *s, const double *logits, int64_t V, double u, snd_choice *work,
                        int64_t *token) {
    const int64_t best = most_likely(logits, V);
    for (int64_t i = 0; i < V; i++)
        SND_FAIL_IF(isnan(logits[i]), SONDE_ERANGE, "the logit of token %lld is not a number", (long long)i);
    SND_FAIL_IF(!isfinite(logits[best]), SONDE_ERANGE, "the largest logit, of token %lld, is not finite",
                (long long)best);
    *token = best;
    if (s->temperature == 0) return SONDE_OK;
    for (int64_t i = 0; i < V; i++) work[i] = (snd_choice){exp((logits[i] - logits[best]) / s->temperature), i};
    qsort(work, (size_t)V, sizeof *work, by_probability);
    double sum, at = 0;
    const int64_t n = cut(s, work, V, &sum);
    for (int64_t i = 0; i < n; i++) {
        at += work[i].p;
        *token = work[i].token;
        if (u * sum < at) break;
    }
    return SONDE_OK;
}

// ---- sequences --------------------------------------------------------------------------------------------------------------

typedef struct writer {
    const snd_generate_opts *o;
    snd_decoder *d;
    int64_t vocab, n, all;  // tokens of each sequence so far; room
    int64_t *text;          // [samples, all], the prompt first
    int64_t *next, *window; // [samples]; [samples, capacity]
    bool *done;
    double *logits;
    snd_choice *work;
    snd_key *key;
    snd_generated *out;
} writer;

static bool make(writer *w, int64_t prompt) {
    const size_t B = (size_t)w->o->samples;
    w->all = prompt + w->o->tokens;
    w->text = snd_malloc(B * (size_t)w->all * sizeof *w->text);
    w->next = snd_malloc(B * sizeof *w->next);
    w->window = snd_malloc(B * (size_t)w->o->capacity * sizeof *w->window);
    w->done = snd_calloc(B, sizeof *w->done);
    w->logits = snd_malloc(B * (size_t)w->vocab * sizeof *w->logits);
    w->work = snd_malloc((size_t)w->vocab * sizeof *w->work);
    w->key = snd_malloc(B * sizeof *w->key);
    return w->text && w->next && w->window && w->done && w->logits && w->work && w->key;
}

static void discard(writer *w) {
    snd_decoder_close(w->d);
    snd_free(w->text);
    snd_free(w->next);
    snd_free(w->window);
    snd_free(w->done);
    snd_free(w->logits);
    snd_free(w->work);
    snd_free(w->key);
}

// The last tokens, as many as half the context holds (at first: as the whole of it), from the beginning of the context.
static sonde_status read_again(writer *w, int64_t most) {
    const int64_t n = w->n < most ? w->n : most;
    for (int64_t r = 0; r < w->o->samples; r++)
        memcpy(w->window + r * n, w->text + r * w->all + w->n - n, (size_t)n * sizeof *w->window);
    snd_decoder_cut(w->d, 0);
    return snd_decoder_push(w->d, w->window, n, w->logits);
}

static bool all_done(const writer *w) {
    for (int64_t r = 0; r < w->o->samples; r++)
        if (!w->done[r]) return false;
    return true;
}

// The tokens that may come: 0 .. limit-1, and the end, which then takes the place behind them.
static sonde_status pick(writer *w, int64_t r, int64_t t) {
    const snd_generate_opts *o = w->o;
    double *logits = w->logits + r * w->vocab;
    const bool all = o->limit == 0, ends = !all && o->end >= o->limit && o->end < w->vocab;
    if (ends) logits[o->limit] = logits[o->end];
    SND_TRY(snd_sample(&o->sampling, logits, all ? w->vocab : o->limit + ends, snd_uniform_at(w->key[r], (uint64_t)t),
                       w->work, &w->next[r]));
    if (ends && w->next[r] == o->limit) w->next[r] = o->end;
    return SONDE_OK;
}

// A sequence that has ended goes along with some token, which nobody sees.
static sonde_status draw(writer *w, int64_t t) {
    for (int64_t r = 0; r < w->o->samples; r++) {
        w->next[r] = 0;
        if (!w->done[r]) SND_TRY(pick(w, r, t));
        w->text[r * w->all + w->n] = w->next[r];
        if (w->done[r]) continue;
        const bool ended = w->next[r] == w->o->end;
        w->done[r] = ended || t + 1 == w->o->tokens;
        w->out->tokens += !ended;
        if (w->o->token) w->o->token(w->o->ctx, r, ended ? -1 : w->next[r], w->done[r]);
    }
    w->n++;
    return SONDE_OK;
}

static sonde_status go_on(writer *w) {
    if (snd_decoder_length(w->d) < w->o->capacity) return snd_decoder_push(w->d, w->next, 1, w->logits);
    w->out->reread++;
    return read_again(w, w->o->capacity > 1 ? w->o->capacity / 2 : 1);
}

static sonde_status write_all(writer *w) {
    const double start = snd_now();
    SND_TRY(read_again(w, w->o->capacity));
    const double read = snd_now();
    w->out->prompt_seconds = read - start;
    for (int64_t t = 0; t < w->o->tokens; t++) {
        SND_FAIL_IF(w->o->stop && w->o->stop->flag, SONDE_EINTERRUPTED, "stopped after %lld tokens", (long long)t);
        if (t > 0) SND_TRY(go_on(w));
        SND_TRY(draw(w, t));
        w->out->seconds = snd_now() - read;
        if (all_done(w)) break;
    }
    return SONDE_OK;
}

static sonde_status begin(writer *w, snd_weights *net, const int64_t *prompt, int64_t n) {
    const snd_decoder_opts o = {.rows = w->o->samples, .capacity = w->o->capacity, .stop = w->o->stop};
    SND_FAIL_IF(n < 1, SONDE_EINPUT, "the prompt is empty; it needs at least one token to go on from");
    SND_TRY(snd_decoder_open(net, &o, &w->d));
    w->vocab = net->spec->vocab;
    if (!make(w, n)) return SONDE_ENOMEM;
    w->n = n;
    for (int64_t r = 0; r < w->o->samples; r++) {
        char name[40];
        snprintf(name, sizeof name, "sample.%lld", (long long)r);
        w->key[r] = snd_key_make(w->o->seed, name);
        memcpy(w->text + r * w->all, prompt, (size_t)n * sizeof *prompt);
    }
    return write_all(w);
}

sonde_status snd_generate(snd_weights *net, const snd_generate_opts *o, const int64_t *prompt, int64_t n,
                          snd_generated *out) {
    *out = (snd_generated){0};
    writer w = {.o = o, .out = out};
    const sonde_status s = begin(&w, net, prompt, n);
    discard(&w);
    return s;
}
