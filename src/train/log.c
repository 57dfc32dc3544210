// metrics.jsonl: one JSON object a line, written when it happens, so a run can be watched from outside and what a crash
// leaves is whole lines but for the last.
#include "train/inner.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

struct snd_log {
    FILE *f;
    char *path;
};

static sonde_status failed(const snd_log *l) {
    char text[128];
    SND_FAIL(SONDE_EIO, "cannot write %s: %s", l->path, strerror_r(errno, text, sizeof text));
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

// What the lines that stay have to tell of the run's course.
static void remember(const char *text, size_t n, snd_history *h) {
    for (size_t at = 0; at < n;) {
        const size_t len = (size_t)((const char *)memchr(text + at, '\n', n - at) - (text + at));
        json_t *o = json_loadb(text + at, len, 0, NULL);
        const json_t *step = json_object_get(o, "step"), *loss = json_object_get(o, "loss"),
                     *valid = json_object_get(o, "valid_loss");
        if (json_is_number(loss)) {
            const snd_step s = {.step = json_integer_value(step),
                                .loss = json_number_value(loss),
                                .lr = json_number_value(json_object_get(o, "lr")),
                                .grad_norm = json_number_value(json_object_get(o, "grad_norm")),
                                .seconds = NAN};
            snd_history_step(h, &s);
        }
        if (json_is_number(valid)) snd_history_valid(h, json_integer_value(step), json_number_value(valid));
        json_decref(o);
        at += len + 1;
    }
}

static sonde_status cut(const char *path, int64_t step, snd_history *h) {
    char *text = NULL;
    size_t n = 0;
    if (step > 0) SND_TRY(snd_read_file(path, SIZE_MAX / 4, &text, &n));
    n = length_until(text, n, step);
    remember(text, n, h);
    const sonde_status s = snd_write_file(path, text ? text : "", n);
    snd_free(text);
    return s;
}

sonde_status snd_log_open(const char *dir, int64_t step, snd_history *h, snd_log **out) {
    *out = NULL;
    SND_TRY(snd_make_dirs(dir));
    snd_log *l = snd_calloc(1, sizeof *l);
    if (!l) return SONDE_ENOMEM;
    const size_t n = strlen(dir) + 16;
    l->path = snd_malloc(n);
    *out = l;
    if (!l->path) return SONDE_ENOMEM;
    snprintf(l->path, n, "%s/metrics.jsonl", dir);
    SND_TRY(cut(l->path, step, h));
    l->f = fopen(l->path, "ae");
    return l->f ? SONDE_OK : failed(l);
}

void snd_log_close(snd_log *l) {
    if (!l) return;
    if (l->f) fclose(l->f);
    snd_free(l->path);
    snd_free(l);
}

static sonde_status put_line(snd_log *l, snd_buf *b) {
    snd_buf_put(b, "\n");
    const bool lost = b->failed, short_write = !lost && fwrite(b->s, 1, b->len, l->f) != b->len;
    snd_buf_free(b);
    if (lost) return SONDE_ENOMEM;
    return short_write || fflush(l->f) != 0 ? failed(l) : SONDE_OK;
}

static void put_layers(snd_json *j, const snd_step *s) {
    snd_json_open(j, "layers", '[');
    for (int i = 0; i < s->n_layers; i++) {
        const snd_layer_state *l = &s->layers[i];
        snd_json_open(j, NULL, '{');
        snd_json_str(j, "name", *l->name ? l->name : "outside");
        snd_json_num(j, "rms", l->rms);
        snd_json_num(j, "grms", l->grms);
        snd_json_num(j, "write", l->write);
        snd_json_num(j, "entropy", l->entropy);
        snd_json_num(j, "wrms", l->wrms);
        snd_json_num(j, "wgrms", l->wgrms);
        snd_json_num(j, "update", l->update);
        snd_json_close(j, '}');
    }
    snd_json_close(j, ']');
}

sonde_status snd_log_step(snd_log *l, const snd_step *s) {
    if (!l) return SONDE_OK;
    snd_buf b = {0};
    snd_json j = snd_json_start(&b);
    j.tight = true;
    snd_json_open(&j, NULL, '{');
    snd_json_int(&j, "step", s->step);
    snd_json_num(&j, "loss", s->loss);
    snd_json_num(&j, "lr", s->lr);
    snd_json_num(&j, "grad_norm", s->grad_norm);
    snd_json_num(&j, "tokens_per_s", (double)s->targets / s->seconds);
    if (s->layers) put_layers(&j, s);
    snd_json_close(&j, '}');
    return put_line(l, &b);
}

sonde_status snd_log_valid(snd_log *l, int64_t step, double valid, double accuracy) {
    if (!l) return SONDE_OK;
    snd_buf b = {0};
    snd_json j = snd_json_start(&b);
    j.tight = true;
    snd_json_open(&j, NULL, '{');
    snd_json_int(&j, "step", step);
    snd_json_num(&j, "valid_loss", valid);
    if (!isnan(accuracy)) snd_json_num(&j, "accuracy", accuracy);
    snd_json_close(&j, '}');
    return put_line(l, &b);
}
