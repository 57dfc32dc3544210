"""A pre-LN Transformer block, causal, gelu in its tanh form, as one writes it plainly in PyTorch: of torch_gpt2.py and
torch_train.py."""
import math

import torch


class Block(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def attention(self, x, hidden):
        b, t, d = x.shape
        q, k, v = (u.view(b, t, self.heads, d // self.heads).transpose(1, 2) for u in self.qkv(x).split(d, dim=2))
        scores = q @ k.transpose(-2, -1) / math.sqrt(d // self.heads)
        weights = torch.softmax(scores.masked_fill(hidden, -math.inf), dim=-1)
        return self.out((weights @ v).transpose(1, 2).reshape(b, t, d))

    def forward(self, x, hidden):
        x = x + self.attention(self.norm1(x), hidden)
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm2(x)), approximate="tanh"))
