"""Tools and structured outputs with the official client, its strict validation on, end to end: streamed and not, the answers forced by grammar."""
import json
from concurrent.futures import ThreadPoolExecutor
from typing import List, Literal

import openai
import pydantic
import pytest

from conftest import Server
from tools import CLOCK, QUESTION, REASONING_TEMPLATE, check_calls, openai_tools, response_tools

ASK = {"model": "any", "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}], "max_tokens": 160, "temperature": 0}
RESPOND = {"model": "any", "input": QUESTION, "instructions": "Be brief.", "max_output_tokens": 160, "temperature": 0}
GET_TIME = {"type": "function", "function": {"name": "get_time"}}
SEEDS = [{"temperature": 0}, {"temperature": 1.0, "seed": 3}, {"temperature": 1.6, "seed": 4, "top_p": 0.95}]


class Weather(pydantic.BaseModel):
    """The weather of the next days."""
    city: Literal["Paris", "Rome", "São Paulo"]
    days: int = pydantic.Field(ge=1, le=9)
    warm: bool


class Line(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=6)
    amount: Literal[1, 2, 3]


class Order(pydantic.BaseModel):
    number: str = pydantic.Field(pattern="^[0-9]{4}$")
    lines: List[Line] = pydantic.Field(min_length=1, max_length=2)
    paid: bool | None


@pytest.fixture(scope="module")
def tools_server():
    shared = Server("-c", 3000, "-np", 8, "--queue", 64)
    yield shared
    assert shared.stop() == 0, "".join(shared.lines)


@pytest.fixture(scope="module")
def client(tools_server):
    return tools_server.client()


def whole(client, **fields):
    """[(finish reason, content, reasoning, [(name, arguments)])] of the choices, and the usage."""
    reply = client.chat.completions.create(**{**ASK, **fields})
    found = []
    for choice in reply.choices:
        message = choice.message
        calls = message.tool_calls or []
        assert len({call.id for call in calls}) == len(calls) and all(call.id and call.type == "function" for call in calls)
        if calls and choice.finish_reason != "length":
            assert choice.finish_reason in ("tool_calls", "stop")
        found.append((choice.finish_reason, message.content or "", getattr(message, "reasoning_content", None) or "",
                      [(call.function.name, call.function.arguments) for call in calls]))
    return found, (reply.usage.prompt_tokens, reply.usage.completion_tokens)


def pieces(client, **fields):
    """The same of a stream: id, type and name of a call come once, at its beginning; its pieces follow before the next call's."""
    found, usage = {}, None
    for event in client.chat.completions.create(**{**ASK, **fields}, stream=True, stream_options={"include_usage": True}):
        usage = event.usage or usage
        for choice in event.choices:
            have = found.setdefault(choice.index, {"finish": None, "content": "", "reasoning": "", "calls": []})
            assert have["finish"] is None
            have["finish"] = choice.finish_reason
            have["content"] += choice.delta.content or ""
            have["reasoning"] += getattr(choice.delta, "reasoning_content", None) or ""
            for delta in choice.delta.tool_calls or []:
                if delta.index == len(have["calls"]):
                    assert delta.id and delta.type == "function" and delta.function.name
                    have["calls"].append([delta.id, delta.function.name, delta.function.arguments or ""])
                else:
                    assert delta.index == len(have["calls"]) - 1 and delta.id is None and delta.function.name is None
                    have["calls"][-1][2] += delta.function.arguments
    for have in found.values():
        assert len({call[0] for call in have["calls"]}) == len(have["calls"])
    return ([(have["finish"], have["content"], have["reasoning"], [tuple(call[1:]) for call in have["calls"]]) for _, have in sorted(found.items())],
            (usage.prompt_tokens, usage.completion_tokens))


def both(client, allowed=("get_weather", "get_time", "ping"), **fields):
    """The choices, after the stream said the same."""
    reply = whole(client, **fields)
    assert pieces(client, **fields) == reply, fields
    for finish, _, _, calls in reply[0]:
        check_calls(calls, finish == "length", allowed)
    return reply[0]


# ---- tool_choice ----

@pytest.mark.parametrize("sampling", SEEDS, ids=str)
def test_one_call_is_forced(client, sampling):
    (finish, content, _, calls), = both(client, tools=openai_tools(), tool_choice="required", parallel_tool_calls=False, **sampling)
    assert finish == "tool_calls" and content == "" and len(calls) == 1


@pytest.mark.parametrize("sampling", SEEDS, ids=str)
def test_the_named_one_is_called(client, sampling):
    (finish, content, _, calls), = both(client, tools=openai_tools(), tool_choice=GET_TIME, parallel_tool_calls=False, **sampling)
    assert finish in ("tool_calls", "stop") and content == "" and [name for name, _ in calls] == ["get_time"]
    (_, _, _, calls), = both(client, tools=openai_tools(strict=True), tool_choice={"type": "function", "function": {"name": "ping"}},
                             parallel_tool_calls=False, **sampling)
    assert [(name, json.loads(arguments)) for name, arguments in calls] == [("ping", {})]


def test_only_allowed_ones_are_called(client):
    def choice(mode):
        return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [GET_TIME]}}

    for sampling in SEEDS:
        (finish, _, _, calls), = both(client, allowed=["get_time"], tools=openai_tools(), tool_choice=choice("required"), parallel_tool_calls=False, **sampling)
        assert finish == "tool_calls" and len(calls) == 1
    both(client, allowed=["get_time"], tools=openai_tools(), tool_choice=choice("auto"), max_tokens=24)


def test_several_calls_may_come_and_none_when_none_is_asked_for(client):
    for sampling in SEEDS:
        (finish, _, _, calls), = both(client, tools=openai_tools("ping", "get_time"), tool_choice="required", **sampling)
        assert calls and finish in ("tool_calls", "length")
    for tools in ({"tools": openai_tools(), "tool_choice": "none"}, {"tools": openai_tools(), "tool_choice": "none", "temperature": 1, "seed": 8}):
        (finish, _, _, calls), = both(client, max_tokens=24, **tools)
        assert not calls and finish in ("stop", "length")


def test_auto_is_text_or_calls(client):
    for sampling in [*SEEDS, {"temperature": 1, "seed": 5, "n": 2}]:
        for finish, _, _, calls in both(client, tools=openai_tools(), max_tokens=32, **sampling):
            assert calls or finish in ("stop", "length")
    assert both(client, tools=openai_tools(), tool_choice="auto", max_tokens=32) == both(client, tools=openai_tools(), max_tokens=32)


def test_choices_have_calls_of_their_own(client):
    found = both(client, tools=openai_tools(), tool_choice="required", parallel_tool_calls=False, n=3, temperature=1.5, seed=11)
    assert len(found) == 3 and all(len(calls) == 1 for _, _, _, calls in found)


def test_a_call_that_is_cut_off_ends_with_length(client):
    fields = {"tools": openai_tools("get_time"), "tool_choice": "required", "parallel_tool_calls": False}
    ((_, _, _, full),), (_, tokens) = whole(client, **fields)
    assert both(client, **fields)[0][0] == "tool_calls"
    for limit in sorted({1, tokens // 3, tokens // 2, tokens - 2}):
        (finish, _, _, calls), = both(client, **fields, max_tokens=limit)
        assert finish == "length"
        for name, arguments in calls:
            assert name == "get_time" and full[0][1].startswith(arguments)


def test_at_once_as_alone(client):
    jobs = [{"tools": openai_tools(), "tool_choice": choice, "parallel_tool_calls": False, "max_tokens": 96, **sampling}
            for choice in ("required", "auto", GET_TIME, "none") for sampling in SEEDS[:2]]
    alone = [whole(client, **job) for job in jobs]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda job: pieces(client, **job), jobs)) == alone
        assert list(pool.map(lambda job: whole(client, **job), jobs)) == alone


@pytest.mark.parametrize("fields, param", [
    ({"tools": openai_tools(), "tool_choice": {"type": "function", "function": {"name": "nobody"}}}, "tool_choice"), ({"tool_choice": "required"}, "tool_choice"),
    ({"tools": openai_tools(), "tool_choice": "sometimes"}, "tool_choice"), ({"tools": [{"type": "function", "function": {"name": "f", "parameters": 5}}]}, "tools"),
    ({"tools": openai_tools(), "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": []}}}, "tool_choice"),
    ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "nothing"}, "strict": True}}], "tool_choice": "required"}, "tools"),
    ({"tools": [{"type": "function"}]}, "tools"), ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools"),
    ({"tools": [*openai_tools("ping"), *openai_tools("ping")]}, "tools"), ({"tools": "all"}, "tools"), ({"response_format": {"type": "xml"}}, "response_format"),
    ({"response_format": {"type": "json_schema"}}, "response_format"), ({"response_format": {"type": "json_schema", "json_schema": {"schema": 5}}}, "response_format"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "no"}}}}, "response_format"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages"),
    ({"messages": [{"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{"}}]}]}, "messages")],
    ids=lambda v: str(v)[:60])
def test_what_is_wrong_is_refused_by_name(client, fields, param):
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(**{**ASK, **fields}, stream=stream)
        assert (caught.value.param or "").split("[")[0].split(".")[0] == param, caught.value


# ---- the helpers ----

def test_calls_are_parsed(client):
    tool = openai.pydantic_function_tool(Weather, name="get_weather")
    fields = {**ASK, "tools": [tool], "tool_choice": "required", "parallel_tool_calls": False}
    reply = client.chat.completions.parse(**fields)
    call = reply.choices[0].message.tool_calls[0]
    assert isinstance(call.function.parsed_arguments, Weather) and json.loads(call.function.arguments) == call.function.parsed_arguments.model_dump()
    with client.chat.completions.stream(**fields) as stream:
        events = list(stream)
        final = stream.get_final_completion()
    assert final.choices[0].message.tool_calls[0].function == call.function and final.choices[0].finish_reason == "tool_calls"
    deltas = [event for event in events if event.type == "tool_calls.function.arguments.delta"]
    done, = [event for event in events if event.type == "tool_calls.function.arguments.done"]
    assert "".join(event.arguments_delta for event in deltas) == done.arguments == call.function.arguments and done.name == "get_weather"
    assert done.parsed_arguments == call.function.parsed_arguments and not [event for event in events if event.type == "content.delta"]


@pytest.mark.parametrize("sampling", SEEDS, ids=str)
def test_answers_are_parsed(client, sampling):
    fields = {**ASK, **sampling, "response_format": Order}
    message = client.chat.completions.parse(**fields).choices[0].message
    assert isinstance(message.parsed, Order) and Order.model_validate_json(message.content) == message.parsed
    with client.chat.completions.stream(**fields) as stream:
        events = list(stream)
    done, = [event for event in events if event.type == "content.done"]
    assert done.content == message.content and done.parsed == message.parsed
    assert "".join(event.delta for event in events if event.type == "content.delta") == message.content


def test_an_answer_that_is_cut_off_is_not_parsed(client):
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(**{**ASK, "max_tokens": 4}, response_format=Order)
    with pytest.raises(openai.LengthFinishReasonError):
        with client.chat.completions.stream(**{**ASK, "max_tokens": 4}, response_format=Order) as stream:
            list(stream)


def test_json_is_json(client):
    ended = 0
    for seed in range(4):
        (finish, content, _, _), = both(client, response_format={"type": "json_object"}, max_tokens=60, temperature=1, seed=seed,
                                        extra_body={"logit_bias": {"}": 6, '"': 4}})
        assert content.startswith("{") and "\n\n" not in content
        if finish == "stop":
            ended += 1
            assert isinstance(json.loads(content), dict)
    assert ended
    schema = {"type": "json_schema", "json_schema": {"name": "clock", "description": "A clock", "schema": CLOCK, "strict": True}}
    for sampling in SEEDS:
        (finish, content, _, _), = both(client, response_format=schema, **sampling)
        check_calls([("get_time", content)])
        assert finish == "stop"


def test_tools_beside_a_schema(client):
    """Calls follow the tools' schemas, the text the other."""
    schema = {"type": "json_schema", "json_schema": {"name": "clock", "schema": CLOCK}}
    (_, _, _, calls), = both(client, tools=openai_tools("get_weather"), tool_choice="required", parallel_tool_calls=False, response_format=schema)
    assert len(calls) == 1
    (finish, content, _, calls), = both(client, tools=openai_tools("get_weather"), tool_choice="none", response_format=schema)
    assert finish == "stop" and not calls
    check_calls([("get_time", content)])
    (finish, content, _, calls), = both(client, tools=openai_tools("get_weather"), response_format=schema, parallel_tool_calls=False)
    if finish != "length" and not calls:
        check_calls([("get_time", content)])


def test_functions_of_old(client):
    functions = [tool["function"] for tool in openai_tools("get_weather", "ping")]
    fields = {**ASK, "functions": functions, "function_call": {"name": "get_weather"}}
    choice = client.chat.completions.create(**fields).choices[0]
    call = choice.message.function_call
    assert choice.finish_reason in ("function_call", "stop") and not choice.message.tool_calls
    check_calls([(call.name, call.arguments)], allowed=["get_weather"])
    deltas = [c.delta.function_call for event in client.chat.completions.create(**fields, stream=True) for c in event.choices if c.delta.function_call]
    assert [delta.name for delta in deltas if delta.name] == ["get_weather"] and "".join(delta.arguments or "" for delta in deltas) == call.arguments
    turns = [*ASK["messages"], {"role": "assistant", "content": None, "function_call": {"name": call.name, "arguments": call.arguments}},
             {"role": "function", "name": call.name, "content": '{"sky": "blue"}'}]
    assert client.chat.completions.create(**{**fields, "messages": turns, "function_call": "none", "max_tokens": 8}).choices[0].message.function_call is None


# ---- whole loops ----

def loop(client, **fields):
    """Question, call, what the tool says, answer. Returns what was said."""
    messages = list(fields.pop("messages", ASK["messages"]))
    reply = client.chat.completions.create(**{**ASK, **fields, "messages": messages, "tools": openai_tools(), "tool_choice": "required"})
    message = reply.choices[0].message
    assert message.tool_calls
    said = [[(call.function.name, call.function.arguments) for call in message.tool_calls]]
    check_calls(said[0], reply.choices[0].finish_reason == "length")
    if reply.choices[0].finish_reason == "length":  # what was cut off is not called
        message.tool_calls = message.tool_calls[:-1]
        said[0].pop()
    messages.append(message.model_dump(exclude_unset=True))
    for call in message.tool_calls:
        messages.append({"role": "tool", "tool_call_id": call.id, "content": json.dumps({"sky": "blue", "of": call.function.name})})
    for choice in ("auto", "none"):
        (finish, content, reasoning, calls), = both(client, **{**fields, "messages": messages, "tools": openai_tools(), "tool_choice": choice, "max_tokens": 24})
        said.append((finish, content, reasoning, calls))
    return said


def test_a_whole_loop(client):
    first = loop(client, parallel_tool_calls=False)
    assert first == loop(client, parallel_tool_calls=False)
    loop(client, temperature=1.0, seed=9)


def test_calls_of_earlier_turns_are_part_of_the_prompt(client):
    def tokens(arguments, answer):
        messages = [*ASK["messages"], {"role": "assistant", "content": None, "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "get_time", "arguments": json.dumps(arguments)}}]},
            {"role": "tool", "tool_call_id": "call_1", "content": answer}]
        return client.chat.completions.create(**{**ASK, "messages": messages, "tools": openai_tools("get_time"), "max_tokens": 1}).usage.prompt_tokens

    short = tokens({"zone": "CET", "parts": ["h"]}, "noon")
    assert short < tokens({"zone": "CET", "parts": ["h", "m", "s"]}, "noon") and short < tokens({"zone": "CET", "parts": ["h"]}, "ten past noon, or a little later")


# ---- responses ----

def response_gist(response):
    items = []
    for item in response.output:
        if item.type == "function_call":
            assert item.call_id and item.id and item.status in ("completed", "incomplete")
            items.append(("call", item.name, item.arguments))
        elif item.type == "reasoning":
            items.append(("reasoning", "".join(part.text for part in item.content or [])))
        else:
            items.append(("text", "".join(part.text for part in item.content)))
    return response.status, items, response.usage.output_tokens


def respond(client, **fields):
    """What was said, after the stream said the same by its pieces."""
    response = client.responses.create(**{**RESPOND, **fields})
    items, final = {}, None
    for number, event in enumerate(client.responses.create(**{**RESPOND, **fields}, stream=True)):
        assert event.sequence_number == number
        if event.type == "response.output_item.added":
            assert event.output_index == len(items)
            items[event.output_index] = {"item": event.item, "joined": "", "done": None}
        elif event.type in ("response.function_call_arguments.delta", "response.output_text.delta"):
            items[event.output_index]["joined"] += event.delta
            assert event.item_id == items[event.output_index]["item"].id
        elif event.type == "response.function_call_arguments.done":
            assert event.arguments == items[event.output_index]["joined"]
        elif event.type == "response.output_item.done":
            items[event.output_index]["done"] = event.item
        elif event.type in ("response.completed", "response.incomplete", "response.failed"):
            final = event.response
    assert response_gist(final) == response_gist(response)
    assert [entry["done"] for entry in items.values()] == final.output
    for entry in items.values():
        if entry["done"].type == "function_call":
            assert entry["item"].arguments == "" and entry["item"].name == entry["done"].name and entry["item"].call_id == entry["done"].call_id
            assert entry["joined"] == entry["done"].arguments
    return response


@pytest.mark.parametrize("choice, allowed", [
    ("required", ["get_weather", "get_time", "ping"]), ({"type": "function", "name": "get_time"}, ["get_time"]),
    ({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "ping"}]}, ["ping"])], ids=lambda v: str(v)[:40])
def test_responses_call(client, choice, allowed):
    for sampling in SEEDS:
        response = respond(client, tools=response_tools(), tool_choice=choice, parallel_tool_calls=False, **{k: v for k, v in sampling.items() if k != "seed"},
                           extra_body={"seed": sampling.get("seed", 1)})
        calls = [item for item in response.output if item.type == "function_call"]
        assert response.status == "completed" and len(calls) == 1
        check_calls([(calls[0].name, calls[0].arguments)], allowed=allowed)


def test_responses_without_calls_and_cut_off(client):
    for choice in ("none", "auto"):
        response = respond(client, tools=response_tools(), tool_choice=choice, max_output_tokens=24)
        if choice == "none":
            assert [item.type for item in response.output] == ["message"]
    response = respond(client, tools=response_tools("get_time"), tool_choice="required", max_output_tokens=17)
    assert response.status == "incomplete" and response.incomplete_details.reason == "max_output_tokens"


def test_responses_are_parsed(client):
    response = client.responses.parse(**RESPOND, text_format=Order)
    assert isinstance(response.output_parsed, Order)
    with client.responses.stream(**RESPOND, text_format=Order) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert final.output_parsed == response.output_parsed
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == response.output_text
    tool = openai.pydantic_responses_function_tool(Weather, name="get_weather")
    fields = {**RESPOND, "tools": [tool], "tool_choice": "required", "parallel_tool_calls": False}
    call, = client.responses.parse(**fields).output
    assert isinstance(call.parsed_arguments, Weather)
    with client.responses.stream(**fields) as stream:
        list(stream)
        streamed, = stream.get_final_response().output
    assert streamed.parsed_arguments == call.parsed_arguments and streamed.arguments == call.arguments


def test_responses_in_json(client):
    schema = {"format": {"type": "json_schema", "name": "clock", "schema": CLOCK, "strict": True}}
    response = respond(client, text=schema)
    check_calls([("get_time", response.output_text)])
    response = respond(client, text={"format": {"type": "json_object"}}, max_output_tokens=40)
    assert response.output_text.startswith("{")
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(**RESPOND, text={"format": {"type": "json_schema", "name": "x", "schema": {"type": "no"}}})
    assert caught.value.param.startswith("text")


def test_a_whole_loop_of_responses(client, start, tmp_path):
    def step(client, said, **fields):
        asked = {**RESPOND, "tools": response_tools(), "tool_choice": "required", "parallel_tool_calls": False}
        first = client.responses.create(**asked)
        call, = [item for item in first.output if item.type == "function_call"]
        output = {"type": "function_call_output", "call_id": call.call_id, "output": '{"sky": "blue"}'}
        told = {"previous_response_id": first.id, "input": [output]} if said else {
            "input": [{"role": "user", "content": QUESTION}, *[item.model_dump(exclude_unset=True) for item in first.output], output]}
        return respond(client, **{**asked, **told, "tool_choice": "none", "max_output_tokens": 24})

    told = step(client, said=False)
    kept = start("-c", 3000, "-np", 4, "--queue", 16, "--state-dir", tmp_path)
    assert response_gist(step(kept.client(), said=True)) == response_gist(told)


# ---- reasoning, by a template that has it ----

@pytest.fixture(scope="module")
def thinker(tmp_path_factory):
    file = tmp_path_factory.mktemp("templates") / "reasoning.jinja"
    file.write_text(REASONING_TEMPLATE, encoding="utf-8")
    shared = Server("-c", 3000, "-np", 8, "--queue", 64, "--chat-template-file", file)
    yield shared.client()
    assert shared.stop() == 0, "".join(shared.lines)


def budget(tokens):
    return {"extra_body": {"thinking_token_budget": tokens}}


def test_a_loop_with_reasoning(thinker):
    (finish, content, reasoning, calls), = both(thinker, tools=openai_tools(), tool_choice="required", parallel_tool_calls=False, **budget(12))
    assert reasoning and len(calls) == 1 and finish == "tool_calls" and "<" not in content and "think>" not in reasoning
    said = loop(thinker, parallel_tool_calls=False, **budget(12))
    assert said[0] == calls and all(reasoning and "think>" not in content + reasoning for _, content, reasoning, _ in said[1:])


def test_reasoning_can_be_off(thinker):
    (_, _, reasoning, calls), = both(thinker, tools=openai_tools(), tool_choice="required", parallel_tool_calls=False, reasoning_effort="none")
    assert not reasoning and len(calls) == 1


def test_the_budget_of_reasoning(thinker):
    for tokens in (0, 1, 5, 20):
        (_, content, reasoning, _), = both(thinker, max_tokens=48, **budget(tokens))
        usage = thinker.chat.completions.create(**{**ASK, "max_tokens": 48}, **budget(tokens)).usage
        assert "think>" not in content and content and bool(reasoning) == bool(tokens)
        assert usage.completion_tokens_details.reasoning_tokens <= tokens + 8  # and what closes it


def test_a_schema_holds_behind_reasoning(thinker):
    for sampling in SEEDS:
        reply = thinker.chat.completions.parse(**{**ASK, **sampling}, response_format=Order, **budget(12))
        assert isinstance(reply.choices[0].message.parsed, Order) and reply.choices[0].message.reasoning_content


def test_reasoning_in_responses(thinker):
    response = respond(thinker, tools=response_tools(), tool_choice="required", parallel_tool_calls=False, **budget(12))
    assert [item.type for item in response.output] == ["reasoning", "function_call"]
    asked = [{"role": "user", "content": QUESTION}, *[item.model_dump(exclude_unset=True) for item in response.output],
             {"type": "function_call_output", "call_id": response.output[1].call_id, "output": "blue"}]
    response = respond(thinker, input=asked, tools=response_tools(), tool_choice="none", max_output_tokens=40, **budget(12))
    assert [item.type for item in response.output] == ["reasoning", "message"]
