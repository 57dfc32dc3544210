// Front header of lab/: the pipeline. Spec -> graph -> plan -> state -> step* -> record, as run, measure, predict, demo.
#ifndef SND_LAB_H
#define SND_LAB_H

#include "lab/bench.h"
#include "lab/eval.h"
#include "lab/generate.h"
#include "lab/trained.h"
#include "data/data.h"
#include "io/io.h"
#include "metrics/metrics.h"
#include "readers/predict.h"
#include "readers/readers.h"
#include "rules/rules.h"

// ---- run: compute exactly this (formulas.md section 8) ------------------------------------------------------------------

typedef struct snd_run_opts {
    const char *weights;               // NULL: the spec's init is drawn from seed
    const char *input, *output;
    const char *const *taps; int n_taps;   // shell patterns
    bool backward, eval;
    snd_dtype dtype;                   // SND_F32, SND_F64; SND_BF16: computed in f32, stored in bf16
    snd_dtype round_weights;           // SND_BF16, SND_F16: to what these hold, before anything is computed; NONE: not
    uint64_t seed;
    int threads;                       // 0: all
    size_t max_memory;                 // bytes, 0: no limit
    const snd_stop *stop;
} snd_run_opts;

typedef struct snd_run_result {
    int64_t n_written, n_nonfinite;
    const char *first_nonfinite;
    bool file_at_fault;        // after an error: what weights or input hold does not fit
} snd_run_result;

/// Reads the files, computes, writes output. Nothing is written after an error. Non-finite results are written as they
/// are and counted. A pattern in taps that matches nothing is an error.
sonde_status snd_lab_run(snd_arena *a, const snd_spec *spec, const snd_run_opts *o, snd_run_result *out) SONDE_MUST_CHECK;

// ---- predict and measure ---------------------------------------------------------------------------------------------------

typedef enum snd_bands { SND_BANDS_INVALID, SND_BANDS_NONE, SND_BANDS_THEORY, SND_BANDS_SIMULATED } snd_bands;

typedef struct snd_measure_opts {
    int64_t rows;                      // examples; 0: 64, of a convnet 16, of a Transformer 4
    int64_t height, width;             // of a convnet's images; 0: SND_IMAGE_SIDE, or the data's
    int64_t tokens;                    // of each; 0: 64, or as many as learned positions allow
    double cos, scale;                 // cosine between drawn examples (mlp, convnet); factor on the drawn input (0: 1)
    const snd_dataset *data;           // mlp, convnet; NULL: Gaussian
    const snd_corpus *corpus;          // Transformers with a vocab; NULL: uniform tokens
    const snd_stfile *weights;         // a trained model's, checked (snd_weights_check); NULL: drawn. Seeds then draw batches alone
    bool eval;                         // batch norm by its running statistics
    bool loss;                         // upstream gradient of the objective's loss instead of N(0, 1) on out.x
    bool last_token;                   // the loss of each example's last token alone (Xiong et al. 2020)
    bool timings;                      // the record says how long drawing took, and the rest
    bool no_params;                    // leave parameters' gradients out (saves a third of the work)
    uint64_t seed; int seeds;          // 0: 3, of a net with more than 1e9 parameters 1
    snd_dtype dtype;                   // NONE: f32
    const int64_t *depths; int n_depths;   // a sweep; NULL: the spec's own depth, every layer
    const char *const *metrics; int n_metrics;   // asked for by name (switches costly ones on)
    int band_runs;                     // simulated nets behind a band; 0: enough for 10 % of its width
    snd_bands bands;                   // INVALID: simulated when measuring an mlp or a convnet, else theory
    int threads;
    size_t max_memory;
    double time_limit;                 // seconds, 0: none; fewer seeds then, and a note
    const snd_stop *stop;
    void (*progress)(void *ctx, const char *what, int64_t done, int64_t total); void *ctx;
} snd_measure_opts;

/// Theory alone: appends one run per depth to the record. No weights are drawn (unless bands are simulated: then too
/// there are none, since the maps are integrated out).
sonde_status snd_lab_predict(snd_record *r, const snd_spec *spec, const char *label, const snd_measure_opts *o) SONDE_MUST_CHECK;
/// Draws, runs forward and backward, and puts every metric beside its prediction and band. SONDE_EINTERRUPTED leaves
/// what had been measured in the record: depths that were finished, and the seeds so far of the one at work.
/// With weights from a file there is neither theory nor band: both speak of the start.
sonde_status snd_lab_measure(snd_record *r, const snd_spec *spec, const char *label, const snd_measure_opts *o) SONDE_MUST_CHECK;
// Examples in a batch when nothing is said, of rows, images and sequences; tokens of a sequence.
enum { SND_DEFAULT_ROWS = 64, SND_DEFAULT_IMAGES = 16, SND_DEFAULT_BATCH = 4, SND_DEFAULT_TOKENS = 64 };
/// Layers of the only stack, or of the decoder.
int64_t snd_lab_depth(const snd_spec *s);
/// A copy of the spec with another number of layers.
snd_spec snd_lab_at_depth(const snd_spec *s, int64_t layers);
/// The options with the batch that is meant when nothing is said.
snd_measure_opts snd_lab_batch(const snd_spec *spec, const snd_measure_opts *o);
/// Verdicts (src/rules/) for the runs from first_run on, which came from this spec and these options.
sonde_status snd_lab_judge(snd_record *r, const snd_spec *spec, int first_run, const snd_measure_opts *o) SONDE_MUST_CHECK;

// ---- train: what follows from the data, and what a record holds of a run ------------------------------------------------------

/// What a spec (snd_spec_load_open) leaves open and the data says, as overrides for loading it again ("vocab=65",
/// "position=learned"), in the arena: the vocabulary and with it family, positions and their number (`tokens`), or inputs and
/// outputs.
/// errors  SONDE_EUSAGE: the data does not say how many tokens there are
enum { SND_LAB_COMPLETE = 8 };
sonde_status snd_lab_complete(snd_arena *a, const snd_spec *s, const snd_set *set, snd_task task, int64_t tokens,
                              const char *more[SND_LAB_COMPLETE], int *n) SONDE_MUST_CHECK;
/// Gives the spec the parts train: and data: ("key=value"), which checkpoints write: all that resuming needs. The arena's.
sonde_status snd_lab_train_parts(snd_arena *a, snd_spec *spec, const snd_train_settings *s, const snd_trainer_opts *o,
                                 const char *const *data, int n_data) SONDE_MUST_CHECK;

/// The catalogue's key of the wiring; of a preset or file with a formula of its own the title; a formula's text where that is
/// short, else "your formula".
const char *snd_lab_label(const snd_spec *s);
/// A run under that label with the spec's settings; give it to snd_train_run, and what that found to close.
snd_run *snd_lab_train_open(snd_record *r, const snd_spec *spec, const snd_set *set, const snd_trainer_opts *o);
void snd_lab_train_close(snd_run *u, const snd_train_result *result);

// ---- the race: wirings trained side by side ---------------------------------------------------------------------------------

typedef struct snd_race_opts {
    bool quick;                        // few layers and steps: seconds
    uint64_t seed;
    snd_dtype dtype;
    int threads;
    double seconds;                    // for the whole race; 0: SND_RACE_SECONDS
    const snd_stop *stop;
    void (*start)(void *ctx, const char *wiring);                  // before each wiring; may be NULL
    void (*progress)(void *ctx, const snd_train_point *p); void *ctx;  // after every step; may be NULL
} snd_race_opts;
enum { SND_RACE_SECONDS = 240 };

/// Trains post, pre, deepnorm and b2t at one depth on the text that comes with sonde, from the same seed, with the same batches
/// and settings. DIR/austen.txt gets the text, the record a run per wiring, their curves in shared panels and a table. A wiring
/// whose share of the time is over stops where it is, which a note says.
/// errors  SONDE_EINTERRUPTED: o->stop; the record has the wirings so far, the one at work up to its last step
sonde_status snd_lab_race(snd_record *r, const char *dir, const snd_race_opts *o) SONDE_MUST_CHECK;

// ---- demo: the lecture's panels -------------------------------------------------------------------------------------------

typedef struct snd_demo_opts {
    bool quick;
    uint64_t seed;
    snd_dtype dtype;
    int threads;
    size_t max_memory;
    double time_limit;                 // seconds, 0: none; fewer seeds and panels then, and a note
    const snd_stop *stop;
    void (*progress)(void *ctx, const char *what, int64_t done, int64_t total); void *ctx;
} snd_demo_opts;

int snd_panel_count(void);
const char *snd_panel_name(int i);
const char *snd_panel_title(int i);
/// The named panels (none named: all) into the record. SONDE_EINTERRUPTED leaves those that were finished, and of the one
/// at work the curves and rows that were.
sonde_status snd_lab_demo(snd_record *r, const char *const *names, int n, const snd_demo_opts *o) SONDE_MUST_CHECK;

#endif
