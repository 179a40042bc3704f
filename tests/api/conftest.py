"""Starts the real program for the API tests.

COHORT_BIN    the program (default: build/cohort)
COHORT_TEST_MODEL   the model (default: the default model, as scripts/fetch_model.py places it)
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time

import httpx
import openai
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("COHORT_BIN", str(ROOT / "build" / "cohort"))
START_TIMEOUT_S = 120
TIMEOUT_S = 300


def default_model():
    return subprocess.run([sys.executable, str(ROOT / "scripts" / "fetch_model.py"), "--path"], check=True, capture_output=True,
                          text=True).stdout.strip()


MODEL = os.environ.get("COHORT_TEST_MODEL") or default_model()
TINY = "COHORT_TEST_MODEL" in os.environ
# Where a test needs requests that run for a while, a tiny model is slowed down.
SLOW = ("--cpu", "ref") if TINY else ()


class Server:
    """One running `cohort serve` on a free port."""

    def __init__(self, *flags, model=MODEL, env=None):
        command = [BINARY, "serve", "-m", model, "--port", "0", *map(str, flags)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})})
        self.lines = []
        self.headers = {}  # of every request: a key
        self.port = None
        self.started = threading.Event()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        if not self.started.wait(START_TIMEOUT_S) or self.port is None:
            self.process.kill()
            raise RuntimeError("server did not start:\n" + "".join(self.lines))
        self.url = f"http://127.0.0.1:{self.port}"

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line)
            found = re.search(r"listening on http://[^:]+:(\d+)", line)
            if found:
                self.port = int(found.group(1))
                self.started.set()
        self.started.set()

    def post(self, path, body, **kw):
        if isinstance(body, (bytes, str)):
            kw["headers"] = {"Content-Type": "application/json", **self.headers, **kw.get("headers", {})}
            return httpx.post(self.url + path, content=body, timeout=TIMEOUT_S, **kw)
        return httpx.post(self.url + path, json=body, timeout=TIMEOUT_S, **{"headers": self.headers, **kw})

    def get(self, path, **kw):
        return httpx.get(self.url + path, timeout=TIMEOUT_S, **{"headers": self.headers, **kw})

    def delete(self, stream, **kw):
        return httpx.delete(self.url + "/v1/streams/" + stream, timeout=TIMEOUT_S, **{"headers": self.headers, **kw})

    def client(self, key="none"):
        return openai.OpenAI(base_url=self.url + "/v1", api_key=key, max_retries=0, timeout=TIMEOUT_S,
                             _strict_response_validation=True)

    def complete(self, prompt, max_tokens=16, **fields):
        body = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True, **fields}
        reply = self.post("/v1/completions", body)
        assert reply.status_code == 200, reply.text
        return reply.json()

    def stream(self, body, path="/v1/completions"):
        """The events of a streamed request, parsed; the last is the string [DONE]."""
        events = []
        with httpx.stream("POST", self.url + path, json={**body, "stream": True}, timeout=TIMEOUT_S) as reply:
            assert reply.status_code == 200, reply.read()
            for line in reply.iter_lines():
                if line.startswith("data: "):
                    data = line[6:]
                    events.append(data if data == "[DONE]" else json.loads(data))
        return events

    def metric(self, name):
        for line in self.get("/metrics").text.splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
        raise KeyError(name)

    def until(self, name, value, seconds=30):
        """Waits until a gauge has at least the value (0: exactly 0)."""
        deadline = time.monotonic() + seconds
        while (self.metric(name) != 0) if value == 0 else (self.metric(name) < value):
            assert time.monotonic() < deadline, f"{name} is {self.metric(name)}, waited for {value}"
            time.sleep(0.005)

    def wait_idle(self, seconds=20):
        """Waits until nothing runs or waits; returns the seconds it took."""
        start = time.monotonic()
        names = ["cohort_rows_running", "cohort_rows_preparing", "cohort_rows_waiting", "cohort_kv_pages_used"]
        while time.monotonic() - start < seconds:
            if all(self.metric(name) == 0 for name in names):
                return time.monotonic() - start
            time.sleep(0.02)
        raise AssertionError({name: self.metric(name) for name in names})

    def stop(self, how=signal.SIGTERM, timeout=60):
        if self.process.poll() is None:
            self.process.send_signal(how)
        code = self.process.wait(timeout)
        self.reader.join(5)
        return code


@pytest.fixture
def start():
    """start(*flags) -> Server, stopped at the end of the test, which must then exit with 0."""
    servers = []

    def make(*flags, **kw):
        servers.append(Server(*flags, **kw))
        return servers[-1]

    yield make
    for server in servers:
        if server.process.poll() is None:
            assert server.stop() == 0, "".join(server.lines)


@pytest.fixture(scope="session")
def server():
    """The server that most tests share."""
    shared = Server("-c", 1000, "-np", 8, "--queue", 64)
    yield shared
    assert shared.stop() == 0, "".join(shared.lines)
