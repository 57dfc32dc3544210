#!/usr/bin/env python3
"""Grids of small training runs: which wirings train, at which depth, learning rate and warm-up. docs/training.md has the
tables that came of it.

  tools/experiments.py wirings --seeds 3          Post-LN with and without warm-up, pre, b2t, deepnorm, lns
  tools/experiments.py respost                    the learning-rate limit of res-post-norm and pre
  tools/experiments.py start                      is the token cosine at init a foreboding?
  tools/experiments.py --wirings pre,peri --layers 8 --lr 1e-3,1e-2 --warmup 0,50

A grid is a list of cells; the options override what it has. Every run is a `sonde train` of its own, a Transformer on the
characters of data/austen/austen.txt: width 128, 4 heads, 32 characters, 8 examples a step, 150 steps of Adam (0.9, 0.95) at
a constant rate behind a linear warm-up, without clipping, weight decay or dropout, xavier's weights, a head of its own.
Outcomes are cached outside the repository (--cache); a table needs no run that the cache holds.

  stuck      the last validation loss is not 2 % below the unigram entropy, that of a model that ignores its input
  diverged   sonde train ended with exit code 4
"""
import argparse
import concurrent.futures
import hashlib
import json
import math
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TEXT = os.path.join(ROOT, "data", "austen", "austen.txt")
MODEL = ["family=transformer", "width=128", "heads=4", "position=learned", "context=32", "tie=false"]
SAMPLE = ["--data", TEXT, "--tokens", "32", "--batch", "8", "--threads", "1", "--json", "--quiet"]
TRAINING = ["--optimizer", "adam", "--beta1", "0.9", "--beta2", "0.95", "--schedule", "constant", "--weight-decay", "0",
            "--clip", "0", "--eval-batches", "16"]
STEPS, MARGIN, Z95 = 150, 0.02, 1.959964
INITS = {"xavier": "xavier", "gpt2": "gpt2", "1/sqrt(L)": "xavier; q,k,v,o,up,down *= 1/sqrt(L)"}
GRIDS = {  # lists of (wirings, inits, layers, learning rates, warm-ups)
    "wirings": [("post,pre,b2t,deepnorm,lns", "xavier", "12,18", "3e-4,1e-3,3e-3", "0,50")],
    "respost": [("pre,respost", "xavier", "8,18", "1e-3,3e-3,1e-2,3e-2,1e-1", "50")],
    "start": [("post", "xavier", "4,6,8,10,12,18", "3e-4,1e-3", "50"), ("mixln,b2t,pre,lns,deepnorm,respost", "xavier", "18", "3e-4,1e-3", "50"),
              ("post", "gpt2,1/sqrt(L)", "18", "3e-4,1e-3", "50"), ("b2t", "xavier", "24,32", "3e-4,1e-3", "50")],
}


def cells(grid):
    """(wiring, init, layers, lr, warmup) of a grid, each once."""
    out = {}
    for wirings, inits, layers, rates, warmups in grid:
        for w in wirings.split(","):
            for i in inits.split(","):
                for n in layers.split(","):
                    for lr in rates.split(","):
                        out.update({(w, i, int(n), float(lr), int(k)): None for k in warmups.split(",")})
    return list(out)


def spec(wiring, init, layers):
    # A wiring's own rules (deepnorm's factors) come before those of the key, so the kind alone is left to the default.
    return [wiring, f"layers={layers}", *MODEL] + ([] if init == "xavier" else [f"init={INITS[init]}"])


# ---- one run ------------------------------------------------------------------------------------------------------------------


def sonde(args, o):
    """The program's JSON and exit code, from the cache where it has them."""
    shown = [a.replace(ROOT, ".") for a in args]
    path = os.path.join(o.cache, hashlib.sha256("\0".join(shown).encode()).hexdigest()[:24] + ".json")
    if os.path.exists(path) and not o.fresh:
        return json.load(open(path))
    if o.cached:
        return None
    p = subprocess.run([o.sonde, *args], capture_output=True, text=True, preexec_fn=lambda: os.nice(o.nice))
    if p.returncode not in (0, 4):
        sys.exit(f"sonde {' '.join(shown)}: exit {p.returncode}: {p.stderr}")
    out = {"args": shown, "exit": p.returncode, "out": json.loads(p.stdout)}
    temporary = path + f".{os.getpid()}"
    json.dump(out, open(temporary, "w"))
    os.replace(temporary, path)
    return out


def outcome(r, entropy):
    """What became of a run: (trains, stuck or diverged; best validation loss). None: it was not run."""
    if r is None:
        return None
    if r["exit"] == 4:
        return "diverged", math.nan
    s = r["out"]["summary"]["metrics"]
    return "trains" if s["valid_loss"] < (1 - MARGIN) * entropy else "stuck", s["best_valid_loss"]


def train(cell, seed, o):
    wiring, init, layers, lr, warmup = cell
    return sonde(["train", *spec(wiring, init, layers), *SAMPLE, *TRAINING, "--steps", str(o.steps), "--eval-every",
                  str(max(1, o.steps // 3)), "--lr", f"{lr:g}", "--warmup", str(warmup), "--seed", str(seed)], o)


def token_cosine(wiring, init, layers, o):
    """The token cosine of the last layer's stream at init, on the same text."""
    r = sonde(["measure", *spec(wiring, init, layers), "vocab=256", *SAMPLE, "--seeds", "3", "--bands", "none", "--no-params"], o)
    return math.nan if r is None else next(v["metrics"]["tokcos"] for v in r["out"]["values"] if v["name"] == f"layers.{layers - 1}.x")


def unigram_entropy():
    text = open(TEXT, "rb").read()
    return -sum(n / len(text) * math.log(n / len(text)) for n in (text.count(bytes([b])) for b in range(256)) if n)


# ---- tables -------------------------------------------------------------------------------------------------------------------


def wilson(k, n):
    """95 % interval of a share of which k of n were seen (Wilson 1927)."""
    p, z2 = k / n, Z95 * Z95
    middle, half = (p + z2 / (2 * n)) / (1 + z2 / n), Z95 * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return max(0.0, middle - half), min(1.0, middle + half)


def row(*fields):
    print("| " + " | ".join(str(f) for f in fields) + " |")


def head(*fields):
    row(*fields)
    print("|" + "---|" * len(fields))


def entry(runs):
    """Runs of a cell: the mean of the best losses, or how many failed, and how."""
    bad = [w for w, _ in runs if w != "trains"]
    kinds = " and ".join(sorted(set(bad)))
    good = [loss for w, loss in runs if w == "trains"]
    mean = f"{sum(good) / len(good):.2f}" if good else ""
    return mean if not bad else f"**{kinds}**" if not good else f"{mean}, **{len(bad)} of {len(runs)} {kinds}**"


def each_cell(found, start):
    """One row per net, one column per rate and warm-up."""
    columns = sorted({c[3:] for c in found})
    head("wiring", "init", "layers", "token cosine", *(f"{lr:g}{f', warm-up {k}' if k else ''}" for lr, k in columns))
    for net in dict.fromkeys(c[:3] for c in found):
        shown = [entry(found[net + c]) if net + c in found else "" for c in columns]
        row(*net, f"{start[net]:.3f}", *shown)
    print()


def shares(found):
    """Fraction stuck or diverged, over rates and seeds."""
    head("wiring", "init", "layers", "warm-up", "stuck", "diverged", "share", "95 % interval", "best loss", "at lr")
    for group in dict.fromkeys(c[:3] + c[4:] for c in found):
        runs = [(w, loss, c[3]) for c in found if c[:3] + c[4:] == group for w, loss in found[c]]
        stuck, diverged = (sum(w == kind for w, *_ in runs) for kind in ("stuck", "diverged"))
        low, high = wilson(stuck + diverged, len(runs))
        best = min(((loss, f"{lr:g}") for w, loss, lr in runs if w == "trains"), default=(math.nan, "-"))
        row(*group, stuck, diverged, f"{stuck + diverged} of {len(runs)}", f"{low:.2f} .. {high:.2f}",
            "-" if math.isnan(best[0]) else f"{best[0]:.2f}", best[1])
    print()


def limits(found):
    """The highest rate up to which every run of a net trains."""
    head("wiring", "init", "layers", "warm-up", "trains up to", "first that does not")
    for group in dict.fromkeys(c[:3] + c[4:] for c in found):
        rates = sorted(c[3] for c in found if c[:3] + c[4:] == group)
        fails = [lr for lr in rates if any(w != "trains" for w, _ in found[group[:3] + (lr,) + group[3:]])]
        below = [lr for lr in rates if not fails or lr < fails[0]]
        row(*group, f"{below[-1]:g}" if below else "-", f"{fails[0]:g}" if fails else "-")
    print()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("grid", nargs="?", choices=sorted(GRIDS))
    for name, what in [("wirings", "keys, comma between"), ("inits", ", ".join(INITS)), ("layers", "depths"),
                       ("lr", "learning rates"), ("warmup", "steps of warm-up")]:
        p.add_argument("--" + name, help=what)
    p.add_argument("--seeds", type=int, default=1)
    p.add_argument("--steps", type=int, default=STEPS)
    p.add_argument("--jobs", type=int, default=2, help="runs at a time, of one thread each")
    p.add_argument("--nice", type=int, default=10)
    p.add_argument("--sonde", default=os.path.join(ROOT, "build", "sonde"))
    p.add_argument("--cache", default=os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "sonde-experiments"))
    p.add_argument("--fresh", action="store_true", help="run again what the cache holds")
    p.add_argument("--cached", action="store_true", help="run nothing: a table of what the cache holds")
    o = p.parse_args()
    os.makedirs(o.cache, exist_ok=True)
    base = GRIDS.get(o.grid, [("pre", "xavier", "12", "1e-3", "50")])
    grid = cells([tuple(getattr(o, n) or old for n, old in zip(("wirings", "inits", "layers", "lr", "warmup"), g)) for g in base])
    entropy = unigram_entropy()
    with concurrent.futures.ThreadPoolExecutor(o.jobs) as pool:
        started = {c: pool.submit(token_cosine, *c, o) for c in dict.fromkeys(c[:3] for c in grid)}
        # seed by seed, so that a grid that is stopped has whole seeds
        runs = {(c, s): pool.submit(train, c, s, o) for s in range(o.seeds) for c in grid}
        for i, job in enumerate(concurrent.futures.as_completed([*started.values(), *runs.values()]), 1):
            job.result()
            print(f"\r{i} of {len(started) + len(runs)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    found = {c: [w for s in range(o.seeds) if (w := outcome(runs[c, s].result(), entropy))] for c in grid}
    found = {c: runs for c, runs in found.items() if runs}
    print(f"unigram entropy {entropy:.3f} nats per character, {o.seeds} seed{'s' * (o.seeds > 1)}, {o.steps} steps\n")
    each_cell(found, {c: job.result() for c, job in started.items()})
    shares(found)
    limits(found)


if __name__ == "__main__":
    main()
