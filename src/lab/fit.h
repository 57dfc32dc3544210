// Making a run fit into memory: which plan is taken. Private to lab/.
#ifndef SND_LAB_FIT_H
#define SND_LAB_FIT_H

#include "readers/readers.h"

enum { SND_FIT_WAYS = 5 };
/// From the fastest (0) to the leanest; all but the first need a graph that is cut (snd_model_cut).
snd_plan_opts snd_fit_way(int i);
/// "1.5 GiB", "1 byte": a size as a person would write it.
const char *snd_fit_bytes(char out[40], size_t n);
/// What holds the graph and its plans, and the program itself, beside a plan's own bytes.
size_t snd_fit_overhead(const snd_graph *g);

#endif
