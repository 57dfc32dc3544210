// argv to verb, operands and options, and the small output helpers: what the shell test can't see from outside.
#include "check.h"
#include "cli/inner.h"

#include <math.h>
#include <string.h>

enum { MOST = 16 };
typedef struct line {
    snd_cli c;
    snd_stop stop;
    bool help, version;
} line;

// Parses a line of words separated by '|'.
static sonde_status parse(line *l, snd_arena *a, const char *words) {
    char *copy = snd_arena_str(a, words), *argv[MOST] = {snd_arena_str(a, "sonde")};
    int argc = 1;
    for (char *w = strtok(copy, "|"); w && argc < MOST; w = strtok(NULL, "|")) argv[argc++] = w;
    *l = (line){.c = {.arena = a, .columns = 80}};
    return snd_args_parse(&l->c, argc, argv, &l->help, &l->version);
}

static int setup(void **state) {
    *state = snd_arena_create();
    return *state ? 0 : -1;
}

static int teardown(void **state) {
    snd_arena_destroy(*state);
    return 0;
}

static void test_operands(void **state) {
    line l;
    CHECK_OK(parse(&l, *state, "predict|pre|layers=4|norm=rms|--json"));
    assert_string_equal(l.c.verb->name, "predict");
    assert_string_equal(l.c.spec_word, "pre");
    assert_int_equal(l.c.n_overrides, 2);
    assert_string_equal(l.c.overrides[1], "norm=rms");
    assert_true(snd_opt_flag(&l.c, "json"));
    CHECK_OK(parse(&l, *state, "--quiet|predict|--json|x = x + F(x)|layers=4"));
    assert_string_equal(l.c.spec_word, "x = x + F(x)");
    assert_true(snd_opt_flag(&l.c, "quiet") && snd_opt_given(&l.c, "json") && !snd_opt_given(&l.c, "csv"));
    CHECK_OK(parse(&l, *state, "predict|pre|layers=4|wiring=x = -x + F(x)"));
    CHECK_OK(parse(&l, *state, "predict|--|pre|layers=3"));
    assert_string_equal(l.c.spec_word, "pre");
    CHECK_OK(parse(&l, *state, "report|a|b|-o|x.html"));
    assert_int_equal(l.c.n_words, 2);
    assert_string_equal(snd_opt_str(&l.c, "out", ""), "x.html");
    CHECK_OK(parse(&l, *state, "report|--|-o"));
    assert_string_equal(l.c.words[0], "-o");
    CHECK_OK(parse(&l, *state, "-odir|measure|pre"));
    assert_string_equal(snd_opt_str(&l.c, "out", ""), "dir");
    CHECK_OK(parse(&l, *state, "train|pre|--data|./-q|--valid-data=-q|-o=-h"));
    assert_string_equal(snd_opt_str(&l.c, "data", ""), "./-q");
    assert_string_equal(snd_opt_str(&l.c, "valid-data", ""), "-q");
    CHECK_OK(parse(&l, *state, "generate|run|--prompt|-")); // stdin
    assert_string_equal(snd_opt_str(&l.c, "prompt", ""), "-");
    CHECK_OK(parse(&l, *state, "-o|measure|report|pre")); // the first word is -o's value
    assert_string_equal(l.c.verb->name, "report");
}

// Settings may stand in front of SPEC; with --wirings there may be no SPEC at all.
static void test_spec(void **state) {
    line l;
    CHECK_OK(parse(&l, *state, "measure|layers=3|pre|width=8"));
    assert_string_equal(l.c.spec_word, "pre");
    assert_int_equal(l.c.n_overrides, 2);
    assert_string_equal(l.c.overrides[0], "layers=3");
    CHECK_OK(parse(&l, *state, "measure|layers=3|--wirings=pre,post"));
    assert_null(l.c.spec_word);
    assert_int_equal(l.c.n_overrides, 1);
}

static void test_values(void **state) {
    line l;
    CHECK_OK(
        parse(&l, *state, "measure|pre|--seeds=7|--cos|0.5|--max-memory=1.5GiB|--time-limit|2m|--dtype=f64|--seed|0"));
    assert_int_equal(snd_opt_int(&l.c, "seeds", 1), 7);
    CHECK_CLOSE(snd_opt_num(&l.c, "cos", 0), 0.5, 0);
    assert_int_equal(snd_opt_int(&l.c, "max-memory", 0), 1610612736);
    CHECK_CLOSE(snd_opt_num(&l.c, "time-limit", 0), 120, 0);
    assert_string_equal(snd_opt_str(&l.c, "dtype", "f32"), "f64");
    assert_int_equal(snd_opt_int(&l.c, "seed", 5), 0);
    assert_int_equal(snd_opt_int(&l.c, "batch", 64), 64); // the default of an option that was not given
    CHECK_OK(parse(&l, *state, "measure|pre|--max-memory|800M|--cos=-0"));
    assert_int_equal(snd_opt_int(&l.c, "max-memory", 0), 838860800);
}

static void check_ints(snd_arena *a, const char *text, const int64_t *want, int n) {
    line l;
    const int64_t *got;
    CHECK_OK(parse(&l, a, snd_arena_printf(a, "measure|pre|--depths=%s", text)));
    assert_int_equal(snd_opt_ints(&l.c, "depths", &got), n);
    for (int i = 0; i < n; i++) assert_int_equal(got[i], want[i]);
}

static void test_lists(void **state) {
    check_ints(*state, "4,2,2,1", (const int64_t[]){1, 2, 4}, 3);
    check_ints(*state, "1..16", (const int64_t[]){1, 2, 4, 8, 16}, 5);
    check_ints(*state, "3..20", (const int64_t[]){3, 6, 12, 20}, 4);
    check_ints(*state, "8:20:4,1", (const int64_t[]){1, 8, 12, 16, 20}, 5);
    check_ints(*state, "7", (const int64_t[]){7}, 1);
    line l;
    const char *const *s;
    CHECK_OK(parse(&l, *state, "measure|pre|--wirings|post, x = min(x, F(x)),pre"));
    assert_int_equal(snd_opt_strs(&l.c, "wirings", &s), 3);
    assert_string_equal(s[0], "post");
    assert_string_equal(s[1], "x = min(x, F(x))");
    assert_string_equal(s[2], "pre");
}

static void refused(snd_arena *a, const char *words, const char *message) {
    line l;
    CHECK_STATUS(parse(&l, a, words), SONDE_EUSAGE);
    if (!strstr(sonde_error_message(), message))
        print_error("%s: %s lacks: %s\n", words, sonde_error_message(), message);
    assert_non_null(strstr(sonde_error_message(), message));
}

static void test_refused(void **state) {
    refused(*state, "measure|pre|--seeds|x", "'x' is not a whole number");
    refused(*state, "measure|pre|--seeds=0", "outside 1 to");
    refused(*state, "measure|pre|--seeds", "needs a value");
    refused(*state, "measure|pre|--seeds|--json", "needs a value");
    refused(*state, "train|pre|--data|-q", "found the option -q; a value that begins so is written --data=-q");
    refused(*state, "train|pre|-o|-q", "--out needs a value");
    refused(*state, "train|pre|--lr|-1", "--lr: -1 is outside"); // a number, not an option
    refused(*state, "train|pre|--lr|-.5", "--lr: -.5 is outside");
    refused(*state, "train|pre|--data|-x", "found the option -x");
    refused(*state, "measure|pre|--sedes=3", "did you mean --seeds?");
    refused(*state, "measure|pre|--cos=1.5", "outside 0 to 1");
    refused(*state, "measure|pre|--cos=nan", "");
    refused(*state, "measure|pre|--dtype=f23", "did you mean f");
    refused(*state, "measure|pre|--max-memory=2X", "not a size");
    refused(*state, "measure|pre|--time-limit=soon", "not a time");
    refused(*state, "measure|pre|--depths=1..x", "not a list");
    refused(*state, "measure|pre|--depths=9..3", "not a list");
    refused(*state, "measure|pre|--depths=0,4", "outside");
    refused(*state, "measure|pre|--depths=,", "empty");
    refused(*state, "measure|pre|--width=3", "write it as width=VALUE");
    refused(*state, "measure|layers=3", "SPEC comes first");
    refused(*state, "measure|pre|batch=3", "write --batch=3");
    refused(*state, "measure|pre|post", "unexpected word 'post'");
    refused(*state, "measure", "needs a SPEC");
    refused(*state, "mesure|pre", "did you mean measure?");
    refused(*state, "wirings|--seeds=3", "no option --seeds");
    refused(*state, "--json", "no verb");
}

static void test_command(void **state) {
    line l;
    CHECK_OK(parse(&l, *state, "predict|x = F(x)|layers=3"));
    assert_string_equal(l.c.command, "sonde predict 'x = F(x)' layers=3");
    CHECK_OK(parse(&l, *state, "report|it's"));
    assert_string_equal(l.c.command, "sonde report 'it'\\''s'");
}

static void test_file_settings(void **state) {
    line l;
    CHECK_OK(parse(&l, *state, "measure|pre|--seeds=7"));
    CHECK_OK(snd_opt_set_pair(&l.c, "seeds=3")); // the command line wins
    CHECK_OK(snd_opt_set_pair(&l.c, "max_memory=1G"));
    CHECK_OK(snd_opt_set_pair(&l.c, "loss=true"));
    assert_int_equal(snd_opt_int(&l.c, "seeds", 1), 7);
    assert_int_equal(snd_opt_int(&l.c, "max-memory", 0), 1 << 30);
    assert_true(snd_opt_flag(&l.c, "loss"));
    CHECK_STATUS(snd_opt_set_pair(&l.c, "seedz=3"), SONDE_EUSAGE);
    CHECK_STATUS(snd_opt_set_pair(&l.c, "loss=maybe"), SONDE_EUSAGE);
}

static void test_sparkline(void **state) {
    (void)state;
    const double v[] = {0, 1, 2, 3, 4, 5, 6, 7, NAN, 7, -INFINITY};
    snd_cli c = {0};
    snd_buf b = {0};
    snd_sparkline(&c, &b, v, 11, 40, 0, 7);
    assert_string_equal(b.s, "12345678 8 ");
    snd_buf_free(&b);
    b = (snd_buf){0};
    double lo = INFINITY, hi = -INFINITY;
    snd_spark_range(v, 8, 4, &lo, &hi); // halves: means 0.5, 2.5, 4.5, 6.5
    CHECK_CLOSE(lo, 0.5, 0);
    CHECK_CLOSE(hi, 6.5, 0);
    snd_sparkline(&c, &b, v, 8, 4, lo, hi);
    assert_string_equal(b.s, "1368");
    snd_buf_free(&b);
    b = (snd_buf){0};
    c.utf8 = true;
    snd_sparkline(&c, &b, v, 2, 4, 0, 1);
    assert_string_equal(b.s, "\xE2\x96\x81\xE2\x96\x88");
    snd_buf_free(&b);
    b = (snd_buf){0};
    const double flat[3] = {2, 2, 2};
    snd_sparkline(&c, &b, flat, 3, 4, 2, 2);
    assert_int_equal(snd_text_width(b.s), 3);
    snd_buf_free(&b);
    b = (snd_buf){0};
    c.utf8 = false;
    lo = 1, hi = 1.01; // what hardly changes looks flat, on a log scale and on a linear one
    snd_spark_least(true, &lo, &hi);
    CHECK_CLOSE(hi - lo, log10(2), 1e-12);
    CHECK_CLOSE(hi + lo, 2.01, 1e-12);
    snd_spark_least(false, &lo, &hi); // wide enough already
    CHECK_CLOSE(hi - lo, log10(2), 1e-12);
    snd_sparkline(&c, &b, (const double[]){1, 1.01, -9, 9}, 4, 4, lo, hi);
    assert_string_equal(b.s, "4518"); // outside the range: the outermost steps
    snd_buf_free(&b);
}

static void test_wrap(void **state) {
    (void)state;
    snd_buf b = {0};
    snd_wrap(&b, "aaaa bbbb cccc dddd eeee ffff gggg\nhh", 2, 24);
    assert_string_equal(b.s, "  aaaa bbbb cccc dddd\n  eeee ffff gggg\n  hh\n");
    snd_buf_free(&b);
    b = (snd_buf){0};
    snd_wrap(&b, "aaaa bbbb cccc\1dddd eeee", 2, 24); // a glued blank breaks no line
    assert_string_equal(b.s, "  aaaa bbbb cccc dddd\n  eeee\n");
    snd_buf_free(&b);
    b = (snd_buf){0};
    snd_wrap(&b, "aaaa bbbb cccc dddd\1eeee", 2, 24);
    assert_string_equal(b.s, "  aaaa bbbb cccc\n  dddd eeee\n");
    snd_buf_free(&b);
}

static bool is_word_of(const char *all, const char *word) {
    const size_t n = strlen(word);
    for (const char *w = all; w; w = strchr(w, '|') ? strchr(w, '|') + 1 : NULL)
        if (strncmp(w, word, n) == 0 && (w[n] == '|' || !w[n])) return true;
    return false;
}

// Column `use`: every condition is KEY=WORD|..., and where KEY is an option with words, these are some of them.
static void test_use_is_well_formed(void **state) {
    (void)state;
    int n = 0;
    for (int i = 0; i < snd_opt_count(); i++) {
        for (const char *u = snd_opt_at(i)->use; *u; u += strcspn(u, " "), u += strspn(u, " "), n++) {
            const size_t key = strcspn(u, "="), end = strcspn(u, " ");
            assert_true(key > 0 && key + 1 < end);
            char *words = snd_arena_strn(*state, u + key + 1, end - key - 1);
            const snd_opt_row *o = snd_opt_find(NULL, u, key);
            const char *all = o && o->type == SND_OPT_WORD ? o->arg : NULL;
            if (!strncmp(u, "dtype=", 6)) all = "f32|f64|bf16|f16"; // the verbs differ
            for (char *w = strtok(words, "|"); w && all; w = strtok(NULL, "|")) assert_true(is_word_of(all, w));
        }
    }
    assert_true(n > 20);
}

// What was said and has no effect is refused by all of its conditions; a file's word and facts that nobody gave are not asked.
static void test_use(void **state) {
    line l;
    snd_fact facts[] = {{"dtype", "f32"}, {"loss-scale", "dynamic"}, {"data-kind", "table"}};
    CHECK_OK(parse(&l, *state, "train|pre|--scale-every=5|--classes=a,b|--lr=1"));
    CHECK_STATUS(snd_opt_check_use(&l.c, facts, 3), SONDE_EUSAGE);
    assert_string_equal(sonde_error_message(), "--scale-every has no effect with dtype f32, only with f16");
    facts[0].value = "f16";
    CHECK_OK(snd_opt_check_use(&l.c, facts, 3));
    facts[1].value = "fixed";
    CHECK_STATUS(snd_opt_check_use(&l.c, facts, 3), SONDE_EUSAGE);
    CHECK_OK(snd_opt_check_use(&l.c, facts, 1));
    facts[1].value = "dynamic";
    facts[2].value = "tab"; // the beginning of a word is not the word
    CHECK_STATUS(snd_opt_check_use(&l.c, facts, 3), SONDE_EUSAGE);
    CHECK_OK(parse(&l, *state, "train|pre|--save-every=5"));
    CHECK_STATUS(snd_opt_check_use(&l.c, &(snd_fact){"-o", "none"}, 1), SONDE_EUSAGE);
    assert_string_equal(sonde_error_message(), "--save-every has no effect without -o");
    CHECK_OK(snd_opt_check_use(&l.c, &(snd_fact){"-o", "given"}, 1));
    CHECK_OK(parse(&l, *state, "train|pre"));
    CHECK_OK(snd_opt_set_pair(&l.c, "beta2=0.9"));
    CHECK_OK(snd_opt_check_use(&l.c, &(snd_fact){"optimizer", "sgd"}, 1));
}

// A folder is the same with slashes behind it; a text keeps them.
static void test_folders(void **state) {
    line l;
    CHECK_OK(parse(&l, *state, "train|pre|-o|run//"));
    assert_string_equal(snd_opt_str(&l.c, "out", NULL), "run");
    CHECK_OK(parse(&l, *state, "train|--resume=a/b/"));
    assert_string_equal(snd_opt_str(&l.c, "resume", NULL), "a/b");
    CHECK_OK(parse(&l, *state, "train|pre|-o|//"));
    assert_string_equal(snd_opt_str(&l.c, "out", NULL), "/");
    CHECK_OK(parse(&l, *state, "generate|run|--prompt|either/or/"));
    assert_string_equal(snd_opt_str(&l.c, "prompt", NULL), "either/or/");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_folders),       cmocka_unit_test(test_operands),
        cmocka_unit_test(test_values),        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_refused),       cmocka_unit_test(test_command),
        cmocka_unit_test(test_file_settings), cmocka_unit_test(test_sparkline),
        cmocka_unit_test(test_wrap),          cmocka_unit_test(test_spec),
        cmocka_unit_test(test_use),           cmocka_unit_test(test_use_is_well_formed),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
