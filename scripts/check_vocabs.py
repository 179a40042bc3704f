#!/usr/bin/env python3
"""Compares cohort's token ids with known ones and with other tokenizers', id for id.

usage: check_vocabs.py --tool BUILD/tests/unit/vocab_tool --models FOLDER [--model FILE] [--fuzz N] [--seed N] [NAME...]

FOLDER holds ggml-vocab-NAME.gguf with .inp and .out files beside them (llama.cpp's models folder). With --fuzz, N random
texts per vocabulary also go through llama-cpp-python (which must be importable); --model adds a vocabulary that has no
known answers.
"""
import argparse
import pathlib
import random
import struct
import subprocess
import sys

PIECES = [
    " ", "  ", "   ", "\n", "\n\n", "\t", "\r\n", " \n ", "a", "the", " the", "Hello", "WORLD", "iPhone", "ABCdef", "I'm", "we'll",
    "IT'S", "they'd", "'", "''", '"', "1", "22", "333", "4444", "3.14", "0x1F", "½", "²", "٣", ".", "...", "!?", ",", "--", "==", "->",
    "(", ")", "[x]", "{}", "<b>", "</b>", "<", ">", "/", "\\", "_", "____", "`", "~", "^", "$", "€", "+", "|", "#", "@", "%", "&", "*", ";", ":",
    "é", "ü", "ñ", "ç", "Ω", "ß", "λ", "Привет", " мир", "你好", "世界", "。", "、", "日本", "ひらがな", "カタカナ", "한국어", "안녕", "مرحبا", "שלום",
    "नमस्ते", "สวัสดี", "កាន់", "😀", "👩‍🚀", "🏳️‍🌈", "e\u0301", "\u200b", "\u00a0", "\u3000", "\u2028", "\ufeff", "\u0300", "\ufffd", "\x00", "\x7f", "𝔘", "𐍈",
    "http://x.y/z?q=1", "def f(x):\n    return x\n", "<s>x", "Ünï", "naïve", "œuvre", "Ångström", "ﬁ", "ǅ", "ʰ", "Ⅷ", "①", "々", "ー", "・",
]
# Only characters of old: newer ones depend on the Unicode version of the tables.
RANGES = [(0x20, 0x7E), (0xA1, 0x24F), (0x370, 0x3FF), (0x400, 0x45F), (0x4E00, 0x5200), (0x3041, 0x3096), (0xAC00, 0xAD00), (0x1F600, 0x1F640)]


def random_text(rng):
    parts = []
    for _ in range(rng.randint(1, 24)):
        kind = rng.random()
        if kind < 0.75:
            parts.append(rng.choice(PIECES))
        elif kind < 0.9:
            low, high = rng.choice(RANGES)
            parts.append("".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 6))))
        else:
            parts.append(rng.choice(PIECES) * rng.randint(2, 12))
    return "".join(parts)


def cohort_ids(tool, model, texts, flags=()):
    """A list of (ids, decoded bytes) or an error text per text; None if the vocabulary is refused."""
    data = b"".join(struct.pack("<I", len(t)) + t for t in texts)
    run = subprocess.run([tool, model, *flags], input=data, capture_output=True)
    if run.returncode:
        return None, run.stderr.decode().strip()
    out = []
    for line in run.stdout.decode().splitlines():
        if line.startswith("error"):
            out.append(line)
        else:
            ids, _, data = line.partition("\t")
            out.append(([int(i) for i in ids.split()], bytes.fromhex(data)))
    return out, run.stderr.decode().splitlines()[0]


class Peer:
    """llama.cpp's tokenizer through llama-cpp-python, without special tokens."""

    def __init__(self, model):
        import llama_cpp

        self.llama = llama_cpp.Llama(model, vocab_only=True, verbose=False)

    def ids(self, text):
        return self.llama.tokenize(text, add_bos=False, special=False)


def check_known(tool, model):
    texts = pathlib.Path(model + ".inp").read_bytes().split(b"\n__ggml_vocab_test__\n")
    lines = pathlib.Path(model + ".out").read_text().splitlines()
    texts = texts[: len(lines)]
    got, said = cohort_ids(tool, model, texts)
    if got is None:
        return f"refused: {said}", said.startswith("E_UNSUPPORTED")
    bad = [(t, g, w) for t, g, w in zip(texts, got, lines) if isinstance(g, str) or g[0] != [int(i) for i in w.split()]]
    for t, g, w in bad[:3]:
        print(f"  {t!r}\n    got  {g}\n    want {w}")
    return f"{len(texts) - len(bad)}/{len(texts)} known ({said})", not bad


def check_random(tool, model, n, seed):
    rng = random.Random(f"{seed} {pathlib.Path(model).name}")
    texts = [random_text(rng).encode() for _ in range(n)]
    got, said = cohort_ids(tool, model, texts)
    if got is None:
        return f"refused: {said}", said.startswith("E_UNSUPPORTED")
    same = decoded = shown = 0
    peer = Peer(model)
    for t, g in zip(texts, got):
        w = peer.ids(t)
        if isinstance(g, str) or g[0] != w:
            if shown < 3:
                print(f"  {t!r}\n    got  {g if isinstance(g, str) else g[0]}\n    peer {w}")
            shown += 1
        else:
            same += 1
        decoded += not isinstance(g, str) and g[1] == t
    return f"{same}/{n} random as the peer's, {decoded}/{n} decode to the text", same == n


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", required=True)
    parser.add_argument("--models", required=True)
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--fuzz", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    ok = True
    models = sorted(str(p) for p in pathlib.Path(args.models).glob("ggml-vocab-*.gguf")) + args.model
    for model in models:
        name = pathlib.Path(model).name.removeprefix("ggml-vocab-").removesuffix(".gguf")
        if args.names and name not in args.names:
            continue
        if pathlib.Path(model + ".out").exists():
            text, good = check_known(args.tool, model)
            print(f"{name:16} {text}", flush=True)
            ok &= good
        if args.fuzz:
            text, good = check_random(args.tool, model, args.fuzz, args.seed)
            print(f"{name:16} {text}", flush=True)
            ok &= good
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
