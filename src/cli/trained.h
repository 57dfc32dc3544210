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

/// By the command line's SPEC, --checkpoint, --weights, --tokenizer, --dtype, --threads. as_trained: without --dtype as the run
/// was trained, not f32; with f32 in place of f16, and a note. Close it in any case.
sonde_status snd_cli_load_trained(snd_cli *c, bool as_trained, snd_loaded *out) SONDE_MUST_CHECK;
void snd_loaded_close(snd_loaded *l);
/// Where look is set: the files of the trained model that SPEC and --checkpoint name, its spec in the place of SPEC. All NULL:
/// SPEC is another word, with which --checkpoint is refused.
sonde_status snd_cli_find_trained(snd_cli *c, bool look, snd_trained *out) SONDE_MUST_CHECK;
/// Does SPEC name a trained model? A preset or a key of the catalogue is one of those before it is a folder.
bool snd_cli_names_trained(const snd_cli *c);
/// What the run was trained on, of which `split` (--split, else validation) is meant; or --data, whose whole file stands for
/// validation. *set is NULL where neither says anything; the caller closes it.
sonde_status snd_cli_open_set(snd_cli *c, const snd_loaded *l, snd_split *split, snd_set **set) SONDE_MUST_CHECK;
/// --data-folder, said to be `path`: is one there?
sonde_status snd_cli_check_folder(snd_cli *c, const char *path) SONDE_MUST_CHECK;
/// The tokenizer, which text needs and whose tokens the model must have.
sonde_status snd_loaded_need_tokenizer(const snd_cli *c, const snd_loaded *l) SONDE_MUST_CHECK;
/// Says once which characters were read as <unk>: of a text, of the splits first .. last of a set.
sonde_status snd_cli_note_unknown(snd_cli *c, const snd_unknown *u) SONDE_MUST_CHECK;
sonde_status snd_cli_note_unknown_in(snd_cli *c, const snd_set *set, snd_split first, snd_split last) SONDE_MUST_CHECK;
/// The path from the root on: one that is relative begins in the folder that this process stands in, which "" stands for.
sonde_status snd_cli_full_path(snd_cli *c, const char *path, const char **out) SONDE_MUST_CHECK;
/// Tokens that the model sees at a time: --OPTION, else as many as it was trained on (with a note where its context is longer, and
/// `needed` is too), else its context, else `dflt`. Learned positions beyond those trained on get a note.
/// errors  SONDE_EUSAGE: --OPTION beyond learned positions
sonde_status snd_cli_window(snd_cli *c, const snd_spec *s, const char *option, int64_t needed, int64_t dflt, int64_t *out) SONDE_MUST_CHECK;
/// A file, or stdin for "-", whole; caller frees.
sonde_status snd_cli_read_text(snd_cli *c, const char *path, char **text, size_t *n) SONDE_MUST_CHECK;

#endif
