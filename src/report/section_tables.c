// Small tables that came with the record: check values, benches.
#include "report/inner.h"

#include <math.h>

static void put_cell(snd_buf *b, const snd_cell *c) {
    snd_buf_put(b, c->text ? "<td>" : "<td class=\"num\">");
    if (c->text)
        snd_html_prose(b, c->text);
    else if (!isnan(c->num))
        snd_html_number(b, c->num, c->log, 4);
    snd_buf_put(b, "</td>");
}

// A column is right-aligned when its first cell is a number.
static bool is_number(const snd_rtable *t, int column) {
    return t->n_cells > column && !t->cells[column].text;
}

static void put_table(snd_buf *b, const snd_rtable *t) {
    snd_buf_put(b, "<h3>"); // outside the box: a phone scrolls the table, not the sentence
    snd_html_text(b, t->title);
    snd_buf_put(b, "</h3>");
    if (t->caption) {
        snd_buf_put(b, "<p class=\"muted\">");
        snd_html_prose(b, t->caption);
        snd_buf_put(b, "</p>");
    }
    snd_buf_put(b, "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"");
    snd_html_text(b, t->title);
    snd_buf_put(b, "\"><table class=\"data\"><thead><tr>");
    for (int i = 0; i < t->n_columns; i++) {
        snd_buf_put(b, is_number(t, i) ? "<th scope=\"col\" class=\"num\">" : "<th scope=\"col\">");
        snd_html_text(b, t->columns[i]);
        snd_buf_put(b, "</th>");
    }
    snd_buf_put(b, "</tr></thead><tbody>\n");
    for (int i = 0; i + t->n_columns <= t->n_cells; i += t->n_columns) {
        snd_buf_put(b, "<tr>");
        for (int k = 0; k < t->n_columns; k++) put_cell(b, &t->cells[i + k]);
        snd_buf_put(b, "</tr>\n");
    }
    snd_buf_put(b, "</tbody></table></div>\n");
}

void snd_section_tables(snd_page *p, const char *heading) {
    int n = 0;
    for (int r = 0; r < p->n_records; r++) n += p->records[r]->n_tables;
    if (n == 0) return;
    snd_buf_printf(p->b, "<section id=\"tables\" aria-labelledby=\"h-tables\"><h2 id=\"h-tables\">%s</h2>\n", heading);
    for (int r = 0; r < p->n_records; r++)
        for (int i = 0; i < p->records[r]->n_tables; i++) put_table(p->b, p->records[r]->tables[i]);
    snd_buf_put(p->b, "</section>\n");
}
