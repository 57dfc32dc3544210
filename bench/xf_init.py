#!/usr/bin/env python3
"""Transformers at their start against reference values: for every model of a table, `sonde measure` of each seed, and per
layer and quantity the difference of the means, |d| <= 4 sd sqrt(1/n_reference + 1/n).

The table is CSV with the columns d, init, variant, L, quantity, layer, mean, sd, seeds: a causal decoder of d/64 heads,
vocabulary 512, learned positions, no biases, batch 4 x 64 of uniform tokens, cross-entropy. Gradient norms are
Frobenius norms, of the mean loss or of the loss of one sequence's last token ("oneposition"). Stream gradients are RMS,
times B*T: of the mean loss at layer 0 (which makes it that of the summed loss), above of the last token's loss, to judge
by the numbers: their name in the table says the summed loss, whose gradient is 16 times smaller there.

usage: xf_init.py path/to/sonde table.csv [--seeds 5] [--only d,init,variant,L] [--list] [--share 0.99]"""
import argparse
import collections
import csv
import json
import math
import subprocess
import sys

B, T, V = 4, 64, 512
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


def measure(sonde, keys, seed, batch, more):
    command = [sonde, "measure", *keys, f"--seed={seed}", "--seeds=1", f"--batch={batch}", f"--tokens={T}", "--loss",
               "--bands=none", "--json", "--quiet", *more]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def number(entry, metric):
    log = entry.get("log10", {})
    if metric in log:
        if log[metric] is None:
            return 0.0
        return 10 ** log[metric] if log[metric] < 308 else math.inf
    return entry.get(metric, entry.get("metrics", {}).get(metric))


def quantities(record, layers, d, position):
    """-> {(quantity, layer): value} of one seed"""
    out = {}
    params = {p["name"]: p for p in record["params"]}
    kind = "oneposition" if position else "meanloss"
    for l in range(layers):
        for short, (name, wide) in MATRICES.items():
            rms = number(params[f"layers.{l}.{name}.weight"], "wgrms")
            out[f"gradnorm_{short}_{kind}", l + 1] = rms * d * math.sqrt(wide)
    values = {v["name"]: v for v in record["values"]}
    if position:  # RMS over a batch of B sequences of which one has a loss, times B*T
        for l in range(layers):
            out["stream_grad_rms_sumloss", l + 1] = number(values[f"layers.{l}.x"], "grms") * math.sqrt(1 / B) * B * T
        return out
    out["loss", 0] = number(values["loss"], "mean")
    for l in range(layers + 1):
        x = values[f"layers.{l - 1}.x" if l else "in.x"]
        for quantity, metric in (("stream_variance", "var"), ("stream_second_moment", "q"), ("token_cosine", "tokcos"),
                                 ("token_pearson", "tokpearson"), ("adjacent_cosine", "adjcos")):
            if number(x, metric) is not None:
                out[quantity, l] = number(x, metric)
        if l == 0:
            out["stream_grad_rms_sumloss", l] = number(x, "grms") * B * T
    return out


def means(sonde, model, seeds):
    d, init, variant, layers = model
    keys = keys_of(*model)
    all_seeds = collections.defaultdict(list)
    for seed in range(seeds):
        for position in (False, True):
            more = ["--last-token"] if position else []
            record = measure(sonde, keys, seed, 1 if position else B, more)
            for key, value in quantities(record, layers, d, position).items():
                all_seeds[key].append(value)
    return {key: sum(v) / len(v) for key, v in all_seeds.items()}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("sonde")
    p.add_argument("table")
    p.add_argument("--seeds", type=int, default=5)
    p.add_argument("--only")
    p.add_argument("--list", action="store_true", help="print every row outside")
    p.add_argument("--share", type=float, default=0.99, help="of the finite rows that have to agree")
    a = p.parse_args()
    table = collections.defaultdict(list)
    with open(a.table, newline="") as f:
        for r in csv.DictReader(f):
            table[int(r["d"]), r["init"], r["variant"], int(r["L"])].append(r)
    total = outside = 0
    for model, rows in table.items():
        if a.only and not ",".join(map(str, model)).startswith(a.only):
            continue
        got = means(a.sonde, model, a.seeds)
        n = bad = 0
        where = collections.Counter()
        for r in rows:
            want, sd = float(r["mean"]), float(r["sd"])
            if not (math.isfinite(want) and math.isfinite(sd)):
                continue
            n += 1
            value = got.get((r["quantity"], int(r["layer"])), math.nan)
            # the table's numbers are rounded, and where a number is fixed by a norm its spread is rounding alone
            allowed = 4 * sd * math.sqrt(1 / int(r["seeds"]) + 1 / a.seeds) + 1e-5 * abs(want)
            if abs(value - want) <= allowed:
                continue
            bad += 1
            where[r["quantity"]] += 1
            if a.list:
                print(f"    {r['quantity']} {r['layer']}: {value:.5g}, reference {want:.5g} sd {sd:.3g}")
        total += n
        outside += bad
        print(f"{','.join(map(str, model)):24} {n:5} rows, {bad:3} outside", dict(where) if bad else "", flush=True)
    share = 1 - outside / total if total else 0
    print(f"{total - outside} of {total} rows agree ({100 * share:.2f} %) with {a.seeds} seeds")
    return 0 if share >= a.share else 1


if __name__ == "__main__":
    sys.exit(main())
