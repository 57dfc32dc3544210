// oneDNN's own products, with its own threads: what the bench holds our front against. Nothing else uses this file.
// Opened as gemm.c opens it. Descriptors are written by its own functions into memory that is only large enough.
#include "kernels/kernels.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

// oneapi/dnnl/dnnl.h and dnnl_types.h of version 2.
enum { DNNL_CPU = 1, DNNL_IN_ORDER = 1, DNNL_F32 = 3, DNNL_SRC = 1, DNNL_DST = 17, DNNL_WEIGHTS = 33 };
typedef struct dnnl_arg {
    int what;
    void *memory;
} dnnl_arg;
typedef union dnnl_md {
    char room[2048]; // a memory descriptor takes some 700 bytes
    max_align_t align;
} dnnl_md;
typedef union dnnl_desc {
    char room[16384]; // of a product: five of them and some words
    max_align_t align;
} dnnl_desc;

struct snd_kpeer {
    int (*sgemm)(char, char, int64_t, int64_t, int64_t, float, const float *, int64_t, const float *, int64_t, float,
                 float *, int64_t);
    int (*engine_create)(void **, int, size_t);
    int (*engine_destroy)(void *);
    int (*stream_create)(void **, void *, unsigned);
    int (*stream_destroy)(void *);
    int (*stream_wait)(void *);
    int (*strides)(dnnl_md *, int, const int64_t *, int, const int64_t *);
    int (*matmul)(dnnl_desc *, const dnnl_md *, const dnnl_md *, const dnnl_md *, const dnnl_md *);
    int (*pd_create)(void **, const dnnl_desc *, const void *, void *, const void *);
    int (*pd_destroy)(void *);
    int (*primitive_create)(void **, const void *);
    int (*primitive_destroy)(void *);
    int (*memory_create)(void **, const dnnl_md *, void *, void *);
    int (*memory_destroy)(void *);
    int (*execute)(const void *, void *, int, const dnnl_arg *);
    void (*omp_threads)(int);
    void *engine, *stream, *matmul_now, *memory[3];
    bool ta, tb;
    int64_t M, N, K;
    const float *a, *b;
    float *c;
};

static bool open_all(snd_kpeer *d) {
    void *h = dlopen("libdnnl.so.2", RTLD_NOW | RTLD_LOCAL);
    const struct {
        const char *name;
        void *to;
    } all[] = {
        {"dnnl_sgemm", &d->sgemm},
        {"dnnl_engine_create", &d->engine_create},
        {"dnnl_engine_destroy", &d->engine_destroy},
        {"dnnl_stream_create", &d->stream_create},
        {"dnnl_stream_destroy", &d->stream_destroy},
        {"dnnl_stream_wait", &d->stream_wait},
        {"dnnl_memory_desc_init_by_strides", &d->strides},
        {"dnnl_matmul_desc_init", &d->matmul},
        {"dnnl_primitive_desc_create", &d->pd_create},
        {"dnnl_primitive_desc_destroy", &d->pd_destroy},
        {"dnnl_primitive_create", &d->primitive_create},
        {"dnnl_primitive_destroy", &d->primitive_destroy},
        {"dnnl_memory_create", &d->memory_create},
        {"dnnl_memory_destroy", &d->memory_destroy},
        {"dnnl_primitive_execute", &d->execute},
        {"omp_set_num_threads", &d->omp_threads},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        void *p = h ? dlsym(h, all[i].name) : NULL;
        if (!p) return false;
        memcpy(all[i].to, &p, sizeof p);
    }
    return !d->engine_create(&d->engine, DNNL_CPU, 0) && !d->stream_create(&d->stream, d->engine, DNNL_IN_ORDER);
}

static void drop(snd_kpeer *d) {
    for (int i = 0; i < 3; i++) {
        if (d->memory[i]) d->memory_destroy(d->memory[i]);
        d->memory[i] = NULL;
    }
    if (d->matmul_now) d->primitive_destroy(d->matmul_now);
    d->matmul_now = NULL;
}

snd_kpeer *snd_k_peer_open(int threads) {
    snd_kpeer *d = snd_calloc(1, sizeof *d);
    if (!d) return NULL;
    if (!open_all(d)) {
        snd_k_peer_close(d);
        return NULL;
    }
    d->omp_threads(threads);
    return d;
}

void snd_k_peer_close(snd_kpeer *d) {
    if (!d) return;
    drop(d);
    if (d->stream) d->stream_destroy(d->stream);
    if (d->engine) d->engine_destroy(d->engine);
    snd_free(d);
}

static bool make_matmul(snd_kpeer *d) {
    const int64_t dims[3][2] = {{d->M, d->K}, {d->K, d->N}, {d->M, d->N}};
    const int64_t step[3][2] = {{d->ta ? 1 : d->K, d->ta ? d->M : 1}, {d->tb ? 1 : d->N, d->tb ? d->K : 1}, {d->N, 1}};
    void *data[3];
    memcpy(data, (const void *[]){d->a, d->b, d->c}, sizeof data); // it asks for pointers to what may be written
    dnnl_md md[3];
    dnnl_desc desc;
    void *pd = NULL;
    for (int i = 0; i < 3; i++)
        if (d->strides(&md[i], 2, dims[i], DNNL_F32, step[i]) ||
            d->memory_create(&d->memory[i], &md[i], d->engine, data[i]))
            return false;
    const bool made = !d->matmul(&desc, &md[0], &md[1], NULL, &md[2]) &&
                      !d->pd_create(&pd, &desc, NULL, d->engine, NULL) && !d->primitive_create(&d->matmul_now, pd);
    if (pd) d->pd_destroy(pd);
    return made;
}

bool snd_k_peer_set(snd_kpeer *d, bool ta, bool tb, int64_t M, int64_t N, int64_t K, const float *A, const float *B,
                    float *C) {
    drop(d);
    d->ta = ta, d->tb = tb;
    d->M = M, d->N = N, d->K = K;
    d->a = A, d->b = B, d->c = C;
    return make_matmul(d);
}

void snd_k_peer_sgemm(const snd_kpeer *d) {
    d->sgemm(d->ta ? 'T' : 'N', d->tb ? 'T' : 'N', d->M, d->N, d->K, 1, d->a, d->ta ? d->M : d->K, d->b,
             d->tb ? d->K : d->N, 0, d->c, d->N);
}

void snd_k_peer_matmul(const snd_kpeer *d) {
    const dnnl_arg args[] = {{DNNL_SRC, d->memory[0]}, {DNNL_WEIGHTS, d->memory[1]}, {DNNL_DST, d->memory[2]}};
    d->execute(d->matmul_now, d->stream, 3, args);
    d->stream_wait(d->stream);
}
