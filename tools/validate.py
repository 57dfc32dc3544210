#!/usr/bin/env python3
"""Theory against measurement: every wiring of the catalogue that an mlp can hold, the nets of a lecture's plots, formulas
of our own, and formulas drawn at random. For each, ten networks are measured at width 512 and depth 64; the mean over seeds of log q, cos and
log gq of the stream after every layer is held against the 95 % and 99.9 % bands, and against the infinite-width theory.

    tools/validate.py --sonde build/sonde                 # all of it, some minutes
    tools/validate.py --only pre,our-3,random-17          # some of it, with every layer outside its band
    tools/validate.py --docs docs/theory.md               # also writes the page's table between its two marks
    tools/validate.py --theory                            # infinite-width algebra alone, at width 2048 and depth 8
    tools/validate.py --tokens                            # Transformers: another table and criterion, see below

Exit status 1 when the criterion is missed: 90 % of all layers inside their 95 % band, and no entry with more than
10 % of its layers outside the 99.9 % band.

With --tokens: every wiring that a Transformer can have as a decoder and as an encoder, and pre and post with other parts,
five seeds, width 256, 24 layers, 4 x 64 tokens. Per layer, the mean over seeds must lie near the wide limit (q within
10 %, gq within 25 %, tokcos within 0.03) or inside the band of that mean. Exit status 1 when that holds for
fewer than 90 % of the layers.
"""
import argparse
import concurrent.futures
import hashlib
import json
import math
import os
import random
import subprocess
import sys

METRICS = ("q", "cos", "gq")
LOG = ("q", "gq")

# Formulas that no paper has: name, formula, further keys.
OURS = [
    ("our-1", "a gate that reads the stream, another that reads the branch",
     "each: f = F(RMS(x)); g = sigmoid(W(x)); x = g*x + (1 - g)*f*sigmoid(W(f) + 1)", ()),
    ("our-2", "two streams, each squashed differently",
     "in: y = x/2\neach: f = F(LN(x - y)); y = tanh(y + f/2); x = RMS(x + gelu(y))", ()),
    ("our-3", "a bilinear branch beside the block",
     "each: n = N(x); x = x + W(n)*W(n)/4 + F(n)/sqrt(l)\nout: x = N(x)", ("norm=rms",)),
    ("our-4", "one number per token decides how much the branch writes",
     "each: n = N(x); x = x + sigmoid(W(n, 1) - l/L)*F(n)\nout: x = N(x)", ()),
    ("our-5", "a bounded stream without any norm",
     "each: x = tanh(1.1*x + F(silu(x))/3)", ("block=W(gelu(W(u, n, gain=2)), d)",)),
    ("our-6", "batch norm on the branch's input, derf on its output",
     "each: x = x + DERF(F(relu(BN(x))))/sqrt(L)\nout: x = SN(x)", ()),
    ("our-7", "min, max and a ternary of the layer number",
     "each: f = F(LN(x)); x = l % 3 == 0 ? max(x, f) : l % 3 == 1 ? min(x, f) + x/2 : x - f/2", ()),
    ("our-8", "projections and sizes per token",
     "each: f = F(N(x)); x = x - dot(x, f)/dot(x, x)*x/2 + f/(1 + rms(x))*2 + unit(f)\nout: x = N(x)", ("norm=scale",)),
    ("our-9", "a stopped copy, a mixture over depth, a learned vector",
     "in: x = depthmix(x); z = x\neach: x = vector(0.9)*x + F(DYT(x)) - stop(z)/4; z = stop(x) + z/2\n"
     "layer: x = depthmix(x)\nout: x = DYT(x + z)", ()),
    ("our-10", "attention over depth between a softplus and an absolute value",
     "each: x = x/2 + F(LN(depthattn(abs(x))))*softplus(scalar(0.3))\nout: x = LN(depthattn(x))", ("block=one-matrix",)),
]

# The nets of the lecture's plots (one matrix per block, ReLU last, He-initialised stem), on inputs of cosine 0.29.
LECTURE = [
    ("lecture-" + name, title, formula, ("block=one-matrix", "inputs=784", "--cos=0.29"))
    for name, title, formula in (
        ("plain", "no skip", "each: x = F(x)\ninit: stem = he"),
        ("residual", "growth 2.904 per block, forward and backward", "in: x = relu(x)\neach: x = x + F(x)\ninit: stem = he"),
        ("pre", "norm before the branch and at the end", "in: x = relu(x)\neach: x = x + F(N(x))\nout: x = N(x)\ninit: stem = he"),
        ("batch", "no skip, batch norm after every ReLU", "in: x = BN(relu(x))\neach: x = BN(F(x))\ninit: stem = he"))
]

# Transformers: keys for both architectures, then what pre and post are varied by.
TOKENS = ("heads=4", "vocab=1000", "position=learned", "context=64")
PARTS = (("rope", ("position=rope",)), ("alibi", ("position=alibi",)), ("t5", ("position=t5",)), ("rms", ("norm=rms",)),
         ("gated", ("gated=true", "act=silu")), ("gqa", ("kv_heads=1",)), ("qk-norm", ("qk_norm=rms-head",)),
         ("window", ("window=8",)), ("llama-like", ("position=rope", "norm=rms", "gated=true", "act=silu", "kv_heads=2", "init=llama")))
NEAR = {"q": 0.10, "gq": 0.25, "tokcos": 0.03}  # relative, relative, absolute

# ---- formulas at random -------------------------------------------------------------------------------------------------


class Writer:
    """A small grammar. Size is kept in check the way a person would: a stream is normed, squashed or scaled down, or
    it grows and says so; nothing is avoided because its theory is hard."""

    def __init__(self, rng):
        self.r = rng

    def pick(self, *options):
        return self.r.choice(options)

    def chance(self, p):
        return self.r.random() < p

    def number(self):
        return self.pick("0.25", "0.3", "0.5", "0.7", "0.9", "1.2", "1.5")

    def norm(self, arg):
        return f"{self.pick('N', 'N', 'N', 'N0', 'LN', 'RMS', 'BN', 'SN', 'DYT', 'DERF')}({arg})"

    def squash(self, arg):
        return f"{self.pick('tanh', 'erf', 'gelu', 'silu', 'relu', 'gelu_tanh', 'sigmoid')}({arg})"

    def reading(self):
        """What the branch reads."""
        kinds = [lambda: self.norm("x")] * 5 + [lambda: "x", lambda: self.squash("x"), lambda: self.norm(self.squash("x")),
                 lambda: f"{self.norm('x')}/sqrt(l)", lambda: f"stop({self.norm('x')})", lambda: f"unit(x)*{self.pick('10', '20')}"]
        if self.second:
            kinds += [lambda: self.norm("x + y"), lambda: self.norm("x - y/2")] * 2
        if self.attn:
            kinds = [lambda: self.norm("depthattn(x)")]
        return self.r.choice(kinds)()

    def factor(self):
        """What multiplies the branch: constants, learned numbers, gates of many kinds."""
        return self.pick("", "", "", "/sqrt(l)", "/sqrt(L)", f"*{self.number()}", f"*scalar({self.number()})",
                         f"*vector({self.number()})", "*sigmoid(W(x))", "*sigmoid(W(f))", "*sigmoid(W(f, 1))", "*silu(f)",
                         "*tanh(W(f, gain=2))", "*(l % 2 == 0 ? 1 : 0.5)", "*(l <= L/2 ? 0.4 : 1)", "/(1 + rms(x))",
                         "*sigmoid(dot(f, x)/d)", f"*softplus(scalar({self.number()}))", "*exp(-l/L)")

    def join(self, b):
        """The stream's update from the branch b."""
        c = self.number()
        plain = [f"x + {b}"] * 4 + [f"({self.number()}*x + {b})"] + [f"x/sqrt(2) + {b}/2"]
        closed = [self.norm(f"x + {b}"), self.norm(f"{c}*x + {b}"), f"tanh(x + {b})", f"unit(x + {b})*sqrt(d)/2", f"max(x, {b})/2 + {b}/3",
                  f"min(x, {b}) + x/3", f"gelu({c}*x) + {b}", f"x - {b} + abs({b})/3", self.norm(f"gelu(x) + {b}"),
                  f"x + {b} - dot({b}, x)/dot(x, x)*x/2", f"(1 - sigmoid(W(x) - 1))*x + sigmoid(W(x) - 1)*{b}",
                  f"x + min(max({b}, -1), 1)"]
        return self.r.choice(plain if self.chance(0.55) else closed)

    def formula(self):
        self.second, self.attn = self.chance(0.25), False
        self.attn = not self.second and self.chance(0.1)
        lines = []
        start = []
        if self.chance(0.25):
            start.append(f"x = {self.pick(self.norm('x'), 'x*' + self.number(), 'unit(x)*sqrt(d)')}")
        mix = not self.attn and self.chance(0.1)
        if mix:
            start.append("x = depthmix(x)")
        if self.second:
            start.append(f"y = {self.pick('x', 'x/2', 'RMS(x)', 'tanh(x)')}")
        if start:
            lines.append("in: " + "; ".join(start))
        read = self.reading()
        body = [f"f = F({read})"]
        b = self.norm("f") if self.chance(0.15) else "f"
        branch = f"{b}{self.factor()}"
        if self.second:
            body.append(self.pick(f"y = y + f", f"y = {self.norm('y + f')}", f"y = y/2 + tanh(f)", f"y = (y + f)/sqrt(2)"))
        body.append(f"x = {self.join(branch)}")
        lines.append("each: " + "; ".join(body))
        if mix:
            lines.append("layer: x = depthmix(x)")
        if self.chance(0.7):
            end = self.pick("x", "x + y", "x - y/2") if self.second else "depthattn(x)" if self.attn else "x"
            lines.append(f"out: x = {self.norm(end)}")
        return "\n".join(lines)

    def block(self):
        act = self.pick("relu", "gelu", "silu", "tanh", "erf", "gelu_tanh", "softplus", "sigmoid", "abs")
        return self.pick(None, None, None, "one-matrix", f"W({act}(W(u, n, gain=2)), d)", f"{act}(W(u, d, gain=2))",
                         f"W({act}(W(u, n))*W(u, n), d)", f"W({act}(RMS(W(u, n))), d)")

    def draw(self):
        keys = []
        norm = self.pick("layer", "layer", "rms", "batch", "scale", "dyt", "derf")
        formula, block = self.formula(), self.block()
        if norm != "layer" and ("N(" in formula or "N0(" in formula):
            keys.append(f"norm={norm}")
        if block:
            keys.append(f"block={block}")
        return formula, tuple(keys)


def drawn(n, seed):
    rng = random.Random(seed)  # the Mersenne twister's stream is the same in every Python 3
    w = Writer(rng)
    return [(f"random-{i + 1}", "drawn", *w.draw()) for i in range(n)]


def catalogue(sonde, families=("any",)):
    """Entries that these families can hold; any: an mlp too, nothing called A, C or M, no convolution."""
    text = subprocess.run([sonde, "wirings", "--json"], check=True, capture_output=True, text=True).stdout
    out = []
    for w in json.loads(text)["wirings"]:
        if w["family"] in families:
            out.append((w["key"], w["title"], w["key"], ("cond=8",) if w["key"].startswith("adaln") else ()))
    return out


# ---- runs ---------------------------------------------------------------------------------------------------------------


def ask(a, verb, formula, keys, extra, keep=True):
    command = [a.sonde, verb, formula, f"width={a.width}", f"layers={a.layers}", *keys, "--json", "-q", *extra]
    stamp = hashlib.sha256("\0".join(command[1:]).encode()).hexdigest()[:24]
    place = os.path.join(a.cache, stamp + ".json") if a.cache and keep else None
    if place and os.path.exists(place):
        return json.load(open(place, encoding="utf-8"))
    p = subprocess.run(command, capture_output=True, text=True)
    if p.returncode != 0:
        return {"error": (p.stderr.strip().split("\n") or ["?"])[-1], "code": p.returncode}
    if place:
        os.makedirs(a.cache, exist_ok=True)
        with open(place + ".new", "w", encoding="utf-8") as f:
            f.write(p.stdout)
        os.replace(place + ".new", place)
    return json.loads(p.stdout)


def joined(measured, theory):
    """predictions and bands of the one beside the numbers of the other, value by value"""
    said = {v["name"]: v for v in theory["values"]}
    for v in measured["values"]:
        for part in ("predicted", "predicted_log10", "band", "band_log10", "band999", "band999_log10"):
            v[part] = said.get(v["name"], {}).get(part, {})
    return measured


def streams(doc):
    """value entries of the stream after each layer, in order"""
    out = {}
    for v in doc["values"]:
        part = v["name"].split(".")
        if len(part) == 3 and part[0] == "layers" and part[2] == "x":
            out[int(part[1])] = v
    return [out[l] for l in sorted(out)]


def get(v, what, metric):
    """a number on the metric's own scale (log10 for q and gq), None when there is none"""
    place = {"metrics": "log10", "predicted": "predicted_log10", "band": "band_log10", "band999": "band999_log10"}
    key = place.get(what, what) if metric in LOG else what
    return v.get(key, {}).get(metric)


class Score:
    def __init__(self):
        self.cells = self.inside = self.outside999 = self.bare = 0
        self.worst, self.where = 0.0, ""
        self.gap = {m: None for m in METRICS}
        self.centre_gap = {m: None for m in METRICS}
        self.misses = []


def score(doc):
    s = Score()
    for layer, v in enumerate(streams(doc)):
        for m in METRICS:
            got, band, wide = get(v, "metrics", m), get(v, "band", m), get(v, "band999", m)
            theory = get(v, "predicted", m)
            if got is None or band is None or band[0] is None:
                if got is not None and band is None:
                    s.bare += 1
                continue
            s.cells += 1
            z = v.get("z", {}).get(m) or 0
            if band[0] <= got <= band[1]:
                s.inside += 1
            if not wide[0] <= got <= wide[1]:
                s.outside999 += 1
                s.misses.append((layer, m, got, wide, theory))
            if abs(z) > abs(s.worst):
                s.worst, s.where = z, f"{m} after layer {layer + 1}"
            if theory is not None:
                for name, value in (("gap", got - theory), ("centre_gap", (band[0] + band[1]) / 2 - theory)):
                    have = getattr(s, name)
                    if have[m] is None or abs(value) > abs(have[m]):
                        have[m] = value
    return s


class Near:
    """Layers of one net that are near the wide limit, or inside the band of their mean, for each metric."""

    def __init__(self, doc):
        self.n, self.near, self.fine = {}, {}, {}
        self.gap, self.missed = {}, {}
        for m in NEAR:
            rows = [v for v in streams(doc) if get(v, "predicted", m) is not None]
            gaps = [self.distance(v, m) for v in rows]
            near = [abs(g) <= NEAR[m] for g in gaps]
            fine = [a or self.inside(v, m) for a, v in zip(near, rows)]
            self.n[m], self.near[m], self.fine[m] = len(rows), sum(near), sum(fine)
            self.gap[m] = max(gaps, key=abs, default=0)
            self.missed[m] = [layer + 1 for layer, ok in enumerate(fine) if not ok]

    @staticmethod
    def distance(v, m):
        got, theory = get(v, "metrics", m), get(v, "predicted", m)
        if got is None:
            return math.inf
        return math.expm1(min((got - theory) * math.log(10), 700)) if m in LOG else got - theory

    @staticmethod
    def inside(v, m):
        got, band = get(v, "metrics", m), get(v, "band", m)
        if got is None:
            return False
        return band is not None and band[0] is not None and band[0] <= got <= band[1]


# ---- output -------------------------------------------------------------------------------------------------------------


def number(v, digits=3):
    return "" if v is None else f"{v:+.{digits}f}"


def table(rows):
    head = ("entry", "inside 95 %", "outside 99.9 %", "worst z", "where", "measured - infinite width: log10 q", "cos", "log10 gq")
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for name, formula, keys, s in rows:
        if isinstance(s, str):
            lines.append(f"| {name} | {s} |" + " |" * (len(head) - 2))
            continue
        lines.append(f"| {name} | {100 * s.inside / max(s.cells, 1):.1f} | {100 * s.outside999 / max(s.cells, 1):.1f} | "
                     f"{s.worst:+.1f} | {s.where} | {number(s.gap['q'])} | {number(s.gap['cos'])} | {number(s.gap['gq'])} |")
    return "\n".join(lines)


def gap_text(m, gap):
    if m == "tokcos":
        return f"{gap:+.3f}"
    return "x1000" if gap > 1000 else f"x{1 + gap:.3g}" if gap > 9 else f"{100 * gap:+.0f} %"


def layers_text(layers):
    runs = []
    for l in layers:
        if runs and runs[-1][1] == l - 1:
            runs[-1][1] = l
        else:
            runs.append([l, l])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)


def near_row(name, s):
    cells = [name]
    for m in NEAR:
        cells += [f"{100 * s.near[m] / max(s.n[m], 1):.0f}", f"{100 * s.fine[m] / max(s.n[m], 1):.0f}", gap_text(m, s.gap[m])]
    missed = "; ".join(f"{m}: {layers_text(s.missed[m])}" for m in NEAR if s.missed[m])
    return "| " + " | ".join(cells + [missed]) + " |"


NEAR_HEAD = ("| net | q: near % | or in band % | largest gap | gq: near % | or in band % | largest gap | tokcos: near % | or in band % | "
             "largest gap | layers outside |\n" + "|---" * 11 + "|")


def formulas_text(rows):
    lines = []
    for name, formula, keys, _ in rows:
        if name.startswith(("lecture-", "our-", "random-")):
            one = formula.replace("\n", "  ")
            lines.append(f"- {name}: `{one}`" + (f" with `{' '.join(keys)}`" if keys else ""))
    return "\n".join(lines)


MARKS = ("<!-- table: tools/validate.py -->", "<!-- end of table -->")
TOKEN_MARKS = ("<!-- table: tools/validate.py --tokens -->", "<!-- end of the table of Transformers -->")


def put_in_page(path, text, marks):
    page = open(path, encoding="utf-8").read()
    if marks[0] not in page or marks[1] not in page:
        sys.exit(f"{path}: no '{marks[0]}' ... '{marks[1]}' to write between")
    before, rest = page.split(marks[0])
    after = rest.split(marks[1])[1]
    with open(path, "w", encoding="utf-8") as f:
        f.write(before + marks[0] + "\n" + text + "\n" + marks[1] + after)


def summary(a, rows):
    done = [s for _, _, _, s in rows if not isinstance(s, str)]
    cells, inside = sum(s.cells for s in done), sum(s.inside for s in done)
    bad = [name for name, _, _, s in rows if not isinstance(s, str) and s.cells and s.outside999 > 0.1 * s.cells]
    share = 100 * inside / max(cells, 1)
    text = (f"{len(done)} formulas, width {a.width}, depth {a.layers}, {a.seeds} seeds from {a.seed}: {share:.1f} % of {cells} layer means "
            f"inside their 95 % band; more than 10 % of the layers outside the 99.9 % band: {', '.join(bad) or 'none'}.")
    failed = [name for name, _, _, s in rows if isinstance(s, str)]
    if failed:
        text += f" Not run: {', '.join(failed)}."
    return text, share >= 90 and not bad and not failed


def check_theory(a, entries):
    """The algebra against simulated nets of large width, no weights drawn: centres, and widths of bands. What the algebra
    only estimates (it says so, and predict then shows a quick simulation) is marked ~ and may be off."""
    def one(e):
        name, _, formula, keys = e
        return (e, ask(a, "predict", formula, keys, ["--bands", "none"]), ask(a, "predict", formula, keys, ["--seed", "9"]),
                ask(a, "predict", formula, keys, ["--bands", "simulated"]))
    bad = 0
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        for (name, _, formula, keys), algebra, shown, sim in pool.map(one, entries):
            error = algebra.get("error") or shown.get("error") or sim.get("error")
            if error:
                print(f"{name}: {error}")
                bad += 1
                continue
            worst, ratio, estimate, wrong = {}, {"q": [], "gq": []}, False, False
            for layer, (p, t, v) in enumerate(zip(streams(algebra), streams(shown), streams(sim))):
                for m in METRICS:
                    theory, band, own = get(t, "predicted", m), get(v, "band", m), get(t, "band", m)
                    if band is None or band[0] is None:
                        continue
                    if theory is None:
                        wrong = True
                        continue
                    estimated = get(p, "predicted", m) != theory
                    estimate |= estimated
                    gap, half = (band[0] + band[1]) / 2 - theory, (band[1] - band[0]) / 2
                    if own and own[0] is not None and half > 1e-4 and not estimated:
                        ratio.get(m, []).append((own[1] - own[0]) / 2 / half)
                    wrong |= abs(gap) > 0.02 + half
                    if m not in worst or abs(gap) > abs(worst[m][0]):
                        worst[m] = (gap, half, layer)
            show = "  ".join(f"{m} {g:+.4f} (band +-{h:.4f}, layer {l + 1})" for m, (g, h, l) in worst.items())
            for m, r in ratio.items():
                if r and not (min(r) > 0.6 and max(r) < 1.6):
                    show += f"  algebra's band of {m} is {min(r):.2f} to {max(r):.2f} times as wide"
            bad += wrong
            print(f"{'?' if wrong else ' '} {'~' if estimate else ' '}{name}: {show}" + (f"   {formula!r} {keys}" if wrong else ""), flush=True)
    return bad


def with_keys(base, more):
    """more overrides base"""
    keys = dict(k.split("=", 1) for k in base)
    keys.update(k.split("=", 1) for k in more)
    return tuple(f"{k}={v}" for k, v in keys.items())


def transformers(sonde):
    nets = [(name, formula, keys) for name, _, formula, keys in catalogue(sonde, ("any", "transformer"))]
    nets += [(f"{w} {part}", w, keys) for w in ("pre", "post") for part, keys in PARTS]
    return [(f"{name}, {arch}", formula, with_keys(TOKENS, keys + (f"arch={arch}",)))
            for name, formula, keys in nets for arch in ("decoder", "encoder")]


def check_tokens(a):
    nets = transformers(a.sonde)
    if a.only:
        want = a.only.split(",")
        nets = [n for n in nets if n[0] in want or n[0].split(",")[0] in want]
    rows = []

    def one(net):
        seeds = ["--seeds", str(a.seeds)]
        doc = ask(a, "measure", net[1], net[2], [*seeds, "--seed", str(a.seed), "--no-params", "--bands", "none"])
        theory = ask(a, "predict", net[1], net[2], seeds, keep=False)  # in no time, and what may have changed
        for d in (doc, theory):
            if "error" in d:
                return net[0], d["error"]
        return net[0], Near(joined(doc, theory))
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        for name, s in pool.map(one, nets):
            if isinstance(s, str):
                sys.exit(f"{name}: {s}")
            rows.append((name, s))
            print(near_row(name, s), flush=True)
    share = {m: 100 * sum(s.fine[m] for _, s in rows) / max(sum(s.n[m] for _, s in rows), 1) for m in NEAR}
    outside = [name for name, s in rows if any(s.missed.values())]
    text = (f"{len(rows)} nets, width {a.width}, depth {a.layers}, {a.seeds} seeds from {a.seed}. Layers near the wide limit or inside the "
            f"band: q {share['q']:.1f} %, gq {share['gq']:.1f} %, tokcos {share['tokcos']:.1f} %. Nets with a layer outside: {len(outside)}.")
    print(text)
    if a.docs:
        table_ = "\n".join([NEAR_HEAD] + [near_row(name, s) for name, s in rows])
        put_in_page(a.docs, text + "\n\n" + table_, TOKEN_MARKS)
    return 0 if min(share.values()) >= 90 else 1


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0], formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--sonde", default="build/sonde")
    p.add_argument("--width", type=int)
    p.add_argument("--layers", type=int)
    p.add_argument("--seeds", type=int, help="10; with --tokens 5")
    p.add_argument("--seed", type=int, default=0, help="first seed of the networks")
    p.add_argument("--random", type=int, default=50, help="how many formulas are drawn")
    p.add_argument("--random-seed", type=int, default=1, help="of the formulas")
    p.add_argument("--only", help="names, separated by commas; catalogue, lecture, our and random stand for all of a kind")
    p.add_argument("--jobs", type=int, default=1)
    p.add_argument("--cache", help="folder in which results are kept and looked up")
    p.add_argument("--docs", help="page that gets the table")
    p.add_argument("--theory", action="store_true")
    p.add_argument("--tokens", action="store_true")
    p.add_argument("--list", action="store_true", help="print the formulas and stop")
    a = p.parse_args()
    a.width = a.width or (2048 if a.theory else 256 if a.tokens else 512)
    a.layers = a.layers or (8 if a.theory else 24 if a.tokens else 64)
    a.seeds = a.seeds or (5 if a.tokens else 10)
    if a.tokens:
        return check_tokens(a)
    kinds = {"catalogue": catalogue(a.sonde), "lecture": LECTURE, "our": OURS, "random": drawn(a.random, a.random_seed)}
    entries = [e for kind in kinds.values() for e in kind]
    if a.only:
        want = a.only.split(",")
        entries = [e for kind, list_ in kinds.items() for e in list_ if kind in want or e[0] in want]
    if a.list:
        for name, _, formula, keys in entries:
            print(f"{name}: {formula!r} {' '.join(keys)}")
        return 0
    if a.theory:
        return 1 if check_theory(a, entries) else 0

    def one(e):
        name, _, formula, keys = e
        doc = ask(a, "measure", formula, keys, ["--seeds", str(a.seeds), "--seed", str(a.seed), "--no-params"])
        return name, formula, keys, doc["error"] if "error" in doc else score(doc)
    rows = []
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        for row in pool.map(one, entries):
            rows.append(row)
            print(table([row]).split("\n")[-1], flush=True)
            if not isinstance(row[3], str):
                s = row[3]
                if a.only or s.outside999 > 0.1 * s.cells or s.bare:
                    print(f"    {row[1]!r} {row[2]} cells without band {s.bare}")
                    for layer, m, got, wide, theory in s.misses[:: max(1, len(s.misses) // 6)]:
                        print(f"    layer {layer + 1} {m}: {got:.5f}, 99.9 % [{wide[0]:.5f}, {wide[1]:.5f}], predicted {theory}")
    text, ok = summary(a, rows)
    print(text)
    if a.docs:
        put_in_page(a.docs, text + "\n\n" + table(rows) + "\n\nThe formulas that are not in the catalogue:\n\n" + formulas_text(rows), MARKS)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
