"""The prefix store as clients see it: its fields, what `cached_tokens` says, sessions and slots, and what survives a restart. Answers never
differ from those of a request that takes nothing from it."""
import itertools
import json
import random
import re
import socket
import time

import httpx
import pytest

from conftest import SLOW, TINY
from test_tenants import key, write

FRESH = itertools.count(1)
GREEDY = {"max_tokens": 4, "temperature": 0, "ignore_eos": True}


def fresh(n):
    """Ids that no other prompt of this run begins with."""
    draw = random.Random(f"prompt {next(FRESH)}")
    return [draw.randrange(5, 200) for _ in range(n)]


def ask(server, prompt, **fields):
    """The answer, and how many tokens of its prompt were cached."""
    reply = server.post("/v1/completions", {"prompt": prompt, **GREEDY, **fields})
    assert reply.status_code == 200, reply.text
    assert "X-Cohort-Unknown-Fields" not in reply.headers, reply.headers
    return reply.json()["choices"], reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


def cached(server, prompt, **fields):
    return ask(server, prompt, **fields)[1]


# ---- fields ----

REFUSED = [
    ({"cache_prompt": 1}, "cache_prompt"), ({"cache_prompt": "yes"}, "cache_prompt"),
    ({"cache_salt": ""}, "cache_salt"), ({"cache_salt": 7}, "cache_salt"), ({"cache_salt": "x" * 257}, "cache_salt"),
    ({"cache_session_id": ""}, "cache_session_id"), ({"cache_session_id": "x" * 129}, "cache_session_id"),
    ({"cache_session_id": {}}, "cache_session_id"), ({"id_slot": -2}, "id_slot"), ({"id_slot": 2 ** 31}, "id_slot"),
    ({"id_slot": 0.5}, "id_slot"), ({"id_slot": 1, "cache_session_id": "a"}, "id_slot"),
]
TAKEN = [
    {"cache_prompt": True}, {"cache_prompt": False}, {"cache_salt": "x" * 256}, {"cache_session_id": "x" * 128}, {"id_slot": -1},
    {"id_slot": 2 ** 31 - 1}, {"id_slot": -1, "cache_session_id": "a"}, {"prompt_cache_key": "anything"},
    {"cache_prompt": None, "cache_salt": None, "cache_session_id": None, "id_slot": None},
]
PATHS = {"/v1/completions": {"prompt": [5, 6, 7]}, "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hi"}]}}


@pytest.mark.parametrize("path", PATHS, ids=["completions", "chat"])
def test_fields_are_strict(server, path):
    for fields, param in REFUSED:
        reply = server.post(path, {**PATHS[path], **GREEDY, **fields})
        assert reply.status_code == 400, fields
        error = reply.json()["error"]
        assert error["param"] == param and param in error["message"] and error["type"] == "invalid_request_error", error
    for fields in TAKEN:
        reply = server.post(path, {**PATHS[path], **GREEDY, **fields})
        assert reply.status_code == 200, reply.text
        assert "X-Cohort-Unknown-Fields" not in reply.headers, fields


def test_snapshot_at_is_strict(server):
    for places in (5, [0], [-1], [3, 3], [4, 3], [1.5], ["1"], list(range(1, 10)), [2 ** 32]):
        reply = server.post("/v1/completions", {"prompt": [5] * 20, **GREEDY, "snapshot_at": places})
        assert reply.status_code == 400 and reply.json()["error"]["param"] == "snapshot_at", (places, reply.text)
    reply = server.post("/v1/completions", {"prompt": [5] * 20, **GREEDY, "snapshot_at": [5, 30]})  # behind the prompt
    assert reply.status_code == 400 and reply.json()["error"]["param"] == "snapshot_at", reply.text
    for places in ([], None, [1], [1, 2, 3, 4, 5, 6, 7, 19]):
        ask(server, [5] * 20, snapshot_at=places)
    reply = server.post("/v1/chat/completions", {**PATHS["/v1/chat/completions"], **GREEDY, "snapshot_at": [1]})
    assert reply.headers["X-Cohort-Unknown-Fields"] == "snapshot_at"  # a chat's places are its turns


# ---- cached_tokens ----

def test_a_repeated_prompt(server):
    prompt = fresh(200)
    first, none = ask(server, prompt)
    again, all_but_one = ask(server, prompt)
    assert none == 0 and all_but_one == 199 and again == first


def test_a_prompt_that_goes_on(server):
    prompt = fresh(150)
    ask(server, prompt, max_tokens=30)
    assert cached(server, prompt + fresh(40)) in range(149, 151)


def test_an_edited_prompt(server):
    """Nothing behind the edit is taken, and with a place to go on, all before it."""
    prompt = fresh(300)
    ask(server, prompt, snapshot_at=[170])
    edited = prompt[:170] + fresh(130)
    cold, _ = ask(server, edited, cache_prompt=False)
    warm, taken = ask(server, edited)
    assert taken == 170 and warm == cold
    early = prompt[:33] + fresh(200)
    cold, _ = ask(server, early, cache_prompt=False)
    warm, taken = ask(server, early)
    assert taken <= 33 and warm == cold


def test_cache_prompt_false_takes_and_leaves_nothing(server):
    prompt = fresh(120)
    assert cached(server, prompt, cache_prompt=False) == 0
    assert cached(server, prompt) == 0
    assert cached(server, prompt, cache_prompt=False) == 0
    assert cached(server, prompt) == 119


def test_salts_keep_apart(server):
    prompt = fresh(120)
    assert cached(server, prompt, cache_salt="a") == 0
    assert cached(server, prompt, cache_salt="b") == 0
    assert cached(server, prompt) == 0
    assert cached(server, prompt, cache_salt="a") == 119
    assert cached(server, prompt, cache_salt="a\0") == 0


def test_tenants_keep_apart(start, tmp_path):
    server = start("-c", 1000, "--keys", write(tmp_path, [{"name": "one", "key": "k1"}, {"name": "two", "key": "k2"}]))
    prompt, answers = fresh(120), []
    for name, taken in (("k1", 0), ("k2", 0), ("k1", 119), ("k2", 119)):
        server.headers = key(name)
        choices, n = ask(server, prompt)
        assert n == taken, name
        answers.append(choices)
    assert all(answer == answers[0] for answer in answers)


def test_choices_share_a_prompt(server):
    """cached_tokens says of each prompt what was not computed for its first choice."""
    prompt = fresh(200)
    cold, taken = ask(server, prompt, n=4, temperature=1, seed=5, cache_prompt=False)
    assert taken == 0
    choices, taken = ask(server, prompt, n=4, temperature=1, seed=5)
    assert taken == 0 and choices == cold
    choices, taken = ask(server, prompt, n=4, temperature=1, seed=5)
    assert taken == 199 and choices == cold
    both = server.complete([prompt, prompt], 4)["usage"]
    assert both["prompt_tokens"] == 400 and both["prompt_tokens_details"]["cached_tokens"] == 398


def test_streams_say_it_too(server):
    prompt = fresh(100)
    body = {"prompt": prompt, **GREEDY, "stream_options": {"include_usage": True}}
    for taken in (0, 99):
        usage = server.stream(body)[-2]["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] == taken and usage["prompt_tokens"] == 100


def chat(server, messages, **fields):
    reply = server.post("/v1/chat/completions", {"messages": messages, **GREEDY, **fields})
    assert reply.status_code == 200, reply.text
    usage = reply.json()["usage"]
    return reply.json()["choices"][0]["message"]["content"], usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]


def words(n):
    draw = random.Random(f"words {next(FRESH)}")
    return " ".join(draw.choice(["red", "blue", "green", "seven", "eight", "river", "stone"]) for _ in range(n))


def test_a_conversation(start):
    """Turn after turn only what is new is read; so it is when the last turn is asked again in other words, or another conversation begins
    with the same system text."""
    server = start("-c", 6000, "-np", 4)
    system = {"role": "system", "content": words(300)}
    messages, read = [system], 0
    for turn in range(4):
        messages.append({"role": "user", "content": words(200)})
        cold, n, none = chat(server, messages, cache_prompt=False)
        answer, n, taken = chat(server, messages, cache_session_id="talk")
        assert answer == cold and none == 0
        assert taken == 0 if turn == 0 else taken >= read - 1, (turn, taken, read)
        read = n
        messages.append({"role": "assistant", "content": answer})
    edited = messages[:-2] + [{"role": "user", "content": words(200)}]
    cold, n, _ = chat(server, edited, cache_prompt=False)
    answer, n, taken = chat(server, edited)
    before = chat(server, messages[:-2], cache_prompt=False)[1]  # and what opens an assistant's turn
    assert answer == cold and before - 40 <= taken <= before, (before, taken)
    other = [system, {"role": "user", "content": words(100)}]
    cold, n, _ = chat(server, other, cache_prompt=False)
    answer, n, taken = chat(server, other)
    least = chat(server, [system], cache_prompt=False)[1]
    assert answer == cold and least - 40 <= taken <= least, (least, taken)


def test_warm_answers_are_cold_answers(start):
    """Random requests over a few stems, greedy and sampled, with log-probabilities, in a state so small that much is evicted."""
    server = start("-c", 600, "-np", 4, "--kv-tokens", 2400)
    draw = random.Random(3)
    stems = [fresh(400) for _ in range(3)]
    taken_in_all = 0
    for i in range(60 if TINY else 8):
        prompt = draw.choice(stems)[:draw.randrange(1, 400)] + fresh(draw.randrange(1, 60))
        body = {"max_tokens": draw.randrange(1, 20), "temperature": draw.choice([0, 0.8]), "seed": i, "logprobs": draw.choice([None, 0, 3]),
                "n": draw.choice([1, 1, 3])}
        cold, none = ask(server, prompt, **body, cache_prompt=False)
        warm, taken = ask(server, prompt, **body)
        assert none == 0 and warm == cold, (i, taken)
        taken_in_all += taken
    assert taken_in_all > 0


# ---- sessions and slots ----

def act(server, path, action, body=None, **kw):
    return server.post(f"{path}?action={action}", {} if body is None else body, **kw)


def good(reply):
    assert reply.status_code == 200, reply.text
    return reply.json()


def bad(reply, status, param, *texts):
    assert reply.status_code == status, reply.text
    error = reply.json()["error"]
    assert error["param"] == param and all(text in error["message"] for text in texts), error


def test_without_a_state_dir(server):
    for path in ("/slots/0", "/v1/sessions/a"):
        for action in ("save", "restore"):
            bad(act(server, path, action, {"filename": "a"}), 400, "state-dir")


def test_calls_about_sessions_are_strict(server):
    for path in ("/slots/", "/slots/a", "/slots/-1", "/slots/2147483648", "/slots/99999999999999999999", "/slots/1x"):
        bad(act(server, path, "erase"), 400, "id_slot")
    for path in ("/v1/sessions/", "/v1/sessions/" + "x" * 129):
        bad(act(server, path, "erase"), 400, "cache_session_id")
    for query in ("", "?action", "?action=", "?action=load", "?x=save"):
        bad(server.post("/slots/0" + query, {"filename": "a"}), 400, "action")
    for body in ({}, {"filename": None}, {"filename": ""}, {"filename": "x" * 129}, {"filename": 5}):
        bad(act(server, "/slots/0", "save", body), 400, "filename")
    for body in ("[]", "{", "5"):
        bad(act(server, "/slots/0", "save", body), 400, None, "the body")
    for method in ("GET", "DELETE"):
        reply = httpx.request(method, server.url + "/slots/0?action=erase")
        assert reply.status_code == 405 and reply.headers["Allow"] == "POST"
    bad(act(server, "/slots/12345", "erase"), 404, "session")
    bad(act(server, "/v1/sessions/never", "erase"), 404, "session")
    assert server.post("/slots/1/2?action=erase", {}).status_code == 404
    reply = act(server, "/slots/0", "save", {"filename": "a", "frobnicate": 1, "model": "x"})
    assert reply.headers["X-Cohort-Unknown-Fields"] == "frobnicate"


def test_a_session_is_erased(server):
    prompt = fresh(100)
    ask(server, prompt, id_slot=7)
    done = good(act(server, "/slots/7", "erase"))
    assert done["id_slot"] == 7 and done["n_erased"] == 96, done  # what a session keeps are whole blocks of 32
    bad(act(server, "/slots/7", "erase"), 404, "session")
    ask(server, prompt, cache_session_id="a b/c")
    done = good(server.post("/v1/sessions/a%20b%2Fc?action=erase", b""))
    assert done["session"] == "a b/c" and done["n_erased"] == 96, done


def test_a_slot_survives_a_restart(start, tmp_path):
    """Saved, erased, restored; and restored by another process. What is restored is taken, and the answers are the same."""
    folder = tmp_path / "state"
    server = start("-c", 1000, "--state-dir", folder)
    prompt = fresh(250)
    ask(server, prompt, id_slot=3)
    saved = good(act(server, "/slots/3", "save", {"filename": "talk.bin"}))
    assert saved["id_slot"] == 3 and saved["filename"] == "talk.bin" and saved["n_saved"] == 224 and saved["n_written"] > 0
    assert saved["timings"]["save_ms"] >= 0 and len(saved) == 5
    longer = prompt + fresh(30)
    cold, _ = ask(server, longer, cache_prompt=False)
    good(act(server, "/slots/3", "erase"))
    restored = good(act(server, "/slots/3", "restore", {"filename": "talk.bin"}))
    assert restored["n_restored"] == saved["n_saved"] and restored["n_read"] > 0 and restored["timings"]["restore_ms"] >= 0
    assert restored["id_slot"] == 3 and restored["filename"] == "talk.bin" and len(restored) == 5
    assert server.stop() == 0
    server = start("-c", 1000, "--state-dir", folder)
    restored = good(act(server, "/slots/0", "restore", {"filename": "talk.bin"}))
    assert restored["n_restored"] == saved["n_saved"] and restored["id_slot"] == 0
    warm, taken = ask(server, longer, id_slot=0)
    assert warm == cold and taken >= 224, taken
    assert server.metric("cohort_disk_restores_total") >= 1 and server.metric("cohort_cache_sessions") >= 1
    bad(act(server, "/slots/0", "restore", {"filename": "another.bin"}), 404, "session")


def test_a_name_is_no_path(start, tmp_path):
    folder = tmp_path / "deep" / "state"
    folder.parent.mkdir()
    server = start("-c", 1000, "--state-dir", folder)
    ask(server, fresh(100), cache_session_id="talk")
    for name in ("../../out", "/etc/passwd", "a/b", "..", "a\0b", "\u00e4" * 64, "x" * 128):
        assert good(act(server, "/v1/sessions/talk", "save", {"filename": name}))["filename"] == name
        assert good(act(server, "/v1/sessions/talk", "restore", {"filename": name}))["filename"] == name
    assert [p.name for p in tmp_path.iterdir()] == ["deep"] and [p.name for p in folder.parent.iterdir()] == ["state"]
    done = good(server.post("/v1/sessions/talk?action=save", b""))  # a session's own name, if no other is given
    assert done["filename"] == "talk" and done["session"] == "talk"


def test_sessions_belong_to_tenants(start, tmp_path):
    keys = write(tmp_path, [{"name": "one", "key": "k1"}, {"name": "two", "key": "k2"}])
    server = start("-c", 1000, "--keys", keys, "--state-dir", tmp_path / "state")
    server.headers = key("k1")
    ask(server, fresh(100), id_slot=0)
    good(act(server, "/slots/0", "save", {"filename": "mine"}))
    other = {"headers": key("k2")}
    bad(act(server, "/slots/0", "save", {"filename": "mine"}, **other), 404, "session")
    bad(act(server, "/slots/0", "restore", {"filename": "mine"}, **other), 404, "session")
    bad(act(server, "/slots/0", "erase", **other), 404, "session")
    good(act(server, "/slots/0", "restore", {"filename": "mine"}))
    assert act(server, "/slots/0", "erase", headers={}).status_code == 401


def test_a_key_called_default_is_nobody_elses(start, tmp_path):
    """What a server without keys kept, no key finds: neither a session nor a prefix."""
    folder = tmp_path / "state"
    prompt = fresh(100)
    server = start("-c", 1000, "--state-dir", folder)
    ask(server, prompt, id_slot=0)
    good(act(server, "/slots/0", "save", {"filename": "mine"}))
    assert server.stop() == 0
    keys = write(tmp_path, [{"name": "default", "key": "k1"}])
    server = start("-c", 1000, "--keys", keys, "--state-dir", folder)
    server.headers = key("k1")
    bad(act(server, "/slots/0", "restore", {"filename": "mine"}), 404, "session")
    assert ask(server, prompt)[1] == 0
    assert server.stop() == 0
    server = start("-c", 1000, "--state-dir", folder)
    good(act(server, "/slots/0", "restore", {"filename": "mine"}))
    assert ask(server, prompt)[1] >= 96


def test_clients_that_leave_a_save(start, tmp_path):
    """A hundred of them; those that stay are answered, one at a time, or told that too many wait."""
    server = start(*SLOW, "-c", 1000, "--state-dir", tmp_path / "state")
    ask(server, fresh(300), id_slot=0)
    sockets = []
    body = json.dumps({"filename": "x"}).encode()
    for i in range(100):
        s = socket.create_connection(("127.0.0.1", server.port), timeout=60)
        s.sendall(b"POST /slots/0?action=save HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        if i % 2:
            s.close()
        else:
            sockets.append(s)
    heads = [s.recv(4096).split(b"\r\n")[0] for s in sockets]
    assert all(re.fullmatch(rb"HTTP/1.1 (200 OK|429 Too Many Requests)", head) for head in heads), heads
    assert b"HTTP/1.1 200 OK" in heads
    assert good(act(server, "/slots/0", "save", {"filename": "y"}))["n_saved"] == 288


def test_a_save_is_answered_before_the_end(start, tmp_path):
    server = start("-c", 1000, "--state-dir", tmp_path / "state")
    ask(server, fresh(300), id_slot=0)
    body = json.dumps({"filename": "x"}).encode()
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as s:
        s.sendall(b"POST /slots/0?action=save HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        time.sleep(0.05)
        assert server.stop() == 0
        assert s.recv(4096).startswith(b"HTTP/1.1 200 OK")


# ---- sight ----

def test_metrics_of_the_store(start):
    server = start("-c", 1000)
    text = server.get("/metrics").text
    for name, kind in (("cache_lookups_total", "counter"), ("cache_hits_total", "counter"), ("cache_blocks", "gauge"), ("cache_snapshots", "gauge"),
                       ("cache_bytes", "gauge"), ("cache_evictions_total", "counter"), ("cache_snapshot_evictions_total", "counter"),
                       ("cache_sessions", "gauge"), ("disk_blocks", "gauge"), ("disk_bytes", "gauge"), ("disk_queued_bytes", "gauge"),
                       ("disk_written_total", "counter"), ("disk_restored_total", "counter"), ("disk_evictions_total", "counter"),
                       ("disk_failures_total", "counter"), ("disk_restores_total", "counter"), ("requests_resumed_total", "counter")):
        assert f"# TYPE cohort_{name} {kind}\ncohort_{name} 0\n" in text, name
    prompt = fresh(100)
    ask(server, prompt)
    ask(server, prompt, id_slot=1)
    deadline = time.monotonic() + 20
    while server.metric("cohort_cache_sessions") != 1:
        assert time.monotonic() < deadline
    assert server.metric("cohort_cached_tokens_total") == server.metric("vllm:prefix_cache_hits_total") == 99
    assert server.metric("cohort_prompt_tokens_total") == 101 and server.metric("vllm:prefix_cache_queries_total") == 200
    assert server.metric("cohort_cache_lookups_total") == 2 and server.metric("cohort_cache_hits_total") == 1
    assert server.metric("cohort_cache_blocks") >= 3 and server.metric("cohort_cache_bytes") > 0


def test_without_a_store(start):
    server = start("-c", 1000, "--no-cache")
    prompt = fresh(100)
    assert cached(server, prompt, id_slot=1) == cached(server, prompt, id_slot=1) == 0
    assert server.metric("cohort_cache_lookups_total") == server.metric("vllm:prefix_cache_queries_total") == 0
    for action in ("save", "restore", "erase"):
        bad(act(server, "/slots/1", action, {"filename": "x"}), 400, "cache")
