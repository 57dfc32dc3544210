// Numbers as text, the same under every locale.
// Printing: the C library's digits, with whatever stands for the point replaced by a point.
// Parsing: the digits are gathered into an integer and an exponent ("12.5e3" -> "125e2"), a form that holds no point,
// and only that is given to strtod; so no locale is looked up, set or changed, and rounding is the C library's.
#include "base/base.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// Under -ffast-math compilers take isnan for false, here and in whatever else is built with the same flags.
#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error "sonde looks for NaN and Inf, which -ffast-math and -ffinite-math-only define away: build without them"
#endif

// Printed text with the locale's decimal point (one or more bytes) turned into '.'.
static void fix_point(char *s) {
    char *out = s;
    for (const char *in = s; *in;) {
        const bool plain = (*in >= '0' && *in <= '9') || *in == '-' || *in == '+' || *in == 'e';
        if (plain) {
            *out++ = *in++;
            continue;
        }
        *out++ = '.';
        while (*in && !(*in >= '0' && *in <= '9')) in++;
    }
    *out = 0;
}

static void print_digits(char out[40], double v, int digits) {
    char text[64];
    snprintf(text, sizeof text, "%.*g", digits, v);
    fix_point(text);
    assert(strlen(text) < 40);
    memcpy(out, text, strlen(text) + 1);
}

char *snd_format_num(char out[40], double v, int digits) {
    if (!isfinite(v)) return strcpy(out, isnan(v) ? "nan" : v > 0 ? "inf" : "-inf");
    if (digits < 1) digits = 1;
    if (digits < 17) {
        print_digits(out, v, digits);
        return out;
    }
    // Round trip in as few digits as will do: 0.1 and not 0.10000000000000001.
    // (Numbers below the normal range hold fewer than 15.)
    for (int n = fabs(v) < DBL_MIN ? 1 : 15; n <= 17; n++) {
        double back;
        print_digits(out, v, n);
        if (n == 17 || (snd_parse_num(out, &back, NULL) && back == v)) break;
    }
    return out;
}

static const double TENS[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                              1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
enum { SHORT_DIGITS = 9 };

// v * 10^(SHORT_DIGITS - 1 - e) rounded to a whole number; powers of ten up to 22 are exact, so that is one rounding.
static int64_t leading_digits(double v, int e) {
    const int k = SHORT_DIGITS - 1 - e;
    return llrint(k >= 0 ? v * TENS[k] : v / TENS[-k]);
}

// floor(log10 a) or one less: 1233/4096 is log10(2) from below, near enough for every exponent of a double.
static int exponent10(double a) {
    const int e = ilogb(a) * 1233;
    return e >= 0 ? e >> 12 : -((-e + 4095) >> 12);
}

// a as m * 10^(e - 8), m of nine digits; false where a is out of the fast range.
static bool split_short(double a, int64_t *m, int *e) {
    if (!(a >= 1e-13 && a < 1e15)) return false;
    *e = exponent10(a);
    *m = leading_digits(a, *e);
    if (*m >= 1000000000) *m = leading_digits(a, ++*e); // the guess or the rounding went over
    if (*m < 100000000) *m = leading_digits(a, --*e);
    return true;
}

// The same for what lies further out, where powers of ten are rounded (to 64 bits: the ninth digit hardly ever knows).
static bool split_far(double a, int64_t *m, int *e) {
    static const long double far[] = {1e0L,   1e27L,  1e54L,  1e81L,  1e108L, 1e135L,
                                      1e162L, 1e189L, 1e216L, 1e243L, 1e270L, 1e297L};
    if (!(a >= DBL_MIN && a <= DBL_MAX)) return false;
    *e = exponent10(a);
    for (int tries = 0; tries < 3; tries++) {
        const int k = SHORT_DIGITS - 1 - *e, n = k < 0 ? -k : k, low = n % 27 < 22 ? n % 27 : 22;
        const long double ten = far[n / 27] * TENS[low] * TENS[n % 27 - low];
        *m = llrintl(k >= 0 ? a * ten : a / ten);
        if (*m >= 100000000 && *m < 1000000000) return true;
        *e += *m < 100000000 ? -1 : 1;
    }
    return false;
}

double snd_round_short(double v) {
    int64_t m;
    int e;
    char text[40];
    if (!isfinite(v) || v == 0) return v;
    if (!split_short(fabs(v), &m, &e)) {
        (void)snd_parse_num(snd_format_short(text, v), &v, NULL);
        return v;
    }
    const int k = SHORT_DIGITS - 1 - e; // m and the power are exact, so the quotient is what the text reads back as
    return copysign(k >= 0 ? (double)m / TENS[k] : (double)m * TENS[-k], v);
}

// 1.25e-07, as %g has it: at least two digits of exponent.
static char *put_exponent(char *p, const char *digits, int n, int e) {
    const int size = e < 0 ? -e : e;
    *p++ = digits[0];
    if (n > 1) *p++ = '.';
    for (int i = 1; i < n; i++) *p++ = digits[i];
    *p++ = 'e', *p++ = e < 0 ? '-' : '+';
    if (size >= 100) *p++ = (char)('0' + size / 100);
    *p++ = (char)('0' + size / 10 % 10), *p++ = (char)('0' + size % 10);
    return p;
}

char *snd_format_short(char out[40], double v) {
    int64_t m;
    int e;
    if (v == 0) return strcpy(out, signbit(v) ? "-0" : "0");
    if (!split_short(fabs(v), &m, &e) && !split_far(fabs(v), &m, &e)) return snd_format_num(out, v, SHORT_DIGITS);
    char digits[SHORT_DIGITS + 1] = "";
    int n = SHORT_DIGITS;
    for (int i = n - 1; i >= 0; i--, m /= 10) digits[i] = (char)('0' + m % 10);
    while (n > 1 && digits[n - 1] == '0') n--;
    char *p = out;
    if (v < 0) *p++ = '-';
    if (e < -5 || e >= 15) {
        *put_exponent(p, digits, n, e) = '\0';
        return out;
    }
    if (e < 0) {
        *p++ = '0', *p++ = '.';
        for (int i = -1; i > e; i--) *p++ = '0';
    }
    for (int i = 0; i < n || i <= e; i++) {
        if (i == e + 1 && i > 0) *p++ = '.';
        *p++ = i < n ? digits[i] : '0';
    }
    *p = '\0';
    return out;
}

char *snd_format_log10(char out[40], double log10_abs, int digits) {
    if (isnan(log10_abs)) return strcpy(out, "nan");
    if (isinf(log10_abs)) return strcpy(out, log10_abs > 0 ? "inf" : "0");
    if (fabs(log10_abs) < 290) return snd_format_num(out, pow(10, log10_abs), digits < 15 ? digits : 15);
    double e = floor(log10_abs);
    char m[40];
    snd_format_num(m, pow(10, log10_abs - e), digits < 15 ? digits : 15);
    if (strcmp(m, "10") == 0) { // 9.99 rounded up
        strcpy(m, "1");
        e += 1;
    }
    char tail[24];
    snprintf(tail, sizeof tail, "e%+lld", (long long)fmax(-9e17, fmin(e, 9e17)));
    strcat(strcpy(out, m), tail);
    return out;
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

static const char *skip_space(const char *s) {
    while (*s == ' ' || (*s >= '\t' && *s <= '\r')) s++;
    return s;
}

// `word` (lower case) at s, any case; returns what follows it or NULL.
static const char *word_at(const char *s, const char *word) {
    for (; *word; s++, word++) {
        const char c = *s >= 'A' && *s <= 'Z' ? (char)(*s - 'A' + 'a') : *s;
        if (c != *word) return NULL;
    }
    return s;
}

// A decimal number taken apart: value = digits * 10^exponent.
// 800 digits decide the rounding of any double (767 suffice); a non-zero rest is kept as one sticky digit.
enum { MOST_DIGITS = 800 };
typedef struct decimal {
    char digits[MOST_DIGITS + 32];
    int n;
    int64_t exponent;
    bool any, sticky;
} decimal;

static const char *scan_digits(decimal *d, const char *s, bool fraction) {
    for (; is_digit(*s); s++) {
        d->any = true;
        d->exponent -= fraction;
        if (d->n == 0 && *s == '0') continue;
        if (d->n < MOST_DIGITS) {
            d->digits[d->n++] = *s;
        } else {
            d->sticky |= *s != '0';
            d->exponent++;
        }
    }
    return s;
}

// An exponent only counts when digits follow the e.
static const char *scan_exponent(decimal *d, const char *s) {
    if (*s != 'e' && *s != 'E') return s;
    const char *t = s + 1;
    const bool negative = *t == '-';
    if (*t == '+' || *t == '-') t++;
    if (!is_digit(*t)) return s;
    int64_t e = 0;
    for (; is_digit(*t); t++) e = e < INT64_C(1000000000000) ? e * 10 + (*t - '0') : e;
    d->exponent += negative ? -e : e;
    return t;
}

static const char *parse_decimal(const char *s, double *v) {
    decimal d = {.n = 0};
    s = scan_digits(&d, s, false);
    if (*s == '.') s = scan_digits(&d, s + 1, true);
    if (!d.any) return NULL;
    s = scan_exponent(&d, s);
    if (d.n == 0) {
        *v = 0;
        return s;
    }
    if (d.sticky) {
        d.digits[d.n++] = '1';
        d.exponent--;
    }
    const int e = d.exponent > 99999 ? 99999 : d.exponent < -99999 ? -99999 : (int)d.exponent;
    snprintf(d.digits + d.n, sizeof d.digits - (size_t)d.n, "e%d", e);
    *v = strtod(d.digits, NULL);
    return s;
}

bool snd_parse_num(const char *s, double *v, const char **end) {
    const char *p = skip_space(s);
    const bool negative = *p == '-';
    if (*p == '-' || *p == '+') p++;
    double value = 0;
    const char *after = word_at(p, "infinity");
    if (!after) after = word_at(p, "inf");
    if (after) {
        value = INFINITY;
    } else if ((after = word_at(p, "nan"))) {
        value = NAN;
    } else {
        after = parse_decimal(p, &value);
    }
    if (!after || (!end && *after)) return false;
    *v = negative ? -value : value;
    if (end) *end = after;
    return true;
}

bool snd_parse_int(const char *s, int64_t *v, const char **end) {
    const char *p = skip_space(s);
    const bool negative = *p == '-';
    if (*p == '-' || *p == '+') p++;
    if (!is_digit(*p)) return false;
    int64_t value = 0; // gathered as a negative number: that side has one more
    for (; is_digit(*p); p++) {
        const int digit = *p - '0';
        if (value < (INT64_MIN + digit) / 10) return false;
        value = value * 10 - digit;
    }
    if ((!negative && value == INT64_MIN) || (!end && *p)) return false;
    *v = negative ? value : -value;
    if (end) *end = p;
    return true;
}
