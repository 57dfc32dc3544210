#!/usr/bin/env python3
"""describe lists exactly the tensors of a case's weights file: every name, every shape, for every golden case.

Looks at tests/golden and, where it is there, at ../shared/golden, which holds Transformers and convnets too. Needs no
library: the header of a safetensors file is JSON.
"""
import json
import os
import struct
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDERS = [os.path.join(HERE, "golden"), os.path.join(HERE, "..", "..", "shared", "golden")]


def shapes(path):
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
    return {name: t["shape"] for name, t in header.items() if name != "__metadata__"}


def main():
    binary = os.environ.get("SONDE_BIN", "")
    if not os.path.exists(binary):
        print("no SONDE_BIN")
        return 77
    cases = [os.path.join(at, name) for at in FOLDERS if os.path.isdir(at) for name in sorted(os.listdir(at))]
    cases = [c for c in cases if os.path.exists(os.path.join(c, "weights.safetensors"))]
    bad = 0
    for case in cases:
        run = subprocess.run([binary, "describe", os.path.join(case, "spec.yaml"), "--json"], capture_output=True, text=True)
        got = {p["name"]: p["shape"] for p in json.loads(run.stdout)["params"]} if run.returncode == 0 else {}
        want = shapes(os.path.join(case, "weights.safetensors"))
        if got == want:
            continue
        bad += 1
        wrong = sorted(n for n in want.keys() | got.keys() if want.get(n) != got.get(n))
        print(f"{os.path.basename(case)}: {run.stderr.strip() or wrong[:6]}")
    print(f"{len(cases) - bad} of {len(cases)} cases")
    return 1 if bad or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
