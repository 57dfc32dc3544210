// Notes, the count of numbers that were not finite, and how the page came about.
#include "report/inner.h"

static void put_note(snd_page *p, const char *s) {
    snd_buf_put(p->b, "<li>");
    snd_html_prose(p->b, s);
    snd_buf_put(p->b, "</li>\n");
}

void snd_section_notes(snd_page *p, const char *heading) {
    snd_buf_printf(p->b, "<section id=\"notes\" aria-labelledby=\"h-notes\"><h2 id=\"h-notes\">%s</h2>\n<ul>\n",
                   heading);
    for (int r = 0; r < p->n_records; r++) {
        const snd_record *rec = p->records[r];
        for (int i = 0; i < rec->n_notes; i++) put_note(p, rec->notes[i]);
        const int64_t lost = snd_record_nonfinite(rec);
        if (lost)
            snd_buf_printf(p->b, "<li>%lld measured numbers were not finite; they are left out of every curve.</li>\n",
                           (long long)lost);
        if (!rec->command) continue;
        snd_buf_put(p->b, "<li>Made by <code>");
        snd_html_text(p->b, rec->command);
        snd_buf_put(p->b, "</code></li>\n");
    }
    snd_buf_put(
        p->b,
        "<li>Bands hold the mean over the seeds shown with the stated probability if the theory is right: at 95&nbsp;% "
        "one number in twenty lies outside by chance. z counts standard deviations from the prediction.</li>\n"
        "</ul>\n</section>\n");
}
