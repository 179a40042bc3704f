"""/v1/responses with the official client, its strict validation on: streamed and not, alone and eight at once."""
import threading

import openai
import pytest

ASK = {"model": "m", "input": "Once upon a time", "max_output_tokens": 16, "temperature": 0, "extra_body": {"ignore_eos": True}}
CASES = [
    {},
    {"instructions": "Be brief."},
    {"input": [{"role": "user", "content": [{"type": "input_text", "text": "Once"}, {"type": "input_text", "text": " upon"}]}]},
    {"input": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Well?"}, {"role": "user", "content": "So"}]},
    {"include": ["message.output_text.logprobs"], "top_logprobs": 3},
    {"metadata": {"a": "b"}, "parallel_tool_calls": False, "tool_choice": "none", "text": {"format": {"type": "text"}}, "truncation": "disabled"},
    {"temperature": 1.0, "top_p": 0.9, "extra_body": {"seed": 11, "top_k": 30}},
    {"extra_body": {"stop": ["e", "a"]}},
]


def content(response):
    assert response.object == "response" and response.output[0].content[0].text == response.output_text
    return response.output_text, response.status, response.output[0].content[0].logprobs


def plain(client, case):
    return content(client.responses.create(**{**ASK, **case}))


def streamed(client, case):
    events = list(client.responses.create(**{**ASK, **case}, stream=True))
    assert events[0].type == "response.created" and events[-1].type in ("response.completed", "response.incomplete")
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == events[-1].response.output_text
    return content(events[-1].response)


def check(client):
    alone = [plain(client, case) for case in CASES]
    assert [streamed(client, case) for case in CASES] == alone
    results = {}
    threads = [threading.Thread(target=lambda i=i: results.update({i: (plain if i % 2 else streamed)(client, CASES[i])})) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [results[i] for i in range(8)] == alone


def test_every_case_streamed_and_not_alone_and_at_once(server):
    check(server.client())


def test_what_is_kept(start, tmp_path):
    server = start("-c", 1000, "-np", 8, "--queue", 64, "--state-dir", tmp_path)
    client = server.client()
    check(client)
    first = client.responses.create(**ASK)
    second = client.responses.create(**{**ASK, "input": "And?"}, previous_response_id=first.id)
    assert client.responses.retrieve(second.id) == second and second.previous_response_id == first.id
    assert [item.role for item in client.responses.input_items.list(second.id, order="asc", limit=1)] == ["user", "assistant", "user"]  # pages
    assert client.responses.input_tokens.count(model="m", input="And?", previous_response_id=first.id).input_tokens == second.usage.input_tokens
    events = list(client.responses.retrieve(second.id, stream=True))
    assert list(client.responses.retrieve(second.id, stream=True, starting_after=3)) == events[4:]
    begun = client.responses.create(**{**ASK, "max_output_tokens": 800}, background=True)
    assert begun.status == "queued" and client.responses.cancel(begun.id).status in ("cancelled", "incomplete")
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)
    with pytest.raises(openai.BadRequestError):
        client.responses.create(**ASK, previous_response_id=first.id)
    with pytest.raises(openai.BadRequestError):
        client.responses.create(**ASK, tools=[{"type": "web_search"}])
