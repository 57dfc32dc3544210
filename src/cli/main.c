// The command `sonde`: the signal handler and main. Everything else is in frame.c, so that tests can call it.
#include "cli/inner.h"

#include <signal.h>

static snd_stop stop; // a signal handler reaches nothing but globals

// The first SIGINT asks for an orderly end; the second one is the system's own.
static void on_interrupt(int sig) {
    stop.flag = 1;
    signal(sig, SIG_DFL);
}

int main(int argc, char **argv) {
    snd_heap_keep_pages();
    signal(SIGINT, on_interrupt);
    return snd_cli_main(argc, argv, &stop);
}
