#!/usr/bin/env python3
"""PyTorch's side of `sonde bench --against torch`: does the same work when it is told to (src/lab/rival.h has the protocol).
Threads, BLAS and malloc are set as is best for PyTorch before it starts: the script begins anew with that environment, and
with Debian's Python where this one has no PyTorch. Where PyTorch has torch.compile, both ways are tried and the faster stays.

usage: torch_rounds.py THREADS"""
import ctypes
import gc
import json
import math
import os
import sys
import time

from common import blas, show_setting, torch_python, tuned_settings

MARK = "SONDE_TORCH_ROUNDS"
HEAD = 64  # features of a head


def say(**answer):
    print(json.dumps(answer), flush=True)


def begin_tuned(threads):
    """Replaces this process by one with the environment that suits PyTorch. Returns only in that one."""
    if MARK in os.environ:
        return
    python = torch_python()
    if not python:
        say(error="python3 has no PyTorch (apt-get install python3-torch libopenblas0-openmp)")
        sys.exit(0)
    setting = {**tuned_settings()[-1], "OMP_NUM_THREADS": threads}
    os.execve(python, [python, os.path.abspath(__file__), threads], {**os.environ, **setting, MARK: show_setting(setting)})


begin_tuned(sys.argv[1])
import torch  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch_block import GPT  # noqa: E402

aten = torch.ops.aten


# ---- kernels: each returns what does the work once -------------------------------------------------------------------------


def gemm(how, m, n, k):
    a = torch.randn(k, m).T if how == "tn" else torch.randn(m, k)
    b = torch.randn(n, k).T if how == "nt" else torch.randn(k, n)
    out = torch.empty(m, n)
    return lambda: torch.mm(a, b, out=out)


def parameters_beside(dtype):
    """f32, as ours are; the rows' own type where this PyTorch takes no other (1.13)."""
    try:
        torch.native_layer_norm(torch.zeros(1, 8, dtype=dtype), [8], *torch.zeros(2, 8), 1e-5)
        return torch.float32
    except RuntimeError:
        return dtype


def norm_operands(rows, d, dtype=torch.float32):
    return *torch.randn(3, rows, d).to(dtype), *torch.randn(2, d).to(parameters_beside(dtype))


def layernorm_fwd(rows, d, _, **kind):
    x, _, _, g, b = norm_operands(rows, d, **kind)
    return lambda: torch.native_layer_norm(x, [d], g, b, 1e-5)


def layernorm_bwd(rows, d, _, **kind):
    x, dy, _, g, b = norm_operands(rows, d, **kind)
    _, mean, rstd = torch.native_layer_norm(x, [d], g, b, 1e-5)
    return lambda: aten.native_layer_norm_backward(dy, x, [d], mean, rstd, g, b, [True, True, False])


def rms(x, g):
    if hasattr(F, "rms_norm"):
        return F.rms_norm(x, x.shape[-1:], g, 1e-5)
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * g


def rmsnorm_fwd(rows, d, _):
    x, _, _, g, _ = norm_operands(rows, d)
    return fastest(lambda way: lambda: way(rms)(x, g))


def rmsnorm_bwd(rows, d, _):
    x, dy, _, g, _ = norm_operands(rows, d)
    x.requires_grad_(), g.requires_grad_()

    def make(way):
        y = way(rms)(x, g)
        return lambda: torch.autograd.grad(y, (x, g), dy, retain_graph=True)

    return fastest(make)


def add_norm(x, y, g, b):
    s = x + y
    return s, F.layer_norm(s, s.shape[-1:], g, b, 1e-5)


def addnorm_fwd(rows, d, _, **kind):
    x, y, _, g, b = norm_operands(rows, d, **kind)
    return fastest(lambda way: lambda: way(add_norm)(x, y, g, b))


def addnorm_bwd(rows, d, _, **kind):
    x, dy, plus, g, b = norm_operands(rows, d, **kind)
    _, mean, rstd = torch.native_layer_norm(x, [d], g, b, 1e-5)

    def run():
        dx, _dg, _ = aten.native_layer_norm_backward(dy, x, [d], mean, rstd, g, b, [True, True, False])
        dx.add_(plus)

    return run


def attend(q, k, v):
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    t = q.shape[-2]
    hidden = torch.ones(t, t, dtype=torch.bool).triu(1)
    scores = (q @ k.transpose(-2, -1)).mul_(1 / math.sqrt(HEAD)).masked_fill_(hidden, -math.inf)
    return torch.softmax(scores, dim=-1) @ v


def attention(batch, tokens, heads, dtype=torch.float32):
    q, k, v = (torch.randn(batch, heads, tokens, HEAD, dtype=dtype, requires_grad=True) for _ in range(3))
    dout = torch.randn(batch, heads, tokens, HEAD, dtype=dtype)
    return fastest(lambda way: lambda: torch.autograd.grad(way(attend)(q, k, v), (q, k, v), dout))


def loss(rows, vocab, _, dtype=torch.float32):
    logits, targets = torch.randn(rows, vocab, dtype=dtype, requires_grad=True), torch.arange(rows) % vocab
    return fastest(lambda way: lambda: torch.autograd.grad(way(F.cross_entropy)(logits, targets), logits))


def act_fwd(f, rows, d, _):
    x = torch.randn(rows, d)
    return lambda: f(x)


def act_bwd(f, rows, d, _):
    x, dy = torch.randn(2, rows, d)
    return lambda: f(dy, x)


def optimizer(groups, **settings):
    """AdamW in one kernel where this PyTorch has that for CPUs, else tensor by tensor in few calls."""
    try:
        return torch.optim.AdamW(groups, fused=True, **settings)
    except (RuntimeError, TypeError):
        return torch.optim.AdamW(groups, foreach=True, **settings)


def adamw(rows, d, _):
    w = torch.nn.Parameter(torch.randn(rows, d))
    w.grad = torch.randn(rows, d)
    o = optimizer([w], lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1)
    return o.step


def conv(part, batch, side, channels):
    form = {"memory_format": torch.channels_last}
    x, dy = (torch.randn(batch, channels, side, side).to(**form) for _ in range(2))
    w = torch.randn(channels, channels, 3, 3).to(**form)
    if part == "fwd":
        return lambda: F.conv2d(x, w, padding=1)
    mask = [part == "dx", part == "dw", False]
    return lambda: aten.convolution_backward(dy, x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, mask)


# ---- training steps ---------------------------------------------------------------------------------------------------------


class Residual(torch.nn.Module):
    """x + W2 relu(W1 norm(x)), W2 to begin with at half of W1's variance."""

    def __init__(self, width):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up, self.down = (torch.nn.Linear(width, width, bias=False) for _ in range(2))

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


def mlp(layers, width, outputs):
    blocks = [Residual(width) for _ in range(layers)]
    stem, head = torch.nn.Linear(width, width, bias=False), torch.nn.Linear(width, outputs, bias=False)
    return torch.nn.Sequential(stem, *blocks, torch.nn.LayerNorm(width), head)


class Stage(torch.nn.Module):
    def __init__(self, into, width, stride):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(into, width, 3, stride, 1, bias=False)
        self.conv2 = torch.nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = torch.nn.BatchNorm2d(width), torch.nn.BatchNorm2d(width)
        self.shortcut = torch.nn.Conv2d(into, width, 1, stride, bias=False) if into != width else torch.nn.Identity()

    def forward(self, x):
        h = torch.relu_(self.norm1(self.conv1(x)))
        return torch.relu_(self.norm2(self.conv2(h)) + self.shortcut(x))


def resnet(blocks):
    """He et al. 2015, section 4.2: three stages of so many blocks; 3 is ResNet-20."""
    layers, into = [torch.nn.Conv2d(3, 16, 3, 1, 1, bias=False), torch.nn.BatchNorm2d(16), torch.nn.ReLU(inplace=True)], 16
    for stage, width in enumerate((16, 32, 64)):
        for i in range(blocks):
            layers.append(Stage(into, width, 2 if stage and i == 0 else 1))
            into = width
    pool = [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(64, 10, bias=False)]
    return torch.nn.Sequential(*layers, *pool).to(memory_format=torch.channels_last)


def step(net, x, targets):
    """Forward, cross-entropy, backward, clipping, AdamW that decays matrices."""
    matrices = [p for p in net.parameters() if p.dim() >= 2]
    others = [p for p in net.parameters() if p.dim() < 2]
    adam = optimizer([{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}], lr=1e-4, betas=(0.9, 0.95))

    def make(way):
        forward = way(net)

        def run():
            adam.zero_grad(set_to_none=True)
            F.cross_entropy(forward(x).flatten(0, -2), targets).backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            adam.step()

        return run

    return fastest(make)


def step_gpt(layers, width, heads, vocab, batch, tokens):
    x, targets = torch.randint(vocab, (2, batch, tokens))
    return step(GPT(layers, width, heads, vocab, tokens), x, targets.flatten())


def step_mlp(layers, width, outputs, batch):
    return step(mlp(layers, width, outputs), torch.randn(batch, width), torch.randint(outputs, (batch,)))


def step_resnet(blocks, batch):
    x = torch.randn(batch, 3, 32, 32).to(memory_format=torch.channels_last)
    return step(resnet(blocks), x, torch.randint(10, (batch,)))


# ---- asked ------------------------------------------------------------------------------------------------------------------

ACTIVATIONS = {
    "gelu": (F.gelu, aten.gelu_backward),
    "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), lambda dy, x: aten.gelu_backward(dy, x, approximate="tanh")),
    "silu": (F.silu, aten.silu_backward),
}
HALVES = {"layernorm-fwd": layernorm_fwd, "layernorm-bwd": layernorm_bwd, "addnorm-fwd": addnorm_fwd,
          "addnorm-bwd": addnorm_bwd, "attention": attention, "loss": loss}  # on bf16 too
CASES = {
    **{f"{name}-bf16": lambda *sizes, f=f: f(*sizes, dtype=torch.bfloat16) for name, f in HALVES.items()},
    **{f"gemm-{how}": lambda *sizes, how=how: gemm(how, *sizes) for how in ("nn", "nt", "tn")},
    **{f"conv-{part}": lambda *sizes, part=part: conv(part, *sizes) for part in ("fwd", "dx", "dw")},
    **HALVES, "rmsnorm-fwd": rmsnorm_fwd, "rmsnorm-bwd": rmsnorm_bwd,
    **{f"{name}-fwd": lambda *sizes, f=f: act_fwd(f, *sizes) for name, (f, _) in ACTIVATIONS.items()},
    **{f"{name}-bwd": lambda *sizes, f=f: act_bwd(f, *sizes) for name, (_, f) in ACTIVATIONS.items()},
    "adamw": adamw,
    "step-gpt": step_gpt, "step-mlp": step_mlp, "step-resnet": step_resnet,
}


def seconds(run, least, now=time.perf_counter):
    """Of one call, over as many as fill `least`."""
    calls, start = 0, now()
    while calls == 0 or now() - start < least:
        run()
        calls += 1
    return (now() - start) / calls


def fastest(make):
    """make(way) gives what does the work, way(f) being f or its compiled form."""
    plain = make(lambda f: f)
    if not hasattr(torch, "compile"):
        return plain
    try:
        compiled = make(torch.compile)
        compiled(), plain()
        return min(plain, compiled, key=lambda run: seconds(run, 0.05))
    except Exception:  # no compiler, or not for this
        return plain


def peak_start():
    """Gives back what earlier cases took, and counts memory from here."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
        with open("/proc/self/clear_refs", "w", encoding="ascii") as f:
            f.write("5")
    except (OSError, AttributeError):
        pass


def peak_mib():
    with open("/proc/self/status", encoding="ascii") as f:
        return next((int(line.split()[1]) / 1024 for line in f if line.startswith("VmHWM:")), None)


def main():
    threads = int(sys.argv[1])
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    torch.mm(torch.randn(8, 8), torch.randn(8, 8))  # opens the BLAS
    say(name=f"PyTorch {torch.__version__}", setting=f"{blas()}; {threads} threads; {os.environ[MARK]}")
    run = None
    for line in sys.stdin:
        word, *rest = line.split()
        try:
            if word == "case":
                run = None
                peak_start()
                run = CASES[rest[0]](*map(int, rest[1:]))
                run()
                say()
            else:
                now = time.process_time if rest[1:] == ["cpu"] else time.perf_counter
                say(seconds=seconds(run, float(rest[0]), now), mib=peak_mib())
        except Exception as e:
            say(error=f"{line.strip()}: {type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}")


main()
