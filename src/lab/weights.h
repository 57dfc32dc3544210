// A spec with its weights, ready for graphs of any shape: what run, eval, generate and translate share.
#ifndef SND_LAB_WEIGHTS_H
#define SND_LAB_WEIGHTS_H

#include "io/io.h"
#include "readers/readers.h"

/// Has the file every parameter of the graph, in its shape and as floating point, and nothing else?
/// errors  SONDE_EINPUT (missing, or no parameter of this model), SONDE_ESHAPE, SONDE_ETYPE; they name file and tensor
sonde_status snd_weights_check(const snd_stfile *f, const snd_graph *g) SONDE_MUST_CHECK;
/// Fills a resident source from a file that was checked. borrow: tensors of the graph's own type are used where they lie,
/// and the file stays open as long as the source; else all are copied, and may be changed by snd_source_data.
sonde_status snd_weights_fill(const snd_stfile *f, const snd_graph *g, bool borrow, snd_source *s) SONDE_MUST_CHECK;

// One source for all graphs of a spec. Weights of the type are mapped: opened in no time, read when they are first used.
typedef struct snd_weights {
    const snd_spec *spec;
    snd_dtype dtype;                   // SND_F32 or SND_F64
    snd_dtype products;                // SND_BF16: what operands of products are rounded to, as in such a training; else NONE
    int threads;                       // 0: all
    snd_source source;
    snd_stfile *file;                  // NULL: drawn
    const snd_graph *g;                // some graph of the spec: its parameters
} snd_weights;
/// weights: a safetensors file, or NULL: the spec's init drawn from seed. dtype SND_BF16: f32 with products of bf16 operands.
sonde_status snd_weights_open(snd_arena *a, const snd_spec *spec, const char *weights, snd_dtype dtype, uint64_t seed, int threads,
                          snd_weights *out) SONDE_MUST_CHECK;
void snd_weights_close(snd_weights *n);        // safe on zeros
/// Bytes of all parameters as the source holds them.
size_t snd_weights_bytes(const snd_weights *n);

#endif
