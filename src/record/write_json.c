// A record as JSON: docs/formulas.md section 9, with more keys (bands and predictions in log10, panels, tables, notes).
// For a log metric the linear keys (metrics, predicted, band) are powers of ten of the stored logs: null once they leave
// double range, while log10, predicted_log10 and band_log10 still hold the number. `sd` is in the metric's own unit: for
// a log metric half the width of mean +- one sd of the logs; sd_log10 is the sd of the logs themselves. In a predict
// document metrics and log10 repeat the prediction, so that one script reads both kinds.
#include "record/record.h"

#include <math.h>

typedef enum part {
    P_MEAN,
    P_LOG10,
    P_SD,
    P_SD_LOG10,
    P_PREDICTED,
    P_PREDICTED_LOG10,
    P_BAND,
    P_BAND_LOG10,
    P_BAND999,
    P_BAND999_LOG10,
    P_Z,
    P_COUNT
} part;
static const char *const part_keys[P_COUNT] = {"metrics",   "log10",           "sd",   "sd_log10",
                                               "predicted", "predicted_log10", "band", "band_log10",
                                               "band999",   "band999_log10",   "z"};

static bool has_part(const snd_metric *m, part p) {
    switch (p) {
    case P_MEAN: return m->measured;
    case P_LOG10: return m->measured && m->log;
    case P_SD: return !isnan(m->sd);
    case P_SD_LOG10: return !isnan(m->sd) && m->log;
    case P_PREDICTED: return !isnan(m->predicted);
    case P_PREDICTED_LOG10: return !isnan(m->predicted) && m->log;
    case P_BAND: return !isnan(m->lo) && !isnan(m->hi);
    case P_BAND_LOG10: return !isnan(m->lo) && !isnan(m->hi) && m->log;
    case P_BAND999: return !isnan(m->lo999) && !isnan(m->hi999);
    case P_BAND999_LOG10: return !isnan(m->lo999) && !isnan(m->hi999) && m->log;
    case P_Z: return !isnan(m->z);
    case P_COUNT: break;
    }
    return false;
}

static void pair(snd_json *j, const char *key, double lo, double hi) {
    const double v[2] = {lo, hi};
    snd_json_nums(j, key, v, 2);
}

// As it will be read back: so linear numbers follow from the logarithms that stand beside them, digit for digit.
static double linear(const snd_metric *m, double v) {
    return m->log ? pow(10, snd_round_short(v)) : v;
}

static double linear_sd(const snd_metric *m) {
    const double mean = snd_round_short(m->mean), sd = snd_round_short(m->sd);
    return m->log ? (pow(10, mean + sd) - pow(10, mean - sd)) / 2 : sd;
}

static void write_part(snd_json *j, const snd_metric *m, part p) {
    switch (p) {
    case P_MEAN: snd_json_num(j, m->name, linear(m, m->mean)); break;
    case P_LOG10: snd_json_num(j, m->name, m->mean); break;
    case P_SD: snd_json_num(j, m->name, linear_sd(m)); break;
    case P_SD_LOG10: snd_json_num(j, m->name, m->sd); break;
    case P_PREDICTED: snd_json_num(j, m->name, linear(m, m->predicted)); break;
    case P_PREDICTED_LOG10: snd_json_num(j, m->name, m->predicted); break;
    case P_BAND: pair(j, m->name, linear(m, m->lo), linear(m, m->hi)); break;
    case P_BAND_LOG10: pair(j, m->name, m->lo, m->hi); break;
    case P_BAND999: pair(j, m->name, linear(m, m->lo999), linear(m, m->hi999)); break;
    case P_BAND999_LOG10: pair(j, m->name, m->lo999, m->hi999); break;
    case P_Z: snd_json_num(j, m->name, m->z); break;
    case P_COUNT: break;
    }
}

static snd_metric as_measured(const snd_metric *predicted) {
    snd_metric m = *predicted;
    m.measured = true;
    m.mean = m.predicted;
    return m;
}

// One object per part that any metric has: "log10": {"q": 0.7}. Parameters keep their means at the top ("wgrms": 1.2).
static void write_metrics(snd_json *j, const snd_rvalue *v, bool flat_means) {
    const bool theory = v->rec->kind == SND_REC_PREDICT;
    for (int p = 0; p < P_COUNT; p++) {
        const bool top = p == P_MEAN && flat_means;
        bool open = top;
        for (int i = 0; i < v->n_metrics; i++) {
            const snd_metric m = theory ? as_measured(v->metrics[i]) : *v->metrics[i];
            if (!has_part(&m, (part)p)) continue;
            if (!open) snd_json_open(j, part_keys[p], '{');
            open = true;
            write_part(j, &m, (part)p);
        }
        if (open && !top) snd_json_close(j, '}');
    }
}

static void write_value(snd_json *j, const snd_rvalue *v, bool is_param) {
    snd_json_open_flat(j, NULL, '{');
    snd_json_str(j, "name", v->name);
    if (v->layer >= 0)
        snd_json_int(j, "layer", v->layer);
    else if (!is_param)
        snd_json_str(j, "layer", NULL);
    write_metrics(j, v, is_param);
    snd_json_close(j, '}');
}

static void write_run(snd_json *j, const snd_run *u) {
    snd_json_str(j, "label", u->label);
    snd_json_str(j, "formula", u->formula);
    snd_json_open(j, "spec", '{');
    for (int i = 0; i < u->n_settings; i++)
        snd_json_setting(j, u->settings[i].key, u->settings[i].text, u->settings[i].bare);
    snd_json_close(j, '}');
    snd_json_int(j, "depth", u->depth);
    snd_json_int(j, "seed", (int64_t)u->seed);
    snd_json_int(j, "seeds", u->seeds);
    if (u->dtype) snd_json_str(j, "dtype", u->dtype);
    if (u->input) snd_json_str(j, "input", u->input);
    snd_json_num(j, "band_level", u->band_level);
    if (u->run_sec) {
        snd_json_open_flat(j, "seconds", '{');
        snd_json_nums(j, "draw", u->draw_sec, u->seeds);
        snd_json_nums(j, "run", u->run_sec, u->seeds);
        snd_json_close(j, '}');
    }
    if (u->summary->n_metrics) {
        snd_json_open_flat(j, "summary", '{');
        write_metrics(j, u->summary, false);
        snd_json_close(j, '}');
    }
    snd_json_open(j, "values", '[');
    for (int i = 0; i < u->n_values; i++) write_value(j, u->values[i], false);
    snd_json_close(j, ']');
    snd_json_open(j, "params", '[');
    for (int i = 0; i < u->n_params; i++) write_value(j, u->params[i], true);
    snd_json_close(j, ']');
}

static void write_verdict(snd_json *j, const snd_verdict *v) {
    snd_json_open_flat(j, NULL, '{');
    snd_json_str(j, "rule", v->rule);
    snd_json_str(j, "level", snd_level_name(v->level));
    snd_json_str(j, "where", v->where);
    if (v->run) snd_json_str(j, "run", v->run);
    snd_json_num(j, "value", v->log ? pow(10, snd_round_short(v->value)) : v->value);
    snd_json_num(j, "threshold", v->log ? pow(10, snd_round_short(v->threshold)) : v->threshold);
    if (v->log) {
        snd_json_num(j, "value_log10", v->value);
        snd_json_num(j, "threshold_log10", v->threshold);
    }
    snd_json_str(j, "why", v->why);
    snd_json_str(j, "try", v->remedy);
    snd_json_close(j, '}');
}

static void write_series(snd_json *j, const snd_series *s) {
    snd_json_open(j, NULL, '{');
    snd_json_str(j, "label", s->label);
    if (s->formula) snd_json_str(j, "formula", s->formula);
    snd_json_nums(j, "x", s->x, s->n);
    snd_json_nums(j, "y", s->y, s->n);
    snd_json_nums(j, "sd", s->sd, s->n);
    snd_json_nums(j, "theory", s->theory, s->n);
    snd_json_nums(j, "lo", s->lo, s->n);
    snd_json_nums(j, "hi", s->hi, s->n);
    if (s->n_refs) snd_json_open(j, "refs", '[');
    for (int i = 0; i < s->n_refs; i++) {
        snd_json_open_flat(j, NULL, '{');
        snd_json_num(j, "x", s->refs[i].x);
        snd_json_num(j, "y", s->refs[i].y);
        snd_json_str(j, "text", s->refs[i].text);
        snd_json_close(j, '}');
    }
    if (s->n_refs) snd_json_close(j, ']');
    snd_json_close(j, '}');
}

static void write_panel(snd_json *j, const snd_panel *p) {
    snd_json_open(j, NULL, '{');
    snd_json_str(j, "title", p->title);
    if (p->caption) snd_json_str(j, "caption", p->caption);
    snd_json_str(j, "x", p->x_name);
    snd_json_str(j, "y", p->y_name);
    snd_json_bool(j, "log10", p->log);
    snd_json_bool(j, "x_log", p->xlog);
    snd_json_open(j, "series", '[');
    for (int i = 0; i < p->n_series; i++) write_series(j, p->series[i]);
    snd_json_close(j, ']');
    snd_json_close(j, '}');
}

static void write_heatmap(snd_json *j, const snd_heatmap *m) {
    snd_json_open(j, NULL, '{');
    snd_json_str(j, "title", m->title);
    snd_json_str(j, "label", m->label);
    snd_json_str(j, "x", m->x_name);
    snd_json_str(j, "y", m->y_name);
    snd_json_str(j, "z", m->z_name);
    snd_json_bool(j, "log10", m->log);
    snd_json_nums(j, "columns", m->x, m->n_x);
    snd_json_open(j, "rows", '[');
    for (int i = 0; i < m->n_rows; i++) {
        snd_json_open_flat(j, NULL, '{');
        snd_json_str(j, "name", m->rows[i]);
        snd_json_nums(j, "values", m->z + (int64_t)i * m->n_x, m->n_x);
        snd_json_close(j, '}');
    }
    snd_json_close(j, ']');
    snd_json_close(j, '}');
}

static void write_cell(snd_json *j, const snd_cell *c) {
    if (c->text) {
        snd_json_str(j, NULL, c->text);
    } else if (c->log) {
        snd_json_open_flat(j, NULL, '{');
        snd_json_num(j, "log10", c->num);
        snd_json_close(j, '}');
    } else {
        snd_json_num(j, NULL, c->num);
    }
}

static void write_table(snd_json *j, const snd_rtable *t) {
    snd_json_open(j, NULL, '{');
    snd_json_str(j, "title", t->title);
    if (t->caption) snd_json_str(j, "caption", t->caption);
    snd_json_open_flat(j, "columns", '[');
    for (int i = 0; i < t->n_columns; i++) snd_json_str(j, NULL, t->columns[i]);
    snd_json_close(j, ']');
    snd_json_open(j, "rows", '[');
    for (int i = 0; i + t->n_columns <= t->n_cells; i += t->n_columns) {
        snd_json_open_flat(j, NULL, '[');
        for (int k = 0; k < t->n_columns; k++) write_cell(j, &t->cells[i + k]);
        snd_json_close(j, ']');
    }
    snd_json_close(j, ']');
    snd_json_close(j, '}');
}

static void write_texts(snd_json *j, const snd_record *r) {
    if (r->title) snd_json_str(j, "title", r->title);
    if (r->command) snd_json_str(j, "command", r->command);
    if (r->version) snd_json_str(j, "version", r->version);
}

static void write_rest(snd_json *j, const snd_record *r) {
    snd_json_open(j, "verdicts", '[');
    for (int i = 0; i < r->n_verdicts; i++) write_verdict(j, r->verdicts[i]);
    snd_json_close(j, ']');
    if (r->n_panels) {
        snd_json_open(j, "panels", '[');
        for (int i = 0; i < r->n_panels; i++) write_panel(j, r->panels[i]);
        snd_json_close(j, ']');
    }
    if (r->n_heatmaps) {
        snd_json_open(j, "heatmaps", '[');
        for (int i = 0; i < r->n_heatmaps; i++) write_heatmap(j, r->heatmaps[i]);
        snd_json_close(j, ']');
    }
    if (r->n_tables) {
        snd_json_open(j, "tables", '[');
        for (int i = 0; i < r->n_tables; i++) write_table(j, r->tables[i]);
        snd_json_close(j, ']');
    }
    snd_json_open(j, "notes", '[');
    for (int i = 0; i < r->n_notes; i++) snd_json_str(j, NULL, r->notes[i]);
    snd_json_close(j, ']');
    snd_json_int(j, "nonfinite", snd_record_nonfinite(r));
}

void snd_record_json(const snd_record *r, snd_buf *b) {
    snd_json j = snd_json_start(b);
    j.digits = 9; // a seed's spread is far larger, and 17 digits take three times as long
    snd_json_open(&j, NULL, '{');
    snd_json_str(&j, "schema", snd_record_schema(r->kind));
    write_texts(&j, r);
    if (r->n_runs == 1) write_run(&j, r->runs[0]);
    if (r->n_runs > 1) {
        snd_json_open(&j, "runs", '[');
        for (int i = 0; i < r->n_runs; i++) {
            snd_json_open(&j, NULL, '{');
            write_run(&j, r->runs[i]);
            snd_json_int(&j, "nonfinite", r->runs[i]->nonfinite);
            snd_json_close(&j, '}');
        }
        snd_json_close(&j, ']');
    }
    write_rest(&j, r);
    snd_json_close(&j, '}');
}
