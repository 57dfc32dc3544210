// Attention on arrays stored as bf16. Some examples, or some heads of one example, at a time become arrays of f32, pass
// through the fronts for f32 (attention.c), and what comes out is rounded once. Which heads go together depends on the shape
// alone; how much that is does not grow with the batch.
#include "kernels/rows.h"
#include "kernels/slots.h"
#include <assert.h>
#include <stdatomic.h>

// Of the f32 arrays of a part, unless one head of keys has more.
enum { PART_BYTES = 32 << 20 };
static _Atomic int64_t part_bytes = PART_BYTES;

void snd_k_bf16_part_bytes(int64_t bytes) {
    atomic_store_explicit(&part_bytes, bytes < 0 ? PART_BYTES : bytes, memory_order_relaxed);
}

// Examples b .. b+nb-1, of these heads of keys h .. h+nh-1 and the queries' heads that read them; h > 0 or nh short of all
// only where nb is 1.
typedef struct part {
    int64_t b, nb, h, nh;
} part;

static int64_t up_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}
static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static int64_t group(const snd_kattn *a) {
    return a->heads / a->kv_heads;
}

// The first part: all others are as large or, at the end, smaller.
static part first_part(const snd_kattn *a, const snd_kattn_grads *g) {
    const int64_t times = g ? 2 : 1; // gradients
    const int64_t head = times * 2 * (a->Tq * group(a) + a->Tk) * a->hd * (int64_t)sizeof(float);
    const int64_t most = atomic_load_explicit(&part_bytes, memory_order_relaxed);
    const int64_t fit = most / head > 1 ? most / head : 1;
    if (fit >= a->kv_heads) return (part){.nb = least(fit / a->kv_heads, a->B), .nh = a->kv_heads};
    return (part){.nb = 1, .nh = up_div(a->kv_heads, up_div(a->kv_heads, fit))}; // parts of like size
}

// The part behind p; nb is 0 where there is none.
static part next_part(const snd_kattn *a, part first, part p) {
    part q = p;
    q.h = p.h + p.nh < a->kv_heads ? p.h + p.nh : 0;
    q.b = q.h ? p.b : p.b + p.nb;
    q.nb = least(first.nb, a->B - q.b);
    q.nh = least(first.nh, a->kv_heads - q.h);
    return q;
}

// ---- copies -----------------------------------------------------------------------------------------------------------

// Rows of n numbers, `apart` from each other in the array of bf16, side by side in that of f32.
typedef struct copy_job {
    snd_cut cut;
    int64_t n, apart;
    uint16_t *half;
    float *wide;
    bool narrow;
} copy_job;

static void copy_task(void *ctx, int64_t task) {
    const copy_job *j = ctx;
    for (int64_t i = snd_cut_begin(&j->cut, task); i < snd_cut_end(&j->cut, task); i++)
        if (j->narrow)
            snd_k_bf16_narrow(j->n, j->wide + i * j->n, j->half + i * j->apart);
        else
            snd_k_bf16_widen(j->n, j->half + i * j->apart, j->wide + i * j->n);
}

// A part of an array [B, T, heads*hd], `each` of whose heads belong to a head of keys.
static void copy(int th, const snd_kattn *a, part p, int64_t T, int64_t each, bool narrow, const void *half,
                 float *wide) {
    if (!half) return;
    copy_job j = {.n = p.nh * each * a->hd, .apart = a->kv_heads * each * a->hd, .wide = wide, .narrow = narrow};
    j.cut = snd_cut_rows(p.nb * T, j.n);
    j.half = (uint16_t *)half + p.b * T * j.apart + p.h * each * a->hd;
    snd_parallel(th, j.cut.tasks, copy_task, &j);
}

// ---- a part in f32 -------------------------------------------------------------------------------------------------------

// The f32 arrays of a part, and what the fronts work with. A gradient that is not wanted has none.
typedef struct wide {
    float *q, *k, *v, *out, *dout, *dq, *dk, *dv;
    void *work;
    int64_t bytes; // of the arrays
} wide;

static float *take(wide *w, void *scratch, bool wanted, int64_t n) {
    const int64_t at = w->bytes;
    if (!wanted) return NULL;
    w->bytes += snd_slot_up(n * (int64_t)sizeof(float));
    return snd_at_mut(scratch, at, 1);
}

// Lays the arrays out from `scratch` on; g: NULL forward.
static wide lay_out(const snd_kattn *a, const snd_kattn_grads *g, part p, void *scratch) {
    const int64_t nq = p.nb * a->Tq * p.nh * group(a) * a->hd, nk = p.nb * a->Tk * p.nh * a->hd;
    wide w = {0};
    w.q = take(&w, scratch, true, nq);
    w.k = take(&w, scratch, true, nk);
    w.v = take(&w, scratch, true, nk);
    w.out = take(&w, scratch, true, nq);
    w.dout = take(&w, scratch, g, nq);
    w.dq = take(&w, scratch, g && g->dq, nq);
    w.dk = take(&w, scratch, g && g->dk, nk);
    w.dv = take(&w, scratch, g && g->dv, nk);
    w.work = snd_at_mut(scratch, w.bytes, 1);
    return w;
}

static snd_kattn call_of(const snd_kattn *a, part p, const wide *w) {
    snd_kattn c = *a;
    c.B = p.nb, c.heads = p.nh * group(a), c.kv_heads = p.nh;
    c.q = w->q, c.k = w->k, c.v = w->v;
    c.lengths = a->lengths ? a->lengths + p.b : NULL;
    return c;
}
static int64_t lse_at(const snd_kattn *a, part p) {
    return (p.b * a->heads + p.h * group(a)) * a->Tq;
}

// Gradients that several tasks add to have more copies where there are fewer heads: a smaller part may need more.
static size_t scratch_of(const snd_kattn *a, const snd_kattn_grads *g) {
    const part first = first_part(a, g);
    size_t most = 0;
    for (part p = first; p.nb > 0; p = next_part(a, first, p)) {
        const wide w = lay_out(a, g, p, NULL);
        const snd_kattn c = call_of(a, p, &w);
        const size_t work = g ? snd_k_attn_bwd_scratch(SND_F32, &c, g) : snd_k_attn_scratch(SND_F32, &c, SND_KATTN_FWD);
        most = (size_t)w.bytes + work > most ? (size_t)w.bytes + work : most;
    }
    return most;
}

size_t snd_k_bf16_attn_scratch(const snd_kattn *a) {
    return scratch_of(a, NULL);
}
size_t snd_k_bf16_attn_bwd_scratch(const snd_kattn *a, const snd_kattn_grads *g) {
    return scratch_of(a, g);
}

void snd_k_bf16_attn_fwd(int th, const snd_kattn *a, uint16_t *out, double *lse, void *scratch) {
    assert(!a->r && !a->bias && a->drop == 0);
    const part first = first_part(a, NULL);
    for (part p = first; p.nb > 0; p = next_part(a, first, p)) {
        const wide w = lay_out(a, NULL, p, scratch);
        const snd_kattn c = call_of(a, p, &w);
        copy(th, a, p, a->Tq, group(a), false, a->q, w.q);
        copy(th, a, p, a->Tk, 1, false, a->k, w.k);
        copy(th, a, p, a->Tk, 1, false, a->v, w.v);
        snd_k_attn_fwd(th, SND_F32, &c, w.out, lse + lse_at(a, p), NULL, w.work);
        copy(th, a, p, a->Tq, group(a), true, out, w.out);
    }
}

// The fronts leave the factor scale to their caller, and it comes before the rounding.
static void give(int th, const snd_kattn *a, part p, int64_t T, int64_t each, double factor, void *to, float *x) {
    if (!to) return;
    if (factor != 1) (void)snd_k_affine(th, SND_F32, p.nb * T * p.nh * each * a->hd, factor, x, 0, x);
    copy(th, a, p, T, each, true, to, x);
}

void snd_k_bf16_attn_bwd(int th, const snd_kattn *a, const snd_kattn_grads *g, void *scratch) {
    assert(!a->r && !a->bias && a->drop == 0);
    const part first = first_part(a, g);
    for (part p = first; p.nb > 0; p = next_part(a, first, p)) {
        const wide w = lay_out(a, g, p, scratch);
        const snd_kattn c = call_of(a, p, &w);
        const snd_kattn_grads d = {.out = w.out,
                                   .dout = w.dout,
                                   .fout = 1,
                                   .fdout = 1,
                                   .lse = g->lse + lse_at(a, p),
                                   .dq = w.dq,
                                   .dk = w.dk,
                                   .dv = w.dv};
        copy(th, a, p, a->Tq, group(a), false, a->q, w.q);
        copy(th, a, p, a->Tk, 1, false, a->k, w.k);
        copy(th, a, p, a->Tk, 1, false, a->v, w.v);
        copy(th, a, p, a->Tq, group(a), false, g->out, w.out);
        copy(th, a, p, a->Tq, group(a), false, g->dout, w.dout);
        snd_k_attn_bwd(th, SND_F32, &c, &d, w.work);
        give(th, a, p, a->Tq, group(a), a->scale, g->dq, w.dq);
        give(th, a, p, a->Tk, 1, a->scale, g->dk, w.dk);
        give(th, a, p, a->Tk, 1, 1, g->dv, w.dv);
    }
}
