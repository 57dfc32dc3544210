// Parallel loop over independent tasks, on a few threads of our own that sleep between loops.
// Invariant: every task runs exactly once and has finished when the call returns. The caller takes tasks like everyone
// else and waits only for tasks that another thread has begun: a worker that the system does not let run costs nothing
// (an OpenMP region waits for all its threads; on a shared machine that is a scheduler's slice, milliseconds, each time).
// Each thread begins in a range of its own, the caller in the first: what it wrote in one loop is then in its cache when
// it reads it in the next, where they share rows in the same way. Then it takes what is left in the others' ranges.
// Never nested: inside a task the call runs inline, so a kernel may be used both inside and outside. Several callers
// may be at it at once. The pool is the process' own affair: it has no other state, and a forked child starts afresh.
// A worker wakes on another processor than its caller's. Linux does not count a virtual processor as idle that its host
// has put to rest, and then often wakes a worker on the caller's, where it waits for the caller's work to end or for the
// next tick (4 ms), while the other processor has nothing to do.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // sched_getaffinity, sched_getcpu
#endif
#include "base/base.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

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

// ---- the pool -------------------------------------------------------------------------------------------------------

// MOST workers; a wait looks SPINS times (about a tenth of a millisecond, the gap between two kernels) before it sleeps.
// RANGES per job at most.
enum { MOST = 255, SPINS = 8000, RANGES = 16 };

typedef struct range {
    _Alignas(64) _Atomic int64_t next; // a cache line each
    int64_t end;
} range;

typedef struct job job;
struct job {
    void (*fn)(void *, int64_t);
    void *ctx;
    range range[RANGES];
    int ranges;
    _Atomic int helpers; // workers that are in it; grows only under the lock and while the job is listed
    int most_helpers, joined;
    job *link;
};

typedef struct sleeper sleeper;
struct sleeper {
    pthread_t id;
    cpu_set_t usual; // the processors that it may run on
    bool kept_off;   // one of them, until it wakes
    sleeper *link;
};

static struct pool {
    pthread_mutex_t lock;
    pthread_cond_t posted, left; // a job was listed; a worker left its job
    job *jobs;
    sleeper *sleepers;
    int workers, asleep;
    cpu_set_t usual;        // the processors of workers that begin
    _Atomic unsigned posts; // what a worker looks at while it spins
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .posted = PTHREAD_COND_INITIALIZER, .left = PTHREAD_COND_INITIALIZER};

static _Thread_local bool inside;

static void pause_briefly(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void divide(job *j, int64_t n, int threads) {
    j->ranges = threads < RANGES ? threads : RANGES;
    for (int k = 0; k < j->ranges; k++) {
        atomic_init(&j->range[k].next, n / j->ranges * k + n % j->ranges * k / j->ranges);
        if (k > 0) j->range[k - 1].end = j->range[k].next;
    }
    j->range[j->ranges - 1].end = n;
}

static void run_range(const job *j, range *r) {
    for (int64_t i; (i = atomic_fetch_add_explicit(&r->next, 1, memory_order_relaxed)) < r->end;) j->fn(j->ctx, i);
}

// All ranges, from the first-th on.
static void run_tasks(job *j, int first) {
    for (int k = 0; k < j->ranges; k++) run_range(j, &j->range[(first + k) % j->ranges]);
}

static bool tasks_left(const job *j) {
    for (int k = 0; k < j->ranges; k++) {
        if (atomic_load_explicit(&j->range[k].next, memory_order_relaxed) < j->range[k].end) return true;
    }
    return false;
}

// A job that has tasks left and room for a helper. Under the lock.
static job *open_job(void) {
    for (job *j = pool.jobs; j; j = j->link) {
        if (atomic_load_explicit(&j->helpers, memory_order_relaxed) < j->most_helpers && tasks_left(j)) return j;
    }
    return NULL;
}

// usual without cpu; false when nothing would be left.
static bool others(const cpu_set_t *usual, int cpu, cpu_set_t *rest) {
    *rest = *usual;
    if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_CLR((size_t)cpu, rest);
    return CPU_COUNT(rest) > 0;
}

// Whoever sleeps may not wake beside the caller. Where the system refuses they wake as they would. Under the lock.
static void make_way(void) {
    const int here = sched_getcpu();
    for (sleeper *s = pool.sleepers; s; s = s->link) {
        cpu_set_t rest;
        if (!s->kept_off && others(&s->usual, here, &rest))
            s->kept_off = !pthread_setaffinity_np(s->id, sizeof rest, &rest);
    }
}

// Sleeps until it is woken, then may run everywhere again. Under the lock, which it gives up meanwhile.
static void sleep_until_posted(void) {
    sleeper me = {.id = pthread_self(), .link = pool.sleepers};
    if (pthread_getaffinity_np(me.id, sizeof me.usual, &me.usual)) CPU_ZERO(&me.usual); // leave it alone
    pool.sleepers = &me;
    pool.asleep++;
    pthread_cond_wait(&pool.posted, &pool.lock);
    pool.asleep--;
    sleeper **at = &pool.sleepers;
    while (*at != &me) at = &(*at)->link;
    *at = me.link;
    if (!me.kept_off) return;
    pthread_mutex_unlock(&pool.lock);
    pthread_setaffinity_np(me.id, sizeof me.usual, &me.usual);
    pthread_mutex_lock(&pool.lock);
}

// Waits, first with open eyes, until something is posted. Under the lock, which it gives up meanwhile.
static void wait_for_post(void) {
    const unsigned seen = atomic_load_explicit(&pool.posts, memory_order_relaxed);
    pthread_mutex_unlock(&pool.lock);
    for (int i = 0; i < SPINS && atomic_load_explicit(&pool.posts, memory_order_relaxed) == seen; i++) pause_briefly();
    pthread_mutex_lock(&pool.lock);
    if (atomic_load_explicit(&pool.posts, memory_order_relaxed) == seen) sleep_until_posted();
}

static void *work(void *unused) {
    (void)unused;
    inside = true;
    pthread_mutex_lock(&pool.lock);
    pthread_setaffinity_np(pthread_self(), sizeof pool.usual, &pool.usual);
    for (;;) {
        job *j = open_job();
        if (!j) {
            wait_for_post();
            continue;
        }
        atomic_fetch_add_explicit(&j->helpers, 1, memory_order_relaxed);
        const int first = ++j->joined;
        pthread_mutex_unlock(&pool.lock);
        run_tasks(j, first);
        pthread_mutex_lock(&pool.lock);
        // the caller may return, and j vanish, as soon as this is seen
        if (atomic_fetch_sub_explicit(&j->helpers, 1, memory_order_release) == 1) pthread_cond_broadcast(&pool.left);
    }
    return NULL;
}

static void forget_workers(void) {
    pool = (struct pool){
        .lock = PTHREAD_MUTEX_INITIALIZER, .posted = PTHREAD_COND_INITIALIZER, .left = PTHREAD_COND_INITIALIZER};
}

// Starts workers until there are `want`, away from the caller. A refused thread only means that the others do more.
// Signals stay with the threads that the program knows. Under the lock.
static void hire(int want) {
    if (pool.workers >= want) return;
    if (!pool.workers) pthread_atfork(NULL, NULL, forget_workers);
    pthread_attr_t attr;
    sigset_t all, old;
    sigfillset(&all);
    if (pthread_attr_init(&attr)) return;
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    cpu_set_t rest;
    if (pthread_getaffinity_np(pthread_self(), sizeof pool.usual, &pool.usual))
        CPU_ZERO(&pool.usual); // changes nothing
    const bool away = others(&pool.usual, sched_getcpu(), &rest);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    for (pthread_t id; pool.workers < want && !pthread_create(&id, &attr, work, NULL); pool.workers++) {
        if (away) pthread_setaffinity_np(id, sizeof rest, &rest); // it waits for the lock
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
}

static void post(job *j) {
    pthread_mutex_lock(&pool.lock);
    hire(j->most_helpers);
    j->link = pool.jobs;
    pool.jobs = j;
    atomic_fetch_add_explicit(&pool.posts, 1, memory_order_relaxed);
    make_way();
    for (int i = 0; i < j->most_helpers && i < pool.asleep; i++) pthread_cond_signal(&pool.posted);
    pthread_mutex_unlock(&pool.lock);
}

// Takes j off the list, so that nobody joins any more, and waits for those who did.
static void settle(job *j) {
    pthread_mutex_lock(&pool.lock);
    job **at = &pool.jobs;
    while (*at != j) at = &(*at)->link;
    *at = j->link;
    pthread_mutex_unlock(&pool.lock);
    for (int i = 0; i < SPINS && atomic_load_explicit(&j->helpers, memory_order_acquire); i++) pause_briefly();
    if (!atomic_load_explicit(&j->helpers, memory_order_acquire)) return;
    pthread_mutex_lock(&pool.lock);
    while (atomic_load_explicit(&j->helpers, memory_order_acquire)) pthread_cond_wait(&pool.left, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
}

void snd_parallel(int threads, int64_t n, void (*fn)(void *ctx, int64_t task), void *ctx) {
    if (threads > n) threads = (int)n;
    if (threads <= 1 || inside) {
        for (int64_t i = 0; i < n; i++) fn(ctx, i);
        return;
    }
    job j = {.fn = fn, .ctx = ctx, .most_helpers = threads - 1 < MOST ? threads - 1 : MOST};
    divide(&j, n, threads);
    post(&j);
    inside = true;
    run_tasks(&j, 0);
    inside = false;
    settle(&j);
}
