// How good a model is on data: mean loss per target over all of it, and what to hold it against.
#ifndef SND_LAB_EVAL_H
#define SND_LAB_EVAL_H

#include "data/data.h"
#include "lab/weights.h"

typedef struct snd_eval_opts {
    snd_split split;
    int64_t rows;                      // windows or examples at a time; 0: 8, of images and tables 64
    int64_t window;                    // tokens of a window; 0: the model's context (a caller may know how many it was trained on)
    int64_t stride;                    // lm: windows begin so many tokens apart; 0: half the window
    const snd_stop *stop;
    void (*progress)(void *ctx, int64_t done, int64_t total); void *ctx;
} snd_eval_opts;

// confusion[t * classes + c]: examples of class t that were taken for c; the first of equal logits counts. A mean is NaN
// when one of its terms is.
typedef struct snd_eval_result {
    double nats;                       // mean loss per target
    int64_t targets, bytes;            // scored; bytes of text that they stand for, 0: unknown
    int64_t unknown;                   // lm: targets that are characters the tokenizer does not know, all one token
    double unigram;                    // entropy of the targets' own frequencies, nats: what knowing no context can reach
    double uniform;                    // ln of the number of tokens or classes
    int64_t window, stride;            // in use; 0 where there are none
    int64_t right, looked;             // targets with the largest score, of so many; looked 0: scores were too many to be kept, or lm
    int64_t classes; int64_t *confusion;   // class alone, in the arena
} snd_eval_result;

/// lm: every token of the split but the first is scored once, the first window's all, then the last `stride` of each window:
/// so with at least window - stride tokens before it. mlm, seq2seq, class: the split's batches, as validation while training.
/// errors  those of the model's graph; SONDE_EINPUT: a split without data; SONDE_EUSAGE: stride beyond the window;
///         SONDE_EINTERRUPTED
sonde_status snd_eval(snd_arena *a, snd_weights *net, const snd_set *set, const snd_eval_opts *o,
                      snd_eval_result *out) SONDE_MUST_CHECK;

#endif
