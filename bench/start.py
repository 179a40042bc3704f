#!/usr/bin/env python3
"""`make bench-start`: how fast a server starts and how much memory it needs, `cohort serve` and llama-server in turn (A B A ...).

usage: start.py [--model default] [--peer FOLDER] [--threads 2] [--rounds 5] [--rows 16] [--context 4096] [--no-memory] [--out FILE]
                [--markdown] [--quick]

`first token`: from the program's exec to the first piece of a streamed completion, which a client asks for again and again from the
beginning, with the file in the page cache; the least of all rounds, and CPU seconds until then, which a busy machine inflates less. `run`:
a whole `cohort run -n 1`, exec to exit. `peak memory`: VmHWM of the server after `rows` requests of `context` tokens each, prompt and
answer. Prompts are read in whole batches there (`--itl-ratio`), so the first rows still answer when the last prompt has been read, and all are there at
one time. Terms: the file, and the live state:
keys and values of every token that a layer can still see, of rows that lack half of their answers. By default cohort also keeps what it
read, for prompts to come, within the state budget that it tells at its start; `--no-cache` is the rows' own state alone.

A system whose host takes free memory back (a virtual machine's balloon) pays for fresh pages again after a pause; then the least round is
one that came soon after another.
"""
import argparse
import json
import os
import pathlib
import random
import socket
import subprocess
import sys
import threading
import time

import common
import peer as llama

GOAL_FIRST_S, GOAL_MEMORY = 0.3, 1.15
RETRY_S, START_S, REQUEST_S = 0.005, 60, 1800
ANSWER_PART = 12  # of a row's tokens one in so many is generated: more than iterations that the other rows' prompts take
WHOLE_BATCHES = 100  # times an iteration without prompts: no prompt is held back for those who are answered
FIRST_HEAD = ["start", "cohort", "llama.cpp", "ratio", "goal"]


# ---- Client ----

def completion(port, body, timeout):
    """Sends one streamed completion: a socket to read from, or None if nobody is there yet."""
    data = json.dumps({**body, "stream": True, "temperature": 0, "ignore_eos": True}).encode()
    try:
        s = socket.create_connection(("127.0.0.1", port), timeout)
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
                  b"Content-Length: %d\r\n\r\n" % len(data) + data)
        return s
    except OSError:
        return None


def first_piece(s):
    """1 once a piece came, 0 if the server refused."""
    data = b""
    try:
        while b"data: {" not in data:
            more = s.recv(65536)
            if not more:
                return 0
            data += more
    except OSError:
        return 0
    finally:
        s.close()
    return 1


def finish(s):
    """Reads a whole answer; the tokens that it took, prompt and answer. 0: it was none."""
    data = b""
    while more := s.recv(1 << 20):
        data += more
    s.close()
    for line in reversed(data.splitlines()):
        if line.startswith(b"data: {") and (usage := json.loads(line[6:]).get("usage")):
            return usage["prompt_tokens"] + usage["completion_tokens"]
    common.note("a request of the memory test failed: " + data[:300].decode(errors="replace"))
    return 0


# ---- Servers ----

class Server:
    def __init__(self, command):
        self.port = common.free_port()
        command = [str(word) for word in [*command, "--host", "127.0.0.1", "--port", self.port]]
        self.begin = time.perf_counter()
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def until_first_token(self):
        """(seconds, CPU seconds) from exec to the first piece."""
        body = {"prompt": "The capital of France is", "max_tokens": 4}
        while time.perf_counter() < self.begin + START_S and self.process.poll() is None:
            s = completion(self.port, body, START_S)
            if s and first_piece(s):
                return time.perf_counter() - self.begin, self.cpu_seconds()
            time.sleep(RETRY_S)
        self.stop()
        sys.exit(f"{self.process.args[0]}: no answer")

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak_bytes(self):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        return 0

    def stop(self):
        common.stop(self.process)


def commands(args, rows, context):
    """The servers' command lines, cohort's first."""
    model = args.model.path
    ours = [common.BUILD / "cohort", "serve", "-m", model, "-t", args.threads, "-np", rows, "-c", context]
    if not args.with_peer:
        return [ours]
    return [ours, [args.peer.folder / "llama-server", "-m", model, "-t", args.threads, "-np", rows, "-c", rows * context, "-fa", "on",
                   "--no-webui"]]


# ---- What is measured ----

def starts(args):
    """For each server, (seconds, CPU seconds) of every round."""
    found = [[] for _ in commands(args, args.rows, args.context)]
    for _ in range(args.rounds):
        for results, command in zip(found, commands(args, args.rows, args.context)):
            server = Server(command)
            results.append(server.until_first_token())
            server.stop()
    return found


def runs(args):
    found = []
    for _ in range(args.rounds):
        begin = time.perf_counter()
        common.run([common.BUILD / "cohort", "run", "-m", args.model.path, "-t", args.threads, "-n", 1, "--temp", 0, "-p", "Hello"])
        found.append(time.perf_counter() - begin)
    return found


def peak_memory(args, command):
    """(peak bytes, tokens over all rows, seconds) of rows x context tokens."""
    server, tokens, answer = Server(command), [0] * args.rows, args.context // ANSWER_PART
    server.until_first_token()
    begin = time.perf_counter()

    def client(row):
        rng = random.Random(row)
        body = {"prompt": [rng.randrange(1000, min(args.model.vocab, 200000)) for _ in range(args.context - answer - 1)], "max_tokens": answer,
                "stream_options": {"include_usage": True}}
        if s := completion(server.port, body, REQUEST_S):
            tokens[row] = finish(s)
    threads = [threading.Thread(target=client, args=(row,)) for row in range(args.rows)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds, peak = time.perf_counter() - begin, server.peak_bytes()
    server.stop()
    if not all(tokens):
        sys.exit(f"{command[0]}: a row of the memory test got no answer")
    return peak, sum(tokens), seconds


# ---- Reports ----

def report_start(args, results):
    found, rows = starts(args), []
    for i, name in enumerate(("first token, s", "CPU until then, s")):
        least = [min(one[i] for one in server) for server in found]
        goal = f"<= {GOAL_FIRST_S}" if i == 0 else "-"
        rows.append([name, f"{least[0]:.3f}", f"{least[1]:.3f}" if args.with_peer else "-",
                     f"{least[1] / least[0]:.1f}" if args.with_peer else "-", goal])
        record = {"test": "start", "what": name, "model": args.model.name, "threads": args.threads, "cohort": least[0],
                  "cohort_all": [one[i] for one in found[0]], "goal": GOAL_FIRST_S if i == 0 else None}
        if args.with_peer:
            record.update(peer=least[1], peer_all=[one[i] for one in found[1]], ratio=least[1] / least[0])
        results.add(record)
    least = min(run := runs(args))
    rows.append(["run -n 1, s", f"{least:.3f}", "-", "-", f"<= {GOAL_FIRST_S}"])
    results.add({"test": "start", "what": "run", "model": args.model.name, "threads": args.threads, "cohort": least, "cohort_all": run,
                 "goal": GOAL_FIRST_S})
    print(common.table(FIRST_HEAD, rows, args.markdown), flush=True)


def report_memory(args, results):
    file = args.model.path.stat().st_size
    rows, of_ours = [], None
    ours, *theirs = commands(args, args.rows, args.context)
    ours += ["--itl-ratio", WHOLE_BATCHES]
    servers = [("cohort", ours), ("cohort --no-cache", [*ours, "--no-cache"])] + [("llama.cpp", c) for c in theirs if not args.no_peer_memory]
    for name, command in servers:
        peak, tokens, seconds = peak_memory(args, command)
        live = args.rows * args.model.seen(tokens // args.rows - args.context // ANSWER_PART // 2) * args.model.seen_bytes
        ratio, of_ours = peak / (file + live), of_ours or peak
        rows.append([name, *(f"{n / 1e6:.0f}" for n in (peak, file, live)), tokens, f"{ratio:.3f}", f"<= {GOAL_MEMORY}",
                     f"{peak / of_ours:.2f}"])
        results.add({"test": "memory", "server": name, "model": args.model.name, "rows": args.rows, "tokens": tokens, "peak_bytes": peak,
                     "file_bytes": file, "live_state_bytes": live, "ratio": ratio, "goal": GOAL_MEMORY, "seconds": seconds})
    head = ["memory", "peak MB", "file MB", "live MB", "tokens", "peak / (file + live)", "goal", "of cohort's"]
    print(common.table(head, rows, args.markdown))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="default")
    parser.add_argument("--peer", type=pathlib.Path, default=common.PEER)
    parser.add_argument("--threads", type=int, default=min(2, len(os.sched_getaffinity(0))))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--no-peer-memory", action="store_true", help="which takes minutes")
    parser.add_argument("--out", default=common.RESULTS)
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--quick", action="store_true", help="two rounds, an eighth of the context")
    args = parser.parse_args()
    if args.quick:
        args.rounds, args.context = 2, args.context // 8
    args.model, args.peer = common.model_named(args.model), llama.Peer(args.peer)
    args.with_peer = (args.peer.folder / "llama-server").exists()
    results = common.Results(args.out)
    print(f"{common.machine_text(results.machine)}; {args.model.path.name}, {args.threads} threads; least of {args.rounds} rounds")
    args.model.path.read_bytes()  # into the page cache
    report_start(args, results)
    if not args.no_memory:
        report_memory(args, results)


if __name__ == "__main__":
    main()
