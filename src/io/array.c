// One tensor of its own: sizes that cannot overflow, ownership, and reading a file of any kind.
#include "io/inner.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

// ---- sizes and ownership ----------------------------------------------------------------------------------------------------

bool snd_checked_size(const int64_t *dim, int nd, size_t size, int64_t *elements) {
    int64_t all = 1, nonzero = (int64_t)size;
    for (int i = 0; i < nd; i++) {
        if (dim[i] < 0) return false;
        if (dim[i] > 0 && nonzero > INT64_MAX / dim[i]) return false;
        if (dim[i] > 0) nonzero *= dim[i];
        all = dim[i] == 0 || all == 0 ? 0 : all * dim[i];
    }
    *elements = all;
    return true;
}

sonde_status snd_array_make(snd_array *out, const char *name, snd_dtype t, snd_shape s, void *data) {
    const size_t n = strlen(name) + 1;
    char *copy = snd_malloc(n);
    *out = (snd_array){0};
    if (!copy) {
        snd_free(data);
        return SONDE_ENOMEM;
    }
    memcpy(copy, name, n);
    out->t = (snd_tensor){.name = copy, .dtype = t, .shape = s, .data = data};
    out->own = copy;
    return SONDE_OK;
}

void snd_array_free(snd_array *a) {
    snd_free(a->own);
    snd_free(a->t.data);
    for (int i = 0; i < a->n_columns; i++) snd_free(a->columns[i]);
    snd_free(a->columns);
    for (int64_t i = 0; i < a->n_words; i++) snd_free(a->words[i]);
    snd_free(a->words);
    *a = (snd_array){0};
}

// ---- files of any kind --------------------------------------------------------------------------------------------------------

// Only what really unpacks is allocated: the buffer grows with the data, never by a length from the file.
static sonde_status unpack(gzFile z, const char *path, size_t max, uint8_t **data, size_t *n) {
    int64_t cap = 0;
    for (;;) {
        SND_FAIL_IF(*n > max, SONDE_EINPUT, "%s: unpacks to more than %zu bytes", path, max);
        if (!snd_grow((void **)data, &cap, (int64_t)*n + 65536, 1)) return SONDE_ENOMEM;
        const size_t room = (size_t)cap - *n;
        const int got = gzread(z, *data + *n, room > (1u << 30) ? 1u << 30 : (unsigned)room);
        int code;
        const char *why = gzerror(z, &code);
        SND_FAIL_IF(got < 0 || (code != Z_OK && code != Z_STREAM_END), SONDE_EINPUT, "%s: %s", path, why);
        if (got == 0) return SONDE_OK;
        *n += (size_t)got;
    }
}

sonde_status snd_read_unpacked(const char *path, size_t max, uint8_t **data, size_t *n) {
    *data = NULL;
    *n = 0;
    SND_FAIL_IF(snd_is_folder(path), SONDE_EIO, "cannot read %s: it is a folder", path);
    SND_TRY(snd_refuse_device(path));
    gzFile z = gzopen(path, "rb"); // passes files through that are not gzip
    SND_FAIL_IF(!z, SONDE_EIO, "cannot read %s: %s", path, errno == ENOENT ? "no such file" : "refused by the system");
    const sonde_status s = unpack(z, path, max, data, n);
    gzclose_r(z);
    if (s != SONDE_OK) {
        snd_free(*data);
        *data = NULL;
        *n = 0;
    }
    return s;
}

static sonde_status pick_tensor(const snd_stfile *f, const char *name, const char *tensor, const snd_tensor **t) {
    char shown[72];
    if (tensor) {
        *t = snd_st_find(f, tensor);
        SND_FAIL_IF(!*t, SONDE_ENAME, "%s: holds no tensor '%s'", name, snd_shown(shown, tensor));
        return SONDE_OK;
    }
    SND_FAIL_IF(snd_st_count(f) != 1, SONDE_ENAME, "%s: holds %lld tensors; name one as FILE#NAME", name,
                (long long)snd_st_count(f));
    *t = snd_st_at(f, 0);
    return SONDE_OK;
}

static sonde_status load_safetensors(const char *name, const uint8_t *bytes, size_t n, const char *tensor,
                                     snd_array *out) {
    snd_stfile *f;
    SND_TRY(snd_st_parse(name, bytes, n, &f));
    const snd_tensor *t = NULL;
    sonde_status s = pick_tensor(f, name, tensor, &t);
    if (s == SONDE_OK) {
        const size_t size = (size_t)snd_shape_size(t->shape) * snd_dtype_size(t->dtype);
        void *copy = snd_malloc(size + 1);
        if (copy && size) memcpy(copy, t->data, size);
        s = copy ? snd_array_make(out, t->name, t->dtype, t->shape, copy) : SONDE_ENOMEM;
    }
    snd_st_close(f);
    return s;
}

static bool looks_like_text(const uint8_t *bytes, size_t n) {
    for (size_t i = 0; i < n && i < 4096; i++)
        if (bytes[i] < 0x20 && bytes[i] != '\n' && bytes[i] != '\r' && bytes[i] != '\t') return false;
    return n > 0;
}

static bool is_npy(const uint8_t *bytes, size_t n) {
    return n >= 6 && memcmp(bytes, "\x93NUMPY", 6) == 0;
}

static bool is_safetensors(const uint8_t *bytes, size_t n) {
    return n >= 9 && bytes[8] == '{' && bytes[7] == 0;
}

sonde_status snd_data_parse(const char *name, const uint8_t *bytes, size_t n, const char *tensor, snd_array *out) {
    *out = (snd_array){0};
    if (is_npy(bytes, n)) return snd_npy_parse(name, bytes, n, out);
    if (n >= 4 && bytes[0] == 0 && bytes[1] == 0) return snd_idx_parse(name, bytes, n, out);
    SND_FAIL_IF(n >= 4 && memcmp(bytes, "PK\3\4", 4) == 0, SONDE_EUNSUPPORTED,
                "%s: a zip archive (npz?); save the array alone, as npy", name);
    if (is_safetensors(bytes, n)) return load_safetensors(name, bytes, n, tensor, out);
    if (looks_like_text(bytes, n)) return snd_csv_parse(name, bytes, n, out);
    SND_FAIL(SONDE_EINPUT, "%s: neither safetensors, idx, npy nor text with numbers", name);
}

// A text has no NUL where those two kinds do.
static sonde_status parse_tokens(const char *name, const uint8_t *bytes, size_t n, const char *tensor, snd_array *out) {
    *out = (snd_array){0};
    if (is_npy(bytes, n) || is_safetensors(bytes, n)) return snd_data_parse(name, bytes, n, tensor, out);
    SND_FAIL_IF(tensor, SONDE_ENAME, "%s: a text, which holds no tensor '%s'", name, tensor);
    uint8_t *copy = snd_malloc(n + 1);
    if (!copy) return SONDE_ENOMEM;
    memcpy(copy, bytes, n);
    return snd_array_make(out, name, SND_U8, SND_SHAPE((int64_t)n), copy);
}

// A quarter of the memory: the text, its numbers and what is made of them have to fit. A pipe may have no end, and a
// small archive may unpack to anything.
static size_t most_data(void) {
    const size_t all = snd_memory_bytes(), most = (size_t)1 << 36;
    return all && all / 4 < most ? all / 4 : most;
}

sonde_status snd_map_unpacked(const char *path, snd_map *m) {
    *m = (snd_map){0};
    SND_FAIL_IF(snd_is_folder(path), SONDE_EIO, "cannot read %s: it is a folder", path);
    SND_TRY(snd_map_open(path, m));
    if (m->n < 2 || m->bytes[0] != 0x1f || m->bytes[1] != 0x8b || !m->mapped) return SONDE_OK;
    snd_map_close(m);
    uint8_t *bytes;
    SND_TRY(snd_read_unpacked(path, most_data(), &bytes, &m->n));
    m->heap = bytes;
    m->bytes = bytes;
    return SONDE_OK;
}

typedef sonde_status parser(const char *name, const uint8_t *bytes, size_t n, const char *tensor, snd_array *out);

static sonde_status load(const char *path, parser *parse, snd_array *out) {
    *out = (snd_array){0};
    const char *hash = strrchr(path, '#');
    struct stat st;
    if (hash && stat(path, &st) == 0) hash = NULL; // a file whose own name holds '#'
    const size_t len = hash ? (size_t)(hash - path) : strlen(path);
    char *file = snd_malloc(len + 1);
    if (!file) return SONDE_ENOMEM;
    memcpy(file, path, len);
    file[len] = 0;
    uint8_t *bytes;
    size_t n;
    sonde_status s = snd_read_unpacked(file, most_data(), &bytes, &n);
    if (s == SONDE_OK) {
        s = parse(file, bytes, n, hash ? hash + 1 : NULL, out);
        snd_free(bytes);
    }
    snd_free(file);
    return s;
}

sonde_status snd_data_load(const char *path, snd_array *out) {
    return load(path, snd_data_parse, out);
}

sonde_status snd_table_load(const char *path, const char *column, bool words, snd_array *out) {
    if (!words) {
        const sonde_status s = snd_data_load(path, out);
        if (s != SONDE_EINPUT) return s;
    }
    uint8_t *bytes;
    size_t n;
    *out = (snd_array){0};
    SND_TRY(snd_read_unpacked(path, most_data(), &bytes, &n));
    const sonde_status s =
        looks_like_text(bytes, n) || words ? snd_csv_parse_words(path, bytes, n, column, out) : SONDE_EINPUT;
    snd_free(bytes);
    return s;
}

sonde_status snd_tokens_load(const char *path, snd_array *out) {
    return load(path, parse_tokens, out);
}

const char *snd_fashion_mnist_dir(void) {
    const char *dirs[] = {getenv("SONDE_FASHION_MNIST"), "/usr/share/datasets/fashion-mnist",
                          "/usr/local/share/datasets/fashion-mnist"};
    for (int i = 0; i < 3; i++) {
        char file[4096];
        struct stat st;
        if (!dirs[i] || snprintf(file, sizeof file, "%s/train-images-idx3-ubyte.gz", dirs[i]) >= (int)sizeof file)
            continue;
        if (stat(file, &st) == 0) return dirs[i];
    }
    return NULL;
}
