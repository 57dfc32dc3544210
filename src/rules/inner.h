// What the files of rules/ share: the run under judgement and ways to read it.
#ifndef SND_RULES_INNER_H
#define SND_RULES_INNER_H

#include "rules/rules.h"

typedef struct snd_judge {
    const snd_spec *spec;
    const snd_description *d;
    snd_run *run;
    snd_record *rec;
    snd_rules_opts o;
    const snd_rule_row *row;   // the rule that runs
    double threshold;          // the row's, or the side of it that was crossed
    int fired;
    int before;                // verdicts in the record that earlier runs left
} snd_judge;

typedef struct snd_found { double v; bool measured; } snd_found;   // v: log10 when the metric is one

/// Metric of a value: the measured mean if there is one, else the prediction. False: neither, or not a finite number (for
/// log metrics -INFINITY, an exact zero, is not finite either).
bool snd_judge_number(const snd_rvalue *v, const char *metric, snd_found *out);
/// By its name in the only stack or, in an encoder-decoder, in the decoder.
bool snd_judge_named(const snd_judge *j, const char *value, const char *metric, snd_found *out);
/// The same of in.x, layers.N.x, out.x in one stack of an encoder-decoder: stack is "encoder.", "decoder." or "".
bool snd_judge_in_stack(const snd_judge *j, const char *stack, const char *value, const char *metric, snd_found *out);
/// Forward values have no "grad." in front; streams are in.x, layers.N.x, out.x, of any stack.
bool snd_judge_is_stream(const snd_rvalue *v);
/// What stands before the names of the stack that a value belongs to: "encoder.", "decoder." or "".
const char *snd_judge_stack(const snd_judge *j, const snd_rvalue *v);
const char *snd_judge_word(bool measured);     // "measured", "predicted"
/// A number given as its log10, for sentences.
const char *snd_judge_text(char out[40], double log10_abs);

/// Appends a verdict of the running rule. value NAN: none. why and remedy are copied.
void snd_judge_say(snd_judge *j, snd_level level, const char *where, double value, bool log, const char *why, const char *remedy);

#define SND_RULE(name, level, threshold, unit, source, start, fn) void fn(snd_judge *j);
#include "rules/rules.def"
#undef SND_RULE

#endif
