// Nodes and their moments. See moments.h for the idea, backward.c for gradients.
//
// Order is everything: operands come before their users, and a fresh Gaussian is independent of every node made before
// it. So expanding the newest factor first ends at independent groups.
#include "moments_tape.h"

#include <math.h>
#include <string.h>

enum { MAX_FACTORS = 16 };
#define NODE(i)              m_at(t, i)
#define GROW(ptr, cap, need) snd_grow((void **)&(ptr), &(cap), (need), sizeof *(ptr))
static const int G = SND_GAUSS_NODES;

// ---- storage ----------------------------------------------------------------------------------------------------------

static void *take(snd_moments *t, size_t n, size_t size) {
    void *p = snd_arena_array(t->arena, n ? n : 1, size);
    if (!p) t->failed = true;
    return p;
}

static snd_mid new_node(snd_moments *t, m_op op) {
    const int64_t page = t->n / NODE_PAGE;
    if (page >= t->n_pages) {
        m_node *fresh = take(t, NODE_PAGE, sizeof *fresh);
        if (!fresh || !GROW(t->page, t->cap_pages, page + 1)) {
            t->failed = true;
            return 0;
        }
        t->page[t->n_pages++] = fresh;
    }
    m_node *v = NODE(t->n);
    v->op = (uint8_t)op;
    v->atom = -1;
    v->lo = INT32_MAX;
    v->hi = -1;
    return (snd_mid)t->n++;
}

static void set_operands(snd_moments *t, snd_mid y, int n, const snd_mid *in) {
    snd_mid *p = take(t, (size_t)n, sizeof *p);
    if (!p) return;
    memcpy(p, in, (size_t)n * sizeof *p);
    NODE(y)->in = p;
    NODE(y)->n = n;
}

m_band *m_band_of(snd_moments *t, snd_mid a) {
    if (!NODE(a)->band) NODE(a)->band = take(t, 1, sizeof(m_band));
    return NODE(a)->band;
}

static int64_t place(uint64_t key) { // every bit of the key reaches the low bits
    const uint64_t h = (key ^ key >> 32) * 0x9E3779B97F4A7C15u;
    return (int64_t)(h >> 33 ^ (h & 0x7fffffff));
}

static int32_t *map_slot(const m_map *m, uint64_t key) { // the key's, or the empty one where it belongs
    int64_t j = place(key) & (m->slots - 1);
    while (m->at[j] && m->key[m->at[j] - 1] != key) j = (j + 1) & (m->slots - 1);
    return &m->at[j];
}

int64_t m_map_find(const m_map *m, uint64_t key) {
    return m->slots ? *map_slot(m, key) - 1 : -1;
}

static bool map_grow(m_map *m) {
    const int64_t want = m->slots ? 2 * m->slots : 256;
    int32_t *fresh = snd_calloc((size_t)want, sizeof *fresh);
    if (!fresh) return false;
    snd_free(m->at);
    m->at = fresh;
    m->slots = want;
    for (int64_t i = 0; i < m->n; i++) *map_slot(m, m->key[i]) = (int32_t)i + 1;
    return true;
}

bool m_map_add(m_map *m, uint64_t key) {
    if (2 * (m->n + 1) > m->slots && !map_grow(m)) return false;
    if (!GROW(m->key, m->cap, m->n + 1)) return false;
    m->key[m->n] = key;
    *map_slot(m, key) = (int32_t)++m->n;
    return true;
}

void m_map_clear(m_map *m) {
    if (m->n) memset(m->at, 0, (size_t)m->slots * sizeof *m->at);
    m->n = 0;
}

void m_map_free(m_map *m) {
    snd_free(m->key);
    snd_free(m->at);
    *m = (m_map){0};
}

// ---- curves -----------------------------------------------------------------------------------------------------------

static double curve_value(const snd_moments *t, const m_curve *c, int i) {
    const m_curve_key *k = &c->key;
    const m_curve *a = t->curve[k->a], *b = k->op == CURVE_MUL || k->op == CURVE_ADD ? t->curve[k->b] : NULL;
    switch ((m_curve_op)k->op) {
    case CURVE_NONE: break;
    case CURVE_Z: return c->rule->z[i];
    case CURVE_VALUE: return snd_gfn_value((snd_gfn)k->fn, ldexp(k->p * a->tab[i], k->b));
    case CURVE_SLOPE: return snd_gfn_slope((snd_gfn)k->fn, ldexp(k->p * a->tab[i], k->b));
    case CURVE_MUL: return a->tab[i] * b->tab[i];
    case CURVE_ADD: return k->p * a->tab[i] + k->q * b->tab[i];
    case CURVE_SHIFT: return k->p * a->tab[i] + k->q;
    }
    return NAN;
}

static bool same_curve(const m_curve_key *a, const m_curve_key *b) { // bit for bit: parameters may be NaN
    return memcmp(a, b, sizeof *a) == 0;
}

static int32_t *curve_slot(const snd_moments *t, const m_curve_key *key) {
    int64_t j = place(snd_hash(key, sizeof *key)) & (t->curve_slots - 1);
    while (t->curve_at[j] && !same_curve(&t->curve[t->curve_at[j]]->key, key)) j = (j + 1) & (t->curve_slots - 1);
    return &t->curve_at[j];
}

static bool curves_grow(snd_moments *t) {
    const int64_t want = t->curve_slots ? 2 * t->curve_slots : 256;
    int32_t *fresh = snd_calloc((size_t)want, sizeof *fresh);
    if (!fresh) return false;
    snd_free(t->curve_at);
    t->curve_at = fresh;
    t->curve_slots = want;
    for (int64_t i = 1; i < t->n_curves; i++) *curve_slot(t, &t->curve[i]->key) = (int32_t)i;
    return true;
}

// The curve of that key; rule: of what it is a function of. 0: no memory.
static int32_t curve(snd_moments *t, m_curve_key key, const snd_gauss_rule *rule) {
    if (t->failed) return 0;
    const int32_t known = *curve_slot(t, &key);
    if (known) return known;
    m_curve *c = take(t, 1, sizeof *c);
    if (!c || !GROW(t->curve, t->cap_curves, t->n_curves + 1) ||
        (2 * (t->n_curves + 1) > t->curve_slots && !curves_grow(t))) {
        t->failed = true;
        return 0;
    }
    c->key = key;
    c->rule = rule;
    for (int i = 0; i < G; i++) c->tab[i] = curve_value(t, c, i);
    c->mean = snd_gauss_mean(rule, c->tab);
    t->curve[t->n_curves] = c;
    return *curve_slot(t, &key) = (int32_t)t->n_curves++;
}

// Node y becomes scale * curve of the atom.
static void represent_func(snd_moments *t, snd_mid y, int32_t atom, int32_t of, double scale) {
    m_node *v = NODE(y);
    if (!of) return; // no memory
    v->rep = REP_FUNC;
    v->atom = atom;
    v->curve = of;
    v->scale = scale;
}

snd_moments *snd_moments_create(snd_arena *arena, int batch) {
    snd_moments *t = snd_arena_alloc(arena, sizeof *t);
    if (!t) return NULL;
    t->arena = arena;
    t->batch = batch;
    snd_gauss_rule_centred(&t->rule);
    t->n_curves = 1;
    if (!GROW(t->curve, t->cap_curves, 1) || !curves_grow(t))
        t->failed = true;
    else
        t->curve[0] = NULL;
    snd_m_const(t, 1); // node 0
    if (t->failed) {
        snd_moments_destroy(t);
        return NULL;
    }
    return t;
}

void snd_moments_destroy(snd_moments *t) {
    if (!t) return;
    snd_free(t->page);
    snd_free(t->atom);
    m_map_free(&t->pairs);
    m_map_free(&t->products);
    snd_free(t->pair);
    snd_free(t->product);
    snd_free(t->segment);
    snd_free(t->curve);
    snd_free(t->curve_at);
    t->segment = NULL, t->curve = NULL, t->curve_at = NULL;
    t->page = NULL, t->atom = NULL, t->pair = NULL, t->product = NULL;
}

bool snd_moments_failed(const snd_moments *t) {
    return t->failed;
}

// ---- moments ----------------------------------------------------------------------------------------------------------

typedef struct ref {
    snd_mid id;
    int row;
} ref;
static double moment(snd_moments *t, const ref *given, int n);

static bool may_hold(const snd_moments *t, snd_mid a, int32_t atom) {
    return NODE(a)->lo <= atom && atom <= NODE(a)->hi;
}
static bool constant(const m_node *v) {
    return v->rep == REP_SUM && v->n_terms == 0;
}

static const m_curve *curve_of(const snd_moments *t, snd_mid a) {
    return t->curve[NODE(a)->curve];
}

static const double *series(snd_moments *t, snd_mid a) { // of the node's curve
    m_curve *c = t->curve[NODE(a)->curve];
    if (!c->series) {
        c->series = take(t, SND_HERMITE_TERMS, sizeof(double));
        if (!c->series) return t->rule.he[0];
        snd_gauss_series(c->rule, c->tab, c->series);
    }
    return c->series;
}

double m_coefficient(snd_moments *t, snd_mid f, int k) {
    return NODE(f)->scale * series(t, f)[k];
}

double snd_m_e1(snd_moments *t, snd_mid a) {
    const m_node *v = NODE(a);
    if (v->has_m1) return v->m1;
    double m = 0;
    switch ((m_rep)v->rep) {
    case REP_NONE:
    case REP_BASE:
    case REP_CENTRE: break;
    case REP_SUM:
        m = v->c0;
        for (int i = 0; i < v->n_terms; i++) m += v->coef[i] * snd_m_e1(t, v->term[i]);
        break;
    case REP_FUNC: m = v->scale * curve_of(t, a)->mean; break;
    case REP_PROD: m = snd_m_e2(t, v->term[0], v->term[1], 0); break;
    }
    NODE(a)->has_m1 = true;
    return NODE(a)->m1 = m;
}

static double covariance(snd_moments *t, snd_mid a, snd_mid b, int cross) {
    return snd_m_e2(t, a, b, cross) - snd_m_e1(t, a) * snd_m_e1(t, b);
}

// E a b where a is a sum or a batch-centred node: linear in a.
static double expand_pair(snd_moments *t, snd_mid a, snd_mid b, int cross) {
    if (NODE(a)->rep == REP_CENTRE) {
        const double c = NODE(a)->coef[0];
        const snd_mid x = NODE(a)->term[0];
        const double e = t->batch, gap = snd_m_e2(t, x, b, 0) - snd_m_e2(t, x, b, 1);
        return cross ? -c * gap / e : c * gap * (1 - 1 / e);
    }
    double s = NODE(a)->c0 == 0 ? 0 : NODE(a)->c0 * snd_m_e1(t, b);
    for (int i = 0; i < NODE(a)->n_terms; i++) s += NODE(a)->coef[i] * snd_m_e2(t, NODE(a)->term[i], b, cross);
    return s;
}

// Is the table a multiple of max(z, 0)? Then cross moments have a closed form.
static bool rectifier(const m_node *v) {
    return v->op == OP_UNARY && v->fn == SND_GFN_RELU;
}

static double func_pair(snd_moments *t, snd_mid a, snd_mid b, int cross) { // both REP_FUNC
    const m_node *v = NODE(a), *w = NODE(b);
    const double scale = v->scale * w->scale;
    if (v->atom == w->atom) {
        const m_atom *at = &t->atom[v->atom];
        const double full = snd_gauss_inner(at->rule, curve_of(t, a)->tab, curve_of(t, b)->tab);
        if (!cross || at->rho == 1) return scale * full;
        if (a == b && rectifier(v) && at->mean == 0 && NODE(v->in[0])->gauss)
            return scale * full * 2 * snd_gauss_relu_pair(at->rho);
        const double *sa = series(t, a), *sb = series(t, b);
        return scale * snd_gauss_mehler(sa, sb, at->rho, full);
    }
    m_atom x = t->atom[v->atom], y = t->atom[w->atom];
    if (x.src < y.src) {
        const m_atom s = x;
        x = y, y = s;
    }
    if (x.fresh) return snd_m_e1(t, a) * snd_m_e1(t, b);
    const double rho = covariance(t, x.src, y.src, cross) / (x.sd * y.sd);
    const double *sa = series(t, a), *sb = series(t, b);
    return scale * snd_gauss_mehler(sa, sb, rho, NAN);
}

static double func_with(snd_moments *t, snd_mid f, snd_mid b, int cross) { // f REP_FUNC; b sum, centred or base
    const m_atom at = t->atom[NODE(f)->atom];
    if (at.src == b && at.ident != b) return func_pair(t, f, at.ident, cross);
    if (at.fresh && !may_hold(t, b, NODE(f)->atom)) return snd_m_e1(t, f) * snd_m_e1(t, b);
    if (b > at.src && NODE(b)->rep != REP_BASE) return expand_pair(t, b, f, cross);
    const double m = snd_m_e1(t, f) * snd_m_e1(t, b);
    if (at.fresh) return m;
    // Stein: cov(f(z), b) = E f'(z) cov(z, b), E f'(z) = E f(z) z
    return m + m_coefficient(t, f, 1) / at.sd * covariance(t, at.src, b, cross);
}

static double pair_uncached(snd_moments *t, snd_mid a, snd_mid b, int cross) { // a >= b
    const m_node *v = NODE(a), *w = NODE(b);
    if (constant(v)) return v->c0 == 0 ? 0 : v->c0 * snd_m_e1(t, b);
    if (constant(w)) return w->c0 == 0 ? 0 : w->c0 * snd_m_e1(t, a);
    if (v->rep == REP_PROD || w->rep == REP_PROD) return moment(t, (ref[]){{a, 0}, {b, cross}}, 2);
    if (v->rep == REP_FUNC && w->rep == REP_FUNC) return func_pair(t, a, b, cross);
    if (v->rep == REP_FUNC) return func_with(t, a, b, cross);
    if (w->rep == REP_FUNC && v->rep == REP_BASE) return func_with(t, b, a, cross);
    if (v->rep == REP_SUM || v->rep == REP_CENTRE) return expand_pair(t, a, b, cross);
    if (w->rep == REP_SUM || w->rep == REP_CENTRE) return expand_pair(t, b, a, cross);
    return a != b ? 0 : cross ? v->base_c : v->base_q;
}

// Products of several dependent values are expanded exactly as long as that takes few steps; beyond (it grows
// exponentially where a stream is multiplied with functions of itself, layer after layer) the factors that are left are
// taken as jointly Gaussian, and the tape says that it has been cut.
enum { PAIR_WORK = 4000, MOMENT_WORK = 20000, TOTAL_WORK = 2000000, LATE_WORK = 40, SPLIT_MOST = 8 };

double snd_m_e2(snd_moments *t, snd_mid a, snd_mid b, int cross) {
    if (a < b) {
        const snd_mid s = a;
        a = b, b = s;
    }
    const uint64_t key = (uint64_t)(uint32_t)(a + 1) << 32 | (uint64_t)(uint32_t)b << 1 | (uint64_t)(cross != 0);
    const int64_t known = m_map_find(&t->pairs, key);
    if (known >= 0) return t->pair[known];
    const int64_t outer = t->limit, before = t->work;
    // of its own, since it is remembered; a small one once much has been spent
    t->limit = before + (before > TOTAL_WORK ? LATE_WORK : PAIR_WORK);
    const double s = pair_uncached(t, a, b, cross != 0);
    t->limit = outer ? outer + (t->work - before) : 0;
    if (GROW(t->pair, t->cap_pairs, t->pairs.n + 1) && m_map_add(&t->pairs, key))
        t->pair[t->pairs.n - 1] = s;
    else
        t->failed = true;
    return s;
}

static double pair_of(snd_moments *t, ref a, ref b) {
    return snd_m_e2(t, a.id, b.id, a.row != b.row);
}

// Jointly Gaussian factors: the first is either its mean or paired with another (Isserlis, with means).
static double isserlis(snd_moments *t, const ref *f, int n) {
    t->work++;
    if (n == 0) return 1;
    if (n == 1) return snd_m_e1(t, f[0].id);
    if (n == 2) return pair_of(t, f[0], f[1]);
    ref rest[MAX_FACTORS];
    const double m = snd_m_e1(t, f[0].id);
    double s = m == 0 ? 0 : m * isserlis(t, f + 1, n - 1);
    for (int i = 1; i < n; i++) {
        const double c = pair_of(t, f[0], f[i]) - m * snd_m_e1(t, f[i].id);
        if (c == 0) continue;
        int k = 0;
        for (int j = 1; j < n; j++)
            if (j != i) rest[k++] = f[j];
        s += c * isserlis(t, rest, k);
    }
    return s;
}

// E f(z) prod w for one function of the Gaussian of `at` and factors w taken as jointly Gaussian with it:
// sum over subsets S of the w of E f^(|S|) prod_S cov(z, w) E prod_rest w.
static double stein(snd_moments *t, ref f, const ref *w, int n) {
    const m_atom at = t->atom[NODE(f.id)->atom];
    double c[MAX_FACTORS], sum = 0;
    for (int i = 0; i < n; i++) {
        const int cross = f.row != w[i].row;
        c[i] = NODE(w[i].id)->rep == REP_FUNC && NODE(w[i].id)->atom == NODE(f.id)->atom
                   ? m_coefficient(t, w[i].id, 1) * at.rho // other row, same atom
                   : covariance(t, at.src, w[i].id, cross) / at.sd;
    }
    for (unsigned mask = 0; mask < 1u << n; mask++) {
        ref rest[MAX_FACTORS];
        int k = 0, order = 0;
        double p = 1, fact = 1;
        for (int i = 0; i < n; i++)
            if (mask >> i & 1)
                p *= c[i], order++, fact *= order;
            else
                rest[k++] = w[i];
        if (p == 0) continue;
        // E f^(k) = E f He_k = a_k sqrt(k!)
        sum += p * m_coefficient(t, f.id, order) * sqrt(fact) * moment(t, rest, k);
    }
    return sum;
}

// E of a product of nodes in two rows.
static double moment(snd_moments *t, const ref *given, int n) {
    t->work += 4;
    ref f[MAX_FACTORS];
    double scale = 1;
    int k = 0;
    bool crowded = false;
    // Products into their factors, constants and plain multiples into the scale.
    ref todo[MAX_FACTORS];
    int m = 0;
    for (int i = 0; i < n; i++) todo[m++] = given[i];
    while (m > 0) {
        const ref r = todo[--m];
        const m_node *v = NODE(r.id);
        if (v->rep == REP_SUM && (v->n_terms == 0 || (v->n_terms == 1 && v->c0 == 0))) {
            scale *= v->n_terms ? v->coef[0] : v->c0;
            if (v->n_terms) todo[m++] = (ref){v->term[0], r.row};
        } else if (v->rep == REP_PROD) {
            if (m + k + 2 > SPLIT_MOST) { // pairings grow like a factorial: this product stays one factor
                f[k++] = r;
                crowded = true;
                continue;
            }
            todo[m++] = (ref){v->term[0], r.row};
            todo[m++] = (ref){v->term[1], r.row};
        } else {
            f[k++] = r;
        }
        if (scale == 0) return 0;
    }
    n = k;
    // Functions of one variable in one row become one function; the variable's own node joins them.
    for (int i = 0; i < n; i++) {
        if (NODE(f[i].id)->rep != REP_FUNC) continue;
        const int32_t atom = NODE(f[i].id)->atom;
        for (int j = 0; j < n; j++) {
            if (j == i || f[j].row != f[i].row) continue;
            snd_mid other = f[j].id;
            if (NODE(other)->rep != REP_FUNC && t->atom[atom].src == other) other = t->atom[atom].ident;
            if (NODE(other)->rep != REP_FUNC || NODE(other)->atom != atom) continue;
            f[i].id = m_product(t, f[i].id, other);
            f[j] = f[--n];
            if (i == n) i = j;
            j = -1;
        }
    }
    // One or two factors left: known. (A lone product cannot come here, it was split.)
    if (n == 0) return scale;
    if (n == 1) return scale * snd_m_e1(t, f[0].id);
    if (n == 2) return scale * pair_of(t, f[0], f[1]);
    if (crowded || (t->limit && t->work > t->limit)) {
        t->cut = true;
        return scale * isserlis(t, f, n);
    }
    // Open the sums that may hold a variable that also stands alone.
    for (int i = 0; i < n; i++) {
        if (NODE(f[i].id)->rep != REP_FUNC) continue;
        const m_atom at = t->atom[NODE(f[i].id)->atom];
        for (int j = 0; j < n; j++) {
            const m_node *v = NODE(f[j].id);
            if (v->rep != REP_SUM || f[j].id < at.src || (!at.fresh && f[j].id == at.src)) continue;
            if (at.fresh && !may_hold(t, f[j].id, NODE(f[i].id)->atom)) continue;
            const ref was = f[j];
            double s = 0;
            if (v->c0 != 0) {
                ref rest[MAX_FACTORS];
                int r = 0;
                for (int q = 0; q < n; q++)
                    if (q != j) rest[r++] = f[q];
                s += NODE(was.id)->c0 * moment(t, rest, r);
            }
            for (int q = 0; q < NODE(was.id)->n_terms; q++) {
                f[j].id = NODE(was.id)->term[q];
                s += NODE(was.id)->coef[q] * moment(t, f, n);
            }
            return scale * s;
        }
    }
    // Independent variables leave as a factor, newest first; one made from an older value is expanded around.
    for (;;) {
        int newest = -1;
        for (int i = 0; i < n; i++)
            if (NODE(f[i].id)->rep == REP_FUNC &&
                (newest < 0 || t->atom[NODE(f[i].id)->atom].src > t->atom[NODE(f[newest].id)->atom].src))
                newest = i;
        if (newest < 0) break;
        const int32_t atom = NODE(f[newest].id)->atom;
        ref own[2], rest[MAX_FACTORS];
        int n_own = 0, r = 0;
        bool centred = false; // a batch-centred value made from the variable: treat all as Gaussian
        for (int i = 0; i < n; i++) {
            const m_node *v = NODE(f[i].id);
            if (v->rep == REP_FUNC && v->atom == atom && n_own < 2)
                own[n_own++] = f[i];
            else
                rest[r++] = f[i];
            if (v->rep == REP_CENTRE && may_hold(t, f[i].id, atom)) centred = true;
        }
        if (!t->atom[atom].fresh || centred) {
            const ref one = f[newest];
            r = 0;
            for (int i = 0; i < n; i++)
                if (i != newest) rest[r++] = f[i];
            if (r <= 6) return scale * stein(t, one, rest, r);
            t->cut = true;
            return scale * isserlis(t, f, n);
        }
        scale *= n_own == 2 ? pair_of(t, own[0], own[1]) : snd_m_e1(t, own[0].id);
        memcpy(f, rest, (size_t)r * sizeof *f);
        n = r;
        if (scale == 0) return 0;
    }
    return scale * isserlis(t, f, n);
}

static double bounded(snd_moments *t, const ref *f, int n) {
    const int64_t outer = t->limit;
    if (!outer) t->limit = t->work + (t->work > TOTAL_WORK ? LATE_WORK : MOMENT_WORK);
    const double s = moment(t, f, n);
    t->limit = outer;
    return s;
}

double m_moment(snd_moments *t, const snd_mid *id, const int *row, int n) {
    ref f[MAX_FACTORS];
    if (n > MAX_FACTORS) return NAN;
    for (int i = 0; i < n; i++) f[i] = (ref){id[i], row[i]};
    return bounded(t, f, n);
}

double m_kurtosis(snd_moments *t, snd_mid a) {
    const double m = snd_m_e1(t, a), q = snd_m_e2(t, a, a, 0), var = q - m * m;
    if (!(var > 1e-12 * q)) return 3;
    const ref f[4] = {{a, 0}, {a, 0}, {a, 0}, {a, 0}};
    const double k = (bounded(t, f, 4) - 4 * m * bounded(t, f, 3) + 6 * m * m * q - 3 * m * m * m * m) / (var * var);
    return k >= 1 ? k : 3;
}

// ---- building ---------------------------------------------------------------------------------------------------------

// Which variables a node depends on, as a range: two nodes of ranges apart are independent.
static void set_span(snd_moments *t, snd_mid y) {
    m_node *v = NODE(y);
    if (v->rep == REP_FUNC) {
        const m_node *src = NODE(t->atom[v->atom].src);
        v->lo = t->atom[v->atom].fresh || v->atom < src->lo ? v->atom : src->lo;
        v->hi = t->atom[v->atom].fresh || v->atom > src->hi ? v->atom : src->hi;
        return;
    }
    for (int i = 0; i < v->n_terms; i++) {
        const m_node *u = NODE(v->term[i]);
        if (u->lo < v->lo) v->lo = u->lo;
        if (u->hi > v->hi) v->hi = u->hi;
    }
}

static int64_t wider(int64_t a, int64_t b) {
    return a > b ? a : b;
}

// E y^2 from the terms alone: nothing is remembered under y's name, whose unit may still change.
static double sum_square(snd_moments *t, snd_mid y) {
    const m_node *v = NODE(y);
    const int n = v->n_terms;
    const snd_mid *term = v->term;
    const double *c = v->coef, c0 = v->c0;
    double q = c0 * c0;
    for (int i = 0; i < n; i++) {
        if (c0 != 0) q += 2 * c0 * c[i] * snd_m_e1(t, term[i]);
        for (int j = 0; j < n; j++) q += c[i] * c[j] * snd_m_e2(t, term[i], term[j], 0);
    }
    return q;
}

// Keeps E node^2 near 1 by moving a power of two into k. Only before anything else has looked at the node.
static void rescale(snd_moments *t, snd_mid y) {
    double q = 0;
    if (NODE(y)->rep == REP_FUNC) {
        const m_curve *c = curve_of(t, y);
        q = NODE(y)->scale * NODE(y)->scale * snd_gauss_inner(c->rule, c->tab, c->tab);
    } else if (NODE(y)->rep == REP_SUM)
        q = sum_square(t, y);
    if (!(q > 0) || !isfinite(q) || (q > 0x1p-12 && q < 0x1p12)) return;
    const int shift = ilogb(q) / 2;
    m_node *v = NODE(y);
    v->k += shift;
    v->c0 = ldexp(v->c0, -shift);
    v->scale = ldexp(v->scale, -shift);
    for (int i = 0; i < v->n_terms; i++) v->coef[i] = ldexp(v->coef[i], -shift);
    v->has_m1 = false;
}

// Node y becomes rest + sum c*term, all of them functions of one variable.
static void combine(snd_moments *t, snd_mid y, int n, const snd_mid *term, const double *c, double rest) {
    const snd_gauss_rule *rule = curve_of(t, term[0])->rule;
    int32_t sum = NODE(term[0])->curve;
    double scale = c[0] * NODE(term[0])->scale;
    for (int i = 1; i < n; i++) {
        const m_node *u = NODE(term[i]);
        sum = curve(t, (m_curve_key){CURVE_ADD, 0, sum, u->curve, scale, c[i] * u->scale}, rule);
        scale = 1;
    }
    if (rest != 0) {
        sum = curve(t, (m_curve_key){CURVE_SHIFT, 0, sum, 0, scale, rest}, rule);
        scale = 1;
    }
    represent_func(t, y, NODE(term[0])->atom, sum, scale);
}

// The representation of c0 + sum coef*id (true units) into node y.
static void represent_sum(snd_moments *t, snd_mid y, int n, const snd_mid *id, const double *coef, double c0) {
    int k = 0;
    bool any = false;
    if (c0 != 0 && isfinite(c0)) k = ilogb(c0), any = true;
    for (int i = 0; i < n; i++) {
        if (coef[i] == 0 || !isfinite(coef[i])) continue;
        const int e = NODE(id[i])->k + ilogb(coef[i]);
        if (!any || e > k) k = e;
        any = true;
    }
    snd_mid *term = take(t, (size_t)n, sizeof *term);
    double *c = take(t, (size_t)n, sizeof *c);
    if (!term || !c) return;
    int m = 0;
    int32_t atom = -1;
    bool single = true, gauss = true, approx = false;
    double rest = ldexp(c0, -k);
    for (int i = 0; i < n; i++) {
        const m_node *v = NODE(id[i]);
        if (coef[i] == 0) continue;
        const double scaled = ldexp(coef[i], v->k - k);
        approx |= v->approx;
        if (constant(v)) {
            rest += scaled * v->c0;
            continue;
        }
        gauss &= v->gauss;
        if (v->rep != REP_FUNC || (atom >= 0 && v->atom != atom))
            single = false;
        else
            atom = v->atom;
        term[m] = id[i], c[m++] = scaled;
    }
    m_node *v = NODE(y);
    v->k = k;
    v->c0 = rest;
    v->gauss = gauss;
    v->approx = approx;
    if (m > 0 && single) {
        combine(t, y, m, term, c, rest);
        v->c0 = 0;
    } else {
        v->rep = REP_SUM;
        v->n_terms = m;
        v->term = term;
        v->coef = c;
    }
    set_span(t, y);
    rescale(t, y);
}

snd_mid snd_m_const(snd_moments *t, double v) {
    const snd_mid y = new_node(t, OP_CONST);
    if (t->failed) return 0;
    NODE(y)->rep = REP_SUM;
    NODE(y)->c0 = v;
    NODE(y)->gauss = true;
    return y;
}

snd_mid snd_m_input(snd_moments *t, int64_t dim, double q, double cos) {
    const snd_mid y = new_node(t, OP_INPUT);
    if (t->failed) return 0;
    m_node *v = NODE(y);
    v->rep = REP_BASE;
    v->dim = dim;
    v->gauss = true;
    v->k = isfinite(q) && (q > 0x1p64 || (q > 0 && q < 0x1p-64)) ? ilogb(q) / 2 : 0; // fourth moments have to exist
    v->base_q = ldexp(q, -2 * v->k);
    v->base_c = v->base_q * cos;
    return y;
}

static int32_t new_atom(snd_moments *t, m_atom a) {
    if (t->n_atoms >= t->cap_atoms && !snd_grow((void **)&t->atom, &t->cap_atoms, t->n_atoms + 1, sizeof *t->atom)) {
        t->failed = true;
        return -1;
    }
    t->atom[t->n_atoms] = a;
    return (int32_t)t->n_atoms++;
}

// Node y becomes a fresh Gaussian of mean 0, variance var*2^(2k) and correlation rho between rows.
static void represent_fresh(snd_moments *t, snd_mid y, double var, int k, double rho) {
    const int shift = isfinite(var) && var > 0 ? ilogb(var) / 2 : 0;
    const double sd = sqrt(ldexp(var, -2 * shift));
    if (rho > 1) rho = 1;
    if (rho < -1) rho = -1;
    const int32_t atom = new_atom(t, (m_atom){y, y, true, 0, sd, rho, &t->rule});
    if (atom < 0) return;
    represent_func(t, y, atom, curve(t, (m_curve_key){.op = CURVE_Z}, &t->rule), sd);
    m_node *v = NODE(y);
    v->k = k + shift;
    v->gauss = true;
    v->m1 = 0;
    v->has_m1 = true;
    set_span(t, y);
}

snd_mid snd_m_linear(snd_moments *t, snd_mid x, int64_t fan_in, int64_t out, double var) {
    const double q = snd_m_e2(t, x, x, 0), c = snd_m_e2(t, x, x, 1);
    const snd_mid y = new_node(t, OP_LINEAR);
    if (t->failed) return 0;
    set_operands(t, y, 1, &x);
    NODE(y)->dim = out;
    NODE(y)->var = var;
    NODE(y)->fan_in = fan_in;
    if (var == 0 || q == 0) {
        NODE(y)->rep = REP_SUM;
        NODE(y)->gauss = true;
    } else {
        represent_fresh(t, y, q * var * (double)fan_in, NODE(x)->k, c / q);
    }
    NODE(y)->approx = NODE(x)->approx;
    return y;
}

snd_mid snd_m_sum(snd_moments *t, int n, const snd_mid *id, const double *coef, double c0) {
    const snd_mid y = new_node(t, OP_SUM);
    if (t->failed) return 0;
    set_operands(t, y, n, id);
    double *c = take(t, (size_t)n, sizeof *c);
    if (!c) return 0;
    memcpy(c, coef, (size_t)n * sizeof *c);
    NODE(y)->opcoef = c;
    NODE(y)->opc0 = c0;
    for (int i = 0; i < n; i++) {
        NODE(y)->dim = wider(NODE(y)->dim, NODE(id[i])->dim);
        if (NODE(id[i])->normed) NODE(y)->normed = NODE(id[i])->normed;
    }
    represent_sum(t, y, n, id, coef, c0);
    if (n == 1 && c0 == 0 && coef[0] != 0) NODE(y)->same = id[0];
    return y;
}

snd_mid snd_m_add(snd_moments *t, snd_mid a, snd_mid b, double ca, double cb) {
    return snd_m_sum(t, 2, (snd_mid[]){a, b}, (double[]){ca, cb}, 0);
}
snd_mid snd_m_scale(snd_moments *t, snd_mid a, double c) {
    return snd_m_sum(t, 1, &a, &c, 0);
}
snd_mid snd_m_alias(snd_moments *t, snd_mid a) {
    return snd_m_scale(t, a, 1);
}

snd_mid snd_m_stop(snd_moments *t, snd_mid a) {
    const snd_mid y = snd_m_scale(t, a, 1);
    NODE(y)->op = OP_STOP;
    return y;
}

// Do the two share a Gaussian variable (or the input)? "Yes" when in doubt.
static bool dependent(snd_moments *t, snd_mid a, snd_mid b, int depth) {
    if (a < b) {
        const snd_mid s = a;
        a = b, b = s;
    }
    const m_node *v = NODE(a), *w = NODE(b);
    if (constant(v) || constant(w)) return false;
    if (depth > 12) return true;
    if (v->rep == REP_FUNC && t->atom[v->atom].fresh) {
        if (w->rep == REP_FUNC && (t->atom[w->atom].fresh || t->atom[w->atom].src < t->atom[v->atom].src))
            return v->atom == w->atom;
        if (b < t->atom[v->atom].src) return false;
        const snd_mid s = a;
        a = b, b = s;
        v = NODE(a);
    } else if (v->rep == REP_FUNC) {
        return dependent(t, t->atom[v->atom].src, b, depth + 1);
    }
    if (v->rep == REP_BASE) return a == b;
    for (int i = 0; i < v->n_terms; i++)
        if (dependent(t, v->term[i], b, depth + 1)) return true;
    return v->rep == REP_FUNC;
}

static snd_mid product(snd_moments *t, snd_mid a, snd_mid b) {
    const snd_mid y = new_node(t, OP_MUL);
    if (t->failed) return 0;
    set_operands(t, y, 2, (snd_mid[]){a, b});
    NODE(y)->dim = wider(NODE(a)->dim, NODE(b)->dim);
    NODE(y)->normed = NODE(a)->normed ? NODE(a)->normed : NODE(b)->normed;
    if (constant(NODE(a)) || constant(NODE(b))) { // node values multiply, exponents add: no rescaling here
        const snd_mid c = constant(NODE(a)) ? a : b, x = c == a ? b : a;
        m_node *v = NODE(y);
        v->k = NODE(a)->k + NODE(b)->k;
        v->gauss = NODE(x)->gauss;
        v->approx = NODE(a)->approx || NODE(b)->approx;
        if (NODE(x)->rep == REP_FUNC) {
            represent_func(t, y, NODE(x)->atom, NODE(x)->curve, NODE(c)->c0 * NODE(x)->scale);
            set_span(t, y);
            return y;
        }
        v->rep = REP_SUM;
        if (constant(NODE(x))) {
            v->c0 = NODE(c)->c0 * NODE(x)->c0;
            return y;
        }
        v->term = take(t, 1, sizeof *v->term);
        v->coef = take(t, 1, sizeof *v->coef);
        if (!v->term || !v->coef) return 0;
        v->n_terms = 1;
        v->term[0] = x;
        v->coef[0] = NODE(c)->c0;
        set_span(t, y);
        return y;
    }
    m_node *v = NODE(y);
    const m_node *p = NODE(a), *q = NODE(b);
    v->k = p->k + q->k;
    v->approx = p->approx || q->approx;
    if (p->rep == REP_FUNC && q->rep == REP_FUNC && p->atom == q->atom) {
        const bool swap = p->curve < q->curve;
        const m_curve_key key = {CURVE_MUL, 0, swap ? q->curve : p->curve, swap ? p->curve : q->curve, 0, 0};
        represent_func(t, y, p->atom, curve(t, key, curve_of(t, a)->rule), p->scale * q->scale);
        set_span(t, y);
        return y;
    }
    snd_mid *term = take(t, 2, sizeof *term);
    if (!term) return 0;
    term[0] = a, term[1] = b;
    v->rep = REP_PROD;
    v->n_terms = 2;
    v->term = term;
    set_span(t, y);
    return y;
}

snd_mid m_product(snd_moments *t, snd_mid a, snd_mid b) {
    if (a == 0) return b;
    if (b == 0) return a;
    if (a < b) {
        const snd_mid s = a;
        a = b, b = s;
    }
    const uint64_t key = (uint64_t)(uint32_t)a << 32 | (uint32_t)b;
    const int64_t known = m_map_find(&t->products, key);
    if (known >= 0) return t->product[known];
    const snd_mid y = product(t, a, b);
    if (GROW(t->product, t->cap_products, t->products.n + 1) && m_map_add(&t->products, key))
        t->product[t->products.n - 1] = y;
    else
        t->failed = true;
    return y;
}

snd_mid snd_m_mul(snd_moments *t, snd_mid a, snd_mid b) {
    const bool mixed = !(NODE(a)->gauss && NODE(b)->gauss) && dependent(t, a, b, 0);
    const snd_mid y = product(t, a, b);
    if (mixed && NODE(y)->rep == REP_PROD) NODE(y)->approx = true;
    return y;
}

// The Gaussian variable that stands for node a when a function is applied to it.
static int32_t gaussian_of(snd_moments *t, snd_mid a) {
    if (NODE(a)->rep != REP_FUNC && NODE(a)->atom >= 0) return NODE(a)->atom; // made before
    const double m = snd_m_e1(t, a), q = snd_m_e2(t, a, a, 0), c = snd_m_e2(t, a, a, 1);
    const double var = q - m * m > 1e-13 * q ? q - m * m : 0;
    if (var == 0) return -1;
    m_atom at = {a, 0, false, m, sqrt(var), (c - m * m) / var, &t->rule};
    if (fabs(m) > 1e-12 * at.sd) {
        snd_gauss_rule *r = take(t, 1, sizeof *r);
        if (!r) return -1;
        snd_gauss_rule_split(r, -m / at.sd);
        at.rule = r;
    }
    at.rho = at.rho > 1 ? 1 : at.rho < -1 ? -1 : at.rho;
    const snd_mid z = new_node(t, OP_NONE);
    if (t->failed) return -1;
    at.ident = z;
    const int32_t atom = new_atom(t, at);
    if (atom < 0) return -1;
    const bool own = at.rule != &t->rule;
    const int32_t unit = curve(t, (m_curve_key){.op = CURVE_Z, .b = own ? atom + 1 : 0}, at.rule);
    if (m == 0)
        represent_func(t, z, atom, unit, at.sd);
    else
        represent_func(t, z, atom, curve(t, (m_curve_key){CURVE_SHIFT, 0, unit, 0, at.sd, m}, at.rule), 1);
    m_node *v = NODE(z), *src = NODE(a);
    v->k = src->k;
    v->dim = src->dim;
    v->gauss = true;
    v->approx = src->approx || !src->gauss;
    if (src->rep != REP_FUNC) src->atom = atom;
    set_span(t, z);
    return atom;
}

static bool has_kink(snd_gfn fn) {
    return fn == SND_GFN_RELU || fn == SND_GFN_ABS;
}

// Node v becomes the number fn(c 2^k), or the derivative there; one too large or small to be squared gets an exponent.
static void number_of(m_node *v, snd_gfn fn, bool slope, double c, int k) {
    const bool recip = fn == SND_GFN_RECIP;
    v->k = recip ? (slope ? -2 : -1) * k : 0;
    v->c0 = (slope ? snd_gfn_slope : snd_gfn_value)(fn, recip ? c : ldexp(c, k));
    if (v->c0 == 0 || !isfinite(v->c0)) return;
    const int e = ilogb(v->c0);
    if (e > -64 && e < 64) return;
    v->k += e;
    v->c0 = ldexp(v->c0, -e);
}

// fn (or its derivative) of x into node y.
static void represent_unary(snd_moments *t, snd_mid y, snd_gfn fn, bool slope, snd_mid x) {
    const bool shifted = NODE(x)->rep == REP_FUNC && NODE(x)->gauss && has_kink(fn) &&
                         fabs(snd_m_e1(t, x)) > 1e-12 * fabs(NODE(x)->scale) && t->atom[NODE(x)->atom].fresh;
    snd_mid from = x;
    if (!constant(NODE(x)) && (NODE(x)->rep != REP_FUNC || shifted)) {
        const int32_t atom = gaussian_of(t, x);
        from = atom < 0 ? 0 : t->atom[atom].ident;
    }
    m_node *v = NODE(y);
    if (constant(NODE(x)) || from == 0) { // no spread: a number
        const double c = constant(NODE(x)) ? NODE(x)->c0 : snd_m_e1(t, x);
        v->rep = REP_SUM;
        number_of(v, fn, slope, c, NODE(x)->k);
        v->approx = NODE(x)->approx;
        v->gauss = true;
        return;
    }
    const m_node *p = NODE(from);
    const bool homogeneous = has_kink(fn); // fn(c z) = |c| fn(+-z): one curve for all sizes
    const double sign = p->scale > 0 ? 1 : p->scale < 0 ? -1 : p->scale;
    const m_curve_key key = {slope ? CURVE_SLOPE : CURVE_VALUE,
                             (int32_t)fn,
                             p->curve,
                             homogeneous ? 0 : p->k,
                             homogeneous ? sign : p->scale,
                             0};
    v->k = homogeneous && !slope ? p->k : 0;
    represent_func(t, y, p->atom, curve(t, key, curve_of(t, from)->rule), homogeneous && !slope ? fabs(p->scale) : 1);
    v->approx = p->approx;
    set_span(t, y);
    if (!homogeneous) rescale(t, y);
}

snd_mid snd_m_unary(snd_moments *t, snd_gfn fn, snd_mid a) {
    const snd_mid y = new_node(t, OP_UNARY);
    if (t->failed) return 0;
    set_operands(t, y, 1, &a);
    NODE(y)->fn = (uint8_t)fn;
    NODE(y)->dim = NODE(a)->dim;
    NODE(y)->normed = NODE(a)->normed;
    represent_unary(t, y, fn, false, a);
    return y;
}

snd_mid m_slope(snd_moments *t, snd_mid y) {
    if (NODE(y)->slope) return NODE(y)->slope;
    const snd_mid d = new_node(t, OP_SLOPE);
    if (t->failed) return 0;
    NODE(d)->dim = NODE(y)->dim;
    // A shifted kink made a variable of its own for y: use the same one.
    const snd_mid x =
        NODE(y)->rep == REP_FUNC && NODE(NODE(y)->in[0])->rep == REP_FUNC && NODE(NODE(y)->in[0])->atom != NODE(y)->atom
            ? t->atom[NODE(y)->atom].ident
            : NODE(y)->in[0];
    represent_unary(t, d, (snd_gfn)NODE(y)->fn, true, x);
    return NODE(y)->slope = d;
}

// y = (x - shift)/s with s in x's node units.
static void represent_norm(snd_moments *t, snd_mid y, snd_mid x, double shift, double s) {
    set_operands(t, y, 1, &x);
    NODE(y)->dim = NODE(x)->dim;
    NODE(y)->s = s;
    const int k = NODE(x)->k; // take x as if its exponent were 0, so that y's is
    NODE(x)->k = 0;
    const double c = 1 / s;
    represent_sum(t, y, 1, &x, &c, -shift / s);
    NODE(x)->k = k;
    if (NODE(y)->rep == REP_FUNC) NODE(y)->normed = y;
}

snd_mid snd_m_layer_norm(snd_moments *t, snd_mid x, double eps) {
    const double m = snd_m_e1(t, x), q = snd_m_e2(t, x, x, 0);
    double var = q - m * m;
    if (var < 1e-14 * q) var = 0;
    const snd_mid y = new_node(t, OP_LN);
    if (t->failed) return 0;
    represent_norm(t, y, x, m, sqrt(var + ldexp(eps, -2 * NODE(x)->k)));
    return y;
}

snd_mid snd_m_rms_norm(snd_moments *t, snd_mid x, double eps) {
    const double q = snd_m_e2(t, x, x, 0);
    const snd_mid y = new_node(t, OP_RMSNORM);
    if (t->failed) return 0;
    represent_norm(t, y, x, 0, sqrt(q + ldexp(eps, -2 * NODE(x)->k)));
    return y;
}

snd_mid snd_m_batch_norm(snd_moments *t, snd_mid x, double eps) {
    const double e = t->batch, gap = snd_m_e2(t, x, x, 0) - snd_m_e2(t, x, x, 1);
    const double var = gap > 0 ? gap * (1 - 1 / e) : 0;
    const snd_mid y = new_node(t, OP_BN);
    if (t->failed) return 0;
    set_operands(t, y, 1, &x);
    m_node *v = NODE(y);
    snd_mid *term = take(t, 1, sizeof *term);
    double *c = take(t, 1, sizeof *c);
    if (!term || !c) return 0;
    v->dim = NODE(x)->dim;
    v->s = sqrt(var + ldexp(eps, -2 * NODE(x)->k));
    v->rep = REP_CENTRE;
    v->n_terms = 1;
    v->term = term;
    v->coef = c;
    term[0] = x;
    c[0] = var > 0 ? 1 / v->s : 0;
    set_span(t, y);
    v->gauss = NODE(x)->gauss;
    v->approx = NODE(x)->approx;
    return y;
}

// A number per row, sum over d features of a*b: its mean, or, where that vanishes, Gaussian noise.
snd_mid snd_m_dot(snd_moments *t, snd_mid a, snd_mid b) {
    const double d = (double)wider(NODE(a)->dim, NODE(b)->dim), m = snd_m_e2(t, a, b, 0);
    const double qa = snd_m_e2(t, a, a, 0), qb = snd_m_e2(t, b, b, 0);
    const bool aligned = !(m * m < 0.05 * qa * qb);
    double var = 0, cov = 0;
    if (!aligned) {
        var = d * (bounded(t, (ref[]){{a, 0}, {a, 0}, {b, 0}, {b, 0}}, 4) - m * m);
        cov = d * (bounded(t, (ref[]){{a, 0}, {b, 0}, {a, 1}, {b, 1}}, 4) - m * m);
    }
    snd_mid noise = 0;
    if (!aligned && var > 0) {
        noise = new_node(t, OP_NONE);
        represent_fresh(t, noise, var, NODE(a)->k + NODE(b)->k, cov / var);
        NODE(noise)->dim = 1;
    }
    const snd_mid y = new_node(t, OP_DOT);
    if (t->failed) return 0;
    set_operands(t, y, 2, (snd_mid[]){a, b});
    const double mean = ldexp(d * m, NODE(a)->k + NODE(b)->k), one = 1;
    represent_sum(t, y, noise ? 1 : 0, &noise, &one, mean);
    NODE(y)->dim = 1;
    NODE(y)->approx = NODE(a)->approx || NODE(b)->approx;
    return y;
}

snd_mid snd_m_rms(snd_moments *t, snd_mid a) {
    const double q = snd_m_e2(t, a, a, 0);
    const snd_mid y = new_node(t, OP_RMS);
    if (t->failed) return 0;
    set_operands(t, y, 1, &a);
    m_node *v = NODE(y);
    v->dim = 1;
    v->rep = REP_SUM;
    v->k = NODE(a)->k;
    v->c0 = sqrt(q);
    v->s = sqrt(q);
    v->gauss = true;
    v->approx = NODE(a)->approx;
    return y;
}

void snd_m_boundary(snd_moments *t) {
    (void)new_node(t, OP_BOUNDARY);
}

// ---- answers ----------------------------------------------------------------------------------------------------------

int snd_m_batch(const snd_moments *t) {
    return t->batch;
}
int64_t snd_m_dim(const snd_moments *t, snd_mid a) {
    return NODE(a)->dim;
}
bool snd_m_approx(const snd_moments *t, snd_mid a) {
    return NODE(a)->approx || t->cut; // after a cut nothing is known to be exact
}
int snd_m_exponent(const snd_moments *t, snd_mid a) {
    return NODE(a)->k;
}

double snd_m_log10_q(snd_moments *t, snd_mid a) {
    return log10(snd_m_e2(t, a, a, 0)) + 2 * NODE(a)->k * M_LN2 / M_LN10;
}

double snd_m_mean(snd_moments *t, snd_mid a) {
    return ldexp(snd_m_e1(t, a), NODE(a)->k);
}
double snd_m_mean_ratio(snd_moments *t, snd_mid a) {
    const double q = snd_m_e2(t, a, a, 0);
    return q > 0 ? snd_m_e1(t, a) / sqrt(q) : NAN;
}

double snd_m_cos(snd_moments *t, snd_mid a) {
    const double q = snd_m_e2(t, a, a, 0);
    return q > 0 ? snd_m_e2(t, a, a, 1) / q : NAN;
}

double snd_m_align(snd_moments *t, snd_mid a, snd_mid b) {
    const double p = snd_m_e2(t, a, a, 0), q = snd_m_e2(t, b, b, 0);
    return p > 0 && q > 0 ? snd_m_e2(t, a, b, 0) / sqrt(p * q) : NAN;
}

bool snd_m_reached(const snd_moments *t, snd_mid a) {
    return NODE(a)->reached;
}

double snd_m_log10_gq(const snd_moments *t, snd_mid a) {
    const m_node *v = NODE(a);
    return v->reached ? log10(v->gq) + 2 * v->gk * M_LN2 / M_LN10 : NAN;
}
