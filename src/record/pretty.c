// Numbers for people: how results print them in tables and pages. Files that scripts read never go through here.
#include "record/record.h"

#include <math.h>
#include <string.h>

// %g turns to exponents as soon as a number has more places than digits; people read 65500 more easily than 6.55e+04.
static void without_exponent(char out[40]) {
    double rounded;
    if (snd_parse_num(out, &rounded, NULL) && fabs(rounded) >= 1 && fabs(rounded) < 1e6)
        snd_format_num(out, rounded, 7);
}

char *snd_pretty(char out[40], double v, int digits) {
    snd_format_num(out, v, digits);
    if (!isfinite(v) || v == 0) return out;
    if (strchr(out, 'e')) {
        without_exponent(out);
        return out;
    }
    int missing = digits;
    for (const char *c = out + strspn(out, "-0."); *c; c++) missing -= *c != '.';
    if (missing > 0 && strlen(out) + (size_t)missing + 2 < 40) {
        if (!strchr(out, '.')) strcat(out, ".");
        for (; missing > 0; missing--) strcat(out, "0");
    }
    return out;
}

char *snd_pretty_log10(char out[40], double log10_abs, int digits) {
    if (log10_abs > -4 && log10_abs < 6) return snd_pretty(out, pow(10, log10_abs), digits);
    return snd_format_log10(out, log10_abs, digits > 3 ? 3 : digits);
}

char *snd_pretty_limit(char out[40], double v, bool log) {
    if (log && !(v > -4 && v < 6)) return snd_pretty_log10(out, v, 3);
    return snd_format_num(out, log ? pow(10, v) : v, 5);
}
