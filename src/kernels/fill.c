// Fronts of the draws. Any cut gives the same numbers, since an element depends on (key, index) only.
#include "kernels/rows.h"

typedef struct fill_job {
    snd_kt_fill_normal *normal;
    snd_kt_fill_uniform *uniform;
    snd_key key;
    uint64_t first;
    snd_cut cut;
    size_t size;
    double a, b;
    void *out;
} fill_job;

static void fill_task(void *ctx, int64_t i) {
    fill_job *j = ctx;
    const int64_t i0 = snd_cut_begin(&j->cut, i), n = snd_cut_end(&j->cut, i) - i0;
    void *out = snd_at_mut(j->out, i0, j->size);
    if (j->normal)
        j->normal(j->key, j->first + (uint64_t)i0, n, j->a, out);
    else
        j->uniform(j->key, j->first + (uint64_t)i0, n, j->a, j->b, out);
}

static void fill(int th, snd_dtype t, int64_t n, fill_job *j) {
    if (n <= 0) return;
    j->cut = snd_cut_make(n, 8192, 1024);
    j->size = snd_k_size(t);
    snd_parallel(th, j->cut.tasks, fill_task, j);
}

void snd_k_fill_normal(int th, snd_dtype t, snd_key key, uint64_t first, int64_t n, double a, void *out) {
    fill_job j = {.normal = SND_PICK(fill_normal, t), .key = key, .first = first, .a = a, .out = out};
    fill(th, t, n, &j);
}
void snd_k_fill_trunc(int th, snd_dtype t, snd_key key, uint64_t first, int64_t n, double a, void *out) {
    fill_job j = {.normal = SND_PICK(fill_trunc, t), .key = key, .first = first, .a = a, .out = out};
    fill(th, t, n, &j);
}
void snd_k_fill_uniform(int th, snd_dtype t, snd_key key, uint64_t first, int64_t n, double lo, double hi, void *out) {
    fill_job j = {.uniform = SND_PICK(fill_uniform, t), .key = key, .first = first, .a = lo, .b = hi, .out = out};
    fill(th, t, n, &j);
}
