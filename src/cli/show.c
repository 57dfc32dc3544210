// A record as text: the wiring and its settings first (most real bugs are one ignored flag), then verdicts, then a
// sparkline and a per-layer table for one run, or one line per run for several, then the panels.
// Invariant: prints what the record holds; computes nothing but choices of rows and columns.
#include "cli/inner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_METRICS = 16, MOST_ROWS = 24, SPARK = 32 };

// ---- the head: formula, settings ----------------------------------------------------------------------------------------

// Keys that are worth a place in the first line, in this order; the rest is in --json and spec.yaml.
static const char *const head_keys[] = {"family", "arch", "layers", "width", "hidden", "heads",   "block",
                                        "norm",   "eps",  "init",   "act",   "vocab",  "position"};

static const char *setting(const snd_run *u, const char *key) {
    for (int i = 0; i < u->n_settings; i++)
        if (strcmp(u->settings[i].key, key) == 0) return u->settings[i].text;
    return NULL;
}

// The depths of all runs with this run's label: "1, 2, 4".
static void depths_of(const snd_run *u, snd_buf *b) {
    const snd_record *r = u->rec;
    for (int i = 0; i < r->n_runs; i++)
        if (strcmp(r->runs[i]->label, u->label) == 0)
            snd_buf_printf(b, "%s%lld", b->len ? " " : "", (long long)r->runs[i]->depth);
}

static void show_head(snd_cli *c, const snd_run *u) {
    const char *dot = c->utf8 ? " · " : ", ";
    snd_buf b = {0}, line = {0};
    for (const char *s = u->formula; *s;) { // one section a line, as it was given
        const size_t n = strcspn(s, "\n");
        char text[1024];
        snprintf(text, sizeof text, "%.*s", (int)(n < 1023 ? n : 1023), s);
        snd_ink_put(c, &b, SND_INK_BOLD, text);
        snd_buf_put(&b, "\n");
        s += n + (s[n] == '\n');
    }
    for (size_t i = 0; i < sizeof head_keys / sizeof *head_keys; i++) {
        const char *text = setting(u, head_keys[i]);
        snd_buf all = {0};
        if (text && strcmp(head_keys[i], "layers") == 0) depths_of(u, &all);
        if (text && *text) snd_buf_printf(&line, "%s%s %s", line.len ? dot : "", head_keys[i], all.s ? all.s : text);
        snd_buf_free(&all);
    }
    snd_buf_printf(&line, "%sseed %llu", line.len ? dot : "", (unsigned long long)u->seed);
    if (u->seeds > 1) snd_buf_printf(&line, "%s%d seeds", dot, u->seeds);
    if (u->dtype) snd_buf_printf(&line, "%s%s", dot, u->dtype);
    if (u->input) snd_buf_printf(&line, "%sinput %s", dot, u->input);
    snd_wrap(&b, line.s, 2, c->columns > 120 ? 120 : c->columns);
    snd_put(c, &b);
    snd_buf_free(&b);
    snd_buf_free(&line);
}

// ---- verdicts -----------------------------------------------------------------------------------------------------------

static const snd_ink level_ink[SND_LEVEL_COUNT] = {[SND_LEVEL_OK] = SND_INK_GREEN,
                                                   [SND_LEVEL_INFO] = SND_INK_BLUE,
                                                   [SND_LEVEL_WARN] = SND_INK_YELLOW,
                                                   [SND_LEVEL_ERROR] = SND_INK_RED};

// Adds a sentence behind what is there already, with the full stop that the text before it may lack.
static void sentence(snd_buf *b, const char *text, const char *lead) {
    if (!*text) return;
    const char last = b->len ? b->s[b->len - 1] : 0;
    if (last && last != ' ') snd_buf_put(b, strchr(".!?:;", last) ? " " : ". ");
    snd_buf_printf(b, "%s%s", lead, text);
}

static void show_verdict(snd_cli *c, const snd_verdict *v, bool several) {
    snd_buf b = {0}, text = {0};
    char name[8], got[40], limit[40];
    snprintf(name, sizeof name, "%-6s", snd_level_name(v->level));
    snd_ink_put(c, &b, level_ink[v->level], name);
    if (v->run && several) snd_buf_printf(&text, "[%s] ", v->run);
    if (strcmp(v->rule, snd_level_name(v->level)) != 0) snd_buf_put(&text, v->rule);
    if (*v->where) snd_buf_printf(&text, " at %s", v->where);
    if (!isnan(v->value))
        snd_buf_printf(&text, ": %s", v->log ? snd_pretty_log10(got, v->value, 3) : snd_pretty(got, v->value, 3));
    if (!isnan(v->value) && !isnan(v->threshold))
        snd_buf_printf(&text, " (limit %s)",
                       v->log ? snd_pretty_log10(limit, v->threshold, 3) : snd_pretty(limit, v->threshold, 3));
    sentence(&text, v->why, "");
    sentence(&text, v->remedy, "Try: ");
    snd_buf wrapped = {0};
    snd_wrap(&wrapped, text.s, 6, c->columns > 120 ? 120 : c->columns);
    if (wrapped.s) snd_buf_put(&b, wrapped.s + 6);
    snd_put(c, &b);
    snd_buf_free(&b);
    snd_buf_free(&text);
    snd_buf_free(&wrapped);
}

static void show_verdicts(snd_cli *c, const snd_record *r) {
    if (r->n_verdicts) snd_print(c, "\n");
    for (int level = SND_LEVEL_ERROR; level > SND_LEVEL_INVALID; level--) // worst first
        for (int i = 0; i < r->n_verdicts; i++)
            if (r->verdicts[i]->level == (snd_level)level) show_verdict(c, r->verdicts[i], r->n_runs > 1);
}

// ---- one run: sparklines and the table over layers ----------------------------------------------------------------------

static bool ends(const char *s, const char *tail) {
    const size_t n = strlen(s), k = strlen(tail);
    return n >= k && strcmp(s + n - k, tail) == 0;
}

// The stream itself: in.x, layers.3.x, out.x, with or without encoder. or decoder. in front.
static bool is_stream(const char *name) {
    if (strncmp(name, "encoder.", 8) == 0 || strncmp(name, "decoder.", 8) == 0) name += 8;
    if (strcmp(name, "in.x") == 0 || strcmp(name, "out.x") == 0) return true;
    if (strncmp(name, "layers.", 7) != 0 || !ends(name, ".x")) return false;
    return name[7 + strspn(name + 7, "0123456789")] == '.' && strspn(name + 7, "0123456789") + 9 == strlen(name);
}

static bool wanted(const snd_cli *c, const char *metric) {
    static const char *const first[] = {"q", "cos", "gq"};
    const char *const *list;
    const snd_opt_row *row = snd_opt_find("metrics", 7);
    const int n = row && snd_opt_applies(row, c->verb->name) ? snd_opt_strs(c, "metrics", &list) : 0;
    for (int i = 0; i < n; i++)
        if (strcmp(list[i], metric) == 0) return true;
    if (n) return false;
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        if (strcmp(first[i], metric) == 0) return true;
    return c->full;
}

typedef struct columns {
    const char *name[MOST_METRICS];
    bool theory[MOST_METRICS], z[MOST_METRICS];
    int n;
} columns;

// The metrics that stream values have and that are asked for, with what is known of each.
static columns choose(const snd_cli *c, const snd_run *u) {
    columns k = {.n = 0};
    for (int i = 0; i < u->n_values; i++) {
        const snd_rvalue *v = u->values[i];
        for (int m = 0; is_stream(v->name) && m < v->n_metrics; m++) {
            int at = 0;
            while (at < k.n && strcmp(k.name[at], v->metrics[m]->name) != 0) at++;
            if (at == k.n && (k.n == MOST_METRICS || !wanted(c, v->metrics[m]->name))) continue;
            if (at == k.n) k.name[k.n++] = v->metrics[m]->name;
            k.theory[at] |= v->metrics[m]->measured && !isnan(v->metrics[m]->predicted);
            k.z[at] |= v->metrics[m]->measured && !(isnan(v->metrics[m]->z) && isnan(v->metrics[m]->lo));
        }
    }
    return k;
}

static double shown(const snd_metric *m) {
    return m->measured ? m->mean : m->predicted;
}

static char *text_of(char out[40], bool log, double v, int digits) {
    if (isnan(v)) return strcpy(out, "nan");
    return log ? snd_pretty_log10(out, v, digits) : snd_pretty(out, v, digits);
}

static void spark_line(snd_cli *c, const snd_run *u, const char *metric, int name_width) {
    double *v = snd_arena_array(c->arena, (size_t)u->n_values + 1, sizeof *v);
    int n = 0;
    const snd_metric *first = NULL, *last = NULL;
    for (int i = 0; v && i < u->n_values; i++) {
        if (!is_stream(u->values[i]->name) || ends(u->values[i]->name, "out.x")) continue;
        const snd_metric *m = snd_value_find(u->values[i], metric);
        v[n++] = m ? shown(m) : NAN;
        if (m && !first) first = m;
        if (m) last = m;
    }
    if (!first) return;
    char a[40], z[40];
    snd_buf b = {0};
    snd_buf_printf(&b, "  %-*s ", name_width, metric);
    snd_sparkline(c, &b, v, n, SPARK);
    snd_buf_printf(&b, "  %s %s %s%s\n", text_of(a, first->log, shown(first), 3), c->utf8 ? "→" : "->",
                   text_of(z, last->log, shown(last), 3), first->log ? "  (log scale)" : "");
    snd_put(c, &b);
    snd_buf_free(&b);
}

// With more layers than rows: 1, 2, 3, 4, 6, 8, 12, 16, ... and the last.
static bool row_shown(const snd_cli *c, const snd_run *u, const snd_rvalue *v) {
    if (c->full || u->depth <= MOST_ROWS || v->layer < 0) return true;
    const int l = v->layer + 1;
    if (l == u->depth) return true;
    for (int p = 1; p <= l; p *= 2)
        if (l == p || (p >= 2 && l == p / 2 * 3)) return true;
    return false;
}

static char *one_decimal(char out[40], double v) {
    snd_format_num(out, round(v * 10) / 10, 6);
    if (isfinite(v) && !strchr(out, '.') && !strchr(out, 'e')) strcat(out, ".0");
    return out;
}

static void metric_cells(snd_text_table *t, const columns *k, int i, const snd_metric *m) {
    char s[40], z[48];
    const bool out = m && snd_metric_outside(m);
    snd_table_cell(t, m ? text_of(s, m->log, shown(m), 4) : "");
    if (out) snd_table_ink(t, SND_INK_RED);
    if (k->theory[i]) {
        snd_table_cell(t, m && !isnan(m->predicted) ? text_of(s, m->log, m->predicted, 4) : "");
        snd_table_ink(t, SND_INK_DIM);
    }
    if (!k->z[i]) return;
    z[0] = 0;
    if (m && !isnan(m->z)) snprintf(z, sizeof z, "%s%s", m->z < 0 ? "" : "+", one_decimal(s, m->z));
    snprintf(z + strlen(z), sizeof z - strlen(z), "%s", out ? "!" : m && !isnan(m->z) ? " " : "");
    snd_table_cell(t, z);
    if (out) snd_table_ink(t, SND_INK_RED);
}

static void layer_table(snd_cli *c, const snd_run *u, const columns *k) {
    const char *head[1 + 3 * MOST_METRICS];
    int n = 0;
    head[n++] = "layer";
    for (int i = 0; i < k->n; i++) {
        head[n++] = k->name[i];
        if (k->theory[i]) head[n++] = "theory";
        if (k->z[i]) head[n++] = "z ";
    }
    snd_text_table *t = snd_table(c, n);
    snd_table_head(t, head);
    for (int i = 0; i < u->n_values; i++) {
        const snd_rvalue *v = u->values[i];
        if (!is_stream(v->name) || !row_shown(c, u, v)) continue;
        if (v->layer >= 0)
            snd_table_int(t, v->layer);
        else
            snd_table_cell(t, v->name);
        for (int m = 0; m < k->n; m++) metric_cells(t, k, m, snd_value_find(v, k->name[m]));
    }
    snd_table_print(t);
}

// How many numbers lie outside their band, beside how many a right theory would put there.
static void count_outside(snd_cli *c, const snd_run *u) {
    int with_band = 0, outside = 0;
    for (int i = 0; i < u->n_values; i++)
        for (int m = 0; m < u->values[i]->n_metrics; m++) {
            const snd_metric *x = u->values[i]->metrics[m];
            with_band += x->measured && !isnan(x->lo);
            outside += snd_metric_outside(x);
        }
    char level[40], expected[40];
    if (!with_band) return;
    snd_format_num(level, 100 * u->band_level, 4);
    snd_format_num(expected, round((1 - u->band_level) * with_band), 6);
    snd_print(c, "\n%d of %d numbers lie outside their %s %% band (about %s would by chance)%s\n", outside, with_band,
              level, expected, outside ? "; those shown are marked !" : "");
}

// The sd in the metric's own unit; for a log metric half the width of mean +- sd.
static char *sd_text(char out[40], const snd_metric *m) {
    if (!m->log) return snd_pretty(out, m->sd, 2);
    const double half = (pow(10, m->sd) - pow(10, -m->sd)) / 2;
    return half > 0 ? snd_pretty_log10(out, m->mean + log10(half), 2) : strcpy(out, "0");
}

// Every value in long form: what --full adds.
static void value_table(snd_cli *c, const snd_run *u) {
    static const char *const head[] = {"value", "metric", "mean", "sd", "theory", "band", "", "z "};
    snd_text_table *t = snd_table(c, 8);
    snd_table_head(t, head);
    snd_table_left(t, 0);
    snd_table_left(t, 1);
    for (int i = 0; i < u->n_values + u->n_params; i++) {
        const snd_rvalue *v = i < u->n_values ? u->values[i] : u->params[i - u->n_values];
        for (int k = 0; k < v->n_metrics && !(i < u->n_values && is_stream(v->name)); k++) {
            const snd_metric *m = v->metrics[k];
            char s[40];
            snd_table_cell(t, v->name);
            snd_table_cell(t, m->name);
            snd_table_cell(t, m->measured ? text_of(s, m->log, m->mean, 4) : "");
            snd_table_cell(t, isnan(m->sd) ? "" : sd_text(s, m));
            snd_table_cell(t, isnan(m->predicted) ? "" : text_of(s, m->log, m->predicted, 4));
            snd_table_cell(t, isnan(m->lo) ? "" : text_of(s, m->log, m->lo, 3));
            snd_table_cell(t, isnan(m->hi) ? "" : text_of(s, m->log, m->hi, 3));
            snd_table_cell(t, isnan(m->z) ? "" : snd_pretty(s, m->z, 2));
        }
    }
    snd_table_print(t);
}

static void show_summary(snd_cli *c, const snd_run *u) {
    snd_buf b = {0};
    for (int i = 0; i < u->summary->n_metrics; i++) {
        const snd_metric *m = u->summary->metrics[i];
        char a[40], p[40];
        snd_buf_printf(&b, "%s%s %s", b.len ? (c->utf8 ? " · " : ", ") : "", m->name, text_of(a, m->log, shown(m), 4));
        if (m->measured && !isnan(m->predicted))
            snd_buf_printf(&b, " (theory %s)", text_of(p, m->log, m->predicted, 4));
    }
    snd_buf w = {0};
    if (b.s) snd_wrap(&w, b.s, 2, c->columns > 120 ? 120 : c->columns);
    snd_put(c, &w);
    snd_buf_free(&w);
    snd_buf_free(&b);
}

static void show_run(snd_cli *c, const snd_run *u) {
    const columns k = choose(c, u);
    int name_width = 0, rows = 0, left_out = 0;
    for (int i = 0; i < k.n; i++)
        if ((int)strlen(k.name[i]) > name_width) name_width = (int)strlen(k.name[i]);
    for (int i = 0; i < u->n_values; i++) {
        if (!is_stream(u->values[i]->name)) continue;
        rows++;
        left_out += !row_shown(c, u, u->values[i]);
    }
    snd_print(c, "\n");
    if (rows > 2)
        for (int i = 0; i < k.n; i++) spark_line(c, u, k.name[i], name_width);
    show_summary(c, u);
    if (k.n && rows) snd_print(c, "\n");
    if (k.n && rows) layer_table(c, u, &k);
    count_outside(c, u);
    if (left_out) snd_note(c, "%d of %d layers not shown: --full shows every layer and value", left_out, (int)u->depth);
    if (c->full && u->n_values + u->n_params > rows) {
        snd_print(c, "\n");
        value_table(c, u);
    }
}

// ---- several runs -------------------------------------------------------------------------------------------------------

static const snd_rvalue *last_stream(const snd_run *u, const char *metric) {
    for (int i = u->n_values - 1; i >= 0; i--)
        if (is_stream(u->values[i]->name) && !ends(u->values[i]->name, "out.x") && snd_value_find(u->values[i], metric))
            return u->values[i];
    return NULL;
}

static bool label_seen(const snd_record *r, int i) {
    for (int k = 0; k < i; k++)
        if (strcmp(r->runs[k]->label, r->runs[i]->label) == 0) return true;
    return false;
}

static void run_cells(snd_text_table *t, const snd_run *u, const snd_rvalue *sum, int n_sum, const columns *k) {
    char s[40];
    snd_table_cell(t, u->label);
    snd_table_int(t, u->depth);
    for (int m = 0; m < n_sum; m++) {
        const snd_metric *x = snd_value_find(u->summary, sum->metrics[m]->name);
        snd_table_cell(t, x ? text_of(s, x->log, shown(x), 4) : "");
    }
    for (int m = 0; m < k->n; m++) {
        const snd_rvalue *v = last_stream(u, k->name[m]);
        const snd_metric *x = v ? snd_value_find(v, k->name[m]) : NULL;
        snd_table_cell(t, x ? text_of(s, x->log, shown(x), 4) : "");
        if (x && snd_metric_outside(x)) snd_table_ink(t, SND_INK_RED);
        if (!k->theory[m]) continue;
        snd_table_cell(t, x && !isnan(x->predicted) ? text_of(s, x->log, x->predicted, 4) : "");
        snd_table_ink(t, SND_INK_DIM);
    }
}

// One line a run: the summary figures, and the columns' metrics at the last layer.
static void runs_table(snd_cli *c, const snd_record *r) {
    const columns k = choose(c, r->runs[0]);
    const snd_rvalue *sum = r->runs[0]->summary;
    const int n_sum = sum->n_metrics < 8 ? sum->n_metrics : 8;
    const char *head[2 + 8 + 2 * MOST_METRICS];
    int n = 0;
    head[n++] = "wiring";
    head[n++] = "depth";
    for (int i = 0; i < n_sum; i++) head[n++] = sum->metrics[i]->name;
    for (int i = 0; i < k.n; i++) {
        head[n++] = k.name[i];
        if (k.theory[i]) head[n++] = "theory";
    }
    snd_text_table *t = snd_table(c, n);
    snd_table_head(t, head);
    snd_table_left(t, 0);
    for (int first = 0; first < r->n_runs; first++) { // runs of one label together, in the order of first appearance
        if (label_seen(r, first)) continue;
        for (int i = first; i < r->n_runs; i++)
            if (strcmp(r->runs[i]->label, r->runs[first]->label) == 0) run_cells(t, r->runs[i], sum, n_sum, &k);
    }
    snd_print(c, "\n");
    if (k.n) snd_print(c, "At the last layer's stream (per layer: --full, --json, --csv, -o DIR):\n");
    snd_table_print(t);
}

// ---- panels and tables --------------------------------------------------------------------------------------------------

static double end_of(const double *v, int n, bool last) {
    for (int i = 0; v && i < n; i++) {
        const int at = last ? n - 1 - i : i;
        if (isfinite(v[at])) return v[at];
    }
    return NAN;
}

// "depth 256": the panel's smallest or largest x.
static void x_text(char out[64], const snd_panel *p, bool last) {
    double x = NAN;
    char number[40];
    for (int i = 0; i < p->n_series; i++) {
        const double v = end_of(p->series[i]->x, p->series[i]->n, last);
        if (isnan(x) || (last ? v > x : v < x)) x = v;
    }
    snprintf(out, 64, "%.20s %s", p->x_name, snd_format_num(number, x, 6));
}

static void show_panel(snd_cli *c, const snd_panel *p) {
    snd_buf b = {0};
    snd_buf_put(&b, "\n");
    snd_ink_put(c, &b, SND_INK_BOLD, p->title);
    snd_buf_printf(&b, "\n");
    if (p->caption) snd_wrap(&b, p->caption, 2, c->columns > 110 ? 110 : c->columns);
    char from[64], to[64];
    x_text(from, p, false);
    x_text(to, p, true);
    snd_buf_printf(&b, "  %s against %s\n", p->y_name, p->x_name);
    const char *const head[] = {"", "", from, to, "theory", ""};
    snd_text_table *t = snd_table(c, 6);
    snd_table_head(t, head);
    snd_table_left(t, 0);
    snd_table_left(t, 1);
    snd_table_left(t, 5);
    for (int i = 0; i < p->n_series; i++) {
        const snd_series *s = p->series[i];
        const double *v = s->y ? s->y : s->theory;
        char text[40];
        snd_buf spark = {0}, refs = {0};
        if (v) snd_sparkline(c, &spark, v, s->n, SPARK);
        for (int k = 0; k < s->n_refs; k++) {
            const snd_ref *f = &s->refs[k];
            snd_buf_printf(&refs, "%s%s %s at %s ", k ? "; " : "", *f->text ? f->text : "stated",
                           p->log ? snd_pretty_log10(text, f->y, 2) : snd_format_num(text, f->y, 6), p->x_name);
            snd_buf_num(&refs, f->x, 4);
        }
        snd_table_cell(t, s->label);
        snd_table_cell(t, spark.s ? spark.s : "");
        snd_table_cell(t, text_of(text, p->log, end_of(v, s->n, false), 3));
        snd_table_cell(t, text_of(text, p->log, end_of(v, s->n, true), 3));
        snd_table_cell(t, s->theory ? text_of(text, p->log, end_of(s->theory, s->n, true), 3) : "");
        snd_table_cell(t, refs.s ? refs.s : "");
        snd_table_ink(t, SND_INK_DIM);
        snd_buf_free(&spark);
        snd_buf_free(&refs);
    }
    snd_put(c, &b);
    snd_buf_free(&b);
    snd_table_print(t);
}

static void show_rtable(snd_cli *c, const snd_rtable *r) {
    snd_buf b = {0};
    snd_buf_put(&b, "\n");
    snd_ink_put(c, &b, SND_INK_BOLD, r->title);
    snd_buf_put(&b, "\n");
    if (r->caption) snd_wrap(&b, r->caption, 2, c->columns > 110 ? 110 : c->columns);
    snd_put(c, &b);
    snd_buf_free(&b);
    snd_text_table *t = snd_table(c, r->n_columns);
    snd_table_head(t, r->columns);
    for (int i = 0; i < r->n_cells; i++) {
        char s[40];
        const snd_cell *x = &r->cells[i];
        if (x->text && t) snd_table_left(t, i % r->n_columns);
        snd_table_cell(t, x->text ? x->text : isnan(x->num) ? "" : text_of(s, x->log, x->num, 4));
    }
    snd_table_print(t);
}

// ---- the whole ------------------------------------------------------------------------------------------------------------

void snd_cli_show(snd_cli *c, const snd_record *r) {
    for (int i = 0; i < r->n_runs; i++) {
        if (label_seen(r, i)) continue;
        if (i > 0) snd_print(c, "\n");
        if (r->n_runs > 1) snd_print(c, "%s\n", r->runs[i]->label);
        show_head(c, r->runs[i]);
    }
    show_verdicts(c, r);
    if (r->n_runs > 1) runs_table(c, r);
    for (int i = 0; i < r->n_runs; i++) {
        if (r->n_runs > 1 && !c->full) break;
        if (r->n_runs > 1) snd_print(c, "\n%s, depth %lld", r->runs[i]->label, (long long)r->runs[i]->depth);
        show_run(c, r->runs[i]);
    }
    for (int i = 0; i < r->n_panels; i++) show_panel(c, r->panels[i]);
    for (int i = 0; i < r->n_tables; i++) show_rtable(c, r->tables[i]);
    const int64_t lost = snd_record_nonfinite(r);
    if (lost) snd_note(c, "%lld measured numbers were not finite (null in JSON)", (long long)lost);
    for (int i = 0; i < r->n_notes; i++) snd_note(c, "%s", r->notes[i]);
}
