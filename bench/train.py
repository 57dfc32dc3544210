#!/usr/bin/env python3
"""Speed of whole training steps with AdamW against PyTorch (when python3-torch is there): GPT-2 124M and the same at
other shapes, vocabulary 50257, random tokens. Steps alone: no validation, no checkpoint, no statistics, on both sides the
median of the steps of a process. Rounds are interleaved; a ratio is the median of the rounds' ratios.

usage: train.py path/to/sonde [--dtype f32] [--rounds 3] [--steps 5] [--only NAME] [--tuned] [--json FILE]
--dtype bf16: weights and AdamW in f32, products of operands in bf16, on PyTorch's side by autocast
--tuned: PyTorch in the most tuned of its settings, without trying which one is the fastest"""
import argparse
import array
import json
import os
import random
import tempfile

from common import HERE, fastest_setting, median, show_setting, spread, timed, torch_python

THREADS, VOCAB, WANTED_BF16 = 2, 50257, 1.3
# name: layers, width, heads, batch, tokens, ratio wanted in f32
SHAPES = {
    "124M 4x64": (12, 768, 12, 4, 64, 1.4),
    "24x256 4x64": (24, 256, 4, 4, 64, 1.7),
    "12x384 4x64": (12, 384, 6, 4, 64, 1.7),
    "124M 8x256": (12, 768, 12, 8, 256, 1.7),
}


def torch_steps(python, shape, steps, setting, dtype):
    layers, width, heads, batch, tokens, _ = shape
    args = map(str, (layers, width, heads, VOCAB, batch, tokens, THREADS, dtype))
    lines = timed([python, os.path.join(HERE, "torch_train.py"), *args], setting, b"\n" * steps)[2].splitlines()
    seconds = [json.loads(line)["seconds"] for line in lines]
    last = json.loads(lines[-1])
    return median(seconds[1:] or seconds), last["mib"], last["blas"]


def sonde_steps(sonde, shape, steps, data, dtype):
    layers, width, heads, batch, tokens, _ = shape
    _, mib, out = timed([sonde, "train", "gpt2", f"layers={layers}", f"width={width}", f"heads={heads}", "dropout=0", "attn_dropout=0",
                         "--data", data, "--data-kind", "tokens", "--steps", str(steps), "--batch", str(batch), "--tokens", str(tokens),
                         "--lr", "1e-4", "--warmup", "0", "--schedule", "constant", "--eval-every", "0", "--eval-batches", "1",
                         "--monitor-every", "0", "--dtype", dtype, "--threads", str(THREADS), "--json", "--quiet"])
    return json.loads(out)["summary"]["metrics"]["step_seconds"], mib


def main():
    p = argparse.ArgumentParser()
    p.add_argument("sonde")
    p.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--only", choices=SHAPES)
    p.add_argument("--tuned", action="store_true")
    p.add_argument("--json")
    a = p.parse_args()
    python, rows = torch_python(), {}
    with tempfile.TemporaryDirectory() as d:
        data = os.path.join(d, "tokens.bin")
        rng = random.Random(1)
        open(data, "wb").write(array.array("H", [rng.randrange(VOCAB) for _ in range(100000)]).tobytes())
        for name, shape in SHAPES.items():
            if a.only and name != a.only:
                continue
            r = {"sonde s": [], "sonde MiB": [], "torch s": [], "torch MiB": [], "speed": []}
            setting = fastest_setting(lambda s: torch_steps(python, shape, 2, s, a.dtype)[0], a.tuned) if python else {}
            blas = ""
            for _ in range(a.rounds):
                sec, mib = sonde_steps(a.sonde, shape, a.steps, data, a.dtype)
                r["sonde s"].append(sec)
                r["sonde MiB"].append(mib)
                if python:
                    sec, mib, blas = torch_steps(python, shape, a.steps, setting, a.dtype)
                    r["torch s"].append(sec)
                    r["torch MiB"].append(mib)
                    r["speed"].append(sec / r["sonde s"][-1])
            targets, wanted = shape[3] * shape[4], shape[5] if a.dtype == "f32" else WANTED_BF16
            print(f"{name}, {a.dtype}: {targets} tokens a step, {THREADS} threads")
            print(f"  sonde  {median(r['sonde s']):7.3f} s  ({spread(r['sonde s'])})  {targets / median(r['sonde s']):5.0f} tokens/s  {median(r['sonde MiB']):5.0f} MiB")
            if python:
                print(f"  torch  {median(r['torch s']):7.3f} s  ({spread(r['torch s'])})  {targets / median(r['torch s']):5.0f} tokens/s  {median(r['torch MiB']):5.0f} MiB   "
                      f"{blas} {show_setting(setting)}")
                print(f"  torch / sonde {median(r['speed']):.3f} ({spread(r['speed'])}); wanted at least {wanted}")
            rows[name] = {"setting": setting, "blas": blas, **r}
    if a.json:
        json.dump(rows, open(a.json, "w"), indent=1)


main()
