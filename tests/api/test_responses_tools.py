"""/v1/responses with functions, reasoning and forms of the text, on the wire: items, events, conversations over calls, refusals by name."""
import json
import re

import httpx
import pytest

from test_responses import BODY, PATH, ask, crash, follow, keep, stream  # noqa: F401 (fixtures)

WEATHER = {"type": "function", "name": "weather", "description": "The weather in a city", "strict": True, "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}}
CLOCK = {"type": "function", "name": "clock", "strict": False, "parameters": {
    "type": "object", "properties": {"zone": {"enum": ["utc", "local"]}}, "required": ["zone"], "additionalProperties": False}}
ASK = {"role": "user", "content": "How is it in Rome?"}
CALL = {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": '{"city": "Rome"}'}
CALL_2 = {**CALL, "call_id": "call_2", "arguments": '{"city": "Oslo"}'}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}
OUTPUT_2 = {"type": "function_call_output", "call_id": "call_2", "output": [{"type": "input_text", "text": "rain"}]}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]}
FORCED = {"tools": [WEATHER, CLOCK], "tool_choice": {"type": "function", "name": "clock"}, "max_output_tokens": 200}


def count(server, **fields):
    reply = server.post(PATH + "/input_tokens", {"model": "m", "input": [ASK], **fields})
    assert reply.status_code == 200, reply.text
    return reply.json()["input_tokens"]


def plain(value, own):
    """Without what names the response itself."""
    return json.loads(re.sub(r'"(created_at|cached_tokens)": \d+', r'"\1": 0', json.dumps(value).replace(own[5:], "ID")))


def check(found):
    """The numbers and the order of the events, and that their pieces are the items. Returns the object."""
    datas = [json.loads(data) for _, _, data in found]
    assert [data["sequence_number"] for data in datas] == list(range(len(datas)))
    assert [data["type"] for data in datas[:2]] == ["response.created", "response.in_progress"]
    response, items, done, pieces = datas[-1]["response"], [], [], {}
    for data in datas[2:-1]:
        kind = data["type"].removeprefix("response.")
        if kind == "output_item.added":
            assert data["output_index"] == len(items) == len(done) and data["item"]["status"] == "in_progress"
            items.append(data["item"])
            continue
        assert data["output_index"] == len(items) - 1 == len(done)
        item = items[-1]
        if kind == "output_item.done":
            assert data["item"]["id"] == item["id"] and data["item"]["type"] == item["type"]
            done.append(data["item"])
            continue
        assert data["item_id"] == item["id"]
        key = (len(items) - 1, kind.rsplit(".", 1)[0])
        if kind.endswith(".delta"):
            pieces[key] = pieces.get(key, "") + data["delta"]
        elif kind in ("output_text.done", "reasoning_text.done", "reasoning_summary_text.done", "function_call_arguments.done"):
            assert pieces.get(key, "") == data["arguments" if item["type"] == "function_call" else "text"]
    assert done == response["output"]
    for i, item in enumerate(done):
        if item["type"] == "function_call":
            assert item["arguments"] == pieces.get((i, "function_call_arguments"), "") and item["call_id"].startswith("call_")
        elif item["type"] == "reasoning":
            assert item["content"][0]["text"] == pieces[(i, "reasoning_text")]
        else:
            assert item["content"][0]["text"] == pieces.get((i, "output_text"), "")
    return response


# ---- calls ----

def test_a_call_that_must_come_comes(server):
    response = ask(server, **FORCED)
    streamed = check(stream(server, **FORCED))
    assert plain(streamed, streamed["id"]) == plain(response, response["id"])
    call = response["output"][-1]
    assert response["status"] == "completed" and call["type"] == "function_call" and call["id"].startswith("fc_")
    assert call["name"] == "clock" and json.loads(call["arguments"])["zone"] in ("utc", "local") and call["status"] == "completed"
    assert response["tool_choice"] == FORCED["tool_choice"] and [tool["name"] for tool in response["tools"]] == ["weather", "clock"]
    assert response["tools"][1] == {**CLOCK, "description": None}


@pytest.mark.parametrize("choice", ["required", {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "clock"}]}])
def test_one_of_those_that_are_allowed(server, choice):
    response = ask(server, tools=[CLOCK], tool_choice=choice, parallel_tool_calls=False, max_output_tokens=200)
    assert [item["name"] for item in response["output"] if item["type"] == "function_call"] == ["clock"]
    assert response["tool_choice"] == choice


def test_a_call_that_is_cut_off_says_so(server):
    tool = {"type": "function", "name": "note", "parameters": {"type": "object", "properties": {"text": {"type": "string", "minLength": 400}},
                                                               "required": ["text"]}}
    fields = {"tools": [tool], "tool_choice": "required", "max_output_tokens": 40}
    response = check(stream(server, **fields))
    assert response["status"] == "incomplete" and response["output"][-1]["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    other = ask(server, **fields)
    assert plain(other, other["id"]) == plain(response, response["id"])


def test_a_conversation_over_calls(keep, crash):  # noqa: F811
    server = keep()
    one = ask(server, **FORCED, input=[ASK])
    call = next(item for item in one["output"] if item["type"] == "function_call")
    outputs = [{"type": "function_call_output", "call_id": item["call_id"], "output": "noon"} for item in one["output"] if item["type"] == "function_call"]
    assert ask(server, status=400, input="So?", previous_response_id=one["id"])["param"] == "input"
    assert call["call_id"] in ask(server, status=400, input=[*outputs, outputs[0]], previous_response_id=one["id"])["message"]
    crash(server)
    server = keep()
    fields = {"tools": [WEATHER, CLOCK], "tool_choice": "none"}
    two = ask(server, input=outputs, previous_response_id=one["id"], **fields)
    whole = ask(server, input=[ASK, *one["output"], *outputs], **fields)
    assert two["output"][0]["content"] == whole["output"][0]["content"] and two["usage"]["input_tokens"] == whole["usage"]["input_tokens"]
    assert count(server, input=outputs, previous_response_id=one["id"], **fields) == whole["usage"]["input_tokens"]
    listed = server.get(f"{PATH}/{two['id']}/input_items?order=asc").json()["data"]
    assert [item["type"] for item in listed] == ["message", *[item["type"] for item in one["output"]], *["function_call_output"] * len(outputs)]
    assert listed[-1]["output"] == "noon" and listed[-1]["id"].startswith("fco_") and listed[-1]["status"] == "completed"


def test_a_stored_stream_of_a_call_is_told_again(keep):  # noqa: F811
    server = keep()
    found = stream(server, **FORCED)
    response = check(found)
    assert follow(server, response["id"]) == found and follow(server, response["id"], 3) == found[4:]
    assert server.get(f"{PATH}/{response['id']}").json() == response


# ---- the text's form ----

def test_the_text_has_its_form(server):
    schema = {"type": "object", "properties": {"answer": {"enum": ["yes", "no"]}}, "required": ["answer"], "additionalProperties": False}
    form = {"type": "json_schema", "name": "answer", "schema": schema, "strict": True}
    response = check(stream(server, text={"format": form}, max_output_tokens=100))
    assert json.loads(response["output"][-1]["content"][0]["text"])["answer"] in ("yes", "no") and response["status"] == "completed"
    assert response["text"] == {"format": form}
    assert ask(server, text={"format": {"type": "json_object"}})["output"][-1]["content"][0]["text"].lstrip().startswith("{")


def test_logprobs_are_those_of_the_text(server):
    form = {"type": "json_schema", "name": "a", "schema": {"enum": ["yes", "no"]}}
    wish = {"include": ["message.output_text.logprobs"], "text": {"format": form}, "max_output_tokens": 50}
    part = check(stream(server, **wish))["output"][-1]["content"][0]
    assert "".join(one["token"] for one in part["logprobs"] if not one["token"].startswith("<")) == part["text"]


# ---- histories ----

@pytest.mark.parametrize("items", [
    [ASK, CALL, OUTPUT], [ASK, SAID, CALL, CALL_2, OUTPUT_2, OUTPUT, ASK], [ASK, REASONING, CALL, OUTPUT], [ASK, REASONING, SAID, CALL, OUTPUT],
    [ASK, CALL, SAID, OUTPUT, SAID], [ASK, REASONING, CALL, REASONING, CALL_2, OUTPUT, OUTPUT_2],
    [ASK, {**REASONING, "content": None, "summary": [{"type": "summary_text", "text": "Hm."}]}, SAID, ASK],
    [ASK, {"type": "reasoning", "id": "rs_2", "summary": []}, SAID, ASK],
])
def test_histories_are_told_to_the_model(server, items):
    assert count(server, input=items) > count(server)
    assert ask(server, input=items, tools=[WEATHER], tool_choice="none")["usage"]["output_tokens"] == 12


def test_a_history_is_that_of_the_same_chat(server):
    chat = [ASK, {"role": "assistant", "reasoning_content": "Hm.", "content": "I look.", "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}]},
            {"role": "tool", "tool_call_id": "call_1", "content": "sunny"}, {"role": "user", "content": "Well?"}]
    other = server.post("/v1/chat/completions", {"messages": chat, "max_tokens": 12, "temperature": 0, "ignore_eos": True})
    assert other.status_code == 200, other.text
    items = [ASK, REASONING, SAID, CALL, OUTPUT, {"role": "user", "content": "Well?"}]
    assert ask(server, input=items)["usage"]["input_tokens"] == other.json()["usage"]["prompt_tokens"] == count(server, input=items)


def test_tools_count(server):
    assert count(server) < count(server, tools=[CLOCK]) < count(server, tools=[CLOCK, WEATHER])


# ---- refusals ----

@pytest.mark.parametrize("fields, param, word", [
    ({"tools": {}}, "tools", ""), ({"tools": [{"type": "web_search"}]}, "tools[0]", "web_search"), ({"tools": [{"type": "mcp"}]}, "tools[0]", "mcp"),
    ({"tools": [{"type": "custom", "name": "x"}]}, "tools[0]", "custom"), ({"tools": [{"type": "function"}]}, "tools[0]", "name"),
    ({"tools": [WEATHER, WEATHER]}, "tools[1]", "weather"), ({"tools": [{**WEATHER, "parameters": []}]}, "tools[0]", "parameters"),
    ({"tools": [{**WEATHER, "strict": 1}]}, "tools[0]", "strict"), ({"tools": [{**WEATHER, "defer_loading": True}]}, "tools[0]", "defer_loading"),
    ({"tools": [{**WEATHER, "output_schema": {}}]}, "tools[0]", "output_schema"),
    ({"tool_choice": "required"}, "tool_choice", ""), ({"tools": [WEATHER], "tool_choice": "any"}, "tool_choice", ""),
    ({"tools": [WEATHER], "tool_choice": {"type": "function", "name": "clock"}}, "tool_choice", "clock"),
    ({"tools": [WEATHER], "tool_choice": {"type": "web_search_preview"}}, "tool_choice", "web_search_preview"),
    ({"tools": [WEATHER], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []}}, "tool_choice", "tools"),
    ({"tools": [WEATHER], "tool_choice": {"type": "allowed_tools", "tools": [{"type": "function", "name": "weather"}]}}, "tool_choice", "mode"),
    ({"tools": [WEATHER], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "mcp"}]}}, "tool_choice", "tools[0]"),
    ({"parallel_tool_calls": "no"}, "parallel_tool_calls", ""), ({"max_tool_calls": 0}, "max_tool_calls", ""),
    ({"text": {"format": {"type": "json_schema", "schema": {}}}}, "text", "name"), ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text", "schema"),
    ({"text": {"format": {"type": "grammar"}}}, "text", "grammar"), ({"text": {"verbosity": "low"}}, "text", "verbosity"),
    ({"reasoning": {"effort": "much"}}, "reasoning", "effort"), ({"reasoning": {"summary": "concise"}}, "reasoning", "summary"),
    ({"reasoning": {"context": "all_turns"}}, "reasoning", "context"), ({"reasoning": 3}, "reasoning", ""),
    ({"input": [ASK, CALL]}, "input", "call_1"), ({"input": [ASK, OUTPUT]}, "input[1]", "call_1"), ({"input": [ASK, CALL, OUTPUT, OUTPUT]}, "input[3]", ""),
    ({"input": [ASK, CALL, CALL, OUTPUT]}, "input[2]", "call_1"), ({"input": [{**CALL, "arguments": {}}]}, "input[0]", "arguments"),
    ({"input": [{**CALL, "name": None}]}, "input[0]", "name"), ({"input": [CALL, {**OUTPUT, "output": None}]}, "input[1].output", ""),
    ({"input": [CALL, {**OUTPUT, "output": [{"type": "input_image"}]}]}, "input[1].output[0]", "input_image"),
    ({"input": [{"type": "reasoning", "summary": [], "encrypted_content": "x"}]}, "input[0]", "encrypted_content"),
    ({"input": [{"type": "reasoning", "content": "x"}]}, "input[0]", "content"), ({"input": [{"type": "custom_tool_call"}]}, "input[0]", "custom_tool_call"),
])
def test_what_cannot_be_held_is_refused_by_name(server, fields, param, word):
    error = ask(server, status=400, **fields)
    assert error["param"] == param and word in error["message"], error


def test_what_asks_for_nothing_is_taken(server):
    first = ask(server)["output"][0]["content"]
    for fields in ({"tools": []}, {"tools": [], "tool_choice": "auto", "parallel_tool_calls": False}, {"text": {"format": None, "verbosity": None}},
                   {"reasoning": {}}, {"reasoning": {"effort": "none"}}, {"reasoning": {"summary": None, "context": "auto"}},
                   {"include": ["reasoning.encrypted_content"]}, {"max_tool_calls": 2}):
        assert ask(server, **fields)["output"][0]["content"] == first, fields


def test_deleting_what_was_called_breaks_nothing(keep):  # noqa: F811
    server = keep()
    one = ask(server, **FORCED)
    outputs = [{"type": "function_call_output", "call_id": item["call_id"], "output": "noon"} for item in one["output"] if item["type"] == "function_call"]
    two = ask(server, input=outputs, previous_response_id=one["id"])
    httpx.delete(f"{server.url}{PATH}/{one['id']}")
    assert ask(server, input="And now?", previous_response_id=two["id"])["previous_response_id"] == two["id"]
