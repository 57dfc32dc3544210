// SPEC and key=value words -> raw values with their places -> snd_spec_resolve. Here is decided what SPEC names (file,
// preset, catalogue key, formula, in that order) and which words are keys; what the values mean is resolve.c's.
#include "spec/inner.h"
#include "spec/yaml.h"

#include <string.h>
#include <sys/stat.h>

typedef struct loader {
    snd_spec *s;
    snd_spec_text *text; // of a file that was read; NULL: nobody wants it again
    snd_raw raw[SND_KEY_COUNT];
} loader;

static const char *const PARTS[] = {"train", "data", "measure"};
enum { N_PARTS = 3 };

static const char *place(snd_arena *a, const char *file, int line, int col) {
    return snd_arena_printf(a, "%s:%d:%d: ", file, line, col);
}

static const char *suggestion(snd_arena *a, const char *near) {
    const char *s = near ? snd_arena_printf(a, "; the nearest known is '%s'", near) : "";
    return s ? s : "";
}

// ---- a document: model:, train:, data:, measure:, title, notes --------------------------------------------------------

static sonde_status unknown_key(const loader *c, const char *where, const char *key, const char *near) {
    char t[72];
    SND_FAIL(SONDE_ENAME, "%sunknown key '%s'%s", where ? where : "", snd_shown(t, key), suggestion(c->s->arena, near));
}

static sonde_status take_model(loader *c, const char *file, const snd_ynode *map) {
    snd_arena *a = c->s->arena;
    SND_FAIL_IF(map->kind != SND_Y_MAP, SONDE_ETYPE, "%s:%d:%d: model: holds keys and values, found something else",
                file, map->line, map->col);
    for (const snd_ynode *n = map->first; n; n = n->next) {
        const int k = snd_key_find(n->key);
        if (k < 0) return unknown_key(c, place(a, file, n->key_line, n->key_col), n->key, snd_key_nearest(n->key));
        SND_FAIL_IF(n->kind != SND_Y_SCALAR, SONDE_ETYPE,
                    "%s:%d:%d: %s: one value is needed, found a list or a mapping", file, n->line, n->col, n->key);
        c->raw[k] = (snd_raw){n->text, place(a, file, n->line, n->col), false};
        if (!c->raw[k].where) return SONDE_ENOMEM;
    }
    return SONDE_OK;
}

// [1, 2, 4] -> "1,2,4"; a word stays as it is.
static sonde_status flat_value(snd_arena *a, const char *file, const snd_ynode *n, const char **out) {
    if (n->kind == SND_Y_SCALAR) {
        *out = n->text;
        return SONDE_OK;
    }
    SND_FAIL_IF(n->kind != SND_Y_SEQ, SONDE_ETYPE, "%s:%d:%d: %s: a value or a list of values is needed", file, n->line,
                n->col, n->key);
    snd_buf b = {0};
    for (const snd_ynode *e = n->first; e; e = e->next) {
        if (e->kind != SND_Y_SCALAR) {
            snd_buf_free(&b);
            SND_FAIL(SONDE_ETYPE, "%s:%d:%d: %s: a list of plain values is needed", file, e->line, e->col, n->key);
        }
        if (e != n->first) snd_buf_put(&b, ",");
        snd_buf_put(&b, e->text);
    }
    *out = b.failed ? NULL : snd_arena_str(a, b.s ? b.s : "");
    snd_buf_free(&b);
    return *out ? SONDE_OK : SONDE_ENOMEM;
}

static bool is_option_name(const char *key) {
    const size_t n = strspn(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");
    return n > 0 && key[n] == 0 && key[0] != '-';
}

static sonde_status take_part(loader *c, const char *file, const snd_ynode *map, int part) {
    snd_arena *a = c->s->arena;
    char shown[72];
    SND_FAIL_IF(map->kind != SND_Y_MAP, SONDE_ETYPE, "%s:%d:%d: %s: holds keys and values, found something else", file,
                map->line, map->col, map->key);
    int n = 0;
    for (const snd_ynode *e = map->first; e; e = e->next) n++;
    const char **pairs;
    SND_NEW(a, pairs, n + 1);
    n = 0;
    for (const snd_ynode *e = map->first; e; e = e->next) {
        SND_FAIL_IF(!is_option_name(e->key), SONDE_ENAME, "%s:%d:%d: '%s' is no option name", file, e->key_line,
                    e->key_col, snd_shown(shown, e->key));
        const char *v = "";
        SND_TRY(flat_value(a, file, e, &v));
        pairs[n] = snd_arena_printf(a, "%s=%s", e->key, v);
        if (!pairs[n++]) return SONDE_ENOMEM;
    }
    c->s->part[part] = (struct snd_spec_part){PARTS[part], pairs, n};
    return SONDE_OK;
}

static int part_of(const char *key) {
    for (int i = 0; i < N_PARTS; i++)
        if (strcmp(key, PARTS[i]) == 0) return i;
    return -1;
}

static sonde_status take_entry(loader *c, const char *file, const snd_ynode *n, bool *has_model) {
    static const char *const known[] = {"model", "train", "data", "measure", "title", "notes"};
    if (strcmp(n->key, "model") == 0) {
        *has_model = true;
        return take_model(c, file, n);
    }
    const int part = part_of(n->key);
    if (part >= 0) return take_part(c, file, n, part);
    const bool title = strcmp(n->key, "title") == 0;
    if (title || strcmp(n->key, "notes") == 0) {
        SND_FAIL_IF(n->kind != SND_Y_SCALAR, SONDE_ETYPE, "%s:%d:%d: %s: text is needed", file, n->line, n->col,
                    n->key);
        *(title ? &c->s->title : &c->s->notes) = n->text;
        return SONDE_OK;
    }
    SND_FAIL_IF(snd_key_find(n->key) >= 0, SONDE_ENAME, "%s:%d:%d: the model key '%s' belongs under model:", file,
                n->key_line, n->key_col, n->key);
    return unknown_key(c, place(c->s->arena, file, n->key_line, n->key_col), n->key, snd_nearest(n->key, known, 6));
}

static sonde_status take_document(loader *c, const char *file, const char *text, size_t n) {
    snd_ynode *root;
    SND_TRY(snd_yaml_parse(c->s->arena, file, (const uint8_t *)text, n, &root));
    SND_FAIL_IF(!root, SONDE_EINPUT, "%s: an empty file; a spec holds model: with keys and values", file);
    SND_FAIL_IF(root->kind != SND_Y_MAP, SONDE_ETYPE,
                "%s:%d:%d: a spec holds model: with keys and values, found something else", file, root->line,
                root->col);
    bool has_model = false;
    for (const snd_ynode *e = root->first; e; e = e->next) SND_TRY(take_entry(c, file, e, &has_model));
    SND_FAIL_IF(!has_model, SONDE_EINPUT, "%s: model: is missing", file);
    return SONDE_OK;
}

static sonde_status take_file(loader *c, const char *path) {
    snd_spec_text own = {0}, *t = c->text ? c->text : &own;
    if (!t->data) SND_TRY(snd_read_file(path, SND_YAML_BYTES, &t->data, &t->n));
    const sonde_status s = take_document(c, path, t->data, t->n);
    snd_free(own.data);
    return s;
}

// ---- what SPEC names ----------------------------------------------------------------------------------------------------

static bool exists_as_file(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && !S_ISDIR(st.st_mode);
}

static bool ends_with(const char *s, const char *end) {
    const size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static bool looks_like_path(const char *s) {
    return strchr(s, '/') || ends_with(s, ".yaml") || ends_with(s, ".yml") || ends_with(s, ".json");
}

static sonde_status unknown_spec(loader *c, const char *spec) {
    const int np = snd_preset_count(), nw = snd_wiring_count();
    const char **names;
    SND_NEW(c->s->arena, names, np + nw + 1);
    for (int i = 0; i < np; i++) names[i] = snd_preset_name(i);
    for (int i = 0; i < nw; i++) names[np + i] = snd_wiring_at(i)->key;
    char t[72];
    SND_FAIL_IF(strpbrk(spec, "(+*"), SONDE_ENAME,
                "'%s' is no file, preset or wiring, and a formula says what it assigns: 'x = ...'", snd_shown(t, spec));
    SND_FAIL(SONDE_ENAME, "'%s' is no file, preset, wiring or formula (text with '=')%s", snd_shown(t, spec),
             suggestion(c->s->arena, snd_nearest(spec, names, np + nw)));
}

static sonde_status take_spec(loader *c, const char *spec) {
    c->s->from_command_line = false;
    if (exists_as_file(spec)) return take_file(c, spec);
    if (!snd_is_formula(spec)) {
        if (looks_like_path(spec)) return take_file(c, spec); // its error says why it cannot be opened
        const char *text = snd_preset_find(spec);
        if (text) {
            const char *name = snd_arena_printf(c->s->arena, "%s.yaml", spec);
            return name ? take_document(c, name, text, strlen(text)) : SONDE_ENOMEM;
        }
    }
    c->s->from_command_line = true;
    if (!snd_is_formula(spec) && !snd_wiring_find(spec)) return unknown_spec(c, spec);
    c->raw[SND_KEY_wiring] = (snd_raw){snd_arena_str(c->s->arena, spec), "", true};
    return c->raw[SND_KEY_wiring].text ? SONDE_OK : SONDE_ENOMEM;
}

static sonde_status take_override(loader *c, const char *word) {
    c->s->from_command_line = true;
    const char *eq = strchr(word, '=');
    char t[72];
    SND_FAIL_IF(!eq || eq == word, SONDE_EUSAGE, "'%s': key=value is needed", snd_shown(t, word));
    const char *key = snd_arena_strn(c->s->arena, word, (size_t)(eq - word));
    const char *text = snd_arena_str(c->s->arena, eq + 1);
    if (!key || !text) return SONDE_ENOMEM;
    const int k = snd_key_find(key);
    if (k < 0) return unknown_key(c, "", key, snd_key_nearest(key));
    c->raw[k] = (snd_raw){text, "", true};
    // layers=4 is said of the net: what the file says of either stack would leave it without effect
    if (k == SND_KEY_layers)
        for (int stack = SND_KEY_encoder_layers; stack <= SND_KEY_decoder_layers; stack++)
            if (!c->raw[stack].cli) c->raw[stack].text = NULL;
    return SONDE_OK;
}

static sonde_status load(snd_arena *a, const char *spec, snd_spec_text *text, bool open, const char *const *overrides,
                         int n_overrides, snd_spec **out) {
    *out = NULL;
    loader c = {.text = text};
    SND_NEW(a, c.s, 1);
    *out = c.s;
    c.s->arena = a;
    c.s->source = snd_arena_str(a, spec);
    if (!c.s->source) return SONDE_ENOMEM;
    SND_TRY(take_spec(&c, spec));
    for (int i = 0; i < n_overrides; i++) SND_TRY(take_override(&c, overrides[i]));
    return snd_spec_resolve(c.s, c.raw, open);
}

sonde_status snd_spec_load(snd_arena *a, const char *spec, const char *const *overrides, int n_overrides,
                           snd_spec **out) {
    return load(a, spec, NULL, false, overrides, n_overrides, out);
}

sonde_status snd_spec_load_again(snd_arena *a, const char *spec, snd_spec_text *text, const char *const *overrides,
                                 int n_overrides, snd_spec **out) {
    return load(a, spec, text, false, overrides, n_overrides, out);
}

sonde_status snd_spec_load_open(snd_arena *a, const char *spec, snd_spec_text *text, const char *const *overrides,
                                int n_overrides, snd_spec **out) {
    return load(a, spec, text, true, overrides, n_overrides, out);
}

int snd_spec_section(const snd_spec *s, const char *section, const char *const **pairs) {
    const int i = part_of(section);
    *pairs = i < 0 ? NULL : s->part[i].pairs;
    return i < 0 ? 0 : s->part[i].n;
}

const char *snd_spec_said(const snd_spec *s, const char *section, const char *key) {
    const char *const *pairs, *said = NULL;
    const int n = snd_spec_section(s, section, &pairs);
    const size_t length = strlen(key);
    for (int i = 0; i < n; i++)
        if (!strncmp(pairs[i], key, length) && pairs[i][length] == '=') said = pairs[i] + length + 1;
    return said;
}

sonde_status snd_spec_title(snd_arena *a, const char *yaml, const char **title, const char **notes) {
    snd_ynode *root;
    *title = *notes = NULL;
    SND_TRY(snd_yaml_parse(a, "preset", (const uint8_t *)yaml, strlen(yaml), &root));
    for (const snd_ynode *e = root && root->kind == SND_Y_MAP ? root->first : NULL; e; e = e->next) {
        if (e->kind == SND_Y_SCALAR && strcmp(e->key, "title") == 0) *title = e->text;
        if (e->kind == SND_Y_SCALAR && strcmp(e->key, "notes") == 0) *notes = e->text;
    }
    return SONDE_OK;
}
