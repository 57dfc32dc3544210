#!/usr/bin/env python3
"""Ten steps of training, computed independently in double with PyTorch: tests/golden/train.tsv.

  tools/train_golden.py BUILD/train_test > tests/golden/train.tsv

train_test dumps the starting weights and the batches of a case; models, losses, gradients, clipping, AdamW and the
schedules are written here once more, from docs/formulas.md, the presets' files and the papers. Needs python3-torch.
"""
import math
import subprocess
import sys
import tempfile

import numpy as np
import torch

STEPS = 10


def read(path):
    """The tensors of a safetensors file."""
    import json
    raw = open(path, "rb").read()
    n = int.from_bytes(raw[:8], "little")
    kinds = {"F64": np.float64, "F32": np.float32, "I64": np.int64}
    out = {}
    for name, t in json.loads(raw[8:8 + n]).items():
        if name == "__metadata__":
            continue
        a, b = t["data_offsets"]
        x = np.frombuffer(raw[8 + n + a:8 + n + b], kinds[t["dtype"]]).reshape(t["shape"])
        out[name] = torch.from_numpy(x.astype(np.float64 if x.dtype == np.float32 else x.dtype))
    return out


def norm(w, site, x, eps):
    mean = x.mean(-1, keepdim=True)
    var = ((x - mean) ** 2).mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(var + eps) * w[site + ".weight"] + w[site + ".bias"]


def linear(w, site, x):
    return x @ w[site + ".weight"].T + w[site + ".bias"]


def attention(w, site, x, memory, heads, mask):
    """mask [B or 1, Tq, Tk]: True where a query may read a key."""
    b, t, d = x.shape
    split = lambda y: y.reshape(b, -1, heads, d // heads).transpose(1, 2)
    q, k, v = split(linear(w, site + ".q", x)), split(linear(w, site + ".k", memory)), split(linear(w, site + ".v", memory))
    scores = q @ k.transpose(-1, -2) / math.sqrt(d // heads)
    scores = scores.masked_fill(~mask[:, None], -math.inf)
    return linear(w, site + ".o", (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, d))


def gelu_tanh(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def gelu(x):
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def feed_forward(w, site, x, act):
    return linear(w, site + ".down", act(linear(w, site + ".up", x)))


def causal(t):
    return torch.ones(t, t, dtype=torch.bool).tril()[None]


def gpt(w, b):
    x = w["embed.token.weight"][b["tokens"]] + w["embed.position.weight"][:b["tokens"].shape[1]]
    mask = causal(x.shape[1])
    for i in range(2):
        u = norm(w, f"layers.{i}.A.N1", x, 1e-5)
        x = x + attention(w, f"layers.{i}.A", u, u, 2, mask)
        x = x + feed_forward(w, f"layers.{i}.M", norm(w, f"layers.{i}.M.N1", x, 1e-5), gelu_tanh)
    return norm(w, "out.N1", x, 1e-5) @ w["embed.token.weight"].T


def bert(w, b):
    x = w["embed.token.weight"][b["tokens"]] + w["embed.position.weight"][:b["tokens"].shape[1]]
    x = norm(w, "in.N1", x, 1e-12)
    mask = torch.ones(1, x.shape[1], x.shape[1], dtype=torch.bool)
    for i in range(2):
        x = norm(w, f"layers.{i}.A.N1", x + attention(w, f"layers.{i}.A", x, x, 2, mask), 1e-12)
        x = norm(w, f"layers.{i}.M.N1", x + feed_forward(w, f"layers.{i}.M", x, gelu), 1e-12)
    return x @ w["embed.token.weight"].T


def waves(t, d):
    p = torch.arange(t, dtype=torch.float64)[:, None]
    i = torch.arange(0, d, 2, dtype=torch.float64)
    angle = p * 10000.0 ** (-i / d)
    return torch.stack([angle.sin(), angle.cos()], -1).reshape(t, d)


def encdec(w, b):
    table = w["embed.token.weight"]
    d = table.shape[1]
    enter = lambda ids: table[ids] * math.sqrt(d) + waves(ids.shape[1], d)
    there = torch.arange(b["src_tokens"].shape[1])[None] < b["src_lengths"][:, None]  # no padding
    m = enter(b["src_tokens"])
    own = there[:, None, :].expand(-1, m.shape[1], -1)
    for i in range(2):
        s = f"encoder.layers.{i}."
        m = norm(w, s + "A.N1", m + attention(w, s + "A", m, m, 2, own), 1e-6)
        m = norm(w, s + "M.N1", m + feed_forward(w, s + "M", m, torch.relu), 1e-6)
    x = enter(b["tokens"])
    cross = there[:, None, :].expand(-1, x.shape[1], -1)
    for i in range(2):
        s = f"decoder.layers.{i}."
        x = norm(w, s + "A.N1", x + attention(w, s + "A", x, x, 2, causal(x.shape[1])), 1e-6)
        x = norm(w, s + "C.N1", x + attention(w, s + "C", x, m, 2, cross), 1e-6)
        x = norm(w, s + "M.N1", x + feed_forward(w, s + "M", x, torch.relu), 1e-6)
    return x @ table.T


def batch_norm(w, site, x):
    """Biased variance in the norm, the unbiased one in the running statistics, which move by a tenth."""
    mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3), unbiased=False)
    n = x.numel() / x.shape[1]
    with torch.no_grad():
        w[site + ".running_mean"] += 0.1 * (mean - w[site + ".running_mean"])
        w[site + ".running_var"] += 0.1 * (var * n / (n - 1) - w[site + ".running_var"])
    each = lambda v: v[None, :, None, None]
    return (x - each(mean)) / torch.sqrt(each(var) + 1e-5) * each(w[site + ".weight"]) + each(w[site + ".bias"])


def resnet(w, b):
    conv = lambda x, name, stride=1: torch.nn.functional.conv2d(x, w[name + ".weight"], stride=stride, padding=w[name + ".weight"].shape[-1] // 2)
    x = conv(b["x"], "in.conv1")
    for i in range(3):
        s, stride = f"layers.{i}.", 1 if i == 0 else 2
        u = torch.relu(batch_norm(w, s + "N1", x))
        h = torch.relu(batch_norm(w, s + "N2", conv(u, s + "conv1", stride)))
        x = (x if i == 0 else conv(u, s + "shortcut1", stride)) + conv(h, s + "conv2")
    return torch.relu(batch_norm(w, "out.N1", x)).mean((2, 3)) @ w["head.weight"].T


def loss_of(logits, targets, smooth):
    logp = logits.log_softmax(-1).reshape(-1, logits.shape[-1])
    t = targets.reshape(-1)
    logp, t = logp[t != -100], t[t != -100]
    return -((1 - smooth) * logp.gather(1, t[:, None])[:, 0] + smooth * logp.mean(1)).mean()


# Progress from 0 to below 1 behind the warm-up, as train.h defines it.
def rate(lr, step, warm, after):
    warm = max(warm, 1)
    return lr * step / warm if step <= warm else lr * after(step, warm, (step - warm) / (STEPS - warm + 1))


CASES = {
    "gpt": dict(model=gpt, smooth=0, clip=0.5, b2=0.95, decay=0.1, all=False,
                lr=lambda k: rate(0.01, k, 3, lambda s, w, p: 0.1 + 0.9 * (1 + math.cos(math.pi * p)) / 2)),
    "bert": dict(model=bert, smooth=0, clip=0, b2=0.999, decay=0.2, all=False,
                 lr=lambda k: rate(0.005, k, 0, lambda s, w, p: 1 - p)),
    "encdec": dict(model=encdec, smooth=0.1, clip=1, b2=0.98, decay=0.05, all=True,
                   lr=lambda k: rate(0.02, k, 4, lambda s, w, p: math.sqrt(w / s))),
    "resnet": dict(model=resnet, smooth=0, clip=1, b2=0.99, decay=0.1, all=False, lr=lambda k: rate(0.01, k, 2, lambda s, w, p: 1)),
}


def decays(name, w, everything):
    """-> (does it decay, where to)"""
    gain = name.endswith(".weight") and w.dim() == 1
    return everything or w.dim() >= 2, 1.0 if gain else 0.0


def run(name, binary):
    c = CASES[name]
    with tempfile.TemporaryDirectory() as d:
        subprocess.run([binary, "--dump", name, d], check=True)
        every = read(d + "/checkpoints/0/model.safetensors")
        batches = [read(f"{d}/batch-{k}.safetensors") for k in range(STEPS)]
    w = {k: x.requires_grad_() for k, x in every.items() if ".running_" not in k}
    m = {k: torch.zeros_like(v) for k, v in w.items()}
    v = {k: torch.zeros_like(x) for k, x in w.items()}
    for k, b in enumerate(batches, 1):
        loss = loss_of(c["model"](every, b), b["targets"], c["smooth"])
        grads = dict(zip(w, torch.autograd.grad(loss, list(w.values()))))
        length = math.sqrt(sum(float((g ** 2).sum()) for g in grads.values()))
        lr = c["lr"](k)
        print(name, "step", k, repr(float(loss)), repr(length), repr(lr), sep="\t")
        scale = min(1.0, c["clip"] / length) if c["clip"] else 1.0
        with torch.no_grad():
            for n, x in w.items():
                g = grads[n] * scale
                m[n] = 0.9 * m[n] + 0.1 * g
                v[n] = c["b2"] * v[n] + (1 - c["b2"]) * g * g
                pulled, rest = decays(n, x, c["all"])
                if pulled:
                    x -= lr * c["decay"] * (x - rest)
                x -= lr * (m[n] / (1 - 0.9 ** k)) / (torch.sqrt(v[n] / (1 - c["b2"] ** k)) + 1e-8)
    for n, x in sorted(every.items()):
        x = x.detach().numpy().ravel()
        print(name, "weight", n, repr(float(x @ np.cos(np.arange(x.size)))), repr(float(x @ x)), sep="\t")


if __name__ == "__main__":
    print("case", "kind", "step or name", "loss or dot", "gradient norm or square", "learning rate", sep="\t")
    for case in CASES:
        run(case, sys.argv[1])
