"""What is wrong is refused with the field's name and a status that says whose fault it is, and nothing else happens."""
import json
import socket

import httpx
import pytest

from conftest import ROOT

GOOD = {"prompt": "Hello", "max_tokens": 1}
CHAT = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}

BAD_COMPLETIONS = [
    ("prompt", None), ("prompt", 5), ("prompt", []), ("prompt", [[]]), ("prompt", {}), ("prompt", [1, "a"]), ("prompt", [-1]),
    ("prompt", [2 ** 31]), ("prompt", [2 ** 32 - 1]), ("prompt", [10 ** 6]), ("prompt", [1.5]), ("prompt", ["a", 5]),
    ("max_tokens", 0), ("max_tokens", -1), ("max_tokens", "256"), ("max_tokens", 1.5), ("max_tokens", True), ("max_tokens", []),
    ("temperature", -0.1), ("temperature", 101), ("temperature", "0"), ("temperature", True), ("temperature", {}),
    ("top_p", -0.1), ("top_p", 1.1), ("top_p", "x"), ("min_p", 2), ("top_k", -2), ("top_k", 1.5), ("top_k", 2 ** 40),
    ("seed", "1"), ("seed", 1.5), ("stop", 5), ("stop", [1]), ("stop", [""]), ("stop", ["x"] * 17), ("stop", ["x" * 300]),
    ("stop_token_ids", 5), ("stop_token_ids", [-1]), ("stop_token_ids", ["a"]), ("stop_token_ids", [10 ** 6]),
    ("stop_token_ids", [1] * 65), ("stream", "true"), ("stream", 1), ("stream_options", {"include_usage": True}),
    ("n", 0), ("n", 129), ("n", 2 ** 40), ("n", "1"), ("logprobs", 21), ("logprobs", -1), ("logprobs", True),
    ("ignore_eos", 1), ("model", 5), ("suffix", "x"), ("priority", 101), ("priority", -101), ("priority", "high"), ("priority", 0.5),
]


def refused(reply, field):
    assert reply.status_code == 400, reply.text
    error = reply.json()["error"]
    assert error["param"] == field and error["message"] and error["type"] == "invalid_request_error", error


@pytest.mark.parametrize("field,value", BAD_COMPLETIONS, ids=lambda v: json.dumps(v)[:30])
def test_bad_completion_field(server, field, value):
    refused(server.post("/v1/completions", {**GOOD, field: value}), field)


BAD_CHATS = [
    ("messages", None), ("messages", []), ("messages", "hi"), ("messages", {}),
    ("top_logprobs", 2), ("tools", {"type": "function"}), ("response_format", {"type": "json"}),
    ("logprobs", 5), ("reasoning_effort", "high"), ("priority", 101),
]


@pytest.mark.parametrize("field,value", BAD_CHATS, ids=lambda v: json.dumps(v)[:30])
def test_bad_chat_field(server, field, value):
    refused(server.post("/v1/chat/completions", {**CHAT, field: value}), field)


@pytest.mark.parametrize("message", [5, None, {}, {"role": "user"}, {"role": 5, "content": "x"}, {"role": "emperor", "content": "x"},
                                     {"role": "user", "content": 5}, {"role": "user", "content": [{"type": "image_url"}]}],
                         ids=lambda v: json.dumps(v)[:40])
def test_bad_message_is_named_by_index(server, message):
    reply = server.post("/v1/chat/completions", {**CHAT, "messages": [{"role": "user", "content": "ok"}, message]})
    assert reply.status_code == 400
    assert reply.json()["error"]["param"].startswith("messages[1]"), reply.text


def test_null_is_absent(server):
    nulls = {name: None for name in ("temperature", "top_p", "seed", "stop", "n", "logprobs", "stream", "echo", "logit_bias",
                                     "stream_options", "model", "user", "suffix", "best_of", "stop_token_ids")}
    assert server.post("/v1/completions", {**GOOD, **nulls}).status_code == 200


def test_neutral_values_are_accepted(server):
    neutral = {"n": 1, "best_of": 1, "echo": False, "suffix": "", "logit_bias": {}, "frequency_penalty": 0.0, "presence_penalty": 0}
    assert server.post("/v1/completions", {**GOOD, **neutral}).status_code == 200


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"5", b"null", b'"x"', b'{"prompt":', b"\xff\xfe", b'{"prompt":"\\ud83d"}',
                                  b'{"prompt":"\xff"}', b'{"max_tokens":1e999,"prompt":"a"}', b'{"prompt":"a","max_tokens":99999999999999999999}',
                                  b'{"prompt":"a","temperature":NaN}'],
                         ids=lambda v: repr(v)[:30])
def test_bad_json(server, body):
    reply = server.post("/v1/completions", body)
    assert reply.status_code == 400 and reply.json()["error"]["message"], reply.text


def test_deep_nesting(server):
    for depth in (100, 10_000, 1_000_000):
        body = b'{"prompt":"a","max_tokens":1,"x":' + b"[" * depth + b"]" * depth + b"}"
        assert server.post("/v1/completions", body).status_code in (200, 400)
    assert server.get("/health").status_code == 200


def test_nul_in_the_prompt_is_kept(server):
    def count(text):
        return server.complete(text, 1)["usage"]["prompt_tokens"]

    assert count("a\0b b b b") > count("a")


SUITE = ROOT.parent / "shared" / "data" / "JSONTestSuite" / "test_parsing"


@pytest.mark.skipif(not SUITE.exists(), reason="JSONTestSuite is not at hand")
def test_json_test_suite(server):
    """Each file stands where an ignored field's value would; what must be refused is refused, and nothing breaks."""
    wrong = []
    with httpx.Client(timeout=60) as client:
        for path in sorted(SUITE.iterdir()):
            body = b'{"prompt":"a","max_tokens":1,"x":' + path.read_bytes() + b"}"
            status = client.post(server.url + "/v1/completions", content=body, headers={"Content-Type": "application/json"}).status_code
            allowed = {"y": (200,), "n": (400,), "i": (200, 400)}[path.name[0]]
            if path.name in EMBEDDING_MAKES_VALID:
                allowed = (200, 400)
            if status not in allowed:
                wrong.append((path.name, status))
    assert not wrong
    assert server.get("/health").status_code == 200


# Files that are wrong only as whole documents: set between other fields they may be fine.
EMBEDDING_MAKES_VALID = {"n_structure_trailing_#.json", "n_structure_no_data.json", "n_object_trailing_comment_slash_open.json"}


def test_names_with_a_nul_and_names_twice(server):
    for body, n in ((b'{"prompt":"a","prompt":[5,6,7],"max_tokens":1}', 3), (b'{"prompt":[5,6],"max_tokens":1,"x\\u0000y":1}', 2),
                    (b'{"prompt":[5,6],"max_tokens":1,"prompt\\u0000":"\\u0000","x\\\\u0000":{"\\"\\u0000\\u0000" :[{"\\u0000":0}]}}', 2)):
        reply = httpx.post(server.url + "/v1/completions", content=body, headers={"Content-Type": "application/json"})
        assert reply.status_code == 200 and reply.json()["usage"]["prompt_tokens"] == n, (body, reply.text)


def test_bodies_of_very_many_values(server):
    """What a body costs once it is parsed is bounded by more than its bytes. Commas in strings are none of its values'."""
    many = b"0," * (2 << 20) + b"0"
    deep = (b"[" * 2000 + b"]" * 2000 + b",") * 1100 + b"0"
    for body in (b'{"prompt":[' + many + b"]}", b'{"x":[' + many + b'],"prompt":"a"}', b'{"x":[' + deep + b'],"prompt":"a"}'):
        reply = httpx.post(server.url + "/v1/completions", content=body, headers={"Content-Type": "application/json"}, timeout=60)
        assert reply.status_code == 400 and "values" in reply.json()["error"]["message"], reply.text
    body = b'{"prompt":"a","max_tokens":1,"x":"' + many + b'\\\\","y":[0]}'
    assert httpx.post(server.url + "/v1/completions", content=body, headers={"Content-Type": "application/json"}, timeout=60).status_code == 200


def test_unknown_paths_and_methods(server):
    assert server.get("/nothing").status_code == 404
    assert server.get("/v1/completions").status_code == 405
    assert server.get("/v1/completions").headers["Allow"] == "POST"
    assert server.post("/health", GOOD).status_code == 405


def test_key_on_every_route(start):
    server = start("--api-key", "s3cret-key", "-np", 1)
    routes = [("GET", "/metrics"), ("GET", "/v1/models"), ("GET", "/v1/models/x"), ("POST", "/v1/completions"),
              ("POST", "/v1/chat/completions"), ("GET", "/nothing"), ("GET", "//v1/models"), ("GET", "/v1/../metrics")]
    for method, path in routes:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer s3cret-ke"},
                        {"Authorization": "Bearer s3cret-keys3cret-key"}, {"Authorization": "s3cret-key"}):
            reply = httpx.request(method, server.url + path, headers=headers, json=GOOD if method == "POST" else None)
            assert reply.status_code == 401, (method, path, headers)
    assert server.get("/health").status_code == 200
    assert len(server.client("s3cret-key").models.list().data) == 1


def raw(server, data, timeout=5):
    with socket.create_connection(("127.0.0.1", server.port), timeout=timeout) as s:
        got = b""
        try:
            s.sendall(data)
            while block := s.recv(65536):
                got += block
        except OSError:  # closed while we wrote, or kept open without an answer
            pass
        return got


def test_framing(server):
    """Broken, giant and chunked requests get an answer or a close, and never hurt the next one."""
    close = b"\r\nConnection: close\r\n"
    giant = raw(server, b"GET /health HTTP/1.1\r\nHost: x" + close + b"X: " + b"a" * 200_000 + b"\r\n\r\n")
    assert not giant.startswith(b"HTTP/1.1 200")
    for bad in (b"nonsense\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\nHost: x" + close + b"Content-Length: -5\r\n\r\n",
                b"POST /v1/completions HTTP/1.1\r\nHost: x" + close + b"Content-Length: 99999999999\r\n\r\nx"):
        answer = raw(server, bad)
        assert not answer.startswith(b"HTTP/1.1 200") and not answer.startswith(b"HTTP/1.1 5"), answer
    body = json.dumps(GOOD).encode()
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as s:
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n")
        for i in range(len(body)):
            s.sendall(b"1\r\n" + body[i:i + 1] + b"\r\n")
        s.sendall(b"0\r\n\r\n")
        got = b""
        while block := s.recv(65536):
            got += block
    assert got.startswith(b"HTTP/1.1 200")
    assert server.get("/health").status_code == 200
