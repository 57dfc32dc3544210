// A record as files in a folder, and back. Every file is written under a temporary name and renamed (base/), so a reader
// never sees half a result; result.json comes last, so a folder that has one is complete.
#include "record/record.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static sonde_status write_one(const snd_record *r, const char *dir, const char *name, snd_buf *b) {
    snd_buf path = {0};
    snd_buf_printf(&path, "%s/%s", dir, name);
    const bool lost = path.failed || b->failed;
    const sonde_status s = lost ? SONDE_ENOMEM : snd_write_file(path.s, b->s ? b->s : "", b->len);
    snd_buf_free(&path);
    snd_buf_free(b);
    SND_FAIL_IF(lost, SONDE_ENOMEM, "%s: out of memory while writing %s (%d runs)", dir, name, r->n_runs);
    return s;
}

// The label as part of a file name: letters, digits, - and _ stay.
static void safe_label(snd_buf *b, const char *label) {
    for (; *label; label++) {
        const char c = *label;
        const bool plain =
            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
        snd_buf_putn(b, plain ? label : "_", 1);
    }
}

static bool first_of_label(const snd_record *r, int i) {
    for (int k = 0; k < i; k++)
        if (strcmp(r->runs[k]->label, r->runs[i]->label) == 0) return false;
    return true;
}

// The resolved spec of every wiring: spec.yaml for the first run, spec-LABEL.yaml for further labels.
static sonde_status write_specs(const snd_record *r, const char *dir) {
    bool any = false;
    for (int i = 0; i < r->n_runs; i++) {
        if (!r->runs[i]->spec_yaml || !first_of_label(r, i)) continue;
        snd_buf name = {0}, b = {0};
        snd_buf_put(&name, "spec");
        if (any) snd_buf_put(&name, "-");
        if (any) safe_label(&name, r->runs[i]->label);
        snd_buf_put(&name, ".yaml");
        snd_buf_put(&b, r->runs[i]->spec_yaml);
        any = true;
        const sonde_status s = name.failed ? SONDE_ENOMEM : write_one(r, dir, name.s, &b);
        snd_buf_free(&name);
        SND_TRY(s);
    }
    return SONDE_OK;
}

sonde_status snd_record_write(const snd_record *r, const char *dir) {
    SND_TRY(snd_record_status(r));
    SND_TRY(snd_make_dirs(dir));
    SND_TRY(write_specs(r, dir));
    snd_buf csv = {0}, panels = {0}, json = {0};
    snd_record_csv(r, &csv);
    SND_TRY(write_one(r, dir, "result.csv", &csv));
    if (r->n_panels) {
        snd_record_panels_csv(r, &panels);
        SND_TRY(write_one(r, dir, "panels.csv", &panels));
    }
    snd_record_json(r, &json);
    return write_one(r, dir, "result.json", &json);
}

sonde_status snd_record_read(snd_arena *a, const char *path, snd_record **out) {
    struct stat st;
    const bool folder = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    const char *file = folder ? snd_arena_printf(a, "%s/result.json", path) : path;
    if (!file) return SONDE_ENOMEM;
    char *data;
    size_t n;
    SND_TRY(snd_read_file(file, (size_t)1 << 31, &data, &n));
    const sonde_status s = snd_record_parse(a, data, n, file, out);
    snd_free(data);
    return s;
}
