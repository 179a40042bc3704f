#!/usr/bin/env python3
"""`make bench-cache`: what state that is there already saves.

usage: cache.py [--model default] [--prompts 2000,8000] [--rounds 5] [--together 16] [--out FILE] [--markdown] [--quick]

For each prompt length, on one server with a state folder of its own: `cold` is the time to the first token of a prompt that nobody has
sent before, `warm` that of the same prompt again, `step` the time between two tokens behind it, `restart` that of the same prompt once the
server was stopped and started anew (the first one, from the disk). Medians; the goal for a full hit is two steps and 2 ms, and 1/50 of
cold. Then `together` equal prompts of 2,000 tokens with different last tokens arrive at once: how many prompt tokens were computed for all
of them. Prompts are token ids drawn at random.
"""
import argparse
import asyncio
import pathlib
import statistics
import tempfile
import time
import urllib.request

import common
from latency import ids, stream
from server import Server

ANSWER = 24
HEAD = ["prompt", "cold ms", "warm ms", "step ms", "warm", "two steps + 2 ms", "restart ms", "restart"]


async def ask(port, prompt, tokens=ANSWER):
    """(seconds to the first piece, median seconds between pieces)"""
    times, begin = [], time.perf_counter()
    await stream(port, prompt, tokens, times)
    gaps = [b - a for a, b in zip(times, times[1:])]
    return times[0] - begin, statistics.median(gaps) if gaps else float("nan")


def metric(port, name):
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name + " ") or line.startswith(name + "{"))


async def together(port, n, length):
    before = metric(port, "cohort_prompt_tokens_total")
    await asyncio.gather(*(ask(port, ids(77, length) + [1000 + i], 4) for i in range(n)))
    return metric(port, "cohort_prompt_tokens_total") - before


def measure(args, command, n, rounds):
    prompts = [ids(1000 * n + i, n) for i in range(rounds)]
    with Server(command) as server:
        asyncio.run(ask(server.port, ids(5, 64)))  # warms up
        cold, warm, steps = [], [], []
        for prompt in prompts:
            cold.append(asyncio.run(ask(server.port, prompt))[0])
            for _ in range(3):
                first, step = asyncio.run(ask(server.port, prompt))
                warm.append(first)
                steps.append(step)
    restart = []
    for prompt in prompts[:2]:
        with Server(command) as server:
            asyncio.run(ask(server.port, ids(6, 64)))
            restart.append(asyncio.run(ask(server.port, prompt))[0])
    middle = [1e3 * statistics.median(values) for values in (cold, warm, steps, restart)]
    return dict(zip(("cold_ms", "warm_ms", "step_ms", "restart_ms"), middle), prompt=n)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="default")
    parser.add_argument("--prompts", type=lambda text: [int(n) for n in text.split(",")], default=[2000, 8000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--together", type=int, default=16)
    parser.add_argument("--out", default=common.RESULTS)
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--quick", action="store_true", help="short prompts: shows that it works, not how fast")
    args = parser.parse_args()
    if args.quick:
        args.prompts, args.rounds = [200], 1
    model, results = common.model_named(args.model), common.Results(args.out)
    serve = [common.BUILD / "cohort", "serve", "-m", model.path, "-np", args.together, "-c", max(args.prompts + [2000]) + 64]
    rows = []
    for n in args.prompts:
        common.note(f"{model.name}: prompts of {n}")
        with tempfile.TemporaryDirectory() as folder:
            r = measure(args, [*serve, "--state-dir", pathlib.Path(folder) / "state"], n, args.rounds)
        results.add({"bench": "cache", "model": model.name, **r})
        allowed = 2 * r["step_ms"] + 2
        rows.append([n, f"{r['cold_ms']:.0f}", f"{r['warm_ms']:.1f}", f"{r['step_ms']:.1f}", f"1/{r['cold_ms'] / r['warm_ms']:.0f}",
                     f"{allowed:.1f}", f"{r['restart_ms']:.1f}", f"1/{r['cold_ms'] / r['restart_ms']:.0f}"])
    length = 200 if args.quick else 2000
    with Server(serve) as server:
        computed = asyncio.run(together(server.port, args.together, length))
    results.add({"bench": "cache-together", "model": model.name, "rows": args.together, "prefix": length, "computed": computed})
    print(f"{common.machine_text(results.machine)}; {model.name}; medians of {args.rounds} prompts\n")
    print(common.table(HEAD, rows, args.markdown))
    print(f"\n{args.together} prompts of {length} + 1 tokens together, all but the last token equal: {computed:.0f} prompt tokens computed")


if __name__ == "__main__":
    main()
