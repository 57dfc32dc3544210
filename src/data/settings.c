// The table of data settings (settings.def) and what a text becomes under it.
#include "data/inner.h"

#include <string.h>

enum {
    COUNT = 0
#define SND_DATA_KEY(...) +1
#include "data/settings.def"
#undef SND_DATA_KEY
};

static const snd_data_key KEYS[COUNT] = {
#define SND_DATA_KEY(name, option, type, dflt, lo, hi, range, help) {#name, option, #type, dflt, range, help},
#include "data/settings.def"
#undef SND_DATA_KEY
};

typedef enum type { TEXT, WORD, INT, NUM, BOOL } type;

static const struct info {
    type type;
    double lo, hi;
    size_t offset;
} INFO[COUNT] = {
#define SND_DATA_KEY(name, option, type, dflt, lo, hi, range, help) {type, lo, hi, offsetof(snd_data_settings, name)},
#include "data/settings.def"
#undef SND_DATA_KEY
};

static const char *const KINDS[SND_DATA_KINDS] = {"auto", "text", "tokens", "pairs", "images", "table"};
static const char *const SPLITS[SND_SPLIT_COUNT] = {"train", "valid", "test"};

const char *snd_data_kind_name(snd_data_kind k) {
    return KINDS[k];
}
const char *snd_split_name(snd_split s) {
    return SPLITS[s];
}
int snd_data_key_count(void) {
    return COUNT;
}
const snd_data_key *snd_data_key_at(int i) {
    return &KEYS[i];
}

static sonde_status set_kind(snd_data_settings *s, const char *where, const char *text) {
    char shown[72];
    const char *near = snd_nearest(text, KINDS, SND_DATA_KINDS);
    for (int k = 0; k < SND_DATA_KINDS; k++) {
        if (strcmp(text, KINDS[k]) != 0) continue;
        s->kind = (snd_data_kind)k;
        return SONDE_OK;
    }
    SND_FAIL(SONDE_ENAME, "%skind: '%s' is none of auto, text, tokens, pairs, images, table%s%s", where,
             snd_shown(shown, text), near ? "; the nearest is " : "", near ? near : "");
}

static sonde_status set_number(void *at, const char *where, int i, const char *text) {
    double v;
    int64_t whole = 0;
    char shown[72];
    const bool is_int = INFO[i].type == INT;
    SND_FAIL_IF(is_int ? !snd_parse_int(text, &whole, NULL) : !snd_parse_num(text, &v, NULL), SONDE_ETYPE,
                "%s%s: '%s' is no %snumber; %s is possible", where, KEYS[i].name, snd_shown(shown, text),
                is_int ? "whole " : "", KEYS[i].range);
    if (is_int) v = (double)whole;
    SND_FAIL_IF(!(v >= INFO[i].lo && v <= INFO[i].hi), SONDE_ERANGE, "%s%s: %s is outside %s", where, KEYS[i].name,
                snd_shown(shown, text), KEYS[i].range);
    if (is_int)
        *(int64_t *)at = whole;
    else
        *(double *)at = v;
    return SONDE_OK;
}

static sonde_status set_bool(bool *at, const char *where, int i, const char *text) {
    char shown[72];
    *at = strcmp(text, "true") == 0;
    SND_FAIL_IF(!*at && strcmp(text, "false") != 0, SONDE_ETYPE, "%s%s: '%s' is neither true nor false", where,
                KEYS[i].name, snd_shown(shown, text));
    return SONDE_OK;
}

static sonde_status set(snd_data_settings *s, const char *where, int i, const char *text) {
    void *at = (char *)s + INFO[i].offset;
    switch (INFO[i].type) {
    case TEXT: *(const char **)at = *text ? text : NULL; return SONDE_OK;
    case WORD: return set_kind(s, where, text);
    case BOOL: return set_bool(at, where, i, text);
    default: return set_number(at, where, i, text);
    }
}

sonde_status snd_data_setting(snd_data_settings *s, const char *where, const char *key, const char *text) {
    const char *names[COUNT];
    char shown[72];
    for (int i = 0; i < COUNT; i++) {
        names[i] = KEYS[i].name;
        if (strcmp(key, KEYS[i].name) == 0) return set(s, where, i, text);
    }
    const char *near = snd_nearest(key, names, COUNT);
    SND_FAIL(SONDE_ENAME, "%sunknown data key '%s'%s%s", where, snd_shown(shown, key),
             near ? "; the nearest known is " : "", near ? near : "");
}

snd_data_settings snd_data_defaults(void) {
    snd_data_settings s = {0};
    for (int i = 0; i < COUNT; i++) {
        const sonde_status ok = set(&s, "", i, KEYS[i].dflt);
        (void)ok; // the table's own words; a test reads all of them
    }
    return s;
}
