// A graph as text, one line a value or node, in order: refactors compare it byte for byte.
#include "graph/graph_impl.h"

#include <inttypes.h>

static void put_value(const snd_graph *g, snd_id v, snd_buf *b) {
    char text[160];
    const snd_value *x = snd_g_value(g, v);
    snd_buf_printf(b, "%%%d %s%s", v, snd_dtype_name(x->dtype), snd_shape_text(x->shape, text));
    if (*x->name) snd_buf_printf(b, " '%s'", x->name);
}

static void put_attr(const snd_attr *a, snd_buf *b) {
    for (int k = 0; k < 6; k++) {
        if (a->f[k] == 0) continue;
        snd_buf_printf(b, " f%d=", k);
        snd_buf_num(b, a->f[k], 17);
    }
    for (int k = 0; k < 8; k++) {
        if (a->i[k] != 0) snd_buf_printf(b, " i%d=%" PRId64, k, a->i[k]);
    }
}

static void put_node(const snd_graph *g, const snd_node *n, snd_buf *b) {
    for (int k = 0; k < n->n_out; k++) {
        if (k) snd_buf_put(b, ", ");
        put_value(g, n->out[k], b);
    }
    snd_buf_printf(b, " = %s(", snd_op_info_at(n->op)->name);
    for (int k = 0; k < n->n_in; k++) {
        if (k) snd_buf_put(b, ", ");
        if (n->in[k])
            snd_buf_printf(b, "%%%d", n->in[k]);
        else
            snd_buf_put(b, "-");
    }
    snd_buf_put(b, ")");
    put_attr(&n->attr, b);
    snd_buf_put(b, "\n");
}

void snd_g_dump(const snd_graph *g, snd_buf *b) {
    for (snd_id v = 1; v <= snd_g_value_count(g); v++) {
        const snd_vrole role = snd_g_value(g, v)->role;
        if (role == SND_R_NODE) continue;
        put_value(g, v, b);
        snd_buf_put(b, role == SND_R_INPUT ? " = input\n" : role == SND_R_BUFFER ? " = buffer\n" : " = param\n");
    }
    for (int i = 0; i < snd_g_node_count(g); i++) {
        if (g->nodes[i]) put_node(g, g->nodes[i], b);
    }
}
