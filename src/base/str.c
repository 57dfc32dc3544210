// Text: growable buffers, nearest word, shell patterns, hashing. No locale, no character sets beyond bytes.
// Invariant of a buffer: s is NULL or holds len bytes and a NUL; after a failed allocation it keeps what it had and
// ignores further text, so a writer checks `failed` once, at the end.
#include "base/base.h"

#include <string.h>

static bool make_room(snd_buf *b, size_t n) {
    int64_t cap = (int64_t)b->cap;
    void *p = b->s;
    if (n > PTRDIFF_MAX - b->len - 1 || !snd_grow(&p, &cap, (int64_t)(b->len + n + 1), 1)) {
        b->failed = true;
        return false;
    }
    b->s = p;
    b->cap = (size_t)cap;
    return true;
}

void snd_buf_putn(snd_buf *b, const char *s, size_t n) {
    if (b->failed || (n >= b->cap - b->len && !make_room(b, n))) return; // cap 0: len is 0 too
    if (n) memcpy(b->s + b->len, s, n);
    b->len += n;
    b->s[b->len] = 0;
}

void snd_buf_put(snd_buf *b, const char *s) {
    snd_buf_putn(b, s, strlen(s));
}

void snd_buf_printf(snd_buf *b, const char *fmt, ...) {
    char small[256];
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    const int n = vsnprintf(small, sizeof small, fmt, ap);
    va_end(ap);
    if (n < 0) {
        b->failed = true;
    } else if ((size_t)n < sizeof small) {
        snd_buf_putn(b, small, (size_t)n);
    } else {
        char *big = snd_malloc((size_t)n + 1);
        if (big) {
            vsnprintf(big, (size_t)n + 1, fmt, again);
            snd_buf_putn(b, big, (size_t)n);
        }
        b->failed |= !big;
        snd_free(big);
    }
    va_end(again);
}

void snd_buf_num(snd_buf *b, double v, int digits) {
    char text[40];
    snd_buf_put(b, snd_format_num(text, v, digits));
}

void snd_buf_free(snd_buf *b) {
    snd_free(b->s);
    *b = (snd_buf){0};
}

static int lower(char c) {
    return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : (unsigned char)c;
}

enum { LONGEST_WORD = 63 };

// Optimal string alignment distance: insert, delete, replace and swap of neighbours cost 1 each.
static int edit_distance(const char *a, int na, const char *b, int nb) {
    int row[3][LONGEST_WORD + 1];
    for (int j = 0; j <= nb; j++) row[0][j] = j;
    for (int i = 1; i <= na; i++) {
        int *now = row[i % 3];
        const int *last = row[(i + 2) % 3], *before = row[(i + 1) % 3];
        now[0] = i;
        for (int j = 1; j <= nb; j++) {
            int best = last[j - 1] + (lower(a[i - 1]) != lower(b[j - 1]));
            if (last[j] + 1 < best) best = last[j] + 1;
            if (now[j - 1] + 1 < best) best = now[j - 1] + 1;
            const bool swapped =
                i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1]);
            if (swapped && before[j - 2] + 1 < best) best = before[j - 2] + 1;
            now[j] = best;
        }
    }
    return row[na % 3][nb];
}

// How many edits still make a likely slip: one in three letters. A single letter is near its other case only.
static int near_enough(size_t len, size_t other) {
    if (len == 1) return 0;
    const size_t longer = len > other ? len : other;
    return longer / 3 > 1 ? (int)(longer / 3) : 1;
}

const char *snd_nearest(const char *word, const char *const *candidates, int n) {
    const size_t len = strlen(word);
    if (!len || len > LONGEST_WORD) return NULL;
    int best = LONGEST_WORD;
    const char *found = NULL;
    for (int i = 0; i < n; i++) {
        const size_t other = strlen(candidates[i]);
        if (!other || other > LONGEST_WORD) continue;
        const int d = edit_distance(word, (int)len, candidates[i], (int)other);
        if (d > near_enough(len, other) || (found && d >= best)) continue;
        best = d;
        found = candidates[i];
    }
    return found;
}

bool snd_match(const char *pattern, const char *name) {
    const char *star = NULL, *resume = NULL; // where the last * stands, and up to where it has eaten
    while (*name) {
        if (*pattern == '*') {
            star = pattern++;
            resume = name;
        } else if (*pattern == '?' || *pattern == *name) {
            pattern++;
            name++;
        } else if (star) {
            pattern = star + 1;
            name = ++resume;
        } else {
            return false;
        }
    }
    while (*pattern == '*') pattern++;
    return !*pattern;
}

uint64_t snd_hash(const void *p, size_t n) {
    const unsigned char *s = p;
    uint64_t h = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < n; i++) h = (h ^ s[i]) * UINT64_C(1099511628211);
    return h;
}

uint64_t snd_hash_str(const char *s) {
    return snd_hash(s, strlen(s));
}

int snd_utf8_at(const char *text, size_t n, uint32_t *c) {
    const unsigned char *s = (const unsigned char *)text;
    *c = 0;
    if (n == 0) return 0;
    const int len = s[0] < 0x80                    ? 1
                    : s[0] >= 0xC2 && s[0] <= 0xDF ? 2
                    : (s[0] & 0xF0) == 0xE0        ? 3
                    : s[0] >= 0xF0 && s[0] <= 0xF4 ? 4
                                                   : 0;
    if ((size_t)len > n || len == 0) return 0;
    *c = len == 1 ? s[0] : s[0] & (0x7Fu >> len);
    for (int i = 1; i < len; i++) {
        if ((s[i] & 0xC0) != 0x80) return 0;
        *c = *c << 6 | (s[i] & 0x3Fu);
    }
    const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    return *c < least[len] || *c > 0x10FFFF || (*c >= 0xD800 && *c <= 0xDFFF) ? 0 : len;
}

const char *snd_shown(char out[72], const char *s) {
    enum { KEEP = 60 };
    size_t n = strlen(s);
    const bool cut = n > KEEP;
    if (cut) {
        n = KEEP;
        while (n > 0 && ((unsigned char)s[n] & 0xC0) == 0x80) n--; // continuation bytes of UTF-8
    }
    for (size_t i = 0; i < n; i++) out[i] = (unsigned char)s[i] < 0x20 || s[i] == 0x7F ? '?' : s[i];
    memcpy(out + n, cut ? "..." : "", cut ? 4 : 1);
    return out;
}
