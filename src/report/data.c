// The numbers behind the page's curves and tables, as compact JSON for report.js: per run one list of names and per metric
// one list per quantity, at six significant digits. The full numbers are in result.json; this is for drawing.
#include "report/inner.h"

#include <math.h>
#include <string.h>

typedef enum column { C_MEAN, C_SD, C_THEORY, C_LO, C_HI, C_Z, C_COUNT } column;
static const char *const keys[C_COUNT] = {"m", "sd", "t", "lo", "hi", "z"};

static double number(const snd_metric *m, column c) {
    if (!m) return NAN;
    switch (c) {
    case C_MEAN: return m->measured ? m->mean : NAN;
    case C_SD: return m->sd;
    case C_THEORY: return m->predicted;
    case C_LO: return m->lo;
    case C_HI: return m->hi;
    case C_Z: return m->z;
    case C_COUNT: break;
    }
    return NAN;
}

enum { MOST_METRICS = 64 };
typedef struct names {
    const char *name[MOST_METRICS];
    bool log[MOST_METRICS];
    int n;
} names;

static void collect(names *all, snd_rvalue *const *values, int n) {
    for (int i = 0; i < n; i++)
        for (int k = 0; k < values[i]->n_metrics; k++) {
            const snd_metric *m = values[i]->metrics[k];
            int at = 0;
            while (at < all->n && strcmp(all->name[at], m->name) != 0) at++;
            if (at == MOST_METRICS) continue;
            all->name[at] = m->name;
            all->log[at] |= m->log;
            if (at == all->n) all->n++;
        }
}

static void put_column(snd_json *j, const snd_metric *const *list, int n, column c) {
    bool any = false;
    for (int i = 0; i < n && !any; i++) any = !isnan(number(list[i], c));
    if (!any) return;
    snd_json_open_flat(j, keys[c], '[');
    for (int i = 0; i < n; i++) snd_json_num(j, NULL, number(list[i], c));
    snd_json_close(j, ']');
}

// Measured but not finite: null among the means would read as "not measured", so their places are listed.
static void put_lost(snd_json *j, const snd_metric *const *list, int n) {
    bool open = false;
    for (int i = 0; i < n; i++) {
        const snd_metric *m = list[i];
        if (!m || !m->measured || isfinite(m->mean) || (m->log && m->mean < 0)) continue;
        if (!open) snd_json_open_flat(j, "lost", '[');
        open = true;
        snd_json_int(j, NULL, i);
    }
    if (open) snd_json_close(j, ']');
}

static void put_metrics(snd_json *j, snd_rvalue *const *values, int n) {
    names all = {.n = 0};
    collect(&all, values, n);
    const snd_metric **list = snd_calloc((size_t)(n > 0 ? n : 1), sizeof *list); // one metric of every value
    if (!list) j->b->failed = true;
    for (int m = 0; list && m < all.n; m++) {
        for (int i = 0; i < n; i++) list[i] = snd_value_find(values[i], all.name[m]);
        snd_json_open(j, all.name[m], '{');
        snd_json_bool(j, "log", all.log[m]);
        for (int c = 0; c < C_COUNT; c++) put_column(j, list, n, (column)c);
        put_lost(j, list, n);
        snd_json_close(j, '}');
    }
    snd_free(list);
}

static void put_values(snd_json *j, const char *key, snd_rvalue *const *values, int n) {
    snd_json_open(j, key, '{');
    snd_json_open_flat(j, "names", '[');
    for (int i = 0; i < n; i++) snd_json_str(j, NULL, values[i]->name);
    snd_json_close(j, ']');
    snd_json_open_flat(j, "layers", '[');
    for (int i = 0; i < n; i++) snd_json_int(j, NULL, values[i]->layer);
    snd_json_close(j, ']');
    snd_json_open(j, "metrics", '{');
    put_metrics(j, values, n);
    snd_json_close(j, '}');
    snd_json_close(j, '}');
}

static void put_label(const snd_page *p, snd_json *j, int record, const char *label) {
    snd_buf text = {0};
    snd_page_label(p, record, label, &text);
    snd_json_str(j, "label", text.s ? text.s : "");
    snd_buf_free(&text);
}

static void put_run(const snd_page *p, snd_json *j, int record, const snd_run *u) {
    snd_json_open(j, NULL, '{');
    put_label(p, j, record, u->label);
    snd_json_int(j, "depth", u->depth);
    snd_json_num(j, "level", u->band_level);
    put_values(j, "values", u->values, u->n_values);
    put_values(j, "params", u->params, u->n_params);
    put_values(j, "summary", &(snd_rvalue *){u->summary}, 1);
    snd_json_close(j, '}');
}

static void put_series(const snd_page *p, snd_json *j, int record, const snd_series *s) {
    snd_json_open(j, NULL, '{');
    put_label(p, j, record, s->label);
    snd_json_nums(j, "x", s->x, s->n);
    snd_json_nums(j, "m", s->y, s->n);
    snd_json_nums(j, "sd", s->sd, s->n);
    snd_json_nums(j, "t", s->theory, s->n);
    snd_json_nums(j, "lo", s->lo, s->n);
    snd_json_nums(j, "hi", s->hi, s->n);
    snd_json_open(j, "refs", '[');
    for (int i = 0; i < s->n_refs; i++) {
        snd_json_open(j, NULL, '{');
        snd_json_num(j, "x", s->refs[i].x);
        snd_json_num(j, "y", s->refs[i].y);
        snd_json_str(j, "text", s->refs[i].text);
        snd_json_close(j, '}');
    }
    snd_json_close(j, ']');
    snd_json_close(j, '}');
}

// The figure's curves come from every record that has the panel.
static void put_panel(const snd_page *p, snd_json *j, const snd_panel *panel) {
    snd_json_open(j, NULL, '{');
    snd_json_str(j, "title", panel->title);
    snd_json_str(j, "x", panel->x_name);
    snd_json_str(j, "y", panel->y_name);
    snd_json_bool(j, "log", panel->log);
    snd_json_bool(j, "xlog", panel->xlog);
    snd_json_open(j, "series", '[');
    for (int r = 0; r < p->n_records; r++)
        for (int k = 0; k < p->records[r]->n_panels; k++) {
            const snd_panel *from = p->records[r]->panels[k];
            const bool same = snd_page_panel_same(from, panel);
            for (int i = 0; same && i < from->n_series; i++) put_series(p, j, r, from->series[i]);
        }
    snd_json_close(j, ']');
    snd_json_close(j, '}');
}

static void put_heatmap(const snd_page *p, snd_json *j, int record, const snd_heatmap *m) {
    snd_json_open(j, NULL, '{');
    snd_json_str(j, "title", m->title);
    put_label(p, j, record, m->label);
    snd_json_str(j, "x", m->x_name);
    snd_json_str(j, "y", m->y_name);
    snd_json_str(j, "z", m->z_name);
    snd_json_bool(j, "log", m->log);
    snd_json_nums(j, "columns", m->x, m->n_x);
    snd_json_open_flat(j, "rows", '[');
    for (int i = 0; i < m->n_rows; i++) snd_json_str(j, NULL, m->rows[i]);
    snd_json_close(j, ']');
    snd_json_nums(j, "values", m->z, m->n_rows * m->n_x);
    snd_json_close(j, '}');
}

void snd_page_data(const snd_page *p) {
    snd_json j = snd_json_start(p->b);
    j.html = j.tight = true;
    j.digits = 6;
    snd_json_open(&j, NULL, '{');
    snd_json_open(&j, "runs", '[');
    for (int r = 0; r < p->n_records; r++)
        for (int i = 0; i < p->records[r]->n_runs; i++) put_run(p, &j, r, p->records[r]->runs[i]);
    snd_json_close(&j, ']');
    snd_json_open(&j, "panels", '[');
    for (int r = 0; r < p->n_records; r++)
        for (int i = 0; i < p->records[r]->n_panels; i++)
            if (snd_page_panel_first(p, r, i)) put_panel(p, &j, p->records[r]->panels[i]);
    snd_json_close(&j, ']');
    snd_json_open(&j, "heatmaps", '[');
    for (int r = 0; r < p->n_records; r++)
        for (int i = 0; i < p->records[r]->n_heatmaps; i++) put_heatmap(p, &j, r, p->records[r]->heatmaps[i]);
    snd_json_close(&j, ']');
    snd_json_close(&j, '}');
}
