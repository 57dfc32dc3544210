// Raw values -> a checked snd_spec. One loop over the table: every key in order takes what was written or its default,
// both by the same readers, so a default is a constant expression over earlier keys and nothing else. After the loop
// the values are checked against each other. Every failure names place, key, value found and value needed.
#include "spec/inner.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { ENV_MAX = SND_KEY_COUNT + 24 };

typedef struct resolver {
    snd_spec *s;
    const snd_raw *raw;
    snd_const *env; // numbers resolved so far, by key name, and the letters of the wiring language
    int n_env;
    bool any_cli, open; // open: what data can tell may be missing
} resolver;

// ---- errors -------------------------------------------------------------------------------------------------------------

// Puts place and key in front of the message and says whether the command line is to blame.
static sonde_status at_key(const resolver *r, int k, sonde_status s) {
    if (s == SONDE_OK) return s;
    const snd_raw *w = &r->raw[k];
    r->s->from_command_line = w->text ? w->cli : r->any_cli;
    return snd_fail_prefix(s, "%s%s: ", w->text ? w->where : "", snd_key_at(k)->name);
}
#define KEY_FAIL_IF(r, k, cond, code, ...)                                                                             \
    do {                                                                                                               \
        if (cond) return at_key(r, k, snd_fail(code, __FILE__, __LINE__, __VA_ARGS__));                                \
    } while (0)

static const char *word_like(const char *text) { // text when it is one bare word such as rms-head, else NULL
    const size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");
    return n > 0 && text[n] == 0 ? text : NULL;
}

static const char *or_nearest(snd_arena *a, const char *near) {
    const char *s = near ? snd_arena_printf(a, "; the nearest is '%s'", near) : "";
    return s ? s : "";
}

// ---- values -------------------------------------------------------------------------------------------------------------

static void define(resolver *r, const char *name, double v) {
    assert(r->n_env < ENV_MAX);
    r->env[r->n_env++] = (snd_const){name, v};
}

static sonde_status parse_word(const resolver *r, int k, const char *text, int *value) {
    int n;
    const char *const *words = snd_key_words(k, &n);
    for (int i = 1; i < n; i++)
        if (strcmp(words[i], text) == 0) {
            *value = i;
            return SONDE_OK;
        }
    KEY_FAIL_IF(r, k, true, SONDE_ENAME, "'%.60s' is none of %s%s", text, snd_key_at(k)->range,
                or_nearest(r->s->arena, snd_nearest(text, words + 1, n - 1)));
}

static sonde_status in_range(const resolver *r, int k, double v, bool whole) {
    char t[40], lo[40], hi[40];
    const snd_key_info *i = snd_key_info_at(k);
    KEY_FAIL_IF(r, k, isnan(v) || isinf(v), SONDE_ERANGE, "the value is %s, a finite number is needed",
                snd_format_num(t, v, 6));
    KEY_FAIL_IF(r, k, whole && v != floor(v), SONDE_ETYPE, "%s is not a whole number", snd_format_num(t, v, 9));
    KEY_FAIL_IF(r, k, v < i->lo || v > i->hi, SONDE_ERANGE, "%s is outside the range %s to %s", snd_format_num(t, v, 9),
                snd_format_num(lo, i->lo, 9), snd_format_num(hi, i->hi, 9));
    return SONDE_OK;
}

static sonde_status parse_number(const resolver *r, int k, const char *text, bool whole, double *v) {
    if (!snd_parse_num(text, v, NULL)) {
        snd_expr *x = NULL;
        sonde_status s = snd_expr_parse(r->s->arena, text, &x);
        if (s == SONDE_OK) s = snd_expr_const(x, r->env, r->n_env, v);
        if (s == SONDE_ENOMEM) return s;
        if (s != SONDE_OK)
            return at_key(
                r, k, snd_fail_prefix(SONDE_ETYPE, "'%.60s' is not a %s: ", text, whole ? "whole number" : "number"));
    }
    return in_range(r, k, *v, whole);
}

static sonde_status parse_bool(const resolver *r, int k, const char *text, bool *v) {
    static const char *const yes[] = {"true", "True", "TRUE", "yes", "on", "1"};
    static const char *const no[] = {"false", "False", "FALSE", "no", "off", "0"};
    for (int i = 0; i < 6; i++)
        if (strcmp(text, yes[i]) == 0 || strcmp(text, no[i]) == 0) {
            *v = strcmp(text, yes[i]) == 0;
            return SONDE_OK;
        }
    double d = -1;
    snd_expr *x = NULL;
    sonde_status s = snd_expr_parse(r->s->arena, text, &x);
    if (s == SONDE_OK) s = snd_expr_const(x, r->env, r->n_env, &d);
    if (s == SONDE_ENOMEM) return s;
    KEY_FAIL_IF(r, k, s != SONDE_OK || (d != 0 && d != 1), SONDE_ETYPE, "'%.60s' is neither true nor false", text);
    *v = d == 1;
    return SONDE_OK;
}

// ---- values that may differ between layers --------------------------------------------------------------------------------

static bool mentions(const snd_expr *x, const char *name) {
    if (!x) return false;
    if (x->kind == SND_X_NAME && strcmp(x->name, name) == 0) return true;
    for (int i = 0; i < x->n_args; i++)
        if (mentions(x->args[i].x, name)) return true;
    return mentions(x->a, name) || mentions(x->b, name) || mentions(x->c, name);
}

// env with l, L and, for positions, the words as numbers.
static sonde_status eval_at(const snd_spec *s, const snd_expr *x, bool words, int64_t l, int64_t L, double *out) {
    snd_const env[ENV_MAX + 12];
    int n = 0;
    env[n++] = (snd_const){"l", (double)l};
    env[n++] = (snd_const){"L", (double)L};
    int n_words = 0;
    const char *const *w = words ? snd_key_words(SND_KEY_position, &n_words) : NULL;
    for (int i = 1; i < n_words; i++) env[n++] = (snd_const){w[i], i};
    for (int i = 0; i < s->n_consts && n < ENV_MAX + 12; i++)
        if (strcmp(s->consts[i].name, "L") != 0 && strcmp(s->consts[i].name, "t5") != 0) env[n++] = s->consts[i];
    return snd_expr_const(x, env, n, out);
}

typedef sonde_status each_check(const resolver *r, int k, double v);

static sonde_status check_stack(const resolver *r, int k, const snd_expr *x, bool words, int64_t L, each_check *check) {
    const bool varies = mentions(x, "l");
    for (int64_t l = 1; l <= (varies ? L : 1); l++) {
        double v;
        const sonde_status s = eval_at(r->s, x, words, l, L, &v);
        if (s != SONDE_OK) return at_key(r, k, snd_fail_prefix(s, "layer %lld: ", (long long)l));
        SND_TRY(check(r, k, v));
    }
    return SONDE_OK;
}

static sonde_status parse_each(resolver *r, int k, const char *text, bool words, each_check *check, snd_expr **x) {
    snd_spec *s = r->s;
    s->consts = r->env;
    s->n_consts = r->n_env;
    const sonde_status st = snd_expr_parse(s->arena, text, x);
    if (st != SONDE_OK) return at_key(r, k, snd_fail_prefix(st, "'%.60s': ", text));
    if (s->arch != SND_ARCH_ENCDEC) return check_stack(r, k, *x, words, s->layers, check);
    SND_TRY(check_stack(r, k, *x, words, s->encoder_layers, check));
    return check_stack(r, k, *x, words, s->decoder_layers, check);
}

static sonde_status check_kv(const resolver *r, int k, double v) {
    SND_TRY(in_range(r, k, v, true));
    KEY_FAIL_IF(r, k, r->s->heads % (int64_t)v != 0, SONDE_ERANGE, "%d does not divide heads (%lld)", (int)v,
                (long long)r->s->heads);
    return SONDE_OK;
}
static sonde_status check_window(const resolver *r, int k, double v) {
    return in_range(r, k, v, true);
}
static sonde_status check_theta(const resolver *r, int k, double v) {
    return in_range(r, k, v, false);
}

static sonde_status check_mixed(const resolver *r, int k, double v) {
    KEY_FAIL_IF(r, k, v != SND_POS_ROPE && v != SND_POS_ALIBI && v != SND_POS_NONE, SONDE_ERANGE,
                "only rope, alibi and none may differ between layers");
    return SONDE_OK;
}

static sonde_status resolve_position(resolver *r, const char *text) {
    snd_spec *s = r->s;
    s->position_text = text;
    s->position_given = r->raw[SND_KEY_position].text != NULL;
    KEY_FAIL_IF(r, SND_KEY_position, !s->position_given && s->vocab > 0 && !r->open, SONDE_EINPUT,
                "must be said where there is a vocab (%lld): one of %s; learned positions need context=NUMBER too",
                (long long)s->vocab, snd_key_at(SND_KEY_position)->range);
    int value = 0;
    if (word_like(text)) {
        SND_TRY(parse_word(r, SND_KEY_position, text, &value));
    } else {
        SND_TRY(parse_each(r, SND_KEY_position, text, true, check_mixed, &s->position_x));
        value = (int)snd_spec_position(s, 1, s->arch == SND_ARCH_ENCDEC ? s->decoder_layers : s->layers);
    }
    s->position = (snd_position)value;
    define(r, "t5", s->position == SND_POS_T5);
    return SONDE_OK;
}

// ---- texts with a grammar of their own ------------------------------------------------------------------------------------

static sonde_status resolve_wiring(resolver *r) {
    snd_spec *s = r->s;
    const char *text = r->raw[SND_KEY_wiring].text;
    KEY_FAIL_IF(r, SND_KEY_wiring, !text, SONDE_EINPUT, "a catalogue key or a formula is needed");
    const snd_wiring *w = snd_is_formula(text) ? NULL : snd_wiring_find(text);
    KEY_FAIL_IF(r, SND_KEY_wiring, !w && word_like(text), SONDE_ENAME, "no wiring is called '%.60s'%s", text,
                or_nearest(s->arena, snd_wiring_nearest(text)));
    s->wiring_key = w ? w->key : NULL;
    s->wiring_text = w ? w->formula : text;
    const sonde_status st = snd_formula_parse(s->arena, s->wiring_text, &s->formula);
    return at_key(r, SND_KEY_wiring, st);
}

static sonde_status resolve_block(resolver *r, const char *text) {
    static const char *const names[] = {"two-matrix", "one-matrix"};
    static const char *const formulas[] = {"W(relu(W(u, n, gain=2)), d, gain=1)", "relu(W(u, d, gain=2))"};
    const char *formula = text;
    for (int i = 0; i < 2; i++)
        if (strcmp(text, names[i]) == 0) formula = formulas[i];
    KEY_FAIL_IF(r, SND_KEY_block, formula == text && word_like(text) && strcmp(text, "u") != 0, SONDE_ENAME,
                "'%.60s' is neither two-matrix, one-matrix nor an expression over u%s", text,
                or_nearest(r->s->arena, snd_nearest(text, names, 2)));
    r->s->block_text = text;
    return at_key(r, SND_KEY_block, snd_expr_parse(r->s->arena, formula, &r->s->block));
}

static sonde_status resolve_act(resolver *r, const char *text) {
    static const char *const words[] = {"relu",    "gelu", "gelu_tanh", "silu", "tanh",
                                        "sigmoid", "erf",  "softplus",  "exp",  "abs"};
    for (int i = 0; i < 10; i++)
        if (strcmp(text, words[i]) == 0) {
            r->s->act = words[i];
            r->s->act_fn = snd_fn_find(text, strlen(text));
            return SONDE_OK;
        }
    KEY_FAIL_IF(r, SND_KEY_act, true, SONDE_ENAME, "'%.60s' is none of %s%s", text, snd_key_at(SND_KEY_act)->range,
                or_nearest(r->s->arena, snd_nearest(text, words, 10)));
}

static sonde_status resolve_text(resolver *r, int k, const char *text) {
    snd_spec *s = r->s;
    switch (k) {
    case SND_KEY_wiring: return SONDE_OK; // done before the loop: the family depends on it
    case SND_KEY_block: return resolve_block(r, text);
    case SND_KEY_act: return resolve_act(r, text);
    default:
        assert(k == SND_KEY_init);
        if (!*text) return SONDE_OK;
        s->init_text = text;
        return at_key(r, k, snd_init_parse(s->arena, text, &s->init));
    }
}

static sonde_status resolve_each(resolver *r, int k, const char *text) {
    snd_spec *s = r->s;
    switch (k) {
    case SND_KEY_kv_heads: s->kv_heads_text = text; return parse_each(r, k, text, false, check_kv, &s->kv_heads);
    case SND_KEY_window: s->window_text = text; return parse_each(r, k, text, false, check_window, &s->window);
    case SND_KEY_rope_theta:
        s->rope_theta_text = text;
        return parse_each(r, k, text, false, check_theta, &s->rope_theta);
    default: assert(k == SND_KEY_position); return resolve_position(r, text);
    }
}

// ---- the family and what belongs to it --------------------------------------------------------------------------------------

static sonde_status resolve_family(resolver *r) {
    snd_spec *s = r->s;
    const snd_raw *w = r->raw;
    int value = 0;
    if (w[SND_KEY_family].text) {
        SND_TRY(parse_word(r, SND_KEY_family, w[SND_KEY_family].text, &value));
    } else {
        const snd_wiring *row = s->wiring_key ? snd_wiring_find(s->wiring_key) : NULL;
        const bool conv = (row && strcmp(row->family, "convnet") == 0) || snd_formula_calls(s->formula, "conv");
        const char *objective = w[SND_KEY_objective].text;
        const bool tf = (row && strcmp(row->family, "transformer") == 0) || snd_formula_calls(s->formula, "A") ||
                        snd_formula_calls(s->formula, "C") || w[SND_KEY_heads].text || w[SND_KEY_vocab].text ||
                        w[SND_KEY_arch].text || (objective && strcmp(objective, "class") != 0);
        value = conv ? SND_FAM_CONVNET : tf ? SND_FAM_TRANSFORMER : SND_FAM_MLP;
    }
    s->family = (snd_family)value;
    s->family_given = w[SND_KEY_family].text != NULL;
    define(r, "mlp", s->family == SND_FAM_MLP);
    define(r, "transformer", s->family == SND_FAM_TRANSFORMER);
    define(r, "convnet", s->family == SND_FAM_CONVNET);
    return SONDE_OK;
}

static bool has_key(const snd_spec *s, int k) {
    const int bit = s->family == SND_FAM_MLP           ? SND_FOR_MLP
                    : s->family == SND_FAM_TRANSFORMER ? SND_FOR_TF
                                                       : SND_FOR_CONV;
    return (snd_key_info_at(k)->families & bit) != 0;
}

// A key that the family lacks would be ignored in silence; that is an error, unless it says what holds anyway.
static sonde_status check_families(const resolver *r) {
    for (int k = 0; k < SND_KEY_COUNT; k++) {
        const char *text = r->raw[k].text;
        if (!text || has_key(r->s, k) || strcmp(text, snd_key_at(k)->dflt) == 0) continue;
        KEY_FAIL_IF(
            r, k, true, SONDE_ENAME, "the %s family has no such key (value '%.40s'); say family=%s or leave it out",
            snd_family_name(r->s->family), text, snd_key_info_at(k)->families & SND_FOR_TF ? "transformer" : "mlp");
    }
    return SONDE_OK;
}

// ---- the loop ---------------------------------------------------------------------------------------------------------------

// What a key is when nobody says it: mostly the table's text; NULL leaves zero.
static const char *default_text(const resolver *r, int k) {
    const snd_spec *s = r->s;
    const snd_wiring *w = s->wiring_key ? snd_wiring_find(s->wiring_key) : NULL;
    if (k == SND_KEY_norm && w && w->norm) return w->norm;
    if (k == SND_KEY_objective) {
        if (s->family != SND_FAM_TRANSFORMER) return s->outputs ? "class" : NULL;
        if (!s->vocab) return NULL;
        return s->arch == SND_ARCH_ENCDEC ? "seq2seq" : s->arch == SND_ARCH_ENCODER ? "mlm" : "lm";
    }
    const char *d = snd_key_at(k)->dflt;
    return *d ? d : NULL;
}

static sonde_status resolve_number(resolver *r, int k, const char *text) {
    const snd_key_info *i = snd_key_info_at(k);
    void *member = (char *)r->s + i->offset;
    double v;
    if (i->type == SND_T_BOOL) {
        bool b = false;
        SND_TRY(parse_bool(r, k, text, &b));
        memcpy(member, &b, sizeof b);
        v = b;
    } else {
        SND_TRY(parse_number(r, k, text, i->type == SND_T_INT, &v));
        const int64_t n = i->type == SND_T_INT ? (int64_t)v : 0;
        if (i->type == SND_T_INT)
            memcpy(member, &n, sizeof n);
        else
            memcpy(member, &v, sizeof v);
    }
    define(r, snd_key_at(k)->name, v);
    const char *letter = k == SND_KEY_layers ? "L" : k == SND_KEY_width ? "d" : k == SND_KEY_hidden ? "n" : NULL;
    if (letter) define(r, letter, v);
    return SONDE_OK;
}

static sonde_status resolve_word(resolver *r, int k, const char *text) {
    int v;
    SND_TRY(parse_word(r, k, text, &v));
    memcpy((char *)r->s + snd_key_info_at(k)->offset, &v, sizeof v);
    if (k == SND_KEY_qk_norm) define(r, "l2", v == SND_QK_L2);
    return SONDE_OK;
}

// heads must divide the width unless head_dim is said; found here, where "width/heads" is about to be used.
static sonde_status check_heads(const resolver *r) {
    const snd_spec *s = r->s;
    KEY_FAIL_IF(r, SND_KEY_heads, !r->raw[SND_KEY_head_dim].text && s->width % s->heads != 0, SONDE_ERANGE,
                "%lld heads%s do not divide width %lld; choose a divisor or give head_dim", (long long)s->heads,
                r->raw[SND_KEY_heads].text ? "" : " (the default, width/64)", (long long)s->width);
    return SONDE_OK;
}

static sonde_status resolve_key(resolver *r, int k) {
    const snd_key_type type = snd_key_info_at(k)->type;
    const bool mine = has_key(r->s, k);
    const char *text = mine && r->raw[k].text ? r->raw[k].text : default_text(r, k);
    if (k == SND_KEY_family || !text) {
        if (text == NULL && (type == SND_T_INT)) define(r, snd_key_at(k)->name, 0);
        return SONDE_OK;
    }
    if (!mine && type != SND_T_WORD) return SONDE_OK;
    if (k == SND_KEY_head_dim) SND_TRY(check_heads(r));
    switch (type) {
    case SND_T_WORD: return resolve_word(r, k, text);
    case SND_T_EACH: return resolve_each(r, k, text);
    case SND_T_TEXT: return resolve_text(r, k, text);
    default: return resolve_number(r, k, text);
    }
}

// ---- values against each other ------------------------------------------------------------------------------------------------

static bool uses_position(const snd_spec *s, snd_position p) {
    if (!s->position_x) return s->position == p;
    const int64_t stacks[2] = {s->arch == SND_ARCH_ENCDEC ? s->encoder_layers : 0,
                               s->arch == SND_ARCH_ENCDEC ? s->decoder_layers : s->layers};
    for (int i = 0; i < 2; i++)
        for (int64_t l = 1; l <= stacks[i]; l++)
            if (snd_spec_position(s, l, stacks[i]) == p) return true;
    return false;
}

static sonde_status check_positions(const resolver *r) {
    const snd_spec *s = r->s;
    const bool encoder = s->arch != SND_ARCH_DECODER;
    KEY_FAIL_IF(r, SND_KEY_context, s->position == SND_POS_LEARNED && s->context == 0 && !r->open, SONDE_EINPUT,
                "0; learned positions need the length of the longest sequence (context=64, say)");
    KEY_FAIL_IF(r, SND_KEY_position, s->position == SND_POS_XL && s->width % 2, SONDE_ERANGE,
                "xl needs an even width, found %lld", (long long)s->width);
    const int64_t nb = encoder ? s->t5_buckets / 2 : s->t5_buckets;
    KEY_FAIL_IF(r, SND_KEY_t5_buckets, s->position == SND_POS_T5 && (nb < 2 || s->t5_max_distance <= nb / 2),
                SONDE_ERANGE, "%lld buckets do not fit t5_max_distance %lld: it must exceed the %lld exact ones",
                (long long)s->t5_buckets, (long long)s->t5_max_distance, (long long)(nb / 2));
    const double r_dim = s->rope_fraction * (double)s->head_dim;
    KEY_FAIL_IF(r, s->rope_fraction == 1 ? SND_KEY_head_dim : SND_KEY_rope_fraction,
                uses_position(s, SND_POS_ROPE) && fabs(r_dim / 2 - round(r_dim / 2)) > 1e-9, SONDE_ERANGE,
                "rope turns pairs: rope_fraction x head_dim (%lld) must be an even number", (long long)s->head_dim);
    return SONDE_OK;
}

static sonde_status check_objective(const resolver *r) {
    const snd_spec *s = r->s;
    const int k = SND_KEY_objective;
    const char *name = snd_objective_name(s->objective);
    const bool lm = s->objective == SND_OBJ_LM || s->objective == SND_OBJ_MLM;
    KEY_FAIL_IF(r, k, (lm || s->objective == SND_OBJ_SEQ2SEQ) && s->vocab == 0 && !r->open, SONDE_EINPUT,
                "%s needs a vocab", name);
    KEY_FAIL_IF(r, k, s->objective == SND_OBJ_CLASS && s->family == SND_FAM_TRANSFORMER, SONDE_EINPUT,
                "class needs family mlp or convnet, found transformer");
    KEY_FAIL_IF(r, k, s->objective == SND_OBJ_CLASS && s->outputs == 0 && !r->open, SONDE_EINPUT,
                "class needs outputs (classes)");
    KEY_FAIL_IF(r, k, s->objective == SND_OBJ_SEQ2SEQ && s->arch != SND_ARCH_ENCDEC, SONDE_EINPUT,
                "seq2seq needs arch encoder-decoder, found %s", snd_arch_name(s->arch));
    return SONDE_OK;
}

sonde_status snd_spec_resolve(snd_spec *s, const snd_raw *raw, bool open) {
    resolver r = {.s = s, .raw = raw, .open = open};
    SND_NEW(s->arena, r.env, ENV_MAX);
    for (int k = 0; k < SND_KEY_COUNT; k++) r.any_cli = r.any_cli || (raw[k].text && raw[k].cli);
    s->from_command_line = r.any_cli;
    s->position = SND_POS_NONE; // for the families without positions
    SND_TRY(resolve_wiring(&r));
    SND_TRY(resolve_family(&r));
    SND_TRY(check_families(&r));
    for (int k = 0; k < SND_KEY_COUNT; k++) SND_TRY(resolve_key(&r, k));
    s->consts = r.env;
    s->n_consts = r.n_env;
    SND_TRY(check_objective(&r));
    // from here on what can still be wrong is the formula: a file's own one stays the file's fault beside overrides
    s->from_command_line = raw[SND_KEY_wiring].cli || raw[SND_KEY_block].cli || raw[SND_KEY_family].cli;
    return s->family == SND_FAM_TRANSFORMER ? check_positions(&r) : SONDE_OK;
}

// ---- per layer ------------------------------------------------------------------------------------------------------------

static double value_at(const snd_spec *s, const snd_expr *x, bool words, int64_t l, int64_t L) {
    double v = 0;
    const sonde_status st = eval_at(s, x, words, l, L, &v);
    assert(st == SONDE_OK); // evaluated for every layer when the spec was loaded
    return st == SONDE_OK ? v : 0;
}

int64_t snd_spec_kv_heads(const snd_spec *s, int64_t l, int64_t L) {
    return s->kv_heads ? (int64_t)value_at(s, s->kv_heads, false, l, L) : 0;
}
int64_t snd_spec_window(const snd_spec *s, int64_t l, int64_t L) {
    return s->window ? (int64_t)value_at(s, s->window, false, l, L) : 0;
}
double snd_spec_rope_theta(const snd_spec *s, int64_t l, int64_t L) {
    return s->rope_theta ? value_at(s, s->rope_theta, false, l, L) : 0;
}
snd_position snd_spec_position(const snd_spec *s, int64_t l, int64_t L) {
    return s->position_x ? (snd_position)(int)value_at(s, s->position_x, true, l, L) : s->position;
}
