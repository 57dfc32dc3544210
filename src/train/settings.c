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

static const snd_train_key ROWS[COUNT] = {
#define SND_TRAIN_KEY(name, option, verbs, type, dflt, lo, hi, range, use, help)                                       \
    {#name, option, dflt, range, help, SND_MEMBER_##type, lo, hi, offsetof(snd_train_settings, name)},
#include "train/settings.def"
#undef SND_TRAIN_KEY
};

int snd_train_key_count(void) {
    return COUNT;
}
const snd_train_key *snd_train_key_at(int i) {
    return i >= 0 && i < COUNT ? &ROWS[i] : NULL;
}

// ---- one setting --------------------------------------------------------------------------------------------------------------

sonde_status snd_train_setting(snd_train_settings *s, const char *where, const char *key, const char *text) {
    int i;
    SND_TRY(snd_member_find(ROWS, COUNT, "train", where, key, &i));
    return snd_member_set(&ROWS[i], s, where, text);
}

snd_train_settings snd_train_defaults(void) {
    snd_train_settings s = {0};
    for (int i = 0; i < COUNT; i++) {
        const sonde_status ok = snd_member_set(&ROWS[i], &s, "", ROWS[i].dflt);
        (void)ok; // the table's own words; a test reads all of them
    }
    return s;
}

void snd_train_each(const snd_train_settings *s, void (*put)(void *ctx, const char *key, const char *text), void *ctx) {
    for (int i = 0; i < COUNT; i++) {
        char text[40];
        const void *at = (const char *)s + ROWS[i].offset;
        if (ROWS[i].type == SND_MEMBER_INT) snprintf(text, sizeof text, "%lld", (long long)*(const int64_t *)at);
        if (ROWS[i].type == SND_MEMBER_NUM) snd_format_num(text, *(const double *)at, 17);
        const bool words = ROWS[i].type == SND_MEMBER_WORD || ROWS[i].type == SND_MEMBER_TEXT;
        put(ctx, ROWS[i].name, words ? *(const char *const *)at : text);
    }
}

// ---- the task -------------------------------------------------------------------------------------------------------------------

snd_task snd_train_task(const snd_spec *s) {
    if (s->family != SND_FAM_TRANSFORMER) return SND_TASK_CLASS;
    switch (s->objective) {
    case SND_OBJ_MLM: return SND_TASK_MLM;
    case SND_OBJ_SEQ2SEQ: return SND_TASK_SEQ2SEQ;
    case SND_OBJ_CLASS: return SND_TASK_CLASS;
    case SND_OBJ_LM: return SND_TASK_LM;
    default: break; // without a vocabulary yet
    }
    return s->arch == SND_ARCH_ENCODER ? SND_TASK_MLM : s->arch == SND_ARCH_ENCDEC ? SND_TASK_SEQ2SEQ : SND_TASK_LM;
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

static sonde_status check_loss_scale(const snd_train_settings *s) {
    char shown[72];
    const char *text = s->loss_scale ? s->loss_scale : "";
    double v;
    const bool number = snd_parse_num(text, &v, NULL);
    SND_FAIL_IF(strcmp(text, "dynamic") != 0 && !(number && v >= 0x1p-40 && v <= 0x1p40), SONDE_ERANGE,
                "loss_scale: '%s' is neither dynamic nor a number from 2^-40 to 2^40", snd_shown(shown, text));
    return SONDE_OK;
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
    return check_loss_scale(s);
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
