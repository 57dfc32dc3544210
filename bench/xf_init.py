#!/usr/bin/env python3
"""Transformers at their start against reference values: for every model of a table and per layer and quantity the difference
of the means over seeds, |d| <= 4 sd sqrt(1/n_reference + 1/n).

The table is CSV with the columns d, init, variant, L, quantity, layer, mean, sd, seeds: a causal decoder of d/64 heads,
vocabulary 512, learned positions, no biases, batch 4 x 64 of uniform tokens, cross-entropy. Gradient norms are
Frobenius norms, of the mean loss or of the loss of one sequence's last token ("oneposition"). Stream gradients are RMS,
times B*T: of the mean loss at layer 0 (which makes it that of the summed loss), above of mean loss plus last token's loss,
which is what their makers' two backward passes left in one buffer: their name in the table says the summed loss, whose
gradient is 16 times smaller there.

Seeds are sonde's own, by `sonde measure`, or with --draws reference the very weights and tokens of the table's makers, by
`sonde run` (numpy needed): then every row has to come out, to 1e-4 of the mean or 0.02 sd. --control does both and says
what the criterion leaves outside by chance: all ten or more values of a row are one population under the hypothesis that
the programs agree, so any five of them might have been the reference. Nets share matrices across models (a seed draws the
same numbers), in the table and here, so rows are far from independent; the same five are therefore chosen for all rows.

usage: xf_init.py path/to/sonde table.csv [--seeds 5] [--first 0] [--draws own|reference] [--control] [--cache FOLDER]
                  [--cached] [--only d,init,variant,L]... [--list] [--share 0.99]"""
import argparse
import collections
import csv
import itertools
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile

B, T, V = 4, 64, 512
REFERENCE_SEEDS = 5
MATRICES = {"q": ("A.q", 1), "v": ("A.v", 1), "o": ("A.o", 1), "w1": ("M.up", 4), "w2": ("M.down", 4)}
WIRING = {"rms": ("pre", ["norm=rms"]), "nonorm": ("residual", []), "b2t_r": ("b2t", []), "post_r": ("post", [])}


def keys_of(d, init, variant, layers):
    wiring, more = WIRING.get(variant, (variant, []))
    rule = "gpt2; pos = normal(0.02)" if init == "gpt2" else init
    if variant.endswith("_r"):
        rule += "; q,k,v,o,up,down *= L^(-1/2)"
    act = "gelu" if init == "gpt2" else "relu"
    return [wiring, f"width={d}", f"layers={layers}", f"heads={d // 64}", f"vocab={V}", f"context={T}", "position=learned",
            "tie=false", "bias=false", f"act={act}", f"init={rule}", *more]


def measure(sonde, keys, seed, position):
    """position: the loss of one sequence's last token instead of the mean loss of a batch"""
    more = ["--batch=1", "--last-token"] if position else [f"--batch={B}"]
    command = [sonde, "measure", *keys, f"--seed={seed}", "--seeds=1", f"--tokens={T}", "--loss", "--bands=none", "--json",
               "--quiet", "--threads=1", *more]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def number(entry, metric):
    log = entry.get("log10", {})
    if metric in log:
        if log[metric] is None:
            return 0.0
        return 10 ** log[metric] if log[metric] < 308 else math.inf
    return entry.get(metric, entry.get("metrics", {}).get(metric))


def own_draws(sonde, model, seed):
    """-> {(quantity, layer): value} of one of sonde's own seeds"""
    d, _, _, layers = model
    out, grads = {}, {}
    names = ["in.x"] + [f"layers.{l}.x" for l in range(layers)]
    for kind, rows in (("meanloss", B * T), ("oneposition", T)):
        record = measure(sonde, keys_of(*model), seed, kind == "oneposition")
        params = {p["name"]: p for p in record["params"]}
        values = {v["name"]: v for v in record["values"]}
        for l, (short, (name, wide)) in itertools.product(range(layers), MATRICES.items()):
            out[f"gradnorm_{short}_{kind}", l + 1] = number(params[f"layers.{l}.{name}.weight"], "wgrms") * d * math.sqrt(wide)
        # RMS over B*T rows, of which the other sequences' are 0 when one has a loss
        grads[kind] = [number(values[x], "grms") * math.sqrt(rows / (B * T)) * B * T for x in names]
        if kind == "oneposition":
            break
        out["loss", 0] = number(values["loss"], "mean")
        for l, x in enumerate(names):
            for quantity, metric in (("stream_variance", "var"), ("stream_second_moment", "q"), ("token_cosine", "tokcos"),
                                     ("token_pearson", "tokpearson"), ("adjacent_cosine", "adjcos")):
                if number(values[x], metric) is not None:
                    out[quantity, l] = number(values[x], metric)
    for l, (mean, last) in enumerate(zip(grads["meanloss"], grads["oneposition"])):
        # of the sum; the last token's loss is one of the B*T of the mean, the others' gradients are orthogonal on average
        out["stream_grad_rms_sumloss", l] = math.sqrt(last ** 2 * (1 + 2 / (B * T)) + mean ** 2) if l else mean
    return out


def reference_draws(sonde, model, seed):
    import xf_draws
    with tempfile.TemporaryDirectory() as folder:
        return xf_draws.quantities(sonde, keys_of(*model), seed, model[3], (B, T), V, folder)


DRAWS = {"own": own_draws, "reference": reference_draws}


def cache_path(a, draws, model, seed):
    return os.path.join(a.cache, draws, "-".join(map(str, model)), f"{seed}.json") if a.cache else ""


def seed_values(a, draws, model, seed):
    """One seed's quantities; from --cache if they are there"""
    path = cache_path(a, draws, model, seed)
    if path and os.path.exists(path):
        with open(path) as f:
            return {(q, l): v for q, l, v in json.load(f)}
    values = DRAWS[draws](a.sonde, model, seed)
    if path:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(f"{path}.{os.getpid()}", "w") as f:
            json.dump([(q, l, v) for (q, l), v in values.items()], f)
        os.rename(f.name, path)
    return values


def allowed(sd, n_reference, n, mean):
    # the table's numbers are rounded, and where a number is fixed by a norm its spread is rounding alone
    return 4 * sd * math.sqrt(1 / n_reference + 1 / n) + 1e-5 * abs(mean)


def agrees(row, values):
    """The criterion, on one row of the table"""
    want = float(row["mean"])
    return abs(statistics.fmean(values) - want) <= allowed(float(row["sd"]), int(row["seeds"]), len(values), want)


def equals(row, values):
    """The same numbers through another program: all but rounding"""
    want, sd = float(row["mean"]), float(row["sd"])
    return abs(statistics.fmean(values) - want) <= max(1e-4 * abs(want), 0.02 * sd)


def splits_of(n):
    """Ways to choose the reference's five among n seeds, its own first; 2000 at most"""
    splits = list(itertools.combinations(range(n), REFERENCE_SEEDS))
    return splits if len(splits) <= 2000 else splits[:1] + random.Random(0).sample(splits[1:], 1999)


def outside_by_chance(populations):
    """populations: per row the values of all seeds. -> per split, how many rows the criterion leaves outside"""
    import numpy as np
    x = np.array(populations)
    counts = []
    for chosen in splits_of(x.shape[1]):
        five, others = x[:, chosen], np.delete(x, chosen, 1)
        with np.errstate(invalid="ignore", over="ignore"):
            bound = allowed(five.std(1, ddof=1), REFERENCE_SEEDS, others.shape[1], five.mean(1))
            counts.append(int((~(abs(others.mean(1) - five.mean(1)) <= bound)).sum()))
    return counts


def read_table(a, both_draws=False):
    """-> {model: its rows with finite numbers} for the models asked for"""
    table = collections.defaultdict(list)
    with open(a.table, newline="") as f:
        for r in csv.DictReader(f):
            model = int(r["d"]), r["init"], r["variant"], int(r["L"])
            wanted = ",".join(map(str, model)).startswith(tuple(a.only or [""]))
            if wanted and math.isfinite(float(r["mean"])) and math.isfinite(float(r["sd"])):
                table[model].append(r)
    needed = [(a.draws, s) for s in seeds_of(a)] + [("reference", s) for s in range(REFERENCE_SEEDS) if both_draws]
    if a.cached:
        table = {m: rows for m, rows in table.items() if all(os.path.exists(cache_path(a, d, m, s)) for d, s in needed)}
    if not table:
        sys.exit(f"xf_init.py: {a.table}: no model begins with {' or '.join(a.only or ['anything'])}, or none is in the cache")
    return table


def measure_all(a, draws, seeds, models):
    """-> {model: per seed {(quantity, layer): value}}; seed after seed, so that an interrupted --cache is even"""
    got = collections.defaultdict(list)
    for seed, model in itertools.product(seeds, models):
        got[model].append(seed_values(a, draws, model, seed))
    return got


def row_values(row, seeds):
    return [values.get((row["quantity"], int(row["layer"])), math.nan) for values in seeds]


class Result:
    """Of some models: rows, those outside, and with --control those outside by chance per split"""

    def __init__(self):
        self.rows, self.outside, self.unequal, self.chance = 0, 0, 0, None

    def add(self, rows, outside, unequal, chance):
        self.rows += rows
        self.outside += outside
        self.unequal += unequal
        self.chance = [x + y for x, y in zip(self.chance or [0] * len(chance), chance)]

    def columns(self, exact):
        def share(n):
            return f"{n} | {100 * n / self.rows:.2f} %"

        text = f"{self.rows} | {share(self.outside)}" + (f" | {share(self.unequal)}" if exact else "")
        if not self.chance:
            return text
        ordered = sorted(self.chance)
        mean, median, most = (100 * n / self.rows for n in (statistics.fmean(ordered), statistics.median(ordered),
                                                            ordered[math.ceil(0.95 * len(ordered)) - 1]))
        p = sum(c >= self.outside for c in ordered) / len(ordered)
        return f"{text} | {mean:.2f} % | {median:.2f}, {most:.2f} % | {p:.2f}"


def add_arguments(p):
    """Which nets, and whose draws"""
    p.add_argument("sonde")
    p.add_argument("table")
    p.add_argument("--seeds", type=int, default=5)
    p.add_argument("--first", type=int, default=0, help="of sonde's own seeds")
    p.add_argument("--draws", choices=DRAWS, default="own")
    p.add_argument("--cache", help="folder that keeps every seed's values; to be emptied when sonde changed")
    p.add_argument("--cached", action="store_true", help="only models whose seeds are all in the cache")
    p.add_argument("--only", action="append", help="models that begin so: d,init,variant,L; may be repeated")


def seeds_of(a):
    return range(REFERENCE_SEEDS) if a.draws == "reference" else range(a.first, a.first + a.seeds)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(p)
    p.add_argument("--control", action="store_true", help="beside own draws: rows unequal with the reference's, and the share "
                   "outside by chance")
    p.add_argument("--list", action="store_true", help="print every row outside (--draws reference: unequal)")
    p.add_argument("--share", type=float, default=0.99, help="of the finite rows that have to agree (--draws reference: be equal)")
    a = p.parse_args()
    table = read_table(a, a.control)
    got = measure_all(a, a.draws, seeds_of(a), table)
    same = a.draws == "reference"
    exact = got if same else measure_all(a, "reference", range(REFERENCE_SEEDS), table) if a.control else {}
    results, total = collections.defaultdict(Result), Result()
    for model, rows in table.items():
        outside = [r for r in rows if not agrees(r, row_values(r, got[model]))]
        unequal = [r for r in rows if exact and not equals(r, row_values(r, exact[model]))]
        chance = outside_by_chance([row_values(r, exact[model] + got[model]) for r in rows]) if a.control else []
        for result in (results[model[:3]], total):
            result.add(len(rows), len(outside), len(unequal), chance)
        for r in (unequal if same else outside) if a.list else []:
            value = statistics.fmean(row_values(r, got[model]))
            print(f"{','.join(map(str, model))} {r['quantity']} {r['layer']}: {value:.5g}, reference {r['mean']} sd {r['sd']}")
    header = "| d | init | variant | rows | outside | share |" + (" unequal | share |" if exact else "")
    header += " outside by chance: mean | median, 95 % | splits with as many |" if a.control else ""
    print(f"{header}\n|{'---|' * (header.count('|') - 1)}")
    for model, result in results.items():
        print(f"| {' | '.join(map(str, model))} | {result.columns(exact)} |")
    print(f"| | | all | {total.columns(exact)} |")
    return 0 if (total.unequal if same else total.outside) <= (1 - a.share) * total.rows else 1


if __name__ == "__main__":
    sys.exit(main())
