// The arrays of a batch. A row depends on its example's number alone, so parts of a batch hold what the whole one does.
#include "data/batches.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { IGNORED = -100, PAD = 4 };

// What one call fills: rows r0 .. r0+n-1 of a batch, example numbers from `first` on.
typedef struct job {
    const snd_batches *b;
    const snd_set *d;
    snd_split s;
    int64_t first, r0, n;
    snd_batch *out;
} job;

// ---- memory ---------------------------------------------------------------------------------------------------------------

static int64_t largest(const snd_batches *b, bool source) {
    int64_t most = 0;
    for (int k = 0; k < b->n_buckets; k++) {
        const snd_batch_shape s = b->shapes[k];
        const int64_t n = s.rows * (source ? s.src_tokens : s.tokens);
        if (n > most) most = n;
    }
    return most;
}

static int64_t most_rows(const snd_batches *b) {
    int64_t most = 0;
    for (int k = 0; k < b->n_buckets; k++)
        if (b->shapes[k].rows > most) most = b->shapes[k].rows;
    return most;
}

sonde_status snd_batch_make(const snd_batches *b, snd_batch *out) {
    *out = (snd_batch){0};
    const bool class = b->d->task == SND_TASK_CLASS, pairs = b->d->task == SND_TASK_SEQ2SEQ;
    const int64_t n = largest(b, false), ns = pairs ? largest(b, true) : 0, lengths = pairs ? 2 * most_rows(b) : 0;
    const int64_t *sh = b->d->shape, pixels = class ? b->o.rows * sh[0] * sh[1] * sh[2] : 0;
    const size_t longs = (size_t)(2 * n + ns + lengths);
    int64_t *v = snd_malloc(longs * sizeof *v + (size_t)pixels * sizeof(float));
    if (!v) return SONDE_ENOMEM;
    out->own = v;
    out->targets = v;
    out->tokens = class ? NULL : v + n;
    out->src_tokens = pairs ? v + 2 * n : NULL;
    out->src_lengths = pairs ? v + 2 * n + ns : NULL;
    out->lengths = pairs ? out->src_lengths + most_rows(b) : NULL;
    out->x = class ? (float *)(void *)(v + longs) : NULL;
    return SONDE_OK;
}

void snd_batch_free(snd_batch *x) {
    snd_free(x->own);
    *x = (snd_batch){0};
}

// ---- lm and mlm -----------------------------------------------------------------------------------------------------------

static void clear_row(int64_t *tokens, int64_t *targets, int64_t T) {
    for (int64_t t = 0; t < T; t++) {
        tokens[t] = 0;
        targets[t] = IGNORED;
    }
}

// Token files may hold anything.
static sonde_status check_tokens(const job *j, int64_t first, const int64_t *v, int64_t n) {
    const int64_t vocab = j->b->o.vocab;
    if (j->d->kind != SND_DATA_TOKENS || vocab == 0) return SONDE_OK;
    for (int64_t i = 0; i < n; i++)
        SND_FAIL_IF(v[i] >= vocab, SONDE_ERANGE, "%s: token %lld of %s is %lld; the vocabulary has 0 to %lld",
                    j->d->name, (long long)(first + i), snd_split_name(j->s), (long long)v[i], (long long)vocab - 1);
    return SONDE_OK;
}

static sonde_status fill_next(const job *j, int64_t k, int64_t *tokens, int64_t *targets, int64_t T) {
    int64_t first;
    const int64_t n = snd_batches_window(j->b, j->s, k, &first);
    clear_row(tokens + n, targets + n, T - n);
    snd_set_tokens(j->d, j->s, first, n, tokens);
    snd_set_tokens(j->d, j->s, first + 1, n, targets);
    SND_TRY(check_tokens(j, first, tokens, n));
    return check_tokens(j, first + n, targets + n - 1, 1);
}

// Which places of a window of n are asked for: those whose number is at most *limit; at least one.
static int64_t count_asked(const job *j, int64_t k, int64_t n, double *limit) {
    const snd_key key = j->b->mask[j->s];
    const uint64_t at = (uint64_t)(k * j->b->o.tokens);
    const double share = j->d->settings.mask;
    double least = 1;
    int64_t asked = 0, ties = 0;
    for (int64_t t = 0; t < n; t++) {
        const double u = snd_uniform_at(key, at + (uint64_t)t);
        asked += u < share;
        ties = u < least ? 1 : ties + (u == least);
        least = fmin(least, u);
    }
    *limit = asked ? share : nextafter(least, 1);
    return asked ? asked : ties;
}

static void mask_one(const job *j, uint64_t i, int64_t *token) {
    const double u = snd_uniform_at(j->b->fate, 2 * i), which = snd_uniform_at(j->b->fate, 2 * i + 1);
    const snd_tokenizer *t = j->d->tok;
    if (u < 0.8)
        *token = t->special[SND_SPECIAL_MASK];
    else if (u < 0.9)
        *token = (int64_t)(which * (double)t->plain);
}

static void fill_masked(const job *j, int64_t k, int64_t *tokens, int64_t *targets, int64_t T) {
    int64_t first;
    double limit;
    const int64_t n = snd_batches_window(j->b, j->s, k, &first);
    clear_row(tokens, targets, T);
    snd_set_tokens(j->d, j->s, first, n, tokens);
    count_asked(j, k, n, &limit);
    for (int64_t t = 0; t < n; t++) {
        const uint64_t i = (uint64_t)(k * T + t);
        if (snd_uniform_at(j->b->mask[j->s], i) >= limit) continue;
        targets[t] = tokens[t];
        mask_one(j, i, &tokens[t]);
    }
}

static sonde_status fill_windows(const job *j) {
    const int64_t T = j->b->o.tokens, last = j->s == SND_SPLIT_TRAIN ? INT64_MAX : j->b->n[j->s];
    for (int64_t r = 0; r < j->n; r++) {
        const int64_t k = j->first + j->r0 + r;
        int64_t *tokens = j->out->tokens + r * T, *targets = j->out->targets + r * T;
        if (k >= last)
            clear_row(tokens, targets, T);
        else if (j->d->task == SND_TASK_MLM)
            fill_masked(j, k, tokens, targets, T);
        else
            SND_TRY(fill_next(j, k, tokens, targets, T));
    }
    return SONDE_OK;
}

static int64_t asked_of_window(const job *j, int64_t k) {
    int64_t first;
    double limit;
    if (j->s != SND_SPLIT_TRAIN && k >= j->b->n[j->s]) return 0;
    const int64_t n = snd_batches_window(j->b, j->s, k, &first);
    return j->d->task == SND_TASK_MLM ? count_asked(j, k, n, &limit) : n;
}

// ---- seq2seq --------------------------------------------------------------------------------------------------------------

static void fill_side(const snd_set *d, const int32_t *ids, int64_t n, bool bos, bool eos, int64_t pad, int64_t T,
                      int64_t *out) {
    int64_t at = 0;
    if (bos) out[at++] = d->tok->special[SND_SPECIAL_BOS];
    for (int64_t i = 0; i < n; i++) out[at++] = ids[i];
    if (eos) out[at++] = d->tok->special[SND_SPECIAL_EOS];
    while (at < T) out[at++] = pad;
}

// A row beyond the end reads one <pad>, since attention needs a key.
static void fill_pairs(const job *j, const snd_bucket *u) {
    const int64_t S = u->shape.src_tokens, T = u->shape.tokens, pad = j->d->tok->special[SND_SPECIAL_PAD];
    for (int64_t r = 0; r < j->n; r++) {
        static const snd_pair none;
        const snd_pair *found = snd_batches_pair(j->b, j->s, u, j->first + j->r0 + r), *p = found ? found : &none;
        const int32_t *ids = found ? j->d->ids.v + p->at : NULL;
        const int32_t *target = found ? ids + p->n_source : NULL;
        fill_side(j->d, ids, p->n_source, false, found, pad, S, j->out->src_tokens + r * S);
        fill_side(j->d, target, p->n_target, found, false, pad, T, j->out->tokens + r * T);
        fill_side(j->d, target, p->n_target, false, found, IGNORED, T, j->out->targets + r * T);
        j->out->src_lengths[r] = p->n_source + 1;
        j->out->lengths[r] = found ? p->n_target + 1 : 0;
    }
}

static int64_t asked_of_pair(const job *j, const snd_bucket *u, int64_t k) {
    const snd_pair *p = snd_batches_pair(j->b, j->s, u, k);
    return p ? p->n_target + 1 : 0;
}

// ---- class ----------------------------------------------------------------------------------------------------------------

// The image moved by dx, dy and, if asked, mirrored; what comes in from outside is a raw 0 (Krizhevsky 2009's pixels, He et
// al. 2016: 4 pixels of padding, a random crop, a flip half of the time).
static void augment(const job *j, int64_t k, const float *from, float *to) {
    uint32_t w[4];
    snd_philox(j->b->crop, (uint64_t)k, w);
    const int64_t dx = (int64_t)(w[0] % (2 * PAD + 1)) - PAD, dy = (int64_t)(w[1] % (2 * PAD + 1)) - PAD,
                  H = j->d->shape[1], W = j->d->shape[2];
    const bool flip = w[2] & 1;
    for (int64_t c = 0; c < j->d->shape[0]; c++) {
        const float outside = (float)(-j->d->shift[c] * j->d->scale[c]);
        for (int64_t y = 0; y < H; y++)
            for (int64_t x = 0; x < W; x++) {
                const int64_t fy = y + dy, fx = (flip ? W - 1 - x : x) + dx;
                const bool in = fy >= 0 && fy < H && fx >= 0 && fx < W;
                to[(c * H + y) * W + x] = in ? from[(c * H + fy) * W + fx] : outside;
            }
    }
}

static sonde_status fill_rows(const job *j) {
    const int64_t *sh = j->d->shape, n = sh[0] * sh[1] * sh[2];
    const bool moves = j->d->settings.augment && j->d->kind == SND_DATA_IMAGES && j->s == SND_SPLIT_TRAIN;
    float *image = moves ? snd_malloc((size_t)n * sizeof *image) : NULL;
    if (moves && !image) return SONDE_ENOMEM;
    for (int64_t r = 0; r < j->n; r++) {
        const int64_t k = j->first + j->r0 + r;
        float *x = j->out->x + r * n;
        if (j->s != SND_SPLIT_TRAIN && k >= j->b->n[j->s]) {
            memset(x, 0, (size_t)n * sizeof *x);
            j->out->targets[r] = IGNORED;
            continue;
        }
        snd_set_row(j->d, j->s, snd_batches_example(j->b, j->s, k), moves ? image : x, &j->out->targets[r]);
        if (moves) augment(j, k, image, x);
    }
    snd_free(image);
    return SONDE_OK;
}

// ---- a batch of the caller's ----------------------------------------------------------------------------------------------

typedef struct feed {
    const snd_batches *b;
    const snd_batch *from;
    int64_t rows, r0, n; // of the planned shape; of the part
} feed;

// limit 0: unknown.
static sonde_status check_numbers(const char *what, const int64_t *v, int64_t n, int64_t least, int64_t limit,
                                  int64_t except) {
    SND_FAIL_IF(!v, SONDE_EUSAGE, "the batch has no %s", what);
    for (int64_t i = 0; i < n; i++)
        SND_FAIL_IF((v[i] < least || (limit && v[i] >= limit)) && v[i] != except, SONDE_ERANGE,
                    "the batch's %s[%lld] is %lld; %lld to %lld are possible", what, (long long)i, (long long)v[i],
                    (long long)least, (long long)limit - 1);
    return SONDE_OK;
}

static sonde_status check_given(const feed *f) {
    const snd_batches *b = f->b;
    const snd_batch *g = f->from;
    const int64_t R = g->shape.rows, T = g->shape.tokens, S = g->shape.src_tokens, V = b->o.vocab;
    const bool class = b->d->task == SND_TASK_CLASS;
    SND_TRY(check_numbers("targets", g->targets, R * T, 0, class ? b->d->classes : V, IGNORED));
    if (class) {
        SND_FAIL_IF(!g->x, SONDE_EUSAGE, "the batch has no x");
        return SONDE_OK;
    }
    SND_TRY(check_numbers("tokens", g->tokens, R * T, 0, V, 0));
    if (b->d->task != SND_TASK_SEQ2SEQ) return SONDE_OK;
    SND_TRY(check_numbers("src_tokens", g->src_tokens, R * S, 0, V, 0));
    return g->src_lengths ? check_numbers("src_lengths", g->src_lengths, R, 1, S + 1, 1) : SONDE_OK;
}

static sonde_status find_shape(feed *f, snd_split s) {
    const snd_batch_shape *g = &f->from->shape;
    for (int k = 0; k < f->b->n_buckets; k++) {
        const snd_batch_shape *u = &f->b->shapes[k];
        if (u->tokens != g->tokens || u->src_tokens != g->src_tokens) continue;
        f->rows = u->rows;
        SND_FAIL_IF(g->rows < 1 || g->rows > u->rows || (s == SND_SPLIT_TRAIN && g->rows != u->rows), SONDE_ESHAPE,
                    "the batch has %lld rows; %s%lld are needed", (long long)g->rows,
                    s == SND_SPLIT_TRAIN ? "" : "1 to ", (long long)u->rows);
        return SONDE_OK;
    }
    const snd_batch_shape *u = &f->b->shapes[f->b->n_buckets - 1];
    SND_FAIL(SONDE_ESHAPE, "the batch's rows have %lld tokens and %lld of a source; %lld and %lld are needed",
             (long long)g->tokens, (long long)g->src_tokens, (long long)u->tokens, (long long)u->src_tokens);
}

static int64_t up_to_last(const int64_t *targets, int64_t T) {
    while (T > 0 && targets[T - 1] == IGNORED) T--;
    return T;
}

// Row r of what was given, or one without targets.
static void copy_row(const feed *f, int64_t r, snd_batch *out) {
    const snd_batch *g = f->from;
    const int64_t T = g->shape.tokens, S = g->shape.src_tokens, from = f->r0 + r, *sh = f->b->d->shape;
    const bool there = from < g->shape.rows, class = f->b->d->task == SND_TASK_CLASS;
    const int64_t n = class ? sh[0] * sh[1] * sh[2] : 0;
    for (int64_t i = 0; i < T; i++) {
        out->targets[r * T + i] = there ? g->targets[from * T + i] : IGNORED;
        if (!class) out->tokens[r * T + i] = there ? g->tokens[from * T + i] : 0;
    }
    for (int64_t i = 0; i < S; i++) out->src_tokens[r * S + i] = there ? g->src_tokens[from * S + i] : 0;
    if (S) out->src_lengths[r] = there ? g->src_lengths ? g->src_lengths[from] : S : 1;
    if (S) out->lengths[r] = up_to_last(out->targets + r * T, T);
    for (int64_t i = 0; i < n; i++) out->x[r * n + i] = there ? g->x[from * n + i] : 0;
}

static sonde_status copy_given(const snd_batches *b, snd_split s, int64_t part, int64_t parts, snd_batch *out) {
    feed f = {.b = b, .from = b->given};
    SND_TRY(find_shape(&f, s));
    SND_TRY(check_given(&f));
    f.n = f.rows / parts;
    f.r0 = part * f.n;
    out->shape = b->given->shape;
    out->shape.rows = f.n;
    for (int64_t r = 0; r < f.n; r++) copy_row(&f, r, out);
    const int64_t T = out->shape.tokens;
    out->asked = out->asked_all = 0;
    for (int64_t i = 0; i < f.n * T; i++) out->asked += out->targets[i] != IGNORED;
    for (int64_t i = 0; i < b->given->shape.rows * T; i++) out->asked_all += b->given->targets[i] != IGNORED;
    return SONDE_OK;
}

// ---- a batch --------------------------------------------------------------------------------------------------------------

static int64_t asked(const job *j, const snd_bucket *u, int64_t r0, int64_t n) {
    int64_t sum = 0;
    for (int64_t k = j->first + r0; k < j->first + r0 + n; k++) {
        if (j->d->task == SND_TASK_SEQ2SEQ)
            sum += asked_of_pair(j, u, k);
        else if (j->d->task == SND_TASK_CLASS)
            sum += j->s == SND_SPLIT_TRAIN || k < j->b->n[j->s];
        else
            sum += asked_of_window(j, k);
    }
    return sum;
}

sonde_status snd_batches_get(const snd_batches *b, snd_split s, int64_t index, int64_t part, int64_t parts,
                             snd_batch *out) {
    assert(parts > 0 && part >= 0 && part < parts && b->o.rows % parts == 0);
    if (b->given) return copy_given(b, s, part, parts, out);
    SND_FAIL_IF(b->d->fed, SONDE_EUSAGE, "there is no data: every batch has to be given");
    SND_FAIL_IF(index < 0 || b->n[s] == 0 || (s != SND_SPLIT_TRAIN && index >= snd_batches_count(b, s)), SONDE_ERANGE,
                "batch %lld of %s; it has %lld", (long long)index, snd_split_name(s),
                (long long)snd_batches_count(b, s));
    job j = {.b = b, .d = b->d, .s = s, .first = index * b->o.rows, .out = out};
    const snd_bucket *u = b->bucket;
    if (b->d->task == SND_TASK_SEQ2SEQ) u = snd_batches_bucket(b, s, index, &j.first);
    j.n = u->shape.rows / parts;
    j.r0 = part * j.n;
    out->shape = u->shape;
    out->shape.rows = j.n;
    out->asked = asked(&j, u, j.r0, j.n);
    out->asked_all = parts == 1 ? out->asked : asked(&j, u, 0, u->shape.rows);
    if (b->d->task == SND_TASK_CLASS) return fill_rows(&j);
    if (b->d->task != SND_TASK_SEQ2SEQ) return fill_windows(&j);
    fill_pairs(&j, u);
    return SONDE_OK;
}
