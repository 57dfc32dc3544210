// Front header of cli/: what a verb's file (verb_NAME.c) may use. Only this folder prints, reads argv and exits.
//
// A verb is one row of verbs.def and one function `sonde_status snd_verb_NAME(snd_cli *c)`. By the time it runs, its
// options are parsed and checked against options.def. It returns a status; main turns that into text and an exit code:
//
//   sonde_status snd_verb_predict(snd_cli *c) {
//       snd_spec *spec;
//       SND_TRY(snd_cli_load_spec(c, &spec));              // SPEC, key=value, and the file's measure: part as options
//       snd_record *r = snd_record_create(c->arena, SND_REC_PREDICT);
//       ...
//       return snd_cli_result(c, r);                        // table, --json or --csv on stdout, files for -o
//   }
//
// Exit codes: 0; 1 findings (--fail-on, or c->exit_code set by the verb); 2 a bad word on the command line; 3 a bad
// file; 4 diverged; 130 interrupted.
#ifndef SND_CLI_H
#define SND_CLI_H

#include "record/record.h"
#include "spec/spec.h"

typedef enum snd_operands {
    SND_OPS_NONE,      // no operand at all
    SND_OPS_SPEC,      // SPEC [key=value ...]
    SND_OPS_WORDS,     // free words in c->words
    SND_OPS_FILES      // the same, named FILE in messages; at least one
} snd_operands;

typedef struct snd_cli snd_cli;
typedef struct snd_verb {
    const char *name;
    snd_operands operands;
    const char *summary;       // one line
    const char *usage;         // after "sonde NAME ", e.g. "SPEC [key=value ...] [--options]"
    const char *examples;      // lines that work as they stand
    sonde_status (*run)(snd_cli *c);
} snd_verb;
int snd_verb_count(void);
const snd_verb *snd_verb_at(int i);
const snd_verb *snd_verb_find(const char *name);

#define SND_VERB(name, operands, summary, usage, examples) sonde_status snd_verb_##name(snd_cli *c);
#include "cli/verbs.def"
#undef SND_VERB

typedef enum snd_opt_type {
    SND_OPT_FLAG, SND_OPT_INT, SND_OPT_NUM, SND_OPT_STR,
    SND_OPT_INTS,      // 1,2,4..64 : a..b goes up by doubling, a:b:step by adding
    SND_OPT_STRS,      // a,b,c (commas inside parentheses do not split)
    SND_OPT_BYTES,     // 800M, 2G, 1.5GiB
    SND_OPT_SECONDS,   // 30, 90s, 2m, 1h
    SND_OPT_WORD       // one of the words in `arg`, separated by |
} snd_opt_type;
typedef struct snd_opt_row {
    const char *name; char letter;     // letter 0: none
    snd_opt_type type;
    const char *arg;                   // shown in help: N, LIST, DIR; WORD: "f32|f64"
    double min, max;
    const char *verbs;                 // " predict measure " or "*"
    const char *help;
    const char *use;                   // what it has an effect with (data/settings.def); "": always
} snd_opt_row;
int snd_opt_count(void);
const snd_opt_row *snd_opt_at(int i);
bool snd_opt_applies(const snd_opt_row *o, const char *verb);

struct snd_cli {
    snd_arena *arena;                  // lives until the process ends
    const snd_verb *verb;
    const char *spec_word;             // SPEC, or NULL
    snd_spec_text spec_text;           // of the file that SPEC names, once it has been read
    const char **overrides; int n_overrides;
    const char **words; int n_words;
    struct snd_opt_value *values;      // one per option row
    const char *command;               // the whole command line, quoted for a shell
    snd_spec *spec;              // the last one loaded: decides between exit 2 and 3 for later failures
    bool file_at_fault;                // the failure being returned came from a file
    bool json, csv, quiet, full;
    bool tty_out, tty_err, utf8, color, color_err;
    int columns, columns_err;          // of the terminal; 100 when there is none (stderr: no limit)
    const char *out_dir;               // NULL: none
    int exit_code;                     // what a successful verb exits with
    int out_errno;                     // why stdout failed first; 0: it has not
    snd_stop *stop;                    // set by SIGINT
};

// ---- options (the row must exist; asserted) ---------------------------------------------------------------------------

bool snd_opt_given(const snd_cli *c, const char *name);
bool snd_opt_flag(const snd_cli *c, const char *name);
int64_t snd_opt_int(const snd_cli *c, const char *name, int64_t dflt);      // INT, BYTES
double snd_opt_num(const snd_cli *c, const char *name, double dflt);        // NUM, SECONDS
const char *snd_opt_str(const snd_cli *c, const char *name, const char *dflt);   // STR, WORD
const char *snd_opt_text(const snd_cli *c, const char *name);               // any type, as it was given; NULL: not
bool snd_opt_said(const snd_cli *c, const char *name);                      // given, and not by a file
int snd_opt_ints(const snd_cli *c, const char *name, const int64_t **v);    // 0: not given
int snd_opt_strs(const snd_cli *c, const char *name, const char *const **v);

/// What a run turned out to be: "dtype" is "f32".
typedef struct snd_fact { const char *key, *value; } snd_fact;
/// Refuses what was said on the command line and has no effect under these facts; what a file says may be for other runs.
/// errors  SONDE_EUSAGE: names option, fact found and needed
sonde_status snd_opt_check_use(const snd_cli *c, const snd_fact *facts, int n) SONDE_MUST_CHECK;

// ---- the spec -----------------------------------------------------------------------------------------------------------

/// SPEC with its overrides; then the file's section named like the verb (or measure: for predict; train: for describe
/// --plan) sets the options the command line left open.
sonde_status snd_cli_load_spec(snd_cli *c, snd_spec **out) SONDE_MUST_CHECK;
/// The same, where data may tell what is missing (snd_spec_load_open).
sonde_status snd_cli_load_open(snd_cli *c, snd_spec **out) SONDE_MUST_CHECK;
/// The same settings under another wiring (`--wirings`): SPEC's overrides with wiring=KEY appended.
sonde_status snd_cli_load_wiring(snd_cli *c, const char *wiring, snd_spec **out) SONDE_MUST_CHECK;
/// With overrides of the caller's own behind them ("layers=64"): depth sweeps.
sonde_status snd_cli_load_with(snd_cli *c, const char *const *more, int n_more, snd_spec **out) SONDE_MUST_CHECK;

/// The settings of training by those of their options that the verb has.
struct snd_train_settings;
sonde_status snd_cli_train_settings(const snd_cli *c, struct snd_train_settings *s) SONDE_MUST_CHECK;

// ---- output ---------------------------------------------------------------------------------------------------------------

/// Everything a verb with a record has to show: stdout by --json, --csv or as tables; the files of -o; the exit code by
/// --fail-on. Fills in r->command and r->version.
sonde_status snd_cli_result(snd_cli *c, snd_record *r) SONDE_MUST_CHECK;
/// The end of a verb whose work returned s: what an interrupt left in the record is shown and written all the same.
sonde_status snd_cli_finish(snd_cli *c, snd_record *r, sonde_status s) SONDE_MUST_CHECK;
/// Asks before the work whether -o can be written and would write over a file that is read. spec: the one that SPEC
/// names, NULL if there is none.
sonde_status snd_cli_check_out(snd_cli *c, const snd_spec *spec) SONDE_MUST_CHECK;
/// And over this file, which is read (NULL: none).
sonde_status snd_cli_check_read(const snd_cli *c, const char *path) SONDE_MUST_CHECK;
/// The record as text: formula and settings, verdicts, sparklines, per-layer table, panels.
void snd_cli_show(snd_cli *c, const snd_record *r);

void snd_print(snd_cli *c, const char *fmt, ...) SND_PRINTF(2, 3);     // stdout
void snd_put(snd_cli *c, const snd_buf *b);                            // stdout
void snd_put_bytes(snd_cli *c, const char *s, size_t n);               // stdout
void snd_note(snd_cli *c, const char *fmt, ...) SND_PRINTF(2, 3);      // stderr, silent with --quiet
typedef enum snd_ink { SND_INK_PLAIN, SND_INK_BOLD, SND_INK_DIM, SND_INK_RED, SND_INK_YELLOW, SND_INK_GREEN, SND_INK_BLUE } snd_ink;
/// "1.23 G"
const char *snd_si(char out[40], double v);
/// Text in colour where stdout takes it, else as it stands.
void snd_ink_put(const snd_cli *c, snd_buf *b, snd_ink ink, const char *s);
/// Words wrapped, every line indented. SND_GLUE prints as a blank at which no line is broken.
enum { SND_GLUE = 1 };
void snd_wrap(snd_buf *b, const char *text, int indent, int columns);

/// A table with aligned columns: numbers to the right, text to the left; widths count characters, not bytes.
typedef struct snd_text_table snd_text_table;
snd_text_table *snd_table(snd_cli *c, int n_columns);
void snd_table_head(snd_text_table *t, const char *const *names);
void snd_table_left(snd_text_table *t, int column);                    // left-aligned column (default: right)
void snd_table_cell(snd_text_table *t, const char *text);              // row by row
void snd_table_join(snd_text_table *t, const char *text);              // more text for the last cell
void snd_table_ink(snd_text_table *t, snd_ink ink);                    // of the last cell
void snd_table_num(snd_text_table *t, double v, int digits);           // NAN: "-"
void snd_table_log10(snd_text_table *t, double log10_abs, int digits); // 116.2 -> 1.6e+116
void snd_table_int(snd_text_table *t, int64_t v);
void snd_table_print(snd_text_table *t);                               // to stdout, with c's colours

/// n values as block characters (or digits 1-8 without UTF-8), at most `width` wide, lo the lowest and hi the highest
/// step; NAN is a blank.
void snd_sparkline(const snd_cli *c, snd_buf *b, const double *v, int n, int width, double lo, double hi);
/// Widens lo..hi to what the same sparkline shows of v; start from INFINITY and -INFINITY.
void snd_spark_range(const double *v, int n, int width, double *lo, double *hi);
void snd_spark_least(bool log, double *lo, double *hi);                // at least a factor of 2 (log), or 0.1

/// A progress bar on stderr, with time left; silent unless stderr is a terminal and --quiet is off. Returns true when
/// the user asked to stop (SIGINT): return SONDE_EINTERRUPTED soon.
typedef struct snd_progress { snd_cli *c; const char *label; double start, last; int64_t done, total; } snd_progress;
snd_progress snd_progress_start(snd_cli *c, const char *label, int64_t total);
bool snd_progress_step(snd_progress *p, int64_t done);
void snd_progress_end(snd_progress *p);

#endif
