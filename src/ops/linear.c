// Linear map y = x Wᵀ (+ b) and its two backward products.
//   x: [.., k] as R rows; W: [n, k]; b: [n];  y: [.., n]
//   dx = dy W;   dW = dyᵀ x;   db = sum of dy over rows
// Exponents add. The bias is there only after fusion and gives the same bits as the two ops apart. A huge W is read in
// pieces of rows, so that it need not be in memory; a gradient of which only statistics are wanted never is.
#include "ops/ops_impl.h"

#include <math.h>

size_t snd_product_scratch(const snd_graph *g, int64_t M, int64_t K) {
    return snd_graph_products(g) == SND_BF16 ? snd_k_gemm_bf16_scratch(M, K) : 0;
}

void snd_product(const snd_oprun *r, bool ta, bool tb, int64_t M, int64_t N, int64_t K, double alpha, const void *A,
                 int64_t lda, const void *B, int64_t ldb, double beta, void *C, int64_t ldc, void *scratch) {
    if (snd_graph_products(r->g) == SND_BF16)
        (void)snd_k_gemm_bf16(r->threads, ta, tb, M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, NULL, scratch);
    else
        snd_k_gemm(r->threads, r->t, ta, tb, M, N, K, alpha, A, lda, B, ldb, beta, C, ldc);
}

double snd_product_bias(const snd_oprun *r, bool ta, bool tb, int64_t M, int64_t N, int64_t K, double alpha,
                        const void *A, int64_t lda, const void *B, int64_t ldb, double beta, void *C, int64_t ldc,
                        const void *bias, void *scratch) {
    if (snd_graph_products(r->g) == SND_BF16)
        return snd_k_gemm_bf16(r->threads, ta, tb, M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, bias, scratch);
    return snd_k_gemm_bias(r->threads, r->t, ta, tb, M, N, K, alpha, A, lda, B, ldb, beta, C, ldc, bias);
}

static sonde_status linear_shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    (void)dtype;
    char a[160], b[160];
    const snd_shape x = snd_shape_of(g, n->in[0]), w = snd_shape_of(g, n->in[1]);
    SND_FAIL_IF(x.nd < 1 || w.nd != 2 || x.dim[x.nd - 1] != w.dim[1], SONDE_ESHAPE,
                "input of shape %s does not fit weights of shape %s (a matrix, out by in)", snd_shape_text(x, a),
                snd_shape_text(w, b));
    *out = x;
    out->dim[x.nd - 1] = w.dim[0];
    return SONDE_OK;
}

// Rows of W that go into one product.
static int64_t step_of(const snd_graph *g, snd_id w) {
    const snd_shape s = snd_shape_of(g, w);
    return snd_is_huge(s) ? snd_piece_rows(snd_graph_dtype(g), s.dim[0], s.dim[1]) : s.dim[0];
}

static unsigned product_pieces(const snd_graph *g, const snd_node *n) {
    return snd_is_huge(snd_shape_of(g, n->in[1])) ? 1u << 1 : 0;
}

static size_t piece_scratch(const snd_graph *g, snd_id w) {
    const snd_shape s = snd_shape_of(g, w);
    return snd_is_huge(s) ? (snd_piece_bytes(snd_graph_dtype(g), s.dim[0], s.dim[1]) + 63) / 64 * 64 : 0;
}

// Scratch: | rows of W | the product's |
static size_t product_scratch(const snd_graph *g, const snd_node *n) {
    int64_t R, k;
    snd_rows(snd_shape_of(g, n->in[0]), &R, &k);
    return piece_scratch(g, n->in[1]) + snd_product_scratch(g, R, k);
}

static void *behind_piece(const snd_oprun *r) {
    return (char *)r->scratch + piece_scratch(r->g, r->n->in[1]);
}

static char *at(const snd_oprun *r, const snd_rv *v, int64_t i) {
    return (char *)v->p + (size_t)i * snd_dtype_size(r->t);
}

// Of two magnitudes; NaN stays.
static double larger(double a, double b) {
    return isnan(a) || b <= a ? a : b;
}

static void linear_run(snd_oprun *r) {
    int64_t R, k;
    snd_rows(snd_in_shape(r, 0), &R, &k);
    const int64_t n = snd_in_shape(r, 1).dim[0], step = step_of(r->g, r->n->in[1]);
    snd_rv *x = snd_in(r, 0), *w = snd_in(r, 1), *y = snd_out(r, 0), *b = r->n->n_in < 3 ? NULL : snd_in(r, 2);
    const bool at_once = b && b->e == (int64_t)x->e + w->e; // the bias on every tile
    double most = 0;
    for (int64_t i = 0; i < n; i += step) {
        const int64_t m = n - i < step ? n - i : step;
        const void *piece = snd_param_read(r, 1, i * k, m * k, r->scratch);
        most = larger(most, snd_product_bias(r, false, true, R, m, k, 1, x->p, k, piece, k, 0, at(r, y, i), n,
                                             at_once ? at(r, b, i) : NULL, behind_piece(r)));
    }
    snd_out_done(r, 0, (int64_t)x->e + w->e, most);
    if (!b || at_once) return;
    double a = 1, c = 1;
    const int64_t e = snd_align(r, y, R * n, snd_in(r, 2), n, &a, &c);
    const double amax = snd_k_binary(r->threads, r->t, SND_KBIN_ADD, (int64_t[]){1, R, n}, a, y->p,
                                     (int64_t[]){0, n, 1}, c, snd_in(r, 2)->p, (int64_t[]){0, 0, 1}, y->p);
    snd_out_done(r, 0, e, amax);
}

static void linear_grad(snd_graph *g, const snd_node *n, const snd_id *dout, const bool *need, snd_id *din) {
    const snd_id dy = dout[0];
    // The weights' gradient first: dy may then die in dx.
    if (need[1]) din[1] = snd_g_op(g, SND_OP_LINEAR_DW, (snd_id[]){dy, n->in[0]}, 2, NULL, NULL);
    if (n->n_in > 2 && need[2]) din[2] = snd_g_sum_to(g, dy, snd_shape_of(g, n->in[2]));
    if (need[0]) din[0] = snd_g_op(g, SND_OP_LINEAR_DX, (snd_id[]){dy, n->in[1]}, 2, NULL, NULL);
}

static void product_cost(const snd_graph *g, const snd_node *n, double *flops, double *bytes) {
    snd_cost_each(g, n, 0, flops, bytes);
    int64_t R, k;
    snd_rows(snd_shape_of(g, n->in[0]), &R, &k);
    const double other = (double)snd_size_of(g, n->in[1]);
    *flops = 2 * (n->op == SND_OP_LINEAR_DW ? (double)k * other : (double)R * other);
}

static const snd_op_case linear_cases[] = {
    {.label = "5x4 by 3", .n_in = 2, .in = {{2, {5, 4}}, {2, {3, 4}}}},
    {.label = "2x3x4 by 7", .n_in = 2, .in = {{3, {2, 3, 4}}, {2, {7, 4}}}},
    {.label = "with bias", .n_in = 3, .in = {{2, {5, 4}}, {2, {3, 4}}, {1, {3}}}},
    {.label = "a vector", .n_in = 2, .in = {{1, {4}}, {2, {3, 4}}}},
    {.label = "70x65 by 33", .n_in = 2, .in = {{2, {70, 65}}, {2, {33, 65}}}},
};

const snd_op_info snd_op_linear = {.name = "linear",
                                   .shape = linear_shape,
                                   .run = linear_run,
                                   .grad = linear_grad,
                                   .scratch = product_scratch,
                                   .pieces = product_pieces,
                                   .cost = product_cost,
                                   SND_CASES(linear_cases)};

snd_id snd_g_linear(snd_graph *g, snd_id x, snd_id w) {
    return x && w ? snd_g_op(g, SND_OP_LINEAR, (snd_id[]){x, w}, 2, NULL, NULL) : 0;
}

// ---- dx = dy W ------------------------------------------------------------------------------------------------------

static sonde_status dx_shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    (void)dtype;
    char a[160], b[160];
    const snd_shape dy = snd_shape_of(g, n->in[0]), w = snd_shape_of(g, n->in[1]);
    SND_FAIL_IF(dy.nd < 1 || w.nd != 2 || dy.dim[dy.nd - 1] != w.dim[0], SONDE_ESHAPE,
                "gradient of shape %s does not fit weights of shape %s", snd_shape_text(dy, a), snd_shape_text(w, b));
    *out = dy;
    out->dim[dy.nd - 1] = w.dim[1];
    return SONDE_OK;
}

static void dx_run(snd_oprun *r) {
    int64_t R, n;
    snd_rows(snd_in_shape(r, 0), &R, &n);
    const int64_t k = snd_in_shape(r, 1).dim[1], step = step_of(r->g, r->n->in[1]);
    const snd_rv *dy = snd_in(r, 0), *w = snd_in(r, 1);
    double most = 0;
    for (int64_t i = 0; i < n; i += step) { // the last piece's sum is the result
        const int64_t m = n - i < step ? n - i : step;
        const void *piece = snd_param_read(r, 1, i * k, m * k, r->scratch);
        most = snd_product_bias(r, false, false, R, k, m, 1, at(r, dy, i), n, piece, k, i > 0, snd_out(r, 0)->p, k,
                                NULL, behind_piece(r));
    }
    snd_out_done(r, 0, (int64_t)dy->e + w->e, most);
}

// Bilinear in dy and W like the map itself: d(dy) = g Wᵀ, dW = dyᵀ g.
static void dx_grad(snd_graph *g, const snd_node *n, const snd_id *dout, const bool *need, snd_id *din) {
    if (need[1]) din[1] = snd_g_op(g, SND_OP_LINEAR_DW, (snd_id[]){n->in[0], dout[0]}, 2, NULL, NULL);
    if (need[0]) din[0] = snd_g_op(g, SND_OP_LINEAR, (snd_id[]){dout[0], n->in[1]}, 2, NULL, NULL);
}

static const snd_op_case dx_cases[] = {{.label = "5x3 by 3x4", .n_in = 2, .in = {{2, {5, 3}}, {2, {3, 4}}}}};

const snd_op_info snd_op_linear_dx = {.name = "linear_dx",
                                      .shape = dx_shape,
                                      .run = dx_run,
                                      .grad = dx_grad,
                                      .scratch = product_scratch,
                                      .pieces = product_pieces,
                                      .cost = product_cost,
                                      SND_CASES(dx_cases)};

// ---- dW = dyᵀ x -----------------------------------------------------------------------------------------------------

static sonde_status dw_shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    (void)dtype;
    char a[160], b[160];
    int64_t R, R2, no, k;
    const snd_shape dy = snd_shape_of(g, n->in[0]), x = snd_shape_of(g, n->in[1]);
    snd_rows(dy, &R, &no);
    snd_rows(x, &R2, &k);
    SND_FAIL_IF(R != R2, SONDE_ESHAPE, "gradient of shape %s and input of shape %s differ in rows",
                snd_shape_text(dy, a), snd_shape_text(x, b));
    *out = SND_SHAPE(no, k);
    return SONDE_OK;
}

static void dw_run(snd_oprun *r) {
    int64_t R, n, k;
    snd_rows(snd_in_shape(r, 0), &R, &n);
    snd_rows(snd_in_shape(r, 1), &R, &k);
    const snd_rv *dy = snd_in(r, 0), *x = snd_in(r, 1);
    const double most =
        snd_product_bias(r, true, false, n, k, R, 1, dy->p, n, x->p, k, 0, snd_out(r, 0)->p, k, NULL, r->scratch);
    snd_out_done(r, 0, (int64_t)dy->e + x->e, most);
}

static size_t dw_scratch(const snd_graph *g, const snd_node *node) {
    int64_t R, n;
    snd_rows(snd_shape_of(g, node->in[0]), &R, &n);
    return snd_product_scratch(g, n, R);
}

static const snd_op_case dw_cases[] = {{.label = "5x3, 5x4", .n_in = 2, .in = {{2, {5, 3}}, {2, {5, 4}}}}};

const snd_op_info snd_op_linear_dw = {.name = "linear_dw",
                                      .shape = dw_shape,
                                      .run = dw_run,
                                      .scratch = dw_scratch,
                                      .cost = product_cost,
                                      SND_CASES(dw_cases)};

// ---- statistics of dW, which is not kept: made by fusion; i[0] = mask -----------------------------------------------
// The mean square alone needs no dW:  |dyᵀ x|² = sum over rows r, s of (dy_r.dy_s)(x_r.x_s),  R²(n + k) in place of R n k.
// The Gram matrices round in f32; where their terms cancel (gradients that sum to zero over rows that are alike), that
// rounding would show, and dW is made after all.

static sonde_status dw_stat_shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    SND_TRY(dw_shape(g, n, out, dtype));
    *out = SND_SHAPE(SND_ST_COUNT);
    dtype[0] = SND_F64;
    return SONDE_OK;
}

// R, n, k of dy and x.
static void dw_sizes(const snd_graph *g, const snd_node *node, int64_t *R, int64_t *n, int64_t *k) {
    snd_rows(snd_shape_of(g, node->in[0]), R, n);
    snd_rows(snd_shape_of(g, node->in[1]), R, k);
}

static bool by_gram(const snd_graph *g, const snd_node *node) {
    int64_t R, n, k;
    dw_sizes(g, node, &R, &n, &k);
    if (snd_graph_products(g)) return false; // those of dW itself would have been rounded
    return node->attr.i[0] & SND_SM_ONLY_Q && (double)R * (double)(n + k) < (double)n * (double)k;
}

// Scratch of what dW is made in: | rows of dW | the product's |, or the Gram matrices.
static void *behind_dw(const snd_oprun *r) {
    int64_t R, n, k;
    dw_sizes(r->g, r->n, &R, &n, &k);
    return (char *)r->scratch + (snd_piece_bytes(r->t, n, k) + 63) / 64 * 64;
}

static const void *dw_piece(const snd_oprun *r, int64_t first, int64_t m, void *tmp) {
    int64_t R, n, k;
    dw_sizes(r->g, r->n, &R, &n, &k);
    snd_product(r, true, false, m, k, R, 1, at(r, snd_in(r, 0), first), n, snd_in(r, 1)->p, k, 0, tmp, k, behind_dw(r));
    return tmp;
}

// Rows of a band of x with all rows up to its last one: what lies above the diagonal is left out but for a band's width.
static void gram(const snd_oprun *r, const snd_rv *x, int64_t R, int64_t D, void *out) {
    enum { BAND = 64 };
    for (int64_t i = 0; i < R; i += BAND) {
        const int64_t m = R - i < BAND ? R - i : BAND;
        void *to = (char *)out + (size_t)(i * R) * snd_dtype_size(r->t);
        snd_k_gemm(r->threads, r->t, false, true, m, i + m, D, 1, at(r, x, i * D), D, x->p, D, 0, to, R);
    }
}

static double dot(snd_dtype t, int64_t n, const void *a, const void *b) {
    double sum = 0;
    for (int64_t j = 0; t == SND_F32 && j < n; j++) sum += (double)((const float *)a)[j] * ((const float *)b)[j];
    for (int64_t j = 0; t == SND_F64 && j < n; j++) sum += ((const double *)a)[j] * ((const double *)b)[j];
    return sum;
}

// False: too much cancels. A sum over pairs of rows that is not much smaller than that over equal ones has the relative
// accuracy of its terms; what is not finite is a result as well.
static bool gram_q(const snd_oprun *r, double *total) {
    enum { CANCELS = 16 };
    int64_t R, n, k;
    dw_sizes(r->g, r->n, &R, &n, &k);
    const size_t size = snd_dtype_size(r->t);
    char *a = r->scratch, *b = a + (size_t)(R * R) * size;
    gram(r, snd_in(r, 0), R, n, a);
    gram(r, snd_in(r, 1), R, k, b);
    double equal = 0, sum = 0;
    for (int64_t i = 0; i < R; i++, a += (size_t)R * size, b += (size_t)R * size) {
        sum += dot(r->t, i, a, b);
        equal += snd_load(r->t, a, i) * snd_load(r->t, b, i);
    }
    *total = equal + 2 * sum;
    return !(*total < equal / CANCELS);
}

static void put_q(const snd_oprun *r, double q, int64_t e) {
    double *s = snd_out(r, 0)->p;
    for (int i = 0; i < SND_ST_COUNT; i++) s[i] = NAN;
    s[SND_ST_Q] = q;
    s[SND_ST_NONFINITE] = isfinite(q) ? 0 : 1;
    s[SND_ST_EXP] = (double)snd_clamp_e(e);
    *snd_out(r, 0) = (snd_rv){.p = s, .e = 0, .amax = -1};
}

static void dw_stat_run(snd_oprun *r) {
    int64_t R, n, k;
    dw_sizes(r->g, r->n, &R, &n, &k);
    const int64_t e = (int64_t)snd_in(r, 0)->e + snd_in(r, 1)->e;
    double total;
    if (by_gram(r->g, r->n) && gram_q(r, &total))
        put_q(r, total / ((double)n * (double)k), e);
    else
        snd_stat_of_pieces(r, n, k, dw_piece, e);
}

static size_t dw_stat_scratch(const snd_graph *g, const snd_node *node) {
    int64_t R, n, k;
    dw_sizes(g, node, &R, &n, &k);
    const int64_t rows = snd_piece_rows(snd_graph_dtype(g), n, k);
    const size_t piece = (snd_piece_bytes(snd_graph_dtype(g), n, k) + 63) / 64 * 64 + snd_product_scratch(g, rows, R),
                 grams = 2 * (size_t)(R * R) * snd_dtype_size(snd_graph_dtype(g));
    return by_gram(g, node) && grams > piece ? grams : piece;
}

static void dw_stat_cost(const snd_graph *g, const snd_node *node, double *flops, double *bytes) {
    snd_cost_each(g, node, 0, flops, bytes);
    int64_t R, n, k;
    dw_sizes(g, node, &R, &n, &k);
    const double rows = (double)R, out = (double)n, in = (double)k;
    *flops = by_gram(g, node) ? rows * rows * (out + in) : (2 * rows + 6) * out * in;
}

const snd_op_info snd_op_linear_dw_stat = {.name = "linear_dw_stat",
                                           .shape = dw_stat_shape,
                                           .run = dw_stat_run,
                                           .scratch = dw_stat_scratch,
                                           .cost = dw_stat_cost};
