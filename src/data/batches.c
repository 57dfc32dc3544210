// Batches: which examples a batch holds, as arithmetic on its index; batch_fill.c makes the arrays. Nothing is remembered:
// every order is a permutation that is computed element by element under a key of its own.
#include "data/batches.h"

#include <assert.h>
#include <math.h>
#include <string.h>

// ---- windows and rows -----------------------------------------------------------------------------------------------------

// Places of a split where a target can stand.
static int64_t places(const snd_batches *b, snd_split s) {
    const int64_t n = b->d->stream[s].n - (b->d->task == SND_TASK_LM);
    return n > 0 ? n : 0;
}

// Windows of an epoch of training: so many that an offset of 0 .. T-1 leaves them all inside, at least one.
static int64_t train_windows(const snd_batches *b) {
    const int64_t m = places(b, SND_SPLIT_TRAIN), T = b->o.tokens;
    return m >= 2 * T - 1 ? (m - T + 1) / T : m >= T;
}

static int64_t examples(const snd_batches *b, snd_split s) {
    if (b->d->task == SND_TASK_CLASS) return b->d->n_of[s];
    if (s == SND_SPLIT_TRAIN) return train_windows(b);
    return (places(b, s) + b->o.tokens - 1) / b->o.tokens;
}

static int64_t below(snd_key key, int64_t i, int64_t n) {
    const int64_t v = (int64_t)(snd_uniform_at(key, (uint64_t)i) * (double)n);
    return v < n ? v : n - 1;
}

int64_t snd_batches_example(const snd_batches *b, snd_split s, int64_t k) {
    if (s != SND_SPLIT_TRAIN) return k;
    const int64_t n = b->n[s];
    return snd_permuted(b->order, (uint64_t)(k / n), n, k % n);
}

int64_t snd_batches_window(const snd_batches *b, snd_split s, int64_t k, int64_t *first) {
    const int64_t T = b->o.tokens, m = places(b, s), at = snd_batches_example(b, s, k);
    *first = at * T;
    if (s == SND_SPLIT_TRAIN) *first += below(b->offset, k / b->n[s], m - b->n[s] * T + 1);
    return m - *first < T ? m - *first : T;
}

// ---- buckets --------------------------------------------------------------------------------------------------------------

// 8, 16 .. 64, 96, 128, 192, 256 ..
static int64_t next_edge(int64_t edge) {
    if (edge < 64) return edge + 8;
    int64_t two = 64;
    while (2 * two <= edge) two *= 2;
    return edge == two ? two + two / 2 : 2 * two;
}

static int64_t pair_length(const snd_pair *p) {
    return 1 + (p->n_source > p->n_target ? p->n_source : p->n_target);
}

static int bucket_of(const snd_batches *b, int64_t length) {
    int k = 0;
    while (k < b->n_buckets && b->bucket[k].shape.tokens < length) k++;
    return k < b->n_buckets ? k : -1;
}

static sonde_status make_edges(snd_batches *b) {
    for (int64_t e = 8;; e = next_edge(e)) {
        SND_FAIL_IF(b->n_buckets == SND_BUCKETS_MAX, SONDE_ERANGE, "sequences of %lld tokens are too long for pairs",
                    (long long)b->o.tokens);
        const int64_t length = e < b->o.tokens ? e : b->o.tokens;
        const int64_t rows = b->o.rows * (b->o.tokens / length);
        b->bucket[b->n_buckets++].shape = (snd_batch_shape){rows, length, length};
        if (length == b->o.tokens) return SONDE_OK;
    }
}

static void count_pairs(const snd_batches *b, int64_t *n) {
    const snd_set *d = b->d;
    for (int64_t i = 0; i < d->n_of[SND_SPLIT_TRAIN]; i++) {
        const int k = bucket_of(b, pair_length(&d->pairs[d->of[SND_SPLIT_TRAIN][i]]));
        if (k >= 0) n[k]++;
    }
}

// Bucket k joins the next: its pairs are padded further.
static void join_next(snd_batches *b, int64_t *n, int k) {
    n[k + 1] += n[k];
    memmove(n + k, n + k + 1, (size_t)(b->n_buckets - k - 1) * sizeof *n);
    memmove(b->bucket + k, b->bucket + k + 1, (size_t)(b->n_buckets - k - 1) * sizeof *b->bucket);
    b->n_buckets--;
}

// Buckets that do not fill a batch join the next, the last one takes in those before it. Lengths that nothing has are left out.
static void join_small(snd_batches *b, int64_t *n) {
    while (b->n_buckets > 1 && n[b->n_buckets - 1] == 0) b->n_buckets--;
    for (int k = 0; k + 1 < b->n_buckets;) {
        if (n[k] < b->bucket[k].shape.rows)
            join_next(b, n, k);
        else
            k++;
    }
    while (b->n_buckets > 1 && n[b->n_buckets - 1] < b->bucket[b->n_buckets - 1].shape.rows)
        join_next(b, n, b->n_buckets - 2);
}

static sonde_status list_bucket_pairs(snd_batches *b, snd_split s) {
    const snd_set *d = b->d;
    b->pairs[s] = snd_malloc((size_t)(d->n_of[s] + 1) * sizeof *b->pairs[s]);
    if (!b->pairs[s]) return SONDE_ENOMEM;
    int64_t at = 0, batches = 0;
    for (int k = 0; k < b->n_buckets; k++) {
        snd_bucket *u = &b->bucket[k];
        u->first[s] = at;
        for (int64_t i = 0; i < d->n_of[s]; i++)
            if (bucket_of(b, pair_length(&d->pairs[d->of[s][i]])) == k) b->pairs[s][at++] = d->of[s][i];
        u->n[s] = at - u->first[s];
        const int64_t R = u->shape.rows;
        u->batches[s] = s != SND_SPLIT_TRAIN ? (u->n[s] + R - 1) / R : u->n[s] ? (u->n[s] + R / 2) / R : 0;
        if (s == SND_SPLIT_TRAIN && u->n[s] && !u->batches[s]) u->batches[s] = 1;
        batches += u->batches[s];
    }
    b->n[s] = batches;
    b->dropped[s] = d->n_of[s] - at;
    return SONDE_OK;
}

static sonde_status open_pairs(snd_batches *b) {
    int64_t n[SND_BUCKETS_MAX] = {0};
    SND_TRY(make_edges(b));
    count_pairs(b, n);
    join_small(b, n);
    for (int s = 0; s < SND_SPLIT_COUNT; s++) SND_TRY(list_bucket_pairs(b, (snd_split)s));
    SND_FAIL_IF(b->n[0] == 0, SONDE_EINPUT,
                "%s: none of its %lld pairs to train on has at most %lld tokens on both sides, <bos> or <eos> counted",
                b->d->name, (long long)b->d->n_of[0], (long long)b->o.tokens);
    return SONDE_OK;
}

const snd_bucket *snd_batches_bucket(const snd_batches *b, snd_split s, int64_t index, int64_t *first) {
    const int64_t n = b->n[s], epoch = index / n;
    int64_t slot = index % n;
    if (s == SND_SPLIT_TRAIN) slot = snd_permuted(b->order, (uint64_t)epoch, n, slot);
    const snd_bucket *u = b->bucket;
    for (; slot >= u->batches[s]; u++) slot -= u->batches[s];
    *first = ((s == SND_SPLIT_TRAIN ? epoch * u->batches[s] : 0) + slot) * u->shape.rows;
    return u;
}

const snd_pair *snd_batches_pair(const snd_batches *b, snd_split s, const snd_bucket *u, int64_t k) {
    int64_t i = k;
    if (s == SND_SPLIT_TRAIN) {
        const uint64_t pass = (uint64_t)(k / u->n[s]), kind = (uint64_t)(u - b->bucket) << 48;
        i = snd_permuted(b->within, pass + kind, u->n[s], k % u->n[s]);
    }
    return i < u->n[s] ? &b->d->pairs[b->pairs[s][u->first[s] + i]] : NULL;
}

// ---- opening --------------------------------------------------------------------------------------------------------------

static sonde_status check(const snd_batches *b) {
    const snd_set *d = b->d;
    SND_FAIL_IF(b->o.rows < 1 || b->o.rows > 1 << 24, SONDE_ERANGE, "a batch of %lld rows; 1 to %d are possible",
                (long long)b->o.rows, 1 << 24);
    SND_FAIL_IF(d->task != SND_TASK_CLASS && (b->o.tokens < 1 || b->o.tokens > 1 << 24), SONDE_ERANGE,
                "sequences of %lld tokens; 1 to %d are possible", (long long)b->o.tokens, 1 << 24);
    const int64_t needs = snd_set_vocab(d);
    SND_FAIL_IF(b->o.vocab && b->o.vocab < needs, SONDE_ESHAPE,
                "the model's vocabulary has %lld tokens, the data (%s) needs %lld; give vocab=%lld",
                (long long)b->o.vocab, d->name, (long long)needs, (long long)needs);
    return SONDE_OK;
}

static sonde_status open_examples(snd_batches *b) {
    const snd_set *d = b->d;
    for (int s = 0; s < SND_SPLIT_COUNT; s++) b->n[s] = examples(b, (snd_split)s);
    SND_FAIL_IF(b->n[0] == 0 && !d->fed, SONDE_EINPUT, "%s: %lld tokens to train on; a sequence needs %lld", d->name,
                (long long)d->stream[0].n, (long long)(b->o.tokens + (d->task == SND_TASK_LM)));
    const bool class = d->task == SND_TASK_CLASS;
    const int64_t source = d->task == SND_TASK_SEQ2SEQ ? b->o.tokens : 0; // of batches that are given
    b->bucket[0].shape = (snd_batch_shape){b->o.rows, class ? 1 : b->o.tokens, source};
    b->n_buckets = 1;
    return SONDE_OK;
}

sonde_status snd_batches_open(const snd_set *d, const snd_batching *o, snd_batches **out) {
    *out = NULL;
    snd_batches *b = snd_calloc(1, sizeof *b);
    if (!b) return SONDE_ENOMEM;
    *b = (snd_batches){.d = d, .o = *o};
    b->order = snd_key_make(o->seed, "data.order");
    b->within = snd_key_make(o->seed, "data.bucket");
    b->offset = snd_key_make(o->seed, "data.offset");
    static const char *const places_of[] = {"data.mask", "data.mask.valid", "data.mask.test"};
    for (int s = 0; s < SND_SPLIT_COUNT; s++) b->mask[s] = snd_key_make(o->seed, places_of[s]);
    b->fate = snd_key_make(o->seed, "data.mask.fate");
    b->crop = snd_key_make(o->seed, "data.crop");
    sonde_status s = check(b);
    if (s == SONDE_OK) s = d->task == SND_TASK_SEQ2SEQ && !d->fed ? open_pairs(b) : open_examples(b);
    for (int k = 0; k < b->n_buckets; k++) b->shapes[k] = b->bucket[k].shape;
    if (s != SONDE_OK) {
        snd_batches_close(b);
        return s;
    }
    *out = b;
    return SONDE_OK;
}

void snd_batches_close(snd_batches *b) {
    if (!b) return;
    for (int s = 0; s < SND_SPLIT_COUNT; s++) snd_free(b->pairs[s]);
    snd_free(b);
}

// ---- asked ----------------------------------------------------------------------------------------------------------------

void snd_batches_give(snd_batches *b, const snd_batch *given) {
    b->given = given;
}

int64_t snd_batches_count(const snd_batches *b, snd_split s) {
    if (b->given) return 1;
    return b->d->task == SND_TASK_SEQ2SEQ ? b->n[s] : (b->n[s] + b->o.rows - 1) / b->o.rows;
}

double snd_batches_epochs(const snd_batches *b, int64_t index) {
    if (b->d->fed) return NAN;
    const double n = (double)b->n[SND_SPLIT_TRAIN], i = (double)index;
    return b->d->task == SND_TASK_SEQ2SEQ ? i / n : i * (double)b->o.rows / n;
}

int64_t snd_batches_dropped(const snd_batches *b, snd_split s) {
    return b->dropped[s];
}

int snd_batches_shapes(const snd_batches *b, const snd_batch_shape **out) {
    *out = b->shapes;
    return b->n_buckets;
}

snd_batch_shape snd_batches_shape(const snd_batches *b, snd_split s, int64_t index) {
    if (b->d->task != SND_TASK_SEQ2SEQ) return b->shapes[0];
    int64_t first;
    return snd_batches_bucket(b, s, index, &first)->shape;
}
