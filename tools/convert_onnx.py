#!/usr/bin/env python3
"""Turns node tests of the ONNX project into what tests/onnx_test.c reads: convert_onnx.py FOLDER OUT

FOLDER holds one folder per case (test_NAME/model.onnx, test_NAME/test_data_set_0/{input,output}_N.pb), as the onnx package
brings them in onnx/backend/test/data/node. OUT gets tensors.safetensors, where equal tensors stand once, and index.tsv: case,
operator, attributes, inputs and outputs as role=tensor. Run once; nothing of this is needed to build or to test.
"""
import json
import os
import struct
import sys

OPERATORS = ("Attention", "Gelu", "LayerNormalization", "LogSoftmax", "NegativeLogLikelihoodLoss", "RMSNormalization",
             "RotaryEmbedding", "Softmax", "SoftmaxCrossEntropyLoss", "Swish")
LEFT_OUT = (  # a query without any key: zeros there, an error here (docs/onnx.md)
    "attention_23_boolmask_fullymasked_row_nan_robustness", "attention_23_fullymasked_qk_matmul_output_mode3_zero",
    "attention_24_fullymasked_qk_matmul_output_mode3_zero", "attention_24_qk_matmul_output_mode3_softmax_precision",
    "attention_causal_boolmask_nan_robustness", "attention_4d_causal_nonpad_negative_offset_structural_empty",
    # seven dimensions: six are the most here
    "nllloss_NCd1d2d3d4d5_mean_weight", "nllloss_NCd1d2d3d4d5_none_no_weight", "sce_NCd1d2d3d4d5_mean_weight",
    "sce_NCd1d2d3d4d5_mean_weight_log_prob", "sce_NCd1d2d3d4d5_none_no_weight",
    "sce_NCd1d2d3d4d5_none_no_weight_log_prob")
DTYPES = {1: ("F32", 4), 7: ("I64", 8), 9: ("BOOL", 1), 10: ("F16", 2)}  # TensorProto.DataType


def fields(message):
    """(number, value) of each field of a protobuf message; bytes for what has a length or a fixed width."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = varint()
        kind = key & 7
        if kind == 0:
            yield key >> 3, varint()
            continue
        size = {1: 8, 5: 4}[kind] if kind != 2 else varint()
        yield key >> 3, message[at:at + size]
        at += size


def tensor(path):
    """(role, dtype, shape, bytes) of a TensorProto file."""
    dims, kind, raw, role = [], 0, b"", ""
    for number, value in fields(open(path, "rb").read()):
        if number == 1:
            dims.append(value)
        elif number == 2:
            kind = value
        elif number == 8:
            role = value.decode()
        elif number == 9:
            raw = value
    dtype, size = DTYPES[kind]
    n = 1
    for d in dims:
        n *= d
    if len(raw) != n * size:
        sys.exit(f"{path}: {len(raw)} bytes for {n} elements of {dtype}")
    return role, dtype, dims, raw


def attribute(message):
    name, text = "", ""
    for number, value in fields(message):
        if number == 1:
            name = value.decode()
        elif number == 2:
            text = f"{struct.unpack('<f', value)[0]:.9g}"
        elif number == 3:
            text = str(value - (1 << 64) if value >> 63 else value)
        elif number == 4:
            text = value.decode()
    return f"{name}={text}"


def node(path):
    """(operator, attributes) of the only node of a model."""
    graph = next(v for n, v in fields(open(path, "rb").read()) if n == 7)
    message = next(v for n, v in fields(graph) if n == 1)
    operator = next(v for n, v in fields(message) if n == 4).decode()
    return operator, sorted(attribute(v) for n, v in fields(message) if n == 5)


def write_safetensors(path, tensors):
    size = {name: width for name, width in DTYPES.values()}
    header, data = {}, b""
    for name, (dtype, dims, raw) in sorted(tensors.items(), key=lambda t: (-size[t[1][0]], t[0])):
        header[name] = {"dtype": dtype, "shape": dims, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def main(folder, out):
    tensors, known, lines = {}, {}, []
    for name in sorted(os.listdir(folder)):
        case = name.removeprefix("test_")
        if case in LEFT_OUT or not os.path.exists(f"{folder}/{name}/model.onnx"):
            continue
        operator, attributes = node(f"{folder}/{name}/model.onnx")
        if operator not in OPERATORS:
            continue
        roles = {"input": [], "output": []}
        for file in sorted(os.listdir(f"{folder}/{name}/test_data_set_0")):
            role, *value = tensor(f"{folder}/{name}/test_data_set_0/{file}")
            key = json.dumps(value[:2]).encode() + value[2]
            if key not in known:
                known[key] = f"{case}.{role}"
                tensors[known[key]] = value
            roles[file.split("_")[0]].append(f"{role}={known[key]}")
        lines.append([case, operator, " ".join(attributes) or "-", " ".join(roles["input"]), " ".join(roles["output"])])
    write_safetensors(f"{out}/tensors.safetensors", tensors)
    with open(f"{out}/index.tsv", "w", encoding="utf-8") as f:
        for line in [["case", "operator", "attributes", "inputs", "outputs"]] + lines:
            f.write("\t".join(line) + "\n")
    print(f"{len(lines)} cases, {len(tensors)} tensors")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
