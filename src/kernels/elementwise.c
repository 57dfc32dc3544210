// Fronts of the elementwise kernels: merge dimensions where strides allow, cut into ranges, collect the maxima.
#include "kernels/maths.h"
#include "kernels/peak.h"
#include "kernels/rows.h"
#include <assert.h>

enum { GRAIN = 32768, ALIGN = 64 }; // elements per task at least; cuts at multiples of 64 elements

// ---- binary and the backward of min, max ---------------------------------------------------------------------------

// Joins neighbouring dimensions that both operands walk without a jump; the innermost ends up as long as possible.
static snd_grid merge(const int64_t dim[3], const int64_t sx[3], const int64_t sy[3]) {
    snd_grid g = {{1, 1, 1}, {0, 0, 0}, {0, 0, 0}};
    int k = 2;
    bool any = false;
    for (int d = 2; d >= 0; d--) {
        if (dim[d] == 1) continue;
        if (any && sx[d] == g.sx[k] * g.dim[k] && sy[d] == g.sy[k] * g.dim[k]) {
            g.dim[k] *= dim[d];
            continue;
        }
        if (any) k--;
        any = true;
        g.dim[k] = dim[d];
        g.sx[k] = sx[d];
        g.sy[k] = sy[d];
    }
    return g;
}

typedef struct binary_job {
    snd_kt_binary *fn;
    snd_kt_minmax_bwd *bwd;
    snd_kbin op;
    bool max, second;
    snd_grid g;
    snd_cut cut;
    double a, b;
    const void *x, *y, *dy;
    void *out;
    double absmax[SND_MAX_TASKS];
} binary_job;

static void binary_task(void *ctx, int64_t i) {
    binary_job *j = ctx;
    const int64_t i0 = snd_cut_begin(&j->cut, i), i1 = snd_cut_end(&j->cut, i);
    if (j->bwd)
        j->bwd(j->max, j->second, &j->g, i0, i1, j->a, j->x, j->b, j->y, j->dy, j->out);
    else
        j->absmax[i] = j->fn(j->op, &j->g, i0, i1, j->a, j->x, j->b, j->y, j->out);
}

double snd_k_binary(int th, snd_dtype t, snd_kbin op, const int64_t dim[3], double a, const void *x,
                    const int64_t sx[3], double b, const void *y, const int64_t sy[3], void *out) {
    const int64_t n = dim[0] * dim[1] * dim[2];
    if (n <= 0) return 0;
    binary_job j = {.fn = SND_PICK(binary, t),
                    .op = op,
                    .g = merge(dim, sx, sy),
                    .cut = snd_cut_make(n, GRAIN, ALIGN),
                    .a = a,
                    .b = b,
                    .x = x,
                    .y = y,
                    .out = out};
    snd_parallel(th, j.cut.tasks, binary_task, &j);
    return snd_max_nan(j.absmax, j.cut.tasks);
}

void snd_k_minmax_bwd(int th, snd_dtype t, bool max, bool second, const int64_t dim[3], double a, const void *x,
                      const int64_t sx[3], double b, const void *y, const int64_t sy[3], const void *dy, void *dx) {
    const int64_t n = dim[0] * dim[1] * dim[2];
    if (n <= 0) return;
    binary_job j = {.bwd = SND_PICK(minmax_bwd, t),
                    .max = max,
                    .second = second,
                    .g = merge(dim, sx, sy),
                    .cut = snd_cut_make(n, GRAIN, ALIGN),
                    .a = a,
                    .b = b,
                    .x = x,
                    .y = y,
                    .dy = dy,
                    .out = dx};
    snd_parallel(th, j.cut.tasks, binary_task, &j);
}

// ---- affine, unary, their backward, absmax, fills of one value -----------------------------------------------------

typedef struct flat_job flat_job;
struct flat_job {
    double (*run)(const flat_job *j, int64_t i0, int64_t n);
    snd_kfn_any *fn;
    snd_kfn f;
    snd_cut cut;
    size_t size;
    double a, b;
    const void *x, *dy;
    void *out;
    uint64_t *above;      // relu: what it notes
    const uint64_t *seen; // its backward: what was noted
    double absmax[SND_MAX_TASKS];
};

static void flat_task(void *ctx, int64_t i) {
    flat_job *j = ctx;
    const int64_t i0 = snd_cut_begin(&j->cut, i);
    j->absmax[i] = j->run(j, i0, snd_cut_end(&j->cut, i) - i0);
}

static double flat(int th, snd_dtype t, int64_t n, flat_job *j) {
    if (n <= 0) return 0;
    j->cut = snd_cut_make(n, GRAIN, ALIGN);
    j->size = snd_k_size(t);
    snd_parallel(th, j->cut.tasks, flat_task, j);
    return snd_max_nan(j->absmax, j->cut.tasks);
}

static double affine_range(const flat_job *j, int64_t i0, int64_t n) {
    return ((snd_kt_affine *)j->fn)(n, j->a, snd_at(j->x, i0, j->size), j->b, snd_at_mut(j->out, i0, j->size));
}
double snd_k_affine(int th, snd_dtype t, int64_t n, double a, const void *x, double b, void *out) {
    flat_job j = {.run = affine_range, .fn = snd_k_pick(SND_KF_affine, t), .a = a, .b = b, .x = x, .out = out};
    return flat(th, t, n, &j);
}

static double unary_range(const flat_job *j, int64_t i0, int64_t n) {
    return ((snd_kt_unary *)j->fn)(j->f, n, j->a, snd_at(j->x, i0, j->size), snd_at_mut(j->out, i0, j->size));
}
double snd_k_unary(int th, snd_dtype t, snd_kfn f, int64_t n, double s, const void *x, void *y) {
    flat_job j = {.run = unary_range, .fn = snd_k_pick(SND_KF_unary, t), .f = f, .a = s, .x = x, .out = y};
    return flat(th, t, n, &j);
}

static double unary_bwd_range(const flat_job *j, int64_t i0, int64_t n) {
    return ((snd_kt_unary_bwd *)j->fn)(j->f, n, j->a, snd_at(j->x, i0, j->size), j->b, snd_at(j->dy, i0, j->size),
                                       snd_at_mut(j->out, i0, j->size));
}
double snd_k_unary_bwd(int th, snd_dtype t, snd_kfn f, int64_t n, double s, const void *x, double c, const void *dy,
                       void *dx) {
    flat_job j = {.run = unary_bwd_range,
                  .fn = snd_k_pick(SND_KF_unary_bwd, t),
                  .f = f,
                  .a = s,
                  .b = c,
                  .x = x,
                  .dy = dy,
                  .out = dx};
    return flat(th, t, n, &j);
}

// Cuts fall on whole words, since ALIGN is 64 elements.
static double relu_range(const flat_job *j, int64_t i0, int64_t n) {
    return ((snd_kt_relu *)j->fn)(n, snd_at(j->x, i0, j->size), snd_at_mut(j->out, i0, j->size), j->above + i0 / 64);
}
double snd_k_relu(int th, snd_dtype t, int64_t n, const void *x, void *y, uint64_t *above) {
    flat_job j = {.run = relu_range, .fn = snd_k_pick(SND_KF_relu, t), .x = x, .above = above, .out = y};
    return flat(th, t, n, &j);
}

static double relu_bwd_range(const flat_job *j, int64_t i0, int64_t n) {
    return ((snd_kt_relu_bwd *)j->fn)(n, j->seen + i0 / 64, snd_at(j->dy, i0, j->size),
                                      snd_at_mut(j->out, i0, j->size));
}
double snd_k_relu_bwd(int th, snd_dtype t, int64_t n, const uint64_t *above, const void *dy, void *dx) {
    flat_job j = {.run = relu_bwd_range, .fn = snd_k_pick(SND_KF_relu_bwd, t), .seen = above, .dy = dy, .out = dx};
    return flat(th, t, n, &j);
}

static double absmax_range(const flat_job *j, int64_t i0, int64_t n) {
    return ((snd_kt_absmax *)j->fn)(n, snd_at(j->x, i0, j->size));
}
double snd_k_absmax(int th, snd_dtype t, int64_t n, const void *x) {
    flat_job j = {.run = absmax_range, .fn = snd_k_pick(SND_KF_absmax, t), .x = x};
    return flat(th, t, n, &j);
}

static double const_range(const flat_job *j, int64_t i0, int64_t n) {
    ((snd_kt_fill_const *)j->fn)(n, j->a, snd_at_mut(j->out, i0, j->size));
    return 0;
}
void snd_k_fill_const(int th, snd_dtype t, int64_t n, double a, void *out) {
    flat_job j = {.run = const_range, .fn = snd_k_pick(SND_KF_fill_const, t), .a = a, .out = out};
    flat(th, t, n, &j);
}

static double copy_range(const flat_job *j, int64_t i0, int64_t n) {
    ((snd_kt_copy *)j->fn)(n, j->a != 0, snd_at(j->x, i0, j->size), snd_at_mut(j->out, i0, j->size));
    return 0;
}
void snd_k_copy(int th, snd_dtype t, int64_t n, bool stream, const void *x, void *y) {
    flat_job j = {.run = copy_range, .fn = snd_k_pick(SND_KF_copy, t), .a = stream, .x = x, .out = y};
    flat(th, t, n, &j);
}

static double triad_range(const flat_job *j, int64_t i0, int64_t n) {
    ((snd_kt_triad *)j->fn)(n, j->a != 0, snd_at(j->x, i0, j->size), snd_at(j->dy, i0, j->size),
                            snd_at_mut(j->out, i0, j->size));
    return 0;
}
void snd_k_triad(int th, snd_dtype t, int64_t n, bool stream, const void *x, const void *y, void *z) {
    flat_job j = {.run = triad_range, .fn = snd_k_pick(SND_KF_triad, t), .a = stream, .x = x, .dy = y, .out = z};
    flat(th, t, n, &j);
}

typedef struct peak_job {
    snd_kt_peak *fn;
    int64_t rounds;
    double done[SND_MAX_TASKS];
} peak_job;
static void peak_task(void *ctx, int64_t i) {
    peak_job *j = ctx;
    j->done[i] = j->fn(j->rounds);
}
// BF16: 0 where this processor has no such instruction.
double snd_k_peak(int th, snd_dtype t, int64_t rounds) {
    if (t == SND_BF16 && (snd_k_isa() != SND_ISA_AVX512 || !snd_cpu_avx512_bf16())) return 0;
    peak_job j = {.fn = t == SND_BF16 ? snd_k_peak_bf16_avx512bf16 : SND_PICK(peak, t), .rounds = rounds};
    const int64_t n = th < 1 ? 1 : th < SND_MAX_TASKS ? th : SND_MAX_TASKS;
    snd_parallel((int)n, n, peak_task, &j);
    return snd_tree_sum(j.done, n);
}

double snd_k_fn(snd_kfn f, double x) {
    return fn_value_f64(f, x);
}
double snd_k_fn_grad(snd_kfn f, double x) {
    return fn_grad_f64(f, x);
}

// ---- sums over broadcast dimensions --------------------------------------------------------------------------------

typedef struct sum_job {
    snd_kt_sum *sum;
    snd_kt_sum_cols *cols;
    snd_dtype t;
    int64_t dim[3], so[3], xs[3];
    bool summed[3];
    double c;
    const void *x;
    void *out;
    int64_t n_colblocks;
    snd_cut cut;
    double part[SND_MAX_TASKS];
} sum_job;

static void store(snd_dtype t, void *out, int64_t i, double v) {
    if (t == SND_F64)
        ((double *)out)[i] = v;
    else
        ((float *)out)[i] = (float)v;
}

// Everything into one number: blocks of the flat array.
static void sum_flat_task(void *ctx, int64_t i) {
    sum_job *j = ctx;
    const int64_t i0 = snd_cut_begin(&j->cut, i);
    j->part[i] = j->sum(snd_cut_end(&j->cut, i) - i0, snd_at(j->x, i0, snd_k_size(j->t)));
}

// Last dimension kept: one task per (kept outer index, block of columns).
static void sum_cols_task(void *ctx, int64_t task) {
    sum_job *j = ctx;
    const int64_t kept = task / j->n_colblocks, j0 = task % j->n_colblocks * SND_COLS;
    const int64_t n = j->dim[2] - j0 < SND_COLS ? j->dim[2] - j0 : SND_COLS;
    const size_t size = snd_k_size(j->t);
    double acc[SND_COLS] = {0};
    int64_t base_x, base_o;
    if (j->summed[0] && j->summed[1]) {
        base_x = base_o = 0;
        j->cols(j->dim[0] * j->dim[1], n, j->dim[2], snd_at(j->x, j0, size), acc);
    } else if (j->summed[0]) {
        base_x = kept * j->xs[1], base_o = kept * j->so[1];
        j->cols(j->dim[0], n, j->xs[0], snd_at(j->x, base_x + j0, size), acc);
    } else { // dimension 1 summed, or nothing but the columns' copy
        const int64_t k0 = j->summed[1] ? kept : kept / j->dim[1], k1 = j->summed[1] ? 0 : kept % j->dim[1];
        base_x = k0 * j->xs[0] + k1 * j->xs[1], base_o = k0 * j->so[0] + k1 * j->so[1];
        j->cols(j->summed[1] ? j->dim[1] : 1, n, j->dim[2], snd_at(j->x, base_x + j0, size), acc);
    }
    for (int64_t k = 0; k < n; k++) store(j->t, j->out, base_o + (j0 + k) * j->so[2], j->c * acc[k]);
}

// Last dimension summed: one number per kept outer index.
static void sum_rows_task(void *ctx, int64_t task) {
    sum_job *j = ctx;
    const size_t size = snd_k_size(j->t);
    for (int64_t o = snd_cut_begin(&j->cut, task); o < snd_cut_end(&j->cut, task); o++) {
        const int64_t k0 = j->summed[0] ? 0 : j->summed[1] ? o : o / j->dim[1];
        const int64_t k1 = j->summed[1] ? 0 : j->summed[0] ? o : o % j->dim[1];
        double total = 0;
        if (j->summed[1]) {
            total = j->sum(j->dim[1] * j->dim[2], snd_at(j->x, k0 * j->xs[0], size));
        } else {
            for (int64_t a = 0; a < (j->summed[0] ? j->dim[0] : 1); a++)
                total += j->sum(j->dim[2], snd_at(j->x, (k0 + a) * j->xs[0] + k1 * j->xs[1], size));
        }
        store(j->t, j->out, k0 * j->so[0] + k1 * j->so[1], j->c * total);
    }
}

void snd_k_sum_to(int th, snd_dtype t, const int64_t dim[3], const void *x, double c, const int64_t so[3],
                  int64_t n_out, void *out) {
    sum_job j = {.sum = SND_PICK(sum, t), .cols = SND_PICK(sum_cols, t), .t = t, .c = c, .x = x, .out = out};
    const int64_t n = dim[0] * dim[1] * dim[2];
    if (n <= 0) {
        snd_k_fill_const(th, t, n_out, 0, out);
        return;
    }
    int64_t kept[2] = {1, 1};
    for (int d = 0; d < 3; d++) {
        j.dim[d] = dim[d];
        j.so[d] = so[d];
        j.summed[d] = so[d] == 0 && dim[d] > 1;
    }
    j.xs[0] = dim[1] * dim[2], j.xs[1] = dim[2], j.xs[2] = 1;
    for (int d = 0; d < 2; d++) kept[d] = j.summed[d] ? 1 : dim[d];
    const int64_t outer = kept[0] * kept[1], inner = j.summed[2] ? 1 : dim[2];
    assert(n_out >= outer * inner);
    if (outer * inner == 1) {
        j.cut = snd_cut_make(n, GRAIN, ALIGN);
        snd_parallel(th, j.cut.tasks, sum_flat_task, &j);
        store(t, out, 0, c * snd_tree_sum(j.part, j.cut.tasks));
    } else if (!j.summed[2] && dim[2] > 1) {
        j.n_colblocks = (dim[2] + SND_COLS - 1) / SND_COLS;
        snd_parallel(n < GRAIN ? 1 : th, outer * j.n_colblocks, sum_cols_task, &j);
    } else {
        j.cut = snd_cut_rows(outer, n / outer);
        snd_parallel(th, j.cut.tasks, sum_rows_task, &j);
    }
}
