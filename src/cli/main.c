// The command `sonde`: the signal handler and main. Everything else is in frame.c, so that tests can call it.
#include "cli/inner.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static snd_stop stop; // a signal handler reaches nothing but globals

// The first SIGINT asks for an orderly end; the second one is the system's own.
static void on_interrupt(int sig) {
    stop.flag = 1;
    signal(sig, SIG_DFL);
}

// libgomp's idle threads spin for milliseconds before they sleep, and on a machine that others use too that costs more
// than it saves (measured: 26 s of processor time instead of 3 under a load of six). It reads its settings before main,
// so the verbs that compute start once more with a short spin, unless the user has set a policy.
static void spin_briefly(int argc, char **argv) {
    static const char *const verbs[] = {"measure", "demo", "run", "bench"};
    if (argc < 2 || getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT")) return;
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (!strcmp(argv[1], verbs[i])) {
            setenv("GOMP_SPINCOUNT", "2000", 1);
            execv("/proc/self/exe", argv); // where that fails, all goes on as before
            return;
        }
}

int main(int argc, char **argv) {
#ifdef _OPENMP
    spin_briefly(argc, argv);
#else
    (void)spin_briefly;
#endif
    signal(SIGINT, on_interrupt);
    return snd_cli_main(argc, argv, &stop);
}
