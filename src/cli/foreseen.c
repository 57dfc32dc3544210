// describe --plan: the plans of the nets that train would make, and what they say of memory and operations.
#include "cli/foreseen.h"

#include <string.h>

static const char *const WAYS[] = {"none", "norms", "layers"}; // of the setting recompute
enum { N_WAYS = (int)(sizeof WAYS / sizeof *WAYS) };

struct snd_foreseen {
    snd_dtype dtype;
    snd_train_settings s;
    const char *batch; // "8 sequences of 256 tokens"
    snd_train_cost cost[N_WAYS];
};

// ---- finding out ----------------------------------------------------------------------------------------------------------------

static sonde_status refuse_without_plan(const snd_cli *c) {
    for (int i = 0; i < snd_opt_count(); i++) {
        const snd_opt_row *o = snd_opt_at(i);
        const bool own =
            strcmp(o->verbs, "*") != 0 && snd_opt_applies(o, c->verb->name) && strcmp(o->name, "full") != 0;
        SND_FAIL_IF(own && snd_opt_said(c, o->name), SONDE_EUSAGE, "--%s needs --plan", o->name);
    }
    return SONDE_OK;
}

static const char *batch_text(snd_cli *c, const snd_spec *spec, const snd_train_settings *s, int64_t image) {
    const long long rows = (long long)s->batch, T = (long long)s->tokens;
    switch (snd_train_task(spec)) {
    case SND_TASK_CLASS:
        if (spec->family != SND_FAM_CONVNET) return snd_arena_printf(c->arena, "%lld rows", rows);
        return snd_arena_printf(c->arena, "%lld images of %lld x %lld", rows, (long long)image, (long long)image);
    case SND_TASK_SEQ2SEQ: return snd_arena_printf(c->arena, "%lld pairs of %lld tokens a side", rows, T);
    default: return snd_arena_printf(c->arena, "%lld sequences of %lld tokens", rows, T);
    }
}

sonde_status snd_cli_foresee(snd_cli *c, const snd_spec *spec, snd_foreseen **out) {
    *out = NULL;
    if (!snd_opt_flag(c, "plan")) return refuse_without_plan(c);
    snd_foreseen *f;
    SND_NEW(c->arena, f, 1);
    f->dtype = snd_dtype_find(snd_opt_str(c, "dtype", "f32"));
    SND_TRY(snd_cli_train_settings(c, &f->s));
    SND_TRY(snd_train_resolve(&f->s, spec));
    const snd_fact facts[] = {{"objective", snd_task_name(snd_train_task(spec))},
                              {"family", snd_family_name(spec->family)}};
    SND_TRY(snd_opt_check_use(c, facts, 2));
    const int64_t side = snd_opt_int(c, "image-size", SND_IMAGE_SIDE), image[3] = {0, side, side};
    f->batch = batch_text(c, spec, &f->s, side);
    if (!f->batch) return SONDE_ENOMEM;
    for (int i = 0; i < N_WAYS; i++) {
        snd_train_settings s = f->s;
        s.recompute = WAYS[i];
        const sonde_status status = snd_train_foresee(c->arena, spec, &s, f->dtype, image, &f->cost[i]);
        // a model that lacks a head lacks a word of the command line, or of its file
        SND_TRY(status == SONDE_EINPUT && spec->from_command_line ? SONDE_EUSAGE : status);
    }
    *out = f;
    return SONDE_OK;
}

// ---- telling --------------------------------------------------------------------------------------------------------------------

// Columns of the table and members of the JSON rows.
static const struct part {
    const char *name, *member;
    size_t at;
    bool rare; // left out of the table where it is 0
} PARTS[] = {{"gradients", "gradients", offsetof(snd_train_cost, gradients), false},
             {"weights", "weights", offsetof(snd_train_cost, weights), false},
             {"moments", "moments", offsetof(snd_train_cost, moments), false},
             {"average", "average", offsetof(snd_train_cost, average), true},
             {"sums", "sums", offsetof(snd_train_cost, sums), true},
             {"f16 copy", "halves", offsetof(snd_train_cost, halves), true}};
enum { N_PARTS = (int)(sizeof PARTS / sizeof *PARTS) };

static size_t part_of(const snd_train_cost *k, int i) {
    return *(const size_t *)((const char *)k + PARTS[i].at);
}

static bool shown(const snd_foreseen *f, int i) {
    return !PARTS[i].rare || part_of(&f->cost[0], i) > 0;
}

static void bytes_cell(snd_cli *c, snd_text_table *t, size_t bytes) {
    char text[40];
    snd_table_cell(t, snd_arena_printf(c->arena, "%sB", snd_si(text, (double)bytes)));
}

static void show_way(snd_cli *c, snd_text_table *t, const snd_foreseen *f, int way) {
    const snd_train_cost *k = &f->cost[way];
    char text[40];
    snd_table_cell(t, snd_arena_printf(c->arena, "%s %s", strcmp(WAYS[way], f->s.recompute) ? " " : "*", WAYS[way]));
    bytes_cell(c, t, snd_train_cost_bytes(k));
    bytes_cell(c, t, k->values - k->gradients);
    for (int i = 0; i < N_PARTS; i++)
        if (shown(f, i)) bytes_cell(c, t, part_of(k, i));
    snd_table_cell(t, snd_si(text, k->flops));
    snd_table_cell(t, snd_si(text, k->flops_again));
}

void snd_foreseen_show(snd_cli *c, const snd_foreseen *f) {
    const char *names[N_PARTS + 5] = {"  recompute", "in all", "values"};
    int n = 3;
    for (int i = 0; i < N_PARTS; i++)
        if (shown(f, i)) names[n++] = PARTS[i].name;
    names[n++] = "FLOPs of a step";
    names[n++] = "of these again";
    snd_buf b = {0};
    snd_buf_put(&b, "\n");
    snd_ink_put(c, &b, SND_INK_BOLD, "Training");
    snd_buf_printf(&b, " (%s, %s", f->batch, snd_dtype_name(f->dtype));
    if (f->s.accumulate > 1) snd_buf_printf(&b, " in %lld parts", (long long)f->s.accumulate);
    snd_buf_printf(&b, ", %s; memory of its slabs)\n", f->s.optimizer);
    snd_put(c, &b);
    snd_buf_free(&b);
    snd_text_table *t = snd_table(c, n);
    snd_table_head(t, names);
    snd_table_left(t, 0);
    for (int i = 0; i < N_WAYS; i++) show_way(c, t, f, i);
    snd_table_print(t);
}

static void json_way(snd_json *j, const snd_foreseen *f, int way) {
    const snd_train_cost *k = &f->cost[way];
    snd_json_open_flat(j, NULL, '{');
    snd_json_str(j, "recompute", WAYS[way]);
    snd_json_int(j, "bytes", (int64_t)snd_train_cost_bytes(k));
    snd_json_int(j, "values", (int64_t)(k->values - k->gradients));
    for (int i = 0; i < N_PARTS; i++) snd_json_int(j, PARTS[i].member, (int64_t)part_of(k, i));
    snd_json_num(j, "flops", k->flops);
    snd_json_num(j, "flops_again", k->flops_again);
    snd_json_close(j, '}');
}

void snd_foreseen_json(snd_json *j, const snd_foreseen *f) {
    snd_json_open(j, "plan", '{');
    snd_json_str(j, "step", f->batch);
    snd_json_str(j, "dtype", snd_dtype_name(f->dtype));
    snd_json_str(j, "optimizer", f->s.optimizer);
    snd_json_int(j, "accumulate", f->s.accumulate);
    snd_json_str(j, "recompute", f->s.recompute);
    snd_json_open(j, "ways", '[');
    for (int i = 0; i < N_WAYS; i++) json_way(j, f, i);
    snd_json_close(j, ']');
    snd_json_close(j, '}');
}
