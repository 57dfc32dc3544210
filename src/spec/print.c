// A resolved spec as pairs (for JSON) and as YAML. Printed are the keys that matter for the family and for what is
// switched on; loading the YAML gives the same spec again, defaults and all. Texts that hold anything YAML could
// misread are quoted.
#include "spec/inner.h"

#include <string.h>

typedef void putter(void *ctx, const char *key, const char *text, bool bare);

static bool has_rope(const snd_spec *s) {
    return s->position == SND_POS_ROPE || s->position_x;
}

// Does the key say anything about this model?
static bool matters(const snd_spec *s, int k) {
    const bool tf = s->family == SND_FAM_TRANSFORMER;
    switch (k) {
    case SND_KEY_encoder_layers:
    case SND_KEY_decoder_layers: return tf && s->arch == SND_ARCH_ENCDEC;
    case SND_KEY_inputs: return s->inputs > 0;
    case SND_KEY_outputs: return s->outputs > 0;
    case SND_KEY_vocab: return s->vocab > 0;
    case SND_KEY_context: return s->context > 0;
    case SND_KEY_tie:
    case SND_KEY_embed_scale:
    case SND_KEY_logit_scale: return s->vocab > 0;
    case SND_KEY_rope_theta:
    case SND_KEY_rope_style:
    case SND_KEY_rope_fraction: return tf && has_rope(s);
    case SND_KEY_t5_buckets:
    case SND_KEY_t5_max_distance: return tf && s->position == SND_POS_T5;
    case SND_KEY_init: return s->init_text != NULL;
    case SND_KEY_objective: return s->objective != SND_OBJ_INVALID;
    case SND_KEY_cond: return s->cond > 0;
    default: return true;
    }
}

static bool of_family(const snd_spec *s, int k) {
    const int bit = s->family == SND_FAM_MLP           ? SND_FOR_MLP
                    : s->family == SND_FAM_TRANSFORMER ? SND_FOR_TF
                                                       : SND_FOR_CONV;
    return (snd_key_info_at(k)->families & bit) != 0;
}

// The shortest digits that read back as the same number.
static const char *short_num(char out[40], double v) {
    for (int digits = 6; digits < 17; digits++) {
        double back;
        if (snd_parse_num(snd_format_num(out, v, digits), &back, NULL) && back == v) return out;
    }
    return snd_format_num(out, v, 17);
}

static const char *text_of(const snd_spec *s, int k) {
    switch (k) {
    case SND_KEY_wiring: return s->wiring_key ? s->wiring_key : s->wiring_text;
    case SND_KEY_block: return s->block_text;
    case SND_KEY_act: return s->act;
    case SND_KEY_init: return s->init_text;
    case SND_KEY_kv_heads: return s->kv_heads_text;
    case SND_KEY_window: return s->window_text;
    case SND_KEY_rope_theta: return s->rope_theta_text;
    default: return s->position_text;
    }
}

// An expression that says one number prints as the number ("heads" -> 4), one that varies with l as it was written.
static const char *each_text(const snd_spec *s, int k, char out[40], bool *bare) {
    const snd_expr *x = k == SND_KEY_kv_heads ? s->kv_heads : k == SND_KEY_window ? s->window : s->rope_theta;
    double v;
    *bare = x && snd_expr_const(x, s->consts, s->n_consts, &v) == SONDE_OK;
    return *bare ? short_num(out, v) : text_of(s, k);
}

static void put_key(const snd_spec *s, int k, putter *put, void *ctx) {
    const snd_key_info *i = snd_key_info_at(k);
    const char *name = snd_key_at(k)->name;
    const void *member = (const char *)s + i->offset;
    char t[40];
    int n, word;
    bool b;
    int64_t whole;
    double v;
    switch (i->type) {
    case SND_T_WORD:
        memcpy(&word, member, sizeof word);
        put(ctx, name, snd_key_words(k, &n)[word], false);
        return;
    case SND_T_INT:
        memcpy(&whole, member, sizeof whole);
        snprintf(t, sizeof t, "%lld", (long long)whole);
        put(ctx, name, t, true);
        return;
    case SND_T_NUM:
        memcpy(&v, member, sizeof v);
        put(ctx, name, short_num(t, v), true);
        return;
    case SND_T_BOOL:
        memcpy(&b, member, sizeof b);
        put(ctx, name, b ? "true" : "false", true);
        return;
    case SND_T_EACH:
        if (k == SND_KEY_position) {
            put(ctx, name, s->position_text, false);
        } else {
            const char *text = each_text(s, k, t, &b);
            put(ctx, name, text, b);
        }
        return;
    default: put(ctx, name, text_of(s, k), false);
    }
}

void snd_spec_each(const snd_spec *s, putter *put, void *ctx) {
    for (int k = 0; k < SND_KEY_COUNT; k++)
        if (of_family(s, k) && matters(s, k)) put_key(s, k, put, ctx);
}

// ---- YAML -----------------------------------------------------------------------------------------------------------------

static bool is_plain(const char *s) {
    const size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.+");
    return n > 0 && s[n] == 0 && s[0] != '-' && s[0] != '.' && s[0] != '+';
}

// May the text be a literal block as it stands? Several lines, none empty or beginning or ending in white space.
static bool is_block(const char *s) {
    if (!strchr(s, '\n') || *s == '\n') return false;
    for (const char *p = s; *p; p++) {
        if ((unsigned char)*p < 0x20 && *p != '\n') return false;
        if ((unsigned char)*p >= 0x7F) return false; // quoting knows about those
        const bool starts = p == s || p[-1] == '\n', ends = p[1] == '\n' || p[1] == 0;
        if (*p == ' ' && (starts || ends)) return false;
        if (*p == '\n' && (starts || (ends && p[1]))) return false;
    }
    return true;
}

static void put_block(snd_buf *b, const char *s, const char *indent) {
    const size_t n = strlen(s);
    snd_buf_put(b, s[n - 1] == '\n' ? "|\n" : "|-\n");
    for (const char *p = s; *p;) {
        const size_t len = strcspn(p, "\n");
        snd_buf_put(b, indent);
        snd_buf_putn(b, p, len);
        snd_buf_put(b, "\n");
        p += len + (p[len] == '\n');
    }
}

// May the character stand in double quotes as it is? Not those that YAML forbids, folds or takes for a mark.
static bool is_printable(uint32_t c) {
    if (c < 0x20 || (c >= 0x7F && c <= 0xA0) || c == '"' || c == '\\') return false;
    return c != 0x2028 && c != 0x2029 && c != 0xFEFF && c < 0xFFFE ? c < 0xD800 || c > 0xDFFF : c >= 0x10000;
}

static void put_quoted(snd_buf *b, const char *s) {
    snd_buf_put(b, "\"");
    while (*s) {
        uint32_t c;
        const int n = snd_utf8_at(s, strnlen(s, 4), &c);
        if (n == 0)
            snd_buf_printf(b, "\\x%02X", (unsigned char)*s);
        else if (is_printable(c))
            snd_buf_putn(b, s, (size_t)n);
        else if (c == '\n')
            snd_buf_put(b, "\\n");
        else if (c == '"' || c == '\\')
            snd_buf_printf(b, "\\%c", (char)c);
        else
            snd_buf_printf(b, "\\u%04X", (unsigned)c);
        s += n ? n : 1;
    }
    snd_buf_put(b, "\"\n");
}

static void put_text(snd_buf *b, const char *s, const char *indent) {
    if (is_plain(s))
        snd_buf_printf(b, "%s\n", s);
    else if (is_block(s))
        put_block(b, s, indent);
    else
        put_quoted(b, s);
}

static void put_yaml_pair(void *ctx, const char *key, const char *text, bool bare) {
    snd_buf *b = ctx;
    snd_buf_printf(b, "  %s: ", key);
    if (bare)
        snd_buf_printf(b, "%s\n", text);
    else
        put_text(b, text, "    ");
}

static void put_part(snd_buf *b, const struct snd_spec_part *p) {
    if (!p->n) return;
    snd_buf_printf(b, "%s:\n", p->name);
    for (int i = 0; i < p->n; i++) {
        const char *eq = strchr(p->pairs[i], '=');
        snd_buf_put(b, "  ");
        snd_buf_putn(b, p->pairs[i], (size_t)(eq - p->pairs[i]));
        snd_buf_put(b, ": ");
        put_text(b, eq + 1, "    ");
    }
}

void snd_spec_print_yaml(const snd_spec *s, snd_buf *b) {
    if (s->title) {
        snd_buf_put(b, "title: ");
        put_text(b, s->title, "  ");
    }
    if (s->notes) {
        snd_buf_put(b, "notes: ");
        put_text(b, s->notes, "  ");
    }
    snd_buf_put(b, "model:\n");
    snd_spec_each(s, put_yaml_pair, b);
    for (int i = 0; i < 3; i++) put_part(b, &s->part[i]);
}
