// A run as it goes on. Lines that stay go to stdout; what is drawn in place goes to stderr, as progress does, so that a pipe
// never sees it. Losses are kept in bounded memory: means over windows of steps that double when there is no more room.
#include "cli/train_view.h"

#include <math.h>
#include <string.h>

enum { SPARK = 12, STRIP = 24, WIDE = 40, BAR = 24, MOST_POINTS = 4096, WINDOWS = 2 * WIDE };

// The course of a number over all steps so far.
typedef struct course {
    double mean[WINDOWS], sum; // of finished windows; of the one at work
    int n;
    int64_t in, per; // steps in the one at work, and in each
} course;

struct snd_train_view {
    snd_cli *c;
    const char *label;
    bool lines;
    int points;
    double losses[MOST_POINTS]; // validation, else training
    course loss;
    double valid, best, start, last_drawn; // NaN: none yet
    int64_t best_step;
    int drawn; // lines on the screen
};

snd_train_view *snd_train_view_start(snd_cli *c, const char *label, bool lines) {
    snd_train_view *v = snd_arena_alloc(c->arena, sizeof *v);
    if (!v) return NULL;
    v->c = c;
    v->label = label;
    v->lines = lines;
    v->valid = v->best = NAN;
    v->loss.per = 1;
    v->start = v->last_drawn = snd_now();
    return v;
}

// ---- parts of both ----------------------------------------------------------------------------------------------------------------

static const char *time_text(char out[40], double sec) {
    if (isnan(sec))
        snprintf(out, 40, "-");
    else if (sec < 90)
        snprintf(out, 40, "%.0f s", ceil(sec));
    else if (sec < 5400)
        snprintf(out, 40, "%.0f min", ceil(sec / 60));
    else
        snprintf(out, 40, "%.0f h", ceil(sec / 3600));
    return out;
}

// A loss scale is a power of two, unless somebody said another number.
static const char *scale_text(char out[40], double scale) {
    int e;
    if (frexp(scale, &e) == 0.5)
        snprintf(out, 40, "2^%d", e - 1);
    else
        snd_pretty(out, scale, 3);
    return out;
}

// In a column of so many characters: an exponent costs digits.
static const char *fitting(char out[40], double v, int digits, size_t width) {
    if (isnan(v)) return "-";
    while (strlen(snd_pretty(out, v, digits)) > width && digits > 1) digits--;
    return out;
}

static void put_spark(const snd_train_view *v, snd_buf *b, const double *of, int n, int width, bool log) {
    double lo = INFINITY, hi = -INFINITY;
    snd_spark_range(of, n, width, &lo, &hi);
    snd_spark_least(log, &lo, &hi);
    snd_sparkline(v->c, b, of, n, width, lo, hi);
}

typedef double pick(const snd_layer_state *l);
static double stream(const snd_layer_state *l) {
    return l->rms;
}
static double gradient(const snd_layer_state *l) {
    return l->grms;
}
static double update(const snd_layer_state *l) {
    return l->update;
}

// One quantity over the layers, on a log scale. What stands outside them comes last in the point and is left out.
static int layers_of(const snd_train_point *p, pick *get, double *log_of, int most) {
    int n = 0;
    for (int i = 0; i + 1 < p->n_layers && n < most; i++) log_of[n++] = log10(get(&p->layers[i]));
    return n;
}

// ---- lines that stay --------------------------------------------------------------------------------------------------------------

static void put_head(const snd_train_point *p, snd_buf *b) {
    snd_buf_printf(b, "%9s  %8s  %7s  %7s%s  %-*s  %8s  %8s%s  %8s  %7s  %s\n", "step", "epoch", "loss", "valid",
                   isnan(p->accuracy) ? "" : "     right", SPARK, "", "lr", "gradient", p->scale > 0 ? "  scale" : "",
                   isnan(p->accuracy) ? "tokens/s" : "rows/s", "left", p->n_layers > 1 ? "stream by layer" : "");
}

static void put_line(const snd_train_view *v, const snd_train_point *p, snd_buf *b) {
    char loss[40], valid[40], hits[40], lr[40], norm[40], speed[40], epochs[40], left[40], scale[40];
    double log_rms[256];
    const int n = v->points < MOST_POINTS ? v->points : MOST_POINTS;
    snd_buf_printf(b, "%9lld  %8s  %7s  %7s  ", (long long)p->step, snd_pretty(epochs, p->epochs, 3),
                   fitting(loss, p->loss, 4, 7), fitting(valid, p->valid, 4, 7));
    if (!isnan(p->accuracy)) snd_buf_printf(b, "%6s %%  ", snd_pretty(hits, 100 * p->accuracy, 4));
    put_spark(v, b, v->losses, n, SPARK, false);
    for (int i = n; i < SPARK; i++) snd_buf_put(b, " ");
    snd_buf_printf(b, "  %8s  %8s", snd_pretty(lr, p->lr, 3), fitting(norm, p->grad_norm, 3, 8));
    if (p->scale > 0) snd_buf_printf(b, "  %5s", scale_text(scale, p->scale));
    snd_buf_printf(b, "  %8s  %7s  ", snd_pretty(speed, p->tokens_per_s, 3), time_text(left, p->seconds_left));
    put_spark(v, b, log_rms, layers_of(p, stream, log_rms, 256), STRIP, true);
    snd_buf_put(b, "\n");
}

// ---- what is drawn in place -------------------------------------------------------------------------------------------------------

static bool draws(const snd_train_view *v) {
    return v->c->tty_err && !v->c->quiet;
}

static void note_loss(course *k, double loss) {
    if (isnan(loss)) return; // of a step that was skipped
    k->sum += loss;
    if (++k->in < k->per) return;
    if (k->n == WINDOWS) {
        for (int i = 0; i < WINDOWS / 2; i++) k->mean[i] = (k->mean[2 * i] + k->mean[2 * i + 1]) / 2;
        k->n = WINDOWS / 2;
        k->per *= 2;
        if (k->in < k->per) return;
    }
    k->mean[k->n++] = k->sum / (double)k->in;
    k->sum = 0;
    k->in = 0;
}

static void put_bar(const snd_train_view *v, const snd_train_point *p, snd_buf *b) {
    char left[40], speed[40], epochs[40];
    const double share = (double)p->step / (double)p->steps;
    if (v->label) snd_buf_printf(b, "%s  ", v->label);
    snd_buf_put(b, "[");
    for (int i = 0; i < BAR; i++) snd_buf_put(b, i < (int)(share * BAR + 0.5) ? "#" : ".");
    snd_buf_printf(b, "]  step %lld of %lld, epoch %s   %s left   %s %s/s\n", (long long)p->step, (long long)p->steps,
                   snd_pretty(epochs, p->epochs, 3), time_text(left, p->seconds_left),
                   snd_pretty(speed, p->tokens_per_s, 3), isnan(p->accuracy) ? "tokens" : "rows");
}

static void put_losses(const snd_train_view *v, const snd_train_point *p, snd_buf *b) {
    char loss[40], valid[40], best[40], lr[40], norm[40], scale[40];
    snd_buf_put(b, "loss      ");
    put_spark(v, b, v->loss.mean, v->loss.n, WIDE, false);
    for (int i = v->loss.n; i < WIDE; i++) snd_buf_put(b, " ");
    snd_buf_printf(b, "  %s", snd_pretty(loss, p->loss, 4));
    if (!isnan(v->valid))
        snd_buf_printf(b, "   valid %s   best %s at step %lld", snd_pretty(valid, v->valid, 4),
                       snd_pretty(best, v->best, 4), (long long)v->best_step);
    snd_buf_printf(b, "\n          lr %s   gradient %s", snd_pretty(lr, p->lr, 3), snd_pretty(norm, p->grad_norm, 3));
    if (p->scale > 0)
        snd_buf_printf(b, "   loss scale %s   %lld skipped", scale_text(scale, p->scale), (long long)p->skipped);
    snd_buf_put(b, "\n");
}

// A strip of one quantity over the layers, with its first and last value.
static int put_strip(const snd_train_view *v, const snd_train_point *p, const char *name, pick *get, snd_buf *b) {
    double of[1024];
    char first[40], last[40];
    const int n = layers_of(p, get, of, 1024);
    if (n == 0) return 0;
    snd_buf_printf(b, "%-8s  ", name);
    put_spark(v, b, of, n, WIDE, true);
    for (int i = n; i < WIDE; i++) snd_buf_put(b, " ");
    snd_buf_printf(b, "  %s to %s\n", snd_pretty_log10(first, of[0], 3), snd_pretty_log10(last, of[n - 1], 3));
    return 1;
}

// Up to the first line drawn; the screen below it is ours.
static void go_up(const snd_train_view *v, snd_buf *b) {
    if (v->drawn) snd_buf_printf(b, "\r\033[%dA", v->drawn);
}

// Lines are cut at the edge of the screen, however wide it is by now (\033[?7l), so that they stay as many as they are.
static void draw(snd_train_view *v, const snd_train_point *p) {
    snd_buf lines = {0}, b = {0};
    put_bar(v, p, &lines);
    put_losses(v, p, &lines);
    int n = 3;
    n += put_strip(v, p, "stream", stream, &lines);
    n += put_strip(v, p, "gradient", gradient, &lines);
    n += put_strip(v, p, "update", update, &lines);
    go_up(v, &b);
    snd_buf_put(&b, "\033[?7l");
    for (const char *s = lines.s; s && *s;) {
        const size_t len = strcspn(s, "\n");
        snd_buf_putn(&b, s, len);
        snd_buf_put(&b, "\033[K\n");
        s += len + (s[len] == '\n');
    }
    snd_buf_put(&b, "\033[J\033[?7h");
    if (!b.failed && !lines.failed) {
        fwrite(b.s, 1, b.len, stderr);
        fflush(stderr);
        v->drawn = n;
    }
    snd_buf_free(&lines);
    snd_buf_free(&b);
}

static void erase(snd_train_view *v) {
    if (!v->drawn) return;
    fprintf(stderr, "\r\033[%dA\033[J", v->drawn);
    fflush(stderr);
    v->drawn = 0;
}

// ---- the run's calls ----------------------------------------------------------------------------------------------------------------

void snd_train_view_progress(void *ctx, const snd_train_point *p) {
    snd_train_view *v = ctx;
    note_loss(&v->loss, p->loss);
    const double now = snd_now();
    if (!draws(v) || now - v->last_drawn < 0.1 || now - v->start < 0.3) return; // short runs show nothing
    draw(v, p);
    v->last_drawn = now;
}

void snd_train_view_point(void *ctx, const snd_train_point *p) {
    snd_train_view *v = ctx;
    if (v->points < MOST_POINTS) v->losses[v->points] = isnan(p->valid) ? p->loss : p->valid;
    v->points++;
    if (!isnan(p->valid)) v->valid = p->valid;
    if (!isnan(p->valid) && !(v->best <= p->valid)) {
        v->best = p->valid;
        v->best_step = p->step;
    }
    if (!v->lines || v->c->json || v->c->quiet) return;
    erase(v);
    snd_buf b = {0};
    if (v->points == 1) put_head(p, &b);
    put_line(v, p, &b);
    snd_put(v->c, &b);
    snd_buf_free(&b);
    fflush(stdout);
}

void snd_train_view_end(snd_train_view *v) {
    if (v) erase(v);
}
