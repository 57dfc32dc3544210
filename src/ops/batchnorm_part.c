// Batch norm of sequences of which some are padded: the statistics are those of the rows that there are, and every row is
// normalised by them; and its backward.
//   x: [B, T, d], of example i the first lengths[i] rows count, n in all; g, b, running mean and variance: [d] or absent
//   y = (x - m) r (g + gadd) + b;  m = mean over the rows that count, r = 1/sqrt(var + eps); running averages as in batchnorm.c
//   dx = r (g + gadd) (dy - [counts] (s1 + xh s2)/n), s1 = sum dy, s2 = sum dy xh over all rows;  dg = s2,  db = s1
// in: x, g, b, running mean, running variance, lengths.  out: y, r and m as in batchnorm.c and, with running averages, those.
// Sums are in double, in the order of the rows: padding is rare, so this runs on one thread.
#include "ops/ops_impl.h"

#include <math.h>

enum { X, G, B, MEAN, VAR, LENGTHS };
enum { DX = 1, DG = 2, DB = 4 };

static sonde_status shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    char a[160], b[160];
    const snd_shape x = snd_shape_of(g, n->in[X]), l = snd_shape_of(g, n->in[LENGTHS]);
    SND_FAIL_IF(x.nd != 3 || l.nd != 1 || l.dim[0] != x.dim[0] || snd_g_value(g, n->in[LENGTHS])->dtype != SND_I64,
                SONDE_ESHAPE, "lengths of shape %s do not fit input of shape %s", snd_shape_text(l, a),
                snd_shape_text(x, b));
    for (int k = G; k < LENGTHS; k++) {
        if (!n->in[k]) continue;
        const snd_shape s = snd_shape_of(g, n->in[k]);
        SND_FAIL_IF(s.nd != 1 || s.dim[0] != x.dim[2], SONDE_ESHAPE,
                    "a vector of shape %s does not fit input of shape %s", snd_shape_text(s, a), snd_shape_text(x, b));
    }
    SND_FAIL_IF((n->in[MEAN] == 0) != (n->in[VAR] == 0), SONDE_EINTERNAL, "running averages come in pairs");
    out[0] = x;
    out[1] = SND_SHAPE(2 * x.dim[2]);
    dtype[1] = SND_F64;
    out[2] = out[3] = SND_SHAPE(x.dim[2]);
    n->n_out = n->in[MEAN] ? 4 : 2;
    return SONDE_OK;
}

// Does row i count?
static bool counts(const int64_t *lengths, int64_t T, int64_t i) {
    return i % T < lengths[i / T];
}

static double how_many(const int64_t *lengths, int64_t B_, int64_t T) {
    double n = 0;
    for (int64_t i = 0; i < B_; i++) n += lengths[i] < T ? (double)lengths[i] : (double)T;
    return n;
}

// Means, then mean squares about them.
static void statistics(const snd_oprun *r, snd_shape s, double *m, double *var) {
    const snd_rv *x = snd_in(r, X);
    const int64_t *lengths = snd_in(r, LENGTHS)->p, T = s.dim[1], D = s.dim[2], R = s.dim[0] * T;
    const double n = how_many(lengths, s.dim[0], T);
    for (int64_t j = 0; j < D; j++) m[j] = var[j] = 0;
    for (int64_t i = 0; i < R; i++)
        for (int64_t j = 0; j < D && counts(lengths, T, i); j++) m[j] += snd_load(r->t, x->p, i * D + j) / n;
    for (int64_t i = 0; i < R; i++)
        for (int64_t j = 0; j < D && counts(lengths, T, i); j++) {
            const double d = snd_load(r->t, x->p, i * D + j) - m[j];
            var[j] += d * d / n;
        }
}

static void update_running(const snd_oprun *r, int64_t D, double n, const double *m, const double *var, double *tmp) {
    const double p = r->n->attr.f[2];
    const int64_t e = snd_in(r, X)->e;
    for (int k = 0; k < 2; k++) {
        const snd_rv *old = snd_in(r, MEAN + k);
        for (int64_t j = 0; j < D; j++) {
            const double unbiased = n > 1 ? var[j] * n / (n - 1) : var[j];
            const double batch = k == 0 ? ldexp(m[j], (int)e) : ldexp(unbiased, (int)snd_clamp_e(2 * e));
            tmp[j] = (1 - p) * ldexp(snd_load(r->t, old->p, j), old->e) + p * batch;
        }
        snd_out_store(r, 2 + k, tmp, D);
    }
}

static void run(snd_oprun *r) {
    const snd_attr *a = &r->n->attr;
    const snd_shape s = snd_in_shape(r, X);
    const int64_t D = s.dim[2], R = s.dim[0] * s.dim[1];
    const snd_rv *x = snd_in(r, X);
    double *var = r->scratch, *rstd = snd_out(r, 1)->p, *m = rstd + D;
    const void *g = r->n->in[G] ? snd_in_plain(r, G, var + D) : NULL;
    const void *b = r->n->in[B] ? snd_in_plain(r, B, var + 2 * D) : NULL;
    statistics(r, s, m, var);
    for (int64_t j = 0; j < D; j++) rstd[j] = 1 / sqrt(var[j] + snd_eps_for(a->f[0], 2, x->e));
    for (int64_t i = 0; i < R * D; i++) {
        const int64_t j = i % D;
        const double gain = g ? snd_load(r->t, g, j) + a->f[1] : 1, shift = b ? snd_load(r->t, b, j) : 0;
        snd_store(r->t, snd_out(r, 0)->p, i, (snd_load(r->t, x->p, i) - m[j]) * rstd[j] * gain + shift);
    }
    snd_out_done(r, 0, 0, -1);
    const double n = how_many(snd_in(r, LENGTHS)->p, s.dim[0], s.dim[1]);
    if (r->n->in[MEAN]) update_running(r, D, n, m, var, var + D);
}

static size_t scratch(const snd_graph *g, const snd_node *n) {
    return 3 * (size_t)snd_shape_of(g, n->in[X]).dim[2] * sizeof(double);
}

static void grad(snd_graph *g, const snd_node *n, const snd_id *dout, const bool *need, snd_id *din) {
    if (!dout[0]) return;
    snd_attr a = n->attr;
    a.i[1] = (need[X] ? DX : 0) | (need[G] ? DG : 0) | (need[B] ? DB : 0);
    if (!a.i[1]) return;
    snd_id out[SND_MAX_OUT];
    const snd_id in[] = {dout[0], n->in[X], n->in[G], n->out[1], n->in[LENGTHS]};
    snd_g_op(g, SND_OP_BATCHNORM_PART_BWD, in, 5, &a, out);
    int k = 0;
    for (int j = 0; j < 3; j++) din[j] = need[j] ? out[k++] : 0;
}

const snd_op_info snd_op_batchnorm_part = {.name = "batchnorm_part",
                                           .cheap = true,
                                           .exact = 1u << 2 | 1u << 3,
                                           .shape = shape,
                                           .run = run,
                                           .grad = grad,
                                           .scratch = scratch,
                                           .cost = snd_cost_some};

snd_id snd_g_batchnorm_part(snd_graph *g, snd_id x, snd_id lengths, snd_id gain, snd_id bias, double eps, bool plus1,
                            snd_id running_mean, snd_id running_var, double momentum, snd_id *new_mean,
                            snd_id *new_var) {
    *new_mean = *new_var = 0;
    if (!x || !lengths) return 0;
    const snd_attr a = {.f = {eps, plus1, momentum}};
    const snd_id in[] = {x, gain, bias, running_mean, running_var, lengths};
    snd_id out[SND_MAX_OUT];
    snd_g_op(g, SND_OP_BATCHNORM_PART, in, 6, &a, out);
    *new_mean = running_mean ? out[2] : 0;
    *new_var = running_mean ? out[3] : 0;
    return out[0];
}

// ---- backward: in dy, x, g, (r, m), lengths; out the wanted ones of dx, dg, db -------------------------------------------------

static sonde_status bwd_shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    (void)dtype;
    const snd_shape x = snd_shape_of(g, n->in[1]);
    int k = 0;
    if (n->attr.i[1] & DX) out[k++] = x;
    if (n->attr.i[1] & DG) out[k++] = SND_SHAPE(x.dim[2]);
    if (n->attr.i[1] & DB) out[k++] = SND_SHAPE(x.dim[2]);
    n->n_out = k;
    return SONDE_OK;
}

static void write_dx(const snd_oprun *r, snd_shape s, const void *g, const double *s1, const double *s2, void *dx) {
    const snd_rv *dy = snd_in(r, 0), *x = snd_in(r, 1);
    const double *rstd = snd_in(r, 3)->p;
    const int64_t *lengths = snd_in(r, 4)->p, T = s.dim[1], D = s.dim[2], R = s.dim[0] * T;
    const double n = how_many(lengths, s.dim[0], T);
    for (int64_t i = 0; i < R * D; i++) {
        const int64_t j = i % D;
        const double gain = g ? snd_load(r->t, g, j) + r->n->attr.f[1] : 1;
        const double xh = (snd_load(r->t, x->p, i) - rstd[D + j]) * rstd[j];
        const double shared = counts(lengths, T, i / D) ? (s1[j] + xh * s2[j]) / n : 0;
        snd_store(r->t, dx, i, rstd[j] * gain * (snd_load(r->t, dy->p, i) - shared));
    }
}

static void bwd_run(snd_oprun *r) {
    const snd_attr *a = &r->n->attr;
    const snd_shape s = snd_in_shape(r, 1);
    const int64_t D = s.dim[2], R = s.dim[0] * s.dim[1];
    const snd_rv *dy = snd_in(r, 0), *x = snd_in(r, 1);
    const double *rstd = snd_in(r, 3)->p;
    double *s1 = r->scratch, *s2 = s1 + D;
    const void *g = r->n->in[2] ? snd_in_plain(r, 2, s2 + D) : NULL;
    int k = 0;
    const int kx = a->i[1] & DX ? k++ : -1, kg = a->i[1] & DG ? k++ : -1, kb = a->i[1] & DB ? k++ : -1;
    for (int64_t j = 0; j < D; j++) s1[j] = s2[j] = 0;
    for (int64_t i = 0; i < R * D; i++) {
        const double d = snd_load(r->t, dy->p, i);
        s1[i % D] += d;
        s2[i % D] += d * ((snd_load(r->t, x->p, i) - rstd[D + i % D]) * rstd[i % D]);
    }
    for (int64_t j = 0; j < D; j++) {
        if (kg >= 0) snd_store(r->t, snd_out(r, kg)->p, j, s2[j]);
        if (kb >= 0) snd_store(r->t, snd_out(r, kb)->p, j, s1[j]);
    }
    if (kx >= 0) write_dx(r, s, g, s1, s2, snd_out(r, kx)->p);
    const int64_t edy = dy->e, ex = x->e;
    if (kx >= 0) snd_out_done(r, kx, edy - ex, -1);
    if (kg >= 0) snd_out_done(r, kg, edy, -1);
    if (kb >= 0) snd_out_done(r, kb, edy, -1);
}

static size_t bwd_scratch(const snd_graph *g, const snd_node *n) {
    return 3 * (size_t)snd_shape_of(g, n->in[1]).dim[2] * sizeof(double);
}

const snd_op_info snd_op_batchnorm_part_bwd = {
    .name = "batchnorm_part_bwd", .shape = bwd_shape, .run = bwd_run, .scratch = bwd_scratch, .cost = snd_cost_some};
