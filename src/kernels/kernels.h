// Front header of kernels/: loops on raw pointers. They never allocate, never fail and never see a graph.
// Reference rows exist in f64 and f32; faster rows override them per instruction set through kernels.def.
// Reductions use fixed trees over fixed blocks: the same bits for any number of threads.
#ifndef SND_KERNELS_H
#define SND_KERNELS_H

#include "tensor/tensor.h"

// (Declared by the kernels' author; the graph's ops call these. See README comment in each family's file.)
#include "kernels/api.h"

#endif
