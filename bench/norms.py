#!/usr/bin/env python3
"""sonde's norms beside PyTorch's, f32, in one process and in turns: LayerNorm, RMSNorm and residual add + LayerNorm,
forward and backward (all gradients; behind the sum also that of the residual). PyTorch's LayerNorm backward is called
without its autograd; it runs in its most tuned setting (common.py), and sonde writes into arrays that are there.
Medians over the rounds, the ratio is the median of theirs.

usage: norms.py LIBSONDE [--rounds N] [--threads N] [--shapes 32768x768,8192x4096] [--cpu]
--cpu: processor time of one thread in place of time, for a machine that others use"""
import argparse
import ctypes
import os
import sys
import time

from common import median, show_setting, spread, torch_python, tuned_settings

args = argparse.ArgumentParser()
args.add_argument("library")
args.add_argument("--rounds", type=int, default=9)
args.add_argument("--threads", type=int, default=2)
args.add_argument("--shapes", default="32768x768,8192x4096")
args.add_argument("--cpu", action="store_true")
o = args.parse_args()
if "SONDE_NORMS" not in os.environ:  # the loader and the allocator read the setting when a process starts
    python = torch_python() or sys.exit("norms.py: no Python here has PyTorch (apt-get install python3-torch)")
    os.execve(python, [python, *sys.argv], {**os.environ, **tuned_settings()[-1], "SONDE_NORMS": "1"})

import torch  # noqa: E402

threads = 1 if o.cpu else o.threads
clock = time.process_time if o.cpu else time.perf_counter
torch.set_num_threads(threads)
F32, LAYER, RMS, EPS = 1, 1, 2, 1e-5
lib = ctypes.CDLL(os.path.abspath(o.library))


class Norm(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_int), ("type", ctypes.c_int), ("features", ctypes.c_int64), ("eps", ctypes.c_double),
                ("gain", ctypes.c_void_p), ("bias", ctypes.c_void_p), ("plus1", ctypes.c_int), ("threads", ctypes.c_int)]


def call(name, *a):
    if getattr(lib, name)(*(ctypes.c_void_p(v.data_ptr()) if isinstance(v, torch.Tensor) else v for v in a)):
        sys.exit(f"norms.py: {name} failed")


def jobs(rows, d):
    x, y, dz, ds, out, s = (torch.randn(rows, d) for _ in range(6))
    g, b, dg, db = (torch.randn(d) for _ in range(4))
    m, r = torch.empty(rows, dtype=torch.float64), torch.empty(rows, dtype=torch.float64)
    lib.sonde_norm_backward_scratch.restype = ctypes.c_size_t
    size = lib.sonde_norm_backward_scratch(ctypes.c_int64(rows), ctypes.c_int64(d))
    work, one, n = torch.empty(size // 8, dtype=torch.float64), ctypes.c_double(1), ctypes.c_int64(rows)
    layer = Norm(LAYER, F32, d, EPS, g.data_ptr(), b.data_ptr(), 0, threads)
    rms = Norm(RMS, F32, d, EPS, g.data_ptr(), None, 0, threads)
    to_layer, to_rms = ctypes.byref(layer), ctypes.byref(rms)
    _, mean, rstd = torch.native_layer_norm(x, [d], g, b, EPS)

    def back():
        return torch.ops.aten.native_layer_norm_backward(dz, x, [d], mean, rstd, g, b, [True, True, True])

    yield ("layer fwd", lambda: call("sonde_norm_forward", to_layer, n, x, out, m, r),
           lambda: torch.layer_norm(x, [d], g, b, EPS))
    yield ("layer bwd", lambda: call("sonde_norm_backward", to_layer, n, dz, x, m, r, None, out, dg, db, work), back)
    yield ("add+layer fwd", lambda: call("sonde_addnorm_forward", to_layer, n, one, x, one, y, s, out, m, r),
           lambda: torch.layer_norm(x + y, [d], g, b, EPS))
    call("sonde_norm_forward", to_layer, n, x, out, m, r)
    yield ("add+layer bwd", lambda: call("sonde_norm_backward", to_layer, n, dz, x, m, r, ds, out, dg, db, work),
           lambda: back()[0] + ds)
    yield ("rms fwd", lambda: call("sonde_norm_forward", to_rms, n, x, out, m, r),
           lambda: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * g)


def seconds(f):
    start = clock()
    f()
    return clock() - start


print(f"{threads} thread(s), {'processor time' if o.cpu else 'time'}, PyTorch {torch.__version__}: {show_setting(tuned_settings()[-1])}")
for shape in o.shapes.split(","):
    rows, d = (int(v) for v in shape.split("x"))
    for name, ours, theirs in jobs(rows, d):
        ours(), theirs()
        t = [(seconds(ours), seconds(theirs)) for _ in range(o.rounds)]
        ratio = [v / u for u, v in t]
        print(f"{name:14} {shape:11} sonde {median(u for u, _ in t) * 1e3:6.1f} ms  PyTorch {median(v for _, v in t) * 1e3:6.1f} ms"
              f"  PyTorch / sonde {median(ratio):.2f} ({spread(ratio)})", flush=True)
