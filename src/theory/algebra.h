// What the predict reader asks of an algebra, whichever it is: that of examples (moments.h) or that of tokens (tokens.h).
// A table of operations and its self; both number their nodes alike, 0 is the constant 1.
#ifndef SND_THEORY_ALGEBRA_H
#define SND_THEORY_ALGEBRA_H

#include "theory/tokens.h"

typedef struct snd_algebra {
    void *self;
    bool (*failed)(const void *self);
    snd_mid (*constant)(void *self, double v);
    snd_mid (*shared)(void *self, int64_t dim, double q);     // Gaussian features, one draw for all rows
    snd_mid (*example)(void *self, int64_t dim, double q);    // ... one draw per example
    snd_mid (*linear)(void *self, snd_mid x, int64_t fan_in, int64_t out, double var);
    snd_mid (*sum)(void *self, int n, const snd_mid *id, const double *coef, double c0);
    snd_mid (*mul)(void *self, snd_mid a, snd_mid b);
    snd_mid (*unary)(void *self, snd_gfn fn, snd_mid a);
    snd_mid (*layer_norm)(void *self, snd_mid x, double eps);
    snd_mid (*rms_norm)(void *self, snd_mid x, double eps);
    snd_mid (*batch_norm)(void *self, snd_mid x, double eps);
    snd_mid (*dot)(void *self, snd_mid a, snd_mid b);
    snd_mid (*rms)(void *self, snd_mid a);
    snd_mid (*stop)(void *self, snd_mid a);
    snd_mid (*alias)(void *self, snd_mid a);
    void (*boundary)(void *self);                             // a layer ends

    bool (*approx)(const void *self, snd_mid a);
    double (*mean)(void *self, snd_mid a);
    double (*log10_q)(void *self, snd_mid a);
    double (*log10_var)(void *self, snd_mid a);
    double (*log10_bvar)(void *self, snd_mid a);              // NAN: rounding has eaten it
    double (*cos)(void *self, snd_mid a, bool centred);
    double (*tokcos)(void *self, snd_mid a);                  // NAN: examples have no tokens
    double (*align)(void *self, snd_mid a, snd_mid b);
    double (*log10_ratio)(void *self, snd_mid a, snd_mid b);  // of |a| to |b|, row by row
    void (*backward)(void *self, snd_mid out);
    bool (*reached)(const void *self, snd_mid a);             // by the last gradient, known or not
    double (*log10_gq)(void *self, snd_mid a);                // NAN: not reached, or not known
    double (*log10_gtok)(void *self, snd_mid a);              // NAN: not reached, or no tokens

    // How far one network strays. spread and grad_spread (after backward) prepare the answers; false: not known.
    void (*spread)(void *self, const snd_mid *want, int n);
    void (*grad_spread)(void *self, snd_mid out, const snd_mid *want, int n);
    bool (*log_q_law)(void *self, snd_mid a, double rows, snd_log_law *law);
    bool (*mean_var)(void *self, snd_mid a, double rows, double *var);
    bool (*log_gq_law)(void *self, snd_mid a, double rows, snd_log_law *law);
} snd_algebra;

snd_algebra snd_algebra_moments(snd_moments *t);
snd_algebra snd_algebra_tokens(snd_tokens *t);

#endif
