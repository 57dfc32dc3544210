// A record as CSV (RFC 4180: commas, CRLF is not used, quotes doubled). Long form, so that one filter in any tool gives
// any curve. Absent and non-finite numbers are empty fields.
#include "record/record.h"

#include <math.h>
#include <string.h>

static void field(snd_buf *b, const char *s) {
    if (!strpbrk(s, ",\"\n\r")) {
        snd_buf_put(b, s);
        return;
    }
    snd_buf_put(b, "\"");
    for (; *s; s++) {
        if (*s == '"') snd_buf_put(b, "\"");
        snd_buf_putn(b, s, 1);
    }
    snd_buf_put(b, "\"");
}

static void number(snd_buf *b, double v) {
    snd_buf_put(b, ",");
    if (isfinite(v)) snd_buf_num(b, v, 17);
}

static void linear(snd_buf *b, const snd_metric *m, double v) {
    number(b, snd_metric_linear(m, v));
}

static void row(snd_buf *b, const snd_run *u, const snd_rvalue *v, const snd_metric *m) {
    field(b, u->label);
    snd_buf_printf(b, ",%lld,", (long long)u->depth);
    field(b, v->name);
    snd_buf_put(b, ",");
    if (v->layer >= 0) snd_buf_printf(b, "%d", v->layer);
    snd_buf_put(b, ",");
    field(b, m->name);
    linear(b, m, m->mean);
    linear(b, m, m->predicted);
    linear(b, m, m->lo);
    linear(b, m, m->hi);
    number(b, m->z);
    number(b, m->log ? m->mean : NAN);
    number(b, m->log ? m->sd : NAN);
    number(b, m->log ? m->predicted : NAN);
    number(b, m->log ? m->lo : NAN);
    number(b, m->log ? m->hi : NAN);
    number(b, m->log ? NAN : m->sd);
    snd_buf_put(b, snd_metric_outside(m) ? ",1\n" : ",0\n");
}

void snd_record_csv(const snd_record *r, snd_buf *b) {
    snd_buf_put(b, "run,depth,name,layer,metric,mean,predicted,band_lo,band_hi,z,log10_mean,log10_sd,log10_predicted,"
                   "log10_band_lo,log10_band_hi,sd,outside\n");
    for (int i = 0; i < r->n_runs; i++) {
        const snd_run *u = r->runs[i];
        for (int k = 0; k < u->n_values + u->n_params; k++) {
            const snd_rvalue *v = k < u->n_values ? u->values[k] : u->params[k - u->n_values];
            for (int m = 0; m < v->n_metrics; m++) row(b, u, v, v->metrics[m]);
        }
    }
}

static double at(const double *v, int i) {
    return v ? v[i] : NAN;
}

static void point(snd_buf *b, const snd_panel *p, const snd_series *s, int i) {
    field(b, p->title);
    snd_buf_put(b, ",");
    field(b, s->label);
    snd_buf_put(b, ",");
    field(b, p->x_name);
    snd_buf_put(b, ",");
    field(b, p->y_name);
    snd_buf_put(b, p->log ? ",1" : ",0");
    number(b, s->x[i]);
    number(b, at(s->y, i));
    number(b, at(s->sd, i));
    number(b, at(s->theory, i));
    number(b, at(s->lo, i));
    number(b, at(s->hi, i));
    snd_buf_put(b, "\n");
}

void snd_record_panels_csv(const snd_record *r, snd_buf *b) {
    snd_buf_put(b, "panel,series,x_name,y_name,log10,x,y,sd,theory,band_lo,band_hi\n");
    for (int i = 0; i < r->n_panels; i++)
        for (int k = 0; k < r->panels[i]->n_series; k++)
            for (int n = 0; n < r->panels[i]->series[k]->n; n++) point(b, r->panels[i], r->panels[i]->series[k], n);
}
