// The command `sonde`: the signal handler and main. Everything else is in frame.c, so that tests can call it.
#include "cli/inner.h"

#include <malloc.h>
#include <signal.h>

static snd_stop stop; // a signal handler reaches nothing but globals

// The first SIGINT asks for an orderly end; the second one is the system's own.
static void on_interrupt(int sig) {
    stop.flag = 1;
    signal(sig, SIG_DFL);
}

// Graphs and theories of tens of megabytes come and go; their pages stay here instead of being cleared each time anew.
static void keep_pages(void) {
    mallopt(M_MMAP_THRESHOLD, 64 << 20);
    mallopt(M_TRIM_THRESHOLD, 512 << 20);
}

int main(int argc, char **argv) {
    keep_pages();
    signal(SIGINT, on_interrupt);
    return snd_cli_main(argc, argv, &stop);
}
