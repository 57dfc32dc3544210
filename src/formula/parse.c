// Text of the wiring language -> syntax tree. Recursive descent, one token of look-ahead; every error carries the line
// and column (from 1, counted in characters of the formula's own text) and what was expected.
// It knows the grammar of formulas.md section 2 and nothing about the meaning of names.
#include "formula/inner.h"

#include <math.h>
#include <string.h>

enum { MAX_DEPTH = 200, MAX_HEIGHT = 2000, MAX_ARGS = 32, MAX_ROLES = 24 };

typedef enum tok_kind { T_END, T_NUM, T_NAME, T_PUNCT, T_NEWLINE } tok_kind;

typedef struct token {
    tok_kind kind;
    int line, col;
    const char *s;
    size_t n;
    double num;
    char op; // PUNCT: the character; l <=, g >=, e ==, n !=, M *=
} token;

typedef struct parser {
    snd_arena *arena;
    const char *p; // next character
    int line, col; // place of p
    int paren;     // depth: newlines inside end nothing
    int depth;     // recursion
    token t;       // look-ahead
    bool failed;
    sonde_status code; // of the first failure
} parser;

static const char *const LABELS[] = {"in", "layer", "each", "out", "init"};

static void fail_at(parser *q, int line, int col, const char *fmt, ...) SND_PRINTF(4, 5);

// The first error stands; later ones are consequences.
static void fail_at(parser *q, int line, int col, const char *fmt, ...) {
    if (q->failed) return;
    q->failed = true;
    q->code = SONDE_ESYNTAX;
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    (void)snd_fail(SONDE_ESYNTAX, __FILE__, __LINE__, "line %d, column %d: %s", line, col, text);
}

static void out_of_memory(parser *q) { // the arena has recorded the message
    if (!q->failed) q->code = SONDE_ENOMEM;
    q->failed = true;
}

static void step(parser *q) {
    if (*q->p == '\n') {
        q->line++;
        q->col = 1;
    } else if (((unsigned char)q->p[1] & 0xC0) != 0x80) { // UTF-8: a column is a character, not a byte
        q->col++;
    }
    q->p++;
}

static bool is_name_start(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static void skip_blank(parser *q) {
    for (;;) {
        const char c = *q->p;
        if (c == '#') {
            while (*q->p && *q->p != '\n') step(q);
        } else if (c == ' ' || c == '\t' || c == '\r' || (c == '\n' && q->paren > 0)) {
            step(q);
        } else {
            return;
        }
    }
}

static void lex_number(parser *q) {
    const char *end = NULL;
    if (!snd_parse_num(q->p, &q->t.num, &end) || end == q->p) {
        fail_at(q, q->line, q->col, "'%c' does not begin a number", *q->p);
        return;
    }
    if (!isfinite(q->t.num)) {
        fail_at(q, q->line, q->col, "the number is beyond 1.8e308");
        return;
    }
    q->t.kind = T_NUM;
    while (q->p < end) step(q);
}

static void lex_punct(parser *q) {
    static const char pairs[][3] = {"<=l", ">=g", "==e", "!=n", "*=M"};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (q->p[0] == pairs[i][0] && q->p[1] == pairs[i][1]) {
            q->t.op = pairs[i][2];
            step(q);
            step(q);
            q->t.n = 2;
            return;
        }
    if (q->p[0] == ':' && q->p[1] == '=') {
        fail_at(q, q->line, q->col, "found ':='; expected '=': a statement is name = expression");
        return;
    }
    if (!strchr("()+-*/%^<>=?:,;", *q->p)) {
        int n = 1; // bytes of the character
        while (((unsigned char)q->p[n] & 0xC0) == 0x80) n++;
        fail_at(q, q->line, q->col, "unexpected character '%.*s'; expected a name, a number, '(' or an operator%s", n,
                q->p,
                strchr("{}\\$", *q->p) ? "; no TeX: the stream is x in every layer, l is the layer's number" : "");
        return;
    }
    q->t.op = *q->p;
    step(q);
}

static void advance(parser *q) {
    skip_blank(q);
    q->t = (token){.kind = T_PUNCT, .line = q->line, .col = q->col, .s = q->p, .n = 1};
    const char c = *q->p;
    if (c == '\0') {
        q->t.kind = T_END;
    } else if (c == '\n') {
        q->t.kind = T_NEWLINE;
        step(q);
    } else if (is_digit(c) || (c == '.' && is_digit(q->p[1]))) {
        lex_number(q);
    } else if (is_name_start(c)) {
        q->t.kind = T_NAME;
        while (is_name_start(*q->p) || is_digit(*q->p)) step(q);
        q->t.n = (size_t)(q->p - q->t.s);
    } else {
        lex_punct(q);
    }
    if (q->failed) q->t.kind = T_END;
}

static bool at(const parser *q, char op) {
    return q->t.kind == T_PUNCT && q->t.op == op;
}

static const char *describe(const parser *q, char out[64]) {
    switch (q->t.kind) {
    case T_END: return "the end of the formula";
    case T_NEWLINE: return "the end of the line";
    default: break;
    }
    const size_t n = q->t.kind == T_NUM ? (size_t)(q->p - q->t.s) : q->t.n;
    snprintf(out, 64, "'%.*s'", (int)(n > 40 ? 40 : n), q->t.s);
    return out;
}

static void expected(parser *q, const char *what) {
    char found[64];
    fail_at(q, q->t.line, q->t.col, "found %s; expected %s", describe(q, found), what);
}

static bool eat(parser *q, char op, const char *what) {
    if (!at(q, op)) {
        expected(q, what);
        return false;
    }
    advance(q);
    return true;
}

static bool is_label(const token *t) {
    if (t->kind != T_NAME) return false;
    for (size_t i = 0; i < 5; i++)
        if (strlen(LABELS[i]) == t->n && !memcmp(LABELS[i], t->s, t->n)) return true;
    return false;
}

static snd_expr *node(parser *q, snd_expr_kind kind, int line, int col) {
    snd_expr *x = snd_arena_alloc(q->arena, sizeof *x);
    if (!x) {
        out_of_memory(q);
        return NULL;
    }
    x->kind = kind;
    x->line = line;
    x->col = col;
    return x;
}

// Children are in place: how tall has the tree become? A sum of many terms leans to the left, one level per term.
static snd_expr *grown(parser *q, snd_expr *x) {
    const snd_expr *const kids[] = {x->a, x->b, x->c};
    int h = 0;
    for (int i = 0; i < 3; i++)
        if (kids[i] && kids[i]->height > h) h = kids[i]->height;
    for (int i = 0; i < x->n_args; i++)
        if (x->args[i].x->height > h) h = x->args[i].x->height;
    x->height = h + 1;
    if (x->height <= MAX_HEIGHT) return x;
    fail_at(q, x->line, x->col, "more than %d operations build on each other in one expression; give a part a name",
            MAX_HEIGHT);
    return NULL;
}

static const char *token_text(parser *q) {
    const char *s = snd_arena_strn(q->arena, q->t.s, q->t.n);
    if (!s) out_of_memory(q);
    return s;
}

static snd_expr *parse_expr(parser *q);

static bool next_is_assign(const parser *q) { // NAME '=' but not NAME '=='
    const char *p = q->p;
    for (;; p++) {
        if (*p == '#') p += strcspn(p, "\n");
        if (*p != ' ' && *p != '\t' && *p != '\n' && *p != '\r') break;
    }
    return p[0] == '=' && p[1] != '=';
}

static void parse_args(parser *q, snd_expr *call) {
    snd_arg list[MAX_ARGS];
    while (!at(q, ')') && !q->failed) {
        if (call->n_args == MAX_ARGS) {
            fail_at(q, q->t.line, q->t.col, "%s has more than %d arguments", call->name, MAX_ARGS);
            return;
        }
        snd_arg *a = &list[call->n_args];
        *a = (snd_arg){.line = q->t.line, .col = q->t.col};
        if (q->t.kind == T_NAME && next_is_assign(q)) {
            a->name = token_text(q);
            advance(q);
            advance(q);
        } else if (call->n_args > call->n_pos) {
            fail_at(q, a->line, a->col, "named arguments of %s come last", call->name);
            return;
        } else {
            call->n_pos++;
        }
        a->x = parse_expr(q);
        if (q->failed) return;
        call->n_args++;
        if (at(q, ',')) {
            advance(q);
            if (at(q, ')')) expected(q, "an argument after ','");
        } else if (!at(q, ')')) {
            char found[64];
            fail_at(q, q->t.line, q->t.col, "found %s; expected ',' or ')' to close '%s(' of line %d, column %d",
                    describe(q, found), call->name, call->line, call->col);
        }
    }
    if (q->failed || call->n_args == 0) return;
    call->args = snd_arena_array(q->arena, (size_t)call->n_args, sizeof *call->args);
    if (!call->args) {
        out_of_memory(q);
        return;
    }
    memcpy(call->args, list, (size_t)call->n_args * sizeof *list);
}

static snd_expr *parse_call(parser *q, snd_expr *x) {
    x->kind = SND_X_CALL;
    q->paren++;
    advance(q);
    parse_args(q, x);
    x->end_line = q->t.line;
    x->end_col = q->t.col;
    q->paren--;
    if (!q->failed) advance(q); // after paren--, so that a newline behind ')' counts again
    return q->failed ? NULL : grown(q, x);
}

static snd_expr *parse_name(parser *q) {
    if (is_label(&q->t)) {
        fail_at(q, q->t.line, q->t.col, "'%.*s' is a section's label and can't be a name here", (int)q->t.n, q->t.s);
        return NULL;
    }
    snd_expr *x = node(q, SND_X_NAME, q->t.line, q->t.col);
    if (!x) return NULL;
    x->name = token_text(q);
    advance(q);
    return q->failed ? NULL : at(q, '(') ? parse_call(q, x) : x;
}

static snd_expr *parse_primary(parser *q) {
    const token t = q->t;
    if (t.kind == T_NAME) return parse_name(q);
    if (t.kind == T_NUM) {
        snd_expr *x = node(q, SND_X_NUM, t.line, t.col);
        if (x) x->num = t.num;
        advance(q);
        return q->failed ? NULL : x;
    }
    if (at(q, '(')) {
        q->paren++;
        advance(q);
        snd_expr *x = parse_expr(q);
        if (q->failed) return NULL;
        q->paren--;
        if (!at(q, ')')) {
            char found[64];
            fail_at(q, q->t.line, q->t.col, "found %s; expected ')' to close '(' of line %d, column %d",
                    describe(q, found), t.line, t.col);
            return NULL;
        }
        advance(q);
        return q->failed ? NULL : x;
    }
    expected(q, "a value: a number, a name, a call or '('");
    return NULL;
}

static snd_expr *binary(parser *q, char op, int line, int col, snd_expr *a, snd_expr *b) {
    if (q->failed) return NULL;
    snd_expr *x = node(q, SND_X_BIN, line, col);
    if (!x) return NULL;
    x->op = op;
    x->a = a;
    x->b = b;
    return grown(q, x);
}

static snd_expr *parse_unary(parser *q);

static snd_expr *parse_power(parser *q) {
    snd_expr *a = parse_primary(q);
    if (q->failed || !at(q, '^')) return a;
    const int line = q->t.line, col = q->t.col;
    if (++q->depth > MAX_DEPTH) {
        fail_at(q, line, col, "nested deeper than %d", MAX_DEPTH);
        return NULL;
    }
    advance(q);
    snd_expr *b = parse_unary(q); // right-associative; 2^-1 is allowed
    q->depth--;
    return binary(q, '^', line, col, a, b);
}

static snd_expr *parse_unary(parser *q) {
    if (!at(q, '-')) return parse_power(q);
    if (++q->depth > MAX_DEPTH) {
        fail_at(q, q->t.line, q->t.col, "nested deeper than %d", MAX_DEPTH);
        return NULL;
    }
    snd_expr *x = node(q, SND_X_NEG, q->t.line, q->t.col);
    advance(q);
    snd_expr *a = parse_unary(q);
    q->depth--;
    if (q->failed || !x) return NULL;
    x->a = a;
    return grown(q, x);
}

static snd_expr *parse_chain(parser *q, snd_expr *(*sub)(parser *), const char *ops) {
    snd_expr *a = sub(q);
    while (!q->failed && q->t.kind == T_PUNCT && strchr(ops, q->t.op)) {
        const token t = q->t;
        advance(q);
        snd_expr *b = sub(q);
        a = binary(q, t.op, t.line, t.col, a, b);
    }
    return q->failed ? NULL : a;
}

static snd_expr *parse_product(parser *q) {
    return parse_chain(q, parse_unary, "*/%");
}
static snd_expr *parse_sum(parser *q) {
    return parse_chain(q, parse_product, "+-");
}

static bool at_comparison(const parser *q) {
    return q->t.kind == T_PUNCT && strchr("<>lgen", q->t.op);
}

static snd_expr *parse_comparison(parser *q) {
    snd_expr *a = parse_sum(q);
    if (q->failed || !at_comparison(q)) return a;
    const token t = q->t;
    advance(q);
    snd_expr *b = parse_sum(q);
    if (!q->failed && at_comparison(q)) {
        fail_at(q, q->t.line, q->t.col, "comparisons do not chain; use parentheses");
        return NULL;
    }
    return binary(q, t.op, t.line, t.col, a, b);
}

static snd_expr *parse_cond(parser *q) {
    snd_expr *a = parse_comparison(q);
    if (q->failed || !at(q, '?')) return a;
    snd_expr *x = node(q, SND_X_COND, a->line, a->col);
    advance(q);
    snd_expr *b = parse_expr(q);
    if (q->failed || !eat(q, ':', "':' of the conditional expression")) return NULL;
    snd_expr *c = parse_expr(q);
    if (q->failed || !x) return NULL;
    x->a = a;
    x->b = b;
    x->c = c;
    return grown(q, x);
}

static snd_expr *parse_expr(parser *q) {
    if (++q->depth > MAX_DEPTH) {
        fail_at(q, q->t.line, q->t.col, "nested deeper than %d", MAX_DEPTH);
        return NULL;
    }
    snd_expr *x = parse_cond(q);
    q->depth--;
    return q->failed ? NULL : x;
}

// ---- statements and sections ------------------------------------------------------------------------------------------

static bool at_end_of_stmt(const parser *q) {
    return q->t.kind == T_END || q->t.kind == T_NEWLINE || at(q, ';') || is_label(&q->t);
}

static void skip_separators(parser *q) {
    while (!q->failed && (q->t.kind == T_NEWLINE || at(q, ';'))) advance(q);
}

// NAME ':' where NAME is no label: a misspelt section.
static void refuse_unknown_label(parser *q) {
    if (q->t.kind != T_NAME || is_label(&q->t)) return;
    const char *p = q->p;
    while (*p == ' ' || *p == '\t') p++;
    if (*p != ':' || p[1] == '=') return;
    char word[32];
    snprintf(word, sizeof word, "%.*s", (int)(q->t.n > 31 ? 31 : q->t.n), q->t.s);
    const char *near = snd_nearest(word, LABELS, 5);
    fail_at(q, q->t.line, q->t.col, "unknown section '%s:'%s%s%s", word, near ? "; did you mean '" : "",
            near ? near : "", near ? ":'?" : "; sections are in, layer, each, out, init");
}

static snd_stmt *parse_stmt(parser *q) {
    if (q->t.kind != T_NAME) {
        expected(q, "a statement: name = expression");
        return NULL;
    }
    snd_stmt *s = snd_arena_alloc(q->arena, sizeof *s);
    if (!s) {
        out_of_memory(q);
        return NULL;
    }
    s->line = q->t.line;
    s->col = q->t.col;
    s->name = token_text(q);
    advance(q);
    if (q->failed || !eat(q, '=', "'=': a statement is name = expression")) return NULL;
    s->x = parse_expr(q);
    if (!q->failed) refuse_unknown_label(q);
    const bool factor = q->t.kind == T_NAME || q->t.kind == T_NUM || at(q, '(');
    if (!q->failed && !at_end_of_stmt(q))
        expected(q, factor ? "an operator (a product is written with '*'), ';', a new line or a section"
                           : "an operator, ';', a new line or a section");
    return q->failed ? NULL : s;
}

static bool expr_calls(const snd_expr *x, const char *fn) {
    if (!x) return false;
    if (x->kind == SND_X_CALL && !strcmp(x->name, fn)) return true;
    for (int i = 0; i < x->n_args; i++)
        if (expr_calls(x->args[i].x, fn)) return true;
    return expr_calls(x->a, fn) || expr_calls(x->b, fn) || expr_calls(x->c, fn);
}

bool snd_expr_calls(const snd_expr *x, const char *fn) {
    return expr_calls(x, fn);
}

static bool list_calls(const snd_stmt *s, const char *fn) {
    for (; s; s = s->next)
        if (expr_calls(s->x, fn)) return true;
    return false;
}

// Which section a label opens; SND_SEC_NONE after an error. `init` is handled by the caller.
static snd_section open_section(parser *q, snd_formula *f, const token *label) {
    snd_section s = SND_SEC_NONE;
    if (label->s[0] == 'l') s = f->has[SND_SEC_EACH] ? SND_SEC_LAYER2 : SND_SEC_LAYER;
    if (label->s[0] == 'e') s = SND_SEC_EACH;
    if (label->s[0] == 'o') s = SND_SEC_OUT;
    if (label->s[0] == 'i') s = SND_SEC_IN;
    if (f->has[s]) {
        fail_at(q, label->line, label->col, "section '%.*s:' is written twice%s", (int)label->n, label->s,
                s == SND_SEC_LAYER ? " (two parts of layer: stand around each:)" : "");
        return SND_SEC_NONE;
    }
    f->has[s] = true;
    return s;
}

static void append(snd_stmt **list, snd_stmt *s) {
    while (*list) list = &(*list)->next;
    *list = s;
}

// Statements up to the next label or the end.
static snd_stmt *parse_stmts(parser *q) {
    snd_stmt *list = NULL;
    skip_separators(q);
    while (!q->failed && q->t.kind != T_END && !is_label(&q->t)) {
        refuse_unknown_label(q);
        if (q->failed) return NULL;
        snd_stmt *s = parse_stmt(q);
        if (q->failed) return NULL;
        append(&list, s);
        skip_separators(q);
    }
    return list;
}

// ---- init rules ---------------------------------------------------------------------------------------------------------

static const char *const KINDS[] = {"normal", "trunc",          "uniform", "zero",  "one",  "lecun", "he",
                                    "xavier", "xavier_uniform", "gpt2",    "llama", "bert", "t5",    "profile"};
static const char *const ROLES[] = {"embed", "pos",    "relative", "q",        "k",         "v",       "o",    "r",
                                    "gate",  "up",     "down",     "W",        "conv",      "stem",    "head", "g",
                                    "b",     "scalar", "vector",   "depthmix", "depthattn", "headgain"};

static const char *known(parser *q, const char *const *words, int n, const char *what) {
    for (int i = 0; i < n; i++)
        if (strlen(words[i]) == q->t.n && !memcmp(words[i], q->t.s, q->t.n)) return words[i];
    char word[40];
    snprintf(word, sizeof word, "%.*s", (int)(q->t.n > 39 ? 39 : q->t.n), q->t.s);
    const char *near = snd_nearest(word, words, n);
    fail_at(q, q->t.line, q->t.col, "unknown %s '%s'%s%s%s", what, word, near ? "; did you mean '" : "",
            near ? near : "", near ? "'?" : "");
    return NULL;
}

static void parse_kind(parser *q, snd_init_rule *r) {
    r->kind = known(q, KINDS, (int)(sizeof KINDS / sizeof *KINDS), "kind of init");
    if (q->failed) return;
    advance(q);
    const bool needs = !strcmp(r->kind, "normal") || !strcmp(r->kind, "trunc") || !strcmp(r->kind, "uniform");
    if (needs && !at(q, '(')) {
        char what[64];
        snprintf(what, sizeof what, "'(': %s takes a number, e.g. %s(0.02)", r->kind, r->kind);
        expected(q, what);
        return;
    }
    if (!needs) return;
    q->paren++;
    advance(q);
    r->args[0] = parse_expr(q);
    r->n_args = 1;
    q->paren--;
    if (!q->failed) eat(q, ')', "')'");
}

static bool rule_has_roles(const parser *q) {
    const char *p = q->p;
    while (*p == ' ' || *p == '\t') p++;
    return *p == ',' || (*p == '=' && p[1] != '=') || (*p == '*' && p[1] == '=');
}

static void parse_roles(parser *q, snd_init_rule *r) {
    const char *list[MAX_ROLES];
    for (;;) {
        if (q->t.kind != T_NAME || r->n_roles == MAX_ROLES) {
            expected(q, "a role such as q, k, v, o, up, down, W, embed");
            return;
        }
        list[r->n_roles] = known(q, ROLES, (int)(sizeof ROLES / sizeof *ROLES), "role");
        if (q->failed) return;
        r->n_roles++;
        advance(q);
        if (!at(q, ',')) break;
        advance(q);
    }
    const char **copy = snd_arena_array(q->arena, (size_t)r->n_roles, sizeof *copy);
    if (!copy) {
        out_of_memory(q);
        return;
    }
    memcpy(copy, list, (size_t)r->n_roles * sizeof *list);
    r->roles = copy;
    if (at(q, 'M')) {
        advance(q);
        r->factor = parse_expr(q);
    } else if (eat(q, '=', "'*=' and a factor or '=' and a kind")) {
        if (q->t.kind != T_NAME)
            expected(q, "a kind of init");
        else
            parse_kind(q, r);
    }
}

static snd_init_rule *parse_init(parser *q) {
    snd_init_rule *list = NULL, **tail = &list;
    skip_separators(q);
    while (!q->failed && q->t.kind != T_END && !is_label(&q->t)) {
        snd_init_rule *r = snd_arena_alloc(q->arena, sizeof *r);
        if (!r) {
            out_of_memory(q);
            return NULL;
        }
        r->line = q->t.line;
        r->col = q->t.col;
        if (q->t.kind != T_NAME) {
            expected(q, "an init rule: a kind, or roles *= factor, or roles = kind");
        } else if (rule_has_roles(q)) {
            parse_roles(q, r);
        } else {
            parse_kind(q, r);
            if (!q->failed && list && strcmp(r->kind, "profile"))
                fail_at(q, r->line, r->col, "the base kind '%s' comes first in an init, before the rules for roles",
                        r->kind);
        }
        if (!q->failed && !at_end_of_stmt(q)) expected(q, "';', a new line or a section");
        if (q->failed) return NULL;
        *tail = r;
        tail = &r->next;
        skip_separators(q);
    }
    return list;
}

// ---- public ---------------------------------------------------------------------------------------------------------------

static parser start(snd_arena *a, const char *text) {
    parser q = {.arena = a, .p = text, .line = 1, .col = 1};
    advance(&q);
    return q;
}

static void parse_labelled(parser *q, snd_formula *f, bool *has_init) {
    const token label = q->t;
    advance(q);
    if (!at(q, ':')) {
        fail_at(q, label.line, label.col, "'%.*s' is a section's label and needs ':' after it", (int)label.n, label.s);
        return;
    }
    advance(q);
    if (label.n == 4 && !memcmp(label.s, "init", 4)) {
        if (*has_init) fail_at(q, label.line, label.col, "section 'init:' is written twice");
        *has_init = true;
        f->init = parse_init(q);
        return;
    }
    const snd_section s = open_section(q, f, &label);
    if (!q->failed) f->sec[s] = parse_stmts(q);
}

sonde_status snd_formula_parse(snd_arena *a, const char *text, snd_formula **out) {
    snd_formula *f;
    SND_NEW(a, f, 1);
    f->text = snd_arena_str(a, text);
    if (!f->text) return SONDE_ENOMEM;
    parser q = start(a, f->text);
    bool has_init = false;
    snd_stmt *first = parse_stmts(&q);
    if (first) {
        const snd_section s = list_calls(first, "F") ? SND_SEC_EACH : SND_SEC_LAYER;
        f->sec[s] = first;
        f->has[s] = true;
    }
    while (!q.failed && q.t.kind != T_END) parse_labelled(&q, f, &has_init);
    if (!q.failed && !f->has[SND_SEC_IN] && !f->has[SND_SEC_LAYER] && !f->has[SND_SEC_EACH] && !f->has[SND_SEC_OUT])
        fail_at(&q, 1, 1, "the formula has no statement; expected e.g. each: x = x + F(N(x))");
    if (q.failed) return q.code;
    *out = f;
    return SONDE_OK;
}

sonde_status snd_expr_parse(snd_arena *a, const char *text, snd_expr **out) {
    const char *copy = snd_arena_str(a, text);
    if (!copy) return SONDE_ENOMEM;
    parser q = start(a, copy);
    q.paren = 1; // a bare expression may run over several lines
    while (!q.failed && q.t.kind == T_NEWLINE) advance(&q);
    snd_expr *x = q.failed ? NULL : parse_expr(&q);
    if (!q.failed && q.t.kind != T_END) expected(&q, "an operator or the end");
    if (q.failed) return q.code;
    *out = x;
    return SONDE_OK;
}

sonde_status snd_init_parse(snd_arena *a, const char *text, snd_init_rule **out) {
    const char *copy = snd_arena_str(a, text);
    if (!copy) return SONDE_ENOMEM;
    parser q = start(a, copy);
    snd_init_rule *r = parse_init(&q);
    if (!q.failed && q.t.kind != T_END) expected(&q, "an init rule");
    if (!q.failed && !r) fail_at(&q, 1, 1, "the init is empty; expected a kind such as xavier or normal(0.02)");
    if (q.failed) return q.code;
    *out = r;
    return SONDE_OK;
}

bool snd_is_formula(const char *text) {
    return strchr(text, '=') != NULL;
}

bool snd_formula_calls(const snd_formula *f, const char *fn) {
    for (int s = 0; s < SND_SEC_COUNT; s++)
        if (list_calls(f->sec[s], fn)) return true;
    return false;
}

bool snd_expr_mentions(const snd_expr *x, const char *name) {
    if (!x) return false;
    if (x->kind == SND_X_NAME && !strcmp(x->name, name)) return true;
    for (int i = 0; i < x->n_args; i++)
        if (snd_expr_mentions(x->args[i].x, name)) return true;
    return snd_expr_mentions(x->a, name) || snd_expr_mentions(x->b, name) || snd_expr_mentions(x->c, name);
}

bool snd_formula_mentions(const snd_formula *f, const char *name) {
    for (int s = 0; s < SND_SEC_COUNT; s++)
        for (const snd_stmt *t = f->sec[s]; t; t = t->next)
            if (snd_expr_mentions(t->x, name)) return true;
    for (const snd_init_rule *r = f->init; r; r = r->next)
        if (snd_expr_mentions(r->factor, name) || snd_expr_mentions(r->args[0], name)) return true;
    return false;
}
