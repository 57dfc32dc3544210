// Text tables of numbers: lines of fields separated by commas, semicolons, tabs or blanks; quotes; LF or CRLF; an
// optional header line. One line at a time is split, then understood. Everything must be a number (nan and inf are), in
// the C locale whatever the user's; a decimal comma is an error that says where.
#include "io/inner.h"

#include <string.h>

enum { COLUMNS_MAX = 1 << 20 };

typedef struct table {
    const char *name;
    const uint8_t *p, *end;
    char sep;                             // ',' ';' '\t' or ' ' (any run of blanks)
    int64_t line;                         // from 1, of the line that was split last
    snd_buf text;                         // its fields, each ended by a NUL
    int64_t *start, n_fields, cap_fields; // where they begin in text
    double *v;
    int64_t n, cap, rows, cols;
    char **columns;
    bool has_words; // one column has, which `column` names (see io.h)
    const char *column;
    int64_t words_at; // from 0; -1: none
    char **words;
    int64_t n_words, cap_words;
    int64_t *place, cap_place; // by hash: number of a word + 1, 0: none
} table;

static bool is_blank(const table *t, uint8_t c) {
    return c == ' ' || (c == '\t' && t->sep != '\t');
}
static bool at_eol(const table *t) {
    return t->p == t->end || *t->p == '\n' || *t->p == '\r';
}

// The separator is what the first line uses outside quotes.
static char find_separator(const uint8_t *p, const uint8_t *end) {
    bool quoted = false, comma = false, semicolon = false, tab = false;
    while (p < end && (*p == '\n' || *p == '\r')) p++;
    for (; p < end && *p != '\n' && *p != '\r'; p++) {
        if (*p == '"') quoted = !quoted;
        if (quoted) continue;
        comma = comma || *p == ',';
        semicolon = semicolon || *p == ';';
        tab = tab || *p == '\t';
    }
    return tab ? '\t' : semicolon ? ';' : comma ? ',' : ' ';
}

// ---- one line into fields -----------------------------------------------------------------------------------------------------

static void skip_blanks(table *t) {
    while (t->p < t->end && is_blank(t, *t->p)) t->p++;
}

static sonde_status check_byte(const table *t, uint8_t c) {
    SND_FAIL_IF(c < 0x20 && c != '\t', SONDE_EINPUT, "%s: line %lld, column %lld: a control character (0x%02x)",
                t->name, (long long)t->line, (long long)t->n_fields + 1, c);
    return SONDE_OK;
}

static sonde_status split_quoted(table *t) {
    for (t->p++; !at_eol(t); t->p++) {
        if (*t->p == '"' && (t->p + 1 == t->end || t->p[1] != '"')) {
            t->p++;
            skip_blanks(t);
            SND_FAIL_IF(!at_eol(t) && *t->p != (uint8_t)t->sep && t->sep != ' ', SONDE_ESYNTAX,
                        "%s: line %lld, column %lld: text after the closing quote", t->name, (long long)t->line,
                        (long long)t->n_fields + 1);
            return SONDE_OK;
        }
        if (*t->p == '"') t->p++; // "" is one quote
        SND_TRY(check_byte(t, *t->p));
        snd_buf_putn(&t->text, (const char *)t->p, 1);
    }
    SND_FAIL(SONDE_ESYNTAX, "%s: line %lld, column %lld: a quote that is not closed on its line", t->name,
             (long long)t->line, (long long)t->n_fields + 1);
}

static sonde_status split_plain(table *t) {
    const uint8_t *first = t->p;
    while (!at_eol(t) && *t->p != (uint8_t)t->sep && !(t->sep == ' ' && is_blank(t, *t->p))) {
        SND_TRY(check_byte(t, *t->p));
        t->p++;
    }
    const uint8_t *last = t->p;
    while (last > first && is_blank(t, last[-1])) last--;
    snd_buf_putn(&t->text, (const char *)first, (size_t)(last - first));
    return SONDE_OK;
}

static sonde_status split_field(table *t) {
    SND_FAIL_IF(t->n_fields >= COLUMNS_MAX, SONDE_EINPUT, "%s: line %lld: more than %d columns", t->name,
                (long long)t->line, COLUMNS_MAX);
    void *start = t->start;
    if (!snd_grow(&start, &t->cap_fields, t->n_fields + 1, sizeof *t->start)) return SONDE_ENOMEM;
    t->start = start;
    t->start[t->n_fields] = (int64_t)t->text.len;
    SND_TRY(t->p < t->end && *t->p == '"' ? split_quoted(t) : split_plain(t));
    snd_buf_putn(&t->text, "", 1);
    t->n_fields++;
    return t->text.failed ? SONDE_ENOMEM : SONDE_OK;
}

// Splits the next line; n_fields is 0 for an empty one.
static sonde_status split_line(table *t) {
    t->text.len = 0;
    t->n_fields = 0;
    t->line++;
    skip_blanks(t);
    while (!at_eol(t)) {
        SND_TRY(split_field(t));
        skip_blanks(t);
        if (at_eol(t)) break;
        if (t->sep == ' ') continue;
        t->p++; // the separator: split_field stops nowhere else
        skip_blanks(t);
        if (at_eol(t)) SND_TRY(split_field(t)); // an empty field at the end of the line
    }
    if (t->p < t->end && *t->p == '\r') t->p++;
    if (t->p < t->end && *t->p == '\n') t->p++;
    return SONDE_OK;
}

// ---- a line's meaning -----------------------------------------------------------------------------------------------------------

static const char *field(const table *t, int64_t i) {
    return t->text.s + t->start[i];
}

// Words aside: a first line with another text in it. An empty field is none, it is a number that is missing.
static bool is_header(const table *t) {
    double v;
    for (int64_t i = 0; i < t->n_fields; i++)
        if (i != t->words_at && *field(t, i) && !snd_parse_num(field(t, i), &v, NULL)) return true;
    return false;
}

static sonde_status take_header(table *t) {
    t->cols = t->n_fields;
    t->columns = snd_calloc((size_t)t->cols, sizeof *t->columns);
    if (!t->columns) return SONDE_ENOMEM;
    for (int64_t i = 0; i < t->cols; i++) {
        const size_t n = strlen(field(t, i)) + 1;
        t->columns[i] = snd_malloc(n);
        if (!t->columns[i]) return SONDE_ENOMEM;
        memcpy(t->columns[i], field(t, i), n);
    }
    return SONDE_OK;
}

// ---- words ----------------------------------------------------------------------------------------------------------------------

// By its number, as long as no header has been seen.
static int64_t words_by_number(const table *t) {
    int64_t number = t->n_fields;
    if (t->column && !snd_parse_int(t->column, &number, NULL)) return -1;
    return number >= 1 && number <= t->n_fields ? number - 1 : -1;
}

static sonde_status find_words(table *t) {
    char shown[72];
    t->words_at = words_by_number(t);
    for (int64_t i = 0; i < t->n_fields && t->columns && t->column; i++)
        if (strcmp(t->columns[i], t->column) == 0) t->words_at = i;
    SND_FAIL_IF(t->words_at < 0, SONDE_ENAME, "%s: no column '%s' among its %lld; the class is asked for there",
                t->name, t->column ? snd_shown(shown, t->column) : "", (long long)t->n_fields);
    return SONDE_OK;
}

static int64_t *place_of(const table *t, const char *word) {
    uint64_t at = snd_hash_str(word);
    for (;; at++) {
        int64_t *p = &t->place[at & (uint64_t)(t->cap_place - 1)];
        if (*p == 0 || strcmp(t->words[*p - 1], word) == 0) return p;
    }
}

static sonde_status grow_places(table *t) {
    if (2 * (t->n_words + 1) <= t->cap_place) return SONDE_OK;
    snd_free(t->place);
    t->cap_place = t->cap_place ? 2 * t->cap_place : 64;
    t->place = snd_calloc((size_t)t->cap_place, sizeof *t->place);
    if (!t->place) return SONDE_ENOMEM;
    for (int64_t i = 0; i < t->n_words; i++) *place_of(t, t->words[i]) = i + 1;
    return SONDE_OK;
}

static sonde_status number_word(table *t, const char *word, double *out) {
    SND_TRY(grow_places(t));
    int64_t *p = place_of(t, word);
    if (*p == 0) {
        void *words = t->words;
        char *copy = snd_malloc(strlen(word) + 1);
        if (!copy || !snd_grow(&words, &t->cap_words, t->n_words + 1, sizeof *t->words)) {
            snd_free(copy);
            return SONDE_ENOMEM;
        }
        t->words = words;
        t->words[t->n_words++] = strcpy(copy, word);
        *p = t->n_words;
    }
    *out = (double)(*p - 1);
    return SONDE_OK;
}

// ---- the table --------------------------------------------------------------------------------------------------------------------

static sonde_status take_row(table *t) {
    if (t->cols == 0) t->cols = t->n_fields;
    SND_FAIL_IF(t->n_fields != t->cols, SONDE_EINPUT, "%s: line %lld: %lld columns, the lines before have %lld",
                t->name, (long long)t->line, (long long)t->n_fields, (long long)t->cols);
    void *v = t->v;
    if (!snd_grow(&v, &t->cap, t->n + t->cols, sizeof *t->v)) return SONDE_ENOMEM;
    t->v = v;
    for (int64_t i = 0; i < t->cols; i++) {
        char shown[72];
        if (i == t->words_at) {
            SND_FAIL_IF(!*field(t, i), SONDE_EINPUT, "%s: line %lld, column %lld: no class stands there", t->name,
                        (long long)t->line, (long long)i + 1);
            SND_TRY(number_word(t, field(t, i), &t->v[t->n + i]));
            continue;
        }
        SND_FAIL_IF(!snd_parse_num(field(t, i), &t->v[t->n + i], NULL), SONDE_EINPUT,
                    "%s: line %lld, column %lld: '%s' is not a number", t->name, (long long)t->line, (long long)i + 1,
                    snd_shown(shown, field(t, i)));
    }
    t->n += t->cols;
    t->rows++;
    return SONDE_OK;
}

static sonde_status take_first(table *t) {
    if (t->has_words) t->words_at = words_by_number(t);
    const bool header = is_header(t);
    if (header) SND_TRY(take_header(t));
    if (t->has_words) SND_TRY(find_words(t));
    return header ? SONDE_OK : take_row(t);
}

static sonde_status read_lines(table *t) {
    if (t->end - t->p >= 3 && memcmp(t->p, "\xEF\xBB\xBF", 3) == 0) t->p += 3; // byte order mark
    t->sep = find_separator(t->p, t->end);
    while (t->p < t->end) {
        SND_TRY(split_line(t));
        if (t->n_fields == 0) continue;
        SND_TRY(t->cols == 0 ? take_first(t) : take_row(t));
    }
    SND_FAIL_IF(t->cols == 0, SONDE_EINPUT, "%s: no numbers in it", t->name);
    return SONDE_OK;
}

static sonde_status make(table *t, snd_array *out) {
    SND_TRY(read_lines(t));
    if (!t->v && !(t->v = snd_malloc(1))) return SONDE_ENOMEM;
    double *v = t->v;
    t->v = NULL;
    SND_TRY(snd_array_make(out, t->name, SND_F64, SND_SHAPE(t->rows, t->cols), v));
    out->columns = t->columns;
    out->n_columns = t->columns ? (int)t->cols : 0;
    out->words = t->words;
    out->n_words = t->n_words;
    t->columns = t->words = NULL;
    return SONDE_OK;
}

static sonde_status parse(table *t, snd_array *out) {
    *out = (snd_array){0};
    const sonde_status s = make(t, out);
    for (int64_t i = 0; i < t->cols && t->columns; i++) snd_free(t->columns[i]);
    for (int64_t i = 0; i < t->n_words && t->words; i++) snd_free(t->words[i]);
    snd_free(t->columns);
    snd_free(t->words);
    snd_free(t->place);
    snd_free(t->v);
    snd_buf_free(&t->text);
    snd_free(t->start);
    return s;
}

sonde_status snd_csv_parse(const char *name, const uint8_t *bytes, size_t n, snd_array *out) {
    table t = {.name = name, .p = bytes, .end = bytes + n, .words_at = -1};
    return parse(&t, out);
}

sonde_status snd_csv_parse_words(const char *name, const uint8_t *bytes, size_t n, const char *column, snd_array *out) {
    table t = {.name = name, .p = bytes, .end = bytes + n, .has_words = true, .column = column, .words_at = -1};
    return parse(&t, out);
}
