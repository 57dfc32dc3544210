#!/usr/bin/env python3
"""The event file of a run, read by a small reader of its own (framing, check sums bit by bit, protobuf), says what
metrics.jsonl says, in one piece and after a resume. Where python3 has tensorboard, that reads it too.

  SONDE_BIN=build/sonde tests/train_events_test.py
"""
import json
import math
import os
import shutil
import struct
import subprocess
import sys
import tempfile

BIN = os.environ["SONDE_BIN"]
NAME = "events.out.tfevents.0.sonde"
OF_STEP = ["loss", "lr", "grad_norm", "tokens_per_s"]
OF_LAYER = ["rms", "mean", "var", "grms", "update", "entropy"]


def check(ok, what):
    if not ok:
        sys.exit("train_events_test: " + what)


# ---- a reader of its own ----------------------------------------------------------------------------------------------

def crc32c(data):
    """Division by the polynomial, bit by bit."""
    c = 0xFFFFFFFF
    for byte in data:
        for k in range(8):
            bit = (c ^ byte >> k) & 1
            c = c >> 1 ^ (0x82F63B78 if bit else 0)
    return c ^ 0xFFFFFFFF


def masked(data):
    c = crc32c(data)
    return ((c >> 15 | c << 17 & 0xFFFFFFFF) + 0xA282EAD8) & 0xFFFFFFFF


def records(raw):
    at = 0
    while at < len(raw):
        length, check_length = struct.unpack_from("<QI", raw, at)
        check(masked(raw[at:at + 8]) == check_length, f"byte {at}: check of the length")
        data = raw[at + 12:at + 12 + length]
        check(len(data) == length, f"byte {at}: cut")
        check(struct.unpack_from("<I", raw, at + 12 + length)[0] == masked(data), f"byte {at}: check of the data")
        yield data
        at += 16 + length


def varint(b, at):
    v = shift = 0
    while True:
        v |= (b[at] & 127) << shift
        at += 1
        if b[at - 1] < 128:
            return v, at
        shift += 7


def fields(b):
    at = 0
    while at < len(b):
        key, at = varint(b, at)
        wire = key & 7
        if wire == 0:
            v, at = varint(b, at)
        elif wire == 1:
            v, at = struct.unpack_from("<d", b, at)[0], at + 8
        elif wire == 5:
            v, at = struct.unpack_from("<f", b, at)[0], at + 4
        else:
            check(wire == 2, f"wire type {wire}")
            n, at = varint(b, at)
            v, at = b[at:at + n], at + n
        yield key >> 3, v


def events(path):
    """-> [(step, {tag: value})], after the version."""
    out, last = [], 0.0
    for i, data in enumerate(records(open(path, "rb").read())):
        e = dict(fields(data))
        check(1.7e9 < e[1] < 1e10 and e[1] >= last, f"event {i}: time {e[1]} after {last}")
        last = e[1]
        if i == 0:
            check(e[3] == b"brain.Event:2" and 5 not in e, "the first event is not the version")
            continue
        values = [dict(fields(v)) for k, v in fields(e[5]) if k == 1]
        out.append((e[2], {v[1].decode(): v[2] for v in values}))
        check(len(out[-1][1]) == len(values), f"event {i}: a tag twice")
    return out


# ---- what it must say -------------------------------------------------------------------------------------------------

def f32(v):
    return struct.unpack("<f", struct.pack("<f", v))[0]


def wanted(line):
    tags = {k: line[k] for k in OF_STEP + ["valid_loss", "accuracy"] if k in line}
    for l in line.get("layers", []):
        tags.update({f"{k}/{l['name']}": l[k] for k in OF_LAYER if l[k] is not None})
    return tags


def same(out):
    lines = [json.loads(l) for l in open(os.path.join(out, "metrics.jsonl"))]
    got = events(os.path.join(out, NAME))
    check([s for s, _ in got] == [l["step"] for l in lines], f"{out}: other steps than metrics.jsonl")
    for (step, tags), line in zip(got, lines):
        want = wanted(line)
        check(tags.keys() == want.keys(), f"{out}: step {step} has {sorted(tags)}, not {sorted(want)}")
        for k in want:
            check(math.isclose(tags[k], f32(want[k]), rel_tol=3e-7), f"{out}: step {step}: {k} is {tags[k]}, not {want[k]}")
    check(any("rms/layers.1" in t and "entropy/layers.0" in t and "update/outside" in t for _, t in got), f"{out}: no layers")
    check(sum("valid_loss" in t for _, t in got) >= 2, f"{out}: no validation")


def train(*args):
    r = subprocess.run([BIN, "train", *args], capture_output=True, text=True, timeout=300)
    check(r.returncode == 0, f"{args}: exit {r.returncode}: {r.stderr}")


def resumed(start, top):
    """Steps behind the checkpoint are cut off and written once; half a record at the end goes."""
    out = os.path.join(top, "resumed")
    train(*start, "--steps", "6", "--save-every", "4", "-o", out)
    path = os.path.join(out, NAME)
    shutil.rmtree(os.path.join(out, "checkpoints", "6"))
    open(path, "ab").write(b"half a record")
    train("--resume", out)
    same(out)
    check([s for s, t in events(path) if "loss" in t] == list(range(1, 7)), "a resumed run repeats or lacks steps")
    result = json.load(open(os.path.join(out, "result.json")))
    for m in result["heatmaps"]:
        check(m["columns"] == [1, 2, 3, 4, 5, 6], f"{m['title']}: a resumed run shows steps {m['columns']}")
        check([r["name"] for r in m["rows"]] == ["layers.0", "layers.1"], f"{m['title']}: rows {m['rows']}")
    os.remove(path)
    train("--resume", out, "--steps", "8")
    check([s for s, t in events(path) if "loss" in t] == [7, 8], "without an event file a resumed run begins one")


def by_tensorboard(out):
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError:
        print("python3 has no tensorboard: not asked")
        return
    a = EventAccumulator(out, size_guidance={"scalars": 0})
    a.Reload()
    for step, tags in events(os.path.join(out, NAME)):
        for tag, v in tags.items():
            check((step, v) in [(e.step, e.value) for e in a.Scalars(tag)], f"tensorboard: {tag} of step {step}")
    print("tensorboard reads", len(a.Tags()["scalars"]), "curves")


def main():
    check(crc32c(b"123456789") == 0xE3069283, "the test's own check sum")
    top = tempfile.mkdtemp(prefix="train-events-")
    try:
        data = os.path.join(top, "text")
        open(data, "w").write("the sea of time was a door and we open it slowly. " * 400)
        start = ["pre", "layers=2", "width=32", "--data", data, "--batch", "4", "--tokens", "16", "--eval-every", "2",
                 "--eval-batches", "1", "--monitor-every", "1", "--threads", "1"]
        out = os.path.join(top, "plain")
        train(*start, "--steps", "6", "-o", out)
        same(out)
        by_tensorboard(out)
        resumed(start, top)
    finally:
        shutil.rmtree(top)


if __name__ == "__main__":
    main()
