// One figure per panel. The curves are drawn by report.js into .chart from the embedded data; heading, caption and the
// stated values stand in the page itself, so that they are there without a script, for search and for print.
#include "report/inner.h"

#include <string.h>

// "residual at depth 256: lecture: about 1e116", or, when the text has no number of its own, "1e116 (lecture)".
static void put_ref(snd_page *p, const snd_panel *panel, const snd_series *s, const snd_ref *f) {
    char x[40];
    snd_html_printf(p->b, "%s at %s %s: ", s->label, panel->x_name, snd_format_num(x, f->x, 4));
    if (strpbrk(f->text, "0123456789")) {
        snd_html_prose(p->b, f->text);
        return;
    }
    if (panel->log)
        snd_html_number(p->b, f->y, true, 2);
    else
        snd_html_text(p->b, snd_format_num(x, f->y, 6));
    if (*f->text) snd_html_printf(p->b, " (%s)", f->text);
}

static void put_refs(snd_page *p, const snd_panel *panel) {
    int n = 0;
    for (int i = 0; i < panel->n_series; i++)
        for (int k = 0; k < panel->series[i]->n_refs; k++) {
            snd_buf_put(p->b, n++ ? "; " : "<p class=\"refs\">Stated: ");
            put_ref(p, panel, panel->series[i], &panel->series[i]->refs[k]);
        }
    if (n) snd_buf_put(p->b, ".</p>");
}

static void put_panel(snd_page *p, const snd_panel *panel, int number) {
    snd_buf_printf(p->b, "<figure class=\"panel\" data-panel=\"%d\"><h3>", number);
    snd_html_text(p->b, panel->title);
    snd_buf_put(p->b, "</h3>\n<div class=\"plot\"></div>\n<figcaption>");
    if (panel->caption) {
        snd_buf_put(p->b, "<p>");
        snd_html_prose(p->b, panel->caption);
        snd_buf_put(p->b, "</p>");
    }
    put_refs(p, panel);
    snd_buf_put(p->b, "</figcaption></figure>\n");
}

void snd_section_panels(snd_page *p, const char *heading) {
    int n = 0;
    for (int r = 0; r < p->n_records; r++) n += p->records[r]->n_panels;
    if (n == 0) return;
    snd_buf_printf(p->b, "<section id=\"panels\" aria-labelledby=\"h-panels\"><h2 id=\"h-panels\">%s</h2>\n", heading);
    snd_buf_put(p->b, "<p class=\"key\" data-key></p>\n<div class=\"figures\">\n");
    n = 0;
    for (int r = 0; r < p->n_records; r++)
        for (int i = 0; i < p->records[r]->n_panels; i++) put_panel(p, p->records[r]->panels[i], n++);
    snd_buf_put(p->b, "</div>\n</section>\n");
}
