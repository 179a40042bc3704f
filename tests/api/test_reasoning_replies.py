"""Reasoning as /v1/messages and /v1/responses tell it: a template that opens it, a budget that closes it, whatever the model is."""
import json

import pytest

import test_anthropic_tools as anthropic_tools
import test_responses_tools as responses_tools
from test_anthropic import BODY, events, refused, say
from test_responses import ask, stream

TEMPLATE = """{%- for message in messages -%}
<|im_start|>{{ message.role }}
{% if message.reasoning_content %}<think>
{{ message.reasoning_content }}
</think>

{% endif %}{{ message.content }}{% for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor -%}
{%- if tools %}Tools: {{ tools | tojson }}
{% endif -%}
{%- if add_generation_prompt %}<|im_start|>assistant
<think>
{% endif -%}
"""
ENABLED = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 1060}


@pytest.fixture(scope="module")
def thinker(tmp_path_factory):
    from conftest import Server
    path = tmp_path_factory.mktemp("template") / "template.jinja"
    path.write_text(TEMPLATE)
    shared = Server("-c", 4000, "-np", 4, "--chat-template-file", path)
    yield shared
    assert shared.stop() == 0, "".join(shared.lines)


# ---- messages ----

def test_thinking_is_a_block(thinker):
    message = say(thinker, **ENABLED)
    blocks = anthropic_tools.check(message, events(thinker, **ENABLED))
    assert [block["type"] for block in blocks] == ["thinking", "text"] and blocks[0]["thinking"] and blocks[0]["signature"]
    assert 1024 <= message["usage"]["output_tokens_details"]["thinking_tokens"] < message["usage"]["output_tokens"] == 1060
    assert "think>" not in blocks[0]["thinking"] + blocks[1]["text"]
    again = say(thinker, messages=[*BODY["messages"], {"role": "assistant", "content": message["content"]}, {"role": "user", "content": "So?"}])
    assert again["usage"]["input_tokens"] + again["usage"]["cache_read_input_tokens"] > 1000  # it came back as reasoning


def test_thinking_may_be_left_out_of_the_reply(thinker):
    whole = say(thinker, **ENABLED)["content"]
    fields = {**ENABLED, "thinking": {**ENABLED["thinking"], "display": "omitted"}}
    message = say(thinker, **fields)
    blocks = anthropic_tools.check(message, events(thinker, **fields))
    assert blocks[0]["thinking"] == "" and blocks[0]["signature"] and blocks[1] == whole[1]


def test_thinking_that_is_cut_off(thinker):
    message = say(thinker, thinking={"type": "adaptive"}, max_tokens=20)
    assert [block["type"] for block in anthropic_tools.check(message, events(thinker, thinking={"type": "adaptive"}, max_tokens=20))] == ["thinking"]
    assert message["stop_reason"] == "max_tokens" and message["usage"]["output_tokens_details"]["thinking_tokens"] == 20


def test_a_call_comes_behind_thinking(thinker):
    fields = {**ENABLED, "max_tokens": 1400, "tools": [anthropic_tools.CLOCK], "tool_choice": {"type": "any", "disable_parallel_tool_use": True}}
    message = say(thinker, **fields)
    blocks = anthropic_tools.check(message, events(thinker, **fields))
    assert blocks[0]["type"] == "thinking" and [block["name"] for block in blocks if block["type"] == "tool_use"] == ["clock"]
    assert message["stop_reason"] == "tool_use"
    use = next(block for block in blocks if block["type"] == "tool_use")
    history = [*BODY["messages"], {"role": "assistant", "content": blocks},
               {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use["id"], "content": "noon"}]}]
    assert say(thinker, messages=history, tools=fields["tools"])["usage"]["output_tokens"] == 12


def test_a_model_that_does_not_reason_is_told(server):
    assert "thinking" in refused(server, thinking={"type": "enabled", "budget_tokens": 1024}, max_tokens=1500)["message"]


# ---- responses ----

THOUGHT = {"thinking_token_budget": 20, "max_output_tokens": 60}


@pytest.mark.parametrize("reasoning", [None, {"summary": "auto"}, {"effort": "high", "summary": "detailed"}])
def test_reasoning_is_an_item(thinker, reasoning):
    response = ask(thinker, **THOUGHT, reasoning=reasoning)
    found = stream(thinker, **THOUGHT, reasoning=reasoning)
    streamed = responses_tools.check(found)
    assert responses_tools.plain(streamed, streamed["id"]) == responses_tools.plain(response, response["id"])
    thought, message = response["output"]
    assert (thought["type"], message["type"]) == ("reasoning", "message") and thought["content"][0]["text"]
    assert thought["summary"] == ([{"type": "summary_text", "text": thought["content"][0]["text"]}] if reasoning else [])
    assert 20 <= response["usage"]["output_tokens_details"]["reasoning_tokens"] < 60 == response["usage"]["output_tokens"]
    names = [json.loads(data)["type"] for _, _, data in found]
    assert ("response.reasoning_summary_text.delta" in names) == bool(reasoning) and "response.reasoning_text.done" in names


def test_reasoning_that_is_cut_off(thinker):
    response = responses_tools.check(stream(thinker, max_output_tokens=15))
    assert [item["type"] for item in response["output"]] == ["reasoning"] and response["output"][0]["status"] == "incomplete"


def test_a_call_comes_behind_reasoning(thinker):
    fields = {"tools": [responses_tools.CLOCK], "tool_choice": "required", "parallel_tool_calls": False, "thinking_token_budget": 20, "max_output_tokens": 300}
    response = ask(thinker, **fields)
    streamed = responses_tools.check(stream(thinker, **fields))
    assert responses_tools.plain(streamed, streamed["id"]) == responses_tools.plain(response, response["id"])
    assert response["output"][0]["type"] == "reasoning" and response["output"][-1]["name"] == "clock" and response["status"] == "completed"
    outputs = [{"type": "function_call_output", "call_id": response["output"][-1]["call_id"], "output": "noon"}]
    again = ask(thinker, input=[{"role": "user", "content": "Hm?"}, *response["output"], *outputs], tools=fields["tools"])
    assert again["usage"]["output_tokens"] == 12


def test_logprobs_are_those_of_the_text_alone(thinker):
    response = responses_tools.check(stream(thinker, **THOUGHT, include=["message.output_text.logprobs"]))
    message = response["output"][-1]
    assert 20 < len(message["content"][0]["logprobs"]) < 60 - 20


def test_a_model_that_does_not_reason_says_so(server):
    assert ask(server, status=400, reasoning={"effort": "high"})["param"] == "reasoning"
