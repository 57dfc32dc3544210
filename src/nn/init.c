// Init rules: from a base kind and rules per role to the draw of one parameter (formulas.md section 5).
// Rules are applied in order: the base kind, then those of the wiring, then those of the init key. A role's own rule
// (down = zero) beats an explicit gain= of the map; the base kind does not.
#include "nn/nn.h"

#include <math.h>
#include <string.h>

typedef struct fans {
    double in, out;
} fans;

static bool is_base(const snd_init_rule *r) {
    return r && r->n_roles == 0 && strcmp(r->kind, "profile") != 0;
}

static const snd_init_rule *base_rule(const snd_spec *s) {
    if (is_base(s->init)) return s->init;
    if (is_base(s->formula->init)) return s->formula->init;
    return NULL;
}

const char *snd_nn_base_kind(const snd_spec *s) {
    const snd_init_rule *r = base_rule(s);
    if (r) return r->kind;
    return s->family == SND_FAM_MLP ? "lecun" : s->family == SND_FAM_CONVNET ? "he" : "xavier";
}

static int constants(const snd_nn *m, snd_const env[9]) {
    const snd_stack *t = m->stack;
    const snd_const list[] = {{"L", t->L},         {"Le", t->Le},       {"Ld", t->Ld},      {"cross", t->cross},
                              {"d", (double)t->d}, {"n", (double)t->n}, {"l", m->layer + 1}};
    memcpy(env, list, sizeof list);
    return m->layer >= 0 ? 7 : 6;
}

static sonde_status rule_number(const snd_nn *m, const snd_expr *x, double *v) {
    snd_const env[9];
    const int n = constants(m, env);
    const sonde_status s = snd_expr_const(x, env, n, v);
    if (s != SONDE_OK) return snd_fail_prefix(s, "init: ");
    SND_FAIL_IF(!isfinite(*v), SONDE_ERANGE, "init: line %d, column %d: this number is not finite", x->line, x->col);
    return SONDE_OK;
}

static bool is_role(const char *role, const char *word) {
    return !strcmp(role, word);
}

// T5's standard deviations per role (Mesh TensorFlow's initialisers, as in the public models).
static double t5_sd(const snd_nn *m, const char *role) {
    const snd_spec *s = m->spec;
    const double d = (double)s->width, hd = (double)s->head_dim, h = (double)s->heads;
    if (is_role(role, "q")) return 1 / sqrt(d * hd);
    if (is_role(role, "o")) return 1 / sqrt(h * hd);
    if (is_role(role, "down")) return 1 / sqrt((double)s->hidden);
    if (is_role(role, "embed") || is_role(role, "pos")) return 1;
    return 1 / sqrt(d);
}

// Kinds whose deviation follows fans, outside the roles that they treat apart.
static double fan_sd(const snd_nn *m, const char *kind, const char *role, fans f) {
    if (is_role(role, "embed") || is_role(role, "pos")) return m->spec->position == SND_POS_LEARNED ? sqrt(0.5) : 1;
    // the input stream has unit variance whatever the kind, and the head reads it so
    if (is_role(role, "head") || (is_role(role, "stem") && m->spec->family == SND_FAM_MLP)) return 1 / sqrt(f.in);
    if (!strcmp(kind, "lecun")) return sqrt(1 / f.in);
    if (!strcmp(kind, "he")) return sqrt(2 / f.in);
    return sqrt(2 / (f.in + f.out));
}

static sonde_status by_kind(const snd_nn *m, const char *kind, const snd_expr *arg, const char *role, fans f,
                            snd_init *out) {
    double a = 0;
    if (arg) SND_TRY(rule_number(m, arg, &a));
    SND_FAIL_IF(a < 0, SONDE_ERANGE, "init: line %d, column %d: %s needs a number from 0", arg->line, arg->col, kind);
    *out = (snd_init){.kind = SND_INIT_NORMAL, .a = a, .factor = 1};
    if (!strcmp(kind, "normal")) return SONDE_OK;
    if (!strcmp(kind, "trunc"))
        out->kind = SND_INIT_TRUNC;
    else if (!strcmp(kind, "uniform"))
        out->kind = SND_INIT_UNIFORM;
    else if (!strcmp(kind, "zero") || !strcmp(kind, "one"))
        *out = (snd_init){.kind = SND_INIT_CONST, .a = kind[0] == 'o', .factor = 1};
    else if (!strcmp(kind, "gpt2"))
        out->a = is_role(role, "pos") ? 0.01 : 0.02;
    else if (!strcmp(kind, "llama"))
        out->a = 0.02;
    else if (!strcmp(kind, "bert"))
        *out = (snd_init){.kind = SND_INIT_TRUNC, .a = 0.02, .factor = 1};
    else if (!strcmp(kind, "t5"))
        out->a = t5_sd(m, role);
    else if (!strcmp(kind, "xavier_uniform") && !is_role(role, "head") && !is_role(role, "embed") &&
             !is_role(role, "pos") && !is_role(role, "stem"))
        *out = (snd_init){.kind = SND_INIT_UNIFORM, .a = sqrt(3) * fan_sd(m, "xavier", role, f), .factor = 1};
    else
        out->a = fan_sd(m, kind, role, f);
    if (!strcmp(kind, "gpt2") && (is_role(role, "o") || is_role(role, "down")))
        out->factor = 1 / sqrt(2.0 * m->stack->L);
    return SONDE_OK;
}

static bool names_role(const snd_init_rule *r, const char *role, const char *alt) {
    for (int i = 0; i < r->n_roles; i++)
        if (!strcmp(r->roles[i], role) || (alt && !strcmp(r->roles[i], alt))) return true;
    return false;
}

// "stem = he" asks for he itself: what fan kinds do about special roles belongs to the base kind.
static const char *role_in_rule(const char *kind, const char *role) {
    return !strcmp(kind, "lecun") || !strcmp(kind, "he") || !strncmp(kind, "xavier", 6) ? "" : role;
}

static sonde_status apply_rules(const snd_nn *m, const snd_init_rule *r, const char *role, const char *alt, fans f,
                                snd_init *io) {
    for (; r; r = r->next) {
        if (!names_role(r, role, alt)) continue;
        if (!r->factor) {
            SND_TRY(by_kind(m, r->kind, r->n_args ? r->args[0] : NULL, role_in_rule(r->kind, role), f, io));
            continue;
        }
        double v;
        SND_TRY(rule_number(m, r->factor, &v));
        io->factor *= v;
    }
    return SONDE_OK;
}

sonde_status snd_nn_init_map(const snd_nn *m, const char *role, const char *alt, int64_t fan_in, int64_t fan_out,
                             double gain, bool zero, snd_init *out) {
    const fans f = {(double)fan_in, (double)fan_out};
    const snd_init_rule *base = base_rule(m->spec);
    if (zero)
        *out = (snd_init){.kind = SND_INIT_CONST, .factor = 1};
    else if (gain >= 0)
        *out = (snd_init){.kind = SND_INIT_NORMAL, .a = sqrt(gain / f.in), .factor = 1};
    else
        SND_TRY(by_kind(m, snd_nn_base_kind(m->spec), base && base->n_args ? base->args[0] : NULL, role, f, out));
    SND_TRY(apply_rules(m, m->spec->formula->init, role, alt, f, out));
    return apply_rules(m, m->spec->init, role, alt, f, out);
}

sonde_status snd_nn_init_value(const snd_nn *m, const char *role, double v, snd_init *out) {
    *out = (snd_init){.kind = SND_INIT_CONST, .a = v, .factor = 1};
    const fans f = {(double)m->stack->d, (double)m->stack->d};
    SND_TRY(apply_rules(m, m->spec->formula->init, role, NULL, f, out));
    return apply_rules(m, m->spec->init, role, NULL, f, out);
}

double snd_nn_init_var(const snd_init *i) {
    const double s2 = i->a * i->a * i->factor * i->factor;
    // a normal cut at 2 sd keeps 1 - 2*2*phi(2)/(2*Phi(2) - 1) of its variance
    if (i->kind == SND_INIT_TRUNC) return s2 * 0.77374130354992;
    return i->kind == SND_INIT_NORMAL ? s2 : i->kind == SND_INIT_UNIFORM ? s2 / 3 : 0;
}

void snd_nn_init_text(const snd_init *i, snd_buf *b) {
    const double a = i->a * i->factor;
    static const char *const names[] = {[SND_INIT_NORMAL] = "normal",
                                        [SND_INIT_TRUNC] = "trunc",
                                        [SND_INIT_UNIFORM] = "uniform",
                                        [SND_INIT_LAST] = "last"};
    if (i->kind == SND_INIT_CONST && (a == 0 || a == 1)) {
        snd_buf_put(b, a == 0 ? "zero" : "one");
        return;
    }
    if (i->kind == SND_INIT_CONST)
        snd_buf_put(b, "= ");
    else
        snd_buf_printf(b, "%s(", names[i->kind]);
    snd_buf_num(b, a, 4);
    if (i->kind != SND_INIT_CONST) snd_buf_put(b, ")");
}
