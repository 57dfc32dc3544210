// spec/: what SPEC and key=value words resolve to, what is refused and in which words, and that what is printed loads
// back to the same.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE // mkdtemp
#endif
#include "check.h"
#include "folder.h"

#include "spec/spec.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_WORDS = 8 };

static const char *write_spec(const char *name, const char *text) {
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    CHECK_OK(snd_write_file(path, text, strlen(text)));
    return path;
}

// "a=1|b=2" -> words. The line is cut in place.
static int split(char *line, const char *words[MAX_WORDS]) {
    int n = 0;
    for (char *w = line; w && *w && n < MAX_WORDS;) {
        words[n++] = w;
        w = strchr(w, '|');
        if (w) *w++ = 0;
    }
    return n;
}

static sonde_status load(snd_arena *a, const char *spec, const char *overrides, snd_spec **out) {
    static char line[1024];
    snprintf(line, sizeof line, "%s", overrides);
    const char *words[MAX_WORDS];
    const int n = split(line, words);
    return snd_spec_load(a, spec, words, n, out);
}

typedef struct wanted {
    const char *key;
    char text[256];
    bool found;
} wanted;

static void look(void *ctx, const char *key, const char *text, bool bare) {
    (void)bare;
    wanted *w = ctx;
    if (strcmp(key, w->key) != 0) return;
    w->found = true;
    snprintf(w->text, sizeof w->text, "%s", text);
}

// The printed value of one key, "" when the key is not printed.
static const char *value_of(const snd_spec *s, const char *key) {
    static wanted w;
    w = (wanted){.key = key};
    snd_spec_each(s, look, &w);
    return w.text;
}

// ---- what values resolve to -------------------------------------------------------------------------------------------

// Defaults of docs/formulas.md, section 5.
static void resolves_defaults_and_overrides(void **state) {
    (void)state;
    static const struct {
        const char *spec, *words, *key, *want;
    } rows[] = {
        {"pre", "", "family", "mlp"},
        {"pre", "", "layers", "32"},
        {"pre", "", "width", "256"},
        {"pre", "", "hidden", "256"},
        {"pre", "", "block", "two-matrix"},
        {"pre", "", "norm", "layer"},
        {"pre", "", "eps", "1e-05"},
        {"pre", "", "heads", ""},
        {"pre", "", "inputs", ""},
        {"pre", "", "objective", ""},
        {"pre", "outputs=10", "objective", "class"},
        {"pre", "inputs=784", "inputs", "784"},
        {"pre", "heads=4", "family", "transformer"},
        {"pre", "arch=encoder", "family", "transformer"},
        {"pre", "vocab=100|position=none", "family", "transformer"},
        {"pre", "vocab=100|position=none", "objective", "lm"},
        {"pre", "vocab=100|position=none|arch=encoder", "objective", "mlm"},
        {"pre", "vocab=100|position=none|arch=encoder-decoder", "objective", "seq2seq"},
        {"parallel", "", "family", "transformer"},
        {"resnet-v1", "", "family", "convnet"},
        {"x = x + F(x)", "", "family", "mlp"},
        {"x = x + A(x)", "", "family", "transformer"},
        {"x = x + F(x)/3", "", "wiring", "x = x + F(x)/3"},
        {"parallel", "", "layers", "12"},
        {"parallel", "", "hidden", "1024"},
        {"parallel", "", "heads", "4"},
        {"parallel", "width=63", "heads", "1"},
        {"parallel", "width=768", "heads", "12"},
        {"parallel", "width=768", "head_dim", "64"},
        {"parallel", "width=768", "kv_heads", "12"},
        {"parallel", "width=768|kv_heads=heads/3", "kv_heads", "4"},
        {"parallel", "heads=5|head_dim=16", "head_dim", "16"},
        {"parallel", "", "act", "gelu"},
        {"parallel", "", "gated", "false"},
        {"parallel", "", "bias", "true"},
        {"parallel", "bias=false", "attn_bias", "false"},
        {"parallel", "bias=false|attn_bias=true", "attn_bias", "true"},
        {"parallel", "", "attn_scale", "0.125"},
        {"parallel", "qk_norm=l2", "attn_scale", "8"},
        {"parallel", "position=t5", "attn_scale", "1"},
        {"parallel", "position=t5", "t5_buckets", "32"},
        {"parallel", "position=t5", "t5_max_distance", "128"},
        {"parallel", "position=rope", "rope_theta", "10000"},
        {"parallel", "position=rope", "rope_style", "half"},
        {"parallel", "position=rope", "rope_fraction", "1"},
        {"parallel", "", "rope_theta", ""},
        {"parallel", "", "position", "none"},
        {"parallel", "vocab=7|position=rope", "tie", "true"},
        {"parallel", "vocab=7|position=rope|embed_scale=sqrt(d)", "embed_scale", "16"},
        {"pre", "arch=encoder-decoder|layers=3", "encoder_layers", "3"},
        {"pre", "arch=encoder-decoder|layers=3|decoder_layers=5", "decoder_layers", "5"},
        {"pre", "layers=2^3^0", "layers", "2"},
        {"pre", "width=8*16", "width", "128"},
        {"pre", "width=128|hidden=4*d", "hidden", "512"},
        {"pre", "layers=1e2", "layers", "100"},
        {"pre", "width=128|width=64", "width", "64"},
        {"pre", "plus1=on", "plus1", "true"},
        {"pre", "family=mlp|position=none", "family", "mlp"},
        {"resnet-v2", "", "norm", "batch"},
        {"resnet-v2", "norm=rms", "norm", "rms"},
        {"gpt2", "", "hidden", "3072"},
        {"gpt2", "layers=2", "layers", "2"},
        {"gpt2", "", "init", "gpt2"},
        {"llama3-8b", "", "kv_heads", "8"},
        {"gemma3-270m", "", "window", "l % 6 == 0 ? 0 : 512"},
        {"transformer-base", "layers=4", "encoder_layers", "4"},
        {"transformer-base", "layers=4", "decoder_layers", "4"},
        {"transformer-base", "encoder_layers=3|layers=4", "encoder_layers", "3"},
        {"transformer-base", "encoder_layers=3|layers=4", "decoder_layers", "4"},
        {"transformer-base", "width=256", "hidden", "1024"},
        {"transformer-base", "width=256", "heads", "4"},
        {"transformer-base", "width=256|hidden=100|heads=8", "hidden", "100"},
        {"transformer-base", "width=256|heads=8", "head_dim", "32"},
        {"t5-v1.1-base", "width=256", "hidden", "680"},
        {"t5-base", "width=256", "head_dim", "64"},
        {"gpt2", "width=256", "heads", "4"},
        {"bert-base", "width=32", "heads", "1"},
        {"llama2-7b", "width=512", "hidden", "1376"},
        {"llama2-7b", "width=512", "heads", "4"},
        {"llama3-8b", "width=1024", "kv_heads", "2"},
        {"llama3-8b", "width=256", "kv_heads", "1"},
        {"qwen3-0.6b", "width=256", "kv_heads", "2"},
        {"qwen3-0.6b", "width=256", "head_dim", "128"},
        {"palm-8b", "width=512", "heads", "2"},
        {"gemma3-270m", "width=128", "head_dim", "50"},
        {"transformer-xl", "width=100", "head_dim", "50"},
        {"mlp", "width=64", "hidden", "64"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snd_arena *a = snd_arena_create();
        snd_spec *s;
        const sonde_status st = load(a, rows[i].spec, rows[i].words, &s);
        if (st != SONDE_OK || strcmp(value_of(s, rows[i].key), rows[i].want) != 0) {
            print_error("%s %s: %s is '%s', want '%s' (%s)\n", rows[i].spec, rows[i].words, rows[i].key,
                        st == SONDE_OK ? value_of(s, rows[i].key) : "-", rows[i].want, sonde_error_message());
            fail();
        }
        snd_arena_destroy(a);
    }
}

// Both stacks follow a layers= that is said after a file, whatever the file says of either.
static void layers_reach_both_stacks(void **state) {
    (void)state;
    const char *path = write_spec("stacks.yaml", "model: {wiring: pre, arch: encoder-decoder, layers: 6,"
                                                 " encoder_layers: 6, decoder_layers: 5}\n");
    snd_arena *a = snd_arena_create();
    snd_spec *s;
    CHECK_OK(load(a, path, "width=64", &s));
    assert_true(s->encoder_layers == 6 && s->decoder_layers == 5);
    CHECK_OK(load(a, path, "layers=2", &s));
    assert_true(s->encoder_layers == 2 && s->decoder_layers == 2);
    CHECK_OK(load(a, path, "layers=2|decoder_layers=3", &s));
    assert_true(s->encoder_layers == 2 && s->decoder_layers == 3);
    CHECK_OK(load(a, path, "decoder_layers=3", &s));
    assert_true(s->encoder_layers == 6 && s->decoder_layers == 3);
    snd_arena_destroy(a);
}

// What a preset says of its shape is what was published: expressions of d must come out even there.
static void presets_have_their_published_shape(void **state) {
    (void)state;
    static const struct {
        const char *preset;
        int hidden, heads, kv_heads, head_dim;
    } rows[] = {
        {"transformer-base", 2048, 8, 8, 64}, {"t5-base", 3072, 12, 12, 64},    {"t5-v1.1-base", 2048, 12, 12, 64},
        {"bert-base", 3072, 12, 12, 64},      {"gpt2", 3072, 12, 12, 64},       {"gpt2-medium", 4096, 16, 16, 64},
        {"gpt2-large", 5120, 20, 20, 64},     {"gpt2-xl", 6400, 25, 25, 64},    {"gpt3-175b", 49152, 96, 96, 128},
        {"llama2-7b", 11008, 32, 32, 128},    {"llama3-8b", 14336, 32, 8, 128}, {"olmo2-7b", 11008, 32, 32, 128},
        {"qwen3-0.6b", 3072, 16, 8, 128},     {"palm-8b", 16384, 16, 1, 256},   {"gemma3-270m", 2048, 4, 1, 256},
        {"transformer-xl", 2100, 10, 10, 41},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snd_arena *a = snd_arena_create();
        snd_spec *s;
        CHECK_OK(load(a, rows[i].preset, "", &s));
        const int kv = (int)snd_spec_kv_heads(s, 1, s->layers);
        if (s->hidden != rows[i].hidden || s->heads != rows[i].heads || kv != rows[i].kv_heads ||
            s->head_dim != rows[i].head_dim)
            fail_msg("%s: hidden %d, heads %d, %d, head_dim %d", rows[i].preset, (int)s->hidden, (int)s->heads, kv,
                     (int)s->head_dim);
        snd_arena_destroy(a);
    }
}

static void knows_who_said_it(void **state) {
    (void)state;
    snd_arena *a = snd_arena_create();
    snd_spec *s;
    CHECK_OK(load(a, "gpt2", "", &s));
    assert_false(s->from_command_line);
    assert_string_equal(s->source, "gpt2");
    assert_string_equal(s->wiring_key, "pre");
    assert_string_equal(s->title, "GPT-2 small (124M)");
    CHECK_OK(load(a, "gpt2", "width=1536", &s)); // the formula is still the preset's
    assert_false(s->from_command_line);
    CHECK_OK(load(a, "gpt2", "wiring=post", &s));
    assert_true(s->from_command_line);
    CHECK_OK(load(a, "pre", "", &s));
    assert_true(s->from_command_line);
    CHECK_OK(load(a, "each: x = x + F(x)", "", &s));
    assert_null(s->wiring_key);
    snd_arena_destroy(a);
}

static void varies_between_layers(void **state) {
    (void)state;
    snd_arena *a = snd_arena_create();
    snd_spec *s;
    CHECK_OK(load(a, "gemma3-270m", "", &s));
    for (int l = 1; l <= 18; l++) {
        assert_int_equal(snd_spec_window(s, l, 18), l % 6 == 0 ? 0 : 512);
        CHECK_CLOSE(snd_spec_rope_theta(s, l, 18), l % 6 == 0 ? 1e6 : 1e4, 0);
        assert_int_equal(snd_spec_kv_heads(s, l, 18), 1);
        assert_int_equal(snd_spec_position(s, l, 18), SND_POS_ROPE);
    }
    CHECK_OK(load(a, "parallel", "layers=4|heads=4|kv_heads=l == L ? heads : 2|position=l % 4 == 0 ? none : rope", &s));
    for (int l = 1; l <= 4; l++) {
        assert_int_equal(snd_spec_kv_heads(s, l, 4), l == 4 ? 4 : 2);
        assert_int_equal(snd_spec_position(s, l, 4), l == 4 ? SND_POS_NONE : SND_POS_ROPE);
    }
    assert_int_equal(s->position, SND_POS_ROPE);
    snd_arena_destroy(a);
}

static void hands_out_sections(void **state) {
    (void)state;
    const char *path = write_spec("parts.yaml", "title: a net\nmodel: {wiring: pre}\n"
                                                "measure:\n  seeds: 3\n  depths: [1, 2, 4]\ntrain: {}\n");
    snd_arena *a = snd_arena_create();
    snd_spec *s;
    CHECK_OK(load(a, path, "", &s));
    const char *const *pairs;
    assert_int_equal(snd_spec_section(s, "measure", &pairs), 2);
    assert_string_equal(pairs[0], "seeds=3");
    assert_string_equal(pairs[1], "depths=1,2,4");
    assert_int_equal(snd_spec_section(s, "train", &pairs), 0);
    assert_int_equal(snd_spec_section(s, "data", &pairs), 0);
    assert_int_equal(snd_spec_section(s, "model", &pairs), 0);
    assert_string_equal(s->title, "a net");
    snd_arena_destroy(a);
}

// A file first, then a preset, then a catalogue key, then a formula.
static void tries_in_order(void **state) {
    (void)state;
    char old[1024];
    assert_non_null(getcwd(old, sizeof old));
    write_spec("post", "model: {wiring: plain, layers: 3}\n");
    write_spec("x = x + F(x)", "model: {wiring: plain, layers: 4}\n");
    assert_int_equal(chdir(folder), 0);
    snd_arena *a = snd_arena_create();
    snd_spec *s;
    CHECK_OK(load(a, "post", "", &s));
    assert_int_equal(s->layers, 3);
    CHECK_OK(load(a, "x = x + F(x)", "", &s));
    assert_int_equal(s->layers, 4);
    CHECK_OK(load(a, "resnet-v1", "", &s)); // a preset and a wiring
    assert_int_equal(s->layers, 9);
    CHECK_OK(load(a, "pre", "", &s));
    assert_string_equal(s->wiring_key, "pre");
    assert_int_equal(chdir(old), 0);
    snd_arena_destroy(a);
}

// What a catalogue entry presumes is the default of a model that uses it.
static void wirings_bring_their_norm(void **state) {
    (void)state;
    snd_arena *a = snd_arena_create();
    snd_spec *s;
    CHECK_OK(load(a, write_spec("conv.yaml", "model: {wiring: resnet-v2, layers: 3, inputs: 3}\n"), "", &s));
    assert_int_equal(s->family, SND_FAM_CONVNET);
    assert_int_equal(s->norm, SND_NORM_BATCH);
    snd_arena_destroy(a);
}

static void reads_json(void **state) {
    (void)state;
    const char *path = write_spec("spec.json", "{\"model\": {\"wiring\": \"x = x + F(N(x))\", \"layers\": 4,\n"
                                               " \"norm\": \"rms\", \"eps\": 1e-6, \"plus1\": true}}");
    snd_arena *a = snd_arena_create();
    snd_spec *s;
    CHECK_OK(load(a, path, "", &s));
    assert_int_equal(s->layers, 4);
    assert_int_equal(s->norm, SND_NORM_RMS);
    CHECK_CLOSE(s->eps, 1e-6, 0);
    assert_true(s->plus1);
    snd_arena_destroy(a);
}

// ---- printing -----------------------------------------------------------------------------------------------------------

static void check_round_trip(const char *spec, const char *words) {
    snd_arena *a = snd_arena_create();
    snd_spec *s, *again;
    CHECK_OK(load(a, spec, words, &s));
    snd_buf one = {0}, two = {0};
    snd_spec_print_yaml(s, &one);
    CHECK_OK(load(a, write_spec("again.yaml", one.s), "", &again));
    snd_spec_print_yaml(again, &two);
    assert_string_equal(one.s, two.s);
    assert_int_equal(s->family, again->family);
    assert_string_equal(s->wiring_text, again->wiring_text);
    assert_true(s->eps == again->eps && s->attn_scale == again->attn_scale && s->embed_scale == again->embed_scale);
    assert_true(s->heads == again->heads && s->head_dim == again->head_dim && s->hidden == again->hidden);
    assert_int_equal(s->objective, again->objective);
    snd_buf_free(&one);
    snd_buf_free(&two);
    snd_arena_destroy(a);
}

static void prints_what_loads_back(void **state) {
    (void)state;
    for (int i = 0; i < snd_preset_count(); i++) check_round_trip(snd_preset_name(i), "");
    for (int i = 0; i < snd_wiring_count(); i++) check_round_trip(snd_wiring_at(i)->key, "layers=4");
    check_round_trip("parallel", "attn_scale=1/3|eps=0.1+0.2");
    check_round_trip("in: x = N(x) # first\n\neach: x = x + F(x) \nout: x = N(x)\n", "");
    check_round_trip("each: x = x + F(x)\nout: x = N(x)\n", "");
    check_round_trip("x = x + F(x) # \xC3\xA9 \xE2\x80\xA8 \"quoted\" \\", "init=normal(0.02); v,o *= 1/2");
    check_round_trip(write_spec("odd.yaml", "title: \"a: \\u0085 b\\tc # \\uFEFF\"\nnotes: |\n  two\n  lines\n"
                                            "model: {wiring: pre}\ndata: {path: \"x: y\", n: \"\"}\n"),
                     "");
}

// ---- presets --------------------------------------------------------------------------------------------------------------

static void presets_load_and_say_what_they_are(void **state) {
    (void)state;
    assert_true(snd_preset_count() >= 20);
    for (int i = 0; i < snd_preset_count(); i++) {
        snd_arena *a = snd_arena_create();
        snd_spec *s;
        const char *title, *notes, *name = snd_preset_name(i);
        assert_non_null(snd_preset_find(name));
        assert_ptr_equal(snd_preset_find(name), snd_preset_text(i));
        CHECK_OK(snd_spec_load(a, name, NULL, 0, &s));
        CHECK_OK(snd_spec_title(a, snd_preset_text(i), &title, &notes));
        assert_true(title && strlen(title) > 3 && notes && strlen(notes) > 20);
        snd_arena_destroy(a);
    }
    assert_null(snd_preset_find("gpt"));
    assert_null(snd_preset_name(snd_preset_count()));
}

// Every key has help; names are unique.
static void keys_are_documented(void **state) {
    (void)state;
    for (int i = 0; i < snd_key_count(); i++) {
        const snd_key_row *k = snd_key_at(i);
        assert_true(strlen(k->help) > 5 && strlen(k->range) > 3);
        for (int j = 0; j < i; j++) assert_string_not_equal(k->name, snd_key_at(j)->name);
    }
}

// ---- what is refused ----------------------------------------------------------------------------------------------------------

typedef struct refusal {
    const char *spec, *words;
    sonde_status status;
    const char *texts;
} refusal;

static void check_refusal(const char *spec, const char *words, sonde_status status, const char *texts, bool cli) {
    snd_arena *a = snd_arena_create();
    snd_spec *s;
    const sonde_status st = load(a, spec, words, &s);
    char line[256];
    snprintf(line, sizeof line, "%s", texts);
    const char *parts[MAX_WORDS];
    const int n = split(line, parts);
    bool fine = st == status && s && s->from_command_line == cli;
    for (int i = 0; i < n; i++) fine = fine && strstr(sonde_error_message(), parts[i]);
    if (!fine) {
        print_error("%s %s: %s%s, want %s%s: '%s' in '%s'\n", spec, words, sonde_status_name(st),
                    s && s->from_command_line ? " (command line)" : "", sonde_status_name(status),
                    cli ? " (command line)" : "", texts, sonde_error_message());
        fail();
    }
    snd_arena_destroy(a);
}

static void refuses_words_of_the_command_line(void **state) {
    (void)state;
    static const refusal rows[] = {
        {"prre", "", SONDE_ENAME, "prre|'pre'"},
        {"nothing-like-it", "", SONDE_ENAME, "no file, preset, wiring or formula"},
        {"", "", SONDE_ENAME, "no file"},
        {"gpt-2", "", SONDE_ENAME, "'gpt2'"},
        {"x = x + F(", "", SONDE_ESYNTAX, "wiring|column"},
        {"pre", "widht=12", SONDE_ENAME, "widht|'width'"},
        {"pre", "width", SONDE_EUSAGE, "width|key=value"},
        {"pre", "=3", SONDE_EUSAGE, "key=value"},
        {"pre", "layers=two", SONDE_ETYPE, "layers|two|whole number"},
        {"pre", "layers=", SONDE_ETYPE, "layers|whole number"},
        {"pre", "layers=2.5", SONDE_ETYPE, "layers|2.5|whole number"},
        {"pre", "layers=-1", SONDE_ERANGE, "layers|-1|0"},
        {"pre", "width=0", SONDE_ERANGE, "width|0|1"},
        {"pre", "width=1e300", SONDE_ERANGE, "width|1e+300"},
        {"pre", "width=1e999", SONDE_ERANGE, "width|inf|finite"},
        {"pre", "eps=nan", SONDE_ERANGE, "eps|nan|finite"},
        {"pre", "eps=0/0", SONDE_ERANGE, "eps|finite"},
        {"pre", "eps=-1e-5", SONDE_ERANGE, "eps|-1e-05"},
        {"pre", "hidden=4*q", SONDE_ETYPE, "hidden|4*q|q"},
        {"pre", "plus1=maybe", SONDE_ETYPE, "plus1|maybe|true"},
        {"pre", "norm=layr", SONDE_ENAME, "norm|layr|'layer'"},
        {"pre", "dropout=1", SONDE_ERANGE, "dropout|1|0.999999"},
        {"pre", "wiring=prallel", SONDE_ENAME, "wiring|prallel|'parallel'"},
        {"pre", "wiring=eech: x = x + F(x)", SONDE_ESYNTAX, "wiring|eech|each"},
        {"pre", "block=two-matrx", SONDE_ENAME, "block|two-matrx|'two-matrix'"},
        {"pre", "block=relu(u", SONDE_ESYNTAX, "block|relu"},
        {"pre", "init=lama", SONDE_ESYNTAX, "init|lama|llama"},
        {"pre", "family=mpl", SONDE_ENAME, "family|mpl|'mlp'"},
        {"pre", "family=mlp|heads=4", SONDE_ENAME, "heads|mlp|transformer"},
        {"pre", "act=relu", SONDE_ENAME, "act|mlp"},
        {"parallel", "block=one-matrix", SONDE_ENAME, "block|transformer"},
        {"parallel", "inputs=7", SONDE_ENAME, "inputs|transformer"},
        {"parallel", "heads=5", SONDE_ERANGE, "heads|5|256"},
        {"parallel", "width=200", SONDE_ERANGE, "heads|3|200"},
        {"parallel", "heads=4|kv_heads=3", SONDE_ERANGE, "kv_heads|3|4"},
        {"parallel", "heads=4|kv_heads=l < 3 ? 2 : 3", SONDE_ERANGE, "kv_heads|3|4"},
        {"parallel", "kv_heads=0", SONDE_ERANGE, "kv_heads|0"},
        {"parallel", "act=swish", SONDE_ENAME, "act|swish|silu"},
        {"parallel", "act=rleu", SONDE_ENAME, "act|rleu|'relu'"},
        {"parallel", "qk_norm=rms", SONDE_ENAME, "qk_norm|rms|rms-head"},
        {"parallel", "vocab=10", SONDE_EINPUT, "position|vocab|10"},
        {"parallel", "vocab=10|position=learned", SONDE_EINPUT, "context|learned"},
        {"parallel", "position=l < 2 ? learned : rope", SONDE_ERANGE, "position|rope, alibi and none"},
        {"parallel", "position=rop", SONDE_ENAME, "position|rop|'rope'"},
        {"parallel", "position=rope|heads=1|head_dim=5", SONDE_ERANGE, "head_dim|5|even"},
        {"parallel", "position=rope|rope_fraction=0.3", SONDE_ERANGE, "rope_fraction|64|even"},
        {"parallel", "position=rope|rope_theta=0", SONDE_ERANGE, "rope_theta|0"},
        {"parallel", "position=xl|width=9|heads=3", SONDE_ERANGE, "position|xl|9"},
        {"parallel", "position=t5|t5_buckets=300", SONDE_ERANGE, "t5_buckets|300|128"},
        {"parallel", "window=l - 2", SONDE_ERANGE, "window|-1"},
        {"parallel", "window=x", SONDE_ENAME, "window|x"},
        {"parallel", "objective=lm", SONDE_EINPUT, "objective|lm|vocab"},
        {"parallel", "objective=ml", SONDE_ENAME, "objective|ml|'lm'"},
        {"pre", "objective=class", SONDE_EINPUT, "objective|outputs"},
        {"pre", "vocab=9|position=none|objective=seq2seq", SONDE_EINPUT, "objective|encoder-decoder|decoder"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_refusal(rows[i].spec, rows[i].words, rows[i].status, rows[i].texts, true);
}

static void refuses_files(void **state) {
    (void)state;
    static const struct {
        const char *text;
        sonde_status status;
        const char *texts;
    } rows[] = {
        {"", SONDE_EINPUT, "bad.yaml|empty"},
        {"# nothing\n", SONDE_EINPUT, "empty"},
        {"model", SONDE_ETYPE, "bad.yaml:1:1: |model:"},
        {"- 1\n", SONDE_ETYPE, "bad.yaml:1:1: "},
        {"title: x\n", SONDE_EINPUT, "bad.yaml|model: is missing"},
        {"model:\n", SONDE_ETYPE, "bad.yaml:1:7: |keys and values"},
        {"model: {}\n", SONDE_EINPUT, "wiring|needed"},
        {"wiring: pre\n", SONDE_ENAME, "bad.yaml:1:1: |wiring|under model:"},
        {"modell: {}\n", SONDE_ENAME, "bad.yaml:1:1: |modell|'model'"},
        {"model:\n  wiring: pre\n  widht: 3\n", SONDE_ENAME, "bad.yaml:3:3: |widht|'width'"},
        {"model:\n  wiring: pre\n  width: [3]\n", SONDE_ETYPE, "bad.yaml:3:10: |width|one value"},
        {"model:\n  wiring: pre\n  width: three\n", SONDE_ETYPE, "bad.yaml:3:10: |width|three"},
        {"model:\n  wiring: pre\n  width: 3\n  width: 4\n", SONDE_ESYNTAX, "bad.yaml:4:3: |width|twice|line 3"},
        {"model:\n  wiring: pre\nmodel: {}\n", SONDE_ESYNTAX, "bad.yaml:3:1: |twice"},
        {"model:\n  wiring: &a pre\n", SONDE_ESYNTAX, "bad.yaml:2:11: |anchors"},
        {"model:\n  wiring: pre\n  norm: *a\n", SONDE_ESYNTAX, "bad.yaml:3:9: |aliases"},
        {"model: &m\n  wiring: pre\n", SONDE_ESYNTAX, "bad.yaml:1:8: |anchors"},
        {"model:\n  wiring: !!str pre\n", SONDE_ESYNTAX, "bad.yaml:2:11: |tags"},
        {"model: {wiring: pre}\n---\nmodel: {}\n", SONDE_ESYNTAX, "bad.yaml:2:1: |second document"},
        {"model: {wiring: pre\n", SONDE_ESYNTAX, "bad.yaml:2:1: "},
        {"model:\n\twiring: pre\n", SONDE_ESYNTAX, "bad.yaml:2:1: "},
        {"model: {? [a] : b}\n", SONDE_ESYNTAX, "bad.yaml:1:11: |key"},
        {"model: {wiring: \"p\\0re\"}\n", SONDE_ESYNTAX, "bad.yaml:1:17: |control"},
        {"title: \"\\e[2J\"\nmodel: {}\n", SONDE_ESYNTAX, "bad.yaml:1:8: |control"},
        {"title: \"\\x9b2J\"\nmodel: {}\n", SONDE_ESYNTAX, "bad.yaml:1:8: |control"},
        {"model: {wiring: \"\xFF\"}\n", SONDE_ESYNTAX, "bad.yaml: not YAML: byte 17"},
        {"model: {wiring: pre}\ntitle: [a]\n", SONDE_ETYPE, "bad.yaml:2:8: |title|text"},
        {"model: {wiring: pre}\ntrain: 3\n", SONDE_ETYPE, "bad.yaml:2:8: |train"},
        {"model: {wiring: pre}\ndata: {x: {y: 1}}\n", SONDE_ETYPE, "bad.yaml:2:11: |x: a value or a list"},
        {"model: {wiring: pre}\ndata: {x: [[1]]}\n", SONDE_ETYPE, "bad.yaml:2:12: |plain values"},
        {"model: {wiring: pre}\ndata: {a=b: 1}\n", SONDE_ENAME, "bad.yaml:2:8: |a=b|option"},
        {"model: {wiring: 'each: x = x + F(N(x)) + @'}\n", SONDE_ESYNTAX, "bad.yaml:1:17: wiring: |column 25"},
        {"[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]", SONDE_ESYNTAX, "bad.yaml:1:17: |deeper than 16"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_refusal(write_spec("bad.yaml", rows[i].text), "", rows[i].status, rows[i].texts, false);
    check_refusal("no/such/file.yaml", "", SONDE_EIO, "no/such/file.yaml", false);
    check_refusal(write_spec("heads.yaml", "model: {wiring: pre, family: transformer}\n"), "heads=7", SONDE_ERANGE,
                  "7|256", true);
}

// A file cut anywhere loads or is refused with a message; nothing else.
static void survives_truncation(void **state) {
    (void)state;
    static const char text[] =
        "title: \"t\\u00e9\"\nmodel:\n  wiring: |\n    in: x = N(x)\n    each: x = x + F(N(x), inner=1)\n"
        "  heads: 4 # four\n  position: \"l < 2 ? rope : none\"\nmeasure: {depths: [1, 2]}\n";
    char cut[sizeof text];
    for (size_t n = 0; n < sizeof text; n++) {
        memcpy(cut, text, n);
        cut[n] = 0;
        snd_arena *a = snd_arena_create();
        snd_spec *s;
        const sonde_status st = snd_spec_load(a, write_spec("cut.yaml", cut), NULL, 0, &s);
        assert_true(st == SONDE_OK || strlen(sonde_error_message()) > 10);
        if (n + 1 == sizeof text) assert_int_equal(st, SONDE_OK);
        snd_arena_destroy(a);
    }
}

// Whichever allocation fails: an error, nothing leaked.
static void survives_lack_of_memory(void **state) {
    (void)state;
    const char *path =
        write_spec("mem.yaml", "title: t\nmodel: {wiring: pre, heads: 4, kv_heads: 'l < 2 ? 4 : 2', init: gpt2}\n"
                               "measure: {depths: [1, 2]}\n");
    const size_t before = snd_alloc_bytes();
    sonde_status st = SONDE_ENOMEM;
    for (int n = 1; st != SONDE_OK; n++) {
        assert_true(n < 10000);
        snd_alloc_fail_at(n);
        snd_arena *a = snd_arena_create();
        snd_spec *s;
        st = a ? snd_spec_load(a, path, (const char *[]){"layers=3"}, 1, &s) : SONDE_ENOMEM;
        snd_alloc_fail_at(0);
        assert_true(st == SONDE_OK || st == SONDE_ENOMEM);
        snd_arena_destroy(a);
        assert_int_equal(snd_alloc_bytes(), before);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resolves_defaults_and_overrides),
        cmocka_unit_test(layers_reach_both_stacks),
        cmocka_unit_test(presets_have_their_published_shape),
        cmocka_unit_test(knows_who_said_it),
        cmocka_unit_test(varies_between_layers),
        cmocka_unit_test(hands_out_sections),
        cmocka_unit_test(tries_in_order),
        cmocka_unit_test(wirings_bring_their_norm),
        cmocka_unit_test(reads_json),
        cmocka_unit_test(prints_what_loads_back),
        cmocka_unit_test(presets_load_and_say_what_they_are),
        cmocka_unit_test(keys_are_documented),
        cmocka_unit_test(refuses_words_of_the_command_line),
        cmocka_unit_test(refuses_files),
        cmocka_unit_test(survives_truncation),
        cmocka_unit_test(survives_lack_of_memory),
    };
    return cmocka_run_group_tests_name("spec", tests, make_folder, remove_folder);
}
