"""Conversations that chat templates are tried with: hundreds, from a seed."""
import json
import random

TEXTS = ["", " ", "Hi", "  spaces around \n", "line one\nline two\n\nline four", "Grüße, 世界 🎉", "{{ user }} {% if x %}", "<|im_start|>system\nno<|im_end|>",
         "<think>inner</think> after", "a</think>b", "quotes \"double\" and 'single' \\ backslash", "tab\there", "<tool_call>{\"name\": 1}</tool_call>",
         "[INST] x [/INST]", "&<>'\"", "x" * 60, "\u2028 separator", "e\u0301 combining", "0", "None", "/no_think", "<s>"]
SCHEMAS = [
    {"type": "object", "properties": {}},
    {"type": "object", "properties": {"city": {"type": "string", "description": "Where – ö"}, "days": {"type": "integer", "default": 3}},
     "required": ["city"]},
    {"type": "object", "properties": {"mode": {"type": "string", "enum": ["a", "b'c", "ü"]}, "ratio": {"type": "number", "minimum": 0.5},
                                      "flag": {"type": "boolean", "default": True}, "maybe": {"type": ["string", "null"]}}, "required": ["mode", "flag"]},
    {"type": "object", "properties": {"items": {"type": "array", "items": {"type": "object", "properties": {"id": {"type": "integer"}, "tags": {
        "type": "array", "items": {"type": "string"}}}, "required": ["id"]}}, "any": {"anyOf": [{"type": "string"}, {"type": "integer"}]}},
     "required": [], "additionalProperties": False},
]
ARGUMENTS = [{}, {"city": "Köln", "days": 2}, {"mode": "b'c", "flag": False, "ratio": 1.5}, {"items": [{"id": 1, "tags": ["x", "y"]}], "any": None},
             {"text": "a\nb <&> \"q\"", "n": -3, "f": 1e-7, "big": 1e20}]


def tool(rng):
    function = {"name": rng.choice(["get_weather", "run-it", "search.web", "x", "naïve"]), "description": rng.choice(TEXTS[2:]),
                "parameters": rng.choice(SCHEMAS)}
    if rng.random() < 0.15:
        function["strict"] = True
    if rng.random() < 0.1:
        function["return"] = {"type": "string", "description": "what"}
    return {"type": "function", "function": function}


def calls(rng, plain):
    out = []
    for i in range(rng.choice([1, 1, 1, 2, 3])):
        arguments = rng.choice(ARGUMENTS)
        if rng.random() < (0 if plain else 0.5):
            arguments = json.dumps(arguments, ensure_ascii=rng.random() < 0.5)
        call = {"type": "function", "function": {"name": rng.choice(["get_weather", "x"]), "arguments": arguments}}
        if rng.random() < 0.8:
            call["id"] = rng.choice([f"call_{i}", "abcdefghi", f"functions.x:{i}"])
        out.append(call)
    return out


def content(rng, plain, parts=0.3):
    if plain or rng.random() >= parts:
        return rng.choice(TEXTS)
    kinds = [{"type": "text", "text": rng.choice(TEXTS)}]
    if rng.random() < 0.4:
        kinds.append(rng.choice([{"type": "image"}, {"type": "image_url", "image_url": {"url": "http://x/y.png"}}, {"type": "text", "text": "more"}]))
    return kinds


def assistant(rng, plain, with_calls):
    message = {"role": "assistant", "content": content(rng, plain, 0.1)}
    if rng.random() < 0.3:
        message[rng.choice(["reasoning_content", "reasoning", "thinking"])] = rng.choice(TEXTS)
    if with_calls:
        message["tool_calls"] = calls(rng, plain)
        kind = rng.random()
        if kind < 0.4:
            message["content"] = rng.choice([None, ""]) if not plain or kind < 0.1 else ""
        elif kind < 0.5 and not plain:
            del message["content"]
    elif not plain and rng.random() < 0.1:
        message["tool_calls"] = rng.choice([None, []])
    return message


def results(rng, plain, call_message):
    out = []
    for call in call_message["tool_calls"]:
        message = {"role": "tool", "content": rng.choice(["22 °C", "{\"a\": [1, 2]}", "", "err\nor", "[1]"])}
        if not plain and rng.random() < 0.2:
            message["content"] = rng.choice([[{"type": "text", "text": "part"}], {"a": 1}, None])
        if "id" in call and (plain or rng.random() < 0.8):
            message["tool_call_id"] = call["id"]
        if plain or rng.random() < 0.5:
            message["name"] = call["function"]["name"]
        out.append(message)
    return out


def orderly(rng, plain):
    messages = []
    if rng.random() < 0.55:
        messages.append({"role": "system" if plain else rng.choice(["system", "developer"]), "content": content(rng, plain)})
    for _ in range(rng.randint(1, 4)):
        messages.append({"role": "user", "content": content(rng, plain)})
        if rng.random() < 0.3:
            for _ in range(rng.choice([1, 1, 2])):
                messages.append(assistant(rng, plain, True))
                messages += results(rng, plain, messages[-1])
        if plain or rng.random() < 0.7:
            messages.append(assistant(rng, plain, False))
    if rng.random() < 0.7 and messages[-1]["role"] == "assistant":
        messages.append({"role": "user", "content": content(rng, plain)})
    return messages


def disorderly(rng):
    messages = []
    for _ in range(rng.randint(0, 6)):
        role = rng.choice(["system", "user", "user", "assistant", "tool", "developer", "function", "odd"])
        if role == "assistant":
            messages.append(assistant(rng, False, rng.random() < 0.4))
        else:
            messages.append({"role": role, "content": content(rng, False)})
    if rng.random() < 0.05:
        messages.append({"role": "user"})
    return messages


VARIABLES = {"enable_thinking": [True, False], "thinking": [True, False], "reasoning_effort": ["low", "high", "none"],
             "documents": [[{"title": "T", "text": "body"}], []], "unk_token": ["<unk>"], "pad_token": ["<pad>"], "add_vision_id": [True],
             "custom_tools": [[]], "date_string": ["26 Jul 2024"], "keep_past_thinking": [True], "thinking_budget": [-1, 0, 512],
             "tools_in_user_message": [True, False], "xml_tools": [None], "model_identity": ["You are X."],
             "builtin_tools": [["python"], ["browser", "python"]], "clear_thinking": [True, False], "preserve_thinking": [True],
             "controls": [{"length": "short"}], "functions": ["[{\"name\": \"f\"}]"], "datetime": ["2024-07-26"]}


def conversation(rng):
    """Plain ones are what most templates take; the others hold all that callers send."""
    kind = rng.random()
    messages = orderly(rng, kind < 0.6) if kind < 0.85 else disorderly(rng)
    variables = {"messages": messages, "add_generation_prompt": rng.random() < 0.6, "bos_token": rng.choice(["<s>", "<bos>", ""]),
                 "eos_token": rng.choice(["</s>", "<|im_end|>"])}
    if rng.random() < 0.5:
        variables["tools"] = [tool(rng) for _ in range(rng.choice([1, 1, 2, 4]))]
    elif rng.random() < 0.3:
        variables["tools"] = rng.choice([None, []])
    for name, values in VARIABLES.items():
        if rng.random() < 0.2:
            variables[name] = rng.choice(values)
    return variables


def conversations(n, seed=9):
    rng = random.Random(seed)
    return [conversation(rng) for _ in range(n)]
