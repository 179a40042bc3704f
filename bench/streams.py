#!/usr/bin/env python3
"""`make bench-streams`: what an open stream costs the server's memory while nothing is sent on it.

usage: streams.py [-n 1000] [--model default] [--words 24] [--tokens 16] [--threads 2] [--no-running] [--out FILE]

Opens n streamed completions against servers of its own, twice, and prints one JSON line:

  waiting   one row runs, the others wait in line; then every client goes away
  running   n rows run, from prompts of one token; measured between two tokens, when each has had some and none has ended; then
            all are read to their end

Bytes are growth of resident memory since before the first stream, divided by n. Kept apart (`state_bytes`, not divided) is what grew in
mappings above malloc's largest (64 MiB): keys and values, which belong to tokens and not to streams. Either way gauges must return to 0.
"""
import argparse
import asyncio
import json
import os
import pathlib
import resource
import sys
import time

import common
import server as load

HEAP_MAX = 64 << 20  # glibc: larger mappings are never a heap of malloc's
GOAL_BYTES = 20 << 10
GAUGES = ("cohort_rows_running", "cohort_rows_preparing", "cohort_rows_waiting", "cohort_kv_pages_used")
OPEN_AT_ONCE = 64
WAIT_S = 600


# ---- The server's side ----

def resident(pid):
    """(bytes of the process, bytes in large mappings of no file)."""
    small = large = size = 0
    nameless = False
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text(encoding="utf-8").splitlines():
        words = line.split()
        if "-" in words[0] and not words[0].endswith(":"):
            begin, end = (int(edge, 16) for edge in words[0].split("-"))
            size, nameless = end - begin, len(words) == 5
        elif words[0] == "Rss:":
            if nameless and size > HEAP_MAX:
                large += int(words[1]) << 10
            else:
                small += int(words[1]) << 10
    return small, large


def gauges(port):
    found = {}
    for line in load.urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60).read().decode().splitlines():
        name, _, value = line.partition(" ")
        if name in GAUGES:
            found[name] = float(value)
    return found


async def until(what, condition):
    end = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"never: {what}")
        await asyncio.sleep(0.05)


# ---- The clients' side ----

class Stream:
    """One streamed completion. `pieces` counts events with text or an end."""

    def __init__(self, port, prompt, tokens):
        self.port, self.pieces, self.ended, self.failed = port, 0, False, None
        self.body = json.dumps({"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True}).encode()

    async def open(self):
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
                          b"Content-Length: %d\r\n\r\n" % len(self.body) + self.body)
        await self.reader.readline()

    async def read(self):
        try:
            async for line in self.reader:
                self.pieces += line.startswith(b"data: {")
                self.ended |= line.startswith(b"data: [DONE]")
                if b'"error"' in line:
                    self.failed = line.decode()
        except ConnectionError:
            pass


async def open_all(port, prompts, tokens):
    """The streams, once the head of each reply is there, and tasks that read them."""
    streams, gate = [Stream(port, prompt, tokens) for prompt in prompts], asyncio.Semaphore(OPEN_AT_ONCE)

    async def one(stream):
        async with gate:
            await stream.open()
    await asyncio.gather(*(one(stream) for stream in streams))
    return streams, [asyncio.ensure_future(stream.read()) for stream in streams]


async def warm_up(port, args):
    """Touches what belongs to no stream: threads' stacks, buffers of a whole batch."""
    await asyncio.gather(*(load.complete(port, load.prompt(i, args.words), 4) for i in range(4)))
    await load.complete(port, [5 + i % 100 for i in range(args.context - 8)], 2)


async def waiting(server, args):
    await warm_up(server.port, args)
    before = resident(server.process.pid)
    streams, tasks = await open_all(server.port, [load.prompt(i, args.words) for i in range(args.n)], args.context - 200)
    await until("all but one wait", lambda: gauges(server.port)["cohort_rows_waiting"] == args.n - 1)
    after = resident(server.process.pid)
    for stream in streams:
        stream.writer.close()
    await asyncio.gather(*tasks)
    await until("gauges return to zero", lambda: not any(gauges(server.port).values()))
    return before, after


async def running(server, args):
    await warm_up(server.port, args)
    before = resident(server.process.pid)
    streams, tasks = await open_all(server.port, [[1000 + i] for i in range(args.n)], args.tokens)
    await until("every stream has had text", lambda: all(stream.pieces for stream in streams))
    after = resident(server.process.pid)
    if any(stream.ended for stream in streams):
        sys.exit("a stream ended before all had begun: more --tokens")
    await asyncio.gather(*tasks)
    wrong = [stream for stream in streams if stream.failed or not stream.ended]
    if wrong:
        sys.exit(f"{len(wrong)} streams did not end well: {wrong[0].failed}")
    await until("gauges return to zero", lambda: not any(gauges(server.port).values()))
    return before, after


def measure(args, how, rows):
    kv_tokens = rows * 64 + args.context
    command = [common.BUILD / "cohort", "serve", "-m", args.model.path, "-t", args.threads, "-np", rows, "--queue", args.n, "-c", args.context,
               "--kv-tokens", kv_tokens]
    with load.Server(command) as server:
        before, after = asyncio.run(how(server, args))
    return (after[0] - before[0]) / args.n, after[1] - before[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=1000)
    parser.add_argument("--model", default="default")
    parser.add_argument("--words", type=int, default=24)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--context", type=int, default=1200)
    parser.add_argument("--threads", type=int, default=min(2, len(os.sched_getaffinity(0))))
    parser.add_argument("--no-running", action="store_true", help="which takes a minute or two")
    parser.add_argument("--out", default=common.RESULTS)
    args = parser.parse_args()
    args.model = common.model_named(args.model)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    record = {"bench": "streams", "model": args.model.name, "streams": args.n, "words": args.words, "goal_bytes": GOAL_BYTES}
    record["waiting_bytes"], _ = measure(args, waiting, 1)
    if not args.no_running:
        record["running_bytes"], record["state_bytes"] = measure(args, running, args.n)
    common.Results(args.out).add(record)
    print(json.dumps(record))


if __name__ == "__main__":
    main()
