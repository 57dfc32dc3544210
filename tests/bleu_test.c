// BLEU against sacreBLEU's own numbers (tests/golden/bleu.json, made by tools/golden_bleu.py), its 13a tokens included.
#include "check.h"

#include "data/data.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static snd_text *texts(const json_t *list) {
    snd_text *t = malloc((json_array_size(list) + 1) * sizeof *t);
    assert_non_null(t);
    for (size_t i = 0; i < json_array_size(list); i++)
        t[i] = (snd_text){json_string_value(json_array_get(list, i)), json_string_length(json_array_get(list, i))};
    return t;
}

static double at(const json_t *o, const char *key, int i) {
    const json_t *v = json_object_get(o, key);
    return json_number_value(i < 0 ? v : json_array_get(v, (size_t)i));
}

static void check_tokens(const char *name, const json_t *want, const snd_text *segment) {
    for (size_t i = 0; i < json_array_size(want); i++) {
        snd_buf b = {0};
        CHECK_OK(snd_bleu_tokens(segment[i], &b));
        const char *got = b.s ? b.s : "", *tokens = json_string_value(json_array_get(want, i));
        if (strcmp(got, tokens)) fail_msg("%s, segment %zu: tokens '%s', want '%s'", name, i, got, tokens);
        snd_buf_free(&b);
    }
}

static void check_case(const json_t *c) {
    const char *name = json_string_value(json_object_get(c, "name"));
    const json_t *list = json_object_get(c, "hyp");
    snd_text *hyp = texts(list), *ref = texts(json_object_get(c, "ref"));
    snd_bleu b;
    CHECK_OK(snd_bleu_corpus(hyp, ref, (int64_t)json_array_size(list), &b));
    check_tokens(name, json_object_get(c, "tokens"), hyp);
    bool fine = b.sys_len == (int64_t)at(c, "sys_len", -1) && b.ref_len == (int64_t)at(c, "ref_len", -1);
    for (int n = 0; n < 4; n++) {
        fine = fine && b.correct[n] == (int64_t)at(c, "counts", n) && b.total[n] == (int64_t)at(c, "totals", n);
        fine = fine && fabs(b.precision[n] - at(c, "precisions", n)) <= 1e-12 * 100;
    }
    fine = fine && fabs(b.score - at(c, "score", -1)) <= 1e-12 * 100 && fabs(b.brevity - at(c, "bp", -1)) <= 1e-14;
    if (!fine)
        fail_msg("%s: score %.15g, want %.15g; lengths %lld %lld", name, b.score, at(c, "score", -1),
                 (long long)b.sys_len, (long long)b.ref_len);
    free(hyp);
    free(ref);
}

static void as_sacrebleu(void **state) {
    (void)state;
    json_error_t e;
    json_t *all = json_load_file(SONDE_SOURCE_DIR "/tests/golden/bleu.json", 0, &e);
    assert_non_null(all);
    assert_true(json_array_size(all) >= 12);
    for (size_t i = 0; i < json_array_size(all); i++) check_case(json_array_get(all, i));
    json_decref(all);
}

static void shown(void **state) {
    (void)state;
    const snd_text hyp = {"the cat sat on the mat today", 28}, ref = {"the cat sat on the mat", 22};
    snd_bleu b;
    snd_buf text = {0};
    CHECK_OK(snd_bleu_corpus(&hyp, &ref, 1, &b));
    snd_bleu_text(&b, &text);
    assert_string_equal(text.s, "BLEU = 80.91 85.7/83.3/80.0/75.0 (BP = 1.000 ratio = 1.167 hyp_len = 7 ref_len = 6)");
    assert_string_equal(snd_bleu_signature(), "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp");
    snd_buf_free(&text);
    CHECK_OK(snd_bleu_corpus(NULL, NULL, 0, &b));
    CHECK_SAME(b.score, 0);
}

static void survives_lack_of_memory(void **state) {
    (void)state;
    const snd_text hyp = {"the cat, sat.", 13}, ref = {"a cat &amp; sat.", 16};
    const size_t before = snd_alloc_bytes();
    sonde_status s = SONDE_ENOMEM;
    for (int k = 1; s != SONDE_OK; k++) {
        snd_bleu b;
        snd_alloc_fail_at(k);
        s = snd_bleu_corpus(&hyp, &ref, 1, &b);
        snd_alloc_fail_at(0);
        assert_true(s == SONDE_OK || s == SONDE_ENOMEM);
        assert_int_equal(snd_alloc_bytes(), before);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_sacrebleu), cmocka_unit_test(shown),
                                       cmocka_unit_test(survives_lack_of_memory)};
    return cmocka_run_group_tests_name("bleu", tests, NULL, NULL);
}
