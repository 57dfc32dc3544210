// What predicting and measuring leave behind: per named value and metric, theory, band and measurement; verdicts; JSON,
// CSV and the HTML report. Metrics are defined in docs/metrics.md, names in docs/formulas.md, section 7.
#ifndef SONDE_RECORD_H
#define SONDE_RECORD_H

#include <sonde/status.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sonde_record sonde_record;

/// One metric of one value. Numbers that do not exist are NAN. When `log10` is 1, every number is a log10 of the metric
/// (mean square 1e116 is 116), and means are means of logs.
typedef struct sonde_metric {
    int log10;
    double mean, sd;        ///< measured, over seeds (NAN in a prediction)
    double predicted;       ///< theory
    double lo, hi;          ///< 95 % band of the mean
    double z;               ///< distance of the mean from the band's centre in standard deviations
} sonde_metric;

typedef struct sonde_verdict {
    const char *rule, *level, *where;   ///< level: "ok", "info", "warn", "error"; where: the first value concerned
    double value, threshold;
    const char *why, *remedy;
} sonde_verdict;

SONDE_API void sonde_record_destroy(sonde_record *r);   ///< NULL is fine
/// Runs in a record: one model at one depth each.
SONDE_API int sonde_record_runs(const sonde_record *r);
SONDE_API int64_t sonde_record_depth(const sonde_record *r, int run);
/// Named values of a run in running order ("in.x", "layers.0.F.in", ..., "out.x"). Borrowed.
SONDE_API int sonde_record_values(const sonde_record *r, int run);
SONDE_API const char *sonde_record_value_name(const sonde_record *r, int run, int value);
/// errors  SONDE_ENAME: no such run, value or metric
SONDE_API sonde_status sonde_record_metric(const sonde_record *r, int run, const char *value, const char *metric, sonde_metric *out) SONDE_MUST_CHECK;
SONDE_API int sonde_record_verdicts(const sonde_record *r);
/// Texts are borrowed from the record. errors  SONDE_ENAME: no verdict of this number
SONDE_API sonde_status sonde_record_verdict(const sonde_record *r, int i, sonde_verdict *out) SONDE_MUST_CHECK;
/// Measured numbers that were not finite.
SONDE_API int64_t sonde_record_nonfinite(const sonde_record *r);

/// The document of docs/formulas.md, section 9. *json is the caller's, freed with sonde_free.
SONDE_API sonde_status sonde_record_json(const sonde_record *r, char **json) SONDE_MUST_CHECK;
/// result.json, result.csv, spec.yaml and report.html in `folder`, which is made if need be; written under temporary
/// names and renamed.
SONDE_API sonde_status sonde_record_write(const sonde_record *r, const char *folder) SONDE_MUST_CHECK;
/// Reads a result.json, or a folder that has one.
SONDE_API sonde_status sonde_record_read(const char *path, sonde_record **out) SONDE_MUST_CHECK;
SONDE_API void sonde_free(void *p);

#ifdef __cplusplus
}
#endif
#endif
