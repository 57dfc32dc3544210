// Inside of the predict reader, shared by predict.c and predict_tokens.c only.
#ifndef SND_PREDICT_IMPL_H
#define SND_PREDICT_IMPL_H

#include "readers/predict.h"
#include "readers/readers.h"
#include "theory/algebra.h"

typedef struct snd_ptap {
    const char *name;
    snd_mid v;
    snd_val shape;
    int layer, exit; // exit -1: not of out:
    snd_mid before;  // the same stream one layer up (adjcos), or 0
    snd_mid x;       // sublayer outputs: the stream before the statement, or 0
    snd_mid first;   // in.x of its stack, or 0 where it has another shape
    snd_mid attended; // outputs of attention: the averages of its values, or 0
    bool stream;
} snd_ptap;

typedef struct snd_pexit {
    int layers;
    snd_mid out;
    double *log10_gq, *log10_gtok; // per tap; NAN: not reached
    snd_log_law *gq_law;           // of one net's gq; var NAN: not known
} snd_pexit;

typedef struct snd_plaw { // of one net's metric on its scale; sd NAN: not known
    double sd, shift, error;
    int nets;
} snd_plaw;

struct snd_prediction {
    snd_arena *arena;
    snd_moments *examples; // mlp, or
    snd_tokens *tokens;    // transformer
    snd_algebra m;         // of either
    double rows;
    snd_ptap *taps;
    int n_taps;
    snd_pexit *exits;
    int n_exits;
    snd_plaw *laws;        // transformer: [exits, taps, SND_PM_COUNT], or NULL
    const char *note;      // what is left unknown and why; NULL: nothing
};

// What sublayers of one stack share.
typedef struct snd_pstack {
    bool causal;
    int number, memory_number; // of the token algebra's stacks
    snd_mid memory;            // the encoder's output; 0: none
    snd_mid first_v[2];        // values of the first A and the first C
    int64_t tokens;
} snd_pstack;

typedef struct snd_predictor {
    snd_prediction *p;
    const snd_algebra *m;
    snd_nn nn; // for init rules; there is no graph
    snd_stack stack;
    snd_val in; // as it enters the stack
    snd_pstack seq;
    int64_t cap_taps;
    int layer; // layer whose boundary was marked last
    int exit;  // of the next out:, -1 outside
    int next_exit;
    snd_mid x_before, call_x;
    snd_val in_x;
    snd_mid attended; // by the last sublayer, or 0
    const snd_prediction *profile; // Admin: of the same net with its vectors at 1; else NULL
    double branches; // variances of the branches so far in it: vectors start at the root of 1 + that sum
    snd_mid cond;
    snd_mid *means;
    int cap_means; // depthattn: mean of the first i+1 values of its list
    struct snd_psight *sights; // seen before
    const double *turn;        // rope's table of the layer before
    double turn_theta;
    int64_t turn_last;
} snd_predictor;

/// y = W x, plus its bias where it has one that does not start at 0.
sonde_status snd_p_map(snd_predictor *r, const char *role, const char *alt, snd_mid x, int64_t in, int64_t features,
                       double gain, bool zero, bool bias, snd_mid *out) SONDE_MUST_CHECK;
/// A norm of the language at `site` on a value of `features` features.
sonde_status snd_p_norm(snd_predictor *r, const char *site, const snd_norm_args *n, snd_mid x, int64_t features,
                        snd_mid *out) SONDE_MUST_CHECK;
snd_mid snd_p_fn(snd_predictor *r, snd_fn fn, snd_mid x);

/// What a metric is expected to be in the limit, on its scale. False: does not apply.
bool snd_p_centre(const snd_prediction *p, int exit, int tap, snd_pmetric m, double *out);

// predict_nets.c
/// Fills p->laws from networks of finite width. `make` follows one through the same formula and takes its gradients.
sonde_status snd_p_nets(snd_prediction *p, sonde_status (*make)(void *self, snd_prediction *net), void *self) SONDE_MUST_CHECK;
static inline snd_plaw *snd_p_law(const snd_prediction *p, int exit, int tap, snd_pmetric m) {
    return &p->laws[((int64_t)exit * p->n_taps + tap) * SND_PM_COUNT + m];
}

// predict_tokens.c
sonde_status snd_p_sublayer(void *self, const snd_site *site, const snd_sub_args *s, snd_val a, snd_val *out) SONDE_MUST_CHECK;
/// Makes r->stack's positions and the stream that enters it; memory: the encoder's output, 0: none.
sonde_status snd_p_embed(snd_predictor *r, const snd_predict_opts *o, snd_mid memory, snd_mid *x) SONDE_MUST_CHECK;
sonde_status snd_p_head(snd_predictor *r, snd_mid out, snd_mid *logits) SONDE_MUST_CHECK; // *logits 0: none
/// Adds a sentence to the note, once.
void snd_p_note(snd_predictor *r, const char *fmt, ...) SND_PRINTF(2, 3);

#endif
