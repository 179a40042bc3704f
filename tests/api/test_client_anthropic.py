"""/v1/messages with the official client, its strict validation on: streamed and not, alone and eight at once."""
import threading

import anthropic
import pytest

from conftest import TIMEOUT_S

ASK = {"model": "m", "max_tokens": 16, "messages": [{"role": "user", "content": "Once upon a time"}],
       "extra_body": {"temperature": 0, "ignore_eos": True}}
CASES = [
    {},
    {"system": "Be brief."},
    {"system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "Once"}, {"type": "text", "text": " upon"}]}]},
    {"messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Well"}]},
    {"stop_sequences": ["e", "a"]},
    {"metadata": {"user_id": "u"}, "service_tier": "auto", "tool_choice": {"type": "none"}, "thinking": {"type": "disabled"}},
    {"extra_body": {"temperature": 1.0, "seed": 11, "top_p": 0.9, "top_k": 30}},
]


def make(server, **kw):
    return anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0, timeout=TIMEOUT_S, _strict_response_validation=True, **kw)


def plain(client, case):
    message = client.messages.create(**{**ASK, **case})
    assert message.type == "message" and message.role == "assistant" and len(message.content) == 1
    return message.content[0].text, message.stop_reason, message.stop_sequence, message.usage.output_tokens


def streamed(client, case):
    with client.messages.stream(**{**ASK, **case}) as stream:
        text = "".join(stream.text_stream)
        message = stream.get_final_message()
    assert message.content[0].text == text
    return text, message.stop_reason, message.stop_sequence, message.usage.output_tokens


def test_every_case_streamed_and_not_alone_and_at_once(server):
    client = make(server)
    alone = [plain(client, case) for case in CASES]
    assert [streamed(client, case) for case in CASES] == alone
    raw = list(client.messages.create(**ASK, stream=True))
    assert [raw[0].type, raw[1].type] == ["message_start", "content_block_start"] and raw[-1].type == "message_stop"
    results = {}
    threads = [threading.Thread(target=lambda i=i: results.update({i: (plain if i % 2 else streamed)(client, CASES[i])})) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [results[i] for i in range(8)] == alone


def test_tokens_are_counted(server):
    client = make(server)
    counted = client.messages.count_tokens(model="m", messages=ASK["messages"], system="Be brief.").input_tokens
    usage = client.messages.create(**{**ASK, "system": "Be brief."}).usage
    assert counted == usage.input_tokens + usage.cache_read_input_tokens


def test_errors_are_the_clients_own(server, start):
    client = make(server)
    with pytest.raises(anthropic.BadRequestError) as caught:
        client.messages.create(**{**ASK, "max_tokens": 0})
    assert caught.value.request_id and caught.value.body["error"]["type"] == "invalid_request_error"
    with pytest.raises(anthropic.BadRequestError):
        client.messages.create(**{**ASK, "tools": [{"type": "web_search_20250305", "name": "web_search"}]})
    locked = start("-c", 300, "--api-key", "sk-right")
    with pytest.raises(anthropic.AuthenticationError):
        make(locked).messages.create(**ASK)
