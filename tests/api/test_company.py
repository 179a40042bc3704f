"""Many at once: each answer is what it would have been alone; who leaves, leaves at once; who waits, waits in a bounded line."""
import json
import random
import signal
import socket
import struct
import threading
import time

import httpx
import pytest

from conftest import SLOW, TINY
from rounds import play_round


@pytest.mark.parametrize("flags", [("-t", 1, "-b", 1), ("-t", 2, "-b", 64), ("-t", 3, "-b", 512, "--no-pipeline")],
                         ids=lambda flags: " ".join(map(str, flags)))
def test_clients_that_come_and_go(start, flags):
    lengths = (5, 60) if TINY else (5, 600)
    server = start(*flags, "-c", 1000, "-np", 8, "--queue", 64)
    play_round(server.url, seed=11, clients=8 if TINY else 12, tokens=24 if TINY else 40, lengths=lengths)
    server.wait_idle()


def test_state_that_is_given_up_changes_nothing(start):
    """The same in a pool for little more than the longest of them: rows lose their state and read it again."""
    server = start("-t", 2, "-b", 64, "-c", 1000, "-np", 8, "--queue", 64, "--kv-tokens", 512)
    for seed in range(12, 17):  # on a busy machine quick rows may miss each other
        play_round(server.url, seed=seed, clients=12 if TINY else 6, tokens=300, lengths=(5, 30), join_s=0)
        server.wait_idle()
        if server.metric("cohort_preemptions_total") > 0:
            break
    assert server.metric("cohort_preemptions_total") > 0 and server.metric("cohort_kv_pages_used") == 0


def open_stream(server, body):
    """A raw connection whose request was sent; closing it is the client going away."""
    data = json.dumps(body).encode()
    s = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
    return s


LONG = {"prompt": "Once", "max_tokens": 900, "temperature": 0, "ignore_eos": True}


@pytest.mark.parametrize("streamed", [True, False])
def test_client_gone_while_decoding(start, streamed):
    server = start(*SLOW, "-c", 1000, "-np", 2)
    s = open_stream(server, {**LONG, "stream": streamed})
    server.until("cohort_rows_running", 1)
    s.close()
    server.wait_idle(5)


def test_client_gone_while_the_prompt_is_read(start):
    server = start(*SLOW, "-c", 1000, "-np", 2, "-b", 2)
    s = open_stream(server, {"prompt": [5] * 900, "max_tokens": 5, "stream": True})
    server.until("cohort_rows_preparing", 1)
    s.close()
    server.wait_idle(5)


def test_a_reset_is_noticed_at_once(start):
    """A reset is another event than a close, and unread bytes sent ahead must hide neither."""
    server = start(*SLOW, "-c", 1000, "-np", 2, "-b", 2)
    cancelled = 'cohort_requests_finished_total{reason="cancelled"}'
    for count, ahead in enumerate((b"", b"GET /health HTTP/1.1\r\n"), 1):
        s = open_stream(server, {"prompt": [5] * 900, "max_tokens": 90, "stream": True})
        server.until("cohort_rows_preparing", 1)
        s.sendall(ahead)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        s.close()
        server.until(cancelled, count, 3)
    server.wait_idle(5)


def test_client_gone_while_waiting(start):
    server = start(*SLOW, "-c", 1000, "-np", 1, "--queue", 4)
    first = open_stream(server, {**LONG, "stream": True})
    server.until("cohort_rows_running", 1)
    waiting = open_stream(server, {**LONG, "stream": False})
    server.until("cohort_rows_waiting", 1)
    waiting.close()
    server.until("cohort_rows_waiting", 0, 5)
    assert server.metric("cohort_rows_running") == 1
    first.close()
    server.wait_idle(5)


def test_full_line_is_429_with_retry_after(start):
    server = start(*SLOW, "-c", 1000, "-np", 1, "--queue", 2)
    streams = [open_stream(server, {**LONG, "stream": True}) for _ in range(3)]
    server.until("cohort_rows_waiting", 2)
    begin = time.monotonic()
    reply = server.post("/v1/completions", {"prompt": "x", "max_tokens": 1})
    assert reply.status_code == 429 and int(reply.headers["Retry-After"]) >= 1
    assert reply.json()["error"]["type"] == "rate_limit_error"
    assert time.monotonic() - begin < 2
    assert server.get("/health").status_code == 200
    for s in streams:
        s.close()
    server.wait_idle(5)
    assert server.complete("x", 1)["usage"]["completion_tokens"] == 1


def test_a_request_whose_choices_find_too_few_places_takes_none(start):
    """Refused at its second choice of three: the place of the first comes back, and the server stays."""
    server = start(*SLOW, "-c", 1000, "-np", 2, "--queue", 1)
    streams = [open_stream(server, {**LONG, "stream": True}) for _ in range(2)]
    server.until("cohort_rows_running", 2)
    for body in ({"prompt": "x", "n": 3}, {"prompt": ["x", "y", "z"]}, {"prompt": ["x", "y"], "n": 1, "stream": True}):
        reply = server.post("/v1/completions", {"max_tokens": 1, **body})
        assert reply.status_code == 429 and reply.json()["error"]["code"] == "queue_full", reply.text
    waits = open_stream(server, {**LONG, "stream": True})
    server.until("cohort_rows_waiting", 1)
    for s in (*streams, waits):
        s.close()
    server.wait_idle(5)
    reply = server.post("/v1/completions", {"prompt": "x", "n": 3, "max_tokens": 1})
    assert reply.status_code == 200 and len(reply.json()["choices"]) == 3


def test_more_choices_than_places_never_fit(start):
    """Not a matter of waiting: a client that tries again would do so for ever."""
    server = start("-c", 100, "-np", 2, "--queue", 1)
    for body, field in (({"prompt": "x", "n": 4}, "n"), ({"prompt": ["x", "y"] * 2}, "prompt"), ({"prompt": ["x", "y"], "n": 2}, "n")):
        reply = server.post("/v1/completions", {"max_tokens": 1, **body})
        error = reply.json()["error"]
        assert reply.status_code == 400 and error["code"] == "capacity_exceeded" and error["param"] == field, reply.text
        assert error["message"].endswith("4 places, and there are 3 (2 rows and a line of 1)")
        assert "Retry-After" not in reply.headers
    assert server.post("/v1/completions", {"prompt": "x", "n": 3, "max_tokens": 1}).status_code == 200


def test_what_never_fits_is_refused_with_both_numbers(start):
    server = start("-c", 1000, "-np", 2, "--kv-tokens", 256)
    for n, new in ((500, 10), (10, 500), (1, 700)):  # ids are counted, not guessed at like text
        reply = server.post("/v1/completions", {"prompt": [5] * n, "max_tokens": new})
        error = reply.json()["error"]
        assert reply.status_code == 400 and error["code"] == "capacity_exceeded" and error["message"].startswith(f"{n} prompt and {new} new"), error
    reply = server.post("/v1/completions", {"prompt": [5] * 10, "max_tokens": 5000})
    assert reply.status_code == 400 and reply.json()["error"]["code"] == "context_length_exceeded" and "bytes" not in reply.text, reply.text
    assert server.complete([5] * 100, 10)["usage"]["completion_tokens"] == 10


def test_a_slow_reader_hurts_only_itself(server):
    slow = open_stream(server, {**LONG, "logprobs": 20, "stream": True})
    alone = server.complete("Neighbour", 30)["choices"][0]["text"]
    for _ in range(3):
        assert server.complete("Neighbour", 30)["choices"][0]["text"] == alone
    slow.close()
    server.wait_idle(5)


def test_a_client_that_sends_on_during_its_stream_is_not_read(start):
    server = start(*SLOW, "-c", 1000, "-np", 2)
    s = open_stream(server, {**LONG, "stream": True})
    server.until("cohort_rows_running", 1)
    s.recv(100)
    s.setblocking(False)
    sent, deadline = 0, time.monotonic() + 1.5
    while time.monotonic() < deadline and sent < 64 << 20:
        try:
            sent += s.send(b"x" * 65536)
        except BlockingIOError:
            time.sleep(0.01)
    assert sent < 16 << 20, sent  # what the kernel holds, not what the server would
    s.close()
    server.wait_idle(10)


def test_drain_waits_for_a_reader_of_a_large_reply(start):
    """The reply is made at once, read slowly, and all there although SIGTERM came before its end."""
    server = start("-c", 1000, "-np", 8, "--queue", 200, "--drain-seconds", 60)
    body = {"prompt": [[5 + i] for i in range(100)], "max_tokens": 40, "ignore_eos": True, "logprobs": 20, "temperature": 0}
    data = json.dumps(body).encode()
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.settimeout(120)
        s.connect(("127.0.0.1", server.port))
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
        got = s.recv(64)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(1)
        while b"\r\n\r\n" not in got:
            got += s.recv(4096)
        head, rest = got.split(b"\r\n\r\n", 1)
        length = int(next(line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")))
        while len(rest) < length:
            block = s.recv(65536)
            assert block, f"cut after {len(rest)} of {length} bytes"
            rest += block
    assert len(json.loads(rest)["choices"]) == 100
    assert server.process.wait(20) == 0


def test_usage_matches_metrics(start):
    server = start("-c", 500, "-np", 4)
    before = server.metric("cohort_generated_tokens_total")
    assert before == 0
    totals = [server.complete("Count " + str(i), 7)["usage"] for i in range(5)]
    assert server.metric("cohort_generated_tokens_total") == sum(u["completion_tokens"] for u in totals)
    assert server.metric("cohort_prompt_tokens_total") == sum(u["prompt_tokens"] for u in totals)
    text = server.get("/metrics").text
    assert "NaN" not in text and 'cohort_time_to_first_token_seconds_bucket{le="+Inf"} 5' in text


def test_sigterm_lets_requests_end(start):
    server = start(*SLOW, "-c", 1000, "-np", 2, "--drain-seconds", 60)
    want = server.complete("Once", 200)["choices"][0]["text"]
    got = {}

    def ask():
        got["reply"] = server.complete("Once", 200)

    thread = threading.Thread(target=ask)
    thread.start()
    server.until("cohort_rows_running", 1)
    server.process.send_signal(signal.SIGTERM)
    thread.join(60)
    assert got["reply"]["choices"][0]["text"] == want
    assert server.process.wait(20) == 0


def test_drain_runs_out(start):
    server = start(*SLOW, "-c", 1000, "-np", 2, "-b", 1, "--drain-seconds", 0)
    events = []

    def ask():
        try:
            with httpx.stream("POST", server.url + "/v1/completions", json={**LONG, "stream": True}, timeout=60) as reply:
                events.extend(line for line in reply.iter_lines() if line.startswith("data: "))
        except httpx.HTTPError as error:
            events.append(repr(error))

    thread = threading.Thread(target=ask)
    thread.start()
    server.until("cohort_rows_running", 1)
    assert server.stop() == 0
    thread.join(20)
    assert "error" in events[-1] or "[DONE]" in events[-1]


def test_second_server_on_the_port_says_so(server):
    import subprocess
    from conftest import BINARY, MODEL
    done = subprocess.run([BINARY, "serve", "-m", MODEL, "--port", str(server.port)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and str(server.port) in done.stderr and len(done.stderr.strip().splitlines()) == 1


def test_random_storm(server):
    """Everything at once, half of it rude; afterwards nothing is left."""
    rng = random.Random(5)

    def rude(i):
        s = open_stream(server, {"prompt": [5 + i] * rng.randrange(1, 300), "max_tokens": rng.randrange(1, 60), "stream": bool(i % 2),
                                 "ignore_eos": True, "temperature": 1})
        time.sleep(rng.random() * 0.5)
        if i % 4:
            s.recv(100)
        s.close()

    threads = [threading.Thread(target=rude, args=(i,)) for i in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    server.wait_idle(60)
    assert server.get("/health").status_code == 200
