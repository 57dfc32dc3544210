// A record as text: the wiring and its settings first (most real bugs are one ignored flag), then verdicts, then a
// sparkline and a per-layer table for one run, or one line per run for several, then the panels.
// Invariant: prints what the record holds; computes nothing but choices of rows and columns.
#include "cli/show.h"

#include <math.h>
#include <string.h>

// ---- the head: formula, settings ----------------------------------------------------------------------------------------

// Keys that are worth a place in the first line, in this order; the rest is in --json and spec.yaml.
static const char *const head_keys[] = {"family", "arch", "layers", "width", "hidden", "heads",   "block",
                                        "norm",   "eps",  "init",   "act",   "vocab",  "position"};

static const char *setting(const snd_run *u, const char *key) {
    for (int i = 0; i < u->n_settings; i++)
        if (strcmp(u->settings[i].key, key) == 0) return u->settings[i].text;
    return NULL;
}

// The depths of all runs with this run's label: "1, 2, 4".
static void depths_of(const snd_run *u, snd_buf *b) {
    const snd_record *r = u->rec;
    for (int i = 0; i < r->n_runs; i++)
        if (strcmp(r->runs[i]->label, u->label) == 0)
            snd_buf_printf(b, "%s%lld", b->len ? " " : "", (long long)r->runs[i]->depth);
}

static void show_head(snd_cli *c, const snd_run *u) {
    const char *dot = c->utf8 ? " · " : ", ";
    snd_buf b = {0}, line = {0};
    for (const char *s = u->formula; *s;) { // one section a line, as it was given
        const size_t n = strcspn(s, "\n");
        char text[1024];
        snprintf(text, sizeof text, "%.*s", (int)(n < 1023 ? n : 1023), s);
        snd_ink_put(c, &b, SND_INK_BOLD, text);
        snd_buf_put(&b, "\n");
        s += n + (s[n] == '\n');
    }
    for (size_t i = 0; i < sizeof head_keys / sizeof *head_keys; i++) {
        const char *text = setting(u, head_keys[i]);
        snd_buf all = {0};
        if (text && strcmp(head_keys[i], "layers") == 0) depths_of(u, &all);
        if (text && *text) snd_buf_printf(&line, "%s%s %s", line.len ? dot : "", head_keys[i], all.s ? all.s : text);
        snd_buf_free(&all);
    }
    snd_buf_printf(&line, "%sseed %llu", line.len ? dot : "", (unsigned long long)u->seed);
    if (u->seeds > 1) snd_buf_printf(&line, "%s%d seeds", dot, u->seeds);
    if (u->dtype) snd_buf_printf(&line, "%s%s", dot, u->dtype);
    if (u->input) snd_buf_printf(&line, "%sinput %s", dot, u->input);
    snd_wrap(&b, line.s, 2, c->columns > 120 ? 120 : c->columns);
    snd_put(c, &b);
    snd_buf_free(&b);
    snd_buf_free(&line);
}

// ---- verdicts -----------------------------------------------------------------------------------------------------------

static const snd_ink level_ink[SND_LEVEL_COUNT] = {[SND_LEVEL_OK] = SND_INK_GREEN,
                                                   [SND_LEVEL_INFO] = SND_INK_BLUE,
                                                   [SND_LEVEL_WARN] = SND_INK_YELLOW,
                                                   [SND_LEVEL_ERROR] = SND_INK_RED};

// Adds a sentence behind what is there already, with the full stop that the text before it may lack.
static void sentence(snd_buf *b, const char *text, const char *lead) {
    if (!*text) return;
    const char last = b->len ? b->s[b->len - 1] : 0;
    if (last && last != ' ') snd_buf_put(b, strchr(".!?:;", last) ? " " : ". ");
    snd_buf_printf(b, "%s%s", lead, text);
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
        snd_buf_printf(&text, " (limit %s)",
                       v->log ? snd_pretty_log10(limit, v->threshold, 3) : snd_pretty(limit, v->threshold, 3));
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

static void show_verdicts(snd_cli *c, const snd_record *r) {
    if (r->n_verdicts) snd_print(c, "\n");
    for (int level = SND_LEVEL_ERROR; level > SND_LEVEL_INVALID; level--) // worst first
        for (int i = 0; i < r->n_verdicts; i++)
            if (r->verdicts[i]->level == (snd_level)level) show_verdict(c, r->verdicts[i], r->n_runs > 1);
}

// ---- the whole ------------------------------------------------------------------------------------------------------------

void snd_cli_show(snd_cli *c, const snd_record *r) {
    for (int i = 0; i < r->n_runs; i++) {
        if (snd_show_label_seen(r, i)) continue;
        if (i > 0) snd_print(c, "\n");
        if (r->n_runs > 1) snd_print(c, "%s\n", r->runs[i]->label);
        show_head(c, r->runs[i]);
    }
    show_verdicts(c, r);
    if (r->n_runs > 1) snd_show_runs(c, r);
    for (int i = 0; i < r->n_runs; i++) {
        if (r->n_runs > 1 && !c->full) break;
        if (r->n_runs > 1) snd_print(c, "\n%s, depth %lld", r->runs[i]->label, (long long)r->runs[i]->depth);
        snd_show_run(c, r->runs[i]);
    }
    for (int i = 0; i < r->n_panels; i++) snd_show_panel(c, r->panels[i]);
    for (int i = 0; i < r->n_tables; i++) snd_show_table(c, r->tables[i]);
    const int64_t lost = snd_record_nonfinite(r);
    if (lost) snd_note(c, "%lld measured numbers were not finite (null in JSON)", (long long)lost);
    for (int i = 0; i < r->n_notes; i++) snd_note(c, "%s", r->notes[i]);
}
