// The formula as it stands for each layer: conditions of constants are resolved, constants become numbers, and layers that
// come out equal are told as one. Keeps its own list of names that are constants, with the walker's scopes (formulas.md
// section 2), because a reader sees values but not names.
#include "readers/describe_impl.h"

#include <math.h>
#include <string.h>

// ---- which names are constants --------------------------------------------------------------------------------------------

static const snd_dconst *lookup(const snd_describer *b, const char *name) {
    for (int i = b->n_consts - 1; i >= 0; i--)
        if (!strcmp(b->consts[i].name, name)) return &b->consts[i];
    return NULL;
}

static void define(snd_describer *b, const char *name, double v, bool is_const) {
    for (int i = b->n_consts - 1; i >= b->n_base; i--)
        if (!strcmp(b->consts[i].name, name)) {
            b->consts[i] = (snd_dconst){name, v, is_const};
            return;
        }
    if (b->n_consts < SND_D_CONSTS) b->consts[b->n_consts++] = (snd_dconst){name, v, is_const};
}

static void set_base(snd_describer *b, const char *name, double v, bool there) {
    for (int i = 0; i < b->n_base; i++)
        if (!strcmp(b->consts[i].name, name)) b->consts[i] = (snd_dconst){name, v, there};
}

static bool is_pure(const char *fn) {
    const char *const more[] = {"floor", "min", "max"};
    for (int i = 0; i < 3; i++)
        if (!strcmp(fn, more[i])) return true;
    return snd_fn_find(fn, strlen(fn)) != SND_FN_NONE;
}

static bool is_const(const snd_describer *b, const snd_expr *x) {
    if (!x) return true;
    if (x->kind == SND_X_NUM) return true;
    if (x->kind == SND_X_NAME) {
        const snd_dconst *c = lookup(b, x->name);
        return c && c->is_const;
    }
    if (x->kind == SND_X_CALL && !is_pure(x->name)) return false;
    for (int i = 0; i < x->n_args; i++)
        if (!is_const(b, x->args[i].x)) return false;
    return is_const(b, x->a) && is_const(b, x->b) && is_const(b, x->c);
}

static bool value_of(const snd_describer *b, const snd_expr *x, double *v) {
    if (!is_const(b, x)) return false;
    snd_const env[SND_D_CONSTS];
    int n = 0;
    for (int i = b->n_consts - 1; i >= 0; i--) env[n++] = (snd_const){b->consts[i].name, b->consts[i].v};
    return snd_expr_const(x, env, n, v) == SONDE_OK;
}

// ---- folding ------------------------------------------------------------------------------------------------------------------

static double rounded(double v) {
    char t[40];
    double r = v;
    snd_parse_num(snd_format_num(t, v, 5), &r, NULL);
    return r;
}

static sonde_status number(snd_describer *b, const snd_expr *x, double v, snd_expr **out) {
    SND_NEW(b->arena, *out, 1);
    **out = (snd_expr){.kind = SND_X_NUM, .num = fabs(v), .line = x->line, .col = x->col};
    if (v >= 0) return SONDE_OK;
    snd_expr *neg;
    SND_NEW(b->arena, neg, 1);
    *neg = (snd_expr){.kind = SND_X_NEG, .a = *out};
    *out = neg;
    return SONDE_OK;
}

static bool is_one(const snd_expr *x) {
    return x && x->kind == SND_X_NUM && x->num == 1;
}

// What multiplying or dividing by one leaves.
static snd_expr *without_one(snd_expr *x) {
    if (x->kind != SND_X_BIN || (x->op != '*' && x->op != '/')) return x;
    if (is_one(x->b)) return x->a;
    return x->op == '*' && is_one(x->a) ? x->b : x;
}

// A copy of x with conditions resolved and, when `numbers`, constants folded.
static sonde_status fold(snd_describer *b, const snd_expr *x, bool numbers, snd_expr **out) {
    double v;
    *out = NULL;
    if (!x) return SONDE_OK;
    if (x->kind == SND_X_COND && value_of(b, x->a, &v)) return fold(b, v != 0 ? x->b : x->c, numbers, out);
    if (numbers && x->kind != SND_X_NUM && value_of(b, x, &v)) return number(b, x, rounded(v), out);
    SND_NEW(b->arena, *out, 1);
    **out = *x;
    SND_TRY(fold(b, x->a, numbers, &(*out)->a));
    SND_TRY(fold(b, x->b, numbers, &(*out)->b));
    SND_TRY(fold(b, x->c, numbers, &(*out)->c));
    if (numbers) *out = without_one(*out);
    if (!x->n_args) return SONDE_OK;
    SND_NEW(b->arena, (*out)->args, x->n_args);
    for (int i = 0; i < x->n_args; i++) {
        (*out)->args[i] = x->args[i];
        SND_TRY(fold(b, x->args[i].x, numbers, &(*out)->args[i].x));
    }
    return SONDE_OK;
}

// What folding leaves of "h = cross ? .. : h" where there is no cross-attention, "h = h", is left out.
static sonde_status put_stmt(snd_describer *b, const snd_stmt *s, bool numbers, snd_buf *to) {
    snd_expr *x;
    SND_TRY(fold(b, s->x, numbers, &x));
    if (s->x->kind == SND_X_COND && x->kind == SND_X_NAME && !strcmp(x->name, s->name)) return SONDE_OK;
    if (to->len) snd_buf_put(to, "; ");
    snd_buf_printf(to, "%s = ", s->name);
    snd_expr_print(x, to);
    return to->failed ? SONDE_ENOMEM : SONDE_OK;
}

sonde_status snd_d_text_stmt(snd_describer *b, const snd_stmt *s) {
    double v = 0;
    set_base(b, "s", b->calls + 1, b->layer >= 0);
    const bool constant = value_of(b, s->x, &v);
    SND_TRY(put_stmt(b, s, false, &b->plain));
    if (!constant) SND_TRY(put_stmt(b, s, true, &b->folded));
    define(b, s->name, v, constant);
    return SONDE_OK;
}

// ---- sections and layers --------------------------------------------------------------------------------------------------------

static const char *take(snd_describer *b, snd_buf *t) { // the text so far, which starts anew
    const char *s = t->failed ? NULL : snd_arena_str(b->arena, t->s ? t->s : "");
    t->len = 0;
    if (t->s) t->s[0] = 0;
    return s;
}

static const char *label_of(const snd_dpiece *p, char out[8]) {
    const bool one = p->sec != SND_SEC_EACH || p->rep == 'F' || p->rep == 0;
    if (one)
        snprintf(out, 8, "%s:", p->sec == SND_SEC_EACH ? "each" : "layer");
    else
        snprintf(out, 8, "%c:", p->rep);
    return out;
}

static bool all_each_equal(const snd_describer *b) {
    const char *first = NULL;
    for (int i = 0; i < b->n_pieces; i++) {
        if (b->pieces[i].sec != SND_SEC_EACH) continue;
        if (first && strcmp(first, b->pieces[i].folded) != 0) return false;
        first = b->pieces[i].folded;
    }
    return true;
}

// The pieces of one layer, one section a line; repetitions that read alike are told once, as each:.
static const char *whole(snd_describer *b, bool numbers, bool merge) {
    snd_buf t = {0};
    bool told = false;
    for (int i = 0; i < b->n_pieces; i++) {
        const snd_dpiece *p = &b->pieces[i];
        const char *text = numbers ? p->folded : p->plain;
        char label[8];
        if (!*text || (p->sec == SND_SEC_EACH && merge && told)) continue;
        told = told || p->sec == SND_SEC_EACH;
        snd_buf_printf(&t, "%s%-7s%s", t.len ? "\n" : "",
                       p->sec == SND_SEC_EACH && merge ? "each:" : label_of(p, label), text);
    }
    const char *s = t.failed ? NULL : snd_arena_str(b->arena, t.s ? t.s : "");
    snd_buf_free(&t);
    return s;
}

static sonde_status close_layer(snd_describer *b) {
    if (b->text_layer < 0) return SONDE_OK;
    SND_TRY(snd_d_room(b->arena, (void **)&b->layers, &b->cap_layers, b->n_layers, sizeof *b->layers));
    const bool merge = all_each_equal(b);
    snd_dlayer *l = &b->layers[b->n_layers++];
    *l = (snd_dlayer){b->stack.prefix, b->text_layer, whole(b, true, merge), whole(b, false, merge), take(b, &b->subs)};
    b->n_pieces = 0;
    b->text_layer = -1;
    memset(b->sub_seen, 0, sizeof b->sub_seen);
    return l->folded && l->plain && l->subs ? SONDE_OK : SONDE_ENOMEM;
}

sonde_status snd_d_text_begin(snd_describer *b) {
    const snd_stack *t = &b->stack;
    const snd_dconst base[] = {{"l", 0, false},           {"s", 0, false},           {"S", b->walk->n_sublayers, true},
                               {"L", t->L, true},         {"Le", t->Le, true},       {"Ld", t->Ld, true},
                               {"cross", t->cross, true}, {"d", (double)t->d, true}, {"n", (double)t->n, true},
                               {"pi", M_PI, true},        {"e", M_E, true}};
    memcpy(b->consts, base, sizeof base);
    b->n_consts = b->n_base = b->n_in = b->n_layer = (int)(sizeof base / sizeof *base);
    b->text_layer = -1;
    b->n_pieces = 0;
    return SONDE_OK;
}

sonde_status snd_d_text_enter(snd_describer *b, snd_section sec, int layer, char rep) {
    set_base(b, "S", b->walk->n_sublayers, true);
    if (layer != b->text_layer) {
        SND_TRY(close_layer(b));
        if (sec != SND_SEC_IN) b->n_consts = b->n_in;
        b->text_layer = layer;
        set_base(b, "l", layer + 1, layer >= 0);
        set_base(b, "s", 0, layer >= 0);
    }
    b->n_layer = b->n_consts;
    b->rep = rep;
    return SONDE_OK;
}

sonde_status snd_d_text_leave(snd_describer *b, snd_section sec, char rep) {
    const char *folded = take(b, &b->folded), *plain = take(b, &b->plain);
    if (!folded || !plain) return SONDE_ENOMEM;
    if (sec == SND_SEC_IN) {
        b->n_in = b->n_consts;
        b->d->in_text = *folded ? folded : b->d->in_text;
    } else if (sec == SND_SEC_OUT) {
        b->d->out_text = *folded ? folded : b->d->out_text;
    } else {
        if (b->n_pieces < 8) b->pieces[b->n_pieces++] = (snd_dpiece){sec, rep, folded, plain};
        if (sec == SND_SEC_EACH) b->n_consts = b->n_layer; // names of the repetition end with it
    }
    return SONDE_OK;
}

sonde_status snd_d_text_sub(snd_describer *b, char which, const char *text) {
    for (int i = 0; i < 4; i++) { // equal ones of a layer are told once
        if (b->sub_seen[i] && !strcmp(b->sub_seen[i], text)) return SONDE_OK;
        if (b->sub_seen[i]) continue;
        b->sub_seen[i] = text;
        break;
    }
    snd_buf_printf(&b->subs, "%s%c: %s", b->subs.len ? "\n" : "", which, text);
    return b->subs.failed ? SONDE_ENOMEM : SONDE_OK;
}

sonde_status snd_d_text_block(snd_describer *b) {
    if (b->sub_seen[0]) return SONDE_OK; // the same block in every call
    snd_expr *x;
    snd_buf t = {0};
    SND_TRY(fold(b, b->stack.block, true, &x));
    snd_expr_print(x, &t);
    const char *copy = t.failed ? NULL : snd_arena_str(b->arena, t.s);
    snd_buf_free(&t);
    return copy ? snd_d_text_sub(b, 'F', copy) : SONDE_ENOMEM;
}

sonde_status snd_d_text_end(snd_describer *b) {
    return close_layer(b);
}

// ---- layer kinds ------------------------------------------------------------------------------------------------------------------

static bool same_kind(const snd_dlayer *p, const snd_dlayer *q, bool numbers) {
    return !strcmp(p->stack, q->stack) && !strcmp(p->subs, q->subs) &&
           !strcmp(numbers ? p->folded : p->plain, numbers ? q->folded : q->plain);
}

// Kind of every layer of layers[from..to) in kind[]; the number of kinds, or -1 when there are more than `most`.
static int classify(const snd_describer *b, int from, int to, bool numbers, int *kind, int *example, int most) {
    int n = 0;
    for (int i = from; i < to; i++) {
        int k = n - 1;
        while (k >= 0 && !same_kind(&b->layers[example[k]], &b->layers[i], numbers)) k--;
        if (k < 0) {
            if (n == most) return -1;
            example[k = n++] = i;
        }
        kind[i - from] = k;
    }
    return n;
}

static sonde_status put_kind(snd_describer *b, int from, int to, bool numbers, const int *kind, int k, int64_t *cap) {
    snd_description *d = b->d;
    int *v, n = 0;
    SND_NEW(b->arena, v, to - from);
    for (int i = from; i < to; i++)
        if (kind[i - from] == k) v[n++] = i;
    const snd_dlayer *p = &b->layers[v[0]], *q = &b->layers[v[n - 1]];
    SND_TRY(snd_d_room(b->arena, (void **)&d->kinds, cap, d->n_kinds, sizeof *d->kinds));
    snd_layer_kind *out = &d->kinds[d->n_kinds++];
    *out = (snd_layer_kind){.stack = p->stack,
                            .first = p->layer,
                            .last = q->layer,
                            .text = numbers ? p->folded : p->plain,
                            .subs = p->subs,
                            .count = n};
    if (!numbers && strcmp(p->folded, q->folded) != 0) {
        out->first_text = p->folded;
        out->last_text = q->folded;
    }
    for (int i = 0; i < n; i++) v[i] = b->layers[v[i]].layer;
    out->layers = snd_d_layers(b->arena, v, n);
    return out->layers ? SONDE_OK : SONDE_ENOMEM;
}

// By numbers while that gives few kinds; else by the formula with its constants' names, told with the first and last.
sonde_status snd_d_kinds(snd_describer *b) {
    enum { FEW = 6, MOST = 64 };
    int64_t cap = 0;
    for (int from = 0, to; from < b->n_layers; from = to) {
        to = from;
        while (to < b->n_layers && b->layers[to].stack == b->layers[from].stack) to++;
        int *kind, example[MOST];
        SND_NEW(b->arena, kind, to - from);
        bool numbers = true;
        int n = classify(b, from, to, true, kind, example, FEW);
        if (n < 0 || (n > 1 && n == to - from)) n = classify(b, from, to, numbers = false, kind, example, MOST);
        if (n < 0) { // every layer its own: too many to tell apart, so tell the first
            memset(kind, 0, (size_t)(to - from) * sizeof *kind);
            n = 1;
        }
        for (int k = 0; k < n; k++) SND_TRY(put_kind(b, from, to, numbers, kind, k, &cap));
    }
    return SONDE_OK;
}
