// What the files of the building reader share. build.c gives the operations their meaning, model.c makes whole models:
// inputs, stacks, heads, exits.
#ifndef SND_BUILD_IMPL_H
#define SND_BUILD_IMPL_H

#include "readers/readers.h"

typedef struct snd_builder {
    snd_nn nn;
    snd_model *m;
    snd_arena *arena;
    const snd_build *o;
    snd_stack stack;           // the one that is walked
    snd_seq seq;               // what its sublayers share
    snd_id src_lengths;        // 0: no padding
    snd_id cond;               // c as the formula reads it
    bool silent;               // names nothing: an encoder that `memory` replaces
    int64_t cap_taps, cap_calls, cap_exits, cap_inputs, cap_buffers, cap_fixed;
    snd_id x_before;           // the stream before the statement that runs
} snd_builder;

extern const snd_reader snd_build_ops;     // self has to be set

/// The graph's first error as a status, with `what` in front.
sonde_status snd_b_check(snd_builder *b, const char *what) SONDE_MUST_CHECK;
/// Arena-backed growth: makes room for one more.
sonde_status snd_b_room(snd_arena *a, void **p, int64_t *cap, int n, size_t size) SONDE_MUST_CHECK;
sonde_status snd_b_tap(snd_builder *b, const char *name, snd_id v) SONDE_MUST_CHECK;
/// A new input of the graph, kept in m->inputs.
sonde_status snd_b_input(snd_builder *b, const char *name, snd_shape s, snd_dtype t, snd_id *out) SONDE_MUST_CHECK;

#endif
