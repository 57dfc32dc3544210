// The race: one decoder, four wirings, the same draws, batches and settings. It is as deep as these wirings need to differ:
// shallow ones all learn. Nothing is decided here but who starts; what is shown is what training found.
#include "lab/lab.h"
#include "base/embed.h"

#include <math.h>
#include <string.h>

static const char *const RACERS[] = {"post", "pre", "deepnorm", "b2t"};
enum { N_RACERS = sizeof RACERS / sizeof *RACERS };

typedef struct race {
    snd_record *rec;
    const snd_race_opts *o;
    const char *path, *layers, *width; // of the text; as keys of the spec
    snd_set *set;
    snd_train_settings s;
    snd_rtable *table;
    double deadline; // of the wiring at work
    snd_stop stop;   // ends it: the user's wish, or the deadline
    int done;
} race;

// ---- the course ----------------------------------------------------------------------------------------------------------------

// The embedded text up to its last line break, as a file: a person can go on with it.
static sonde_status write_text(race *r, const char *dir) {
    size_t n;
    const char *text = snd_embedded("data/austen.txt", &n);
    SND_FAIL_IF(!text, SONDE_EUNSUPPORTED, "the race: this build has no text to train on");
    while (n > 0 && text[n - 1] != '\n') n--;
    r->path = snd_record_text(r->rec, "%s/austen.txt", dir);
    SND_TRY(snd_make_dirs(dir));
    return snd_write_file(r->path, text, n);
}

static sonde_status open_set(race *r) {
    snd_data_settings d = snd_data_defaults();
    d.path = r->path;
    d.tokenizer = "chars";
    return snd_set_open(&d, SND_TASK_LM, &r->set);
}

static snd_train_settings settings(bool quick) {
    snd_train_settings s = snd_train_defaults();
    s.steps = quick ? 20 : 800;
    s.tokens = quick ? 16 : 64;
    s.batch = quick ? 4 : 8;
    s.lr = 1e-3;
    s.warmup = s.steps / 10;
    s.eval_every = s.steps / 10;
    s.eval_batches = 8;
    return s;
}

static sonde_status load(const race *r, const char *wiring, snd_spec **out) {
    const char *over[] = {"family=transformer",
                          snd_record_text(r->rec, "layers=%s", r->layers),
                          snd_record_text(r->rec, "width=%s", r->width),
                          "heads=2",
                          "position=learned",
                          "init=embed,pos = normal(0.02)",
                          snd_record_text(r->rec, "context=%lld", (long long)r->s.tokens),
                          snd_record_text(r->rec, "vocab=%lld", (long long)snd_set_vocab(r->set))};
    return snd_spec_load(r->rec->arena, wiring, over, sizeof over / sizeof *over, out);
}

// ---- one wiring ----------------------------------------------------------------------------------------------------------------

static bool wished(const race *r) {
    return r->o->stop && r->o->stop->flag;
}

static void after_step(void *ctx, const snd_train_point *p) {
    race *r = ctx;
    if (r->o->progress) r->o->progress(r->o->ctx, p);
    if (wished(r) || snd_now() >= r->deadline) r->stop.flag = 1;
}

static void put_row(race *r, const char *wiring, const snd_train_result *result) {
    snd_rtable_text(r->table, wiring);
    snd_rtable_text(r->table, snd_record_text(r->rec, "%lld", (long long)result->step));
    snd_rtable_num(r->table, result->loss, false);
    snd_rtable_num(r->table, result->state.valid, false);
    snd_rtable_num(r->table, result->tokens_per_s, false);
}

static void tell_early_end(const race *r, const char *wiring, const snd_train_result *result) {
    snd_record_note_on(r->rec, wiring,
                       snd_record_text(r->rec, "%s after step %lld of %lld", wished(r) ? "interrupted" : "out of time",
                                       (long long)result->step, (long long)r->s.steps));
}

static sonde_status run_one(race *r, const char *wiring) {
    snd_spec *spec;
    snd_train_settings s = r->s;
    SND_TRY(load(r, wiring, &spec));
    SND_TRY(snd_train_resolve(&s, spec));
    r->stop.flag = wished(r);
    const snd_trainer_opts t = {.dtype = r->o->dtype, .seed = r->o->seed, .threads = r->o->threads, .stop = &r->stop};
    snd_run *u = snd_lab_train_open(r->rec, spec, r->set, &t);
    const snd_train_opts o = {.t = t, .run = u, .progress = after_step, .ctx = r};
    snd_train_result result;
    if (r->o->start) r->o->start(r->o->ctx, wiring);
    const sonde_status status = snd_train_run(spec, &s, r->set, &o, &result);
    if (status != SONDE_OK && status != SONDE_EINTERRUPTED && status != SONDE_EDIVERGED) return status;
    snd_lab_train_close(u, &result);
    put_row(r, wiring, &result);
    if (status == SONDE_EINTERRUPTED) tell_early_end(r, wiring, &result);
    r->done++; // one that diverged has run its race: its verdict says where
    return SONDE_OK;
}

// ---- the whole -----------------------------------------------------------------------------------------------------------------

static void tell(const race *r) {
    char lr[40];
    snd_record_note(r->rec,
                    "The race: a decoder of %s layers learns the beginning of Pride and Prejudice, character by "
                    "character, in several wirings, with the same draws, batches and settings. To go on from there: "
                    "`sonde train WIRING layers=%s width=%s heads=2 --data %s --tokenizer chars --steps %lld --batch "
                    "%lld --tokens %lld --lr %s --warmup %lld`.",
                    r->layers, r->layers, r->width, r->path, (long long)r->s.steps, (long long)r->s.batch,
                    (long long)r->s.tokens, snd_format_num(lr, r->s.lr, 3), (long long)r->s.warmup);
}

static sonde_status run_all(race *r) {
    static const char *const columns[] = {"wiring", "steps", "loss of the last step", "loss in validation", "tokens/s"};
    const double end = snd_now() + (r->o->seconds > 0 ? r->o->seconds : SND_RACE_SECONDS);
    tell(r);
    r->table = snd_record_table(r->rec, "The race", columns, 5);
    for (int i = 0; i < N_RACERS && !wished(r); i++) {
        const double now = snd_now();
        r->deadline = now + (end - now) / (N_RACERS - i); // what one leaves over is for those behind it
        SND_TRY(run_one(r, RACERS[i]));
    }
    SND_TRY(snd_record_status(r->rec));
    SND_FAIL_IF(wished(r), SONDE_EINTERRUPTED, "interrupted after %d of %d wirings", r->done, N_RACERS);
    return SONDE_OK;
}

sonde_status snd_lab_race(snd_record *rec, const char *dir, const snd_race_opts *o) {
    race r = {
        .rec = rec, .o = o, .layers = o->quick ? "4" : "12", .width = o->quick ? "16" : "48", .s = settings(o->quick)};
    SND_TRY(write_text(&r, dir));
    SND_TRY(open_set(&r));
    const sonde_status s = run_all(&r);
    snd_set_close(r.set);
    return s;
}
