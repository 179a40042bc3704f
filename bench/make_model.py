#!/usr/bin/env python3
"""Makes model files unlike the default one, to measure with: random weights, as F16 first, then by llama-quantize. They go to
~/.cache/cohort/bench (or $COHORT_HOME/bench) as NAME.gguf; what is there is not made again. The vocabulary is a part of the default model's:
its bytes, its single characters, its most frequent pieces.

q4km-1b, q8-1b       a llama-like model of 0.9 billion weights, 1.6 GB in all
hybrid, attention    two of 0.55 billion as Q4_K_M: three layers of four are gated delta rules, or all are attention; the widths of the
                     feed-forward make up for the difference

usage: make_model.py [--peer FOLDER] [NAME ...]     without names: the first two. --peer: where llama-quantize is
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
TAPS = 4
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


def tokenizer(default_model):
    tokens, scores, types, (bos, eos, unknown) = vocabulary(default_model)
    return [
        pair("tokenizer.ggml.model", STRING, "llama"), pair("tokenizer.ggml.pre", STRING, "default"),
        listing("tokenizer.ggml.tokens", STRING, tokens), listing("tokenizer.ggml.scores", F32, scores),
        listing("tokenizer.ggml.token_type", I32, types), pair("tokenizer.ggml.bos_token_id", U32, bos),
        pair("tokenizer.ggml.eos_token_id", U32, eos), pair("tokenizer.ggml.unknown_token_id", U32, unknown),
        pair("tokenizer.ggml.add_bos_token", BOOL, True), pair("tokenizer.ggml.add_space_prefix", BOOL, False)]


def tensor_bytes(shape):
    return (4 if is_float(shape) else 2) * shape[0] * (1 if len(shape) == 1 else shape[1])


def is_float(shape):
    """Vectors and the taps of convolutions."""
    return len(shape) == 1 or shape[0] == TAPS


# ---- The models: pairs of the architecture, and (name, shape with the columns first) in the order of the file ----

class Llama:
    def metadata(self):
        return [
            pair("general.architecture", STRING, "llama"), pair("general.name", STRING, "random weights"), pair("general.file_type", U32, 1),
            pair("llama.context_length", U32, CONTEXT), pair("llama.embedding_length", U32, EMBEDDING), pair("llama.block_count", U32, LAYERS),
            pair("llama.feed_forward_length", U32, FFN), pair("llama.attention.head_count", U32, HEADS),
            pair("llama.attention.head_count_kv", U32, KV_HEADS), pair("llama.attention.layer_norm_rms_epsilon", F32, 1e-5),
            pair("llama.rope.dimension_count", U32, WIDTH), pair("llama.rope.freq_base", F32, 10000.0), pair("llama.vocab_size", U32, VOCAB)]

    def tensors(self):
        yield "token_embd.weight", (EMBEDDING, VOCAB)
        yield "output_norm.weight", (EMBEDDING,)
        yield "output.weight", (EMBEDDING, VOCAB)
        for i in range(LAYERS):
            for name, shape in (("attn_norm", (EMBEDDING,)), ("attn_q", (EMBEDDING, HEADS * WIDTH)), ("attn_k", (EMBEDDING, KV_HEADS * WIDTH)),
                                ("attn_v", (EMBEDDING, KV_HEADS * WIDTH)), ("attn_output", (HEADS * WIDTH, EMBEDDING)),
                                ("ffn_norm", (EMBEDDING,)), ("ffn_gate", (EMBEDDING, FFN)), ("ffn_up", (EMBEDDING, FFN)),
                                ("ffn_down", (FFN, EMBEDDING))):
                yield f"blk.{i}.{name}.weight", shape


class Qwen35:
    """In the shape of the published 0.8B, with a smaller vocabulary. Every `interval`-th layer is attention."""
    width, layers, heads, kv_heads, head = 1024, 24, 8, 2, 256
    delta_heads, delta_width = 16, 128

    def __init__(self, interval, ffn):
        self.interval, self.ffn = interval, ffn

    def metadata(self):
        inner = self.delta_heads * self.delta_width
        numbers = {"context_length": CONTEXT, "embedding_length": self.width, "block_count": self.layers, "feed_forward_length": self.ffn,
                   "attention.head_count": self.heads, "attention.head_count_kv": self.kv_heads, "attention.key_length": self.head,
                   "attention.value_length": self.head, "rope.dimension_count": self.head // 4, "full_attention_interval": self.interval,
                   "ssm.conv_kernel": TAPS, "ssm.state_size": self.delta_width, "ssm.group_count": self.delta_heads,
                   "ssm.time_step_rank": self.delta_heads, "ssm.inner_size": inner}
        return [
            pair("general.architecture", STRING, "qwen35"), pair("general.name", STRING, "random weights"), pair("general.file_type", U32, 1),
            pair("qwen35.attention.layer_norm_rms_epsilon", F32, 1e-6), pair("qwen35.rope.freq_base", F32, 1e7),
            listing("qwen35.rope.dimension_sections", I32, [11, 11, 10, 0])] + [pair(f"qwen35.{key}", U32, n) for key, n in numbers.items()]

    def tensors(self):
        yield "token_embd.weight", (self.width, VOCAB)
        yield "output_norm.weight", (self.width,)
        for i in range(self.layers):
            yield f"blk.{i}.attn_norm.weight", (self.width,)
            yield from self.attention(i) if (i + 1) % self.interval == 0 else self.delta(i)
            yield f"blk.{i}.post_attention_norm.weight", (self.width,)
            for name, shape in (("gate", (self.width, self.ffn)), ("up", (self.width, self.ffn)), ("down", (self.ffn, self.width))):
                yield f"blk.{i}.ffn_{name}.weight", shape

    def attention(self, i):
        for name, columns in (("q", 2 * self.heads * self.head), ("k", self.kv_heads * self.head), ("v", self.kv_heads * self.head)):
            yield f"blk.{i}.attn_{name}.weight", (self.width, columns)
        yield f"blk.{i}.attn_q_norm.weight", (self.head,)
        yield f"blk.{i}.attn_k_norm.weight", (self.head,)
        yield f"blk.{i}.attn_output.weight", (self.heads * self.head, self.width)

    def delta(self, i):
        inner = self.delta_heads * self.delta_width
        for name, shape in (("attn_qkv.weight", (self.width, 3 * inner)), ("attn_gate.weight", (self.width, inner)),
                            ("ssm_alpha.weight", (self.width, self.delta_heads)), ("ssm_beta.weight", (self.width, self.delta_heads)),
                            ("ssm_conv1d.weight", (TAPS, 3 * inner)), ("ssm_a", (self.delta_heads,)), ("ssm_dt.bias", (self.delta_heads,)),
                            ("ssm_norm.weight", (self.delta_width,)), ("ssm_out.weight", (inner, self.width))):
            yield f"blk.{i}.{name}", shape


LLAMA = Llama()
MODELS = {"q8-1b": (LLAMA, "Q8_0"), "q4km-1b": (LLAMA, "Q4_K_M"),
          "hybrid": (Qwen35(4, 3584), "Q4_K_M"), "attention": (Qwen35(1, 4352), "Q4_K_M")}


def constant(name):
    """Of a vector: norms 1, decays slow."""
    return -0.05 if name.endswith("ssm_a") else 1.0


def write(path, model, default_model):
    pairs, names = model.metadata() + tokenizer(default_model), list(model.tensors())
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(names), len(pairs)) + b"".join(pairs)
    offset = 0
    for name, shape in names:
        kind = TYPE_F32 if is_float(shape) else TYPE_F16
        head += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape) + struct.pack("<IQ", kind, offset)
        offset += (tensor_bytes(shape) + 31) // 32 * 32
    rng = random.Random(1)
    block = struct.pack(f"<{PERIOD}e", *(rng.gauss(0, 0.02) for _ in range(PERIOD)))
    with open(path, "wb") as out:
        out.write(head + bytes(-len(head) % 32))
        for name, shape in names:
            n = tensor_bytes(shape)
            if is_float(shape):
                out.write(array.array("f", [constant(name)] * (n // 4)).tobytes() + bytes(-n % 32))
                continue
            start = 2 * rng.randrange(PERIOD)
            turned = block[start:] + block[:start]
            while n:
                n -= out.write(turned[:n])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", type=pathlib.Path, default=common.PEER)
    parser.add_argument("names", nargs="*", metavar="NAME", default=["q8-1b", "q4km-1b"])
    args = parser.parse_args()
    for name in args.names:
        if name not in MODELS:
            parser.error(f"no model is called {name}; there are {', '.join(MODELS)}")
    quantize = args.peer / "llama-quantize"
    if not quantize.exists():
        sys.exit(f"make_model: no llama-quantize in {args.peer}")
    folder = common.HOME / "bench"
    missing = [name for name in args.names if not (folder / f"{name}.gguf").exists()]
    if not missing:
        return
    folder.mkdir(parents=True, exist_ok=True)
    plain, written = folder / "f16.partial.gguf", None
    common.note(f"making {' and '.join(missing)} in {folder}")
    try:
        for name in missing:
            model, kind = MODELS[name]
            if written is not model:
                write(plain, model, common.run([sys.executable, common.ROOT / "scripts" / "fetch_model.py", "--path"]).strip())
                written = model
            partial = folder / f"{name}.partial.gguf"
            common.run([quantize, plain, partial, kind])
            partial.replace(folder / f"{name}.gguf")
    finally:
        for left in folder.glob("*.partial.gguf"):
            left.unlink()


if __name__ == "__main__":
    main()
