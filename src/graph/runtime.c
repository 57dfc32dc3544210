// What a running op may use: the arithmetic of exponents, renormalisation, shapes of its operands.
// Invariant: after snd_out_done the buffer's largest absolute value lies in [2^-safe, 2^safe], or is 0, Inf or NaN.
// Scaling is by powers of two, hence exact unless a number falls among the subnormals. A renormalised buffer keeps its
// largest number high in the safe range: what lies more than 2^-158 (f64: 2^-1155) below it loses digits, then is lost.
// Numbers that are not finite take no part: they neither scale nor spoil the others.
#include "graph/graph_impl.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

int snd_safe_bits(snd_dtype t) {
    return t == SND_F64 ? 200 : 48;
}

int64_t snd_fit_exponent(snd_dtype t, double amax) {
    if (!(amax > 0) || !isfinite(amax)) return 0;
    const int safe = snd_safe_bits(t), top = ilogb(amax);
    // some way below the edge, so that a value that goes on growing is not scaled at every op
    return top >= safe ? top - safe * 2 / 3 : top < -safe ? top : 0;
}

int64_t snd_clamp_e(int64_t e) {
    const int64_t limit = INT32_MAX / 4;
    return e > limit ? limit : e < -limit ? -limit : e;
}

double snd_pow2(int64_t e) {
    return ldexp(1.0, e > 1000 ? 1000 : e < -1000 ? -1000 : (int)e);
}

snd_shape snd_in_shape(const snd_oprun *r, int k) {
    return r->g->values[r->n->in[k]]->shape;
}
snd_shape snd_out_shape(const snd_oprun *r, int k) {
    return r->g->values[r->n->out[k]]->shape;
}

const void *snd_param_read(const snd_oprun *r, int k, int64_t first, int64_t n, void *tmp) {
    const snd_value *v = r->g->values[r->n->in[k]];
    const char *all = snd_in(r, k)->p;
    while (v->role == SND_R_NODE) v = r->g->values[r->g->nodes[v->node]->in[0]]; // views
    if (all) return all + (size_t)first * snd_dtype_size(v->dtype);
    assert(r->src && r->src->read);
    r->src->read(r->src->self, r->g, v->param, first, n, tmp);
    return tmp;
}

void snd_rows(snd_shape s, int64_t *rows, int64_t *cols) {
    *cols = s.nd > 0 ? s.dim[s.nd - 1] : 1;
    *rows = 1;
    for (int i = 0; i + 1 < s.nd; i++) *rows *= s.dim[i];
}

double snd_rv_amax(const snd_oprun *r, snd_rv *v, int64_t n) {
    if (v->amax < 0) v->amax = snd_k_absmax(r->threads, r->t, n, v->p);
    return v->amax;
}

double snd_in_amax(const snd_oprun *r, int k) {
    return snd_rv_amax(r, snd_in(r, k), snd_shape_size(snd_in_shape(r, k)));
}

int64_t snd_align(const snd_oprun *r, snd_rv *x, int64_t nx, snd_rv *y, int64_t ny, double *a, double *b) {
    int64_t e = x->e;
    if (x->e != y->e) { // the exponent of a zero means nothing
        const bool x0 = snd_rv_amax(r, x, nx) == 0, y0 = snd_rv_amax(r, y, ny) == 0;
        e = x0 ? y->e : y0 ? x->e : x->e > y->e ? x->e : y->e;
        if (!x0) *a = ldexp(*a, (int)(x->e - e));
        if (!y0) *b = ldexp(*b, (int)(y->e - e));
    }
    const double top = fmax(fabs(*a), fabs(*b));
    if (top == 0 || !isfinite(top) || (top < 0x1p60 && top > 0x1p-60)) return e;
    const int s = ilogb(top); // factors that might not exist in the type
    *a = ldexp(*a, -s);
    *b = ldexp(*b, -s);
    return e + s;
}

void snd_scale_into(const snd_oprun *r, const void *src, int64_t n, int64_t s, void *dst) {
    const int64_t most = r->t == SND_F64 ? 1000 : 100; // a factor has to exist in the type itself
    const int64_t once = s > most ? most : s < -most ? -most : s;
    snd_k_affine(r->threads, r->t, n, snd_pow2(once), src, 0, dst);
    const int64_t rest = s - once, all = 4 * most; // beyond that everything is 0 or Inf anyway
    if (rest != 0) snd_scale_into(r, dst, n, rest > all ? all : rest < -all ? -all : rest, dst);
}

// The largest absolute value among the finite numbers of a buffer.
static double finite_absmax(snd_dtype t, const void *x, int64_t n) {
    double amax = 0;
    for (int64_t i = 0; i < n; i++) {
        const double v = fabs(t == SND_F64 ? ((const double *)x)[i] : (double)((const float *)x)[i]);
        if (isfinite(v) && v > amax) amax = v;
    }
    return amax;
}

void snd_out_done(const snd_oprun *r, int k, int64_t e, double amax) {
    snd_rv *v = snd_out(r, k);
    const int64_t n = snd_shape_size(snd_out_shape(r, k));
    if (amax < 0) amax = snd_k_absmax(r->threads, r->t, n, v->p);
    v->e = (int32_t)snd_clamp_e(e);
    v->amax = amax;
    if (amax == 0) v->e = 0;
    const double finite = isfinite(amax) ? amax : finite_absmax(r->t, v->p, n);
    if (finite == 0) return;
    const bool fits = llabs(ilogb(finite) + (int64_t)v->e) < snd_safe_bits(r->t) - 8; // without an exponent
    const int64_t shift = v->e != 0 && fits ? v->e : -snd_fit_exponent(r->t, finite);
    if (shift == 0) return;
    snd_scale_into(r, v->p, n, shift, v->p);
    v->e = (int32_t)snd_clamp_e((int64_t)v->e - shift);
    v->amax = ldexp(amax, (int)shift);
}

void snd_out_store(const snd_oprun *r, int k, const double *x, int64_t n) {
    snd_rv *v = snd_out(r, k);
    double amax = 0;
    for (int64_t i = 0; i < n; i++) amax = isnan(x[i]) || fabs(x[i]) > amax ? fabs(x[i]) : amax;
    const int s = (int)snd_fit_exponent(r->t, isfinite(amax) ? amax : finite_absmax(SND_F64, x, n));
    for (int64_t i = 0; i < n; i++) {
        const double y = ldexp(x[i], -s);
        if (r->t == SND_F64)
            ((double *)v->p)[i] = y;
        else
            ((float *)v->p)[i] = (float)y;
    }
    v->e = s;
    v->amax = ldexp(amax, -s);
}

const void *snd_in_plain(const snd_oprun *r, int k, void *tmp) {
    const snd_rv *v = snd_in(r, k);
    if (!v || v->e == 0) return v ? v->p : NULL;
    const int64_t n = snd_shape_size(snd_in_shape(r, k));
    snd_scale_into(r, v->p, n, v->e, tmp);
    return tmp;
}
