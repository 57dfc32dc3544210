// sonde train: a spec and data become weights, with a line for people at every validation.
#include "cli/train_view.h"
#include "cli/trained.h"
#include "lab/lab.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- settings -------------------------------------------------------------------------------------------------------------------

// key=value lines of a part of the resolved spec.
typedef struct pairs {
    snd_arena *arena;
    const char **text;
    int n;
    bool failed;
} pairs;

static sonde_status start_pairs(snd_cli *c, int room, pairs *p) {
    *p = (pairs){.arena = c->arena};
    SND_NEW(c->arena, p->text, room + 1);
    return SONDE_OK;
}

// A key that is there already gets the new value.
static void put_pair(void *ctx, const char *key, const char *text) {
    pairs *p = ctx;
    const size_t n = strlen(key);
    int i = 0;
    while (i < p->n && (strncmp(p->text[i], key, n) != 0 || p->text[i][n] != '=')) i++;
    p->text[i] = snd_arena_printf(p->arena, "%s=%s", key, text);
    p->failed |= !p->text[i];
    if (i == p->n && !p->failed) p->n++;
}

static sonde_status data_setting(snd_data_settings *d, const char *where, const char *key, const char *text, pairs *p) {
    SND_TRY(snd_data_setting(d, where, key, text));
    put_pair(p, key, text);
    return SONDE_OK;
}

// On the command line paths begin here, unless it says where they do; in a file that says so, there.
static sonde_status said_setting(snd_cli *c, snd_data_settings *d, const snd_data_key *k, const char *text, pairs *p) {
    const char *here;
    SND_TRY(snd_cli_full_path(c, "", &here));
    const bool folder = !strcmp(k->name, "folder");
    if (folder) text = snd_folder_name(c->arena, text);
    if (!text) return SONDE_ENOMEM;
    if (folder) SND_TRY(snd_cli_check_folder(c, text));
    const bool elsewhere = d->folder && strcmp(d->folder, here) != 0 && !snd_opt_given(c, "data-folder");
    if (folder || (elsewhere && snd_data_is_relative(k->name, text))) SND_TRY(snd_cli_full_path(c, text, &text));
    return data_setting(d, "--", k->name, text, p);
}

// A run is gone on with from anywhere: it keeps the folder that its relative paths begin in.
static sonde_status keep_folder(snd_cli *c, snd_data_settings *d, pairs *p) {
    const char *here;
    bool relative = false;
    for (int i = 0; i < p->n; i++) {
        const size_t n = strcspn(p->text[i], "=");
        const char *key = snd_arena_strn(c->arena, p->text[i], n);
        if (!key) return SONDE_ENOMEM;
        relative |= snd_data_is_relative(key, p->text[i] + n + 1);
    }
    if (!relative || d->folder) return SONDE_OK;
    SND_TRY(snd_cli_full_path(c, "", &here));
    return data_setting(d, "", "folder", here, p);
}

// What the run writes is none of what it reads, whether a path is found where the folder says or here.
static sonde_status keep_data(const snd_cli *c, const snd_data_settings *d) {
    const char *const paths[] = {d->path, d->valid_path, d->test_path, d->tokenizer};
    for (int i = 0; i < 4; i++) {
        if (!paths[i]) continue;
        const char *there =
            d->folder && *paths[i] != '/' ? snd_arena_printf(c->arena, "%s/%s", d->folder, paths[i]) : NULL;
        SND_TRY(snd_cli_check_read(c, paths[i]));
        SND_TRY(snd_cli_check_read(c, there));
    }
    return SONDE_OK;
}

// A bpe learns no more tokens than the model has rows for, unless somebody said how many.
static void limit_bpe(const snd_cli *c, const snd_spec *spec, snd_data_settings *d, const pairs *p) {
    bool said = snd_opt_given(c, "bpe-vocab");
    for (int i = 0; i < p->n; i++) said |= !strncmp(p->text[i], "bpe_vocab=", 10);
    if (!said && spec->vocab > 256 && spec->vocab < d->bpe_vocab) d->bpe_vocab = spec->vocab;
}

// The data: part of the file first, then the command line, which wins.
static sonde_status read_data_settings(snd_cli *c, const snd_spec *spec, snd_data_settings *d, pairs *p) {
    const char *const *part;
    const int n = snd_spec_section(spec, "data", &part);
    *d = snd_data_defaults();
    SND_TRY(start_pairs(c, snd_data_key_count(), p));
    for (int i = 0; i < n; i++) {
        const char *eq = strchr(part[i], '=');
        const char *key = snd_arena_strn(c->arena, part[i], (size_t)(eq - part[i]));
        if (!key) return SONDE_ENOMEM;
        const sonde_status s = data_setting(d, "", key, eq + 1, p);
        c->file_at_fault = s != SONDE_OK;
        if (s != SONDE_OK) return snd_fail_prefix(s, "%s: data: ", c->spec_word);
    }
    for (int i = 0; i < snd_data_key_count(); i++) {
        const snd_data_key *k = snd_data_key_at(i);
        const char *text = snd_opt_text(c, k->option);
        if (text) SND_TRY(said_setting(c, d, k, text, p));
    }
    SND_FAIL_IF(!d->path, SONDE_EUSAGE,
                "train needs data: --data FILE (a text, token numbers, pairs, images or a table)");
    SND_TRY(keep_data(c, d));
    SND_TRY(keep_folder(c, d, p));
    limit_bpe(c, spec, d, p);
    return p->failed ? SONDE_ENOMEM : SONDE_OK;
}

// ---- the spec and the data -----------------------------------------------------------------------------------------------------

static bool key_given(const snd_cli *c, const char *key) {
    const size_t n = strlen(key);
    for (int i = 0; i < c->n_overrides; i++)
        if (!strncmp(c->overrides[i], key, n) && c->overrides[i][n] == '=') return true;
    return false;
}

// A wiring alone says nothing of a family: with text it is a Transformer's, with rows of a table an mlp's.
static bool family_open(const snd_cli *c, const snd_spec *s, const snd_data_settings *d) {
    return !snd_data_has_classes(d) && s->family == SND_FAM_MLP && s->inputs == 0 && s->outputs == 0 &&
           s->objective == SND_OBJ_INVALID && !s->family_given && !key_given(c, "block");
}

static sonde_status open_set(snd_cli *c, const snd_spec *spec, const snd_data_settings *d, snd_task *task,
                             snd_set **set) {
    const bool open = family_open(c, spec, d);
    *task = open ? SND_TASK_LM : snd_train_task(spec);
    sonde_status s = snd_set_open(d, *task, set);
    if (s != SONDE_OK && open) {                                                  // no text: rows with a class
        const bool no_text = s == SONDE_EUNSUPPORTED && d->kind == SND_DATA_AUTO; // but images, whose fault it is then
        const sonde_status first = s;
        char said[512];
        snprintf(said, sizeof said, "%s", sonde_error_message());
        *task = SND_TASK_CLASS;
        s = snd_set_open(d, *task, set);
        if (s == SONDE_OK) return s;
        if (!no_text) s = snd_fail(first, __FILE__, __LINE__, "%s", said);
    }
    c->file_at_fault = s != SONDE_OK;
    const bool images = spec->family == SND_FAM_CONVNET;
    if ((s == SONDE_EINPUT || s == SONDE_ESYNTAX) && *task == SND_TASK_CLASS && !open && !snd_data_has_classes(d))
        return snd_fail_prefix(s, "family %s learns from %s with a class (a text needs family=transformer): ",
                               snd_family_name(spec->family), images ? "images" : "rows");
    SND_FAIL_IF(s == SONDE_OK && images && snd_set_kind(*set) == SND_DATA_TABLE, SONDE_EINPUT,
                "family convnet learns from images, and %s is a table, which needs family=mlp", d->path);
    const bool runs_own = snd_opt_given(c, "resume") && !snd_opt_given(c, "data");
    return s == SONDE_EIO && runs_own ? snd_fail_prefix(s, "the run's data, for which --data PATH stands in: ") : s;
}

static sonde_status complete_spec(snd_cli *c, const snd_set *set, snd_task task, int64_t tokens, snd_spec **spec) {
    const char *more[SND_LAB_COMPLETE];
    int n;
    const snd_spec *s = *spec;
    SND_TRY(snd_lab_complete(c->arena, s, set, task, tokens, more, &n));
    if (n == 0 && task != SND_TASK_CLASS && s->vocab > snd_set_vocab(set) && snd_set_vocab(set) > 0)
        snd_note(c, "the model has %lld tokens, the data %lld: vocab=%lld would be enough", (long long)s->vocab,
                 (long long)snd_set_vocab(set), (long long)snd_set_vocab(set));
    if (n == 0) return SONDE_OK;
    snd_buf b = {0};
    for (int i = 0; i < n; i++) snd_buf_printf(&b, "%s%s", i ? ", " : "", more[i]);
    snd_note(c, "from the data: %s", b.s ? b.s : "");
    snd_buf_free(&b);
    return snd_cli_load_with(c, more, n, spec);
}

// What was said and would change nothing.
static sonde_status refuse_idle(const snd_cli *c, const snd_set *set, const snd_data_settings *d,
                                const snd_train_settings *s) {
    const snd_tokenizer *t = snd_set_tokenizer(set);
    const bool made = !d->tokenizer || !snd_data_is_relative("tokenizer", d->tokenizer);
    const snd_fact facts[] = {{"data-kind", snd_data_kind_name(snd_set_kind(set))},
                              {"objective", snd_task_name(snd_set_task(set))},
                              {"tokenizer", !t     ? "none"
                                            : made ? snd_tokenizer_kind_name(snd_tokenizer_kind_of(t))
                                                   : "file"},
                              {"valid-data", d->valid_path ? "given" : "none"},
                              {"test-data", d->test_path               ? "given"
                                            : snd_set_brings_test(set) ? "t10k-*"
                                                                       : "none"},
                              {"data-path", snd_data_any_relative(d) ? "relative" : d->path},
                              {"-o", c->out_dir ? "given" : "none"},
                              {"dtype", snd_opt_str(c, "dtype", "f32")},
                              {"optimizer", s->optimizer},
                              {"schedule", s->schedule},
                              {"weight-decay", s->weight_decay > 0 ? "more" : "0"},
                              {"loss-scale", !strcmp(s->loss_scale, "dynamic") ? "dynamic" : "fixed"}};
    return snd_opt_check_use(c, facts, (int)(sizeof facts / sizeof *facts));
}

// ---- the resolved spec ---------------------------------------------------------------------------------------------------------

// Classes that are words keep their numbers: other files of the same table may lack some.
static sonde_status keep_classes(const snd_set *set, pairs *data) {
    snd_buf b = {0};
    for (int64_t i = 0; snd_set_class_name(set, i); i++)
        snd_buf_printf(&b, "%s%s", i ? "," : "", snd_set_class_name(set, i));
    if (b.s) put_pair(data, "classes", b.s);
    const bool failed = b.failed || data->failed;
    snd_buf_free(&b);
    return failed ? SONDE_ENOMEM : SONDE_OK;
}

static sonde_status write_spec(const snd_cli *c, const snd_spec *spec) {
    const char *path = snd_arena_printf(c->arena, "%s/spec.yaml", c->out_dir);
    snd_buf b = {0};
    if (!path) return SONDE_ENOMEM;
    snd_spec_print_yaml(spec, &b);
    sonde_status s = b.failed ? SONDE_ENOMEM : snd_make_dirs(c->out_dir);
    if (s == SONDE_OK) s = snd_write_file(path, b.s, b.len);
    snd_buf_free(&b);
    return s;
}

// ---- what is settled before a run ----------------------------------------------------------------------------------------------

static void print_schedule(snd_cli *c, const snd_train_settings *s) {
    snd_print(c, "step,lr\n");
    for (int64_t i = 1; i <= s->steps && !(c->stop && c->stop->flag); i++) {
        char lr[40];
        snd_print(c, "%lld,%s\n", (long long)i, snd_format_num(lr, snd_train_lr(s, i), 17));
    }
}

static sonde_status print_weights(snd_cli *c, const snd_spec *spec, const snd_train_settings *s) {
    snd_description *d;
    SND_TRY(snd_describe_facts(c->arena, spec, &d));
    snd_print(c, "name,role,elements,decay,toward\n");
    for (int i = 0; i < d->n_params; i++) {
        const snd_param_row *p = &d->params[i];
        char rate[40], toward[40];
        double r, to;
        if (p->state) continue;
        snd_train_decay(s, spec, p, &r, &to);
        snd_print(c, "%s,%s,%lld,%s,%s\n", p->name, p->role, (long long)snd_shape_size(p->shape),
                  snd_format_num(rate, r, 17), r > 0 ? snd_format_num(toward, to, 17) : "");
    }
    return SONDE_OK;
}

// ---- the verb -------------------------------------------------------------------------------------------------------------------

static sonde_status run(snd_cli *c, snd_spec *spec, const snd_data_settings *d, pairs *data, snd_train_settings *s,
                        snd_set *set, snd_task task) {
    SND_TRY(complete_spec(c, set, task, s->tokens > 0 ? s->tokens : 128, &spec));
    SND_TRY(snd_train_resolve(s, spec));
    SND_TRY(refuse_idle(c, set, d, s));
    SND_TRY(keep_classes(set, data));
    const snd_trainer_opts t = {.dtype = snd_dtype_find(snd_opt_str(c, "dtype", "f32")),
                                .seed = (uint64_t)snd_opt_int(c, "seed", 0),
                                .threads = (int)snd_opt_int(c, "threads", 0),
                                .stop = c->stop};
    SND_TRY(snd_lab_train_parts(c->arena, spec, s, &t, data->text, data->n));
    SND_TRY(snd_cli_note_unknown_in(c, set, SND_SPLIT_TRAIN, SND_SPLIT_TEST));
    const char *print = snd_opt_str(c, "print", NULL);
    if (print && !strcmp(print, "weights")) return print_weights(c, spec, s);
    if (print) print_schedule(c, s);
    if (print) return c->stop && c->stop->flag ? SONDE_EINTERRUPTED : SONDE_OK;
    const bool again = snd_opt_given(c, "resume");
    if (c->out_dir && !again) SND_TRY(write_spec(c, spec)); // now: the run may be killed; again: may still be refused
    snd_record *r = snd_record_create(c->arena, SND_REC_TRAIN);
    snd_run *u = r ? snd_lab_train_open(r, spec, set, &t) : NULL;
    snd_train_view *view = u ? snd_train_view_start(c, NULL, true) : NULL;
    if (!view) return SONDE_ENOMEM;
    snd_note(c, "%s", u->input);
    if (t.dtype == SND_BF16)
        snd_note(c, "products of bf16 operands by %s%s", snd_k_bf16_name(),
                 spec->family == SND_FAM_CONVNET ? "; convolutions stay f32" : "");
    if (t.dtype == SND_F16)
        snd_note(c, "f16 emulated: the weights' copy and all results are rounded to it; loss scale %s", s->loss_scale);
    const snd_train_opts o = {.t = t,
                              .dir = c->out_dir,
                              .resume = again,
                              .run = u,
                              .point = snd_train_view_point,
                              .progress = snd_train_view_progress,
                              .ctx = view};
    snd_train_result result;
    const sonde_status status = snd_train_run(spec, s, set, &o, &result);
    snd_train_view_end(view);
    if (status != SONDE_OK && status != SONDE_EDIVERGED && status != SONDE_EINTERRUPTED) return status;
    char said[512];
    snprintf(said, sizeof said, "%s", status == SONDE_OK ? "" : sonde_error_message());
    snd_lab_train_close(u, &result);
    SND_TRY(snd_cli_result(c, r));
    SND_FAIL_IF(status != SONDE_OK, status, "%s", said);
    return SONDE_OK;
}

// A checkpoint's name is its step; what was begun and never finished is called otherwise.
static void note_if_number(void *found, const char *name) {
    *(bool *)found |= *name && strspn(name, "0123456789") == strlen(name);
}

// Two runs in one folder would take each other's checkpoints for their own.
static sonde_status refuse_old_run(const snd_cli *c) {
    bool found = false;
    const char *dir = c->out_dir ? snd_arena_printf(c->arena, "%s/checkpoints", c->out_dir) : NULL;
    if (!dir || snd_opt_given(c, "resume") || !snd_is_folder(dir)) return SONDE_OK;
    SND_TRY(snd_list_folder(dir, note_if_number, &found));
    SND_FAIL_IF(found, SONDE_EUSAGE,
                "-o %s holds an earlier run's checkpoints; --resume %s goes on with it, else give "
                "another folder",
                c->out_dir, c->out_dir);
    return SONDE_OK;
}

// Where an earlier run stands, and a setting that is said anew (NULL: none).
typedef struct earlier {
    int64_t step;
    const char *said;
} earlier;

static const char *setting_said(const snd_cli *c) {
    for (int i = 0; i < snd_train_key_count(); i++)
        if (snd_opt_given(c, snd_train_key_at(i)->option)) return snd_train_key_at(i)->option;
    return NULL;
}

// A resumed run brings its own spec; steps and the like may be said anew.
static sonde_status find_resumed(snd_cli *c, earlier *e) {
    *e = (earlier){0};
    const char *dir = snd_opt_str(c, "resume", NULL);
    if (!dir) return SONDE_OK;
    SND_FAIL_IF(c->spec_word || c->n_overrides, SONDE_EUSAGE, "--resume brings its own spec; '%s' would be ignored",
                c->spec_word ? c->spec_word : c->overrides[0]);
    SND_FAIL_IF(c->out_dir && !snd_same_file(c->out_dir, dir), SONDE_EUSAGE,
                "--resume %s goes on in that folder; leave -o out", dir);
    const char *path;
    c->file_at_fault = true;
    SND_TRY(snd_checkpoint_newest(c->arena, dir, &path));
    SND_TRY(snd_checkpoint_check(c->arena, path, (const char *const[]){"spec.yaml"}, 1)); // before it is believed
    c->file_at_fault = false;
    *e = (earlier){strtoll(strrchr(path, '/') + 1, NULL, 10), setting_said(c)};
    c->out_dir = dir;
    c->spec_word = snd_arena_printf(c->arena, "%s/spec.yaml", path);
    return c->spec_word ? SONDE_OK : SONDE_ENOMEM;
}

// What a run's checkpoints are made of: with another one they would not fit.
static sonde_status refuse_changes(const snd_cli *c, const snd_spec *spec) {
    static const char *const keys[] = {"seed", "dtype", "optimizer"};
    for (int k = 0; k < 3 && snd_opt_given(c, "resume"); k++) {
        const char *said = snd_opt_said(c, keys[k]) ? snd_opt_text(c, keys[k]) : NULL;
        const char *was = snd_spec_said(spec, "train", keys[k]);
        if (!said || !was) continue;
        int64_t a, b;
        const bool same =
            !strcmp(said, was) || (snd_parse_int(said, &a, NULL) && snd_parse_int(was, &b, NULL) && a == b); // 07 is 7
        SND_FAIL_IF(!same, SONDE_EUSAGE, "--%s %s: the run was begun with %s and goes on with it; leave --%s out",
                    keys[k], said, was, keys[k]);
    }
    return SONDE_OK;
}

// Before the folder's spec says what no step was made with.
static sonde_status refuse_late_settings(const earlier *e, const snd_train_settings *s) {
    SND_FAIL_IF(e->said && e->step >= s->steps, SONDE_EUSAGE,
                "--%s would change nothing: the run stands at step %lld and steps is %lld; more --steps go on with it",
                e->said, (long long)e->step, (long long)s->steps);
    return SONDE_OK;
}

sonde_status snd_verb_train(snd_cli *c) {
    snd_spec *spec;
    snd_set *set = NULL;
    snd_task task;
    snd_data_settings d;
    pairs data;
    snd_train_settings s;
    earlier before;
    SND_FAIL_IF(snd_opt_given(c, "print") && (c->out_dir || c->json), SONDE_EUSAGE,
                "--print trains nothing and prints CSV; leave %s out", c->json ? "--json" : "-o");
    SND_TRY(find_resumed(c, &before));
    SND_TRY(refuse_old_run(c));
    SND_TRY(snd_cli_load_open(c, &spec));
    SND_TRY(refuse_changes(c, spec));
    SND_TRY(snd_cli_check_out(c, spec));
    SND_TRY(read_data_settings(c, spec, &d, &data));
    SND_TRY(snd_cli_train_settings(c, &s));
    SND_TRY(refuse_late_settings(&before, &s));
    sonde_status status = open_set(c, spec, &d, &task, &set);
    if (status == SONDE_OK) status = run(c, spec, &d, &data, &s, set, task);
    snd_set_close(set);
    return status;
}
