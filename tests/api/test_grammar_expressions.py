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


# Counts that are kept as counts: beside each other, behind each other, in choices, in repeated groups, at the end and before what their class has, too.
CLASSES = {"[ab]": "ab", "[bc]": "bc", "[a-c ]": "abc ", "[^ab]": "cx ", "a": "a", ".": "ab x", "[\u00e9b]": "\u00e9b"}
BETWEEN = ["", "x", " ", "b", "\\n", "-?", "(x|,)"]
COUNTS = [(9, 9), (10, 12), (0, 9), (1, 11), (3, 20), (9, None)]
LARGE = [(130, 132), (129, None)]  # one of an expression: several that overlap are in very many states at once


def gbnf(part):
    """A part of an expression as GBNF writes it."""
    special = {".": "[^\\n\\r\\u2028\\u2029]", "-?": '"-"?', "(x|,)": '("x" | ",")', "": ""}
    return special.get(part, part if part.startswith("[") else f'"{part}"')


def counted(rng, depth, large):
    """(an expression, the same in GBNF, a function that draws a text which it takes, or nearly). `large` is emptied where one of it is taken."""
    parts = []
    for _ in range(rng.randint(1, 3)):
        if depth and rng.random() < 0.3:
            choice = [counted(rng, depth - 1, []) for _ in range(rng.choice([1, 2, 2]))]
            times = rng.choice([("", 1, 1), ("?", 0, 1), ("{2}", 2, 2)])
            parts.append(("(" + "|".join(each[0] for each in choice) + ")" + times[0], "(" + " | ".join(each[1] for each in choice) + ")" + times[0],
                          lambda choice=choice, times=times: "".join(rng.choice(choice)[2]() for _ in range(rng.randint(times[1], times[2])))))
        else:
            name, letters = rng.choice([*CLASSES.items()])
            least, most = rng.choice(COUNTS) if not large or rng.random() < 0.7 else large.pop()
            count = f"{{{least}}}" if most == least else f"{{{least},{'' if most is None else most}}}"
            ends = [least, least, least + 1, most or least + 40, most or least + 5] + ([least - 1, (most or least) + 1] if rng.random() < 0.3 else [])
            parts.append((name + count, gbnf(name) + count, lambda letters=letters, ends=ends: "".join(rng.choice(letters) for _ in range(max(0, rng.choice(ends))))))
        between = rng.choice(BETWEEN)
        parts.append((between, gbnf(between),
                      lambda between=between: {"\\n": "\n", "-?": rng.choice("-") * rng.randint(0, 1), "(x|,)": rng.choice("x,")}.get(between, between)))
    return "".join(each[0] for each in parts), " ".join(each[1] for each in parts if each[1]), lambda: "".join(each[2]() for each in parts)


@pytest.mark.parametrize("part", range(PARTS))
def test_counts(tool: Tool, part):
    rng = random.Random(200 + part)
    for i in range(EXPRESSIONS // PARTS // 3):
        large = [rng.choice(LARGE)]
        choice = [counted(rng, 1, large) for _ in range(rng.choice([1, 1, 2, 3]))]
        expression = "|".join(each[0] for each in choice)
        whole, tries = python(expression), [rng.choice(choice)[2]() for _ in range(10)]
        for kind, written in (("regex", expression), ("gbnf", "root ::= " + " | ".join(each[1] for each in choice))):
            answer = tool.ask(kind=kind, text=written, walks=3, seed=i, **{"try": tries})
            assert answer["code"] == 0, (written, answer)
            for text, taken in zip(tries, answer["takes"]):
                assert bool(whole.fullmatch(text)) == bool(taken), (written, text)
            for text in answer["walks"]:  # counts that overlap are in many states at once in GBNF, and may meet a state's limit
                assert text in (None, "(a limit)") or whole.fullmatch(text), (written, text)


def test_counts_of_choices_are_their_own(tool: Tool):
    for count in (9, 130):
        for kind, expression in (("regex", "[ab]{%d}x|[bc]{%d}y"), ("regex", "(q[ab]{%d}x|q[bc]{%d}y)"), ("regex", "([ab]{%d}x|[bc]{%d}y)*"),
                                 ("gbnf", 'root ::= [ab]{%d} "x" | [bc]{%d} "y"'), ("gbnf", 'root ::= "q" ("" | [ab]{%d} "x" | [bc]{%d} "y")')):
            first = "q" * ("q" in expression)
            tries = {"a" * (count - 4) + "c" * 4 + "y": 0, "b" * count + "x": 1, "b" * count + "y": 1, "b" * (count - 1) + "y": 0, "b" * (count + 1) + "x": 0}
            answer = tool.ask(kind=kind, text=expression % (count, count), walks=0, seed=1, **{"try": [first + text for text in tries]})
            assert answer["takes"] == [*tries.values()], (expression, count, answer)
