#!/usr/bin/env python3
"""Whole training steps in PyTorch: a GPT (pre-LN, learned positions, tied head) of any size, forward, cross-entropy, backward,
clipping by the global norm, AdamW with `foreach`. One line of JSON per line on stdin, until it ends: seconds of one step,
peak memory in MiB, the BLAS in use.

usage: torch_train.py LAYERS WIDTH HEADS VOCAB BATCH TOKENS THREADS [f32|bf16]
bf16: forward pass and loss under autocast, as PyTorch means it to be used; weights, gradients and AdamW in f32"""
import json
import resource
import sys
import time

import torch
from common import blas
from torch_block import GPT


def main():
    layers, width, heads, vocab, batch, length, threads = map(int, sys.argv[1:8])
    half = sys.argv[8:] == ["bf16"]
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    net = GPT(layers, width, heads, vocab, length)
    matrices = [p for p in net.parameters() if p.dim() == 2]
    others = [p for p in net.parameters() if p.dim() != 2]
    adamw = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                              lr=1e-4, betas=(0.9, 0.95), foreach=True)
    tokens, targets = torch.randint(vocab, (2, batch, length))
    for _ in sys.stdin:
        start = time.perf_counter()
        adamw.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
            loss = torch.nn.functional.cross_entropy(net(tokens).view(-1, vocab), targets.view(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        adamw.step()
        seconds = time.perf_counter() - start
        mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"seconds": seconds, "mib": mib, "blas": blas()}), flush=True)


main()
