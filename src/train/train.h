// Front header of train/: a spec, data and settings become weights. The model is the graph that measure and run use, built
// for training; parameters, moments and running averages have one slab each; plans are made once and reused, and a step
// takes no memory. Everything is a pure function of (spec, settings, data, seed), whatever the number of threads.
#ifndef SND_TRAIN_H
#define SND_TRAIN_H

#include "data/data.h"
#include "readers/readers.h"
#include "rules/rules.h"

// ---- settings -------------------------------------------------------------------------------------------------------------

/// Settings: one row each in settings.def, which makes the keys of a spec's `train:` part and the command's options. Numbers
/// left to their rule are -1 (whole) or NaN until snd_train_resolve.
typedef struct snd_train_settings {
    int64_t steps, batch, tokens, accumulate, warmup, eval_every, eval_batches, save_every, monitor_every, scale_every;
    const char *optimizer, *schedule, *decay, *recompute, *loss_scale;
    double lr, lr_end, decay_share, beta1, beta2, opt_eps, weight_decay, clip, label_smoothing, ema;
} snd_train_settings;

typedef snd_member snd_train_key;
int snd_train_key_count(void);
const snd_train_key *snd_train_key_at(int i);
snd_train_settings snd_train_defaults(void);
/// One setting from its text, which must outlive the settings. `where` stands in front of errors ("file.yaml: " or "").
/// errors  SONDE_ENAME: no such key (the nearest is named);  SONDE_ERANGE, SONDE_ETYPE: not a value of it
sonde_status snd_train_setting(snd_train_settings *s, const char *where, const char *key, const char *text) SONDE_MUST_CHECK;
/// What was left to its rule, by the spec and the other settings; checks what one setting asks of another.
/// errors  SONDE_ERANGE: a batch that accumulate does not divide, a loss scale that is none
sonde_status snd_train_resolve(snd_train_settings *s, const snd_spec *spec) SONDE_MUST_CHECK;
/// The resolved settings as text: put(ctx, key, text) for each.
void snd_train_each(const snd_train_settings *s, void (*put)(void *ctx, const char *key, const char *text), void *ctx);

typedef struct snd_optimizer_row {
    const char *name;
    snd_krule rule;
    int moments;
    double lr, beta1, beta2, weight_decay;
} snd_optimizer_row;
const snd_optimizer_row *snd_optimizer_find(const char *name);   // NULL: none

/// Learning rate of step 1 .. steps, always above 0 when lr is, and finite. With w = max(1, warmup), up to step w it grows as
/// lr step/w; behind, with p = (step - w)/(steps - w + 1), it is lr times
///   constant 1    linear 1 - (1 - lr_end) p    cosine lr_end + (1 - lr_end)(1 + cos pi p)/2    invsqrt sqrt(w/step)
///   wsd      1, and over the last decay_share of the steps linear down to lr_end
/// source  cosine: Loshchilov, Hutter 2017; invsqrt: Vaswani et al. 2017, section 5.3; wsd: Hu et al. 2024
double snd_train_lr(const snd_train_settings *s, int64_t step);

/// What the optimizer's decay does to a learned parameter: per step it goes by lr *rate of the way to *toward. rate 0: nothing.
void snd_train_decay(const snd_train_settings *s, const snd_spec *spec, const snd_param_row *p, double *rate, double *toward);

/// What a model of this spec learns from, by its family and objective; without a vocabulary yet by its arch.
snd_task snd_train_task(const snd_spec *s);

// ---- a trainer --------------------------------------------------------------------------------------------------------------

typedef struct snd_trainer snd_trainer;

typedef struct snd_trainer_opts {
    snd_dtype dtype;           // F32, F64; BF16: F32 with the operands of linear maps' products rounded to bf16, everywhere;
                               // F16: F32 with weights (a copy) and all results rounded to f16, everywhere
    uint64_t seed;             // of weights, data order and dropout
    int threads;               // 0: all
    const snd_stop *stop;
} snd_trainer_opts;

/// One layer as a step found it; NaN: does not apply. Streams and gradients are root mean squares per coordinate.
typedef struct snd_layer_state {
    const char *name;          // "layers.3", "decoder.layers.0"; "" for what stands outside layers
    double rms, grms;          // of the stream at its end, and of the loss's gradient by it
    double mean, var;          // of that stream: over all, and over the features within a row
    double write;              // smallest of its sublayers' outputs, against the stream
    double entropy;            // smallest mean entropy of its attentions, over the logarithm of the keys read
    double wrms, wgrms, update;    // of its weights' entries, of their gradients'; |update| / |weights|
    double batch_running;      // variance of the batch over the running one before it, of the batch norm where they differ most
} snd_layer_state;

typedef struct snd_step {
    int64_t step;              // done so far
    double loss;               // of this step's batch, before the update, label smoothing and dropout included
    double lr, grad_norm;      // norm before clipping
    int64_t targets;           // that were asked for
    double seconds;
    const snd_layer_state *layers; int n_layers;   // every monitor_every steps and at the first, else NULL
    double scale;              // F16: what the loss was multiplied by; else 0
    double lost;               // F16: share of the backward pass's results, of those that were not 0, that f16 made 0
    bool skipped;              // F16: loss or gradient was not finite; the step counts, its update was left out
} snd_step;

/// Draws the weights and plans every shape that batches can have. `settings` must be resolved; spec, set and batches are
/// borrowed.
/// errors  those of snd_model_build; SONDE_EUNSUPPORTED: a model without a loss; SONDE_ESHAPE: data that do not fit the model, with
///         all that it lacks and the keys that give it
sonde_status snd_trainer_create(const snd_spec *spec, const snd_train_settings *settings, const snd_set *set,
                                const snd_trainer_opts *o, snd_trainer **out) SONDE_MUST_CHECK;
void snd_trainer_destroy(snd_trainer *t);                  // NULL is fine
/// One optimizer step on the next batch. A loss or gradient that is not finite is reported as it is, and then nothing is
/// updated; with a dynamic loss scale above 1 the step counts as skipped and the next one has half the scale.
sonde_status snd_trainer_step(snd_trainer *t, snd_step *out) SONDE_MUST_CHECK;
/// Mean loss per target over the first `batches` (0: all) of a split, without dropout and smoothing, by the running average of
/// the weights where there is one. accuracy: share of the examples whose class has the largest score; NaN: no classes.
sonde_status snd_trainer_eval(snd_trainer *t, snd_split split, int64_t batches, double *loss,
                              double *accuracy) SONDE_MUST_CHECK;
/// Both on a batch of the caller's (snd_batches_give), which is read before the call returns and, after a step that was not
/// finite and not skipped, by snd_trainer_find_nonfinite; the data's own batches go on where they were but for those that steps have counted.
sonde_status snd_trainer_step_on(snd_trainer *t, const snd_batch *b, snd_step *out) SONDE_MUST_CHECK;
sonde_status snd_trainer_eval_on(snd_trainer *t, const snd_batch *b, double *loss, double *accuracy) SONDE_MUST_CHECK;
/// Scores of the batch's rows, [rows, outputs], of a model of classes, as validation sees them. Targets are not looked at.
sonde_status snd_trainer_scores(snd_trainer *t, const snd_batch *b, double *out) SONDE_MUST_CHECK;
/// The weights, and a graph of the spec that says what they are. Borrowed.
snd_source *snd_trainer_source(snd_trainer *t, const snd_graph **g);
/// Calls use(ctx, source, g) with the weights as validation sees them in the source, which serves every graph of the spec.
sonde_status snd_trainer_use(snd_trainer *t, sonde_status (*use)(void *ctx, snd_source *source, const snd_graph *g), void *ctx) SONDE_MUST_CHECK;
/// After a loss or a gradient that is not finite: where in the step's computation that began, as a sentence ("layers.3.M.out is
/// the first value that is not finite"), in the arena. Runs the step's batch once more with every value looked at.
sonde_status snd_trainer_find_nonfinite(snd_trainer *t, snd_arena *a, const char **where, const char **text) SONDE_MUST_CHECK;
int64_t snd_trainer_steps(const snd_trainer *t);           // done
double snd_trainer_epochs(const snd_trainer *t);

// ---- what a run takes ---------------------------------------------------------------------------------------------------------

/// Bytes of a trainer's slabs, and the operations of a step as snd_plan_flops counts them (the optimizer's apart).
typedef struct snd_train_cost {
    size_t values;             // of everything between inputs and gradients, for the largest batch
    size_t gradients;          // of the values: the weights' gradients, which stay until the update
    size_t weights;            // running statistics among them
    size_t moments, average, sums;     // average: 0 without ema; sums: of a batch's parts, 0 without accumulate
    size_t halves;             // F16: the rounded copy of the weights
    double flops, flops_again; // of the largest batch; of these, what recompute adds
} snd_train_cost;
size_t snd_train_cost_bytes(const snd_train_cost *c);      // all slabs

/// What a trainer of these settings (resolved) and the largest batch that they name would take; nothing is drawn or computed.
/// image: channels, height and width of a row (classes alone), zeros: the spec's channels and SND_IMAGE_SIDE.
/// errors  those of snd_trainer_create
sonde_status snd_train_foresee(snd_arena *a, const snd_spec *spec, const snd_train_settings *s, snd_dtype dtype,
                               const int64_t image[3], snd_train_cost *out) SONDE_MUST_CHECK;
/// What this one took.
snd_train_cost snd_trainer_cost(const snd_trainer *t);

// ---- checkpoints ------------------------------------------------------------------------------------------------------------

/// What a run knows of itself besides the weights, kept beside them.
typedef struct snd_train_state {
    double first_loss, valid, best_valid, accuracy;    // NaN: none
    int64_t best_step, targets;                // targets: asked for so far
} snd_train_state;
/// A validation's loss and accuracy after this step. A loss that is no number is never the best one.
void snd_train_validated(snd_train_state *st, int64_t step, double loss, double accuracy);

/// DIR/checkpoints/STEP with model.safetensors (parameters and running statistics under their contract names), ema.safetensors
/// (the same names) where there is a running average, optimizer.safetensors, spec.yaml (model, train, data), tokenizer.json where
/// there is one, and state.json with the length and the CRC-32C of all of these. Made under another name, written through to the
/// disk, then renamed: a checkpoint that has its name is whole. Afterwards the last two and the best remain.
/// errors  SONDE_EIO: what was there before is as it was
sonde_status snd_checkpoint_save(const snd_trainer *t, const snd_train_state *state, const char *dir) SONDE_MUST_CHECK;
/// Path of the newest checkpoint in DIR, in the arena.
/// errors  SONDE_EIO: there is none
sonde_status snd_checkpoint_newest(snd_arena *a, const char *dir, const char **path) SONDE_MUST_CHECK;
/// Are state.json and those of the n_read names in `read` (-1: all files) that the checkpoint in this folder has what was saved,
/// by length and sum? One that was saved without sums passes.
/// errors  SONDE_EINPUT, SONDE_EIO: names the file, what was found and what was saved
sonde_status snd_checkpoint_check(snd_arena *a, const char *folder, const char *const *read, int n_read) SONDE_MUST_CHECK;
/// Puts a trainer of the same spec, settings, seed and data where the checkpoint stood: all that follows is the same bits.
/// errors  SONDE_EINPUT: another model, seed, type, data or tokenizer, or files that are not what was saved
sonde_status snd_checkpoint_load(snd_trainer *t, snd_train_state *state, const char *path) SONDE_MUST_CHECK;

// ---- a run --------------------------------------------------------------------------------------------------------------------

/// What a person sees of a run while it goes on.
typedef struct snd_train_point {
    int64_t step, steps;
    double epochs, loss;               // loss: mean since the point before; progress: of this step
    double valid, accuracy;            // NaN: not looked at now; no classes. progress: accuracy as it was last
    double lr, grad_norm, tokens_per_s, seconds, seconds_left;
    const snd_layer_state *layers; int n_layers;       // of the last look, 0: none yet; the last one stands for what is in no layer
    double scale; int64_t skipped;     // F16: of the loss, now (else 0); steps without an update, in all
} snd_train_point;

typedef struct snd_train_opts {
    snd_trainer_opts t;
    const char *dir;                   // of the run's files; NULL: none
    bool resume;                       // from the newest checkpoint in dir
    snd_run *run;                      // of a record: gets verdicts, panels, the last look at every layer; NULL: nobody asks
    void (*point)(void *ctx, const snd_train_point *p);             // at every validation; may be NULL
    void (*progress)(void *ctx, const snd_train_point *p); void *ctx;      // after every step; may be NULL
} snd_train_opts;

typedef struct snd_train_result {
    int64_t step;
    snd_train_state state;
    double loss;                       // of the last step
    double seconds, tokens_per_s, step_sec;    // in all; median of a step without validation and checkpoints
    double scale; int64_t skipped;     // as of a point
} snd_train_result;

/// The files that a run writes in its folder as it goes on, besides checkpoints; NULL behind the last.
const char *snd_train_file(int i);
/// Trains to the last step. metrics.jsonl in dir gets a line per step; checkpoints as save_every says, at the end, and when
/// stopped.
/// errors  SONDE_EINTERRUPTED: stopped between two steps, and saved;  SONDE_EDIVERGED: the loss is not finite (that of a step, or
///         the last validation's), or far above its start (src/train/watch.def); the record says where. Both leave the record filled.
sonde_status snd_train_run(const snd_spec *spec, const snd_train_settings *s, const snd_set *set, const snd_train_opts *o,
                           snd_train_result *out) SONDE_MUST_CHECK;

#endif
