// io/: tensor files. Good files of every kind give the numbers that were put in; bad ones are refused for exactly the
// reason that is wrong with them; a file cut anywhere is refused. Bytes lie in blocks of their exact size, so that the
// sanitizers see one byte too many.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // mkdtemp
#endif
#include "check.h"
#include "folder.h"

#include "io/io.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

static const char *path_of(const char *name) {
    static char path[2][256];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static uint8_t *exact(const void *p, size_t n) {
    uint8_t *copy = malloc(n ? n : 1);
    assert_non_null(copy);
    if (n) memcpy(copy, p, n);
    return copy;
}

static bool message_has(const char *text) {
    return strstr(sonde_error_message(), text) != NULL;
}

// ---- safetensors ------------------------------------------------------------------------------------------------------

// Header text and n_data bytes 0, 1, 2, ... as a file in memory.
static uint8_t *st_bytes(const char *header, size_t n_data, size_t *n) {
    const size_t len = strlen(header);
    *n = 8 + len + n_data;
    uint8_t *b = malloc(*n);
    assert_non_null(b);
    for (int i = 0; i < 8; i++) b[i] = (uint8_t)((uint64_t)len >> 8 * i);
    memcpy(b + 8, header, len);
    for (size_t i = 0; i < n_data; i++) b[8 + len + i] = (uint8_t)i;
    return b;
}

#define T(name, dtype, shape, from, to)                                                                                \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" from "," to "]}"

static void st_accepts(void **state) {
    (void)state;
    static const struct {
        const char *header;
        size_t n_data;
        int64_t n;
    } rows[] = {
        {"{}", 0, 0},
        {"{}   ", 0, 0},
        {"{\"__metadata__\":{\"format\":\"pt\"}}", 0, 0},
        {"{" T("a", "F32", "2", "0", "8") "}", 8, 1},
        {"{" T("a", "F32", "", "0", "4") "}", 4, 1},
        {"{" T("a", "F32", "0", "0", "0") "}", 0, 1},                                 // no elements
        {"{" T("a", "F32", "0", "0", "0") "," T("b", "U8", "1", "0", "1") "}", 1, 2}, // and at the end of the data
        {"{" T("b", "U8", "1", "0", "1") "," T("a", "F32", "3,0,2", "1", "1") "}", 1, 2},
        {"{" T("b", "U8", "3", "4", "7") "," T("a", "F32", "1", "0", "4") "}", 7, 2}, // any order in the header
        {"{" T("a", "U8", "1", "0", "1") "," T("b", "F64", "1", "1", "9") "}", 9, 2}, // misaligned
        {"{" T("a", "BF16", "1,1,1,1,1,1", "0", "2") "}", 2, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t n;
        uint8_t *b = st_bytes(rows[i].header, rows[i].n_data, &n);
        snd_stfile *f;
        CHECK_OK(snd_st_parse("ok", b, n, &f));
        assert_int_equal(snd_st_count(f), rows[i].n);
        for (int64_t k = 0; k < snd_st_count(f); k++) {
            const snd_tensor *t = snd_st_at(f, k);
            assert_int_equal((uintptr_t)t->data % snd_dtype_size(t->dtype), 0);
            assert_ptr_equal(snd_st_find(f, t->name), t);
        }
        assert_null(snd_st_at(f, rows[i].n));
        snd_st_close(f);
        free(b);
    }
}

static void st_refuses(void **state) {
    (void)state;
    static const struct {
        const char *header;
        size_t n_data;
        sonde_status status;
        const char *text;
    } rows[] = {
        {"", 0, SONDE_EINPUT, "does not begin with '{'"},
        {"[]", 0, SONDE_EINPUT, "does not begin with '{'"},
        {" {}", 0, SONDE_EINPUT, "does not begin with '{'"},
        {"{", 0, SONDE_ESYNTAX, "header, line 1"},
        {"{} x", 0, SONDE_ESYNTAX, "header, line 1"},
        {"{\"a\":1}", 0, SONDE_EINPUT, "tensor 'a': an object"},
        {"{" T("a", "F32", "1", "0", "4") "," T("a", "F32", "1", "4", "8") "}", 8, SONDE_ESYNTAX,
         "duplicate object key near '\"a\"'"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"shape\":[2],\"data_offsets\":[0,8]}}", 8, SONDE_ESYNTAX,
         "duplicate"},
        {"{" T("a", "F99", "1", "0", "4") "}", 4, SONDE_EINPUT, "tensor 'a': unknown dtype 'F99'"},
        {"{" T("a", "f32", "1", "0", "4") "}", 4, SONDE_EINPUT, "tensor 'a': unknown dtype 'f32'"},
        {"{" T("a", "F8_E4M3", "4", "0", "4") "}", 4, SONDE_EUNSUPPORTED, "tensor 'a': dtype F8_E4M3"},
        {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, SONDE_EINPUT, "tensor 'a': unknown dtype ''"},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, SONDE_EINPUT, "tensor 'a': shape must be a list"},
        {"{" T("a", "F32", "-1", "0", "4") "}", 4, SONDE_EINPUT, "tensor 'a': dimension 0"},
        {"{" T("a", "F32", "1.0", "0", "4") "}", 4, SONDE_EINPUT, "tensor 'a': dimension 0"},
        {"{" T("a", "F32", "1,\\\"2\\\"", "0", "4") "}", 4, SONDE_ESYNTAX, "header"},
        {"{" T("a", "F32", "4294967296,4294967296", "0", "4") "}", 4, SONDE_EINPUT,
         "tensor 'a': the product of its shape overflows"},
        {"{" T("a", "F32", "0,4294967296,4294967296", "0", "0") "}", 0, SONDE_EINPUT, "tensor 'a': the product"},
        {"{" T("a", "F32", "2305843009213693952,2", "0", "0") "}", 0, SONDE_EINPUT, "tensor 'a': the product"},
        {"{" T("a", "F32", "1,1,1,1,1,1,1", "0", "4") "}", 4, SONDE_EUNSUPPORTED, "tensor 'a': 7 dimensions"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, SONDE_EINPUT, "tensor 'a': data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, SONDE_EINPUT, "tensor 'a': data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", 4, SONDE_EINPUT,
         "tensor 'a': data_offsets"},
        {"{" T("a", "F32", "1", "-4", "0") "}", 4, SONDE_EINPUT, "tensor 'a': data_offsets"},
        {"{" T("a", "F32", "1", "4", "0") "}", 4, SONDE_EINPUT, "tensor 'a': its data ends (0) before it begins (4)"},
        {"{" T("a", "F32", "1", "0", "4") "}", 3, SONDE_EINPUT,
         "tensor 'a': its data, bytes 0 to 4, lies outside the file's 3"},
        {"{" T("a", "F32", "1", "0", "9223372036854775807") "}", 4, SONDE_EINPUT,
         "tensor 'a': its data, bytes 0 to 9223372036854775807"},
        {"{" T("a", "F32", "1", "0", "9223372036854775808") "}", 4, SONDE_ESYNTAX, "header"},
        {"{" T("a", "F32", "2", "0", "4") "}", 4, SONDE_EINPUT,
         "tensor 'a': 4 bytes of data; shape [2] of f32 needs 8"},
        {"{" T("a", "F32", "1", "0", "8") "}", 8, SONDE_EINPUT,
         "tensor 'a': 8 bytes of data; shape [1] of f32 needs 4"},
        {"{" T("a", "F32", "1", "0", "0") "}", 0, SONDE_EINPUT,
         "tensor 'a': 0 bytes of data; shape [1] of f32 needs 4"},
        {"{" T("a", "F32", "1", "0", "4") "," T("b", "F32", "1", "2", "6") "}", 6, SONDE_EINPUT,
         "tensor 'b': its data (from byte 2) overlaps that of 'a' (to byte 4)"},
        {"{" T("b", "F32", "1", "0", "4") "," T("a", "F32", "1", "0", "4") "}", 4, SONDE_EINPUT, "overlaps"},
        {"{" T("a", "U8", "1", "0", "1") "," T("b", "U8", "1", "2", "3") "}", 3, SONDE_EINPUT,
         "tensor 'b': bytes 1 to 2 before its data belong to no tensor"},
        {"{" T("a", "U8", "1", "0", "1") "}", 3, SONDE_EINPUT, "bytes 1 to 3 of the data belong to no tensor"},
        {"{\"__metadata__\":[]}", 0, SONDE_EINPUT, "__metadata__ must be an object"},
        {"{\"__metadata__\":{\"a\":1}}", 0, SONDE_EINPUT, "__metadata__: the value of 'a' is not text"},
        {"{\"a\\u0000b\":1}", 0, SONDE_ESYNTAX, "header"},
        {"{\"a\xFF\":1}", 0, SONDE_ESYNTAX, "header"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t n;
        uint8_t *b = st_bytes(rows[i].header, rows[i].n_data, &n);
        snd_stfile *f;
        const sonde_status s = snd_st_parse("bad.st", b, n, &f);
        free(b);
        if (s == rows[i].status && !f && message_has("bad.st: ") && message_has(rows[i].text)) continue;
        print_error("%s: %s '%s', want %s '%s'\n", rows[i].header, sonde_status_name(s), sonde_error_message(),
                    sonde_status_name(rows[i].status), rows[i].text);
        fail();
    }
}

static void st_refuses_lengths(void **state) {
    (void)state;
    static const uint64_t lengths[] = {3, 1000, 0x7FFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFF8};
    const size_t before = snd_alloc_peak();
    for (int i = 0; i < 5; i++) {
        uint8_t b[10] = {0};
        memcpy(b, &lengths[i], 8);
        memcpy(b + 8, "{}", 2);
        uint8_t *copy = exact(b, sizeof b);
        snd_stfile *f;
        CHECK_STATUS(snd_st_parse("bad", copy, sizeof b, &f), SONDE_EINPUT);
        assert_true(message_has("header length"));
        free(copy);
    }
    assert_true(snd_alloc_peak() - before < 1 << 20); // the length in the file was not believed
}

static void st_truncated_anywhere(void **state) {
    (void)state;
    size_t n;
    uint8_t *b = st_bytes(
        "{\"__metadata__\":{\"k\":\"v\"}," T("a", "F32", "2,1", "0", "8") "," T("b", "I64", "1", "8", "16") "}", 16,
        &n);
    for (size_t cut = 0; cut <= n; cut++) {
        uint8_t *copy = exact(b, cut);
        snd_stfile *f;
        const sonde_status s = snd_st_parse("cut", copy, cut, &f);
        assert_int_equal(s == SONDE_OK, cut == n);
        assert_true(s == SONDE_OK || message_has("cut: "));
        snd_st_close(f);
        free(copy);
    }
    free(b);
}

static void st_writes_and_reads(void **state) {
    (void)state;
    double f64[3] = {0.1, -1e300, INFINITY};
    float f32[2] = {1.5f, NAN};
    uint16_t bf16[3] = {0x3F80, 0x7FC0, 0}, f16[1] = {0x3C00};
    int64_t i64[2] = {-1, INT64_MAX};
    int32_t i32[1] = {-7};
    int16_t i16[1] = {300};
    int8_t i8[3] = {-1, 2, 3};
    uint8_t u8[5] = {1, 2, 3, 4, 5}, bools[2] = {0, 1};
    const snd_tensor t[] = {
        {"z \"quoted\" \n", SND_U8, SND_SHAPE(5), u8}, {"bool", SND_BOOL, SND_SHAPE(2), bools},
        {"i8", SND_I8, SND_SHAPE(3, 1), i8},           {"f64", SND_F64, SND_SHAPE(3), f64},
        {"empty", SND_F32, SND_SHAPE(0, 4), f32},      {"f32", SND_F32, SND_SHAPE(1, 2), f32},
        {"i16", SND_I16, SND_SHAPE(1), i16},           {"i64", SND_I64, SND_SHAPE(2), i64},
        {"bf16", SND_BF16, SND_SHAPE(3), bf16},        {"f16", SND_F16, (snd_shape){0}, f16},
        {"i32", SND_I32, SND_SHAPE(1), i32},
    };
    enum { N = sizeof t / sizeof *t };
    const char *meta[] = {"format", "pt", "a\"b", "c\\d\x01"};
    const char *path = path_of("w.safetensors");
    CHECK_OK(snd_st_write(path, t, N, meta, 2));
    snd_stfile *f;
    CHECK_OK(snd_st_open(path, &f));
    assert_string_equal(snd_st_path(f), path);
    assert_int_equal(snd_st_count(f), N);
    for (int i = 0; i < N; i++) {
        const snd_tensor *r = snd_st_find(f, t[i].name);
        assert_non_null(r);
        assert_int_equal(r->dtype, t[i].dtype);
        assert_int_equal(r->shape.nd, t[i].shape.nd);
        assert_true(snd_shape_same(r->shape, t[i].shape));
        const size_t size = (size_t)snd_shape_size(r->shape) * snd_dtype_size(r->dtype);
        if (size) assert_memory_equal(r->data, t[i].data, size);
        assert_int_equal((uintptr_t)r->data % snd_dtype_size(r->dtype), 0);
    }
    for (int i = 1; i < N; i++) assert_true(strcmp(snd_st_at(f, i - 1)->name, snd_st_at(f, i)->name) < 0);
    snd_st_close(f);
}

// The bytes of a file depend on the tensors alone, not on their order; data begins at a multiple of 8.
static void st_order_is_fixed(void **state) {
    (void)state;
    double v[2] = {1, 2};
    snd_tensor t[3] = {
        {"b", SND_F64, SND_SHAPE(2), v}, {"a", SND_F64, SND_SHAPE(1), v}, {"A", SND_U8, SND_SHAPE(3), v}};
    CHECK_OK(snd_st_write(path_of("1"), t, 3, NULL, 0));
    const snd_tensor first = t[0];
    t[0] = t[2];
    t[2] = first;
    CHECK_OK(snd_st_write(path_of("2"), t, 3, NULL, 0));
    char *one, *two;
    size_t n1, n2;
    CHECK_OK(snd_read_file(path_of("1"), 1 << 20, &one, &n1));
    CHECK_OK(snd_read_file(path_of("2"), 1 << 20, &two, &n2));
    assert_int_equal(n1, n2);
    assert_memory_equal(one, two, n1);
    assert_int_equal((8 + (unsigned char)one[0]) % 8, 0);
    const char *a = strstr(one + 8, "\"a\""), *b = strstr(one + 8, "\"b\""), *narrow = strstr(one + 8, "\"A\"");
    assert_true(a < b && b < narrow); // wide types first, so that all are aligned
    snd_free(one);
    snd_free(two);
    t[1].name = "b";
    CHECK_STATUS(snd_st_write(path_of("3"), t, 3, NULL, 0), SONDE_ENAME);
    assert_true(message_has("'b'"));
    t[1].name = "__metadata__";
    CHECK_STATUS(snd_st_write(path_of("3"), t, 3, NULL, 0), SONDE_ENAME);
    assert_int_not_equal(access(path_of("3"), F_OK), 0); // nothing was written
    CHECK_STATUS(snd_st_write("/no/such/folder/x", t, 1, NULL, 0), SONDE_EIO);
    snd_stfile *f;
    CHECK_STATUS(snd_st_open(path_of("none"), &f), SONDE_EIO);
    assert_true(message_has("none"));
    CHECK_OK(snd_write_file(path_of("0"), "", 0));
    CHECK_STATUS(snd_st_open(path_of("0"), &f), SONDE_EINPUT);
    assert_true(message_has("0 bytes"));
}

static void st_survives_lack_of_memory(void **state) {
    (void)state;
    size_t n;
    uint8_t *b = st_bytes("{" T("a", "U8", "1", "0", "1") "," T("b", "F64", "1", "1", "9") "}", 9, &n);
    const size_t before = snd_alloc_bytes();
    sonde_status s = SONDE_ENOMEM;
    for (int k = 1; s != SONDE_OK; k++) {
        snd_stfile *f;
        snd_alloc_fail_at(k);
        s = snd_st_parse("mem", b, n, &f);
        snd_alloc_fail_at(0);
        assert_true(s == SONDE_OK || (s == SONDE_ENOMEM && !f));
        snd_st_close(f);
        assert_int_equal(snd_alloc_bytes(), before);
    }
    free(b);
}

// ---- idx ----------------------------------------------------------------------------------------------------------------

typedef sonde_status parser(const char *name, const uint8_t *bytes, size_t n, snd_array *out);

static void check_values(const snd_array *a, snd_dtype t, snd_shape s, const double *want) {
    char got_shape[160];
    assert_int_equal(a->t.dtype, t);
    if (!snd_shape_same(a->t.shape, s)) print_error("shape %s\n", snd_shape_text(a->t.shape, got_shape));
    assert_true(snd_shape_same(a->t.shape, s));
    double got[64];
    const int64_t n = snd_shape_size(s);
    assert_true(n <= 64);
    snd_convert(a->t.data, t, got, SND_F64, n);
    for (int64_t i = 0; i < n; i++) CHECK_SAME(got[i], want[i]);
}

#define BYTES(text) exact(text, sizeof(text) - 1), sizeof(text) - 1

static void check_good(parser *parse, uint8_t *bytes, size_t n, snd_dtype t, snd_shape s, const double *want) {
    snd_array a;
    CHECK_OK(parse("good", bytes, n, &a));
    check_values(&a, t, s, want);
    snd_array_free(&a);
    snd_array_free(&a);
    CHECK_OK(snd_data_parse("good", bytes, n, NULL, &a)); // recognised by its contents
    check_values(&a, t, s, want);
    snd_array_free(&a);
    free(bytes);
}

static void check_bad(parser *parse, uint8_t *bytes, size_t n, sonde_status status, const char *text) {
    snd_array a;
    const sonde_status s = parse("bad.file", bytes, n, &a);
    if (s != status || !message_has("bad.file: ") || !message_has(text)) {
        print_error("%.*s: %s '%s', want %s '%s'\n", (int)n, (const char *)bytes, sonde_status_name(s),
                    sonde_error_message(), sonde_status_name(status), text);
        fail();
    }
    assert_null(a.t.data);
    assert_null(a.own);
    free(bytes);
}

static void idx_good(void **state) {
    (void)state;
    check_good(snd_idx_parse, BYTES("\0\0\x08\1\0\0\0\3\1\2\xFF"), SND_U8, SND_SHAPE(3), (double[]){1, 2, 255});
    check_good(snd_idx_parse, BYTES("\0\0\x09\1\0\0\0\2\1\xFF"), SND_I8, SND_SHAPE(2), (double[]){1, -1});
    check_good(snd_idx_parse, BYTES("\0\0\x0B\2\0\0\0\1\0\0\0\2\1\2\xFF\xFE"), SND_I16, SND_SHAPE(1, 2),
               (double[]){258, -2});
    check_good(snd_idx_parse, BYTES("\0\0\x0C\1\0\0\0\1\0\1\2\3"), SND_I32, SND_SHAPE(1), (double[]){66051});
    check_good(snd_idx_parse, BYTES("\0\0\x0D\1\0\0\0\1\x3F\x80\0\0"), SND_F32, SND_SHAPE(1), (double[]){1});
    check_good(snd_idx_parse, BYTES("\0\0\x0E\1\0\0\0\1\xBF\xF0\0\0\0\0\0\0"), SND_F64, SND_SHAPE(1), (double[]){-1});
    check_good(snd_idx_parse, BYTES("\0\0\x08\3\0\0\0\2\0\0\0\0\0\0\0\7"), SND_U8, SND_SHAPE(2, 0, 7), NULL);
}

static void idx_bad(void **state) {
    (void)state;
    check_bad(snd_idx_parse, BYTES(""), SONDE_EINPUT, "begins with 00 00");
    check_bad(snd_idx_parse, BYTES("\0\0\x08"), SONDE_EINPUT, "begins with 00 00");
    check_bad(snd_idx_parse, BYTES("\1\0\x08\1\0\0\0\0"), SONDE_EINPUT, "begins with 00 00");
    check_bad(snd_idx_parse, BYTES("\0\0\x0A\1\0\0\0\0"), SONDE_EINPUT, "idx type 0x0a");
    check_bad(snd_idx_parse, BYTES("\0\0\x08\0"), SONDE_EINPUT, "0 dimensions");
    check_bad(snd_idx_parse, BYTES("\0\0\x08\7\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"), SONDE_EINPUT,
              "7 dimensions");
    check_bad(snd_idx_parse, BYTES("\0\0\x08\1\0\0\0\3\1\2"), SONDE_EINPUT, "[3] of 1 byte do not fit the 2 bytes");
    check_bad(snd_idx_parse, BYTES("\0\0\x08\1\0\0\0\1\1\2"), SONDE_EINPUT, "[1] of 1 byte do not fit the 2 bytes");
    check_bad(snd_idx_parse, BYTES("\0\0\x0E\3\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF"), SONDE_EINPUT,
              "do not fit the 0 bytes");
    check_bad(snd_idx_parse, BYTES("\0\0\x0E\3\0\0\0\0\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF"), SONDE_EINPUT, "do not fit");
    static const char whole[] = "\0\0\x0B\2\0\0\0\1\0\0\0\2\1\2\xFF\xFE";
    for (size_t n = 0; n < sizeof whole - 1; n++) check_bad(snd_idx_parse, exact(whole, n), n, SONDE_EINPUT, "");
}

// ---- npy ----------------------------------------------------------------------------------------------------------------

// A file of this version, dict and data.
static uint8_t *npy_bytes(int version, const char *dict, const char *data, size_t n_data, size_t *n) {
    const size_t len = strlen(dict), head = version == 1 ? 10 : 12;
    *n = head + len + n_data;
    uint8_t *b = calloc(*n, 1);
    assert_non_null(b);
    memcpy(b, "\x93NUMPY", 6);
    b[6] = (uint8_t)version;
    b[8] = (uint8_t)(len & 255);
    b[9] = (uint8_t)(len >> 8);
    memcpy(b + head, dict, len);
    if (n_data) memcpy(b + head + len, data, n_data);
    return b;
}

#define NPY(version, dict, data, t, s, ...)                                                                            \
    do {                                                                                                               \
        size_t n_;                                                                                                     \
        uint8_t *b_ = npy_bytes(version, dict, data, sizeof(data) - 1, &n_);                                           \
        check_good(snd_npy_parse, b_, n_, t, s, (double[]){__VA_ARGS__});                                              \
    } while (0)
#define DICT(descr, order, shape) "{'descr': '" descr "', 'fortran_order': " order ", 'shape': (" shape "), }  \n"

static void npy_good(void **state) {
    (void)state;
    NPY(1, DICT("<f8", "False", "1,"), "\0\0\0\0\0\0\xF0\xBF", SND_F64, SND_SHAPE(1), -1);
    NPY(2, DICT("<f4", "False", "1, 2"), "\0\0\x80\x3F\0\0\0\x40", SND_F32, SND_SHAPE(1, 2), 1, 2);
    NPY(3, DICT("<f2", "False", ""), "\x00\x3C", SND_F16, (snd_shape){0}, 1);
    NPY(1, DICT("|i1", "False", "2,"), "\x01\xFF", SND_I8, SND_SHAPE(2), 1, -1);
    NPY(1, DICT("|u1", "False", "2,"), "\x01\xFF", SND_U8, SND_SHAPE(2), 1, 255);
    NPY(1, DICT("|b1", "False", "2,"), "\x00\x01", SND_BOOL, SND_SHAPE(2), 0, 1);
    NPY(1, DICT("<i2", "False", "1,"), "\xFE\xFF", SND_I16, SND_SHAPE(1), -2);
    NPY(1, DICT("<i4", "False", "1,"), "\xFE\xFF\xFF\xFF", SND_I32, SND_SHAPE(1), -2);
    NPY(1, DICT("<i8", "False", "1,"), "\xFE\xFF\xFF\xFF\xFF\xFF\xFF\xFF", SND_I64, SND_SHAPE(1), -2);
    NPY(1, DICT(">i4", "False", "1,"), "\0\0\1\2", SND_I32, SND_SHAPE(1), 258);
    NPY(1, DICT("<u2", "False", "2,"), "\xFE\xFF\x03\x00", SND_I32, SND_SHAPE(2), 65534, 3);
    NPY(1, DICT(">u4", "False", "1,"), "\xFF\xFF\xFF\xFE", SND_I64, SND_SHAPE(1), 4294967294.0);
    NPY(1, DICT("<f8", "False", "0, 3"), "", SND_F64, SND_SHAPE(0, 3), 0);
    NPY(1, "{\"shape\":(2L,),\"descr\":\"|u1\",\"fortran_order\":True}", "\1\2", SND_U8, SND_SHAPE(2), 1, 2);
    // [2, 3, 2] in Fortran order: element (i, j, k) lies at i + 2j + 6k
    NPY(1, DICT("|u1", "True", "2, 3, 2"), "\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0A\x0B", SND_U8,
        SND_SHAPE(2, 3, 2), 0, 6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11);
}

static void npy_bad(void **state) {
    (void)state;
    static const struct {
        int version;
        const char *dict;
        size_t n_data;
        sonde_status status;
        const char *text;
    } rows[] = {
        {0, DICT("|u1", "False", "1,"), 1, SONDE_EUNSUPPORTED, "npy version 0"},
        {4, DICT("|u1", "False", "1,"), 1, SONDE_EUNSUPPORTED, "npy version 4"},
        {1, "", 0, SONDE_EINPUT, "not a dict"},
        {1, "{}", 0, SONDE_EINPUT, "descr is missing"},
        {1, "{'descr': '|u1', 'shape': (1,)}", 1, SONDE_EINPUT, "fortran_order is missing"},
        {1, "{'descr': '|u1', 'fortran_order': False}", 1, SONDE_EINPUT, "shape is missing"},
        {1, "{'descr': '|u1', 'descr': '|u1'}", 1, SONDE_EINPUT, "'descr' stands twice"},
        {1, "{'other': 1}", 1, SONDE_EINPUT, "unknown key 'other'"},
        {1, "{'descr' '|u1'}", 1, SONDE_EINPUT, "':' is needed after 'descr'"},
        {1, "{'descr", 1, SONDE_EINPUT, "does not end"},
        {1, "{descr: 1}", 1, SONDE_EINPUT, "a quoted text is needed"},
        {1, DICT("|O", "False", "1,"), 1, SONDE_EUNSUPPORTED, "type '|O'"},
        {1, DICT("<c8", "False", "1,"), 8, SONDE_EUNSUPPORTED, "type '<c8'"},
        {1, DICT("<U4", "False", "1,"), 16, SONDE_EUNSUPPORTED, "type '<U4'"},
        {1, DICT("|f8", "False", "1,"), 8, SONDE_EINPUT, "byte order"},
        {1, DICT("", "False", "1,"), 1, SONDE_EUNSUPPORTED, "type ''"},
        {1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", 4, SONDE_EUNSUPPORTED, "structured"},
        {1, DICT("|u1", "Maybe", "1,"), 1, SONDE_EINPUT, "fortran_order"},
        {1, DICT("|u1", "False", "-1,"), 1, SONDE_EINPUT, "not a count"},
        {1, DICT("|u1", "False", "1 2"), 2, SONDE_EINPUT, "',' or ')'"},
        {1, DICT("|u1", "False", "1,1,1,1,1,1,1"), 1, SONDE_EUNSUPPORTED, "more than 6"},
        {1, DICT("|u1", "False", "99999999999999999999,"), 1, SONDE_EINPUT, "too large"},
        {1, DICT("<f8", "False", "4294967296,4294967296"), 0, SONDE_EINPUT, "does not fit the 0 bytes"},
        {1, DICT("<f8", "True", "0,4294967296,4294967296"), 0, SONDE_EINPUT, "does not fit"},
        {1, DICT("<f8", "False", "2,"), 8, SONDE_EINPUT, "shape [2] of 8 bytes each does not fit the 8 bytes"},
        {1, DICT("<f8", "False", "1,"), 9, SONDE_EINPUT, "shape [1] of 8 bytes each does not fit the 9 bytes"},
        {1, DICT("|u1", "False", "1,") "x", 1, SONDE_EINPUT, "text after the dict"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t n;
        uint8_t *b = npy_bytes(rows[i].version, rows[i].dict, "0123456789abcdef", rows[i].n_data, &n);
        check_bad(snd_npy_parse, b, n, rows[i].status, rows[i].text);
    }
    size_t n;
    uint8_t *b = npy_bytes(1, DICT("<f4", "False", "1,"), "0123", 4, &n);
    for (size_t cut = 0; cut < n; cut++) check_bad(snd_npy_parse, exact(b, cut), cut, SONDE_EINPUT, "");
    b[9] = 0xFF; // a header longer than the file
    check_bad(snd_npy_parse, exact(b, n), n, SONDE_EINPUT, "header length");
    free(b);
}

// ---- csv ----------------------------------------------------------------------------------------------------------------

static void csv_good(void **state) {
    (void)state;
    check_good(snd_csv_parse, BYTES("1,2\n3,4\n"), SND_F64, SND_SHAPE(2, 2), (double[]){1, 2, 3, 4});
    check_good(snd_csv_parse, BYTES("1,2\r\n3,4"), SND_F64, SND_SHAPE(2, 2), (double[]){1, 2, 3, 4});
    check_good(snd_csv_parse, BYTES("\n\n1;-2.5e-3\n\n3;4\n\n"), SND_F64, SND_SHAPE(2, 2),
               (double[]){1, -2.5e-3, 3, 4});
    check_good(snd_csv_parse, BYTES("1\t 2 \n3\t4\n"), SND_F64, SND_SHAPE(2, 2), (double[]){1, 2, 3, 4});
    check_good(snd_csv_parse, BYTES("  1  2\n3 4  \n"), SND_F64, SND_SHAPE(2, 2), (double[]){1, 2, 3, 4});
    check_good(snd_csv_parse, BYTES("\"1\",\"2\" \n 3 , 4 \n"), SND_F64, SND_SHAPE(2, 2), (double[]){1, 2, 3, 4});
    check_good(snd_csv_parse,
               BYTES("\xEF\xBB\xBF"
                     "7\n8\n"),
               SND_F64, SND_SHAPE(2, 1), (double[]){7, 8});
    check_good(snd_csv_parse, BYTES("nan,inf,-inf\n"), SND_F64, SND_SHAPE(1, 3), (double[]){NAN, INFINITY, -INFINITY});
    check_good(snd_csv_parse, BYTES("a,b\n1,2\n"), SND_F64, SND_SHAPE(1, 2), (double[]){1, 2});
    check_good(snd_csv_parse, BYTES(",b\n1,2\n"), SND_F64, SND_SHAPE(1, 2), (double[]){1, 2});
    check_good(snd_csv_parse, BYTES("a,b\n"), SND_F64, SND_SHAPE(0, 2), NULL);
    check_good(snd_csv_parse, BYTES("1\r2\r"), SND_F64, SND_SHAPE(2, 1), (double[]){1, 2});
    snd_array a;
    static const char text[] = "\"x, \"\"y\"\"\"; two \n1;2\n";
    CHECK_OK(snd_csv_parse("h", (const uint8_t *)text, sizeof text - 1, &a));
    assert_int_equal(a.n_columns, 2);
    assert_string_equal(a.columns[0], "x, \"y\"");
    assert_string_equal(a.columns[1], "two");
    snd_array_free(&a);
}

static void csv_bad(void **state) {
    (void)state;
    check_bad(snd_csv_parse, BYTES(""), SONDE_EINPUT, "no numbers");
    check_bad(snd_csv_parse, BYTES("\n \r\n"), SONDE_EINPUT, "no numbers");
    check_bad(snd_csv_parse, BYTES("1,2\n3\n"), SONDE_EINPUT, "line 2: 1 columns, the lines before have 2");
    check_bad(snd_csv_parse, BYTES("1,2\n3,4,5\n"), SONDE_EINPUT, "line 2: 3 columns");
    check_bad(snd_csv_parse, BYTES("1,2\n\n3,x\n"), SONDE_EINPUT, "line 3, column 2: 'x' is not a number");
    check_bad(snd_csv_parse, BYTES("1,2\n,4\n"), SONDE_EINPUT, "line 2, column 1: '' is not a number");
    check_bad(snd_csv_parse, BYTES("1,2\n3,\n"), SONDE_EINPUT, "line 2, column 2: '' is not a number");
    check_bad(snd_csv_parse, BYTES("1,,2\n3,4,5\n"), SONDE_EINPUT, "line 1, column 2: '' is not a number");
    check_bad(snd_csv_parse, BYTES("a,b\nc,d\n"), SONDE_EINPUT, "line 2, column 1: 'c'");
    check_bad(snd_csv_parse, BYTES("1;2\n1,5;2\n"), SONDE_EINPUT, "line 2, column 1: '1,5' is not a number");
    check_bad(snd_csv_parse, BYTES("1,2\n0x10,2\n"), SONDE_EINPUT, "'0x10'");
    check_bad(snd_csv_parse, BYTES("1,2\n3 3,2\n"), SONDE_EINPUT, "'3 3'");
    check_bad(snd_csv_parse, BYTES("1,2\n\"3,2\n"), SONDE_ESYNTAX, "line 2, column 1: a quote that is not closed");
    check_bad(snd_csv_parse, BYTES("1,2\n\"3\"x,2\n"), SONDE_ESYNTAX, "line 2, column 1: text after the closing quote");
    check_bad(snd_csv_parse, BYTES("1,\0\n"), SONDE_EINPUT, "line 1, column 2: a control character (0x00)");
    static const char whole[] = "a,\"b\"\r\n1,\"2\"\r\n";
    for (size_t n = 0; n < sizeof whole; n++) {
        uint8_t *b = exact(whole, n);
        snd_array a;
        const sonde_status s = snd_csv_parse("cut", b, n, &a);
        assert_true(s == SONDE_OK || message_has("cut: "));
        snd_array_free(&a);
        free(b);
    }
}

static const char *words_column; // of the parser below
static sonde_status parse_words(const char *name, const uint8_t *bytes, size_t n, snd_array *out) {
    return snd_csv_parse_words(name, bytes, n, words_column, out);
}

static void check_words(const char *text, const char *column, snd_shape s, const double *want, const char *words) {
    snd_array a;
    CHECK_OK(snd_csv_parse_words("good", (const uint8_t *)text, strlen(text), column, &a));
    check_values(&a, SND_F64, s, want);
    char joined[256] = "";
    for (int64_t i = 0; i < a.n_words; i++) snprintf(joined + strlen(joined), 100, "%s|", a.words[i]);
    assert_string_equal(joined, words);
    snd_array_free(&a);
}

static void csv_words(void **state) {
    (void)state;
    check_words("1,b\n2,a\n3,b\n", NULL, SND_SHAPE(3, 2), (double[]){1, 0, 2, 1, 3, 0}, "b|a|");
    check_words("x,kind\n1,b\n2,a\n", NULL, SND_SHAPE(2, 2), (double[]){1, 0, 2, 1}, "b|a|");
    check_words("kind,x\n\"a, b\",1\nc,2\n", "kind", SND_SHAPE(2, 2), (double[]){0, 1, 1, 2}, "a, b|c|");
    check_words("a;1\nb;2\n", "1", SND_SHAPE(2, 2), (double[]){0, 1, 1, 2}, "a|b|");
    check_words("2,7\n2,8\n", "2", SND_SHAPE(2, 2), (double[]){2, 0, 2, 1}, "7|8|");           // asked for as words
    check_words("3,2,1\n1,2,3\n", "1", SND_SHAPE(2, 3), (double[]){0, 2, 1, 1, 2, 3}, "3|1|"); // no header calls it so
    static const struct {
        const char *text, *column;
        sonde_status status;
        const char *says;
    } bad[] = {{"x,kind\n1,a\n", "knid", SONDE_ENAME, "no column 'knid' among its 2"},
               {"1,a\n", "3", SONDE_ENAME, "no column '3'"},
               {"1,a\n", "0", SONDE_ENAME, "no column '0'"},
               {"1,a\nx,b\n", NULL, SONDE_EINPUT, "line 2, column 1: 'x' is not a number"},
               {"1,a\n2,\n", NULL, SONDE_EINPUT, "line 2, column 2: no class stands there"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        words_column = bad[i].column;
        const size_t n = strlen(bad[i].text);
        check_bad(parse_words, exact(bad[i].text, n), n, bad[i].status, bad[i].says);
    }
    char many[4000] = ""; // more than the first table of places has room for
    for (int i = 0; i < 300; i++) snprintf(many + strlen(many), 20, "%d,w%d\n", i % 7, i % 150);
    snd_array a;
    CHECK_OK(snd_csv_parse_words("many", (const uint8_t *)many, strlen(many), NULL, &a));
    assert_int_equal(a.n_words, 150);
    for (int i = 0; i < 300; i++) CHECK_SAME(((double *)a.t.data)[2 * i + 1], i % 150);
    snd_array_free(&a);
    const size_t before = snd_alloc_bytes();
    sonde_status s = SONDE_ENOMEM;
    for (int k = 1; s != SONDE_OK; k++) {
        snd_alloc_fail_at(k);
        s = snd_csv_parse_words("mem", (const uint8_t *)many, strlen(many), NULL, &a);
        snd_alloc_fail_at(0);
        assert_true(s == SONDE_OK || s == SONDE_ENOMEM);
        snd_array_free(&a);
        assert_int_equal(snd_alloc_bytes(), before);
    }
}

// A comma as the user's decimal point changes nothing.
static void csv_ignores_the_locale(void **state) {
    (void)state;
    const char *locales[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "nl_NL.UTF-8"};
    for (int i = 0; i < 4 && !setlocale(LC_NUMERIC, locales[i]); i++) {}
    check_good(snd_csv_parse, BYTES("0.5,1.25\n"), SND_F64, SND_SHAPE(1, 2), (double[]){0.5, 1.25});
    setlocale(LC_NUMERIC, "C");
}

// ---- files of any kind ------------------------------------------------------------------------------------------------

static void write_gz(const char *path, const void *data, size_t n) {
    gzFile z = gzopen(path, "wb");
    assert_non_null(z);
    assert_int_equal(gzwrite(z, data, (unsigned)n), (int)n);
    assert_int_equal(gzclose(z), Z_OK);
}

static void loads_any_kind(void **state) {
    (void)state;
    snd_array a;
    const char *path = path_of("labels.gz");
    write_gz(path, "\0\0\x08\1\0\0\0\2\7\x08", 10);
    CHECK_OK(snd_data_load(path, &a));
    check_values(&a, SND_U8, SND_SHAPE(2), (double[]){7, 8});
    assert_string_equal(a.t.name, path);
    snd_array_free(&a);

    char *packed;
    size_t n;
    CHECK_OK(snd_read_file(path, 1 << 20, &packed, &n));
    path = path_of("cut.gz");
    for (size_t cut = 2; cut < n; cut++) { // one byte alone is not gzip yet
        CHECK_OK(snd_write_file(path, packed, cut));
        CHECK_STATUS(snd_data_load(path, &a), SONDE_EINPUT);
    }
    snd_free(packed);

    float v[2] = {1, 2};
    const snd_tensor t[2] = {{"x", SND_F32, SND_SHAPE(2), v}, {"y", SND_F32, SND_SHAPE(1), v}};
    path = path_of("t.safetensors");
    CHECK_OK(snd_st_write(path, t, 1, NULL, 0));
    CHECK_OK(snd_data_load(path, &a));
    check_values(&a, SND_F32, SND_SHAPE(2), (double[]){1, 2});
    snd_array_free(&a);
    CHECK_OK(snd_st_write(path, t, 2, NULL, 0));
    CHECK_STATUS(snd_data_load(path, &a), SONDE_ENAME);
    assert_true(message_has("2 tensors"));
    char named[300];
    snprintf(named, sizeof named, "%s#y", path);
    CHECK_OK(snd_data_load(named, &a));
    check_values(&a, SND_F32, SND_SHAPE(1), (double[]){1});
    snd_array_free(&a);
    snprintf(named, sizeof named, "%s#z", path);
    CHECK_STATUS(snd_data_load(named, &a), SONDE_ENAME);
    assert_true(message_has("no tensor 'z'"));

    CHECK_STATUS(snd_data_load(path_of("none"), &a), SONDE_EIO);
    CHECK_STATUS(snd_data_load(folder, &a), SONDE_EIO);
    check_bad(snd_csv_parse, BYTES("words only\nmore words\n"), SONDE_EINPUT, "not a number");
    CHECK_STATUS(snd_data_parse("f", (const uint8_t *)"PK\3\4....", 8, NULL, &a), SONDE_EUNSUPPORTED);
    CHECK_STATUS(snd_data_parse("f",
                                (const uint8_t *)"\x7F"
                                                 "ELF\1\2",
                                6, NULL, &a),
                 SONDE_EINPUT);
    CHECK_STATUS(snd_data_parse("f", (const uint8_t *)"", 0, NULL, &a), SONDE_EINPUT);
}

static void unpacks_only_what_is_allowed(void **state) {
    (void)state;
    char *zeros = calloc(1, 300000);
    assert_non_null(zeros);
    const char *path = path_of("zeros.gz");
    write_gz(path, zeros, 300000);
    free(zeros);
    uint8_t *data;
    size_t n;
    CHECK_OK(snd_read_unpacked(path, 300000, &data, &n));
    assert_int_equal(n, 300000);
    snd_free(data);
    CHECK_STATUS(snd_read_unpacked(path, 299999, &data, &n), SONDE_EINPUT);
    assert_null(data);
}

static void parsers_survive_lack_of_memory(void **state) {
    (void)state;
    static const char csv[] = "a,b\n1,2\n", idx[] = "\0\0\x0B\1\0\0\0\1\1\2";
    size_t n_npy;
    uint8_t *npy = npy_bytes(1, DICT("<u2", "True", "1,1"), "01", 2, &n_npy);
    const struct {
        const void *p;
        size_t n;
    } files[] = {{csv, sizeof csv - 1}, {idx, sizeof idx - 1}, {npy, n_npy}};
    for (int i = 0; i < 3; i++) {
        const size_t before = snd_alloc_bytes();
        sonde_status s = SONDE_ENOMEM;
        for (int k = 1; s != SONDE_OK; k++) {
            snd_array a;
            snd_alloc_fail_at(k);
            s = snd_data_parse("mem", files[i].p, files[i].n, NULL, &a);
            snd_alloc_fail_at(0);
            assert_true(s == SONDE_OK || s == SONDE_ENOMEM);
            snd_array_free(&a);
            assert_int_equal(snd_alloc_bytes(), before);
        }
    }
    free(npy);
}

// ---- TFRecord -------------------------------------------------------------------------------------------------------------

// TensorFlow's own event files begin with a record of 24 bytes: these are its first twelve.
static void tfrecord_head_is_theirs(void **state) {
    (void)state;
    static const char theirs[] = "\x18\0\0\0\0\0\0\0\xa3\x7f\x4b\x22";
    const char data[24] = {0};
    snd_buf b = {0};
    snd_tfrecord_put(&b, data, sizeof data);
    assert_int_equal(b.len, 24 + 16);
    assert_memory_equal(b.s, theirs, 12);
    snd_buf_free(&b);
}

// Written and read; cut anywhere or with any bit turned over, it is no record.
static void tfrecord_is_checked(void **state) {
    (void)state;
    snd_buf b = {0};
    const uint8_t *data;
    size_t len;
    snd_tfrecord_put(&b, "", 0);
    snd_tfrecord_put(&b, "step \0 one", 10);
    assert_int_equal(snd_tfrecord_at(b.s, b.len, &data, &len), 16);
    assert_int_equal(len, 0);
    const char *second = b.s + 16;
    assert_int_equal(snd_tfrecord_at(second, b.len - 16, &data, &len), 26);
    assert_int_equal(len, 10);
    assert_memory_equal(data, "step \0 one", 10);
    for (size_t n = 0; n < 26; n++) assert_int_equal(snd_tfrecord_at(second, n, &data, &len), 0);
    for (size_t bit = 0; bit < 26 * 8; bit++) {
        b.s[16 + bit / 8] ^= (char)(1 << bit % 8);
        assert_int_equal(snd_tfrecord_at(second, 26, &data, &len), 0);
        b.s[16 + bit / 8] ^= (char)(1 << bit % 8);
    }
    snd_buf_free(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(st_accepts),
        cmocka_unit_test(st_refuses),
        cmocka_unit_test(st_refuses_lengths),
        cmocka_unit_test(st_truncated_anywhere),
        cmocka_unit_test(st_writes_and_reads),
        cmocka_unit_test(st_order_is_fixed),
        cmocka_unit_test(st_survives_lack_of_memory),
        cmocka_unit_test(idx_good),
        cmocka_unit_test(idx_bad),
        cmocka_unit_test(npy_good),
        cmocka_unit_test(npy_bad),
        cmocka_unit_test(csv_good),
        cmocka_unit_test(csv_bad),
        cmocka_unit_test(csv_words),
        cmocka_unit_test(csv_ignores_the_locale),
        cmocka_unit_test(loads_any_kind),
        cmocka_unit_test(unpacks_only_what_is_allowed),
        cmocka_unit_test(tfrecord_head_is_theirs),
        cmocka_unit_test(tfrecord_is_checked),
        cmocka_unit_test(parsers_survive_lack_of_memory),
    };
    return cmocka_run_group_tests_name("io", tests, make_folder, remove_folder);
}
