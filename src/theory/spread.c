// How far one network of finite width strays from the moments: variances of the logarithm of E v^2.
//
// Conditioned on what a layer reads, the n features of a fresh map's output are independent draws, so an average over
// features is its expectation plus Gaussian noise of variance 1/n times that of the summand. To first order:
//   delta E^(v w) = (derivative of E v w with respect to the statistics it was computed from) + N(v w),
//   cov(N(a b), N(c d)) = (E a b c d - E [E(a b|old) E(c d|old)])/n,      old: what entered the layer.
// Statistics are: second moments and means of the values that cross a layer boundary, and E u^2 of every map's input u.
// A `form` holds the derivative with respect to the statistics at the layer's start and to the layer's noises. Rows
// are alike, so the same forms serve one row's variance and the covariance of two rows; only the noises' covariance
// differs (factors of the second pair sit in the other row).
//
// Not covered: cosines, gradients (see the simulation with integrated maps), numbers per row, batch norm's own noise.
#include "moments_tape.h"

#include <math.h>
#include <string.h>

#define NODE(i)              m_at(t, i)
#define GROW(ptr, cap, need) snd_grow((void **)&(ptr), &(cap), (need), sizeof *(ptr))
enum { MAX_LIVE = 8, MAX_BASE = 72, MAX_TERMS = 256, MAX_REFS = 12, MAX_DEEP = 256 };
enum { MAX_WORK = 600000, SEGMENT_WORK = 4000 }; // steps of moment(): of a whole net, and what every layer adds

typedef struct form {
    int n;
    double c[MAX_BASE]; // the first n; the others are zero
} form;
typedef struct pair {
    int n;
    int64_t at; // where its n numbers begin in `pool`
} pair;
typedef struct ref {
    snd_mid id;
    int row;
} ref;
typedef struct part {
    double c;
    int n;
    ref r[MAX_REFS];
} part; // c * product of old factors

typedef struct spread {
    snd_moments *t;
    snd_mid base;     // nodes before it are foreign: random, and not followed
    snd_mid from, to; // nodes of the segment
    bool first;       // nothing is old
    int n_live;
    snd_mid live[MAX_LIVE];
    int n_old;  // statistics: pairs i <= j, then means
    int n_base; // n_old, then noises
    snd_mid noise[MAX_BASE][2];
    int64_t noise_dim[MAX_BASE];
    double *cov[2]; // [MAX_BASE^2] one row, two rows
    m_map pairs;    // forms found so far in this segment
    pair *pair;
    int64_t cap_pairs;
    double *pool;
    int64_t n_pool, cap_pool;
    form *old_form; // statistics at the start, as forms
    m_segment *seg; // mirrored pass: the forward layer that is gone through backwards
    int fwd;        // ... and where its variables begin among the base's
    form *atom;     // per atom of the segment, from atom0: d log of its variance
    int64_t atom0, n_atoms, cap_atoms;
    part *scratch;    // [3 * MAX_TERMS]
    int64_t work_end; // stop when the tape's count of steps gets there
    int deep;         // of pair_form and sum_form in each other
    bool lost;        // too large, or a case not covered: no more answers
} spread;

static bool foreign(const spread *s, snd_mid v) {
    return v < s->base && v != 0;
}
static bool old_node(const spread *s, snd_mid v) {
    return v < s->from && v >= s->base && v != 0;
}

static snd_mid plain(const snd_moments *t, snd_mid v) { // through aliases and multiples
    while (NODE(v)->same) v = NODE(v)->same;
    return v;
}

// ---- products opened into old factors times expectations of fresh ones -----------------------------------------------

static void add_part(part *out, int *n, const part *p) {
    for (int i = 0; i < *n; i++) {
        if (out[i].n != p->n) continue;
        bool same = true; // factors stand in a canonical order
        for (int j = 0; j < p->n; j++) same &= out[i].r[j].id == p->r[j].id && out[i].r[j].row == p->r[j].row;
        if (same) {
            out[i].c += p->c;
            return;
        }
    }
    out[(*n)++] = *p;
}

static bool leaf(const spread *s, snd_mid v) {
    const snd_moments *t = s->t;
    const m_node *x = NODE(v);
    if (foreign(s, v)) return false;
    if (old_node(s, v) || x->rep == REP_BASE || x->rep == REP_CENTRE) return true;
    return x->rep == REP_FUNC && t->atom[x->atom].src >= s->base &&
           (!t->atom[x->atom].fresh || t->atom[x->atom].src < s->from);
}

enum { MAX_OPERANDS = 16 };
typedef struct linear {
    int n;
    snd_mid id[MAX_OPERANDS];
    double c[MAX_OPERANDS], c0;
} linear;

static bool constant(const snd_moments *t, snd_mid v) {
    return NODE(v)->rep == REP_SUM && NODE(v)->n_terms == 0;
}

// Is the node a sum by its operation? Then its terms, in node units.
static bool as_sum(const snd_moments *t, snd_mid v, linear *l) {
    const m_node *x = NODE(v);
    l->n = 0;
    l->c0 = 0;
    if (x->rep == REP_SUM &&
        (x->n_terms == 0 || (x->op != OP_LN && x->op != OP_RMSNORM && x->op != OP_SUM && x->op != OP_STOP))) {
        if (x->n_terms > MAX_OPERANDS) return false;
        for (int i = 0; i < x->n_terms; i++) l->id[l->n] = x->term[i], l->c[l->n++] = x->coef[i];
        l->c0 = x->c0;
        return true;
    }
    if (x->op == OP_SUM || x->op == OP_STOP) {
        if (x->n > MAX_OPERANDS) return false;
        for (int i = 0; i < x->n; i++)
            l->id[l->n] = x->in[i], l->c[l->n++] = ldexp(x->opcoef[i], NODE(x->in[i])->k - x->k);
        l->c0 = ldexp(x->opc0, -x->k);
        return true;
    }
    if (x->op == OP_MUL && x->rep == REP_FUNC) { // a number times a function
        const int k = constant(t, x->in[0]) ? 0 : 1;
        if (!constant(t, x->in[k])) return false;
        l->n = 1;
        l->id[0] = x->in[1 - k];
        l->c[0] = NODE(x->in[k])->c0;
        return true;
    }
    if (x->op == OP_LN || x->op == OP_RMSNORM) {
        l->n = 1;
        l->id[0] = x->in[0];
        l->c[0] = ldexp(1 / x->s, -x->k);
        return true; // the caller sees to the mean
    }
    return false;
}

// Aliases and multiples give way to what they stand for.
static double resolve(const snd_moments *t, ref *r, int n) {
    double c = 1;
    for (int i = 0; i < n; i++)
        while (NODE(r[i].id)->same) {
            const m_node *x = NODE(r[i].id);
            c *= ldexp(x->opcoef[0], NODE(x->same)->k - x->k);
            r[i].id = x->same;
        }
    return c;
}

static void open_product(spread *s, const ref *given, int n, double c, part *out, int *n_out) {
    snd_moments *t = s->t;
    ref r[MAX_REFS], next[MAX_REFS];
    if (s->t->work > s->work_end) s->lost = true;
    if (s->lost || c == 0) return;
    memcpy(r, given, (size_t)n * sizeof *r);
    c *= resolve(t, r, n);
    for (int i = 0; i < n; i++) {
        if (r[i].id == 0 || old_node(s, r[i].id) || foreign(s, r[i].id)) continue;
        memcpy(next, r, (size_t)n * sizeof *r);
        const m_node v = *NODE(r[i].id);
        if (v.rep == REP_PROD) {
            if (n + 1 > MAX_REFS) {
                s->lost = true;
                return;
            }
            next[i].id = v.term[0];
            next[n] = (ref){v.term[1], r[i].row};
            open_product(s, next, n + 1, c, out, n_out);
            return;
        }
        linear l;
        if ((v.rep == REP_FUNC && !leaf(s, r[i].id)) || v.rep == REP_BASE || v.rep == REP_CENTRE ||
            !as_sum(t, r[i].id, &l))
            continue;
        if (v.op == OP_LN) l.c0 = -l.c[0] * snd_m_e1(t, v.in[0]);
        for (int k = 0; k < l.n; k++) {
            next[i].id = l.id[k];
            open_product(s, next, n, c * l.c[k], out, n_out);
        }
        next[i].id = 0;
        if (l.c0 != 0) open_product(s, next, n, c * l.c0, out, n_out);
        return;
    }
    part p = {.c = c};
    ref fresh[MAX_REFS];
    int n_fresh = 0;
    for (int i = 0; i < n; i++) {
        if (r[i].id == 0) continue;
        if (!leaf(s, r[i].id)) {
            fresh[n_fresh++] = r[i];
            continue;
        }
        int k = p.n++;
        for (; k > 0 && (p.r[k - 1].id > r[i].id || (p.r[k - 1].id == r[i].id && p.r[k - 1].row > r[i].row)); k--)
            p.r[k] = p.r[k - 1];
        p.r[k] = r[i];
    }
    snd_mid ids[MAX_REFS];
    int rows[MAX_REFS];
    for (int i = 0; i < n_fresh; i++) ids[i] = fresh[i].id, rows[i] = fresh[i].row;
    p.c *= m_moment(t, ids, rows, n_fresh);
    if (*n_out >= MAX_TERMS - 1)
        s->lost = true;
    else if (p.c != 0)
        add_part(out, n_out, &p);
}

static double old_moment(spread *s, const part *a, const part *b) {
    snd_mid ids[2 * MAX_REFS];
    int rows[2 * MAX_REFS], n = 0;
    for (int i = 0; i < a->n; i++) ids[n] = a->r[i].id, rows[n++] = a->r[i].row;
    for (int i = 0; b && i < b->n; i++) ids[n] = b->r[i].id, rows[n++] = b->r[i].row;
    if (n > 12 || s->t->work > s->work_end) {
        s->lost = true;
        return 0;
    }
    return m_moment(s->t, ids, rows, n);
}

static double noise_cov(spread *s, int a, int b, int cross) {
    static const int most = MAX_TERMS;
    if (s->noise_dim[a] != s->noise_dim[b]) return 0;
    part *p = s->scratch;
    const ref r[4] = {{s->noise[a][0], 0}, {s->noise[a][1], 0}, {s->noise[b][0], cross}, {s->noise[b][1], cross}};
    int n[3] = {0};
    open_product(s, r, 4, 1, p, &n[0]);
    open_product(s, r, 2, 1, p + most, &n[1]);
    open_product(s, r + 2, 2, 1, p + 2 * most, &n[2]);
    double whole = 0, given = 0;
    for (int i = 0; i < n[0]; i++) whole += p[i].c * old_moment(s, &p[i], NULL);
    if (s->first) {
        double x = 0, y = 0;
        for (int i = 0; i < n[1]; i++) x += p[most + i].c * old_moment(s, &p[most + i], NULL);
        for (int i = 0; i < n[2]; i++) y += p[2 * most + i].c * old_moment(s, &p[2 * most + i], NULL);
        given = x * y;
    } else {
        for (int i = 0; i < n[1]; i++)
            for (int j = 0; j < n[2]; j++)
                given += p[most + i].c * p[2 * most + j].c * old_moment(s, &p[most + i], &p[2 * most + j]);
    }
    const double v = (whole - given) / (double)s->noise_dim[a];
    return fabs(whole - given) < 1e-13 * fabs(whole) ? 0 : v;
}

// ---- forms ------------------------------------------------------------------------------------------------------------

static void widen(form *f, int n) {
    for (; f->n < n; f->n++) f->c[f->n] = 0;
}

static void add_row(form *to, const double *f, int n, double c) {
    if (c == 0) return;
    widen(to, n);
    for (int i = 0; i < n; i++) to->c[i] += c * f[i];
}
static void add_form(form *to, const form *f, double c) {
    add_row(to, f->c, f->n, c);
}

static int live_index(const spread *s, snd_mid v) {
    for (int i = 0; i < s->n_live; i++)
        if (s->live[i] == v) return i;
    return -1;
}

static int pair_stat(const spread *s, int i, int j) { // i <= j
    if (i > j) {
        const int k = i;
        i = j, j = k;
    }
    return i * s->n_live - i * (i - 1) / 2 + (j - i);
}
static int mean_stat(const spread *s, int i) {
    return s->n_live * (s->n_live + 1) / 2 + i;
}

static int noise_of(spread *s, snd_mid v, snd_mid w) {
    snd_moments *t = s->t;
    for (int i = s->n_old; i < s->n_base; i++)
        if (s->noise[i][0] == v && s->noise[i][1] == w) return i;
    if (s->n_base >= MAX_BASE) {
        s->lost = true;
        return 0;
    }
    const int k = s->n_base;
    s->noise[k][0] = v, s->noise[k][1] = w;
    const int64_t dv = NODE(v)->dim, dw = NODE(w)->dim;
    s->noise_dim[k] = dv > dw ? dv : dw;
    if (s->noise_dim[k] < 2) s->lost = true; // a number per row does not average over features
    for (int cross = 0; cross < 2; cross++)
        for (int i = 0; i <= k; i++) {
            const double v2 = i < s->n_old ? 0 : noise_cov(s, i, k, cross);
            s->cov[cross][i * MAX_BASE + k] = s->cov[cross][k * MAX_BASE + i] = v2;
        }
    s->n_base++;
    return k;
}

static void add_pair(spread *s, snd_mid v, snd_mid w, double c, form *to);

// The same of a norm of the forward pass, seen from the mirrored one.
static void add_forward_norm(const spread *s, snd_mid y, double c, form *to) {
    const m_segment *g = s->seg;
    for (int i = 0; g && i < g->n_norms; i++) {
        if (g->norm[i] != y) continue;
        widen(to, s->fwd + g->n_base);
        for (int k = 0; k < g->n_base; k++) to->c[s->fwd + k] += c * g->scale[i * g->n_base + k];
    }
}

// Relative change of a norm's squared divisor.
static void add_norm(spread *s, snd_mid y, double c, form *to) {
    snd_moments *t = s->t;
    if (foreign(s, y)) {
        add_forward_norm(s, y, c, to);
        return;
    }
    const snd_mid x = NODE(y)->in[0];
    const double s2 = NODE(y)->s * NODE(y)->s;
    const bool layer = NODE(y)->op == OP_LN;
    add_pair(s, x, x, c / s2, to);
    if (layer) add_pair(s, x, 0, -2 * c * snd_m_e1(t, x) / s2, to);
}

// Relative change of a number (a constant of the tape: rms, dot, a learned scalar and functions of these).
static void add_number(spread *s, snd_mid v, double c, form *to) {
    snd_moments *t = s->t;
    const m_node x = *NODE(v);
    if (x.c0 == 0 || old_node(s, v)) return;
    if (x.op == OP_RMS || x.op == OP_DOT) {
        const snd_mid a = x.in[0], b = x.op == OP_RMS ? a : x.in[1];
        add_pair(s, a, b, c * (x.op == OP_RMS ? 0.5 : 1) / snd_m_e2(t, a, b, 0), to);
    } else if (x.op == OP_UNARY) {
        const double u = ldexp(NODE(x.in[0])->c0, NODE(x.in[0])->k);
        add_number(s, x.in[0], c * u * snd_gfn_slope((snd_gfn)x.fn, u) / snd_gfn_value((snd_gfn)x.fn, u), to);
    } else if (x.op == OP_SUM || x.op == OP_MUL) {
        for (int i = 0; i < x.n; i++) {
            const double share =
                x.op == OP_MUL ? 1 : ldexp(x.opcoef[i] * NODE(x.in[i])->c0, NODE(x.in[i])->k - x.k) / x.c0;
            add_number(s, x.in[i], c * share, to);
        }
    }
}

// Variances of the fresh variables among ids [m]: d E g / d log Q = (E g z^2 - E g)/2, times c and outer. False: failed.
static bool by_variances(spread *s, const snd_mid *ids, int m, double c, double outer, form *out) {
    snd_moments *t = s->t;
    const int rows[MAX_REFS] = {0};
    for (int i = 0; i < m; i++) {
        const int32_t atom = NODE(ids[i])->rep == REP_FUNC ? NODE(ids[i])->atom : -1;
        bool seen = atom < 0 || t->atom[atom].src < s->base;
        for (int j = 0; j < i; j++) seen |= NODE(ids[j])->rep == REP_FUNC && NODE(ids[j])->atom == atom;
        if (seen) continue;
        snd_mid all = 0, others[MAX_REFS] = {0};
        int k = 0;
        for (int j = 0; j < m; j++) {
            if (NODE(ids[j])->rep == REP_FUNC && NODE(ids[j])->atom == atom)
                all = m_product(t, all, ids[j]);
            else
                others[k++] = ids[j];
        }
        if (t->failed) {
            s->lost = true;
            return false;
        }
        const double second = M_SQRT2 * m_coefficient(t, all, 2); // E g (z^2 - 1)
        const double slope = 0.5 * c * second * m_moment(t, others, rows, k) * outer;
        const int64_t own = NODE(all)->atom - s->atom0;
        if (own >= 0 && own < s->n_atoms) add_form(out, &s->atom[own], slope);
        if (NODE(all)->normed && !foreign(s, NODE(all)->normed)) // of z/s: the divisor moves too
            add_norm(s, NODE(all)->normed, -slope, out);
    }
    return true;
}

// Statistics at the layer's start: those of one or two values old [n], times c.
static void by_old(spread *s, const snd_mid *old, int n, double c, form *out) {
    snd_moments *t = s->t;
    int at[MAX_REFS];
    for (int i = 0; i < n; i++) {
        const bool centred = !old_node(s, old[i]) && NODE(old[i])->rep == REP_CENTRE;
        if (centred) return; // batch-centred: not followed
        at[i] = old_node(s, old[i]) ? live_index(s, old[i]) : -1;
        if (at[i] >= 0) continue;
        s->lost = true; // a function of what is not fresh: no statistic tells how it moves
        return;
    }
    if (n == 1)
        add_form(out, &s->old_form[mean_stat(s, at[0])], c);
    else if (n == 2)
        add_form(out, &s->old_form[pair_stat(s, at[0], at[1])], c);
    else
        s->lost = true;
}

// Where no factor is a sum any more.
static void respond_leaves(spread *s, const ref *r, int n, double c, const form *df, form *out, bool *fresh) {
    snd_moments *t = s->t;
    snd_mid ids[MAX_REFS] = {0}, old[MAX_REFS] = {0};
    const int rows[MAX_REFS] = {0};
    int m = 0, n_old = 0;
    for (int i = 0; i < n; i++) {
        if (r[i].id == 0) continue;
        if (leaf(s, r[i].id))
            old[n_old++] = r[i].id;
        else
            ids[m++] = r[i].id, *fresh = true;
    }
    if (s->first && n_old) *fresh = true;
    const double inner = m_moment(t, ids, rows, m), outer = m_moment(t, old, rows, n_old);
    add_form(out, df, c * inner * outer);
    if (!by_variances(s, ids, m, c, outer, out) || s->first || n_old == 0) return;
    by_old(s, old, n_old, c * inner, out);
}

// Derivative of E [prod r] through everything but the noise; r has at most two factors, all in row 0.
// df: derivative of the coefficient c, already without c's own value (relative).
static void respond(spread *s, const ref *given, int n, double c, const form *df, form *out, bool *fresh) {
    snd_moments *t = s->t;
    ref r[MAX_REFS], next[MAX_REFS];
    if (s->t->work > s->work_end) s->lost = true;
    if (s->lost || c == 0) return;
    memcpy(r, given, (size_t)n * sizeof *r);
    c *= resolve(t, r, n);
    for (int i = 0; i < n; i++) {
        if (r[i].id == 0 || old_node(s, r[i].id) || foreign(s, r[i].id)) continue;
        const m_node v = *NODE(r[i].id);
        memcpy(next, r, (size_t)n * sizeof *r);
        form f = *df;
        if (v.rep == REP_PROD) {
            if (n + 1 > MAX_REFS) {
                s->lost = true;
                return;
            }
            next[i].id = v.term[0];
            next[n] = (ref){v.term[1], 0};
            respond(s, next, n + 1, c, &f, out, fresh);
            return;
        }
        const bool norm = v.op == OP_LN || v.op == OP_RMSNORM || v.norm_of;
        linear l;
        if ((v.rep == REP_FUNC && !leaf(s, r[i].id) && !norm) || v.rep == REP_BASE || v.rep == REP_CENTRE ||
            !as_sum(t, r[i].id, &l))
            continue;
        form shift; // of c0, absolute
        shift.n = 0;
        if (norm) {
            add_norm(s, v.norm_of ? v.norm_of : r[i].id, -0.5, &f);
            if (v.op == OP_LN) {
                l.c0 = -l.c[0] * snd_m_e1(t, v.in[0]);
                add_pair(s, v.in[0], 0, -l.c[0], &shift);
            }
        } else if (v.op == OP_MUL || v.n_terms == 0) { // a number, or a number times a value
            for (int k = 0; v.op == OP_MUL && k < v.n; k++)
                if (constant(t, v.in[k])) add_number(s, v.in[k], 1, &f);
            if (v.op != OP_MUL && v.op != OP_SUM) add_number(s, r[i].id, 1, &f);
        }
        for (int k = 0; k < l.n; k++) {
            next[i].id = l.id[k];
            respond(s, next, n, c * l.c[k], &f, out, fresh);
        }
        next[i].id = 0;
        if (l.c0 != 0) respond(s, next, n, c * l.c0, &f, out, fresh);
        if (v.op == OP_LN) { // c * d(c0) * E rest
            snd_mid ids[MAX_REFS] = {0};
            int rows[MAX_REFS] = {0}, m = 0;
            for (int k = 0; k < n; k++)
                if (k != i && r[k].id) ids[m++] = r[k].id;
            add_form(out, &shift, c * m_moment(t, ids, rows, m));
        }
        return;
    }
    respond_leaves(s, r, n, c, df, out, fresh);
}

// Neither is a sum: the derivative and a noise of its own.
static void product_form(spread *s, snd_mid v, snd_mid w, form *f) {
    form none;
    none.n = 0;
    bool fresh = false;
    respond(s, (ref[MAX_REFS]){{v, 0}, {w, 0}}, 2, 1, &none, f, &fresh);
    if (!fresh || s->lost) return;
    const int k = noise_of(s, v, w);
    widen(f, k + 1);
    f->c[k] += 1;
}

// Is the node a sum that the layer makes? Functions of one fresh variable are better left whole.
static bool opens(const spread *s, snd_mid v) {
    const m_node *x = m_at(s->t, v);
    linear l;
    if (v == 0 || old_node(s, v) || foreign(s, v) || x->rep == REP_BASE || x->rep == REP_CENTRE || x->rep == REP_PROD)
        return false;
    if (x->rep == REP_FUNC && !leaf(s, v) && x->op != OP_LN && x->op != OP_RMSNORM && x->op != OP_MUL && !x->norm_of)
        return false;
    return as_sum(s->t, v, &l);
}

// d E^(v w) for v = c0 + sum c_k t_k, where the c may themselves follow the statistics.
static void sum_form(spread *s, snd_mid v, snd_mid w, form *f) {
    snd_moments *t = s->t;
    const m_node x = *NODE(v);
    linear l;
    as_sum(t, v, &l);
    if (x.op == OP_LN || x.op == OP_RMSNORM || x.norm_of) {
        add_norm(s, x.norm_of ? x.norm_of : v, -0.5 * snd_m_e2(t, v, w, 0), f);
        if (x.op == OP_LN) {
            l.c0 = -l.c[0] * snd_m_e1(t, x.in[0]);
            add_pair(s, x.in[0], 0, -l.c[0] * snd_m_e1(t, w), f);
        }
    } else if (x.op == OP_MUL) {
        for (int k = 0; k < x.n; k++)
            if (constant(t, x.in[k])) add_number(s, x.in[k], snd_m_e2(t, v, w, 0), f);
    } else if (x.rep == REP_SUM && x.n_terms == 0 && x.op != OP_SUM) {
        add_number(s, v, snd_m_e2(t, v, w, 0), f);
    }
    for (int k = 0; k < l.n && !s->lost; k++) add_pair(s, l.id[k], w, l.c[k], f);
    if (l.c0 != 0 && w != 0) add_pair(s, w, 0, l.c0, f);
}

static void remember(spread *s, uint64_t key, const form *f) {
    if (!GROW(s->pair, s->cap_pairs, s->pairs.n + 1) || !GROW(s->pool, s->cap_pool, s->n_pool + f->n) ||
        !m_map_add(&s->pairs, key)) {
        s->lost = true;
        return;
    }
    s->pair[s->pairs.n - 1] = (pair){f->n, s->n_pool};
    memcpy(s->pool + s->n_pool, f->c, (size_t)f->n * sizeof(double));
    s->n_pool += f->n;
}

// to += c * d E^(v w), noise included; w = 0: the mean of v.
static void add_pair(spread *s, snd_mid v, snd_mid w, double c, form *to) {
    ref r[2] = {{v, 0}, {w, 0}};
    c *= resolve(s->t, r, 2);
    v = r[0].id > r[1].id ? r[0].id : r[1].id;
    w = r[0].id > r[1].id ? r[1].id : r[0].id;
    const uint64_t key = (uint64_t)(uint32_t)v << 32 | (uint32_t)w;
    const int64_t known = m_map_find(&s->pairs, key);
    if (known >= 0) {
        add_row(to, s->pool + s->pair[known].at, s->pair[known].n, c);
        return;
    }
    if (s->deep == MAX_DEEP) {
        s->lost = true;
        return;
    }
    form f;
    f.n = 0;
    s->deep++;
    if (opens(s, v))
        sum_form(s, v, w, &f);
    else if (opens(s, w))
        sum_form(s, w, v, &f);
    else
        product_form(s, v, w, &f);
    s->deep--;
    remember(s, key, &f);
    add_form(to, &f, c);
}

static form pair_form(spread *s, snd_mid v, snd_mid w) {
    form f;
    f.n = 0;
    add_pair(s, v, w, 1, &f);
    return f;
}

// cov f: f's covariance with each variable of the base.
static void times_cov(const spread *s, const form *f, int cross, double *out) {
    memset(out, 0, (size_t)s->n_base * sizeof *out);
    for (int i = 0; i < f->n; i++)
        for (int j = 0; f->c[i] != 0 && j < s->n_base; j++) out[j] += f->c[i] * s->cov[cross][i * MAX_BASE + j];
}

static double dot(const double *x, const form *f) {
    double v = 0;
    for (int i = 0; i < f->n; i++) v += x[i] * f->c[i];
    return v;
}

static double variance(const spread *s, const form *f, int cross) {
    double x[MAX_BASE];
    times_cov(s, f, cross, x);
    return dot(x, f);
}

// ---- segments ---------------------------------------------------------------------------------------------------------

// Nodes made before `at` that something made later reads.
static int find_live(const snd_moments *t, snd_mid at, const snd_mid *last_use, snd_mid *live, snd_mid *scan,
                     int n_scan) {
    int n = 0;
    for (int i = 0; i < n_scan; i++) {
        const snd_mid v = scan[i];
        if (v >= at || last_use[v] < at || NODE(v)->dim < 2) continue;
        if (n == MAX_LIVE) return -1;
        live[n++] = v;
    }
    return n;
}

static void answer(spread *s, snd_mid v) {
    snd_moments *t = s->t;
    const snd_mid p = plain(t, v);
    const double q = snd_m_e2(t, p, p, 0);
    if (!(q > 0)) return;
    const form f = pair_form(s, p, p), m = pair_form(s, p, 0);
    m_band *b = s->lost ? NULL : m_band_of(t, v);
    if (!b) return;
    for (int cross = 0; cross < 2; cross++) {
        b->log_var[cross] = variance(s, &f, cross) / (q * q);
        b->mean_var[cross] = variance(s, &m, cross) / q;
    }
    b->has_value = true;
}

static double *copy(spread *s, const double *from, int64_t n) {
    double *p = snd_arena_array(s->t->arena, (size_t)(n ? n : 1), sizeof *p);
    if (!p)
        s->t->failed = s->lost = true;
    else if (from)
        memcpy(p, from, (size_t)n * sizeof *p);
    return p;
}

// Keeps what the gradients will need of a forward segment; f: the forms of the statistics at its end.
static void keep_segment(spread *s, const form *f, int n_next) {
    snd_moments *t = s->t;
    int n_norms = 0;
    for (snd_mid v = s->from; v < s->to; v++) n_norms += NODE(v)->op == OP_LN || NODE(v)->op == OP_RMSNORM;
    form *scale = snd_calloc((size_t)n_norms + 1, sizeof *scale);
    snd_mid *norm = snd_arena_array(t->arena, (size_t)n_norms + 1, sizeof *norm);
    if (!scale || !norm) s->lost = true;
    int k = 0;
    for (snd_mid v = s->from; v < s->to && !s->lost; v++)
        if (NODE(v)->op == OP_LN || NODE(v)->op == OP_RMSNORM) {
            norm[k] = v;
            add_norm(s, v, 1, &scale[k++]); // may still add noises
        }
    const int b = s->n_base;
    m_segment g = {.from = s->from,
                   .to = s->to,
                   .n_old = s->n_old,
                   .n_base = b,
                   .n_next = n_next,
                   .n_norms = n_norms,
                   .norm = norm};
    for (int cross = 0; cross < 2 && !s->lost; cross++) {
        g.cov[cross] = copy(s, NULL, (int64_t)b * b);
        for (int i = 0; i < b && !s->lost; i++)
            for (int j = 0; j < b; j++) g.cov[cross][i * b + j] = s->cov[cross][i * MAX_BASE + j];
    }
    g.next = copy(s, NULL, (int64_t)n_next * b);
    g.scale = copy(s, NULL, (int64_t)n_norms * b);
    for (int i = 0; i < n_next && !s->lost; i++) memcpy(g.next + i * b, f[i].c, (size_t)f[i].n * sizeof(double));
    for (int i = 0; i < n_norms && !s->lost; i++)
        memcpy(g.scale + i * b, scale[i].c, (size_t)scale[i].n * sizeof(double));
    snd_free(scale);
    if (s->lost || !snd_grow((void **)&t->segment, &t->cap_segments, t->n_segments + 1, sizeof *t->segment)) {
        s->lost = true;
        return;
    }
    t->segment[t->n_segments++] = g;
}

// Forms and covariance at the start of a segment. Forward: the statistics are the base. Mirrored: a statistic is a part e
// of its own plus h.(statistics of the forward pass at this place), which the forward segment writes in its base.
static void start_base(spread *s, int n_stats, double *const cov[2], const form *h, int n_h) {
    const m_segment *g = s->seg;
    const int all = n_stats + (g ? g->n_base : 0);
    if (all > MAX_BASE - 8 || (g && n_h && n_h != g->n_next)) {
        s->lost = true;
        return;
    }
    for (int i = 0; i < n_stats; i++) {
        s->old_form[i].n = 0;
        widen(&s->old_form[i], all);
        s->old_form[i].c[i] = 1;
    }
    s->n_old = s->n_base = n_stats;
    for (int cross = 0; cross < 2; cross++) {
        for (int i = 0; i < all; i++) memset(s->cov[cross] + i * MAX_BASE, 0, (size_t)all * sizeof(double));
        for (int i = 0; i < n_stats; i++)
            memcpy(s->cov[cross] + i * MAX_BASE, cov[cross] + i * n_stats, (size_t)n_stats * sizeof(double));
    }
    m_map_clear(&s->pairs);
    s->n_pool = 0;
    if (!g) return;
    s->fwd = n_stats;
    for (int cross = 0; cross < 2; cross++)
        for (int i = 0; i < g->n_base; i++)
            for (int j = 0; j < g->n_base; j++)
                s->cov[cross][(s->fwd + i) * MAX_BASE + s->fwd + j] = g->cov[cross][i * g->n_base + j];
    for (int i = 0; i < n_stats; i++)
        for (int j = 0; j < n_h; j++)
            for (int k = 0; k < g->n_base; k++) s->old_form[i].c[s->fwd + k] += h[i].c[j] * g->next[j * g->n_base + k];
    s->n_old = s->n_base = n_stats + g->n_base;
}

static void enter_segment(spread *s, snd_mid from, snd_mid to, const snd_mid *live, int n) {
    // statistics of the values that cross, as forms of the segment that ends
    const int n_stats = n * (n + 1) / 2 + n, n_h = s->seg ? s->seg->n_old : 0;
    form *f = snd_calloc((size_t)(n_stats + 1), sizeof *f), *h = snd_calloc((size_t)(n_stats + 1), sizeof *h);
    double *cov[2] = {snd_calloc((size_t)n_stats * n_stats + 1, sizeof(double)),
                      snd_calloc((size_t)n_stats * n_stats + 1, sizeof(double))};
    if (!f || !h || !cov[0] || !cov[1] || n_stats > MAX_BASE) {
        s->lost = true;
    } else {
        int k = 0;
        for (int i = 0; i < n; i++)
            for (int j = i; j < n; j++) f[k++] = pair_form(s, live[i], live[j]);
        for (int i = 0; i < n; i++) f[k++] = pair_form(s, live[i], 0);
        if (!s->base) keep_segment(s, f, n_stats);
        for (int i = 0; i < n_stats; i++)
            for (int j = 0; j < n_h; j++) {
                widen(&f[i], s->fwd + n_h);
                h[i].c[j] = f[i].c[s->fwd + j];
                f[i].c[s->fwd + j] = 0;
            }
        for (int cross = 0; cross < 2; cross++)
            for (int i = 0; i < n_stats; i++) {
                double x[MAX_BASE];
                times_cov(s, &f[i], cross, x);
                for (int j = 0; j < n_stats; j++) cov[cross][i * n_stats + j] = dot(x, &f[j]);
            }
        s->from = from, s->to = to;
        s->first = false;
        s->n_live = n;
        memcpy(s->live, live, (size_t)n * sizeof *live);
        if (s->base) s->seg = s->seg && s->seg > s->t->segment ? s->seg - 1 : NULL;
        start_base(s, n_stats, cov, h, s->seg ? n_h : 0);
    }
    snd_free(f);
    snd_free(h);
    snd_free(cov[0]);
    snd_free(cov[1]);
}

// The atoms that the segment makes: they stand together.
static bool find_atoms(spread *s) {
    const snd_moments *t = s->t;
    while (s->atom0 < t->n_atoms && t->atom[s->atom0].src < s->from) s->atom0++;
    s->n_atoms = 0;
    while (s->atom0 + s->n_atoms < t->n_atoms && t->atom[s->atom0 + s->n_atoms].src < s->to) s->n_atoms++;
    if (!GROW(s->atom, s->cap_atoms, s->n_atoms)) return false;
    for (int64_t i = 0; i < s->n_atoms; i++) s->atom[i].n = 0;
    return true;
}

static void walk_segment(spread *s, const bool *wanted) {
    snd_moments *t = s->t;
    if (!find_atoms(s)) s->lost = true;
    for (snd_mid v = s->from > 1 ? s->from : 1; v < s->to && !s->lost; v++) {
        const m_node *x = NODE(v);
        if (x->op == OP_LINEAR && x->rep == REP_FUNC) {
            const snd_mid u = plain(t, x->in[0]);
            form rel;
            rel.n = 0;
            add_pair(s, u, u, 1 / snd_m_e2(t, u, u, 0), &rel);
            s->atom[NODE(v)->atom - s->atom0] = rel;
        }
        if (NODE(v)->op == OP_BN || (NODE(v)->dim == 1 && NODE(v)->rep == REP_FUNC)) s->lost = true; // see the top
        if (wanted[v]) answer(s, v);
    }
}

static void run(spread *s, const snd_mid *want, int n_want) {
    snd_moments *t = s->t;
    s->work_end = t->work + MAX_WORK;
    const snd_mid n = (snd_mid)t->n, base = s->base; // products made on the way stand behind
    snd_mid *last = snd_calloc((size_t)n, sizeof *last), *scan = snd_calloc((size_t)n, sizeof *scan);
    bool *wanted = snd_calloc((size_t)n, sizeof *wanted);
    s->scratch = snd_calloc(3 * MAX_TERMS, sizeof *s->scratch);
    s->old_form = snd_calloc(MAX_BASE, sizeof *s->old_form);
    s->cov[0] = snd_calloc(MAX_BASE * MAX_BASE, sizeof(double));
    s->cov[1] = snd_calloc(MAX_BASE * MAX_BASE, sizeof(double));
    if (!last || !wanted || !scan || !s->scratch || !s->old_form || !s->cov[0] || !s->cov[1]) {
        t->failed = s->lost = true;
    } else {
        int n_scan = 0;
        double *const none[2] = {s->cov[0], s->cov[1]};
        for (int i = 0; i < n_want; i++) wanted[want[i]] = true;
        for (snd_mid v = base > 1 ? base : 1; v < n; v++)
            for (int i = 0; i < NODE(v)->n; i++) last[plain(t, NODE(v)->in[i])] = v;
        start_base(s, 0, none, NULL, 0);
        snd_mid from = base;
        for (snd_mid v = base > 1 ? base : 1; v <= n && !s->lost; v++) {
            if (v < n && NODE(v)->op != OP_BOUNDARY) continue;
            s->from = from, s->to = v;
            walk_segment(s, wanted);
            if (v == n) break;
            s->work_end += SEGMENT_WORK; // depth alone, whose cost is linear, does not use the limit up
            for (snd_mid u = from ? from : 1; u < v; u++)
                if (last[u] >= v) scan[n_scan++] = u;
            int kept = 0;
            for (int i = 0; i < n_scan; i++)
                if (last[scan[i]] >= v) scan[kept++] = scan[i];
            n_scan = kept;
            snd_mid live[MAX_LIVE];
            const int n_live = find_live(t, v, last, live, scan, n_scan);
            if (n_live < 0)
                s->lost = true;
            else if (!s->lost)
                enter_segment(s, v, n, live, n_live);
            from = v;
        }
        if (!s->lost && !base) keep_segment(s, NULL, 0);
    }
    snd_free(last);
    snd_free(scan);
    snd_free(wanted);
    snd_free(s->atom);
    snd_free(s->scratch);
    snd_free(s->old_form);
    snd_free(s->cov[0]);
    snd_free(s->cov[1]);
    m_map_free(&s->pairs);
    snd_free(s->pair);
    snd_free(s->pool);
}

void snd_m_spread(snd_moments *t, const snd_mid *want, int n_want) {
    spread s = {.t = t, .first = true};
    t->n_segments = 0;
    t->segments_whole = false;
    if (t->failed) return;
    run(&s, want, n_want);
    t->segments_whole = !s.lost;
}

void m_spread_mirror(snd_moments *t, snd_mid from, snd_mid out, const snd_mid *want, int n_want) {
    spread s = {.t = t, .first = true, .base = from, .from = from};
    if (!t->segments_whole || t->failed) return;
    for (int64_t i = 0; i < t->n_segments; i++)
        if (t->segment[i].from <= out && out < t->segment[i].to) s.seg = &t->segment[i];
    if (s.seg) run(&s, want, n_want);
}

static double batch(const double v[2], double rows) {
    const double s = v[0] / rows + (1 - 1 / rows) * v[1];
    return s > 0 ? s : 0;
}

bool snd_m_log_q_var(const snd_moments *t, snd_mid a, double rows, double *var) {
    const m_band *b = NODE(a)->band;
    if (!b || !b->has_value) return false;
    *var = batch(b->log_var, rows);
    return true;
}

bool snd_m_mean_var(const snd_moments *t, snd_mid a, double rows, double *var) {
    const m_band *b = NODE(a)->band;
    if (!b || !b->has_value) return false;
    *var = batch(b->mean_var, rows);
    return true;
}
