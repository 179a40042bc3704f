"""/v1/messages and its count_tokens as they are on the wire: fields, event order, stops, errors, what the client that speaks it need not see."""
import json
import threading

import httpx
import pytest

from conftest import SLOW, TIMEOUT_S

BODY = {"model": "m", "max_tokens": 12, "messages": [{"role": "user", "content": "Tell me a story"}], "temperature": 0,
        "ignore_eos": True}


def say(server, **fields):
    reply = server.post("/v1/messages", {**BODY, **fields})
    assert reply.status_code == 200, reply.text
    return reply.json()


def events(server, **fields):
    """[(event, data)] of a stream."""
    found = []
    with httpx.stream("POST", server.url + "/v1/messages", json={**BODY, **fields, "stream": True}, timeout=TIMEOUT_S) as reply:
        assert reply.status_code == 200, reply.read()
        for line in reply.iter_lines():
            if line.startswith("event: "):
                found.append([line[7:], None])
            elif line.startswith("data: "):
                found[-1][1] = json.loads(line[6:])
    assert all(name == data["type"] for name, data in found)
    return found


def joined(found):
    return "".join(data["delta"]["text"] for name, data in found if name == "content_block_delta")


def refused(server, status=400, path="/v1/messages", **fields):
    body = {key: value for key, value in {**BODY, **fields}.items() if value is not ...}
    reply = server.post(path, body)
    assert reply.status_code == status, reply.text
    error = reply.json()
    assert error["type"] == "error" and set(error) == {"type", "error", "request_id"} and set(error["error"]) == {"type", "message"}
    assert error["request_id"] == reply.headers["request-id"]
    return error["error"]


# ---- answers ----

def test_a_message_has_the_shape_and_the_stream_its_order(server):
    message = say(server)
    text = message["content"][0]["text"]
    assert message["type"] == "message" and message["role"] == "assistant" and message["id"].startswith("msg_")
    assert message["stop_reason"] == "max_tokens" and message["stop_sequence"] is None
    found = events(server)
    names = [name for name, _ in found]
    assert names[:3] == ["message_start", "content_block_start", "ping"]
    assert names[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(names[3:-3]) == {"content_block_delta"} and joined(found) == text
    start, delta = found[0][1]["message"], found[-2][1]
    assert start["content"] == [] and start["stop_reason"] is None and start["usage"]["output_tokens"] == 0
    assert delta["delta"] == {"stop_reason": "max_tokens", "stop_sequence": None}
    assert delta["usage"]["output_tokens"] == message["usage"]["output_tokens"] == 12
    total = lambda usage: usage["input_tokens"] + usage["cache_read_input_tokens"] + usage["cache_creation_input_tokens"]
    counted = server.post("/v1/messages/count_tokens", {k: BODY[k] for k in ("model", "messages")})
    assert counted.json() == {"input_tokens": start["usage"]["input_tokens"]}
    assert total(delta["usage"]) == total(message["usage"]) == start["usage"]["input_tokens"]


def test_the_answer_is_that_of_the_same_chat(server):
    chat = [{"role": "system", "content": "Be brief."}, *BODY["messages"]]
    other = server.post("/v1/chat/completions", {**BODY, "messages": chat}).json()["choices"][0]["message"]["content"]
    assert say(server, system="Be brief.")["content"][0]["text"] == other
    blocks = [{"type": "text", "text": "Be ", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "brief."}]
    content = [{"type": "text", "text": "Tell me"}, {"type": "text", "text": " a story", "citations": None}]
    assert say(server, system=blocks, messages=[{"role": "user", "content": content}])["content"][0]["text"] == other


def test_a_stop_sequence_is_named(server):
    text = say(server, max_tokens=24)["content"][0]["text"]
    stop = text[4:6]
    message = say(server, max_tokens=24, stop_sequences=["\0never", stop])
    assert message["stop_reason"] == "stop_sequence" and message["stop_sequence"] == stop
    assert message["content"][0]["text"] == text[:text.index(stop)]
    found = events(server, max_tokens=24, stop_sequences=["\0never", stop])
    assert joined(found) == message["content"][0]["text"]
    assert found[-2][1]["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": stop}


def test_an_answer_that_has_begun_goes_on(server):
    """Its ids are the chat's with the begun answer behind it: white space at its end counts, the turn's end does not come."""
    turns = [*BODY["messages"], {"role": "assistant", "content": "Once upon"}]
    count = lambda messages: server.post("/v1/messages/count_tokens", {"model": "m", "messages": messages}).json()["input_tokens"]
    begun, spaced = count(turns), count([turns[0], {"role": "assistant", "content": "Once upon  "}])
    assert count(BODY["messages"]) < begun < spaced
    assert count([*turns, turns[0]]) > begun
    assert say(server, messages=turns)["usage"]["output_tokens"] == 12
    assert joined(events(server, messages=turns)) == say(server, messages=turns)["content"][0]["text"]


def test_neutral_fields_change_nothing(server):
    text = say(server)["content"][0]["text"]
    neutral = {"tools": [], "tool_choice": {"type": "auto"}, "thinking": {"type": "disabled"}, "mcp_servers": [], "metadata": {"user_id": "u"},
               "service_tier": "standard_only", "stop_sequences": [], "system": None, "top_p": None, "container": None, "stream": False,
               "top_k": 0, "top_p": 1.0, "seed": 3, "cache_prompt": False, "n": 1}
    assert say(server, **neutral)["content"][0]["text"] == text
    reply = server.post("/v1/messages", {**BODY, "no_such_field": 1})
    assert reply.status_code == 200 and reply.headers["X-Cohort-Unknown-Fields"] == "no_such_field"


def test_sampled_answers_follow_from_the_seed_alone_and_at_once(server):
    body = {"temperature": 1.0, "seed": 7, "top_k": 40, "top_p": 0.9}
    alone = say(server, **body)["content"]
    results = {}

    def ask(i):
        results[i] = say(server, **body)["content"] if i % 2 else [{"type": "text", "text": joined(events(server, **body))}]

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [results[i] for i in range(8)] == [alone] * 8


def test_all_sampling_fields_are_read(server):
    """As in the other dialects, by the same names and with the same tokens."""
    fields = {"temperature": 0.9, "seed": 5, "repetition_penalty": 1.3, "logit_bias": {"7": 2}, "min_tokens": 3, "bad_words": ["e"], "typical_p": 0.9}
    message = server.post("/v1/messages", {**BODY, **fields})
    assert message.status_code == 200 and "X-Cohort-Unknown-Fields" not in message.headers
    chat = server.post("/v1/chat/completions", {**BODY, **fields}).json()["choices"][0]["message"]["content"]
    response = server.post("/v1/responses", {"input": BODY["messages"], "max_output_tokens": 12, "ignore_eos": True, **fields})
    assert response.status_code == 200 and "X-Cohort-Unknown-Fields" not in response.headers
    assert message.json()["content"][0]["text"] == chat == response.json()["output"][0]["content"][0]["text"]


# ---- refusals ----

@pytest.mark.parametrize("fields, word", [
    ({"max_tokens": ...}, "max_tokens"), ({"max_tokens": 0}, "max_tokens"), ({"max_tokens": "9"}, "max_tokens"),
    ({"temperature": 1.1}, "temperature"), ({"temperature": -0.1}, "temperature"), ({"top_p": 2}, "top_p"), ({"top_k": 1.5}, "top_k"),
    ({"messages": ...}, "messages"), ({"messages": []}, "messages"), ({"messages": "hi"}, "messages"), ({"messages": [1]}, "messages[0]"),
    ({"messages": [{"role": "system", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "messages[0].content[0]"),
    ({"messages": [{"role": "user", "content": [{"type": "text", "text": 3}]}]}, "messages[0].content[0]"),
    ({"messages": [{"role": "user", "content": [{"type": "text", "text": "x", "cache_control": {"type": "no"}}]}]}, "cache_control"),
    ({"system": 5}, "system"), ({"system": [{"type": "image"}]}, "system[0]"), ({"stop_sequences": "x"}, "stop_sequences"),
    ({"stop_sequences": [""]}, "stop_sequences[0]"), ({"stop_sequences": ["x"] * 17}, "stop_sequences"), ({"stop": ["x"]}, "stop"),
    ({"tools": [{"name": "x"}]}, "tools"), ({"tool_choice": {"type": "any"}}, "tool_choice"), ({"tool_choice": "auto"}, "tool_choice"),
    ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "thinking"), ({"n": 2}, "n "), ({"metadata": 1}, "metadata"),
    ({"service_tier": "priority"}, "service_tier"), ({"max_tokens": 100000}, "100000"),
    ({"store": True}, "store"),
])
def test_what_cannot_be_done_is_refused_by_name(server, fields, word):
    error = refused(server, **fields)
    assert error["type"] == "invalid_request_error" and word in error["message"], error


def test_counting_refuses_as_the_answer_does(server):
    path = "/v1/messages/count_tokens"
    assert "messages[0].content[0]" in refused(server, path=path, messages=[{"role": "user", "content": [{"type": "image"}]}])["message"]
    assert server.post(path, {**BODY, "max_tokens": None}).status_code == 200
    assert server.post(path, "[]").status_code == 400 and server.post(path, "{").json()["type"] == "error"


def test_errors_of_the_paths_have_the_shape_too(start):
    server = start("-c", 300, "--api-key", "sk-one")
    for path, method, status, kind in (("/v1/messages", "POST", 401, "authentication_error"),
                                       ("/v1/messages/count_tokens", "POST", 401, "authentication_error"),
                                       ("/v1/messages/batches", "GET", 404, "not_found_error"),
                                       ("/v1/messages", "GET", 405, "invalid_request_error")):
        headers = {} if status == 401 else {"x-api-key": "sk-one", "anthropic-version": "2023-06-01"}
        reply = httpx.request(method, server.url + path, headers=headers, timeout=TIMEOUT_S)
        assert reply.status_code == status and reply.json()["error"]["type"] == kind, reply.text
        assert reply.json()["request_id"] == reply.headers["request-id"]
    reply = server.post("/v1/messages", BODY, headers={"x-api-key": "sk-one", "anthropic-version": "2023-06-01"})
    assert reply.status_code == 200 and reply.headers["request-id"].startswith("req_")
    assert "request-id" not in server.get("/v1/models", headers={"x-api-key": "sk-one"}).headers


def fill(server, n, headers=None):
    """n streams that run; a function that ends them."""
    streams = [httpx.stream("POST", server.url + "/v1/messages", json={**BODY, "max_tokens": 800, "stream": True}, headers=headers,
                            timeout=TIMEOUT_S) for _ in range(n)]
    for stream in streams:
        assert stream.__enter__().status_code == 200

    def end():
        for stream in streams:
            stream.__exit__(None, None, None)

    return end


def test_a_full_server_is_overloaded_and_a_full_key_is_limited(start, tmp_path):
    server = start("-c", 1000, "-np", 1, "--queue", 1, *SLOW)
    end = fill(server, 1)
    waiting = threading.Thread(target=server.post, args=("/v1/messages", BODY))
    waiting.start()
    server.until("cohort_rows_waiting", 1)
    error = refused(server, 529)
    assert error["type"] == "overloaded_error"
    assert server.post("/v1/chat/completions", BODY).status_code == 429
    end()
    waiting.join()
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [{"name": "one", "key": "key-one", "queue": 1}]}))
    keys.chmod(0o600)
    server = start("-c", 1000, "-np", 4, "--queue", 8, "--keys", keys, *SLOW)
    server.headers = {"x-api-key": "key-one"}
    end = fill(server, 1, server.headers)
    assert refused(server, 429)["type"] == "rate_limit_error"
    end()


def test_an_error_in_a_stream_is_an_event(start):
    server = start("-c", 2000, *SLOW)
    found = events(server, max_tokens=1900, timeout_ms=300)
    assert found[-1][0] == "error" and found[-1][1]["error"]["type"] == "timeout_error"
    assert "message_stop" not in [name for name, _ in found]


def test_a_stored_message_is_read_back(start, tmp_path):
    server = start("-c", 1000, "--state-dir", tmp_path)
    reply = server.post("/v1/messages", {**BODY, "store": True})
    stream = reply.headers["X-Cohort-Stream-Id"]
    assert stream == reply.json()["id"] and server.get(f"/v1/streams/{stream}?result=1").json() == reply.json()
    lines = server.get(f"/v1/streams/{stream}").text.splitlines()
    assert lines[:2] == ["id: 1", "event: message_start"]
    assert server.get("/v1/messages/" + stream).json()["error"]["type"] == "not_found_error"
