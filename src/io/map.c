// A file's bytes: mapped read-only when it is a plain file, read whole otherwise (pipes). The size is the one at
// opening; a file that another program cuts while it is mapped raises SIGBUS, so checkpoints are written by rename.
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L // O_CLOEXEC
#endif
#include "io/inner.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIPE_MAX = 1 << 30 };

static sonde_status map_fd(int fd, const char *path, size_t n, snd_map *m) {
    if (n == 0) {
        m->bytes = (const uint8_t *)"";
        return SONDE_OK;
    }
    void *p = mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0);
    SND_FAIL_IF(p == MAP_FAILED, SONDE_EIO, "cannot map %s (%zu bytes)", path, n);
    m->mapped = p;
    m->bytes = p;
    m->n = n;
    return SONDE_OK;
}

sonde_status snd_map_open(const char *path, snd_map *m) {
    *m = (snd_map){0};
    struct stat st;
    // a pipe is opened once, by who reads it: its writer would take a second opening for the end of its reader
    const bool plain = stat(path, &st) == 0 && S_ISREG(st.st_mode);
    const int fd = plain ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size <= SIZE_MAX / 2) {
        const sonde_status s = map_fd(fd, path, (size_t)st.st_size, m);
        close(fd);
        return s;
    }
    if (fd >= 0) close(fd);
    char *text;
    SND_TRY(snd_read_file(path, PIPE_MAX, &text, &m->n)); // also says why a file cannot be opened
    m->heap = text;
    m->bytes = (const uint8_t *)text;
    return SONDE_OK;
}

void snd_map_close(snd_map *m) {
    if (m->mapped) munmap(m->mapped, m->n);
    snd_free(m->heap);
    *m = (snd_map){0};
}
