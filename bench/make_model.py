#!/usr/bin/env python3
"""Makes two model files unlike the default one, to measure with: a llama-like model of 0.9 billion random weights, as F16 first, then by
llama-quantize as Q4_K_M and Q8_0. They go to ~/.cache/cohort/bench (or $COHORT_HOME/bench) as q4km-1b.gguf and q8-1b.gguf, 1.6 GB in
all; what is there is not made again. The vocabulary is a part of the default model's: its bytes, its single characters, its most frequent pieces.

usage: make_model.py [--peer FOLDER]     --peer: where llama-quantize is
"""
import argparse
import array
import pathlib
import random
import struct
import sys

import common

EMBEDDING, LAYERS, FFN, HEADS, KV_HEADS, VOCAB, CONTEXT = 2048, 18, 5632, 32, 8, 32000, 8192
WIDTH = EMBEDDING // HEADS
U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", U32: "I", I32: "i", F32: "f", BOOL: "?", 10: "Q", 11: "q", 12: "d"}
TYPE_F32, TYPE_F16 = 0, 1
NORMAL, BYTE = 1, 6
FILES = {"q8-1b": "Q8_0", "q4km-1b": "Q4_K_M"}
PERIOD = 1000003  # random values made; tensors take them again and again, each from another place on


# ---- The vocabulary ----

class Reader:
    def __init__(self, path):
        self.file = open(path, "rb")

    def scalar(self, kind):
        return struct.unpack("<" + SCALARS[kind], self.file.read(struct.calcsize("<" + SCALARS[kind])))[0]

    def value(self, kind):
        if kind == STRING:
            return self.file.read(self.scalar(10))
        if kind != ARRAY:
            return self.scalar(kind)
        kind, n = self.scalar(U32), self.scalar(10)
        return [self.value(kind) for _ in range(n)]

    def metadata(self):
        magic, version = self.file.read(4), self.scalar(U32)
        if magic != b"GGUF" or version != 3:
            sys.exit("make_model: the default model is no GGUF file of version 3")
        n = struct.unpack("<QQ", self.file.read(16))[1]
        return {self.value(STRING).decode(): self.value(self.scalar(U32)) for _ in range(n)}


def vocabulary(path):
    """(tokens, scores, types, ids of bos, eos, unknown) of VOCAB tokens."""
    meta = Reader(path).metadata()
    tokens, scores, types = (meta[f"tokenizer.ggml.{key}"] for key in ("tokens", "scores", "token_type"))
    named = [meta[f"tokenizer.ggml.{key}_token_id"] for key in ("bos", "eos", "unknown")]
    single = [i for i, t in enumerate(tokens) if types[i] == NORMAL and len(t.decode(errors="replace")) == 1]
    keep = set(named) | {i for i, kind in enumerate(types) if kind == BYTE} | set(single[:4000])
    for i, kind in enumerate(types):
        if len(keep) == VOCAB:
            break
        if kind == NORMAL:
            keep.add(i)
    order = sorted(keep)
    return [tokens[i] for i in order], [scores[i] for i in order], [types[i] for i in order], [order.index(i) for i in named]


# ---- The file ----

def text(value):
    data = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(data)) + data


def pair(key, kind, value):
    data = text(value) if kind == STRING else struct.pack("<" + SCALARS[kind], value)
    return text(key) + struct.pack("<I", kind) + data


def listing(key, kind, values):
    data = b"".join(text(v) for v in values) if kind == STRING else struct.pack(f"<{len(values)}{SCALARS[kind]}", *values)
    return text(key) + struct.pack("<IIQ", ARRAY, kind, len(values)) + data


def metadata(default_model):
    tokens, scores, types, (bos, eos, unknown) = vocabulary(default_model)
    return [
        pair("general.architecture", STRING, "llama"), pair("general.name", STRING, "random weights"), pair("general.file_type", U32, 1),
        pair("llama.context_length", U32, CONTEXT), pair("llama.embedding_length", U32, EMBEDDING), pair("llama.block_count", U32, LAYERS),
        pair("llama.feed_forward_length", U32, FFN), pair("llama.attention.head_count", U32, HEADS),
        pair("llama.attention.head_count_kv", U32, KV_HEADS), pair("llama.attention.layer_norm_rms_epsilon", F32, 1e-5),
        pair("llama.rope.dimension_count", U32, WIDTH), pair("llama.rope.freq_base", F32, 10000.0), pair("llama.vocab_size", U32, VOCAB),
        pair("tokenizer.ggml.model", STRING, "llama"), pair("tokenizer.ggml.pre", STRING, "default"),
        listing("tokenizer.ggml.tokens", STRING, tokens), listing("tokenizer.ggml.scores", F32, scores),
        listing("tokenizer.ggml.token_type", I32, types), pair("tokenizer.ggml.bos_token_id", U32, bos),
        pair("tokenizer.ggml.eos_token_id", U32, eos), pair("tokenizer.ggml.unknown_token_id", U32, unknown),
        pair("tokenizer.ggml.add_bos_token", BOOL, True), pair("tokenizer.ggml.add_space_prefix", BOOL, False)]


def tensors():
    """(name, shape with the columns first), the order of the file."""
    yield "token_embd.weight", (EMBEDDING, VOCAB)
    yield "output_norm.weight", (EMBEDDING,)
    yield "output.weight", (EMBEDDING, VOCAB)
    for i in range(LAYERS):
        for name, shape in (("attn_norm", (EMBEDDING,)), ("attn_q", (EMBEDDING, HEADS * WIDTH)), ("attn_k", (EMBEDDING, KV_HEADS * WIDTH)),
                            ("attn_v", (EMBEDDING, KV_HEADS * WIDTH)), ("attn_output", (HEADS * WIDTH, EMBEDDING)),
                            ("ffn_norm", (EMBEDDING,)), ("ffn_gate", (EMBEDDING, FFN)), ("ffn_up", (EMBEDDING, FFN)),
                            ("ffn_down", (FFN, EMBEDDING))):
            yield f"blk.{i}.{name}.weight", shape


def tensor_bytes(shape):
    return 4 * shape[0] if len(shape) == 1 else 2 * shape[0] * shape[1]


def write(path, default_model):
    pairs, names = metadata(default_model), list(tensors())
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(names), len(pairs)) + b"".join(pairs)
    offset = 0
    for name, shape in names:  # every size is a multiple of the alignment, 32
        kind = TYPE_F32 if len(shape) == 1 else TYPE_F16
        head += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape) + struct.pack("<IQ", kind, offset)
        offset += tensor_bytes(shape)
    rng = random.Random(1)
    block = struct.pack(f"<{PERIOD}e", *(rng.gauss(0, 0.02) for _ in range(PERIOD)))
    with open(path, "wb") as out:
        out.write(head + bytes(-len(head) % 32))
        for _, shape in names:
            n = tensor_bytes(shape)
            if len(shape) == 1:
                out.write(array.array("f", [1.0] * shape[0]).tobytes())
                continue
            start = 2 * rng.randrange(PERIOD)
            turned = block[start:] + block[:start]
            while n:
                n -= out.write(turned[:n])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", type=pathlib.Path, default=common.PEER)
    args = parser.parse_args()
    quantize = args.peer / "llama-quantize"
    if not quantize.exists():
        sys.exit(f"make_model: no llama-quantize in {args.peer}")
    folder = common.HOME / "bench"
    missing = {name: kind for name, kind in FILES.items() if not (folder / f"{name}.gguf").exists()}
    if not missing:
        return
    folder.mkdir(parents=True, exist_ok=True)
    plain = folder / "f16.partial.gguf"
    common.note(f"making {' and '.join(missing)} in {folder}")
    try:
        write(plain, common.run([sys.executable, common.ROOT / "scripts" / "fetch_model.py", "--path"]).strip())
        for name, kind in missing.items():
            partial = folder / f"{name}.partial.gguf"
            common.run([quantize, plain, partial, kind])
            partial.replace(folder / f"{name}.gguf")
    finally:
        for left in folder.glob("*.partial.gguf"):
            left.unlink()


if __name__ == "__main__":
    main()
