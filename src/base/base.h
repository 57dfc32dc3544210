// Front header of base/: memory, status, strings, numbers as text, random numbers, time, threads. Knows no tensors.
#ifndef SND_BASE_H
#define SND_BASE_H

#include <sonde/status.h>
#include <sonde/version.h>
#include "base/embed.h"
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#if defined(__GNUC__)
#define SND_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define SND_PRINTF(f, a)
#endif

// ---- errors ---------------------------------------------------------------------------------------------------------

/// Records message, file and line for this thread and returns `code`.
sonde_status snd_fail(sonde_status code, const char *file, int line, const char *fmt, ...) SND_PRINTF(4, 5);
/// Puts text in front of the current message ("weights.safetensors: " ...). Returns `code`.
sonde_status snd_fail_prefix(sonde_status code, const char *fmt, ...) SND_PRINTF(2, 3);

#define SND_FAIL(code, ...) return snd_fail(code, __FILE__, __LINE__, __VA_ARGS__)
#define SND_FAIL_IF(cond, code, ...)                                                                                   \
    do {                                                                                                               \
        if (cond) return snd_fail(code, __FILE__, __LINE__, __VA_ARGS__);                                              \
    } while (0)
#define SND_TRY(call)                                                                                                  \
    do {                                                                                                               \
        sonde_status snd_try_ = (call);                                                                                \
        if (snd_try_ != SONDE_OK) return snd_try_;                                                                     \
    } while (0)

// ---- memory: alloc.c is the only door to the heap ---------------------------------------------------------------------

void *snd_malloc(size_t bytes);                ///< NULL with the error recorded (SONDE_ENOMEM)
void *snd_calloc(size_t n, size_t size);       ///< as above; n*size checked for overflow
void *snd_realloc(void *p, size_t bytes);      ///< on failure NULL and p is intact
void *snd_aligned_alloc(size_t align, size_t bytes);  ///< free with snd_free
void *snd_slab_alloc(size_t bytes);            ///< 64-byte aligned; large ones in huge pages; free with snd_free
void snd_free(void *p);
/// For programs, before anything else (it sets the C library's heap for the whole process): graphs and theories of tens of
/// megabytes come and go, and their pages stay here instead of being cleared each time anew.
void snd_heap_keep_pages(void);
/// Test hook: the n-th allocation from now (1 = the next) and all later ones fail; 0 switches it off.
void snd_alloc_fail_at(int64_t n);
/// Number of allocations so far (test hook).
int64_t snd_alloc_count(void);
/// Bytes held now and the largest value so far.
size_t snd_alloc_bytes(void);
size_t snd_alloc_peak(void);

/// Bump allocator for everything that lives as long as one setup: zeroed, 16-byte aligned, freed at once.
typedef struct snd_arena snd_arena;
snd_arena *snd_arena_create(void);             ///< NULL on failure (error recorded)
void snd_arena_destroy(snd_arena *a);          ///< NULL is fine
void *snd_arena_alloc(snd_arena *a, size_t bytes);  ///< zeroed; NULL with the error recorded
void *snd_arena_array(snd_arena *a, size_t n, size_t size);
char *snd_arena_str(snd_arena *a, const char *s);                    ///< copy
char *snd_arena_strn(snd_arena *a, const char *s, size_t n);
char *snd_arena_printf(snd_arena *a, const char *fmt, ...) SND_PRINTF(2, 3);

#define SND_NEW(arena, ptr, n)                                                                                         \
    do {                                                                                                               \
        (ptr) = snd_arena_array((arena), (size_t)(n), sizeof *(ptr));                                                  \
        if (!(ptr)) return SONDE_ENOMEM;                                                                               \
    } while (0)

/// Growable array helper: makes room for `need` elements; false on failure. `p` is realloc'ed heap memory.
bool snd_grow(void **p, int64_t *cap, int64_t need, size_t size);

// ---- strings and numbers as text --------------------------------------------------------------------------------------

/// Growable text. After a failed allocation it stays valid, remembers the failure and ignores further text.
typedef struct snd_buf {
    char *s;  ///< NUL-terminated once anything was put in; NULL before
    size_t len, cap;
    bool failed;
} snd_buf;
void snd_buf_put(snd_buf *b, const char *s);
void snd_buf_putn(snd_buf *b, const char *s, size_t n);
void snd_buf_printf(snd_buf *b, const char *fmt, ...) SND_PRINTF(2, 3);  ///< never use %f/%g here: see snd_buf_num
void snd_buf_num(snd_buf *b, double v, int digits);                      ///< snd_format_num
void snd_buf_free(snd_buf *b);

/// Writes v with up to `digits` significant digits (17 = round trip), always with a point, never the locale's
/// comma; "nan", "inf", "-inf" for non-finite. Returns out.
char *snd_format_num(char out[40], double v, int digits);
/// Nine significant digits, trailing zeros dropped; several times as fast as snd_format_num(.., 9), from which it may
/// differ in the last digit. For the many numbers of a record.
char *snd_format_short(char out[40], double v);
double snd_round_short(double v);              ///< the number that this text reads back as
/// mantissa/exponent pair: prints m*10^e10 e.g. "1.2e+116" even when it is beyond double range.
char *snd_format_log10(char out[40], double log10_abs, int digits);
/// Parses a number at s under the C locale; *end after it (end may be NULL: then all of s must be used).
/// Accepts what strtod accepts without hex; false if there is none.
bool snd_parse_num(const char *s, double *v, const char **end);
bool snd_parse_int(const char *s, int64_t *v, const char **end);

/// Nearest of the n candidates by edit distance (case-insensitive, transpositions count 1), or NULL when none is
/// close enough to be meant (distance > max(1, len/3)).
const char *snd_nearest(const char *word, const char *const *candidates, int n);
/// Length of the UTF-8 sequence at s [n] and its code point; 0: there is none (overlong, surrogate, cut off, beyond U+10FFFF).
int snd_utf8_at(const char *s, size_t n, uint32_t *c);
/// Text from outside for a message: control characters become '?', at most 60 bytes and "...", no half characters.
const char *snd_shown(char out[72], const char *s);

// ---- settings that are members of a struct ----------------------------------------------------------------------------

/// How a text becomes a member: TEXT const char * (NULL for ""), WORD const char * that is one of `range`'s, between bars,
/// INT int64_t, NUM double, BOOL bool.
typedef enum snd_member_type {
    SND_MEMBER_TEXT, SND_MEMBER_WORD, SND_MEMBER_INT, SND_MEMBER_NUM, SND_MEMBER_BOOL
} snd_member_type;
typedef struct snd_member {
    const char *name, *option, *dflt, *range, *help;  ///< option: of the command line; dflt: as text
    snd_member_type type;
    double lo, hi;             ///< bounds of a number, both included
    size_t offset;             ///< of the member
} snd_member;
/// Texts and words are kept, not copied. A number whose default is "" is -1 (INT) or NaN (NUM) for the text "". `where`
/// stands in front of errors.
/// errors  SONDE_ENAME: not one of the words;  SONDE_ETYPE, SONDE_ERANGE
sonde_status snd_member_set(const snd_member *r, void *settings, const char *where, const char *text) SONDE_MUST_CHECK;
/// The row of that name, of at most 64.
/// errors  SONDE_ENAME: "unknown `what` key", with the nearest
sonde_status snd_member_find(const snd_member *rows, int n, const char *what, const char *where, const char *key,
                              int *found) SONDE_MUST_CHECK;
/// Shell pattern with * and ?, both crossing dots.
bool snd_match(const char *pattern, const char *name);

uint64_t snd_hash(const void *p, size_t n);    ///< FNV-1a, 64 bits: stable over versions (seeds depend on it)
uint64_t snd_hash_str(const char *s);

// ---- random numbers: a pure function of (seed, name, element) -----------------------------------------------------------

/// Philox 4x32-10; key = seed mixed with the hash of the tensor's name, counter = block of four elements.
typedef struct snd_key { uint32_t k[2]; } snd_key;
snd_key snd_key_make(uint64_t seed, const char *name);
void snd_philox(snd_key key, uint64_t block, uint32_t out[4]);
/// Element i of the standard-normal / uniform [0,1) stream of this key. (Fast fills live in kernels/.)
double snd_normal_at(snd_key key, uint64_t i);
double snd_uniform_at(snd_key key, uint64_t i);

// ---- time, threads, cpu ---------------------------------------------------------------------------------------------------

double snd_now(void);                          ///< seconds, monotonic
size_t snd_memory_bytes(void);                 ///< of this machine; 0: unknown
int snd_cpu_count(void);                       ///< usable by this process (affinity mask), >= 1
/// Calls fn(ctx, task) for task = 0..n-1 on up to `threads` threads; which thread runs which task is unspecified, so
/// fn's result must depend on the task alone. Runs inline when threads <= 1, n <= 1, or already inside such a call.
void snd_parallel(int threads, int64_t n, void (*fn)(void *ctx, int64_t task), void *ctx);

typedef enum snd_isa { SND_ISA_NONE, SND_ISA_BASE, SND_ISA_AVX2, SND_ISA_AVX512 } snd_isa;
snd_isa snd_isa_best(void);                    ///< what this CPU runs; SONDE_ISA=base|avx2|avx512 in the environment lowers it
bool snd_cpu_avx512_bf16(void);                ///< has AVX-512 for bf16
bool snd_cpu_is_amd(void);                     ///< of AMD's, whose fetching ahead differs from Intel's
bool snd_cpu_amx_bf16(void);                   ///< has tiles for bf16 as well, and the system lets this process use them

/// CRC-32C (Castagnoli): the remainder by the polynomial 0x1EDC6F41, bits reversed, start and end inverted. RFC 3720, B.4.
uint32_t snd_crc32c(const void *data, size_t n);

/// Writes a whole file by way of a temporary name in the same folder, then renames it. A symbolic link is followed,
/// the permissions of a file that is replaced are kept.
sonde_status snd_write_file(const char *path, const void *data, size_t n) SONDE_MUST_CHECK;
/// The same from several pieces, one after the other, so that large data need not be joined in memory first.
typedef struct snd_part { const void *data; size_t n; } snd_part;
sonde_status snd_write_parts(const char *path, const snd_part *parts, int64_t n) SONDE_MUST_CHECK;
/// Files that appear together or not at all: each is written under a temporary name, and when all are, renamed. A disk that
/// fills up between them changes nothing. What is no plain file (/dev/null, a pipe) is written at once.
///   snd_files f = {0};
///   s = snd_files_add(&f, path, parts, n); ...
///   if (s == SONDE_OK) s = snd_files_place(&f);          // in the order in which they were added
///   snd_files_close(&f);                                 // removes what was not placed
typedef struct snd_files { struct snd_new_file *file; int64_t n, cap; } snd_files;
sonde_status snd_files_add(snd_files *f, const char *path, const snd_part *parts, int64_t n) SONDE_MUST_CHECK;
sonde_status snd_files_place(snd_files *f) SONDE_MUST_CHECK;
void snd_files_close(snd_files *f);
/// Reads a whole file (at most max bytes) into heap memory with a NUL after it; caller frees with snd_free. Devices
/// other than terminals are refused; a signal whose handler does not restart calls ends the wait for a pipe (SONDE_EIO).
sonde_status snd_read_file(const char *path, size_t max, char **data, size_t *n) SONDE_MUST_CHECK;
sonde_status snd_refuse_device(const char *path) SONDE_MUST_CHECK;  ///< SONDE_EIO for a device that is no terminal
sonde_status snd_make_dirs(const char *path) SONDE_MUST_CHECK;
/// Waits until a file, or the entries of a folder, are on the disk.
sonde_status snd_sync(const char *path) SONDE_MUST_CHECK;
/// Another name, at once; what `to` named is replaced if it is a file.
sonde_status snd_rename(const char *from, const char *to) SONDE_MUST_CHECK;
/// A folder with the plain files in it; nothing that is not there is an error. Folders inside are refused.
sonde_status snd_remove_folder(const char *path) SONDE_MUST_CHECK;
/// Calls each(ctx, name) for what is in a folder, in the order of the names.
sonde_status snd_list_folder(const char *path, void (*each)(void *ctx, const char *name), void *ctx) SONDE_MUST_CHECK;
/// Whether files could be written into this folder (`make`: if it is made first), for asking before long work. Changes
/// nothing.
sonde_status snd_check_folder(const char *path, bool make) SONDE_MUST_CHECK;
bool snd_is_folder(const char *path);
/// A folder's path without slashes at its end, so that names behind it read well and two of it compare; the arena's.
const char *snd_folder_name(snd_arena *a, const char *path);
bool snd_same_file(const char *a, const char *b);  ///< both exist and are one file

/// Set by SIGINT's handler in the cli; long loops look at it between steps.
typedef struct snd_stop { _Atomic int flag; } snd_stop;

#endif
