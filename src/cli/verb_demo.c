// sonde demo: the main job on built-in input. The lecture's panels, theory over measurement, and a race of four wirings that
// are trained on a text, in one report. The race has a folder and files of its own, as every training has.
#include "cli/train_view.h"
#include "lab/lab.h"
#include "report/report.h"

#include <string.h>

static const char RACE[] = "race"; // among the names of panels

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
    snd_table_cell(t, RACE);
    snd_table_cell(t, "Four wirings learn a text: a decoder, deep enough that they differ");
    snd_table_print(t);
    return SONDE_OK;
}

// ---- the race --------------------------------------------------------------------------------------------------------------------

typedef struct track {
    snd_cli *c;
    snd_train_view *view;
} track;

static void start(void *ctx, const char *wiring) {
    track *t = ctx;
    snd_train_view_end(t->view);
    t->view = snd_train_view_start(t->c, wiring, false);
}

static void step(void *ctx, const snd_train_point *p) {
    const track *t = ctx;
    if (t->view) snd_train_view_progress(t->view, p);
}

static sonde_status race(snd_cli *c, snd_record *r, const char *dir, double seconds) {
    track t = {.c = c};
    const snd_race_opts o = {.quick = snd_opt_flag(c, "quick"),
                             .seed = (uint64_t)snd_opt_int(c, "seed", 0),
                             .dtype = snd_dtype_find(snd_opt_str(c, "dtype", "f32")),
                             .threads = (int)snd_opt_int(c, "threads", 0),
                             .seconds = seconds,
                             .stop = c->stop,
                             .start = start,
                             .progress = step,
                             .ctx = &t};
    const sonde_status s = snd_lab_race(r, dir, &o);
    snd_train_view_end(t.view);
    return s;
}

// ---- the panels ------------------------------------------------------------------------------------------------------------------

static sonde_status panels(snd_cli *c, snd_record *r, const char *const *names, int n) {
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
    r->title = "Residual connections and normalisation: theory over measurement";
    return snd_lab_demo(r, names, n, &o);
}

// ---- the verb --------------------------------------------------------------------------------------------------------------------

// The words that name panels: all but the race.
static sonde_status panel_words(snd_cli *c, const char ***names, int *n, bool *with_race) {
    SND_NEW(c->arena, *names, c->n_words + 1);
    *n = 0;
    *with_race = c->n_words == 0 && !snd_opt_flag(c, "quick");
    for (int i = 0; i < c->n_words; i++) {
        if (!strcmp(c->words[i], RACE))
            *with_race = true;
        else
            (*names)[(*n)++] = c->words[i];
    }
    return SONDE_OK;
}

// Behind the panels, into DIR/race; the page in DIR then shows both. Of two documents --json prints the panels' alone.
static sonde_status race_behind(snd_cli *c, snd_record *r, double seconds) {
    const char *top = c->out_dir, *dir = snd_arena_printf(c->arena, "%s/%s", top, RACE);
    const char *page = snd_arena_printf(c->arena, "%s/report.html", top);
    snd_record *of_race = snd_record_create(c->arena, SND_REC_TRAIN);
    if (!dir || !page || !of_race) return SONDE_ENOMEM;
    const sonde_status s = race(c, of_race, dir, seconds);
    of_race->command = c->command;
    of_race->version = sonde_version();
    if (of_race->n_runs == 0) return s;
    c->out_dir = dir;
    const sonde_status shown = c->json || c->csv ? snd_report_folder(of_race, dir) : snd_cli_finish(c, of_race, s);
    c->out_dir = top;
    if (shown != SONDE_OK && shown != s) return shown;
    const snd_record *const both[] = {r, of_race};
    SND_TRY(snd_report_write(both, 2, page));
    return s;
}

sonde_status snd_verb_demo(snd_cli *c) {
    if (snd_opt_flag(c, "list")) return list_panels(c);
    const double start_sec = snd_now(), limit = snd_opt_num(c, "time-limit", 0);
    const char **names;
    int n;
    bool with_race;
    SND_TRY(panel_words(c, &names, &n, &with_race));
    const bool race_alone = with_race && n == 0 && c->n_words > 0;
    snd_record *r = snd_record_create(c->arena, race_alone ? SND_REC_TRAIN : SND_REC_DEMO);
    if (!r) return SONDE_ENOMEM;
    if (!c->out_dir) c->out_dir = "sonde-demo";
    SND_TRY(snd_cli_check_out(c, NULL));
    if (race_alone) return snd_cli_finish(c, r, race(c, r, c->out_dir, limit));
    SND_TRY(snd_cli_finish(c, r, panels(c, r, names, n)));
    const double left = limit > 0 ? limit - (snd_now() - start_sec) : 0;
    if (!with_race) return SONDE_OK;
    if (left >= 0) return race_behind(c, r, left);
    snd_note(c, "The time limit left no room for the race");
    return SONDE_OK;
}
