// Gradients in the moment algebra.
//
// The gradient of a node is a sum of two kinds of terms (all numbers belong to one row):
//   noise     c * mu_i * gamma_i     gamma: a white vector that knows nothing of the forward pass; mu: a forward node
//   coherent  c * xi * u_i           xi: one random number per row, small like 1/sqrt(width); u: a forward node
// The second kind must be carried because the net may amplify it far more than noise.
//
// Through y = W x with fresh W the forward pass has fixed W x = y, no more. So W = y x'/|x|^2 + W~ (1 - x x'/|x|^2)
// and  W'g = x (y.g)/|x|^2 + noise orthogonal to x of energy out*var*E g^2.
// Elementwise: g_x = f'(x) g_y multiplies mu and u. LayerNorm y = (x - m)/s: g_x = (g - mean g - y mean(g y))/s, the
// means are numbers xi. A mean over features of noise times a node n is an "overlap": Gaussian, and
//   cov(o_k(n), o_l(m)) = G_kl/dim * (E n m - the part of it along what the noise is orthogonal to).
// Two sweeps are made, the first without the means and overlaps ("white"). At infinite width it is the answer unless the
// second has grown past it. The second also knows what white noise loses to projections, 1/dim of its energy each, but
// not what the spread of norms' divisors gives back (about as much), so the larger of the two is taken. Where the live
// forward values span the whole width (a net one or two features wide) the second sweep ends: the first one stands.
// At the end of each layer all live gradients are re-expressed by what matters below: coefficients along the ones and
// the live forward values, plus white noise with a Gram matrix. That keeps the cost linear in depth.
#include "moments_tape.h"

#include <math.h>
#include <string.h>

#define NODE(i) m_at(t, i)

typedef struct term {
    bool coherent;
    int32_t src;
    snd_mid node;
    double c;
} term;
typedef struct grad {
    term *t;
    int64_t cap;
    int32_t n;
} grad;

typedef struct group { // white vectors made together, orthogonal to the same nodes
    int n;
    double *gram; // [n,n] energy per coordinate, before the projection
    int n_basis;
    snd_mid *basis;
    double *chol;    // [n_basis,n_basis] lower: E b b' = chol chol'
    double *inverse; // (E b b')^-1
    double dim;
} group;
typedef struct noise {
    int32_t group, at;
} noise;

typedef struct number { // xi: an overlap, or one of a set with a known covariance
    int32_t noise;      // -1: of a set
    snd_mid node;
    int32_t set, at;
} number;
typedef struct set {
    int n;
    double *cov;
} set;

typedef struct sweep {
    snd_moments *t;
    snd_mid n; // nodes of the forward pass
    grad *g;
    group *group;
    int64_t n_groups, cap_groups;
    noise *noise;
    int64_t n_noises, cap_noises;
    number *number;
    int64_t n_numbers, cap_numbers;
    set *set;
    int64_t n_sets, cap_sets;
    snd_mid *live;
    int64_t n_live, cap_live; // nodes with a gradient, not yet passed
    int gk;                   // gradients are in units of 2^gk
    bool white;               // leave out what returns along forward values
    int64_t least;            // width from which a value is one of features: 2, or 1 where the stream itself has one
    bool spent;               // the forward values span the whole width: nothing is left for noise
} sweep;

#define GROW(ptr, cap, need) snd_grow((void **)&(ptr), &(cap), (need), sizeof *(ptr))

static void *take(sweep *w, size_t n, size_t size) {
    void *p = snd_arena_array(w->t->arena, n ? n : 1, size);
    if (!p) w->t->failed = true;
    return p;
}

static void put(sweep *w, snd_mid v, term a) {
    if (a.c == 0 || v >= w->n || m_at(w->t, v)->dim == 0) return;
    grad *g = &w->g[v];
    for (int i = 0; i < g->n; i++)
        if (g->t[i].coherent == a.coherent && g->t[i].src == a.src && g->t[i].node == a.node) {
            g->t[i].c += a.c;
            return;
        }
    if (g->n == 0) {
        if (!GROW(w->live, w->cap_live, w->n_live + 1)) {
            w->t->failed = true;
            return;
        }
        w->live[w->n_live++] = v;
    }
    if (g->n >= g->cap && !GROW(g->t, g->cap, g->n + 1)) {
        w->t->failed = true;
        return;
    }
    g->t[g->n++] = a;
}

static int32_t new_noise(sweep *w, int32_t of, int32_t at) {
    if (w->n_noises >= w->cap_noises && !GROW(w->noise, w->cap_noises, w->n_noises + 1)) {
        w->t->failed = true;
        return 0;
    }
    w->noise[w->n_noises] = (noise){of, at};
    return (int32_t)w->n_noises++;
}

static int32_t new_group(sweep *w, group g) {
    if (w->n_groups >= w->cap_groups && !GROW(w->group, w->cap_groups, w->n_groups + 1)) {
        w->t->failed = true;
        return 0;
    }
    w->group[w->n_groups] = g;
    return (int32_t)w->n_groups++;
}

static int32_t new_number(sweep *w, number x) {
    for (int64_t i = w->n_numbers - 1; i >= 0 && i >= w->n_numbers - 24; i--) // the same overlap again
        if (x.noise >= 0 && w->number[i].noise == x.noise && w->number[i].node == x.node) return (int32_t)i;
    if (w->n_numbers >= w->cap_numbers && !GROW(w->number, w->cap_numbers, w->n_numbers + 1)) {
        w->t->failed = true;
        return 0;
    }
    w->number[w->n_numbers] = x;
    return (int32_t)w->n_numbers++;
}

static int32_t overlap(sweep *w, int32_t k, snd_mid node) {
    return new_number(w, (number){k, node, -1, 0});
}

// A single white vector of given energy, orthogonal to x (x < 0: to nothing).
static int32_t lone_noise(sweep *w, double energy, double dim, snd_mid x) {
    group g = {.n = 1, .dim = dim};
    g.gram = take(w, 1, sizeof(double));
    if (!g.gram) return 0;
    g.gram[0] = energy;
    if (x >= 0 && !w->white) {
        g.basis = take(w, 1, sizeof *g.basis);
        g.chol = take(w, 1, sizeof *g.chol);
        if (!g.basis || !g.chol) return 0;
        g.n_basis = 1;
        g.basis[0] = x;
        g.chol[0] = sqrt(snd_m_e2(w->t, x, x, 0));
        g.inverse = take(w, 1, sizeof *g.inverse);
        if (!g.inverse) return 0;
        g.inverse[0] = 1 / (g.chol[0] * g.chol[0]);
    }
    return new_noise(w, new_group(w, g), 0);
}

// Coordinates of a node along an orthonormal form of the group's basis.
static void along(sweep *w, const group *g, snd_mid n, double *u) {
    for (int i = 0; i < g->n_basis; i++) {
        double s = snd_m_e2(w->t, g->basis[i], n, 0);
        for (int j = 0; j < i; j++) s -= g->chol[i * g->n_basis + j] * u[j];
        u[i] = s / g->chol[i * g->n_basis + i];
    }
}

enum { MAX_BASIS = 17 };

static double overlap_cov(sweep *w, int32_t k, snd_mid n, int32_t l, snd_mid m) {
    const noise a = w->noise[k], b = w->noise[l];
    if (a.group != b.group) return 0;
    const group g = w->group[a.group];
    const double e = g.gram[a.at * g.n + b.at];
    if (e == 0) return 0;
    double s = snd_m_e2(w->t, n, m, 0), u[MAX_BASIS], v[MAX_BASIS];
    const double whole = s;
    along(w, &g, n, u);
    along(w, &g, m, v);
    for (int i = 0; i < g.n_basis; i++) s -= u[i] * v[i];
    if (n == m && s < 1e-12 * whole) s = 0; // lies in the basis: what is left is rounding
    return e / g.dim * s;
}

static double number_cov(sweep *w, number x, number y) {
    if (x.noise >= 0 && y.noise >= 0) return overlap_cov(w, x.noise, x.node, y.noise, y.node);
    if (x.noise >= 0 || y.noise >= 0 || x.set != y.set) return 0;
    return w->set[x.set].cov[x.at * w->set[x.set].n + y.at];
}

// E of two terms' product, averaged over features.
static double term_pair(sweep *w, const term *a, const term *b) {
    snd_moments *t = w->t;
    const double c = a->c * b->c;
    if (a->coherent && b->coherent) {
        const double v = number_cov(w, w->number[a->src], w->number[b->src]);
        return v == 0 ? 0 : c * v * snd_m_e2(t, a->node, b->node, 0);
    }
    if (!a->coherent && !b->coherent) {
        const noise x = w->noise[a->src], y = w->noise[b->src];
        if (x.group != y.group) return 0;
        const group g = w->group[x.group];
        const double e = g.gram[x.at * g.n + y.at];
        if (e == 0) return 0;
        // mu P gamma with P = 1 - sum inverse_ij b_i b_j'/dim
        double lost = 0;
        for (int i = 0; i < g.n_basis; i++)
            for (int j = 0; j < g.n_basis; j++)
                if (g.inverse[i * g.n_basis + j] != 0)
                    lost += g.inverse[i * g.n_basis + j] *
                            snd_m_e2(t, m_product(t, a->node, g.basis[i]), m_product(t, b->node, g.basis[j]), 0);
        return c * e * (snd_m_e2(t, a->node, b->node, 0) - lost / g.dim);
    }
    if (w->white) return 0;
    const term *n = a->coherent ? b : a, *u = a->coherent ? a : b;
    const number x = w->number[u->src];
    if (x.noise < 0 || w->noise[x.noise].group != w->noise[n->src].group) return 0;
    return c * overlap_cov(w, n->src, m_product(t, n->node, u->node), x.noise, x.node);
}

static double energy(sweep *w, snd_mid v, snd_mid u) {
    const grad *a = &w->g[v], *b = &w->g[u];
    double s = 0;
    for (int i = 0; i < a->n; i++)
        for (int j = 0; j < b->n; j++) {
            if (v == u && j > i) continue;
            s += (v == u && j < i ? 2 : 1) * term_pair(w, &a->t[i], &b->t[j]);
        }
    return s;
}

// Adds factor * (gradient of y) o node to x's gradient, summed over features when x is one number per row.
static void pass(sweep *w, snd_mid y, snd_mid x, snd_mid node, double factor) {
    snd_moments *t = w->t;
    if (NODE(x)->dim == 0 || factor == 0) return;
    const bool sum = NODE(x)->dim == 1 && NODE(y)->dim > 1;
    for (int i = 0; i < w->g[y].n; i++) {
        term a = w->g[y].t[i];
        a.c *= factor;
        a.node = m_product(t, a.node, node);
        if (sum) {
            a.c *= (double)NODE(y)->dim;
            if (a.coherent) {
                a.c *= snd_m_e1(t, a.node);
            } else {
                a.src = overlap(w, a.src, a.node);
                a.coherent = true;
            }
            a.node = 0;
        }
        put(w, x, a);
    }
}

// Adds factor * mean(g_y o along) * node to x's gradient.
static void pass_mean(sweep *w, snd_mid y, snd_mid along_node, snd_mid x, snd_mid node, double factor) {
    snd_moments *t = w->t;
    if (w->white) return;
    for (int i = 0; i < w->g[y].n; i++) {
        term a = w->g[y].t[i];
        if (a.coherent) {
            a.c *= factor * snd_m_e2(t, a.node, along_node, 0);
        } else {
            a.src = overlap(w, a.src, m_product(t, a.node, along_node));
            a.c *= factor;
            a.coherent = true;
        }
        a.node = node;
        put(w, x, a);
    }
}

static void back_linear(sweep *w, snd_mid y, double e) {
    snd_moments *t = w->t;
    const snd_mid x = NODE(y)->in[0];
    const double q = snd_m_e2(t, x, x, 0), out = (double)NODE(y)->dim, in = (double)NODE(y)->fan_in;
    if (NODE(y)->var == 0 || !(q > 0)) return;
    pass_mean(w, y, y, x, x, out / in / q * ldexp(1, NODE(y)->k - NODE(x)->k));
    const double fresh = out * NODE(y)->var * e;
    if (fresh != 0) put(w, x, (term){false, lone_noise(w, fresh, in, x), 0, 1});
}

// Batch norm divides by the spread of e rows, feature by feature: E 1/var is over 1/E var by about
// 1/(1 - (kurtosis - 1)/(e - 1)) (exact for Gaussian rows), and two of e directions are projected out.
static double batch_gain(sweep *w, snd_mid y) {
    const double e = w->t->batch, excess = (m_kurtosis(w->t, m_at(w->t, y)->in[0]) - 1) / (e - 1);
    if (e < 3) return 1;
    return sqrt((1 - 2 / e) / (1 - (excess < 0.5 ? excess : 0.5)));
}

static void back(sweep *w, snd_mid y, double e) {
    snd_moments *t = w->t;
    const snd_mid *in = NODE(y)->in;
    switch ((m_op)NODE(y)->op) {
    case OP_LINEAR: back_linear(w, y, e); break;
    case OP_SUM:
        for (int i = 0; i < NODE(y)->n; i++) pass(w, y, in[i], 0, NODE(y)->opcoef[i]);
        break;
    case OP_MUL:
        pass(w, y, in[0], in[1], ldexp(1, NODE(in[1])->k));
        pass(w, y, in[1], in[0], ldexp(1, NODE(in[0])->k));
        break;
    case OP_UNARY: {
        const snd_mid slope = m_slope(t, y);
        pass(w, y, in[0], slope, ldexp(1, NODE(slope)->k));
        break;
    }
    case OP_LN:
    case OP_RMSNORM: {
        const double inv = ldexp(1 / NODE(y)->s, -NODE(in[0])->k);
        pass(w, y, in[0], 0, inv);
        if (NODE(y)->op == OP_LN) pass_mean(w, y, 0, in[0], 0, -inv);
        pass_mean(w, y, y, in[0], y, -inv * ldexp(1, 2 * NODE(y)->k));
        break;
    }
    case OP_BN: pass(w, y, in[0], 0, ldexp(batch_gain(w, y) / NODE(y)->s, -NODE(in[0])->k)); break;
    case OP_DOT:
        pass(w, y, in[0], in[1], ldexp(1, NODE(in[1])->k));
        pass(w, y, in[1], in[0], ldexp(1, NODE(in[0])->k));
        break;
    case OP_RMS: // d rms = x.dx/(dim rms)
        if (NODE(y)->s > 0) pass(w, y, in[0], in[0], 1 / (NODE(y)->s * (double)NODE(in[0])->dim));
        break;
    case OP_NONE:
    case OP_CONST:
    case OP_INPUT:
    case OP_STOP:
    case OP_BOUNDARY:
    case OP_SLOPE: break;
    }
}

// Orthonormalises {1, forward values}: keeps the nodes that add a direction. Takes room for MAX_BASIS of them.
static void make_basis(sweep *w, group *g, const snd_mid *v, int n) {
    for (int i = -1; i < n; i++) {
        const snd_mid b = i < 0 ? 0 : v[i];
        double u[MAX_BASIS], left = snd_m_e2(w->t, b, b, 0);
        const double whole = left;
        const int m = g->n_basis;
        for (int j = 0; j < m; j++) {
            double s = snd_m_e2(w->t, g->basis[j], b, 0);
            for (int k = 0; k < j; k++) s -= g->chol[j * MAX_BASIS + k] * u[k];
            u[j] = s / g->chol[j * MAX_BASIS + j];
            left -= u[j] * u[j];
        }
        if (!(left > 1e-9 * whole)) continue;
        for (int j = 0; j < m; j++) g->chol[m * MAX_BASIS + j] = u[j];
        g->chol[m * MAX_BASIS + m] = sqrt(left);
        g->basis[m] = b;
        g->n_basis++;
    }
    const int m = g->n_basis;
    for (int i = 0; i < m; i++) // to dense rows; reading never lags behind writing
        for (int j = 0; j < m; j++) g->chol[i * m + j] = j <= i ? g->chol[i * MAX_BASIS + j] : 0;
}

// x := (L L')^-1 x
static void solve(const double *l, int n, double *x, int stride) {
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < i; j++) x[i * stride] -= l[i * n + j] * x[j * stride];
        x[i * stride] /= l[i * n + i];
    }
    for (int i = n - 1; i >= 0; i--) {
        for (int j = i + 1; j < n; j++) x[i * stride] -= l[j * n + i] * x[j * stride];
        x[i * stride] /= l[i * n + i];
    }
}

// Overlaps of gradients with the nodes of a basis, as sums of numbers: form[row, k] times number k.
typedef struct overlaps {
    int rows, n, cap; // n <= cap
    number *of;
    double *form; // [rows, cap]
} overlaps;

static int column(overlaps *o, number x) { // its place, made when it is new
    int k = o->n - 1;
    while (k >= 0 &&
           (o->of[k].noise != x.noise || o->of[k].node != x.node || o->of[k].set != x.set || o->of[k].at != x.at))
        k--;
    if (k >= 0) return k;
    o->of[o->n] = x;
    return o->n++;
}

// Mean over features of every term of v[a] times every node of the basis: row a * r + its place.
static bool find_overlaps(sweep *w, const snd_mid *v, int n, const group *g, overlaps *o) {
    snd_moments *t = w->t;
    const int r = g->n_basis;
    o->rows = n * r;
    for (int a = 0; a < n; a++)
        for (int i = 0; i < w->g[v[a]].n; i++) o->cap += w->g[v[a]].t[i].coherent ? 1 : r;
    o->of = snd_calloc((size_t)o->cap + 1, sizeof *o->of);
    o->form = snd_calloc((size_t)o->cap * (size_t)o->rows + 1, sizeof *o->form);
    if (!o->of || !o->form) return false;
    for (int a = 0; a < n; a++)
        for (int i = 0; i < w->g[v[a]].n; i++) {
            const term x = w->g[v[a]].t[i];
            if (w->white && !x.coherent) continue; // noise stays whole
            for (int b = 0; b < r; b++) {
                const int k = column(o, x.coherent ? w->number[x.src]
                                                   : (number){x.src, m_product(t, x.node, g->basis[b]), -1, 0});
                o->form[(a * r + b) * o->cap + k] += x.coherent ? x.c * snd_m_e2(t, x.node, g->basis[b], 0) : x.c;
            }
        }
    return true;
}

// cov[rows, rows] := form C form', C the numbers' covariance.
static bool overlap_covs(sweep *w, const overlaps *o, double *cov) {
    const int n = o->n;
    double *c = snd_calloc((size_t)n * (size_t)n + 1, sizeof *c), *fc = snd_calloc((size_t)n + 1, sizeof *fc);
    for (int k = 0; c && fc && k < n; k++)
        for (int l = 0; l <= k; l++) c[k * n + l] = c[l * n + k] = number_cov(w, o->of[k], o->of[l]);
    for (int a = 0; c && fc && a < o->rows; a++) {
        memset(fc, 0, (size_t)n * sizeof *fc);
        for (int k = 0; k < n; k++) {
            const double f = o->form[a * o->cap + k];
            for (int l = 0; f != 0 && l < n; l++) fc[l] += f * c[k * n + l];
        }
        for (int b = 0; b <= a; b++) {
            double h = 0;
            for (int l = 0; l < n; l++) h += fc[l] * o->form[b * o->cap + l];
            cov[a * o->rows + b] = cov[b * o->rows + a] = h;
        }
    }
    const bool done = c && fc;
    snd_free(c);
    snd_free(fc);
    return done;
}

// Re-expresses the gradients of live nodes of one width.
static void collapse(sweep *w, const snd_mid *v, int n) {
    group g = {.n = n, .dim = (double)m_at(w->t, v[0])->dim};
    snd_mid basis_room[MAX_BASIS];
    double chol_room[MAX_BASIS * MAX_BASIS];
    g.basis = basis_room;
    g.chol = chol_room;
    make_basis(w, &g, v, n);
    const int r = g.n_basis, all = n * r;
    w->spent = !w->white && r >= g.dim;
    if (w->spent) return;
    g.basis = take(w, (size_t)r, sizeof *g.basis);
    g.chol = take(w, (size_t)r * (size_t)r, sizeof *g.chol);
    g.gram = take(w, (size_t)n * (size_t)n, sizeof *g.gram);
    g.inverse = take(w, (size_t)r * (size_t)r, sizeof *g.inverse);
    if (w->t->failed) return;
    memcpy(g.basis, basis_room, (size_t)r * sizeof *g.basis);
    memcpy(g.chol, chol_room, (size_t)r * (size_t)r * sizeof *g.chol);
    for (int i = 0; i < r; i++) {
        g.inverse[i * r + i] = 1;
        solve(g.chol, r, g.inverse + i, r);
    }
    set s = {.n = all};
    s.cov = take(w, (size_t)all * (size_t)all, sizeof *s.cov);
    if (!s.cov) return;
    overlaps o = {0};
    if (!find_overlaps(w, v, n, &g, &o) || !overlap_covs(w, &o, s.cov)) w->t->failed = true;
    snd_free(o.of);
    snd_free(o.form);
    if (w->t->failed) return;
    // Overlaps to coefficients: (E b b')^-1 from both sides; in between, the coherent energy.
    for (int c = 0; c < all; c++)
        for (int a = 0; a < n; a++) solve(g.chol, r, s.cov + a * r * all + c, all);
    for (int a = 0; a < n; a++)
        for (int b = 0; b <= a; b++) {
            double e = energy(w, v[a], v[b]);
            for (int i = 0; i < r; i++) e -= s.cov[(a * r + i) * all + b * r + i];
            g.gram[a * n + b] = g.gram[b * n + a] = w->white ? e : e / (1 - r / g.dim);
        }
    for (int c = 0; c < all; c++)
        for (int a = 0; a < n; a++) solve(g.chol, r, s.cov + c * all + a * r, 1);
    for (int a = 0; a < n; a++)
        if (g.gram[a * n + a] < 0) g.gram[a * n + a] = 0;
    const snd_mid *basis = g.basis;
    if (w->white) g.n_basis = 0;
    const int32_t first_group = new_group(w, g);
    if (w->n_sets >= w->cap_sets && !GROW(w->set, w->cap_sets, w->n_sets + 1)) {
        w->t->failed = true;
        return;
    }
    w->set[w->n_sets++] = s;
    for (int a = 0; a < n; a++) {
        w->g[v[a]].n = 0;
        for (int64_t i = 0; i < w->n_live; i++) // put() adds it again
            if (w->live[i] == v[a]) {
                w->live[i] = w->live[--w->n_live];
                break;
            }
        put(w, v[a], (term){false, new_noise(w, first_group, a), 0, 1});
        for (int i = 0; i < r; i++)
            put(w, v[a], (term){true, new_number(w, (number){-1, 0, (int32_t)w->n_sets - 1, a * r + i}), basis[i], 1});
    }
}

static void boundary(sweep *w) {
    double top = 0;
    for (int64_t i = 0; i < w->n_live; i++) {
        const double e = energy(w, w->live[i], w->live[i]);
        if (e > top) top = e;
    }
    if (top > 0 && isfinite(top) && (top > 0x1p64 || top < 0x1p-64)) { // change the unit
        const int shift = ilogb(top) / 2;
        w->gk += shift;
        for (int64_t i = 0; i < w->n_live; i++)
            for (int j = 0; j < w->g[w->live[i]].n; j++)
                w->g[w->live[i]].t[j].c = ldexp(w->g[w->live[i]].t[j].c, -shift);
    }
    snd_mid v[MAX_BASIS];
    int n = 0;
    int64_t dim = 0;
    for (int64_t i = 0; i < w->n_live; i++) {
        const int64_t d = m_at(w->t, w->live[i])->dim;
        if (d < w->least || (dim && d != dim)) continue;
        if (n == MAX_BASIS - 1) return; // too many live values: carry the terms as they are
        dim = d;
        v[n++] = w->live[i];
    }
    if (n) collapse(w, v, n);
}

// The larger of this sweep's energy and an earlier one's.
static void note(sweep *w, snd_mid y, double e) {
    m_node *v = m_at(w->t, y);
    if (!(e >= 0) && !isnan(e)) e = 0;
    if (v->reached && !isnan(e)) {
        const int gap = 2 * (v->gk - w->gk);
        if (!(e > ldexp(v->gq, gap))) return;
    }
    v->gq = e;
    v->gk = w->gk;
    v->reached = true;
}

static void run_sweep(snd_moments *t, snd_mid out, snd_mid n, bool white) {
    sweep *w = &(sweep){.t = t, .n = n, .white = white, .least = NODE(out)->dim > 1 ? 2 : 1};
    w->g = snd_calloc((size_t)n, sizeof *w->g);
    if (!w->g) {
        t->failed = true;
        return;
    }
    put(w, out, (term){false, lone_noise(w, 1, (double)NODE(out)->dim, -1), 0, 1});
    for (snd_mid y = out; y > 0 && !t->failed; y--) {
        if (NODE(y)->op == OP_BOUNDARY) boundary(w);
        if (w->spent) break;
        if (w->g[y].n == 0) continue;
        const double e = energy(w, y, y);
        note(w, y, e);
        back(w, y, e);
        for (int64_t i = 0; i < w->n_live; i++)
            if (w->live[i] == y) {
                w->live[i] = w->live[--w->n_live];
                break;
            }
        w->g[y].n = 0;
    }
    for (snd_mid y = 0; y < n; y++) snd_free(w->g[y].t);
    snd_free(w->g);
    snd_free(w->group);
    snd_free(w->noise);
    snd_free(w->number);
    snd_free(w->set);
    snd_free(w->live);
}

// Whether what comes back through this operation depends on moments that the forward pass has lost.
static bool needs_lost(snd_moments *t, snd_mid y) {
    const m_op op = (m_op)NODE(y)->op;
    if (op == OP_SUM || op == OP_BOUNDARY || op == OP_STOP) return false;
    bool lost = isnan(snd_m_e2(t, y, y, 0));
    for (int i = 0; i < NODE(y)->n; i++) lost = lost || isnan(snd_m_e2(t, NODE(y)->in[i], NODE(y)->in[i], 0));
    return lost;
}

// Sums and comparisons of a sweep drop what is not a number, so a gradient that came through such a place looks like 0
// or like what came another way. Neither is known: the doubt goes to everything behind.
static void spread_doubt(snd_moments *t, snd_mid out) {
    bool *doubt = snd_calloc((size_t)t->n_forward, sizeof *doubt);
    if (!doubt) {
        t->failed = true;
        return;
    }
    for (snd_mid y = out; y > 0; y--) {
        m_node *v = NODE(y);
        if (doubt[y] || (v->reached && isnan(v->gq))) {
            v->reached = doubt[y] = true;
            v->gq = NAN;
        }
        if (v->op == OP_STOP || !(doubt[y] || (v->reached && needs_lost(t, y)))) continue;
        for (int i = 0; i < NODE(y)->n; i++) doubt[NODE(y)->in[i]] = true;
    }
    snd_free(doubt);
}

void snd_m_backward(snd_moments *t, snd_mid out) {
    if (t->failed) return;
    if (t->n_forward == 0) t->n_forward = t->n; // the sweeps make nodes of their own
    for (snd_mid y = 0; y < t->n_forward; y++) NODE(y)->reached = false;
    run_sweep(t, out, (snd_mid)t->n_forward, true);
    run_sweep(t, out, (snd_mid)t->n_forward, false);
    if (!t->failed) spread_doubt(t, out);
}
