// The table of ops, and what several ops share: broadcasting, shape rules, costs.
// Invariant: row k of the table is op k of the enumeration; both come from ops.def.
#include "ops/ops_impl.h"

#include <math.h>
#include <string.h>

static const snd_op_info *const table[] = {
    NULL,
#define SND_OP_ROW(NAME, info) &info,
#include "ops/ops.def"
#undef SND_OP_ROW
};

const snd_op_info *snd_op_info_at(int op) {
    return op > 0 && op < SND_OP_COUNT ? table[op] : NULL;
}

int snd_op_find(const char *name) {
    for (int i = 1; i < SND_OP_COUNT; i++) {
        if (strcmp(table[i]->name, name) == 0) return i;
    }
    return SND_OP_NONE;
}

// ---- broadcasting ---------------------------------------------------------------------------------------------------

static int64_t dim_at(snd_shape s, int from_right) {
    return from_right < s.nd ? s.dim[s.nd - 1 - from_right] : 1;
}

// Neighbouring dimensions in which the same operands extend are one dimension.
bool snd_bcast_make(snd_shape x, snd_shape y, snd_shape out, snd_bcast *b) {
    int n = 0, kind = -1;
    int64_t dim[3] = {1, 1, 1}, sx[3] = {0}, sy[3] = {0}, px = 1, py = 1; // from the right
    for (int i = 0; i < out.nd; i++) {
        const int64_t d = dim_at(out, i);
        if (d == 1) continue;
        const bool in_x = dim_at(x, i) == d, in_y = dim_at(y, i) == d;
        const int k = (in_x ? 1 : 0) + (in_y ? 2 : 0);
        if (k != kind) {
            if (n == 3) return false;
            kind = k;
            sx[n] = in_x ? px : 0;
            sy[n] = in_y ? py : 0;
            n++;
        }
        dim[n - 1] *= d;
        if (in_x) px *= d;
        if (in_y) py *= d;
    }
    if (n == 0) n = 1;
    *b = (snd_bcast){.dim = {1, 1, 1}};
    for (int i = 0; i < n; i++) {
        b->dim[2 - i] = dim[i];
        b->sx[2 - i] = sx[i];
        b->sy[2 - i] = sy[i];
    }
    return true;
}

sonde_status snd_bcast_shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    (void)dtype;
    char a[160], b[160];
    const snd_shape x = snd_shape_of(g, n->in[0]), y = snd_shape_of(g, n->in[1]);
    SND_FAIL_IF(!snd_shape_broadcast(x, y, out), SONDE_ESHAPE, "operands of shapes %s and %s do not broadcast",
                snd_shape_text(x, a), snd_shape_text(y, b));
    snd_bcast grid;
    SND_FAIL_IF(!snd_bcast_make(x, y, *out, &grid), SONDE_EUNSUPPORTED,
                "operands of shapes %s and %s alternate in more than three groups of dimensions", snd_shape_text(x, a),
                snd_shape_text(y, b));
    return SONDE_OK;
}

unsigned snd_bcast_inplace(const snd_graph *g, const snd_node *n) {
    const int64_t size = snd_size_of(g, n->out[0]);
    return (snd_size_of(g, n->in[0]) == size ? 1u : 0) | (snd_size_of(g, n->in[1]) == size ? 2u : 0);
}

snd_id snd_reduce_like(snd_graph *g, snd_id d, snd_id like) {
    if (!d || snd_shape_same(snd_shape_of(g, d), snd_shape_of(g, like))) return d;
    return snd_g_sum_to(g, d, snd_shape_of(g, like));
}

snd_id snd_mul_reduce(snd_graph *g, double a, snd_id d, snd_id y, snd_id like) {
    if (!d || !y) return 0;
    const snd_shape sd = snd_shape_of(g, d), sy = snd_shape_of(g, y), sl = snd_shape_of(g, like);
    const bool numbers = sl.nd == sd.nd && sl.nd > 0 && sl.dim[sl.nd - 1] == 1 && sd.dim[sd.nd - 1] > 1;
    if (a == 1 && numbers && snd_shape_same(sd, sy)) return snd_reduce_like(g, snd_g_rowdot(g, d, y), like);
    const snd_id m = snd_g_mul_by(g, a, d, y);
    return m ? snd_reduce_like(g, m, like) : 0;
}

// ---- shape rules, places, costs -------------------------------------------------------------------------------------

int64_t snd_size_of(const snd_graph *g, snd_id v) {
    return snd_shape_size(snd_shape_of(g, v));
}

sonde_status snd_same_shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    (void)dtype;
    *out = snd_shape_of(g, n->in[0]);
    return SONDE_OK;
}

unsigned snd_inplace_first(const snd_graph *g, const snd_node *n) {
    (void)g;
    (void)n;
    return 1;
}

unsigned snd_inplace_second(const snd_graph *g, const snd_node *n) {
    (void)g;
    (void)n;
    return 2;
}

static double bytes_of(const snd_graph *g, snd_id v) {
    return v ? (double)snd_size_of(g, v) * (double)snd_dtype_size(snd_g_value(g, v)->dtype) : 0;
}

void snd_cost_each(const snd_graph *g, const snd_node *n, double per, double *flops, double *bytes) {
    *flops = per * (double)snd_size_of(g, n->out[0]);
    *bytes = 0;
    for (int k = 0; k < n->n_in; k++) *bytes += bytes_of(g, n->in[k]);
    for (int k = 0; k < n->n_out; k++) *bytes += bytes_of(g, n->out[k]);
}

void snd_cost_few(const snd_graph *g, const snd_node *n, double *flops, double *bytes) {
    snd_cost_each(g, n, 1, flops, bytes);
}

void snd_cost_some(const snd_graph *g, const snd_node *n, double *flops, double *bytes) {
    snd_cost_each(g, n, 8, flops, bytes);
}

// ---- eps and exponents ----------------------------------------------------------------------------------------------

bool snd_eps_rules(snd_dtype t, double eps, int power, int64_t e) {
    if (!(eps > 0)) return false;
    return (double)ilogb(eps) - (double)(power * e) > power * snd_safe_bits(t) + snd_mantissa(t) + 2;
}

double snd_eps_for(double eps, int power, int64_t e) {
    if (e == 0 || eps == 0) return eps;
    const double v = ldexp(eps, (int)snd_clamp_e(-power * e));
    return v < 1e-300 ? 1e-300 : v > 1e300 ? 1e300 : v;
}
