// What the graph's and the ops' suites share: a little net of inputs, one output, a cotangent and gradients, and
// deterministic random inputs.
#ifndef SND_TESTS_GRAPH_COMMON_H
#define SND_TESTS_GRAPH_COMMON_H

#include "check.h"

#include "ops/ops.h"

#include <stdlib.h>
#include <string.h>

enum { NET_IN = 8, NET_MAX = 8192 };

typedef struct net {
    snd_arena *arena;
    snd_graph *g;
    snd_id in[NET_IN], y[2], dy[2], grad[NET_IN];
    int n_in, n_y;
    snd_plan *plan;
    snd_source src;
    snd_exec *exec;
} net;

static inline net net_open(snd_dtype t) {
    net n = {.arena = snd_arena_create()};
    assert_non_null(n.arena);
    n.g = snd_graph_create(n.arena, t);
    assert_non_null(n.g);
    return n;
}

static inline snd_id net_input(net *n, snd_shape s, snd_dtype t) {
    char name[32];
    snprintf(name, sizeof name, "x%d", n->n_in);
    const snd_id v = snd_g_input(n->g, name, snd_shape_make(s.nd, s.dim), t);
    n->in[n->n_in++] = v;
    return v;
}

static inline void net_output(net *n, snd_id y) {
    char name[32];
    snprintf(name, sizeof name, "dy%d", n->n_y);
    CHECK_OK(snd_graph_status(n->g));
    n->y[n->n_y] = y;
    n->dy[n->n_y++] = snd_g_input(n->g, name, snd_g_value(n->g, y)->shape, SND_DT_NONE);
}

// Differentiates (when asked), plans, and makes an executor.
static inline void net_close_graph(net *n, bool grads, int threads, uint64_t seed) {
    snd_id keep[NET_IN + 2];
    int n_keep = 0;
    for (int i = 0; i < n->n_y; i++) keep[n_keep++] = n->y[i];
    if (grads) snd_g_grad(n->g, n->y, n->dy, n->n_y, n->in, n->n_in, n->grad);
    CHECK_OK(snd_graph_status(n->g));
    for (int i = 0; i < n->n_in; i++) {
        if (n->grad[i]) keep[n_keep++] = n->grad[i];
    }
    CHECK_OK(snd_plan_make(n->arena, n->g, keep, n_keep, &n->plan));
    assert_true(snd_plan_ok(n->plan));
    CHECK_OK(snd_source_resident(n->g, seed, threads, &n->src));
    const snd_exec_opts o = {.threads = threads, .seed = seed};
    CHECK_OK(snd_exec_create(n->g, n->plan, &n->src, &o, &n->exec));
}

static inline void net_destroy(net *n) {
    snd_exec_destroy(n->exec);
    snd_source_close(&n->src);
    snd_arena_destroy(n->arena);
}

static inline int64_t net_size(const net *n, snd_id v) {
    return snd_shape_size(snd_g_value(n->g, v)->shape);
}

static inline void net_get(const net *n, snd_id v, double *out) {
    assert_true(net_size(n, v) <= NET_MAX);
    CHECK_OK(snd_exec_get(n->exec, v, out));
}

static inline double draw_normal(const char *what, int k, int64_t i) {
    char name[64];
    snprintf(name, sizeof name, "%.40s.%d", what, k);
    return snd_normal_at(snd_key_make(7, name), (uint64_t)i);
}
static inline double draw_uniform(const char *what, int k, int64_t i) {
    char name[64];
    snprintf(name, sizeof name, "%.40s.%d", what, k);
    return snd_uniform_at(snd_key_make(7, name), (uint64_t)i);
}

#endif
