#!/usr/bin/env python3
"""The signal probe written plainly in PyTorch, as a notebook does it: for every wiring and depth build the net, draw He
weights, run forward, send a random gradient back, note the output's mean square and the gradient's at the input.
Prints one JSON line: seconds (import excluded), peak memory in MiB, the BLAS in use, and the numbers, to compare with
sonde's."""
import json
import math
import resource
import sys
import time

import torch
from common import blas

WIDTH, BATCH, DEPTHS = 256, 256, [int(d) for d in sys.argv[1].split(",")]
torch.set_num_threads(int(sys.argv[2]) if len(sys.argv) > 2 else 2)


class Net(torch.nn.Module):
    def __init__(self, wiring, depth):
        super().__init__()
        self.wiring = wiring
        self.layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(depth))
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(WIDTH) for _ in range(depth + 1)) if wiring in ("pre", "post") else None
        for layer in self.layers:
            torch.nn.init.normal_(layer.weight, std=math.sqrt(2 / WIDTH))

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            if self.wiring == "plain":
                x = torch.relu(layer(x))
            elif self.wiring == "residual":
                x = x + torch.relu(layer(x))
            elif self.wiring == "pre":
                x = x + torch.relu(layer(self.norms[i](x)))
            else:
                x = self.norms[i](x + torch.relu(layer(x)))
        return self.norms[-1](x) if self.wiring == "pre" else x


start, out = time.perf_counter(), {}
for wiring in ("plain", "residual", "pre", "post"):
    for depth in DEPTHS:
        torch.manual_seed(0)
        net = Net(wiring, depth)
        x = torch.randn(BATCH, WIDTH, requires_grad=True)
        y = net(x)
        y.backward(torch.randn_like(y))
        out[f"{wiring}/{depth}"] = [float((y.detach() ** 2).mean()), float((x.grad**2).mean())]
seconds = time.perf_counter() - start
mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"seconds": seconds, "mib": mib, "blas": blas(), "numbers": out}))
