// The wirings and their resolved settings: the first thing every result shows, since most real bugs are one ignored flag.
// What all models share is said once; a card holds what is its own.
#include "report/inner.h"

#include <string.h>

static const char *const facts[] = {"family", "arch",  "layers", "width", "norm",  "eps",   "init",
                                    "block",  "heads", "vocab",  "seed",  "seeds", "dtype", "input"};
enum { N_FACTS = (int)(sizeof facts / sizeof *facts) };

// Depths of all runs of this label: "1, 2, 4, ... 256".
static void put_depths(snd_buf *b, const snd_run *u) {
    const snd_record *r = u->rec;
    for (int i = 0; i < r->n_runs; i++)
        if (strcmp(r->runs[i]->label, u->label) == 0)
            snd_buf_printf(b, "%s%lld", b->len ? ", " : "", (long long)r->runs[i]->depth);
}

// The fact as text; nothing when the run has none.
static void fact_text(snd_buf *b, const snd_run *u, const char *key) {
    if (strcmp(key, "seed") == 0)
        snd_buf_printf(b, "%llu", (unsigned long long)u->seed);
    else if (strcmp(key, "seeds") == 0 && u->seeds > 1)
        snd_buf_printf(b, "%d", u->seeds);
    else if (strcmp(key, "dtype") == 0)
        snd_buf_put(b, u->dtype ? u->dtype : "");
    else if (strcmp(key, "input") == 0)
        snd_buf_put(b, u->input ? u->input : "");
    else if (strcmp(key, "layers") == 0 && snd_run_setting_of(u, key))
        put_depths(b, u);
    else
        snd_buf_put(b, snd_run_setting_used(u, key) ? snd_run_setting_used(u, key) : "");
}

static bool seen(const snd_record *r, int i) {
    for (int k = 0; k < i; k++)
        if (strcmp(r->runs[k]->label, r->runs[i]->label) == 0) return true;
    return false;
}

// Do all models of the page agree with this one about the fact?
static bool is_common(const snd_page *p, const snd_run *model, const char *key) {
    snd_buf first = {0};
    fact_text(&first, model, key);
    bool same = true;
    for (int r = 0; r < p->n_records; r++)
        for (int i = 0; same && i < p->records[r]->n_runs; i++) {
            snd_buf b = {0};
            fact_text(&b, p->records[r]->runs[i], key);
            same = strcmp(b.s ? b.s : "", first.s ? first.s : "") == 0;
            snd_buf_free(&b);
        }
    snd_buf_free(&first);
    return same;
}

static void put_facts(snd_buf *b, const snd_run *u, const bool *wanted) {
    snd_buf_put(b, "<dl class=\"facts\">");
    for (int i = 0; i < N_FACTS; i++) {
        snd_buf text = {0};
        if (wanted[i]) fact_text(&text, u, facts[i]);
        if (text.len) {
            snd_buf_printf(b, "<div><dt>%s</dt><dd>", facts[i]);
            snd_html_text(b, text.s);
            snd_buf_put(b, "</dd></div>");
        }
        snd_buf_free(&text);
    }
    snd_buf_put(b, "</dl>\n");
}

static void put_settings(snd_buf *b, const snd_run *u, bool brief) {
    if (!u->n_settings) return;
    snd_buf_printf(b, "<details><summary>%s</summary><table class=\"settings\"><tbody>\n",
                   brief ? "settings" : "All settings");
    for (int i = 0; i < u->n_settings; i++) {
        snd_buf_put(b, "<tr><th scope=\"row\">");
        snd_html_text(b, u->settings[i].key);
        snd_buf_put(b, "</th><td>");
        snd_html_text(b, u->settings[i].text);
        snd_buf_put(b, "</td></tr>\n");
    }
    snd_buf_put(b, "</tbody></table></details>\n");
}

static void put_model(snd_page *p, int record, const snd_run *u, const bool *own, bool brief) {
    snd_buf_put(p->b, "<article class=\"model\"><h3>");
    snd_buf label = {0};
    snd_page_label(p, record, u->label, &label);
    if (label.s) snd_html_text(p->b, label.s);
    snd_buf_free(&label);
    snd_buf_put(p->b, "</h3>\n<pre class=\"formula\"><code>");
    snd_html_text(p->b, u->formula);
    snd_buf_put(p->b, "</code></pre>\n");
    put_facts(p->b, u, own);
    put_settings(p->b, u, brief);
    snd_buf_put(p->b, "</article>\n");
}

static const snd_run *first_run(const snd_page *p, int *n_models) {
    const snd_run *first = NULL;
    *n_models = 0;
    for (int r = 0; r < p->n_records; r++)
        for (int i = 0; i < p->records[r]->n_runs; i++) {
            if (!first) first = p->records[r]->runs[i];
            *n_models += !seen(p->records[r], i);
        }
    return first;
}

void snd_section_models(snd_page *p, const char *heading) {
    int n;
    const snd_run *first = first_run(p, &n);
    if (!first) return;
    snd_buf_printf(p->b, "<section id=\"models\" aria-labelledby=\"h-models\"><h2 id=\"h-models\">%s</h2>\n", heading);
    bool common[N_FACTS], own[N_FACTS];
    for (int i = 0; i < N_FACTS; i++) {
        common[i] = n > 1 && is_common(p, first, facts[i]);
        own[i] = !common[i];
    }
    if (n > 1) {
        snd_buf_put(p->b, "<div class=\"common\"><span class=\"muted\">All with</span> ");
        put_facts(p->b, first, common);
        snd_buf_put(p->b, "</div>\n");
    }
    const bool many = n > 3; // a line each
    snd_buf_printf(p->b, "<div class=\"%s\">\n", many ? "lines" : "cards");
    for (int r = 0; r < p->n_records; r++)
        for (int i = 0; i < p->records[r]->n_runs; i++)
            if (!seen(p->records[r], i)) put_model(p, r, p->records[r]->runs[i], own, many);
    snd_buf_put(p->b, "</div>\n</section>\n");
}
