// sonde report DIR|FILE ... [-o FILE.html]: results as one page. Several results are overlaid, which is how wirings that
// were measured one by one are compared.
#include "cli/inner.h"
#include "report/report.h"

#include <string.h>

// -o FILE.html; -o DIR writes DIR/report.html; without -o next to the first result.
static const char *target(snd_cli *c) {
    const char *first = c->words[0], *out = c->out_dir;
    const size_t n = out ? strlen(out) : 0;
    if (n > 5 && strcmp(out + n - 5, ".html") == 0) return out;
    if (out) return snd_arena_printf(c->arena, "%s/report.html", out);
    if (snd_is_folder(first)) return snd_arena_printf(c->arena, "%s/report.html", snd_folder_name(c->arena, first));
    const char *slash = strrchr(first, '/');
    return snd_arena_printf(c->arena, "%.*sreport.html", slash ? (int)(slash + 1 - first) : 0, first);
}

sonde_status snd_verb_report(snd_cli *c) {
    const snd_record **records;
    SND_NEW(c->arena, records, c->n_words);
    for (int i = 0; i < c->n_words; i++) {
        snd_record *r;
        SND_TRY(snd_record_read(c->arena, c->words[i], &r));
        records[i] = r;
    }
    const char *path = target(c);
    if (!path) return SONDE_ENOMEM;
    for (int i = 0; i < c->n_words; i++)
        SND_FAIL_IF(snd_same_file(c->words[i], path), SONDE_EUSAGE, "-o %s is a result that is read; give another name",
                    path);
    if (c->out_dir && path != c->out_dir) SND_TRY(snd_make_dirs(c->out_dir));
    SND_TRY(snd_report_write(records, c->n_words, path));
    if (!c->json) {
        snd_print(c, "%s\n", path);
        return SONDE_OK;
    }
    snd_buf b = {0};
    snd_json j = snd_json_start(&b);
    snd_json_open(&j, NULL, '{');
    snd_json_str(&j, "schema", "sonde.report/1");
    snd_json_str(&j, "report", path);
    snd_json_close(&j, '}');
    snd_put(c, &b);
    snd_buf_free(&b);
    return SONDE_OK;
}
