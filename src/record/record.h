// Front header of record/: what predict, measure and demo found, in memory, and its JSON, CSV and YAML on disk.
// A record holds runs (one model at one depth), panels (curves over depth or layer), tables and verdicts. Whoever
// computes fills it through the functions below; report/ and the command line only read it.
//
// Filling never needs a check per line: a failed allocation is remembered, later calls do nothing harmful, and
// snd_record_status tells. Everything lives in the arena given at creation; pointers stay valid while it lives.
//
//   snd_record *r = snd_record_create(arena, SND_REC_MEASURE);
//   snd_run *u = snd_record_run(r, "pre", "each: x = x + F(N(x))");
//   u->seed = 0; u->seeds = 10; u->dtype = "f32"; u->depth = 32;
//   snd_run_setting(u, "width", "256", true);                        // or snd_spec_each with snd_run_put as callback
//   snd_rvalue *v = snd_run_value(u, "layers.3.x", 3);
//   snd_metric *m = snd_value_metric(v, "q", true);                  // true: every number of m is a log10
//   m->mean = 0.70; m->sd = 0.01; m->predicted = 0.699; m->lo = 0.67; m->hi = 0.72; m->z = 0.1;
//
// A number that is absent is NAN with its flag unset; a number that was measured and is not finite is NAN or INFINITY
// with `measured` set, and is written as null.
#ifndef SND_RECORD_H
#define SND_RECORD_H

#include "base/base.h"

typedef enum snd_record_kind {
    SND_REC_INVALID, SND_REC_PREDICT, SND_REC_MEASURE, SND_REC_DEMO, SND_REC_TRAIN, SND_REC_KIND_COUNT
} snd_record_kind;
const char *snd_record_schema(snd_record_kind k);    // "sonde.measure/1"

typedef enum snd_level { SND_LEVEL_INVALID, SND_LEVEL_OK, SND_LEVEL_INFO, SND_LEVEL_WARN, SND_LEVEL_ERROR, SND_LEVEL_COUNT } snd_level;
const char *snd_level_name(snd_level l);             // "ok", "info", "warn", "error"
snd_level snd_level_find(const char *name);          // SND_LEVEL_INVALID: none

// One metric (a row of docs/metrics.md) of one value, parameter or run. When `log` is set, mean, sd, predicted and
// the bands are log10 of the metric: growth leaves every float type. z has no unit. Absent numbers are NAN.
typedef struct snd_metric {
    const char *name;
    bool log;
    bool measured;               // mean counts: set by snd_value_metric for measure and demo records
    double mean, sd;             // over seeds; mean of the logs when log
    double predicted;
    double lo, hi;               // 95 % band of the prediction, for a mean over this many seeds
    double lo999, hi999;         // 99.9 % band
    double z;                    // (mean - predicted) / sd of the law, in the scale above
} snd_metric;

typedef struct snd_record snd_record;

typedef struct snd_rvalue {      // a value, a parameter, or (name "") a run's summary
    snd_record *rec;
    const char *name;            // "layers.3.x", "grad.in.x", "stem.weight"
    int layer;                   // from 0; -1: not in a layer
    snd_metric **metrics; int n_metrics, cap;
} snd_rvalue;

typedef struct snd_verdict {
    const char *rule;            // name of the rule, e.g. "stream-overflow"
    snd_level level;
    const char *where;           // first place: "layers.41.x"
    const char *run;             // label of the run it is about; NULL: the whole record
    double value, threshold;     // NAN: absent
    bool log;                    // value and threshold are log10
    const char *why, *remedy;    // one sentence each; remedy is "try" in JSON
} snd_verdict;

typedef struct snd_setting { const char *key, *text; bool bare; } snd_setting;   // bare: a number or true/false

typedef struct snd_run {         // one model at one depth
    snd_record *rec;
    const char *label;           // "pre": equal labels at several depths are one curve
    const char *formula;         // the first thing every result shows
    const char *input;           // "64 x 256, iid N(0,1)"; NULL: none
    const char *dtype;           // "f32"; predict: of the bands
    const char *spec_yaml;       // resolved spec as YAML; NULL: not known
    uint64_t seed; int seeds;
    int64_t depth;               // layers
    double band_level;           // 0.95
    const double *draw_sec, *run_sec;    // of each seed: drawing weights; forward, backward and statistics. NULL: absent
    int64_t nonfinite;           // measured numbers (value x metric x seed) that were not finite
    snd_setting *settings; int n_settings, settings_cap;
    snd_rvalue **values; int n_values, values_cap;     // in running order: in.x, layers.0.F.in, ..., out.x, then grad.
    snd_rvalue **params; int n_params, params_cap;
    snd_rvalue *summary;         // growth, gratio, slopes; never NULL
} snd_run;

typedef struct snd_ref { double x, y; const char *text; } snd_ref;   // a stated value to compare with, in the panel's scale

typedef struct snd_series {      // n points; y, theory, lo, hi are NULL when absent, NAN where unknown, log10 when the panel's log
    const char *label;           // equal labels share colour and legend switch over the whole report
    const char *formula;         // NULL or the wiring
    int n;
    double *x, *y, *sd, *theory, *lo, *hi;
    snd_ref *refs; int n_refs, refs_cap;
} snd_series;

typedef struct snd_panel {
    snd_record *rec;
    const char *title, *caption; // caption: sentences, NULL for none
    const char *x_name, *y_name; // "depth", "variance over the batch"
    bool log, xlog;              // numbers on y are log10; x is best read on a log axis (1, 2, 4, ... 256)
    snd_series **series; int n_series, cap;
} snd_panel;

typedef struct snd_heatmap {   // a quantity over two axes as colours: z[row][column], NAN where unknown, log10 when `log`
    snd_record *rec;
    const char *title, *label;   // those of one title share a scale; label: whose it is ("pre")
    const char *x_name, *y_name, *z_name;              // "step", "layer", "root mean square"
    bool log;
    int n_x, n_rows;
    double *x;                   // of the columns, ascending
    const char **rows;           // names, the first row lowest
    double *z;
} snd_heatmap;

typedef struct snd_cell { const char *text; double num; bool log; } snd_cell;   // text NULL: num (a log10 when log)
typedef struct snd_rtable {      // a small table beside the curves: the lecture's check values, a bench
    snd_record *rec;
    const char *title, *caption;
    const char **columns; int n_columns;
    snd_cell *cells; int n_cells, cap;                 // row-major, filled by snd_rtable_text and snd_rtable_num
} snd_rtable;

struct snd_record {
    snd_arena *arena;
    snd_record_kind kind;
    const char *title;           // NULL: made from the runs
    const char *command;         // the command that made it, NULL: unknown
    const char *version;         // of the program
    const char *place;           // file or folder that it was read from; NULL: made here
    snd_run **runs; int n_runs, runs_cap;
    snd_verdict **verdicts; int n_verdicts, verdicts_cap;
    snd_panel **panels; int n_panels, panels_cap;
    snd_heatmap **heatmaps; int n_heatmaps, heatmaps_cap;
    snd_rtable **tables; int n_tables, tables_cap;
    const char **notes; int n_notes, notes_cap;        // one sentence each
    bool failed;                 // an allocation failed
};

// ---- filling ----------------------------------------------------------------------------------------------------------

snd_record *snd_record_create(snd_arena *a, snd_record_kind kind);      // NULL: out of memory (error recorded)
sonde_status snd_record_status(const snd_record *r) SONDE_MUST_CHECK;    // SONDE_ENOMEM when anything was lost
/// Texts are copied into the record's arena by every function below; fields set directly are borrowed.
const char *snd_record_text(snd_record *r, const char *fmt, ...) SND_PRINTF(2, 3);
snd_run *snd_record_run(snd_record *r, const char *label, const char *formula);
void snd_run_setting(snd_run *u, const char *key, const char *text, bool bare);
void snd_run_put(void *run, const char *key, const char *text, bool bare);   // the same, as snd_spec_each wants it
snd_rvalue *snd_run_value(snd_run *u, const char *name, int layer);          // appends
snd_rvalue *snd_run_param(snd_run *u, const char *name, int layer);
snd_metric *snd_value_metric(snd_rvalue *v, const char *name, bool log);     // the metric, made (all absent) on first use
snd_verdict *snd_record_verdict(snd_record *r, const char *rule, snd_level level, const char *where);
void snd_record_note(snd_record *r, const char *fmt, ...) SND_PRINTF(2, 3);
/// "LABEL: note"; a note that is there already gets the label in front ("pre, post: note"), if it lacks it.
void snd_record_note_on(snd_record *r, const char *label, const char *note);
/// The panel of this title, made when there is none: runs of one record meet in it.
snd_panel *snd_record_panel_of(snd_record *r, const char *title, const char *x_name, const char *y_name, bool log);
snd_panel *snd_record_panel(snd_record *r, const char *title, const char *x_name, const char *y_name, bool log);
/// n points; every array given here and below is copied (n numbers, NAN where unknown).
snd_series *snd_panel_series(snd_panel *p, const char *label, const double *x, int n);
void snd_series_y(snd_panel *p, snd_series *s, const double *y);
void snd_series_sd(snd_panel *p, snd_series *s, const double *sd);
void snd_series_theory(snd_panel *p, snd_series *s, const double *theory);
void snd_series_band(snd_panel *p, snd_series *s, const double *lo, const double *hi);
void snd_series_ref(snd_panel *p, snd_series *s, double x, double y, const char *text);
/// A heat map of n_x columns at x and n_rows rows, both at least 1; what it holds is NAN until snd_heatmap_put.
snd_heatmap *snd_record_heatmap(snd_record *r, const char *title, const char *label, const double *x, int n_x,
                             const char *const *rows, int n_rows);
void snd_heatmap_axes(snd_heatmap *m, const char *x_name, const char *y_name, const char *z_name, bool log);
void snd_heatmap_put(snd_heatmap *m, int row, int column, double z);
snd_rtable *snd_record_table(snd_record *r, const char *title, const char *const *columns, int n);
void snd_rtable_text(snd_rtable *t, const char *text);
void snd_rtable_num(snd_rtable *t, double v, bool log);

// ---- reading what is in it ----------------------------------------------------------------------------------------------

const snd_rvalue *snd_run_find(const snd_run *u, const char *name);          // value by name, NULL: none
const snd_metric *snd_value_find(const snd_rvalue *v, const char *metric);   // NULL: none
double snd_metric_linear(const snd_metric *m, double v);                     // v, or 10^v when log (may be INFINITY)
bool snd_metric_outside(const snd_metric *m);                                // measured, has a band, lies outside or is not finite
const char *snd_run_setting_of(const snd_run *u, const char *key);             // text of a setting, NULL: none
/// The same, but NULL for the norm and the eps of an mlp or convnet whose formula and block have no norm to use them.
const char *snd_run_setting_used(const snd_run *u, const char *key);
/// What others state of a panel's curves, as a sentence: "lecture: plain 0.48 at depth 1, 1.0 at depth 256; ...". Appends.
void snd_panel_stated(const snd_panel *p, snd_buf *b);
snd_level snd_record_worst(const snd_record *r);                             // highest verdict level; OK when there are none
int64_t snd_record_nonfinite(const snd_record *r);

/// Length of the UTF-8 sequence at s, 0 when the bytes there are not one.
int snd_utf8_sequence(const char *s);
/// A number for people: `digits` significant ones, zeros kept (2.000), no exponent where %g has none.
char *snd_pretty(char out[40], double v, int digits);
char *snd_pretty_log10(char out[40], double log10_abs, int digits);          // 116.2 -> "1.58e+116"
char *snd_pretty_limit(char out[40], double v, bool log);   // a limit as it was set: 65504, 20, 0.0001

// ---- on disk ------------------------------------------------------------------------------------------------------------

/// docs/formulas.md section 9. One run: its keys stand at the top level; several: in "runs", each of the same form.
void snd_record_json(const snd_record *r, snd_buf *b);
/// Long form, one row per value and metric (log metrics carry log10 columns as well); header line first.
void snd_record_csv(const snd_record *r, snd_buf *b);
/// One row per panel, series and point.
void snd_record_panels_csv(const snd_record *r, snd_buf *b);
/// result.json, result.csv, panels.csv (when there are panels), spec.yaml (the first run's; others as spec-LABEL.yaml).
sonde_status snd_record_write(const snd_record *r, const char *dir) SONDE_MUST_CHECK;
/// The same files, added to those that the caller places. The folder is made.
sonde_status snd_record_put(const snd_record *r, const char *dir, snd_files *to) SONDE_MUST_CHECK;
/// Text of a result.json. `where` names it in messages. SONDE_EINPUT for JSON that is not a record.
sonde_status snd_record_parse(snd_arena *a, const char *json, size_t n, const char *where, snd_record **out) SONDE_MUST_CHECK;
/// A file, or a folder with a result.json.
sonde_status snd_record_read(snd_arena *a, const char *path, snd_record **out) SONDE_MUST_CHECK;

// ---- a JSON writer ------------------------------------------------------------------------------------------------------
// Streams valid JSON into a buffer: commas, indentation and escapes are its work, nesting is the caller's (asserted).
// Numbers are the shortest text that reads back equal, whatever the locale; non-finite ones are null. Invalid UTF-8
// becomes U+FFFD. `html` escapes < > & and U+2028/9 so that the text can stand inside <script>.

typedef struct snd_json {
    snd_buf *b;
    bool html, tight;            // tight: no line breaks at all
    int digits;                  // significant digits of numbers; 0: enough to read back equal
    int depth, flat;             // flat > 0: at this depth and below, one line
    bool first[64];
} snd_json;
snd_json snd_json_start(snd_buf *b);
void snd_json_open(snd_json *j, const char *key, char bracket);      // '{' or '['; key NULL inside arrays and at the top
void snd_json_open_flat(snd_json *j, const char *key, char bracket); // the whole of it on one line
void snd_json_close(snd_json *j, char bracket);
void snd_json_str(snd_json *j, const char *key, const char *s);      // s NULL: null
void snd_json_num(snd_json *j, const char *key, double v);
void snd_json_int(snd_json *j, const char *key, int64_t v);
void snd_json_bool(snd_json *j, const char *key, bool v);
void snd_json_setting(snd_json *j, const char *key, const char *text, bool bare);   // bare: number or true/false as it stands
void snd_json_nums(snd_json *j, const char *key, const double *v, int n);           // v NULL: nothing is written

#endif
