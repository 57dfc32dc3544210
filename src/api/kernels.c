// The kernels' public face: checks what a caller can get wrong, finds scratch where none is given, calls kernels/.
#include "kernels/kernels.h"

#include <float.h>
#include <math.h>
#include <sonde/kernels.h>

static sonde_status known_type(sonde_type t) {
    SND_FAIL_IF(t != SONDE_TYPE_F32 && t != SONDE_TYPE_F64 && t != SONDE_TYPE_BF16, SONDE_ERANGE,
                "element type %d is not one; SONDE_TYPE_F32, SONDE_TYPE_F64 or SONDE_TYPE_BF16 is needed", (int)t);
    return SONDE_OK;
}
static snd_dtype dtype(sonde_type t) {
    return t == SONDE_TYPE_F64 ? SND_F64 : t == SONDE_TYPE_BF16 ? SND_BF16 : SND_F32;
}
static int cores(int threads) {
    return threads > 0 ? threads : snd_cpu_count();
}

static sonde_status need(const void *p, const char *name) {
    SND_FAIL_IF(!p, SONDE_EUSAGE, "%s is NULL; an array is needed", name);
    return SONDE_OK;
}

// The caller's scratch, or memory that *own is to be freed with.
static sonde_status room(void *scratch, size_t bytes, void **own, void **out) {
    *own = NULL;
    *out = scratch;
    if (scratch || bytes == 0) return SONDE_OK;
    *own = *out = snd_aligned_alloc(64, (bytes + 63) / 64 * 64);
    SND_FAIL_IF(!*own, SONDE_ENOMEM, "no memory for %zu bytes of scratch", bytes);
    return SONDE_OK;
}

// ---- norms --------------------------------------------------------------------------------------------------------------

static sonde_status check_norm(const sonde_norm *n, int64_t rows, const double *mean, const double *rstd) {
    SND_TRY(need(n, "the norm"));
    SND_TRY(known_type(n->type));
    SND_FAIL_IF(n->kind != SONDE_NORM_LAYER && n->kind != SONDE_NORM_RMS, SONDE_ERANGE,
                "norm kind %d is not one; SONDE_NORM_LAYER or SONDE_NORM_RMS is needed", (int)n->kind);
    SND_FAIL_IF(n->features < 1, SONDE_ERANGE, "%lld features; at least 1 is needed", (long long)n->features);
    SND_FAIL_IF(rows < 0, SONDE_ERANGE, "%lld rows; at least 0 are needed", (long long)rows);
    char eps[40];
    SND_FAIL_IF(!(n->eps >= 0), SONDE_ERANGE, "eps is %s; at least 0 is needed", snd_format_num(eps, n->eps, 6));
    SND_TRY(need(rstd, "rstd"));
    return n->kind == SONDE_NORM_LAYER ? need(mean, "mean") : SONDE_OK;
}

static snd_normspec norm_spec(const sonde_norm *n) {
    return (snd_normspec){.kind = n->kind == SONDE_NORM_RMS ? SND_KNORM_RMS : SND_KNORM_LAYER,
                          .D = n->features,
                          .eps = n->eps,
                          .gadd = n->gain && n->plus1 ? 1 : 0,
                          .g = n->gain,
                          .b = n->bias};
}

sonde_status sonde_norm_forward(const sonde_norm *n, int64_t rows, const void *x, void *y, double *mean, double *rstd) {
    SND_TRY(check_norm(n, rows, mean, rstd));
    SND_TRY(need(x, "x"));
    SND_TRY(need(y, "y"));
    SND_FAIL_IF(x == y, SONDE_EUSAGE, "y is x; an array of its own is needed");
    const snd_normspec s = norm_spec(n);
    (void)snd_k_norm_fwd(cores(n->threads), dtype(n->type), &s, rows, x, y, mean, rstd);
    return SONDE_OK;
}

sonde_status sonde_addnorm_forward(const sonde_norm *n, int64_t rows, double alpha, const void *x, double beta,
                                   const void *y, void *s, void *z, double *mean, double *rstd) {
    SND_TRY(check_norm(n, rows, mean, rstd));
    SND_TRY(need(x, "x"));
    SND_TRY(need(y, "y"));
    SND_TRY(need(s, "s"));
    SND_TRY(need(z, "z"));
    SND_FAIL_IF(z == s || z == x || z == y, SONDE_EUSAGE, "z is also x, y or s; an array of its own is needed");
    const snd_normspec spec = norm_spec(n);
    double top;
    (void)snd_k_addnorm_fwd(cores(n->threads), dtype(n->type), &spec, rows, alpha, x, beta, y, s, z, mean, rstd, &top);
    return SONDE_OK;
}

sonde_status sonde_norm_backward(const sonde_norm *n, int64_t rows, const void *dz, const void *s, const double *mean,
                                 const double *rstd, const void *plus, void *ds, void *dg, void *db, void *scratch) {
    SND_TRY(check_norm(n, rows, mean, rstd));
    SND_TRY(need(dz, "dz"));
    SND_TRY(need(s, "s"));
    SND_FAIL_IF(ds == s, SONDE_EUSAGE, "ds is s; dz, plus or an array of its own is needed");
    void *own, *work;
    SND_TRY(room(scratch, dg || db ? snd_k_norm_bwd_scratch(rows, n->features) : 0, &own, &work));
    const snd_normspec spec = norm_spec(n);
    (void)snd_k_norm_bwd(cores(n->threads), dtype(n->type), &spec, rows, dz, s, mean, rstd, plus, ds, dg, db, work);
    snd_free(own);
    return SONDE_OK;
}

size_t sonde_norm_backward_scratch(int64_t rows, int64_t features) {
    return snd_k_norm_bwd_scratch(rows, features);
}

// ---- attention ----------------------------------------------------------------------------------------------------------

static sonde_status check_attention(const sonde_attention *a) {
    SND_TRY(need(a, "the attention"));
    SND_TRY(known_type(a->type));
    SND_FAIL_IF(
        a->batch < 1 || a->queries < 1 || a->keys < 1 || a->heads < 1 || a->head_dim < 1 || a->kv_heads < 0,
        SONDE_ERANGE, "batch %lld, queries %lld, keys %lld, heads %lld, head_dim %lld; at least 1 of each is needed",
        (long long)a->batch, (long long)a->queries, (long long)a->keys, (long long)a->heads, (long long)a->head_dim);
    SND_FAIL_IF(a->kv_heads > 0 && a->heads % a->kv_heads != 0, SONDE_ERANGE,
                "%lld heads share %lld key and value heads; a divisor of heads is needed", (long long)a->heads,
                (long long)a->kv_heads);
    SND_FAIL_IF(a->causal && a->queries > a->keys, SONDE_ERANGE,
                "%lld causal queries on %lld keys; each query needs its own key", (long long)a->queries,
                (long long)a->keys);
    char scale[40], cap[40];
    SND_FAIL_IF(!isfinite(a->scale) || !(a->softcap >= 0) || a->window < 0, SONDE_ERANGE,
                "scale %s, softcap %s, window %lld; a finite scale and at least 0 is needed",
                snd_format_num(scale, a->scale, 6), snd_format_num(cap, a->softcap, 6), (long long)a->window);
    for (int64_t b = 0; a->lengths && b < a->batch; b++)
        SND_FAIL_IF(a->lengths[b] < 1 || a->lengths[b] > a->keys, SONDE_ERANGE,
                    "lengths[%lld] is %lld; 1 to %lld is needed", (long long)b, (long long)a->lengths[b],
                    (long long)a->keys);
    return SONDE_OK;
}

static snd_kattn attention_call(const sonde_attention *a, const void *q, const void *k, const void *v) {
    const int64_t past = a->keys - a->queries, far = a->keys + a->queries;
    const int64_t back = a->window > 0 && a->window - 1 < far ? a->window - 1 : far;
    return (snd_kattn){.B = a->batch,
                       .Tq = a->queries,
                       .Tk = a->keys,
                       .heads = a->heads,
                       .kv_heads = a->kv_heads > 0 ? a->kv_heads : a->heads,
                       .hd = a->head_dim,
                       .past = past,
                       .front = a->causal ? 0 : back,
                       .back = back,
                       .scale = a->scale != 0 ? a->scale : 1 / sqrt((double)a->head_dim),
                       .softcap = a->softcap,
                       .q = q,
                       .k = k,
                       .v = v,
                       .fq = 1,
                       .fk = 1,
                       .fv = 1,
                       .lengths = a->lengths};
}

// The largest magnitude, NaN where there is one.
static double largest(const sonde_attention *a, int64_t n, const void *p) {
    return a->type == SONDE_TYPE_BF16 ? snd_k_bf16_absmax(n, p) : snd_k_absmax(cores(a->threads), dtype(a->type), n, p);
}

// Whether a number may arise that is not finite, which must not reach who does not read it: then pairs go one by one, at a
// half to a third of the speed. dout: NULL forward.
static bool needs_care(const sonde_attention *a, const snd_kattn *c, const void *out, const double *lse,
                       const void *dout) {
    const int64_t nq = a->batch * a->queries * a->heads * a->head_dim,
                  nk = a->batch * a->keys * c->kv_heads * a->head_dim;
    const double top = (a->type == SONDE_TYPE_F64 ? DBL_MAX : (double)FLT_MAX) / 4, hd = (double)a->head_dim;
    const double q = largest(a, nq, c->q) * fmax(1, fabs(c->scale)), k = largest(a, nk, c->k), v = largest(a, nk, c->v);
    if (!(q <= top && k <= top && q * k * hd <= top && v * (double)a->keys <= top)) return true;
    if (!dout) return false;
    const double up = largest(a, nq, dout), o = largest(a, nq, out);
    if (!(up <= top && o <= top && up * fmax(o, v) * hd <= top)) return true;
    for (int64_t i = 0; i < a->batch * a->heads * a->queries; i++)
        if (!isfinite(lse[i])) return true;
    return false;
}

static snd_kattn_grads gradients(const void *out, const double *lse, const void *dout, void *dq, void *dk, void *dv) {
    return (snd_kattn_grads){.out = out, .dout = dout, .fout = 1, .fdout = 1, .lse = lse, .dq = dq, .dk = dk, .dv = dv};
}

static size_t forward_scratch(const sonde_attention *a, const snd_kattn *call) {
    return a->type == SONDE_TYPE_BF16 ? snd_k_bf16_attn_scratch(call)
                                      : snd_k_attn_scratch(dtype(a->type), call, SND_KATTN_FWD);
}
static size_t backward_scratch(const sonde_attention *a, const snd_kattn *call, const snd_kattn_grads *g) {
    return a->type == SONDE_TYPE_BF16 ? snd_k_bf16_attn_bwd_scratch(call, g)
                                      : snd_k_attn_bwd_scratch(dtype(a->type), call, g);
}

size_t sonde_attention_scratch(const sonde_attention *a) {
    if (check_attention(a) != SONDE_OK) return 0;
    char some; // backward's share depends on what is wanted: all of it
    const snd_kattn call = attention_call(a, &some, &some, &some);
    const snd_kattn_grads g = gradients(&some, NULL, &some, &some, &some, &some);
    const size_t fwd = forward_scratch(a, &call), bwd = backward_scratch(a, &call, &g);
    return fwd > bwd ? fwd : bwd;
}

sonde_status sonde_attention_forward(const sonde_attention *a, const void *q, const void *k, const void *v, void *out,
                                     double *lse, void *scratch) {
    SND_TRY(check_attention(a));
    const void *const arrays[] = {q, k, v, out, lse};
    static const char *const names[] = {"q", "k", "v", "out", "lse"};
    for (int i = 0; i < 5; i++) SND_TRY(need(arrays[i], names[i]));
    snd_kattn call = attention_call(a, q, k, v);
    call.careful = needs_care(a, &call, NULL, NULL, NULL);
    void *own, *work;
    SND_TRY(room(scratch, forward_scratch(a, &call), &own, &work));
    if (a->type == SONDE_TYPE_BF16)
        snd_k_bf16_attn_fwd(cores(a->threads), &call, out, lse, work);
    else
        snd_k_attn_fwd(cores(a->threads), dtype(a->type), &call, out, lse, NULL, work);
    snd_free(own);
    return SONDE_OK;
}

// The kernels, but those of bf16, leave the factor scale to their caller.
static void scale_in_place(const sonde_attention *a, double scale, int64_t tokens, int64_t heads, void *x) {
    if (x)
        (void)snd_k_affine(cores(a->threads), dtype(a->type), a->batch * tokens * heads * a->head_dim, scale, x, 0, x);
}

sonde_status sonde_attention_backward(const sonde_attention *a, const void *q, const void *k, const void *v,
                                      const void *out, const double *lse, const void *dout, void *dq, void *dk,
                                      void *dv, void *scratch) {
    SND_TRY(check_attention(a));
    const void *const arrays[] = {q, k, v, out, lse, dout};
    static const char *const names[] = {"q", "k", "v", "out", "lse", "dout"};
    for (int i = 0; i < 6; i++) SND_TRY(need(arrays[i], names[i]));
    snd_kattn call = attention_call(a, q, k, v);
    call.careful = needs_care(a, &call, out, lse, dout);
    const snd_kattn_grads g = gradients(out, lse, dout, dq, dk, dv);
    void *own, *work;
    SND_TRY(room(scratch, backward_scratch(a, &call, &g), &own, &work));
    if (a->type == SONDE_TYPE_BF16) {
        snd_k_bf16_attn_bwd(cores(a->threads), &call, &g, work);
    } else {
        snd_k_attn_bwd(cores(a->threads), dtype(a->type), &call, &g, work);
        scale_in_place(a, call.scale, a->queries, a->heads, dq);
        scale_in_place(a, call.scale, a->keys, call.kv_heads, dk);
    }
    snd_free(own);
    return SONDE_OK;
}

// ---- losses -------------------------------------------------------------------------------------------------------------

// What logits in bf16 are widened into; NULL for other types.
static sonde_status row_blocks(sonde_type t, int threads, int64_t rows, int64_t classes, void **blocks) {
    void *work;
    return room(NULL, t == SONDE_TYPE_BF16 && rows > 0 ? snd_k_bf16_rows_scratch(threads, classes) : 0, blocks, &work);
}

static sonde_status check_loss(sonde_type t, int64_t rows, int64_t classes, double smoothing, const void *logits,
                               const int64_t *target, int64_t ignore, const double *lse) {
    SND_TRY(known_type(t));
    SND_FAIL_IF(rows < 0 || classes < 1, SONDE_ERANGE, "%lld rows of %lld classes; at least 0 and 1 are needed",
                (long long)rows, (long long)classes);
    char share[40];
    SND_FAIL_IF(!(smoothing >= 0 && smoothing < 1), SONDE_ERANGE, "smoothing is %s; 0 to below 1 is needed",
                snd_format_num(share, smoothing, 6));
    SND_TRY(need(logits, "logits"));
    SND_TRY(need(target, "target"));
    SND_TRY(need(lse, "lse"));
    for (int64_t i = 0; i < rows; i++)
        SND_FAIL_IF(target[i] != ignore && (target[i] < 0 || target[i] >= classes), SONDE_ERANGE,
                    "target[%lld] is %lld; a class from 0 to %lld or %lld is needed", (long long)i,
                    (long long)target[i], (long long)classes - 1, (long long)ignore);
    return SONDE_OK;
}

sonde_status sonde_cross_entropy_forward(sonde_type type, int64_t rows, int64_t classes, double smoothing,
                                         const void *logits, const int64_t *target, int64_t ignore, double *lse,
                                         int64_t *used, double *loss, int threads) {
    SND_TRY(check_loss(type, rows, classes, smoothing, logits, target, ignore, lse));
    SND_TRY(need(used, "used"));
    SND_TRY(need(loss, "loss"));
    const int th = cores(threads);
    void *blocks;
    SND_TRY(row_blocks(type, th, rows, classes, &blocks));
    *loss = type == SONDE_TYPE_BF16
                ? snd_k_bf16_xent_fwd(th, rows, classes, 1, smoothing, logits, target, ignore, lse, used, blocks)
                : snd_k_xent_fwd(th, dtype(type), rows, classes, 1, smoothing, logits, target, ignore, lse, used);
    snd_free(blocks);
    return SONDE_OK;
}

sonde_status sonde_cross_entropy_backward(sonde_type type, int64_t rows, int64_t classes, double smoothing,
                                          const void *logits, const int64_t *target, int64_t ignore, const double *lse,
                                          int64_t used, double dloss, void *dlogits, int threads) {
    SND_TRY(check_loss(type, rows, classes, smoothing, logits, target, ignore, lse));
    SND_TRY(need(dlogits, "dlogits"));
    SND_FAIL_IF(used < 0 || used > rows, SONDE_ERANGE, "used is %lld; 0 to %lld is needed", (long long)used,
                (long long)rows);
    const int th = cores(threads);
    void *blocks;
    SND_TRY(row_blocks(type, th, rows, classes, &blocks));
    if (type == SONDE_TYPE_BF16)
        snd_k_bf16_xent_bwd(th, rows, classes, 1, smoothing, logits, target, ignore, lse, used, dloss, dlogits, blocks);
    else
        snd_k_xent_bwd(th, dtype(type), rows, classes, 1, smoothing, logits, target, ignore, lse, used, dloss, dlogits);
    snd_free(blocks);
    return SONDE_OK;
}
