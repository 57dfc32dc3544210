// What the files of report/ share: the page being written, text helpers, and the table of sections.
#ifndef SND_REPORT_INNER_H
#define SND_REPORT_INNER_H

#include "report/report.h"

typedef struct snd_page {
    const snd_record *const *records; int n_records;
    snd_buf *b;
} snd_page;

/// Text escaped for HTML content and double-quoted attributes.
void snd_html_text(snd_buf *b, const char *s);
void snd_html_printf(snd_buf *b, const char *fmt, ...) SND_PRINTF(2, 3);   // what it prints is escaped
void snd_html_number(snd_buf *b, double v, bool log, int digits);
void snd_html_limit(snd_buf *b, double v, bool log);        // as snd_pretty_limit says it
/// The label under which a run or series of records[i] appears: its own; when another record has it too, "label (place)" by the
/// last part of where each was read from, or "label (i+1)" for the later ones where those parts do not tell them apart.
void snd_page_label(const snd_page *p, int record, const char *label, snd_buf *out);
/// Panels that show the same (title, axes, scales) are one figure. True for the first of them.
bool snd_page_panel_first(const snd_page *p, int record, int panel);
bool snd_page_panel_same(const snd_panel *a, const snd_panel *b);
/// Text in words: spans between backquotes become <code>, 10^116 gets a superscript.
void snd_html_prose(snd_buf *b, const char *s);
/// The records as JSON for report.js, safe inside <script>.
void snd_page_data(const snd_page *p);

#define SND_SECTION(name, text) void snd_section_##name(snd_page *p, const char *heading);
#include "report/sections.def"
#undef SND_SECTION

#endif
