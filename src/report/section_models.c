// The wirings and their resolved settings: the first thing every result shows, since most real bugs are one ignored flag.
#include "report/inner.h"

#include <string.h>

static const char *const facts[] = {"family", "arch", "layers", "width", "norm",
                                    "eps",    "init", "block",  "heads", "vocab"};

static const char *setting(const snd_run *u, const char *key) {
    for (int i = 0; i < u->n_settings; i++)
        if (strcmp(u->settings[i].key, key) == 0) return u->settings[i].text;
    return NULL;
}

static void fact(snd_buf *b, const char *key, const char *text) {
    snd_buf_put(b, "<div><dt>");
    snd_html_text(b, key);
    snd_buf_put(b, "</dt><dd>");
    snd_html_text(b, text);
    snd_buf_put(b, "</dd></div>");
}

// Depths of all runs of this label: "1, 2, 4, ... 256".
static void depths(snd_buf *b, const snd_record *r, const char *label) {
    int n = 0;
    for (int i = 0; i < r->n_runs; i++) {
        if (strcmp(r->runs[i]->label, label) != 0) continue;
        snd_buf_printf(b, "%s%lld", n++ ? ", " : "", (long long)r->runs[i]->depth);
    }
}

static void put_facts(snd_buf *b, const snd_record *r, const snd_run *u) {
    char text[64];
    snd_buf_put(b, "<dl class=\"facts\">");
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
        const char *s = setting(u, facts[i]);
        if (!s || !*s) continue;
        snd_buf all = {0};
        if (strcmp(facts[i], "layers") == 0) depths(&all, r, u->label);
        fact(b, facts[i], all.s ? all.s : s);
        snd_buf_free(&all);
    }
    snprintf(text, sizeof text, "%llu", (unsigned long long)u->seed);
    fact(b, "seed", text);
    if (u->seeds > 1) {
        snprintf(text, sizeof text, "%d", u->seeds);
        fact(b, "seeds", text);
    }
    if (u->dtype) fact(b, "dtype", u->dtype);
    if (u->input) fact(b, "input", u->input);
    snd_buf_put(b, "</dl>\n");
}

static void put_settings(snd_buf *b, const snd_run *u) {
    if (!u->n_settings) return;
    snd_buf_put(b, "<details><summary>All settings</summary><table class=\"settings\"><tbody>\n");
    for (int i = 0; i < u->n_settings; i++) {
        snd_buf_put(b, "<tr><th scope=\"row\">");
        snd_html_text(b, u->settings[i].key);
        snd_buf_put(b, "</th><td>");
        snd_html_text(b, u->settings[i].text);
        snd_buf_put(b, "</td></tr>\n");
    }
    snd_buf_put(b, "</tbody></table></details>\n");
}

static void put_model(snd_page *p, int record, const snd_run *u) {
    snd_buf_put(p->b, "<article class=\"model\"><h3>");
    snd_buf label = {0};
    snd_page_label(p, record, u->label, &label);
    if (label.s) snd_html_text(p->b, label.s);
    snd_buf_free(&label);
    snd_buf_put(p->b, "</h3>\n<pre class=\"formula\"><code>");
    snd_html_text(p->b, u->formula);
    snd_buf_put(p->b, "</code></pre>\n");
    put_facts(p->b, p->records[record], u);
    put_settings(p->b, u);
    snd_buf_put(p->b, "</article>\n");
}

static bool seen(const snd_record *r, int i) {
    for (int k = 0; k < i; k++)
        if (strcmp(r->runs[k]->label, r->runs[i]->label) == 0) return true;
    return false;
}

void snd_section_models(snd_page *p, const char *heading) {
    int n = 0;
    for (int r = 0; r < p->n_records; r++) n += p->records[r]->n_runs;
    if (n == 0) return;
    snd_buf_printf(
        p->b,
        "<section id=\"models\" aria-labelledby=\"h-models\"><h2 id=\"h-models\">%s</h2>\n<div class=\"cards\">\n",
        heading);
    for (int r = 0; r < p->n_records; r++)
        for (int i = 0; i < p->records[r]->n_runs; i++)
            if (!seen(p->records[r], i)) put_model(p, r, p->records[r]->runs[i]);
    snd_buf_put(p->b, "</div>\n</section>\n");
}
