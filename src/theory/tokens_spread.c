// What finite width makes of the token algebra: one network in place of the limit. Its tape is the same; the kernel of a
// value is no longer that of infinitely many features but the mean over n that are drawn here,
//   K^ = 1/n sum_i f_i f_i',   f_i iid with the kernel K that the values below it, as they came out, would have,
// and everything that follows reads K^: norms divide by it, attention scores with it, functions take their means over it.
// So bands, and what finite width adds to the mean, come from predicting a few dozen such networks (snd_predict).
//
// Rows are many, and what is seen of them is averages over classes of positions and over examples. With z the mean of a
// class's rows, z_e = m + d_e over the examples e, and d_a a row's distance from it, K is four independent parts: the
// kernels of m and d_e over classes, and the mean squares of d_a's own two such parts. The first two are Wishart with n
// and n (B - 1) degrees of freedom, the others chi-squared. Values that are not Gaussian have fourth moments of their own
// where rows are alike; where rows are apart they average out as Gaussian ones do.
//
//   a fresh map, an input    n features, Gaussian
//   attention                the features of its values: heads that share values share their luck
//   a function, a product    of fresh maps, given what the maps read: their luck counts once
//   a sum                    two parts that know nothing of each other overlap by chance
//   a norm                   none: it divides by what came in
//   scores                   so few come near a tie, when they are large, that a net's gradient is that of the nearest
//
// A norm divides row by row, and a mean of quotients is not the quotient of means. With the rows' own u, w in
// q_a = q (1 + u_a), K_ab = q (c + w_ab), var u = loose, cov(u_a, u_b) = both and cov(w_ab, u_a) = tied,
//   E K_ab/sqrt(q_a q_b) = c + c (3 loose + both)/4 - tied,   E 1/q_a = exp(loose)/q       (the second is for its gradient)
// up to second order. For n Gaussian features loose = 2/n (1 - s), both = 2/n (c^2 - s), tied = 2/n (c - s') and
// pair = var w = (1 + c^2 - 2 s')/n, where s and s' are what all rows share.
//
// Attention and functions read K^ pair by pair, and are not linear in it. Keys that are alike by chance are looked at
// together, and their values are then alike as well: a mean over equally likely tokens is longer by score variance/n.
//
// Not followed: luck that the gradient shares with the forward pass of the weights, beyond what norms make of it.
#include "theory/tokens_tape.h"

#include "base/rngmath.h"

#include <math.h>

#define NODE(i) (&t->node[i])
enum { MOST = 8 }; // classes of a net

typedef struct parts { // of a kernel, see above
    int n;
    double mean[MOST][MOST], example[MOST][MOST]; // lower triangles
    double row_mean[MOST], row_example[MOST];
} parts;

// ---- luck -----------------------------------------------------------------------------------------------------------------

typedef struct draws {
    snd_key key;
    uint64_t next;
    double sign, z[4];
} draws;

// What a node draws, and what its parts i and j draw when they overlap.
static draws draws_of(const snd_tokens *t, snd_mid y, int i, int j) {
    return (draws){.key = {{(uint32_t)t->net.number, (uint32_t)y}},
                   .next = (uint64_t)(i * 64 + j) << 16,
                   .sign = t->net.mirrored ? -1 : 1};
}

// snd_normal_at(), whose block makes four.
static double normal(draws *d) {
    if (d->next % 4 == 0) {
        uint32_t w[4];
        snd_philox(d->key, d->next / 4, w);
        snd_rng_pair(w[0], w[1], d->z);
        snd_rng_pair(w[2], w[3], d->z + 2);
    }
    return d->sign * d->z[d->next++ % 4];
}

// A mean of squares of `free` Gaussian numbers of variance 1 (Wilson and Hilferty).
static double mean_of_squares(draws *d, double free) {
    const double v = 2 / (9 * fmax(free, 0.3)), root = 1 - v + sqrt(v) * normal(d);
    return root > 0 ? root * root * root : 0;
}

// ---- kernels in parts -----------------------------------------------------------------------------------------------------

// mean: of the rows' features, to be taken out; NULL: 0.
static void take_apart(const snd_places *p, double batch, const double *k, const double *mean, parts *out) {
    const int n = p->n;
    out->n = n;
    for (int i = 0; i < n; i++)
        for (int j = 0; j <= i; j++) {
            const double m = mean ? mean[i] * mean[j] : 0;
            double one = k[snd_other(p) + i * n + j] - m, two = k[snd_cross_other(p) + i * n + j] - m;
            if (i == j) {
                const double c = p->count[i], own = k[snd_same(p) + i] - m - one,
                             shared = k[snd_cross_same(p) + i] - m - two;
                one = c > 1 ? one + own / c : one + own;
                two = c > 1 ? two + shared / c : two + shared;
                out->row_mean[i] = (c - 1) / c * (shared + (own - shared) / batch);
                out->row_example[i] = (c - 1) / c * (own - shared);
            }
            out->mean[i][j] = two + (one - two) / batch;
            out->example[i][j] = one - two;
        }
}

static void put_together(const snd_places *p, double batch, const parts *in, const double *mean, double *k) {
    const int n = p->n;
    const double inside = 1 - 1 / batch, across = -1 / batch; // sum over e of d_e = 0
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            const int a = i > j ? i : j, b = i > j ? j : i;
            const double m = mean ? mean[i] * mean[j] : 0;
            double one = m + in->mean[a][b] + inside * in->example[a][b];
            double two = m + in->mean[a][b] + across * in->example[a][b];
            if (i == j) {
                const double c = p->count[i], row = in->row_mean[i] + inside * in->row_example[i],
                             row2 = in->row_mean[i] + across * in->row_example[i];
                k[snd_same(p) + i] = one + row;
                k[snd_cross_same(p) + i] = two + row2;
                if (c > 1) one -= row / (c - 1), two -= row2 / (c - 1);
            }
            k[snd_other(p) + i * n + j] = one;
            k[snd_cross_other(p) + i * n + j] = two;
        }
}

// Lower triangle of a factor; what rounding makes negative is 0.
static void factor(int n, double m[MOST][MOST]) {
    for (int j = 0; j < n; j++) {
        const double all = m[j][j];
        for (int k = 0; k < j; k++) m[j][j] -= m[j][k] * m[j][k];
        m[j][j] = m[j][j] > 1e-12 * all ? sqrt(m[j][j]) : 0;
        for (int i = j + 1; i < n; i++) {
            for (int k = 0; k < j; k++) m[i][j] -= m[i][k] * m[j][k];
            m[i][j] = m[j][j] > 0 ? m[i][j] / m[j][j] : 0;
        }
    }
}

// The mean of `free` outer products in place of the matrix with this factor (Bartlett).
static void wishart(draws *d, int n, double free, double root[MOST][MOST], double out[MOST][MOST]) {
    double luck[MOST][MOST], both[MOST][MOST] = {{0}};
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < i; j++) luck[i][j] = normal(d) / sqrt(free);
        luck[i][i] = sqrt(mean_of_squares(d, free - i) * fmax(free - i, 0) / free);
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; j <= i; j++)
            for (int k = j; k <= i; k++) both[i][j] += root[i][k] * luck[k][j];
    for (int i = 0; i < n; i++)
        for (int j = 0; j <= i; j++) {
            out[i][j] = 0;
            for (int k = 0; k <= j; k++) out[i][j] += both[i][k] * both[j][k];
        }
}

// ---- what rows have for themselves ----------------------------------------------------------------------------------------

// Mean square, and the mean correlations of a kernel: two tokens of an example, a position in two examples, other pairs.
typedef struct pairs {
    double q, r[3];
} pairs;

static pairs pairs_of(const snd_places *p, const double *k) {
    pairs out = {0};
    const int from[] = {snd_same(p), snd_other(p), snd_cross_same(p), snd_cross_other(p), p->size};
    for (int e = 0; e < from[1]; e++) out.q += p->weight[e] * k[e];
    for (int i = 0; i < 3 && out.q > 0; i++)
        for (int e = from[i + 1]; e < from[i + 2]; e++) out.r[i] += p->weight[e] * k[e] / out.q;
    return out;
}

// Means over all rows c: of r_ac^2, and of r_ac r_bc for a pair a, b of each kind.
static void shared(const snd_tokens *t, const snd_places *p, const pairs *x, const pairs *y, double *rows,
                   double of[3]) {
    const double own = 1 / t->batch, n = (double)p->tokens, far = x->r[2] * y->r[2];
    *rows = own / n * (1 + (n - 1) * x->r[0] * y->r[0]) + (1 - own) / n * (x->r[1] * y->r[1] + (n - 1) * far);
    of[0] = own * x->r[0] * y->r[0] + (1 - own) * far;
    of[1] = of[2] = own * (x->r[0] * y->r[2] + x->r[2] * y->r[0]) + (1 - 2 * own) * far;
}

static void add_rows(k_rows *to, const k_rows *from, double times) {
    to->loose += times * from->loose;
    for (int i = 0; i < 3; i++) {
        to->both[i] += times * from->both[i];
        to->tied[i] += times * from->tied[i];
        to->pair[i] += times * from->pair[i];
    }
}

// Fresh features whose products x y have this variance over q^2, half of it by either's part in a pair.
static void add_fresh(const snd_tokens *t, const snd_places *p, const pairs *x, const pairs *y, double var,
                      k_rows *to) {
    double rows, of[3];
    shared(t, p, x, y, &rows, of);
    to->loose += var * fmax(1 - rows, 0);
    for (int i = 0; i < 3; i++) {
        to->both[i] += var * (x->r[i] * y->r[i] - rows);
        to->tied[i] += var * ((x->r[i] + y->r[i]) / 2 - of[i]);
        to->pair[i] += var / 2 * fmax(1 + x->r[i] * y->r[i] - 2 * of[i], 0);
    }
}

static double within(double x, double most) {
    return fmin(fmax(x, -most), most);
}

double k_row_bias(const k_rows *r, int kind, double cosine) {
    const double apart =
        fmax(1 - cosine * cosine, 0); // equal rows stay equal; beyond small luck the series says too much
    return within(cosine * (3 * r->loose + r->both[kind]) / 4 - r->tied[kind], apart / 8);
}

// ---- values ---------------------------------------------------------------------------------------------------------------

// Fourth moments: E f^4/(E f^2)^2 - 1, and d log E f^2/d log var, of a function at the middle position.
static void func_law(const snd_tokens *t, snd_mid y, double *slope, double *fourth) {
    const k_node *v = NODE(y);
    const int at = v->alike ? 0 : t->stack[v->stack].n / 2;
    const double *f = v->tab + (v->alike ? 0 : at * SND_GAUSS_NODES);
    double two = 0, four = 0, with = 0;
    for (int i = 0; i < SND_GAUSS_NODES; i++) {
        const double z = t->rule->z[i], w = t->rule->w[i], q = f[i] * f[i];
        two += w * q;
        four += w * q * q;
        with += w * q * (z * z - 1); // E f^2 (z^2 - 1)/2 = d E f^2/d log var
    }
    *slope = two > 0 ? with / 2 / two : 0;
    *fourth = two > 0 ? four / (two * two) - 1 : 0;
}

static snd_mid plain(const snd_tokens *t, snd_mid x) {
    while (NODE(x)->same) x = NODE(x)->same;
    return x;
}
static bool from_map(const snd_tokens *t, snd_mid x) {
    return NODE(x)->op == K_BASE && NODE(x)->from == K_FROM_LINEAR;
}

// Of a factor or an argument: its own fourth moment, and what its rows bring from what its map read.
static double fourth_of(snd_tokens *t, snd_mid x, k_rows *rows) {
    x = plain(t, x);
    double slope = 1, fourth = 2;
    snd_mid behind = x;
    if (NODE(x)->op == K_FIXED || NODE(x)->dim < 2) return 0;
    if (NODE(x)->op == K_FUNC) {
        func_law(t, x, &slope, &fourth);
        behind = plain(t, NODE(x)->in[0]);
    }
    const bool map = from_map(t, behind);
    const k_rows r = k_rows_of(t, map ? NODE(behind)->in[0] : behind);
    add_rows(rows, &r, slope * slope);
    if (!map) fourth = fmax(fourth - 2 * slope * slope, 0); // the rest has come with it
    return fourth;
}

// K^ of n features. fourth: 2 for Gaussian ones.
static const double *drawn(snd_tokens *t, snd_mid y, const double *kernel, double features, double fourth) {
    const snd_places *p = k_places(t, y, y);
    double *out = k_numbers(t, (size_t)p->size);
    if (!out || !(features >= 2) || p->n > MOST) return kernel;
    const double *mean = NODE(y)->mean, more = t->batch - 1;
    double m2 = 0, q = 0;
    for (int j = 0; j < p->n; j++) m2 += p->weight[j] * mean[j] * mean[j], q += p->weight[j] * kernel[j];
    if (!(q > 0)) return kernel;
    const double var = fmax(q - m2, 1e-12 * q);
    // of the part around the mean: (E f^4 - q^2 - 4 m^2 var)/(2 var^2), with what skewness adds
    const double excess = fmax((fourth * q * q - 4 * m2 * var) / (2 * var * var), 0.05);
    parts k;
    take_apart(p, t->batch, kernel, mean, &k);
    for (int e = 0; e < p->size; e++) out[e] = kernel[e] - mean[p->row[e]] * mean[p->col[e]];
    const pairs x = pairs_of(p, out);
    const double classes = features / (1 + (excess - 1) * x.r[0] * x.r[0]), rows = features / excess;
    draws d = draws_of(t, y, 0, 0);
    factor(p->n, k.mean);
    factor(p->n, k.example);
    double shift[MOST] = {0};
    for (int j = 0; j < p->n && m2 > 0; j++) {
        const double z = normal(&d) / sqrt(features);
        for (int i = j; i < p->n; i++) shift[i] += k.mean[i][j] * z;
    }
    wishart(&d, p->n, classes, k.mean, k.mean);
    if (more > 0) wishart(&d, p->n, classes * more, k.example, k.example);
    for (int i = 0; i < p->n; i++) {
        if (p->count[i] < 2) continue;
        k.row_mean[i] *= mean_of_squares(&d, rows * (p->count[i] - 1));
        k.row_example[i] *= mean_of_squares(&d, rows * (p->count[i] - 1) * more);
    }
    for (int i = 0; i < p->n; i++)
        for (int j = 0; j <= i; j++) k.mean[i][j] += mean[i] * shift[j] + shift[i] * mean[j];
    add_fresh(t, p, &x, &x, 2 * excess / features * (var / q) * (var / q), &NODE(y)->rows);
    put_together(p, t->batch, &k, mean, out);
    return out;
}

// What two parts that know nothing of each other have in common by chance, added to the sum's kernel.
static void add_overlap(snd_tokens *t, snd_mid y, int i, int j, double c, const double *a, const double *b,
                        double features, double *out) {
    const snd_places *p = k_places(t, y, y);
    const int n = p->n;
    const double more = t->batch - 1;
    parts pa, pb, both = {.n = n};
    double luck[MOST][MOST];
    take_apart(p, t->batch, a, NULL, &pa);
    take_apart(p, t->batch, b, NULL, &pb);
    factor(n, pa.mean);
    factor(n, pa.example);
    factor(n, pb.mean);
    factor(n, pb.example);
    draws d = draws_of(t, y, i + 1, j);
    for (int example = 0; example < (more > 0 ? 2 : 1); example++) {
        double(*ra)[MOST] = example ? pa.example : pa.mean, (*rb)[MOST] = example ? pb.example : pb.mean;
        double(*to)[MOST] = example ? both.example : both.mean, half[MOST][MOST] = {{0}};
        const double sd = c / sqrt(features * (example ? more : 1));
        for (int k = 0; k < n; k++)
            for (int l = 0; l < n; l++) luck[k][l] = sd * normal(&d);
        for (int k = 0; k < n; k++) // ra luck rb'
            for (int l = 0; l < n; l++)
                for (int m = 0; m <= k; m++) half[k][l] += ra[k][m] * luck[m][l];
        for (int k = 0; k < n; k++)
            for (int l = 0; l <= k; l++)
                for (int m = 0; m < n; m++)
                    to[k][l] += (m <= l ? half[k][m] * rb[l][m] : 0) + (m <= k ? half[l][m] * rb[k][m] : 0);
    }
    for (int k = 0; k < n; k++) {
        if (p->count[k] < 2) continue;
        const double rows = features * (p->count[k] - 1);
        both.row_mean[k] = 2 * c * sqrt(fmax(pa.row_mean[k] * pb.row_mean[k], 0) / rows) * normal(&d);
        both.row_example[k] =
            more > 0 ? 2 * c * sqrt(fmax(pa.row_example[k] * pb.row_example[k], 0) / (rows * more)) * normal(&d) : 0;
    }
    double *add = k_numbers(t, (size_t)p->size);
    if (!add) return;
    put_together(p, t->batch, &both, NULL, add);
    for (int e = 0; e < p->size; e++) out[e] += add[e];
}

static double mean_square(const snd_places *p, k_view v) {
    double s = 0;
    for (int e = 0; e < snd_other(p); e++) s += p->weight[e] * k_at(v, e);
    return s;
}

static void overlap(snd_tokens *t, snd_mid y, int i, int j, double q, double *out) {
    const k_node v = *NODE(y);
    const snd_places *p = k_places(t, y, y);
    const k_view a = k_pair(t, v.in[i], v.in[i]), b = k_pair(t, v.in[j], v.in[j]);
    if (!a.k || !b.k || NODE(v.in[i])->dim < 2 || NODE(v.in[j])->dim < 2) return;
    const pairs pa = pairs_of(p, a.k), pb = pairs_of(p, b.k);
    const double ab = mean_square(p, k_pair(t, v.in[i], v.in[j])), n = (double)v.dim;
    const double apart = pa.q > 0 && pb.q > 0 ? 1 - ab * ab / (pa.q * pb.q) : 0;
    if (!(apart > 1e-6)) return;
    const double c = v.coef[i][0] * v.coef[j][0];
    add_overlap(t, y, i, j, c * sqrt(apart), a.k, b.k, n, out);
    add_fresh(t, p, &pa, &pb, 4 * c * c * pa.q * pb.q * apart / (q * q * n), &NODE(y)->rows);
}

static const double *of_sum(snd_tokens *t, snd_mid y, const double *kernel) {
    const k_node v = *NODE(y);
    const snd_places *p = k_places(t, y, y);
    double *out = k_numbers(t, (size_t)p->size), q = 0;
    for (int e = 0; e < snd_other(p); e++) q += p->weight[e] * kernel[e];
    if (!out || !(q > 0) || p->n > MOST) return kernel;
    for (int e = 0; e < p->size; e++) out[e] = kernel[e];
    const double everywhere = 1 / (t->batch * (double)p->tokens);
    double met = everywhere; // sum over rows of the square of a row's share
    for (int i = 0; i < v.n; i++) {
        const double share = v.coef[i][0] * v.coef[i][0] * mean_square(p, k_pair(t, v.in[i], v.in[i])) / q;
        const k_rows r = k_rows_of(t, v.in[i]);
        add_rows(&NODE(y)->rows, &r, share * share);
        met += share * share * (1 / k_carried(t, v.in[i]) - everywhere);
        for (int j = 0; j < i; j++) overlap(t, y, i, j, q, out);
    }
    NODE(y)->carried = 1 / met;
    return out;
}

// Variance of the cosine of two rows, once what their lengths do is left out.
static double angle_luck(const k_rows *r, int kind, double c) {
    const double apart = fmax(1 - c * c, 0),
                 luck = r->pair[kind] - 2 * c * r->tied[kind] + c * c * (r->loose + r->both[kind]) / 2;
    return fmin(fmax(luck, 0), apart * apart / 16);
}

static const double *of_norm(snd_tokens *t, snd_mid y, const double *kernel) {
    const snd_places *p = k_places(t, y, y);
    const k_rows r = k_rows_of(t, NODE(y)->in[0]);
    const int from[] = {snd_other(p), snd_cross_same(p), snd_cross_other(p), p->size};
    double *out = k_numbers(t, (size_t)p->size);
    if (!out) return kernel;
    const pairs x = pairs_of(p, kernel);
    for (int i = 0; i < 3; i++) NODE(y)->rows.pair[i] = angle_luck(&r, i, x.r[i]);
    for (int e = 0; e < from[0]; e++) out[e] = kernel[e];
    for (int i = 0; i < 3; i++)
        for (int e = from[i]; e < from[i + 1]; e++) {
            const double q = sqrt(kernel[p->row[e]] * kernel[p->col[e]]);
            out[e] = q > 0 ? kernel[e] + q * k_row_bias(&r, i, kernel[e] / q) : kernel[e];
        }
    return out;
}

const double *k_strayed(snd_tokens *t, snd_mid y, const double *kernel) {
    const k_node v = *NODE(y);
    k_rows rows = {0};
    double fourth = 1;
    if (!t->net.lucky || v.dim < 2) return kernel;
    if (v.op == K_MUL || v.from == K_FROM_LINEAR)
        NODE(y)->carried = v.n == 2 ? fmin(k_carried(t, v.in[0]), k_carried(t, v.in[1])) : k_carried(t, v.in[0]);
    switch ((k_op)v.op) {
    case K_BASE:
        if (v.from == K_FROM_WAVES) return kernel;
        if (v.from == K_FROM_LINEAR) rows = k_rows_of(t, v.in[0]);
        NODE(y)->rows = rows;
        return drawn(t, y, kernel, v.features > 0 ? v.features : (double)v.dim, 2);
    case K_SUM: return v.norm ? of_norm(t, y, kernel) : of_sum(t, y, kernel);
    case K_FUNC: fourth += fourth_of(t, y, &rows); break;
    case K_MUL:
        for (int i = 0; i < 2; i++) fourth *= 1 + fourth_of(t, v.in[i], &rows);
        break;
    case K_CENTRE:
    case K_FIXED:
    case K_NONE: return kernel;
    }
    NODE(y)->wide = kernel;
    NODE(y)->rows = rows;
    return fourth - 1 > 1e-3 ? drawn(t, y, kernel, (double)v.dim, fourth - 1) : kernel;
}

k_rows k_rows_of(snd_tokens *t, snd_mid x) {
    x = plain(t, x);
    (void)k_pair(t, x, x);
    return NODE(x)->rows;
}

void k_pair_luck(snd_tokens *t, snd_mid x, double out[3]) {
    x = plain(t, x);
    if (from_map(t, x)) x = plain(t, NODE(x)->in[0]);
    for (int i = 0; i < 3; i++) out[i] = 0;
    if (!t->is_net || !t->net.lucky || NODE(x)->stack < 0) return;
    const k_rows r = k_rows_of(t, x);
    const k_view v = k_pair(t, x, x);
    if (!v.k) return;
    const pairs c = pairs_of(k_places(t, x, x), v.k);
    for (int i = 0; i < 3; i++) out[i] = angle_luck(&r, i, c.r[i]);
}

// ---- gradients ------------------------------------------------------------------------------------------------------------

// Does every part of g come out of a map, so that it is white?
static bool white(const snd_tokens *t, snd_mid g) {
    const k_node *v = NODE(plain(t, g));
    if (v->op != K_SUM || v->projected) return v->op == K_BASE;
    for (int i = 0; i < v->n; i++)
        if (!white(t, v->in[i])) return false;
    return v->n > 0;
}

// A norm takes what lies along its output y, and along the vector of ones: two of n directions, of a white gradient. One
// that has come past the branch F of y = x + F(x) had its share along y taken by the norm above, and what is left, g,
// knows F: with W the last map of F and h what it reads, g.x = -g.F = -g'W h pulls g'W along h, so that
//   E g.J'g = -(g.x)^2/|x|^2 = -|g|^2/n |F|^2/|y|^2,      J: the branch's Jacobian, homogeneous as relu's is
// and the energy of g + J'g is less by 2 s (1 - s)/n of it, s the branch's share of y.
double k_left_by_norm(snd_tokens *t, snd_mid norm, snd_mid g) {
    const snd_mid y = plain(t, NODE(norm)->in[0]);
    const double n = (double)NODE(norm)->dim, ones = NODE(norm)->centred;
    if (n < 2) return 1;
    if (white(t, g)) return 1 - (1 + ones) / n;
    if (NODE(y)->op != K_SUM || NODE(y)->norm) return 1;
    const snd_places *p = k_places(t, y, y);
    double all = 0, squares = 0;
    for (int i = 0; i < NODE(y)->n; i++) {
        const snd_mid x = NODE(y)->in[i];
        const double c = NODE(y)->coef[i][0], q = c * c * mean_square(p, k_pair(t, x, x));
        all += q;
        squares += q * q;
    }
    return all > 0 ? 1 - (1 + ones / 2) * (1 - squares / (all * all)) / n : 1;
}

// A score's gradient is that of a tie, sech^4(gap/2), when scores are large; gaps of many rows to the runner-up are a
// Poisson process of this rate. What is returned has mean 1, but for a small rate hardly ever a value near it. After a tie
// of one row the gradient is that row's, and the next attention further down must find a tie there.
double k_tie_luck(const snd_tokens *t, snd_mid attend, int which, double rate, double *rows) {
    draws d = draws_of(t, attend, 60, which);
    *rows = rate;
    if (!(rate > 1e-9)) return 0;
    if (rate > 30) return fmax(1 + sqrt(18.0 / 35 / rate) * normal(&d), 0.1);
    double gap = 0, sum = 0, squares = 0;
    while (gap < 60) {
        gap -= log(0.5 * erfc(normal(&d) / sqrt(2))) / rate;
        const double energy = pow(cosh(fmin(gap, 60) / 2), -4);
        sum += energy;
        squares += energy * energy;
    }
    *rows = sum * sum / squares;
    return sum / (4.0 / 3 * rate);
}

double k_carried(snd_tokens *t, snd_mid g) {
    g = plain(t, g);
    (void)k_pair(t, g, g);
    const double all = t->batch * (double)k_places(t, g, g)->tokens;
    return NODE(g)->carried > 0 ? fmin(NODE(g)->carried, all) : all;
}

double k_head_luck(const snd_tokens *t, snd_mid attend, int which) {
    draws d = draws_of(t, attend, 61, which);
    return normal(&d);
}
