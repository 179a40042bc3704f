#!/usr/bin/env python3
"""What keeping state in fewer bits costs in perplexity, on any text: `cohort perplexity` once per form, compared window by window.

usage: quality.py TEXT [--model default] [--context 2048] [--forms q8_0/q8_0,q8_0/q4_0] [--flags "..."] [--out FILE]

The first form is always f16/f16. The difference to it has its own standard error, taken over the windows' differences: windows differ from
each other far more than two forms differ in one window, so the error of either perplexity says nothing about it.
"""
import argparse
import json
import math
import shlex

import common


def measure(args, form):
    keys, values = form.split("/")
    model = () if args.model == "default" else ("-m", args.model)
    return json.loads(common.run([common.BUILD / "cohort", "perplexity", "-f", args.text, *model, "-c", args.context, "-ctk", keys, "-ctv", values,
                                  *shlex.split(args.flags), "--json"]))


def compare(base, other):
    """(difference of perplexity, its standard error), both as parts of the base's."""
    differences = [b - a for a, b in zip(base["nll"], other["nll"], strict=True)]
    n = len(differences)
    mean = sum(differences) / n
    spread = math.sqrt(sum((d - mean) ** 2 for d in differences) * n / (n - 1)) if n > 1 else math.nan
    return math.expm1(sum(differences) / base["tokens"]), spread / base["tokens"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("--model", default="default")
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--forms", default="q8_0/q8_0,q8_0/q4_0,q4_0/q4_0")
    parser.add_argument("--flags", default="", help="more of the program's")
    parser.add_argument("--out", help="append the windows' sums here, as JSON lines")
    args = parser.parse_args()
    base = None
    print("| keys | values | perplexity | beside f16 | tokens scored |\n|-|-|-|-|-|", flush=True)
    for form in ["f16/f16", *args.forms.split(",")]:
        said = measure(args, form)
        if args.out:
            with open(args.out, "a", encoding="utf-8") as f:
                f.write(json.dumps({"form": form, "flags": args.flags, **said}) + "\n")
        beside = ""
        if base:
            difference, error = compare(base, said)
            beside = f"{100 * difference:+.3f} % +/- {100 * error:.3f} %"
        base = base or said
        keys, values = form.split("/")
        print(f"| {keys} | {values} | {said['ppl']:.4f} +/- {said['error']:.4f} | {beside} | {said['tokens']:,} |", flush=True)


if __name__ == "__main__":
    main()
