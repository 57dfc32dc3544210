// Front header of rules/: verdicts. A rule looks at a description and at one run of a record (measured numbers where
// there are some, else predicted ones) and appends what it finds to the record: rule, level, first place, value,
// threshold, why, what to try. Thresholds and their sources are rows of rules.def. No model is run here.
#ifndef SND_RULES_H
#define SND_RULES_H

#include "readers/readers.h"

typedef struct snd_rule_row {
    const char *name;          // "stream-f32"
    snd_level level;           // the worst it gives
    double threshold;
    const char *unit;          // of the threshold, for help and docs
    const char *source;        // where the threshold comes from
    bool start;                // it speaks of a net that has not been trained
} snd_rule_row;
int snd_rule_count(void);
const snd_rule_row *snd_rule_at(int i);

typedef struct snd_rules_opts {
    int64_t rows;              // of the batch: examples, or all their tokens; 0: not known (predict)
    bool trained;              // weights come from a file: rules about the start are not asked
} snd_rules_opts;

/// Runs every rule on `run`; verdicts go to the run's record with the run's label. When none fires, one "ok" verdict says
/// what was looked at. o may be NULL.
sonde_status snd_rules_run(const snd_spec *spec, const snd_description *d, snd_run *run, const snd_rules_opts *o) SONDE_MUST_CHECK;

#endif
