// sonde help [VERB|formula|keys|options]: the same texts as --help, and the three lists that have no verb.
#include "cli/inner.h"

#include <string.h>

static sonde_status unknown(const char *word) {
    const char *names[64] = {"formula", "keys", "options"};
    int n = 3;
    for (int i = 0; i < snd_verb_count() && n < 64; i++) names[n++] = snd_verb_at(i)->name;
    const char *near = snd_nearest(word, names, n);
    SND_FAIL_IF(near, SONDE_EUSAGE, "no help on '%s'; did you mean %s?", word, near);
    SND_FAIL(SONDE_EUSAGE, "no help on '%s'; 'sonde help' lists the verbs", word);
}

sonde_status snd_verb_help(snd_cli *c) {
    if (c->n_words == 0) snd_help_top(c);
    for (int i = 0; i < c->n_words; i++) {
        const char *word = c->words[i];
        const snd_verb *v = snd_verb_find(word);
        if (i > 0) snd_print(c, "\n");
        if (v)
            snd_help_verb(c, v);
        else if (strcmp(word, "formula") == 0)
            snd_help_formula(c);
        else if (strcmp(word, "keys") == 0)
            snd_help_keys(c);
        else if (strcmp(word, "options") == 0)
            snd_help_options(c);
        else
            return unknown(word);
    }
    return SONDE_OK;
}
