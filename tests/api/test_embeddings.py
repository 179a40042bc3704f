"""Embeddings in OpenAI's shape and llama-server's: order, norms, formats, dimensions, company, refusals."""
import base64
import concurrent.futures
import math
import struct

import pytest

TEXTS = ["Hello world", "The capital of France is", "a", "x y z " * 40]


def embed(server, status=200, path="/v1/embeddings", **fields):
    reply = server.post(path, {"model": "m", "input": TEXTS[0], **fields})
    assert reply.status_code == status, reply.text
    return reply.json()


def vector(server, text, **fields):
    return embed(server, input=text, **fields)["data"][0]["embedding"]


def norm(values):
    return math.sqrt(sum(v * v for v in values))


def test_openai_client(server):
    client = server.client()
    reply = client.embeddings.create(model="any", input=TEXTS, encoding_format="float")
    # Left out, the client asks for base64 and makes floats of it; strict, it looks at the strings before that.
    coded = client.with_options(_extra_kwargs={"_strict_response_validation": False}).embeddings.create(model="any", input=TEXTS)
    assert all(math.isclose(a, b, rel_tol=1e-7) for one, other in zip(reply.data, coded.data) for a, b in zip(one.embedding, other.embedding))
    assert reply.object == "list" and [item.index for item in reply.data] == [0, 1, 2, 3]
    count = sum(server.post("/tokenize", {"prompt": text}).json()["count"] for text in TEXTS)
    assert reply.usage.prompt_tokens == reply.usage.total_tokens == count
    for item, text in zip(reply.data, TEXTS):
        assert item.object == "embedding" and item.embedding == vector(server, text)
        assert abs(norm(item.embedding) - 1) < 1e-6


def test_formats_agree(server):
    floats = vector(server, TEXTS[1])
    for dimensions in (len(floats), 1, 2, 3):
        want = vector(server, TEXTS[1], dimensions=dimensions)
        coded = base64.b64decode(vector(server, TEXTS[1], encoding_format="base64", dimensions=dimensions), validate=True)
        assert len(coded) == 4 * dimensions and list(struct.unpack(f"<{dimensions}f", coded)) == [struct.unpack("<f", struct.pack("<f", v))[0] for v in want]
    assert vector(server, TEXTS[1], encoding_format="float") == floats


def test_dimensions_and_norm(server):
    raw = vector(server, TEXTS[1], normalize=False)
    assert abs(norm(raw) - 1) > 1e-3
    for n in (len(raw), 5):
        cut = vector(server, TEXTS[1], dimensions=n)
        length = norm(raw[:n])
        assert len(cut) == n and all(math.isclose(a, b / length, rel_tol=3e-7, abs_tol=1e-12) for a, b in zip(cut, raw))
        assert vector(server, TEXTS[1], dimensions=n, normalize=False) == raw[:n]


def test_poolings(server):
    ids = server.post("/tokenize", {"prompt": TEXTS[1]}).json()["tokens"]
    last, first, mean = (vector(server, ids, pooling=kind, normalize=False) for kind in ("last", "cls", "mean"))
    assert last != first != mean and vector(server, ids, normalize=False) in (last, first, mean)
    assert first == vector(server, ids[:1], pooling="last", normalize=False)
    each = [vector(server, ids[:i + 1], pooling="last", normalize=False) for i in range(len(ids))]
    assert all(math.isclose(sum(column) / len(ids), m, rel_tol=1e-5, abs_tol=1e-6) for column, m in zip(zip(*each), mean))


def test_ids_and_text_are_the_same(server):
    ids = [server.post("/tokenize", {"prompt": text}).json()["tokens"] for text in TEXTS]
    assert embed(server, input=ids)["data"] == embed(server, input=TEXTS)["data"]
    assert vector(server, ids[0]) == vector(server, TEXTS[0])


def test_company_changes_nothing(server):
    alone = [vector(server, text, cache_prompt=False) for text in TEXTS]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        busy = [pool.submit(server.complete, f"Count {i}", 40) for i in range(3)]
        many = [pool.submit(embed, server, input=TEXTS[::-1]) for _ in range(5)]
        for job in many:
            assert [item["embedding"] for item in job.result()["data"]] == alone[::-1]
        texts = [job.result()["choices"][0]["text"] for job in busy]
    assert texts == [server.complete(f"Count {i}", 40)["choices"][0]["text"] for i in range(3)]


def test_llama_shapes(server):
    for path in ("/embedding", "/embeddings"):
        reply = server.post(path, {"content": TEXTS[0]}).json()
        assert reply == [{"index": 0, "embedding": [vector(server, TEXTS[0])]}]
    reply = server.post("/embedding", {"input": TEXTS, "embd_normalize": -1}).json()
    assert [item["embedding"][0] for item in reply] == [vector(server, text, normalize=False) for text in TEXTS]


@pytest.mark.parametrize("field, value, named", [
    ("input", None, "input"), ("input", "", "input"), ("input", [], "input"), ("input", [""], "input[0]"), ("input", ["a", ""], "input[1]"),
    ("input", [[]], "input[0]"), ("input", 5, "input"), ("input", {}, "input"), ("input", [-1], "input"), ("input", [1, 2**31], "input"),
    ("input", [[1], [1.5]], "input[1]"), ("input", [1, "a"], "input"), ("input", ["a", 1], "input[1]"), ("input", ["a"] * 129, "input"),
    ("encoding_format", "hex", "encoding_format"), ("encoding_format", 1, "encoding_format"), ("dimensions", 0, "dimensions"),
    ("dimensions", 10**6, "dimensions"), ("dimensions", "5", "dimensions"), ("pooling", "none", "pooling"), ("pooling", 1, "pooling"),
    ("normalize", "no", "normalize"), ("embd_normalize", 0, "embd_normalize"), ("stream", True, "stream"), ("store", True, "store"),
    ("model", 5, "model"), ("priority", 1000, "priority")])
def test_refusals(server, field, value, named):
    for path in ("/v1/embeddings", "/embedding"):
        error = embed(server, 400, path, **{field: value})["error"]
        assert error["param"] == named, error


def test_too_long(server):
    for value in ("x " * 50000, [5] * 1001, ["a", "x " * 50000]):
        assert embed(server, 400, input=value)["error"]["code"] == "context_length_exceeded"
    assert embed(server, 400, "/embedding", input=[5] * 1001)["error"]["type"] == "exceed_context_size_error"


def test_null_is_absent_and_unknown_is_named(server):
    reply = server.post("/v1/embeddings", {"input": "a", "dimensions": None, "encoding_format": None, "user": "me", "odd": 1})
    assert reply.status_code == 200 and reply.headers["X-Cohort-Unknown-Fields"] == "odd"


def test_more_inputs_than_rows(start):
    server = start("-c", 128, "-np", 2, "--queue", 30)
    texts = [f"text number {i}" for i in range(12)]
    assert [item["embedding"] for item in embed(server, input=texts)["data"]] == [vector(server, text) for text in texts]
