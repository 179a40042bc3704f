#!/usr/bin/env python3
"""`make bench`: cohort beside llama.cpp and beside this machine's roofs, in one table. Each line alternates the two (A B A B A ...); the
medians count. Every line also goes to a file of JSON lines with machine, commit, model and flags.

usage: bench.py [--models default q4km-1b q8-1b] [--peer FOLDER] [--rounds 3] [--rows 1,8,32] [--prompts 512,4096] [--markdown]
                [--out FILE] [--quick]

The columns: `of roof` is cohort's part of the fastest that this machine could be, measured in the same run: a step must read all weights
(`read`) and do all multiply-adds (`int8`); the slower of the two is the roof. `of goal`: 100 % is reached.
"""
import argparse
import statistics
import sys
import tempfile

import common
import peer as llama

GOALS = {"default": {"decode": {1: 1.65, 8: 4.5, 32: 6.5, 64: 6.5}, "prompt": {512: 6.0, 4096: 5.0}},
         "other": {"decode": {1: 1.4, 32: 4.0}, "prompt": {}}}
READ_GOAL, KERNEL_GOAL = 0.85, 0.75  # one row of the default model; the best kernel with weights in cache
START = common.ROOT / "bench" / "start.py"
HEAD = ["test", "cohort", "llama.cpp", "ratio", "goal", "of goal", "of roof", "roof"]


def decode_tokens(rows, quick):
    """Tokens per row: enough steps for a steady figure, few enough for a slow peer."""
    return 6 if quick else 64 if rows == 1 else 48 if rows <= 8 else 32 if rows <= 32 else 24


def cohort(model, test, size, quick):
    command = [common.BUILD / "cohort", "bench", "-m", model.path, "--json"]
    if test == "prompt":
        command += ["-p", size, "-n", 0, "-r", 1 if quick or size > 1024 else 3]
    else:
        command += ["-p", 0, "-n", decode_tokens(size, quick), "--rows", size, "-r", 1]
    return common.objects(common.run(command))[-1]["tokens_per_s"]


def alternate(rounds, ours, theirs):
    """All results of A, B, A, B, ..., A."""
    a, b = [ours()], []
    for _ in range(rounds):
        if theirs:
            b.append(theirs())
        a.append(ours())
    return a, b


class Roofs:
    """What all CPUs read and multiply; the better of what is seen before and after."""

    def __init__(self, model):
        self.read_gbs = self.int8_gmacs = 0
        self.model = model

    def measure(self):
        for line in common.objects(common.run([common.BUILD / "bench" / "bench_roof", "--json", self.model.bytes])):
            if line["kernel"] == "machine":
                self.level, self.int8_by = line["level"], line["int8_by"]
                self.int8_gmacs = max(self.int8_gmacs, line["int8_gmacs"])
            else:
                self.read_gbs = max(self.read_gbs, line["gbs"])

    def tokens_per_s(self, test, size, tokens):
        """The roof of a test and which it is."""
        if test == "prompt":
            made, (size_bytes, macs) = size, self.model.prompt_cost(size)
        else:
            made, (size_bytes, macs) = size, self.model.decode_cost(size, llama.START + tokens // 2)
        reading, multiplying = size_bytes / (self.read_gbs * 1e9), macs / (self.int8_gmacs * 1e9 or float("inf"))
        return made / max(reading, multiplying), "read" if reading >= multiplying else "int8"


def bench_model(args, model, peer, results):
    """Measures all tests of a model; records with every figure."""
    roofs, records = Roofs(model), []
    roofs.measure()
    if peer:
        common.note(f"{model.name}: looking for llama.cpp's best flags")
        for kind, flags, speed in peer.sweep(model, args.quick):
            results.add({"bench": "sweep", "model": model.name, "test": kind, "flags": " ".join(map(str, flags)), "tokens_per_s": speed})
    tests = [("decode", rows) for rows in args.rows] + [("prompt", tokens) for tokens in args.prompts]
    for test, size in tests:
        common.note(f"{model.name}: {test} {size}")
        tokens = decode_tokens(size, args.quick) if test == "decode" else size
        theirs = None
        if peer:
            theirs = (lambda: peer.prompt(model, size)) if test == "prompt" else (lambda: peer.decode(model, size, tokens))
        a, b = alternate(args.rounds, lambda: cohort(model, test, size, args.quick), theirs)
        records.append({"bench": "model", "model": model.name, "file": model.path.name, "test": test, "size": size, "tokens": tokens,
                        "cohort": statistics.median(a), "cohort_runs": a, "peer_runs": b, "peer": statistics.median(b) if b else None,
                        "peer_flags": peer.flags_text(test) if peer else None,
                        "goal": GOALS.get(model.name, GOALS["other"])[test].get(size)})
    roofs.measure()
    for record in records:
        roof, by = roofs.tokens_per_s(record["test"], record["size"], record["tokens"])
        record.update(ratio=record["cohort"] / record["peer"] if record["peer"] else None, roof=roof, roof_by=by,
                      roof_part=record["cohort"] / roof, peer_roof_part=record["peer"] / roof if record["peer"] else None,
                      read_gbs=roofs.read_gbs, int8_gmacs=roofs.int8_gmacs, int8_by=roofs.int8_by, level=roofs.level)
        results.add(record)
    return records


def bench_kernel(args, results):
    """The best matrix product with its weights in cache, as part of the integer peak; 32 rows and more."""
    command = [common.BUILD / "bench" / "bench_matmul", "--json", "--threads", results.machine["cpus"], "--shape", "in cache", "--rows",
               "32" if args.quick else "32,64"]
    lines = common.objects(common.run(command + (["--types", "Q8_0,Q5_0"] if args.quick else [])))
    best = max((line for line in lines if "peak_part" in line and "vfmadd" not in line["peak_by"] and "fmla" not in line["peak_by"]),
               key=lambda line: line["peak_part"], default=None)
    if best:
        results.add({**best, "bench": "kernel", "goal": KERNEL_GOAL})
    return best


def bench_start(args, model, results):
    """Start and memory, from start.py: (what, unit, cohort, llama.cpp or None, goal or None), all better when smaller."""
    common.note(f"{model.name}: start and memory")
    with tempfile.NamedTemporaryFile("r+", suffix=".jsonl") as out:
        common.run([sys.executable, START, "--model", model.name, "--peer", args.peer, "--rounds", args.rounds, "--no-peer-memory",
                    "--out", out.name])
        lines = common.objects(out.read())
    rows = []
    for line in lines:
        results.add({**line, "bench": line["test"]})
        if line["test"] == "start":
            rows.append((f"start: {line['what']}", "s", line["cohort"], line.get("peer"), line["goal"]))
        elif line["server"] != "llama.cpp":
            rows.append((f"peak memory of {line['server']}, {line['tokens']:,} tokens, of file + state", "x", line["ratio"], None, line["goal"]))
    return rows


def percent(part):
    return "" if part is None else f"{100 * part:.0f} %"


def model_row(r):
    reached = r["ratio"] / r["goal"] if r["ratio"] and r["goal"] else None
    goal = f"{r['goal']:g}x" if r["goal"] else ""
    if r["model"] == "default" and r["test"] == "decode" and r["size"] == 1:
        goal += f", {percent(READ_GOAL)} of read"
        reached = min(reached or 9, r["roof_part"] / READ_GOAL)
    name = f"decode, {r['size']} row{'s' * (r['size'] > 1)}" if r["test"] == "decode" else f"prompt, {r['size']:,} tokens"
    return [name, f"{r['cohort']:.1f} tok/s", f"{r['peer']:.1f} tok/s" if r["peer"] else "", f"{r['ratio']:.2f}x" if r["ratio"] else "",
            goal, percent(reached), percent(r["roof_part"]), f"{r['roof']:.0f} ({r['roof_by']})"]


def kernel_row(best):
    return [f"best kernel ({best['kernel']}, {best['rows']} rows)", f"{best['gmacs']:.0f} GMAC/s", "", "", f"{percent(KERNEL_GOAL)} of peak",
            percent(best["peak_part"] / KERNEL_GOAL), percent(best["peak_part"]), f"{best['gmacs'] / best['peak_part']:.0f} (int8)"]


def start_row(line):
    what, unit, ours, theirs, goal = line
    return [what, f"{ours:.4g} {unit}", f"{theirs:.4g} {unit}" if theirs else "", f"{theirs / ours:.2f}x" if theirs else "",
            f"<= {goal:.4g} {unit}" if goal else "", percent(goal / ours) if goal else "", "", ""]


def report(args, results, sections, more):
    print(f"{common.machine_text(results.machine)}; medians of {args.rounds + 1} runs of cohort"
          + (f" and {args.rounds} of llama.cpp, alternating" if any(r[0]["peer"] for _, r in sections) else ""))
    for i, (model, records) in enumerate(sections):
        first = records[0]
        print(f"\n{model.name}: {model.path.name}, {model.bytes / 1e6:.0f} MB read per step, {(model.block_macs + model.head_macs) / 1e6:.0f} M "
              f"multiply-adds per token; this machine reads {first['read_gbs']:.1f} GB/s and does {first['int8_gmacs']:.0f} GMAC/s "
              f"({first['int8_by']})")
        flags = {r["test"]: r["peer_flags"] for r in records if r["peer_flags"]}
        if flags:
            print("llama.cpp's best flags: " + "; ".join(f"{test} {text}" for test, text in flags.items()))
        rows = [model_row(r) for r in records] + (more if i == 0 else [])
        print("\n" + common.table(HEAD, rows, args.markdown))


def numbers(text):
    return [int(word) for word in text.split(",") if word]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["default"])
    parser.add_argument("--peer", default=common.PEER)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=numbers, default=[1, 2, 4, 8, 16, 32, 64])
    parser.add_argument("--prompts", type=numbers, default=[512, 4096])
    parser.add_argument("--out", default=common.RESULTS)
    parser.add_argument("--markdown", action="store_true", help="a table for docs/PERFORMANCE.md")
    parser.add_argument("--quick", action="store_true", help="few tokens: shows that it works, not how fast")
    args = parser.parse_args()
    peer = llama.Peer(args.peer)
    if not peer.there():
        common.note(f"no llama-batched-bench in {args.peer}: cohort alone")
        peer = None
    results = common.Results(args.out)
    best = bench_kernel(args, results)
    models = [common.model_named(name) for name in args.models]
    sections = [(model, bench_model(args, model, peer, results)) for model in models]
    more = [kernel_row(best)] if best else []
    if not args.quick:
        more += [start_row(line) for line in bench_start(args, models[0], results)]
    report(args, results, sections, more)


if __name__ == "__main__":
    main()
