// A bench's result as JSON, reading one, and the comparison of two. What is compared is the share of the bound where there is
// one: it was measured in turns with the bound, so it outlives a busy hour, which a rate does not.
#include "base/machine.h"
#include "kernels/kernels.h"
#include "lab/bench.h"
#include "record/record.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

static const char SCHEMA[] = "sonde.bench/1";

sonde_status snd_bench_here(snd_arena *a, const snd_bench_opts *o, snd_bench_about *out) {
    static const char *const isas[] = {"none", "base", "avx2", "avx512"};
    char cpu[64];
    snd_cpu_name(cpu);
    *out = (snd_bench_about){.version = sonde_version(),
                             .cpu = snd_arena_str(a, cpu),
                             .isa = isas[snd_isa_best()],
                             .gemm_f32 = snd_k_gemm_name(SND_F32),
                             .gemm_f64 = snd_k_gemm_name(SND_F64),
                             .rival = o->rival ? snd_rival_name(o->rival) : NULL,
                             .setting = o->rival ? snd_rival_setting(o->rival) : NULL,
                             .quick = o->quick,
                             .cpu_time = o->cpu_time,
                             .load = snd_machine_load()};
    return out->cpu ? SONDE_OK : SONDE_ENOMEM;
}

// ---- writing ---------------------------------------------------------------------------------------------------------

static void put_stat(snd_json *j, const char *name, snd_bench_stat s) {
    char lo[32], hi[32];
    snprintf(lo, sizeof lo, "%s_lo", name);
    snprintf(hi, sizeof hi, "%s_hi", name);
    snd_json_num(j, name, s.mid);
    snd_json_num(j, lo, s.lo);
    snd_json_num(j, hi, s.hi);
}

static void put_row(snd_json *j, const snd_bench_row *r, bool rival) {
    snd_json_open_flat(j, NULL, '{');
    snd_json_str(j, "group", r->group);
    snd_json_str(j, "name", r->name);
    snd_json_int(j, "threads", r->threads);
    put_stat(j, "rate", r->rate);
    snd_json_str(j, "unit", r->unit);
    snd_json_str(j, "bound", *r->bound ? r->bound : NULL);
    snd_json_num(j, "bound_rate", r->bound_rate.mid);
    put_stat(j, "share", r->share);
    if (r->item) {
        snd_json_num(j, "seconds", r->seconds);
        snd_json_num(j, r->item, r->items);
        snd_json_num(j, "per_second", r->items / r->seconds);
        snd_json_num(j, "mib", r->mib);
    }
    if (rival) {
        put_stat(j, "rival", r->rival);
        put_stat(j, "ratio", r->ratio);
        if (r->item) snd_json_num(j, "rival_mib", r->rival_mib);
    }
    snd_json_close(j, '}');
}

static void put_changes(snd_json *j, const snd_bench_file *then, double tolerance, const snd_bench_change *c, int n) {
    snd_json_open(j, "baseline", '{');
    snd_json_str(j, "file", then->path);
    snd_json_str(j, "version", then->about.version);
    snd_json_num(j, "tolerance", tolerance);
    for (int v = 0; v < SND_BENCH_VERDICTS; v++)
        snd_json_int(j, snd_bench_verdict_name(v), snd_bench_count(c, n, (snd_bench_verdict)v));
    snd_json_open(j, "rows", '[');
    for (int i = 0; i < n; i++) {
        snd_json_open_flat(j, NULL, '{');
        snd_json_str(j, "group", c[i].group);
        snd_json_str(j, "name", c[i].name);
        snd_json_int(j, "threads", c[i].threads);
        snd_json_str(j, "by", c[i].by);
        snd_json_num(j, "then", c[i].then);
        snd_json_num(j, "now", c[i].now);
        snd_json_num(j, "ratio", c[i].ratio);
        snd_json_str(j, "verdict", snd_bench_verdict_name(c[i].verdict));
        snd_json_close(j, '}');
    }
    snd_json_close(j, ']');
    snd_json_close(j, '}');
}

void snd_bench_json(const snd_bench_about *about, const snd_bench_row *rows, int n, const snd_bench_file *then,
                    double tolerance, const snd_bench_change *changes, int n_changes, snd_buf *out) {
    snd_json j = snd_json_start(out);
    int64_t nonfinite = 0;
    for (int i = 0; i < n; i++)
        nonfinite += !isfinite(rows[i].rate.mid) || (about->rival && !isfinite(rows[i].ratio.mid));
    snd_json_open(&j, NULL, '{');
    snd_json_str(&j, "schema", SCHEMA);
    snd_json_str(&j, "version", about->version);
    snd_json_str(&j, "cpu", about->cpu);
    snd_json_str(&j, "isa", about->isa);
    snd_json_bool(&j, "quick", about->quick);
    snd_json_bool(&j, "cpu_time", about->cpu_time);
    snd_json_num(&j, "load", about->load);
    snd_json_str(&j, "gemm_f32", about->gemm_f32);
    snd_json_str(&j, "gemm_f64", about->gemm_f64);
    if (about->rival) {
        snd_json_str(&j, "rival", about->rival);
        snd_json_str(&j, "rival_setting", about->setting);
    }
    snd_json_int(&j, "nonfinite", nonfinite);
    snd_json_open(&j, "rows", '[');
    for (int i = 0; i < n; i++) put_row(&j, &rows[i], about->rival != NULL);
    snd_json_close(&j, ']');
    if (changes) put_changes(&j, then, tolerance, changes, n_changes);
    snd_json_close(&j, '}');
}

// ---- reading ---------------------------------------------------------------------------------------------------------

static const char *text_of(snd_arena *a, const json_t *o, const char *key) {
    const char *s = json_string_value(json_object_get(o, key));
    return s ? snd_arena_str(a, s) : NULL;
}
static double number_of(const json_t *o, const char *key) {
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : NAN;
}
// Without a spread, which results had not at first, the median is all there is.
static snd_bench_stat stat_of(const json_t *o, const char *name) {
    char lo[32], hi[32];
    snprintf(lo, sizeof lo, "%s_lo", name);
    snprintf(hi, sizeof hi, "%s_hi", name);
    snd_bench_stat s = {number_of(o, name), number_of(o, lo), number_of(o, hi)};
    if (isnan(s.lo)) s.lo = s.mid;
    if (isnan(s.hi)) s.hi = s.mid;
    return s;
}

static sonde_status read_row(snd_arena *a, const char *path, int i, const json_t *o, snd_bench_row *r) {
    const json_t *rate = json_object_get(o, "rate"), *threads = json_object_get(o, "threads");
    const char *name = json_string_value(json_object_get(o, "name"));
    *r = (snd_bench_row){
        .group = text_of(a, o, "group"), .unit = text_of(a, o, "unit"), .bound = text_of(a, o, "bound")};
    SND_FAIL_IF(!r->group || !name, SONDE_EINPUT, "%s: row %d has no group or no name", path, i + 1);
    SND_FAIL_IF(!json_is_integer(threads), SONDE_EINPUT, "%s: row %d (%s %s) does not say its threads", path, i + 1,
                r->group, name);
    SND_FAIL_IF(!json_is_number(rate) && !json_is_null(rate), SONDE_EINPUT,
                "%s: row %d (%s %s) has no rate; a number or null is needed", path, i + 1, r->group, name);
    snprintf(r->name, sizeof r->name, "%s", name);
    r->threads = (int)json_integer_value(threads);
    r->rate = stat_of(o, "rate");
    r->share = stat_of(o, "share");
    if (!r->bound) r->bound = "";
    return SONDE_OK;
}

static sonde_status read_document(snd_arena *a, const json_t *o, snd_bench_file *out) {
    const char *schema = json_string_value(json_object_get(o, "schema"));
    const json_t *rows = json_object_get(o, "rows");
    char shown[72];
    SND_FAIL_IF(!schema || strcmp(schema, SCHEMA) != 0, SONDE_EINPUT,
                "%s: schema '%s'; a result of 'sonde bench --json' is needed, whose schema is %s", out->path,
                schema ? snd_shown(shown, schema) : "", SCHEMA);
    SND_FAIL_IF(!json_is_array(rows) || json_array_size(rows) == 0, SONDE_EINPUT, "%s: it has no rows", out->path);
    out->about = (snd_bench_about){.version = text_of(a, o, "version"),
                                   .cpu = text_of(a, o, "cpu"),
                                   .isa = text_of(a, o, "isa"),
                                   .gemm_f32 = text_of(a, o, "gemm_f32"),
                                   .gemm_f64 = text_of(a, o, "gemm_f64"),
                                   .rival = text_of(a, o, "rival"),
                                   .quick = json_is_true(json_object_get(o, "quick")),
                                   .cpu_time = json_is_true(json_object_get(o, "cpu_time"))};
    SND_FAIL_IF(!out->about.cpu, SONDE_EINPUT, "%s: it does not say on which processor it was measured", out->path);
    SND_NEW(a, out->rows, json_array_size(rows));
    for (size_t i = 0; i < json_array_size(rows); i++)
        SND_TRY(read_row(a, out->path, (int)i, json_array_get(rows, i), &out->rows[out->n++]));
    return SONDE_OK;
}

sonde_status snd_bench_read(snd_arena *a, const char *path, snd_bench_file *out) {
    enum { MOST = 16 << 20 };
    char *text;
    size_t n;
    json_error_t e;
    *out = (snd_bench_file){.path = path};
    SND_TRY(snd_read_file(path, MOST, &text, &n));
    json_t *o = json_loadb(text, n, JSON_REJECT_DUPLICATES, &e);
    snd_free(text);
    char shown[72];
    SND_FAIL_IF(!o, SONDE_ESYNTAX, "%s: line %d: no JSON: %s", path, e.line, snd_shown(shown, e.text));
    const sonde_status s = read_document(a, o, out);
    json_decref(o);
    return s;
}

// ---- comparing -------------------------------------------------------------------------------------------------------

const char *snd_bench_verdict_name(snd_bench_verdict v) {
    static const char *const names[] = {"same", "slower", "faster", "lost", "unknown", "machine", "missing", "new"};
    return names[v];
}

static bool same_row(const snd_bench_row *a, const snd_bench_row *b) {
    return a->threads == b->threads && strcmp(a->group, b->group) == 0 && strcmp(a->name, b->name) == 0;
}
static const snd_bench_row *find(const snd_bench_row *rows, int n, const snd_bench_row *like) {
    for (int i = 0; i < n; i++)
        if (same_row(&rows[i], like)) return &rows[i];
    return NULL;
}

static snd_bench_verdict judge(const snd_bench_stat *then, const snd_bench_stat *now, double tolerance) {
    if (!isfinite(then->mid)) return SND_BENCH_UNKNOWN;
    if (!isfinite(now->mid)) return SND_BENCH_LOST;
    if (now->mid < then->mid * (1 - tolerance) && now->hi < then->lo) return SND_BENCH_SLOWER;
    if (now->mid > then->mid * (1 + tolerance) && now->lo > then->hi) return SND_BENCH_FASTER;
    return SND_BENCH_SAME;
}

static snd_bench_change change_of(const snd_bench_row *then, const snd_bench_row *now, double tolerance) {
    const snd_bench_row *r = now ? now : then;
    snd_bench_change c = {.group = r->group, .name = r->name, .threads = r->threads, .by = "rate"};
    c.then = then ? then->rate.mid : NAN;
    c.now = now ? now->rate.mid : NAN;
    c.ratio = NAN;
    if (!then || !now) {
        c.verdict = then ? SND_BENCH_MISSING : SND_BENCH_NEW;
        return c;
    }
    const bool bound = *r->bound && strcmp(then->bound, now->bound) == 0;
    const snd_bench_stat *a = bound ? &then->share : &then->rate, *b = bound ? &now->share : &now->rate;
    if (bound) c.by = "share";
    c.then = a->mid;
    c.now = b->mid;
    c.ratio = b->mid / a->mid;
    c.verdict = judge(a, b, tolerance);
    if (strcmp(r->group, "limit") == 0) c.verdict = SND_BENCH_MACHINE;
    return c;
}

int snd_bench_compare(const snd_bench_file *then, const snd_bench_row *now, int n, double tolerance,
                      snd_bench_change *out) {
    int k = 0;
    for (int i = 0; i < n; i++) out[k++] = change_of(find(then->rows, then->n, &now[i]), &now[i], tolerance);
    for (int i = 0; i < then->n; i++)
        if (!find(now, n, &then->rows[i])) out[k++] = change_of(&then->rows[i], NULL, tolerance);
    return k;
}

int snd_bench_count(const snd_bench_change *c, int n, snd_bench_verdict v) {
    int k = 0;
    for (int i = 0; i < n; i++) k += c[i].verdict == v;
    return k;
}
