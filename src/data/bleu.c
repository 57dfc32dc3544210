// BLEU as sacreBLEU defines it. Segments are tokenized by 13a, then n-grams of both sides are counted under numbers: an
// n-gram is the number of its first n-1 tokens and its last token, so equal numbers are equal n-grams, never only hashes.
#include "data/inner.h"

#include <math.h>
#include <string.h>

enum { ORDER = 4 };

const char *snd_bleu_signature(void) {
    return "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp";
}

// ---- 13a ------------------------------------------------------------------------------------------------------------------
// mteval-v13a's international tokenization as sacreBLEU has it: five replacements, each over the whole line and from left to
// right, what one match used not being looked at again. All classes are ASCII, so bytes do for characters.

// Length of the white space at s that Python's str.split() knows, else 0.
static int space_at(const char *s, size_t n) {
    uint32_t c;
    const int len = snd_utf8_at(s, n, &c);
    if (len == 0) return 0;
    const bool ascii = c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x1F);
    const bool wide = c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
                      c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
    return ascii || wide ? len : 0;
}

static void replace(snd_buf *b, const char *what, const char *with) {
    snd_buf out = {0};
    const char *s = b->s ? b->s : "", *end = s + b->len;
    const size_t n = strlen(what);
    while (s < end) {
        const char *at = memmem(s, (size_t)(end - s), what, n);
        snd_buf_putn(&out, s, (size_t)((at ? at : end) - s));
        if (at) snd_buf_put(&out, with);
        s = at ? at + n : end;
    }
    out.failed |= b->failed;
    snd_buf_free(b);
    *b = out;
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}
static bool is_stop(char c) {
    return c == '.' || c == ',';
}
static bool is_mark(char ch) {
    const unsigned char c = (unsigned char)ch;
    return (c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') || (c >= '(' && c <= '+') ||
           (c >= ':' && c <= '@') || c == '/';
}

// Rule 0: a mark stands alone.  1: . and , after what is no digit.  2: . and , before what is no digit.  3: - after a digit.
static void apply(snd_buf *b, int rule) {
    snd_buf out = {0};
    const char *s = b->s;
    for (size_t i = 0; i < b->len;) {
        const bool more = i + 1 < b->len;
        const bool hit = rule == 0   ? is_mark(s[i])
                         : rule == 1 ? more && !is_digit(s[i]) && is_stop(s[i + 1])
                         : rule == 2 ? more && is_stop(s[i]) && !is_digit(s[i + 1])
                                     : more && is_digit(s[i]) && s[i + 1] == '-';
        const bool before = hit && (rule == 0 || rule == 2);
        if (before) snd_buf_put(&out, " ");
        snd_buf_putn(&out, s + i++, 1);
        if (!hit) continue;
        snd_buf_put(&out, " ");
        if (rule == 0) continue;
        snd_buf_putn(&out, s + i++, 1);
        if (rule != 2) snd_buf_put(&out, " ");
    }
    out.failed |= b->failed;
    snd_buf_free(b);
    *b = out;
}

static void put_words(const snd_buf *b, snd_buf *out) {
    bool first = true, open = false;
    for (size_t i = 0; i < b->len;) {
        const int blank = space_at(b->s + i, b->len - i);
        if (blank) {
            i += (size_t)blank;
            open = false;
            continue;
        }
        if (!open && !first) snd_buf_put(out, " ");
        first = false;
        open = true;
        snd_buf_putn(out, b->s + i++, 1);
    }
}

static size_t trimmed_length(snd_text t) {
    size_t end = 0;
    for (size_t i = 0; i < t.n;) {
        const int blank = space_at(t.s + i, t.n - i);
        i += blank ? (size_t)blank : 1;
        if (!blank) end = i;
    }
    return end;
}

sonde_status snd_bleu_tokens(snd_text segment, snd_buf *out) {
    static const char *const texts[][2] = {{"<skipped>", ""}, {"-\n", ""},   {"\n", " "},  {"&quot;", "\""},
                                           {"&amp;", "&"},    {"&lt;", "<"}, {"&gt;", ">"}};
    snd_buf b = {0};
    snd_buf_putn(&b, segment.s, trimmed_length(segment));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (b.len) replace(&b, texts[i][0], texts[i][1]);
    snd_buf line = {0};
    snd_buf_put(&line, " ");
    snd_buf_putn(&line, b.s ? b.s : "", b.len);
    snd_buf_put(&line, " ");
    line.failed |= b.failed;
    snd_buf_free(&b);
    for (int rule = 0; rule < 4; rule++) apply(&line, rule);
    out->failed |= line.failed;
    put_words(&line, out);
    snd_buf_free(&line);
    return out->failed ? SONDE_ENOMEM : SONDE_OK;
}

// ---- n-grams --------------------------------------------------------------------------------------------------------------

// Two tokenized segments and their n-grams.
typedef struct counter {
    snd_buf text[2];
    snd_ids token[2];   // numbers of words
    snd_table words;    // hash of a word -> where it stands; equal hashes are taken one further
    snd_ids at, length; // of word i, in the texts put together
    snd_table grams;    // (number of the tokens before + 1) << 32 | word -> number
    int32_t *times[2];  // of n-gram i, in each
    snd_buf all;
} counter;

static void counter_free(counter *c) {
    for (int i = 0; i < 2; i++) {
        snd_buf_free(&c->text[i]);
        snd_free(c->token[i].v);
        snd_free(c->times[i]);
    }
    snd_table_free(&c->words);
    snd_table_free(&c->grams);
    snd_free(c->at.v);
    snd_free(c->length.v);
    snd_buf_free(&c->all);
}

static sonde_status number_word(counter *c, size_t at, size_t n, int32_t *out) {
    const char *s = c->all.s + at;
    for (uint64_t h = snd_hash(s, n);; h++) {
        int32_t *slot = snd_table_put(&c->words, h == UINT64_MAX ? 0 : h);
        if (!slot) return SONDE_ENOMEM;
        if (*slot < 0) {
            *slot = *out = (int32_t)c->at.n;
            return snd_ids_push(&c->at, (int32_t)at) && snd_ids_push(&c->length, (int32_t)n) ? SONDE_OK : SONDE_ENOMEM;
        }
        *out = *slot;
        if ((size_t)c->length.v[*slot] == n && memcmp(c->all.s + c->at.v[*slot], s, n) == 0) return SONDE_OK;
    }
}

static sonde_status number_words(counter *c, size_t from, size_t to, snd_ids *out) {
    for (size_t i = from; i < to;) {
        const char *end = memchr(c->all.s + i, ' ', to - i);
        const size_t n = end ? (size_t)(end - c->all.s) - i : to - i;
        int32_t word = 0;
        SND_TRY(number_word(c, i, n, &word));
        if (!snd_ids_push(out, word)) return SONDE_ENOMEM;
        i += n + 1;
    }
    return SONDE_OK;
}

// Visits the n-grams of side k. For the output (k = 0), which comes second, one that the reference has more often than seen
// so far is correct.
static sonde_status count_grams(counter *c, int k, snd_bleu *b) {
    const snd_ids *t = &c->token[k];
    for (int64_t i = 0; i < t->n; i++) {
        int32_t before = -1;
        for (int n = 0; n < ORDER && i + n < t->n; n++) {
            int32_t *slot = snd_table_put(&c->grams, (uint64_t)(uint32_t)(before + 1) << 32 | (uint32_t)t->v[i + n]);
            if (!slot) return SONDE_ENOMEM;
            if (*slot < 0) *slot = (int32_t)c->grams.n - 1;
            before = *slot;
            const int32_t seen = c->times[k][before]++;
            if (k) continue;
            b->total[n]++;
            b->correct[n] += seen < c->times[1][before];
        }
    }
    return SONDE_OK;
}

static sonde_status take_segment(counter *c, snd_text hyp, snd_text ref, snd_bleu *b) {
    SND_TRY(snd_bleu_tokens(hyp, &c->text[0]));
    SND_TRY(snd_bleu_tokens(ref, &c->text[1]));
    for (int k = 0; k < 2; k++) snd_buf_putn(&c->all, c->text[k].s ? c->text[k].s : "", c->text[k].len);
    if (c->all.failed) return SONDE_ENOMEM;
    SND_FAIL_IF(c->all.len > INT32_MAX / ORDER, SONDE_EUNSUPPORTED, "a segment of %zu bytes is too long for BLEU",
                c->all.len);
    SND_TRY(number_words(c, 0, c->text[0].len, &c->token[0]));
    SND_TRY(number_words(c, c->text[0].len, c->all.len, &c->token[1]));
    for (int k = 0; k < 2; k++) {
        c->times[k] = snd_calloc((size_t)(ORDER * (c->token[0].n + c->token[1].n) + 1), sizeof *c->times[k]);
        if (!c->times[k]) return SONDE_ENOMEM;
    }
    b->sys_len += c->token[0].n;
    b->ref_len += c->token[1].n;
    SND_TRY(count_grams(c, 1, b));
    return count_grams(c, 0, b);
}

// ---- the score ------------------------------------------------------------------------------------------------------------

static void finish(snd_bleu *b) {
    double logs = 0, smooth = 1;
    bool any = false, all = true;
    for (int n = 0; n < ORDER; n++) any = any || b->correct[n] > 0;
    b->brevity = b->sys_len >= b->ref_len ? 1 : b->sys_len > 0 ? exp(1 - (double)b->ref_len / (double)b->sys_len) : 0;
    for (int n = 0; n < ORDER && any; n++) {
        if (b->total[n] == 0) {
            all = false;
            break;
        }
        if (b->correct[n] == 0) smooth *= 2;
        const double hits = b->correct[n] ? (double)b->correct[n] : 1 / smooth;
        b->precision[n] = 100 * hits / (double)b->total[n];
        logs += log(b->precision[n]);
    }
    b->score = any && all ? b->brevity * exp(logs / ORDER) : 0;
}

sonde_status snd_bleu_corpus(const snd_text *hyp, const snd_text *ref, int64_t n, snd_bleu *out) {
    *out = (snd_bleu){0};
    for (int64_t i = 0; i < n; i++) {
        counter c = {0};
        const sonde_status s = take_segment(&c, hyp[i], ref[i], out);
        counter_free(&c);
        SND_TRY(s);
    }
    finish(out);
    return SONDE_OK;
}

// One or three decimals whatever the locale.
static void put_fixed(snd_buf *b, double v, int decimals) {
    const int64_t unit = decimals == 1 ? 10 : decimals == 2 ? 100 : 1000, x = llround(v * (double)unit);
    snd_buf_printf(b, "%lld.%0*lld", (long long)(x / unit), decimals, (long long)(x % unit));
}

void snd_bleu_text(const snd_bleu *b, snd_buf *out) {
    snd_buf_put(out, "BLEU = ");
    put_fixed(out, b->score, 2);
    for (int n = 0; n < ORDER; n++) {
        snd_buf_put(out, n ? "/" : " ");
        put_fixed(out, b->precision[n], 1);
    }
    snd_buf_put(out, " (BP = ");
    put_fixed(out, b->brevity, 3);
    snd_buf_put(out, " ratio = ");
    put_fixed(out, b->ref_len ? (double)b->sys_len / (double)b->ref_len : 0, 3);
    snd_buf_printf(out, " hyp_len = %lld ref_len = %lld)", (long long)b->sys_len, (long long)b->ref_len);
}
