// Panels, heat maps and small tables as text: a sparkline per series or row, its ends, theory, and what was stated elsewhere.
#include "cli/show.h"

#include <math.h>
#include <string.h>

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

static const double *curve(const snd_series *s) {
    return s->y ? s->y : s->theory;
}

static double last_theory(const snd_series *s) {
    return s->n && s->theory ? s->theory[s->n - 1] : NAN;
}

static void series_row(snd_cli *c, snd_text_table *t, const snd_panel *p, const snd_series *s, double lo, double hi,
                       bool with_theory) {
    const double *v = curve(s);
    const double theory = last_theory(s);
    char text[40];
    snd_buf spark = {0};
    if (v) snd_sparkline(c, &spark, v, s->n, SND_SHOW_SPARK, lo, hi);
    snd_table_cell(t, s->label);
    snd_table_cell(t, spark.s ? spark.s : "");
    snd_table_cell(t, snd_show_text(text, p->log, end_of(v, s->n, false), 3));
    snd_table_cell(t, snd_show_text(text, p->log, end_of(v, s->n, true), 3));
    if (with_theory) {
        snd_table_cell(t, isnan(theory) ? "" : snd_show_text(text, p->log, theory, 3));
        snd_table_ink(t, SND_INK_DIM);
    }
    snd_buf_free(&spark);
}

static void show_stated(snd_cli *c, const snd_panel *p) {
    snd_buf text = {0}, b = {0};
    snd_panel_stated(p, &text);
    if (text.s) snd_wrap(&b, text.s, 2, c->columns > 110 ? 110 : c->columns);
    snd_put(c, &b);
    snd_buf_free(&text);
    snd_buf_free(&b);
}

void snd_show_panel(snd_cli *c, const snd_panel *p) {
    snd_buf b = {0};
    snd_buf_put(&b, "\n");
    snd_ink_put(c, &b, SND_INK_BOLD, p->title);
    snd_buf_printf(&b, "\n");
    if (p->caption) snd_wrap(&b, p->caption, 2, c->columns > 110 ? 110 : c->columns);
    char from[64], to[64];
    x_text(from, p, false);
    x_text(to, p, true);
    snd_buf_printf(&b, "  %s against %s%s, one scale for all\n", p->y_name, p->x_name, p->log ? ", logarithmic" : "");
    const char *const head[] = {"", "", from, to, "theory"};
    bool theory = false;
    for (int i = 0; i < p->n_series; i++) theory |= !isnan(last_theory(p->series[i]));
    snd_text_table *t = snd_table(c, theory ? 5 : 4);
    snd_table_head(t, head);
    snd_table_left(t, 0);
    snd_table_left(t, 1);
    double lo = INFINITY, hi = -INFINITY;
    for (int i = 0; i < p->n_series; i++)
        if (curve(p->series[i])) snd_spark_range(curve(p->series[i]), p->series[i]->n, SND_SHOW_SPARK, &lo, &hi);
    snd_spark_least(p->log, &lo, &hi);
    for (int i = 0; i < p->n_series; i++) series_row(c, t, p, p->series[i], lo, hi, theory);
    snd_put(c, &b);
    snd_buf_free(&b);
    snd_table_print(t);
    show_stated(c, p);
}

void snd_show_heatmap(snd_cli *c, const snd_heatmap *m) {
    enum { MOST_ROWS = 8 };
    const int shown = m->n_rows < MOST_ROWS ? m->n_rows : MOST_ROWS;
    double lo = INFINITY, hi = -INFINITY;
    for (int i = 0; i < m->n_rows; i++) snd_spark_range(m->z + (int64_t)i * m->n_x, m->n_x, SND_SHOW_SPARK, &lo, &hi);
    snd_spark_least(m->log, &lo, &hi);
    snd_buf b = {0};
    snd_buf_put(&b, "\n");
    snd_ink_put(c, &b, SND_INK_BOLD, m->title);
    snd_buf_printf(&b, "\n  %s against %s%s, one scale for all\n", m->z_name, m->x_name, m->log ? ", logarithmic" : "");
    snd_put(c, &b);
    snd_buf_free(&b);
    char from[64], to[64], text[40];
    snprintf(from, sizeof from, "%.20s %s", m->x_name, snd_format_num(text, m->x[0], 9));
    snprintf(to, sizeof to, "%.20s %s", m->x_name, snd_format_num(text, m->x[m->n_x - 1], 9));
    const char *const head[] = {"", "", from, to};
    snd_text_table *t = snd_table(c, 4);
    snd_table_head(t, head);
    snd_table_left(t, 0);
    snd_table_left(t, 1);
    for (int i = 0; i < shown; i++) { // the first and the last row, and some between
        const int row = shown > 1 ? (int)((int64_t)i * (m->n_rows - 1) / (shown - 1)) : 0;
        const double *z = m->z + (int64_t)row * m->n_x;
        snd_buf spark = {0};
        snd_sparkline(c, &spark, z, m->n_x, SND_SHOW_SPARK, lo, hi);
        snd_table_cell(t, m->rows[row]);
        snd_table_cell(t, spark.s ? spark.s : "");
        snd_table_cell(t, snd_show_text(text, m->log, end_of(z, m->n_x, false), 3));
        snd_table_cell(t, snd_show_text(text, m->log, end_of(z, m->n_x, true), 3));
        snd_buf_free(&spark);
    }
    snd_table_print(t);
}

void snd_show_table(snd_cli *c, const snd_rtable *r) {
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
        snd_table_cell(t, x->text ? x->text : isnan(x->num) ? "" : snd_show_text(s, x->log, x->num, 4));
    }
    snd_table_print(t);
}
