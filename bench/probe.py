#!/usr/bin/env python3
"""Speed of the whole tool: the signal probe against PyTorch (when python3-torch is there), start-up, describe, predict.
Rounds are interleaved; every figure is a median over the rounds with its spread; ratios are medians of per-round ratios.

usage: probe.py path/to/sonde [--rounds 5] [--json FILE]"""
import argparse
import json
import os

from common import HERE, PLAIN_SETTINGS, median, show_setting, spread, timed, torch_python

FIXED = [1, 2, 3, 4, 5, 7, 9, 12, 16, 21, 28, 32, 37, 48, 64, 84, 97, 128, 147, 194, 256]


# Whichever of PyTorch's settings is faster here takes part.
def best_setting(torch):
    few = "1,4,16,48,64"
    return min(PLAIN_SETTINGS, key=lambda env: json.loads(timed([*torch, few, "2"], env)[2])["seconds"])


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("sonde")
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--json")
    a = ap.parse_args()
    depths = ",".join(map(str, FIXED))
    probe = [a.sonde, "measure", "residual", "--wirings", "plain,residual,pre,post", "block=one-matrix", "width=256", "hidden=256",
             "--batch", "256", "--depths", depths, "--seeds", "1", "--bands", "none", "--no-params", "--json", "--quiet", "--threads", "2"]
    python = torch_python()
    small = {"start-up (sonde version)": [a.sonde, "version"], "describe, 12 layers": [a.sonde, "describe", "pre", "layers=12"],
             "predict, 256 layers": [a.sonde, "predict", "residual", "layers=256"]}
    torch = [python, os.path.join(HERE, "torch_probe.py")] if python else None
    setting = best_setting(torch) if torch else {}
    blas = ""
    rows = {k: [] for k in ["sonde s", "sonde MiB", "torch s", "torch MiB", "time ratio", "memory ratio", *small]}
    for _ in range(a.rounds):
        s, m, _out = timed(probe)
        rows["sonde s"].append(s)
        rows["sonde MiB"].append(m)
        if torch:
            t = json.loads(timed([*torch, depths, "2"], setting)[2])
            blas = t["blas"]
            rows["torch s"].append(t["seconds"])
            rows["torch MiB"].append(t["mib"])
            rows["time ratio"].append(s / t["seconds"])
            rows["memory ratio"].append(m / t["mib"])
        for name, command in small.items():
            rows[name] += [timed(command)[0] * 1e3 for _ in range(5)]
    print(f"signal probe: width 256, batch 256, {len(FIXED)} depths 1..256, plain, residual, pre, post, forward and backward, 2 threads")
    print(f"  sonde  {median(rows['sonde s']):8.2f} s  ({spread(rows['sonde s'])})  {median(rows['sonde MiB']):6.0f} MiB   whole process")
    if python:
        print(f"  torch  {median(rows['torch s']):8.2f} s  ({spread(rows['torch s'])})  {median(rows['torch MiB']):6.0f} MiB   import excluded")
        print(f"         on {blas} {show_setting(setting)}".rstrip())
        if "openblas" not in blas:
            print("         that is no fast BLAS: the ratio says little (apt-get install libopenblas0-openmp)")
        print(f"  ratio  {median(rows['time ratio']):8.3f}    ({spread(rows['time ratio'])})  wanted at most 0.200")
        print(f"  memory {median(rows['memory ratio']):8.3f}    ({spread(rows['memory ratio'])})  wanted at most 0.300")
    else:
        print("  torch  not installed (apt-get install python3-torch): no comparison")
    for name, limit in zip(small, (10, 15, 20)):
        print(f"  {name:26s} {median(rows[name]):7.1f} ms ({spread(rows[name])})  wanted under {limit}")
    if a.json:
        with open(a.json, "w", encoding="utf-8") as f:
            json.dump({"schema": "sonde.bench-probe/1", "depths": FIXED, "blas": blas, "rows": rows}, f, indent=1)


main()
