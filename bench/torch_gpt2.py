#!/usr/bin/env python3
"""GPT-2 124M at init, forward and backward, written plainly in PyTorch: learned positions, pre-LN, gelu (tanh form),
tied head. The upstream gradient is N(0, 1) on the last norm's output (as `sonde measure gpt2`) or that of the language
model's loss (`--loss`); logits are made either way. One line of JSON per line on stdin, until it ends: seconds of one
forward and backward pass (drawing weights and inputs excluded), peak memory in MiB, the BLAS in use.

usage: torch_gpt2.py plain|loss BATCH TOKENS THREADS"""
import json
import resource
import sys
import time

import torch
from common import blas
from torch_block import GPT

VOCAB, CONTEXT, WIDTH, LAYERS, HEADS = 50257, 1024, 768, 12, 12


def main():
    loss, batch, length = sys.argv[1] == "loss", int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(int(sys.argv[4]))
    torch.manual_seed(0)
    net = GPT(LAYERS, WIDTH, HEADS, VOCAB, CONTEXT)
    tokens, targets = torch.randint(VOCAB, (2, batch, length))
    upstream = torch.randn(batch, length, WIDTH)
    for _ in sys.stdin:
        net.zero_grad(set_to_none=True)
        start = time.perf_counter()
        x = net.stream(tokens)
        logits = x @ net.embed.weight.T
        if loss:
            torch.nn.functional.cross_entropy(logits.view(-1, VOCAB), targets.view(-1)).backward()
        else:
            x.backward(upstream)
        seconds = time.perf_counter() - start
        mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"seconds": seconds, "mib": mib, "blas": blas()}), flush=True)


main()
