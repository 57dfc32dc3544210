// What training would take, as describe --plan tells it: a row for every way of computing again.
#ifndef SND_CLI_FORESEEN_H
#define SND_CLI_FORESEEN_H

#include "cli/cli.h"
#include "train/train.h"

typedef struct snd_foreseen snd_foreseen;

/// By the command line and the file's train: part. *out is NULL without --plan.
/// errors  SONDE_EUSAGE: an option that needs --plan; those of snd_train_foresee
sonde_status snd_cli_foresee(snd_cli *c, const snd_spec *spec, snd_foreseen **out) SONDE_MUST_CHECK;
void snd_foreseen_show(snd_cli *c, const snd_foreseen *f);
/// As member "plan" of the object at hand.
void snd_foreseen_json(snd_json *j, const snd_foreseen *f);

#endif
