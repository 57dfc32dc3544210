#!/usr/bin/env python3
"""How training in f16 fails, and what mends it: small nets on the characters of data/austen/austen.txt, trained in f32, bf16
and emulated f16. docs/training.md ("What f16 does") has the tables that came of it.

  SONDE_BIN=build/sonde tools/half.py [underflow|overflow]
"""
import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TEXT = os.path.join(ROOT, "data", "austen", "austen.txt")
SHARED = ["width=128", "family=transformer", "position=learned", "context=64", "--data", TEXT, "--tokens", "64", "--batch", "8",
          "--lr", "2e-3", "--eval-batches", "20", "--threads", "1", "--json", "--quiet"]
SMALL = "init=embed,pos = normal(0.02)"
GROWS = "each: x = 3*x + F(N(x))\nout: x = N(x)"  # 3^12 times its size behind six layers
SHARP = SMALL + "; q,k *= 150"  # scores of some 10^5

UNDERFLOW = [("f32", []), ("f16, dynamic", ["--dtype", "f16"])] + [
    (f"f16, 2^{e}", ["--dtype", "f16", "--loss-scale", repr(2.0 ** e)]) for e in (0, -5, -8, -10, -12)]
OVERFLOW = [("stream tripled by every sublayer", [GROWS, "layers=6", SMALL]), ("queries and keys 150 times as large", ["pre", "layers=4", SHARP]),
            ("the same with qk_norm", ["pre", "layers=4", SHARP, "qk_norm=rms-head"])]


def train(args):
    r = subprocess.run([os.environ["SONDE_BIN"], "train", *args, *SHARED], capture_output=True, text=True)
    if r.returncode not in (0, 4):
        sys.exit(r.stderr)
    return r.returncode, json.loads(r.stdout)


def verdict(out, *rules):
    return next((v for rule in rules for v in out["verdicts"] if v["rule"] == rule), None)


def underflow():
    print("| type, loss scale | validation loss | gradients' numbers that become 0, last step |\n|---|---|---|")
    for name, options in UNDERFLOW:
        _, out = train(["pre", "layers=4", SMALL, "--steps", "200", *options])
        lost = [s["y"][-1] for p in out["panels"] if p["title"].startswith("Gradients that f16") for s in p["series"]]
        print(f"| {name} | {out['summary']['metrics']['valid_loss']:.3f} | {f'{100 * lost[0]:.2g} %' if lost else ''} |", flush=True)


def overflow():
    print("| net | f32 | bf16 | f16 |\n|---|---|---|---|")
    for name, spec in OVERFLOW:
        cells = []
        for dtype in ("f32", "bf16", "f16"):
            code, out = train([*spec, "--steps", "100", "--dtype", dtype])
            end = verdict(out, "scale-collapse", "nonfinite")
            cells.append(f"{out['summary']['metrics']['valid_loss']:.2f}" if code == 0 else f"{end['rule']}: {end['where']}")
        print("| " + " | ".join([name, *cells]) + " |", flush=True)


if __name__ == "__main__":
    for name, run in (("underflow", underflow), ("overflow", overflow)):
        if sys.argv[1:] in ([], [name]):
            run()
