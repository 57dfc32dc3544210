// The backward pass of white gradients, written onto the tape as if it were a forward one: W' with fresh weights is a
// fresh map, f'(x) a product with a node, a norm a division by its predicted divisor. The energies repeat what the white
// sweep of backward.c finds; what is gained is that spread.c can tell how far one network strays from them.
// Left out: what returns along forward values (see backward.c), and that slopes follow the forward statistics.
#include "moments_tape.h"

#include <math.h>
#include <string.h>

#define NODE(i) m_at(t, i)

typedef struct mirror {
    snd_moments *t;
    snd_mid *grad; // per forward node: its gradient so far, 0: none
    snd_mid n;
    bool lost; // sums over features into a number per row are not followed
} mirror;

static void put(mirror *m, snd_mid v, snd_mid g, double c) {
    snd_moments *t = m->t;
    if (c == 0 || v >= m->n || NODE(v)->dim == 0) return;
    if (NODE(v)->dim == 1 && NODE(g)->dim > 1) {
        m->lost = true;
        return;
    }
    if (m->grad[v]) {
        m->grad[v] = snd_m_add(t, m->grad[v], g, 1, c);
        return;
    }
    m->grad[v] = c == 1 ? g : snd_m_scale(t, g, c);
}

static void back(mirror *m, snd_mid y) {
    snd_moments *t = m->t;
    const snd_mid g = m->grad[y];
    const m_node x = *NODE(y);
    switch ((m_op)x.op) {
    case OP_LINEAR:
        if (x.var > 0) put(m, x.in[0], snd_m_linear(t, g, x.dim, x.fan_in, x.var), 1);
        break;
    case OP_SUM:
        for (int i = 0; i < x.n; i++) put(m, x.in[i], g, x.opcoef[i]);
        break;
    case OP_MUL:
        for (int i = 0; i < 2; i++)
            if (NODE(x.in[i])->dim > 0) put(m, x.in[i], snd_m_mul(t, x.in[1 - i], g), 1);
        break;
    case OP_UNARY:
        if (x.rep == REP_FUNC) put(m, x.in[0], snd_m_mul(t, m_slope(t, y), g), 1);
        break;
    case OP_LN:
    case OP_RMSNORM: {
        const snd_mid h = snd_m_scale(t, g, ldexp(1 / x.s, -NODE(x.in[0])->k));
        NODE(h)->same = 0;
        NODE(h)->norm_of = y;
        put(m, x.in[0], h, 1);
        break;
    }
    case OP_BN: m->lost = true; break;
    default: break;
    }
}

static void note(snd_moments *t, snd_mid v, snd_mid g) {
    const m_band *from = NODE(g)->band;
    if (!from || !from->has_value || !NODE(v)->reached) return;
    // where more than white noise came back, its variance says nothing
    const double white = snd_m_log10_q(t, g), all = snd_m_log10_gq(t, v);
    m_band *to = fabs(all - white) < 0.05 ? m_band_of(t, v) : NULL;
    if (!to) return;
    to->has_grad = true;
    memcpy(to->grad_log_var, from->log_var, sizeof to->grad_log_var);
}

void snd_m_grad_spread(snd_moments *t, snd_mid out, const snd_mid *want, int n_want) {
    mirror *m = &(mirror){.t = t, .n = (snd_mid)(t->n_forward ? t->n_forward : t->n)};
    const snd_mid from = (snd_mid)t->n;
    if (t->failed) return;
    snd_mid *ask = snd_calloc((size_t)n_want + 1, sizeof *ask);
    m->grad = snd_calloc((size_t)m->n, sizeof *m->grad);
    if (!ask || !m->grad) t->failed = true;
    for (int i = 0; i < n_want && !t->failed; i++)
        if (NODE(want[i])->band) NODE(want[i])->band->has_grad = false;
    if (!t->failed) put(m, out, snd_m_input(t, NODE(out)->dim, 1, 0), 1);
    for (snd_mid y = out; y > 0 && !t->failed && !m->lost; y--) {
        if (NODE(y)->op == OP_BOUNDARY) snd_m_boundary(t);
        if (!m->grad[y]) continue;
        back(m, y);
    }
    int n = 0;
    for (int i = 0; i < n_want && !t->failed && !m->lost; i++)
        if (m->grad[want[i]]) ask[n++] = m->grad[want[i]];
    if (n) m_spread_mirror(t, from, out, ask, n);
    for (int i = 0; i < n_want && n; i++)
        if (m->grad[want[i]]) note(t, want[i], m->grad[want[i]]);
    snd_free(ask);
    snd_free(m->grad);
}

bool snd_m_log_gq_var(const snd_moments *t, snd_mid a, double rows, double *var) {
    const m_band *b = NODE(a)->band;
    if (!b || !b->has_grad) return false;
    const double s = b->grad_log_var[0] / rows + (1 - 1 / rows) * b->grad_log_var[1];
    *var = s > 0 ? s : 0;
    return true;
}
