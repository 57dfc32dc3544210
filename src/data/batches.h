// What a batching is made of, for batches.c and batch_fill.c.
#ifndef SND_DATA_BATCHES_H
#define SND_DATA_BATCHES_H

#include "data/inner.h"

enum { SND_BUCKETS_MAX = 40 }; // sequences of up to 2^21 tokens

typedef struct snd_bucket {
    snd_batch_shape shape;
    int64_t first[SND_SPLIT_COUNT], n[SND_SPLIT_COUNT]; // its pairs: pairs[s][first[s] ..]
    int64_t batches[SND_SPLIT_COUNT];                   // of an epoch
} snd_bucket;

struct snd_batches {
    const snd_set *d;
    snd_batching o;
    snd_key order, within, offset, mask[SND_SPLIT_COUNT], fate, crop;
    int64_t n[SND_SPLIT_COUNT]; // examples of an epoch; seq2seq: batches
    int64_t dropped[SND_SPLIT_COUNT];
    snd_bucket bucket[SND_BUCKETS_MAX]; // by length; one where there are no pairs
    snd_batch_shape shapes[SND_BUCKETS_MAX];
    int n_buckets;
    int32_t *pairs[SND_SPLIT_COUNT]; // bucket by bucket
    const snd_batch *given;          // NULL: the set's own
};

/// Window or row that example k of a run (valid, test: of the split) is.
int64_t snd_batches_example(const snd_batches *b, snd_split s, int64_t k);
/// First token of example k; returns how many targets it has, 1 .. T.
int64_t snd_batches_window(const snd_batches *b, snd_split s, int64_t k, int64_t *first);
/// The bucket of a batch, and the number of its first example in the bucket's row of pairs.
const snd_bucket *snd_batches_bucket(const snd_batches *b, snd_split s, int64_t index, int64_t *first);
/// Example k of that row; NULL beyond the end of valid and test.
const snd_pair *snd_batches_pair(const snd_batches *b, snd_split s, const snd_bucket *u, int64_t k);

#endif
