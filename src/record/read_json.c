// A record back from its JSON, as `sonde report` needs it. jansson parses (strict UTF-8, no NaN, depth limit); this file
// only walks the tree. Keys it does not know are skipped, so that a later version's files still read; a known key of the
// wrong type is an error that names it.
#include "record/record.h"

#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <string.h>

typedef struct reader {
    const char *where;
    snd_record *r;
} reader;

static const char *text(const json_t *o, const char *key) {
    return json_string_value(json_object_get(o, key));
}

static double num(const json_t *v) {
    return json_is_number(v) ? json_number_value(v) : NAN;
}

static int64_t whole(const json_t *o, const char *key, int64_t dflt) {
    const json_t *v = json_object_get(o, key);
    return json_is_integer(v) ? (int64_t)json_integer_value(v) : dflt;
}

static const char *keep(reader *rd, const char *s) {
    return s ? snd_record_text(rd->r, "%s", s) : NULL;
}

// The member `key`, which may be absent but not of another kind.
static sonde_status member(reader *rd, const json_t *o, const char *key, json_type type, json_t **out) {
    *out = json_object_get(o, key);
    SND_FAIL_IF(*out && json_typeof(*out) != type, SONDE_EINPUT, "%s: \"%s\" is not %s", rd->where, key,
                type == JSON_ARRAY ? "a list" : "an object");
    return SONDE_OK;
}

// ---- values -------------------------------------------------------------------------------------------------------------

static void read_band(const json_t *bands, const char *name, double *lo, double *hi) {
    const json_t *pair = json_object_get(bands, name);
    if (!pair) return;
    *lo = num(json_array_get(pair, 0));
    *hi = num(json_array_get(pair, 1));
}

// Fills one metric from the parts of its value (metrics, log10, ...), which are objects keyed by the metric's name.
static void read_metric(reader *rd, const json_t *v, snd_rvalue *to, const char *name, const json_t *means) {
    const json_t *log10s = json_object_get(v, "log10"), *predicted_log10s = json_object_get(v, "predicted_log10");
    const bool log = json_object_get(log10s, name) || json_object_get(predicted_log10s, name);
    snd_metric *m = snd_value_metric(to, name, log);
    const json_t *mean = json_object_get(means, name);
    m->measured = mean && rd->r->kind != SND_REC_PREDICT;
    if (m->measured) m->mean = num(log ? json_object_get(log10s, name) : mean);
    if (m->measured && log && isnan(m->mean) && num(mean) <= 0) m->mean = -INFINITY; // log10 of an exact zero is null
    m->sd = num(json_object_get(json_object_get(v, log ? "sd_log10" : "sd"), name));
    m->predicted = num(json_object_get(log ? predicted_log10s : json_object_get(v, "predicted"), name));
    read_band(json_object_get(v, log ? "band_log10" : "band"), name, &m->lo, &m->hi);
    read_band(json_object_get(v, log ? "band999_log10" : "band999"), name, &m->lo999, &m->hi999);
    m->z = num(json_object_get(json_object_get(v, "z"), name));
}

static void read_metrics(reader *rd, const json_t *v, snd_rvalue *to, const json_t *means) {
    const json_t *sources[2] = {means, json_object_get(v, "predicted")};
    for (int i = 0; i < 2; i++) {
        const char *name;
        json_t *x;
        json_object_foreach((json_t *)(uintptr_t)sources[i], name, x) {
            if (json_is_number(x) || json_is_null(x)) read_metric(rd, v, to, name, means);
        }
    }
}

static sonde_status read_values(reader *rd, const json_t *run, const char *key, snd_run *u, bool params) {
    json_t *list;
    SND_TRY(member(rd, run, key, JSON_ARRAY, &list));
    size_t i;
    json_t *v;
    json_array_foreach(list, i, v) {
        const char *name = text(v, "name");
        SND_FAIL_IF(!name, SONDE_EINPUT, "%s: entry %zu of \"%s\" has no name", rd->where, i + 1, key);
        const int64_t layer = whole(v, "layer", -1);
        SND_FAIL_IF(layer < -1 || layer > INT_MAX, SONDE_EINPUT, "%s: layer %lld of %s is out of range", rd->where,
                    (long long)layer, name);
        snd_rvalue *to = params ? snd_run_param(u, name, (int)layer) : snd_run_value(u, name, (int)layer);
        json_t *means;
        SND_TRY(member(rd, v, "metrics", JSON_OBJECT, &means));
        if (params) {
            json_t *flat = json_copy(v);
            SND_FAIL_IF(!flat, SONDE_ENOMEM, "%s: out of memory", rd->where);
            json_object_del(flat, "layer");
            read_metrics(rd, v, to, flat);
            json_decref(flat);
        } else {
            read_metrics(rd, v, to, means);
        }
    }
    return SONDE_OK;
}

// ---- runs ---------------------------------------------------------------------------------------------------------------

static void read_setting(snd_run *u, const char *key, const json_t *v) {
    if (json_is_string(v)) {
        snd_run_setting(u, key, json_string_value(v), false);
        return;
    }
    char out[40];
    if (json_is_boolean(v))
        snprintf(out, sizeof out, "%s", json_is_true(v) ? "true" : "false");
    else if (json_is_integer(v))
        snprintf(out, sizeof out, "%lld", (long long)json_integer_value(v));
    else if (json_is_real(v))
        snd_format_num(out, json_real_value(v) == 0 ? 0 : json_real_value(v), 17); // -0 as it is written
    else
        snprintf(out, sizeof out, "null");
    snd_run_setting(u, key, out, true);
}

static sonde_status read_run(reader *rd, const json_t *o, int64_t nonfinite) {
    SND_FAIL_IF(!json_is_object(o), SONDE_EINPUT, "%s: a run is not an object", rd->where);
    snd_run *u = snd_record_run(rd->r, text(o, "label"), text(o, "formula"));
    u->input = keep(rd, text(o, "input"));
    u->dtype = keep(rd, text(o, "dtype"));
    u->seed = (uint64_t)whole(o, "seed", 0);
    u->seeds = (int)whole(o, "seeds", 1);
    u->depth = whole(o, "depth", 0);
    u->nonfinite = whole(o, "nonfinite", nonfinite);
    const double level = num(json_object_get(o, "band_level"));
    if (level > 0 && level < 1) u->band_level = level;
    json_t *spec, *summary;
    SND_TRY(member(rd, o, "spec", JSON_OBJECT, &spec));
    SND_TRY(member(rd, o, "summary", JSON_OBJECT, &summary));
    const char *key;
    json_t *v;
    json_object_foreach(spec, key, v) {
        read_setting(u, key, v);
    }
    if (summary) read_metrics(rd, summary, u->summary, json_object_get(summary, "metrics"));
    SND_TRY(read_values(rd, o, "values", u, false));
    return read_values(rd, o, "params", u, true);
}

// ---- verdicts, panels, heat maps, tables ---------------------------------------------------------------------------------------------

static void read_verdict(reader *rd, const json_t *o) {
    const char *rule = text(o, "rule"), *level = text(o, "level");
    snd_verdict *v = snd_record_verdict(rd->r, rule ? rule : "", level ? snd_level_find(level) : SND_LEVEL_INVALID,
                                        text(o, "where"));
    if (v->level == SND_LEVEL_INVALID) v->level = SND_LEVEL_INFO; // a level of a later version
    v->run = keep(rd, text(o, "run"));
    v->log = json_object_get(o, "value_log10") != NULL;
    v->value = num(json_object_get(o, v->log ? "value_log10" : "value"));
    v->threshold = num(json_object_get(o, v->log ? "threshold_log10" : "threshold"));
    const char *why = text(o, "why"), *remedy = text(o, "try");
    if (why) v->why = keep(rd, why);
    if (remedy) v->remedy = keep(rd, remedy);
}

// A list of n numbers under `key`: into out, allocated in the record's arena; NULL when there is none.
static sonde_status read_numbers(reader *rd, const json_t *o, const char *key, int n, double **out) {
    json_t *list;
    *out = NULL;
    SND_TRY(member(rd, o, key, JSON_ARRAY, &list));
    if (!list) return SONDE_OK;
    SND_FAIL_IF(json_array_size(list) != (size_t)n, SONDE_EINPUT,
                "%s: a series has %d points but %zu numbers in \"%s\"", rd->where, n, json_array_size(list), key);
    SND_NEW(rd->r->arena, *out, n > 0 ? n : 1);
    for (int i = 0; i < n; i++) (*out)[i] = num(json_array_get(list, (size_t)i));
    return SONDE_OK;
}

static sonde_status read_series(reader *rd, const json_t *o, snd_panel *p) {
    const char *label = text(o, "label");
    const size_t n = json_array_size(json_object_get(o, "x"));
    SND_FAIL_IF(n > INT_MAX, SONDE_EINPUT, "%s: a series has %zu points", rd->where, n);
    double *x;
    SND_TRY(read_numbers(rd, o, "x", (int)n, &x));
    snd_series *s = snd_panel_series(p, label ? label : "", x, x ? (int)n : 0);
    s->formula = keep(rd, text(o, "formula"));
    SND_TRY(read_numbers(rd, o, "y", (int)n, &s->y));
    SND_TRY(read_numbers(rd, o, "sd", (int)n, &s->sd));
    SND_TRY(read_numbers(rd, o, "theory", (int)n, &s->theory));
    SND_TRY(read_numbers(rd, o, "lo", (int)n, &s->lo));
    SND_TRY(read_numbers(rd, o, "hi", (int)n, &s->hi));
    size_t i;
    json_t *ref;
    json_array_foreach(json_object_get(o, "refs"), i, ref) {
        snd_series_ref(p, s, num(json_object_get(ref, "x")), num(json_object_get(ref, "y")), text(ref, "text"));
    }
    return SONDE_OK;
}

static sonde_status read_panel(reader *rd, const json_t *o) {
    const char *title = text(o, "title"), *x = text(o, "x"), *y = text(o, "y");
    snd_panel *p = snd_record_panel(rd->r, title ? title : "", x ? x : "x", y ? y : "y",
                                    json_is_true(json_object_get(o, "log10")));
    p->caption = keep(rd, text(o, "caption"));
    p->xlog = json_is_true(json_object_get(o, "x_log"));
    json_t *list, *s;
    SND_TRY(member(rd, o, "series", JSON_ARRAY, &list));
    size_t i;
    json_array_foreach(list, i, s) {
        SND_TRY(read_series(rd, s, p));
    }
    return SONDE_OK;
}

static sonde_status read_heatmap_rows(reader *rd, const json_t *list, snd_heatmap *m) {
    size_t i;
    json_t *row;
    json_array_foreach(list, i, row) {
        double *z;
        SND_TRY(read_numbers(rd, row, "values", m->n_x, &z));
        for (int k = 0; z && k < m->n_x; k++) snd_heatmap_put(m, (int)i, k, z[k]);
    }
    return SONDE_OK;
}

static sonde_status read_heatmap(reader *rd, const json_t *o) {
    json_t *columns, *rows;
    SND_TRY(member(rd, o, "columns", JSON_ARRAY, &columns));
    SND_TRY(member(rd, o, "rows", JSON_ARRAY, &rows));
    const size_t n_x = json_array_size(columns), n = json_array_size(rows);
    SND_FAIL_IF(n_x < 1 || n < 1 || n_x > 10000000 / n, SONDE_EINPUT, "%s: a heat map has %zu rows and %zu columns",
                rd->where, n, n_x);
    const char **names;
    double *x;
    SND_NEW(rd->r->arena, names, n);
    for (size_t i = 0; i < n; i++) {
        const char *name = text(json_array_get(rows, i), "name");
        names[i] = name ? name : "";
    }
    SND_TRY(read_numbers(rd, o, "columns", (int)n_x, &x));
    const char *title = text(o, "title"), *label = text(o, "label"), *xn = text(o, "x"), *yn = text(o, "y"),
               *zn = text(o, "z");
    snd_heatmap *m = snd_record_heatmap(rd->r, title ? title : "", label ? label : "", x, (int)n_x, names, (int)n);
    snd_heatmap_axes(m, xn ? xn : "x", yn ? yn : "y", zn ? zn : "z", json_is_true(json_object_get(o, "log10")));
    return read_heatmap_rows(rd, rows, m);
}

static sonde_status read_table(reader *rd, const json_t *o) {
    json_t *columns, *rows;
    SND_TRY(member(rd, o, "columns", JSON_ARRAY, &columns));
    SND_TRY(member(rd, o, "rows", JSON_ARRAY, &rows));
    const size_t n = json_array_size(columns);
    SND_FAIL_IF(n < 1 || n > 1000, SONDE_EINPUT, "%s: a table has %zu columns", rd->where, n);
    const char **names;
    SND_NEW(rd->r->arena, names, n);
    for (size_t i = 0; i < n; i++) {
        const char *name = json_string_value(json_array_get(columns, i));
        names[i] = name ? name : "";
    }
    const char *title = text(o, "title");
    snd_rtable *t = snd_record_table(rd->r, title ? title : "", names, (int)n);
    t->caption = keep(rd, text(o, "caption"));
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row) {
        SND_FAIL_IF(json_array_size(row) != n, SONDE_EINPUT, "%s: row %zu of table \"%s\" has %zu cells, not %zu",
                    rd->where, i + 1, t->title, json_array_size(row), n);
        for (size_t k = 0; k < n; k++) {
            const json_t *c = json_array_get(row, k), *log = json_object_get(c, "log10");
            if (json_is_string(c))
                snd_rtable_text(t, json_string_value(c));
            else
                snd_rtable_num(t, num(log ? log : c), log != NULL);
        }
    }
    return SONDE_OK;
}

// ---- the whole ------------------------------------------------------------------------------------------------------------

static snd_record_kind kind_of(const char *schema) {
    for (int k = 1; k < SND_REC_KIND_COUNT; k++)
        if (strcmp(schema, snd_record_schema((snd_record_kind)k)) == 0) return (snd_record_kind)k;
    return SND_REC_INVALID;
}

static sonde_status each(reader *rd, const json_t *root, const char *key,
                         sonde_status (*read)(reader *, const json_t *)) {
    json_t *list, *o;
    SND_TRY(member(rd, root, key, JSON_ARRAY, &list));
    size_t i;
    json_array_foreach(list, i, o) {
        SND_TRY(read(rd, o));
    }
    return SONDE_OK;
}

static sonde_status one_run(reader *rd, const json_t *o) {
    return read_run(rd, o, 0);
}
static sonde_status one_verdict(reader *rd, const json_t *o) {
    read_verdict(rd, o);
    return SONDE_OK;
}
static sonde_status one_note(reader *rd, const json_t *o) {
    if (json_is_string(o)) snd_record_note(rd->r, "%s", json_string_value(o));
    return SONDE_OK;
}

static sonde_status read_root(reader *rd, snd_arena *a, const json_t *root) {
    SND_FAIL_IF(!json_is_object(root), SONDE_EINPUT, "%s: not a JSON object", rd->where);
    const char *schema = text(root, "schema");
    SND_FAIL_IF(!schema, SONDE_EINPUT, "%s: no \"schema\": this is not a result of sonde", rd->where);
    const snd_record_kind kind = kind_of(schema);
    SND_FAIL_IF(!kind, SONDE_EINPUT, "%s: schema \"%s\" is not one that this version reads (%s, %s, %s, %s)", rd->where,
                schema, snd_record_schema(SND_REC_PREDICT), snd_record_schema(SND_REC_MEASURE),
                snd_record_schema(SND_REC_DEMO), snd_record_schema(SND_REC_TRAIN));
    rd->r = snd_record_create(a, kind);
    if (!rd->r) return SONDE_ENOMEM;
    rd->r->title = keep(rd, text(root, "title"));
    rd->r->command = keep(rd, text(root, "command"));
    rd->r->version = keep(rd, text(root, "version"));
    if (json_object_get(root, "formula")) SND_TRY(read_run(rd, root, 0));
    SND_TRY(each(rd, root, "runs", one_run));
    SND_TRY(each(rd, root, "verdicts", one_verdict));
    SND_TRY(each(rd, root, "panels", read_panel));
    SND_TRY(each(rd, root, "heatmaps", read_heatmap));
    SND_TRY(each(rd, root, "tables", read_table));
    SND_TRY(each(rd, root, "notes", one_note));
    return snd_record_status(rd->r);
}

sonde_status snd_record_parse(snd_arena *a, const char *json, size_t n, const char *where, snd_record **out) {
    *out = NULL;
    json_error_t e;
    json_t *root = json_loadb(json, n, JSON_REJECT_DUPLICATES, &e);
    SND_FAIL_IF(!root, SONDE_EINPUT, "%s:%d:%d: not valid JSON: %s", where, e.line, e.column, e.text);
    reader rd = {.where = where};
    const sonde_status s = read_root(&rd, a, root);
    json_decref(root);
    if (s == SONDE_OK) *out = rd.r;
    return s;
}
