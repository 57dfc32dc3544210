// Working memory of the tasks that run at a time: SND_SLOTS pieces at most, taken and given back. Which one a task gets shows
// in no bit of its results.
#ifndef SND_KERNELS_SLOTS_H
#define SND_KERNELS_SLOTS_H

#include <stdatomic.h>
#include <stdint.h>

enum { SND_SLOTS = 64, SND_SLOT_ALIGN = 64 };

typedef struct snd_slots {
    char *base;
    int64_t bytes;          // of a slot
    _Atomic uint64_t taken; // bit by slot
} snd_slots;

static inline int64_t snd_slot_up(int64_t bytes) {
    return (bytes + SND_SLOT_ALIGN - 1) / SND_SLOT_ALIGN * SND_SLOT_ALIGN;
}

/// The caller sees to it that no more tasks run at a time than there are slots.
static inline int snd_slot_take(snd_slots *s) {
    uint64_t seen = atomic_load_explicit(&s->taken, memory_order_relaxed);
    for (;;) {
        int k = 0;
        while (seen >> k & 1) k++;
        if (atomic_compare_exchange_weak_explicit(&s->taken, &seen, seen | UINT64_C(1) << k, memory_order_acquire,
                                                  memory_order_relaxed))
            return k;
    }
}
static inline void snd_slot_give(snd_slots *s, int k) {
    atomic_fetch_and_explicit(&s->taken, ~(UINT64_C(1) << k), memory_order_release);
}
static inline void *snd_slot_at(const snd_slots *s, int k) { return s->base + k * s->bytes; }

#endif
