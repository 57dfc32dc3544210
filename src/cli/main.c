// The command `sonde`: the signal handler and main. Everything else is in frame.c, so that tests can call it.
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L // sigaction
#endif
#include "cli/inner.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

static snd_stop stop; // a signal handler reaches nothing but globals

// The first SIGINT asks for an orderly end; the second one is the system's own.
static void on_interrupt(int sig) {
    stop.flag = 1;
    signal(sig, SIG_DFL);
}

// A mapped file whose end another program has cut off. Nothing of a result is on disk under its name by then.
static void on_cut_file(int sig) {
    static const char text[] = "sonde: an input file was cut short while it was read\n";
    (void)sig;
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0) {} // there is nobody left to tell
    _exit(3);
}

// A closed stdout or stderr would give its number to the first file that is opened, and messages would land in it. They
// are opened so that writing still fails.
static void hold_standard_streams(void) {
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) < 0) return;
}

int main(int argc, char **argv) {
    snd_heap_keep_pages();
    hold_standard_streams();
    // without SA_RESTART: the wait for a pipe that nobody writes to ends as well
    const struct sigaction interrupt = {.sa_handler = on_interrupt}, cut = {.sa_handler = on_cut_file};
    sigaction(SIGINT, &interrupt, NULL);
    sigaction(SIGBUS, &cut, NULL);
    signal(SIGXFSZ, SIG_IGN); // a limit on the size of files (ulimit -f) is a failed write like a full disk
    return snd_cli_main(argc, argv, &stop);
}
