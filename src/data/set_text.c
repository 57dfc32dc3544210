// Text and token files: one long row of tokens per split. A text is cut at the beginnings of lines into train, valid and
// test, in this order; bytes and token files are read where they lie, everything else is encoded once, into 16 bits each.
#include "data/inner.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

// ---- files ----------------------------------------------------------------------------------------------------------------

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_text_name(const char *name) {
    const size_t n = strlen(name);
    return name[0] != '.' &&
           ((n > 4 && strcmp(name + n - 4, ".txt") == 0) || (n > 7 && strcmp(name + n - 7, ".txt.gz") == 0));
}

typedef struct names {
    char **v;
    int64_t n, cap;
} names;

static void names_free(names *l) {
    for (int64_t i = 0; i < l->n; i++) snd_free(l->v[i]);
    snd_free(l->v);
}

static sonde_status list_folder(const char *path, DIR *dir, names *l) {
    for (const struct dirent *e; (e = readdir(dir));) {
        if (!is_text_name(e->d_name)) continue;
        void *v = l->v;
        if (!snd_grow(&v, &l->cap, l->n + 1, sizeof *l->v)) return SONDE_ENOMEM;
        l->v = v;
        l->v[l->n] = snd_malloc(strlen(path) + strlen(e->d_name) + 2);
        if (!l->v[l->n]) return SONDE_ENOMEM;
        sprintf(l->v[l->n++], "%s/%s", path, e->d_name);
    }
    SND_FAIL_IF(l->n == 0, SONDE_EINPUT, "%s: no .txt file in this folder", path);
    qsort(l->v, (size_t)l->n, sizeof *l->v, by_name);
    return SONDE_OK;
}

// Every file begins on a line of its own.
static sonde_status join_files(const names *l, snd_buf *all) {
    for (int64_t i = 0; i < l->n; i++) {
        snd_map m;
        SND_TRY(snd_map_unpacked(l->v[i], &m));
        snd_buf_putn(all, (const char *)m.bytes, m.n);
        if (m.n && m.bytes[m.n - 1] != '\n') snd_buf_put(all, "\n");
        snd_map_close(&m);
    }
    return all->failed ? SONDE_ENOMEM : SONDE_OK;
}

static sonde_status read_folder(const char *path, snd_map *out) {
    DIR *dir = opendir(path);
    SND_FAIL_IF(!dir, SONDE_EIO, "cannot read folder %s: %s", path,
                errno == EACCES ? "not allowed" : "refused by the system");
    names l = {0};
    snd_buf all = {0};
    sonde_status s = list_folder(path, dir, &l);
    closedir(dir);
    if (s == SONDE_OK) s = join_files(&l, &all);
    names_free(&l);
    if (s != SONDE_OK) {
        snd_buf_free(&all);
        return s;
    }
    *out = (snd_map){.bytes = all.s ? (const uint8_t *)all.s : (const uint8_t *)"", .n = all.len, .heap = all.s};
    return SONDE_OK;
}

// What a program has, as a file of its kind would hold it.
static sonde_status copy_memory(const snd_set *d, snd_map *out) {
    const snd_memory *m = d->memory;
    const size_t n = m->text ? m->n_text : (size_t)m->n_tokens * sizeof(uint16_t);
    uint8_t *copy = snd_malloc(n + 1);
    if (!copy) return SONDE_ENOMEM;
    *out = (snd_map){.bytes = copy, .n = n, .heap = copy};
    if (m->text) memcpy(copy, m->text, n);
    for (int64_t i = 0; !m->text && i < m->n_tokens; i++) {
        SND_FAIL_IF(m->tokens[i] < 0 || m->tokens[i] > UINT16_MAX, SONDE_ERANGE,
                    "%s: token %lld is %lld; 0 to %d are possible", d->name, (long long)i, (long long)m->tokens[i],
                    UINT16_MAX);
        ((uint16_t *)(void *)copy)[i] = (uint16_t)m->tokens[i];
    }
    return SONDE_OK;
}

static sonde_status open_file(snd_set *d, snd_split s) {
    const char *path = snd_set_path(d, s);
    if (!path) return SONDE_OK;
    if (d->memory && s == SND_SPLIT_TRAIN)
        SND_TRY(copy_memory(d, &d->map[s]));
    else
        SND_TRY(snd_is_folder(path) ? read_folder(path, &d->map[s]) : snd_map_unpacked(path, &d->map[s]));
    SND_FAIL_IF(d->map[s].n == 0, SONDE_EINPUT, "%s: empty; there is nothing to learn from or to score", path);
    snd_set_mix(d, d->map[s].bytes, d->map[s].n);
    return SONDE_OK;
}

// ---- splits ---------------------------------------------------------------------------------------------------------------

// The next beginning of a line from `at` on; where lines are very long, of a character.
static size_t next_line(const uint8_t *text, size_t n, size_t at) {
    enum { FAR = 1 << 16 };
    if (at == 0 || at >= n) return at < n ? at : n;
    const size_t most = n - at < FAR ? n - at : FAR;
    const uint8_t *end = memchr(text + at - 1, '\n', most + 1);
    if (end) return (size_t)(end - text) + 1;
    while (at < n && (text[at] & 0xC0) == 0x80) at++;
    return at;
}

// Where the splits end in the first file, which holds n bytes with lines or (lines NULL) n tokens.
static void cut(const snd_set *d, size_t n, const uint8_t *lines, size_t ends[SND_SPLIT_COUNT]) {
    const double valid = d->settings.valid, test = d->settings.test;
    ends[0] = (size_t)((double)n * (1 - valid - test));
    ends[1] = (size_t)((double)n * (1 - test));
    for (int i = 0; i < 2 && lines; i++) ends[i] = next_line(lines, n, ends[i]);
    if (test == 0) ends[1] = n;
    if (valid == 0) ends[0] = ends[1];
    ends[2] = n;
}

void snd_set_spans(const snd_set *d, snd_text out[SND_SPLIT_COUNT]) {
    const snd_map *m = d->map;
    size_t ends[SND_SPLIT_COUNT], from = 0;
    cut(d, m[0].n, m[0].bytes, ends);
    for (int s = 0; s < SND_SPLIT_COUNT; s++) {
        out[s] = (snd_text){(const char *)m[0].bytes + from, ends[s] - from};
        from = ends[s];
        if (s && m[s].n) out[s] = (snd_text){(const char *)m[s].bytes, m[s].n};
    }
}

// ---- text -----------------------------------------------------------------------------------------------------------------

static sonde_status encode_splits(const snd_set *d, const snd_text *text, snd_ids *ids, int64_t *ends) {
    snd_encoder e = {.t = d->tok};
    sonde_status st = SONDE_OK;
    for (int s = 0; s < SND_SPLIT_COUNT && st == SONDE_OK; s++) {
        const char *path = snd_set_path(d, (snd_split)s);
        st = snd_encode_more(&e, path ? path : d->name, (const uint8_t *)text[s].s, text[s].n, ids);
        ends[s] = ids->n;
    }
    snd_free(e.seen);
    return st;
}

// Of the text, not of what is shown for it: an unknown character is as long as it is.
static int64_t first_token_bytes(const snd_tokenizer *t, const snd_text *text, const int32_t *id) {
    size_t n = text->n > 0;
    if (n && *id != snd_tokenizer_special(t, SND_SPECIAL_UNK))
        (void)snd_tokenizer_token(t, *id, &n);
    else
        while (n < text->n && ((uint8_t)text->s[n] & 0xc0) == 0x80) n++;
    return (int64_t)n;
}

static sonde_status encode_text(snd_set *d, const snd_text *text) {
    snd_ids ids = {0};
    int64_t ends[SND_SPLIT_COUNT], from = 0;
    sonde_status st = encode_splits(d, text, &ids, ends);
    if (st == SONDE_OK && !(d->own = snd_malloc(((size_t)ids.n + 1) * sizeof *d->own))) st = SONDE_ENOMEM;
    for (int64_t i = 0; st == SONDE_OK && i < ids.n; i++) d->own[i] = (uint16_t)ids.v[i];
    for (int s = 0; st == SONDE_OK && s < SND_SPLIT_COUNT; s++) {
        d->stream[s] = (snd_stream){d->own + from, 2, ends[s] - from, (int64_t)text[s].n,
                                    first_token_bytes(d->tok, &text[s], ids.v + from)};
        from = ends[s];
    }
    snd_free(ids.v);
    return st;
}

static sonde_status read_text(snd_set *d) {
    snd_text text[SND_SPLIT_COUNT];
    const unsigned specials = d->task == SND_TASK_MLM ? 1u << SND_SPECIAL_MASK : 0;
    snd_set_spans(d, text);
    SND_TRY(snd_set_make_tokenizer(d, "chars", d->map[0].bytes, d->map[0].n, (const uint8_t *)text[0].s, text[0].n,
                                   specials));
    if (d->tok->kind != SND_TOK_BYTES) {
        const double start = snd_now();
        SND_TRY(encode_text(d, text));
        d->encode_sec = snd_now() - start;
        return SONDE_OK;
    }
    for (int s = 0; s < SND_SPLIT_COUNT; s++)
        d->stream[s] = (snd_stream){text[s].s, 1, (int64_t)text[s].n, (int64_t)text[s].n, text[s].n > 0};
    return SONDE_OK;
}

// ---- token files ----------------------------------------------------------------------------------------------------------

enum { HEADER_BYTES = 1024, GPT2_MAGIC = 20240520, FIRST_MAGIC = 20240101, LAST_MAGIC = 20301231 };

static int32_t word_at(const uint8_t *p) {
    return (int32_t)((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
}

// llm.c's header: magic, version, number of tokens. Its magics are dates; two tokens that happen to read as one are a rare
// misfortune that the count would show.
static sonde_status skip_header(const char *name, const snd_map *m, size_t *head) {
    const int32_t magic = m->n >= HEADER_BYTES ? word_at(m->bytes) : 0;
    *head = 0;
    if (magic < FIRST_MAGIC || magic > LAST_MAGIC) return SONDE_OK;
    SND_FAIL_IF(magic != GPT2_MAGIC || word_at(m->bytes + 4) != 1, SONDE_EUNSUPPORTED,
                "%s: header with magic %d, version %d; %d, version 1 (tokens of 16 bits) can be read", name, magic,
                word_at(m->bytes + 4), GPT2_MAGIC);
    *head = HEADER_BYTES;
    const int64_t says = word_at(m->bytes + 8), has = (int64_t)(m->n - HEADER_BYTES) / 2;
    SND_FAIL_IF(says != has, SONDE_EINPUT, "%s: the header says %lld tokens, the file has %lld", name, (long long)says,
                (long long)has);
    return SONDE_OK;
}

static sonde_status read_tokens(snd_set *d) {
    for (int f = 0; f < SND_SPLIT_COUNT; f++) {
        const char *path = snd_set_path(d, (snd_split)f);
        size_t head, ends[SND_SPLIT_COUNT], from = 0;
        if (!path) continue;
        SND_FAIL_IF(d->map[f].n % 2, SONDE_EINPUT, "%s: %zu bytes, which are no whole number of 16-bit tokens", path,
                    d->map[f].n);
        head = 0;
        if (!d->memory || f) SND_TRY(skip_header(path, &d->map[f], &head));
        const uint16_t *v = (const uint16_t *)(const void *)(d->map[f].bytes + head);
        const size_t n = (d->map[f].n - head) / 2;
        if (f) {
            d->stream[f] = (snd_stream){v, 2, (int64_t)n, 0, 0};
            continue;
        }
        cut(d, n, NULL, ends);
        for (int s = 0; s < SND_SPLIT_COUNT; s++) {
            d->stream[s] = (snd_stream){v + from, 2, (int64_t)(ends[s] - from), 0, 0};
            from = ends[s];
        }
    }
    // a tokenizer says what the numbers mean, where one is given
    if (!d->settings.tokenizer) return SONDE_OK;
    return snd_set_make_tokenizer(d, "", NULL, 0, NULL, 0, 0);
}

sonde_status snd_set_read_text(snd_set *d) {
    for (int s = 0; s < SND_SPLIT_COUNT; s++) SND_TRY(open_file(d, (snd_split)s));
    return d->kind == SND_DATA_TOKENS ? read_tokens(d) : read_text(d);
}
