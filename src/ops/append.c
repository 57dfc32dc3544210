// What a sequence leaves behind for its later tokens: rows written into a buffer that outlasts the run.
//   append   in: buffer [B, C, D], x [B, T, D], positions (I64 [T], p, p+1, ..).  out: the buffer, rows p .. p+T-1 of each
//            example being x.
// The buffer has one exponent: the larger one of what it held and of x wins, the other's numbers are scaled. A sequence
// begins at p = 0, where what the buffer held no longer counts.
#include "ops/ops_impl.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static sonde_status shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    (void)dtype;
    char a[160], b[160];
    const snd_shape to = snd_shape_of(g, n->in[0]), x = snd_shape_of(g, n->in[1]), p = snd_shape_of(g, n->in[2]);
    SND_FAIL_IF(snd_g_value(g, n->in[0])->role != SND_R_BUFFER, SONDE_EINTERNAL,
                "what is appended to must be a buffer");
    SND_FAIL_IF(to.nd != 3 || x.nd != 3 || to.dim[0] != x.dim[0] || to.dim[2] != x.dim[2], SONDE_ESHAPE,
                "rows of shape %s do not fit a buffer of shape %s", snd_shape_text(x, a), snd_shape_text(to, b));
    SND_FAIL_IF(x.dim[1] > to.dim[1], SONDE_ESHAPE, "%d tokens at once, the buffer holds %d", (int)x.dim[1],
                (int)to.dim[1]);
    SND_FAIL_IF(p.nd != 1 || p.dim[0] != x.dim[1] || snd_g_value(g, n->in[2])->dtype != SND_I64, SONDE_ESHAPE,
                "positions of shape %s, must be i64 [%d]", snd_shape_text(p, a), (int)x.dim[1]);
    *out = to;
    return SONDE_OK;
}

// Brings what the buffer holds under exponent e.
static void rescale(const snd_oprun *r, snd_rv *b, int64_t e) {
    const int64_t n = snd_shape_size(snd_in_shape(r, 0));
    if (b->amax != 0 && b->e != e) {
        snd_scale_into(r, b->p, n, b->e - e, b->p);
        b->amax *= snd_pow2(b->e - e);
    }
    b->e = (int32_t)e;
}

static void begin(const snd_oprun *r, snd_rv *b) {
    const size_t bytes = (size_t)snd_shape_size(snd_in_shape(r, 0)) * snd_dtype_size(r->t);
    if (!isfinite(b->amax)) memset(b->p, 0, bytes); // masked places are multiplied by 0, which NaN survives
    b->amax = 0;
}

static void run(snd_oprun *r) {
    const snd_shape to = snd_in_shape(r, 0), s = snd_in_shape(r, 1);
    const int64_t B = to.dim[0], C = to.dim[1], D = to.dim[2], T = s.dim[1], p = *(const int64_t *)snd_in(r, 2)->p;
    const size_t size = snd_dtype_size(r->t);
    const snd_rv *x = snd_in(r, 1);
    snd_rv *b = snd_out(r, 0);
    assert(p >= 0 && p + T <= C);
    if (p == 0) begin(r, b);
    const double amax = snd_in_amax(r, 1);
    const bool fresh = b->amax == 0, nothing = amax == 0;
    const int64_t e = fresh ? x->e : nothing || x->e < b->e ? b->e : x->e;
    rescale(r, b, e);
    for (int64_t i = 0; i < B; i++) {
        char *row = (char *)b->p + (size_t)((i * C + p) * D) * size;
        const char *from = (const char *)x->p + (size_t)(i * T * D) * size;
        if (x->e == e)
            memcpy(row, from, (size_t)(T * D) * size);
        else
            snd_scale_into(r, from, T * D, nothing ? 0 : x->e - e, row);
    }
    const double added = nothing ? 0 : amax * snd_pow2(x->e - e);
    b->amax = isnan(b->amax) || b->amax > added ? b->amax : added;
}

static void cost(const snd_graph *g, const snd_node *n, double *flops, double *bytes) {
    *flops = 0;
    *bytes = 2 * (double)snd_size_of(g, n->in[1]) * (double)snd_dtype_size(snd_graph_dtype(g));
}

const snd_op_info snd_op_append = {
    .name = "append", .shape = shape, .run = run, .view = true, .fills = true, .cost = cost};

snd_id snd_g_append(snd_graph *g, snd_id buffer, snd_id x, snd_id positions) {
    return buffer && x && positions ? snd_g_op(g, SND_OP_APPEND, (snd_id[]){buffer, x, positions}, 3, NULL, NULL) : 0;
}
