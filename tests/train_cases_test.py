#!/usr/bin/env python3
"""Reports about training elsewhere (docs/cases.md, U60 to U66), asked of the command as a user would.

  SONDE_BIN=build/sonde tests/train_cases_test.py
"""
import json
import math
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile

BIN = os.environ["SONDE_BIN"]


def check(ok, what):
    if not ok:
        sys.exit("train_cases_test: " + what)


def train(spec, data, *args, code=0):
    words = spec if isinstance(spec, list) else spec.split()
    r = subprocess.run([BIN, "train", *words, "--data", data, "--json", "--quiet", *args], capture_output=True, text=True,
                       timeout=300)
    check(r.returncode == code, f"{spec} {args}: exit {r.returncode}: {r.stderr}")
    return json.loads(r.stdout)


def small(data, out, *args):
    return train("pre layers=1 width=32", data, "--batch", "4", "--tokens", "16", "--eval-batches", "1", "-o", out, *args)


def rates(data, top):
    """U60, U61: the rate of step 1 is not 0, the warm-up ends at lr, and no corner has a NaN."""
    for k, (schedule, steps, warmup) in enumerate([("constant", 6, 4), ("linear", 6, 0), ("cosine", 6, 6), ("invsqrt", 6, 0),
                                                   ("wsd", 6, 3), ("linear", 4, 9), ("cosine", 1, 1)]):
        out = os.path.join(top, f"rates{k}")
        tail = ["--decay-share", "0"] if schedule == "wsd" else []
        small(data, out, "--steps", str(steps), "--warmup", str(warmup), "--schedule", schedule, "--lr", "0.01", "--monitor-every",
              "1", *tail)
        lr = [l["lr"] for l in map(json.loads, open(os.path.join(out, "metrics.jsonl"))) if "lr" in l]
        what = f"{schedule}, {steps} steps, warm-up {warmup}: {lr}"
        r = subprocess.run([BIN, "train", "pre", "layers=1", "width=32", "--data", data, "--quiet", "--steps", str(steps), "--warmup",
                            str(warmup), "--schedule", schedule, "--lr", "0.01", *tail, "--print", "schedule"],
                           capture_output=True, text=True, timeout=60)
        table = [l.split(",") for l in r.stdout.splitlines()]
        check(r.returncode == 0 and table[0] == ["step", "lr"], f"--print schedule: {r.returncode}, {r.stdout[:99]}, {r.stderr}")
        said = [float(x) for _, x in table[1:]]
        check([int(i) for i, _ in table[1:]] == list(range(1, steps + 1)), "steps that are printed")
        check(len(said) == len(lr) and all(abs(a - b) <= 1e-6 * b for a, b in zip(said, lr)), f"printed {said}, trained with {lr}")
        check(len(lr) == steps and all(0 < x <= 0.01 * (1 + 1e-12) for x in lr), what)
        for i in range(min(warmup, steps)):
            check(abs(lr[i] - 0.01 * (i + 1) / warmup) < 1e-9, what)


def first_losses(data):
    """U64: the first loss is held against ln(vocabulary)."""
    short = ["--steps", "2", "--batch", "4", "--tokens", "16", "--eval-batches", "1"]
    d = train("pre layers=1 width=32", data, *short)
    vocab = int(d["spec"]["vocab"]) if isinstance(d["spec"], dict) else 0
    check(abs(d["summary"]["metrics"]["first_loss"] - math.log(vocab)) < 0.5, f"first loss {d['summary']} of {vocab} tokens")
    check(not [v for v in d["verdicts"] if v["rule"] == "first-loss"], str(d["verdicts"]))
    # a tied head whose rows have the size 1 begins far above
    d = train("pre layers=1 width=32 family=transformer position=rope tie=true init=xavier", data, *short)
    v = [v for v in d["verdicts"] if v["rule"] == "first-loss"]
    check(len(v) == 1 and v[0]["value"] > v[0]["threshold"] + 0.5, str(d["verdicts"]))


def quick_start(data):
    """U65: 16 layers of width 256, 64 tokens, nothing else said: finite, and learning within a dozen steps."""
    d = train("pre layers=16 width=256", data, "--tokens", "64", "--batch", "2", "--steps", "12", "--eval-batches", "1",
              "--eval-every", "12")
    s = d["summary"]["metrics"]
    check(math.isfinite(s["loss"]) and s["valid_loss"] < s["first_loss"] - 0.3, str(s))
    check([v["level"] for v in d["verdicts"]] == ["ok"], str(d["verdicts"]))


def tensors(path):
    raw = open(path, "rb").read()
    n = int.from_bytes(raw[:8], "little")
    for name, t in json.loads(raw[8:8 + n]).items():
        if name != "__metadata__":
            a, b = t["data_offsets"]
            yield name, struct.unpack(f"<{(b - a) // 4}f", raw[8 + n + a:8 + n + b])


def decay(data, top):
    """U66: a step whose rate times decay is 1 leaves of whatever decays the gradient's part alone, lr or less in size. So
    matrices end near 0, what does not decay near its start, and with decay=all gains at 1, however they are stored."""
    lr, formula = 1e-4, "each: x = x + F(N(x, gain=0.5))\nout: x = N(x, gain=0.5)"
    for k, (keys, options, gain) in enumerate([([], [], 0.5), ([], ["--decay", "all"], 1), (["plus1=true"], [], -0.5),
                                               (["plus1=true"], ["--decay", "all"], 0)]):
        out = os.path.join(top, f"decay{k}")
        train([formula, "layers=1", "width=32", "bias=true", *keys], data, "--batch", "4", "--tokens", "16", "--eval-batches", "1",
              "--steps", "1", "--warmup", "0", "--lr", str(lr), "--weight-decay", str(1 / lr), "--schedule", "constant", "-o", out,
              *options)
        r = subprocess.run([BIN, "train", formula, "layers=1", "width=32", "bias=true", *keys, "--data", data, "--quiet",
                            "--tokens", "16", "--weight-decay", "0.25", "--print", "weights", *options], capture_output=True, text=True, timeout=60)
        check(r.returncode == 0 and r.stdout.startswith("name,role,elements,decay,toward\n"), r.stdout + r.stderr)
        said = {f[0]: f[1:] for f in (l.split(",") for l in r.stdout.splitlines()[1:])}
        seen = set()
        for name, values in tensors(os.path.join(out, "checkpoints", "1", "model.safetensors")):
            norm = re.search(r"(^|[.])N[0-9]*[.]", name) is not None
            rest = gain if norm and name.endswith("weight") else 0
            seen.add((norm, name.endswith("bias")))
            role, elements, rate, toward = said.pop(name)
            check(int(elements) == len(values), f"{name} has {len(values)} elements, not {elements}")
            check(bool(float(rate)) == (not (norm or name.endswith("bias")) or bool(options)), f"{keys} {options}: {name}: {rate}")
            check(not float(rate) or (float(rate) == 0.25 and float(toward) == rest), f"{keys} {options}: {name} to {toward}, not {rest}")
            far = max(abs(v - rest) for v in values)
            check(far <= 1.01 * lr, f"{keys} {options}: {name} is {far} from {rest}")
        check(not said, f"printed, yet not learned: {said}")
        check({(False, False), (False, True), (True, False)} <= seen, f"{keys}: no matrix, bias or gain among {seen}")


def halves(data, top):
    """U72: emulated f16 fails where f16 does and says where; the loss scale is logged, saved, and found again by --resume."""
    start = "init=embed,pos = normal(0.02)"
    model = ["layers=4", "width=32", "family=transformer", "position=learned", "context=16"]
    short = ["--batch", "4", "--tokens", "16", "--steps", "30", "--eval-batches", "1", "--eval-every", "10", "--threads", "1"]
    grows = "each: x = 8*x + F(N(x))\nout: x = N(x)"  # 8^8 times its size behind the last layer
    sharp = start + "; q,k *= 300"

    def f16(spec, *args, code=0):
        d = train(spec, data, *short, "--dtype", "f16", *args, code=code)
        return d, {v["rule"]: v for v in d["verdicts"]}

    # what overflows, by its first place; f32 and bf16 train
    for spec, where in (([grows, *model, start], "layers.2."), (["pre", *model, sharp], "layers.0.A.out")):
        for dtype in ("f32", "bf16"):
            d = train(spec, data, *short, "--dtype", dtype)
            check(math.isfinite(d["summary"]["metrics"]["loss"]), f"{spec} {dtype}: {d['summary']}")
        out = os.path.join(top, "half-" + where)
        d, v = f16(spec, "-o", out, code=4)
        check(set(v) == {"scale-collapse", "f16-overflow"} and v["scale-collapse"]["level"] == "error", str(v))
        check(all(x["where"].startswith(where) for x in v.values()), f"{spec}: {[x['where'] for x in v.values()]}, not {where}")
        check(v["f16-overflow"]["where"].endswith("step 1") and v["scale-collapse"]["where"].endswith("step 17"), str(v))
        check(d["summary"]["metrics"]["skipped_steps"] == 16 and d["summary"]["metrics"]["loss_scale"] == 1, str(d["summary"]))
        d, v = f16(spec, "--loss-scale", "1024", code=4)
        v = v["f16-overflow"]
        check(v["level"] == "error" and v["where"].startswith(where) and v["where"].endswith("step 1"), str(v))
    f16(["pre", *model, sharp, "qk_norm=rms-head"])
    # a scale that was said and is too large for the gradient has a verdict that says so
    d, v = f16(["pre", *model, start], "--loss-scale", "1e9", code=4)
    check(set(v) == {"loss-scale-too-large"} and v["loss-scale-too-large"]["value"] == 1e9, str(v))
    check("--loss-scale dynamic" in v["loss-scale-too-large"]["try"] and "stays at 1e+09" in v["loss-scale-too-large"]["why"], str(v))
    # a run that ends without a loss has not ended well: by its validation where it has one, else by its last step
    wild = ["--lr", "1e4", "--warmup", "0", "--eval-every", "1"]
    for steps, where, more, why in (("6", "layers.0.A.out, step 2", [], "; the validation loss after step 6, "),
                                    ("6", "layers.0.A.out, step 2", ["--valid-share", "0"], "; the loss after step 6, "),
                                    ("1", "validation, step 1", [], "the validation loss after step 1, ")):
        d, v = f16(["pre", *model, start], *wild, "--steps", steps, *more, code=4)
        v, m = v["f16-overflow"], d["summary"]["metrics"]
        check(v["level"] == "error" and v["where"] == where and why in v["why"], f"{steps} {more}: {v}")
        check(m["steps"] == int(steps) and m.get("best_step") is None, f"{steps} {more}: {m}")
    # what underflows: the smaller the scale the more, until little is learned
    lost, losses = [], []
    for scale in ("dynamic", "1", "1e-3", "1e-5"):
        out = os.path.join(top, "half-scale-" + scale)
        d, v = f16(["pre", *model, start], "--lr", "3e-3", "--loss-scale", scale, "--monitor-every", "1", "-o", out)
        lines = [l for l in map(json.loads, open(os.path.join(out, "metrics.jsonl"))) if "lr" in l]
        check(len(lines) == 30 and all(not l["skipped"] and l["loss_scale"] == (65536 if scale == "dynamic" else float(scale)) for l in lines),
              f"{scale}: {lines[0]}")
        lost.append(sum(l["underflow"] for l in lines) / len(lines))
        losses.append(d["summary"]["metrics"]["valid_loss"])
        check(("f16-underflow" in v) == (lost[-1] > 0.1), f"{scale}: {lost}, {list(v)}")
        grms = [x["grms"] for x in lines[0]["layers"] if x["name"] == "layers.0"][0]
        check(scale in ("1e-3", "1e-5") or 1e-6 < grms < 1e-2, f"{scale}: the gradient's size is {grms}")
    check(lost[0] < 0.01 and lost == sorted(lost) and lost[3] > 0.5, str(lost))
    check(losses[3] > losses[0] + 0.2, f"{losses} by ever smaller scales")
    # the scale doubles, overflows, is halved; cut in two parts the run is the same
    outs = [os.path.join(top, f"half-{k}") for k in "ab"]
    more = ["--scale-every", "1", "--save-every", "20", "--monitor-every", "0"]
    d, v = f16(["pre", *model, start], *more, "-o", outs[0])
    check(d["summary"]["metrics"]["skipped_steps"] > 0 and v["f16-gradient-overflow"]["level"] == "info", f"{d['summary']} {v}")
    shutil.copytree(outs[0], outs[1])
    shutil.rmtree(os.path.join(outs[1], "checkpoints", "30"))
    r = subprocess.run([BIN, "train", "--resume", outs[1], "--quiet", "--threads", "1"], capture_output=True, text=True, timeout=300)
    check(r.returncode == 0, r.stderr)
    a, b = ([{k: x for k, x in json.loads(l).items() if k != "tokens_per_s"} for l in open(os.path.join(o, "metrics.jsonl"))] for o in outs)
    check(a == b, f"a resumed run: {[(x, y) for x, y in zip(a, b) if x != y][:1]}")
    check(any(l.get("skipped") and l["loss"] is not None for l in a if l["step"] <= 20), "no step before the checkpoint was skipped for its gradient")
    a, b = (json.load(open(os.path.join(o, "result.json")))["panels"] for o in outs)
    check(a == b, f"curves of a resumed run: {[(x, y) for x, y in zip(a, b) if x != y][:1]}")
    # refused
    for args, say in ((["--loss-scale", "8"], "only with f16"), (["--dtype", "f16", "--loss-scale", "none"], "neither dynamic nor a number")):
        r = subprocess.run([BIN, "train", "pre", *model, "--data", data, "--quiet", *short, *args], capture_output=True, text=True, timeout=60)
        check(r.returncode == 2 and say in r.stderr, f"{args}: exit {r.returncode}: {r.stderr}")


def tables(data, top):
    """A table is rows with a class without a word about families, and what is wrong with it is said; a preset is not at
    fault for a setting beside it."""
    rng, rows = random.Random(2), ["a,b,kind"]
    for i in range(90):
        rows.append(f"{rng.gauss(i % 2, 0.2):.4f},{rng.gauss(0, 1):.4f},{('cat', 'dog')[i % 2]}")
    table, bad = os.path.join(top, "t.csv"), os.path.join(top, "bad.csv")
    open(table, "w").write("\n".join(rows) + "\n")
    open(bad, "w").write("\n".join([*rows, "1,nan,cat"]) + "\n")
    for spec in ("mlp", "pre"):
        d = train(f"{spec} layers=1 width=8", table, "--steps", "40", "--lr", "1e-2", "--threads", "1", "--valid-share", "0.3")
        check(d["spec"]["family"] == "mlp" and int(d["spec"]["inputs"]) == 2 and int(d["spec"]["outputs"]) == 2, f"{spec}: {d['spec']}")
        check(d["summary"]["metrics"]["valid_loss"] < 0.3, f"{spec}: {d['summary']}")
    for args, code, say in ((["mlp", "--data", bad], 3, "row 91, column 2: nan"), (["gpt2", "--data", "no-such-text"], 3, "no such file or folder"),
                            (["gpt2", "layers=1", "width=32", "--data", data, "--dtype", "f16", "--loss-scale", "0"], 2, "neither dynamic nor"),
                            (["mlp", "layers=1", "width=8", "--data", table, "--accumulate", "5"], 2, "do not divide")):
        r = subprocess.run([BIN, "train", *args, "--quiet", "--steps", "2", "--threads", "1"], capture_output=True, text=True, timeout=60)
        check(r.returncode == code and say in r.stderr, f"{args}: exit {r.returncode}: {r.stderr}")


def presets(data, pairs):
    """Every Transformer's preset trains when it is scaled down by width= and layers= alone, and vocab= limits a bpe."""
    known = json.loads(subprocess.run([BIN, "models", "--json"], capture_output=True, text=True, timeout=60).stdout)
    names = [m["name"] for m in known["models"]]
    seen = 0
    for name in names:
        if name.startswith("resnet") or name.endswith("mlp"):
            continue
        two = name.startswith("t5") or name == "transformer-base"
        d = train(f"{name} layers=2 width=32 vocab=270", pairs if two else data, "--batch", "4", "--tokens", "16", "--steps", "6",
                  "--warmup", "2", "--lr", "3e-3", "--tokenizer", "bpe", "--eval-batches", "1", "--threads", "1", "--eval-every", "6")
        spec, s = d["spec"], d["summary"]["metrics"]
        stacks = [int(spec[k]) for k in (("encoder_layers", "decoder_layers") if two else ("layers",))]
        check(set(stacks) == {2}, f"{name}: {stacks} layers")
        check(32 <= int(spec["hidden"]) <= 200 and int(spec["heads"]) <= 4, f"{name}: {spec}")
        check(int(spec["vocab"]) == 270, f"{name}: {spec['vocab']} tokens")
        check(math.isfinite(s["loss"]) and s["valid_loss"] < s["first_loss"] - 0.05, f"{name}: {s}")
        seen += 1
    check(seen >= 16, f"{seen} of {names}")


def main():
    top = tempfile.mkdtemp(prefix="train-cases-")
    try:
        data = os.path.join(top, "text")
        rng = random.Random(1)
        words = "the sea of time was a door and we open it slowly".split()
        open(data, "w").write(" ".join(rng.choice(words) for _ in range(20000)))
        rates(data, top)
        first_losses(data)
        quick_start(data)
        decay(data, top)
        tables(data, top)
        halves(data, top)
        pairs = os.path.join(top, "pairs.tsv")
        with open(pairs, "w") as f:
            for _ in range(600):
                line = [rng.choice(words) for _ in range(rng.randint(3, 9))]
                f.write(" ".join(line) + "\t" + " ".join(w[::-1] for w in line) + "\n")
        presets(data, pairs)
    finally:
        shutil.rmtree(top)


if __name__ == "__main__":
    main()
