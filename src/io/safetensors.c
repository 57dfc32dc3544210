// safetensors: 8 bytes of header length, a JSON header, tensor data. Reading checks everything before anything is
// believed: after snd_st_parse every tensor lies inside the data, has the size that its shape and dtype say, and shares
// no byte with another. Data is borrowed from the file unless it is misaligned for its type, then copied.
// Format: github.com/huggingface/safetensors, README "Format".
#include "io/inner.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER_MAX = 100 * 1000 * 1000, WRITE_ALIGN = 8 }; // the reference reader has the same limit

static const char META[] = "__metadata__";
static const struct dtype_row {
    snd_dtype t;
    const char *name;
} DTYPES[] = {{SND_F64, "F64"}, {SND_F32, "F32"}, {SND_BF16, "BF16"}, {SND_F16, "F16"}, {SND_I64, "I64"},
              {SND_I32, "I32"}, {SND_I16, "I16"}, {SND_I8, "I8"},     {SND_U8, "U8"},   {SND_BOOL, "BOOL"}};
enum { N_DTYPES = sizeof DTYPES / sizeof DTYPES[0] };
static const char *const KNOWN_ELSEWHERE[] = {"F8_E4M3", "F8_E5M2", "F8_E8M0", "F6_E2M3", "F6_E3M2",
                                              "F4",      "U16",     "U32",     "U64",     "C64"};

typedef struct entry {
    snd_tensor t;
    uint64_t begin, end;
} entry;

struct snd_stfile {
    snd_arena *arena;
    const char *path;
    snd_map map;
    entry *e;            // in order of names
    const uint8_t *data; // behind the header
    uint64_t n_data;
    int64_t n;
};

// ---- one entry of the header ----------------------------------------------------------------------------------------------

static const char *text_or_empty(const json_t *j) {
    const char *s = json_string_value(j);
    return s ? s : "";
}

static sonde_status read_dtype(const json_t *j, const char *tensor, snd_dtype *t) {
    const char *name = text_or_empty(j);
    char shown[72];
    for (int i = 0; i < N_DTYPES; i++)
        if (strcmp(name, DTYPES[i].name) == 0) {
            *t = DTYPES[i].t;
            return SONDE_OK;
        }
    for (size_t i = 0; i < sizeof KNOWN_ELSEWHERE / sizeof *KNOWN_ELSEWHERE; i++)
        SND_FAIL_IF(strcmp(name, KNOWN_ELSEWHERE[i]) == 0, SONDE_EUNSUPPORTED,
                    "tensor '%s': dtype %s cannot be read yet", tensor, name);
    SND_FAIL(SONDE_EINPUT, "tensor '%s': unknown dtype '%s'", tensor, snd_shown(shown, name));
}

static sonde_status read_shape(const json_t *j, const char *tensor, size_t size, snd_shape *shape) {
    SND_FAIL_IF(!json_is_array(j), SONDE_EINPUT, "tensor '%s': shape must be a list of numbers", tensor);
    const size_t nd = json_array_size(j);
    SND_FAIL_IF(nd > SND_MAX_DIMS, SONDE_EUNSUPPORTED, "tensor '%s': %zu dimensions; at most %d can be read", tensor,
                nd, SND_MAX_DIMS);
    int64_t dim[SND_MAX_DIMS] = {0}, elements;
    for (size_t i = 0; i < nd; i++) {
        const json_t *d = json_array_get(j, i);
        SND_FAIL_IF(!json_is_integer(d) || json_integer_value(d) < 0, SONDE_EINPUT,
                    "tensor '%s': dimension %zu of its shape is not a count", tensor, i);
        dim[i] = json_integer_value(d);
    }
    SND_FAIL_IF(!snd_checked_size(dim, (int)nd, size, &elements), SONDE_EINPUT,
                "tensor '%s': the product of its shape overflows", tensor);
    *shape = snd_shape_make((int)nd, dim);
    return SONDE_OK;
}

static sonde_status read_offsets(const snd_stfile *f, const json_t *j, const char *tensor, entry *e) {
    const json_t *a = json_array_get(j, 0), *b = json_array_get(j, 1);
    SND_FAIL_IF(json_array_size(j) != 2 || !json_is_integer(a) || !json_is_integer(b) || json_integer_value(a) < 0,
                SONDE_EINPUT, "tensor '%s': data_offsets must be two counts", tensor);
    const long long begin = json_integer_value(a), end = json_integer_value(b);
    SND_FAIL_IF(end < begin, SONDE_EINPUT, "tensor '%s': its data ends (%lld) before it begins (%lld)", tensor, end,
                begin);
    SND_FAIL_IF(
        (uint64_t)end > f->n_data, SONDE_EINPUT,
        "tensor '%s': its data, bytes %lld to %lld, lies outside the file's %llu bytes of data (the file ends early)",
        tensor, begin, end, (unsigned long long)f->n_data);
    const uint64_t need = (uint64_t)snd_shape_size(e->t.shape) * snd_dtype_size(e->t.dtype);
    char shape[160];
    SND_FAIL_IF((uint64_t)(end - begin) != need, SONDE_EINPUT,
                "tensor '%s': %lld bytes of data; shape %s of %s needs %llu", tensor, end - begin,
                snd_shape_text(e->t.shape, shape), snd_dtype_name(e->t.dtype), (unsigned long long)need);
    e->begin = (uint64_t)begin;
    e->end = (uint64_t)end;
    return SONDE_OK;
}

static sonde_status read_entry(const snd_stfile *f, const json_t *j, entry *e) {
    char shown[72];
    const char *tensor = snd_shown(shown, e->t.name);
    SND_FAIL_IF(!json_is_object(j), SONDE_EINPUT, "tensor '%s': an object with dtype, shape, data_offsets is needed",
                tensor);
    SND_TRY(read_dtype(json_object_get(j, "dtype"), tensor, &e->t.dtype));
    SND_TRY(read_shape(json_object_get(j, "shape"), tensor, snd_dtype_size(e->t.dtype), &e->t.shape));
    return read_offsets(f, json_object_get(j, "data_offsets"), tensor, e);
}

static sonde_status check_meta(json_t *j) {
    const char *key;
    json_t *v;
    SND_FAIL_IF(!json_is_object(j), SONDE_EINPUT, "%s must be an object of texts", META);
    json_object_foreach(j, key, v) {
        char shown[72];
        SND_FAIL_IF(!json_is_string(v), SONDE_EINPUT, "%s: the value of '%s' is not text", META, snd_shown(shown, key));
    }
    return SONDE_OK;
}

static sonde_status read_entries(snd_stfile *f, json_t *root) {
    SND_NEW(f->arena, f->e, json_object_size(root) + 1);
    const char *key;
    json_t *v;
    json_object_foreach(root, key, v) {
        if (strcmp(key, META) == 0) {
            SND_TRY(check_meta(v));
            continue;
        }
        entry *e = &f->e[f->n++];
        e->t.name = snd_arena_str(f->arena, key);
        if (!e->t.name) return SONDE_ENOMEM;
        SND_TRY(read_entry(f, v, e));
    }
    return SONDE_OK;
}

// ---- all entries together ---------------------------------------------------------------------------------------------------

static int by_place(const void *a, const void *b) {
    const entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

static int by_name(const void *a, const void *b) {
    const entry *x = a, *y = b;
    return strcmp(x->t.name, y->t.name);
}

// The data is exactly the tensors, one after the other: bytes of nobody can hide things, bytes of two are a mistake.
static sonde_status check_cover(const snd_stfile *f) {
    uint64_t at = 0;
    char name[72], other[72];
    for (int64_t i = 0; i < f->n; i++) {
        const entry *e = &f->e[i];
        SND_FAIL_IF(e->begin < at, SONDE_EINPUT,
                    "tensor '%s': its data (from byte %llu) overlaps that of '%s' (to byte %llu)",
                    snd_shown(name, e->t.name), (unsigned long long)e->begin, snd_shown(other, f->e[i - 1].t.name),
                    (unsigned long long)at);
        SND_FAIL_IF(e->begin > at, SONDE_EINPUT, "tensor '%s': bytes %llu to %llu before its data belong to no tensor",
                    snd_shown(name, e->t.name), (unsigned long long)at, (unsigned long long)e->begin);
        at = e->end;
    }
    SND_FAIL_IF(at != f->n_data, SONDE_EINPUT, "bytes %llu to %llu of the data belong to no tensor",
                (unsigned long long)at, (unsigned long long)f->n_data);
    return SONDE_OK;
}

static sonde_status place_data(snd_stfile *f) {
    for (int64_t i = 0; i < f->n; i++) {
        entry *e = &f->e[i];
        const size_t size = snd_dtype_size(e->t.dtype), n = (size_t)(e->end - e->begin);
        const uint8_t *p = f->data + e->begin;
        if ((uintptr_t)p % size != 0) {
            uint8_t *copy = snd_arena_alloc(f->arena, n + 1);
            if (!copy) return SONDE_ENOMEM;
            if (n) memcpy(copy, p, n);
            p = copy;
        }
        // The tensor type has no const; readers of files treat its data as const (see io.h).
        memcpy(&e->t.data, &p, sizeof p);
    }
    return SONDE_OK;
}

static sonde_status read_header(snd_stfile *f, const uint8_t *bytes, size_t n) {
    SND_FAIL_IF(n < 8, SONDE_EINPUT, "%zu bytes; a safetensors file begins with 8 bytes of header length", n);
    uint64_t header = 0;
    for (int i = 7; i >= 0; i--) header = header << 8 | bytes[i];
    SND_FAIL_IF(header > n - 8, SONDE_EINPUT,
                "header length %llu, but only %zu bytes follow (not safetensors, or truncated)",
                (unsigned long long)header, n - 8);
    SND_FAIL_IF(header > HEADER_MAX, SONDE_EINPUT, "header length %llu; at most %d is read", (unsigned long long)header,
                HEADER_MAX);
    f->data = bytes + 8 + header;
    f->n_data = n - 8 - header;
    SND_FAIL_IF(header == 0 || bytes[8] != '{', SONDE_EINPUT, "the header does not begin with '{'");
    json_error_t err;
    json_t *root = json_loadb((const char *)bytes + 8, (size_t)header, JSON_REJECT_DUPLICATES, &err);
    SND_FAIL_IF(!root, SONDE_ESYNTAX, "header, line %d, column %d: %s", err.line, err.column, err.text);
    const sonde_status s = json_is_object(root) ? read_entries(f, root) : SONDE_EINPUT;
    json_decref(root);
    return s;
}

static sonde_status parse_into(snd_stfile *f, const uint8_t *bytes, size_t n) {
    SND_TRY(read_header(f, bytes, n));
    if (f->n) qsort(f->e, (size_t)f->n, sizeof *f->e, by_place);
    SND_TRY(check_cover(f));
    SND_TRY(place_data(f));
    if (f->n) qsort(f->e, (size_t)f->n, sizeof *f->e, by_name);
    return SONDE_OK;
}

static sonde_status create(const char *name, snd_stfile **out) {
    *out = NULL;
    snd_arena *a = snd_arena_create();
    if (!a) return SONDE_ENOMEM;
    snd_stfile *f = snd_arena_alloc(a, sizeof *f);
    const char *path = snd_arena_str(a, name);
    if (!f || !path) {
        snd_arena_destroy(a);
        return SONDE_ENOMEM;
    }
    f->arena = a;
    f->path = path;
    *out = f;
    return SONDE_OK;
}

static sonde_status finish(sonde_status s, snd_stfile **out) {
    if (s == SONDE_OK) return s;
    if (s != SONDE_ENOMEM) s = snd_fail_prefix(s, "%s: ", (*out)->path);
    snd_st_close(*out);
    *out = NULL;
    return s;
}

sonde_status snd_st_parse(const char *name, const uint8_t *bytes, size_t n, snd_stfile **out) {
    SND_TRY(create(name, out));
    return finish(parse_into(*out, bytes, n), out);
}

sonde_status snd_st_open(const char *path, snd_stfile **out) {
    SND_TRY(create(path, out));
    const sonde_status s = snd_map_open(path, &(*out)->map);
    if (s != SONDE_OK) {
        snd_st_close(*out);
        *out = NULL;
        return s; // its message names the file
    }
    return finish(parse_into(*out, (*out)->map.bytes, (*out)->map.n), out);
}

void snd_st_close(snd_stfile *f) {
    if (!f) return;
    snd_map_close(&f->map);
    snd_arena_destroy(f->arena);
}

int64_t snd_st_count(const snd_stfile *f) {
    return f->n;
}
const char *snd_st_path(const snd_stfile *f) {
    return f->path;
}
const snd_tensor *snd_st_at(const snd_stfile *f, int64_t i) {
    return i >= 0 && i < f->n ? &f->e[i].t : NULL;
}

const snd_tensor *snd_st_find(const snd_stfile *f, const char *name) {
    const entry key = {.t.name = name};
    const entry *e = f->n ? bsearch(&key, f->e, (size_t)f->n, sizeof *f->e, by_name) : NULL;
    return e ? &e->t : NULL;
}

// ---- writing ------------------------------------------------------------------------------------------------------------

static int by_width_and_name(const void *a, const void *b) {
    const snd_tensor *x = *(const snd_tensor *const *)a, *y = *(const snd_tensor *const *)b;
    const size_t sx = snd_dtype_size(x->dtype), sy = snd_dtype_size(y->dtype);
    return sx != sy ? (sx > sy ? -1 : 1) : strcmp(x->name, y->name);
}

static int by_name_only(const void *a, const void *b) {
    const snd_tensor *x = *(const snd_tensor *const *)a, *y = *(const snd_tensor *const *)b;
    return strcmp(x->name, y->name);
}

static void put_json_text(snd_buf *b, const char *s) {
    snd_buf_put(b, "\"");
    for (; *s; s++) {
        const unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            snd_buf_printf(b, "\\%c", c);
        else if (c < 0x20)
            snd_buf_printf(b, "\\u%04x", c);
        else
            snd_buf_putn(b, s, 1);
    }
    snd_buf_put(b, "\"");
}

static const char *dtype_text(snd_dtype t) {
    for (int i = 0; i < N_DTYPES; i++)
        if (DTYPES[i].t == t) return DTYPES[i].name;
    return NULL;
}

static void put_header(snd_buf *b, const snd_tensor *const *t, int64_t n, const char *const *meta, int n_meta) {
    snd_buf_put(b, "{");
    for (int i = 0; i < n_meta; i++) {
        snd_buf_put(b, i ? "," : "\"__metadata__\":{");
        put_json_text(b, meta[2 * i]);
        snd_buf_put(b, ":");
        put_json_text(b, meta[2 * i + 1]);
    }
    if (n_meta) snd_buf_put(b, n ? "}," : "}");
    unsigned long long at = 0;
    for (int64_t i = 0; i < n; i++) {
        if (i) snd_buf_put(b, ",");
        put_json_text(b, t[i]->name);
        snd_buf_printf(b, ":{\"dtype\":\"%s\",\"shape\":[", dtype_text(t[i]->dtype));
        for (int d = 0; d < t[i]->shape.nd; d++)
            snd_buf_printf(b, "%s%lld", d ? "," : "", (long long)t[i]->shape.dim[d]);
        const unsigned long long size = (unsigned long long)snd_shape_size(t[i]->shape) * snd_dtype_size(t[i]->dtype);
        snd_buf_printf(b, "],\"data_offsets\":[%llu,%llu]}", at, at + size);
        at += size;
    }
    snd_buf_put(b, "}");
    while (b->len % WRITE_ALIGN && !b->failed) snd_buf_put(b, " ");
}

static sonde_status check_names(const snd_tensor **sorted, int64_t n) {
    if (n) qsort(sorted, (size_t)n, sizeof *sorted, by_name_only);
    for (int64_t i = 0; i < n; i++) {
        char shown[72];
        SND_FAIL_IF(!dtype_text(sorted[i]->dtype), SONDE_EINTERNAL, "tensor '%s' has no dtype",
                    snd_shown(shown, sorted[i]->name));
        SND_FAIL_IF(strcmp(sorted[i]->name, META) == 0 || (i && strcmp(sorted[i]->name, sorted[i - 1]->name) == 0),
                    SONDE_ENAME, "two tensors, or a tensor and the format, are called '%s'",
                    snd_shown(shown, sorted[i]->name));
    }
    return SONDE_OK;
}

static sonde_status write_sorted(const char *path, const snd_tensor **t, int64_t n, const char *const *meta, int n_meta,
                                 snd_part *parts) {
    SND_TRY(check_names(t, n));
    if (n) qsort(t, (size_t)n, sizeof *t, by_width_and_name);
    snd_buf header = {0};
    put_header(&header, t, n, meta, n_meta);
    uint8_t length[8];
    for (int i = 0; i < 8; i++) length[i] = (uint8_t)((uint64_t)header.len >> 8 * i);
    parts[0] = (snd_part){length, sizeof length};
    parts[1] = (snd_part){header.s, header.len};
    for (int64_t i = 0; i < n; i++)
        parts[i + 2] = (snd_part){t[i]->data, (size_t)snd_shape_size(t[i]->shape) * snd_dtype_size(t[i]->dtype)};
    const sonde_status s = header.failed ? SONDE_ENOMEM : snd_write_parts(path, parts, n + 2);
    snd_buf_free(&header);
    return s;
}

sonde_status snd_st_write(const char *path, const snd_tensor *t, int64_t n, const char *const *meta, int n_meta) {
    const snd_tensor **sorted = snd_calloc((size_t)n + 1, sizeof *sorted);
    snd_part *parts = snd_calloc((size_t)n + 2, sizeof *parts);
    for (int64_t i = 0; i < n && sorted; i++) sorted[i] = &t[i];
    const sonde_status s = sorted && parts ? write_sorted(path, sorted, n, meta, n_meta, parts) : SONDE_ENOMEM;
    snd_free(parts);
    snd_free(sorted);
    return s;
}
