// From SPEC and key=value to a loaded spec, from a file's measure: part to options, and from these to settings. Remembers
// where a failure came from, which decides between exit 2 (the command line) and 3 (a file).
#include "cli/inner.h"
#include "train/train.h"

#include <string.h>

static const char *section_of(const snd_cli *c) {
    const char *verb = c->verb->name;
    if (strcmp(verb, "train") == 0) return "train";
    return strcmp(verb, "describe") == 0 && snd_opt_flag(c, "plan") ? "train" : "measure";
}

static sonde_status load(snd_cli *c, bool open, const char *const *overrides, int n, snd_spec **out) {
    *out = NULL;
    sonde_status s =
        (open ? snd_spec_load_open : snd_spec_load_again)(c->arena, c->spec_word, &c->spec_text, overrides, n, out);
    const bool known = snd_preset_find(c->spec_word) || snd_wiring_find(c->spec_word);
    if (s != SONDE_OK && !known && snd_is_folder(c->spec_word)) {
        *out = NULL;
        s = snd_fail(SONDE_EIO, __FILE__, __LINE__,
                     "%s is a folder; %s takes a spec, which for a trained model is its spec.yaml", c->spec_word,
                     c->verb->name);
    }
    if (s != SONDE_OK)
        c->file_at_fault = *out && !(*out)->from_command_line;
    else
        c->spec = *out;
    if (s != SONDE_OK && !*out) c->file_at_fault = s == SONDE_EIO || s == SONDE_EINPUT;
    // what a key lacks is input to the library; on the command line it is a word to add there
    return s == SONDE_EINPUT && !c->file_at_fault ? SONDE_EUSAGE : s;
}

static sonde_status apply_section(snd_cli *c, const snd_spec *spec) {
    const char *const *pairs = NULL;
    const char *section = section_of(c);
    const int n = snd_spec_section(spec, section, &pairs);
    for (int i = 0; i < n; i++) {
        const sonde_status s = snd_opt_set_pair(c, pairs[i]);
        if (s == SONDE_OK) continue;
        c->file_at_fault = true;
        return snd_fail_prefix(s, "%s: %s: ", c->spec_word, section);
    }
    return SONDE_OK;
}

sonde_status snd_cli_load_with(snd_cli *c, const char *const *more, int n_more, snd_spec **out) {
    if (!n_more && c->spec) { // a pipe can be read once
        *out = c->spec;
        return SONDE_OK;
    }
    const char **all;
    SND_NEW(c->arena, all, c->n_overrides + n_more + 1);
    for (int i = 0; i < c->n_overrides; i++) all[i] = c->overrides[i];
    for (int i = 0; i < n_more; i++) all[c->n_overrides + i] = more[i];
    SND_TRY(load(c, false, all, c->n_overrides + n_more, out));
    return apply_section(c, *out);
}

sonde_status snd_cli_load_spec(snd_cli *c, snd_spec **out) {
    return snd_cli_load_with(c, NULL, 0, out);
}

sonde_status snd_cli_load_open(snd_cli *c, snd_spec **out) {
    SND_TRY(load(c, true, c->overrides, c->n_overrides, out));
    return apply_section(c, *out);
}

sonde_status snd_cli_load_wiring(snd_cli *c, const char *wiring, snd_spec **out) {
    const char *pair = snd_arena_printf(c->arena, "wiring=%s", wiring);
    if (!pair) return SONDE_ENOMEM;
    return snd_cli_load_with(c, &pair, 1, out);
}

sonde_status snd_cli_train_settings(const snd_cli *c, snd_train_settings *s) {
    *s = snd_train_defaults();
    for (int i = 0; i < snd_train_key_count(); i++) {
        const snd_train_key *k = snd_train_key_at(i);
        const char *text = snd_opt_text(c, k->option);
        if (text) SND_TRY(snd_train_setting(s, "--", k->name, text));
    }
    return SONDE_OK;
}
