// What the files of cli/'s frame share with each other and verbs need not know.
#ifndef SND_CLI_INNER_H
#define SND_CLI_INNER_H

#include "cli/cli.h"

// The parsed value of one option row.
struct snd_opt_value {
    bool given, from_file;
    const char *text;
    int64_t i;
    double d;
    const char *s;
    const int64_t *ints;
    const char *const *strs;
    int n;
};

/// argv to verb, operands and options. *help is set for -h; then nothing else was checked.
sonde_status snd_args_parse(snd_cli *c, int argc, char **argv, bool *help, bool *version) SONDE_MUST_CHECK;
/// The option of this name that the verb has; else, and for verb NULL, the one that some verb has. NULL: there is none.
const snd_opt_row *snd_opt_find(const snd_verb *verb, const char *name, size_t n);
sonde_status snd_opt_set(snd_cli *c, const snd_opt_row *o, const char *text, bool from_file) SONDE_MUST_CHECK;
/// key=value of a file's measure: part.
sonde_status snd_opt_set_pair(snd_cli *c, const char *pair) SONDE_MUST_CHECK;
/// The nearest option of this verb, with dashes: NULL when none is near.
const char *snd_opt_nearest(const snd_cli *c, const char *name);
const char *snd_opt_key_nearest(const char *name);
bool snd_opt_is_key(const char *name, size_t n);

void snd_terminal_init(snd_cli *c);
/// Help texts, to stdout.
void snd_help_top(snd_cli *c);
void snd_help_verb(snd_cli *c, const snd_verb *v);
void snd_help_formula(snd_cli *c);
void snd_help_keys(snd_cli *c);
void snd_help_options(snd_cli *c);

/// Characters (code points) of a text; combining marks are not looked at.
int snd_text_width(const char *s);

/// The whole program but for the signal handler: returns the exit code.
int snd_cli_main(int argc, char **argv, snd_stop *stop);

#endif
