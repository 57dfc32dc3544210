// A decoder's state is a buffer per self-attention for keys and one for values, [rows, capacity, features], written by the
// graphs themselves; for cross-attention the keys and values of the encoder's output and for xl the relative keys, filled by
// a graph of their own, which is the whole model with only these values kept. A graph of n new tokens is made when one is
// wanted; longer texts go through in powers of two.
#include "lab/decode.h"

#include <assert.h>
#include <string.h>

enum { MOST_AT_ONCE = 256, PROGRAMS = 9 }; // 1, 2, 4, .. 256

typedef struct program {
    snd_model *m;
    snd_exec *exec;
} program;

typedef struct buffer {
    const char *name;
    snd_rv v;
    snd_shape shape;
    bool grows; // with the sequence: of self-attention
} buffer;

struct snd_decoder {
    snd_arena *arena;
    snd_weights *net;
    snd_decoder_opts o;
    int64_t vocab, length;
    bool encoded;
    program step[PROGRAMS];
    buffer *buffers;
    int n_buffers;
    char *slab, *spare; // spare: for reordering, made when that is first asked for
    size_t bytes, largest;
    int64_t *positions, *piece;
};

// ---- graphs ---------------------------------------------------------------------------------------------------------------

static snd_build build_of(const snd_decoder *d, int64_t n) {
    return (snd_build){.dtype = d->net->dtype,
                       .rows = d->o.rows,
                       .tokens = n,
                       .src_tokens = d->o.src_tokens,
                       .capacity = d->o.capacity,
                       .last = !d->o.every,
                       .eval = true};
}

static sonde_status make_exec(snd_decoder *d, snd_model *m, const snd_id *keep, int n_keep, snd_exec **out) {
    snd_plan *plan;
    (void)snd_g_fuse(m->g, keep, n_keep);
    SND_TRY(snd_plan_make(d->arena, m->g, keep, n_keep, &plan));
    const snd_exec_opts eo = {.threads = d->net->threads, .stop = d->o.stop};
    return snd_exec_create(m->g, plan, &d->net->source, &eo, out);
}

static buffer *find_buffer(snd_decoder *d, const char *name) {
    for (int i = 0; i < d->n_buffers; i++)
        if (!strcmp(d->buffers[i].name, name)) return &d->buffers[i];
    return NULL;
}

// The values that outlast a run, by the names of calls: last parts of the stack may not need all of them.
static sonde_status make_program(snd_decoder *d, int64_t n, program *p) {
    const snd_build b = build_of(d, n);
    if (p->exec) return SONDE_OK;
    SND_TRY(snd_model_build(d->arena, d->net->spec, &b, &p->m));
    SND_TRY(make_exec(d, p->m, &p->m->logits, 1, &p->exec));
    for (int i = 0; i < p->m->n_buffers; i++)
        snd_exec_bind(p->exec, p->m->buffers[i].v, &find_buffer(d, p->m->buffers[i].name)->v);
    return SONDE_OK;
}

// ---- buffers --------------------------------------------------------------------------------------------------------------

static size_t bytes_of(const snd_decoder *d, snd_shape s) {
    return ((size_t)snd_shape_size(s) * snd_dtype_size(d->net->dtype) + 63) / 64 * 64;
}

static bool grows(const snd_model *m, int i) {
    const int32_t n = snd_g_node_count(m->g);
    for (int32_t k = 0; k < n; k++) {
        const snd_node *node = snd_g_node(m->g, k);
        if (node && node->op == SND_OP_APPEND && node->in[0] == m->buffers[i].v) return true;
    }
    return false;
}

// As the model of one token names them.
static sonde_status make_buffers(snd_decoder *d, const snd_model *m) {
    SND_NEW(d->arena, d->buffers, m->n_buffers + 1);
    for (int i = 0; i < m->n_buffers; i++) {
        const snd_shape s = snd_g_value(m->g, m->buffers[i].v)->shape;
        d->buffers[i] = (buffer){.name = m->buffers[i].name, .shape = s, .grows = grows(m, i)};
        const size_t bytes = bytes_of(d, s);
        d->bytes += bytes;
        d->largest = bytes > d->largest ? bytes : d->largest;
    }
    d->n_buffers = m->n_buffers;
    d->slab = snd_slab_alloc(d->bytes ? d->bytes : 64);
    SND_FAIL_IF(!d->slab, SONDE_ENOMEM,
                "no memory for the keys and values of %lld sequences of %lld tokens (%zu bytes)", (long long)d->o.rows,
                (long long)d->o.capacity, d->bytes);
    memset(d->slab, 0, d->bytes); // attention multiplies what it masks by 0
    char *at = d->slab;
    for (int i = 0; i < d->n_buffers; i++) {
        d->buffers[i].v = (snd_rv){.p = at};
        at += bytes_of(d, d->buffers[i].shape);
    }
    return SONDE_OK;
}

// ---- what is computed once ------------------------------------------------------------------------------------------------

// Every value of the encoder's sequence serves `times` sequences of the decoder.
static void spread(const snd_decoder *d, const snd_exec *x, snd_id v, buffer *b, int64_t times) {
    int32_t e;
    const char *from = snd_exec_raw(x, v, &e);
    const size_t row = (size_t)(snd_shape_size(b->shape) / b->shape.dim[0]) * snd_dtype_size(d->net->dtype);
    for (int64_t i = 0; i < b->shape.dim[0]; i++)
        memcpy((char *)b->v.p + (size_t)i * row, from + (size_t)(i / times) * row, row);
    b->v.e = e;
    b->v.amax = snd_k_absmax(d->net->threads, d->net->dtype, snd_shape_size(b->shape), b->v.p);
}

static bool has_relative_keys(const snd_decoder *d) {
    for (int i = 0; i < d->n_buffers; i++)
        if (!d->buffers[i].grows && d->buffers[i].shape.nd == 2) return true;
    return false;
}

static sonde_status run_once(snd_decoder *d, snd_model *m, snd_exec *x, const int64_t *src) {
    if (src) SND_TRY(snd_exec_set(x, snd_model_input(m, "src_tokens"), src, SND_I64));
    SND_TRY(snd_exec_run(x));
    for (int i = 0; i < m->n_fixed; i++) {
        buffer *b = find_buffer(d, m->fixed[i].name);
        if (b) spread(d, x, m->fixed[i].v, b, b->shape.nd == 2 ? 1 : d->o.rows / d->o.src_rows);
    }
    return SONDE_OK;
}

// Keys of all distances come from a sequence as long as the capacity; nothing else of it is computed.
static sonde_status compute_fixed(snd_decoder *d, const int64_t *src) {
    snd_model *m;
    snd_exec *x = NULL;
    const snd_build b = {.dtype = d->net->dtype,
                         .rows = d->o.src_rows,
                         .tokens = has_relative_keys(d) ? d->o.capacity : 1,
                         .src_tokens = d->o.src_tokens,
                         .eval = true};
    SND_TRY(snd_model_build(d->arena, d->net->spec, &b, &m));
    snd_id *keep;
    SND_NEW(d->arena, keep, m->n_fixed + 1);
    for (int i = 0; i < m->n_fixed; i++) keep[i] = m->fixed[i].v;
    SND_TRY(make_exec(d, m, keep, m->n_fixed, &x));
    const sonde_status s = run_once(d, m, x, src);
    snd_exec_destroy(x);
    return s;
}

// ---- opening ----------------------------------------------------------------------------------------------------------------

sonde_status snd_decodes(const snd_spec *s) {
    const bool transformer = s->family == SND_FAM_TRANSFORMER;
    SND_FAIL_IF(
        !transformer || s->arch == SND_ARCH_ENCODER, SONDE_EUNSUPPORTED,
        "this model is %s%s; text comes from a decoder (arch decoder or encoder-decoder), whose tokens read only "
        "what stands before them",
        transformer ? "an " : "of family ", transformer ? snd_arch_name(s->arch) : snd_family_name(s->family));
    SND_FAIL_IF(s->vocab <= 0, SONDE_EUNSUPPORTED, "this model has no vocab, hence no tokens to go on with");
    return SONDE_OK;
}

static sonde_status check(const snd_decoder *d) {
    const snd_spec *s = d->net->spec;
    SND_TRY(snd_decodes(s));
    SND_FAIL_IF(d->o.rows < 1 || d->o.capacity < 1 || d->o.rows % d->o.src_rows, SONDE_EINTERNAL,
                "a decoder of %lld sequences, %lld tokens, %lld sequences of the encoder", (long long)d->o.rows,
                (long long)d->o.capacity, (long long)d->o.src_rows);
    SND_FAIL_IF(s->position == SND_POS_LEARNED && d->o.capacity > s->context, SONDE_EINPUT,
                "sequences of %lld tokens; learned positions end at context, %lld", (long long)d->o.capacity,
                (long long)s->context);
    return SONDE_OK;
}

static sonde_status open_decoder(snd_decoder *d) {
    SND_TRY(check(d));
    d->vocab = d->net->spec->vocab;
    SND_NEW(d->arena, d->positions, MOST_AT_ONCE);
    SND_NEW(d->arena, d->piece, d->o.rows * MOST_AT_ONCE);
    snd_model *m;
    const snd_build b = build_of(d, 1);
    SND_TRY(snd_model_build(d->arena, d->net->spec, &b, &m));
    SND_FAIL_IF(m->cond, SONDE_EUNSUPPORTED, "this wiring reads c, a vector per example that a text does not bring");
    SND_TRY(make_buffers(d, m));
    const bool encoder = d->net->spec->arch == SND_ARCH_ENCDEC;
    return encoder || !has_relative_keys(d) ? SONDE_OK : compute_fixed(d, NULL);
}

sonde_status snd_decoder_open(snd_weights *net, const snd_decoder_opts *o, snd_decoder **out) {
    *out = NULL;
    snd_decoder *d = snd_calloc(1, sizeof *d);
    if (!d) return SONDE_ENOMEM;
    *d = (snd_decoder){.arena = snd_arena_create(), .net = net, .o = *o};
    if (!d->o.src_rows) d->o.src_rows = d->o.rows;
    const sonde_status s = d->arena ? open_decoder(d) : SONDE_ENOMEM;
    if (s == SONDE_OK)
        *out = d;
    else
        snd_decoder_close(d);
    return s;
}

void snd_decoder_close(snd_decoder *d) {
    if (!d) return;
    for (int i = 0; i < PROGRAMS; i++) snd_exec_destroy(d->step[i].exec);
    snd_free(d->slab);
    snd_free(d->spare);
    snd_arena_destroy(d->arena);
    snd_free(d);
}

size_t snd_decoder_bytes(const snd_decoder *d) {
    return d->bytes;
}

int64_t snd_decoder_length(const snd_decoder *d) {
    return d->length;
}

// ---- going on ---------------------------------------------------------------------------------------------------------------

static sonde_status check_tokens(const snd_decoder *d, const int64_t *tokens, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        SND_FAIL_IF(tokens[i] < 0 || tokens[i] >= d->vocab, SONDE_ERANGE,
                    "token %lld; the model's vocabulary goes from 0 to %lld", (long long)tokens[i],
                    (long long)d->vocab - 1);
    return SONDE_OK;
}

sonde_status snd_decoder_encode(snd_decoder *d, const int64_t *tokens) {
    SND_FAIL_IF(d->net->spec->arch != SND_ARCH_ENCDEC, SONDE_EUNSUPPORTED, "this model has no encoder");
    SND_TRY(check_tokens(d, tokens, d->o.src_rows * d->o.src_tokens));
    d->length = 0;
    d->encoded = true;
    return compute_fixed(d, tokens);
}

static int program_of(int64_t n) {
    int k = 0;
    while (k + 1 < PROGRAMS && (int64_t)2 << k <= n) k++;
    return k;
}

static sonde_status run_piece(snd_decoder *d, program *p, int64_t n, double *logits) {
    for (int64_t i = 0; i < n; i++) d->positions[i] = d->length + i;
    SND_TRY(snd_exec_set(p->exec, p->m->input, d->piece, SND_I64));
    SND_TRY(snd_exec_set(p->exec, p->m->positions, d->positions, SND_I64));
    SND_TRY(snd_exec_run(p->exec));
    d->length += n;
    return logits ? snd_exec_get(p->exec, p->m->logits, logits) : SONDE_OK;
}

// Logits of a piece [rows, n, vocab] to their place in [rows, all, vocab].
static void place_logits(const snd_decoder *d, const double *from, int64_t n, int64_t first, int64_t all, double *to) {
    for (int64_t r = 0; r < d->o.rows; r++)
        memcpy(to + (r * all + first) * d->vocab, from + r * n * d->vocab, (size_t)(n * d->vocab) * sizeof *to);
}

static sonde_status push_piece(snd_decoder *d, const int64_t *tokens, int64_t first, int64_t n, int64_t all,
                               double *logits) {
    program *p = &d->step[program_of(n)];
    SND_TRY(make_program(d, n, p));
    for (int64_t r = 0; r < d->o.rows; r++)
        for (int64_t i = 0; i < n; i++) d->piece[r * n + i] = tokens[r * all + first + i];
    if (!logits || !d->o.every) return run_piece(d, p, n, first + n == all ? logits : NULL);
    double *own = snd_malloc((size_t)(d->o.rows * n * d->vocab) * sizeof *own);
    if (!own) return SONDE_ENOMEM;
    const sonde_status s = run_piece(d, p, n, own);
    if (s == SONDE_OK) place_logits(d, own, n, first, all, logits);
    snd_free(own);
    return s;
}

sonde_status snd_decoder_push(snd_decoder *d, const int64_t *tokens, int64_t n, double *logits) {
    SND_FAIL_IF(d->length + n > d->o.capacity, SONDE_ERANGE, "%lld tokens after %lld; the decoder holds %lld",
                (long long)n, (long long)d->length, (long long)d->o.capacity);
    SND_FAIL_IF(d->net->spec->arch == SND_ARCH_ENCDEC && !d->encoded, SONDE_EINTERNAL, "nothing was encoded");
    SND_TRY(check_tokens(d, tokens, d->o.rows * n));
    for (int64_t at = 0; at < n;) {
        const int64_t step = (int64_t)1 << program_of(n - at);
        SND_TRY(push_piece(d, tokens, at, step, n, logits));
        at += step;
    }
    return SONDE_OK;
}

// ---- beams ------------------------------------------------------------------------------------------------------------------

static void select_rows(const snd_decoder *d, buffer *b, const int64_t *from) {
    const size_t size = snd_dtype_size(d->net->dtype), used = (size_t)(d->length * b->shape.dim[2]) * size,
                 apart = (size_t)(b->shape.dim[1] * b->shape.dim[2]) * size;
    char *p = b->v.p;
    for (int64_t i = 0; i < d->o.rows; i++) memcpy(d->spare + (size_t)i * used, p + (size_t)i * apart, used);
    for (int64_t i = 0; i < d->o.rows; i++)
        if (from[i] != i) memcpy(p + (size_t)i * apart, d->spare + (size_t)from[i] * used, used);
}

sonde_status snd_decoder_select(snd_decoder *d, const int64_t *from) {
    bool moved = false;
    for (int64_t i = 0; i < d->o.rows; i++) {
        assert(from[i] >= 0 && from[i] < d->o.rows);
        moved = moved || from[i] != i;
    }
    if (!moved) return SONDE_OK;
    if (!d->spare) d->spare = snd_malloc(d->largest);
    if (!d->spare) return SONDE_ENOMEM;
    for (int i = 0; i < d->n_buffers; i++)
        if (d->buffers[i].grows) select_rows(d, &d->buffers[i], from);
    return SONDE_OK;
}

void snd_decoder_cut(snd_decoder *d, int64_t n) {
    d->length = n < d->length ? n : d->length;
}
