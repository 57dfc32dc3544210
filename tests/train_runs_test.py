#!/usr/bin/env python3
"""Runs of `sonde train` that end early: interrupted, killed at any moment, without room on the disk. None may lose or damage
a checkpoint, and what is resumed must end in the very bytes of a run that nobody disturbed.

  SONDE_BIN=build/sonde tests/train_runs_test.py [KILLS]      a few kills in the suite, 200 before a release
"""
import json
import math
import os
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

BIN = os.environ["SONDE_BIN"]
KILLS = int(sys.argv[1]) if len(sys.argv) > 1 else 8
FILES = ["model.safetensors", "optimizer.safetensors", "ema.safetensors"]


def check(ok, what):
    if not ok:
        sys.exit("train_runs_test: " + what)


def train(*args, **how):
    return subprocess.run([BIN, "train", *args], capture_output=True, text=True, timeout=900, **how)


def start(data, out, steps):
    return ["pre", "layers=1", "width=32", "dropout=0.1", "--data", data, "--steps", str(steps), "--batch", "4", "--tokens", "16",
            "--save-every", "1", "--eval-every", "7", "--eval-batches", "1", "--ema", "0.9", "--threads", "1", "-o", out]


def checkpoints(out):
    try:
        names = os.listdir(os.path.join(out, "checkpoints"))
    except FileNotFoundError:
        return []
    return sorted(int(n) for n in names if n.isdigit())


CRC = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    CRC.append(byte)


def crc32c(raw):
    c = 0xFFFFFFFF
    for byte in raw:
        c = c >> 8 ^ CRC[(c ^ byte) & 255]
    return c ^ 0xFFFFFFFF


def whole(path):
    """A checkpoint's files are as long as they say, and of one step."""
    for f in FILES:
        raw = open(os.path.join(path, f), "rb").read()
        n = int.from_bytes(raw[:8], "little")
        header = json.loads(raw[8:8 + n])
        end = max(t["data_offsets"][1] for k, t in header.items() if k != "__metadata__")
        check(len(raw) == 8 + n + end, f"{path}/{f} is cut")
    check(json.load(open(os.path.join(path, "state.json")))["step"] == int(os.path.basename(path)), f"{path}: another step")
    for f in ["spec.yaml", "tokenizer.json"]:
        check(os.path.getsize(os.path.join(path, f)) > 100, f"{path}/{f} is cut")
    for f, saved in json.load(open(os.path.join(path, "state.json")))["files"].items():
        raw = open(os.path.join(path, f), "rb").read()
        check(saved == {"bytes": len(raw), "crc32c": f"{crc32c(raw):08x}"}, f"{path}/{f} is not what state.json says")


def same_end(a, b, step, what):
    for f in FILES:
        x, y = (open(os.path.join(d, "checkpoints", str(step), f), "rb").read() for d in (a, b))
        check(x == y, f"{what}: {f} differs from an undisturbed run's")
    lines = [[json.loads(l) for l in open(os.path.join(d, "metrics.jsonl"))] for d in (a, b)]
    for l in lines[0] + lines[1]:
        l.pop("tokens_per_s", None)
    check(lines[0] == lines[1], f"{what}: metrics.jsonl differs from an undisturbed run's")


def interrupted(data, top, steps):
    out = os.path.join(top, "interrupted")
    p = subprocess.Popen([BIN, "train", *start(data, out, steps)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while len(checkpoints(out)) < 2 and p.poll() is None:
        time.sleep(0.01)
    p.send_signal(signal.SIGINT)
    err = p.communicate(timeout=60)[1]
    check(p.returncode == 130, f"after SIGINT: exit {p.returncode}: {err}")
    check(checkpoints(out)[-1] < steps, "the run was over before it could be interrupted")
    r = train("--resume", out)
    check(r.returncode == 0, "resume after SIGINT: " + r.stderr)
    return out


def until_it_saves(p, out):
    """Sleeps until the run has saved a step of its own, or is over."""
    before = checkpoints(out)[-1:]
    while p.poll() is None and checkpoints(out)[-1:] <= before:
        time.sleep(0.001)


def killed(data, top, steps, kills):
    """Every other kill comes at any moment of a run's beginning, the rest while it trains and saves, however busy the machine."""
    out = os.path.join(top, "killed")
    rng = random.Random(5)
    begun = resumed = 0
    for k in range(kills):
        args = ["--resume", out] if checkpoints(out) else start(data, out, steps)
        before = checkpoints(out)
        p = subprocess.Popen([BIN, "train", *args], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if k % 2:
            until_it_saves(p, out)
        time.sleep(rng.uniform(0, 0.03 if k % 2 else 0.2))
        p.kill()
        err = p.communicate()[1]
        check(p.returncode in (-9, 0), f"kill {k}: the run had ended with {p.returncode}: {err}")
        after = checkpoints(out)
        check(not before or (after and after[-1] >= before[-1]), f"kill {k}: checkpoint {before[-1:]} is lost")
        for s in after:
            whole(os.path.join(out, "checkpoints", str(s)))
        begun += 1
        resumed += bool(before) and after[-1] > before[-1]
        if after and after[-1] >= steps:
            break
    args = ["--resume", out] if checkpoints(out) else start(data, out, steps)
    r = train(*args)
    check(r.returncode == 0, "resume after the kills: " + r.stderr)
    print(f"{begun} kills, {resumed} of them in runs that had saved another step")
    check(resumed >= begun // 5, "the kills came before the runs did anything")
    return out


def full_disk(data, top):
    """A limit on the size of files stands for a disk without room."""
    out = os.path.join(top, "full")
    check(train(*start(data, out, 3)).returncode == 0, "three steps")
    before = {s: open(os.path.join(out, "checkpoints", str(s), FILES[0]), "rb").read() for s in checkpoints(out)}

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))

    r = train("--resume", out, "--steps", "6", preexec_fn=limit)
    check(r.returncode == 3, f"without room: exit {r.returncode}: {r.stderr}")
    check("checkpoint of step 4: cannot write" in r.stderr and "File too large" in r.stderr, "message: " + r.stderr)
    for s, text in before.items():
        check(open(os.path.join(out, "checkpoints", str(s), FILES[0]), "rb").read() == text, f"checkpoint {s} was touched")
    check(all(n.isdigit() for n in os.listdir(os.path.join(out, "checkpoints"))), "half a checkpoint was left")


def plant(path, name):
    """A NaN as the first element of a tensor. The checkpoint becomes one of before there were sums, or it would be refused."""
    state = os.path.join(os.path.dirname(path), "state.json")
    was = json.load(open(state))
    json.dump({k: v for k, v in was.items() if k not in ("files", "crc32c")}, open(state, "w"))
    raw = bytearray(open(path, "rb").read())
    n = int.from_bytes(raw[:8], "little")
    at = 8 + n + json.loads(raw[8:8 + n])[name]["data_offsets"][0]
    raw[at:at + 4] = struct.pack("<f", float("nan"))
    open(path, "wb").write(raw)


def diverged(data, top):
    """A run that goes wrong ends with 4 and says where it began."""
    out = os.path.join(top, "planted")
    check(train(*start(data, out, 3)).returncode == 0, "three steps")
    plant(os.path.join(out, "checkpoints", "3", FILES[0]), "layers.0.M.up.weight")
    r = train("--resume", out, "--steps", "6", "--json")
    check(r.returncode == 4, f"a planted NaN: exit {r.returncode}: {r.stderr}")
    check("in step 4 the weight layers.0.M.up.weight is not finite" in r.stderr, r.stderr)
    v = json.loads(r.stdout)["verdicts"]
    check([(x["rule"], x["level"], x["where"]) for x in v if x["rule"] == "nonfinite"] ==
          [("nonfinite", "error", "layers.0.M.up.weight, step 4")], str(v))
    check(checkpoints(out)[-1] == 3, "a step that went wrong was saved")
    out = os.path.join(top, "first")  # not one step can be made
    r = train("x = exp(x) + F(x)", "layers=8", "width=32", "family=transformer", "vocab=95", "context=16", "position=learned", "init=embed = normal(30)",
              "--data", data, "--steps", "9", "--batch", "4", "--tokens", "16", "-o", out)
    check(r.returncode == 4 and "step 1. In step 1" in r.stdout.replace("\n      ", " "), f"exit {r.returncode}: {r.stdout} {r.stderr}")
    check("nan" not in r.stdout and "Learning rate" not in r.stdout, "curves without a step: " + r.stdout)
    lines = [json.loads(l) for l in open(os.path.join(out, "metrics.jsonl"))]
    check([l["step"] for l in lines] == [1] and lines[0]["loss"] is None, "metrics.jsonl: " + str(lines))
    check(all(l["update"] is None and l["wrms"] is None for l in lines[0]["layers"]), "an update that was not made: " + str(lines))
    d = json.load(open(os.path.join(out, "result.json")))
    check(not d.get("panels") and d["summary"]["metrics"]["steps"] == 0, "panels without a step: " + str(d.get("panels")))
    advice = [v["try"] for v in d["verdicts"] if v["rule"] == "nonfinite"][0]
    check("no update had been made" in advice and "lower lr" not in advice, "advice before the first update: " + advice)
    sums_beyond_f64(data, top)
    last_step_is_told(data, top)
    for args, what in [(["--optimizer", "sgd", "--lr", "1e6", "--clip", "0"], "is not finite"),
                       (["--optimizer", "adamw", "--lr", "30", "--schedule", "constant"], "the mean loss of the last 20 steps is")]:
        r = train("pre", "layers=2", "width=32", "--data", data, "--steps", "100", "--batch", "4", "--tokens", "16", "--warmup", "0", *args)
        check(r.returncode == 4 and what in r.stderr, f"{args}: exit {r.returncode}: {r.stderr}")


def sums_beyond_f64(data, top):
    """Every number is finite and the norm is not: the weight is named, whatever the type."""
    for dtype in ("f32", "f64"):
        r = train("x = x + 1e200*F(x)", "layers=2", "width=32", "family=transformer", "vocab=95", "context=16", "position=learned", "--data", data,
                  "--steps", "9", "--batch", "4", "--tokens", "16", "--dtype", dtype, "--json")
        v = [v for v in json.loads(r.stdout)["verdicts"] if v["rule"] == "nonfinite"]
        check(r.returncode == 4 and v[0]["where"] == "grad.layers.1.M.down.bias, step 1", f"{dtype}: exit {r.returncode}: {v}")
        check("the gradient of the weight layers.1.M.down.bias reaches" in r.stderr and "beyond f64" in r.stderr, r.stderr)


def last_step_is_told(data, top):
    """The step that a run ends for is in its curves and maps as in metrics.jsonl; one that was not made is in neither map."""
    for name, args, made in (("diverged", ["--optimizer", "adamw", "--lr", "30", "--schedule", "constant", "--steps", "12"], True),
                             ("nonfinite", ["--optimizer", "sgd", "--lr", "1e6", "--clip", "0", "--steps", "12", "--dtype", "f64"], False)):
        out = os.path.join(top, name)
        r = train("pre", "layers=2", "width=32", "--data", data, "--batch", "4", "--tokens", "16", "--warmup", "0", "--monitor-every", "1", "-o", out, *args)
        check(r.returncode == 4, f"{name}: exit {r.returncode}: {r.stderr}")
        steps = [l for l in map(json.loads, open(os.path.join(out, "metrics.jsonl"))) if "lr" in l]
        kept = steps if made else steps[:-1]
        check(made == (steps[-1]["grad_norm"] is not None), f"{name}: {steps[-1]}")
        d = json.load(open(os.path.join(out, "result.json")))
        maps = {m["title"]: m for m in d["heatmaps"]}
        update = maps["Update of each layer's weights"]
        check(update["columns"] == [l["step"] for l in kept], f"{name}: {update['columns']}")
        for k, row in enumerate(update["rows"]):
            for said, line in zip(row["values"], kept):
                check(abs(said - math.log10(line["layers"][k]["update"])) < 1e-6, f"{name}, step {line['step']}: {said}, not {line['layers'][k]}")
        loss = [p for p in d["panels"] if p["title"] == "Loss"][0]["series"][0]
        check(loss["x"] == update["columns"], f"{name}: {loss['x']}")


def main():
    top = tempfile.mkdtemp(prefix="train-runs-")
    try:
        data = os.path.join(top, "text")
        rng = random.Random(1)
        words = "the sea of time was a door and we open it slowly".split()
        open(data, "w").write(" ".join(rng.choice(words) for _ in range(20000)))
        steps = 250 if KILLS <= 20 else 3000
        plain = os.path.join(top, "plain")
        r = train(*start(data, plain, steps))
        check(r.returncode == 0, r.stderr)
        same_end(plain, interrupted(data, top, steps), steps, "interrupted")
        same_end(plain, killed(data, top, steps, KILLS), steps, "killed")
        full_disk(data, top)
        diverged(data, top)
    finally:
        shutil.rmtree(top)


if __name__ == "__main__":
    main()
