// Beam search over a batch of sources. Each source has `beams` rows of the decoder; rows of a source whose search is over, or
// that has fewer beams alive (at the start there is one), go along unseen.
#include "lab/generate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct beam {
    double logp;   // -INFINITY: not alive
    int64_t *text; // tokens so far
} beam;

typedef struct candidate {
    double logp;
    int64_t row, token;
} candidate;

typedef struct search {
    const snd_beam_opts *o;
    snd_arena *arena;
    int64_t n, K, V, length; // sources, beams, vocabulary, tokens so far
    beam *now, *then;        // [n * K]
    bool *over;              // [n]
    snd_hypothesis *best;    // [n, K], by score; score -INFINITY: none
    candidate *candidates;   // [K * 2K]
    snd_choice *work;        // [V]
    int64_t *from, *next;    // [n * K]
    double *logits;          // [n * K, V]
} search;

static double penalised(const search *s, double logp, int64_t length) {
    return logp / pow((5 + (double)length) / 6, s->o->length_penalty);
}

// ---- outputs ----------------------------------------------------------------------------------------------------------------

static sonde_status keep(search *s, int64_t source, const beam *b, double logp, int64_t length, bool ended) {
    snd_hypothesis *best = s->best + source * s->K, h = {.logp = logp, .n = s->length, .ended = ended};
    h.score = penalised(s, logp, length);
    if (!(h.score > best[s->K - 1].score)) return SONDE_OK;
    SND_NEW(s->arena, h.tokens, h.n + 1);
    memcpy(h.tokens, b->text, (size_t)h.n * sizeof *h.tokens);
    int64_t i = s->K - 1;
    for (; i > 0 && h.score > best[i - 1].score; i--) best[i] = best[i - 1];
    best[i] = h;
    return SONDE_OK;
}

// The best that a beam can still become: no less likely, and as long as its score likes it.
static bool can_improve(const search *s, int64_t source) {
    const double worst = s->best[source * s->K + s->K - 1].score;
    for (int64_t k = 0; k < s->K; k++) {
        const double logp = s->now[source * s->K + k].logp;
        const double a = penalised(s, logp, s->length + 1), b = penalised(s, logp, s->o->tokens);
        if (isfinite(logp) && (a > worst || b > worst)) return true;
    }
    return false;
}

// ---- one step ---------------------------------------------------------------------------------------------------------------

static int by_logp(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    if (x->logp != y->logp) return x->logp > y->logp ? -1 : 1;
    if (x->row != y->row) return x->row < y->row ? -1 : 1;
    return x->token < y->token ? -1 : 1;
}

// The tokens that may come are 0 .. V-1, and the end where it stands behind them: `last`.
static int64_t next_allowed(int64_t i, int64_t V, int64_t last) {
    return i < V - 1 || i >= last ? i + 1 : last;
}

// The row's 2K likeliest tokens: whatever ends, K others remain.
static sonde_status row_candidates(search *s, int64_t row, candidate *out, int64_t *n) {
    const double *logits = s->logits + row * s->V;
    double top = -INFINITY, sum = 0;
    const int64_t V = s->o->limit ? s->o->limit : s->V, last = s->o->end >= V && s->o->end < s->V ? s->o->end : V - 1;
    for (int64_t i = 0; i <= last; i = next_allowed(i, V, last)) {
        SND_FAIL_IF(isnan(logits[i]), SONDE_ERANGE, "the logit of token %lld is not a number", (long long)i);
        top = logits[i] > top ? logits[i] : top;
    }
    for (int64_t i = 0; i <= last; i = next_allowed(i, V, last)) sum += exp(logits[i] - top);
    const double lse = top + log(sum), before = s->now[row].logp;
    const int64_t count = V + (last >= V), most = 2 * s->K < count ? 2 * s->K : count;
    int64_t m = 0;
    for (int64_t i = 0; i <= last; i = next_allowed(i, V, last)) { // insertion into a short sorted list
        if (m == most && !(logits[i] > s->work[m - 1].p)) continue;
        int64_t at = m < most ? m++ : m - 1;
        for (; at > 0 && logits[i] > s->work[at - 1].p; at--) s->work[at] = s->work[at - 1];
        s->work[at] = (snd_choice){logits[i], i};
    }
    for (int64_t i = 0; i < m; i++) out[(*n)++] = (candidate){before + s->work[i].p - lse, row, s->work[i].token};
    return SONDE_OK;
}

static void extend(search *s, int64_t row, const candidate *c) {
    beam *b = &s->then[row];
    memcpy(b->text, s->now[c->row].text, (size_t)s->length * sizeof *b->text);
    b->text[s->length] = c->token;
    b->logp = c->logp;
    s->from[row] = c->row;
    s->next[row] = c->token;
}

static sonde_status step_source(search *s, int64_t source) {
    int64_t n = 0, alive = 0;
    const int64_t first = source * s->K;
    for (int64_t k = 0; k < s->K; k++)
        if (isfinite(s->now[first + k].logp)) SND_TRY(row_candidates(s, first + k, s->candidates, &n));
    qsort(s->candidates, (size_t)n, sizeof *s->candidates, by_logp);
    for (int64_t i = 0; i < n && alive < s->K; i++) {
        const candidate *c = &s->candidates[i];
        if (c->token == s->o->end)
            SND_TRY(keep(s, source, &s->now[c->row], c->logp, s->length + 1, true));
        else
            extend(s, first + alive++, c);
    }
    return SONDE_OK;
}

static sonde_status step(search *s) {
    for (int64_t row = 0; row < s->n * s->K; row++) {
        s->then[row].logp = -INFINITY;
        s->from[row] = row;
        s->next[row] = s->o->begin;
    }
    for (int64_t i = 0; i < s->n; i++)
        if (!s->over[i]) SND_TRY(step_source(s, i));
    beam *swap = s->now;
    s->now = s->then;
    s->then = swap;
    s->length++;
    for (int64_t i = 0; i < s->n; i++) s->over[i] = s->over[i] || !can_improve(s, i);
    return SONDE_OK;
}

static sonde_status cut_off(search *s) {
    for (int64_t row = 0; row < s->n * s->K; row++)
        if (isfinite(s->now[row].logp) && !s->over[row / s->K])
            SND_TRY(keep(s, row / s->K, &s->now[row], s->now[row].logp, s->length, false));
    return SONDE_OK;
}

static bool all_over(const search *s) {
    for (int64_t i = 0; i < s->n; i++)
        if (!s->over[i]) return false;
    return true;
}

// ---- the search -------------------------------------------------------------------------------------------------------------

static sonde_status make(search *s) {
    const int64_t rows = s->n * s->K;
    SND_NEW(s->arena, s->now, rows);
    SND_NEW(s->arena, s->then, rows);
    SND_NEW(s->arena, s->over, s->n);
    SND_NEW(s->arena, s->best, rows);
    SND_NEW(s->arena, s->candidates, 2 * s->K * s->K);
    SND_NEW(s->arena, s->work, s->V);
    SND_NEW(s->arena, s->from, rows);
    SND_NEW(s->arena, s->next, rows);
    SND_NEW(s->arena, s->logits, rows * s->V);
    for (int64_t i = 0; i < rows; i++) {
        SND_NEW(s->arena, s->now[i].text, s->o->tokens + 1);
        SND_NEW(s->arena, s->then[i].text, s->o->tokens + 1);
        s->now[i].logp = i % s->K == 0 ? 0 : -INFINITY;
        s->best[i].score = -INFINITY;
        s->next[i] = s->o->begin;
    }
    return SONDE_OK;
}

static sonde_status run(search *s, snd_decoder *d, const int64_t *src) {
    SND_TRY(make(s));
    SND_TRY(snd_decoder_encode(d, src));
    SND_TRY(snd_decoder_push(d, s->next, 1, s->logits));
    for (;;) {
        SND_TRY(step(s));
        if (s->length == s->o->tokens || all_over(s)) break;
        SND_TRY(snd_decoder_select(d, s->from));
        SND_TRY(snd_decoder_push(d, s->next, 1, s->logits));
    }
    return cut_off(s);
}

sonde_status snd_beam_search(snd_arena *a, snd_weights *net, const snd_beam_opts *o, const int64_t *src, int64_t n,
                             int64_t S, snd_hypothesis *out) {
    search s = {.o = o, .arena = snd_arena_create(), .n = n, .K = o->beams, .V = net->spec->vocab};
    const snd_decoder_opts d_opts = {
        .rows = n * o->beams, .capacity = o->tokens, .src_tokens = S, .src_rows = n, .stop = o->stop};
    snd_decoder *d = NULL;
    sonde_status status = s.arena ? snd_decoder_open(net, &d_opts, &d) : SONDE_ENOMEM;
    if (status == SONDE_OK) status = run(&s, d, src);
    for (int64_t i = 0; status == SONDE_OK && i < n; i++) {
        out[i] = s.best[i * s.K];
        const int64_t *text = out[i].tokens;
        out[i].tokens = snd_arena_array(a, (size_t)out[i].n + 1, sizeof *text);
        if (out[i].tokens)
            memcpy(out[i].tokens, text, (size_t)out[i].n * sizeof *text);
        else
            status = SONDE_ENOMEM;
    }
    snd_decoder_close(d);
    snd_arena_destroy(s.arena);
    return status;
}
