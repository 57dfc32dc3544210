// sonde eval: how good a trained model is on data, beside what it takes no model to reach.
#include "cli/trained.h"
#include "train/train.h"

#include <math.h>
#include <string.h>

// ---- the data -----------------------------------------------------------------------------------------------------------------

// What the run was trained on, as its spec says.
static sonde_status run_settings(snd_cli *c, const snd_spec *spec, snd_data_settings *d) {
    const char *const *part;
    const int n = snd_spec_section(spec, "data", &part);
    *d = snd_data_defaults();
    for (int i = 0; i < n; i++) {
        const char *eq = strchr(part[i], '=');
        const char *key = snd_arena_strn(c->arena, part[i], (size_t)(eq - part[i]));
        if (!key) return SONDE_ENOMEM;
        c->file_at_fault = true;
        SND_TRY(snd_data_setting(d, "data: ", key, eq + 1));
        c->file_at_fault = false;
    }
    return SONDE_OK;
}

static sonde_status split_of(const snd_cli *c, snd_split *out) {
    const char *said = snd_opt_str(c, "split", NULL);
    *out = SND_SPLIT_VALID;
    for (int i = 0; said && i < SND_SPLIT_COUNT; i++)
        if (!strcmp(said, snd_split_name((snd_split)i))) *out = (snd_split)i;
    return SONDE_OK;
}

// --data FILE stands for the whole file, whatever share a run kept for validation; a folder has a test of its own.
static sonde_status open_set(snd_cli *c, const snd_loaded *l, snd_split *split, snd_set **set) {
    snd_data_settings d;
    const char *data = snd_opt_str(c, "data", NULL), *tokenizer = snd_opt_str(c, "tokenizer", NULL);
    SND_TRY(run_settings(c, l->spec, &d));
    SND_TRY(split_of(c, split));
    if (data) {
        const bool folder = snd_is_folder(data) || !strcmp(data, "fashion-mnist");
        d.path = data;
        d.valid_path = folder ? NULL : data;
        d.test_path = NULL;
        if (folder && !snd_opt_given(c, "split")) *split = SND_SPLIT_TEST;
    }
    SND_FAIL_IF(!d.path, SONDE_EUSAGE, "eval needs data: --data FILE, or a run that says what it was trained on");
    if (tokenizer) d.tokenizer = tokenizer;
    if (!tokenizer && l->tokenizer_path) d.tokenizer = l->tokenizer_path;
    if (!d.tokenizer && l->tokenizer) d.tokenizer = "bytes";
    c->file_at_fault = true;
    SND_TRY(snd_set_open(&d, snd_train_task(l->spec), set));
    c->file_at_fault = false;
    return SONDE_OK;
}

// ---- what is shown --------------------------------------------------------------------------------------------------------------

static double bits_per_byte(const snd_eval_result *r) {
    return r->bytes > 0 ? r->nats * (double)r->targets / log(2) / (double)r->bytes : NAN;
}

static void put_json(snd_cli *c, const snd_loaded *l, const snd_set *set, const char *split, const snd_eval_result *r) {
    snd_buf b = {0};
    snd_json j = snd_json_start(&b);
    snd_json_open(&j, NULL, '{');
    snd_json_str(&j, "schema", "sonde.eval/1");
    snd_json_str(&j, "weights", l->weights);
    snd_json_str(&j, "data", snd_set_name(set));
    snd_json_str(&j, "split", split);
    snd_json_int(&j, "targets", r->targets);
    snd_json_num(&j, "nats", r->nats);
    snd_json_num(&j, "perplexity", exp(r->nats));
    if (r->bytes > 0) snd_json_num(&j, "bits_per_byte", bits_per_byte(r));
    if (r->bytes > 0) snd_json_int(&j, "bytes", r->bytes);
    if (r->unknown) snd_json_int(&j, "unknown", r->unknown);
    snd_json_num(&j, "unigram_entropy", r->unigram);
    snd_json_num(&j, "uniform_entropy", r->uniform);
    if (r->window) snd_json_int(&j, "window", r->window);
    if (r->stride) snd_json_int(&j, "stride", r->stride);
    if (r->classes) {
        snd_json_num(&j, "accuracy", (double)r->right / (double)r->targets);
        snd_json_open(&j, "confusion", '[');
        for (int64_t t = 0; t < r->classes; t++) {
            snd_json_open_flat(&j, NULL, '[');
            for (int64_t k = 0; k < r->classes; k++) snd_json_int(&j, NULL, r->confusion[t * r->classes + k]);
            snd_json_close(&j, ']');
        }
        snd_json_close(&j, ']');
    }
    snd_json_int(&j, "nonfinite", isfinite(r->nats) ? 0 : 1);
    snd_json_close(&j, '}');
    snd_put(c, &b);
    snd_buf_free(&b);
}

static void put_confusion(snd_cli *c, const snd_eval_result *r) {
    char text[40];
    snd_print(c, "accuracy        %s (%lld of %lld)\n", snd_format_num(text, (double)r->right / (double)r->targets, 4),
              (long long)r->right, (long long)r->targets);
    if (r->classes > 30) return;
    snd_print(c, "confusion       rows: the class; columns: what it was taken for\n     ");
    for (int64_t k = 0; k < r->classes; k++) snd_print(c, "%6lld", (long long)k);
    for (int64_t t = 0; t < r->classes; t++) {
        snd_print(c, "\n%5lld", (long long)t);
        for (int64_t k = 0; k < r->classes; k++) snd_print(c, "%6lld", (long long)r->confusion[t * r->classes + k]);
    }
    snd_print(c, "\n");
}

static void put_text(snd_cli *c, const snd_loaded *l, const snd_set *set, const char *split, const snd_eval_result *r) {
    char a[40], b[40];
    snd_print(c, "%s\n%s, %s: %lld targets\n\n", l->weights, snd_set_name(set), split, (long long)r->targets);
    snd_print(c, "nats per target %s   perplexity %s\n", snd_format_num(a, r->nats, 5),
              snd_format_num(b, exp(r->nats), 5));
    if (r->bytes > 0) snd_print(c, "bits per byte   %s\n", snd_format_num(a, bits_per_byte(r), 5));
    snd_print(c, "beside          %s nats for the targets' own frequencies, %s for equal ones\n",
              snd_format_num(a, r->unigram, 5), snd_format_num(b, r->uniform, 5));
    if (r->unknown)
        snd_print(
            c, "unknown         %lld of the targets are characters that the tokenizer does not know, all one token\n",
            (long long)r->unknown);
    if (r->stride)
        snd_print(c,
                  "windows         %lld tokens, %lld apart: every token but the first scored once, with at least %lld "
                  "before it\n",
                  (long long)r->window, (long long)r->stride, (long long)(r->window - r->stride));
    if (r->classes) put_confusion(c, r);
}

// ---- the verb ---------------------------------------------------------------------------------------------------------------------

static void on_progress(void *ctx, int64_t done, int64_t total) {
    snd_progress *p = ctx;
    p->total = total;
    (void)snd_progress_step(p, done);
}

static sonde_status evaluate(snd_cli *c, snd_loaded *l, const snd_set *set, snd_split split) {
    snd_progress bar = snd_progress_start(c, "evaluating", 1);
    const snd_eval_opts o = {.split = split,
                             .rows = snd_opt_int(c, "batch", 0),
                             .window = snd_opt_int(c, "tokens", 0),
                             .stride = snd_opt_int(c, "stride", 0),
                             .stop = c->stop,
                             .progress = on_progress,
                             .ctx = &bar};
    snd_eval_result r;
    const sonde_status s = snd_eval(c->arena, &l->net, set, &o, &r);
    snd_progress_end(&bar);
    SND_TRY(s);
    const char *name = snd_opt_given(c, "data") && split == SND_SPLIT_VALID ? "all of it" : snd_split_name(split);
    if (c->json)
        put_json(c, l, set, name, &r);
    else
        put_text(c, l, set, name, &r);
    if (!isfinite(r.nats)) snd_note(c, "the loss is not finite");
    return SONDE_OK;
}

sonde_status snd_verb_eval(snd_cli *c) {
    snd_loaded l;
    snd_set *set = NULL;
    snd_split split;
    sonde_status s = snd_cli_load_trained(c, &l);
    if (s == SONDE_OK) s = open_set(c, &l, &split, &set);
    if (s == SONDE_OK) s = evaluate(c, &l, set, split);
    snd_set_close(set);
    snd_loaded_close(&l);
    return s;
}
