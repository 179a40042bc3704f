"""Hundreds of open streams, and what happens when descriptors run short."""
import json
import os
import resource
import time

import pytest

from conftest import SLOW
from test_company import LONG, open_stream

STREAMS = 300


@pytest.fixture
def many_descriptors():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def read_all(sock):
    data = b""
    while not data.endswith(b"0\r\n\r\n") and (more := sock.recv(65536)):
        data += more
    sock.close()
    return data.decode()


def descriptors(server):
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def resident_kb(server):
    with open(f"/proc/{server.process.pid}/status", encoding="ascii") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS:"))


def test_some_hundred_streams_end_well(start, many_descriptors):
    server = start("-c", 200, "-np", 8, "--queue", STREAMS)
    alone = server.complete("Once", 4)["choices"][0]["text"]
    before = descriptors(server)
    body = {"prompt": "Once", "max_tokens": 4, "temperature": 0, "ignore_eos": True, "stream": True}
    streams = [open_stream(server, body) for _ in range(STREAMS)]
    for sock in streams:
        reply = read_all(sock)
        events = [json.loads(line[6:]) for line in reply.splitlines() if line.startswith("data: {")]
        assert "".join(event["choices"][0]["text"] for event in events) == alone and "data: [DONE]" in reply
    server.wait_idle(5)
    deadline = time.monotonic() + 5
    while descriptors(server) > before + 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert descriptors(server) <= before + 2


@pytest.mark.skipif("ASAN_OPTIONS" in os.environ, reason="memory of the sanitizer counts, too")
def test_waiting_streams_cost_little(start, many_descriptors):
    server = start(*SLOW, "-c", 1000, "-np", 1, "--queue", STREAMS)
    first = open_stream(server, {**LONG, "stream": True})
    server.until("cohort_rows_running", 1)
    warm = [open_stream(server, {**LONG, "stream": True}) for _ in range(20)]
    server.until("cohort_rows_waiting", 15)
    before = resident_kb(server)
    streams = [open_stream(server, {**LONG, "stream": True}) for _ in range(STREAMS - 40)]
    for sock in streams:
        assert sock.recv(15) == b"HTTP/1.1 200 OK"
    each = (resident_kb(server) - before) / len(streams)
    for sock in (*streams, *warm, first):
        sock.close()
    server.wait_idle(10)
    assert each <= 20, f"{each:.1f} KB a stream"


def test_no_descriptors_left_is_an_answer(start, many_descriptors):
    """Limits of the process that are reached: clear refusals, no busy loop, and all is well again afterwards."""
    server = start(*SLOW, "-c", 1000, "-np", 1, "--queue", 100)
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (96, 96))
    streams, replies = [], []

    def first_bytes(sock):
        sock.settimeout(1)
        try:
            replies.append(sock.recv(12))
        except TimeoutError:
            replies.append(b"")  # not accepted yet

    for _ in range(10):  # one after the other: who comes while there are descriptors is served
        streams.append(open_stream(server, {**LONG, "stream": True}))
        first_bytes(streams[-1])
    assert replies == [b"HTTP/1.1 200"] * 10
    streams += [open_stream(server, {**LONG, "stream": True}) for _ in range(50)]  # all at once: most are refused, or all
    for sock in streams[10:]:
        first_bytes(sock)
    served, refused = replies.count(b"HTTP/1.1 200"), replies.count(b"HTTP/1.1 429")
    assert refused > 0 and served + refused + replies.count(b"") == len(streams), replies
    for sock in streams:
        sock.close()
    server.wait_idle(10)
    assert server.get("/health").status_code == 200
    assert server.complete("x", 1)["usage"]["completion_tokens"] == 1
