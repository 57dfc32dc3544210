// Help on every level, made from the same tables that parse: verbs.def, options.def and the model keys of spec/.
#include "cli/inner.h"

#include <string.h>

static void lines(snd_buf *b, const char *text, const char *prefix) {
    while (*text) {
        const size_t n = strcspn(text, "\n");
        snd_buf_put(b, prefix);
        snd_buf_putn(b, text, n);
        snd_buf_put(b, "\n");
        text += n + (text[n] == '\n');
    }
}

static void paragraph(snd_cli *c, snd_buf *b, const char *text, int indent) {
    snd_wrap(b, text, indent, c->columns > 110 ? 110 : c->columns);
}

// "  name   text", the text wrapped beside the name.
static void entry(snd_cli *c, snd_buf *b, const char *name, const char *text, int column) {
    snd_buf wrapped = {0};
    snd_wrap(&wrapped, text, column, c->columns > 110 ? 110 : c->columns);
    const int pad = column - 2 - snd_text_width(name);
    snd_buf_put(b, "  ");
    snd_ink_put(c, b, SND_INK_BOLD, name);
    if (pad < 2)
        snd_buf_put(b, "\n");
    else
        snd_buf_printf(b, "%*s", pad, "");
    if (wrapped.s) snd_buf_put(b, pad < 2 ? wrapped.s : wrapped.s + column);
    snd_buf_free(&wrapped);
}

static void head(snd_cli *c, snd_buf *b, const char *text) {
    snd_buf_put(b, "\n");
    snd_ink_put(c, b, SND_INK_BOLD, text);
    snd_buf_put(b, "\n");
}

static void first_example(snd_buf *b, const snd_verb *v) {
    if (strcmp(v->name, "help") == 0 || strcmp(v->name, "version") == 0) return;
    snd_buf_put(b, "  ");
    snd_buf_putn(b, v->examples, strcspn(v->examples, "\n"));
    snd_buf_put(b, "\n");
}

void snd_help_top(snd_cli *c) {
    snd_buf b = {0};
    paragraph(c, &b,
              "sonde: does a deep network carry its signal? Theory, measurement and advice for every residual wiring.\n"
              "\nUsage: sonde VERB [SPEC] [key=value ...] [--options]",
              0);
    head(c, &b, "Verbs");
    for (int i = 0; i < snd_verb_count(); i++) entry(c, &b, snd_verb_at(i)->name, snd_verb_at(i)->summary, 13);
    head(c, &b, "SPEC");
    paragraph(
        c, &b,
        "a YAML file, a preset (sonde models), a wiring (sonde wirings) or a formula (sonde help formula) such as "
        "'x = x + F(N(x))'; key=value after it sets model keys (sonde help keys): layers=64 norm=rms",
        2);
    head(c, &b, "Examples");
    for (int i = 0; i < snd_verb_count(); i++) first_example(&b, snd_verb_at(i));
    paragraph(c, &b,
              "\n'sonde help VERB' or 'sonde VERB --help' says more. --version prints the version.\n"
              "Exit status: 0 fine, 1 findings (--fail-on), 2 a bad word on the command line, 3 a bad file, 4 training "
              "diverged, 130 interrupted.",
              0);
    snd_put(c, &b);
    snd_buf_free(&b);
}

static const char *const default_arg[] = {
    [SND_OPT_FLAG] = "",      [SND_OPT_INT] = "N",        [SND_OPT_NUM] = "X",
    [SND_OPT_STR] = "TEXT",   [SND_OPT_INTS] = "LIST",    [SND_OPT_STRS] = "LIST",
    [SND_OPT_BYTES] = "SIZE", [SND_OPT_SECONDS] = "TIME", [SND_OPT_WORD] = "WORD"};

static void option_entry(snd_cli *c, snd_buf *b, const snd_opt_row *o, int column) {
    char name[128], letter[8] = "";
    if (o->letter) snprintf(letter, sizeof letter, "-%c, ", o->letter);
    const char *arg = o->arg ? o->arg : default_arg[o->type];
    snprintf(name, sizeof name, "%s--%s%s%s", letter, o->name, *arg ? " " : "", arg);
    entry(c, b, name, o->help, column);
}

void snd_help_verb(snd_cli *c, const snd_verb *v) {
    snd_buf b = {0};
    const char *title = snd_arena_printf(c->arena, "sonde %s: %s", v->name, v->summary);
    paragraph(c, &b, title ? title : v->name, 0);
    snd_buf_printf(&b, "\nUsage: sonde %s %s\n", v->name, v->usage);
    if (v->operands == SND_OPS_SPEC)
        paragraph(c, &b,
                  "\nSPEC is a YAML file, a preset (sonde models), a wiring (sonde wirings) or a formula in quotes "
                  "(sonde help formula); key=value sets model keys (sonde help keys).",
                  0);
    if (strstr(v->usage, "RUN"))
        paragraph(c, &b,
                  "\nRUN is the folder of a training run ('sonde train ... -o RUN'), of which the newest checkpoint is "
                  "taken; CHECKPOINT is one of RUN/checkpoints/, or a file of weights in it.",
                  0);
    head(c, &b, "Options");
    for (int i = 0; i < snd_opt_count(); i++)
        if (snd_opt_applies(snd_opt_at(i), v->name)) option_entry(c, &b, snd_opt_at(i), 26);
    head(c, &b, "Examples");
    lines(&b, v->examples, "  ");
    snd_put(c, &b);
    snd_buf_free(&b);
}

void snd_help_options(snd_cli *c) {
    snd_buf b = {0};
    paragraph(
        c, &b,
        "Verbs stand in brackets behind what an option does there; '--name VALUE' and '--name=VALUE' are one.\n\n", 0);
    for (int i = 0; i < snd_opt_count(); i++) {
        const snd_opt_row *o = snd_opt_at(i);
        option_entry(c, &b, o, 26);
        if (strcmp(o->verbs, "*") != 0) snd_buf_printf(&b, "%26s(%.*s)\n", "", (int)strlen(o->verbs) - 2, o->verbs + 1);
    }
    snd_put(c, &b);
    snd_buf_free(&b);
}

static const char *const formula_rows[][2] = {
    {"x = x + F(N(x))", "one statement; ';' or a new line between two, # begins a comment"},
    {"in:", "once before the layers (further streams are named here: in: y = x)"},
    {"each:", "once per sublayer of every layer; in an mlp once per layer. A formula that calls F needs no label"},
    {"layer:", "once per layer, sublayers by name"},
    {"out:", "once after the layers"},
    {"init:", "how parameters start: init: xavier; down *= 1/sqrt(2*L)"},
    {"x", "the stream, in every layer; other names live as long as their section (those of in: for all layers)"},
    {"l L s S d n pi e", "layer from 1, layers, sublayer from 1, sublayers, width, hidden width: all constants, as in "
                         "F(x)/sqrt(l) or L > 24 ? 0.5 : 1"},
    {"Le Ld cross", "layers of encoder and decoder (0 where there is none); 1 in a decoder that has an encoder"},
    {"F A C M", "the block of each:; by name in layer: attention, cross-attention, feed-forward (an mlp has M only)"},
    {"inner= v1= headgain= vnorm=",
     "arguments of a sublayer: F(N(x), inner=1) a norm before its last map; A(u, v1=0.5) "
     "the share of the first layer's values; a gain per head; a norm on the values"},
    {"N N0", "the model's norm (key norm), with and without gain and bias; every place where N stands has its own"},
    {"LN RMS BN SN DYT DERF", "a norm of that kind; arguments eps=, gain="},
    {"W(u) W(u, out)", "a fresh linear map; gain=g draws variance g/fan_in, bias=1, zero=1"},
    {"scalar(v) vector(v)", "a learned number or vector that starts at v"},
    {"relu gelu gelu_tanh silu tanh", "elementwise, as are sigmoid erf exp softplus sqrt log abs min max"},
    {"unit(u) rms(u) dot(u, v)", "per row"},
    {"c", "the conditioning vector (key cond), as in N0(x)*(1 + W(silu(c), d))"},
    {"stop(u) drop(u) droppath(u)", "no gradient; dropout; branch dropout"},
    {"depthmix(u) depthattn(u)", "learned mixes of all earlier values"},
    {"conv shortcut pool", "convnets"},
    {"block='W(relu(W(u, n)), d)'", "key: what F does in an mlp, an expression over u"}};

void snd_help_formula(snd_cli *c) {
    snd_buf b = {0};
    paragraph(c, &b,
              "A formula says how the blocks join the residual stream. The whole language: docs/formulas.md.\n\n", 0);
    for (size_t i = 0; i < sizeof formula_rows / sizeof *formula_rows; i++)
        entry(c, &b, formula_rows[i][0], formula_rows[i][1], 34);
    snd_put(c, &b);
    snd_buf_free(&b);
}

void snd_help_keys(snd_cli *c) {
    snd_buf b = {0};
    paragraph(c, &b, "Model keys, set by key=value after SPEC or under model: in a YAML file. Default in brackets.\n\n",
              0);
    for (int i = 0; i < snd_key_count(); i++) {
        const snd_key_row *k = snd_key_at(i);
        char text[1024];
        const bool dflt = k->dflt && *k->dflt, range = k->range && *k->range;
        snprintf(text, sizeof text, "%s%s%s%s%s%s%s", k->help ? k->help : "", range ? "; " : "", range ? k->range : "",
                 dflt ? " [" : "", dflt ? k->dflt : "", dflt ? "]" : "", "");
        entry(c, &b, k->name, text, 20);
    }
    snd_put(c, &b);
    snd_buf_free(&b);
}
