// Front header of data/: what models are fed. Data to train on, tokenizers and BLEU have headers of their own, which come
// with this one; here are rows for the input of a measurement, drawn or from a data set. Everything is a function of
// (seed, name) alone.
#ifndef SND_DATA_H
#define SND_DATA_H

#include "data/bleu.h"
#include "data/set.h"
#include "data/tokenizer.h"
#include "io/io.h"

/// x [rows, features] Gaussian with mean square 1 and mean cosine c between examples:
///   x_i = sqrt(c) mu + sqrt(1-c) xi_i,   mu ~ N(0, I) shared by all rows, xi_i ~ N(0, I)
/// keys: xi from (seed, name), mu from (seed, name ".mu"). c = 0 gives xi exactly. 0 <= c <= 1.
void snd_data_gauss(uint64_t seed, const char *name, int64_t rows, int64_t features, double c, double *x);
/// n class numbers, uniform on 0..classes-1, from (seed, name).
void snd_data_targets(uint64_t seed, const char *name, int64_t n, int64_t classes, int64_t *out);

typedef struct snd_dataset snd_dataset;

/// what: "fashion-mnist" (training images and labels, values x/255 normalised by the published mean 0.2860 and standard
/// deviation 0.3530) or a file as snd_data_load reads it: the first dimension counts rows, the others are features.
/// labels: a file with one whole number per row, or NULL. standardize (files): every feature gets mean 0 and variance 1
/// over all rows, constant ones 0. Caller closes.
sonde_status snd_dataset_open(const char *what, const char *labels, bool standardize,
                              snd_dataset **out) SONDE_MUST_CHECK;
/// The images or rows of one split of a set, normalised as in training, with their classes. The set outlives it.
sonde_status snd_dataset_of(const snd_set *set, snd_split split, snd_dataset **out) SONDE_MUST_CHECK;
void snd_dataset_close(snd_dataset *d); // NULL is fine
const char *snd_dataset_name(const snd_dataset *d);
int64_t snd_dataset_rows(const snd_dataset *d);
int64_t snd_dataset_features(const snd_dataset *d);
/// Height and width of a row that is an image of so many channels: [rows, H, W] of one, [rows, channels, H, W], or
/// [rows, features] of square ones.
/// errors  SONDE_ESHAPE: it is none
sonde_status snd_dataset_images(const snd_dataset *d, int64_t channels, int64_t *height,
                                int64_t *width) SONDE_MUST_CHECK;
int64_t snd_dataset_classes(const snd_dataset *d); // largest label + 1; 0 without labels

/// Input of a measurement: x [rows, features] from the data set, or Gaussian (named "input") when d is NULL. The seed
/// picks distinct rows. labels [rows] may be NULL; without labels in the data they are left alone.
/// errors  SONDE_ESHAPE: other features than the data's, more rows than it has; SONDE_ERANGE: c outside 0 to 1
sonde_status snd_data_inputs(const snd_dataset *d, uint64_t seed, int64_t rows, int64_t features, double c, double *x,
                             int64_t *labels) SONDE_MUST_CHECK;

// ---- tokens ---------------------------------------------------------------------------------------------------------------

typedef struct snd_corpus snd_corpus; // a long row of token numbers

/// A text, whose bytes are the numbers, or whole numbers from an npy or safetensors file, in the file's order. Caller
/// closes.
/// errors  SONDE_ETYPE: numbers that are not of an integer type
sonde_status snd_corpus_open(const char *path, snd_corpus **out) SONDE_MUST_CHECK;
/// The tokens of one split of a text or of token files. The set outlives it.
sonde_status snd_corpus_of(const snd_set *set, snd_split split, snd_corpus **out) SONDE_MUST_CHECK;
void snd_corpus_close(snd_corpus *c); // NULL is fine
const char *snd_corpus_name(const snd_corpus *c);
int64_t snd_corpus_size(const snd_corpus *c);

/// B sequences of n tokens each: pieces of the corpus at places that (seed, name) picks, or (c NULL) uniform on
/// 0..vocab-1.
/// errors  SONDE_ESHAPE: the corpus is shorter than n; SONDE_ERANGE: a token outside 0..vocab-1
sonde_status snd_data_sequences(const snd_corpus *c, uint64_t seed, const char *name, int64_t B, int64_t n,
                                int64_t vocab, int64_t *out) SONDE_MUST_CHECK;

#endif
