// The bench without its clock: medians and quartiles, which rows a word picks, what a saved result says after it was read
// back, which rows count as slower, and the talk with a rival, by scripts that stand in for him.
#include "check.h"
#include "folder.h"
#include "lab/bench_impl.h"
#include "lab/lab.h"

#include <string.h>

static const snd_bench_stat NONE = {NAN, NAN, NAN};

// ---- medians ---------------------------------------------------------------------------------------------------------

static void medians_and_quartiles(void **state) {
    (void)state;
    const struct {
        int n;
        double v[6], mid, lo, hi;
    } rows[] = {
        {1, {3}, 3, 3, 3},
        {2, {4, 2}, 3, 2.5, 3.5},
        {3, {9, 1, 2}, 2, 1.5, 5.5},
        {5, {5, 1, 4, 2, 3}, 3, 2, 4},
        {4, {1, INFINITY, 2, 3}, 2.5, 1.75, INFINITY},
        {3, {1, NAN, 2}, NAN, NAN, NAN}, // never averaged away
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double v[6];
        memcpy(v, rows[i].v, sizeof v);
        const snd_bench_stat s = snd_bench_stat_of(v, rows[i].n);
        CHECK_SAME(s.mid, rows[i].mid);
        CHECK_SAME(s.lo, rows[i].lo);
        CHECK_SAME(s.hi, rows[i].hi);
    }
}

// ---- words -----------------------------------------------------------------------------------------------------------

static void words_pick_rows(void **state) {
    (void)state;
    const struct {
        const char *word, *name; // of a row of the group "step"
        snd_bench_rank rank;
        bool quick, picked;
    } rows[] = {
        {NULL, "mlp", SND_BENCH_EVER, true, true},
        {NULL, "gpt", SND_BENCH_LONG, false, true},
        {NULL, "gpt", SND_BENCH_LONG, true, false},
        {NULL, "huge", SND_BENCH_NAMED, false, false},
        {"step", "mlp", SND_BENCH_EVER, true, true},
        {"step", "gpt", SND_BENCH_LONG, false, true},
        {"step", "gpt", SND_BENCH_LONG, true, false}, // a group's usual rows
        {"step", "huge", SND_BENCH_NAMED, false, false},
        {"step huge", "huge", SND_BENCH_NAMED, true, true}, // who names it gets it
        {"gp", "gpt", SND_BENCH_LONG, true, true},
        {"step*24x", "gpt 24x256", SND_BENCH_LONG, false, true},
        {"norm", "gpt", SND_BENCH_EVER, false, false},
        {"ste", "gpt", SND_BENCH_EVER, false, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const snd_bench_opts o = {.only = &rows[i].word, .n_only = rows[i].word != NULL, .quick = rows[i].quick};
        if (snd_bench_picks(&o, "step", rows[i].name, rows[i].rank) != rows[i].picked) fail_msg("row %zu", i);
    }
}

static void a_word_without_a_row_is_refused(void **state) {
    (void)state;
    const char *const words[] = {"norm", "nrom"};
    snd_bench_row rows[1];
    int n;
    const snd_bench_opts o = {.only = words, .n_only = 2};
    CHECK_STATUS(snd_bench_all(&o, rows, &n), SONDE_EUSAGE);
    assert_non_null(strstr(sonde_error_message(), "'nrom'"));
}

// ---- a saved result ----------------------------------------------------------------------------------------------------

static snd_bench_row make_row(const char *group, const char *name, double rate, double share) {
    snd_bench_row r = {.group = group, .threads = 2, .unit = "GB/s", .bound = isnan(share) ? "" : "copy"};
    snprintf(r.name, sizeof r.name, "%s", name);
    r.rate = (snd_bench_stat){rate, rate * 0.99, rate * 1.01};
    r.share = (snd_bench_stat){share, share * 0.99, share * 1.01};
    r.bound_rate = r.rival = r.ratio = NONE;
    r.seconds = r.items = r.mib = r.rival_mib = NAN;
    return r;
}

static const char *write_file(const char *text) {
    static char path[128];
    snprintf(path, sizeof path, "%s/saved.json", folder);
    CHECK_OK(snd_write_file(path, text, strlen(text)));
    return path;
}

static void json_reads_back(void **state) {
    (void)state;
    snd_arena *a = snd_arena_create();
    snd_bench_about about;
    snd_bench_file f;
    snd_buf json = {0};
    const snd_bench_opts o = {.quick = true};
    CHECK_OK(snd_bench_here(a, &o, &about));
    const snd_bench_row rows[] = {make_row("norm", "f32 layer", 50, 0.9), make_row("draw", "f32 normals", 0.5, NAN),
                                  make_row("loss", "f32 lost", NAN, NAN)};
    snd_bench_json(&about, rows, 3, NULL, 0, NULL, 0, &json);
    assert_non_null(strstr(json.s, "\"nonfinite\": 1"));
    CHECK_OK(snd_bench_read(a, write_file(json.s), &f));
    assert_int_equal(f.n, 3);
    assert_true(f.about.quick);
    assert_string_equal(f.about.cpu, about.cpu);
    for (int i = 0; i < 3; i++) {
        assert_string_equal(f.rows[i].name, rows[i].name);
        assert_int_equal(f.rows[i].threads, 2);
        CHECK_SAME(f.rows[i].rate.mid, rows[i].rate.mid);
        CHECK_SAME(f.rows[i].share.hi, rows[i].share.hi);
    }
    snd_buf_free(&json);
    snd_arena_destroy(a);
}

static void bad_files_are_told(void **state) {
    (void)state;
#define HEAD "{\"schema\": \"sonde.bench/1\", \"cpu\": \"x\", \"rows\": "
    const struct {
        const char *text, *says;
        sonde_status status;
    } rows[] = {
        {"", "line", SONDE_ESYNTAX},
        {"{\n\"rows\": [}", "line 2", SONDE_ESYNTAX},
        {"{}", "sonde.bench/1", SONDE_EINPUT},
        {"[]", "sonde.bench/1", SONDE_EINPUT},
        {"{\"schema\": \"sonde.measure/1\"}", "'sonde.measure/1'", SONDE_EINPUT},
        {HEAD "[]}", "no rows", SONDE_EINPUT},
        {HEAD "{}}", "no rows", SONDE_EINPUT},
        {"{\"schema\": \"sonde.bench/1\", \"rows\": [1]}", "processor", SONDE_EINPUT},
        {HEAD "[1]}", "row 1 has no group", SONDE_EINPUT},
        {HEAD "[{\"group\": \"a\"}]}", "no name", SONDE_EINPUT},
        {HEAD "[{\"group\": \"a\", \"name\": \"b\", \"rate\": 1}]}", "row 1 (a b)", SONDE_EINPUT},
        {HEAD "[{\"group\": \"a\", \"name\": \"b\", \"threads\": 1}]}", "has no rate", SONDE_EINPUT},
        {HEAD "[{\"group\": \"a\", \"name\": \"b\", \"threads\": 1, \"rate\": \"5\"}]}", "has no rate", SONDE_EINPUT},
        {HEAD "[{\"group\": \"a\", \"name\": \"b\", \"threads\": 1, \"rate\": null}]}", NULL, SONDE_OK},
    };
#undef HEAD
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snd_arena *a = snd_arena_create();
        snd_bench_file f;
        CHECK_STATUS(snd_bench_read(a, write_file(rows[i].text), &f), rows[i].status);
        if (rows[i].says && !strstr(sonde_error_message(), rows[i].says))
            fail_msg("%s\n says: %s", rows[i].text, sonde_error_message());
        snd_arena_destroy(a);
    }
}

static void which_rows_are_slower(void **state) {
    (void)state;
    const snd_bench_stat S = {1, 0.98, 1.02};
    const struct {
        const char *what;
        snd_bench_stat then, now;
        double tolerance;
        snd_bench_verdict verdict;
    } rows[] = {
        {"the same", S, S, 0.05, SND_BENCH_SAME},
        {"slower", S, {0.9, 0.88, 0.92}, 0.05, SND_BENCH_SLOWER},
        {"faster", S, {1.1, 1.08, 1.12}, 0.05, SND_BENCH_FASTER},
        {"within the tolerance", S, {0.96, 0.955, 0.965}, 0.05, SND_BENCH_SAME},
        {"beyond a smaller one", S, {0.96, 0.955, 0.965}, 0.03, SND_BENCH_SLOWER},
        {"spreads meet", S, {0.9, 0.8, 0.98}, 0.05, SND_BENCH_SAME},
        {"spreads meet above", S, {1.1, 1.02, 1.2}, 0.05, SND_BENCH_SAME},
        {"no number now", S, {NAN, NAN, NAN}, 0.05, SND_BENCH_LOST},
        {"infinite now", S, {INFINITY, 1, INFINITY}, 0.05, SND_BENCH_LOST},
        {"none then", {NAN, NAN, NAN}, S, 0.05, SND_BENCH_UNKNOWN},
        {"none ever", {NAN, NAN, NAN}, {NAN, NAN, NAN}, 0.05, SND_BENCH_UNKNOWN},
        {"a median without spread", {1, 1, 1}, {0.9, 0.9, 0.9}, 0.05, SND_BENCH_SLOWER},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int by_share = 0; by_share < 2; by_share++) {
            // what the comparison does not go by says the opposite
            snd_bench_row then = make_row("norm", "f32 a", 5, by_share ? 0.5 : NAN),
                          now = make_row("norm", "f32 a", 7, 0.7);
            if (!by_share) now.bound = "";
            *(by_share ? &then.share : &then.rate) = rows[i].then;
            *(by_share ? &now.share : &now.rate) = rows[i].now;
            const snd_bench_file f = {.rows = &then, .n = 1};
            snd_bench_change c[2];
            assert_int_equal(snd_bench_compare(&f, &now, 1, rows[i].tolerance, c), 1);
            if (c[0].verdict != rows[i].verdict) fail_msg("%s: %s", rows[i].what, snd_bench_verdict_name(c[0].verdict));
            assert_string_equal(c[0].by, by_share ? "share" : "rate");
            CHECK_SAME(c[0].ratio, rows[i].now.mid / rows[i].then.mid);
        }
}

static void rows_that_one_side_lacks(void **state) {
    (void)state;
    snd_bench_row then[] = {make_row("norm", "f32 gone", 5, 0.5), make_row("limit", "f32 copy", 100, NAN),
                            make_row("norm", "f32 threads", 5, 0.5), make_row("norm", "f32 other bound", 5, 0.5)};
    snd_bench_row now[] = {make_row("limit", "f32 copy", 10, NAN), make_row("norm", "f32 made", 5, 0.5),
                           make_row("norm", "f32 threads", 5, 0.5), make_row("norm", "f32 other bound", 5, 0.1)};
    now[2].threads = 1;
    now[3].bound = "add";
    const struct {
        const char *name, *by;
        snd_bench_verdict verdict;
    } want[] = {{"f32 copy", "rate", SND_BENCH_MACHINE}, {"f32 made", "rate", SND_BENCH_NEW},
                {"f32 threads", "rate", SND_BENCH_NEW},  {"f32 other bound", "rate", SND_BENCH_SAME},
                {"f32 gone", "rate", SND_BENCH_MISSING}, {"f32 threads", "rate", SND_BENCH_MISSING}};
    const snd_bench_file f = {.rows = then, .n = 4};
    snd_bench_change c[8];
    const int n = snd_bench_compare(&f, now, 4, 0.05, c);
    assert_int_equal(n, 6);
    for (int i = 0; i < n; i++) {
        assert_string_equal(c[i].name, want[i].name);
        assert_string_equal(c[i].by, want[i].by);
        assert_int_equal(c[i].verdict, want[i].verdict);
    }
    assert_int_equal(snd_bench_count(c, n, SND_BENCH_MISSING), 2);
}

// ---- a rival -----------------------------------------------------------------------------------------------------------

#define HELLO         "echo '{\"name\": \"stand-in\", \"setting\": \"s\"}'; "
#define SERVE(answer) HELLO "while read line; do " answer "; done"

static void a_rival_is_asked(void **state) {
    (void)state;
    const struct {
        const char *script, *says; // says: part of the error
        sonde_status open, work, round;
        double seconds;
    } rows[] = {
        {SERVE("echo '{\"seconds\": 0.5, \"mib\": 7}'"), NULL, SONDE_OK, SONDE_OK, SONDE_OK, 0.5},
        {SERVE("echo '{}'"), NULL, SONDE_OK, SONDE_OK, SONDE_OK, NAN}, // no number is made up
        {SERVE("echo '{\"seconds\": 0}'"), NULL, SONDE_OK, SONDE_OK, SONDE_OK, NAN},
        {SERVE("echo '{\"seconds\": -1}'"), NULL, SONDE_OK, SONDE_OK, SONDE_OK, NAN},
        {SERVE("printf '{\"seconds\"'; printf ': 2}\\n'"), NULL, SONDE_OK, SONDE_OK, SONDE_OK, 2},
        {"echo '{\"error\": \"no PyTorch\"}'", "no PyTorch", SONDE_EUSAGE, SONDE_OK, SONDE_OK, 0},
        {"true", "ended before it answered", SONDE_EIO, SONDE_OK, SONDE_OK, 0},
        {"echo hello", "'hello'", SONDE_EIO, SONDE_OK, SONDE_OK, 0},
        {"echo '{}'", "no name", SONDE_EIO, SONDE_OK, SONDE_OK, 0},
        {"head -c 9000 /dev/zero | tr '\\0' x", "longer than", SONDE_EIO, SONDE_OK, SONDE_OK, 0},
        {SERVE("echo '{\"error\": \"out of memory\"}'"), "stand-in: out of memory", SONDE_OK, SONDE_EIO, SONDE_OK, 0},
        {SERVE("echo nan"), "no line of JSON", SONDE_OK, SONDE_EIO, SONDE_OK, 0},
        {SERVE("echo '{\"seconds\": NaN}'"), "no line of JSON", SONDE_OK, SONDE_EIO, SONDE_OK, 0},
        {HELLO "read line; echo '{}'", "stand-in", SONDE_OK, SONDE_OK, SONDE_EIO, 0}, // gone in the middle
        {HELLO, "stand-in", SONDE_OK, SONDE_EIO, SONDE_OK, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *const argv[] = {"sh", "-c", rows[i].script, NULL};
        snd_rival *r;
        double seconds = -1;
        CHECK_STATUS(snd_rival_open(argv, NULL, &r), rows[i].open);
        sonde_status s = rows[i].open;
        if (r) {
            assert_string_equal(snd_rival_name(r), "stand-in");
            assert_string_equal(snd_rival_setting(r), "s");
            s = snd_rival_case(r, "gemm-nn 1 2 3");
            if (s != rows[i].work) fail_msg("case of %s: %s", rows[i].script, sonde_error_message());
        }
        if (r && s == SONDE_OK) {
            s = snd_rival_round(r, 0.1, false, &seconds);
            if (s != rows[i].round) fail_msg("round of %s: %s", rows[i].script, sonde_error_message());
        }
        if (s == SONDE_OK) CHECK_SAME(seconds, rows[i].seconds);
        if (rows[i].says && !strstr(sonde_error_message(), rows[i].says))
            fail_msg("%s\n says: %s", rows[i].script, sonde_error_message());
        snd_rival_close(r);
    }
}

static void a_rival_hears_what_is_asked(void **state) {
    (void)state;
    char script[256], path[128], *heard;
    snprintf(path, sizeof path, "%s/heard", folder);
    snprintf(script, sizeof script, HELLO "while read line; do echo \"$line\" >>%s; echo '{\"seconds\": 1}'; done",
             path);
    const char *const argv[] = {"sh", "-c", script, NULL};
    snd_rival *r;
    double seconds;
    size_t n;
    CHECK_OK(snd_rival_open(argv, NULL, &r));
    CHECK_OK(snd_rival_case(r, "loss 256 8192 0"));
    CHECK_OK(snd_rival_round(r, 0.25, false, &seconds));
    CHECK_OK(snd_rival_round(r, 0.5, true, &seconds));
    snd_rival_close(r);
    CHECK_OK(snd_read_file(path, 1000, &heard, &n));
    assert_string_equal(heard, "case loss 256 8192 0\nround 0.25\nround 0.5 cpu\n");
    snd_free(heard);
}

static void a_rival_that_does_not_exist(void **state) {
    (void)state;
    const char *const argv[] = {"sonde-no-such-program", NULL};
    snd_rival *r;
    CHECK_STATUS(snd_rival_open(argv, NULL, &r), SONDE_EUSAGE);
    assert_non_null(strstr(sonde_error_message(), "not installed"));
    assert_null(r);
}

// The wish to stop is heard while he works.
static void a_slow_rival_can_be_left(void **state) {
    (void)state;
    const char *const argv[] = {"sh", "-c", SERVE("sleep 60"), NULL};
    snd_stop stop = {0};
    snd_rival *r;
    CHECK_OK(snd_rival_open(argv, &stop, &r));
    stop.flag = 1;
    CHECK_STATUS(snd_rival_case(r, "loss 1 2 0"), SONDE_EINTERRUPTED);
    snd_rival_close(r);
}

// ---- rows in truth ----------------------------------------------------------------------------------------------------

static void a_step_beside_a_rival(void **state) {
    (void)state;
    const char *const argv[] = {"sh", "-c", SERVE("echo '{\"seconds\": 1, \"mib\": 7}'"), NULL}, *const word =
                                                                                                     "step mlp";
    snd_bench_row rows[SND_BENCH_ROWS];
    snd_rival *r;
    int n;
    CHECK_OK(snd_rival_open(argv, NULL, &r));
    const snd_bench_opts o = {.only = &word, .n_only = 1, .quick = true, .threads = 1, .rival = r};
    CHECK_OK(snd_bench_all(&o, rows, &n));
    snd_rival_close(r);
    assert_int_equal(n, 1);
    const snd_bench_row *s = &rows[0];
    assert_string_equal(s->group, "step");
    assert_string_equal(s->item, "rows");
    assert_int_equal(s->threads, 1);
    CHECK_SAME(s->items, 64);
    CHECK_SAME(s->rival_mib, 7);
    // three products of 64 rows for each of 17 maps of 256 x 256 and the head, for 1 s
    CHECK_REL(s->rival.mid, 3 * 2 * 64 * (17.0 * 256 * 256 + 256 * 10) * 1e-9, 1e-9);
    CHECK_REL(s->ratio.mid, s->rate.mid / s->rival.mid, 1e-9); // his second is the same in every turn
    CHECK_REL(s->seconds, s->rival.mid / s->rate.mid, 1e-9);
    assert_true(s->share.mid > 0);
    assert_true(s->mib > 1 && s->mib < 4096);
}

// A trainer that looks at every layer against one that never does, step by step; a rival has no such thing.
static void statistics_beside_the_plain_step(void **state) {
    (void)state;
    const char *const word = "monitor";
    snd_bench_row rows[SND_BENCH_ROWS];
    int n;
    const snd_bench_opts o = {.only = &word, .n_only = 1, .quick = true, .threads = 1};
    CHECK_OK(snd_bench_all(&o, rows, &n));
    assert_int_equal(n, 1);
    assert_string_equal(rows[0].group, "monitor");
    assert_string_equal(rows[0].bound, "no statistics");
    assert_string_equal(rows[0].unit, "steps/s");
    assert_null(rows[0].item);
    // a step of 64 x 17 x 256 x 256 x 6 operations: far more than one in a second, far fewer than a million
    assert_true(rows[0].rate.mid > 1 && rows[0].rate.mid < 1e6);
    assert_true(rows[0].bound_rate.mid > 1 && rows[0].bound_rate.mid < 1e6);
    assert_true(rows[0].share.mid > 0.05 && rows[0].share.mid < 20);
    assert_true(isnan(rows[0].mib) && isnan(rows[0].ratio.mid));
}

static sonde_status count_calls(void *ctx) {
    ++*(int *)ctx;
    const double start = snd_now();
    while (snd_now() - start < 1e-3) continue;
    return SONDE_OK;
}
// One call warms, each turn is one more.
static void a_row_that_takes_long_has_three_turns(void **state) {
    (void)state;
    const snd_bench_opts o = {.threads = 1};
    const double patience[] = {0, 60, 1e-9};
    const int calls[] = {8, 8, 4};
    for (int k = 0; k < 3; k++) {
        int n = 0;
        snd_bench_row row;
        const snd_bench_work w = {.group = "g",
                                  .name = "n",
                                  .unit = "calls/s",
                                  .work = 1e9,
                                  .run = count_calls,
                                  .ctx = &n,
                                  .turns = 7,
                                  .patience = patience[k]};
        assert_int_equal(snd_bench_measure(&o, &w, &row), SONDE_OK);
        assert_int_equal(n, calls[k]);
        assert_true(row.rate.mid > 0 && row.rate.mid <= 1001);
    }
}

static void limits_are_measured(void **state) {
    (void)state;
    const char *const word = "limit";
    snd_bench_row rows[SND_BENCH_ROWS];
    int n;
    const snd_bench_opts o = {.only = &word, .n_only = 1, .quick = true, .threads = 1};
    CHECK_OK(snd_bench_all(&o, rows, &n));
    assert_true(n >= 8);
    for (int i = 0; i < n; i++) {
        assert_string_equal(rows[i].group, "limit");
        assert_true(rows[i].rate.mid > 0 && isfinite(rows[i].rate.mid));
        assert_true(isnan(rows[i].share.mid));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(medians_and_quartiles),
        cmocka_unit_test(words_pick_rows),
        cmocka_unit_test(a_word_without_a_row_is_refused),
        cmocka_unit_test(json_reads_back),
        cmocka_unit_test(bad_files_are_told),
        cmocka_unit_test(which_rows_are_slower),
        cmocka_unit_test(rows_that_one_side_lacks),
        cmocka_unit_test(a_rival_is_asked),
        cmocka_unit_test(a_rival_hears_what_is_asked),
        cmocka_unit_test(a_rival_that_does_not_exist),
        cmocka_unit_test(a_slow_rival_can_be_left),
        cmocka_unit_test(a_step_beside_a_rival),
        cmocka_unit_test(statistics_beside_the_plain_step),
        cmocka_unit_test(a_row_that_takes_long_has_three_turns),
        cmocka_unit_test(limits_are_measured),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
