// base/: memory and its failure hooks, arena, errors, text, numbers as text, threads, files.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // mkdtemp
#endif
#include "check.h"

#include "base/base.h"
#include "base/machine.h"

#include <float.h>
#include <locale.h>
#include <pthread.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <sys/stat.h>
#include <unistd.h>

// ---- memory ---------------------------------------------------------------------------------------------------------

static void alloc_counts_bytes(void **state) {
    (void)state;
    const size_t before = snd_alloc_bytes();
    char *a = snd_malloc(100), *b = snd_calloc(10, 7), *c = snd_aligned_alloc(64, 33);
    assert_int_equal(snd_alloc_bytes() - before, 100 + 70 + 33);
    assert_int_equal((uintptr_t)a % 16, 0);
    assert_int_equal((uintptr_t)c % 64, 0);
    for (int i = 0; i < 70; i++) assert_int_equal(b[i], 0);
    memset(a, 7, 100);
    a = snd_realloc(a, 5000);
    for (int i = 0; i < 100; i++) assert_int_equal(a[i], 7);
    assert_int_equal(snd_alloc_bytes() - before, 5000 + 70 + 33);
    assert_true(snd_alloc_peak() >= snd_alloc_bytes());
    snd_free(a), snd_free(b), snd_free(c), snd_free(NULL);
    assert_int_equal(snd_alloc_bytes(), before);
}

static void alloc_fails_at_the_nth_and_later(void **state) {
    (void)state;
    snd_alloc_fail_at(3);
    void *a = snd_malloc(8), *b = snd_malloc(8), *c = snd_malloc(8), *d = snd_calloc(1, 8);
    snd_alloc_fail_at(0);
    void *e = snd_malloc(8);
    assert_non_null(a);
    assert_non_null(b);
    assert_null(c);
    assert_null(d);
    assert_non_null(e);
    assert_non_null(strstr(sonde_error_message(), "out of memory"));
    snd_free(a), snd_free(b), snd_free(e);
}

static void alloc_refuses_nonsense_sizes(void **state) {
    (void)state;
    char *p = snd_malloc(4);
    strcpy(p, "abc");
    assert_null(snd_malloc(SIZE_MAX));
    assert_null(snd_calloc(SIZE_MAX / 2, 4));
    assert_null(snd_realloc(p, SIZE_MAX - 8));
    assert_null(snd_aligned_alloc(64, SIZE_MAX - 20));
    assert_string_equal(p, "abc");
    snd_free(p);
}

static void slabs_are_counted_and_never_shared(void **state) {
    (void)state;
    const size_t before = snd_alloc_bytes(), sizes[] = {1000, 5 << 20, 6 << 20, 5 << 20};
    for (int round = 0; round < 3; round++) { // later rounds get the pages of the first
        unsigned char *p[4];
        size_t total = 0;
        for (int i = 0; i < 4; i++) {
            assert_non_null(p[i] = snd_slab_alloc(sizes[i]));
            assert_int_equal((uintptr_t)p[i] % 64, 0);
            memset(p[i], 16 * round + i, sizes[i]);
            assert_int_equal(snd_alloc_bytes() - before, total += sizes[i]);
        }
        for (int i = 0; i < 4; i++) {
            for (size_t k = 0; k < sizes[i]; k += 509) assert_int_equal(p[i][k], 16 * round + i);
            assert_int_equal(p[i][sizes[i] - 1], 16 * round + i);
        }
        for (int i = 0; i < 4; i++) snd_free(p[i]);
        assert_int_equal(snd_alloc_bytes(), before);
    }
    snd_alloc_fail_at(1);
    assert_null(snd_slab_alloc(5 << 20));
    snd_alloc_fail_at(0);
    assert_null(snd_slab_alloc(SIZE_MAX - (1 << 20)));
}

static void grow_doubles_and_survives_failure(void **state) {
    (void)state;
    int *v = NULL;
    int64_t cap = 0;
    for (int i = 0; i < 1000; i++) {
        assert_true(snd_grow((void **)&v, &cap, i + 1, sizeof *v));
        v[i] = i;
    }
    assert_true(cap >= 1000 && cap < 2048);
    snd_alloc_fail_at(1);
    assert_false(snd_grow((void **)&v, &cap, cap + 1, sizeof *v));
    snd_alloc_fail_at(0);
    assert_false(snd_grow((void **)&v, &cap, INT64_MAX, sizeof *v));
    for (int i = 0; i < 1000; i++) assert_int_equal(v[i], i);
    snd_free(v);
}

static void arena_is_zeroed_aligned_and_freed_at_once(void **state) {
    (void)state;
    const size_t before = snd_alloc_bytes();
    snd_arena *a = snd_arena_create();
    unsigned char *old[400];
    for (int i = 0; i < 400; i++) {
        const size_t n = (size_t)(i * i % 5000); // crosses several chunks; some get one of their own
        old[i] = snd_arena_alloc(a, n);
        assert_non_null(old[i]);
        assert_int_equal((uintptr_t)old[i] % 16, 0);
        for (size_t k = 0; k < n; k++) assert_int_equal(old[i][k], 0);
        memset(old[i], i % 251, n);
    }
    for (int i = 0; i < 400; i++) { // nobody wrote over anybody
        for (size_t k = 0; k < (size_t)(i * i % 5000); k++) assert_int_equal(old[i][k], i % 251);
    }
    assert_string_equal(snd_arena_str(a, "text"), "text");
    assert_string_equal(snd_arena_strn(a, "texture", 4), "text");
    assert_string_equal(snd_arena_printf(a, "%s-%d", "a", 7), "a-7");
    assert_null(snd_arena_array(a, SIZE_MAX / 2, 8));
    assert_null(snd_arena_alloc(a, SIZE_MAX - 3));
    snd_alloc_fail_at(1);
    assert_null(snd_arena_alloc(a, 100 << 20));
    assert_null(snd_arena_create());
    snd_alloc_fail_at(0);
    snd_arena_destroy(a);
    snd_arena_destroy(NULL);
    assert_int_equal(snd_alloc_bytes(), before);
}

// ---- errors ---------------------------------------------------------------------------------------------------------

static sonde_status fails(int x) {
    SND_FAIL_IF(x > 3, SONDE_ERANGE, "x: %d is above 3", x);
    return SONDE_OK;
}

static sonde_status forwards(int x) {
    SND_TRY(fails(x));
    return SONDE_OK;
}

static void errors_keep_one_message(void **state) {
    (void)state;
    CHECK_OK(forwards(3));
    CHECK_STATUS(forwards(4), SONDE_ERANGE);
    assert_string_equal(sonde_error_message(), "x: 4 is above 3");
    assert_int_equal(snd_fail_prefix(SONDE_EINPUT, "%s:%d: ", "f.yaml", 12), SONDE_EINPUT);
    assert_string_equal(sonde_error_message(), "f.yaml:12: x: 4 is above 3");
    // A message may quote the message before it.
    snd_fail(SONDE_EIO, __FILE__, __LINE__, "again: %s", sonde_error_message());
    assert_string_equal(sonde_error_message(), "again: f.yaml:12: x: 4 is above 3");
    char *longer = malloc(10000);
    memset(longer, 'x', 9999);
    longer[9999] = 0;
    snd_fail(SONDE_EIO, __FILE__, __LINE__, "%s", longer);
    snd_fail_prefix(SONDE_EIO, "%s", longer);
    assert_true(strlen(sonde_error_message()) > 1000 && strlen(sonde_error_message()) < 10000);
    free(longer);
    for (int s = SONDE_OK; s <= SONDE_EINTERNAL; s++) {
        assert_string_not_equal(sonde_status_name((sonde_status)s), "unknown");
    }
    assert_string_equal(sonde_status_name((sonde_status)999), "unknown");
}

// ---- text -----------------------------------------------------------------------------------------------------------

static void buffers_grow_and_remember_failure(void **state) {
    (void)state;
    snd_buf b = {0};
    for (int i = 0; i < 1000; i++) snd_buf_printf(&b, "%d,", i);
    assert_int_equal(b.len, 10 * 2 + 90 * 3 + 900 * 4);
    assert_int_equal(strlen(b.s), b.len);
    snd_buf_num(&b, 0.5, 17);
    assert_string_equal(b.s + b.len - 3, "0.5");
    char wide[1000];
    memset(wide, 'w', sizeof wide - 1);
    wide[sizeof wide - 1] = 0;
    const size_t before = b.len;
    snd_buf_printf(&b, "<%s>", wide);
    assert_int_equal(b.len, before + 1001);
    snd_alloc_fail_at(1);
    while (!b.failed) snd_buf_put(&b, wide);
    snd_alloc_fail_at(0);
    const size_t kept = b.len;
    snd_buf_put(&b, "more");
    assert_int_equal(b.len, kept);
    assert_int_equal(strlen(b.s), kept);
    snd_buf_free(&b);
    assert_null(b.s);
}

static void nearest_suggests_what_was_meant(void **state) {
    (void)state;
    const char *const names[] = {"layers", "width", "wiring", "heads", "eps"};
    assert_string_equal(snd_nearest("layer", names, 5), "layers");
    assert_string_equal(snd_nearest("WIDHT", names, 5), "width"); // one transposition
    assert_string_equal(snd_nearest("wirring", names, 5), "wiring");
    assert_string_equal(snd_nearest("esp", names, 5), "eps");
    assert_string_equal(snd_nearest("layer", (const char *const[]){"lay", "layers"}, 2), "layers"); // the nearer one
    assert_string_equal(snd_nearest("depht", (const char *const[]){"depths"}, 1), "depths"); // one in three letters
    assert_string_equal(snd_nearest("n", (const char *const[]){"x", "N"}, 2), "N");
    assert_null(snd_nearest("z", (const char *const[]){"x", "L", "d"}, 3)); // any letter is one edit from any other
    assert_null(snd_nearest("banana", names, 5));
    assert_null(snd_nearest("xyz", names, 5));
    assert_null(snd_nearest("", names, 5));
    assert_null(snd_nearest("x", names, 0));
}

static void patterns_match(void **state) {
    (void)state;
    assert_true(snd_match("layers.*.x", "layers.3.x"));
    assert_true(snd_match("layers.*.x", "layers.3.F.out.x")); // * crosses dots
    assert_false(snd_match("layers.*.x", "layers.3.y"));
    assert_true(snd_match("*", ""));
    assert_true(snd_match("a?c", "abc"));
    assert_false(snd_match("a?c", "ac"));
    assert_true(snd_match("*a*b*", "xxaxxbxx"));
    assert_false(snd_match("", "a"));
    assert_false(snd_match("abc", "ab"));
    char name[4001];
    memset(name, 'a', 4000);
    name[4000] = 0;
    assert_false(snd_match("*a*a*a*a*a*a*a*a*b", name)); // must not take exponential time
}

static void hashes_are_the_published_ones(void **state) {
    (void)state;
    // Test vectors of FNV-1a, 64 bits (Fowler, Noll, Vo).
    assert_true(snd_hash_str("") == UINT64_C(0xcbf29ce484222325));
    assert_true(snd_hash_str("a") == UINT64_C(0xaf63dc4c8601ec8c));
    assert_true(snd_hash_str("foobar") == UINT64_C(0x85944171f73967e8));
}

// ---- numbers as text --------------------------------------------------------------------------------------------------

static void check_format(double v, int digits, const char *want) {
    char out[40];
    assert_string_equal(snd_format_num(out, v, digits), want);
}

static void numbers_print_short(void **state) {
    (void)state;
    check_format(0.1, 17, "0.1");
    check_format(1.0 / 3.0, 17, "0.3333333333333333");
    check_format(1e22, 17, "1e+22");
    check_format(64, 6, "64");
    check_format(-0.0, 6, "-0");
    check_format(1234567, 3, "1.23e+06");
    check_format(-DBL_MAX, 17, "-1.7976931348623157e+308");
    check_format(5e-324, 17, "5e-324");
    check_format(NAN, 6, "nan");
    check_format(-NAN, 6, "nan");
    check_format(INFINITY, 6, "inf");
    check_format(-INFINITY, 6, "-inf");
}

static void logarithms_print_beyond_range(void **state) {
    (void)state;
    char out[40];
    assert_string_equal(snd_format_log10(out, log10(2.5), 3), "2.5");
    assert_string_equal(snd_format_log10(out, 116 + log10(1.2), 2), "1.2e+116");
    assert_string_equal(snd_format_log10(out, 1000 + log10(3.0), 4), "3e+1000");
    assert_string_equal(snd_format_log10(out, 1000.9999, 2), "1e+1001"); // 9.998 rounds up
    assert_string_equal(snd_format_log10(out, -500 + log10(4.5), 2), "4.5e-500");
    assert_string_equal(snd_format_log10(out, -INFINITY, 2), "0");
    assert_string_equal(snd_format_log10(out, INFINITY, 2), "inf");
    assert_string_equal(snd_format_log10(out, NAN, 2), "nan");
}

static uint64_t bits_of(double v) {
    uint64_t b;
    memcpy(&b, &v, sizeof b);
    return b;
}

static void numbers_round_trip(void **state) {
    (void)state;
    const snd_key key = snd_key_make(1, "numbers");
    for (uint64_t i = 0; i < 20000; i++) {
        uint32_t w[4];
        snd_philox(key, i, w);
        const uint64_t bits = (uint64_t)w[0] << 32 | w[1];
        double v, back = 0;
        memcpy(&v, &bits, sizeof v);
        if (!isfinite(v)) continue;
        char out[40];
        snd_format_num(out, v, 17);
        assert_true(snd_parse_num(out, &back, NULL));
        if (bits_of(back) != bits) fail_msg("%s reads back as %.17g, was %.17g", out, back, v);
    }
}

// What is parsed, its value and how many characters are used.
static void check_parse(const char *s, double want, int used) {
    double v = 42;
    const char *end = NULL;
    assert_true(snd_parse_num(s, &v, &end));
    CHECK_SAME(v, want);
    assert_int_equal(end - s, used);
}

static void numbers_parse_like_strtod(void **state) {
    (void)state;
    check_parse("1.5", 1.5, 3);
    check_parse("  -2e3x", -2000, 6);
    check_parse("1.", 1, 2);
    check_parse(".5", 0.5, 2);
    check_parse("1e", 1, 1);
    check_parse("1e+", 1, 1);
    check_parse("1,5", 1, 1);
    check_parse("0x10", 0, 1);
    check_parse("inf", INFINITY, 3);
    check_parse("-Infinity", -INFINITY, 9);
    check_parse("NaN", NAN, 3);
    check_parse("1e400", INFINITY, 5);
    check_parse("1e-400", 0, 6);
    check_parse("0e99999999999999999999", 0, 22);
    check_parse("1e99999999999999999999", INFINITY, 22);
    double v;
    const char *const bad[] = {"", " ", ".", "-", "e5", "1x", "1,5", "--1", "+-1", "0x10", "nane"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (snd_parse_num(bad[i], &v, NULL)) fail_msg("'%s' was taken for a number", bad[i]);
    }
    assert_true(snd_parse_num("-0", &v, NULL) && v == 0 && signbit(v));
}

static void numbers_parse_however_long(void **state) {
    (void)state;
    // 2^53 + 1 lies halfway between two doubles: a digit far away decides, and only if it is kept.
    char text[3000] = "9007199254740993.";
    memset(text + strlen(text), '0', 2000);
    double v;
    assert_true(snd_parse_num(text, &v, NULL));
    CHECK_SAME(v, 9007199254740992.0);
    strcat(text, "1");
    assert_true(snd_parse_num(text, &v, NULL));
    CHECK_SAME(v, 9007199254740994.0);
    // Leading zeros cost no digits: 0.000...0001 with 600 zeros, times 1e600.
    memset(text, 0, sizeof text);
    strcpy(text, "0.");
    memset(text + 2, '0', 600);
    strcat(text, "25e600");
    assert_true(snd_parse_num(text, &v, NULL));
    CHECK_SAME(v, 0.25);
}

// A locale of our own with a decimal comma, since a bare machine has none. Its folder, or "" when it cannot be made.
static void make_comma_locale(char dir[]) {
    static const char source[] = "LC_NUMERIC\ndecimal_point \",\"\nthousands_sep \".\"\ngrouping 3;3\nEND LC_NUMERIC\n";
    char text[200];
    if (!mkdtemp(dir)) {
        dir[0] = 0;
        return;
    }
    snprintf(text, sizeof text, "%s/source", dir);
    CHECK_OK(snd_write_file(text, source, sizeof source - 1));
    snprintf(text, sizeof text, "cd %s && localedef --no-archive -c -i source -f ANSI_X3.4-1968 ./comma >log 2>&1",
             dir);
    if (system(text) == -1) dir[0] = 0;
    setenv("LOCPATH", dir, 1);
}

static void numbers_ignore_the_locale(void **state) {
    (void)state;
    char dir[] = "/tmp/sonde-locale-XXXXXX", probe[16], command[100];
    make_comma_locale(dir);
    const bool there = setlocale(LC_NUMERIC, "comma") != NULL;
    if (there) {
        snprintf(probe, sizeof probe, "%.1f", 1.5);
        assert_string_equal(probe, "1,5");
        check_format(1234.5, 17, "1234.5");
        check_format(1.5e-9, 6, "1.5e-09");
        check_parse("1.5", 1.5, 3);
        check_parse("1,5", 1, 1);
        char out[40];
        assert_string_equal(snd_format_log10(out, 1000.5, 3), "3.16e+1000");
        setlocale(LC_NUMERIC, "C");
    }
    unsetenv("LOCPATH");
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    if (dir[0]) assert_int_equal(system(command), 0);
    if (!there) print_message("no locale with a comma could be made here\n");
}

static void integers_parse(void **state) {
    (void)state;
    int64_t v;
    const char *end;
    assert_true(snd_parse_int("-9223372036854775808", &v, NULL) && v == INT64_MIN);
    assert_true(snd_parse_int("9223372036854775807", &v, NULL) && v == INT64_MAX);
    assert_false(snd_parse_int("9223372036854775808", &v, NULL));
    assert_false(snd_parse_int("-9223372036854775809", &v, NULL));
    assert_false(snd_parse_int("99999999999999999999999", &v, NULL));
    assert_false(snd_parse_int("", &v, NULL));
    assert_false(snd_parse_int("12a", &v, NULL));
    assert_true(snd_parse_int("12a", &v, &end) && v == 12 && *end == 'a');
    assert_true(snd_parse_int("+7", &v, NULL) && v == 7);
}

// ---- threads, cpu, clock ------------------------------------------------------------------------------------------------

typedef struct tally {
    _Atomic int seen[1000];
    _Atomic int inner;
} tally;

static void count_inner(void *ctx, int64_t task) {
    (void)task;
    ((tally *)ctx)->inner++;
}

static void count_task(void *ctx, int64_t task) {
    tally *t = ctx;
    t->seen[task]++;
    if (task < 10) snd_parallel(4, 5, count_inner, t);
}

static void parallel_runs_each_task_once(void **state) {
    (void)state;
    for (int threads = 0; threads <= 9; threads += 3) {
        tally *t = calloc(1, sizeof *t);
        snd_parallel(threads, 1000, count_task, t);
        for (int i = 0; i < 1000; i++) assert_int_equal(t->seen[i], 1);
        assert_int_equal(t->inner, 50);
        free(t);
    }
    snd_parallel(4, 0, count_task, NULL);
}

static void add_task(void *ctx, int64_t task) {
    atomic_fetch_add((_Atomic int64_t *)ctx, task + 1);
}

// Many short loops, as kernels make them: the sum of each shows a task lost or done twice.
static void *many_loops(void *arg) {
    int64_t *wrong = arg;
    for (int k = 0; k < 3000; k++) {
        _Atomic int64_t sum = 0;
        const int64_t n = 1 + k % 37;
        snd_parallel(2 + k % 3, n, add_task, (void *)&sum);
        *wrong += sum != n * (n + 1) / 2;
    }
    return NULL;
}

static void parallel_serves_several_callers_at_once(void **state) {
    (void)state;
    enum { CALLERS = 4 };
    pthread_t id[CALLERS];
    int64_t wrong[CALLERS] = {0};
    for (int i = 0; i < CALLERS; i++) assert_int_equal(pthread_create(&id[i], NULL, many_loops, &wrong[i]), 0);
    for (int i = 0; i < CALLERS; i++) assert_int_equal(pthread_join(id[i], NULL), 0);
    for (int i = 0; i < CALLERS; i++) assert_int_equal(wrong[i], 0);
}

static void slow_task(void *ctx, int64_t task) {
    usleep(200);
    add_task(ctx, task);
}

static void parallel_waits_for_the_slowest(void **state) {
    (void)state;
    for (int k = 0; k < 200; k++) {
        _Atomic int64_t sum = 0;
        snd_parallel(3, 5, slow_task, (void *)&sum);
        assert_int_equal(sum, 15);
    }
}

static bool thread_checker(void) {
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
    return true;
#endif
#endif
    return false;
}

static void parallel_works_in_a_forked_child(void **state) {
    (void)state;
    if (thread_checker()) skip(); // it refuses threads after a fork
    int64_t wrong = 0;
    many_loops(&wrong); // the parent has threads, which the child does not inherit
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(30);
        many_loops(&wrong);
        _exit(wrong == 0 ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void memory_has_a_peak(void **state) {
    (void)state;
    enum { BYTES = 96 << 20 };
    snd_memory_peak_start();
    const double before = snd_memory_peak();
    if (isnan(before)) skip(); // no /proc
    char *p = snd_slab_alloc(BYTES);
    assert_non_null(p);
    memset(p, 1, BYTES);
    snd_free(p);
    const double with = snd_memory_peak();
    assert_true(with >= before + 0.9 * BYTES);
    snd_memory_peak_start(); // what was kept for the next taker is given back too
    assert_true(snd_memory_peak() < with - 0.5 * BYTES);
}

static void machine_is_described(void **state) {
    (void)state;
    char cpu[64];
    snd_cpu_name(cpu);
    assert_true(cpu[0] && !strchr(cpu, '\n'));
    assert_true(snd_cpu_count() >= 1);
    assert_true(snd_isa_best() >= SND_ISA_BASE && snd_isa_best() <= SND_ISA_AVX512);
    setenv("SONDE_ISA", "base", 1);
    assert_int_equal(snd_isa_best(), SND_ISA_BASE);
    setenv("SONDE_ISA", "avx2", 1);
    assert_true(snd_isa_best() <= SND_ISA_AVX2);
    unsetenv("SONDE_ISA");
    const double t = snd_now();
    assert_true(snd_now() >= t);
    assert_string_equal(sonde_version(), SONDE_VERSION);
}

// ---- files ------------------------------------------------------------------------------------------------------------

static int folder_entries(const char *dir) {
    char command[300];
    snprintf(command, sizeof command, "ls -A '%s' | wc -l", dir);
    FILE *f = popen(command, "r");
    int n = -1;
    if (!f || fscanf(f, "%d", &n) != 1) n = -1;
    if (f) pclose(f);
    return n;
}

static void files_are_written_whole_or_not_at_all(void **state) {
    (void)state;
    char dir[] = "/tmp/sonde-base-XXXXXX", path[200], *data;
    assert_non_null(mkdtemp(dir));
    size_t n;
    snprintf(path, sizeof path, "%s/a/b//c", dir);
    CHECK_OK(snd_make_dirs(path));
    CHECK_OK(snd_make_dirs(path));
    snprintf(path, sizeof path, "%s/a/b/c/file", dir);
    CHECK_OK(snd_write_file(path, "one\0two", 7));
    CHECK_OK(snd_read_file(path, 100, &data, &n));
    assert_int_equal(n, 7);
    assert_memory_equal(data, "one\0two", 8); // with the NUL behind
    snd_free(data);
    CHECK_OK(snd_read_file(path, 7, &data, &n));
    snd_free(data);
    CHECK_STATUS(snd_read_file(path, 6, &data, &n), SONDE_EINPUT);
    assert_null(data);
    CHECK_OK(snd_write_file(path, "", 0));
    CHECK_OK(snd_read_file(path, 0, &data, &n));
    assert_int_equal(n, 0);
    assert_string_equal(data, "");
    snd_free(data);
    CHECK_STATUS(snd_make_dirs(path), SONDE_EIO); // a file stands there
    snprintf(path, sizeof path, "%s/none/file", dir);
    CHECK_STATUS(snd_write_file(path, "x", 1), SONDE_EIO);
    assert_non_null(strstr(sonde_error_message(), "none/file"));
    CHECK_STATUS(snd_read_file(path, 10, &data, &n), SONDE_EIO);
    CHECK_STATUS(snd_read_file(dir, 10, &data, &n), SONDE_EIO);
    snprintf(path, sizeof path, "%s/a", dir);
    CHECK_OK(snd_write_file("/dev/null", "x", 1));
    assert_int_equal(access("/dev/null", F_OK), 0);
    snprintf(path, sizeof path, "%s/a/b/c", dir);
    assert_int_equal(folder_entries(path), 1); // no temporary files left
    snprintf(path, sizeof path, "rm -r '%s'", dir);
    assert_int_equal(system(path), 0);
}

static void links_and_permissions_survive_writing(void **state) {
    (void)state;
    char dir[] = "/tmp/sonde-base-XXXXXX", file[100], link[100], rm[100];
    struct stat st;
    assert_non_null(mkdtemp(dir));
    snprintf(file, sizeof file, "%s/file", dir);
    snprintf(link, sizeof link, "%s/link", dir);
    CHECK_OK(snd_write_file(file, "old", 3));
    assert_int_equal(chmod(file, 0600), 0);
    assert_int_equal(symlink("file", link), 0);
    CHECK_OK(snd_write_file(link, "longer", 6));
    assert_true(lstat(link, &st) == 0 && S_ISLNK(st.st_mode));
    assert_true(lstat(file, &st) == 0 && st.st_size == 6 && (st.st_mode & 0777) == 0600);
    assert_true(snd_same_file(file, link));
    assert_false(snd_same_file(file, dir));
    assert_false(snd_same_file("/nowhere", "/nowhere"));
    snprintf(rm, sizeof rm, "rm -r '%s'", dir);
    assert_int_equal(system(rm), 0);
}

static void folders_are_asked_and_devices_refused(void **state) {
    (void)state;
    char dir[] = "/tmp/sonde-base-XXXXXX", path[100], *data;
    size_t n;
    assert_non_null(mkdtemp(dir));
    CHECK_OK(snd_check_folder(dir, false));
    CHECK_OK(snd_check_folder("nowhere-yet", true));
    snprintf(path, sizeof path, "%s/a/b/", dir);
    CHECK_OK(snd_check_folder(path, true));
    CHECK_STATUS(snd_check_folder(path, false), SONDE_EIO);
    assert_int_equal(folder_entries(dir), 0); // asking makes nothing
    CHECK_STATUS(snd_check_folder("/dev/null", true), SONDE_EIO);
    CHECK_STATUS(snd_check_folder("/dev/null/a", true), SONDE_EIO);
    CHECK_STATUS(snd_read_file("/dev/zero", 100, &data, &n), SONDE_EIO);
    assert_non_null(strstr(sonde_error_message(), "device"));
    assert_int_equal(rmdir(dir), 0);
}

// A file size limit stands for a full disk: a write begins and cannot end.
typedef struct full_disk {
    struct rlimit before;
    void (*handler)(int);
} full_disk;

static full_disk fill_disk(void) {
    full_disk d = {.handler = signal(SIGXFSZ, SIG_IGN)};
    getrlimit(RLIMIT_FSIZE, &d.before);
    const struct rlimit small = {100, d.before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
    return d;
}

static void empty_disk(const full_disk *d) {
    setrlimit(RLIMIT_FSIZE, &d->before);
    signal(SIGXFSZ, d->handler);
}

static void check_content(const char *path, const char *want) {
    char *data;
    size_t n;
    CHECK_OK(snd_read_file(path, 100, &data, &n));
    assert_string_equal(data, want);
    snd_free(data);
}

static void a_write_that_fails_leaves_the_old_file(void **state) {
    (void)state;
    char dir[] = "/tmp/sonde-base-XXXXXX", path[100];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/file", dir);
    CHECK_OK(snd_write_file(path, "old", 3));
    char *big = calloc(1, 100000);
    const full_disk d = fill_disk();
    const sonde_status s = snd_write_file(path, big, 100000);
    empty_disk(&d);
    free(big);
    CHECK_STATUS(s, SONDE_EIO);
    assert_non_null(strstr(sonde_error_message(), path));
    check_content(path, "old");
    assert_int_equal(folder_entries(dir), 1);
    remove(path);
    rmdir(dir);
}

// Two files that belong together: when the second does not fit, both are the old ones; when it does, both are new.
static void files_appear_together(void **state) {
    (void)state;
    char dir[] = "/tmp/sonde-base-XXXXXX", path[2][100], *big = calloc(1, 1000);
    assert_non_null(mkdtemp(dir));
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "%s/%d", dir, i);
        CHECK_OK(snd_write_file(path[i], "old", 3));
    }
    for (int fits = 0; fits < 2; fits++) {
        const snd_part part[] = {{"new", 3}, {big, fits ? 2 : 1000}};
        snd_files f = {0};
        const full_disk d = fill_disk();
        CHECK_OK(snd_files_add(&f, path[0], &part[0], 1));
        const sonde_status s = snd_files_add(&f, path[1], &part[1], 1);
        empty_disk(&d);
        CHECK_STATUS(s, fits ? SONDE_OK : SONDE_EIO);
        check_content(path[0], "old"); // not yet, whatever comes
        assert_int_equal(folder_entries(dir), fits ? 4 : 3);
        if (fits) CHECK_OK(snd_files_place(&f));
        snd_files_close(&f);
        check_content(path[0], fits ? "new" : "old");
        check_content(path[1], fits ? "" : "old"); // two NULs
        assert_int_equal(folder_entries(dir), 2);
    }
    snd_files none = {0};
    CHECK_STATUS(snd_files_add(&none, "/nonexistent/file", &(snd_part){"x", 1}, 1), SONDE_EIO);
    snd_files_close(&none);
    free(big);
    for (int i = 0; i < 2; i++) remove(path[i]);
    assert_int_equal(rmdir(dir), 0);
}

static void embedded_files_are_found(void **state) {
    (void)state;
    size_t n = 0;
    const char *js = snd_embedded("dygraphs/dygraph.min.js", &n);
    assert_non_null(js);
    assert_true(n > 50000 && strlen(js) == n);
    assert_null(snd_embedded("no/such/file", &n));
    assert_string_equal(snd_embedded_name("dygraphs/", 0), "dygraphs/dygraph.min.css");
    assert_string_equal(snd_embedded_name("dygraphs/", 1), "dygraphs/dygraph.min.js");
    assert_null(snd_embedded_name("dygraphs/", 2));
    for (int i = 1; i < snd_embed_count; i++) {
        assert_true(strcmp(snd_embed_rows[i - 1].name, snd_embed_rows[i].name) < 0);
    }
}

static void short_numbers(void **state) {
    (void)state;
    const struct {
        double v;
        const char *text;
    } cases[] = {{0, "0"},
                 {1, "1"},
                 {-2.5, "-2.5"},
                 {100, "100"},
                 {0.1, "0.1"},
                 {123456789, "123456789"},
                 {0.001, "0.001"},
                 {1.25e-7, "1.25e-07"},
                 {999999999.9, "1000000000"},
                 {0.0000999999999996, "0.0001"},
                 {1e14, "100000000000000"},
                 {-0.0, "-0"},
                 {1e15, "1e+15"},
                 {-2.5e116, "-2.5e+116"},
                 {9.9999999999e99, "1e+100"},
                 {1.7976931348623157e308, "1.79769313e+308"},
                 {2.2250738585072014e-308, "2.22507386e-308"},
                 {1.25e-14, "1.25e-14"},
                 {5e-324, "4.94065646e-324"}};
    char text[40];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(snd_format_short(text, cases[i].v), cases[i].text);
    const snd_key key = snd_key_make(1, "numbers");
    for (uint64_t i = 0; i < 20000; i++) {
        const double v = snd_normal_at(key, 2 * i) * pow(10, 600 * snd_uniform_at(key, 2 * i + 1) - 300);
        double back = NAN;
        assert_true(snd_parse_num(snd_format_short(text, v), &back, NULL));
        CHECK_CLOSE(back, v, 6e-9);
        CHECK_SAME(snd_round_short(v), back);
    }
    assert_string_equal(snd_format_short(text, NAN), "nan");
    assert_string_equal(snd_format_short(text, -INFINITY), "-inf");
}

// RFC 3720, appendix B.4, and the check value of the parametrised catalogues for "123456789".
static void crc32c_known_answers(void **state) {
    (void)state;
    uint8_t up[32], down[32], zeros[32] = {0}, ones[32];
    for (int i = 0; i < 32; i++) {
        up[i] = (uint8_t)i;
        down[i] = (uint8_t)(31 - i);
        ones[i] = 255;
    }
    for (int way = 0; way < 2; way++) {
        if (way) setenv("SONDE_ISA", "base", 1); // by tables
        assert_int_equal(snd_crc32c(zeros, 32), 0x8A9136AA);
        assert_int_equal(snd_crc32c(ones, 32), 0x62A8AB43);
        assert_int_equal(snd_crc32c(up, 32), 0x46DD794E);
        assert_int_equal(snd_crc32c(down, 32), 0x113FDB5C);
        assert_int_equal(snd_crc32c("123456789", 9), 0xE3069283);
        assert_int_equal(snd_crc32c("", 0), 0);
    }
    unsetenv("SONDE_ISA");
}

// The definition, bit by bit, at lengths around a word, the tables' and the three pieces' least; the data at any alignment.
static uint32_t crc32c_by_bits(const uint8_t *p, size_t n) {
    uint32_t c = UINT32_MAX;
    for (size_t i = 0; i < 8 * n; i++) {
        const uint32_t top = (c ^ p[i / 8] >> i % 8) & 1;
        c = c >> 1 ^ (top ? 0x82F63B78 : 0);
    }
    return ~c;
}

static void crc32c_agrees_with_its_definition(void **state) {
    (void)state;
    static const size_t LENGTHS[] = {1, 7, 8, 9, 100, 4095, 4096, 4103, 49151, 49152, 49153, 49161, 98304, 99999};
    enum { MOST = 99999 };
    uint8_t *data = snd_malloc(MOST + 8);
    assert_non_null(data);
    for (int i = 0; i < MOST + 8; i++) data[i] = (uint8_t)(snd_hash(&i, sizeof i) >> 8);
    for (size_t i = 0; i < sizeof LENGTHS / sizeof *LENGTHS; i++) {
        const uint8_t *p = data + i % 8;
        const uint32_t want = crc32c_by_bits(p, LENGTHS[i]);
        assert_int_equal(snd_crc32c(p, LENGTHS[i]), want);
        setenv("SONDE_ISA", "base", 1);
        assert_int_equal(snd_crc32c(p, LENGTHS[i]), want);
        unsetenv("SONDE_ISA");
    }
    snd_free(data);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alloc_counts_bytes),
        cmocka_unit_test(short_numbers),
        cmocka_unit_test(alloc_fails_at_the_nth_and_later),
        cmocka_unit_test(alloc_refuses_nonsense_sizes),
        cmocka_unit_test(slabs_are_counted_and_never_shared),
        cmocka_unit_test(grow_doubles_and_survives_failure),
        cmocka_unit_test(arena_is_zeroed_aligned_and_freed_at_once),
        cmocka_unit_test(errors_keep_one_message),
        cmocka_unit_test(buffers_grow_and_remember_failure),
        cmocka_unit_test(nearest_suggests_what_was_meant),
        cmocka_unit_test(patterns_match),
        cmocka_unit_test(hashes_are_the_published_ones),
        cmocka_unit_test(numbers_print_short),
        cmocka_unit_test(logarithms_print_beyond_range),
        cmocka_unit_test(numbers_round_trip),
        cmocka_unit_test(numbers_parse_like_strtod),
        cmocka_unit_test(numbers_parse_however_long),
        cmocka_unit_test(numbers_ignore_the_locale),
        cmocka_unit_test(integers_parse),
        cmocka_unit_test(parallel_runs_each_task_once),
        cmocka_unit_test(parallel_serves_several_callers_at_once),
        cmocka_unit_test(parallel_waits_for_the_slowest),
        cmocka_unit_test(parallel_works_in_a_forked_child),
        cmocka_unit_test(machine_is_described),
        cmocka_unit_test(memory_has_a_peak),
        cmocka_unit_test(files_are_written_whole_or_not_at_all),
        cmocka_unit_test(links_and_permissions_survive_writing),
        cmocka_unit_test(folders_are_asked_and_devices_refused),
        cmocka_unit_test(a_write_that_fails_leaves_the_old_file),
        cmocka_unit_test(files_appear_together),
        cmocka_unit_test(embedded_files_are_found),
        cmocka_unit_test(crc32c_known_answers),
        cmocka_unit_test(crc32c_agrees_with_its_definition),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
