// Fronts of convolution. Images have their channels last; a task takes some of the strips into which all images are cut,
// copies each with its border of zeros into a slot of its own, and hands it to the loops of conv.inc. The cut depends on
// the shape alone. The gradient of the input is a convolution as well: places that lie `stride` apart see the same taps,
// so each of the stride x stride phases is one, of the taps that reach it, in reverse order. Weights' gradients have a
// copy per task, added up in order at the end.
#include "kernels/rows.h"
#include <assert.h>
#include <string.h>

enum { STRIP_BYTES = 1 << 18, TASKS = 32, DW_TASKS = 16, ALIGN = 64 };

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static int64_t most(int64_t a, int64_t b) {
    return a > b ? a : b;
}
static int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

int64_t snd_k_conv_size(int64_t size, int64_t k, int64_t stride) {
    return (size + 2 * (k / 2) - k) / stride + 1;
}

// ---- what a phase sees, in one dimension ----------------------------------------------------------------------------

// Input places phase, phase + stride, ...: place number m gets tap first + stride*j from output place m + last - j.
typedef struct phase {
    int64_t first, taps, last;
} phase;

static phase phase_of(const snd_kconv *c, int64_t at) {
    const int64_t pad = c->k / 2, first = (at + pad) % c->stride;
    const int64_t taps = first < c->k ? (c->k - 1 - first) / c->stride + 1 : 0;
    return (phase){first, taps, (at + pad - first) / c->stride};
}

// How far the phases reach before the first and behind the last output place of the same number.
typedef struct reach {
    int64_t before, behind;
} reach;

static reach reach_of(const snd_kconv *c) {
    reach r = {0, 0};
    for (int64_t at = 0; at < c->stride; at++) {
        const phase p = phase_of(c, at);
        if (!p.taps) continue;
        r.before = most(r.before, p.taps - 1 - p.last);
        r.behind = most(r.behind, p.last);
    }
    return r;
}

// ---- strips ---------------------------------------------------------------------------------------------------------

// Strips of `rows` rows of results out of `all`; to make n of them takes (n-1)*step + extra rows, `width` places wide, of
// `channels` each. The first begins `before` rows early, and so many places to the left.
typedef struct strips {
    int64_t all, rows, per_image, step, extra, width, before, channels;
    int64_t src_h, src_w;
} strips;

static strips cut_strips(size_t size, int64_t all, int64_t step, int64_t extra, int64_t width, int64_t before,
                         int64_t channels) {
    strips s = {.all = all, .step = step, .extra = extra, .width = width, .before = before, .channels = channels};
    const int64_t room = STRIP_BYTES / (int64_t)size / (width * channels), rows = (room - extra) / step + 1;
    s.per_image = ceil_div(all, rows < 1 ? 1 : rows);
    s.rows = ceil_div(all, s.per_image);
    s.per_image = ceil_div(all, s.rows);
    return s;
}

static strips forward_strips(size_t size, const snd_kconv *c) {
    strips s = cut_strips(size, snd_k_conv_size(c->H, c->k, c->stride), c->stride, c->k, c->W + 2 * (c->k / 2),
                          c->k / 2, c->Ci);
    s.src_h = c->H;
    s.src_w = c->W;
    return s;
}

static strips backward_strips(size_t size, const snd_kconv *c) {
    const reach r = reach_of(c);
    const int64_t rows = ceil_div(c->H, c->stride), cols = ceil_div(c->W, c->stride);
    strips s = cut_strips(size, rows, 1, r.before + r.behind + 1, cols + r.before + r.behind, r.before, c->Co);
    s.src_h = snd_k_conv_size(c->H, c->k, c->stride);
    s.src_w = snd_k_conv_size(c->W, c->k, c->stride);
    return s;
}

static int64_t strip_elements(const strips *s) {
    return ((s->rows - 1) * s->step + s->extra) * s->width * s->channels;
}

static bool has_border(const strips *s) {
    return s->before > 0 || s->width != s->src_w;
}

static void copy_row(const strips *s, size_t size, const char *image, int64_t y, char *to) {
    const size_t place = (size_t)s->channels * size, all = (size_t)s->width * place;
    if (y < 0 || y >= s->src_h) {
        memset(to, 0, all);
        return;
    }
    const size_t left = (size_t)s->before * place, inside = (size_t)least(s->src_w, s->width - s->before) * place;
    memset(to, 0, left);
    memcpy(to + left, image + (size_t)y * (size_t)s->src_w * place, inside);
    memset(to + left + inside, 0, all - left - inside);
}

// The rows for results y0 .. y0+n-1 with their border; where there is none, as they lie.
static const void *open_strip(const strips *s, size_t size, const void *image, int64_t y0, int64_t n, void *slot) {
    const size_t row = (size_t)(s->width * s->channels) * size;
    const int64_t first = y0 * s->step - s->before, rows = (n - 1) * s->step + s->extra;
    if (!has_border(s) && first + rows <= s->src_h) return (const char *)image + (size_t)first * row;
    for (int64_t i = 0; i < rows; i++) copy_row(s, size, image, first + i, (char *)slot + (size_t)i * row);
    return slot;
}

// ---- weights in panels ----------------------------------------------------------------------------------------------

static int64_t panel_width(size_t size) {
    return SND_CONV_PANEL / (int64_t)size;
}

static void copy_element(size_t size, void *to, int64_t i, const void *from, int64_t k) {
    if (size == 8)
        ((double *)to)[i] = ((const double *)from)[k];
    else
        ((float *)to)[i] = ((const float *)from)[k];
}

// A matrix [ty*tx*inner, channels]: element ((y, x, i), c) is w[from + y sy + x sx + i si + c sc].
typedef struct packing {
    int64_t ty, tx, inner, channels;
    int64_t sy, sx, si, sc, from;
} packing;

static int64_t packed_elements(size_t size, const packing *p) {
    const int64_t width = panel_width(size);
    return ceil_div(p->channels, width) * width * p->ty * p->tx * p->inner;
}

static int64_t packed_at(const packing *p, int64_t width, int64_t row, int64_t channel) {
    return channel / width * (width * p->ty * p->tx * p->inner) + row * width + channel % width;
}

static void pack(size_t size, const packing *p, bool back, void *w, void *panels) {
    const int64_t width = panel_width(size);
    int64_t row = 0;
    for (int64_t y = 0; y < p->ty; y++)
        for (int64_t x = 0; x < p->tx; x++)
            for (int64_t i = 0; i < p->inner; i++, row++)
                for (int64_t c = 0; c < p->channels; c++) {
                    const int64_t at = packed_at(p, width, row, c),
                                  in_w = p->from + y * p->sy + x * p->sx + i * p->si + c * p->sc;
                    if (back)
                        copy_element(size, w, in_w, panels, at);
                    else
                        copy_element(size, panels, at, w, in_w);
                }
}

// w [Co, Ci, k, k] -> [k][k*Ci][Co]
static packing forward_packing(const snd_kconv *c) {
    return (packing){.ty = c->k,
                     .tx = c->k,
                     .inner = c->Ci,
                     .channels = c->Co,
                     .sy = c->k,
                     .sx = 1,
                     .si = c->k * c->k,
                     .sc = c->Ci * c->k * c->k};
}

// The taps of a phase, the last one first: [taps][taps*Co][Ci]
static packing backward_packing(const snd_kconv *c, const phase *y, const phase *x) {
    return (packing){.ty = y->taps,
                     .tx = x->taps,
                     .inner = c->Co,
                     .channels = c->Ci,
                     .sy = -c->stride * c->k,
                     .sx = -c->stride,
                     .si = c->Ci * c->k * c->k,
                     .sc = c->k * c->k,
                     .from = (y->first + c->stride * (y->taps - 1)) * c->k + x->first + c->stride * (x->taps - 1)};
}

// ---- tasks ----------------------------------------------------------------------------------------------------------

typedef struct conv_job {
    const snd_kconv *c;
    strips s;
    snd_cut cut; // of the strips of all images
    size_t size;
    snd_kt_conv *conv;
    snd_kt_conv_dw *dw;
    snd_kt_wino *wino;
    snd_kt_wino_dw *wino_dw;
    const char *src, *dy;
    char *out, *panels, *slots;
    int64_t slot_bytes, out_h, out_w, out_c; // of an image of results
    int64_t part;                            // elements of the weights' gradient in panels
} conv_job;

static int64_t aligned(int64_t bytes) {
    return ceil_div(bytes, ALIGN) * ALIGN;
}

static snd_cut cut_tasks(const strips *s, int64_t B, int64_t most_tasks) {
    const int64_t n = B * s->per_image;
    return snd_cut_make(n, ceil_div(n, most_tasks), 1);
}

static int64_t panels_bytes(size_t size, const snd_kconv *c, int64_t inner, int64_t channels) {
    const int64_t width = panel_width(size);
    return aligned(ceil_div(channels, width) * width * c->k * c->k * inner * (int64_t)size);
}

static int worth(int th, const snd_kconv *c) {
    return c->B * c->H * c->W * c->Ci * c->Co * c->k * c->k < 1 << 18 ? 1 : th;
}

static const void *unit(const conv_job *j, int64_t task, int64_t i, int64_t *b, int64_t *y0, int64_t *n) {
    *b = i / j->s.per_image;
    *y0 = i % j->s.per_image * j->s.rows;
    *n = least(j->s.rows, j->s.all - *y0);
    const char *image = j->src + (size_t)(*b * j->s.src_h * j->s.src_w * j->s.channels) * j->size;
    return open_strip(&j->s, j->size, image, *y0, *n, j->slots + task * j->slot_bytes);
}

// ---- 3 x 3, stride 1, whole panels of channels: winograd.inc ----------------------------------------------------------
// The input's gradient is the same convolution of dy with the taps in reverse order and the channels exchanged.

static bool turns(snd_dtype t, const snd_kconv *c) {
    const int64_t width = SND_CONV_PANEL / (int64_t)sizeof(float);
    return t == SND_F32 && c->k == 3 && c->stride == 1 && c->H > 3 && c->W > 3 && c->Ci % width == 0 &&
           c->Co % width == 0;
}

// Tiles end up to one place behind the border.
static strips tile_strips(const snd_kconv *c, int64_t in) {
    strips s = cut_strips(sizeof(float), c->H, 1, 4, c->W + 3, 1, in);
    s.src_h = c->H;
    s.src_w = c->W;
    return s;
}

static int64_t turned_bytes(const snd_kconv *c) {
    return aligned(16 * c->Ci * c->Co * (int64_t)sizeof(float));
}

// A strip with its border, and behind it the tiles at work.
static int64_t tile_slot_bytes(const strips *s, int64_t cols, int64_t in, int64_t out) {
    return aligned(strip_elements(s) * (int64_t)sizeof(float)) +
           aligned(snd_wino_elements(s->rows, cols, in, out) * (int64_t)sizeof(float));
}

static size_t tile_scratch(const snd_kconv *c, int64_t in, int64_t out) {
    const strips s = tile_strips(c, in);
    return (size_t)(turned_bytes(c) + cut_tasks(&s, c->B, TASKS).tasks * tile_slot_bytes(&s, c->W, in, out));
}

// G g G' of the kernel at g, steps `down` and `over`, to every `far`-th place of u.
static void turn(const float *g, int64_t down, int64_t over, float *u, int64_t far) {
    float t[4][3];
    for (int x = 0; x < 3; x++) {
        const float a = g[x * over], b = g[down + x * over], c = g[2 * down + x * over];
        t[0][x] = a, t[3][x] = c;
        t[1][x] = 0.5f * ((a + c) + b), t[2][x] = 0.5f * ((a + c) - b);
    }
    for (int y = 0; y < 4; y++, u += 4 * far) {
        const float a = t[y][0], b = t[y][1], c = t[y][2];
        u[0] = a, u[3 * far] = c;
        u[far] = 0.5f * ((a + c) + b), u[2 * far] = 0.5f * ((a + c) - b);
    }
}

// Its adjoint, G' u G.
static void turn_back(const float *u, int64_t far, float *g) {
    float t[3][4];
    for (int x = 0; x < 4; x++) {
        const float *p = u + x * far;
        const float a = 0.5f * (p[4 * far] + p[8 * far]), b = 0.5f * (p[4 * far] - p[8 * far]);
        t[0][x] = p[0] + a, t[1][x] = b, t[2][x] = a + p[12 * far];
    }
    for (int y = 0; y < 3; y++, g += 3) {
        const float a = 0.5f * (t[y][1] + t[y][2]), b = 0.5f * (t[y][1] - t[y][2]);
        g[0] = t[y][0] + a, g[1] = b, g[2] = a + t[y][3];
    }
}

// Place of (i, o) in the panels of one of the 16 matrices [in][out].
static int64_t turned_at(int64_t in, int64_t i, int64_t o) {
    const int64_t width = SND_CONV_PANEL / (int64_t)sizeof(float);
    return o / width * width * in + i * width + o % width;
}

// back: of the input's gradient.
static void turn_weights(const snd_kconv *c, bool back, const float *w, float *u) {
    for (int64_t o = 0; o < c->Co; o++)
        for (int64_t i = 0; i < c->Ci; i++) {
            const float *g = w + (o * c->Ci + i) * 9;
            if (back)
                turn(g + 8, -3, -1, u + turned_at(c->Co, o, i), c->Ci * c->Co);
            else
                turn(g, 3, 1, u + turned_at(c->Ci, i, o), c->Ci * c->Co);
        }
}

static snd_convspec tile_spec(const conv_job *j, int64_t rows) {
    return (snd_convspec){.rows = rows,
                          .cols = j->out_w,
                          .n = j->s.channels,
                          .in_row = j->s.width * j->s.channels,
                          .in_y = j->s.width * j->s.channels,
                          .in_x = j->s.channels,
                          .out_y = j->out_w * j->out_c,
                          .out_x = j->out_c,
                          .channels = j->out_c};
}

static void *tile_work(const conv_job *j, int64_t task) {
    return j->slots + task * j->slot_bytes + aligned(strip_elements(&j->s) * (int64_t)j->size);
}

static void tile_task(void *ctx, int64_t task) {
    const conv_job *j = ctx;
    for (int64_t i = snd_cut_begin(&j->cut, task); i < snd_cut_end(&j->cut, task); i++) {
        int64_t b, y0, n;
        const void *strip = unit(j, task, i, &b, &y0, &n);
        const snd_convspec s = tile_spec(j, n);
        j->wino(&s, strip, j->panels, snd_at_mut(j->out, (b * j->out_h + y0) * j->out_w * j->out_c, j->size),
                tile_work(j, task));
    }
}

static void by_tiles(int th, const snd_kconv *c, bool back, const void *src, const void *w, void *out, void *scratch) {
    const int64_t in = back ? c->Co : c->Ci, channels = back ? c->Ci : c->Co;
    conv_job j = {.c = c,
                  .s = tile_strips(c, in),
                  .size = sizeof(float),
                  .wino = SND_PICK(wino, SND_F32),
                  .src = src,
                  .out = out,
                  .panels = scratch,
                  .slots = (char *)scratch + turned_bytes(c),
                  .out_h = c->H,
                  .out_w = c->W,
                  .out_c = channels};
    turn_weights(c, back, w, scratch);
    j.slot_bytes = tile_slot_bytes(&j.s, c->W, in, channels);
    j.cut = cut_tasks(&j.s, c->B, TASKS);
    snd_parallel(worth(th, c), j.cut.tasks, tile_task, &j);
}

static void tile_dw_task(void *ctx, int64_t task) {
    const conv_job *j = ctx;
    char *part = j->panels + (size_t)(task * j->part) * j->size;
    memset(part, 0, (size_t)j->part * j->size);
    for (int64_t i = snd_cut_begin(&j->cut, task); i < snd_cut_end(&j->cut, task); i++) {
        int64_t b, y0, n;
        const void *strip = unit(j, task, i, &b, &y0, &n);
        const snd_convspec s = tile_spec(j, n);
        j->wino_dw(&s, strip, snd_at(j->dy, (b * j->out_h + y0) * j->out_w * j->out_c, j->size), part,
                   tile_work(j, task));
    }
}

static void add_parts(const conv_job *j) {
    for (int64_t k = 1; k < j->cut.tasks; k++) {
        const char *from = j->panels + (size_t)(k * j->part) * j->size;
        for (int64_t i = 0; j->size == 4 && i < j->part; i++) ((float *)j->panels)[i] += ((const float *)from)[i];
        for (int64_t i = 0; j->size == 8 && i < j->part; i++) ((double *)j->panels)[i] += ((const double *)from)[i];
    }
}

static size_t tile_dw_scratch(const snd_kconv *c) {
    const strips s = tile_strips(c, c->Ci);
    return (size_t)(cut_tasks(&s, c->B, DW_TASKS).tasks * (turned_bytes(c) + tile_slot_bytes(&s, c->W, c->Ci, c->Co)));
}

static void dw_by_tiles(int th, const snd_kconv *c, const void *dy, const void *x, void *dw, void *scratch) {
    conv_job j = {.c = c,
                  .s = tile_strips(c, c->Ci),
                  .size = sizeof(float),
                  .wino_dw = SND_PICK(wino_dw, SND_F32),
                  .src = x,
                  .dy = dy,
                  .panels = scratch,
                  .out_h = c->H,
                  .out_w = c->W,
                  .out_c = c->Co};
    j.part = turned_bytes(c) / (int64_t)sizeof(float);
    j.cut = cut_tasks(&j.s, c->B, DW_TASKS);
    j.slots = j.panels + (size_t)(j.cut.tasks * j.part) * sizeof(float);
    j.slot_bytes = tile_slot_bytes(&j.s, c->W, c->Ci, c->Co);
    snd_parallel(worth(th, c), j.cut.tasks, tile_dw_task, &j);
    add_parts(&j);
    for (int64_t o = 0; o < c->Co; o++)
        for (int64_t i = 0; i < c->Ci; i++)
            turn_back((const float *)scratch + turned_at(c->Ci, i, o), c->Ci * c->Co,
                      (float *)dw + (o * c->Ci + i) * 9);
}

// ---- strip by strip -------------------------------------------------------------------------------------------------

// Scratch: the weights in panels, then a slot for each task's strip. Channels come from `from` and go to `to`.
static size_t strips_scratch(snd_dtype t, const snd_kconv *c, const strips *s, int64_t from, int64_t to) {
    const size_t size = snd_k_size(t);
    return (size_t)(panels_bytes(size, c, from, to) +
                    cut_tasks(s, c->B, TASKS).tasks * aligned(strip_elements(s) * (int64_t)size));
}

static conv_job by_strips(snd_dtype t, const snd_kconv *c, strips s, int64_t from, int64_t to, const void *src,
                          void *out, void *scratch) {
    const size_t size = snd_k_size(t);
    return (conv_job){.c = c,
                      .s = s,
                      .size = size,
                      .conv = SND_PICK(conv, t),
                      .src = src,
                      .out = out,
                      .panels = scratch,
                      .slots = (char *)scratch + panels_bytes(size, c, from, to),
                      .slot_bytes = aligned(strip_elements(&s) * (int64_t)size),
                      .cut = cut_tasks(&s, c->B, TASKS)};
}

// ---- forward --------------------------------------------------------------------------------------------------------

static void fwd_task(void *ctx, int64_t task) {
    const conv_job *j = ctx;
    const snd_kconv *c = j->c;
    const int64_t row = j->s.width * c->Ci;
    for (int64_t i = snd_cut_begin(&j->cut, task); i < snd_cut_end(&j->cut, task); i++) {
        int64_t b, y0, n;
        const void *strip = unit(j, task, i, &b, &y0, &n);
        const snd_convspec s = {.rows = n,
                                .cols = j->out_w,
                                .taps = c->k,
                                .n = c->k * c->Ci,
                                .in_row = row,
                                .in_y = c->stride * row,
                                .in_x = c->stride * c->Ci,
                                .out_y = j->out_w * c->Co,
                                .out_x = c->Co,
                                .channels = c->Co};
        j->conv(&s, strip, j->panels, snd_at_mut(j->out, (b * j->out_h + y0) * j->out_w * c->Co, j->size));
    }
}

size_t snd_k_conv_fwd_scratch(snd_dtype t, const snd_kconv *c) {
    if (turns(t, c)) return tile_scratch(c, c->Ci, c->Co);
    const strips s = forward_strips(snd_k_size(t), c);
    return strips_scratch(t, c, &s, c->Ci, c->Co);
}

void snd_k_conv_fwd(int th, snd_dtype t, const snd_kconv *c, const void *x, const void *w, void *y, void *scratch) {
    if (turns(t, c)) {
        by_tiles(th, c, false, x, w, y, scratch);
        return;
    }
    conv_job j = by_strips(t, c, forward_strips(snd_k_size(t), c), c->Ci, c->Co, x, y, scratch);
    j.out_h = snd_k_conv_size(c->H, c->k, c->stride);
    j.out_w = snd_k_conv_size(c->W, c->k, c->stride);
    const packing p = forward_packing(c);
    memset(j.panels, 0, (size_t)packed_elements(j.size, &p) * j.size);
    pack(j.size, &p, false, (void *)(uintptr_t)w, j.panels);
    snd_parallel(worth(th, c), j.cut.tasks, fwd_task, &j);
}

// ---- dx -------------------------------------------------------------------------------------------------------------

// Results of one phase in the rows y0 .. y0+n-1 of a strip (in steps of the stride).
static void dx_phase(const conv_job *j, const void *strip, int64_t b, int64_t y0, int64_t n, int64_t py, int64_t px,
                     const void *panels) {
    const snd_kconv *c = j->c;
    const phase v = phase_of(c, py), h = phase_of(c, px);
    const int64_t row = j->s.width * c->Co, before = j->s.before;
    const int64_t rows = least(n, ceil_div(c->H - py, c->stride) - y0), cols = ceil_div(c->W - px, c->stride);
    if (rows < 1 || cols < 1) return;
    const bool none = v.taps == 0 || h.taps == 0;
    const snd_convspec s = {.rows = rows,
                            .cols = cols,
                            .taps = none ? 0 : v.taps,
                            .n = h.taps * c->Co,
                            .in_row = row,
                            .in_y = row,
                            .in_x = c->Co,
                            .out_y = c->stride * c->W * c->Ci,
                            .out_x = c->stride * c->Ci,
                            .channels = c->Ci};
    const int64_t at = none ? 0 : (before + v.last - (v.taps - 1)) * row + (before + h.last - (h.taps - 1)) * c->Co;
    const int64_t to = ((b * c->H + y0 * c->stride + py) * c->W + px) * c->Ci;
    j->conv(&s, snd_at(strip, at, j->size), panels, snd_at_mut(j->out, to, j->size));
}

static void dx_task(void *ctx, int64_t task) {
    const conv_job *j = ctx;
    for (int64_t i = snd_cut_begin(&j->cut, task); i < snd_cut_end(&j->cut, task); i++) {
        int64_t b, y0, n;
        const void *strip = unit(j, task, i, &b, &y0, &n);
        const char *panels = j->panels;
        for (int64_t py = 0; py < j->c->stride; py++)
            for (int64_t px = 0; px < j->c->stride; px++) {
                const phase v = phase_of(j->c, py), h = phase_of(j->c, px);
                const packing p = backward_packing(j->c, &v, &h);
                dx_phase(j, strip, b, y0, n, py, px, panels);
                panels += (size_t)packed_elements(j->size, &p) * j->size;
            }
    }
}

static void pack_phases(const conv_job *j, const void *w) {
    char *to = j->panels;
    for (int64_t py = 0; py < j->c->stride; py++)
        for (int64_t px = 0; px < j->c->stride; px++) {
            const phase v = phase_of(j->c, py), h = phase_of(j->c, px);
            const packing p = backward_packing(j->c, &v, &h);
            memset(to, 0, (size_t)packed_elements(j->size, &p) * j->size);
            pack(j->size, &p, false, (void *)(uintptr_t)w, to);
            to += (size_t)packed_elements(j->size, &p) * j->size;
        }
}

size_t snd_k_conv_dx_scratch(snd_dtype t, const snd_kconv *c) {
    if (turns(t, c)) return tile_scratch(c, c->Co, c->Ci);
    const strips s = backward_strips(snd_k_size(t), c);
    return strips_scratch(t, c, &s, c->Co, c->Ci);
}

void snd_k_conv_dx(int th, snd_dtype t, const snd_kconv *c, const void *dy, const void *w, void *dx, void *scratch) {
    if (turns(t, c)) {
        by_tiles(th, c, true, dy, w, dx, scratch);
        return;
    }
    conv_job j = by_strips(t, c, backward_strips(snd_k_size(t), c), c->Co, c->Ci, dy, dx, scratch);
    pack_phases(&j, w);
    snd_parallel(worth(th, c), j.cut.tasks, dx_task, &j);
}

// ---- dw -------------------------------------------------------------------------------------------------------------

static int64_t whole_panels(const conv_job *j) {
    const int64_t width = panel_width(j->size);
    return ceil_div(j->c->Co, width) * width;
}

// The gradient's rows, with zeros up to a whole number of panels.
static const void *widen(const conv_job *j, int64_t b, int64_t y0, int64_t n, void *slot) {
    const int64_t Co = j->c->Co, wide = whole_panels(j), places = n * j->out_w;
    const char *dy = j->dy + (size_t)((b * j->out_h + y0) * j->out_w * Co) * j->size;
    if (wide == Co) return dy;
    memset(slot, 0, (size_t)(places * wide) * j->size);
    for (int64_t i = 0; i < places; i++)
        memcpy((char *)slot + (size_t)(i * wide) * j->size, dy + (size_t)(i * Co) * j->size, (size_t)Co * j->size);
    return slot;
}

static void dw_task(void *ctx, int64_t task) {
    const conv_job *j = ctx;
    const snd_kconv *c = j->c;
    const int64_t row = j->s.width * c->Ci, wide = whole_panels(j);
    char *part = j->panels + (size_t)(task * j->part) * j->size,
         *slot = j->slots + task * j->slot_bytes + aligned(strip_elements(&j->s) * (int64_t)j->size);
    memset(part, 0, (size_t)j->part * j->size);
    for (int64_t i = snd_cut_begin(&j->cut, task); i < snd_cut_end(&j->cut, task); i++) {
        int64_t b, y0, n;
        const void *strip = unit(j, task, i, &b, &y0, &n);
        const snd_convspec s = {.rows = n,
                                .cols = j->out_w,
                                .taps = c->k,
                                .n = c->k * c->Ci,
                                .in_row = row,
                                .in_y = c->stride * row,
                                .in_x = c->stride * c->Ci,
                                .out_y = j->out_w * wide,
                                .out_x = wide,
                                .channels = c->Co};
        j->dw(&s, strip, widen(j, b, y0, n, slot), part);
    }
}

static int64_t dw_slot_bytes(size_t size, const snd_kconv *c, const strips *s) {
    const int64_t width = panel_width(size), wide = ceil_div(c->Co, width) * width;
    const int64_t copy = wide == c->Co ? 0 : s->rows * snd_k_conv_size(c->W, c->k, c->stride) * wide;
    return aligned(strip_elements(s) * (int64_t)size) + aligned(copy * (int64_t)size);
}

size_t snd_k_conv_dw_scratch(snd_dtype t, const snd_kconv *c) {
    if (turns(t, c)) return tile_dw_scratch(c);
    const size_t size = snd_k_size(t);
    const strips s = forward_strips(size, c);
    return (size_t)(cut_tasks(&s, c->B, DW_TASKS).tasks *
                    (panels_bytes(size, c, c->Ci, c->Co) + dw_slot_bytes(size, c, &s)));
}

void snd_k_conv_dw(int th, snd_dtype t, const snd_kconv *c, const void *dy, const void *x, void *dw, void *scratch) {
    if (turns(t, c)) {
        dw_by_tiles(th, c, dy, x, dw, scratch);
        return;
    }
    const size_t size = snd_k_size(t);
    conv_job j = {.c = c,
                  .s = forward_strips(size, c),
                  .size = size,
                  .dw = SND_PICK(conv_dw, t),
                  .src = x,
                  .dy = dy,
                  .panels = scratch,
                  .out_h = snd_k_conv_size(c->H, c->k, c->stride),
                  .out_w = snd_k_conv_size(c->W, c->k, c->stride)};
    const packing p = forward_packing(c);
    j.part = panels_bytes(size, c, c->Ci, c->Co) / (int64_t)size;
    j.cut = cut_tasks(&j.s, c->B, DW_TASKS);
    j.slots = j.panels + (size_t)(j.cut.tasks * j.part) * size;
    j.slot_bytes = dw_slot_bytes(size, c, &j.s);
    snd_parallel(worth(th, c), j.cut.tasks, dw_task, &j);
    add_parts(&j);
    pack(size, &p, true, dw, j.panels);
}
