#!/usr/bin/env python3
"""Speed of whole models: GPT-2 124M, 4 x 64 tokens, forward and backward, against PyTorch (when python3-torch is there);
with --large an 8B model at init against its matrix products alone (two minutes and 1 GiB).

Drawing is excluded on both sides: PyTorch's passes are timed one by one inside its process, sonde's by `--timings`, which
tells the draws apart (weights are drawn when they are used). The first pass of a process, which touches its memory for the
first time, is shown apart as well. sonde's passes include all statistics that measure shows; PyTorch's include none.
Rounds are interleaved; a figure is the median of the rounds with its range, a ratio the median of the rounds' ratios.

usage: models.py path/to/sonde [--rounds 5] [--only plain|loss] [--tuned] [--large] [--json FILE]
--tuned: PyTorch in the most tuned of its settings, without trying which one is the fastest"""
import argparse
import json
import os

from common import HERE, fastest_setting, median, show_setting, spread, timed, torch_python

BATCH, TOKENS, PASSES, THREADS = 4, 64, 4, 2


def torch_passes(python, loss, setting, passes=PASSES):
    command = [python, os.path.join(HERE, "torch_gpt2.py"), "loss" if loss else "plain", str(BATCH), str(TOKENS), str(THREADS)]
    lines = [json.loads(line) for line in timed(command, setting, b"\n" * passes)[2].splitlines()]
    return [p["seconds"] for p in lines], lines[-1]["mib"], lines[-1]["blas"]


def sonde_passes(sonde, loss):
    command = [sonde, "measure", "gpt2", "--batch", str(BATCH), "--tokens", str(TOKENS), "--seeds", str(PASSES), "--bands", "none",
               "--timings", "--json", "--quiet", "--threads", str(THREADS), *(["--loss"] if loss else [])]
    _, mib, out = timed(command)
    seconds = json.loads(out)["seconds"]
    return seconds["run"], seconds["draw"], mib


def gpt2(a, loss, python, rows):
    name = "of the language model's loss" if loss else "N(0, 1) on the last norm's output"
    names = ["sonde s", "sonde first", "sonde draw", "sonde MiB", "torch s", "torch first", "torch MiB", "speed", "speed first"]
    r = {k: [] for k in names}
    setting = fastest_setting(lambda s: min(torch_passes(python, loss, s)[0]), a.tuned) if python else {}
    blas = ""
    for _ in range(a.rounds):
        run, draw, mib = sonde_passes(a.sonde, loss)
        r["sonde s"].append(median(run[1:]))
        r["sonde first"].append(run[0])
        r["sonde draw"].append(median(draw))
        r["sonde MiB"].append(mib)
        if python:
            passes, mib, blas = torch_passes(python, loss, setting)
            r["torch s"].append(median(passes[1:]))
            r["torch first"].append(passes[0])
            r["torch MiB"].append(mib)
            r["speed"].append(median(passes[1:]) / median(run[1:]))
            r["speed first"].append(passes[0] / run[0])
    print(f"gpt2, {BATCH} x {TOKENS} tokens, forward and backward, upstream gradient {name}, {THREADS} threads, drawing excluded")
    print(f"  sonde  {median(r['sonde s']):8.3f} s  ({spread(r['sonde s'])})  {median(r['sonde MiB']):6.0f} MiB   with all statistics; "
          f"first pass {median(r['sonde first']):.3f}, drawing {median(r['sonde draw']):.3f}")
    if python:
        print(f"  torch  {median(r['torch s']):8.3f} s  ({spread(r['torch s'])})  {median(r['torch MiB']):6.0f} MiB   "
              f"first pass {median(r['torch first']):.3f}")
        print(f"         on {blas} {show_setting(setting)}".rstrip())
        if "openblas" not in blas:
            print("         that is no fast BLAS: the ratio says little (apt-get install libopenblas0-openmp)")
        print(f"  torch / sonde {median(r['speed']):.3f} ({spread(r['speed'])}), first passes {median(r['speed first']):.3f}; wanted at least 1.25")
    else:
        print("  torch  not installed (apt-get install python3-torch): no comparison")
    rows["gpt2 loss" if loss else "gpt2"] = {"setting": setting, "blas": blas, **r}


PIECE = 1 << 20  # elements of what is made of a weight's gradient, and of a huge matrix, at a time


def products(spec, rows):
    """{"MxNxK and layout": how often} of one forward and backward pass of a decoder with gated feed-forward layers: for every
    map x W', dy W and dy' x, the last one and the head in the pieces in which measure makes them. What memory makes measure
    compute twice is counted once."""
    d, h, kv, layers = spec["width"], spec["hidden"], spec["kv_heads"] * spec["head_dim"], spec["layers"]
    dq, count = spec["heads"] * spec["head_dim"], {}

    def add(m, n, k, how, times):
        name = f"{m}x{n}x{k}{how}"
        count[name] = count.get(name, 0) + times

    for out, into, times in ((dq, d, 1), (kv, d, 2), (d, dq, 1), (h, d, 2), (d, h, 1)):
        piece = min(PIECE // into, out)
        add(rows, out, into, "NT", times * layers)
        add(rows, into, out, "NN", times * layers)
        add(piece, into, rows, "TN", times * layers * out / piece)
    add(rows, PIECE // d, d, "NT", spec["vocab"] / (PIECE // d))
    return count


def large(a, rows):
    tokens, sonde = 64, a.sonde
    common = ["--json", "--quiet", "--threads", str(THREADS)]
    wall, mib, out = timed([sonde, "measure", "llama3-8b", "--batch", "1", "--tokens", str(tokens), "--seeds", "1", "--timings", *common])
    result = json.loads(out)
    count = products(result["spec"], tokens)
    bench = json.loads(timed([sonde, "bench", "--quick", "--products", ",".join(count), *common])[2])["rows"]
    flop, alone, weights = 0, 0, 0
    for (name, times), row in zip(count.items(), bench):
        m, n, k = map(int, name[:-2].split("x"))
        flop += 2e-9 * m * n * k * times
        alone += 2e-9 * m * n * k * times / row["rate"]
        weights += 2e-9 * m * n * k * times / row["rate"] if name.endswith("TN") else 0
    draw, run = result["seconds"]["draw"][0], result["seconds"]["run"][0]
    print(f"llama3-8b, 1 x {tokens} tokens, forward and backward with all statistics, {THREADS} threads, whole process")
    print(f"  sonde    {wall:7.1f} s  (drawing {draw:.1f}, the rest of the pass {run:.1f})  wanted at most 300")
    print(f"  memory   {mib:7.0f} MiB  wanted at most 3072")
    print(f"  products {alone:7.1f} s  alone ({flop:.0f} GFLOP at {flop / alone:.0f} GFLOP/s), {weights:.1f} of them dy' x,"
          " of which measure takes the mean square without making it")
    print(f"  ratio    {wall / alone:7.2f}  wanted at most 4")
    rows["llama3-8b"] = {"s": wall, "draw": draw, "run": run, "MiB": mib, "products s": alone, "dW s": weights, "GFLOP": flop, "ratio": wall / alone}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("sonde")
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--only", choices=("plain", "loss"))
    ap.add_argument("--tuned", action="store_true")
    ap.add_argument("--large", action="store_true")
    ap.add_argument("--json")
    a = ap.parse_args()
    rows, python = {}, torch_python()
    for name in ("plain", "loss"):
        if a.only in (None, name):
            gpt2(a, name == "loss", python, rows)
    if a.large:
        large(a, rows)
    if a.json:
        with open(a.json, "w", encoding="utf-8") as f:
            json.dump({"schema": "sonde.bench-models/1", "rows": rows}, f, indent=1)


main()
