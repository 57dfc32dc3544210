// The ways to trade time for memory.
#include "lab/fit.h"

static const size_t NODE = 2048;                // of the graph, with its values, names, cells, plans and theory
static const size_t PROGRAM = (size_t)32 << 20; // the program itself and its libraries' own memory

snd_plan_opts snd_fit_way(int i) {
    static const snd_plan_opts ways[SND_FIT_WAYS] = {{SND_AGAIN_NONE, SND_PARAMS_SOURCE},
                                                     {SND_AGAIN_NONE, SND_PARAMS_SEGMENT},
                                                     {SND_AGAIN_SEGMENT, SND_PARAMS_SOURCE},
                                                     {SND_AGAIN_SEGMENT, SND_PARAMS_SEGMENT},
                                                     {SND_AGAIN_SEGMENT, SND_PARAMS_USE}};
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
