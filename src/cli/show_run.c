// One run as text: a sparkline per metric, the summary figures, the table over layers, and with --full every value.
#include "cli/show.h"

#include <math.h>
#include <string.h>

enum { MOST_ROWS = 24 };

bool snd_show_ends(const char *s, const char *tail) {
    const size_t n = strlen(s), k = strlen(tail);
    return n >= k && strcmp(s + n - k, tail) == 0;
}

bool snd_show_is_stream(const char *name) {
    if (strncmp(name, "encoder.", 8) == 0 || strncmp(name, "decoder.", 8) == 0) name += 8;
    if (strcmp(name, "in.x") == 0 || strcmp(name, "out.x") == 0) return true;
    if (strncmp(name, "layers.", 7) != 0 || !snd_show_ends(name, ".x")) return false;
    return name[7 + strspn(name + 7, "0123456789")] == '.' && strspn(name + 7, "0123456789") + 9 == strlen(name);
}

static bool wanted(const snd_cli *c, const char *metric) {
    static const char *const first[] = {"q", "cos", "tokcos", "gq"}; // tokcos: where there are tokens
    const char *const *list;
    const snd_opt_row *row = snd_opt_find(c->verb, "metrics", 7);
    const int n = row && snd_opt_applies(row, c->verb->name) ? snd_opt_strs(c, "metrics", &list) : 0;
    for (int i = 0; i < n; i++)
        if (strcmp(list[i], metric) == 0) return true;
    if (n) return false;
    for (size_t i = 0; i < sizeof first / sizeof *first; i++)
        if (strcmp(first[i], metric) == 0) return true;
    return false;
}

snd_columns snd_show_columns(const snd_cli *c, const snd_run *u) {
    snd_columns k = {.n = 0};
    for (int i = 0; i < u->n_values; i++) {
        const snd_rvalue *v = u->values[i];
        for (int m = 0; snd_show_is_stream(v->name) && m < v->n_metrics; m++) {
            int at = 0;
            while (at < k.n && strcmp(k.name[at], v->metrics[m]->name) != 0) at++;
            if (at == k.n && (k.n == SND_SHOW_METRICS || !wanted(c, v->metrics[m]->name))) continue;
            if (at == k.n) k.name[k.n++] = v->metrics[m]->name;
            k.theory[at] |= v->metrics[m]->measured && !isnan(v->metrics[m]->predicted);
            k.z[at] |= v->metrics[m]->measured && !(isnan(v->metrics[m]->z) && isnan(v->metrics[m]->lo));
        }
    }
    return k;
}

double snd_show_value(const snd_metric *m) {
    return m->measured ? m->mean : m->predicted;
}

char *snd_show_text(char out[40], bool log, double v, int digits) {
    if (isnan(v)) return strcpy(out, "nan");
    if (log) return snd_pretty_log10(out, v, digits);
    if (fabs(v) < 1e-12) return strcpy(out, "0"); // cosines and means live on a scale of 1: below is rounding
    return snd_pretty(out, v, fabs(v) < 0.01 && digits > 2 ? 2 : digits);
}

static void spark_line(snd_cli *c, const snd_run *u, const char *metric, int name_width) {
    double *v = snd_arena_array(c->arena, (size_t)u->n_values + 1, sizeof *v);
    int n = 0;
    const snd_metric *first = NULL, *last = NULL;
    for (int i = 0; v && i < u->n_values; i++) {
        if (!snd_show_is_stream(u->values[i]->name) || snd_show_ends(u->values[i]->name, "out.x")) continue;
        const snd_metric *m = snd_value_find(u->values[i], metric);
        v[n++] = m ? snd_show_value(m) : NAN;
        if (m && !first) first = m;
        if (m) last = m;
    }
    if (!first) return;
    char a[40], z[40];
    snd_buf b = {0};
    double lo = INFINITY, hi = -INFINITY;
    snd_spark_range(v, n, SND_SHOW_SPARK, &lo, &hi);
    snd_spark_least(first->log, &lo, &hi);
    snd_buf_printf(&b, "  %-*s ", name_width, metric);
    snd_sparkline(c, &b, v, n, SND_SHOW_SPARK, lo, hi);
    snd_buf_printf(&b, "  %s %s %s%s\n", snd_show_text(a, first->log, snd_show_value(first), 3), c->utf8 ? "→" : "->",
                   snd_show_text(z, last->log, snd_show_value(last), 3), first->log ? "  (log scale)" : "");
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

static void metric_cells(snd_text_table *t, const snd_columns *k, int i, const snd_metric *m) {
    char s[40], z[48];
    const bool out = m && snd_metric_outside(m);
    snd_table_cell(t, m ? snd_show_text(s, m->log, snd_show_value(m), 4) : "");
    if (out) snd_table_ink(t, SND_INK_RED);
    if (k->theory[i]) {
        snd_table_cell(t, m && !isnan(m->predicted) ? snd_show_text(s, m->log, m->predicted, 4) : "");
        snd_table_ink(t, SND_INK_DIM);
    }
    if (!k->z[i]) return;
    z[0] = 0;
    if (m && !isnan(m->z)) snprintf(z, sizeof z, "%s%s", m->z < 0 ? "" : "+", one_decimal(s, m->z));
    snprintf(z + strlen(z), sizeof z - strlen(z), "%s", out ? "!" : m && !isnan(m->z) ? " " : "");
    snd_table_cell(t, z);
    if (out) snd_table_ink(t, SND_INK_RED);
}

// "3", "encoder 3" where there are two stacks, or a name.
static void layer_cell(snd_text_table *t, const snd_rvalue *v) {
    char text[64];
    const char *layers = strstr(v->name, "layers.");
    const int stack = layers && layers > v->name ? (int)(layers - v->name) - 1 : 0;
    if (v->layer < 0)
        snd_table_cell(t, v->name);
    else if (stack > 0 && stack < 32) {
        snprintf(text, sizeof text, "%.*s %d", stack, v->name, v->layer);
        snd_table_cell(t, text);
    } else
        snd_table_int(t, v->layer);
}

static void layer_table(snd_cli *c, const snd_run *u, const snd_columns *k) {
    const char *head[1 + 3 * SND_SHOW_METRICS];
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
        if (!snd_show_is_stream(v->name) || !row_shown(c, u, v)) continue;
        layer_cell(t, v);
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
    char seeds[40];
    snprintf(seeds, sizeof seeds, "%d seed%s", u->seeds, u->seeds == 1 ? "" : "s");
    const char *text =
        snd_arena_printf(c->arena,
                         "\ntheory: for infinite width. z: distance from the middle of the %s %% band, which is for "
                         "this width and %s, in "
                         "standard deviations.\n%d of %d numbers lie outside their band (about %s would by chance)%s\n",
                         level, seeds, outside, with_band, expected, outside ? "; those shown are marked !" : "");
    snd_buf b = {0};
    snd_wrap(&b, text ? text : "", 0, c->columns > 120 ? 120 : c->columns);
    snd_put(c, &b);
    snd_buf_free(&b);
}

// The sd in the metric's own unit; for a log metric half the width of mean +- sd.
static char *sd_text(char out[40], const snd_metric *m) {
    if (!m->log) return snd_pretty(out, m->sd, 2);
    const double half = (pow(10, m->sd) - pow(10, -m->sd)) / 2;
    return half > 0 ? snd_pretty_log10(out, m->mean + log10(half), 2) : strcpy(out, "0");
}

static void value_row(snd_text_table *t, const snd_rvalue *v, const snd_metric *m) {
    char s[40];
    snd_table_cell(t, v->name);
    snd_table_cell(t, m->name);
    snd_table_cell(t, m->measured ? snd_show_text(s, m->log, m->mean, 4) : "");
    if (snd_metric_outside(m)) snd_table_ink(t, SND_INK_RED);
    snd_table_cell(t, isnan(m->sd) ? "" : sd_text(s, m));
    snd_table_cell(t, isnan(m->predicted) ? "" : snd_show_text(s, m->log, m->predicted, 4));
    snd_table_cell(t, isnan(m->lo) ? "" : snd_show_text(s, m->log, m->lo, 3));
    snd_table_cell(t, isnan(m->hi) ? "" : snd_show_text(s, m->log, m->hi, 3));
    snd_table_cell(t, isnan(m->z) ? "" : one_decimal(s, m->z));
}

static bool has_column(const snd_columns *k, const char *metric) {
    for (int i = 0; i < k->n; i++)
        if (strcmp(k->name[i], metric) == 0) return true;
    return false;
}

// What --full adds, in long form: everything that is not in the table over layers.
static void value_table(snd_cli *c, const snd_run *u, const snd_columns *k) {
    static const char *const head[] = {"value", "metric", "mean", "sd", "theory", "band", "", "z"};
    snd_text_table *t = snd_table(c, 8);
    snd_table_head(t, head);
    snd_table_left(t, 0);
    snd_table_left(t, 1);
    for (int i = 0; i < u->n_values + u->n_params; i++) {
        const bool is_value = i < u->n_values;
        const snd_rvalue *v = is_value ? u->values[i] : u->params[i - u->n_values];
        const bool stream = is_value && snd_show_is_stream(v->name);
        for (int m = 0; m < v->n_metrics; m++)
            if (!stream || !has_column(k, v->metrics[m]->name)) value_row(t, v, v->metrics[m]);
    }
    snd_table_print(t);
}

static const struct {
    const char *name, *words;
} explained[] = {{"growth", "mean square of the stream, per layer"},
                 {"gratio", "of the gradient, at in.x over the last layer"}};

// One line each: "growth 1.067 (theory 1.067): ..."; what has no words here is for --full and the files.
static void show_summary(snd_cli *c, const snd_run *u) {
    for (int i = 0; i < u->summary->n_metrics; i++) {
        const snd_metric *m = u->summary->metrics[i];
        const char *words = NULL;
        for (size_t k = 0; k < sizeof explained / sizeof *explained; k++)
            if (!strcmp(explained[k].name, m->name)) words = explained[k].words;
        if (!words && !c->full) continue;
        char a[40], p[40];
        snd_print(c, "  %s %s", m->name, snd_show_text(a, m->log, snd_show_value(m), 4));
        if (m->measured && !isnan(m->predicted))
            snd_print(c, " (theory %s)", snd_show_text(p, m->log, m->predicted, 4));
        snd_print(c, "%s%s\n", words ? ": " : "", words ? words : "");
    }
}

void snd_show_run(snd_cli *c, const snd_run *u) {
    const snd_columns k = snd_show_columns(c, u);
    int name_width = 0, rows = 0, left_out = 0;
    for (int i = 0; i < k.n; i++)
        if ((int)strlen(k.name[i]) > name_width) name_width = (int)strlen(k.name[i]);
    for (int i = 0; i < u->n_values; i++) {
        if (!snd_show_is_stream(u->values[i]->name)) continue;
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
    if (!c->full) return;
    snd_print(c, "\n");
    value_table(c, u, &k);
}
