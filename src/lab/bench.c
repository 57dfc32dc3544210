// Turns, and the benchmarks of the kernels; see bench.h. A kernel's case is a row of `jobs`: what runs, on which shape, and
// which limit bounds it. A turn runs the case, its limit and the rival once each, long enough for the clock.
#include "kernels/kernels.h"
#include "lab/bench_impl.h"
#include "lab/rival.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// One set of buffers serves all cases: their largest array has ROOM elements of 8 bytes, or BIG_ROOM where the cases are
// run whose arrays leave every cache.
enum { ROOM = 2048 * 1024, BIG_ROOM = 8192 * 4096 / 2, MAX_TURNS = 31 };
typedef struct desk {
    int threads;
    void *x, *y, *z, *w, *g, *b, *work;
    double *m, *r;
    uint64_t *bits;
    snd_key key;
    double sink; // results that nothing else uses
} desk;

typedef struct job job;
struct job {
    const char *group, *what, *unit, *bound;
    void (*run)(const job *j, desk *d);
    void (*limit)(const job *j, desk *d);
    double (*work)(const job *j);  // units of run: flop, bytes or elements
    double (*allow)(const job *j); // the limit's, in the same unit
    snd_dtype t;
    int64_t a, b, c; // shape: M,N,K or rows,features
    int how;         // layout, function, kind
    bool big;        // arrays beyond the caches; not for a quick run
};

// ---- limits ---------------------------------------------------------------------------------------------------------

enum { PEAK_ROUNDS = 200000 };
static void peak(const job *j, desk *d) {
    d->sink += snd_k_peak(d->threads, j->t, PEAK_ROUNDS);
}
// Arithmetic on what is stored as bf16 is that of f32.
static void peak_f32(const job *j, desk *d) {
    (void)j;
    d->sink += snd_k_peak(d->threads, SND_F32, PEAK_ROUNDS);
}
// Arrays of bf16 are moved as half as many f32.
static snd_dtype moved_as(const job *j) {
    return j->t == SND_BF16 ? SND_F32 : j->t;
}
static int64_t moved(const job *j) {
    return j->t == SND_BF16 ? j->a * j->b / 2 : j->a * j->b;
}
static void copy(const job *j, desk *d) {
    snd_k_copy(d->threads, moved_as(j), moved(j), false, d->x, d->z);
}
static void stream(const job *j, desk *d) {
    snd_k_copy(d->threads, moved_as(j), moved(j), true, d->x, d->z);
}
static void triad(const job *j, desk *d) {
    snd_k_triad(d->threads, moved_as(j), moved(j), false, d->x, d->y, d->z);
}
static void stream_triad(const job *j, desk *d) {
    snd_k_triad(d->threads, moved_as(j), moved(j), true, d->x, d->y, d->z);
}
static void read_all(const job *j, desk *d) {
    d->sink += snd_k_absmax(d->threads, j->t, j->a * j->b, d->x);
}

// The matrix of a product of few rows, which lies in y.
static void read_matrix(const job *j, desk *d) {
    d->sink += snd_k_absmax(d->threads, j->t, j->b * j->c, d->y);
}

static double size_of(const job *j) {
    return (double)snd_dtype_size(j->t);
}
static double two(const job *j) {
    return 2 * size_of(j) * (double)j->a * (double)j->b;
}
static double three(const job *j) {
    return 3 * size_of(j) * (double)j->a * (double)j->b;
}
static double four(const job *j) {
    return 4 * size_of(j) * (double)j->a * (double)j->b;
}
static double one(const job *j) {
    return size_of(j) * (double)j->a * (double)j->b;
}
static double seven(const job *j) {
    return 7 * size_of(j) * (double)j->a * (double)j->b;
}
static double matrix(const job *j) {
    return size_of(j) * (double)j->b * (double)j->c;
}
static double elements(const job *j) {
    return (double)j->a * (double)j->b;
}
static double flops(const job *j) {
    return 2 * (double)j->a * (double)j->b * (double)j->c;
}

// ---- kernels --------------------------------------------------------------------------------------------------------

enum { NN, NT, TN };
static void gemm(const job *j, desk *d) {
    const bool ta = j->how == TN, tb = j->how == NT;
    snd_k_gemm(d->threads, j->t, ta, tb, j->a, j->b, j->c, 1, d->x, ta ? j->a : j->c, d->y, tb ? j->c : j->b, 0, d->z,
               j->b);
}
static snd_normspec norm_call(const job *j, const desk *d) {
    return (snd_normspec){
        .kind = (snd_knorm)j->how, .D = j->b, .eps = 1e-5, .g = d->g, .b = j->how == SND_KNORM_LAYER ? d->b : NULL};
}
static void norm_fwd(const job *j, desk *d) {
    const snd_normspec s = norm_call(j, d);
    d->sink += snd_k_norm_fwd(d->threads, j->t, &s, j->a, d->x, d->z, d->m, d->r);
}
static void norm_bwd(const job *j, desk *d) {
    const snd_normspec s = norm_call(j, d);
    d->sink += snd_k_norm_bwd(d->threads, j->t, &s, j->a, d->y, d->x, d->m, d->r, NULL, d->z, d->b, NULL, d->work);
}
// The residual's sum and its norm; the gradient of the norm's input and of the residual.
static void addnorm_fwd(const job *j, desk *d) {
    const snd_normspec s = norm_call(j, d);
    double top;
    d->sink += snd_k_addnorm_fwd(d->threads, j->t, &s, j->a, 1, d->x, 1, d->y, d->w, d->z, d->m, d->r, &top);
}
static void addnorm_bwd(const job *j, desk *d) {
    const snd_normspec s = norm_call(j, d);
    d->sink += snd_k_norm_bwd(d->threads, j->t, &s, j->a, d->y, d->x, d->m, d->r, d->w, d->z, d->b, NULL, d->work);
}
static void batch_fwd(const job *j, desk *d) {
    snd_k_batch_fwd(d->threads, j->t, j->a, j->b, 1e-5, 0, d->x, d->g, d->b, d->z, d->m, d->r, NULL, NULL);
}
static void batch_bwd(const job *j, desk *d) {
    d->sink +=
        snd_k_batch_bwd(d->threads, j->t, j->a, j->b, 1e-5, 0, d->y, d->x, d->g, d->m, d->r, NULL, d->z, d->w, d->b);
}
static void unary(const job *j, desk *d) {
    d->sink += snd_k_unary(d->threads, j->t, (snd_kfn)j->how, j->a * j->b, 1, d->x, d->z);
}
static void unary_bwd(const job *j, desk *d) {
    d->sink += snd_k_unary_bwd(d->threads, j->t, (snd_kfn)j->how, j->a * j->b, 1, d->x, 1, d->y, d->z);
}
static void relu(const job *j, desk *d) {
    d->sink += snd_k_relu(d->threads, j->t, j->a * j->b, d->x, d->z, d->bits);
}
static void relu_bwd(const job *j, desk *d) {
    d->sink += snd_k_relu_bwd(d->threads, j->t, j->a * j->b, d->bits, d->y, d->z);
}
static void dropout(const job *j, desk *d) {
    d->sink += snd_k_dropout(d->threads, j->t, d->key, 0.1, 0, 1, j->a * j->b, d->x, d->z);
}
// Rows are tokens of one sequence, of heads of HEAD features.
enum { HEAD = 64 };
static void rope(const job *j, desk *d) {
    snd_k_rope(d->threads, j->t, 1, j->a, j->b / HEAD, HEAD, HEAD, false, 1e4, 0, 1, d->x, d->z);
}
static void softmax(const job *j, desk *d) {
    snd_k_softmax(d->threads, j->t, j->a, j->b, 0.125, d->x, d->z);
}
// Cross-entropy of rows of logits, and its gradient.
static void loss(const job *j, desk *d) {
    int64_t used;
    const int64_t *targets = (const int64_t *)d->bits;
    if (j->t == SND_BF16) {
        d->sink += snd_k_bf16_xent_fwd(d->threads, j->a, j->b, 1, 0, d->x, targets, -100, d->m, &used, d->work);
        snd_k_bf16_xent_bwd(d->threads, j->a, j->b, 1, 0, d->x, targets, -100, d->m, used, 1, d->z, d->work);
        return;
    }
    d->sink += snd_k_xent_fwd(d->threads, j->t, j->a, j->b, 1, 0, d->x, targets, -100, d->m, &used);
    snd_k_xent_bwd(d->threads, j->t, j->a, j->b, 1, 0, d->x, targets, -100, d->m, used, 1, d->z);
}
// Weights in y, their gradient in x, the moments in z and w.
static void adamw(const job *j, desk *d) {
    const snd_kupdate u = {SND_KRULE_ADAMW, 1e-4, 0.9, 0.95, 1e-8, 0.1, 0, 1, 1};
    snd_k_update(d->threads, j->t, &u, j->a * j->b, d->x, d->y, d->z, d->w, NULL);
}
static void normals(const job *j, desk *d) {
    snd_k_fill_normal(d->threads, j->t, d->key, 0, j->a * j->b, 0.02, d->z);
}
static void moments(const job *j, desk *d) {
    snd_kmoments m;
    snd_k_moments(d->threads, j->t, j->a, j->b, d->x, j->how, &m);
    d->sink += m.sumsq;
}

// Causal attention, forward and backward: a examples, b tokens, c heads of HEAD features. x holds q, k, v, out; y dout;
// z the gradients. Counted are the six products of the half that is read; backward computes the scores a second time.
static int64_t tokens_size(const job *j) {
    return j->a * j->b * j->c * HEAD;
}
static double attention_flops(const job *j) {
    return 6 * (double)j->a * (double)j->c * HEAD * (double)j->b * (double)(j->b + 1);
}
static void *part(const job *j, void *p, int k) {
    return (char *)p + (size_t)(k * tokens_size(j)) * snd_dtype_size(j->t);
}
static snd_kattn attention_call(const job *j, desk *d) {
    return (snd_kattn){.B = j->a,
                       .Tq = j->b,
                       .Tk = j->b,
                       .heads = j->c,
                       .kv_heads = j->c,
                       .hd = HEAD,
                       .back = j->b,
                       .scale = 1 / sqrt(HEAD),
                       .q = d->x,
                       .k = part(j, d->x, 1),
                       .v = part(j, d->x, 2),
                       .fq = 1,
                       .fk = 1,
                       .fv = 1};
}
static snd_kattn_grads attention_grads(const job *j, desk *d) {
    return (snd_kattn_grads){.out = part(j, d->x, 3),
                             .dout = d->y,
                             .fout = 1,
                             .fdout = 1,
                             .lse = d->m,
                             .dq = d->z,
                             .dk = part(j, d->z, 1),
                             .dv = part(j, d->z, 2)};
}
static void attention(const job *j, desk *d) {
    const snd_kattn a = attention_call(j, d);
    const snd_kattn_grads g = attention_grads(j, d);
    if (j->t == SND_BF16) {
        snd_k_bf16_attn_fwd(d->threads, &a, part(j, d->x, 3), d->m, d->work);
        snd_k_bf16_attn_bwd(d->threads, &a, &g, d->work);
        return;
    }
    snd_k_attn_fwd(d->threads, j->t, &a, part(j, d->x, 3), d->m, NULL, d->work);
    snd_k_attn_bwd(d->threads, j->t, &a, &g, d->work);
}

// a images of b x b places and c channels, through a 3x3 convolution to as many.
static snd_kconv conv_call(const job *j) {
    return (snd_kconv){j->a, j->b, j->b, j->c, j->c, 3, 1};
}
static double conv_flops(const job *j) {
    return 18 * (double)j->a * (double)(j->b * j->b) * (double)(j->c * j->c);
}
static void conv_fwd(const job *j, desk *d) {
    const snd_kconv c = conv_call(j);
    snd_k_conv_fwd(d->threads, j->t, &c, d->x, d->y, d->z, d->work);
}
static void conv_dx(const job *j, desk *d) {
    const snd_kconv c = conv_call(j);
    snd_k_conv_dx(d->threads, j->t, &c, d->x, d->y, d->z, d->work);
}
static void conv_dw(const job *j, desk *d) {
    const snd_kconv c = conv_call(j);
    snd_k_conv_dw(d->threads, j->t, &c, d->x, d->w, d->z, d->work);
}

#define GEMM(t, M, N, K, how)                                                                                          \
    { "gemm", #M "x" #N "x" #K " " #how, "GFLOP/s", "multiply-adds", gemm, peak, flops, NULL, t, M, N, K, how, false }
#define NORM(what, R, D, run, limit, bytes, bound, how)                                                                \
    { "norm", what " " #R "x" #D, "GB/s", bound, run, limit, bytes, bytes, SND_F32, R, D, 0, how, false }
// Rates are of the bytes that the work names; the bound's of those that it names itself.
#define ROWS(t, what, R, D, run, bytes, limit, own, bound, how, big)                                                   \
    { "norm", what " " #R "x" #D, "GB/s", bound, run, limit, bytes, own, t, R, D, 0, how, big }
#define BIG(what, R, D, run, bytes, limit, own, bound, how)                                                            \
    ROWS(SND_F32, what, R, D, run, bytes, limit, own, bound, how, true)
#define BIGS(R, D)                                                                                                     \
    BIG("layer fwd", R, D, norm_fwd, two, stream, two, "streaming copy", SND_KNORM_LAYER),                             \
        BIG("rms fwd", R, D, norm_fwd, two, stream, two, "streaming copy", SND_KNORM_RMS),                             \
        BIG("layer bwd", R, D, norm_bwd, three, stream_triad, three, "streaming add", SND_KNORM_LAYER),                \
        BIG("rms bwd", R, D, norm_bwd, three, stream_triad, three, "streaming add", SND_KNORM_RMS),                    \
        BIG("add+layer fwd", R, D, addnorm_fwd, four, stream_triad, three, "streaming add", SND_KNORM_LAYER),          \
        BIG("add+layer bwd", R, D, addnorm_bwd, four, stream_triad, three, "streaming add", SND_KNORM_LAYER)
#define HALVES(R, D, copy, add, how, big)                                                                              \
    ROWS(SND_BF16, "layer fwd", R, D, norm_fwd, two, copy, two, how "copy", SND_KNORM_LAYER, big),                     \
        ROWS(SND_BF16, "layer bwd", R, D, norm_bwd, three, add, three, how "add", SND_KNORM_LAYER, big),               \
        ROWS(SND_BF16, "add+layer fwd", R, D, addnorm_fwd, four, add, three, how "add", SND_KNORM_LAYER, big),         \
        ROWS(SND_BF16, "add+layer bwd", R, D, addnorm_bwd, four, add, three, how "add", SND_KNORM_LAYER, big)
#define ATTN(t, peak, B, T, H)                                                                                         \
    {                                                                                                                  \
        "attention", "causal " #B "x" #T " " #H "x64", "GFLOP/s", "multiply-adds", attention, peak, attention_flops,   \
            NULL, t, B, T, H, 0, false                                                                                 \
    }
#define CONV(what, B, H, C, run)                                                                                       \
    {                                                                                                                  \
        "conv", what " 3x3 " #B "x" #H "x" #H "x" #C, "GFLOP/s", "multiply-adds", run, peak, conv_flops, NULL,         \
            SND_F32, B, H, C, 0, false                                                                                 \
    }
#define LIMIT(what, t, unit, run, bytes, R, D, big)                                                                    \
    { "limit", what, unit, "", run, NULL, bytes, NULL, t, R, D, 0, 0, big }
#define EACH(what, R, D, run, limit, bytes, bound, how)                                                                \
    { "elementwise", what " " #R "x" #D, "GB/s", bound, run, limit, bytes, bytes, SND_F32, R, D, 0, how, false }
#define FAR(what, R, D, run, limit, bytes, bound, how)                                                                 \
    { "elementwise", what " " #R "x" #D, "GB/s", bound, run, limit, bytes, bytes, SND_F32, R, D, 0, how, true }
static const job jobs[] = {
    LIMIT("multiply-adds", SND_F32, "GFLOP/s", peak, NULL, 0, 0, false),
    LIMIT("multiply-adds", SND_F64, "GFLOP/s", peak, NULL, 0, 0, false),
    LIMIT("dot products", SND_BF16, "GFLOP/s", peak, NULL, 0, 0, false),
    LIMIT("copy 256x256", SND_F32, "GB/s", copy, two, 256, 256, false),
    LIMIT("add 256x256", SND_F32, "GB/s", triad, three, 256, 256, false),
    LIMIT("copy 2048x768", SND_F32, "GB/s", copy, two, 2048, 768, false),
    LIMIT("streaming copy 2048x768", SND_F32, "GB/s", stream, two, 2048, 768, false),
    LIMIT("add 2048x768", SND_F32, "GB/s", triad, three, 2048, 768, false),
    LIMIT("streaming add 2048x768", SND_F32, "GB/s", stream_triad, three, 2048, 768, false),
    LIMIT("copy 32768x768", SND_F32, "GB/s", copy, two, 32768, 768, true),
    LIMIT("streaming copy 32768x768", SND_F32, "GB/s", stream, two, 32768, 768, true),
    LIMIT("add 32768x768", SND_F32, "GB/s", triad, three, 32768, 768, true),
    LIMIT("streaming add 32768x768", SND_F32, "GB/s", stream_triad, three, 32768, 768, true),
    LIMIT("read 32768x768", SND_F32, "GB/s", read_all, one, 32768, 768, true),
    GEMM(SND_F32, 256, 256, 256, NN),
    GEMM(SND_F32, 256, 256, 256, NT),
    GEMM(SND_F32, 256, 256, 256, TN),
    GEMM(SND_F32, 64, 256, 256, NT),
    GEMM(SND_F32, 64, 512, 512, NT),
    GEMM(SND_F32, 256, 1024, 1024, NT),
    GEMM(SND_F64, 256, 256, 256, NN),
    GEMM(SND_F64, 64, 64, 256, NT),
    GEMM(SND_F32, 256, 128, 128, NT),
    GEMM(SND_F32, 256, 768, 768, NT),
    GEMM(SND_F32, 256, 768, 768, NN),
    GEMM(SND_F32, 768, 768, 256, TN),
    {"gemm", "1x4096x4096 NT", "GB/s", "read", gemm, read_matrix, matrix, matrix, SND_F32, 1, 4096, 4096, NT, true},
    ATTN(SND_F32, peak, 4, 256, 12),
    ATTN(SND_F32, peak, 1, 1024, 12),
    ATTN(SND_F32, peak, 1, 4096, 2),
    ATTN(SND_F64, peak, 1, 256, 12),
    ATTN(SND_BF16, peak_f32, 4, 256, 12),
    ATTN(SND_BF16, peak_f32, 1, 1024, 12),
    CONV("fwd", 64, 32, 16, conv_fwd),
    CONV("dx", 64, 32, 16, conv_dx),
    CONV("dw", 64, 32, 16, conv_dw),
    CONV("fwd", 64, 8, 64, conv_fwd),
    CONV("dx", 64, 8, 64, conv_dx),
    CONV("dw", 64, 8, 64, conv_dw),
    NORM("layer fwd", 256, 256, norm_fwd, copy, two, "copy", SND_KNORM_LAYER),
    NORM("layer bwd", 256, 256, norm_bwd, triad, three, "add", SND_KNORM_LAYER),
    NORM("layer fwd", 2048, 768, norm_fwd, copy, two, "copy", SND_KNORM_LAYER),
    NORM("layer bwd", 2048, 768, norm_bwd, triad, three, "add", SND_KNORM_LAYER),
    NORM("rms fwd", 2048, 768, norm_fwd, copy, two, "copy", SND_KNORM_RMS),
    NORM("rms bwd", 2048, 768, norm_bwd, triad, three, "add", SND_KNORM_RMS),
    {"norm", "add+layer fwd 2048x768", "GB/s", "add", addnorm_fwd, triad, four, three, SND_F32, 2048, 768, 0,
     SND_KNORM_LAYER, false},
    {"norm", "add+layer bwd 2048x768", "GB/s", "add", addnorm_bwd, triad, four, three, SND_F32, 2048, 768, 0,
     SND_KNORM_LAYER, false},
    BIGS(32768, 768),
    BIGS(8192, 4096),
    HALVES(2048, 768, copy, triad, "", false),
    HALVES(32768, 768, stream, stream_triad, "streaming ", true),
    NORM("batch fwd", 256, 256, batch_fwd, copy, two, "copy", 0),
    NORM("batch bwd", 256, 256, batch_bwd, triad, three, "add", 0),
    {"loss", "256x8192", "GB/s", "add", loss, triad, three, three, SND_F32, 256, 8192, 0, 0, false},
    {"loss", "256x8192", "GB/s", "add", loss, triad, three, three, SND_BF16, 256, 8192, 0, 0, false},
    {"loss", "256x50257", "GB/s", "streaming add", loss, stream_triad, three, three, SND_F32, 256, 50257, 0, 0, true},
    {"update", "adamw 1024x1024", "GB/s", "add", adamw, triad, seven, three, SND_F32, 1024, 1024, 0, 0, false},
    {"update", "adamw 32768x768", "GB/s", "streaming add", adamw, stream_triad, seven, three, SND_F32, 32768, 768, 0, 0,
     true},
    EACH("relu", 256, 256, relu, copy, two, "copy", 0),
    EACH("relu bwd", 256, 256, relu_bwd, copy, two, "copy", 0),
    EACH("gelu", 256, 256, unary, copy, two, "copy", SND_KFN_GELU),
    EACH("gelu bwd", 256, 256, unary_bwd, triad, three, "add", SND_KFN_GELU),
    EACH("gelu_tanh", 256, 256, unary, copy, two, "copy", SND_KFN_GELU_TANH),
    EACH("gelu_tanh bwd", 256, 256, unary_bwd, triad, three, "add", SND_KFN_GELU_TANH),
    EACH("silu", 256, 256, unary, copy, two, "copy", SND_KFN_SILU),
    EACH("silu bwd", 256, 256, unary_bwd, triad, three, "add", SND_KFN_SILU),
    FAR("gelu_tanh", 8192, 3072, unary, stream, two, "streaming copy", SND_KFN_GELU_TANH),
    FAR("gelu_tanh bwd", 8192, 3072, unary_bwd, stream_triad, three, "streaming add", SND_KFN_GELU_TANH),
    EACH("tanh", 256, 256, unary, copy, two, "copy", SND_KFN_TANH),
    EACH("exp", 256, 256, unary, copy, two, "copy", SND_KFN_EXP),
    EACH("softmax", 256, 256, softmax, copy, two, "copy", 0),
    EACH("dropout", 256, 256, dropout, copy, two, "copy", 0),
    EACH("rope", 256, 256, rope, copy, two, "copy", 0),
    {"stats", "moments 256x256", "GB/s", "read", moments, read_all, one, one, SND_F32, 256, 256, 0, SND_KM_BASIC,
     false},
    {"stats", "all moments 256x256", "GB/s", "read", moments, read_all, one, one, SND_F32, 256, 256, 0, SND_KM_ALL,
     false},
    {"draw", "normals 256x256", "G/s", "", normals, NULL, elements, NULL, SND_F32, 256, 256, 0, 0, false},
    {"draw", "normals 256x256", "G/s", "", normals, NULL, elements, NULL, SND_F64, 256, 256, 0, 0, false},
};
#undef GEMM
#undef NORM
#undef BIG
#undef BIGS
#undef ROWS
#undef HALVES
#undef ATTN
#undef CONV
#undef LIMIT
#undef EACH
#undef FAR

// What the rival is asked for, followed by "-bf16" where that is the type, and the job's three sizes.
static const struct {
    void (*run)(const job *, desk *);
    int how;
    const char *word;
} rivals[] = {
    {gemm, NN, "gemm-nn"},
    {gemm, NT, "gemm-nt"},
    {gemm, TN, "gemm-tn"},
    {attention, 0, "attention"},
    {conv_fwd, 0, "conv-fwd"},
    {conv_dx, 0, "conv-dx"},
    {conv_dw, 0, "conv-dw"},
    {norm_fwd, SND_KNORM_LAYER, "layernorm-fwd"},
    {norm_bwd, SND_KNORM_LAYER, "layernorm-bwd"},
    {norm_fwd, SND_KNORM_RMS, "rmsnorm-fwd"},
    {norm_bwd, SND_KNORM_RMS, "rmsnorm-bwd"},
    {addnorm_fwd, SND_KNORM_LAYER, "addnorm-fwd"},
    {addnorm_bwd, SND_KNORM_LAYER, "addnorm-bwd"},
    {loss, 0, "loss"},
    {unary, SND_KFN_GELU, "gelu-fwd"},
    {unary_bwd, SND_KFN_GELU, "gelu-bwd"},
    {unary, SND_KFN_GELU_TANH, "gelu_tanh-fwd"},
    {unary_bwd, SND_KFN_GELU_TANH, "gelu_tanh-bwd"},
    {unary, SND_KFN_SILU, "silu-fwd"},
    {unary_bwd, SND_KFN_SILU, "silu-bwd"},
    {adamw, 0, "adamw"},
};
static const char *rival_word(const job *j) {
    for (size_t i = 0; i < sizeof rivals / sizeof *rivals; i++)
        if (j->t != SND_F64 && j->run == rivals[i].run && j->how == rivals[i].how) return rivals[i].word;
    return NULL;
}

// ---- turns ----------------------------------------------------------------------------------------------------------

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// The value at a share of the way through sorted ones, between neighbours in proportion.
static double at_share(const double *v, int n, double share) {
    const double at = share * (n - 1);
    const int i = (int)at;
    return i + 1 < n ? v[i] + (at - i) * (v[i + 1] - v[i]) : v[i];
}

snd_bench_stat snd_bench_stat_of(double *v, int n) {
    for (int i = 0; i < n; i++)
        if (isnan(v[i])) return (snd_bench_stat){NAN, NAN, NAN};
    qsort(v, (size_t)n, sizeof *v, by_value);
    return (snd_bench_stat){at_share(v, n, 0.5), at_share(v, n, 0.25), at_share(v, n, 0.75)};
}

static int calls_for(double guess, double least) {
    return guess > least ? 1 : (int)(least / (guess > 1e-7 ? guess : 1e-7)) + 1;
}

// Threads of ours and of the rival wait for more work with open eyes for some milliseconds: let them fall asleep.
static void rest(void) {
    nanosleep(&(struct timespec){0, 20000000}, NULL);
}

double snd_bench_now(const snd_bench_opts *o) {
    struct timespec t;
    if (!o->cpu_time) return snd_now();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static sonde_status run_seconds(const snd_bench_opts *o, const snd_bench_work *w, int calls, double *seconds) {
    const double start = snd_bench_now(o);
    for (int i = 0; i < calls; i++) SND_TRY(w->run(w->ctx));
    *seconds = (snd_bench_now(o) - start) / calls;
    return SONDE_OK;
}
static double limit_seconds(const snd_bench_opts *o, const snd_bench_work *w, int calls) {
    const double start = snd_bench_now(o);
    for (int i = 0; i < calls; i++) w->limit(w->ctx);
    return (snd_bench_now(o) - start) / calls;
}

static bool stopped(const snd_bench_opts *o) {
    return o->stop && o->stop->flag;
}
static bool late(const snd_bench_opts *o, double start) {
    return o->time_limit > 0 && snd_now() - start > o->time_limit;
}

typedef struct turns {
    double rate[MAX_TURNS], bound[MAX_TURNS], share[MAX_TURNS], rival[MAX_TURNS], ratio[MAX_TURNS];
    int calls, limit_calls;
} turns;

static sonde_status our_turn(const snd_bench_opts *o, const snd_bench_work *w, turns *t, int i) {
    double sec;
    if (o->rival) rest();
    SND_TRY(run_seconds(o, w, t->calls, &sec));
    t->rate[i] = w->work / sec * 1e-9;
    t->bound[i] = w->limit ? w->allowed / limit_seconds(o, w, t->limit_calls) * 1e-9 : NAN;
    t->share[i] = t->rate[i] / t->bound[i];
    return SONDE_OK;
}
static sonde_status his_turn(const snd_bench_opts *o, const snd_bench_work *w, turns *t, int i) {
    double sec = NAN;
    if (!o->rival) return SONDE_OK;
    rest();
    SND_TRY(snd_rival_round(o->rival, w->least, o->cpu_time, &sec));
    t->rival[i] = w->work / sec * 1e-9;
    return SONDE_OK;
}

enum { FEWEST_TURNS = 3 };
static bool enough(const snd_bench_work *w, int done, double start) {
    return done == w->turns || (done >= FEWEST_TURNS && w->patience > 0 && snd_now() - start > w->patience);
}

sonde_status snd_bench_measure(const snd_bench_opts *o, const snd_bench_work *w, snd_bench_row *row) {
    turns t;
    double first;
    int n = 0;
    if (o->rival) SND_TRY(snd_rival_case(o->rival, w->rival)); // comes back warm
    SND_TRY(run_seconds(o, w, 1, &first));                     // warms
    t.calls = calls_for(first, w->least);
    t.limit_calls = w->limit ? calls_for(limit_seconds(o, w, 1), w->least_limit) : 0;
    for (const double start = snd_now(); !enough(w, n, start); n++) {
        SND_FAIL_IF(stopped(o), SONDE_EINTERRUPTED, "stopped in %s %s", w->group, w->name);
        if (n % 2) SND_TRY(his_turn(o, w, &t, n)); // nobody is always the first
        SND_TRY(our_turn(o, w, &t, n));
        if (n % 2 == 0) SND_TRY(his_turn(o, w, &t, n));
        t.ratio[n] = o->rival ? t.rate[n] / t.rival[n] : NAN;
    }
    *row = (snd_bench_row){.group = w->group, .threads = w->threads, .unit = w->unit, .bound = w->bound};
    snprintf(row->name, sizeof row->name, "%s", w->name);
    row->rate = snd_bench_stat_of(t.rate, n);
    row->bound_rate = snd_bench_stat_of(t.bound, n);
    row->share = snd_bench_stat_of(t.share, n);
    row->seconds = row->items = row->mib = row->rival_mib = NAN;
    row->ratio = snd_bench_stat_of(t.ratio, n);
    row->rival = o->rival ? snd_bench_stat_of(t.rival, n) : row->ratio;
    return SONDE_OK;
}

// ---- one kernel ------------------------------------------------------------------------------------------------------

typedef struct call {
    const job *j;
    desk *d;
} call;
static sonde_status run_job(void *ctx) {
    const call *c = ctx;
    c->j->run(c->j, c->d);
    return SONDE_OK;
}
static void run_limit(void *ctx) {
    const call *c = ctx;
    c->j->limit(c->j, c->d);
}

// flop of one call of `peak` for d's threads: what snd_k_peak returns, measured once with a few rounds.
static double peak_work(const job *j, const desk *d) {
    return snd_k_peak(d->threads, j->limit == peak_f32 ? SND_F32 : j->t, 16) / 16 * PEAK_ROUNDS;
}

static void job_name(const job *j, char *out, size_t n) {
    snprintf(out, n, "%s %s", snd_dtype_name(j->t), j->what);
}

static sonde_status measure(const snd_bench_opts *o, const job *j, desk *d, snd_bench_row *row) {
    char name[sizeof row->name], asked[96];
    call c = {j, d};
    job_name(j, name, sizeof name);
    snprintf(asked, sizeof asked, "%s%s %lld %lld %lld", o->rival ? rival_word(j) : "", j->t == SND_BF16 ? "-bf16" : "",
             (long long)j->a, (long long)j->b, (long long)j->c);
    const double least = o->rival ? 1e-2 : o->quick ? 1e-3 : 3e-3;
    const snd_bench_work w = {.group = j->group,
                              .name = name,
                              .unit = j->unit,
                              .bound = j->bound,
                              .threads = d->threads,
                              .work = j->work ? j->work(j) : peak_work(j, d),
                              .allowed = !j->limit  ? 0
                                         : j->allow ? j->allow(j)
                                                    : peak_work(j, d),
                              .run = run_job,
                              .limit = j->limit ? run_limit : NULL,
                              .ctx = &c,
                              .rival = asked,
                              .turns = o->quick   ? 5
                                       : o->rival ? 11
                                                  : 15,
                              .patience = 3,
                              .least = least,
                              .least_limit = least};
    return snd_bench_measure(o, &w, row);
}

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

static size_t job_work_bytes(const job *j, desk *d) {
    const snd_kconv v = conv_call(j);
    if (j->run == norm_bwd || j->run == addnorm_bwd) return snd_k_norm_bwd_scratch(j->a, j->b);
    if (j->t == SND_BF16 && j->run == loss) return snd_k_bf16_rows_scratch(d->threads, j->b);
    if (j->run == conv_fwd) return snd_k_conv_fwd_scratch(j->t, &v);
    if (j->run == conv_dx) return snd_k_conv_dx_scratch(j->t, &v);
    if (j->run == conv_dw) return snd_k_conv_dw_scratch(j->t, &v);
    if (j->run != attention) return 0;
    const snd_kattn a = attention_call(j, d);
    const snd_kattn_grads g = attention_grads(j, d);
    if (j->t == SND_BF16) return larger(snd_k_bf16_attn_scratch(&a), snd_k_bf16_attn_bwd_scratch(&a, &g));
    return larger(snd_k_attn_scratch(j->t, &a, SND_KATTN_FWD), snd_k_attn_bwd_scratch(j->t, &a, &g));
}

// Working memory for the greediest of the jobs.
static size_t work_bytes(desk *d, bool big) {
    size_t most = 0;
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++)
        if (big || !jobs[i].big) most = larger(most, job_work_bytes(&jobs[i], d));
    return most;
}

// Rows of 16 KiB in arrays that start alike fall on the same sets of a cache: each array starts some lines after the last.
// Nor may what is written lie up to 256 bytes ahead of what is read, modulo 4 KiB: processors take the one for the other
// and wait (LayerNorm of 32768 x 768 ran at 0.6 of its speed on Zen 4). With 23 lines it is at least 320 for any two of x,
// y, z, w and rows of a multiple of 1 KiB.
enum { ARRAYS = 10, APART = 23 * 64 };
static void arrays(desk *d, void **all[ARRAYS]) {
    void **const each[ARRAYS] = {
        &d->x, &d->y, &d->z, &d->w, &d->g, &d->b, (void **)&d->m, (void **)&d->r, (void **)&d->bits, &d->work};
    memcpy(all, each, sizeof each);
}

// x, y, z and w have room for `most` elements of 8 bytes.
static sonde_status furnish(desk *d, size_t most, bool big) {
    void **all[ARRAYS];
    arrays(d, all);
    const size_t rows = big ? 32768 : 16384;
    const size_t room[ARRAYS] = {most, most, most, most, 4096, 4096, rows, rows, ROOM / 64, work_bytes(d, big) / 8 + 1};
    for (size_t i = 0; i < ARRAYS; i++) {
        const size_t bytes = room[i] * 8 + ARRAYS * APART;
        char *p = snd_slab_alloc(bytes);
        if (!p) return SONDE_ENOMEM;
        memset(p, 0, bytes); // pages touched once, here
        *all[i] = p + i * APART;
    }
    return SONDE_OK;
}

static void clear(desk *d) {
    void **all[ARRAYS];
    arrays(d, all);
    for (size_t i = 0; i < ARRAYS; i++)
        if (*all[i]) snd_free((char *)*all[i] - i * APART);
}

static int64_t input_size(const job *j) {
    if (j->run == attention) return 3 * tokens_size(j);
    if (j->work == conv_flops) return j->a * j->b * j->b * j->c;
    return j->c ? j->a * j->c + j->c * j->b : j->a * j->b;
}

// n normals from element `first` on. bf16 is rounded from f32, which z has room for.
static void normals_into(const job *j, desk *d, int threads, uint64_t first, int64_t n, void *out) {
    snd_k_fill_normal(threads, moved_as(j), d->key, first, n, 1, j->t == SND_BF16 ? d->z : out);
    if (j->t == SND_BF16) snd_convert(d->z, SND_F32, out, SND_BF16, n);
}

// Inputs of the job's type; the statistics that a backward pass reads; classes; moments.
static void prepare(const job *j, desk *d, int threads) {
    const int64_t n = input_size(j);
    if (j->run == peak) return;
    normals_into(j, d, threads, 1, n, d->x);
    normals_into(j, d, threads, (uint64_t)n + 1, n, d->y);
    snd_k_fill_normal(1, moved_as(j), d->key, 7, 4096, 1, d->g);
    snd_k_fill_normal(1, moved_as(j), d->key, 5000, 4096, 1, d->b);
    if (j->run == norm_bwd || j->run == addnorm_bwd) norm_fwd(j, d);
    if (j->run == batch_bwd) batch_fwd(j, d);
    if (j->run == conv_dw) snd_k_fill_normal(threads, j->t, d->key, 3, n, 1, d->w);
    for (int64_t i = 0; j->run == loss && i < j->a; i++) d->bits[i] = (uint64_t)(i % j->b);
    if (j->run != adamw) return;
    memset(d->z, 0, (size_t)n * snd_dtype_size(j->t));
    memset(d->w, 0, (size_t)n * snd_dtype_size(j->t));
}

// ---- which rows ------------------------------------------------------------------------------------------------------

static bool names(const char *word, const char *group, const char *name) {
    char full[96], pattern[96];
    snprintf(full, sizeof full, "%s %s", group, name);
    snprintf(pattern, sizeof pattern, "*%s*", word);
    return snd_match(pattern, full);
}

// Who names a group means its usual rows.
bool snd_bench_picks(const snd_bench_opts *o, const char *group, const char *name, snd_bench_rank rank) {
    const bool usual = rank == SND_BENCH_EVER || (rank == SND_BENCH_LONG && !o->quick);
    for (int i = 0; i < o->n_only; i++)
        if (strcmp(o->only[i], group) == 0 ? usual : names(o->only[i], group, name)) return true;
    return !o->n_only && usual;
}

static bool picked(const snd_bench_opts *o, const job *j) {
    char name[48];
    job_name(j, name, sizeof name);
    return (!o->rival || rival_word(j)) && (j->run != peak || snd_k_peak(1, j->t, 16) > 0) &&
           snd_bench_picks(o, j->group, name, j->big ? SND_BENCH_LONG : SND_BENCH_EVER);
}

enum { N_JOBS = (int)(sizeof jobs / sizeof *jobs) };

// Every word of `only` must be of some row.
static sonde_status check_words(const snd_bench_opts *o) {
    for (int w = 0; w < o->n_only; w++) {
        const snd_bench_opts one = {.only = o->only + w, .n_only = 1};
        bool found = false;
        for (int i = 0; i < N_JOBS && !found; i++) found = picked(&one, &jobs[i]);
        for (int i = 0; i < snd_bench_step_count() && !found; i++) found = snd_bench_step_picked(&one, i);
        SND_FAIL_IF(
            !found, SONDE_EUSAGE,
            "--only: no row is called '%s'; groups are limit, gemm, attention, conv, norm, loss, update, "
            "elementwise, stats, draw, step and monitor, and parts of names do, as in 'step*24x256' or 'layer fwd'",
            o->only[w]);
    }
    return SONDE_OK;
}

// ---- all of them -----------------------------------------------------------------------------------------------------

typedef struct course {
    const snd_bench_opts *o;
    snd_bench_row *rows;
    int done, total, most; // most: threads
    double start;
} course;

// After a row: on with the next?
static sonde_status row_done(course *c, sonde_status s) {
    SND_FAIL_IF(s == SONDE_EINTERRUPTED, s, "stopped after %d of %d rows", c->done, c->total);
    SND_TRY(s);
    c->done++;
    const bool stop = c->o->progress && c->o->progress(c->o->ctx, c->done, c->total);
    SND_FAIL_IF(stop, SONDE_EINTERRUPTED, "stopped after %d of %d rows", c->done, c->total);
    return SONDE_OK;
}
static bool more(const course *c) {
    return c->done < SND_BENCH_ROWS && (!c->done || !late(c->o, c->start)); // something is shown whatever the limit
}

// One thread, all threads; beside a rival all.
static int first_pass(const course *c) {
    return c->o->rival || c->most == 1;
}

static sonde_status run_jobs(course *c, desk *d) {
    for (int i = 0; i < N_JOBS; i++) {
        if (!picked(c->o, &jobs[i])) continue;
        prepare(&jobs[i], d, c->most);
        for (int pass = first_pass(c); pass < 2 && more(c); pass++) {
            d->threads = pass ? c->most : 1;
            SND_TRY(row_done(c, measure(c->o, &jobs[i], d, &c->rows[c->done])));
        }
    }
    return SONDE_OK;
}

static sonde_status run_kernels(course *c, bool big) {
    desk d = {.key = snd_key_make(1, "bench"), .threads = c->most};
    sonde_status s = furnish(&d, big ? BIG_ROOM : ROOM, big);
    if (s == SONDE_OK) s = run_jobs(c, &d);
    clear(&d);
    return s;
}

static sonde_status run_steps(course *c) {
    for (int i = 0; i < snd_bench_step_count() && more(c); i++)
        if (snd_bench_step_picked(c->o, i)) SND_TRY(row_done(c, snd_bench_step(c->o, i, &c->rows[c->done])));
    return SONDE_OK;
}

sonde_status snd_bench_all(const snd_bench_opts *o, snd_bench_row *rows, int *n) {
    course c = {.o = o, .rows = rows, .most = o->threads > 0 ? o->threads : snd_cpu_count(), .start = snd_now()};
    int n_jobs = 0;
    bool big = false;
    *n = 0;
    SND_TRY(check_words(o));
    for (int i = 0; i < N_JOBS; i++)
        if (picked(o, &jobs[i])) n_jobs++, big = big || jobs[i].big;
    c.total = n_jobs * (2 - first_pass(&c));
    for (int i = 0; i < snd_bench_step_count(); i++) c.total += snd_bench_step_picked(o, i);
    SND_FAIL_IF(!c.total, SONDE_EUSAGE, "--only: %s has none of these rows",
                o->rival ? snd_rival_name(o->rival) : "this machine");
    sonde_status s = n_jobs ? run_kernels(&c, big) : SONDE_OK;
    if (s == SONDE_OK) s = run_steps(&c);
    *n = c.done;
    return s;
}

// ---- products of the caller's shapes ----------------------------------------------------------------------------------

// One row, on all threads.
static sonde_status product(const snd_bench_opts *o, const snd_bench_product *p, desk *d, snd_bench_row *row) {
    static const char *const layout[] = {"NN", "NT", "TN"};
    char name[sizeof row->name - 4];
    const int how = p->ta ? TN : p->tb ? NT : NN;
    snprintf(name, sizeof name, "%lldx%lldx%lld %s", (long long)p->M, (long long)p->N, (long long)p->K, layout[how]);
    const job j = {.group = "gemm",
                   .what = name,
                   .unit = "GFLOP/s",
                   .bound = "multiply-adds",
                   .run = gemm,
                   .limit = peak,
                   .work = flops,
                   .t = SND_F32,
                   .a = p->M,
                   .b = p->N,
                   .c = p->K,
                   .how = how};
    prepare(&j, d, d->threads);
    return measure(o, &j, d, row);
}

sonde_status snd_bench_products(const snd_bench_opts *o, const snd_bench_product *p, int n, snd_bench_row *rows,
                                int *done) {
    size_t most = 2048;
    for (int i = 0; i < n; i++) {
        const int64_t in = p[i].K * (p[i].M + p[i].N), out = p[i].M * p[i].N;
        const size_t floats = (size_t)(in > out ? in : out);
        most = floats > most ? floats : most;
    }
    course c = {.o = o, .rows = rows, .total = n, .start = snd_now()};
    desk d = {.key = snd_key_make(1, "bench"), .threads = o->threads > 0 ? o->threads : snd_cpu_count()};
    sonde_status s = furnish(&d, most / 2 + 1, false);
    for (int i = 0; s == SONDE_OK && i < n && more(&c); i++) s = row_done(&c, product(o, &p[i], &d, &rows[i]));
    *done = c.done;
    clear(&d);
    return s;
}
