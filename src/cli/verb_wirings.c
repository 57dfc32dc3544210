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

// A text cut to `room` characters, with "..." for what is gone.
static const char *cut(snd_cli *c, const char *text, int room) {
    if (snd_text_width(text) <= room) return text;
    const char *end = text;
    for (int n = 0; n < room - 3; n++) end += snd_utf8_sequence(end);
    const char *head = snd_arena_strn(c->arena, text, (size_t)(end - text));
    return head ? snd_arena_printf(c->arena, "%s...", head) : text;
}

// The formula's first line; "..." when there are more.
static const char *first_line(snd_cli *c, const char *formula) {
    const size_t n = strcspn(formula, "\n");
    const char *line = snd_arena_strn(c->arena, formula, n);
    return line && formula[n] ? snd_arena_printf(c->arena, "%s ...", line) : line ? line : "";
}

// One line each. On a terminal lines keep to its width and the formula is shown if it has room; a pipe gets all of it.
static void list_wirings(snd_cli *c) {
    static const char *const head[] = {"wiring", "what it is", "formula"};
    enum { LEAST = 24 };
    int keys = 0, titles = 0;
    for (int i = 0; i < snd_wiring_count(); i++) {
        const int key = snd_text_width(snd_wiring_at(i)->key), title = snd_text_width(snd_wiring_at(i)->title);
        keys = key > keys ? key : keys;
        titles = title > titles ? title : titles;
    }
    const int room = c->tty_out ? c->columns - keys - 2 : 4096, left = room - titles - 2;
    const int n = left >= LEAST ? 3 : 2;
    snd_text_table *t = snd_table(c, n);
    snd_table_head(t, head);
    for (int i = 0; i < n; i++) snd_table_left(t, i);
    for (int i = 0; i < snd_wiring_count(); i++) {
        const snd_wiring *w = snd_wiring_at(i);
        snd_table_cell(t, w->key);
        snd_table_ink(t, SND_INK_BOLD);
        snd_table_cell(t, cut(c, w->title, room));
        if (n == 3) snd_table_cell(t, cut(c, first_line(c, w->formula), left));
    }
    snd_table_print(t);
    snd_note(c, "\n%d wirings; 'sonde wirings KEY' shows formula, source and notes", snd_wiring_count());
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
