// Whole models: inputs, one stack or two, head and loss, built by walking the wiring with the reader of build.c.
// Invariant: the parameters are those of the spec, whatever the inputs. An encoder that `memory` replaces is walked all
// the same, on zeros and in silence: its parameters are declared, its values are never asked for.
#include "readers/build_impl.h"

#include <string.h>

static sonde_status on_extra(void *ctx, const char *name, snd_id v) {
    return snd_b_tap(ctx, name, v);
}

// ---- stacks -----------------------------------------------------------------------------------------------------------------

static snd_stack base_stack(const snd_spec *s) {
    return (snd_stack){
        .prefix = "",
        .f = s->formula,
        .block = s->block,
        .mlp = s->family == SND_FAM_MLP,
        .convnet = s->family == SND_FAM_CONVNET,
        .L = (int)s->layers,
        .d = s->width,
        .n = s->hidden,
        .cond = s->cond,
        .norm = {.kind = s->norm, .eps = s->eps, .gain = 1, .plus1 = s->plus1, .affine = true, .bias = s->norm_bias}};
}

int snd_model_stacks(const snd_spec *s, snd_stack out[2]) {
    out[0] = out[1] = base_stack(s);
    if (s->arch != SND_ARCH_ENCDEC || s->family != SND_FAM_TRANSFORMER) return 1;
    for (int i = 0; i < 2; i++) {
        out[i].prefix = i ? "decoder." : "encoder.";
        out[i].Le = (int)s->encoder_layers;
        out[i].Ld = (int)s->decoder_layers;
        out[i].L = i ? out[i].Ld : out[i].Le;
        out[i].cross = i == 1;
    }
    return 2;
}

void snd_model_stack(const snd_spec *s, snd_stack *t) {
    snd_stack all[2];
    *t = all[snd_model_stacks(s, all) - 1];
}

snd_val snd_model_stream(const snd_spec *s, int64_t height, int64_t width) {
    if (s->family != SND_FAM_CONVNET) return (snd_val){.kind = SND_V_STREAM, .cols = s->width};
    return (snd_val){.kind = SND_V_MAP,
                     .cols = s->inputs > 0 ? s->inputs : s->width,
                     .h = height > 0 ? height : SND_IMAGE_SIDE,
                     .w = width > 0 ? width : SND_IMAGE_SIDE};
}

static sonde_status check_formula(snd_arena *a, const snd_spec *spec, const snd_build *o, const snd_stack *stack) {
    snd_walk w = {.arena = a, .stack = stack};
    snd_val in = snd_model_stream(spec, o->height, o->width);
    in.id = 1;
    const sonde_status s = snd_walk_check(&w, in);
    return s == SONDE_OK ? s : snd_fail_prefix(s, "wiring: ");
}

// ---- head, loss, exits --------------------------------------------------------------------------------------------------------

static sonde_status head(snd_builder *b, snd_id out_x, snd_id *logits) {
    const snd_spec *s = b->m->spec;
    *logits = 0;
    if (s->family == SND_FAM_MLP) return snd_mlp_head(&b->nn, out_x, logits);
    if (s->family == SND_FAM_CONVNET) return snd_convnet_head(&b->nn, out_x, logits);
    snd_id unused;
    if (snd_model_input(b->m, "tokens")) return snd_transformer_head(&b->nn, out_x, logits);
    return snd_transformer_table(&b->nn, SND_OUTER_HEAD, &unused); // x replaces the vocabulary on both sides
}

static sonde_status need_logits(const snd_builder *b, snd_id logits) {
    const snd_spec *s = b->m->spec;
    SND_FAIL_IF(!logits && s->family != SND_FAM_TRANSFORMER, SONDE_EINPUT,
                "targets need logits, but this model has no head; give outputs=CLASSES");
    SND_FAIL_IF(!logits, SONDE_EINPUT, "targets need logits, which %s; give %s",
                s->vocab > 0 ? "x in place of tokens leaves out" : "a model without vocab lacks",
                s->vocab > 0 ? "tokens" : "vocab=NUMBER");
    return SONDE_OK;
}

static sonde_status add_loss(snd_builder *b, snd_exit *e) {
    snd_model *m = b->m;
    if (!b->o->with_targets) return SONDE_OK;
    SND_TRY(need_logits(b, e->logits));
    snd_shape s = snd_g_value(b->nn.g, e->logits)->shape;
    s.nd--;
    if (!m->targets) SND_TRY(snd_b_input(b, "targets", snd_shape_make(s.nd, s.dim), SND_I64, &m->targets));
    e->loss = snd_g_xent_smooth(b->nn.g, e->logits, m->targets, b->o->label_smoothing);
    return SONDE_OK;
}

// [B, T, d] -> [B, 1, d]
static snd_id last_token(snd_graph *g, snd_id x) {
    if (!x) return 0;
    const snd_shape s = snd_shape_of(g, x);
    const int64_t B = s.dim[0], T = s.dim[1], d = s.dim[2];
    const snd_id flat = snd_g_reshape(g, x, SND_SHAPE(B, T * d));
    return snd_g_reshape(g, snd_g_slice(g, flat, (T - 1) * d, d), SND_SHAPE(B, 1, d));
}

static sonde_status finish(snd_builder *b, int layers, snd_id out_x) {
    snd_model *m = b->m;
    if (b->o->last) out_x = last_token(b->nn.g, out_x);
    snd_exit e = {.layers = layers, .out_x = out_x};
    SND_TRY(head(b, out_x, &e.logits));
    SND_TRY(snd_b_check(b, "head"));
    SND_TRY(add_loss(b, &e));
    SND_TRY(snd_b_room(b->arena, (void **)&m->exits, &b->cap_exits, m->n_exits, sizeof *m->exits));
    m->exits[m->n_exits++] = e;
    m->out_x = e.out_x;
    m->logits = e.logits;
    m->loss = e.loss;
    if (e.logits && layers == b->stack.L) SND_TRY(snd_b_tap(b, "logits", e.logits));
    if (e.loss && layers == b->stack.L) SND_TRY(snd_b_tap(b, "loss", e.loss));
    return snd_b_check(b, "head");
}

static sonde_status on_exit(void *self, int layers, snd_val out_x) {
    return finish(self, layers, out_x.id);
}

// ---- walking --------------------------------------------------------------------------------------------------------------------

static sonde_status walk(snd_builder *b, snd_id x, bool exits, snd_id *out) {
    snd_reader r = snd_build_ops;
    r.self = b;
    snd_walk w = {.arena = b->arena, .stack = &b->stack, .reader = &r};
    if (exits) {
        w.exits = b->o->exits;
        w.n_exits = b->o->n_exits;
        w.on_exit = on_exit;
    }
    snd_val in = snd_model_stream(b->m->spec, b->o->height, b->o->width), v;
    in.id = x;
    const sonde_status s = snd_walk_stack(&w, in, &v);
    if (s != SONDE_OK) return snd_fail_prefix(s, "wiring: ");
    b->m->n_sublayers = w.n_sublayers;
    *out = v.id;
    return SONDE_OK;
}

static sonde_status last_stack(snd_builder *b, snd_id x) {
    snd_id out_x;
    SND_TRY(walk(b, x, true, &out_x));
    return b->o->n_exits ? SONDE_OK : finish(b, b->stack.L, out_x);
}

static int64_t at_least_one(int64_t n) {
    return n > 0 ? n : 1;
}

// ---- transformers -----------------------------------------------------------------------------------------------------------

// The memory of the segment before, of a sublayer that was said to have one.
static sonde_status on_past(void *ctx, const char *site, snd_id *out) {
    snd_builder *b = ctx;
    *out = 0;
    for (int i = 0; i < b->o->n_past && !b->silent; i++) {
        if (strcmp(b->o->past[i].site, site) != 0) continue;
        const char *name = snd_arena_printf(b->arena, "mem.%s", site);
        if (!name) return SONDE_ENOMEM;
        return snd_b_input(b, name, SND_SHAPE(b->m->rows, b->o->past[i].tokens, b->stack.d), SND_DT_NONE, out);
    }
    return SONDE_OK;
}

static sonde_status every_past_is_read(const snd_builder *b) {
    for (int i = 0; i < b->o->n_past; i++) {
        const char *name = snd_arena_printf(b->arena, "mem.%s", b->o->past[i].site);
        if (!name) return SONDE_ENOMEM;
        SND_FAIL_IF(!snd_model_input(b->m, name), SONDE_EINPUT,
                    "%s: no self-attention with positions xl has the name %s", name, b->o->past[i].site);
    }
    return SONDE_OK;
}

// ---- sequences that go on ---------------------------------------------------------------------------------------------------

static sonde_status add_buffer(snd_builder *b, const char *site, const char *what, snd_shape s, snd_id *out) {
    snd_model *m = b->m;
    const char *name = snd_arena_printf(b->arena, "%s.%s", site, what);
    if (!name) return SONDE_ENOMEM;
    SND_TRY(snd_b_room(b->arena, (void **)&m->buffers, &b->cap_buffers, m->n_buffers, sizeof *m->buffers));
    *out = snd_g_buffer(b->nn.g, snd_arena_printf(b->arena, "buffer.%s", name), s);
    m->buffers[m->n_buffers++] = (snd_tap){name, *out};
    return snd_b_check(b, name);
}

static sonde_status on_append(void *ctx, const char *site, const char *what, snd_id x, snd_id *all) {
    snd_builder *b = ctx;
    snd_id buffer;
    const int64_t features = snd_shape_of(b->nn.g, x).dim[2];
    SND_TRY(add_buffer(b, site, what, SND_SHAPE(b->m->rows, b->o->capacity, features), &buffer));
    *all = snd_g_append(b->nn.g, buffer, x, b->m->positions);
    return snd_b_check(b, site);
}

static sonde_status on_known(void *ctx, const char *site, const char *what, int64_t features, snd_id *out) {
    snd_builder *b = ctx;
    const bool relative = !strcmp(what, "r");
    const snd_shape s = relative ? SND_SHAPE(b->o->capacity, features)
                                 : SND_SHAPE(b->m->rows, at_least_one(b->o->src_tokens), features);
    return add_buffer(b, site, what, s, out);
}

static sonde_status on_fixed(void *ctx, const char *site, const char *what, snd_id x) {
    snd_builder *b = ctx;
    if (b->silent) return SONDE_OK;
    const char *name = snd_arena_printf(b->arena, "%s.%s", site, what);
    if (!name) return SONDE_ENOMEM;
    SND_TRY(snd_b_room(b->arena, (void **)&b->m->fixed, &b->cap_fixed, b->m->n_fixed, sizeof *b->m->fixed));
    b->m->fixed[b->m->n_fixed++] = (snd_tap){name, x};
    return SONDE_OK;
}

static sonde_status begin_positions(snd_builder *b, const snd_stack *last) {
    const snd_spec *s = b->m->spec;
    SND_FAIL_IF(!snd_nn_causal(s, last), SONDE_EUNSUPPORTED,
                "arch %s: a sequence can go on only where no token reads those behind it", snd_arch_name(s->arch));
    SND_TRY(snd_b_input(b, "positions", SND_SHAPE(b->m->tokens), SND_I64, &b->m->positions));
    b->nn.positions = b->m->positions;
    return SONDE_OK;
}

// Learned tables of a stack are made here, before anything asks for them: all of them belong to the spec.
static sonde_status enter_stack(snd_builder *b, const snd_stack *t, snd_id memory) {
    b->stack = *t;
    b->nn.layer = -1;
    b->seq = (snd_seq){
        .memory = memory, .past = on_past, .append = on_append, .known = on_known, .fixed = on_fixed, .ctx = b};
    snd_id unused;
    SND_TRY(snd_transformer_table(&b->nn, SND_OUTER_POSITION, &unused));
    return snd_transformer_table(&b->nn, SND_OUTER_RELATIVE, &b->seq.relative);
}

static sonde_status feed(snd_builder *b, snd_feed f, int64_t T, const char *tokens, const char *x, snd_id *input,
                         snd_id *out) {
    const int64_t B = b->m->rows;
    if (f != SND_FEED_TOKENS) {
        SND_TRY(snd_b_input(b, x, SND_SHAPE(B, T, b->stack.d), SND_DT_NONE, input));
        *out = *input;
        return SONDE_OK;
    }
    SND_TRY(snd_b_input(b, tokens, SND_SHAPE(B, T), SND_I64, input));
    SND_TRY(snd_transformer_embed(&b->nn, *input, out));
    return snd_b_check(b, "embedding");
}

static snd_feed feed_of(const snd_spec *s, snd_feed said) {
    return said ? said : s->vocab > 0 ? SND_FEED_TOKENS : SND_FEED_STREAM;
}

static sonde_status encoder(snd_builder *b, const snd_stack *t, snd_id *memory) {
    const snd_feed f = b->o->capacity ? SND_FEED_MEMORY : feed_of(b->m->spec, b->o->src_feed);
    const int64_t T = at_least_one(b->o->src_tokens);
    snd_id input, x;
    SND_TRY(enter_stack(b, t, 0));
    if (b->o->src_lengths) SND_TRY(snd_b_input(b, "src_lengths", SND_SHAPE(b->m->rows), SND_I64, &b->src_lengths));
    b->seq.lengths = b->src_lengths;
    b->nn.lengths = f == SND_FEED_MEMORY ? 0 : b->src_lengths;
    b->silent = f == SND_FEED_MEMORY;
    if (b->silent) // two tokens: batch norm refuses a single row
        x = snd_g_const(b->nn.g, SND_SHAPE(b->m->rows, 2, t->d), 0);
    else
        SND_TRY(feed(b, f, T, "src_tokens", "src_x", &input, &x));
    SND_TRY(walk(b, x, false, memory));
    b->nn.lengths = 0;
    if (!b->silent) return SONDE_OK;
    b->silent = false;
    return snd_b_input(b, "memory", SND_SHAPE(b->m->rows, T, t->d), SND_DT_NONE, memory);
}

static sonde_status transformer(snd_builder *b, const snd_stack *stacks, int n) {
    snd_model *m = b->m;
    const snd_stack *last = &stacks[n - 1];
    snd_id table, memory = 0, x;
    b->stack = *last;
    SND_TRY(snd_transformer_table(&b->nn, SND_OUTER_TOKEN, &table)); // by the rules of the last stack
    if (n == 2) SND_TRY(encoder(b, &stacks[0], &memory));
    SND_TRY(enter_stack(b, last, memory));
    b->seq.memory_lengths = b->src_lengths;
    if (b->o->lengths) SND_TRY(snd_b_input(b, "lengths", SND_SHAPE(m->rows), SND_I64, &b->nn.lengths));
    if (b->o->capacity) SND_TRY(begin_positions(b, last));
    SND_TRY(feed(b, feed_of(m->spec, b->o->feed), m->tokens, "tokens", "x", &m->input, &x));
    SND_TRY(last_stack(b, x));
    return every_past_is_read(b);
}

static sonde_status mlp(snd_builder *b) {
    snd_model *m = b->m;
    snd_id x;
    const snd_spec *s = m->spec;
    SND_TRY(snd_b_input(b, "input", SND_SHAPE(m->rows, s->inputs > 0 ? s->inputs : s->width), SND_DT_NONE, &m->input));
    SND_TRY(snd_mlp_begin(&b->nn, m->input, &x));
    SND_TRY(snd_b_check(b, "stem"));
    return last_stack(b, x);
}

static sonde_status convnet(snd_builder *b) {
    snd_model *m = b->m;
    snd_id x;
    const snd_val in = snd_model_stream(m->spec, b->o->height, b->o->width);
    SND_TRY(snd_b_input(b, "input", SND_SHAPE(m->rows, in.cols, in.h, in.w), SND_DT_NONE, &m->input));
    SND_TRY(snd_convnet_begin(&b->nn, m->input, &x));
    return last_stack(b, x);
}

// ---- the whole ------------------------------------------------------------------------------------------------------------------

sonde_status snd_model_build(snd_arena *a, const snd_spec *spec, const snd_build *o, snd_model **out) {
    snd_model *m;
    SND_NEW(a, m, 1);
    m->spec = spec;
    m->rows = o->rows;
    m->tokens = at_least_one(o->tokens);
    m->g = snd_graph_create(a, o->dtype);
    if (!m->g) return SONDE_ENOMEM;
    snd_builder b = {.m = m, .arena = a, .o = o};
    b.nn = (snd_nn){.g = m->g,
                    .spec = spec,
                    .stack = &b.stack,
                    .layer = -1,
                    .integrate = o->integrate,
                    .eval = o->eval,
                    .training = o->training,
                    .rows = o->rows,
                    .extra = on_extra,
                    .ctx = &b};
    snd_stack stacks[2];
    const int n = snd_model_stacks(spec, stacks);
    for (int i = 0; i < n; i++)
        SND_TRY(check_formula(a, spec, o, &stacks[i])); // a formula's own errors come before those of the inputs
    b.stack = stacks[n - 1];
    SND_FAIL_IF(o->capacity && spec->family != SND_FAM_TRANSFORMER, SONDE_EUNSUPPORTED,
                "family %s: only the sequences of a transformer can go on", snd_family_name(spec->family));
    SND_TRY(spec->family == SND_FAM_MLP       ? mlp(&b)
            : spec->family == SND_FAM_CONVNET ? convnet(&b)
                                              : transformer(&b, stacks, n));
    if (o->with_cond && !m->cond)
        SND_TRY(snd_b_input(&b, "cond", SND_SHAPE(m->rows, spec->cond), SND_DT_NONE, &m->cond));
    SND_TRY(snd_b_check(&b, "model"));
    *out = m;
    return SONDE_OK;
}

static snd_id find(const snd_tap *list, int n, const char *name) {
    for (int i = 0; i < n; i++)
        if (!strcmp(list[i].name, name)) return list[i].v;
    return 0;
}

snd_id snd_model_tap(const snd_model *m, const char *name) {
    return find(m->taps, m->n_taps, name);
}

snd_id snd_model_input(const snd_model *m, const char *name) {
    return find(m->inputs, m->n_inputs, name);
}

int32_t snd_model_attention(const snd_model *m, const snd_call *c) {
    const int last = snd_g_value(m->g, c->out)->node;
    for (int n = snd_g_value(m->g, c->in)->node + 1; n < last; n++)
        if (snd_g_node(m->g, n) && snd_g_node(m->g, n)->op == SND_OP_ATTENTION) return n;
    return -1;
}

size_t snd_layer_prefix(const char *name, int *layer) {
    const char *at = strstr(name, "layers."), *end = NULL;
    int64_t l;
    if (!at || !snd_parse_int(at + 7, &l, &end) || *end != '.') return 0;
    *layer = (int)l;
    return (size_t)(end + 1 - name);
}

const char *snd_layer_stream(const char *name) {
    int layer;
    const size_t n = snd_layer_prefix(name, &layer);
    return n > 0 && !strchr(name + n, '.') ? name + n : NULL;
}

sonde_status snd_model_cut(snd_arena *a, const snd_model *m) {
    snd_id *streams;
    const char *at = NULL; // name of a stream of the layer at work
    size_t prefix = 0;
    int n = 0;
    SND_NEW(a, streams, m->n_taps + 1);
    for (int i = 0; i < m->n_taps; i++) {
        const char *name = m->taps[i].name, *stream = snd_layer_stream(name);
        if (!stream) continue;
        if (at && ((size_t)(stream - name) != prefix || strncmp(at, name, prefix) != 0)) {
            snd_g_boundary(m->g, streams, n);
            n = 0;
        }
        at = name;
        prefix = (size_t)(stream - name);
        streams[n++] = m->taps[i].v;
    }
    return SONDE_OK;
}
