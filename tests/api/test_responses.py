"""/v1/responses on the wire: fields, events, what is kept of it, going on from an earlier one, the end by its client or by a crash."""
import json
import re
import signal
import threading
import time

import httpx
import pytest

from conftest import SLOW, TIMEOUT_S

PATH = "/v1/responses"
BODY = {"model": "m", "input": "Once upon a time", "max_output_tokens": 12, "temperature": 0, "ignore_eos": True}
LONG = {**BODY, "max_output_tokens": 900}
IDS = re.compile(r"(resp|msg)_[0-9a-f]{24}")


def normal(text):
    """An answer's bytes without what names the call itself, and what it found in the cache."""
    return re.sub(r'"(created_at|cached_tokens)": ?\d+', r'"\1":0', IDS.sub("ID", text))


def ask(server, status=200, **fields):
    body = {key: value for key, value in {**BODY, **fields}.items() if value is not ...}
    reply = server.post(PATH, body)
    assert reply.status_code == status, reply.text
    return reply.json() if status == 200 else reply.json()["error"]


def text_of(response):
    return "".join(part["text"] for item in response["output"] for part in item["content"])


def events_of(lines):
    """[(number, event, data)]"""
    found, number, name = [], None, None
    for line in lines:
        if line.startswith("id: "):
            number = int(line[4:])
        elif line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: "):
            found.append((number, name, line[6:]))
            number = name = None
    return found


def stream(server, stop_after=None, method="POST", path=PATH, **fields):
    lines = []
    kw = {"json": {**BODY, **fields, "stream": True}} if method == "POST" else {}
    with httpx.stream(method, server.url + path, timeout=TIMEOUT_S, headers=server.headers, **kw) as reply:
        assert reply.status_code in (200, 204), reply.read()
        try:
            for line in reply.iter_lines():
                lines.append(line)
                if line == "" and stop_after and len(events_of(lines)) >= stop_after:
                    break
        except httpx.HTTPError:
            pass  # the server was killed
    whole = lines[:len(lines) - lines[::-1].index("")] if "" in lines else []
    return events_of(whole)


def follow(server, response, after=None):
    more = "" if after is None else f"&starting_after={after}"
    return stream(server, method="GET", path=f"{PATH}/{response}?stream=true{more}")


def check_events(found):
    """The order, the numbers, and that all parts say the same. Returns the object."""
    datas = [json.loads(data) for _, _, data in found]
    names = [data["type"] for data in datas]
    assert [name for _, name, _ in found] == names
    assert [data["sequence_number"] for data in datas] == list(range(len(datas)))
    head = ["created", "in_progress", "output_item.added", "content_part.added"]
    tail = ["output_text.done", "content_part.done", "output_item.done"]
    assert names[:4] == ["response." + name for name in head] and names[-4:-1] == ["response." + name for name in tail]
    assert set(names[4:-4]) <= {"response.output_text.delta"}
    text = "".join(data["delta"] for data in datas[4:-4])
    response = datas[-1]["response"]
    assert names[-1] == ("response.completed" if response["status"] == "completed" else "response.incomplete")
    assert datas[-4]["text"] == datas[-3]["part"]["text"] == datas[-2]["item"]["content"][0]["text"] == text == text_of(response)
    assert {data["item_id"] for data in datas[3:-2] if "item_id" in data} == {response["output"][0]["id"]}
    return response


@pytest.fixture
def keep(start, tmp_path):
    """keep(*flags): a server that stores; again after a crash with the same folder."""
    return lambda *flags, folder="state", **kw: start("-c", 1000, "-np", 8, "--queue", 64, "--state-dir", tmp_path / folder, *flags, **kw)


@pytest.fixture
def crash():
    def kill(server):
        server.process.send_signal(signal.SIGKILL)
        server.process.wait(30)
    return kill


def until(what, seconds=30):
    deadline = time.monotonic() + seconds
    while not (value := what()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return value


# ---- answers ----

def test_a_response_and_its_stream(server):
    response = ask(server)
    assert response["object"] == "response" and response["status"] == "incomplete" and response["store"] is False
    assert response["incomplete_details"] == {"reason": "max_output_tokens"} and response["usage"]["output_tokens"] == 12
    found = stream(server)
    assert all(number is None for number, _, _ in found)  # not stored
    streamed = check_events(found)
    assert normal(json.dumps(streamed)) == normal(json.dumps(response))
    chat = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": BODY["input"]}], "max_tokens": 12, "temperature": 0,
                                                "ignore_eos": True}).json()
    assert text_of(response) == chat["choices"][0]["message"]["content"]
    assert server.get(f"{PATH}/{response['id']}").status_code == 404
    stopped = ask(server, stop=text_of(response)[4:6])
    assert stopped["status"] == stopped["output"][0]["status"] == "completed" and text_of(response).startswith(text_of(stopped))


def test_forms_of_input_are_one(server):
    text = text_of(ask(server, instructions="Be brief."))
    message = {"role": "user", "content": [{"type": "input_text", "text": "Once upon"}, {"type": "input_text", "text": " a time"}]}
    for items in ([{"role": "user", "content": "Once upon a time"}], [{"type": "message", **message}], [message]):
        assert text_of(ask(server, input=items, instructions="Be brief.")) == text
    assert text_of(ask(server, input=[{"role": "developer", "content": "Be brief."}, message])) == text
    assert text_of(ask(server, input=[{"role": "system", "content": "Be brief."}, message])) == text


def test_sampling_is_that_of_a_chat(server):
    """Also what needs the tokenizer: logit_bias, bad_words."""
    chat = {"messages": [{"role": "user", "content": BODY["input"]}], "max_tokens": 12, "temperature": 0, "ignore_eos": True}
    first = server.post("/v1/chat/completions", {**chat, "return_token_ids": True}).json()["choices"][0]["token_ids"][0]
    fields = {"logit_bias": {str(first): False}, "bad_words": ["the"], "repeat_penalty": 1.3, "min_p": 0.01, "min_tokens": 3, "seed": 5}
    other = server.post("/v1/chat/completions", {**chat, **fields}).json()["choices"][0]["message"]["content"]
    reply = server.post(PATH, {**BODY, **fields})
    assert text_of(reply.json()) == other != text_of(ask(server)) and "x-cohort-unknown-fields" not in reply.headers


def test_logprobs(server):
    wish = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    response = ask(server, **wish)
    logprobs = response["output"][0]["content"][0]["logprobs"]
    assert len(logprobs) == 12 and all(len(one["top_logprobs"]) == 2 and one["bytes"] for one in logprobs)
    found = stream(server, **wish)
    assert [one for _, name, data in found if name == "response.output_text.delta" for one in json.loads(data)["logprobs"]] == logprobs
    assert normal(json.dumps(check_events(found))) == normal(json.dumps(response))


def test_what_the_request_said_is_repeated(server):
    fields = {"metadata": {"a": "b"}, "instructions": "x", "parallel_tool_calls": False, "user": "u", "safety_identifier": "s",
              "prompt_cache_key": "k", "max_tool_calls": 3, "tool_choice": "none", "top_p": 0.5, "temperature": 0.25}
    response = ask(server, **fields)
    assert {name: response[name] for name in fields} == fields
    assert response["tools"] == [] and response["text"] == {"format": {"type": "text"}} and response["truncation"] == "disabled"
    neutral = {"tools": [], "text": {"format": {"type": "text"}}, "reasoning": {"effort": None}, "truncation": "disabled", "background": False,
               "include": [], "service_tier": "auto", "conversation": None, "prompt": None, "stream_options": None, "store": False}
    assert text_of(ask(server, **neutral)) == text_of(ask(server))
    reply = server.post(PATH, {**BODY, "no_such_field": 1})
    assert reply.headers["X-Cohort-Unknown-Fields"] == "no_such_field"


@pytest.mark.parametrize("fields, param", [
    ({"input": ...}, "input"), ({"input": None}, "input"), ({"input": []}, "input"), ({"input": 3}, "input"), ({"input": [3]}, "input[0]"),
    ({"input": [{"role": "tool", "content": "x"}]}, "input[0].role"), ({"input": [{"role": "user"}]}, "input[0].content"),
    ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0]"),
    ({"input": [{"role": "user", "content": "x"}, {"type": "function_call_output"}]}, "input[1]"),
    ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0]"), ({"input": [{"type": 5}]}, "input[0]"),
    ({"instructions": 5}, "instructions"), ({"max_output_tokens": 0}, "max_output_tokens"), ({"max_output_tokens": "9"}, "max_output_tokens"),
    ({"max_tokens": 5}, "max_tokens"), ({"n": 2}, "n"), ({"temperature": "hot"}, "temperature"), ({"tools": [{"type": "function"}]}, "tools[0]"),
    ({"tool_choice": "required"}, "tool_choice"), ({"text": {"format": {"type": "xml"}}}, "text"), ({"text": "x"}, "text"),
    ({"reasoning": {"effort": "high"}}, "reasoning"), ({"truncation": "auto"}, "truncation"), ({"include": ["nothing"]}, "include"),
    ({"include": "x"}, "include"), ({"top_logprobs": 2}, "top_logprobs"), ({"metadata": {"a": 1}}, "metadata"),
    ({"metadata": {str(i): "" for i in range(17)}}, "metadata"), ({"background": True}, "background"), ({"store": True}, "store"),
    ({"previous_response_id": "resp_0"}, "previous_response_id"), ({"previous_response_id": 5}, "previous_response_id"),
    ({"previous_response_id": "chatcmpl-0"}, "previous_response_id"), ({"conversation": "c"}, "conversation"), ({"service_tier": "flex"}, "service_tier"),
    ({"max_output_tokens": 5000}, "input"),
])
def test_what_cannot_be_done_is_refused_by_name(server, fields, param):
    error = ask(server, status=400, **fields)
    assert error["param"] == param, error


# ---- what is kept ----

def test_a_response_is_kept_unless_it_says_no(keep):
    server = keep()
    response = ask(server)
    assert response["store"] is True and server.get(f"{PATH}/{response['id']}").json() == response
    other = ask(server, store=False)
    assert other["store"] is False and server.get(f"{PATH}/{other['id']}").status_code == 404
    found = stream(server)
    streamed = check_events(found)
    assert [number for number, _, _ in found] == list(range(1, len(found) + 1))
    assert server.get(f"{PATH}/{streamed['id']}").json() == streamed
    for after in (None, 0, 4, len(found) - 2):
        assert follow(server, streamed["id"], after) == found[0 if after is None else after + 1:]
    assert follow(server, streamed["id"], len(found) - 1) == []
    for query in ("stream=x", "starting_after=1", "stream=true&starting_after=-1", "stream=true&starting_after="):
        assert server.get(f"{PATH}/{streamed['id']}?{query}").status_code == 400
    assert server.get(f"{PATH}/resp_0").status_code == server.get(f"{PATH}/x%00").status_code == 404
    assert ask(server, status=400, background=True, store=False)["param"] == "background"
    chat = server.post("/v1/completions", {"prompt": "x", "max_tokens": 1, "store": True}).json()["id"]
    assert server.get(f"{PATH}/{chat}").status_code == server.post(f"{PATH}/{chat}/cancel", {}).status_code == 404
    assert httpx.delete(f"{server.url}{PATH}/{chat}").status_code == 404


def test_items_have_pages(keep):
    server = keep()
    first = ask(server, input=[{"role": "user", "content": str(i), **({"id": "msg_mine"} if i == 2 else {})} for i in range(5)])
    url = f"{PATH}/{first['id']}/input_items"
    get = lambda query: server.get(f"{url}?{query}").json()
    every = get("order=asc")
    texts = lambda page: [item["content"][0]["text"] for item in page["data"]]
    assert texts(every) == list("01234") and every["data"][2]["id"] == "msg_mine" and every["has_more"] is False
    assert texts(server.get(url).json()) == list("43210")
    page = get("limit=2&order=asc")
    assert texts(page) == list("01") and page["has_more"] and (page["first_id"], page["last_id"]) == tuple(item["id"] for item in page["data"])
    assert texts(get(f"limit=2&order=asc&after={page['last_id']}")) == list("23")
    assert texts(get("after=msg_mine")) == list("10") and get("after=nothing")["data"] == []
    for query in ("limit=0", "limit=101", "limit=x", "order=up"):
        assert server.get(f"{url}?{query}").status_code == 400


def test_a_conversation_goes_on_as_if_it_were_told_whole(keep, crash):
    server = keep()
    one = ask(server, instructions="Be brief.")
    two = ask(server, input="And then?", previous_response_id=one["id"])
    assert httpx.delete(f"{server.url}{PATH}/{one['id']}").json() == {"id": one["id"], "object": "response", "deleted": True}
    assert server.get(f"{PATH}/{one['id']}").status_code == 404
    assert ask(server, status=400, previous_response_id=one["id"])["param"] == "previous_response_id"
    crash(server)
    server = keep()
    third = {"input": [{"role": "user", "content": "At last?"}], "instructions": "Shout.", "temperature": 1.0, "seed": 3}
    three = ask(server, previous_response_id=two["id"], **third)
    said = [{"role": "user", "content": BODY["input"]}, one["output"][0], {"role": "user", "content": "And then?"}, *two["output"], *third["input"]]
    whole = ask(server, **{**third, "input": said})
    assert three["previous_response_id"] == two["id"] and whole["previous_response_id"] is None
    assert three["output"][0]["content"] == whole["output"][0]["content"]
    assert three["usage"]["input_tokens"] == whole["usage"]["input_tokens"]
    streamed = check_events(stream(server, previous_response_id=two["id"], **third))
    assert streamed["output"][0]["content"] == whole["output"][0]["content"]
    count = server.post(PATH + "/input_tokens", {"model": "m", "input": third["input"], "instructions": "Shout.", "previous_response_id": two["id"]})
    assert count.json() == {"object": "response.input_tokens", "input_tokens": whole["usage"]["input_tokens"]}
    listed = server.get(f"{PATH}/{three['id']}/input_items?order=asc").json()["data"]
    assert [item["role"] for item in listed] == ["user", "assistant"] * 2 + ["user"]
    error = ask(server, status=400, previous_response_id=two["id"], input=[{"role": "user", "content": "x"}, {"type": "reasoning"}])
    assert error["param"] == "input[1]"  # its place in the request


def test_many_go_on_from_one_at_once(keep):
    server = keep()
    one = ask(server)
    alone = [text_of(ask(server, input=str(i), previous_response_id=one["id"])) for i in range(8)]
    results = {}

    def go_on(i):
        if i % 2:
            results[i] = text_of(ask(server, input=str(i), previous_response_id=one["id"]))
        else:
            results[i] = text_of(check_events(stream(server, input=str(i), previous_response_id=one["id"])))

    threads = [threading.Thread(target=go_on, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [results[i] for i in range(8)] == alone


def test_a_key_sees_its_own(keep, tmp_path):
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps({"keys": [{"name": "one", "key": "key-one"}, {"name": "two", "key": "key-two"}]}))
    keys.chmod(0o600)
    server = keep("--keys", keys, *SLOW)
    server.headers = {"Authorization": "Bearer key-one"}
    response = ask(server)["id"]
    running = ask(server, **LONG, background=True)["id"]
    server.headers = {"Authorization": "Bearer key-two"}
    for one in (response, running):
        for path in (f"{PATH}/{one}", f"{PATH}/{one}?stream=true", f"{PATH}/{one}/input_items"):
            assert server.get(path).status_code == 404
        assert server.post(f"{PATH}/{one}/cancel", {}).status_code == 404
        assert httpx.delete(f"{server.url}{PATH}/{one}", headers=server.headers).status_code == 404
        assert ask(server, status=400, previous_response_id=one)["param"] == "previous_response_id"
    server.headers = {"Authorization": "Bearer key-one"}
    assert server.get(f"{PATH}/{running}").json()["status"] == "in_progress"
    assert ask(server, status=400, previous_response_id=running)["param"] == "previous_response_id"
    assert server.post(f"{PATH}/{running}/cancel", {}).json()["status"] == "cancelled"


# ---- the end ----

def test_in_the_background_it_ends_by_itself_also_through_a_crash(keep, crash):
    body = {"max_output_tokens": 300, "temperature": 1.0, "seed": 4, "background": True}
    server = keep(*SLOW)
    expected = ask(server, **{**body, "background": False})
    begun = ask(server, **body)
    assert begun["status"] == "queued" and begun["output"] == [] and begun["background"] is True
    running = server.get(f"{PATH}/{begun['id']}").json()
    assert running == {**begun, "status": "in_progress"}
    head = stream(server, stop_after=30, method="GET", path=f"{PATH}/{begun['id']}?stream=true")
    crash(server)
    server = keep(*SLOW)
    tail = follow(server, begun["id"], head[-1][0] - 1)
    response = check_events(head + tail)
    assert response["output"][0]["content"] == expected["output"][0]["content"]
    assert until(lambda: server.get(f"{PATH}/{begun['id']}").json()["status"] == "incomplete")
    assert server.get(f"{PATH}/{begun['id']}").json() == response


def test_a_cancelled_response_keeps_what_it_said(keep, crash):
    server = keep(*SLOW)
    expected = text_of(ask(server, max_output_tokens=300))
    begun = ask(server, **LONG, background=True)["id"]
    results = {}
    reader = threading.Thread(target=lambda: results.update(found=follow(server, begun)))
    reader.start()
    head = stream(server, stop_after=20, method="GET", path=f"{PATH}/{begun}?stream=true")
    response = server.post(f"{PATH}/{begun}/cancel", {}).json()
    crash(server)  # at once
    reader.join()
    assert response["status"] == "cancelled" and response["usage"] is None
    server = keep(*SLOW)
    assert server.get(f"{PATH}/{begun}").json() == response == server.post(f"{PATH}/{begun}/cancel", {}).json()
    found = follow(server, begun)
    assert check_events(found) == response and found[:len(head)] == head and results["found"] in (found, found[:len(results["found"])])
    assert text_of(response) and (expected.startswith(text_of(response)) or text_of(response).startswith(expected))
    more = ask(server, previous_response_id=begun, input="Go on")
    assert more["usage"]["input_tokens"] > 20


def test_one_that_waits_after_a_crash_can_be_cancelled(keep, crash):
    few = ("-np", 1)
    server = keep(*few, *SLOW)
    begun = [ask(server, **LONG, background=True)["id"] for _ in range(3)]
    head = stream(server, stop_after=10, method="GET", path=f"{PATH}/{begun[0]}?stream=true")
    crash(server)
    server = keep(*few, *SLOW)
    for response in (*reversed(begun[1:]), begun[0]):
        was = server.get(f"{PATH}/{response}").json()["status"]
        now = server.post(f"{PATH}/{response}/cancel", {}).json()["status"]
        assert (was in ("queued", "in_progress") and now == "cancelled") or response == begun[0]  # which may have come to its end
    assert follow(server, begun[0])[:len(head)] == head
    assert server.wait_idle() >= 0


def test_a_deleted_one_that_runs_is_gone(keep, crash):
    server = keep(*SLOW)
    begun = ask(server, **LONG, background=True)["id"]
    assert httpx.delete(f"{server.url}{PATH}/{begun}").status_code == 200
    assert server.get(f"{PATH}/{begun}").status_code == 404 and server.wait_idle() < 10
    crash(server)
    assert keep(*SLOW).get(f"{PATH}/{begun}").status_code == 404


def test_everybody_at_once_on_one_that_runs(keep):
    """Cancelled by many it is cancelled to all; deleted by some it is there or it is not, for whoever else asks."""
    server = keep("-np", 2, *SLOW)

    def at_once(*calls):
        replies = [None] * len(calls)

        def one(i, method, path, body):
            replies[i] = httpx.request(method, server.url + PATH + path, json=body, timeout=TIMEOUT_S)

        threads = [threading.Thread(target=one, args=(i, *call)) for i, call in enumerate(calls)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return replies

    for _ in range(8):
        running = ask(server, **LONG, background=True)["id"]
        for reply in at_once(*[("POST", f"/{running}/cancel", {})] * 5):
            assert reply.status_code == 200 and reply.json()["status"] == "cancelled", reply.text[:300]
        running = ask(server, **LONG, background=True)["id"]
        deleted = [("DELETE", f"/{running}", None)] * 2
        others = [("POST", f"/{running}/cancel", {}), ("GET", f"/{running}", None), ("GET", f"/{running}/input_items", None),
                  ("POST", "", {**BODY, "previous_response_id": running})]
        replies = at_once(*deleted, *others)
        assert any(reply.status_code == 200 for reply in replies[:2]), [reply.text for reply in replies]
        for reply in replies:
            assert reply.status_code in (200, 400, 404), reply.text
        assert server.get(f"{PATH}/{running}").status_code == 404
    server.wait_idle()


def test_one_that_fails_says_so(keep):
    server = keep(*SLOW)
    body = {"max_output_tokens": 900, "timeout_ms": 300}
    found = stream(server, **body)
    last = json.loads(found[-1][2])
    assert last["type"] == "response.failed" and last["response"]["error"]["code"] == "server_error" and last["sequence_number"] == len(found) - 1
    response = last["response"]["id"]
    told = server.get(f"{PATH}/{response}").json()
    assert told == last["response"] and told["status"] == "failed"
    assert ask(server, status=400, previous_response_id=response)["param"] == "previous_response_id"
    assert server.post(PATH, {**BODY, **body}).status_code == 504
