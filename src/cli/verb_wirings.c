// sonde wirings [KEY ...]: the catalogue. Without keys one line each; with keys the formula, where it comes from, and
// what implementations disagree about.
#include "cli/inner.h"

#include <string.h>

static void json_wiring(snd_json *j, const snd_wiring *w) {
    snd_json_open(j, NULL, '{');
    snd_json_str(j, "key", w->key);
    snd_json_str(j, "title", w->title);
    snd_json_str(j, "formula", w->formula);
    snd_json_str(j, "family", w->family);
    snd_json_str(j, "norm", w->norm);
    snd_json_str(j, "source", w->source);
    snd_json_str(j, "notes", w->notes);
    snd_json_close(j, '}');
}

static void show_wiring(snd_cli *c, const snd_wiring *w) {
    const int columns = c->columns > 100 ? 100 : c->columns;
    snd_buf b = {0};
    snd_ink_put(c, &b, SND_INK_BOLD, w->key);
    snd_buf_printf(&b, "  %s\n\n", w->title);
    for (const char *s = w->formula; *s;) {
        const size_t n = strcspn(s, "\n");
        snd_buf_put(&b, "    ");
        snd_buf_putn(&b, s, n);
        snd_buf_put(&b, "\n");
        s += n + (s[n] == '\n');
    }
    snd_buf_put(&b, "\n");
    if (w->family && strcmp(w->family, "any") != 0) snd_buf_printf(&b, "  family  %s\n", w->family);
    if (w->norm) snd_buf_printf(&b, "  norm    %s\n", w->norm);
    snd_buf text = {0};
    if (w->source && *w->source) snd_wrap(&text, w->source, 10, columns);
    if (text.s) snd_buf_printf(&b, "  source  %s", text.s + 10);
    snd_buf_free(&text);
    text = (snd_buf){0};
    if (w->notes && *w->notes) snd_wrap(&text, w->notes, 10, columns);
    if (text.s) snd_buf_printf(&b, "  notes   %s", text.s + 10);
    snd_buf_free(&text);
    snd_put(c, &b);
    snd_buf_free(&b);
}

static void list_wirings(snd_cli *c) {
    static const char *const head[] = {"wiring", "what it is", "formula"};
    snd_text_table *t = snd_table(c, 3);
    snd_table_head(t, head);
    for (int i = 0; i < 3; i++) snd_table_left(t, i);
    for (int i = 0; i < snd_wiring_count(); i++) {
        const snd_wiring *w = snd_wiring_at(i);
        snd_table_cell(t, w->key);
        snd_table_ink(t, SND_INK_BOLD);
        snd_table_cell(t, w->title);
        char line[60]; // the first line, or what fits of it: 'sonde wirings KEY' shows the rest
        const size_t n = strcspn(w->formula, "\n");
        const bool cut = n > 56 || w->formula[n];
        snprintf(line, sizeof line, "%.*s%s", (int)(n > 56 ? 53 : n), w->formula, cut ? " ..." : "");
        snd_table_cell(t, line);
    }
    snd_table_print(t);
    snd_note(c, "\n%d wirings; 'sonde wirings KEY' shows one in full", snd_wiring_count());
}

static sonde_status find(const char *key, const snd_wiring **out) {
    *out = snd_wiring_find(key);
    if (*out) return SONDE_OK;
    const char *near = snd_wiring_nearest(key);
    SND_FAIL_IF(near, SONDE_ENAME, "unknown wiring '%s'; did you mean %s?", key, near);
    SND_FAIL(SONDE_ENAME, "unknown wiring '%s'; 'sonde wirings' lists them", key);
}

sonde_status snd_verb_wirings(snd_cli *c) {
    const snd_wiring *w;
    for (int i = 0; i < c->n_words; i++) SND_TRY(find(c->words[i], &w));
    if (c->json) {
        snd_buf b = {0};
        snd_json j = snd_json_start(&b);
        snd_json_open(&j, NULL, '{');
        snd_json_str(&j, "schema", "sonde.wirings/1");
        snd_json_open(&j, "wirings", '[');
        for (int i = 0; i < (c->n_words ? c->n_words : snd_wiring_count()); i++)
            json_wiring(&j, c->n_words ? snd_wiring_find(c->words[i]) : snd_wiring_at(i));
        snd_json_close(&j, ']');
        snd_json_close(&j, '}');
        snd_put(c, &b);
        snd_buf_free(&b);
        return SONDE_OK;
    }
    if (c->n_words == 0) list_wirings(c);
    for (int i = 0; i < c->n_words; i++) {
        if (i > 0) snd_print(c, "\n");
        show_wiring(c, snd_wiring_find(c->words[i]));
    }
    return SONDE_OK;
}
