// Layers as segments of a plan, and the ways to trade time for memory.
#include "lab/fit.h"

#include <string.h>

static const size_t NODE = 2048;                // of the graph, with its values, names, cells, plans and theory
static const size_t PROGRAM = (size_t)32 << 20; // the program itself and its libraries' own memory

const char *snd_fit_stream(const char *tap) {
    const char *p = strstr(tap, "layers.");
    p = p ? strchr(p + 7, '.') : NULL;
    return p && !strchr(p + 1, '.') ? p + 1 : NULL;
}

// "layers.3.y" and "layers.3.x" are of one layer.
static bool same_layer(const char *a, const char *b) {
    const size_t n = (size_t)(strrchr(a, '.') - a);
    return n == (size_t)(strrchr(b, '.') - b) && !strncmp(a, b, n);
}

// Not at the end of the last layer: its backward pass follows at once.
void snd_fit_cut(const snd_model *m) {
    const snd_tap *end = NULL;
    for (int i = 0; i < m->n_taps; i++) {
        const snd_tap *t = &m->taps[i];
        if (!snd_fit_stream(t->name)) continue;
        const bool more = end && same_layer(end->name, t->name);
        if (end && !more) snd_g_boundary(m->g, end->v);
        if (!more || snd_g_value(m->g, t->v)->node > snd_g_value(m->g, end->v)->node) end = t;
    }
}

snd_plan_opts snd_fit_way(int i) {
    static const snd_plan_opts ways[SND_FIT_WAYS] = {{false, SND_PARAMS_SOURCE},
                                                     {false, SND_PARAMS_SEGMENT},
                                                     {true, SND_PARAMS_SOURCE},
                                                     {true, SND_PARAMS_SEGMENT},
                                                     {true, SND_PARAMS_USE}};
    return ways[i];
}

size_t snd_fit_overhead(const snd_graph *g) {
    return NODE * (size_t)snd_g_node_count(g) + PROGRAM;
}

const char *snd_fit_bytes(char out[40], size_t n) {
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double v = (double)n;
    int u = 0;
    for (; v >= 1024 && u < 4; u++) v /= 1024;
    char num[40];
    snprintf(out, 40, "%.20s %s", snd_format_num(num, v, 4), n == 1 ? "byte" : units[u]);
    return out;
}
