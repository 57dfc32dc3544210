// The walker: evaluates a wiring's sections in order, keeps scopes, folds constants, counts sites and names values, and
// asks a reader what each operation means. It runs every stack twice: first counting sublayer calls without the
// reader (that fixes S and s), then for real. What it does not know: tensors, moments, costs; those are readers.
#include "formula/inner.h"

#include <math.h>
#include <string.h>

enum { MAX_VARS = 64, MAX_ARGS = 32 };

typedef struct var {
    const char *name;
    snd_val v;
    bool tapped;
} var;

typedef struct scope {
    var vars[MAX_VARS];
    int n;
    struct scope *outer;
} scope;

enum { C_NORM, C_LINEAR, C_SCALAR, C_VECTOR, C_DEPTHMIX, C_DEPTHATTN, C_CONV, C_SHORTCUT, C_COUNT };

typedef struct list {
    snd_val *v;
    int n, cap;
} list;

typedef struct walker {
    snd_walk *w;
    const snd_stack *st;
    const snd_reader *r;
    snd_arena *arena;
    bool counting;  // first run: no reader, S unknown
    int calls, S;   // sublayer calls so far; in the whole stack
    double s;       // fixed before each statement
    bool s_missing; // no call is left for s to name
    int layer;      // from 0; -1 outside layers
    char rep;       // 0, 'A', 'C', 'M', 'F'
    snd_section sec;
    scope *top;            // innermost scope
    scope in_scope;        // streams
    int calls_of[128];     // per letter within the layer
    int counters[C_COUNT]; // of the section that is running
    int layer_counters[C_COUNT];
    const char *prefix; // of the sites of this section, e.g. "layers.3.A"
    bool in_block;      // inside the mlp's block: only u and constants are visible
    bool silent;        // asks no reader: a block's maps are being counted
    const char *inner;  // site of the norm before the block's last map (inner=1); NULL: none
    int last_map;       // number of that map among the block's W
    snd_val u;
    list mix, attn;
    int64_t dummy; // ids of the counting run
} walker;

#define FAIL_AT(x, code, ...) return fail_place((x)->line, (x)->col, code, __VA_ARGS__)

static sonde_status fail_place(int line, int col, sonde_status code, const char *fmt, ...) SND_PRINTF(4, 5);
static sonde_status fail_place(int line, int col, sonde_status code, const char *fmt, ...) {
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return snd_fail(code, __FILE__, __LINE__, "line %d, column %d: %s", line, col, text);
}

static snd_val constant(double v, bool uses_S) {
    return (snd_val){.kind = SND_V_CONST, .num = v, .uses_S = uses_S};
}

static const char *kind_text(const snd_val *v, char out[80]) {
    switch (v->kind) {
    case SND_V_CONST: return "a number";
    case SND_V_SCALAR: return "a learned number";
    case SND_V_VECTOR: snprintf(out, 80, "a vector of %lld", (long long)v->cols); return out;
    case SND_V_TOKEN: return "one number per row";
    case SND_V_EXAMPLE: snprintf(out, 80, "%lld numbers per example", (long long)v->cols); return out;
    case SND_V_STREAM: snprintf(out, 80, "%lld features", (long long)v->cols); return out;
    case SND_V_MAP:
        snprintf(out, 80, "%lld channels of %lld x %lld", (long long)v->cols, (long long)v->h, (long long)v->w);
        return out;
    default: return "nothing";
    }
}

// Calls a reader's operation, or makes up an id in the counting run.
#define ASK(op, out, ...)                                                                                              \
    do {                                                                                                               \
        if (w->counting || w->silent) {                                                                                \
            (out)->id = (int32_t)++w->dummy;                                                                           \
        } else {                                                                                                       \
            SND_FAIL_IF(!w->r->op, SONDE_EUNSUPPORTED, "line %d, column %d: %s is not available in this family",       \
                        x->line, x->col, x->name ? x->name : #op);                                                     \
            SND_TRY(w->r->op(w->r->self, __VA_ARGS__));                                                                \
        }                                                                                                              \
    } while (0)

// ---- names --------------------------------------------------------------------------------------------------------------

static sonde_status site_name(walker *w, int counter, const char *letter, const snd_expr *x, snd_site *out) {
    const int i = ++w->counters[counter];
    out->name = snd_arena_printf(w->arena, "%s.%s%d", w->prefix, letter, i);
    out->x = x;
    out->layer = w->layer;
    return out->name ? SONDE_OK : SONDE_ENOMEM;
}

static sonde_status tap_as(walker *w, snd_val v, const char *fmt, const char *a, const char *b) {
    if (w->counting || w->silent || !w->r->tap || v.kind == SND_V_CONST) return SONDE_OK;
    const char *name = snd_arena_printf(w->arena, fmt, a, b);
    if (!name) return SONDE_ENOMEM;
    return w->r->tap(w->r->self, name, v);
}

static sonde_status alias(walker *w, snd_val v, snd_val *out) {
    *out = v;
    if (w->counting || w->silent || v.kind == SND_V_CONST || !w->r->alias) return SONDE_OK;
    return w->r->alias(w->r->self, v, out);
}

// ---- constants and names of values ------------------------------------------------------------------------------------------

static bool base_constant(const walker *w, const char *name, snd_val *out) {
    const snd_stack *t = w->st;
    const bool in_layer = w->layer >= 0;
    const struct {
        const char *name;
        double v;
        bool there;
    } table[] = {{"L", t->L, true},         {"Le", t->Le, true},       {"Ld", t->Ld, true},
                 {"cross", t->cross, true}, {"d", (double)t->d, true}, {"n", (double)t->n, true},
                 {"pi", M_PI, true},        {"e", M_E, true},          {"l", w->layer + 1, in_layer},
                 {"s", w->s, in_layer}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].there && !strcmp(table[i].name, name)) {
            *out = constant(table[i].v, false);
            return true;
        }
    if (strcmp(name, "S")) return false;
    *out = constant(w->counting ? NAN : w->S, w->counting);
    return true;
}

static var *find_var(walker *w, const char *name) {
    for (scope *s = w->top; s; s = s->outer)
        for (int i = 0; i < s->n; i++)
            if (!strcmp(s->vars[i].name, name)) return &s->vars[i];
    return NULL;
}

static sonde_status unassigned(walker *w, const snd_expr *x) {
    const char *known[MAX_VARS * 3 + 12];
    int n = 0;
    for (scope *s = w->top; s && !w->in_block; s = s->outer)
        for (int i = 0; i < s->n; i++) known[n++] = s->vars[i].name;
    static const char *const consts[] = {"L", "Le", "Ld", "cross", "pi"};
    for (size_t i = 0; i < sizeof consts / sizeof *consts; i++) known[n++] = consts[i];
    if ((!strcmp(x->name, "l") || !strcmp(x->name, "s")) && w->layer < 0)
        FAIL_AT(x, SONDE_ENAME, "'%s' does not exist in in: and out:, which belong to no layer", x->name);
    const char *near = snd_nearest(x->name, known, n);
    if (near) FAIL_AT(x, SONDE_ENAME, "'%s' is read but nothing assigned it; did you mean '%s'?", x->name, near);
    FAIL_AT(x, SONDE_ENAME, "'%s' is read but nothing assigned it; %s", x->name,
            w->in_block ? "a block knows its input u and constants (n, d, l, L)"
                        : "the stream is x in every layer, without a subscript");
}

static sonde_status eval_name(walker *w, const snd_expr *x, snd_val *out) {
    if (w->in_block) {
        if (!strcmp(x->name, "u")) {
            *out = w->u;
            return SONDE_OK;
        }
    } else {
        const var *v = find_var(w, x->name);
        if (v) {
            *out = v->v;
            return SONDE_OK;
        }
    }
    if (base_constant(w, x->name, out)) {
        if (!strcmp(x->name, "s") && w->s_missing && !w->counting)
            FAIL_AT(x, SONDE_ENAME, "'s' names the next sublayer call, but none is left in this stack");
        return SONDE_OK;
    }
    if (!strcmp(x->name, "c")) {
        if (w->st->cond <= 0)
            FAIL_AT(x, SONDE_ENAME, "'c' is the conditioning vector, but this model has none; give cond=NUMBER");
        // the rows of an mlp are its examples: c is like any other value there
        const snd_vkind row = w->st->cond == 1 && w->st->d != 1 ? SND_V_TOKEN : SND_V_STREAM;
        *out = (snd_val){.kind = w->st->mlp ? row : SND_V_EXAMPLE, .cols = w->st->cond};
        ASK(cond, out, out);
        return SONDE_OK;
    }
    return unassigned(w, x);
}

// ---- arithmetic ---------------------------------------------------------------------------------------------------------------

static sonde_status eval(walker *w, const snd_expr *x, snd_val *out);

static bool is_const(const snd_val *v) {
    return v->kind == SND_V_CONST;
}

static sonde_status fold(const snd_expr *x, double v, bool uses_S, snd_val *out) {
    if (!uses_S && !isfinite(v)) FAIL_AT(x, SONDE_ERANGE, "this constant is not a finite number");
    *out = constant(v, uses_S);
    return SONDE_OK;
}

// The kind of a (+) b under broadcasting; SND_V_NONE when they do not fit.
static snd_val broadcast(const snd_val *a, const snd_val *b) {
    if (a->kind < b->kind) { // order: the wider kind first
        const snd_val *t = a;
        a = b;
        b = t;
    }
    snd_val v = *a;
    const bool fits = a->cols == b->cols;
    const snd_val none = {0};
    switch (b->kind) {
    case SND_V_CONST:
    case SND_V_SCALAR: return v;
    case SND_V_VECTOR:
        if (a->kind == SND_V_MAP) return none;
        if (a->kind == SND_V_TOKEN)
            v = (snd_val){.kind = SND_V_STREAM, .cols = b->cols};
        else if (a->kind == SND_V_EXAMPLE && a->cols == 1)
            v.cols = b->cols;
        else if (!fits)
            return none;
        return v;
    case SND_V_TOKEN:
        if (a->kind == SND_V_MAP) return none;
        if (a->kind == SND_V_EXAMPLE) v.kind = a->cols == 1 ? SND_V_TOKEN : SND_V_STREAM;
        return v;
    case SND_V_EXAMPLE:
        if (a->kind == SND_V_MAP) return none;
        if (a->kind == SND_V_EXAMPLE && a->cols == 1)
            v.cols = b->cols;
        else if (b->cols != 1 && !fits)
            return none;
        return v;
    default: return a->kind == b->kind && fits && a->h == b->h && a->w == b->w ? v : none;
    }
}

static sonde_status combine(walker *w, const snd_expr *x, snd_bin op, const char *sign, snd_val a, snd_val b,
                            snd_val *out) {
    *out = broadcast(&a, &b);
    if (out->kind == SND_V_NONE) {
        char ta[80], tb[80];
        FAIL_AT(x, SONDE_ESHAPE, "'%s' joins %s with %s; they do not fit", sign, kind_text(&a, ta), kind_text(&b, tb));
    }
    out->id = 0;
    ASK(binary, out, op, a, b, out);
    return SONDE_OK;
}

static sonde_status eval_binary(walker *w, const snd_expr *x, snd_val *out) {
    snd_val a = {0}, b = {0};
    SND_TRY(eval(w, x->a, &a));
    SND_TRY(eval(w, x->b, &b));
    if (is_const(&a) && is_const(&b)) return fold(x, snd_const_binary(x->op, a.num, b.num), a.uses_S || b.uses_S, out);
    if (x->op == '/' && is_const(&b) && b.num == 0)
        FAIL_AT(x, SONDE_ERANGE, "division by a constant that is 0%s", w->layer >= 0 ? " in this layer" : "");
    const char sign[2] = {x->op, 0};
    switch (x->op) {
    case '+': return combine(w, x, SND_BIN_ADD, sign, a, b, out);
    case '-': return combine(w, x, SND_BIN_SUB, sign, a, b, out);
    case '*': return combine(w, x, SND_BIN_MUL, sign, a, b, out);
    case '/': return combine(w, x, SND_BIN_DIV, sign, a, b, out);
    case '^': FAIL_AT(x, SONDE_ETYPE, "'^' is for constants; write u*u for a square");
    case '%': FAIL_AT(x, SONDE_ETYPE, "'%%' is for constants");
    default: FAIL_AT(x, SONDE_ETYPE, "a comparison needs constants on both sides; this one depends on the data");
    }
}

static bool calls_sublayer(const snd_expr *x) {
    return snd_expr_calls(x, "A") || snd_expr_calls(x, "C") || snd_expr_calls(x, "M") || snd_expr_calls(x, "F");
}

static sonde_status eval_cond(walker *w, const snd_expr *x, snd_val *out) {
    snd_val c = {0};
    SND_TRY(eval(w, x->a, &c));
    if (!is_const(&c))
        FAIL_AT(x->a, SONDE_ETYPE, "the condition of '?' must be a constant; this one depends on the data");
    if (!c.uses_S) return eval(w, c.num != 0 ? x->b : x->c, out);
    if (calls_sublayer(x->b) || calls_sublayer(x->c))
        FAIL_AT(x->a, SONDE_ETYPE, "S counts the sublayer calls, so it may not decide whether one runs");
    SND_TRY(eval(w, x->b, out)); // counting: only the kind matters
    if (is_const(out)) *out = constant(NAN, true);
    return SONDE_OK;
}

static sonde_status eval_neg(walker *w, const snd_expr *x, snd_val *out) {
    snd_val a = {0};
    SND_TRY(eval(w, x->a, &a));
    if (is_const(&a)) return fold(x, -a.num, a.uses_S, out);
    *out = a;
    ASK(unary, out, SND_FN_NEG, a, out);
    return SONDE_OK;
}

// ---- calls: arguments ----------------------------------------------------------------------------------------------------------

typedef struct args {
    const snd_expr *x;
    snd_val v[MAX_ARGS];
    int n;
} args;

static sonde_status count_args(const snd_expr *x, int least, int most) {
    if (x->n_pos >= least && x->n_pos <= most) return SONDE_OK;
    if (least == most)
        FAIL_AT(x, SONDE_ETYPE, "%s has %d argument%s; it takes %d", x->name, x->n_pos, x->n_pos == 1 ? "" : "s",
                least);
    FAIL_AT(x, SONDE_ETYPE, "%s has %d argument%s; it takes %d to %d", x->name, x->n_pos, x->n_pos == 1 ? "" : "s",
            least, most);
}

static sonde_status eval_args(walker *w, const snd_expr *x, int least, int most, args *a) {
    SND_TRY(count_args(x, least, most));
    a->x = x;
    a->n = x->n_pos;
    for (int i = 0; i < a->n; i++) SND_TRY(eval(w, x->args[i].x, &a->v[i]));
    return SONDE_OK;
}

typedef struct named {
    const char *name;
    double v;
    bool given;
} named;

// Named arguments are constants; unknown ones are refused with the nearest known name.
static sonde_status eval_named(walker *w, const snd_expr *x, named *known, int n) {
    for (int i = x->n_pos; i < x->n_args; i++) {
        const snd_arg *g = &x->args[i];
        int k = 0;
        while (k < n && strcmp(known[k].name, g->name)) k++;
        if (k == n) {
            const char *names[8] = {0};
            for (int j = 0; j < n; j++) names[j] = known[j].name;
            const char *near = snd_nearest(g->name, names, n);
            FAIL_AT(g, SONDE_ENAME, "%s has no argument '%s'%s%s%s", x->name, g->name, near ? "; did you mean '" : "",
                    near ? near : "",
                    near ? "'?"
                    : n  ? ""
                         : "; it takes no named ones");
        }
        if (known[k].given) FAIL_AT(g, SONDE_ETYPE, "%s: '%s' is given twice", x->name, g->name);
        snd_val v = {0};
        SND_TRY(eval(w, g->x, &v));
        if (!is_const(&v))
            FAIL_AT(g, SONDE_ETYPE, "%s: '%s' must be a constant; this depends on the data", x->name, g->name);
        known[k].v = v.uses_S ? 1 : v.num;
        known[k].given = true;
    }
    return SONDE_OK;
}

static sonde_status const_arg(const args *a, int i, const char *what, double *out) {
    const snd_expr *x = a->x->args[i].x;
    if (!is_const(&a->v[i])) FAIL_AT(x, SONDE_ETYPE, "%s: %s must be a constant", a->x->name, what);
    *out = a->v[i].num;
    return SONDE_OK;
}

static sonde_status count_arg(walker *w, const args *a, int i, const char *what, int64_t *out) {
    double v = 0;
    SND_TRY(const_arg(a, i, what, &v));
    if (a->v[i].uses_S && w->counting) v = (double)w->st->d; // not known yet: any width that fits a stream
    const snd_expr *x = a->x->args[i].x;
    char t[40];
    if (!(v >= 1 && v <= 1e9 && v == floor(v)))
        FAIL_AT(x, SONDE_ERANGE, "%s: %s is %s; it must be a whole number from 1", a->x->name, what,
                snd_format_num(t, v, 6));
    *out = (int64_t)v;
    return SONDE_OK;
}

static sonde_status need_rows(const snd_expr *x, const snd_val *v) {
    char t[80];
    if (v->kind != SND_V_STREAM && v->kind != SND_V_EXAMPLE && v->kind != SND_V_TOKEN)
        FAIL_AT(x, SONDE_ESHAPE, "%s needs a stream (rows of features), but got %s", x->name, kind_text(v, t));
    return SONDE_OK;
}

// ---- calls: one function each ---------------------------------------------------------------------------------------------------

static sonde_status call_elementwise(walker *w, const snd_expr *x, snd_fn f, snd_val *out) {
    args a;
    SND_TRY(eval_named(w, x, NULL, 0));
    SND_TRY(eval_args(w, x, 1, 1, &a));
    if (is_const(&a.v[0])) return fold(x, snd_fn_apply(f, a.v[0].num), a.v[0].uses_S, out);
    *out = a.v[0];
    ASK(unary, out, f, a.v[0], out);
    return SONDE_OK;
}

static sonde_status call_minmax(walker *w, const snd_expr *x, snd_val *out) {
    args a;
    SND_TRY(eval_named(w, x, NULL, 0));
    SND_TRY(eval_args(w, x, 2, MAX_ARGS, &a));
    const bool is_max = x->name[1] == 'a';
    *out = a.v[0];
    for (int i = 1; i < a.n; i++) {
        const snd_val p = *out;
        if (is_const(&p) && is_const(&a.v[i]))
            SND_TRY(
                fold(x, is_max ? fmax(p.num, a.v[i].num) : fmin(p.num, a.v[i].num), p.uses_S || a.v[i].uses_S, out));
        else
            SND_TRY(combine(w, x, is_max ? SND_BIN_MAX : SND_BIN_MIN, x->name, p, a.v[i], out));
    }
    return SONDE_OK;
}

static sonde_status call_floor(walker *w, const snd_expr *x, snd_val *out) {
    args a;
    SND_TRY(eval_named(w, x, NULL, 0));
    SND_TRY(eval_args(w, x, 1, 1, &a));
    if (!is_const(&a.v[0])) FAIL_AT(x, SONDE_ETYPE, "floor is for constants; its argument depends on the data");
    return fold(x, floor(a.v[0].num), a.v[0].uses_S, out);
}

static sonde_status call_norm(walker *w, const snd_expr *x, snd_norm_kind kind, bool affine, snd_val *out) {
    args a;
    snd_norm_args n = w->st->norm;
    if (kind != SND_NORM_INVALID) n.kind = kind;
    n.affine = affine;
    SND_TRY(eval_args(w, x, 1, 1, &a));
    named k[] = {{.name = "eps", .v = n.eps}, {.name = "gain", .v = n.gain}, {.name = "plus1", .v = n.plus1}};
    SND_TRY(eval_named(w, x, k, 3));
    if (!(k[0].v >= 0)) FAIL_AT(x, SONDE_ERANGE, "%s: eps must not be negative", x->name);
    n.eps = k[0].v;
    n.has_gain = k[1].given;
    n.gain = k[1].v;
    n.plus1 = k[2].v != 0;
    char t[80];
    if (a.v[0].kind != SND_V_STREAM && a.v[0].kind != SND_V_MAP && a.v[0].kind != SND_V_EXAMPLE)
        FAIL_AT(x, SONDE_ESHAPE, "%s needs a stream (rows of features), but got %s", x->name, kind_text(&a.v[0], t));
    snd_site site;
    SND_TRY(site_name(w, C_NORM, "N", x, &site));
    *out = a.v[0];
    ASK(norm, out, &site, &n, a.v[0], out);
    return tap_as(w, *out, "%s.out%s", site.name, "");
}

// Is `x` inside another W of this tree?
static bool inside_linear(const snd_expr *root, const snd_expr *x, bool in) {
    if (!root) return false;
    if (root == x) return in;
    const bool deeper = in || (root->kind == SND_X_CALL && !strcmp(root->name, "W"));
    for (int i = 0; i < root->n_args; i++)
        if (inside_linear(root->args[i].x, x, deeper)) return true;
    return inside_linear(root->a, x, in) || inside_linear(root->b, x, in) || inside_linear(root->c, x, in);
}

// Maps of the mlp's block also answer to the feed-forward roles, so that rules such as deepnorm's reach them: the
// outermost of several is the last one.
static const char *block_role(const walker *w, const snd_expr *x) {
    if (!w->in_block) return NULL;
    return !inside_linear(w->st->block, x, false) && snd_expr_calls(x->args[0].x, "W") ? "down" : "up";
}

// inner=1: the model's norm stands before the block's last map.
static sonde_status inner_norm(walker *w, const snd_expr *x, snd_val *v) {
    if (!w->in_block || !w->inner || w->counters[C_LINEAR] != w->last_map) return SONDE_OK;
    const snd_site site = {.name = w->inner, .x = x, .layer = w->layer};
    const snd_val u = *v;
    ASK(norm, v, &site, &w->st->norm, u, v);
    return tap_as(w, *v, "%s.out%s", site.name, "");
}

static sonde_status call_linear(walker *w, const snd_expr *x, snd_val *out) {
    args a;
    SND_TRY(eval_args(w, x, 1, 2, &a));
    snd_linear_args l = {.out = w->st->d, .gain = 1, .role = "W", .alt = block_role(w, x)};
    if (a.n == 2) SND_TRY(count_arg(w, &a, 1, "the number of features", &l.out));
    named k[] = {{.name = "gain", .v = 1}, {.name = "bias"}, {.name = "zero"}};
    SND_TRY(eval_named(w, x, k, 3));
    l.gain = k[0].v;
    l.has_gain = k[0].given;
    l.bias = k[1].v != 0;
    l.zero = k[2].v != 0;
    if (!(l.gain >= 0)) FAIL_AT(x, SONDE_ERANGE, "W: gain is a variance times fan_in and must not be negative");
    SND_TRY(need_rows(x, &a.v[0]));
    snd_site site;
    SND_TRY(site_name(w, C_LINEAR, "W", x, &site));
    SND_TRY(inner_norm(w, x, &a.v[0]));
    *out = a.v[0];
    out->cols = l.out;
    if (a.v[0].kind != SND_V_EXAMPLE) out->kind = l.out == 1 && w->st->d != 1 ? SND_V_TOKEN : SND_V_STREAM;
    ASK(linear, out, &site, &l, a.v[0], out);
    return SONDE_OK;
}

static sonde_status call_learned(walker *w, const snd_expr *x, bool vector, snd_val *out) {
    args a;
    double init = 0;
    SND_TRY(eval_named(w, x, NULL, 0));
    SND_TRY(eval_args(w, x, 1, 1, &a));
    SND_TRY(const_arg(&a, 0, "the initial value", &init));
    snd_site site;
    SND_TRY(site_name(w, vector ? C_VECTOR : C_SCALAR, vector ? "v" : "s", x, &site));
    *out = (snd_val){.kind = vector ? SND_V_VECTOR : SND_V_SCALAR, .cols = vector ? w->st->d : 1};
    if (vector)
        ASK(vector, out, &site, init, out);
    else
        ASK(scalar, out, &site, init, out);
    return SONDE_OK;
}

static sonde_status call_rows(walker *w, const snd_expr *x, snd_val *out) { // unit, dot, rms
    args a;
    const bool dot = x->name[0] == 'd';
    SND_TRY(eval_named(w, x, NULL, 0));
    SND_TRY(eval_args(w, x, dot ? 2 : 1, dot ? 2 : 1, &a));
    char t[80], t2[80];
    for (int i = 0; i < a.n; i++)
        if (a.v[i].kind != SND_V_STREAM && a.v[i].kind != SND_V_EXAMPLE && !(dot && a.v[i].kind == SND_V_VECTOR))
            FAIL_AT(x, SONDE_ESHAPE, "%s needs a stream (rows of features), but got %s", x->name,
                    kind_text(&a.v[i], t));
    if (dot && a.v[0].cols != a.v[1].cols)
        FAIL_AT(x, SONDE_ESHAPE, "dot of %s and %s", kind_text(&a.v[0], t), kind_text(&a.v[1], t2));
    if (dot && a.v[0].kind == SND_V_VECTOR && a.v[1].kind == SND_V_VECTOR)
        FAIL_AT(x, SONDE_ESHAPE, "dot needs a stream on one side; both are vectors");
    *out = a.v[0];
    if (x->name[0] == 'u') {
        ASK(unit, out, a.v[0], out);
        return SONDE_OK;
    }
    const bool example = a.v[0].kind == SND_V_EXAMPLE && (!dot || a.v[1].kind != SND_V_STREAM);
    *out = (snd_val){.kind = example ? SND_V_EXAMPLE : SND_V_TOKEN, .cols = 1};
    if (dot)
        ASK(dot, out, a.v[0], a.v[1], out);
    else
        ASK(rms, out, a.v[0], out);
    return SONDE_OK;
}

static sonde_status call_pass(walker *w, const snd_expr *x, snd_val *out) { // stop, drop, droppath
    args a;
    SND_TRY(eval_named(w, x, NULL, 0));
    SND_TRY(eval_args(w, x, 1, 1, &a));
    *out = a.v[0];
    if (is_const(out)) return SONDE_OK;
    if (x->name[0] == 's') {
        ASK(stop, out, a.v[0], out);
    } else if (!w->counting && !w->silent && w->r->drop) {
        SND_TRY(w->r->drop(w->r->self, x->name[4] == 'p', a.v[0], out));
    }
    return SONDE_OK;
}

static sonde_status push(list *l, snd_val v) {
    int64_t cap = l->cap;
    if (!snd_grow((void **)&l->v, &cap, l->n + 1, sizeof *l->v)) return SONDE_ENOMEM;
    l->cap = (int)cap;
    l->v[l->n++] = v;
    return SONDE_OK;
}

static sonde_status call_depth(walker *w, const snd_expr *x, bool attn, snd_val *out) {
    args a;
    SND_TRY(eval_named(w, x, NULL, 0));
    SND_TRY(eval_args(w, x, 1, 1, &a));
    list *l = attn ? &w->attn : &w->mix;
    char t[80], t2[80];
    if (a.v[0].kind != SND_V_STREAM || (l->n && l->v[0].cols != a.v[0].cols))
        FAIL_AT(x, SONDE_ESHAPE, "%s collects streams of equal width%s%s, but got %s", x->name, l->n ? ", so far " : "",
                l->n ? kind_text(&l->v[0], t2) : "", kind_text(&a.v[0], t));
    SND_TRY(push(l, a.v[0]));
    snd_site site;
    SND_TRY(site_name(w, attn ? C_DEPTHATTN : C_DEPTHMIX, x->name, x, &site));
    *out = a.v[0];
    if (attn)
        ASK(depthattn, out, &site, l->v, l->n, w->st->norm.eps, out);
    else
        ASK(depthmix, out, &site, l->v, l->n, out);
    return SONDE_OK;
}

// ---- sublayers ----------------------------------------------------------------------------------------------------------------

static sonde_status eval_block(walker *w, snd_val u, snd_val *out) {
    memset(w->counters, 0, sizeof w->counters);
    w->in_block = true;
    w->u = u;
    const sonde_status s = eval(w, w->st->block, out);
    w->in_block = false;
    return s == SONDE_OK ? s : snd_fail_prefix(s, "block: ");
}

// How many maps the block has in this layer: the last one to close is the one that inner=1 means.
static sonde_status count_maps(walker *w, const snd_expr *x, snd_val u, int *out) {
    snd_val v = {0};
    w->silent = true;
    const sonde_status s = eval_block(w, u, &v);
    w->silent = false;
    SND_TRY(s);
    *out = w->counters[C_LINEAR];
    if (!*out) FAIL_AT(x, SONDE_ETYPE, "%s: 'inner' is a norm before the block's last W, but it has none", x->name);
    return SONDE_OK;
}

static sonde_status run_block(walker *w, const snd_expr *x, const char *call, bool inner, snd_val u, snd_val *out) {
    int counters[C_COUNT];
    const char *prefix = w->prefix;
    memcpy(counters, w->counters, sizeof counters);
    w->prefix = snd_arena_printf(w->arena, "%s.block", call);
    w->inner = inner ? snd_arena_printf(w->arena, "%s.inner", call) : NULL;
    if (!w->prefix || (inner && !w->inner)) return SONDE_ENOMEM;
    if (inner) SND_TRY(count_maps(w, x, u, &w->last_map));
    SND_TRY(eval_block(w, u, out));
    memcpy(w->counters, counters, sizeof w->counters);
    w->prefix = prefix;
    return SONDE_OK;
}

static sonde_status check_sublayer(walker *w, const snd_expr *x) {
    const char f = x->name[0];
    if (w->in_block)
        FAIL_AT(x, SONDE_ETYPE, "%s can't be called inside the block, which is itself the sublayer", x->name);
    if (f == 'F') {
        if (w->sec != SND_SEC_EACH)
            FAIL_AT(x, SONDE_ETYPE, "F belongs to each:, not to %s; write 'each: ...', or in layer: call %s by name",
                    w->sec == SND_SEC_IN    ? "in:"
                    : w->sec == SND_SEC_OUT ? "out:"
                                            : "layer:",
                    w->st->mlp ? "M" : "A, C or M");
        return SONDE_OK;
    }
    if (w->st->convnet) FAIL_AT(x, SONDE_ETYPE, "%s: the convnet family has no such sublayer; it uses conv", x->name);
    if (w->st->mlp && f != 'M')
        FAIL_AT(x, SONDE_ETYPE, "%s: the mlp family has no attention; its block is M (or F in each:)", x->name);
    if (w->sec != SND_SEC_LAYER && w->sec != SND_SEC_LAYER2)
        FAIL_AT(x, SONDE_ETYPE, "%s is called by name only in layer:; in each: the sublayer is F", x->name);
    if (f == 'C' && !w->st->cross) FAIL_AT(x, SONDE_ETYPE, "C attends to an encoder, but this stack has no encoder");
    return SONDE_OK;
}

static sonde_status call_sublayer(walker *w, const snd_expr *x, snd_val *out) {
    args a;
    SND_TRY(check_sublayer(w, x));
    SND_TRY(eval_args(w, x, 1, 1, &a));
    named k[] = {{.name = "inner"}, {.name = "headgain"}, {.name = "vnorm"}, {.name = "v1"}};
    SND_TRY(eval_named(w, x, k, 4));
    char t[80];
    if (a.v[0].kind != SND_V_STREAM || a.v[0].cols != w->st->d)
        FAIL_AT(x, SONDE_ESHAPE, "%s reads the stream's %lld features, but got %s", x->name, (long long)w->st->d,
                kind_text(&a.v[0], t));
    const char letter = x->name[0] == 'F' ? w->rep : x->name[0];
    snd_sub_args sub = {.which = letter,
                        .inner = k[0].v != 0,
                        .headgain = k[1].v != 0,
                        .vnorm = k[2].v != 0,
                        .v1 = k[3].v,
                        .has_v1 = k[3].given};
    for (int i = 1; i < 4; i++)
        if (w->st->mlp && k[i].given)
            FAIL_AT(x, SONDE_ETYPE, "%s: '%s' belongs to attention, which the mlp family lacks", x->name, k[i].name);
    for (int i = 1; i < 4; i++)
        if (k[i].given && letter == 'M' && x->name[0] != 'F')
            FAIL_AT(x, SONDE_ETYPE, "%s: '%s' belongs to attention", x->name, k[i].name);
    w->calls++;
    const int count = ++w->calls_of[(unsigned char)letter];
    const char *call = count == 1
                           ? snd_arena_printf(w->arena, "%slayers.%d.%c", w->st->prefix, w->layer, letter)
                           : snd_arena_printf(w->arena, "%slayers.%d.%c%d", w->st->prefix, w->layer, letter, count);
    if (!call) return SONDE_ENOMEM;
    snd_val u;
    SND_TRY(alias(w, a.v[0], &u)); // grad of .in: through this sublayer alone
    SND_TRY(tap_as(w, u, "%s.in%s", call, ""));
    *out = u;
    if (w->st->mlp) {
        SND_TRY(run_block(w, x, call, sub.inner, u, out));
        if (out->id == u.id) SND_TRY(alias(w, u, out)); // a block that is u itself
    } else {
        const snd_site site = {.name = call, .x = x, .layer = w->layer};
        out->cols = w->st->d;
        ASK(sublayer, out, &site, &sub, u, out);
    }
    if (!w->counting && !w->silent && w->r->drop) SND_TRY(w->r->drop(w->r->self, false, *out, out));
    return tap_as(w, *out, "%s.out%s", call, "");
}

// ---- convnet ----------------------------------------------------------------------------------------------------------------

static sonde_status need_map(const snd_expr *x, const snd_val *v) {
    char t[80];
    if (v->kind != SND_V_MAP)
        FAIL_AT(x, SONDE_ESHAPE, "%s needs an image map (convnet family), but got %s", x->name, kind_text(v, t));
    return SONDE_OK;
}

static int64_t strided(int64_t size, int64_t stride) {
    return (size - 1) / stride + 1;
}

static sonde_status stride_of(walker *w, const snd_expr *x, int64_t *out) {
    named k[] = {{.name = "stride", .v = 1}};
    SND_TRY(eval_named(w, x, k, 1));
    if (!(k[0].v >= 1 && k[0].v == floor(k[0].v)))
        FAIL_AT(x, SONDE_ERANGE, "%s: stride must be a whole number from 1", x->name);
    *out = (int64_t)k[0].v;
    return SONDE_OK;
}

static sonde_status call_conv(walker *w, const snd_expr *x, snd_val *out) {
    args a;
    int64_t ch = 1, k = 1, stride = 1;
    SND_TRY(eval_args(w, x, 3, 3, &a));
    SND_TRY(count_arg(w, &a, 1, "channels", &ch));
    SND_TRY(count_arg(w, &a, 2, "the kernel's size", &k));
    SND_TRY(stride_of(w, x, &stride));
    SND_TRY(need_map(x, &a.v[0]));
    snd_site site;
    SND_TRY(site_name(w, C_CONV, "conv", x, &site));
    const int64_t h = a.v[0].h + 2 * (k / 2) - k, wd = a.v[0].w + 2 * (k / 2) - k;
    if (h < 0 || wd < 0)
        FAIL_AT(x, SONDE_ESHAPE, "conv: a kernel of %lld does not fit a map of %lld x %lld", (long long)k,
                (long long)a.v[0].h, (long long)a.v[0].w);
    *out = (snd_val){.kind = SND_V_MAP, .cols = ch, .h = h / stride + 1, .w = wd / stride + 1};
    ASK(conv, out, &site, a.v[0], ch, k, stride, out);
    return SONDE_OK;
}

static sonde_status call_shortcut(walker *w, const snd_expr *x, snd_val *out) {
    args a;
    int64_t ch = 1, stride = 1;
    SND_TRY(eval_args(w, x, 3, 3, &a));
    SND_TRY(count_arg(w, &a, 2, "channels", &ch));
    SND_TRY(stride_of(w, x, &stride));
    SND_TRY(need_map(x, &a.v[0]));
    SND_TRY(need_map(x, &a.v[1]));
    *out = a.v[0];
    if (ch == a.v[0].cols && stride == 1) return SONDE_OK; // the identity has no site
    snd_site site;
    SND_TRY(site_name(w, C_SHORTCUT, "shortcut", x, &site));
    *out = (snd_val){.kind = SND_V_MAP, .cols = ch, .h = strided(a.v[1].h, stride), .w = strided(a.v[1].w, stride)};
    ASK(shortcut, out, &site, a.v[0], a.v[1], ch, stride, out);
    return SONDE_OK;
}

static sonde_status call_pool(walker *w, const snd_expr *x, snd_val *out) {
    args a;
    SND_TRY(eval_named(w, x, NULL, 0));
    SND_TRY(eval_args(w, x, 1, 1, &a));
    SND_TRY(need_map(x, &a.v[0]));
    *out = (snd_val){.kind = SND_V_STREAM, .cols = a.v[0].cols};
    ASK(pool, out, a.v[0], out);
    return SONDE_OK;
}

// ---- dispatch -----------------------------------------------------------------------------------------------------------------

static sonde_status norm_n(walker *w, const snd_expr *x, snd_val *o) {
    return call_norm(w, x, SND_NORM_INVALID, true, o);
}
static sonde_status norm_n0(walker *w, const snd_expr *x, snd_val *o) {
    return call_norm(w, x, SND_NORM_INVALID, false, o);
}
static sonde_status norm_ln(walker *w, const snd_expr *x, snd_val *o) {
    return call_norm(w, x, SND_NORM_LAYER, true, o);
}
static sonde_status norm_rms(walker *w, const snd_expr *x, snd_val *o) {
    return call_norm(w, x, SND_NORM_RMS, true, o);
}
static sonde_status norm_bn(walker *w, const snd_expr *x, snd_val *o) {
    return call_norm(w, x, SND_NORM_BATCH, true, o);
}
static sonde_status norm_sn(walker *w, const snd_expr *x, snd_val *o) {
    return call_norm(w, x, SND_NORM_SCALE, true, o);
}
static sonde_status norm_dyt(walker *w, const snd_expr *x, snd_val *o) {
    return call_norm(w, x, SND_NORM_DYT, true, o);
}
static sonde_status norm_derf(walker *w, const snd_expr *x, snd_val *o) {
    return call_norm(w, x, SND_NORM_DERF, true, o);
}
static sonde_status scalar(walker *w, const snd_expr *x, snd_val *o) {
    return call_learned(w, x, false, o);
}
static sonde_status vector(walker *w, const snd_expr *x, snd_val *o) {
    return call_learned(w, x, true, o);
}
static sonde_status depthmix(walker *w, const snd_expr *x, snd_val *o) {
    return call_depth(w, x, false, o);
}
static sonde_status depthattn(walker *w, const snd_expr *x, snd_val *o) {
    return call_depth(w, x, true, o);
}

static const struct fn_row {
    const char *name;
    sonde_status (*call)(walker *, const snd_expr *, snd_val *);
} FNS[] = {{"N", norm_n},           {"N0", norm_n0},          {"LN", norm_ln},      {"RMS", norm_rms},
           {"BN", norm_bn},         {"SN", norm_sn},          {"DYT", norm_dyt},    {"DERF", norm_derf},
           {"W", call_linear},      {"scalar", scalar},       {"vector", vector},   {"F", call_sublayer},
           {"A", call_sublayer},    {"C", call_sublayer},     {"M", call_sublayer}, {"unit", call_rows},
           {"dot", call_rows},      {"rms", call_rows},       {"stop", call_pass},  {"drop", call_pass},
           {"droppath", call_pass}, {"min", call_minmax},     {"max", call_minmax}, {"floor", call_floor},
           {"depthmix", depthmix},  {"depthattn", depthattn}, {"conv", call_conv},  {"shortcut", call_shortcut},
           {"pool", call_pool}};
enum { N_FNS = sizeof FNS / sizeof *FNS };

// What other notations call these functions.
static const struct {
    const char *theirs, *ours;
} SYNONYMS[] = {{"LayerNorm", "LN"},
                {"RMSNorm", "RMS"},
                {"BatchNorm", "BN"},
                {"ScaleNorm", "SN"},
                {"DyT", "DYT"},
                {"Norm", "N"},
                {"SubLayer", "F"},
                {"Block", "F"},
                {"FFN", "F' or 'M"},
                {"MLP", "F' or 'M"},
                {"LayerNormalization", "LN"},
                {"Attention", "A"},
                {"Attn", "A"},
                {"MHA", "A"},
                {"SelfAttention", "A"},
                {"Linear", "W"},
                {"swish", "silu"},
                {"sigma", "sigmoid"},
                {"ln", "log"},
                {"detach", "stop"},
                {"sg", "stop"}};

static const char *synonym(const char *name) {
    const int n = sizeof SYNONYMS / sizeof *SYNONYMS;
    const char *theirs[sizeof SYNONYMS / sizeof *SYNONYMS];
    for (int i = 0; i < n; i++) theirs[i] = SYNONYMS[i].theirs;
    const char *near = snd_nearest(name, theirs, n);
    for (int i = 0; near && i < n; i++)
        if (theirs[i] == near) return SYNONYMS[i].ours;
    return NULL;
}

static sonde_status unknown_function(const snd_expr *x) {
    const char *names[N_FNS + SND_FN_COUNT];
    int n = 0;
    for (int i = 0; i < N_FNS; i++) names[n++] = FNS[i].name;
    for (int f = SND_FN_RELU; f < SND_FN_NEG; f++) names[n++] = snd_fn_name((snd_fn)f);
    const char *other = synonym(x->name), *near = other ? other : snd_nearest(x->name, names, n);
    if (near) FAIL_AT(x, SONDE_ENAME, "unknown function '%s'; did you mean '%s'?", x->name, near);
    FAIL_AT(x, SONDE_ENAME, "unknown function '%s'; 'sonde help formula' lists them", x->name);
}

static sonde_status eval_call(walker *w, const snd_expr *x, snd_val *out) {
    const snd_fn f = snd_fn_find(x->name, strlen(x->name));
    if (f != SND_FN_NONE) return call_elementwise(w, x, f, out);
    for (int i = 0; i < N_FNS; i++)
        if (!strcmp(FNS[i].name, x->name)) return FNS[i].call(w, x, out);
    return unknown_function(x);
}

static sonde_status eval(walker *w, const snd_expr *x, snd_val *out) {
    switch (x->kind) {
    case SND_X_NUM: *out = constant(x->num, false); return SONDE_OK;
    case SND_X_NAME: return eval_name(w, x, out);
    case SND_X_NEG: return eval_neg(w, x, out);
    case SND_X_BIN: return eval_binary(w, x, out);
    case SND_X_COND: return eval_cond(w, x, out);
    case SND_X_CALL: return eval_call(w, x, out);
    default: SND_FAIL(SONDE_EINTERNAL, "an expression node without a kind");
    }
}

// ---- statements and sections -------------------------------------------------------------------------------------------------

static sonde_status check_stream(walker *w, const snd_stmt *s, const snd_val *old, snd_val *v) {
    if (v->kind == SND_V_TOKEN && w->st->d == 1) v->kind = SND_V_STREAM;
    char t[80], t2[80];
    if (v->kind == old->kind && (w->st->convnet || v->cols == old->cols)) return SONDE_OK;
    if (w->st->convnet && (v->kind == SND_V_MAP || v->kind == SND_V_STREAM)) return SONDE_OK;
    FAIL_AT(s, SONDE_ESHAPE, "x is the stream and stays %s, but is given %s", kind_text(old, t), kind_text(v, t2));
}

static bool same_value_elsewhere(const walker *w, const char *name, int32_t id) {
    for (const scope *s = w->top; s; s = s->outer)
        for (int i = 0; i < s->n; i++)
            if (s->vars[i].v.kind != SND_V_CONST && s->vars[i].v.id == id && strcmp(s->vars[i].name, name)) return true;
    return false;
}

static sonde_status assign(walker *w, const snd_stmt *s, snd_val v) {
    var *old = find_var(w, s->name);
    if (!strcmp(s->name, "x")) SND_TRY(check_stream(w, s, &old->v, &v));
    // `y = x`: y gets a value of its own, so that each name's gradient counts its own later uses
    if (!is_const(&v) && same_value_elsewhere(w, s->name, v.id)) SND_TRY(alias(w, v, &v));
    if (!old) {
        if (w->top->n == MAX_VARS) FAIL_AT(s, SONDE_ERANGE, "more than %d names in one section", MAX_VARS);
        old = &w->top->vars[w->top->n++];
        old->name = s->name;
    }
    old->v = v;
    old->tapped = false;
    return SONDE_OK;
}

static sonde_status run_stmts(walker *w, const snd_stmt *s) {
    for (; s; s = s->next) {
        w->s = w->calls + 1; // the first call of this statement, or the next one: the same number
        w->s_missing = !w->counting && w->calls + 1 > w->S;
        if (!w->counting && w->r->stmt) SND_TRY(w->r->stmt(w->r->self, s, w->sec, w->layer, find_var(w, "x")->v));
        snd_val v = {0};
        SND_TRY(eval(w, s->x, &v));
        SND_TRY(assign(w, s, v));
    }
    return SONDE_OK;
}

// Names every stream at a boundary: "layers.3.x". One that did not change since the last boundary gets an alias, since
// statements between the two may have read it and its gradient here counts only what comes later.
static sonde_status tap_streams(walker *w, const char *where, bool refresh) {
    for (int i = 0; i < w->in_scope.n; i++) {
        var *v = &w->in_scope.vars[i];
        if (v->v.kind != SND_V_STREAM && v->v.kind != SND_V_MAP && v->v.kind != SND_V_TOKEN) continue;
        if (v->tapped && refresh) SND_TRY(alias(w, v->v, &v->v));
        v->tapped = true;
        SND_TRY(tap_as(w, v->v, "%s.%s", where, v->name));
    }
    return SONDE_OK;
}

static sonde_status enter(walker *w, snd_section sec, char rep) {
    w->sec = sec;
    w->rep = rep;
    return !w->counting && w->r->enter ? w->r->enter(w->r->self, sec, w->layer, rep) : SONDE_OK;
}

static sonde_status leave(walker *w) {
    return !w->counting && w->r->leave ? w->r->leave(w->r->self, w->sec, w->layer, w->rep) : SONDE_OK;
}

static sonde_status run_in(walker *w) {
    w->layer = -1;
    memset(w->counters, 0, sizeof w->counters);
    w->prefix = snd_arena_printf(w->arena, "%sin", w->st->prefix);
    if (!w->prefix) return SONDE_ENOMEM;
    SND_TRY(enter(w, SND_SEC_IN, 0));
    SND_TRY(run_stmts(w, w->st->f->sec[SND_SEC_IN]));
    SND_TRY(leave(w));
    return tap_streams(w, w->prefix, false);
}

static sonde_status run_repetition(walker *w, char rep) {
    scope s = {.outer = w->top};
    // sites are named by the repetition, even where its call is the second one of the layer (M in layer:, M2 here)
    const char *prefix = snd_arena_printf(w->arena, "%slayers.%d.%c", w->st->prefix, w->layer, rep);
    if (!prefix) return SONDE_ENOMEM;
    w->top = &s;
    w->prefix = prefix;
    memset(w->counters, 0, sizeof w->counters);
    SND_TRY(enter(w, SND_SEC_EACH, rep));
    const sonde_status status = run_stmts(w, w->st->f->sec[SND_SEC_EACH]);
    w->top = s.outer;
    SND_TRY(status);
    SND_TRY(leave(w));
    return tap_streams(w, prefix, true);
}

static sonde_status run_layer_part(walker *w, snd_section sec) {
    if (!w->st->f->has[sec]) return SONDE_OK;
    memcpy(w->counters, w->layer_counters, sizeof w->counters);
    w->prefix = snd_arena_printf(w->arena, "%slayers.%d", w->st->prefix, w->layer);
    if (!w->prefix) return SONDE_ENOMEM;
    SND_TRY(enter(w, sec, 0));
    SND_TRY(run_stmts(w, w->st->f->sec[sec]));
    SND_TRY(leave(w));
    memcpy(w->layer_counters, w->counters, sizeof w->counters);
    return SONDE_OK;
}

static sonde_status run_layer(walker *w) {
    scope s = {.outer = &w->in_scope};
    w->top = &s;
    memset(w->layer_counters, 0, sizeof w->layer_counters);
    memset(w->calls_of, 0, sizeof w->calls_of);
    const snd_formula *f = w->st->f;
    SND_TRY(run_layer_part(w, SND_SEC_LAYER));
    if (f->has[SND_SEC_EACH]) {
        const char *reps = w->st->mlp ? "F" : w->st->cross ? "ACM" : "AM";
        for (; *reps; reps++) SND_TRY(run_repetition(w, *reps));
    }
    SND_TRY(run_layer_part(w, SND_SEC_LAYER2));
    w->top = &w->in_scope;
    const char *where = snd_arena_printf(w->arena, "%slayers.%d", w->st->prefix, w->layer);
    if (!where) return SONDE_ENOMEM;
    // after each: without a second layer: part nothing read the streams since the repetition's tap
    return tap_streams(w, where, !f->has[SND_SEC_EACH] || f->has[SND_SEC_LAYER2]);
}

// out: at this depth. Streams and lists are put back afterwards, since a deeper exit goes on from here.
static sonde_status run_out(walker *w, snd_val *out) {
    const scope saved = w->in_scope;
    const int n_mix = w->mix.n, n_attn = w->attn.n, layer = w->layer;
    scope s = {.outer = &w->in_scope};
    w->layer = -1;
    memset(w->counters, 0, sizeof w->counters);
    w->prefix = snd_arena_printf(w->arena, "%sout", w->st->prefix);
    if (!w->prefix) return SONDE_ENOMEM;
    w->top = &s;
    sonde_status status = enter(w, SND_SEC_OUT, 0);
    if (status == SONDE_OK) status = run_stmts(w, w->st->f->sec[SND_SEC_OUT]);
    if (status == SONDE_OK) status = leave(w);
    w->top = &w->in_scope;
    SND_TRY(status);
    *out = find_var(w, "x")->v;
    w->in_scope = saved;
    w->mix.n = n_mix;
    w->attn.n = n_attn;
    w->layer = layer;
    return SONDE_OK;
}

static sonde_status run_exits(walker *w, int layers, int *e, snd_val *out) {
    for (; *e < w->w->n_exits && w->w->exits[*e] == layers; ++*e) {
        SND_TRY(run_out(w, out));
        SND_TRY(w->w->on_exit(w->r->self, layers, *out));
    }
    return SONDE_OK;
}

static sonde_status run_stack(walker *w, snd_val x, snd_val *out) {
    w->calls = 0;
    w->mix.n = w->attn.n = 0;
    w->in_scope = (scope){.n = 1};
    w->in_scope.vars[0] = (var){.name = "x", .v = x};
    w->top = &w->in_scope;
    SND_TRY(run_in(w));
    const bool exits = !w->counting && w->w->n_exits > 0;
    int e = 0;
    if (exits) SND_TRY(run_exits(w, 0, &e, out));
    for (int l = 0; l < w->st->L; l++) {
        w->layer = l;
        SND_TRY(run_layer(w));
        if (exits) SND_TRY(run_exits(w, l + 1, &e, out));
    }
    if (exits) return SONDE_OK; // the last exit, if it is L, has run out: already
    SND_TRY(run_out(w, out));
    return tap_as(w, *out, "%sout.x%s", w->st->prefix, "");
}

static sonde_status start(snd_walk *walk, walker **out) {
    walker *w = *out = snd_calloc(1, sizeof *w);
    if (!w) return SONDE_ENOMEM;
    w->w = walk;
    w->st = walk->stack;
    w->r = walk->reader;
    w->arena = walk->arena;
    w->counting = true;
    return SONDE_OK;
}

static void finish(walker *w) {
    snd_free(w->mix.v);
    snd_free(w->attn.v);
    snd_free(w);
}

sonde_status snd_walk_check(snd_walk *walk, snd_val x) {
    walker *w;
    snd_val out;
    SND_TRY(start(walk, &w));
    const sonde_status s = run_stack(w, x, &out);
    walk->n_sublayers = w->calls;
    finish(w);
    return s;
}

sonde_status snd_walk_stack(snd_walk *walk, snd_val x, snd_val *out) {
    walker *w;
    SND_TRY(start(walk, &w));
    sonde_status s = run_stack(w, x, out);
    w->S = walk->n_sublayers = w->calls;
    w->counting = false;
    if (s == SONDE_OK) s = run_stack(w, x, out);
    finish(w);
    return s;
}
