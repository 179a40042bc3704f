"""Sixteen at once, constrained and free: schemas, expressions, grammars, choices, tools, other samplers, seeds and amounts of log-probabilities.
Each is what it is alone, text and numbers, in 20 rounds; beside clients that go away, with what others left in the cache, after state was given up
and after the server was killed."""
import json
import random
import signal
import threading

import httpx
import jsonschema

from conftest import BINARY, SLOW, TINY
from rounds import prompt_of, read_stream
from tools import CLOCK, WEATHER, check_calls, openai_tools

ROUNDS = 20 if TINY and "asan" not in BINARY else 2  # a sanitized program is slow
TOKENS = 40
SAMPLERS = [{"temperature": 0}, {"temperature": 0.7, "top_k": 20}, {"temperature": 1.3, "top_p": 0.8}, {"temperature": 1, "min_p": 0.05},
            {"temperature": 1, "typical_p": 0.8}, {"temperature": 1, "xtc_probability": 0.5, "xtc_threshold": 0.05},
            {"temperature": 0.9, "mirostat": 2, "mirostat_eta": 0.2}, {"temperature": 0.8, "repetition_penalty": 1.2, "repeat_last_n": 16},
            {"temperature": 0.6, "dry_multiplier": 0.9, "dry_allowed_length": 1}, {"temperature": 1, "logit_bias": {"7": 5, "9": -100}}]
TREE = {"$defs": {"node": {"type": "object", "properties": {"v": {"type": "integer", "minimum": 0, "maximum": 99},
                                                            "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
                           "required": ["v", "next"], "additionalProperties": False}}, "$ref": "#/$defs/node"}
WORDS = {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 5}, "minItems": 1, "maxItems": 4}
SCHEMAS = [WEATHER, CLOCK, TREE, WORDS, {"type": "object", "properties": {"a": WORDS, "b": {"enum": [None, True, 1.5, "ä"]}}, "required": ["a", "b"]}]
REGEXES = [r"[0-9]{4}-[0-9]{2}-[0-9]{2}", r"(red|green|blue)( (dark|light))?", r"[a-z]{3,12}[.!?]", r"\([0-9]+(, [0-9]+)*\)"]
GRAMMARS = ['root ::= item (" " item)*\nitem ::= "a" | "bc" [0-9]', 'root ::= "(" root ")" | [xyz]', 'root ::= [^\\x00-\\x1f"]{1,20} "."']


def schema_of(fields, schema):
    return {**fields, "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}}


def constrained(rng):
    """(path, what goes into the body, how a finished text is checked)."""
    kind = rng.choice(["schema", "chat schema", "object", "regex", "grammar", "choice", "tools", "llama schema"])
    if kind in ("schema", "chat schema"):
        schema = rng.choice(SCHEMAS)
        return "/v1/completions" if kind == "schema" else "/v1/chat/completions", schema_of({}, schema), schema
    if kind == "llama schema":
        schema = rng.choice(SCHEMAS)
        return "/completion", {"json_schema": schema}, schema
    if kind == "object":
        return "/v1/chat/completions", {"response_format": {"type": "json_object"}}, {"type": "object"}
    if kind == "regex":
        return "/v1/completions", {"structured_outputs": {"regex": rng.choice(REGEXES)}}, None
    if kind == "grammar":
        return "/v1/completions", {"grammar": rng.choice(GRAMMARS)}, None
    if kind == "choice":
        return "/v1/completions", {"structured_outputs": {"choice": ["yes", "no", "not now", "never again"]}}, {"choice": 1}
    choice = rng.choice(["required", "auto", {"type": "function", "function": {"name": "get_time"}}])
    return "/v1/chat/completions", {"tools": openai_tools(), "tool_choice": choice, "parallel_tool_calls": rng.random() < 0.5}, None


def body_of(rng, number, prompts):
    path, fields, schema = constrained(rng) if number % 4 != 3 else (rng.choice(["/v1/completions", "/v1/chat/completions"]), {}, None)
    body = {**rng.choice(SAMPLERS), "max_tokens": rng.randrange(1, TOKENS), "seed": rng.randrange(1 << 40), **fields}
    text, amount = rng.choice(prompts), rng.choice([None, 1, 5])
    if path == "/completion":
        body["n_predict"] = body.pop("max_tokens")
        return path, {**body, "prompt": text, **({} if amount is None else {"n_probs": amount})}, schema
    if rng.random() < 0.3:
        body["n"] = 2
    if path == "/v1/completions":
        return path, {**body, "prompt": text, **({} if amount is None else {"logprobs": amount})}, schema
    return path, {**body, "messages": [{"role": "user", "content": text}], **({} if amount is None else {"logprobs": True, "top_logprobs": amount})}, schema


def without_ids(value):
    if isinstance(value, dict):
        return {key: "ID" if key == "id" and isinstance(each, str) else without_ids(each) for key, each in value.items()}
    return [without_ids(each) for each in value] if isinstance(value, list) else value


def ask(url, path, body):
    """All that the request alone decides. What was cached depends on who came before, and names of calls are drawn."""
    reply = httpx.post(url + path, json=body, timeout=600)
    assert reply.status_code == 200, (path, body, reply.text)
    said = reply.json()
    if path == "/completion":
        return json.dumps([said[name] for name in ("content", "stop_type", "tokens_predicted")] + [said.get("completion_probabilities")])
    usage = {name: said["usage"][name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")}
    return json.dumps([without_ids(said["choices"]), usage])


def check(path, answer, schema):
    """What ended by itself follows what was asked for."""
    said = json.loads(answer)
    if path == "/completion":
        said = [[{"text": said[0], "finish_reason": "length" if said[1] == "limit" else "stop"}]]
    for choice in said[0]:
        text = choice["text"] if "text" in choice else choice["message"]["content"]
        calls = (choice.get("message") or {}).get("tool_calls") or []
        check_calls([(call["function"]["name"], call["function"]["arguments"]) for call in calls], choice["finish_reason"] == "length")
        if schema is None or choice["finish_reason"] == "length":
            continue
        if "choice" in schema:
            assert text in ("yes", "no", "not now", "never again"), text
        else:
            jsonschema.Draft202012Validator(schema).validate(json.loads(text))


def together(url, asked, order, cuts=()):
    """The answers of all at once; `cuts` are (body, pieces) of clients that go away after so many."""
    answers, failures = [None] * len(asked), []

    def client(i):
        try:
            answers[i] = ask(url, *asked[i][:2])
        except Exception as error:  # told below, in the main thread
            failures.append(repr(error))

    def leaver(body, pieces):
        try:
            read_stream(url, body, pieces)
        except (httpx.HTTPError, RuntimeError) as error:
            failures.append(repr(error))

    threads = [threading.Thread(target=client, args=(i,)) for i in order] + [threading.Thread(target=leaver, args=cut) for cut in cuts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    return answers


def prompts_of(rng):
    """Some begin alike."""
    begin = prompt_of(rng, 40)
    return [begin + " " + prompt_of(rng, rng.randrange(1, 20)) for _ in range(4)] + [prompt_of(rng, rng.randrange(1, 80)) for _ in range(8)]


def test_each_equals_its_solo_run(start):
    server = start("-c", 3000, "-np", 16, "--queue", 128, "-b", 64, "-t", 2)
    for number in range(ROUNDS):
        rng = random.Random(number)
        prompts = prompts_of(rng)
        asked = [body_of(rng, i, prompts) for i in range(16)]
        alone = [ask(server.url, *each[:2]) for each in asked]
        for (path, _, schema), answer in zip(asked, alone):
            check(path, answer, schema)
        cuts = [({"prompt": rng.choice(prompts), "max_tokens": 200, "temperature": 1, "seed": i,
                  **rng.choice([{}, {"grammar": 'root ::= [a-z ]*'}, {"structured_outputs": {"regex": "[0-9 ]*"}}])}, rng.randrange(1, 20)) for i in range(3)]
        answers = together(server.url, asked, rng.sample(range(16), 16), cuts)
        for i in range(16):
            assert answers[i] == alone[i], (number, asked[i])
    server.wait_idle()


def test_state_that_is_given_up_changes_nothing(start):
    """In a pool for little more than the longest of them: constrained rows lose their state and read it again."""
    server = start("-t", 2, "-b", 64, "-c", 1000, "-np", 8, "--queue", 64, "--kv-tokens", 512)
    for seed in range(30, 36):
        rng = random.Random(seed)
        asked = []
        for i in range(12):
            fields = [{"grammar": 'root ::= ([a-z]+ " ")*'}, {"structured_outputs": {"regex": "([0-9]+,)*"}}, {"response_format": {"type": "json_object"}}, {}][i % 4]
            asked.append(("/v1/completions", {"prompt": prompt_of(rng, rng.randrange(5, 30)), "max_tokens": 300, "temperature": 1, "seed": seed * 100 + i,
                                              "logprobs": 1, "ignore_eos": True, **fields}, None))
        alone = [ask(server.url, *each[:2]) for each in asked]
        assert together(server.url, asked, range(12)) == alone
        server.wait_idle()
        if server.metric("cohort_preemptions_total") > 0:
            break
    assert server.metric("cohort_preemptions_total") > 0 and server.metric("cohort_kv_pages_used") == 0


def test_after_kill_9_the_answer_goes_on_in_its_form(start, tmp_path):
    """A stored stream that was begun by a server which was killed is ended by the next one: the same pieces."""
    bodies = [("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 60, "temperature": 1, "seed": 1, "ignore_eos": True, "grammar": 'root ::= ([a-f]+ " ")*'}),
              ("/v1/chat/completions", schema_of({"messages": [{"role": "user", "content": "Words?"}], "max_tokens": 60, "temperature": 1, "seed": 2},
                                                 {"type": "array", "items": {"type": "string", "maxLength": 6}, "minItems": 9, "maxItems": 9})),
              ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Time?"}], "max_tokens": 60, "temperature": 1, "seed": 3,
                                        "tools": openai_tools("get_time"), "tool_choice": "required"})]

    def server():
        return start("-c", 2000, "-np", 4, "--queue", 16, "--state-dir", tmp_path, *SLOW)

    def joined(lines):
        return json.dumps([without_ids(json.loads(line[6:]).get("choices")) for line in lines if line.startswith("data: {")])

    first = server()
    whole = []
    for path, body in bodies:
        with httpx.stream("POST", first.url + path, json={**body, "stream": True}, timeout=600) as reply:
            whole.append(joined(reply.iter_lines()))
    names = []
    for path, body in bodies:
        with httpx.stream("POST", first.url + path, json={**body, "stream": True, "store": True}, timeout=600) as reply:
            assert reply.status_code == 200, reply.read()
            names.append(reply.headers["X-Cohort-Stream-Id"])
            lines = reply.iter_lines()
            for _ in range(8):
                next(lines, None)
    first.process.send_signal(signal.SIGKILL)
    first.process.wait(30)
    second = server()
    for name, expected in zip(names, whole):
        with httpx.stream("GET", f"{second.url}/v1/streams/{name}", timeout=600) as reply:
            assert reply.status_code == 200
            assert joined(reply.iter_lines()) == expected
