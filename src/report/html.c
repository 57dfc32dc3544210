// Text into HTML. Invariant: whatever a label, formula or note holds, it cannot end an element, an attribute or the page.
#include "report/inner.h"

#include <math.h>
#include <string.h>

void snd_html_text(snd_buf *b, const char *s) {
    for (; *s; s++) {
        switch (*s) {
        case '&': snd_buf_put(b, "&amp;"); break;
        case '<': snd_buf_put(b, "&lt;"); break;
        case '>': snd_buf_put(b, "&gt;"); break;
        case '"': snd_buf_put(b, "&quot;"); break;
        default: snd_buf_putn(b, s, 1);
        }
    }
}

void snd_html_printf(snd_buf *b, const char *fmt, ...) {
    char text[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    snd_html_text(b, text);
}

// 1.6e+116 as 1.6 x 10^116 with a real superscript.
void snd_html_number(snd_buf *b, double v, bool log, int digits) {
    char s[40];
    if (log)
        snd_pretty_log10(s, v, digits);
    else
        snd_pretty(s, v, digits);
    char *e = isfinite(v) ? strchr(s, 'e') : NULL;
    if (!e) {
        snd_html_text(b, s);
        return;
    }
    *e++ = 0;
    snd_buf_printf(b, "%s&#8239;&times;&#8239;10<sup>%s</sup>", s, *e == '+' ? e + 1 : e);
}

void snd_html_prose(snd_buf *b, const char *s) {
    bool code = false;
    for (; *s; s++) {
        const bool tick = *s == '`' && (code || strchr(s + 1, '`'));
        if (tick) {
            snd_buf_put(b, code ? "</code>" : "<code>");
            code = !code;
            continue;
        }
        const char one[2] = {*s, 0};
        snd_html_text(b, one);
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

void snd_page_label(const snd_page *p, int record, const char *label, snd_buf *out) {
    snd_buf_put(out, label);
    for (int i = 0; i < record; i++) {
        if (!has_label(p->records[i], label)) continue;
        snd_buf_printf(out, " (%d)", record + 1);
        return;
    }
}
