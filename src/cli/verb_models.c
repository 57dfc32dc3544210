// sonde models [NAME ...]: the presets. Without names one line each; with names the YAML as it is in the catalogue, so
// that `sonde models gpt2 > mine.yaml` is the start of a spec of one's own.
#include "cli/inner.h"

#include <string.h>

static void json_model(snd_cli *c, snd_json *j, const char *name) {
    const char *text = snd_preset_find(name), *title = NULL, *notes = NULL;
    if (snd_spec_title(c->arena, text, &title, &notes) != SONDE_OK) title = notes = NULL;
    snd_json_open(j, NULL, '{');
    snd_json_str(j, "name", name);
    snd_json_str(j, "title", title);
    snd_json_str(j, "notes", notes);
    snd_json_str(j, "yaml", text);
    snd_json_close(j, '}');
}

static void list_models(snd_cli *c) {
    static const char *const head[] = {"model", "what it is"};
    snd_text_table *t = snd_table(c, 2);
    snd_table_head(t, head);
    snd_table_left(t, 0);
    snd_table_left(t, 1);
    for (int i = 0; i < snd_preset_count(); i++) {
        const char *title = NULL, *notes = NULL;
        if (snd_spec_title(c->arena, snd_preset_text(i), &title, &notes) != SONDE_OK) title = NULL;
        snd_table_cell(t, snd_preset_name(i));
        snd_table_ink(t, SND_INK_BOLD);
        snd_table_cell(t, title ? title : "");
    }
    snd_table_print(t);
    snd_note(c, "\n%d models; 'sonde models NAME' prints one as YAML", snd_preset_count());
}

static sonde_status check(const char *name) {
    if (snd_preset_find(name)) return SONDE_OK;
    const char *names[256];
    int n = 0;
    for (int i = 0; i < snd_preset_count() && n < 256; i++) names[n++] = snd_preset_name(i);
    const char *near = snd_nearest(name, names, n);
    SND_FAIL_IF(near, SONDE_ENAME, "unknown model '%s'; did you mean %s?", name, near);
    SND_FAIL(SONDE_ENAME, "unknown model '%s'; 'sonde models' lists them", name);
}

sonde_status snd_verb_models(snd_cli *c) {
    for (int i = 0; i < c->n_words; i++) SND_TRY(check(c->words[i]));
    if (c->json) {
        snd_buf b = {0};
        snd_json j = snd_json_start(&b);
        snd_json_open(&j, NULL, '{');
        snd_json_str(&j, "schema", "sonde.models/1");
        snd_json_open(&j, "models", '[');
        for (int i = 0; i < (c->n_words ? c->n_words : snd_preset_count()); i++)
            json_model(c, &j, c->n_words ? c->words[i] : snd_preset_name(i));
        snd_json_close(&j, ']');
        snd_json_close(&j, '}');
        snd_put(c, &b);
        snd_buf_free(&b);
        return SONDE_OK;
    }
    if (c->n_words == 0) list_models(c);
    for (int i = 0; i < c->n_words; i++) {
        const char *text = snd_preset_find(c->words[i]);
        if (i > 0) snd_print(c, "---\n");
        snd_print(c, "%s%s", text, *text && text[strlen(text) - 1] == '\n' ? "" : "\n");
    }
    return SONDE_OK;
}
