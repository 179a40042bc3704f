"""Random expressions against Python's `re`: what a compiled one lets through matches, and what it takes is what matches; alone and as a schema's
pattern. Through build/tests/unit/grammar_tool; no server."""
import json
import os
import random
import re

import pytest

import test_grammar_schemas
from test_grammar_schemas import TOOL, Tool

EXPRESSIONS = int(os.environ.get("COHORT_GRAMMAR_EXPRESSIONS", "600"))
PARTS = 4
ATOMS = [*"abcx1 ", "[a-c]", "[^a]", "\\d", "\\w", "[0-9a]", "\\s", "."]
QUANTIFIERS = ["*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}", "*?"]
LETTERS = "abcx1 9é\n"
SPACE = "\t-\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
LONG = 24  # characters that Python's backtracking has time for

pytestmark = pytest.mark.skipif(not TOOL.exists(), reason="grammar_tool is not built")
tool = test_grammar_schemas.tool


def choices(rng, depth):
    return "|".join(sequence(rng, depth) for _ in range(rng.choice([1, 1, 1, 2, 3])))


def sequence(rng, depth):
    return "".join(item(rng, depth) for _ in range(rng.randint(0 if rng.random() < 0.2 else 1, 4)))


def item(rng, depth):
    atom = rng.choice(ATOMS) if depth == 0 or rng.random() < 0.6 else rng.choice(["(", "(?:"]) + choices(rng, depth - 1) + ")"
    return atom + (rng.choice(QUANTIFIERS) if rng.random() < 0.5 else "")


def python(expression):
    """The same in Python, classes as ECMAScript has them."""
    for name, spelled in (("\\w", "[0-9A-Za-z_]"), ("\\d", "[0-9]"), ("\\s", f"[{SPACE}]"), (".", "[^\n\r\u2028\u2029]")):
        expression = expression.replace(name, spelled)
    return re.compile(expression)


def check(matches, text):
    return len(text) >= LONG or matches(text)


@pytest.mark.parametrize("part", range(PARTS))
def test_expressions(tool: Tool, part):
    rng = random.Random(part)
    for i in range(EXPRESSIONS // PARTS):
        expression = choices(rng, 1 + i % 2)
        tries = ["".join(rng.choice(LETTERS) for _ in range(rng.randint(0, 6))) for _ in range(10)]
        if not expression:
            continue
        answer, whole = tool.ask(kind="regex", text=expression, walks=2, seed=i, **{"try": tries}), python(expression)
        assert answer["code"] == 0, (expression, answer)
        for text, taken in zip(tries, answer["takes"]):
            assert bool(whole.fullmatch(text)) == bool(taken), (expression, text)
        for text in answer["walks"]:
            assert text is None or check(whole.fullmatch, text), (expression, text)


@pytest.mark.parametrize("part", range(PARTS))
def test_patterns(tool: Tool, part):
    rng = random.Random(100 + part)
    for i in range(EXPRESSIONS // PARTS // 2):
        expression = "^(" + choices(rng, 1) + ")$"
        answer, whole = tool.ask(kind="schema", text=json.dumps({"type": "string", "pattern": expression}), walks=3, seed=i), python(expression)
        if answer["code"]:
            continue  # the characters that JSON escapes are left out: nothing may be left
        for text in answer["walks"]:
            assert text is None or check(whole.search, json.loads(text)), (expression, text)
