// The wiring language: formulas, bare expressions and init texts. What parses prints, and the print parses to the same.
#include "fuzz.h"

#include "formula/formula.h"

static char *printed_formula(const snd_formula *f) {
    snd_buf b = {0};
    snd_formula_print(f, &b);
    MUST(!b.failed);
    return b.s;
}

static void formula(const char *text) {
    snd_arena *a = snd_arena_create();
    snd_formula *f, *again;
    if (fuzz_fine(snd_formula_parse(a, text, &f))) {
        char *one = printed_formula(f);
        MUST(snd_formula_parse(a, one, &again) == SONDE_OK);
        char *two = printed_formula(again);
        MUST(strcmp(one, two) == 0);
        snd_free(one);
        snd_free(two);
    }
    snd_arena_destroy(a);
}

static void expression(const char *text) {
    snd_arena *a = snd_arena_create();
    snd_expr *x, *again;
    if (fuzz_fine(snd_expr_parse(a, text, &x))) {
        snd_buf one = {0}, two = {0};
        snd_expr_print(x, &one);
        MUST(one.s && snd_expr_parse(a, one.s, &again) == SONDE_OK);
        snd_expr_print(again, &two);
        MUST(two.s && strcmp(one.s, two.s) == 0);
        const snd_const env[] = {{"l", 3}, {"L", 12}, {"d", 64}};
        double v;
        if (fuzz_fine(snd_expr_const(x, env, 3, &v))) {
            double w;
            MUST(snd_expr_const(again, env, 3, &w) == SONDE_OK && (v == w || (v != v && w != w)));
        }
        snd_buf_free(&one);
        snd_buf_free(&two);
    }
    snd_arena_destroy(a);
}

static void init(const char *text) {
    snd_arena *a = snd_arena_create();
    snd_init_rule *r;
    fuzz_fine(snd_init_parse(a, text, &r));
    snd_arena_destroy(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (n > 1 << 16) return 0;
    const size_t before = snd_alloc_bytes();
    char *text = fuzz_text(data, n);
    formula(text);
    expression(text);
    init(text);
    free(text);
    MUST(snd_alloc_bytes() == before);
    return 0;
}
