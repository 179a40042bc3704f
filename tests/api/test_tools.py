"""Tools, structured output and reasoning of /v1/chat/completions and the forms of the other endpoints: shapes, and that streams,
stored calls and whole replies say the same. What the tiny model says makes no sense; that it has the form does not depend on it."""
import json
import re
import signal
import threading
import time

import httpx
import pytest

from conftest import TIMEOUT_S

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
USER = {"role": "user", "content": "What is the weather in Paris?"}
CITY = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"], "additionalProperties": False}
TWO = {"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"enum": [1, 2, 3]}}, "required": ["a", "b"],
       "additionalProperties": False}


def tool(name, parameters=CITY, **more):
    return {"type": "function", "function": {"name": name, "description": "About " + name, "parameters": parameters, **more}}


TOOLS = [tool("get_weather"), tool("add", TWO)]


def body(**fields):
    return {"messages": [USER], "max_tokens": 200, "seed": 1, "temperature": 1, **fields}


def ask(server, **fields):
    reply = server.post(CHAT, body(**fields))
    assert reply.status_code == 200, reply.text
    return reply.json()


def refused(reply, field, word=""):
    assert reply.status_code == 400, reply.text
    error = reply.json()["error"]
    assert error["param"] == field and word in error["message"], error


def joined(events):
    """The choices that a stream's chunks make, as the whole reply has them; checks how they are told."""
    choices = {}
    for event in events:
        if event == "[DONE]":
            continue
        for chunk in event["choices"]:
            index, delta = chunk["index"], chunk["delta"]
            choice = choices.setdefault(index, {"content": None, "reasoning": None, "calls": [], "finish": None, "logprobs": []})
            assert choice["finish"] is None
            if delta.get("content") is not None:
                choice["content"] = (choice["content"] or "") + delta["content"]
            if "reasoning_content" in delta:
                choice["reasoning"] = (choice["reasoning"] or "") + delta["reasoning_content"]
            for entry in delta.get("tool_calls", []):
                if "id" in entry:
                    assert entry["index"] == len(choice["calls"]) and entry["type"] == "function" and entry["function"]["name"]
                    choice["calls"].append({"id": entry["id"], "type": "function", "function": {**entry["function"]}})
                else:
                    assert entry["index"] == len(choice["calls"]) - 1 and set(entry["function"]) == {"arguments"}
                    choice["calls"][-1]["function"]["arguments"] += entry["function"]["arguments"]
            if chunk["logprobs"]:
                choice["logprobs"] += chunk["logprobs"]["content"]
            choice["finish"] = chunk["finish_reason"]
    return [choices[i] for i in sorted(choices)]


def told(choice):
    message = choice["message"]
    return {"content": message["content"], "reasoning": message.get("reasoning_content"), "calls": message.get("tool_calls", []),
            "finish": choice["finish_reason"], "logprobs": (choice["logprobs"] or {}).get("content", [])}


def without_ids(choices):
    return [{**choice, "calls": [call["function"] for call in choice["calls"]]} for choice in choices]


def check_calls(message, names=("get_weather", "add")):
    for call in message["tool_calls"]:
        arguments = json.loads(call["function"]["arguments"])
        assert call["function"]["name"] in names and call["type"] == "function"
        if call["function"]["name"] == "add":
            assert list(arguments) == ["a", "b"] and arguments["a"] in (True, False) and arguments["b"] in (1, 2, 3)
        else:
            assert arguments in ({"city": "Paris"}, {"city": "Rome"})


# ---- what the answer must do ----

@pytest.mark.parametrize("seed", range(3))
def test_required(server, seed):
    choice = ask(server, tools=TOOLS, tool_choice="required", parallel_tool_calls=False, seed=seed)["choices"][0]
    assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] is None
    assert len(choice["message"]["tool_calls"]) == 1
    check_calls(choice["message"])
    assert re.fullmatch(r"call_[0-9a-f]{28}", choice["message"]["tool_calls"][0]["id"])


def test_named(server):
    for name in ("get_weather", "add"):
        reply = ask(server, tools=TOOLS, tool_choice={"type": "function", "function": {"name": name}}, parallel_tool_calls=False)
        check_calls(reply["choices"][0]["message"], (name,))


def test_allowed_tools(server):
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "add"}}]}}
    for seed in range(3):
        choice = ask(server, tools=TOOLS, tool_choice=allowed, seed=seed, parallel_tool_calls=False)["choices"][0]
        check_calls(choice["message"], ("add",))


def test_none_and_auto(server):
    for choice in ("none", "auto", None):
        reply = ask(server, tools=TOOLS, tool_choice=choice, max_tokens=20)
        message = reply["choices"][0]["message"]
        if choice == "none":
            assert "tool_calls" not in message
        elif "tool_calls" in message and reply["choices"][0]["finish_reason"] == "tool_calls":
            check_calls(message)


def test_legacy_functions(server):
    functions = [t["function"] for t in TOOLS]
    fields = {"functions": functions, "function_call": {"name": "add"}}
    choice = ask(server, **fields)["choices"][0]
    call = choice["message"]["function_call"]
    assert call["name"] == "add" and json.loads(call["arguments"])["b"] in (1, 2, 3)
    assert "tool_calls" not in choice["message"] and choice["finish_reason"] == "function_call"
    pieces, name = "", None
    events = server.stream(body(**fields), CHAT)
    for event in events[:-1]:
        delta = event["choices"][0]["delta"].get("function_call", {})
        assert not ("name" in delta and name)
        name = delta.get("name", name)
        pieces += delta.get("arguments", "")
    assert {"name": name, "arguments": pieces} == call and events[-2]["choices"][0]["finish_reason"] == "function_call"


def test_an_answer_that_is_cut_off(server):
    whole = ask(server, tools=TOOLS, tool_choice="required", parallel_tool_calls=False)
    n = whole["usage"]["completion_tokens"]
    seen = set()
    for length in range(1, n, 3):
        fields = {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": length}
        cut = ask(server, **fields)["choices"][0]
        stream = joined(server.stream(body(**fields), CHAT))
        assert without_ids(stream) == without_ids([told(cut)])
        assert cut["finish_reason"] == "length"
        calls = cut["message"].get("tool_calls", [])
        seen.add(len(calls))
        if calls:
            arguments = calls[0]["function"]["arguments"]
            assert whole["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"].startswith(arguments)
    assert seen == {0, 1}


# ---- streams, stored calls, choices ----

ALIKE = [
    {"tools": TOOLS, "tool_choice": "required"}, {"tools": TOOLS, "tool_choice": "required", "n": 3, "temperature": 1.5},
    {"tools": TOOLS, "max_tokens": 12}, {"tools": TOOLS, "tool_choice": "required", "logprobs": True, "top_logprobs": 2},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": TWO}}, "logprobs": True},
    {"tools": TOOLS, "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": TWO}}, "n": 2},
    {"tools": TOOLS, "tool_choice": "required", "stop": ["Paris", "Rome"]},
]


@pytest.mark.parametrize("fields", ALIKE, ids=lambda v: json.dumps(v)[-60:])
def test_streams_say_what_whole_replies_say(server, fields):
    whole = [told(choice) for choice in ask(server, **fields)["choices"]]
    assert without_ids(joined(server.stream(body(**fields), CHAT))) == without_ids(whole)
    ids = [call["id"] for choice in whole for call in choice["calls"]]
    assert len(set(ids)) == len(ids)


def read(server, stream, after=0):
    events = []
    with httpx.stream("GET", f"{server.url}/v1/streams/{stream}", timeout=TIMEOUT_S, headers={"Last-Event-ID": str(after)}) as reply:
        assert reply.status_code == 200, reply.read()
        for line in reply.iter_lines():
            if line.startswith("data: "):
                events.append(line[6:])
    return events


def test_stored_calls_go_on_with_the_same_parts(start, tmp_path):
    """Killed while they run: what comes after the start is what would have come, call ids and all."""
    flags = ("-c", 2000, "-np", 4, "--cpu", "ref", "--state-dir", tmp_path)
    server = start(*flags)
    fields = {"tools": TOOLS, "tool_choice": "required", "store": True, "n": 2, "max_tokens": 400}
    begun, parts = [], []

    def follow():
        try:
            with httpx.stream("POST", server.url + CHAT, json=body(stream=True, **fields), timeout=TIMEOUT_S) as reply:
                begun.append(reply.headers["X-Cohort-Stream-Id"])
                for line in reply.iter_lines():
                    if line.startswith("data: "):
                        parts.append(line[6:])
        except httpx.HTTPError:
            pass

    thread = threading.Thread(target=follow)
    thread.start()
    deadline = time.monotonic() + 30
    while len(parts) < 8 and time.monotonic() < deadline:
        time.sleep(0.002)
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()
    thread.join()
    again = start(*flags)
    events = read(again, begun[0])
    assert events[:len(parts)] == parts and events[-1] == "[DONE]"
    stored = joined([json.loads(event) for event in events[:-1]])
    alone = [told(choice) for choice in again.post(CHAT, body(**{**fields, "store": False})).json()["choices"]]
    assert without_ids(stored) == without_ids(alone)
    assert all(choice["calls"] for choice in stored)


# ---- forms ----

FORMS = [
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": TWO}}}, TWO),
    ({"response_format": {"type": "json_object", "schema": TWO}}, TWO),
    ({"structured_outputs": {"json": TWO}}, TWO), ({"structured_outputs": {"json": json.dumps(TWO)}}, TWO), ({"guided_json": TWO}, TWO),
    ({"json_schema": TWO}, TWO), ({"json_schema": json.dumps(TWO)}, TWO),
    ({"structured_outputs": {"regex": "[ab]{3}-[0-9]"}}, "[ab]{3}-[0-9]"), ({"guided_regex": "x[0-9]y"}, "x[0-9]y"), ({"regex": "(yes|no)!"}, "(yes|no)!"),
    ({"structured_outputs": {"choice": ["left", "ri\"ght", "b\\ack", "Größe"]}}, "left|ri\"ght|b\\\\ack|Größe"), ({"guided_choice": ["yes", "no"]}, "yes|no"),
    ({"structured_outputs": {"grammar": 'root ::= "a" [0-9] "z"'}}, "a[0-9]z"), ({"guided_grammar": 'root ::= "a" "b"?'}, "ab?"),
    ({"grammar": 'root ::= ("ab" | "cd") "e"'}, "(ab|cd)e"), ({"ebnf": 'root ::= "k" [l-n]'}, "k[l-n]"),
]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, "/completion"])
@pytest.mark.parametrize("form,holds", FORMS, ids=lambda v: json.dumps(v)[:40])
def test_forms(server, path, form, holds):
    request = {**body(**form), **({} if path == CHAT else {"prompt": "Hello"})}
    if path != CHAT:
        del request["messages"]
    reply = server.post(path, request)
    assert reply.status_code == 200, reply.text
    reply = reply.json()
    if path == "/completion":
        text, ended = reply["content"], reply["stop_type"] == "eos"
    else:
        choice = reply["choices"][0]
        text, ended = choice["message"]["content"] if path == CHAT else choice["text"], choice["finish_reason"] == "stop"
    assert ended, text
    if isinstance(holds, str):
        assert re.fullmatch(holds, text), text
    else:
        value = json.loads(text)
        assert list(value) == ["a", "b"] and value["a"] in (True, False) and value["b"] in (1, 2, 3)


def test_json_object(server):
    for form in ({"response_format": {"type": "json_object"}}, {"structured_outputs": {"json_object": True}}):
        choice = ask(server, **form)["choices"][0]
        assert choice["message"]["content"].startswith("{")
        if choice["finish_reason"] == "stop":
            assert isinstance(json.loads(choice["message"]["content"]), dict)


DEEP = {"type": "object"}
for _ in range(70):
    DEEP = {"type": "object", "properties": {"a": DEEP}}


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, "/completion"])
@pytest.mark.parametrize("form,field", [
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nothing"}}}}, "response_format"),
    ({"structured_outputs": {"json": DEEP}}, "structured_outputs.json"), ({"structured_outputs": {"json": "{"}}, "structured_outputs.json"),
    ({"structured_outputs": {"json": 5}}, "structured_outputs.json"), ({"structured_outputs": {"json": {}, "regex": "a"}}, "structured_outputs.regex"),
    ({"structured_outputs": {"json_object": 1}}, "structured_outputs.json_object"), ({"structured_outputs": {"choice": []}}, "structured_outputs.choice"),
    ({"structured_outputs": {"regex": "a", "disable_fallback": 1}}, "disable_fallback"),
    ({"structured_outputs": {"regex": "(("}}, "structured_outputs.regex"), ({"guided_grammar": "root ::= ("}, "guided_grammar"),
    ({"grammar": "nothing"}, "grammar"), ({"regex": "a", "ebnf": "root ::= \"a\""}, "ebnf"),
    ({"response_format": {"type": "json_object"}, "guided_json": {}}, "guided_json"),
], ids=lambda v: json.dumps(v)[:50])
def test_forms_that_cannot_be_held(server, path, form, field):
    request = {"messages": [USER]} if path == CHAT else {"prompt": "a"}
    refused(server.post(path, {**request, "max_tokens": 5, **form}), field)


@pytest.mark.parametrize("tools,choice,field,word", [
    ([{"type": "custom", "custom": {"name": "f"}}], None, "tools[0].type", "function"), ([5], None, "tools[0]", "object"),
    ([{"type": "function"}], None, "tools[0].function", "object"), ([tool("a b")], None, "tools[0].function.name", "letters"),
    ([tool("x" * 129)], None, "tools[0].function.name", "128"), ([tool("f"), tool("f")], None, "tools[1].function.name", "another"),
    ([tool("f", 5)], None, "tools[0].function.parameters", "object"), ([tool("f", strict=1)], None, "tools[0].function.strict", "true or false"),
    ([tool("f"), tool("g", {"type": "nothing"})], None, "tools[1].function.parameters", ""),
    ([tool("g", DEEP, strict=True)], "required", "tools", ""),
    (TOOLS, "any", "tool_choice", ""), (TOOLS, {"type": "function", "function": {"name": "h"}}, "tool_choice", "h"),
    (TOOLS, {"type": "custom", "custom": {"name": "add"}}, "tool_choice", ""), (None, "required", "tool_choice", "no tools"),
    (TOOLS, {"type": "allowed_tools", "allowed_tools": {"mode": "none", "tools": [{"type": "function", "function": {"name": "add"}}]}},
     "tool_choice", ""),
    (TOOLS, {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}, "tool_choice", ""),
], ids=lambda v: json.dumps(v)[:30])
def test_bad_tools(server, tools, choice, field, word):
    refused(server.post(CHAT, body(tools=tools, tool_choice=choice)), field, word)


def test_bad_functions(server):
    refused(server.post(CHAT, body(functions=[{"name": "a b"}])), "functions[0].name")
    refused(server.post(CHAT, body(functions=[{"name": "f", "parameters": {"type": "nothing"}}])), "functions[0].parameters")
    refused(server.post(CHAT, body(functions=[], tools=[])), "functions")
    refused(server.post(CHAT, body(functions=[{"name": "f"}], function_call={"name": "g"})), "function_call")
    refused(server.post(CHAT, body(function_call={"name": "g"})), "function_call")


def test_a_neighbour_is_not_delayed_by_what_does_not_compile(server):
    """Schemas that take all the time that one may have wait for each other, and nobody else waits for them."""
    names = [f"p{i}" for i in range(60)]
    huge = {"type": "object", "properties": {n: {"type": "string", "pattern": "(a|b|c){1,200}"} for n in names}}
    answers = []
    threads = [threading.Thread(target=lambda i=i: answers.append(server.post(COMPLETIONS, {
        "prompt": "a", "max_tokens": 1, "guided_json": {**huge, "title": str(i)}}).status_code)) for i in range(8)]
    for thread in threads:
        thread.start()
    server.complete("Hello", 2)
    assert len(answers) < len(threads)
    for thread in threads:
        thread.join()
    assert set(answers) <= {200, 400}


# ---- histories ----

CALL = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\":\"Paris\"}"}}
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
ANSWERED = {"role": "tool", "tool_call_id": "call_1", "content": "sunny"}


def test_history_of_calls(server):
    reply = ask(server, messages=[USER, CALLED, ANSWERED], tools=TOOLS, max_tokens=3)
    longer = ask(server, messages=[USER, CALLED, {**ANSWERED, "content": "sunny and warm all day"}], tools=TOOLS, max_tokens=3)
    assert longer["usage"]["prompt_tokens"] > reply["usage"]["prompt_tokens"]
    parts = ask(server, messages=[USER, CALLED, {**ANSWERED, "content": [{"type": "text", "text": "sunny"}]}], tools=TOOLS, max_tokens=3)
    assert parts["usage"]["prompt_tokens"] == reply["usage"]["prompt_tokens"]
    legacy = [USER, {"role": "assistant", "content": None, "function_call": CALL["function"]},
              {"role": "function", "name": "get_weather", "content": "sunny"}]
    assert ask(server, messages=legacy, tools=TOOLS, max_tokens=3)["usage"]["prompt_tokens"] > 0


@pytest.mark.parametrize("messages,field", [
    ([USER, ANSWERED], "messages[1].tool_call_id"), ([USER, CALLED, {**ANSWERED, "tool_call_id": "call_2"}], "messages[2].tool_call_id"),
    ([USER, CALLED, {"role": "tool", "content": "x"}], "messages[2].tool_call_id"),
    ([USER, {**CALLED, "tool_calls": [{**CALL, "type": "custom"}]}], "messages[1].tool_calls[0]"),
    ([USER, {**CALLED, "tool_calls": [{**CALL, "function": {"name": "f", "arguments": {}}}]}], "messages[1].tool_calls[0]"),
    ([USER, {**CALLED, "tool_calls": [{**CALL, "id": 5}]}], "messages[1].tool_calls[0]"),
    ([USER, {"role": "function", "name": "f", "content": "x"}], "messages[1].role"),
    ([USER, {"role": "assistant", "content": "x", "reasoning_content": 5}], "messages[1].reasoning_content"),
], ids=lambda v: json.dumps(v)[-40:])
def test_bad_histories(server, messages, field):
    refused(server.post(CHAT, body(messages=messages, tools=TOOLS)), field)


# ---- counting and rendering ----

def test_tokenize_and_apply_template(server):
    chat = {"messages": [USER, CALLED, ANSWERED], "tools": TOOLS}
    count = server.post("/tokenize", chat).json()["count"]
    assert count == ask(server, **chat, max_tokens=1)["usage"]["prompt_tokens"]
    prompt = server.post("/apply-template", chat).json()["prompt"]
    assert "get_weather" in prompt and "sunny" in prompt
    assert server.post("/tokenize", {"content": prompt, "add_special": True}).json()["count"] > 0
    for path in ("/tokenize", "/apply-template"):
        assert server.post(path, {**chat, "tools": [{"type": "custom"}]}).status_code == 400
        assert server.post(path, {**chat, "chat_template": "x"}).status_code == 400


def test_templates_of_requests(start):
    server = start("-c", 500, "--allow-request-templates")
    template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{{ flag }}"
    chat = {"messages": [USER], "chat_template": template, "chat_template_kwargs": {"flag": "FLAG"}}
    assert server.post("/apply-template", chat).json()["prompt"] == "<user>" + USER["content"] + "FLAG"
    assert server.post(CHAT, body(**{**chat, "max_tokens": 2})).status_code == 200
    for bad in ("{% for %}", "{{ raise_exception('no') }}", "{% for i in range(100000) %}{% for j in range(100000) %}x{% endfor %}{% endfor %}"):
        reply = server.post(CHAT, body(**{**chat, "chat_template": bad}))
        assert reply.status_code == 400, reply.text
    assert server.post(CHAT, body(chat_template=5)).status_code == 400


# ---- reasoning ----

THINKS = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}<|assistant|>\n<think>\n{% endif %}"


def test_reasoning(start):
    server = start("-c", 2000, "--chat-template", THINKS)
    info = [line for line in server.lines if "answers read as" in line]
    if not info or "reasoning" not in info[0]:
        pytest.skip("the template is not read as one that reasons")
    fields = {"max_tokens": 60, "reasoning_budget_tokens": 5}
    reply = ask(server, **fields)
    message = reply["choices"][0]["message"]
    assert message["reasoning_content"] and reply["usage"]["completion_tokens_details"]["reasoning_tokens"] >= 5
    assert without_ids(joined(server.stream(body(**fields), CHAT))) == without_ids([told(reply["choices"][0])])
    assert "reasoning_content" not in ask(server, **fields, include_reasoning=False)["choices"][0]["message"]
    raw = ask(server, **fields, reasoning_format="none")["choices"][0]["message"]
    assert "</think>" in raw["content"] and "reasoning_content" not in raw
    form = {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": TWO}}}
    both = ask(server, **{**fields, "max_tokens": 200}, **form)["choices"][0]["message"]
    assert both["reasoning_content"] and list(json.loads(both["content"])) == ["a", "b"]
    calls = ask(server, **{**fields, "max_tokens": 300}, tools=TOOLS, tool_choice="required", parallel_tool_calls=False)["choices"][0]["message"]
    check_calls(calls)
    assert ask(server, reasoning_effort="high", max_tokens=3)


def test_reasoning_that_the_model_has_not(server):
    refused(server.post(CHAT, body(reasoning_effort="high")), "reasoning_effort")
    assert ask(server, reasoning_effort="none", reasoning_budget_tokens=5, max_tokens=2)
    refused(server.post(CHAT, body(reasoning_format="none", tools=TOOLS)), "reasoning_format")
