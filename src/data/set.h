// Part of data's front: data to train on. A set is opened once and never changes; files are mapped where they can be used
// as they lie. A batch is a pure function of (set, batching, split, index): nothing is remembered between batches, so a run
// is resumed anywhere by the index alone, and any number of threads may ask at once.
#ifndef SND_DATA_SET_H
#define SND_DATA_SET_H

#include "data/tokenizer.h"

/// What the batches are for: the model's objective.
typedef enum snd_task { SND_TASK_INVALID, SND_TASK_LM, SND_TASK_MLM, SND_TASK_SEQ2SEQ, SND_TASK_CLASS } snd_task;
typedef enum snd_split { SND_SPLIT_TRAIN, SND_SPLIT_VALID, SND_SPLIT_TEST, SND_SPLIT_COUNT } snd_split;
const char *snd_split_name(snd_split s);  // "train", "valid", "test"

typedef enum snd_data_kind {
    SND_DATA_AUTO,
    SND_DATA_TEXT,    // one file, or the .txt files of a folder in the order of their names
    SND_DATA_TOKENS,  // u16 little-endian, llm.c's header of 256 i32 in front or not
    SND_DATA_PAIRS,   // lines of tab-separated fields, source and target among them
    SND_DATA_IMAGES,  // folder with train-images-idx3-ubyte[.gz], train-labels-..., t10k-...; or "fashion-mnist"
    SND_DATA_TABLE,   // csv: numbers, one column is the class
    SND_DATA_KINDS
} snd_data_kind;
const char *snd_data_kind_name(snd_data_kind k);

/// Settings: one row each in settings.def, which makes the keys of a spec's `data:` part and the command's options.
typedef struct snd_data_settings {
    const char *path, *valid_path, *test_path;  // NULL: none
    const char *folder;         // where relative paths begin, the tokenizer's too; NULL: in the current folder
    snd_data_kind kind;
    double valid, test;         // shares of what `path` holds, where no file of their own is given
    const char *tokenizer;      // "bytes", "chars", "bpe", or a file that snd_tokenizer_save wrote; NULL: by the task
    int64_t bpe_vocab;
    const char *columns;        // pairs: "source,target", counted from 1; NULL: the last two
    const char *label;          // table: name or number of the class column; NULL: the last
    const char *classes;        // table: "cat,dog": its classes are words, numbered from 0 so; NULL: numbers, or words in order
    bool augment;               // images: random crops and flips of what is trained on
    double mask;                // mlm: share of the tokens asked for
} snd_data_settings;

typedef snd_member snd_data_key;
int snd_data_key_count(void);
const snd_data_key *snd_data_key_at(int i);
snd_data_settings snd_data_defaults(void);
/// One setting from its text, which must outlive the settings. `where` stands in front of errors ("file.yaml: " or "").
/// errors  SONDE_ENAME: no such key (the nearest is named);  SONDE_ERANGE, SONDE_ETYPE: not a value of it;  SONDE_EUSAGE: classes
///         with one name for two
sonde_status snd_data_setting(snd_data_settings *s, const char *where, const char *key, const char *text) SONDE_MUST_CHECK;

/// Is this setting a path that begins in `folder`? Not the words that stand for built-in data and tokenizers.
bool snd_data_is_relative(const char *key, const char *text);

/// Is one of the settings' paths relative, so that `folder` has an effect?
bool snd_data_any_relative(const snd_data_settings *s);

/// Rows with a class, as their kind says (table, images) or the name of a table (.csv, .csv.gz); false: by the objective.
bool snd_data_has_classes(const snd_data_settings *s);

typedef struct snd_set snd_set;

/// With a folder in the settings, a relative path is looked for there and then from the current folder on (a run and its data
/// that moved together).
/// errors  SONDE_EIO, SONDE_EINPUT (with file and line), SONDE_EUNSUPPORTED: a kind that does not serve the task
sonde_status snd_set_open(const snd_data_settings *s, snd_task task, snd_set **out) SONDE_MUST_CHECK;
/// Data that a program has in memory, one of the three: it is copied, cut into splits and read as a file's would be.
typedef struct snd_memory {
    const char *text; size_t n_text;           // lm, mlm
    const int64_t *tokens; int64_t n_tokens;   // lm; numbers 0 .. 65535
    const float *x; const int64_t *labels;     // class: [rows, row[0], row[1], row[2]], [rows]
    int64_t rows, row[3];
    bool as_is;                                // x is not normalised
} snd_memory;
/// errors  as snd_set_open; SONDE_ERANGE, SONDE_EINPUT: a token or label beyond its range, a number that is not finite
sonde_status snd_set_of(const snd_memory *m, const snd_data_settings *s, snd_task task, snd_set **out) SONDE_MUST_CHECK;
/// A set without data: its batches are given (snd_batches_give). class: rows [row[0], row[1], row[2]] of so many classes.
sonde_status snd_set_fed(snd_task task, const int64_t row[3], int64_t classes, snd_set **out) SONDE_MUST_CHECK;
void snd_set_close(snd_set *d);  // NULL is fine
snd_data_kind snd_set_kind(const snd_set *d);
snd_task snd_set_task(const snd_set *d);
const char *snd_task_name(snd_task t); // "lm", "class"
const char *snd_set_name(const snd_set *d);
/// A line for people: "text, 1.15 MB, chars: 78 tokens, 1.10 M to train on, 0.06 M for validation". Caller frees.
void snd_set_describe(const snd_set *d, snd_buf *out);
/// Number that all reads of the set depend on (contents and settings): a resumed run compares it.
uint64_t snd_set_fingerprint(const snd_set *d);

// ---- text and tokens ------------------------------------------------------------------------------------------------------

const snd_tokenizer *snd_set_tokenizer(const snd_set *d);    // NULL: token files, images, tables
int64_t snd_set_vocab(const snd_set *d);                     // tokens the model needs; 0: unknown (token files), or no text
int64_t snd_set_token_range(const snd_set *d);               // one more than the largest token, for which all are read; 0: none
double snd_set_encode_seconds(const snd_set *d);             // what opening spent on encoding
int64_t snd_set_token_count(const snd_set *d, snd_split s);  // text and tokens: length of the split; else 0
int64_t snd_set_byte_count(const snd_set *d, snd_split s);   // bytes of text it stands for; 0: unknown (token files)
int64_t snd_set_first_bytes(const snd_set *d, snd_split s);  // those of its first token, which nothing predicts
/// Characters of a split's text, or of its pairs, that the tokenizer does not know.
sonde_status snd_set_unknown(const snd_set *d, snd_split s, snd_unknown *u) SONDE_MUST_CHECK;
/// Tokens first .. first+n-1 of a split, which must have them.
void snd_set_tokens(const snd_set *d, snd_split s, int64_t first, int64_t n, int64_t *out);

// ---- pairs ------------------------------------------------------------------------------------------------------------------

typedef struct snd_text { const char *s; size_t n; } snd_text;  // borrowed, not NUL-terminated
int64_t snd_set_pair_count(const snd_set *d, snd_split s);
/// Pair i of a split, in the file's order, as text.
void snd_set_pair(const snd_set *d, snd_split s, int64_t i, snd_text *source, snd_text *target);

// ---- images and tables --------------------------------------------------------------------------------------------------------

int64_t snd_set_row_count(const snd_set *d, snd_split s);
bool snd_set_brings_test(const snd_set *d);  // a folder of images with t10k-* in it, which are the test whatever its share
int64_t snd_set_classes(const snd_set *d);
/// What a class is called; NULL: it has a number alone.
const char *snd_set_class_name(const snd_set *d, int64_t c);
/// [channels, height, width] of an image, [features, 1, 1] of a table's row.
void snd_set_row_shape(const snd_set *d, int64_t shape[3]);
/// Rows [n, channels, height, width] of the caller's become what the set's own are: less the mean, to the deviation 1.
void snd_set_normalise(const snd_set *d, int64_t n, float *x);

// ---- batches --------------------------------------------------------------------------------------------------------------------

/// rows: examples in a batch. tokens: length of a window (lm, mlm), or of the longest source and target (seq2seq, <eos>
/// counted); class: unused. vocab: the model's, every token must be below it; 0: the set's.
typedef struct snd_batching {
    int64_t rows, tokens, vocab;
    uint64_t seed;
} snd_batching;

typedef struct snd_batch_shape { int64_t rows, tokens, src_tokens; } snd_batch_shape;  // class: tokens 1

/// One batch, or a part of it; the memory of snd_batch_make serves every batch of its batching.
///   lm       tokens, targets [rows, T]: windows of T+1 tokens, targets one ahead
///   mlm      tokens, targets [rows, T]: `mask` of the places are asked for (at least one), of which 80 % hold <mask>, 10 % a
///            random token, 10 % their own (Devlin et al. 2018, section 3.1); targets elsewhere -100
///   seq2seq  src_tokens [rows, S] = source <eos>, padded; src_lengths [rows] counts what is not padding: encoder and
///            cross-attention must not read beyond. tokens [rows, T] = <bos> target; targets = target <eos>, then -100
///   class    x [rows, channels, height, width] normalised, targets [rows]
/// Rows that a last batch of valid or test lacks are there, with targets -100.
typedef struct snd_batch {
    snd_batch_shape shape;                                // of this part
    int64_t *tokens, *targets, *src_tokens, *src_lengths;
    int64_t *lengths;                                     // seq2seq [rows]: tokens up to the last target that is asked for
    float *x;
    int64_t asked;                                        // targets other than -100 in this part
    int64_t asked_all;                                    // in the whole batch: a loss is the sum over the parts / asked_all
    void *own;
} snd_batch;

typedef struct snd_batches snd_batches;

/// How a set is cut into batches.
///   train, lm and mlm: an epoch is one pass over windows that follow one another from an offset of the epoch's own, in the
///     epoch's own order; it leaves out fewer than 2T tokens at the two ends of the text. class: over the rows. Example
///     number k of the run is example k mod n of epoch k div n, so batches straddle epochs and the order does not depend on
///     `rows`.
///   train, seq2seq: pairs are sorted into buckets by the longer side (8, 16 .. 64, 96, 128, 192, 256 .. tokens), small ones
///     joined to the next; a batch comes from one bucket and has rows * floor(tokens / bucket) rows, so that all hold about
///     as many tokens. An epoch takes n/rows of them (rounded, at least one) from every bucket, in the epoch's own order;
///     each bucket's pairs come once each before any comes again.
///   valid, test: everything once, in order; seq2seq bucket by bucket. The last windows may be short of targets.
/// errors  SONDE_EINPUT: a split too short for one window, or no pair that fits; SONDE_ERANGE: rows or tokens below 1;
///         SONDE_ESHAPE: a vocab smaller than the set's
sonde_status snd_batches_open(const snd_set *d, const snd_batching *b, snd_batches **out) SONDE_MUST_CHECK;
void snd_batches_close(snd_batches *b);                          // NULL is fine
int64_t snd_batches_count(const snd_batches *b, snd_split s);    // valid, test: how many there are; train: per epoch, rounded up
double snd_batches_epochs(const snd_batches *b, int64_t index);  // epochs done before train batch `index`
int64_t snd_batches_dropped(const snd_batches *b, snd_split s);  // pairs longer than `tokens`
/// The shapes that batches can have, by length: one graph each. seq2seq has some, the others have one.
int snd_batches_shapes(const snd_batches *b, const snd_batch_shape **out);
snd_batch_shape snd_batches_shape(const snd_batches *b, snd_split s, int64_t index);

sonde_status snd_batch_make(const snd_batches *b, snd_batch *out) SONDE_MUST_CHECK;
void snd_batch_free(snd_batch *x);  // safe on zeros
/// Part `part` of `parts` of a batch: rows part*rows/parts .. (part+1)*rows/parts-1 of it, the same rows as in one piece.
/// `rows` of the batching must be a multiple of parts. index >= 0; valid and test: below the count.
/// errors  SONDE_ERANGE: a token beyond the vocabulary (token files)
sonde_status snd_batches_get(const snd_batches *b, snd_split s, int64_t index, int64_t part, int64_t parts,
                             snd_batch *out) SONDE_MUST_CHECK;

/// A batch of the caller's, of one of the shapes, that every snd_batches_get gives from now on, whatever the split and index;
/// NULL ends that. Fewer rows are possible where nothing is trained: those that lack have no targets. src_lengths NULL: nothing
/// is padded. It is read, and checked, in snd_batches_get.
/// errors  of that: SONDE_ESHAPE: no such shape;  SONDE_ERANGE: a token, a length or a target that cannot be
void snd_batches_give(snd_batches *b, const snd_batch *given);
/// Element i of permutation number `which` of 0 .. n-1 (0 <= i < n): a Feistel network of six rounds whose rounds are Philox,
/// on the smallest 4^k >= n, walked until it lands below n (Black, Rogaway 2002).
int64_t snd_permuted(snd_key key, uint64_t which, int64_t n, int64_t i);

#endif
