// Dropout of elements, or of whole examples (droppath): y = f x with factors that are drawn, not stored. The gradient is the
// same operation on dy, with the same draws: they depend on the run's seed, on the site and on the number of the element in
// the whole batch, of which a run may hold a part.
//   in: x.  f[0] = rate; i[0] = site, i[1] = elements that share a draw, i[2] = examples that x holds, 0: it is none's
#include "ops/ops_impl.h"

static sonde_status shape(const snd_graph *g, snd_node *n, snd_shape *out, snd_dtype *dtype) {
    (void)dtype;
    char text[160], number[40];
    const snd_shape x = snd_shape_of(g, n->in[0]);
    const int64_t size = snd_shape_size(x), group = n->attr.i[1], examples = n->attr.i[2];
    SND_FAIL_IF(!(n->attr.f[0] >= 0 && n->attr.f[0] < 1), SONDE_ERANGE, "rate %s, must be from 0 to below 1",
                snd_format_num(number, n->attr.f[0], 6));
    SND_FAIL_IF(group < 1 || size % group || examples < 0 || (examples && size % examples), SONDE_ESHAPE,
                "%lld elements to a draw and %lld examples do not divide shape %s", (long long)group,
                (long long)examples, snd_shape_text(x, text));
    *out = x;
    return SONDE_OK;
}

snd_key snd_drop_key(const snd_oprun *r, int64_t site) {
    char name[40];
    snprintf(name, sizeof name, "dropout.%lld", (long long)site);
    return snd_key_make(r->seed, name);
}

static void run(snd_oprun *r) {
    const snd_attr *a = &r->n->attr;
    const int64_t n = snd_shape_size(snd_in_shape(r, 0)), e = snd_in(r, 0)->e;
    const uint64_t first = a->i[2] ? (uint64_t)(r->first_example * (n / a->i[2])) : 0;
    const double amax = snd_k_dropout(r->threads, r->t, snd_drop_key(r, a->i[0]), a->f[0], first, a->i[1], n,
                                      snd_in(r, 0)->p, snd_out(r, 0)->p);
    snd_out_done(r, 0, e, amax);
}

static void grad(snd_graph *g, const snd_node *n, const snd_id *dout, const bool *need, snd_id *din) {
    if (need[0]) din[0] = snd_g_op(g, SND_OP_DROPOUT, &dout[0], 1, &n->attr, NULL);
}

static const snd_op_case cases[] = {
    {.label = "elements", .n_in = 1, .in = {{3, {2, 3, 7}}}, .attr = {.f = {0.3}, .i = {4, 1, 2}}},
    {.label = "examples", .n_in = 1, .in = {{3, {6, 2, 5}}}, .attr = {.f = {0.5}, .i = {4, 10, 6}}},
    {.label = "a vector", .n_in = 1, .in = {{1, {9}}}, .attr = {.f = {0.5}, .i = {1, 1, 0}}},
    {.label = "rate 0", .n_in = 1, .in = {{2, {3, 4}}}, .attr = {.f = {0}, .i = {0, 1, 3}}},
};

const snd_op_info snd_op_dropout = {.name = "dropout",
                                    .cheap = true,
                                    .shape = shape,
                                    .run = run,
                                    .grad = grad,
                                    .inplace = snd_inplace_first,
                                    .cost = snd_cost_some,
                                    SND_CASES(cases)};

snd_id snd_g_dropout(snd_graph *g, snd_id x, double rate, int64_t examples, bool path) {
    if (!x) return 0;
    const int64_t n = snd_size_of(g, x), each = examples ? n / examples : n;
    const snd_attr a = {.f = {rate}, .i = {snd_g_node_count(g), path ? each : 1, examples}};
    return snd_g_op(g, SND_OP_DROPOUT, &x, 1, &a, NULL);
}
