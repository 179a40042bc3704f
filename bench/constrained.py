#!/usr/bin/env python3
"""`make bench-constrained`: what free rows lose by constrained neighbours.

usage: constrained.py [--model default] [--free 8] [--neighbours 8] [--tokens 128] [--rounds 3] [--out FILE] [--markdown] [--quick]

One server. Measured rows stream free text, always `tokens` long; beside them as many neighbours run all the time, which are in turn free and
constrained (A B A ...; by schemas, an expression and a grammar that never come to an end). `free` is the measured rows' tokens per second from each
one's first piece to its last, added; `neighbours` what the others made meanwhile, with the tokens that their grammars filled in. Grammars are compiled
before. A shared machine's speed wanders by more than what is looked for: `change` is the median over the constrained runs of each one's distance from
the mean of the two free ones around it, with the bounds between which that median lies in 95 of 100 (by order: no shape of the noise is assumed).
"""
import argparse
import asyncio
import json
import math
import pathlib
import statistics
import time
import urllib.request

import common
import server as load

ITEM = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 40}, "number": {"type": "integer", "minimum": 0, "maximum": 100000},
                                         "kind": {"enum": ["large", "small", "middling"]}, "tags": {"type": "array", "items": {"type": "string", "maxLength": 12}}},
        "required": ["name", "number", "kind", "tags"], "additionalProperties": False}
SCHEMA = {"type": "array", "items": ITEM, "minItems": 100}
TREE = {"$defs": {"node": {"type": "object", "properties": {"text": {"type": "string", "minLength": 40, "maxLength": 90}, "next": {"$ref": "#/$defs/node"}},
                           "required": ["text"], "additionalProperties": False}}, "type": "array", "items": {"$ref": "#/$defs/node"}, "minItems": 100}


def held(schema):
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}}


CONSTRAINED = [held(SCHEMA), held(TREE), {"structured_outputs": {"regex": "([A-Z][a-z]{1,9}( [a-z]{1,9}){3,9}[.?!] )*"}}, {"grammar": 'root ::= ("- " [^\\n]{1,60} "\\n")+'}]
FREE = [{}]
NEIGHBOUR_TOKENS = 1500


class Stream:
    """One streamed completion: how many tokens came between the first piece and the last."""

    def __init__(self, port, seed, tokens, fields):
        self.port, self.first, self.last, self.made = port, None, None, 0
        self.body = json.dumps({"prompt": load.prompt(seed, 64), "max_tokens": tokens, "temperature": 0.8, "seed": seed, "ignore_eos": True, "stream": True,
                                "stream_options": {"include_usage": True, "continuous_usage_stats": True}, **fields}).encode()

    async def run(self):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 20)
        try:
            writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
                         b"Content-Length: %d\r\n\r\n" % len(self.body) + self.body)
            status = await reader.readline()
            if b" 200 " not in status:
                raise SystemExit((status + await reader.read()).decode())
            async for line in reader:
                if not line.startswith(b"data: {"):
                    continue
                event = json.loads(line[6:])
                if "error" in event:
                    raise SystemExit(line.decode())
                made = (event.get("usage") or {}).get("completion_tokens", self.made)
                if made > self.made:
                    self.last, self.made = time.perf_counter(), made
                    if self.first is None:
                        self.first, self.begun = self.last, made
        finally:
            writer.close()

    def rate(self):
        return (self.made - self.begun) / max(1e-6, self.last - self.first)


def metrics(port):
    found = {}
    for line in urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60).read().decode().splitlines():
        name, _, value = line.partition(" ")
        if not name.startswith("#") and "{" not in name:
            found[name] = float(value)
    return found


async def neighbour(port, number, fields, streams):
    """Runs on until it is cancelled."""
    seed = 5000 + number
    while True:
        stream = Stream(port, seed, NEIGHBOUR_TOKENS, {"min_tokens": NEIGHBOUR_TOKENS, **fields})
        streams.append(stream)
        await stream.run()
        seed += 100


async def play(port, args, kinds):
    """(tokens per second of the measured rows, of the neighbours)"""
    streams = []
    others = [asyncio.ensure_future(neighbour(port, i, kinds[i % len(kinds)], streams)) for i in range(args.neighbours)]
    while sum(stream.made > 1 for stream in streams) < args.neighbours:
        for other in others:
            if other.done():
                other.result()  # says what went wrong
        await asyncio.sleep(0.02)
    before, begin = sum(s.made for s in streams), time.perf_counter()
    measured = [Stream(port, i, args.tokens, FREE[0]) for i in range(args.free)]
    await asyncio.gather(*(stream.run() for stream in measured))
    theirs = (sum(s.made for s in streams) - before) / (time.perf_counter() - begin)
    for other in others:
        if other.done():
            other.result()  # says what went wrong
        other.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    while metrics(port)["cohort_rows_running"]:
        await asyncio.sleep(0.02)
    return sum(stream.rate() for stream in measured), theirs


def bounds(n):
    """Of n sorted values, the two between which the median of what they are drawn from lies in at least 95 of 100 (binomial); all of them if n < 6."""
    outside, low = 1 / 2**n, 0  # the chance that fewer than low + 1 lie below it
    while low + 1 < n - 2 - low and 2 * (outside + math.comb(n, low + 1) / 2**n) <= 0.05:
        low += 1
        outside += math.comb(n, low) / 2**n
    return low, n - 1 - low


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="default")
    parser.add_argument("--free", type=int, default=8)
    parser.add_argument("--neighbours", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", default=common.RESULTS, type=pathlib.Path)
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--quick", action="store_true", help="few tokens: shows that it works, not how fast")
    args = parser.parse_args()
    if args.quick:
        args.tokens, args.rounds = 16, 1
    model, results = common.model_named(args.model), common.Results(args.out)
    command = [common.BUILD / "cohort", "serve", "-m", model.path, "-np", args.free + args.neighbours, "-c", 2048]
    found = {"free": [], "constrained": []}
    with load.Server(command) as server:
        for kinds in (FREE, CONSTRAINED):  # warms up, and compiles
            asyncio.run(play(server.port, argparse.Namespace(**{**vars(args), "tokens": 8}), kinds))
        for which in ["free"] + ["constrained", "free"] * args.rounds:
            common.note(f"{model.name}: neighbours {which}")
            rates = asyncio.run(play(server.port, args, FREE if which == "free" else CONSTRAINED))
            found[which].append(rates)
            results.add({"bench": "constrained", "model": model.name, "neighbours": which, "rows": args.free, "tokens": args.tokens,
                         "tokens_per_s": rates[0], "neighbours_tokens_per_s": rates[1]})
    print(f"{common.machine_text(results.machine)}; {model.name}, {args.free} free rows of {args.tokens} tokens beside {args.neighbours} neighbours; "
          f"medians of {len(found['free'])} and {len(found['constrained'])} runs, alternating\n")
    around = found["free"]
    changes = sorted(100 * (2 * run[0] / (around[i][0] + around[i + 1][0]) - 1) for i, run in enumerate(found["constrained"]))
    low, high = bounds(len(changes))
    change = f"{statistics.median(changes):+.1f} % ({changes[low]:+.1f} to {changes[high]:+.1f})"
    results.add({"bench": "constrained", "model": model.name, "changes_percent": [round(each, 2) for each in changes]})
    middle = {which: [statistics.median(run[i] for run in runs) for i in (0, 1)] for which, runs in found.items()}
    rows = [[which, f"{middle[which][0]:.1f}", change if which == "constrained" else "", f"{middle[which][1]:.1f}",
             " ".join(f"{run[0]:.0f}" for run in found[which])] for which in found]
    print(common.table(["neighbours", "free tok/s", "change", "theirs tok/s", "runs"], rows, args.markdown))


if __name__ == "__main__":
    main()
