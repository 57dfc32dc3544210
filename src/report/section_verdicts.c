// Verdicts, worst first: what was found, where first, the number beside its limit, why it matters and what to try.
#include "report/inner.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

// "stream-overflow in residual at layers.83.x: 3.98e38 (limit 3.39e38)"
static void put_what(snd_page *p, int record, const snd_verdict *v) {
    snd_buf *b = p->b;
    if (strcmp(v->rule, snd_level_name(v->level)) != 0) {
        snd_buf_put(b, "<strong>");
        snd_html_text(b, v->rule);
        snd_buf_put(b, "</strong>");
    }
    if (v->run) {
        snd_buf label = {0};
        snd_page_label(p, record, v->run, &label);
        snd_buf_put(b, " in <em>");
        snd_html_text(b, label.s ? label.s : "");
        snd_buf_put(b, "</em>");
        snd_buf_free(&label);
    }
    if (*v->where) {
        snd_buf_put(b, " at <code>");
        snd_html_text(b, v->where);
        snd_buf_put(b, "</code>");
    }
    if (isnan(v->value)) return;
    snd_buf_put(b, ": <span class=\"num\">");
    snd_html_number(b, v->value, v->log, 3);
    snd_buf_put(b, "</span>");
    if (isnan(v->threshold)) return;
    snd_buf_put(b, " <span class=\"muted\">(limit ");
    snd_html_limit(b, v->threshold, v->log);
    snd_buf_put(b, ")</span>");
}

// A paragraph that begins with a capital and ends with a full stop, whatever the rule wrote.
static void put_sentence(snd_buf *b, const char *lead, const char *text) {
    if (!*text) return;
    const bool lower = !*lead && islower((unsigned char)text[0]) && (isalpha((unsigned char)text[1]) || text[1] == ' ');
    snd_buf_put(b, "<p>");
    snd_buf_put(b, lead);
    if (lower) {
        const char first[2] = {(char)toupper((unsigned char)text[0]), 0};
        snd_html_text(b, first);
    }
    snd_html_prose(b, text + lower);
    snd_buf_put(b, strchr(".!?", text[strlen(text) - 1]) ? "</p>" : ".</p>");
}

static void put_verdict(snd_page *p, int record, const snd_verdict *v) {
    const char *level = snd_level_name(v->level);
    snd_buf_printf(p->b, "<li class=\"verdict %s\"><p class=\"what\"><span class=\"badge %s\">%s</span> ", level, level,
                   level);
    put_what(p, record, v);
    snd_buf_put(p->b, "</p>");
    put_sentence(p->b, "", v->why);
    put_sentence(p->b, "<span class=\"try\">Try</span> ", v->remedy);
    snd_buf_put(p->b, "</li>\n");
}

// A verdict that only says that nothing was found.
static bool is_clean(const snd_verdict *v) {
    return v->level == SND_LEVEL_OK && strcmp(v->rule, "ok") == 0 && v->run;
}

// Several clean models in one entry.
static void put_clean(snd_page *p) {
    int n = 0;
    snd_buf_put(p->b, "<li class=\"verdict ok\"><p class=\"what\"><span class=\"badge ok\">ok</span> ");
    for (int r = 0; r < p->n_records; r++)
        for (int i = 0; i < p->records[r]->n_verdicts; i++) {
            const snd_verdict *v = p->records[r]->verdicts[i];
            if (!is_clean(v)) continue;
            snd_buf label = {0};
            snd_page_label(p, r, v->run, &label);
            snd_buf_put(p->b, n++ ? ", <em>" : "<em>");
            snd_html_text(p->b, label.s ? label.s : "");
            snd_buf_put(p->b, "</em>");
            snd_buf_free(&label);
        }
    snd_buf_put(p->b, "</p><p>Nothing to report.</p></li>\n");
}

void snd_section_verdicts(snd_page *p, const char *heading) {
    int n = 0, clean = 0;
    for (int r = 0; r < p->n_records; r++) {
        n += p->records[r]->n_verdicts;
        for (int i = 0; i < p->records[r]->n_verdicts; i++) clean += is_clean(p->records[r]->verdicts[i]);
    }
    if (n == 0) return;
    snd_buf_printf(p->b,
                   "<section id=\"verdicts\" aria-labelledby=\"h-verdicts\"><h2 id=\"h-verdicts\">%s</h2>\n<ul "
                   "class=\"verdicts\">\n",
                   heading);
    for (int level = SND_LEVEL_ERROR; level > SND_LEVEL_INVALID; level--)
        for (int r = 0; r < p->n_records; r++)
            for (int i = 0; i < p->records[r]->n_verdicts; i++) {
                const snd_verdict *v = p->records[r]->verdicts[i];
                if (v->level == (snd_level)level && !(clean > 1 && is_clean(v))) put_verdict(p, r, v);
            }
    if (clean > 1) put_clean(p);
    snd_buf_put(p->b, "</ul>\n</section>\n");
}
