#!/usr/bin/env python3
"""`make bench-server`: whole servers under load, `cohort serve` and llama-server in turn (A B A ...), each alone on the machine.

usage: server.py [--model default] [--peer FOLDER] [--clients 1,4,16,32] [--rounds 1] [--words 128] [--tokens 64] [--out FILE]
                 [--markdown] [--quick]

Every client streams one completion after another, each with a prompt of its own (about 135 tokens), at temperature 0 and always `tokens`
long. Times are the client's: `first` from sending a request to its first piece of text, `between` from piece to piece.
"""
import argparse
import asyncio
import json
import pathlib
import random
import statistics
import subprocess
import time
import urllib.error
import urllib.request

import common
import peer as llama

START_SECONDS = 120
WORDS = "water stone river light green house table music garden winter summer letter paper window street market bridge forest".split()
HEAD = ["clients", "server", "tok/s", "ratio", "first p50", "first p99", "between p50", "between p99"]
FIELDS = ("tokens_per_s", "first_ms_p50", "first_ms_p99", "between_ms_p50", "between_ms_p99")


# ---- Load ----

def prompt(seed, words):
    rng = random.Random(seed)
    return f"{seed}: " + " ".join(rng.choice(WORDS) for _ in range(words))


async def complete(port, text, tokens):
    """One streamed completion: (seconds until the first piece, seconds between pieces, tokens made)."""
    body = json.dumps({"prompt": text, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True,
                       "stream_options": {"include_usage": True}}).encode()
    sent = last = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
                 b"Content-Length: %d\r\n\r\n" % len(body) + body)
    first, gaps, made = None, [], 0
    async for line in reader:
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        made = (event.get("usage") or {}).get("completion_tokens", made)
        if not event.get("choices") or not event["choices"][0].get("text"):
            continue
        now = time.perf_counter()
        if first is None:
            first = now - sent
        else:
            gaps.append(now - last)
        last = now
    writer.close()
    return first, gaps, made


def quantile(values, part):
    ordered = sorted(values)
    return 1e3 * ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else float("nan")


async def load(port, clients, requests, args, seed):
    """Throughput and latencies of `requests` completions, `clients` at a time."""
    todo, done = list(range(requests)), []

    async def client():
        while todo:
            done.append(await complete(port, prompt(seed + todo.pop(), args.words), args.tokens))
    begin = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    wall = time.perf_counter() - begin
    firsts, gaps = [first for first, _, _ in done if first is not None], [gap for _, between, _ in done for gap in between]
    return {"tokens_per_s": sum(made for _, _, made in done) / wall, "requests": requests, "failed": requests - len(firsts),
            "first_ms_p50": quantile(firsts, .5), "first_ms_p99": quantile(firsts, .99), "between_ms_p50": quantile(gaps, .5),
            "between_ms_p99": quantile(gaps, .99)}


# ---- Servers ----

class Server:
    """A server process from its first answer on its health path until the end of the block."""

    def __init__(self, command):
        self.port = common.free_port()
        self.command = [str(word) for word in [*command, "--host", "127.0.0.1", "--port", self.port]]

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end and self.process.poll() is None:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=2).close()
                return self
            except (urllib.error.URLError, OSError):
                time.sleep(0.05)
        self.__exit__()
        raise SystemExit(f"{' '.join(self.command)}: no answer")

    def __exit__(self, *_):
        common.stop(self.process)


def commands(args, model, peer_flags):
    rows = max(args.clients)
    context = args.words * 2 + args.tokens + 64  # tokens of a row
    ours = [common.BUILD / "cohort", "serve", "-m", model.path, "-np", rows, "-c", context]
    theirs = [args.peer / "llama-server", "-m", model.path, "-np", rows, "-c", context * rows, *peer_flags]
    return {"cohort": ours, "llama.cpp": theirs}


def measure(args, model, which, command, results):
    with Server(command) as server:
        asyncio.run(load(server.port, 1, 1, args, 10))  # warms up
        for clients in args.clients:
            common.note(f"{model.name}: {which}, {clients} clients")
            requests = max(args.requests, 2 * clients)
            record = asyncio.run(load(server.port, clients, requests, args, 1000 * clients))
            results.add({"bench": "server", "model": model.name, "which": which, "clients": clients, "words": args.words,
                         "max_tokens": args.tokens, "flags": " ".join(map(str, command[3:])), **record})
            yield clients, record


def report(args, results, model, found, peer_flags):
    runs = {which: len(found.get((which, args.clients[0]), [])) for which in ("cohort", "llama.cpp")}
    theirs = f" and {runs['llama.cpp']} of llama-server with {' '.join(map(str, peer_flags))}, alternating" if runs["llama.cpp"] else ""
    print(f"{common.machine_text(results.machine)}; {model.name}, prompts of {args.words} words, {args.tokens} new tokens; times in ms; medians "
          f"of {runs['cohort']} runs of cohort{theirs}\n")
    rows = []
    for clients in args.clients:
        speeds = {}
        for which in ("cohort", "llama.cpp"):
            runs = found.get((which, clients))
            if not runs:
                continue
            middle = {key: statistics.median(run[key] for run in runs) for key in FIELDS}
            speeds[which] = middle["tokens_per_s"]
            rows.append([clients, which, *(f"{middle[key]:.1f}" for key in FIELDS)])
        if len(speeds) == 2:
            rows[-2].insert(3, f"{speeds['cohort'] / speeds['llama.cpp']:.2f}x")
            rows[-1].insert(3, "")
        else:
            rows[-1].insert(3, "")
    print(common.table(HEAD, rows, args.markdown))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="default")
    parser.add_argument("--peer", type=pathlib.Path, default=common.PEER)
    parser.add_argument("--clients", type=lambda text: [int(n) for n in text.split(",")], default=[1, 4, 16, 32])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--words", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--requests", type=int, default=6, help="at least so many per number of clients")
    parser.add_argument("--out", default=common.RESULTS)
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--quick", action="store_true", help="few tokens: shows that it works, not how fast")
    args = parser.parse_args()
    if args.quick:
        args.words, args.tokens, args.requests = 16, 8, 1
    model, results = common.model_named(args.model), common.Results(args.out)
    order, found, peer, peer_flags = ["cohort"], {}, llama.Peer(args.peer), []
    if peer.there():
        order += ["llama.cpp", "cohort"] * args.rounds
        peer.sweep(model, args.quick)
        peer_flags = peer.server_flags()
    for which in order:
        for clients, record in measure(args, model, which, commands(args, model, peer_flags)[which], results):
            found.setdefault((which, clients), []).append(record)
    report(args, results, model, found, peer_flags)


if __name__ == "__main__":
    main()
