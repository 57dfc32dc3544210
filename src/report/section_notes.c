// What the record says in words stands first, without a heading; the count of numbers that were not finite, how to read
// the page and how it came about stand last.
#include "report/inner.h"

#include <math.h>

void snd_section_lede(snd_page *p, const char *heading) {
    (void)heading;
    for (int r = 0; r < p->n_records; r++)
        for (int i = 0; i < p->records[r]->n_notes; i++) {
            snd_buf_put(p->b, "<p class=\"lede\">");
            snd_html_prose(p->b, p->records[r]->notes[i]);
            snd_buf_put(p->b, "</p>\n");
        }
}

static bool has_theory(const snd_run *u) {
    for (int i = 0; i < u->n_values; i++)
        for (int m = 0; m < u->values[i]->n_metrics; m++) {
            const snd_metric *x = u->values[i]->metrics[m];
            if (!isnan(x->predicted) || !isnan(x->lo)) return true;
        }
    return false;
}

// The demo's panels are theory over measurement; a training run and a trained model have none.
static bool shows_theory(const snd_page *p) {
    for (int r = 0; r < p->n_records; r++) {
        const snd_record *rec = p->records[r];
        if (rec->kind == SND_REC_DEMO) return true;
        for (int i = 0; i < rec->n_runs; i++)
            if (has_theory(rec->runs[i])) return true;
    }
    return false;
}

void snd_section_notes(snd_page *p, const char *heading) {
    snd_buf_printf(p->b, "<section id=\"notes\" aria-labelledby=\"h-notes\"><h2 id=\"h-notes\">%s</h2>\n<ul>\n",
                   heading);
    for (int r = 0; r < p->n_records; r++) {
        const snd_record *rec = p->records[r];
        const int64_t lost = snd_record_nonfinite(rec);
        if (lost)
            snd_buf_printf(p->b, "<li>%lld measured numbers were not finite; they are left out of every curve.</li>\n",
                           (long long)lost);
        if (!rec->command) continue;
        snd_buf_put(p->b, "<li>Made by <code>");
        snd_html_text(p->b, rec->command);
        snd_buf_put(p->b, "</code></li>\n");
    }
    if (shows_theory(p))
        snd_buf_put(
            p->b,
            "<li>Bands hold the mean over the seeds shown with the stated probability if the theory is right: at "
            "95&nbsp;% "
            "one number in twenty lies outside by chance. z counts standard deviations from the band's middle.</li>\n"
            "<li>Theory is for infinite width; a band is for the width, rows and seeds of the run, so in deep, narrow "
            "nets "
            "what is typical can lie beside the theory's line.</li>\n");
    snd_buf_put(p->b, "</ul>\n</section>\n");
}
