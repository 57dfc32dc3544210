// Every case of every row of ops.def: gradients by central differences with random cotangents, f32 against f64, one to
// three threads bit for bit, the same numbers under other exponents, NaN passing through. Then what each op computes,
// against plain loops, and the integrated linear map against real weights.
#include "graph_common.h"

#include "ops/ops_impl.h"

typedef struct data {
    double x[NET_IN][NET_MAX], dy[2][NET_MAX];
    int64_t target[NET_MAX];
} data;

// ---- one case as a net ----------------------------------------------------------------------------------------------

enum { PLAIN, SAME_VALUE, TWO_EXITS }; // how the op is built in: as it is, all inputs one value, its input used twice

static bool is_target(const snd_op_case *c, int k) {
    return c->target >> k & 1;
}
static bool is_absent(const snd_op_case *c, int k) {
    return c->absent >> k & 1;
}

static snd_shape case_shape(const snd_op_case *c, int k) {
    return snd_shape_make(c->in[k].nd, c->in[k].dim);
}

// Builds case c; false when the way of building does not apply to it.
static bool build(net *n, int op, const snd_op_case *c, int how) {
    snd_id in[SND_CASE_IN] = {0};
    for (int k = 0; k < c->n_in; k++) {
        if (is_absent(c, k)) continue;
        const bool again =
            how == SAME_VALUE && k > 0 && !is_target(c, k) && snd_shape_same(case_shape(c, k), case_shape(c, 0));
        in[k] = again ? in[0] : net_input(n, c->in[k], is_target(c, k) ? SND_I64 : SND_DT_NONE);
    }
    if (how == SAME_VALUE && !(c->n_in > 1 && in[1] == in[0])) return false;
    snd_id t = 0;
    if (how == TWO_EXITS) t = in[0] = snd_g_affine(n->g, 1.5, in[0], 0.25);
    net_output(n, snd_g_op(n->g, op, in, c->n_in, &c->attr, NULL));
    if (t) net_output(n, t);
    return true;
}

static void fill(const net *n, const snd_op_case *c, int op, data *d) {
    for (int k = 0, j = 0; j < n->n_in; k++) {
        if (is_absent(c, k)) continue;
        const int64_t size = net_size(n, n->in[j]);
        assert_true(size <= NET_MAX);
        for (int64_t i = 0; i < size; i++) {
            const double u = draw_uniform(c->label, 100 * op + k, i);
            if (is_target(c, k))
                d->target[i] = i % 4 == 3 && !c->all_count ? -100 : (int64_t)(u * (double)c->classes);
            else
                d->x[j][i] = c->lo == c->hi ? draw_normal(c->label, 100 * op + k, i) : c->lo + u * (c->hi - c->lo);
        }
        j++;
    }
    for (int k = 0; k < n->n_y; k++) {
        for (int64_t i = 0; i < net_size(n, n->y[k]); i++) d->dy[k][i] = draw_normal("dy", 100 * op + k, i);
    }
}

static void set_all(const net *n, const data *d) {
    for (int j = 0; j < n->n_in; j++) {
        const bool target = snd_g_value(n->g, n->in[j])->dtype == SND_I64;
        CHECK_OK(
            snd_exec_set(n->exec, n->in[j], target ? (const void *)d->target : d->x[j], target ? SND_I64 : SND_F64));
    }
    for (int k = 0; k < n->n_y; k++) CHECK_OK(snd_exec_set(n->exec, n->dy[k], d->dy[k], SND_F64));
}

static double loss(const net *n, const data *d) {
    static double y[NET_MAX];
    double sum = 0;
    CHECK_OK(snd_exec_run(n->exec));
    for (int k = 0; k < n->n_y; k++) {
        net_get(n, n->y[k], y);
        for (int64_t i = 0; i < net_size(n, n->y[k]); i++) sum += y[i] * d->dy[k][i];
    }
    return sum;
}

// ---- gradients ------------------------------------------------------------------------------------------------------

// Fourth-order central difference by element i of input j: error about h^4, noise about 1e-16/h.
static double difference(const net *n, data *d, int j, int64_t i) {
    static const double at[] = {1, -1, 2, -2}, weight[] = {8, -8, -1, 1};
    const double x = d->x[j][i], h = 1e-3;
    double sum = 0;
    for (int k = 0; k < 4; k++) {
        d->x[j][i] = x + at[k] * h;
        CHECK_OK(snd_exec_set(n->exec, n->in[j], d->x[j], SND_F64));
        sum += weight[k] * loss(n, d);
    }
    d->x[j][i] = x;
    CHECK_OK(snd_exec_set(n->exec, n->in[j], d->x[j], SND_F64));
    return sum / (12 * h);
}

enum { SAMPLES = 24 };

static void check_input(const net *n, data *d, int j, const char *what) {
    static double g[NET_MAX];
    const int64_t size = net_size(n, n->in[j]), step = size > SAMPLES ? size / SAMPLES : 1;
    CHECK_OK(snd_exec_run(n->exec));
    if (n->grad[j])
        net_get(n, n->grad[j], g);
    else
        memset(g, 0, sizeof g);
    double rms = 0;
    for (int64_t i = 0; i < size; i++) rms += g[i] * g[i] / (double)size;
    rms = sqrt(rms);
    for (int64_t i = 0; i < size; i += step) {
        const double want = difference(n, d, j, i);
        if (fabs(g[i] - want) <= 1e-8 * fmax(rms, 1e-3)) continue;
        fail_msg("%s: gradient of input %d, element %lld: got %.15g, differences say %.15g", what, j, (long long)i,
                 g[i], want);
    }
}

static void check_case(int op, const snd_op_case *c, int how) {
    static data d;
    net n = net_open(SND_F64);
    if (build(&n, op, c, how)) {
        char what[128];
        snprintf(what, sizeof what, "%s, %s%s", snd_op_info_at(op)->name, c->label,
                 how == SAME_VALUE  ? ", inputs the same"
                 : how == TWO_EXITS ? ", two exits"
                                    : "");
        net_close_graph(&n, true, 1, 3);
        fill(&n, c, op, &d);
        set_all(&n, &d);
        for (int j = 0; j < n.n_in; j++) {
            if (snd_g_value(n.g, n.in[j])->dtype != SND_I64) check_input(&n, &d, j, what);
        }
    }
    net_destroy(&n);
}

typedef void case_fn(int op, const snd_op_case *c);

static void each_case(case_fn *fn) {
    for (int op = 1; op < SND_OP_COUNT; op++) {
        const snd_op_info *info = snd_op_info_at(op);
        for (int i = 0; i < info->n_cases; i++) fn(op, &info->cases[i]);
    }
}

static void gradient_case(int op, const snd_op_case *c) {
    if (!snd_op_info_at(op)->grad) return;
    check_case(op, c, PLAIN);
    check_case(op, c, SAME_VALUE);
    check_case(op, c, TWO_EXITS);
}

static void gradients(void **state) {
    (void)state;
    each_case(gradient_case);
}

// ---- the same case run in several ways ------------------------------------------------------------------------------

enum { RESULTS = NET_IN + 2 };
typedef struct result {
    double v[RESULTS][NET_MAX];
    int64_t size[RESULTS];
    int n;
} result;

static void collect(const net *n, result *r) {
    r->n = 0;
    for (int k = 0; k < n->n_y; k++) {
        r->size[r->n] = net_size(n, n->y[k]);
        net_get(n, n->y[k], r->v[r->n++]);
    }
    for (int j = 0; j < n->n_in; j++) {
        if (!n->grad[j]) continue;
        r->size[r->n] = net_size(n, n->grad[j]);
        net_get(n, n->grad[j], r->v[r->n++]);
    }
}

// Runs with every float input stored under exponent `shift` when bit j of `which` is set.
static void run_case(int op, const snd_op_case *c, snd_dtype t, int threads, unsigned which, int shift, result *r) {
    static data d;
    net n = net_open(t);
    build(&n, op, c, PLAIN);
    net_close_graph(&n, snd_op_info_at(op)->grad != NULL, threads, 3);
    fill(&n, c, op, &d);
    set_all(&n, &d);
    for (int j = 0; j < n.n_in; j++) {
        if (which >> j & 1 && snd_g_value(n.g, n.in[j])->dtype == t) snd_exec_shift(n.exec, n.in[j], shift);
    }
    if (which >> n.n_in & 1) snd_exec_shift(n.exec, n.dy[0], shift);
    CHECK_OK(snd_exec_run(n.exec));
    collect(&n, r);
    net_destroy(&n);
}

static void compare(const result *got, const result *want, double tol, const char *op, const char *label,
                    const char *how) {
    assert_int_equal(got->n, want->n);
    for (int k = 0; k < want->n; k++) {
        double scale = 0;
        for (int64_t i = 0; i < want->size[k]; i++) scale = fmax(scale, fabs(want->v[k][i]));
        for (int64_t i = 0; i < want->size[k]; i++) {
            if (got->v[k][i] == want->v[k][i] || fabs(got->v[k][i] - want->v[k][i]) <= tol * scale) continue;
            fail_msg("%s, %s, %s: result %d, element %lld: got %.17g, want %.17g", op, label, how, k, (long long)i,
                     got->v[k][i], want->v[k][i]);
        }
    }
}

static result base, other;

static void threads_case(int op, const snd_op_case *c) {
    for (int t = 0; t < 2; t++) {
        run_case(op, c, t ? SND_F32 : SND_F64, 1, 0, 0, &base);
        for (int th = 2; th <= 3; th++) {
            run_case(op, c, t ? SND_F32 : SND_F64, th, 0, 0, &other);
            compare(&other, &base, 0, snd_op_info_at(op)->name, c->label, "threads");
        }
    }
}

static void precision_case(int op, const snd_op_case *c) {
    run_case(op, c, SND_F64, 1, 0, 0, &base);
    run_case(op, c, SND_F32, 1, 0, 0, &other);
    compare(&other, &base, 2e-4, snd_op_info_at(op)->name, c->label, "f32 against f64");
}

static void exponents_case(int op, const snd_op_case *c) {
    char how[64];
    run_case(op, c, SND_F64, 1, 0, 0, &base);
    for (unsigned which = 1; which < 16; which++) {
        for (int shift = -90; shift <= 90; shift += 60) {
            run_case(op, c, SND_F64, 1, which, shift, &other);
            snprintf(how, sizeof how, "inputs %#x times 2^-%d and exponent %d", which, shift, shift);
            compare(&other, &base, 1e-13, snd_op_info_at(op)->name, c->label, how);
        }
    }
    run_case(op, c, SND_F32, 1, 0, 0, &base);
    for (int shift = -25; shift <= 25; shift += 50) {
        run_case(op, c, SND_F32, 1, 15, shift, &other);
        compare(&other, &base, 2e-5, snd_op_info_at(op)->name, c->label, "f32 under another exponent");
    }
}

static void threads_agree(void **state) {
    (void)state;
    each_case(threads_case);
}
static void types_agree(void **state) {
    (void)state;
    each_case(precision_case);
}
static void exponents_agree(void **state) {
    (void)state;
    each_case(exponents_case);
}

static void nan_case(int op, const snd_op_case *c) {
    static data d;
    static const double bad[] = {NAN, INFINITY};
    if (!snd_op_info_at(op)->grad || op == SND_OP_STOP) return;
    for (int k = 0; k < 2; k++) {
        net n = net_open(SND_F32);
        build(&n, op, c, PLAIN);
        net_close_graph(&n, true, 1, 3);
        fill(&n, c, op, &d);
        const int64_t size = net_size(&n, n.in[0]);
        for (int64_t i = 0; k == 0 && i < size; i++) d.x[0][i] = bad[k];
        set_all(&n, &d);
        CHECK_OK(snd_exec_run(n.exec));
        collect(&n, &base);
        int64_t nonfinite = 0;
        for (int64_t i = 0; i < base.size[0]; i++) nonfinite += !isfinite(base.v[0][i]);
        if (k == 0 && nonfinite == 0) fail_msg("%s, %s: NaN in, none out", snd_op_info_at(op)->name, c->label);
        if (k == 1 && nonfinite != 0) fail_msg("%s, %s: NaN out, none in", snd_op_info_at(op)->name, c->label);
        net_destroy(&n);
    }
}

static void nan_passes(void **state) {
    (void)state;
    each_case(nan_case);
}

// ---- what the ops compute, against plain loops ----------------------------------------------------------------------

// Element of a broadcast operand at flat index i of `out`.
static int64_t bcast_index(snd_shape s, snd_shape out, int64_t i) {
    int64_t at = 0, stride = 1;
    for (int k = 0; k < out.nd; k++) {
        const int64_t d = out.dim[out.nd - 1 - k], c = i % d, own = k < s.nd ? s.dim[s.nd - 1 - k] : 1;
        i /= d;
        if (own > 1) at += c * stride;
        stride *= own;
    }
    return at;
}

static double binary_want(int op, const snd_attr *a, double x, double y) {
    switch (op) {
    case SND_OP_LIN: return a->f[0] * x + a->f[1] * y;
    case SND_OP_MUL: return a->f[0] * x * y;
    case SND_OP_DIV: return a->f[0] * x / y;
    case SND_OP_MIN: return x < y ? x : y;
    default: return x > y ? x : y;
    }
}

static void forward_case(int op, const snd_op_case *c) {
    static data d;
    static double y[NET_MAX];
    const bool binary =
        op == SND_OP_LIN || op == SND_OP_MUL || op == SND_OP_DIV || op == SND_OP_MIN || op == SND_OP_MAX;
    if (!binary && op != SND_OP_UNARY && op != SND_OP_AFFINE) return;
    net n = net_open(SND_F64);
    build(&n, op, c, PLAIN);
    net_close_graph(&n, false, 1, 3);
    fill(&n, c, op, &d);
    set_all(&n, &d);
    CHECK_OK(snd_exec_run(n.exec));
    if (c->lo < 700) net_get(&n, n.y[0], y);
    const snd_shape out = snd_g_value(n.g, n.y[0])->shape;
    for (int64_t i = 0; c->lo < 700 && i < snd_shape_size(out); i++) {
        double want;
        if (op == SND_OP_UNARY)
            want = snd_k_fn((snd_kfn)c->attr.i[0], d.x[0][i]);
        else if (op == SND_OP_AFFINE)
            want = c->attr.f[0] * d.x[0][i] + c->attr.f[1];
        else
            want = binary_want(op, &c->attr, d.x[0][bcast_index(case_shape(c, 0), out, i)],
                               d.x[1][bcast_index(case_shape(c, 1), out, i)]);
        CHECK_CLOSE(y[i], want, 1e-13);
    }
    net_destroy(&n);
}

static void elementwise_values(void **state) {
    (void)state;
    each_case(forward_case);
}

// A net of one node built by `make` on inputs of the given shapes; results in out.
typedef snd_id make_fn(snd_graph *g, const snd_id *in);
static double xin[4][NET_MAX], yout[NET_MAX];

static void compute(make_fn *make, int n_in, const snd_shape *shapes) {
    net n = net_open(SND_F64);
    for (int k = 0; k < n_in; k++) {
        net_input(&n, shapes[k], SND_DT_NONE);
        for (int64_t i = 0; i < net_size(&n, n.in[k]); i++) xin[k][i] = draw_normal("compute", k, i);
    }
    net_output(&n, make(n.g, n.in));
    net_close_graph(&n, false, 1, 3);
    for (int k = 0; k < n_in; k++) CHECK_OK(snd_exec_set(n.exec, n.in[k], xin[k], SND_F64));
    CHECK_OK(snd_exec_run(n.exec));
    net_get(&n, n.y[0], yout);
    net_destroy(&n);
}

static snd_id make_linear(snd_graph *g, const snd_id *in) {
    return snd_g_linear(g, in[0], in[1]);
}
static snd_id make_layer(snd_graph *g, const snd_id *in) {
    return snd_g_layernorm(g, in[0], in[1], in[2], 1e-2, true);
}
static snd_id make_rms(snd_graph *g, const snd_id *in) {
    return snd_g_rmsnorm(g, in[0], in[1], 0, 1e-2, false);
}
static snd_id make_unit(snd_graph *g, const snd_id *in) {
    return snd_g_unit(g, in[0], 3);
}
static snd_id make_batch(snd_graph *g, const snd_id *in) {
    return snd_g_batchnorm(g, in[0], in[1], in[2], 1e-2, false, 0, 0, 0.1, NULL, NULL);
}
static snd_id make_eval(snd_graph *g, const snd_id *in) {
    return snd_g_batchnorm_eval(g, in[0], in[1], in[2], 1e-2, true, in[1], snd_g_mul(g, in[2], in[2]));
}
static snd_id make_dot(snd_graph *g, const snd_id *in) {
    return snd_g_rowdot(g, in[0], in[1]);
}
static snd_id make_rowrms(snd_graph *g, const snd_id *in) {
    return snd_g_rowrms(g, in[0]);
}
static snd_id make_softmax(snd_graph *g, const snd_id *in) {
    return snd_g_softmax(g, in[0]);
}
static snd_id make_wsum(snd_graph *g, const snd_id *in) {
    return snd_g_wsum(g, in[0], in + 1, 2);
}
static snd_id make_concat(snd_graph *g, const snd_id *in) {
    return snd_g_slice(g, snd_g_concat(g, in, 2), 1, 3); // last two columns of the first, first of the second
}

static void linear_values(void **state) {
    (void)state;
    compute(make_linear, 2, (snd_shape[]){SND_SHAPE(5, 7), SND_SHAPE(3, 7)});
    for (int r = 0; r < 5; r++) {
        for (int o = 0; o < 3; o++) {
            double want = 0;
            for (int k = 0; k < 7; k++) want += xin[0][r * 7 + k] * xin[1][o * 7 + k];
            CHECK_CLOSE(yout[r * 3 + o], want, 1e-14);
        }
    }
}

static void norm_values(void **state) {
    (void)state;
    enum { R = 3, D = 5 };
    for (int kind = 0; kind < 3; kind++) {
        make_fn *const make[] = {make_layer, make_rms, make_unit};
        compute(make[kind], 3, (snd_shape[]){SND_SHAPE(R, D), SND_SHAPE(D), SND_SHAPE(D)});
        for (int r = 0; r < R; r++) {
            const double *x = xin[0] + r * D;
            double m = 0, v = 0;
            for (int j = 0; kind == 0 && j < D; j++) m += x[j] / D;
            for (int j = 0; j < D; j++) v += (x[j] - m) * (x[j] - m);
            for (int j = 0; j < D; j++) {
                double want = (x[j] - m) / sqrt(v / D + 1e-2) * (xin[1][j] + (kind == 0));
                if (kind == 0) want += xin[2][j];
                if (kind == 2) want = 3 * x[j] / sqrt(v);
                CHECK_CLOSE(yout[r * D + j], want, 1e-13);
            }
        }
    }
}

static void batchnorm_values(void **state) {
    (void)state;
    enum { R = 6, D = 4 };
    compute(make_batch, 3, (snd_shape[]){SND_SHAPE(2, 3, D), SND_SHAPE(D), SND_SHAPE(D)});
    for (int j = 0; j < D; j++) {
        double m = 0, v = 0;
        for (int r = 0; r < R; r++) m += xin[0][r * D + j] / R;
        for (int r = 0; r < R; r++) v += pow(xin[0][r * D + j] - m, 2) / R;
        for (int r = 0; r < R; r++)
            CHECK_CLOSE(yout[r * D + j], (xin[0][r * D + j] - m) / sqrt(v + 1e-2) * xin[1][j] + xin[2][j], 1e-13);
    }
    compute(make_eval, 3, (snd_shape[]){SND_SHAPE(R, D), SND_SHAPE(D), SND_SHAPE(D)});
    for (int i = 0; i < R * D; i++) {
        const double g = xin[1][i % D], b = xin[2][i % D];
        CHECK_CLOSE(yout[i], (xin[0][i] - g) / sqrt(b * b + 1e-2) * (g + 1) + b, 1e-13);
    }
}

static void running_averages(void **state) {
    (void)state;
    enum { R = 6, D = 4 };
    double x[R * D], m[D] = {1, 2, 3, 4}, v[D] = {0.5, 1, 2, 3}, got[D];
    for (int shift = -80; shift <= 80; shift += 80) {
        net n = net_open(SND_F64);
        const snd_id ix = net_input(&n, SND_SHAPE(R, D), 0), im = net_input(&n, SND_SHAPE(D), 0),
                     iv = net_input(&n, SND_SHAPE(D), 0);
        snd_id nm, nv;
        snd_g_batchnorm(n.g, ix, 0, 0, 1e-5, false, im, iv, 0.1, &nm, &nv);
        net_output(&n, nm);
        net_output(&n, nv);
        net_close_graph(&n, false, 1, 3);
        for (int i = 0; i < R * D; i++) x[i] = draw_normal("running", 0, i);
        CHECK_OK(snd_exec_set(n.exec, ix, x, SND_F64));
        CHECK_OK(snd_exec_set(n.exec, im, m, SND_F64));
        CHECK_OK(snd_exec_set(n.exec, iv, v, SND_F64));
        snd_exec_shift(n.exec, ix, shift);
        CHECK_OK(snd_exec_run(n.exec));
        for (int j = 0; j < D; j++) {
            double bm = 0, bv = 0;
            for (int r = 0; r < R; r++) bm += x[r * D + j] / R;
            for (int r = 0; r < R; r++) bv += pow(x[r * D + j] - bm, 2) / (R - 1);
            net_get(&n, nm, got);
            CHECK_CLOSE(got[j], 0.9 * m[j] + 0.1 * bm, 1e-14);
            net_get(&n, nv, got);
            CHECK_CLOSE(got[j], 0.9 * v[j] + 0.1 * bv, 1e-14);
        }
        net_destroy(&n);
    }
}

static void row_values(void **state) {
    (void)state;
    enum { R = 4, D = 6 };
    compute(make_dot, 2, (snd_shape[]){SND_SHAPE(R, D), SND_SHAPE(D)}); // the second operand broadcasts
    for (int r = 0; r < R; r++) {
        double want = 0;
        for (int j = 0; j < D; j++) want += xin[0][r * D + j] * xin[1][j];
        CHECK_CLOSE(yout[r], want, 1e-14);
    }
    compute(make_rowrms, 1, (snd_shape[]){SND_SHAPE(R, D)});
    for (int r = 0; r < R; r++) {
        double want = 0;
        for (int j = 0; j < D; j++) want += xin[0][r * D + j] * xin[0][r * D + j] / D;
        CHECK_CLOSE(yout[r], sqrt(want), 1e-14);
    }
    compute(make_softmax, 1, (snd_shape[]){SND_SHAPE(R, D)});
    for (int i = 0; i < R * D; i++) {
        double sum = 0;
        for (int j = 0; j < D; j++) sum += exp(xin[0][i / D * D + j]);
        CHECK_CLOSE(yout[i], exp(xin[0][i]) / sum, 1e-14);
    }
}

static void join_values(void **state) {
    (void)state;
    compute(make_wsum, 3, (snd_shape[]){SND_SHAPE(4, 2), SND_SHAPE(4, 3), SND_SHAPE(4, 3)});
    for (int i = 0; i < 12; i++)
        CHECK_CLOSE(yout[i], xin[0][i / 3 * 2] * xin[1][i] + xin[0][i / 3 * 2 + 1] * xin[2][i], 1e-14);
    compute(make_concat, 2, (snd_shape[]){SND_SHAPE(4, 3), SND_SHAPE(4, 2)});
    for (int r = 0; r < 4; r++) {
        CHECK_SAME(yout[r * 3], xin[0][r * 3 + 1]);
        CHECK_SAME(yout[r * 3 + 1], xin[0][r * 3 + 2]);
        CHECK_SAME(yout[r * 3 + 2], xin[1][r * 2]);
    }
}

static void xent_value(void **state) {
    (void)state;
    enum { R = 4, V = 3 };
    const int64_t target[R] = {2, -100, 0, 1};
    double x[R * V], got, want = 0;
    net n = net_open(SND_F64);
    const snd_id ix = net_input(&n, SND_SHAPE(R, V), 0), it = net_input(&n, SND_SHAPE(R), SND_I64);
    net_output(&n, snd_g_xent(n.g, ix, it));
    net_close_graph(&n, false, 1, 3);
    for (int i = 0; i < R * V; i++) x[i] = draw_normal("xent", 0, i);
    CHECK_OK(snd_exec_set(n.exec, ix, x, SND_F64));
    CHECK_OK(snd_exec_set(n.exec, it, target, SND_I64));
    CHECK_OK(snd_exec_run(n.exec));
    net_get(&n, n.y[0], &got);
    for (int r = 0; r < R; r++) {
        if (target[r] < 0) continue;
        double sum = 0;
        for (int j = 0; j < V; j++) sum += exp(x[r * V + j]);
        want += (log(sum) - x[r * V + target[r]]) / 3;
    }
    CHECK_CLOSE(got, want, 1e-14);
    const int64_t beyond[R] = {2, 3, 0, 1}; // there is no class 3
    CHECK_OK(snd_exec_set(n.exec, it, beyond, SND_I64));
    CHECK_OK(snd_exec_run(n.exec));
    net_get(&n, n.y[0], &got);
    assert_true(isnan(got));
    net_destroy(&n);
}

static void embed_values(void **state) {
    (void)state;
    enum { V = 4, D = 3, R = 5 };
    int64_t tokens[R] = {2, 0, 2, 3, 2};
    double table[V * D], dy[R * D], y[R * D], sum[V * D] = {0}, dtable[V * D];
    net n = net_open(SND_F64);
    const snd_id it = net_input(&n, SND_SHAPE(V, D), 0), ix = net_input(&n, SND_SHAPE(R), SND_I64);
    net_output(&n, snd_g_embed(n.g, it, ix));
    net_close_graph(&n, true, 1, 3);
    for (int i = 0; i < V * D; i++) table[i] = draw_normal("embed", 0, i);
    for (int i = 0; i < R * D; i++) dy[i] = draw_normal("embed", 1, i);
    CHECK_OK(snd_exec_set(n.exec, it, table, SND_F64));
    CHECK_OK(snd_exec_set(n.exec, ix, tokens, SND_I64));
    CHECK_OK(snd_exec_set(n.exec, n.dy[0], dy, SND_F64));
    CHECK_OK(snd_exec_run(n.exec));
    net_get(&n, n.y[0], y);
    net_get(&n, n.grad[0], dtable);
    for (int i = 0; i < R * D; i++) {
        CHECK_SAME(y[i], table[tokens[i / D] * D + i % D]);
        sum[tokens[i / D] * D + i % D] += dy[i];
    }
    for (int i = 0; i < V * D; i++) CHECK_CLOSE(dtable[i], sum[i], 1e-15);
    tokens[1] = V; // no such token: its row is NaN, the others stay
    CHECK_OK(snd_exec_set(n.exec, ix, tokens, SND_I64));
    CHECK_OK(snd_exec_run(n.exec));
    net_get(&n, n.y[0], y);
    for (int i = 0; i < R * D; i++) assert_int_equal(isnan(y[i]), i / D == 1);
    net_destroy(&n);
}

static snd_id make_places(snd_graph *g, const snd_id *in) {
    return snd_g_lin(g, 1, snd_g_sinusoid(g, 4, 6, 3, false), 0, in[0]);
}
static snd_id make_halves(snd_graph *g, const snd_id *in) {
    return snd_g_lin(g, 1, snd_g_sinusoid(g, 4, 6, -2, true), 0, in[0]);
}

static void sinusoid_values(void **state) {
    (void)state;
    enum { R = 4, D = 6 };
    for (int halves = 0; halves < 2; halves++) {
        compute(halves ? make_halves : make_places, 1, (snd_shape[]){SND_SHAPE(R, D)});
        for (int i = 0; i < R * D; i++) {
            const int j = i % D, pair = halves ? j % 3 : j / 2, p = i / D + (halves ? -2 : 3);
            const double angle = p / pow(10000, 2.0 * pair / D);
            const bool sine = halves ? j < 3 : j % 2 == 0;
            CHECK_CLOSE(yout[i], sine ? sin(angle) : cos(angle), 1e-14);
        }
    }
}

// ---- numbers beyond the type ----------------------------------------------------------------------------------------

// f applied in an f32 graph to 2^e times moderate numbers: log2 of the result.
static double far_value(snd_kfn f, double x, int e) {
    net n = net_open(SND_F32);
    const snd_id in = net_input(&n, SND_SHAPE(1), 0);
    net_output(&n, snd_g_unary(n.g, f, in));
    net_close_graph(&n, false, 1, 1);
    const double v = ldexp(x, e);
    CHECK_OK(snd_exec_set(n.exec, in, &v, SND_F64));
    CHECK_OK(snd_exec_run(n.exec));
    int32_t ey;
    const float *raw = snd_exec_raw(n.exec, n.y[0], &ey);
    const double log2_y = log2(fabs((double)*raw)) + ey;
    net_destroy(&n);
    return log2_y;
}

static void far_from_one(void **state) {
    (void)state;
    const double tol = 1e-6;
    CHECK_CLOSE(far_value(SND_KFN_GELU, 1.5, 300), log2(1.5) + 300, tol);
    CHECK_CLOSE(far_value(SND_KFN_SILU, 1.5, 60), log2(1.5) + 60, tol);
    CHECK_CLOSE(far_value(SND_KFN_SOFTPLUS, 1.5, 900), log2(1.5) + 900, tol);
    CHECK_CLOSE(far_value(SND_KFN_GELU, -1.5, -300), log2(0.75) - 300, tol);
    CHECK_CLOSE(far_value(SND_KFN_SILU, 1.5, -200), log2(0.75) - 200, tol);
    CHECK_CLOSE(far_value(SND_KFN_TANH, 1.5, -200), log2(1.5) - 200, tol);
    CHECK_CLOSE(far_value(SND_KFN_ERF, 1.5, -200), log2(1.5 * 2 / sqrt(M_PI)) - 200, tol);
    CHECK_CLOSE(far_value(SND_KFN_TANH, 1.5, 300), 0, tol);
    CHECK_CLOSE(far_value(SND_KFN_SIGMOID, 1.5, 300), 0, tol);
    CHECK_CLOSE(far_value(SND_KFN_SIGMOID, 1.5, -300), -1, tol);
    CHECK_CLOSE(far_value(SND_KFN_SQRT, 1.5, 301), (log2(1.5) + 301) / 2, tol);
    CHECK_CLOSE(far_value(SND_KFN_SQRT, 1.5, -301), (log2(1.5) - 301) / 2, tol);
    CHECK_CLOSE(far_value(SND_KFN_LOG, 1.5, 300), log2((log2(1.5) + 300) * M_LN2), tol);
    CHECK_CLOSE(far_value(SND_KFN_EXP, 1, 9), 512 / M_LN2, 1e-6);
    CHECK_CLOSE(far_value(SND_KFN_EXP, -1, 9), -512 / M_LN2, 1e-6);
    CHECK_CLOSE(far_value(SND_KFN_ABS, -1.5, 900), log2(1.5) + 900, tol);
    CHECK_CLOSE(far_value(SND_KFN_RELU, 1.5, -900), log2(1.5) - 900, tol);
}

// y = norm(x), with dx, for x and dy times powers of two, in f32 against the same in f64 with long-range arithmetic.
static void norm_far(snd_knorm kind, bool batch, int ex, double bias) {
    enum { R = 4, D = 8 };
    double x[R * D], dy[R * D], y[2][R * D], dx[2][R * D], b[D];
    for (int i = 0; i < R * D; i++) {
        x[i] = ldexp(draw_normal("far", 0, i), ex);
        dy[i] = draw_normal("far", 1, i);
    }
    for (int j = 0; j < D; j++) b[j] = bias;
    for (int t = 0; t < 2; t++) {
        net n = net_open(t ? SND_F32 : SND_F64);
        const snd_id ix = net_input(&n, SND_SHAPE(R, D), 0), ib = net_input(&n, SND_SHAPE(D), 0);
        snd_id v;
        if (batch)
            v = snd_g_batchnorm(n.g, ix, 0, ib, 1e-5, false, 0, 0, 0.1, NULL, NULL);
        else if (kind == SND_KNORM_LAYER)
            v = snd_g_layernorm(n.g, ix, 0, ib, 1e-5, false);
        else if (kind == SND_KNORM_RMS)
            v = snd_g_rmsnorm(n.g, ix, 0, ib, 1e-5, false);
        else
            v = snd_g_unit(n.g, ix, 1.5);
        net_output(&n, v);
        net_close_graph(&n, true, 1, 1);
        CHECK_OK(snd_exec_set(n.exec, ix, x, SND_F64));
        CHECK_OK(snd_exec_set(n.exec, ib, b, SND_F64));
        CHECK_OK(snd_exec_set(n.exec, n.dy[0], dy, SND_F64));
        CHECK_OK(snd_exec_run(n.exec));
        net_get(&n, v, y[t]);
        net_get(&n, n.grad[0], dx[t]);
        net_destroy(&n);
    }
    double sy = 0, sx = 0;
    for (int i = 0; i < R * D; i++) {
        sy = fmax(sy, fabs(y[0][i]));
        sx = fmax(sx, fabs(dx[0][i]));
    }
    assert_true(sy > 0 && sx > 0);
    for (int i = 0; i < R * D; i++) {
        CHECK_CLOSE(y[1][i] / sy, y[0][i] / sy, 1e-5);
        CHECK_CLOSE(dx[1][i] / sx, dx[0][i] / sx, 1e-5);
    }
}

static void norms_far_from_one(void **state) {
    (void)state;
    for (int e = -300; e <= 300; e += 50) {
        for (int bias = 0; bias < 2; bias++) {
            norm_far(SND_KNORM_LAYER, false, e, bias);
            norm_far(SND_KNORM_RMS, false, e, bias);
            norm_far(SND_KNORM_UNIT, false, e, bias);
            norm_far(SND_KNORM_LAYER, true, e, bias);
        }
    }
}

// Sums, products and joins of numbers of very different size, f32 against doubles.
static snd_id make_mixed(snd_graph *g, const snd_id *in, int which) {
    const snd_id a = snd_g_lin(g, 1, in[0], 2, in[1]), b = snd_g_affine(g, 1, in[2], 3);
    switch (which) {
    case 0: return snd_g_max(g, a, b);
    case 1: return snd_g_mul(g, in[0], in[1]);
    case 2: return snd_g_div(g, in[2], in[0]);
    case 3: return snd_g_concat(g, (snd_id[]){a, b}, 2);
    default: return snd_g_sub(g, in[2], in[1]);
    }
}

static double mixed_want(int which, int i, double x[3][4]) {
    const double a = x[0][i % 4] + 2 * x[1][i % 4], b = x[2][i % 4] + 3;
    switch (which) {
    case 0: return fmax(a, b);
    case 1: return x[0][i] * x[1][i];
    case 2: return x[2][i] / x[0][i];
    case 3: return i < 4 ? a : b;
    default: return x[2][i] - x[1][i];
    }
}

static void mixed_sizes(void **state) {
    (void)state;
    static const double size[][3] = {{1e30, 1e-30, 1}, {1e-30, 1e-35, 1e-32}, {1e200, 1e100, 1e-50},
                                     {2, 1e-60, 1e40}, {1e-60, 0, 1e-60},     {0, 1e-60, 1e-70}};
    for (int k = 0; k < 30; k++) {
        if (k == 27) continue; // 1e-70/0
        net n = net_open(SND_F32);
        double got[8], x[3][4], top = 0;
        for (int j = 0; j < 3; j++) {
            net_input(&n, SND_SHAPE(4), 0);
            for (int i = 0; i < 4; i++) x[j][i] = size[k / 5][j] * (1 + 0.25 * i);
        }
        net_output(&n, make_mixed(n.g, n.in, k % 5));
        net_close_graph(&n, false, 1, 1);
        for (int j = 0; j < 3; j++) CHECK_OK(snd_exec_set(n.exec, n.in[j], x[j], SND_F64));
        CHECK_OK(snd_exec_run(n.exec));
        net_get(&n, n.y[0], got);
        const int64_t size_y = net_size(&n, n.y[0]);
        for (int i = 0; i < size_y; i++) top = fmax(top, fabs(mixed_want(k % 5, i, x)));
        for (int i = 0; i < size_y; i++)
            CHECK_CLOSE(got[i] / (top + 1e-300), mixed_want(k % 5, i, x) / (top + 1e-300), 1e-6);
        net_destroy(&n);
    }
}

// f(c x) = c^degree f(x) for all inputs scaled by c, and then f'(c x) = c^(degree-1) f'(x): with c = 2^200 in f32.
static int degree_of(int op, const snd_op_case *c) {
    switch (op) {
    case SND_OP_LINEAR: return c->n_in == 2 ? 2 : -1;
    case SND_OP_MUL:
    case SND_OP_ROWDOT:
    case SND_OP_LINEAR_DX:
    case SND_OP_WSUM: return 2;
    case SND_OP_DIV: return 0;
    case SND_OP_LIN:
    case SND_OP_MIN:
    case SND_OP_MAX:
    case SND_OP_ROWRMS:
    case SND_OP_SUM_TO:
    case SND_OP_EXPAND:
    case SND_OP_CONCAT:
    case SND_OP_SLICE:
    case SND_OP_PAD:
    case SND_OP_RESHAPE: return 1;
    case SND_OP_AFFINE: return c->attr.f[1] == 0 ? 1 : -1;
    case SND_OP_UNARY: return c->attr.i[0] == SND_KFN_RELU || c->attr.i[0] == SND_KFN_ABS ? 1 : -1;
    default: return -1;
    }
}

static void check_scaled(const net *n, snd_id v, const double *want, int shift, const char *what) {
    int32_t e;
    const float *raw = snd_exec_raw(n->exec, v, &e);
    double top = 0;
    for (int64_t i = 0; i < net_size(n, v); i++) top = fmax(top, fabs(want[i]));
    for (int64_t i = 0; i < net_size(n, v); i++) {
        const double got = ldexp((double)raw[i], e - shift);
        if (fabs(got - want[i]) <= 3e-5 * top) continue;
        fail_msg("%s: element %lld is %g times 2^%d, want %g", what, (long long)i, got, shift, want[i]);
    }
}

static void scaled_case(int op, const snd_op_case *c) {
    static data d;
    const int degree = degree_of(op, c);
    if (degree < 0) return;
    run_case(op, c, SND_F64, 1, 0, 0, &base);
    for (int shift = -200; shift <= 200; shift += 400) {
        net n = net_open(SND_F32);
        build(&n, op, c, PLAIN);
        net_close_graph(&n, true, 1, 3);
        fill(&n, c, op, &d);
        for (int j = 0; j < n.n_in; j++) {
            for (int64_t i = 0; i < net_size(&n, n.in[j]); i++) d.x[j][i] = ldexp(d.x[j][i], shift);
        }
        set_all(&n, &d);
        CHECK_OK(snd_exec_run(n.exec));
        check_scaled(&n, n.y[0], base.v[0], degree * shift, snd_op_info_at(op)->name);
        for (int j = 0; j < n.n_in; j++)
            check_scaled(&n, n.grad[j], base.v[1 + j], (degree - 1) * shift, snd_op_info_at(op)->name);
        net_destroy(&n);
    }
}

static void homogeneous_far_out(void **state) {
    (void)state;
    each_case(scaled_case);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients),           cmocka_unit_test(threads_agree),
        cmocka_unit_test(types_agree),         cmocka_unit_test(exponents_agree),
        cmocka_unit_test(nan_passes),          cmocka_unit_test(elementwise_values),
        cmocka_unit_test(linear_values),       cmocka_unit_test(norm_values),
        cmocka_unit_test(batchnorm_values),    cmocka_unit_test(running_averages),
        cmocka_unit_test(row_values),          cmocka_unit_test(join_values),
        cmocka_unit_test(xent_value),          cmocka_unit_test(embed_values),
        cmocka_unit_test(sinusoid_values),     cmocka_unit_test(far_from_one),
        cmocka_unit_test(norms_far_from_one),  cmocka_unit_test(mixed_sizes),
        cmocka_unit_test(homogeneous_far_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
