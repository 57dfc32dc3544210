// A record's JSON is valid, says what docs/formulas.md section 9 promises, and reads back to the same record; what is not
// finite is null; hostile text and damaged files do no harm.
#include "check.h"
#include "sample_record.h"

#include <jansson.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct fixture {
    snd_arena *a;
} fixture;

static int setup(void **state) {
    static fixture f;
    f.a = snd_arena_create();
    *state = &f;
    return f.a ? 0 : -1;
}

static int teardown(void **state) {
    snd_arena_destroy(((fixture *)*state)->a);
    return 0;
}

static snd_arena *arena(void **state) {
    return ((fixture *)*state)->a;
}

static json_t *parsed(const snd_record *r) {
    snd_buf b = {0};
    snd_record_json(r, &b);
    assert_false(b.failed);
    json_error_t e;
    json_t *root = json_loadb(b.s, b.len, JSON_REJECT_DUPLICATES, &e);
    if (!root) print_error("line %d column %d: %s\n", e.line, e.column, e.text);
    snd_buf_free(&b);
    assert_non_null(root);
    return root;
}

static const json_t *at(const json_t *o, const char *key) {
    const json_t *v = json_object_get(o, key);
    if (!v) print_error("no key %s\n", key);
    assert_non_null(v);
    return v;
}

static snd_record *again(snd_arena *a, const snd_record *r) {
    snd_buf b = {0};
    snd_record_json(r, &b);
    snd_record *back = NULL;
    CHECK_OK(snd_record_parse(a, b.s, b.len, "test.json", &back));
    snd_buf second = {0};
    snd_record_json(back, &second);
    assert_string_equal(b.s, second.s); // writing what was read gives the same text
    snd_buf_free(&b);
    snd_buf_free(&second);
    return back;
}

static void test_contract(void **state) {
    const snd_record *r = sample_measure(arena(state), 4);
    json_t *root = parsed(r);
    assert_string_equal(json_string_value(at(root, "schema")), "sonde.measure/1");
    assert_string_equal(json_string_value(at(root, "formula")), "each: x = x + F(N(x))\nout: x = N(x)");
    assert_int_equal(json_integer_value(at(at(root, "spec"), "layers")), 4);
    CHECK_CLOSE(json_number_value(at(at(root, "spec"), "eps")), 1e-5, 0);
    assert_true(json_is_true(at(at(root, "spec"), "norm_bias")));
    assert_string_equal(json_string_value(at(at(root, "spec"), "norm")), "layer");
    assert_int_equal(json_integer_value(at(root, "seed")), 0);
    assert_int_equal(json_integer_value(at(root, "seeds")), 10);
    assert_string_equal(json_string_value(at(root, "dtype")), "f32");
    assert_int_equal(json_integer_value(at(root, "nonfinite")), 0);

    const json_t *values = at(root, "values"), *v = json_array_get(values, 4); // in.x, three per layer, out.x
    assert_int_equal(json_array_size(values), 4 * 3 + 2);
    assert_string_equal(json_string_value(at(v, "name")), "layers.1.x");
    assert_int_equal(json_integer_value(at(v, "layer")), 1);
    assert_true(json_is_null(at(json_array_get(values, 0), "layer")));
    const double log10_q = json_number_value(at(at(v, "log10"), "q"));
    CHECK_REL(json_number_value(at(at(v, "metrics"), "q")), pow(10, log10_q), 1e-7);
    CHECK_REL(json_number_value(at(at(v, "predicted"), "q")), 3, 1e-7);
    assert_null(json_object_get(at(v, "log10"), "cos")); // cos can't leave double range
    const json_t *band = at(at(v, "band"), "q");
    assert_true(json_number_value(json_array_get(band, 0)) < 3 && json_number_value(json_array_get(band, 1)) > 3);
    CHECK_CLOSE(json_number_value(at(at(v, "z"), "q")), sample_wobble("layers.1.x", 1), 1e-8);
    const double sd = json_number_value(at(at(v, "sd_log10"), "q"));
    CHECK_REL(json_number_value(at(at(v, "sd"), "q")), (pow(10, log10_q + sd) - pow(10, log10_q - sd)) / 2, 1e-7);

    const json_t *p = json_array_get(at(root, "params"), 0);
    assert_string_equal(json_string_value(at(p, "name")), "layers.0.F.block.W1.weight");
    assert_true(json_is_number(at(p, "wgrms")));
    const json_t *verdict = json_array_get(at(root, "verdicts"), 1);
    assert_string_equal(json_string_value(at(verdict, "level")), "warn");
    CHECK_REL(json_number_value(at(verdict, "value")), 5.74, 1e-7);
    assert_non_null(json_string_value(at(verdict, "try")));
    json_decref(root);
}

// Depth 1000 of a doubling stream is 10^301; depth 2000 is beyond double. Both must be there as log10.
static void test_beyond_double(void **state) {
    snd_record *r = snd_record_create(arena(state), SND_REC_MEASURE);
    snd_run *u = snd_record_run(r, "residual", "each: x = x + F(x)");
    snd_metric *m = snd_value_metric(snd_run_value(u, "layers.1999.x", 1999), "q", true);
    m->mean = 602.06;
    m->predicted = 602.059991;
    m->lo = 601;
    m->hi = 603;
    m = snd_value_metric(snd_run_value(u, "out.x", -1), "q", true);
    m->mean = NAN; // a seed was not finite
    u->nonfinite = 1;
    m = snd_value_metric(snd_run_value(u, "layers.0.F.out", 0), "gq", true);
    m->mean = -INFINITY; // exactly zero
    json_t *root = parsed(r);
    const json_t *v = json_array_get(at(root, "values"), 0);
    assert_true(json_is_null(at(at(v, "metrics"), "q")));
    CHECK_CLOSE(json_number_value(at(at(v, "log10"), "q")), 602.06, 1e-8);
    CHECK_CLOSE(json_number_value(json_array_get(at(at(v, "band_log10"), "q"), 1)), 603, 0);
    assert_true(json_is_null(at(at(json_array_get(at(root, "values"), 1), "metrics"), "q")));
    CHECK_CLOSE(json_number_value(at(at(json_array_get(at(root, "values"), 2), "metrics"), "gq")), 0, 0);
    assert_int_equal(json_integer_value(at(root, "nonfinite")), 1);
    json_decref(root);
    const snd_record *back = again(arena(state), r);
    CHECK_SAME(back->runs[0]->values[2]->metrics[0]->mean, -INFINITY);
    CHECK_SAME(back->runs[0]->values[1]->metrics[0]->mean, NAN);
    assert_false(snd_metric_outside(u->values[0]->metrics[0]));
    u->values[1]->metrics[0]->lo = 0;
    u->values[1]->metrics[0]->hi = 1;
    assert_true(snd_metric_outside(u->values[1]->metrics[0])); // not finite is not inside
}

// Nine digits are written: equal but for the tenth, and alike where they are no numbers.
static void same_number(double a, double b) {
    if (isfinite(a))
        CHECK_CLOSE(b, a, 6e-9);
    else
        CHECK_SAME(b, a);
}

static void same_metric(const snd_metric *a, const snd_metric *b) {
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->log, b->log);
    assert_int_equal(a->measured, b->measured);
    same_number(a->mean, b->mean);
    same_number(a->sd, b->sd);
    same_number(a->predicted, b->predicted);
    same_number(a->lo, b->lo);
    same_number(a->hi, b->hi);
    same_number(a->lo999, b->lo999);
    same_number(a->hi999, b->hi999);
    same_number(a->z, b->z);
}

static void same_values(snd_rvalue *const *a, snd_rvalue *const *b, int n) {
    for (int i = 0; i < n; i++) {
        assert_string_equal(a[i]->name, b[i]->name);
        assert_int_equal(a[i]->layer, b[i]->layer);
        assert_int_equal(a[i]->n_metrics, b[i]->n_metrics);
        for (int k = 0; k < a[i]->n_metrics; k++) {
            const snd_metric *m = snd_value_find(b[i], a[i]->metrics[k]->name);
            assert_non_null(m);
            same_metric(a[i]->metrics[k], m);
        }
    }
}

static void same_list(const double *a, const double *b, int n) {
    assert_int_equal(!a, !b);
    for (int i = 0; a && i < n; i++) same_number(a[i], b[i]);
}

static void test_round_trip(void **state) {
    const snd_record *all[2] = {sample_measure(arena(state), 5), sample_demo(arena(state))};
    for (int t = 0; t < 2; t++) {
        const snd_record *r = all[t], *b = again(arena(state), r);
        assert_int_equal(r->n_runs, b->n_runs);
        for (int i = 0; i < r->n_runs; i++) {
            const snd_run *u = r->runs[i], *w = b->runs[i];
            assert_string_equal(u->label, w->label);
            assert_int_equal(u->depth, w->depth);
            assert_int_equal(u->n_settings, w->n_settings);
            assert_int_equal(u->n_values, w->n_values);
            assert_int_equal(u->n_params, w->n_params);
            same_values(u->values, w->values, u->n_values);
            same_values(u->params, w->params, u->n_params);
            same_values(&u->summary, &w->summary, 1);
        }
        assert_int_equal(r->n_panels, b->n_panels);
        for (int i = 0; i < r->n_panels; i++)
            for (int k = 0; k < r->panels[i]->n_series; k++) {
                const snd_series *s = r->panels[i]->series[k], *q = b->panels[i]->series[k];
                assert_int_equal(s->n, q->n);
                same_list(s->x, q->x, s->n);
                same_list(s->y, q->y, s->n);
                same_list(s->theory, q->theory, s->n);
                same_list(s->lo, q->lo, s->n);
                assert_int_equal(s->n_refs, q->n_refs);
            }
        assert_int_equal(r->n_heatmaps, b->n_heatmaps);
        for (int i = 0; i < r->n_heatmaps; i++) {
            const snd_heatmap *m = r->heatmaps[i], *q = b->heatmaps[i];
            assert_string_equal(m->label, q->label);
            assert_string_equal(m->z_name, q->z_name);
            assert_int_equal(m->log, q->log);
            assert_int_equal(m->n_rows, q->n_rows);
            assert_int_equal(m->n_x, q->n_x);
            same_list(m->x, q->x, m->n_x);
            same_list(m->z, q->z, m->n_rows * m->n_x);
            for (int k = 0; k < m->n_rows; k++) assert_string_equal(m->rows[k], q->rows[k]);
        }
        assert_int_equal(r->n_verdicts, b->n_verdicts);
        assert_int_equal(r->n_tables, b->n_tables);
        assert_int_equal(snd_record_worst(r), snd_record_worst(b));
    }
}

// A script that reads `measure` reads `predict`: metrics and log10 repeat the prediction there.
static void test_predict(void **state) {
    snd_record *r = snd_record_create(arena(state), SND_REC_PREDICT);
    snd_run *u = snd_record_run(r, "pre", "x = x + F(N(x))");
    snd_value_metric(snd_run_value(u, "layers.0.x", 0), "q", true)->predicted = log10(2);
    json_t *root = parsed(r);
    const json_t *v = json_array_get(at(root, "values"), 0);
    assert_string_equal(json_string_value(at(root, "schema")), "sonde.predict/1");
    CHECK_REL(json_number_value(at(at(v, "metrics"), "q")), 2, 1e-8);
    CHECK_REL(json_number_value(at(at(v, "predicted"), "q")), 2, 1e-8);
    CHECK_REL(json_number_value(at(at(v, "log10"), "q")), log10(2), 1e-8);
    json_decref(root);
    const snd_record *b = again(arena(state), r);
    assert_false(b->runs[0]->values[0]->metrics[0]->measured);
    CHECK_SAME(b->runs[0]->values[0]->metrics[0]->mean, NAN);
}

static void test_hostile_text(void **state) {
    (void)state;
    snd_buf b = {0};
    snd_json j = snd_json_start(&b);
    j.html = true;
    snd_json_open(&j, NULL, '[');
    snd_json_str(
        &j, NULL,
        "</script> & \"quoted\" \\ \n\t\x01 \xE2\x80\xA8 \xC3\xA9 \xFF \xC0\xAF \xED\xA0\x80 \xF0\x9F\x98\x80");
    snd_json_close(&j, ']');
    assert_null(strstr(b.s, "</"));
    assert_null(strstr(b.s, "\xE2\x80\xA8"));
    json_t *root = json_loads(b.s, 0, NULL);
    assert_non_null(root);
    assert_string_equal(
        json_string_value(json_array_get(root, 0)),
        "</script> & \"quoted\" \\ \n\t\x01 \xE2\x80\xA8 \xC3\xA9 \xEF\xBF\xBD \xEF\xBF\xBD\xEF\xBF\xBD "
        "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD \xF0\x9F\x98\x80");
    json_decref(root);
    snd_buf_free(&b);
}

static void test_numbers(void **state) {
    (void)state;
    static const double v[] = {0.1, 5.01, 1.0 / 3, 1e-300, 5e-324, 1.7976931348623157e308, -0.0, 123456789012345678.0};
    snd_buf b = {0};
    snd_json j = snd_json_start(&b);
    snd_json_open(&j, NULL, '{');
    snd_json_nums(&j, "v", v, 8);
    snd_json_num(&j, "nan", NAN);
    snd_json_num(&j, "inf", -INFINITY);
    snd_json_setting(&j, "plus", "+1.5", true);
    snd_json_setting(&j, "point", ".5", true);
    snd_json_setting(&j, "word", "three", true);
    snd_json_setting(&j, "text", "12", false);
    snd_json_close(&j, '}');
    assert_non_null(strstr(b.s, "5.01,"));
    json_t *root = json_loads(b.s, 0, NULL);
    assert_non_null(root);
    for (size_t i = 0; i < 8; i++) CHECK_SAME(json_number_value(json_array_get(at(root, "v"), i)), v[i]);
    assert_true(json_is_null(at(root, "nan")) && json_is_null(at(root, "inf")));
    CHECK_CLOSE(json_number_value(at(root, "plus")), 1.5, 0);
    CHECK_CLOSE(json_number_value(at(root, "point")), 0.5, 0);
    assert_true(json_is_string(at(root, "word")) && json_is_string(at(root, "text")));
    json_decref(root);
    snd_buf_free(&b);
}

// Some comma locale if the machine has one; the text must not change.
static void test_locale(void **state) {
    static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "es_ES.UTF-8", "de_DE", "da_DK.UTF-8"};
    const snd_record *r = sample_measure(arena(state), 2);
    snd_buf plain = {0}, comma = {0};
    snd_record_json(r, &plain);
    snd_record_csv(r, &plain);
    bool found = false;
    for (size_t i = 0; i < sizeof names / sizeof *names && !found; i++) found = setlocale(LC_ALL, names[i]) != NULL;
    snd_record_json(r, &comma);
    snd_record_csv(r, &comma);
    setlocale(LC_ALL, "C");
    assert_string_equal(plain.s, comma.s);
    snd_buf_free(&plain);
    snd_buf_free(&comma);
}

static int fields(const char *line) {
    int n = 1;
    bool quoted = false;
    for (; *line && *line != '\n'; line++) {
        if (*line == '"') quoted = !quoted;
        n += *line == ',' && !quoted;
    }
    return n;
}

static void test_csv(void **state) {
    snd_record *r = sample_measure(arena(state), 3);
    r->runs[0]->label = "a,\"b\"";
    snd_buf b = {0};
    snd_record_csv(r, &b);
    int rows = 0;
    for (const char *s = b.s; *s; s = strchr(s, '\n') + 1, rows++) assert_int_equal(fields(s), fields(b.s));
    assert_int_equal(rows, 1 + 3 * 5 + 2 * 3 + 3 * 2); // header, layers, in.x and out.x, parameters
    assert_non_null(strstr(b.s, "\"a,\"\"b\"\"\",3,layers.0.x,0,q,"));
    snd_buf_free(&b);
    b = (snd_buf){0};
    snd_record_panels_csv(sample_demo(arena(state)), &b);
    rows = 0;
    for (const char *s = b.s; *s; s = strchr(s, '\n') + 1, rows++) assert_int_equal(fields(s), fields(b.s));
    assert_int_equal(rows, 1 + 2 * 3 * 9);
    snd_buf_free(&b);
}

static void test_folder(void **state) {
    char dir[] = "/tmp/sonde-record-XXXXXX", path[128];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/a/b", dir);
    const snd_record *r = sample_demo(arena(state));
    CHECK_OK(snd_record_write(r, path));
    snd_record *b;
    CHECK_OK(snd_record_read(arena(state), path, &b));
    assert_int_equal(b->n_panels, r->n_panels);
    static const char *const files[] = {"result.json", "result.csv", "panels.csv", "spec.yaml", "spec-pre.yaml"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char file[192];
        snprintf(file, sizeof file, "%s/%s", path, files[i]);
        if (access(file, R_OK)) print_error("%s is missing\n", file);
        assert_int_equal(access(file, R_OK), 0);
        unlink(file);
    }
    assert_int_equal(rmdir(path), 0); // nothing else was left behind
    CHECK_STATUS(snd_record_read(arena(state), path, &b), SONDE_EIO);
    snprintf(path, sizeof path, "%s/a", dir);
    rmdir(path);
    rmdir(dir);
}

// Labels that differ in case only, or only in what a file name cannot hold, and a label as long as a formula.
static void test_spec_names(void **state) {
    char dir[] = "/tmp/sonde-record-XXXXXX", path[300], label[401];
    assert_non_null(mkdtemp(dir));
    memset(label, 'x', 400);
    label[400] = 0;
    const char *const labels[] = {"first", "1/sqrt(L)", "1/sqrt(l)", "1+sqrt+L+", label};
    static const char *const files[] = {"spec.yaml", "spec-1_sqrt_L_.yaml", "spec-1_sqrt_l_-2.yaml",
                                        "spec-1_sqrt_L_-3.yaml"};
    snd_record *r = snd_record_create(arena(state), SND_REC_PREDICT);
    for (int i = 0; i < 5; i++) snd_record_run(r, labels[i], "each:  x = x + F(x)")->spec_yaml = labels[i];
    CHECK_OK(snd_record_write(r, dir));
    for (int i = 0; i < 4; i++) {
        char *text;
        size_t n;
        snprintf(path, sizeof path, "%s/%s", dir, files[i]);
        CHECK_OK(snd_read_file(path, 1000, &text, &n));
        assert_string_equal(text, labels[i]);
        snd_free(text);
    }
    snprintf(path, sizeof path, "rm -r '%s'", dir);
    assert_int_equal(system(path), 0);
}

// Every file cut short, and many with one byte changed: an error or a record, never a crash, and errors name the file.
static void test_damaged(void **state) {
    snd_buf b = {0};
    snd_record_json(sample_measure(arena(state), 1), &b);
    snd_record *r;
    for (size_t n = 0; n < b.len - 2; n += 7) {
        assert_int_not_equal(snd_record_parse(arena(state), b.s, n, "cut.json", &r), SONDE_OK);
        assert_null(r);
        assert_non_null(strstr(sonde_error_message(), "cut.json"));
    }
    for (size_t i = 0; i < b.len; i += 3) {
        const char kept = b.s[i];
        static const char other[] = "{}[]\",:0-x\xFF";
        b.s[i] = other[i % (sizeof other - 1)];
        (void)!snd_record_parse(arena(state), b.s, b.len, "changed.json", &r);
        b.s[i] = kept;
    }
    snd_buf_free(&b);
    static const char *const bad[] = {
        "[]",
        "{}",
        "{\"schema\": \"sonde.measure/9\"}",
        "{\"schema\": 3}",
        "{\"schema\": \"sonde.demo/1\", \"seed\": 1, \"seed\": 2}",
        "{\"schema\": \"sonde.measure/1\", \"values\": 3, \"formula\": \"x\"}",
        "{\"schema\": \"sonde.demo/1\", \"panels\": [{\"series\": [{\"x\": [1, 2], \"y\": [1]}]}]}",
        "{\"schema\": \"sonde.demo/1\", \"heatmaps\": [{\"columns\": [1, 2]}]}",
        "{\"schema\": \"sonde.demo/1\", \"heatmaps\": [{\"columns\": [1, 2], \"rows\": [{\"values\": [1]}]}]}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_STATUS(snd_record_parse(arena(state), bad[i], strlen(bad[i]), "bad.json", &r), SONDE_EINPUT);
}

// The n-th allocation fails, for every n: the record says so, and nothing crashes on the way.
static void test_out_of_memory(void **state) {
    (void)state;
    bool whole = false;
    for (int64_t n = 1; !whole && n < 4000; n++) {
        snd_arena *a = snd_arena_create();
        assert_non_null(a);
        snd_alloc_fail_at(n);
        const snd_record *r = sample_demo(a);
        snd_alloc_fail_at(0);
        whole = r && snd_record_status(r) == SONDE_OK;
        if (r && !whole) assert_int_equal(snd_record_status(r), SONDE_ENOMEM);
        snd_arena_destroy(a);
    }
    assert_true(whole);
}

static void test_reading_out_of_memory(void **state) {
    snd_buf b = {0};
    snd_record_json(sample_demo(arena(state)), &b);
    bool whole = false;
    for (int64_t n = 1; !whole && n < 4000; n++) {
        snd_arena *a = snd_arena_create();
        snd_record *r;
        snd_alloc_fail_at(n);
        const sonde_status s = snd_record_parse(a, b.s, b.len, "test.json", &r);
        snd_alloc_fail_at(0);
        whole = s == SONDE_OK;
        if (!whole) assert_int_equal(s, SONDE_ENOMEM);
        snd_arena_destroy(a);
    }
    assert_true(whole);
    snd_buf_free(&b);
}

static void test_pretty(void **state) {
    (void)state;
    char s[40];
    assert_string_equal(snd_pretty(s, 2, 4), "2.000");
    assert_string_equal(snd_pretty(s, 65504, 3), "65500");
    assert_string_equal(snd_pretty(s, 0.0123, 3), "0.0123");
    assert_string_equal(snd_pretty(s, -33.1, 4), "-33.10");
    assert_string_equal(snd_pretty(s, 9.9999, 3), "10.0");
    assert_string_equal(snd_pretty(s, 0, 3), "0");
    assert_string_equal(snd_pretty_log10(s, 116.2, 3), "1.58e+116");
    assert_string_equal(snd_pretty_log10(s, 602.06, 3), "1.15e+602");
    assert_string_equal(snd_pretty_log10(s, 0.30103, 4), "2.000");
    assert_string_equal(snd_pretty_limit(s, 65504, false), "65504");
    assert_string_equal(snd_pretty_limit(s, 4.8162678, true), "65504");
    assert_string_equal(snd_pretty_limit(s, 20, false), "20");
    assert_string_equal(snd_pretty_limit(s, 1e-4, false), "0.0001");
    assert_string_equal(snd_pretty_limit(s, 38.53, true), "3.39e+38");
}

static const char *used(snd_record *r, const char *family, const char *formula, const char *block, const char *key) {
    snd_run *u = snd_record_run(r, "x", formula);
    snd_run_setting(u, "family", family, false);
    if (block) snd_run_setting(u, "block", block, false);
    snd_run_setting(u, "norm", "layer", false);
    snd_run_setting(u, "eps", "1e-05", true);
    return snd_run_setting_used(u, key);
}

// A net without a norm is not shown with one.
// Equal notes of several runs are one, and a label that is part of another one is not that one.
static void test_notes(void **state) {
    (void)state;
    snd_arena *a = snd_arena_create();
    snd_record *r = snd_record_create(a, SND_REC_MEASURE);
    snd_record_note_on(r, "pre-nofinal", "said once");
    snd_record_note_on(r, "pre", "said once");
    snd_record_note_on(r, "pre", "said once");
    snd_record_note_on(r, "post", "another: said once");
    snd_record_note_on(r, "final", "said once");
    assert_int_equal(r->n_notes, 2);
    assert_string_equal(r->notes[0], "pre-nofinal, pre, final: said once");
    assert_string_equal(r->notes[1], "post: another: said once");
    snd_arena_destroy(a);
}

static void test_norm_in_use(void **state) {
    snd_record *r = snd_record_create(arena(state), SND_REC_PREDICT);
    assert_string_equal(used(r, "mlp", "each:  x = x + F(N(x))", "two-matrix", "norm"), "layer");
    assert_string_equal(used(r, "mlp", "each:  x = x + F(x)", "relu(N0 (W(u, d)))", "norm"), "layer");
    assert_null(used(r, "mlp", "each:  x = x + F(x)", "two-matrix", "norm"));
    assert_null(used(r, "mlp", "each:  N = x; x = N + F(x); aN(x)", NULL, "norm")); // names, not calls of N
    assert_null(used(r, "mlp", "each:  x = LN(x + F(x))", "two-matrix", "norm"));   // a kind of its own
    assert_string_equal(used(r, "mlp", "each:  x = LN(x + F(x))", "two-matrix", "eps"), "1e-05");
    assert_null(used(r, "mlp", "each:  x = x + F(x)", "two-matrix", "eps"));
    assert_string_equal(used(r, "transformer", "each:  x = x + F(x)", NULL, "eps"), "1e-05"); // qk_norm has one
    assert_null(used(r, "mlp", "each:  x = x + F(N(x))", "two-matrix", "width"));
}

static void test_stated(void **state) {
    snd_record *r = snd_record_create(arena(state), SND_REC_DEMO);
    snd_panel *p = snd_record_panel(r, "t", "depth", "y", true);
    const double x[] = {1, 256};
    snd_series *plain = snd_panel_series(p, "plain", x, 2), *bn = snd_panel_series(p, "bn", x, 2);
    snd_buf b = {0};
    snd_panel_stated(p, &b);
    assert_int_equal(b.len, 0);
    snd_series_ref(p, plain, 1, 0.1, "lecture: about 1");
    snd_series_ref(p, plain, 256, 116, "lecture: about 1e116");
    snd_series_ref(p, bn, 256, 2, "lecture");
    snd_series_ref(p, bn, 256, 2, "7");
    snd_series_ref(p, bn, 1, 2, "simulation: ");
    snd_panel_stated(p, &b);
    assert_string_equal(b.s, "lecture: plain about 1 at depth 1, about 1e116 at depth 256; bn 100 at depth 256; "
                             "stated: bn 7 at depth 256; simulation: bn 100 at depth 1");
    snd_buf_free(&b);
    CHECK_OK(snd_record_status(r));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_contract, setup, teardown),
        cmocka_unit_test_setup_teardown(test_beyond_double, setup, teardown),
        cmocka_unit_test_setup_teardown(test_round_trip, setup, teardown),
        cmocka_unit_test_setup_teardown(test_predict, setup, teardown),
        cmocka_unit_test_setup_teardown(test_hostile_text, setup, teardown),
        cmocka_unit_test_setup_teardown(test_numbers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_locale, setup, teardown),
        cmocka_unit_test_setup_teardown(test_csv, setup, teardown),
        cmocka_unit_test_setup_teardown(test_folder, setup, teardown),
        cmocka_unit_test_setup_teardown(test_spec_names, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damaged, setup, teardown),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test_setup_teardown(test_reading_out_of_memory, setup, teardown),
        cmocka_unit_test(test_pretty),
        cmocka_unit_test(test_notes),
        cmocka_unit_test_setup_teardown(test_norm_in_use, setup, teardown),
        cmocka_unit_test_setup_teardown(test_stated, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
