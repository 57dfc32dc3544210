// idx, the format of MNIST and its kin: 00 00 TYPE DIMS, DIMS sizes (32 bits, big-endian), values (big-endian).
// The sizes must account for every byte of the file.
// Format: yann.lecun.com/exdb/mnist, "The IDX file format".
#include "io/inner.h"

#include <string.h>

static snd_dtype type_of(uint8_t code) {
    switch (code) {
    case 0x08: return SND_U8;
    case 0x09: return SND_I8;
    case 0x0B: return SND_I16;
    case 0x0C: return SND_I32;
    case 0x0D: return SND_F32;
    case 0x0E: return SND_F64;
    default: return SND_DT_NONE;
    }
}

// Values of `size` bytes from big-endian to this machine's order (all we build for are little-endian; so is the test).
static void from_big_endian(uint8_t *p, size_t n, size_t size) {
    for (size_t i = 0; size > 1 && i < n; i += size)
        for (size_t k = 0; k < size / 2; k++) {
            const uint8_t t = p[i + k];
            p[i + k] = p[i + size - 1 - k];
            p[i + size - 1 - k] = t;
        }
}

sonde_status snd_idx_parse(const char *name, const uint8_t *bytes, size_t n, snd_array *out) {
    *out = (snd_array){0};
    SND_FAIL_IF(n < 4 || bytes[0] || bytes[1], SONDE_EINPUT, "%s: an idx file begins with 00 00 TYPE DIMS", name);
    const snd_dtype t = type_of(bytes[2]);
    const int nd = bytes[3];
    SND_FAIL_IF(!t, SONDE_EINPUT, "%s: idx type 0x%02x; 08, 09, 0b, 0c, 0d, 0e are known", name, bytes[2]);
    SND_FAIL_IF(nd < 1 || nd > SND_MAX_DIMS, SONDE_EINPUT, "%s: %d dimensions; 1 to %d can be read", name, nd,
                SND_MAX_DIMS);
    const size_t head = 4 + 4 * (size_t)nd;
    SND_FAIL_IF(n < head, SONDE_EINPUT, "%s: the file ends within its %d sizes", name, nd);
    int64_t dim[SND_MAX_DIMS] = {0}, elements;
    for (int i = 0; i < nd; i++) {
        const uint8_t *p = bytes + 4 + 4 * i;
        dim[i] = (int64_t)((uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]);
    }
    const size_t size = snd_dtype_size(t);
    char shape[160];
    const snd_shape s = snd_shape_make(nd, dim);
    SND_FAIL_IF(!snd_checked_size(dim, nd, size, &elements) || (uint64_t)elements * size != n - head, SONDE_EINPUT,
                "%s: sizes %s of %zu byte%s do not fit the %zu bytes that follow", name, snd_shape_text(s, shape), size,
                size == 1 ? "" : "s", n - head);
    uint8_t *data = snd_malloc(n - head + 1);
    if (!data) return SONDE_ENOMEM;
    memcpy(data, bytes + head, n - head);
    from_big_endian(data, n - head, size);
    return snd_array_make(out, name, t, s, data);
}
