// TFRecord, the framing of TensorBoard's event files: per record its length, the check of the length, the data, the check of
// the data; all little-endian. Checks are CRC-32C, rotated and shifted so that the check of data that itself ends in a check
// does not come out constant. What is cut or damaged ends the reading: nothing behind it is believed.
// Format: tensorflow.org/tutorials/load_data/tfrecord, "TFRecords format details"; CRC-32C: RFC 3720, appendix B.4
#include "io/io.h"

static const uint32_t POLY = 0x82F63B78; // 0x1EDC6F41 with its bits reversed
enum { FRAME = 16 };                     // bytes around the data

static uint32_t crc_of_byte(uint32_t c) {
    for (int k = 0; k < 8; k++) c = c >> 1 ^ (c & 1 ? POLY : 0);
    return c;
}

typedef struct crc_table {
    uint32_t of[256];
} crc_table;

static crc_table make_table(void) {
    crc_table t;
    for (uint32_t i = 0; i < 256; i++) t.of[i] = crc_of_byte(i);
    return t;
}

// Two checks of a record share one table.
static uint32_t crc(const crc_table *t, const void *data, size_t n) {
    const uint8_t *p = data;
    uint32_t c = UINT32_MAX;
    for (size_t i = 0; i < n; i++) c = c >> 8 ^ t->of[(c ^ p[i]) & 255];
    return ~c;
}

uint32_t snd_crc32c(const void *data, size_t n) {
    const crc_table t = make_table();
    return crc(&t, data, n);
}

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
    const crc_table t = make_table();
    uint8_t length[8];
    for (int i = 0; i < 8; i++) length[i] = (uint8_t)((uint64_t)n >> 8 * i);
    snd_buf_putn(b, (const char *)length, 8);
    put_le(b, masked(crc(&t, length, 8)), 4);
    snd_buf_putn(b, data, n);
    put_le(b, masked(crc(&t, data, n)), 4);
}

size_t snd_tfrecord_at(const void *bytes, size_t n, const uint8_t **data, size_t *len) {
    const uint8_t *p = bytes;
    if (n < FRAME) return 0;
    const crc_table t = make_table();
    const uint64_t length = get_le(p, 8);
    if (get_le(p + 8, 4) != masked(crc(&t, p, 8)) || length > n - FRAME) return 0;
    if (get_le(p + 12 + length, 4) != masked(crc(&t, p + 12, (size_t)length))) return 0;
    *data = p + 12;
    *len = (size_t)length;
    return (size_t)length + FRAME;
}
