// The graph as a whole: builder errors, derivatives through aliases and several exits, fusion, the plan's memory, the
// executor's determinism, numbers far beyond the type, running out of memory, statistics, integrated weights.
#include "graph_common.h"

// ---- nets -----------------------------------------------------------------------------------------------------------

typedef enum net_style { ONE_MATRIX, TWO_MATRIX, PRE_NORM, POST_NORM } net_style;
typedef struct deep {
    net_style style;
    int layers;
    int64_t rows, width;
    bool bias, integrated;
} deep;

static snd_id weight(net *n, const char *name, int layer, int64_t out, int64_t in, double var) {
    char full[64];
    snprintf(full, sizeof full, "layers.%d.%s", layer, name);
    const snd_init init = {.kind = SND_INIT_NORMAL, .a = sqrt(var / (double)in), .factor = 1};
    return snd_g_param(n->g, full, SND_SHAPE(out, in), &init);
}

static snd_id gain(net *n, const char *name, int layer, int64_t d, double a) {
    char full[64];
    snprintf(full, sizeof full, "layers.%d.%s", layer, name);
    return snd_g_param(n->g, full, SND_SHAPE(d), &(snd_init){.kind = SND_INIT_CONST, .a = a, .factor = 1});
}

static snd_id map(net *n, const deep *d, const char *name, int layer, snd_id x, double var) {
    if (d->integrated) return snd_g_glinear(n->g, x, d->width, var / (double)d->width);
    snd_id y = snd_g_linear(n->g, x, weight(n, name, layer, d->width, d->width, var));
    char bias[32];
    snprintf(bias, sizeof bias, "%s.bias", name);
    if (d->bias) y = snd_g_add(n->g, y, gain(n, bias, layer, d->width, 0.1));
    return y;
}

static snd_id norm_site(net *n, const deep *d, int layer, snd_id x) {
    return snd_g_layernorm(n->g, x, gain(n, "gain", layer, d->width, 1), gain(n, "shift", layer, d->width, 0), 1e-5,
                           false);
}

static snd_id branch(net *n, const deep *d, int layer, snd_id x) {
    snd_id h = snd_g_unary(n->g, SND_KFN_RELU, map(n, d, "w1", layer, x, 2));
    return d->style == ONE_MATRIX ? h : map(n, d, "w2", layer, h, 1);
}

// The streams x[0..layers] of a deep residual net on one input.
static void build_deep(net *n, const deep *d, snd_id *x) {
    x[0] = net_input(n, SND_SHAPE(d->rows, d->width), SND_DT_NONE);
    for (int l = 0; l < d->layers; l++) {
        snd_id u = d->style == PRE_NORM ? norm_site(n, d, l, x[l]) : x[l];
        snd_id y = snd_g_add(n->g, x[l], branch(n, d, l, u));
        x[l + 1] = d->style == POST_NORM ? norm_site(n, d, l, y) : y;
    }
}

static void fill_normal(double *x, int64_t n, int which) {
    for (int64_t i = 0; i < n; i++) x[i] = draw_normal("deep", which, i);
}

static void set_inputs(const net *n, double scale) {
    static double x[NET_MAX];
    fill_normal(x, net_size(n, n->in[0]), 0);
    for (int64_t i = 0; i < net_size(n, n->in[0]); i++) x[i] *= scale;
    CHECK_OK(snd_exec_set(n->exec, n->in[0], x, SND_F64));
    for (int k = 0; k < n->n_y; k++) {
        fill_normal(x, net_size(n, n->dy[k]), 1 + k);
        CHECK_OK(snd_exec_set(n->exec, n->dy[k], x, SND_F64));
    }
}

// ---- builder --------------------------------------------------------------------------------------------------------

static void first_error_is_kept(void **state) {
    (void)state;
    net n = net_open(SND_F32);
    const snd_id x = net_input(&n, SND_SHAPE(2, 3), 0), w = net_input(&n, SND_SHAPE(4, 5), 0);
    CHECK_OK(snd_graph_status(n.g));
    assert_int_equal(snd_g_linear(n.g, x, w), 0);
    assert_int_equal(snd_g_add(n.g, x, x), 0); // everything after does nothing
    snd_g_fail(n.g, SONDE_ERANGE, "later");
    CHECK_STATUS(snd_graph_status(n.g), SONDE_ESHAPE);
    assert_non_null(strstr(sonde_error_message(), "[2, 3]"));
    assert_non_null(strstr(sonde_error_message(), "[4, 5]"));
    assert_non_null(strstr(sonde_error_message(), "linear"));
    snd_plan *p;
    CHECK_STATUS(snd_plan_make(n.arena, n.g, &x, 1, &p), SONDE_ESHAPE);
    net_destroy(&n);
}

static void names(void **state) {
    (void)state;
    net n = net_open(SND_F64);
    const snd_id x = net_input(&n, SND_SHAPE(2), 0), y = snd_g_affine(n.g, 2, x, 0);
    char name[32];
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "name.%d", i);
        snd_g_name(n.g, i % 2 ? x : y, name);
    }
    assert_int_equal(snd_g_find(n.g, "name.501"), x);
    assert_int_equal(snd_g_find(n.g, "name.500"), y);
    assert_int_equal(snd_g_find(n.g, "x0"), x);
    assert_int_equal(snd_g_find(n.g, "name.1000"), 0);
    assert_int_equal(snd_g_name_count(n.g), 1001);
    snd_g_name(n.g, x, "name.501"); // again is fine
    CHECK_OK(snd_graph_status(n.g));
    snd_g_name(n.g, y, "name.501");
    CHECK_STATUS(snd_graph_status(n.g), SONDE_ENAME);
    net_destroy(&n);
}

// ---- derivatives ----------------------------------------------------------------------------------------------------

static int count_ops(const snd_graph *g, int op) {
    int n = 0;
    for (int i = 0; i < snd_g_node_count(g); i++) n += snd_g_node(g, i) && snd_g_node(g, i)->op == op;
    return n;
}

// y = x + 3 alias(x) + 5 stop(x): the alias sees 3, x sees 4.
static void alias_and_stop(void **state) {
    (void)state;
    net n = net_open(SND_F64);
    const snd_id x = net_input(&n, SND_SHAPE(2), 0), a = snd_g_alias(n.g, x), s = snd_g_stop(n.g, x);
    net_output(&n, snd_g_add(n.g, snd_g_lin(n.g, 1, x, 3, a), snd_g_scale(n.g, 5, s)));
    const snd_id unused = net_input(&n, SND_SHAPE(2), 0);
    n.in[2] = a;
    n.in[3] = s;
    n.n_in = 4;
    const double one[2] = {1, -2};
    double g[2];
    net_close_graph(&n, true, 1, 1);
    assert_int_equal(n.grad[1], 0);
    assert_true(n.grad[3] != 0); // asked for at the stop itself: what reaches its output
    CHECK_OK(snd_exec_set(n.exec, x, one, SND_F64));
    CHECK_OK(snd_exec_set(n.exec, unused, one, SND_F64));
    CHECK_OK(snd_exec_set(n.exec, n.dy[0], one, SND_F64));
    CHECK_OK(snd_exec_run(n.exec));
    net_get(&n, n.y[0], g);
    CHECK_SAME(g[1], -18);
    net_get(&n, n.grad[0], g);
    CHECK_SAME(g[0], 4);
    net_get(&n, n.grad[2], g);
    CHECK_SAME(g[1], -6);
    net_get(&n, n.grad[3], g);
    CHECK_SAME(g[0], 5);
    net_destroy(&n);
}

static void nothing_needless(void **state) {
    (void)state;
    net n = net_open(SND_F32);
    snd_id x[6];
    const deep d = {TWO_MATRIX, 5, 3, 4, true, false};
    build_deep(&n, &d, x);
    net_output(&n, x[5]);
    net_close_graph(&n, true, 1, 1);
    assert_int_equal(count_ops(n.g, SND_OP_LINEAR_DW), 0);
    assert_int_equal(count_ops(n.g, SND_OP_SUM_TO), 0);
    assert_int_equal(count_ops(n.g, SND_OP_LINEAR_DX), 10);
    const int before = snd_g_node_count(n.g);
    const snd_id w = snd_g_find(n.g, "layers.4.w2");
    snd_id dw;
    snd_g_grad(n.g, n.y, n.dy, 1, &w, 1, &dw);
    assert_int_equal(snd_g_node_count(n.g) - before, 1); // one product and no more
    net_destroy(&n);
}

// Chains from several exits are those of nets that end there.
static void several_exits(void **state) {
    (void)state;
    enum { L = 4, N = 12 };
    const deep d = {PRE_NORM, L, 3, 4, false, false};
    double all[L + 1][N], one[N];
    for (int pass = 0; pass <= L; pass++) {
        net n = net_open(SND_F64);
        snd_id x[L + 1], exits[2 * (L + 1)], grads[L + 1];
        build_deep(&n, &d, x);
        net_output(&n, x[L]);
        const int first = pass == 0 ? 1 : pass, last = pass == 0 ? L : pass;
        for (int l = first; l <= last; l++) {
            snd_g_grad(n.g, &x[l], &n.dy[0], 1, x, 1, &grads[l]);
            exits[l] = grads[l];
        }
        snd_plan *p;
        snd_exec *e;
        CHECK_OK(snd_plan_make(n.arena, n.g, exits + first, last - first + 1, &p));
        assert_true(snd_plan_ok(p));
        CHECK_OK(snd_source_drawn(n.g, 5, 1, &n.src));
        CHECK_OK(snd_exec_create(n.g, p, &n.src, &(snd_exec_opts){.threads = 1}, &e));
        n.exec = e;
        set_inputs(&n, 1);
        CHECK_OK(snd_exec_run(e));
        for (int l = first; l <= last; l++) CHECK_OK(snd_exec_get(e, grads[l], pass == 0 ? all[l] : one));
        for (int i = 0; pass > 0 && i < N; i++) CHECK_SAME(one[i], all[pass][i]);
        net_destroy(&n);
    }
}

// ---- fusion ---------------------------------------------------------------------------------------------------------

enum { FUSE_NEVER, FUSE_FIRST, FUSE_LAST };

static void run_deep(const deep *d, snd_dtype t, int threads, int fuse, bool keep_all, double scale, double *y,
                     double *dx, int *fused) {
    net n = net_open(t);
    snd_id x[512], keep[4096];
    build_deep(&n, d, x);
    net_output(&n, x[d->layers]);
    if (fuse == FUSE_FIRST) *fused = snd_g_fuse(n.g, n.y, 1);
    snd_g_grad(n.g, n.y, n.dy, 1, n.in, 1, n.grad);
    int n_keep = 0;
    keep[n_keep++] = n.y[0];
    keep[n_keep++] = n.grad[0];
    if (fuse == FUSE_LAST) *fused = snd_g_fuse(n.g, keep, n_keep);
    CHECK_OK(snd_graph_status(n.g));
    for (snd_id v = 1; keep_all && v <= snd_g_value_count(n.g); v++) {
        const snd_value *val = snd_g_value(n.g, v);
        if (val->role == SND_R_NODE && val->node >= 0) keep[n_keep++] = v;
    }
    CHECK_OK(snd_plan_make(n.arena, n.g, keep, n_keep, &n.plan));
    assert_true(snd_plan_ok(n.plan));
    snd_plan_check(n.plan);
    CHECK_OK(snd_source_drawn(n.g, 11, threads, &n.src));
    CHECK_OK(snd_exec_create(n.g, n.plan, &n.src, &(snd_exec_opts){.threads = threads, .seed = 4}, &n.exec));
    set_inputs(&n, scale);
    for (int again = 0; again < 2; again++) { // a second run starts from the same inputs
        CHECK_OK(snd_exec_run(n.exec));
        net_get(&n, n.y[0], y);
        net_get(&n, n.grad[0], dx);
    }
    net_destroy(&n);
}

static double ya[NET_MAX], yb[NET_MAX], dxa[NET_MAX], dxb[NET_MAX];

static void same_results(int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        CHECK_SAME(yb[i], ya[i]);
        CHECK_SAME(dxb[i], dxa[i]);
    }
}

static void fused_equals_unfused(void **state) {
    (void)state;
    for (int style = ONE_MATRIX; style <= POST_NORM; style++) {
        for (int t = 0; t < 2; t++) {
            const deep d = {style, 4, 5, 7, true, false};
            int fused = 0;
            run_deep(&d, t ? SND_F32 : SND_F64, 1, FUSE_NEVER, false, 1, ya, dxa, &fused);
            for (int when = FUSE_FIRST; when <= FUSE_LAST; when++) {
                fused = 0;
                run_deep(&d, t ? SND_F32 : SND_F64, 1, when, false, 1, yb, dxb, &fused);
                const int maps = style == ONE_MATRIX ? 4 : 8, norms = style == PRE_NORM    ? 3
                                                                      : style == POST_NORM ? 4
                                                                                           : 0;
                const int joins = style == PRE_NORM && when == FUSE_LAST ? 4 : 0; // a norm's dx and the residual's
                assert_int_equal(fused, maps + norms + joins);
                same_results(35);
            }
        }
    }
}

static void fusion_spares_taps(void **state) {
    (void)state;
    net n = net_open(SND_F32);
    const snd_id x = net_input(&n, SND_SHAPE(3, 4), 0), w = net_input(&n, SND_SHAPE(4, 4), 0),
                 b = net_input(&n, SND_SHAPE(4), 0);
    const snd_id y = snd_g_linear(n.g, x, w), z = snd_g_add(n.g, b, y);
    const snd_id v = snd_g_linear(n.g, z, w), s = snd_g_sub(n.g, v, b);
    assert_int_equal(snd_g_fuse(n.g, &y, 1), 0); // y is wanted, and s is not v + b
    snd_g_name(n.g, y, "y");
    assert_int_equal(snd_g_fuse(n.g, &s, 1), 0); // y has a name
    snd_buf text = {0}, again = {0};
    snd_g_dump(n.g, &text);
    snd_g_dump(n.g, &again);
    assert_string_equal(text.s, again.s);
    assert_non_null(strstr(text.s, "f32[3, 4] 'y' = linear(%1, %2)"));
    snd_buf_free(&text);
    snd_buf_free(&again);
    net_destroy(&n);
}

// A tied table: what the head gives its gradient and what the tokens give become one op, in place, with the same bits where
// tokens repeat, are absent, or have gradients of another size.
static void a_tied_table_has_one_gradient(void **state) {
    (void)state;
    enum { V = 7, D = 5, R = 6 };
    static const int64_t tokens[R] = {3, 0, 3, 3, 6, 0};
    static double want[V * D], got[V * D];
    for (int t = 0; t < 2; t++)
        for (double scale = 1; scale < 1e60; scale *= 1e25)
            for (int fuse = 0; fuse < 2; fuse++) {
                net n = net_open(t ? SND_F32 : SND_F64);
                const snd_id w = net_input(&n, SND_SHAPE(V, D), 0), id = net_input(&n, SND_SHAPE(R), SND_I64);
                const snd_id x = snd_g_embed(n.g, w, id);
                net_output(&n, snd_g_linear(n.g, snd_g_scale(n.g, 1 / scale, x), w));
                net_output(&n, x); // its cotangent is `scale` times as large as the other's
                snd_g_grad(n.g, n.y, n.dy, 2, &w, 1, n.grad);
                if (fuse) assert_int_equal(snd_g_fuse(n.g, n.grad, 1), 1);
                CHECK_OK(snd_plan_make(n.arena, n.g, n.grad, 1, &n.plan));
                CHECK_OK(snd_source_drawn(n.g, 1, 1, &n.src));
                CHECK_OK(snd_exec_create(n.g, n.plan, &n.src, NULL, &n.exec));
                double buf[NET_MAX];
                const snd_id in[] = {w, n.dy[0], n.dy[1]};
                for (int k = 0; k < 3; k++) {
                    for (int64_t i = 0; i < net_size(&n, in[k]); i++)
                        buf[i] = (k == 2 ? scale : 1) * draw_normal("tied", k, i);
                    CHECK_OK(snd_exec_set(n.exec, in[k], buf, SND_F64));
                }
                CHECK_OK(snd_exec_set(n.exec, id, tokens, SND_I64));
                for (int again = 0; again < 2; again++) CHECK_OK(snd_exec_run(n.exec));
                net_get(&n, n.grad[0], fuse ? got : want);
                for (int i = 0; fuse && i < V * D; i++) CHECK_SAME(got[i], want[i]);
                net_destroy(&n);
            }
}

// What is stored in f16: every result and every input, the exponent being no way out; not scalars, statistics or running
// averages. w x lies beyond 65504 in one place alone.
static void results_are_stored_in_f16(void **state) {
    (void)state;
    enum { R = 3, D = 4 };
    static double x[R * D] = {1, 2.0004, -3, 1e-9, 300, 1, 2, 3, 1, 2, 3, 4}, y[NET_MAX], s[SND_ST_COUNT];
    net n = net_open(SND_F32);
    snd_graph_store(n.g, SND_F16);
    const snd_init zero = {.kind = SND_INIT_CONST, .factor = 1};
    const snd_id in = net_input(&n, SND_SHAPE(R, D), 0), mean = snd_g_state(n.g, "mean", SND_SHAPE(D), &zero),
                 var = snd_g_state(n.g, "var", SND_SHAPE(D), &zero);
    const snd_id big = snd_g_mul(n.g, in, in), third = snd_g_scale(n.g, 1. / 3, in), far = snd_g_scale(n.g, 1e20, in);
    snd_id moved[2];
    (void)snd_g_batchnorm(n.g, third, 0, 0, 1e-5, false, mean, var, 0.1, &moved[0], &moved[1]);
    const snd_id lost = snd_g_scale(n.g, 1e-20, far), stat = snd_g_stat(n.g, third, 0, SND_SM_ONLY_Q);
    const snd_id keep[] = {in, big, third, lost, stat, moved[0]};
    CHECK_OK(snd_graph_status(n.g));
    CHECK_OK(snd_plan_make(n.arena, n.g, keep, 6, &n.plan));
    CHECK_OK(snd_source_resident(n.g, 1, 1, &n.src));
    CHECK_OK(snd_exec_create(n.g, n.plan, &n.src, &(snd_exec_opts){.threads = 1}, &n.exec));
    CHECK_OK(snd_exec_set(n.exec, in, x, SND_F64));
    CHECK_OK(snd_exec_run(n.exec));
#define HALF(v) (double)snd_f16_to_f32(snd_f32_to_f16((float)(v)))
    net_get(&n, in, y);
    for (int i = 0; i < R * D; i++) CHECK_SAME(y[i], HALF(x[i]));
    net_get(&n, big, y);
    for (int i = 0; i < R * D; i++) CHECK_SAME(y[i], HALF(HALF(x[i]) * HALF(x[i])));
    assert_true(isinf(y[4]) && y[3] == 0);
    net_get(&n, third, y);
    double sum = 0, first = 0;
    for (int i = 0; i < R * D; i++) {
        CHECK_SAME(y[i], HALF((float)(1. / 3) * HALF(x[i])));
        sum += y[i] * y[i] / (R * D);
        if (i % D == 0) first += y[i] / R;
    }
    net_get(&n, stat, s);
    CHECK_REL(s[SND_ST_Q], sum, 1e-6); // of what was stored, and not stored itself
    net_get(&n, moved[0], y);
    CHECK_REL(y[0], 0.1 * first, 1e-6);
    assert_true(y[0] != HALF(y[0]));
    net_get(&n, lost, y);
    assert_true(isinf(y[0]) && y[3] == 0);
    assert_true(snd_exec_lost(n.exec) == 0); // 1e-9 was 0 before anything was computed
    net_destroy(&n);
}

// Of results that are not 0, the share that f16 makes 0, from a node on.
static void what_f16_loses_is_counted(void **state) {
    (void)state;
    for (int from = 0; from < 2; from++) {
        static const double x[4] = {1e-3, 1, 0, 3};
        net n = net_open(SND_F32);
        snd_graph_store(n.g, SND_F16);
        const snd_id in = net_input(&n, SND_SHAPE(4), 0), y = snd_g_scale(n.g, 1e-5, in), z = snd_g_scale(n.g, 1e-3, y);
        CHECK_OK(snd_plan_make(n.arena, n.g, &z, 1, &n.plan));
        CHECK_OK(snd_source_resident(n.g, 1, 1, &n.src));
        CHECK_OK(snd_exec_create(n.g, n.plan, &n.src, &(snd_exec_opts){.threads = 1, .count_from = from}, &n.exec));
        CHECK_OK(snd_exec_set(n.exec, in, x, SND_F64));
        for (int again = 0; again < 2; again++) CHECK_OK(snd_exec_run(n.exec));
        // 1e-8, 1e-5, 0, 3e-5, then 0, 1e-8, 0, 3e-8 (half of 2^-24 is 2.98e-8)
        CHECK_REL(snd_exec_lost(n.exec), from ? 1. / 2 : 2. / 5, 1e-12);
        net_destroy(&n);
    }
}

// The sum is read before its norm, with weights: y = norm(s) * 2 s, s = 0.5 x - 3 z.
static void fused_sum_is_shared(void **state) {
    (void)state;
    double want[2][12], got[2][12];
    for (int when = FUSE_NEVER; when <= FUSE_LAST; when++) {
        net n = net_open(SND_F64);
        const snd_id x = net_input(&n, SND_SHAPE(3, 4), 0), z = net_input(&n, SND_SHAPE(3, 4), 0);
        const snd_id s = snd_g_lin(n.g, 0.5, x, -3, z), t = snd_g_scale(n.g, 2, s);
        net_output(&n, snd_g_mul(n.g, snd_g_layernorm(n.g, s, 0, 0, 1e-5, false), t));
        if (when == FUSE_FIRST) assert_int_equal(snd_g_fuse(n.g, n.y, 1), 1);
        snd_g_grad(n.g, n.y, n.dy, 1, n.in, 2, n.grad);
        if (when == FUSE_LAST) assert_int_equal(snd_g_fuse(n.g, n.grad, 2), 1);
        CHECK_OK(snd_plan_make(n.arena, n.g, n.grad, 2, &n.plan));
        CHECK_OK(snd_source_drawn(n.g, 1, 1, &n.src));
        CHECK_OK(snd_exec_create(n.g, n.plan, &n.src, NULL, &n.exec));
        set_inputs(&n, 1);
        double other[12];
        fill_normal(other, 12, 5);
        CHECK_OK(snd_exec_set(n.exec, z, other, SND_F64));
        CHECK_OK(snd_exec_run(n.exec));
        for (int k = 0; k < 2; k++) net_get(&n, n.grad[k], when == FUSE_NEVER ? want[k] : got[k]);
        for (int i = 0; when != FUSE_NEVER && i < 24; i++) CHECK_SAME(got[i / 12][i % 12], want[i / 12][i % 12]);
        net_destroy(&n);
    }
}

// ---- plan -----------------------------------------------------------------------------------------------------------

// Reused places must not change a bit: the same net with every value kept.
static void places_do_not_matter(void **state) {
    (void)state;
    for (int style = ONE_MATRIX; style <= POST_NORM; style++) {
        const deep d = {style, 6, 9, 33, style == TWO_MATRIX, false};
        int fused;
        run_deep(&d, SND_F32, 1, FUSE_NEVER, true, 1, ya, dxa, &fused);
        run_deep(&d, SND_F32, 1, FUSE_FIRST, false, 1, yb, dxb, &fused);
        same_results(9 * 33);
    }
}

static void deep_plans_are_small(void **state) {
    (void)state;
    enum { L = 256, EXITS = 21 };
    for (int style = TWO_MATRIX; style <= PRE_NORM; style++) {
        net n = net_open(SND_F32);
        static snd_id x[L + 1], keep[EXITS * (L + 1) * 2], grads[L + 1];
        const deep d = {style, L, 256, 256, false, false};
        int n_keep = 0;
        build_deep(&n, &d, x);
        net_output(&n, x[L]);
        for (int l = 0; l <= L; l++) keep[n_keep++] = snd_g_stat(n.g, x[l], 0, SND_SM_BVAR);
        for (int k = 0; k < EXITS; k++) {
            const int exit_at = L - k * 12;
            snd_g_grad(n.g, &x[exit_at], &n.dy[0], 1, x, exit_at + 1, grads);
            for (int l = 0; l <= exit_at; l++) keep[n_keep++] = snd_g_stat(n.g, grads[l], 0, 0);
        }
        CHECK_OK(snd_graph_status(n.g));
        const double start = snd_now();
        CHECK_OK(snd_plan_make(n.arena, n.g, keep, n_keep, &n.plan));
        print_message("style %d: %d nodes, %.1f MB of values, planned in %.3f s\n", style, snd_g_node_count(n.g),
                      (double)snd_plan_bytes(n.plan) / 1e6, snd_now() - start);
        // one matrix of a layer's relu (and with norms its stream) has to survive; 256 KiB each
        assert_true(snd_plan_bytes(n.plan) < (size_t)(style == PRE_NORM ? 150 : 80) * 1000 * 1000);
        net_destroy(&n);
    }
}

// Weight gradients of which only statistics are wanted exist one at a time.
static void weight_gradients_come_and_go(void **state) {
    (void)state;
    enum { L = 64 };
    net n = net_open(SND_F32);
    static snd_id x[L + 1], w[2 * L], dw[2 * L], keep[2 * L];
    const deep d = {TWO_MATRIX, L, 64, 512, false, false};
    build_deep(&n, &d, x);
    net_output(&n, x[L]);
    for (int i = 0; i < 2 * L; i++) w[i] = snd_g_param_at(n.g, i);
    snd_g_grad(n.g, n.y, n.dy, 1, w, 2 * L, dw);
    for (int i = 0; i < 2 * L; i++) keep[i] = snd_g_stat(n.g, dw[i], 0, 0);
    CHECK_OK(snd_plan_make(n.arena, n.g, keep, 2 * L, &n.plan));
    // stream and relu of each layer (128 KiB each), and two matrices of 1 MiB
    print_message("%.1f MB of values\n", (double)snd_plan_bytes(n.plan) / 1e6);
    assert_true(snd_plan_bytes(n.plan) < (size_t)(2 * L * 131072 + 2 * 1048576 + 8 * 131072));
    snd_buf text = {0};
    snd_plan_print(n.plan, &text);
    assert_non_null(strstr(text.s, "linear_dw"));
    snd_buf_free(&text);
    net_destroy(&n);
}

// ---- plans that compute again, parameters in the slab ---------------------------------------------------------------

enum { LEAN_L = 7, LEAN_KEEP = 4 * LEAN_L + 8 };

// What a source was asked for.
typedef struct counted {
    snd_source inner;
    int reads[64], acquired;
    int64_t most; // elements at a time
} counted;

static void counted_read(void *self, const snd_graph *g, int param, int64_t first, int64_t n, void *dst) {
    counted *c = self;
    c->reads[param]++;
    c->most = n > c->most ? n : c->most;
    c->inner.read(c->inner.self, g, param, first, n, dst);
}
static sonde_status counted_acquire(void *self, const snd_graph *g, int param, const void **data, int32_t *e) {
    counted *c = self;
    c->acquired++;
    return c->inner.acquire(c->inner.self, g, param, data, e);
}
static void counted_release(void *self, const snd_graph *g, int param) {
    counted *c = self;
    c->inner.release(c->inner.self, g, param);
}

typedef struct lean {
    size_t slab, params;
    double flops;
    int most_reads, acquired;
    double stat[LEAN_KEEP][SND_ST_COUNT];
    float dx[8 * 600];
} lean;

// Statistics of streams, parameters and all gradients, over one or two exits, and the gradient of the input as it is.
static void run_lean(const deep *d, int exits, snd_plan_opts o, lean *r) {
    net n = net_open(SND_F32);
    snd_id x[LEAN_L + 1], keep[LEAN_KEEP + 1], wrt[2 * LEAN_L + 1], grad[2 * LEAN_L + 1];
    build_deep(&n, d, x);
    for (int l = 1; l < LEAN_L; l++) snd_g_boundary(n.g, &x[l], 1);
    net_output(&n, x[LEAN_L]);
    int n_keep = 0, n_wrt = 0;
    for (int l = 0; l < LEAN_L; l++) keep[n_keep++] = snd_g_stat(n.g, x[l], 0, SND_SM_BVAR);
    for (int i = 0; i < snd_g_param_count(n.g) && n_wrt < 2 * LEAN_L; i++) wrt[n_wrt++] = snd_g_param_at(n.g, i);
    for (int i = 0; i < 4; i++) keep[n_keep++] = snd_g_stat(n.g, wrt[i], 0, 0);
    wrt[n_wrt] = x[0];
    for (int e = 0; e < exits; e++) {
        snd_g_grad(n.g, &x[LEAN_L - 3 * e], n.dy, 1, wrt, n_wrt + 1, grad);
        for (int i = 0; i < n_wrt && n_keep < LEAN_KEEP; i++)
            if (grad[i]) keep[n_keep++] = snd_g_stat(n.g, grad[i], 0, 0);
    }
    keep[n_keep] = grad[n_wrt]; // of the last exit
    (void)snd_g_fuse(n.g, keep, n_keep + 1);
    CHECK_OK(snd_plan_make_by(n.arena, n.g, keep, n_keep + 1, &o, &n.plan));
    assert_true(snd_plan_ok(n.plan));
    counted c = {0};
    CHECK_OK(snd_source_drawn(n.g, 3, 1, &c.inner));
    n.src = (snd_source){.self = &c, .read = counted_read, .acquire = counted_acquire, .release = counted_release};
    CHECK_OK(snd_exec_create(n.g, n.plan, &n.src, &(snd_exec_opts){.threads = 2, .seed = 4}, &n.exec));
    set_inputs(&n, 1);
    for (int again = 0; again < 2; again++) CHECK_OK(snd_exec_run(n.exec));
    *r = (lean){snd_plan_bytes(n.plan), snd_plan_param_bytes(n.plan), .flops = snd_plan_flops(n.plan)};
    for (int i = 0; i < n_keep; i++) memcpy(r->stat[i], snd_exec_raw(n.exec, keep[i], NULL), sizeof r->stat[i]);
    memcpy(r->dx, snd_exec_raw(n.exec, keep[n_keep], NULL), (size_t)(d->rows * d->width) * sizeof(float));
    r->acquired = c.acquired;
    for (int i = 0; i < 64; i++) r->most_reads = c.reads[i] > r->most_reads ? c.reads[i] : r->most_reads;
    snd_source_close(&c.inner);
    net_destroy(&n);
}

static lean full, leaner;

static void lean_plans_give_the_same_bits(void **state) {
    (void)state;
    for (int style = ONE_MATRIX; style <= POST_NORM; style++) {
        for (int exits = 1; exits <= 2; exits++) {
            const deep d = {style, LEAN_L, 5, 33, style != PRE_NORM, false};
            run_lean(&d, exits, (snd_plan_opts){0}, &full);
            for (int again = SND_AGAIN_NONE; again <= SND_AGAIN_SEGMENT; again++) {
                const bool twice = again == SND_AGAIN_SEGMENT || (again == SND_AGAIN_CHEAP && style >= PRE_NORM);
                for (int params = SND_PARAMS_SOURCE; params <= SND_PARAMS_USE; params++) {
                    run_lean(&d, exits, (snd_plan_opts){again, params}, &leaner);
                    assert_memory_equal(full.stat, leaner.stat, sizeof full.stat);
                    assert_memory_equal(full.dx, leaner.dx, sizeof full.dx);
                    assert_int_equal(leaner.acquired == 0, params != SND_PARAMS_SOURCE);
                    assert_int_equal(leaner.params == 0, params != SND_PARAMS_SOURCE);
                    // two runs: once forward, once per exit backward; a stream that is a norm's result and made again for the
                    // next segment reads that norm's gain there
                    const int visits = again == SND_AGAIN_CHEAP ? 2 * exits : exits;
                    if (params == SND_PARAMS_SEGMENT) assert_in_range(leaner.most_reads, 1, 2 * (1 + visits));
                    assert_int_equal(leaner.flops > full.flops, twice);
                }
            }
        }
    }
}

// Streams alone survive the forward pass; one layer's values, weights and gradients come on top.
static void lean_plans_are_small(void **state) {
    (void)state;
    enum { R = 8, D = 600, MATRIX = D * D * 4, STREAM = R * D * 4 };
    for (int style = TWO_MATRIX; style <= POST_NORM; style++) {
        const deep d = {style, LEAN_L, R, D, false, false};
        run_lean(&d, 1, (snd_plan_opts){0}, &full);
        run_lean(&d, 1, (snd_plan_opts){SND_AGAIN_SEGMENT, SND_PARAMS_SEGMENT}, &leaner);
        assert_memory_equal(full.stat, leaner.stat, sizeof full.stat);
        assert_true(leaner.slab < 3 * MATRIX + (LEAN_L + 10) * STREAM);
        assert_true(leaner.slab + (LEAN_L - 2) * STREAM < full.slab + 3 * MATRIX);
        run_lean(&d, 1, (snd_plan_opts){SND_AGAIN_SEGMENT, SND_PARAMS_USE}, &leaner);
        assert_true(leaner.slab < 2 * MATRIX + (LEAN_L + 10) * STREAM);
    }
}

// What a cheap value is made of decides whether it is kept: u is read in the backward pass and stays, what a gelu, a
// dropout, a gate and a norm make of it does not; a relu stays, since its operand is not there.
//   n = norm(x);  u = W1 n;  a = gelu(u);  h = dropout(a) a;  x = x + W3 relu(W2 h)
enum { BLOCKS = 3, BLOCK_R = 512, BLOCK_D = 16, BLOCK_H = 64, BLOCK_W = 3 * BLOCKS };

typedef struct blocks {
    size_t bytes;
    double flops, again;
    float dw[BLOCK_W][BLOCK_H * BLOCK_H];
} blocks;

static void run_blocks(snd_plan_opts o, blocks *out) {
    static const int64_t shape[3][2] = {{BLOCK_H, BLOCK_D}, {BLOCK_H, BLOCK_H}, {BLOCK_D, BLOCK_H}};
    net n = net_open(SND_F32);
    snd_id w[BLOCK_W], d[BLOCK_W], x = net_input(&n, SND_SHAPE(BLOCK_R, BLOCK_D), SND_F32);
    for (int i = 0; i < BLOCK_W; i++) {
        char name[8];
        const snd_init init = {.kind = SND_INIT_NORMAL, .a = 0.1, .factor = 1};
        snprintf(name, sizeof name, "w%d", i);
        w[i] = snd_g_param(n.g, name, SND_SHAPE(shape[i % 3][0], shape[i % 3][1]), &init);
    }
    for (int i = 0; i < BLOCK_W; i += 3) {
        const snd_id u = snd_g_linear(n.g, snd_g_layernorm(n.g, x, 0, 0, 1e-5, false), w[i]);
        const snd_id a = snd_g_unary(n.g, SND_KFN_GELU, u);
        const snd_id h = snd_g_mul(n.g, snd_g_dropout(n.g, a, 0.3, BLOCK_R, false), a);
        const snd_id v = snd_g_unary(n.g, SND_KFN_RELU, snd_g_linear(n.g, h, w[i + 1]));
        x = snd_g_add(n.g, x, snd_g_linear(n.g, v, w[i + 2]));
    }
    net_output(&n, x);
    snd_g_grad(n.g, n.y, n.dy, 1, w, BLOCK_W, d);
    assert_true(snd_g_fuse(n.g, d, BLOCK_W) >= BLOCKS - 1); // sums and the norms of them
    CHECK_OK(snd_plan_make_by(n.arena, n.g, d, BLOCK_W, &o, &n.plan));
    assert_true(snd_plan_ok(n.plan));
    CHECK_OK(snd_source_resident(n.g, 1, 2, &n.src));
    CHECK_OK(snd_exec_create(n.g, n.plan, &n.src, &(snd_exec_opts){.threads = 2, .seed = 4}, &n.exec));
    set_inputs(&n, 1);
    CHECK_OK(snd_exec_run(n.exec));
    for (int i = 0; i < BLOCK_W; i++)
        memcpy(out->dw[i], snd_exec_raw(n.exec, d[i], NULL), (size_t)net_size(&n, d[i]) * sizeof(float));
    out->bytes = snd_plan_bytes(n.plan);
    out->flops = snd_plan_flops(n.plan);
    out->again = snd_plan_flops_again(n.plan);
    net_destroy(&n);
}

static void cheap_values_are_not_kept(void **state) {
    (void)state;
    enum { STREAM = BLOCK_R * BLOCK_D * 4, WIDE = BLOCK_R * BLOCK_H * 4 };
    static blocks kept, cheap, segments;
    run_blocks((snd_plan_opts){SND_AGAIN_NONE, SND_PARAMS_SOURCE}, &kept);
    run_blocks((snd_plan_opts){SND_AGAIN_CHEAP, SND_PARAMS_SOURCE}, &cheap);
    run_blocks((snd_plan_opts){SND_AGAIN_SEGMENT, SND_PARAMS_SOURCE}, &segments);
    assert_memory_equal(kept.dw, cheap.dw, sizeof kept.dw);
    assert_memory_equal(kept.dw, segments.dw, sizeof kept.dw);
    assert_int_equal(segments.bytes, kept.bytes); // one segment, whose values stay
    print_message("%zu bytes, %zu with cheap values made again\n", kept.bytes, cheap.bytes);
    // n, a, the dropout and h of all blocks but the one at work
    assert_true(cheap.bytes + (BLOCKS - 1) * (STREAM + 3 * WIDE) <= kept.bytes);
    // norms, gelu and dropout count 8 operations an element, the product 1; the relu runs once
    CHECK_SAME(kept.again, 0);
    CHECK_SAME(segments.again, 0);
    CHECK_SAME(cheap.again, (double)(BLOCKS * (8 * BLOCK_R * BLOCK_D + (8 + 8 + 1) * BLOCK_R * BLOCK_H)));
    CHECK_SAME(cheap.flops - cheap.again, kept.flops);
}

// A product in every layer would make one chain of all of them.
static void chains_of_cheap_values_end(void **state) {
    (void)state;
    enum { PRODUCTS = 40 };
    double flops[2], again = 0, dx[2][12];
    for (int k = 0; k < 2; k++) { // x x, x x x ..: every one is read in the backward pass
        net n = net_open(SND_F64);
        const snd_id x = net_input(&n, SND_SHAPE(3, 4), SND_F64);
        snd_id y = x;
        for (int i = 0; i < PRODUCTS; i++) y = snd_g_mul(n.g, y, x);
        net_output(&n, y);
        snd_g_grad(n.g, n.y, n.dy, 1, n.in, 1, n.grad);
        const snd_plan_opts o = {.again = k ? SND_AGAIN_CHEAP : SND_AGAIN_NONE};
        CHECK_OK(snd_plan_make_by(n.arena, n.g, n.grad, 1, &o, &n.plan));
        assert_true(snd_plan_ok(n.plan));
        CHECK_OK(snd_source_resident(n.g, 1, 1, &n.src));
        CHECK_OK(snd_exec_create(n.g, n.plan, &n.src, NULL, &n.exec));
        set_inputs(&n, 1);
        for (int run = 0; run < 2; run++) CHECK_OK(snd_exec_run(n.exec));
        net_get(&n, n.grad[0], dx[k]);
        flops[k] = snd_plan_flops(n.plan);
        again = snd_plan_flops_again(n.plan);
        net_destroy(&n);
    }
    assert_memory_equal(dx[0], dx[1], sizeof dx[0]);
    CHECK_SAME(flops[1] - again, flops[0]);
    assert_true(again > 12 * PRODUCTS / 2 && again < 12 * PRODUCTS * 9 / 10 + 1); // every ninth one is kept
}

// ---- matrices in pieces ---------------------------------------------------------------------------------------------

enum { PIECE_R = 7, PIECE_V = 41, PIECE_D = 12, PIECE_STATS = 6 };

typedef struct pieces {
    double stat[PIECE_STATS][SND_ST_COUNT];
    double logits[PIECE_R * PIECE_V], dx[PIECE_R * PIECE_D];
    int64_t most;
} pieces;

// tokens -> table -> + x -> head; statistics of both matrices and of their gradients.
static void run_pieces(snd_dtype t, bool fuse, snd_plan_opts o, pieces *p) {
    static const int64_t tokens[PIECE_R] = {40, 3, 3, 0, 17, 3, 40};
    net n = net_open(t);
    const snd_init init = {.kind = SND_INIT_NORMAL, .a = 1, .factor = 1};
    const snd_id table = snd_g_param(n.g, "table", SND_SHAPE(PIECE_V, PIECE_D), &init),
                 head = snd_g_param(n.g, "head", SND_SHAPE(PIECE_V, PIECE_D), &init),
                 id = snd_g_input(n.g, "tokens", SND_SHAPE(PIECE_R), SND_I64);
    n.in[0] = snd_g_input(n.g, "x", SND_SHAPE(PIECE_R, PIECE_D), SND_DT_NONE);
    n.n_in = 1;
    net_output(&n, snd_g_linear(n.g, snd_g_add(n.g, snd_g_embed(n.g, table, id), n.in[0]), head));
    snd_id grad[3], keep[PIECE_STATS + 2];
    snd_g_grad(n.g, n.y, n.dy, 1, (snd_id[]){table, head, n.in[0]}, 3, grad);
    for (int i = 0; i < 2; i++) keep[i] = snd_g_stat(n.g, i ? head : table, 0, 0);
    for (int i = 0; i < 2; i++) keep[2 + i] = snd_g_stat(n.g, grad[i], 0, 0);
    keep[4] = snd_g_stat(n.g, n.y[0], 0, 0);
    keep[5] = snd_g_stat(n.g, grad[2], 0, 0);
    keep[PIECE_STATS] = n.y[0];
    keep[PIECE_STATS + 1] = grad[2];
    if (fuse) assert_int_equal(snd_g_fuse(n.g, keep, PIECE_STATS + 2), 2);
    CHECK_OK(snd_plan_make_by(n.arena, n.g, keep, PIECE_STATS + 2, &o, &n.plan));
    assert_true(snd_plan_ok(n.plan));
    counted c = {0};
    CHECK_OK(snd_source_drawn(n.g, 3, 2, &c.inner));
    n.src = (snd_source){.self = &c, .read = counted_read, .acquire = counted_acquire, .release = counted_release};
    CHECK_OK(snd_exec_create(n.g, n.plan, &n.src, &(snd_exec_opts){.threads = 2}, &n.exec));
    set_inputs(&n, 1);
    CHECK_OK(snd_exec_set(n.exec, id, tokens, SND_I64));
    CHECK_OK(snd_exec_run(n.exec));
    for (int i = 0; i < PIECE_STATS; i++) memcpy(p->stat[i], snd_exec_raw(n.exec, keep[i], NULL), sizeof p->stat[i]);
    net_get(&n, n.y[0], p->logits);
    net_get(&n, grad[2], p->dx);
    p->most = c.most;
    snd_source_close(&c.inner);
    net_destroy(&n);
}

// By any cut the statistics are those of the whole array, but for the order of sums; values of unread rows do not exist.
static void pieces_make_the_whole(void **state) {
    (void)state;
    static const int same[] = {SND_ST_AT, SND_ST_NONFINITE, SND_ST_EXP},
                     close[] = {SND_ST_Q, SND_ST_MEAN, SND_ST_ABSMAX, SND_ST_ABSMIN};
    static pieces want, got, slab;
    for (int t = 0; t < 2; t++) {
        const snd_dtype dt = t ? SND_F32 : SND_F64;
        run_pieces(dt, false, (snd_plan_opts){0}, &want);
        for (int64_t limit = 1; limit < 700; limit += limit < 20 ? 6 : 83) {
            snd_pieces_limit(limit);
            run_pieces(dt, true, (snd_plan_opts){0}, &got);
            run_pieces(dt, true, (snd_plan_opts){SND_AGAIN_SEGMENT, SND_PARAMS_SEGMENT}, &slab);
            assert_memory_equal(slab.stat, got.stat, sizeof got.stat);
            assert_memory_equal(slab.dx, got.dx, sizeof got.dx);
            assert_int_equal(got.most, 0);
            if (limit < PIECE_V * PIECE_D) assert_in_range(slab.most, 1, limit < PIECE_D ? PIECE_D : limit);
            const double eps = t ? 0x1p-23 : 0x1p-52;
            for (int i = 0; i < PIECE_STATS; i++) {
                for (int k = 0; k < 3; k++) CHECK_SAME(got.stat[i][same[k]], want.stat[i][same[k]]);
                for (int k = 0; k < 4; k++) // numbers of size 10 at most, products of PIECE_D and PIECE_V terms
                    CHECK_CLOSE(got.stat[i][close[k]], want.stat[i][close[k]], 1000 * PIECE_V * eps);
                for (int k = 2; k < 4 && i < 2; k++) CHECK_SAME(got.stat[i][close[k]], want.stat[i][close[k]]);
            }
            for (int i = 0; i < PIECE_R * PIECE_V; i++) CHECK_CLOSE(got.logits[i], want.logits[i], 40 * PIECE_D * eps);
            for (int i = 0; i < PIECE_R * PIECE_D; i++) CHECK_CLOSE(got.dx[i], want.dx[i], 40 * PIECE_V * eps);
        }
        snd_pieces_limit(0);
    }
}

// ---- the mean square of a weight's gradient, without it -------------------------------------------------------------

enum { GRAM_R = 150, GRAM_N = 400, GRAM_K = 300 }; // two bands of rows
typedef enum gram_case { GRAM_DRAWN, GRAM_CANCELS, GRAM_NAN, GRAM_CASES } gram_case;

// Statistics of dW = dy' x. GRAM_CANCELS: rows of x differ in 1e-4 of their size, those of dy sum to zero.
static void run_gram(snd_dtype t, int threads, bool fuse, gram_case c, double *stat) {
    static double x[GRAM_R * GRAM_K], dy[GRAM_R * GRAM_N];
    for (int64_t i = 0; i < GRAM_R * GRAM_K; i++)
        x[i] = c == GRAM_CANCELS ? draw_normal("row", 0, i % GRAM_K) + 1e-4 * draw_normal("x", 0, i)
                                 : draw_normal("x", 0, i);
    for (int64_t i = 0; i < GRAM_R * GRAM_N; i++) dy[i] = draw_normal("dy", 0, i);
    for (int64_t j = 0; c == GRAM_CANCELS && j < GRAM_N; j++) {
        double mean = 0;
        for (int64_t i = 0; i < GRAM_R; i++) mean += dy[i * GRAM_N + j] / GRAM_R;
        for (int64_t i = 0; i < GRAM_R; i++) dy[i * GRAM_N + j] -= mean;
    }
    if (c == GRAM_NAN) dy[140 * GRAM_N + 7] = NAN;
    net n = net_open(t);
    const snd_init init = {.kind = SND_INIT_NORMAL, .a = 1, .factor = 1};
    const snd_id w = snd_g_param(n.g, "w", SND_SHAPE(GRAM_N, GRAM_K), &init),
                 in = net_input(&n, SND_SHAPE(GRAM_R, GRAM_K), SND_DT_NONE);
    net_output(&n, snd_g_linear(n.g, in, w));
    snd_id dw;
    snd_g_grad(n.g, n.y, n.dy, 1, &w, 1, &dw);
    const snd_id keep = snd_g_stat(n.g, dw, 0, SND_SM_ONLY_Q);
    if (fuse) assert_int_equal(snd_g_fuse(n.g, &keep, 1), 1);
    CHECK_OK(snd_plan_make(n.arena, n.g, &keep, 1, &n.plan));
    CHECK_OK(snd_source_drawn(n.g, 1, 1, &n.src));
    CHECK_OK(snd_exec_create(n.g, n.plan, &n.src, &(snd_exec_opts){.threads = threads}, &n.exec));
    CHECK_OK(snd_exec_set(n.exec, in, x, SND_F64));
    CHECK_OK(snd_exec_set(n.exec, n.dy[0], dy, SND_F64));
    CHECK_OK(snd_exec_run(n.exec));
    memcpy(stat, snd_exec_raw(n.exec, keep, NULL), SND_ST_COUNT * sizeof *stat);
    net_destroy(&n);
}

static void mean_square_without_the_gradient(void **state) {
    (void)state;
    double want[SND_ST_COUNT], got[SND_ST_COUNT], two[SND_ST_COUNT];
    for (int t = 0; t < 2; t++)
        for (gram_case c = 0; c < GRAM_CASES; c++) {
            run_gram(t ? SND_F32 : SND_F64, 2, false, c, want);
            run_gram(t ? SND_F32 : SND_F64, 1, true, c, got);
            run_gram(t ? SND_F32 : SND_F64, 2, true, c, two);
            CHECK_SAME(got[SND_ST_Q], two[SND_ST_Q]);
            CHECK_SAME(got[SND_ST_EXP], want[SND_ST_EXP]);
            assert_int_equal(got[SND_ST_NONFINITE] > 0, want[SND_ST_NONFINITE] > 0);
            if (c == GRAM_NAN)
                assert_true(isnan(got[SND_ST_Q]) && got[SND_ST_NONFINITE] > 0);
            else // terms of relative accuracy eps sqrt(GRAM_N), 16 times their sum at most
                CHECK_REL(got[SND_ST_Q], want[SND_ST_Q], (t ? 0x1p-23 : 0x1p-52) * 16 * 20);
            // what was not asked for is absent, unless dW had to be made
            assert_int_equal(isnan(got[SND_ST_ABSMAX]) != 0, c != GRAM_CANCELS);
        }
}

typedef struct losses {
    double loss, dx[PIECE_R * PIECE_D], dw[PIECE_V * PIECE_D], stat[SND_ST_COUNT];
    int64_t most;
} losses;

// Loss of a scaled head over classes, its gradients, and the statistics of the head's.
static void run_loss(snd_dtype t, bool params, bool whole, bool once, int64_t bad, losses *l) {
    const int64_t target[PIECE_R] = {40, -100, 3, 0, 17, bad, 39};
    net n = net_open(t);
    const snd_init init = {.kind = SND_INIT_NORMAL, .a = 1, .factor = 1};
    const snd_id head = snd_g_param(n.g, "head", SND_SHAPE(PIECE_V, PIECE_D), &init),
                 to = snd_g_input(n.g, "targets", SND_SHAPE(PIECE_R), SND_I64);
    n.in[0] = snd_g_input(n.g, "x", SND_SHAPE(PIECE_R, PIECE_D), SND_DT_NONE);
    n.n_in = 1;
    const snd_id plain = snd_g_xent(n.g, snd_g_scale(n.g, 1.25, snd_g_linear(n.g, n.in[0], head)), to),
                 loss = snd_g_loss_in_pieces(n.g, plain, once);
    assert_int_equal(loss == plain, whole);
    net_output(&n, loss);
    snd_id grad[2], keep[4];
    snd_g_grad(n.g, n.y, n.dy, 1, (snd_id[]){n.in[0], head}, 2, grad);
    keep[0] = loss;
    keep[1] = grad[0];
    keep[2] = snd_g_stat(n.g, grad[1], 0, 0);
    keep[3] = grad[1];
    const int n_keep = params ? 3 : 4; // then dW may vanish into its statistics
    const int fused = snd_g_fuse(n.g, keep, n_keep);
    assert_int_equal(fused, params || (once && !whole) ? 1 : 0);
    const snd_plan_opts o = {.params = params ? SND_PARAMS_USE : SND_PARAMS_SOURCE};
    CHECK_OK(snd_plan_make_by(n.arena, n.g, keep, n_keep, &o, &n.plan));
    counted c = {0};
    CHECK_OK(snd_source_drawn(n.g, 3, 2, &c.inner));
    n.src = (snd_source){.self = &c, .read = counted_read, .acquire = counted_acquire, .release = counted_release};
    CHECK_OK(snd_exec_create(n.g, n.plan, &n.src, &(snd_exec_opts){.threads = 2}, &n.exec));
    set_inputs(&n, 1);
    CHECK_OK(snd_exec_set(n.exec, to, target, SND_I64));
    CHECK_OK(snd_exec_run(n.exec));
    net_get(&n, loss, &l->loss);
    net_get(&n, grad[0], l->dx);
    if (!params) net_get(&n, grad[1], l->dw);
    memcpy(l->stat, snd_exec_raw(n.exec, keep[2], NULL), sizeof l->stat);
    l->most = c.most;
    snd_source_close(&c.inner);
    net_destroy(&n);
}

static void losses_without_logits(void **state) {
    (void)state;
    static losses want, got;
    for (int t = 0; t < 2; t++) {
        const snd_dtype dt = t ? SND_F32 : SND_F64;
        const double tol = 4 * PIECE_V * (t ? 0x1p-23 : 0x1p-52); // numbers of size 1, sums over the classes
        run_loss(dt, false, true, false, 5, &want);
        for (int64_t limit = 1; limit < PIECE_R * PIECE_V; limit += limit < 20 ? 6 : 83) {
            for (int way = 0; way < 3; way++) {
                const bool params = way == 1, once = way == 2;
                snd_pieces_limit(limit);
                run_loss(dt, params, false, once, 5, &got);
                CHECK_CLOSE(got.loss, want.loss, tol * 10);
                for (int i = 0; i < PIECE_R * PIECE_D; i++) CHECK_CLOSE(got.dx[i], want.dx[i], tol);
                for (int i = 0; i < PIECE_V * PIECE_D; i++) CHECK_CLOSE(got.dw[i], want.dw[i], tol);
                CHECK_CLOSE(got.stat[SND_ST_Q], want.stat[SND_ST_Q], tol);
                CHECK_SAME(got.stat[SND_ST_AT], want.stat[SND_ST_AT]);
                CHECK_SAME(got.stat[SND_ST_EXP], want.stat[SND_ST_EXP]);
                if (params) assert_in_range(got.most, 1, limit < PIECE_D ? PIECE_D : limit);
            }
        }
        for (int once = 0; once < 2; once++) { // no such class
            run_loss(dt, !once, false, once, PIECE_V, &got);
            assert_true(isnan(got.loss) && isnan(got.dx[0]));
        }
        snd_pieces_limit(0);
    }
}

// ---- executor -------------------------------------------------------------------------------------------------------

static void threads_give_the_same_bits(void **state) {
    (void)state;
    for (int t = 0; t < 2; t++) {
        const deep d = {PRE_NORM, 3, 61, 130, true, false};
        int fused;
        run_deep(&d, t ? SND_F32 : SND_F64, 1, FUSE_FIRST, false, 1, ya, dxa, &fused);
        for (int th = 2; th <= 3; th++) {
            run_deep(&d, t ? SND_F32 : SND_F64, th, FUSE_FIRST, false, 1, yb, dxb, &fused);
            same_results(61 * 130);
        }
    }
}

static void sources_agree(void **state) {
    (void)state;
    net n = net_open(SND_F32);
    const snd_init inits[] = {{SND_INIT_CONST, 2, 0.5},
                              {SND_INIT_NORMAL, 2, 1.5},
                              {SND_INIT_TRUNC, 1, 1},
                              {SND_INIT_UNIFORM, 3, 0.5},
                              {SND_INIT_LAST, 2, 0.5}};
    snd_id p[5];
    for (int i = 0; i < 5; i++) {
        char name[8];
        snprintf(name, sizeof name, "p%d", i);
        p[i] = snd_g_param(n.g, name, SND_SHAPE(4000), &inits[i]);
    }
    snd_source a, b, fresh;
    CHECK_OK(snd_source_drawn(n.g, 9, 1, &fresh));
    CHECK_OK(snd_source_drawn(n.g, 9, 1, &a));
    CHECK_OK(snd_source_resident(n.g, 9, 2, &b));
    for (int i = 4; i >= 0; i--) {
        const void *x, *y;
        int32_t e;
        CHECK_OK(a.acquire(a.self, n.g, i, &x, &e));
        CHECK_OK(b.acquire(b.self, n.g, i, &y, &e));
        assert_memory_equal(x, y, 4000 * sizeof(float));
        double q = 0, top = 0, mean = 0;
        for (int k = 0; k < 4000; k++) {
            const double v = (double)((const float *)x)[k];
            q += v * v / 4000;
            mean += v / 4000;
            top = fmax(top, fabs(v));
        }
        const double want_q[] = {1, 9, 0.7737, 0.75, 1.0 / 4000},
                     want_top[] = {1, 20, 2, 1.5, 1}; // trunc: 1 - 4 phi(2)/(2 Phi(2) - 1)
        CHECK_REL(q, want_q[i], 0.1);
        CHECK_CLOSE(mean, i == 0 ? 1 : 0, 0.15);
        assert_true(top <= want_top[i]);
        float piece[700];
        for (int64_t first = 0; first < 4000; first += 691) { // on any word of a block, before and after it is held
            const int64_t m = 4000 - first < 700 ? 4000 - first : 700;
            fresh.read(fresh.self, n.g, i, first, m, piece);
            assert_memory_equal(piece, (const float *)x + first, (size_t)m * sizeof *piece);
            b.read(b.self, n.g, i, first, m, piece);
            assert_memory_equal(piece, (const float *)x + first, (size_t)m * sizeof *piece);
        }
        a.release(a.self, n.g, i);
        b.release(b.self, n.g, i);
    }
    void *data;
    CHECK_OK(snd_source_data(&b, n.g, snd_g_value(n.g, p[1])->param, &data));
    snd_source_close(&fresh);
    snd_source_close(&a);
    snd_source_close(&b);
    net_destroy(&n);
}

static int progress_calls;
static void on_progress(void *ctx, int done, int total) {
    (void)total;
    progress_calls++;
    if (done == 2) ((snd_stop *)ctx)->flag = 1;
}

static void missing_input_and_stop(void **state) {
    (void)state;
    net n = net_open(SND_F32);
    snd_id x[4];
    const deep d = {ONE_MATRIX, 3, 2, 4, false, false};
    build_deep(&n, &d, x);
    CHECK_OK(snd_plan_make(n.arena, n.g, &x[3], 1, &n.plan));
    CHECK_OK(snd_source_drawn(n.g, 1, 1, &n.src));
    snd_stop stop = {0};
    const snd_exec_opts o = {.threads = 1, .progress = on_progress, .ctx = &stop, .stop = &stop};
    CHECK_OK(snd_exec_create(n.g, n.plan, &n.src, &o, &n.exec));
    CHECK_STATUS(snd_exec_run(n.exec), SONDE_EINPUT);
    assert_non_null(strstr(sonde_error_message(), "'x0'"));
    set_inputs(&n, 1);
    CHECK_STATUS(snd_exec_run(n.exec), SONDE_EINTERRUPTED);
    assert_int_equal(progress_calls, 2);
    assert_null(snd_exec_raw(n.exec, x[3], NULL)); // half a run has no results
    stop.flag = 0;
    const int64_t before = snd_alloc_count();
    CHECK_STATUS(snd_exec_run(n.exec), SONDE_EINTERRUPTED);
    stop.flag = 0;
    assert_int_equal(snd_alloc_count(), before); // no heap use per operation once parameters are here
    net_destroy(&n);
}

static void kept_views(void **state) {
    (void)state;
    net n = net_open(SND_F32);
    const snd_id x = net_input(&n, SND_SHAPE(2, 3), 0);
    const snd_id w = snd_g_param(n.g, "w", SND_SHAPE(6), &(snd_init){.kind = SND_INIT_CONST, .a = 3, .factor = 1});
    const snd_id a = snd_g_alias(n.g, w), b = snd_g_reshape(n.g, snd_g_alias(n.g, w), SND_SHAPE(2, 3));
    const snd_id keep[] = {a, snd_g_mul(n.g, b, x), snd_g_alias(n.g, x)};
    CHECK_OK(snd_plan_make(n.arena, n.g, keep, 3, &n.plan));
    CHECK_STATUS(snd_plan_make(n.arena, n.g, &w, 1, &n.plan), SONDE_EUNSUPPORTED);
    CHECK_OK(snd_plan_make(n.arena, n.g, keep, 3, &n.plan));
    CHECK_OK(snd_source_drawn(n.g, 1, 1, &n.src));
    CHECK_OK(snd_exec_create(n.g, n.plan, &n.src, NULL, &n.exec));
    const double in[6] = {1, 2, 3, 4, 5, 6};
    double got[6];
    CHECK_OK(snd_exec_set(n.exec, x, in, SND_F64));
    CHECK_OK(snd_exec_run(n.exec));
    for (int k = 0; k < 3; k++) {
        CHECK_OK(snd_exec_get(n.exec, keep[k], got));
        CHECK_SAME(got[4], k == 0 ? 3 : k == 1 ? 15 : 5);
    }
    net_destroy(&n);
}

// ---- beyond the type ------------------------------------------------------------------------------------------------

typedef struct far_stats {
    double log10_q[2], log10_gq[2];
    double nonfinite;
} far_stats;

static double log10_q(const net *n, snd_id stat, double *nonfinite) {
    double s[SND_ST_COUNT];
    net_get(n, stat, s);
    *nonfinite += s[SND_ST_NONFINITE];
    return log10(s[SND_ST_Q]) + 2 * s[SND_ST_EXP] * log10(2);
}

static void far_net(net_style style, int layers, double scale, snd_dtype t, far_stats *out) {
    net n = net_open(t);
    snd_id *x = calloc((size_t)layers + 1, sizeof *x), grads[2];
    const deep d = {style, layers, 8, 32, false, false};
    build_deep(&n, &d, x);
    net_output(&n, x[layers]);
    const snd_id wrt[2] = {x[0], x[layers / 2]};
    snd_g_grad(n.g, n.y, n.dy, 1, wrt, 2, grads);
    const snd_id keep[4] = {snd_g_stat(n.g, x[layers / 2], 0, 0), snd_g_stat(n.g, x[layers], 0, 0),
                            snd_g_stat(n.g, grads[0], 0, 0), snd_g_stat(n.g, grads[1], 0, 0)};
    CHECK_OK(snd_plan_make(n.arena, n.g, keep, 4, &n.plan));
    CHECK_OK(snd_source_drawn(n.g, 21, 1, &n.src));
    CHECK_OK(snd_exec_create(n.g, n.plan, &n.src, &(snd_exec_opts){.threads = 1}, &n.exec));
    set_inputs(&n, scale);
    CHECK_OK(snd_exec_run(n.exec));
    out->nonfinite = 0;
    for (int k = 0; k < 2; k++) {
        out->log10_q[k] = log10_q(&n, keep[k], &out->nonfinite);
        out->log10_gq[k] = log10_q(&n, keep[2 + k], &out->nonfinite);
    }
    net_destroy(&n);
    free(x);
}

// x + relu(Wx) for 400 layers: the mean square passes 10^150 and its gradient likewise.
static void deep_nets_in_f32(void **state) {
    (void)state;
    static const double scales[] = {1, 1e30, 1e-30};
    for (int style = ONE_MATRIX; style <= POST_NORM; style++) {
        for (int k = 0; k < 3; k++) {
            far_stats a, b;
            far_net(style, style == ONE_MATRIX ? 400 : 60, scales[k], SND_F64, &a);
            far_net(style, style == ONE_MATRIX ? 400 : 60, scales[k], SND_F32, &b);
            CHECK_SAME(b.nonfinite, 0);
            for (int i = 0; i < 2; i++) {
                CHECK_CLOSE(b.log10_q[i] - a.log10_q[i], 0, 1e-3);
                CHECK_CLOSE(b.log10_gq[i] - a.log10_gq[i], 0, 1e-3);
            }
            if (style == ONE_MATRIX && k == 0) assert_true(a.log10_q[1] > 120 && a.log10_gq[0] > 120);
            if (style == ONE_MATRIX) CHECK_CLOSE(a.log10_q[1] - a.log10_q[0], b.log10_q[1] - b.log10_q[0], 1e-3);
        }
    }
}

// ---- running out of memory ------------------------------------------------------------------------------------------

static sonde_status everything(void) {
    sonde_status s = SONDE_OK;
    snd_arena *arena = snd_arena_create();
    if (!arena) return SONDE_ENOMEM;
    net n = {.arena = arena, .g = snd_graph_create(arena, SND_F32)};
    snd_id x[40], keep[41];
    s = n.g ? SONDE_OK : SONDE_ENOMEM;
    if (s == SONDE_OK) {
        const deep d = {PRE_NORM, 39, 3, 4, true, false};
        build_deep(&n, &d, x);
        const snd_id dy = snd_g_input(n.g, "dy", SND_SHAPE(3, 4), SND_DT_NONE);
        snd_id grads[39];
        for (int l = 0; l < 39; l++) keep[l] = 0;
        snd_g_fuse(n.g, x, 40);
        snd_g_grad(n.g, &x[39], &dy, 1, x, 39, grads);
        for (int l = 0; l < 39; l++) keep[l] = snd_g_stat(n.g, grads[l], 0, SND_SM_BVAR);
        s = snd_graph_status(n.g);
        if (s == SONDE_OK) s = snd_plan_make(arena, n.g, keep, 39, &n.plan);
        if (s == SONDE_OK) s = snd_source_drawn(n.g, 1, 1, &n.src);
        if (s == SONDE_OK) s = snd_exec_create(n.g, n.plan, &n.src, &(snd_exec_opts){.threads = 1}, &n.exec);
        static const double zeros[12];
        if (s == SONDE_OK) s = snd_exec_set(n.exec, x[0], zeros, SND_F64);
        if (s == SONDE_OK) s = snd_exec_set(n.exec, dy, zeros, SND_F64);
        if (s == SONDE_OK) s = snd_exec_run(n.exec);
    }
    snd_exec_destroy(n.exec);
    snd_source_close(&n.src);
    snd_arena_destroy(arena);
    return s;
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    const size_t before = snd_alloc_bytes();
    int64_t n = 1;
    for (;; n++) {
        snd_alloc_fail_at(n);
        const sonde_status s = everything();
        snd_alloc_fail_at(0);
        assert_int_equal(snd_alloc_bytes(), before);
        if (s == SONDE_OK) break;
        CHECK_STATUS(s, SONDE_ENOMEM);
        assert_true(n < 10000);
    }
    assert_true(n > 20);
}

// ---- statistics -----------------------------------------------------------------------------------------------------

static void statistics(void **state) {
    (void)state;
    enum { R = 5, D = 6 };
    for (int t = 0; t < 2; t++) {
        for (int shift = -30; shift <= 30; shift += 30) {
            net n = net_open(t ? SND_F32 : SND_F64);
            const snd_id x = net_input(&n, SND_SHAPE(R, D), 0), w = net_input(&n, SND_SHAPE(R, D), 0);
            net_output(&n, snd_g_stat(n.g, x, w, 63));
            net_close_graph(&n, false, 1, 1);
            double v[R * D], u[R * D], s[SND_ST_COUNT];
            double q = 0, mean = 0, rowmean = 0, bvar = 0, rowcos = 0, ratio = 0;
            fill_normal(v, R * D, 0);
            fill_normal(u, R * D, 1);
            CHECK_OK(snd_exec_set(n.exec, x, v, SND_F64));
            CHECK_OK(snd_exec_set(n.exec, w, u, SND_F64));
            snd_exec_shift(n.exec, x, shift);
            CHECK_OK(snd_exec_run(n.exec));
            net_get(&n, n.y[0], s);
            for (int r = 0; r < R; r++) {
                double m = 0, vv = 0, uu = 0, uv = 0;
                for (int j = r * D; j < (r + 1) * D; j++) {
                    q += v[j] * v[j] / (R * D);
                    m += v[j] / D;
                    vv += v[j] * v[j];
                    uu += u[j] * u[j];
                    uv += u[j] * v[j];
                }
                mean += m / R;
                rowmean += m * m / R;
                rowcos += uv / sqrt(uu * vv) / R;
                ratio += sqrt(vv / uu) / R;
            }
            for (int j = 0; j < D; j++) {
                double m = 0;
                for (int r = 0; r < R; r++) m += v[r * D + j] / R;
                for (int r = 0; r < R; r++) bvar += pow(v[r * D + j] - m, 2) / (R * D);
            }
            const double f = ldexp(1, (int)s[SND_ST_EXP]), tol = t ? 1e-6 : 1e-13;
            CHECK_SAME(s[SND_ST_EXP], shift);
            CHECK_CLOSE(s[SND_ST_Q] * f * f, q, tol);
            CHECK_CLOSE(s[SND_ST_MEAN] * f, mean, tol);
            CHECK_CLOSE(s[SND_ST_VAR] * f * f, q - rowmean, tol);
            CHECK_CLOSE(s[SND_ST_BVAR] * f * f, bvar, tol);
            CHECK_CLOSE(s[SND_ST_ROWCOS], rowcos, tol);
            CHECK_CLOSE(s[SND_ST_RATIO], ratio, tol);
            CHECK_SAME(s[SND_ST_NONFINITE], 0);
            assert_true(s[SND_ST_RANK] > 1 && s[SND_ST_RANK] < R);
            assert_true(fabs(s[SND_ST_COS]) < 1 && s[SND_ST_KURT] > 1);
            CHECK_SAME(fabs(v[(int)s[SND_ST_AT]]) > 1.5, 1);
            net_destroy(&n);
        }
    }
}

static void run_stat(snd_dtype t, int threads, int mask, const double *x, int shift, double *stat) {
    enum { R = 40, D = 65 };
    net n = net_open(t);
    net_output(&n, snd_g_stat(n.g, net_input(&n, SND_SHAPE(R, D), 0), 0, mask));
    net_close_graph(&n, false, threads, 1);
    CHECK_OK(snd_exec_set(n.exec, n.in[0], x, SND_F64));
    snd_exec_shift(n.exec, n.in[0], shift);
    CHECK_OK(snd_exec_run(n.exec));
    net_get(&n, n.y[0], stat);
    net_destroy(&n);
}

// Sums of n in double agree to n roundings; a variance is a difference of two, of which twenty bits may be lost.
static void check_light(const double *got, const double *whole, int n) {
    for (int i = 0; i < SND_ST_COUNT; i++) {
        const double tol = (i == SND_ST_VAR ? 0x1p20 : 1) * n * 0x1p-52;
        switch (i) {
        case SND_ST_Q:
        case SND_ST_MEAN:
        case SND_ST_VAR:
            if (isfinite(whole[i]))
                CHECK_CLOSE(got[i], whole[i], tol * fmax(fabs(whole[i]), i == SND_ST_MEAN ? 1 : 0));
            else
                assert_false(isfinite(got[i]));
            break;
        case SND_ST_NONFINITE:
        case SND_ST_EXP: CHECK_SAME(got[i], whole[i]); break;
        default: assert_true(isnan(got[i])); // nobody asked
        }
    }
}

// The light forms say of q, mean, var, of what is not finite and of the exponent what the whole one says, and no more: of
// numbers around 0 and 1e4, far from one, and with a NaN and an Inf among them.
static void light_statistics(void **state) {
    (void)state;
    enum { N = 40 * 65 };
    for (int t = 0; t < 2; t++)
        for (int c = 0; c < 4; c++) {
            const snd_dtype type = t ? SND_F32 : SND_F64;
            double x[N], whole[SND_ST_COUNT], first[SND_ST_COUNT], light[SND_ST_COUNT], q[SND_ST_COUNT];
            fill_normal(x, N, 3);
            for (int i = 0; i < N; i++) x[i] = c == 1 ? 1e4 + x[i] : x[i];
            if (c == 3) x[77] = NAN, x[1000] = INFINITY;
            run_stat(type, 1, 0, x, c == 2 ? 100 : 0, whole);
            CHECK_SAME(whole[SND_ST_NONFINITE], c == 3 ? 2 : 0);
            for (int threads = 1; threads <= 4; threads++) {
                run_stat(type, threads, SND_SM_LIGHT, x, c == 2 ? 100 : 0, light);
                check_light(light, whole, N);
                if (threads == 1) memcpy(first, light, sizeof first);
                assert_memory_equal(first, light, sizeof first);
                run_stat(type, threads, SND_SM_ONLY_Q, x, c == 2 ? 100 : 0, q);
                CHECK_SAME(q[SND_ST_NONFINITE], whole[SND_ST_NONFINITE]);
                CHECK_SAME(q[SND_ST_EXP], whole[SND_ST_EXP]);
                assert_true(c == 3 ? isnan(q[SND_ST_Q]) : fabs(q[SND_ST_Q] / whole[SND_ST_Q] - 1) <= N * 0x1p-52);
            }
        }
}

// ---- integrated weights against real ones ---------------------------------------------------------------------------

// Mean and standard error of several statistics over seeds.
typedef struct moments {
    double sum[8], sum2[8];
    int n;
} moments;
static void add_sample(moments *m, const double *v, int k) {
    for (int i = 0; i < k; i++) {
        m->sum[i] += v[i];
        m->sum2[i] += v[i] * v[i];
    }
    m->n++;
}
static double mean_of(const moments *m, int i) {
    return m->sum[i] / m->n;
}
static double error_of(const moments *m, int i) {
    return sqrt(fmax(m->sum2[i] / m->n - mean_of(m, i) * mean_of(m, i), 0) / m->n);
}

// One map: y = W x and dx = Wᵀ dy for rows with given overlaps, dy partly along y (so the coherent part shows).
static void one_map(bool integrated, snd_dtype t, int64_t rows, int seeds, moments *m) {
    enum { K = 7, N = 5 };
    net n = net_open(t);
    const snd_id x = net_input(&n, SND_SHAPE(rows, K), 0);
    const snd_id w =
        snd_g_param(n.g, "w", SND_SHAPE(N, K), &(snd_init){.kind = SND_INIT_NORMAL, .a = 0.6, .factor = 1});
    const snd_id y = integrated ? snd_g_glinear(n.g, x, N, 0.36) : snd_g_linear(n.g, x, w);
    snd_id dy = snd_g_input(n.g, "dy", SND_SHAPE(rows, N), 0), dx;
    n.dy[0] = dy;
    n.y[0] = y;
    n.n_y = 1;
    const snd_id up = snd_g_add(n.g, dy, snd_g_unary(n.g, SND_KFN_TANH, y));
    snd_g_grad(n.g, &y, &up, 1, &x, 1, &dx);
    const snd_id keep[2] = {y, dx};
    CHECK_OK(snd_plan_make(n.arena, n.g, keep, 2, &n.plan));
    double vx[8 * K], vy[8 * N], vd[8 * K], vdy[8 * N];
    fill_normal(vx, rows * K, 3);
    for (int j = 0; j < K; j++) {
        vx[K + j] = 0.8 * vx[j] + 0.6 * vx[K + j];
        if (rows > 2) vx[2 * K + j] = vx[j]; // rank deficient
        if (rows > 3) vx[3 * K + j] = 0;
    }
    fill_normal(vdy, rows * N, 4);
    for (int s = 0; s < seeds; s++) {
        CHECK_OK(snd_source_drawn(n.g, (uint64_t)s, 1, &n.src));
        CHECK_OK(snd_exec_create(n.g, n.plan, &n.src, &(snd_exec_opts){.threads = 1, .seed = (uint64_t)s}, &n.exec));
        CHECK_OK(snd_exec_set(n.exec, x, vx, SND_F64));
        CHECK_OK(snd_exec_set(n.exec, dy, vdy, SND_F64));
        CHECK_OK(snd_exec_run(n.exec));
        net_get(&n, y, vy);
        net_get(&n, dx, vd);
        double v[8] = {0};
        for (int j = 0; j < N; j++) {
            v[0] += vy[j] * vy[j];
            v[1] += vy[j] * vy[N + j];
        }
        for (int j = 0; j < K; j++) {
            v[2] += vd[j] * vd[j];
            v[3] += vd[j] * vd[K + j];
            v[4] += vd[j] * vx[j]; // the coherent part
            v[5] += vd[j] * vx[K + j];
            v[6] += vd[(rows - 1) * K + j] * vd[(rows - 1) * K + j];
        }
        v[7] = v[0] * v[2];
        if (integrated && rows > 2) {
            for (int j = 0; j < N; j++) CHECK_CLOSE(vy[2 * N + j], vy[j], 1e-5); // equal rows, equal results
        }
        add_sample(m, v, 8);
        snd_exec_destroy(n.exec);
        snd_source_close(&n.src);
        n.exec = NULL;
    }
    net_destroy(&n);
}

static void integrated_map(void **state) {
    (void)state;
    for (int k = 0; k < 8; k++) {
        const int64_t rows = 2 + 2 * (k / 2); // 8 rows of 7 features: more rows than features
        moments real = {0}, gone = {0};
        one_map(false, k % 2 ? SND_F32 : SND_F64, rows, 2000, &real);
        one_map(true, k % 2 ? SND_F32 : SND_F64, rows, 2000, &gone);
        for (int i = 0; i < 8; i++) {
            const double error = hypot(error_of(&real, i), error_of(&gone, i));
            if (fabs(mean_of(&real, i) - mean_of(&gone, i)) <= 4.5 * error) continue;
            fail_msg("%d rows, statistic %d: real weights %.5g, integrated %.5g, standard error %.2g", (int)rows, i,
                     mean_of(&real, i), mean_of(&gone, i), error);
        }
    }
}

// x + relu(Wx): log q and log gq grow by log 2.904 a layer, the gradient through its coherent part.
static void deep_sample(bool integrated, int seeds, moments *m) {
    enum { L = 12 };
    net n = net_open(SND_F64);
    snd_id x[L + 1];
    const deep d = {ONE_MATRIX, L, 4, 48, false, integrated};
    build_deep(&n, &d, x);
    net_output(&n, x[L]);
    snd_g_grad(n.g, n.y, n.dy, 1, x, 1, n.grad);
    const snd_id keep[3] = {snd_g_stat(n.g, x[L], 0, SND_SM_COS), snd_g_stat(n.g, n.grad[0], 0, 0),
                            snd_g_stat(n.g, x[6], 0, 0)};
    CHECK_OK(snd_plan_make(n.arena, n.g, keep, 3, &n.plan));
    CHECK_OK(snd_source_resident(n.g, 0, 1, &n.src));
    CHECK_OK(snd_exec_create(n.g, n.plan, &n.src, &(snd_exec_opts){.threads = 1}, &n.exec));
    static double in[4 * 48];
    for (int s = 0; s < seeds; s++) {
        for (int i = 0; i < 4 * 48; i++) in[i] = draw_normal("sample", s, i);
        CHECK_OK(snd_exec_set(n.exec, n.in[0], in, SND_F64));
        for (int i = 0; i < 4 * 48; i++) in[i] = draw_normal("upstream", s, i);
        CHECK_OK(snd_exec_set(n.exec, n.dy[0], in, SND_F64));
        snd_exec_reseed(n.exec, (uint64_t)s + 100);
        for (int p = 0; p < snd_g_param_count(n.g); p++) {
            void *data;
            CHECK_OK(snd_source_data(&n.src, n.g, p, &data));
            const snd_value *v = snd_g_value(n.g, snd_g_param_at(n.g, p));
            snd_k_fill_normal(1, SND_F64, snd_key_make((uint64_t)s, v->name), 0, 48 * 48, snd_g_param_init(n.g, p)->a,
                              data);
        }
        CHECK_OK(snd_exec_run(n.exec));
        double stat[3][SND_ST_COUNT];
        for (int k = 0; k < 3; k++) net_get(&n, keep[k], stat[k]);
        const double v[5] = {log(stat[0][SND_ST_Q]), log(stat[1][SND_ST_Q]), stat[0][SND_ST_COS],
                             log(stat[0][SND_ST_Q] / stat[2][SND_ST_Q]), pow(log(stat[1][SND_ST_Q]), 2)};
        add_sample(m, v, 5);
    }
    net_destroy(&n);
}

static void integrated_net(void **state) {
    (void)state;
    moments real = {0}, gone = {0};
    deep_sample(false, 300, &real);
    deep_sample(true, 300, &gone);
    for (int i = 0; i < 5; i++) {
        const double error = hypot(error_of(&real, i), error_of(&gone, i));
        print_message("statistic %d: real weights %.4f, integrated %.4f, standard error %.4f\n", i, mean_of(&real, i),
                      mean_of(&gone, i), error);
        assert_true(fabs(mean_of(&real, i) - mean_of(&gone, i)) <= 4.5 * error);
    }
    // q grows by 2.904 a layer at large depth and width (lecture figures: the mean of relu accumulates)
    CHECK_CLOSE(mean_of(&gone, 3) / 6, log(2.904), 0.06);
}

// Two chains through one map draw their fresh parts apart; the same run twice is the same.
static void chains_draw_apart(void **state) {
    (void)state;
    net n = net_open(SND_F64);
    const snd_id x = net_input(&n, SND_SHAPE(2, 9), 0), y = snd_g_glinear(n.g, x, 5, 1);
    net_output(&n, y);
    snd_id dx[2];
    snd_g_grad(n.g, n.y, n.dy, 1, &x, 1, &dx[0]);
    snd_g_grad(n.g, n.y, n.dy, 1, &x, 1, &dx[1]);
    const snd_id keep[3] = {y, dx[0], dx[1]};
    CHECK_OK(snd_plan_make(n.arena, n.g, keep, 3, &n.plan));
    CHECK_OK(snd_source_drawn(n.g, 1, 1, &n.src));
    CHECK_OK(snd_exec_create(n.g, n.plan, &n.src, &(snd_exec_opts){.threads = 1, .seed = 3}, &n.exec));
    double a[18], b[18], c[18], in[18];
    set_inputs(&n, 1);
    fill_normal(in, 18, 0);
    CHECK_OK(snd_exec_run(n.exec));
    net_get(&n, dx[0], a);
    net_get(&n, dx[1], b);
    CHECK_OK(snd_exec_run(n.exec));
    net_get(&n, dx[0], c);
    double along[2] = {0};
    for (int i = 0; i < 18; i++) {
        CHECK_SAME(c[i], a[i]);
        assert_true(a[i] != b[i]);
        along[0] += i < 9 ? a[i] * in[i] : 0;
        along[1] += i < 9 ? b[i] * in[i] : 0;
    }
    CHECK_CLOSE(along[1], along[0], 1e-12); // x . dx = y . dy for both
    double near[10], far[10];
    net_get(&n, n.y[0], near);
    for (int i = 0; i < 18; i++) in[i] = ldexp(in[i], 600); // beyond the safe range: y follows, dx does not
    CHECK_OK(snd_exec_set(n.exec, x, in, SND_F64));
    CHECK_OK(snd_exec_run(n.exec));
    net_get(&n, n.y[0], far);
    net_get(&n, dx[0], c);
    for (int i = 0; i < 10; i++) CHECK_CLOSE(ldexp(far[i], -600), near[i], 1e-13);
    for (int i = 0; i < 18; i++) CHECK_CLOSE(c[i], a[i], 1e-13);
    snd_exec_reseed(n.exec, 4);
    CHECK_OK(snd_exec_run(n.exec));
    net_get(&n, dx[0], c);
    assert_true(c[0] != a[0]);
    net_destroy(&n);
}

// More rows than features: the forward fixes the weights, so nothing fresh is left and all chains agree.
static void nothing_fresh_at_full_rank(void **state) {
    (void)state;
    net n = net_open(SND_F64);
    const snd_id x = net_input(&n, SND_SHAPE(9, 7), 0);
    net_output(&n, snd_g_glinear(n.g, x, 5, 1));
    snd_id dx[2];
    snd_g_grad(n.g, n.y, n.dy, 1, &x, 1, &dx[0]);
    snd_g_grad(n.g, n.y, n.dy, 1, &x, 1, &dx[1]);
    CHECK_OK(snd_plan_make(n.arena, n.g, dx, 2, &n.plan));
    CHECK_OK(snd_source_drawn(n.g, 1, 1, &n.src));
    CHECK_OK(snd_exec_create(n.g, n.plan, &n.src, &(snd_exec_opts){.threads = 1, .seed = 3}, &n.exec));
    set_inputs(&n, 1);
    CHECK_OK(snd_exec_run(n.exec));
    net_get(&n, dx[0], ya);
    net_get(&n, dx[1], yb);
    for (int i = 0; i < 63; i++) CHECK_CLOSE(yb[i], ya[i], 1e-10);
    net_destroy(&n);
}

static void bad_rows_stay_alone(void **state) {
    (void)state;
    for (int t = 0; t < 2; t++) {
        net n = net_open(t ? SND_F32 : SND_F64);
        const snd_id x = net_input(&n, SND_SHAPE(3, 4), 0);
        net_output(&n, snd_g_glinear(n.g, x, 5, 1));
        net_close_graph(&n, true, 1, 1);
        double in[12], y[15], dx[12];
        fill_normal(in, 12, 0);
        in[4] = NAN;
        fill_normal(y, 15, 1);
        CHECK_OK(snd_exec_set(n.exec, x, in, SND_F64));
        CHECK_OK(snd_exec_set(n.exec, n.dy[0], y, SND_F64));
        CHECK_OK(snd_exec_run(n.exec));
        net_get(&n, n.y[0], y);
        net_get(&n, n.grad[0], dx);
        for (int i = 0; i < 15; i++) assert_int_equal(isnan(y[i]) != 0, i / 5 == 1);
        for (int i = 0; i < 12; i++) assert_true(i / 4 == 1 || isfinite(dx[i]));
        net_destroy(&n);
    }
}

// What a row holds must not show in another one, however far apart their sizes: row 1 holds one large number or one that
// is none. kind: a function (positive), a norm (negative), or 0: x + gelu(W x).
static void run_beside(int kind, snd_dtype t, double outlier, double *y, double *dx) {
    enum { D = 6 };
    double in[2 * D], dy[2 * D];
    net n = net_open(t);
    const snd_id x = net_input(&n, SND_SHAPE(2, D), SND_DT_NONE);
    const deep d = {.rows = 2, .width = D};
    snd_id v;
    if (kind > 0)
        v = snd_g_unary(n.g, (snd_kfn)kind, x);
    else if (kind == 0)
        v = snd_g_add(n.g, x, snd_g_unary(n.g, SND_KFN_GELU, map(&n, &d, "w", 0, x, 1)));
    else
        v = kind == -1   ? snd_g_layernorm(n.g, x, 0, 0, 1e-5, false)
            : kind == -2 ? snd_g_rmsnorm(n.g, x, 0, 0, 1e-5, false)
                         : snd_g_unit(n.g, x, 1.5);
    net_output(&n, v);
    net_close_graph(&n, true, 1, 3);
    fill_normal(in, 2 * D, 5);
    fill_normal(dy, 2 * D, 6);
    for (int i = 0; i < 2 * D; i++) in[i] = kind == SND_KFN_SQRT || kind == SND_KFN_LOG ? fabs(in[i]) : in[i];
    in[D + 1] = outlier;
    CHECK_OK(snd_exec_set(n.exec, x, in, SND_F64));
    CHECK_OK(snd_exec_set(n.exec, n.dy[0], dy, SND_F64));
    CHECK_OK(snd_exec_run(n.exec));
    net_get(&n, n.y[0], y);
    net_get(&n, n.grad[0], dx);
    net_destroy(&n);
}

static void rows_keep_to_themselves(void **state) {
    (void)state;
    static const double outliers[2][6] = {{1e20, 1e30, 3.4e38, 1e-30, NAN, INFINITY},
                                          {1e150, 1e200, 1.7e308, 1e-200, NAN, INFINITY}};
    double y0[12], dx0[12], y[12], dx[12];
    for (int kind = -3; kind < SND_KFN_COUNT; kind++) {
        for (int i = 0; i < 12; i++) {
            const bool wide = i >= 6;
            const snd_dtype t = wide ? SND_F64 : SND_F32;
            run_beside(kind, t, 1, y0, dx0);
            run_beside(kind, t, outliers[wide][i % 6], y, dx);
            for (int k = 0; k < 6; k++) {
                CHECK_CLOSE(y[k], y0[k], wide ? 1e-14 : 1e-6);
                CHECK_CLOSE(dx[k], dx0[k], wide ? 1e-14 : 1e-6);
            }
        }
    }
}

// Gradients reach a constant row through a norm although no double holds its eps.
static void constant_rows_far_out(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        const double at[] = {2.5, 1e30, 1e200, 1.7e308};
        net n = net_open(i == 1 ? SND_F32 : SND_F64);
        const snd_id x = net_input(&n, SND_SHAPE(1, 4), SND_DT_NONE);
        net_output(&n, snd_g_layernorm(n.g, x, 0, 0, 1e-4, false));
        net_close_graph(&n, true, 1, 3);
        const double in[] = {at[i], at[i], at[i], at[i]}, dy[] = {1, 2, 3, 6};
        double y[4], dx[4];
        CHECK_OK(snd_exec_set(n.exec, x, in, SND_F64));
        CHECK_OK(snd_exec_set(n.exec, n.dy[0], dy, SND_F64));
        CHECK_OK(snd_exec_run(n.exec));
        net_get(&n, n.y[0], y);
        net_get(&n, n.grad[0], dx);
        for (int k = 0; k < 4; k++) {
            CHECK_SAME(y[k], 0);
            CHECK_CLOSE(dx[k], 100 * (dy[k] - 3), 1e-5);
        }
        net_destroy(&n);
    }
}

// One graph and plan, several executors at a time.
typedef struct shared {
    const net *n;
    double dx[6][48], in[48];
    sonde_status s[6];
} shared;

static sonde_status run_alone(shared *w, int64_t task) {
    snd_source src = {0};
    snd_exec *e = NULL;
    const net *n = w->n;
    sonde_status s = snd_source_drawn(n->g, (uint64_t)task, 1, &src);
    if (s == SONDE_OK)
        s = snd_exec_create(n->g, n->plan, &src, &(snd_exec_opts){.threads = 1, .seed = (uint64_t)task}, &e);
    if (s == SONDE_OK) s = snd_exec_set(e, n->in[0], w->in, SND_F64);
    if (s == SONDE_OK) s = snd_exec_set(e, n->dy[0], w->in, SND_F64);
    for (int k = 0; k < 3 && s == SONDE_OK; k++) s = snd_exec_run(e);
    if (s == SONDE_OK) s = snd_exec_get(e, n->grad[0], w->dx[task]);
    snd_exec_destroy(e);
    snd_source_close(&src);
    return s;
}

static void shared_task(void *ctx, int64_t task) {
    shared *w = ctx;
    w->s[task] = run_alone(w, task);
}

static void executors_share_a_graph(void **state) {
    (void)state;
    static shared serial, parallel;
    for (int integrated = 0; integrated < 2; integrated++) {
        net n = net_open(SND_F32);
        snd_id x[9];
        const deep d = {PRE_NORM, 8, 4, 12, false, integrated};
        build_deep(&n, &d, x);
        net_output(&n, x[8]);
        net_close_graph(&n, true, 1, 1);
        serial.n = parallel.n = &n;
        fill_normal(serial.in, 48, 0);
        memcpy(parallel.in, serial.in, sizeof serial.in);
        for (int i = 0; i < 6; i++) shared_task(&serial, i);
        snd_parallel(3, 6, shared_task, &parallel);
        for (int i = 0; i < 6; i++) {
            CHECK_OK(serial.s[i]);
            CHECK_OK(parallel.s[i]);
            assert_memory_equal(serial.dx[i], parallel.dx[i], sizeof serial.dx[i]);
            assert_memory_not_equal(serial.dx[i], serial.dx[(i + 1) % 6], sizeof serial.dx[i]);
        }
        net_destroy(&n);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_error_is_kept),
        cmocka_unit_test(names),
        cmocka_unit_test(alias_and_stop),
        cmocka_unit_test(nothing_needless),
        cmocka_unit_test(several_exits),
        cmocka_unit_test(fused_equals_unfused),
        cmocka_unit_test(fused_sum_is_shared),
        cmocka_unit_test(a_tied_table_has_one_gradient),
        cmocka_unit_test(results_are_stored_in_f16),
        cmocka_unit_test(what_f16_loses_is_counted),
        cmocka_unit_test(fusion_spares_taps),
        cmocka_unit_test(places_do_not_matter),
        cmocka_unit_test(deep_plans_are_small),
        cmocka_unit_test(weight_gradients_come_and_go),
        cmocka_unit_test(lean_plans_give_the_same_bits),
        cmocka_unit_test(lean_plans_are_small),
        cmocka_unit_test(cheap_values_are_not_kept),
        cmocka_unit_test(chains_of_cheap_values_end),
        cmocka_unit_test(mean_square_without_the_gradient),
        cmocka_unit_test(pieces_make_the_whole),
        cmocka_unit_test(losses_without_logits),
        cmocka_unit_test(threads_give_the_same_bits),
        cmocka_unit_test(sources_agree),
        cmocka_unit_test(missing_input_and_stop),
        cmocka_unit_test(kept_views),
        cmocka_unit_test(deep_nets_in_f32),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(statistics),
        cmocka_unit_test(light_statistics),
        cmocka_unit_test(integrated_map),
        cmocka_unit_test(integrated_net),
        cmocka_unit_test(chains_draw_apart),
        cmocka_unit_test(nothing_fresh_at_full_rank),
        cmocka_unit_test(bad_rows_stay_alone),
        cmocka_unit_test(rows_keep_to_themselves),
        cmocka_unit_test(constant_rows_far_out),
        cmocka_unit_test(executors_share_a_graph),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
