// Curves against depth, for results that hold one wiring at several depths. report.js fills the frame.
#include "report/inner.h"

#include <string.h>

// Two runs of one label at different depths?
static bool is_sweep(const snd_record *r) {
    for (int i = 0; i < r->n_runs; i++)
        for (int k = 0; k < i; k++)
            if (strcmp(r->runs[i]->label, r->runs[k]->label) == 0 && r->runs[i]->depth != r->runs[k]->depth &&
                r->runs[i]->n_values && r->runs[k]->n_values)
                return true;
    return false;
}

void snd_section_depths(snd_page *p, const char *heading) {
    bool any = false;
    for (int r = 0; r < p->n_records; r++) any |= is_sweep(p->records[r]);
    if (!any) return;
    snd_buf_printf(p->b, "<section id=\"depths\" aria-labelledby=\"h-depths\"><h2 id=\"h-depths\">%s</h2>\n", heading);
    snd_buf_put(p->b,
                "<p class=\"key\" data-key></p>\n<div class=\"figures\" id=\"depth-figures\"></div>\n</section>\n");
}
