// Training: a spec and data become weights, step by step under the program's own hand or in one call. The trainer is the one
// behind `sonde train`: the same graph, optimizers and checkpoints, and the same bits for any number of threads.
//
//   sonde_data_rows(x, labels, 1000, shape, NULL, 0, &data);           // or a file, a text, tokens, or batches of one's own
//   sonde_spec_for_data("pre", keys, n, data, 0, &spec);
//   sonde_trainer_create(spec, data, &opts, &trainer);
//   while (sonde_trainer_steps(trainer) < 500) sonde_trainer_step(trainer, &step);
//   sonde_trainer_eval(trainer, SONDE_SPLIT_VALID, 0, &loss, &accuracy);
//   sonde_trainer_save(trainer, "run");                                // run/checkpoints/500, which the command reads too
//
// Settings are texts "key=value": those of `sonde help train`, under the names they have in a spec's train: and data: parts
// ("weight_decay=0.1", "valid=0.2"). Arrays are dense and row-major.
#ifndef SONDE_TRAIN_H
#define SONDE_TRAIN_H

#include <sonde/record.h>
#include <sonde/spec.h>

#ifdef __cplusplus
extern "C" {
#endif

/// What a model learns: the next token, masked tokens, the second text of a pair, the class of a row.
typedef enum sonde_task { SONDE_TASK_NONE, SONDE_TASK_LM, SONDE_TASK_MLM, SONDE_TASK_SEQ2SEQ, SONDE_TASK_CLASS } sonde_task;
typedef enum sonde_split { SONDE_SPLIT_NONE, SONDE_SPLIT_TRAIN, SONDE_SPLIT_VALID, SONDE_SPLIT_TEST } sonde_split;

// ---- data -------------------------------------------------------------------------------------------------------------

typedef struct sonde_data sonde_data;

/// A file or folder, read as `sonde train --data` does (docs/files.md); no model is known here, so a bpe has 8192 tokens unless
/// "bpe_vocab=N" says how many the model has rows for. *out is the caller's, as of all that follow, and not
/// changed on failure.
/// errors  SONDE_EIO, SONDE_EINPUT: with file and line; SONDE_EUNSUPPORTED: data that do not serve the task; those of settings
SONDE_API sonde_status sonde_data_open(sonde_task task, const char *path, const char *const *settings, int n, sonde_data **out) SONDE_MUST_CHECK;
/// A text of n_bytes, for LM and MLM ("tokenizer=bytes", chars by default). Copied.
SONDE_API sonde_status sonde_data_text(sonde_task task, const char *text, size_t n_bytes, const char *const *settings, int n, sonde_data **out) SONDE_MUST_CHECK;
/// Token numbers 0 .. 65535, for LM. Copied.
/// errors  SONDE_ERANGE: another number
SONDE_API sonde_status sonde_data_tokens(const int64_t *tokens, int64_t n_tokens, const char *const *settings, int n, sonde_data **out) SONDE_MUST_CHECK;
/// Rows with a class each. Copied.
/// x           [rows, shape[0], shape[1], shape[2]]: channels, height, width; features, 1, 1. Every feature (channel) loses its
///             mean and gets the deviation 1, by the rows trained on
/// labels      [rows], whole numbers from 0; the largest one says how many classes there are
/// errors      SONDE_EINPUT: a number that is not finite, a label below 0
SONDE_API sonde_status sonde_data_rows(const float *x, const int64_t *labels, int64_t rows, const int64_t shape[3], const char *const *settings, int n, sonde_data **out) SONDE_MUST_CHECK;
/// No data: every batch is given (sonde_trainer_step_on). shape and classes are for CLASS, and x is taken as it is.
SONDE_API sonde_status sonde_data_batches(sonde_task task, const int64_t shape[3], int64_t classes, sonde_data **out) SONDE_MUST_CHECK;
SONDE_API void sonde_data_destroy(sonde_data *d);     ///< NULL is fine; after the trainers that use it
SONDE_API int64_t sonde_data_vocab(const sonde_data *d);      ///< tokens that a model needs; 0: unknown, or no text
SONDE_API int64_t sonde_data_classes(const sonde_data *d);    ///< 0: no classes
/// "text: 1.10 M tokens to train on, ...". Borrowed; NULL when memory ran out.
SONDE_API const char *sonde_data_describe(sonde_data *d);

/// sonde_spec_load, where what the spec leaves open follows from the data: vocabulary (of token numbers one more than the
/// largest) and positions (`tokens` of them, 0: 128), or inputs and classes.
/// errors  as sonde_spec_load; SONDE_EUSAGE: batches, which do not say how many tokens there are
SONDE_API sonde_status sonde_spec_for_data(const char *spec, const char *const *overrides, int n, const sonde_data *d, int64_t tokens, sonde_spec **out) SONDE_MUST_CHECK;

// ---- a trainer --------------------------------------------------------------------------------------------------------

typedef struct sonde_trainer sonde_trainer;

/// Zero in any field means its default. Fill with {0} and set what differs.
typedef struct sonde_train_opts {
    const char *const *settings;    ///< "steps=1000", "lr=3e-4", ...; before them stands the train: part of the spec's file
    int n_settings;
    uint64_t seed;                  ///< of weights, data order and dropout (0)
    int f64;                        ///< 1: weights and arithmetic in f64; 0: as dtype says
    int threads;                    ///< (all); results do not depend on it
    const char *dtype;              ///< "f32" (NULL), "f64", "bf16", "f16", as `sonde train --dtype` has them
} sonde_train_opts;

/// One layer as a step found it; NAN: does not apply. Streams and gradients are root mean squares per coordinate.
typedef struct sonde_layer_state {
    const char *name;               ///< "layers.3", "decoder.layers.0"; "" for what stands outside layers. Borrowed from the trainer
    double rms, grms;               ///< of the stream at its end, and of the loss's gradient by it
    double mean, var;               ///< of that stream: over all, and over the features within a row
    double write;                   ///< smallest of its sublayers' outputs, against the stream
    double entropy;                 ///< smallest mean entropy of its attentions, over the logarithm of the keys read
    double wrms, wgrms, update;     ///< of its weights' entries, of their gradients'; |update| / |weights|
    double batch_running;           ///< variance of the batch over the running one, of the batch norm where they differ most
} sonde_layer_state;

typedef struct sonde_step {
    int64_t step;                   ///< done so far
    double loss;                    ///< of this batch, before the update; label smoothing and dropout included; nats per target
    double lr, grad_norm;           ///< of this step; the norm before clipping
    int64_t targets;                ///< that were asked for
    double seconds;
    const sonde_layer_state *layers;    ///< at step 1 and every monitor_every steps, else NULL; until the next call
    int n_layers;
    double loss_scale, underflow;   ///< f16: what the loss was multiplied by; share of the gradients' numbers that became 0. Else 0
    int skipped;                    ///< f16: 1: an overflow; the step counts, and nothing else was updated
} sonde_step;

/// A batch of the caller's: arrays that are only read, and no longer than the call lasts.
///   LM, MLM   tokens, targets [rows, tokens]: targets of LM are those one ahead
///   SEQ2SEQ   src_tokens [rows, src_tokens], src_lengths [rows] of what is not padding (NULL: all); tokens begins with <bos>
///   CLASS     x [rows, channels, height, width]; targets [rows]; n_tokens is 1
/// A target of -100 is not asked for. A step takes as many rows as `batch` says (data of batches: sequences are `tokens` long,
/// those of the source too); elsewhere there may be fewer.
typedef struct sonde_batch {
    int64_t rows, n_tokens, n_src_tokens;
    const int64_t *tokens, *targets, *src_tokens, *src_lengths;
    const float *x;
} sonde_batch;

/// Draws the weights and plans every shape that batches can have; spec and data must outlive the trainer.
/// errors  those of the model's graph and of settings; SONDE_EUNSUPPORTED: a model without a loss; SONDE_ESHAPE: data that do
///         not fit the model; SONDE_ENAME: no such dtype; SONDE_EUSAGE: f64 and another dtype, a loss scale without f16
SONDE_API sonde_status sonde_trainer_create(const sonde_spec *s, const sonde_data *d, const sonde_train_opts *o, sonde_trainer **out) SONDE_MUST_CHECK;
SONDE_API void sonde_trainer_destroy(sonde_trainer *t);       ///< NULL is fine
/// One step of the optimizer on the data's next batch, or on the caller's. Steps may go on beyond the setting `steps`, at the
/// learning rate where its schedule ends.
/// numerics  a loss or gradient that is not finite is reported as it is, and then nothing is updated: step stands still. In f16
///           with a dynamic scale above 1 the step is skipped, and the scale halved
/// errors    SONDE_EUSAGE: there is no data; SONDE_ESHAPE, SONDE_ERANGE: a batch that does not fit, a token that does not exist
SONDE_API sonde_status sonde_trainer_step(sonde_trainer *t, sonde_step *out) SONDE_MUST_CHECK;
SONDE_API sonde_status sonde_trainer_step_on(sonde_trainer *t, const sonde_batch *b, sonde_step *out) SONDE_MUST_CHECK;
SONDE_API int64_t sonde_trainer_steps(const sonde_trainer *t);    ///< done
SONDE_API size_t sonde_trainer_bytes(const sonde_trainer *t);     ///< of values, weights, gradients and moments
/// Mean loss per target over the first `batches` (0: all) of a split, or over a batch: no dropout or smoothing, batch norm by its
/// running statistics, the running average of the weights (setting ema) where there is one.
/// accuracy    share of rows whose class has the largest score; NAN: no classes; may be NULL, as loss may
SONDE_API sonde_status sonde_trainer_eval(sonde_trainer *t, sonde_split split, int64_t batches, double *loss, double *accuracy) SONDE_MUST_CHECK;
SONDE_API sonde_status sonde_trainer_eval_on(sonde_trainer *t, const sonde_batch *b, double *loss, double *accuracy) SONDE_MUST_CHECK;
/// scores [rows, outputs] of up to `batch` rows x, of a model of classes; x is as the data was given (normalised likewise).
SONDE_API sonde_status sonde_trainer_scores(sonde_trainer *t, const float *x, int64_t rows, double *scores) SONDE_MUST_CHECK;

/// Weights and running statistics by name (docs/formulas.md, section 7), in the spec's order.
SONDE_API int sonde_trainer_parameters(const sonde_trainer *t);
/// *name is borrowed; shape has room for 6, *nd of which are used. errors  SONDE_ENAME: no parameter i
SONDE_API sonde_status sonde_trainer_parameter(const sonde_trainer *t, int i, const char **name, int64_t shape[6], int *nd) SONDE_MUST_CHECK;
/// Copies all elements out, or in (rounded to the trainer's type; moments stay). errors  SONDE_ENAME: no such parameter
SONDE_API sonde_status sonde_trainer_read(const sonde_trainer *t, const char *name, double *out) SONDE_MUST_CHECK;
SONDE_API sonde_status sonde_trainer_write(sonde_trainer *t, const char *name, const double *values) SONDE_MUST_CHECK;

/// Writes FOLDER/checkpoints/STEP: weights under their names, moments, state, the resolved spec. It appears whole or not at all;
/// the last two and the best one remain. `sonde eval FOLDER` and the other verbs read it.
/// errors  SONDE_EIO: what was there before is as it was
SONDE_API sonde_status sonde_trainer_save(sonde_trainer *t, const char *folder) SONDE_MUST_CHECK;
/// Puts a trainer of the same spec, settings, seed and data where that checkpoint stood (FOLDER: its newest one, or a checkpoint):
/// all that follows is the same bits.
/// errors  SONDE_EIO: there is none; SONDE_EINPUT: another model, seed, type or data
SONDE_API sonde_status sonde_trainer_load(sonde_trainer *t, const char *folder) SONDE_MUST_CHECK;

// ---- text from a decoder ----------------------------------------------------------------------------------------------

typedef struct sonde_sampling {
    int64_t tokens;                 ///< new ones at most
    double temperature;             ///< divides the logits; 0: always the most likely token
    int64_t top_k;                  ///< only the k most likely; 0: all
    double top_p;                   ///< only the fewest most likely that together reach p; 0: all
    uint64_t seed;
} sonde_sampling;

/// Goes on from a prompt of n >= 1 tokens. out [o->tokens]; *n_out: how many came before an end. When as many tokens as it was trained on, or its context, are full,
/// its last half is read again.
/// errors  SONDE_EUNSUPPORTED: no decoder; SONDE_ERANGE: a token that does not exist, logits that are not numbers
SONDE_API sonde_status sonde_trainer_generate(sonde_trainer *t, const int64_t *prompt, int64_t n, const sonde_sampling *o, int64_t *out, int64_t *n_out) SONDE_MUST_CHECK;
/// The same with text on both sides, by the data's tokenizer. *text (without the prompt) is the caller's, freed with sonde_free.
/// errors  SONDE_EUSAGE: data without a tokenizer, an empty prompt
SONDE_API sonde_status sonde_trainer_generate_text(sonde_trainer *t, const char *prompt, const sonde_sampling *o, char **text) SONDE_MUST_CHECK;

// ---- a whole run ------------------------------------------------------------------------------------------------------

typedef struct sonde_progress {
    int64_t step, steps;
    double loss;                    ///< of this step; at a validation the mean since the one before
    double valid, accuracy;         ///< NAN: not looked at now; no classes
    double lr, grad_norm, tokens_per_s, seconds, seconds_left;
} sonde_progress;

typedef struct sonde_run_folder {
    const char *folder;             ///< checkpoints, metrics.jsonl, TensorBoard's event file; NULL: nothing is written
    int resume;                     ///< 1: go on from its newest checkpoint
    /// After every step, and once more at a validation; what is not 0 ends the run in good order. May be NULL.
    int (*progress)(void *ctx, const sonde_progress *p);
    void *ctx;
} sonde_run_folder;

/// Trains to the last step, as `sonde train` does: validations, checkpoints, verdicts. *out: the run's curves and verdicts, also when
/// it diverged or was stopped (else NULL); the caller's.
/// errors  SONDE_EDIVERGED: the loss left the finite numbers or rose far above its start; SONDE_EINTERRUPTED: by progress, and saved
SONDE_API sonde_status sonde_train(const sonde_spec *s, const sonde_data *d, const sonde_train_opts *o, const sonde_run_folder *r, sonde_record **out) SONDE_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
