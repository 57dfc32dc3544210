// Rotary positions: pairs of each head's first features are turned by an angle that grows with the position. A rotation's
// gradient is the rotation by the negative angle; exponents pass through.
//   in: x [B, T, heads*hd], positions (I64 [T]) or none.  i = heads, rotated, interleaved, past; f = theta, sign.
#include "ops/ops_impl.h"

static sonde_status shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    (void)dtype;
    char text[160], number[40];
    const snd_shape x = snd_shape_of(g, n->in[0]);
    const int64_t heads = n->attr.i[0], rotated = n->attr.i[1];
    SND_FAIL_IF(x.nd != 3 || heads < 1 || x.dim[2] % heads, SONDE_ESHAPE,
                "input of shape %s, must be [B, T, features] with features a multiple of %d heads",
                snd_shape_text(x, text), (int)heads);
    SND_FAIL_IF(rotated < 0 || rotated % 2 || rotated > x.dim[2] / heads, SONDE_ERANGE,
                "%d features are to be rotated, must be even and at most the head's %d", (int)rotated,
                (int)(x.dim[2] / heads));
    SND_FAIL_IF(!(n->attr.f[0] > 0), SONDE_ERANGE, "theta is %s, must be positive",
                snd_format_num(number, n->attr.f[0], 6));
    *out = x;
    return SONDE_OK;
}

static void run(snd_oprun *r) {
    const snd_attr *a = &r->n->attr;
    const snd_shape x = snd_in_shape(r, 0);
    const int64_t e = snd_in(r, 0)->e, first = r->n->n_in > 1 ? *(const int64_t *)snd_in(r, 1)->p : a->i[3];
    snd_k_rope(r->threads, r->t, x.dim[0], x.dim[1], a->i[0], x.dim[2] / a->i[0], a->i[1], a->i[2] != 0, a->f[0], first,
               a->f[1], snd_in(r, 0)->p, snd_out(r, 0)->p);
    snd_out_done(r, 0, e, -1);
}

static void grad(snd_graph *g, const snd_node *n, const snd_id *dout, const bool *need, snd_id *din) {
    (void)need;
    snd_attr a = n->attr;
    if (n->n_in > 1) {
        snd_g_fail(g, SONDE_EUNSUPPORTED, "rope: no derivative at positions that are values");
        return;
    }
    a.f[1] = -a.f[1];
    din[0] = snd_g_op(g, SND_OP_ROPE, dout, 1, &a, NULL);
}

static const snd_op_case cases[] = {
    {.label = "half", .n_in = 1, .in = {{3, {2, 5, 12}}}, .attr = {.f = {10000, 1}, .i = {2, 6, 0, 0}}},
    {.label = "interleaved", .n_in = 1, .in = {{3, {2, 5, 12}}}, .attr = {.f = {100, 1}, .i = {3, 4, 1, 0}}},
    {.label = "a part, after others", .n_in = 1, .in = {{3, {1, 3, 16}}}, .attr = {.f = {10, 1}, .i = {2, 4, 0, 7}}},
};
const snd_op_info snd_op_rope = {.name = "rope",
                                 .shape = shape,
                                 .run = run,
                                 .grad = grad,
                                 .inplace = snd_inplace_first,
                                 .cost = snd_cost_few,
                                 SND_CASES(cases)};

snd_id snd_g_rope(snd_graph *g, snd_id x, int64_t heads, int64_t rotated, bool interleaved, double theta, int64_t past,
                  snd_id positions) {
    if (!x) return 0;
    const snd_attr a = {.f = {theta, 1}, .i = {heads, rotated, interleaved, past}};
    return snd_g_op(g, SND_OP_ROPE, (snd_id[]){x, positions}, positions ? 2 : 1, &a, NULL);
}
