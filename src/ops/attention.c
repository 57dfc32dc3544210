// Attention, its backward, and statistics of its weights (ops.h has the formulas; kernels/attention.inc the loops).
//   attention        in: q, k, v, table, qr, r, positions, lengths. out: out, lse [B, heads, Tq] f64, of the true scores;
//                    where they were fused, the statistics
//   attention_bwd    in: dy, q, k, v, table, qr, r, out, lse, lengths.  out: the wanted ones of dq, dk, dv, dtable, dqr, dr
//   attention_stats  in: q, k, v, table, qr, r, the attention's out or 0 (it is not read), lengths.  out: [SND_AS_COUNT] f64
//   i = heads, kv_heads, causal, window, past, bias, max_distance, wanted (backward);  f = scale, softcap, dropout, site
// Position biases depend on the distance from query to key alone: the kernels read them from a table by distance.
// Exponents: operands far from one are read times a power of two; then scores are q'.k' scale 2^(eq + ek) in true value,
// out has the exponent of v, and with ds in units of 2^(edy + ev) the gradients follow. Scores beyond the type are taken
// smaller, all by one factor: the softmax is one-hot long before.
#include "ops/ops_impl.h"

#include <math.h>
#include <string.h>

enum { I_HEADS, I_KV_HEADS, I_CAUSAL, I_WINDOW, I_PAST, I_BIAS, I_MAX_DISTANCE, I_WANTED };
enum { F_SCALE, F_SOFTCAP, F_DROP, F_SITE };
enum { Q, K, V, TABLE, QR, R, OPERANDS }; // inputs; backward has dy in front, out and lse behind
enum { POSITIONS = OPERANDS, LENGTHS };   // forward alone, where there are any
enum { BACK_LENGTHS = OPERANDS + 3, BACK_INPUTS };
enum { STATS = 2 }; // output of the fused forward op

// Where the first query stands.
static int64_t past_of(const snd_oprun *r) {
    const bool given = r->n->op == SND_OP_ATTENTION && r->n->in[POSITIONS];
    return given ? *(const int64_t *)snd_in(r, POSITIONS)->p : r->n->attr.i[I_PAST];
}

static bool biased(const snd_attr *a) {
    return a->i[I_BIAS] == SND_ATTN_ALIBI || a->i[I_BIAS] == SND_ATTN_T5;
}

// ---- shapes ---------------------------------------------------------------------------------------------------------

static sonde_status check_numbers(const snd_attr *a) {
    SND_FAIL_IF(a->i[I_HEADS] < 1 || a->i[I_KV_HEADS] < 1 || a->i[I_HEADS] % a->i[I_KV_HEADS], SONDE_ESHAPE,
                "%d heads on %d key heads, must be a multiple", (int)a->i[I_HEADS], (int)a->i[I_KV_HEADS]);
    SND_FAIL_IF(a->i[I_WINDOW] < 0 || a->i[I_PAST] < 0, SONDE_ERANGE, "window %d and past %d, must not be negative",
                (int)a->i[I_WINDOW], (int)a->i[I_PAST]);
    char x[40], y[40];
    SND_FAIL_IF(!isfinite(a->f[F_SCALE]) || !isfinite(a->f[F_SOFTCAP]), SONDE_ERANGE,
                "scale %s and softcap %s, must be finite", snd_format_num(x, a->f[F_SCALE], 6),
                snd_format_num(y, a->f[F_SOFTCAP], 6));
    return SONDE_OK;
}

static sonde_status check_operands(const snd_graph *g, const snd_attr *a, const snd_id *in) {
    char x[160], y[160];
    const snd_shape q = snd_shape_of(g, in[Q]), k = snd_shape_of(g, in[K]), v = snd_shape_of(g, in[V]);
    SND_FAIL_IF(q.nd != 3 || q.dim[2] % a->i[I_HEADS] || q.dim[2] == 0, SONDE_ESHAPE,
                "queries of shape %s, must be [B, T, features] with features a multiple of %d heads",
                snd_shape_text(q, x), (int)a->i[I_HEADS]);
    const int64_t hd = q.dim[2] / a->i[I_HEADS];
    SND_FAIL_IF(k.nd != 3 || k.dim[0] != q.dim[0] || k.dim[2] != a->i[I_KV_HEADS] * hd, SONDE_ESHAPE,
                "keys of shape %s do not fit queries of shape %s with %d of %d heads", snd_shape_text(k, x),
                snd_shape_text(q, y), (int)a->i[I_KV_HEADS], (int)a->i[I_HEADS]);
    SND_FAIL_IF(!snd_shape_same(k, v), SONDE_ESHAPE, "values of shape %s, keys of shape %s, must be the same",
                snd_shape_text(v, x), snd_shape_text(k, y));
    const int64_t window = a->i[I_WINDOW], last = a->i[I_PAST] + q.dim[1] - 1;
    SND_FAIL_IF(k.dim[1] < 1 || (window > 0 && last - window >= k.dim[1] - 1), SONDE_ERANGE,
                "a window of %d leaves the query at %d none of %d keys", (int)window, (int)last, (int)k.dim[1]);
    return SONDE_OK;
}

static sonde_status check_table(const snd_graph *g, const snd_attr *a, const snd_id *in) {
    char x[160];
    SND_FAIL_IF((a->i[I_BIAS] == SND_ATTN_T5) != (in[TABLE] != 0), SONDE_ESHAPE,
                "a table of biases is for t5 positions");
    if (!in[TABLE]) return SONDE_OK;
    const snd_shape t = snd_shape_of(g, in[TABLE]);
    SND_FAIL_IF(t.nd != 2 || t.dim[1] != a->i[I_HEADS], SONDE_ESHAPE, "table of shape %s, must be [buckets, %d heads]",
                snd_shape_text(t, x), (int)a->i[I_HEADS]);
    const int64_t exact = t.dim[0] / (a->i[I_CAUSAL] ? 2 : 4);
    SND_FAIL_IF(exact < 1, SONDE_ERANGE, "%d buckets, must be at least %d", (int)t.dim[0], a->i[I_CAUSAL] ? 2 : 4);
    SND_FAIL_IF(a->i[I_MAX_DISTANCE] <= exact, SONDE_ERANGE, "largest distance %d, must be more than the %d exact ones",
                (int)a->i[I_MAX_DISTANCE], (int)exact);
    return SONDE_OK;
}

// Distances below 0 that relative keys know: keys that stand behind the first query, where they may be read.
static int64_t negative_distances(const snd_attr *a, int64_t Tk) {
    const int64_t behind = Tk - 1 - a->i[I_PAST];
    return a->i[I_CAUSAL] || behind < 0 ? 0 : behind;
}

// more: rows for distances that this call does not need are fine.
static sonde_status check_relative(const snd_graph *g, const snd_attr *a, const snd_id *in, bool more) {
    char x[160], y[160];
    const bool xl = a->i[I_BIAS] == SND_ATTN_XL;
    SND_FAIL_IF(xl != (in[QR] != 0) || xl != (in[R] != 0), SONDE_ESHAPE,
                "relative queries and keys are for xl positions");
    if (!xl) return SONDE_OK;
    const snd_shape q = snd_shape_of(g, in[Q]), qr = snd_shape_of(g, in[QR]), r = snd_shape_of(g, in[R]);
    SND_FAIL_IF(!snd_shape_same(q, qr), SONDE_ESHAPE,
                "relative queries of shape %s, queries of shape %s, must be the same", snd_shape_text(qr, x),
                snd_shape_text(q, y));
    const int64_t rows = a->i[I_PAST] + q.dim[1] + negative_distances(a, snd_shape_of(g, in[K]).dim[1]);
    SND_FAIL_IF(r.nd != 2 || (more ? r.dim[0] < rows : r.dim[0] != rows) || r.dim[1] != q.dim[2], SONDE_ESHAPE,
                "relative keys of shape %s, must be [%d, %d]", snd_shape_text(r, x), (int)rows, (int)q.dim[2]);
    return SONDE_OK;
}

static sonde_status check_positions(const snd_graph *g, const snd_attr *a, const snd_id *in) {
    char x[160];
    const snd_shape p = snd_shape_of(g, in[POSITIONS]);
    const int64_t T = snd_shape_of(g, in[Q]).dim[1];
    SND_FAIL_IF(p.nd != 1 || p.dim[0] != T || snd_g_value(g, in[POSITIONS])->dtype != SND_I64, SONDE_ESHAPE,
                "positions of shape %s, must be i64 [%d]", snd_shape_text(p, x), (int)T);
    SND_FAIL_IF(!a->i[I_CAUSAL], SONDE_EUNSUPPORTED, "positions that are values are for causal attention");
    return SONDE_OK;
}

static sonde_status check_lengths(const snd_graph *g, const snd_id *in) {
    char x[160];
    if (!in[LENGTHS]) return SONDE_OK;
    const snd_shape s = snd_shape_of(g, in[LENGTHS]);
    const int64_t B = snd_shape_of(g, in[Q]).dim[0];
    SND_FAIL_IF(s.nd != 1 || s.dim[0] != B || snd_g_value(g, in[LENGTHS])->dtype != SND_I64, SONDE_ESHAPE,
                "lengths of shape %s, must be i64 [%d]", snd_shape_text(s, x), (int)B);
    return SONDE_OK;
}

static sonde_status check(const snd_graph *g, const snd_attr *a, const snd_id *in, bool more) {
    SND_TRY(check_numbers(a));
    SND_TRY(check_lengths(g, in));
    SND_TRY(check_operands(g, a, in));
    SND_TRY(check_table(g, a, in));
    return check_relative(g, a, in, more);
}

static sonde_status forward_shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    const bool placed = n->in[POSITIONS] != 0;
    SND_TRY(check(g, &n->attr, n->in, placed));
    if (placed) SND_TRY(check_positions(g, &n->attr, n->in));
    const snd_shape q = snd_shape_of(g, n->in[Q]);
    out[0] = q;
    out[1] = SND_SHAPE(q.dim[0], n->attr.i[I_HEADS], q.dim[1]);
    dtype[1] = SND_F64;
    n->n_out = 2;
    return SONDE_OK;
}

// ---- position biases ------------------------------------------------------------------------------------------------

double snd_alibi_slope(int64_t heads, int64_t h) {
    int64_t p = 1;
    while (2 * p <= heads) p *= 2;
    return h < p ? exp2(-8 * (double)(h + 1) / (double)p) : exp2(-4 * (double)(2 * (h - p) + 1) / (double)p);
}

int64_t snd_t5_bucket(int64_t buckets, int64_t max_distance, bool causal, int64_t distance) {
    const int64_t nb = causal ? buckets : buckets / 2, exact = nb / 2, after = !causal && distance < 0 ? nb : 0;
    const int64_t m = distance >= 0 ? distance : causal ? 0 : -distance;
    if (m < exact) return after + m;
    const double far = log((double)m / (double)exact) / log((double)max_distance / (double)exact);
    const int64_t at = exact + (int64_t)floor(far * (double)(nb - exact));
    return after + (at < nb - 1 ? at : nb - 1);
}

static int64_t bucket(const snd_attr *a, int64_t buckets, int64_t distance) {
    return snd_t5_bucket(buckets, a->i[I_MAX_DISTANCE], a->i[I_CAUSAL] != 0, distance);
}

// Scratch of an op: the bias by distance [heads, distances], for backward its gradient in double, then the kernel's.
typedef struct room {
    int64_t Tq, Tk, distances, buckets;
    size_t bias, dbias; // bytes
} room;

static room room_for(const snd_graph *g, const snd_attr *a, const snd_id *in, bool backward) {
    room m = {.Tq = snd_shape_of(g, in[Q]).dim[1], .Tk = snd_shape_of(g, in[K]).dim[1]};
    m.distances = m.Tq + m.Tk - 1;
    m.buckets = in[TABLE] ? snd_shape_of(g, in[TABLE]).dim[0] : 0;
    const size_t count = (size_t)(a->i[I_HEADS] * m.distances);
    if (biased(a)) m.bias = (count * snd_dtype_size(snd_graph_dtype(g)) + 63) / 64 * 64;
    if (backward && m.buckets) m.dbias = (count * sizeof(double) + 63) / 64 * 64;
    return m;
}

static void fill_alibi(const snd_oprun *r, const room *m, int64_t first, int64_t from, void *bias) {
    const int64_t heads = r->n->attr.i[I_HEADS];
    for (int64_t h = 0; h < heads; h++) {
        const double slope = snd_alibi_slope(heads, h);
        for (int64_t x = from; x < m->distances; x++)
            snd_store(r->t, bias, h * m->distances + x, -slope * fabs((double)(first + x)));
    }
}

static void fill_t5(const snd_oprun *r, const snd_rv *table, const room *m, int64_t first, int64_t from, void *bias) {
    const int64_t heads = r->n->attr.i[I_HEADS];
    for (int64_t x = from; x < m->distances; x++) {
        const int64_t row = bucket(&r->n->attr, m->buckets, first + x);
        for (int64_t h = 0; h < heads; h++)
            snd_store(r->t, bias, h * m->distances + x, ldexp(snd_load(r->t, table->p, row * heads + h), table->e));
    }
}

// Distances run from past - (Tk - 1). Queries that continue a sequence have most of a buffer's rows behind them: what lies
// more than a tile behind the first one is never looked at.
static void fill_bias(const snd_oprun *r, int k_table, const room *m, void *bias) {
    enum { TILE = SND_ATTN_Q + SND_ATTN_K };
    const int64_t first = past_of(r) - (m->Tk - 1);
    const int64_t from = r->n->attr.i[I_CAUSAL] && first < -TILE ? -TILE - first : 0;
    if (m->buckets)
        fill_t5(r, snd_in(r, k_table), m, first, from, bias);
    else
        fill_alibi(r, m, first, from, bias);
}

// ---- operands and exponents -----------------------------------------------------------------------------------------

// Factor under which an operand is read, its exponent after that: products of three operands and their sums stay in range.
static double tame(const snd_oprun *r, int k, int64_t *e) {
    const double amax = snd_in_amax(r, k);
    const double limit = r->t == SND_F64 ? 0x1p150 : 0x1p30;
    const bool far = amax > 0 && isfinite(amax) && (amax > limit || amax < 1 / limit);
    const int top = far ? ilogb(amax) : 0;
    *e = (int64_t)snd_in(r, k)->e + top;
    return snd_pow2(-top);
}

// How many times too large f is for scores of operands up to amax_x, amax_y to stay within the type.
static double excess(snd_dtype t, double f, double amax_x, double amax_y, int64_t hd) {
    const double bound = amax_x * amax_y * (double)hd, limit = t == SND_F64 ? 0x1p500 : 0x1p90;
    const double most = bound > 1 && isfinite(bound) ? limit / bound : limit;
    return fabs(f) > most ? fabs(f) / most : 1;
}

typedef struct exponents {
    int64_t q, k, v, qr, r;
    double lost; // factor by which scores are too small, as the type does not hold them
} exponents;

// Lengths beyond the keys that there are, or below one, do not reach the kernel: whoever feeds them checks them.
static const int64_t *lengths_of(const snd_oprun *r, int q) {
    const snd_rv *v = snd_in(r, q ? BACK_LENGTHS : LENGTHS);
    return v ? v->p : NULL;
}

// q is the input number of the queries (1 in backward).
static snd_kattn operands(const snd_oprun *r, int q, const void *bias, exponents *e) {
    const snd_attr *a = &r->n->attr;
    const snd_shape sq = snd_in_shape(r, q + Q), sk = snd_in_shape(r, q + K);
    const bool xl = a->i[I_BIAS] == SND_ATTN_XL;
    const int64_t far = INT64_C(1) << 60, reach = a->i[I_WINDOW] ? a->i[I_WINDOW] - 1 : far;
    // row 0 of the relative keys is the smallest distance: queries as if they stood further on, the mask where it was
    const int64_t shift = xl ? negative_distances(a, sk.dim[1]) : 0;
    snd_kattn s = {.B = sq.dim[0],
                   .Tq = sq.dim[1],
                   .Tk = sk.dim[1],
                   .heads = a->i[I_HEADS],
                   .kv_heads = a->i[I_KV_HEADS],
                   .hd = sq.dim[2] / a->i[I_HEADS],
                   .past = past_of(r) + shift,
                   .front = (a->i[I_CAUSAL] ? 0 : reach) - shift,
                   .back = reach + shift,
                   .softcap = a->f[F_SOFTCAP],
                   .q = snd_in(r, q + Q)->p,
                   .k = snd_in(r, q + K)->p,
                   .v = snd_in(r, q + V)->p,
                   .bias = bias,
                   .lengths = lengths_of(r, q),
                   .drop = a->f[F_DROP],
                   .first = r->first_example};
    if (s.drop > 0) s.drop_key = snd_drop_key(r, (int64_t)a->f[F_SITE]);
    s.fq = tame(r, q + Q, &e->q);
    s.fk = tame(r, q + K, &e->k);
    s.fv = tame(r, q + V, &e->v);
    s.scale = a->f[F_SCALE] * snd_pow2(e->q + e->k);
    e->lost = excess(r->t, s.scale, snd_in_amax(r, q + Q) * s.fq, snd_in_amax(r, q + K) * s.fk, s.hd);
    if (xl) {
        s.qr = snd_in(r, q + QR)->p;
        s.r = snd_in(r, q + R)->p;
        s.fqr = tame(r, q + QR, &e->qr);
        s.fr = tame(r, q + R, &e->r);
        s.scale_r = a->f[F_SCALE] * snd_pow2(e->qr + e->r);
        const double lost = excess(r->t, s.scale_r, snd_in_amax(r, q + QR) * s.fqr, snd_in_amax(r, q + R) * s.fr, s.hd);
        e->lost = lost > e->lost ? lost : e->lost;
    }
    s.scale /= e->lost;
    s.scale_r /= e->lost;
    for (int k = 0; k < r->n->n_in; k++) {
        const bool counts = r->n->in[k] && snd_g_value(r->g, r->n->in[k])->dtype == r->t;
        if (counts && !isfinite(snd_in_amax(r, k))) s.careful = true;
    }
    return s;
}

// What scratch depends on.
static snd_kattn shape_of(const snd_graph *g, const snd_attr *a, const snd_id *in) {
    const snd_shape q = snd_shape_of(g, in[Q]), k = snd_shape_of(g, in[K]);
    static const char there = 0; // a pointer that is not NULL
    return (snd_kattn){.B = q.dim[0],
                       .Tq = q.dim[1],
                       .Tk = k.dim[1],
                       .heads = a->i[I_HEADS],
                       .kv_heads = a->i[I_KV_HEADS],
                       .hd = q.dim[2] / a->i[I_HEADS],
                       .softcap = a->f[F_SOFTCAP],
                       .drop = a->f[F_DROP],
                       .r = in[R] ? &there : NULL,
                       .bias = biased(a) ? &there : NULL};
}

static void put_stats(const snd_oprun *r, int k_out, const snd_kattn *s, const exponents *e, const double *k) {
    double *out = snd_out(r, k_out)->p;
    out[SND_AS_ENTROPY] = k[0];
    out[SND_AS_MAXLOGIT] = s->softcap > 0 ? k[1] : k[1] * e->lost;
    out[SND_AS_SHARE] = k[2];
    *snd_out(r, k_out) = (snd_rv){.p = out, .e = 0, .amax = -1};
}

// ---- forward --------------------------------------------------------------------------------------------------------

static size_t forward_scratch(const snd_graph *g, const snd_node *n) {
    const snd_kattn s = shape_of(g, &n->attr, n->in);
    return room_for(g, &n->attr, n->in, false).bias + snd_k_attn_scratch(snd_graph_dtype(g), &s, SND_KATTN_FWD);
}

// Scores stored in f16 are infinite from 65520 on, and the softmax of such a row is NaN. With the largest score the lse
// passes that bound as well, which lies a few units above it at most, where f16 has steps of 32.
static void overflow_f16(const snd_oprun *r, const snd_kattn *s) {
    const double *lse = snd_out(r, 1)->p;
    for (int64_t row = 0; row < s->B * s->heads * s->Tq; row++) {
        const int64_t b = row / (s->heads * s->Tq), h = row / s->Tq % s->heads, t = row % s->Tq;
        const int64_t at = (b * s->Tq + t) * s->heads + h;
        for (int64_t j = 0; lse[row] >= 65520 && j < s->hd; j++) snd_store(r->t, snd_out(r, 0)->p, at * s->hd + j, NAN);
    }
}

static void forward_run(snd_oprun *r) {
    const room m = room_for(r->g, &r->n->attr, r->n->in, false);
    char *scratch = r->scratch;
    exponents e;
    if (m.bias) fill_bias(r, TABLE, &m, scratch);
    const snd_kattn s = operands(r, Q, m.bias ? scratch : NULL, &e);
    const bool stats = r->n->n_out > STATS;
    double k[3];
    snd_k_attn_fwd(r->threads, r->t, &s, snd_out(r, 0)->p, snd_out(r, 1)->p, stats ? k : NULL, scratch + m.bias);
    if (snd_graph_stored(r->g) == SND_F16) overflow_f16(r, &s);
    snd_out_done(r, 0, e.v, -1);
    if (stats) put_stats(r, STATS, &s, &e, k);
}

static void forward_grad(snd_graph *g, const snd_node *n, const snd_id *dout, const bool *need, snd_id *din) {
    if (!dout[0]) return;
    if (n->in[POSITIONS]) {
        snd_g_fail(g, SONDE_EUNSUPPORTED, "attention: no derivative at positions that are values");
        return;
    }
    snd_id in[BACK_INPUTS] = {dout[0]}, out[SND_MAX_OUT];
    snd_attr a = n->attr;
    for (int k = 0; k < OPERANDS; k++) {
        in[1 + k] = n->in[k];
        if (need[k]) a.i[I_WANTED] |= 1 << k;
    }
    in[1 + OPERANDS] = n->out[0];
    in[2 + OPERANDS] = n->out[1];
    in[BACK_LENGTHS] = n->in[LENGTHS];
    snd_g_op(g, SND_OP_ATTENTION_BWD, in, BACK_INPUTS, &a, out);
    for (int k = 0, at = 0; k < OPERANDS; k++) {
        if (need[k]) din[k] = out[at++];
    }
}

// Pairs of a query and a key that it reads, in one head.
static double pairs(const snd_graph *g, const snd_attr *a, const snd_id *in) {
    const int64_t Tq = snd_shape_of(g, in[Q]).dim[1], Tk = snd_shape_of(g, in[K]).dim[1], w = a->i[I_WINDOW];
    double sum = 0;
    for (int64_t i = 0; i < Tq; i++) {
        const int64_t at = a->i[I_PAST] + i, from = w && at - w + 1 > 0 ? at - w + 1 : 0;
        const int64_t ahead = a->i[I_CAUSAL] ? at + 1 : w ? at + w : Tk;
        sum += (double)((ahead < Tk ? ahead : Tk) - from);
    }
    return sum;
}

// `products` of 2 flops per pair and feature, as many again for each relative one.
static void cost(const snd_graph *g, const snd_node *n, int first, double products, double relative, double *flops,
                 double *bytes) {
    snd_cost_each(g, n, 0, flops, bytes);
    const snd_shape q = snd_shape_of(g, n->in[first + Q]);
    if (n->attr.i[I_BIAS] == SND_ATTN_XL) products += relative;
    *flops = 2 * products * (double)q.dim[0] * (double)q.dim[2] * pairs(g, &n->attr, n->in + first);
}

static void forward_cost(const snd_graph *g, const snd_node *n, double *flops, double *bytes) {
    cost(g, n, 0, 2, 1, flops, bytes);
}

enum { ABSENT_PLAIN = 0xf8, ABSENT_ALIBI = 0xf8, ABSENT_T5 = 0xf0, ABSENT_XL = 0xc8 };
// Tables of t5 have 8 buckets; relative keys reach as far as the keys, to both sides where those are read.
#define CASE(l, B, Tq, Tk, heads, kv, hd, causal, window, past, bias, far, scale, cap)                                 \
    {                                                                                                                  \
        .label = l, .n_in = LENGTHS + 1,                                                                               \
        .in = {{3, {B, Tq, (heads) * (hd)}}, {3, {B, Tk, (kv) * (hd)}},                                                \
               {3, {B, Tk, (kv) * (hd)}},    {2, {8, heads}},                                                          \
               {3, {B, Tq, (heads) * (hd)}}, {2, {(causal) ? (Tk) : (Tq) + (Tk)-1, (heads) * (hd)}}},                  \
        .attr = {.f = {scale, cap}, .i = {heads, kv, causal, window, past, SND_ATTN_##bias, far}},                     \
        .absent = ABSENT_##bias                                                                                        \
    }
static const snd_op_case cases[] = {
    CASE("causal", 2, 5, 5, 2, 2, 3, true, 0, 0, PLAIN, 0, 0.7, 0),
    CASE("encoder", 2, 4, 4, 2, 2, 5, false, 0, 0, PLAIN, 0, 0.5, 0),
    CASE("grouped keys", 2, 5, 5, 4, 2, 3, true, 0, 0, PLAIN, 0, 0.7, 0),
    CASE("one key head", 1, 5, 5, 3, 1, 4, true, 0, 0, PLAIN, 0, 0.7, 0),
    CASE("cross", 2, 3, 7, 2, 2, 3, false, 0, 0, PLAIN, 0, 0.6, 0),
    CASE("one query after others", 1, 1, 6, 2, 2, 3, true, 0, 5, PLAIN, 0, 0.6, 0),
    CASE("window", 1, 9, 9, 2, 1, 3, true, 3, 0, PLAIN, 0, 0.7, 0),
    CASE("encoder's window", 1, 9, 9, 1, 1, 3, false, 3, 0, PLAIN, 0, 0.7, 0),
    CASE("softcap", 1, 6, 6, 2, 2, 3, true, 0, 0, PLAIN, 0, 1, 1.5),
    CASE("alibi, 4 heads, softcap", 1, 6, 6, 4, 4, 2, true, 0, 0, ALIBI, 0, 1, 2),
    CASE("alibi, 6 heads, encoder", 1, 6, 6, 6, 3, 2, false, 0, 0, ALIBI, 0, 1, 0),
    CASE("t5 decoder", 2, 12, 12, 2, 2, 2, true, 0, 0, T5, 9, 1, 0),
    CASE("t5 encoder", 2, 11, 11, 2, 2, 2, false, 0, 0, T5, 7, 1, 0),
    CASE("xl", 2, 5, 5, 2, 2, 3, true, 0, 0, XL, 0, 0.6, 0),
    CASE("xl with memory", 2, 4, 7, 2, 2, 3, true, 0, 3, XL, 0, 0.6, 0),
    CASE("xl with memory, softcap, window", 1, 4, 7, 2, 1, 3, true, 4, 3, XL, 0, 0.6, 2),
    CASE("several tiles", 1, 150, 150, 1, 1, 3, true, 0, 0, PLAIN, 0, 0.7, 0),
    CASE("several tiles, encoder", 1, 70, 140, 2, 1, 2, false, 0, 0, PLAIN, 0, 0.7, 0),
    CASE("several tiles, window", 1, 150, 150, 1, 1, 2, true, 70, 0, PLAIN, 0, 0.7, 0),
    CASE("several tiles, encoder's window, alibi", 1, 150, 150, 1, 1, 2, false, 40, 0, ALIBI, 0, 0.7, 0),
    CASE("several tiles, t5", 1, 100, 100, 2, 2, 2, false, 0, 0, T5, 50, 0.7, 0),
    CASE("xl encoder", 2, 5, 5, 2, 2, 3, false, 0, 0, XL, 0, 0.6, 0),
    CASE("xl encoder with memory, window", 1, 6, 8, 2, 1, 3, false, 3, 2, XL, 0, 0.6, 0),
    CASE("several tiles, xl encoder", 1, 70, 70, 2, 2, 3, false, 0, 0, XL, 0, 0.7, 0),
    CASE("several tiles, xl", 2, 70, 100, 2, 2, 3, true, 0, 30, XL, 0, 0.7, 0),
    CASE("whole strips", 1, 72, 72, 2, 1, 32, true, 0, 0, PLAIN, 0, 0.2, 0),
    CASE("many heads", 5, 3, 3, 16, 16, 2, true, 0, 0, XL, 0, 0.7, 0),
    CASE("wide heads", 1, 5, 5, 2, 2, 37, true, 0, 0, PLAIN, 0, 0.2, 0),
#define DROP(l, B, T, heads, kv, hd, causal, ...)                                                                      \
    {                                                                                                                  \
        .label = l, .n_in = LENGTHS + 1,                                                                               \
        .in = {{3, {B, T, (heads) * (hd)}}, {3, {B, T, (kv) * (hd)}}, {3, {B, T, (kv) * (hd)}}},                       \
        .attr = {.f = {0.7, __VA_ARGS__}, .i = {heads, kv, causal}}, .absent = ABSENT_PLAIN                            \
    }
    DROP("dropout", 2, 7, 2, 1, 3, true, 0, 0.3, 5),
    DROP("dropout, encoder, softcap", 1, 6, 2, 2, 2, false, 1.5, 0.5, 9),
    DROP("dropout, several tiles", 1, 150, 1, 1, 3, true, 0, 0.2, 5),
};
#undef CASE
#undef DROP

const snd_op_info snd_op_attention = {.name = "attention",
                                      .shape = forward_shape,
                                      .run = forward_run,
                                      .grad = forward_grad,
                                      .scratch = forward_scratch,
                                      .cost = forward_cost,
                                      SND_CASES(cases)};

static snd_attr attributes(const snd_graph *g, const snd_attn *a) {
    return (snd_attr){.f = {a->scale, a->softcap, a->dropout, snd_g_node_count(g)},
                      .i = {a->heads, a->kv_heads, a->causal, a->window, a->past, (int64_t)a->bias, a->max_distance}};
}

snd_id snd_g_attention(snd_graph *g, const snd_attn *a, snd_id q, snd_id k, snd_id v, snd_id table, snd_id qr,
                       snd_id r) {
    if (!q || !k || !v) return 0;
    const snd_attr attr = attributes(g, a);
    return snd_g_op(g, SND_OP_ATTENTION, (snd_id[]){q, k, v, table, qr, r, a->positions, a->lengths}, LENGTHS + 1,
                    &attr, NULL);
}

// ---- backward -------------------------------------------------------------------------------------------------------

static sonde_status backward_shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    (void)dtype;
    n->n_out = 0;
    for (int k = 0; k < OPERANDS; k++) {
        if (n->attr.i[I_WANTED] >> k & 1) out[n->n_out++] = snd_shape_of(g, n->in[1 + k]);
    }
    return SONDE_OK;
}

// Output number of the gradient of operand k, -1: not wanted.
static int gradient_at(const snd_attr *a, int k) {
    int at = 0;
    for (int i = 0; i < k; i++) at += a->i[I_WANTED] >> i & 1;
    return a->i[I_WANTED] >> k & 1 ? at : -1;
}

static void *gradient(const snd_oprun *r, int k) {
    const int at = gradient_at(&r->n->attr, k);
    return at < 0 ? NULL : snd_out(r, at)->p;
}

static size_t backward_scratch(const snd_graph *g, const snd_node *n) {
    const snd_kattn s = shape_of(g, &n->attr, n->in + 1);
    const room m = room_for(g, &n->attr, n->in + 1, true);
    double there; // pointers that are not NULL
    const int64_t wanted = n->attr.i[I_WANTED];
    const snd_kattn_grads d = {.dk = wanted >> K & 1 ? &there : NULL,
                               .dv = wanted >> V & 1 ? &there : NULL,
                               .dr = wanted >> R & 1 ? &there : NULL,
                               .r_rows = wanted >> R & 1 ? snd_shape_of(g, n->in[1 + R]).dim[0] : 0,
                               .dbias = wanted >> TABLE & 1 ? &there : NULL};
    return m.bias + m.dbias + snd_k_attn_bwd_scratch(snd_graph_dtype(g), &s, &d);
}

// dtable[bucket][h] = sum of the biases' gradients over the bucket's distances.
static void sum_buckets(const snd_oprun *r, const room *m, double *dbias, void *dtable) {
    const snd_attr *a = &r->n->attr;
    const int64_t heads = a->i[I_HEADS], first = a->i[I_PAST] - (m->Tk - 1);
    for (int64_t h = 0; h < heads; h++) {
        double *d = dbias + h * m->distances;
        for (int64_t row = 0; row < m->buckets; row++) {
            double sum = 0;
            for (int64_t x = 0; x < m->distances; x++) {
                if (bucket(a, m->buckets, first + x) == row) sum += d[x];
            }
            snd_store(r->t, dtable, row * heads + h, sum);
        }
    }
}

static void finish(const snd_oprun *r, int k, double scale, int64_t e) {
    const int at = gradient_at(&r->n->attr, k);
    if (at < 0) return;
    const double amax = scale == 1 ? -1
                                   : snd_k_affine(r->threads, r->t, snd_shape_size(snd_out_shape(r, at)), scale,
                                                  snd_out(r, at)->p, 0, snd_out(r, at)->p);
    snd_out_done(r, at, e, amax);
}

static void backward_run(snd_oprun *r) {
    const snd_attr *a = &r->n->attr;
    const room m = room_for(r->g, a, r->n->in + 1, true);
    char *scratch = r->scratch;
    exponents e;
    if (m.bias) fill_bias(r, 1 + TABLE, &m, scratch);
    const snd_kattn s = operands(r, 1, m.bias ? scratch : NULL, &e);
    int64_t edy;
    snd_kattn_grads d = {.out = snd_in(r, 1 + OPERANDS)->p,
                         .dout = snd_in(r, 0)->p,
                         .fdout = tame(r, 0, &edy),
                         .fout = snd_pow2((int64_t)snd_in(r, 1 + OPERANDS)->e - e.v),
                         .lse = snd_in(r, 2 + OPERANDS)->p,
                         .dq = gradient(r, Q),
                         .dk = gradient(r, K),
                         .dv = gradient(r, V),
                         .dqr = gradient(r, QR),
                         .dr = gradient(r, R),
                         .r_rows = gradient(r, R) ? snd_in_shape(r, 1 + R).dim[0] : 0,
                         .dbias = gradient(r, TABLE) ? (double *)(scratch + m.bias) : NULL};
    snd_k_attn_bwd(r->threads, r->t, &s, &d, scratch + m.bias + m.dbias);
    if (d.dbias) sum_buckets(r, &m, d.dbias, gradient(r, TABLE));
    const double scale = a->f[F_SCALE];
    finish(r, Q, scale, edy + e.v + e.k);
    finish(r, K, scale, edy + e.v + e.q);
    finish(r, V, 1, edy);
    finish(r, TABLE, 1, edy + e.v);
    finish(r, QR, scale, edy + e.v + e.r);
    finish(r, R, scale, edy + e.v + e.qr);
}

static void backward_cost(const snd_graph *g, const snd_node *n, double *flops, double *bytes) {
    cost(g, n, 1, 5, 3, flops, bytes);
}

const snd_op_info snd_op_attention_bwd = {.name = "attention_bwd",
                                          .shape = backward_shape,
                                          .run = backward_run,
                                          .scratch = backward_scratch,
                                          .cost = backward_cost};

// ---- statistics -----------------------------------------------------------------------------------------------------

static sonde_status stats_shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    SND_TRY(check(g, &n->attr, n->in, false));
    *out = SND_SHAPE(SND_AS_COUNT);
    dtype[0] = SND_F64;
    return SONDE_OK;
}

static size_t stats_scratch(const snd_graph *g, const snd_node *n) {
    const snd_kattn s = shape_of(g, &n->attr, n->in);
    return room_for(g, &n->attr, n->in, false).bias + snd_k_attn_scratch(snd_graph_dtype(g), &s, SND_KATTN_STATS);
}

static void stats_run(snd_oprun *r) {
    const room m = room_for(r->g, &r->n->attr, r->n->in, false);
    char *scratch = r->scratch;
    exponents e;
    if (m.bias) fill_bias(r, TABLE, &m, scratch);
    const snd_kattn s = operands(r, Q, m.bias ? scratch : NULL, &e);
    double k[3];
    snd_k_attn_stats(r->threads, r->t, &s, k, scratch + m.bias);
    put_stats(r, 0, &s, &e, k);
}

static void stats_cost(const snd_graph *g, const snd_node *n, double *flops, double *bytes) {
    cost(g, n, 0, 1, 1, flops, bytes);
}

const snd_op_info snd_op_attention_stats = {
    .name = "attention_stats", .shape = stats_shape, .run = stats_run, .scratch = stats_scratch, .cost = stats_cost};

snd_id snd_g_attention_stats(snd_graph *g, const snd_attn *a, snd_id q, snd_id k, snd_id v, snd_id table, snd_id qr,
                             snd_id r) {
    if (!q || !k || !v) return 0;
    const snd_attr attr = attributes(g, a);
    return snd_g_op(g, SND_OP_ATTENTION_STATS, (snd_id[]){q, k, v, table, qr, r, 0, a->lengths}, LENGTHS + 1, &attr,
                    NULL);
}

snd_id snd_g_attention_stats_of(snd_graph *g, int32_t node) {
    snd_id in[LENGTHS + 1]; // copies: the graph moves its nodes as it grows
    const snd_attr attr = snd_g_node(g, node)->attr;
    memcpy(in, snd_g_node(g, node)->in, sizeof in);
    in[POSITIONS] = in[POSITIONS] ? 0 : snd_g_node(g, node)->out[0]; // by which fusion knows it
    return snd_g_op(g, SND_OP_ATTENTION_STATS, in, LENGTHS + 1, &attr, NULL);
}
