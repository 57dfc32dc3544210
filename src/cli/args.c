// argv to verb, operands and options. Order of words is free, apart from the first operand being SPEC. Errors name the
// word and the nearest one that exists; a word in the wrong place (a model key as an option, an option as a key) is told
// where it belongs.
#include "cli/inner.h"

#include <assert.h>
#include <string.h>

static const snd_verb verbs[] = {
#define SND_VERB(name, operands, summary, usage, examples) {#name, operands, summary, usage, examples, snd_verb_##name},
#include "cli/verbs.def"
#undef SND_VERB
};
enum { N_VERBS = (int)(sizeof verbs / sizeof *verbs) };

int snd_verb_count(void) {
    return N_VERBS;
}
const snd_verb *snd_verb_at(int i) {
    return &verbs[i];
}
const snd_verb *snd_verb_find(const char *name) {
    for (int i = 0; i < N_VERBS; i++)
        if (strcmp(verbs[i].name, name) == 0) return &verbs[i];
    return NULL;
}

static sonde_status unknown_verb(const char *word) {
    const char *names[N_VERBS];
    for (int i = 0; i < N_VERBS; i++) names[i] = verbs[i].name;
    const char *near = snd_nearest(word, names, N_VERBS);
    SND_FAIL_IF(near, SONDE_EUSAGE, "unknown verb '%s'; did you mean %s?", word, near);
    SND_FAIL(SONDE_EUSAGE, "unknown verb '%s'; 'sonde help' lists them", word);
}

// ---- options ----------------------------------------------------------------------------------------------------------

static sonde_status unknown_option(const snd_cli *c, const char *name) {
    const char *verb = c->verb ? c->verb->name : "sonde";
    SND_FAIL_IF(c->verb && c->verb->operands == SND_OPS_SPEC && snd_opt_is_key(name, strlen(name)), SONDE_EUSAGE,
                "--%s: %s is a setting of the model; write it as %s=VALUE after SPEC", name, name, name);
    const char *near = snd_opt_nearest(c, name);
    SND_FAIL_IF(near, SONDE_EUSAGE, "unknown option --%s; did you mean --%s?", name, near);
    SND_FAIL(SONDE_EUSAGE, "unknown option --%s; 'sonde %s --help' lists the options", name, c->verb ? verb : "help");
}

static sonde_status check_verb(const snd_cli *c, const snd_opt_row *o) {
    if (!c->verb || snd_opt_applies(o, c->verb->name)) return SONDE_OK;
    const char *near = snd_opt_nearest(c, o->name);
    SND_FAIL_IF(near, SONDE_EUSAGE, "%s has no option --%s; did you mean --%s?", c->verb->name, o->name, near);
    SND_FAIL(SONDE_EUSAGE, "%s has no option --%s (it belongs to:%.*s)", c->verb->name, o->name,
             (int)strlen(o->verbs) - 1, o->verbs);
}

static bool is_option(const char *word) {
    if (word[0] != '-' || !word[1]) return false;
    return word[1] == '-' || !((word[1] >= '0' && word[1] <= '9') || word[1] == '.');
}

// The value of an option: what follows '=', else the next word. A word that looks like an option is never taken for one.
static sonde_status take_value(const snd_opt_row *o, const char *attached, int argc, char **argv, int *i,
                               const char **out) {
    *out = attached;
    if (attached || o->type == SND_OPT_FLAG) return SONDE_OK;
    const char *next = *i + 1 < argc ? argv[*i + 1] : NULL;
    const char *kind = o->arg ? o->arg : "VALUE";
    SND_FAIL_IF(!next, SONDE_EUSAGE, "--%s needs a value (%s)", o->name, kind);
    SND_FAIL_IF(is_option(next), SONDE_EUSAGE,
                "--%s needs a value (%s) and found the option %s; a value that begins so is written --%s=%s", o->name,
                kind, next, o->name, next);
    *out = next;
    ++*i;
    return SONDE_OK;
}

static sonde_status long_option(snd_cli *c, int argc, char **argv, int *i) {
    const char *name = argv[*i] + 2, *eq = strchr(name, '=');
    const size_t n = eq ? (size_t)(eq - name) : strlen(name);
    const snd_opt_row *o = snd_opt_find(c->verb, name, n);
    if (!o) {
        const char *copy = snd_arena_strn(c->arena, name, n);
        return copy ? unknown_option(c, copy) : SONDE_ENOMEM;
    }
    SND_TRY(check_verb(c, o));
    const char *text;
    SND_TRY(take_value(o, eq ? eq + 1 : NULL, argc, argv, i, &text));
    return snd_opt_set(c, o, text, false);
}

static const snd_opt_row *by_letter(char letter) {
    for (int k = 0; k < snd_opt_count(); k++)
        if (snd_opt_at(k)->letter == letter) return snd_opt_at(k);
    return NULL;
}

static sonde_status short_option(snd_cli *c, int argc, char **argv, int *i) {
    const char *word = argv[*i];
    const snd_opt_row *o = by_letter(word[1]);
    if (o) o = snd_opt_find(c->verb, o->name, strlen(o->name)); // the verb's own row
    SND_FAIL_IF(!o, SONDE_EUSAGE, "unknown option %s; long options begin with two dashes", word);
    SND_FAIL_IF(o->type == SND_OPT_FLAG && word[2], SONDE_EUSAGE, "unknown option %s; write -%c on its own", word,
                word[1]);
    SND_TRY(check_verb(c, o));
    const char *attached = word[2] == '=' ? word + 3 : word[2] ? word + 2 : NULL, *text;
    SND_TRY(take_value(o, attached, argc, argv, i, &text));
    return snd_opt_set(c, o, text, false);
}

// ---- operands ---------------------------------------------------------------------------------------------------------

// A setting such as layers=12: a known key right before '=', nothing that only a formula has.
static bool is_setting(const char *word) {
    const char *eq = strchr(word, '=');
    return eq && eq > word && snd_opt_is_key(word, (size_t)(eq - word));
}

static sonde_status check_setting(snd_cli *c, const char *word) {
    const char *eq = strchr(word, '=');
    SND_FAIL_IF(!eq, SONDE_EUSAGE,
                "unexpected word '%s': SPEC is '%s', settings after it are key=value (a formula is one word: quote it)",
                word, c->spec_word);
    const size_t n = (size_t)(eq - word);
    if (snd_opt_is_key(word, n)) return SONDE_OK;
    const snd_opt_row *o = snd_opt_find(c->verb, word, n);
    SND_FAIL_IF(o && snd_opt_applies(o, c->verb->name), SONDE_EUSAGE, "%s is an option; write --%s=%s", o->name,
                o->name, eq + 1);
    const char *key = snd_arena_strn(c->arena, word, n), *near = key ? snd_opt_key_nearest(key) : NULL;
    SND_FAIL_IF(near, SONDE_EUSAGE, "unknown model key '%s'; did you mean %s?", key, near);
    SND_FAIL(SONDE_EUSAGE, "unknown model key '%s'; 'sonde help keys' lists them", key ? key : word);
}

// A key that is said twice may be meant either way.
static sonde_status add_setting(snd_cli *c, const char *word) {
    const size_t n = strcspn(word, "=") + 1;
    for (int i = 0; i < c->n_overrides; i++)
        SND_FAIL_IF(!strncmp(c->overrides[i], word, n), SONDE_EUSAGE, "'%s' and '%s' set the same key; leave one out",
                    c->overrides[i], word);
    c->overrides[c->n_overrides++] = word;
    return SONDE_OK;
}

static sonde_status spec_operand(snd_cli *c, const char *word) {
    if (c->spec_word) {
        SND_TRY(check_setting(c, word));
        return add_setting(c, word);
    }
    if (is_setting(word)) return add_setting(c, word); // whether a SPEC is missing is seen when all words are read
    c->spec_word = word;
    return SONDE_OK;
}

static sonde_status operand(snd_cli *c, const char *word) {
    if (!c->verb) {
        c->verb = snd_verb_find(word);
        return c->verb ? SONDE_OK : unknown_verb(word);
    }
    SND_FAIL_IF(c->verb->operands == SND_OPS_NONE, SONDE_EUSAGE, "%s takes no operand (found '%s')", c->verb->name,
                word);
    if (c->verb->operands == SND_OPS_SPEC) return spec_operand(c, word);
    c->words[c->n_words++] = word;
    return SONDE_OK;
}

static sonde_status check_enough(const snd_cli *c) {
    const char *verb = c->verb->name;
    const bool panels = !strcmp(verb, "measure") && snd_opt_given(c, "panel"); // they bring their specs
    const bool wirings = snd_opt_applies(snd_opt_find(c->verb, "wirings", 7), verb) && snd_opt_given(c, "wirings");
    const bool resumed = !strcmp(verb, "train") && snd_opt_given(c, "resume");
    const bool lacks = c->verb->operands == SND_OPS_SPEC && !c->spec_word && !panels && !wirings && !resumed;
    SND_FAIL_IF(
        lacks && c->n_overrides, SONDE_EUSAGE,
        "'%s' is a setting, and SPEC comes first: a wiring, a preset, a file or a formula, as in 'sonde %s pre %s'",
        c->overrides[0], verb, c->overrides[0]);
    SND_FAIL_IF(lacks, SONDE_EUSAGE,
                "%s needs a SPEC: a wiring ('sonde wirings'), a preset ('sonde models'), a file or a formula", verb);
    SND_FAIL_IF(c->verb->operands == SND_OPS_FILES && c->n_words == 0, SONDE_EUSAGE, "%s needs a FILE or a folder",
                c->verb->name);
    return SONDE_OK;
}

// Options may stand before the verb, but only those that every verb has can be checked there; so the verb is looked for
// first: the first word that is not an option and not an option's value.
static sonde_status find_verb(snd_cli *c, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const char *w = argv[i];
        if (strcmp(w, "--") == 0) return i + 1 < argc ? operand(c, argv[i + 1]) : SONDE_OK;
        if (!is_option(w)) return operand(c, w);
        const snd_opt_row *o = w[1] == '-' ? snd_opt_find(NULL, w + 2, strlen(w + 2)) : w[2] ? NULL : by_letter(w[1]);
        if (o && o->type != SND_OPT_FLAG) i++;
    }
    return SONDE_OK;
}

static bool asks(int argc, char **argv, const char *name, const char *letter) {
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], name) == 0 || (letter && strcmp(argv[i], letter) == 0)) return true;
    return false;
}

// Every word once more, the verb left out.
static sonde_status walk(snd_cli *c, int argc, char **argv) {
    bool verb_seen = false, only_operands = false;
    for (int i = 1; i < argc; i++) {
        if (!only_operands && strcmp(argv[i], "--") == 0)
            only_operands = true;
        else if (!only_operands && is_option(argv[i]))
            SND_TRY(argv[i][1] == '-' ? long_option(c, argc, argv, &i) : short_option(c, argc, argv, &i));
        else if (!verb_seen)
            verb_seen = true;
        else
            SND_TRY(operand(c, argv[i]));
    }
    return SONDE_OK;
}

// The command as a shell would take it, for records.
static sonde_status keep_command(snd_cli *c, int argc, char **argv) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=./,:+@%^";
    snd_buf b = {0};
    snd_buf_put(&b, "sonde");
    for (int i = 1; i < argc; i++) {
        const bool bare = *argv[i] && strspn(argv[i], plain) == strlen(argv[i]);
        snd_buf_put(&b, bare ? " " : " '");
        for (const char *s = argv[i]; *s; s++)
            snd_buf_putn(&b, *s == '\'' && !bare ? "'\\''" : s, *s == '\'' && !bare ? 4 : 1);
        if (!bare) snd_buf_put(&b, "'");
    }
    c->command = b.failed ? NULL : snd_arena_str(c->arena, b.s);
    snd_buf_free(&b);
    return c->command ? SONDE_OK : SONDE_ENOMEM;
}

sonde_status snd_args_parse(snd_cli *c, int argc, char **argv, bool *help, bool *version) {
    SND_NEW(c->arena, c->values, snd_opt_count());
    SND_NEW(c->arena, c->overrides, argc + 1);
    SND_NEW(c->arena, c->words, argc + 1);
    SND_TRY(keep_command(c, argc, argv));
    *help = asks(argc, argv, "--help", "-h");
    *version = asks(argc, argv, "--version", NULL);
    SND_TRY(find_verb(c, argc, argv));
    if (*help || *version) return SONDE_OK;
    SND_FAIL_IF(!c->verb, SONDE_EUSAGE, "no verb given");
    SND_TRY(walk(c, argc, argv));
    return check_enough(c);
}
