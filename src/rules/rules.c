// The table of rules and the loop over it. A rule that has nothing to look at stays silent; when none speaks, one verdict
// says what was looked at, so that silence is never mistaken for a check that did not run.
#include "rules/inner.h"

#include <math.h>
#include <string.h>

static const snd_rule_row rows[] = {
#define SND_RULE(name, level, threshold, unit, source, start, fn) {name, level, threshold, unit, source, start},
#include "rules/rules.def"
#undef SND_RULE
};
enum { N_RULES = sizeof rows / sizeof *rows };

static void (*const functions[N_RULES])(snd_judge *) = {
#define SND_RULE(name, level, threshold, unit, source, start, fn) fn,
#include "rules/rules.def"
#undef SND_RULE
};

int snd_rule_count(void) {
    return N_RULES;
}
const snd_rule_row *snd_rule_at(int i) {
    return &rows[i];
}

// ---- reading a run ----------------------------------------------------------------------------------------------------------

bool snd_judge_number(const snd_rvalue *v, const char *metric, snd_found *out) {
    const snd_metric *m = v ? snd_value_find(v, metric) : NULL;
    if (!m) return false;
    *out = (snd_found){m->measured ? m->mean : m->predicted, m->measured};
    return isfinite(out->v);
}

static const char *const stacks[] = {"encoder.", "decoder."};

static const snd_rvalue *named(const snd_judge *j, const char *value) {
    const snd_rvalue *v = snd_run_find(j->run, value);
    char name[80];
    snprintf(name, sizeof name, "%s%s", stacks[1], value);
    return v ? v : snd_run_find(j->run, name);
}

bool snd_judge_named(const snd_judge *j, const char *value, const char *metric, snd_found *out) {
    const snd_rvalue *v = named(j, value);
    return v && snd_judge_number(v, metric, out);
}

static const char *stack_of(const char *name) {
    for (int i = 0; i < 2; i++)
        if (!strncmp(name, stacks[i], strlen(stacks[i]))) return stacks[i];
    return "";
}

const char *snd_judge_stack(const snd_judge *j, const snd_rvalue *v) {
    const bool decoders = j->spec->arch == SND_ARCH_ENCDEC && !strcmp(v->name, "out.x"); // named without its stack
    return decoders ? stacks[1] : stack_of(v->name);
}

bool snd_judge_in_stack(const snd_judge *j, const char *stack, const char *value, const char *metric, snd_found *out) {
    char name[80];
    const bool decoders = !strcmp(stack, stacks[1]) && !strcmp(value, "out.x");
    snprintf(name, sizeof name, "%s%s", decoders ? "" : stack, value);
    return snd_judge_number(snd_run_find(j->run, name), metric, out);
}

bool snd_judge_is_stream(const snd_rvalue *v) {
    const char *name = v->name + strlen(stack_of(v->name));
    if (!strcmp(name, "in.x") || !strcmp(name, "out.x")) return true;
    if (strncmp(name, "layers.", 7) != 0) return false;
    const char *end = NULL;
    int64_t layer;
    return snd_parse_int(name + 7, &layer, &end) && !strcmp(end, ".x");
}

const char *snd_judge_word(bool measured) {
    return measured ? "measured" : "predicted";
}

const char *snd_judge_text(char out[40], double log10_abs) {
    return snd_pretty_log10(out, log10_abs, 3);
}

// ---- speaking -----------------------------------------------------------------------------------------------------------------

static bool same_run(const snd_judge *j, const snd_verdict *v) {
    return v->run && !strcmp(v->run, j->run->label);
}

// Several depths of one wiring share a label. What was said of a smaller depth is not said again, unless it got worse.
static bool said(const snd_judge *j, snd_level level) {
    for (int i = 0; i < j->before; i++) {
        const snd_verdict *v = j->rec->verdicts[i];
        if (same_run(j, v) && !strcmp(v->rule, j->row->name) && v->level >= level) return true;
    }
    return false;
}

// Once something fires at one depth, the "ok" of another depth of the same wiring would only confuse.
static void take_back_ok(snd_judge *j) {
    int n = 0;
    for (int i = 0; i < j->rec->n_verdicts; i++) {
        snd_verdict *v = j->rec->verdicts[i];
        if (v->level == SND_LEVEL_OK && same_run(j, v)) {
            j->before -= i < j->before;
            continue;
        }
        j->rec->verdicts[n++] = v;
    }
    j->rec->n_verdicts = n;
}

static bool several_depths(const snd_judge *j) {
    for (int i = 0; i < j->rec->n_runs; i++)
        if (!strcmp(j->rec->runs[i]->label, j->run->label) && j->rec->runs[i]->depth != j->run->depth) return true;
    return false;
}

static bool findings_of_label(const snd_judge *j) {
    for (int i = 0; i < j->rec->n_verdicts; i++)
        if (same_run(j, j->rec->verdicts[i]) && j->rec->verdicts[i]->level > SND_LEVEL_OK) return true;
    return false;
}

void snd_judge_say(snd_judge *j, snd_level level, const char *where, double value, bool log, const char *why,
                   const char *remedy) {
    const snd_rvalue *place = named(j, where);
    if (place) where = place->name; // in full
    j->fired++;
    if (said(j, level) || (level == SND_LEVEL_OK && findings_of_label(j))) return;
    if (level > SND_LEVEL_OK) take_back_ok(j);
    snd_verdict *v = snd_record_verdict(j->rec, j->row->name, level, where);
    if (!v) return; // no memory: the record remembers
    v->run = j->run->label;
    v->value = value;
    v->threshold = isnan(value) ? NAN : j->threshold;
    v->log = log;
    v->why = several_depths(j) && level > SND_LEVEL_OK
                 ? snd_record_text(j->rec, "at depth %lld: %s", (long long)j->run->depth, why)
                 : snd_record_text(j->rec, "%s", why);
    v->remedy = snd_record_text(j->rec, "%s", remedy);
}

// ---- the loop -----------------------------------------------------------------------------------------------------------------

static void all_clear(snd_judge *j) {
    static const snd_rule_row ok = {"ok", SND_LEVEL_OK, 0, "", "", false};
    bool growth = false, gradient = false, cosine = false;
    for (int i = 0; i < j->run->n_values; i++) {
        snd_found f;
        const snd_rvalue *v = j->run->values[i];
        growth = growth || snd_judge_number(v, "q", &f);
        gradient = gradient || snd_judge_number(v, "gq", &f);
        cosine = cosine || snd_judge_number(v, "cos", &f);
    }
    char why[400];
    snprintf(why, sizeof why, "nothing to report: looked at %d values and %d parameters for %s%s%s%snorm sites%s",
             j->run->n_values, j->d->n_params, growth ? "stream growth, " : "", gradient ? "gradient ratio, " : "",
             cosine ? "correlation of examples, " : "", j->run->n_params && !j->o.trained ? "drawn weights, " : "",
             j->o.trained ? "" : ", init and how branches start");
    j->row = &ok;
    snd_judge_say(j, SND_LEVEL_OK, "", NAN, false, why, "");
}

sonde_status snd_rules_run(const snd_spec *spec, const snd_description *d, snd_run *run, const snd_rules_opts *o) {
    SND_FAIL_IF(!run, SONDE_ENOMEM, "rules: there is no run to look at");
    snd_judge j = {.spec = spec, .d = d, .run = run, .rec = run->rec, .before = run->rec->n_verdicts};
    if (o) j.o = *o;
    for (int i = 0; i < N_RULES; i++) {
        j.row = &rows[i];
        if (rows[i].start && j.o.trained) continue;
        j.threshold = rows[i].threshold;
        functions[i](&j);
    }
    if (!j.fired) all_clear(&j);
    return snd_record_status(run->rec);
}
