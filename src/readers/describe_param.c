// What is learned: one row per parameter, by its contract name (formulas.md section 7), with its shape, its role and how it
// starts, from the same init rules that the build reader draws by. Also costs of maps and sublayers, which follow from the
// same shapes, and the folding of equal rows of many layers into one.
#include "readers/describe_impl.h"

#include <math.h>
#include <string.h>

static const char *join(const snd_describer *b, const char *site, const char *part) {
    return site ? snd_arena_printf(b->arena, "%s.%s", site, part) : part;
}

static snd_nn rules(const snd_describer *b, const snd_spec *spec) {
    return (snd_nn){.spec = spec, .stack = &b->stack, .layer = b->layer};
}

static double mean_of(const snd_init *i) {
    return i->kind == SND_INIT_CONST ? i->a * i->factor : 0;
}

static sonde_status add(snd_describer *b, const char *name, const char *role, const char *alt, snd_shape shape,
                        const snd_init *i, const snd_init *own) {
    snd_description *d = b->d;
    if (!name) return SONDE_ENOMEM;
    SND_TRY(snd_d_room(b->arena, (void **)&d->params, &b->cap_params, d->n_params, sizeof *d->params));
    snd_buf text = {0};
    snd_nn_init_text(i, &text);
    const char *copy = text.failed ? NULL : snd_arena_str(b->arena, text.s);
    snd_buf_free(&text);
    if (!copy) return SONDE_ENOMEM;
    d->params[d->n_params++] = (snd_param_row){.name = name,
                                               .role = role,
                                               .alt = alt,
                                               .init = copy,
                                               .shape = shape,
                                               .var = snd_nn_init_var(i),
                                               .mean = mean_of(i),
                                               .own_var = snd_nn_init_var(own),
                                               .own_mean = mean_of(own),
                                               .layer = b->layer};
    const int64_t n = snd_shape_size(shape);
    d->n_learned += n;
    if (shape.nd >= 2) d->n_weights += n;
    return SONDE_OK;
}

sonde_status snd_d_value(snd_describer *b, const char *name, const char *role, snd_shape shape, double v, bool last,
                         double *start) {
    const snd_nn m = rules(b, b->spec), bare = rules(b, &b->bare);
    snd_init i, own;
    SND_TRY(snd_nn_init_value(&m, role, v, &i));
    SND_TRY(snd_nn_init_value(&bare, role, v, &own));
    if (last && i.kind == SND_INIT_CONST && i.a == 1) i.kind = own.kind = SND_INIT_LAST;
    if (start) *start = i.kind == SND_INIT_CONST ? i.a * i.factor : NAN;
    return add(b, name, role, NULL, shape, &i, &own);
}

static sonde_status add_map(snd_describer *b, const char *name, const char *role, const char *alt, snd_shape shape,
                            int64_t fan_in, int64_t fan_out, double gain, bool zero, bool *is_zero) {
    const snd_nn m = rules(b, b->spec), bare = rules(b, &b->bare);
    snd_init i, own;
    SND_TRY(snd_nn_init_map(&m, role, alt, fan_in, fan_out, gain, zero, &i));
    SND_TRY(snd_nn_init_map(&bare, role, alt, fan_in, fan_out, gain, zero, &own));
    if (is_zero) *is_zero = snd_nn_init_var(&i) == 0 && mean_of(&i) == 0;
    return add(b, name, role, alt, shape, &i, &own);
}

// k > 0: a convolution of k x k.
sonde_status snd_d_map(snd_describer *b, const char *site, const char *role, const char *alt, int64_t in, int64_t out,
                       int64_t k, double gain, bool zero, bool bias, bool *is_zero) {
    const int64_t area = k > 0 ? k * k : 1;
    const snd_shape shape = k > 0 ? SND_SHAPE(out, in, k, k) : SND_SHAPE(out, in);
    SND_TRY(add_map(b, join(b, site, "weight"), role, alt, shape, in * area, out * area, gain, zero, is_zero));
    if (!bias) return SONDE_OK;
    double start;
    SND_TRY(snd_d_value(b, join(b, site, "bias"), "b", SND_SHAPE(out), 0, false, &start));
    if (is_zero && start != 0) *is_zero = false;
    return SONDE_OK;
}

// ---- norms --------------------------------------------------------------------------------------------------------------------

static bool has_bias(const snd_norm_args *n) {
    return n->affine && n->bias && n->kind != SND_NORM_RMS && n->kind != SND_NORM_SCALE;
}

static double initial_gain(const snd_norm_args *n, int64_t d) {
    return n->has_gain ? n->gain : n->kind == SND_NORM_SCALE ? sqrt((double)d) : 1;
}

void snd_d_norm_text(const snd_norm_args *n, snd_buf *b) {
    if (n->kind == SND_NORM_NONE) {
        snd_buf_put(b, "none (the identity)");
        return;
    }
    snd_buf_printf(b, "%s norm", snd_norm_name(n->kind));
    const bool eps = n->kind == SND_NORM_LAYER || n->kind == SND_NORM_RMS || n->kind == SND_NORM_BATCH;
    if (eps) {
        snd_buf_put(b, ", eps ");
        snd_buf_num(b, n->eps, 6);
    }
    const bool plus1 = n->plus1 && n->kind != SND_NORM_SCALE;
    if (!n->affine)
        snd_buf_put(b, ", no weight");
    else
        snd_buf_printf(b, ", %s%s",
                       plus1                       ? "weight w used as 1 + w"
                       : n->kind == SND_NORM_SCALE ? "one weight"
                                                   : "weight",
                       has_bias(n) ? " and bias" : "");
    if (n->kind == SND_NORM_DYT) snd_buf_put(b, ", tanh(alpha x)");
    if (n->kind == SND_NORM_DERF) snd_buf_put(b, ", erf(alpha x + shift)");
    if (n->affine && n->has_gain) {
        snd_buf_put(b, ", initial gain ");
        snd_buf_num(b, n->gain, 6);
    }
}

static sonde_status add_state(snd_describer *b, const char *site, const char *part, int64_t n, double v) {
    const snd_init i = {.kind = SND_INIT_CONST, .a = v, .factor = 1};
    SND_TRY(add(b, join(b, site, part), "state", NULL, SND_SHAPE(n), &i, &i));
    b->d->params[b->d->n_params - 1].state = true;
    b->d->n_learned -= n;
    b->d->n_state += n;
    return SONDE_OK;
}

// Parameters of a norm; *zero: its output is exactly zero at the start whatever comes in.
static sonde_status norm_params(snd_describer *b, const char *site, const snd_norm_args *n, int64_t d, bool *zero) {
    const bool scale = n->kind == SND_NORM_SCALE, plus1 = n->plus1 && !scale;
    double gain = 1, bias = 0;
    *zero = false;
    if (n->kind == SND_NORM_NONE) return SONDE_OK;
    if (n->affine)
        SND_TRY(snd_d_value(b, join(b, site, "weight"), "g", SND_SHAPE(scale ? 1 : d), initial_gain(n, d) - plus1,
                            false, &gain));
    if (has_bias(n)) SND_TRY(snd_d_value(b, join(b, site, "bias"), "b", SND_SHAPE(d), 0, false, &bias));
    if (n->kind == SND_NORM_DYT || n->kind == SND_NORM_DERF)
        SND_TRY(snd_d_value(b, join(b, site, "alpha"), "alpha", SND_SHAPE(1), 0.5, false, NULL));
    if (n->kind == SND_NORM_DERF)
        SND_TRY(snd_d_value(b, join(b, site, "shift"), "shift", SND_SHAPE(1), 0, false, NULL));
    if (n->kind == SND_NORM_BATCH) {
        b->d->has_batch = true;
        SND_TRY(add_state(b, site, "running_mean", d, 0));
        SND_TRY(add_state(b, site, "running_var", d, 1));
    }
    *zero = n->affine && gain + plus1 == 0 && bias == 0;
    return SONDE_OK;
}

sonde_status snd_d_norm(snd_describer *b, const char *site, const snd_norm_args *n, int64_t d, bool *zero) {
    snd_description *r = b->d;
    SND_TRY(snd_d_room(b->arena, (void **)&r->sites, &b->cap_sites, r->n_sites, sizeof *r->sites));
    snd_buf text = {0};
    snd_d_norm_text(n, &text);
    const char *copy = text.failed ? NULL : snd_arena_str(b->arena, text.s);
    snd_buf_free(&text);
    if (!copy) return SONDE_ENOMEM;
    r->sites[r->n_sites++] = (snd_site_row){.name = site,
                                            .text = copy,
                                            .layer = b->layer,
                                            .kind = n->kind,
                                            .eps = n->eps,
                                            .gain = n->affine ? initial_gain(n, d) : 1};
    return norm_params(b, site, n, d, zero);
}

// ---- sublayers of Transformers ------------------------------------------------------------------------------------------------

static int64_t kv_heads_of(const snd_describer *b) {
    return snd_spec_kv_heads(b->spec, b->layer + 1, b->stack.L);
}

// Keys and values that the last token reads: of self-attention no more than a window of them.
static void note_cache(snd_describer *b, bool cross, double dkv) {
    const double t = (double)b->tokens, w = (double)snd_spec_window(b->spec, b->layer + 1, b->stack.L);
    if (cross)
        b->d->next.memory_bytes += 4 * 2 * dkv * (double)b->memory;
    else if (snd_nn_causal(b->spec, &b->stack))
        b->d->next.cache_bytes += 4 * 2 * dkv * (w > 0 && w < t ? w : t);
}

// Pairs of query and key that the mask lets through, of one head and one example.
static double visible_pairs(const snd_describer *b, bool cross) {
    const double t = (double)b->tokens, m = (double)b->memory;
    if (cross) return t * m;
    const double w = (double)snd_spec_window(b->spec, b->layer + 1, b->stack.L);
    const bool causal = snd_nn_causal(b->spec, &b->stack);
    if (w <= 0 || w > t) return causal ? t * (t + 1) / 2 : t * t;
    const double one_side = t * w - w * (w - 1) / 2; // |query - key| < w on one side, itself included
    return causal ? one_side : 2 * one_side - t;
}

// Parameters of one part of a sublayer, and what its norms cost on so many rows. *zero: a map that starts at zero.
static sonde_status add_part(snd_describer *b, const char *site, const snd_subpart *p, int64_t rows, bool *zero) {
    const char *name = join(b, site, p->name);
    const double elements = (double)(rows * p->in * p->each);
    bool unused;
    *zero = false;
    if (!name) return SONDE_ENOMEM;
    switch (p->kind) {
    case SND_PART_MAP: return snd_d_map(b, name, p->role, NULL, p->in, p->out, 0, -1, false, p->bias, zero);
    case SND_PART_VALUE: return snd_d_value(b, name, p->role, p->shape, p->start, false, NULL);
    case SND_PART_TABLE:
        return add_map(b, join(b, name, "weight"), p->role, NULL, SND_SHAPE(p->in, p->out), p->in, p->out, -1, false,
                       NULL);
    case SND_PART_UNIT: snd_cost_norm(b->d, SND_NORM_SCALE, elements); return SONDE_OK;
    case SND_PART_RMS:
        snd_cost_norm(b->d, SND_NORM_RMS, elements);
        return snd_d_value(b, join(b, name, "weight"), p->role, SND_SHAPE(p->in), b->spec->plus1 ? 0 : 1, false, NULL);
    default:
        snd_cost_norm(b->d, b->stack.norm.kind, elements);
        return snd_d_norm(b, name, &b->stack.norm, p->in, &unused);
    }
}

// zero[i]: does part i start at zero? Norms of a cross-attention's keys and values stand on the memory.
static sonde_status add_parts(snd_describer *b, const char *site, bool cross, const snd_subpart *parts, int n,
                              bool *zero) {
    for (int i = 0; i < n; i++) {
        const bool of_memory = cross && (parts[i].name[0] == 'k' || parts[i].name[0] == 'v');
        SND_TRY(add_part(b, site, &parts[i], of_memory ? b->memory : b->tokens, &zero[i]));
    }
    return SONDE_OK;
}

static bool starts_at_zero(const snd_subpart *parts, int n, const bool *zero, const char *name) {
    const snd_subpart *p = snd_nn_part(parts, n, name);
    return p && zero[p - parts];
}

static sonde_status attention(snd_describer *b, const char *site, const snd_sub_args *a, bool *out_zero, bool *closed) {
    snd_subpart parts[SND_MAX_PARTS];
    bool zero[SND_MAX_PARTS];
    const int n = snd_nn_parts(b->spec, &b->stack, b->layer, a, parts);
    const bool cross = a->which == 'C', xl = snd_nn_part(parts, n, "r") != NULL;
    SND_TRY(add_parts(b, site, cross, parts, n, zero));
    const int64_t hd = b->spec->head_dim, dq = b->spec->heads * hd, dkv = kv_heads_of(b) * hd;
    const double d = (double)b->stack.d, t = (double)b->tokens, from = cross ? (double)b->memory : t;
    note_cache(b, cross, (double)dkv);
    snd_cost_gemm(b->d, t, d, (double)dq);
    snd_cost_gemm(b->d, from, d, (double)(2 * dkv));
    snd_cost_gemm(b->d, t, (double)dq, d);
    // xl: a row per distance, and a third product per pair
    if (xl) snd_cost_gemm(b->d, snd_nn_causal(b->spec, &b->stack) ? t : 2 * t - 1, d, (double)dq);
    snd_cost_attention(b->d, t, visible_pairs(b, cross), (double)b->spec->heads, (double)hd, xl ? 3 : 2);
    *out_zero = *closed = starts_at_zero(parts, n, zero, "v") || starts_at_zero(parts, n, zero, "o");
    return SONDE_OK;
}

static sonde_status feed_forward(snd_describer *b, const char *site, const snd_sub_args *a, bool *out_zero,
                                 bool *closed) {
    const snd_spec *s = b->spec;
    const double d = (double)b->stack.d, n_hidden = (double)b->stack.n, t = (double)b->tokens;
    snd_subpart parts[SND_MAX_PARTS];
    bool zero[SND_MAX_PARTS];
    const int n = snd_nn_parts(s, &b->stack, b->layer, a, parts);
    SND_TRY(add_parts(b, site, false, parts, n, zero));
    snd_cost_gemm(b->d, t, d, s->gated ? 2 * n_hidden : n_hidden);
    snd_cost_unary(b->d, s->act_fn, t * n_hidden);
    if (s->gated) snd_cost_binary(b->d, 2 * t * n_hidden, t * n_hidden);
    snd_cost_gemm(b->d, t, n_hidden, d);
    const bool up = starts_at_zero(parts, n, zero, "up"), gate = starts_at_zero(parts, n, zero, "gate");
    const bool down = starts_at_zero(parts, n, zero, "down");
    *closed = up || gate || down;
    *out_zero = down || ((up || gate) && snd_fn_apply(s->act_fn, 0) == 0) || (s->gated && up);
    return SONDE_OK;
}

static sonde_status attention_text(const snd_describer *b, const snd_sub_args *a, snd_buf *t) {
    const snd_spec *s = b->spec;
    const int64_t l = b->layer + 1, L = b->stack.L, kv = kv_heads_of(b);
    const bool cross = a->which == 'C', causal = snd_nn_causal(s, &b->stack);
    snd_buf_printf(t, "%s, %lld heads of %lld",
                   cross    ? "cross-attention"
                   : causal ? "causal self-attention"
                            : "self-attention",
                   (long long)s->heads, (long long)s->head_dim);
    if (kv != s->heads) snd_buf_printf(t, " (keys and values: %lld)", (long long)kv);
    const snd_position p = cross ? SND_POS_NONE : snd_spec_position(s, l, L);
    if (!cross) snd_buf_printf(t, ", positions %s", snd_position_name(p));
    if (p == SND_POS_ROPE) {
        snd_buf_put(t, " (theta ");
        snd_buf_num(t, snd_spec_rope_theta(s, l, L), 6);
        snd_buf_printf(t, ", %s", s->rope_style == SND_ROPE_HALF ? "half" : "interleaved");
        if (s->rope_fraction != 1) {
            snd_buf_put(t, ", of ");
            snd_buf_num(t, s->rope_fraction, 4);
            snd_buf_put(t, " of the head");
        }
        snd_buf_put(t, ")");
    }
    if (!cross && snd_spec_window(s, l, L) > 0) snd_buf_printf(t, ", window %lld", (long long)snd_spec_window(s, l, L));
    if (s->qk_norm != SND_QK_NONE) snd_buf_printf(t, ", qk_norm %s", snd_qknorm_name(s->qk_norm));
    snd_buf_put(t, ", scale ");
    snd_buf_num(t, s->attn_scale, 4);
    if (s->softcap > 0) {
        snd_buf_put(t, ", softcap ");
        snd_buf_num(t, s->softcap, 4);
    }
    if (a->headgain) snd_buf_put(t, ", head gains");
    if (a->vnorm) snd_buf_put(t, ", norm on values");
    if (a->has_v1) {
        snd_buf_put(t, ", values mixed with the first layer's by ");
        snd_buf_num(t, a->v1, 4);
    }
    return SONDE_OK;
}

sonde_status snd_d_sublayer(snd_describer *b, const char *site, const snd_sub_args *a, bool *out_zero, bool *closed) {
    const snd_spec *s = b->spec;
    const bool ffn = a->which == 'M';
    snd_buf t = {0};
    if (!ffn) {
        SND_TRY(attention_text(b, a, &t));
    } else {
        snd_buf_printf(&t, "feed-forward %lld -> %lld -> %lld, ", (long long)b->stack.d, (long long)b->stack.n,
                       (long long)b->stack.d);
        snd_buf_printf(&t, s->gated ? "%s(gate) * up" : "%s", s->act);
    }
    if (a->inner) snd_buf_put(&t, ", norm before the last map");
    if (!(ffn ? s->bias : s->attn_bias)) snd_buf_put(&t, ", no biases");
    const char *copy = t.failed ? NULL : snd_arena_str(b->arena, t.s);
    snd_buf_free(&t);
    if (!copy) return SONDE_ENOMEM;
    SND_TRY(snd_d_text_sub(b, a->which, copy));
    return ffn ? feed_forward(b, site, a, out_zero, closed) : attention(b, site, a, out_zero, closed);
}

// ---- around the stack -----------------------------------------------------------------------------------------------------------

// A learned table around the stacks, where the spec has it.
static sonde_status outer(snd_describer *b, snd_outer which, const char *prefix, bool *zero) {
    snd_subpart p;
    b->layer = -1;
    if (!snd_transformer_part(b->spec, which, &p)) return SONDE_OK;
    p.name = snd_arena_printf(b->arena, "%s%s", prefix, p.name);
    return p.name ? add_part(b, NULL, &p, b->tokens, zero) : SONDE_ENOMEM;
}

sonde_status snd_d_embedding(snd_describer *b) {
    const snd_spec *s = b->spec;
    bool unused;
    if (s->family == SND_FAM_TRANSFORMER) return outer(b, SND_OUTER_TOKEN, "", &unused);
    if (s->family != SND_FAM_MLP || s->inputs <= 0) return SONDE_OK;
    snd_cost_gemm(b->d, 1, (double)s->inputs, (double)s->width);
    return snd_d_map(b, "stem", "stem", NULL, s->inputs, s->width, 0, -1, false, false, NULL);
}

// Positions that are learned: of each stack on its own.
sonde_status snd_d_positions(snd_describer *b) {
    bool unused;
    if (b->spec->family != SND_FAM_TRANSFORMER) return SONDE_OK;
    SND_TRY(outer(b, SND_OUTER_POSITION, b->stack.prefix, &unused));
    return outer(b, SND_OUTER_RELATIVE, b->stack.prefix, &unused);
}

sonde_status snd_d_head(snd_describer *b, int64_t width) {
    const snd_spec *s = b->spec;
    const bool tf = s->family == SND_FAM_TRANSFORMER;
    const int64_t out = tf ? s->vocab : s->outputs;
    b->layer = -1;
    if (out <= 0) return SONDE_OK;
    snd_cost_gemm(b->d, tf ? (double)b->tokens : 1, (double)width, (double)out);
    if (tf) return outer(b, SND_OUTER_HEAD, b->stack.prefix, &b->d->head_zero);
    return snd_d_map(b, "head", "head", NULL, width, out, 0, -1, false, false, &b->d->head_zero);
}

// ---- equal rows in one ----------------------------------------------------------------------------------------------------------

static void put_run(snd_buf *t, int first, int last, int step) {
    if (t->len) snd_buf_put(t, ", ");
    if (first == last)
        snd_buf_printf(t, "%d", first);
    else if (step == 1 && last > first + 1)
        snd_buf_printf(t, "%d..%d", first, last);
    else if (last == first + step)
        snd_buf_printf(t, "%d, %d", first, last);
    else
        snd_buf_printf(t, "%d, %d .. %d", first, first + step, last);
}

const char *snd_d_layers(snd_arena *a, const int *v, int n) {
    snd_buf t = {0};
    int step = n > 2 ? v[1] - v[0] : 1;
    for (int i = 2; i < n; i++)
        if (v[i] - v[i - 1] != step) step = 1;
    int runs = 0;
    for (int i = 0; i < n && runs < 6; runs++) {
        int k = i;
        while (k + 1 < n && v[k + 1] == v[k] + step) k++;
        put_run(&t, v[i], v[k], step);
        i = k + 1;
        if (runs == 5 && i < n) snd_buf_printf(&t, ", .. %d", v[n - 1]);
    }
    const char *s = t.failed ? NULL : snd_arena_str(a, t.s ? t.s : "");
    snd_buf_free(&t);
    return s;
}

// "layers.12.A.q.weight" -> "layers.*.A.q.weight"
static const char *pattern_of(snd_arena *a, const char *name, int layer) {
    const char *at = layer < 0 ? NULL : strstr(name, "layers.");
    if (!at) return name;
    at += 7;
    const char *rest = strchr(at, '.');
    return rest ? snd_arena_printf(a, "%.*s*%s", (int)(at - name), name, rest) : name;
}

typedef struct member {
    int *v;
    int n;
    int64_t cap;
} member;

static sonde_status join_group(snd_arena *a, member *m, int layer) {
    SND_TRY(snd_d_room(a, (void **)&m->v, &m->cap, m->n, sizeof *m->v));
    m->v[m->n++] = layer;
    return SONDE_OK;
}

static sonde_status name_layers(snd_arena *a, const member *m, const char **out, int *count) {
    *count = m->n;
    *out = m->v[0] < 0 ? "" : snd_d_layers(a, m->v, m->n);
    return *out ? SONDE_OK : SONDE_ENOMEM;
}

static sonde_status param_groups(snd_describer *b) {
    snd_description *d = b->d;
    member *m = NULL;
    int64_t cap = 0, cap_m = 0;
    for (int i = 0; i < d->n_params; i++) {
        const snd_param_row *p = &d->params[i];
        const char *pattern = pattern_of(b->arena, p->name, p->layer);
        if (!pattern) return SONDE_ENOMEM;
        int g = d->n_groups - 1;
        while (g >= 0 && (strcmp(d->groups[g].pattern, pattern) != 0 || !snd_shape_same(d->groups[g].shape, p->shape)))
            g--;
        if (g < 0) {
            SND_TRY(snd_d_room(b->arena, (void **)&d->groups, &cap, d->n_groups, sizeof *d->groups));
            SND_TRY(snd_d_room(b->arena, (void **)&m, &cap_m, d->n_groups, sizeof *m));
            g = d->n_groups++;
            d->groups[g] = (snd_param_group){
                .pattern = pattern, .role = p->role, .init = p->init, .shape = p->shape, .state = p->state};
            m[g] = (member){0};
        }
        if (strcmp(d->groups[g].init, p->init) != 0) d->groups[g].init_last = p->init;
        SND_TRY(join_group(b->arena, &m[g], p->layer));
    }
    for (int g = 0; g < d->n_groups; g++)
        SND_TRY(name_layers(b->arena, &m[g], &d->groups[g].layers, &d->groups[g].count));
    return SONDE_OK;
}

static sonde_status site_groups(snd_describer *b) {
    snd_description *d = b->d;
    member *m = NULL;
    int64_t cap = 0, cap_m = 0;
    for (int i = 0; i < d->n_sites; i++) {
        const snd_site_row *p = &d->sites[i];
        const char *pattern = pattern_of(b->arena, p->name, p->layer);
        if (!pattern) return SONDE_ENOMEM;
        int g = d->n_site_groups - 1;
        while (g >= 0 &&
               (strcmp(d->site_groups[g].pattern, pattern) != 0 || strcmp(d->site_groups[g].text, p->text) != 0))
            g--;
        if (g < 0) {
            SND_TRY(snd_d_room(b->arena, (void **)&d->site_groups, &cap, d->n_site_groups, sizeof *d->site_groups));
            SND_TRY(snd_d_room(b->arena, (void **)&m, &cap_m, d->n_site_groups, sizeof *m));
            g = d->n_site_groups++;
            d->site_groups[g] = (snd_site_group){.pattern = pattern, .text = p->text};
            m[g] = (member){0};
        }
        SND_TRY(join_group(b->arena, &m[g], p->layer));
    }
    for (int g = 0; g < d->n_site_groups; g++)
        SND_TRY(name_layers(b->arena, &m[g], &d->site_groups[g].layers, &d->site_groups[g].count));
    return SONDE_OK;
}

sonde_status snd_d_groups(snd_describer *b) {
    SND_TRY(param_groups(b));
    return site_groups(b);
}
