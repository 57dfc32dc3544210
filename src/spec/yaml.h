// A YAML (or JSON) document as a small tree with places, for spec files. Not a general YAML library: no anchors, no
// aliases, no tags, one document, plain scalars are just text (every spec key has a declared type of its own).
#ifndef SND_SPEC_YAML_H
#define SND_SPEC_YAML_H

#include "base/base.h"

typedef enum snd_ykind { SND_Y_NONE, SND_Y_SCALAR, SND_Y_SEQ, SND_Y_MAP } snd_ykind;

typedef struct snd_ynode {
    snd_ykind kind;
    const char *text; // SCALAR
    const char *key;  // when the parent is a MAP
    int line, col;    // of the value, from 1
    int key_line, key_col;
    struct snd_ynode *first, *next; // children in the order of the text
} snd_ynode;

enum { SND_YAML_DEPTH = 16, SND_YAML_NODES = 5000, SND_YAML_BYTES = 1 << 20 };

/// `name` stands in front of errors: "name:line:col: ...". An empty document gives *root = NULL.
sonde_status snd_yaml_parse(snd_arena *a, const char *name, const uint8_t *bytes, size_t n,
                            snd_ynode **root) SONDE_MUST_CHECK;

#endif
