// Sublayers of Transformers (formulas.md section 6): attention to oneself or to an encoder, and the feed-forward net.
// What they are made of is parts.c's business; here the parts become nodes.
//   u [B,T,d] -> q [B,T,heads*hd], k, v [B,Tk,kv*hd] -> norms, positions -> softmax(q kᵀ) v -> gain, norm -> o
// XL: keys and values also of the memory, which gets no gradient and stands before the first query.
#include "nn/nn.h"

#include <string.h>

typedef struct sub {
    const snd_nn *m;
    snd_seq *q;
    const char *site;
    const snd_sub_args *a;
    snd_subpart parts[SND_MAX_PARTS];
    int n;
} sub;

static const snd_subpart *part(const sub *s, const char *name) {
    return snd_nn_part(s->parts, s->n, name);
}

static const char *path(const sub *s, const char *name) {
    return snd_arena_printf(snd_graph_arena(s->m->g), "%s.%s", s->site, name);
}

static sonde_status map(const sub *s, const char *name, snd_id x, snd_id *out) {
    const snd_subpart *p = part(s, name);
    const char *site = path(s, name);
    if (!site) return SONDE_ENOMEM;
    return snd_nn_linear(s->m, site, p->role, NULL, x, p->in, p->out, -1, false, p->bias, out);
}

static sonde_status value(const sub *s, const char *name, snd_id *out) {
    const snd_subpart *p = part(s, name);
    const char *full = path(s, name);
    snd_init init;
    if (!full) return SONDE_ENOMEM;
    SND_TRY(snd_nn_init_value(s->m, p->role, p->start, &init));
    *out = snd_nn_param(s->m->g, full, p->shape, &init, false);
    return SONDE_OK;
}

// A norm of this part's width over the last dimension, or over each of its `each` pieces.
static sonde_status norm(const sub *s, const char *name, snd_id *x) {
    const snd_subpart *p = part(s, name);
    if (!p || !*x) return SONDE_OK;
    snd_graph *g = s->m->g;
    const snd_shape whole = snd_shape_of(g, *x);
    const snd_id rows = snd_g_reshape(g, *x, SND_SHAPE(snd_shape_size(whole) / p->in, p->in));
    snd_id y = 0;
    if (p->kind == SND_PART_UNIT) {
        y = snd_g_unit(g, rows, 1);
    } else {
        const char *site = path(s, name);
        if (!site) return SONDE_ENOMEM;
        const snd_norm_args n = snd_nn_part_norm(p, s->m->stack);
        SND_TRY(snd_nn_norm(s->m, site, &n, rows, p->in, &y));
    }
    *x = snd_g_reshape(g, y, whole);
    return SONDE_OK;
}

static sonde_status inner_norm(const sub *s, snd_id *x) {
    if (!part(s, "inner")) return SONDE_OK;
    SND_TRY(norm(s, "inner", x));
    const char *name = path(s, "inner.out");
    return !name ? SONDE_ENOMEM : s->m->extra ? s->m->extra(s->m->ctx, name, *x) : SONDE_OK;
}

// ---- attention ------------------------------------------------------------------------------------------------------------

static int64_t length(const sub *s, snd_id x) {
    return x ? snd_shape_of(s->m->g, x).dim[1] : 0;
}

// [B, Ta, d] and [B, Tb, d] one after the other.
static snd_id join_tokens(snd_graph *g, snd_id a, snd_id b) {
    if (!a || !b) return 0;
    const snd_shape sa = snd_shape_of(g, a), sb = snd_shape_of(g, b);
    const int64_t B = sa.dim[0], d = sa.dim[2];
    const snd_id flat[2] = {snd_g_reshape(g, a, SND_SHAPE(B, sa.dim[1] * d)),
                            snd_g_reshape(g, b, SND_SHAPE(B, sb.dim[1] * d))};
    return snd_g_reshape(g, snd_g_concat(g, flat, 2), SND_SHAPE(B, sa.dim[1] + sb.dim[1], d));
}

// v1*(the stack's first v) + (1 - v1)*v; the first call keeps its own. A and C each have a first.
static sonde_status value_residual(const sub *s, snd_id *v) {
    snd_id *first = &s->q->first_v[s->a->which == 'C'];
    if (!*first) {
        *first = *v;
        return SONDE_OK;
    }
    if (!s->a->has_v1 || !*v) return SONDE_OK;
    const snd_shape a = snd_shape_of(s->m->g, *first), b = snd_shape_of(s->m->g, *v);
    const bool features = a.dim[2] != b.dim[2];
    SND_FAIL_IF(!snd_shape_same(a, b), SONDE_ESHAPE,
                "%s: v1 mixes in the stack's first values, which have %lld %s; here they have %lld", s->site,
                (long long)a.dim[features ? 2 : 1], features ? "features" : "tokens",
                (long long)b.dim[features ? 2 : 1]);
    *v = snd_g_lin(s->m->g, s->a->v1, *first, 1 - s->a->v1, *v);
    return SONDE_OK;
}

static snd_id rotate(const sub *s, snd_id x, int64_t heads) {
    const snd_spec *p = s->m->spec;
    const int64_t rotated = (int64_t)(p->rope_fraction * (double)p->head_dim + 0.5);
    return snd_g_rope(s->m->g, x, heads, rotated, p->rope_style == SND_ROPE_INTERLEAVED,
                      snd_spec_rope_theta(p, s->m->layer + 1, s->m->stack->L), 0, s->m->positions);
}

static sonde_status add_bias(const sub *s, const char *name, snd_id q, snd_id *out) {
    snd_id b;
    SND_TRY(value(s, name, &b));
    const snd_subpart *p = part(s, name);
    *out = snd_g_add(s->m->g, q, snd_g_reshape(s->m->g, b, SND_SHAPE(snd_shape_size(p->shape))));
    return SONDE_OK;
}

// ---- what outlasts a run: sequences that go on, and what all their tokens read alike --------------------------------

static sonde_status fixed(const sub *s, const char *what, snd_id x) {
    return s->q->fixed && x ? s->q->fixed(s->q->ctx, s->site, what, x) : SONDE_OK;
}

// A part that earlier runs made: its map is declared, for the parameters are those of the spec, but not computed.
static sonde_status known(const sub *s, const char *name, snd_id from, snd_id *out) {
    snd_id unused;
    SND_TRY(map(s, name, from, &unused));
    return s->q->known(s->q->ctx, s->site, name, part(s, name)->out, out);
}

static sonde_status append(const sub *s, snd_attn *a, snd_id *k, snd_id *v) {
    if (!s->m->positions || !*k || !*v) return SONDE_OK;
    a->positions = s->m->positions;
    SND_TRY(s->q->append(s->q->ctx, s->site, "k", *k, k));
    return s->q->append(s->q->ctx, s->site, "v", *v, v);
}

// (q + u).k + (q + v).r over the distances query - key; where keys behind the query are read those below 0 come first.
static sonde_status relative_sinusoids(const sub *s, const snd_attn *a, snd_id *q, snd_id *qr, snd_id *r) {
    const snd_id plain = *q;
    const int64_t T = length(s, plain), first = a->causal ? 0 : 1 - T;
    SND_TRY(add_bias(s, "pos_u", plain, q));
    SND_TRY(add_bias(s, "pos_v", plain, qr));
    const snd_id waves = snd_g_sinusoid(s->m->g, a->past + T - first, s->m->stack->d, first, true);
    if (s->m->positions) return known(s, "r", waves, r);
    SND_TRY(map(s, "r", waves, r));
    return fixed(s, "r", *r);
}

static sonde_status positions(const sub *s, snd_attn *a, snd_id *q, snd_id *k, snd_id *table, snd_id *qr, snd_id *r) {
    const snd_spec *p = s->m->spec;
    switch (snd_spec_position(p, s->m->layer + 1, s->m->stack->L)) {
    case SND_POS_ROPE:
        *q = rotate(s, *q, a->heads);
        *k = rotate(s, *k, a->kv_heads);
        return SONDE_OK;
    case SND_POS_ALIBI: a->bias = SND_ATTN_ALIBI; return SONDE_OK;
    case SND_POS_T5:
        a->bias = SND_ATTN_T5;
        a->max_distance = p->t5_max_distance;
        *table = s->q->relative;
        return SONDE_OK;
    case SND_POS_XL: a->bias = SND_ATTN_XL; return relative_sinusoids(s, a, q, qr, r);
    default: return SONDE_OK;
    }
}

// Each head's sum times its learned gain.
static sonde_status head_gain(const sub *s, snd_id *x) {
    if (!part(s, "head_gain")) return SONDE_OK;
    const snd_spec *p = s->m->spec;
    snd_graph *g = s->m->g;
    snd_id gain;
    SND_TRY(value(s, "head_gain", &gain));
    if (!*x) return SONDE_OK;
    const snd_shape whole = snd_shape_of(g, *x);
    const int64_t rows = snd_shape_size(whole) / (p->heads * p->head_dim);
    const snd_id heads = snd_g_reshape(g, *x, SND_SHAPE(rows, p->heads, p->head_dim));
    *x = snd_g_reshape(g, snd_g_mul(g, heads, snd_g_reshape(g, gain, SND_SHAPE(p->heads, 1))), whole);
    return SONDE_OK;
}

static snd_attn plain_attention(const sub *s) {
    const snd_spec *p = s->m->spec;
    return (snd_attn){.heads = p->heads,
                      .kv_heads = snd_spec_kv_heads(p, s->m->layer + 1, s->m->stack->L),
                      .scale = p->attn_scale,
                      .softcap = p->softcap,
                      .lengths = s->a->which == 'C' ? s->q->memory_lengths : s->q->lengths,
                      .dropout = s->m->training ? p->attn_dropout : 0,
                      .bias = SND_ATTN_PLAIN};
}

// What the keys and values are made from: u itself, with the segment before it (XL), or the encoder's output.
static sonde_status sources(const sub *s, snd_attn *a, snd_id u, snd_id *from) {
    *from = s->q->memory;
    if (s->a->which == 'C') return SONDE_OK;
    *from = u;
    a->causal = snd_nn_causal(s->m->spec, s->m->stack);
    a->window = snd_spec_window(s->m->spec, s->m->layer + 1, s->m->stack->L);
    snd_id past = 0;
    if (part(s, "r") && s->q->past) SND_TRY(s->q->past(s->q->ctx, s->site, &past));
    if (!past) return SONDE_OK;
    a->past = length(s, past);
    *from = join_tokens(s->m->g, past, u);
    return SONDE_OK;
}

static sonde_status of_memory(const sub *s, snd_id *k, snd_id *v) {
    SND_TRY(fixed(s, "k", *k));
    SND_TRY(fixed(s, "v", *v));
    if (!s->m->positions) return SONDE_OK;
    SND_TRY(s->q->known(s->q->ctx, s->site, "k", part(s, "k")->out, k));
    return s->q->known(s->q->ctx, s->site, "v", part(s, "v")->out, v);
}

static sonde_status attention(const sub *s, snd_id u, snd_id *out) {
    snd_attn a = plain_attention(s);
    snd_id from, q, k, v, table = 0, qr = 0, r = 0;
    SND_TRY(sources(s, &a, u, &from));
    SND_TRY(map(s, "q", u, &q));
    SND_TRY(map(s, "k", from, &k));
    SND_TRY(map(s, "v", from, &v));
    SND_TRY(norm(s, "q_norm", &q));
    SND_TRY(norm(s, "k_norm", &k));
    SND_TRY(norm(s, "v_norm", &v));
    SND_TRY(value_residual(s, &v));
    if (s->a->which == 'C') {
        SND_TRY(of_memory(s, &k, &v));
    } else {
        SND_TRY(positions(s, &a, &q, &k, &table, &qr, &r));
        SND_TRY(append(s, &a, &k, &v));
    }
    snd_id x = snd_g_attention(s->m->g, &a, q, k, v, table, qr, r);
    SND_TRY(head_gain(s, &x));
    SND_TRY(inner_norm(s, &x));
    return map(s, "o", x, out);
}

// ---- feed-forward -----------------------------------------------------------------------------------------------------------

static sonde_status feed_forward(const sub *s, snd_id u, snd_id *out) {
    snd_graph *g = s->m->g;
    snd_id up, gate, h;
    SND_TRY(map(s, "up", u, &up));
    if (s->m->spec->gated) {
        SND_TRY(map(s, "gate", u, &gate));
        h = snd_g_mul(g, snd_g_unary(g, snd_nn_kfn(s->m->spec->act_fn), gate), up);
    } else {
        h = snd_g_unary(g, snd_nn_kfn(s->m->spec->act_fn), up);
    }
    SND_TRY(inner_norm(s, &h));
    return map(s, "down", h, out);
}

sonde_status snd_nn_sublayer(const snd_nn *m, snd_seq *q, const char *site, const snd_sub_args *a, snd_id u,
                             snd_id *out) {
    sub s = {.m = m, .q = q, .site = site, .a = a};
    s.n = snd_nn_parts(m->spec, m->stack, m->layer, a, s.parts);
    *out = 0;
    SND_TRY(a->which == 'M' ? feed_forward(&s, u, out) : attention(&s, u, out));
    return snd_graph_status(m->g);
}
