// What the files of spec/ share among themselves: the table of keys and the values as they were written.
#ifndef SND_SPEC_INNER_H
#define SND_SPEC_INNER_H

#include "spec/spec.h"

typedef enum snd_key_id {
#define SND_KEY(name, ...) SND_KEY_##name,
#include "spec/spec.def"
#undef SND_KEY
    SND_KEY_COUNT
} snd_key_id;

typedef enum snd_key_type {
    SND_T_NONE,
    SND_T_WORD,
    SND_T_INT,
    SND_T_NUM,
    SND_T_BOOL,
    SND_T_EACH,
    SND_T_TEXT
} snd_key_type;

enum { SND_FOR_MLP = 1, SND_FOR_TF = 2, SND_FOR_CONV = 4, SND_FOR_MC = 5, SND_FOR_ANY = 7 };

typedef struct snd_key_info {
    snd_key_type type;
    int families;  // SND_FOR_ bits
    double lo, hi; // numbers only
    size_t offset; // WORD, INT, NUM, BOOL: the member of snd_spec
} snd_key_info;
const snd_key_info *snd_key_info_at(int k);
int snd_key_find(const char *name);            // -1: none
const char *snd_key_nearest(const char *name); // NULL: none close
/// The words of an enumeration; index = the enumeration's value, so [0] is "". NULL for other keys.
const char *const *snd_key_words(int k, int *n);

// A value as it was written.
typedef struct snd_raw {
    const char *text;  // NULL: not given
    const char *where; // "file.yaml:12:3: "; "" on the command line
    bool cli;
} snd_raw;

/// Checks and fills in everything that follows from the raw values (one per key); arena, source, title, notes and
/// parts are the caller's. open: what data can tell may be missing.
sonde_status snd_spec_resolve(snd_spec *s, const snd_raw *raw, bool open) SONDE_MUST_CHECK;

#endif
