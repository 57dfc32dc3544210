// Whether a checkpoint's files are what was saved. state.json, written last, has the length and the CRC-32C of every other
// file, and at its own end that of the text before it. A checkpoint of before there were sums has neither and is taken as it is.
#include "train/inner.h"

#include "io/io.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

static const char FILES[] = "files", LENGTH[] = "bytes", SUM[] = "crc32c";

// ---- writing --------------------------------------------------------------------------------------------------------------------

static sonde_status put_file(snd_arena *a, const char *folder, const char *name, snd_json *j) {
    const char *path = snd_arena_printf(a, "%s/%s", folder, name);
    snd_map m;
    char sum[16];
    if (!path) return SONDE_ENOMEM;
    SND_TRY(snd_map_open(path, &m));
    snprintf(sum, sizeof sum, "%08" PRIx32, snd_crc32c(m.bytes, m.n));
    snd_json_open_flat(j, name, '{');
    snd_json_int(j, LENGTH, (int64_t)m.n);
    snd_json_str(j, SUM, sum);
    snd_json_close(j, '}');
    snd_map_close(&m);
    return SONDE_OK;
}

typedef struct listing {
    snd_arena *arena;
    const char *folder;
    snd_json *j;
    sonde_status s;
} listing;

static void list_file(void *ctx, const char *name) {
    listing *l = ctx;
    if (l->s == SONDE_OK) l->s = put_file(l->arena, l->folder, name, l->j);
}

sonde_status snd_intact_put(snd_arena *a, const char *folder, snd_json *j) {
    listing l = {a, folder, j, SONDE_OK};
    snd_json_open(j, FILES, '{');
    SND_TRY(snd_list_folder(folder, list_file, &l));
    SND_TRY(l.s);
    snd_json_close(j, '}');
    char sum[16];
    snprintf(sum, sizeof sum, "%08" PRIx32, snd_crc32c(j->b->s, j->b->len));
    snd_json_str(j, SUM, sum);
    return SONDE_OK;
}

// ---- reading --------------------------------------------------------------------------------------------------------------------

// How much of a state's text its own sum is of: all before the last key and the comma in front of it.
static size_t summed(const char *text, size_t n) {
    const size_t key = sizeof SUM + 1; // with its quotes
    size_t at = n > key ? n - key : 0;
    while (at > 0 && (text[at] != '"' || memcmp(text + at + 1, SUM, sizeof SUM - 1) != 0)) at--;
    while (at > 0 && text[at - 1] != ',') at--;
    return at ? at - 1 : 0;
}

static sonde_status check_sum(const char *path, const char *saved, const void *data, size_t n) {
    char found[16];
    char shown[72];
    snprintf(found, sizeof found, "%08" PRIx32, snd_crc32c(data, n));
    SND_FAIL_IF(!saved || strcmp(saved, found) != 0, SONDE_EINPUT,
                "%s: damaged, or changed after it was saved: the CRC-32C of its %zu bytes is %s, saved were %s", path,
                n, found, saved ? snd_shown(shown, saved) : "none");
    return SONDE_OK;
}

static sonde_status check_file(snd_arena *a, const char *folder, const char *name, const json_t *saved) {
    const char *path = snd_arena_printf(a, "%s/%s", folder, name);
    const json_t *bytes = json_object_get(saved, LENGTH);
    snd_map m;
    if (!path) return SONDE_ENOMEM;
    SND_TRY(snd_map_open(path, &m));
    sonde_status s = SONDE_OK;
    if (!json_is_integer(bytes) || json_integer_value(bytes) != (json_int_t)m.n)
        s = snd_fail(SONDE_EINPUT, __FILE__, __LINE__, "%s: %zu bytes; %lld were saved", path, m.n,
                     (long long)json_integer_value(bytes));
    if (s == SONDE_OK) s = check_sum(path, json_string_value(json_object_get(saved, SUM)), m.bytes, m.n);
    snd_map_close(&m);
    return s;
}

static bool is_read(const char *name, const char *const *read, int n) {
    for (int i = 0; i < n; i++)
        if (!strcmp(name, read[i])) return true;
    return n < 0;
}

static sonde_status check_all(snd_arena *a, const char *folder, json_t *o, const char *path, const char *text, size_t n,
                              const char *const *read, int n_read) {
    json_t *files = json_object_get(o, FILES), *file;
    const json_t *sum = json_object_get(o, SUM);
    const char *name;
    if (!files && !sum) return SONDE_OK;
    SND_TRY(check_sum(path, json_string_value(sum), text, summed(text, n)));
    json_object_foreach(files, name, file) if (is_read(name, read, n_read)) SND_TRY(check_file(a, folder, name, file));
    return SONDE_OK;
}

sonde_status snd_state_load(const char *path, char **text, size_t *n, struct json_t **out) {
    json_error_t e;
    SND_TRY(snd_read_file(path, (size_t)1 << 20, text, n));
    *out = json_loadb(*text, *n, JSON_REJECT_DUPLICATES, &e);
    if (json_is_object(*out)) return SONDE_OK;
    const sonde_status s =
        snd_fail(SONDE_EINPUT, __FILE__, __LINE__, "%s: is no JSON object (%s)", path, *out ? "another value" : e.text);
    json_decref(*out);
    snd_free(*text);
    return s;
}

sonde_status snd_checkpoint_check(snd_arena *a, const char *folder, const char *const *read, int n_read) {
    const char *path = snd_arena_printf(a, "%s/state.json", folder);
    char *text;
    size_t n;
    json_t *o;
    if (!path) return SONDE_ENOMEM;
    SND_TRY(snd_state_load(path, &text, &n, &o));
    const sonde_status s = check_all(a, folder, o, path, text, n, read, n_read);
    json_decref(o);
    snd_free(text);
    return s;
}
