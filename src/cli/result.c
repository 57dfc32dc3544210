// What happens to a finished record: files for -o, one form of it on stdout, and the exit code that --fail-on asks for.
#include "cli/inner.h"
#include "report/report.h"
#include "train/train.h"

#include <string.h>

static void fail_on(snd_cli *c, const snd_record *r) {
    const snd_opt_row *row = snd_opt_find(c->verb, "fail-on", 7);
    if (!snd_opt_applies(row, c->verb->name)) return;
    const snd_level level = snd_level_find(snd_opt_str(c, "fail-on", "never"));
    if (level != SND_LEVEL_INVALID && r->n_verdicts && snd_record_worst(r) >= level) c->exit_code = 1;
}

// The resolved spec has no comments and other words: over a spec that is its own resolved form it does no harm.
static sonde_status is_resolved_form(const snd_spec *spec, const char *path, bool *same) {
    char *text;
    size_t n;
    SND_TRY(snd_read_file(path, (size_t)1 << 20, &text, &n));
    snd_buf b = {0};
    snd_spec_print_yaml(spec, &b);
    *same = !b.failed && b.len == n && memcmp(b.s, text, n) == 0;
    snd_buf_free(&b);
    snd_free(text);
    return SONDE_OK;
}

// The i-th file that the verb writes into the folder of -o; NULL behind the last.
static const char *written(const snd_cli *c, int i) {
    static const char *const files[] = {"spec.yaml", "result.json", "result.csv", "panels.csv", "report.html"};
    enum { N = sizeof files / sizeof *files };
    const char *name = i < N ? files[i] : strcmp(c->verb->name, "train") ? NULL : snd_train_file(i - N);
    return name ? snd_arena_printf(c->arena, "%s/%s", c->out_dir, name) : NULL;
}

sonde_status snd_cli_check_read(const snd_cli *c, const char *path) {
    const char *to;
    for (int i = 0; path && c->out_dir && (to = written(c, i)); i++)
        SND_FAIL_IF(snd_same_file(path, to), SONDE_EUSAGE,
                    "-o %s would write over %s, which is read; give another folder", c->out_dir, path);
    return SONDE_OK;
}

sonde_status snd_cli_check_out(snd_cli *c, const snd_spec *spec) {
    if (!c->out_dir) return SONDE_OK;
    SND_TRY(snd_check_folder(c->out_dir, true));
    if (!spec) return SONDE_OK;
    const char *own = written(c, 0);
    bool harmless = false;
    if (own && c->spec_word && snd_same_file(c->spec_word, own)) SND_TRY(is_resolved_form(spec, own, &harmless));
    if (!harmless) SND_TRY(snd_cli_check_read(c, c->spec_word));
    SND_TRY(snd_cli_check_read(c, snd_opt_str(c, "data", NULL)));
    return snd_cli_check_read(c, snd_opt_str(c, "labels", NULL));
}

sonde_status snd_cli_result(snd_cli *c, snd_record *r) {
    if (!r->command) r->command = c->command;
    if (!r->version) r->version = sonde_version();
    SND_TRY(snd_record_status(r));
    // shown even where the files cannot be written: a disk that has filled up costs the files, not the result
    const sonde_status written = c->out_dir ? snd_report_folder(r, c->out_dir) : SONDE_OK;
    snd_buf b = {0};
    if (c->json)
        snd_record_json(r, &b);
    else if (c->csv && r->n_runs == 0 && r->n_panels)
        snd_record_panels_csv(r, &b);
    else if (c->csv)
        snd_record_csv(r, &b);
    else
        snd_cli_show(c, r);
    const bool lost = b.failed;
    if (!lost) snd_put(c, &b);
    snd_buf_free(&b);
    if (c->out_dir && written == SONDE_OK)
        snd_note(c, "wrote %s/report.html (open it in a browser), result.json, result.csv%s", c->out_dir,
                 r->n_runs ? ", spec.yaml" : "");
    SND_FAIL_IF(lost, SONDE_ENOMEM, "out of memory while printing %d runs", r->n_runs);
    fail_on(c, r);
    return written;
}

sonde_status snd_cli_finish(snd_cli *c, snd_record *r, sonde_status s) {
    const bool some = r->n_runs || r->n_panels || r->n_tables;
    if (s != SONDE_OK && !(s == SONDE_EINTERRUPTED && some)) return s;
    const sonde_status shown = snd_cli_result(c, r);
    return shown != SONDE_OK ? shown : s;
}
