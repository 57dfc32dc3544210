// Whole files in and out. Writing goes by way of a temporary name in the same folder and a rename, so a reader sees
// the old contents or the new and never a half; a failed write leaves no temporary file behind. What a symbolic link
// points to is replaced, not the link, and the new file keeps the old one's permissions.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // the strerror_r that returns its text
#endif
#include "base/base.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static sonde_status system_error(const char *what, const char *path, int error) {
    char text[128];
    SND_FAIL(SONDE_EIO, "cannot %s %s: %s", what, path, strerror_r(error, text, sizeof text));
}

static int write_all(int fd, const char *p, size_t n) {
    while (n) {
        const ssize_t done = write(fd, p, n);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return errno;
        p += done;
        n -= (size_t)done;
    }
    return 0;
}

enum { TMP_ROOM = 64 }; // what a temporary name has beyond the file's

// A new file next to `path`; its name goes to `tmp`.
static int open_beside(const char *path, char *tmp, size_t size) {
    for (unsigned i = 0; i < 1000; i++) {
        snprintf(tmp, size, "%s.%ld-%u.tmp", path, (long)getpid(), i);
        const int fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST) return fd;
    }
    return -1;
}

// ---- files that appear together ------------------------------------------------------------------------------------------

typedef struct snd_new_file {
    char *path, *tmp; // NULL: in its place
} new_file;

static int write_parts(int fd, const snd_part *parts, int64_t n) {
    int error = 0;
    for (int64_t i = 0; i < n && !error; i++) error = write_all(fd, parts[i].data, parts[i].n);
    if (close(fd) && !error) error = errno;
    return error;
}

// Something that is not a plain file (a terminal, /dev/null, a pipe) cannot be replaced by rename.
static int write_special(const char *path, const snd_part *parts, int64_t n) {
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd < 0 ? errno : write_parts(fd, parts, n);
}

// tmp is empty when there is no such file.
static int write_beside(new_file *f, const struct stat *old, const snd_part *parts, int64_t n) {
    const int fd = open_beside(f->path, f->tmp, strlen(f->path) + TMP_ROOM);
    if (fd < 0) {
        f->tmp[0] = 0;
        return errno;
    }
    if (old) (void)fchmod(fd, old->st_mode & 0777); // refused where permissions do not exist
    return write_parts(fd, parts, n);
}

static void forget(new_file *f) {
    snd_free(f->path);
    snd_free(f->tmp);
    *f = (new_file){0};
}

sonde_status snd_files_add(snd_files *s, const char *path, const snd_part *parts, int64_t n) {
    struct stat st;
    const bool there = stat(path, &st) == 0;
    if (there && !S_ISREG(st.st_mode)) {
        const int error = write_special(path, parts, n);
        return error ? system_error("write", path, error) : SONDE_OK;
    }
    if (!snd_grow((void **)&s->file, &s->cap, s->n + 1, sizeof *s->file)) return SONDE_ENOMEM;
    char real[PATH_MAX];
    const char *target = there && realpath(path, real) ? real : path;
    new_file f = {.path = snd_malloc(strlen(target) + 1), .tmp = snd_malloc(strlen(target) + TMP_ROOM)};
    if (!f.path || !f.tmp) {
        forget(&f);
        return SONDE_ENOMEM;
    }
    strcpy(f.path, target);
    const int error = write_beside(&f, there ? &st : NULL, parts, n);
    if (!error) {
        s->file[s->n++] = f;
        return SONDE_OK;
    }
    if (f.tmp[0]) unlink(f.tmp);
    forget(&f);
    return system_error("write", path, error);
}

sonde_status snd_files_place(snd_files *s) {
    for (int64_t i = 0; i < s->n; i++) {
        new_file *f = &s->file[i];
        if (f->tmp && rename(f->tmp, f->path)) return system_error("write", f->path, errno);
        forget(f);
    }
    return SONDE_OK;
}

void snd_files_close(snd_files *s) {
    for (int64_t i = 0; i < s->n; i++) {
        if (s->file[i].tmp) unlink(s->file[i].tmp);
        forget(&s->file[i]);
    }
    snd_free(s->file);
    *s = (snd_files){0};
}

// ---- one file --------------------------------------------------------------------------------------------------------------

sonde_status snd_write_parts(const char *path, const snd_part *parts, int64_t n) {
    snd_files one = {0};
    sonde_status s = snd_files_add(&one, path, parts, n);
    if (s == SONDE_OK) s = snd_files_place(&one);
    snd_files_close(&one);
    return s;
}

sonde_status snd_write_file(const char *path, const void *data, size_t n) {
    return snd_write_parts(path, &(snd_part){data, n}, 1);
}

// A device has no end (/dev/zero) or is no file of anybody's; a terminal is where people type.
sonde_status snd_refuse_device(const char *path) {
    struct stat st;
    const bool device = stat(path, &st) == 0 && (S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode));
    if (!device) return SONDE_OK;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    const bool terminal = fd >= 0 && isatty(fd);
    if (fd >= 0) close(fd);
    SND_FAIL_IF(!terminal, SONDE_EIO, "cannot read %s: it is a device; a file or a pipe is needed", path);
    return SONDE_OK;
}

// Reads fd to its end into *data, which has room for *cap bytes; one byte more than max is a mistake. An interrupt ends
// it, since a pipe's writer may never come.
static sonde_status read_all(int fd, const char *path, size_t max, char **data, size_t *n, int64_t *cap) {
    *n = 0;
    for (;;) {
        if (!snd_grow((void **)data, cap, (int64_t)*n + 2, 1)) return SONDE_ENOMEM;
        const size_t room = (size_t)*cap - *n - 1;
        const ssize_t got = read(fd, *data + *n, room);
        if (got < 0) return system_error("read", path, errno);
        if (got == 0) break;
        *n += (size_t)got;
        SND_FAIL_IF(*n > max, SONDE_EINPUT, "%s: more than the %zu bytes that are read at most", path, max);
    }
    (*data)[*n] = 0;
    return SONDE_OK;
}

sonde_status snd_read_file(const char *path, size_t max, char **data, size_t *n) {
    *data = NULL;
    *n = 0;
    SND_TRY(snd_refuse_device(path));
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return system_error("read", path, errno);
    struct stat st;
    int64_t cap = 0;
    sonde_status s = SONDE_OK;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0 && (uint64_t)st.st_size <= max) {
        // The known size at once; two more so that the end is seen without growing.
        cap = st.st_size + 2;
        *data = snd_malloc((size_t)cap);
        if (!*data) s = SONDE_ENOMEM;
    }
    if (s == SONDE_OK) s = read_all(fd, path, max, data, n, &cap);
    close(fd);
    if (s != SONDE_OK) {
        snd_free(*data);
        *data = NULL;
        *n = 0;
    }
    return s;
}

sonde_status snd_make_dirs(const char *path) {
    char *copy = snd_malloc(strlen(path) + 1);
    if (!copy) return SONDE_ENOMEM;
    strcpy(copy, path);
    int error = 0;
    for (char *p = copy + 1; !error && p[-1]; p++) {
        if (*p != '/' && *p) continue;
        const char keep = *p;
        *p = 0;
        if (mkdir(copy, 0777) && errno != EEXIST) error = errno;
        *p = keep;
    }
    if (!error && !snd_is_folder(path)) error = ENOTDIR;
    snd_free(copy);
    return error ? system_error("make folder", path, error) : SONDE_OK;
}

bool snd_is_folder(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

const char *snd_folder_name(snd_arena *a, const char *path) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    return snd_arena_strn(a, path, n);
}

bool snd_same_file(const char *a, const char *b) {
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

// With `make` the nearest folder above that exists decides, since the rest can be made.
sonde_status snd_check_folder(const char *path, bool make) {
    char *copy = snd_malloc(strlen(path) + 2);
    if (!copy) return SONDE_ENOMEM;
    strcpy(copy, *path ? path : ".");
    struct stat st;
    int error = 0;
    while (stat(copy, &st) && !error) {
        error = make && errno == ENOENT ? 0 : errno;
        char *slash = strrchr(copy, '/');
        if (!slash)
            strcpy(copy, ".");
        else
            slash[slash == copy] = 0;
    }
    if (!error && !S_ISDIR(st.st_mode)) error = ENOTDIR;
    if (!error && access(copy, W_OK | X_OK)) error = errno;
    snd_free(copy);
    return error ? system_error("write into folder", path, error) : SONDE_OK;
}

sonde_status snd_sync(const char *path) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    int error = fd < 0 ? errno : fsync(fd) ? errno : 0;
    if (fd >= 0 && close(fd) && !error) error = errno;
    return error ? system_error("write", path, error) : SONDE_OK;
}

sonde_status snd_rename(const char *from, const char *to) {
    return rename(from, to) ? system_error("rename to", to, errno) : SONDE_OK;
}

static int not_a_dot(const struct dirent *e) {
    return strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
}

sonde_status snd_list_folder(const char *path, void (*each)(void *ctx, const char *name), void *ctx) {
    struct dirent **list;
    const int n = scandir(path, &list, not_a_dot, alphasort);
    if (n < 0) return system_error("read folder", path, errno);
    for (int i = 0; i < n; i++) {
        each(ctx, list[i]->d_name);
        free(list[i]); // allowed: scandir's own memory
    }
    free(list); // allowed: scandir's own memory
    return SONDE_OK;
}

sonde_status snd_remove_folder(const char *path) {
    DIR *dir = opendir(path);
    if (!dir) return errno == ENOENT ? SONDE_OK : system_error("remove", path, errno);
    int error = 0;
    for (const struct dirent *e; (e = readdir(dir));)
        if (not_a_dot(e) && unlinkat(dirfd(dir), e->d_name, 0) && !error) error = errno;
    closedir(dir);
    if (rmdir(path) && !error) error = errno;
    return error ? system_error("remove", path, error) : SONDE_OK;
}
