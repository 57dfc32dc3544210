// Tokenizers made, asked and run. A token's bytes are kept for all of them, so that decoding is one copy per token; what
// differs is encoding. bpe.c holds what is its own.
#include "data/inner.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static const char *const KINDS[] = {"", "bytes", "chars", "bpe"};
const char *const snd_special_names[SND_SPECIAL_COUNT] = {"unk", "pad", "bos", "eos", "mask"};
static const char *const SHOWN[SND_SPECIAL_COUNT] = {"<unk>", "<pad>", "<bos>", "<eos>", "<mask>"};

const char *snd_tokenizer_kind_name(snd_tokenizer_kind k) {
    return KINDS[k];
}

// ---- from parts -----------------------------------------------------------------------------------------------------------

static int put_utf8(uint8_t out[4], uint32_t c) {
    if (c < 0x80) {
        out[0] = (uint8_t)c;
        return 1;
    }
    const int n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (int i = n - 1; i > 0; i--, c >>= 6) out[i] = (uint8_t)(0x80 | (c & 0x3F));
    out[0] = (uint8_t)(0xF00u >> n | c);
    return n;
}

static sonde_status add_specials(const char *name, snd_tokenizer *t, unsigned specials) {
    if (t->kind == SND_TOK_CHARS) specials |= 1u << SND_SPECIAL_UNK;
    t->specials = specials;
    int64_t next = t->plain;
    for (int s = 0; s < SND_SPECIAL_COUNT; s++) t->special[s] = specials >> s & 1 ? next++ : -1;
    SND_FAIL_IF(next > SND_VOCAB_MAX, SONDE_ERANGE, "%s: %lld tokens; a vocabulary has at most %d", name,
                (long long)next, SND_VOCAB_MAX);
    return SONDE_OK;
}

static sonde_status check_merge(const char *name, const snd_tokenizer *t, int64_t i) {
    const snd_merge m = t->merges[i];
    SND_FAIL_IF(m.left < 0 || m.right < 0 || m.left >= 256 + i || m.right >= 256 + i, SONDE_EINPUT,
                "%s: merge %lld joins tokens %d and %d; the tokens before it are 0 to %lld", name, (long long)i, m.left,
                m.right, (long long)(255 + i));
    return SONDE_OK;
}

// Tokens 256 .. are the bytes of their two parts, in that order.
static sonde_status spell_merges(const char *name, snd_tokenizer *t) {
    for (int64_t i = 0; i < t->plain - 256; i++) {
        SND_TRY(check_merge(name, t, i));
        const int32_t part[2] = {t->merges[i].left, t->merges[i].right};
        uint32_t at = t->start[256 + i];
        const uint32_t n = t->start[part[0] + 1] - t->start[part[0]] + t->start[part[1] + 1] - t->start[part[1]];
        SND_FAIL_IF(n > SND_PIECE_MAX, SONDE_EINPUT, "%s: merge %lld makes a token of %u bytes; at most %d are allowed",
                    name, (long long)i, n, SND_PIECE_MAX);
        for (int k = 0; k < 2; k++) {
            const uint32_t len = t->start[part[k] + 1] - t->start[part[k]];
            memcpy(t->bytes + at, t->bytes + t->start[part[k]], len);
            at += len;
        }
        t->start[256 + i + 1] = at;
        int32_t *rank = snd_table_put(&t->ranks, (uint64_t)(uint32_t)part[0] << 32 | (uint32_t)part[1]);
        if (!rank) return SONDE_ENOMEM;
        SND_FAIL_IF(*rank >= 0, SONDE_EINPUT, "%s: merge %lld is merge %d again", name, (long long)i, *rank);
        *rank = (int32_t)i;
    }
    return SONDE_OK;
}

static sonde_status spell_points(const char *name, snd_tokenizer *t) {
    for (int i = 0; i < 128; i++) t->ascii[i] = -1;
    for (int64_t i = 0; i < t->plain; i++) {
        const int32_t c = t->points[i];
        SND_FAIL_IF(c < 0 || c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF), SONDE_EINPUT,
                    "%s: character %lld is %d, which is no Unicode character", name, (long long)i, c);
        SND_FAIL_IF(i > 0 && t->points[i - 1] >= c, SONDE_EINPUT,
                    "%s: character %lld (U+%04X) is not above the one before", name, (long long)i, (unsigned)c);
        t->start[i + 1] = t->start[i] + (uint32_t)put_utf8(t->bytes + t->start[i], (uint32_t)c);
        if (c < 128) t->ascii[c] = (int32_t)i;
    }
    return SONDE_OK;
}

static sonde_status spell(const char *name, snd_tokenizer *t) {
    const size_t each = t->kind == SND_TOK_BPE ? SND_PIECE_MAX : 4;
    t->start = snd_calloc((size_t)t->plain + 1, sizeof *t->start);
    t->bytes = snd_calloc((size_t)t->plain + 1, each);
    if (!t->start || !t->bytes) return SONDE_ENOMEM;
    if (t->kind == SND_TOK_CHARS) return spell_points(name, t);
    for (int i = 0; i < 256; i++) {
        t->bytes[i] = (uint8_t)i;
        t->start[i + 1] = (uint32_t)i + 1;
    }
    return t->kind == SND_TOK_BPE ? spell_merges(name, t) : SONDE_OK;
}

sonde_status snd_tokenizer_build(const char *name, snd_tokenizer_kind kind, snd_merge *merges, int32_t *points,
                                 int64_t n, unsigned specials, snd_tokenizer **out) {
    *out = NULL;
    snd_tokenizer *t = snd_calloc(1, sizeof *t);
    if (!t) {
        snd_free(merges);
        snd_free(points);
        return SONDE_ENOMEM;
    }
    *t = (snd_tokenizer){.kind = kind, .merges = merges, .points = points, .plain = n};
    if (kind != SND_TOK_CHARS) t->plain += 256;
    sonde_status s = add_specials(name, t, specials);
    if (s == SONDE_OK) s = spell(name, t);
    if (s != SONDE_OK) {
        snd_tokenizer_destroy(t);
        return s;
    }
    *out = t;
    return SONDE_OK;
}

void snd_tokenizer_destroy(snd_tokenizer *t) {
    if (!t) return;
    snd_free(t->merges);
    snd_table_free(&t->ranks);
    snd_free(t->points);
    snd_free(t->start);
    snd_free(t->bytes);
    snd_free(t);
}

static void *copy_of(const void *p, size_t bytes) {
    void *copy = snd_malloc(bytes + 1);
    if (copy && bytes) memcpy(copy, p, bytes);
    return copy;
}

sonde_status snd_tokenizer_with(const snd_tokenizer *t, unsigned specials, snd_tokenizer **out) {
    *out = NULL;
    const bool chars = t->kind == SND_TOK_CHARS;
    const int64_t n = chars ? t->plain : t->plain - 256;
    snd_merge *merges = t->merges ? copy_of(t->merges, (size_t)n * sizeof *merges) : NULL;
    int32_t *points = t->points ? copy_of(t->points, (size_t)n * sizeof *points) : NULL;
    if ((t->merges && !merges) || (t->points && !points)) {
        snd_free(merges);
        snd_free(points);
        return SONDE_ENOMEM;
    }
    return snd_tokenizer_build("tokenizer", t->kind, merges, points, n, specials, out);
}

// ---- from a text ----------------------------------------------------------------------------------------------------------

static sonde_status not_utf8(const char *name, const uint8_t *text, size_t at) {
    int64_t line = 1;
    for (size_t i = 0; i < at; i++) line += text[i] == '\n';
    SND_FAIL(SONDE_EINPUT, "%s: line %lld (byte %zu): 0x%02x is not UTF-8, which characters need; take bytes or bpe",
             name, (long long)line, at, text[at]);
}

// Code points that occur, ascending. One bit each.
static sonde_status collect_points(const char *name, const uint8_t *text, size_t n, uint8_t *seen) {
    uint32_t c;
    for (size_t i = 0; i < n;) {
        const int len = snd_utf8_at((const char *)text + i, n - i, &c);
        if (len == 0) return not_utf8(name, text, i);
        seen[c >> 3] |= (uint8_t)(1u << (c & 7));
        i += (size_t)len;
    }
    return SONDE_OK;
}

static sonde_status make_chars(const char *name, const uint8_t *text, size_t n, unsigned specials,
                               snd_tokenizer **out) {
    enum { POINTS = 0x110000 };
    uint8_t *seen = snd_calloc(POINTS / 8, 1);
    snd_ids points = {0};
    sonde_status s = seen ? collect_points(name, text, n, seen) : SONDE_ENOMEM;
    for (int32_t c = 0; c < POINTS && s == SONDE_OK; c++)
        if (seen[c >> 3] >> (c & 7) & 1 && !snd_ids_push(&points, c)) s = SONDE_ENOMEM;
    snd_free(seen);
    if (s == SONDE_OK) return snd_tokenizer_build(name, SND_TOK_CHARS, NULL, points.v, points.n, specials, out);
    snd_free(points.v);
    return s;
}

static sonde_status make_bpe(const char *name, const uint8_t *text, size_t n, int64_t vocab, unsigned specials,
                             snd_tokenizer **out) {
    const int64_t least = 256 + __builtin_popcount(specials);
    SND_FAIL_IF(vocab < least || vocab > SND_VOCAB_MAX, SONDE_ERANGE,
                "a bpe of %lld tokens; %lld (the bytes and what is special) to %d are possible", (long long)vocab,
                (long long)least, SND_VOCAB_MAX);
    snd_merge *merges;
    int64_t n_merges;
    SND_TRY(snd_bpe_learn(text, n, vocab - least, &merges, &n_merges));
    return snd_tokenizer_build(name, SND_TOK_BPE, merges, NULL, n_merges, specials, out);
}

sonde_status snd_tokenizer_make(snd_tokenizer_kind kind, const char *name, const uint8_t *text, size_t n, int64_t vocab,
                                unsigned specials, snd_tokenizer **out) {
    *out = NULL;
    if (kind == SND_TOK_CHARS) return make_chars(name, text, n, specials, out);
    if (kind == SND_TOK_BPE) return make_bpe(name, text, n, vocab, specials, out);
    return snd_tokenizer_build(name, kind, NULL, NULL, 0, specials, out);
}

// ---- asked ----------------------------------------------------------------------------------------------------------------

snd_tokenizer_kind snd_tokenizer_kind_of(const snd_tokenizer *t) {
    return t->kind;
}
int64_t snd_tokenizer_vocab(const snd_tokenizer *t) {
    return t->plain + __builtin_popcount(t->specials);
}
int64_t snd_tokenizer_plain(const snd_tokenizer *t) {
    return t->plain;
}
int64_t snd_tokenizer_special(const snd_tokenizer *t, snd_special s) {
    return t->special[s];
}

const char *snd_tokenizer_token(const snd_tokenizer *t, int64_t id, size_t *n) {
    assert(id >= 0 && id < snd_tokenizer_vocab(t));
    if (id < t->plain) {
        *n = t->start[id + 1] - t->start[id];
        return (const char *)t->bytes + t->start[id];
    }
    int s = 0;
    while (t->special[s] != id) s++;
    *n = strlen(SHOWN[s]);
    return SHOWN[s];
}

// ---- run ------------------------------------------------------------------------------------------------------------------

static int32_t number_of(const snd_tokenizer *t, uint32_t c) {
    if (c < 128) return t->ascii[c] >= 0 ? t->ascii[c] : (int32_t)t->special[SND_SPECIAL_UNK];
    int64_t lo = 0, hi = t->plain;
    while (lo < hi) {
        const int64_t mid = (lo + hi) / 2;
        if ((uint32_t)t->points[mid] < c)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < t->plain && (uint32_t)t->points[lo] == c ? (int32_t)lo : (int32_t)t->special[SND_SPECIAL_UNK];
}

static sonde_status encode_chars(const snd_tokenizer *t, const char *name, const uint8_t *text, size_t n,
                                 snd_ids *out) {
    uint32_t c;
    if (!snd_ids_room(out, (int64_t)n)) return SONDE_ENOMEM;
    for (size_t i = 0; i < n;) {
        const int len = snd_utf8_at((const char *)text + i, n - i, &c);
        if (len == 0) return not_utf8(name, text, i);
        out->v[out->n++] = number_of(t, c);
        i += (size_t)len;
    }
    return SONDE_OK;
}

sonde_status snd_encode_more(snd_encoder *e, const char *name, const uint8_t *text, size_t n, snd_ids *out) {
    if (e->t->kind == SND_TOK_BPE) return snd_bpe_encode(e, text, n, out);
    if (e->t->kind == SND_TOK_CHARS) return encode_chars(e->t, name, text, n, out);
    if (!snd_ids_room(out, (int64_t)n)) return SONDE_ENOMEM;
    for (size_t i = 0; i < n; i++) out->v[out->n++] = text[i];
    return SONDE_OK;
}

sonde_status snd_tokenizer_encode(const snd_tokenizer *t, const char *name, const uint8_t *text, size_t n,
                                  snd_ids *out) {
    snd_encoder e = {.t = t};
    const sonde_status s = snd_encode_more(&e, name, text, n, out);
    snd_free(e.seen);
    return s;
}

sonde_status snd_tokenizer_decode(const snd_tokenizer *t, const int64_t *ids, int64_t n, snd_buf *out) {
    const int64_t vocab = snd_tokenizer_vocab(t);
    for (int64_t i = 0; i < n; i++) {
        SND_FAIL_IF(ids[i] < 0 || ids[i] >= vocab, SONDE_ERANGE, "token %lld is %lld; the vocabulary has 0 to %lld",
                    (long long)i, (long long)ids[i], (long long)vocab - 1);
        if (ids[i] < t->plain)
            snd_buf_putn(out, (const char *)t->bytes + t->start[ids[i]], t->start[ids[i] + 1] - t->start[ids[i]]);
        else if (ids[i] == t->special[SND_SPECIAL_UNK])
            snd_buf_put(out, "\xEF\xBF\xBD");
    }
    return out->failed ? SONDE_ENOMEM : SONDE_OK;
}

// ---- what it does not know ------------------------------------------------------------------------------------------------

static sonde_status note_unknown(snd_unknown *u, uint32_t c) {
    enum { POINTS = 0x110000 };
    if (!u->seen && !(u->seen = snd_calloc(POINTS / 8, 1))) return SONDE_ENOMEM;
    if (u->seen[c >> 3] >> (c & 7) & 1) return SONDE_OK;
    u->seen[c >> 3] |= (uint8_t)(1u << (c & 7));
    if (u->n < SND_UNKNOWN_SHOWN) u->first[u->n] = (int32_t)c;
    u->n++;
    return SONDE_OK;
}

sonde_status snd_tokenizer_unknown(const snd_tokenizer *t, const uint8_t *text, size_t n, snd_unknown *u) {
    uint32_t c;
    for (size_t i = 0; i < n && t->kind == SND_TOK_CHARS;) {
        const int len = snd_utf8_at((const char *)text + i, n - i, &c);
        if (len == 0) return not_utf8("text", text, i);
        if (number_of(t, c) == t->special[SND_SPECIAL_UNK]) SND_TRY(note_unknown(u, c));
        i += (size_t)len;
    }
    return SONDE_OK;
}

void snd_unknown_put(const snd_unknown *u, snd_buf *b) {
    for (int i = 0; i < SND_UNKNOWN_SHOWN && i < u->n; i++) {
        const uint32_t c = (uint32_t)u->first[i];
        const bool shows = c > 0x20 && !(c >= 0x7F && c <= 0xA0);
        uint8_t s[4];
        const int len = put_utf8(s, c);
        snd_buf_put(b, i ? ", " : "");
        if (shows) snd_buf_printf(b, "'%.*s' ", len, (const char *)s);
        snd_buf_printf(b, shows ? "(U+%04X)" : "U+%04X", (unsigned)c);
    }
    if (u->n > SND_UNKNOWN_SHOWN) snd_buf_printf(b, " and %lld more", (long long)u->n - SND_UNKNOWN_SHOWN);
}

void snd_unknown_free(snd_unknown *u) {
    snd_free(u->seen);
    *u = (snd_unknown){0};
}
