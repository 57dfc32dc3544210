// A hash table from 64-bit keys to small numbers, and growable rows of token numbers.
#include "data/inner.h"

#include <string.h>

static const uint64_t FREE = UINT64_MAX;

static uint64_t place(uint64_t key, int64_t cap) {
    key = (key ^ (key >> 32)) * UINT64_C(0x9E3779B97F4A7C15);
    return (key ^ (key >> 29)) & (uint64_t)(cap - 1);
}

// Where the key stands, or the free place where it would.
static int64_t find(const snd_table *t, uint64_t key) {
    uint64_t i = place(key, t->cap);
    while (t->key[i] != FREE && t->key[i] != key) i = (i + 1) & (uint64_t)(t->cap - 1);
    return (int64_t)i;
}

static bool grow(snd_table *t) {
    snd_table wide = {.cap = t->cap ? 2 * t->cap : 64, .n = t->n};
    wide.key = snd_malloc((size_t)wide.cap * sizeof *wide.key);
    wide.value = snd_malloc((size_t)wide.cap * sizeof *wide.value);
    if (!wide.key || !wide.value) {
        snd_table_free(&wide);
        return false;
    }
    memset(wide.key, 0xff, (size_t)wide.cap * sizeof *wide.key);
    for (int64_t i = 0; i < t->cap; i++) {
        if (t->key[i] == FREE) continue;
        const int64_t at = find(&wide, t->key[i]);
        wide.key[at] = t->key[i];
        wide.value[at] = t->value[i];
    }
    snd_table_free(t);
    *t = wide;
    return true;
}

int32_t *snd_table_put(snd_table *t, uint64_t key) {
    if (2 * (t->n + 1) > t->cap && !grow(t)) return NULL;
    const int64_t at = find(t, key);
    if (t->key[at] == FREE) {
        t->key[at] = key;
        t->value[at] = -1;
        t->n++;
    }
    return &t->value[at];
}

int32_t snd_table_get(const snd_table *t, uint64_t key) {
    if (t->cap == 0) return -1;
    const int64_t at = find(t, key);
    return t->key[at] == FREE ? -1 : t->value[at];
}

void snd_table_free(snd_table *t) {
    snd_free(t->key);
    snd_free(t->value);
    *t = (snd_table){0};
}

bool snd_ids_room(snd_ids *ids, int64_t more) {
    void *v = ids->v;
    if (ids->n + more <= ids->cap) return true;
    if (!snd_grow(&v, &ids->cap, ids->n + more, sizeof *ids->v)) return false;
    ids->v = v;
    return true;
}

bool snd_ids_push(snd_ids *ids, int32_t id) {
    if (!snd_ids_room(ids, 1)) return false;
    ids->v[ids->n++] = id;
    return true;
}
