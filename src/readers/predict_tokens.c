// What Transformers add to the predict reader: embeddings and positions as the kernel of the stream that enters, the
// sublayers A, C and M as nodes of the token algebra, the head. formulas.md section 6 says what they compute.
#include "readers/predict_impl.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

typedef snd_predictor reader;

enum { DEFAULT_TOKENS = 64 };
static const double OWN_LOGIT = 0.05; // a twentieth: less than bands of logits show

void snd_p_note(reader *r, const char *fmt, ...) {
    char text[300];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const char *old = r->p->note;
    if (old && strstr(old, text)) return;
    r->p->note = old ? snd_arena_printf(r->p->arena, "%s %s", old, text) : snd_arena_str(r->p->arena, text);
}

// ---- the stream that enters -----------------------------------------------------------------------------------------------

static sonde_status count_tokens(const snd_spec *s, const snd_predict_opts *o, int64_t *tokens) {
    const bool ends = s->vocab > 0 && s->position == SND_POS_LEARNED && s->context > 0;
    *tokens = o->tokens > 0 ? o->tokens : ends && s->context < DEFAULT_TOKENS ? s->context : DEFAULT_TOKENS;
    SND_FAIL_IF(ends && *tokens > s->context, SONDE_EUSAGE, "%lld tokens; learned positions end at context, %lld",
                (long long)*tokens, (long long)s->context);
    return SONDE_OK;
}

// How positions differ: by how much stands before them, by their distance, or not at all.
static snd_cut cut_of(const reader *r) {
    const snd_spec *s = r->nn.spec;
    bool distance = s->position == SND_POS_SINUSOIDAL, window = false;
    for (int l = 1; l <= r->stack.L; l++) {
        const int64_t w = snd_spec_window(s, l, r->stack.L);
        const snd_position p = snd_spec_position(s, l, r->stack.L);
        window |= w > 0 && w < r->seq.tokens;
        distance |= p == SND_POS_ROPE || p == SND_POS_ALIBI || p == SND_POS_T5 || p == SND_POS_XL;
    }
    if (window) return SND_CUT_FINE;
    return r->seq.causal ? SND_CUT_GROWING : distance ? SND_CUT_EVEN : SND_CUT_FEW;
}

// Variance of the entries of a table of rows.
static sonde_status table_var(reader *r, const char *role, int64_t rows, int64_t features, double *var) {
    snd_init i;
    char text[40];
    SND_TRY(snd_nn_init_map(&r->nn, role, NULL, rows, features, -1, false, &i));
    const double c = i.kind == SND_INIT_CONST ? i.a * i.factor : 0;
    SND_FAIL_IF(c != 0, SONDE_EUNSUPPORTED, "predict: %s, whose entries all start at %s, is not random", role,
                snd_format_num(text, c, 6));
    *var = snd_nn_init_var(&i);
    return SONDE_OK;
}

static sonde_status embedding(reader *r, snd_mid *x) {
    const snd_spec *s = r->nn.spec;
    snd_tokens *t = r->p->tokens;
    double var = 0, pos = 0;
    SND_TRY(table_var(r, "embed", s->vocab, s->width, &var));
    const double q = var * s->embed_scale * s->embed_scale, met = q / (double)s->vocab; // the same token again
    *x = snd_tk_input(t, s->width, (snd_tk_rows){q, met, met, met}, false);
    snd_mid p = 0;
    if (s->position == SND_POS_LEARNED) {
        SND_TRY(table_var(r, "pos", s->context, s->width, &pos));
        p = snd_tk_input(t, s->width, (snd_tk_rows){.same = pos, .cross_same = pos}, true);
    } else if (s->position == SND_POS_SINUSOIDAL) {
        p = snd_tk_waves(t, s->width);
    }
    if (p) *x = snd_tk_sum(t, 2, (snd_mid[]){*x, p}, (double[]){1, 1}, 0);
    return SONDE_OK;
}

sonde_status snd_p_embed(reader *r, const snd_predict_opts *o, snd_mid memory, snd_mid *x) {
    const snd_spec *s = r->nn.spec;
    const int before = r->seq.number;
    r->seq = (snd_pstack){.causal = snd_nn_causal(s, &r->stack), .memory = memory, .memory_number = before};
    SND_TRY(count_tokens(s, o, &r->seq.tokens));
    r->seq.number = snd_tk_stack(r->p->tokens, r->seq.tokens, cut_of(r));
    r->nn.layer = -1;
    if (s->vocab > 0) return embedding(r, x);
    const double q = o->q > 0 ? o->q : 1, c = q * o->cos;
    *x = snd_tk_input(r->p->tokens, s->width, (snd_tk_rows){q, c, c, c}, false);
    return SONDE_OK;
}

// A tied head: the logit of the token that stands there is e.out = c |e|^2 beside noise of variance |e|^2 q, c e being what
// out keeps of its embedding e. What that one in `vocab` adds to the logits' mean square, relative to the rest.
static double own_logit(const reader *r, snd_mid out) {
    const double c = snd_tk_align(r->p->tokens, out, r->in_x.id);
    return c * c * (double)r->nn.spec->width / (double)r->nn.spec->vocab;
}

sonde_status snd_p_head(reader *r, snd_mid out, snd_mid *logits) {
    const snd_spec *s = r->nn.spec;
    *logits = 0;
    if (s->vocab <= 0) return SONDE_OK;
    double var = 0;
    SND_TRY(table_var(r, s->tie ? "embed" : "head", s->tie ? s->vocab : s->width, s->tie ? s->width : s->vocab, &var));
    if (s->tie && own_logit(r, out) > OWN_LOGIT)
        snd_p_note(r, "logits: as if the head were drawn apart from the embedding that it is tied to.");
    *logits = snd_tk_linear(r->p->tokens, out, s->width, s->vocab, var * s->logit_scale * s->logit_scale);
    return SONDE_OK;
}

// ---- what a query sees ----------------------------------------------------------------------------------------------------

typedef struct snd_psight { // made before; layers share them
    int q, k;
    bool causal, slopes;
    int64_t window;
    snd_sight sight;
    struct snd_psight *next;
} snd_psight;

static int slopes_of(reader *r, double out[SND_SLOPES]) {
    const int64_t heads = r->nn.spec->heads;
    const int n = heads < SND_SLOPES ? (int)heads : SND_SLOPES;
    if (heads > n) snd_p_note(r, "ALiBi: %d of the %lld heads stand for all.", n, (long long)heads);
    for (int i = 0; i < n; i++) out[i] = snd_alibi_slope(heads, (2 * i + 1) * heads / (2 * n));
    return n;
}

static sonde_status sight(reader *r, bool cross, const snd_sight **out) {
    const snd_spec *s = r->nn.spec;
    const int64_t l = r->nn.layer + 1, L = r->stack.L;
    snd_psight want = {.q = r->seq.number, .k = cross ? r->seq.memory_number : r->seq.number};
    want.causal = !cross && r->seq.causal;
    want.window = cross ? 0 : snd_spec_window(s, l, L);
    want.slopes = !cross && snd_spec_position(s, l, L) == SND_POS_ALIBI;
    for (const snd_psight *p = r->sights; p; p = p->next)
        if (p->q == want.q && p->k == want.k && p->causal == want.causal && p->window == want.window &&
            p->slopes == want.slopes) {
            *out = &p->sight;
            return SONDE_OK;
        }
    snd_psight *p;
    SND_NEW(r->p->arena, p, 1);
    *p = want;
    p->next = r->sights;
    double slopes[SND_SLOPES];
    const int n = want.slopes ? slopes_of(r, slopes) : 1;
    const snd_places *q = snd_tk_places(r->p->tokens, p->q), *k = snd_tk_places(r->p->tokens, p->k);
    SND_TRY(snd_sight_make(r->p->arena, q, k, p->causal, (double)p->window, p->slopes ? slopes : NULL, n, &p->sight));
    if (p->window > 0 && q->n > 0 && (double)p->window < q->count[q->n - 1])
        snd_p_note(r, "window %lld: neighbours are told apart less finely than that.", (long long)p->window);
    r->sights = p;
    *out = &p->sight;
    return SONDE_OK;
}

// ---- positions inside attention -----------------------------------------------------------------------------------------------

// sum over i < n of cos(rate_i j), rate_i = base^(-2i/whole), for j = 0 .. last
static sonde_status waves(reader *r, int64_t n, int64_t whole, double base, int64_t last, double **out) {
    SND_NEW(r->p->arena, *out, last + 1);
    for (int64_t i = 0; i < n; i++) {
        const double rate = pow(base, -2.0 * (double)i / (double)whole);
        for (int64_t j = 0; j <= last; j++) (*out)[j] += cos(rate * (double)j);
    }
    return SONDE_OK;
}

// Mean cosine between a head's vector and itself turned by j steps.
static sonde_status rope(reader *r, snd_attend *a, int64_t last) {
    const snd_spec *s = r->nn.spec;
    const double theta = snd_spec_rope_theta(s, r->nn.layer + 1, r->stack.L), hd = (double)s->head_dim;
    const int64_t pairs = (int64_t)(s->rope_fraction * hd + 0.5) / 2;
    if (r->turn && r->turn_theta == theta && r->turn_last >= last) {
        a->turn = r->turn;
        return SONDE_OK;
    }
    double *turn;
    SND_TRY(waves(r, pairs, 2 * pairs, theta, last, &turn));
    for (int64_t j = 0; j <= last; j++) turn[j] = (2 * turn[j] + hd - 2 * (double)pairs) / hd;
    r->turn_theta = theta;
    r->turn_last = last;
    a->turn = r->turn = turn;
    return SONDE_OK;
}

static sonde_status relative(reader *r, snd_attend *a, int64_t last) {
    const snd_spec *s = r->nn.spec;
    snd_init i;
    double *w;
    SND_TRY(snd_nn_init_map(&r->nn, "r", NULL, s->width, s->heads * s->head_dim, -1, false, &i));
    SND_TRY(waves(r, s->width / 2, s->width, 10000, last, &w));
    for (int64_t j = 0; j <= last; j++) w[j] *= snd_nn_init_var(&i);
    a->relative = w;
    return SONDE_OK;
}

static sonde_status buckets(reader *r, snd_attend *a) {
    const snd_spec *s = r->nn.spec;
    const snd_places *p = a->sight->q;
    int16_t *b;
    SND_TRY(table_var(r, "relative", s->t5_buckets, s->heads, &a->bias_var));
    SND_NEW(r->p->arena, b, p->n * p->n);
    for (int t = 0; t < p->n; t++)
        for (int i = 0; i < p->n; i++)
            b[t * p->n + i] = (int16_t)snd_t5_bucket(s->t5_buckets, s->t5_max_distance, r->seq.causal,
                                                     llrint(p->at[t]) - llrint(p->at[i]));
    a->bucket = b;
    return SONDE_OK;
}

static sonde_status positions(reader *r, snd_attend *a) {
    const int64_t last = 2 * r->seq.tokens;
    switch (snd_spec_position(r->nn.spec, r->nn.layer + 1, r->stack.L)) {
    case SND_POS_ROPE: return rope(r, a, last);
    case SND_POS_XL: return relative(r, a, last);
    case SND_POS_T5: return buckets(r, a);
    default: return SONDE_OK;
    }
}

// ---- sublayers ------------------------------------------------------------------------------------------------------------------

typedef struct sub {
    reader *r;
    const snd_site *site;
    const snd_sub_args *a;
    snd_subpart parts[SND_MAX_PARTS];
    int n;
} sub;

static sonde_status map(const sub *s, const char *name, snd_mid x, snd_mid *y) {
    const snd_subpart *p = snd_nn_part(s->parts, s->n, name);
    return snd_p_map(s->r, p->role, NULL, x, p->in, p->out, -1, false, p->bias, y);
}

// Norms on heads stand on each or on all; a wide one is the same of both.
static sonde_status norm(const sub *s, const char *name, snd_mid *x) {
    const snd_subpart *p = snd_nn_part(s->parts, s->n, name);
    if (!p) return SONDE_OK;
    const snd_norm_args n = snd_nn_part_norm(p, &s->r->stack);
    if (p->kind != SND_PART_UNIT) return snd_p_norm(s->r, s->site->name, &n, *x, p->in, x);
    const snd_mid y = snd_tk_rms_norm(s->r->p->tokens, *x, 0);
    *x = snd_tk_sum(s->r->p->tokens, 1, &y, (double[]){1 / sqrt((double)p->in)}, 0);
    return SONDE_OK;
}

// v1*(the stack's first v) + (1 - v1)*v; A and C each have a first.
static void value_residual(const sub *s, snd_mid *v) {
    snd_mid *first = &s->r->seq.first_v[s->a->which == 'C'];
    if (!*first)
        *first = *v;
    else if (s->a->has_v1)
        *v = snd_tk_sum(s->r->p->tokens, 2, (snd_mid[]){*first, *v}, (double[]){s->a->v1, 1 - s->a->v1}, 0);
}

static sonde_status head_gain(const sub *s, snd_mid *x) {
    const snd_subpart *p = snd_nn_part(s->parts, s->n, "head_gain");
    if (!p) return SONDE_OK;
    snd_init i;
    SND_TRY(snd_nn_init_value(&s->r->nn, p->role, p->start, &i));
    const double c = i.kind == SND_INIT_CONST ? i.a * i.factor : sqrt(snd_nn_init_var(&i));
    *x = snd_tk_sum(s->r->p->tokens, 1, x, &c, 0);
    return SONDE_OK;
}

static sonde_status how(const sub *s, snd_attend **out) {
    const snd_spec *p = s->r->nn.spec;
    const bool cross = s->a->which == 'C';
    const int64_t kv = snd_spec_kv_heads(p, s->site->layer + 1, s->r->stack.L);
    SND_NEW(s->r->p->arena, *out, 1);
    **out = (snd_attend){.scale = p->attn_scale,
                         .head_dim = (double)p->head_dim,
                         .group = (double)p->heads / (double)kv,
                         .softcap = p->softcap};
    SND_TRY(sight(s->r, cross, &(*out)->sight));
    return cross ? SONDE_OK : positions(s->r, *out);
}

static sonde_status attention(const sub *s, snd_mid u, snd_mid *out) {
    const snd_mid from = s->a->which == 'C' ? s->r->seq.memory : u;
    snd_mid q, k, v, o;
    SND_TRY(map(s, "q", u, &q));
    SND_TRY(map(s, "k", from, &k));
    SND_TRY(map(s, "v", from, &v));
    SND_TRY(norm(s, "q_norm", &q));
    SND_TRY(norm(s, "k_norm", &k));
    SND_TRY(norm(s, "v_norm", &v));
    value_residual(s, &v);
    snd_attend *a;
    SND_TRY(how(s, &a));
    s->r->attended = o = snd_tk_attend(s->r->p->tokens, a, q, k, v);
    SND_TRY(head_gain(s, &o));
    SND_TRY(norm(s, "inner", &o));
    return map(s, "o", o, out);
}

static sonde_status feed_forward(const sub *s, snd_mid u, snd_mid *out) {
    const snd_spec *p = s->r->nn.spec;
    snd_mid h, gate;
    SND_TRY(map(s, "up", u, &h));
    if (p->gated) {
        SND_TRY(map(s, "gate", u, &gate));
        h = snd_tk_mul(s->r->p->tokens, snd_p_fn(s->r, p->act_fn, gate), h);
    } else {
        h = snd_p_fn(s->r, p->act_fn, h);
    }
    SND_TRY(norm(s, "inner", &h));
    return map(s, "down", h, out);
}

sonde_status snd_p_sublayer(void *self, const snd_site *site, const snd_sub_args *a, snd_val x, snd_val *out) {
    reader *r = self;
    snd_mid y = 0;
    sub s = {.r = r, .site = site, .a = a};
    r->nn.layer = site->layer;
    r->attended = 0;
    s.n = snd_nn_parts(r->nn.spec, &r->stack, site->layer, a, s.parts);
    SND_TRY(a->which == 'M' ? feed_forward(&s, x.id, &y) : attention(&s, x.id, &y));
    out->id = y;
    return SONDE_OK;
}
