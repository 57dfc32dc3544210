// Parallel loop over independent tasks: OpenMP where the compiler has it, else a few pthreads per call (the builds
// for analysis use those, as thread checkers do not understand libgomp).
// Invariant: every task runs exactly once and has finished when the call returns. Never nested: inside a task the call
// runs inline, so a kernel may be used both inside and outside.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // sched_getaffinity
#endif
#include "base/base.h"

#include <sched.h>
#include <stdatomic.h>
#include <time.h>
#ifdef _OPENMP
#include <omp.h>
#else
#include <pthread.h>
#endif

double snd_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int snd_cpu_count(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set)) return 1; // more than 1024 CPUs: be modest
    const int n = CPU_COUNT(&set);
    return n > 0 ? n : 1;
}

static void run_inline(int64_t n, void (*fn)(void *, int64_t), void *ctx) {
    for (int64_t i = 0; i < n; i++) fn(ctx, i);
}

#ifdef _OPENMP

void snd_parallel(int threads, int64_t n, void (*fn)(void *ctx, int64_t task), void *ctx) {
    if (threads > n) threads = (int)n;
    if (threads <= 1 || omp_in_parallel()) {
        run_inline(n, fn, ctx);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
    for (int64_t i = 0; i < n; i++) fn(ctx, i);
}

#else

enum { MOST_THREADS = 256 };

typedef struct crew {
    void (*fn)(void *, int64_t);
    void *ctx;
    int64_t n;
    _Atomic int64_t next;
} crew;

static _Thread_local bool inside;

static void *work(void *arg) {
    crew *c = arg;
    inside = true;
    for (int64_t i; (i = atomic_fetch_add(&c->next, 1)) < c->n;) c->fn(c->ctx, i);
    inside = false;
    return NULL;
}

void snd_parallel(int threads, int64_t n, void (*fn)(void *ctx, int64_t task), void *ctx) {
    if (threads > n) threads = (int)n;
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    if (threads <= 1 || inside) {
        run_inline(n, fn, ctx);
        return;
    }
    crew c = {.fn = fn, .ctx = ctx, .n = n};
    pthread_t id[MOST_THREADS];
    int started = 0;
    // A refused thread only means that the others do more.
    while (started < threads - 1 && !pthread_create(&id[started], NULL, work, &c)) started++;
    work(&c);
    for (int i = 0; i < started; i++) pthread_join(id[i], NULL);
}

#endif
