// YAML text -> tree, by way of libyaml's events. Everything a spec does not need and an attacker would like is refused:
// anchors and aliases (they make small files expand without end), tags, several documents, deep nesting, NUL bytes,
// keys written twice. The tree lives in the arena; libyaml's own memory is freed on every path.
#include "spec/yaml.h"

#include <string.h>
#include <yaml.h>

typedef struct reader {
    yaml_parser_t p;
    snd_arena *a;
    const char *name;
    int nodes;
} reader;

static int line_of(yaml_mark_t m) {
    return m.line < 1000000000 ? (int)m.line + 1 : 0;
}
static int col_of(yaml_mark_t m) {
    return m.column < 1000000000 ? (int)m.column + 1 : 0;
}

#define FAIL_AT(r, mark, code, ...) return fail_at(r, mark, snd_fail(code, __FILE__, __LINE__, __VA_ARGS__))
static sonde_status fail_at(const reader *r, yaml_mark_t m, sonde_status s) {
    return snd_fail_prefix(s, "%s:%d:%d: ", r->name, line_of(m), col_of(m));
}

static sonde_status next_event(reader *r, yaml_event_t *e) {
    if (yaml_parser_parse(&r->p, e)) return SONDE_OK;
    const yaml_parser_t *p = &r->p;
    SND_FAIL_IF(p->error == YAML_MEMORY_ERROR, SONDE_ENOMEM, "%s: out of memory while reading YAML", r->name);
    const char *what = p->problem ? p->problem : "this is not YAML";
    // the reader (encoding) knows only a byte offset, the scanner and parser know the place
    SND_FAIL_IF(p->error == YAML_READER_ERROR, SONDE_ESYNTAX, "%s: not YAML: byte %zu: %s", r->name, p->problem_offset,
                what);
    FAIL_AT(r, p->problem_mark, SONDE_ESYNTAX, "%s%s%s", what, p->context ? ", " : "", p->context ? p->context : "");
}

static sonde_status check_plain(const reader *r, yaml_mark_t m, const yaml_char_t *anchor, const yaml_char_t *tag) {
    if (anchor)
        FAIL_AT(r, m, SONDE_ESYNTAX, "anchors (&%.40s) are not used in specs; write the value out",
                (const char *)anchor);
    if (tag) FAIL_AT(r, m, SONDE_ESYNTAX, "tags (%.40s) are not used in specs", (const char *)tag);
    return SONDE_OK;
}

static sonde_status read_node(reader *r, const yaml_event_t *e, int depth, snd_ynode **out);

// A title with "\e[2J" would reach the terminal as an order, a NUL would end the text. In UTF-8, U+0080 to U+009F are
// orders too, but for U+0085, a line break; a lone byte of these does not come here.
static bool is_control(const char *s) {
    const unsigned char c = (unsigned char)s[0], next = (unsigned char)(c == 0xC2 ? s[1] : 0);
    return (c < 0x20 && c != '\n' && c != '\t' && c != '\r') || c == 0x7F ||
           (next >= 0x80 && next < 0xA0 && next != 0x85);
}

static sonde_status read_scalar(reader *r, const yaml_event_t *e, const char **text) {
    SND_TRY(check_plain(r, e->start_mark, e->data.scalar.anchor, e->data.scalar.tag));
    const char *s = (const char *)e->data.scalar.value;
    const size_t n = e->data.scalar.length;
    for (size_t i = 0; i < n; i++)
        if (is_control(s + i))
            FAIL_AT(r, e->start_mark, SONDE_ESYNTAX, "a control character (byte %d) inside text", (unsigned char)s[i]);
    *text = snd_arena_strn(r->a, s, n);
    return *text ? SONDE_OK : SONDE_ENOMEM;
}

static sonde_status read_seq(reader *r, snd_ynode *seq, int depth) {
    snd_ynode **tail = &seq->first;
    for (;;) {
        yaml_event_t e;
        SND_TRY(next_event(r, &e));
        sonde_status s = SONDE_OK;
        const bool end = e.type == YAML_SEQUENCE_END_EVENT;
        if (!end) s = read_node(r, &e, depth, tail);
        yaml_event_delete(&e);
        SND_TRY(s);
        if (end) return SONDE_OK;
        tail = &(*tail)->next;
    }
}

static sonde_status read_key(reader *r, const snd_ynode *map, const yaml_event_t *e, const char **key) {
    if (e->type != YAML_SCALAR_EVENT) FAIL_AT(r, e->start_mark, SONDE_ESYNTAX, "a key must be a word");
    SND_TRY(read_scalar(r, e, key));
    for (const snd_ynode *c = map->first; c; c = c->next)
        if (strcmp(c->key, *key) == 0)
            FAIL_AT(r, e->start_mark, SONDE_ESYNTAX, "key '%.60s' stands twice (first at line %d)", *key, c->key_line);
    return SONDE_OK;
}

// One "key: value"; *end when the mapping is over.
static sonde_status read_pair(reader *r, snd_ynode *map, snd_ynode **tail, int depth, bool *end) {
    yaml_event_t e;
    SND_TRY(next_event(r, &e));
    *end = e.type == YAML_MAPPING_END_EVENT;
    const char *key = NULL;
    const yaml_mark_t at = e.start_mark;
    sonde_status s = *end ? SONDE_OK : read_key(r, map, &e, &key);
    yaml_event_delete(&e);
    if (s != SONDE_OK || *end) return s;

    SND_TRY(next_event(r, &e));
    snd_ynode *value = NULL;
    s = read_node(r, &e, depth, &value);
    yaml_event_delete(&e);
    SND_TRY(s);
    value->key = key;
    value->key_line = line_of(at);
    value->key_col = col_of(at);
    *tail = value;
    return SONDE_OK;
}

static sonde_status read_map(reader *r, snd_ynode *map, int depth) {
    snd_ynode **tail = &map->first;
    for (;;) {
        bool end;
        SND_TRY(read_pair(r, map, tail, depth, &end));
        if (end) return SONDE_OK;
        tail = &(*tail)->next;
    }
}

static sonde_status read_node(reader *r, const yaml_event_t *e, int depth, snd_ynode **out) {
    if (e->type == YAML_ALIAS_EVENT)
        FAIL_AT(r, e->start_mark, SONDE_ESYNTAX, "aliases (*%.40s) are not used in specs; write the value out",
                (const char *)e->data.alias.anchor);
    if (depth > SND_YAML_DEPTH)
        FAIL_AT(r, e->start_mark, SONDE_ESYNTAX, "nested deeper than %d levels", SND_YAML_DEPTH);
    if (++r->nodes > SND_YAML_NODES) FAIL_AT(r, e->start_mark, SONDE_ESYNTAX, "more than %d values", SND_YAML_NODES);
    snd_ynode *n;
    SND_NEW(r->a, n, 1);
    n->line = line_of(e->start_mark);
    n->col = col_of(e->start_mark);
    *out = n;
    switch (e->type) {
    case YAML_SCALAR_EVENT: n->kind = SND_Y_SCALAR; return read_scalar(r, e, &n->text);
    case YAML_SEQUENCE_START_EVENT:
        n->kind = SND_Y_SEQ;
        SND_TRY(check_plain(r, e->start_mark, e->data.sequence_start.anchor, e->data.sequence_start.tag));
        return read_seq(r, n, depth + 1);
    case YAML_MAPPING_START_EVENT:
        n->kind = SND_Y_MAP;
        SND_TRY(check_plain(r, e->start_mark, e->data.mapping_start.anchor, e->data.mapping_start.tag));
        return read_map(r, n, depth + 1);
    default: FAIL_AT(r, e->start_mark, SONDE_EINTERNAL, "unexpected YAML event %d", (int)e->type);
    }
}

// Stream start, at most one document, stream end.
static sonde_status read_stream(reader *r, snd_ynode **root) {
    for (bool seen = false;;) {
        yaml_event_t e;
        SND_TRY(next_event(r, &e));
        const yaml_event_type_t type = e.type;
        const yaml_mark_t at = e.start_mark;
        const bool node = type == YAML_SCALAR_EVENT || type == YAML_SEQUENCE_START_EVENT ||
                          type == YAML_MAPPING_START_EVENT || type == YAML_ALIAS_EVENT;
        const sonde_status s = node ? read_node(r, &e, 1, root) : SONDE_OK;
        yaml_event_delete(&e);
        SND_TRY(s);
        if (type == YAML_STREAM_END_EVENT) return SONDE_OK;
        if (type != YAML_DOCUMENT_START_EVENT) continue;
        if (seen) FAIL_AT(r, at, SONDE_ESYNTAX, "a second document; a spec file holds one");
        seen = true;
    }
}

sonde_status snd_yaml_parse(snd_arena *a, const char *name, const uint8_t *bytes, size_t n, snd_ynode **root) {
    *root = NULL;
    SND_FAIL_IF(n > SND_YAML_BYTES, SONDE_EINPUT, "%s: %zu bytes; a spec file has at most %d", name, n, SND_YAML_BYTES);
    reader r = {.a = a, .name = name};
    SND_FAIL_IF(!yaml_parser_initialize(&r.p), SONDE_ENOMEM, "%s: out of memory while reading YAML", name);
    yaml_parser_set_input_string(&r.p, bytes, n);
    const sonde_status s = read_stream(&r, root);
    yaml_parser_delete(&r.p);
    return s;
}
