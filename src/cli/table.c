// A table with aligned columns on stdout. Cells are collected first, so every column is as wide as its widest cell;
// width counts characters, not bytes, and colours are put on afterwards, so they cost no width.
#include "cli/inner.h"

#include <math.h>
#include <string.h>

typedef struct text_cell {
    const char *s;
    snd_ink ink;
} text_cell;
struct snd_text_table {
    snd_cli *c;
    int n_columns, n_cells, cap;
    const char **head;
    bool *left;
    text_cell *cells;
};

snd_text_table *snd_table(snd_cli *c, int n_columns) {
    snd_text_table *t = snd_arena_alloc(c->arena, sizeof *t);
    if (!t) return NULL;
    t->c = c;
    t->n_columns = n_columns;
    t->left = snd_arena_array(c->arena, (size_t)n_columns, sizeof *t->left);
    return t->left ? t : NULL;
}

void snd_table_head(snd_text_table *t, const char *const *names) {
    if (!t) return;
    t->head = snd_arena_array(t->c->arena, (size_t)t->n_columns, sizeof *t->head);
    for (int i = 0; t->head && i < t->n_columns; i++) t->head[i] = snd_arena_str(t->c->arena, names[i]);
}

void snd_table_left(snd_text_table *t, int column) {
    if (t) t->left[column] = true;
}

void snd_table_cell(snd_text_table *t, const char *text) {
    if (!t) return;
    if (t->n_cells == t->cap) {
        const int cap = t->cap ? 2 * t->cap : 64;
        text_cell *cells = snd_arena_array(t->c->arena, (size_t)cap, sizeof *cells);
        if (!cells) return;
        if (t->n_cells) memcpy(cells, t->cells, (size_t)t->n_cells * sizeof *cells);
        t->cells = cells;
        t->cap = cap;
    }
    const char *copy = snd_arena_str(t->c->arena, text ? text : "");
    t->cells[t->n_cells++] = (text_cell){copy ? copy : "", SND_INK_PLAIN};
}

void snd_table_join(snd_text_table *t, const char *text) {
    if (!t || !t->n_cells) return;
    text_cell *cell = &t->cells[t->n_cells - 1];
    const char *both = snd_arena_printf(t->c->arena, "%s%s", cell->s, text);
    if (both) cell->s = both;
}

void snd_table_ink(snd_text_table *t, snd_ink ink) {
    if (t && t->n_cells) t->cells[t->n_cells - 1].ink = ink;
}

void snd_table_num(snd_text_table *t, double v, int digits) {
    char s[40];
    snd_table_cell(t, isnan(v) ? "-" : snd_pretty(s, v, digits));
}

void snd_table_log10(snd_text_table *t, double log10_abs, int digits) {
    char s[40];
    snd_table_cell(t, isnan(log10_abs) ? "-" : snd_pretty_log10(s, log10_abs, digits));
}

void snd_table_int(snd_text_table *t, int64_t v) {
    char s[40];
    snprintf(s, sizeof s, "%lld", (long long)v);
    snd_table_cell(t, s);
}

static void widths(const snd_text_table *t, int *w) {
    for (int i = 0; i < t->n_columns; i++) w[i] = t->head ? snd_text_width(t->head[i]) : 0;
    for (int i = 0; i < t->n_cells; i++) {
        const int width = snd_text_width(t->cells[i].s), column = i % t->n_columns;
        if (width > w[column]) w[column] = width;
    }
}

typedef struct layout {
    int *w, gap; // width of every column, blanks between two
    int pending; // blanks owed before the next text of this line: a line never ends in any
} layout;

static void put_cell(const snd_text_table *t, snd_buf *b, layout *l, int column, text_cell cell) {
    const int pad = l->w[column] - snd_text_width(cell.s);
    size_t n = strlen(cell.s);
    while (n > 0 && cell.s[n - 1] == ' ') n--;
    char *text = snd_arena_strn(t->c->arena, cell.s, n);
    if (column == 0) l->pending = 0;
    l->pending += (column > 0 ? l->gap : 0) + (t->left[column] ? 0 : pad);
    if (n > 0) {
        snd_buf_printf(b, "%*s", l->pending, "");
        snd_ink_put(t->c, b, cell.ink, text ? text : "");
        l->pending = 0;
    }
    l->pending += (int)(strlen(cell.s) - n) + (t->left[column] ? pad : 0);
}

// Two blanks between columns; one where two would be too much for the screen and one is not.
static int gap_for(const snd_text_table *t, const int *w) {
    int sum = 0;
    for (int i = 0; i < t->n_columns; i++) sum += w[i];
    const int gaps = t->n_columns - 1, room = t->c->columns - sum;
    return room < 2 * gaps && room >= gaps ? 1 : 2;
}

void snd_table_print(snd_text_table *t) {
    if (!t) return;
    layout l = {.w = snd_arena_array(t->c->arena, (size_t)t->n_columns, sizeof(int))};
    if (!l.w) return;
    widths(t, l.w);
    l.gap = gap_for(t, l.w);
    snd_buf b = {0};
    for (int i = 0; t->head && i < t->n_columns; i++) put_cell(t, &b, &l, i, (text_cell){t->head[i], SND_INK_DIM});
    if (t->head) snd_buf_put(&b, "\n");
    for (int i = 0; i < t->n_cells; i++) {
        put_cell(t, &b, &l, i % t->n_columns, t->cells[i]);
        if (i % t->n_columns == t->n_columns - 1) snd_buf_put(&b, "\n");
    }
    snd_put(t->c, &b);
    snd_buf_free(&b);
}
