// Front header of metrics/: every number that is printed about a value, as one row of metrics.def: where it applies, what
// the statistics node must compute for it, and how it is read off that node's vector. Definitions: docs/metrics.md.
#ifndef SND_METRICS_H
#define SND_METRICS_H

#include "ops/ops.h"

typedef enum snd_mwhere {
    SND_MW_NONE,
    SND_MW_VALUE,    // any forward value
    SND_MW_PREV,     // a stream, against the same stream one layer before
    SND_MW_FIRST,    // a stream, against in.x
    SND_MW_CALL,     // a sublayer's output, against the stream before its statement
    SND_MW_ATTN,     // a sublayer's output; from its attention's own statistics node
    SND_MW_GRAD,     // the gradient of a value
    SND_MW_PARAM,    // a parameter
    SND_MW_PGRAD     // a parameter's gradient
} snd_mwhere;

typedef struct snd_metric_row {
    const char *name;
    snd_mwhere where;
    bool log;                                   // get() gives a log10: the metric can leave double range
    int mask;                                   // SND_SM_* that the statistics node needs
    bool costly;                                // only when asked for by name or with a small batch
    double (*get)(const double *stat);          // NAN: undefined for these numbers
    const char *help;
} snd_metric_row;

int snd_metric_count(void);
const snd_metric_row *snd_metric_at(int i);
int snd_metric_find(const char *name);          // -1: none

/// Running mean and spread over seeds; numbers that are not finite are counted, never averaged.
typedef struct snd_moment { int64_t n, nonfinite; double mean, m2; } snd_moment;
void snd_moment_add(snd_moment *m, double v, bool log);   // log: -INFINITY (a zero) is a number; it makes the mean -INFINITY
double snd_moment_sd(const snd_moment *m);      // unbiased; NAN below two numbers

/// Least-squares slope of y over x with the half width of its 95 % interval; NAN below three points.
void snd_slope(const double *x, const double *y, int n, double *slope, double *half_width);
/// Student's t at the place where a standard normal is z > 0 (same probability); error below 1e-4 from 3 degrees of
/// freedom on, exact for 1 and 2. NAN below 1.
double snd_student_quantile(int dof, double z);
/// 97.5 % quantile of Student's t.
double snd_student_975(int dof);

#endif
