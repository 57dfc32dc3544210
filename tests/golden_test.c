// The golden cases: every tensor that an independent f64 reference computed, forward and backward, in f64 and f32; and
// what must be refused, with the words that the message must hold. The error of a tensor is its largest difference
// over the RMS of the expected one, which is taken as at least 1/20 of the median RMS of its group (gradients, the
// rest): a gradient that is zero in exact arithmetic is not compared with its own rounding.
#include "lab/lab.h"

#include "check.h"
#include "tsv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_TENSORS = 512, MAX_TAPS = 16 };

static char out_path[128];

static double rms(const snd_tensor *t) {
    const int64_t n = snd_shape_size(t->shape);
    const double *d = t->data;
    double s = 0;
    for (int64_t i = 0; i < n; i++) s += d[i] * d[i];
    return n ? sqrt(s / (double)n) : 0;
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_rms(const snd_stfile *f, bool gradients) {
    double r[MAX_TENSORS];
    int n = 0;
    for (int64_t i = 0; i < snd_st_count(f) && n < MAX_TENSORS; i++) {
        const snd_tensor *t = snd_st_at(f, i);
        const double v = rms(t);
        if (!strncmp(t->name, "grad.", 5) == gradients && v > 0) r[n++] = v;
    }
    if (!n) return 0;
    qsort(r, (size_t)n, sizeof *r, by_size);
    return n % 2 ? r[n / 2] : 0.5 * (r[n / 2 - 1] + r[n / 2]);
}

static void compare_tensor(const char *name, const snd_tensor *want, const snd_tensor *got, double least, double tol) {
    if (!got) fail_msg("%s: %s is missing", name, want->name);
    const int64_t n = snd_shape_size(want->shape);
    if (snd_shape_size(got->shape) != n) fail_msg("%s: %s has another size", name, want->name);
    double *g = malloc((size_t)(n ? n : 1) * sizeof *g);
    assert_non_null(g);
    snd_convert(got->data, got->dtype, g, SND_F64, n);
    const double *w = want->data, scale = fmax(rms(want), 0.05 * least);
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(g[i] - w[i]) <= tol * scale))
            fail_msg("%s: %s[%lld] is %.17g, expected %.17g, off by %.3g of %.3g", name, want->name, (long long)i, g[i],
                     w[i], fabs(g[i] - w[i]), scale);
    free(g);
}

// The arguments that index.tsv uses: --taps LIST, --backward, --eval.
static void read_args(char *args, snd_run_opts *o, char **taps) {
    char *words[8];
    const int n = tsv_split(args, ' ', words, 8);
    for (int i = 0; i < n; i++) {
        if (!strcmp(words[i], "--backward")) o->backward = true;
        if (!strcmp(words[i], "--eval")) o->eval = true;
        if (!strcmp(words[i], "--taps") && i + 1 < n) {
            o->n_taps = tsv_split(words[++i], ',', taps, MAX_TAPS);
            o->taps = (const char *const *)taps;
        }
    }
}

static void run_case(const char *name, char *args, snd_dtype dtype, double tol, int threads) {
    char weights[512], input[512], spec_path[512], expected[512], *taps[MAX_TAPS];
    const char *const dir = SONDE_SOURCE_DIR "/tests/golden";
    snprintf(weights, sizeof weights, "%s/%s/weights.safetensors", dir, name);
    snprintf(input, sizeof input, "%s/%s/input.safetensors", dir, name);
    snprintf(spec_path, sizeof spec_path, "%s/%s/spec.yaml", dir, name);
    snprintf(expected, sizeof expected, "%s/%s/expected.safetensors", dir, name);
    snd_arena *a = snd_arena_create();
    snd_spec *spec;
    snd_run_result r;
    snd_run_opts o = {.weights = weights, .input = input, .output = out_path, .dtype = dtype, .threads = threads};
    read_args(args, &o, taps);
    if (snd_spec_load(a, spec_path, NULL, 0, &spec) != SONDE_OK || snd_lab_run(a, spec, &o, &r) != SONDE_OK)
        fail_msg("%s: %s", name, sonde_error_message());
    snd_stfile *want, *got;
    assert_int_equal(snd_st_open(expected, &want), SONDE_OK);
    assert_int_equal(snd_st_open(out_path, &got), SONDE_OK);
    const double least[2] = {median_rms(want, false), median_rms(want, true)};
    assert_true(snd_st_count(want) > 0);
    for (int64_t i = 0; i < snd_st_count(want); i++) {
        const snd_tensor *t = snd_st_at(want, i);
        compare_tensor(name, t, snd_st_find(got, t->name), least[!strncmp(t->name, "grad.", 5)], tol);
    }
    snd_st_close(want);
    snd_st_close(got);
    snd_arena_destroy(a);
}

static void golden_row(char **cells, int n) {
    double t64, t32;
    assert_true(snd_parse_num(cells[2], &t64, NULL) && snd_parse_num(cells[3], &t32, NULL));
    for (int k = 0; k < 3; k++) {
        char args[512];
        snprintf(args, sizeof args, "%s", n > 4 ? cells[4] : "");
        run_case(cells[0], args, k == 1 ? SND_F32 : SND_F64, k == 1 ? t32 : t64, k + 1);
    }
}

// As run_cases.sh judges bf16: 4000 times the tolerance of f32, but within 0.1 and 0.5. What is written is BF16.
static void bf16_row(char **cells, int n) {
    double t32;
    char args[512];
    assert_true(snd_parse_num(cells[3], &t32, NULL));
    snprintf(args, sizeof args, "%s", n > 4 ? cells[4] : "");
    run_case(cells[0], args, SND_BF16, fmin(fmax(4000 * t32, 0.1), 0.5), 1);
    snd_stfile *got;
    assert_int_equal(snd_st_open(out_path, &got), SONDE_OK);
    for (int64_t i = 0; i < snd_st_count(got); i++) assert_int_equal(snd_st_at(got, i)->dtype, SND_BF16);
    snd_st_close(got);
}

// --round-weights is the same as a file whose weights were stored in that type.
static void rounded_weights(void **state) {
    (void)state;
    enum { MOST = 64 };
    const char *const dir = SONDE_SOURCE_DIR "/tests/golden/mlp-gated-block";
    char weights[512], input[512], spec_path[512], narrow_path[300];
    snprintf(weights, sizeof weights, "%s/weights.safetensors", dir);
    snprintf(input, sizeof input, "%s/input.safetensors", dir);
    snprintf(spec_path, sizeof spec_path, "%s/spec.yaml", dir);
    snprintf(narrow_path, sizeof narrow_path, "%s.weights", out_path);
    for (snd_dtype type = SND_BF16; type <= SND_F16; type++) {
        snd_arena *a = snd_arena_create();
        snd_stfile *f, *out[3];
        snd_tensor t[MOST];
        snd_spec *spec;
        snd_run_result r;
        assert_int_equal(snd_st_open(weights, &f), SONDE_OK);
        assert_true(snd_st_count(f) > 0 && snd_st_count(f) <= MOST);
        for (int64_t i = 0; i < snd_st_count(f); i++) {
            t[i] = *snd_st_at(f, i);
            const int64_t n = snd_shape_size(t[i].shape);
            t[i].data = malloc((size_t)(n + 1) * sizeof(uint16_t));
            assert_non_null(t[i].data);
            snd_convert(snd_st_at(f, i)->data, t[i].dtype, t[i].data, type, n);
            t[i].dtype = type;
        }
        assert_int_equal(snd_st_write(narrow_path, t, (int)snd_st_count(f), NULL, 0), SONDE_OK);
        for (int64_t i = 0; i < snd_st_count(f); i++) free(t[i].data);
        snd_st_close(f);
        assert_int_equal(snd_spec_load(a, spec_path, NULL, 0, &spec), SONDE_OK);
        for (int k = 0; k < 3; k++) { // as stored, rounded on the way, not rounded
            const snd_run_opts o = {.weights = k ? weights : narrow_path,
                                    .input = input,
                                    .output = out_path,
                                    .dtype = SND_F32,
                                    .round_weights = k == 1 ? type : SND_DT_NONE};
            assert_int_equal(snd_lab_run(a, spec, &o, &r), SONDE_OK);
            assert_int_equal(snd_st_open(out_path, &out[k]), SONDE_OK);
            remove(out_path);
        }
        const snd_tensor *x = snd_st_find(out[0], "out.x");
        const size_t bytes = (size_t)snd_shape_size(x->shape) * sizeof(float);
        assert_memory_equal(x->data, snd_st_find(out[1], "out.x")->data, bytes);
        if (type == SND_BF16) // f16 holds this file's weights exactly
            assert_memory_not_equal(x->data, snd_st_find(out[2], "out.x")->data, bytes);
        for (int k = 0; k < 3; k++) snd_st_close(out[k]);
        remove(narrow_path);
        snd_arena_destroy(a);
    }
}

static void bf16(void **state) {
    (void)state;
    assert_true(tsv_each("index.tsv", bf16_row) > 0);
}

static void golden(void **state) {
    (void)state;
    assert_true(tsv_each("index.tsv", golden_row) >= 40);
}

static bool holds(const char *text, const char *word) { // without regard to case
    const size_t n = strlen(word);
    for (; strlen(text) >= n; text++)
        if (!strncasecmp(text, word, n)) return true;
    return false;
}

static void unescape(char *s) { // \n stands for a line break
    char *to = s;
    for (; *s; s++) {
        if (s[0] == '\\' && s[1] == 'n')
            *to++ = '\n', s++;
        else
            *to++ = *s;
    }
    *to = '\0';
}

static void invalid_row(char **cells, int n) {
    char spec_path[512], input[512], *words[8];
    assert_true(n >= 7);
    snprintf(spec_path, sizeof spec_path, SONDE_SOURCE_DIR "/tests/golden/invalid/%s", cells[2]);
    snprintf(input, sizeof input, SONDE_SOURCE_DIR "/tests/golden/invalid/%s", cells[4]);
    unescape(cells[5]);
    const char *over = cells[5];
    snd_arena *a = snd_arena_create();
    snd_spec *spec;
    snd_run_result r;
    const bool backward = !strcmp(over, "--backward");
    const snd_run_opts o = {.input = input, .output = out_path, .dtype = SND_F64, .backward = backward};
    sonde_status s = snd_spec_load(a, spec_path, &over, strcmp(over, "-") != 0 && !backward, &spec);
    if (s == SONDE_OK) s = snd_lab_run(a, spec, &o, &r);
    if (s == SONDE_OK) fail_msg("%s was accepted", cells[0]);
    const int k = tsv_split(cells[6], '|', words, 8);
    for (int i = 0; i < k; i++)
        if (!holds(sonde_error_message(), words[i]))
            fail_msg("%s: the message lacks '%s': %s", cells[0], words[i], sonde_error_message());
    snd_arena_destroy(a);
}

static void invalid(void **state) {
    (void)state;
    assert_true(tsv_each("invalid.tsv", invalid_row) >= 28);
}

int main(void) {
    snprintf(out_path, sizeof out_path, "/tmp/sonde-golden-%ld.safetensors", (long)getpid());
    const struct CMUnitTest tests[] = {cmocka_unit_test(golden), cmocka_unit_test(bf16),
                                       cmocka_unit_test(rounded_weights), cmocka_unit_test(invalid)};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(out_path);
    return failed;
}
