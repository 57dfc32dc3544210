// What the files of formula/ share among themselves.
#ifndef SND_FORMULA_INNER_H
#define SND_FORMULA_INNER_H

#include "formula/formula.h"

bool snd_expr_calls(const snd_expr *x, const char *fn);
/// a op b for constants; comparisons give 1 or 0. Sets *ok = false for an operator that constants lack.
double snd_const_binary(char op, double a, double b);
/// A pure function of constants (elementwise functions, floor, min, max); false when the name is none.
bool snd_const_call(const char *name, const double *args, int n, double *out);

#endif
