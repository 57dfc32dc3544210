// Rows of a table by token, and the fixed positions.
//   embed      in table [V, d], tokens (I64) [..] -> [.., d].   dtable[v] = sum of dy over the places of token v
//   sinusoid   in positions (I64 [rows]) or none -> [rows, d].  i[0] = rows, i[1] = d, i[2] = first position, i[3] = halves
// embed keeps the table's exponent; its gradient has that of dy. embed_bwd: in dy, tokens; i[0] = V.
//   embed_add  in x [V, d], dy, tokens -> x with embed_bwd's result added, made by fusion: of a table that is also a tied
//   head's matrix, the head's gradient, of which few rows change.
// A table that is a parameter need not be in memory: rows are read where tokens want them. Statistics of its gradient
// come from the rows that tokens touch; the others are zero.
#include "ops/ops_impl.h"

#include <math.h>

static sonde_status embed_shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    (void)dtype;
    char a[160];
    const snd_shape table = snd_shape_of(g, n->in[0]), tokens = snd_shape_of(g, n->in[1]);
    SND_FAIL_IF(snd_g_value(g, n->in[1])->dtype != SND_I64, SONDE_ETYPE, "tokens are %s, must be i64",
                snd_dtype_name(snd_g_value(g, n->in[1])->dtype));
    SND_FAIL_IF(table.nd != 2, SONDE_ESHAPE, "the table has shape %s, a matrix is needed", snd_shape_text(table, a));
    SND_FAIL_IF(tokens.nd >= SND_MAX_DIMS, SONDE_ESHAPE, "tokens of shape %s have too many dimensions",
                snd_shape_text(tokens, a));
    *out = tokens;
    out->dim[out->nd++] = table.dim[1];
    return SONDE_OK;
}

static unsigned embed_pieces(const snd_graph *g, const snd_node *n) {
    (void)g;
    (void)n;
    return 1;
}

static void read_rows(const snd_oprun *r, int64_t V, int64_t D, int64_t R, const int64_t *tokens, char *y) {
    const size_t row = (size_t)D * snd_dtype_size(r->t);
    for (int64_t i = 0; i < R; i++, y += row) {
        if (tokens[i] < 0 || tokens[i] >= V)
            snd_k_fill_const(1, r->t, D, NAN, y);
        else
            (void)snd_param_read(r, 0, tokens[i] * D, D, y);
    }
}

static void embed_run(snd_oprun *r) {
    const snd_shape table = snd_in_shape(r, 0);
    const snd_rv *x = snd_in(r, 0);
    const int64_t R = snd_shape_size(snd_in_shape(r, 1));
    if (x->p)
        snd_k_gather(r->threads, r->t, table.dim[0], table.dim[1], x->p, R, snd_in(r, 1)->p, snd_out(r, 0)->p);
    else
        read_rows(r, table.dim[0], table.dim[1], R, snd_in(r, 1)->p, snd_out(r, 0)->p);
    snd_out_done(r, 0, x->e, -1);
}

static void embed_grad(snd_graph *g, const snd_node *n, const snd_id *dout, const bool *need, snd_id *din) {
    const snd_attr a = {.i = {snd_shape_of(g, n->in[0]).dim[0]}};
    if (need[0]) din[0] = snd_g_op(g, SND_OP_EMBED_BWD, (snd_id[]){dout[0], n->in[1]}, 2, &a, NULL);
}

static sonde_status embed_bwd_shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    (void)dtype;
    const snd_shape dy = snd_shape_of(g, n->in[0]);
    *out = SND_SHAPE(n->attr.i[0], dy.dim[dy.nd - 1]);
    return SONDE_OK;
}

static void embed_bwd_run(snd_oprun *r) {
    int64_t R, D;
    snd_rows(snd_in_shape(r, 0), &R, &D);
    const snd_rv *dy = snd_in(r, 0);
    snd_k_scatter_add(r->threads, r->t, R, D, snd_in(r, 1)->p, dy->p, r->n->attr.i[0], snd_out(r, 0)->p);
    snd_out_done(r, 0, dy->e, -1);
}

static const snd_op_case embed_cases[] = {
    {.label = "2x3 tokens of 5",
     .n_in = 2,
     .in = {{2, {5, 4}}, {2, {2, 3}}},
     .target = 2,
     .classes = 5,
     .all_count = true},
    {.label = "tokens that repeat",
     .n_in = 2,
     .in = {{2, {3, 40}}, {1, {50}}},
     .target = 2,
     .classes = 3,
     .all_count = true},
};
const snd_op_info snd_op_embed = {.name = "embed",
                                  .shape = embed_shape,
                                  .run = embed_run,
                                  .grad = embed_grad,
                                  .pieces = embed_pieces,
                                  .cost = snd_cost_few,
                                  SND_CASES(embed_cases)};
const snd_op_info snd_op_embed_bwd = {
    .name = "embed_bwd", .shape = embed_bwd_shape, .run = embed_bwd_run, .cost = snd_cost_few};

// ---- statistics of the table's gradient, which is not kept: made by fusion ------------------------------------------
// Scratch: | slots of a hash table | number of each row's token | tokens by number | rows by number |

static int64_t slots_for(int64_t R) {
    int64_t n = 16;
    while (n < 2 * R) n *= 2;
    return n;
}

static size_t touched_scratch(const snd_graph *g, snd_id dy) {
    int64_t R, D;
    snd_rows(snd_shape_of(g, dy), &R, &D);
    return (size_t)(slots_for(R) + 2 * R) * sizeof(int64_t) + (size_t)(R * D) * snd_dtype_size(snd_graph_dtype(g));
}

static size_t bwd_stat_scratch(const snd_graph *g, const snd_node *n) {
    return touched_scratch(g, n->in[0]);
}

static sonde_status bwd_stat_shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    (void)g;
    (void)n;
    *out = SND_SHAPE(SND_ST_COUNT);
    dtype[0] = SND_F64;
    return SONDE_OK;
}

// Numbers the different tokens in order of appearance; -1 for those outside the table. Returns how many there are.
static int64_t number_tokens(int64_t R, const int64_t *tokens, int64_t V, int64_t *slot, int64_t *number,
                             int64_t *token) {
    const int64_t n_slots = slots_for(R);
    int64_t n = 0;
    for (int64_t i = 0; i < n_slots; i++) slot[i] = -1;
    for (int64_t i = 0; i < R; i++) {
        number[i] = -1;
        if (tokens[i] < 0 || tokens[i] >= V) continue;
        int64_t h = (int64_t)(((uint64_t)tokens[i] * UINT64_C(0x9E3779B97F4A7C15)) >> 32) & (n_slots - 1);
        while (slot[h] >= 0 && token[slot[h]] != tokens[i]) h = (h + 1) & (n_slots - 1);
        if (slot[h] < 0) {
            token[n] = tokens[i];
            slot[h] = n++;
        }
        number[i] = slot[h];
    }
    return n;
}

static const void *touched_piece(const snd_oprun *r, int64_t first, int64_t n, void *rows) {
    (void)n;
    int64_t R, D;
    snd_rows(snd_in_shape(r, 0), &R, &D);
    return (const char *)rows + (size_t)(first * D) * snd_dtype_size(r->t);
}

// The rows that the tokens of input k + 1 touch, with the sums of dy (input k): their number, and what it is of.
static int64_t touched_rows(const snd_oprun *r, int k, int64_t V, const int64_t **token, void **rows) {
    int64_t R, D;
    snd_rows(snd_in_shape(r, k), &R, &D);
    int64_t *slot = r->scratch, *number = slot + slots_for(R), *found = number + R;
    *token = found;
    *rows = found + R;
    const int64_t n = number_tokens(R, snd_in(r, k + 1)->p, V, slot, number, found);
    snd_k_scatter_add(r->threads, r->t, R, D, number, snd_in(r, k)->p, n, *rows);
    return n;
}

static void bwd_stat_run(snd_oprun *r) {
    const int64_t *token, V = r->n->attr.i[0];
    int64_t R, D;
    void *rows;
    snd_rows(snd_in_shape(r, 0), &R, &D);
    const int64_t n = touched_rows(r, 0, V, &token, &rows);
    snd_kmoments m;
    snd_moments_of_pieces(r, n, D, touched_piece, rows, &m);
    if (n > 0) m.at = token[m.at / D] * D + m.at % D;
    snd_stat_put(r, V, D, &m, snd_in(r, 0)->e);
}

const snd_op_info snd_op_embed_bwd_stat = {.name = "embed_bwd_stat",
                                           .shape = bwd_stat_shape,
                                           .run = bwd_stat_run,
                                           .scratch = bwd_stat_scratch,
                                           .cost = snd_cost_few};

// ---- the gradient added to another: made by fusion --------------------------------------------------------------------

static sonde_status add_shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    (void)dtype;
    char a[160];
    const snd_shape x = snd_shape_of(g, n->in[0]), dy = snd_shape_of(g, n->in[1]);
    SND_FAIL_IF(x.nd != 2 || x.dim[1] != dy.dim[dy.nd - 1], SONDE_ESHAPE, "rows of %lld do not fit a table of shape %s",
                (long long)dy.dim[dy.nd - 1], snd_shape_text(x, a));
    *out = x;
    return SONDE_OK;
}

static size_t add_scratch(const snd_graph *g, const snd_node *n) {
    return touched_scratch(g, n->in[1]);
}

// Sums of equal tokens first, as embed_bwd has them: so the bits are those of the two ops. The largest absolute value is
// a bound where a row that held it has become smaller.
static void add_run(snd_oprun *r) {
    const snd_shape x = snd_in_shape(r, 0);
    const int64_t size = snd_shape_size(x), D = x.dim[1], at[3] = {1, 1, D}, step[3] = {0, 0, 1}, *token;
    double a = 1, b = 1, amax = snd_in_amax(r, 0);
    void *rows;
    const int64_t n = touched_rows(r, 1, x.dim[0], &token, &rows);
    const int64_t e = snd_align(r, snd_in(r, 0), size, snd_in(r, 1), snd_shape_size(snd_in_shape(r, 1)), &a, &b);
    char *y = snd_out(r, 0)->p;
    if (a != 1 || y != snd_in(r, 0)->p) amax = snd_k_affine(r->threads, r->t, size, a, snd_in(r, 0)->p, 0, y);
    for (int64_t k = 0; k < n; k++) {
        void *row = y + (size_t)(token[k] * D) * snd_dtype_size(r->t);
        const void *sum = (const char *)rows + (size_t)(k * D) * snd_dtype_size(r->t);
        const double m = snd_k_binary(1, r->t, SND_KBIN_ADD, at, 1, row, step, b, sum, step, row);
        amax = isnan(m) || m > amax ? m : amax;
    }
    snd_out_done(r, 0, e, amax);
}

static const snd_op_case add_cases[] = {
    {.label = "2x3 tokens of 5",
     .n_in = 3,
     .in = {{2, {5, 4}}, {3, {2, 3, 4}}, {2, {2, 3}}},
     .attr = {.i = {5}},
     .target = 4,
     .classes = 5,
     .all_count = true},
};
const snd_op_info snd_op_embed_add = {.name = "embed_add",
                                      .shape = add_shape,
                                      .run = add_run,
                                      .scratch = add_scratch,
                                      .inplace = snd_inplace_first,
                                      .cost = snd_cost_few,
                                      SND_CASES(add_cases)};

snd_id snd_g_embed(snd_graph *g, snd_id table, snd_id tokens) {
    return table && tokens ? snd_g_op(g, SND_OP_EMBED, (snd_id[]){table, tokens}, 2, NULL, NULL) : 0;
}

// ---- sinusoid -------------------------------------------------------------------------------------------------------

static sonde_status sinusoid_shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    (void)g;
    (void)dtype;
    *out = SND_SHAPE(n->attr.i[0], n->attr.i[1]);
    return SONDE_OK;
}

static void sinusoid_run(snd_oprun *r) {
    const int64_t *a = r->n->attr.i, rows = a[0], d = a[1], half = d / 2;
    const int64_t first = r->n->n_in ? *(const int64_t *)snd_in(r, 0)->p : a[2];
    void *y = snd_out(r, 0)->p;
    for (int64_t j = 0; j < d; j++) {
        const int64_t pair = a[3] ? j % half : j / 2;
        const bool sine = a[3] ? j < half : j % 2 == 0;
        const double rate = pow(10000, -2 * (double)pair / (double)d);
        for (int64_t p = 0; p < rows; p++) {
            const double angle = (double)(first + p) * rate;
            snd_store(r->t, y, p * d + j, sine ? sin(angle) : cos(angle));
        }
    }
    snd_out_done(r, 0, 0, 1);
}

const snd_op_info snd_op_sinusoid = {
    .name = "sinusoid", .shape = sinusoid_shape, .run = sinusoid_run, .cost = snd_cost_some};

snd_id snd_g_sinusoid(snd_graph *g, int64_t rows, int64_t d, int64_t first, bool halves) {
    const snd_attr a = {.i = {rows, d, first, halves}};
    return snd_g_op(g, SND_OP_SINUSOID, NULL, 0, &a, NULL);
}

snd_id snd_g_sinusoid_at(snd_graph *g, snd_id positions, int64_t d, bool halves) {
    if (!positions) return 0;
    const snd_attr a = {.i = {snd_shape_of(g, positions).dim[0], d, 0, halves}};
    return snd_g_op(g, SND_OP_SINUSOID, &positions, 1, &a, NULL);
}
