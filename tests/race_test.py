#!/usr/bin/env python3
"""The race of `sonde demo`: all wirings from the same text, draws and batches; curves in shared panels; the command that its
note gives repeats a wiring exactly; out of time or interrupted, what was run is kept. `demo --quick` leaves it out.

  SONDE_BIN=build/sonde tests/race_test.py
"""
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

BIN = os.environ["SONDE_BIN"]
TEXT = os.path.join(os.environ.get("SONDE_SOURCE_DIR", os.path.dirname(os.path.dirname(os.path.abspath(__file__)))),
                    "data", "austen", "austen.txt")
WIRINGS = ["post", "pre", "deepnorm", "b2t"]


def check(ok, what):
    if not ok:
        sys.exit("race_test: " + what)


def sonde(*args, code=0):
    r = subprocess.run([BIN, *args], capture_output=True, text=True, timeout=300)
    check(r.returncode == code, f"{args}: exit {r.returncode}, not {code}: {r.stderr}")
    return r


def result(*path):
    return json.load(open(os.path.join(*path, "result.json")))


def panel(record, title):
    found = [p for p in record["panels"] if p["title"] == title]
    check(len(found) == 1, f"{len(found)} panels '{title}'")
    return found[0]


def quick(top):
    out = os.path.join(top, "quick")
    r = sonde("demo", "race", "--quick", "-o", out, "--threads", "2")
    d = result(out)
    check(d["schema"] == "sonde.train/1", d["schema"])
    check([u["label"] for u in d["runs"]] == WIRINGS, "wirings " + str([u["label"] for u in d["runs"]]))
    for title in ["Loss", "Loss in validation", "Norm of the gradient", "Learning rate"]:
        series = panel(d, title)["series"]
        check([s["label"] for s in series] == WIRINGS, f"{title}: {[s['label'] for s in series]}")
        check(len({len(s["x"]) for s in series}) == 1 and series[0]["x"][-1] == 20, f"{title}: steps {series[0]['x']}")
    loss = {s["label"]: s["y"] for s in panel(d, "Loss")["series"]}
    check(len({tuple(y) for y in loss.values()}) == 4, "two wirings have the same losses")
    check(all(abs(y[0] - 4.317) < 0.2 for y in loss.values()), f"first losses {[y[0] for y in loss.values()]}, not near ln 75")
    check(all(y[-1] < y[0] for y in loss.values()), "a wiring learned nothing")
    check(sorted({m["label"] for m in d["heatmaps"]}) == sorted(WIRINGS), "a wiring has no map of its layers")
    rows = {row[0]: row for row in d["tables"][0]["rows"]}
    check([rows[w][1] for w in WIRINGS] == ["20"] * 4, str(rows))
    page = open(os.path.join(out, "report.html")).read()
    check(page.count('<figure class="panel" data-panel=') == 4, "panels are not shared")
    check(page.count('<figure class="panel" data-heatmap=') == 16, "maps")
    text = open(os.path.join(out, "austen.txt"), "rb").read()
    check(200000 < len(text) <= 262144 and text.endswith(b"\n"), f"a text of {len(text)} bytes")
    if os.path.exists(TEXT):
        check(open(TEXT, "rb").read(len(text)) == text, "another text than data/austen")
    return d, r.stderr


def repeated(d, notes):
    """The note's command is the race's own run: the same losses, bit by bit as far as the record has digits."""
    found = re.search(r"`sonde (train WIRING [^`]*)`", " ".join(notes.split()))
    check(found, "no command in: " + notes)
    for wiring in ["post", "b2t"]:
        args = shlex.split(found[1].replace("WIRING", wiring))
        again = json.loads(sonde(*args, "--json", "--threads", "1").stdout)
        mine = [s["y"] for s in panel(d, "Loss")["series"] if s["label"] == wiring][0]
        check(panel(again, "Loss")["series"][0]["y"] == mine, f"{args}: other losses than the race's")


def behind_the_panels(top):
    out = os.path.join(top, "both")
    r = sonde("demo", "closed-forms", "race", "--quick", "-o", out)
    check("The race" in r.stdout and "closed form" in r.stdout.lower(), "stdout shows one of the two")
    check(result(out)["schema"] == "sonde.demo/1" and len(result(out, "race")["runs"]) == 4, "two records")
    page = open(os.path.join(out, "report.html")).read()
    check("<h3>Loss</h3>" in page and "losed form" in page, "the page shows one of the two")
    alone = os.path.join(top, "alone")
    sonde("demo", "closed-forms", "--quick", "-o", alone)
    check(not os.path.exists(os.path.join(alone, "race")), "a race that nobody asked for")


def only_when_there_is_time(top):
    out = os.path.join(top, "limit")
    check("no room for the race" in sonde("demo", "--time-limit", "1ms", "-o", out).stderr, "the race is not part of the demo")
    check("room for the race" not in sonde("demo", "--quick", "--time-limit", "1ms", "-o", out).stderr, "--quick has a race")
    check("race" in sonde("demo", "--list").stdout, "--list lacks the race")
    r = sonde("demo", "race", "--time-limit", "400ms", "-o", out)
    check(re.search(r"post.*: out of time after step \d+ of 800", " ".join(r.stderr.split())), r.stderr)
    d = result(out)
    steps = [int(row[1]) for row in d["tables"][0]["rows"]]
    check(len(steps) == 4 and all(1 <= s < 800 for s in steps), f"out of time after {steps} steps")


def interrupted(top):
    """SIGINT keeps the wirings that are done and what the one at work has."""
    out = os.path.join(top, "cut")
    for wait in [1, 4, 16, 60]:  # a busy machine needs longer for the first steps
        p = subprocess.Popen([BIN, "demo", "race", "-o", out], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        time.sleep(wait)
        p.send_signal(signal.SIGINT)
        err = p.communicate(timeout=120)[1]
        check(p.returncode == 130, f"exit {p.returncode}: {err}")
        if os.path.exists(os.path.join(out, "result.json")):
            break
    check("interrupted after step" in " ".join(err.split()), err)
    series = panel(result(out), "Loss")["series"]
    check(1 <= len(series) <= 4 and series[0]["label"] == "post" and len(series[0]["x"]) >= 1, "what was run is lost")


def main():
    top = tempfile.mkdtemp(prefix="race-")
    try:
        repeated(*quick(top))
        behind_the_panels(top)
        only_when_there_is_time(top)
        interrupted(top)
    finally:
        shutil.rmtree(top)


if __name__ == "__main__":
    main()
