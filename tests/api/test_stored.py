"""Stored calls: streams that are continued, by the client or after a crash of the server, with the bytes of one that was not interrupted."""
import json
import pathlib
import random
import re
import resource
import signal
import socket
import sqlite3
import threading
import time

import httpx
import pytest

from conftest import MODEL, SLOW, TIMEOUT_S, TINY, Server

IDS = re.compile(r"(chatcmpl|cmpl)-[0-9a-f]{24}")
# One for all: making a client takes longer than most calls here.
HTTP = httpx.Client(limits=httpx.Limits(max_keepalive_connections=0), timeout=TIMEOUT_S)
GREEDY = {"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0, "ignore_eos": True}


def normal(text):
    """An answer's bytes without what names the call itself, and what it found in the cache."""
    return re.sub(r'"(created|cached_tokens)":\d+', r'"\1":0', IDS.sub("ID", text))


def parse(lines):
    """[(id, data)] of server-sent events."""
    events, number = [], None
    for line in lines:
        if line.startswith("id: "):
            number = int(line[4:])
        elif line.startswith("data: "):
            events.append((number, line[6:]))
            number = None
    return events


def post_stream(server, body, path="/v1/completions", stop_after=None, headers=None):
    """(stream id, events), broken off by the client after some events."""
    events = []
    with HTTP.stream("POST", server.url + path, json={"store": True, **body, "stream": True}, timeout=TIMEOUT_S,
                      headers={**server.headers, **(headers or {})}) as reply:
        assert reply.status_code == 200, reply.read()
        lines = []
        try:
            for line in reply.iter_lines():
                lines.append(line)
                if line == "" and stop_after is not None and len(parse(lines)) >= stop_after:
                    break
        except httpx.HTTPError:
            pass  # the server was killed
        events = parse(lines[:len(lines) - lines[::-1].index("")] if "" in lines else [])
        return reply.headers.get("X-Cohort-Stream-Id"), events


def follow(server, stream, after=0, **kw):
    """The events behind `after`, until the stream ends."""
    with HTTP.stream("GET", f"{server.url}/v1/streams/{stream}", timeout=TIMEOUT_S,
                      headers={**server.headers, "Last-Event-ID": str(after)}, **kw) as reply:
        if reply.status_code == 204:
            return []
        assert reply.status_code == 200, reply.read()
        return parse(reply.iter_lines())


def datas(events):
    return normal("\n".join(data for _, data in events))


def check_whole(events):
    """Every number once, in order, and the end."""
    assert [number for number, _ in events] == list(range(1, len(events) + 1)), [number for number, _ in events]
    assert events[-1][1] == "[DONE]"


def stored(start, directory, *flags, **kw):
    return start("-c", 1000, "-np", 8, "--queue", 64, "--state-dir", directory, *flags, **kw)


@pytest.fixture
def crash():
    """crash(server): kill -9."""
    def kill(server):
        server.process.send_signal(signal.SIGKILL)
        server.process.wait(30)
    return kill


# ---- what is asked for ----

def test_the_fields_are_refused_where_they_cannot_be_kept(server, start, tmp_path):
    for path, body in (("/v1/completions", GREEDY), ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]})):
        reply = server.post(path, {**body, "store": True})
        assert reply.status_code == 400 and reply.json()["error"]["param"] == "store" and "--state-dir" in reply.text
        assert server.post(path, {**body, "store": False, "max_tokens": 1}).status_code in (200, 400)
        assert server.post(path, {**body, "store": 1}).status_code == 400
    off = stored(start, tmp_path / "off", "--store", "none")
    reply = off.post("/v1/completions", {**GREEDY, "store": True})
    assert reply.status_code == 400 and "--store none" in reply.text
    with pytest.raises(RuntimeError, match="--store all needs --state-dir"):
        Server("--store", "all")
    with pytest.raises(RuntimeError, match="none, marked or all"):
        Server("--store", "some")


def test_without_store_nothing_is_kept_and_no_event_has_a_number(start, tmp_path):
    server = stored(start, tmp_path)
    with HTTP.stream("POST", server.url + "/v1/completions", json={**GREEDY, "stream": True}, timeout=TIMEOUT_S) as reply:
        text = reply.read().decode()
        assert "X-Cohort-Stream-Id" not in reply.headers and "\nid:" not in "\n" + text
    stream = re.search(IDS, text).group(0)
    assert server.get("/v1/streams/" + stream).status_code == 404
    everything = stored(start, tmp_path / "all", "--store", "all")
    reply = everything.post("/v1/completions", GREEDY)
    assert everything.get("/v1/streams/" + reply.headers["X-Cohort-Stream-Id"] + "?result=1").content == reply.content
    assert "X-Cohort-Stream-Id" not in everything.post("/v1/completions", {**GREEDY, "store": False}).headers


def test_a_stored_stream_has_the_bytes_of_another(start, tmp_path):
    server = stored(start, tmp_path)
    body = {**GREEDY, "stream_options": {"include_usage": True}, "logprobs": 2}
    plain = server.stream(body)
    stream, events = post_stream(server, body)
    check_whole(events)
    assert IDS.fullmatch(stream) and json.loads(events[0][1])["id"] == stream
    strip = lambda event: event if event == "[DONE]" else {k: v for k, v in event.items() if k not in ("id", "created")}
    parsed = [data if data == "[DONE]" else json.loads(data) for _, data in events]
    for event in plain + parsed:  # what was cached is no function of the request
        if event != "[DONE]" and event.get("usage"):
            event["usage"].pop("prompt_tokens_details")
    assert [strip(event) for event in plain] == [strip(event) for event in parsed]


# ---- the client breaks off ----

def test_a_stream_goes_on_from_every_event(start, tmp_path):
    server = stored(start, tmp_path)
    body = {**GREEDY, "n": 2, "temperature": 1.0, "seed": 5, "max_tokens": 4, "stream_options": {"include_usage": True}}
    stream, all_events = post_stream(server, body)
    check_whole(all_events)
    for after in range(len(all_events) + 3):
        assert follow(server, stream, after) == all_events[after:]
    for n in range(1, len(all_events)):
        again, head = post_stream(server, body, stop_after=n)
        whole = head + follow(server, again, len(head))
        check_whole(whole)
        assert datas(whole) == datas(all_events)
    # in the query, too
    reply = server.get(f"/v1/streams/{stream}?last_event_id={len(all_events) - 1}")
    assert parse(reply.text.splitlines()) == all_events[-1:]
    assert server.get(f"/v1/streams/{stream}?last_event_id={len(all_events)}").status_code == 204


def test_a_call_runs_on_without_its_client_and_many_may_follow(start, tmp_path):
    server = stored(start, tmp_path, *SLOW)
    body = {**GREEDY, "max_tokens": 300}
    stream, head = post_stream(server, body, stop_after=3)
    results = {}
    threads = [threading.Thread(target=lambda i=i: results.update({i: follow(server, stream, i)})) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(4):
        check_whole(results[0][:i] + results[i])
    assert results[0][:3] == head and len(results[0]) > 100
    assert server.wait_idle() >= 0


def test_a_choice_that_is_far_ahead_waits(start, tmp_path, crash):
    body = {**GREEDY, "n": 3, "max_tokens": 900, "temperature": 1.0, "seed": 21, "logprobs": 5}
    server = stored(start, tmp_path / "wide")
    _, events = post_stream(server, body)
    check_whole(events)
    one = start("-c", 1000, "-np", 1, "--queue", 8, "--state-dir", tmp_path / "one")  # its choices run one after the other
    stream, again = post_stream(one, body)
    check_whole(again)
    assert datas(again) == datas(events)
    stream, head = post_stream(one, body, stop_after=5)
    crash(one)
    one = start("-c", 1000, "-np", 1, "--queue", 8, "--state-dir", tmp_path / "one")
    assert datas(head + follow(one, stream, len(head))) == datas(events)
    reply = one.post("/v1/completions", {**body, "store": True})
    assert reply.status_code == 200 and [len(c["logprobs"]["tokens"]) for c in reply.json()["choices"]] == [900] * 3


def test_readers_have_a_bound(start, tmp_path):
    server = stored(start, tmp_path, *SLOW)
    stream, _ = post_stream(server, {**GREEDY, "max_tokens": 900}, stop_after=1)
    clients = [HTTP.stream("GET", f"{server.url}/v1/streams/{stream}", timeout=TIMEOUT_S) for _ in range(20)]
    replies = [client.__enter__() for client in clients]
    codes = [reply.status_code for reply in replies]
    for client in clients:
        client.__exit__(None, None, None)
    assert codes.count(200) == 16 and codes.count(429) == 4
    assert server.get(f"/v1/streams/{stream}", headers={"Accept": "application/json"}).status_code == 400  # is a stream
    assert server.delete(stream).status_code == 200


def test_a_tenant_has_its_share_of_readers(start, tmp_path):
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [{"name": f"k{i}", "key": f"key-{i}"} for i in range(200)]}))
    keys.chmod(0o600)
    server = stored(start, tmp_path / "state", "--keys", keys, *SLOW)

    def codes(n):
        streams = [post_stream(server, {**GREEDY, "max_tokens": 900}, stop_after=1)[0] for _ in range(2)]
        clients = [HTTP.stream("GET", f"{server.url}/v1/streams/{streams[i % 2]}", headers=server.headers) for i in range(n)]
        replies = [client.__enter__().status_code for client in clients]
        for client in clients:
            client.__exit__(None, None, None)
        for stream in streams:
            server.delete(stream)
        return replies

    server.headers = {"Authorization": "Bearer key-0"}
    assert codes(24).count(200) == 4096 // 200
    server.headers = {"Authorization": "Bearer key-1"}
    assert codes(20).count(200) == 20


def test_clients_that_leave_while_the_journal_is_read(start, tmp_path):
    server = stored(start, tmp_path)
    stream, events = post_stream(server, {**GREEDY, "max_tokens": 400})
    for path in [f"/v1/streams/{stream}", f"/v1/streams/{stream}?result=1", "/v1/streams/cmpl-1"] * 60:
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    server.until("cohort_stored_readers", 0)
    assert follow(server, stream) == events


def test_the_one_body_is_there_again(start, tmp_path):
    server = stored(start, tmp_path)
    chat = {"prompt": "x y z", "n": 3, "max_tokens": 5, "temperature": 0.7, "seed": 3, "logprobs": 1, "store": True}
    reply = server.post("/v1/completions", chat)
    stream = reply.headers["X-Cohort-Stream-Id"]
    assert reply.json()["id"] == stream
    for how in ({"params": {"result": 1}}, {"headers": {"Accept": "application/json"}}):
        again = server.get("/v1/streams/" + stream, **how)
        assert again.status_code == 200 and again.content == reply.content
    events = follow(server, stream)
    check_whole(events)
    texts = ["", "", ""]
    for _, data in events[:-1]:
        for choice in json.loads(data)["choices"]:
            texts[choice["index"]] += choice["text"]
    assert texts == [choice["text"] for choice in reply.json()["choices"]]


def test_an_error_is_kept(start, tmp_path):
    server = stored(start, tmp_path, *SLOW)
    late = {**GREEDY, "max_tokens": 900, "timeout_ms": 150}
    stream, events = post_stream(server, late)
    assert '"request_timeout"' in events[-1][1] and events[-1][0] == len(events)
    assert follow(server, stream) == events
    reply = server.post("/v1/completions", {**late, "store": True})
    assert reply.status_code == 504
    again = server.get(f"/v1/streams/{reply.headers['X-Cohort-Stream-Id']}?result=1")
    assert again.status_code == 504 and again.content == reply.content
    # what is refused is not kept
    reply = server.post("/v1/completions", {"prompt": [1] * 999, "max_tokens": 100, "store": True})
    assert reply.status_code == 400 and "X-Cohort-Stream-Id" not in reply.headers


# ---- who may ask for what ----

def test_ids_from_outside(start, tmp_path):
    server = stored(start, tmp_path)
    stream, events = post_stream(server, GREEDY)
    for bad in ("", "x", stream[:-1], stream + "0", stream.upper(), stream + "/..", stream + "%00", "%2e%2e", stream + "%20", "a" * 5000,
                stream.replace("-", "%2d"), "' OR 1=1 --"):
        assert server.get("/v1/streams/" + bad).status_code == 404, bad
        assert server.delete(bad).status_code == 404, bad
    for bad in ("-1", "1.0", "x", "", "99999999999999999999", "0x1", "1 2"):
        reply = server.get("/v1/streams/" + stream, headers={"Last-Event-ID": bad})
        if bad:
            assert reply.status_code == 400 and reply.json()["error"]["param"] == "last_event_id", bad
    assert server.get(f"/v1/streams/{stream}?result=2").status_code == 400
    reply = server.post("/v1/streams/" + stream, {})
    assert reply.status_code == 405 and reply.headers["Allow"] == "GET, DELETE"
    assert follow(server, stream) == events


def test_another_tenants_stream_is_not_there(start, tmp_path):
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [{"name": name, "key": "key-" + name} for name in ("one", "two")]}))
    keys.chmod(0o600)
    server = stored(start, tmp_path / "state", "--keys", keys, *SLOW)
    server.headers = {"Authorization": "Bearer key-one"}
    other = {"headers": {"Authorization": "Bearer key-two"}}
    done, events = post_stream(server, GREEDY)
    runs, _ = post_stream(server, {**GREEDY, "max_tokens": 900}, stop_after=1)
    for stream in (done, runs):
        theirs, nobodys = server.get("/v1/streams/" + stream, **other), server.get("/v1/streams/cmpl-1", **other)
        assert theirs.status_code == 404 and theirs.content == nobodys.content
        assert server.delete(stream, **other).status_code == 404
        assert server.get("/v1/streams/" + stream, headers={}).status_code == 401
    assert follow(server, done) == events
    assert server.delete(runs).status_code == 200


def test_delete_is_final(start, tmp_path, crash):
    server = stored(start, tmp_path, *SLOW)
    running, head = post_stream(server, {**GREEDY, "max_tokens": 900}, stop_after=2)
    seen = []
    reader = threading.Thread(target=lambda: seen.extend(follow(server, running)))
    reader.start()
    done, _ = post_stream(server, GREEDY)
    time.sleep(0.2)
    for stream in (running, done):
        reply = server.delete(stream)
        assert reply.status_code == 200 and reply.json() == {"id": stream, "object": "stream.deleted", "deleted": True}
        assert server.delete(stream).status_code == 404
    reader.join(20)
    assert not reader.is_alive() and "deleted" in seen[-1][1] and seen[-1][0] is None and seen[:2] == head
    server.wait_idle()
    crash(server)
    server = stored(start, tmp_path)
    for stream in (running, done):
        assert server.get("/v1/streams/" + stream).status_code == 404
    server.wait_idle()
    assert server.metric("cohort_requests_submitted_total") == 0


# ---- the server ends ----

def test_ended_calls_are_there_after_a_restart(start, tmp_path, crash):
    server = stored(start, tmp_path)
    stream, events = post_stream(server, GREEDY)
    whole = server.post("/v1/completions", {**GREEDY, "store": True})
    crash(server)
    server = stored(start, tmp_path)
    assert follow(server, stream) == events and follow(server, stream, 5) == events[5:]
    again = server.get(f"/v1/streams/{whole.headers['X-Cohort-Stream-Id']}?result=1")
    assert again.status_code == 200 and again.content == whole.content
    assert server.stop() == 0
    server = stored(start, tmp_path)
    assert follow(server, stream) == events


def test_a_drain_leaves_what_does_not_end(start, tmp_path):
    server = stored(start, tmp_path, *SLOW, "--drain-seconds", 0)  # so that nothing ends in it
    body = {**GREEDY, "max_tokens": 900, "temperature": 1.0, "seed": 4}
    calls = {}
    reader = threading.Thread(target=lambda: calls.update(stream=post_stream(server, body)))
    waiter = threading.Thread(target=lambda: calls.update(whole=server.post("/v1/completions", {**body, "store": True})))
    reader.start()
    waiter.start()
    server.until("cohort_rows_running", 2)
    assert server.stop() == 0
    reader.join()
    waiter.join()
    stream, head = calls["stream"]
    assert head[-1][1] != "[DONE]" and "error" not in head[-1][1]  # it just stops
    assert calls["whole"].status_code == 503 and "/v1/streams/cmpl-" in calls["whole"].text
    server = stored(start, tmp_path)
    events = head + follow(server, stream, len(head))
    check_whole(events)
    assert datas(events) == datas(post_stream(server, body)[1])
    rest = server.get(f"/v1/streams/{IDS.search(calls['whole'].text).group(0)}?result=1")
    assert normal(rest.text) == normal(server.post("/v1/completions", {**body, "store": True}).text)


MIX = [
    ("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 60, "temperature": 0, "ignore_eos": True, "stream": True}),
    ("/v1/completions", {"prompt": ["a b", "c"], "n": 2, "max_tokens": 40, "temperature": 1, "seed": 11, "logprobs": 3, "stream": True,
                         "stream_options": {"include_usage": True}}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "tell me"}], "max_tokens": 50, "seed": 2, "logprobs": True,
                              "top_logprobs": 4, "stream": True}),
    ("/v1/completions", {"prompt": "stop here", "max_tokens": 80, "temperature": 0.9, "seed": 77, "stop": ["e", "a"], "stream": True}),
    ("/v1/completions", {"prompt": [5, 6, 7, 8], "n": 2, "max_tokens": 50, "temperature": 0.8, "seed": 6, "ignore_eos": True}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "and you"}], "max_tokens": 40, "seed": 9}),
]


def reference(server):
    """What each call of the mix gives when nothing happens: (events, body or None)."""
    answers = []
    for path, body in MIX:
        if body.get("stream"):
            _, events = post_stream(server, body, path)
            answers.append((datas(events), None))
        else:
            reply = server.post(path, {**body, "store": True})
            assert reply.status_code == 200
            answers.append((datas(follow(server, reply.headers["X-Cohort-Stream-Id"])), normal(reply.text)))
    return answers


def run_until_killed(server, crash, after_s):
    """Starts the mix and kills the server. [(index, stream id, events seen)] of the streams that were acknowledged."""
    seen, lock = [], threading.Lock()

    def one(index, path, body):
        try:
            if body.get("stream"):
                stream, events = post_stream(server, body, path)
                if stream:
                    with lock:
                        seen.append((index, stream, events))
            else:
                server.post(path, {**body, "store": True})
        except httpx.HTTPError:
            pass

    threads = [threading.Thread(target=one, args=(i, *call)) for i, call in enumerate(MIX)]
    for thread in threads:
        thread.start()
    time.sleep(after_s)
    crash(server)
    for thread in threads:
        thread.join()
    return seen


def stored_ids(directory):
    """[(id, body)] of everything in the journal, as the file says it."""
    with sqlite3.connect(f"file:{directory}/journal.db?mode=ro", uri=True) as db:
        return [(row[0], json.loads(row[1])) for row in db.execute("SELECT id, body FROM streams ORDER BY number")]


@pytest.mark.parametrize("seed", range(6))
def test_after_kill_9_every_call_goes_on_with_the_same_bytes(start, tmp_path, crash, seed):
    rng = random.Random(seed)
    with_reference = stored(start, tmp_path / "reference")
    expected = reference(with_reference)
    assert with_reference.stop() == 0
    directory = tmp_path / "state"
    server = stored(start, directory, *(SLOW if seed % 2 else ()))
    seen = run_until_killed(server, crash, rng.random() * (0.8 if seed % 2 else 0.25))
    for _ in range(rng.randrange(3)):  # and again, while it goes on
        server = stored(start, directory, *(SLOW if seed % 2 else ()))
        time.sleep(rng.random() * 0.3)
        crash(server)
    server = stored(start, directory)
    for index, stream, head in seen:
        events = head + follow(server, stream, len(head))
        check_whole(events)
        assert datas(events) == expected[index][0], (index, len(head))
    bodies = [{**body, "store": True} for _, body in MIX]
    entries = stored_ids(directory)
    assert {stream for _, stream, _ in seen} <= {stream for stream, _ in entries}
    for stream, body in entries:
        index = bodies.index(body)
        events = follow(server, stream)
        check_whole(events)
        assert datas(events) == expected[index][0], index
        if expected[index][1]:
            assert normal(server.get(f"/v1/streams/{stream}?result=1").text) == expected[index][1]


def test_a_recovered_call_can_be_followed_while_it_runs(start, tmp_path, crash):
    body = {**GREEDY, "max_tokens": 400, "temperature": 1.0, "seed": 12}
    server = stored(start, tmp_path, *SLOW)
    stream, head = post_stream(server, body, stop_after=60)
    crash(server)
    server = stored(start, tmp_path, *SLOW)
    results = [follow(server, stream, after) for after in (0, 20, len(head))]
    for result, after in zip(results, (0, 20, len(head))):
        whole = head[:after] + result
        check_whole(whole)
        assert datas(whole) == datas(results[0])
    assert datas(results[0]) == datas(post_stream(server, body)[1])


def test_sigterm_at_any_moment_of_the_start_loses_nothing(start, tmp_path, crash):
    server = stored(start, tmp_path, *SLOW)
    prompt = ["Once upon a time there was a long prompt. " * 10] * 2  # so that a helper has it for a while
    body = {**GREEDY, "prompt": prompt, "max_tokens": 150, "n": 2, "temperature": 1.0, "seed": 8}
    streams = [post_stream(server, body, stop_after=20)[0] for _ in range(4)]
    crash(server)
    for i in range(4):
        server = stored(start, tmp_path, *SLOW, "--drain-seconds", 0)
        readers = [threading.Thread(target=lambda s=stream: cut_off(server, s)) for stream in streams]
        for reader in readers:
            reader.start()
        time.sleep(0.01 + i * 0.01)
        assert server.stop() == 0, "".join(server.lines)
        for reader in readers:
            reader.join()
    server = stored(start, tmp_path)
    expected = datas(post_stream(server, body)[1])
    for stream in streams:
        events = follow(server, stream)
        check_whole(events)
        assert datas(events) == expected


def cut_off(server, stream):
    try:
        follow(server, stream)
    except (httpx.HTTPError, AssertionError):
        pass  # the server ends meanwhile


def test_those_that_wait_for_places_ask_seldom(start, tmp_path, crash):
    server = stored(start, tmp_path, *SLOW)
    for _ in range(3):
        post_stream(server, {**GREEDY, "max_tokens": 900, "n": 2}, stop_after=2)
    crash(server)
    server = start("-c", 1000, "-np", 2, "--queue", 0, "--state-dir", tmp_path, *SLOW)
    server.until("cohort_rows_running", 2)
    time.sleep(0.5)
    assert server.metric("cohort_requests_refused_total") <= 5


def test_recovered_calls_wait_for_places(start, tmp_path, crash):
    server = stored(start, tmp_path, *SLOW)
    body = {**GREEDY, "max_tokens": 30, "n": 2}
    streams = [post_stream(server, body, stop_after=2)[0] for _ in range(6)]
    crash(server)
    server = start("-c", 1000, "-np", 1, "--queue", 2, "--state-dir", tmp_path)
    first = None
    for stream in streams:
        events = follow(server, stream)
        check_whole(events)
        first = first or datas(events)
        assert datas(events) == first
    crash(server)
    server = start("-c", 1000, "-np", 1, "--queue", 0, "--state-dir", tmp_path)  # n = 2 can never run here; those have ended
    check_whole(follow(server, streams[0]))


def test_what_cannot_go_on_says_so(start, tmp_path, crash):
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [{"name": "one", "key": "key-one"}, {"name": "two", "key": "key-two"}]}))
    keys.chmod(0o600)
    long = {**GREEDY, "max_tokens": 900}
    server = stored(start, tmp_path / "state", *SLOW, "--keys", keys)
    streams = {}
    for name in ("one", "two"):
        server.headers = {"Authorization": "Bearer key-" + name}
        streams[name] = post_stream(server, long, stop_after=5)
    time.sleep(0.1)  # some of it is in the journal
    crash(server)
    keys.write_text(json.dumps({"keys": [{"name": "one", "key": "key-one"}]}))
    server = start("-c", 1000, "-np", 1, "--queue", 0, "--state-dir", tmp_path / "state", "--keys", keys)
    server.headers = {"Authorization": "Bearer key-one"}
    stream, head = streams["one"]
    check_whole(head + follow(server, stream, 5))
    assert server.stop() == 0
    keys.write_text(json.dumps({"keys": [{"name": "one", "key": "key-one"}, {"name": "two", "key": "key-two"}]}))
    server = start("-c", 1000, "-np", 1, "--queue", 0, "--state-dir", tmp_path / "state", "--keys", keys)
    server.headers = {"Authorization": "Bearer key-two"}
    stream, head = streams["two"]
    for after in (100, 5, 2, 0):  # nobody knows what was told before the crash: the error has no number
        events = follow(server, stream, after)
        assert events[-1][0] is None and "key is not known" in events[-1][1]
        assert events[:-1][:max(0, 5 - after)] == head[after:after + len(events) - 1]  # there may be more than was seen
    # but who was told it and comes again, as an EventSource does, is told to stop
    assert follow(server, stream, 100) == [] and follow(server, stream, len(events) - 1) == []
    assert len(follow(server, stream, 0)) == len(events)
    assert server.get(f"/v1/streams/{stream}?result=1").status_code == 400


# ---- the directory ----

def test_directories_that_cannot_be_used(start, tmp_path):
    server = stored(start, tmp_path / "one")
    with pytest.raises(RuntimeError, match="another server uses it"):
        Server("--state-dir", tmp_path / "one")
    assert server.get("/health").status_code == 200
    with pytest.raises(RuntimeError, match="state directory /proc/nothing"):
        Server("--state-dir", "/proc/nothing")
    (tmp_path / "file").write_text("x")
    with pytest.raises(RuntimeError, match="file.*Not a directory"):
        Server("--state-dir", tmp_path / "file")
    assert server.stop() == 0
    with sqlite3.connect(tmp_path / "one" / "journal.db") as db:
        db.execute("PRAGMA user_version = 2")
    with pytest.raises(RuntimeError, match="format 2"):
        Server("--state-dir", tmp_path / "one")


def test_a_damaged_journal_is_moved_aside(start, tmp_path, crash):
    server = stored(start, tmp_path)
    stream, events = post_stream(server, GREEDY)
    assert server.stop() == 0
    file = tmp_path / "journal.db"
    data = bytearray(file.read_bytes())
    for page in range(1, len(data) // 4096):
        data[page * 4096:page * 4096 + 16] = b"\xff" * 16
    file.write_bytes(data)
    server = stored(start, tmp_path)
    assert any("damaged" in line for line in server.lines)
    assert server.metric("cohort_journal_regained_calls_total") == 1 and follow(server, stream) == events
    check_whole(post_stream(server, GREEDY)[1])
    assert list(tmp_path.glob("journal.db.damaged-*"))


def test_a_flipped_bit_is_no_answer(start, tmp_path, crash):
    server = stored(start, tmp_path)
    stream, events = post_stream(server, GREEDY)
    assert server.stop() == 0
    with sqlite3.connect(tmp_path / "journal.db") as db:
        db.execute("UPDATE events SET bytes = CAST(replace(CAST(bytes AS TEXT), '\"index\":0', '\"index\":1') AS BLOB) WHERE n = 4")
    server = stored(start, tmp_path)  # where it is made again
    assert server.metric("cohort_journal_regained_calls_total") == 1 and follow(server, stream) == events


@pytest.mark.parametrize("sql", [
    "UPDATE notes SET sum = sum + 1 WHERE n = 9",
    "DELETE FROM notes WHERE n = 12",
    "UPDATE events SET bytes = x'7b7d' WHERE n = 7",
    "DELETE FROM events WHERE n = 10",
    "DELETE FROM notes; DELETE FROM events",
])
def test_what_is_damaged_of_an_unfinished_call_is_made_again(start, tmp_path, crash, sql):
    body = {**GREEDY, "n": 2, "max_tokens": 120, "temperature": 1.0, "seed": 3}
    server = stored(start, tmp_path, *SLOW)
    stream, head = post_stream(server, body, stop_after=40)
    time.sleep(0.1)
    crash(server)
    with sqlite3.connect(tmp_path / "journal.db") as db:
        db.executescript(sql)
    server = stored(start, tmp_path, *SLOW)
    time.sleep(0.15)
    crash(server)  # what was made again and what was there before do not mix
    server = stored(start, tmp_path)
    events = head + follow(server, stream, len(head))
    check_whole(events)
    assert follow(server, stream) == events
    assert datas(events) == datas(post_stream(server, body)[1])


def checksum(number, n, data):
    """The journal's, of a blob and its place."""
    total = 0xcbf29ce484222325
    for part in (number, n, len(data), *data):
        total = (total ^ part) * 0x100000001b3 % 2**64
    total ^= total >> 32
    return total - 2**64 if total >= 2**63 else total


def test_more_events_than_are_made_again_end_a_call(start, tmp_path, crash):
    server = stored(start, tmp_path, *SLOW)
    stream, head = post_stream(server, {**GREEDY, "max_tokens": 300}, stop_after=20)
    crash(server)
    with sqlite3.connect(tmp_path / "journal.db") as db:
        (number, last), = db.execute("SELECT stream, max(n) FROM events GROUP BY stream")
        for n in range(last + 1, 500):
            db.execute("INSERT INTO events VALUES (?, ?, ?, ?)", (number, n, b"x", checksum(number, n, b"x")))
    server = stored(start, tmp_path)
    server.until("cohort_stored_calls_unfinished", 0)
    events = follow(server, stream, 490)
    assert events[-1][0] is None and "as it began" in events[-1][1]


@pytest.mark.parametrize("twice", [False, True])
def test_a_request_that_is_damaged_goes_on_or_says_so(start, tmp_path, crash, twice):
    server = stored(start, tmp_path, *SLOW)
    streams = [post_stream(server, {**GREEDY, "max_tokens": 900}, stop_after=20)[0] for _ in range(2)]
    time.sleep(0.1)
    crash(server)
    with sqlite3.connect(tmp_path / "journal.db") as db:
        db.execute("DELETE FROM events WHERE n = 9")
        db.execute("UPDATE streams SET body = x'7b7d' WHERE id = ?", (streams[0],))
        db.execute("UPDATE streams SET head = x'7b7d' WHERE id = ?", (streams[1],))
    if twice:
        (tmp_path / "journal.begun").unlink()
    server = stored(start, tmp_path)
    for stream in streams:
        events = follow(server, stream)
        if twice:
            assert len(events) == 9 and events[-1][0] is None and "journal" in events[-1][1]
        else:
            check_whole(events)
    assert server.metric("cohort_journal_regained_calls_total") == (0 if twice else 2)
    server.until("cohort_stored_calls_unfinished", 0)


def test_a_call_that_ends_the_server_is_not_tried_for_ever(start, tmp_path, crash):
    server = stored(start, tmp_path, *SLOW)
    stream, _ = post_stream(server, {**GREEDY, "max_tokens": 900}, stop_after=2)
    crash(server)
    with sqlite3.connect(tmp_path / "journal.db") as db:
        db.execute("UPDATE streams SET tries = 20")
    server = stored(start, tmp_path)
    assert "not tried again" in follow(server, stream)[-1][1]
    assert server.metric("cohort_requests_submitted_total") == 0
    assert server.metric("cohort_stored_calls_unfinished") == 0 and server.metric("cohort_stored_calls_ended") == 1


def test_another_room_or_model_cannot_go_on(start, tmp_path, crash):
    open_ended = {"messages": [{"role": "user", "content": "x"}], "temperature": 1.0, "seed": 1}  # as many tokens as there is room for
    server = stored(start, tmp_path, *SLOW)
    stream, head = post_stream(server, open_ended, "/v1/chat/completions", stop_after=2)
    crash(server)
    server = start("-c", 990, "-np", 8, "--state-dir", tmp_path, *SLOW)
    events = follow(server, stream)
    if events[-1][1] != "[DONE]":  # what was told and not yet written is not known any more
        n = min(len(head), len(events) - 1)
        assert "max_tokens" in events[-1][1] and events[-1][0] is None and events[:n] == head[:n]
    others = sorted(path for path in pathlib.Path(MODEL).parent.parent.glob("*/model.gguf") if path != pathlib.Path(MODEL))
    if not TINY or not others:
        pytest.skip("no other model here")
    long, head = post_stream(server, {**GREEDY, "max_tokens": 900}, stop_after=2)
    crash(server)
    server = start("-c", 1000, "--state-dir", tmp_path, model=str(others[0]))
    events = follow(server, long, 2)
    assert events[-1][0] is None and "another model" in events[-1][1]


def test_a_full_disk_is_refused_and_others_go_on(start, tmp_path):
    server = stored(start, tmp_path, *SLOW)
    body = {**GREEDY, "max_tokens": 400}
    result = {}
    runs = threading.Thread(target=lambda: result.update(events=post_stream(server, body)))
    runs.start()
    server.until("cohort_rows_running", 1)
    time.sleep(0.1)
    size = max(f.stat().st_size for f in tmp_path.iterdir())
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    deadline = time.monotonic() + 20
    while not any("journal.db cannot be written" in line for line in server.lines):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    reply = server.post("/v1/completions", {**GREEDY, "store": True})
    assert reply.status_code == 503 and reply.json()["error"]["param"] == "store" and "state directory" in reply.text
    assert server.complete("x", 2)["usage"]["completion_tokens"] == 2
    runs.join()
    stream, events = result["events"]
    check_whole(events)
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    check_whole(post_stream(server, GREEDY)[1])
    assert sum("journal.db cannot be written" in line for line in server.lines) == 1, server.lines  # the disk tier has its own
    assert server.metric("cohort_stored_calls_lost_total") == 1
    assert server.stop() == 0
    server = stored(start, tmp_path)  # what was lost is made again
    again = follow(server, stream)
    assert datas(again) == datas(events)
