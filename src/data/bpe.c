// Byte pair encoding on bytes: cutting a text into pieces, learning merges, encoding.
// Learning works on the distinct pieces and how often each occurs. Every pair of neighbouring tokens has its count and the
// pieces where it was seen; a heap gives the most frequent pair, the smaller one of equals (by left, then right token), so
// the result depends on the text alone. Counts that have sunk since are found when they reach the top.
#include "data/inner.h"

#include <string.h>

// ---- pieces ---------------------------------------------------------------------------------------------------------------

typedef enum letter { LETTER, DIGIT, SPACE, OTHER } letter;

static letter class_of(uint8_t c) {
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c >= 128) return LETTER;
    if (c >= '0' && c <= '9') return DIGIT;
    return c == ' ' || (c >= '\t' && c <= '\r') ? SPACE : OTHER;
}

static size_t run_of(const uint8_t *s, size_t n, size_t first) {
    const letter c = class_of(s[first]);
    size_t i = first + 1;
    while (i < n && i < SND_PIECE_MAX && class_of(s[i]) == c) i++;
    return i;
}

size_t snd_bpe_piece(const uint8_t *s, size_t n) {
    if (class_of(s[0]) != SPACE) return run_of(s, n, 0);
    if (s[0] == ' ' && n > 1 && class_of(s[1]) != SPACE) return run_of(s, n, 1);
    const size_t end = run_of(s, n, 0);
    const bool to_word = end > 1 && end < n && s[end - 1] == ' ' && class_of(s[end]) != SPACE;
    return to_word ? end - 1 : end;
}

static uint64_t pair_key(int32_t left, int32_t right) {
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

// ---- learning: what is counted --------------------------------------------------------------------------------------------

// A distinct piece: count occurrences, tokens at ids[start] .. [start+len-1], fewer with every merge.
typedef struct word {
    int64_t start, count;
    int32_t len, stamp; // stamp: the last merge that looked at it
} word;

typedef struct pair {
    uint64_t key;
    int64_t count;
    int32_t *in; // words where it was seen, some perhaps twice, some no longer
    int64_t n_in, cap_in;
} pair;

typedef struct top {
    int64_t count;
    uint64_t key;
} top;

typedef struct learner {
    word *words;
    int64_t n_words, cap_words;
    snd_ids ids;
    snd_table known; // hash of a piece's bytes -> word; equal hashes are taken one further
    pair *pairs;
    int64_t n_pairs, cap_pairs;
    snd_table index; // pair_key -> pair
    top *heap;
    int64_t n_heap, cap_heap;
} learner;

static void learner_free(learner *l) {
    for (int64_t i = 0; i < l->n_pairs; i++) snd_free(l->pairs[i].in);
    snd_free(l->pairs);
    snd_free(l->words);
    snd_free(l->ids.v);
    snd_free(l->heap);
    snd_table_free(&l->known);
    snd_table_free(&l->index);
}

static bool same_piece(const learner *l, const word *w, const uint8_t *s, size_t n) {
    if ((size_t)w->len != n) return false;
    for (size_t i = 0; i < n; i++)
        if (l->ids.v[w->start + (int64_t)i] != s[i]) return false;
    return true;
}

static sonde_status add_word(learner *l, const uint8_t *s, size_t n, int32_t *slot) {
    void *words = l->words;
    if (!snd_grow(&words, &l->cap_words, l->n_words + 1, sizeof *l->words)) return SONDE_ENOMEM;
    l->words = words;
    if (!snd_ids_room(&l->ids, (int64_t)n)) return SONDE_ENOMEM;
    l->words[l->n_words] = (word){.start = l->ids.n, .count = 1, .len = (int32_t)n, .stamp = -1};
    for (size_t i = 0; i < n; i++) l->ids.v[l->ids.n++] = s[i];
    *slot = (int32_t)l->n_words++;
    return SONDE_OK;
}

static sonde_status count_piece(learner *l, const uint8_t *s, size_t n) {
    for (uint64_t h = snd_hash(s, n);; h++) {
        int32_t *slot = snd_table_put(&l->known, h == UINT64_MAX ? 0 : h);
        if (!slot) return SONDE_ENOMEM;
        if (*slot < 0) return add_word(l, s, n, slot);
        word *w = &l->words[*slot];
        if (!same_piece(l, w, s, n)) continue;
        w->count++;
        return SONDE_OK;
    }
}

static sonde_status find_pair(learner *l, uint64_t key, pair **out) {
    int32_t *slot = snd_table_put(&l->index, key);
    void *pairs = l->pairs;
    if (!slot || !snd_grow(&pairs, &l->cap_pairs, l->n_pairs + 1, sizeof *l->pairs)) return SONDE_ENOMEM;
    l->pairs = pairs;
    if (*slot < 0) {
        *slot = (int32_t)l->n_pairs;
        l->pairs[l->n_pairs++] = (pair){.key = key};
    }
    *out = &l->pairs[*slot];
    return SONDE_OK;
}

static sonde_status see_pair(learner *l, uint64_t key, int32_t w) {
    pair *p = NULL;
    SND_TRY(find_pair(l, key, &p));
    p->count += l->words[w].count;
    if (p->n_in && p->in[p->n_in - 1] == w) return SONDE_OK;
    void *in = p->in;
    if (!snd_grow(&in, &p->cap_in, p->n_in + 1, sizeof *p->in)) return SONDE_ENOMEM;
    p->in = in;
    p->in[p->n_in++] = w;
    return SONDE_OK;
}

// ---- learning: the heap ---------------------------------------------------------------------------------------------------

static bool before(top a, top b) {
    return a.count > b.count || (a.count == b.count && a.key < b.key);
}

static sonde_status push(learner *l, top t) {
    void *heap = l->heap;
    if (!snd_grow(&heap, &l->cap_heap, l->n_heap + 1, sizeof *l->heap)) return SONDE_ENOMEM;
    l->heap = heap;
    int64_t i = l->n_heap++;
    for (; i > 0 && before(t, l->heap[(i - 1) / 2]); i = (i - 1) / 2) l->heap[i] = l->heap[(i - 1) / 2];
    l->heap[i] = t;
    return SONDE_OK;
}

static top pop(learner *l) {
    const top first = l->heap[0], t = l->heap[--l->n_heap];
    int64_t i = 0;
    for (int64_t k = 1; k < l->n_heap; k = 2 * i + 1) {
        if (k + 1 < l->n_heap && before(l->heap[k + 1], l->heap[k])) k++;
        if (!before(l->heap[k], t)) break;
        l->heap[i] = l->heap[k];
        i = k;
    }
    l->heap[i] = t;
    return first;
}

// The most frequent pair, NULL when none occurs twice. Every pair with a count has an entry of at least that count.
static sonde_status most_frequent(learner *l, pair **out) {
    *out = NULL;
    while (l->n_heap > 0) {
        const top t = pop(l);
        pair *p = &l->pairs[snd_table_get(&l->index, t.key)];
        if (p->count == t.count) {
            if (t.count > 1) *out = p;
            return SONDE_OK;
        }
        if (p->count < t.count && p->count > 1) SND_TRY(push(l, (top){p->count, p->key}));
    }
    return SONDE_OK;
}

// ---- learning: merging ----------------------------------------------------------------------------------------------------

static void forget_pairs(learner *l, const word *w) {
    const int32_t *v = l->ids.v + w->start;
    for (int32_t i = 0; i + 1 < w->len; i++)
        l->pairs[snd_table_get(&l->index, pair_key(v[i], v[i + 1]))].count -= w->count;
}

static int32_t join(int32_t *v, int32_t n, snd_merge m, int32_t id) {
    int32_t kept = 0;
    for (int32_t i = 0; i < n; i++) {
        const bool hit = i + 1 < n && v[i] == m.left && v[i + 1] == m.right;
        v[kept++] = hit ? id : v[i];
        i += hit;
    }
    return kept;
}

// Pairs of which the new token is a part have grown; the others have their old counts again.
static sonde_status see_pairs(learner *l, int32_t w, int32_t id, snd_ids *grown) {
    const word *at = &l->words[w];
    for (int32_t i = 0; i + 1 < at->len; i++) {
        const int32_t left = l->ids.v[at->start + i], right = l->ids.v[at->start + i + 1];
        pair *p = NULL;
        if (left != id && right != id) {
            SND_TRY(find_pair(l, pair_key(left, right), &p));
            p->count += at->count;
            continue;
        }
        SND_TRY(see_pair(l, pair_key(left, right), w));
        SND_TRY(find_pair(l, pair_key(left, right), &p));
        if (!snd_ids_push(grown, (int32_t)(p - l->pairs))) return SONDE_ENOMEM;
    }
    return SONDE_OK;
}

static sonde_status merge_in(learner *l, const int32_t *in, int64_t n, snd_merge m, int32_t id, snd_ids *grown) {
    for (int64_t i = 0; i < n; i++) {
        word *w = &l->words[in[i]];
        if (w->stamp == id) continue;
        w->stamp = id;
        forget_pairs(l, w);
        w->len = join(l->ids.v + w->start, w->len, m, id);
        SND_TRY(see_pairs(l, in[i], id, grown));
    }
    for (int64_t i = 0; i < grown->n; i++) {
        const pair *p = &l->pairs[grown->v[i]];
        SND_TRY(push(l, (top){p->count, p->key}));
    }
    return SONDE_OK;
}

static sonde_status merge_pair(learner *l, pair *p, int32_t id) {
    const snd_merge m = {(int32_t)(p->key >> 32), (int32_t)(uint32_t)p->key};
    int32_t *in = p->in; // pairs may move while others are added
    const int64_t n = p->n_in;
    p->in = NULL;
    p->n_in = p->cap_in = 0;
    snd_ids grown = {0};
    const sonde_status s = merge_in(l, in, n, m, id, &grown);
    snd_free(grown.v);
    snd_free(in);
    return s;
}

static sonde_status count_all(learner *l, const uint8_t *text, size_t n) {
    for (size_t i = 0, len; i < n; i += len) {
        len = snd_bpe_piece(text + i, n - i);
        SND_TRY(count_piece(l, text + i, len));
    }
    for (int32_t w = 0; w < l->n_words; w++)
        for (int32_t i = 0; i + 1 < l->words[w].len; i++) {
            const int32_t *v = l->ids.v + l->words[w].start + i;
            SND_TRY(see_pair(l, pair_key(v[0], v[1]), w));
        }
    for (int64_t i = 0; i < l->n_pairs; i++) SND_TRY(push(l, (top){l->pairs[i].count, l->pairs[i].key}));
    return SONDE_OK;
}

static sonde_status learn(learner *l, int64_t most, snd_merge *merges, int64_t *n_merges) {
    for (int64_t i = 0; i < most; i++) {
        pair *p;
        SND_TRY(most_frequent(l, &p));
        if (!p) break;
        merges[(*n_merges)++] = (snd_merge){(int32_t)(p->key >> 32), (int32_t)(uint32_t)p->key};
        SND_TRY(merge_pair(l, p, (int32_t)(256 + i)));
    }
    return SONDE_OK;
}

// A token must fit a piece, which it does by itself: merges stay inside pieces.
sonde_status snd_bpe_learn(const uint8_t *text, size_t n, int64_t most, snd_merge **merges, int64_t *n_merges) {
    learner l = {0};
    *n_merges = 0;
    *merges = snd_malloc((size_t)(most + 1) * sizeof **merges);
    sonde_status s = *merges ? count_all(&l, text, n) : SONDE_ENOMEM;
    if (s == SONDE_OK) s = learn(&l, most, *merges, n_merges);
    learner_free(&l);
    if (s == SONDE_OK) return SONDE_OK;
    snd_free(*merges);
    *merges = NULL;
    return s;
}

// ---- encoding -------------------------------------------------------------------------------------------------------------

// Applies the earliest learned merge that fits, everywhere, until none does. Returns the length left.
static int32_t merge_piece(const snd_tokenizer *t, int32_t *v, int32_t n) {
    for (;;) {
        int32_t best = INT32_MAX;
        for (int32_t i = 0; i + 1 < n; i++) {
            const int32_t rank = snd_table_get(&t->ranks, pair_key(v[i], v[i + 1]));
            if (rank >= 0 && rank < best) best = rank;
        }
        if (best == INT32_MAX) return n;
        n = join(v, n, t->merges[best], 256 + best);
    }
}

// Pieces that came before: where their tokens stand in the output. A place holds one piece, the last.
enum { SEEN = 1 << 14 };
typedef struct snd_seen {
    const uint8_t *s;
    int64_t at;
    uint16_t n, n_ids;
} snd_seen;

static sonde_status encode_piece(snd_encoder *e, const uint8_t *s, size_t n, snd_ids *out) {
    snd_seen *c = &e->seen[snd_hash(s, n) % SEEN];
    if (!snd_ids_room(out, (int64_t)n)) return SONDE_ENOMEM;
    int32_t *v = out->v + out->n;
    if (c->n == n && memcmp(c->s, s, n) == 0) {
        memcpy(v, out->v + c->at, c->n_ids * sizeof *v);
        out->n += c->n_ids;
        return SONDE_OK;
    }
    for (size_t i = 0; i < n; i++) v[i] = s[i];
    const int32_t left = merge_piece(e->t, v, (int32_t)n);
    *c = (snd_seen){.s = s, .at = out->n, .n = (uint16_t)n, .n_ids = (uint16_t)left};
    out->n += left;
    return SONDE_OK;
}

sonde_status snd_bpe_encode(snd_encoder *e, const uint8_t *text, size_t n, snd_ids *out) {
    if (!e->seen) e->seen = snd_calloc(SEEN, sizeof *e->seen);
    if (!e->seen) return SONDE_ENOMEM;
    for (size_t i = 0, len; i < n; i += len) {
        len = snd_bpe_piece(text + i, n - i);
        SND_TRY(encode_piece(e, text + i, len, out));
    }
    return SONDE_OK;
}
