"""Tools, structured outputs and thinking at /v1/messages with the official client, its strict validation on: streamed and not, forced by grammar."""
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import anthropic
import pydantic
import pytest
from anthropic import beta_tool

from conftest import TIMEOUT_S, Server
from tools import CLOCK, QUESTION, REASONING_TEMPLATE, SCHEMAS, anthropic_tools, check_calls

ASK = {"model": "m", "max_tokens": 160, "system": "Be brief.", "messages": [{"role": "user", "content": QUESTION}], "extra_body": {"temperature": 0}}
SAMPLINGS = [{"temperature": 0}, {"temperature": 1.0, "seed": 3}, {"temperature": 1.0, "seed": 4, "top_p": 0.95}]
ONE = {"disable_parallel_tool_use": True}


class Line(pydantic.BaseModel):
    name: Literal["tea", "milk"]
    amount: Literal[1, 2, 3]


class Order(pydantic.BaseModel):
    number: Literal["0001", "0002"]
    first: Line
    second: Line | None
    paid: bool


def make(server):
    return anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=TIMEOUT_S, _strict_response_validation=True)


@pytest.fixture(scope="module")
def client():
    shared = Server("-c", 3000, "-np", 8, "--queue", 64)
    yield make(shared)
    assert shared.stop() == 0, "".join(shared.lines)


def gist(message):
    blocks = []
    for block in message.content:
        if block.type == "tool_use":
            assert block.id.startswith("toolu_") and isinstance(block.input, dict)
            blocks.append(("call", block.name, json.dumps(block.input)))
        elif block.type == "thinking":
            assert isinstance(block.signature, str)
            blocks.append(("thinking", block.thinking))
        else:
            blocks.append(("text", block.text))
    ids = [block.id for block in message.content if block.type == "tool_use"]
    assert len(set(ids)) == len(ids)
    return blocks, message.stop_reason, message.stop_sequence, message.usage.output_tokens


def streamed(client, **fields):
    """What the helper joins, after the raw events were seen to be well formed and to say the same."""
    joined, blocks, now = {}, [], None
    for event in client.messages.create(**{**ASK, **fields}, stream=True):
        if event.type == "content_block_start":
            assert now is None and event.index == len(blocks)
            now = event.index
            blocks.append(event.content_block)
            joined[now] = ""
            if event.content_block.type == "tool_use":
                assert event.content_block.input == {} and event.content_block.name
        elif event.type == "content_block_delta":
            assert event.index == now
            kind = {"tool_use": "input_json_delta", "text": "text_delta", "thinking": ("thinking_delta", "signature_delta")}[blocks[now].type]
            assert event.delta.type in kind
            joined[now] += getattr(event.delta, "partial_json", None) or getattr(event.delta, "text", None) or getattr(event.delta, "thinking", None) or ""
        elif event.type == "content_block_stop":
            assert event.index == now
            now = None
    assert now is None
    with client.messages.stream(**{**ASK, **fields}) as stream:
        events = list(stream)
        message = stream.get_final_message()
    snapshots = [event for event in events if event.type == "input_json"]
    for index, block in enumerate(message.content):
        if block.type == "tool_use":
            if message.stop_reason != "max_tokens":
                assert json.loads(joined[index] or "{}") == block.input
            assert not snapshots or isinstance(snapshots[-1].snapshot, dict)
        else:
            assert joined[index] == (block.thinking if block.type == "thinking" else block.text)
    return gist(message)


def both(client, allowed=tuple(SCHEMAS), **fields):
    message = client.messages.create(**{**ASK, **fields})
    said = gist(message)
    assert streamed(client, **fields) == said, fields
    check_calls([block[1:] for block in said[0] if block[0] == "call"], said[1] == "max_tokens", allowed)
    if any(block[0] == "call" for block in said[0]) and said[1] not in ("max_tokens",):
        assert said[1] == "tool_use"
    return said[0], said[1]


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_a_call_is_forced(client, sampling):
    for choice, allowed in (({"type": "any", **ONE}, tuple(SCHEMAS)), ({"type": "tool", "name": "get_time", **ONE}, ["get_time"]),
                            ({"type": "tool", "name": "ping", **ONE}, ["ping"])):
        blocks, reason = both(client, allowed=allowed, tools=anthropic_tools(), tool_choice=choice, extra_body=sampling)
        assert [block[0] for block in blocks] == ["call"] and reason == "tool_use"


def test_several_none_and_auto(client):
    for sampling in SAMPLINGS:
        blocks, _ = both(client, tools=anthropic_tools("ping", "get_time"), tool_choice={"type": "any"}, extra_body=sampling)
        assert {block[0] for block in blocks} == {"call"}
        blocks, reason = both(client, tools=anthropic_tools(), tool_choice={"type": "none"}, max_tokens=24, extra_body=sampling)
        assert [block[0] for block in blocks] == ["text"] and reason in ("end_turn", "max_tokens")
        for choice in ({"type": "auto"}, {"type": "auto", **ONE}):
            both(client, tools=anthropic_tools(), tool_choice=choice, max_tokens=32, extra_body=sampling)


def test_a_call_that_is_cut_off(client):
    for limit in (3, 12, 20, 28):
        blocks, reason = both(client, tools=anthropic_tools("get_time"), tool_choice={"type": "any", **ONE}, max_tokens=limit)
        assert reason == "max_tokens" and len([block for block in blocks if block[0] == "call"]) <= 1


def test_at_once_as_alone(client):
    jobs = [{"tools": anthropic_tools(), "tool_choice": choice, "max_tokens": 96, "extra_body": sampling}
            for choice in ({"type": "any", **ONE}, {"type": "auto"}, {"type": "tool", "name": "get_time", **ONE}, {"type": "none"}) for sampling in SAMPLINGS[:2]]
    alone = [gist(client.messages.create(**{**ASK, **job})) for job in jobs]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda job: streamed(client, **job), jobs)) == alone


@pytest.mark.parametrize("fields, word", [
    ({"tool_choice": {"type": "any"}}, "tool_choice"), ({"tools": anthropic_tools(), "tool_choice": {"type": "tool", "name": "nobody"}}, "tool_choice"),
    ({"tools": anthropic_tools(), "tool_choice": {"type": "must"}}, "tool_choice"), ({"tools": [{"name": "x"}]}, "tools[0]"),
    ({"tools": [{"name": "x", "input_schema": {"type": "no"}}], "tool_choice": {"type": "any"}}, "tools"),
    ({"tools": [*anthropic_tools("ping"), *anthropic_tools("ping")]}, "tools"),
    ({"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_x", "content": "x"}]}], "tools": anthropic_tools()}, "messages"),
    ({"output_config": {"format": {"type": "json_schema", "schema": {"type": "no"}}}}, "output_config"), ({"thinking": {"type": "enabled"}}, "thinking"),
    ({"thinking": {"type": "enabled", "budget_tokens": 200}, "max_tokens": 100}, "thinking")], ids=lambda v: str(v)[:60])
def test_what_is_wrong_is_refused_by_name(client, fields, word):
    for stream in (False, True):
        with pytest.raises(anthropic.BadRequestError) as caught:
            client.messages.create(**{**ASK, **fields}, stream=stream)
        assert word in caught.value.body["error"]["message"], caught.value


# ---- the helpers ----

@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_answers_are_parsed(client, sampling):
    fields = {**ASK, "extra_body": sampling}
    message = client.messages.parse(**fields, output_format=Order)
    assert isinstance(message.parsed_output, Order) and message.stop_reason == "end_turn"
    assert Order.model_validate_json(message.content[0].text) == message.parsed_output
    with client.messages.stream(**fields, output_format=Order) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert final.parsed_output == message.parsed_output and text == message.content[0].text


def test_a_schema_of_the_request(client):
    config = {"format": {"type": "json_schema", "schema": CLOCK}}
    for sampling in SAMPLINGS:
        blocks, reason = both(client, output_config=config, extra_body=sampling)
        assert [block[0] for block in blocks] == ["text"] and reason == "end_turn"
        check_calls([("get_time", blocks[0][1])])
    blocks, reason = both(client, output_config=config, max_tokens=4)
    assert reason == "max_tokens"


def test_a_whole_loop(client):
    def play():
        first = client.messages.create(**ASK, tools=anthropic_tools(), tool_choice={"type": "any", **ONE})
        use = first.content[-1]
        said = [gist(first)[0]]
        for content, failed in (("blue", False), ([{"type": "text", "text": "blue"}], False), ("no such place", True), ([], False)):
            messages = [*ASK["messages"], {"role": "assistant", "content": [block.model_dump(exclude_unset=True) for block in first.content]},
                        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": content, "is_error": failed},
                                                     {"type": "text", "text": "And?"}]}]
            counted = client.messages.count_tokens(model="m", messages=messages, system="Be brief.", tools=anthropic_tools()).input_tokens
            answer = client.messages.create(**{**ASK, "messages": messages, "max_tokens": 16}, tools=anthropic_tools())
            assert answer.usage.input_tokens + answer.usage.cache_read_input_tokens == counted
            said.append(both(client, messages=messages, tools=anthropic_tools(), tool_choice={"type": "none"}, max_tokens=16))
        assert said[1] == said[2]
        return said

    assert play() == play()


@pytest.mark.parametrize("stream", [False, True])
def test_the_runner_of_tools(client, stream):
    asked = []

    @beta_tool
    def look_up(city: Literal["Paris", "Rome"], warm: bool) -> str:
        """Looks the weather up.

        Args:
            city: Where.
            warm: Whether it should be warm.
        """
        assert city in ("Paris", "Rome") and isinstance(warm, bool)
        asked.append((city, warm))
        return json.dumps({"sky": "blue", "city": city})

    fields = {key: ASK[key] for key in ("model", "max_tokens", "messages", "extra_body")}
    runner = client.beta.messages.tool_runner(**fields, tools=[look_up], tool_choice={"type": "any", **ONE}, max_iterations=3, stream=stream)
    turns = []
    for turn in runner:
        message = turn.get_final_message() if stream else turn
        turns.append(message)
        assert message.stop_reason == "tool_use" and message.content[-1].name == "look_up"
    assert len(turns) == 3 and len(asked) >= 2


# ---- thinking ----

@pytest.fixture(scope="module")
def thinker(tmp_path_factory):
    file = tmp_path_factory.mktemp("templates") / "reasoning.jinja"
    file.write_text(REASONING_TEMPLATE, encoding="utf-8")
    shared = Server("-c", 3000, "-np", 8, "--queue", 64, "--chat-template-file", file)
    yield make(shared)
    assert shared.stop() == 0, "".join(shared.lines)


# The least budget that there is; a model that knows nothing uses it up.
THINK = {"max_tokens": 1200, "thinking": {"type": "enabled", "budget_tokens": 1024}}


def test_thinking_has_a_block_and_a_budget(thinker):
    blocks, _ = both(thinker, **THINK)
    assert [block[0] for block in blocks] == ["thinking", "text"] and all("think>" not in block[1] for block in blocks)
    blocks, reason = both(thinker, **THINK, tools=anthropic_tools(), tool_choice={"type": "auto"})
    assert blocks[0][0] == "thinking"
    blocks, _ = both(thinker, thinking={"type": "disabled"}, max_tokens=24)
    assert [block[0] for block in blocks] == ["text"]


def test_a_loop_with_thinking(thinker):
    first = thinker.messages.create(**{**ASK, **THINK}, tools=anthropic_tools(), tool_choice={"type": "any", **ONE})
    blocks, reason, _, _ = gist(first)
    assert [block[0] for block in blocks] == ["thinking", "call"] and reason == "tool_use"
    assert streamed(thinker, **THINK, tools=anthropic_tools(), tool_choice={"type": "any", **ONE})[0] == blocks
    check_calls([blocks[1][1:]])
    messages = [*ASK["messages"], {"role": "assistant", "content": [block.model_dump(exclude_unset=True) for block in first.content]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": first.content[-1].id, "content": "blue"}]}]
    blocks, _ = both(thinker, **THINK, messages=messages, tools=anthropic_tools(), tool_choice={"type": "none"})
    assert [block[0] for block in blocks] == ["thinking", "text"]


def test_a_schema_holds_behind_thinking(thinker):
    message = thinker.messages.parse(**{**ASK, **THINK}, output_format=Order)
    assert [block.type for block in message.content] == ["thinking", "text"] and isinstance(message.parsed_output, Order)
