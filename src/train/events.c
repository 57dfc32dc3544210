// Event files of TensorBoard: a record per step with the numbers of metrics.jsonl as scalars, under the same names; those of a
// layer are rms/layers.3 and so on, so that a layer's curves stand side by side. The few protobuf messages are written by hand:
//   Event    1 wall_time (double)   2 step (int64)   3 file_version (string)   5 summary (Summary)
//   Summary  1 value (repeated Value)       Value  1 tag (string)   2 simple_value (float)
// Format: tensorflow/core/util/event.proto and tensorflow/core/framework/summary.proto; wire types: protobuf.dev, "Encoding"
#include "train/inner.h"

#include <math.h>
#include <string.h>

typedef enum wire { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 } wire;

// ---- protobuf -------------------------------------------------------------------------------------------------------------------

static void put_varint(snd_buf *b, uint64_t v) {
    char out[10];
    size_t n = 0;
    for (; v >= 128; v >>= 7) out[n++] = (char)(v | 128);
    out[n++] = (char)v;
    snd_buf_putn(b, out, n);
}

static void put_key(snd_buf *b, int field, wire w) {
    put_varint(b, (uint64_t)field << 3 | w);
}

static void put_fixed(snd_buf *b, int field, const void *v, size_t bytes) { // hosts are little-endian, as the file is
    put_key(b, field, bytes == 8 ? FIXED64 : FIXED32);
    snd_buf_putn(b, v, bytes);
}

static void put_bytes(snd_buf *b, int field, const char *s, size_t n) {
    put_key(b, field, BYTES);
    put_varint(b, n);
    snd_buf_putn(b, s, n);
}

// ---- events ---------------------------------------------------------------------------------------------------------------------

static void put_scalar(snd_buf *summary, const char *tag, double v) {
    const float f = (float)v;
    snd_buf value = {0};
    put_bytes(&value, 1, tag, strlen(tag));
    put_fixed(&value, 2, &f, sizeof f);
    summary->failed |= value.failed;
    if (!value.failed) put_bytes(summary, 1, value.s, value.len);
    snd_buf_free(&value);
}

static void put_event(snd_buf *b, double t_sec, int64_t step, int field, const char *what, size_t n) {
    snd_buf event = {0};
    put_fixed(&event, 1, &t_sec, sizeof t_sec);
    put_key(&event, 2, VARINT);
    put_varint(&event, (uint64_t)step);
    put_bytes(&event, field, what, n);
    b->failed |= event.failed;
    if (!event.failed) snd_tfrecord_put(b, event.s, event.len);
    snd_buf_free(&event);
}

static void put_summary(snd_buf *b, double t_sec, int64_t step, snd_buf *summary) {
    b->failed |= summary->failed;
    if (!summary->failed) put_event(b, t_sec, step, 5, summary->s, summary->len);
    snd_buf_free(summary);
}

static void put_of_layer(snd_buf *summary, const char *what, const char *layer, double v) {
    char tag[192];
    if (isnan(v)) return; // does not apply
    snprintf(tag, sizeof tag, "%s/%s", what, *layer ? layer : "outside");
    put_scalar(summary, tag, v);
}

void snd_events_start(snd_buf *b, double t_sec) {
    static const char version[] = "brain.Event:2";
    put_event(b, t_sec, 0, 3, version, sizeof version - 1);
}

void snd_events_step(snd_buf *b, double t_sec, const snd_step *s) {
    snd_buf sum = {0};
    if (!s->skipped) put_scalar(&sum, "loss", s->loss);
    put_scalar(&sum, "lr", s->lr);
    if (!s->skipped) put_scalar(&sum, "grad_norm", s->grad_norm);
    if (s->scale > 0) put_scalar(&sum, "loss_scale", s->scale);
    if (s->scale > 0) put_scalar(&sum, "underflow", s->lost);
    put_scalar(&sum, "tokens_per_s", (double)s->targets / s->seconds);
    for (int i = 0; s->layers && i < s->n_layers; i++) {
        const snd_layer_state *l = &s->layers[i];
        put_of_layer(&sum, "rms", l->name, l->rms);
        put_of_layer(&sum, "mean", l->name, l->mean);
        put_of_layer(&sum, "var", l->name, l->var);
        put_of_layer(&sum, "grms", l->name, l->grms);
        put_of_layer(&sum, "update", l->name, l->update);
        put_of_layer(&sum, "entropy", l->name, l->entropy);
        put_of_layer(&sum, "batch_running", l->name, l->batch_running);
    }
    put_summary(b, t_sec, s->step, &sum);
}

void snd_events_valid(snd_buf *b, double t_sec, int64_t step, double valid, double accuracy) {
    snd_buf sum = {0};
    put_scalar(&sum, "valid_loss", valid);
    if (!isnan(accuracy)) put_scalar(&sum, "accuracy", accuracy);
    put_summary(b, t_sec, step, &sum);
}

// ---- what an earlier part of the run wrote --------------------------------------------------------------------------------------

// Step of an event that put_event made: it stands behind 9 bytes of time.
static bool step_of(const uint8_t *event, size_t n, int64_t *step) {
    enum { AT = 10 };
    if (n < AT + 1 || event[0] != (1 << 3 | FIXED64) || event[9] != (2 << 3 | VARINT)) return false;
    uint64_t v = 0;
    for (size_t i = 0; i < 10 && AT + i < n; i++) {
        v |= (uint64_t)(event[AT + i] & 127) << 7 * i;
        if (event[AT + i] & 128) continue;
        *step = (int64_t)v;
        return true;
    }
    return false;
}

size_t snd_events_until(const char *bytes, size_t n, int64_t step) {
    size_t at = 0, len, whole;
    const uint8_t *event;
    int64_t of;
    while ((whole = snd_tfrecord_at(bytes + at, n - at, &event, &len)) > 0) {
        if (!step_of(event, len, &of) || of > step) break;
        at += whole;
    }
    return at;
}
