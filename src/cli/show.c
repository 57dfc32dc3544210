// A record as text: the wiring and its settings first (most real bugs are one ignored flag), then verdicts, then a
// sparkline and a per-layer table for one run, or one line per run for several, then the panels.
// Invariant: prints what the record holds; computes nothing but choices of rows and columns.
#include "cli/show.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

// ---- the head: formula, settings ----------------------------------------------------------------------------------------

// Keys that are worth a place in the first line, in this order; the rest is in --json and spec.yaml.
static const char *const head_keys[] = {"family", "arch", "layers", "width", "hidden",   "heads",   "block",     "norm",
                                        "eps",    "init", "act",    "vocab", "position", "weights", "batch_norm"};

enum { N_HEAD = (int)(sizeof head_keys / sizeof *head_keys) };

// The depths of all runs with this run's label: "1 2 4".
static void depths_of(const snd_run *u, snd_buf *b) {
    const snd_record *r = u->rec;
    for (int i = 0; i < r->n_runs; i++)
        if (strcmp(r->runs[i]->label, u->label) == 0)
            snd_buf_printf(b, "%s%lld", b->len ? " " : "", (long long)r->runs[i]->depth);
}

// Adds ", key value", which no line break tears apart unless it is long.
static void add_pair(const snd_cli *c, snd_buf *b, const char *key, const char *text) {
    if (b->len) snd_buf_put(b, c->utf8 ? " · " : ", ");
    const size_t at = b->len;
    snd_buf_printf(b, "%s%s%s", key, *key ? " " : "", text);
    for (size_t i = at; !b->failed && b->len - at < 40 && i < b->len; i++)
        if (b->s[i] == ' ') b->s[i] = SND_GLUE;
}

// One head key; nothing when the run lacks it or has no use for it.
static void add_fact(const snd_cli *c, snd_buf *b, const snd_run *u, const char *key) {
    const char *text = snd_run_setting_used(u, key);
    snd_buf all = {0};
    if (text && strcmp(key, "layers") == 0) depths_of(u, &all);
    if (text && *text) add_pair(c, b, key, all.s ? all.s : text);
    snd_buf_free(&all);
}

// Has every run the same setting?
static bool is_common(const snd_run *u, const char *key) {
    const char *text = snd_run_setting_used(u, key);
    for (int i = 0; i < u->rec->n_runs; i++) {
        const char *other = snd_run_setting_used(u->rec->runs[i], key);
        if (strcmp(key, "layers") != 0 && strcmp(text ? text : "", other ? other : "") != 0) return false;
    }
    return true;
}

// What all runs share, and how they were drawn.
static void show_common(snd_cli *c, const snd_run *u) {
    snd_buf line = {0}, b = {0};
    char text[64];
    for (int i = 0; i < N_HEAD; i++)
        if (is_common(u, head_keys[i])) add_fact(c, &line, u, head_keys[i]);
    snprintf(text, sizeof text, "%llu", (unsigned long long)u->seed);
    add_pair(c, &line, "seed", text);
    snprintf(text, sizeof text, "%d seeds", u->seeds);
    if (u->seeds > 1) add_pair(c, &line, "", text);
    if (u->dtype) add_pair(c, &line, "", u->dtype);
    if (u->input) add_pair(c, &line, "input", u->input);
    if (line.s) snd_wrap(&b, line.s, 2, c->columns > 120 ? 120 : c->columns);
    snd_put(c, &b);
    snd_buf_free(&b);
    snd_buf_free(&line);
}

static void show_head(snd_cli *c, const snd_run *u) {
    snd_buf b = {0};
    for (const char *s = u->formula; *s;) { // one section a line, as it was given
        const size_t n = strcspn(s, "\n");
        char text[1024];
        snprintf(text, sizeof text, "%.*s", (int)(n < 1023 ? n : 1023), s);
        snd_ink_put(c, &b, SND_INK_BOLD, text);
        snd_buf_put(&b, "\n");
        s += n + (s[n] == '\n');
    }
    snd_put(c, &b);
    snd_buf_free(&b);
    show_common(c, u);
}

// Several wirings: label, formula (a section a line) and the settings that are its own, then what they share.
static void show_heads(snd_cli *c, const snd_record *r) {
    snd_text_table *t = snd_table(c, 3);
    for (int i = 0; i < 3; i++) snd_table_left(t, i);
    for (int i = 0; i < r->n_runs; i++) {
        if (snd_show_label_seen(r, i)) continue;
        const snd_run *u = r->runs[i];
        snd_buf own = {0};
        for (int k = 0; k < N_HEAD; k++)
            if (!is_common(u, head_keys[k])) add_fact(c, &own, u, head_keys[k]);
        for (size_t k = 0; k < own.len; k++)
            if (own.s[k] == SND_GLUE) own.s[k] = ' ';
        for (const char *s = u->formula; *s;) {
            const size_t n = strcspn(s, "\n");
            snd_table_cell(t, s == u->formula ? u->label : "");
            snd_table_cell(t, snd_arena_strn(c->arena, s, n));
            snd_table_ink(t, SND_INK_BOLD);
            snd_table_cell(t, s == u->formula && own.s ? own.s : "");
            s += n + (s[n] == '\n');
        }
        snd_buf_free(&own);
    }
    snd_table_print(t);
    show_common(c, r->runs[0]);
}

// ---- verdicts -----------------------------------------------------------------------------------------------------------

static const snd_ink level_ink[SND_LEVEL_COUNT] = {[SND_LEVEL_OK] = SND_INK_GREEN,
                                                   [SND_LEVEL_INFO] = SND_INK_BLUE,
                                                   [SND_LEVEL_WARN] = SND_INK_YELLOW,
                                                   [SND_LEVEL_ERROR] = SND_INK_RED};

// Adds a sentence behind what is there already, with a capital and the full stop that the text before it may lack.
static void sentence(snd_buf *b, const char *text, const char *lead) {
    if (!*text) return;
    const char last = b->len ? b->s[b->len - 1] : 0;
    if (last && last != ' ') snd_buf_put(b, strchr(".!?:;", last) ? " " : ". ");
    const size_t at = b->len + strlen(lead);
    snd_buf_printf(b, "%s%s", lead, text);
    const bool word = islower((unsigned char)text[0]) && (islower((unsigned char)text[1]) || text[1] == ' ');
    if (!*lead && word && at > 0 && !b->failed) b->s[at] = (char)toupper((unsigned char)text[0]);
}

static void show_verdict(snd_cli *c, const snd_verdict *v, bool several) {
    snd_buf b = {0}, text = {0};
    char name[8], got[40], limit[40];
    snprintf(name, sizeof name, "%-6s", snd_level_name(v->level));
    snd_ink_put(c, &b, level_ink[v->level], name);
    if (v->run && several) snd_buf_printf(&text, "[%s] ", v->run);
    if (strcmp(v->rule, snd_level_name(v->level)) != 0) snd_buf_put(&text, v->rule);
    if (*v->where) snd_buf_printf(&text, " at %s", v->where);
    if (!isnan(v->value))
        snd_buf_printf(&text, ": %s", v->log ? snd_pretty_log10(got, v->value, 3) : snd_pretty(got, v->value, 3));
    if (!isnan(v->value) && !isnan(v->threshold))
        snd_buf_printf(&text, " (limit %s)", snd_pretty_limit(limit, v->threshold, v->log));
    sentence(&text, v->why, "");
    sentence(&text, v->remedy, "Try: ");
    snd_buf wrapped = {0};
    snd_wrap(&wrapped, text.s, 6, c->columns > 120 ? 120 : c->columns);
    if (wrapped.s) snd_buf_put(&b, wrapped.s + 6);
    snd_put(c, &b);
    snd_buf_free(&b);
    snd_buf_free(&text);
    snd_buf_free(&wrapped);
}

// A verdict that only says that nothing was found.
static bool is_clean(const snd_verdict *v) {
    return v->level == SND_LEVEL_OK && strcmp(v->rule, "ok") == 0 && v->run;
}

// Several clean runs in one line.
static void show_clean(snd_cli *c, const snd_record *r) {
    snd_buf b = {0}, text = {0}, wrapped = {0};
    for (int i = 0; i < r->n_verdicts; i++)
        if (is_clean(r->verdicts[i])) snd_buf_printf(&text, "%s%s", text.len ? ", " : "", r->verdicts[i]->run);
    snd_buf_put(&text, ": nothing to report");
    snd_ink_put(c, &b, SND_INK_GREEN, "ok    ");
    snd_wrap(&wrapped, text.s, 6, c->columns > 120 ? 120 : c->columns);
    if (wrapped.s) snd_buf_put(&b, wrapped.s + 6);
    snd_put(c, &b);
    snd_buf_free(&b);
    snd_buf_free(&text);
    snd_buf_free(&wrapped);
}

static void show_verdicts(snd_cli *c, const snd_record *r) {
    int clean = 0;
    for (int i = 0; i < r->n_verdicts; i++) clean += is_clean(r->verdicts[i]);
    if (r->n_verdicts) snd_print(c, "\n");
    for (int level = SND_LEVEL_ERROR; level > SND_LEVEL_INVALID; level--) // worst first
        for (int i = 0; i < r->n_verdicts; i++)
            if (r->verdicts[i]->level == (snd_level)level && !(clean > 1 && is_clean(r->verdicts[i])))
                show_verdict(c, r->verdicts[i], r->n_runs > 1);
    if (clean > 1) show_clean(c, r);
}

// ---- the whole ------------------------------------------------------------------------------------------------------------

void snd_cli_show(snd_cli *c, const snd_record *r) {
    if (r->n_runs == 1)
        show_head(c, r->runs[0]);
    else if (r->n_runs > 1)
        show_heads(c, r);
    show_verdicts(c, r);
    if (r->n_runs > 1) snd_show_runs(c, r);
    for (int i = 0; i < r->n_runs; i++) {
        if (r->n_runs > 1 && !c->full) break;
        if (r->n_runs > 1) snd_print(c, "\n%s, depth %lld", r->runs[i]->label, (long long)r->runs[i]->depth);
        snd_show_run(c, r->runs[i]);
    }
    for (int i = 0; i < r->n_panels; i++) snd_show_panel(c, r->panels[i]);
    for (int i = 0; i < r->n_heatmaps && r->n_runs == 1; i++) snd_show_heatmap(c, r->heatmaps[i]);
    for (int i = 0; i < r->n_tables; i++) snd_show_table(c, r->tables[i]);
    const int64_t lost = snd_record_nonfinite(r);
    if (lost) snd_note(c, "%lld measured numbers were not finite (null in JSON)", (long long)lost);
    for (int i = 0; i < r->n_notes; i++) snd_note(c, "%s", r->notes[i]);
}
