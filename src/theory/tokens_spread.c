// How far one network of finite width strays from the token algebra: the mean square of every value, forward and
// backward, in K_STRAYS imaginary networks. Nothing has entries there: a net is one number per node, its log mean square
// less the predicted one, and moves by
//   - a fresh map to n features: a mean over n of them, each a Gaussian process over the rows with the predicted kernel,
//       so variance (2/n) (mean over pairs of rows of K^2)/q^2;
//   - a function or a product: the same with the fourth moment at hand, less what its operand's own features did;
//   - a sum: its parts' shares move with them, and independent parts overlap by chance;
//   - a norm: 0, whatever came in; its gradient is divided by what came in.
// Luck comes in pairs of opposite sign, so that the mean shows the second order: log q falls, post-norm's gradient grows
// with every norm by the variance of its divisor over the rows. Not followed: shapes of kernels, that is cosines, and what few heads do.
//
// One more network has no luck: all its attentions write ATTEND_OFF more than predicted. What that makes of a value is
// the error of the algebra itself, which more seeds do not average away.
#include "theory/tokens_tape.h"

#include <math.h>

#define NODE(i) (&t->node[i])
enum { S = K_STRAYS };

// Closed forms of the softmax against simulation: E sum A A' within 12 % at worst (tokens_attend.c), taken as its two sd.
// Streams of pre-norm nets, whose branches it enters with half its size, are then off by 2 to 3 % as a rule.
#define ATTEND_OFF 0.06

// Luck of variance `var` in one row, of which all rows share the part `common`.
static void add_noise(snd_tokens *t, snd_mid y, uint32_t what, double var, double common) {
    if (!(var > 0)) return;
    const double v = fmin(fmax(var * common, 0), 1), sd = sqrt(v);
    const snd_key key = {{(uint32_t)y, what}};
    NODE(y)->loose += var * fmax(1 - common, 0);
    for (int i = 0; i < S / 2; i++) {
        const double z = sd * snd_normal_at(key, (uint64_t)i);
        NODE(y)->stray[i] += (float)(z - v / 2); // its mean is 1, not that of its logarithm
        NODE(y)->stray[S / 2 + i] -= (float)(z + v / 2);
    }
}

static double mean_square(snd_tokens *t, snd_mid a, snd_mid b) {
    const snd_places *p = k_places(t, a, b);
    const k_view v = k_pair(t, a, b);
    double s = 0;
    for (int e = 0; e < snd_other(p); e++) s += p->weight[e] * k_at(v, e);
    return s;
}

// Mean over pairs of rows of (K_a K_b)/(q_a q_b).
static double overlap(snd_tokens *t, snd_mid a, snd_mid b) {
    const snd_places *p = k_places(t, a, b);
    const k_view va = k_pair(t, a, a), vb = k_pair(t, b, b);
    if (!va.k || !vb.k) return 0;
    const double n = (double)p->tokens, one = 1 / (t->batch * n), two = (1 - 1 / t->batch) / n;
    const double share[] = {one, one * (n - 1), two, two * (n - 1)};
    const int from[] = {snd_same(p), snd_other(p), snd_cross_same(p), snd_cross_other(p), p->size};
    const double qa = mean_square(t, a, a), qb = mean_square(t, b, b);
    if (!(qa > 0) || !(qb > 0)) return 0;
    double s = 0;
    for (int k = 0; k < 4; k++)
        for (int e = from[k]; e < from[k + 1]; e++)
            if (p->weight[e] != 0) s += share[k] * p->weight[e] * (va.k[e] / qa) * (vb.k[e] / qb);
    return s;
}

static void copy(snd_tokens *t, snd_mid y, snd_mid x, double times) {
    if (!NODE(x)->stray) return;
    NODE(y)->loose += times * times * NODE(x)->loose;
    for (int i = 0; i <= S; i++) NODE(y)->stray[i] += (float)times * NODE(x)->stray[i];
}

static snd_mid plain(const snd_tokens *t, snd_mid x) {
    while (NODE(x)->same) x = NODE(x)->same;
    return x;
}
static bool from_map(const snd_tokens *t, snd_mid x) {
    return NODE(x)->op == K_BASE && NODE(x)->from == K_FROM_LINEAR;
}

// What a value inherits once its features' own luck counts anew: that of the map behind it.
static void copy_behind(snd_tokens *t, snd_mid y, snd_mid x, double times) {
    x = plain(t, x);
    copy(t, y, from_map(t, x) ? NODE(x)->in[0] : x, times);
}

// d log E f^2/d log var, and E f^4/(E f^2)^2 - 1, at the middle position.
static void func_law(const snd_tokens *t, snd_mid y, double *slope, double *fourth) {
    const k_node *v = NODE(y);
    const int at = v->alike ? 0 : t->stack[v->stack].n / 2;
    const double *f = v->tab + (v->alike ? 0 : at * SND_GAUSS_NODES);
    double two = 0, four = 0, with = 0;
    for (int i = 0; i < SND_GAUSS_NODES; i++) {
        const double z = t->rule.z[i], w = t->rule.w[i], q = f[i] * f[i];
        two += w * q;
        four += w * q * q;
        with += w * q * (z * z - 1); // E f^2 (z^2 - 1)/2 = d E f^2/d log var
    }
    *slope = two > 0 ? with / 2 / two : 0;
    *fourth = two > 0 ? four / (two * two) - 1 : 0;
}

static void of_sum(snd_tokens *t, snd_mid y) {
    const k_node v = *NODE(y);
    const double q = mean_square(t, y, y), n = (double)(v.dim > 0 ? v.dim : 1);
    double q_net[S + 1] = {0}, random = 0;
    if (!(q > 0)) return;
    for (int i = 0; i < v.n; i++)
        for (int j = 0; j <= i; j++) {
            const snd_mid a = v.in[i], b = v.in[j];
            const double c = v.coef[i][0] * v.coef[j][0] * (i == j ? 1 : 2), m = c * (mean_square(t, a, b) / q);
            for (int k = 0; k <= S; k++) {
                const double s = (NODE(a)->stray ? NODE(a)->stray[k] : 0) + (NODE(b)->stray ? NODE(b)->stray[k] : 0);
                q_net[k] += m * exp(s / 2);
            }
            random += m;
            if (i == j) NODE(y)->loose += m * m * NODE(a)->loose;
            if (i == j) continue;
            const double qa = mean_square(t, a, a) / q, qb = mean_square(t, b, b) / q, ab = mean_square(t, a, b) / q;
            add_noise(t, y, (uint32_t)(i * v.n + j + 1), c * c * fmax(qa * qb - ab * ab, 0) / n, overlap(t, a, b));
        }
    for (int k = 0; k <= S; k++)
        NODE(y)->stray[k] += (float)log(fmax(q_net[k] + 1 - random, 1e-3)); // 1 - random: its constant
}

// E x^4/(E x^2)^2 - 1 of a Gaussian factor, at the middle position.
static double gauss_fourth(snd_tokens *t, snd_mid x) {
    const snd_places *p = k_places(t, x, x);
    const double m = NODE(x)->mean[p->n / 2], q = k_at(k_pair(t, x, x), snd_same(p) + p->n / 2), v = q - m * m;
    return q > 0 ? (m * m * m * m + 6 * m * m * v + 3 * v * v) / (q * q) - 1 : 0;
}

static void of_product(snd_tokens *t, snd_mid y) {
    const k_node v = *NODE(y);
    double fourth = 1, known = 0; // known: the luck of factors that bring their own
    for (int i = 0; i < 2; i++)
        if (NODE(v.in[i])->op == K_FIXED) { // a number: no features of its own
            copy(t, y, v.in[1 - i], 1);
            return;
        }
    for (int i = 0; i < 2; i++) {
        snd_mid x = plain(t, v.in[i]);
        double slope, more;
        if (NODE(x)->op == K_FUNC) {
            func_law(t, x, &slope, &more);
            copy_behind(t, y, NODE(x)->in[0], slope);
        } else {
            more = gauss_fourth(t, x);
            known += from_map(t, x) ? 0 : more;
            copy_behind(t, y, x, 1);
        }
        fourth *= more + 1;
    }
    add_noise(t, y, 0, (fourth - 1 - known) / (double)(v.dim > 0 ? v.dim : 1), overlap(t, v.in[0], v.in[1]));
}

static void of_base(snd_tokens *t, snd_mid y) {
    const k_node v = *NODE(y);
    if (v.from == K_FROM_LINEAR) copy(t, y, v.in[0], 1);
    if (v.from == K_FROM_ATTEND) {
        copy_behind(t, y, v.in[2], 1);
        NODE(y)->loose = 0; // averaged away
    }
    if (v.behind) copy(t, y, v.behind, 1);
    if (v.behind || v.from == K_FROM_ATTEND) NODE(y)->stray[S] += (float)ATTEND_OFF;
    if (v.dim > 1 && v.from != K_FROM_WAVES) add_noise(t, y, 0, 2 / (double)v.dim, overlap(t, y, y));
}

// By a norm's divisors, row by row: a mean of inverses is more than the inverse of a mean.
static void divide(snd_tokens *t, snd_mid y, snd_mid x) {
    const double own = NODE(y)->loose;
    copy(t, y, x, -1);
    for (int i = 0; i < S; i++) NODE(y)->stray[i] += (float)NODE(x)->loose;
    NODE(y)->loose = own;
}

static void of_node(snd_tokens *t, snd_mid y) {
    const k_node v = *NODE(y);
    double slope, fourth;
    if (v.op == K_FIXED || v.norm || v.dim == 0) return;
    if (v.same) {
        NODE(y)->stray = NODE(v.same)->stray;
        return;
    }
    NODE(y)->stray = snd_arena_array(t->arena, S + 1, sizeof(float));
    if (!NODE(y)->stray) {
        t->failed = true;
        return;
    }
    switch ((k_op)v.op) {
    case K_SUM:
        if (v.n == 1 && v.c0[0] == 0)
            copy(t, y, v.in[0], 1);
        else
            of_sum(t, y);
        if (v.norm_back) divide(t, y, NODE(v.norm_back)->in[0]);
        break;
    case K_CENTRE: copy(t, y, v.in[0], 1); break;
    case K_FUNC:
        func_law(t, y, &slope, &fourth);
        copy_behind(t, y, v.in[0], slope);
        add_noise(t, y, 0, fourth / (double)v.dim, overlap(t, y, y));
        break;
    case K_MUL: of_product(t, y); break;
    case K_BASE: of_base(t, y); break;
    case K_FIXED:
    case K_NONE: break;
    }
}

// Strays of all nodes made so far.
static void follow(snd_tokens *t) {
    for (; t->followed < t->n && !t->failed; t->followed++) of_node(t, (snd_mid)t->followed);
}

bool snd_tk_log_q_law(snd_tokens *t, snd_mid a, snd_log_law *law) {
    follow(t);
    if (t->failed) return false;
    const float *s = NODE(a)->stray;
    double mean = 0, square = 0;
    for (int i = 0; i < S && s; i++) mean += s[i] / S;
    for (int i = 0; i < S && s; i++) square += (s[i] - mean) * (s[i] - mean) / (S - 1);
    *law = (snd_log_law){.var = square, .shift = mean, .error = s ? fabs(s[S]) : 0};
    return isfinite(mean) && isfinite(square) && isfinite(law->error);
}

bool snd_tk_log_gq_law(snd_tokens *t, snd_mid a, snd_log_law *law) {
    if (!NODE(a)->grad || !snd_tk_log_q_law(t, NODE(a)->grad, law)) return false;
    law->error = hypot(law->error, 2 / (double)NODE(a)->dim); // what a norm's projections take is not followed
    return true;
}
