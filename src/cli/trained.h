// A trained model as the verbs that use one take it: a run's folder, a checkpoint, or SPEC with --weights and --tokenizer.
#ifndef SND_CLI_TRAINED_H
#define SND_CLI_TRAINED_H

#include "cli/cli.h"
#include "lab/lab.h"

typedef struct snd_loaded {
    snd_spec *spec;
    snd_weights net;
    snd_tokenizer *tokenizer;          // NULL: none was named, and there is none beside the weights
    const char *weights, *tokenizer_path;      // tokenizer_path NULL: bytes, or none
    double seconds;                    // of opening it all
} snd_loaded;

/// By the command line's SPEC, --checkpoint, --weights, --tokenizer, --dtype, --threads. Close it in any case.
sonde_status snd_cli_load_trained(snd_cli *c, snd_loaded *out) SONDE_MUST_CHECK;
void snd_loaded_close(snd_loaded *l);
/// The tokenizer, which text needs and whose tokens the model must have.
sonde_status snd_loaded_need_tokenizer(const snd_cli *c, const snd_loaded *l) SONDE_MUST_CHECK;
/// A file, or stdin for "-", whole; caller frees.
sonde_status snd_cli_read_text(snd_cli *c, const char *path, char **text, size_t *n) SONDE_MUST_CHECK;

#endif
