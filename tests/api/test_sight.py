"""What the server shows of itself: trace files, trace context headers, the step report, `cohort top`."""
import fcntl
import http.server
import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import termios
import threading
import time

import httpx
import pytest

from conftest import BINARY, MODEL, SLOW, Server

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT_ID = "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE_ID}-{PARENT_ID}-01"
BODY = {"prompt": [5, 6, 7], "max_tokens": 3, "temperature": 0, "ignore_eos": True}
LONG = {"prompt": [5, 6, 7], "max_tokens": 900, "temperature": 0, "ignore_eos": True}


# ---- trace files ----

def by_request(events):
    """Events of each request's track, in the order of time; the file's order decides between equal times."""
    tracks = {}
    for event in events:
        if event.get("cat") == "request":
            tracks.setdefault(event["id"], []).append(event)
    return {i: sorted(track, key=lambda event: event["ts"]) for i, track in tracks.items()}


def assert_nested(track):
    open_spans = []
    for event in track:
        if event["ph"] == "b":
            open_spans.append(event["name"])
        elif event["ph"] == "e":
            assert open_spans and open_spans.pop() == event["name"], (event, open_spans)
        else:
            assert event["ph"] == "n" and open_spans, event
    assert not open_spans


def test_a_trace_of_many_requests(start, tmp_path):
    path, made = tmp_path / "trace.json", 200  # tokens each: long enough to meet
    server = start("--trace", path, "-np", 4, "-b", 16, "-c", 1000)
    headers = {"traceparent": TRACEPARENT}
    threads = [threading.Thread(target=server.post, args=("/v1/completions", {**BODY, "prompt": [5 + i] * 40, "max_tokens": made}),
                                kwargs={"headers": headers}) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.metric("cohort_trace_dropped_total") == 0
    assert server.stop() == 0
    assert path.stat().st_mode & 0o777 == 0o600
    events = json.loads(path.read_text())
    tracks = by_request(events)
    assert len(tracks) == 6
    for track in tracks.values():
        assert_nested(track)
        names = [event["name"] for event in track if event["ph"] == "b"]
        for phase in ("request", "queue", "prefill", "first token", "decode"):
            assert names.count(phase) == 1, names
        assert names.count("token") == made - 1
        assert sum(event["args"]["tokens"] for event in track if event["ph"] == "b" and event["name"] == "chunk") == 40
        assert track[0]["args"]["trace_id"] == TRACE_ID and track[0]["args"]["parent_id"] == PARENT_ID
        end = track[-1]["args"]
        assert end["finish"] == "length" and end["generated_tokens"] == made and end["prompt_tokens"] == 40 and end["seed"].isdigit()
        first = next(event for event in track if event["ph"] == "e" and event["name"] == "first token")["args"]
        assert 0 < first["state_pages_used"] <= first["state_pages"] and first["resident_bytes"] > 0

    # Rows of an iteration share its number, and their tokens add up to its own.
    iterations = {e["args"]["iteration"]: e["args"] for e in events if e["ph"] == "X" and e["name"] == "iteration"}
    steps = {}
    for track in tracks.values():
        for event in track:
            if event["ph"] == "b" and event["name"] in ("chunk", "token"):
                steps.setdefault(event["args"]["iteration"], []).append(event)
    assert set(steps) <= set(iterations)
    for number, rows in steps.items():
        assert len(rows) <= iterations[number]["rows"]
        assert sum(e["args"]["tokens"] for e in rows if e["name"] == "chunk") == iterations[number]["prompt_tokens"]
        assert len({e["ts"] for e in rows}) == 1
    assert max(len(rows) for rows in steps.values()) > 1
    for part in ("build", "forward", "deliver"):
        assert sum(e["ph"] == "X" and e["name"] == part for e in events) == len(iterations)
    assert any(e["ph"] == "X" and e["name"] == "gap" for e in events)


def test_a_cancel_is_in_the_trace(start, tmp_path):
    path = tmp_path / "trace.json"
    server = start(*SLOW, "--trace", path, "-np", 2, "-c", 1000)
    with httpx.stream("POST", server.url + "/v1/completions", json={**LONG, "stream": True}, timeout=60) as reply:
        next(reply.iter_lines())
    server.wait_idle()
    assert server.stop() == 0
    (track,) = by_request(json.loads(path.read_text())).values()
    assert_nested(track)
    assert [event["name"] for event in track if event["ph"] == "n"] == ["cancel"]
    assert track[-1]["args"]["finish"] == "cancelled"


def test_a_trace_cut_short_can_be_mended(tmp_path):
    """After a kill the array only lacks its end."""
    path = tmp_path / "trace.json"
    server = Server("--trace", path)
    server.complete("Once", 4)
    deadline = time.monotonic() + 10
    while '"finish"' not in path.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    server.process.kill()
    server.process.wait(10)
    assert len(by_request(json.loads(path.read_text() + "]"))) == 1


def test_a_trace_that_cannot_be_written_ends_the_start():
    done = subprocess.run([BINARY, "serve", "-m", MODEL, "--port", "0", "--trace", "/nowhere/trace.json"], capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 1
    assert "trace_path" in done.stderr and "/nowhere/trace.json" in done.stderr


# ---- trace context ----

def parse(header):
    found = re.fullmatch(r"00-([0-9a-f]{32})-([0-9a-f]{16})-0[01]", header)
    assert found and set(found[1]) != {"0"} and set(found[2]) != {"0"}, header
    return found[1], found[2]


@pytest.mark.parametrize("streamed", [False, True])
def test_trace_context_is_taken_and_passed_on(server, streamed):
    headers = {"traceparent": TRACEPARENT, "tracestate": "vendor=opaque,other=1"}
    reply = server.post("/v1/completions", {**BODY, "stream": streamed}, headers=headers)
    assert reply.status_code == 200
    trace, span = parse(reply.headers["traceparent"])
    assert trace == TRACE_ID and span != PARENT_ID
    assert reply.headers["tracestate"] == "vendor=opaque,other=1"


@pytest.mark.parametrize("header", [
    None, "", "garbage", "00-" + "0" * 32 + f"-{PARENT_ID}-01", f"00-{TRACE_ID}-{'0' * 16}-01", TRACEPARENT.upper(), TRACEPARENT + "-x",
    "ff" + TRACEPARENT[2:], TRACEPARENT[:-1],
])
def test_a_context_that_is_not_well_formed_is_as_none(server, header):
    headers = {"tracestate": "vendor=opaque", **({"traceparent": header} if header is not None else {})}
    replies = [server.post("/v1/completions", BODY, headers=headers) for _ in range(2)]
    traces = {parse(reply.headers["traceparent"])[0] for reply in replies}
    assert len(traces) == 2 and TRACE_ID not in traces
    assert "tracestate" not in replies[0].headers


def test_two_contexts_are_as_none(server):
    headers = [("traceparent", TRACEPARENT), ("traceparent", TRACEPARENT)]
    assert parse(server.post("/v1/completions", BODY, headers=headers).headers["traceparent"])[0] != TRACE_ID


def test_long_state_is_not_passed_on(server):
    for length, passed in ((512, True), (513, False)):
        reply = server.post("/v1/completions", BODY, headers={"traceparent": TRACEPARENT, "tracestate": "v=" + "x" * (length - 2)})
        assert ("tracestate" in reply.headers) == passed


def test_refusals_carry_the_context_too(server):
    for body in (json.dumps({**BODY, "temperature": "hot"}), "not json", json.dumps({"prompt": "x" * 3_000_000})):
        headers = {"traceparent": TRACEPARENT, "Content-Type": "application/json"}
        reply = httpx.post(server.url + "/v1/completions", content=body, headers=headers, timeout=60)
        assert reply.status_code == 400
        assert parse(reply.headers["traceparent"])[0] == TRACE_ID


# ---- the step report ----

def test_verbose_reports_while_something_runs(start):
    server = start(*SLOW, "--verbose", "-np", 2, "-c", 1000)
    time.sleep(2.2)
    assert not [line for line in server.lines if "iterations/s" in line]
    thread = threading.Thread(target=server.post, args=("/v1/completions", LONG))
    thread.start()
    deadline = time.monotonic() + 20
    while not (reports := [line for line in server.lines if "iterations/s" in line]):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    thread.join()
    number = r"\d+\.\d+"
    assert re.fullmatch(rf"cohort: rows \d running, \d preparing, 0 waiting; tokens/s {number} prompt, {number} generated; {number} iterations/s "
                        rf"of build {number}, forward {number}, deliver {number}, gap {number} ms; (\d+ % of prompt tokens from the store; )?state pages \d+ of \d+; preemptions 0\n",
                        reports[0]), reports[0]


def test_new_series_are_there(server):
    text = server.get("/metrics").text
    for name, kind in (("preemptions_total", "counter"), ("redone_tokens_total", "counter"), ("snapshot_boundaries_total", "counter"),
                       ("tasks_run_total", "counter"), ("requests_timed_out_total", "counter"), ("trace_dropped_total", "counter"),
                       ("steady_step_seconds", "gauge"), ("prompt_token_seconds", "gauge"), ("last_step_age_seconds", "gauge")):
        assert f"# TYPE cohort_{name} {kind}\n" in text
        assert server.metric("cohort_" + name) >= 0


# ---- top ----

def top(*words, code=0, env=None):
    done = subprocess.run([BINARY, "top", *map(str, words)], capture_output=True, text=True, timeout=60, env={**os.environ, **(env or {})})
    assert done.returncode == code, done
    if code:
        assert len(done.stderr.splitlines()) == 1 and not done.stdout, done
    return done.stderr if code else done.stdout


def test_top_once(start):
    server = start(*SLOW, "-np", 2, "-c", 1000)
    thread = threading.Thread(target=server.post, args=("/v1/completions", LONG))
    thread.start()
    server.until("cohort_rows_running", 1)
    picture = top("--once", "--port", server.port, "--interval", 0.5)
    thread.join()
    assert f"http://127.0.0.1:{server.port}   healthy" in picture
    assert re.search(r"rows +1 running +0 preparing +0 waiting", picture)
    assert float(re.search(r"([\d.]+) generated", picture)[1]) > 0
    assert re.search(r"state +\[[#.]{40}\] +\d+ %: \d+ of \d+ pages", picture)
    assert re.search(r"store +\d+ % of prompt tokens came from it; \d+ blocks \([\d.]+ \w+\), 0 sessions, 0 bytes on disk", picture)
    assert re.search(r"time between tokens +p50 [\d.]+ m?s +p99 [\d.]+ m?s", picture)
    assert "\033" not in picture


def test_top_with_a_key(start):
    server = start("--api-key", "sesame")
    assert "wants an API key" in top("--once", "--port", server.port, code=1)
    assert "does not take this API key" in top("--once", "--port", server.port, "--api-key", "x", code=1)
    assert "healthy" in top("--once", "--port", server.port, "--interval", 0.1, env={"COHORT_API_KEY": "sesame"})


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def test_top_says_what_is_wrong():
    assert "Connection refused" in top("--once", "--port", free_port(), code=1)
    assert "not a terminal" in top("--port", free_port(), code=1)
    assert "one argument too many: somewhere" in top("somewhere", "--once", code=2)


class Odd(http.server.BaseHTTPRequestHandler):
    answer = (200, b"")

    def do_GET(self):
        status, body = self.answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass


@pytest.mark.parametrize("status,body,says", [
    (200, b"<html>hello</html>", "not a cohort server"), (200, b"", "not a cohort server"), (200, b"up 1\n", "not a cohort server"),
    (404, b"", "status 404"), (503, b"", "loading"), (200, b"x 1\n" * 2000000, "longer than 4 MiB"),
], ids=["page", "empty", "other", "missing", "loading", "long"])
def test_top_knows_others(status, body, says):
    handler = type("Handler", (Odd,), {"answer": (status, body)})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        assert says in top("--once", "--port", other.server_address[1], code=1)
        other.shutdown()


class Terminal:
    """`cohort top` in a terminal of its own."""

    def __init__(self, *words):
        self.master, self.slave = pty.openpty()
        termios.tcsetwinsize(self.slave, (24, 100))
        self.before = termios.tcgetattr(self.slave)
        self.process = subprocess.Popen([BINARY, "top", *map(str, words)], stdin=self.slave, stdout=self.slave, stderr=subprocess.PIPE,
                                        start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.seen = b""

    def read(self, seconds=0.0):
        while select.select([self.master], [], [], seconds)[0]:
            self.seen += os.read(self.master, 65536)
            seconds = 0

    def until(self, what, seconds=20):
        """Waits for text that is drawn from now on."""
        deadline = time.monotonic() + seconds
        self.seen = b""
        while what.encode() not in self.seen:
            assert time.monotonic() < deadline, self.seen
            self.read(0.1)

    def end(self, how):
        how()
        code = self.process.wait(10)
        self.read(0.1)
        after = termios.tcgetattr(self.slave)
        os.close(self.master)
        os.close(self.slave)
        return code, after

    def assert_restored(self, code, after):
        assert code == 0, self.process.stderr.read()
        assert self.seen.endswith(b"\033[?25h\033[?1049l"), self.seen[-100:]
        assert after == self.before


@pytest.mark.parametrize("how", ["SIGINT", "SIGTERM", "q", "interrupt key"])
def test_top_gives_the_terminal_back(server, how):
    terminal = Terminal("--port", server.port, "--interval", 0.2)
    terminal.until("healthy")
    assert termios.tcgetattr(terminal.slave) != terminal.before
    keys = {"q": b"q", "interrupt key": b"\x03"}.get(how)
    if keys:
        end = terminal.end(lambda: os.write(terminal.master, keys))
    else:
        end = terminal.end(lambda: terminal.process.send_signal(getattr(signal, how)))
    terminal.assert_restored(*end)


def test_top_waits_for_a_server_that_went_away(start):
    port = free_port()
    server = start("--port", port)
    terminal = Terminal("--port", server.port, "--interval", 0.2)
    terminal.until("healthy")
    assert server.stop() == 0
    terminal.until("NO ANSWER")
    again = start("--port", port)
    assert again.port == port
    terminal.until("healthy")
    terminal.assert_restored(*terminal.end(lambda: terminal.process.send_signal(signal.SIGINT)))


def test_top_ends_when_nobody_was_ever_there():
    terminal = Terminal("--port", free_port())
    code, after = terminal.end(lambda: None)
    assert code == 1 and after == terminal.before
    assert b"Connection refused" in terminal.process.stderr.read()
