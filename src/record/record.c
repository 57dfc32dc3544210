// Filling a record and asking it simple things. Invariant: the functions never return NULL; after a failed allocation
// they return the record's own spare object, which nothing prints, and the failure stays in `failed`. No file access
// and no text formats here.
#include "record/record.h"

#include <assert.h>
#include <math.h>
#include <string.h>

// The spare objects lie behind the public part, so that a record is one allocation.
typedef struct whole {
    snd_record pub;
    snd_run run;
    snd_rvalue value;
    snd_metric metric;
    snd_verdict verdict;
    snd_panel panel;
    snd_series series;
    snd_heatmap heatmap;
    snd_rtable table;
} whole;

static whole *spare(snd_record *r) {
    r->failed = true;
    return (whole *)r;
}

static const char *const kinds[SND_REC_KIND_COUNT] = {[SND_REC_PREDICT] = "sonde.predict/1",
                                                      [SND_REC_MEASURE] = "sonde.measure/1",
                                                      [SND_REC_DEMO] = "sonde.demo/1",
                                                      [SND_REC_TRAIN] = "sonde.train/1"};
static const char *const levels[SND_LEVEL_COUNT] = {
    [SND_LEVEL_OK] = "ok", [SND_LEVEL_INFO] = "info", [SND_LEVEL_WARN] = "warn", [SND_LEVEL_ERROR] = "error"};

const char *snd_record_schema(snd_record_kind k) {
    return k > SND_REC_INVALID && k < SND_REC_KIND_COUNT ? kinds[k] : "sonde.invalid/1";
}

const char *snd_level_name(snd_level l) {
    return l > SND_LEVEL_INVALID && l < SND_LEVEL_COUNT ? levels[l] : "invalid";
}

snd_level snd_level_find(const char *name) {
    for (int i = 1; i < SND_LEVEL_COUNT; i++)
        if (strcmp(name, levels[i]) == 0) return (snd_level)i;
    return SND_LEVEL_INVALID;
}

// Makes room for one more element of an array that lives in the arena: doubling, the old copy is left behind.
static bool room(snd_record *r, void **items, int n, int *cap, size_t size) {
    if (n < *cap) return true;
    const int wider = *cap ? 2 * *cap : 8;
    void *fresh = snd_arena_array(r->arena, (size_t)wider, size);
    if (!fresh) return false;
    if (n) memcpy(fresh, *items, (size_t)n * size);
    *items = fresh;
    *cap = wider;
    return true;
}

// A zeroed object appended to a list of pointers; NULL when memory ran out.
static void *append(snd_record *r, void ***items, int *n, int *cap, size_t size) {
    if (r->failed) return NULL;
    void *p = snd_arena_alloc(r->arena, size);
    void *list = *items;
    if (!p || !room(r, &list, *n, cap, sizeof(void *))) return NULL;
    *items = list;
    (*items)[(*n)++] = p;
    return p;
}
#define APPEND(r, list, n, cap, type) ((type *)append((r), (void ***)(void *)&(list), &(n), &(cap), sizeof(type)))

static const char *copy(snd_record *r, const char *s) {
    if (!s) return NULL;
    const char *c = snd_arena_str(r->arena, s);
    if (!c) r->failed = true;
    return c ? c : "";
}

// ---- record, runs, values ---------------------------------------------------------------------------------------------

snd_record *snd_record_create(snd_arena *a, snd_record_kind kind) {
    whole *w = snd_arena_alloc(a, sizeof *w);
    if (!w) return NULL;
    snd_record *r = &w->pub;
    r->arena = a;
    r->kind = kind;
    w->run.rec = w->value.rec = w->panel.rec = w->heatmap.rec = w->table.rec = r;
    w->run.summary = &w->value;
    w->run.label = w->run.formula = w->value.name = w->metric.name = "";
    return r;
}

sonde_status snd_record_status(const snd_record *r) {
    SND_FAIL_IF(r->failed, SONDE_ENOMEM, "record: out of memory with %d runs and %d panels held", r->n_runs,
                r->n_panels);
    return SONDE_OK;
}

const char *snd_record_text(snd_record *r, const char *fmt, ...) {
    char small[512];
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(small, sizeof small, fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof small) return copy(r, small);
    char *s = n < 0 ? NULL : snd_arena_alloc(r->arena, (size_t)n + 1);
    if (!s) {
        r->failed = true;
        return "";
    }
    va_start(ap, fmt);
    vsnprintf(s, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return s;
}

snd_run *snd_record_run(snd_record *r, const char *label, const char *formula) {
    snd_run *u = APPEND(r, r->runs, r->n_runs, r->runs_cap, snd_run);
    if (!u) return &spare(r)->run;
    u->rec = r;
    u->label = copy(r, label ? label : "");
    u->formula = copy(r, formula ? formula : "");
    u->seeds = 1;
    u->band_level = 0.95;
    u->summary = snd_arena_alloc(r->arena, sizeof *u->summary);
    if (!u->summary) u->summary = &spare(r)->value;
    u->summary->rec = r;
    u->summary->name = "";
    u->summary->layer = -1;
    return u;
}

void snd_run_setting(snd_run *u, const char *key, const char *text, bool bare) {
    void *list = u->settings;
    if (u->rec->failed || !room(u->rec, &list, u->n_settings, &u->settings_cap, sizeof *u->settings)) {
        u->rec->failed = true;
        return;
    }
    u->settings = list;
    u->settings[u->n_settings++] = (snd_setting){copy(u->rec, key), copy(u->rec, text), bare};
}

void snd_run_put(void *run, const char *key, const char *text, bool bare) {
    snd_run_setting(run, key, text, bare);
}

static snd_rvalue *named(snd_rvalue *v, snd_record *r, const char *name, int layer) {
    v->rec = r;
    v->name = copy(r, name);
    v->layer = layer;
    return v;
}

snd_rvalue *snd_run_value(snd_run *u, const char *name, int layer) {
    snd_rvalue *v = APPEND(u->rec, u->values, u->n_values, u->values_cap, snd_rvalue);
    return v ? named(v, u->rec, name, layer) : &spare(u->rec)->value;
}

snd_rvalue *snd_run_param(snd_run *u, const char *name, int layer) {
    snd_rvalue *v = APPEND(u->rec, u->params, u->n_params, u->params_cap, snd_rvalue);
    return v ? named(v, u->rec, name, layer) : &spare(u->rec)->value;
}

snd_metric *snd_value_metric(snd_rvalue *v, const char *name, bool log) {
    for (int i = 0; i < v->n_metrics; i++)
        if (strcmp(v->metrics[i]->name, name) == 0) return v->metrics[i];
    snd_metric *m = APPEND(v->rec, v->metrics, v->n_metrics, v->cap, snd_metric);
    if (!m)
        m = &spare(v->rec)->metric;
    else
        m->name = copy(v->rec, name);
    m->log = log;
    m->measured = v->rec->kind != SND_REC_PREDICT;
    m->mean = m->sd = m->predicted = m->lo = m->hi = m->lo999 = m->hi999 = m->z = NAN;
    return m;
}

// ---- verdicts, notes --------------------------------------------------------------------------------------------------

snd_verdict *snd_record_verdict(snd_record *r, const char *rule, snd_level level, const char *where) {
    snd_verdict *v = APPEND(r, r->verdicts, r->n_verdicts, r->verdicts_cap, snd_verdict);
    if (!v) return &spare(r)->verdict;
    v->rule = copy(r, rule);
    v->level = level;
    v->where = copy(r, where ? where : "");
    v->value = v->threshold = NAN;
    v->why = v->remedy = "";
    return v;
}

void snd_record_note(snd_record *r, const char *fmt, ...) {
    char s[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(s, sizeof s, fmt, ap);
    va_end(ap);
    void *list = r->notes;
    if (r->failed || !room(r, &list, r->n_notes, &r->notes_cap, sizeof *r->notes)) {
        r->failed = true;
        return;
    }
    r->notes = list;
    r->notes[r->n_notes++] = copy(r, s);
}

// Is label one of the items of "a, b, c" (n bytes)?
static bool is_listed(const char *items, size_t n, const char *label) {
    const size_t len = strlen(label);
    for (const char *at = items; (at = strstr(at, label)) && at + len <= items + n; at++) {
        const bool starts = at == items || (at >= items + 2 && !strncmp(at - 2, ", ", 2));
        if (starts && (at + len == items + n || !strncmp(at + len, ", ", 2))) return true;
    }
    return false;
}

void snd_record_note_on(snd_record *r, const char *label, const char *note) {
    const size_t len = strlen(note);
    for (int i = 0; i < r->n_notes; i++) {
        const char *old = r->notes[i];
        const size_t all = strlen(old);
        if (all < len + 2 || strcmp(old + all - len, note) != 0 || strncmp(old + all - len - 2, ": ", 2) != 0) continue;
        const size_t n = all - len - 2;
        if (!is_listed(old, n, label)) r->notes[i] = snd_record_text(r, "%.*s, %s: %s", (int)n, old, label, note);
        return;
    }
    snd_record_note(r, "%s: %s", label, note);
}

// ---- panels, heat maps, tables ---------------------------------------------------------------------------------------------------

snd_panel *snd_record_panel(snd_record *r, const char *title, const char *x_name, const char *y_name, bool log) {
    snd_panel *p = APPEND(r, r->panels, r->n_panels, r->panels_cap, snd_panel);
    if (!p) return &spare(r)->panel;
    p->rec = r;
    p->title = copy(r, title);
    p->x_name = copy(r, x_name);
    p->y_name = copy(r, y_name);
    p->log = log;
    return p;
}

snd_panel *snd_record_panel_of(snd_record *r, const char *title, const char *x_name, const char *y_name, bool log) {
    for (int i = 0; i < r->n_panels; i++)
        if (!strcmp(r->panels[i]->title, title)) return r->panels[i];
    return snd_record_panel(r, title, x_name, y_name, log);
}

// A copy of n numbers. On failure NULL, and the record is no longer printed.
static double *numbers(snd_record *r, const double *v, int n) {
    double *c = n > 0 && !r->failed ? snd_arena_array(r->arena, (size_t)n, sizeof *c) : NULL;
    if (c)
        memcpy(c, v, (size_t)n * sizeof *c);
    else if (n > 0)
        r->failed = true;
    return c;
}

snd_series *snd_panel_series(snd_panel *p, const char *label, const double *x, int n) {
    snd_series *s = APPEND(p->rec, p->series, p->n_series, p->cap, snd_series);
    if (!s) return &spare(p->rec)->series;
    s->label = copy(p->rec, label);
    s->x = numbers(p->rec, x, n);
    s->n = s->x ? n : 0;
    return s;
}

void snd_series_y(snd_panel *p, snd_series *s, const double *y) {
    s->y = numbers(p->rec, y, s->n);
}
void snd_series_sd(snd_panel *p, snd_series *s, const double *sd) {
    s->sd = numbers(p->rec, sd, s->n);
}
void snd_series_theory(snd_panel *p, snd_series *s, const double *theory) {
    s->theory = numbers(p->rec, theory, s->n);
}
void snd_series_band(snd_panel *p, snd_series *s, const double *lo, const double *hi) {
    s->lo = numbers(p->rec, lo, s->n);
    s->hi = numbers(p->rec, hi, s->n);
}

void snd_series_ref(snd_panel *p, snd_series *s, double x, double y, const char *text) {
    void *list = s->refs;
    if (p->rec->failed || !room(p->rec, &list, s->n_refs, &s->refs_cap, sizeof *s->refs)) {
        p->rec->failed = true;
        return;
    }
    s->refs = list;
    s->refs[s->n_refs++] = (snd_ref){x, y, copy(p->rec, text ? text : "")};
}

snd_heatmap *snd_record_heatmap(snd_record *r, const char *title, const char *label, const double *x, int n_x,
                                const char *const *rows, int n_rows) {
    assert(n_x > 0 && n_rows > 0);
    snd_heatmap *m = APPEND(r, r->heatmaps, r->n_heatmaps, r->heatmaps_cap, snd_heatmap);
    const char **names = m ? snd_arena_array(r->arena, (size_t)n_rows, sizeof *names) : NULL;
    double *z = names ? snd_arena_array(r->arena, (size_t)n_rows * (size_t)n_x, sizeof *z) : NULL;
    if (!z) {
        if (m) r->n_heatmaps--;
        return &spare(r)->heatmap;
    }
    for (int i = 0; i < n_rows; i++) names[i] = copy(r, rows[i]);
    for (int64_t i = 0; i < (int64_t)n_rows * n_x; i++) z[i] = NAN;
    *m = (snd_heatmap){.rec = r, .title = copy(r, title), .label = copy(r, label), .n_x = n_x, .n_rows = n_rows};
    m->x_name = m->y_name = m->z_name = "";
    m->x = numbers(r, x, n_x);
    m->rows = names;
    m->z = z;
    return m;
}

void snd_heatmap_axes(snd_heatmap *m, const char *x_name, const char *y_name, const char *z_name, bool log) {
    m->x_name = copy(m->rec, x_name);
    m->y_name = copy(m->rec, y_name);
    m->z_name = copy(m->rec, z_name);
    m->log = log;
}

void snd_heatmap_put(snd_heatmap *m, int row, int column, double z) {
    if (row < m->n_rows && column < m->n_x) m->z[(int64_t)row * m->n_x + column] = z; // the spare has none
}

snd_rtable *snd_record_table(snd_record *r, const char *title, const char *const *columns, int n) {
    snd_rtable *t = APPEND(r, r->tables, r->n_tables, r->tables_cap, snd_rtable);
    const char **names = t ? snd_arena_array(r->arena, (size_t)n, sizeof *names) : NULL;
    if (!names) return &spare(r)->table;
    for (int i = 0; i < n; i++) names[i] = copy(r, columns[i]);
    t->rec = r;
    t->title = copy(r, title);
    t->columns = names;
    t->n_columns = n;
    return t;
}

static void cell(snd_rtable *t, snd_cell c) {
    void *list = t->cells;
    if (t->rec->failed || !room(t->rec, &list, t->n_cells, &t->cap, sizeof *t->cells)) {
        t->rec->failed = true;
        return;
    }
    t->cells = list;
    t->cells[t->n_cells++] = c;
}
void snd_rtable_text(snd_rtable *t, const char *text) {
    cell(t, (snd_cell){copy(t->rec, text ? text : ""), NAN, false});
}
void snd_rtable_num(snd_rtable *t, double v, bool log) {
    cell(t, (snd_cell){NULL, v, log});
}

// ---- questions --------------------------------------------------------------------------------------------------------

const snd_rvalue *snd_run_find(const snd_run *u, const char *name) {
    for (int i = 0; i < u->n_values; i++)
        if (strcmp(u->values[i]->name, name) == 0) return u->values[i];
    return NULL;
}

const snd_metric *snd_value_find(const snd_rvalue *v, const char *metric) {
    for (int i = 0; i < v->n_metrics; i++)
        if (strcmp(v->metrics[i]->name, metric) == 0) return v->metrics[i];
    return NULL;
}

double snd_metric_linear(const snd_metric *m, double v) {
    return m->log ? pow(10, v) : v;
}

bool snd_metric_outside(const snd_metric *m) {
    if (!m->measured || isnan(m->lo) || isnan(m->hi)) return false;
    return !(m->mean >= m->lo && m->mean <= m->hi);
}

snd_level snd_record_worst(const snd_record *r) {
    snd_level worst = SND_LEVEL_OK;
    for (int i = 0; i < r->n_verdicts; i++)
        if (r->verdicts[i]->level > worst) worst = r->verdicts[i]->level;
    return worst;
}

int64_t snd_record_nonfinite(const snd_record *r) {
    int64_t n = 0;
    for (int i = 0; i < r->n_runs; i++) n += r->runs[i]->nonfinite;
    return n;
}
