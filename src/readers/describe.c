// The describing reader: walks a spec's formula with small records in place of values and collects what describe shows and
// what rules look at. Every family is walked; sublayers of Transformers and convolutions are told by their parameters and
// costs, which needs no kernels. Nothing here decides what is good or bad: that is rules/.
#include "readers/describe_impl.h"

#include <math.h>
#include <string.h>

// ---- operations -----------------------------------------------------------------------------------------------------------

static sonde_status d_unary(void *self, snd_fn fn, snd_val a, snd_val *out) {
    snd_describer *b = self;
    snd_dnode *n;
    SND_TRY(snd_d_node(b, SND_D_UNARY, false, &a, 1, out, &n));
    const snd_dnode *p = &b->nodes[a.id];
    n->fn = fn;
    if (p->known) snd_d_known(n, true, snd_fn_apply(fn, p->start));
    snd_cost_unary(b->d, fn, snd_cost_elements(b, &a));
    return SONDE_OK;
}

static const char *prefix_of(snd_describer *b) { // "decoder.layers.3.A", "out"
    if (b->layer < 0) return "";
    return b->rep && b->rep != 'F' ? snd_arena_printf(b->arena, "%slayers.%d.%c", b->stack.prefix, b->layer, b->rep)
                                   : snd_arena_printf(b->arena, "%slayers.%d", b->stack.prefix, b->layer);
}

static const char *what_is(const snd_dnode *n) {
    if (n->sum) return "sum";
    return n->stream ? "stream" : n->acc > 0 ? "branch" : NULL;
}

// A number times a value of a layer: remembered when the value is the stream's or a branch's.
static sonde_status note_mult(snd_describer *b, const snd_dnode *of, double v, bool learned, snd_dnode *n) {
    const char *on = what_is(of);
    if (b->layer < 0 || !on) return SONDE_OK;
    SND_TRY(snd_d_room(b->arena, (void **)&b->mults, &b->cap_mults, b->n_mults, sizeof *b->mults));
    const char *at = prefix_of(b);
    if (!at) return SONDE_ENOMEM;
    b->mults[b->n_mults++] = (snd_dmult){b->stack.prefix, at, on, b->rep, b->ord++, b->layer, v, learned};
    n->mult = b->n_mults;
    return SONDE_OK;
}

// a (op) c with c known now; `left`: the constant stands on the left.
static sonde_status with_const(snd_describer *b, snd_bin op, double c, snd_val a, bool left, snd_val *out) {
    const snd_dnode *p;
    snd_dnode *n;
    const bool times = op == SND_BIN_MUL || (op == SND_BIN_DIV && !left);
    SND_TRY(snd_d_node(b, times ? SND_D_ALIAS : SND_D_UNARY, false, &a, 1, out, &n));
    p = &b->nodes[a.id];
    const double x = p->start;
    if (times) {
        const double f = op == SND_BIN_DIV ? 1 / c : c;
        if (f == 0) {
            n->op = SND_D_STOP; // no gradient comes through
            snd_d_known(n, true, 0);
        } else
            snd_d_known(n, p->known, x * f);
        SND_TRY(note_mult(b, p, f, false, n));
    } else {
        const double y = op == SND_BIN_ADD   ? x + c
                         : op == SND_BIN_SUB ? (left ? c - x : x - c)
                         : op == SND_BIN_DIV ? c / x
                         : op == SND_BIN_MIN ? fmin(x, c)
                                             : fmax(x, c);
        snd_d_known(n, p->known, y);
    }
    const double e = snd_cost_elements(b, out);
    snd_cost_binary(b->d, e, e);
    return SONDE_OK;
}

static bool is_learned(const snd_val *v, const snd_dnode *n) {
    return (v->kind == SND_V_SCALAR || v->kind == SND_V_VECTOR) && n->known;
}

static sonde_status d_binary(void *self, snd_bin op, snd_val p, snd_val q, snd_val *out) {
    snd_describer *b = self;
    if (p.kind == SND_V_CONST) return with_const(b, op, p.num, q, true, out);
    if (q.kind == SND_V_CONST) return with_const(b, op, q.num, p, false, out);
    static const snd_dop ops[] = {
        [SND_BIN_ADD] = SND_D_ADD, [SND_BIN_SUB] = SND_D_ADD,    [SND_BIN_MUL] = SND_D_MUL,
        [SND_BIN_DIV] = SND_D_DIV, [SND_BIN_MIN] = SND_D_MINMAX, [SND_BIN_MAX] = SND_D_MINMAX};
    const snd_val in[2] = {p, q};
    snd_dnode *n;
    SND_TRY(snd_d_node(b, ops[op], op == SND_BIN_SUB, in, 2, out, &n));
    const snd_dnode *x = &b->nodes[p.id], *y = &b->nodes[q.id];
    if (op == SND_BIN_MUL && is_learned(&p, x))
        SND_TRY(note_mult(b, y, x->start, true, n));
    else if (op == SND_BIN_MUL && is_learned(&q, y))
        SND_TRY(note_mult(b, x, y->start, true, n));
    snd_cost_binary(b->d, snd_cost_elements(b, &p) + snd_cost_elements(b, &q), snd_cost_elements(b, out));
    return SONDE_OK;
}

// Does `second` change nothing that `first` left, but for gain and bias? Up to eps.
static bool redundant(snd_norm_kind second, snd_norm_kind first) {
    const bool rms = second == SND_NORM_RMS || second == SND_NORM_SCALE;
    if (rms) return first == SND_NORM_LAYER || first == SND_NORM_RMS || first == SND_NORM_SCALE;
    return second == first && (second == SND_NORM_LAYER || second == SND_NORM_BATCH);
}

static sonde_status d_norm(void *self, const snd_site *site, const snd_norm_args *n, snd_val a, snd_val *out) {
    snd_describer *b = self;
    bool zero;
    b->layer = site->layer;
    snd_dnode *node;
    SND_TRY(snd_d_node(b, n->kind == SND_NORM_NONE ? SND_D_ALIAS : SND_D_NORM, false, &a, 1, out, &node));
    SND_TRY(snd_d_norm(b, site->name, n, a.cols, &zero));
    snd_cost_norm(b->d, n->kind, snd_cost_elements(b, &a));
    node->n_params = b->d->n_params - node->first_param;
    if (n->kind == SND_NORM_NONE) return SONDE_OK;
    node->closed = zero;
    if (zero) snd_d_known(node, true, 0);
    node->norm = b->d->n_sites;
    const int before = b->nodes[a.id].norm;
    if (before && redundant(n->kind, b->d->sites[before - 1].kind) && !b->nodes[a.id].known)
        b->d->sites[b->d->n_sites - 1].after = b->d->sites[before - 1].name;
    return SONDE_OK;
}

static sonde_status d_linear(void *self, const snd_site *site, const snd_linear_args *l, snd_val a, snd_val *out) {
    snd_describer *b = self;
    snd_dnode *n;
    bool zero = false;
    b->layer = site->layer;
    const int64_t in = a.kind == SND_V_TOKEN ? 1 : a.cols;
    SND_TRY(snd_d_node(b, SND_D_MAP, false, &a, 1, out, &n));
    SND_TRY(
        snd_d_map(b, site->name, l->role, l->alt, in, l->out, 0, l->has_gain ? l->gain : -1, l->zero, l->bias, &zero));
    n->n_params = b->d->n_params - n->first_param;
    n->closed = zero;
    n->site = site->name;
    if (zero) snd_d_known(n, true, 0);
    snd_cost_gemm(b->d, a.kind == SND_V_EXAMPLE ? 1 : (double)b->tokens, (double)in, (double)l->out);
    return SONDE_OK;
}

static sonde_status learned(snd_describer *b, const snd_site *site, const char *role, int64_t size, double init,
                            snd_val *out) {
    snd_dnode *n;
    double start;
    b->layer = site->layer;
    SND_TRY(snd_d_node(b, SND_D_SOURCE, false, NULL, 0, out, &n));
    SND_TRY(snd_d_value(b, site->name, role, SND_SHAPE(size), init, false, &start));
    n->n_params = 1;
    n->site = site->name;
    snd_d_known(n, !isnan(start), start);
    return SONDE_OK;
}

static sonde_status d_scalar(void *self, const snd_site *site, double init, snd_val *out) {
    return learned(self, site, "scalar", 1, init, out);
}

static sonde_status d_vector(void *self, const snd_site *site, double init, snd_val *out) {
    snd_describer *b = self;
    return learned(b, site, "vector", b->stack.d, init, out);
}

static sonde_status d_unit(void *self, snd_val a, snd_val *out) {
    snd_describer *b = self;
    snd_dnode *n;
    SND_TRY(snd_d_node(b, SND_D_NORM, false, &a, 1, out, &n));
    n->norm = 0; // no site
    snd_cost_norm(b->d, SND_NORM_SCALE, snd_cost_elements(b, &a));
    return SONDE_OK;
}

static sonde_status d_dot(void *self, snd_val p, snd_val q, snd_val *out) {
    snd_describer *b = self;
    const snd_val in[2] = {p, q};
    SND_TRY(snd_d_node(b, SND_D_DOT, false, in, 2, out, NULL));
    snd_cost_binary(b->d, snd_cost_elements(b, &p) + snd_cost_elements(b, &q), snd_cost_elements(b, &p));
    return SONDE_OK;
}

static sonde_status d_rms(void *self, snd_val a, snd_val *out) {
    snd_describer *b = self;
    SND_TRY(snd_d_node(b, SND_D_DOT, false, &a, 1, out, NULL));
    snd_cost_binary(b->d, snd_cost_elements(b, &a), snd_cost_elements(b, &a));
    return SONDE_OK;
}

static sonde_status d_stop(void *self, snd_val a, snd_val *out) {
    return snd_d_node(self, SND_D_STOP, false, &a, 1, out, NULL);
}

static sonde_status d_alias(void *self, snd_val a, snd_val *out) {
    return snd_d_node(self, SND_D_ALIAS, false, &a, 1, out, NULL);
}

static sonde_status d_cond(void *self, snd_val *out) {
    return snd_d_node(self, SND_D_SOURCE, false, NULL, 0, out, NULL);
}

static sonde_status d_depthmix(void *self, const snd_site *site, const snd_val *list, int n, snd_val *out) {
    snd_describer *b = self;
    snd_dnode *node;
    double start;
    b->layer = site->layer;
    SND_TRY(snd_d_node(b, SND_D_PICK_LAST, false, list, n, out, &node));
    SND_TRY(snd_d_value(b, site->name, "depthmix", SND_SHAPE(n), 1, true, &start));
    if (b->d->params[b->d->n_params - 1].mean != 1) node->op = SND_D_LIST; // a rule replaced the one-hot start
    node->n_params = 1;
    const double e = snd_cost_elements(b, out);
    snd_cost_binary(b->d, n * e, 2 * n * e);
    return SONDE_OK;
}

static sonde_status d_depthattn(void *self, const snd_site *site, const snd_val *list, int n, double eps,
                                snd_val *out) {
    snd_describer *b = self;
    snd_dnode *node;
    (void)eps;
    b->layer = site->layer;
    SND_TRY(snd_d_node(b, SND_D_LIST, false, list, n, out, &node));
    SND_TRY(snd_d_value(b, site->name, "depthattn", SND_SHAPE(list[0].cols), 0, false, NULL));
    b->d->params[b->d->n_params - 1].no_grad = n == 1; // the softmax of one score is 1 whatever the score
    node->n_params = 1;
    const double e = snd_cost_elements(b, out);
    snd_cost_norm(b->d, SND_NORM_RMS, n * e);
    snd_cost_binary(b->d, n * e, 4 * n * e);
    return SONDE_OK;
}

static sonde_status d_sublayer(void *self, const snd_site *site, const snd_sub_args *s, snd_val a, snd_val *out) {
    snd_describer *b = self;
    snd_dnode *n;
    bool zero, closed;
    b->layer = site->layer;
    SND_TRY(snd_d_node(b, SND_D_SUBLAYER, false, &a, 1, out, &n));
    SND_TRY(snd_d_sublayer(b, site->name, s, &zero, &closed));
    n->n_params = b->d->n_params - n->first_param;
    n->closed = closed;
    snd_d_known(n, zero || (b->nodes[a.id].known && b->nodes[a.id].start == 0), 0);
    return SONDE_OK;
}

// ---- convnets ---------------------------------------------------------------------------------------------------------------

static sonde_status convolve(snd_describer *b, const snd_site *site, const char *role, snd_val a, int64_t channels,
                             int64_t k, snd_val *out) {
    snd_dnode *n;
    bool zero = false;
    b->layer = site->layer;
    SND_TRY(snd_d_node(b, SND_D_MAP, false, &a, 1, out, &n));
    SND_TRY(snd_d_map(b, site->name, role, NULL, a.cols, channels, k, -1, false, false, &zero));
    n->n_params = b->d->n_params - n->first_param;
    n->closed = zero;
    if (zero) snd_d_known(n, true, 0);
    snd_cost_gemm(b->d, (double)(out->h * out->w), (double)(a.cols * k * k), (double)channels);
    return SONDE_OK;
}

static sonde_status d_conv(void *self, const snd_site *site, snd_val a, int64_t channels, int64_t k, int64_t stride,
                           snd_val *out) {
    (void)stride;
    return convolve(self, site, "conv", a, channels, k, out);
}

static sonde_status d_shortcut(void *self, const snd_site *site, snd_val x, snd_val u, int64_t channels, int64_t stride,
                               snd_val *out) {
    (void)x;
    (void)stride;
    return convolve(self, site, "conv", u, channels, 1, out);
}

static sonde_status d_pool(void *self, snd_val a, snd_val *out) {
    snd_describer *b = self;
    SND_TRY(snd_d_node(b, SND_D_ALIAS, false, &a, 1, out, NULL));
    snd_cost_binary(b->d, snd_cost_elements(b, &a), (double)a.cols);
    return SONDE_OK;
}

// ---- names and places --------------------------------------------------------------------------------------------------------

static bool ends_with(const char *s, const char *tail) {
    const size_t n = strlen(s), k = strlen(tail);
    return n >= k && !strcmp(s + n - k, tail);
}

static sonde_status open_call(snd_describer *b, const char *name, snd_val v) {
    snd_description *d = b->d;
    b->calls++;
    SND_TRY(snd_d_room(b->arena, (void **)&d->calls, &b->cap_calls, d->n_calls, sizeof *d->calls));
    SND_TRY(snd_d_room(b->arena, (void **)&b->call_in, &b->cap_call_in, d->n_calls, sizeof *b->call_in));
    SND_TRY(snd_d_room(b->arena, (void **)&b->call_out, &b->cap_call_out, d->n_calls, sizeof *b->call_out));
    const char *call = snd_arena_strn(b->arena, name, strlen(name) - 3);
    if (!call) return SONDE_ENOMEM;
    d->calls[d->n_calls] = (snd_call_row){.name = call, .layer = b->layer, .normed = b->nodes[v.id].normed};
    if (b->stack.block && b->texts) SND_TRY(snd_d_text_block(b));
    b->call_in[d->n_calls] = v.id;
    b->call_out[d->n_calls++] = 0;
    const snd_dnode *n = &b->nodes[v.id];
    snd_dmult *m = n->n_in && b->nodes[n->in[0]].mult ? &b->mults[b->nodes[n->in[0]].mult - 1] : NULL;
    if (m && !strcmp(m->on, "stream") && m->layer == b->layer && m->rep == b->rep) m->on = "branch input";
    return SONDE_OK;
}

static void close_call(snd_describer *b, const char *name, snd_val v) {
    for (int i = b->d->n_calls - 1; i >= 0; i--) {
        const char *call = b->d->calls[i].name;
        if (b->call_out[i] || strncmp(call, name, strlen(call)) != 0) continue;
        snd_dnode *n = &b->nodes[v.id];
        n->stream = n->sum = n->normed = n->had_stream = false;
        n->norm = 0;
        n->acc = 1;
        n->acc_normed = b->d->calls[i].normed;
        b->call_out[i] = v.id;
        return;
    }
}

static sonde_status d_tap(void *self, const char *name, snd_val v) {
    snd_describer *b = self;
    const char *local = name + strlen(b->stack.prefix);
    if (!strncmp(local, "in.", 3) && !ends_with(local, ".out"))
        b->nodes[v.id].stream = true; // streams start here
    else if (ends_with(name, ".in"))
        return open_call(b, name, v);
    else if (ends_with(name, ".out") && !strstr(local, ".N") && !ends_with(local, ".inner.out") &&
             strncmp(local, "out.", 4) != 0)
        close_call(b, name, v);
    else
        b->nodes[v.id].sum = false; // "layers.3.x": from here on it is the stream
    return SONDE_OK;
}

static sonde_status d_enter(void *self, snd_section sec, int layer, char rep) {
    snd_describer *b = self;
    b->layer = layer;
    b->ord = 0;
    if (sec == SND_SEC_LAYER2) b->ord = 1000; // a place of its own
    return b->texts ? snd_d_text_enter(b, sec, layer, rep) : SONDE_OK;
}

static sonde_status d_leave(void *self, snd_section sec, int layer, char rep) {
    snd_describer *b = self;
    (void)layer;
    return b->texts ? snd_d_text_leave(b, sec, rep) : SONDE_OK;
}

static sonde_status d_stmt(void *self, const snd_stmt *s, snd_section sec, int layer, snd_val x) {
    snd_describer *b = self;
    (void)sec;
    (void)x;
    b->layer = layer;
    return b->texts ? snd_d_text_stmt(b, s) : SONDE_OK;
}

// ---- stacks --------------------------------------------------------------------------------------------------------------------

static const snd_reader ops = {.unary = d_unary,
                               .binary = d_binary,
                               .norm = d_norm,
                               .linear = d_linear,
                               .scalar = d_scalar,
                               .vector = d_vector,
                               .unit = d_unit,
                               .dot = d_dot,
                               .rms = d_rms,
                               .stop = d_stop,
                               .cond = d_cond,
                               .depthmix = d_depthmix,
                               .depthattn = d_depthattn,
                               .sublayer = d_sublayer,
                               .conv = d_conv,
                               .shortcut = d_shortcut,
                               .pool = d_pool,
                               .alias = d_alias,
                               .tap = d_tap,
                               .enter = d_enter,
                               .leave = d_leave,
                               .stmt = d_stmt};

static sonde_status walk(snd_describer *b, snd_val *out) {
    const snd_spec *s = b->spec;
    snd_reader r = ops;
    r.self = b;
    snd_walk w = {.arena = b->arena, .stack = &b->stack, .reader = &r};
    b->walk = &w;
    b->calls = 0;
    snd_val in = snd_model_stream(s, 0, 0);
    snd_dnode *n;
    SND_TRY(snd_d_node(b, SND_D_SOURCE, false, NULL, 0, &in, &n));
    n->stream = true;
    SND_TRY(snd_d_text_begin(b));
    SND_TRY(snd_d_positions(b));
    const sonde_status st = snd_walk_stack(&w, in, out);
    if (st != SONDE_OK) return snd_fail_prefix(st, "wiring: ");
    b->d->n_sublayers = w.n_sublayers;
    return snd_d_text_end(b);
}

static bool calls_cross(const snd_describer *b) {
    for (int i = 0; i < b->d->n_calls; i++) {
        const char *dot = strrchr(b->d->calls[i].name, '.');
        if (dot && dot[1] == 'C') return true;
    }
    return false;
}

static sonde_status stacks(snd_describer *b, snd_val *out) {
    snd_stack t[2];
    const int n = snd_model_stacks(b->spec, t);
    int32_t memory = 0;
    for (int i = 0; i < n; i++) {
        memory = i ? out->id : 0;
        b->stack = t[i];
        b->tokens = i + 1 < n ? b->memory : b->d->tokens;
        SND_TRY(walk(b, out));
    }
    if (memory)
        b->nodes[memory].grad = true; // through the decoder's cross-attention; where there is none, a warning says so
    return SONDE_OK;
}

// ---- what is told about the whole --------------------------------------------------------------------------------------------------

static sonde_status line(snd_describer *b, const char *fmt, ...) SND_PRINTF(2, 3);
static sonde_status line(snd_describer *b, const char *fmt, ...) {
    char text[700];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const char **lines;
    snd_description *d = b->d;
    SND_NEW(b->arena, lines, d->n_lines + 1);
    for (int i = 0; i < d->n_lines; i++) lines[i] = d->lines[i];
    lines[d->n_lines] = snd_arena_str(b->arena, text);
    if (!lines[d->n_lines]) return SONDE_ENOMEM;
    d->lines = lines;
    d->n_lines++;
    return SONDE_OK;
}

// Rows that differ only in their repetition (A, M) are one.
static void merge_mults(snd_description *d) {
    int n = 0;
    for (int i = 0; i < d->n_mults; i++) {
        snd_mult_row *m = &d->mults[i];
        int k = 0;
        while (k < n && (strcmp(d->mults[k].on, m->on) != 0 || d->mults[k].learned != m->learned ||
                         d->mults[k].first != m->first || d->mults[k].last != m->last))
            k++;
        if (k == n) {
            d->mults[n++] = *m;
            continue;
        }
        d->mults[k].last_at = m->last_at;
        d->mults[k].count += m->count;
    }
    d->n_mults = n;
}

static sonde_status collect_mults(snd_describer *b) {
    snd_description *d = b->d;
    int64_t cap = 0;
    int *row;
    const snd_dmult **key;
    SND_NEW(b->arena, row, b->n_mults + 1);
    SND_NEW(b->arena, key, b->n_mults + 1);
    for (int i = 0; i < b->n_mults; i++) {
        const snd_dmult *m = &b->mults[i];
        if (m->v == 1 && !m->learned) continue;
        int k = d->n_mults - 1;
        while (k >= 0 && (key[k]->ord != m->ord || key[k]->rep != m->rep || key[k]->stack != m->stack ||
                          strcmp(key[k]->on, m->on) != 0 || key[k]->learned != m->learned))
            k--;
        if (k < 0) {
            SND_TRY(snd_d_room(b->arena, (void **)&d->mults, &cap, d->n_mults, sizeof *d->mults));
            key[k = d->n_mults++] = m;
            d->mults[k] = (snd_mult_row){.on = m->on, .first_at = m->at, .first = m->v, .learned = m->learned};
        }
        d->mults[k].last = m->v;
        d->mults[k].last_at = m->at;
        d->mults[k].count++;
    }
    merge_mults(d);
    return SONDE_OK;
}

static void finish_calls(snd_describer *b) {
    snd_description *d = b->d;
    d->all_normed = d->n_calls > 0;
    for (int i = 0; i < d->n_calls; i++) {
        if (!b->call_out[i]) continue;
        const snd_dnode *n = &b->nodes[b->call_out[i]];
        d->all_normed = d->all_normed && d->calls[i].normed;
        d->calls[i].out_zero = n->known && n->start == 0;
        d->calls[i].no_grad = !n->grad;
        if (!n->grad) d->calls[i].gate = snd_d_gate(b, b->call_out[i]);
    }
}

static sonde_status start_lines(snd_describer *b) {
    const snd_description *d = b->d;
    int gated = 0, unused = 0, zero = 0;
    for (int i = 0; i < d->n_calls; i++) {
        gated += d->calls[i].no_grad && d->calls[i].gate;
        unused += d->calls[i].no_grad && !d->calls[i].gate;
        zero += d->calls[i].out_zero && !d->calls[i].no_grad;
    }
    if (gated)
        SND_TRY(line(
            b,
            "%d of %d branches are multiplied by zero at the start: in the first step only their gates get a gradient",
            gated, d->n_calls));
    if (unused)
        SND_TRY(line(b, "%d of %d branches never reach the output: nothing inside them can learn", unused, d->n_calls));
    if (zero)
        SND_TRY(
            line(b, "%d of %d branches return zero at the start: in the first step only their last maps get a gradient",
                 zero, d->n_calls));
    if (d->head_zero)
        SND_TRY(line(b, "the head starts at zero: in the first step nothing below it gets a gradient from a loss"));
    return SONDE_OK;
}

static sonde_status end_lines(snd_describer *b) {
    const snd_description *d = b->d;
    const snd_spec *s = b->spec;
    if (d->final_norm)
        SND_TRY(line(b, "out.x is normalised"));
    else if (d->n_branches > 1)
        SND_TRY(
            line(b, "no norm after the last layer: out.x carries the sum of %d normalised branches", d->n_branches));
    else if (d->n_sites > 0)
        SND_TRY(line(b, "no norm after the last layer"));
    int twice = 0;
    const snd_site_row *first = NULL;
    for (int i = 0; i < d->n_sites; i++) {
        if (!d->sites[i].after) continue;
        if (!first) first = &d->sites[i];
        twice++;
    }
    if (first)
        SND_TRY(line(b, "%d norm site%s directly read%s another norm's output, the first is %s after %s", twice,
                     twice == 1 ? "" : "s", twice == 1 ? "s" : "", first->name, first->after));
    if (s->norm == SND_NORM_NONE && d->n_sites > 0) SND_TRY(line(b, "norm=none makes every N the identity"));
    if (s->arch == SND_ARCH_ENCDEC && s->family == SND_FAM_TRANSFORMER && !calls_cross(b))
        SND_TRY(line(b, "warning: the wiring never calls C, so the decoder does not read the encoder"));
    if (s->formula->init && s->formula->init->kind && !strcmp(s->formula->init->kind, "profile"))
        SND_TRY(line(
            b, "the wiring's init is profiled: its vectors depend on one pass over the input and start at 1 here"));
    return SONDE_OK;
}

static sonde_status unused_lines(snd_describer *b) {
    const snd_spec *s = b->spec;
    const snd_description *d = b->d;
    bool uses_hidden = s->family != SND_FAM_MLP, cond = false;
    for (int i = 0; i < d->n_params; i++)
        uses_hidden = uses_hidden || (d->params[i].shape.nd == 2 && d->params[i].shape.dim[0] == s->hidden);
    cond = snd_formula_calls(s->formula, "silu") || s->cond == 0;
    if (!uses_hidden && s->hidden != s->width)
        SND_TRY(line(b, "hidden=%lld is not used by this block", (long long)s->hidden));
    (void)cond;
    if (d->n_sites == 0 && s->family != SND_FAM_CONVNET && s->norm != SND_NORM_LAYER && s->norm != SND_NORM_NONE)
        SND_TRY(line(b, "norm=%s is not used: the wiring has no norm site", snd_norm_name(s->norm)));
    return SONDE_OK;
}

static void total(snd_description *d) {
    const snd_cost *f = &d->forward, *g = &d->backward;
    d->flops_forward = f->gemm + f->attention + f->norm + f->elementwise;
    d->flops_backward = g->gemm + g->attention + g->norm + g->elementwise;
    d->bytes_weights = 4.0 * (double)d->n_learned;
}

static sonde_status finish(snd_describer *b, const snd_val *out) {
    snd_description *d = b->d;
    const snd_dnode *n = &b->nodes[out->id];
    d->final_norm = n->normed;
    d->identity = n->stream;
    d->n_branches = n->acc > 1 && n->acc_normed == n->acc ? n->acc : 0;
    snd_d_backward(b, out->id);
    finish_calls(b);
    SND_TRY(collect_mults(b));
    SND_TRY(snd_d_kinds(b));
    SND_TRY(snd_d_groups(b));
    SND_TRY(end_lines(b));
    SND_TRY(start_lines(b));
    SND_TRY(unused_lines(b));
    total(d);
    return SONDE_OK;
}

static sonde_status prepare(snd_describer *b, int fewer) {
    const snd_spec *s = b->spec;
    snd_description *d = b->d;
    snd_buf t = {0};
    snd_formula_print(s->formula, &t);
    d->formula = t.failed ? NULL : snd_arena_str(b->arena, t.s);
    snd_buf_free(&t);
    const bool tf = s->family == SND_FAM_TRANSFORMER;
    b->memory = tf ? (s->context > 0 ? s->context : 64) : 1;
    b->tokens = d->tokens = b->memory - fewer;
    d->example = !tf ? (s->family == SND_FAM_CONVNET ? "an image of 32 x 32" : "a row")
                     : snd_arena_printf(b->arena, "a sequence of %lld tokens", (long long)b->tokens);
    d->in_text = d->out_text = "";
    d->own_init = snd_nn_base_kind(s);
    // the recipe: the wiring's rules on the base kind in force, without what the key says of roles
    b->bare = *s;
    b->bare.init = NULL;
    if (s->init && s->init->n_roles == 0) {
        snd_init_rule *base;
        SND_NEW(b->arena, base, 1);
        *base = *s->init;
        base->next = NULL;
        b->bare.init = base;
    }
    return d->formula && d->example ? SONDE_OK : SONDE_ENOMEM;
}

// fewer: tokens that are missing at the end of the (decoder's) sequence.
static sonde_status describe(snd_arena *a, const snd_spec *spec, bool texts, int fewer, snd_description **out) {
    snd_describer *b;
    SND_NEW(a, b, 1);
    SND_NEW(a, b->d, 1);
    b->arena = a;
    b->texts = texts;
    b->spec = spec;
    b->layer = -1;
    snd_val x = {0};
    sonde_status s = prepare(b, fewer);
    snd_model_stack(spec, &b->stack);
    if (s == SONDE_OK) s = snd_d_embedding(b);
    if (s == SONDE_OK) s = stacks(b, &x);
    if (s == SONDE_OK) s = snd_d_head(b, x.cols);
    if (s == SONDE_OK) s = finish(b, &x);
    snd_buf_free(&b->folded);
    snd_buf_free(&b->plain);
    snd_buf_free(&b->subs);
    if (s == SONDE_OK) *out = b->d;
    return s;
}

// The whole without its last token: every count is a sum over tokens, so what is missing is that token's.
static sonde_status next_token(const snd_spec *spec, snd_description *d) {
    snd_stack last;
    snd_model_stack(spec, &last);
    snd_decoding *n = &d->next;
    n->possible = spec->family == SND_FAM_TRANSFORMER && snd_nn_causal(spec, &last);
    if (!n->possible) return SONDE_OK;
    snd_description *before = NULL;
    snd_arena *a = snd_arena_create();
    if (!a) return SONDE_ENOMEM;
    const sonde_status s = describe(a, spec, false, 1, &before);
    if (s == SONDE_OK) {
        n->cost = snd_cost_beyond(&d->forward, &before->forward);
        n->cost.bytes += n->cache_bytes + n->memory_bytes;
        n->flops = d->flops_forward - before->flops_forward;
        n->weight_bytes = 4 * n->cost.gemm / 2; // a row times a matrix: two FLOPs an entry
    }
    snd_arena_destroy(a);
    return s;
}

sonde_status snd_describe(snd_arena *a, const snd_spec *spec, snd_description **out) {
    SND_TRY(describe(a, spec, true, 0, out));
    return next_token(spec, *out);
}
sonde_status snd_describe_facts(snd_arena *a, const snd_spec *spec, snd_description **out) {
    return describe(a, spec, false, 0, out);
}
