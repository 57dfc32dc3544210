// npy, numpy's file of one array: magic, version, header length, a Python dict as text, the values.
// The dict is read by a small scanner that knows the three keys and nothing else of Python; the values must account for
// every byte behind it. Results are little-endian and in C order.
// Format: numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#include "io/inner.h"

#include <string.h>

enum { HEADER_MAX = 1 << 20 };

typedef struct header {
    snd_dtype stored, t; // stored: as in the file; t: as it is handed out (u2 -> i32, u4 -> i64)
    size_t width;        // bytes of one stored value
    bool swap, is_unsigned, fortran;
    bool has_descr, has_order, has_shape;
    int nd;
    int64_t dim[SND_MAX_DIMS];
} header;

typedef struct scanner {
    const char *name;
    const uint8_t *p, *end;
} scanner;

// ---- the dict ---------------------------------------------------------------------------------------------------------------

static void skip_blanks(scanner *s) {
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\t' || *s->p == '\r')) s->p++;
}

static bool take(scanner *s, char c) {
    skip_blanks(s);
    if (s->p == s->end || *s->p != (uint8_t)c) return false;
    s->p++;
    return true;
}

static bool take_word(scanner *s, const char *word) {
    skip_blanks(s);
    const size_t n = strlen(word);
    if ((size_t)(s->end - s->p) < n || memcmp(s->p, word, n) != 0) return false;
    s->p += n;
    return true;
}

// A Python string without escapes.
static sonde_status take_text(scanner *s, char out[40]) {
    skip_blanks(s);
    const int quote = s->p < s->end && (*s->p == '\'' || *s->p == '"') ? *s->p : 0;
    SND_FAIL_IF(!quote, SONDE_EINPUT, "%s: header: a quoted text is needed", s->name);
    s->p++;
    size_t n = 0;
    for (; s->p < s->end && *s->p != quote; s->p++) {
        SND_FAIL_IF(n >= 39 || *s->p < 0x20 || *s->p == '\\', SONDE_EINPUT, "%s: header: a text that is no key or type",
                    s->name);
        out[n++] = (char)*s->p;
    }
    SND_FAIL_IF(s->p == s->end, SONDE_EINPUT, "%s: header: a text that does not end", s->name);
    s->p++;
    out[n] = 0;
    return SONDE_OK;
}

static sonde_status read_descr(scanner *s, header *h) {
    static const struct {
        const char *code;
        snd_dtype stored, t;
        size_t width;
    } TYPES[] = {{"f2", SND_F16, SND_F16, 2}, {"f4", SND_F32, SND_F32, 4}, {"f8", SND_F64, SND_F64, 8},
                 {"i1", SND_I8, SND_I8, 1},   {"i2", SND_I16, SND_I16, 2}, {"i4", SND_I32, SND_I32, 4},
                 {"i8", SND_I64, SND_I64, 8}, {"u1", SND_U8, SND_U8, 1},   {"b1", SND_BOOL, SND_BOOL, 1},
                 {"u2", SND_I16, SND_I32, 2}, {"u4", SND_I32, SND_I64, 4}};
    skip_blanks(s);
    SND_FAIL_IF(s->p < s->end && *s->p == '[', SONDE_EUNSUPPORTED, "%s: a structured array; one plain type is needed",
                s->name);
    char d[40];
    SND_TRY(take_text(s, d));
    for (size_t i = 0; i < sizeof TYPES / sizeof *TYPES; i++) {
        if (!strchr("<>|=", d[0]) || d[0] == 0 || strcmp(d + 1, TYPES[i].code) != 0) continue;
        SND_FAIL_IF(d[0] == '|' && TYPES[i].width > 1, SONDE_EINPUT, "%s: type '%s' does not say its byte order",
                    s->name, d);
        h->stored = TYPES[i].stored;
        h->t = TYPES[i].t;
        h->width = TYPES[i].width;
        h->is_unsigned = TYPES[i].stored != TYPES[i].t;
        h->swap = d[0] == '>';
        h->has_descr = true;
        return SONDE_OK;
    }
    SND_FAIL(SONDE_EUNSUPPORTED, "%s: type '%s' cannot be read (f2 f4 f8 i1 i2 i4 i8 u1 u2 u4 b1 can)", s->name, d);
}

static sonde_status read_order(scanner *s, header *h) {
    h->fortran = take_word(s, "True");
    SND_FAIL_IF(!h->fortran && !take_word(s, "False"), SONDE_EINPUT, "%s: fortran_order is neither True nor False",
                s->name);
    h->has_order = true;
    return SONDE_OK;
}

static sonde_status read_dim(scanner *s, int64_t *v) {
    skip_blanks(s);
    const uint8_t *first = s->p;
    for (*v = 0; s->p < s->end && *s->p >= '0' && *s->p <= '9'; s->p++) {
        SND_FAIL_IF(*v > (INT64_MAX - 9) / 10, SONDE_EINPUT, "%s: a size in its shape is too large", s->name);
        *v = *v * 10 + (*s->p - '0');
    }
    SND_FAIL_IF(s->p == first, SONDE_EINPUT, "%s: its shape holds something that is not a count", s->name);
    if (s->p < s->end && *s->p == 'L') s->p++; // written by Python 2
    return SONDE_OK;
}

static sonde_status read_shape(scanner *s, header *h) {
    SND_FAIL_IF(!take(s, '('), SONDE_EINPUT, "%s: shape: '(' is needed", s->name);
    h->nd = 0;
    while (!take(s, ')')) {
        SND_FAIL_IF(h->nd == SND_MAX_DIMS, SONDE_EUNSUPPORTED, "%s: more than %d dimensions", s->name, SND_MAX_DIMS);
        SND_TRY(read_dim(s, &h->dim[h->nd++]));
        const bool comma = take(s, ',');
        skip_blanks(s);
        SND_FAIL_IF(!comma && (s->p == s->end || *s->p != ')'), SONDE_EINPUT, "%s: shape: ',' or ')' is needed",
                    s->name);
    }
    h->has_shape = true;
    return SONDE_OK;
}

static sonde_status read_pair(scanner *s, header *h) {
    char key[40];
    SND_TRY(take_text(s, key));
    SND_FAIL_IF(!take(s, ':'), SONDE_EINPUT, "%s: header: ':' is needed after '%s'", s->name, key);
    const bool descr = strcmp(key, "descr") == 0, order = strcmp(key, "fortran_order") == 0,
               shape = strcmp(key, "shape") == 0;
    SND_FAIL_IF((descr && h->has_descr) || (order && h->has_order) || (shape && h->has_shape), SONDE_EINPUT,
                "%s: header: '%s' stands twice", s->name, key);
    if (descr) return read_descr(s, h);
    if (order) return read_order(s, h);
    if (shape) return read_shape(s, h);
    SND_FAIL(SONDE_EINPUT, "%s: header: unknown key '%s' (descr, fortran_order, shape are known)", s->name, key);
}

static sonde_status read_dict(scanner *s, header *h) {
    SND_FAIL_IF(!take(s, '{'), SONDE_EINPUT, "%s: the header is not a dict", s->name);
    while (!take(s, '}')) {
        SND_TRY(read_pair(s, h));
        const bool comma = take(s, ',');
        skip_blanks(s);
        SND_FAIL_IF(!comma && (s->p == s->end || *s->p != '}'), SONDE_EINPUT, "%s: header: ',' or '}' is needed",
                    s->name);
    }
    skip_blanks(s);
    SND_FAIL_IF(s->p != s->end, SONDE_EINPUT, "%s: header: text after the dict", s->name);
    SND_FAIL_IF(!h->has_descr || !h->has_order || !h->has_shape, SONDE_EINPUT, "%s: header: %s is missing", s->name,
                !h->has_descr   ? "descr"
                : !h->has_order ? "fortran_order"
                                : "shape");
    return SONDE_OK;
}

static sonde_status read_header(const char *name, const uint8_t *bytes, size_t n, header *h, size_t *used) {
    SND_FAIL_IF(n < 10 || memcmp(bytes, "\x93NUMPY", 6) != 0, SONDE_EINPUT, "%s: no npy file (93 'NUMPY' is missing)",
                name);
    const int version = bytes[6];
    SND_FAIL_IF(version < 1 || version > 3, SONDE_EUNSUPPORTED, "%s: npy version %d; 1 to 3 can be read", name,
                version);
    const size_t head = version == 1 ? 10 : 12;
    SND_FAIL_IF(n < head, SONDE_EINPUT, "%s: the file ends before its header", name);
    size_t length = 0;
    for (size_t i = head; i > 8; i--) length = length << 8 | bytes[i - 1];
    SND_FAIL_IF(length > n - head || length > HEADER_MAX, SONDE_EINPUT, "%s: header length %zu, but %zu bytes follow",
                name, length, n - head);
    scanner s = {name, bytes + head, bytes + head + length};
    *used = head + length;
    return read_dict(&s, h);
}

// ---- the values ---------------------------------------------------------------------------------------------------------------

// One stored value into its place, in this machine's byte order, widened when it was unsigned.
static void put_value(const header *h, const uint8_t *src, uint8_t *dst) {
    uint8_t v[8] = {0};
    for (size_t i = 0; i < h->width; i++) v[i] = src[h->swap ? h->width - 1 - i : i];
    memcpy(dst, v, snd_dtype_size(h->t)); // zeros above the stored bytes are the value of an unsigned one
}

// Fortran order has the first dimension fastest: walk the C order and compute where each value lies.
static void put_all(const header *h, const uint8_t *src, uint8_t *dst, int64_t elements) {
    const size_t out = snd_dtype_size(h->t);
    int64_t index[SND_MAX_DIMS] = {0}, stride[SND_MAX_DIMS], step = 1;
    for (int i = 0; i < h->nd; i++) {
        stride[i] = step;
        step *= h->dim[i];
    }
    for (int64_t e = 0; e < elements; e++) {
        int64_t at = h->fortran ? 0 : e;
        for (int i = 0; h->fortran && i < h->nd; i++) at += index[i] * stride[i];
        put_value(h, src + (size_t)at * h->width, dst + (size_t)e * out);
        for (int i = h->nd - 1; h->fortran && i >= 0; i--) {
            if (++index[i] < h->dim[i]) break;
            index[i] = 0;
        }
    }
}

sonde_status snd_npy_parse(const char *name, const uint8_t *bytes, size_t n, snd_array *out) {
    *out = (snd_array){0};
    header h = {0};
    size_t used = 0;
    SND_TRY(read_header(name, bytes, n, &h, &used));
    int64_t elements;
    char text[160];
    const snd_shape shape = snd_shape_make(h.nd, h.dim);
    SND_FAIL_IF(!snd_checked_size(h.dim, h.nd, 8, &elements) || (uint64_t)elements * h.width != n - used, SONDE_EINPUT,
                "%s: shape %s of %zu bytes each does not fit the %zu bytes that follow", name,
                snd_shape_text(shape, text), h.width, n - used);
    uint8_t *data = snd_malloc((size_t)elements * snd_dtype_size(h.t) + 1);
    if (!data) return SONDE_ENOMEM;
    const bool as_is = !h.fortran && !h.swap && !h.is_unsigned;
    if (as_is && n > used) memcpy(data, bytes + used, n - used);
    if (!as_is) put_all(&h, bytes + used, data, elements);
    return snd_array_make(out, name, h.t, shape, data);
}
