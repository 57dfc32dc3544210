// Kernels on arrays stored as bf16: bit for bit the f32 loops on the widened numbers, rounded to nearest even once; and
// against references in double, since both could be wrong together. Lengths, misalignments, guards, places that may be shared,
// one to four threads, every instruction set; attention in parts of every size.
#include "kernels_common.h"

// The bf16 number nearest to v, by trying its neighbours; ties to the even one.
static uint16_t nearest(float v) {
    uint32_t u;
    memcpy(&u, &v, sizeof u);
    if (isnan(v)) return (uint16_t)(u >> 16 | 0x40);
    const uint16_t down = (uint16_t)(u >> 16), up = (uint16_t)(down + 1);
    const double far =
        isinf(snd_bf16_to_f32(up)) ? copysign(0x1p128, v) : (double)snd_bf16_to_f32(up); // of the next exponent
    const double below = fabs((double)v - (double)snd_bf16_to_f32(down)), above = fabs(far - (double)v);
    return isinf(v) || below < above || (below == above && down % 2 == 0) ? down : up;
}

// What f32 loops gave, rounded: every element of `half`.
static void check_rounded(const char *what, const arr *half, const arr *wide) {
    for (int64_t i = 0; i < half->n; i++) {
        const uint16_t got = ((const uint16_t *)half->p)[i], want = nearest(((const float *)wide->p)[i]);
        if (got == want || (isnan(at(half, i)) && isnan(at(wide, i)))) continue;
        print_error("%s: element %d of %d is %04x, want %04x, the bf16 next to %.9g\n", what, (int)i, (int)half->n, got,
                    want, at(wide, i));
        fail();
    }
}
static arr widened(const arr *half) {
    arr w = arr_make(SND_F32, half->n, 0);
    for (int64_t i = 0; i < half->n; i++) put(&w, i, at(half, i));
    return w;
}

static void *blocks_for(int th, int64_t D) {
    const size_t bytes = snd_k_bf16_rows_scratch(th, D);
    void *p = snd_aligned_alloc(64, (bytes + 127) / 64 * 64);
    assert_non_null(p);
    memset((char *)p + bytes, POISON, 64);
    return p;
}
static void free_blocks(int th, int64_t D, void *p) {
    const unsigned char *end = (unsigned char *)p + snd_k_bf16_rows_scratch(th, D);
    for (int i = 0; i < 64; i++) assert_int_equal(end[i], POISON);
    snd_free(p);
}

// ---- conversion -------------------------------------------------------------------------------------------------------

static void every_number_there_and_back(void **state) {
    (void)state;
    static const uint32_t low[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
    EACH_ISA(isa) {
        arr half = arr_make(SND_BF16, 65536, 1), wide = arr_make(SND_F32, 65536, 3),
            back = arr_make(SND_BF16, 65536, 2);
        for (int64_t i = 0; i < 65536; i++) ((uint16_t *)half.p)[i] = (uint16_t)i;
        snd_k_bf16_widen(65536, half.p, wide.p);
        for (int64_t i = 0; i < 65536; i++) {
            uint32_t u;
            memcpy(&u, (float *)wide.p + i, sizeof u);
            assert_int_equal(u, (uint32_t)i << 16);
        }
        for (int k = 0; k < 6; k++) {
            for (int64_t i = 0; i < 65536; i++) {
                const uint32_t u = (uint32_t)i << 16 | low[k];
                memcpy((float *)wide.p + i, &u, sizeof u);
            }
            snd_k_bf16_narrow(65536, wide.p, back.p);
            for (int64_t i = 0; i < 65536; i++) {
                assert_int_equal(((uint16_t *)back.p)[i], nearest(((float *)wide.p)[i]));
                assert_int_equal(((uint16_t *)back.p)[i], snd_f32_to_bf16(((float *)wide.p)[i]));
            }
        }
        arr_free(&half), arr_free(&wide), arr_free(&back);
    }
}

static void conversion_of_every_length(void **state) {
    (void)state;
    EACH_ISA(isa)
    for (int64_t n = 0; n <= 2 * 16 + 1; n++)
        for (int shift = 0; shift < 32; shift++) {
            arr x = arr_draw(SND_F32, n, shift % 16, "x", 1), half = arr_make(SND_BF16, n, shift);
            arr wide = arr_make(SND_F32, n, (shift + 5) % 16);
            snd_k_bf16_narrow(n, x.p, half.p);
            check_rounded("narrow", &half, &x);
            snd_k_bf16_widen(n, half.p, wide.p);
            for (int64_t i = 0; i < n; i++) CHECK_SAME(at(&wide, i), at(&half, i));
            arr_free(&x), arr_free(&half), arr_free(&wide);
        }
}

// ---- norms ------------------------------------------------------------------------------------------------------------

typedef struct setup {
    snd_knorm k;
    int64_t R, D;
    double gadd;
    bool gain, bias, plus;
} setup;

enum { X, Y, DZ, PLUS, GAIN, BIAS, OPERANDS };
typedef struct desk {
    arr half[PLUS + 1], in[OPERANDS]; // in: widened, and what is f32 anyway
    arr s, z, z0, ds, dg, db;         // bf16 and, of parameters, f32; z0: of the norm of x alone
    arr fs, fz, fz0, fds, fdg, fdb;   // of the f32 loops
    double *m, *r, *m0, *r0, *fm, *fr;
} desk;

static snd_normspec spec_of(const setup *s, const desk *d) {
    return (snd_normspec){.kind = s->k,
                          .D = s->D,
                          .eps = s->k == SND_KNORM_UNIT ? 1e-12 : 1e-5,
                          .gain0 = 3,
                          .gadd = s->gadd,
                          .g = s->gain ? d->in[GAIN].p : NULL,
                          .b = s->bias ? d->in[BIAS].p : NULL};
}

static desk furnish(const setup *s, int shift) {
    static const char *const names[OPERANDS] = {"x", "y", "dz", "plus", "gain", "bias"};
    const int64_t n = s->R * s->D;
    desk d = {0};
    for (int k = 0; k <= PLUS; k++) {
        d.half[k] = arr_draw(SND_BF16, n, (shift + k) % 32, names[k], 1 + k);
        d.in[k] = widened(&d.half[k]);
    }
    for (int k = GAIN; k <= BIAS; k++) d.in[k] = arr_draw(SND_F32, s->D, shift % 16, names[k], 1);
    arr *const half[] = {&d.s, &d.z, &d.z0, &d.ds}, *const wide[] = {&d.fs, &d.fz, &d.fz0, &d.fds};
    for (int k = 0; k < 4; k++)
        *half[k] = arr_make(SND_BF16, n, (shift + 3 * k) % 32), *wide[k] = arr_make(SND_F32, n, 0);
    arr *const sums[] = {&d.dg, &d.db, &d.fdg, &d.fdb};
    for (int k = 0; k < 4; k++) *sums[k] = arr_make(SND_F32, s->D, shift % 16);
    double **const rows[] = {&d.m, &d.r, &d.m0, &d.r0, &d.fm, &d.fr};
    for (int k = 0; k < 6; k++) *rows[k] = snd_calloc((size_t)s->R + 1, sizeof(double));
    return d;
}
static void clear(desk *d) {
    for (int k = 0; k <= PLUS; k++) arr_free(&d->half[k]);
    for (int k = 0; k < OPERANDS; k++) arr_free(&d->in[k]);
    arr *const all[] = {&d->s,  &d->z,  &d->z0,  &d->ds,  &d->dg,  &d->db,
                        &d->fs, &d->fz, &d->fz0, &d->fds, &d->fdg, &d->fdb};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) arr_free(all[k]);
    double *const rows[] = {d->m, d->r, d->m0, d->r0, d->fm, d->fr};
    for (int k = 0; k < 6; k++) snd_free(rows[k]);
}

static const double FX = 1.7, FY = -0.4;

// Norm, fused sum and norm, and their backward pass, by th threads.
static void run(const setup *s, desk *d, int th) {
    const snd_normspec spec = spec_of(s, d);
    double *sums = snd_calloc(snd_k_norm_bwd_scratch(s->R, s->D) / 8 + 1, 8), top;
    snd_k_norm_fwd(th, SND_BF16, &spec, s->R, d->half[X].p, d->z0.p, d->m0, d->r0);
    snd_k_addnorm_fwd(th, SND_BF16, &spec, s->R, FX, d->half[X].p, FY, d->half[Y].p, d->s.p, d->z.p, d->m, d->r, &top);
    snd_k_norm_bwd(th, SND_BF16, &spec, s->R, d->half[DZ].p, d->s.p, d->m, d->r, s->plus ? d->half[PLUS].p : NULL,
                   d->ds.p, d->dg.p, d->db.p, sums);
    snd_free(sums);
}

// The same by the f32 loops, reading the sum as it was stored.
static void run_f32(const setup *s, desk *d) {
    const snd_normspec spec = spec_of(s, d);
    const int64_t n = s->R * s->D, dim[3] = {1, 1, n}, step[3] = {0, 0, 1};
    double *sums = snd_calloc(snd_k_norm_bwd_scratch(s->R, s->D) / 8 + 1, 8);
    snd_k_norm_fwd(1, SND_F32, &spec, s->R, d->in[X].p, d->fz0.p, d->fm, d->fr);
    for (int64_t i = 0; i < s->R; i++) CHECK_SAME(d->r0[i], d->fr[i]);
    snd_k_binary(1, SND_F32, SND_KBIN_ADD, dim, FX, d->in[X].p, step, FY, d->in[Y].p, step, d->fs.p);
    arr sum = widened(&d->s);
    snd_k_norm_fwd(1, SND_F32, &spec, s->R, sum.p, d->fz.p, d->fm, d->fr);
    for (int64_t i = 0; i < s->R; i++) CHECK_SAME(d->r[i], d->fr[i]), CHECK_SAME(d->m[i], d->fm[i]);
    snd_k_norm_bwd(1, SND_F32, &spec, s->R, d->in[DZ].p, sum.p, d->fm, d->fr, s->plus ? d->in[PLUS].p : NULL, d->fds.p,
                   d->fdg.p, d->fdb.p, sums);
    arr_free(&sum);
    snd_free(sums);
}

// |got - want| within half a step of bf16, at most 2^-8 of its size (2^-134 where it is subnormal), and `slack`.
static void near(const char *what, const setup *s, int64_t row, int64_t j, double got, double want, double slack) {
    const double tol = 0x1p-8 * (fabs(want) + slack) + 0x1p-134 + slack;
    if (fabs(got - want) <= tol) return;
    print_error("%s kind %d R %d D %d row %d col %d: got %.9g want %.9g allowed %.3g\n", what, s->k, (int)s->R,
                (int)s->D, (int)row, (int)j, got, want, tol);
    fail();
}

// The rows of the fused pass in double, from the sum as it is stored. f32 loops are within 16 eps of a row's size.
static void compare(const setup *s, const desk *d) {
    const int64_t D = s->D;
    const double eps = 16 * (double)FLT_EPSILON;
    double *dg = snd_calloc((size_t)D * 4, sizeof *dg), *db = dg + D, *size_g = db + D, *size_b = size_g + D;
    for (int64_t i = 0; i < s->R; i++) {
        const int64_t o = i * D;
        double m = 0, v = 0, p = 0, q = 0, size_y = 0, size_u = 0;
        for (int64_t j = 0; j < D; j++) {
            const double sum = FX * at(&d->half[X], o + j) + FY * at(&d->half[Y], o + j);
            near("s", s, i, j, at(&d->s, o + j), sum,
                 3e-7 * (fabs(at(&d->half[X], o + j)) + fabs(at(&d->half[Y], o + j))));
            m += s->k == SND_KNORM_LAYER ? at(&d->s, o + j) / (double)D : 0;
        }
        for (int64_t j = 0; j < D; j++) v += (at(&d->s, o + j) - m) * (at(&d->s, o + j) - m);
        const bool unit = s->k == SND_KNORM_UNIT;
        const double norm = unit ? sqrt(v) : sqrt(v / (double)D + 1e-5), r = (unit ? 3 : 1) / norm;
        for (int64_t j = 0; j < D; j++) {
            const double gain = s->gain ? at(&d->in[GAIN], j) + s->gadd : 1, xh = (at(&d->s, o + j) - m) * r;
            const double u = at(&d->half[DZ], o + j) * gain, z = xh * gain + (s->bias ? at(&d->in[BIAS], j) : 0);
            size_y = fmax(size_y, fabs(z)), size_u = fmax(size_u, fabs(u));
            p += s->k == SND_KNORM_LAYER ? u / (double)D : 0;
            q += u * (at(&d->s, o + j) - m) / norm / (unit ? 1 : (double)D);
            dg[j] += at(&d->half[DZ], o + j) * xh, size_g[j] += fabs(at(&d->half[DZ], o + j)) * (1 + fabs(xh));
            db[j] += at(&d->half[DZ], o + j), size_b[j] += fabs(at(&d->half[DZ], o + j));
        }
        for (int64_t j = 0; j < D; j++) {
            const double gain = s->gain ? at(&d->in[GAIN], j) + s->gadd : 1, c = (at(&d->s, o + j) - m) / norm;
            const double plus = s->plus ? at(&d->half[PLUS], o + j) : 0;
            const double z = (at(&d->s, o + j) - m) * r * gain + (s->bias ? at(&d->in[BIAS], j) : 0);
            const double ds = r * (at(&d->half[DZ], o + j) * gain - p - c * q) + plus;
            near("z", s, i, j, at(&d->z, o + j), z, eps * size_y);
            near("ds", s, i, j, at(&d->ds, o + j), ds, eps * (size_u * r * (1 + fabs(c)) + fabs(plus)));
        }
    }
    for (int64_t j = 0; j < D; j++) {
        assert_true(fabs(at(&d->dg, j) - dg[j]) <= eps * size_g[j]);
        assert_true(fabs(at(&d->db, j) - db[j]) <= eps * size_b[j]);
    }
    snd_free(dg);
}

static void check_setup(const setup *s, int shift, int th) {
    desk d = furnish(s, shift);
    run(s, &d, th);
    run_f32(s, &d);
    check_rounded("norm", &d.z0, &d.fz0);
    check_rounded("sum", &d.s, &d.fs);
    check_rounded("norm of the sum", &d.z, &d.fz);
    check_rounded("its gradient", &d.ds, &d.fds);
    compare(s, &d);
    clear(&d);
}

static void norms_of_every_length(void **state) {
    (void)state;
    static const int64_t more[] = {63,   64,   65,   511,  513,
                                   1025, 4095, 4096, 4097, 9000}; // sums are kept aside up to 4096
    EACH_ISA(isa)
    for (int k = SND_KNORM_LAYER; k <= SND_KNORM_UNIT; k++)
        for (int64_t c = 1; c <= 2 * 16 + 1 + 10; c++) {
            const int64_t D = c <= 33 ? c : more[c - 34];
            const setup s = {(snd_knorm)k, 3, D, c % 3 == 1, c % 2 == 0, c % 4 < 2, c % 5 < 3};
            check_setup(&s, (int)(c % 32), 1);
        }
}

// Many blocks, many tasks; whatever leaves past the caches.
static void norms_of_many_rows(void **state) {
    (void)state;
    static const int64_t shapes[][2] = {{4200, 1}, {700, 7}, {1100, 65}, {70, 257}, {140, 513}, {9, 5000}};
    EACH_ISA(isa)
    for (int k = SND_KNORM_LAYER; k <= SND_KNORM_RMS; k++)
        for (int c = 0; c < 6; c++) {
            const bool past = (c + k) % 2;
            const setup s = {(snd_knorm)k, shapes[c][0], shapes[c][1], c % 2, true, c % 3 == 0, c < 3};
            snd_k_stream_from(past ? 0 : -1);
            check_setup(&s, c, 3);
        }
    snd_k_stream_from(-1);
}

static void norms_on_one_to_four_threads(void **state) {
    (void)state;
    static const int64_t shapes[][2] = {{1100, 33}, {100, 768}, {20, 4100}};
    for (int c = 0; c < 3; c++) {
        const setup s = {SND_KNORM_LAYER, shapes[c][0], shapes[c][1], 0, true, true, true};
        desk one = furnish(&s, c);
        run(&s, &one, 1);
        for (int th = 2; th <= 4; th++) {
            desk d = furnish(&s, c);
            run(&s, &d, th);
            assert_true(same_bits(&d.s, &one.s) && same_bits(&d.z, &one.z) && same_bits(&d.z0, &one.z0));
            assert_true(same_bits(&d.ds, &one.ds) && same_bits(&d.dg, &one.dg) && same_bits(&d.db, &one.db));
            assert_memory_equal(d.m, one.m, (size_t)s.R * sizeof *d.m);
            assert_memory_equal(d.r, one.r, (size_t)s.R * sizeof *d.r);
            clear(&d);
        }
        clear(&one);
    }
}

// The sum on x or on y, the gradient on dz or on the one that joins; no gradient at all.
static void norms_in_place(void **state) {
    (void)state;
    const setup s = {SND_KNORM_LAYER, 150, 100, 0, true, true, true};
    EACH_ISA(isa)
    for (int past = 0; past < 2; past++)
        for (int on = 0; on < 2; on++) {
            snd_k_stream_from(past ? 0 : -1);
            desk d = furnish(&s, 1), q = furnish(&s, 1);
            run(&s, &d, 2);
            const snd_normspec spec = spec_of(&s, &q);
            double *sums = snd_calloc(snd_k_norm_bwd_scratch(s.R, s.D) / 8 + 1, 8), top;
            arr *to = &q.half[on ? Y : X], *ds = &q.half[on ? PLUS : DZ];
            snd_k_addnorm_fwd(2, SND_BF16, &spec, s.R, FX, q.half[X].p, FY, q.half[Y].p, to->p, q.z.p, q.m, q.r, &top);
            assert_true(same_bits(to, &d.s) && same_bits(&q.z, &d.z));
            snd_k_norm_bwd(2, SND_BF16, &spec, s.R, q.half[DZ].p, to->p, q.m, q.r, q.half[PLUS].p, NULL, q.dg.p, NULL,
                           sums);
            assert_true(same_bits(&q.dg, &d.dg));
            snd_k_norm_bwd(2, SND_BF16, &spec, s.R, q.half[DZ].p, to->p, q.m, q.r, q.half[PLUS].p, ds->p, NULL, NULL,
                           NULL);
            assert_true(same_bits(ds, &d.ds));
            snd_free(sums);
            clear(&d), clear(&q);
        }
    snd_k_stream_from(-1);
}

// A row with NaN or Inf in x gives NaN there and nowhere else, and so does a sum that is out of bf16's range; rows of
// subnormal and of huge numbers are right.
static void bad_and_hostile_rows(void **state) {
    (void)state;
    static const double poison[] = {NAN, INFINITY, -INFINITY, 3.3e38}; // 1.7 times the last is no bf16
    EACH_ISA(isa)
    for (int p = 0; p < 4; p++) {
        const setup s = {SND_KNORM_LAYER, 9, 70, 0, true, true, true};
        desk d = furnish(&s, 0);
        put(&d.half[X], 4 * s.D + 11 * p, poison[p]);
        run(&s, &d, 2);
        for (int64_t i = 0; i < s.R * s.D; i++) {
            const bool bad = i / s.D == 4;
            assert_int_equal(isnan(at(&d.z, i)) != 0, bad);
            assert_int_equal(isnan(at(&d.ds, i)) != 0, bad);
            if (p < 3) assert_int_equal(isnan(at(&d.z0, i)) != 0, bad);
        }
        clear(&d);
    }
    const setup s = {SND_KNORM_LAYER, 3, 40, 0, true, true, false};
    desk d = furnish(&s, 0);
    for (int64_t i = 0; i < s.R * s.D; i++)
        for (int k = X; k <= Y; k++) {
            put(&d.half[k], i, at(&d.half[k], i) * (i < s.D ? 1e-39 : i < 2 * s.D ? 1e36 : 1));
            put(&d.in[k], i, at(&d.half[k], i));
        }
    run(&s, &d, 1);
    run_f32(&s, &d);
    check_rounded("norm", &d.z, &d.fz);
    check_rounded("gradient", &d.ds, &d.fds);
    for (int64_t i = 0; i < s.R * s.D; i++) assert_true(isfinite(at(&d.z, i)));
    clear(&d);
}

// ---- cross-entropy ------------------------------------------------------------------------------------------------------

enum { IGNORE = -100 };

static void losses(int64_t R, int64_t V, double smooth, int shift) {
    arr x = arr_draw(SND_BF16, R * V, shift, "logits", 3), wide = widened(&x),
        dx = arr_make(SND_BF16, R * V, (shift + 1) % 32);
    arr fdx = arr_make(SND_F32, R * V, 0), first = arr_make(SND_BF16, R * V, 0);
    int64_t *target = snd_calloc((size_t)R, sizeof *target), used, some;
    double *lse = snd_calloc((size_t)R, 2 * sizeof *lse), *flse = lse + R, want = 0, value = 0;
    for (int64_t i = 0; i < R; i++) target[i] = i % 4 == 1 ? IGNORE : i * 7 % V;
    const double floss = snd_k_xent_fwd(1, SND_F32, R, V, 1, smooth, wide.p, target, IGNORE, flse, &some);
    snd_k_xent_bwd(1, SND_F32, R, V, 1, smooth, wide.p, target, IGNORE, flse, some, 2.5, fdx.p);
    for (int64_t i = 0; i < R; i++) {
        double sum = 0, mean = 0;
        for (int64_t j = 0; j < V; j++) sum += exp(at(&x, i * V + j)), mean += at(&x, i * V + j) / (double)V;
        if (i % 4 != 1) want += log(sum) - (1 - smooth) * at(&x, i * V + target[i]) - smooth * mean;
    }
    for (int th = 1; th <= 4; th++) {
        void *blocks = blocks_for(th, V);
        memset(lse, 0, (size_t)R * sizeof *lse);
        const double loss = snd_k_bf16_xent_fwd(th, R, V, 1, smooth, x.p, target, IGNORE, lse, &used, blocks);
        if (th == 1) value = loss;
        assert_memory_equal(&loss, &value, sizeof loss);
        assert_int_equal(used, some);
        assert_memory_equal(lse, flse, (size_t)R * sizeof *lse);
        CHECK_REL(loss, floss, 1e-12); // sums in double, by blocks
        CHECK_CLOSE(loss, want / (double)used, 16 * (double)FLT_EPSILON);
        snd_k_bf16_xent_bwd(th, R, V, 1, smooth, x.p, target, IGNORE, lse, used, 2.5, dx.p, blocks);
        check_rounded("dlogits", &dx, &fdx);
        for (int64_t i = 0; i < R; i++)
            for (int64_t j = 0; j < V; j++) {
                double d = exp(at(&x, i * V + j) - lse[i]) - smooth / (double)V - (j == target[i] ? 1 - smooth : 0);
                d *= target[i] == IGNORE ? 0 : 2.5 / (double)used;
                const double slack = 16 * (double)FLT_EPSILON * 2.5 / (double)used;
                assert_true(fabs(at(&dx, i * V + j) - d) <= 0x1p-8 * (fabs(d) + slack) + slack);
            }
        if (th == 2) {
            memcpy(first.p, x.p, (size_t)(R * V) * 2);
            snd_k_bf16_xent_bwd(th, R, V, 1, smooth, first.p, target, IGNORE, lse, used, 2.5, first.p, blocks);
            assert_true(same_bits(&first, &dx));
        }
        free_blocks(th, V, blocks);
    }
    snd_free(target), snd_free(lse);
    arr_free(&x), arr_free(&wide), arr_free(&dx), arr_free(&fdx), arr_free(&first);
}

static void cross_entropy_of_every_length(void **state) {
    (void)state;
    static const int64_t more[] = {64, 1000, 4096, 4097, 9001};
    EACH_ISA(isa)
    for (int64_t c = 1; c <= 2 * 16 + 1 + 5; c++) losses(5, c <= 33 ? c : more[c - 34], c % 2 ? 0 : 0.1, (int)(c % 32));
    losses(600, 130, 0.1, 0);
    losses(300, 1000, 0, 1);
}

static void a_bad_logit_reaches_its_row(void **state) {
    (void)state;
    arr x = arr_draw(SND_BF16, 5 * 40, 0, "logits", 1), dx = arr_make(SND_BF16, 5 * 40, 0);
    const int64_t target[] = {1, 2, 3, IGNORE, 5};
    double lse[5];
    int64_t used;
    void *blocks = blocks_for(2, 40);
    put(&x, 2 * 40 + 7, NAN);
    assert_true(isnan(snd_k_bf16_xent_fwd(2, 5, 40, 1, 0, x.p, target, IGNORE, lse, &used, blocks)));
    snd_k_bf16_xent_bwd(2, 5, 40, 1, 0, x.p, target, IGNORE, lse, used, 1, dx.p, blocks);
    for (int64_t i = 0; i < 5 * 40; i++) {
        assert_int_equal(isnan(at(&dx, i)) != 0, i / 40 == 2);
        if (i / 40 == 3) CHECK_SAME(at(&dx, i), 0);
    }
    free_blocks(2, 40, blocks);
    arr_free(&x), arr_free(&dx);
}

// ---- attention ----------------------------------------------------------------------------------------------------------

typedef struct attention {
    const char *what;
    int64_t B, Tq, Tk, heads, kv_heads, hd, past, front, back;
    double softcap;
    bool lengths;
} attention;
static const int64_t FAR = INT64_C(1) << 60;
static const attention attentions[] = {
    {"causal", 2, 80, 80, 2, 2, 64, 0, 0, FAR, 0, false},
    {"causal, shared heads", 3, 70, 70, 6, 3, 20, 0, 0, FAR, 0, false},
    {"all keys", 1, 70, 130, 3, 1, 32, 0, FAR, FAR, 0, false},
    {"window, softcap", 2, 150, 150, 2, 2, 8, 0, 30, 30, 2, false},
    {"lengths", 5, 66, 100, 4, 2, 7, 34, FAR, FAR, 0, true},
    {"many heads", 9, 3, 3, 16, 16, 2, 0, 0, FAR, 0, false},
    {"one query", 2, 1, 70, 2, 2, 16, 69, 0, FAR, 0, false},
    {"one of each", 1, 1, 1, 1, 1, 1, 0, 0, FAR, 0, false},
};

enum { Q, K, V, DOUT, OUT, DQ, DK, DV, TENSORS };
typedef struct tensors {
    arr a[TENSORS];
    double *lse;
} tensors;

static int64_t count_of(const attention *s, int k) {
    const bool keys = k == K || k == V || k == DK || k == DV;
    return s->B * s->hd * (keys ? s->Tk * s->kv_heads : s->Tq * s->heads);
}
static tensors tensors_make(snd_dtype t, const attention *s, int shift) {
    static const char *const names[] = {"q", "k", "v", "dout"};
    const double size = 1.5 / sqrt(sqrt((double)s->hd)); // scores of about 2
    tensors x = {.lse = snd_calloc((size_t)(s->B * s->heads * s->Tq), sizeof(double))};
    for (int k = 0; k < TENSORS; k++)
        x.a[k] = k <= DOUT ? arr_draw(t, count_of(s, k), (shift + k) % 8, names[k], k <= K ? size : 1)
                           : arr_make(t, count_of(s, k), (shift + k) % 8);
    return x;
}
static void tensors_free(tensors *x) {
    for (int k = 0; k < TENSORS; k++) arr_free(&x->a[k]);
    snd_free(x->lse);
}
static const int64_t some_lengths[] = {100, 3, 64, 1, 77};

static snd_kattn call_of(const attention *s, const tensors *x) {
    return (snd_kattn){.B = s->B,
                       .Tq = s->Tq,
                       .Tk = s->Tk,
                       .heads = s->heads,
                       .kv_heads = s->kv_heads,
                       .hd = s->hd,
                       .past = s->past,
                       .front = s->front < FAR ? s->front : s->Tq + s->Tk,
                       .back = s->back < FAR ? s->back : s->Tq + s->Tk,
                       .scale = 1 / sqrt((double)s->hd),
                       .softcap = s->softcap,
                       .q = x->a[Q].p,
                       .k = x->a[K].p,
                       .v = x->a[V].p,
                       .fq = 1,
                       .fk = 1,
                       .fv = 1,
                       .lengths = s->lengths ? some_lengths : NULL,
                       .careful = true};
}
static snd_kattn_grads grads_of(const tensors *x) {
    return (snd_kattn_grads){.out = x->a[OUT].p,
                             .dout = x->a[DOUT].p,
                             .fout = 1,
                             .fdout = 1,
                             .lse = x->lse,
                             .dq = x->a[DQ].p,
                             .dk = x->a[DK].p,
                             .dv = x->a[DV].p};
}

static void attend(const attention *s, tensors *x, int th) {
    const snd_kattn a = call_of(s, x);
    const snd_kattn_grads g = grads_of(x);
    const size_t fwd = snd_k_bf16_attn_scratch(&a), bwd = snd_k_bf16_attn_bwd_scratch(&a, &g),
                 most = fwd > bwd ? fwd : bwd;
    unsigned char *work = snd_aligned_alloc(64, (most + 127) / 64 * 64);
    assert_non_null(work);
    memset(work + fwd, POISON, 64);
    snd_k_bf16_attn_fwd(th, &a, x->a[OUT].p, x->lse, work);
    for (int i = 0; i < 64; i++) assert_int_equal(work[fwd + (size_t)i], POISON);
    memset(work + bwd, POISON, 64);
    snd_k_bf16_attn_bwd(th, &a, &g, work);
    for (int i = 0; i < 64; i++) assert_int_equal(work[bwd + (size_t)i], POISON);
    snd_free(work);
}

// The kernels of type t on the widened numbers; backward from out and lse of the bf16 ones.
static tensors attend_wide(snd_dtype t, const attention *s, const tensors *x) {
    tensors w = tensors_make(t, s, 0);
    for (int k = 0; k <= DOUT; k++)
        for (int64_t i = 0; i < w.a[k].n; i++) put(&w.a[k], i, at(&x->a[k], i));
    const snd_kattn a = call_of(s, &w);
    const snd_kattn_grads g = grads_of(&w);
    const size_t fwd = snd_k_attn_scratch(t, &a, SND_KATTN_FWD), bwd = snd_k_attn_bwd_scratch(t, &a, &g);
    void *work = snd_aligned_alloc(64, ((fwd > bwd ? fwd : bwd) + 63) / 64 * 64);
    snd_k_attn_fwd(1, t, &a, w.a[OUT].p, w.lse, NULL, work);
    arr out = arr_copy(&w.a[OUT], 0);
    for (int64_t i = 0; i < out.n; i++) put(&w.a[OUT], i, at(&x->a[OUT], i));
    snd_k_attn_bwd(1, t, &a, &g, work);
    memcpy(w.a[OUT].p, out.p, (size_t)out.n * elem(t));
    arr_free(&out);
    for (int k = DQ; k <= DK; k++)
        for (int64_t i = 0; i < w.a[k].n; i++) put(&w.a[k], i, a.scale * at(&w.a[k], i));
    snd_free(work);
    return w;
}

static void compare_attention(const attention *s, const tensors *x) {
    static const char *const names[] = {"q", "k", "v", "dout", "out", "dq", "dk", "dv"};
    tensors f32 = attend_wide(SND_F32, s, x), f64 = attend_wide(SND_F64, s, x);
    check_rounded(s->what, &x->a[OUT], &f32.a[OUT]);
    assert_memory_equal(x->lse, f32.lse, (size_t)(s->B * s->heads * s->Tq) * sizeof *x->lse);
    for (int k = OUT; k < TENSORS; k++) {
        double size = 0; // sums of f32 are off by an eps of their terms' size now and then
        for (int64_t i = 0; i < f64.a[k].n; i++) size = fmax(size, fabs(at(&f64.a[k], i)));
        const double slack = 32 * (double)FLT_EPSILON * size;
        for (int64_t i = 0; i < f64.a[k].n; i++) {
            const double got = at(&x->a[k], i), want = at(&f64.a[k], i), tol = 0x1p-8 * (fabs(want) + slack) + slack;
            if (fabs(got - want) <= tol) continue;
            print_error("%s: %s[%d] is %.9g, want %.9g, allowed %.3g\n", s->what, names[k], (int)i, got, want, tol);
            fail();
        }
    }
    tensors_free(&f32), tensors_free(&f64);
}

// Parts of all heads of several examples, of some heads of one, of one head.
static void attention_in_parts_on_threads(void **state) {
    (void)state;
    static const int64_t parts[] = {-1, 200000, 70000, 0};
    EACH_ISA(isa)
    for (size_t c = 0; c < sizeof attentions / sizeof *attentions; c++)
        for (int p = isa == (int)snd_isa_best() ? 0 : 3; p < 4; p++) {
            const attention *s = &attentions[c];
            tensors one = tensors_make(SND_BF16, s, p);
            snd_k_bf16_part_bytes(parts[p]);
            attend(s, &one, 1);
            compare_attention(s, &one);
            for (int th = p == 3 ? 2 : 4; th <= 4; th++) {
                tensors x = tensors_make(SND_BF16, s, p + th);
                attend(s, &x, th);
                for (int k = OUT; k < TENSORS; k++) assert_true(same_bits(&x.a[k], &one.a[k]));
                assert_memory_equal(x.lse, one.lse, (size_t)(s->B * s->heads * s->Tq) * sizeof *x.lse);
                tensors_free(&x);
            }
            tensors_free(&one);
        }
    snd_k_bf16_part_bytes(-1);
}

// Gradients that are not wanted change no others; memory of a part, not of the batch.
static void attention_of_some_gradients(void **state) {
    (void)state;
    const attention *s = &attentions[1];
    tensors x = tensors_make(SND_BF16, s, 0);
    attend(s, &x, 2);
    for (int skip = DQ; skip <= DV; skip++) {
        tensors y = tensors_make(SND_BF16, s, 0);
        const snd_kattn a = call_of(s, &y);
        snd_kattn_grads g = grads_of(&x);
        void *to[] = {y.a[DQ].p, y.a[DK].p, y.a[DV].p};
        to[skip - DQ] = NULL;
        g.dq = to[0], g.dk = to[1], g.dv = to[2];
        void *work = snd_aligned_alloc(64, (snd_k_bf16_attn_bwd_scratch(&a, &g) + 63) / 64 * 64);
        snd_k_bf16_attn_bwd(2, &a, &g, work);
        for (int k = DQ; k <= DV; k++)
            if (k != skip) assert_true(same_bits(&y.a[k], &x.a[k]));
        snd_free(work);
        tensors_free(&y);
    }
    snd_kattn a = call_of(s, &x), wide = a;
    const snd_kattn_grads g = grads_of(&x);
    a.B = 100000, wide.B = 200000;
    assert_int_equal(snd_k_bf16_attn_scratch(&a), snd_k_bf16_attn_scratch(&wide));
    assert_true(snd_k_bf16_attn_bwd_scratch(&wide, &g) < 400 << 20);
    a.B = 1, a.Tq = a.Tk = 100000, wide = a;
    wide.heads *= 50, wide.kv_heads *= 50; // one head of keys at a time in both
    assert_int_equal(snd_k_bf16_attn_scratch(&a), snd_k_bf16_attn_scratch(&wide));
    tensors_free(&x);
}

// A NaN in a key reaches the queries that read it, in its head and its example.
static void a_bad_key_reaches_those_who_read_it(void **state) {
    (void)state;
    const attention *s = &attentions[0];
    tensors x = tensors_make(SND_BF16, s, 0);
    const int64_t row = s->heads * s->hd;
    put(&x.a[V], (s->Tk + 50) * row + s->hd + 3, NAN); // example 1, key 50, head 1
    attend(s, &x, 2);
    for (int64_t i = 0; i < x.a[OUT].n; i++) {
        const bool reads = i / row >= s->Tq + 50 && i % row == s->hd + 3;
        assert_int_equal(isnan(at(&x.a[OUT], i)) != 0, reads);
    }
    tensors_free(&x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number_there_and_back),  cmocka_unit_test(conversion_of_every_length),
        cmocka_unit_test(norms_of_every_length),        cmocka_unit_test(norms_of_many_rows),
        cmocka_unit_test(norms_on_one_to_four_threads), cmocka_unit_test(norms_in_place),
        cmocka_unit_test(bad_and_hostile_rows),         cmocka_unit_test(cross_entropy_of_every_length),
        cmocka_unit_test(a_bad_logit_reaches_its_row),  cmocka_unit_test(attention_in_parts_on_threads),
        cmocka_unit_test(attention_of_some_gradients),  cmocka_unit_test(a_bad_key_reaches_those_who_read_it),
    };
    return cmocka_run_group_tests_name("kernels on bf16", tests, NULL, reset_hooks);
}
