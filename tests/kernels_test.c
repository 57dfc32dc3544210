// Elementwise and row kernels: plain definitions, broadcasting, in place, threads and instruction sets bitwise equal.
#include "kernels_common.h"

static double binary(snd_dtype t, snd_kbin op, double a, double x, double b, double y) {
    if (t == SND_F32) {
        const float fx = (float)a * (float)x, fy = (float)b * (float)y;
        switch (op) {
        case SND_KBIN_ADD: return (double)(fx + fy);
        case SND_KBIN_MUL: return (double)(fx * (float)y);
        case SND_KBIN_DIV: return (double)(fx / (float)y);
        case SND_KBIN_MIN: return (double)(fx < fy ? fx : fy);
        default: return (double)(fx > fy ? fx : fy);
        }
    }
    const double fx = a * x, fy = b * y;
    return op == SND_KBIN_ADD   ? fx + fy
           : op == SND_KBIN_MUL ? fx * y
           : op == SND_KBIN_DIV ? fx / y
           : op == SND_KBIN_MIN ? fmin(fx, fy)
                                : fmax(fx, fy);
}

// bits of `pattern`: which dimensions the operand has; the others are broadcast.
static int64_t strides(const int64_t dim[3], int pattern, int64_t s[3]) {
    int64_t n = 1;
    for (int d = 2; d >= 0; d--) {
        s[d] = pattern >> d & 1 ? n : 0;
        if (pattern >> d & 1) n *= dim[d];
    }
    return n;
}

static void binary_of_every_broadcast(void **state) {
    (void)state;
    static const int64_t dims[][3] = {{1, 1, 1},  {2, 3, 5},    {1, 7, 33},    {4, 1, 17},
                                      {3, 66, 1}, {2, 2, 1030}, {1, 1, 70000}, {0, 3, 4}};
    EACH_ISA(isa)
    EACH_TYPE(t)
    for (int d = 0; d < 8; d++)
        for (int px = 0; px < 8; px++)
            for (int py = 0; py < 8; py += d == 6 ? 7 : 1)
                for (int op = SND_KBIN_ADD; op <= SND_KBIN_MAX; op++) {
                    const int64_t *dim = dims[d], n = dim[0] * dim[1] * dim[2];
                    if (d == 6 && px % 4 != 0) continue;
                    int64_t sx[3], sy[3];
                    const int64_t nx = strides(dim, px, sx), ny = strides(dim, py, sy);
                    arr x = arr_draw(t, nx, px, "bx", 1), y = arr_draw(t, ny, 1, "by", 1), out = arr_make(t, n, py);
                    const double top = snd_k_binary(2, t, (snd_kbin)op, dim, 1.5, x.p, sx, -0.5, y.p, sy, out.p);
                    double want_top = 0;
                    for (int64_t i = 0; i < n; i++) {
                        const int64_t i2 = i % dim[2], i1 = i / dim[2] % dim[1], i0 = i / dim[2] / dim[1];
                        const double want = binary(t, (snd_kbin)op, 1.5, at(&x, i0 * sx[0] + i1 * sx[1] + i2 * sx[2]),
                                                   -0.5, at(&y, i0 * sy[0] + i1 * sy[1] + i2 * sy[2]));
                        CHECK_SAME(at(&out, i), want);
                        want_top = fmax(want_top, fabs(want));
                    }
                    CHECK_SAME(top, want_top);
                    arr_free(&x), arr_free(&y), arr_free(&out);
                }
}

static void binary_in_place_and_nan(void **state) {
    (void)state;
    EACH_ISA(isa) EACH_TYPE(t) for (int64_t n = 0; n < 70; n++) {
        const int64_t dim[3] = {1, 1, n}, s[3] = {0, 0, 1};
        arr x = arr_draw(t, n, 0, "x", 1), y = arr_draw(t, n, 2, "y", 1), out = arr_make(t, n, 1);
        snd_k_binary(1, t, SND_KBIN_ADD, dim, 1, x.p, s, 2, y.p, s, out.p);
        arr a = arr_copy(&x, 3), b = arr_copy(&y, 0);
        snd_k_binary(1, t, SND_KBIN_ADD, dim, 1, a.p, s, 2, y.p, s, a.p);
        snd_k_binary(1, t, SND_KBIN_ADD, dim, 1, x.p, s, 2, b.p, s, b.p);
        assert_true(same_bits(&a, &out) && same_bits(&b, &out));
        if (n) {
            put(&x, n / 2, NAN);
            for (int op = SND_KBIN_ADD; op <= SND_KBIN_MAX; op++)
                for (int swap = 0; swap < 2; swap++) {
                    assert_true(isnan(
                        snd_k_binary(1, t, (snd_kbin)op, dim, 1, swap ? y.p : x.p, s, 1, swap ? x.p : y.p, s, out.p)));
                    for (int64_t i = 0; i < n; i++) assert_int_equal(isnan(at(&out, i)) != 0, i == n / 2);
                }
            put(&x, n / 2, -INFINITY);
            CHECK_SAME(snd_k_affine(1, t, n, 2, x.p, 1, out.p), INFINITY);
            assert_true(isnan(snd_k_affine(1, t, n, 0, x.p, 1, out.p)));
            CHECK_SAME(snd_k_absmax(2, t, n, x.p), INFINITY);
        }
        arr_free(&x), arr_free(&y), arr_free(&out), arr_free(&a), arr_free(&b);
    }
}

static void affine_and_absmax(void **state) {
    (void)state;
    EACH_ISA(isa) EACH_TYPE(t) for (int64_t n = 0; n < 100000; n += n < 70 ? 1 : 33331) {
        arr x = arr_draw(t, n, (int)(n % 16), "x", 3);
        double top = 0, top_x = 0;
        for (int64_t i = 0; i < n; i++) {
            const double v = t == SND_F64 ? -2 * at(&x, i) + 0.25 : (double)(-2.0f * (float)at(&x, i) + 0.25f);
            top = fmax(top, fabs(v)), top_x = fmax(top_x, fabs(at(&x, i)));
        }
        CHECK_SAME(snd_k_absmax(3, t, n, x.p), top_x);
        arr y = arr_copy(&x, 1);
        CHECK_SAME(snd_k_affine(3, t, n, -2, y.p, 0.25, y.p), top);
        for (int64_t i = 0; i < n; i++)
            CHECK_SAME(at(&y, i), t == SND_F64 ? -2 * at(&x, i) + 0.25 : (double)(-2.0f * (float)at(&x, i) + 0.25f));
        if (n) {
            put(&x, n - 1, NAN);
            assert_true(isnan(snd_k_absmax(4, t, n, x.p)));
        }
        arr_free(&x), arr_free(&y);
    }
}

// Gradients of min and max go to the winner, by halves in a tie; together they are dy.
static void minmax_backward(void **state) {
    (void)state;
    EACH_ISA(isa) EACH_TYPE(t) for (int max = 0; max < 2; max++) {
        const int64_t dim[3] = {3, 4, 5}, sx[3] = {20, 5, 1}, sy[3] = {0, 5, 1};
        arr x = arr_draw(t, 60, 0, "x", 1), y = arr_draw(t, 20, 0, "y", 1), dy = arr_draw(t, 60, 0, "dy", 1);
        arr d1 = arr_make(t, 60, 0), d2 = arr_make(t, 60, 0);
        put(&y, 3, -2 * at(&x, 23)); // a tie: 2x = -y
        snd_k_minmax_bwd(2, t, max, false, dim, 2, x.p, sx, -1, y.p, sy, dy.p, d1.p);
        snd_k_minmax_bwd(1, t, max, true, dim, 2, x.p, sx, -1, y.p, sy, dy.p, d2.p);
        for (int64_t i = 0; i < 60; i++) {
            const double u = 2 * at(&x, i), v = -at(&y, i % 20);
            const bool first = max ? u >= v : u <= v;
            CHECK_SAME(at(&d1, i), i == 23 ? at(&dy, i) / 2 : first ? at(&dy, i) : 0);
            CHECK_SAME(at(&d2, i), i == 23 ? at(&dy, i) / 2 : first ? 0 : at(&dy, i));
        }
        arr_free(&x), arr_free(&y), arr_free(&dy), arr_free(&d1), arr_free(&d2);
    }
}

static void sums_to_every_shape(void **state) {
    (void)state;
    static const int64_t dims[][3] = {{1, 1, 1},     {4, 3, 5},    {7, 2, 65},   {2, 70, 3},
                                      {200, 1, 130}, {1, 300, 70}, {3, 1, 3000}, {50, 20, 35}};
    EACH_ISA(isa)
    EACH_TYPE(t)
    for (int exact = 0; exact < 2; exact++)
        for (int d = 0; d < 8; d++)
            for (int keep = 0; keep < 8; keep++) {
                const int64_t *dim = dims[d], n = dim[0] * dim[1] * dim[2];
                int64_t so[3];
                const int64_t n_out = strides(dim, keep, so);
                arr x = arr_draw(t, n, 1, "x", 1), out = arr_make(t, n_out, 2), again = arr_make(t, n_out, 0);
                for (int64_t i = 0; exact && i < n; i++) put(&x, i, (double)(i * 7919 % 17 - 8));
                snd_k_sum_to(1, t, dim, x.p, -2, so, n_out, out.p);
                double *want = snd_calloc((size_t)n_out, sizeof *want), *size = snd_calloc((size_t)n_out, sizeof *size);
                for (int64_t i = 0; i < n; i++) {
                    const int64_t o = i / dim[2] / dim[1] * so[0] + i / dim[2] % dim[1] * so[1] + i % dim[2] * so[2];
                    want[o] -= 2 * at(&x, i);
                    size[o] += 2 * fabs(at(&x, i));
                }
                for (int64_t o = 0; o < n_out; o++) {
                    if (exact)
                        CHECK_SAME(at(&out, o), want[o]); // small integers: every order is exact
                    else
                        CHECK_CLOSE(at(&out, o) / (size[o] + 1), want[o] / (size[o] + 1), 2 * eps_of(t));
                }
                for (int th = 2; th <= 4; th++) {
                    snd_k_sum_to(th, t, dim, x.p, -2, so, n_out, again.p);
                    assert_true(same_bits(&again, &out));
                }
                snd_free(want), snd_free(size);
                arr_free(&x), arr_free(&out), arr_free(&again);
            }
}

// ---- rows ----------------------------------------------------------------------------------------------------------------

static void row_dots(void **state) {
    (void)state;
    EACH_ISA(isa) EACH_TYPE(t) for (int64_t D = 0; D < 1100; D += D < 34 ? 1 : 211) {
        const int64_t R = D < 34 ? 3 : 100;
        arr x = arr_draw(t, R * D, 1, "x", 1), y = arr_draw(t, R * D, 0, "y", 1), out = arr_make(t, R, 0),
            b = arr_make(t, R, 0);
        snd_k_rowdot(1, t, R, D, 0.5, x.p, y.p, out.p);
        snd_k_rowdot(4, t, R, D, 0.5, x.p, y.p, b.p);
        assert_true(same_bits(&out, &b));
        for (int64_t r = 0; r < R; r++) {
            long double want = 0, size = 1e-300L;
            for (int64_t j = 0; j < D; j++) {
                want += 0.5L * at(&x, r * D + j) * at(&y, r * D + j);
                size += fabsl(0.5L * at(&x, r * D + j) * at(&y, r * D + j));
            }
            CHECK_CLOSE(at(&out, r) / (double)size, (double)(want / size), 4 * eps_of(t));
        }
        arr_free(&x), arr_free(&y), arr_free(&out), arr_free(&b);
    }
}

static void softmax_both_ways(void **state) {
    (void)state;
    EACH_ISA(isa) EACH_TYPE(t) for (int64_t D = 1; D < 600; D += D < 34 ? 1 : 97) for (int big = 0; big < 2; big++) {
        const int64_t R = 5;
        const double s = big ? -30 : 0.7;
        arr x = arr_draw(t, R * D, 1, "x", 3), dp = arr_draw(t, R * D, 0, "dp", 1), p = arr_make(t, R * D, 0),
            dx = arr_make(t, R * D, 0);
        for (int64_t j = 0; j < D; j++) put(&x, j, at(&x, j) + (big ? 900 : 0)); // a shift changes nothing
        snd_k_softmax(2, t, R, D, s, x.p, p.p);
        snd_k_softmax_bwd(2, t, R, D, s, p.p, dp.p, dx.p);
        for (int64_t r = 0; r < R; r++) {
            long double z = 0, dot = 0, m = -INFINITY;
            for (int64_t j = 0; j < D; j++) m = fmaxl(m, s * at(&x, r * D + j));
            for (int64_t j = 0; j < D; j++) z += expl(s * at(&x, r * D + j) - m);
            for (int64_t j = 0; j < D; j++) dot += expl(s * at(&x, r * D + j) - m) / z * at(&dp, r * D + j);
            for (int64_t j = 0; j < D; j++) {
                const long double q = expl(s * at(&x, r * D + j) - m) / z;
                // the rounding of s*x is an error of the exponent
                const double tol = eps_of(t) * (4 + fabs(s * at(&x, r * D + j)));
                CHECK_CLOSE(at(&p, r * D + j), (double)q, tol);
                CHECK_CLOSE(at(&dx, r * D + j) / s, (double)(q * (at(&dp, r * D + j) - dot)), 4 * tol);
            }
        }
        snd_k_softmax(1, t, R, D, s, x.p, x.p);
        snd_k_softmax_bwd(1, t, R, D, s, p.p, dp.p, dp.p);
        assert_true(same_bits(&x, &p) && same_bits(&dp, &dx));
        arr_free(&x), arr_free(&dp), arr_free(&p), arr_free(&dx);
    }
}

static void weighted_sums(void **state) {
    (void)state;
    EACH_ISA(isa) EACH_TYPE(t) for (int K = 0; K < 5; K++) for (int per_row = 0; per_row < 2; per_row++) {
        const int64_t R = 7, D = 29;
        arr w = arr_draw(t, R * K + 1, 0, "w", 1), out = arr_make(t, R * D, 1), v[5];
        const void *p[5];
        const double scale[5] = {1, 4, 0.25, 1, 2};
        for (int k = 0; k < 5; k++) v[k] = arr_draw(t, R * D, k, "v", 1 + k), p[k] = v[k].p;
        const double top = snd_k_wsum(2, t, R, D, K, w.p, per_row, K == 4 ? NULL : scale, p, out.p);
        double want_top = 0;
        for (int64_t i = 0; i < R * D; i++) {
            double want = 0;
            for (int k = 0; k < K; k++)
                want += at(&w, per_row ? i / D * K + k : k) * (K == 4 ? 1 : scale[k]) * at(&v[k], i);
            CHECK_CLOSE(at(&out, i), want, 20 * eps_of(t));
            want_top = fmax(want_top, fabs(at(&out, i)));
        }
        CHECK_SAME(top, want_top);
        arr_free(&w), arr_free(&out);
        for (int k = 0; k < 5; k++) arr_free(&v[k]);
    }
}

static void cross_entropy(void **state) {
    (void)state;
    EACH_ISA(isa) EACH_TYPE(t) for (int64_t V = 1; V < 2000; V += V < 34 ? 3 : 633) {
        const int64_t R = 40;
        const double s = 0.8;
        int64_t target[40], used, used4;
        double lse[40], lse4[40], total = 0;
        arr x = arr_draw(t, R * V, 1, "logits", 4), dx = arr_make(t, R * V, 0);
        for (int64_t r = 0; r < R; r++) target[r] = r % 5 == 2 ? -100 : r * 31 % V;
        for (int64_t j = 0; j < V; j++) put(&x, V + j, at(&x, V + j) + 500);
        const double loss = snd_k_xent_fwd(1, t, R, V, s, 0, x.p, target, -100, lse, &used);
        CHECK_SAME(snd_k_xent_fwd(4, t, R, V, s, 0, x.p, target, -100, lse4, &used4), loss);
        assert_int_equal(used, 32);
        assert_int_equal(used4, 32);
        assert_memory_equal(lse, lse4, sizeof lse);
        snd_k_xent_bwd(3, t, R, V, s, 0, x.p, target, -100, lse, used, 2, dx.p);
        for (int64_t r = 0; r < R; r++) {
            long double z = 0, m = -INFINITY;
            for (int64_t j = 0; j < V; j++) m = fmaxl(m, s * at(&x, r * V + j));
            for (int64_t j = 0; j < V; j++) z += expl(s * at(&x, r * V + j) - m);
            const double want = (double)(m + logl(z));
            CHECK_CLOSE(lse[r], want, 4 * eps_of(t));
            if (target[r] != -100) total += want - s * at(&x, r * V + target[r]);
            for (int64_t j = 0; j < V; j++) {
                const double q = (double)expl(s * at(&x, r * V + j) - want) - (j == target[r]);
                CHECK_CLOSE(at(&dx, r * V + j), target[r] == -100 ? 0 : 2 * s / 32 * q,
                            0.1 * eps_of(t) * (20 + fabs(want)));
            }
        }
        CHECK_CLOSE(loss, total / 32, 4 * eps_of(t) * 10);
        arr_free(&x), arr_free(&dx);
    }
    int64_t none[2] = {-1, -1}, used;
    double lse[2], x[4] = {1, 2, 3, 4}, dx[4];
    assert_true(isnan(snd_k_xent_fwd(1, SND_F64, 2, 2, 1, 0, x, none, -1, lse, &used))); // a mean over nothing
    snd_k_xent_bwd(1, SND_F64, 2, 2, 1, 0, x, none, -1, lse, used, 1, dx);
    for (int i = 0; i < 4; i++) CHECK_SAME(dx[i], 0);
}

// The largest logit, beyond what exp takes, wherever it stands in a row of any length; a NaN there.
static void cross_entropy_finds_the_largest_logit(void **state) {
    (void)state;
    EACH_ISA(isa) EACH_TYPE(t) for (int64_t V = 1; V <= 131; V++) for (int64_t at_j = 0; at_j < V; at_j++) {
        arr x = arr_make(t, V, 0);
        int64_t target = at_j, used;
        double lse;
        for (int64_t j = 0; j < V; j++) put(&x, j, j == at_j ? 2000 : -(double)j);
        CHECK_SAME(snd_k_xent_fwd(1, t, 1, V, 0.5, 0, x.p, &target, -1, &lse, &used), 0);
        CHECK_SAME(lse, 1000);
        put(&x, at_j, NAN);
        snd_k_xent_fwd(1, t, 1, V, 0.5, 0, x.p, &target, -1, &lse, &used);
        assert_true(isnan(lse));
        for (int64_t j = 0; j < V; j++) put(&x, j, -INFINITY);
        put(&x, at_j, -1e30);
        snd_k_xent_fwd(1, t, 1, V, 0.5, 0, x.p, &target, -1, &lse, &used);
        CHECK_SAME(lse, (t == SND_F64 ? -1e30 : (double)-1e30f) / 2);
        arr_free(&x);
    }
}

static void table_lists_every_variant(void **state) {
    (void)state;
    int chosen = 0, f64 = 0;
    for (int i = 0; i < snd_k_row_count(); i++) {
        const snd_krow *r = snd_k_row_at(i);
        assert_true(r->family && r->name && r->isa >= SND_ISA_BASE && r->isa <= SND_ISA_AVX512);
        f64 += r->t == SND_F64;
        if (snd_k_row_chosen(i)) {
            chosen++;
            assert_int_equal(r->isa, snd_isa_best());
        }
    }
    assert_int_equal(chosen * 3, snd_k_row_count());
    assert_int_equal(f64 * 2, snd_k_row_count());
}

// Rows of a table and back; sums in the order of the rows, whatever the threads. Shapes on both sides of a task's size.
static void tables(void **state) {
    (void)state;
    static const int64_t shapes[][3] = {{1, 1, 1}, {5, 3, 9}, {7, 17, 40}, {3, 300, 200}, {900, 64, 70}, {4, 5, 0}};
    EACH_TYPE(t)
    for (size_t c = 0; c < sizeof shapes / sizeof *shapes; c++) {
        const int64_t V = shapes[c][0], D = shapes[c][1], R = shapes[c][2];
        arr table = arr_draw(t, V * D, (int)c, "table", 1), x = arr_draw(t, R * D, 1, "rows", 1);
        arr want = arr_make(t, V * D, 0), y = arr_make(t, R * D, 1), sum = arr_make(t, V * D, 2);
        int64_t *ids = malloc((size_t)(R + 1) * sizeof *ids);
        for (int64_t r = 0; r < R; r++) ids[r] = r % 11 == 10 ? (r % 2 ? -1 : V) : (r * r + 3 * r) % V;
        for (int64_t i = 0; i < V * D; i++) put(&want, i, 0);
        for (int64_t i = 0; i < R * D; i++) {
            const int64_t v = ids[i / D], k = v * D + i % D;
            if (v < 0 || v >= V) continue; // no such row
            put(&want, k, t == SND_F32 ? (double)((float)at(&want, k) + (float)at(&x, i)) : at(&want, k) + at(&x, i));
        }
        for (int th = 1; th <= 3; th++) {
            snd_k_gather(th, t, V, D, table.p, R, ids, y.p);
            snd_k_scatter_add(th, t, R, D, ids, x.p, V, sum.p);
            for (int64_t i = 0; i < R * D; i++) {
                const int64_t v = ids[i / D];
                CHECK_SAME(at(&y, i), v < 0 || v >= V ? NAN : at(&table, v * D + i % D));
            }
            assert_true(same_bits(&sum, &want));
        }
        free(ids);
        arr_free(&table), arr_free(&x), arr_free(&want), arr_free(&y), arr_free(&sum);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(binary_of_every_broadcast, reset_hooks),
        cmocka_unit_test_teardown(binary_in_place_and_nan, reset_hooks),
        cmocka_unit_test_teardown(affine_and_absmax, reset_hooks),
        cmocka_unit_test_teardown(minmax_backward, reset_hooks),
        cmocka_unit_test_teardown(sums_to_every_shape, reset_hooks),
        cmocka_unit_test_teardown(row_dots, reset_hooks),
        cmocka_unit_test_teardown(softmax_both_ways, reset_hooks),
        cmocka_unit_test_teardown(weighted_sums, reset_hooks),
        cmocka_unit_test_teardown(cross_entropy, reset_hooks),
        cmocka_unit_test(tables),
        cmocka_unit_test(cross_entropy_finds_the_largest_logit),
        cmocka_unit_test(table_lists_every_variant),
    };
    return cmocka_run_group_tests_name("kernels", tests, NULL, reset_hooks);
}
