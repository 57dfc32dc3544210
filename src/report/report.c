// The page: head, styles, the sections of sections.def in order, the data, the scripts. Everything is inside the file; a
// content security policy in the page forbids any request, so a mistake could not phone out either.
#include "report/inner.h"
#include "base/embed.h"

#include <string.h>

// An embedded file up to its source-map comment (a reference to another file), without the scheme of the licence's
// address in its first comment (the notice itself stays).
static void put_asset(snd_buf *b, const char *name) {
    size_t n;
    const char *text = snd_embedded(name, &n);
    if (!text) {
        b->failed = true;
        return;
    }
    const char *map = strstr(text, "# sourceMappingURL");
    if (map && map - text >= 2) n = (size_t)(map - text) - 2;
    const char *scheme = strstr(text, "https://");
    if (scheme && (size_t)(scheme - text) < n) {
        snd_buf_putn(b, text, (size_t)(scheme - text));
        n -= (size_t)(scheme - text) + 8;
        text = scheme + 8;
    }
    snd_buf_putn(b, text, n);
    snd_buf_put(b, "\n");
}

static const char *const kind_words[SND_REC_KIND_COUNT] = {"", "Predicted", "Measured", "Demonstration", "Trained"};

static void put_title_label(snd_page *p, int record, const char *label, int n) {
    snd_buf text = {0};
    snd_page_label(p, record, label, &text);
    snd_html_printf(p->b, "%s%s", n ? ", " : ": ", text.s ? text.s : "");
    p->b->failed |= text.failed;
    snd_buf_free(&text);
}

// The record's own title, or its wirings: "Measured: pre, post".
static void put_title(snd_page *p) {
    const snd_record *r = p->records[0];
    if (r->title && p->n_records == 1) {
        snd_html_text(p->b, r->title);
        return;
    }
    snd_buf_put(p->b, kind_words[r->kind]);
    int n = 0;
    for (int k = 0; k < p->n_records; k++)
        for (int i = 0; i < p->records[k]->n_runs; i++) {
            const snd_record *from = p->records[k];
            if (i > 0 && strcmp(from->runs[i]->label, from->runs[i - 1]->label) == 0) continue;
            if (n < 6) put_title_label(p, k, from->runs[i]->label, n);
            n++;
        }
    if (n > 6) snd_buf_printf(p->b, " and %d more", n - 6);
}

static void put_head(snd_page *p) {
    snd_buf_put(p->b,
                "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                "<meta name=\"color-scheme\" content=\"light dark\">\n"
                "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
                "script-src 'unsafe-inline'; img-src data: blob:\">\n<title>");
    put_title(p);
    snd_buf_put(p->b, " - sonde</title>\n<style>\n");
    put_asset(p->b, "dygraphs/dygraph.min.css");
    put_asset(p->b, "report/assets/report.css");
    snd_buf_put(p->b, "</style>\n</head>\n");
}

static void put_foot(snd_page *p) {
    const char *version = p->records[0]->version;
    snd_buf_put(p->b, "</main>\n<footer>sonde");
    if (version) snd_html_printf(p->b, " %s", version);
    snd_buf_put(p->b, ". Curves drawn with dygraphs (MIT).</footer>\n<script type=\"application/json\" id=\"data\">");
    snd_page_data(p);
    snd_buf_put(p->b, "</script>\n<script>\n");
    put_asset(p->b, "dygraphs/dygraph.min.js");
    snd_buf_put(p->b, "</script>\n<script>\n");
    put_asset(p->b, "report/assets/report.js");
    snd_buf_put(p->b, "</script>\n</body>\n</html>\n");
}

sonde_status snd_report_html(const snd_record *const *records, int n, snd_buf *b) {
    SND_FAIL_IF(n < 1, SONDE_EUSAGE, "a report needs at least one result");
    snd_page page = {.records = records, .n_records = n, .b = b};
    put_head(&page);
    snd_buf_put(b, "<body>\n<a class=\"skip\" href=\"#main\">Skip to the results</a>\n<header class=\"top\"><p "
                   "class=\"brand\">sonde</p>"
                   "<h1>");
    put_title(&page);
    snd_buf_put(b, "</h1><button type=\"button\" id=\"theme\" aria-label=\"Switch between light and "
                   "dark\">Theme</button></header>\n"
                   "<main id=\"main\">\n");
#define SND_SECTION(name, heading) snd_section_##name(&page, heading);
#include "report/sections.def"
#undef SND_SECTION
    put_foot(&page);
    SND_FAIL_IF(b->failed, SONDE_ENOMEM, "report: out of memory, or an embedded file is missing");
    return SONDE_OK;
}

sonde_status snd_report_write(const snd_record *const *records, int n, const char *path) {
    snd_buf b = {0};
    sonde_status s = snd_report_html(records, n, &b);
    if (s == SONDE_OK) s = snd_write_file(path, b.s, b.len);
    snd_buf_free(&b);
    return s;
}

static sonde_status put_page(const snd_record *r, const char *dir, snd_files *to) {
    snd_buf page = {0}, path = {0};
    snd_buf_printf(&path, "%s/report.html", dir);
    sonde_status s = snd_report_html(&r, 1, &page);
    if (s == SONDE_OK && path.failed) s = SONDE_ENOMEM;
    if (s == SONDE_OK) s = snd_files_add(to, path.s, &(snd_part){page.s, page.len}, 1);
    snd_buf_free(&page);
    snd_buf_free(&path);
    return s;
}

sonde_status snd_report_folder(const snd_record *r, const char *dir) {
    snd_files f = {0};
    sonde_status s = snd_record_put(r, dir, &f);
    if (s == SONDE_OK) s = put_page(r, dir, &f);
    if (s == SONDE_OK) s = snd_files_place(&f);
    snd_files_close(&f);
    return s;
}
