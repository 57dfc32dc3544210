// Bands of Transformers: a few dozen networks of finite width, predicted as the limit is (theory/tokens_spread.c), in few
// classes of positions. What is taken from them are differences to the limit in the same classes: of one network's metric
// its spread, and what finite width adds to the mean.
#include "readers/predict_impl.h"

#include <math.h>

// Networks come in pairs of opposite luck, so that means show the second order of it. More of them where one costs little.
enum { PAIRS = 16, PAIRS_ALIKE = 32 };

// Closed forms of the softmax against simulation: E sum A A' within 12 % at worst (tokens_attend.c), taken as its two sd.
// A gradient has 2/width more: what a norm's projections take is not followed in the limit, and roughly in nets.
static const double ATTEND_OFF = 0.06;
// Entropies come from a table, between whose points they are known to half a percent (measured: 0.0033 above at width 256
// and 1024).
static const double ENTROPY_OFF = 0.005;

typedef struct sums {
    double limit, off; // in these classes; with attention off
    double sum, square;
    int n;
} sums;

typedef struct survey {
    snd_prediction *p;
    sonde_status (*make)(void *self, snd_prediction *net);
    void *self;
    sums *at;   // [exits, taps, metrics]
    bool alike; // all positions: one class
} survey;

// Metrics whose law the nets know: the stream's angle to its former self, and the mean of a row's few features, depend on
// what kernels over classes leave out.
static bool has_law(snd_pmetric m) {
    return m != SND_PM_ADJCOS && m != SND_PM_COS0 && m != SND_PM_MEAN && m != SND_PM_VAR;
}

static void look(const snd_prediction *net, sums *at, const snd_tk_net *kind) {
    for (int e = 0; e < net->n_exits; e++)
        for (int i = 0; i < net->n_taps; i++)
            for (int m = SND_PM_NONE + 1; m < SND_PM_COUNT; m++, at++) {
                double x;
                if (!has_law((snd_pmetric)m) || !snd_p_centre(net, e, i, (snd_pmetric)m, &x)) continue;
                if (kind->lucky) {
                    at->sum += x - at->limit;
                    at->square += (x - at->limit) * (x - at->limit);
                    at->n++;
                } else if (kind->attends != 0) {
                    at->off = x;
                } else {
                    at->limit = x;
                }
            }
}

static sonde_status one(survey *s, const snd_tk_net *kind) {
    snd_arena *a = snd_arena_create();
    if (!a) return SONDE_ENOMEM;
    snd_prediction net = {.arena = a, .rows = s->p->rows};
    sonde_status status = SONDE_ENOMEM;
    if ((net.tokens = snd_tokens_create_net(a, s->p->tokens, kind))) {
        net.m = snd_algebra_tokens(net.tokens);
        status = s->make(s->self, &net);
        if (status == SONDE_OK && snd_tokens_failed(net.tokens)) status = SONDE_ENOMEM;
    }
    if (status == SONDE_OK) look(&net, s->at, kind);
    s->alike = net.tokens && snd_tk_places(net.tokens, 0)->n == 1;
    snd_prediction_free(&net);
    snd_arena_destroy(a);
    return status;
}

static snd_plaw law_of(const sums *s, int n, snd_pmetric m, double width) {
    if (s->n < n || !isfinite(s->limit) || !isfinite(s->square)) return (snd_plaw){.sd = NAN};
    const double mean = s->sum / n, var = (s->square - n * mean * mean) / (n - 1);
    const bool grad = m == SND_PM_GQ || m == SND_PM_GRMS || m == SND_PM_GTOK || m == SND_PM_GDEV;
    const double projected = !grad || !(width > 0) ? 0 : (m == SND_PM_GRMS ? 1 : 2) / width / M_LN10;
    const double own = m == SND_PM_ENTROPY ? ENTROPY_OFF : projected;
    return (snd_plaw){sqrt(fmax(var, 0)), mean, hypot(s->off - s->limit, own), n};
}

static int networks(const survey *s) {
    return 2 * (s->alike ? PAIRS_ALIKE : PAIRS);
}

static sonde_status survey_all(survey *s) {
    SND_TRY(one(s, &(snd_tk_net){0}));
    SND_TRY(one(s, &(snd_tk_net){.attends = ATTEND_OFF}));
    for (int i = 0; i < networks(s); i++)
        SND_TRY(one(s, &(snd_tk_net){.lucky = true, .number = i / 2, .mirrored = i % 2}));
    return SONDE_OK;
}

sonde_status snd_p_nets(snd_prediction *p, sonde_status (*make)(void *self, snd_prediction *net), void *self) {
    survey s = {.p = p, .make = make, .self = self};
    const int64_t n = (int64_t)p->n_exits * p->n_taps;
    SND_NEW(p->arena, p->laws, n * SND_PM_COUNT);
    SND_NEW(p->arena, s.at, n * (SND_PM_COUNT - 1));
    SND_TRY(survey_all(&s));
    const sums *at = s.at;
    for (int e = 0; e < p->n_exits; e++)
        for (int i = 0; i < p->n_taps; i++)
            for (int m = SND_PM_NONE + 1; m < SND_PM_COUNT; m++)
                *snd_p_law(p, e, i, (snd_pmetric)m) =
                    law_of(at++, networks(&s), (snd_pmetric)m, (double)snd_tk_dim(p->tokens, p->taps[i].v));
    return SONDE_OK;
}
