#!/usr/bin/env python3
"""The places and labels of a report's axes: neighbours have labels that differ, and there are enough of them, at any size of
numbers. Takes the functions out of the page's script; skipped where there is no node to run them."""
import json
import math
import os
import shutil
import subprocess
import sys

SCRIPT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "src", "report", "assets", "report.js")
# (which, from, to): linear in values, decades in log10
AXES = [("linear", a * 10**k, b * 10**k) for k in (-26, -9, -3, 0, 3, 6, 9, 26, 120) for a, b in ((1.04, 1.12), (1, 8), (2.4999, 2.5003), (0.2, 900))]
AXES += [("decade", k + a, k + b) for k in (-602, -26, -3, 0, 3, 6, 26, 602) for a, b in ((0.01, 0.05), (0, 0.11), (0.02, 0.3), (0.1, 0.95), (0.5, 1.4), (0.2, 7), (0, 400))]
POWERS = {c: str(i) for i, c in enumerate("\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")} | {"\u207b": "-"}


def log_of(label):
    """log10 of what a label says."""
    m, _, e = label.partition("\u00d710")
    if label[:2] == "10" and label[2:3] in POWERS:
        m, e = "1", label[2:]
    return math.log10(float(m)) + (int("".join(POWERS[c] for c in e)) if e else 0)


def main():
    node = shutil.which("node") or shutil.which("nodejs")
    if not node:
        print("report_ticks_test: skipped, no node")
        sys.exit(77)
    text = open(SCRIPT, encoding="utf-8").read()
    text = text[text.index("  // ---- numbers as text"):text.index("  // ---- plots")]
    text = "const isNum = (v) => typeof v === 'number' && isFinite(v);\n" + text + """
      const axes = JSON.parse(require('fs').readFileSync(0, 'utf8'));
      console.log(JSON.stringify(axes.map(([kind, a, b]) => kind === 'linear' ? linearTicks(a, b, 5, false) : decadeTicks(a, b, 5))));"""
    r = subprocess.run([node, "-e", text], input=json.dumps(AXES), capture_output=True, text=True, timeout=60)
    if r.returncode:
        sys.exit("report_ticks_test: " + r.stderr)
    bad = 0
    for (kind, a, b), ticks in zip(AXES, json.loads(r.stdout)):
        labels = [t["label"] for t in ticks]
        says = [log_of(l) for l in labels if l not in ("", "0")]
        at = [math.log10(t["v"]) if kind == "linear" else t["v"] for t in ticks if t["label"] not in ("", "0")]
        apart = min([y - x for x, y in zip(at, at[1:])] or [1])
        right = all(abs(x - y) < 0.4 * apart + 1e-9 for x, y in zip(says, at))
        if len(labels) < 2 or len(set(labels)) < len(labels) or not right or not all(a - 1e-9 * abs(a) <= t["v"] <= b + 1e-9 * abs(b) for t in ticks):
            print(f"report_ticks_test: {kind} {a} to {b}: {labels} at {[t['v'] for t in ticks]}")
            bad += 1
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
