// predict: a wiring read as mathematics. The walker drives the moment algebra of theory/; what comes out is, for every
// named value, what each metric of docs/metrics.md is in a wide network at initialisation. No weights are drawn.
//
//   snd_prediction *p;
//   SND_TRY(snd_predict(arena, spec, &(snd_predict_opts){.rows = 64, .cos = 0}, &p));
//   snd_predicted q;
//   if (snd_predicted_metric(p, "layers.3.x", SND_PM_Q, &q)) ... q.value, q.log10, q.sd
#ifndef SND_PREDICT_H
#define SND_PREDICT_H

#include "readers/readers.h"

typedef enum snd_pmetric {
    SND_PM_NONE,
    SND_PM_Q, SND_PM_RMS, SND_PM_MEAN, SND_PM_VAR, SND_PM_BVAR,   // forward, per value
    SND_PM_COS, SND_PM_PEARSON, SND_PM_ADJCOS, SND_PM_COS0,       // (adjcos, cos0: streams only)
    SND_PM_WRITE,                                                 // sublayer outputs (layers.3.F.out)
    SND_PM_GQ, SND_PM_GRMS,                                       // gradient of the value, N(0, 1) noise on out.x
    SND_PM_TOKCOS, SND_PM_GTOK, SND_PM_GDEV,                      // transformer
    SND_PM_ENTROPY,                                               // outputs of attention (layers.3.A.out)
    SND_PM_COUNT
} snd_pmetric;
const char *snd_pmetric_name(snd_pmetric m);                      // "q", ...
snd_pmetric snd_pmetric_find(const char *name);                   // SND_PM_NONE: none
/// Is the metric's band on the scale of its logarithm? (q, rms, var, bvar, write, and the gradient's)
bool snd_pmetric_log(snd_pmetric m);

typedef struct snd_predicted {
    double value;   // may overflow to INFINITY: then log10 tells
    double log10;   // of |value|; -INFINITY for 0
    double sd;      // of one network's metric over `rows` examples, of its log10 when snd_pmetric_log; NAN: not known
    double shift;   // what finite width adds to the mean of that scale (log q: -V/2), 0 when not known
    int nets;       // of how many networks sd and shift are the sample's; 0: known exactly
    double error;   // the theory's own standard error on that scale, which more networks do not average away
    bool approx;    // a function met a value that is not Gaussian: better take the centre from a simulation
} snd_predicted;

typedef struct snd_predict_opts {
    int64_t rows;              // examples, for batch norm and bvar; at least 2
    int64_t height, width;     // convnet: of the images; 0: SND_IMAGE_SIDE
    int64_t tokens;            // transformer: per example; 0: 64, or as many as the context has
    double q;                  // mean square of the input's features; 0: 1
    double cos;                // mean cosine between two input examples
    bool forward_only, no_bands;
    const int *exits;          // depths that get an out: of their own, ascending; NULL: only L
    int n_exits;
} snd_predict_opts;

typedef struct snd_prediction snd_prediction;

/// Errors carry the formula's place. Lives in the arena; call snd_prediction_free first.
sonde_status snd_predict(snd_arena *a, const snd_spec *spec, const snd_predict_opts *o, snd_prediction **out) SONDE_MUST_CHECK;

/// Gives back what is not the arena's.
void snd_prediction_free(snd_prediction *p);

/// What is left unknown and why, in whole sentences; NULL: nothing.
const char *snd_predicted_note(const snd_prediction *p);
int64_t snd_predicted_tokens(const snd_prediction *p);            // per example; 0: mlp
int snd_predicted_exits(const snd_prediction *p);                 // >= 1; of one depth each
int snd_predicted_depth(const snd_prediction *p, int exit);       // layers
int snd_predicted_count(const snd_prediction *p);                 // named values, in running order
const char *snd_predicted_name(const snd_prediction *p, int i);
int snd_predicted_layer(const snd_prediction *p, int i);          // from 0; -1: none
/// Values of out: ("out.x", "out.N1.out", "logits") belong to one exit; the others to all. -1: none.
int snd_predicted_find(const snd_prediction *p, int exit, const char *name);
/// Is value i one of all exits, or of this one?
bool snd_predicted_belongs(const snd_prediction *p, int exit, int i);
/// One number; gradients depend on the exit. False: does not apply there.
bool snd_predicted_at(const snd_prediction *p, int exit, int i, snd_pmetric m, snd_predicted *out);
/// By name, at the deepest exit.
bool snd_predicted_metric(const snd_prediction *p, const char *name, snd_pmetric m, snd_predicted *out);

#endif
