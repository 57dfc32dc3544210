// Fronts of attention. Forward and statistics: a task is one block of queries of one head. Backward: a task is one head
// of keys in some of the examples, and where there are few of those, some of the query blocks; gradients to which
// several tasks add (dk, dv, dr, dbias) have a copy per task that would collide, added up in order at the end.
// Working memory: slots.h.
#include "kernels/rows.h"
#include "kernels/slots.h"
#include <assert.h>
#include <math.h>
#include <string.h>

enum { FEW_TASKS = 16, MOST_TASKS = 64, HELD_BYTES = 1 << 19 };

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static int64_t blocks(const snd_kattn *a) {
    return (a->Tq + SND_ATTN_Q - 1) / SND_ATTN_Q;
}

static int64_t slots_for(int64_t tasks) {
    return least(tasks, SND_SLOTS);
}

// ---- forward and statistics -----------------------------------------------------------------------------------------

typedef struct query_job {
    const snd_kattn *a;
    snd_slots slots;
    snd_kt_attn_fwd *fwd;
    snd_kt_attn_stats *stats;
    void *out;
    double *lse, *part; // part: [tasks][3]; NULL: no statistics
} query_job;

static int64_t query_tasks(const snd_kattn *a) {
    return a->B * a->heads * blocks(a);
}

// Later blocks first: under a causal mask they are the longer ones.
static void query_task(void *ctx, int64_t i) {
    query_job *j = ctx;
    const snd_kattn *a = j->a;
    const int64_t nb = blocks(a), i0 = (nb - 1 - i % nb) * SND_ATTN_Q, n = least(a->Tq - i0, SND_ATTN_Q);
    const int64_t h = i / nb % a->heads, b = i / nb / a->heads;
    const int k = snd_slot_take(&j->slots);
    double *part = j->part ? j->part + 3 * i : NULL;
    if (j->fwd)
        j->fwd(a, b, h, i0, n, snd_slot_at(&j->slots, k), j->out, j->lse, part);
    else
        j->stats(a, b, h, i0, n, snd_slot_at(&j->slots, k), part);
    snd_slot_give(&j->slots, k);
}

size_t snd_k_attn_scratch(snd_dtype t, const snd_kattn *a, snd_kattn_use use) {
    const int64_t tasks = query_tasks(a), slot = snd_slot_up(SND_PICK(attn_slot, t)(a, use));
    return (size_t)(slots_for(tasks) * slot + tasks * 3 * (int64_t)sizeof(double));
}

// Rows that read more keys than so many: one alone has no entropy to speak of.
static int64_t rows_with(const snd_kattn *a, int64_t more_than) {
    int64_t n = 0;
    for (int64_t b = 0; b < a->B; b++)
        for (int64_t i = 0; i < a->Tq; i++) {
            const int64_t at = a->past + i, from = at > a->back ? at - a->back : 0;
            n += least(at + a->front + 1, a->lengths ? a->lengths[b] : a->Tk) - from > more_than;
        }
    return n * a->heads;
}

static void gather_stats(const snd_kattn *a, const double *part, double *out) {
    double sum[2] = {0, 0}, top = -INFINITY;
    for (int64_t i = 0; i < query_tasks(a); i++) {
        const double *p = part + 3 * i;
        sum[0] += p[0];
        sum[1] += p[1];
        if (isnan(p[2]) || p[2] > top) top = isnan(top) ? top : p[2];
    }
    out[0] = sum[0] / (double)rows_with(a, 0);
    out[1] = top;
    out[2] = sum[1] / (double)rows_with(a, 1);
}

// Runs the tasks; stats: NULL, or where what they found of the weights goes.
static void run_queries(int th, snd_dtype t, query_job *j, snd_kattn_use use, double *stats, void *scratch) {
    const int64_t tasks = query_tasks(j->a);
    j->slots.base = scratch;
    j->slots.bytes = snd_slot_up(SND_PICK(attn_slot, t)(j->a, use));
    if (stats) j->part = (double *)(j->slots.base + slots_for(tasks) * j->slots.bytes);
    snd_parallel(th < SND_SLOTS ? th : SND_SLOTS, tasks, query_task, j);
    if (stats) gather_stats(j->a, j->part, stats);
}

void snd_k_attn_fwd(int th, snd_dtype t, const snd_kattn *a, void *out, double *lse, double *stats, void *scratch) {
    query_job j = {.a = a, .fwd = SND_PICK(attn_fwd, t), .out = out, .lse = lse};
    run_queries(th, t, &j, SND_KATTN_FWD, stats, scratch);
}

void snd_k_attn_stats(int th, snd_dtype t, const snd_kattn *a, double *out, void *scratch) {
    query_job j = {.a = a, .stats = SND_PICK(attn_stats, t)};
    run_queries(th, t, &j, SND_KATTN_STATS, out, scratch);
}

// ---- backward -------------------------------------------------------------------------------------------------------

// Tasks are kv heads x parts; a part is `chunks` ways of sharing out the query blocks in one of `ranges` of examples.
typedef struct back_job {
    const snd_kattn *a;
    const snd_kattn_grads *g;
    snd_slots slots;
    snd_kt_attn_bwd *bwd;
    size_t size;
    int64_t ranges, chunks, items, distances;
    char *keys, *values, *relative; // copies 1 .. of dk, dv (by chunk) and dr (by part)
    double *bias;                   // copies 0 .. of dbias (by part)
} back_job;

static int64_t key_count(const snd_kattn *a) {
    return a->B * a->Tk * a->kv_heads * a->hd;
}

// Lays the copies out from `scratch` on; returns the bytes.
static size_t back_lay_out(back_job *j, snd_dtype t, const snd_kattn *a, const snd_kattn_grads *g, char *scratch) {
    const int64_t group = a->heads / a->kv_heads, per_head = MOST_TASKS / a->kv_heads;
    *j = (back_job){.a = a, .g = g, .bwd = SND_PICK(attn_bwd, t), .size = snd_k_size(t)};
    j->items = group * blocks(a);
    j->ranges = least(a->B, per_head > 1 ? per_head : 1);
    const int64_t tasks = a->kv_heads * j->ranges;
    j->chunks = tasks >= FEW_TASKS ? 1 : least((FEW_TASKS + tasks - 1) / tasks, j->items);
    j->distances = a->Tq + a->Tk - 1;
    j->slots.base = scratch;
    j->slots.bytes = snd_slot_up(SND_PICK(attn_slot, t)(a, SND_KATTN_BWD));
    const int64_t parts = j->ranges * j->chunks, size = (int64_t)j->size;
    const int64_t keys = snd_slot_up(key_count(a) * size), rel = snd_slot_up(g->r_rows * a->heads * a->hd * size);
    const int64_t at_keys = slots_for(a->kv_heads * parts) * j->slots.bytes;
    const int64_t at_values = at_keys + (g->dk ? (j->chunks - 1) * keys : 0);
    const int64_t at_relative = at_values + (g->dv ? (j->chunks - 1) * keys : 0);
    const int64_t at_bias = at_relative + (g->dr ? (parts - 1) * rel : 0);
    j->keys = snd_at_mut(scratch, at_keys, 1);
    j->values = snd_at_mut(scratch, at_values, 1);
    j->relative = snd_at_mut(scratch, at_relative, 1);
    j->bias = snd_at_mut(scratch, at_bias, 1);
    return (size_t)(at_bias + (g->dbias ? parts * a->heads * j->distances * (int64_t)sizeof(double) : 0));
}

size_t snd_k_attn_bwd_scratch(snd_dtype t, const snd_kattn *a, const snd_kattn_grads *g) {
    back_job j;
    return back_lay_out(&j, t, a, g, NULL);
}

// Copy k of an array: the result itself, then those in scratch.
static void *copy_at(void *result, char *copies, int64_t k, int64_t count, size_t size) {
    if (!result) return NULL;
    return k ? copies + (k - 1) * snd_slot_up(count * (int64_t)size) : result;
}

static void clear_columns(const back_job *j, void *p, int64_t rows, int64_t width, int64_t first, int64_t n) {
    for (int64_t i = 0; p && i < rows; i++)
        memset((char *)p + (size_t)(i * width + first) * j->size, 0, (size_t)n * j->size);
}

// Keys whose rows and gradients stay in a cache while the query blocks pass by.
static int64_t keys_held(const back_job *j) {
    const int64_t n = HELD_BYTES / (4 * j->a->hd * (int64_t)j->size) / SND_ATTN_K * SND_ATTN_K;
    return n > SND_ATTN_K ? n : SND_ATTN_K;
}

// One head of keys in one example: its share of the query blocks, a range of keys at a time.
static void back_head(const back_job *j, const snd_kattn_grads *g, int64_t b, int64_t kv, int64_t chunk, void *slot) {
    const snd_kattn *a = j->a;
    const int64_t group = a->heads / a->kv_heads, nb = blocks(a), width = a->kv_heads * a->hd, held = keys_held(j);
    clear_columns(j, snd_at_mut(g->dk, b * a->Tk * width, j->size), a->Tk, width, kv * a->hd, a->hd);
    clear_columns(j, snd_at_mut(g->dv, b * a->Tk * width, j->size), a->Tk, width, kv * a->hd, a->hd);
    for (int64_t j0 = 0; j0 < a->Tk; j0 += held)
        for (int64_t i = chunk; i < j->items; i += j->chunks) {
            const int64_t i0 = i % nb * SND_ATTN_Q;
            j->bwd(a, g, b, kv * group + i / nb, i0, least(a->Tq - i0, SND_ATTN_Q), j0, j0 + held, slot);
        }
}

static void back_task(void *ctx, int64_t task) {
    back_job *j = ctx;
    const snd_kattn *a = j->a;
    const int64_t group = a->heads / a->kv_heads, kv = task % a->kv_heads, part = task / a->kv_heads;
    const int64_t range = part / j->chunks, chunk = part % j->chunks;
    snd_kattn_grads g = *j->g;
    g.dk = copy_at(g.dk, j->keys, chunk, key_count(a), j->size);
    g.dv = copy_at(g.dv, j->values, chunk, key_count(a), j->size);
    g.dr = copy_at(g.dr, j->relative, part, g.r_rows * a->heads * a->hd, j->size);
    if (g.dbias) {
        g.dbias = j->bias + part * a->heads * j->distances;
        memset(g.dbias + kv * group * j->distances, 0, (size_t)(group * j->distances) * sizeof(double));
    }
    clear_columns(j, g.dr, g.r_rows, a->heads * a->hd, kv * group * a->hd, group * a->hd);
    const int k = snd_slot_take(&j->slots);
    for (int64_t b = range * a->B / j->ranges; b < (range + 1) * a->B / j->ranges; b++)
        back_head(j, &g, b, kv, chunk, snd_slot_at(&j->slots, k));
    snd_slot_give(&j->slots, k);
}

// Adds the copies to the result, in order.
static void gather(int th, snd_dtype t, void *result, char *copies, int64_t n_copies, int64_t count) {
    const int64_t dim[3] = {1, 1, count}, s[3] = {0, 0, 1};
    for (int64_t k = 1; result && k < n_copies; k++)
        snd_k_binary(th, t, SND_KBIN_ADD, dim, 1, result, s, 1, copy_at(result, copies, k, count, snd_k_size(t)), s,
                     result);
}

void snd_k_attn_bwd(int th, snd_dtype t, const snd_kattn *a, const snd_kattn_grads *g, void *scratch) {
    back_job j;
    back_lay_out(&j, t, a, g, scratch);
    const int64_t parts = j.ranges * j.chunks;
    snd_parallel(th < SND_SLOTS ? th : SND_SLOTS, a->kv_heads * parts, back_task, &j);
    gather(th, t, g->dk, j.keys, j.chunks, key_count(a));
    gather(th, t, g->dv, j.values, j.chunks, key_count(a));
    gather(th, t, g->dr, j.relative, parts, g->r_rows * a->heads * a->hd);
    for (int64_t i = 0; g->dbias && i < a->heads * j.distances; i++) {
        g->dbias[i] = 0;
        for (int64_t p = 0; p < parts; p++) g->dbias[i] += j.bias[p * a->heads * j.distances + i];
    }
}
