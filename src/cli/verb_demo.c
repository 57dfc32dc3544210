// sonde demo: the main job on built-in input. The lecture's panels, theory over measurement, in one report.
#include "cli/cli.h"
#include "lab/lab.h"
#include "report/report.h"

#include <string.h>

typedef struct bar {
    snd_cli *c;
    snd_progress p;
} bar;

static void progress(void *ctx, const char *stage, int64_t done, int64_t total) {
    bar *b = ctx;
    if (done == 0) b->p = snd_progress_start(b->c, stage, total);
    (void)snd_progress_step(&b->p, done);
    if (done == total) snd_progress_end(&b->p);
}

static sonde_status list_panels(snd_cli *c) {
    snd_text_table *t = snd_table(c, 2);
    snd_table_left(t, 0);
    snd_table_left(t, 1);
    for (int i = 0; i < snd_panel_count(); i++) {
        snd_table_cell(t, snd_panel_name(i));
        snd_table_cell(t, snd_panel_title(i));
    }
    snd_table_print(t);
    return SONDE_OK;
}

sonde_status snd_verb_demo(snd_cli *c) {
    if (snd_opt_flag(c, "list")) return list_panels(c);
    bar b = {.c = c};
    const snd_demo_opts o = {.quick = snd_opt_flag(c, "quick"),
                             .seed = (uint64_t)snd_opt_int(c, "seed", 0),
                             .threads = (int)snd_opt_int(c, "threads", 0),
                             .dtype = snd_dtype_find(snd_opt_str(c, "dtype", "f32")),
                             .max_memory = (size_t)snd_opt_int(c, "max-memory", 0),
                             .time_limit = snd_opt_num(c, "time-limit", 0),
                             .stop = c->stop,
                             .progress = progress,
                             .ctx = &b};
    snd_record *r = snd_record_create(c->arena, SND_REC_DEMO);
    if (!r) return SONDE_ENOMEM;
    r->title = "Residual connections and normalisation: theory over measurement";
    if (!c->out_dir) c->out_dir = "sonde-demo";
    SND_TRY(snd_cli_check_out(c, NULL));
    return snd_cli_finish(c, r, snd_lab_demo(r, c->words, c->n_words, &o));
}
