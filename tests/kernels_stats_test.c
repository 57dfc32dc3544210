// Statistics: against plain definitions in long double, hostile values, threads and instruction sets bitwise equal.
#include "kernels_common.h"

typedef struct plain {
    double sum, sumsq, sum4, rowmean2, bvar, cos, pearson, absmax;
} plain;

static long double pair_mean(const arr *x, int64_t R, int64_t D, bool centred) {
    long double total = 0;
    for (int64_t a = 0; a < R; a++)
        for (int64_t b = 0; b < R; b++) {
            long double ma = 0, mb = 0, ab = 0, aa = 0, bb = 0;
            if (a == b) continue;
            for (int64_t j = 0; centred && j < D; j++)
                ma += at(x, a * D + j) / (long double)D, mb += at(x, b * D + j) / (long double)D;
            for (int64_t j = 0; j < D; j++) {
                const long double u = at(x, a * D + j) - ma, v = at(x, b * D + j) - mb;
                ab += u * v, aa += u * u, bb += v * v;
            }
            total += ab / sqrtl(aa) / sqrtl(bb);
        }
    return total / (long double)(R * (R - 1));
}

static plain definition(const arr *x, int64_t R, int64_t D) {
    long double s = 0, s2 = 0, s4 = 0, rm = 0, bv = 0;
    double top = 0;
    for (int64_t r = 0; r < R; r++) {
        long double m = 0;
        for (int64_t j = 0; j < D; j++) {
            const long double v = at(x, r * D + j);
            m += v, s2 += v * v, s4 += v * v * v * v;
            top = fmax(top, fabs((double)v));
        }
        s += m;
        rm += (m / D) * (m / D);
    }
    for (int64_t j = 0; j < D; j++) {
        long double m = 0, v = 0;
        for (int64_t r = 0; r < R; r++) m += at(x, r * D + j) / (long double)R;
        for (int64_t r = 0; r < R; r++) v += (at(x, r * D + j) - m) * (at(x, r * D + j) - m);
        bv += v / R / D;
    }
    return (plain){(double)s,
                   (double)s2,
                   (double)s4,
                   (double)rm,
                   (double)bv,
                   R > 1 ? (double)pair_mean(x, R, D, false) : NAN,
                   R > 1 && D > 1 ? (double)pair_mean(x, R, D, true) : NAN,
                   top};
}

static void moments_match_their_definitions(void **state) {
    (void)state;
    static const int64_t shapes[][2] = {{1, 1},   {1, 40},  {2, 1},   {2, 2},   {5, 33},
                                        {17, 64}, {3, 700}, {40, 65}, {64, 256}};
    EACH_ISA(isa) EACH_TYPE(t) for (int c = 0; c < 9; c++) for (int offset = 0; offset < 2; offset++) {
        const int64_t R = shapes[c][0], D = shapes[c][1];
        arr x = arr_draw(t, R * D, 1, "m", 1);
        for (int64_t i = 0; offset && i < R * D; i++) put(&x, i, 1e3 + at(&x, i));
        const plain p = definition(&x, R, D);
        snd_kmoments m;
        snd_k_moments(1, t, R, D, x.p, SND_KM_ALL, &m);
        const double n = (double)(R * D), size = offset ? 1e3 : 1;
        CHECK_CLOSE(m.sum / n / size, p.sum / n / size, 1e-15);
        CHECK_REL(m.sumsq, p.sumsq, 1e-14);
        CHECK_REL(m.sum4, p.sum4, 1e-14);
        CHECK_REL(m.sum_rowmean2, p.rowmean2, 1e-12 / size);
        CHECK_CLOSE(m.bvar, p.bvar, 1e-13);
        if (R < 2)
            assert_true(isnan(m.cos) && isnan(m.pearson));
        else
            CHECK_CLOSE(m.cos, p.cos, 1e-14);
        if (D < 2)
            assert_true(isnan(m.pearson));
        else if (R > 1)
            CHECK_CLOSE(m.pearson, p.pearson, 1e-10);
        CHECK_SAME(m.absmax, p.absmax);
        CHECK_SAME(fabs(at(&x, m.at)), m.absmax);
        assert_int_equal(m.nonfinite, 0);
        arr_free(&x);
    }
}

// Each sum has at most R D roundings of its own size; that about the row's mean once more D of them by the mean.
static void row_sums_match_their_definitions(void **state) {
    (void)state;
    static const int64_t shapes[][2] = {{1, 1},   {1, 15}, {2, 16},  {2, 17},   {5, 33},
                                        {3, 700}, {9, 64}, {40, 65}, {64, 768}, {300, 257}};
    static const double offsets[] = {0, 1e3, 3e6};
    EACH_TYPE(t) for (int c = 0; c < 10; c++) for (int o = 0; o < 3; o++) {
        const int64_t R = shapes[c][0], D = shapes[c][1];
        arr x = arr_draw(t, R * D, 1, "m", 1);
        long double sum = 0, sq = 0, dev = 0, size = 0;
        for (int64_t i = 0; i < R * D; i++) put(&x, i, offsets[o] + at(&x, i));
        for (int64_t r = 0; r < R; r++) {
            long double mean = 0;
            for (int64_t j = 0; j < D; j++) mean += at(&x, r * D + j) / (long double)D;
            for (int64_t j = 0; j < D; j++) {
                const long double v = at(&x, r * D + j);
                sum += v, sq += v * v, dev += (v - mean) * (v - mean), size += fabsl(v);
            }
        }
        double first[3] = {0, 0, 0}, s[3];
        EACH_ISA(isa) for (int th = 1; th <= 4; th++) {
            snd_k_row_sums(th, t, R, D, x.p, s);
            const double eps = DBL_EPSILON * (double)(R * D + 4);
            assert_true(fabs(s[0] - (double)sum) <= eps * (double)size);
            assert_true(fabs(s[1] - (double)sq) <= eps * (double)sq);
            // twenty bits may go where the squares' sums are subtracted
            if (!(fabs(s[2] - (double)dev) <= 0x1p20 * eps * (double)dev + 1e-300))
                fail_msg("%d x %d about %g: %.17g, want %.17g", (int)R, (int)D, offsets[o], s[2], (double)dev);
            if (isa == SND_ISA_BASE && th == 1) memcpy(first, s, sizeof s);
            assert_memory_equal(first, s, sizeof s);
        }
        arr_free(&x);
    }
}

// Small whole numbers in rows of a power of two are summed without rounding; what is not finite shows.
static void row_sums_are_exact_where_they_can_be(void **state) {
    (void)state;
    EACH_ISA(isa) EACH_TYPE(t) {
        const int64_t R = 130, D = 512;
        arr x = arr_make(t, R * D, 3);
        double want[3] = {0, 0, 0}, s[3];
        for (int64_t i = 0; i < R * D; i++) { // half of a row is k + 2, the other half k - 2
            const double v = (double)(i / D) + (i % 2 ? 2 : -2);
            put(&x, i, v);
            want[0] += v, want[1] += v * v, want[2] += 4;
        }
        snd_k_row_sums(2, t, R, D, x.p, s);
        for (int k = 0; k < 3; k++) CHECK_SAME(s[k], want[k]);
        for (int bad = 0; bad < 2; bad++) {
            put(&x, 7 * D + 500, bad ? INFINITY : NAN);
            snd_k_row_sums(2, t, R, D, x.p, s);
            for (int k = 0; k < 3; k++) assert_true(!isfinite(s[k]));
        }
        arr_free(&x);
    }
    double none[3] = {1, 1, 1};
    snd_k_row_sums(1, SND_F32, 0, 7, NULL, none);
    for (int k = 0; k < 3; k++) CHECK_SAME(none[k], 0.0);
}

static void only_what_is_asked(void **state) {
    (void)state;
    arr x = arr_draw(SND_F32, 6 * 9, 0, "m", 1);
    snd_kmoments all, some;
    snd_k_moments(1, SND_F32, 6, 9, x.p, SND_KM_ALL, &all);
    snd_k_moments(1, SND_F32, 6, 9, x.p, SND_KM_BASIC, &some);
    CHECK_SAME(some.sumsq, all.sumsq);
    snd_k_moments(1, SND_F32, 6, 9, x.p, SND_KM_COS | SND_KM_BVAR, &some);
    CHECK_SAME(some.cos, all.cos);
    CHECK_SAME(some.bvar, all.bvar);
    arr_free(&x);
}

static void hostile_values(void **state) {
    (void)state;
    EACH_ISA(isa) EACH_TYPE(t) {
        const int64_t R = 9, D = 50;
        arr x = arr_draw(t, R * D, 0, "m", 1);
        snd_kmoments m;
        put(&x, 77, -1e30), put(&x, 99, 1e-42), put(&x, 100, 0);
        snd_k_moments(2, t, R, D, x.p, SND_KM_ALL, &m);
        assert_int_equal(m.at, 77);
        CHECK_REL(m.absmax, 1e30, 1e-7);
        CHECK_REL(m.absmin, 1e-42, 1e-3);
        put(&x, 123, NAN), put(&x, 200, INFINITY), put(&x, 300, NAN);
        memset((char *)x.p + 300 * elem(t), 0xff, elem(t)); // a NaN of more digits must not win over the first
        snd_k_moments(2, t, R, D, x.p, SND_KM_ALL, &m);
        assert_int_equal(m.nonfinite, 3);
        assert_int_equal(m.at, 123);
        assert_true(isnan(m.absmax) && isnan(m.sum) && isnan(m.sumsq) && isnan(m.cos) && isnan(m.bvar));
        put(&x, 123, 1), put(&x, 300, -INFINITY);
        snd_k_moments(1, t, R, D, x.p, SND_KM_BASIC, &m);
        assert_int_equal(m.nonfinite, 2);
        assert_int_equal(m.at, 200);
        CHECK_SAME(m.absmax, INFINITY);
        arr_free(&x);

        // cosines do not care for the rows' scales, however far apart
        arr y = arr_draw(t, R * D, 0, "c", 1);
        snd_kmoments a, b;
        snd_k_moments(1, t, R, D, y.p, SND_KM_COS, &a);
        const double factor[3] = {t == SND_F64 ? 0x1p900 : 0x1p100, t == SND_F64 ? 0x1p-900 : 0x1p-100, 1};
        for (int64_t i = 0; i < R * D; i++) put(&y, i, at(&y, i) * factor[i / D % 3]);
        snd_k_moments(1, t, R, D, y.p, SND_KM_COS, &b);
        CHECK_CLOSE(b.cos, a.cos, 1e-14);
        CHECK_CLOSE(b.pearson, a.pearson, 1e-14);
        for (int64_t j = 0; j < D; j++) put(&y, 2 * D + j, 4);
        snd_k_moments(1, t, R, D, y.p, SND_KM_COS, &b);
        assert_true(isfinite(b.cos) && isnan(b.pearson)); // a constant row has no correlation
        for (int64_t j = 0; j < D; j++) put(&y, 2 * D + j, 0);
        snd_k_moments(1, t, R, D, y.p, SND_KM_ALL, &b);
        assert_true(isnan(b.cos) && isnan(b.pearson) && isfinite(b.sum));
        for (int64_t i = 0; i < R * D; i++) put(&y, i, i % D == 3 ? -1 : 2);
        snd_k_moments(1, t, R, D, y.p, SND_KM_COS, &b);
        CHECK_CLOSE(b.cos, 1, 1e-14); // equal rows
        CHECK_CLOSE(b.pearson, 1, 1e-14);
        arr_free(&y);
    }
}

// Also wider and taller than what the cosine's stack buffers hold.
static void threads_and_isas_agree_bitwise(void **state) {
    (void)state;
    static const int64_t shapes[][2] = {{64, 256}, {300, 300}, {5000, 10}, {6, 9000}, {2100, 4100}};
    EACH_TYPE(t)
    for (int c = 0; c < (t == SND_F32 ? 5 : 4); c++) {
        const int64_t R = shapes[c][0], D = shapes[c][1];
        arr x = arr_make(t, R * D, 0);
        snd_k_fill_normal(2, t, snd_key_make(1, "big"), 0, R * D, 1, x.p);
        snd_kmoments one, m;
        snd_k_limit_isa(SND_ISA_BASE);
        snd_k_moments(1, t, R, D, x.p, SND_KM_ALL, &one);
        double cos, ratio, cos1, ratio1;
        snd_k_rowcos(1, t, R / 2, D, x.p, snd_at(x.p, R / 2 * D, elem(t)), &cos1, &ratio1);
        EACH_ISA(isa)
        for (int th = 1; th <= (c == 4 ? 2 : 4); th++) {
            memset(&m, 0, sizeof m);
            snd_k_moments(th, t, R, D, x.p, SND_KM_ALL, &m);
            assert_memory_equal(&m, &one, sizeof m);
            snd_k_rowcos(th, t, R / 2, D, x.p, snd_at(x.p, R / 2 * D, elem(t)), &cos, &ratio);
            CHECK_SAME(cos, cos1);
            CHECK_SAME(ratio, ratio1);
        }
        // a power of two on the last rows changes no bit: each row has its own norm, in every piece of a wide and tall array
        for (int64_t i = (R - R / 40) * D; i < R * D; i++) put(&x, i, at(&x, i) * 1024);
        snd_k_moments(1, t, R, D, x.p, SND_KM_COS, &m);
        CHECK_SAME(m.cos, one.cos);
        CHECK_SAME(m.pearson, one.pearson);
        // the rows are independent: |mean cosine| <= 5/sqrt(D R (R-1)/2)
        assert_true(fabs(one.cos) <= 5 / sqrt((double)D * (double)R * (double)(R - 1) / 2));
        arr_free(&x);
    }
}

static void cosines_of_corresponding_rows(void **state) {
    (void)state;
    EACH_ISA(isa) EACH_TYPE(t) for (int64_t D = 1; D < 300; D += D < 34 ? 1 : 71) {
        const int64_t R = 6;
        arr x = arr_draw(t, R * D, 0, "x", 1), y = arr_draw(t, R * D, 1, "y", 1);
        long double wc = 0, wr = 0;
        for (int64_t j = 0; j < D; j++) put(&x, j, ldexp(at(&x, j), t == SND_F64 ? 1000 : 120));
        for (int64_t r = 0; r < R; r++) {
            long double xy = 0, xx = 0, yy = 0;
            for (int64_t j = 0; j < D; j++) {
                const long double u = at(&x, r * D + j), v = at(&y, r * D + j);
                xy += u * v, xx += u * u, yy += v * v;
            }
            wc += xy / sqrtl(xx) / sqrtl(yy) / R, wr += sqrtl(xx) / sqrtl(yy) / R;
        }
        double cos, ratio;
        snd_k_rowcos(2, t, R, D, x.p, y.p, &cos, &ratio);
        CHECK_CLOSE(cos, (double)wc, 1e-14);
        CHECK_REL(ratio, (double)wr, 1e-14);
        for (int64_t j = 0; j < D; j++) put(&y, j, 0);
        snd_k_rowcos(2, t, R, D, x.p, y.p, &cos, &ratio);
        assert_true(isnan(cos));
        arr_free(&x), arr_free(&y);
    }
}

// Mean over groups of `n` rows, `step` rows apart between groups and `ld` within, of pair_mean.
static double group_mean(const arr *x, int64_t groups, int64_t step, int64_t n, int64_t ld, int64_t D, bool centred) {
    long double total = 0;
    for (int64_t g = 0; g < groups; g++) {
        arr rows = arr_make(x->t, n * D, 0);
        for (int64_t i = 0; i < n * D; i++) put(&rows, i, at(x, (g * step + i / D * ld) * D + i % D));
        total += pair_mean(&rows, n, D, centred);
        arr_free(&rows);
    }
    return (double)(total / (long double)groups);
}

// Mean square of the token means, and of what differs from them.
static void split(const arr *x, int64_t B, int64_t T, int64_t D, double *mean_sq, double *dev_sq) {
    long double m2 = 0, d2 = 0;
    for (int64_t b = 0; b < B; b++)
        for (int64_t j = 0; j < D; j++) {
            long double m = 0;
            for (int64_t t = 0; t < T; t++) m += at(x, (b * T + t) * D + j) / (long double)T;
            m2 += m * m;
            for (int64_t t = 0; t < T; t++) d2 += (at(x, (b * T + t) * D + j) - m) * (at(x, (b * T + t) * D + j) - m);
        }
    *mean_sq = (double)(m2 / (long double)(B * D));
    *dev_sq = (double)(d2 / (long double)(B * T * D));
}

static void tokens_match_their_definitions(void **state) {
    (void)state;
    static const int64_t shapes[][3] = {{1, 1, 5},  {1, 7, 33},  {4, 1, 20},  {4, 5, 2},
                                        {3, 9, 70}, {6, 4, 130}, {2, 3, 9001}};
    EACH_ISA(isa) EACH_TYPE(t) for (int c = 0; c < 7; c++) for (int offset = 0; offset < 2; offset++) {
        const int64_t B = shapes[c][0], T = shapes[c][1], D = shapes[c][2];
        arr x = arr_draw(t, B * T * D, 1, "tokens", 1);
        // nearly equal tokens: what differs between them must not drown in what they share
        for (int64_t i = 0; offset && i < B * T * D; i++) put(&x, i, at(&x, i) + 1e3 * (double)(1 + i / (T * D)));
        snd_ktokens k;
        snd_k_tokens(1, t, B, T, D, x.p, SND_KT_COS | SND_KT_TOKCOS | SND_KT_SPLIT, &k);
        if (B < 2)
            assert_true(isnan(k.cos) && isnan(k.pearson));
        else {
            CHECK_CLOSE(k.cos, group_mean(&x, T, 1, B, T, D, false), 1e-14);
            CHECK_CLOSE(k.pearson, group_mean(&x, T, 1, B, T, D, true), 1e-9);
        }
        if (T < 2)
            assert_true(isnan(k.tokcos) && isnan(k.tokpearson));
        else {
            CHECK_CLOSE(k.tokcos, group_mean(&x, B, T, T, 1, D, false), 1e-14);
            CHECK_CLOSE(k.tokpearson, group_mean(&x, B, T, T, 1, D, true), 1e-9);
        }
        double mean_sq, dev_sq;
        split(&x, B, T, D, &mean_sq, &dev_sq);
        CHECK_REL(k.mean_sq, mean_sq, 1e-12);
        CHECK_REL(k.dev_sq + 1e-300, dev_sq + 1e-300, 1e-9);
        snd_k_tokens(1, t, B, T, D, x.p, SND_KT_SPLIT, &k);
        assert_true(isnan(k.cos) && isnan(k.tokcos));
        CHECK_REL(k.mean_sq, mean_sq, 1e-12);
        arr_free(&x);
    }
}

// Groups of every size, larger than what one task takes among them; a row that is lost or zero.
static void tokens_of_any_shape_and_thread(void **state) {
    (void)state;
    static const int64_t shapes[][3] = {{4, 64, 48}, {1, 600, 300}, {70, 3, 100}, {2, 2100, 70}, {3, 17, 44000}};
    EACH_TYPE(t)
    for (int c = 0; c < 5; c++) {
        const int64_t B = shapes[c][0], T = shapes[c][1], D = shapes[c][2];
        const int all = SND_KT_COS | SND_KT_TOKCOS | SND_KT_SPLIT;
        arr x = arr_make(t, B * T * D, 0);
        snd_k_fill_normal(2, t, snd_key_make(1, "tokens"), 0, B * T * D, 1, x.p);
        snd_ktokens one, k;
        snd_k_limit_isa(SND_ISA_BASE);
        snd_k_tokens(1, t, B, T, D, x.p, all, &one);
        EACH_ISA(isa)
        for (int th = 1; th <= 3; th++) {
            memset(&k, 0, sizeof k);
            snd_k_tokens(th, t, B, T, D, x.p, all, &k);
            CHECK_SAME(k.tokcos, one.tokcos);
            CHECK_SAME(k.mean_sq, one.mean_sq);
            CHECK_SAME(k.dev_sq, one.dev_sq);
            if (B > 1) CHECK_SAME(k.cos, one.cos);
        }
        for (int64_t j = 0; j < D; j++) put(&x, (T + 1) % (B * T) * D + j, 0);
        snd_k_tokens(2, t, B, T, D, x.p, all, &k);
        assert_true(isnan(k.tokcos) && (B == 1 || isnan(k.cos)) && isfinite(k.dev_sq));
        put(&x, 0, NAN);
        snd_k_tokens(2, t, B, T, D, x.p, all, &k);
        assert_true(isnan(k.tokcos) && isnan(k.mean_sq) && isnan(k.dev_sq));
        arr_free(&x);
    }
}

static double rank_of(snd_dtype t, int64_t R, int64_t D, const arr *x) {
    double *scratch = snd_malloc((size_t)(R * D + R * R + 4 * R) * sizeof *scratch);
    const double r = snd_k_effective_rank(2, t, R, D, x->p, scratch);
    snd_free(scratch);
    return r;
}

static void effective_ranks(void **state) {
    (void)state;
    EACH_TYPE(t) {
        // k orthogonal directions of equal weight around an offset: rank k
        for (int k = 1; k <= 6; k++)
            for (int wide = 0; wide < 2; wide++) {
                const int64_t R = 2 * k, D = wide ? 40 : k + 1;
                arr x = arr_make(t, R * D, 0);
                for (int64_t i = 0; i < R * D; i++) put(&x, i, 7 + (i % D == i / D / 2 ? (i / D % 2 ? 3 : -3) : 0));
                CHECK_CLOSE(rank_of(t, R, D, &x), k, 1e-12);
                arr_free(&x);
            }
        // two directions with variances 9 to 1: exp of the entropy of (0.9, 0.1)
        arr x = arr_make(t, 4 * 2, 0);
        const double v[8] = {3, 0, -3, 0, 0, 1, 0, -1};
        for (int i = 0; i < 8; i++) put(&x, i, v[i]);
        CHECK_CLOSE(rank_of(t, 4, 2, &x), exp(-0.9 * log(0.9) - 0.1 * log(0.1)), 1e-12);
        // scale and rotation change nothing; rows far beyond f32's squares
        for (int i = 0; i < 8; i++) put(&x, i, v[i] * (t == SND_F64 ? 1e200 : 1e30));
        CHECK_CLOSE(rank_of(t, 4, 2, &x), exp(-0.9 * log(0.9) - 0.1 * log(0.1)), 1e-6);
        for (int i = 0; i < 8; i++) put(&x, i, 1);
        assert_true(isnan(rank_of(t, 4, 2, &x)));
        put(&x, 3, NAN);
        assert_true(isnan(rank_of(t, 4, 2, &x)));
        arr_free(&x);
        // random rows: sum p = 1, so the rank is below min(R-1, D) and, for R << D, near it
        arr y = arr_draw(t, 60 * 3000, 0, "rank", 1);
        const double r = rank_of(t, 60, 3000, &y);
        assert_true(r > 57 && r < 59);
        arr_free(&y);
    }
}

static void underflow_shares(void **state) {
    (void)state;
    EACH_ISA(isa) EACH_TYPE(t) {
        const double v[8] = {0, 1, 0x1p-24, 0x1p-25, -0x1.1p-25, 0x1p-26, -0x1p-60, NAN};
        arr x = arr_make(t, 8, 0);
        for (int i = 0; i < 8; i++) put(&x, i, v[i]);
        CHECK_SAME(snd_k_underflow_share(1, t, 8, x.p, 0, SND_F16), 3.0 / 8);
        CHECK_SAME(snd_k_underflow_share(1, t, 8, x.p, 1, SND_F16), 2.0 / 8);
        CHECK_SAME(snd_k_underflow_share(1, t, 8, x.p, -100, SND_F16), 6.0 / 8);
        CHECK_SAME(snd_k_underflow_share(1, t, 8, x.p, 0, SND_BF16), 0);
        CHECK_SAME(snd_k_underflow_share(1, t, 8, x.p, -80, SND_BF16), 1.0 / 8);
        arr_free(&x);
        arr y = arr_draw(t, 100000, 1, "u", 0x1p-25);
        const double share = snd_k_underflow_share(1, t, 100000, y.p, 0, SND_F16);
        for (int th = 2; th < 5; th++) CHECK_SAME(snd_k_underflow_share(th, t, 100000, y.p, 0, SND_F16), share);
        CHECK_CLOSE(share, 0.6827, 0.01); // |z| < 1
        arr_free(&y);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(moments_match_their_definitions, reset_hooks),
        cmocka_unit_test(row_sums_match_their_definitions),
        cmocka_unit_test(row_sums_are_exact_where_they_can_be),
        cmocka_unit_test(only_what_is_asked),
        cmocka_unit_test_teardown(hostile_values, reset_hooks),
        cmocka_unit_test_teardown(threads_and_isas_agree_bitwise, reset_hooks),
        cmocka_unit_test_teardown(cosines_of_corresponding_rows, reset_hooks),
        cmocka_unit_test_teardown(tokens_match_their_definitions, reset_hooks),
        cmocka_unit_test_teardown(tokens_of_any_shape_and_thread, reset_hooks),
        cmocka_unit_test(effective_ranks),
        cmocka_unit_test_teardown(underflow_shares, reset_hooks),
    };
    return cmocka_run_group_tests_name("statistics", tests, NULL, reset_hooks);
}
