// The table of options (options.def) and what a word on the command line becomes under it.
// Invariant: a value is stored only after its type and range were checked, so getters cannot fail.
#include "cli/inner.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const snd_opt_row rows[] = {
#define SND_OPTION(name, letter, type, arg, min, max, verbs, help) {name, letter, type, arg, min, max, verbs, help, ""},
#define SND_OPTION_FOR(name, letter, type, arg, min, max, verbs, use, help)                                            \
    {name, letter, type, arg, min, max, verbs, help, use},
#include "cli/options.def"
#undef SND_OPTION_FOR
#undef SND_OPTION
// Settings of data and training have tables of their own, which specs and the library read too.
#define TYPE_TEXT(range) SND_OPT_STR, "VALUE"
#define TYPE_WORD(range) SND_OPT_WORD, range
#define TYPE_INT(range)  SND_OPT_INT, "N"
#define TYPE_NUM(range)  SND_OPT_NUM, "X"
#define TYPE_BOOL(range) SND_OPT_FLAG, NULL
#define SND_DATA_KEY(name, option, type, dflt, lo, hi, range, use, help)                                               \
    {option, 0, TYPE_##type(range), lo, hi, " train ", help, use},
#include "data/settings.def"
#undef SND_DATA_KEY
#define SND_TRAIN_KEY(name, option, verbs, type, dflt, lo, hi, range, use, help)                                       \
    {option, 0, TYPE_##type(range), lo, hi, verbs, help, use},
#include "train/settings.def"
#undef SND_TRAIN_KEY
};
enum { N_ROWS = (int)(sizeof rows / sizeof *rows) };

int snd_opt_count(void) {
    return N_ROWS;
}
const snd_opt_row *snd_opt_at(int i) {
    return &rows[i];
}

bool snd_opt_applies(const snd_opt_row *o, const char *verb) {
    if (strcmp(o->verbs, "*") == 0) return true;
    const size_t n = strlen(verb);
    for (const char *at = strstr(o->verbs, verb); at; at = strstr(at + 1, verb))
        if (at > o->verbs && at[-1] == ' ' && at[n] == ' ') return true;
    return false;
}

const snd_opt_row *snd_opt_find(const snd_verb *verb, const char *name, size_t n) {
    const snd_opt_row *other = NULL;
    for (int i = 0; i < N_ROWS; i++) {
        if (strlen(rows[i].name) != n) continue;
        size_t k = 0;
        while (k < n && (name[k] == '_' ? '-' : name[k]) == rows[i].name[k]) k++; // files spell max_memory
        if (k < n) continue;
        if (!verb || snd_opt_applies(&rows[i], verb->name)) return &rows[i];
        other = &rows[i];
    }
    return other;
}

const char *snd_opt_nearest(const snd_cli *c, const char *name) {
    const char *names[N_ROWS];
    int n = 0;
    for (int i = 0; i < N_ROWS; i++)
        if (!c->verb || snd_opt_applies(&rows[i], c->verb->name)) names[n++] = rows[i].name;
    return snd_nearest(name, names, n);
}

bool snd_opt_is_key(const char *name, size_t n) {
    for (int i = 0; i < snd_key_count(); i++)
        if (strlen(snd_key_at(i)->name) == n && strncmp(snd_key_at(i)->name, name, n) == 0) return true;
    return false;
}

const char *snd_opt_key_nearest(const char *name) {
    const char *names[128];
    int n = 0;
    for (int i = 0; i < snd_key_count() && n < 128; i++) names[n++] = snd_key_at(i)->name;
    return snd_nearest(name, names, n);
}

// ---- words to values --------------------------------------------------------------------------------------------------

// Items of a list: commas split, but not inside parentheses ("post,each: x = min(x, F(x))").
static int split(snd_arena *a, const char *text, const char ***out) {
    int n = 1, depth = 0;
    for (const char *s = text; *s; s++) n += *s == ',';
    const char **items = snd_arena_array(a, (size_t)n, sizeof *items);
    n = 0;
    const char *start = text;
    for (const char *s = text; items; s++) {
        depth += *s == '(';
        depth -= *s == ')';
        if (*s && !(*s == ',' && depth <= 0)) continue;
        while (*start == ' ') start++;
        if (s > start) items[n++] = snd_arena_strn(a, start, (size_t)(s - start));
        if (!*s) break;
        start = s + 1;
    }
    *out = items;
    return n;
}

static int ascending(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static bool push(struct snd_opt_value *v, int64_t *list, int64_t x) {
    enum { MOST = 4096 };
    if (v->n >= MOST) return false;
    list[v->n++] = x;
    return true;
}

// One item of an INTS list: "8", "1..256" (doubling, the end always in), "8:64:8".
static bool push_item(struct snd_opt_value *v, int64_t *list, const char *item) {
    int64_t a, b, step;
    const char *end;
    if (!snd_parse_int(item, &a, &end)) return false;
    if (!*end) return push(v, list, a);
    if (strncmp(end, "..", 2) == 0) {
        if (!snd_parse_int(end + 2, &b, NULL) || a < 1 || b < a) return false;
        for (; a < b; a *= 2)
            if (!push(v, list, a) || a > INT64_MAX / 2) return false;
        return push(v, list, b);
    }
    if (*end != ':' || !snd_parse_int(end + 1, &b, &end)) return false;
    step = 1;
    if (*end == ':' && !snd_parse_int(end + 1, &step, &end)) return false;
    if (*end || step < 1 || b < a) return false;
    for (; a <= b; a += step)
        if (!push(v, list, a)) return false;
    return true;
}

static sonde_status set_ints(snd_cli *c, const snd_opt_row *o, const char *text, struct snd_opt_value *v) {
    int64_t *list;
    SND_NEW(c->arena, list, 4096);
    const char **items;
    const int n = split(c->arena, text, &items);
    SND_FAIL_IF(!items, SONDE_ENOMEM, "--%s: out of memory", o->name);
    int commas = 0;
    for (const char *s = text; *s; s++) commas += *s == ',';
    SND_FAIL_IF(n && n != commas + 1, SONDE_EUSAGE, "--%s: '%s' has an empty item; a list is 1,2,4 or 1..256 or 8:64:8",
                o->name, text);
    for (int i = 0; i < n; i++)
        SND_FAIL_IF(!push_item(v, list, items[i]), SONDE_EUSAGE,
                    "--%s: '%s' is not a list of whole numbers (1,2,4 or 1..256 or 8:64:8)", o->name, text);
    SND_FAIL_IF(v->n == 0, SONDE_EUSAGE, "--%s: the list is empty", o->name);
    qsort(list, (size_t)v->n, sizeof *list, ascending);
    int kept = 0;
    for (int i = 0; i < v->n; i++)
        if (i == 0 || list[i] != list[i - 1]) list[kept++] = list[i];
    v->n = kept;
    v->ints = list;
    for (int i = 0; i < v->n; i++)
        SND_FAIL_IF((double)list[i] < o->min || (double)list[i] > o->max, SONDE_EUSAGE,
                    "--%s: %lld is outside %.0f to %.0f", o->name, (long long)list[i], o->min, o->max);
    return SONDE_OK;
}

static sonde_status set_word(snd_cli *c, const snd_opt_row *o, const char *text, struct snd_opt_value *v) {
    char words[128];
    snprintf(words, sizeof words, "%s", o->arg);
    const char *list[16];
    int n = 0;
    for (char *w = words; w && n < 16;) {
        list[n++] = w;
        w = strchr(w, '|');
        if (w) *w++ = 0;
    }
    for (int i = 0; i < n; i++) {
        if (strcmp(list[i], text) != 0) continue;
        v->s = snd_arena_str(c->arena, text);
        return SONDE_OK;
    }
    const char *near = snd_nearest(text, list, n);
    SND_FAIL_IF(near, SONDE_EUSAGE, "--%s: '%s' is not one of %s; did you mean %s?", o->name, text, o->arg, near);
    SND_FAIL(SONDE_EUSAGE, "--%s: '%s' is not one of %s", o->name, text, o->arg);
}

typedef struct unit {
    const char *name;
    double factor;
} unit;
static const unit bytes[] = {{"", 1},
                             {"B", 1},
                             {"K", 1024},
                             {"KiB", 1024},
                             {"kB", 1e3},
                             {"KB", 1e3},
                             {"M", 1048576},
                             {"MiB", 1048576},
                             {"MB", 1e6},
                             {"G", 1073741824},
                             {"GB", 1e9},
                             {"GiB", 1073741824},
                             {"T", 1099511627776},
                             {NULL, 0}};
static const unit seconds[] = {{"", 1}, {"s", 1}, {"ms", 1e-3}, {"m", 60}, {"min", 60}, {"h", 3600}, {NULL, 0}};

static bool with_unit(const char *text, const unit *u, double *out) {
    const char *end;
    if (!snd_parse_num(text, out, &end) || !(*out >= 0)) return false;
    for (; u->name; u++) {
        if (strcmp(u->name, end) != 0) continue;
        *out *= u->factor;
        return isfinite(*out);
    }
    return false;
}

static sonde_status set_number(const snd_opt_row *o, const char *text, struct snd_opt_value *v) {
    switch (o->type) {
    case SND_OPT_INT:
        SND_FAIL_IF(!snd_parse_int(text, &v->i, NULL), SONDE_EUSAGE, "--%s: '%s' is not a whole number", o->name, text);
        SND_FAIL_IF((double)v->i < o->min || (double)v->i > o->max, SONDE_EUSAGE, "--%s: %s is outside %.0f to %.0f",
                    o->name, text, o->min, o->max);
        return SONDE_OK;
    case SND_OPT_NUM: {
        char lo[40], hi[40]; // with the digits that tell 0.999999999 from a 1 that is refused
        SND_FAIL_IF(!snd_parse_num(text, &v->d, NULL), SONDE_EUSAGE, "--%s: '%s' is not a number", o->name, text);
        SND_FAIL_IF(!(v->d >= o->min && v->d <= o->max), SONDE_EUSAGE, "--%s: %s is outside %s to %s", o->name, text,
                    snd_format_num(lo, o->min, 9), snd_format_num(hi, o->max, 9));
        return SONDE_OK;
    }
    case SND_OPT_BYTES:
        SND_FAIL_IF(!with_unit(text, bytes, &v->d) || v->d > 9e18, SONDE_EUSAGE,
                    "--%s: '%s' is not a size such as 800M or 2G", o->name, text);
        v->i = (int64_t)v->d;
        return SONDE_OK;
    default:
        SND_FAIL_IF(!with_unit(text, seconds, &v->d), SONDE_EUSAGE, "--%s: '%s' is not a time such as 30s or 5m",
                    o->name, text);
        return SONDE_OK;
    }
}

sonde_status snd_opt_set(snd_cli *c, const snd_opt_row *o, const char *text, bool from_file) {
    struct snd_opt_value v = {.given = true, .from_file = from_file, .text = text};
    switch (o->type) {
    case SND_OPT_FLAG:
        SND_FAIL_IF(text && !from_file, SONDE_EUSAGE, "--%s takes no value (found '%s')", o->name, text);
        SND_FAIL_IF(text && strcmp(text, "true") != 0 && strcmp(text, "false") != 0, SONDE_EUSAGE,
                    "%s: '%s' is neither true nor false", o->name, text);
        v.i = !text || strcmp(text, "true") == 0;
        break;
    case SND_OPT_STR:
        v.s = strstr(o->arg, "DIR") ? snd_folder_name(c->arena, text) : snd_arena_str(c->arena, text);
        SND_FAIL_IF(!*text, SONDE_EUSAGE, "--%s: the value is empty", o->name);
        break;
    case SND_OPT_WORD: SND_TRY(set_word(c, o, text, &v)); break;
    case SND_OPT_INTS: SND_TRY(set_ints(c, o, text, &v)); break;
    case SND_OPT_STRS: {
        const char **items;
        v.n = split(c->arena, text, &items);
        v.strs = items;
        SND_FAIL_IF(v.n == 0, SONDE_EUSAGE, "--%s: the list is empty", o->name);
        break;
    }
    default: SND_TRY(set_number(o, text, &v)); break;
    }
    c->values[o - rows] = v;
    return SONDE_OK;
}

sonde_status snd_opt_set_pair(snd_cli *c, const char *pair) {
    const char *eq = strchr(pair, '=');
    assert(eq);
    const snd_opt_row *o = snd_opt_find(c->verb, pair, (size_t)(eq - pair));
    if (o && c->values[o - rows].given && !c->values[o - rows].from_file) return SONDE_OK; // the command line wins
    if (o && snd_opt_applies(o, c->verb->name)) return snd_opt_set(c, o, eq + 1, true);
    if (o) return SONDE_OK; // of another verb that reads the same part
    const char *name = snd_arena_strn(c->arena, pair, (size_t)(eq - pair)),
               *near = name ? snd_opt_nearest(c, name) : NULL;
    SND_FAIL_IF(near, SONDE_EUSAGE, "unknown setting '%s'; did you mean %s?", name, near);
    SND_FAIL(SONDE_EUSAGE, "unknown setting '%s'", name ? name : pair);
}

// ---- options without effect --------------------------------------------------------------------------------------------

// One condition of `use`, n characters, under the facts. A key that no fact names is none of this verb's business.
static sonde_status check_condition(const snd_opt_row *o, const char *use, size_t n, const snd_fact *f, int n_facts) {
    const size_t key = strcspn(use, "=");
    for (int i = 0; i < n_facts; i++) {
        if (strlen(f[i].key) != key || strncmp(f[i].key, use, key) != 0) continue;
        char words[128];
        const size_t m = strlen(f[i].value);
        snprintf(words, sizeof words, "%.*s", (int)(n - key - 1), use + key + 1);
        for (const char *w = words; w; w = strchr(w, '|') ? strchr(w, '|') + 1 : NULL)
            if (strncmp(w, f[i].value, m) == 0 && (w[m] == '|' || !w[m])) return SONDE_OK;
        SND_FAIL_IF(!strcmp(f[i].value, "none") && !strcmp(words, "given"), SONDE_EUSAGE,
                    "--%s has no effect without %s", o->name, f[i].key);
        for (char *bar = words; (bar = strchr(bar, '|')) != NULL;) *bar = '/';
        SND_FAIL(SONDE_EUSAGE, "--%s has no effect with %s %s, only with %s", o->name, f[i].key, f[i].value, words);
    }
    return SONDE_OK;
}

sonde_status snd_opt_check_use(const snd_cli *c, const snd_fact *facts, int n) {
    for (int i = 0; i < N_ROWS; i++) {
        const struct snd_opt_value *v = &c->values[i];
        if (!v->given || v->from_file) continue;
        for (const char *u = rows[i].use; *u; u += strspn(u, " ")) {
            const size_t length = strcspn(u, " ");
            SND_TRY(check_condition(&rows[i], u, length, facts, n));
            u += length;
        }
    }
    return SONDE_OK;
}

// ---- getters ----------------------------------------------------------------------------------------------------------

static const struct snd_opt_value *value(const snd_cli *c, const char *name) {
    const snd_opt_row *o = snd_opt_find(c->verb, name, strlen(name));
    assert(o && "options.def has no such row");
    return &c->values[o - rows];
}

bool snd_opt_given(const snd_cli *c, const char *name) {
    return value(c, name)->given;
}
bool snd_opt_flag(const snd_cli *c, const char *name) {
    return value(c, name)->i != 0;
}
int64_t snd_opt_int(const snd_cli *c, const char *name, int64_t dflt) {
    const struct snd_opt_value *v = value(c, name);
    return v->given ? v->i : dflt;
}
double snd_opt_num(const snd_cli *c, const char *name, double dflt) {
    const struct snd_opt_value *v = value(c, name);
    return v->given ? v->d : dflt;
}
const char *snd_opt_str(const snd_cli *c, const char *name, const char *dflt) {
    const struct snd_opt_value *v = value(c, name);
    return v->given ? v->s : dflt;
}
const char *snd_opt_text(const snd_cli *c, const char *name) {
    const struct snd_opt_value *v = value(c, name);
    return v->given ? v->text ? v->text : "true" : NULL;
}
bool snd_opt_said(const snd_cli *c, const char *name) {
    const struct snd_opt_value *v = value(c, name);
    return v->given && !v->from_file;
}
int snd_opt_ints(const snd_cli *c, const char *name, const int64_t **v) {
    *v = value(c, name)->ints;
    return value(c, name)->n;
}
int snd_opt_strs(const snd_cli *c, const char *name, const char *const **v) {
    *v = value(c, name)->strs;
    return value(c, name)->n;
}
