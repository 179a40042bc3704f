#!/usr/bin/env python3
"""`make peer-check`: what needs llama.cpp beside us and is therefore not in CI: tokenizer pairs id for id, perplexity of an 8k-token text
within 0.5 %, and speed. Needs a folder with llama.cpp's programs; builds nothing.

usage: peer_check.py [--peer FOLDER] [--text FILE]
"""
import argparse
import pathlib
import re
import subprocess
import sys

from common import PEER, ROOT

TEXT = "/usr/share/common-licenses/GPL-3"
WINDOW = 512
PERPLEXITY_TOLERANCE = 0.005


def perplexity(args, model):
    ours = subprocess.run([ROOT / "build" / "cohort", "perplexity", "-m", model, "-f", args.text, "-c", str(WINDOW)], capture_output=True,
                          text=True, check=True).stdout
    theirs = subprocess.run([args.peer / "llama-perplexity", "-m", model, "-f", args.text, "-c", str(WINDOW)], capture_output=True,
                            text=True, check=True)
    a = float(re.search(r"PPL = ([0-9.]+)", ours)[1])
    b = float(re.search(r"Final estimate: PPL = ([0-9.]+)", theirs.stdout + theirs.stderr)[1])
    good = abs(a / b - 1) <= PERPLEXITY_TOLERANCE
    print(f"perplexity of {args.text}: cohort {a:.4f}, llama.cpp {b:.4f}, difference {100 * (a / b - 1):+.3f} %: {'ok' if good else 'FAILED'}")
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", type=pathlib.Path, default=PEER)
    parser.add_argument("--text", default=TEXT)
    args = parser.parse_args()
    if not (args.peer / "llama-perplexity").exists():
        print(f"peer_check: no llama-perplexity in {args.peer}: build llama.cpp from the PyPI source package llama-cpp-python 0.3.36 and pass "
              "--peer FOLDER", file=sys.stderr)
        return 2
    model = subprocess.run([sys.executable, ROOT / "scripts" / "fetch_model.py", "--path"], capture_output=True, text=True,
                           check=True).stdout.strip()
    results = [perplexity(args, model)]
    vocabs = args.peer.parents[1] / "models"
    done = subprocess.run([sys.executable, ROOT / "scripts" / "check_vocabs.py", vocabs])
    results.append(done.returncode == 0)
    subprocess.run([sys.executable, ROOT / "bench" / "bench.py", "--rounds", "1", "--peer", args.peer])
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
