#!/usr/bin/env python3
"""Speed of the whole tool: the signal probe against PyTorch (when python3-torch is there), start-up, describe, predict.
Rounds are interleaved; every figure is a median over the rounds with its spread; ratios are medians of per-round ratios.

usage: probe.py path/to/sonde [--rounds 5] [--json FILE]"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
FIXED = [1, 2, 3, 4, 5, 7, 9, 12, 16, 21, 28, 32, 37, 48, 64, 84, 97, 128, 147, 194, 256]


def timed(command, env=None):
    """-> (seconds, peak MiB, stdout)"""
    before = time.perf_counter()
    p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**os.environ, **(env or {})})
    out = p.stdout.read()
    _, status, usage = os.wait4(p.pid, 0)
    p.returncode = os.waitstatus_to_exitcode(status)
    if p.returncode:
        sys.exit(f"probe: {' '.join(command)} failed with {p.returncode}")
    return time.perf_counter() - before, usage.ru_maxrss / 1024, out


# PyTorch as apt installs it, or with one thread in OpenBLAS (its threads and OpenMP's get into each other's way): whichever
# is faster here takes part.
SETTINGS = [{}, {"OPENBLAS_NUM_THREADS": "1"}]


def best_setting(torch):
    few = "1,4,16,48,64"
    return min(SETTINGS, key=lambda env: json.loads(timed([*torch, few, "2"], env)[2])["seconds"])


def median(v):
    return statistics.median(v)


def spread(v):
    return f"{min(v):.4g} .. {max(v):.4g}"


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("sonde")
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--json")
    a = ap.parse_args()
    depths = ",".join(map(str, FIXED))
    probe = [a.sonde, "measure", "residual", "--wirings", "plain,residual,pre,post", "block=one-matrix", "width=256", "hidden=256",
             "--batch", "256", "--depths", depths, "--seeds", "1", "--bands", "none", "--no-params", "--json", "--quiet", "--threads", "2"]
    python = next((p for p in ("/usr/bin/python3", sys.executable)
                   if subprocess.run([p, "-c", "import torch"], stderr=subprocess.DEVNULL).returncode == 0), None)
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
        print(f"         on {blas} {' '.join(f'{k}={v}' for k, v in setting.items())}".rstrip())
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
