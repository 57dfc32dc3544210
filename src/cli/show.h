// What the files that print a record as text share: which values are the stream, which metrics are shown, numbers as text.
#ifndef SND_CLI_SHOW_H
#define SND_CLI_SHOW_H

#include "cli/inner.h"

enum { SND_SHOW_METRICS = 16, SND_SHOW_SPARK = 32 };

/// The metrics that a table has columns for, and what is known of each.
typedef struct snd_columns {
    const char *name[SND_SHOW_METRICS];
    bool theory[SND_SHOW_METRICS], z[SND_SHOW_METRICS];
    int n;
} snd_columns;
/// The metrics that stream values have and that are asked for (--metrics; else q, cos, gq).
snd_columns snd_show_columns(const snd_cli *c, const snd_run *u);

/// The stream itself: in.x, layers.3.x, out.x, with or without encoder. or decoder. in front.
bool snd_show_is_stream(const char *name);
bool snd_show_ends(const char *s, const char *tail);
/// The measured mean, or the prediction where nothing was measured.
double snd_show_value(const snd_metric *m);
char *snd_show_text(char out[40], bool log, double v, int digits);
/// Does an earlier run have the label of run i?
bool snd_show_label_seen(const snd_record *r, int i);

void snd_show_run(snd_cli *c, const snd_run *u);          // sparklines, table over layers
void snd_show_runs(snd_cli *c, const snd_record *r);      // one line a run
void snd_show_panel(snd_cli *c, const snd_panel *p);
void snd_show_heatmap(snd_cli *c, const snd_heatmap *m);   // a sparkline for some of the rows
void snd_show_table(snd_cli *c, const snd_rtable *t);

#endif
