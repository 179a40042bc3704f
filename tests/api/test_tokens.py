"""The tokenizer for clients: /tokenize and /detokenize in both dialects, /tokenizer_info, /apply-template."""
import concurrent.futures

import pytest

TEXTS = ["Hello world", "  two  spaces ", "wörld 媽 🤗", "a\nb\tc", "nul\0inside", "1234567890", "def f(x):\n    return x\n", ""]
CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi <b>there</b>"}, {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": "Go on"}]


def post(server, path, body, status=200):
    reply = server.post(path, body)
    assert reply.status_code == status, reply.text
    return reply.json()


@pytest.mark.parametrize("text", TEXTS)
def test_round_trip(server, text):
    reply = post(server, "/tokenize", {"content": text})
    assert reply["count"] == len(reply["tokens"]) and reply["max_model_len"] == 1000 and reply["token_strs"] is None
    back = post(server, "/detokenize", {"tokens": reply["tokens"]})
    assert back["content"] == back["prompt"] == text


def test_both_dialects(server):
    llama, begun = (post(server, "/tokenize", {"content": "Hello", "add_special": begin})["tokens"] for begin in (False, True))
    assert post(server, "/tokenize", {"prompt": "Hello"})["tokens"] == begun
    assert post(server, "/tokenize", {"prompt": "Hello", "add_special_tokens": False})["tokens"] == llama
    begin = server.get("/tokenizer_info").json()
    assert (begun[1:] == llama) if begin["add_bos_token"] else (begun == llama)
    named = post(server, "/tokenize", {"prompt": "Hello", "return_token_strs": True, "add_special_tokens": False})["token_strs"]
    assert "".join(named).lstrip() == "Hello"


def test_pieces(server):
    text = "a 媽 🤗"
    tokens = post(server, "/tokenize", {"content": text, "with_pieces": True})["tokens"]
    joined = b"".join(bytes(t["piece"]) if isinstance(t["piece"], list) else t["piece"].encode() for t in tokens)
    assert joined.decode().lstrip() == text
    assert [t["id"] for t in tokens] == post(server, "/tokenize", {"content": text})["tokens"]
    for token in tokens:
        if isinstance(token["piece"], list):
            with pytest.raises(UnicodeDecodeError):
                bytes(token["piece"]).decode()


def test_special_tokens(server):
    marker = server.get("/tokenizer_info").json()["eos_token"]
    one, many = (post(server, "/tokenize", {"content": marker, "parse_special": special})["tokens"] for special in (True, False))
    assert len(one) == 1 and len(many) > 1
    assert post(server, "/detokenize", {"tokens": one})["content"] == marker == post(server, "/detokenize", {"tokens": many})["content"]


def test_strings_and_ids(server):
    text = post(server, "/tokenize", {"content": "ab"})["tokens"]
    assert post(server, "/tokenize", {"content": [5, "ab", 7, "ab"]})["tokens"] == [5, *text, 7, *text]


def test_a_cut_character_is_marked(server):
    tokens = post(server, "/tokenize", {"content": "x🤗"})["tokens"]
    assert post(server, "/detokenize", {"tokens": tokens[:-1]})["content"].startswith("x")


def test_templates(server):
    prompt = post(server, "/apply-template", {"messages": CHAT})["prompt"]
    assert "Hi <b>there</b>" in prompt and prompt.index("Be brief.") < prompt.index("Go on")
    chat = post(server, "/tokenize", {"messages": CHAT})["tokens"]
    assert post(server, "/tokenize", {"content": prompt, "add_special": True})["tokens"] == chat
    closed = post(server, "/apply-template", {"messages": CHAT, "add_generation_prompt": False})["prompt"]
    assert prompt.startswith(closed) and len(prompt) > len(closed)
    assert len(chat) == server.client().chat.completions.create(model="m", messages=CHAT, max_tokens=1).usage.prompt_tokens


@pytest.mark.parametrize("path, body, field", [
    ("/tokenize", {}, "content"), ("/tokenize", {"content": 5}, "content"), ("/tokenize", {"content": None}, "content"),
    ("/tokenize", {"content": "a", "prompt": "b"}, "content"), ("/tokenize", {"prompt": ["a"]}, "prompt"), ("/tokenize", {"content": [1, -1]}, "content"),
    ("/tokenize", {"content": [2**40]}, "content"), ("/tokenize", {"content": [[1]]}, "content"), ("/tokenize", {"content": "a", "add_special": 1}, "add_special"),
    ("/tokenize", {"content": "a", "with_pieces": "no"}, "with_pieces"), ("/tokenize", {"messages": []}, "messages"),
    ("/tokenize", {"messages": [{"role": "x", "content": ""}]}, "messages[0].role"), ("/tokenize", {"messages": CHAT, "add_special_tokens": True}, "add_special_tokens"),
    ("/tokenize", {"content": "x" * (2 << 20) + "y"}, "content"), ("/detokenize", {}, "tokens"), ("/detokenize", {"tokens": "1"}, "tokens"),
    ("/detokenize", {"tokens": [-1]}, "tokens"), ("/detokenize", {"tokens": [1.5]}, "tokens"), ("/detokenize", {"tokens": [2**31]}, "tokens"),
    ("/detokenize", {"tokens": [True]}, "tokens"), ("/apply-template", {}, "messages"), ("/apply-template", {"messages": "x"}, "messages"),
    ("/apply-template", {"messages": CHAT, "tools": [{}]}, "tools[0].type"), ("/apply-template", {"messages": CHAT, "chat_template": "x"}, "chat_template"),
    ("/tokenize", {"content": "a", "chat_template": "x"}, "chat_template")])
def test_refusals(server, path, body, field):
    error = post(server, path, body, 400)["error"]
    assert error["param"] == field and error["code"] == 400


def test_ids_at_the_border(server):
    n = server.get("/tokenizer_info").json()["vocab_size"]
    post(server, "/detokenize", {"tokens": [0, n - 1]})
    post(server, "/detokenize", {"tokens": [n]}, 400)


@pytest.mark.parametrize("body", ["", "[]", "{\"content\":\"a\\ud800\"}", "[" * 100000, b"{\"content\":\"\xff\"}"])
def test_bad_bodies(server, body):
    assert server.post("/tokenize", body).status_code == 400


def test_unknown_fields_are_named(server):
    reply = server.post("/tokenize", {"content": "a", "strange": 1, "model": "m"})
    assert reply.status_code == 200 and reply.headers["X-Cohort-Unknown-Fields"] == "strange"


def test_tokenizer_info_is_what_lm_eval_asks_for(server):
    info = server.get("/tokenizer_info").json()
    assert isinstance(info["eos_token"], str) and {"bos_token", "pad_token", "chat_template"} <= set(info)
    encoded = post(server, "/tokenize", {"prompt": info["eos_token"], "add_special_tokens": False})["tokens"]
    assert len(encoded) == 1
    assert post(server, "/detokenize", {"tokens": encoded})["prompt"] == info["eos_token"]


def test_long_texts_do_not_hold_the_loop(server):
    text, answered = "some words of a long text " * 20000, 0
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        jobs = [pool.submit(server.post, "/tokenize", {"content": text}) for _ in range(3)]
        while not all(job.done() for job in jobs):
            assert server.get("/health").status_code == 200
            answered += 1
        assert len({job.result().text for job in jobs}) == 1 and jobs[0].result().status_code == 200
    assert answered > 3  # on the loop, one answer might come behind each
