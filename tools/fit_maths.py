#!/usr/bin/env python3
"""Writes src/kernels/polynomials.h: Chebyshev interpolants of the pieces that kernels/maths.inc is made of.

Needs mpmath. Each line of the output says which function, on which interval, with which error before rounding.
    python3 tools/fit_maths.py > src/kernels/polynomials.h
"""
from mpmath import mp, mpf, mpmathify, matrix, lu_solve, cos, pi, exp, expm1, erfc, erf, log, sqrt, tanh, atanh

mp.dps = 60


def fit(f, a, b, n):
    """Monomial coefficients of the polynomial of degree n through f at the Chebyshev nodes of [a, b]."""
    xs = [(a + b) / 2 + (b - a) / 2 * cos((2 * k + 1) * pi / (2 * (n + 1))) for k in range(n + 1)]
    c = [f(x) for x in xs]
    for j in range(1, n + 1):
        for i in range(n, j - 1, -1):
            c[i] = (c[i] - c[i - 1]) / (xs[i] - xs[i - j])
    p = [c[n]]
    for i in range(n - 1, -1, -1):
        q = [mpf(0)] * (len(p) + 1)
        for k, v in enumerate(p):
            q[k + 1] += v
            q[k] -= v * xs[i]
        q[0] += c[i]
        p = q
    return p


def value(p, x):
    s = mpf(0)
    for v in reversed(p):
        s = s * x + v
    return s


def error(f, p, a, b, steps=300):
    return max(abs(value(p, x) / f(x) - 1) for x in (a + (b - a) * (mpf(i) + mpf("0.5")) / steps for i in range(steps)))


def fit_ratio(f, xs, m, n):
    """Coefficients of p (degree m) and q (degree n, leading 1) with p/q = f at the m + n + 1 places xs."""
    a, b = matrix(m + n + 1, m + n + 1), matrix(m + n + 1, 1)
    for i, x in enumerate(xs):
        v = f(x)
        for k in range(m + 1):
            a[i, k] = x**k / v
        for k in range(n):
            a[i, m + 1 + k] = -(x**k)
        b[i] = x**n
    s = list(lu_solve(a, b))
    return s[:m + 1], s[m + 1:] + [mpf(1)]


def emit(name, ctype, what, f, a, b, n):
    p = fit(f, a, b, n)
    digits, suffix = (9, "f") if ctype == "float" else (17, "")
    tag = "f32" if ctype == "float" else "f64"
    print(f"// {what} on [{mp.nstr(a, 5)}, {mp.nstr(b, 5)}], degree {n}, relative error {mp.nstr(error(f, p, a, b), 2)}")
    print(f"static inline {ctype} snd_p_{name}_{tag}({ctype} x) {{")
    text = [mp.nstr(v, digits, min_fixed=0, max_fixed=0) + suffix for v in p]
    print(f"    {ctype} p = {text[-1]};")
    for v in reversed(text[:-1]):
        print(f"    p = p * x + {v};")
    print("    return p;\n}\n")


def emit_pairs(name, ctype, what, p):
    """A polynomial of x by powers of xx = x x: the two halves of a pair do not wait for each other, and round less often."""
    digits, suffix = (9, "f") if ctype == "float" else (17, "")
    tag = "f32" if ctype == "float" else "f64"
    text = [mp.nstr(v, digits, min_fixed=0, max_fixed=0) + suffix for v in p]
    term = lambda k: f"{text[k]} * x" if p[k] != 1 else "x"
    print(f"// {what}, degree {len(p) - 1}; xx = x x")
    print(f"static inline {ctype} snd_p_{name}_{tag}({ctype} x, {ctype} xx) {{")
    odd = len(p) % 2
    print(f"    {ctype} p = {text[-1]};" if odd else f"    {ctype} p = {term(len(p) - 1)} + {text[-2]};")
    for k in range(len(p) - (3 if odd else 4), -1, -2):
        print(f"    p = p * xx + ({term(k + 1)} + {text[k]});")
    print("    return p;\n}\n")


def emit_tail(ctype, c, top, m):
    """e^(a^2/2) erfc(a/sqrt 2)/2 as a ratio; places are those of Chebyshev in (a-c)/(a+c)."""
    q = lambda a: exp(a * a / 2) * erfc(a / sqrt(mpf(2))) / 2
    h, n = (top - c) / (top + c), 2 * m + 2
    us = [(h - 1) / 2 + (h + 1) / 2 * cos((2 * k + 1) * pi / (2 * n)) for k in range(n)]
    num, den = fit_ratio(q, [c * (1 + u) / (1 - u) for u in us], m, m + 1)
    worst = max(abs(value(num, x) / value(den, x) / q(x) - 1) for x in (top * mpf(i) / 600 for i in range(601)))
    what = f"e^(x^2/2) erfc(x/sqrt 2)/2 on [0.0, {mp.nstr(top, 5)}] is a ratio, relative error {mp.nstr(worst, 2)}"
    emit_pairs("tail_over", ctype, f"{what}: -2^-64 times what is divided", [-v / mpf(2)**64 for v in num])
    emit_pairs("tail_under", ctype, "what it is divided by", den)


def with_limit(f, at_zero):
    return lambda x: f(x) if abs(x) > mpf(10) ** -25 else mpmathify(at_zero)


LN2_2 = log(2) / 2 * mpf("1.001")
exp_rest = with_limit(lambda r: (exp(r) - 1 - r) / r**2, 0.5)
exp_half = with_limit(lambda y: expm1(-y / 2) / y, -0.5)
exp_minus = with_limit(lambda v: expm1(-v) / v, -1)
log_rest = with_limit(lambda z: (atanh(sqrt(z)) / sqrt(z) - 1) / z, mpf(1) / 3)
tanh_rest = with_limit(lambda z: (tanh(sqrt(z)) / sqrt(z) - 1) / z, -mpf(1) / 3)
erf_part = with_limit(lambda z: erf(sqrt(z)) / sqrt(z), 2 / sqrt(pi))


print("""// Polynomial pieces of the elementary functions, written by tools/fit_maths.py: do not edit.
#ifndef SND_KERNELS_POLYNOMIALS_H
#define SND_KERNELS_POLYNOMIALS_H
""")
for ctype, degrees in (("float", (4, 2, 4, 4, 5, 5)), ("double", (9, 6, 10, 10, 11, 10))):
    wide = ctype == "double"
    emit("exp", ctype, "(e^x - 1 - x)/x^2", exp_rest, -LN2_2, LN2_2, degrees[0])
    emit("exp_half", ctype, "(e^(-x/2) - 1)/x", exp_half, -2 * LN2_2, 2 * LN2_2, degrees[5])
    emit("exp_minus", ctype, "(e^-x - 1)/x", exp_minus, -LN2_2, LN2_2, degrees[5])
    emit("log", ctype, "(atanh(s)/s - 1)/s^2, x = s^2", log_rest, mpf(0), mpf("0.0296"), degrees[1])
    emit("log1p", ctype, "(atanh(s)/s - 1)/s^2, x = s^2", log_rest, mpf(0), mpf(1) / 9, degrees[2])
    emit("tanh", ctype, "(tanh(s)/s - 1)/s^2, x = s^2", tanh_rest, mpf(0), mpf("0.36"), degrees[3])
    emit("erf", ctype, "erf(s)/s, x = s^2", erf_part, mpf(0), mpf("0.81"), degrees[4])
    emit_tail(ctype, *((mpf(5), mpf(39), 10) if wide else (mpf(3), mpf("14.5"), 4)))
print("#endif")
