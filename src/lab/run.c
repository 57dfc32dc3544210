// run: a spec, weights and inputs from safetensors files; values and gradients into another. The contract is
// docs/formulas.md section 8. Weights must match the spec's parameters exactly, by name and shape.
#include "lab/fit.h"
#include "lab/lab.h"
#include "lab/weights.h"

#include <math.h>
#include <string.h>

typedef struct job {
    snd_arena *arena;
    const snd_spec *spec;
    const snd_run_opts *o;
    snd_stfile *weights, *input;
    snd_model *m;
    snd_id dy; // graph input: gradient of out.x or logits; 0: none
    snd_tap *outs;
    int n_outs; // what is written
    int64_t cap_outs;
    bool drawn; // weights come when they are used
    snd_source source;
    snd_exec *exec;
} job;

static sonde_status add_out(job *j, const char *name, snd_id v) {
    for (int i = 0; i < j->n_outs; i++)
        if (!strcmp(j->outs[i].name, name)) return SONDE_OK;
    if (j->n_outs == j->cap_outs) {
        snd_tap *more;
        j->cap_outs = j->cap_outs ? 2 * j->cap_outs : 64;
        SND_NEW(j->arena, more, j->cap_outs);
        if (j->n_outs) memcpy(more, j->outs, (size_t)j->n_outs * sizeof *more);
        j->outs = more;
    }
    j->outs[j->n_outs++] = (snd_tap){name, v};
    return SONDE_OK;
}

// ---- inputs ---------------------------------------------------------------------------------------------------------------

static const snd_tensor *given(const job *j, const char *name) {
    return j->input ? snd_st_find(j->input, name) : NULL;
}

static bool is_integer(snd_dtype t) {
    return t == SND_I64 || t == SND_I32;
}

static sonde_status need_floats(const char *file, const snd_tensor *t) {
    SND_FAIL_IF(t->dtype > SND_F16, SONDE_ETYPE, "%s: %s is %s; floating point is needed", file, t->name,
                snd_dtype_name(t->dtype));
    return SONDE_OK;
}

static sonde_status need_integers(const job *j, const snd_tensor *t) {
    SND_FAIL_IF(!is_integer(t->dtype), SONDE_ETYPE, "%s: %s is %s; I64 or I32 is needed", j->o->input, t->name,
                snd_dtype_name(t->dtype));
    return SONDE_OK;
}

static int64_t integer_at(const snd_tensor *t, int64_t i) {
    return t->dtype == SND_I64 ? ((const int64_t *)t->data)[i] : ((const int32_t *)t->data)[i];
}

static sonde_status input_rows(const job *j, snd_build *b) {
    const snd_tensor *t = given(j, "input");
    const int64_t features = j->spec->inputs > 0 ? j->spec->inputs : j->spec->width;
    SND_FAIL_IF(!t, SONDE_EINPUT, "%s: found no tensor 'input'; the mlp family needs input [examples, %lld]",
                j->o->input, (long long)features);
    char s[160];
    SND_FAIL_IF(t->shape.nd != 2 || t->shape.dim[1] != features || t->shape.dim[0] < 1, SONDE_ESHAPE,
                "%s: input has shape %s; the model needs [examples, %lld]", j->o->input, snd_shape_text(t->shape, s),
                (long long)features);
    SND_TRY(need_floats(j->o->input, t));
    b->rows = t->shape.dim[0];
    return SONDE_OK;
}

static sonde_status input_images(const job *j, snd_build *b) {
    const snd_tensor *t = given(j, "input");
    const int64_t channels = j->spec->inputs > 0 ? j->spec->inputs : j->spec->width;
    SND_FAIL_IF(!t, SONDE_EINPUT, "%s: found no tensor 'input'; the convnet family needs input [examples, %lld, H, W]",
                j->o->input, (long long)channels);
    char s[160];
    SND_FAIL_IF(t->shape.nd != 4 || t->shape.dim[1] != channels || snd_shape_size(t->shape) < 1, SONDE_ESHAPE,
                "%s: input has shape %s; the model needs [examples, %lld, H, W]", j->o->input,
                snd_shape_text(t->shape, s), (long long)channels);
    SND_TRY(need_floats(j->o->input, t));
    b->rows = t->shape.dim[0];
    b->height = t->shape.dim[2];
    b->width = t->shape.dim[3];
    return SONDE_OK;
}

static sonde_status check_tokens(const job *j, const snd_tensor *t) {
    char s[160];
    SND_TRY(need_integers(j, t));
    SND_FAIL_IF(j->spec->vocab <= 0, SONDE_EINPUT, "%s: %s is given, but this model has no vocab; give %s", j->o->input,
                t->name, t->name[0] == 's' ? "src_x" : "x");
    SND_FAIL_IF(t->shape.nd != 2 || snd_shape_size(t->shape) < 1, SONDE_ESHAPE,
                "%s: %s has shape %s; [examples, tokens] is needed", j->o->input, t->name, snd_shape_text(t->shape, s));
    for (int64_t i = 0; i < snd_shape_size(t->shape); i++) {
        const int64_t v = integer_at(t, i), T = t->shape.dim[1];
        SND_FAIL_IF(v < 0 || v >= j->spec->vocab, SONDE_ERANGE,
                    "%s: %s[%lld, %lld] is %lld; tokens of this vocab go from 0 to %lld", j->o->input, t->name,
                    (long long)(i / T), (long long)(i % T), (long long)v, (long long)j->spec->vocab - 1);
    }
    return SONDE_OK;
}

static sonde_status check_stream(const job *j, const snd_tensor *t) {
    char s[160];
    SND_TRY(need_floats(j->o->input, t));
    SND_FAIL_IF(t->shape.nd != 3 || t->shape.dim[2] != j->spec->width || snd_shape_size(t->shape) < 1, SONDE_ESHAPE,
                "%s: %s has shape %s; [examples, tokens, %lld] is needed", j->o->input, t->name,
                snd_shape_text(t->shape, s), (long long)j->spec->width);
    return SONDE_OK;
}

// Exactly one of what can come in at the bottom of a stack; names[f] is that of feed f, or NULL.
static sonde_status one_of(const job *j, const char *const names[], const char *list, snd_feed *feed, int64_t *B,
                           int64_t *T) {
    const snd_tensor *t = NULL;
    for (int f = SND_FEED_TOKENS; f <= SND_FEED_MEMORY; f++) {
        const snd_tensor *next = names[f] ? given(j, names[f]) : NULL;
        SND_FAIL_IF(t && next, SONDE_EINPUT, "%s: both %s and %s are given; one of them is needed", j->o->input,
                    t->name, next->name);
        if (!next) continue;
        t = next;
        *feed = (snd_feed)f;
    }
    const bool vocab = j->spec->vocab > 0;
    SND_FAIL_IF(!t, SONDE_EINPUT, "%s: found none of %s; %s [examples, tokens%s] is needed", j->o->input, list,
                names[vocab ? SND_FEED_TOKENS : SND_FEED_STREAM], vocab ? "" : ", width");
    SND_TRY(*feed == SND_FEED_TOKENS ? check_tokens(j, t) : check_stream(j, t));
    *B = t->shape.dim[0];
    *T = t->shape.dim[1];
    return SONDE_OK;
}

// XL: "mem.layers.3.A" [B, Tp, d], what that sublayer read of the segment before.
static sonde_status read_pasts(const job *j, snd_build *b) {
    snd_past *past;
    char s[160];
    SND_NEW(j->arena, past, snd_st_count(j->input) + 1);
    for (int64_t i = 0; i < snd_st_count(j->input); i++) {
        const snd_tensor *t = snd_st_at(j->input, i);
        if (strncmp(t->name, "mem.", 4) != 0) continue;
        SND_TRY(check_stream(j, t));
        SND_FAIL_IF(t->shape.dim[0] != b->rows, SONDE_ESHAPE, "%s: %s has shape %s; %lld examples are needed",
                    j->o->input, t->name, snd_shape_text(t->shape, s), (long long)b->rows);
        past[b->n_past++] = (snd_past){t->name + 4, t->shape.dim[1]};
    }
    b->past = past;
    return SONDE_OK;
}

// How many source tokens of each example are no padding.
static sonde_status read_lengths(const job *j, snd_build *b) {
    const snd_tensor *t = given(j, "src_lengths");
    char s[160];
    if (!t) return SONDE_OK;
    SND_TRY(need_integers(j, t));
    SND_FAIL_IF(t->shape.nd != 1 || t->shape.dim[0] != b->rows, SONDE_ESHAPE,
                "%s: src_lengths has shape %s; [%lld] is needed", j->o->input, snd_shape_text(t->shape, s),
                (long long)b->rows);
    for (int64_t i = 0; i < b->rows; i++)
        SND_FAIL_IF(integer_at(t, i) < 1 || integer_at(t, i) > b->src_tokens, SONDE_ERANGE,
                    "%s: src_lengths[%lld] is %lld; 1 to %lld source tokens are there", j->o->input, (long long)i,
                    (long long)integer_at(t, i), (long long)b->src_tokens);
    b->src_lengths = true;
    return SONDE_OK;
}

static sonde_status sequences(const job *j, snd_build *b) {
    static const char *const own[] = {NULL, "tokens", "x", NULL}, *const src[] = {NULL, "src_tokens", "src_x",
                                                                                  "memory"};
    int64_t B = 0;
    SND_TRY(one_of(j, own, "tokens, x", &b->feed, &b->rows, &b->tokens));
    if (j->spec->arch == SND_ARCH_ENCDEC) {
        SND_TRY(one_of(j, src, "src_tokens, src_x, memory", &b->src_feed, &B, &b->src_tokens));
        SND_FAIL_IF(B != b->rows, SONDE_ESHAPE, "%s: %s has %lld examples, %s has %lld; as many are needed",
                    j->o->input, own[b->feed], (long long)b->rows, src[b->src_feed], (long long)B);
        SND_TRY(read_lengths(j, b));
    }
    return read_pasts(j, b);
}

// What files may hold besides mem.*, by family.
static int known_inputs(const snd_spec *s, const char **names) {
    static const char *const rows[] = {"input", "cond", "dy", "targets"};
    static const char *const tf[] = {"tokens",     "x",     "cond",   "dy",         "targets",
                                     "src_tokens", "src_x", "memory", "src_lengths"};
    const bool sequences = s->family == SND_FAM_TRANSFORMER;
    const int n = !sequences ? 4 : s->arch == SND_ARCH_ENCDEC ? 9 : 5;
    for (int i = 0; i < n; i++) names[i] = sequences ? tf[i] : rows[i];
    return n;
}

static sonde_status unknown_input(const job *j, const char *name, const char *const *known, int n) {
    char list[160] = "";
    for (int i = 0; i < n; i++) {
        const size_t at = strlen(list);
        snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "", known[i]);
    }
    const char *near = snd_nearest(name, known, n);
    SND_FAIL(SONDE_ENAME, "%s: unknown input '%s'%s%s%s; this model reads %s", j->o->input, name,
             near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "", list);
}

static sonde_status refuse_unknown_inputs(const job *j) {
    const char *known[9];
    const int n = known_inputs(j->spec, known);
    const bool xl = j->spec->family == SND_FAM_TRANSFORMER && j->spec->position == SND_POS_XL;
    for (int64_t i = 0; i < snd_st_count(j->input); i++) {
        const char *name = snd_st_at(j->input, i)->name;
        bool ok = xl && !strncmp(name, "mem.", 4);
        for (int k = 0; k < n; k++) ok = ok || !strcmp(name, known[k]);
        if (!ok) return unknown_input(j, name, known, n);
    }
    return SONDE_OK;
}

static sonde_status check_targets(const job *j, const snd_tensor *t) {
    char s[160], sw[160];
    const snd_shape want = snd_g_value(j->m->g, j->m->targets)->shape,
                    logits = snd_g_value(j->m->g, j->m->logits)->shape;
    const int64_t classes = logits.dim[logits.nd - 1];
    SND_TRY(need_integers(j, t));
    SND_FAIL_IF(!snd_shape_same(t->shape, want), SONDE_ESHAPE, "%s: targets has shape %s; %s is needed", j->o->input,
                snd_shape_text(t->shape, s), snd_shape_text(want, sw));
    for (int64_t i = 0; i < snd_shape_size(t->shape); i++) {
        const int64_t v = integer_at(t, i);
        SND_FAIL_IF(v != -100 && (v < 0 || v >= classes), SONDE_ERANGE,
                    "%s: targets[%lld] is %lld; classes go from 0 to %lld (or -100: ignored)", j->o->input,
                    (long long)i, (long long)v, (long long)classes - 1);
    }
    return SONDE_OK;
}

// A convnet's values as files hold them: [B, channels, H, W].
static bool is_map(const job *j, snd_id v) {
    return j->spec->family == SND_FAM_CONVNET && snd_g_value(j->m->g, v)->shape.nd == 4;
}

static snd_id as_written(const job *j, snd_id v) {
    return is_map(j, v) ? snd_g_channels_first(j->m->g, v) : v;
}

static snd_shape written_shape(const job *j, snd_id v) {
    const snd_shape s = snd_g_value(j->m->g, v)->shape;
    return is_map(j, v) ? SND_SHAPE(s.dim[0], s.dim[3], s.dim[1], s.dim[2]) : s;
}

// dy belongs to the logits when it has their shape, else to out.x.
static sonde_status find_dy(job *j, snd_id *of) {
    const snd_tensor *t = given(j, "dy");
    *of = 0;
    if (!t) return SONDE_OK;
    const snd_shape x = written_shape(j, j->m->out_x);
    char s[160], sx[160], sl[160] = "";
    if (j->m->logits && snd_shape_same(t->shape, snd_g_value(j->m->g, j->m->logits)->shape))
        *of = j->m->logits;
    else if (snd_shape_same(t->shape, x))
        *of = j->m->out_x;
    if (j->m->logits) snd_shape_text(snd_g_value(j->m->g, j->m->logits)->shape, sl);
    SND_FAIL_IF(!*of, SONDE_ESHAPE, "%s: dy has shape %s; out.x has %s%s%s", j->o->input, snd_shape_text(t->shape, s),
                snd_shape_text(x, sx), *sl ? ", logits " : "", sl);
    SND_TRY(need_floats(j->o->input, t));
    j->dy = snd_g_input(j->m->g, "dy", t->shape, SND_DT_NONE);
    return SONDE_OK;
}

static sonde_status check_cond(const job *j, snd_build *b) {
    const snd_tensor *c = given(j, "cond");
    b->with_cond = c != NULL;
    if (!c) return SONDE_OK;
    SND_FAIL_IF(!j->spec->cond, SONDE_EINPUT, "%s: cond is given, but this model has none; give cond=FEATURES",
                j->o->input);
    const snd_shape want = SND_SHAPE(b->rows, j->spec->cond);
    char s[160], sw[160];
    SND_FAIL_IF(!snd_shape_same(c->shape, want), SONDE_ESHAPE, "%s: cond has shape %s; %s is needed", j->o->input,
                snd_shape_text(c->shape, s), snd_shape_text(want, sw));
    return need_floats(j->o->input, c);
}

// ---- weights ----------------------------------------------------------------------------------------------------------------

// To what the narrow type holds, in place.
static void round_through(snd_dtype narrow, void *data, snd_dtype type, int64_t n) {
    uint16_t held[512];
    for (int64_t i = 0; i < n; i += 512) {
        const int64_t m = n - i < 512 ? n - i : 512;
        void *at = (char *)data + (size_t)i * snd_dtype_size(type);
        snd_convert(at, type, held, narrow, m);
        snd_convert(held, narrow, at, type, m);
    }
}

// Running averages are no weights: they stay.
static sonde_status round_weights(job *j) {
    const snd_graph *g = j->m->g;
    for (int i = 0; i < snd_g_param_count(g); i++) {
        const snd_value *v = snd_g_value(g, snd_g_param_at(g, i));
        void *data;
        if (snd_g_param_is_state(g, i)) continue;
        SND_TRY(snd_source_data(&j->source, g, i, &data));
        round_through(j->o->round_weights, data, v->dtype, snd_shape_size(v->shape));
    }
    return SONDE_OK;
}

static sonde_status load_weights(job *j) {
    if (j->weights) SND_TRY(snd_weights_fill(j->weights, j->m->g, !j->o->round_weights, &j->source));
    return j->o->round_weights ? round_weights(j) : SONDE_OK;
}

// ---- what is asked for --------------------------------------------------------------------------------------------------------

static bool wanted(const job *j, const char *name, bool *hit) {
    bool any = false;
    for (int i = 0; i < j->o->n_taps; i++)
        if (snd_match(j->o->taps[i], name)) any = hit[i] = true;
    return any;
}

static sonde_status ask_forward(job *j, bool *hit) {
    const snd_model *m = j->m;
    SND_TRY(add_out(j, "out.x", as_written(j, m->out_x)));
    if (m->logits) SND_TRY(add_out(j, "logits", m->logits));
    if (m->loss) SND_TRY(add_out(j, "loss", m->loss));
    for (int i = 0; i < m->n_taps; i++)
        if (wanted(j, m->taps[i].name, hit)) SND_TRY(add_out(j, m->taps[i].name, as_written(j, m->taps[i].v)));
    (void)wanted(j, "out.x", hit);
    (void)wanted(j, "logits", hit);
    (void)wanted(j, "loss", hit);
    return SONDE_OK;
}

// Not tokens and targets, and not what an XL sublayer remembers.
static bool has_gradient(const snd_graph *g, const snd_tap *input) {
    return !is_integer(snd_g_value(g, input->v)->dtype) && strncmp(input->name, "mem.", 4) != 0;
}

// Parameters and inputs, then every tap whose gradient is asked for; one reverse pass serves all.
static sonde_status ask_backward(job *j, snd_id of, bool *hit) {
    const snd_model *m = j->m;
    snd_graph *g = m->g;
    const int most = snd_g_param_count(g) + m->n_taps + m->n_inputs + 1;
    snd_tap *want;
    snd_id *wrt, *grad;
    int n = 0, first_tap;
    SND_NEW(j->arena, want, most);
    SND_NEW(j->arena, wrt, most);
    SND_NEW(j->arena, grad, most);
    for (int i = 0; i < snd_g_param_count(g); i++)
        if (!snd_g_param_is_state(g, i))
            want[n++] = (snd_tap){snd_g_value(g, snd_g_param_at(g, i))->name, snd_g_param_at(g, i)};
    for (int i = 0; i < m->n_inputs; i++)
        if (has_gradient(g, &m->inputs[i])) want[n++] = m->inputs[i];
    first_tap = n;
    for (int i = 0; i < m->n_taps; i++) {
        const char *name = snd_arena_printf(j->arena, "grad.%s", m->taps[i].name);
        if (!name) return SONDE_ENOMEM;
        if (wanted(j, name, hit)) want[n++] = m->taps[i];
    }
    for (int i = 0; i < n; i++) wrt[i] = want[i].v;
    // dy and targets may come together: their gradients add
    snd_id y[2], dy[2];
    int k = 0;
    if (j->dy) y[k] = of, dy[k++] = is_map(j, of) ? snd_g_channels_last(g, j->dy) : j->dy;
    if (m->loss) y[k] = m->loss, dy[k++] = snd_g_const(g, snd_g_value(g, m->loss)->shape, 1);
    snd_g_grad(g, y, dy, k, wrt, n, grad);
    for (int i = 0; i < n; i++) {
        const char *name = snd_arena_printf(j->arena, "grad.%s", want[i].name);
        if (!name) return SONDE_ENOMEM;
        (void)wanted(j, name, hit); // parameters' gradients are written anyway: asking for one is no mistake
        if (!grad[i]) grad[i] = snd_g_const(g, snd_g_value(g, wrt[i])->shape, 0);
        SND_TRY(add_out(j, name, i < first_tap ? grad[i] : as_written(j, grad[i])));
    }
    return snd_graph_status(g);
}

// A tap without * or ? that names nothing is a slip of the pen; a pattern may well match nothing.
static sonde_status no_such_tap(const job *j, const char *tap) {
    const bool grad = !strncmp(tap, "grad.", 5);
    const char **names;
    SND_NEW(j->arena, names, j->m->n_taps + 1);
    for (int i = 0; i < j->m->n_taps; i++) names[i] = j->m->taps[i].name;
    const char *near = snd_nearest(grad ? tap + 5 : tap, names, j->m->n_taps);
    SND_FAIL(SONDE_EUSAGE, "--taps: the model has no value '%s'%s%s%s%s%s", tap, near ? "; did you mean '" : "",
             near && grad ? "grad." : "", near ? near : "", near ? "'?" : "",
             grad && !j->o->backward ? " (gradients need --backward)" : "");
}

static sonde_status ask(job *j, snd_id of) {
    bool *hit;
    SND_NEW(j->arena, hit, j->o->n_taps + 1);
    SND_TRY(ask_forward(j, hit));
    SND_FAIL_IF(j->o->backward && !j->dy && !j->m->loss, SONDE_EINPUT,
                "%s: --backward needs dy or targets among the inputs", j->o->input);
    if (j->o->backward) SND_TRY(ask_backward(j, of, hit));
    for (int i = 0; i < j->o->n_taps; i++)
        if (!hit[i] && !strpbrk(j->o->taps[i], "*?")) return no_such_tap(j, j->o->taps[i]);
    return SONDE_OK;
}

// ---- computing and writing ------------------------------------------------------------------------------------------------------

static sonde_status set_inputs(job *j) {
    const snd_model *m = j->m;
    for (int i = 0; i < m->n_inputs; i++) {
        const snd_tensor *t = given(j, m->inputs[i].name);
        SND_TRY(snd_exec_set(j->exec, m->inputs[i].v, t->data, t->dtype));
    }
    const snd_tensor *dy = j->dy ? given(j, "dy") : NULL;
    return dy ? snd_exec_set(j->exec, j->dy, dy->data, dy->dtype) : SONDE_OK;
}

// What collect() makes beside the plan's values: each result as double and, but for f64, as it is written.
static size_t result_bytes(const job *j) {
    size_t n = 0;
    for (int i = 0; i < j->n_outs; i++) n += (size_t)snd_shape_size(snd_g_value(j->m->g, j->outs[i].v)->shape);
    return n * (8 + (j->o->dtype == SND_F64 ? 0 : snd_dtype_size(j->o->dtype)));
}

// The fastest plan within the limit. Weights from a file, or rounded, are all in memory; drawn ones need not be.
static sonde_status choose_plan(job *j, snd_plan **plan) {
    const size_t limit = j->o->max_memory;
    const bool held = j->weights || j->o->round_weights;
    size_t need = 0;
    snd_id *keep;
    SND_NEW(j->arena, keep, j->n_outs);
    for (int i = 0; i < j->n_outs; i++) keep[i] = j->outs[i].v;
    if (limit) SND_TRY(snd_model_cut(j->arena, j->m));
    (void)snd_g_fuse(j->m->g, keep, j->n_outs);
    for (int i = 0; i < (limit ? SND_FIT_WAYS : 1); i++) {
        const snd_plan_opts way = snd_fit_way(i);
        if (held && way.params != SND_PARAMS_SOURCE) continue;
        SND_TRY(snd_plan_make_by(j->arena, j->m->g, keep, j->n_outs, &way, plan));
        need = snd_plan_bytes(*plan) + snd_plan_param_bytes(*plan) + result_bytes(j) + snd_fit_overhead(j->m->g);
        j->drawn = way.params != SND_PARAMS_SOURCE;
        if (need <= limit) break;
    }
    char a[40], b[40];
    SND_FAIL_IF(limit && need > limit, SONDE_EUSAGE, "--max-memory is %s; this run needs %s", snd_fit_bytes(a, limit),
                snd_fit_bytes(b, need));
    return SONDE_OK;
}

static sonde_status compute(job *j) {
    const snd_graph *g = j->m->g;
    snd_plan *plan;
    SND_TRY(choose_plan(j, &plan));
    SND_TRY(j->drawn ? snd_source_drawn(g, j->o->seed, j->o->threads, &j->source)
                     : snd_source_resident(g, j->o->seed, j->o->threads, &j->source));
    SND_TRY(load_weights(j));
    const snd_exec_opts eo = {.threads = j->o->threads, .seed = j->o->seed, .stop = j->o->stop};
    SND_TRY(snd_exec_create(g, plan, &j->source, &eo, &j->exec));
    SND_TRY(set_inputs(j));
    return snd_exec_run(j->exec);
}

// The tensor as --dtype stores it; its doubles become what was stored (a value beyond the type's range is infinite there).
static sonde_status narrow(job *j, snd_tensor *t, int64_t n) {
    double *d = t->data;
    char *stored;
    SND_NEW(j->arena, stored, (n > 0 ? n : 1) * (int64_t)snd_dtype_size(j->o->dtype));
    snd_convert(d, SND_F64, stored, j->o->dtype, n);
    snd_convert(stored, j->o->dtype, d, SND_F64, n);
    t->dtype = j->o->dtype;
    t->data = stored;
    return SONDE_OK;
}

static sonde_status collect(job *j, snd_tensor *t, snd_run_result *r) {
    for (int i = 0; i < j->n_outs; i++) {
        const snd_value *v = snd_g_value(j->m->g, j->outs[i].v);
        const int64_t n = snd_shape_size(v->shape);
        double *d;
        SND_NEW(j->arena, d, n > 0 ? n : 1);
        SND_TRY(snd_exec_get(j->exec, j->outs[i].v, d));
        t[i] = (snd_tensor){.name = j->outs[i].name, .dtype = SND_F64, .shape = v->shape, .data = d};
        if (j->o->dtype != SND_F64) SND_TRY(narrow(j, &t[i], n));
        int64_t bad = 0;
        for (int64_t k = 0; k < n; k++) bad += !isfinite(d[k]);
        if (bad && !r->first_nonfinite) r->first_nonfinite = j->outs[i].name;
        r->n_nonfinite += bad;
    }
    r->n_written = j->n_outs;
    return SONDE_OK;
}

// Asked before the work: a result that cannot be written is lost, and so is what it would be written over.
static sonde_status check_output(const job *j) {
    const char *const read[] = {j->o->input, j->o->weights, j->spec->source};
    const char *out = j->o->output, *slash = strrchr(out, '/');
    for (int i = 0; i < 3; i++)
        SND_FAIL_IF(read[i] && snd_same_file(read[i], out), SONDE_EUSAGE,
                    "--output %s is the file %s that is read; give another name", out, read[i]);
    SND_FAIL_IF(snd_is_folder(out), SONDE_EUSAGE, "--output %s is a folder; give the name of a file", out);
    const char *folder = slash ? snd_arena_strn(j->arena, out, (size_t)(slash - out) + 1) : ".";
    return folder ? snd_check_folder(folder, false) : SONDE_ENOMEM;
}

static sonde_status open_files(job *j, snd_run_result *r) {
    r->file_at_fault = true;
    SND_TRY(snd_st_open(j->o->input, &j->input));
    if (j->o->weights) SND_TRY(snd_st_open(j->o->weights, &j->weights));
    r->file_at_fault = false;
    return SONDE_OK;
}

static sonde_status run(job *j, snd_run_result *r) {
    SND_FAIL_IF(!j->o->input, SONDE_EUSAGE, "run needs --input FILE with the tensor '%s'",
                j->spec->family != SND_FAM_TRANSFORMER ? "input"
                : j->spec->vocab > 0                   ? "tokens"
                                                       : "x");
    SND_FAIL_IF(!j->o->output, SONDE_EUSAGE, "run needs --output FILE");
    SND_TRY(check_output(j));
    SND_TRY(open_files(j, r));
    const snd_dtype dtype = j->o->dtype == SND_BF16 ? SND_F32 : j->o->dtype;
    const snd_build spec_only = {.dtype = dtype, .rows = 2};
    SND_TRY(snd_model_build(j->arena, j->spec, &spec_only, &j->m)); // the wiring's own errors come before the inputs'
    r->file_at_fault = true;
    snd_build b = {.dtype = dtype, .eval = j->o->eval, .with_targets = given(j, "targets") != NULL};
    SND_TRY(refuse_unknown_inputs(j));
    SND_TRY(j->spec->family == SND_FAM_MLP       ? input_rows(j, &b)
            : j->spec->family == SND_FAM_CONVNET ? input_images(j, &b)
                                                 : sequences(j, &b));
    SND_TRY(check_cond(j, &b));
    const sonde_status s = snd_model_build(j->arena, j->spec, &b, &j->m);
    if (s != SONDE_OK) return snd_fail_prefix(s, "%s: ", j->o->input);
    if (b.with_targets) SND_TRY(check_targets(j, given(j, "targets")));
    SND_FAIL_IF(j->m->cond && !b.with_cond, SONDE_EINPUT, "%s: found no tensor 'cond'; this wiring reads c",
                j->o->input);
    if (j->weights) SND_TRY(snd_weights_check(j->weights, j->m->g));
    snd_id of;
    SND_TRY(find_dy(j, &of));
    r->file_at_fault = false;
    SND_TRY(ask(j, of));
    SND_TRY(compute(j));
    snd_tensor *t;
    SND_NEW(j->arena, t, j->n_outs);
    SND_TRY(collect(j, t, r));
    return snd_st_write(j->o->output, t, j->n_outs, NULL, 0);
}

sonde_status snd_lab_run(snd_arena *a, const snd_spec *spec, const snd_run_opts *o, snd_run_result *out) {
    job j = {.arena = a, .spec = spec, .o = o};
    *out = (snd_run_result){0};
    const sonde_status s = run(&j, out);
    snd_exec_destroy(j.exec);
    snd_source_close(&j.source);
    snd_st_close(j.weights);
    snd_st_close(j.input);
    return s;
}
