// The pool behind snd_parallel: several callers at once, nested calls, more threads than processors, a forked child.
#include "base/base.h"
#include "check.h"

#include <pthread.h>
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(callers_do_not_meet),
        cmocka_unit_test(nested_calls_run_inline),
        cmocka_unit_test(a_child_starts_afresh),
        cmocka_unit_test(no_tasks),
    };
    return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
