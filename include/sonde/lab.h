// The lab: theory, measurement and exact runs of a spec. Calls on distinct handles may run on different threads.
#ifndef SONDE_LAB_H
#define SONDE_LAB_H

#include <sonde/record.h>
#include <sonde/spec.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Zero in any field means its default. Fill with {0} and set what differs.
typedef struct sonde_lab_opts {
    int64_t batch;              ///< examples (64)
    double cos;                 ///< mean cosine between drawn input examples, 0 to 1 (0)
    int loss;                   ///< 1: upstream gradient of the cross-entropy (needs outputs); 0: N(0, 1) on out.x
    uint64_t seed;              ///< first seed (0)
    int seeds;                  ///< (3)
    int f64;                    ///< 1: compute in f64; 0: f32. Per-value exponents keep both from overflowing
    const int64_t *depths;      ///< a sweep over depths instead of the spec's layers
    int n_depths;
    int threads;                ///< (all); results do not depend on it
} sonde_lab_opts;

/// Theory only: mean squares, variances, cosines and gradients at every named value of an infinitely wide net at init,
/// with finite-width bands. Takes milliseconds. *out is the caller's.
/// errors  those of the formula (place included); SONDE_EUNSUPPORTED: a family that this build can't compute
SONDE_API sonde_status sonde_predict(const sonde_spec *s, const sonde_lab_opts *o, sonde_record **out) SONDE_MUST_CHECK;
/// Draws the init `seeds` times, runs forward and backward, and puts every metric beside theory and band; verdicts.
SONDE_API sonde_status sonde_measure(const sonde_spec *s, const sonde_lab_opts *o, sonde_record **out) SONDE_MUST_CHECK;

typedef struct sonde_run_opts {
    const char *weights;        ///< safetensors; NULL: drawn from `seed`
    const char *input;          ///< safetensors: input [examples, features] (mlp); tokens (I64 [B, T]) or x [B, T, d], with
                                ///< an encoder src_tokens, src_x or memory (transformer); optional dy, targets, cond, mem.*
    const char *output;         ///< safetensors to write
    const char *const *taps;    ///< shell patterns of further values to write, e.g. "layers.*.x", "grad.in.x"
    int n_taps;
    int backward, eval, f64;
    uint64_t seed;
    int threads;
} sonde_run_opts;

/// Computes exactly this (docs/formulas.md, section 8) and writes the output file. Nothing is written after an error.
/// errors  SONDE_EINPUT: tensors missing or too many; SONDE_ESHAPE; SONDE_ERANGE: a token outside the vocab,
///         a target outside the classes; SONDE_EIO
SONDE_API sonde_status sonde_run(const sonde_spec *s, const sonde_run_opts *o) SONDE_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
