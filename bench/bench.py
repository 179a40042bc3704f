#!/usr/bin/env python3
"""`make bench`: cohort on the default model, beside this machine's roofs and, where llama.cpp is built, beside llama-batched-bench in
alternation (A/B/A), medians. Prints a table and, with --json, one JSON object per line.

usage: bench.py [--model FILE] [--peer FOLDER] [--rounds 3] [--rows 1,8,32] [--prompt 512] [--decode 64] [--json]
"""
import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[1]
PEER = pathlib.Path(os.path.expanduser("~/.cache/cohort-peer/src/vendor/llama.cpp/build/bin"))


def run(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True)
    return done.stdout


def machine():
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as f:
        names = [line.split(":", 1)[1].strip() for line in f if line.startswith("model name")]
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    return f"{names[0] if names else platform.machine()}, {os.cpu_count()} CPUs, commit {commit or 'unknown'}"


def cohort(args):
    out = run([ROOT / "build" / "cohort", "bench", "-m", args.model, "-p", args.prompt, "-n", args.decode, "--rows", args.rows, "-r", 1,
               "--json"])
    results = {}
    for line in out.splitlines():
        item = json.loads(line)
        results["prompt" if item["test"] == "prompt" else int(item["rows"])] = item["tokens_per_s"]
    return results


def peer(args):
    """llama-batched-bench with the flags that were best here: no mmap cost in the loop, flash attention on its default."""
    rows = [int(r) for r in args.rows.split(",")]
    context = max(args.prompt + 16, max(rows) * (16 + args.decode)) + 256
    results = {}
    common = ["-m", args.model, "-t", os.cpu_count(), "-c", context, "-b", 2048, "-ub", 512, "--output-format", "jsonl"]
    out = run([args.peer / "llama-batched-bench", *common, "-npp", 16, "-ntg", args.decode, "-npl", args.rows])
    out += run([args.peer / "llama-batched-bench", *common, "-npp", args.prompt, "-ntg", 1, "-npl", 1])
    for line in out.splitlines():
        if not line.startswith("{"):
            continue
        item = json.loads(line)
        if item["tg"] == 1:
            results["prompt"] = item["speed_pp"]
        else:
            results[item["pl"]] = item["speed_tg"]
    return results


def median(rounds, key):
    return statistics.median(r[key] for r in rounds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = subprocess.run(["python3", ROOT / "scripts" / "fetch_model.py", "--path"], capture_output=True, text=True).stdout.strip()
    parser.add_argument("--model", default=default)
    parser.add_argument("--peer", type=pathlib.Path, default=PEER)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", default="1,8,32")
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--decode", type=int, default=64)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with_peer = (args.peer / "llama-batched-bench").exists()
    ours, theirs = [], []
    for _ in range(args.rounds):
        ours.append(cohort(args))
        if with_peer:
            theirs.append(peer(args))
            ours.append(cohort(args))
    keys = ["prompt"] + [int(r) for r in args.rows.split(",")]
    print(f"{machine()}; {pathlib.Path(args.model).name}; medians of {len(ours)} runs" + (", llama.cpp in alternation" if with_peer else ""))
    print(f"{'test':>16} {'cohort tok/s':>14}" + (f" {'llama.cpp':>12} {'ratio':>8}" if with_peer else ""))
    for key in keys:
        name = f"prompt {args.prompt}" if key == "prompt" else f"decode {key} rows"
        a = median(ours, key)
        line = f"{name:>16} {a:14.1f}"
        record = {"test": name, "cohort": a, "machine": machine()}
        if with_peer:
            b = median(theirs, key)
            line += f" {b:12.1f} {a / b:7.2f}x"
            record.update(peer=b, ratio=a / b)
        print(json.dumps(record) if args.json else line)


if __name__ == "__main__":
    main()
