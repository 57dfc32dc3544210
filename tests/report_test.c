// The report is one file that needs nothing else: no address, no reference to another file, well-formed enough, its data
// valid JSON that hostile labels can't break out of, the formula in it, dark and light styles.
#include "check.h"
#include "report/report.h"
#include "sample_record.h"

#include <ctype.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

typedef struct fixture {
    snd_arena *a;
    snd_buf page, demo;
} fixture;

static const char hostile[] = "<img src=x onerror=alert(1)>\"'&</script><!--";

static int setup(void **state) {
    static fixture f;
    f.a = snd_arena_create();
    snd_record *m = sample_measure(f.a, 6);
    const snd_record *d = sample_demo(f.a);
    if (!m || !d) return -1;
    snd_run_setting(m->runs[0], hostile, hostile, false);
    m->runs[0]->label = m->runs[0]->input = hostile;
    m->verdicts[0]->why = m->verdicts[0]->where = m->verdicts[0]->rule = m->verdicts[0]->run = hostile;
    snd_value_metric(m->runs[0]->values[1], "cos", false)->mean = NAN;
    *state = &f;
    const snd_record *const one = m;
    if (snd_report_html(&one, 1, &f.page) != SONDE_OK) return -1;
    return snd_report_html(&d, 1, &f.demo) == SONDE_OK ? 0 : -1;
}

static int teardown(void **state) {
    fixture *f = *state;
    snd_buf_free(&f->page);
    snd_buf_free(&f->demo);
    snd_arena_destroy(f->a);
    return 0;
}

static void test_self_contained(void **state) {
    const fixture *f = *state;
    const char *const pages[2] = {f->page.s, f->demo.s};
    static const char *const forbidden[] = {"http://", "https://", "//cdn", "src=\"h",         "src=\"/",
                                            "<link",   "@import",  "url(",  "sourceMappingURL"};
    for (int i = 0; i < 2; i++)
        for (size_t k = 0; k < sizeof forbidden / sizeof *forbidden; k++) {
            const char *at = strstr(pages[i], forbidden[k]);
            if (at) print_error("found %s in: %.80s\n", forbidden[k], at);
            assert_null(at);
        }
    assert_non_null(strstr(f->page.s, "default-src 'none'"));
}

// Start and end tags nest, outside of script and style; attributes are quoted by our own writer.
static void test_well_formed(void **state) {
    const fixture *f = *state;
    static const char *const empty[] = {"meta", "!DOCTYPE", "br"};
    const char *const pages[2] = {f->page.s, f->demo.s};
    for (int p = 0; p < 2; p++) {
        char stack[64][16];
        int depth = 0;
        for (const char *s = strchr(pages[p], '<'); s; s = strchr(s, '<')) {
            const bool closing = s[1] == '/';
            const char *name = s + 1 + closing;
            const size_t n = strcspn(name, " >\n");
            char tag[16];
            snprintf(tag, sizeof tag, "%.*s", (int)(n < 15 ? n : 15), name);
            assert_true(isalpha((unsigned char)*tag) || *tag == '!');
            s = strchr(s, '>');
            assert_non_null(s);
            bool is_empty = false;
            for (size_t k = 0; k < 3; k++) is_empty |= strcmp(tag, empty[k]) == 0;
            if (is_empty) continue;
            if (closing) {
                assert_true(depth > 0);
                if (strcmp(stack[--depth], tag) != 0) print_error("</%s> closes <%s>: %.60s\n", tag, stack[depth], s);
                assert_string_equal(stack[depth], tag);
                continue;
            }
            assert_true(depth < 64);
            strcpy(stack[depth++], tag);
            const bool raw = strcmp(tag, "script") == 0 || strcmp(tag, "style") == 0;
            if (raw) s = strstr(s, strcmp(tag, "script") == 0 ? "</script>" : "</style>");
            assert_non_null(s);
        }
        assert_int_equal(depth, 0);
    }
}

static json_t *data_of(const char *page) {
    const char *start = strstr(page, "id=\"data\">");
    assert_non_null(start);
    start += strlen("id=\"data\">");
    const char *end = strstr(start, "</script>");
    assert_non_null(end);
    json_t *root = json_loadb(start, (size_t)(end - start), 0, NULL);
    assert_non_null(root);
    return root;
}

static void test_data(void **state) {
    const fixture *f = *state;
    json_t *root = data_of(f->page.s);
    const json_t *run = json_array_get(json_object_get(root, "runs"), 0), *values = json_object_get(run, "values");
    assert_string_equal(json_string_value(json_object_get(run, "label")), hostile);
    const json_t *q = json_object_get(json_object_get(values, "metrics"), "q");
    assert_true(json_is_true(json_object_get(q, "log")));
    CHECK_CLOSE(json_number_value(json_array_get(json_object_get(q, "t"), 1)), log10(2), 1e-5);
    assert_int_equal(json_array_size(json_object_get(q, "m")), json_array_size(json_object_get(values, "names")));
    const json_t *cos = json_object_get(json_object_get(values, "metrics"), "cos");
    assert_int_equal(json_integer_value(json_array_get(json_object_get(cos, "lost"), 0)), 1);
    json_decref(root);
    root = data_of(f->demo.s);
    assert_int_equal(json_array_size(json_object_get(root, "runs")), 6);
    const json_t *panel = json_array_get(json_object_get(root, "panels"), 0);
    const json_t *series = json_array_get(json_object_get(panel, "series"), 1);
    CHECK_CLOSE(json_number_value(json_object_get(json_array_get(json_object_get(series, "refs"), 0), "y")), 116, 0);
    json_decref(root);
}

static int count(const char *s, const char *what) {
    int n = 0;
    for (s = strstr(s, what); s; s = strstr(s + 1, what)) n++;
    return n;
}

static void test_hostile(void **state) {
    const fixture *f = *state;
    assert_null(strstr(f->page.s, "<img"));
    assert_null(strstr(f->page.s, "<script>alert"));
    assert_null(strstr(f->page.s, "<!--"));
    assert_int_equal(count(f->page.s, "</script"), 3);
    for (const char *s = f->page.s; *s;) { // the page is UTF-8 throughout, whatever the notes held
        const int n = snd_utf8_sequence(s);
        assert_true(n > 0);
        s += n;
    }
}

static void test_contents(void **state) {
    const fixture *f = *state;
    assert_non_null(strstr(f->page.s, "each: x = x + F(N(x))\nout: x = N(x)</code>"));
    const char *order[] = {"<h1>", "id=\"models\"", "id=\"verdicts\"", "id=\"layers\"", "id=\"notes\"", "id=\"data\""};
    const char *at = f->page.s;
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        const char *next = strstr(at, order[i]);
        if (!next) print_error("%s is missing or out of order\n", order[i]);
        assert_non_null(next);
        at = next;
    }
    assert_non_null(strstr(f->page.s, "add <code>out: x = N(x)</code> to the wiring"));
    assert_true(strstr(f->page.s, "verdict warn") < strstr(f->page.s, "verdict ok")); // worst first
    assert_non_null(strstr(f->demo.s, "Residual connections: does the signal survive depth?</h1>"));
    assert_non_null(strstr(f->demo.s, "about 10<sup>116</sup> at depth 256"));
    assert_int_equal(count(f->demo.s, "<figure class=\"panel\" data-panel="), 2);
    assert_non_null(strstr(f->demo.s, "Check values at depth 4"));
    assert_non_null(strstr(f->page.s, "prefers-color-scheme: dark"));
    assert_non_null(strstr(f->page.s, "width=device-width"));
    assert_non_null(strstr(f->page.s, "@media print"));
}

// Numbers in sentences get real exponents; names and code keep their letters.
static void test_prose(void **state) {
    const fixture *f = *state;
    static const char *const rows[][2] = {
        {"1e116 at depth 256", "10<sup>116</sup> at depth 256"},
        {"is 4.4e+09 times", "is 4.4&#8239;&times;&#8239;10<sup>9</sup> times"},
        {"7.99e-99.", "7.99&#8239;&times;&#8239;10<sup>-99</sup>."},
        {"10^21.1.", "10<sup>21.1</sup>."},
        {"10^21.", "10<sup>21</sup>."},
        {"v1e5 x2e3 1e 2ex 3e4x `1e3`", "v1e5 x2e3 1e 2ex 3e4x <code>1e3</code>"},
        {"2^(L-l), 1.25e+00", "2<sup>L-l</sup>, 1.25&#8239;&times;&#8239;10<sup>0</sup>"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snd_record *r = snd_record_create(f->a, SND_REC_DEMO);
        snd_record_note(r, "%s", rows[i][0]);
        snd_buf b = {0};
        CHECK_OK(snd_report_html((const snd_record *const[]){r}, 1, &b));
        const char *at = strstr(b.s, "<p class=\"lede\">"); // what a record says stands first
        assert_non_null(at);
        at += strlen("<p class=\"lede\">");
        if (strncmp(at, rows[i][1], strlen(rows[i][1])) != 0) print_error("%.80s, not %s\n", at, rows[i][1]);
        assert_int_equal(strncmp(at, rows[i][1], strlen(rows[i][1])), 0);
        snd_buf_free(&b);
    }
}

// More than three models stand in lines, and a net without a norm is not shown with one.
static void test_models(void **state) {
    const fixture *f = *state;
    snd_record *r = snd_record_create(f->a, SND_REC_PREDICT);
    for (int i = 0; i < 4; i++) {
        snd_run *u = snd_record_run(r, (const char *const[]){"a", "b", "c", "d"}[i], i ? "x = F(x)" : "x = F(N(x))");
        snd_run_setting(u, "family", "mlp", false);
        snd_run_setting(u, "norm", "layer", false);
    }
    snd_buf b = {0};
    CHECK_OK(snd_report_html((const snd_record *const[]){r}, 1, &b));
    assert_int_equal(count(b.s, "<div class=\"lines\">"), 1);
    assert_int_equal(count(b.s, "<dt>norm</dt>"), 1);
    assert_int_equal(count(b.s, "<h3>d</h3>"), 1);
    snd_buf_free(&b);
}

static const char *series_label(const json_t *root, size_t panel, size_t series) {
    const json_t *p = json_array_get(json_object_get(root, "panels"), panel);
    return json_string_value(json_object_get(json_array_get(json_object_get(p, "series"), series), "label"));
}

// The same panel of several runs is one figure with a curve per run; labels that meet name the folder; every run keeps its
// heat map, and equal titles stand together.
static void test_shared_panels(void **state) {
    const fixture *f = *state;
    static const char *const places[] = {"runs/slow", "runs/fast/result.json", "runs/post/"};
    const snd_record *three[3];
    for (int i = 0; i < 3; i++) {
        const double x[2] = {1, 2}, y[2] = {3, 2 - i};
        snd_record *r = snd_record_create(f->a, SND_REC_TRAIN);
        const char *label = i < 2 ? "pre" : "post";
        snd_panel *p = snd_record_panel_of(r, "Loss", "step", "nats", false);
        assert_ptr_equal(p, snd_record_panel_of(r, "Loss", "step", "nats", false));
        snd_series_y(p, snd_panel_series(p, label, x, 2), y);
        (void)snd_record_panel(r, "Loss", "step", "bits", false); // another axis: another figure
        sample_heatmap(r, label);
        r->place = places[i];
        three[i] = r;
    }
    snd_buf b = {0};
    CHECK_OK(snd_report_html(three, 3, &b));
    assert_int_equal(count(b.s, "<figure class=\"panel\" data-panel="), 2);
    assert_int_equal(count(b.s, "<figure class=\"panel\" data-heatmap="), 3);
    assert_int_equal(count(b.s, "<h3>Stream at the end of each layer</h3>"), 1);
    json_t *root = data_of(b.s);
    assert_int_equal(json_array_size(json_object_get(root, "panels")), 2);
    assert_string_equal(series_label(root, 0, 0), "pre (slow)");
    assert_string_equal(series_label(root, 0, 1), "pre (fast)");
    assert_string_equal(series_label(root, 0, 2), "post");
    assert_null(series_label(root, 0, 3));
    assert_null(series_label(root, 1, 0));
    const json_t *map = json_array_get(json_object_get(root, "heatmaps"), 1), *z = json_object_get(map, "values");
    assert_string_equal(json_string_value(json_object_get(map, "label")), "pre (fast)");
    assert_int_equal(json_array_size(z), 12);
    assert_true(json_is_null(json_array_get(z, 6)));
    CHECK_REL(json_number_value(json_array_get(z, 11)), 6 * log10(2), 1e-5);
    json_decref(root);
    snd_buf_free(&b);
}

// Two results with the same label in one page stay two curves.
static void test_overlay(void **state) {
    const fixture *f = *state;
    const snd_record *const two[2] = {sample_measure(f->a, 3), sample_measure(f->a, 3)};
    snd_buf b = {0};
    CHECK_OK(snd_report_html(two, 2, &b));
    json_t *root = data_of(b.s);
    const json_t *runs = json_object_get(root, "runs");
    assert_string_equal(json_string_value(json_object_get(json_array_get(runs, 0), "label")), "pre");
    assert_string_equal(json_string_value(json_object_get(json_array_get(runs, 1), "label")), "pre (2)");
    json_decref(root);
    snd_buf_free(&b);
}

static void test_write(void **state) {
    const fixture *f = *state;
    char path[] = "/tmp/sonde-report-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    const snd_record *const one = sample_demo(f->a);
    CHECK_OK(snd_report_write(&one, 1, path));
    char *text;
    size_t n;
    CHECK_OK(snd_read_file(path, 1 << 24, &text, &n));
    assert_string_equal(text, f->demo.s); // the same record gives the same bytes
    snd_free(text);
    unlink(path);
    CHECK_STATUS(snd_report_write(&one, 1, "/nonexistent/folder/x.html"), SONDE_EIO);
}

// The n-th allocation fails: the call says so, or the page is whole; nothing crashes.
static void test_out_of_memory(void **state) {
    const fixture *f = *state;
    const snd_record *const one = sample_demo(f->a);
    bool whole = false;
    for (int64_t n = 1; !whole && n < 3000; n++) {
        snd_buf b = {0};
        snd_alloc_fail_at(n);
        const sonde_status s = snd_report_html(&one, 1, &b);
        snd_alloc_fail_at(0);
        whole = s == SONDE_OK;
        if (whole)
            assert_string_equal(b.s, f->demo.s);
        else
            assert_int_equal(s, SONDE_ENOMEM);
        snd_buf_free(&b);
    }
    assert_true(whole);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_self_contained), cmocka_unit_test(test_well_formed),   cmocka_unit_test(test_data),
        cmocka_unit_test(test_hostile),        cmocka_unit_test(test_contents),      cmocka_unit_test(test_overlay),
        cmocka_unit_test(test_write),          cmocka_unit_test(test_out_of_memory), cmocka_unit_test(test_prose),
        cmocka_unit_test(test_models),         cmocka_unit_test(test_shared_panels),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
