// Rules about the formula: where norms stand, and what they can normalise over.
#include "rules/inner.h"

#include <math.h>
#include <string.h>

void snd_rule_norm_twice(snd_judge *j) {
    const snd_description *d = j->d;
    const snd_site_row *first = NULL;
    int n = 0;
    for (int i = 0; i < d->n_sites; i++) {
        if (!d->sites[i].after) continue;
        if (!first) first = &d->sites[i];
        n++;
    }
    if (!first) return;
    char why[400];
    snprintf(why, sizeof why,
             "%s reads the output of %s directly (%d of %d norm sites do so): at the start it changes nothing but by "
             "eps; in training only its gain and bias act",
             first->name, first->after, n, d->n_sites);
    const bool last = !strncmp(first->name, "out.", 4);
    snd_judge_say(j, SND_LEVEL_INFO, first->name, NAN, false, why,
                  last ? "leave out the norm of out: (a wiring that ends in a norm needs none)"
                       : "leave out one of the two norms, unless the paper you follow has both");
}

// Normalised branches pile up in the stream, and nothing normalises what comes out.
void snd_rule_final_norm(snd_judge *j) {
    const snd_description *d = j->d;
    if (d->final_norm || d->n_branches < 2) return;
    snd_found f;
    char why[400], a[40];
    const bool has_rms = snd_judge_named(j, "out.x", "rms", &f);
    const bool has = has_rms || snd_judge_named(j, "out.x", "q", &f);
    const double rms = has_rms ? f.v : f.v / 2;
    int n = snprintf(why, sizeof why,
                     "every branch is normalised but what they add up to is not: out.x carries the sum of all of them");
    if (has)
        snprintf(why + n, sizeof why - (size_t)n, ", %s RMS %s after %lld layers", snd_judge_word(f.measured),
                 snd_judge_text(a, rms), (long long)j->run->depth);
    snd_judge_say(j, SND_LEVEL_WARN, "out.x", NAN, false, why,
                  "add 'out: x = N(x)' (wiring=pre has it), so that head and loss see unit size at every depth");
}

void snd_rule_small_batch(snd_judge *j) {
    const int64_t rows = j->o.rows;
    if (!j->d->has_batch || rows <= 0 || rows >= (int64_t)j->row->threshold || j->spec->family == SND_FAM_CONVNET)
        return;
    const snd_site_row *first = NULL;
    for (int i = 0; i < j->d->n_sites && !first; i++)
        if (j->d->sites[i].kind == SND_NORM_BATCH) first = &j->d->sites[i];
    if (!first) return;
    char why[400];
    if (rows == 1)
        snprintf(why, sizeof why,
                 "batch norm over 1 example: every value is its own mean, so the output is the bias whatever comes in, "
                 "and no gradient gets through");
    else
        snprintf(why, sizeof why,
                 "batch norm over %lld examples: statistics of so few rows are noise, and each example's output "
                 "depends on the others",
                 (long long)rows);
    snd_judge_say(j, rows == 1 ? SND_LEVEL_ERROR : SND_LEVEL_WARN, first->name, (double)rows, false, why,
                  "a larger batch, or norm=layer or norm=rms, which look at one row only");
}
