// What the panels' files share: the show that is being made, and curves out of measured runs. Private to lab/.
#ifndef SND_LAB_PANELS_H
#define SND_LAB_PANELS_H

#include "lab/lab.h"

typedef struct snd_show {
    snd_record *rec;
    const snd_demo_opts *o;
    double deadline;       // of snd_now(), with a time limit
    bool have_slides;      // the nets of the slides' panels are measured once
    int slides_first;
    snd_record *plots;     // the sweeps of the one-matrix nets, measured once
    snd_record *blocks;    // the Transformers of the panels that compare wirings, measured once
} snd_show;

/// Options that every panel's measurement begins with: seed, type, threads and limits.
snd_measure_opts snd_show_opts(const snd_show *s);
/// Curves of one metric over the layers of a run, under this label: in.x at 0, then layer by layer.
sonde_status snd_show_layers(snd_panel *p, const snd_run *u, const char *label, const char *metric) SONDE_MUST_CHECK;
// Of panels_xf.c.
sonde_status snd_panel_last_gradient(snd_show *s, const char *title) SONDE_MUST_CHECK;
sonde_status snd_panel_token_gradient(snd_show *s, const char *title) SONDE_MUST_CHECK;
sonde_status snd_panel_stream(snd_show *s, const char *title) SONDE_MUST_CHECK;
sonde_status snd_panel_gpt2(snd_show *s, const char *title) SONDE_MUST_CHECK;
sonde_status snd_panel_side_by_side(snd_show *s, const char *title) SONDE_MUST_CHECK;

#endif
