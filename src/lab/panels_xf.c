// Panels about Transformers at their start: what Xiong et al. (2020) proved of the last layer's gradient, the part of the
// gradient that attention averages away, streams and tokens in several wirings, GPT-2's own start. Every curve is
// measured on a formula of the catalogue; the theory beside it is predict's, or a law that the caption names.
#include "lab/panels.h"

#include <math.h>
#include <string.h>

static sonde_status add_panel(snd_show *s, const char *title, const char *x, const char *y, bool log,
                              const char *caption, snd_panel **p) {
    *p = snd_record_panel(s->rec, title, x, y, log);
    if (!*p) return SONDE_ENOMEM;
    (*p)->caption = caption;
    return SONDE_OK;
}

typedef struct net {
    const char *label, *spec;
    const char *own; // a setting of this net alone, or NULL
} net;

enum { MOST_KEYS = 12 };
#define LEN(a) ((int)(sizeof(a) / sizeof *(a)))

// Every net with the same settings and options, into a record of their own: one run each, or one for each depth. After an
// interrupt the last ones may be missing.
static sonde_status measure_nets(snd_show *s, const net *nets, int n, const char *const *keys, int n_keys,
                                 const snd_measure_opts *o, snd_record **out) {
    *out = snd_record_create(s->rec->arena, SND_REC_MEASURE);
    if (!*out) return SONDE_ENOMEM;
    for (int i = 0; i < n; i++) {
        const char *all[MOST_KEYS];
        snd_spec *spec;
        for (int k = 0; k < n_keys; k++) all[k] = keys[k];
        all[n_keys] = nets[i].own;
        SND_TRY(snd_spec_load(s->rec->arena, nets[i].spec, all, n_keys + (nets[i].own != NULL), &spec));
        snd_measure_opts one = *o;
        one.time_limit = snd_show_opts(s).time_limit; // what the nets before have left
        SND_TRY(snd_show_measure(s, *out, spec, nets[i].label, &one));
    }
    return SONDE_OK;
}

// ---- the last layer's gradient against depth -----------------------------------------------------------------------------

static const double LAST_ENTRIES = 4.0 * 256 * 256; // of the last feed-forward matrix

static const snd_metric *last_gradient(const snd_run *u) {
    char name[64];
    snprintf(name, sizeof name, "layers.%d.M.down.weight", (int)u->depth - 1);
    for (int i = 0; i < u->n_params; i++)
        if (!strcmp(u->params[i]->name, name)) return snd_value_find(u->params[i], "wgrms");
    return NULL;
}

// A power of the depth, laid through the mean of the measured logarithms.
static void power_law(const double *x, const double *y, int n, double power, double *law) {
    double at = 0;
    for (int i = 0; i < n; i++) at += (y[i] - power * log10(x[i])) / n;
    for (int i = 0; i < n; i++) law[i] = at + power * log10(x[i]);
}

static sonde_status last_gradient_series(snd_panel *p, const snd_record *from, const char *label, double power) {
    snd_arena *a = p->rec->arena;
    double *x, *y, *sd, *law;
    int n = 0;
    SND_NEW(a, x, from->n_runs + 1);
    SND_NEW(a, y, from->n_runs + 1);
    SND_NEW(a, sd, from->n_runs + 1);
    SND_NEW(a, law, from->n_runs + 1);
    const char *formula = NULL;
    for (int i = 0; i < from->n_runs; i++) {
        const snd_run *u = from->runs[i];
        const snd_metric *m = !strcmp(u->label, label) ? last_gradient(u) : NULL;
        if (!m) continue;
        x[n] = (double)u->depth;
        y[n] = m->mean + 0.5 * log10(LAST_ENTRIES); // Frobenius norm from the RMS
        sd[n++] = m->sd;
        formula = u->formula;
    }
    if (n == 0) return SONDE_OK; // interrupted before
    power_law(x, y, n, power, law);
    snd_series *s = snd_panel_series(p, label, x, n);
    if (!s) return SONDE_ENOMEM;
    s->formula = formula;
    snd_series_y(p, s, y);
    snd_series_theory(p, s, law);
    snd_series_sd(p, s, sd);
    return snd_record_status(p->rec);
}

sonde_status snd_panel_last_gradient(snd_show *s, const char *title) {
    static const net nets[] = {{"post", "post", NULL}, {"pre", "pre", NULL}, {"deepnorm", "deepnorm", NULL}};
    static const double power[] = {0, -0.5, -0.5};
    static const int64_t depths[] = {2, 4, 8, 16, 32, 64};
    static const char *const keys[] = {"vocab=512",  "context=64", "position=learned", "tie=false",
                                       "bias=false", "act=relu",   "width=256",        "init=xavier"};
    snd_measure_opts o = snd_show_opts(s);
    o.rows = 1;
    o.loss = o.last_token = true;
    o.seeds = s->o->quick ? 3 : 5;
    o.depths = depths;
    o.n_depths = s->o->quick ? 5 : 6;
    o.bands = SND_BANDS_NONE;
    snd_record *r;
    snd_panel *p;
    SND_TRY(measure_nets(s, nets, LEN(nets), keys, LEN(keys), &o, &r));
    SND_TRY(add_panel(s, title, "depth", "Frobenius norm of the gradient", true,
                      "Cross-entropy of one sequence's last token, decoders of width 256, Xavier start, as in the "
                      "theorem of Xiong et al. (2020). Dashed: their laws, constant for Post-LN and 1/sqrt(L) for "
                      "Pre-LN, laid through the measured points. Post-LN's last layer learns at the same rate however "
                      "deep the net is: hence its warm-up. DeepNorm falls as Pre-LN does, since its branches are "
                      "scaled down with depth.",
                      &p));
    p->xlog = true;
    for (int i = 0; i < LEN(nets); i++) SND_TRY(last_gradient_series(p, r, nets[i].label, power[i]));
    return SONDE_OK;
}

// ---- what attention averages away ------------------------------------------------------------------------------------------

sonde_status snd_panel_token_gradient(snd_show *s, const char *title) {
    static const net nets[] = {{"post", "post", NULL}, {"b2t", "b2t", NULL}, {"pre", "pre", NULL}};
    // wide heads and hidden layers are the setting of the paper's lemmas; zero queries and keys: every weight is 1/T
    static const char *const keys[] = {"arch=encoder", "heads=1",  "width=192",  "hidden=192",
                                       "layers=18",    "act=relu", "bias=false", "init=xavier; q,k = zero"};
    snd_measure_opts o = snd_show_opts(s);
    o.no_params = true;
    o.seeds = s->o->quick ? 3 : 10;
    snd_record *r;
    snd_panel *p;
    SND_TRY(measure_nets(s, nets, LEN(nets), keys, LEN(keys), &o, &r));
    SND_TRY(
        add_panel(s, title, "layer", "mean square of the gradient", true,
                  "Encoders of 18 layers, 64 tokens, uniform attention, noise N(0, 1) on the output. Attention sends "
                  "every token the same sum, so a gradient that differs between tokens is averaged by 1/T on its "
                  "way back, and each Post-LN norm halves what passes by the skip: about 1/2 a layer. The part that "
                  "all tokens share (post, token mean) passes, so a total norm hides it. B2T leads a skip around "
                  "all but the last norm of a layer: 0.81 a layer. Near the input the token mean splits again.",
                  &p));
    for (int i = 0; i < r->n_runs; i++) {
        SND_TRY(snd_show_layers(p, r->runs[i], snd_record_text(s->rec, "%s, deviation", nets[i].label), "gdev"));
        if (i == 0) SND_TRY(snd_show_layers(p, r->runs[i], "post, token mean", "gtok"));
    }
    return SONDE_OK;
}

// ---- blocks: one decoder in several wirings ----------------------------------------------------------------------------------

static const net BLOCKS[] = {{"Pre-LN", "pre", NULL}, {"Post-LN", "post", NULL},      {"B2T", "b2t", NULL},
                             {"LNS", "lns", NULL},    {"DeepNorm", "deepnorm", NULL}, {"Peri-LN", "peri", NULL}};
enum { N_BLOCKS = LEN(BLOCKS) };

static sonde_status measure_blocks(snd_show *s) {
    static const char *const keys[] = {"layers=24",        "width=256", "vocab=512",  "context=64",
                                       "position=learned", "act=relu",  "bias=false", "init=xavier"};
    if (s->blocks) return SONDE_OK;
    snd_measure_opts o = snd_show_opts(s);
    o.no_params = true;
    o.seeds = s->o->quick ? 3 : 5;
    return measure_nets(s, BLOCKS, N_BLOCKS, keys, LEN(keys), &o, &s->blocks);
}

static sonde_status blocks_panel(snd_show *s, const char *title, const char *metric, const char *y, bool log, int n,
                                 const char *caption) {
    snd_panel *p;
    SND_TRY(measure_blocks(s));
    SND_TRY(add_panel(s, title, "layer", y, log, caption, &p));
    for (int i = 0; i < n && i < s->blocks->n_runs; i++)
        SND_TRY(snd_show_layers(p, s->blocks->runs[i], BLOCKS[i].label, metric));
    return SONDE_OK;
}

sonde_status snd_panel_stream(snd_show *s, const char *title) {
    SND_TRY(blocks_panel(s, title, "q", "mean square of the stream", true, 2,
                         "Decoders of 24 layers, width 256, Xavier start, 4 x 64 random tokens. Each Pre-LN layer adds "
                         "0.32 from the feed-forward net and, from attention, between 0.12 (tokens independent) and 1 "
                         "(all alike); Post-LN's stream is a norm's output."));
    return blocks_panel(s, "Transformers: how much a layer turns the stream", "adjcos", "cosine with the layer before",
                        false, 2,
                        "The same nets. Cosines above 0.87 are quoted as a sign of layers that do nothing; Pre-LN has "
                        "them from the third layer on, before any training: a stream of mean square q that takes up a "
                        "branch of mean square a keeps the cosine sqrt(q/(q + a)).");
}

sonde_status snd_panel_side_by_side(snd_show *s, const char *title) {
    SND_TRY(blocks_panel(s, title, "q", "mean square of the stream", true, N_BLOCKS,
                         "The same decoder in six wirings. LayerNorm-Scaling multiplies what a layer's norms give by "
                         "1/sqrt(l), so the stream grows like a logarithm; Peri-LN adds one norm's output per branch, "
                         "1 each; DeepNorm and the others that end in a norm stay at 1."));
    SND_TRY(blocks_panel(s, "Transformers: six wirings side by side, cosine between tokens", "tokcos",
                         "mean cosine between tokens", false, N_BLOCKS,
                         "Rank collapse: where tokens are alike, attention has nothing to choose from and its queries "
                         "and keys get no gradient. DeepNorm's small branches leave the tokens as they came."));
    return blocks_panel(s, "Transformers: six wirings side by side, gradient", "gdev",
                        "mean square of the gradient's token deviation", true, N_BLOCKS,
                        "Noise N(0, 1) on the output, the part that differs between the tokens of one example, from "
                        "the last layer back to the first.");
}

// ---- GPT-2 -------------------------------------------------------------------------------------------------------------------

sonde_status snd_panel_gpt2(snd_show *s, const char *title) {
    static const net nets[] = {{"GPT-2 (1/sqrt(2L))", "gpt2", "init=gpt2"},
                               {"without the factor", "gpt2", "init=gpt2; o,down = normal(0.02)"}};
    static const double refs[2][3] = {{-2.2218, -1.3768, -1.0630}, {-0.8765, 0.0358, 0.3497}}; // log10
    static const int after[] = {1, 6, 12};                                                     // blocks
    static const char *const keys[] = {"vocab=1000"};
    snd_measure_opts o = snd_show_opts(s);
    o.rows = 1;
    o.tokens = 128;
    o.no_params = true;
    o.seeds = s->o->quick ? 1 : 3;
    snd_record *r;
    snd_panel *p;
    SND_TRY(measure_nets(s, nets, LEN(nets), keys, LEN(keys), &o, &r));
    SND_TRY(
        add_panel(s, title, "layer", "mean square of the stream", true,
                  "The 124M model of 12 layers, 128 tokens. The factor divides what the branches add by 2L = 24, so "
                  "their sum is one branch's mean size at any depth; it does not keep the stream constant, which "
                  "begins at the embedding's 0.0005 and grows 170-fold all the same.",
                  &p));
    for (int i = 0; i < r->n_runs; i++) {
        SND_TRY(snd_show_layers(p, r->runs[i], nets[i].label, "q"));
        for (int k = 0; k < 3; k++) snd_series_ref(p, p->series[i], after[k], refs[i][k], "independent simulation");
    }
    return SONDE_OK;
}
