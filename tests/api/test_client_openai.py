"""The official client with strict validation, over every field: streamed and not, alone and eight at once.

Two answers are as OpenAI gives them and not as its published schema says, so the strict client takes neither: the finish_reason of a legacy stream is
null until the last event, and echoed log-probabilities begin with null.
"""
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

from conftest import TIMEOUT_S

MODEL = "any"
EXTRA = {"ignore_eos": True, "cache_prompt": False}
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Say hello."}]}]

# As arguments, and as what the client hands on untouched.
SAMPLING = [
    ({"temperature": 0}, {}), ({"temperature": 1.5, "seed": 1, "top_p": 0.9}, {}), ({"temperature": 1.3, "seed": 2, "n": 3}, {}),
    ({"temperature": 1, "seed": 3, "frequency_penalty": 1.5, "presence_penalty": -0.5}, {}), ({"temperature": 1, "seed": 4, "logit_bias": {"77": 5, "5": -100}}, {}),
    ({"temperature": 0, "stop": ["e", "]"]}, {}), ({"temperature": 0, "user": "me"}, {}),
    ({"temperature": 1.4, "seed": 5}, {"top_k": 20, "min_p": 0.05, "typical_p": 0.9, "top_n_sigma": 2, "min_keep": 2}),
    ({"temperature": 1.4, "seed": 6}, {"xtc_probability": 0.5, "xtc_threshold": 0.05, "dynatemp_range": 0.5, "dynatemp_exponent": 1.5}),
    ({"temperature": 1.4, "seed": 7}, {"repeat_penalty": 1.2, "repeat_last_n": 16, "penalty_last_n": -1}),
    ({"temperature": 1.4, "seed": 8}, {"dry_multiplier": 0.8, "dry_base": 1.75, "dry_allowed_length": 2, "dry_penalty_last_n": -1, "dry_sequence_breakers": ["\n"]}),
    ({"temperature": 1.4, "seed": 9}, {"mirostat": 1, "mirostat_tau": 4, "mirostat_eta": 0.2}), ({"temperature": 1.4, "seed": 10}, {"mirostat": 2}),
    ({"temperature": 1.4, "seed": 11}, {"samplers": ["top_k", "temperature", "min_p"], "top_k": 9, "min_p": 0.1}),
    ({"temperature": 1.4, "seed": 12}, {"bad_words": ["a", "the"], "allowed_token_ids": list(range(5, 200)), "min_tokens": 3}),
    ({"temperature": 0}, {"stop_token_ids": [7], "include_stop_str_in_output": True, "return_token_ids": True, "skip_special_tokens": True}),
    ({"temperature": 1, "seed": 13}, {"post_sampling_probs": True, "priority": 1, "timeout_ms": 60000}),
]
ALONE = [{}, {"best_of": 3}, {"echo": True}, {"logprobs": 0}, {"logprobs": 3}, {"suffix": ""}, {"prompt": ["Hello", "World"]},
         {"prompt": [5, 17, 3]}, {"prompt": [[5, 17], [3]], "n": 2}, {"echo": True, "max_tokens": 0}, {"max_tokens": 1}]
CHATS = [{}, {"logprobs": True}, {"logprobs": True, "top_logprobs": 3, "n": 2}, {"max_completion_tokens": 3}, {"response_format": {"type": "text"}},
         {"tools": [], "tool_choice": "none", "parallel_tool_calls": True}, {"reasoning_effort": "none", "verbosity": "medium", "modalities": ["text"]},
         {"metadata": {"a": "b"}, "store": False, "service_tier": "auto", "safety_identifier": "x", "prompt_cache_key": "y"},
         {"prediction": {"type": "content", "content": "Hello"}}]
COMPLETION_CASES = [({"seed": 1, "temperature": 1.1, **fields}, {}) for fields in ALONE] + SAMPLING
CHAT_CASES = [({"seed": 1, "temperature": 1.1, **fields}, {}) for fields in CHATS] + SAMPLING


@pytest.fixture(scope="module")
def client(server):
    strict = server.client()
    strict.loose = openai.OpenAI(base_url=strict.base_url, api_key="none", max_retries=0, timeout=TIMEOUT_S)
    return strict


def complete(client, fields, extra, **more):
    return (client.loose if more.get("stream") else client).completions.create(**{"model": MODEL, "prompt": "Hello there", "max_tokens": 8, **fields, "extra_body": {**EXTRA, **extra}, **more})


def chat(client, fields, extra, **more):
    limit = {} if "max_completion_tokens" in fields else {"max_tokens": 8}
    return client.chat.completions.create(**{"model": MODEL, "messages": MESSAGES, **limit, **fields, "extra_body": {**EXTRA, **extra}, **more})


def gist(reply):
    """What a reply says, whole or as the pieces of a stream."""
    if hasattr(reply, "choices"):
        assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens
        texts = [choice.text if hasattr(choice, "text") else choice.message.content for choice in reply.choices]
        return texts, [choice.finish_reason for choice in reply.choices], reply.usage
    pieces = list(reply)
    assert pieces[-1].choices == [] and all(piece.usage is None for piece in pieces[:-1])
    texts, finishes = {}, {}
    for piece in pieces[:-1]:
        for choice in piece.choices:
            text = choice.text if hasattr(choice, "text") else choice.delta.content or ""
            texts[choice.index] = texts.get(choice.index, "") + text
            assert finishes.get(choice.index) is None
            finishes[choice.index] = choice.finish_reason
    return [texts[i] for i in sorted(texts)], [finishes[i] for i in sorted(finishes)], pieces[-1].usage


def jobs(call, cases, streams):
    return [(call, fields, extra, more) for fields, extra in cases for more in streams if not (more and fields.get("best_of"))]


STREAM = {"stream": True, "stream_options": {"include_usage": True}}
JOBS = [*jobs(complete, COMPLETION_CASES, ({}, STREAM)), *jobs(chat, CHAT_CASES, ({}, STREAM))]


def run(client, job):
    call, fields, extra, more = job
    return gist(call(client, fields, extra, **more))


def test_every_field_streamed_and_not_alone_and_eight_at_once(client):
    alone = [run(client, job) for job in JOBS]
    for job, reply in zip(JOBS, alone):
        call, fields, extra, more = job
        if more:
            assert reply == alone[JOBS.index((call, fields, extra, {}))], job
    with ThreadPoolExecutor(8) as pool:
        for job, reply, before in zip(JOBS, pool.map(lambda job: run(client, job), JOBS), alone):
            assert reply == before, job


def test_log_probabilities(client):
    fields = {"temperature": 0, "logprobs": 2}
    legacy = complete(client, fields, {}).choices[0].logprobs
    pieces = [choice.logprobs for piece in complete(client, fields, {}, stream=True) for choice in piece.choices if choice.logprobs]
    for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        assert sum((getattr(piece, name) for piece in pieces), []) == getattr(legacy, name)
    fields = {"temperature": 0, "logprobs": True, "top_logprobs": 2}
    content = chat(client, fields, {}).choices[0].logprobs.content
    pieces = [choice.logprobs.content for piece in chat(client, fields, {}, stream=True) for choice in piece.choices if choice.logprobs]
    assert sum(pieces, []) == content and len(content) == 8


def test_echoed_log_probabilities_begin_with_null(client):
    """As OpenAI's own do, though the published schema has no null there: the strict client would not take it."""
    raw = client.completions.with_raw_response.create(model=MODEL, prompt="Hello", max_tokens=1, echo=True, logprobs=1, temperature=0, extra_body=EXTRA)
    logprobs = raw.http_response.json()["choices"][0]["logprobs"]
    assert logprobs["token_logprobs"][0] is None and logprobs["top_logprobs"][0] is None
    with pytest.raises(openai.APIResponseValidationError):
        raw.parse()


@pytest.mark.parametrize("fields", [
    {"tools": [{"type": "custom", "custom": {"name": "f"}}]}, {"response_format": {"type": "yaml"}}, {"reasoning_effort": "high"},
    {"audio": {"voice": "alloy", "format": "wav"}}, {"temperature": -1}, {"top_logprobs": 3}, {"messages": []},
    {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]}], ids=lambda v: str(v)[:40])
def test_refusals_are_bad_requests(client, fields):
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, fields, {})
    assert caught.value.param.split("[")[0] == next(iter(fields)) and caught.value.type == "invalid_request_error"


def test_suffix_is_refused(client):
    with pytest.raises(openai.BadRequestError) as caught:
        complete(client, {"suffix": "end"}, {})
    assert caught.value.param == "suffix"
