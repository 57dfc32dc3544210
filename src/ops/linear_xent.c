// Cross-entropy of a linear map's rows over a large vocabulary, in pieces of the vocabulary: the logits never exist, and a
// huge W need not be in memory.
//   z = f x Wᵀ, x: [R, k], W: [V, k];   lse = log sum_v exp z_v;   loss = mean over rows that count of (lse - z_target)
//   dz = dloss/n (exp(z - lse) - onehot);   dx = f dz W;   dW = f dzᵀ x
// The log-sum grows piece by piece: log(e^a + e^b) = max + log1p(e^(min - max)). Backward makes each piece of z again, so
// W is read twice in all; dW's piece follows from the same dz, whole or as statistics.
// Where W and its gradient are in memory anyway, one node does both passes, by pieces of rows: a row's log-sum is there when
// its logits are, so these are made once.
#include "ops/ops_impl.h"

#include <math.h>
#include <string.h>

enum { WANT_DW = 1, WANT_DX = 2 };

// One piece of the vocabulary: classes first .. first+n-1, their logits z [R, n] and the rows' targets among them.
typedef struct piece {
    int64_t R, k, V, step, first, n;
    double scale; // of the buffer's products, to true logits
    const void *w;
    char *w_tmp, *z, *dw, *product;
    int64_t *target; // n: none of these classes
    double *lse;
} piece;

static int64_t step_of(const snd_graph *g, const snd_node *n) {
    int64_t R, k;
    snd_rows(snd_shape_of(g, n->in[0]), &R, &k);
    return snd_piece_rows(snd_graph_dtype(g), snd_shape_of(g, n->in[1]).dim[0], k > R ? k : R);
}

static size_t aligned(size_t bytes) {
    return (bytes + 63) / 64 * 64;
}

static size_t matrix_bytes(const snd_graph *g, int64_t rows, int64_t cols) {
    return aligned((size_t)(rows * cols) * snd_dtype_size(snd_graph_dtype(g)));
}

// Scratch: | rows of W | z | rows of dW | targets | lse | the products' |
static size_t scratch_at(const snd_graph *g, const snd_node *n, piece *p, char *base) {
    int64_t R, k;
    snd_rows(snd_shape_of(g, n->in[0]), &R, &k);
    *p = (piece){.R = R, .k = k, .V = snd_shape_of(g, n->in[1]).dim[0], .step = step_of(g, n)};
    const size_t w = matrix_bytes(g, p->step, k), z = matrix_bytes(g, p->step, R);
    const size_t targets = aligned((size_t)R * sizeof(int64_t)), lse = aligned((size_t)R * sizeof(double));
    const size_t logits = snd_product_scratch(g, R, k), dw = snd_product_scratch(g, p->step, R),
                 dx = snd_product_scratch(g, R, p->step), most = dw > dx ? dw : dx;
    if (base) {
        p->w_tmp = base;
        p->z = base + w;
        p->dw = p->z + z;
        p->target = (int64_t *)(void *)(p->dw + w);
        p->lse = (double *)(void *)(p->dw + w + targets);
        p->product = p->dw + w + targets + lse;
    }
    return 2 * w + z + targets + lse + (logits > most ? logits : most);
}

static size_t scratch(const snd_graph *g, const snd_node *n) {
    piece p;
    return scratch_at(g, n, &p, NULL);
}

static unsigned pieces(const snd_graph *g, const snd_node *n) {
    return snd_is_huge(snd_shape_of(g, n->in[1])) ? 1u << 1 : 0;
}

static void begin(const snd_oprun *r, piece *p) {
    (void)scratch_at(r->g, r->n, p, r->scratch);
    p->scale = r->n->attr.f[0] * snd_logit_factor(r->t, snd_in(r, 0)->e + snd_in(r, 1)->e);
}

static void make_logits(const snd_oprun *r, piece *p, int64_t first) {
    const int64_t *target = snd_in(r, 2)->p;
    p->first = first;
    p->n = p->V - first < p->step ? p->V - first : p->step;
    p->w = snd_param_read(r, 1, first * p->k, p->n * p->k, p->w_tmp);
    snd_product(r, false, true, p->R, p->n, p->k, 1, snd_in(r, 0)->p, p->k, p->w, p->k, 0, p->z, p->n, p->product);
    for (int64_t i = 0; i < p->R; i++) {
        const int64_t t = target[i] - first;
        p->target[i] = target[i] == SND_IGNORED ? SND_IGNORED : t >= 0 && t < p->n ? t : p->n;
    }
}

static bool targets_exist(const snd_oprun *r, const piece *p) {
    return snd_targets_exist(snd_in(r, 2)->p, p->R, p->V);
}

// ---- forward: in x, W, targets; out loss, lse, number of rows that count --------------------------------------------

static sonde_status shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    char a[160], b[160];
    int64_t R, k;
    const snd_shape x = snd_shape_of(g, n->in[0]), w = snd_shape_of(g, n->in[1]), t = snd_shape_of(g, n->in[2]);
    snd_rows(x, &R, &k);
    SND_FAIL_IF(w.nd != 2 || w.dim[1] != k, SONDE_ESHAPE, "input of shape %s does not fit weights of shape %s",
                snd_shape_text(x, a), snd_shape_text(w, b));
    SND_FAIL_IF(snd_g_value(g, n->in[2])->dtype != SND_I64 || snd_shape_size(t) != R, SONDE_ESHAPE,
                "targets of shape %s (i64) do not fit input of shape %s", snd_shape_text(t, a), snd_shape_text(x, b));
    out[0] = snd_shape_make(0, NULL);
    out[1] = SND_SHAPE(R);
    out[2] = SND_SHAPE(1);
    dtype[1] = dtype[2] = SND_F64;
    n->n_out = 3;
    return SONDE_OK;
}

static double log_sum(double a, double b) {
    const double hi = a > b || isnan(a) ? a : b, lo = a > b || isnan(a) ? b : a;
    return isinf(hi) ? hi : hi + log1p(exp(lo - hi)); // the higher one is NaN when one is
}

static void run(snd_oprun *r) {
    piece p;
    begin(r, &p);
    double *lse = snd_out(r, 1)->p, loss = 0;
    int64_t used = 0, unused;
    for (int64_t i = 0; i < p.R; i++) lse[i] = -INFINITY;
    for (int64_t first = 0; first < p.V; first += p.step) {
        make_logits(r, &p, first);
        for (int64_t i = 0; i < p.R; i++) { // the logit of the target itself
            if (p.target[i] != SND_IGNORED && p.target[i] < p.n)
                loss -= p.scale * snd_load(r->t, p.z, i * p.n + p.target[i]);
            p.target[i] = SND_IGNORED; // of the piece, the log-sum alone
        }
        (void)snd_k_xent_fwd(r->threads, r->t, p.R, p.n, p.scale, 0, p.z, p.target, SND_IGNORED, p.lse, &unused);
        for (int64_t i = 0; i < p.R; i++) lse[i] = log_sum(lse[i], p.lse[i]);
    }
    const int64_t *target = snd_in(r, 2)->p;
    for (int64_t i = 0; i < p.R; i++) {
        if (target[i] == SND_IGNORED) continue;
        loss += lse[i];
        used++;
    }
    loss = used && targets_exist(r, &p) ? loss / (double)used : NAN;
    *(double *)snd_out(r, 2)->p = (double)used;
    snd_out_store(r, 0, &loss, 1);
}

static void grad(snd_graph *g, const snd_node *n, const snd_id *dout, const bool *need, snd_id *din) {
    if (!dout[0] || (!need[0] && !need[1])) return;
    const snd_attr a = {.f = {n->attr.f[0]}, .i = {(need[1] ? WANT_DW : 0) | (need[0] ? WANT_DX : 0)}};
    snd_id out[SND_MAX_OUT];
    const snd_id in[] = {n->in[0], n->in[1], n->in[2], dout[0], n->out[1], n->out[2]};
    snd_g_op(g, SND_OP_LINEAR_XENT_BWD, in, 6, &a, out);
    if (need[1]) din[1] = out[0];
    if (need[0]) din[0] = out[need[1] ? 1 : 0];
}

static void cost(const snd_graph *g, const snd_node *n, double *flops, double *bytes) {
    int64_t R, k;
    snd_cost_each(g, n, 0, flops, bytes);
    snd_rows(snd_shape_of(g, n->in[0]), &R, &k);
    const double product = 2 * (double)R * (double)snd_size_of(g, n->in[1]);
    const bool dw = n->attr.i[0] & WANT_DW, dx = n->attr.i[0] & WANT_DX;
    *flops = (1 + dw + dx) * product + 4 * product / (double)k;
}

static const snd_op_case cases[] = {
    {.label = "6 rows, 5 classes",
     .n_in = 3,
     .in = {{2, {6, 4}}, {2, {5, 4}}, {1, {6}}},
     .attr = {.f = {1}},
     .target = 4,
     .classes = 5},
    {.label = "scaled",
     .n_in = 3,
     .in = {{3, {2, 3, 7}}, {2, {11, 7}}, {2, {2, 3}}},
     .attr = {.f = {0.3}},
     .target = 4,
     .classes = 11},
};

const snd_op_info snd_op_linear_xent = {.name = "linear_xent",
                                        .shape = shape,
                                        .run = run,
                                        .grad = grad,
                                        .scratch = scratch,
                                        .pieces = pieces,
                                        .cost = cost,
                                        SND_CASES(cases)};

// ---- backward: in x, W, targets, dloss, lse, rows that count; out the wanted ones of dW (or its statistics), dx -------

static sonde_status bwd_shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    (void)dtype;
    int k = 0;
    if (n->attr.i[0] & WANT_DW) out[k++] = snd_shape_of(g, n->in[1]);
    if (n->attr.i[0] & WANT_DX) out[k++] = snd_shape_of(g, n->in[0]);
    n->n_out = k;
    return SONDE_OK;
}

// dz in the place of z. Rows of targets that do not exist make everything NaN.
static void differentiate(const snd_oprun *r, piece *p) {
    const snd_rv *d = snd_in(r, 3);
    const double dloss = targets_exist(r, p) ? snd_load(r->t, d->p, 0) : NAN;
    snd_k_xent_bwd(r->threads, r->t, p->R, p->n, p->scale, 0, p->z, p->target, SND_IGNORED, snd_in(r, 4)->p,
                   (int64_t) * (const double *)snd_in(r, 5)->p, dloss / p->scale, p->z);
}

static void piece_of_dw(const snd_oprun *r, const piece *p, void *dw) {
    snd_product(r, true, false, p->n, p->k, p->R, r->n->attr.f[0], p->z, p->n, snd_in(r, 0)->p, p->k, 0, dw, p->k,
                p->product);
}

static void add_to_dx(const snd_oprun *r, const piece *p, void *dx) {
    snd_product(r, false, false, p->R, p->k, p->n, r->n->attr.f[0], p->z, p->n, p->w, p->k, p->first > 0, dx, p->k,
                p->product);
}

// m: moments of dW, which is then not kept; NULL: dW is output 0 where it is wanted.
static void run_backward(snd_oprun *r, snd_kmoments *m) {
    piece p;
    begin(r, &p);
    const bool want_dw = r->n->attr.i[0] & WANT_DW, want_dx = r->n->attr.i[0] & WANT_DX;
    char *dw = want_dw && !m ? snd_out(r, 0)->p : NULL;
    const int k_dx = want_dw ? 1 : 0;
    for (int64_t first = 0; first < p.V; first += p.step) {
        make_logits(r, &p, first);
        differentiate(r, &p);
        void *here = dw ? dw + (size_t)(first * p.k) * snd_dtype_size(r->t) : p.dw;
        if (want_dw) piece_of_dw(r, &p, here);
        if (m) snd_moments_add(r, p.n, p.k, here, first, m);
        if (want_dx) add_to_dx(r, &p, snd_out(r, k_dx)->p);
    }
    const int64_t e = snd_in(r, 3)->e;
    if (dw) snd_out_done(r, 0, e + snd_in(r, 0)->e, -1);
    if (want_dx) snd_out_done(r, k_dx, e + snd_in(r, 1)->e, -1);
    if (m) snd_stat_put(r, p.V, p.k, m, e + snd_in(r, 0)->e);
}

static void bwd_run(snd_oprun *r) {
    run_backward(r, NULL);
}

const snd_op_info snd_op_linear_xent_bwd = {
    .name = "linear_xent_bwd", .shape = bwd_shape, .run = bwd_run, .scratch = scratch, .pieces = pieces, .cost = cost};

static sonde_status bwd_stat_shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    SND_TRY(bwd_shape(g, n, out, dtype));
    out[0] = SND_SHAPE(SND_ST_COUNT);
    dtype[0] = SND_F64;
    return SONDE_OK;
}

static void bwd_stat_run(snd_oprun *r) {
    snd_kmoments m = {.bvar = NAN, .cos = NAN, .pearson = NAN};
    run_backward(r, &m);
}

const snd_op_info snd_op_linear_xent_bwd_stat = {.name = "linear_xent_bwd_stat",
                                                 .shape = bwd_stat_shape,
                                                 .run = bwd_stat_run,
                                                 .scratch = scratch,
                                                 .pieces = pieces,
                                                 .cost = cost};

// ---- both at once, made by fusion: in x, W, targets, dloss; out loss, lse, rows that count, the wanted ones of dW, dx ----

// Of a piece, with half a huge matrix' logits at most (128 MiB in f32), pieces of equal size.
static int64_t once_rows(const snd_graph *g, const snd_node *n) {
    int64_t R, k;
    snd_rows(snd_shape_of(g, n->in[0]), &R, &k);
    const int64_t most = snd_huge_elements() / 2 / snd_shape_of(g, n->in[1]).dim[0];
    const int64_t pieces = most > 0 ? (R + most - 1) / most : R;
    return (R + pieces - 1) / pieces;
}

static size_t once_scratch(const snd_graph *g, const snd_node *n) {
    int64_t R, k;
    snd_rows(snd_shape_of(g, n->in[0]), &R, &k);
    const int64_t V = snd_shape_of(g, n->in[1]).dim[0], step = once_rows(g, n);
    const size_t logits = snd_product_scratch(g, step, k), dw = snd_product_scratch(g, V, step),
                 dx = snd_product_scratch(g, step, V), most = dw > dx ? dw : dx;
    return matrix_bytes(g, step, V) + (logits > most ? logits : most);
}

static sonde_status once_shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    const int want = (int)n->attr.i[0];
    SND_TRY(shape(g, n, out, dtype));
    if (want & WANT_DW) out[n->n_out++] = snd_shape_of(g, n->in[1]);
    if (want & WANT_DX) out[n->n_out++] = snd_shape_of(g, n->in[0]);
    return SONDE_OK;
}

static int64_t rows_that_count(const int64_t *target, int64_t R) {
    int64_t n = 0;
    for (int64_t i = 0; i < R; i++) n += target[i] != SND_IGNORED;
    return n;
}

static void *row(const snd_oprun *r, const snd_rv *v, int64_t i) {
    return (char *)v->p + (size_t)i * snd_dtype_size(r->t);
}

// No kernel sees a target that does not exist.
static void all_nan(const snd_oprun *r, int64_t R, int64_t V, int64_t k) {
    const double nan = NAN;
    for (int64_t i = 0; i < R; i++) ((double *)snd_out(r, 1)->p)[i] = nan;
    snd_out_store(r, 0, &nan, 1);
    for (int o = 3; o < r->n->n_out; o++) {
        const int64_t n = o == 3 && r->n->attr.i[0] & WANT_DW ? V * k : R * k;
        snd_k_fill_const(r->threads, r->t, n, nan, snd_out(r, o)->p);
        snd_out_done(r, o, 0, nan);
    }
}

static void run_once(snd_oprun *r) {
    int64_t R, k;
    snd_rows(snd_in_shape(r, 0), &R, &k);
    const int64_t V = snd_in_shape(r, 1).dim[0], step = once_rows(r->g, r->n), *target = snd_in(r, 2)->p;
    const snd_rv *x = snd_in(r, 0), *w = snd_in(r, 1);
    const bool want_dw = r->n->attr.i[0] & WANT_DW, want_dx = r->n->attr.i[0] & WANT_DX;
    const double f = r->n->attr.f[0], scale = f * snd_logit_factor(r->t, x->e + w->e);
    const double dloss = snd_load(r->t, snd_in(r, 3)->p, 0);
    const int k_dw = 3, k_dx = want_dw ? 4 : 3;
    char *z = r->scratch, *product = z + matrix_bytes(r->g, step, V);
    double *lse = snd_out(r, 1)->p, loss = 0, top = 0; // of dW, when all rows are in it
    const int64_t used = rows_that_count(target, R);
    *(double *)snd_out(r, 2)->p = (double)used;
    if (!snd_targets_exist(target, R, V)) {
        all_nan(r, R, V, k);
        return;
    }
    for (int64_t i = 0; i < R; i += step) {
        const int64_t m = R - i < step ? R - i : step;
        const void *xi = row(r, x, i * k);
        int64_t here;
        snd_product(r, false, true, m, V, k, 1, xi, k, w->p, k, 0, z, V, product);
        const double mean =
            snd_k_xent_fwd(r->threads, r->t, m, V, scale, 0, z, target + i, SND_IGNORED, lse + i, &here);
        if (here) loss += mean * (double)here;
        snd_k_xent_bwd(r->threads, r->t, m, V, scale, 0, z, target + i, SND_IGNORED, lse + i, used, dloss / scale, z);
        if (want_dw)
            top =
                snd_product_bias(r, true, false, V, k, m, f, z, V, xi, k, i > 0, snd_out(r, k_dw)->p, k, NULL, product);
        if (want_dx)
            snd_product(r, false, false, m, k, V, f, z, V, w->p, k, 0, row(r, snd_out(r, k_dx), i * k), k, product);
    }
    loss = used ? loss / (double)used : NAN;
    snd_out_store(r, 0, &loss, 1);
    const int64_t e = snd_in(r, 3)->e;
    if (want_dw) snd_out_done(r, k_dw, e + x->e, top);
    if (want_dx) snd_out_done(r, k_dx, e + w->e, -1);
}

const snd_op_info snd_op_linear_xent_once = {
    .name = "linear_xent_once", .shape = once_shape, .run = run_once, .scratch = once_scratch, .cost = cost};

// ---- building -------------------------------------------------------------------------------------------------------

// The node of `op` that makes v, or NULL.
static const snd_node *maker(const snd_graph *g, snd_id v, int op) {
    const int32_t n = v ? snd_g_value(g, v)->node : -1;
    return n >= 0 && snd_g_node(g, n)->op == op ? snd_g_node(g, n) : NULL;
}

bool snd_g_many(const snd_graph *g, snd_id v) {
    return v && snd_is_huge(SND_SHAPE(1, snd_shape_size(snd_shape_of(g, v))));
}

snd_id snd_g_loss_in_pieces(snd_graph *g, snd_id loss, bool once) {
    const snd_node *xent = maker(g, loss, SND_OP_XENT);
    if (!xent || xent->attr.f[0] != 0 || !snd_g_many(g, xent->in[0])) return loss;
    const snd_node *scale = maker(g, xent->in[0], SND_OP_AFFINE);
    const snd_node *map = maker(g, scale ? scale->in[0] : xent->in[0], SND_OP_LINEAR);
    if (!map || map->n_in != 2 || (scale && scale->attr.f[1] != 0)) return loss;
    const snd_attr a = {.f = {scale ? scale->attr.f[0] : 1}, .i = {0, once}};
    return snd_g_op(g, SND_OP_LINEAR_XENT, (snd_id[]){map->in[0], map->in[1], xent->in[1]}, 3, &a, NULL);
}
