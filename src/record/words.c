// A record's facts as words that the screen and the page share. Reads only.
#include "record/record.h"

#include <math.h>
#include <string.h>

const char *snd_run_setting_of(const snd_run *u, const char *key) {
    for (int i = 0; i < u->n_settings; i++)
        if (strcmp(u->settings[i].key, key) == 0) return u->settings[i].text;
    return NULL;
}

static bool in_word(char c) {
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Does the text call a function of one of these names (separated by blanks)?
static bool calls(const char *text, const char *names) {
    for (const char *s = text; s && *s;) {
        size_t n = 0;
        while (in_word(s[n])) n++;
        const char *after = s + n + strspn(s + n, " ");
        for (const char *w = names; n > 0 && *after == '(' && *w; w += strspn(w, " ")) {
            const size_t k = strcspn(w, " ");
            if (k == n && strncmp(w, s, n) == 0) return true;
            w += k;
        }
        s += n > 0 ? n : 1;
    }
    return false;
}

const char *snd_run_setting_used(const snd_run *u, const char *key) {
    const bool norm = strcmp(key, "norm") == 0, eps = strcmp(key, "eps") == 0;
    const char *family = snd_run_setting_of(u, "family"), *block = snd_run_setting_of(u, "block");
    const bool inside = family && strcmp(family, "transformer") == 0; // its sublayers have norms that no formula shows
    const char *names = norm ? "N N0" : "N N0 LN RMS BN SN DYT DERF";
    if ((norm || eps) && !inside && !calls(u->formula, names) && !calls(block, names)) return NULL;
    return snd_run_setting_of(u, key);
}

// "lecture: about 1e116": who says so, in front of the colon, and what. Without a colon: a text with a number is what,
// one without says who.
static const char *what_of(const snd_ref *f, size_t *who) {
    const char *colon = strstr(f->text, ": ");
    if (!colon && !strpbrk(f->text, "0123456789")) {
        *who = strlen(f->text);
        return "";
    }
    *who = colon ? (size_t)(colon - f->text) : 0;
    return colon ? colon + 2 : f->text;
}

static void put_ref(const snd_panel *p, const snd_ref *f, snd_buf *b) {
    size_t who;
    char text[40];
    const char *what = what_of(f, &who);
    snd_buf_put(b, what);
    if (!strpbrk(what, "0123456789")) // it leaves the number to us
        snd_buf_printf(b, "%s%s", *what ? " " : "",
                       p->log ? snd_pretty_log10(text, f->y, 2) : snd_format_num(text, f->y, 6));
    snd_buf_printf(b, " at %s ", p->x_name);
    snd_buf_num(b, f->x, 4);
}

void snd_panel_stated(const snd_panel *p, snd_buf *b) {
    const char *said = NULL; // whose statements the sentence is listing
    size_t n_said = 0;
    for (int i = 0; i < p->n_series; i++)
        for (int k = 0; k < p->series[i]->n_refs; k++) {
            const snd_ref *f = &p->series[i]->refs[k];
            size_t who;
            (void)what_of(f, &who);
            const bool same = said && who == n_said && strncmp(said, f->text, who) == 0;
            if (said) snd_buf_put(b, same && k ? ", " : "; ");
            if (!same) snd_buf_printf(b, "%.*s: ", who ? (int)who : 6, who ? f->text : "stated");
            if (!same || k == 0) snd_buf_printf(b, "%s ", p->series[i]->label);
            put_ref(p, f, b);
            said = f->text;
            n_said = who;
        }
}
