// The tables of training: settings (settings.def), optimizers (optimizers.def), schedules (schedules.def).
#include "train/train.h"

#include <math.h>
#include <string.h>

enum {
    COUNT = 0
#define SND_TRAIN_KEY(...) +1
#include "train/settings.def"
#undef SND_TRAIN_KEY
};

static const snd_train_key KEYS[COUNT] = {
#define SND_TRAIN_KEY(name, option, type, dflt, lo, hi, range, help) {#name, option, #type, dflt, range, help},
#include "train/settings.def"
#undef SND_TRAIN_KEY
};

typedef enum type { WORD, INT, NUM } type;

static const struct info {
    type type;
    double lo, hi;
    size_t offset;
} INFO[COUNT] = {
#define SND_TRAIN_KEY(name, option, type, dflt, lo, hi, range, help) {type, lo, hi, offsetof(snd_train_settings, name)},
#include "train/settings.def"
#undef SND_TRAIN_KEY
};

int snd_train_key_count(void) {
    return COUNT;
}
const snd_train_key *snd_train_key_at(int i) {
    return i >= 0 && i < COUNT ? &KEYS[i] : NULL;
}

// ---- one setting --------------------------------------------------------------------------------------------------------------

// The word of `range` (words between bars) that text is, as it stands there.
static sonde_status set_word(const char **at, const char *where, int i, const char *text) {
    char shown[72];
    const size_t n = strlen(text);
    for (const char *w = KEYS[i].range; w; w = strchr(w, '|') ? strchr(w, '|') + 1 : NULL) {
        if (strncmp(w, text, n) != 0 || (w[n] && w[n] != '|') || n == 0) continue;
        *at = text;
        return SONDE_OK;
    }
    SND_FAIL(SONDE_ENAME, "%s%s: '%s' is not one of %s", where, KEYS[i].name, snd_shown(shown, text), KEYS[i].range);
}

static sonde_status set_number(void *at, const char *where, int i, const char *text) {
    double v = NAN;
    int64_t whole = -1;
    char shown[72];
    const bool is_int = INFO[i].type == INT, by_rule = !*text && !*KEYS[i].dflt;
    if (!by_rule) {
        SND_FAIL_IF(is_int ? !snd_parse_int(text, &whole, NULL) : !snd_parse_num(text, &v, NULL), SONDE_ETYPE,
                    "%s%s: '%s' is no %snumber; %s is possible", where, KEYS[i].name, snd_shown(shown, text),
                    is_int ? "whole " : "", KEYS[i].range);
        const double x = is_int ? (double)whole : v;
        SND_FAIL_IF(!(x >= INFO[i].lo && x <= INFO[i].hi), SONDE_ERANGE, "%s%s: %s is outside %s", where, KEYS[i].name,
                    snd_shown(shown, text), KEYS[i].range);
    }
    if (is_int)
        *(int64_t *)at = whole;
    else
        *(double *)at = v;
    return SONDE_OK;
}

static sonde_status set(snd_train_settings *s, const char *where, int i, const char *text) {
    void *at = (char *)s + INFO[i].offset;
    return INFO[i].type == WORD ? set_word(at, where, i, text) : set_number(at, where, i, text);
}

sonde_status snd_train_setting(snd_train_settings *s, const char *where, const char *key, const char *text) {
    const char *names[COUNT];
    char shown[72];
    for (int i = 0; i < COUNT; i++) {
        names[i] = KEYS[i].name;
        if (strcmp(key, KEYS[i].name) == 0) return set(s, where, i, text);
    }
    const char *near = snd_nearest(key, names, COUNT);
    SND_FAIL(SONDE_ENAME, "%sunknown train key '%s'%s%s", where, snd_shown(shown, key),
             near ? "; the nearest known is " : "", near ? near : "");
}

snd_train_settings snd_train_defaults(void) {
    snd_train_settings s = {0};
    for (int i = 0; i < COUNT; i++) {
        const sonde_status ok = set(&s, "", i, KEYS[i].dflt);
        (void)ok; // the table's own words; a test reads all of them
    }
    return s;
}

void snd_train_each(const snd_train_settings *s, void (*put)(void *ctx, const char *key, const char *text), void *ctx) {
    for (int i = 0; i < COUNT; i++) {
        char text[40];
        const void *at = (const char *)s + INFO[i].offset;
        if (INFO[i].type == INT) snprintf(text, sizeof text, "%lld", (long long)*(const int64_t *)at);
        if (INFO[i].type == NUM) snd_format_num(text, *(const double *)at, 17);
        put(ctx, KEYS[i].name, INFO[i].type == WORD ? *(const char *const *)at : text);
    }
}

// ---- what is left to its rule ---------------------------------------------------------------------------------------------------

static void whole_unless_said(int64_t *at, int64_t v) {
    if (*at < 0) *at = v;
}
static void unless_said(double *at, double v) {
    if (isnan(*at)) *at = v;
}

static int64_t share(int64_t steps, int64_t parts) {
    return steps / parts > 1 ? steps / parts : 1;
}

sonde_status snd_train_resolve(snd_train_settings *s, const snd_spec *spec) {
    const snd_optimizer_row *o = snd_optimizer_find(s->optimizer);
    const bool sequences = spec->family == SND_FAM_TRANSFORMER;
    whole_unless_said(&s->batch, sequences ? 16 : 64);
    whole_unless_said(&s->tokens, spec->context > 0 ? spec->context : 128);
    whole_unless_said(&s->warmup, s->steps / 20);
    whole_unless_said(&s->eval_every, share(s->steps, 10));
    whole_unless_said(&s->save_every, s->eval_every);
    whole_unless_said(&s->monitor_every, share(s->steps, 50));
    unless_said(&s->lr, o->lr);
    unless_said(&s->beta1, o->beta1);
    unless_said(&s->beta2, o->beta2);
    unless_said(&s->weight_decay, o->weight_decay);
    SND_FAIL_IF(s->batch % s->accumulate, SONDE_ERANGE,
                "batch: %lld examples do not divide into %lld parts (accumulate)", (long long)s->batch,
                (long long)s->accumulate);
    return SONDE_OK;
}

// ---- optimizers and schedules -----------------------------------------------------------------------------------------------------

static const snd_optimizer_row OPTIMIZERS[] = {
#define SND_OPTIMIZER(name, rule, moments, lr, beta1, beta2, weight_decay)                                             \
    {#name, SND_KRULE_##rule, moments, lr, beta1, beta2, weight_decay},
#include "train/optimizers.def"
#undef SND_OPTIMIZER
};

const snd_optimizer_row *snd_optimizer_find(const char *name) {
    for (size_t i = 0; i < sizeof OPTIMIZERS / sizeof *OPTIMIZERS; i++)
        if (strcmp(OPTIMIZERS[i].name, name) == 0) return &OPTIMIZERS[i];
    return NULL;
}

// Factors after the warm-up; p: progress, from 0 to below 1.
typedef struct moment {
    int64_t step, warm;
    double p;
} moment;

static double schedule_constant(const snd_train_settings *s, moment at) {
    (void)s;
    (void)at;
    return 1;
}
static double schedule_linear(const snd_train_settings *s, moment at) {
    return 1 - (1 - s->lr_end) * at.p;
}
static double schedule_cosine(const snd_train_settings *s, moment at) {
    const double half = cos(acos(0.0) * at.p); // its square is (1 + cos pi p)/2, above 0 as long as p is below 1
    return s->lr_end + (1 - s->lr_end) * half * half;
}
static double schedule_invsqrt(const snd_train_settings *s, moment at) {
    (void)s;
    return sqrt((double)at.warm / (double)at.step);
}
static double schedule_wsd(const snd_train_settings *s, moment at) {
    const double left = at.step < s->steps ? (double)(s->steps - at.step + 1) : 1,
                 tail = s->decay_share * (double)s->steps + 1;
    return left >= tail ? 1 : s->lr_end + (1 - s->lr_end) * left / tail;
}

static const struct schedule {
    const char *name;
    double (*factor)(const snd_train_settings *s, moment at);
} SCHEDULES[] = {
#define SND_SCHEDULE(name) {#name, schedule_##name},
#include "train/schedules.def"
#undef SND_SCHEDULE
};

double snd_train_lr(const snd_train_settings *s, int64_t step) {
    const int64_t warm = s->warmup > 1 ? s->warmup : 1;
    if (step <= warm) return s->lr * ((double)step / (double)warm);
    const int64_t last = s->steps > warm ? s->steps : warm, here = step < last ? step : last;
    const moment at = {step, warm, (double)(here - warm) / (double)(last - warm + 1)};
    for (size_t i = 0; i < sizeof SCHEDULES / sizeof *SCHEDULES; i++)
        if (strcmp(SCHEDULES[i].name, s->schedule) == 0) return s->lr * SCHEDULES[i].factor(s, at);
    return s->lr;
}
