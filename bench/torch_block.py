"""A pre-LN Transformer block, causal, gelu in its tanh form, and a GPT of such blocks (learned positions, tied head) of any
size, as one writes them plainly in PyTorch: of torch_gpt2.py, torch_train.py and torch_rounds.py."""
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


class GPT(torch.nn.Module):
    def __init__(self, layers, width, heads, vocab, context):
        super().__init__()
        self.embed, self.position = torch.nn.Embedding(vocab, width), torch.nn.Embedding(context, width)
        self.blocks = torch.nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = torch.nn.LayerNorm(width)
        for p in self.parameters():
            if p.dim() == 2:
                torch.nn.init.normal_(p, std=0.02)

    def stream(self, tokens):
        """The last norm's output."""
        t = tokens.shape[1]
        hidden = torch.ones(t, t, dtype=torch.bool).triu(1)
        x = self.embed(tokens) + self.position(torch.arange(t))
        for block in self.blocks:
            x = block(x, hidden)
        return self.norm(x)

    def forward(self, tokens):
        return self.stream(tokens) @ self.embed.weight.T
