// Attention at init: o_t = sum_s A_ts v_s with A = softmax of random scores, and its gradients.
//
// Given what the sublayer reads, the scores of one head are Gaussian over the draw of its q and k maps, with
//   cov(S_ts, S_uj) = scale^2 head_dim (q_t.q_u)(k_s.k_j) =: C        (kernels per feature; rope multiplies by the mean
//   cosine of the rotation by (t-s)-(u-j); xl adds its position keys; t5 biases are shared by a bucket),
// and what is needed of the softmax is E A_ts A_uj. If the normalisers Z_t, Z_u were numbers it would be proportional to
// exp(var_ts/2 + var_uj/2 + C): exact for few and for many keys when the scores are small. Large scores make Z random;
// then the exponent is shrunk, by the factor that gives n exchangeable keys of the same spread their E sum A^2, which
// softmax.c has without approximation.
//
// Backward, with h_ts = v_s.g_t:   g_v,s = sum_t A_ts g_t
//   dS_ts = A_ts (h_ts - sum_j A_tj h_tj),   g_q,t = scale sum_s dS_ts k_s,   g_k,s = scale sum_t dS_ts q_t
#include "theory/softmax.h"
#include "theory/tokens_tape.h"

#include <math.h>
#include <string.h>

#define NODE(i) (&t->node[i])
static const double MOST_LOG = 60, MOST_SLOPE = 4;
enum { P = SND_PLACES, MOST_TURNS = 20, NODES = 15, BENDS = 24 };

typedef enum kind { SAME, OTHER, CROSS_SAME, CROSS_OTHER } kind; // of two queries (keys)

typedef struct head { // scores of the heads that share a slope
    const snd_attend *how;
    const snd_places *q, *k;
    const snd_sight *sight;
    int slope;
    k_view qq, kk, vv;
    int lo[P], hi[P];            // classes of keys that a query sees: lo .. hi - 1
    double rows;                 // of all heads in a batch
    double gain;                 // scale^2 head_dim, less what the softcap takes
    double cap_slope;            // E of the squared derivative of the softcap
    double mean[P][P];           // E of a query's weights, summed over the keys of a class
    double keys[P], sd[P];       // per query: how many it sees; spread of its scores among them
    double most_sd;              // of a key's score, any query
    double shrink[P], spread[P]; // of the exponent; of the energy of dS
    // of a net of finite width (tokens_spread.c), else 0:
    double alike[3]; // how far products of two keys and of their values stray together
    double tie[P];   // what the few rows near a tie make of the gradient through the scores
    double same;     // luck of few heads in how often two queries meet in a key
    double off[P];   // how far the laws are off, if they are: not for small scores, where they are exact
    double heads;
    snd_soft_table *table;
    double entropy, choosing; // sum over queries that see several keys; their share
} head;

static int entry(const snd_places *p, kind k, int i, int j) {
    switch (k) {
    case SAME: return snd_same(p) + i;
    case OTHER: return snd_other(p) + i * p->n + j;
    case CROSS_SAME: return snd_cross_same(p) + i;
    case CROSS_OTHER: return snd_cross_other(p) + i * p->n + j;
    }
    return 0;
}

static double seen(const head *h, int t, int i) {
    return h->sight->mass[(h->slope * h->q->n + t) * h->k->n + i];
}
static double seen_by_both(const head *h, int t, int u, int i) {
    return h->sight->both[((h->slope * h->q->n + t) * h->q->n + u) * h->k->n + i];
}

static int steps_apart(const head *h, int t, int u, int i, int j) {
    return (int)fabs(rint(h->q->at[t] - h->k->at[i] - h->q->at[u] + h->k->at[j]));
}

// What the queries' kernel is multiplied by in a score: that of the keys, k, and of the positions.
static double key_part(const head *h, double k, int t, int u, int i, int j) {
    const snd_attend *a = h->how;
    const int steps = a->turn || a->relative ? steps_apart(h, t, u, i, j) : 0;
    return k * (a->turn ? a->turn[steps] : 1) + (a->relative ? a->relative[steps] : 0);
}

// cov(S_ti, S_uj)/gain, q: kernel of the two queries, k: of the two keys
static double score_cov(const head *h, double q, double k, int t, int u, int i, int j) {
    const snd_attend *a = h->how;
    double c = q * key_part(h, k, t, u, i, j);
    if (a->bucket && a->bucket[t * h->k->n + i] == a->bucket[u * h->k->n + j]) c += a->bias_var / h->gain;
    return c;
}

static double key_kernel(const head *h, kind k, int i, int j) {
    return k_at(h->kk, entry(h->k, k, i, j));
}

// E A_ti A_uj summed over the keys of class i and j: `off` for different keys, `same` for one key.
typedef struct weights {
    double off[P][P], same[P];
} weights;

static bool crossing(kind k) {
    return k == CROSS_SAME || k == CROSS_OTHER;
}

// Exponents of two queries' weights as a function of the distance v of two keys: v shrunk, linear up to scores of
// moderate spread, where one factor does for all, and a curve beyond.
typedef struct curve {
    double factor; // of small v
    bool bent;
    double from, step, at[BENDS]; // at[i]: factor at v = exp(from + i step)
} curve;

static curve curve_of(const head *h, int t, int u, double r) {
    const double n = sqrt(h->keys[t] * h->keys[u]), sd = sqrt(h->sd[t] * h->sd[u]);
    curve c = {.factor = sqrt(h->shrink[t] * h->shrink[u])};
    if (!(sd > 0)) return c;
    r = fabs(r);
    c.factor = snd_softmax_common(h->table, n, sd, r);
    c.bent = sd > 1.5 && r > 1e-6;
    if (!c.bent) return c;
    c.from = -3;
    c.step = (2 * log(h->most_sd) + 1 - c.from) / (BENDS - 1);
    for (int i = 0; i < BENDS; i++) c.at[i] = snd_softmax_common(h->table, n, exp((c.from + c.step * i) / 2), r);
    return c;
}

// r: of the queries; distance of the keys in units of r v.
static double bend(const curve *c, double distance, double r) {
    if (!c->bent || !(distance > 0)) return distance * c->factor;
    const double x = fmin(fmax((log(distance / fabs(r)) - c->from) / c->step, 0), BENDS - 1.000001);
    const int i = (int)x;
    return distance * (c->at[i] + (x - i) * (c->at[i + 1] - c->at[i]));
}

// Weights that differ by more are scaled to their means all the same, and must not be 0 for that.
static double bounded_exp(double x) {
    return exp(fmin(fmax(x, -MOST_LOG), MOST_LOG));
}

// Scales rows and columns until the weights' means are those of the two queries.
static void match_means(const head *h, int t, int u, weights *w) {
    for (int turn = 0; turn < MOST_TURNS; turn++) {
        double row[P], col[P] = {0}, off = 0;
        for (int i = h->lo[t]; i < h->hi[t]; i++) {
            row[i] = w->same[i];
            for (int j = h->lo[u]; j < h->hi[u]; j++) row[i] += w->off[i][j];
            row[i] = row[i] > 0 ? h->mean[t][i] / row[i] : 0;
            w->same[i] *= row[i];
            col[i] += w->same[i];
            for (int j = h->lo[u]; j < h->hi[u]; j++) col[j] += w->off[i][j] *= row[i];
        }
        for (int j = h->lo[u]; j < h->hi[u]; j++) {
            off = fmax(off, fabs(col[j] - h->mean[u][j]));
            col[j] = col[j] > 0 ? h->mean[u][j] / col[j] : 0;
            w->same[j] *= col[j];
        }
        for (int i = h->lo[t]; i < h->hi[t]; i++)
            for (int j = h->lo[u]; j < h->hi[u]; j++) w->off[i][j] *= col[j];
        if (off < 1e-5) return;
    }
}

static void fill_weights(const head *h, kind two, int t, int u, weights *w) {
    const int n = h->k->n;
    const double q = k_at(h->qq, entry(h->q, two, t, u)), r = q / sqrt(k_at(h->qq, t) * k_at(h->qq, u));
    const kind off = crossing(two) ? CROSS_OTHER : OTHER, same = crossing(two) ? CROSS_SAME : SAME;
    const curve c = curve_of(h, t, u, r);
    double own[P], least = INFINITY;
    for (int i = 0; i < n; i++) w->same[i] = 0;
    for (int i = 0; i < n; i++) own[i] = score_cov(h, q, key_kernel(h, SAME, i, i), t, u, i, i);
    for (int i = h->lo[t]; i < h->hi[t]; i++) {
        const double near = own[i] - score_cov(h, q, key_kernel(h, same, i, i), t, u, i, i);
        w->same[i] = bend(&c, h->gain * near, r);
        if (seen_by_both(h, t, u, i) > 0) least = fmin(least, w->same[i]);
        for (int j = h->lo[u]; j < h->hi[u]; j++) {
            const double far = (own[i] + own[j]) / 2 - score_cov(h, q, key_kernel(h, off, i, j), t, u, i, j);
            w->off[i][j] = bend(&c, h->gain * far, r);
            least = fmin(least, w->off[i][j]);
        }
    }
    for (int i = h->lo[t]; i < h->hi[t]; i++) {
        const double both = seen_by_both(h, t, u, i), per_key = h->mean[t][i] / seen(h, t, i);
        w->same[i] = both > 0 ? both * per_key * bounded_exp(least - w->same[i]) * h->mean[u][i] / seen(h, u, i) : 0;
        for (int j = h->lo[u]; j < h->hi[u]; j++) {
            const double pairs = seen(h, t, i) * seen(h, u, j) - (i == j ? both : 0);
            w->off[i][j] =
                pairs > 0 ? pairs * per_key * bounded_exp(least - w->off[i][j]) * h->mean[u][j] / seen(h, u, j) : 0;
        }
    }
    match_means(h, t, u, w);
}

// ---- the law of one query's scores ----------------------------------------------------------------------------------------

// Variance of the score of one key of each class around the mean of the query's scores (weighted as ALiBi does): var[],
// and its mean over the keys. Their effective number goes to h->keys.
static double score_spread(head *h, int t, double var[P]) {
    const int n = h->k->n;
    double mass = 0, both = 0, all = 0, scale = 0, row[P], s = 0;
    const double q = k_at(h->qq, t);
    for (int i = 0; i < n; i++) mass += seen(h, t, i), both += seen_by_both(h, t, t, i);
    for (int i = 0; i < n; i++) {
        if (seen(h, t, i) == 0) continue;
        const double own = score_cov(h, q, key_kernel(h, SAME, i, i), t, t, i, i);
        const double twin = seen_by_both(h, t, t, i) / seen(h, t, i); // of a key's own weight in its class
        row[i] = twin * own;
        for (int j = 0; j < n; j++) {
            const double others = seen(h, t, j) - (i == j ? twin : 0);
            if (others > 0) row[i] += others * score_cov(h, q, key_kernel(h, OTHER, i, j), t, t, i, j);
        }
        row[i] /= mass;
        all += seen(h, t, i) * row[i] / mass;
        var[i] = own;
        scale = fmax(scale, own);
    }
    h->keys[t] = mass * mass / both;
    const double free = 1 - 1 / h->keys[t];
    for (int i = 0; i < n; i++) {
        if (seen(h, t, i) == 0) continue;
        var[i] += all - 2 * row[i];
        var[i] = free > 1e-9 && var[i] > 1e-14 * scale ? h->gain * var[i] / free : 0;
        s += seen(h, t, i) * var[i] / mass;
    }
    return s;
}

// E 1/(1 + e^(l - s)), s ~ N(0, var)
static double mean_share(double l, double var) {
    const double sd = sqrt(var);
    double s = 0, all = 0;
    for (int i = 0; i < NODES; i++) {
        const double z = 4.2 * (2.0 * i / (NODES - 1) - 1), w = exp(-0.5 * z * z);
        s += w / (1 + exp(l - sd * z));
        all += w;
    }
    return s / all > 1e-30 ? s / all : 1e-30;
}

// The mean weights of one query: each key against the rest, whose sum is taken as a number. Keys that all stray alike
// get equal means; one that strays more, as long or unusual keys do, gets more.
static void mean_weights(head *h, int t, const double var[P]) {
    const int n = h->k->n;
    double *a = h->mean[t], per_key[P];
    bool alike = true;
    for (int i = 0; i < n; i++) {
        a[i] = seen(h, t, i);
        per_key[i] = bounded_exp(0.5 * h->shrink[t] * (var[i] - h->sd[t] * h->sd[t]));
        alike &= a[i] == 0 || fabs(var[i] - h->sd[t] * h->sd[t]) < 1e-3 * (1 + var[i]);
    }
    for (int turn = 0; turn < MOST_TURNS && !alike; turn++) {
        double z = 0, moved = 0;
        for (int i = 0; i < n; i++)
            if (seen(h, t, i) > 0) z += seen(h, t, i) * per_key[i];
        for (int i = 0; i < n; i++) {
            if (seen(h, t, i) == 0) continue;
            const double share = seen_by_both(h, t, t, i) / seen(h, t, i); // ALiBi: the typical weight of a key seen
            const double rest = z - share * per_key[i];
            if (!(rest > 0)) continue;
            const double p = fmin(mean_share(log(rest / share), var[i]), 1 - 1e-9), next = rest / share * p / (1 - p);
            moved = fmax(moved, fabs(next / per_key[i] - 1));
            per_key[i] = sqrt(next * per_key[i]);
        }
        if (moved < 1e-3) break;
    }
    double z = 0;
    for (int i = 0; i < n; i++)
        if (a[i] > 0) z += a[i] *= alike ? 1 : per_key[i];
    for (int i = 0; i < n; i++) a[i] /= z;
}

static void query_law(head *h, int t) {
    double var[P] = {0};
    h->sd[t] = sqrt(score_spread(h, t, var));
    h->tie[t] = 1;
    for (int i = 0; i < h->k->n; i++) h->most_sd = fmax(h->most_sd, sqrt(var[i]));
    h->shrink[t] = h->spread[t] = 1;
    if (h->keys[t] > 1 + 1e-9) {
        const snd_soft_factors f = snd_softmax_factors(h->table, h->keys[t], h->sd[t]);
        h->shrink[t] = f.exponent;
        h->spread[t] = f.spread;
        h->entropy += h->q->weight[t] * f.entropy;
        h->choosing += h->q->weight[t];
    } else {
        h->sd[t] = 0;
    }
    mean_weights(h, t, var);
}

// softcap c tanh(s/c): the variance that is left, and the mean squared slope.
static void soft_cap(const snd_tokens *t, head *h) {
    const snd_attend *a = h->how;
    h->cap_slope = 1;
    if (!(a->softcap > 0)) return;
    double var = 0;
    for (int i = 0; i < h->q->n; i++)
        for (int j = 0; j < h->k->n; j++)
            var +=
                h->q->weight[i] * h->k->weight[j] * score_cov(h, k_at(h->qq, i), key_kernel(h, SAME, j, j), i, i, j, j);
    const double sd = sqrt(h->gain * var) / a->softcap;
    if (!(sd > 1e-9)) return;
    double left = 0, slope = 0;
    for (int i = 0; i < SND_GAUSS_NODES; i++) {
        const double y = tanh(sd * t->rule->z[i]);
        left += t->rule->w[i] * y * y;
        slope += t->rule->w[i] * (1 - y * y) * (1 - y * y);
    }
    h->gain *= left / (sd * sd);
    h->cap_slope = slope / (left / (sd * sd)); // gradients are made of the capped gain
}

// Beyond some spread of scores a second key counts so rarely that no row of a batch shows it, though the mean over all nets
// does. Rows are apart when their queries are, by more than a unit of score. carried: rows that have a gradient; returns how
// many have one behind the scores.
static double rare_ties(const snd_tokens *t, snd_mid y, double carried, head *h) {
    double all = 0, squares = 0;
    for (int i = 0; i < h->q->n; i++) {
        const double n = h->keys[i], sd = h->sd[i], count = h->q->count[i];
        h->tie[i] = h->off[i] * exp(-pow(sd / h->rows, 2));
        if (!t->net.lucky || !(sd > 0)) continue;
        const double e = exp(h->shrink[i] * sd * sd), square = 1 / (1 + (n - 1) / e), q = k_at(h->qq, i);
        const double apart = fmin(sd * sqrt(fmax(1 - k_at(h->qq, entry(h->q, OTHER, i, i)) / q, 0)), 1);
        const double free = t->batch * (1 + (count - 1) * apart),
                     rows = fmin(free, carried * count / (double)h->q->tokens);
        double few;
        // each of many keys that share a row's weight counts for itself
        h->tie[i] = k_tie_luck(t, y, h->slope * P + i, 3 * h->spread[i] * (1 - 1 / n) * rows * h->heads / square, &few);
        const double energy = count * h->tie[i];
        all += energy;
        squares += few > 0 ? energy * energy / few * free / (t->batch * count) : 0;
    }
    return squares > 0 ? fmax(all * all / squares, 1) : 0;
}

static void open_head(snd_tokens *t, snd_mid y, int slope, head *h) {
    const k_node *v = NODE(y);
    *h = (head){.how = v->how, .q = v->how->sight->q, .k = v->how->sight->k, .sight = v->how->sight, .slope = slope};
    h->qq = k_pair(t, v->in[0], v->in[0]);
    h->kk = k_pair(t, v->in[1], v->in[1]);
    h->vv = k_wide_pair(t, v->in[2], v->in[2]);
    h->heads = (double)v->dim / v->how->head_dim / h->sight->n_slopes;
    k_pair_luck(t, v->in[2], h->alike);
    if (t->net.lucky) h->same = k_head_luck(t, y, slope) / sqrt(t->batch * h->heads);
    h->rows = t->batch * (double)h->q->tokens * (double)v->dim / v->how->head_dim;
    h->table = t->soft;
    h->table->head_dim = v->how->head_dim; // one for all layers
    h->gain = v->how->scale * v->how->scale * v->how->head_dim;
    soft_cap(t, h);
    for (int i = 0; i < h->q->n; i++) {
        h->hi[i] = h->k->n;
        while (seen(h, i, h->lo[i]) == 0) h->lo[i]++;
        while (seen(h, i, h->hi[i] - 1) == 0) h->hi[i]--;
        query_law(h, i);
        h->off[i] = exp(t->net.attends * h->sd[i] * h->sd[i] / (1 + h->sd[i] * h->sd[i]));
    }
}

// ---- forward ----------------------------------------------------------------------------------------------------------------

// How often two queries of a net meet in a key, over what is expected. The variance of sum A A' over draws of the scores
// that both see: 7/2 (n s - 1)^2/n while they are small, (1 - s)/2 of s^2 when one key has all (simulated: 8 and 64 keys).
static double met(const head *h, kind two, int t, int u, const weights *w) {
    const double law = sqrt(h->off[t] * h->off[u]);
    if (h->same == 0 && law == 1) return 1;
    double s = 0;
    for (int i = h->lo[t]; i < h->hi[t]; i++) s += w->same[i];
    const double most_met = 1 / fmax(s, 1e-9);
    if (two != OTHER || h->same == 0) return fmin(law, most_met);
    const double n = sqrt(h->keys[t] * h->keys[u]), small = 3.5 * pow(fmax(n * s - 1, 0), 2) / n, most = (1 - s) / 2;
    const double var = small > 0 && most > 0 ? 1 / (1 / small + 1 / most) : 0;
    return fmin(fmax(1 + h->same * sqrt(var), 0), most_met);
}

static double average(const head *h, kind two, int t, int u, const weights *w) {
    const bool cross = crossing(two);
    const double q = h->gain * sqrt(h->shrink[t] * h->shrink[u]) * k_at(h->qq, entry(h->q, two, t, u));
    const double alike = h->alike[cross ? 2 : 0], more = met(h, two, t, u, w);
    double same = 0, off = 0, all = 0, once = 0;
    for (int i = h->lo[t]; i < h->hi[t]; i++) {
        if (w->same[i] != 0) same += w->same[i] * k_at(h->vv, entry(h->k, cross ? CROSS_SAME : SAME, i, i));
        once += w->same[i];
        for (int j = h->lo[u]; j < h->hi[u]; j++) {
            off += w->off[i][j] * k_at(h->vv, entry(h->k, cross ? CROSS_OTHER : OTHER, i, j));
            all += w->off[i][j];
            if (alike == 0) continue;
            const double slope = q * key_part(h, key_kernel(h, SAME, i, i), t, u, i, j);
            // to first order, which is all there is of it: with large scores keys are chosen for what else they are
            off += w->off[i][j] * k_at(h->vv, j) * alike * slope * exp(-pow(slope / MOST_SLOPE, 2));
        }
    }
    if (more == 1) return same + off;
    return more * same + (all > 0 ? fmax(1 - (more - 1) * once / all, 0) * off : 0); // weights add up to 1 all the same
}

static void add_heads(const head *h, double share, double *own) {
    weights w;
    for (int t = 0; t < h->q->n; t++)
        for (int u = 0; u <= t; u++)
            for (int k = SAME; k <= CROSS_OTHER; k++) {
                if ((k == SAME || k == CROSS_SAME) && u != t) continue;
                fill_weights(h, (kind)k, t, u, &w);
                const double v = share * average(h, (kind)k, t, u, &w);
                own[entry(h->q, (kind)k, t, u)] += v;
                if (u != t) own[entry(h->q, (kind)k, u, t)] += v;
            }
}

snd_mid snd_tk_attend(snd_tokens *t, const snd_attend *how, snd_mid q, snd_mid k, snd_mid v) {
    const snd_mid y = k_new(t, K_BASE, NODE(q)->stack, 0);
    if (t->failed) return 0;
    k_operands(t, y, 3, (snd_mid[]){q, k, v});
    NODE(y)->stack = NODE(q)->stack;
    NODE(y)->dim = NODE(q)->dim;
    NODE(y)->from = K_FROM_ATTEND;
    NODE(y)->how = how;
    NODE(y)->gauss = true;
    double *own = k_numbers(t, (size_t)how->sight->q->size);
    for (int s = 0; s < how->sight->n_slopes && !t->failed; s++) {
        head h;
        open_head(t, y, s, &h);
        add_heads(&h, 1.0 / how->sight->n_slopes, own);
        NODE(y)->entropy += (h.choosing > 0 ? h.entropy / h.choosing : 1) / how->sight->n_slopes;
    }
    NODE(y)->own = own;
    NODE(y)->features = (double)NODE(v)->dim; // heads that share values share their luck
    return y;
}

// ---- backward ---------------------------------------------------------------------------------------------------------------

typedef struct centred { // the kernel of v less its means over what the two queries attend to
    double off[P][P], same[P];
} centred;

static void centre(const head *h, int t, int u, const weights *w, centred *c) {
    const int n = h->k->n;
    double a[P] = {0}, b[P] = {0}, row[P], col[P], share[P], all = 0, left = 0, mass = 0;
    for (int i = 0; i < n; i++) a[i] = b[i] = w->same[i];
    for (int i = h->lo[t]; i < h->hi[t]; i++)
        for (int j = h->lo[u]; j < h->hi[u]; j++) a[i] += w->off[i][j], b[j] += w->off[i][j];
    for (int i = 0; i < n; i++) {
        const double own = k_at(h->vv, i) - k_at(h->vv, entry(h->k, OTHER, i, i)),
                     pairs = seen(h, t, i) * seen(h, u, i);
        share[i] = pairs > 0 ? seen_by_both(h, t, u, i) / pairs : 0; // of one key in its class
        row[i] = b[i] * share[i] * own;
        col[i] = a[i] * share[i] * own;
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            const double v = k_at(h->vv, entry(h->k, OTHER, i, j));
            row[i] += b[j] * v;
            col[i] += a[j] * v;
        }
    for (int i = 0; i < n; i++) all += a[i] * row[i];
    // The means are those of the weights at hand, not of their averages: a query's dS add up to 0 whatever they are. So
    // does this, by what is taken off the pairs of different keys.
    for (int i = h->lo[t]; i < h->hi[t]; i++) {
        c->same[i] = k_at(h->vv, i) - row[i] - col[i] + all;
        left += w->same[i] * c->same[i];
        for (int j = h->lo[u]; j < h->hi[u]; j++) {
            c->off[i][j] = k_at(h->vv, entry(h->k, OTHER, i, j)) - row[i] - col[j] + all;
            left += w->off[i][j] * c->off[i][j];
            mass += w->off[i][j];
        }
    }
    for (int i = h->lo[t]; i < h->hi[t] && mass > 0; i++)
        for (int j = h->lo[u]; j < h->hi[u]; j++) c->off[i][j] -= left / mass;
}

typedef struct backwards {
    double *q, *k, *v; // kernels of the three gradients
} backwards;

// What queries t and u (u seen from t, then t from u) send to the keys, and what they get themselves.
static void add_pair(const head *h, kind two, int t, int u, double g, double pairs, double share, backwards *b) {
    weights w;
    centred c;
    if (g == 0 || pairs == 0) return;
    fill_weights(h, two, t, u, &w);
    centre(h, t, u, &w, &c);
    const double qq = k_at(h->qq, entry(h->q, two, t, u));
    const double spread = h->spread[t] * h->tie[t] * h->spread[u] * h->tie[u];
    const double score = g * h->gain * h->cap_slope * sqrt(fmax(spread, 0));
    double to_query = 0;
    for (int i = h->lo[t]; i < h->hi[t]; i++) {
        const int at = entry(h->k, SAME, i, i);
        const double d = w.same[i] * c.same[i];
        to_query += d * key_part(h, key_kernel(h, SAME, i, i), t, u, i, i);
        b->v[at] += share * pairs * w.same[i] * g;
        b->k[at] += share * pairs * d * score * qq;
        for (int j = h->lo[u]; j < h->hi[u]; j++) {
            const int ij = entry(h->k, OTHER, i, j), ji = entry(h->k, OTHER, j, i);
            const double e = w.off[i][j] * c.off[i][j];
            const double turn = h->how->turn ? h->how->turn[steps_apart(h, t, u, i, j)] : 1;
            to_query += e * key_part(h, key_kernel(h, OTHER, i, j), t, u, i, j);
            const double v = share * pairs * w.off[i][j] * g / 2, k = share * pairs * e * score * qq * turn / 2;
            b->v[ij] += v, b->v[ji] += v;
            b->k[ij] += k, b->k[ji] += k;
        }
    }
    b->q[entry(h->q, two, t, u)] += share * score * to_query;
    if (two == OTHER && u != t) b->q[entry(h->q, two, u, t)] += share * score * to_query;
}

static void add_heads_back(const head *h, k_view g, double share, backwards *b) {
    for (int t = 0; t < h->q->n; t++) {
        const double n = h->q->count[t];
        add_pair(h, SAME, t, t, k_at(g, t), n, share, b);
        for (int u = 0; u <= t; u++) {
            const double pairs = u == t ? n * (n - 1) : 2 * n * h->q->count[u];
            add_pair(h, OTHER, t, u, k_at(g, entry(h->q, OTHER, t, u)), pairs, share, b);
        }
    }
}

// From sums over a class's keys to one key; a key head hears all its query heads.
static void per_key(const snd_places *p, double group, double *k) {
    for (int i = 0; i < p->n; i++) {
        k[entry(p, SAME, i, i)] *= group / p->count[i];
        for (int j = 0; j < p->n; j++) {
            const double pairs = p->count[i] * (p->count[j] - (i == j));
            k[entry(p, OTHER, i, j)] *= pairs > 0 ? group / pairs : 0;
        }
    }
}

static snd_mid result(snd_tokens *t, snd_mid of, double *own) {
    const snd_mid y = k_new(t, K_BASE, NODE(of)->stack, NODE(of)->dim);
    if (t->failed) return 0;
    NODE(y)->own = own;
    NODE(y)->gauss = true;
    return y;
}

void k_attend_back(snd_tokens *t, snd_mid y, snd_mid g, snd_mid out[3]) {
    const k_node v = *NODE(y);
    const snd_sight *s = v.how->sight;
    backwards b = {k_numbers(t, (size_t)s->q->size), k_numbers(t, (size_t)s->k->size),
                   k_numbers(t, (size_t)s->k->size)};
    const k_view gg = k_wide_pair(t, g, g);
    double rows = 0;
    for (int i = 0; i < s->n_slopes && !t->failed; i++) {
        head h;
        open_head(t, y, i, &h);
        rows += rare_ties(t, y, t->net.lucky ? k_carried(t, g) : 0, &h);
        add_heads_back(&h, gg, 1.0 / s->n_slopes, &b);
    }
    if (t->failed) return;
    per_key(s->k, v.how->group, b.k);
    per_key(s->k, v.how->group, b.v);
    out[0] = result(t, v.in[0], b.q);
    out[1] = result(t, v.in[1], b.k);
    out[2] = result(t, v.in[2], b.v);
    if (t->failed || !t->net.lucky) return;
    NODE(out[0])->carried = rows;
    NODE(out[1])->carried = 2 * rows;
    NODE(out[2])->carried = 2 * k_carried(t, g);
}
