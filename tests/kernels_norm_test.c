// Norm kernels: against a long double reference, on hostile rows, against finite differences, over lengths,
// misalignments, thread counts and instruction sets.
#include "kernels_common.h"

typedef struct setup {
    snd_knorm k;
    int64_t R, D;
    double eps, gain0, gadd;
    bool gain, bias;
} setup;

static snd_normspec spec_of(const setup *s, const void *g, const void *b) {
    return (snd_normspec){.kind = s->k, .D = s->D, .eps = s->eps, .gain0 = s->gain0, .gadd = s->gadd, .g = g, .b = b};
}
static double backward(snd_dtype t, int th, const setup *s, const void *g, const void *dy, const void *x,
                       const double *m, const double *r, const void *plus, void *dx, void *dg, void *db) {
    double *work = snd_calloc(snd_k_norm_bwd_scratch(s->R, s->D) / 8 + 1, 8);
    const snd_normspec spec = spec_of(s, g, NULL);
    const double top = snd_k_norm_bwd(th, t, &spec, s->R, dy, x, m, r, plus, dx, dg, db, work);
    snd_free(work);
    return top;
}

typedef struct result {
    arr y, dx, dg, db;
    double *m, *r;
} result;

static result run(snd_dtype t, int th, const setup *s, const arr *x, const arr *g, const arr *b, const arr *dy,
                  int shift) {
    result q = {arr_make(t, s->R * s->D, shift),
                arr_make(t, s->R * s->D, shift),
                arr_make(t, s->D, shift),
                arr_make(t, s->D, shift),
                NULL,
                NULL};
    q.m = snd_calloc((size_t)s->R + 1, sizeof(double));
    q.r = snd_calloc((size_t)s->R + 1, sizeof(double));
    const void *gp = s->gain ? g->p : NULL, *bp = s->bias ? b->p : NULL;
    const snd_normspec spec = spec_of(s, gp, bp);
    snd_k_norm_fwd(th, t, &spec, s->R, x->p, q.y.p, q.m, q.r);
    backward(t, th, s, gp, dy->p, x->p, q.m, q.r, NULL, q.dx.p, q.dg.p, q.db.p);
    return q;
}
static void release(result *q) {
    arr_free(&q->y);
    arr_free(&q->dx);
    arr_free(&q->dg);
    arr_free(&q->db);
    snd_free(q->m);
    snd_free(q->r);
}

static long double gain_of(const setup *s, const arr *g, int64_t j) {
    return s->gain ? (long double)at(g, j) + s->gadd : 1;
}

// One row in long double: y and dx.
static void reference(const setup *s, const arr *x, const arr *g, const arr *b, const arr *dy, int64_t row,
                      long double *y, long double *xh, long double *dx) {
    const int64_t D = s->D, o = row * D;
    long double m = 0, v = 0, p = 0, q = 0;
    if (s->k == SND_KNORM_LAYER)
        for (int64_t j = 0; j < D; j++) m += at(x, o + j) / (long double)D;
    for (int64_t j = 0; j < D; j++) v += (at(x, o + j) - m) * (at(x, o + j) - m);
    const bool unit = s->k == SND_KNORM_UNIT, clamped = unit && sqrtl(v) <= s->eps;
    const long double n = unit ? (clamped ? s->eps : sqrtl(v)) : sqrtl(v / D + s->eps), r = (unit ? s->gain0 : 1) / n;
    for (int64_t j = 0; j < D; j++) {
        const long double u = at(dy, o + j) * gain_of(s, g, j);
        xh[j] = (at(x, o + j) - m) * r;
        y[j] = xh[j] * gain_of(s, g, j) + (s->bias ? at(b, j) : 0);
        p += s->k == SND_KNORM_LAYER ? u / D : 0;
        q += u * ((at(x, o + j) - m) / n) * (unit ? clamped ? 0 : 1 : 1 / (long double)D);
    }
    for (int64_t j = 0; j < D; j++) dx[j] = r * (at(dy, o + j) * gain_of(s, g, j) - p - (at(x, o + j) - m) / n * q);
}

static void near(snd_dtype t, const char *what, const setup *s, int64_t row, int64_t j, double got, long double want,
                 long double scale, double ulps) {
    const double tol = ulps * eps_of(t) * (double)(fabsl(want) + scale) + 1e-45;
    if (fabs(got - (double)want) <= tol) return;
    if (isinf((double)want) && got == (double)want) return;
    if (t == SND_F32 && fabsl(want) > FLT_MAX && isinf(got)) return;
    print_error("%s %s kind %d R %d D %d row %d col %d: got %.17g want %.17Lg allowed %.3g\n",
                t == SND_F64 ? "f64" : "f32", what, s->k, (int)s->R, (int)s->D, (int)row, (int)j, got, want, tol);
    fail();
}

// Everything against the reference; errors are counted in eps of the row's typical magnitude.
static void compare(snd_dtype t, const setup *s, const arr *x, const arr *g, const arr *b, const arr *dy,
                    const result *q, double ulps) {
    const int64_t D = s->D;
    long double *buf = snd_calloc((size_t)(5 * D + 5), sizeof *buf), *y = buf, *xh = y + D, *dx = xh + D, *dg = dx + D,
                *dgs = dg + D;
    for (int64_t i = 0; i < s->R; i++) {
        reference(s, x, g, b, dy, i, y, xh, dx);
        long double sy = 0, su = 0;
        for (int64_t j = 0; j < D; j++) {
            const long double u = at(dy, i * D + j) * gain_of(s, g, j);
            sy += y[j] * y[j] / D;
            su += u * u / D;
        }
        for (int64_t j = 0; j < D; j++) {
            near(t, "y", s, i, j, at(&q->y, i * D + j), y[j], sqrtl(sy), ulps);
            near(t, "dx", s, i, j, at(&q->dx, i * D + j), dx[j], sqrtl(su) * fabsl(q->r[i]), ulps);
            dg[j] += at(dy, i * D + j) * xh[j];
            dgs[j] += fabsl(at(dy, i * D + j)) * (1 + fabsl(xh[j]));
        }
    }
    for (int64_t j = 0; j < D; j++) {
        long double db = 0, dbs = 0;
        for (int64_t i = 0; i < s->R; i++) db += at(dy, i * D + j), dbs += fabs(at(dy, i * D + j));
        near(t, "dg", s, 0, j, at(&q->dg, j), dg[j], dgs[j], ulps);
        near(t, "db", s, 0, j, at(&q->db, j), db, dbs, ulps);
    }
    snd_free(buf);
}

static void every_length_against_long_double(void **state) {
    (void)state;
    static const int64_t more[] = {63, 64, 65, 511, 512, 513, 1025, 3000};
    EACH_ISA(isa)
    EACH_TYPE(t) for (int k = SND_KNORM_LAYER; k <= SND_KNORM_UNIT; k++) for (int64_t c = 1; c <= 2 * 16 + 1 + 8; c++) {
        const int64_t D = c <= 33 ? c : more[c - 34];
        const setup s = {
            (snd_knorm)k, 3,          D,        k == SND_KNORM_UNIT ? 1e-12 : 1e-5, k == SND_KNORM_UNIT ? 3.0 : 1,
            c % 3 == 1,   c % 2 == 0, c % 4 < 2};
        const int shift = (int)(c % 16);
        arr x = arr_draw(t, 3 * D, shift, "x", 2), g = arr_draw(t, D, shift, "g", 1), b = arr_draw(t, D, 0, "b", 1);
        arr dy = arr_draw(t, 3 * D, (shift + 1) % 16, "dy", 1);
        result q = run(t, 1, &s, &x, &g, &b, &dy, shift);
        // sums over D in lanes of at most 32 terms, three roundings a term, a row's norm in front
        compare(t, &s, &x, &g, &b, &dy, &q, 16);
        release(&q);
        arr_free(&x), arr_free(&g), arr_free(&b), arr_free(&dy);
    }
}

// Rows from 1e-42 to 1e38, offsets, outliers: each against long double.
static void hostile_scales(void **state) {
    (void)state;
    static const double scale32[] = {1e-42, 1e-38, 1e-30, 1e-20, 1e-10, 1, 1e10, 1e15, 1e18, 1e20, 1e30, 3e37};
    static const double scale64[] = {5e-322, 1e-308, 1e-200, 1e-150, 1e-20, 1, 1e20, 1e100, 1e150, 1e200, 1e300, 3e307};
    static const double eps_list[] = {1e-5, 1e-12, 0};
    EACH_ISA(isa)
    EACH_TYPE(t)
    for (int k = SND_KNORM_LAYER; k <= SND_KNORM_UNIT; k++)
        for (int c = 0; c < 12; c++)
            for (int e = 0; e < 3; e++) {
                const double a = t == SND_F64 ? scale64[c] : scale32[c];
                const setup s = {(snd_knorm)k, 4, 37, eps_list[e], k == SND_KNORM_UNIT ? 2 : 1, 0, true, true};
                arr x = arr_draw(t, 4 * 37, 1, "hostile", a), g = arr_draw(t, 37, 0, "g", 1),
                    b = arr_draw(t, 37, 0, "b", 1);
                arr dy = arr_draw(t, 4 * 37, 0, "dy", a > 1 ? a : 1);
                for (int j = 0; j < 37; j++)
                    put(&x, 37 + j, a * (1 + 0.1 * draw("near", j))); // an offset ten times the spread
                put(&x, 2 * 37 + 3, t == SND_F64 ? 1e300 : 1e35);     // one outlier
                result q = run(t, 1, &s, &x, &g, &b, &dy, 0);
                const bool deep = t == SND_F64 && a < 1e-306; // r itself leaves the type: only y is defined
                if (!deep || eps_list[e] > 0) compare(t, &s, &x, &g, &b, &dy, &q, 40);
                for (int64_t i = 0; i < 4 * 37; i++) assert_true(isfinite(at(&q.y, i)));
                release(&q);
                arr_free(&x), arr_free(&g), arr_free(&b), arr_free(&dy);
            }
}

// A large mean with a small spread must not cost the spread: exact in the type, since the reference sees the same x.
static void offsets_keep_the_spread(void **state) {
    (void)state;
    EACH_ISA(isa) EACH_TYPE(t) for (int c = 0; c < 3; c++) {
        const int64_t D = 768;
        const setup s = {SND_KNORM_LAYER, 2, D, 1e-5, 1, 0, false, false};
        arr x = arr_make(t, 2 * D, 0), dy = arr_draw(t, 2 * D, 0, "dy", 1);
        const double offset = c == 0 ? 1e5 : c == 1 ? -1e7 : 3e3;
        for (int64_t i = 0; i < 2 * D; i++) put(&x, i, offset + (c == 1 ? 100 : 1) * draw("spread", i));
        result q = run(t, 1, &s, &x, NULL, NULL, &dy, 0);
        // f64 keeps the mean in one double: its rounding shows as offset*eps/spread
        compare(t, &s, &x, NULL, NULL, &dy, &q, t == SND_F32 ? 16 : 16 + 4 * fabs(offset) / (c == 1 ? 100 : 1));
        release(&q);
        arr_free(&x), arr_free(&dy);
    }
}

// The first pass stops early in long rows: what follows may lie anywhere else.
static void long_rows_whose_parts_lie_apart(void **state) {
    (void)state;
    EACH_ISA(isa) EACH_TYPE(t) for (int c = 0; c < 5; c++) for (int64_t R = 1; R <= 6; R += 5) {
        const int64_t D = c == 4 ? 1025 : 4099;
        const setup s = {SND_KNORM_LAYER, R, D, 1e-5, 1, 0, c < 3, c < 3};
        arr x = arr_draw(t, R * D, 0, "x", 1), dy = arr_draw(t, R * D, 0, "dy", 1), g = arr_draw(t, D, 0, "g", 1),
            b = arr_draw(t, D, 0, "b", 1);
        for (int64_t i = 0; i < R * D; i++) {
            const int64_t j = i % D;
            const double by = c == 0   ? (j < 1024 ? 1000 : 0)
                              : c == 1 ? (j < 1024 ? 0 : -3000)
                              : c == 2 ? (j == D - 1 ? 1e4 : 0)
                              : c == 3 ? 300 * sin((double)j / 400)
                                       : 0;
            put(&x, i, (c == 4 && j < 1024 ? 0 : at(&x, i)) + by);
        }
        result q = run(t, 1, &s, &x, &g, &b, &dy, 0);
        compare(t, &s, &x, &g, &b, &dy, &q, 24);
        release(&q);
        arr_free(&x), arr_free(&dy), arr_free(&g), arr_free(&b);
    }
}

static void constant_and_zero_rows_give_beta(void **state) {
    (void)state;
    static const double values[] = {0, 1, -3.1, 1e5 / 3, 1e30 / 7, 1e-30 / 3, 1e-44};
    EACH_ISA(isa)
    EACH_TYPE(t)
    for (int64_t D = 1; D <= 1030; D += D < 40 ? 1 : 331)
        for (int v = 0; v < 7; v++)
            for (int e = 0; e < 2; e++) {
                const setup s = {SND_KNORM_LAYER, 2, D, e ? 0 : 1e-5, 1, 0, true, true};
                arr x = arr_make(t, 2 * D, 0), g = arr_draw(t, D, 0, "g", 1), b = arr_draw(t, D, 0, "b", 1);
                arr dy = arr_draw(t, 2 * D, 0, "dy", 1);
                for (int64_t i = 0; i < 2 * D; i++) put(&x, i, values[v]);
                result q = run(t, 1, &s, &x, &g, &b, &dy, 0);
                for (int64_t i = 0; i < 2 * D; i++) {
                    CHECK_SAME(at(&q.y, i), at(&b, i % D));
                    assert_true(isfinite(at(&q.dx, i)));
                    if (D == 1) CHECK_SAME(at(&q.dx, i), 0);
                    if (e == 1) CHECK_SAME(at(&q.dx, i), 0);
                }
                for (int64_t j = 0; j < D; j++) CHECK_SAME(at(&q.dg, j), 0);
                release(&q);
                arr_free(&x), arr_free(&g), arr_free(&b), arr_free(&dy);
            }
}

// x - mean of a row from -max to max is not a double; the gain of a unit norm may be 0.
static void the_widest_rows(void **state) {
    (void)state;
    EACH_ISA(isa) EACH_TYPE(t) {
        const double top = t == SND_F64 ? DBL_MAX : (double)FLT_MAX;
        const setup s = {SND_KNORM_LAYER, 1, 4, 1e-5, 1, 0, false, false};
        arr x = arr_make(t, 4, 0), dy = arr_draw(t, 4, 0, "dy", t == SND_F64 ? 1e300 : 1e30);
        for (int i = 0; i < 4; i++) put(&x, i, i == 2 ? -top : top);
        result q = run(t, 1, &s, &x, NULL, NULL, &dy, 0);
        for (int i = 0; i < 4; i++) CHECK_CLOSE(at(&q.y, i), i == 2 ? -sqrt(3) : 1 / sqrt(3), 4 * eps_of(t));
        // dx = (u - mean(u) - xh*mean(u*xh))/sd, sd = top*sqrt(3)/2: about 1e-8, and finite in between
        double u = 0, p = 0;
        for (int i = 0; i < 4; i++) u += at(&dy, i) / 4, p += at(&dy, i) / 4 * (i == 2 ? -sqrt(3) : 1 / sqrt(3));
        for (int i = 0; i < 4; i++) {
            const double want = (at(&dy, i) - u - (i == 2 ? -sqrt(3) : 1 / sqrt(3)) * p) / (top / 2 * sqrt(3));
            CHECK_CLOSE(at(&q.dx, i) * 1e8, want * 1e8, 100 * eps_of(t));
        }
        release(&q);
        const setup none = {SND_KNORM_UNIT, 1, 4, 1e-12, 0, 0, false, false};
        q = run(t, 1, &none, &dy, NULL, NULL, &x, 0);
        for (int i = 0; i < 4; i++) CHECK_SAME(at(&q.y, i), 0), CHECK_SAME(at(&q.dx, i), 0);
        release(&q);
        arr_free(&x), arr_free(&dy);
    }
}

static void zero_rows_of_rms_and_unit(void **state) {
    (void)state;
    EACH_ISA(isa) EACH_TYPE(t) for (int k = SND_KNORM_RMS; k <= SND_KNORM_UNIT; k++) for (int e = 0; e < 2; e++) {
        const setup s = {(snd_knorm)k, 1, 20, e ? 0 : 1e-6, 2, 0, false, false};
        arr x = arr_make(t, 20, 0), dy = arr_draw(t, 20, 0, "dy", 1);
        for (int64_t i = 0; i < 20; i++) put(&x, i, 0);
        result q = run(t, 1, &s, &x, NULL, NULL, &dy, 0);
        for (int64_t i = 0; i < 20; i++) {
            CHECK_SAME(at(&q.y, i), 0);
            const double slope = e ? 0 : k == SND_KNORM_UNIT ? 2e6 : 1e3;
            CHECK_REL(at(&q.dx, i), slope * at(&dy, i), 2 * eps_of(t));
        }
        release(&q);
        arr_free(&x), arr_free(&dy);
    }
}

static void bad_rows_become_nan_and_no_others(void **state) {
    (void)state;
    static const double poison[] = {NAN, INFINITY, -INFINITY};
    EACH_ISA(isa)
    EACH_TYPE(t)
    for (int k = SND_KNORM_LAYER; k <= SND_KNORM_UNIT; k++)
        for (int p = 0; p < 3; p++)
            for (int64_t place = 0; place < 70; place += 23) {
                const int64_t D = 70;
                const setup s = {(snd_knorm)k, 3, D, 1e-5, 1, 0, true, true};
                arr x = arr_draw(t, 3 * D, 0, "x", 1), g = arr_draw(t, D, 0, "g", 1), b = arr_draw(t, D, 0, "b", 1);
                arr dy = arr_draw(t, 3 * D, 0, "dy", 1);
                put(&x, D + place, poison[p]);
                result q = run(t, 1, &s, &x, &g, &b, &dy, 0);
                for (int64_t i = 0; i < 3 * D; i++) {
                    assert_int_equal(isnan(at(&q.y, i)) != 0, i / D == 1);
                    assert_int_equal(isnan(at(&q.dx, i)) != 0, i / D == 1);
                }
                release(&q);
                arr_free(&x), arr_free(&g), arr_free(&b), arr_free(&dy);
            }
}

// eps inside the root, biased variance: x = [1,0,0,0] gives [1.7320, -0.5773, ...]; the other convention gives 1.5.
static void worked_example(void **state) {
    (void)state;
    EACH_TYPE(t) {
        const setup s = {SND_KNORM_LAYER, 1, 4, 1e-5, 1, 0, false, false};
        arr x = arr_make(t, 4, 0), dy = arr_draw(t, 4, 0, "dy", 1);
        for (int i = 0; i < 4; i++) put(&x, i, i == 0);
        result q = run(t, 1, &s, &x, NULL, NULL, &dy, 0);
        CHECK_CLOSE(at(&q.y, 0), 0.75 / sqrt(0.1875 + 1e-5), 2 * eps_of(t));
        CHECK_CLOSE(at(&q.y, 3), -0.25 / sqrt(0.1875 + 1e-5), 2 * eps_of(t));
        CHECK_CLOSE(q.m[0], 0.25, 1e-15);
        CHECK_CLOSE(q.r[0], 1 / sqrt(0.1875 + 1e-5), 1e-7);
        release(&q);
        arr_free(&x), arr_free(&dy);
    }
    // rows of variance v under two eps differ by sqrt((v+e1)/(v+e2)): 0.7071 for v = 1e-5 against 1e-12
    const double x[2] = {sqrt(1e-5), -sqrt(1e-5)};
    double y1[2], y2[2], m, r;
    const snd_normspec wide = {.kind = SND_KNORM_LAYER, .D = 2, .eps = 1e-5};
    const snd_normspec narrow = {.kind = SND_KNORM_LAYER, .D = 2, .eps = 1e-12};
    snd_k_norm_fwd(1, SND_F64, &wide, 1, x, y1, &m, &r);
    snd_k_norm_fwd(1, SND_F64, &narrow, 1, x, y2, &m, &r);
    CHECK_CLOSE(y1[0] / y2[0], sqrt((1e-5 + 1e-12) / 2e-5), 1e-14);
}

// Directional derivative of sum(cot*y) along every input, central differences.
static double objective(const setup *s, const arr *x, const arr *g, const arr *b, const arr *cot) {
    double m[16], r[16], total = 0;
    arr y = arr_make(SND_F64, x->n, 0);
    const snd_normspec spec = spec_of(s, s->gain ? g->p : NULL, s->bias ? b->p : NULL);
    snd_k_norm_fwd(1, SND_F64, &spec, s->R, x->p, y.p, m, r);
    for (int64_t i = 0; i < x->n; i++) total += at(cot, i) * at(&y, i);
    arr_free(&y);
    return total;
}
static void differences(const setup *s, arr *in, const arr *x, const arr *g, const arr *b, const arr *cot,
                        const arr *grad) {
    double size = 0;
    for (int64_t i = 0; i < in->n; i++) size = fmax(size, fabs(at(grad, i)));
    for (int64_t i = 0; i < in->n; i++) {
        const double v = at(in, i), h = 1e-4; // fourth-order stencil
        double f[4];
        for (int k = 0; k < 4; k++) {
            put(in, i, v + h * (k < 2 ? k - 2 : k - 1));
            f[k] = objective(s, x, g, b, cot);
        }
        put(in, i, v);
        const double want = (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * h);
        CHECK_CLOSE(at(grad, i) / size, want / size, 1e-9);
    }
}
static void gradients_by_differences(void **state) {
    (void)state;
    static const int64_t shapes[][2] = {{3, 7}, {9, 2}, {5, 1}, {2, 33}};
    for (int k = SND_KNORM_LAYER; k <= SND_KNORM_UNIT; k++)
        for (int c = 0; c < 4; c++)
            for (int plus1 = 0; plus1 < 2; plus1++) {
                const int64_t R = shapes[c][0], D = shapes[c][1];
                const setup s = {(snd_knorm)k, R, D, k == SND_KNORM_UNIT ? 1e-12 : 1e-2, 1.5, plus1, true, true};
                arr x = arr_draw(SND_F64, R * D, 0, "fx", 1), g = arr_draw(SND_F64, D, 0, "fg", 1);
                arr b = arr_draw(SND_F64, D, 0, "fb", 1), cot = arr_draw(SND_F64, R * D, 0, "cot", 1);
                result q = run(SND_F64, 1, &s, &x, &g, &b, &cot, 0);
                if (D == 1 && k != SND_KNORM_RMS)
                    for (int64_t i = 0; i < R; i++) CHECK_CLOSE(at(&q.dx, i), 0, 4 * DBL_EPSILON * q.r[i]);
                else
                    differences(&s, &x, &x, &g, &b, &cot, &q.dx);
                if (D > 1 || k == SND_KNORM_RMS) differences(&s, &g, &x, &g, &b, &cot, &q.dg);
                differences(&s, &b, &x, &g, &b, &cot, &q.db);
                release(&q);
                arr_free(&x), arr_free(&g), arr_free(&b), arr_free(&cot);
            }
}

// Shapes in which a per-row correction along columns would go unnoticed or wrong.
static void tall_shapes_threads_and_isas_agree_bitwise(void **state) {
    (void)state;
    static const int64_t shapes[][2] = {{8096, 32}, {12288, 1}, {2048, 2}, {300, 257}, {64, 1030}, {1, 40000}, {0, 8}};
    EACH_TYPE(t)
    for (int k = SND_KNORM_LAYER; k <= SND_KNORM_UNIT; k++)
        for (int c = 0; c < 7; c++) {
            const int64_t R = shapes[c][0], D = shapes[c][1];
            const setup s = {(snd_knorm)k, R, D, 1e-5, 1, 1, true, true};
            arr x = arr_draw(t, R * D, 0, "x", 1), g = arr_draw(t, D, 0, "g", 0.1), b = arr_draw(t, D, 0, "b", 1);
            arr dy = arr_draw(t, R * D, 0, "dy", 1);
            snd_k_limit_isa(SND_ISA_BASE);
            result one = run(t, 1, &s, &x, &g, &b, &dy, 0);
            if (k == SND_KNORM_LAYER && t == SND_F32) compare(t, &s, &x, &g, &b, &dy, &one, 16);
            EACH_ISA(isa)
            for (int th = 1; th <= 4; th++) {
                result q = run(t, th, &s, &x, &g, &b, &dy, 3);
                assert_true(same_bits(&q.y, &one.y) && same_bits(&q.dx, &one.dx) && same_bits(&q.dg, &one.dg) &&
                            same_bits(&q.db, &one.db));
                release(&q);
            }
            release(&one);
            arr_free(&x), arr_free(&g), arr_free(&b), arr_free(&dy);
        }
}

static void backward_in_place_on_dy(void **state) {
    (void)state;
    EACH_TYPE(t)
    for (int k = SND_KNORM_LAYER; k <= SND_KNORM_UNIT; k++) {
        const setup s = {(snd_knorm)k, 40, 100, 1e-5, 1, 0, true, true};
        arr x = arr_draw(t, 4000, 0, "x", 1), g = arr_draw(t, 100, 0, "g", 1), dy = arr_draw(t, 4000, 0, "dy", 1);
        arr b = arr_draw(t, 100, 0, "b", 1), dg = arr_make(t, 100, 0), db = arr_make(t, 100, 0);
        result q = run(t, 1, &s, &x, &g, &b, &dy, 0);
        backward(t, 2, &s, g.p, dy.p, x.p, q.m, q.r, NULL, dy.p, dg.p, db.p);
        assert_true(same_bits(&dy, &q.dx) && same_bits(&dg, &q.dg) && same_bits(&db, &q.db));
        release(&q);
        arr_free(&x), arr_free(&g), arr_free(&dy), arr_free(&b), arr_free(&dg), arr_free(&db);
    }
}

// The largest magnitudes that the kernels return are those of what they wrote, NaN where there is one.
static void the_largest_magnitudes(void **state) {
    (void)state;
    EACH_ISA(isa) EACH_TYPE(t) for (int bad = 0; bad < 2; bad++) for (int past = 0; past < 2; past++) {
        const setup s = {SND_KNORM_LAYER, 50, 1030, 1e-5, 1, 0, true, true};
        const int64_t n = s.R * s.D;
        arr x = arr_draw(t, n, 0, "x", 3), g = arr_draw(t, s.D, 0, "g", 1), b = arr_draw(t, s.D, 0, "b", 1);
        arr dy = arr_draw(t, n, 0, "dy", 1), y = arr_make(t, n, 1), dx = arr_make(t, n, 2);
        double m[50], r[50];
        if (bad) put(&x, 7 * s.D + 5, NAN);
        snd_k_stream_from(past ? 0 : -1);
        const snd_normspec spec = spec_of(&s, g.p, b.p);
        const double ty = snd_k_norm_fwd(3, t, &spec, s.R, x.p, y.p, m, r);
        const double tdx = backward(t, 3, &s, g.p, dy.p, x.p, m, r, NULL, dx.p, NULL, NULL);
        arr sum = arr_make(t, n, 0), z = arr_make(t, n, 3);
        double ts;
        const double tz = snd_k_addnorm_fwd(3, t, &spec, s.R, 1, x.p, 1, dy.p, sum.p, z.p, m, r, &ts);
        snd_k_stream_from(-1);
        if (bad) {
            assert_true(isnan(ty) && isnan(tdx) && isnan(ts) && isnan(tz));
        } else {
            CHECK_SAME(ty, snd_k_absmax(1, t, n, y.p));
            CHECK_SAME(tdx, snd_k_absmax(1, t, n, dx.p));
            CHECK_SAME(ts, snd_k_absmax(1, t, n, sum.p));
            CHECK_SAME(tz, snd_k_absmax(1, t, n, z.p));
        }
        arr_free(&sum), arr_free(&z);
        arr_free(&x), arr_free(&g), arr_free(&b), arr_free(&dy), arr_free(&y), arr_free(&dx);
    }
}

// Long rows that go past the caches may run one after the other: the bits are those of rows that stay, for rows off the
// middle, careful ones and bad ones too.
static void long_rows_past_the_caches(void **state) {
    (void)state;
    static const int64_t shapes[][2] = {{7, 1024}, {40, 2048}, {9, 4099}};
    EACH_ISA(isa)
    EACH_TYPE(t)
    for (int k = SND_KNORM_LAYER; k <= SND_KNORM_UNIT; k++)
        for (int c = 0; c < 12; c++) {
            const setup s = {(snd_knorm)k, shapes[c % 3][0], shapes[c % 3][1], 1e-5, 2, 0, c & 4, c > 5};
            const int64_t n = s.R * s.D;
            arr x = arr_draw(t, n, 1, "x", 1), g = arr_draw(t, s.D, 0, "g", 1), b = arr_draw(t, s.D, 3, "b", 1);
            for (int64_t i = 0; i < s.D; i++) {
                put(&x, s.D + i, at(&x, s.D + i) * 1e25);
                put(&x, 2 * s.D + i, at(&x, 2 * s.D + i) + 100);
            }
            put(&x, 4 * s.D + 9, NAN);
            const snd_normspec spec = spec_of(&s, s.gain ? g.p : NULL, s.bias ? b.p : NULL);
            arr y[2] = {arr_make(t, n, 1), arr_make(t, n, 1)};
            double m[2][40], r[2][40];
            for (int past = 0; past < 2; past++) {
                snd_k_stream_from(past ? 0 : -1);
                memset(m[past], 0, sizeof m[past]);
                assert_true(isnan(snd_k_norm_fwd(2, t, &spec, s.R, x.p, y[past].p, m[past], r[past])));
            }
            snd_k_stream_from(-1);
            assert_true(same_bits(&y[0], &y[1]));
            assert_memory_equal(m[0], m[1], sizeof m[0]);
            assert_memory_equal(r[0], r[1], (size_t)s.R * sizeof(double));
            arr_free(&x), arr_free(&g), arr_free(&b), arr_free(&y[0]), arr_free(&y[1]);
        }
}

// One pass over the rows gives the bits of a sum, a norm, a norm's backward and a sum, whatever goes past the caches,
// in place or not, careful rows included.
static void fused_passes_have_the_bits_of_single_ones(void **state) {
    (void)state;
    static const int64_t shapes[][2] = {{1, 1}, {3, 7}, {70, 65}, {300, 257}, {20, 513}, {3, 5000}};
    EACH_ISA(isa)
    EACH_TYPE(t)
    for (int k = SND_KNORM_LAYER; k <= SND_KNORM_UNIT; k++)
        for (int c = 0; c < 6; c++)
            for (int past = 0; past < 2; past++)
                for (int on = 0; on < 3; on++) { // where the sum goes: apart, on x, on y
                    const setup s = {(snd_knorm)k, shapes[c][0], shapes[c][1], 1e-5, 2, 0, c % 2 == 0, c % 3 == 0};
                    const int64_t n = s.R * s.D, dim[3] = {1, 1, n}, step[3] = {0, 0, 1};
                    arr x = arr_draw(t, n, 1, "x", 1), y = arr_draw(t, n, 0, "y", 1), dy = arr_draw(t, n, 2, "dy", 1);
                    arr g = arr_draw(t, s.D, 0, "g", 1), b = arr_draw(t, s.D, 3, "b", 1);
                    arr ds = arr_draw(t, n, 0, "ds", 1), sum = arr_make(t, n, 1), z = arr_make(t, n, 5);
                    for (int64_t i = 0; s.R > 2 && i < s.D; i++) put(&x, s.D + i, at(&x, s.D + i) * 1e25);
                    const double fx = 1.7, fy = -0.4;
                    snd_k_stream_from(-1);
                    arr want = arr_make(t, n, 0);
                    const double top = snd_k_binary(1, t, SND_KBIN_ADD, dim, fx, x.p, step, fy, y.p, step, want.p);
                    result q = run(t, 1, &s, &want, &g, &b, &dy, 0);
                    arr joined = arr_make(t, n, 0);
                    snd_k_binary(1, t, SND_KBIN_ADD, dim, 1, q.dx.p, step, 1, ds.p, step, joined.p);

                    snd_k_stream_from(past ? 0 : -1);
                    double *m = snd_calloc((size_t)s.R, 8), *r = snd_calloc((size_t)s.R, 8), sum_top;
                    const snd_normspec spec = spec_of(&s, s.gain ? g.p : NULL, s.bias ? b.p : NULL);
                    void *to = on == 0 ? sum.p : on == 1 ? x.p : y.p;
                    snd_k_addnorm_fwd(2, t, &spec, s.R, fx, x.p, fy, y.p, to, z.p, m, r, &sum_top);
                    CHECK_SAME(sum_top, top);
                    assert_memory_equal(to, want.p, (size_t)n * elem(t));
                    assert_true(same_bits(&z, &q.y));
                    assert_memory_equal(r, q.r, (size_t)s.R * 8);

                    arr dx = arr_make(t, n, 3), dg = arr_make(t, s.D, 0), db = arr_make(t, s.D, 0);
                    void *out = on == 0 ? dx.p : on == 1 ? dy.p : ds.p;
                    backward(t, 2, &s, s.gain ? g.p : NULL, dy.p, want.p, m, r, ds.p, out, dg.p, db.p);
                    assert_memory_equal(out, joined.p, (size_t)n * elem(t));
                    assert_true(same_bits(&dg, &q.dg) && same_bits(&db, &q.db));
                    release(&q);
                    snd_free(m), snd_free(r);
                    arr_free(&x), arr_free(&y), arr_free(&dy), arr_free(&g), arr_free(&b), arr_free(&ds);
                    arr_free(&sum), arr_free(&z), arr_free(&want), arr_free(&joined);
                    arr_free(&dx), arr_free(&dg), arr_free(&db);
                }
    snd_k_stream_from(-1);
}

// ---- batch norm -------------------------------------------------------------------------------------------------------

// A batch norm over R rows is a layer norm of each column: compare with the row kernel on the transpose.
static void batch_norm_is_layer_norm_of_columns(void **state) {
    (void)state;
    static const int64_t shapes[][2] = {{1, 3}, {2, 5}, {64, 70}, {33, 130}, {500, 64}};
    EACH_ISA(isa) EACH_TYPE(t) for (int c = 0; c < 5; c++) for (int wild = 0; wild < 2; wild++) {
        const int64_t R = shapes[c][0], D = shapes[c][1];
        arr x = arr_draw(t, R * D, 1, "bx", 1), dy = arr_draw(t, R * D, 0, "bdy", 1), g = arr_draw(t, D, 0, "bg", 1);
        arr b = arr_draw(t, D, 0, "bb", 1), y = arr_make(t, R * D, 0), dx = arr_make(t, R * D, 0);
        arr dg = arr_make(t, D, 0), db = arr_make(t, D, 0);
        for (int64_t i = 0; wild && i < R * D; i++)
            if (i % D < 3)
                put(&x, i, at(&x, i) * (i % D == 0 ? (t == SND_F64 ? 1e200 : 1e30) : 1e-40) + (i % D == 2 ? 5 : 0));
        double m[130], r[130], unb[130];
        snd_k_batch_fwd(3, t, R, D, 1e-5, 0, x.p, g.p, b.p, y.p, m, r, unb, NULL);
        snd_k_batch_bwd(2, t, R, D, 1e-5, 0, dy.p, x.p, g.p, m, r, NULL, dx.p, dg.p, db.p);
        for (int64_t j = 0; j < D; j++) {
            double col[500], cdy[500], cy[500], cdx[500], ones[500], cm, cr, sg = 0, sb = 0, size = 1, var = 0;
            for (int64_t i = 0; i < R; i++)
                col[i] = at(&x, i * D + j), cdy[i] = at(&dy, i * D + j), ones[i] = at(&g, j);
            const setup column = {SND_KNORM_LAYER, 1, R, 1e-5, 1, 0, true, false};
            const snd_normspec spec = spec_of(&column, ones, NULL);
            snd_k_norm_fwd(1, SND_F64, &spec, 1, col, cy, &cm, &cr);
            backward(SND_F64, 1, &column, ones, cdy, col, &cm, &cr, NULL, cdx, NULL, NULL);
            const double scale = 1 + fabs(at(&b, j)) + fabs(at(&g, j));
            for (int64_t i = 0; i < R; i++) {
                CHECK_CLOSE((at(&y, i * D + j) - at(&b, j)) / scale, cy[i] / scale, 20 * eps_of(t));
                CHECK_CLOSE(at(&dx, i * D + j) / scale, cdx[i] / scale, 20 * eps_of(t) * (1 + cr));
                sg += cdy[i] * (col[i] - cm) * cr;
                sb += cdy[i];
                size += fabs(cdy[i]) * (1 + fabs((col[i] - cm) * cr));
                var += R > 1 ? (col[i] - cm) * (col[i] - cm) / (double)(R - 1) : 0;
            }
            CHECK_CLOSE(at(&dg, j) / size, sg / size, 8 * eps_of(t));
            CHECK_CLOSE(at(&db, j) / size, sb / size, 8 * eps_of(t));
            if (isfinite(var) && var > 0) CHECK_CLOSE(unb[j] / var, 1, t == SND_F64 ? 1e-11 : 2 * eps_of(t));
        }
        arr_free(&x), arr_free(&dy), arr_free(&g), arr_free(&b), arr_free(&y), arr_free(&dx), arr_free(&dg),
            arr_free(&db);
    }
}

// Many rows of few columns, as images have them: rows are shared, the bits are not.
static void batch_norm_of_tall_shapes(void **state) {
    (void)state;
    static const int64_t shapes[][2] = {{9000, 16}, {30000, 3}, {2100, 64}, {1100, 128}, {700, 70}};
    EACH_TYPE(t) for (int c = 0; c < 5; c++) {
        const int64_t R = shapes[c][0], D = shapes[c][1];
        const bool words = D < 64 || D % 64 == 0;
        arr x = arr_draw(t, R * D, 1, "bx", 1), dy = arr_draw(t, R * D, 0, "bdy", 1), y = arr_make(t, R * D, 0);
        arr dx = arr_make(t, R * D, 0), y2 = arr_make(t, R * D, 0), dx2 = arr_make(t, R * D, 0);
        uint64_t *above = calloc((size_t)(R * D / 64 + 1), sizeof *above);
        double m[128], r[128], m2[128], r2[128];
        assert_non_null(above);
        for (int th = 1; th <= 4; th++) {
            uint64_t *bits = words && th != 2 ? above : NULL; // with a relu behind it, and without
            const double most = snd_k_batch_fwd(th, t, R, D, 1e-5, 0, x.p, NULL, NULL, y.p, m, r, NULL, bits);
            CHECK_SAME(most, snd_k_absmax(1, t, R * D, y.p));
            const double most_dx = snd_k_batch_bwd(th, t, R, D, 1e-5, 0, dy.p, x.p, NULL, m, r, bits, dx.p, NULL, NULL);
            CHECK_SAME(most_dx, snd_k_absmax(1, t, R * D, dx.p));
            if (th == 1) {
                memcpy(m2, m, sizeof m), memcpy(r2, r, sizeof r);
                memcpy(y2.p, y.p, (size_t)(R * D) * elem(t)), memcpy(dx2.p, dx.p, (size_t)(R * D) * elem(t));
            }
            for (int64_t j = 0; j < D; j++) {
                assert_true(m[j] == m2[j] && r[j] == r2[j]);
                long double sum = 0, sq = 0;
                for (int64_t i = 0; i < R; i++) sum += at(&x, i * D + j);
                for (int64_t i = 0; i < R; i++) sq += powl(at(&x, i * D + j) - sum / R, 2);
                const double sd = (double)sqrtl(sq / R + 1e-5L); // f32: 32 rows at a time are summed in the type
                CHECK_CLOSE((m[j] - (double)(sum / R)) / sd, 0, t == SND_F64 ? 1e-13 : eps_of(t) / 4);
                CHECK_CLOSE(r[j] * sd, 1, t == SND_F64 ? 1e-12 : eps_of(t));
            }
            if (!bits == !words) assert_true(same_bits(&y, &y2) && same_bits(&dx, &dx2));
        }
        free(above);
        arr_free(&x), arr_free(&dy), arr_free(&y), arr_free(&dx), arr_free(&y2), arr_free(&dx2);
    }
}

// Columns that lie far from 0 beside their spread, drift from row to row, begin far from the others, or leave the type's
// squares in some rows only. What is computed is that of the numbers as they are stored.
static void batch_norm_of_columns_off_the_middle(void **state) {
    (void)state;
    enum { R = 203, D = 6, KINDS = 6 };
    EACH_ISA(isa) EACH_TYPE(t) for (int kind = 0; kind < KINDS; kind++) {
        arr x = arr_draw(t, R * D, 0, "box", 1), dy = arr_draw(t, R * D, 0, "body", 1), y = arr_make(t, R * D, 0);
        arr dx = arr_make(t, R * D, 0), dg = arr_make(t, D, 0), db = arr_make(t, D, 0);
        for (int64_t i = 0; i < R * D; i++) {
            const double v = at(&x, i), row = (double)(i / D);
            const double columns[KINDS] = {
                3000 + v, v + row, row == 0 ? 1e4 : v, row == 50 ? 1e22 : v, row < 40 ? 0 : v / 1e21, v - 0x1p20};
            put(&x, i, columns[kind]);
            if (kind == 5) put(&dy, i, at(&dy, i) + 500);
        }
        double m[D], r[D];
        snd_k_batch_fwd(1, t, R, D, 0, 0, x.p, NULL, NULL, y.p, m, r, NULL, NULL);
        snd_k_batch_bwd(1, t, R, D, 0, 0, dy.p, x.p, NULL, m, r, NULL, dx.p, dg.p, db.p);
        for (int64_t j = 0; j < D; j++) {
            long double mean = 0, sq = 0, s1 = 0, s2 = 0, size = 0;
            for (int64_t i = 0; i < R; i++) mean += at(&x, i * D + j) / (long double)R;
            for (int64_t i = 0; i < R; i++) sq += powl(at(&x, i * D + j) - mean, 2) / R;
            const long double rstd = 1 / sqrtl(sq);
            const double eps =
                eps_of(t) * (t == SND_F64 ? (double)(1 + fabsl(mean) * rstd) : 1); // the mean is a double
            for (int64_t i = 0; i < R; i++) {
                const long double d = at(&dy, i * D + j), xh = (at(&x, i * D + j) - mean) * rstd;
                s1 += d, s2 += d * xh, size += fabsl(d) * (1 + fabsl(xh));
            }
            for (int64_t i = 0; i < R; i++) {
                const long double xh = (at(&x, i * D + j) - mean) * rstd, d = at(&dy, i * D + j);
                CHECK_CLOSE(at(&y, i * D + j) / (1 + fabsl(xh)), (double)xh / (1 + fabsl(xh)), 4 * eps);
                const double whole = (double)((1 + fabsl(xh)) * rstd),
                             far = kind == 5 ? 500 : 1; // sums of 500 in the type
                CHECK_CLOSE(at(&dx, i * D + j) / whole, (double)((d - s1 / R - xh * s2 / R) * rstd) / whole,
                            8 * far * eps);
            }
            CHECK_CLOSE(at(&dg, j) / (double)size, (double)(s2 / size), 2 * eps);
            CHECK_CLOSE(at(&db, j) / (double)size, (double)(s1 / size), 2 * eps);
        }
        arr_free(&x), arr_free(&dy), arr_free(&y), arr_free(&dx), arr_free(&dg), arr_free(&db);
    }
}

static void batch_norm_of_constant_and_bad_columns(void **state) {
    (void)state;
    EACH_TYPE(t) {
        const int64_t R = 20, D = 5;
        arr x = arr_draw(t, R * D, 0, "bx", 1), dy = arr_draw(t, R * D, 0, "bdy", 1), b = arr_draw(t, D, 0, "bb", 1);
        arr y = arr_make(t, R * D, 0), dx = arr_make(t, R * D, 0);
        double m[5], r[5];
        for (int64_t i = 0; i < R; i++) put(&x, i * D + 1, 0.1), put(&x, i * D + 4, 1e30 / 3);
        put(&x, 7 * D + 3, INFINITY);
        snd_k_batch_fwd(1, t, R, D, 1e-5, 0, x.p, NULL, b.p, y.p, m, r, NULL, NULL);
        snd_k_batch_bwd(1, t, R, D, 1e-5, 0, dy.p, x.p, NULL, m, r, NULL, dx.p, NULL, NULL);
        for (int64_t i = 0; i < R * D; i++) {
            assert_int_equal(isnan(at(&y, i)) != 0, i % D == 3);
            assert_int_equal(isnan(at(&dx, i)) != 0, i % D == 3);
            if (i % D == 1 || i % D == 4) CHECK_SAME(at(&y, i), at(&b, i % D));
        }
        arr_free(&x), arr_free(&dy), arr_free(&b), arr_free(&y), arr_free(&dx);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_length_against_long_double),
        cmocka_unit_test(hostile_scales),
        cmocka_unit_test(offsets_keep_the_spread),
        cmocka_unit_test(long_rows_whose_parts_lie_apart),
        cmocka_unit_test(constant_and_zero_rows_give_beta),
        cmocka_unit_test(the_widest_rows),
        cmocka_unit_test(zero_rows_of_rms_and_unit),
        cmocka_unit_test(bad_rows_become_nan_and_no_others),
        cmocka_unit_test(worked_example),
        cmocka_unit_test(gradients_by_differences),
        cmocka_unit_test(tall_shapes_threads_and_isas_agree_bitwise),
        cmocka_unit_test(backward_in_place_on_dy),
        cmocka_unit_test(the_largest_magnitudes),
        cmocka_unit_test(long_rows_past_the_caches),
        cmocka_unit_test(fused_passes_have_the_bits_of_single_ones),
        cmocka_unit_test(batch_norm_is_layer_norm_of_columns),
        cmocka_unit_test(batch_norm_of_tall_shapes),
        cmocka_unit_test(batch_norm_of_columns_off_the_middle),
        cmocka_unit_test(batch_norm_of_constant_and_bad_columns),
    };
    return cmocka_run_group_tests_name("norm kernels", tests, NULL, reset_hooks);
}
