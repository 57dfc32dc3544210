// sonde eval: how good a trained model is on data, beside what it takes no model to reach.
#include "cli/inner.h"
#include "cli/trained.h"
#include "train/train.h"

#include <math.h>
#include <string.h>

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
    snd_json_str(&j, "data", snd_opt_str(c, "data", snd_set_name(set)));
    snd_json_str(&j, "split", split);
    snd_json_str(&j, "dtype", snd_dtype_name(l->net.products ? l->net.products : l->net.dtype));
    snd_json_int(&j, "targets", r->targets);
    snd_json_num(&j, "nats", r->nats);
    snd_json_num(&j, "perplexity", exp(r->nats));
    if (r->bytes > 0) snd_json_num(&j, "bits_per_byte", bits_per_byte(r));
    if (r->bytes > 0) snd_json_int(&j, "bytes", r->bytes);
    if (r->unknown) snd_json_int(&j, "unknown", r->unknown);
    snd_json_num(&j, "unigram_entropy", r->unigram);
    snd_json_num(&j, "uniform_entropy", r->uniform);
    if (r->window) snd_json_int(&j, "window", r->window);
    if (r->window && snd_trained_tokens(l->spec)) snd_json_int(&j, "trained_window", snd_trained_tokens(l->spec));
    if (r->stride) snd_json_int(&j, "stride", r->stride);
    if (r->looked) snd_json_num(&j, "accuracy", (double)r->right / (double)r->looked);
    if (r->classes) {
        if (snd_set_class_name(set, 0)) {
            snd_json_open_flat(&j, "classes", '[');
            for (int64_t k = 0; snd_set_class_name(set, k); k++) snd_json_str(&j, NULL, snd_set_class_name(set, k));
            snd_json_close(&j, ']');
        }
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

// A class by its name, cut to what a column has room for, or by its number.
static void put_class(snd_buf *b, const snd_set *set, int64_t c, int width) {
    char text[24];
    const char *name = snd_set_class_name(set, c);
    snprintf(text, sizeof text, "%lld", (long long)c);
    if (!name) name = text;
    const int has = snd_text_width(name), shown = has < width - 1 ? has : width - 1;
    snd_buf_printf(b, "%*s", width - shown, "");
    for (int i = 0; i < shown; i++) { // characters
        uint32_t point;
        const int n = snd_utf8_at(name, strlen(name), &point);
        snd_buf_putn(b, name, n > 0 ? (size_t)n : 1);
        name += n > 0 ? n : 1;
    }
}

static void put_confusion(snd_cli *c, const snd_set *set, const snd_eval_result *r) {
    if (r->classes > 30) return;
    const int width = snd_set_class_name(set, 0) ? 12 : 6;
    snd_buf b = {0};
    snd_buf_printf(&b, "confusion       rows: the class; columns: what it was taken for\n%*s", width, "");
    for (int64_t k = 0; k < r->classes; k++) put_class(&b, set, k, width);
    for (int64_t t = 0; t < r->classes; t++) {
        snd_buf_put(&b, "\n");
        put_class(&b, set, t, width);
        for (int64_t k = 0; k < r->classes; k++)
            snd_buf_printf(&b, "%*lld", width, (long long)r->confusion[t * r->classes + k]);
    }
    snd_buf_put(&b, "\n");
    snd_put(c, &b);
    snd_buf_free(&b);
}

static void put_text(snd_cli *c, const snd_loaded *l, const snd_set *set, const char *split, const snd_eval_result *r) {
    char a[40], b[40];
    snd_print(c, "%s\n%s, %s: %lld targets\n\n", l->weights, snd_opt_str(c, "data", snd_set_name(set)), split,
              (long long)r->targets);
    snd_print(c, "nats per target %s   perplexity %s\n", snd_format_num(a, r->nats, 5),
              snd_format_num(b, exp(r->nats), 5));
    if (r->bytes > 0) snd_print(c, "bits per byte   %s\n", snd_format_num(a, bits_per_byte(r), 5));
    if (l->net.products || l->net.dtype != SND_F32)
        snd_print(c, "computed in     %s%s\n", snd_dtype_name(l->net.dtype),
                  l->net.products ? " with products of bf16 operands" : "");
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
    if (r->looked)
        snd_print(c, "accuracy        %s (%lld of %lld)%s\n",
                  snd_format_num(a, (double)r->right / (double)r->looked, 4), (long long)r->right, (long long)r->looked,
                  snd_set_task(set) == SND_TASK_SEQ2SEQ ? ": the next token, given those before it in the reference"
                                                        : "");
    if (r->classes) put_confusion(c, set, r);
}

// ---- the verb ---------------------------------------------------------------------------------------------------------------------

static void on_progress(void *ctx, int64_t done, int64_t total) {
    snd_progress *p = ctx;
    p->total = total;
    (void)snd_progress_step(p, done);
}

// Pairs keep their lengths: shorter windows would leave some out.
static sonde_status window_of(snd_cli *c, const snd_loaded *l, const snd_set *set, snd_split split, int64_t *window) {
    const snd_task task = snd_set_task(set);
    *window = snd_opt_int(c, "tokens", 0);
    if (task != SND_TASK_LM && task != SND_TASK_MLM) return SONDE_OK;
    return snd_cli_window(c, l->spec, "tokens", snd_set_token_count(set, split) - 1, 0, window);
}

static sonde_status evaluate(snd_cli *c, snd_loaded *l, const snd_set *set, snd_split split) {
    int64_t window;
    const snd_fact task = {"objective", snd_task_name(snd_set_task(set))};
    SND_TRY(snd_opt_check_use(c, &task, 1));
    SND_TRY(window_of(c, l, set, split, &window));
    snd_progress bar = snd_progress_start(c, "evaluating", 1);
    const snd_eval_opts o = {.split = split,
                             .rows = snd_opt_int(c, "batch", 0),
                             .window = window,
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
    sonde_status s = snd_cli_load_trained(c, true, &l);
    if (s == SONDE_OK) s = snd_cli_open_set(c, &l, &split, &set);
    if (s == SONDE_OK && !set)
        s = snd_fail(SONDE_EUSAGE, __FILE__, __LINE__,
                     "eval needs data: --data FILE, or a run that says what it was trained on");
    if (s == SONDE_OK) s = evaluate(c, &l, set, split);
    snd_set_close(set);
    snd_loaded_close(&l);
    return s;
}
