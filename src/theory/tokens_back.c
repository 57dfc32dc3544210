// Gradients in the token algebra, written onto the same tape: the transpose of a fresh map is a fresh map, a function
// multiplies by its derivative, a norm divides by its divisor, attention has three results (tokens_attend.c). What is
// followed is white over features; what returns along forward values (backward.c) starts at a 1/width share of it, and
// Transformers end their branches in maps of mean zero, which leave it there.
#include "theory/tokens_tape.h"

#include <math.h>

#define NODE(i) (&t->node[i])

static void put(snd_tokens *t, snd_mid v, snd_mid g) {
    if (t->failed || NODE(v)->gradless || NODE(v)->dim == 0) return;
    NODE(v)->grad = NODE(v)->grad ? snd_tk_sum(t, 2, (snd_mid[]){NODE(v)->grad, g}, (double[]){1, 1}, 0) : g;
}

// To factor v of a product with u: summed over features when v is one number per row.
static void put_product(snd_tokens *t, snd_mid v, snd_mid u, snd_mid g) {
    if (NODE(v)->gradless || NODE(v)->dim == 0) return;
    put(t, v, NODE(v)->dim == 1 && NODE(g)->dim > 1 ? snd_tk_dot(t, u, g) : snd_tk_mul(t, u, g));
}

static void back_base(snd_tokens *t, snd_mid y, snd_mid g) {
    const k_node v = *NODE(y);
    snd_mid three[3];
    switch ((k_from)v.from) {
    case K_FROM_LINEAR:
        if (v.var > 0 && !NODE(v.in[0])->gradless)
            put(t, v.in[0], snd_tk_linear(t, g, v.dim, NODE(v.in[0])->dim, v.var));
        break;
    case K_FROM_DOT:
        for (int i = 0; i < 2; i++) put_product(t, v.in[i], v.in[1 - i], g);
        break;
    case K_FROM_ATTEND:
        k_attend_back(t, y, g, three);
        for (int i = 0; i < 3 && !t->failed; i++) put(t, v.in[i], three[i]);
        break;
    case K_FROM_NONE:
    case K_FROM_WAVES:
    case K_FROM_RMS: break;
    }
}

static void back_rms(snd_tokens *t, snd_mid y, snd_mid g) { // d rms = x.dx/(dim rms)
    const snd_mid x = NODE(y)->in[0];
    double c[SND_PLACES] = {0};
    for (int j = 0; j < SND_PLACES; j++)
        if (NODE(y)->mean[j] > 0) c[j] = 1 / (NODE(y)->mean[j] * (double)NODE(x)->dim);
    put(t, x, k_weighted(t, snd_tk_mul(t, x, g), c));
}

// By a norm's divisors, row by row: a mean of inverses is more than the inverse of a mean.
static snd_mid divided(snd_tokens *t, snd_mid g, snd_mid norm) {
    const snd_mid x = NODE(norm)->in[0];
    double c[SND_PLACES], more = 1;
    if (t->is_net && t->net.lucky) more = sqrt(exp(k_rows_of(t, x).loose) * k_left_by_norm(t, norm, g));
    for (int j = 0; j < SND_PLACES; j++) c[j] = more * NODE(norm)->coef[0][j];
    const snd_mid out = k_weighted(t, g, c);
    NODE(out)->projected = true;
    return out;
}

static void back(snd_tokens *t, snd_mid y, snd_mid g) {
    const k_node v = *NODE(y);
    switch ((k_op)v.op) {
    case K_SUM:
        for (int i = 0; i < v.n; i++) {
            if (NODE(v.in[i])->gradless) continue;
            const snd_mid part = v.same ? g : v.norm ? divided(t, g, y) : k_weighted(t, g, v.coef[i]);
            if (NODE(v.in[i])->dim == 1 && v.dim > 1)
                put(t, v.in[i], snd_tk_dot(t, 0, part));
            else
                put(t, v.in[i], part);
        }
        break;
    case K_CENTRE: put(t, v.in[0], k_centre(t, g)); break;
    case K_FUNC: put_product(t, v.in[0], k_func(t, (snd_gfn)v.fn, true, v.in[0]), g); break;
    case K_MUL:
        for (int i = 0; i < 2; i++) put_product(t, v.in[i], v.in[1 - i], g);
        break;
    case K_BASE: back_base(t, y, g); break;
    case K_FIXED:
        if (v.from == K_FROM_RMS) back_rms(t, y, g);
        break;
    case K_NONE: break;
    }
}

void snd_tk_backward(snd_tokens *t, snd_mid out) {
    if (t->failed) return;
    if (t->n_forward == 0) t->n_forward = t->n;
    for (snd_mid y = 0; y < t->n_forward; y++) NODE(y)->grad = 0;
    t->at = NODE(out)->stack;
    put(t, out, snd_tk_input(t, NODE(out)->dim, (snd_tk_rows){.same = 1}, false));
    for (snd_mid y = out; y > 0 && !t->failed; y--)
        if (NODE(y)->grad) back(t, y, NODE(y)->grad);
}
