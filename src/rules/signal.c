// Rules about the numbers of a run: what leaves a number type, what vanishes, what collapses. They read measured numbers
// where there are some, else predicted ones, and name the first value in running order.
#include "rules/inner.h"

#include <math.h>
#include <string.h>

// What slows growth; a net whose branches read norms already is not told to have them.
static const char *calmer(const snd_judge *j) {
    return j->d->all_normed
               ? "the branch times 1/sqrt(l) (wiring=lns) or 1/sqrt(L), or output maps that start smaller"
               : "a norm before each branch (wiring=pre), or the branch times 1/sqrt(L) (wiring=scaled-by-depth)";
}

// ---- leaving a type -------------------------------------------------------------------------------------------------------------

// Largest absolute value: measured, or four RMS (one value of 16000 of a Gaussian lies beyond).
static bool peak_of(const snd_rvalue *v, snd_found *f, bool *is_absmax) {
    *is_absmax = snd_judge_number(v, "absmax", f);
    if (*is_absmax) return true;
    if (snd_judge_number(v, "rms", f)) {
        f->v += log10(4);
        return true;
    }
    if (!snd_judge_number(v, "q", f)) return false;
    f->v = f->v / 2 + log10(4);
    return true;
}

// Value i, or the stream behind it when that is the same thing under its better known name (layers.3.F.x, layers.3.x).
static const snd_rvalue *stream_alias(const snd_run *u, int i, double peak) {
    snd_found f;
    bool exact;
    const snd_rvalue *next = i + 1 < u->n_values ? u->values[i + 1] : NULL;
    const bool same = next && snd_judge_is_stream(next) && peak_of(next, &f, &exact) && f.v == peak;
    return same && !snd_judge_is_stream(u->values[i]) ? next : u->values[i];
}

// First value over the limit, and the largest one.
static const snd_rvalue *first_over(const snd_judge *j, double limit, snd_found *first, bool *is_absmax,
                                    const snd_rvalue **top, double *most) {
    const snd_rvalue *at = NULL;
    *most = -INFINITY;
    *top = NULL;
    for (int i = 0; i < j->run->n_values; i++) {
        const snd_rvalue *v = j->run->values[i];
        snd_found f;
        bool exact;
        if (!strncmp(v->name, "grad.", 5) || !peak_of(v, &f, &exact)) continue;
        if (f.v > *most) {
            *most = f.v;
            *top = stream_alias(j->run, i, f.v);
        }
        if (at || f.v <= limit) continue;
        at = stream_alias(j->run, i, f.v);
        *first = f;
        *is_absmax = exact;
    }
    return at;
}

static const char *why_over(const snd_found *f, bool exact, double limit, const char *type, const snd_rvalue *top,
                            double most, char out[400]) {
    char a[40], b[40], c[40];
    snprintf(out, 400, "%s largest value %s%s, more than %s can hold (%s); it reaches %s at %s, %d bits too many",
             snd_judge_word(f->measured), snd_judge_text(a, f->v), exact ? "" : " (four RMS)", type,
             snd_pretty_limit(b, limit, true), snd_judge_text(c, most), top->name,
             (int)ceil((most - limit) / log10(2)));
    return out;
}

void snd_rule_stream_f32(snd_judge *j) {
    snd_found f = {0};
    bool exact = false;
    double most;
    char why[400];
    const snd_rvalue *top, *at = first_over(j, j->row->threshold, &f, &exact, &top, &most);
    if (!at) return;
    snd_judge_say(j, SND_LEVEL_ERROR, at->name, f.v, true,
                  why_over(&f, exact, j->row->threshold, "f32 or bf16", top, most, why), calmer(j));
}

// Over the limit: warn. Within three bits of it: info, with the headroom.
void snd_rule_stream_f16(snd_judge *j) {
    snd_found f = {0};
    bool exact = false;
    double most;
    char why[400], a[40], bits[40];
    const double limit = j->row->threshold, near = limit - 3 * log10(2);
    const snd_rvalue *top, *at = first_over(j, limit, &f, &exact, &top, &most);
    if (at) {
        snd_judge_say(j, SND_LEVEL_WARN, at->name, f.v, true, why_over(&f, exact, limit, "f16", top, most, why),
                      "train in bf16 or f32, or keep the stream small: a norm before each branch (wiring=pre), "
                      "branches times 1/sqrt(L) (wiring=scaled-by-depth)");
        return;
    }
    at = first_over(j, near, &f, &exact, &top, &most);
    if (!at) return;
    snprintf(why, sizeof why, "largest value %s at %s leaves %s bits of headroom in f16", snd_judge_text(a, most),
             top->name, snd_format_num(bits, (limit - most) / log10(2), 2));
    snd_judge_say(j, SND_LEVEL_INFO, at->name, f.v, true, why,
                  "bf16 or f32 for the stream; f16 has no room for growth in training");
}

// A stream that shrinks below what f16 resolves. A stream that is exactly zero is another matter.
void snd_rule_stream_vanishes(snd_judge *j) {
    for (int i = 0; i < j->run->n_values; i++) {
        const snd_rvalue *v = j->run->values[i];
        snd_found f;
        if (!snd_judge_is_stream(v) || !snd_judge_number(v, "q", &f) || f.v / 2 >= j->row->threshold) continue;
        char why[400], a[40];
        const bool f32 = f.v / 2 < -37.9298; // smallest normal f32, 2^-126
        snprintf(why, sizeof why, "%s RMS of the stream is %s, below the smallest normal %s number",
                 snd_judge_word(f.measured), snd_judge_text(a, f.v / 2), f32 ? "f32" : "f16");
        snd_judge_say(j, f32 ? SND_LEVEL_ERROR : SND_LEVEL_WARN, v->name, f.v / 2, true, why,
                      j->d->identity ? "no factor below 1 on the stream (wiring=residual, pre), or a norm at the end "
                                       "of each layer (wiring=post)"
                                     : "a residual connection (wiring=residual or pre), or weights of variance "
                                       "2/fan_in before a ReLU (init=he)");
        return;
    }
}

static bool lost(const snd_rvalue *v, const char *metric) {
    const snd_metric *m = snd_value_find(v, metric);
    return m && m->measured && (isnan(m->mean) || m->mean == INFINITY);
}

// The first value that is lost on the way forward; only when the forward pass is sound, the first on the way back.
static const snd_rvalue *first_lost(const snd_run *u, const char **what) {
    for (int i = 0; i < u->n_values; i++)
        if (lost(u->values[i], "q") || lost(u->values[i], "absmax")) {
            *what = "value";
            return u->values[i];
        }
    for (int i = u->n_values - 1; i >= 0; i--)
        if (lost(u->values[i], "gq")) {
            *what = "gradient";
            return u->values[i];
        }
    return NULL;
}

void snd_rule_nonfinite(snd_judge *j) {
    const char *what;
    const snd_rvalue *v = j->run->nonfinite ? first_lost(j->run, &what) : NULL;
    if (!v) return;
    char why[400];
    snprintf(why, sizeof why,
             "the %s of %s is the first that is not finite, in some seed or in all; %lld numbers of this run are not",
             what, v->name, (long long)j->run->nonfinite);
    snd_judge_say(
        j, SND_LEVEL_ERROR, v->name, NAN, false, why,
        "look at what this value is computed from: a division by a number that can be zero (dot, rms, eps=0), "
        "log or sqrt of a negative number, exp of a large one");
}

// Nothing was measured and the theory has no number either: what lies behind was not judged, and must not look sound.
void snd_rule_theory_lost(snd_judge *j) {
    snd_found f;
    if (!snd_judge_named(j, "in.x", "q", &f) || f.measured) return;
    for (int i = 0; i < j->run->n_values; i++) {
        const snd_rvalue *v = j->run->values[i];
        const snd_metric *m = snd_judge_is_stream(v) ? snd_value_find(v, "q") : NULL;
        if (!snd_judge_is_stream(v) || (m && !isnan(m->predicted) && m->predicted != INFINITY)) continue;
        char why[400];
        snprintf(why, sizeof why, "theory has no mean square for %s, so nothing from there on was judged", v->name);
        snd_judge_say(
            j, SND_LEVEL_WARN, v->name, NAN, false, why,
            "measure it (sonde measure); the usual cause is a function that is infinite or undefined for some "
            "inputs, such as log, sqrt, or a division by a number that can be zero");
        return;
    }
}

// ---- stacks ---------------------------------------------------------------------------------------------------------------------

// An encoder-decoder's stacks are judged one after the other, each at its own depth.
static void each_stack(snd_judge *j, void (*rule)(snd_judge *, const char *stack, int depth)) {
    const int depth = (int)j->run->depth;
    if (j->spec->arch != SND_ARCH_ENCDEC) {
        rule(j, "", depth);
        return;
    }
    rule(j, "encoder.", (int)j->spec->encoder_layers);
    rule(j, "decoder.", depth);
}

// ---- the gradient ---------------------------------------------------------------------------------------------------------------

typedef struct step {
    int first, last;
    double most, sum;
} step; // log10 of the mean square, gained going back

// log10 of the gradient's mean square where layer l of a stack begins, l = 0..n_layers (the last: where the last one ends);
// NAN where it is not known. NULL: no memory, which the record remembers.
static double *gradients(snd_judge *j, const char *stack, int n_layers) {
    double *g = snd_arena_array(j->rec->arena, (size_t)n_layers + 1, sizeof *g);
    if (!g) {
        j->rec->failed = true;
        return NULL;
    }
    for (int l = 0; l <= n_layers; l++) g[l] = NAN;
    for (int i = 0; i < j->run->n_values; i++) {
        const snd_rvalue *v = j->run->values[i];
        snd_found f;
        if (!snd_judge_is_stream(v) || strcmp(snd_judge_stack(j, v), stack) != 0 || strstr(v->name, "out.x")) continue;
        const int l = strstr(v->name, "in.x") ? 0 : v->layer + 1;
        if (l >= 0 && l <= n_layers && snd_judge_number(v, "gq", &f)) g[l] = f.v;
    }
    return g;
}

// The layers over which the gradient changes fastest: the steepest one and its neighbours with at least half its change.
// g: see above; the gain of layer l, going back, is g[l] - g[l + 1].
static step steepest(const double *g, int last_layer, double sign) {
    step s = {-1, -1, 0, 0};
    for (int l = 0; l <= last_layer; l++) {
        const double d = sign * (g[l] - g[l + 1]);
        if (d > s.most) s = (step){l, l, d, d};
    }
    if (s.first < 0) return s;
    for (double d; s.first > 0 && (d = sign * (g[s.first - 1] - g[s.first])) >= s.most / 2; s.first--) s.sum += d;
    for (double d; s.last < last_layer && (d = sign * (g[s.last + 1] - g[s.last + 2])) >= s.most / 2; s.last++)
        s.sum += d;
    return s;
}

// A first layer that makes a hundred times what came in, through norms, leaves the input's gradient that much larger: the
// input starts too small, the layers are fine. A depth sweep knows no first layer (s->first < 0): there a small input and
// what has become of it in the last one tell.
static bool dwarfs_input(const snd_judge *j, const step *s, const char *stack, const char *last) {
    snd_found in, grown;
    if (!(j->d->all_normed || j->d->final_norm) || s->first > 0 || s->last > 1) return false;
    return snd_judge_in_stack(j, stack, "in.x", "q", &in) &&
           snd_judge_in_stack(j, stack, s->first < 0 ? last : "layers.0.x", "q", &grown) && grown.v - in.v > 2 &&
           (s->first == 0 || in.v < -2);
}

static const char *larger_input(const snd_judge *j) {
    return j->d->tokens > 1
               ? "a larger start of the embedding (embed_scale, or embed = normal(s) in init): the stream that "
                 "enters is far smaller than what the first layer makes of it; the layers after it are not at fault"
               : "a larger input stream (stem = normal(s) in init): what enters is far smaller than what the "
                 "first layer makes of it; the layers after it are not at fault";
}

static void judge_gradient(snd_judge *j, const char *stack, int depth) {
    char last[64], where[80], why[500], advice[200], a[40], b[40];
    const int top = depth - 1;
    snd_found in, out;
    snprintf(last, sizeof last, "layers.%d.x", top);
    if (top < 1 || !snd_judge_in_stack(j, stack, "in.x", "gq", &in) || !snd_judge_in_stack(j, stack, last, "gq", &out))
        return;
    const double ratio = in.v - out.v;
    if (fabs(ratio) <= j->row->threshold) return;
    const bool grows = ratio > 0;
    int n =
        snprintf(why, sizeof why, "%s mean square of the gradient at %sin.x is %s times that at %s%s over %d layers",
                 snd_judge_word(in.measured && out.measured), stack, snd_judge_text(a, ratio), stack, last, depth);
    const double *g = gradients(j, stack, depth);
    if (!g) return;
    const step s = steepest(g, top, grows ? 1 : -1);
    if (s.first >= 0)
        snprintf(why + n, sizeof why - (size_t)n, "; steepest in layers %d..%d, a factor of %s per layer", s.first,
                 s.last, snd_judge_text(b, (grows ? s.sum : -s.sum) / (s.last - s.first + 1)));
    const char *cure = j->d->identity ? "a larger skip (wiring=deepnorm) or an unbroken identity path (wiring=pre): a "
                                        "higher learning rate does not reach the first layers alone"
                                      : "a residual connection (wiring=residual, pre): a higher learning rate does not "
                                        "reach the first layers alone";
    snprintf(advice, sizeof advice, "%s; clipping hides this but does not cure it", calmer(j));
    const char *remedy = !grows ? cure : dwarfs_input(j, &s, stack, last) ? larger_input(j) : advice;
    if (s.first >= 0)
        snprintf(where, sizeof where, "%slayers.%d.x", stack, s.first);
    else
        snprintf(where, sizeof where, "%sin.x", stack);
    j->threshold = grows ? j->row->threshold : -j->row->threshold; // the table holds decades both ways
    snd_judge_say(j, SND_LEVEL_WARN, where, ratio, true, why, remedy);
}

void snd_rule_gradient(snd_judge *j) {
    each_stack(j, judge_gradient);
}

void snd_rule_gradient_f32(snd_judge *j) {
    // going back: the last value over the limit in running order is the first one that the gradient meets
    for (int i = j->run->n_values - 1; i >= 0; i--) {
        const snd_rvalue *v = j->run->values[i];
        snd_found f;
        if (!snd_judge_number(v, "gq", &f) || f.v / 2 <= j->row->threshold) continue;
        char why[400], a[40];
        snprintf(why, sizeof why, "%s RMS of the gradient is %s, more than f32 or bf16 can hold",
                 snd_judge_word(f.measured), snd_judge_text(a, f.v / 2));
        snd_judge_say(j, SND_LEVEL_ERROR, v->name, f.v / 2, true, why, calmer(j));
        return;
    }
}

// ---- examples that become one -----------------------------------------------------------------------------------------------------

static const char *apart(const snd_judge *j) {
    if (!j->d->identity)
        return "a residual connection (wiring=residual or pre): without one every layer pulls examples together";
    if (j->spec->block_text && !strcmp(j->spec->block_text, "one-matrix"))
        return "a branch of zero mean: block=two-matrix; a ReLU at the end of the branch adds the same mean to every "
               "example";
    return "smaller branches (wiring=scaled-by-depth, lns), or batch norm in the branch (norm=batch)";
}

// The first stream whose cosines between `things` pass the limit.
static void collapse(snd_judge *j, const char *metric, const char *things, const char *remedy) {
    for (int i = 0; i < j->run->n_values; i++) {
        const snd_rvalue *v = j->run->values[i];
        snd_found in, f;
        const char *stack = snd_judge_stack(j, v);
        const bool has_in = snd_judge_in_stack(j, stack, "in.x", metric, &in);
        if (has_in && in.v > j->row->threshold) continue; // they came in that way
        if (!snd_judge_is_stream(v) || !snd_judge_number(v, metric, &f) || f.v <= j->row->threshold) continue;
        char why[400], a[40], b[40], left[40];
        snprintf(why, sizeof why,
                 "%s mean cosine between different %s is %s (at %sin.x %s): %s %% of the energy is left to tell "
                 "them apart",
                 snd_judge_word(f.measured), things, snd_pretty(a, f.v, 4), stack,
                 has_in ? snd_pretty(b, in.v, 2) : "unknown", snd_pretty(left, 100 * (1 - f.v), 2));
        snd_judge_say(j, SND_LEVEL_WARN, v->name, f.v, false, why, remedy);
        return;
    }
}

void snd_rule_collapse(snd_judge *j) {
    collapse(j, "cos", "examples", apart(j));
}

// ---- tokens that become one ---------------------------------------------------------------------------------------------------------

static const char token_cure[] =
    "a skip around the norms (wiring=pre, b2t) or smaller branches (wiring=deepnorm, lns, init=gpt2): attention that "
    "sees equal tokens has nothing to choose from, and its queries and keys get no gradient";

void snd_rule_token_collapse(snd_judge *j) {
    collapse(j, "tokcos", "tokens of one example", token_cure);
}

// The head reads the last layer. What tokens share there tells it how frequent they are and no more, and a net that starts so
// does not find the way out: the part that differs is what queries and keys learn by (docs/training.md).
void snd_rule_token_stall(snd_judge *j) {
    char last[64], why[400], a[40], b[40];
    snd_found in, f;
    snprintf(last, sizeof last, "layers.%d.x", (int)j->run->depth - 1);
    if (!snd_judge_named(j, last, "tokcos", &f) || f.v < j->row->threshold) return;
    if (snd_judge_named(j, "in.x", "tokcos", &in) && in.v >= j->row->threshold) return; // they came in that way
    snprintf(why, sizeof why,
             "%s mean cosine between tokens of one example is %s at the last layer; from %s on training is likely to "
             "stall at the unigram entropy, the loss of a model that ignores its input",
             snd_judge_word(f.measured), snd_pretty(a, f.v, 4), snd_pretty(b, j->row->threshold, 2));
    snd_judge_say(j, SND_LEVEL_WARN, last, f.v, false, why,
                  "matrices that start smaller (init = q,k,v,o,up,down *= 1/sqrt(L), or init=gpt2), wiring=pre, "
                  "deepnorm or lns, or fewer layers; neither a warm-up nor another learning rate mends it");
}

// A total norm hides this: what all tokens share passes through attention unharmed.
static void judge_token_gradient(snd_judge *j, const char *stack, int depth) {
    char name[64], why[400], a[40];
    const snd_rvalue *least = NULL;
    snd_found last, f, low = {INFINITY, false};
    snprintf(name, sizeof name, "layers.%d.x", depth - 1);
    if (!snd_judge_in_stack(j, stack, name, "gdev", &last)) return;
    for (int i = 0; i < j->run->n_values; i++) {
        const snd_rvalue *v = j->run->values[i];
        if (!snd_judge_is_stream(v) || strcmp(snd_judge_stack(j, v), stack) != 0) continue;
        if (!snd_judge_number(v, "gdev", &f) || f.v >= low.v) continue;
        low = f;
        least = v;
    }
    if (!least || low.v - last.v >= -j->row->threshold) return;
    snprintf(why, sizeof why,
             "%s mean square of the gradient's part that differs between tokens is %s times that at %s%s",
             snd_judge_word(low.measured), snd_judge_text(a, low.v - last.v), stack, name);
    j->threshold = -j->row->threshold;
    snd_judge_say(j, SND_LEVEL_WARN, least->name, low.v - last.v, true, why, token_cure);
}

void snd_rule_token_gradient(snd_judge *j) {
    each_stack(j, judge_token_gradient);
}
