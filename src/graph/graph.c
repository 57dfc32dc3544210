// The builder: values, nodes, parameters and their names. Remembers its first error; after it every constructor
// returns 0 and does nothing, so models read like formulas.
// Invariant: a node's inputs exist before the node does, so node order is a topological order.
// Does not know what any operation means: shapes come from the op's own rule.
#include "graph/graph_impl.h"

#include <assert.h>
#include <string.h>

// ---- growth in the arena --------------------------------------------------------------------------------------------

// Room for one more element; arrays double, the old copy stays in the arena.
static bool grow(snd_graph *g, void **p, int n, int *cap, size_t size) {
    if (n < *cap) return true;
    const int want = *cap ? 2 * *cap : 64;
    void *q = snd_arena_array(g->arena, (size_t)want, size);
    if (!q) return false;
    if (*p) memcpy(q, *p, (size_t)n * size);
    *p = q;
    *cap = want;
    return true;
}

static void out_of_memory(snd_graph *g) {
    if (g->status != SONDE_OK) return;
    g->status = SONDE_ENOMEM;
    g->message = "the graph does not fit in memory";
}

snd_graph *snd_graph_create(snd_arena *a, snd_dtype dtype) {
    assert(dtype == SND_F32 || dtype == SND_F64);
    snd_graph *g = snd_arena_alloc(a, sizeof *g);
    if (!g) return NULL;
    g->arena = a;
    g->dtype = dtype;
    return g;
}

void snd_graph_round_products(snd_graph *g, snd_dtype to) {
    assert(to == SND_DT_NONE || (to == SND_BF16 && g->dtype == SND_F32));
    g->products = to;
}
snd_dtype snd_graph_products(const snd_graph *g) {
    return g->products;
}

void snd_graph_store(snd_graph *g, snd_dtype as) {
    assert(as == SND_DT_NONE || (as == SND_F16 && g->dtype == SND_F32));
    g->stored = as;
}
snd_dtype snd_graph_stored(const snd_graph *g) {
    return g->stored;
}

snd_dtype snd_graph_dtype(const snd_graph *g) {
    return g->dtype;
}
snd_arena *snd_graph_arena(const snd_graph *g) {
    return g->arena;
}

// ---- the first error ------------------------------------------------------------------------------------------------

sonde_status snd_graph_status(const snd_graph *g) {
    SND_FAIL_IF(g->status != SONDE_OK, g->status, "%s", g->message);
    return SONDE_OK;
}

snd_id snd_g_fail(snd_graph *g, sonde_status code, const char *fmt, ...) {
    if (g->status != SONDE_OK) return 0;
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    g->status = code;
    g->message = snd_arena_str(g->arena, text);
    if (!g->message) g->message = "the graph could not be built";
    return 0;
}

// ---- values ---------------------------------------------------------------------------------------------------------

static snd_value *new_value(snd_graph *g, snd_vrole role, snd_dtype dtype, snd_shape s) {
    if (g->n_values == 0) g->n_values = 1; // id 0 is invalid
    snd_value *v = snd_arena_alloc(g->arena, sizeof *v);
    if (!v || !grow(g, (void **)&g->values, g->n_values, &g->cap_values, sizeof *g->values)) {
        out_of_memory(g);
        return NULL;
    }
    *v = (snd_value){.name = "", .role = role, .dtype = dtype, .shape = s, .node = -1, .param = -1};
    g->values[g->n_values++] = v;
    return v;
}

static snd_id last_value(const snd_graph *g) {
    return g->n_values - 1;
}

int snd_g_value_count(const snd_graph *g) {
    return g->n_values ? g->n_values - 1 : 0;
}

const snd_value *snd_g_value(const snd_graph *g, snd_id v) {
    assert(v > 0 && v < g->n_values);
    return g->values[v];
}

snd_shape snd_shape_of(const snd_graph *g, snd_id v) {
    return snd_g_value(g, v)->shape;
}

static bool bad_shape(snd_graph *g, const char *name, snd_shape s) {
    char text[160];
    for (int i = 0; i < s.nd; i++) {
        if (s.dim[i] >= 1) continue;
        snd_g_fail(g, SONDE_ESHAPE, "'%s' has shape %s, every dimension must be at least 1", name,
                   snd_shape_text(s, text));
        return true;
    }
    if (snd_shape_size(s) < ((int64_t)1 << 48)) return false;
    snd_g_fail(g, SONDE_ESHAPE, "'%s' of shape %s does not fit in memory", name, snd_shape_text(s, text));
    return true;
}

snd_id snd_g_input(snd_graph *g, const char *name, snd_shape s, snd_dtype dtype) {
    if (g->status != SONDE_OK || bad_shape(g, name, s)) return 0;
    if (!new_value(g, SND_R_INPUT, dtype == SND_DT_NONE ? g->dtype : dtype, s)) return 0;
    const snd_id id = last_value(g);
    snd_g_name(g, id, name);
    return g->status == SONDE_OK ? id : 0;
}

snd_id snd_g_buffer(snd_graph *g, const char *name, snd_shape s) {
    if (g->status != SONDE_OK || bad_shape(g, name, s)) return 0;
    if (!new_value(g, SND_R_BUFFER, g->dtype, s)) return 0;
    const snd_id id = last_value(g);
    snd_g_name(g, id, name);
    return g->status == SONDE_OK ? id : 0;
}

static snd_id add_param(snd_graph *g, const char *name, snd_shape s, const snd_init *init, bool state) {
    if (g->status != SONDE_OK || bad_shape(g, name, s)) return 0;
    snd_value *v = new_value(g, SND_R_PARAM, g->dtype, s);
    if (!v) return 0;
    if (!grow(g, (void **)&g->params, g->n_params, &g->cap_params, sizeof *g->params)) {
        out_of_memory(g);
        return 0;
    }
    const snd_id id = last_value(g);
    v->param = g->n_params;
    g->params[g->n_params++] =
        (snd_param){.v = id, .init = init ? *init : (snd_init){.kind = SND_INIT_NONE}, .state = state};
    snd_g_name(g, id, name);
    return g->status == SONDE_OK ? id : 0;
}

snd_id snd_g_param(snd_graph *g, const char *name, snd_shape s, const snd_init *init) {
    return add_param(g, name, s, init, false);
}

snd_id snd_g_state(snd_graph *g, const char *name, snd_shape s, const snd_init *init) {
    return add_param(g, name, s, init, true);
}

int snd_g_param_count(const snd_graph *g) {
    return g->n_params;
}
snd_id snd_g_param_at(const snd_graph *g, int i) {
    return g->params[i].v;
}
const snd_init *snd_g_param_init(const snd_graph *g, int i) {
    return &g->params[i].init;
}
bool snd_g_param_is_state(const snd_graph *g, int i) {
    return g->params[i].state;
}

// ---- nodes ----------------------------------------------------------------------------------------------------------

int snd_g_node_count(const snd_graph *g) {
    return g->n_nodes;
}
const snd_node *snd_g_node(const snd_graph *g, int i) {
    return g->nodes[i];
}

// The op's shape rule, with the op's name and the input shapes in front of its message.
static bool infer(snd_graph *g, snd_node *n, const snd_op_info *info, snd_shape *shape, snd_dtype *dtype) {
    for (int k = 0; k < SND_MAX_OUT; k++) dtype[k] = g->dtype;
    n->n_out = 1;
    const sonde_status s = info->shape(g, n, shape, dtype);
    if (s != SONDE_OK) snd_g_fail(g, s, "%s: %s", info->name, sonde_error_message());
    return s == SONDE_OK;
}

static snd_node *new_node(snd_graph *g, int op, const snd_id *in, int n_in, const snd_attr *attr) {
    snd_node *n = snd_arena_alloc(g->arena, sizeof *n);
    snd_id *ids = snd_arena_array(g->arena, n_in > 0 ? (size_t)n_in : 1, sizeof *ids);
    if (!n || !ids || !grow(g, (void **)&g->nodes, g->n_nodes, &g->cap_nodes, sizeof(*g->nodes))) {
        out_of_memory(g);
        return NULL;
    }
    if (n_in) memcpy(ids, in, (size_t)n_in * sizeof *ids);
    *n = (snd_node){.op = op, .in = ids, .n_in = n_in, .attr = attr ? *attr : (snd_attr){{0}, {0}}};
    return n;
}

snd_id snd_g_op(snd_graph *g, int op, const snd_id *in, int n_in, const snd_attr *attr, snd_id *out) {
    if (out) memset(out, 0, SND_MAX_OUT * sizeof *out);
    if (g->status != SONDE_OK) return 0;
    const snd_op_info *info = snd_op_info_at(op);
    if (!info) return snd_g_fail(g, SONDE_EINTERNAL, "there is no operation number %d", op);
    for (int k = 0; k < n_in; k++) assert(in[k] >= 0 && in[k] < g->n_values);
    snd_node *n = new_node(g, op, in, n_in, attr);
    if (!n) return 0;
    snd_shape shape[SND_MAX_OUT];
    snd_dtype dtype[SND_MAX_OUT];
    if (!infer(g, n, info, shape, dtype)) return 0;
    for (int k = 0; k < n->n_out; k++) {
        if (bad_shape(g, info->name, shape[k])) return 0;
        snd_value *v = new_value(g, SND_R_NODE, dtype[k], shape[k]);
        if (!v) return 0;
        v->node = g->n_nodes;
        v->out_index = k;
        n->out[k] = last_value(g);
        if (out) out[k] = n->out[k];
    }
    g->nodes[g->n_nodes++] = n;
    return n->out[0];
}

static void add_end(snd_graph *g, snd_id v, bool cut) {
    if (grow(g, (void **)&g->ends, g->n_ends, &g->cap_ends, sizeof *g->ends))
        g->ends[g->n_ends++] = (snd_end){v, cut};
    else
        out_of_memory(g);
}

void snd_g_boundary(snd_graph *g, const snd_id *v, int n) {
    int last = 0;
    for (int i = 1; i < n; i++)
        if (snd_g_value(g, v[i])->node > snd_g_value(g, v[last])->node) last = i;
    for (int i = 0; i < n && g->status == SONDE_OK; i++) add_end(g, v[i], i == last);
}

void snd_graph_seed(snd_graph *g, snd_id dy) {
    if (g->status != SONDE_OK || dy == 0) return;
    if (grow(g, (void **)&g->seeds, g->n_seeds, &g->cap_seeds, sizeof *g->seeds))
        g->seeds[g->n_seeds++] = dy;
    else
        out_of_memory(g);
}

// ---- names ----------------------------------------------------------------------------------------------------------

static int32_t *slot_of(const snd_graph *g, const char *name) {
    const uint64_t mask = (uint64_t)g->n_slots - 1;
    for (uint64_t h = snd_hash_str(name) & mask;; h = (h + 1) & mask) {
        if (g->slots[h] == 0 || strcmp(g->names[g->slots[h] - 1].name, name) == 0) return &g->slots[h];
    }
}

static bool grow_slots(snd_graph *g) {
    if (g->n_slots > 2 * (g->n_names + 1)) return true;
    const int want = g->n_slots ? 2 * g->n_slots : 256;
    int32_t *slots = snd_arena_array(g->arena, (size_t)want, sizeof *slots);
    if (!slots) return false;
    g->slots = slots;
    g->n_slots = want;
    for (int i = 0; i < g->n_names; i++) *slot_of(g, g->names[i].name) = i + 1;
    return true;
}

void snd_g_name(snd_graph *g, snd_id v, const char *name) {
    if (g->status != SONDE_OK || v == 0) return;
    if (!grow_slots(g) || !grow(g, (void **)&g->names, g->n_names, &g->cap_names, sizeof *g->names)) {
        out_of_memory(g);
        return;
    }
    int32_t *slot = slot_of(g, name);
    if (*slot) {
        if (g->names[*slot - 1].v != v)
            snd_g_fail(g, SONDE_ENAME, "the name '%s' is given to two values, must be unique", name);
        return;
    }
    const char *copy = snd_arena_str(g->arena, name);
    if (!copy) {
        out_of_memory(g);
        return;
    }
    g->names[g->n_names++] = (snd_tapname){copy, v};
    *slot = g->n_names;
    if (!*g->values[v]->name) g->values[v]->name = copy;
}

snd_id snd_g_find(const snd_graph *g, const char *name) {
    if (!g->n_slots) return 0;
    const int32_t *slot = slot_of(g, name);
    return *slot ? g->names[*slot - 1].v : 0;
}

int snd_g_name_count(const snd_graph *g) {
    return g->n_names;
}

const char *snd_g_name_at(const snd_graph *g, int i, snd_id *v) {
    if (v) *v = g->names[i].v;
    return g->names[i].name;
}
