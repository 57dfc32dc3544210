// The per-layer part: plots with a choice of metric and value each, and the table of every number. Both are filled by
// report.js; here is only their frame.
#include "report/inner.h"

static const char frame[] =
    "<p class=\"key\" data-key></p>\n<div class=\"controls\" id=\"layer-controls\"></div>\n"
    "<div class=\"figures\" id=\"layer-figures\"></div>\n"
    "<h3>Every number</h3>\n<div class=\"controls\" id=\"table-controls\"></div>\n"
    "<p id=\"table-count\" class=\"muted\" aria-live=\"polite\"></p>\n"
    "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Table of values\" id=\"layer-table\"></div>\n"
    "<noscript><p>The curves and this table need JavaScript; result.csv holds the same numbers.</p></noscript>\n"
    "</section>\n";

void snd_section_layers(snd_page *p, const char *heading) {
    int n = 0;
    for (int r = 0; r < p->n_records; r++)
        for (int i = 0; i < p->records[r]->n_runs; i++) n += p->records[r]->runs[i]->n_values;
    if (n == 0) return;
    snd_buf_printf(p->b, "<section id=\"layers\" aria-labelledby=\"h-layers\"><h2 id=\"h-layers\">%s</h2>\n", heading);
    snd_buf_put(p->b, frame);
}
