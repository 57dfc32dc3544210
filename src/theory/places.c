#include "theory/places.h"

#include <math.h>

static const struct {
    int classes;
    bool growing;
    snd_cut rough;
} CUTS[] = {
    [SND_CUT_GROWING] = {20, true, SND_CUT_ROUGH_GROWING},      [SND_CUT_EVEN] = {16, false, SND_CUT_ROUGH_EVEN},
    [SND_CUT_FINE] = {SND_PLACES, false, SND_CUT_ROUGH_FINE},   [SND_CUT_FEW] = {4, false, SND_CUT_ONE},
    [SND_CUT_ROUGH_GROWING] = {3, true, SND_CUT_ROUGH_GROWING}, [SND_CUT_ROUGH_EVEN] = {2, false, SND_CUT_ROUGH_EVEN},
    [SND_CUT_ROUGH_FINE] = {4, false, SND_CUT_ROUGH_FINE},      [SND_CUT_ONE] = {1, false, SND_CUT_ONE}};

snd_cut snd_cut_rough(snd_cut cut) {
    return CUTS[cut].rough;
}

// Growing runs: single tokens first, then a `share` of what stands before.
static int cut(int64_t tokens, bool growing, double share, snd_places *p) {
    int n = 0;
    for (double first = 0; first < (double)tokens; n++) {
        double count = growing ? floor(first * share) : ceil((double)tokens * share);
        count = fmin(fmax(count, 1), (double)tokens - first);
        if (p && n < SND_PLACES) {
            p->first[n] = first;
            p->count[n] = count;
            p->at[n] = first + (count - 1) / 2;
        }
        first += count;
    }
    return n;
}

static double finest(int64_t tokens, bool growing, int most) {
    double lo = 0, hi = growing ? (double)tokens : 1;
    for (int i = 0; i < 50; i++) {
        const double mid = (lo + hi) / 2;
        if (cut(tokens, growing, mid, NULL) <= most)
            hi = mid;
        else
            lo = mid;
    }
    return hi;
}

static void entries(snd_places *p) {
    const int n = p->n;
    const double t = (double)p->tokens;
    for (int e = 0; e < p->size; e++) {
        const int half = e % (n + n * n), k = half - n;
        const bool same = half < n;
        const int i = same ? half : k / n, j = same ? half : k % n;
        p->row[e] = (int16_t)i;
        p->col[e] = (int16_t)j;
        p->flip[e] = (int16_t)(same ? e : e - k + j * n + i);
        const double pairs = same ? p->count[i] : p->count[i] * (p->count[j] - (i == j));
        p->weight[e] = same ? pairs / t : t > 1 ? pairs / (t * (t - 1)) : 0;
    }
}

sonde_status snd_places_make(snd_arena *a, int64_t tokens, snd_cut kind, snd_places *p) {
    const bool growing = CUTS[kind].growing;
    *p = (snd_places){.tokens = tokens};
    p->n = cut(tokens, growing, finest(tokens, growing, CUTS[kind].classes), p);
    p->size = 2 * p->n + 2 * p->n * p->n;
    SND_NEW(a, p->row, p->size);
    SND_NEW(a, p->col, p->size);
    SND_NEW(a, p->flip, p->size);
    SND_NEW(a, p->weight, p->size);
    entries(p);
    return SONDE_OK;
}

// Sum of r^s over s = 0 .. n-1; n need not be whole.
static double geometric(double r, double n) {
    return r == 1 ? n : (1 - pow(r, n)) / (1 - r);
}

// Sum over keys s in [lo, hi) of exp(-m (|p - s| + |q - s|)), p <= q; keys stand at lo, lo + 1, ...
static double mass(double lo, double hi, double p, double q, double m) {
    if (hi <= lo) return 0;
    if (m == 0) return hi - lo;
    const double cut1 = fmin(fmax(p + 1, lo), hi), cut2 = fmin(fmax(q + 1, cut1), hi), r = exp(-m);
    double s = 0;
    if (cut1 > lo) s += exp(-m * (p + q - 2 * (cut1 - 1))) * geometric(r * r, cut1 - lo);
    if (cut2 > cut1) s += exp(-m * (q - p)) * (cut2 - cut1);
    if (hi > cut2) s += exp(-m * (2 * cut2 - p - q)) * geometric(r * r, hi - cut2);
    return s;
}

typedef struct range {
    double lo, hi;
} range;

static range visible(const snd_sight *s, bool causal, double window, int q) {
    const double p = s->q->at[q], all = (double)s->k->tokens;
    range r = {0, causal ? fmin(p + 1, all) : all};
    if (window > 0) {
        r.lo = fmax(0, p - window + 1);
        if (!causal) r.hi = fmin(all, p + window);
    }
    return r;
}

static range meet(range a, range b) {
    return (range){fmax(a.lo, b.lo), fmin(a.hi, b.hi)};
}

static void look(snd_sight *s, bool causal, double window, const double *slopes) {
    const int nq = s->q->n, nk = s->k->n;
    for (int h = 0; h < s->n_slopes; h++)
        for (int t = 0; t < nq; t++)
            for (int i = 0; i < nk; i++) {
                const double m = slopes ? slopes[h] : 0, p = s->q->at[t];
                const range key = {s->k->first[i], s->k->first[i] + s->k->count[i]};
                const range seen = meet(visible(s, causal, window, t), key);
                s->mass[(h * nq + t) * nk + i] = mass(seen.lo, seen.hi, p, p, m / 2);
                for (int u = 0; u < nq; u++) {
                    const range r = meet(seen, visible(s, causal, window, u));
                    const double v = s->q->at[u];
                    s->both[((h * nq + t) * nq + u) * nk + i] = mass(r.lo, r.hi, fmin(p, v), fmax(p, v), m);
                }
            }
}

sonde_status snd_sight_make(snd_arena *a, const snd_places *q, const snd_places *k, bool causal, double window,
                            const double *slopes, int n_slopes, snd_sight *out) {
    *out = (snd_sight){.q = q, .k = k, .n_slopes = slopes ? n_slopes : 1};
    SND_NEW(a, out->mass, out->n_slopes * q->n * k->n);
    SND_NEW(a, out->both, out->n_slopes * q->n * q->n * k->n);
    look(out, causal, window, slopes);
    return SONDE_OK;
}
