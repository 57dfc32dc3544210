// Data to train on: opening by kind, tokenizers, the fingerprint, and what a set is asked. How each kind is read stands in
// set_text.c, set_pairs.c and set_rows.c.
#include "data/inner.h"

#include <assert.h>
#include <string.h>

static const char *const TASKS[] = {"", "lm", "mlm", "seq2seq", "class"};

// ---- opening --------------------------------------------------------------------------------------------------------------

static bool ends_with(const char *s, const char *end) {
    const size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

// Paths as they are found from here.
static sonde_status find_place(snd_set *d, const char *key, const char **path) {
    if (!*path || !snd_data_is_relative(key, *path)) return SONDE_OK;
    const char *there = snd_arena_printf(d->places, "%s/%s", d->settings.folder, *path);
    if (!there) return SONDE_ENOMEM;
    const bool found = snd_same_file(there, there), gone = !found && !snd_same_file(*path, *path);
    const bool here = snd_same_file(d->settings.folder, "."); // no other place was ever spoken of
    SND_FAIL_IF(gone && here && !strcmp(key, "tokenizer"), SONDE_EIO,
                "tokenizer: '%s' is neither bytes, chars, bpe nor a file here", *path);
    SND_FAIL_IF(gone && here, SONDE_EIO, "cannot read %s: no such file or folder here", *path);
    SND_FAIL_IF(
        gone, SONDE_EIO,
        "%s: it was read from %s and is not there any more; --data-folder DIR says where its relative paths begin now",
        *path, d->settings.folder);
    if (found) *path = there;
    return SONDE_OK;
}

static sonde_status find_places(snd_set *d) {
    snd_data_settings *s = &d->settings;
    if (!s->folder) return SONDE_OK;
    d->places = snd_arena_create();
    if (!d->places) return SONDE_ENOMEM;
    SND_TRY(find_place(d, "path", &s->path));
    SND_TRY(find_place(d, "valid_path", &s->valid_path));
    SND_TRY(find_place(d, "test_path", &s->test_path));
    return find_place(d, "tokenizer", &s->tokenizer);
}

bool snd_data_has_classes(const snd_data_settings *s) {
    if (s->kind != SND_DATA_AUTO) return s->kind == SND_DATA_TABLE || s->kind == SND_DATA_IMAGES;
    return s->path && (ends_with(s->path, ".csv") || ends_with(s->path, ".csv.gz"));
}

// Images are known by what they are, whatever they are asked for.
static snd_data_kind guess(const char *path, snd_task task) {
    if (snd_set_is_images(path)) return SND_DATA_IMAGES;
    if (task == SND_TASK_SEQ2SEQ) return SND_DATA_PAIRS;
    if (task == SND_TASK_CLASS) return snd_is_folder(path) ? SND_DATA_IMAGES : SND_DATA_TABLE;
    return ends_with(path, ".bin") ? SND_DATA_TOKENS : SND_DATA_TEXT;
}

static sonde_status check_kind(const snd_set *d) {
    const bool text = d->kind == SND_DATA_TEXT, tokens = d->kind == SND_DATA_TOKENS;
    const bool fits = d->task == SND_TASK_LM        ? text || tokens
                      : d->task == SND_TASK_MLM     ? text
                      : d->task == SND_TASK_SEQ2SEQ ? d->kind == SND_DATA_PAIRS
                                                    : d->kind == SND_DATA_IMAGES || d->kind == SND_DATA_TABLE;
    const bool classes = d->kind == SND_DATA_IMAGES || d->kind == SND_DATA_TABLE;
    SND_FAIL_IF(!fits, SONDE_EUNSUPPORTED, "%s: data of kind %s do not serve the objective %s, which needs %s%s",
                d->name, snd_data_kind_name(d->kind), TASKS[d->task],
                d->task == SND_TASK_LM        ? "text or tokens"
                : d->task == SND_TASK_MLM     ? "text (token numbers have no mask token)"
                : d->task == SND_TASK_SEQ2SEQ ? "pairs"
                                              : "images or a table",
                classes == (d->task == SND_TASK_CLASS) ? ""
                : !classes                             ? "; text, tokens and pairs need family=transformer"
                : d->kind == SND_DATA_TABLE            ? "; family=transformer takes tokens, a table needs family=mlp"
                                            : "; family=transformer takes tokens, images need family=convnet or mlp");
    return SONDE_OK;
}

static sonde_status read(snd_set *d) {
    const snd_data_settings *s = &d->settings;
    SND_TRY(find_places(d));
    d->kind = s->kind ? s->kind : guess(s->path, d->task);
    SND_TRY(check_kind(d));
    SND_FAIL_IF(s->valid + s->test > 0.95, SONDE_ERANGE,
                "validation and test take %.0f %% of %s together; at most 95 %% are possible",
                100 * (s->valid + s->test), d->name);
    if (s->valid_path) d->settings.valid = 0;
    if (s->test_path) d->settings.test = 0;
    const double shares[] = {d->settings.valid, d->settings.test, s->mask, s->augment};
    const int ints[] = {d->kind, d->task};
    snd_set_mix(d, shares, sizeof shares);
    snd_set_mix(d, ints, sizeof ints);
    switch (d->kind) {
    case SND_DATA_PAIRS: SND_TRY(snd_set_read_pairs(d)); break;
    case SND_DATA_IMAGES:
    case SND_DATA_TABLE: SND_TRY(snd_set_read_rows(d)); break;
    default: SND_TRY(snd_set_read_text(d));
    }
    // the caller's texts may be gone tomorrow
    d->settings.path = d->settings.valid_path = d->settings.test_path = d->settings.folder = NULL;
    d->settings.tokenizer = d->settings.columns = d->settings.label = d->settings.classes = NULL;
    return SONDE_OK;
}

// The settings' path is there: a file's, or a name for what is in memory.
static sonde_status open(const snd_data_settings *s, const snd_memory *m, snd_task task, snd_set **out) {
    snd_set *d = snd_calloc(1, sizeof *d);
    char *name = d ? snd_malloc(strlen(s->path) + 1) : NULL;
    if (!name) {
        snd_free(d);
        return SONDE_ENOMEM;
    }
    strcpy(name, s->path);
    *d = (snd_set){.task = task, .name = name, .settings = *s, .memory = m};
    const sonde_status status = read(d);
    snd_arena_destroy(d->places);
    d->places = NULL;
    d->memory = NULL;
    if (status != SONDE_OK) {
        snd_set_close(d);
        return status;
    }
    *out = d;
    return SONDE_OK;
}

sonde_status snd_set_open(const snd_data_settings *s, snd_task task, snd_set **out) {
    *out = NULL;
    SND_FAIL_IF(!s->path, SONDE_EUSAGE, "no data to train on; give --data FILE (or path: under data: in the spec)");
    return open(s, NULL, task, out);
}

sonde_status snd_set_of(const snd_memory *m, const snd_data_settings *given, snd_task task, snd_set **out) {
    snd_data_settings s = *given;
    *out = NULL;
    s.path = "memory";
    const bool images = m->row[1] * m->row[2] > 1;
    s.kind = m->text ? SND_DATA_TEXT : m->tokens ? SND_DATA_TOKENS : images ? SND_DATA_IMAGES : SND_DATA_TABLE;
    SND_FAIL_IF(!m->text && !m->tokens && !m->x, SONDE_EUSAGE, "no data: text, tokens or x are needed");
    return open(&s, m, task, out);
}

sonde_status snd_set_fed(snd_task task, const int64_t row[3], int64_t classes, snd_set **out) {
    static const char name[] = "batches";
    *out = NULL;
    snd_set *d = snd_calloc(1, sizeof *d);
    char *copy = d ? snd_malloc(sizeof name) : NULL;
    if (!copy) {
        snd_free(d);
        return SONDE_ENOMEM;
    }
    memcpy(copy, name, sizeof name);
    *d = (snd_set){.task = task, .name = copy, .fed = true, .classes = classes};
    for (int i = 0; i < 3 && task == SND_TASK_CLASS; i++) d->shape[i] = row[i];
    *out = d;
    return SONDE_OK;
}

void snd_set_close(snd_set *d) {
    if (!d) return;
    for (int s = 0; s < SND_SPLIT_COUNT; s++) {
        snd_map_close(&d->map[s]);
        snd_free(d->of[s]);
        snd_array_free(&d->x[s]);
    }
    snd_tokenizer_destroy(d->tok);
    snd_free(d->own);
    snd_free(d->pairs);
    snd_free(d->ids.v);
    for (int64_t i = 0; i < d->n_names; i++) snd_free(d->class_names[i]);
    snd_free(d->class_names);
    snd_free(d->labels);
    snd_free(d->shift);
    snd_free(d->scale);
    snd_free(d->name);
    snd_free(d);
}

// ---- what the kinds share -------------------------------------------------------------------------------------------------

const char *snd_set_path(const snd_set *d, snd_split s) {
    return s == SND_SPLIT_TRAIN   ? d->settings.path
           : s == SND_SPLIT_VALID ? d->settings.valid_path
                                  : d->settings.test_path;
}

// Of much, the two ends and places in between: a change of the length or of any ordinary edit shows.
void snd_set_mix(snd_set *d, const void *p, size_t n) {
    enum { END = 1 << 16, PLACES = 1024, PIECE = 64 };
    const char *s = p;
    uint64_t part[4] = {d->fingerprint, n, 0, 0};
    if (n <= 4 * (size_t)END) {
        part[2] = snd_hash(p, n);
    } else {
        part[2] = snd_hash(s, END) ^ snd_hash(s + n - END, END);
        for (size_t i = 0; i < PLACES; i++) part[3] = part[3] * 31 + snd_hash(s + (n - PIECE) / PLACES * i, PIECE);
    }
    d->fingerprint = snd_hash(part, sizeof part);
}

static sonde_status load_tokenizer(snd_set *d, const char *path, unsigned specials) {
    snd_tokenizer *t;
    SND_TRY(snd_tokenizer_load(path, &t));
    if ((t->specials & specials) == specials) {
        d->tok = t;
        return SONDE_OK;
    }
    const sonde_status s = snd_tokenizer_with(t, t->specials | specials, &d->tok);
    snd_tokenizer_destroy(t);
    return s;
}

sonde_status snd_set_make_tokenizer(snd_set *d, const char *dflt, const uint8_t *all, size_t n_all,
                                    const uint8_t *train, size_t n_train, unsigned specials) {
    const char *word = d->settings.tokenizer ? d->settings.tokenizer : dflt;
    snd_tokenizer_kind kind = SND_TOK_INVALID;
    for (int k = SND_TOK_BYTES; k <= SND_TOK_BPE; k++)
        if (strcmp(word, snd_tokenizer_kind_name((snd_tokenizer_kind)k)) == 0) kind = (snd_tokenizer_kind)k;
    SND_FAIL_IF(
        !all && (kind == SND_TOK_CHARS || kind == SND_TOK_BPE), SONDE_EUSAGE,
        "tokenizer: %s is learned from text, and %s holds the numbers of tokens; a tokenizer's file is needed, or "
        "bytes",
        word, d->name);
    if (kind == SND_TOK_BPE) // what is learned is learned from what is trained on
        SND_TRY(snd_tokenizer_make(kind, d->name, train, n_train, d->settings.bpe_vocab, specials, &d->tok));
    else if (kind)
        SND_TRY(snd_tokenizer_make(kind, d->name, all, n_all, 0, specials, &d->tok));
    else
        SND_TRY(load_tokenizer(d, word, specials));
    snd_buf json = {0};
    const sonde_status s = snd_tokenizer_write(d->tok, &json);
    if (s == SONDE_OK) snd_set_mix(d, json.s, json.len);
    snd_buf_free(&json);
    return s;
}

// ---- asked ----------------------------------------------------------------------------------------------------------------

snd_data_kind snd_set_kind(const snd_set *d) {
    return d->kind;
}
const char *snd_task_name(snd_task t) {
    return TASKS[t];
}
snd_task snd_set_task(const snd_set *d) {
    return d->task;
}
const char *snd_set_name(const snd_set *d) {
    return d->name;
}
uint64_t snd_set_fingerprint(const snd_set *d) {
    return d->fingerprint;
}
const snd_tokenizer *snd_set_tokenizer(const snd_set *d) {
    return d->tok;
}
int64_t snd_set_vocab(const snd_set *d) {
    return d->tok ? snd_tokenizer_vocab(d->tok) : 0;
}
double snd_set_encode_seconds(const snd_set *d) {
    return d->encode_sec;
}
int64_t snd_set_token_count(const snd_set *d, snd_split s) {
    return d->stream[s].n;
}
int64_t snd_set_byte_count(const snd_set *d, snd_split s) {
    return d->stream[s].bytes;
}

int64_t snd_set_first_bytes(const snd_set *d, snd_split s) {
    return d->stream[s].first;
}

void snd_set_tokens(const snd_set *d, snd_split s, int64_t first, int64_t n, int64_t *out) {
    const snd_stream *st = &d->stream[s];
    assert(first >= 0 && n >= 0 && first + n <= st->n);
    if (st->width == 1) {
        const uint8_t *v = st->v;
        for (int64_t i = 0; i < n; i++) out[i] = v[first + i];
    } else {
        const uint16_t *v = st->v;
        for (int64_t i = 0; i < n; i++) out[i] = v[first + i];
    }
}

int64_t snd_set_token_range(const snd_set *d) {
    int64_t range = 0;
    for (int s = 0; s < SND_SPLIT_COUNT; s++) {
        const snd_stream *st = &d->stream[s];
        const uint8_t *narrow = st->v;
        const uint16_t *wide = st->v;
        for (int64_t i = 0; i < st->n; i++) {
            const int64_t token = st->width == 1 ? narrow[i] : wide[i];
            if (token >= range) range = token + 1;
        }
    }
    return range;
}

sonde_status snd_set_unknown(const snd_set *d, snd_split s, snd_unknown *u) {
    snd_text text[SND_SPLIT_COUNT], side[2];
    if (!d->tok || d->tok->kind != SND_TOK_CHARS) return SONDE_OK;
    for (int64_t i = 0; i < snd_set_pair_count(d, s); i++) {
        snd_set_pair(d, s, i, &side[0], &side[1]);
        for (int k = 0; k < 2; k++) SND_TRY(snd_tokenizer_unknown(d->tok, (const uint8_t *)side[k].s, side[k].n, u));
    }
    if (d->kind != SND_DATA_TEXT) return SONDE_OK;
    snd_set_spans(d, text);
    return snd_tokenizer_unknown(d->tok, (const uint8_t *)text[s].s, text[s].n, u);
}

int64_t snd_set_pair_count(const snd_set *d, snd_split s) {
    return d->kind == SND_DATA_PAIRS ? d->n_of[s] : 0;
}
void snd_set_pair(const snd_set *d, snd_split s, int64_t i, snd_text *source, snd_text *target) {
    assert(i >= 0 && i < snd_set_pair_count(d, s));
    const snd_pair *p = &d->pairs[d->of[s][i]];
    *source = p->source;
    *target = p->target;
}
int64_t snd_set_row_count(const snd_set *d, snd_split s) {
    return d->kind == SND_DATA_IMAGES || d->kind == SND_DATA_TABLE ? d->n_of[s] : 0;
}
int64_t snd_set_classes(const snd_set *d) {
    return d->classes;
}
const char *snd_set_class_name(const snd_set *d, int64_t c) {
    return c >= 0 && c < d->n_names ? d->class_names[c] : NULL;
}
void snd_set_row_shape(const snd_set *d, int64_t shape[3]) {
    memcpy(shape, d->shape, sizeof d->shape);
}

// "1.09 M", "950"
static void put_count(snd_buf *b, int64_t n) {
    const double v = (double)n;
    if (n < 10000) {
        snd_buf_printf(b, "%lld", (long long)n);
        return;
    }
    const bool mega = n >= 1000000, giga = n >= 1000000000;
    snd_buf_num(b, v / (giga ? 1e9 : mega ? 1e6 : 1e3), 3);
    snd_buf_put(b, giga ? " G" : mega ? " M" : " k");
}

void snd_set_describe(const snd_set *d, snd_buf *b) {
    const bool stream = d->kind == SND_DATA_TEXT || d->kind == SND_DATA_TOKENS;
    if (d->fed) {
        snd_buf_put(b, "batches that the program feeds");
        return;
    }
    const char *what = stream                       ? "tokens"
                       : d->kind == SND_DATA_PAIRS  ? "pairs"
                       : d->kind == SND_DATA_IMAGES ? "images"
                                                    : "rows";
    static const char *const uses[] = {" to train on", " for validation", " for the test"};
    snd_buf_printf(b, "%s: ", snd_data_kind_name(d->kind));
    for (int s = 0; s < SND_SPLIT_COUNT; s++) {
        const int64_t n = stream ? d->stream[s].n : d->n_of[s];
        if (s && n == 0) continue;
        if (s) snd_buf_put(b, ", ");
        put_count(b, n);
        snd_buf_printf(b, " %s%s", s ? "" : what, uses[s] + (s && 1));
    }
    if (d->tok)
        snd_buf_printf(b, "; %s, %lld tokens", snd_tokenizer_kind_name(d->tok->kind), (long long)snd_set_vocab(d));
    if (!stream && d->kind != SND_DATA_PAIRS)
        snd_buf_printf(b, "; %lld x %lld x %lld, %lld classes", (long long)d->shape[0], (long long)d->shape[1],
                       (long long)d->shape[2], (long long)d->classes);
}
