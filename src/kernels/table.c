// The table of variants and how work is cut. Picks, per call, the best instruction set that this CPU and SONDE_ISA
// allow; the answer of base/ is looked up once. The cut of a shape into tasks never depends on the thread count.
#include "kernels/rows.h"
#include <assert.h>
#include <math.h>
#include <stdatomic.h>

#define SND_FAMILY(name)                                                                                               \
    {{(snd_kfn_any *)snd_k_##name##_f32_base, (snd_kfn_any *)snd_k_##name##_f64_base},                                 \
     {(snd_kfn_any *)snd_k_##name##_f32_avx2, (snd_kfn_any *)snd_k_##name##_f64_avx2},                                 \
     {(snd_kfn_any *)snd_k_##name##_f32_avx512, (snd_kfn_any *)snd_k_##name##_f64_avx512}},
static snd_kfn_any *const rows[SND_KF_COUNT][3][2] = {
    {{NULL, NULL}, {NULL, NULL}, {NULL, NULL}},
#include "kernels/kernels.def"
};
#undef SND_FAMILY

// Norms have loops on rows stored as bf16 too, with arithmetic in f32.
#define ON_BF16(name)                                                                                                  \
    [SND_KF_##name] = {(snd_kfn_any *)snd_k_##name##_bf16_base, (snd_kfn_any *)snd_k_##name##_bf16_avx2,               \
                       (snd_kfn_any *)snd_k_##name##_bf16_avx512}
static snd_kfn_any *const on_bf16[SND_KF_COUNT][3] = {ON_BF16(norm_fwd), ON_BF16(addnorm_fwd), ON_BF16(norm_bwd)};
#undef ON_BF16

#define SND_FAMILY(name) #name,
static const char *const family_name[SND_KF_COUNT] = {
    "none",
#include "kernels/kernels.def"
};
#undef SND_FAMILY

static const char *const isa_name[] = {"none", "base", "avx2", "avx512"};

static _Atomic int isa_limit; // test hook
static _Atomic int isa_best;  // 0: not asked yet

void snd_k_limit_isa(snd_isa isa) {
    atomic_store_explicit(&isa_limit, (int)isa, memory_order_relaxed);
}

static int isa_now(void) {
    int best = atomic_load_explicit(&isa_best, memory_order_relaxed);
    if (!best) {
        best = (int)snd_isa_best();
        atomic_store_explicit(&isa_best, best, memory_order_relaxed);
    }
    const int limit = atomic_load_explicit(&isa_limit, memory_order_relaxed);
    return limit && limit < best ? limit : best;
}

snd_isa snd_k_isa(void) {
    return (snd_isa)isa_now();
}

snd_kfn_any *snd_k_pick(snd_kfamily f, snd_dtype t) {
    assert(t == SND_F32 || t == SND_F64 || (t == SND_BF16 && on_bf16[f][0]));
    if (t == SND_BF16) return on_bf16[f][isa_now() - 1];
    return rows[f][isa_now() - 1][t == SND_F64];
}

// Rows are numbered family by family, then instruction set, then type.
int snd_k_row_count(void) {
    return (SND_KF_COUNT - 1) * 6;
}

const snd_krow *snd_k_row_at(int i) {
    static _Thread_local snd_krow row;
    assert(i >= 0 && i < snd_k_row_count());
    row.family = family_name[1 + i / 6];
    row.isa = (snd_isa)(1 + i % 6 / 2);
    row.name = isa_name[row.isa];
    row.t = i % 2 ? SND_F64 : SND_F32;
    return &row;
}

bool snd_k_row_chosen(int i) {
    return 1 + i % 6 / 2 == isa_now();
}

// ---- cutting work --------------------------------------------------------------------------------------------------

snd_cut snd_cut_make(int64_t n, int64_t grain, int64_t align) {
    int64_t tasks = n / grain;
    tasks = tasks < 1 ? 1 : tasks > SND_MAX_TASKS ? SND_MAX_TASKS : tasks;
    int64_t step = (n + tasks - 1) / tasks;
    step = (step + align - 1) / align * align;
    step = step < 1 ? 1 : step;
    return (snd_cut){.n = n, .step = step, .tasks = (n + step - 1) / step};
}

snd_cut snd_cut_rows(int64_t R, int64_t D) {
    const int64_t grain = 32768 / (D > 0 ? D : 1);
    return snd_cut_make(R, grain > 0 ? grain : 1, 1);
}

double snd_tree_sum(double *a, int64_t n) {
    if (n <= 0) return 0;
    for (int64_t w = 1; w < n; w *= 2)
        for (int64_t i = 0; i + w < n; i += 2 * w) a[i] += a[i + w];
    return a[0];
}

double snd_max_nan(const double *a, int64_t n) {
    double m = 0;
    for (int64_t i = 0; i < n; i++) {
        if (isnan(a[i])) return a[i];
        m = a[i] > m ? a[i] : m;
    }
    return m;
}
