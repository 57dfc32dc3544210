// Front of the rotary positions: a task is a range of positions.
#include "kernels/rows.h"

typedef struct rope_job {
    snd_ropespec spec;
    snd_cut cut;
    snd_kt_rope *rope;
    const void *x;
    void *y;
} rope_job;

static void rope_task(void *ctx, int64_t i) {
    const rope_job *j = ctx;
    j->rope(&j->spec, snd_cut_begin(&j->cut, i), snd_cut_end(&j->cut, i), j->x, j->y);
}

void snd_k_rope(int th, snd_dtype t, int64_t B, int64_t T, int64_t heads, int64_t hd, int64_t rotated, bool interleaved,
                double theta, int64_t past, double sign, const void *x, void *y) {
    if (T <= 0) return;
    const rope_job j = {.spec = {.B = B,
                                 .tokens = T,
                                 .heads = heads,
                                 .hd = hd,
                                 .rotated = rotated,
                                 .past = past,
                                 .interleaved = interleaved,
                                 .theta = theta,
                                 .sign = sign},
                        .cut = snd_cut_rows(T, B * heads * hd),
                        .rope = SND_PICK(rope, t),
                        .x = x,
                        .y = y};
    snd_parallel(th, j.cut.tasks, rope_task, (void *)&j);
}
