// Rounding to f16 in f32's memory, as training in f16 stores its results: for emulation, so plain C.
#include "kernels/rows.h"

#include <math.h>
#include <string.h>

typedef struct half_job {
    snd_cut cut;
    float factor;
    float *x;
    double absmax[SND_MAX_TASKS];
    int64_t some[SND_MAX_TASKS], lost[SND_MAX_TASKS]; // not 0 before; of these 0 afterwards
} half_job;

// The f16 nearest to a >= 0, ties to even.
static float nearest(float a) {
    if (a < 0x1p-14f) return (a + 0.5f) - 0.5f; // the sum's unit is 2^-24, that of f16's subnormals
    if (a >= 65520) return a + INFINITY;        // NaN stays
    uint32_t u;
    memcpy(&u, &a, sizeof u);
    u = (u + 0xfff + (u >> 13 & 1)) & ~(uint32_t)0x1fff;
    memcpy(&a, &u, sizeof u);
    return a;
}

static void half_task(void *ctx, int64_t i) {
    half_job *j = ctx;
    double most = 0;
    int64_t some = 0, lost = 0;
    for (int64_t k = snd_cut_begin(&j->cut, i); k < snd_cut_end(&j->cut, i); k++) {
        const float v = j->x[k], a = nearest(fabsf(v * j->factor));
        some += v != 0;
        lost += v != 0 && a == 0;
        if (!(a <= most) && !isnan(most)) most = a; // a NaN comes in, and stays
        j->x[k] = copysignf(a, v);
    }
    j->absmax[i] = most;
    j->some[i] = some;
    j->lost[i] = lost;
}

double snd_k_round_f16(int th, int64_t n, int64_t e, float *x, int64_t counts[2]) {
    if (n <= 0) return 0;
    half_job j = {.cut = snd_cut_make(n, 8192, 1024), .factor = (float)ldexp(1, e > 300 ? 300 : (int)e), .x = x};
    snd_parallel(th, j.cut.tasks, half_task, &j);
    for (int64_t i = 0; counts && i < j.cut.tasks; i++) {
        counts[0] += j.some[i];
        counts[1] += j.lost[i];
    }
    return snd_max_nan(j.absmax, j.cut.tasks);
}
