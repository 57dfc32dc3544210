// The only door to the heap. Every block carries a 16-byte header in front of what the caller sees, so that the bytes
// held can be counted and a block from elsewhere is noticed.
// Invariant: what snd_malloc, snd_calloc, snd_realloc and snd_aligned_alloc return goes back through snd_free only.
// The counters and the failure switch are the test hooks of the library; nothing else here outlives a call.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // madvise
#endif
#include "base/base.h"
#include "base/machine.h"

#include <assert.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef struct header {
    size_t bytes;    // as asked for
    uint32_t offset; // from the start of the raw block to the caller's pointer
    uint32_t magic;
} header;

enum { HEADER = 16, MAGIC = 0x536f6e64, SLAB = 0x536f6e65 };
_Static_assert(sizeof(header) <= HEADER, "the header must fit in front of a block");

static _Atomic int64_t n_allocs, fail_at;
static _Atomic int64_t held, peak;

void snd_alloc_fail_at(int64_t n) {
    fail_at = n > 0 ? n_allocs + n : 0;
}

int64_t snd_alloc_count(void) {
    return n_allocs;
}

size_t snd_alloc_bytes(void) {
    return (size_t)held;
}

size_t snd_alloc_peak(void) {
    return (size_t)peak;
}

static header *header_of(void *p) {
    header *h = (header *)((char *)p - HEADER);
    assert((h->magic == MAGIC || h->magic == SLAB) && "block was not allocated by alloc.c, or was freed twice");
    return h;
}

static void account(int64_t bytes) {
    const int64_t now = atomic_fetch_add(&held, bytes) + bytes;
    int64_t old = peak;
    while (now > old && !atomic_compare_exchange_weak(&peak, &old, now)) {}
}

static void *refuse(size_t bytes) {
    snd_fail(SONDE_ENOMEM, __FILE__, __LINE__, "out of memory: %zu bytes were refused", bytes);
    return NULL;
}

// Counts the attempt; true when the test hook wants it to fail.
static bool attempt_fails(void) {
    const int64_t nth = atomic_fetch_add(&n_allocs, 1) + 1;
    const int64_t limit = fail_at;
    return limit > 0 && nth >= limit;
}

static void *finish(char *raw, uint32_t offset, size_t bytes) {
    char *p = raw + offset;
    *(header *)(p - HEADER) = (header){bytes, offset, MAGIC};
    account((int64_t)bytes);
    return p;
}

void *snd_malloc(size_t bytes) {
    if (attempt_fails() || bytes > PTRDIFF_MAX - HEADER) return refuse(bytes);
    char *raw = malloc(bytes + HEADER);
    return raw ? finish(raw, HEADER, bytes) : refuse(bytes);
}

void *snd_calloc(size_t n, size_t size) {
    if (size && n > (PTRDIFF_MAX - HEADER) / size) return refuse(SIZE_MAX);
    const size_t bytes = n * size;
    if (attempt_fails()) return refuse(bytes);
    char *raw = calloc(1, bytes + HEADER);
    return raw ? finish(raw, HEADER, bytes) : refuse(bytes);
}

void *snd_realloc(void *p, size_t bytes) {
    if (!p) return snd_malloc(bytes);
    header *h = header_of(p);
    assert(h->offset == HEADER && "aligned blocks cannot be resized");
    if (attempt_fails() || bytes > PTRDIFF_MAX - HEADER) return refuse(bytes);
    const size_t before = h->bytes;
    char *raw = realloc(h, bytes + HEADER);
    if (!raw) return refuse(bytes);
    account(-(int64_t)before);
    return finish(raw, HEADER, bytes);
}

void *snd_aligned_alloc(size_t align, size_t bytes) {
    assert(align && (align & (align - 1)) == 0 && align <= ((size_t)1 << 30));
    if (align < HEADER) align = HEADER;
    if (attempt_fails() || bytes > PTRDIFF_MAX - 2 * align) return refuse(bytes);
    char *raw = aligned_alloc(align, (bytes + 2 * align - 1) / align * align);
    return raw ? finish(raw, (uint32_t)align, bytes) : refuse(bytes);
}

// ---- slabs -----------------------------------------------------------------------------------------------------------
// Large ones lie in huge pages where the system grants them (first touch at 5 to 8 GB/s instead of 1.9), and are kept for
// the next taker when given back: a run for the next seed needs the same sizes, and its pages are there already.

enum { SPARES = 8 };
static const size_t HUGE = (size_t)2 << 20, SPARE_BYTES = (size_t)256 << 20;

typedef struct spare {
    char *raw;
    size_t size;
} spare;

static spare spares[SPARES]; // raw NULL: empty. allowed: a cache of empty pages, under the lock below
static pthread_mutex_t spares_lock = PTHREAD_MUTEX_INITIALIZER;

static size_t slab_size(size_t bytes) { // with the header's page in front
    return (bytes + 2 * HUGE - 1) / HUGE * HUGE;
}

static char *take_spare(size_t size) {
    char *raw = NULL;
    pthread_mutex_lock(&spares_lock);
    for (int i = 0; i < SPARES && !raw; i++)
        if (spares[i].raw && spares[i].size >= size && spares[i].size <= size + size / 4) {
            raw = spares[i].raw;
            spares[i].raw = NULL;
        }
    for (int i = 0; i < SPARES && !raw; i++) { // what does not fit makes room for what is wanted
        free(spares[i].raw);
        spares[i].raw = NULL;
    }
    pthread_mutex_unlock(&spares_lock);
    return raw;
}

// Under an address checker nothing is kept, so that it sees what is used after it was given back.
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CHECKED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define CHECKED 1
#elif !defined(CHECKED)
#define CHECKED 0
#endif

static bool keep_spare(char *raw, size_t size) {
    size_t total = size;
    int empty = -1;
    pthread_mutex_lock(&spares_lock);
    for (int i = 0; i < SPARES; i++) {
        if (spares[i].raw)
            total += spares[i].size;
        else
            empty = i;
    }
    const bool keep = !CHECKED && empty >= 0 && total <= SPARE_BYTES;
    if (keep) spares[empty] = (spare){raw, size};
    pthread_mutex_unlock(&spares_lock);
    return keep;
}

void *snd_slab_alloc(size_t bytes) {
    if (bytes < 2 * HUGE) return snd_aligned_alloc(64, bytes);
    if (attempt_fails() || bytes > PTRDIFF_MAX - 4 * HUGE) return refuse(bytes);
    const size_t size = slab_size(bytes);
    char *raw = take_spare(size);
    if (!raw) {
        raw = aligned_alloc(HUGE, size);
        if (!raw) return refuse(bytes);
        (void)madvise(raw, size, MADV_HUGEPAGE); // advice: refused is fine
    }
    char *p = finish(raw, 64, bytes);
    ((header *)(p - HEADER))->magic = SLAB;
    return p;
}

void snd_free(void *p) {
    if (!p) return;
    header *h = header_of(p);
    const bool slab = h->magic == SLAB;
    account(-(int64_t)h->bytes);
    h->magic = 0;
    char *raw = (char *)p - h->offset;
    // a spare may be larger than this taker asked for; it is kept under the smaller size
    if (!slab || !keep_spare(raw, slab_size(h->bytes))) free(raw);
}

// The first megabytes lie together, in huge pages where the system grants them: what a prediction of some hundred layers
// takes then costs three page faults and not a thousand, a seventh of its time.
void snd_heap_keep_pages(void) {
    const int first = 8 << 20;
    mallopt(M_MMAP_THRESHOLD, 64 << 20);
    mallopt(M_TRIM_THRESHOLD, 512 << 20);
    mallopt(M_TOP_PAD, first);
    char *const start = malloc(1); // makes the heap
    if (!start) return;
    const size_t gap = HUGE - (uintptr_t)start % HUGE;
    (void)madvise(start + gap, (size_t)first - HUGE, MADV_HUGEPAGE); // advice: refused is fine
    free(start);
}

void snd_heap_give_back(void) {
    pthread_mutex_lock(&spares_lock);
    for (int i = 0; i < SPARES; i++) {
        free(spares[i].raw);
        spares[i].raw = NULL;
    }
    pthread_mutex_unlock(&spares_lock);
#if defined(__GLIBC__)
    malloc_trim(0);
#endif
}

bool snd_grow(void **p, int64_t *cap, int64_t need, size_t size) {
    assert(need >= 0 && size > 0);
    if (need <= *cap) return true;
    int64_t want = *cap < 8 ? 8 : *cap;
    while (want < need) want = want > INT64_MAX / 2 ? need : want * 2;
    if ((uint64_t)want > PTRDIFF_MAX / size) return refuse(SIZE_MAX) != NULL;
    void *bigger = snd_realloc(*p, (size_t)want * size);
    if (!bigger) return false;
    *p = bigger;
    *cap = want;
    return true;
}
