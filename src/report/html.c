// Text into HTML. Invariant: whatever a label, formula or note holds, it cannot end an element, an attribute or the page.
#include "report/inner.h"

#include <math.h>
#include <string.h>

// One character at s, escaped; returns its length in bytes. Bytes that are not UTF-8 become U+FFFD.
static int put_char(snd_buf *b, const char *s) {
    const int n = snd_utf8_sequence(s);
    switch (*s) {
    case '&': snd_buf_put(b, "&amp;"); break;
    case '<': snd_buf_put(b, "&lt;"); break;
    case '>': snd_buf_put(b, "&gt;"); break;
    case '"': snd_buf_put(b, "&quot;"); break;
    default:
        if (n > 0)
            snd_buf_putn(b, s, (size_t)n);
        else
            snd_buf_put(b, "\xEF\xBF\xBD");
    }
    return n > 0 ? n : 1;
}

void snd_html_text(snd_buf *b, const char *s) {
    while (*s) s += put_char(b, s);
}

void snd_html_printf(snd_buf *b, const char *fmt, ...) {
    char text[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    snd_html_text(b, text);
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

// 1.6e+116 as 1.6 x 10^116 with a real superscript.
static void put_number(snd_buf *b, char *s) {
    char *e = is_digit(s[*s == '-']) ? strchr(s, 'e') : NULL;
    if (!e) {
        snd_html_text(b, s);
        return;
    }
    *e++ = 0;
    const bool minus = *e == '-';
    e += strspn(e, "+-0");
    snd_buf_printf(b, "%s&#8239;&times;&#8239;10<sup>%s%s</sup>", s, minus ? "-" : "", e);
}

void snd_html_number(snd_buf *b, double v, bool log, int digits) {
    char s[40];
    put_number(b, log ? snd_pretty_log10(s, v, digits) : snd_pretty(s, v, digits));
}

void snd_html_limit(snd_buf *b, double v, bool log) {
    char s[40];
    put_number(b, snd_pretty_limit(s, v, log));
}

// "10^116", "2^l", "2^(L-l)": the exponent as a superscript; returns what follows it, or s when it is none of these.
static const char *put_power(snd_buf *b, const char *s) {
    const char *from = s + 1, *end = from;
    if (*from == '(') {
        from++;
        end = from + strcspn(from, "()");
        if (*end != ')' || end - from > 24) return s;
    } else {
        if (*end == '-') end++;
        while (is_digit(*end) || (*end >= 'a' && *end <= 'z') || (*end >= 'A' && *end <= 'Z')) end++;
        if (is_digit(end[-1]) && *end == '.' && is_digit(end[1])) end += 1 + strspn(end + 1, "0123456789");
        if (end - from > 6 || end[-1] == '^' || end[-1] == '-') return s;
    }
    snd_buf_put(b, "<sup>");
    for (const char *c = from; c < end;) c += put_char(b, c);
    snd_buf_put(b, "</sup>");
    return from[-1] == '(' ? end + 1 : end;
}

// "1e116" as 10^116, "4.4e+09" as 4.4 x 10^9: s stands at the number's first digit. Returns what follows, or s when it is
// no such number.
static const char *put_scientific(snd_buf *b, const char *s) {
    const size_t digits = strspn(s, "0123456789.");
    const char *e = s + digits, *from = e + 1;
    if (digits == 0 || *e != 'e' || !is_digit(e[-1])) return s;
    const bool minus = *from == '-';
    from += *from == '-' || *from == '+';
    const size_t n = strspn(from, "0123456789");
    if (n == 0 || n > 8 || (from[n] >= 'a' && from[n] <= 'z') || (from[n] >= 'A' && from[n] <= 'Z')) return s;
    const char *end = from + n;
    while (*from == '0' && from + 1 < end) from++;
    if (digits == 1 && *s == '1')
        snd_buf_put(b, "10");
    else
        snd_buf_printf(b, "%.*s&#8239;&times;&#8239;10", (int)digits, s);
    snd_buf_printf(b, "<sup>%s%.*s</sup>", minus ? "-" : "", (int)(end - from), from);
    return end;
}

static bool begins_number(const char *text, const char *s) {
    return is_digit(*s) && (s == text || !(is_digit(s[-1]) || s[-1] == '.' || (s[-1] >= 'a' && s[-1] <= 'z') ||
                                           (s[-1] >= 'A' && s[-1] <= 'Z') || s[-1] == '_'));
}

void snd_html_prose(snd_buf *b, const char *text) {
    bool code = false;
    for (const char *s = text; *s;) {
        if (*s == '`' && (code || strchr(s + 1, '`'))) {
            snd_buf_put(b, code ? "</code>" : "<code>");
            code = !code;
            s++;
            continue;
        }
        const bool power = !code && *s == '^' && s > text && (is_digit(s[-1]) || s[-1] == ')');
        const char *after = power ? put_power(b, s) : !code && begins_number(text, s) ? put_scientific(b, s) : s;
        s = after > s ? after : s + put_char(b, s);
    }
}

static bool has_label(const snd_record *r, const char *label) {
    for (int i = 0; i < r->n_runs; i++)
        if (strcmp(r->runs[i]->label, label) == 0) return true;
    for (int i = 0; i < r->n_panels; i++)
        for (int k = 0; k < r->panels[i]->n_series; k++)
            if (strcmp(r->panels[i]->series[k]->label, label) == 0) return true;
    return false;
}

// "runs/a" and "runs/a/result.json" as "a": n bytes at the result. n = 0: no name.
static const char *last_part(const char *place, int *n) {
    static const char file[] = "/result.json";
    size_t len = place ? strlen(place) : 0;
    if (len > sizeof file - 1 && !strcmp(place + len - (sizeof file - 1), file)) len -= sizeof file - 1;
    while (len > 0 && place[len - 1] == '/') len--;
    size_t from = len;
    while (from > 0 && place[from - 1] != '/') from--;
    *n = (int)(len - from);
    return place ? place + from : "";
}

static bool same_part(const snd_record *a, const snd_record *b) {
    int n, m;
    const char *x = last_part(a->place, &n), *y = last_part(b->place, &m);
    return n == m && !strncmp(x, y, (size_t)n);
}

void snd_page_label(const snd_page *p, int record, const char *label, snd_buf *out) {
    bool earlier = false, told = true;
    int others = 0, n;
    for (int i = 0; i < p->n_records; i++) {
        if (i == record || !has_label(p->records[i], label)) continue;
        others++;
        earlier |= i < record;
        told &= !same_part(p->records[i], p->records[record]);
    }
    const char *part = last_part(p->records[record]->place, &n);
    snd_buf_put(out, label);
    if (others && told && n > 0)
        snd_buf_printf(out, " (%.*s)", n, part);
    else if (earlier)
        snd_buf_printf(out, " (%d)", record + 1);
}

bool snd_page_panel_same(const snd_panel *a, const snd_panel *b) {
    return !strcmp(a->title, b->title) && !strcmp(a->x_name, b->x_name) && !strcmp(a->y_name, b->y_name) &&
           a->log == b->log && a->xlog == b->xlog;
}

bool snd_page_panel_first(const snd_page *p, int record, int panel) {
    const snd_panel *mine = p->records[record]->panels[panel];
    for (int r = 0; r <= record; r++)
        for (int i = 0; i < (r < record ? p->records[r]->n_panels : panel); i++)
            if (snd_page_panel_same(p->records[r]->panels[i], mine)) return false;
    return true;
}
