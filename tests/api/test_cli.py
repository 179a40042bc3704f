"""The program's other commands."""
import json
import math
import subprocess

import pytest

from conftest import BINARY, MODEL


def cohort(*words, code=0, stdin=None):
    done = subprocess.run([BINARY, *map(str, words)], capture_output=True, text=True, timeout=600, input=stdin)
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done.stdout if code == 0 else done.stderr


def test_help_names_every_command():
    text = cohort("--help")
    for command in ("serve", "top", "run", "bench", "perplexity", "score", "embed", "tokenize", "inspect", "cache", "pull"):
        assert command in text
        assert command in cohort(command, "--help")


def test_run_prints_only_the_completion(server):
    out = cohort("run", "-m", MODEL, "-p", "The capital of France is", "-n", 8, "--temp", 0, "--ignore-eos")
    assert out == server.complete("The capital of France is", 8)["choices"][0]["text"]


def test_run_with_a_seed_repeats():
    words = ("run", "-m", MODEL, "-p", "Once", "-n", 12, "--temp", 1.2, "--seed", 5)
    assert cohort(*words) == cohort(*words)


def test_score():
    result = json.loads(cohort("score", "-m", MODEL, "--ids", "5,17,3,44", "--json"))
    assert len(result["argmax"]) == 4 and len(result["logprobs"]) == 3 and all(p < 0 for p in result["logprobs"])


def test_embed():
    def embed(*words):
        return json.loads(cohort("embed", "-m", MODEL, "-p", "Hello world", "--json", *words))

    mean, cls, last = (embed("--pooling", kind)["embedding"] for kind in ("mean", "cls", "last"))
    assert embed()["pooling"] == "mean" and embed()["embedding"] == mean and mean != last != cls
    for vector in (mean, cls, last):
        assert math.isclose(sum(x * x for x in vector), 1, rel_tol=1e-5)
    raw = embed("--normalize", -1, "--pooling", "last", "--cpu", "ref", "-b", 1)["embedding"]
    length = math.sqrt(sum(x * x for x in raw))
    assert all(math.isclose(x / length, y, rel_tol=1e-6, abs_tol=1e-12) for x, y in zip(raw, last))
    assert cohort("embed", "-m", MODEL, "-f", "-", stdin="Hello world").split() == [f"{x:.9g}" for x in mean]


FORMS = [(), ("-ctk", "q8_0", "-ctv", "q8_0"), ("-ctk", "q4_0", "-ctv", "q4_0"), ("-ctv", "q4_0", "--cache-quant-after", 32),
         ("--cache-type-layers", "0-1=q8_0/q4_0")]


@pytest.mark.parametrize("forms", FORMS, ids=lambda f: " ".join(map(str, f)))
def test_levels_agree(forms):
    words = ("score", "-m", MODEL, "--ids", ",".join(str(5 + i * 7 % 500) for i in range(40)), "--json", *forms)
    assert cohort(*words, "--cpu", "ref", "-t", 2) == cohort(*words, "-t", 1) == cohort(*words, "-t", 3, "-b", 7)


def test_tokenize_and_inspect():
    ids = json.loads(cohort("tokenize", "-m", MODEL, "-p", "Hello world", "--json"))
    assert len(ids) >= 2 and all(isinstance(i, int) for i in ids)
    assert json.loads(cohort("tokenize", "-m", MODEL, "--json", stdin="Hello world")) == ids
    report = json.loads(cohort("inspect", MODEL, "--json"))
    assert report
    assert "general.architecture" in cohort("inspect", MODEL)


def test_bench_lines():
    lines = [json.loads(line) for line in cohort("bench", "-m", MODEL, "-p", 64, "-n", 4, "--rows", "1,2", "-r", 1, "--json").splitlines()]
    assert [(line["test"], line["rows"]) for line in lines] == [("prompt", 1), ("decode", 1), ("decode", 2)]
    assert all(line["tokens_per_s"] > 0 for line in lines)


def test_perplexity(tmp_path):
    text = tmp_path / "text"
    text.write_text("The quick brown fox jumps over the lazy dog. " * 40)
    last = cohort("perplexity", "-m", MODEL, "-f", text, "-c", 64).splitlines()[-1].split()
    assert last[:2] == ["PPL", "="] and last[3] == "+/-" and math.isfinite(float(last[2])) and float(last[4]) > 0
    said = json.loads(cohort("perplexity", "-m", MODEL, "-f", text, "-c", 64, "-j"))
    assert len(said["nll"]) == said["windows"] > 2 and said["tokens"] == 32 * said["windows"] - said["windows"]
    assert math.isclose(math.exp(sum(said["nll"]) / said["tokens"]), said["ppl"], rel_tol=1e-6)


def test_cache(tmp_path):
    """What `run` stores is found again by the next one, listed, verified and removed."""
    where = ("--state-dir", tmp_path / "state")
    words = ("run", "-m", MODEL, "-p", "One two three four five. " * 40, "-n", 8, "--temp", 0, "--ignore-eos")
    assert cohort(*words) == cohort(*words, *where) == cohort(*words, *where) == cohort(*words, "--no-cache")
    listed = json.loads(cohort("cache", "ls", "-j", *where))
    assert listed["format"] == 1 and listed["blocks"] >= 4 and listed["bad"] == 0
    assert listed["sequences_n"] == len(listed["sequences"]) >= 1
    sequence = listed["sequences"][0]
    assert sequence["tokens"] > 128 and sequence["bytes"] > 0 and sequence["sessions"] == []
    assert str(sequence["id"]) in cohort("cache", "ls", *where)
    assert cohort("cache", "verify", *where) == f"{listed['blocks']} blocks, 0 bad\n"
    segment = tmp_path / "state" / "pages-0-0.seg"
    content = bytearray(segment.read_bytes())
    content[4096 + 100] ^= 4
    segment.write_bytes(content)
    assert "checksum does not hold" in cohort("cache", "verify", *where, code=1)
    assert cohort(*words, *where) == cohort(*words)
    cohort("cache", "verify", "--repair", *where)
    assert cohort("cache", "verify", *where).endswith(" 0 bad\n")
    assert cohort("cache", "rm", "--unused", 3600, *where) == "0 blocks removed\n"
    cohort("cache", "rm", "all", *where)
    assert json.loads(cohort("cache", "ls", "-j", *where))["blocks"] == 0
    assert "there is no stored sequence" in cohort("cache", "rm", 5, *where, code=1)
    assert "one of them" in cohort("cache", "rm", *where, code=1)


@pytest.mark.parametrize("words,says", [
    (("serve", "-np", 0), "-np"), (("serve", "--port", 99999), "--port"), (("serve", "--nonsense"), "--nonsense"),
    (("run", "-m", "/does/not/exist", "-p", "x"), "/does/not/exist"), (("run", "-m", "MODEL"), "prompt"),
    (("score", "-m", "MODEL", "--ids", "5,x"), "--ids"), (("score", "-m", "MODEL", "--ids", "99999999"), "99999999"),
    (("embed", "-m", "MODEL", "-p", "x", "--pooling", "rank"), "mean, cls and last"), (("embed", "-m", "MODEL"), "a text is missing"),
    (("inspect", "/etc/passwd"), "/etc/passwd"), (("run", "-m", "MODEL", "-p", "x", "--cpu", "z80"), "z80"),
    (("run", "-m", "MODEL", "-p", "x", "-ctk", "q5_1"), "f16, q8_0 and q4_0"),
    (("run", "-m", "MODEL", "-p", "x", "--cache-type-layers", "0-900=q8_0"), "layers 0 to"),
    (("run", "-m", "MODEL", "-p", "x", "--cache-type-layers", "0=q8_0/f32"), "\"f32\""),
    (("run", "-m", "MODEL", "-p", "x", "--cache-quant-after", 64), "nothing to quantise"),
    (("nonsense",), "nonsense"),
], ids=lambda v: " ".join(map(str, v)) if isinstance(v, tuple) else v)
def test_mistakes_are_one_line(words, says):
    done = subprocess.run([BINARY, *[MODEL if w == "MODEL" else str(w) for w in words]], capture_output=True, text=True, timeout=60)
    assert done.returncode in (1, 2)
    assert says in done.stderr and len(done.stderr.strip().splitlines()) == 1, done.stderr


def test_environment_sets_options():
    import os
    done = subprocess.run([BINARY, "serve", "-m", MODEL], capture_output=True, text=True, timeout=60, env={**os.environ, "COHORT_PORT": "x"})
    assert done.returncode == 2 and "COHORT_PORT" in done.stderr
