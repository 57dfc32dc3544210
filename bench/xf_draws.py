"""The nets of xf_init.py's table with the very numbers that their makers drew: PyTorch's CPU generator seeded 0 to 4 for
the weights and 9000 to 9004 for tokens and targets. Found by search: the order below gives the table's x_0, and then every
other row. PyTorch itself is not needed: it is the Mersenne twister and Box and Muller's transform."""
import json
import math
import os
import struct
import subprocess

import numpy as np

ORDER = ("embed", "pos", "head", "q", "k", "v", "o", "up", "down")  # of roles; within one, from the first layer to the last
MATRICES = {"q": "A.q", "v": "A.v", "o": "A.o", "w1": "M.up", "w2": "M.down"}
DTYPES = {"F32": np.float32, "F64": np.float64, "I64": np.int64}


class Generator:
    """torch.manual_seed, torch.randn of a multiple of 16 numbers (f32) and torch.randint on the CPU"""

    def __init__(self, seed):
        self.twister = np.random.RandomState(seed)._bit_generator  # the seeding of 1998, as PyTorch's

    def normal(self, shape):
        u = (self.twister.random_raw(math.prod(shape)) & 0xffffff).astype(np.float32).reshape(-1, 2, 8) * np.float32(2 ** -24)
        radius = np.sqrt(-2 * np.log(1 - u[:, 0]))
        angle = np.float32(2 * math.pi) * u[:, 1]
        return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).reshape(shape)

    def integers(self, n, shape):
        return (self.twister.random_raw(math.prod(shape)) % n).astype(np.int64).reshape(shape)


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, a in tensors.items():
        dtype = next(k for k, v in DTYPES.items() if v == a.dtype)
        header[name] = {"dtype": dtype, "shape": a.shape, "data_offsets": [at, at + a.nbytes]}
        at += a.nbytes
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for a in tensors.values():
            f.write(np.ascontiguousarray(a).data)


def read_safetensors(path):
    """-> function from name to array in f64, read when asked for"""
    with open(path, "rb") as f:
        size = struct.unpack("<Q", f.read(8))[0]
        header = json.loads(f.read(size))
    data = np.memmap(path, np.uint8, "r", offset=8 + size)

    def tensor(name):
        t = header[name]
        return data[slice(*t["data_offsets"])].view(DTYPES[t["dtype"]]).reshape(t["shape"]).astype(np.float64)

    return tensor


def weights(params, seed):
    """sonde's own means and variances with the generator's normals -> {name: array}"""
    draw, drawn = Generator(seed), {}
    for role in ORDER:
        for p in params:
            if p["role"] == role:
                drawn[p["name"]] = draw.normal(p["shape"]) * np.float32(math.sqrt(p["var"]))
    constant = {p["name"]: np.full(p["shape"], p["mean"], np.float32) for p in params if p["role"] not in ORDER}
    assert all(p["var"] == 0 for p in params if p["name"] in constant)
    return drawn | constant


def cosine(x):
    """Mean cosine of pairs of tokens of a sequence, x [B,T,d]"""
    u = x / np.linalg.norm(x, axis=-1, keepdims=True)
    pairs = x.shape[1] * (x.shape[1] - 1)
    return ((np.square(u.sum(1)).sum(-1) - x.shape[1]) / pairs).mean()


def rms(x):
    return math.sqrt(np.square(x).mean())


def stream(x, before):
    """Quantities of one stream value and the one before it"""
    out = {"stream_variance": x.var(-1).mean(), "stream_second_moment": np.square(x).mean(), "token_cosine": cosine(x),
           "token_pearson": cosine(x - x.mean(-1, keepdims=True))}
    if before is not None:
        out["adjacent_cosine"] = ((x * before).sum(-1) / np.linalg.norm(x, axis=-1) / np.linalg.norm(before, axis=-1)).mean()
    return out


def quantities(sonde, keys, seed, layers, shape, vocab, folder):
    """-> {(quantity, layer): value} of one seed, by `sonde run`; folder: for files of twice the weights' size"""
    at = {name: os.path.join(folder, name + ".safetensors") for name in ("weights", "input", "output")}
    describe = subprocess.run([sonde, "describe", *keys, "--json"], check=True, stdout=subprocess.PIPE)
    write_safetensors(at["weights"], weights(json.loads(describe.stdout)["params"], seed))
    data = Generator(9000 + seed)
    tokens, targets = data.integers(vocab, shape), data.integers(vocab, shape)
    last = np.full(shape, -100)
    last[0, -1] = targets[0, -1]
    streams = ["in.x"] + [f"layers.{l}.x" for l in range(layers)]
    grads = [f"grad.{x}" for x in streams]
    taps = ["loss"] + streams + grads + [f"grad.layers.*.{m}.weight" for m in MATRICES.values()]
    out, mean_grads = {}, []
    for kind, wanted in (("meanloss", targets), ("oneposition", last)):
        write_safetensors(at["input"], {"tokens": tokens, "targets": wanted})
        subprocess.run([sonde, "run", *keys, "--weights", at["weights"], "--input", at["input"], "--output", at["output"],
                        "--backward", "--taps", ",".join(taps), "--threads", "1", "--quiet"], check=True)
        got = read_safetensors(at["output"])
        for short, matrix in MATRICES.items():
            for l in range(layers):
                out[f"gradnorm_{short}_{kind}", l + 1] = np.linalg.norm(got(f"grad.layers.{l}.{matrix}.weight"))
        if kind == "oneposition":
            for l in range(1, layers + 1):
                out["stream_grad_rms_sumloss", l] = rms(mean_grads[l] + got(grads[l])) * tokens.size
            break
        mean_grads = [got(name) for name in grads]
        out["stream_grad_rms_sumloss", 0] = rms(mean_grads[0]) * tokens.size
        out["loss", 0] = got("loss").item()
        before = None
        for l, name in enumerate(streams):
            x = got(name)
            out.update({(quantity, l): value for quantity, value in stream(x, before).items()})
            before = x
    for path in at.values():
        os.remove(path)
    return {key: float(value) for key, value in out.items()}
