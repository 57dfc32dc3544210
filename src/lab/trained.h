// Where a trained model is: a run's folder, a checkpoint in it, or files by name.
#ifndef SND_LAB_TRAINED_H
#define SND_LAB_TRAINED_H

#include "train/train.h"

typedef struct snd_trained {
    const char *folder;                // the checkpoint's; NULL: word names no trained model
    const char *spec, *weights, *tokenizer;    // paths in it; tokenizer NULL: there is none
    const char *dtype;                 // of the training, "bf16"; NULL: its state does not say
} snd_trained;

/// Is this a file of weights, by its name?
bool snd_trained_is_file(const char *word);
/// word: a folder with checkpoints/ in it, a checkpoint (with model.safetensors), or a file .safetensors in one. which: "best", a step, or NULL: the
/// newest. The running average of the weights (ema.safetensors) comes before the weights, as in validation while training.
/// Paths are in the arena. A word that is no folder and no such file gives zeros.
/// The files are what was saved (snd_checkpoint_check).
/// errors  SONDE_EIO: no such checkpoint, or no best one, or weights without their spec; SONDE_EINPUT: a damaged file;
///         SONDE_EUSAGE: `which` is neither
sonde_status snd_trained_find(snd_arena *a, const char *word, const char *which, snd_trained *out) SONDE_MUST_CHECK;

/// Tokens of an example in the training that a run's spec tells of; 0: it tells of none.
int64_t snd_trained_tokens(const snd_spec *s);
/// Tokens that a trained model sees at a time when nobody says how many: as many as it was trained on, at most its context; else
/// its context, else dflt.
int64_t snd_trained_window(const snd_spec *s, int64_t dflt);

#endif
