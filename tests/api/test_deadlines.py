"""A request's time: the whole of it (timeout_ms, --request-timeout), and of what is generated (t_max_predict_ms). Short times, never measured."""
import json

import pytest

from conftest import SLOW
from test_company import LONG, open_stream

CHAT = {"messages": [{"role": "user", "content": "Once"}], "max_tokens": 900, "temperature": 0, "ignore_eos": True}
FAILED = 'cohort_requests_finished_total{reason="error"}'


def timed_out(reply, ms):
    assert reply.status_code == 504, reply.text
    error = reply.json()["error"]
    assert error["type"] == "timeout_error" and error["code"] == "request_timeout" and f" {ms} ms" in error["message"], error


@pytest.mark.parametrize("field", ["timeout_ms", "t_max_predict_ms"])
@pytest.mark.parametrize("path,body", [("/v1/completions", LONG), ("/v1/chat/completions", CHAT)], ids=["completions", "chat"])
def test_bad_times_are_refused(server, path, body, field):
    for value in (-2, 1.5, "5", True, 2 ** 32, []):
        reply = server.post(path, {**body, field: value})
        assert reply.status_code == 400 and reply.json()["error"]["param"] == field, reply.text


def test_time_enough_changes_nothing(server):
    body = {"prompt": "Hello", "max_tokens": 12, "temperature": 0, "ignore_eos": True}
    for predict in (2 ** 32 - 1, 0, -1):  # 0 and -1: no limit
        reply = server.post("/v1/completions", {**body, "timeout_ms": 2 ** 32 - 1, "t_max_predict_ms": predict})
        assert reply.status_code == 200 and "X-Cohort-Unknown-Fields" not in reply.headers
        assert reply.json()["choices"] == server.complete("Hello", 12)["choices"]


def test_a_request_ends_when_its_time_is_over(start):
    server = start(*SLOW, "-c", 1000, "-np", 2)
    timed_out(server.post("/v1/completions", {**LONG, "timeout_ms": 30}), 30)
    timed_out(server.post("/v1/completions", {**LONG, "timeout_ms": 40, "n": 2}), 40)
    timed_out(server.post("/v1/chat/completions", {**CHAT, "timeout_ms": 30}), 30)
    timed_out(server.post("/v1/completions", {"prompt": [5] * 900, "max_tokens": 90, "timeout_ms": 1}), 1)
    server.wait_idle(5)
    # A stream has begun: an event says it, and nothing follows.
    events = server.stream({**LONG, "timeout_ms": 50})
    assert events[-1]["error"]["type"] == "timeout_error" and all("error" not in event for event in events[:-1])
    server.wait_idle(5)
    assert server.complete("x", 1)["usage"]["completion_tokens"] == 1


def test_waiting_counts(start):
    server = start(*SLOW, "-c", 1000, "-np", 1, "--queue", 4)
    first = open_stream(server, {**LONG, "stream": True})
    server.until("cohort_rows_running", 1)
    timed_out(server.post("/v1/completions", {**LONG, "timeout_ms": 50}), 50)
    assert server.metric("cohort_rows_waiting") == 0 and server.metric(FAILED) == 1
    first.close()
    server.wait_idle(5)


def test_time_to_parse_a_body_counts(server):
    large = {"prompt": "x", "max_tokens": 1, "timeout_ms": 50, "x": [{}] * 1_000_000}  # takes the parser half a second
    timed_out(server.post("/v1/completions", large), 50)


@pytest.mark.parametrize("flags,env", [(("--request-timeout", 1), {}), ((), {"COHORT_REQUEST_TIMEOUT": "1"})], ids=["flag", "environment"])
def test_the_servers_limit_and_the_requests(start, flags, env):
    server = start(*SLOW, "-c", 1000, "-np", 2, "-b", 2, *flags, env=env)
    body = {"prompt": [5] * 800, "max_tokens": 200, "temperature": 0, "ignore_eos": True, "n": 2}
    timed_out(server.post("/v1/completions", {**body, "timeout_ms": 20}), 20)
    for more in ({}, {"timeout_ms": 0}, {"timeout_ms": 500000}):
        reply = server.post("/v1/completions", {**body, **more})
        if reply.status_code == 200:
            pytest.skip("this machine answers in less than a second")
        timed_out(reply, 1000)
    server.wait_idle(5)


def test_prediction_time_counts_behind_a_newline(start):
    server = start(*SLOW, "-c", 1000, "-np", 4)
    body = {"prompt": "One\nTwo\n", "max_tokens": 400, "temperature": 1.2, "ignore_eos": True}
    for seed in range(40):
        whole = server.post("/v1/completions", {**body, "seed": seed}).json()["choices"][0]["text"]
        if "\n" in whole[:len(whole) // 2]:
            break
    else:
        pytest.skip("this model writes no newline")
    reply = server.post("/v1/completions", {**body, "seed": seed, "t_max_predict_ms": 1}).json()
    choice = reply["choices"][0]
    assert choice["finish_reason"] == "length" and "\n" in choice["text"] and whole.startswith(choice["text"])
    assert 0 < reply["usage"]["completion_tokens"] < 400
    # Without one it does not count.
    one_line = {**body, "seed": seed, "stop": ["\n"], "t_max_predict_ms": 1}
    assert server.post("/v1/completions", one_line).json()["choices"][0]["finish_reason"] == "stop"
    assert json.dumps(whole.split("\n")[0]) == json.dumps(server.post("/v1/completions", one_line).json()["choices"][0]["text"])
