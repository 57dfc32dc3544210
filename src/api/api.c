// The public interface: thin handles over spec/, lab/, record/ and report/. Every handle owns one arena.
#include "api/inner.h"
#include "report/report.h"

#include <string.h>

// ---- specs ------------------------------------------------------------------------------------------------------------------

sonde_status snd_api_spec(const char *spec, bool open, const char *const *overrides, int n, sonde_spec **out) {
    sonde_spec *s = snd_calloc(1, sizeof *s);
    if (!s) return SONDE_ENOMEM;
    s->arena = snd_arena_create();
    sonde_status status = SONDE_ENOMEM;
    if (s->arena && open) status = snd_spec_load_open(s->arena, spec, NULL, overrides, n, &s->spec);
    if (s->arena && !open) status = snd_spec_load(s->arena, spec, overrides, n, &s->spec);
    if (status == SONDE_OK)
        *out = s;
    else
        sonde_spec_destroy(s);
    return status;
}

sonde_status sonde_spec_load(const char *spec, const char *const *overrides, int n, sonde_spec **out) {
    return snd_api_spec(spec, false, overrides, n, out);
}

void sonde_spec_destroy(sonde_spec *s) {
    if (!s) return;
    snd_arena_destroy(s->arena);
    snd_free(s);
}

static const char *keep(snd_arena *a, snd_buf *b) {
    const char *text = b->failed || !b->s ? NULL : snd_arena_str(a, b->s);
    snd_buf_free(b);
    return text;
}

const char *sonde_spec_yaml(sonde_spec *s) {
    snd_buf b = {0};
    snd_spec_print_yaml(s->spec, &b);
    return keep(s->arena, &b);
}

const char *sonde_spec_formula(sonde_spec *s) {
    snd_buf b = {0};
    snd_formula_print(s->spec->formula, &b);
    return keep(s->arena, &b);
}

// ---- the lab ------------------------------------------------------------------------------------------------------------------

sonde_status snd_api_record(snd_record_kind kind, sonde_record **out) {
    sonde_record *r = snd_calloc(1, sizeof *r);
    if (!r) return SONDE_ENOMEM;
    r->arena = snd_arena_create();
    if (r->arena && kind != SND_REC_INVALID) r->rec = snd_record_create(r->arena, kind);
    if (!r->arena || (kind != SND_REC_INVALID && !r->rec)) {
        sonde_record_destroy(r);
        return SONDE_ENOMEM;
    }
    *out = r;
    return SONDE_OK;
}

static sonde_status lab(const sonde_spec *s, const sonde_lab_opts *o, bool measure, sonde_record **out) {
    sonde_record *r;
    const snd_measure_opts m = {.rows = o->batch,
                                .cos = o->cos,
                                .loss = o->loss != 0,
                                .seed = o->seed,
                                .seeds = o->seeds,
                                .dtype = o->f64 ? SND_F64 : SND_F32,
                                .depths = o->depths,
                                .n_depths = o->n_depths,
                                .threads = o->threads};
    const snd_spec *spec = s->spec;
    const char *label = spec->wiring_key ? spec->wiring_key : spec->title ? spec->title : "formula";
    SND_TRY(snd_api_record(measure ? SND_REC_MEASURE : SND_REC_PREDICT, &r));
    sonde_status status = measure ? snd_lab_measure(r->rec, spec, label, &m) : snd_lab_predict(r->rec, spec, label, &m);
    if (status == SONDE_OK) status = snd_lab_judge(r->rec, spec, 0, &m);
    if (status == SONDE_OK)
        *out = r;
    else
        sonde_record_destroy(r);
    return status;
}

sonde_status sonde_predict(const sonde_spec *s, const sonde_lab_opts *o, sonde_record **out) {
    return lab(s, o, false, out);
}
sonde_status sonde_measure(const sonde_spec *s, const sonde_lab_opts *o, sonde_record **out) {
    return lab(s, o, true, out);
}

sonde_status sonde_run(const sonde_spec *s, const sonde_run_opts *o) {
    const snd_run_opts run = {.weights = o->weights,
                              .input = o->input,
                              .output = o->output,
                              .taps = o->taps,
                              .n_taps = o->n_taps,
                              .backward = o->backward != 0,
                              .eval = o->eval != 0,
                              .dtype = o->f64 ? SND_F64 : SND_F32,
                              .seed = o->seed,
                              .threads = o->threads};
    snd_arena *a = snd_arena_create();
    if (!a) return SONDE_ENOMEM;
    snd_run_result result;
    const sonde_status status = snd_lab_run(a, s->spec, &run, &result);
    snd_arena_destroy(a);
    return status;
}

// ---- records --------------------------------------------------------------------------------------------------------------------

void sonde_record_destroy(sonde_record *r) {
    if (!r) return;
    snd_arena_destroy(r->arena);
    snd_free(r);
}

static const snd_run *run_at(const sonde_record *r, int run) {
    return run >= 0 && run < r->rec->n_runs ? r->rec->runs[run] : NULL;
}

int sonde_record_runs(const sonde_record *r) {
    return r->rec->n_runs;
}

int64_t sonde_record_depth(const sonde_record *r, int run) {
    const snd_run *u = run_at(r, run);
    return u ? u->depth : -1;
}

int sonde_record_values(const sonde_record *r, int run) {
    const snd_run *u = run_at(r, run);
    return u ? u->n_values : 0;
}

const char *sonde_record_value_name(const sonde_record *r, int run, int value) {
    const snd_run *u = run_at(r, run);
    return u && value >= 0 && value < u->n_values ? u->values[value]->name : NULL;
}

sonde_status sonde_record_metric(const sonde_record *r, int run, const char *value, const char *metric,
                                 sonde_metric *out) {
    const snd_run *u = run_at(r, run);
    SND_FAIL_IF(!u, SONDE_ENAME, "the record has %d runs, no run %d", r->rec->n_runs, run);
    const snd_rvalue *v = snd_run_find(u, value);
    SND_FAIL_IF(!v, SONDE_ENAME, "run %d has no value '%s'", run, value);
    const snd_metric *m = snd_value_find(v, metric);
    SND_FAIL_IF(!m, SONDE_ENAME, "'%s' has no metric '%s'", value, metric);
    *out = (sonde_metric){
        .log10 = m->log, .mean = m->mean, .sd = m->sd, .predicted = m->predicted, .lo = m->lo, .hi = m->hi, .z = m->z};
    return SONDE_OK;
}

int sonde_record_verdicts(const sonde_record *r) {
    return r->rec->n_verdicts;
}

sonde_status sonde_record_verdict(const sonde_record *r, int i, sonde_verdict *out) {
    SND_FAIL_IF(i < 0 || i >= r->rec->n_verdicts, SONDE_ENAME, "the record has %d verdicts, no verdict %d",
                r->rec->n_verdicts, i);
    const snd_verdict *v = r->rec->verdicts[i];
    *out = (sonde_verdict){.rule = v->rule,
                           .level = snd_level_name(v->level),
                           .where = v->where,
                           .value = v->value,
                           .threshold = v->threshold,
                           .why = v->why,
                           .remedy = v->remedy};
    return SONDE_OK;
}

int64_t sonde_record_nonfinite(const sonde_record *r) {
    return snd_record_nonfinite(r->rec);
}

sonde_status sonde_record_json(const sonde_record *r, char **json) {
    snd_buf b = {0};
    snd_record_json(r->rec, &b);
    if (b.failed || !b.s) {
        snd_buf_free(&b);
        SND_FAIL(SONDE_ENOMEM, "no memory for the record's JSON");
    }
    *json = b.s;
    return SONDE_OK;
}

sonde_status sonde_record_write(const sonde_record *r, const char *folder) {
    return snd_report_folder(r->rec, folder);
}

sonde_status sonde_record_read(const char *path, sonde_record **out) {
    sonde_record *r;
    SND_TRY(snd_api_record(SND_REC_INVALID, &r));
    const sonde_status status = snd_record_read(r->arena, path, &r->rec);
    if (status == SONDE_OK)
        *out = r;
    else
        sonde_record_destroy(r);
    return status;
}

void sonde_free(void *p) {
    snd_free(p);
}
