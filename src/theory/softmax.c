#include "theory/softmax.h"

#include <math.h>

enum { MOST_NODES = 129 };
static const double MOST = 8, EDGE = 6, Y_STEP = 0.3;

typedef struct nodes { // a trapezoidal rule over z, fine enough for exp(-e^(sd z - y))
    int n;
    double weight[MOST_NODES], score[MOST_NODES], power[MOST_NODES]; // score sd z, power e^score
} nodes;

static void fill(nodes *g, double sd) {
    const double step = fmin(0.5, 0.75 / sd);
    g->n = 1 + 2 * (int)ceil(EDGE / step);
    if (g->n > MOST_NODES) g->n = MOST_NODES;
    for (int i = 0; i < g->n; i++) {
        const double z = EDGE * (2.0 * i / (g->n - 1) - 1);
        g->weight[i] = 2 * EDGE / (g->n - 1) * exp(-0.5 * z * z) / sqrt(2 * 3.14159265358979323846);
        g->score[i] = sd * z;
        g->power[i] = exp(sd * z);
    }
}

// With u = e^(sd z - y): phi = E e^-u, h[k] = E u^k e^-u, hz = E sd z u e^-u.
typedef struct point {
    double phi, h[5], hz;
} point;

static point at(const nodes *g, double y) {
    point p = {0};
    const double scale = exp(-y);
    for (int i = 0; i < g->n; i++) {
        const double u = scale * g->power[i], e = g->weight[i] * exp(-u), u2 = u * u;
        p.phi += e;
        p.h[1] += e * u;
        p.h[2] += e * u2;
        p.h[3] += e * u2 * u;
        p.h[4] += e * u2 * u2;
        p.hz += e * u * g->score[i];
    }
    return p;
}

static snd_soft_law integrate(double n, double sd) {
    nodes g;
    fill(&g, sd);
    double one = 0, two = 0, three = 0, two_two = 0, mean = 0, log_z = 0;
    const double lo = log(n) - EDGE * sd - 4, hi = EDGE * sd + log(n) + 12;
    for (double y = lo; y < hi; y += Y_STEP) {
        const point p = at(&g, y);
        const double but_one = p.phi > 0 ? pow(p.phi, n - 1) : 0;
        log_z += exp(-exp(-y)) - but_one * p.phi;
        if (but_one == 0) continue;
        one += n * p.h[1] * but_one;
        two += n * p.h[2] * but_one;
        three += n * p.h[3] * but_one / 2;
        two_two += (n * p.h[4] * but_one + n * (n - 1) * p.h[2] * p.h[2] * but_one / p.phi) / 6;
        mean += n * p.hz * but_one;
    }
    for (double y = lo - Y_STEP; y > -4; y -= Y_STEP)
        log_z += exp(-exp(-y)); // E log Z = integral of e^-lambda - phi^n over log lambda
    // E sum A = 1 tells the quadrature's own error
    return (snd_soft_law){two / one, (two - 2 * three + two_two) / one, Y_STEP * log_z - mean / one};
}

snd_soft_law snd_softmax_law(double n, double sd) {
    if (!(sd > 1e-7) || n <= 1) return (snd_soft_law){1 / n, (1 - 1 / n) / n, log(n)};
    if (sd <= MOST) return integrate(n, sd);
    // One key has all, unless the runner-up comes within a few units, which happens with probability ~ 1/sd; the spread
    // gets there more slowly (fitted to simulations of 4 to 64 keys, sd up to 64).
    const snd_soft_law l = integrate(n, MOST);
    const double rare = MOST / sd, lag = fmax(0, 0.63 * log(n) - 0.4);
    return (snd_soft_law){1 - (1 - l.square) * rare, l.spread * rare * (1 - lag / sd) / (1 - lag / MOST),
                          l.entropy * rare};
}

// ---- the table --------------------------------------------------------------------------------------------------------------

static const double KEYS_FROM = 0.1, KEYS_STEP = 0.36, SPREADS_FROM = -2.4, SPREADS_STEP = 0.31; // of log n, log sd

static snd_soft_factors factors(double n, double sd, double head_dim) {
    const double stray = fmin(sqrt(2 / head_dim), 0.9); // of the variance: two points with its mean and spread
    const snd_soft_law a = snd_softmax_law(n, sd * sqrt(1 - stray)), b = snd_softmax_law(n, sd * sqrt(1 + stray));
    const double square = (a.square + b.square) / 2, g = log((n - 1) * square / (1 - square));
    return (snd_soft_factors){.exponent = g / (sd * sd),
                              .spread = (a.spread + b.spread) / 2 / (square * (1 - 1 / n)),
                              .entropy = (a.entropy + b.entropy) / 2 / log(n)};
}

static const snd_soft_factors *point_at(snd_soft_table *t, int i, int j) {
    if (!t->known[i][j]) {
        t->known[i][j] = true;
        t->at[i][j] = factors(exp(KEYS_FROM + KEYS_STEP * i), exp(SPREADS_FROM + SPREADS_STEP * j), t->head_dim);
    }
    return &t->at[i][j];
}

static double place(double v, double from, double step, int n, int *i) {
    const double x = fmin(fmax((v - from) / step, 0), n - 1.0);
    *i = (int)fmin(floor(x), n - 2.0);
    return x - *i;
}

snd_soft_factors snd_softmax_factors(snd_soft_table *t, double n, double sd) {
    const double last = exp(SPREADS_FROM + SPREADS_STEP * (SND_SOFT_SPREADS - 1));
    int i, j;
    if (!(sd > exp(SPREADS_FROM))) return (snd_soft_factors){1, 1, 1};
    if (sd > last) { // what the largest leaves falls as 1/sd
        const snd_soft_factors f = snd_softmax_factors(t, n, last);
        return (snd_soft_factors){(f.exponent * last * last + log(sd / last)) / (sd * sd), f.spread * last / sd,
                                  f.entropy * last / sd};
    }
    const double x = place(log(n), KEYS_FROM, KEYS_STEP, SND_SOFT_KEYS, &i);
    const double y = place(log(sd), SPREADS_FROM, SPREADS_STEP, SND_SOFT_SPREADS, &j);
    double exponent = 0, spread = 0, entropy = 0;
    for (int k = 0; k < 4; k++) {
        const snd_soft_factors *f = point_at(t, i + k / 2, j + k % 2);
        const double w = (k / 2 ? x : 1 - x) * (k % 2 ? y : 1 - y);
        exponent += w * log(f->exponent);
        spread += w * log(f->spread);
        entropy += w * f->entropy;
    }
    return (snd_soft_factors){exp(exponent), exp(spread), entropy};
}

double snd_softmax_common(snd_soft_table *t, double n, double sd, double r) {
    if (!(r > 1e-9) || !(sd > 0)) return snd_softmax_factors(t, n, sd).exponent;
    if (r > 1) r = 1;
    const double var = sd * sd, smooth = 0.4 * var / (var + 8); // as a probit is a flatter logistic
    const double common = var * r / (1 + smooth * (1 - r) * var);
    return snd_softmax_factors(t, n, sqrt(common)).exponent * common / (var * r);
}
