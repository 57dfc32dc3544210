// The JSON writer: text straight into a buffer, so that a record of any size costs no tree in memory (jansson's writer
// builds one and prints 5.01 as 5.0099999999999998 at round-trip precision; reading is jansson's job).
// Invariant: what comes out is valid JSON as long as opens and closes match; strings are valid UTF-8 whatever went in.
#include "record/record.h"

#include <assert.h>
#include <math.h>
#include <string.h>

snd_json snd_json_start(snd_buf *b) {
    snd_json j = {.b = b};
    j.first[0] = true;
    return j;
}

static void line(snd_json *j) {
    if (j->tight) return;
    if (j->flat) {
        snd_buf_put(j->b, " ");
        return;
    }
    snd_buf_put(j->b, "\n");
    for (int i = 0; i < j->depth; i++) snd_buf_put(j->b, "  ");
}

int snd_utf8_sequence(const char *text) {
    uint32_t c;
    return *text ? snd_utf8_at(text, strnlen(text, 4), &c) : 1;
}

// Writes one character that may not stand as it is; false when it may.
static bool escaped(snd_json *j, const unsigned char *s, int n) {
    static const char special[] = "\"\\\n\r\t\b\f", letter[] = "\"\\nrtbf";
    const char *at = *s ? strchr(special, *s) : NULL;
    if (at) {
        const char two[3] = {'\\', letter[at - special], 0};
        snd_buf_put(j->b, two);
        return true;
    }
    const bool control = *s < 0x20 || *s == 0x7F;
    const bool markup = j->html && (*s == '<' || *s == '>' || *s == '&');
    if (control || markup) {
        snd_buf_printf(j->b, "\\u%04x", *s);
        return true;
    }
    if (n == 3 && s[0] == 0xE2 && s[1] == 0x80 &&
        (s[2] == 0xA8 || s[2] == 0xA9)) { // U+2028, U+2029: line ends in old JS
        snd_buf_put(j->b, s[2] == 0xA8 ? "\\u2028" : "\\u2029");
        return true;
    }
    return false;
}

// Length of the run at s of what every JSON text may hold as it is: most names are nothing else.
static size_t harmless(const char *s) {
    size_t n = 0;
    for (; (s[n] >= '0' && s[n] <= '9') || (s[n] >= 'a' && s[n] <= 'z') || (s[n] >= 'A' && s[n] <= 'Z') ||
           s[n] == '.' || s[n] == '_' || s[n] == ' ';
         n++) {}
    return n;
}

static void quoted(snd_json *j, const char *text) {
    snd_buf_put(j->b, "\"");
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        const size_t run = harmless((const char *)s);
        snd_buf_putn(j->b, (const char *)s, run);
        s += run;
        if (!*s) break;
        const int n = snd_utf8_sequence((const char *)s);
        if (n == 0)
            snd_buf_put(j->b, "\xEF\xBF\xBD");
        else if (!escaped(j, s, n))
            snd_buf_putn(j->b, (const char *)s, (size_t)n);
        s += n ? n : 1;
    }
    snd_buf_put(j->b, "\"");
}

// The comma, the line break and the key in front of whatever comes next.
static void before(snd_json *j, const char *key) {
    if (!j->first[j->depth]) snd_buf_put(j->b, ",");
    if (j->depth > 0 && !(j->flat && j->first[j->depth])) line(j);
    j->first[j->depth] = false;
    if (!key) return;
    quoted(j, key);
    snd_buf_put(j->b, j->tight ? ":" : ": ");
}

void snd_json_open(snd_json *j, const char *key, char bracket) {
    assert(bracket == '{' || bracket == '[');
    assert(j->depth + 1 < (int)(sizeof j->first / sizeof *j->first));
    before(j, key);
    snd_buf_putn(j->b, &bracket, 1);
    j->first[++j->depth] = true;
}

void snd_json_open_flat(snd_json *j, const char *key, char bracket) {
    snd_json_open(j, key, bracket);
    if (!j->flat) j->flat = j->depth;
}

void snd_json_close(snd_json *j, char bracket) {
    assert((bracket == '}' || bracket == ']') && j->depth > 0);
    const bool empty = j->first[j->depth], was_flat = j->flat > 0;
    if (j->flat == j->depth) j->flat = 0;
    j->depth--;
    if (!empty && !was_flat) line(j);
    snd_buf_putn(j->b, &bracket, 1);
    if (j->depth == 0 && !j->tight) snd_buf_put(j->b, "\n");
}

void snd_json_str(snd_json *j, const char *key, const char *s) {
    before(j, key);
    if (s)
        quoted(j, s);
    else
        snd_buf_put(j->b, "null");
}

static void number(snd_json *j, double v) {
    char text[40];
    if (v == 0) v = 0; // "-0" is an integer to many readers, and comes back without its sign
    if (!isfinite(v))
        snd_buf_put(j->b, "null");
    else if (j->digits == 9)
        snd_buf_put(j->b, snd_format_short(text, v));
    else
        snd_buf_num(j->b, v, j->digits ? j->digits : 17);
}

void snd_json_num(snd_json *j, const char *key, double v) {
    before(j, key);
    number(j, v);
}

void snd_json_int(snd_json *j, const char *key, int64_t v) {
    before(j, key);
    snd_buf_printf(j->b, "%lld", (long long)v);
}

void snd_json_bool(snd_json *j, const char *key, bool v) {
    before(j, key);
    snd_buf_put(j->b, v ? "true" : "false");
}

// Is the text a number as JSON writes it? (No leading zeros, plus sign, bare point.)
static bool is_json_number(const char *s) {
    double v;
    if (!snd_parse_num(s, &v, NULL) || !isfinite(v)) return false;
    if (*s == '-') s++;
    if (*s < '0' || *s > '9' || (*s == '0' && s[1] >= '0' && s[1] <= '9')) return false;
    const char *point = strchr(s, '.');
    return !point || (point[1] >= '0' && point[1] <= '9');
}

void snd_json_setting(snd_json *j, const char *key, const char *text, bool bare) {
    double v;
    const bool word = bare && (strcmp(text, "true") == 0 || strcmp(text, "false") == 0 || strcmp(text, "null") == 0);
    if (word || (bare && is_json_number(text))) {
        before(j, key);
        snd_buf_put(j->b, text);
    } else if (bare && snd_parse_num(text, &v, NULL)) {
        snd_json_num(j, key, v);
    } else {
        snd_json_str(j, key, text);
    }
}

void snd_json_nums(snd_json *j, const char *key, const double *v, int n) {
    if (!v) return;
    snd_json_open_flat(j, key, '[');
    for (int i = 0; i < n; i++) snd_json_num(j, NULL, v[i]);
    snd_json_close(j, ']');
}
