// What happens to a finished record: files for -o, one form of it on stdout, and the exit code that --fail-on asks for.
#include "cli/inner.h"
#include "report/report.h"

#include <string.h>

static sonde_status write_files(snd_cli *c, const snd_record *r) {
    SND_TRY(snd_record_write(r, c->out_dir));
    const char *path = snd_arena_printf(c->arena, "%s/report.html", c->out_dir);
    if (!path) return SONDE_ENOMEM;
    return snd_report_write((const snd_record *const *)&r, 1, path);
}

static void fail_on(snd_cli *c, const snd_record *r) {
    const snd_opt_row *row = snd_opt_find("fail-on", 7);
    if (!snd_opt_applies(row, c->verb->name)) return;
    const snd_level level = snd_level_find(snd_opt_str(c, "fail-on", "never"));
    if (level != SND_LEVEL_INVALID && r->n_verdicts && snd_record_worst(r) >= level) c->exit_code = 1;
}

sonde_status snd_cli_result(snd_cli *c, snd_record *r) {
    if (!r->command) r->command = c->command;
    if (!r->version) r->version = sonde_version();
    SND_TRY(snd_record_status(r));
    if (c->out_dir) SND_TRY(write_files(c, r));
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
    if (c->out_dir)
        snd_note(c, "wrote %s/report.html (open it in a browser), result.json, result.csv%s", c->out_dir,
                 r->n_runs ? ", spec.yaml" : "");
    SND_FAIL_IF(lost, SONDE_ENOMEM, "out of memory while printing %d runs", r->n_runs);
    fail_on(c, r);
    return SONDE_OK;
}
