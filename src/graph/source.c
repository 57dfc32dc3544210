// Where parameters come from. `drawn` makes a parameter from (seed, its name) whenever it is asked for and keeps a
// bounded number of bytes of them around; `resident` keeps one copy of each.
// Invariant: both give the same numbers for the same seed, whatever was drawn before. One source serves one executor at
// a time; a pointer from acquire stays valid until the matching release. What snd_source_data gave out is never dropped.
#include "graph/graph_impl.h"

#include <assert.h>
#include <math.h>
#include <string.h>

// `drawn` drops the least recently used copies beyond this; resident never drops.
static const size_t CACHE_BYTES = (size_t)64 << 20;

typedef struct slot {
    void *data;    // NULL: not here
    bool borrowed; // the caller's memory
    int32_t pins;
    int64_t used; // clock of the last acquire
} slot;

typedef struct source {
    uint64_t seed;
    int threads, n;
    bool drops, slab_tried;
    double seconds; // spent drawing
    size_t bytes;
    int64_t clock;
    slot *slots;         // by parameter
    unsigned char *slab; // all parameters side by side, when they may all stay; NULL: each on its own
    size_t *offset;      // in the slab
} source;

static size_t param_bytes(const snd_graph *g, int param) {
    const snd_value *v = snd_g_value(g, snd_g_param_at(g, param));
    return (size_t)snd_shape_size(v->shape) * snd_dtype_size(v->dtype);
}

// Elements first .. first+n-1 into data.
static void fill(const source *s, const snd_graph *g, int param, int64_t first, int64_t n, void *data) {
    const snd_value *v = snd_g_value(g, snd_g_param_at(g, param));
    const snd_init *init = snd_g_param_init(g, param);
    const int64_t all = snd_shape_size(v->shape);
    const double a = init->a * init->factor;
    const snd_key key = snd_key_make(s->seed, v->name);
    const uint64_t at = (uint64_t)first;
    switch (init->kind) {
    case SND_INIT_CONST: snd_k_fill_const(s->threads, v->dtype, n, a, data); return;
    case SND_INIT_NORMAL: snd_k_fill_normal(s->threads, v->dtype, key, at, n, a, data); return;
    case SND_INIT_TRUNC: snd_k_fill_trunc(s->threads, v->dtype, key, at, n, a, data); return;
    case SND_INIT_UNIFORM: snd_k_fill_uniform(s->threads, v->dtype, key, at, n, -a, a, data); return;
    case SND_INIT_NONE: snd_k_fill_const(s->threads, v->dtype, n, 0, data); return;
    case SND_INIT_LAST:
        snd_k_fill_const(s->threads, v->dtype, n, 0, data);
        if (first + n == all)
            snd_k_fill_const(1, v->dtype, 1, a, (char *)data + (size_t)(n - 1) * snd_dtype_size(v->dtype));
        return;
    }
}

static void draw(source *s, const snd_graph *g, int param, int64_t first, int64_t n, void *data) {
    const double start = snd_now();
    fill(s, g, param, first, n, data);
    s->seconds += snd_now() - start;
}

static void read(void *self, const snd_graph *g, int param, int64_t first, int64_t n, void *dst) {
    source *s = self;
    const size_t size = snd_dtype_size(snd_g_value(g, snd_g_param_at(g, param))->dtype);
    const char *here = s->slots[param].data;
    if (here)
        memcpy(dst, here + (size_t)first * size, (size_t)n * size);
    else
        draw(s, g, param, first, n, dst);
}

// A spare buffer of the same size from the least recently used unpinned copies; frees others to stay within bounds.
static void *reclaim(source *s, const snd_graph *g, size_t bytes) {
    while (s->drops && s->bytes + bytes > CACHE_BYTES) {
        int oldest = -1;
        for (int i = 0; i < s->n; i++) {
            const slot *c = &s->slots[i];
            if (c->data && c->pins == 0 && (oldest < 0 || c->used < s->slots[oldest].used)) oldest = i;
        }
        if (oldest < 0) return NULL;
        void *data = s->slots[oldest].data;
        s->slots[oldest].data = NULL;
        if (param_bytes(g, oldest) == bytes) return data;
        s->bytes -= param_bytes(g, oldest);
        snd_free(data);
    }
    return NULL;
}

// One slab for all parameters, unless they are too many to stay. Made when the first one is to be held: a plan that
// keeps parameters itself holds none here.
static sonde_status make_slab(source *s, const snd_graph *g) {
    if (s->slab_tried) return SONDE_OK;
    size_t total = 0;
    for (int i = 0; i < s->n; i++) {
        s->offset[i] = total;
        if (s->slots[i].borrowed) continue;
        total += (param_bytes(g, i) + 63) / 64 * 64;
    }
    if (total > 0 && !(s->drops && total > CACHE_BYTES)) {
        s->slab = snd_slab_alloc(total);
        if (!s->slab) return SONDE_ENOMEM;
    }
    s->slab_tried = true;
    return SONDE_OK;
}

static void *place(source *s, const snd_graph *g, int param, size_t bytes) {
    if (s->slab) return s->slab + s->offset[param];
    void *data = reclaim(s, g, bytes);
    if (data) return data;
    data = snd_aligned_alloc(64, bytes);
    if (data) s->bytes += bytes;
    return data;
}

static sonde_status load(source *s, const snd_graph *g, int param) {
    assert(param >= 0 && param < s->n);
    slot *c = &s->slots[param];
    if (c->data) return SONDE_OK;
    const size_t bytes = param_bytes(g, param);
    SND_TRY(make_slab(s, g));
    void *data = place(s, g, param, bytes);
    SND_FAIL_IF(!data, SONDE_ENOMEM, "no memory for parameter '%s' (%zu bytes)",
                snd_g_value(g, snd_g_param_at(g, param))->name, bytes);
    c->data = data;
    draw(s, g, param, 0, snd_shape_size(snd_g_value(g, snd_g_param_at(g, param))->shape), data);
    return SONDE_OK;
}

static sonde_status acquire(void *self, const snd_graph *g, int param, const void **data, int32_t *e) {
    source *s = self;
    SND_TRY(load(s, g, param));
    s->slots[param].pins++;
    s->slots[param].used = ++s->clock;
    *data = s->slots[param].data;
    *e = 0;
    return SONDE_OK;
}

static void release(void *self, const snd_graph *g, int param) {
    (void)g;
    source *s = self;
    assert(s->slots[param].pins > 0);
    s->slots[param].pins--;
}

static void destroy(void *self) {
    source *s = self;
    for (int i = 0; i < s->n && s->slots && !s->slab; i++)
        if (!s->slots[i].borrowed) snd_free(s->slots[i].data);
    snd_free(s->slab);
    snd_free(s->offset);
    snd_free(s->slots);
    snd_free(s);
}

static sonde_status create(const snd_graph *g, uint64_t seed, int threads, bool drops, snd_source *out) {
    *out = (snd_source){0};
    source *s = snd_calloc(1, sizeof *s);
    if (!s) return SONDE_ENOMEM;
    const int n = snd_g_param_count(g);
    *s = (source){.seed = seed, .threads = threads > 0 ? threads : snd_cpu_count(), .n = n, .drops = drops};
    s->slots = snd_calloc((size_t)n + 1, sizeof *s->slots);
    s->offset = snd_calloc((size_t)n + 1, sizeof *s->offset);
    if (!s->slots || !s->offset) {
        destroy(s);
        return SONDE_ENOMEM;
    }
    *out = (snd_source){.self = s, .read = read, .acquire = acquire, .release = release, .destroy = destroy};
    return SONDE_OK;
}

sonde_status snd_source_drawn(const snd_graph *g, uint64_t seed, int threads, snd_source *out) {
    return create(g, seed, threads, true, out);
}

sonde_status snd_source_resident(const snd_graph *g, uint64_t seed, int threads, snd_source *out) {
    return create(g, seed, threads, false, out);
}

sonde_status snd_source_data(snd_source *src, const snd_graph *g, int param, void **data) {
    source *s = src->self;
    SND_TRY(load(s, g, param));
    assert(!s->slots[param].borrowed);
    s->slots[param].pins++; // for good: it may be written to
    *data = s->slots[param].data;
    return SONDE_OK;
}

void snd_source_borrow(snd_source *src, const snd_graph *g, int param, const void *data) {
    source *s = src->self;
    (void)g;
    assert(param >= 0 && param < s->n && !s->slots[param].data && !s->drops);
    // resident copies are written to only through snd_source_data, which has no business with this one
    s->slots[param] = (slot){.data = (void *)(uintptr_t)data, .borrowed = true};
}

double snd_source_seconds(const snd_source *src) {
    return ((const source *)src->self)->seconds;
}

void snd_source_close(snd_source *s) {
    if (s->self && s->destroy) s->destroy(s->self);
    *s = (snd_source){0};
}
