// The tree as text again: one section a line, parentheses only where the grammar needs them, so that the text parses
// back to the same tree.
#include "formula/inner.h"

#include <string.h>

static int rank(const snd_expr *x) { // higher binds tighter
    switch (x->kind) {
    case SND_X_COND: return 0;
    case SND_X_NEG: return 4;
    case SND_X_BIN: return strchr("<>lgen", x->op) ? 1 : strchr("+-", x->op) ? 2 : strchr("*/%", x->op) ? 3 : 5;
    default: return 6;
    }
}

static void print_in(const snd_expr *x, int least, snd_buf *b) {
    const bool wrap = rank(x) < least;
    if (wrap) snd_buf_put(b, "(");
    snd_expr_print(x, b);
    if (wrap) snd_buf_put(b, ")");
}

static void print_binary(const snd_expr *x, snd_buf *b) {
    static const char *const names[] = {['l'] = "<=", ['g'] = ">=", ['e'] = "==", ['n'] = "!="};
    const int r = rank(x);
    // '^' is right-associative and its exponent may be a unary minus; comparisons do not chain; the rest lean left
    print_in(x->a, r == 1 ? 2 : r == 5 ? 6 : r, b);
    if (r == 5)
        snd_buf_put(b, "^");
    else if (strchr("*/%", x->op))
        snd_buf_putn(b, &x->op, 1);
    else if (strchr("lgen", x->op))
        snd_buf_printf(b, " %s ", names[(unsigned char)x->op]);
    else
        snd_buf_printf(b, " %c ", x->op);
    print_in(x->b, r == 5 ? 4 : r + 1, b);
}

static void print_call(const snd_expr *x, snd_buf *b) {
    snd_buf_printf(b, "%s(", x->name);
    for (int i = 0; i < x->n_args; i++) {
        if (i) snd_buf_put(b, ", ");
        if (x->args[i].name) snd_buf_printf(b, "%s=", x->args[i].name);
        snd_expr_print(x->args[i].x, b);
    }
    snd_buf_put(b, ")");
}

void snd_expr_print(const snd_expr *x, snd_buf *b) {
    switch (x->kind) {
    case SND_X_NUM: snd_buf_num(b, x->num, 17); break;
    case SND_X_NAME: snd_buf_put(b, x->name); break;
    case SND_X_CALL: print_call(x, b); break;
    case SND_X_NEG:
        snd_buf_put(b, "-");
        print_in(x->a, 4, b);
        break;
    case SND_X_BIN: print_binary(x, b); break;
    case SND_X_COND:
        print_in(x->a, 1, b);
        snd_buf_put(b, " ? ");
        print_in(x->b, 0, b);
        snd_buf_put(b, " : ");
        print_in(x->c, 0, b);
        break;
    default: break;
    }
}

static void print_rule(const snd_init_rule *r, snd_buf *b) {
    for (int i = 0; i < r->n_roles; i++) snd_buf_printf(b, "%s%s", i ? "," : "", r->roles[i]);
    if (r->factor) {
        snd_buf_put(b, " *= ");
        snd_expr_print(r->factor, b);
        return;
    }
    snd_buf_printf(b, "%s%s", r->n_roles ? " = " : "", r->kind);
    if (r->n_args) {
        snd_buf_put(b, "(");
        snd_expr_print(r->args[0], b);
        snd_buf_put(b, ")");
    }
}

void snd_formula_print(const snd_formula *f, snd_buf *b) {
    static const char *const labels[] = {[SND_SEC_IN] = "in",
                                         [SND_SEC_LAYER] = "layer",
                                         [SND_SEC_EACH] = "each",
                                         [SND_SEC_LAYER2] = "layer",
                                         [SND_SEC_OUT] = "out"};
    bool first = true;
    for (int s = SND_SEC_IN; s < SND_SEC_COUNT; s++) {
        if (!f->has[s]) continue;
        char label[10]; // padded, so that the statements stand under each other
        snprintf(label, sizeof label, "%s:", labels[s]);
        snd_buf_printf(b, "%s%-7s", first ? "" : "\n", label);
        for (const snd_stmt *t = f->sec[s]; t; t = t->next) {
            snd_buf_printf(b, "%s = ", t->name);
            snd_expr_print(t->x, b);
            if (t->next) snd_buf_put(b, "; ");
        }
        first = false;
    }
    if (!f->init) return;
    snd_buf_printf(b, "%s%-7s", first ? "" : "\n", "init:");
    for (const snd_init_rule *r = f->init; r; r = r->next) {
        print_rule(r, b);
        if (r->next) snd_buf_put(b, "; ");
    }
}
