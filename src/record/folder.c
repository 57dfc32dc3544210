// A record as files in a folder, and back. The files appear together (snd_files of base/), so a reader never sees half a
// result, nor one of today beside one of yesterday; result.json comes last, so a folder that has one is complete.
#include "record/record.h"

#include <stdlib.h>
#include <string.h>

static sonde_status put_one(const snd_record *r, const char *dir, const char *name, snd_buf *b, snd_files *to) {
    snd_buf path = {0};
    snd_buf_printf(&path, "%s/%s", dir, name);
    const bool lost = path.failed || b->failed;
    const snd_part all = {b->s ? b->s : "", b->len};
    const sonde_status s = lost ? SONDE_ENOMEM : snd_files_add(to, path.s, &all, 1);
    snd_buf_free(&path);
    snd_buf_free(b);
    SND_FAIL_IF(lost, SONDE_ENOMEM, "%s: out of memory while writing %s (%d runs)", dir, name, r->n_runs);
    return s;
}

// The label as part of a file name: letters, digits, - and _ stay; a long one (a formula) is cut.
static void safe_label(char *out, size_t size, const char *label) {
    size_t n = 0;
    for (; *label && n + 1 < size; label++) {
        const char c = *label;
        const bool plain =
            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
        out[n++] = plain ? c : '_';
    }
    out[n] = 0;
}

static char lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

// Names that differ in case only are one file on some systems (1/sqrt(L) and 1/sqrt(l) are two wirings).
static bool taken(const char *const *names, int n, const char *name) {
    for (int i = 0; i < n; i++) {
        size_t k = 0;
        while (name[k] && lower(names[i][k]) == lower(name[k])) k++;
        if (names[i][k] == name[k]) return true;
    }
    return false;
}

// spec.yaml, spec-LABEL.yaml, and spec-LABEL-2.yaml where that name is taken.
static const char *spec_name(snd_arena *a, const char *const *names, int n, const char *label) {
    char safe[64];
    safe_label(safe, sizeof safe, label);
    const char *name = n ? snd_arena_printf(a, "spec-%s.yaml", safe) : "spec.yaml";
    for (int i = 2; name && taken(names, n, name); i++) name = snd_arena_printf(a, "spec-%s-%d.yaml", safe, i);
    return name;
}

static bool first_of_label(const snd_record *r, int i) {
    for (int k = 0; k < i; k++)
        if (strcmp(r->runs[k]->label, r->runs[i]->label) == 0) return false;
    return true;
}

// The resolved spec of every wiring: spec.yaml for the first run, spec-LABEL.yaml for further labels.
static sonde_status put_specs(const snd_record *r, const char *dir, snd_files *to) {
    const char **names;
    int n = 0;
    SND_NEW(r->arena, names, r->n_runs + 1);
    for (int i = 0; i < r->n_runs; i++) {
        if (!r->runs[i]->spec_yaml || !first_of_label(r, i)) continue;
        names[n] = spec_name(r->arena, names, n, r->runs[i]->label);
        if (!names[n]) return SONDE_ENOMEM;
        snd_buf b = {0};
        snd_buf_put(&b, r->runs[i]->spec_yaml);
        SND_TRY(put_one(r, dir, names[n++], &b, to));
    }
    return SONDE_OK;
}

sonde_status snd_record_put(const snd_record *r, const char *dir, snd_files *to) {
    SND_TRY(snd_record_status(r));
    SND_TRY(snd_make_dirs(dir));
    SND_TRY(put_specs(r, dir, to));
    snd_buf csv = {0}, panels = {0}, json = {0};
    snd_record_csv(r, &csv);
    SND_TRY(put_one(r, dir, "result.csv", &csv, to));
    if (r->n_panels) {
        snd_record_panels_csv(r, &panels);
        SND_TRY(put_one(r, dir, "panels.csv", &panels, to));
    }
    snd_record_json(r, &json);
    return put_one(r, dir, "result.json", &json, to);
}

sonde_status snd_record_write(const snd_record *r, const char *dir) {
    snd_files f = {0};
    sonde_status s = snd_record_put(r, dir, &f);
    if (s == SONDE_OK) s = snd_files_place(&f);
    snd_files_close(&f);
    return s;
}

sonde_status snd_record_read(snd_arena *a, const char *path, snd_record **out) {
    const char *file = snd_is_folder(path) ? snd_arena_printf(a, "%s/result.json", path) : path;
    if (!file) return SONDE_ENOMEM;
    char *data;
    size_t n;
    SND_TRY(snd_read_file(file, (size_t)1 << 31, &data, &n));
    const sonde_status s = snd_record_parse(a, data, n, file, out);
    snd_free(data);
    if (s == SONDE_OK) (*out)->place = snd_record_text(*out, "%s", path);
    return s;
}
