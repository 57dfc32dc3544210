// Several runs as text: one line each, the metrics at the last layer's stream beside their theory.
#include "cli/show.h"

#include <math.h>
#include <string.h>

static const snd_rvalue *last_stream(const snd_run *u, const char *metric) {
    for (int i = u->n_values - 1; i >= 0; i--)
        if (snd_show_is_stream(u->values[i]->name) && !snd_show_ends(u->values[i]->name, "out.x") &&
            snd_value_find(u->values[i], metric))
            return u->values[i];
    return NULL;
}

bool snd_show_label_seen(const snd_record *r, int i) {
    for (int k = 0; k < i; k++)
        if (strcmp(r->runs[k]->label, r->runs[i]->label) == 0) return true;
    return false;
}

// Gradients go the other way: their news is at in.x.
static const snd_rvalue *telling_value(const snd_run *u, const char *metric) {
    const snd_rvalue *in = *metric == 'g' ? snd_run_find(u, "in.x") : NULL;
    return in && snd_value_find(in, metric) ? in : last_stream(u, metric);
}

static void run_cells(snd_text_table *t, const snd_run *u, const snd_rvalue *sum, int n_sum, const snd_columns *k) {
    char s[40];
    snd_table_cell(t, u->label);
    snd_table_int(t, u->depth);
    for (int m = 0; m < n_sum; m++) {
        const snd_metric *x = snd_value_find(u->summary, sum->metrics[m]->name);
        snd_table_cell(t, x ? snd_show_text(s, x->log, snd_show_value(x), 4) : "");
    }
    for (int m = 0; m < k->n; m++) {
        const snd_rvalue *v = telling_value(u, k->name[m]);
        const snd_metric *x = v ? snd_value_find(v, k->name[m]) : NULL;
        const bool out = x && snd_metric_outside(x);
        snd_table_cell(t, "");
        if (x) snd_table_join(t, snd_show_text(s, x->log, snd_show_value(x), 4));
        if (k->z[m]) snd_table_join(t, out ? "!" : " ");
        if (out) snd_table_ink(t, SND_INK_RED);
        if (!k->theory[m]) continue;
        snd_table_cell(t, x && !isnan(x->predicted) ? snd_show_text(s, x->log, x->predicted, 4) : "");
        snd_table_ink(t, SND_INK_DIM);
    }
}

// One line a run: the summary figures, and the columns' metrics at the last layer.
void snd_show_runs(snd_cli *c, const snd_record *r) {
    const snd_columns k = snd_show_columns(c, r->runs[0]);
    const snd_rvalue *sum = r->runs[0]->summary;
    const int n_sum = sum->n_metrics < 2 ? sum->n_metrics : 2; // growth and gratio; slopes are in the files
    const char *head[2 + 8 + 2 * SND_SHOW_METRICS];
    int n = 0;
    head[n++] = "wiring";
    head[n++] = "depth";
    for (int i = 0; i < n_sum; i++) head[n++] = sum->metrics[i]->name;
    bool gradients = false, marks = false;
    for (int i = 0; i < k.n; i++) {
        head[n++] = k.z[i] ? snd_arena_printf(c->arena, "%s ", k.name[i]) : k.name[i];
        if (k.theory[i]) head[n++] = "theory";
        gradients |= *k.name[i] == 'g';
        marks |= k.z[i];
    }
    snd_text_table *t = snd_table(c, n);
    snd_table_head(t, head);
    snd_table_left(t, 0);
    for (int first = 0; first < r->n_runs; first++) { // runs of one label together, in the order of first appearance
        if (snd_show_label_seen(r, first)) continue;
        for (int i = first; i < r->n_runs; i++)
            if (strcmp(r->runs[i]->label, r->runs[first]->label) == 0) run_cells(t, r->runs[i], sum, n_sum, &k);
    }
    snd_print(c, "\n");
    if (k.n)
        snd_print(c, "At the last layer's stream%s (the other layers: --full):\n",
                  gradients ? ", gradients at in.x" : "");
    snd_table_print(t);
    if (marks) snd_print(c, "! outside its 95 %% band\n");
}
