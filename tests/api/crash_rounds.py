#!/usr/bin/env python3
"""Kills the server over and over while clients stream stored calls, who reconnect and go on; every joined answer is compared with one that
was not interrupted, byte for byte, and so is everything that the journal has at the end.

  crash_rounds.py [--kills 200] [--streams 16] [--tokens 150] [--mean 0.5] [--seed 1] [--keep DIR] [-- flags of the server]

A quarter of the calls is not streamed; their clients cannot know what to ask for after a kill, so the journal's list is gone through at the end.
Every fifth kill comes while the server starts. Ends with "N kills, M answers equal, K different".
"""
import argparse
import json
import pathlib
import random
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

import httpx

from conftest import BINARY, MODEL, TIMEOUT_S, Server

IDS = re.compile(r"(chatcmpl|cmpl)-[0-9a-f]{24}")
# One for all: making a client takes longer than most calls.
HTTP = httpx.Client(limits=httpx.Limits(max_keepalive_connections=0), timeout=TIMEOUT_S)
FLAGS = ("-c", 1000, "-np", 8, "--queue", 256)


def normal(text):
    """Without what names the call, and what it found in the cache."""
    return re.sub(r'"(created|cached_tokens)":\d+', r'"\1":0', IDS.sub("ID", text))


def calls(n, tokens, rng):
    """n different calls: (path, body)."""
    words = "river stone light hand eye woman place work week case point company number group problem fact".split()
    made = []
    for i in range(n):
        prompt = " ".join(rng.choice(words) for _ in range(rng.choice((2, 20, 120))))
        body = {"max_tokens": rng.randrange(tokens // 2, tokens + 1), "store": True}
        body.update(({"temperature": 0}, {"temperature": 1.0, "seed": 1000 + i}, {"temperature": 0.8, "top_p": 0.9, "seed": i})[i % 3])
        path = "/v1/chat/completions" if i % 4 == 1 else "/v1/completions"
        if i % 4 == 1:
            body["messages"] = [{"role": "user", "content": prompt}]
            body.update({"logprobs": True, "top_logprobs": 3} if i % 8 == 1 else {})
        else:
            body.update({"prompt": prompt, "ignore_eos": i % 8 != 2})
            body.update({"logprobs": 2} if i % 8 == 4 else {})
        body.update({"n": 2} if i % 5 == 2 else {})
        body.update({"stop": ["e", "qu"]} if i % 7 == 3 else {})
        if i % 4 != 3:
            body["stream"] = True
            body.update({"stream_options": {"include_usage": True}} if i % 2 else {})
        made.append((path, body))
    return made


def read_events(reply, events):
    """Whole events into `events`; whether the end was among them."""
    number = data = None
    for line in reply.iter_lines():
        if line.startswith("id: "):
            number = int(line[4:])
        elif line.startswith("data: "):
            data = line[6:]
        elif line == "" and data is not None:
            if number != len(events) + 1:
                raise AssertionError(f"event {number} behind {len(events)}: {data}")
            events.append(data)
            number = data = None
            if events[-1] == "[DONE]":
                return True
    return False


class Party:
    def __init__(self, made):
        self.made = made
        self.lock = threading.Condition()
        self.url = None
        self.over = False
        self.expected = [None] * len(made)
        self.equal = 0
        self.different = []

    def wait_url(self, last):
        """The server's address, once it is another one than the one that was lost."""
        with self.lock:
            self.lock.wait_for(lambda: self.url and self.url != last, TIMEOUT_S)
            return self.url

    def set_url(self, url):
        with self.lock:
            self.url = url
            self.lock.notify_all()

    def check(self, what, index, text, expected):
        with self.lock:
            if text == expected:
                self.equal += 1
            else:
                self.different.append(f"{what} of call {index}: {text[-300:]!r} instead of {expected[-300:]!r}")

    def answer(self, index, url):
        """One call from the first byte to the last, over as many servers as it takes. Returns the last address."""
        path, body = self.made[index]
        events, stream = [], None
        while True:
            try:
                if not body.get("stream"):
                    reply = HTTP.post(url + path, json=body, timeout=TIMEOUT_S)
                    if reply.status_code == 200:
                        self.check("body", index, normal(reply.text), self.expected[index][1])
                    return url
                if stream is None:
                    request = {"method": "POST", "url": url + path, "json": body}
                else:
                    request = {"method": "GET", "url": f"{url}/v1/streams/{stream}", "headers": {"Last-Event-ID": str(len(events))}}
                with HTTP.stream(**request, timeout=TIMEOUT_S) as reply:
                    if reply.status_code in (429, 503):
                        if "state directory" in reply.read().decode():
                            raise AssertionError(reply.text)
                        time.sleep(0.05)
                        continue
                    if reply.status_code != 200:
                        raise AssertionError(f"{reply.status_code}: {reply.read().decode()}")
                    stream = stream or reply.headers["X-Cohort-Stream-Id"]
                    if read_events(reply, events):
                        self.check("stream", index, normal("\n".join(events)), self.expected[index][0])
                        return url
            except httpx.HTTPError:
                if not body.get("stream"):
                    return self.wait_url(url)
            except AssertionError as error:
                with self.lock:
                    self.different.append(f"call {index}: {error}")
                return url
            url = self.wait_url(url)

    def client(self, index):
        url = self.wait_url(None)
        while not self.over and url:
            url = self.answer(index, url)

    def reference(self, server):
        for index, (path, body) in enumerate(self.made):
            events, whole = [], None
            if body.get("stream"):
                with HTTP.stream("POST", server.url + path, json=body, timeout=TIMEOUT_S) as reply:
                    assert reply.status_code == 200, reply.read()
                    assert read_events(reply, events)
            else:
                reply = server.post(path, body)
                assert reply.status_code == 200, reply.text
                whole = normal(reply.text)
                with HTTP.stream("GET", f"{server.url}/v1/streams/{reply.headers['X-Cohort-Stream-Id']}", timeout=TIMEOUT_S) as again:
                    assert read_events(again, events)
            self.expected[index] = (normal("\n".join(events)), whole)

    def check_journal(self, server, directory):
        """Everything that was ever acknowledged, whether somebody still asks for it or not."""
        with sqlite3.connect(f"file:{directory}/journal.db?mode=ro", uri=True) as db:
            rows = [(row[0], json.loads(row[1])) for row in db.execute("SELECT id, body FROM streams WHERE state <> 2 ORDER BY number")]
        bodies = [body for _, body in self.made]
        for stream, body in rows:
            index, events = bodies.index(body), []
            with HTTP.stream("GET", f"{server.url}/v1/streams/{stream}", timeout=TIMEOUT_S) as reply:
                if not read_events(reply, events):
                    self.different.append(f"{stream} has no end")
            self.check("journal", index, normal("\n".join(events)), self.expected[index][0])
            if self.expected[index][1]:
                self.check("journal's body", index, normal(server.get(f"/v1/streams/{stream}?result=1").text), self.expected[index][1])
        return len(rows)


def start_and_kill(flags, delay):
    process = subprocess.Popen([BINARY, "serve", "-m", MODEL, "--port", "0", *map(str, flags)], stderr=subprocess.DEVNULL)
    time.sleep(delay)
    process.kill()
    process.wait()


def play(party, directory, args, flags, rng):
    flags = (*FLAGS, *flags, "--state-dir", directory)
    threads = [threading.Thread(target=party.client, args=(i,)) for i in range(len(party.made))]
    for thread in threads:
        thread.start()
    starts = []
    for kill in range(args.kills):
        if kill % 5 == 4:
            start_and_kill(flags, rng.random() * 0.3)
            continue
        begin = time.monotonic()
        server = Server(*flags)
        starts.append(time.monotonic() - begin)
        party.set_url(server.url)
        time.sleep(rng.expovariate(1 / args.mean))
        server.stop(signal.SIGKILL)
        if party.different:
            break
        if kill % 20 == 18:  # 19 is one of those that end a start
            print(f"{kill + 1} kills, {party.equal} answers equal", flush=True)
    party.over = True
    server = Server(*flags)
    party.set_url(server.url)
    for thread in threads:
        thread.join(TIMEOUT_S)
    return server, starts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=150)
    parser.add_argument("--mean", type=float, default=0.5, help="seconds between a start and its kill")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", help="a directory for the state, which is left there")
    parser.add_argument("flags", nargs="*", help="of the server")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    party = Party(calls(args.streams, args.tokens, rng))
    with tempfile.TemporaryDirectory() as scratch:
        directory = pathlib.Path(args.keep or scratch) / "state"
        begin = time.monotonic()
        server = Server(*FLAGS, *args.flags, "--state-dir", pathlib.Path(scratch) / "reference")
        clean = time.monotonic() - begin
        party.reference(server)
        server.stop()
        server, starts = play(party, directory, args, args.flags, rng)
        rows = party.check_journal(server, directory)
        ended = server.stop()
    for line in party.different[:10]:
        print(line)
    if starts:
        starts.sort()
        print(f"{rows} calls in the journal; a clean start took {clean:.2f} s, one after a kill {starts[len(starts) // 2]:.2f} s "
              f"(at most {starts[-1]:.2f} s); exit code {ended}")
    print(f"{args.kills} kills, {party.equal} answers equal, {len(party.different)} different")
    return 1 if party.different or ended else 0


if __name__ == "__main__":
    sys.exit(main())
