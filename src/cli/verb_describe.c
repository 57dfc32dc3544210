// sonde describe SPEC: what a model is, before anything is computed. The wiring first, since most real bugs are one ignored
// flag; then layers, norm sites, numbers that multiply, parameters and how they start, what a step costs, and notes.
#include "cli/foreseen.h"
#include "cli/inner.h"

#include <math.h>
#include <string.h>

enum { SHOWN = 14 }; // rows of a table without --full

static int columns_of(const snd_cli *c) {
    return c->columns > 120 ? 120 : c->columns;
}

static void head(snd_cli *c, const char *text) {
    snd_buf b = {0};
    snd_buf_put(&b, "\n");
    snd_ink_put(c, &b, SND_INK_BOLD, text);
    snd_buf_put(&b, "\n");
    snd_put(c, &b);
    snd_buf_free(&b);
}

static void indented(snd_buf *b, const char *text, int indent) {
    for (const char *s = text; *s;) {
        const size_t n = strcspn(s, "\n");
        snd_buf_printf(b, "%*s", indent, "");
        snd_buf_putn(b, s, n);
        snd_buf_put(b, "\n");
        s += n + (s[n] == '\n');
    }
}

// ---- the model --------------------------------------------------------------------------------------------------------------

static void show_formula(snd_cli *c, const snd_spec *s, const snd_description *d) {
    const snd_wiring *w = s->wiring_key ? snd_wiring_find(s->wiring_key) : NULL;
    snd_buf b = {0};
    for (const char *t = d->formula; *t;) {
        const size_t n = strcspn(t, "\n");
        char *line = snd_arena_strn(c->arena, t, n);
        snd_ink_put(c, &b, SND_INK_BOLD, line ? line : "");
        snd_buf_put(&b, "\n");
        t += n + (t[n] == '\n');
    }
    if (s->title) snd_buf_printf(&b, "  %s\n", s->title);
    if (w) snd_buf_printf(&b, "  wiring %s: %s\n", w->key, w->title);
    if (w && w->source && *w->source) {
        snd_buf source = {0};
        snd_wrap(&source, w->source, 9, columns_of(c));
        snd_buf_printf(&b, "  source %s", source.s ? source.s + 9 : "\n");
        snd_buf_free(&source);
    }
    snd_put(c, &b);
    snd_buf_free(&b);
}

typedef struct line {
    snd_buf b;
    const char *sep;
} line;

static void put_setting(void *ctx, const char *key, const char *text, bool bare) {
    line *l = ctx;
    (void)bare;
    if (!strcmp(key, "wiring") || !text || !*text || strchr(text, '\n') || !strcmp(text, "0"))
        return; // 0: switched off
    snd_buf_put(&l->b, l->b.len ? l->sep : "");
    const size_t at = l->b.len;
    snd_buf_printf(&l->b, "%s %s", key, text);
    for (size_t i = at; !l->b.failed && l->b.len - at < 40 && i < l->b.len; i++)
        if (l->b.s[i] == ' ') l->b.s[i] = SND_GLUE; // no line break inside a setting
}

static void show_settings(snd_cli *c, const snd_spec *s) {
    line l = {.sep = c->utf8 ? " · " : ", "};
    snd_buf out = {0};
    snd_spec_each(s, put_setting, &l);
    if (l.b.s) snd_wrap(&out, l.b.s, 2, columns_of(c));
    snd_put(c, &out);
    snd_buf_free(&l.b);
    snd_buf_free(&out);
}

static void show_kind(snd_cli *c, const snd_layer_kind *k) {
    snd_buf b = {0};
    snd_buf_printf(&b, "  %slayer%s %s\n", k->stack, k->count == 1 ? "" : "s", k->layers);
    indented(&b, k->text, 4);
    if (k->first_text) {
        snd_buf_printf(&b, "    in layer %d:\n", k->first);
        indented(&b, k->first_text, 6);
        snd_buf_printf(&b, "    in layer %d:\n", k->last);
        indented(&b, k->last_text, 6);
    }
    snd_buf subs = {0};
    for (const char *s = k->subs; *s;) {
        const size_t n = strcspn(s, "\n");
        char *text = snd_arena_strn(c->arena, s, n);
        if (text) snd_wrap(&subs, text, 4, columns_of(c));
        s += n + (s[n] == '\n');
    }
    if (subs.s) snd_buf_put(&b, subs.s);
    snd_put(c, &b);
    snd_buf_free(&subs);
    snd_buf_free(&b);
}

static void show_layers(snd_cli *c, const snd_description *d) {
    head(c, "Layers");
    snd_buf b = {0};
    if (*d->in_text) snd_buf_printf(&b, "  in:    %s\n", d->in_text);
    snd_put(c, &b);
    for (int i = 0; i < d->n_kinds; i++) show_kind(c, &d->kinds[i]);
    snd_buf_free(&b);
    b = (snd_buf){0};
    if (*d->out_text) snd_buf_printf(&b, "  out:   %s\n", d->out_text);
    snd_put(c, &b);
    snd_buf_free(&b);
}

// ---- tables -------------------------------------------------------------------------------------------------------------------

static void rest(snd_cli *c, int shown, int n) {
    if (shown < n) snd_print(c, "  ... and %d more; --full shows them\n", n - shown);
}

static int limit(const snd_cli *c, int n) {
    return c->full || n <= SHOWN ? n : SHOWN;
}

static void show_sites(snd_cli *c, const snd_description *d) {
    head(c, "Norm sites");
    if (!d->n_site_groups) snd_print(c, "  none\n");
    snd_text_table *t = snd_table(c, 3);
    for (int i = 0; i < 3; i++) snd_table_left(t, i);
    const int n = limit(c, d->n_site_groups);
    for (int i = 0; i < n; i++) {
        snd_table_cell(t, snd_arena_printf(c->arena, "  %s", d->site_groups[i].pattern));
        snd_table_cell(t, d->site_groups[i].layers);
        snd_table_cell(t, d->site_groups[i].text);
    }
    snd_table_print(t);
    rest(c, n, d->n_site_groups);
}

static void show_mults(snd_cli *c, const snd_description *d) {
    if (!d->n_mults) return;
    head(c, "Numbers that multiply");
    const int n = limit(c, d->n_mults);
    for (int i = 0; i < n; i++) {
        const snd_mult_row *m = &d->mults[i];
        char a[40], b[40];
        snd_buf t = {0};
        snd_buf_printf(&t, "  %s x %s%s", m->on, m->learned ? "learned, starts at " : "",
                       snd_format_num(a, m->first, 5));
        if (m->first != m->last)
            snd_buf_printf(&t, " (%s) to %s (%s)", m->first_at, snd_format_num(b, m->last, 5), m->last_at);
        else if (strcmp(m->first_at, m->last_at) != 0)
            snd_buf_printf(&t, " (%s to %s)", m->first_at, m->last_at);
        else
            snd_buf_printf(&t, " (%s)", m->first_at);
        snd_buf_put(&t, "\n");
        snd_put(c, &t);
        snd_buf_free(&t);
    }
    rest(c, n, d->n_mults);
}

// "[768, 768]" without the blanks
static const char *shape_text(snd_cli *c, snd_shape s) {
    char t[160];
    return snd_arena_str(c->arena, snd_shape_text(s, t));
}

typedef struct role {
    const char *name;
    int64_t n;
} role;
enum { ROLES = 32 };

// Learned entries of each role, in the order in which the roles come.
static int roles_of(const snd_description *d, role out[ROLES]) {
    int n = 0;
    for (int i = 0; i < d->n_groups; i++) {
        const snd_param_group *g = &d->groups[i];
        int k = 0;
        while (k < n && strcmp(out[k].name, g->role) != 0) k++;
        if (g->state || k == ROLES) continue;
        if (k == n) out[n++] = (role){g->role, 0};
        out[k].n += snd_shape_size(g->shape) * g->count;
    }
    return n;
}

static void put_roles(snd_cli *c, const snd_description *d, snd_buf *b) {
    role roles[ROLES];
    line l = {.sep = c->utf8 ? " · " : ", "};
    const int n = roles_of(d, roles);
    for (int i = 0; i < n; i++)
        snd_buf_printf(&l.b, "%s%s %lld", i ? l.sep : "by role: ", roles[i].name, (long long)roles[i].n);
    if (n > 1) snd_wrap(b, l.b.s, 2, columns_of(c));
    snd_buf_free(&l.b);
}

static void show_params(snd_cli *c, const snd_spec *s, const snd_description *d) {
    static const char *const names[] = {"  parameter", "layers", "shape", "starts as", "entries"};
    head(c, "Parameters");
    snd_text_table *t = snd_table(c, 5);
    snd_table_head(t, names);
    for (int i = 0; i < 4; i++) snd_table_left(t, i);
    const int n = c->full ? d->n_groups : d->n_groups <= 2 * SHOWN ? d->n_groups : 2 * SHOWN;
    for (int i = 0; i < n; i++) {
        const snd_param_group *g = &d->groups[i];
        snd_table_cell(t, snd_arena_printf(c->arena, "  %s", g->pattern));
        snd_table_cell(t, g->layers);
        snd_table_cell(t, shape_text(c, g->shape));
        snd_table_cell(t, g->init_last ? snd_arena_printf(c->arena, "%s to %s", g->init, g->init_last) : g->init);
        snd_table_int(t, snd_shape_size(g->shape) * g->count);
    }
    snd_table_print(t);
    rest(c, n, d->n_groups);
    snd_buf b = {0};
    snd_buf_printf(&b, "  %lld learned: %lld in matrices, %lld elsewhere", (long long)d->n_learned,
                   (long long)d->n_weights, (long long)(d->n_learned - d->n_weights));
    if (d->n_state) snd_buf_printf(&b, "; %lld running statistics", (long long)d->n_state);
    snd_buf_put(&b, "\n");
    put_roles(c, d, &b);
    const bool said = s->init_text != NULL || s->formula->init != NULL;
    snd_buf_printf(&b, "  init %s%s%s%s\n", d->own_init, said ? "" : " (the family's default)",
                   s->init_text ? "; key: " : "", s->init_text ? s->init_text : "");
    snd_put(c, &b);
    snd_buf_free(&b);
}

// What the table's row "next token" reads and keeps.
static void show_next(snd_cli *c, const snd_description *d) {
    const snd_decoding *k = &d->next;
    char weights[40], cache[40], memory[40];
    if (!k->possible) return;
    snd_buf text = {0}, b = {0};
    snd_buf_printf(&text, "next token: after %lld others it reads %sB of weights", (long long)(d->tokens - 1),
                   snd_si(weights, k->weight_bytes));
    snd_buf_printf(&text, "; the keys and values of one sequence take %sB", snd_si(cache, k->cache_bytes));
    if (k->memory_bytes > 0)
        snd_buf_printf(&text, ", those of the encoder's output %sB", snd_si(memory, k->memory_bytes));
    snd_buf_put(&text, " (f32)");
    if (text.s) snd_wrap(&b, text.s, 2, columns_of(c));
    snd_put(c, &b);
    snd_buf_free(&text);
    snd_buf_free(&b);
}

static void show_cost(snd_cli *c, const snd_description *d) {
    static const char *const names[] = {"",      "total",       "products",         "attention",
                                        "norms", "elementwise", "bytes moved (f32)"};
    char t[40];
    snd_print(c, "\n");
    snd_buf b = {0};
    snd_ink_put(c, &b, SND_INK_BOLD, "Cost");
    snd_buf_printf(&b, " (FLOPs for %s, counted)\n", d->example);
    snd_put(c, &b);
    snd_buf_free(&b);
    snd_text_table *tab = snd_table(c, 7);
    snd_table_head(tab, names);
    snd_table_left(tab, 0);
    const struct {
        const char *name;
        const snd_cost *k;
        double all;
    } rows[] = {{"  forward", &d->forward, d->flops_forward},
                {"  backward", &d->backward, d->flops_backward},
                {"  next token", &d->next.cost, d->next.flops}};
    for (int i = 0; i < (d->next.possible ? 3 : 2); i++) {
        const double v[] = {rows[i].all,     rows[i].k->gemm,        rows[i].k->attention,
                            rows[i].k->norm, rows[i].k->elementwise, rows[i].k->bytes};
        snd_table_cell(tab, rows[i].name);
        for (int k = 0; k < 6; k++) snd_table_cell(tab, snd_si(t, v[k]));
    }
    snd_table_print(tab);
    char f64[40], f32[40], bf16[40];
    const double n = (double)d->n_learned;
    snd_print(c, "  weights: %sB in f32, %sB in bf16 or f16, %sB in f64\n", snd_si(f32, 4 * n), snd_si(bf16, 2 * n),
              snd_si(f64, 8 * n));
    show_next(c, d);
}

static void show_notes(snd_cli *c, const snd_spec *s, const snd_description *d) {
    snd_buf b = {0};
    if (d->n_lines || s->notes) head(c, "Notes");
    for (int i = 0; i < d->n_lines; i++) snd_wrap(&b, d->lines[i], 2, columns_of(c));
    if (s->notes) snd_wrap(&b, s->notes, 2, columns_of(c));
    snd_put(c, &b);
    snd_buf_free(&b);
}

static void show(snd_cli *c, const snd_spec *s, const snd_description *d, const snd_foreseen *f) {
    show_formula(c, s, d);
    show_settings(c, s);
    show_layers(c, d);
    show_sites(c, d);
    show_mults(c, d);
    show_params(c, s, d);
    show_cost(c, d);
    if (f) snd_foreseen_show(c, f);
    show_notes(c, s, d);
}

// ---- JSON ---------------------------------------------------------------------------------------------------------------------

static void put_json_setting(void *ctx, const char *key, const char *text, bool bare) {
    snd_json_setting(ctx, key, text, bare);
}

static void json_kinds(snd_json *j, const snd_description *d) {
    snd_json_open(j, "layers", '[');
    for (int i = 0; i < d->n_kinds; i++) {
        const snd_layer_kind *k = &d->kinds[i];
        snd_json_open(j, NULL, '{');
        snd_json_str(j, "stack", k->stack);
        snd_json_str(j, "layers", k->layers);
        snd_json_int(j, "first", k->first);
        snd_json_int(j, "last", k->last);
        snd_json_int(j, "count", k->count);
        snd_json_str(j, "formula", k->text);
        if (k->first_text) snd_json_str(j, "formula_first", k->first_text);
        if (k->last_text) snd_json_str(j, "formula_last", k->last_text);
        snd_json_str(j, "sublayers", k->subs);
        snd_json_close(j, '}');
    }
    snd_json_close(j, ']');
}

static void json_sites(snd_json *j, const snd_description *d) {
    snd_json_open(j, "norms", '[');
    for (int i = 0; i < d->n_sites; i++) {
        const snd_site_row *s = &d->sites[i];
        snd_json_open_flat(j, NULL, '{');
        snd_json_str(j, "name", s->name);
        if (s->layer >= 0) snd_json_int(j, "layer", s->layer);
        snd_json_str(j, "kind", snd_norm_name(s->kind));
        snd_json_num(j, "eps", s->eps);
        snd_json_num(j, "gain", s->gain);
        snd_json_str(j, "text", s->text);
        if (s->after) snd_json_str(j, "after", s->after);
        snd_json_close(j, '}');
    }
    snd_json_close(j, ']');
    snd_json_open(j, "multipliers", '[');
    for (int i = 0; i < d->n_mults; i++) {
        const snd_mult_row *m = &d->mults[i];
        snd_json_open_flat(j, NULL, '{');
        snd_json_str(j, "on", m->on);
        snd_json_bool(j, "learned", m->learned);
        snd_json_str(j, "first_at", m->first_at);
        snd_json_num(j, "first", m->first);
        snd_json_str(j, "last_at", m->last_at);
        snd_json_num(j, "last", m->last);
        snd_json_int(j, "count", m->count);
        snd_json_close(j, '}');
    }
    snd_json_close(j, ']');
}

static void json_params(snd_json *j, const snd_description *d) {
    snd_json_open(j, "params", '[');
    for (int i = 0; i < d->n_params; i++) {
        const snd_param_row *p = &d->params[i];
        snd_json_open_flat(j, NULL, '{');
        snd_json_str(j, "name", p->name);
        if (p->layer >= 0) snd_json_int(j, "layer", p->layer);
        snd_json_str(j, "role", p->role);
        snd_json_open(j, "shape", '[');
        for (int k = 0; k < p->shape.nd; k++) snd_json_int(j, NULL, p->shape.dim[k]);
        snd_json_close(j, ']');
        snd_json_str(j, "init", p->init);
        snd_json_num(j, "var", p->var);
        snd_json_num(j, "mean", p->mean);
        if (p->state) snd_json_bool(j, "state", true);
        if (p->no_grad && !p->state) snd_json_bool(j, "zero_gradient_at_start", true);
        snd_json_close(j, '}');
    }
    snd_json_close(j, ']');
}

static void json_counted(snd_json *j, const snd_cost *k, double total) {
    snd_json_num(j, "flops", total);
    snd_json_num(j, "gemm", k->gemm);
    snd_json_num(j, "attention", k->attention);
    snd_json_num(j, "norm", k->norm);
    snd_json_num(j, "elementwise", k->elementwise);
    snd_json_num(j, "bytes_f32", k->bytes);
}

static void json_cost(snd_json *j, const char *key, const snd_cost *k, double total) {
    snd_json_open_flat(j, key, '{');
    json_counted(j, k, total);
    snd_json_close(j, '}');
}

static void json_next(snd_json *j, const snd_decoding *k) {
    if (!k->possible) return;
    snd_json_open_flat(j, "next_token", '{');
    json_counted(j, &k->cost, k->flops);
    snd_json_num(j, "weight_bytes_f32", k->weight_bytes);
    snd_json_num(j, "cache_bytes_f32", k->cache_bytes);
    if (k->memory_bytes > 0) snd_json_num(j, "memory_bytes_f32", k->memory_bytes);
    snd_json_close(j, '}');
}

static void json_counts(snd_json *j, const snd_description *d) {
    snd_json_open_flat(j, "counts", '{');
    snd_json_int(j, "learned", d->n_learned);
    snd_json_int(j, "matrices", d->n_weights);
    snd_json_int(j, "state", d->n_state);
    snd_json_int(j, "sublayers", d->n_sublayers);
    snd_json_close(j, '}');
    role roles[ROLES];
    const int n_roles = roles_of(d, roles);
    snd_json_open_flat(j, "learned_by_role", '{');
    for (int i = 0; i < n_roles; i++) snd_json_int(j, roles[i].name, roles[i].n);
    snd_json_close(j, '}');
    snd_json_open(j, "cost", '{');
    snd_json_str(j, "example", d->example);
    json_cost(j, "forward", &d->forward, d->flops_forward);
    json_cost(j, "backward", &d->backward, d->flops_backward);
    json_next(j, &d->next);
    const double n = (double)d->n_learned;
    snd_json_open_flat(j, "weight_bytes", '{');
    snd_json_num(j, "f64", 8 * n);
    snd_json_num(j, "f32", 4 * n);
    snd_json_num(j, "bf16", 2 * n);
    snd_json_close(j, '}');
    snd_json_close(j, '}');
}

static void json(snd_cli *c, const snd_spec *s, const snd_description *d, const snd_foreseen *f) {
    snd_buf b = {0};
    snd_json j = snd_json_start(&b);
    snd_json_open(&j, NULL, '{');
    snd_json_str(&j, "schema", "sonde.describe/1");
    snd_json_str(&j, "formula", d->formula);
    snd_json_open(&j, "spec", '{');
    snd_spec_each(s, put_json_setting, &j);
    snd_json_close(&j, '}');
    snd_json_str(&j, "in", d->in_text);
    json_kinds(&j, d);
    snd_json_str(&j, "out", d->out_text);
    json_sites(&j, d);
    snd_json_bool(&j, "final_norm", d->final_norm);
    snd_json_str(&j, "init", d->own_init);
    json_params(&j, d);
    json_counts(&j, d);
    if (f) snd_foreseen_json(&j, f);
    snd_json_open(&j, "notes", '[');
    for (int i = 0; i < d->n_lines; i++) snd_json_str(&j, NULL, d->lines[i]);
    snd_json_close(&j, ']');
    snd_json_close(&j, '}');
    snd_put(c, &b);
    snd_buf_free(&b);
}

sonde_status snd_verb_describe(snd_cli *c) {
    snd_spec *spec;
    snd_description *d;
    snd_foreseen *f;
    SND_TRY(snd_cli_load_spec(c, &spec));
    SND_TRY(snd_cli_foresee(c, spec, &f));
    SND_TRY(snd_describe(c->arena, spec, &d));
    if (c->json)
        json(c, spec, d, f);
    else
        show(c, spec, d, f);
    return SONDE_OK;
}
