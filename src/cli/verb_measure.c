// sonde predict and sonde measure: theory alone, and theory beside what really happens.
#include "cli/trained.h"
#include "rules/rules.h"

#include <string.h>

typedef struct bar {
    snd_cli *c;
    snd_progress p;
    const char *stage;
} bar;

static void progress(void *ctx, const char *stage, int64_t done, int64_t total) {
    bar *b = ctx;
    if (done == 0) {
        b->stage = stage;
        b->p = snd_progress_start(b->c, stage, total);
    }
    (void)snd_progress_step(&b->p, done);
    if (done == total) snd_progress_end(&b->p);
}

static sonde_status read_metrics(snd_cli *c, snd_measure_opts *o) {
    o->n_metrics = snd_opt_strs(c, "metrics", &o->metrics);
    for (int i = 0; i < o->n_metrics; i++) {
        if (snd_metric_find(o->metrics[i]) >= 0 || snd_pmetric_find(o->metrics[i])) continue;
        const char *names[64];
        for (int k = 0; k < snd_metric_count(); k++) names[k] = snd_metric_at(k)->name;
        const char *near = snd_nearest(o->metrics[i], names, snd_metric_count());
        SND_FAIL(SONDE_EUSAGE, "--metrics: unknown metric '%s'%s%s%s", o->metrics[i], near ? "; did you mean '" : "",
                 near ? near : "", near ? "'?" : "");
    }
    return SONDE_OK;
}

static const char *const of_data[] = {"labels", "standardize"};

// What a trained model has no use for: its weights belong to one net, and theory and bands speak of the start.
static sonde_status refuse_for_trained(const snd_cli *c) {
    static const char *const drawn[] = {"wirings", "depths", "bands", "panel"};
    for (int i = 0; i < 4; i++)
        SND_FAIL_IF(snd_opt_given(c, drawn[i]), SONDE_EUSAGE,
                    "--%s is for nets that are drawn; with weights from a file one net is measured, beside no theory",
                    drawn[i]);
    for (int i = 0; i < 2; i++)
        SND_FAIL_IF(snd_opt_given(c, of_data[i]), SONDE_EUSAGE,
                    "--%s: a trained model reads data as it was trained on it", of_data[i]);
    return SONDE_OK;
}

// And what only a trained model has a use for.
static sonde_status refuse_for_drawn(const snd_cli *c) {
    static const char *const trained[] = {"eval", "checkpoint", "split", "tokenizer", "data-folder"};
    for (int i = 0; i < 5; i++)
        SND_FAIL_IF(snd_opt_given(c, trained[i]), SONDE_EUSAGE,
                    "--%s is for a trained model: a run's folder or a checkpoint in place of SPEC, or --weights FILE",
                    trained[i]);
    return SONDE_OK;
}

// Options that would be ignored silently: most puzzling results are one such word.
static sonde_status refuse_idle_options(const snd_cli *c) {
    static const char *const of_specs[] = {"wirings", "depths",      "seeds",      "batch",       "tokens",    "cos",
                                           "bands",   "loss",        "last-token", "input-scale", "no-params", "data",
                                           "labels",  "standardize", "metrics",    "timings"};
    if (snd_opt_given(c, "panel")) {
        SND_FAIL_IF(c->spec_word, SONDE_EUSAGE, "--panel brings its own specs; '%s' would be ignored", c->spec_word);
        for (size_t i = 0; i < sizeof of_specs / sizeof *of_specs; i++)
            SND_FAIL_IF(snd_opt_given(c, of_specs[i]), SONDE_EUSAGE, "--panel fixes its settings; --%s is for a SPEC",
                        of_specs[i]);
        return SONDE_OK;
    }
    const bool data = snd_opt_given(c, "data");
    for (int i = 0; i < 2; i++)
        SND_FAIL_IF(!data && snd_opt_given(c, of_data[i]), SONDE_EUSAGE, "--%s needs --data", of_data[i]);
    SND_FAIL_IF(data && snd_opt_given(c, "cos"), SONDE_EUSAGE, "--cos is for drawn inputs; --data brings its own");
    return SONDE_OK;
}

// What --data opened, or a trained model brought.
typedef struct source {
    snd_dataset *rows;
    snd_corpus *tokens;
    snd_set *set; // a run's own, which rows or tokens are of
    snd_split split;
    bool trained;
    snd_loaded model;
} source;

static void close_source(source *s) {
    snd_dataset_close(s->rows);
    snd_corpus_close(s->tokens);
    snd_set_close(s->set);
    if (s->trained) snd_loaded_close(&s->model);
}

// The run's own data, as it was cut for training; a run that kept nothing for validation is measured on what it learned from.
static sonde_status open_run_data(snd_cli *c, source *src) {
    SND_TRY(snd_cli_open_set(c, &src->model, &src->split, &src->set));
    const snd_set *set = src->set;
    if (!set || snd_set_task(set) == SND_TASK_SEQ2SEQ) {
        snd_note(c, "%s: measured on tokens or numbers that are drawn",
                 set ? "pairs are no single row of tokens" : "the model does not say what it was trained on");
        return SONDE_OK;
    }
    SND_FAIL_IF(snd_opt_given(c, "cos"), SONDE_EUSAGE, "--cos is for drawn inputs; %s is read", snd_set_name(set));
    const bool rows = snd_set_task(set) == SND_TASK_CLASS;
    const int64_t n = rows ? snd_set_row_count(set, src->split) : snd_set_token_count(set, src->split);
    if (n == 0) src->split = SND_SPLIT_TRAIN;
    return rows ? snd_dataset_of(set, src->split, &src->rows) : snd_corpus_of(set, src->split, &src->tokens);
}

// Rows of numbers, or tokens of a Transformer's vocabulary. spec NULL: the first of --wirings tells.
static sonde_status open_source(snd_cli *c, const snd_spec *spec, const char *what, source *src) {
    const bool sequences = spec && spec->family == SND_FAM_TRANSFORMER;
    SND_FAIL_IF(sequences && spec->vocab < 1, SONDE_EUSAGE,
                "--data: tokens need a vocabulary; give vocab=NUMBER (256 for the bytes of a text)");
    for (int i = 0; i < 2 && sequences; i++)
        SND_FAIL_IF(snd_opt_given(c, of_data[i]), SONDE_EUSAGE, "--%s is for rows of the mlp family; tokens have none",
                    of_data[i]);
    const sonde_status s =
        sequences ? snd_corpus_open(what, &src->tokens)
                  : snd_dataset_open(what, snd_opt_str(c, "labels", NULL), snd_opt_flag(c, "standardize"), &src->rows);
    c->file_at_fault = s != SONDE_OK;
    return s;
}

// The usual batch, or all there is.
static int64_t few_rows(const snd_spec *spec, const snd_dataset *d) {
    const int64_t usual = spec->family == SND_FAM_CONVNET ? SND_DEFAULT_IMAGES : SND_DEFAULT_ROWS;
    return snd_dataset_rows(d) < usual ? snd_dataset_rows(d) : usual;
}

static sonde_status read_options(snd_cli *c, const snd_spec *spec, bar *b, snd_measure_opts *o, source *src) {
    *o = (snd_measure_opts){.rows = snd_opt_int(c, "batch", 0),
                            .tokens = snd_opt_int(c, "tokens", 0),
                            .cos = snd_opt_num(c, "cos", 0),
                            .scale = snd_opt_num(c, "input-scale", 1),
                            .loss = snd_opt_flag(c, "loss"),
                            .last_token = snd_opt_flag(c, "last-token"),
                            .seed = (uint64_t)snd_opt_int(c, "seed", 0),
                            .seeds = (int)snd_opt_int(c, "seeds", 0),
                            .stop = c->stop,
                            .progress = progress,
                            .ctx = b};
    o->n_depths = snd_opt_ints(c, "depths", &o->depths);
    const char *bands = snd_opt_str(c, "bands", NULL);
    if (bands)
        o->bands = !strcmp(bands, "none")     ? SND_BANDS_NONE
                   : !strcmp(bands, "theory") ? SND_BANDS_THEORY
                                              : SND_BANDS_SIMULATED;
    SND_TRY(read_metrics(c, o));
    const char *name = c->verb->name;
    o->threads = (int)snd_opt_int(c, "threads", 0);
    if (!strcmp(name, "predict")) return SONDE_OK;
    o->dtype = snd_dtype_find(snd_opt_str(c, "dtype", "f32"));
    o->max_memory = (size_t)snd_opt_int(c, "max-memory", 0);
    o->time_limit = snd_opt_num(c, "time-limit", 0);
    o->no_params = snd_opt_flag(c, "no-params");
    o->timings = snd_opt_flag(c, "timings");
    const char *what = snd_opt_str(c, "data", NULL);
    if (src->trained) {
        SND_TRY(open_run_data(c, src));
        o->weights = src->model.net.file;
        o->eval = snd_opt_flag(c, "eval");
        if (src->rows && !o->rows) o->rows = few_rows(spec, src->rows);
    } else if (what) {
        SND_TRY(open_source(c, spec, what, src));
    }
    o->data = src->rows;
    o->corpus = src->tokens;
    return SONDE_OK;
}

static sonde_status one(snd_record *r, const snd_spec *spec, const char *label, const snd_measure_opts *o,
                        bool measure) {
    const int first = r->n_runs;
    const sonde_status s = measure ? snd_lab_measure(r, spec, label, o) : snd_lab_predict(r, spec, label, o);
    if (s != SONDE_EINTERRUPTED) SND_TRY(s);
    SND_TRY(snd_lab_judge(r, spec, first, o));
    SND_FAIL_IF(s != SONDE_OK, s, "interrupted");
    return SONDE_OK;
}

// A key, a title that still fits, or a formula where it is short enough for a legend; of several long ones each has a number.
static const char *label_of(snd_cli *c, const snd_spec *s, int *n_long) {
    enum { SHORT = 24 };
    const bool titled = s->title && !s->from_command_line; // of a file whose wiring is its own
    if (titled || s->wiring_key) return titled ? s->title : s->wiring_key;
    if (strlen(s->wiring_text) <= SHORT && !strchr(s->wiring_text, '\n')) return s->wiring_text;
    const char *numbered = ++*n_long > 1 ? snd_arena_printf(c->arena, "your formula %d", *n_long) : NULL;
    return numbered ? numbered : "your formula";
}

static void note_idle_tokens(const snd_cli *c, snd_record *r, const snd_spec *s) {
    if (snd_opt_given(c, "tokens") && s->family != SND_FAM_TRANSFORMER)
        snd_record_note(r, "--tokens has no meaning here: the %s family has examples only, and --batch counts them",
                        s->family == SND_FAM_MLP ? "mlp" : "convnet");
}

static bool is_among(const char *const *list, int n, const char *text) {
    for (int i = 0; i < n; i++)
        if (!strcmp(list[i], text)) return true;
    return false;
}

// The formula that the command line brings as SPEC or wiring=; NULL: none.
static const char *own_formula(const snd_cli *c, const snd_spec *s) {
    if (s->wiring_key) return NULL;
    for (int i = 0; i < c->n_overrides; i++)
        if (!strncmp(c->overrides[i], "wiring=", 7) && !strcmp(c->overrides[i] + 7, s->wiring_text))
            return s->wiring_text;
    return strcmp(c->spec_word, s->wiring_text) == 0 ? s->wiring_text : NULL;
}

// --wirings, and before them a formula of one's own, which is there to be compared. Of a key SPEC gives the settings alone.
static sonde_status list_wirings(snd_cli *c, snd_record *r, const snd_spec *s, const char *const **list, int *n) {
    const char *const *given;
    const int n_given = snd_opt_strs(c, "wirings", &given);
    const char *own = own_formula(c, s);
    const char **both;
    SND_NEW(c->arena, both, n_given + 1);
    for (int i = 1; i < n_given; i++)
        SND_FAIL_IF(is_among(given, i, given[i]), SONDE_EUSAGE,
                    "--wirings names '%s' twice; it would be measured twice", given[i]);
    *n = 0;
    if (n_given && own && !is_among(given, n_given, own)) both[(*n)++] = own;
    for (int i = 0; i < n_given; i++) both[(*n)++] = given[i];
    if (n_given && s->wiring_key && !strcmp(s->wiring_key, c->spec_word) && !is_among(given, n_given, s->wiring_key))
        snd_record_note(r, "%s is not among --wirings and gives the settings alone", s->wiring_key);
    *list = both;
    return SONDE_OK;
}

static sonde_status all(snd_cli *c, snd_record *r, const snd_spec *given, const snd_measure_opts *o, bool measure) {
    const char *const *wirings = NULL;
    int n = 0, n_long = 0;
    note_idle_tokens(c, r, given);
    SND_TRY(list_wirings(c, r, given, &wirings, &n));
    if (!n) return one(r, given, label_of(c, given, &n_long), o, measure);
    snd_measure_opts share = *o; // the limit is for the whole command
    share.time_limit /= n;
    for (int i = 0; i < n; i++) {
        snd_spec *spec;
        SND_TRY(snd_cli_load_wiring(c, wirings[i], &spec));
        SND_TRY(one(r, spec, label_of(c, spec, &n_long), &share, measure));
    }
    return SONDE_OK;
}

// Named panels of the lecture: the demo's, one by one.
static sonde_status panels(snd_cli *c, bar *b, const char *const *names, int n) {
    const snd_demo_opts o = {.seed = (uint64_t)snd_opt_int(c, "seed", 0),
                             .dtype = snd_dtype_find(snd_opt_str(c, "dtype", "f32")),
                             .threads = (int)snd_opt_int(c, "threads", 0),
                             .max_memory = (size_t)snd_opt_int(c, "max-memory", 0),
                             .time_limit = snd_opt_num(c, "time-limit", 0),
                             .stop = c->stop,
                             .progress = progress,
                             .ctx = b};
    snd_record *r = snd_record_create(c->arena, SND_REC_DEMO);
    if (!r) return SONDE_ENOMEM;
    SND_TRY(snd_cli_check_out(c, NULL));
    return snd_cli_finish(c, r, snd_lab_demo(r, names, n, &o));
}

// The spec comes first: a file's measure: part gives options too.
static sonde_status load(snd_cli *c, source *src, snd_spec **spec) {
    const char *const *wirings = NULL;
    if (src->trained) {
        const sonde_status s = snd_cli_load_trained(c, false, &src->model);
        *spec = src->model.spec;
        return s;
    }
    if (c->spec_word || snd_opt_strs(c, "wirings", &wirings) == 0) return snd_cli_load_spec(c, spec);
    return snd_cli_load_wiring(c, c->spec_word = wirings[0], spec);
}

static sonde_status verb(snd_cli *c, bool measure) {
    bar b = {.c = c};
    snd_measure_opts o;
    source src = {0};
    const char *const *names;
    src.trained = measure && (snd_opt_given(c, "weights") || snd_cli_names_trained(c));
    if (measure) SND_TRY(src.trained ? refuse_for_trained(c) : refuse_for_drawn(c));
    SND_TRY(refuse_idle_options(c));
    const int n_panels = measure ? snd_opt_strs(c, "panel", &names) : 0;
    if (n_panels) return panels(c, &b, names, n_panels);
    snd_spec *spec = NULL;
    sonde_status s = load(c, &src, &spec);
    if (s == SONDE_OK) s = snd_cli_check_out(c, spec);
    if (s == SONDE_OK) s = read_options(c, spec, &b, &o, &src);
    snd_record *r = s == SONDE_OK ? snd_record_create(c->arena, measure ? SND_REC_MEASURE : SND_REC_PREDICT) : NULL;
    if (s == SONDE_OK && !r) s = SONDE_ENOMEM;
    if (s == SONDE_OK) s = all(c, r, spec, &o, measure);
    if (r) s = snd_cli_finish(c, r, s);
    close_source(&src);
    return s;
}

sonde_status snd_verb_predict(snd_cli *c) {
    return verb(c, false);
}
sonde_status snd_verb_measure(snd_cli *c) {
    return verb(c, true);
}
