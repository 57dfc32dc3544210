#!/usr/bin/env python3
"""What is told of xf_init.py's table in figures: its chosen columns, profiles over the layers, and exponents in the number of
layers and in the width; sonde's own draws first, the table's numbers in brackets.

usage: xf_figures.py path/to/sonde table.csv [--seeds 5] [--first 0] [--draws own|reference] [--cache FOLDER]
                     [--cached] [--only ...]"""
import argparse
import math
import statistics

import xf_init

FIRST, LAST = "first", "last"
COLUMNS = (("Var x_1", "stream_variance", FIRST), ("Var x_L", "stream_variance", LAST),
           ("dW2 last (1)", "gradnorm_w2_oneposition", LAST), ("dW2 first (1)", "gradnorm_w2_oneposition", FIRST),
           ("dW2 last", "gradnorm_w2_meanloss", LAST), ("dW2 first", "gradnorm_w2_meanloss", FIRST),
           ("dWq last", "gradnorm_q_meanloss", LAST), ("dWv first", "gradnorm_v_meanloss", FIRST),
           ("g x_0", "stream_grad_rms_sumloss", 0), ("g x_L", "stream_grad_rms_sumloss", LAST),
           ("cos first", "adjacent_cosine", FIRST), ("cos last", "adjacent_cosine", LAST), ("token cos x_L", "token_cosine", LAST))
DEEP = (1, 2, 4, 8, 16, 32, 64)
PROFILES = [((256, "xavier", "pre", 64), "stream_variance", (0, *DEEP[:-1], 48, 64)),
            ((256, "gpt2", "pre", 64), "stream_variance", (0, 1, 4, 8, 16, 32, 64)),
            ((256, "xavier", "pre", 64), "adjacent_cosine", DEEP)]
PROFILES += [((256, "xavier", v, 64), "token_cosine", DEEP) for v in ("pre", "post", "b2t", "deepnorm")]
PROFILES += [((256, "gpt2", v, 64), "token_cosine", DEEP) for v in ("pre", "post", "b2t", "deepnorm")]
PROFILES += [((256, "xavier", v, 16), "gradnorm_w2_meanloss", (1, 2, 4, 8, 12, 16)) for v in ("pre", "post", "b2t", "deepnorm")]
PROFILES += [((256, "xavier", v, 16), "gradnorm_q_meanloss", (1, 2, 4, 8, 12, 16)) for v in ("pre", "post")]
IN_LAYERS = [(256, "xavier", v) for v in ("pre", "rms", "parallel", "post", "b2t", "deepnorm")]
IN_LAYERS += [(256, "gpt2", "pre"), (512, "xavier", "pre"), (512, "xavier", "post")]
W2 = ("gradnorm_w2_oneposition", "gradnorm_w2_meanloss")


def layer_of(place, layers):
    return {FIRST: 1, LAST: layers}.get(place, place)


def exponent(points):
    """Slope of log y over log x by least squares"""
    x, y = ([math.log(p[i]) for p in points] for i in (0, 1))
    mx, my = statistics.fmean(x), statistics.fmean(y)
    return sum((a - mx) * (b - my) for a, b in zip(x, y)) / sum((a - mx) ** 2 for a in x)


class Figures:
    def __init__(self, a, table):
        self.theirs = {(model, r["quantity"], int(r["layer"])): (float(r["mean"]), float(r["sd"]))
                       for model, rows in table.items() for r in rows}
        self.models = list(table)
        self.got = xf_init.measure_all(a, a.draws, xf_init.seeds_of(a), self.models)

    def ours(self, model, quantity, layer):
        values = [seed.get((quantity, layer), math.nan) for seed in self.got[model]]
        spread = statistics.stdev(values) if len(values) > 1 and all(map(math.isfinite, values)) else math.nan
        return statistics.fmean(values), spread

    def cell(self, model, quantity, layer):
        if (model, quantity, layer) not in self.theirs:
            return "- (not finite)"
        (mean, sd), (want, _) = self.ours(model, quantity, layer), self.theirs[model, quantity, layer]
        return f"{mean:.3g}±{sd:.1g} ({want:.3g})" if sd > 1e-4 * abs(mean) else f"{mean:.3g} ({want:.3g})"

    def columns(self):
        print(f"| d | init | variant | L | {' | '.join(c[0] for c in COLUMNS)} |\n|{'---|' * (4 + len(COLUMNS))}")
        for model in self.models:
            cells = [self.cell(model, q, layer_of(place, model[3])) for _, q, place in COLUMNS]
            print(f"| {' | '.join(map(str, model))} | {' | '.join(cells)} |")

    def profiles(self):
        print("\n| model | quantity | after layer: sonde (table) |\n|---|---|---|")
        for model, quantity, layers in PROFILES:
            if model in self.got:
                cells = ", ".join(f"{l}: {self.ours(model, quantity, l)[0]:.3g} ({self.theirs[model, quantity, l][0]:.3g})"
                                  for l in layers)
                print(f"| {' '.join(map(str, model))} | {quantity} | {cells} |")

    def exponents(self, label, models, over, place):
        """over: the model's item (0 the width, 3 the layers) that the norm of dW2 is a power of"""
        cells = []
        for quantity in W2:
            at = [(m, quantity, layer_of(place, m[3])) for m in models]
            ours, theirs = (exponent([(key[0][over], of(key)) for key in at])
                            for of in (lambda key: self.ours(*key)[0], lambda key: self.theirs[key][0]))
            cells.append(f"{ours:+.2f} ({theirs:+.2f})")
        print(f"| {label} | {place} | {' | '.join(cells)} |")

    def all_exponents(self):
        print("\n| models | FFN | loss of one position | mean loss |\n|---|---|---|---|")
        for kind in IN_LAYERS:
            models = [m for m in self.models if m[:3] == kind]
            for place in (LAST, FIRST) if len(models) > 1 else ():
                self.exponents(f"{' '.join(map(str, kind))}, in L", models, 3, place)
        for variant in ("pre", "post"):
            models = [m for m in self.models if m[1:] == ("xavier", variant, 8)]
            if len(models) > 1:
                self.exponents(f"xavier {variant} 8, in d", models, 0, LAST)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    xf_init.add_arguments(p)
    a = p.parse_args()
    figures = Figures(a, xf_init.read_table(a))
    figures.columns()
    figures.profiles()
    figures.all_exponents()


if __name__ == "__main__":
    main()
