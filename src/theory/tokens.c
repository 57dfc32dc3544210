#include "theory/tokens_tape.h"

#include <math.h>
#include <string.h>

#define NODE(i) (&t->node[i])
enum { G = SND_GAUSS_NODES, H = SND_HERMITE_TERMS };

// ---- the tape -----------------------------------------------------------------------------------------------------------

static snd_tokens *begin(snd_arena *arena, double batch, const snd_gauss_rule *rule, snd_soft_table *soft) {
    snd_tokens *t = snd_arena_array(arena, 1, sizeof *t);
    if (!t || !rule || !soft) return NULL;
    t->arena = arena;
    t->batch = batch;
    t->rule = rule;
    t->soft = soft;
    (void)k_new(t, K_FIXED, -1, 0); // node 0: the constant 1
    if (t->failed) return NULL;
    for (int i = 0; i < SND_PLACES; i++) t->node[0].mean[i] = 1;
    return t;
}

snd_tokens *snd_tokens_create(snd_arena *arena, double batch) {
    snd_gauss_rule *rule = snd_arena_array(arena, 1, sizeof *rule);
    if (rule) snd_gauss_rule_centred(rule);
    return begin(arena, batch, rule, snd_arena_array(arena, 1, sizeof(snd_soft_table)));
}

snd_tokens *snd_tokens_create_net(snd_arena *arena, snd_tokens *of, const snd_tk_net *net) {
    snd_tokens *t = begin(arena, of->batch, of->rule, of->soft);
    if (!t) return NULL;
    t->is_net = true;
    t->net = *net;
    return t;
}

void snd_tokens_destroy(snd_tokens *t) {
    if (!t) return;
    snd_free(t->node);
    snd_free(t->pairs);
}

bool snd_tokens_failed(const snd_tokens *t) {
    return t->failed;
}

int snd_tk_stack(snd_tokens *t, int64_t tokens, snd_cut cut) {
    if (t->is_net) cut = snd_cut_rough(cut);
    if (t->n_stacks == 4 || snd_places_make(t->arena, tokens, cut, &t->stack[t->n_stacks]) != SONDE_OK) {
        t->failed = true;
        return t->at;
    }
    return t->at = t->n_stacks++;
}

const snd_places *snd_tk_places(const snd_tokens *t, int stack) {
    return &t->stack[stack];
}

double *k_numbers(snd_tokens *t, size_t n) {
    double *p = snd_arena_array(t->arena, n ? n : 1, sizeof *p);
    if (!p) t->failed = true;
    return p;
}

snd_mid k_new(snd_tokens *t, k_op op, int stack, int64_t dim) {
    if (t->failed || (t->n >= t->cap && !snd_grow((void **)&t->node, &t->cap, t->n + 1, sizeof *t->node))) {
        t->failed = true;
        return 0;
    }
    t->node[t->n] = (k_node){.op = (uint8_t)op, .stack = stack, .dim = dim};
    return (snd_mid)t->n++;
}

static int64_t wider(int64_t a, int64_t b) {
    return a > b ? a : b;
}

// Shape, stack and flags that follow from the operands.
void k_operands(snd_tokens *t, snd_mid y, int n, const snd_mid *in) {
    snd_mid *copy = snd_arena_array(t->arena, (size_t)n + 1, sizeof *copy);
    if (!copy || t->failed) {
        t->failed = true;
        return;
    }
    memcpy(copy, in, (size_t)n * sizeof *in);
    k_node *v = NODE(y);
    v->in = copy;
    v->n = n;
    v->gradless = true;
    for (int i = 0; i < n; i++) {
        const k_node *x = NODE(in[i]);
        v->dim = wider(v->dim, x->dim);
        v->approx |= x->approx;
        v->gradless &= x->gradless;
        if (x->stack >= 0) v->stack = x->stack;
    }
}

const snd_places *k_places(const snd_tokens *t, snd_mid a, snd_mid b) {
    const int i = NODE(a)->stack, j = NODE(b)->stack;
    return &t->stack[i >= 0 ? i : j >= 0 ? j : 0];
}

static snd_mid plain(const snd_tokens *t, snd_mid v) {
    while (NODE(v)->same) v = NODE(v)->same;
    return v;
}

// ---- kernels of two nodes -----------------------------------------------------------------------------------------------

static uint64_t mixed(uint64_t k) {
    k *= 0x9E3779B97F4A7C15u;
    return k ^ k >> 29;
}

static k_slot *slot_of(k_slot *s, int64_t cap, uint64_t key) {
    int64_t i = (int64_t)(mixed(key) & (uint64_t)(cap - 1));
    while (s[i].key && s[i].key != key) i = (i + 1) & (cap - 1);
    return &s[i];
}

static void remember(snd_tokens *t, uint64_t key, const double *kernel) {
    if (2 * (t->n_pairs + 1) > t->cap_pairs) {
        const int64_t cap = t->cap_pairs ? 2 * t->cap_pairs : 1024;
        k_slot *s = snd_calloc((size_t)cap, sizeof *s);
        if (!s) {
            t->failed = true;
            return;
        }
        for (int64_t i = 0; i < t->cap_pairs; i++)
            if (t->pairs[i].key) *slot_of(s, cap, t->pairs[i].key) = t->pairs[i];
        snd_free(t->pairs);
        t->pairs = s;
        t->cap_pairs = cap;
    }
    *slot_of(t->pairs, t->cap_pairs, key) = (k_slot){key, kernel};
    t->n_pairs++;
}

static const double *means(snd_tokens *t, snd_mid a, snd_mid b) {
    const snd_places *p = k_places(t, a, b);
    const bool at_home_everywhere = NODE(a)->stack < 0 && NODE(b)->stack < 0;
    double *out = k_numbers(t, at_home_everywhere ? 2 * SND_PLACES * (SND_PLACES + 1) : (size_t)p->size);
    if (!out) return NULL;
    if (at_home_everywhere) {
        for (int e = 0; e < 2 * SND_PLACES * (SND_PLACES + 1); e++) out[e] = NODE(a)->mean[0] * NODE(b)->mean[0];
        return out;
    }
    bool any = false;
    for (int e = 0; e < p->size; e++) {
        out[e] = NODE(a)->mean[p->row[e]] * NODE(b)->mean[p->col[e]];
        any |= out[e] != 0;
    }
    return any ? out : NULL;
}

// Covariance: second moment less the product of the means.
typedef struct covariance {
    k_view v;
    const double *ma, *mb;
    const snd_places *p;
} covariance;

static covariance cov_in(snd_tokens *t, snd_mid a, snd_mid b, const snd_places *p) {
    const k_view v = k_wide_pair(t, a, b);
    return (covariance){v, NODE(a)->mean, NODE(b)->mean, p};
}
static covariance cov_of(snd_tokens *t, snd_mid a, snd_mid b) {
    return cov_in(t, a, b, k_places(t, a, b));
}
static double cov_at(const covariance *c, int e) {
    return k_at(c->v, e) - c->ma[c->p->row[e]] * c->mb[c->p->col[e]];
}

static const double *pair_sum(snd_tokens *t, snd_mid a, snd_mid b) {
    const snd_places *p = k_places(t, a, b);
    double *out = k_numbers(t, (size_t)p->size);
    if (!out) return NULL;
    for (int i = 0; i < NODE(a)->n; i++) {
        const k_view v = k_pair(t, NODE(a)->in[i], b);
        if (!v.k) continue;
        const double *c = NODE(a)->coef[i];
        for (int e = 0; e < p->size; e++) out[e] += c[p->row[e]] * k_at(v, e);
    }
    const double *c0 = NODE(a)->c0, *mb = NODE(b)->mean;
    for (int e = 0; e < p->size; e++) out[e] += c0[p->row[e]] * mb[p->col[e]];
    return out;
}

// E of (mean of a over all rows of the batch) times b at class j.
static double with_mean(const snd_tokens *t, const snd_places *p, k_view v, int j) {
    const double all = (double)p->tokens, own = 1 / t->batch;
    double one = k_at(v, snd_same(p) + j), two = k_at(v, snd_cross_same(p) + j);
    for (int i = 0; i < p->n; i++) {
        const double others = p->count[i] - (i == j);
        one += others * k_at(v, snd_other(p) + i * p->n + j);
        two += others * k_at(v, snd_cross_other(p) + i * p->n + j);
    }
    return (own * one + (1 - own) * two) / all;
}

static const double *pair_centre(snd_tokens *t, snd_mid a, snd_mid b) {
    const snd_places *p = k_places(t, a, b);
    double *out = k_numbers(t, (size_t)p->size), less[SND_PLACES];
    if (!out) return NULL;
    const k_view v = k_pair(t, NODE(a)->in[0], b);
    const double *c = NODE(a)->coef[0];
    for (int j = 0; j < p->n; j++) less[j] = with_mean(t, p, v, j);
    for (int e = 0; e < p->size; e++) out[e] = c[p->row[e]] * (k_at(v, e) - less[p->col[e]]);
    return out;
}

static const double *series_at(const k_node *v, int class) {
    return v->series + (v->alike ? 0 : class * H);
}
static const double *table_at(const k_node *v, int class) {
    return v->tab + (v->alike ? 0 : class * G);
}

// Of an entry of two rows: two tokens of one example, one position of two examples, any other pair.
static int kind_of(const snd_places *p, int e) {
    return e < snd_cross_same(p) ? 0 : e < snd_cross_other(p) ? 1 : 2;
}

// Two functions of two Gaussian variables.
static const double *pair_funcs(snd_tokens *t, snd_mid a, snd_mid b) {
    const snd_mid x = plain(t, NODE(a)->in[0]), y = plain(t, NODE(b)->in[0]);
    const covariance c = cov_of(t, x, y);
    const snd_places *p = c.p;
    double *out = k_numbers(t, (size_t)p->size);
    if (!out) return NULL;
    const k_node *f = NODE(a), *h = NODE(b);
    const bool once = f->alike && h->alike;
    double full = x == y && once ? snd_gauss_inner(t->rule, f->tab, h->tab) : NAN, luck[3];
    k_pair_luck(t, x, luck);
    for (int e = 0; e < p->size; e++) {
        const int i = p->row[e], j = p->col[e];
        const double both = f->sd[i] * h->sd[j];
        if (x == y && !once) full = snd_gauss_inner(t->rule, table_at(f, i), table_at(h, j));
        const double rho = both > 0 ? cov_at(&c, e) / both : 0;
        const double stray = x != y || e < snd_other(p) ? 0 : fmin(sqrt(luck[kind_of(p, e)]), fmax(1 - fabs(rho), 0));
        out[e] = snd_gauss_mehler(series_at(f, i), series_at(h, j), rho + stray, full);
        if (stray == 0) continue;
        out[e] += snd_gauss_mehler(series_at(f, i), series_at(h, j), rho - stray, full);
        out[e] /= 2; // two correlations stand for all that a net of finite width has
    }
    return out;
}

// E f(x) b = E f E b + E f' cov(x, b)
static const double *pair_stein(snd_tokens *t, snd_mid a, snd_mid b) {
    const covariance c = cov_of(t, NODE(a)->in[0], b);
    const snd_places *p = c.p;
    double *out = k_numbers(t, (size_t)p->size);
    if (!out) return NULL;
    const k_node *f = NODE(a);
    for (int e = 0; e < p->size; e++) {
        const int i = p->row[e];
        const double slope = f->sd[i] > 0 ? series_at(f, i)[1] / f->sd[i] : 0;
        out[e] = f->mean[i] * c.mb[p->col[e]] + slope * cov_at(&c, e);
    }
    return out;
}

// E u v b with what three variables share beyond pairs left out.
static const double *pair_three(snd_tokens *t, snd_mid u, snd_mid v, snd_mid b) {
    const snd_places *p = k_places(t, b, u);
    const covariance uv = cov_in(t, u, v, p), ub = cov_in(t, u, b, p), vb = cov_in(t, v, b, p);
    double *out = k_numbers(t, (size_t)p->size);
    if (!out) return NULL;
    for (int e = 0; e < p->size; e++) {
        const int i = p->row[e], j = p->col[e];
        const double mu = ub.ma[i], mv = vb.ma[i], mb = ub.mb[j];
        out[e] = (mu * mv + cov_at(&uv, snd_same(p) + i)) * mb + mu * cov_at(&vb, e) + mv * cov_at(&ub, e);
    }
    return out;
}

// E u v p q, u and v in one row, p and q in the other.
static const double *pair_four(snd_tokens *t, snd_mid u, snd_mid v, snd_mid y, snd_mid z) {
    const snd_places *p = k_places(t, u, NODE(u)->stack < 0 ? v : u);
    const covariance uv = cov_in(t, u, v, p), yz = cov_in(t, y, z, p);
    const covariance uy = cov_in(t, u, y, p), uz = cov_in(t, u, z, p), vy = cov_in(t, v, y, p), vz = cov_in(t, v, z, p);
    double *out = k_numbers(t, (size_t)p->size);
    if (!out) return NULL;
    for (int e = 0; e < p->size; e++) {
        const int i = p->row[e], j = p->col[e];
        const double mu = uy.ma[i], mv = vy.ma[i], my = uy.mb[j], mz = uz.mb[j];
        const double a = cov_at(&uy, e), b = cov_at(&uz, e), c = cov_at(&vy, e), d = cov_at(&vz, e);
        out[e] = (mu * mv + cov_at(&uv, snd_same(p) + i)) * (my * mz + cov_at(&yz, snd_same(p) + j)) + a * d + b * c +
                 mv * mz * a + mv * my * b + mu * mz * c + mu * my * d;
    }
    return out;
}

static const double *pair(snd_tokens *t, snd_mid a, snd_mid b) { // a >= b
    const k_node *v = NODE(a), *w = NODE(b);
    if (v->op == K_FIXED || w->op == K_FIXED) return means(t, a, b);
    if (v->stack != w->stack) return NULL; // joined by fresh maps only
    if (v->op == K_SUM) return pair_sum(t, a, b);
    if (v->op == K_CENTRE) return pair_centre(t, a, b);
    if (v->op == K_BASE) return a == b ? v->own : means(t, a, b);
    if (v->op == K_MUL && w->op == K_MUL) return pair_four(t, v->in[0], v->in[1], w->in[0], w->in[1]);
    if (v->op == K_MUL) return pair_three(t, v->in[0], v->in[1], b);
    if (w->op == K_FUNC) return pair_funcs(t, a, b);
    if (w->op != K_MUL) return pair_stein(t, a, b);
    return NULL; // k_pair() has turned it round
}

k_view k_pair(snd_tokens *t, snd_mid a, snd_mid b) {
    a = plain(t, a), b = plain(t, b);
    const bool turn = a < b;
    const snd_mid hi = turn ? b : a, lo = turn ? a : b;
    const uint64_t key = (uint64_t)(uint32_t)hi << 32 | (uint32_t)lo | (uint64_t)1 << 63;
    const bool number = NODE(a)->stack < 0 && NODE(b)->stack < 0; // the same at all entries
    const int16_t *flip = turn && !number ? k_places(t, a, b)->flip : NULL;
    if (t->cap_pairs) {
        const k_slot *s = slot_of(t->pairs, t->cap_pairs, key);
        if (s->key) return (k_view){s->kernel, flip};
    }
    if (t->failed) return (k_view){0};
    const double *kernel = NULL;
    if (NODE(hi)->op == K_FUNC && NODE(lo)->op == K_MUL) { // products are opened first
        const double *k = pair_three(t, NODE(lo)->in[0], NODE(lo)->in[1], hi);
        const snd_places *p = k_places(t, a, b);
        double *turned = k_numbers(t, (size_t)p->size);
        for (int e = 0; e < p->size && turned && k; e++) turned[e] = k[p->flip[e]];
        kernel = turned;
    } else {
        kernel = pair(t, hi, lo);
    }
    if (hi == lo && t->is_net && kernel) kernel = k_strayed(t, hi, kernel);
    remember(t, key, kernel);
    return (k_view){kernel, flip};
}

k_view k_wide_pair(snd_tokens *t, snd_mid a, snd_mid b) {
    a = plain(t, a), b = plain(t, b);
    const k_view v = k_pair(t, a, b);
    if (!t->is_net || a != b) return v;
    const k_node *x = NODE(a);
    const bool drawn = x->op == K_BASE && x->from == K_FROM_LINEAR;
    return drawn ? (k_view){x->own, NULL} : x->wide ? (k_view){x->wide, NULL} : v;
}

// ---- builders -----------------------------------------------------------------------------------------------------------

snd_mid snd_tk_const(snd_tokens *t, double v) {
    const snd_mid y = k_new(t, K_FIXED, -1, 0);
    for (int i = 0; i < SND_PLACES && !t->failed; i++) NODE(y)->mean[i] = v;
    if (!t->failed) NODE(y)->gauss = NODE(y)->gradless = true;
    return y;
}

snd_mid snd_tk_input(snd_tokens *t, int64_t dim, snd_tk_rows q, bool learned) {
    const snd_places *p = &t->stack[t->at];
    const snd_mid y = k_new(t, K_BASE, t->at, dim);
    double *own = k_numbers(t, (size_t)p->size);
    if (t->failed) return 0;
    for (int e = 0; e < p->size; e++)
        own[e] = e < snd_other(p)         ? q.same
                 : e < snd_cross_same(p)  ? q.other
                 : e < snd_cross_other(p) ? q.cross_same
                                          : q.cross_other;
    NODE(y)->own = own;
    NODE(y)->gauss = true;
    NODE(y)->gradless = learned;
    return y;
}

snd_mid snd_tk_waves(snd_tokens *t, int64_t dim) {
    const snd_places *p = &t->stack[t->at];
    const snd_mid y = k_new(t, K_BASE, t->at, dim);
    double *own = k_numbers(t, (size_t)p->size);
    if (t->failed) return 0;
    k_node *v = NODE(y);
    const double d = (double)dim;
    for (int64_t i = 0; i < dim; i++) {
        const double rate = pow(10000, -2.0 * (double)(i / 2) / d);
        for (int j = 0; j < p->n; j++) v->mean[j] += (i % 2 ? cos(rate * p->at[j]) : sin(rate * p->at[j])) / d;
        if (i % 2) continue;
        const double share = (i + 1 < dim ? 1 : 0.5) / d; // sin sin' + cos cos' = cos of the difference
        for (int e = 0; e < p->size; e++) own[e] += share * cos(rate * (p->at[p->row[e]] - p->at[p->col[e]]));
    }
    v->own = own;
    v->gauss = v->gradless = true;
    v->from = K_FROM_WAVES;
    return y;
}

snd_mid snd_tk_linear(snd_tokens *t, snd_mid x, int64_t fan_in, int64_t out, double var) {
    const k_view q = k_pair(t, x, x);
    const snd_places *p = k_places(t, x, x);
    const snd_mid y = k_new(t, K_BASE, NODE(x)->stack, 0);
    if (t->failed) return 0;
    k_operands(t, y, 1, &x);
    k_node *v = NODE(y);
    v->dim = out;
    v->from = K_FROM_LINEAR;
    v->var = var;
    v->gauss = true;
    v->stack = NODE(x)->stack >= 0 ? NODE(x)->stack : t->at;
    if (!q.k || var == 0) return y;
    double *own = k_numbers(t, (size_t)p->size);
    for (int e = 0; e < p->size && own; e++) own[e] = var * (double)fan_in * q.k[e];
    v->own = own;
    return y;
}

static snd_mid sum(snd_tokens *t, int n, const snd_mid *id) {
    const snd_mid y = k_new(t, K_SUM, -1, 0);
    if (t->failed) return 0;
    k_operands(t, y, n, id);
    NODE(y)->coef = (double(*)[SND_PLACES])k_numbers(t, (size_t)(n + 1) * SND_PLACES);
    NODE(y)->gauss = true;
    for (int i = 0; i < n && !t->failed; i++) NODE(y)->gauss &= NODE(id[i])->gauss;
    return y;
}

// The mean of a sum, once its coefficients stand; a sum of numbers is a number.
static void finish_sum(snd_tokens *t, snd_mid y) {
    k_node *v = NODE(y);
    bool fixed = true;
    for (int i = 0; i < v->n; i++) fixed &= NODE(v->in[i])->op == K_FIXED;
    for (int j = 0; j < SND_PLACES; j++) {
        v->mean[j] = v->c0[j];
        for (int i = 0; i < v->n; i++) v->mean[j] += v->coef[i][j] * NODE(v->in[i])->mean[j];
    }
    if (fixed) v->op = K_FIXED;
}

snd_mid snd_tk_sum(snd_tokens *t, int n, const snd_mid *id, const double *coef, double c0) {
    const snd_mid y = sum(t, n, id);
    if (t->failed) return 0;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < SND_PLACES; j++) NODE(y)->coef[i][j] = coef[i];
    for (int j = 0; j < SND_PLACES; j++) NODE(y)->c0[j] = c0;
    finish_sum(t, y);
    if (n == 1 && coef[0] == 1 && c0 == 0) NODE(y)->same = id[0];
    return y;
}

snd_mid k_weighted(snd_tokens *t, snd_mid x, const double *coef) {
    const snd_mid y = sum(t, 1, &x);
    if (t->failed) return 0;
    memcpy(NODE(y)->coef[0], coef, sizeof NODE(y)->coef[0]);
    finish_sum(t, y);
    return y;
}

snd_mid snd_tk_stop(snd_tokens *t, snd_mid a) {
    const snd_mid y = snd_tk_sum(t, 1, &a, (double[]){1}, 0);
    if (!t->failed) NODE(y)->gradless = true;
    return y;
}

snd_mid snd_tk_mul(snd_tokens *t, snd_mid a, snd_mid b) {
    const snd_mid y = k_new(t, K_MUL, -1, 0);
    if (t->failed) return 0;
    k_operands(t, y, 2, (snd_mid[]){a, b});
    const covariance c = cov_of(t, a, b); // after k_new(), which may move the nodes
    k_node *v = NODE(y);
    bool joined = false;
    for (int j = 0; j < c.p->n; j++) {
        const double r = cov_at(&c, snd_same(c.p) + j);
        v->mean[j] = c.ma[j] * c.mb[j] + r;
        joined |= r != 0;
    }
    v->approx |= joined && !(NODE(a)->gauss && NODE(b)->gauss);
    const bool fa = NODE(a)->op == K_FIXED, fb = NODE(b)->op == K_FIXED;
    v->gauss = (fa && NODE(b)->gauss) || (fb && NODE(a)->gauss);
    if (fa && fb) v->op = K_FIXED;
    return y;
}

static double spread_at(snd_tokens *t, snd_mid x, k_view q, int class) {
    const double m = NODE(x)->mean[class], all = k_at(q, snd_same(k_places(t, x, x)) + class), var = all - m * m;
    return var > 1e-13 * all ? sqrt(var) : 0;
}

snd_mid k_func(snd_tokens *t, snd_gfn fn, bool slope, snd_mid x) {
    double (*at)(snd_gfn, double) = slope ? snd_gfn_slope : snd_gfn_value;
    x = plain(t, x);
    const k_view q = k_wide_pair(t, x, x);
    const snd_mid y = k_new(t, K_FUNC, -1, 0);
    if (t->failed) return 0;
    k_operands(t, y, 1, &x);
    k_node *v = NODE(y);
    v->fn = (uint8_t)fn;
    v->slope = slope;
    v->approx |= !NODE(x)->gauss;
    const int n = v->stack >= 0 ? t->stack[v->stack].n : SND_PLACES;
    bool fixed = true;
    v->alike = true;
    for (int j = 0; j < n; j++) {
        v->sd[j] = NODE(x)->op == K_FIXED ? 0 : spread_at(t, x, q, j);
        fixed &= v->sd[j] == 0;
        v->alike &= fabs(v->sd[j] - v->sd[0]) <= 1e-9 * v->sd[0] &&
                    fabs(NODE(x)->mean[j] - NODE(x)->mean[0]) <= 1e-9 * v->sd[0];
    }
    if (fixed) {
        v->op = K_FIXED;
        v->gauss = true;
        for (int j = 0; j < SND_PLACES; j++) v->mean[j] = at(fn, NODE(x)->mean[j]);
        return y;
    }
    const int sets = v->alike ? 1 : n;
    v->tab = k_numbers(t, (size_t)sets * G);
    v->series = k_numbers(t, (size_t)sets * H);
    for (int j = 0; j < n && !t->failed; j++) {
        if (j < sets) {
            for (int i = 0; i < G; i++) v->tab[j * G + i] = at(fn, NODE(x)->mean[j] + v->sd[j] * t->rule->z[i]);
            snd_gauss_series(t->rule, v->tab + j * G, v->series + j * H);
        }
        v->mean[j] = series_at(v, j)[0];
    }
    return y;
}

snd_mid snd_tk_unary(snd_tokens *t, snd_gfn fn, snd_mid a) {
    return k_func(t, fn, false, a);
}

// y = (x - mean)/sqrt(var + eps) or x/sqrt(q + eps), at each position with its own divisor.
static snd_mid norm(snd_tokens *t, snd_mid x, double eps, bool centred) {
    const k_view q = k_pair(t, x, x);
    const snd_mid y = sum(t, 1, &x);
    if (t->failed) return 0;
    const snd_places *p = k_places(t, x, x);
    k_node *v = NODE(y);
    for (int j = 0; j < p->n; j++) {
        const double m = centred ? NODE(x)->mean[j] : 0, all = k_at(q, snd_same(p) + j), left = all - m * m;
        const double s = sqrt((left > 1e-14 * all ? left : 0) + eps);
        v->coef[0][j] = s > 0 ? 1 / s : 0;
        v->c0[j] = -m * v->coef[0][j];
    }
    finish_sum(t, y);
    NODE(y)->norm = true;
    NODE(y)->centred = centred;
    return y;
}

snd_mid snd_tk_layer_norm(snd_tokens *t, snd_mid x, double eps) {
    return norm(t, x, eps, true);
}
snd_mid snd_tk_rms_norm(snd_tokens *t, snd_mid x, double eps) {
    return norm(t, x, eps, false);
}

snd_mid k_centre(snd_tokens *t, snd_mid x) {
    const snd_mid y = k_new(t, K_CENTRE, -1, 0);
    if (t->failed) return 0;
    k_operands(t, y, 1, &x);
    k_node *v = NODE(y);
    const snd_places *p = k_places(t, x, x);
    v->coef = (double(*)[SND_PLACES])k_numbers(t, SND_PLACES);
    if (t->failed) return 0;
    v->gauss = NODE(x)->gauss;
    double m = 0;
    for (int j = 0; j < p->n; j++) m += p->weight[j] * NODE(x)->mean[j];
    for (int j = 0; j < p->n; j++) v->coef[0][j] = 1, v->mean[j] = NODE(x)->mean[j] - m;
    return y;
}

static double mean_of_kind(const snd_places *p, k_view v, int from, int to) {
    double s = 0;
    for (int e = from; e < to; e++)
        if (p->weight[e] != 0) s += p->weight[e] * k_at(v, e);
    return s;
}

static double mean_square(snd_tokens *t, snd_mid a) {
    const snd_places *p = k_places(t, a, a);
    return mean_of_kind(p, k_pair(t, a, a), snd_same(p), snd_other(p));
}

snd_mid snd_tk_batch_norm(snd_tokens *t, snd_mid x, double eps) {
    const snd_mid y = k_centre(t, x);
    if (t->failed) return 0;
    const double s = 1 / sqrt(mean_square(t, y) + eps);
    return snd_tk_sum(t, 1, &y, &s, 0);
}

// A number per row, sum over d features of a b: its mean and, around it, noise of its own.
snd_mid snd_tk_dot(snd_tokens *t, snd_mid a, snd_mid b) {
    const snd_places *p = k_places(t, a, b);
    const double d = (double)wider(NODE(a)->dim, NODE(b)->dim);
    const snd_mid y = k_new(t, K_BASE, -1, 0);
    double *own = k_numbers(t, (size_t)p->size);
    if (t->failed) return 0;
    k_operands(t, y, 2, (snd_mid[]){a, b});
    const covariance aa = cov_in(t, a, a, p), bb = cov_in(t, b, b, p), ab = cov_in(t, a, b, p);
    k_node *v = NODE(y);
    v->from = K_FROM_DOT;
    v->dim = 1;
    v->gauss = true;
    for (int j = 0; j < p->n; j++) v->mean[j] = d * k_at(ab.v, snd_same(p) + j);
    for (int e = 0; e < p->size; e++) {
        const double m = ab.ma[p->row[e]] * ab.ma[p->col[e]], l = ab.mb[p->row[e]] * ab.mb[p->col[e]];
        const double q = cov_at(&aa, e), r = cov_at(&bb, e), c = cov_at(&ab, e), c2 = cov_at(&ab, p->flip[e]);
        own[e] = v->mean[p->row[e]] * v->mean[p->col[e]] + d * (q * r + c * c2 + m * r + l * q);
    }
    v->own = own;
    return y;
}

snd_mid snd_tk_rms(snd_tokens *t, snd_mid a) {
    const k_view q = k_pair(t, a, a);
    const snd_mid y = k_new(t, K_FIXED, -1, 0);
    if (t->failed) return 0;
    k_operands(t, y, 1, &a);
    const snd_places *p = k_places(t, a, a);
    NODE(y)->from = K_FROM_RMS;
    NODE(y)->dim = 1;
    NODE(y)->gauss = true;
    for (int j = 0; j < p->n; j++) NODE(y)->mean[j] = sqrt(k_at(q, snd_same(p) + j));
    return y;
}

// ---- answers --------------------------------------------------------------------------------------------------------------

int64_t snd_tk_dim(const snd_tokens *t, snd_mid a) {
    return NODE(a)->dim;
}
bool snd_tk_approx(const snd_tokens *t, snd_mid a) {
    return NODE(a)->approx;
}

double snd_tk_log10_q(snd_tokens *t, snd_mid a) {
    return log10(mean_square(t, a));
}

double snd_tk_mean(snd_tokens *t, snd_mid a) {
    const snd_places *p = k_places(t, a, a);
    double s = 0;
    for (int j = 0; j < p->n; j++) s += p->weight[j] * NODE(a)->mean[j];
    return s;
}

static double positive_log10(double v) {
    return v > 0 ? log10(v) : v <= 0 ? -INFINITY : NAN;
}

double snd_tk_log10_var(snd_tokens *t, snd_mid a) {
    const snd_places *p = k_places(t, a, a);
    double s = mean_square(t, a);
    for (int j = 0; j < p->n; j++) s -= p->weight[j] * NODE(a)->mean[j] * NODE(a)->mean[j];
    return positive_log10(s);
}

double snd_tk_log10_bvar(snd_tokens *t, snd_mid a) {
    const snd_places *p = k_places(t, a, a);
    const k_view v = k_pair(t, a, a);
    double mean = 0;
    for (int j = 0; j < p->n; j++) mean += p->weight[j] * with_mean(t, p, v, j);
    return positive_log10(mean_square(t, a) - mean);
}

// Mean of the cosines of one kind of pairs.
static double cosine(const snd_places *p, k_view v, const double *mean, int from, int to) {
    double s = 0;
    for (int e = from; e < to; e++) {
        if (p->weight[e] == 0) continue;
        const int i = p->row[e], j = p->col[e];
        const double m = mean ? mean[i] * mean[j] : 0, mi = mean ? mean[i] : 0, mj = mean ? mean[j] : 0;
        const double qi = k_at(v, snd_same(p) + i) - mi * mi, qj = k_at(v, snd_same(p) + j) - mj * mj;
        s += p->weight[e] * (k_at(v, e) - m) / sqrt(qi * qj);
    }
    return s;
}

double snd_tk_cos(snd_tokens *t, snd_mid a, bool centred) {
    const snd_places *p = k_places(t, a, a);
    const k_view v = k_pair(t, a, a);
    const double c = cosine(p, v, centred ? NODE(a)->mean : NULL, snd_cross_same(p), snd_cross_other(p));
    return t->is_net ? c + k_row_bias(&NODE(plain(t, a))->rows, 1, c) : c;
}

double snd_tk_tokcos(snd_tokens *t, snd_mid a) {
    const snd_places *p = k_places(t, a, a);
    if (p->tokens < 2) return NAN;
    const double c = cosine(p, k_pair(t, a, a), NULL, snd_other(p), snd_cross_same(p));
    return t->is_net ? c + k_row_bias(&NODE(plain(t, a))->rows, 0, c) : c;
}

double snd_tk_align(snd_tokens *t, snd_mid a, snd_mid b) {
    const snd_places *p = k_places(t, a, b);
    const k_view ab = k_pair(t, a, b), aa = k_pair(t, a, a), bb = k_pair(t, b, b);
    double s = 0;
    for (int j = 0; j < p->n; j++) s += p->weight[j] * k_at(ab, j) / sqrt(k_at(aa, j) * k_at(bb, j));
    return s;
}

double snd_tk_log10_ratio(snd_tokens *t, snd_mid a, snd_mid b) {
    const snd_places *p = k_places(t, a, b);
    const k_view aa = k_pair(t, a, a), bb = k_pair(t, b, b);
    double s = 0;
    for (int j = 0; j < p->n; j++) s += p->weight[j] * sqrt(k_at(aa, j) / k_at(bb, j));
    return positive_log10(s);
}

double snd_tk_entropy(snd_tokens *t, snd_mid a) {
    const k_node *v = NODE(plain(t, a));
    return v->from == K_FROM_ATTEND ? v->entropy : NAN;
}

bool snd_tk_reached(const snd_tokens *t, snd_mid a) {
    return NODE(a)->grad != 0;
}

double snd_tk_log10_gq(snd_tokens *t, snd_mid a) {
    const snd_mid g = NODE(a)->grad;
    return g ? positive_log10(mean_square(t, g)) : NAN;
}

double snd_tk_log10_gtok(snd_tokens *t, snd_mid a) {
    const snd_mid g = NODE(a)->grad;
    if (!g) return NAN;
    const snd_places *p = k_places(t, g, g);
    const double n = (double)p->tokens;
    const k_view v = k_pair(t, g, g);
    return positive_log10(mean_of_kind(p, v, snd_same(p), snd_other(p)) / n +
                          (1 - 1 / n) * mean_of_kind(p, v, snd_other(p), snd_cross_same(p)));
}
