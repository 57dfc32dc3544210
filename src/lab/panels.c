// The lecture on residual connections and normalisation (document 004), panel by panel: measured curves over theory, with
// the lecture's stated values as reference points. The slides' algebra is about F(u) = W2 relu(W1 u); the lecture's
// plots fit F(u) = relu(W u) behind a stem relu(W0 x). Both are here, and a sentence says why they differ.
// Nothing is hard-wired but what the lecture states: every curve comes from measuring a formula.
#include "lab/panels.h"

#include <math.h>
#include <string.h>

// ---- measuring -----------------------------------------------------------------------------------------------------------------

static double time_left(const snd_show *s) {
    return s->o->time_limit > 0 ? s->deadline - snd_now() : INFINITY;
}

snd_measure_opts snd_show_opts(const snd_show *s) {
    return (snd_measure_opts){.seed = s->o->seed,
                              .dtype = s->o->dtype,
                              .threads = s->o->threads,
                              .time_limit = s->o->time_limit > 0 ? fmax(time_left(s), 1e-3) : 0,
                              .stop = s->o->stop,
                              .progress = s->o->progress,
                              .band_runs = s->o->quick ? 16 : 0,
                              .ctx = s->o->ctx,
                              .max_memory = s->o->max_memory};
}

sonde_status snd_show_measure(snd_show *s, snd_record *to, const snd_spec *spec, const char *label,
                              const snd_measure_opts *o) {
    if (s->interrupted) return SONDE_OK;
    const sonde_status status = snd_lab_measure(to, spec, label, o);
    s->interrupted = status == SONDE_EINTERRUPTED;
    return s->interrupted ? SONDE_OK : status;
}

// ---- the slides' nets: two-matrix block, every layer of one depth ----------------------------------------------------------------

static const struct {
    const char *label, *wiring;
} SLIDES[] = {{"plain", "plain"},
              {"residual", "residual"},
              {"1/sqrt(l)", "scaled-by-index"},
              {"1/sqrt(L)", "scaled-by-depth"},
              {"scale the stream", "scale-stream"},
              {"scale both", "scaled-half"},
              {"scale the input", "scale-in"},
              {"pre-norm", "pre"},
              {"batch norm", "pre"}};
enum { N_SLIDES = sizeof SLIDES / sizeof *SLIDES, BATCH_NORM = N_SLIDES - 1 };

static sonde_status load(snd_show *s, int i, int layers, snd_spec **out) {
    const char *over[] = {snd_record_text(s->rec, "layers=%d", layers),
                          snd_record_text(s->rec, "width=%d", s->o->quick ? 256 : 512),
                          i == BATCH_NORM ? "norm=batch" : "norm=layer"};
    return snd_spec_load(s->rec->arena, SLIDES[i].wiring, over, 3, out);
}

static sonde_status measure_slides(snd_show *s) {
    if (s->have_slides) return SONDE_OK;
    s->have_slides = true;
    s->slides_first = s->rec->n_runs;
    for (int i = 0; i < N_SLIDES; i++) {
        snd_spec *spec;
        SND_TRY(load(s, i, s->o->quick ? 32 : 64, &spec));
        snd_measure_opts o = snd_show_opts(s);
        o.rows = 64;
        o.seeds = s->o->quick ? 3 : 10;
        o.no_params = true;
        const int first = s->rec->n_runs;
        SND_TRY(snd_show_measure(s, s->rec, spec, SLIDES[i].label, &o));
        SND_TRY(snd_lab_judge(s->rec, spec, first, &o));
    }
    return SONDE_OK;
}

static double value_of(const snd_metric *m, int which) {
    const double v[] = {m->mean, m->predicted, m->lo, m->hi, m->sd};
    return v[which];
}

sonde_status snd_show_layers(snd_panel *p, const snd_run *u, const char *label, const char *metric) {
    const int n = (int)u->depth + 1;
    double *v[5], *x;
    snd_arena *a = u->rec->arena;
    SND_NEW(a, x, n);
    for (int k = 0; k < 5; k++) SND_NEW(a, v[k], n);
    for (int l = 0; l < n; l++) {
        const char *name = l ? snd_arena_printf(a, "layers.%d.x", l - 1) : "in.x";
        const snd_rvalue *val = name ? snd_run_find(u, name) : NULL;
        const snd_metric *m = val ? snd_value_find(val, metric) : NULL;
        x[l] = l;
        for (int k = 0; k < 5; k++) v[k][l] = m ? value_of(m, k) : NAN;
    }
    snd_series *s = snd_panel_series(p, label, x, n);
    if (!s) return SONDE_ENOMEM;
    s->formula = u->formula;
    snd_series_y(p, s, v[0]);
    snd_series_theory(p, s, v[1]);
    snd_series_band(p, s, v[2], v[3]);
    snd_series_sd(p, s, v[4]);
    return snd_record_status(p->rec);
}

static sonde_status slides_panel(snd_show *s, const char *title, const char *metric, const char *y,
                                 const char *const *labels, int n, const char *caption) {
    SND_TRY(measure_slides(s));
    snd_panel *p = snd_record_panel(s->rec, title, "layer", y, true);
    if (!p) return SONDE_ENOMEM;
    p->caption = caption;
    for (int i = 0; i < n; i++)
        for (int k = s->slides_first; k < s->rec->n_runs; k++)
            if (!strcmp(s->rec->runs[k]->label, labels[i])) {
                SND_TRY(snd_show_layers(p, s->rec->runs[k], labels[i], metric));
                break;
            }
    return SONDE_OK;
}

static sonde_status slides_forward(snd_show *s, const char *title) {
    static const char *const labels[] = {"plain", "residual", "1/sqrt(l)", "1/sqrt(L)", "pre-norm"};
    return slides_panel(s, title, "q", "mean square per coordinate", labels, 5,
                        "With W1 of variance 2/f and W2 of variance 1/n each block gives back the mean square that it "
                        "reads, so the residual "
                        "stream doubles (2^l), a factor 1/sqrt(l) makes it l + 1, 1/sqrt(L) keeps it below e, and a "
                        "norm makes it 1 + l.");
}

static sonde_status slides_backward(snd_show *s, const char *title) {
    static const char *const labels[] = {"plain", "residual", "1/sqrt(l)", "1/sqrt(L)", "pre-norm"};
    return slides_panel(s, title, "gq", "mean square of the gradient", labels, 5,
                        "From a unit gradient at the output back to the input: 2^(L-l) without control, (L+1)/(l+1) "
                        "with 1/sqrt(l), below e with "
                        "1/sqrt(L). Pre-norm with its final norm gives 1/(1+l): at the input the gradient does not "
                        "depend on the depth at all.");
}

static sonde_status slides_scaling(snd_show *s, const char *title) {
    static const char *const labels[] = {"1/sqrt(L)", "scale the input", "scale the stream", "scale both"};
    return slides_panel(
        s, title, "q", "mean square per coordinate", labels, 4,
        "Scaling the branch's input (a) and its output (b) is the same function for ReLU without bias. Scaling the "
        "stream (c) by "
        "1/sqrt(2) still grows by 1.5 a block and forgets the input; scaling both keeps 1 and forgets it too.");
}

static sonde_status slides_norm(snd_show *s, const char *title) {
    static const char *const labels[] = {"pre-norm", "batch norm"};
    SND_TRY(slides_panel(s, title, "q", "mean square per coordinate", labels, 2,
                         "Each block adds exactly 1 with LayerNorm. With batch norm that holds for the mean square "
                         "only: the ReLU features share "
                         "1/pi of their energy over the batch, so the variance over the batch grows by 1 - 1/pi = "
                         "0.682 a block (next panel)."));
    return slides_panel(s, "Slides: the same, as variance over the batch", "bvar",
                        "variance per feature over the batch", labels, 2,
                        "The lecture's algebra is about this number, and calls it 1 per block for both norms.");
}

// ---- closed forms at L = 4 -----------------------------------------------------------------------------------------------------------

static sonde_status closed_row(snd_show *s, snd_rtable *t, int i, const char *form, double value, const char *at,
                               const char *metric) {
    snd_spec *spec;
    SND_TRY(load(s, i, 4, &spec));
    snd_record *tmp = snd_record_create(s->rec->arena, SND_REC_MEASURE);
    if (!tmp) return SONDE_ENOMEM;
    snd_measure_opts o = snd_show_opts(s);
    o.rows = 64;
    o.seeds = s->o->quick ? 10 : 20;
    o.band_runs = 128; // four layers cost little, and the rows share their draws: a centre that is off shows in all
    o.no_params = true;
    SND_TRY(snd_show_measure(s, tmp, spec, SLIDES[i].label, &o));
    if (tmp->n_runs == 0) return SONDE_OK; // interrupted
    const snd_rvalue *v = snd_run_find(tmp->runs[0], at);
    const snd_metric *m = v ? snd_value_find(v, metric) : NULL;
    SND_FAIL_IF(!m, SONDE_EINTERNAL, "demo: no %s at %s", metric, at);
    snd_rtable_text(t, SLIDES[i].label);
    snd_rtable_text(t, snd_record_text(s->rec, "%s of %s", metric, at));
    snd_rtable_text(t, form);
    snd_rtable_num(t, value, false);
    snd_rtable_num(t, m->predicted, m->log);
    snd_rtable_num(t, m->mean, m->log);
    snd_rtable_text(t, m->mean >= m->lo && m->mean <= m->hi ? "inside" : "outside");
    return SONDE_OK;
}

static sonde_status closed_forms(snd_show *s, const char *title) {
    static const char *const columns[] = {"net", "number", "closed form", "value", "theory", "measured", "95 % band"};
    snd_rtable *t = snd_record_table(s->rec, title, columns, 7);
    if (!t) return SONDE_ENOMEM;
    t->caption = "Input N(0, 1), four blocks W2 relu(W1 u), upstream gradient N(0, 1). Every number is the slides'; "
                 "theory is the moment "
                 "algebra's, measured a mean over seeds, the band where 95 of 100 such means lie.";
    SND_TRY(closed_row(s, t, 1, "2^L", 16, "layers.3.x", "q"));
    SND_TRY(closed_row(s, t, 2, "L + 1", 5, "layers.3.x", "q"));
    SND_TRY(closed_row(s, t, 3, "(1 + 1/L)^L", pow(1.25, 4), "layers.3.x", "q"));
    SND_TRY(closed_row(s, t, 7, "1 + L", 5, "layers.3.x", "q"));
    SND_TRY(closed_row(s, t, 7, "1 (final norm)", 1, "out.x", "q"));
    SND_TRY(closed_row(s, t, 1, "2^L", 16, "in.x", "gq"));
    SND_TRY(closed_row(s, t, 2, "L + 1", 5, "in.x", "gq"));
    SND_TRY(closed_row(s, t, 3, "(1 + 1/L)^L", pow(1.25, 4), "in.x", "gq"));
    return closed_row(s, t, 7, "1 at any depth", 1, "in.x", "gq");
}

// ---- the plots' nets: one-matrix block, stem, depth sweep --------------------------------------------------------------------------------

// Document 004's depth counts the stem for the plain nets: depth D is the stem and D - 1 layers.
static const struct {
    const char *label, *formula;
    int stem;
    bool batch_norm;
} PLOTS[] = {{"plain", "in: x = relu(x)  each: x = F(x)", 1, false},
             {"plain + batch norm", "in: x = BN(relu(x))  each: x = BN(F(x))", 1, true},
             {"residual", "in: x = relu(x)  each: x = x + F(x)", 0, false},
             {"pre-norm + final norm", "in: x = relu(x)  each: x = x + F(N(x))  out: x = N(x)", 0, false}};
enum { N_PLOTS = sizeof PLOTS / sizeof *PLOTS, N_DEPTHS = 9 };

static sonde_status plot_spec(snd_show *s, int i, int width, snd_spec **out) {
    const char *over[] = {"inputs=784", "outputs=10",     "block=one-matrix",
                          "layers=256", "init=stem = he", snd_record_text(s->rec, "width=%d", width)};
    return snd_spec_load(s->rec->arena, PLOTS[i].formula, over, 6, out);
}

static sonde_status sweep(snd_show *s, snd_record *to, int i, int width, int64_t rows, int seeds, const char *label) {
    snd_spec *spec;
    int64_t depths[N_DEPTHS];
    for (int k = 0; k < N_DEPTHS; k++) depths[k] = ((int64_t)1 << k) - PLOTS[i].stem;
    SND_TRY(plot_spec(s, i, width, &spec));
    snd_measure_opts o = snd_show_opts(s);
    o.rows = rows;
    o.cos = 0.29;
    o.loss = true;
    o.seeds = seeds;
    o.depths = depths;
    o.n_depths = N_DEPTHS;
    if (PLOTS[i].batch_norm) o.bands = SND_BANDS_THEORY; // 64 rows to integrate out are not worth the wait here
    return snd_show_measure(s, to, spec, label, &o);
}

static sonde_status measure_plots(snd_show *s) {
    if (s->plots) return SONDE_OK;
    s->plots = snd_record_create(s->rec->arena, SND_REC_MEASURE);
    if (!s->plots) return SONDE_ENOMEM;
    for (int i = 0; i < N_PLOTS; i++)
        SND_TRY(sweep(s, s->plots, i, 128, s->o->quick ? 128 : 256, s->o->quick ? 3 : 5, PLOTS[i].label));
    return SONDE_OK;
}

static const snd_rvalue *param_of(const snd_run *u, const char *name) {
    for (int i = 0; i < u->n_params; i++)
        if (!strcmp(u->params[i]->name, name)) return u->params[i];
    return NULL;
}

// value: "last" (the deepest stream), "out.x", or a parameter's name.
static const snd_metric *sweep_metric(const snd_run *u, const char *value, const char *metric) {
    const char *name = value;
    if (!strcmp(value, "last"))
        name = u->depth ? snd_arena_printf(u->rec->arena, "layers.%d.x", (int)u->depth - 1) : "in.x";
    const snd_rvalue *v = name ? snd_run_find(u, name) : NULL;
    if (!v && name) v = param_of(u, name);
    return v ? snd_value_find(v, metric) : NULL;
}

// *out NULL: an interrupt left no run of that label.
static sonde_status sweep_series(snd_panel *p, const snd_record *from, const char *label, const char *as, int stem,
                                 const char *value, const char *metric, snd_series **out) {
    snd_arena *a = p->rec->arena;
    double *v[5], *x;
    int n = 0;
    const char *formula = NULL;
    SND_NEW(a, x, from->n_runs + 1);
    for (int k = 0; k < 5; k++) SND_NEW(a, v[k], from->n_runs + 1);
    for (int i = 0; i < from->n_runs; i++) {
        const snd_run *u = from->runs[i];
        if (strcmp(u->label, label)) continue;
        const snd_metric *m = sweep_metric(u, value, metric);
        x[n] = (double)u->depth + stem;
        for (int k = 0; k < 5; k++) v[k][n] = m ? value_of(m, k) : NAN;
        formula = u->formula;
        n++;
    }
    *out = NULL;
    if (n == 0) return SONDE_OK;
    snd_series *s = *out = snd_panel_series(p, as, x, n);
    if (!s) return SONDE_ENOMEM;
    s->formula = formula;
    snd_series_y(p, s, v[0]);
    snd_series_theory(p, s, v[1]);
    snd_series_band(p, s, v[2], v[3]);
    snd_series_sd(p, s, v[4]);
    return snd_record_status(p->rec);
}

typedef struct ref {
    double depth, y;
    const char *text;
} ref;
typedef struct curve {
    int net;
    const char *as, *value, *metric;
    ref refs[2];
} curve;

static sonde_status plots_panel(snd_show *s, const char *title, const char *y, bool log, const curve *c, int n,
                                const char *caption) {
    SND_TRY(measure_plots(s));
    snd_panel *p = snd_record_panel(s->rec, title, "depth", y, log);
    if (!p) return SONDE_ENOMEM;
    p->caption = caption;
    p->xlog = true;
    for (int i = 0; i < n; i++) {
        snd_series *one;
        const int net = c[i].net;
        SND_TRY(sweep_series(p, s->plots, PLOTS[net].label, c[i].as ? c[i].as : PLOTS[net].label, PLOTS[net].stem,
                             c[i].value, c[i].metric, &one));
        for (int k = 0; k < 2 && one; k++)
            if (c[i].refs[k].text) snd_series_ref(p, one, c[i].refs[k].depth, c[i].refs[k].y, c[i].refs[k].text);
    }
    return SONDE_OK;
}

static sonde_status plots_variance(snd_show *s, const char *title) {
    static const curve c[] = {
        {0, NULL, "last", "bvar", {{0, 0, NULL}}},
        {1, NULL, "last", "bvar", {{0, 0, NULL}}},
        {2, NULL, "last", "bvar", {{256, 116, "lecture: about 1e116"}, {30, 21, "lecture: about 1e21"}}}};
    return plots_panel(s, title, "variance per feature over the batch", true, c, 3,
                       "The plotted nets are F(u) = relu(W u): one matrix, ReLU last. Their outputs have a mean, which "
                       "lines up with the stream's, so "
                       "the residual stream grows by 2.904 a block and not by the slides' 2: 1e116 at 256 blocks, "
                       "where 2^256 would be 1e77. The "
                       "lecture's '1e21 near depth 30' is the ring off the curve: depth 30 has about 1e13.");
}

static sonde_status plots_gradient(snd_show *s, const char *title) {
    static const curve c[] = {{0, NULL, "stem.weight", "wgrms", {{0, 0, NULL}}},
                              {2, NULL, "stem.weight", "wgrms", {{256, 56, "lecture: about 1e56"}}},
                              {3, NULL, "stem.weight", "wgrms", {{0, 0, NULL}}}};
    return plots_panel(
        s, title, "RMS of the stem's weight gradient", true, c, 3,
        "Cross-entropy (mean) on ten classes. A positively homogeneous net has x.g equal at every layer, so the "
        "residual gradient's "
        "exponent is half the variance's: 1e56 to 1e57 against 1e116. The slides' independent doubling would give "
        "1e38. Pre-norm with its final norm is "
        "flat. A mean over the batch is about two decades lower than the lecture's axis, which suggests a sum.");
}

static sonde_status plots_correlation(snd_show *s, const char *title) {
    static const curve c[] = {{0, NULL, "last", "cos", {{1, 0.48, "lecture: 0.48"}, {256, 1.0, "lecture: 1.0"}}},
                              {1, NULL, "last", "cos", {{256, 0, "lecture: 0"}}},
                              {3, NULL, "out.x", "cos", {{1, 0.21, "lecture: 0.21"}, {256, 0.08, "lecture: 0.08"}}}};
    return plots_panel(s, title, "mean cosine between examples", false, c, 3,
                       "Input examples with mean cosine 0.29, as MNIST has. ReLU pulls all examples together (the "
                       "arc-cosine map), so a plain net "
                       "forgets which example it saw; batch norm keeps them apart; the final norm takes out the mean "
                       "that pre-norm streams share.");
}

static sonde_status plots_raw_stream(snd_show *s, const char *title) {
    static const curve v[] = {
        {3, "raw stream", "last", "bvar", {{1, 0.03, "lecture: about 1"}, {256, 2.204, "lecture: about 160"}}},
        {3, "after the final norm", "out.x", "var", {{0, 0, NULL}}}};
    static const curve c[] = {
        {3, "raw stream", "last", "cos", {{1, 0.59, "lecture: 0.59"}, {256, 0.99, "lecture: 0.99"}}},
        {3, "after the final norm", "out.x", "cos", {{1, 0.21, "lecture: 0.21"}, {256, 0.08, "lecture: 0.08"}}}};
    SND_TRY(plots_panel(s, title, "variance", true, v, 2,
                        "Each block adds 1 - 1/pi = 0.682 to the variance over the batch; the final norm reports 1 "
                        "whatever the stream does."));
    return plots_panel(s, "Plots: does the final norm undo the collapse?", "mean cosine between examples", false, c, 2,
                       "The raw stream's examples look alike because they share the mean of the ReLU features; without "
                       "that mean they are as "
                       "different as ever.");
}

static sonde_status batch_norm_gradient(snd_show *s, const char *title) {
    snd_record *tmp = snd_record_create(s->rec->arena, SND_REC_MEASURE);
    if (!tmp) return SONDE_ENOMEM;
    SND_TRY(sweep(s, tmp, 1, 64, 128, s->o->quick ? 2 : 4, PLOTS[1].label));
    snd_panel *p = snd_record_panel(s->rec, title, "depth", "RMS of the stem's weight gradient", true);
    if (!p) return SONDE_ENOMEM;
    p->xlog = true;
    p->caption = "Width 64, batch 128, BN(relu(W x)) in every layer. Batch norm subtracts what the batch shares, 1/pi "
                 "of the energy, and so multiplies the gradient's "
                 "energy by pi/(pi - 1) = 1.467 a layer on the way back: about 1e21 at depth 256. It fixes variance "
                 "and correlation, not the gradient.";
    snd_series *one;
    SND_TRY(sweep_series(p, tmp, PLOTS[1].label, PLOTS[1].label, 1, "stem.weight", "wgrms", &one));
    if (one) snd_series_ref(p, one, 256, 21.1, "independent simulation: 10^21.1");
    return SONDE_OK;
}

// ---- all of them ---------------------------------------------------------------------------------------------------------------------------

static const struct {
    const char *name, *title;
    sonde_status (*run)(snd_show *, const char *);
} PANELS[] = {
#define SND_PANEL(NAME, TITLE, RUN) {NAME, TITLE, RUN},
#include "lab/panels.def"
#undef SND_PANEL
};
enum { N_PANELS = sizeof PANELS / sizeof *PANELS };

int snd_panel_count(void) {
    return N_PANELS;
}
const char *snd_panel_name(int i) {
    return PANELS[i].name;
}
const char *snd_panel_title(int i) {
    return PANELS[i].title;
}

static sonde_status find_panel(const char *name, int *out) {
    const char *names[N_PANELS];
    for (int i = 0; i < N_PANELS; i++) {
        names[i] = PANELS[i].name;
        if (!strcmp(names[i], name)) {
            *out = i;
            return SONDE_OK;
        }
    }
    const char *near = snd_nearest(name, names, N_PANELS);
    SND_FAIL_IF(near, SONDE_ENAME, "no panel is called '%s'; did you mean '%s'?", name, near);
    SND_FAIL(SONDE_ENAME, "no panel is called '%s'; 'sonde demo --list' lists them", name);
}

// What was only begun when the show was interrupted: a panel without a curve, a table without a row.
static void drop_empty(snd_record *r) {
    int n = 0;
    for (int i = 0; i < r->n_panels; i++)
        if (r->panels[i]->n_series) r->panels[n++] = r->panels[i];
    r->n_panels = n;
    n = 0;
    for (int i = 0; i < r->n_tables; i++)
        if (r->tables[i]->n_cells) r->tables[n++] = r->tables[i];
    r->n_tables = n;
}

static void explain(const snd_show *s) {
    if (s->have_slides || s->plots)
        snd_record_note(s->rec,
                        "Slides and plots differ because they are different nets: the slides' algebra is for blocks of "
                        "two matrices, whose output has mean zero (the residual stream grows by 2 a block); the "
                        "plots fit one matrix with ReLU last, whose output has a mean (2.904 a block).");
    if (s->plots)
        snd_record_note(s->rec,
                        "The lecture's '1e21 near depth 30' can't lie on the curve that reaches 1e116 at depth 256: "
                        "that is 0.453 decades a block, so about 1e13 at depth 30, and 1e21 near depth 47. An axis "
                        "tick was probably misread.");
}

sonde_status snd_lab_demo(snd_record *r, const char *const *names, int n, const snd_demo_opts *o) {
    snd_show s = {.rec = r, .o = o, .deadline = snd_now() + o->time_limit};
    const int all = n ? n : N_PANELS;
    for (int i = 0; i < all && !s.interrupted; i++) {
        int k = i;
        if (n) SND_TRY(find_panel(names[i], &k));
        if (i > 0 && time_left(&s) <= 0) {
            snd_record_note(r, "The time limit left no room for %d of %d panels: '%s' and what follows it", all - i,
                            all, PANELS[k].title);
            break;
        }
        SND_TRY(PANELS[k].run(&s, PANELS[k].title));
        if (s.interrupted)
            snd_record_note(r,
                            "Interrupted in panel %d of %d, '%s': it shows what had been measured, the panels after "
                            "it are missing",
                            i + 1, all, PANELS[k].title);
    }
    explain(&s);
    if (!s.interrupted) return snd_record_status(r);
    drop_empty(r);
    SND_TRY(snd_record_status(r));
    SND_FAIL(SONDE_EINTERRUPTED, "interrupted");
}
