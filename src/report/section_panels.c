// One figure per panel. The curves are drawn by report.js into .chart from the embedded data; heading, caption and the
// stated values stand in the page itself, so that they are there without a script, for search and for print. Records that
// hold the same panel share its figure; their captions stand there once where they are equal.
#include "report/inner.h"

#include <string.h>

static void put_stated(snd_page *p, const snd_panel *panel) {
    snd_buf text = {0};
    snd_panel_stated(panel, &text);
    p->b->failed |= text.failed;
    if (text.len) {
        snd_buf_put(p->b, "<p class=\"refs\">&#9675; ");
        snd_html_prose(p->b, text.s);
        snd_buf_put(p->b, ".</p>");
    }
    snd_buf_free(&text);
}

static bool is_said(const snd_page *p, const snd_panel *panel, int before) {
    for (int r = 0; r < before; r++)
        for (int i = 0; i < p->records[r]->n_panels; i++) {
            const snd_panel *other = p->records[r]->panels[i];
            if (snd_page_panel_same(other, panel) && other->caption && !strcmp(other->caption, panel->caption))
                return true;
        }
    return false;
}

static void put_words(snd_page *p, const snd_panel *panel, int record) {
    if (panel->caption && !is_said(p, panel, record)) {
        snd_buf_put(p->b, "<p>");
        snd_html_prose(p->b, panel->caption);
        snd_buf_put(p->b, "</p>");
    }
    put_stated(p, panel);
}

static void put_panel(snd_page *p, const snd_panel *panel, int number) {
    snd_buf_printf(p->b, "<figure class=\"panel\" data-panel=\"%d\"><h3>", number);
    snd_html_text(p->b, panel->title);
    snd_buf_put(p->b, "</h3>\n<div class=\"plot\"></div>\n<figcaption>");
    for (int r = 0; r < p->n_records; r++)
        for (int i = 0; i < p->records[r]->n_panels; i++)
            if (snd_page_panel_same(p->records[r]->panels[i], panel)) put_words(p, p->records[r]->panels[i], r);
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
        for (int i = 0; i < p->records[r]->n_panels; i++)
            if (snd_page_panel_first(p, r, i)) put_panel(p, p->records[r]->panels[i], n++);
    snd_buf_put(p->b, "</div>\n</section>\n");
}
