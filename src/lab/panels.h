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
    bool interrupted;      // SIGINT: what was measured is shown, nothing more is
} snd_show;

/// Options that every panel's measurement begins with: seed, type, threads and limits.
snd_measure_opts snd_show_opts(const snd_show *s);
/// snd_lab_measure for a panel. Interrupted: keeps what was finished and returns SONDE_OK, and so do all calls after it,
/// which measure nothing; a panel shows the runs that are there.
sonde_status snd_show_measure(snd_show *s, snd_record *to, const snd_spec *spec, const char *label, const snd_measure_opts *o) SONDE_MUST_CHECK;
/// Curves of one metric over the layers of a run, under this label: in.x at 0, then layer by layer.
sonde_status snd_show_layers(snd_panel *p, const snd_run *u, const char *label, const char *metric) SONDE_MUST_CHECK;
// Of panels_xf.c.
sonde_status snd_panel_last_gradient(snd_show *s, const char *title) SONDE_MUST_CHECK;
sonde_status snd_panel_token_gradient(snd_show *s, const char *title) SONDE_MUST_CHECK;
sonde_status snd_panel_stream(snd_show *s, const char *title) SONDE_MUST_CHECK;
sonde_status snd_panel_gpt2(snd_show *s, const char *title) SONDE_MUST_CHECK;
sonde_status snd_panel_side_by_side(snd_show *s, const char *title) SONDE_MUST_CHECK;

#endif
