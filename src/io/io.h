// Front header of io/: tensor files. safetensors (read, write), idx (MNIST and its kin), npy and csv (read).
// Every reader has an entry on bytes in memory; a file is only a way to get them. Nothing is believed before it is
// checked, no length is allocated because a file says so, and every error names the file and, where there is one, the
// tensor or the line. Later: gguf.
#ifndef SND_IO_H
#define SND_IO_H

#include "tensor/tensor.h"

// ---- safetensors --------------------------------------------------------------------------------------------------------

typedef struct snd_stfile snd_stfile; // the tensors of one file, in order of names; data borrowed from the file

/// Maps the file (other files than plain ones are read whole) and checks all of it that is not tensor data: header
/// length, JSON, dtypes, shapes; ranges must lie in the file, match shape x dtype and cover the data without gap or
/// overlap. __metadata__ is checked for form and ignored. Caller closes. Data is aligned for its dtype.
/// errors  SONDE_EIO (cannot open), SONDE_EINPUT, SONDE_ESYNTAX (JSON), SONDE_EUNSUPPORTED (a dtype such as F8_E4M3)
sonde_status snd_st_open(const char *path, snd_stfile **out) SONDE_MUST_CHECK;
/// The same on n bytes that the caller keeps until snd_st_close; `name` stands in front of errors.
sonde_status snd_st_parse(const char *name, const uint8_t *bytes, size_t n, snd_stfile **out) SONDE_MUST_CHECK;
void snd_st_close(snd_stfile *f); // NULL is fine
int64_t snd_st_count(const snd_stfile *f);
const snd_tensor *snd_st_at(const snd_stfile *f, int64_t i);
const snd_tensor *snd_st_find(const snd_stfile *f, const char *name); // NULL: none
const char *snd_st_path(const snd_stfile *f);

/// Writes tensors by way of a temporary name and a rename. The order in the file depends on the tensors alone: widest
/// type first, then by name; so every tensor is aligned for its type and data begins at a multiple of 8.
/// meta: 2*n_meta strings, key and value in turn. Names must differ and not be "__metadata__".
sonde_status snd_st_write(const char *path, const snd_tensor *t, int64_t n, const char *const *meta,
                          int n_meta) SONDE_MUST_CHECK;

// ---- one tensor from a file of any kind -----------------------------------------------------------------------------------

typedef struct snd_array {
    snd_tensor t; // name: the file's, or the tensor's inside it
    char **columns;
    int n_columns; // csv with a header line: the names; else NULL
    char **words;
    int64_t n_words; // snd_table_load: what the numbers of the column of words stand for; else NULL
    void *own;     // what snd_array_free frees
} snd_array;
void snd_array_free(snd_array *a); // safe on zeros and twice

/// idx: 00 00 type dims, sizes and values big-endian, nothing after them. Images come as u8 [n, 28, 28], labels u8 [n].
sonde_status snd_idx_parse(const char *name, const uint8_t *bytes, size_t n, snd_array *out) SONDE_MUST_CHECK;
/// npy, versions 1 to 3: f2 f4 f8 i1 i2 i4 i8 u1 b1, and u2, u4 widened to i32, i64; both byte orders; Fortran order is
/// turned into C order. Structured and object types are refused.
sonde_status snd_npy_parse(const char *name, const uint8_t *bytes, size_t n, snd_array *out) SONDE_MUST_CHECK;
/// Numbers in lines, as f64 [lines, columns]; separated by commas, semicolons, tabs or (when there is none) blanks;
/// fields may be quoted; the first line may be a header; empty lines are skipped. Errors name line and column.
sonde_status snd_csv_parse(const char *name, const uint8_t *bytes, size_t n, snd_array *out) SONDE_MUST_CHECK;

/// The same with words in one column: the one that the header calls `column`, or whose number from 1 it is; NULL: the last.
/// Different words are numbered as they come, and stand in out->words. The first line is a header when another column has a
/// text there that is no number.
/// errors  SONDE_ENAME: no such column
sonde_status snd_csv_parse_words(const char *name, const uint8_t *bytes, size_t n, const char *column,
                                 snd_array *out) SONDE_MUST_CHECK;

/// snd_data_load of a table whose `column` may hold words: it does when `words` says so, or when one of a text is no number.
sonde_status snd_table_load(const char *path, const char *column, bool words, snd_array *out) SONDE_MUST_CHECK;
/// Recognises the kind by its contents (gzip is unpacked first) and reads it. A safetensors file must hold one tensor,
/// or the path ends in "#name".
sonde_status snd_data_load(const char *path, snd_array *out) SONDE_MUST_CHECK;
/// A text as its bytes, u8 [bytes] (gzip is unpacked first); npy and safetensors, known by their contents, as above.
sonde_status snd_tokens_load(const char *path, snd_array *out) SONDE_MUST_CHECK;
/// snd_data_load on bytes, without gzip.
sonde_status snd_data_parse(const char *name, const uint8_t *bytes, size_t n, const char *tensor,
                            snd_array *out) SONDE_MUST_CHECK;

/// A file's bytes: mapped when it is a plain file, else read whole (a pipe: at most 1 GiB).
typedef struct snd_map { const uint8_t *bytes; size_t n; void *mapped, *heap; } snd_map;
sonde_status snd_map_open(const char *path, snd_map *m) SONDE_MUST_CHECK;
void snd_map_close(snd_map *m);  // safe on zeros and twice
/// The same, unpacked into memory when it is gzip (at most a quarter of the machine's).
sonde_status snd_map_unpacked(const char *path, snd_map *m) SONDE_MUST_CHECK;

/// A whole file, unpacked when it is gzip; at most max bytes either way. Caller frees with snd_free.
sonde_status snd_read_unpacked(const char *path, size_t max, uint8_t **data, size_t *n) SONDE_MUST_CHECK;

/// Appends one TFRecord: u64 length, masked check of the length, data, masked check of the data; little-endian. The mask of a
/// check c is (c rotated right by 15 bits) + 0xA282EAD8.
void snd_tfrecord_put(snd_buf *b, const void *data, size_t n);
/// The record that begins at bytes: its data (borrowed), and as result how many of the n bytes it takes; 0: cut or damaged.
size_t snd_tfrecord_at(const void *bytes, size_t n, const uint8_t **data, size_t *len);

/// Folder with Fashion-MNIST's four .gz files: $SONDE_FASHION_MNIST, else where Debian's dataset-fashion-mnist puts
/// them. NULL when they are not there.
const char *snd_fashion_mnist_dir(void);

#endif
