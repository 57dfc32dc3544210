// What a person sees of a training run: on a terminal a few lines that are drawn in place, and at every validation a line that
// stays. A file or pipe gets those lines alone.
#ifndef SND_CLI_TRAIN_VIEW_H
#define SND_CLI_TRAIN_VIEW_H

#include "cli/cli.h"
#include "train/train.h"

typedef struct snd_train_view snd_train_view;

/// label: stands in front of the lines drawn in place (a race's wiring); lines: false leaves out those that stay.
/// NULL: out of memory.
snd_train_view *snd_train_view_start(snd_cli *c, const char *label, bool lines);
/// For snd_train_opts.progress and .point; ctx is the view.
void snd_train_view_progress(void *ctx, const snd_train_point *p);
void snd_train_view_point(void *ctx, const snd_train_point *p);
void snd_train_view_end(snd_train_view *v);    // takes what is drawn in place off the screen; NULL is fine

#endif
