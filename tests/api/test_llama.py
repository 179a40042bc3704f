"""llama-server's own endpoints: /completion, /infill, /props, /slots, and its errors."""
import math
import pathlib

import httpx
import pytest

from conftest import MODEL, SLOW
from gguf_patch import add_u32

PROMPT = "The capital of France is"
PLAIN = {"prompt": PROMPT, "n_predict": 6, "temperature": 0, "ignore_eos": True}
FIELDS = {"index", "content", "tokens", "id_slot", "stop", "model", "tokens_predicted", "tokens_evaluated", "generation_settings",
          "prompt", "has_new_line", "truncated", "stop_type", "stopping_word", "tokens_cached", "timings"}


def ask(server, path="/completion", **fields):
    reply = server.post(path, {**PLAIN, **fields})
    assert reply.status_code == 200, reply.text
    return reply.json()


def refused(server, body, path="/completion", status=400, kind="invalid_request_error"):
    reply = server.post(path, body)
    assert reply.status_code == status, reply.text
    error = reply.json()["error"]
    assert error["code"] == status and error["type"] == kind and error["message"], error
    return error


def ids_of(server, text, begin=True):
    return server.post("/tokenize", {"content": text, "add_special": begin, "parse_special": False}).json()["tokens"]


def test_a_reply_has_all_fields(server):
    reply = ask(server)
    assert set(reply) == FIELDS
    assert reply["stop"] is True and reply["stop_type"] == "limit" and reply["stopping_word"] == "" and reply["truncated"] is False
    assert reply["tokens"] == [] and reply["tokens_predicted"] == 6
    ids = ids_of(server, PROMPT)
    assert reply["tokens_evaluated"] == len(ids) and reply["prompt"].endswith(PROMPT)
    timings = reply["timings"]
    assert timings["cache_n"] + timings["prompt_n"] == len(ids) and timings["predicted_n"] == 6
    assert set(timings) == {"cache_n", "prompt_n", "prompt_ms", "prompt_per_token_ms", "prompt_per_second", "predicted_n",
                            "predicted_ms", "predicted_per_token_ms", "predicted_per_second"}
    settings = reply["generation_settings"]
    assert settings["n_predict"] == 6 and settings["temperature"] == 0 and settings["stop"] == [] and settings["stream"] is False


def test_it_says_what_completions_says(server):
    whole = server.complete(PROMPT, 6)["choices"][0]["text"]
    assert ask(server)["content"] == whole
    assert ask(server, path="/completions")["content"] == whole


def test_defaults(server):
    settings = server.post("/completion", {"prompt": "x", "n_predict": 1}).json()["generation_settings"]
    assert (settings["top_k"], round(settings["temperature"], 6), round(settings["top_p"], 6), round(settings["min_p"], 6)) == (40, 0.8, 0.95, 0.05)
    told = server.get("/props").json()["default_generation_settings"]["params"]
    assert {k: told[k] for k in told if k not in ("seed", "n_predict", "max_tokens")} == \
        {k: settings[k] for k in settings if k not in ("seed", "n_predict", "max_tokens")}
    drawn = [server.post("/completion", {"prompt": "x", "n_predict": 1, "seed": seed}).json()["generation_settings"]["seed"] for seed in (-1, -1)]
    assert drawn[0] != drawn[1] and drawn[0] != -1
    assert ask(server, temperature=-1)["content"] == ask(server)["content"]


@pytest.mark.parametrize("prompt", ["ids", "mixed", "begun", "object"])
def test_shapes_of_a_prompt(server, prompt):
    ids, cut = ids_of(server, PROMPT), len(PROMPT) // 2
    shapes = {"ids": ids, "mixed": ids[:3] + [PROMPT], "begun": [PROMPT[:cut], *ids_of(server, PROMPT[cut:], False)],
              "object": {"prompt_string": PROMPT}}
    want = {"ids": ids, "mixed": ids[:3] + ids_of(server, PROMPT, False),
            "begun": ids_of(server, PROMPT[:cut]) + ids_of(server, PROMPT[cut:], False), "object": ids}
    got = ask(server, prompt=shapes[prompt])
    assert got["tokens_evaluated"] == len(want[prompt])
    assert got["content"] == ask(server, prompt=want[prompt])["content"]


def test_several_prompts(server):
    ids = ids_of(server, PROMPT)
    prompts = [PROMPT, ids, [*ids[:2], "and"], {"prompt_string": "x"}]
    replies = ask(server, prompt=prompts, return_tokens=True)
    assert [reply["index"] for reply in replies] == [0, 1, 2, 3]
    for reply, prompt in zip(replies, prompts):
        assert reply["tokens"] == ask(server, prompt=prompt, return_tokens=True)["tokens"]
    assert len(ask(server, prompt=["a", "b"], n_cmpl=2)) == 4


def test_streamed_equals_whole(server):
    body = {**PLAIN, "n_predict": 12, "n_probs": 3}
    whole = ask(server, **body, return_tokens=True)
    *pieces, last = server.stream(body, "/completion")
    assert all(piece["stop"] is False for piece in pieces) and last["stop"] is True
    assert "".join(piece["content"] for piece in [*pieces, last]) == whole["content"]
    assert [token for piece in pieces for token in piece["tokens"]] == whole["tokens"] and last["tokens"] == []
    assert [p for piece in pieces for p in piece["completion_probabilities"]] == whole["completion_probabilities"]
    assert [piece["tokens_predicted"] for piece in pieces] == list(range(1, 13))
    assert set(last) == FIELDS and last["generation_settings"]["stream"] is True
    assert last["has_new_line"] == whole["has_new_line"] == ("\n" in whole["content"])


def test_probabilities(server):
    told = ask(server, n_probs=4)["completion_probabilities"]
    assert len(told) == 6
    for token in told:
        assert set(token) == {"id", "token", "bytes", "logprob", "top_logprobs"} and len(token["top_logprobs"]) == 4
        assert token["top_logprobs"][0]["id"] == token["id"] and token["top_logprobs"][0]["logprob"] == token["logprob"] <= 0
        assert bytes(token["bytes"]).decode(errors="replace") == token["token"]
    after = ask(server, n_probs=4, post_sampling_probs=True)["completion_probabilities"]
    for token in after:
        assert set(token) == {"id", "token", "bytes", "prob", "top_probs"} and 0 <= token["prob"] <= 1
        assert all(0 <= other["prob"] <= 1 for other in token["top_probs"])


def test_probabilities_are_those_of_chat(server):
    first = ask(server, n_probs=2)["completion_probabilities"][0]
    other = server.complete(PROMPT, 1, logprobs=2)["choices"][0]["logprobs"]
    assert math.isclose(first["logprob"], other["token_logprobs"][0], rel_tol=1e-8)


def test_ends(server):
    text = ask(server, n_predict=16)["content"]
    stop = next(text[i:i + 2] for i in range(3, len(text)) if "\ufffd" not in text[i:i + 2])
    cut = ask(server, n_predict=16, stop=["never seen", stop])
    assert cut["stop_type"] == "word" and cut["stopping_word"] == stop and cut["content"] == text[:text.index(stop)]
    assert cut["generation_settings"]["stop"] == ["never seen", stop]
    pieces = server.stream({**PLAIN, "n_predict": 16, "stop": stop}, "/completion")
    assert "".join(piece["content"] for piece in pieces) == cut["content"] and pieces[-1]["stopping_word"] == stop
    tokens = ask(server, return_tokens=True)["tokens"]
    assert ask(server, stop_token_ids=[tokens[2]])["stop_type"] == "eos"


def test_nothing_to_predict(server):
    reply = ask(server, n_predict=0)
    assert reply["content"] == "" and reply["tokens_predicted"] == 0 and reply["stop_type"] == "limit"
    assert reply["tokens_evaluated"] == len(ids_of(server, PROMPT))


def test_rest_of_the_context(start):
    reply = ask(start("-c", 64, "-np", 1), n_predict=-1)
    assert reply["stop_type"] == "limit" and reply["tokens_evaluated"] + reply["tokens_predicted"] == 64


@pytest.mark.parametrize("name", ["n_predict", "max_tokens", "max_completion_tokens"])
def test_names_of_the_length(server, name):
    body = {**PLAIN, name: 3}
    if name != "n_predict":
        del body["n_predict"]
    assert server.post("/completion", body).json()["tokens_predicted"] == 3


def test_response_fields(server):
    reply = ask(server, response_fields=["content", "generation_settings/n_predict", "no/such", "timings/predicted_n"])
    assert reply == {"content": ask(server)["content"], "generation_settings/n_predict": 6, "timings/predicted_n": 6}
    last = server.stream({**PLAIN, "response_fields": ["stop"]}, "/completion")[-1]
    assert last == {"stop": True}


def test_text_is_text_unless_special_is_asked_for(server):
    marker = server.get("/tokenizer_info").json()["eos_token"]
    text = f"a{marker}b"
    plain, special = ask(server, prompt=text), ask(server, prompt=text, parse_special=True)
    assert plain["tokens_evaluated"] > special["tokens_evaluated"]
    assert special["tokens_evaluated"] == server.post("/tokenize", {"content": text, "add_special": True}).json()["count"]
    assert ask(server, prompt=["x", 5, text])["tokens_evaluated"] > ask(server, prompt=["x", 5, text], parse_special=True)["tokens_evaluated"]


def test_a_template_and_its_prompt_are_a_chat(server):
    messages = [{"role": "user", "content": "Say hello."}]
    prompt = server.post("/apply-template", {"messages": messages}).json()["prompt"]
    mine = ask(server, prompt=prompt, parse_special=True)
    chat = server.post("/v1/chat/completions", {"messages": messages, "max_tokens": 6, "temperature": 0, "ignore_eos": True}).json()
    assert mine["content"] == chat["choices"][0]["message"]["content"]
    assert mine["tokens_evaluated"] == chat["usage"]["prompt_tokens"]


def test_cached_tokens_are_told(server):
    prompt = "Some words that come twice, so that the second time there is less to read. " * 4
    first, second = (ask(server, prompt=prompt) for _ in range(2))
    assert first["content"] == second["content"] and second["tokens_cached"] == second["timings"]["cache_n"] > 0
    assert second["timings"]["prompt_n"] == second["tokens_evaluated"] - second["tokens_cached"]
    assert ask(server, prompt=prompt, cache_prompt=False)["tokens_cached"] == 0
    assert ask(server, id_slot=3)["id_slot"] == 3


@pytest.mark.parametrize("field, value", [
    ("prompt", None), ("prompt", []), ("prompt", [[]]), ("prompt", 5), ("prompt", {}), ("prompt", {"prompt_string": 1}), ("prompt", ["a", -1]),
    ("prompt", [1, 2**31]), ("prompt", [1, 1.5]), ("prompt", ["a", ["b", -1]]), ("prompt", ["a", None]), ("prompt", [True]),
    ("n_predict", -2), ("n_predict", "5"), ("n_predict", 2**40), ("n_probs", 21), ("n_probs", -1), ("n_keep", -2), ("n_discard", -1),
    ("n_indent", "x"), ("n_cmpl", 0), ("n_cmpl", 1000), ("response_fields", "x"), ("response_fields", [1]), ("response_fields", ["x"] * 65),
    ("return_tokens", 1), ("parse_special", "yes"), ("timings_per_token", "true"), ("post_sampling_probs", 0), ("stop", 5), ("stop", [""]),
    ("temperature", 1e9), ("top_k", -2), ("id_slot", -2), ("id_slot", 2**31), ("stream", "true")])
def test_bad_fields(server, field, value):
    assert refused(server, {**PLAIN, field: value}).get("param", "").startswith(field.replace("n_cmpl", ""))


@pytest.mark.parametrize("field, value", [("grammar_lazy", True), ("grammar_triggers", [{"type": 0}]), ("lora", [{"id": 0, "scale": 1}]), ("return_progress", True)])
def test_what_cannot_be_done_is_refused(server, field, value):
    assert refused(server, {**PLAIN, field: value}, kind="not_supported_error")["param"] == field
    refused(server, {**PLAIN, "prompt": {"prompt_string": "x", "multimodal_data": ["YQ=="]}}, kind="not_supported_error")


def test_neutral_values_are_accepted(server):
    reply = server.post("/completion", {**PLAIN, "grammar": "", "lora": [], "json_schema": None, "n_keep": -1, "n_discard": 5, "n_indent": 2,
                                        "n_cache_reuse": 256, "t_max_predict_ms": 0, "return_progress": False, "samplers": None, "what": 1})
    assert reply.status_code == 200 and reply.headers["X-Cohort-Unknown-Fields"] == "what"


def test_too_long(server):
    refused(server, {**PLAIN, "prompt": [5] * 1001}, kind="exceed_context_size_error")
    refused(server, {**PLAIN, "prompt": "x" * 100000}, kind="exceed_context_size_error")
    refused(server, {**PLAIN, "prompt": ["x" * 100000, 5]}, kind="exceed_context_size_error")


def test_errors_of_paths(server):
    assert server.get("/completion").json()["error"]["code"] == 405
    refused(server, "[1", "/completion")
    refused(server, {}, "/props", kind="not_supported_error")


def test_without_markers_there_is_no_infill(server):
    error = refused(server, {"input_prefix": "a", "input_suffix": "b"}, "/infill", kind="not_supported_error")
    assert "prefix marker" in error["message"]


@pytest.fixture(scope="module")
def filler(tmp_path_factory):
    """A server whose vocabulary says that some of its tokens are the markers."""
    from conftest import Server
    keys = {f"tokenizer.ggml.fim_{name}_token_id": 20 + i for i, name in enumerate(("pre", "suf", "mid", "rep", "sep"))}
    source = pathlib.Path(MODEL)
    if source.stat().st_size > 100 << 20:
        pytest.skip("a copy of the model would be large")
    path = add_u32(source, tmp_path_factory.mktemp("infill") / "model.gguf", keys)
    server = Server("-c", 512, "-np", 2, model=str(path))
    yield server
    assert server.stop() == 0


def test_infill(filler):
    ids = lambda text: ids_of(filler, text, False)
    begin = ids_of(filler, "")
    fields = {"n_predict": 5, "temperature": 0, "ignore_eos": True, "return_tokens": True}
    ask_for = {"input_prefix": "def f(x):\n", "input_suffix": "    return y\n", "prompt": "    y = ", **fields}
    reply = filler.post("/infill", ask_for).json()
    tail = [20, *ids("def f(x):\n"), *ids("    y = "), 21, *ids("    return y\n"), 22]
    want = [*begin, 23, *ids("myproject\n"), 24, *ids("filename\n"), *tail]
    same = filler.post("/completion", {"prompt": want, **fields}).json()
    assert reply["tokens_evaluated"] == len(want) and reply["tokens"] == same["tokens"] and reply["prompt"] == same["prompt"]

    extra = [{"filename": "a.py", "text": "A = 1\n"}, {"text": "<s>"}]
    reply = filler.post("/infill", {**ask_for, "input_extra": extra}).json()
    want = [*begin, 23, *ids("myproject\n"), 24, *ids("a.py\n"), *ids("A = 1\n"), 24, *ids("tmp\n"), *ids("<s>"), 24, *ids("filename\n"), *tail]
    assert reply["prompt"] == filler.post("/detokenize", {"tokens": want}).json()["content"] and reply["tokens_evaluated"] == len(want)

    pieces = filler.stream(ask_for, "/infill")
    assert "".join(piece["content"] for piece in pieces) == same["content"]
    parts = filler.post("/infill", {**ask_for, "input_prefix": ["def f(x):\n"], "input_suffix": ids("    return y\n")}).json()
    assert parts["tokens"] == same["tokens"]


@pytest.mark.parametrize("change", [
    {"input_prefix": None}, {"input_suffix": None}, {"input_suffix": 5}, {"input_prefix": [-1]}, {"prompt": ["x"]}, {"input_extra": {}},
    {"input_extra": [{}]}, {"input_extra": [{"filename": "ok"}]}, {"input_extra": [{"filename": 1, "text": "x"}]},
    {"input_extra": [{"filename": 123, "text": 456}]}, {"input_extra": ["x"]}, {"input_extra": [{"text": "x"}] * 1025}])
def test_bad_infill(filler, change):
    assert refused(filler, {"input_prefix": "a", "input_suffix": "b", "n_predict": 1, **change}, "/infill")["param"] == next(iter(change))


def test_long_infill_is_refused(filler):
    refused(filler, {"input_prefix": "a b " * 5000, "input_suffix": "b"}, "/infill", kind="exceed_context_size_error")


def test_props(server):
    props = server.get("/props").json()
    assert props["total_slots"] == 8 and props["default_generation_settings"]["n_ctx"] == 1000
    assert props["build_info"].startswith("cohort-") and isinstance(props["chat_template"], str)
    assert props["bos_token"] == server.get("/tokenizer_info").json()["bos_token"]


def test_every_route_asks_for_the_key(start):
    server = start("--api-key", "s3cret", "-c", 128, "-np", 1)
    routes = [("GET", path) for path in ("/props", "/slots", "/tokenizer_info", "/models")]
    routes += [("POST", path) for path in ("/completion", "/completions", "/infill", "/tokenize", "/detokenize", "/apply-template", "/props",
                                           "/v1/embeddings", "/embedding", "/embeddings")]
    for method, path in routes:
        for headers in ({}, {"Authorization": "Bearer s3cre"}):
            reply = httpx.request(method, server.url + path, headers=headers, json={} if method == "POST" else None)
            assert reply.status_code == 401 and "code" in reply.json()["error"], (method, path)
        reply = httpx.request(method, server.url + path, headers={"Authorization": "Bearer s3cret"}, json={} if method == "POST" else None)
        assert reply.status_code in (200, 400), (method, path)


def test_sampling_by_its_names_here(server):
    first = ask(server, return_tokens=True)
    greedy, text = first["tokens"][0], first["content"]
    assert ask(server, temperature=2, samplers=["top_k"], top_k=1)["content"] == text
    assert ask(server, temperature=2, samplers="k", top_k=1)["generation_settings"]["samplers"] == ["top_k"]
    for bias in ([[greedy, False]], {str(greedy): False}, [[greedy, -100]]):
        assert ask(server, logit_bias=bias, return_tokens=True)["tokens"][0] != greedy
    settings = ask(server, repeat_penalty=1.3, repeat_last_n=10, mirostat=2, mirostat_tau=3, dry_multiplier=0.5, seed=7,
                   dry_sequence_breakers=["x"], xtc_probability=0.5, typical_p=0.9, top_n_sigma=-1)["generation_settings"]
    assert (round(settings["repeat_penalty"], 6), settings["repeat_last_n"], settings["mirostat"], settings["mirostat_tau"]) == (1.3, 10, 2, 3)
    assert settings["dry_sequence_breakers"] == ["x"] and settings["seed"] == 7 and settings["top_n_sigma"] == -1
    assert ask(server)["generation_settings"]["repeat_last_n"] == 64
    drawn = [server.post("/completion", {"prompt": PROMPT, "n_predict": 12, "seed": 5}).json()["content"] for _ in range(2)]
    assert drawn[0] == drawn[1]


def test_slots_tell_nobodys_prompt(start):
    server = start("-c", 2000, "-np", 2, *SLOW)
    assert [slot["is_processing"] for slot in server.get("/slots").json()] == [False, False]
    assert server.get("/slots?fail_on_no_slot=1").status_code == 200
    open_ = []
    for i in range(2):
        stream = httpx.stream("POST", server.url + "/completion", json={**PLAIN, "prompt": f"secret {i}", "n_predict": 1900, "stream": True})
        open_.append((stream, stream.__enter__()))
    server.until("cohort_rows_running", 2)
    slots = server.get("/slots")
    assert [slot["is_processing"] for slot in slots.json()] == [True, True] and "secret" not in slots.text
    assert slots.json()[1]["id"] == 1 and slots.json()[1]["n_ctx"] == 2000
    full = server.get("/slots?fail_on_no_slot=1")
    assert full.status_code == 503 and full.json()["error"]["type"] == "unavailable_error"
    assert server.get("/slots").status_code == 200
    for stream, _ in open_:
        stream.__exit__(None, None, None)
    server.wait_idle()


def test_a_stored_completion_is_told_again(start, tmp_path):
    server = start("-c", 500, "-np", 2, "--state-dir", tmp_path)
    reply = server.post("/completion", {**PLAIN, "store": True, "n_probs": 1, "return_tokens": True})
    again = server.get(f"/v1/streams/{reply.headers['X-Cohort-Stream-Id']}?result=1")
    assert again.content == reply.content and reply.json()["content"] == ask(server)["content"]
    stream = server.post("/completion", {**PLAIN, "store": True, "stream": True})
    again = server.get("/v1/streams/" + stream.headers["X-Cohort-Stream-Id"])
    assert again.text == stream.text and "[DONE]" not in stream.text
