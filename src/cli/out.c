// What people see: text on stdout, notes and progress on stderr, colours where the terminal takes them, sparklines.
// Invariant: results go to stdout and nothing else does; stderr never holds anything a script needs.
#include "cli/inner.h"

#include <errno.h>
#include <langinfo.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

void snd_terminal_init(snd_cli *c) {
    c->tty_out = isatty(STDOUT_FILENO);
    c->tty_err = isatty(STDERR_FILENO);
    const char *codeset = nl_langinfo(CODESET), *term = getenv("TERM"), *no = getenv("NO_COLOR");
    c->utf8 = c->tty_out && codeset && strcmp(codeset, "UTF-8") == 0;
    const bool dumb = !term || !*term || strcmp(term, "dumb") == 0;
    const bool wanted = !(no && *no) && !dumb;
    c->color = c->tty_out && wanted;
    c->color_err = c->tty_err && wanted;
    c->tty_err = c->tty_err && !dumb;
    struct winsize w;
    c->columns = c->tty_out && ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col >= 40 ? w.ws_col : 100;
    const bool narrow = c->tty_err && ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col >= 40;
    c->columns_err = narrow ? w.ws_col : 1 << 20; // in a file a note is one line
}

// The reason is known only now: stdio forgets it.
static void note_failure(snd_cli *c) {
    if (ferror(stdout) && !c->out_errno) c->out_errno = errno;
}

void snd_print(snd_cli *c, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vfprintf(stdout, fmt, ap);
    va_end(ap);
    note_failure(c);
}

void snd_put(snd_cli *c, const snd_buf *b) {
    if (b->s) snd_put_bytes(c, b->s, b->len);
}

void snd_put_bytes(snd_cli *c, const char *s, size_t n) {
    fwrite(s, 1, n, stdout);
    note_failure(c);
}

void snd_note(snd_cli *c, const char *fmt, ...) {
    if (c->quiet) return;
    fflush(stdout);
    char text[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    snd_buf b = {0};
    snd_wrap(&b, text, 0, c->columns_err);
    fputs(b.s ? b.s : "\n", stderr);
    snd_buf_free(&b);
}

static const char *const inks[] = {
    [SND_INK_PLAIN] = "",          [SND_INK_BOLD] = "\033[1m",   [SND_INK_DIM] = "\033[2m",  [SND_INK_RED] = "\033[31m",
    [SND_INK_YELLOW] = "\033[33m", [SND_INK_GREEN] = "\033[32m", [SND_INK_BLUE] = "\033[34m"};

const char *snd_si(char out[40], double v) {
    static const char *const units[] = {"", " k", " M", " G", " T", " P", " E"};
    int u = 0;
    while (v >= 999.5 && u < 6) {
        v /= 1000;
        u++;
    }
    char t[40];
    snd_pretty(t, v, u || v >= 100 ? 3 : 2);
    snprintf(out, 40, "%s%s", t, units[u]);
    return out;
}

void snd_ink_put(const snd_cli *c, snd_buf *b, snd_ink ink, const char *s) {
    const bool on = c->color && ink != SND_INK_PLAIN && *s;
    if (on) snd_buf_put(b, inks[ink]);
    snd_buf_put(b, s);
    if (on) snd_buf_put(b, "\033[0m");
}

int snd_text_width(const char *s) {
    int n = 0;
    for (; *s; s++) n += ((unsigned char)*s & 0xC0) != 0x80;
    return n;
}

void snd_wrap(snd_buf *b, const char *text, int indent, int columns) {
    const int room = columns - indent > 20 ? columns - indent : 20;
    int used = 0;
    while (*text) {
        while (*text == ' ') text++;
        const size_t n = strcspn(text, " \n");
        char word[256];
        snprintf(word, sizeof word, "%.*s", (int)(n < 255 ? n : 255), text);
        const int width = snd_text_width(word);
        if (used > 0 && used + 1 + width > room) {
            snd_buf_put(b, "\n");
            used = 0;
        }
        if (n > 0) {
            if (used == 0) snd_buf_printf(b, "%*s", indent, "");
            snd_buf_put(b, used ? " " : "");
            for (size_t i = 0; i < n; i++) snd_buf_putn(b, text[i] == SND_GLUE ? " " : text + i, 1);
            used += width + (used > 0);
        }
        text += n;
        if (*text == '\n') {
            snd_buf_put(b, "\n");
            used = 0;
            text++;
        }
    }
    if (used) snd_buf_put(b, "\n");
}

// ---- sparklines -------------------------------------------------------------------------------------------------------

static const char *const blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};

// The mean of the values that fall into cell i of `width`, NAN when there is none.
static double cell_mean(const double *v, int n, int width, int i) {
    const int from = (int)((int64_t)i * n / width), to = (int)((int64_t)(i + 1) * n / width);
    double sum = 0;
    int k = 0;
    for (int j = from; j < to; j++) {
        if (!isfinite(v[j])) continue;
        sum += v[j];
        k++;
    }
    return k ? sum / k : NAN;
}

void snd_spark_range(const double *v, int n, int width, double *lo, double *hi) {
    if (width > n) width = n;
    for (int i = 0; i < width; i++) {
        const double m = cell_mean(v, n, width, i);
        if (m < *lo) *lo = m;
        if (m > *hi) *hi = m;
    }
}

// What hardly changes shall look flat.
void snd_spark_least(bool log, double *lo, double *hi) {
    const double least = log ? log10(2) : 0.1, short_of = least - (*hi - *lo);
    if (!(short_of > 0)) return;
    *lo -= short_of / 2;
    *hi += short_of / 2;
}

void snd_sparkline(const snd_cli *c, snd_buf *b, const double *v, int n, int width, double lo, double hi) {
    if (width > n) width = n;
    for (int i = 0; i < width; i++) {
        const double m = cell_mean(v, n, width, i);
        const double share = hi > lo ? fmax(0, (m - lo) / (hi - lo)) : 0.5;
        const int step = share >= 1 ? 7 : (int)(share * 8);
        if (isnan(m))
            snd_buf_put(b, " ");
        else if (c->utf8)
            snd_buf_put(b, blocks[step]);
        else
            snd_buf_printf(b, "%d", step + 1);
    }
}

// ---- progress ---------------------------------------------------------------------------------------------------------

snd_progress snd_progress_start(snd_cli *c, const char *label, int64_t total) {
    const double now = snd_now();
    return (snd_progress){.c = c, .label = label, .start = now, .last = now, .total = total};
}

static void draw(const snd_progress *p, double now) {
    enum { WIDTH = 24 };
    const double share = p->total > 0 ? (double)p->done / (double)p->total : 0;
    char bar[WIDTH + 1];
    for (int i = 0; i < WIDTH; i++) bar[i] = i < (int)(share * WIDTH + 0.5) ? '#' : '.';
    bar[WIDTH] = 0;
    const double left = share > 0 ? (now - p->start) * (1 - share) / share : 0;
    char time[40];
    if (share <= 0.02)
        time[0] = 0;
    else if (left < 90)
        snprintf(time, sizeof time, "%.0f s left", ceil(left));
    else
        snprintf(time, sizeof time, "%.0f min left", ceil(left / 60));
    fprintf(stderr, "\r[%s] %3.0f %%  %s  %s\033[K", bar, 100 * share, p->label, time);
    fflush(stderr);
}

bool snd_progress_step(snd_progress *p, int64_t done) {
    p->done = done;
    if (p->c->tty_err && !p->c->quiet) {
        const double now = snd_now();
        const bool due = now - p->last >= 0.1 && now - p->start >= 0.3; // short jobs show nothing
        if (due) {
            draw(p, now);
            p->last = now;
        }
    }
    return p->c->stop && p->c->stop->flag;
}

void snd_progress_end(snd_progress *p) {
    if (!p->c->tty_err || p->c->quiet || p->last == p->start) return;
    fputs("\r\033[K", stderr);
    fflush(stderr);
}
