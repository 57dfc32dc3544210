// The table of data settings (settings.def) and what a text becomes under it.
#include "data/inner.h"

#include <string.h>

enum {
    COUNT = 0
#define SND_DATA_KEY(...) +1
#include "data/settings.def"
#undef SND_DATA_KEY
};

static const snd_data_key ROWS[COUNT] = {
#define SND_DATA_KEY(name, option, type, dflt, lo, hi, range, use, help)                                               \
    {#name, option, dflt, range, help, SND_MEMBER_##type, lo, hi, offsetof(snd_data_settings, name)},
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
    return &ROWS[i];
}

bool snd_data_is_relative(const char *key, const char *text) {
    static const char *const paths[] = {"path", "valid_path", "test_path", "tokenizer"};
    static const char *const words[] = {"fashion-mnist", "bytes", "chars", "bpe"};
    bool is_path = false;
    for (int i = 0; i < 4; i++) is_path |= strcmp(key, paths[i]) == 0;
    for (int i = 0; i < 4; i++) is_path &= strcmp(text, words[i]) != 0;
    return is_path && *text && *text != '/';
}

bool snd_data_any_relative(const snd_data_settings *s) {
    return (s->path && snd_data_is_relative("path", s->path)) ||
           (s->valid_path && snd_data_is_relative("valid_path", s->valid_path)) ||
           (s->test_path && snd_data_is_relative("test_path", s->test_path)) ||
           (s->tokenizer && snd_data_is_relative("tokenizer", s->tokenizer));
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

// Names between commas: none empty, none twice, since a class's number is the place of its name.
static sonde_status check_classes(const char *where, const char *text) {
    int64_t place = 1;
    for (const char *s = text; *text && s; s = strchr(s, ',') ? strchr(s, ',') + 1 : NULL, place++) {
        const size_t n = strcspn(s, ",");
        int64_t before = 1;
        SND_FAIL_IF(n == 0, SONDE_EUSAGE, "%sclasses: name %lld is empty; every class needs one", where,
                    (long long)place);
        for (const char *t = text; t < s; t = strchr(t, ',') + 1, before++)
            SND_FAIL_IF(strcspn(t, ",") == n && !strncmp(s, t, n), SONDE_EUSAGE,
                        "%sclasses: '%.*s' is name %lld and %lld; every class needs one of its own", where,
                        n < 64 ? (int)n : 64, s, (long long)before, (long long)place);
    }
    return SONDE_OK;
}

// The only word is the kind, whose member is a number.
static sonde_status set(snd_data_settings *s, const char *where, int i, const char *text) {
    if (!strcmp(ROWS[i].name, "classes")) SND_TRY(check_classes(where, text));
    return ROWS[i].type == SND_MEMBER_WORD ? set_kind(s, where, text) : snd_member_set(&ROWS[i], s, where, text);
}

sonde_status snd_data_setting(snd_data_settings *s, const char *where, const char *key, const char *text) {
    int i;
    SND_TRY(snd_member_find(ROWS, COUNT, "data", where, key, &i));
    return set(s, where, i, text);
}

snd_data_settings snd_data_defaults(void) {
    snd_data_settings s = {0};
    for (int i = 0; i < COUNT; i++) {
        const sonde_status ok = set(&s, "", i, ROWS[i].dflt);
        (void)ok; // the table's own words; a test reads all of them
    }
    return s;
}
