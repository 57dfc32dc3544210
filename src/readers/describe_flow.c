// What is known of a net before anything is computed: which values are exactly zero (or another known number) at the
// start, which gradients are exactly zero in the first step, what is normalised, what adds up in the stream. "Not zero" means
// "not zero by construction"; nothing here looks at weights.
#include "readers/describe_impl.h"

#include <string.h>

void snd_d_known(snd_dnode *n, bool known, double v) {
    n->known = known;
    n->start = v;
}

static bool is_zero(const snd_dnode *n) {
    return n->known && n->start == 0;
}

static void inherit(snd_dnode *n, const snd_dnode *a) {
    n->known = a->known;
    n->start = a->start;
    n->stream = a->stream;
    n->sum = a->sum;
    n->normed = a->normed;
    n->norm = a->norm;
    n->had_stream = a->had_stream;
    n->acc = a->acc;
    n->acc_normed = a->acc_normed;
    n->site = a->site;
}

// A norm makes one normalised branch of a branch, and a stream without history of a stream.
static void after_norm(snd_dnode *n, const snd_dnode *a) {
    inherit(n, a);
    n->sum = false;
    n->normed = true;
    n->had_stream = a->stream;
    n->acc = n->acc_normed = a->stream ? 0 : a->acc > 0;
    n->known = is_zero(a); // the norm of zero is its bias, and biases start at zero
}

typedef struct shaped {
    const snd_dnode *n;
    bool rows;
} shaped; // rows: one value per row, not a learned number or vector

// Two values that both hold the stream share its history; a branch adds to it.
static void add_up(snd_dnode *n, const snd_dnode *a, const snd_dnode *b) {
    const bool apart = n->op == SND_D_ADD && (!a->stream || !b->stream);
    const snd_dnode *more = a->acc >= b->acc ? a : b;
    n->acc = apart ? a->acc + b->acc : more->acc;
    n->acc_normed = apart ? a->acc_normed + b->acc_normed : more->acc_normed;
    n->stream = a->stream || b->stream;
    n->sum = n->op == SND_D_ADD && n->stream && n->acc > 0;
}

static void after_two(snd_dnode *n, shaped a, shaped b) {
    add_up(n, a.n, b.n);
    // scaling or shifting a norm's output by what is the same for all rows leaves it one
    n->normed =
        (a.n->normed && !b.rows) || (b.n->normed && !a.rows) || (n->op == SND_D_ADD && a.n->normed && b.n->normed);
    n->had_stream = a.n->normed ? a.n->had_stream : b.n->had_stream;
    n->site = a.n->site ? a.n->site : b.n->site;
    const bool za = is_zero(a.n), zb = is_zero(b.n), both = a.n->known && b.n->known;
    if (n->op == SND_D_MUL && (za || zb))
        snd_d_known(n, true, 0);
    else if (n->op == SND_D_MUL && both)
        snd_d_known(n, true, a.n->start * b.n->start);
    else if (n->op == SND_D_DIV && za)
        snd_d_known(n, true, 0);
    else if (n->op == SND_D_ADD && za && b.n->known)
        snd_d_known(n, true, n->minus ? -b.n->start : b.n->start);
    else if (n->op == SND_D_ADD && both)
        snd_d_known(n, true, a.n->start + (n->minus ? -b.n->start : b.n->start));
}

static void after_unary(snd_dnode *n, const snd_dnode *a) {
    inherit(n, a);
    n->norm = 0;
    n->sum = false;
    n->known = false; // the caller knows the function
}

static void fill(const snd_describer *b, snd_dnode *n, const snd_val *in, int n_in) {
    const snd_dnode *first = n_in && in[0].id ? &b->nodes[in[0].id] : NULL;
    if (!first) return;
    switch (n->op) {
    case SND_D_ALIAS:
    case SND_D_STOP: inherit(n, first); break;
    case SND_D_NORM: after_norm(n, first); break;
    case SND_D_UNARY: after_unary(n, first); break;
    case SND_D_ADD:
    case SND_D_MUL:
    case SND_D_DIV:
    case SND_D_MINMAX: {
        const shaped p = {first, in[0].kind == SND_V_STREAM || in[0].kind == SND_V_MAP || in[0].kind == SND_V_TOKEN};
        const shaped q = {&b->nodes[in[1].id],
                          in[1].kind == SND_V_STREAM || in[1].kind == SND_V_MAP || in[1].kind == SND_V_TOKEN};
        after_two(n, p, q);
        break;
    }
    case SND_D_DOT: n->known = is_zero(first) || (n_in > 1 && is_zero(&b->nodes[in[1].id])); break;
    case SND_D_MAP:
        n->known = is_zero(first); // a bias, if any, starts at zero
        break;
    case SND_D_PICK_LAST: inherit(n, &b->nodes[in[n_in - 1].id]); break;
    default: // a list: the stream is in it when it is in any of them
        for (int i = 0; i < n_in; i++) n->stream = n->stream || b->nodes[in[i].id].stream;
    }
}

sonde_status snd_d_room(snd_arena *a, void **p, int64_t *cap, int n, size_t size) {
    if (n < *cap) return SONDE_OK;
    const int64_t want = *cap ? 2 * *cap : 64;
    void *q = snd_arena_array(a, (size_t)want, size);
    if (!q) return SONDE_ENOMEM;
    if (*p) memcpy(q, *p, (size_t)*cap * size);
    *p = q;
    *cap = want;
    return SONDE_OK;
}

sonde_status snd_d_node(snd_describer *b, snd_dop op, bool minus, const snd_val *in, int n_in, snd_val *out,
                        snd_dnode **node) {
    if (b->n_nodes == 0) b->n_nodes = 1; // id 0 is nothing
    SND_TRY(snd_d_room(b->arena, (void **)&b->nodes, &b->cap_nodes, b->n_nodes, sizeof *b->nodes));
    snd_dnode *n = &b->nodes[b->n_nodes];
    *n = (snd_dnode){.op = op, .minus = minus, .n_in = n_in, .first_param = b->d->n_params};
    if (n_in) SND_NEW(b->arena, n->in, n_in);
    for (int i = 0; i < n_in; i++) n->in[i] = in[i].id;
    fill(b, n, in, n_in);
    out->id = b->n_nodes++;
    if (node) *node = n;
    return SONDE_OK;
}

// ---- backward ---------------------------------------------------------------------------------------------------------------

static bool blocks_at(snd_fn fn, double start) { // is the derivative at this known number exactly zero?
    if (fn == SND_FN_RELU) return start <= 0;
    return fn == SND_FN_ABS && start == 0;
}

static void pass(snd_describer *b, const snd_dnode *n, int i, bool open) {
    if (open && n->in[i]) b->nodes[n->in[i]].grad = true;
}

static void step_back(snd_describer *b, const snd_dnode *n) {
    const snd_dnode *p = n->n_in > 0 ? &b->nodes[n->in[0]] : NULL, *q = n->n_in > 1 ? &b->nodes[n->in[1]] : NULL;
    switch (n->op) {
    case SND_D_MUL:
    case SND_D_DOT:
        if (!q)
            pass(b, n, 0, true);
        else {
            pass(b, n, 0, !is_zero(q));
            pass(b, n, 1, !is_zero(p));
        }
        break;
    case SND_D_DIV:
        pass(b, n, 0, true);
        if (q) pass(b, n, 1, !is_zero(p));
        break;
    case SND_D_UNARY: pass(b, n, 0, !(p->known && blocks_at(n->fn, p->start))); break;
    case SND_D_NORM:
    case SND_D_MAP:
    case SND_D_SUBLAYER:
        for (int i = 0; i < n->n_in; i++) pass(b, n, i, !n->closed);
        break;
    case SND_D_STOP:
    case SND_D_SOURCE: break;
    case SND_D_PICK_LAST: pass(b, n, n->n_in - 1, true); break;
    default:
        for (int i = 0; i < n->n_in; i++) pass(b, n, i, true);
    }
}

// A weight that meets an exact zero learns nothing in the first step; a bias does.
static void zero_input(snd_describer *b, const snd_dnode *n) {
    const bool weighs = n->op == SND_D_MAP || n->op == SND_D_NORM;
    if (weighs && n->n_params && n->n_in && is_zero(&b->nodes[n->in[0]])) b->d->params[n->first_param].no_grad = true;
}

void snd_d_backward(snd_describer *b, int32_t out_x) {
    b->nodes[out_x].grad = true;
    for (int i = b->n_nodes - 1; i > 0; i--) {
        snd_dnode *n = &b->nodes[i];
        if (n->grad) step_back(b, n);
        if (n->grad) zero_input(b, n);
        for (int k = 0; !n->grad && k < n->n_params; k++) b->d->params[n->first_param + k].no_grad = true;
    }
}

const char *snd_d_gate(const snd_describer *b, int32_t v) {
    for (int i = v + 1; i < b->n_nodes; i++) {
        const snd_dnode *n = &b->nodes[i];
        for (int k = 0; k < n->n_in; k++) {
            if (n->in[k] != v) continue;
            if ((n->op == SND_D_ALIAS || n->op == SND_D_NORM) && !n->closed) {
                const char *s = snd_d_gate(b, i);
                if (s) return s;
            }
            if (n->op == SND_D_MUL && n->n_in == 2 && is_zero(&b->nodes[n->in[1 - k]]))
                return b->nodes[n->in[1 - k]].site;
        }
    }
    return NULL;
}
