// What attention, its statistics and rotary positions compute, against plain loops over the whole matrix of scores; who
// reads a NaN; what is refused. Gradients, types, threads and exponents are ops_test's, over the same cases.
#include "graph_common.h"

#include "ops/ops_impl.h"

enum { Q, K, V, TABLE, QR, R, INPUTS };

typedef struct given {
    snd_attn a;
    int64_t B, Tq, Tk, hd, buckets;
    double x[INPUTS][NET_MAX];
} given;

// ---- the definition -------------------------------------------------------------------------------------------------

static double slope_of(int64_t heads, int64_t h) {
    int64_t p = 1;
    while (2 * p <= heads) p *= 2;
    if (h < p) return pow(2, -8.0 * (double)(h + 1) / (double)p);
    const double twice = 2 * (double)p; // 1st, 3rd, 5th ... of twice as many heads
    return pow(2, -8.0 * (double)(2 * (h - p) + 1) / twice);
}

static int64_t bucket_of(const given *d, int64_t r) { // r = key - query
    const bool encoder = !d->a.causal;
    const int64_t nb = encoder ? d->buckets / 2 : d->buckets, offset = encoder && r > 0 ? nb : 0;
    const int64_t m = encoder ? llabs(r) : r < 0 ? -r : 0, e = nb / 2;
    if (m < e) return offset + m;
    const double far = log((double)m / (double)e) / log((double)d->a.max_distance / (double)e) * (double)(nb - e);
    const int64_t at = e + (int64_t)floor(far);
    return offset + (at < nb - 1 ? at : nb - 1);
}

static bool reads(const given *d, int64_t i, int64_t j) {
    const int64_t at = d->a.past + i, w = d->a.window;
    if (d->a.causal) return j <= at && (w == 0 || at - j < w);
    return w == 0 || llabs(at - j) < w;
}

static double dot(const double *x, const double *y, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * y[i];
    return sum;
}

static double score(const given *d, int64_t b, int64_t h, int64_t i, int64_t j) {
    const int64_t n = d->hd, kv = h / (d->a.heads / d->a.kv_heads), at = d->a.past + i;
    const double *q = d->x[Q] + ((b * d->Tq + i) * d->a.heads + h) * n;
    const double *k = d->x[K] + ((b * d->Tk + j) * d->a.kv_heads + kv) * n;
    double s = dot(q, k, n);
    if (d->a.bias == SND_ATTN_XL)
        s += dot(d->x[QR] + ((b * d->Tq + i) * d->a.heads + h) * n,
                 d->x[R] + ((at - j + (d->a.causal ? 0 : d->Tk - 1 - d->a.past)) * d->a.heads + h) * n, n);
    s *= d->a.scale;
    if (d->a.softcap > 0) s = d->a.softcap * tanh(s / d->a.softcap);
    if (d->a.bias == SND_ATTN_ALIBI) s -= slope_of(d->a.heads, h) * (double)llabs(at - j);
    if (d->a.bias == SND_ATTN_T5) s += d->x[TABLE][bucket_of(d, j - at) * d->a.heads + h];
    return s;
}

typedef struct wanted {
    double out[NET_MAX], stats[SND_AS_COUNT];
} wanted;

static void row(const given *d, int64_t b, int64_t h, int64_t i, wanted *w, int64_t *choices) {
    double p[256], l = 0, top = -INFINITY, entropy = 0;
    int64_t n = 0;
    for (int64_t j = 0; j < d->Tk; j++) {
        p[j] = reads(d, i, j) ? score(d, b, h, i, j) : -INFINITY;
        top = fmax(top, p[j]);
        n += reads(d, i, j);
    }
    for (int64_t j = 0; j < d->Tk; j++) l += exp(p[j] - top);
    for (int64_t j = 0; j < d->Tk; j++) p[j] = exp(p[j] - top) / l;
    for (int64_t j = 0; j < d->Tk; j++) entropy -= p[j] > 0 ? p[j] * log(p[j]) : 0;
    w->stats[SND_AS_ENTROPY] += entropy;
    w->stats[SND_AS_MAXLOGIT] = fmax(w->stats[SND_AS_MAXLOGIT], top);
    if (n > 1) w->stats[SND_AS_SHARE] += entropy / log((double)n);
    *choices += n > 1;
    for (int64_t c = 0; c < d->hd; c++) {
        const int64_t kv = h / (d->a.heads / d->a.kv_heads);
        double sum = 0;
        for (int64_t j = 0; j < d->Tk; j++) sum += p[j] * d->x[V][((b * d->Tk + j) * d->a.kv_heads + kv) * d->hd + c];
        w->out[((b * d->Tq + i) * d->a.heads + h) * d->hd + c] = sum;
    }
}

static void define(const given *d, wanted *w) {
    int64_t choices = 0;
    memset(w, 0, sizeof *w);
    w->stats[SND_AS_MAXLOGIT] = -INFINITY;
    for (int64_t b = 0; b < d->B; b++)
        for (int64_t h = 0; h < d->a.heads; h++)
            for (int64_t i = 0; i < d->Tq; i++) row(d, b, h, i, w, &choices);
    w->stats[SND_AS_ENTROPY] /= (double)(d->B * d->a.heads * d->Tq);
    w->stats[SND_AS_SHARE] /= (double)choices;
}

// ---- the op ---------------------------------------------------------------------------------------------------------

// Inputs of a case of the op's table, normal times `size`.
static void fill(const snd_op_case *c, double size, given *d) {
    const int64_t *i = c->attr.i;
    d->a = (snd_attn){.heads = i[0],
                      .kv_heads = i[1],
                      .causal = i[2] != 0,
                      .window = i[3],
                      .past = i[4],
                      .bias = (snd_attn_bias)i[5],
                      .max_distance = i[6],
                      .scale = c->attr.f[0],
                      .softcap = c->attr.f[1]};
    d->B = c->in[Q].dim[0];
    d->Tq = c->in[Q].dim[1];
    d->Tk = c->in[K].dim[1];
    d->hd = c->in[Q].dim[2] / d->a.heads;
    d->buckets = c->in[TABLE].dim[0];
    for (int k = 0; k < INPUTS; k++) {
        const int64_t n = snd_shape_size(snd_shape_make(c->in[k].nd, c->in[k].dim));
        assert_true(n <= NET_MAX);
        for (int64_t e = 0; e < n; e++) d->x[k][e] = size * draw_normal(c->label, k, e);
    }
}

static void open(const snd_op_case *c, const given *d, snd_dtype t, bool grads, net *n, snd_id *stats) {
    snd_id in[INPUTS] = {0};
    *n = net_open(t);
    for (int k = 0; k < INPUTS; k++) {
        if (!(c->absent >> k & 1)) in[k] = net_input(n, c->in[k], SND_DT_NONE);
    }
    if (stats) *stats = snd_g_attention_stats(n->g, &d->a, in[Q], in[K], in[V], in[TABLE], in[QR], in[R]);
    net_output(n, snd_g_attention(n->g, &d->a, in[Q], in[K], in[V], in[TABLE], in[QR], in[R]));
    if (stats) n->y[n->n_y++] = *stats;
    const int outputs = n->n_y;
    if (grads) n->n_y = 1; // statistics have no gradient
    net_close_graph(n, grads, 2, 1);
    n->n_y = outputs;
    for (int k = 0, j = 0; k < INPUTS; k++) {
        if (in[k]) CHECK_OK(snd_exec_set(n->exec, n->in[j++], d->x[k], SND_F64));
    }
}

static const snd_op_info *op(void) {
    return snd_op_info_at(SND_OP_ATTENTION);
}

static given d;
static wanted w;
static double got[NET_MAX];

static void check_values(const snd_op_case *c, snd_dtype t, double size) {
    const double tol = t == SND_F64 ? 1e-12 : 3e-5;
    net n;
    snd_id stats;
    fill(c, size, &d);
    define(&d, &w);
    open(c, &d, t, false, &n, &stats);
    CHECK_OK(snd_exec_run(n.exec));
    net_get(&n, n.y[0], got);
    for (int64_t i = 0; i < net_size(&n, n.y[0]); i++) {
        if (fabs(got[i] - w.out[i]) <= tol * (1 + size * size)) continue;
        fail_msg("%s: element %d: got %.15g, want %.15g", c->label, (int)i, got[i], w.out[i]);
    }
    net_get(&n, stats, got);
    for (int i = 0; i < SND_AS_COUNT; i++) {
        if (fabs(got[i] - w.stats[i]) <= tol * (1 + size * size)) continue;
        fail_msg("%s: statistic %d: got %.15g, want %.15g", c->label, i, got[i], w.stats[i]);
    }
    net_destroy(&n);
}

static void values(void **state) {
    (void)state;
    for (int i = 0; i < op()->n_cases; i++) {
        check_values(&op()->cases[i], SND_F64, 1);
        check_values(&op()->cases[i], SND_F32, 1);
        check_values(&op()->cases[i], SND_F64, 12); // scores of some hundreds: nearly one-hot
    }
}

// ---- statistics that ride along ---------------------------------------------------------------------------------------

enum { RIDE_MAX = (INPUTS + 1) * NET_MAX };

// The result, the statistics and the gradients, one behind the other.
static void run_watched(const snd_op_case *c, snd_dtype t, int threads, bool fuse, double *all) {
    snd_id in[INPUTS] = {0}, keep[INPUTS + 2];
    int k = 0;
    net n = net_open(t);
    for (int i = 0; i < INPUTS; i++)
        if (!(c->absent >> i & 1)) in[i] = net_input(&n, c->in[i], SND_DT_NONE);
    net_output(&n, snd_g_attention(n.g, &d.a, in[Q], in[K], in[V], in[TABLE], in[QR], in[R]));
    keep[k++] = n.y[0];
    keep[k++] = snd_g_attention_stats_of(n.g, snd_g_value(n.g, n.y[0])->node);
    snd_g_grad(n.g, n.y, n.dy, 1, n.in, n.n_in, n.grad);
    for (int i = 0; i < n.n_in; i++)
        if (n.grad[i]) keep[k++] = n.grad[i];
    CHECK_OK(snd_graph_status(n.g));
    if (fuse) assert_int_equal(snd_g_fuse(n.g, keep, k), 1);
    CHECK_OK(snd_plan_make(n.arena, n.g, keep, k, &n.plan));
    CHECK_OK(snd_source_resident(n.g, 1, threads, &n.src));
    CHECK_OK(snd_exec_create(n.g, n.plan, &n.src, &(snd_exec_opts){.threads = threads}, &n.exec));
    for (int i = 0, j = 0; i < INPUTS; i++)
        if (in[i]) CHECK_OK(snd_exec_set(n.exec, n.in[j++], d.x[i], SND_F64));
    for (int64_t i = 0; i < net_size(&n, n.y[0]); i++) got[i] = draw_normal("dy", 0, i);
    CHECK_OK(snd_exec_set(n.exec, n.dy[0], got, SND_F64));
    CHECK_OK(snd_exec_run(n.exec));
    for (int i = 0; i < k; i++) {
        net_get(&n, keep[i], all);
        all += net_size(&n, keep[i]);
    }
    net_destroy(&n);
}

// As one op with the forward pass, statistics have the bits of the op that makes the scores again, and change no others.
static void statistics_ride_along(void **state) {
    (void)state;
    static double want[RIDE_MAX], all[RIDE_MAX];
    for (int i = 0; i < op()->n_cases; i++)
        for (int t = 0; t < 2; t++) {
            memset(want, 0, sizeof want), memset(all, 0, sizeof all);
            fill(&op()->cases[i], t ? 1 : 12, &d);
            run_watched(&op()->cases[i], t ? SND_F32 : SND_F64, 1, false, want);
            for (int threads = 1; threads <= 4; threads++) {
                run_watched(&op()->cases[i], t ? SND_F32 : SND_F64, threads, true, all);
                for (int e = 0; e < RIDE_MAX; e++) CHECK_SAME(all[e], want[e]);
            }
        }
}

// ---- padding --------------------------------------------------------------------------------------------------------

typedef struct padded {
    const char *label;
    int64_t Tq, Tk, length, heads, kv_heads;
    bool causal;
    int64_t window;
    snd_attn_bias bias;
} padded;
enum { PAD_HD = 3, PAD_B = 2 };

// Example `from` of the operands with its first Tk keys, or (length 0) both examples and the lengths; backward as well.
static net pad_net(const padded *p, snd_dtype t, int threads, int64_t length) {
    net n = net_open(t);
    const int64_t B = length ? 1 : PAD_B, Tk = length ? length : p->Tk, all = p->heads * PAD_HD,
                  kv = p->kv_heads * PAD_HD;
    snd_attn a = {.heads = p->heads,
                  .kv_heads = p->kv_heads,
                  .scale = 0.7,
                  .causal = p->causal,
                  .window = p->window,
                  .bias = p->bias,
                  .max_distance = 9};
    const snd_id q = net_input(&n, SND_SHAPE(B, p->Tq, all), SND_DT_NONE),
                 k = net_input(&n, SND_SHAPE(B, Tk, kv), SND_DT_NONE),
                 v = net_input(&n, SND_SHAPE(B, Tk, kv), SND_DT_NONE);
    const snd_id table = p->bias == SND_ATTN_T5 ? snd_g_const(n.g, SND_SHAPE(8, p->heads), 0.3) : 0;
    if (!length) a.lengths = snd_g_input(n.g, "lengths", SND_SHAPE(B), SND_I64);
    net_output(&n, snd_g_attention(n.g, &a, q, k, v, table, 0, 0));
    net_close_graph(&n, true, threads, 1);
    for (int i = 0; i < 4; i++) { // q, k, v, dy; the second example's padding is no number at all
        const snd_id to = i < 3 ? n.in[i] : n.dy[0];
        const int64_t size = net_size(&n, to);
        for (int64_t e = 0; e < size; e++) got[e] = draw_normal(p->label, i, e);
        CHECK_OK(snd_exec_set(n.exec, to, got, SND_F64));
    }
    const int64_t lengths[PAD_B] = {p->length, p->Tk};
    if (!length) CHECK_OK(snd_exec_set(n.exec, a.lengths, lengths, SND_I64));
    CHECK_OK(snd_exec_run(n.exec));
    return n;
}

// The first example is what it is without its padding, whose keys and values get no gradient.
static void check_padding(const padded *p, snd_dtype t) {
    static double want[NET_MAX];
    for (int threads = 1; threads <= 3; threads += 2) {
        net a = pad_net(p, t, threads, 0), b = pad_net(p, t, 1, p->length);
        for (int k = 0; k < 4; k++) {
            net_get(&a, k < 3 ? a.grad[k] : a.y[0], got);
            net_get(&b, k < 3 ? b.grad[k] : b.y[0], want);
            const int64_t n = net_size(&b, k < 3 ? b.grad[k] : b.y[0]);
            const double tol = t == SND_F64 ? 1e-12 : 1e-5; // other tiles, other sums
            for (int64_t e = 0; e < n; e++)
                if (!(fabs(got[e] - want[e]) <= tol))
                    fail_msg("%s: %d, element %d: %g, want %g", p->label, k, (int)e, got[e], want[e]);
            for (int64_t e = n; (k == 1 || k == 2) && e < p->Tk * p->kv_heads * PAD_HD; e++) CHECK_SAME(got[e], 0);
        }
        net_destroy(&a), net_destroy(&b);
    }
}

// Stored in f16 a score is infinite from 65520 on, and the head's row with it NaN, that of no other query or head; far below
// zero it is a weight of 0. Two heads of one feature: scores are q k.
static void scores_overflow_in_f16(void **state) {
    (void)state;
    enum { T = 3, HEADS = 2 };
    static const double q[T * HEADS] = {1, 1, 300, 300, -300, 300}, k[T * HEADS] = {1, 218, 218, 1, 3, 219};
    for (int half = 0; half < 2; half++) {
        net n = net_open(SND_F32);
        if (half) snd_graph_store(n.g, SND_F16);
        const snd_attn a = {.heads = HEADS, .kv_heads = HEADS, .scale = 1, .causal = true};
        const snd_id in[] = {net_input(&n, SND_SHAPE(1, T, HEADS), 0), net_input(&n, SND_SHAPE(1, T, HEADS), 0),
                             net_input(&n, SND_SHAPE(1, T, HEADS), 0)};
        net_output(&n, snd_g_attention(n.g, &a, in[0], in[1], in[2], 0, 0, 0));
        net_close_graph(&n, false, 1, 1);
        for (int i = 0; i < 3; i++) CHECK_OK(snd_exec_set(n.exec, in[i], i ? k : q, SND_F64));
        CHECK_OK(snd_exec_run(n.exec));
        net_get(&n, n.y[0], got);
        // the second query: 65400 of either head's key; the third: -65400 and, of the second head, 65700
        for (int i = 0; i < T * HEADS; i++) assert_true(isnan(got[i]) == (half && i == 5));
        net_destroy(&n);
    }
}

static void padding_is_as_if_not_there(void **state) {
    (void)state;
    static const padded cases[] = {
        {"pad encoder", 7, 7, 4, 2, 2, false, 0, SND_ATTN_PLAIN},
        {"pad cross", 5, 9, 1, 4, 2, false, 0, SND_ATTN_PLAIN},
        {"pad causal", 6, 6, 3, 2, 1, true, 0, SND_ATTN_PLAIN},
        {"pad alibi", 7, 7, 5, 2, 2, false, 0, SND_ATTN_ALIBI},
        {"pad t5", 7, 7, 5, 2, 2, false, 0, SND_ATTN_T5},
        {"pad tiles", 70, 150, 66, 2, 2, false, 0, SND_ATTN_PLAIN},
        {"pad tiles, end", 70, 150, 128, 1, 1, false, 0, SND_ATTN_PLAIN},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_padding(&cases[i], SND_F64);
        check_padding(&cases[i], SND_F32);
    }
}

// Queries whose window lies behind the last key give 0 and get no gradient (nor does one that reads a single key).
static void a_window_over_padding_alone_gives_zero(void **state) {
    (void)state;
    const padded p = {"pad window", 200, 200, 20, 1, 1, false, 5, SND_ATTN_PLAIN};
    net n = pad_net(&p, SND_F64, 2, 0);
    for (int k = 0; k < 2; k++) {
        net_get(&n, k ? n.grad[0] : n.y[0], got);
        for (int64_t i = 0; i < 200; i++)
            for (int64_t c = 0; c < PAD_HD; c++) assert_int_equal(got[i * PAD_HD + c] == 0, i - 5 >= 19 - k);
    }
    net_destroy(&n);
}

// ---- numbers that are not finite ------------------------------------------------------------------------------------

// A NaN in one key, value or query: exactly the queries that read it, forward; backward, with a NaN in one row of the
// cotangent, exactly the keys that this query reads.
static void check_nan(const snd_op_case *c, int k, double bad) {
    fill(c, 1, &d);
    const int64_t T = k == Q ? d.Tq : d.Tk, at = T / 2, width = c->in[k].dim[2], n_out = d.Tq * d.a.heads * d.hd;
    for (int64_t i = 0; i < d.hd; i++) d.x[k][at * width + i] = bad; // example 0, head 0
    net n;
    open(c, &d, SND_F32, false, &n, NULL);
    CHECK_OK(snd_exec_run(n.exec));
    net_get(&n, n.y[0], got);
    const int64_t group = d.a.heads / d.a.kv_heads;
    for (int64_t e = 0; e < d.B * n_out; e++) {
        const int64_t b = e / n_out, i = e % n_out / (d.a.heads * d.hd), h = e % (d.a.heads * d.hd) / d.hd;
        const bool hit = b == 0 && (k == Q ? h == 0 && i == at : h < group && reads(&d, i, at));
        if (isfinite(got[e]) != hit) continue;
        fail_msg("%s, %g in input %d: query %d, head %d gives %g", c->label, bad, k, (int)i, (int)h, got[e]);
    }
    net_destroy(&n);
}

static void check_nan_back(const snd_op_case *c) {
    static double dy[NET_MAX];
    fill(c, 1, &d);
    net n;
    open(c, &d, SND_F32, true, &n, NULL);
    const int64_t at = d.Tq / 2, width = d.a.heads * d.hd;
    for (int64_t i = 0; i < net_size(&n, n.y[0]); i++) dy[i] = draw_normal("dy", 0, i);
    for (int64_t i = 0; i < d.hd; i++) dy[at * width + i] = NAN;
    CHECK_OK(snd_exec_set(n.exec, n.dy[0], dy, SND_F64));
    CHECK_OK(snd_exec_run(n.exec));
    for (int k = K; k <= V; k++) {
        net_get(&n, n.grad[k], got);
        for (int64_t e = 0; e < net_size(&n, n.grad[k]); e++) {
            const int64_t key_width = d.a.kv_heads * d.hd, b = e / (d.Tk * key_width), j = e / key_width % d.Tk;
            const bool hit = b == 0 && e % key_width < d.hd && reads(&d, at, j);
            if (isfinite(got[e]) != hit) continue;
            fail_msg("%s, NaN in the cotangent: gradient of input %d, key %d is %g", c->label, k, (int)j, got[e]);
        }
    }
    net_destroy(&n);
}

static void nan_reaches_its_readers(void **state) {
    (void)state;
    for (int i = 0; i < op()->n_cases; i++) {
        const snd_op_case *c = &op()->cases[i];
        for (int k = Q; k <= V; k++) check_nan(c, k, NAN);
        check_nan(c, V, INFINITY);
        check_nan_back(c);
    }
}

// ---- numbers beyond the type ----------------------------------------------------------------------------------------

static double far_value(const net *n, snd_id v, int64_t i, int e) { // element i times 2^-e
    int32_t own;
    const float *raw = snd_exec_raw(n->exec, v, &own);
    return ldexp((double)raw[i], own - e);
}

// q and k times opposite powers of two leave the weights alone; out and the gradients scale with v, dy, q and k.
static void powers_cancel(const snd_op_case *c, int e) {
    static double dy[NET_MAX], want[3][NET_MAX];
    const int power[] = {e, -e, e, 0, e, -e}, grad_power[] = {-e, e, -e};
    net n;
    for (int far = 0; far < 2; far++) {
        fill(c, 1, &d);
        for (int k = 0; far && k < INPUTS; k++)
            for (int i = 0; i < NET_MAX; i++) d.x[k][i] = ldexp(d.x[k][i], power[k]);
        open(c, &d, far ? SND_F32 : SND_F64, true, &n, NULL);
        for (int64_t i = 0; i < net_size(&n, n.y[0]); i++) dy[i] = ldexp(draw_normal("dy", 0, i), far ? -e : 0);
        CHECK_OK(snd_exec_set(n.exec, n.dy[0], dy, SND_F64));
        CHECK_OK(snd_exec_run(n.exec));
        for (int k = 0; k < 4; k++) {
            const snd_id v = k < 3 ? n.grad[k] : n.y[0];
            if (!far) net_get(&n, v, k < 3 ? want[k] : w.out);
            for (int64_t i = 0; far && i < net_size(&n, v); i++) {
                const double x = far_value(&n, v, i, k < 3 ? grad_power[k] : e), y = k < 3 ? want[k][i] : w.out[i];
                if (fabs(x - y) <= 1e-4) continue;
                fail_msg("%s, 2^%d: result %d, element %d is %g, want %g", c->label, e, k, (int)i, x, y);
            }
        }
        net_destroy(&n);
    }
}

// Scores far beyond the type: all weight on the largest.
static void one_hot(const snd_op_case *c, int e) {
    net n;
    fill(c, 1, &d);
    if (d.a.softcap > 0) return;
    for (int i = 0; i < NET_MAX; i++) {
        d.x[Q][i] = ldexp(d.x[Q][i], e);
        d.x[QR][i] = ldexp(d.x[QR][i], e);
    }
    open(c, &d, SND_F32, false, &n, NULL);
    CHECK_OK(snd_exec_run(n.exec));
    for (int64_t b = 0; b < d.B; b++)
        for (int64_t h = 0; h < d.a.heads; h++)
            for (int64_t i = 0; i < d.Tq; i++) {
                int64_t best = -1;
                for (int64_t j = 0; j < d.Tk; j++) {
                    if (reads(&d, i, j) && (best < 0 || score(&d, b, h, i, j) > score(&d, b, h, i, best))) best = j;
                }
                const int64_t kv = h / (d.a.heads / d.a.kv_heads);
                const double *v = d.x[V] + ((b * d.Tk + best) * d.a.kv_heads + kv) * d.hd;
                for (int64_t f = 0; f < d.hd; f++)
                    CHECK_CLOSE(far_value(&n, n.y[0], ((b * d.Tq + i) * d.a.heads + h) * d.hd + f, 0), v[f], 1e-6);
            }
    net_destroy(&n);
}

static void far_from_one(void **state) {
    (void)state;
    for (int i = 0; i < op()->n_cases; i++) {
        const snd_op_case *c = &op()->cases[i];
        for (int e = -200; e <= 200; e += 80) powers_cancel(c, e);
        one_hot(c, 60);
        one_hot(c, 300);
    }
}

// ---- what is refused ------------------------------------------------------------------------------------------------

static void refused(const snd_attn *a, snd_shape q, snd_shape k, snd_shape table, snd_shape r, const char *why) {
    net n = net_open(SND_F64);
    const snd_id iq = net_input(&n, q, 0), ik = net_input(&n, k, 0), it = table.nd ? net_input(&n, table, 0) : 0;
    const snd_id ir = r.nd ? net_input(&n, r, 0) : 0;
    assert_int_equal(snd_g_attention(n.g, a, iq, ik, ik, it, ir ? iq : 0, ir), 0);
    assert_int_not_equal(snd_graph_status(n.g), SONDE_OK);
    if (!strstr(sonde_error_message(), why)) fail_msg("'%s' does not say '%s'", sonde_error_message(), why);
    snd_arena_destroy(n.arena);
}

static void bad_calls(void **state) {
    (void)state;
    const snd_shape x = SND_SHAPE(2, 4, 6), none = {0};
    const snd_attn fine = {.heads = 2, .kv_heads = 2, .scale = 1, .causal = true};
    snd_attn a = fine;
    a.kv_heads = 4;
    refused(&a, x, SND_SHAPE(2, 4, 12), none, none, "2 heads on 4 key heads");
    refused(&fine, SND_SHAPE(2, 4, 5), x, none, none, "multiple of 2 heads");
    refused(&fine, SND_SHAPE(8, 6), x, none, none, "[B, T, features]");
    refused(&fine, x, SND_SHAPE(3, 4, 6), none, none, "do not fit");
    a = fine;
    a.window = 2;
    refused(&a, SND_SHAPE(1, 7, 6), SND_SHAPE(1, 5, 6), none, none, "none of 5 keys");
    a = fine;
    a.scale = NAN;
    refused(&a, x, x, none, none, "must be finite");
    a = fine;
    a.bias = SND_ATTN_T5;
    a.max_distance = 16;
    refused(&a, x, x, none, none, "table");
    refused(&a, x, x, SND_SHAPE(8, 3), none, "[buckets, 2 heads]");
    a.max_distance = 4;
    refused(&a, x, x, SND_SHAPE(8, 2), none, "4 exact ones");
    a.causal = false;
    refused(&a, x, x, SND_SHAPE(3, 2), none, "at least 4");
    refused(&fine, x, x, SND_SHAPE(8, 2), none, "t5");
    a = fine;
    a.bias = SND_ATTN_XL;
    refused(&a, x, x, none, none, "xl");
    refused(&a, x, x, none, SND_SHAPE(5, 6), "must be [4, 6]");
    a.causal = false;
    refused(&a, x, x, none, SND_SHAPE(4, 6), "must be [7, 6]");
}

// The last query of a window's reach is still served.
static void window_just_enough(void **state) {
    (void)state;
    net n = net_open(SND_F64);
    const snd_attn a = {.heads = 1, .kv_heads = 1, .scale = 1, .causal = true, .window = 3};
    const snd_id q = net_input(&n, SND_SHAPE(1, 7, 2), 0), k = net_input(&n, SND_SHAPE(1, 5, 2), 0);
    assert_int_not_equal(snd_g_attention(n.g, &a, q, k, k, 0, 0, 0), 0);
    CHECK_OK(snd_graph_status(n.g));
    snd_arena_destroy(n.arena);
}

// ---- rotary positions -----------------------------------------------------------------------------------------------

static void rope_values(void **state) {
    (void)state;
    enum { B = 2, T = 3, H = 2, HD = 10, ROT = 6, PAST = 4 };
    static double x[B * T * H * HD];
    for (int i = 0; i < B * T * H * HD; i++) x[i] = draw_normal("rope", 0, i);
    for (int interleaved = 0; interleaved < 2; interleaved++) {
        net n = net_open(SND_F64);
        const snd_id in = net_input(&n, SND_SHAPE(B, T, H * HD), 0);
        net_output(&n, snd_g_rope(n.g, in, H, ROT, interleaved != 0, 50, PAST, 0));
        net_close_graph(&n, false, 1, 1);
        CHECK_OK(snd_exec_set(n.exec, in, x, SND_F64));
        CHECK_OK(snd_exec_run(n.exec));
        net_get(&n, n.y[0], got);
        for (int e = 0; e < B * T * H * HD; e++) {
            const int f = e % HD, t = e / (H * HD) % T, i = interleaved ? f / 2 : f % (ROT / 2);
            const bool second = interleaved ? f % 2 == 1 : f >= ROT / 2;
            const int other = interleaved ? 1 : ROT / 2;
            const double angle = (PAST + t) * pow(50, -2.0 * i / ROT);
            const double want = f >= ROT ? x[e]
                                : second ? x[e] * cos(angle) + x[e - other] * sin(angle)
                                         : x[e] * cos(angle) - x[e + other] * sin(angle);
            CHECK_CLOSE(got[e], want, 1e-14);
        }
        net_destroy(&n);
    }
}

static void rope_refused(void **state) {
    (void)state;
    const struct {
        int64_t heads, rotated;
        double theta;
        const char *why;
    } bad[] = {{4, 2, 10, "4 heads"}, {2, 3, 10, "even"}, {2, 4, 10, "at most the head's 3"}, {2, 2, 0, "positive"}};
    for (int i = 0; i < 4; i++) {
        net n = net_open(SND_F64);
        const snd_id x = net_input(&n, SND_SHAPE(1, 2, 6), 0);
        assert_int_equal(snd_g_rope(n.g, x, bad[i].heads, bad[i].rotated, false, bad[i].theta, 0, 0), 0);
        assert_int_not_equal(snd_graph_status(n.g), SONDE_OK);
        if (!strstr(sonde_error_message(), bad[i].why)) fail_msg("'%s'", sonde_error_message());
        snd_arena_destroy(n.arena);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values),
        cmocka_unit_test(statistics_ride_along),
        cmocka_unit_test(padding_is_as_if_not_there),
        cmocka_unit_test(scores_overflow_in_f16),
        cmocka_unit_test(a_window_over_padding_alone_gives_zero),
        cmocka_unit_test(nan_reaches_its_readers),
        cmocka_unit_test(far_from_one),
        cmocka_unit_test(bad_calls),
        cmocka_unit_test(window_just_enough),
        cmocka_unit_test(rope_values),
        cmocka_unit_test(rope_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
