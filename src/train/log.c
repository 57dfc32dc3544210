// The files that tell of a run while it goes on: metrics.jsonl, one JSON object a line, and the same as TensorBoard's events.
// Both are written when it happens, so a run can be watched from outside and what a crash leaves is whole but for the last
// line or record. A resumed run cuts off what it does again and appends.
#include "train/inner.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { METRICS, EVENTS, N_FILES };
static const char *const NAMES[N_FILES] = {"metrics.jsonl",
                                           "events.out.tfevents.0.sonde"}; // its readers look for "tfevents" in names

const char *snd_train_file(int i) {
    return i >= 0 && i < N_FILES ? NAMES[i] : NULL;
}

typedef struct file {
    FILE *f;
    char *path;
} file;

struct snd_log {
    file metrics, events;
};

static sonde_status failed(const file *l) {
    char text[128];
    SND_FAIL(SONDE_EIO, "cannot write %s: %s", l->path, strerror_r(errno, text, sizeof text));
}

static double since_1970(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// How many bytes of whole lines are of steps up to this one: a resumed run writes the others again.
static size_t length_until(const char *text, size_t n, int64_t step) {
    static const char head[] = "{\"step\":";
    size_t at = 0;
    while (at < n) {
        const char *end = memchr(text + at, '\n', n - at), *rest;
        int64_t of;
        if (!end || strncmp(text + at, head, sizeof head - 1) != 0) break;
        if (!snd_parse_int(text + at + sizeof head - 1, &of, &rest) || of > step) break;
        at = (size_t)(end - text) + 1;
    }
    return at;
}

static double number(const json_t *o, const char *key) {
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

// A layer's numbers as a line names them.
static const struct field {
    const char *name;
    size_t offset;
} FIELDS[] = {
#define FIELD(name)                                                                                                    \
    { #name, offsetof(snd_layer_state, name) }
    FIELD(rms),     FIELD(mean), FIELD(var),   FIELD(grms),   FIELD(write),
    FIELD(entropy), FIELD(wrms), FIELD(wgrms), FIELD(update), FIELD(batch_running),
#undef FIELD
};
enum { N_FIELDS = sizeof FIELDS / sizeof *FIELDS };

static double *member(snd_layer_state *l, int k) {
    return (double *)(void *)((char *)l + FIELDS[k].offset);
}

// A line's layers; false: it has none, or those of another model.
static bool read_layers(const json_t *list, snd_layer_state *to, int n) {
    if ((int)json_array_size(list) != n) return false;
    for (int i = 0; i < n; i++) {
        const json_t *o = json_array_get(list, (size_t)i);
        for (int k = 0; k < N_FIELDS; k++) *member(&to[i], k) = number(o, FIELDS[k].name);
    }
    return n > 0;
}

// What the lines that stay have to tell of the run's course.
static void remember(const char *text, size_t n, snd_history *h, snd_watcher *w) {
    int n_layers;
    snd_layer_state *layers = snd_history_layers(h, &n_layers);
    for (size_t at = 0; at < n;) {
        const size_t len = (size_t)((const char *)memchr(text + at, '\n', n - at) - (text + at));
        json_t *o = json_loadb(text + at, len, 0, NULL);
        const json_t *step = json_object_get(o, "step"), *loss = json_object_get(o, "loss"),
                     *valid = json_object_get(o, "valid_loss");
        if (json_is_number(loss)) {
            const bool looked = read_layers(json_object_get(o, "layers"), layers, n_layers);
            const snd_step s = {.step = json_integer_value(step),
                                .loss = json_number_value(loss),
                                .lr = number(o, "lr"),
                                .grad_norm = number(o, "grad_norm"),
                                .scale = number(o, "loss_scale"),
                                .lost = number(o, "underflow"),
                                .seconds = NAN,
                                .layers = looked ? layers : NULL,
                                .n_layers = looked ? n_layers : 0};
            snd_history_step(h, &s);
            snd_watcher_recall(w, &s);
        }
        if (json_is_number(valid)) {
            snd_history_valid(h, json_integer_value(step), json_number_value(valid));
            snd_watcher_valid(w, json_integer_value(step), json_number_value(valid));
        }
        json_decref(o);
        at += len + 1;
    }
}

// ---- files ----------------------------------------------------------------------------------------------------------------------

static sonde_status cut_metrics(const char *path, int64_t step, snd_history *h, snd_watcher *w) {
    char *text = NULL;
    size_t n = 0;
    if (step > 0) SND_TRY(snd_read_file(path, SIZE_MAX / 4, &text, &n));
    n = length_until(text, n, step);
    remember(text, n, h, w);
    const sonde_status s = snd_write_file(path, text ? text : "", n);
    snd_free(text);
    return s;
}

// Runs of an earlier version have no event file, and a damaged one is worth less than the run: what is not there is begun.
static sonde_status cut_events(const char *path, int64_t step) {
    char *old = NULL;
    size_t n = 0;
    if (step > 0 && access(path, F_OK) == 0) SND_TRY(snd_read_file(path, SIZE_MAX / 4, &old, &n));
    n = snd_events_until(old, n, step);
    snd_buf first = {0};
    if (n == 0) snd_events_start(&first, since_1970());
    const snd_part all[] = {{old, n}, {first.s, first.len}};
    const sonde_status s = first.failed ? SONDE_ENOMEM : snd_write_parts(path, all, 2);
    snd_buf_free(&first);
    snd_free(old);
    return s;
}

static sonde_status name_file(file *l, const char *dir, const char *name) {
    const size_t n = strlen(dir) + strlen(name) + 2;
    l->path = snd_malloc(n);
    if (!l->path) return SONDE_ENOMEM;
    snprintf(l->path, n, "%s/%s", dir, name);
    return SONDE_OK;
}

static sonde_status append_to(file *l) {
    l->f = fopen(l->path, "ae");
    return l->f ? SONDE_OK : failed(l);
}

sonde_status snd_log_open(const char *dir, int64_t step, snd_history *h, snd_watcher *w, snd_log **out) {
    *out = NULL;
    SND_TRY(snd_make_dirs(dir));
    snd_log *l = snd_calloc(1, sizeof *l);
    if (!l) return SONDE_ENOMEM;
    *out = l;
    SND_TRY(name_file(&l->metrics, dir, NAMES[METRICS]));
    SND_TRY(name_file(&l->events, dir, NAMES[EVENTS]));
    SND_TRY(cut_metrics(l->metrics.path, step, h, w));
    SND_TRY(cut_events(l->events.path, step));
    SND_TRY(append_to(&l->metrics));
    return append_to(&l->events);
}

static void close_file(file *l) {
    if (l->f) fclose(l->f);
    snd_free(l->path);
}

void snd_log_close(snd_log *l) {
    if (!l) return;
    close_file(&l->metrics);
    close_file(&l->events);
    snd_free(l);
}

static sonde_status append(file *l, snd_buf *b) {
    const bool lost = b->failed, short_write = !lost && fwrite(b->s, 1, b->len, l->f) != b->len;
    snd_buf_free(b);
    if (lost) return SONDE_ENOMEM;
    return short_write || fflush(l->f) != 0 ? failed(l) : SONDE_OK;
}

// ---- lines and records ----------------------------------------------------------------------------------------------------------

static void put_layers(snd_json *j, const snd_step *s) {
    snd_json_open(j, "layers", '[');
    for (int i = 0; i < s->n_layers; i++) {
        snd_layer_state l = s->layers[i];
        snd_json_open(j, NULL, '{');
        snd_json_str(j, "name", *l.name ? l.name : "outside");
        for (int k = 0; k < N_FIELDS; k++) snd_json_num(j, FIELDS[k].name, *member(&l, k));
        snd_json_close(j, '}');
    }
    snd_json_close(j, ']');
}

static snd_json begin_line(snd_buf *b, int64_t step) {
    snd_json j = snd_json_start(b);
    j.tight = true;
    snd_json_open(&j, NULL, '{');
    snd_json_int(&j, "step", step);
    return j;
}

static sonde_status end_line(snd_log *l, snd_json *j, snd_buf *b) {
    snd_json_close(j, '}');
    snd_buf_put(b, "\n");
    return append(&l->metrics, b);
}

sonde_status snd_log_step(snd_log *l, const snd_step *s) {
    if (!l) return SONDE_OK;
    snd_buf b = {0};
    snd_json j = begin_line(&b, s->step);
    snd_json_num(&j, "loss", s->loss);
    snd_json_num(&j, "lr", s->lr);
    snd_json_num(&j, "grad_norm", s->grad_norm);
    snd_json_num(&j, "tokens_per_s", (double)s->targets / s->seconds);
    if (s->scale > 0) {
        snd_json_num(&j, "loss_scale", s->scale);
        snd_json_num(&j, "underflow", s->lost);
        snd_json_bool(&j, "skipped", s->skipped);
    }
    if (s->layers) put_layers(&j, s);
    SND_TRY(end_line(l, &j, &b));
    snd_events_step(&b, since_1970(), s);
    return append(&l->events, &b);
}

sonde_status snd_log_valid(snd_log *l, int64_t step, double valid, double accuracy) {
    if (!l) return SONDE_OK;
    snd_buf b = {0};
    snd_json j = begin_line(&b, step);
    snd_json_num(&j, "valid_loss", valid);
    if (!isnan(accuracy)) snd_json_num(&j, "accuracy", accuracy);
    SND_TRY(end_line(l, &j, &b));
    snd_events_valid(&b, since_1970(), step, valid, accuracy);
    return append(&l->events, &b);
}
