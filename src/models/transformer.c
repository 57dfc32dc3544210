// The transformer family: embedding -> stack (or two) -> head. Layers are the wiring's business, sublayers nn's.
#include "models/models.h"

bool snd_transformer_part(const snd_spec *s, snd_outer which, snd_subpart *out) {
    *out = (snd_subpart){.kind = SND_PART_TABLE, .out = s->width, .each = 1};
    switch (which) {
    case SND_OUTER_TOKEN:
        out->name = "embed.token";
        out->role = "embed";
        out->in = s->vocab;
        return s->vocab > 0;
    case SND_OUTER_POSITION:
        out->name = "embed.position";
        out->role = "pos";
        out->in = s->context;
        return s->vocab > 0 && s->position == SND_POS_LEARNED;
    case SND_OUTER_RELATIVE:
        out->name = "embed.relative";
        out->role = "relative";
        out->in = s->t5_buckets;
        out->out = s->heads;
        return s->position == SND_POS_T5;
    default:
        *out = (snd_subpart){.kind = SND_PART_MAP, .name = "head", .role = "head", .in = s->width, .out = s->vocab};
        return s->vocab > 0 && !s->tie;
    }
}

sonde_status snd_transformer_table(const snd_nn *m, snd_outer which, snd_id *out) {
    snd_subpart p;
    *out = 0;
    if (!snd_transformer_part(m->spec, which, &p)) return SONDE_OK;
    const char *prefix = which == SND_OUTER_TOKEN ? "" : m->stack->prefix;
    const char *name = snd_arena_printf(snd_graph_arena(m->g), "%s%s.weight", prefix, p.name);
    if (!name) return SONDE_ENOMEM;
    snd_init init;
    SND_TRY(snd_nn_init_map(m, p.role, NULL, p.in, p.out, -1, false, &init));
    const snd_shape shape = p.kind == SND_PART_MAP ? SND_SHAPE(p.out, p.in) : SND_SHAPE(p.in, p.out);
    *out = snd_nn_param(m->g, name, shape, &init, false);
    return SONDE_OK;
}

// Rows 0 .. T-1 of the learned positions.
static snd_id first_rows(snd_graph *g, snd_id table, int64_t T) {
    if (!table) return 0;
    const snd_shape s = snd_shape_of(g, table);
    const snd_id flat = snd_g_reshape(g, table, SND_SHAPE(s.dim[0] * s.dim[1]));
    return snd_g_reshape(g, snd_g_slice(g, flat, 0, T * s.dim[1]), SND_SHAPE(T, s.dim[1]));
}

static sonde_status positions(const snd_nn *m, snd_id tokens, snd_id *out) {
    const snd_spec *s = m->spec;
    const int64_t T = snd_shape_of(m->g, tokens).dim[1];
    *out = 0;
    if (s->position == SND_POS_SINUSOIDAL)
        *out = m->positions ? snd_g_sinusoid_at(m->g, m->positions, s->width, false)
                            : snd_g_sinusoid(m->g, T, s->width, 0, false);
    if (s->position != SND_POS_LEARNED) return SONDE_OK;
    SND_FAIL_IF(T > s->context, SONDE_EINPUT, "%s: a sequence has %lld tokens; learned positions end at context, %lld",
                snd_g_value(m->g, tokens)->name, (long long)T, (long long)s->context);
    snd_id table;
    SND_TRY(snd_transformer_table(m, SND_OUTER_POSITION, &table));
    *out = m->positions ? snd_g_embed(m->g, table, m->positions) : first_rows(m->g, table, T);
    return SONDE_OK;
}

sonde_status snd_transformer_embed(const snd_nn *m, snd_id tokens, snd_id *x) {
    snd_id table, pos;
    if (!tokens) return snd_graph_status(m->g);
    SND_TRY(snd_transformer_table(m, SND_OUTER_TOKEN, &table));
    SND_TRY(positions(m, tokens, &pos));
    *x = snd_g_embed(m->g, table, tokens);
    if (pos)
        *x = snd_g_lin(m->g, m->spec->embed_scale, *x, 1, pos);
    else if (m->spec->embed_scale != 1)
        *x = snd_g_scale(m->g, m->spec->embed_scale, *x);
    return SONDE_OK;
}

sonde_status snd_transformer_head(const snd_nn *m, snd_id out_x, snd_id *logits) {
    snd_id w;
    SND_TRY(snd_transformer_table(m, m->spec->tie ? SND_OUTER_TOKEN : SND_OUTER_HEAD, &w));
    *logits = snd_g_linear(m->g, out_x, w);
    if (m->spec->logit_scale != 1) *logits = snd_g_scale(m->g, m->spec->logit_scale, *logits);
    return SONDE_OK;
}
