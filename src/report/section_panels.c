// One figure per panel. The curves are drawn by report.js into .chart from the embedded data; heading, caption and the
// stated values stand in the page itself, so that they are there without a script, for search and for print.
#include "report/inner.h"

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

static void put_panel(snd_page *p, const snd_panel *panel, int number) {
    snd_buf_printf(p->b, "<figure class=\"panel\" data-panel=\"%d\"><h3>", number);
    snd_html_text(p->b, panel->title);
    snd_buf_put(p->b, "</h3>\n<div class=\"plot\"></div>\n<figcaption>");
    if (panel->caption) {
        snd_buf_put(p->b, "<p>");
        snd_html_prose(p->b, panel->caption);
        snd_buf_put(p->b, "</p>");
    }
    put_stated(p, panel);
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
