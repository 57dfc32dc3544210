// predict and measure: theory, finite-width bands and measurement meet in one record, value by value, under the same
// names. Measurement and band simulation run the same probe; the simulation has its Gaussian maps integrated out where
// that is cheaper, and then follows the law of the net at its real width without a single weight.
#include "lab/fit.h"
#include "lab/probe.h"

#include <math.h>
#include <string.h>

// Rows of a simulated net: those of the measured one, since what a mean over rows spreads depends on their number; with
// more than 64 the spread hardly changes. Where the algebra is an estimate, predict takes a quick look with fewer.
enum {
    BAND_ROWS = 64,
    BAND_ROWS_BATCH = 256,
    BAND_RUNS = 32,
    BAND_RUNS_LEAST = 8,
    RUNS_FEW = 16,
    LOOK_ROWS = 16,
    LOOK_RUNS = 24
};

static const double LARGE = 1e9; // parameters from which a measurement takes one seed unless more are asked for

typedef struct job {
    snd_record *rec;
    snd_arena *arena, *theory_arena; // of this measurement, both
    const snd_spec *spec;
    const char *label;
    snd_measure_opts o;
    bool measure, sparse;
    int *exits;
    int n_exits; // sharing one forward
    snd_prediction *theory;
    snd_probe *probe, *sim;
    bool interrupted;        // while seeds ran; the finished ones are kept
    int seeds, sims, sim_at; // sim_at: the cell found last; those asked for follow each other
    double *values, *sim_values;
    snd_probe_times times; // of what ran last: in the end, the seeds
    int64_t done, total;
    const char *stage;
    bool talking;    // a thread reports progress
    double deadline; // seconds of snd_now(), with a time limit
} job;

// ---- progress -----------------------------------------------------------------------------------------------------------------

// Called from any thread; whoever finds another one talking goes on working. The last word is finish()'s.
static void step(void *ctx, int steps) {
    job *j = ctx;
    const int64_t done = __atomic_add_fetch(&j->done, steps, __ATOMIC_RELAXED);
    if (!j->o.progress || done >= j->total || __atomic_test_and_set(&j->talking, __ATOMIC_ACQUIRE)) return;
    j->o.progress(j->o.ctx, j->stage, done, j->total);
    __atomic_clear(&j->talking, __ATOMIC_RELEASE);
}

static void finish(const job *j) {
    if (j->o.progress) j->o.progress(j->o.ctx, j->stage, j->total, j->total);
}

static void begin(job *j, const char *stage, int64_t total) {
    j->stage = stage;
    j->done = 0;
    j->total = total;
    if (j->o.progress) j->o.progress(j->o.ctx, stage, 0, total);
}

// ---- probes -----------------------------------------------------------------------------------------------------------------

static bool asked_for_costly(const snd_measure_opts *o) {
    for (int i = 0; i < o->n_metrics; i++) {
        const int m = snd_metric_find(o->metrics[i]);
        if (m >= 0 && snd_metric_at(m)->costly) return true;
    }
    return false;
}

static bool uses_batch_norm(const snd_spec *s) {
    if (s->norm == SND_NORM_BATCH) return true;
    return snd_formula_calls(s->formula, "BN") || (s->block_text && strstr(s->block_text, "BN("));
}

// Integrating the maps out pays where they are wide: the work of a map is then 8 rows^2 width, not 2 rows width^2 and
// width^2 draws. In between lies a factor of about four; the law is the same.
static bool maps_are_wide(const snd_spec *s, int64_t rows) {
    return s->width >= 4 * rows;
}

static snd_probe_opts probe_opts(const job *j, bool simulate) {
    const snd_measure_opts *o = &j->o;
    snd_probe_opts p = {.rows = o->rows,
                        .tokens = o->tokens,
                        .height = o->height,
                        .width = o->width,
                        .dtype = o->dtype,
                        .cos = o->cos,
                        .scale = o->scale,
                        .data = o->data,
                        .corpus = o->corpus,
                        .weights = o->weights,
                        .eval = o->eval,
                        .loss = o->loss,
                        .last_token = o->last_token,
                        .backward = true,
                        .params = !o->no_params,
                        .sparse = j->sparse,
                        .exits = j->exits,
                        .n_exits = j->n_exits,
                        .threads = o->threads,
                        .max_memory = o->max_memory,
                        .stop = o->stop,
                        .costly = asked_for_costly(o) || (!j->sparse && o->rows * o->tokens <= 64)};
    if (!simulate) return p;
    p.params = p.costly = false;
    p.integrate = j->spec->family == SND_FAM_TRANSFORMER && maps_are_wide(j->spec, p.rows * p.tokens);
    if (j->spec->family != SND_FAM_MLP) return p; // a convolution's weights are few: they are drawn
    const bool look = j->o.bands != SND_BANDS_SIMULATED;
    const int64_t most = uses_batch_norm(j->spec) ? BAND_ROWS_BATCH : look ? LOOK_ROWS : BAND_ROWS;
    p.rows = o->rows < most ? o->rows : most;
    p.integrate = maps_are_wide(j->spec, p.rows);
    return p;
}

// ---- theory ---------------------------------------------------------------------------------------------------------------------

static sonde_status predict(job *j) {
    if (j->o.weights) return SONDE_OK; // theory speaks of the start
    const snd_predict_opts o = {.rows = j->o.rows < 2 ? 2 : j->o.rows,
                                .tokens = j->o.tokens,
                                .height = j->o.height,
                                .width = j->o.width,
                                .q = j->o.scale * j->o.scale,
                                .cos = j->o.cos,
                                .exits = j->exits,
                                .n_exits = j->n_exits};
    const sonde_status s = snd_predict(j->theory_arena, j->spec, &o, &j->theory);
    return s == SONDE_EUNSUPPORTED && j->measure ? SONDE_OK : s; // measured all the same
}

static void note_theory(job *j) {
    const char *note = j->theory ? snd_predicted_note(j->theory) : NULL;
    if (note) snd_record_note_on(j->rec, j->label, note);
}

// Log10 of a linear number under the metric's scale.
static double on_scale(const snd_predicted *p, bool log) {
    return log ? p->log10 : p->value;
}

// The theory's input is Gaussian, or tokens that are drawn apart; a data set's is not.
static bool theory_applies(const job *j) {
    return !j->o.data && !j->o.corpus;
}

static bool theory_of(const job *j, int exit, const char *name, const snd_metric_row *row, snd_predicted *p) {
    if (!j->theory || !theory_applies(j)) return false;
    if (j->o.loss && row->where == SND_MW_GRAD) return false; // the theory's upstream gradient is N(0, 1)
    const snd_pmetric m = snd_pmetric_find(row->name);
    if (m == SND_PM_NONE) return false;
    const int e = exit < 0 ? snd_predicted_exits(j->theory) - 1 : exit;
    const int i = snd_predicted_find(j->theory, e, name);
    return i >= 0 && snd_predicted_at(j->theory, e, i, m, p);
}

// ---- one metric of one value ------------------------------------------------------------------------------------------------------

typedef struct law {
    double centre, sd;
    double error; // of the centre, whatever the number of nets
    int n;
    bool known;
} law; // of one net's metric, on the metric's scale

// What fewer rows change in a metric's mean, on its scale; NAN: not known.
static double row_bias(const job *j, const char *metric) {
    static const char *const extremes[] = {"absmax", "f16", "bf16", "rank"};
    const double e = (double)j->o.rows, r = (double)j->sim->o.rows;
    if (e == r) return 0;
    if (!strcmp(metric, "bvar")) return log10((1 - 1 / e) / (1 - 1 / r));
    for (int i = 0; i < 4; i++)
        if (!strcmp(metric, extremes[i])) return NAN;
    return 0;
}

// The law of a metric, from the simulated nets' cell i.
static law law_of_cell(const job *j, int i) {
    const snd_metric_row *row = snd_metric_at(j->sim->cells[i].metric);
    snd_moment m = {0};
    for (int k = 0; k < j->sims; k++) snd_moment_add(&m, j->sim_values[(int64_t)i * j->sims + k], row->log);
    const double centre = m.mean + row_bias(j, row->name);
    return (law){centre, snd_moment_sd(&m), 0, (int)m.n, m.n > 2 && isfinite(centre) && !m.nonfinite};
}

static law simulated_law(job *j, int metric, int exit, const char *name) {
    const int n = j->sim ? j->sim->n_cells : 0;
    for (int k = 0; k < n; k++) {
        const int i = (j->sim_at + k) % n;
        const snd_cell_spec *s = &j->sim->cells[i];
        if (s->metric != metric || (s->exit >= 0 && s->exit != exit) || strcmp(s->name, name)) continue;
        j->sim_at = i;
        return law_of_cell(j, i);
    }
    return (law){0};
}

static law theory_law(const snd_predicted *p, bool log) {
    return (law){on_scale(p, log) + p->shift, p->sd, p->error, p->nets, isfinite(p->sd) && isfinite(on_scale(p, log))};
}

// Rounding of the measuring type and of its statistics, on the metric's scale: below it nothing can be told apart.
static double resolution(const job *j, bool log, double centre) {
    const double eps = j->o.dtype == SND_F64 ? 1e-12 : 3e-6;
    return log ? eps : eps * fmax(1, fabs(centre));
}

static void set_band(const job *j, const law *l, bool log, snd_metric *m) {
    if (!l->known) return;
    const double extra = l->n ? 1.0 / l->n : 0, floor_sd = hypot(resolution(j, log, l->centre), l->error);
    const double sd = sqrt(l->sd * l->sd * (1.0 / j->seeds + extra) + floor_sd * floor_sd);
    const double t = l->n ? snd_student_975(l->n - 1) : 1.959964,
                 t999 = l->n ? snd_student_quantile(l->n - 1, 3.290527) : 3.290527;
    m->lo = l->centre - t * sd;
    m->hi = l->centre + t * sd;
    m->lo999 = l->centre - t999 * sd;
    m->hi999 = l->centre + t999 * sd;
    if (m->measured && isfinite(m->mean)) m->z = (m->mean - l->centre) / sd;
}

// At infinite width examples of one kind are equally long, and the variance over the batch comes from their angles alone.
// At finite width their lengths differ as well, and in a deep residual net that soon is all of it. A limit is a mean, so
// it can lie above what is typical but not below: when it does, it has nothing to say.
static bool limit_misses(const char *metric, const snd_metric *m) {
    return !strcmp(metric, "bvar") && m->predicted < m->lo;
}

// Is the metric defined for any seed? See read_cell() in probe.c.
static bool applies(const job *j, int index) {
    bool any = !j->measure;
    for (int k = 0; k < j->seeds && !any; k++) any = !isnan(j->values[(int64_t)index * j->seeds + k]);
    return any;
}

static void fill_cell(job *j, snd_run *u, snd_rvalue *v, int index) {
    const snd_cell_spec *c = &j->probe->cells[index];
    const snd_metric_row *row = snd_metric_at(c->metric);
    if (!applies(j, index)) return;
    snd_metric *m = snd_value_metric(v, row->name, row->log);
    if (j->measure) {
        const bool first_only = !strncmp(row->name, "absmax_", 7);
        snd_moment s = {0};
        for (int k = 0; k < (first_only ? 1 : j->seeds); k++)
            snd_moment_add(&s, j->values[(int64_t)index * j->seeds + k], row->log);
        m->measured = true;
        m->mean = s.n && !s.nonfinite ? s.mean : NAN; // a seed without a number is not averaged away
        m->sd = snd_moment_sd(&s);
        u->nonfinite += s.nonfinite;
    }
    snd_predicted p;
    const bool has = theory_of(j, c->exit, c->name, row, &p);
    const bool place = !strncmp(row->name, "absmax_", 7); // no statistic
    const law sim = place ? (law){0} : simulated_law(j, c->metric, c->exit, c->name);
    if (has) m->predicted = on_scale(&p, row->log);
    // a function of a value that is not Gaussian: the algebra is an estimate there, the simulation is not
    if (sim.known && (!has || p.approx)) m->predicted = sim.centre;
    const law th = has ? theory_law(&p, row->log) : (law){0};
    set_band(j, sim.known ? &sim : &th, row->log, m);
    if (sim.known && limit_misses(row->name, m)) m->predicted = sim.centre;
}

// ---- summary ------------------------------------------------------------------------------------------------------------------------

static const snd_metric *metric_of(const snd_run *u, const char *value, const char *metric) {
    const snd_rvalue *v = snd_run_find(u, value);
    return v ? snd_value_find(v, metric) : NULL;
}

static double best(const snd_metric *m) {
    return !m ? NAN : m->measured ? m->mean : m->predicted;
}

static void put_ratio(snd_run *u, const char *name, const snd_metric *a, const snd_metric *b, double per) {
    if (!a || !b) return;
    snd_metric *m = snd_value_metric(u->summary, name, true);
    m->measured = a->measured && b->measured;
    m->mean = (a->mean - b->mean) / per;
    m->predicted = (a->predicted - b->predicted) / per;
}

// What stands before the names of the last stack's values: "", or "decoder.".
static const char *stack_prefix(const job *j) {
    snd_stack t;
    snd_model_stack(j->spec, &t);
    return t.prefix;
}

static bool is_layer_end(const job *j, const snd_rvalue *v) { // "layers.3.x"
    const char *prefix = stack_prefix(j);
    if (v->layer < 0 || strncmp(v->name, prefix, strlen(prefix)) != 0) return false;
    const char *p = strchr(v->name + strlen(prefix), '.');
    p = p ? strchr(p + 1, '.') : NULL;
    return p && !strcmp(p, ".x");
}

static void put_slopes(job *j, snd_run *u, const char *metric, const char *against_layer, const char *against_log) {
    const int L = (int)u->depth;
    double *x = snd_arena_array(j->arena, (size_t)L + 1, sizeof *x),
           *lx = snd_arena_array(j->arena, (size_t)L + 1, sizeof *lx);
    double *y = snd_arena_array(j->arena, (size_t)L + 1, sizeof *y);
    if (!x || !lx || !y) return;
    int n = 0;
    for (int i = 0; i < u->n_values && n < L; i++) { // in running order, so layer by layer
        if (!is_layer_end(j, u->values[i])) continue;
        const double v = best(snd_value_find(u->values[i], metric));
        if (!isfinite(v)) continue;
        x[n] = u->values[i]->layer + 1;
        lx[n] = log(x[n]);
        y[n++] = v * log(10);
    }
    const struct {
        const char *name;
        const double *x;
    } two[] = {{against_layer, x}, {against_log, lx}};
    for (int i = 0; i < 2; i++) {
        double slope, half;
        snd_slope(two[i].x, y, n, &slope, &half);
        if (!isfinite(slope)) continue;
        snd_metric *m = snd_value_metric(u->summary, two[i].name, false);
        m->measured = j->measure;
        if (j->measure)
            m->mean = slope;
        else
            m->predicted = slope;
        m->lo = slope - half;
        m->hi = slope + half;
    }
}

static void summarise(job *j, snd_run *u) {
    const char *prefix = stack_prefix(j), *first = snd_arena_printf(j->arena, "%sin.x", prefix),
               *last = snd_arena_printf(j->arena, "%slayers.%d.x", prefix, (int)u->depth - 1);
    if (!first || !last || u->depth < 1) return;
    put_ratio(u, "growth", metric_of(u, last, "q"), metric_of(u, first, "q"), (double)u->depth);
    put_ratio(u, "gratio", metric_of(u, first, "gq"), metric_of(u, last, "gq"), 1);
    if (j->sparse) return;
    put_slopes(j, u, "q", "slope_q", "slope_q_log");
    put_slopes(j, u, "gq", "slope_gq", "slope_gq_log");
}

// ---- runs of the record ----------------------------------------------------------------------------------------------------------

// A Transformer's batch: tokens, or the stream itself.
static const char *sequence_text(job *j, const char *scale) {
    const snd_spec *s = j->spec;
    const long long B = (long long)j->o.rows, T = (long long)j->o.tokens;
    if (s->vocab < 1)
        return snd_record_text(j->rec, "%lld x %lld x %lld, iid N(0,1)%s%s", B, T, (long long)s->width, scale,
                               s->arch == SND_ARCH_ENCDEC ? ", the encoder's output likewise" : "");
    if (j->o.corpus) return snd_record_text(j->rec, "%lld x %lld tokens of %s", B, T, snd_corpus_name(j->o.corpus));
    return snd_record_text(j->rec, "%lld x %lld tokens, uniform over a vocabulary of %lld", B, T, (long long)s->vocab);
}

// One example's shape: "784", "3 x 32 x 32".
static const char *example_text(job *j) {
    const snd_val x = snd_model_stream(j->spec, j->o.height, j->o.width);
    if (j->spec->family == SND_FAM_CONVNET)
        return snd_record_text(j->rec, "%lld x %lld x %lld", (long long)x.cols, (long long)x.h, (long long)x.w);
    return snd_record_text(j->rec, "%lld", (long long)(j->spec->inputs > 0 ? j->spec->inputs : j->spec->width));
}

static const char *input_text(job *j) {
    char c[40], s[40];
    const long long rows = (long long)j->o.rows;
    const char *scale = j->o.scale == 1 ? "" : snd_record_text(j->rec, ", times %s", snd_format_num(s, j->o.scale, 6));
    if (j->spec->family == SND_FAM_TRANSFORMER) return sequence_text(j, scale);
    if (j->o.data)
        return snd_record_text(j->rec, "%lld rows of %s (%s features)", rows, snd_dataset_name(j->o.data),
                               example_text(j));
    if (j->o.cos == 0) return snd_record_text(j->rec, "%lld x %s, iid N(0,1)%s", rows, example_text(j), scale);
    return snd_record_text(j->rec, "%lld x %s, Gaussian with mean cosine %s%s", rows, example_text(j),
                           snd_format_num(c, j->o.cos, 6), scale);
}

static const char *formula_text(job *j) {
    snd_buf b = {0};
    snd_formula_print(j->spec->formula, &b);
    const char *text = b.failed || !b.s ? NULL : snd_record_text(j->rec, "%s", b.s);
    snd_buf_free(&b);
    return text ? text : "";
}

static snd_run *open_run(job *j, int exit) {
    snd_run *u = snd_record_run(j->rec, j->label, formula_text(j));
    if (!u) return NULL;
    u->input = input_text(j);
    u->dtype = snd_dtype_name(j->o.dtype); // predict: the type whose rounding its bands allow for
    u->seed = j->o.seed;
    u->seeds = j->seeds;
    u->depth = j->exits[exit];
    u->band_level = 0.95;
    if (j->o.timings) {
        u->draw_sec = j->times.draw;
        u->run_sec = j->times.run;
    }
    snd_spec_each(j->spec, snd_run_put, u);
    if (j->o.weights) {
        snd_run_put(u, "weights", snd_st_path(j->o.weights), false);
        if (uses_batch_norm(j->spec))
            snd_run_put(u, "batch_norm", j->o.eval ? "by running statistics" : "by the batch", false);
    } else if (!j->spec->init_text && !j->spec->formula->init)
        snd_run_put(u, "init", snd_nn_base_kind(j->spec), false);
    snd_buf b = {0};
    snd_spec_print_yaml(j->spec, &b);
    if (b.s && !b.failed) u->spec_yaml = snd_record_text(j->rec, "%s", b.s);
    snd_buf_free(&b);
    return u;
}

static snd_rvalue *value_of(snd_run *u, const snd_cell_spec *c) {
    snd_rvalue **list = c->param ? u->params : u->values;
    const int n = c->param ? u->n_params : u->n_values;
    for (int i = n - 1; i >= 0 && i >= n - 4; i--) // cells of a value stand together
        if (!strcmp(list[i]->name, c->name)) return list[i];
    for (int i = 0; i < n; i++)
        if (!strcmp(list[i]->name, c->name)) return list[i];
    return c->param ? snd_run_param(u, c->name, c->layer) : snd_run_value(u, c->name, c->layer);
}

static sonde_status fill(job *j) {
    for (int e = 0; e < j->n_exits; e++) {
        snd_run *u = open_run(j, e);
        if (!u) return SONDE_ENOMEM;
        for (int i = 0; i < j->probe->n_cells; i++) {
            const snd_cell_spec *c = &j->probe->cells[i];
            if (c->exit >= 0 && c->exit != e) continue;
            snd_rvalue *v = value_of(u, c);
            if (!v) return SONDE_ENOMEM;
            fill_cell(j, u, v, i);
        }
        summarise(j, u);
    }
    return snd_record_status(j->rec);
}

// Theory alone needs no graph: the prediction's own list of values is the table.
static bool shown_by_theory(const job *j, int e, int i) {
    const char *name = snd_predicted_name(j->theory, i);
    if (!snd_predicted_belongs(j->theory, e, i)) return false;
    if (!j->sparse) return true;
    const char *last = snd_arena_printf(j->arena, "layers.%d.x", j->exits[e] - 1);
    return !strcmp(name, "in.x") || !strcmp(name, "out.x") || (last && !strcmp(name, last));
}

// A name that the probe does not show (an alias) is looked up under the name of the same value that it does show.
static const char *shown_name(const job *j, const char *name) {
    const snd_model *m = j->sim->m;
    const snd_id v = snd_model_tap(m, name);
    for (int i = m->n_taps - 1; i >= 0 && v; i--)
        if (m->taps[i].v == v) return m->taps[i].name;
    return name;
}

static law looked_up(job *j, int e, int i, snd_pmetric m) {
    if (!j->sim) return (law){0};
    const char *name = shown_name(j, snd_predicted_name(j->theory, i));
    return simulated_law(j, snd_metric_find(snd_pmetric_name(m)), e, name);
}

// A value of which nothing is known stands there all the same: that it is lost is what its reader should see.
static void fill_theory_value(job *j, snd_run *u, int e, int i) {
    snd_rvalue *v = snd_run_value(u, snd_predicted_name(j->theory, i), snd_predicted_layer(j->theory, i));
    if (!v) return;
    for (int m = SND_PM_NONE + 1; m < SND_PM_COUNT; m++) {
        snd_predicted p;
        const bool has = snd_predicted_at(j->theory, e, i, (snd_pmetric)m, &p), log = snd_pmetric_log((snd_pmetric)m);
        const law sim = looked_up(j, e, i, (snd_pmetric)m), th = has ? theory_law(&p, log) : (law){0};
        const bool estimate = sim.known && (!has || p.approx);
        if (!has && !sim.known) continue;
        snd_metric *to = snd_value_metric(v, snd_pmetric_name((snd_pmetric)m), log);
        const law l = estimate || !th.known ? sim : th;
        to->predicted = estimate ? sim.centre : on_scale(&p, log);
        if (j->o.bands != SND_BANDS_NONE) set_band(j, &l, log, to);
    }
}

static sonde_status fill_theory(job *j) {
    for (int e = 0; e < j->n_exits; e++) {
        snd_run *u = open_run(j, e);
        if (!u) return SONDE_ENOMEM;
        for (int i = 0; i < snd_predicted_count(j->theory); i++)
            if (shown_by_theory(j, e, i)) fill_theory_value(j, u, e, i);
        summarise(j, u);
    }
    return snd_record_status(j->rec);
}

// ---- the work -----------------------------------------------------------------------------------------------------------------------

static sonde_status check_memory(const job *j, const snd_probe *p) {
    const size_t need = snd_probe_bytes(p);
    char limit[40], wants[40];
    SND_FAIL_IF(j->o.max_memory && need > j->o.max_memory, SONDE_EUSAGE,
                "--max-memory is %s; one run needs %s even with %s and every layer computed again for the backward "
                "pass (give a smaller --batch, width or depth)",
                snd_fit_bytes(limit, j->o.max_memory), snd_fit_bytes(wants, need),
                j->o.weights ? "the file's weights where they lie" : "weights drawn when they are used");
    return SONDE_OK;
}

// What a run needs and how it was made to fit, for those who set a limit or run into ours.
static void note_memory(const job *j, const snd_probe *p) {
    static const char *const weights[] = {"all weights in memory", "a layer's weights in memory at a time",
                                          "weights drawn for each use"};
    if (snd_g_many(p->m->g, p->m->logits))
        snd_record_note_on(j->rec, j->label,
                           "logits of this batch are too many to be made at once; they are not shown");
    if (!j->o.max_memory && !p->way.again) return;
    snd_record_note(j->rec, "%s: %zu MiB for one run: %s%s", j->label, (snd_probe_bytes(p) >> 20) + 1,
                    weights[p->way.params], p->way.again ? ", layers computed again for the backward pass" : "");
}

// Rates that the spec has, said once: measured is the whole net, as it is used after training.
static void note_inactive(const job *j) {
    const struct {
        const char *name;
        double rate;
    } part[] = {
        {"dropout", j->spec->dropout}, {"attn_dropout", j->spec->attn_dropout}, {"droppath", j->spec->droppath}};
    snd_buf b = {0};
    for (int i = 0; i < 3; i++) {
        char rate[40];
        if (part[i].rate > 0)
            snd_buf_printf(&b, "%s%s %s", b.len ? ", " : "", part[i].name, snd_format_num(rate, part[i].rate, 4));
    }
    if (b.len) snd_buf_put(&b, ": acts in training only and was inactive here");
    if (b.len && !b.failed) snd_record_note_on(j->rec, j->label, b.s);
    snd_buf_free(&b);
}

static void note_times(const job *j) {
    char a[40], b[40];
    double draw = 0, run = 0;
    if (!j->o.timings) return;
    for (int i = 0; i < j->seeds; i++) {
        draw += j->times.draw[i] / j->seeds;
        run += j->times.run[i] / j->seeds;
    }
    snd_record_note(j->rec, "%s: a seed took %s s to draw its weights and %s s for forward, backward and statistics",
                    j->label, snd_format_num(a, draw, 3), snd_format_num(b, run, 3));
}

// Runs `want` seeds of a probe, or as many as fit into `budget` seconds (0: all), at least one: the first one tells. An
// interrupt leaves the *n first ones.
static sonde_status run_some(job *j, const char *stage, const snd_probe *p, uint64_t first, int want, double budget,
                             double **values, int *n) {
    *n = want;
    if (budget > 0 && want > 1) {
        double *one;
        SND_NEW(j->arena, one, p->n_cells + 1);
        const double t0 = snd_now();
        int whole;
        SND_TRY(snd_probe_run(p, first, 1, one, &whole, NULL, NULL, NULL));
        const double t = snd_now() - t0;
        *n = t > 0 ? (int)fmin(want, fmax(1, budget / t - 1)) : want;
    }
    SND_NEW(j->arena, *values, (int64_t)p->n_cells * *n + 1);
    SND_NEW(j->rec->arena, j->times.draw, *n);
    SND_NEW(j->rec->arena, j->times.run, *n);
    begin(j, stage, (int64_t)SND_PROBE_STEPS * *n);
    const int all = *n;
    const sonde_status s = snd_probe_run(p, first, all, *values, n, &j->times, step, j);
    finish(j);
    for (int c = 0; c < p->n_cells && *n < all; c++) // the first seeds move together
        memmove(*values + (int64_t)c * *n, *values + (int64_t)c * all, (size_t)*n * sizeof **values);
    return s;
}

static double time_left(const job *j, double share) { // of the limit; 0: there is none
    if (j->o.time_limit <= 0) return 0;
    return fmax(1e-3, share * (j->deadline - snd_now()));
}

// Is a mean square of the theory an estimate only, beyond it, or without a band?
static bool needs_look(const job *j, int e, int i, snd_pmetric m) {
    snd_predicted p;
    if (!snd_predicted_at(j->theory, e, i, m, &p)) return m == SND_PM_Q;
    return p.approx || (isfinite(p.log10) && !isfinite(p.sd));
}

static bool estimated(const job *j) {
    for (int e = 0; e < j->n_exits; e++)
        for (int i = 0; i < snd_predicted_count(j->theory); i++)
            if (shown_by_theory(j, e, i) && (needs_look(j, e, i, SND_PM_Q) || needs_look(j, e, i, SND_PM_GQ)))
                return true;
    return false;
}

static int runs_wanted(const job *j) {
    // the mean of few seeds spreads so much itself that more simulated nets would hardly narrow the band
    const int64_t enough = !j->measure ? BAND_RUNS : 4 * j->seeds > RUNS_FEW ? 4 * j->seeds : RUNS_FEW;
    const bool images = j->spec->family == SND_FAM_CONVNET;
    const int64_t most = images || j->sim->o.rows > BAND_ROWS ? RUNS_FEW : BAND_RUNS;
    if (j->o.bands == SND_BANDS_SIMULATED) return (int)(enough < most ? enough : most);
    if (images) return BAND_RUNS_LEAST;
    const int64_t same_work = LOOK_RUNS * LOOK_ROWS / j->sim->o.rows; // batch norm looks with all rows
    return same_work > BAND_RUNS_LEAST ? (int)same_work : BAND_RUNS_LEAST;
}

static sonde_status simulate(job *j) {
    const snd_probe_opts o = probe_opts(j, true);
    SND_TRY(snd_probe_make(j->arena, j->spec, &o, &j->sim));
    SND_TRY(check_memory(j, j->sim));
    const int want = j->o.band_runs > 0 ? j->o.band_runs : runs_wanted(j);
    // seeds of their own: the band must not know the measurement
    SND_TRY(run_some(j, "bands", j->sim, j->o.seed + 0x5EED0000u, want, time_left(j, 0.4), &j->sim_values, &j->sims));
    if (j->sims >= BAND_RUNS_LEAST || j->sims == want) return SONDE_OK;
    snd_record_note(j->rec, "%s: the time limit left no room to simulate bands; they are the theory's", j->label);
    j->sim = NULL;
    return SONDE_OK;
}

static sonde_status run_seeds(job *j) {
    const int want = j->seeds;
    const sonde_status s = run_some(j, "seeds", j->probe, j->o.seed, want, time_left(j, 0.9), &j->values, &j->seeds);
    j->interrupted = s == SONDE_EINTERRUPTED && j->seeds > 0;
    if (!j->interrupted) SND_TRY(s);
    if (j->interrupted)
        snd_record_note(j->rec, "%s: interrupted after %d of %d seeds", j->label, j->seeds, want);
    else if (j->seeds < want)
        snd_record_note(j->rec, "%s: the time limit allowed %d of %d seeds", j->label, j->seeds, want);
    return SONDE_OK;
}

static sonde_status make_probe(job *j) {
    const snd_probe_opts o = probe_opts(j, false);
    SND_TRY(snd_probe_make(j->arena, j->spec, &o, &j->probe));
    return check_memory(j, j->probe);
}

typedef struct preparation {
    job *j;
    sonde_status status[2];
} preparation;

static void prepare_task(void *ctx, int64_t i) {
    preparation *p = ctx;
    p->status[i] = i == 0 ? predict(p->j) : make_probe(p->j);
}

// Theory and graph know nothing of each other, so they are made side by side. A message stays on the thread that wrote
// it: what failed is tried again on this one, which then has it.
static sonde_status prepare(job *j) {
    preparation p = {.j = j};
    snd_parallel(j->o.threads > 0 ? j->o.threads : snd_cpu_count(), 2, prepare_task, &p);
    if (p.status[0] != SONDE_OK) {
        snd_prediction_free(j->theory);
        j->theory = NULL;
        SND_TRY(predict(j));
    }
    return p.status[1] == SONDE_OK ? SONDE_OK : make_probe(j);
}

static sonde_status measure(job *j) {
    SND_TRY(prepare(j));
    note_theory(j);
    note_memory(j, j->probe);
    note_inactive(j);
    if (j->o.bands == SND_BANDS_SIMULATED) SND_TRY(simulate(j));
    SND_TRY(run_seeds(j));
    note_times(j);
    SND_TRY(fill(j));
    SND_FAIL_IF(j->interrupted, SONDE_EINTERRUPTED, "interrupted");
    return SONDE_OK;
}

static sonde_status work(job *j) {
    if (j->measure) return measure(j);
    const bool cheap = j->spec->family != SND_FAM_TRANSFORMER;
    SND_TRY(predict(j));
    note_theory(j);
    if (cheap && j->o.bands == SND_BANDS_THEORY && estimated(j)) SND_TRY(simulate(j));
    if (j->o.bands != SND_BANDS_SIMULATED) return fill_theory(j);
    SND_TRY(make_probe(j));
    SND_TRY(simulate(j));
    return fill(j);
}

// One forward can serve several depths when nothing in the wiring, the block or the init depends on the depth.
static bool depth_free(const snd_spec *s) {
    static const char *const names[] = {"L", "S", "Le", "Ld"};
    if (s->arch == SND_ARCH_ENCDEC) return false; // the encoder's depth changes as well
    for (int i = 0; i < 4; i++) {
        if (snd_formula_mentions(s->formula, names[i])) return false;
        const snd_expr *const keys[] = {s->block, s->kv_heads, s->window, s->rope_theta, s->position_x};
        for (int k = 0; k < 5; k++)
            if (snd_expr_mentions(keys[k], names[i])) return false;
        for (const snd_init_rule *r = s->init; r; r = r->next)
            if (snd_expr_mentions(r->factor, names[i]) || snd_expr_mentions(r->args[0], names[i])) return false;
    }
    return strcmp(snd_nn_base_kind(s), "gpt2") != 0;
}

static sonde_status run_job(job *j, const snd_spec *spec, const int *exits, int n) {
    j->arena = snd_arena_create();
    j->theory_arena = snd_arena_create();
    j->spec = spec;
    j->exits = (int *)(uintptr_t)exits;
    j->n_exits = n;
    const sonde_status s = j->arena && j->theory_arena ? work(j) : SONDE_ENOMEM;
    snd_prediction_free(j->theory);
    snd_arena_destroy(j->arena);
    snd_arena_destroy(j->theory_arena);
    j->theory = NULL;
    j->probe = j->sim = NULL;
    return s;
}

static void sort_depths(int *d, int *n) { // ascending, each once
    for (int i = 1; i < *n; i++)
        for (int k = i; k > 0 && d[k] < d[k - 1]; k--) {
            const int t = d[k];
            d[k] = d[k - 1];
            d[k - 1] = t;
        }
    int m = 0;
    for (int i = 0; i < *n; i++)
        if (!m || d[i] != d[m - 1]) d[m++] = d[i];
    *n = m;
}

static sonde_status run_all(job *j, const snd_spec *spec) {
    if (!j->o.n_depths) {
        const int L = (int)snd_lab_depth(spec);
        return run_job(j, spec, &L, 1);
    }
    int *d;
    int n = j->o.n_depths;
    SND_NEW(j->rec->arena, d, n);
    for (int i = 0; i < n; i++) d[i] = (int)j->o.depths[i]; // 0 layers: the stem alone
    sort_depths(d, &n);
    j->sparse = true;
    if (depth_free(spec)) {
        const snd_spec deepest = snd_lab_at_depth(spec, d[n - 1]);
        return run_job(j, &deepest, d, n);
    }
    for (int i = 0; i < n; i++) {
        const snd_spec one = snd_lab_at_depth(spec, d[i]);
        SND_TRY(run_job(j, &one, &d[i], 1));
    }
    return SONDE_OK;
}

// What an input has no use for, or lacks.
static sonde_status check_input(const job *j, const snd_spec *spec) {
    const snd_measure_opts *o = &j->o;
    const bool sequences = spec->family == SND_FAM_TRANSFORMER;
    SND_FAIL_IF(o->loss && !sequences && spec->outputs < 1, SONDE_EUSAGE, "--loss needs a head; give outputs=CLASSES");
    SND_FAIL_IF(o->last_token && (!o->loss || !sequences || spec->objective == SND_OBJ_MLM), SONDE_EUSAGE,
                "--last-token needs --loss and a model that reads on to the next token");
    if (!sequences) return SONDE_OK;
    SND_FAIL_IF(o->loss && spec->vocab < 1, SONDE_EUSAGE, "--loss needs a head; give vocab=NUMBER");
    SND_FAIL_IF(o->cos != 0, SONDE_EUSAGE, "--cos is for the mlp family; a Transformer's tokens or x are drawn apart");
    SND_FAIL_IF(o->scale != 1 && spec->vocab > 0, SONDE_EUSAGE,
                "--input-scale: tokens have no scale; embed_scale=NUMBER is the model's own");
    return SONDE_OK;
}

// Three, or one of a large net, a seed of which takes minutes; its width makes seeds much alike.
static sonde_status default_seeds(job *j, const snd_spec *spec) {
    int64_t layers = 0;
    for (int i = 0; i < j->o.n_depths; i++) layers = j->o.depths[i] > layers ? j->o.depths[i] : layers;
    const snd_spec deepest = layers ? snd_lab_at_depth(spec, layers) : *spec;
    snd_description *d;
    SND_TRY(snd_describe_facts(j->rec->arena, &deepest, &d));
    j->seeds = (double)d->n_learned > LARGE ? 1 : 3;
    char size[40];
    if (j->seeds == 1)
        snd_record_note(j->rec, "%s: one seed, since a net of %s parameters takes long; --seeds N for more", j->label,
                        snd_format_num(size, (double)d->n_learned, 3));
    return SONDE_OK;
}

static sonde_status start(job *j, snd_record *r, const snd_spec *spec, const char *label, const snd_measure_opts *o,
                          bool measure) {
    *j = (job){.rec = r, .label = label, .o = snd_lab_batch(spec, o), .measure = measure};
    if (j->o.scale == 0) j->o.scale = 1;
    if (j->o.dtype == SND_DT_NONE) j->o.dtype = SND_F32;
    const bool cheap =
        spec->family != SND_FAM_TRANSFORMER; // to simulate; a Transformer's bands cost many times its measurement
    if (j->o.weights) j->o.bands = SND_BANDS_NONE;
    if (j->o.bands == SND_BANDS_INVALID) j->o.bands = measure && cheap ? SND_BANDS_SIMULATED : SND_BANDS_THEORY;
    j->seeds = j->o.seeds > 0 ? j->o.seeds : 1;
    j->deadline = snd_now() + j->o.time_limit;
    if (spec->family == SND_FAM_CONVNET && j->o.data)
        SND_TRY(snd_dataset_images(j->o.data, snd_model_stream(spec, 0, 0).cols, &j->o.height, &j->o.width));
    SND_FAIL_IF(snd_lab_depth(spec) < 1 && !j->o.n_depths, SONDE_ERANGE, "layers is %lld; measuring needs at least 1",
                (long long)snd_lab_depth(spec));
    SND_FAIL_IF(j->o.dtype != SND_F32 && j->o.dtype != SND_F64, SONDE_EUSAGE, "--dtype %s: measuring is in f32 and f64",
                snd_dtype_name(j->o.dtype));
    SND_TRY(check_input(j, spec));
    return measure && j->o.seeds <= 0 ? default_seeds(j, spec) : SONDE_OK;
}

sonde_status snd_lab_predict(snd_record *r, const snd_spec *spec, const char *label, const snd_measure_opts *o) {
    job j;
    SND_TRY(start(&j, r, spec, label, o, false));
    return run_all(&j, spec);
}

sonde_status snd_lab_measure(snd_record *r, const snd_spec *spec, const char *label, const snd_measure_opts *o) {
    job j;
    SND_TRY(start(&j, r, spec, label, o, true));
    return run_all(&j, spec);
}
