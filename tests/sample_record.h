// Made-up records for the tests of record/, report/ and cli/: the shapes that real results have (one run with values,
// several runs, panels with stated values), with numbers from closed forms and a fixed wobble instead of a measurement.
#ifndef SND_SAMPLE_RECORD_H
#define SND_SAMPLE_RECORD_H

#include "record/record.h"

#include <math.h>
#include <string.h>

static inline double sample_wobble(const char *name, int i) { return snd_normal_at(snd_key_make(7, name), (uint64_t)i); }

// One metric in its own scale: the law's sd is `law`, the measured mean lies wobble * law away.
static inline void sample_metric(snd_rvalue *v, const char *name, bool log, double predicted, double law) {
    snd_metric *m = snd_value_metric(v, name, log);
    const double w = sample_wobble(v->name, (int)strlen(name));
    m->predicted = predicted;
    m->lo = predicted - 1.96 * law;
    m->hi = predicted + 1.96 * law;
    m->lo999 = predicted - 3.29 * law;
    m->hi999 = predicted + 3.29 * law;
    if (!m->measured) return;
    m->mean = predicted + w * law;
    m->sd = law * 3;
    m->z = w;
}

// pre: the stream's mean square is 1 + l, its gradient (L+1)/(l+1); residual: 2^l and 2^(L-l).
static inline void sample_layers(snd_run *u, int layers, bool residual) {
    for (int l = -1; l <= layers; l++) {
        const char *name = l < 0 ? "in.x" : l == layers ? "out.x" : snd_record_text(u->rec, "layers.%d.x", l);
        const bool in_layer = l >= 0 && l < layers;
        const double k = l + 1, q = l == layers ? 1 : residual ? pow(2, k) : 1 + k;
        const double gq = residual ? pow(2, layers - k) : (layers + 1) / (k + 1);
        snd_rvalue *v = snd_run_value(u, name, in_layer ? l : -1);
        sample_metric(v, "q", true, log10(q), 0.004 + 0.002 * sqrt(k));
        sample_metric(v, "cos", false, 1 - 1 / (1 + 0.2 * k), 0.01);
        sample_metric(v, "gq", true, log10(gq), 0.02);
        if (!in_layer) continue;
        sample_metric(snd_run_value(u, snd_record_text(u->rec, "layers.%d.F.in", l), l), "q", true, 0, 0.002);
        sample_metric(snd_run_value(u, snd_record_text(u->rec, "layers.%d.F.out", l), l), "write", false, 1 / sqrt(1 + l), 0.01);
    }
    for (int l = 0; l < layers; l++) {
        snd_rvalue *p = snd_run_param(u, snd_record_text(u->rec, "layers.%d.F.block.W1.weight", l), l);
        sample_metric(p, "wgrms", true, log10(0.3) - 0.5 * log10(1 + l), 0.03);
        sample_metric(p, "wrms", false, 0.0884, 0.0001);
    }
}

static inline void sample_settings(snd_run *u, int layers) {
    char text[16];
    snprintf(text, sizeof text, "%d", layers);
    snd_run_setting(u, "family", "mlp", false);
    snd_run_setting(u, "wiring", u->label, false);
    snd_run_setting(u, "layers", text, true);
    snd_run_setting(u, "width", "256", true);
    snd_run_setting(u, "block", "two-matrix", false);
    snd_run_setting(u, "norm", "layer", false);
    snd_run_setting(u, "eps", "1e-05", true);
    snd_run_setting(u, "norm_bias", "true", true);
    snd_run_setting(u, "init", "lecun", false);
    u->depth = layers;
    u->seeds = 10;
    u->dtype = "f32";
    u->input = "64 x 256, iid N(0, 1)";
    u->spec_yaml = snd_record_text(u->rec, "model:\n  wiring: %s\n  layers: %d\n", u->label, layers);
}

// The label and a note are hostile on purpose: they must come through JSON and HTML unharmed and unable to harm.
static inline snd_record *sample_measure(snd_arena *a, int layers) {
    snd_record *r = snd_record_create(a, SND_REC_MEASURE);
    if (!r) return NULL;
    r->command = "sonde measure pre layers=32 --seeds 10";
    r->version = "0.1.0";
    snd_run *u = snd_record_run(r, "pre", "each: x = x + F(N(x))\nout: x = N(x)");
    sample_settings(u, layers);
    sample_layers(u, layers, false);
    snd_metric *m = snd_value_metric(u->summary, "growth", false);
    m->mean = 1.115;
    m->predicted = 1.1154;
    m = snd_value_metric(u->summary, "gratio", true);
    m->mean = 1.52;
    m->predicted = 1.5185;
    snd_verdict *v = snd_record_verdict(r, "stream-growth", SND_LEVEL_OK, "layers.31.x");
    v->value = 33.1;
    v->threshold = 65504;
    v->why = "The stream stays within f16 at every layer.";
    v = snd_record_verdict(r, "no-final-norm", SND_LEVEL_WARN, "out.x");
    v->value = log10(5.74);
    v->threshold = 0;
    v->log = true;
    v->why = "A pre-norm stack without a final norm hands on a stream whose RMS grows with depth.";
    v->remedy = "add `out: x = N(x)` to the wiring.";
    snd_record_note(r, "quotes \" and </script><script>alert(1)</script> and \xE2\x80\xA8 and \xFF end here");
    return r;
}

// Runs at several depths under two labels, panels with theory, bands and stated values, a table.
// Growth over training: 2^(layer step/10) in base-10 logarithms; one cell is not known.
static inline void sample_heatmap(snd_record *r, const char *label) {
    static const char *const rows[] = {"layers.0", "layers.1", "layers.2"};
    const double steps[4] = {1, 10, 20, 30};
    snd_heatmap *m = snd_record_heatmap(r, "Stream at the end of each layer", label, steps, 4, rows, 3);
    snd_heatmap_axes(m, "step", "layer", "root mean square", true);
    for (int l = 0; l < 3; l++)
        for (int i = 0; i < 4; i++)
            if (l != 1 || i != 2) snd_heatmap_put(m, l, i, log10(2) * l * steps[i] / 10);
}

static inline snd_record *sample_demo(snd_arena *a) {
    static const double depths[9] = {1, 2, 4, 8, 16, 32, 64, 128, 256};
    snd_record *r = snd_record_create(a, SND_REC_DEMO);
    if (!r) return NULL;
    r->title = "Residual connections: does the signal survive depth?";
    r->version = "0.1.0";
    r->command = "sonde demo --quick";
    for (int i = 3; i < 6; i++) {
        snd_run *u = snd_record_run(r, "residual", "each: x = x + F(x)");
        sample_settings(u, (int)depths[i]);
        sample_layers(u, (int)depths[i], true);
        u = snd_record_run(r, "pre", "each: x = x + F(N(x))\nout: x = N(x)");
        sample_settings(u, (int)depths[i]);
        sample_layers(u, (int)depths[i], false);
    }
    sample_heatmap(r, "residual");
    snd_panel *p = snd_record_panel(r, "Variance of the stream", "depth", "variance over the batch", true);
    p->xlog = true;
    p->caption = "Without a norm the variance grows by 2.903 per block, to about 10^116 at depth 256. Plain and pre-norm "
                 "nets stay on the axis.";
    const char *const labels[3] = {"plain", "residual", "pre"};
    const double slope[3] = {-0.008, log10(2.903), 0};
    for (int s = 0; s < 3; s++) {
        double y[9], t[9], lo[9], hi[9];
        for (int i = 0; i < 9; i++) {
            t[i] = s == 2 ? log10(1 + depths[i] * 0.68) : slope[s] * depths[i];
            const double sd = s == 2 ? 0.05 : 0.06 * sqrt(depths[i]);
            lo[i] = t[i] - 1.96 * sd;
            hi[i] = t[i] + 1.96 * sd;
            y[i] = t[i] + sd * sample_wobble(labels[s], i);
        }
        snd_series *q = snd_panel_series(p, labels[s], depths, 9);
        snd_series_y(p, q, y);
        snd_series_theory(p, q, t);
        snd_series_band(p, q, lo, hi);
        if (s == 1) snd_series_ref(p, q, 256, 116, "lecture");
    }
    p = snd_record_panel(r, "Correlation between examples", "depth", "mean cosine", false);
    p->xlog = true;
    p->caption = "The plain net maps all inputs to one direction; `pre` with a final norm keeps them apart.";
    for (int s = 0; s < 3; s++) {
        double y[9], t[9];
        for (int i = 0; i < 9; i++) {
            t[i] = s == 0 ? 1 - 0.52 / depths[i] : s == 1 ? 1 - 0.41 / sqrt(depths[i]) : 0.21 - 0.014 * i;
            y[i] = t[i] + 0.015 * sample_wobble(labels[s], 20 + i);
        }
        snd_series *q = snd_panel_series(p, labels[s], depths, 9);
        snd_series_y(p, q, y);
        snd_series_theory(p, q, t);
        if (s == 0) snd_series_ref(p, q, 1, 0.48, "lecture");
        if (s == 2) snd_series_ref(p, q, 256, 0.08, "lecture");
    }
    static const char *const columns[4] = {"wiring", "closed form", "lecture", "measured"};
    snd_rtable *t = snd_record_table(r, "Check values at depth 4", columns, 4);
    t->caption = "Second moment of the output for unit input.";
    snd_rtable_text(t, "residual");
    snd_rtable_text(t, "2^L");
    snd_rtable_num(t, 16, false);
    snd_rtable_num(t, 15.83, false);
    snd_rtable_text(t, "residual, depth 256");
    snd_rtable_text(t, "2.903^L");
    snd_rtable_num(t, 116, true);
    snd_rtable_num(t, 116.47, true);
    snd_verdict *v = snd_record_verdict(r, "stream-overflow", SND_LEVEL_ERROR, "layers.83.x");
    v->run = "residual";
    v->value = 38.6;
    v->threshold = 38.53;
    v->log = true;
    v->why = "The stream's largest value leaves f32 at this layer; in f16 it does at layer 9.";
    v->remedy = "normalise the branch's input (`pre`), or scale the branch by 1/sqrt(L) (`scaled-by-depth`).";
    snd_record_note(r, "Theory is for infinite width; the bands are for width 256 and 10 seeds.");
    return r;
}

#endif
