#!/usr/bin/env python3
"""The byte test: clients that come and go against one server, every surviving answer compared with its solo run.

play_round() is one round; run as a program it plays many, each against a server of its own with other threads, budgets and levels:

  rounds.py [--rounds 20] [--tokens 200] [--seed 1]

Prints one line a round and ends with "N passed, M failed".
"""
import argparse
import json
import random
import sys
import threading
import time

import httpx

WORDS = ("time people year way day thing man world life hand part child eye woman place work week case point government company number "
         "group problem fact river stone light").split()
TIMEOUT_S = 1800


def prompt_of(rng, words):
    return " ".join(rng.choice(WORDS) for _ in range(words))


def read_stream(url, body, stop_after=None):
    """The text; cut off by closing the connection after `stop_after` pieces."""
    text, pieces = "", 0
    with httpx.stream("POST", url + "/v1/completions", json={**body, "stream": True}, timeout=TIMEOUT_S) as reply:
        if reply.status_code != 200:
            raise RuntimeError(reply.read().decode())
        for line in reply.iter_lines():
            if not line.startswith("data: ") or line == "data: [DONE]":
                continue
            event = json.loads(line[6:])
            if "error" in event:
                raise RuntimeError(line)
            text += "".join(choice["text"] for choice in event["choices"])
            pieces += 1
            if stop_after is not None and pieces >= stop_after:
                return None
    return text


def play_round(url, seed, clients=12, tokens=200, lengths=(5, 3000), join_s=2.0):
    """Half greedy, half sampled with seeds; half of them are cut off at a random token. Returns how many answers were compared."""
    rng = random.Random(seed)
    bodies, cuts = [], []
    for i in range(clients):
        low, high = lengths
        words = low if i == 0 else high if i == 1 else int(low * (high / low) ** rng.random())
        sampled = {"temperature": 0} if i % 2 else {"temperature": 1.0, "top_p": 0.95, "seed": seed * 100 + i}
        bodies.append({"prompt": prompt_of(rng, max(1, words)), "max_tokens": tokens, "ignore_eos": True, **sampled})
        cuts.append(rng.randrange(1, tokens) if i % 4 >= 2 else None)
    answers = [None] * clients
    failures = []

    def client(i, delay):
        time.sleep(delay)
        try:
            answers[i] = read_stream(url, bodies[i], cuts[i])
        except (httpx.HTTPError, RuntimeError) as error:
            failures.append((i, repr(error)))

    threads = [threading.Thread(target=client, args=(i, rng.random() * join_s)) for i in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    compared = 0
    for i in range(clients):
        if cuts[i] is None:
            alone = read_stream(url, bodies[i])
            assert alone == answers[i], f"seed {seed}, client {i}: in company {answers[i]!r}, alone {alone!r}"
            compared += 1
    return compared


def main():
    from conftest import Server  # the program is started as the tests do

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    levels = available_levels()
    passed = failed = 0
    for number in range(args.rounds):
        # The reference is slow: every seventh round is enough.
        level = levels[-1] if number % 7 == 3 else levels[number % max(1, len(levels) - 1)]
        threads = 1 + number % 3
        budget = (1, 16, 64, 200, 512)[number % 5]
        lengths = (5, 30) if level == "ref" else (5, 400) if budget < 16 else (5, 3000)
        tokens = min(args.tokens, 60) if level == "ref" else args.tokens
        pool = ("--kv-tokens", 4096) if number % 2 else ()  # little more than the longest row: state is given up and computed again
        server = Server("-t", threads, "-b", budget, "--cpu", level, "-c", 4096, "-np", 12, "--queue", 16, *pool)
        begin = time.monotonic()
        try:
            compared = play_round(server.url, args.seed + number, tokens=tokens, lengths=lengths, join_s=4)
            server.wait_idle()
            verdict = f"{compared} answers equal, {server.metric('cohort_preemptions_total'):.0f} preemptions"
            passed += 1
        except AssertionError as error:
            verdict = f"FAILED: {error}"
            failed += 1
        finally:
            server.stop()
        print(f"round {number}: level {level}, threads {threads}, budget {budget}, {tokens} tokens, prompts {lengths}: {verdict} "
              f"({time.monotonic() - begin:.0f} s)", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def available_levels():
    """The levels this machine runs, slowest last."""
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as f:
        flags = f.read()
    levels = []
    if "avx512_vnni" in flags:
        levels.append("avx512")
    if "avx_vnni" in flags:
        levels.append("avxvnni")
    if " avx2 " in flags:
        levels.append("avx2")
    if "asimddp" in flags:
        levels.append("neon")
    return levels + ["ref"]


if __name__ == "__main__":
    sys.exit(main())
