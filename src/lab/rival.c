// A child process on two pipes; see rival.h.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // pipe2
#endif
#include "lab/rival.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { LINE = 4096 };
struct snd_rival {
    pid_t pid; // 0: not started
    int to, from;
    const snd_stop *stop;
    char name[128], setting[1024];
    double mib;
    char line[LINE];
    size_t have; // bytes in `line`, those of the answers to come among them
};

// ---- lines -----------------------------------------------------------------------------------------------------------

// A child that is gone must not end us by SIGPIPE: the signal waits, and is taken away when it came.
static bool put(int fd, const char *s, size_t n) {
    sigset_t pipe, before, pending;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigpending(&pending);
    const bool was = sigismember(&pending, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, &before);
    while (n > 0) {
        const ssize_t k = write(fd, s, n);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) break;
        s += k;
        n -= (size_t)k;
    }
    if (n > 0 && !was) (void)sigtimedwait(&pipe, NULL, &(struct timespec){0, 0});
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return n == 0;
}

// Waits in pieces, so that a wish to stop is heard whichever thread the signal came to.
static sonde_status wait_for_more(const snd_rival *r) {
    struct pollfd p = {.fd = r->from, .events = POLLIN};
    for (;;) {
        SND_FAIL_IF(r->stop && r->stop->flag, SONDE_EINTERRUPTED, "stopped while %s worked", r->name);
        const int n = poll(&p, 1, 200);
        if (n > 0) return SONDE_OK;
        SND_FAIL_IF(n < 0 && errno != EINTR, SONDE_EIO, "%s: waiting for its answer failed", r->name);
    }
}

// Takes the next line out of r->line, as JSON that the caller gives back.
static sonde_status take_line(snd_rival *r, size_t n, json_t **out) {
    json_error_t e;
    *out = json_loadb(r->line, n, JSON_REJECT_DUPLICATES, &e);
    char shown[72], text[64];
    snprintf(text, sizeof text, "%.*s", (int)(n < 60 ? n : 60), r->line);
    memmove(r->line, r->line + n + 1, r->have - n - 1);
    r->have -= n + 1;
    const bool good = json_is_object(*out);
    if (!good) json_decref(*out);
    SND_FAIL_IF(!good, SONDE_EIO, "%s: it answered '%s', which is no line of JSON", r->name, snd_shown(shown, text));
    return SONDE_OK;
}

static sonde_status hear(snd_rival *r, json_t **out) {
    for (;;) {
        const char *end = memchr(r->line, '\n', r->have);
        if (end) return take_line(r, (size_t)(end - r->line), out);
        SND_FAIL_IF(r->have == LINE, SONDE_EIO, "%s: its answer is longer than %d bytes", r->name, LINE);
        SND_TRY(wait_for_more(r));
        const ssize_t k = read(r->from, r->line + r->have, LINE - r->have);
        if (k < 0 && errno == EINTR) continue;
        SND_FAIL_IF(k <= 0, SONDE_EIO, "%s: it ended before it answered", r->name);
        r->have += (size_t)k;
    }
}

// The answer's complaint becomes an error of this code.
static sonde_status complaint(const snd_rival *r, const json_t *answer, sonde_status code) {
    const char *text = json_string_value(json_object_get(answer, "error"));
    SND_FAIL_IF(text, code, "%s: %s", r->name, text);
    return SONDE_OK;
}

static sonde_status ask(snd_rival *r, const char *line, json_t **out) {
    SND_FAIL_IF(!put(r->to, line, strlen(line)), SONDE_EIO, "%s: it is gone", r->name);
    SND_TRY(hear(r, out));
    const sonde_status s = complaint(r, *out, SONDE_EIO);
    if (s != SONDE_OK) json_decref(*out);
    return s;
}

// ---- life ------------------------------------------------------------------------------------------------------------

static sonde_status spawn(snd_rival *r, const char *const *argv) {
    int in[2] = {-1, -1}, out[2] = {-1, -1};
    const bool piped = pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0;
    posix_spawn_file_actions_t a;
    int failed = piped ? posix_spawn_file_actions_init(&a) : errno;
    if (!failed) {
        posix_spawn_file_actions_adddup2(&a, in[0], STDIN_FILENO);
        posix_spawn_file_actions_adddup2(&a, out[1], STDOUT_FILENO);
        failed = posix_spawnp(&r->pid, argv[0], &a, NULL, (char **)(void *)argv, environ);
        posix_spawn_file_actions_destroy(&a);
    }
    if (in[0] >= 0) close(in[0]);
    if (out[1] >= 0) close(out[1]);
    r->to = in[1];
    r->from = out[0];
    if (failed) r->pid = 0;
    SND_FAIL_IF(failed == ENOENT, SONDE_EUSAGE, "%s is not installed", argv[0]);
    SND_FAIL_IF(failed, SONDE_EIO, "%s cannot be started (error %d)", argv[0], failed);
    return SONDE_OK;
}

static void keep_text(const json_t *o, const char *key, char *out, size_t n) {
    const char *s = json_string_value(json_object_get(o, key));
    snprintf(out, n, "%s", s ? s : "");
}

static sonde_status introduce(snd_rival *r) {
    json_t *o = NULL;
    SND_TRY(hear(r, &o));
    sonde_status s = complaint(r, o, SONDE_EUSAGE);
    if (s == SONDE_OK && !json_is_string(json_object_get(o, "name")))
        s = snd_fail(SONDE_EIO, __FILE__, __LINE__, "%s: its first line has no name", r->name);
    if (s == SONDE_OK) {
        keep_text(o, "name", r->name, sizeof r->name);
        keep_text(o, "setting", r->setting, sizeof r->setting);
    }
    json_decref(o);
    return s;
}

sonde_status snd_rival_open(const char *const *argv, const snd_stop *stop, snd_rival **out) {
    *out = NULL;
    snd_rival *r = snd_calloc(1, sizeof *r);
    if (!r) return SONDE_ENOMEM;
    *r = (snd_rival){.to = -1, .from = -1, .stop = stop, .mib = NAN};
    const char *script = argv[1] ? strrchr(argv[1], '/') : NULL;
    snprintf(r->name, sizeof r->name, "%s", script ? script + 1 : argv[0]);
    sonde_status s = spawn(r, argv);
    if (s == SONDE_OK) s = introduce(r);
    if (s != SONDE_OK) {
        snd_rival_close(r);
        return s;
    }
    *out = r;
    return SONDE_OK;
}

// One that does not end by itself within two seconds, in the middle of a round say, is ended.
static void see_off(pid_t pid) {
    for (int i = 0; i < 40; i++) {
        const pid_t k = waitpid(pid, NULL, WNOHANG);
        if (k == pid || (k < 0 && errno != EINTR)) return;
        (void)poll(NULL, 0, 50);
    }
    kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {}
}

void snd_rival_close(snd_rival *r) {
    if (!r) return;
    if (r->to >= 0) close(r->to);
    if (r->from >= 0) close(r->from);
    if (r->pid > 0) see_off(r->pid);
    snd_free(r);
}

const char *snd_rival_name(const snd_rival *r) {
    return r->name;
}
const char *snd_rival_setting(const snd_rival *r) {
    return r->setting;
}
double snd_rival_mib(const snd_rival *r) {
    return r->mib;
}

// ---- work ------------------------------------------------------------------------------------------------------------

sonde_status snd_rival_case(snd_rival *r, const char *what) {
    char line[256];
    json_t *o = NULL;
    snprintf(line, sizeof line, "case %s\n", what);
    SND_TRY(ask(r, line, &o));
    json_decref(o);
    return SONDE_OK;
}

static double number(const json_t *o, const char *key) {
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

sonde_status snd_rival_round(snd_rival *r, double least, bool cpu_time, double *seconds) {
    char line[64], num[40];
    json_t *o = NULL;
    snprintf(line, sizeof line, "round %s%s\n", snd_format_num(num, least, 6), cpu_time ? " cpu" : "");
    SND_TRY(ask(r, line, &o));
    *seconds = number(o, "seconds");
    r->mib = number(o, "mib");
    json_decref(o);
    if (!(*seconds > 0)) *seconds = NAN;
    return SONDE_OK;
}
