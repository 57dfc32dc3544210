// From what a person types to the files of a trained model. What a checkpoint holds is said in train/train.h.
#include "lab/trained.h"

#include <jansson.h>
#include <string.h>

static const char *join(snd_arena *a, const char *dir, const char *name) {
    return snd_arena_printf(a, "%s/%s", dir, name);
}

static bool exists(const char *path) {
    return snd_same_file(path, path);
}

// What state.json of a checkpoint says; NULL: nothing that can be read. The caller drops the reference.
static json_t *read_state(snd_arena *a, const char *checkpoint) {
    const char *path = join(a, checkpoint, "state.json");
    char *text;
    size_t n;
    if (!path || snd_read_file(path, 1 << 20, &text, &n) != SONDE_OK) return NULL;
    json_t *o = json_loadb(text, n, 0, NULL);
    snd_free(text);
    return o;
}

// The step that it calls the best one; -1: it does not say.
static int64_t best_step(snd_arena *a, const char *checkpoint) {
    json_t *o = read_state(a, checkpoint);
    const json_t *best = json_object_get(o, "best_valid_loss"), *step = json_object_get(o, "best_step");
    const int64_t out = json_is_number(best) && json_is_integer(step) ? (int64_t)json_integer_value(step) : -1;
    json_decref(o);
    return out;
}

static const char *dtype_of(snd_arena *a, const char *checkpoint) {
    json_t *o = read_state(a, checkpoint);
    const char *name = json_string_value(json_object_get(o, "dtype"));
    if (name) name = snd_arena_strn(a, name, strlen(name));
    json_decref(o);
    return name;
}

static sonde_status checkpoint_at(snd_arena *a, const char *run, const char *which, const char **folder) {
    SND_TRY(snd_checkpoint_newest(a, run, folder));
    if (!which) return SONDE_OK;
    int64_t step;
    if (!strcmp(which, "best")) {
        step = best_step(a, *folder);
        SND_FAIL_IF(step < 0, SONDE_EIO, "%s: no step is its best one: nothing was validated", run);
    } else {
        SND_FAIL_IF(!snd_parse_int(which, &step, NULL) || step < 0, SONDE_EUSAGE,
                    "--checkpoint is '%s', must be best or a step", which);
    }
    *folder = snd_arena_printf(a, "%s/checkpoints/%lld", run, (long long)step);
    if (!*folder) return SONDE_ENOMEM;
    SND_FAIL_IF(!snd_is_folder(*folder), SONDE_EIO, "%s is missing: a run keeps the last two checkpoints and the best",
                *folder);
    return SONDE_OK;
}

bool snd_trained_is_file(const char *word) {
    static const char end[] = ".safetensors";
    const size_t n = strlen(word), m = sizeof end - 1;
    return n > m && !strcmp(word + n - m, end) && exists(word) && !snd_is_folder(word);
}

// Those that will be read are what was saved; a folder without a state has nothing to say about it.
static sonde_status check_files(snd_arena *a, const snd_trained *t) {
    const char *state = join(a, t->folder, "state.json"), *slash = strrchr(t->weights, '/');
    const char *const read[] = {slash ? slash + 1 : t->weights, "spec.yaml", "tokenizer.json"};
    if (!state) return SONDE_ENOMEM;
    return exists(state) ? snd_checkpoint_check(a, t->folder, read, 3) : SONDE_OK;
}

// A checkpoint's files, of which the weights may have been named.
static sonde_status take_files(snd_arena *a, const char *weights, snd_trained *out) {
    const char *ema = join(a, out->folder, "ema.safetensors");
    out->spec = join(a, out->folder, "spec.yaml");
    out->weights = weights ? weights : join(a, out->folder, "model.safetensors");
    out->tokenizer = join(a, out->folder, "tokenizer.json");
    if (!ema || !out->spec || !out->weights || !out->tokenizer) return SONDE_ENOMEM;
    if (!weights && exists(ema)) out->weights = ema;
    if (!exists(out->tokenizer)) out->tokenizer = NULL;
    out->dtype = dtype_of(a, out->folder);
    return check_files(a, out);
}

static sonde_status find_beside(snd_arena *a, const char *weights, const char *which, snd_trained *out) {
    const char *slash = strrchr(weights, '/');
    out->folder = slash ? snd_arena_strn(a, weights, (size_t)(slash - weights)) : ".";
    if (!out->folder) return SONDE_ENOMEM;
    SND_FAIL_IF(which, SONDE_EUSAGE, "--checkpoint %s: %s is a checkpoint's file already", which, weights);
    SND_TRY(take_files(a, weights, out));
    SND_FAIL_IF(
        !exists(out->spec), SONDE_EIO,
        "%s holds weights alone, and beside them is no spec.yaml that says of which model; give SPEC --weights %s",
        weights, weights);
    return SONDE_OK;
}

sonde_status snd_trained_find(snd_arena *a, const char *word, const char *which, snd_trained *out) {
    *out = (snd_trained){0};
    if (word && snd_trained_is_file(word)) return find_beside(a, word, which, out);
    if (!word || !snd_is_folder(word)) return SONDE_OK;
    word = snd_folder_name(a, word);
    const char *own = word ? join(a, word, "model.safetensors") : NULL;
    if (!own) return SONDE_ENOMEM;
    out->folder = word;
    SND_FAIL_IF(exists(own) && which, SONDE_EUSAGE, "--checkpoint %s: %s is a checkpoint already", which, word);
    if (!exists(own)) SND_TRY(checkpoint_at(a, word, which, &out->folder));
    return take_files(a, NULL, out);
}

int64_t snd_trained_tokens(const snd_spec *s) {
    const char *said = snd_spec_said(s, "train", "tokens");
    int64_t tokens = 0;
    if (said && !snd_parse_int(said, &tokens, NULL)) tokens = 0;
    return tokens > 0 && s->family == SND_FAM_TRANSFORMER ? tokens : 0;
}

int64_t snd_trained_window(const snd_spec *s, int64_t dflt) {
    const int64_t trained = snd_trained_tokens(s);
    if (trained && (s->context == 0 || trained < s->context)) return trained;
    return s->context > 0 ? s->context : dflt;
}
