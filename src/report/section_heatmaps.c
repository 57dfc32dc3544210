// Heat maps, those of one title side by side under it; report.js colours them. What is compared is compared on one scale.
#include "report/inner.h"

#include <string.h>

// Number of the heat map in the page, counted over all records.
static int number_of(const snd_page *p, int record, int map) {
    for (int r = 0; r < record; r++) map += p->records[r]->n_heatmaps;
    return map;
}

static bool title_is_new(const snd_page *p, int record, int map) {
    const char *title = p->records[record]->heatmaps[map]->title;
    for (int r = 0; r <= record; r++)
        for (int i = 0; i < (r < record ? p->records[r]->n_heatmaps : map); i++)
            if (!strcmp(p->records[r]->heatmaps[i]->title, title)) return false;
    return true;
}

static void put_figure(snd_page *p, int record, int map) {
    const snd_heatmap *m = p->records[record]->heatmaps[map];
    snd_buf label = {0};
    snd_page_label(p, record, m->label, &label);
    snd_buf_printf(p->b, "<figure class=\"panel\" data-heatmap=\"%d\"><h4>", number_of(p, record, map));
    snd_html_text(p->b, label.s ? label.s : "");
    snd_buf_put(p->b, "</h4>\n<div class=\"plot\"></div></figure>\n");
    p->b->failed |= label.failed;
    snd_buf_free(&label);
}

static void put_group(snd_page *p, const snd_heatmap *first) {
    snd_buf_put(p->b, "<h3>");
    snd_html_text(p->b, first->title);
    snd_buf_put(p->b, "</h3>\n<div class=\"figures small\">\n");
    for (int r = 0; r < p->n_records; r++)
        for (int i = 0; i < p->records[r]->n_heatmaps; i++)
            if (!strcmp(p->records[r]->heatmaps[i]->title, first->title)) put_figure(p, r, i);
    snd_buf_put(p->b, "</div>\n");
}

void snd_section_heatmaps(snd_page *p, const char *heading) {
    int n = 0;
    for (int r = 0; r < p->n_records; r++) n += p->records[r]->n_heatmaps;
    if (n == 0) return;
    snd_buf_printf(p->b, "<section id=\"heatmaps\" aria-labelledby=\"h-heatmaps\"><h2 id=\"h-heatmaps\">%s</h2>\n",
                   heading);
    snd_buf_put(p->b, "<p class=\"key\">Point at a map, or focus it and use the arrow keys, to read values.</p>\n");
    for (int r = 0; r < p->n_records; r++)
        for (int i = 0; i < p->records[r]->n_heatmaps; i++)
            if (title_is_new(p, r, i)) put_group(p, p->records[r]->heatmaps[i]);
    snd_buf_put(p->b, "</section>\n");
}
