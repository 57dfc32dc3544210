// The table of metrics and the small statistics over seeds and layers. Exponents come with the statistics vector, so
// that a mean square of 1e116 is a number in every type.
#include "metrics/metrics.h"

#include <math.h>
#include <string.h>

static const double LOG10_2 = 0.301029995663981195213738894724;

static double log10_of(double v, double exponent2) {
    return v < 0 ? NAN : log10(v) + exponent2 * LOG10_2;
}

static double get_q(const double *s) {
    return log10_of(s[SND_ST_Q], 2 * s[SND_ST_EXP]);
}
static double get_rms(const double *s) {
    return 0.5 * get_q(s);
}
static double get_mean(const double *s) {
    return ldexp(s[SND_ST_MEAN], (int)s[SND_ST_EXP]);
}
static double get_var(const double *s) {
    return log10_of(s[SND_ST_VAR], 2 * s[SND_ST_EXP]);
}
static double get_bvar(const double *s) {
    return log10_of(s[SND_ST_BVAR], 2 * s[SND_ST_EXP]);
}
static double get_cos(const double *s) {
    return s[SND_ST_COS];
}
static double get_pearson(const double *s) {
    return s[SND_ST_PEARSON];
}
static double get_tokcos(const double *s) {
    return s[SND_ST_TOKCOS];
}
static double get_tokpearson(const double *s) {
    return s[SND_ST_TOKPEARSON];
}
static double get_gtok(const double *s) {
    return log10_of(s[SND_ST_TOKMEAN], 2 * s[SND_ST_EXP]);
}
static double get_gdev(const double *s) {
    return log10_of(s[SND_ST_TOKDEV], 2 * s[SND_ST_EXP]);
}
static double get_entropy(const double *s) {
    return s[SND_AS_SHARE];
}
static double get_maxlogit(const double *s) {
    return s[SND_AS_MAXLOGIT];
}
static double get_rowcos(const double *s) {
    return s[SND_ST_ROWCOS];
}
static double get_ratio(const double *s) {
    return log10_of(s[SND_ST_RATIO], 0);
}
static double get_absmax(const double *s) {
    return log10_of(s[SND_ST_ABSMAX], s[SND_ST_EXP]);
}
static double get_row(const double *s) {
    return s[SND_ST_AT];
} // split into row and feature by who knows the width
static double get_feature(const double *s) {
    return s[SND_ST_AT];
}
static double get_kurt(const double *s) {
    return s[SND_ST_KURT];
}
static double get_rank(const double *s) {
    return s[SND_ST_RANK];
}
static double headroom(const double *s, double largest) {
    return s[SND_ST_ABSMAX] > 0 ? log2(largest) - log2(s[SND_ST_ABSMAX]) - s[SND_ST_EXP] : NAN;
}
static double get_f16(const double *s) {
    return headroom(s, 65504);
}
static double get_bf16(const double *s) {
    return headroom(s, 3.3895313892515355e38);
}
static double get_f16_under(const double *s) {
    return s[SND_ST_UNDER_F16];
}
static double get_bf16_under(const double *s) {
    return s[SND_ST_UNDER_BF16];
}

static const snd_metric_row TABLE[] = {
#define SND_METRIC(NAME, WHERE, LOG, MASK, COSTLY, GET, HELP) {NAME, WHERE, LOG, MASK, COSTLY, GET, HELP},
#include "metrics/metrics.def"
#undef SND_METRIC
};
enum { N_METRICS = sizeof TABLE / sizeof *TABLE };

int snd_metric_count(void) {
    return N_METRICS;
}
const snd_metric_row *snd_metric_at(int i) {
    return &TABLE[i];
}

int snd_metric_find(const char *name) {
    for (int i = 0; i < N_METRICS; i++)
        if (!strcmp(TABLE[i].name, name)) return i;
    return -1;
}

// Welford's update: no difference of large sums.
void snd_moment_add(snd_moment *m, double v, bool log) {
    if (!isfinite(v) && !(log && v == -INFINITY)) {
        m->nonfinite++;
        return;
    }
    m->n++;
    if (v == -INFINITY || m->mean == -INFINITY) { // a zero: its logarithm says so, whatever the other seeds are
        m->mean = -INFINITY;
        m->m2 = NAN;
        return;
    }
    const double d = v - m->mean;
    m->mean += d / (double)m->n;
    m->m2 += d * (v - m->mean);
}

double snd_moment_sd(const snd_moment *m) {
    return m->n < 2 ? NAN : sqrt(m->m2 / (double)(m->n - 1));
}

double snd_student_quantile(int dof, double z) {
    if (dof < 1) return NAN;
    if (dof == 1) return tan(M_PI * (0.5 * erfc(-z * M_SQRT1_2) - 0.5));
    // Hill 1970 (Communications of the ACM, algorithm 396) from the probability of both tails
    const double n = dof, p = erfc(z * M_SQRT1_2);
    if (dof == 2) return sqrt(2 / (p * (2 - p)) - 2);
    const double a = 1 / (n - 0.5), b = 48 / (a * a);
    double c = ((20700 * a / b - 98) * a - 16) * a + 96.36;
    const double d = ((94.5 / (b + c) - 3) / b + 1) * sqrt(a * M_PI_2) * n;
    double y = pow(d * p, 2 / n);
    if (y > 0.05 + a) {
        const double x = -z;
        y = x * x;
        if (dof < 5) c += 0.3 * (n - 4.5) * (x + 0.6);
        c = (((0.05 * d * x - 5) * x - 7) * x - 2) * x + b + c;
        y = (((((0.4 * y + 6.3) * y + 36) * y + 94.5) / c - y - 3) / b + 1) * x;
        y = a * y * y;
        y = y > 0.002 ? expm1(y) : 0.5 * y * y + y;
    } else {
        y = ((1 / (((n + 6) / (n * y) - 0.089 * d - 0.822) * (n + 2) * 3) + 0.5 / (n + 4)) * y - 1) * (n + 1) /
                (n + 2) +
            1 / y;
    }
    return sqrt(n * y);
}

double snd_student_975(int dof) {
    return snd_student_quantile(dof, 1.959963985);
}

void snd_slope(const double *x, const double *y, int n, double *slope, double *half_width) {
    double sx = 0, sy = 0, sxx = 0, sxy = 0, syy = 0;
    *slope = *half_width = NAN;
    if (n < 3) return;
    for (int i = 0; i < n; i++) sx += x[i] / n, sy += y[i] / n;
    for (int i = 0; i < n; i++) {
        sxx += (x[i] - sx) * (x[i] - sx);
        sxy += (x[i] - sx) * (y[i] - sy);
        syy += (y[i] - sy) * (y[i] - sy);
    }
    if (!(sxx > 0)) return;
    *slope = sxy / sxx;
    const double rest = syy - *slope * sxy;
    *half_width = snd_student_975(n - 2) * sqrt((rest > 0 ? rest : 0) / (n - 2) / sxx);
}
