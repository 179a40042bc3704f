"""Tools, schemas and templates that tests of several dialects share, and what holds for every answer with calls.

All that is free in the schemas is bounded, so that a model which knows nothing comes to an end, too.
"""
import json

import jsonschema

WEATHER = {"type": "object", "properties": {"city": {"type": "string", "enum": ["Paris", "Rome", "São Paulo"]},
                                            "days": {"type": "integer", "minimum": 1, "maximum": 9}, "warm": {"type": "boolean"}},
           "required": ["city", "days"], "additionalProperties": False}
CLOCK = {"type": "object", "properties": {"zone": {"type": "string", "pattern": "^[A-Z]{3}$"}, "parts": {"type": "array", "items": {"enum": ["h", "m", "s"]},
                                                                                                 "minItems": 1, "maxItems": 3}},
         "required": ["zone", "parts"], "additionalProperties": False}
NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}
SCHEMAS = {"get_weather": WEATHER, "get_time": CLOCK, "ping": NOTHING}
ABOUT = {"get_weather": "The weather of the next days.", "get_time": "What time it is.", "ping": "Is anybody there?"}
QUESTION = "What is the weather in Rome?"


def openai_tools(*names, **fields):
    return [{"type": "function", "function": {"name": name, "description": ABOUT[name], "parameters": SCHEMAS[name], **fields}} for name in names or SCHEMAS]


def response_tools(*names, **fields):
    return [{"type": "function", "name": name, "description": ABOUT[name], "parameters": SCHEMAS[name], "strict": True, **fields} for name in names or SCHEMAS]


def anthropic_tools(*names, **fields):
    return [{"name": name, "description": ABOUT[name], "input_schema": SCHEMAS[name], **fields} for name in names or SCHEMAS]


def check_calls(calls, cut=False, allowed=tuple(SCHEMAS)):
    """calls: [(name, arguments as text)]. All are valid against their tools' schemas; of an answer that was cut off the last may be unfinished."""
    for number, (name, arguments) in enumerate(calls):
        assert name in allowed, (name, allowed)
        if cut and number == len(calls) - 1:
            continue
        jsonschema.Draft202012Validator(SCHEMAS[name]).validate(json.loads(arguments))


# In the manner of Hermes' and Qwen's: calls as JSON between tags, reasoning between tags in front of the answer, open in the prompt.
REASONING_TEMPLATE = """\
{%- if tools %}
<|im_start|>system
{%- if messages and messages[0].role == 'system' %}

{{ messages[0].content }}
{%- endif %}

Functions that you may call:
<tools>
{%- for tool in tools %}

{{ tool | tojson }}
{%- endfor %}

</tools>
A call is a JSON object with the function's name and its arguments:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call><|im_end|>
{%- elif messages and messages[0].role == 'system' %}
<|im_start|>system
{{ messages[0].content }}<|im_end|>
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'user' %}

<|im_start|>user
{{ message.content }}<|im_end|>
{%- elif message.role == 'tool' %}

<|im_start|>user
<tool_response>
{{ message.content }}
</tool_response><|im_end|>
{%- elif message.role == 'assistant' %}

<|im_start|>assistant
{% if message.reasoning_content %}<think>
{{ message.reasoning_content }}
</think>

{% endif %}
{{- message.content or '' }}
{%- for call in message.tool_calls or [] %}

<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments if call.function.arguments is string else call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}

<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking is false %}<think>

</think>

{% else %}<think>
{% endif %}
{%- endif %}
"""
