// The pool behind snd_parallel: several callers at once, nested calls, more threads than processors, a forked child,
// where workers wake.
#include "base/base.h"
#include "check.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define NO_THREADS_AFTER_FORK // the checker refuses them
#endif
#endif

enum { MOST = 300 };

static void add_index(void *ctx, int64_t i) {
    ((int64_t *)ctx)[i] += i + 1;
}

static bool rounds(int n) {
    for (int r = 0; r < n; r++) {
        int64_t a[MOST] = {0};
        const int64_t tasks = 1 + r * 7 % MOST;
        snd_parallel(1 + r % 6, tasks, add_index, a);
        for (int64_t i = 0; i < MOST; i++) {
            if (a[i] != (i < tasks ? i + 1 : 0)) return false;
        }
    }
    return true;
}

static void *caller(void *ok) {
    *(bool *)ok = rounds(400);
    return NULL;
}

static void callers_do_not_meet(void **state) {
    (void)state;
    pthread_t id[4];
    bool ok[4] = {false, false, false, false};
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&id[i], NULL, caller, &ok[i]), 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(id[i], NULL);
        assert_true(ok[i]);
    }
}

static void outer(void *ctx, int64_t i) {
    int64_t a[MOST] = {0};
    snd_parallel(4, 50, add_index, a);
    int64_t sum = 0;
    for (int k = 0; k < MOST; k++) sum += a[k];
    ((int64_t *)ctx)[i] = sum;
}

static void nested_calls_run_inline(void **state) {
    (void)state;
    int64_t sums[20];
    snd_parallel(3, 20, outer, sums);
    for (int i = 0; i < 20; i++) assert_int_equal(sums[i], 50 * 51 / 2);
}

static void a_child_starts_afresh(void **state) {
    (void)state;
#ifdef NO_THREADS_AFTER_FORK
    skip();
#endif
    assert_true(rounds(20));
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) _exit(rounds(50) ? 0 : 1);
    int status = -1;
    waitpid(pid, &status, 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void no_tasks(void **state) {
    (void)state;
    snd_parallel(4, 0, add_index, NULL);
    snd_parallel(0, -1, add_index, NULL);
    int64_t one = 0;
    snd_parallel(1000, 1, add_index, &one);
    assert_int_equal(one, 1);
}

// ---- where workers wake ---------------------------------------------------------------------------------------------

// Two tasks that wait for each other, half a second at most. What a task of another thread than the caller's sees.
typedef struct meeting {
    pthread_t caller;
    _Atomic int came, cpu;
    cpu_set_t mask; // a worker's
} meeting;

static void meet(void *ctx, int64_t i) {
    (void)i;
    meeting *m = ctx;
    if (!pthread_equal(pthread_self(), m->caller)) {
        atomic_store(&m->cpu, sched_getcpu());
        pthread_getaffinity_np(pthread_self(), sizeof m->mask, &m->mask);
    }
    atomic_fetch_add(&m->came, 1);
    for (const double until = snd_now() + 0.5; atomic_load(&m->came) < 2 && snd_now() < until;) {}
}

// A caller that is bound to one processor after the other, as often as not the one where the worker fell asleep: the
// worker comes all the same, from elsewhere, and may afterwards run where it could before.
static void a_worker_wakes_elsewhere(void **state) {
    (void)state;
    cpu_set_t all;
    assert_int_equal(pthread_getaffinity_np(pthread_self(), sizeof all, &all), 0);
    if (CPU_COUNT(&all) < 2 || CPU_COUNT(&all) > 64) skip();
    enum { ROUNDS = 24 };
    int elsewhere = 0, came = 0;
    snd_parallel(2, 2, meet, &(meeting){.caller = pthread_self()}); // hires with all processors
    for (int r = 0, cpu = 0; r < ROUNDS; r++) {
        do cpu = (cpu + 1) % CPU_SETSIZE;
        while (!CPU_ISSET((size_t)cpu, &all));
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET((size_t)cpu, &one);
        assert_int_equal(pthread_setaffinity_np(pthread_self(), sizeof one, &one), 0);
        usleep(5000); // workers fall asleep
        meeting m = {.caller = pthread_self(), .cpu = -1};
        snd_parallel(2, 2, meet, &m);
        if (atomic_load(&m.cpu) < 0) continue;
        came++;
        elsewhere += atomic_load(&m.cpu) != cpu;
        assert_true(CPU_EQUAL(&m.mask, &all));
    }
    assert_int_equal(pthread_setaffinity_np(pthread_self(), sizeof all, &all), 0);
    assert_true(came >= ROUNDS / 2);
    assert_true(elsewhere >= came - came / 4); // a busy system moves one now and then
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(callers_do_not_meet),      cmocka_unit_test(nested_calls_run_inline),
        cmocka_unit_test(a_child_starts_afresh),    cmocka_unit_test(no_tasks),
        cmocka_unit_test(a_worker_wakes_elsewhere),
    };
    return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
