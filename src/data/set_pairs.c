// Parallel text: lines of tab-separated fields, two of which are a pair. All lines have the same number of fields. A pair's
// split is decided by its source alone, so that a sentence that occurs twice is on one side of the cut, and a file that
// grows keeps its splits.
#include "data/inner.h"

#include <string.h>

enum { FIELDS_MAX = 64 };

// ---- lines ----------------------------------------------------------------------------------------------------------------

typedef struct lines {
    snd_set *d;
    const char *name, *columns;
    int64_t line;
    int n_fields, source, target; // of every line; indices of the two columns. n_fields 0: no line yet
} lines;

static sonde_status pick_columns(lines *l) {
    l->source = l->n_fields - 2;
    l->target = l->n_fields - 1;
    if (l->columns) {
        int64_t a = 0, b = 0;
        const char *end = NULL;
        const bool ok = snd_parse_int(l->columns, &a, &end) && *end == ',' && snd_parse_int(end + 1, &b, NULL);
        char shown[72];
        SND_FAIL_IF(!ok || a < 1 || b < 1 || a == b, SONDE_ERANGE, "columns: '%s' is not SOURCE,TARGET counted from 1",
                    snd_shown(shown, l->columns));
        SND_FAIL_IF(a > l->n_fields || b > l->n_fields, SONDE_EINPUT,
                    "%s: line %lld: %d fields, columns %s are asked for", l->name, (long long)l->line, l->n_fields,
                    l->columns);
        l->source = (int)a - 1;
        l->target = (int)b - 1;
    }
    SND_FAIL_IF(l->n_fields < 2, SONDE_EINPUT, "%s: line %lld: no tab; a pair is SOURCE tab TARGET", l->name,
                (long long)l->line);
    return SONDE_OK;
}

static snd_text trimmed(const char *s, const char *end) {
    while (s < end && *s == ' ') s++;
    while (end > s && end[-1] == ' ') end--;
    return (snd_text){s, (size_t)(end - s)};
}

static int split_fields(const char *s, const char *end, snd_text *field) {
    int n = 0;
    for (;; n++) {
        const char *tab = memchr(s, '\t', (size_t)(end - s));
        if (n < FIELDS_MAX) field[n] = trimmed(s, tab ? tab : end);
        if (!tab) return n + 1;
        s = tab + 1;
    }
}

static snd_split split_of(const snd_data_settings *s, snd_text source) {
    const snd_key key = snd_key_make(snd_hash(source.s, source.n), "data.split");
    const double u = snd_uniform_at(key, 0);
    return u < s->valid ? SND_SPLIT_VALID : u < s->valid + s->test ? SND_SPLIT_TEST : SND_SPLIT_TRAIN;
}

static sonde_status take_line(lines *l, const char *s, const char *end, snd_split split) {
    snd_text field[FIELDS_MAX];
    const int n = split_fields(s, end, field);
    SND_FAIL_IF(n > FIELDS_MAX, SONDE_EINPUT, "%s: line %lld: %d fields; at most %d are read", l->name,
                (long long)l->line, n, FIELDS_MAX);
    SND_FAIL_IF(l->n_fields && n != l->n_fields, SONDE_EINPUT, "%s: line %lld: %d field%s, the lines before have %d",
                l->name, (long long)l->line, n, n == 1 ? "" : "s", l->n_fields);
    if (!l->n_fields) {
        l->n_fields = n;
        SND_TRY(pick_columns(l));
    }
    const snd_text source = field[l->source], target = field[l->target];
    SND_FAIL_IF(source.n == 0 || target.n == 0, SONDE_EINPUT, "%s: line %lld: the %s is empty", l->name,
                (long long)l->line, source.n ? "target" : "source");
    snd_set *d = l->d;
    void *pairs = d->pairs;
    if (!snd_grow(&pairs, &d->cap_pairs, d->n_pairs + 1, sizeof *d->pairs)) return SONDE_ENOMEM;
    d->pairs = pairs;
    if (split == SND_SPLIT_TRAIN) split = split_of(&d->settings, source);
    d->pairs[d->n_pairs++] = (snd_pair){.source = source, .target = target, .split = split};
    return SONDE_OK;
}

sonde_status snd_pairs_parse(snd_set *d, const char *name, const uint8_t *bytes, size_t n, const char *columns,
                             snd_split split) {
    lines l = {.d = d, .name = name, .columns = columns};
    const char *s = (const char *)bytes, *end = s + n;
    if (n >= 3 && memcmp(s, "\xEF\xBB\xBF", 3) == 0) s += 3; // byte order mark
    while (s < end) {
        const char *stop = memchr(s, '\n', (size_t)(end - s));
        const char *next = stop ? stop + 1 : end;
        if (!stop) stop = end;
        if (stop > s && stop[-1] == '\r') stop--;
        l.line++;
        if (stop > s) SND_TRY(take_line(&l, s, stop, split));
        s = next;
    }
    SND_FAIL_IF(!l.n_fields, SONDE_EINPUT, "%s: no pairs in it", name);
    return SONDE_OK;
}

// ---- the set --------------------------------------------------------------------------------------------------------------

// What a shared tokenizer is made from: sources and targets, a line each.
static sonde_status join_texts(const snd_set *d, bool all, snd_buf *b) {
    for (int64_t i = 0; i < d->n_pairs; i++) {
        const snd_pair *p = &d->pairs[i];
        if (!all && p->split != SND_SPLIT_TRAIN) continue;
        snd_buf_putn(b, p->source.s, p->source.n);
        snd_buf_put(b, "\n");
        snd_buf_putn(b, p->target.s, p->target.n);
        snd_buf_put(b, "\n");
    }
    return b->failed ? SONDE_ENOMEM : SONDE_OK;
}

static sonde_status make_tokenizer(snd_set *d) {
    const unsigned specials = 1u << SND_SPECIAL_PAD | 1u << SND_SPECIAL_BOS | 1u << SND_SPECIAL_EOS;
    snd_buf all = {0}, train = {0};
    sonde_status s = join_texts(d, true, &all);
    if (s == SONDE_OK) s = join_texts(d, false, &train);
    if (s == SONDE_OK)
        s = snd_set_make_tokenizer(d, "bpe", (const uint8_t *)all.s, all.len, (const uint8_t *)train.s, train.len,
                                   specials);
    snd_buf_free(&all);
    snd_buf_free(&train);
    return s;
}

static sonde_status encode_pairs(snd_set *d) {
    snd_encoder e = {.t = d->tok};
    sonde_status s = SONDE_OK;
    for (int64_t i = 0; i < d->n_pairs && s == SONDE_OK; i++) {
        snd_pair *p = &d->pairs[i];
        p->at = d->ids.n;
        s = snd_encode_more(&e, d->name, (const uint8_t *)p->source.s, p->source.n, &d->ids);
        p->n_source = (int32_t)(d->ids.n - p->at);
        if (s == SONDE_OK) s = snd_encode_more(&e, d->name, (const uint8_t *)p->target.s, p->target.n, &d->ids);
        p->n_target = (int32_t)(d->ids.n - p->at - p->n_source);
    }
    snd_free(e.seen);
    return s;
}

static sonde_status list_splits(snd_set *d) {
    for (int64_t i = 0; i < d->n_pairs; i++) d->n_of[d->pairs[i].split]++;
    for (int s = 0; s < SND_SPLIT_COUNT; s++) {
        d->of[s] = snd_malloc((size_t)(d->n_of[s] + 1) * sizeof *d->of[s]);
        if (!d->of[s]) return SONDE_ENOMEM;
        d->n_of[s] = 0;
    }
    for (int64_t i = 0; i < d->n_pairs; i++) d->of[d->pairs[i].split][d->n_of[d->pairs[i].split]++] = (int32_t)i;
    SND_FAIL_IF(d->n_of[SND_SPLIT_TRAIN] == 0, SONDE_EINPUT, "%s: %lld pairs, none of which is left to train on",
                d->name, (long long)d->n_pairs);
    return SONDE_OK;
}

sonde_status snd_set_read_pairs(snd_set *d) {
    for (int s = 0; s < SND_SPLIT_COUNT; s++) {
        const char *path = snd_set_path(d, (snd_split)s);
        if (!path) continue;
        snd_map *m = &d->map[s];
        SND_TRY(snd_map_unpacked(path, m));
        SND_FAIL_IF(m->n == 0, SONDE_EINPUT, "%s: empty; there is nothing to learn from or to score", path);
        SND_TRY(snd_pairs_parse(d, path, m->bytes, m->n, d->settings.columns, (snd_split)s));
        snd_set_mix(d, m->bytes, m->n);
    }
    SND_FAIL_IF(d->n_pairs > INT32_MAX, SONDE_EUNSUPPORTED, "%s: %lld pairs; at most %d are possible", d->name,
                (long long)d->n_pairs, INT32_MAX);
    SND_TRY(list_splits(d));
    SND_TRY(make_tokenizer(d));
    const double start = snd_now();
    SND_TRY(encode_pairs(d));
    d->encode_sec = snd_now() - start;
    return SONDE_OK;
}
