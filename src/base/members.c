// Settings that are members of a struct: a row of a table says name, type, bounds and place; a text becomes the member.
// What a table's words mean beyond that is its owner's business.
#include "base/base.h"

#include <math.h>
#include <string.h>

// The word of `range` (words between bars) that text is, as it stands there.
static sonde_status set_word(const snd_member *r, const char **at, const char *where, const char *text) {
    char shown[72];
    const size_t n = strlen(text);
    for (const char *w = r->range; w; w = strchr(w, '|') ? strchr(w, '|') + 1 : NULL) {
        if (strncmp(w, text, n) != 0 || (w[n] && w[n] != '|') || n == 0) continue;
        *at = text;
        return SONDE_OK;
    }
    SND_FAIL(SONDE_ENAME, "%s%s: '%s' is not one of %s", where, r->name, snd_shown(shown, text), r->range);
}

static sonde_status set_number(const snd_member *r, void *at, const char *where, const char *text) {
    double v = NAN;
    int64_t whole = -1;
    char shown[72];
    const bool is_int = r->type == SND_MEMBER_INT, by_rule = !*text && !*r->dflt;
    if (!by_rule) {
        SND_FAIL_IF(is_int ? !snd_parse_int(text, &whole, NULL) : !snd_parse_num(text, &v, NULL), SONDE_ETYPE,
                    "%s%s: '%s' is no %snumber; %s is possible", where, r->name, snd_shown(shown, text),
                    is_int ? "whole " : "", r->range);
        const double x = is_int ? (double)whole : v;
        SND_FAIL_IF(!(x >= r->lo && x <= r->hi), SONDE_ERANGE, "%s%s: %s is outside %s", where, r->name,
                    snd_shown(shown, text), r->range);
    }
    if (is_int)
        *(int64_t *)at = whole;
    else
        *(double *)at = v;
    return SONDE_OK;
}

static sonde_status set_bool(const snd_member *r, bool *at, const char *where, const char *text) {
    char shown[72];
    *at = strcmp(text, "true") == 0;
    SND_FAIL_IF(!*at && strcmp(text, "false") != 0, SONDE_ETYPE, "%s%s: '%s' is neither true nor false", where, r->name,
                snd_shown(shown, text));
    return SONDE_OK;
}

sonde_status snd_member_set(const snd_member *r, void *settings, const char *where, const char *text) {
    void *at = (char *)settings + r->offset;
    switch (r->type) {
    case SND_MEMBER_TEXT: *(const char **)at = *text ? text : NULL; return SONDE_OK;
    case SND_MEMBER_WORD: return set_word(r, at, where, text);
    case SND_MEMBER_BOOL: return set_bool(r, at, where, text);
    default: return set_number(r, at, where, text);
    }
}

sonde_status snd_member_find(const snd_member *rows, int n, const char *what, const char *where, const char *key,
                             int *found) {
    enum { MOST = 64 };
    const char *names[MOST];
    char shown[72];
    for (int i = 0; i < n && i < MOST; i++) {
        names[i] = rows[i].name;
        *found = i;
        if (strcmp(key, rows[i].name) == 0) return SONDE_OK;
    }
    const char *near = snd_nearest(key, names, n < MOST ? n : MOST);
    SND_FAIL(SONDE_ENAME, "%sunknown %s key '%s'%s%s", where, what, snd_shown(shown, key),
             near ? "; the nearest known is " : "", near ? near : "");
}
