// Bump allocator: one list of zeroed chunks, freed at once.
// Invariant: `used` of the newest chunk is a multiple of 16 and never passes its size; memory handed out is zero and
// stays where it is until the arena is destroyed. Not for use from several threads at a time.
#include "base/base.h"

#include <assert.h>
#include <string.h>

typedef struct chunk {
    struct chunk *older;
    size_t size, used;
    size_t pad; // keeps the payload at a multiple of 16
} chunk;
_Static_assert(sizeof(chunk) % 16 == 0, "chunk payloads are 16-byte aligned");

struct snd_arena {
    chunk *newest;
    size_t next_size;
};

enum { FIRST_CHUNK = 16 << 10, LARGEST_CHUNK = 4 << 20 };

static chunk *chunk_create(size_t payload) {
    chunk *c = payload <= PTRDIFF_MAX ? snd_calloc(1, sizeof(chunk) + payload) : NULL;
    if (c) c->size = payload;
    return c;
}

snd_arena *snd_arena_create(void) {
    snd_arena *a = snd_calloc(1, sizeof *a);
    if (a) a->next_size = FIRST_CHUNK;
    return a;
}

void snd_arena_destroy(snd_arena *a) {
    if (!a) return;
    for (chunk *c = a->newest; c;) {
        chunk *older = c->older;
        snd_free(c);
        c = older;
    }
    snd_free(a);
}

// A chunk with room for `bytes`. Big requests get a chunk of their own behind the newest, which keeps its rest.
static chunk *room(snd_arena *a, size_t bytes) {
    if (a->newest && a->newest->size - a->newest->used >= bytes) return a->newest;
    const bool own = a->newest && bytes > a->next_size / 4;
    chunk *c = chunk_create(own || bytes > a->next_size ? bytes : a->next_size);
    if (!c) return NULL;
    if (own) {
        c->older = a->newest->older;
        a->newest->older = c;
        return c;
    }
    if (a->next_size < LARGEST_CHUNK) a->next_size *= 2;
    c->older = a->newest;
    a->newest = c;
    return c;
}

void *snd_arena_alloc(snd_arena *a, size_t bytes) {
    if (bytes > PTRDIFF_MAX - 64) {
        snd_fail(SONDE_ENOMEM, __FILE__, __LINE__, "out of memory: %zu bytes were refused", bytes);
        return NULL;
    }
    const size_t rounded = bytes ? (bytes + 15) & ~(size_t)15 : 16;
    chunk *c = room(a, rounded);
    if (!c) return NULL;
    void *p = (char *)(c + 1) + c->used;
    c->used += rounded;
    assert(c->used <= c->size);
    return p;
}

void *snd_arena_array(snd_arena *a, size_t n, size_t size) {
    if (size && n > PTRDIFF_MAX / size) return snd_arena_alloc(a, SIZE_MAX);
    return snd_arena_alloc(a, n * size);
}

char *snd_arena_strn(snd_arena *a, const char *s, size_t n) {
    char *copy = snd_arena_alloc(a, n + 1);
    if (copy) memcpy(copy, s, n);
    return copy;
}

char *snd_arena_str(snd_arena *a, const char *s) {
    return snd_arena_strn(a, s, strlen(s));
}

char *snd_arena_printf(snd_arena *a, const char *fmt, ...) {
    char small[256];
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    const int n = vsnprintf(small, sizeof small, fmt, ap);
    va_end(ap);
    char *text = NULL;
    if (n >= 0 && (size_t)n < sizeof small)
        text = snd_arena_strn(a, small, (size_t)n);
    else if (n >= 0 && (text = snd_arena_alloc(a, (size_t)n + 1)))
        vsnprintf(text, (size_t)n + 1, fmt, again);
    va_end(again);
    return text;
}
