// Front header of spec/: what a model is, as one flat table of settings (spec.def: name, type, default, range, help).
// SPEC on the command line -> a resolved, checked snd_spec; printing it back; presets. formulas.md section 5.
#ifndef SND_SPEC_H
#define SND_SPEC_H

#include "formula/formula.h"

typedef enum snd_family { SND_FAM_INVALID, SND_FAM_MLP, SND_FAM_TRANSFORMER, SND_FAM_CONVNET } snd_family;
typedef enum snd_arch { SND_ARCH_INVALID, SND_ARCH_DECODER, SND_ARCH_ENCODER, SND_ARCH_ENCDEC } snd_arch;
typedef enum snd_qknorm { SND_QK_INVALID, SND_QK_NONE, SND_QK_RMS_HEAD, SND_QK_RMS_FULL, SND_QK_L2 } snd_qknorm;
typedef enum snd_position {
    SND_POS_INVALID,
    SND_POS_LEARNED,
    SND_POS_SINUSOIDAL,
    SND_POS_ROPE,
    SND_POS_ALIBI,
    SND_POS_T5,
    SND_POS_XL,
    SND_POS_NONE
} snd_position;
typedef enum snd_ropestyle { SND_ROPE_INVALID, SND_ROPE_HALF, SND_ROPE_INTERLEAVED } snd_ropestyle;
typedef enum snd_objective { SND_OBJ_INVALID, SND_OBJ_LM, SND_OBJ_MLM, SND_OBJ_SEQ2SEQ, SND_OBJ_CLASS } snd_objective;

typedef struct snd_spec {
    snd_arena *arena;
    const char *source;        // what the user named: "specs/my.yaml", "gpt2", "pre", "each: ..."
    const char *title, *notes; // may be NULL
    snd_family family;
    bool family_given;         // not left to the wiring
    snd_arch arch;
    const char *wiring_key;  // catalogue key, or NULL for a formula of the user's own
    const char *wiring_text; // the formula's text
    snd_formula *formula;
    int64_t layers, encoder_layers, decoder_layers, width, hidden, inputs, outputs; // inputs, outputs 0: absent
    const char *block_text;
    snd_expr *block; // mlp
    snd_norm_kind norm;
    double eps;
    bool norm_bias, plus1;
    int64_t heads, head_dim;
    const char *kv_heads_text, *window_text, *rope_theta_text, *position_text; // may depend on l
    snd_expr *kv_heads, *window, *rope_theta;                                  // constant expressions of l
    snd_position position;
    bool position_given;
    const char *act;
    snd_fn act_fn;
    bool gated, bias, attn_bias;
    snd_qknorm qk_norm;
    double attn_scale, softcap;
    snd_ropestyle rope_style;
    double rope_fraction;
    int64_t t5_buckets, t5_max_distance;
    int64_t vocab, context, cond;
    bool tie;
    double embed_scale, logit_scale;
    const char *init_text;
    snd_init_rule *init; // the key's rules, NULL when not given
    double dropout, attn_dropout, droppath;
    snd_objective objective; // INVALID: the model has no head
    bool from_command_line;  // wiring, block or family came from the command line (exit 2 instead of 3 when they fail)
    snd_expr *position_x;    // NULL when `position` is one word for all layers
    const snd_const *consts;
    int n_consts; // what the constant expressions above may name (width, heads, d, ...)
    struct snd_spec_part {
        const char *name;
        const char *const *pairs;
        int n;
    } part[3]; // train, data, measure
} snd_spec;

/// SPEC in the order of trial: a YAML/JSON file, a preset, a catalogue key, a formula (text with '='); then key=value
/// overrides in order. Everything is checked; messages name the key, the value found and what was needed, with the
/// nearest known name. `where` of errors in files: "file.yaml:12:3".
/// On failure *out may be NULL or an incomplete spec of which only from_command_line may be read: true when the word at
/// fault stood on the command line.
sonde_status snd_spec_load(snd_arena *a, const char *spec, const char *const *overrides, int n_overrides,
                           snd_spec **out) SONDE_MUST_CHECK;
/// The same, where SPEC's text may be wanted again with other overrides: a file is read when text->data is NULL and then
/// stays in *text, which the caller frees with snd_free(text->data). A pipe cannot be read twice.
typedef struct snd_spec_text {
    char *data;
    size_t n;
} snd_spec_text;
sonde_status snd_spec_load_again(snd_arena *a, const char *spec, snd_spec_text *text, const char *const *overrides,
                                 int n_overrides, snd_spec **out) SONDE_MUST_CHECK;
/// The same, to be completed by data and loaded once more: the vocab or the outputs that an objective needs may be missing, and
/// position and context beside a vocab. text may be NULL.
sonde_status snd_spec_load_open(snd_arena *a, const char *spec, snd_spec_text *text, const char *const *overrides,
                                int n_overrides, snd_spec **out) SONDE_MUST_CHECK;
/// The settings that may differ between layers: l from 1, L the layers of the stack at hand. Checked at load, so these
/// cannot fail for 1 <= l <= L.
int64_t snd_spec_kv_heads(const snd_spec *s, int64_t l, int64_t L);
int64_t snd_spec_window(const snd_spec *s, int64_t l, int64_t L); // 0: none
double snd_spec_rope_theta(const snd_spec *s, int64_t l, int64_t L);
snd_position snd_spec_position(const snd_spec *s, int64_t l, int64_t L);
/// The words of the enumerations, as specs spell them.
const char *snd_family_name(snd_family f);
const char *snd_arch_name(snd_arch a);
const char *snd_position_name(snd_position p);
const char *snd_qknorm_name(snd_qknorm q);
const char *snd_objective_name(snd_objective o);
/// As YAML that loads back to the same spec (all keys that matter for the family; defaults included).
void snd_spec_print_yaml(const snd_spec *s, snd_buf *b);
/// The same as pairs for JSON: calls put(ctx, key, text, is_number_or_bool).
void snd_spec_each(const snd_spec *s, void (*put)(void *ctx, const char *key, const char *text, bool bare), void *ctx);
/// Options from a file's measure:/train:/data: part, as key=value strings, to be applied before the command line's.
int snd_spec_section(const snd_spec *s, const char *section, const char *const **pairs);
/// What such a part says of one option; NULL: nothing.
const char *snd_spec_said(const snd_spec *s, const char *section, const char *key);
/// Title and notes of a preset's text, without resolving the model; either may come back NULL.
sonde_status snd_spec_title(snd_arena *a, const char *yaml, const char **title, const char **notes) SONDE_MUST_CHECK;

int snd_preset_count(void);
const char *snd_preset_name(int i);
const char *snd_preset_text(int i);
const char *snd_preset_find(const char *name); // YAML text or NULL

// One row per model key: for help, completion and docs.
typedef struct snd_key_row {
    const char *name, *type, *dflt, *range, *help;
} snd_key_row;
int snd_key_count(void);
const snd_key_row *snd_key_at(int i);

#endif
