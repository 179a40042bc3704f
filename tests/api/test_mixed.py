"""Sixteen at once with different samplers, seeds, amounts of log-probabilities and n: each is what it is alone, text and numbers, in 20 rounds."""
import json
import random
import threading

import httpx

from conftest import BINARY, TINY
from rounds import prompt_of

ROUNDS = 20 if TINY and "asan" not in BINARY else 2  # a sanitized program is slow
TOKENS = 24
SAMPLERS = [
    {"temperature": 0}, {"temperature": 0.7, "top_k": 20}, {"temperature": 1.3, "top_p": 0.8}, {"temperature": 1, "min_p": 0.1},
    {"temperature": 1, "typical_p": 0.7}, {"temperature": 1.5, "top_n_sigma": 1.0},
    {"temperature": 1, "xtc_probability": 0.7, "xtc_threshold": 0.05}, {"temperature": 0.9, "mirostat": 1, "mirostat_tau": 4.0},
    {"temperature": 0.9, "mirostat": 2, "mirostat_eta": 0.2}, {"temperature": 0, "repetition_penalty": 1.3, "repeat_last_n": 16},
    {"temperature": 0.8, "frequency_penalty": 0.7, "presence_penalty": 0.4}, {"temperature": 0.6, "dry_multiplier": 0.9, "dry_allowed_length": 1},
    {"temperature": 1, "dynatemp_range": 0.5}, {"temperature": 1, "logit_bias": {"7": 5, "9": -100}}, {"temperature": 2, "allowed_token_ids": list(range(5, 90, 3))},
    {"temperature": 1, "samplers": ["temperature", "top_p", "top_k"], "top_p": 0.9, "top_k": 30, "min_tokens": 4, "bad_words": ["time", "a"]},
]


def body_of(rng, i):
    chat = i % 3 == 2
    body = {**SAMPLERS[i], "max_tokens": rng.randrange(1, TOKENS), "seed": rng.randrange(1 << 40), "n": rng.choice([1, 1, 2, 3])}
    body["max_tokens"] = max(body["max_tokens"], body.get("min_tokens", 1))
    if rng.random() < 0.3:
        body["stop"] = rng.sample([" a", "e", "th", "\n"], 2)
    text = prompt_of(rng, rng.randrange(1, 120))
    amount = rng.choice([None, 0, 1, 5, 20])
    if chat:
        body["messages"] = [{"role": "user", "content": text}]
        if amount is not None:
            body.update(logprobs=True, top_logprobs=amount)
        return "/v1/chat/completions", body
    if amount is not None:
        body["logprobs"] = amount
    if rng.random() < 0.2:
        body["echo"] = True
    elif rng.random() < 0.2:
        body["best_of"] = body["n"] + 1
    return "/v1/completions", {**body, "prompt": text}


def ask(url, path, body):
    """All that the request alone decides. What was cached depends on who came before."""
    reply = httpx.post(url + path, json=body, timeout=600)
    assert reply.status_code == 200, (path, body, reply.text)
    said = reply.json()
    usage = {name: said["usage"][name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")}
    return json.dumps([said["choices"], usage])


def test_each_equals_its_solo_run(start):
    server = start("-c", 2000, "-np", 16, "--queue", 128, "-b", 64, "-t", 2)
    for number in range(ROUNDS):
        rng = random.Random(number)
        asked = [body_of(rng, i) for i in range(16)]
        alone = [ask(server.url, *each) for each in asked]
        together = [None] * 16

        def client(i):
            together[i] = ask(server.url, *asked[i])

        threads = [threading.Thread(target=client, args=(i,)) for i in rng.sample(range(16), 16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for i in range(16):
            assert together[i] == alone[i], (number, asked[i])
    server.wait_idle()
