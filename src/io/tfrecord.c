// TFRecord, the framing of TensorBoard's event files: per record its length, the check of the length, the data, the check of
// the data; all little-endian. Checks are CRC-32C, rotated and shifted so that the check of data that itself ends in a check
// does not come out constant. What is cut or damaged ends the reading: nothing behind it is believed.
// Format: tensorflow.org/tutorials/load_data/tfrecord, "TFRecords format details"
#include "io/io.h"

enum { FRAME = 16 }; // bytes around the data

static uint32_t masked(uint32_t c) {
    return (c >> 15 | c << 17) + 0xA282EAD8u;
}

static void put_le(snd_buf *b, uint64_t v, int bytes) {
    char out[8];
    for (int i = 0; i < bytes; i++) out[i] = (char)(v >> 8 * i);
    snd_buf_putn(b, out, (size_t)bytes);
}

static uint64_t get_le(const uint8_t *p, int bytes) {
    uint64_t v = 0;
    for (int i = 0; i < bytes; i++) v |= (uint64_t)p[i] << 8 * i;
    return v;
}

void snd_tfrecord_put(snd_buf *b, const void *data, size_t n) {
    uint8_t length[8];
    for (int i = 0; i < 8; i++) length[i] = (uint8_t)((uint64_t)n >> 8 * i);
    snd_buf_putn(b, (const char *)length, 8);
    put_le(b, masked(snd_crc32c(length, 8)), 4);
    snd_buf_putn(b, data, n);
    put_le(b, masked(snd_crc32c(data, n)), 4);
}

size_t snd_tfrecord_at(const void *bytes, size_t n, const uint8_t **data, size_t *len) {
    const uint8_t *p = bytes;
    if (n < FRAME) return 0;
    const uint64_t length = get_le(p, 8);
    if (get_le(p + 8, 4) != masked(snd_crc32c(p, 8)) || length > n - FRAME) return 0;
    if (get_le(p + 12 + length, 4) != masked(snd_crc32c(p + 12, (size_t)length))) return 0;
    *data = p + 12;
    *len = (size_t)length;
    return (size_t)length + FRAME;
}
