#!/usr/bin/env python3
"""`make bench-latency`: what a long prompt costs those who are being answered, and what they cost it.

usage: latency.py [--model default] [--peer FOLDER] [--rounds 1] [--clients 8,6] [--prompts 4000,8000] [--out FILE] [--markdown]
                  [--quick] [-- flags of cohort serve]

For each number of clients: every prompt is first read alone on the idle server (`alone`). Then the clients decode steadily, each a
stream of its own, and the prompts join one after the other. `steady` is the median time between two pieces of a client before anybody
joined; `p99` and `longest` are of all gaps from the moment a prompt was sent until its first token, as multiples of steady; `first` is
the prompt's time to its first token, as a multiple of `alone`. Prompts are token ids drawn at random, never the same twice.
"""
import argparse
import asyncio
import json
import pathlib
import random
import statistics
import sys
import time

import common
import peer as llama
from server import Server, quantile

STEADY_S = 3       # of gaps before the first prompt joins
SETTLE_S = 1       # between one prompt's first token and the next prompt
STREAM_TOKENS = 4000
HEAD = ["clients", "prompt", "server", "steady ms", "p99", "longest", "alone s", "first"]


def ids(seed, n):
    rng = random.Random(seed)
    return [2] + [rng.randrange(1000, 200000) for _ in range(n - 1)]


async def stream(port, prompt, tokens, times):
    """Appends the time of each piece of one streamed completion to `times`."""
    body = json.dumps({"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
                 b"Content-Length: %d\r\n\r\n" % len(body) + body)
    try:
        async for line in reader:
            if line.startswith(b"data: {") and json.loads(line[6:]).get("choices"):
                times.append(time.perf_counter())
    finally:
        writer.close()


async def first_token(port, seed, n):
    """Seconds from sending a prompt of n ids to its first piece."""
    times, begin = [], time.perf_counter()
    task = asyncio.ensure_future(stream(port, ids(seed, n), 4, times))
    while not times and not task.done():
        await asyncio.sleep(0.001)
    end = time.perf_counter()
    await task
    if not times:
        raise SystemExit("the server did not answer a prompt")
    return end - begin, begin, end


def gaps_between(streams, begin, end):
    return [b - a for times in streams for a, b in zip(times, times[1:]) if b > begin and a < end]


async def play(port, clients, prompts, seed):
    alone = {}
    await first_token(port, seed + 1, 64)
    for n in prompts:
        alone[n] = (await first_token(port, seed + n, n))[0]
    streams = [[] for _ in range(clients)]
    tasks = [asyncio.ensure_future(stream(port, ids(seed + 100 + i, 16), STREAM_TOKENS, streams[i])) for i in range(clients)]
    while any(len(times) < 4 for times in streams):
        await asyncio.sleep(0.01)
    begin = time.perf_counter()
    await asyncio.sleep(STEADY_S)
    steady = statistics.median(gaps_between(streams, begin, time.perf_counter()))
    records = []
    for n in prompts:
        first, begin, end = await first_token(port, seed + 7 * n, n)
        if any(task.done() for task in tasks):
            raise SystemExit("a client's stream ended before the prompt was read")
        gaps = gaps_between(streams, begin, end)
        records.append({"clients": clients, "prompt": n, "steady_ms": 1e3 * steady, "gaps": len(gaps),
                        "p99": quantile(gaps, .99) / (1e3 * steady), "longest": max(gaps) / steady, "alone_s": alone[n],
                        "first": first / alone[n]})
        await asyncio.sleep(SETTLE_S)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return records


def commands(args, model, peer_flags):
    rows, longest = max(args.clients) + 1, max(args.prompts) + 64
    context = max(longest, STREAM_TOKENS + 64)
    ours = [common.BUILD / "cohort", "serve", "-m", model.path, "-np", rows, "-c", context, *args.flags]
    theirs = [args.peer / "llama-server", "-m", model.path, "-np", rows, "-c", context * rows, *peer_flags]
    return {"cohort": ours, "llama.cpp": theirs}


def report(args, results, model, found):
    print(f"{common.machine_text(results.machine)}; {model.name}; steady and alone in ms and s, the rest as multiples of them; medians\n")
    rows = []
    for clients in args.clients:
        for n in args.prompts:
            for which in ("cohort", "llama.cpp"):
                runs = found.get((which, clients, n))
                if not runs:
                    continue
                middle = {key: statistics.median(run[key] for run in runs) for key in runs[0]}
                rows.append([clients, n, which, f"{middle['steady_ms']:.1f}", f"{middle['p99']:.2f}x", f"{middle['longest']:.2f}x",
                             f"{middle['alone_s']:.2f}", f"{middle['first']:.2f}x"])
    print(common.table(HEAD, rows, args.markdown))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="default")
    parser.add_argument("--peer", type=pathlib.Path, default=common.PEER)
    parser.add_argument("--clients", type=lambda text: [int(n) for n in text.split(",")], default=[8, 6])
    parser.add_argument("--prompts", type=lambda text: [int(n) for n in text.split(",")], default=[4000, 8000])
    parser.add_argument("--rounds", type=int, default=1, help="runs of the peer; one more of cohort; 0: cohort alone")
    parser.add_argument("--out", default=common.RESULTS)
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--quick", action="store_true", help="short prompts: shows that it works, not how fast")
    mine, _, flags = " ".join(sys.argv[1:]).partition(" -- ")
    args = parser.parse_args(mine.split())
    args.flags = flags.split()
    if args.quick:
        args.prompts = [200, 400]
    model, results = common.model_named(args.model), common.Results(args.out)
    order, found, peer, peer_flags = ["cohort"], {}, llama.Peer(args.peer), []
    if peer.there() and args.rounds:
        order += ["llama.cpp", "cohort"] * args.rounds
        peer.sweep(model, args.quick)
        peer_flags = peer.server_flags()
    for turn, which in enumerate(order):
        command = commands(args, model, peer_flags)[which]
        for clients in args.clients:
            common.note(f"{model.name}: {which}, {clients} clients")
            with Server(command) as server:
                for record in asyncio.run(play(server.port, clients, args.prompts, 100000 * (turn + 1) + clients)):
                    results.add({"bench": "latency", "model": model.name, "which": which, "flags": " ".join(map(str, command[3:])), **record})
                    found.setdefault((which, clients, record["prompt"]), []).append(record)
    report(args, results, model, found)


if __name__ == "__main__":
    main()
