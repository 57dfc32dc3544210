// The table of model keys (spec.def) as data, and the words of the enumerations. Reads and checks nothing.
#include "spec/inner.h"

#include <assert.h>
#include <string.h>

#define LEN(a) ((int)(sizeof(a) / sizeof(a)[0]))

static const char *const FAMILY[] = {"", "mlp", "transformer", "convnet"};
static const char *const ARCH[] = {"", "decoder", "encoder", "encoder-decoder"};
static const char *const NORM[] = {"", "layer", "rms", "batch", "scale", "dyt", "derf", "none"};
static const char *const QK_NORM[] = {"", "none", "rms-head", "rms-full", "l2"};
static const char *const POSITION[] = {"", "learned", "sinusoidal", "rope", "alibi", "t5", "xl", "none"};
static const char *const ROPE_STYLE[] = {"", "half", "interleaved"};
static const char *const OBJECTIVE[] = {"", "lm", "mlm", "seq2seq", "class"};

static const snd_key_row ROWS[SND_KEY_COUNT] = {
#define SND_KEY(name, type, families, dflt, lo, hi, range, help) {#name, #type, dflt, range, help},
#include "spec/spec.def"
#undef SND_KEY
};

// For these types the member of snd_spec is called as the key; TEXT and EACH have members of their own.
#define OFFSET_WORD(name) offsetof(snd_spec, name)
#define OFFSET_INT(name)  offsetof(snd_spec, name)
#define OFFSET_NUM(name)  offsetof(snd_spec, name)
#define OFFSET_BOOL(name) offsetof(snd_spec, name)
#define OFFSET_EACH(name) 0
#define OFFSET_TEXT(name) 0

static const snd_key_info INFO[SND_KEY_COUNT] = {
#define SND_KEY(name, type, families, dflt, lo, hi, range, help)                                                       \
    {SND_T_##type, SND_FOR_##families, lo, hi, OFFSET_##type(name)},
#include "spec/spec.def"
#undef SND_KEY
};

int snd_key_count(void) {
    return SND_KEY_COUNT;
}
const snd_key_row *snd_key_at(int i) {
    return i >= 0 && i < SND_KEY_COUNT ? &ROWS[i] : NULL;
}

const snd_key_info *snd_key_info_at(int k) {
    assert(k >= 0 && k < SND_KEY_COUNT);
    return &INFO[k];
}

int snd_key_find(const char *name) {
    for (int k = 0; k < SND_KEY_COUNT; k++)
        if (strcmp(ROWS[k].name, name) == 0) return k;
    return -1;
}

const char *snd_key_nearest(const char *name) {
    const char *names[SND_KEY_COUNT];
    for (int k = 0; k < SND_KEY_COUNT; k++) names[k] = ROWS[k].name;
    return snd_nearest(name, names, SND_KEY_COUNT);
}

const char *const *snd_key_words(int k, int *n) {
    switch (k) {
    case SND_KEY_family: *n = LEN(FAMILY); return FAMILY;
    case SND_KEY_arch: *n = LEN(ARCH); return ARCH;
    case SND_KEY_norm: *n = LEN(NORM); return NORM;
    case SND_KEY_qk_norm: *n = LEN(QK_NORM); return QK_NORM;
    case SND_KEY_position: *n = LEN(POSITION); return POSITION;
    case SND_KEY_rope_style: *n = LEN(ROPE_STYLE); return ROPE_STYLE;
    case SND_KEY_objective: *n = LEN(OBJECTIVE); return OBJECTIVE;
    default: *n = 0; return NULL;
    }
}

const char *snd_family_name(snd_family f) {
    return FAMILY[f];
}
const char *snd_arch_name(snd_arch a) {
    return ARCH[a];
}
const char *snd_position_name(snd_position p) {
    return POSITION[p];
}
const char *snd_qknorm_name(snd_qknorm q) {
    return QK_NORM[q];
}
const char *snd_objective_name(snd_objective o) {
    return OBJECTIVE[o];
}
