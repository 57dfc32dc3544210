// What the files of data/ share among themselves.
#ifndef SND_DATA_INNER_H
#define SND_DATA_INNER_H

#include "data/data.h"

// ---- numbers by number ----------------------------------------------------------------------------------------------------

// Open addressing; keys from outside (text, files) are mixed, and a key is never all ones.
typedef struct snd_table {
    uint64_t *key;
    int32_t *value;
    int64_t n, cap; // cap: 0 or a power of two
} snd_table;

/// The value's place for a key, made (with value -1) where there is none; NULL: no memory. Valid until the next call.
int32_t *snd_table_put(snd_table *t, uint64_t key);
int32_t snd_table_get(const snd_table *t, uint64_t key); // -1: none
void snd_table_free(snd_table *t);

bool snd_ids_push(snd_ids *ids, int32_t id); // false: no memory (recorded)
bool snd_ids_room(snd_ids *ids, int64_t more);

// ---- tokenizers -----------------------------------------------------------------------------------------------------------

enum { SND_PIECE_MAX = 128, SND_VOCAB_MAX = 65536 }; // bytes of a piece, hence of a token; tokens are kept in 16 bits

typedef struct snd_merge { int32_t left, right; } snd_merge;

struct snd_tokenizer {
    snd_tokenizer_kind kind;
    int64_t plain;                       // tokens that are not special: 0 .. plain-1
    snd_merge *merges;                   // bpe: token 256+i is merges[i]; plain - 256 of them
    snd_table ranks;                     // bpe: (left << 32 | right) -> i
    int32_t *points;                     // chars: code points, ascending
    int32_t ascii[128];                  // chars: number of a code point below 128, -1: none
    uint32_t *start;                     // bytes of token i: bytes[start[i]] .. bytes[start[i+1]-1]
    uint8_t *bytes;
    unsigned specials;
    int64_t special[SND_SPECIAL_COUNT];  // -1: none
};

/// A tokenizer from its parts, checked; `merges` and `points` are taken over, also on failure. `name` stands in front of
/// errors.
sonde_status snd_tokenizer_build(const char *name, snd_tokenizer_kind kind, snd_merge *merges, int32_t *points, int64_t n,
                                 unsigned specials, snd_tokenizer **out) SONDE_MUST_CHECK;
extern const char *const snd_special_names[SND_SPECIAL_COUNT]; // "unk", ...

/// Length of the piece at the beginning of s [n], n > 0: at least 1, at most SND_PIECE_MAX.
size_t snd_bpe_piece(const uint8_t *s, size_t n);
/// Learns up to `most` merges. Caller frees.
sonde_status snd_bpe_learn(const uint8_t *text, size_t n, int64_t most, snd_merge **merges, int64_t *n_merges) SONDE_MUST_CHECK;

/// Encoding in several calls that append to the same `out`, of texts that all stay where they are: pieces that came before are
/// copied. Begin with zeros; snd_free(e.seen) at the end.
typedef struct snd_encoder { const snd_tokenizer *t; struct snd_seen *seen; } snd_encoder;
sonde_status snd_encode_more(snd_encoder *e, const char *name, const uint8_t *text, size_t n, snd_ids *out) SONDE_MUST_CHECK;
sonde_status snd_bpe_encode(snd_encoder *e, const uint8_t *text, size_t n, snd_ids *out) SONDE_MUST_CHECK;

// ---- sets -----------------------------------------------------------------------------------------------------------------

// Tokens of a split, 1 or 2 bytes each, in a mapped file or in memory of ours.
typedef struct snd_stream { const void *v; int width; int64_t n, bytes, first; } snd_stream;

typedef struct snd_pair {
    snd_text source, target;
    int64_t at;                          // first of n_source + n_target tokens, the source's first
    int32_t n_source, n_target;
    snd_split split;
} snd_pair;

struct snd_set {
    snd_data_kind kind;
    snd_task task;
    char *name;
    snd_data_settings settings;          // its texts are not kept
    const snd_memory *memory;            // while it is opened: in place of `path`; NULL: a file
    bool fed;                            // there is no data: batches are given
    snd_arena *places;                   // while it is opened: paths as they were found; NULL: as they were given
    snd_map map[SND_SPLIT_COUNT];        // path, valid_path, test_path
    snd_tokenizer *tok;
    double encode_sec;
    uint64_t fingerprint;
    // text, tokens
    snd_stream stream[SND_SPLIT_COUNT];
    uint16_t *own;                       // what streams of encoded text point into
    // pairs: of[s] lists a split's pairs in the file's order
    snd_pair *pairs;
    int64_t n_pairs, cap_pairs;
    snd_ids ids;
    int32_t *of[SND_SPLIT_COUNT];        // also rows of images and tables
    int64_t n_of[SND_SPLIT_COUNT];
    // images, tables: rows of path, then of valid_path, then of test_path
    snd_array x[SND_SPLIT_COUNT];        // u8 or f64, [rows, ...]
    int64_t *labels;
    int64_t rows[SND_SPLIT_COUNT];       // of each file
    int64_t shape[3], classes;
    char **class_names; int64_t n_names; // of a table whose classes are words; else NULL
    double *shift, *scale;               // per channel (images) or feature: (x - shift) * scale
};

sonde_status snd_set_read_text(snd_set *d) SONDE_MUST_CHECK;    // text and token files
sonde_status snd_set_read_pairs(snd_set *d) SONDE_MUST_CHECK;
sonde_status snd_set_read_rows(snd_set *d) SONDE_MUST_CHECK;    // images and tables
bool snd_set_is_images(const char *path);   // fashion-mnist, or a folder with train-images-idx3-ubyte in it, packed or not
/// Lines of tab-separated fields into d->pairs (texts alone). `columns` as in the settings.
sonde_status snd_pairs_parse(snd_set *d, const char *name, const uint8_t *bytes, size_t n, const char *columns,
                             snd_split split) SONDE_MUST_CHECK;
/// The tokenizer that the settings name, made of `text` where it has to be.
sonde_status snd_set_make_tokenizer(snd_set *d, const char *dflt, const uint8_t *all, size_t n_all, const uint8_t *train,
                                    size_t n_train, unsigned specials) SONDE_MUST_CHECK;
void snd_set_mix(snd_set *d, const void *p, size_t n);          // into the fingerprint: all of it, or of much a sample
const char *snd_set_path(const snd_set *d, snd_split s);        // of the split's own file; NULL: none
void snd_set_spans(const snd_set *d, snd_text out[SND_SPLIT_COUNT]);   // the bytes of each split of a text
/// Row r of a split, normalised.
void snd_set_row(const snd_set *d, snd_split s, int64_t r, float *out, int64_t *label);

#endif
