// What the sublayers of Transformers are made of: the one table behind the graph, the parameter list and the costs.
// Order: as the parts are used. Names, shapes and roles are those of formulas.md sections 5 to 7.
#include "nn/nn.h"

#include <string.h>

typedef struct list {
    snd_subpart *p;
    int n;
} list;

static snd_subpart *add(list *l, snd_subpart p) {
    l->p[l->n] = p;
    return &l->p[l->n++];
}

static void map(list *l, const char *name, int64_t in, int64_t out, bool bias) {
    add(l, (snd_subpart){.kind = SND_PART_MAP, .name = name, .role = name, .in = in, .out = out, .bias = bias});
}

static void value(list *l, const char *name, const char *role, snd_shape shape, double start) {
    add(l, (snd_subpart){.kind = SND_PART_VALUE, .name = name, .role = role, .shape = shape, .start = start});
}

// The norm on queries, keys or values, over each head or over all of them at once.
static void head_norm(list *l, const char *name, snd_qknorm kind, int64_t heads, int64_t dim) {
    if (kind == SND_QK_NONE) return;
    const bool full = kind == SND_QK_RMS_FULL;
    add(l, (snd_subpart){.kind = kind == SND_QK_L2 ? SND_PART_UNIT : SND_PART_RMS,
                         .name = name,
                         .role = "g",
                         .in = full ? heads * dim : dim,
                         .each = full ? 1 : heads});
}

static void inner(list *l, const snd_sub_args *a, int64_t width) {
    if (a->inner) add(l, (snd_subpart){.kind = SND_PART_NORM, .name = "inner", .role = "g", .in = width, .each = 1});
}

bool snd_nn_causal(const snd_spec *s, const snd_stack *t) {
    return s->arch == SND_ARCH_DECODER || t->cross;
}

static void attention(list *l, const snd_spec *s, const snd_stack *t, int layer, const snd_sub_args *a) {
    const int64_t kv = snd_spec_kv_heads(s, layer + 1, t->L), hd = s->head_dim, d = t->d;
    map(l, "q", d, s->heads * hd, s->attn_bias);
    map(l, "k", d, kv * hd, s->attn_bias);
    map(l, "v", d, kv * hd, s->attn_bias);
    head_norm(l, "q_norm", s->qk_norm, s->heads, hd);
    head_norm(l, "k_norm", s->qk_norm, kv, hd);
    // values are normalised as queries and keys are; where those are not, per head
    if (a->vnorm) head_norm(l, "v_norm", s->qk_norm == SND_QK_NONE ? SND_QK_RMS_HEAD : s->qk_norm, kv, hd);
    if (a->which == 'A' && snd_spec_position(s, layer + 1, t->L) == SND_POS_XL) {
        map(l, "r", d, s->heads * hd, false);
        value(l, "pos_u", "b", SND_SHAPE(s->heads, hd), 0);
        value(l, "pos_v", "b", SND_SHAPE(s->heads, hd), 0);
    }
    if (a->headgain) value(l, "head_gain", "headgain", SND_SHAPE(s->heads), 1);
    inner(l, a, s->heads * hd);
    map(l, "o", s->heads * hd, d, s->attn_bias);
}

static void feed_forward(list *l, const snd_spec *s, const snd_stack *t, const snd_sub_args *a) {
    map(l, "up", t->d, t->n, s->bias);
    if (s->gated) map(l, "gate", t->d, t->n, s->bias);
    inner(l, a, t->n);
    map(l, "down", t->n, t->d, s->bias);
}

int snd_nn_parts(const snd_spec *s, const snd_stack *t, int layer, const snd_sub_args *a,
                 snd_subpart parts[SND_MAX_PARTS]) {
    list l = {.p = parts};
    if (a->which == 'M')
        feed_forward(&l, s, t, a);
    else
        attention(&l, s, t, layer, a);
    return l.n;
}

const snd_subpart *snd_nn_part(const snd_subpart *parts, int n, const char *name) {
    for (int i = 0; i < n; i++)
        if (!strcmp(parts[i].name, name)) return &parts[i];
    return NULL;
}

snd_norm_args snd_nn_part_norm(const snd_subpart *p, const snd_stack *t) {
    const snd_norm_args n = t->norm;
    return p->kind == SND_PART_RMS ? (snd_norm_args){SND_NORM_RMS, n.eps, 1, false, n.plus1, true, false} : n;
}
