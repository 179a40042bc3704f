"""/v1/messages with tools, thinking and a form of the output, on the wire: what is taken, what is refused by name, and what a history must be."""
import json

import httpx
import pytest

from conftest import TIMEOUT_S
from test_anthropic import BODY, events, refused, say

COUNT = "/v1/messages/count_tokens"
WEATHER = {"name": "weather", "description": "The weather in a city", "input_schema": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}
CLOCK = {"name": "clock", "input_schema": {"type": "object", "properties": {"zone": {"enum": ["utc", "local"]}}, "required": ["zone"]}}
USE = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Rome"}}
USE_2 = {**USE, "id": "toolu_2", "input": {"city": "Oslo"}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "sunny"}
RESULT_2 = {"type": "tool_result", "tool_use_id": "toolu_2", "content": [{"type": "text", "text": "rain"}], "is_error": False}
ASK = {"role": "user", "content": "How is it in Rome?"}
THINKING = {"type": "thinking", "thinking": "Hm.", "signature": "anything"}


def user(*blocks):
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks):
    return {"role": "assistant", "content": list(blocks)}


def text(words):
    return {"type": "text", "text": words}


def count(server, **fields):
    reply = server.post(COUNT, {"model": "m", "messages": BODY["messages"], **fields})
    assert reply.status_code == 200, reply.text
    return reply.json()["input_tokens"]


def check(message, found):
    """The stream's blocks are those of the message that was not streamed. Returns the blocks."""
    blocks, pieces, closed = [], [], []
    for name, data in found:
        if name == "content_block_start":
            assert data["index"] == len(blocks) == len(closed)
            blocks.append(dict(data["content_block"]))
            pieces.append([])
        elif name == "content_block_delta":
            assert data["index"] == len(blocks) - 1 == len(closed)
            delta, block = data["delta"], blocks[-1]
            if delta["type"] == "input_json_delta":
                pieces[-1].append(delta["partial_json"])
            elif delta["type"] == "signature_delta":
                block["signature"] = delta["signature"]
            else:
                key = {"text_delta": "text", "thinking_delta": "thinking"}[delta["type"]]
                assert block["type"] == key
                block[key] += delta[key]
        elif name == "content_block_stop":
            closed.append(data["index"])
    assert closed == list(range(len(blocks)))
    own = message["id"][4:]
    stream = found[0][1]["message"]["id"][4:]
    cut = message["stop_reason"] == "max_tokens"
    for i, (block, parts, whole) in enumerate(zip(blocks, pieces, message["content"], strict=True)):
        assert block["type"] == whole["type"]
        if block["type"] == "tool_use":
            assert whole["id"].startswith("toolu_") and block["id"] == whole["id"].replace(own, stream)
            assert block["input"] == {} and block["name"] == whole["name"]
            if not (cut and i == len(blocks) - 1):
                assert json.loads("".join(parts) or "{}") == whole["input"]
        elif block["type"] == "thinking":
            assert block["thinking"] == whole["thinking"] and block["signature"].replace(stream, own) == whole["signature"] != ""
        else:
            assert block["text"] == whole["text"]
    assert found[-2][1]["delta"]["stop_reason"] == message["stop_reason"]
    return message["content"]


# ---- calls ----

def test_a_call_that_must_come_comes(server):
    """The grammar leaves nothing but a call, whatever the model is."""
    body = {"tools": [WEATHER, CLOCK], "tool_choice": {"type": "tool", "name": "clock"}, "max_tokens": 200}
    message = say(server, **body)
    blocks = check(message, events(server, **body))
    assert message["stop_reason"] == "tool_use" and blocks[-1]["name"] == "clock" and blocks[-1]["input"]["zone"] in ("utc", "local")
    any_of = say(server, **{**body, "tool_choice": {"type": "any", "disable_parallel_tool_use": True}, "tools": [CLOCK]})
    assert [block["type"] for block in any_of["content"] if block["type"] == "tool_use"] == ["tool_use"]
    ids = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
    assert len(set(ids)) == len(ids)


def test_a_call_that_is_cut_off_says_so(server):
    tool = {"name": "note", "input_schema": {"type": "object", "properties": {"text": {"type": "string", "minLength": 400}}, "required": ["text"]}}
    body = {"tools": [tool], "tool_choice": {"type": "any"}, "max_tokens": 40}
    message = say(server, **body)
    assert message["stop_reason"] == "max_tokens" and check(message, events(server, **body))[-1]["input"] in ({}, {"text": ""})


def test_a_stored_call_is_told_again(start, tmp_path):
    server = start("-c", 1000, "--state-dir", tmp_path)
    body = {"tools": [CLOCK], "tool_choice": {"type": "any"}, "max_tokens": 200, "store": True}
    message = say(server, **body)
    assert message["stop_reason"] == "tool_use"
    stream = httpx.get(f"{server.url}/v1/streams/{message['id']}", timeout=TIMEOUT_S)
    found = [json.loads(line[6:]) for line in stream.text.splitlines() if line.startswith("data: ")]
    check(message, [(data["type"], data) for data in found])
    assert server.get(f"/v1/streams/{message['id']}?result=1").json() == message


def test_tools_that_may_not_be_called_leave_text(server):
    message = say(server, tools=[WEATHER], tool_choice={"type": "none"})
    assert [block["type"] for block in message["content"]] == ["text"] and message["stop_reason"] == "max_tokens"


# ---- the output's form ----

def test_the_output_has_its_form(server):
    schema = {"type": "object", "properties": {"answer": {"enum": ["yes", "no"]}}, "required": ["answer"], "additionalProperties": False}
    for fields in ({"output_config": {"format": {"type": "json_schema", "schema": schema}}}, {"output_format": {"type": "json_schema", "schema": schema}}):
        message = say(server, max_tokens=100, **fields)
        assert json.loads(check(message, events(server, max_tokens=100, **fields))[-1]["text"])["answer"] in ("yes", "no")
        assert message["stop_reason"] == "end_turn"


# ---- histories ----

HISTORIES = [
    [ASK, assistant(USE), user(RESULT)],
    [ASK, assistant(text("I look."), USE, USE_2), user(RESULT_2, RESULT, text("Well?"))],
    [ASK, assistant(USE), user({"type": "tool_result", "tool_use_id": "toolu_1"})],
    [ASK, assistant(USE), user({**RESULT, "is_error": True})],
    [ASK, assistant(USE), assistant(USE_2), user(RESULT), user(RESULT_2)],
    [ASK, assistant(USE, text("A moment.")), user(RESULT), assistant(text("Sunny.")), ASK],
    [ASK, assistant(THINKING, text("Sunny.")), ASK],
    [ASK, assistant(THINKING, {"type": "redacted_thinking", "data": "x"}, {**USE, "cache_control": {"type": "ephemeral"}}), user(RESULT)],
]


@pytest.mark.parametrize("messages", HISTORIES)
def test_histories_are_told_to_the_model(server, messages):
    assert count(server, messages=messages, tools=[WEATHER]) > count(server, messages=[ASK], tools=[WEATHER])
    assert say(server, messages=messages, tools=[WEATHER], tool_choice={"type": "none"})["usage"]["output_tokens"] == 12


def test_a_history_is_that_of_the_same_chat(server):
    """Results, calls and reasoning in OpenAI's shapes make the same prompt."""
    messages = [ASK, assistant(THINKING, text("I look."), USE), user({**RESULT, "is_error": True}, text("Well?"))]
    chat = [ASK, {"role": "assistant", "reasoning_content": "Hm.", "content": "I look.", "tool_calls": [
        {"id": "toolu_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}]},
            {"role": "tool", "tool_call_id": "toolu_1", "content": "Error: sunny"}, {"role": "user", "content": "Well?"}]
    usage = say(server, messages=messages)["usage"]
    other = server.post("/v1/chat/completions", {"messages": chat, "max_tokens": 12, "temperature": 0, "ignore_eos": True})
    assert other.status_code == 200, other.text
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == other.json()["usage"]["prompt_tokens"] == count(server, messages=messages)


def test_tools_count(server):
    assert count(server) < count(server, tools=[CLOCK]) < count(server, tools=[CLOCK, WEATHER])
    assert count(server, tools=[]) == count(server)


@pytest.mark.parametrize("messages, word", [
    ([ASK, assistant(USE)], "toolu_1"),
    ([ASK, assistant(USE), ASK], "toolu_1"),
    ([ASK, assistant(USE), user(text("Well?"), RESULT)], "toolu_1"),
    ([ASK, assistant(USE, USE_2), user(RESULT)], "toolu_2"),
    ([ASK, assistant(USE, USE_2), user(RESULT), assistant(text("So")), user(RESULT_2)], "toolu_2"),
    ([ASK, assistant(USE), user(RESULT, RESULT)], "messages[2].content[1]"),
    ([user(RESULT)], "messages[0].content[0]"),
    ([ASK, assistant(USE, USE), user(RESULT)], "messages[1].content[1].id"),
    ([ASK, assistant({**USE, "input": "{}"}), user(RESULT)], "messages[1].content[0].input"),
    ([ASK, assistant({**USE, "id": 3})], "messages[1].content[0].id"),
    ([ASK, assistant({"type": "tool_use", "id": "a", "input": {}})], "messages[1].content[0].name"),
    ([ASK, assistant({**USE, "caller": {"type": "code_execution_20250825"}}), user(RESULT)], "caller"),
    ([ASK, assistant(USE), user({**RESULT, "content": [{"type": "image"}]})], "messages[2].content[0].content[0]"),
    ([ASK, assistant(USE), user({**RESULT, "content": 3})], "messages[2].content[0].content"),
    ([ASK, assistant(USE), user({**RESULT, "is_error": "no"})], "is_error"),
    ([user(USE)], "messages[0].content[0]"), ([ASK, assistant(RESULT)], "messages[1].content[0]"), ([user(THINKING)], "messages[0].content[0]"),
    ([ASK, assistant({"type": "thinking", "thinking": "x"}), ASK], "signature"),
    ([ASK, assistant({"type": "server_tool_use", "id": "a", "name": "web_search", "input": {}})], "server_tool_use"),
])
def test_what_is_no_history_is_refused(server, messages, word):
    for path in ("/v1/messages", COUNT):
        error = refused(server, path=path, messages=messages, tools=[WEATHER])
        assert error["type"] == "invalid_request_error" and word in error["message"], error


@pytest.mark.parametrize("fields, word", [
    ({"tools": {}}, "tools"), ({"tools": [3]}, "tools[0]"), ({"tools": [{"name": "x"}]}, "tools[0].input_schema"),
    ({"tools": [WEATHER, {**WEATHER}]}, "tools[1].name"), ({"tools": [{**WEATHER, "name": "a b"}]}, "tools[0].name"),
    ({"tools": [{**WEATHER, "name": ""}]}, "tools[0].name"), ({"tools": [{**WEATHER, "description": 3}]}, "description"),
    ({"tools": [{**WEATHER, "strict": "yes"}]}, "strict"), ({"tools": [{**WEATHER, "input_schema": {"type": "string"}}]}, "input_schema.type"),
    ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "web_search_20250305"),
    ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "bash_20250124"), ({"tools": [{**WEATHER, "defer_loading": True}]}, "defer_loading"),
    ({"tools": [{**WEATHER, "input_examples": [{"city": "Rome"}]}]}, "input_examples"),
    ({"tools": [{**WEATHER, "allowed_callers": ["code_execution_20250825"]}]}, "allowed_callers"),
    ({"tools": [{**WEATHER, "cache_control": {"type": "no"}}]}, "cache_control"),
    ({"tool_choice": {"type": "any"}}, "tool_choice"), ({"tool_choice": {"type": "tool", "name": "weather"}}, "tool_choice.name"),
    ({"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "clock"}}, "tool_choice.name"), ({"tool_choice": "auto"}, "tool_choice"),
    ({"tools": [WEATHER], "tool_choice": {"type": "required"}}, "tool_choice"),
    ({"tools": [WEATHER], "tool_choice": {"type": "any", "disable_parallel_tool_use": 1}}, "disable_parallel_tool_use"),
    ({"thinking": "on"}, "thinking"), ({"thinking": {"type": "between_tools"}}, "between_tools"), ({"thinking": {"type": "enabled"}}, "budget_tokens"),
    ({"thinking": {"type": "enabled", "budget_tokens": 1023}, "max_tokens": 1500}, "1023"),
    ({"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 1024}, "max_tokens"),
    ({"thinking": {"type": "adaptive", "display": "all"}}, "display"),
    ({"thinking": {"type": "adaptive"}, "messages": [ASK, assistant(text("So"))]}, "thinking"),
    ({"output_config": 3}, "output_config"), ({"output_config": {"effort": "most"}}, "effort"), ({"output_config": {"task_budget": {}}}, "task_budget"),
    ({"output_config": {"format": {"type": "json_object"}}}, "json_object"), ({"output_format": {"type": "json_schema"}}, "output_format.schema"),
    ({"output_config": {"format": {"type": "json_schema", "schema": {}}}, "output_format": {"type": "json_schema", "schema": {}}}, "output_format"),
])
def test_what_cannot_be_held_is_refused_by_name(server, fields, word):
    error = refused(server, **{"max_tokens": 12, **fields})
    assert error["type"] == "invalid_request_error" and word in error["message"], error


def test_what_asks_for_nothing_is_taken(server):
    first = say(server)["content"]
    for fields in ({"output_config": {}}, {"output_config": {"format": None}}, {"thinking": {"type": "disabled"}}, {"thinking": {"type": "adaptive"}},
                   {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}, {"output_format": None}):
        assert say(server, **fields)["content"] == first, fields
