"""OpenAI's two generating endpoints: every field with wrong types, edges and null, and what each one does."""
import json
import math

import httpx
import pytest

from conftest import TIMEOUT_S

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
GOOD = {COMPLETIONS: {"prompt": "Hello", "max_tokens": 1}, CHAT: {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}}
BOTH = (COMPLETIONS, CHAT)


@pytest.fixture(scope="module")
def http(server):
    with httpx.Client(base_url=server.url, timeout=TIMEOUT_S) as client:
        yield client


def ask(http, path=COMPLETIONS, **fields):
    reply = http.post(path, json={**GOOD[path], "temperature": 0, "cache_prompt": False, **fields})
    assert reply.status_code == 200, reply.text
    return reply.json()


def refused(reply, field):
    assert reply.status_code == 400, reply.text
    error = reply.json()["error"]
    assert error["param"] == field and error["message"] and error["type"] == "invalid_request_error", error


# ---- fields: what is wrong, what is right ----

NOT_NUMBERS = ["1", True, [], {}, [1]]
NOT_INTEGERS = [*NOT_NUMBERS, 1.5, 1e3]
NOT_BOOLS = [0, 1, "true", [], {}]
NOT_IDS = [5, "5", {}, [1.5], ["5"], [None], [-1], [10 ** 6], [2 ** 32 - 1], [2 ** 40]]
NOT_TEXTS = ["x", 5, {}, True, [5], [None], [""], [["x"]]]


def number(low, high):
    return [*NOT_NUMBERS, low - 0.01, high + 0.01, 1e300, -1e300], [low, high, None]


def integer(low, high):
    return [*NOT_INTEGERS, low - 1, high + 1, 2 ** 60, -2 ** 60], [low, high, None]


WINDOW = ([*NOT_INTEGERS, -2, 2 ** 20 + 1], [-1, 0, 2 ** 20, None])
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
FIELDS = {
    "temperature": number(0, 100), "dynatemp_range": number(0, 100), "dynatemp_exponent": number(0, 100), "top_p": number(0, 1),
    "min_p": number(0, 1), "typical_p": number(0, 1), "typ_p": number(0, 1), "top_n_sigma": number(-1, 1000),
    "xtc_probability": number(0, 1), "xtc_threshold": number(0, 1), "frequency_penalty": number(-100, 100),
    "presence_penalty": number(-100, 100), "dry_multiplier": number(0, 100), "dry_base": number(1, 100),
    "mirostat_tau": number(0, 100), "mirostat_eta": number(0, 1),
    "repeat_penalty": ([*NOT_NUMBERS, 0, -1, 101, 1e-60], [0.1, 1, 1.3, 100, None]),
    "repetition_penalty": ([*NOT_NUMBERS, 0, -1, 101], [0.1, 1, 1.3, 100, None]),
    "top_k": integer(-1, 2 ** 31 - 1), "min_keep": integer(0, 2 ** 31 - 1), "mirostat": integer(0, 2),
    "dry_allowed_length": integer(1, 2 ** 31 - 1), "repeat_last_n": WINDOW, "penalty_last_n": WINDOW, "dry_penalty_last_n": WINDOW,
    "seed": (NOT_INTEGERS, [-1, 0, 2 ** 63 - 1, -2 ** 63, None]),
    "min_tokens": ([*NOT_INTEGERS, -1, 2, 2 ** 40], [0, 1, None]),
    "dry_sequence_breakers": ([*NOT_TEXTS, ["x" * 257], ["x"] * 33], [[], ["\n"], ["x" * 256] * 32, None]),
    "samplers": ([5, {}, True, ["top_k", 5], ["top_k", "top_k"], ["best"], [""], "kk", "q", ["k"], ["infill"], [None]],
                 [[], "", ["top_k", "temperature"], "edskypmxt", ["top-p", "temp"], None]),
    "logit_bias": ([5, "x", True, {"5": 101}, {"5": -101}, {"5": "1"}, {"5": True}, {"5": None}, {"-1": 1}, {"1000000": 1}, {"": 1},
                    {"9" * 30: 1}, {"x" * 300: 1}, [5], [[5]], [[5, 1, 2]], [[5, 101]], [[5, "x"]], [[-1, 1]], [[10 ** 6, 1]],
                    [[1.5, 1]], [["", 1]], [[5, True]], [{}], {str(i): "" for i in range(5)}],
                   [{}, [], {"5": 1}, {"5": -100, "7": 100}, {"5": False}, {"Hello": -5.5}, [[5, 1]], [["Hello", False], ["7", 2]], None]),
    "bad_words": ([*NOT_TEXTS, ["x" * 257], ["x"] * 65], [[], ["bad"], [" bad", "worse words"], ["x"] * 64, None]),
    "allowed_token_ids": ([*NOT_IDS, [], [5] * 65537], [[5], [5, 5, 7], None]),
    "stop_token_ids": ([*NOT_IDS, [1] * 65], [[], [5], [5] * 64, None]),
    "stop": ([5, {}, True, [1], [""], "", ["x"] * 17, ["x" * 257], [None]], ["x", [], ["x"] * 16, "x" * 256, None]),
    "ignore_eos": (NOT_BOOLS, [True, False, None]),
    "include_stop_str_in_output": (NOT_BOOLS, [True, False, None]),
    "stream": (NOT_BOOLS, [True, False, None]),
    "stream_options": ([5, "x", [], True, {"include_usage": True}], [None]),
    "n": integer(1, 128)[:1] + ([1, 2, None],),
    "max_tokens": ([*NOT_INTEGERS, 0, -1, 2 ** 40], [1, None]),
    "max_completion_tokens": ([*NOT_INTEGERS, 0, -1, 2 ** 40], [1, None]),
    "n_predict": ([*NOT_INTEGERS, -2, 2 ** 40], [-1, 1, None]),
    "prompt_logprobs": ([*NOT_INTEGERS, -1, 21], [0, 20, None]),
    "post_sampling_probs": (NOT_BOOLS, [True, False, None]),
    "return_token_ids": (NOT_BOOLS, [True, False, None]),
    "return_tokens": (NOT_BOOLS, [True, False, None]),
    "model": ([5, [], {}, True], ["any", "", None]),
    "priority": integer(-100, 100),
    "timeout_ms": ([*NOT_INTEGERS, -1, 2 ** 32], [0, 60000, None]),
    "t_max_predict_ms": ([*NOT_INTEGERS, -2, 2 ** 32], [-1, 0, 60000, None]),
    "cache_prompt": (NOT_BOOLS, [True, False, None]),
    "user": ([5, [], {}], ["me", None]),
    "safety_identifier": ([5, [], {}], ["me", None]),
    "prompt_cache_key": ([5, [], {}], ["me", None]),
    "prompt_cache_retention": ([5, {}], ["24h", None]),
    "prompt_cache_options": ([5, "x"], [{"ttl": "5m"}, None]),
    "metadata": ([5, "x", [], {"a": 5}, {"a": "x" * 513}, {str(i): "" for i in range(17)}], [{}, {"a": "b"}, None]),
    "service_tier": ([5, "flex", "priority", {}], ["auto", "default", None]),
    "skip_special_tokens": ([False, 5, "true"], [True, None]),
    "truncate_prompt_tokens": ([5, -1, "x"], [None]),
    "grammar": ([5, {}, "root ::= [a-"], ["", 'root ::= "a"', None]),
    "json_schema": ([5, [], {"type": "nothing"}], [{}, {"type": "object"}, None]),
    "regex": ([5, {}, "("], ["[ab]+", None]),
    "ebnf": ([5, {}, "root"], ['root ::= "a"', None]),
    "guided_json": ([5, [], {"type": "nothing"}, "{"], [{"type": "object"}, '{"type":"integer"}', None]),
    "guided_regex": ([5, "("], ["a*", None]),
    "guided_choice": ([5, {}, [], [5], [""], ["a\0"], "a"], [["a", "b"], None]),
    "guided_grammar": ([5, "root"], ['root ::= "a"', None]),
    "guided_whitespace_pattern": (["x", 5], [None]),
    "grammar_lazy": ([True, 5], [False, None]),
    "grammar_triggers": ([[{}], 5], [[], None]),
    "structured_outputs": ([5, {}, {"json_object": False}, {"regex": "a", "whitespace_pattern": " "}, {"regex": "a", "disable_additional_properties": True}],
                           [{"json": {"type": "integer"}}, {"regex": "a"}, {"choice": ["a"]}, {"json_object": True}, None]),
    "response_format": ([5, {}, "text", {"type": "xml"}, {"type": "json_schema"}, {"type": "json_schema", "json_schema": {"schema": {}}},
                         {"type": "json_schema", "json_schema": {"name": "a b", "schema": {}}},
                         {"type": "json_schema", "json_schema": {"name": "a", "schema": 5}},
                         {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "nothing"}}}],
                        [{"type": "text"}, {"type": "json_object"}, {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}},
                         {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": {"type": "integer"}}}, None]),
    "store": (NOT_BOOLS, [False, None]),
}
ONLY = {
    COMPLETIONS: {
        "logprobs": ([*NOT_INTEGERS, -1, 21], [0, 20, None]),
        "echo": (NOT_BOOLS, [True, False, None]),
        "best_of": ([*NOT_INTEGERS, 0, -1, 129], [1, 3, None]),
        "suffix": (["x", 5, [], {}], ["", None]),
        "add_special_tokens": (NOT_BOOLS, [True, False, None]),
        "snapshot_at": ([5, "x", ["1"], [0], [2, 2], [-1], list(range(1, 10))], [[], [1], None]),
    },
    CHAT: {
        "logprobs": ([0, 1, "true", [], {}], [True, False, None]),
        "top_logprobs": ([*NOT_INTEGERS, -1, 21, 2], [0, None]),
        "tools": ([5, {}, "x"], [[], [TOOL], None]),
        "tool_choice": ([5, {}, "required", {"type": "function", "function": {"name": "f"}}], ["none", "auto", None]),
        "functions": ([5, {}], [[], [{"name": "f"}], None]),
        "function_call": ([5, {"name": "f"}, "required"], ["none", "auto", None]),
        "parallel_tool_calls": ([5, "true", {}], [True, False, None]),
        "reasoning_effort": ([5, "low", "high", {}, "much"], ["none", None]),
        "include_reasoning": (NOT_BOOLS, [True, False, None]),
        "reasoning_format": ([5, "x", "deepseek-legacy"], ["none", "auto", "deepseek", None]),
        "thinking_token_budget": ([*NOT_INTEGERS, -2, 2 ** 40], [-1, 0, 5, None]),
        "reasoning_budget_tokens": ([*NOT_INTEGERS, -2], [-1, 0, None]),
        "thinking_budget_tokens": ([*NOT_INTEGERS, -2], [-1, 0, None]),
        "verbosity": ([5, "low", "high"], ["medium", None]),
        "modalities": ([5, "text", ["audio"], ["text", "audio"]], [["text"], None]),
        "audio": ([5, {"voice": "alloy", "format": "wav"}], [None]),
        "prediction": ([5, "x", {}, {"type": "content"}, {"type": "x", "content": ""}, {"type": "content", "content": 5}],
                       [{"type": "content", "content": "x"}, {"type": "content", "content": [{"type": "text", "text": "x"}]}, None]),
        "web_search_options": ([5, {}], [None]),
        "moderation": ([5, {"model": "x"}], [None]),
        "add_generation_prompt": (NOT_BOOLS, [True, False, None]),
        "continue_final_message": ([*NOT_BOOLS, True], [False, None]),
        "echo": ([True, 5], [False, None]),
        "chat_template": (["x", 5], [None]),
        "chat_template_kwargs": ([[], "x", 5], [{}, {"a": 1}, None]),
    },
}
CASES = [(path, field, *{**FIELDS, **ONLY[path]}[field]) for path in BOTH for field in {**FIELDS, **ONLY[path]}]


@pytest.mark.parametrize("path,field,wrong,right", CASES, ids=lambda v: v.replace("/v1/", "") if isinstance(v, str) else "")
def test_field(http, path, field, wrong, right):
    for value in wrong:
        refused(http.post(path, json={**GOOD[path], field: value}), field)
    for value in right:
        reply = http.post(path, json={**GOOD[path], field: value})
        assert reply.status_code == 200, (value, reply.text)
        assert "X-Cohort-Unknown-Fields" not in reply.headers


def test_numbers_that_cannot_be_read(http):
    for field, value in (("temperature", "NaN"), ("top_p", "Infinity"), ("min_p", "1e999"), ("dry_base", "-1e999"), ("seed", "9223372036854775808")):
        body = f'{{"prompt":"a","max_tokens":1,"{field}":{value}}}'
        assert http.post(COMPLETIONS, content=body, headers={"Content-Type": "application/json"}).status_code == 400


@pytest.mark.parametrize("path", BOTH)
def test_unknown_fields_are_told_and_null_is_absent(http, path):
    reply = http.post(path, json={**GOOD[path], "frobnicate": 1, "x-y": None})
    assert reply.status_code == 200 and reply.headers["X-Cohort-Unknown-Fields"] == "frobnicate, x-y"
    nulls = {field: None for where, field, *_ in CASES if where == path}
    assert http.post(path, json={**nulls, **GOOD[path]}).status_code == 200


def test_two_names_of_one_field(http):
    ask(http, repeat_penalty=1.2, repetition_penalty=1.2)
    refused(http.post(COMPLETIONS, json={**GOOD[COMPLETIONS], "repeat_penalty": 1.2, "repetition_penalty": 1.3}), "repetition_penalty")
    refused(http.post(COMPLETIONS, json={**GOOD[COMPLETIONS], "typical_p": 0.2, "typ_p": 0.3}), "typ_p")


def test_stream_options(http):
    for value in ({"include_usage": 1}, {"include_usage": "x"}, 5, []):
        refused(http.post(COMPLETIONS, json={**GOOD[COMPLETIONS], "stream": True, "stream_options": value}),
                "include_usage" if isinstance(value, dict) else "stream_options")
    for name in ("continuous_usage_stats", "include_obfuscation"):
        refused(http.post(CHAT, json={**GOOD[CHAT], "stream": True, "stream_options": {name: 1}}), name)


def test_max_completion_tokens_goes_before_max_tokens(http):
    assert ask(http, max_tokens=9, max_completion_tokens=2, ignore_eos=True)["usage"]["completion_tokens"] == 2
    assert ask(http, max_tokens=None, n_predict=3, ignore_eos=True)["usage"]["completion_tokens"] == 3
    assert ask(http, max_tokens=2, n_predict=9, ignore_eos=True)["usage"]["completion_tokens"] == 2


# ---- what goes together ----

@pytest.mark.parametrize("fields,field", [
    ({"best_of": 2, "n": 3}, "best_of"), ({"best_of": 2, "stream": True}, "best_of"), ({"max_tokens": 0}, "max_tokens"),
    ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"), ({"prompt": ["a"] * 65, "n": 2}, "prompt"),
    ({"prompt": ["a"] * 65, "best_of": 2}, "prompt"), ({"max_tokens": 3, "min_tokens": 4}, "min_tokens"),
    ({"min_tokens": 17, "max_tokens": None}, "min_tokens"), ({"store": True, "echo": True}, "store"),
    ({"store": True, "best_of": 2}, "store"), ({"store": True, "prompt_logprobs": 0}, "store"),
], ids=lambda v: json.dumps(v)[:50])
def test_what_does_not_go_together(http, fields, field):
    refused(http.post(COMPLETIONS, json={**GOOD[COMPLETIONS], **fields}), field)


def test_a_server_that_stores_everything(start, tmp_path):
    server = start("-c", 200, "--state-dir", tmp_path, "--store", "all")
    for fields in ({"echo": True}, {"best_of": 2}, {"prompt_logprobs": 0}):
        refused(server.post(COMPLETIONS, {**GOOD[COMPLETIONS], **fields}), "store")
        assert server.post(COMPLETIONS, {**GOOD[COMPLETIONS], **fields, "store": False}).status_code == 200
    body = {**GOOD[CHAT], "max_tokens": 6, "temperature": 1, "seed": 1, "return_token_ids": True, "logprobs": True, "logit_bias": {"a": 2}}
    kept, plain = (server.post(CHAT, {**body, "store": store, "cache_prompt": False}) for store in (True, False))
    assert kept.headers["X-Cohort-Stream-Id"] and kept.json()["choices"] == plain.json()["choices"]


# ---- echo, and what the model says of the prompt ----

def columns(choice):
    logprobs = choice["logprobs"]
    return list(zip(logprobs["tokens"], logprobs["token_logprobs"], logprobs["text_offset"], strict=True))


def test_echo(http):
    text = "Hällo wörld"
    for n in (0, 1, 5):
        plain = ask(http, prompt=text, max_tokens=max(n, 1), ignore_eos=True)
        echo = ask(http, prompt=text, max_tokens=n, ignore_eos=True, echo=True)
        assert echo["choices"][0]["text"] == text + (plain["choices"][0]["text"] if n else "")
        assert echo["usage"]["completion_tokens"] == n and echo["choices"][0]["finish_reason"] == "length"
        assert echo["choices"][0]["logprobs"] is None


def test_echo_of_log_probabilities(http):
    text = "Hällo wörld"
    echo = ask(http, prompt=text, max_tokens=3, ignore_eos=True, echo=True, logprobs=2, return_token_ids=True)
    choice, plain = echo["choices"][0], ask(http, prompt=text, max_tokens=3, ignore_eos=True, logprobs=2)["choices"][0]
    n = echo["usage"]["prompt_tokens"]
    assert choice["text"] == text + plain["text"] and len(choice["prompt_token_ids"]) == n and len(choice["token_ids"]) == 3
    assert len(columns(choice)) == n + 3 and len(choice["logprobs"]["top_logprobs"]) == n + 3
    assert columns(choice)[0][1] is None and choice["logprobs"]["top_logprobs"][0] is None
    assert all(value <= 0 for _, value, _ in columns(choice)[1:])
    for (token, value, _), top in zip(columns(choice)[1:], choice["logprobs"]["top_logprobs"][1:]):
        assert top[token] == value and 2 <= len(top) <= 3 and value <= max(top.values())
    assert [c[:2] for c in columns(choice)[n:]] == [c[:2] for c in columns(plain)]
    assert [c[2] for c in columns(choice)[n:]] == [len(text) + c[2] for c in columns(plain)]
    offsets = choice["logprobs"]["text_offset"]
    assert offsets == sorted(offsets)
    for (token, _, offset), after in zip(columns(choice)[1:n], offsets[2:]):
        assert token.startswith("bytes:") or text[offset:after] == token


def test_what_was_generated_is_told_the_same_as_a_prompt(http):
    """The bits, too: as a prompt it is read in chunks, and it was written one by one."""
    ids = [5, 17, 3, 99]
    written = ask(http, prompt=ids, max_tokens=12, ignore_eos=True, logprobs=1, return_token_ids=True)["choices"][0]
    read = ask(http, prompt=ids + written["token_ids"], max_tokens=0, echo=True, logprobs=1)["choices"][0]
    assert read["logprobs"]["token_logprobs"][4:] == written["logprobs"]["token_logprobs"]
    assert read["logprobs"]["top_logprobs"][4:] == written["logprobs"]["top_logprobs"]


def scores(choices, lengths):
    """As lm-evaluation-harness reads them of {"echo": true, "logprobs": 1, "max_tokens": 1}."""
    out = []
    for choice, n in zip(choices, lengths, strict=True):
        values, tops = (choice["logprobs"][name][n:-1] for name in ("token_logprobs", "top_logprobs"))
        out.append((sum(values), all(value == max(top.values()) for value, top in zip(values, tops))))
    return out


def test_scores_of_an_evaluation(http):
    head = [5, 17, 3, 99]
    greedy = ask(http, prompt=head, max_tokens=4, ignore_eos=True, return_token_ids=True, logprobs=0)["choices"][0]
    best = greedy["token_ids"]
    other = [*best[:3], (best[3] + 1) % 200]
    batch = ask(http, prompt=[head + best, head + other], echo=True, logprobs=1, max_tokens=1)
    (value, is_greedy), (less, not_greedy) = scores(batch["choices"], [4, 4])
    assert value == sum(greedy["logprobs"]["token_logprobs"]) and is_greedy and not not_greedy and less < value
    alone = ask(http, prompt=[head + other], echo=True, logprobs=1, max_tokens=1)
    assert scores(alone["choices"], [4]) == [(less, False)]


def test_an_end_token_has_its_column_behind_an_echo(http):
    ids = [5, 17, 3, 99]
    first = ask(http, prompt=ids, max_tokens=1, ignore_eos=True, return_token_ids=True, logprobs=1)["choices"][0]
    ended = ask(http, prompt=ids, max_tokens=1, echo=True, logprobs=1, stop_token_ids=first["token_ids"])["choices"][0]
    assert ended["finish_reason"] == "stop" and len(columns(ended)) == 5
    assert columns(ended)[4][:2] == columns(first)[0][:2]
    assert ended["logprobs"]["top_logprobs"][4] == first["logprobs"]["top_logprobs"][0]


def test_prompt_logprobs(http):
    ids = [5, 17, 3, 99]
    echo = ask(http, prompt=ids, max_tokens=0, echo=True, logprobs=2)["choices"][0]["logprobs"]["token_logprobs"]
    for path, fields in ((COMPLETIONS, {"prompt": ids}), (COMPLETIONS, {"prompt": ids, "logprobs": 4}), (COMPLETIONS, {"prompt": ids, "n": 2})):
        told = ask(http, path, **fields, prompt_logprobs=2)["choices"][-1]["prompt_logprobs"]
        assert told[0] is None and len(told) == 4
        for token, position, value in zip(ids[1:], told[1:], echo[1:]):
            assert position[str(token)]["logprob"] == value and 2 <= len(position) <= 3
            assert sorted(entry["rank"] for entry in position.values() if entry["rank"])[:2] == [1, 2]
    chat = ask(http, CHAT, prompt_logprobs=0, return_token_ids=True)
    assert [list(position)[0] for position in chat["prompt_logprobs"][1:]] == [str(i) for i in chat["prompt_token_ids"][1:]]


# ---- several choices ----

def mean(choice):
    values = choice["logprobs"]["token_logprobs"]
    return sum(values) / len(values)


def test_best_of(http):
    fields = {"max_tokens": 6, "temperature": 1.5, "seed": 7, "ignore_eos": True}
    all_of_them = ask(http, n=5, logprobs=0, **fields)
    ranked = sorted(all_of_them["choices"], key=mean, reverse=True)
    for n in (1, 2, 4):
        best = ask(http, n=n, best_of=5, **fields)
        assert [choice["text"] for choice in best["choices"]] == [choice["text"] for choice in ranked[:n]]
        assert [choice["index"] for choice in best["choices"]] == list(range(n))
        assert best["choices"][0]["logprobs"] is None and best["usage"] == all_of_them["usage"]
        assert best["usage"]["completion_tokens"] == 30
    two = ask(http, prompt=["Hello", "World"], n=2, best_of=5, logprobs=1, **fields)
    assert [choice["index"] for choice in two["choices"]] == [0, 1, 2, 3] and two["usage"]["completion_tokens"] == 60
    assert [choice["text"] for choice in two["choices"][:2]] == [choice["text"] for choice in ranked[:2]]
    assert mean(two["choices"][2]) >= mean(two["choices"][3])


def test_prompts_times_n_are_numbered(http):
    fields = {"max_tokens": 4, "temperature": 1.5, "seed": 7, "ignore_eos": True}
    many = ask(http, prompt=["Hello", [5, 17]], n=3, **fields)["choices"]
    assert [choice["index"] for choice in many] == list(range(6))
    for at, prompt in ((0, "Hello"), (3, [5, 17])):
        assert [choice["text"] for choice in many[at:at + 3]] == [choice["text"] for choice in ask(http, prompt=prompt, n=3, **fields)["choices"]]


# ---- streams ----

STREAMED = [{}, {"logprobs": 2}, {"echo": True}, {"echo": True, "logprobs": 1}, {"echo": True, "logprobs": 0, "max_tokens": 0},
            {"return_token_ids": True}, {"echo": True, "logprobs": 1, "return_token_ids": True, "n": 2, "temperature": 1.5, "seed": 3},
            {"prompt": ["Hello", [5, 17, 3]], "echo": True, "logprobs": 1}, {"stop": ["zz", "e", "]"], "logprobs": 1},
            {"stop": ["e", "]"], "include_stop_str_in_output": True}, {"prompt": "Hä😀", "echo": True, "logprobs": 3, "temperature": 2, "seed": 5}]


def joined(server, path, body):
    """A stream's events as the choices that they make."""
    choices = {}
    for event in server.stream(body, path)[:-1]:
        for part in event["choices"]:
            whole = choices.setdefault(part["index"], {"index": part["index"], "text": "", "ids": [], "logprobs": {}, "prompt": None})
            whole["text"] += part["text"] if "text" in part else part["delta"].get("content", "")
            whole["ids"] += part.get("token_ids", [])
            whole["prompt"] = part.get("prompt_token_ids", event.get("prompt_token_ids", whole["prompt"]))
            whole["finish_reason"] = part["finish_reason"]
            for name, values in (part["logprobs"] or {}).items():
                whole["logprobs"][name] = whole["logprobs"].get(name, []) + values if values is not None else None
    return [choices[index] for index in sorted(choices)]


def same(streamed, whole, top):
    for part, choice in zip(streamed, whole, strict=True):
        text = choice["text"] if "text" in choice else choice["message"]["content"]
        assert part["text"] == text and part["finish_reason"] == choice["finish_reason"]
        assert part["ids"] == choice.get("token_ids", []) and part["prompt"] == choice.get("prompt_token_ids", top)
        assert (part["logprobs"] or None) == choice["logprobs"]


@pytest.mark.parametrize("fields", STREAMED, ids=lambda v: json.dumps(v)[:60])
def test_streamed_is_not_streamed(server, http, fields):
    body = {"prompt": "Hello", "max_tokens": 12, "temperature": 0, "cache_prompt": False, **fields}
    whole = http.post(COMPLETIONS, json=body).json()
    same(joined(server, COMPLETIONS, body), whole["choices"], None)


@pytest.mark.parametrize("fields", [{}, {"logprobs": True, "top_logprobs": 2}, {"return_tokens": True, "n": 2}, {"stop": ["e", "]"], "logprobs": True}],
                         ids=lambda v: json.dumps(v)[:60])
def test_chat_streamed_is_not_streamed(server, http, fields):
    body = {**GOOD[CHAT], "max_tokens": 12, "temperature": 1.2, "seed": 5, "cache_prompt": False, **fields}
    whole = http.post(CHAT, json=body).json()
    same(joined(server, CHAT, body), whole["choices"], whole.get("prompt_token_ids"))


@pytest.mark.parametrize("path", BOTH)
def test_usage(server, http, path):
    whole = ask(http, path, max_tokens=3, ignore_eos=True)["usage"]
    assert whole["prompt_tokens_details"] == {"audio_tokens": 0, "cached_tokens": 0}
    assert set(whole["completion_tokens_details"].values()) == {0}
    assert whole["total_tokens"] == whole["prompt_tokens"] + whole["completion_tokens"] and whole["completion_tokens"] == 3
    body = {**GOOD[path], "temperature": 0, "max_tokens": 3, "ignore_eos": True, "cache_prompt": False, "n": 2}
    events = server.stream({**body, "stream_options": {"include_usage": True, "continuous_usage_stats": True, "include_obfuscation": False}}, path)
    assert events[-2]["choices"] == [] and events[-2]["usage"]["completion_tokens"] == 6
    for index in (0, 1):
        told = [event["usage"] for event in events[:-2] if event["choices"][0]["index"] == index]
        assert all(usage["prompt_tokens"] == whole["prompt_tokens"] for usage in told)
        counts = [usage["completion_tokens"] for usage in told]
        assert counts == sorted(counts) and counts[-1] == 3
    assert all("usage" not in event for event in server.stream({**body, "stream_options": {"continuous_usage_stats": True}}, path)[:-1])


# ---- what the fields do ----

def ids_of(http, **fields):
    return ask(http, max_tokens=fields.pop("max_tokens", 8), return_token_ids=True, ignore_eos=True, **fields)["choices"][0]["token_ids"]


def test_stop_strings_in_the_output(http):
    text = ask(http, max_tokens=20, ignore_eos=True)["choices"][0]["text"]
    stop = next(text[i] for i in range(2, len(text)) if text[i].isascii())
    cut = text[:text.index(stop)]
    assert ask(http, max_tokens=20, ignore_eos=True, stop=stop)["choices"][0]["text"] == cut
    assert ask(http, max_tokens=20, ignore_eos=True, stop=stop, include_stop_str_in_output=True)["choices"][0]["text"] == cut + stop


def test_biases(http):
    for bias in ({"77": 100}, [[77, 100]], [["77", 100]], {"78": 3, "77": 100}, [[77, False], [77, 100]]):
        assert ids_of(http, logit_bias=bias) == [77] * 8
    plain = ids_of(http)
    assert plain[0] not in ids_of(http, logit_bias={str(plain[0]): False}) and plain[0] not in ids_of(http, logit_bias=[[plain[0], -100]])
    prompt = ask(http, prompt="H", max_tokens=1, add_special_tokens=False, return_token_ids=True)["choices"][0]["prompt_token_ids"]
    assert set(ids_of(http, logit_bias={"H": 100})) <= set(prompt)
    assert ids_of(http, logit_bias={}) == ids_of(http, logit_bias=[]) == plain


def test_allowed_ids(http):
    assert set(ids_of(http, allowed_token_ids=[77, 5, 77], temperature=5, seed=1, max_tokens=30)) == {5, 77}
    assert ids_of(http, allowed_token_ids=[9]) == [9] * 8


def test_bad_words(http):
    def spelled(word):
        return ask(http, prompt=word, max_tokens=1, add_special_tokens=False, return_token_ids=True)["choices"][0]["prompt_token_ids"]

    def comes(ids, seed, **fields):
        drawn = ids_of(http, allowed_token_ids=ids, temperature=5, seed=seed, max_tokens=24, **fields)
        return ids in [drawn[i:i + len(ids)] for i in range(len(drawn) - len(ids) + 1)]

    one, several = spelled("H"), spelled("ab")
    bias = {"logit_bias": {str(one[0]): 60}}
    assert ids_of(http, **bias) == one * 8 and one[0] not in ids_of(http, **bias, bad_words=["H"])
    seeds = [seed for seed in range(12) if comes(several, seed)]
    assert len(several) > 1 and seeds
    for bad in (["ab"], [" ab"], ["zz", "ab"]):
        assert not any(comes(several, seed, bad_words=bad) for seed in seeds)
    assert comes(several, seeds[0], bad_words=["ba ab"]) and ids_of(http, **bias, bad_words=["ab"]) == one * 8


def test_min_tokens_and_ends(http):
    first = ids_of(http, max_tokens=1)
    assert ask(http, max_tokens=8, stop_token_ids=first, return_token_ids=True)["choices"][0]["token_ids"] == []
    late = ask(http, max_tokens=8, stop_token_ids=first, min_tokens=4, return_token_ids=True, logit_bias={str(first[0]): 100})
    assert late["usage"]["completion_tokens"] == 5 and late["choices"][0]["finish_reason"] == "stop"


def test_samplers_change_what_is_drawn(http):
    def draw(**fields):
        return ids_of(http, temperature=fields.pop("temperature", 3), seed=4, max_tokens=24, **fields)

    greedy, free = ids_of(http, max_tokens=24), draw()
    assert free != greedy and draw() == free
    for fields in ({"top_k": 1}, {"top_p": 0}, {"min_p": 1}, {"temperature": 0}, {"top_n_sigma": 0.0001}):
        assert draw(**fields) == greedy, fields
    for fields in ({"repeat_penalty": 50}, {"frequency_penalty": 80}, {"presence_penalty": 80}, {"typical_p": 0.1}, {"mirostat": 2, "mirostat_tau": 1},
                   {"xtc_probability": 1, "xtc_threshold": 0.01}, {"dynatemp_range": 2.5, "dynatemp_exponent": 2}):
        assert draw(**fields) != free, fields
    for fields in ({"top_k": 0}, {"top_k": -1}, {"top_p": 1}, {"min_p": 0}, {"typ_p": 1}, {"top_n_sigma": -1}, {"repeat_penalty": 1}, {"mirostat": 0},
                   {"xtc_threshold": 0.6, "xtc_probability": 1}, {"repeat_penalty": 50, "repeat_last_n": 0}, {"frequency_penalty": 80, "penalty_last_n": 0},
                   {"top_k": 1, "samplers": ["temperature"]}, {"dry_multiplier": 5, "samplers": "t"}):
        assert draw(**fields) == free, fields
    assert draw(temperature=0, samplers=["penalties", "temperature"], presence_penalty=100) != greedy


def test_penalties_look_at_the_answer_only(http):
    """OpenAI's two do; the repetition penalty looks at the prompt as well."""
    body = {"prompt": [77, 5, 17, 3], "logit_bias": {"77": 30}, "max_tokens": 1}
    assert ids_of(http, **body) == [77]
    assert ids_of(http, **body, presence_penalty=100, frequency_penalty=100) == [77]
    assert ids_of(http, **body, repeat_penalty=100, repeat_last_n=-1) != [77]
    assert ids_of(http, **body, repeat_penalty=100, repeat_last_n=3) == [77]
    assert ids_of(http, **{**body, "max_tokens": 2}, presence_penalty=100)[1] != 77


def test_post_sampling(http):
    choice = ask(http, max_tokens=4, ignore_eos=True, top_k=1, temperature=1, logprobs=0, post_sampling_probs=True)["choices"][0]
    assert choice["logprobs"]["token_logprobs"] == [0] * 4
    before = ask(http, max_tokens=4, ignore_eos=True, top_k=1, temperature=1, logprobs=0)["choices"][0]
    assert all(value < 0 for value in before["logprobs"]["token_logprobs"]) and before["text"] == choice["text"]


def test_seed_of_minus_one_is_drawn(http):
    seeds = {http.post(COMPLETIONS, json={**GOOD[COMPLETIONS], "seed": -1}).headers["X-Cohort-Seed"] for _ in range(4)}
    assert len(seeds) == 4
    assert http.post(COMPLETIONS, json={**GOOD[COMPLETIONS], "seed": 12}).headers["X-Cohort-Seed"] == "12"


def test_no_begin_token(http):
    with_it = ask(http, prompt="Hello", return_token_ids=True)["choices"][0]["prompt_token_ids"]
    assert ask(http, prompt="Hello", return_token_ids=True, add_special_tokens=False)["choices"][0]["prompt_token_ids"] == with_it[1:]
    refused(http.post(COMPLETIONS, json={"prompt": "", "add_special_tokens": False}), "prompt")


# ---- messages ----

USER = {"role": "user", "content": "Hi"}


@pytest.mark.parametrize("message,field", [
    (5, "[1]"), (None, "[1]"), ({"content": "x"}, "[1].role"), ({"role": 5, "content": "x"}, "[1].role"), ({"role": "function", "content": "x"}, "[1].role"),
    ({"role": "user"}, "[1].content"), ({"role": "user", "content": None}, "[1].content"), ({"role": "user", "content": 5}, "[1].content"),
    ({"role": "user", "content": [5]}, "[1].content[0]"), ({"role": "user", "content": [{"text": "x"}]}, "[1].content[0].type"),
    ({"role": "user", "content": [{"type": 5}]}, "[1].content[0].type"),
    ({"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": "x"}}]}, "[1].content[1].type"),
    ({"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}, "[1].content[0].type"),
    ({"role": "user", "content": [{"type": "text"}]}, "[1].content[0].text"), ({"role": "user", "content": [{"type": "text", "text": None}]}, "[1].content[0].text"),
    ({**USER, "name": 5}, "[1].name"), ({"role": "assistant", "content": "x", "tool_calls": 5}, "[1].tool_calls"),
    ({"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}, "[1].tool_calls[0]"), ({"role": "assistant", "refusal": "no"}, "[1].refusal"),
    ({"role": "assistant", "refusal": 5}, "[1].refusal"), ({"role": "assistant", "audio": {"id": "x"}}, "[1].audio"),
    ({"role": "assistant", "function_call": {"name": "f"}}, "[1].function_call"), ({**USER, "tool_call_id": 5}, "[1].tool_call_id"),
], ids=lambda v: json.dumps(v)[:50])
def test_bad_messages(http, message, field):
    refused(http.post(CHAT, json={"messages": [USER, message], "max_tokens": 1}), "messages" + field)


def prompt_of(http, messages, **fields):
    return ask(http, CHAT, messages=messages, return_token_ids=True, **fields)["prompt_token_ids"]


def test_messages_that_are_the_same(http):
    plain = prompt_of(http, [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello you"}])
    for system in ({"role": "developer", "content": "Be brief."}, {"role": "system", "content": [{"type": "text", "text": "Be brief."}], "name": "boss"}):
        assert prompt_of(http, [system, {"role": "user", "content": [{"type": "text", "text": "Hello "}, {"type": "text", "text": "you"}]}]) == plain
    answered = prompt_of(http, [USER, {"role": "assistant", "content": None, "refusal": None, "tool_calls": [], "audio": None}, USER])
    assert answered == prompt_of(http, [USER, {"role": "assistant", "content": ""}, USER])


def test_answers_that_go_on(http):
    messages = [USER, {"role": "assistant", "content": "The answer is"}]
    closed = prompt_of(http, messages, add_generation_prompt=False)
    opened = prompt_of(http, messages)
    ongoing = prompt_of(http, messages, continue_final_message=True)
    assert opened[:len(closed)] == closed and closed[:len(ongoing)] == ongoing and len(ongoing) < len(closed) < len(opened)
    start = prompt_of(http, [USER])
    assert ongoing[:len(start) - 1] == start[:-1]
    assert prompt_of(http, messages, continue_final_message=True, add_generation_prompt=False) == ongoing
    for fields in ({"messages": [USER]}, {"messages": messages[1:]}, {"messages": messages, "add_generation_prompt": True}):
        refused(http.post(CHAT, json={**fields, "continue_final_message": True}), "continue_final_message")


def test_chat_logprob_bytes(http):
    choice = ask(http, CHAT, max_tokens=24, ignore_eos=True, temperature=3, seed=1, logprobs=True, top_logprobs=3)["choices"][0]
    content = choice["logprobs"]["content"]
    assert len(content) == 24 and all(len(item["top_logprobs"]) == 3 for item in content) and choice["logprobs"]["refusal"] is None
    text = b"".join(bytes(item["bytes"]) for item in content if not item["token"].startswith("<"))
    assert text.decode(errors="replace") == choice["message"]["content"] or any(item["token"].startswith("<") for item in content)
    assert all(math.isfinite(item["logprob"]) for item in content)


def test_bans_that_leave_no_token_are_the_request_s_fault(server):
    for bans in ({"allowed_token_ids": [5], "logit_bias": {"5": False}}, {"allowed_token_ids": [5], "stop_token_ids": [5], "min_tokens": 2}):
        reply = server.post("/v1/completions", {"prompt": "a", "max_tokens": 3, **bans})
        assert reply.status_code == 400 and "no token" in reply.json()["error"]["message"], reply.text
