#!/usr/bin/env python3
"""Writes src/kernels/polynomials.h: Chebyshev interpolants of the pieces that kernels/maths.inc is made of.

Needs mpmath. Each line of the output says which function, on which interval, with which error before rounding.
    python3 tools/fit_maths.py > src/kernels/polynomials.h
"""
from mpmath import mp, mpf, mpmathify, cos, pi, exp, erfc, erf, log, sqrt, tanh, atanh

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


def with_limit(f, at_zero):
    return lambda x: f(x) if abs(x) > mpf(10) ** -25 else mpmathify(at_zero)


LN2_2 = log(2) / 2 * mpf("1.001")
exp_rest = with_limit(lambda r: (exp(r) - 1 - r) / r**2, 0.5)
log_rest = with_limit(lambda z: (atanh(sqrt(z)) / sqrt(z) - 1) / z, mpf(1) / 3)
tanh_rest = with_limit(lambda z: (tanh(sqrt(z)) / sqrt(z) - 1) / z, -mpf(1) / 3)
erf_part = with_limit(lambda z: erf(sqrt(z)) / sqrt(z), 2 / sqrt(pi))


def tail(c):
    """u = (a-c)/(a+c) -> (a+c) exp(a^2/2) erfc(a/sqrt 2)/2."""
    return lambda u: (lambda a: (a + c) * exp(a * a / 2) * erfc(a / sqrt(2)) / 2)(c * (1 + u) / (1 - u))


print("""// Polynomial pieces of the elementary functions, written by tools/fit_maths.py: do not edit.
#ifndef SND_KERNELS_POLYNOMIALS_H
#define SND_KERNELS_POLYNOMIALS_H
""")
for ctype, degrees in (("float", (4, 2, 4, 4, 5, 10)), ("double", (9, 6, 10, 10, 11, 23))):
    wide = ctype == "double"
    emit("exp", ctype, "(e^x - 1 - x)/x^2", exp_rest, -LN2_2, LN2_2, degrees[0])
    emit("log", ctype, "(atanh(s)/s - 1)/s^2, x = s^2", log_rest, mpf(0), mpf("0.0296"), degrees[1])
    emit("log1p", ctype, "(atanh(s)/s - 1)/s^2, x = s^2", log_rest, mpf(0), mpf(1) / 9, degrees[2])
    emit("tanh", ctype, "(tanh(s)/s - 1)/s^2, x = s^2", tanh_rest, mpf(0), mpf("0.36"), degrees[3])
    emit("erf", ctype, "erf(s)/s, x = s^2", erf_part, mpf(0), mpf("0.81"), degrees[4])
    c, top = (5, 39) if wide else (4, mpf("14.5"))
    emit("erfc", ctype, f"(a+{c}) e^(a^2/2) erfc(a/sqrt 2)/2, x = (a-{c})/(a+{c})", tail(mpf(c)), mpf(-1),
         mpf(top - c) / (top + c), degrees[5])
print("#endif")
