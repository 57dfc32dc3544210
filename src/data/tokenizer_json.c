// A tokenizer as JSON and back. jansson reads (strict UTF-8, depth limit); what the numbers must be is checked by
// snd_tokenizer_build, so a file can say anything.
//   {"format": "sonde tokenizer", "version": 1, "kind": "bpe", "specials": ["pad", "eos"], "merges": [[116, 104], ...]}
//   chars: "points": [10, 32, ...] in place of merges; bytes: neither
#include "data/inner.h"

#include <jansson.h>
#include <string.h>

enum { VERSION = 1, MOST_BYTES = 1 << 26 };
static const char FORMAT[] = "sonde tokenizer";

// ---- writing --------------------------------------------------------------------------------------------------------------

static void put_list(snd_buf *b, const char *key, int64_t n, bool pairs, const int32_t *v) {
    snd_buf_printf(b, ",\n \"%s\": [", key);
    for (int64_t i = 0; i < n; i++) {
        if (i) snd_buf_put(b, i % 16 ? ", " : ",\n  ");
        if (pairs)
            snd_buf_printf(b, "[%d, %d]", (int)v[2 * i], (int)v[2 * i + 1]);
        else
            snd_buf_printf(b, "%d", (int)v[i]);
    }
    snd_buf_put(b, "]");
}

sonde_status snd_tokenizer_write(const snd_tokenizer *t, snd_buf *b) {
    snd_buf_printf(b, "{\"format\": \"%s\", \"version\": %d, \"kind\": \"%s\", \"specials\": [", FORMAT, VERSION,
                   snd_tokenizer_kind_name(t->kind));
    const char *between = "";
    for (int s = 0; s < SND_SPECIAL_COUNT; s++) {
        if (!(t->specials >> s & 1)) continue;
        snd_buf_printf(b, "%s\"%s\"", between, snd_special_names[s]);
        between = ", ";
    }
    snd_buf_put(b, "]");
    if (t->kind == SND_TOK_BPE) put_list(b, "merges", t->plain - 256, true, &t->merges->left);
    if (t->kind == SND_TOK_CHARS) put_list(b, "points", t->plain, false, t->points);
    snd_buf_put(b, "}\n");
    return b->failed ? SONDE_ENOMEM : SONDE_OK;
}

sonde_status snd_tokenizer_save(const snd_tokenizer *t, const char *path) {
    snd_buf b = {0};
    sonde_status s = snd_tokenizer_write(t, &b);
    if (s == SONDE_OK) s = snd_write_file(path, b.s, b.len);
    snd_buf_free(&b);
    return s;
}

// ---- reading --------------------------------------------------------------------------------------------------------------

static sonde_status read_kind(const char *name, const json_t *root, snd_tokenizer_kind *kind) {
    const char *format = json_string_value(json_object_get(root, "format"));
    const char *word = json_string_value(json_object_get(root, "kind"));
    const json_t *version = json_object_get(root, "version");
    char shown[72];
    SND_FAIL_IF(!format || strcmp(format, FORMAT) != 0, SONDE_EINPUT, "%s: no tokenizer: \"format\" must be \"%s\"",
                name, FORMAT);
    SND_FAIL_IF(!json_is_integer(version) || json_integer_value(version) != VERSION, SONDE_EUNSUPPORTED,
                "%s: \"version\" %lld; this build reads %d", name, (long long)json_integer_value(version), VERSION);
    for (int k = SND_TOK_BYTES; k <= SND_TOK_BPE; k++)
        if (word && strcmp(word, snd_tokenizer_kind_name((snd_tokenizer_kind)k)) == 0) *kind = (snd_tokenizer_kind)k;
    SND_FAIL_IF(!*kind, SONDE_EINPUT, "%s: \"kind\" is '%s'; bytes, chars and bpe are known", name,
                snd_shown(shown, word ? word : ""));
    return SONDE_OK;
}

static sonde_status read_specials(const char *name, const json_t *root, unsigned *specials) {
    const json_t *list = json_object_get(root, "specials");
    char shown[72];
    SND_FAIL_IF(!json_is_array(list), SONDE_EINPUT, "%s: \"specials\" is not a list", name);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *word = json_string_value(json_array_get(list, i));
        int s = 0;
        while (s < SND_SPECIAL_COUNT && !(word && strcmp(word, snd_special_names[s]) == 0)) s++;
        SND_FAIL_IF(s == SND_SPECIAL_COUNT, SONDE_EINPUT,
                    "%s: special %zu is '%s'; unk, pad, bos, eos and mask are known", name, i,
                    snd_shown(shown, word ? word : ""));
        *specials |= 1u << s;
    }
    return SONDE_OK;
}

static bool read_number(const json_t *v, int32_t *out) {
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > INT32_MAX) return false;
    *out = (int32_t)json_integer_value(v);
    return true;
}

static bool read_item(const json_t *v, int each, int32_t *out) {
    if (each == 1) return read_number(v, out);
    return json_is_array(v) && json_array_size(v) == 2 && read_number(json_array_get(v, 0), out) &&
           read_number(json_array_get(v, 1), out + 1);
}

static sonde_status read_list(const char *name, const json_t *root, const char *key, int each, int32_t **out,
                              int64_t *n) {
    const json_t *list = json_object_get(root, key);
    SND_FAIL_IF(!json_is_array(list), SONDE_EINPUT, "%s: \"%s\" is not a list", name, key);
    SND_FAIL_IF(json_array_size(list) > SND_VOCAB_MAX, SONDE_ERANGE, "%s: %zu %s; a vocabulary has at most %d", name,
                json_array_size(list), key, SND_VOCAB_MAX);
    *n = (int64_t)json_array_size(list);
    *out = snd_calloc((size_t)(*n * each + 2), sizeof **out);
    if (!*out) return SONDE_ENOMEM;
    for (int64_t i = 0; i < *n; i++)
        SND_FAIL_IF(!read_item(json_array_get(list, (size_t)i), each, *out + i * each), SONDE_EINPUT,
                    "%s: \"%s\"[%lld] is not %s", name, key, (long long)i,
                    each == 1 ? "a character's number" : "a pair of tokens");
    return SONDE_OK;
}

static sonde_status read_tree(const char *name, const json_t *root, snd_tokenizer **out) {
    snd_tokenizer_kind kind = SND_TOK_INVALID;
    unsigned specials = 0;
    int32_t *list = NULL;
    int64_t n = 0;
    SND_TRY(read_kind(name, root, &kind));
    SND_TRY(read_specials(name, root, &specials));
    sonde_status s = SONDE_OK;
    if (kind != SND_TOK_BYTES)
        s = read_list(name, root, kind == SND_TOK_BPE ? "merges" : "points", kind == SND_TOK_BPE ? 2 : 1, &list, &n);
    if (s != SONDE_OK) {
        snd_free(list);
        return s;
    }
    _Static_assert(sizeof(snd_merge) == 2 * sizeof(int32_t), "a list of pairs is a list of merges");
    void *taken = list;
    return snd_tokenizer_build(name, kind, kind == SND_TOK_BPE ? taken : NULL, kind == SND_TOK_CHARS ? taken : NULL, n,
                               specials, out);
}

sonde_status snd_tokenizer_parse(const char *name, const char *json, size_t n, snd_tokenizer **out) {
    *out = NULL;
    json_error_t e;
    json_t *root = json_loadb(json, n, JSON_REJECT_DUPLICATES, &e);
    SND_FAIL_IF(!root, SONDE_ESYNTAX, "%s:%d:%d: %s", name, e.line, e.column, e.text);
    const sonde_status s = read_tree(name, root, out);
    json_decref(root);
    return s;
}

sonde_status snd_tokenizer_load(const char *path, snd_tokenizer **out) {
    char *text;
    size_t n;
    *out = NULL;
    SND_TRY(snd_read_file(path, MOST_BYTES, &text, &n));
    const sonde_status s = snd_tokenizer_parse(path, text, n, out);
    snd_free(text);
    return s;
}
