// Panels about Transformers at their start: what Xiong et al. (2020) proved of the last layer's gradient, the part of the
// gradient that attention averages away, streams and tokens in several wirings, GPT-2's own start. Every curve is
// measured on a formula of the catalogue; the theory beside it is predict's, or a law that the caption names.
#include "lab/panels.h"

#include <math.h>
#include <string.h>

static sonde_status load(snd_show *s, const char *wiring, const char *const *keys, int n, snd_spec **out) {
    return snd_spec_load(s->rec->arena, wiring, keys, n, out);
}

static sonde_status add_panel(snd_show *s, const char *title, const char *x, const char *y, bool log,
                              const char *caption, snd_panel **p) {
    *p = snd_record_panel(s->rec, title, x, y, log);
    if (!*p) return SONDE_ENOMEM;
    (*p)->caption = caption;
    return SONDE_OK;
}

static sonde_status make_record(snd_show *s, snd_record **out) {
    *out = snd_record_create(s->rec->arena, SND_REC_MEASURE);
    return *out ? SONDE_OK : SONDE_ENOMEM;
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
    static const struct {
        const char *wiring;
        double power;
    } nets[] = {{"post", 0}, {"pre", -0.5}, {"deepnorm", -0.5}};
    static const int64_t depths[] = {2, 4, 8, 16, 32, 64};
    static const char *const keys[] = {"vocab=512",  "context=64", "position=learned", "tie=false",
                                       "bias=false", "act=relu",   "width=256",        "init=xavier"};
    snd_record *tmp;
    snd_panel *p;
    SND_TRY(make_record(s, &tmp));
    SND_TRY(add_panel(s, title, "depth", "Frobenius norm of the gradient", true,
                      "Cross-entropy of one sequence's last token, decoders of width 256, Xavier start, as in the "
                      "theorem of Xiong et al. (2020). Dashed: their laws, constant for Post-LN and 1/sqrt(L) for "
                      "Pre-LN, laid through the measured points. Post-LN's last layer learns at the same rate however "
                      "deep the net is: hence its warm-up. DeepNorm falls as Pre-LN does, since its branches are "
                      "scaled down with depth.",
                      &p));
    p->xlog = true;
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++) {
        snd_spec *spec;
        SND_TRY(load(s, nets[i].wiring, keys, sizeof keys / sizeof *keys, &spec));
        snd_measure_opts o = snd_show_opts(s);
        o.rows = 1;
        o.loss = o.last_token = true;
        o.seeds = s->o->quick ? 3 : 5;
        o.depths = depths;
        o.n_depths = s->o->quick ? 5 : 6;
        o.bands = SND_BANDS_NONE;
        SND_TRY(snd_lab_measure(tmp, spec, nets[i].wiring, &o));
        SND_TRY(last_gradient_series(p, tmp, nets[i].wiring, nets[i].power));
    }
    return SONDE_OK;
}

// ---- what attention averages away ------------------------------------------------------------------------------------------

sonde_status snd_panel_token_gradient(snd_show *s, const char *title) {
    static const char *const wirings[] = {"post", "b2t", "pre"};
    // wide heads and hidden layers are the setting of the paper's lemmas; zero queries and keys: every weight is 1/T
    static const char *const keys[] = {"arch=encoder", "heads=1",  "width=192",  "hidden=192",
                                       "layers=18",    "act=relu", "bias=false", "init=xavier; q,k = zero"};
    snd_record *tmp;
    snd_panel *p;
    SND_TRY(make_record(s, &tmp));
    SND_TRY(
        add_panel(s, title, "layer", "mean square of the gradient", true,
                  "Encoders of 18 layers, 64 tokens, uniform attention, noise N(0, 1) on the output. Attention sends "
                  "every token the same sum, so a gradient that differs between tokens is averaged by 1/T on its "
                  "way back, and each Post-LN norm halves what passes by the skip: about 1/2 a layer. The part that "
                  "all tokens share (post, token mean) passes, so a total norm hides it. B2T leads a skip around "
                  "all but the last norm of a layer: 0.81 a layer. Near the input the token mean splits again.",
                  &p));
    for (int i = 0; i < 3; i++) {
        snd_spec *spec;
        SND_TRY(load(s, wirings[i], keys, sizeof keys / sizeof *keys, &spec));
        snd_measure_opts o = snd_show_opts(s);
        o.no_params = true;
        o.seeds = s->o->quick ? 3 : 10;
        SND_TRY(snd_lab_measure(tmp, spec, wirings[i], &o));
        const snd_run *u = tmp->runs[tmp->n_runs - 1];
        const char *as = snd_record_text(s->rec, "%s, deviation", wirings[i]);
        SND_TRY(snd_show_layers(p, u, as, "gdev"));
        if (i == 0) SND_TRY(snd_show_layers(p, u, "post, token mean", "gtok"));
    }
    return SONDE_OK;
}

// ---- blocks: one decoder in several wirings ----------------------------------------------------------------------------------

static const struct {
    const char *label, *wiring;
} BLOCKS[] = {{"Pre-LN", "pre"}, {"Post-LN", "post"},      {"B2T", "b2t"},
              {"LNS", "lns"},    {"DeepNorm", "deepnorm"}, {"Peri-LN", "peri"}};
enum { N_BLOCKS = sizeof BLOCKS / sizeof *BLOCKS };

static sonde_status measure_blocks(snd_show *s) {
    static const char *const keys[] = {"layers=24",        "width=256", "vocab=512",  "context=64",
                                       "position=learned", "act=relu",  "bias=false", "init=xavier"};
    if (s->blocks) return SONDE_OK;
    SND_TRY(make_record(s, &s->blocks));
    for (int i = 0; i < N_BLOCKS; i++) {
        snd_spec *spec;
        SND_TRY(load(s, BLOCKS[i].wiring, keys, sizeof keys / sizeof *keys, &spec));
        snd_measure_opts o = snd_show_opts(s);
        o.no_params = true;
        o.seeds = s->o->quick ? 3 : 5;
        SND_TRY(snd_lab_measure(s->blocks, spec, BLOCKS[i].label, &o));
    }
    return SONDE_OK;
}

static sonde_status blocks_panel(snd_show *s, const char *title, const char *metric, const char *y, bool log, int n,
                                 const char *caption) {
    snd_panel *p;
    SND_TRY(measure_blocks(s));
    SND_TRY(add_panel(s, title, "layer", y, log, caption, &p));
    for (int i = 0; i < n; i++) SND_TRY(snd_show_layers(p, s->blocks->runs[i], BLOCKS[i].label, metric));
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
    static const struct {
        const char *label, *init;
        double refs[3]; // log10, after blocks 1, 6, 12
    } nets[] = {{"GPT-2 (1/sqrt(2L))", "init=gpt2", {-2.2218, -1.3768, -1.0630}},
                {"without the factor", "init=gpt2; o,down = normal(0.02)", {-0.8765, 0.0358, 0.3497}}};
    static const int blocks[] = {1, 6, 12};
    snd_record *tmp;
    snd_panel *p;
    SND_TRY(make_record(s, &tmp));
    SND_TRY(
        add_panel(s, title, "layer", "mean square of the stream", true,
                  "The 124M model of 12 layers, 128 tokens. The factor divides what the branches add by 2L = 24, so "
                  "their sum is one branch's mean size at any depth; it does not keep the stream constant, which "
                  "begins at the embedding's 0.0005 and grows 170-fold all the same.",
                  &p));
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++) {
        const char *keys[] = {"vocab=1000", nets[i].init};
        snd_spec *spec;
        SND_TRY(load(s, "gpt2", keys, 2, &spec));
        snd_measure_opts o = snd_show_opts(s);
        o.rows = 1;
        o.tokens = 128;
        o.no_params = true;
        o.seeds = s->o->quick ? 1 : 3;
        SND_TRY(snd_lab_measure(tmp, spec, nets[i].label, &o));
        SND_TRY(snd_show_layers(p, tmp->runs[i], nets[i].label, "q"));
        for (int k = 0; k < 3; k++)
            snd_series_ref(p, p->series[i], blocks[k], nets[i].refs[k], "independent simulation");
    }
    return SONDE_OK;
}
