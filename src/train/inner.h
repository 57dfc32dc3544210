// What the files of train/ share. net.c makes graphs and runs them, update.c moves the weights, trainer.c is the step.
#ifndef SND_TRAIN_INNER_H
#define SND_TRAIN_INNER_H

#include "train/train.h"

#include <math.h>

// Statistics nodes of one layer.
enum { SND_LOOK_CALLS = 8 };
typedef struct snd_look {
    size_t prefix;             // bytes of the name that all of the layer's names begin with
    const char *name;          // of the stream at its end
    snd_id x, q, gq;           // that stream; statistics of it and of its gradient
    snd_id call[SND_LOOK_CALLS], attn[SND_LOOK_CALLS]; int n_calls, n_attn;
} snd_look;

typedef enum snd_net_kind { SND_NET_TRAIN, SND_NET_EVAL, SND_NET_WATCH } snd_net_kind;

// The model for batches of one shape: a graph, its plan, an executor in the trainer's slab.
typedef struct snd_net {
    snd_batch_shape shape;
    snd_model *m;
    snd_plan *plan;
    snd_exec *x;
    snd_id loss, dloss;        // what is minimised; input: its upstream gradient
    int back;                  // the first node of the backward pass
    snd_id *grad;              // by parameter, 0: none
    snd_id *state;             // by parameter: its value after the run (running statistics), 0: none
    snd_id scores;             // EVAL, of classes: the logits; else 0
    snd_look *looks; int n_looks;      // of a net that watches
} snd_net;

// One learned tensor: what a step moves. Pointers into the slabs.
typedef struct snd_weight {
    int param;
    int64_t n;
    const char *name;
    void *w, *m, *v, *ema, *sum;   // weights, moments, running average, gradient summed over parts; NULL where there is none
    double decay, toward;
    int layer;                     // index of its snd_layer_state
    double gsq, wsq, usq;          // sums of squares: gradient; on steps that watch, weights and their update
    double gmax;                   // largest of the gradient, where gsq is not finite: squares leave f64 before it does
} snd_weight;

struct snd_trainer {
    snd_arena *arena;
    const snd_spec *spec;
    snd_train_settings s;
    const snd_optimizer_row *opt;
    const snd_set *set;
    snd_task task;                         // what the set's examples are; classes: channels, height, width of a row
    int64_t row[3];
    snd_batches *batches;
    snd_batch batch;
    snd_trainer_opts o;                    // dtype: of values and weights, so never BF16
    snd_net *nets, *evals, *watches; int n_nets;   // by shape; without what training adds; with statistics (NULL: never; nets: at each step)
    snd_layer_state *layers; int n_layers;
    double *batch_running;                 // by parameter: of running variances, as of the last run of a training net; else NaN
    void *slab; size_t slab_bytes;         // of values; the nets take turns
    snd_source source;                     // holds the parameters
    snd_weight *weights; int n_weights;
    char *moments, *average, *sums;        // slabs behind the weights' pointers
    size_t moment_bytes, average_bytes, sum_bytes, param_bytes, gradient_bytes;
    int64_t step;                          // done
    snd_dtype products;                    // BF16: what their operands are rounded to; else NONE
    snd_dtype stored;                      // F16: what results are rounded to; else NONE
    snd_source rounded;                    // F16: weights as the nets read them
    float **halves; char *half_slab; size_t half_bytes;    // by parameter, NULL: as it is
    double scale;                          // of the loss; 1 but with F16
    bool dynamic;                          // the scale finds its size itself
    int64_t good, skipped;                 // steps since it changed; steps without an update, in all
    int64_t failed_step; double failed_scale;      // of the last step that was not finite
};

/// From the type that was asked for to that of values and weights, of products and of what is stored.
void snd_trainer_type(snd_trainer *t);
/// Nets for batches of n shapes, and how large a slab they need.
sonde_status snd_nets_make(snd_trainer *t, const snd_batch_shape *shapes, int n) SONDE_MUST_CHECK;
/// How a plan with a backward pass trades time for memory.
snd_plan_opts snd_net_way(const snd_trainer *t);
/// The model of a net alone, cut into layers where the plan wants that.
sonde_status snd_net_model(snd_trainer *t, snd_batch_shape shape, snd_net_kind kind, snd_model **out) SONDE_MUST_CHECK;
/// Graph and plan; the executor comes when the slab is there. EVAL: without gradients and dropout; WATCH: with statistics, whose
/// run gives the same loss and gradients bit for bit.
sonde_status snd_net_make(snd_trainer *t, snd_batch_shape shape, snd_net_kind kind, snd_net *out) SONDE_MUST_CHECK;
/// What a net minimises, before it is differentiated.
snd_id snd_net_loss_value(const snd_trainer *t, const snd_model *m);
sonde_status snd_net_start(snd_trainer *t, snd_net *n) SONDE_MUST_CHECK;
/// Sets the inputs from t->batch, of which `first` is the number of the first example, and runs. Gradients are those of dloss
/// times the loss and t->scale.
sonde_status snd_net_run(snd_trainer *t, snd_net *n, uint64_t seed, int64_t first, double dloss) SONDE_MUST_CHECK;
double snd_net_loss(const snd_net *n);
/// Rows of the last run whose target has the largest score; rows without a target (-100) never have.
int64_t snd_net_hits(const snd_trainer *t, const snd_net *n);
/// Seed of the draws of the step to come.
uint64_t snd_trainer_step_seed(const snd_trainer *t);
/// Copies running statistics back to where the next run reads them.
sonde_status snd_net_keep_states(snd_trainer *t, snd_net *n) SONDE_MUST_CHECK;

/// Sizes of the slabs that the nets' parameters ask for.
void snd_weights_measure(snd_trainer *t);
sonde_status snd_weights_make(snd_trainer *t) SONDE_MUST_CHECK;
// half.c, of a trainer in f16
/// The loss scale at the start.
void snd_scale_start(snd_trainer *t);
/// After a step: was it finite? True: it is to be left out, and counts.
bool snd_scale_step(snd_trainer *t, bool finite);
sonde_status snd_halves_make(snd_trainer *t) SONDE_MUST_CHECK;
/// Brings the copy of the weights up to date.
void snd_halves_round(snd_trainer *t);
/// Where nets find their weights.
snd_source *snd_trainer_weights(snd_trainer *t);

/// Adds the gradients of the net's last run to the sums (first: replaces them).
void snd_weights_collect(snd_trainer *t, const snd_net *n, bool first);
/// Norm of the gradient: of the sums, or of the net's own when the batch was in one part.
double snd_weights_norm(snd_trainer *t, const snd_net *n);
/// watch: notes wsq and usq.
void snd_weights_update(snd_trainer *t, const snd_net *n, double lr, double scale, bool watch);

// monitor.c
/// Before differentiating: the layers of a net that watches, with what is looked at forward.
sonde_status snd_looks_make(snd_trainer *t, snd_net *n) SONDE_MUST_CHECK;
/// The trainer's layers, and which of them each weight belongs to.
sonde_status snd_layers_make(snd_trainer *t) SONDE_MUST_CHECK;
/// Reads the statistics of the net's last run.
void snd_layers_read(snd_trainer *t, const snd_net *n);
/// Adds what the weights noted when they were moved; a step that did not has nothing to say of them.
void snd_layers_weigh(snd_trainer *t, bool moved);

// nonfinite.c
/// The first weight, as the nets read it, that is not finite; NULL: none.
const char *snd_trainer_bad_weight(const snd_trainer *t);

static inline bool snd_step_is_finite(const snd_step *s) {
    return isfinite(s->loss) && isfinite(s->grad_norm);
}

typedef struct snd_watcher snd_watcher;
sonde_status snd_watcher_make(snd_trainer *t, double first_loss, snd_watcher **out) SONDE_MUST_CHECK;
/// errors  SONDE_EDIVERGED: the run is to end; its finding says why
sonde_status snd_watcher_step(snd_watcher *w, snd_trainer *t, const snd_step *s) SONDE_MUST_CHECK;
/// A step of an earlier part of the run, by its metrics: it belongs to what is usual and may have a finding of its own, but
/// ends nothing.
void snd_watcher_recall(snd_watcher *w, const snd_step *s);
void snd_watcher_valid(snd_watcher *w, int64_t step, double loss);
/// After the last step: the loss that the run ends with, a validation's where it has one.
/// errors  SONDE_EDIVERGED: it is not finite
sonde_status snd_watcher_end(snd_watcher *w, const snd_trainer *t, double loss, bool validated) SONDE_MUST_CHECK;
/// Findings as verdicts on the run of this label; one "ok" where there are none.
void snd_watcher_tell(const snd_watcher *w, snd_record *r, const char *label);

typedef struct snd_history snd_history;
sonde_status snd_history_make(snd_trainer *t, snd_history **out) SONDE_MUST_CHECK;
/// The run's layers with their names, for numbers that come from a file.
snd_layer_state *snd_history_layers(const snd_history *h, int *n);
void snd_history_step(snd_history *h, const snd_step *s);
void snd_history_valid(snd_history *h, int64_t step, double loss);
/// Seconds of a step, validations and checkpoints apart: the median over the windows. NaN: none.
double snd_history_step_sec(const snd_history *h);
/// Panels and the last look at every layer.
sonde_status snd_history_tell(const snd_history *h, snd_run *u) SONDE_MUST_CHECK;

// intact.c
/// Into a checkpoint's state, which is all that its folder still lacks: length and sum of its files, then the state's own sum.
/// Nothing may follow.
sonde_status snd_intact_put(snd_arena *a, const char *folder, snd_json *j) SONDE_MUST_CHECK;
struct json_t;
/// A checkpoint's state.json: its text, snd_free'd by the caller, and the object that it is, json_decref'd.
sonde_status snd_state_load(const char *path, char **text, size_t *n, struct json_t **out) SONDE_MUST_CHECK;

typedef struct snd_log snd_log;        // metrics.jsonl and the event file; NULL: nobody wants them
/// What was written of steps up to this one stays (0: none), and goes into the history and the watcher.
sonde_status snd_log_open(const char *dir, int64_t step, snd_history *h, snd_watcher *w, snd_log **out) SONDE_MUST_CHECK;
void snd_log_close(snd_log *l);
sonde_status snd_log_step(snd_log *l, const snd_step *s) SONDE_MUST_CHECK;
sonde_status snd_log_valid(snd_log *l, int64_t step, double valid, double accuracy) SONDE_MUST_CHECK;

// events.c: records of TensorBoard's event files, appended to b. t_sec: since 1970.
void snd_events_start(snd_buf *b, double t_sec);
void snd_events_step(snd_buf *b, double t_sec, const snd_step *s);
void snd_events_valid(snd_buf *b, double t_sec, int64_t step, double valid, double accuracy);
/// How many of n bytes, from the first on, are whole records of steps up to this one.
size_t snd_events_until(const char *bytes, size_t n, int64_t step);

#endif
