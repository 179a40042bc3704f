"""JSON Schema's own test suite against grammars: what a compiled schema lets through is valid under it, by another implementation; what cannot
be held is refused. Through build/tests/unit/grammar_tool; no server."""
import json
import os
import pathlib
import subprocess

import jsonschema
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = pathlib.Path(os.environ.get("COHORT_BIN", ROOT / "build" / "cohort")).parent / "tests" / "unit" / "grammar_tool"
SUITE = ROOT.parent / "shared" / "data" / "JSON-Schema-Test-Suite" / "tests"
VALIDATORS = {"draft2020-12": jsonschema.Draft202012Validator, "draft7": jsonschema.Draft7Validator}
WALKS = int(os.environ.get("COHORT_GRAMMAR_WALKS", "4"))
E_UNSUPPORTED, E_ARGUMENT, E_LIMIT = -4, -5, -14

pytestmark = pytest.mark.skipif(not TOOL.exists(), reason="grammar_tool is not built")


class Tool:
    def __init__(self):
        self.process = subprocess.Popen([TOOL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")

    def ask(self, **fields):
        self.process.stdin.write(json.dumps(fields) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


@pytest.fixture(scope="module")
def tool():
    made = Tool()
    yield made
    made.process.stdin.close()
    assert made.process.wait(30) == 0


def cases():
    for draft in VALIDATORS:
        for path in sorted((SUITE / draft).rglob("*.json")):
            yield pytest.param(draft, path, id=f"{draft}/{path.relative_to(SUITE / draft)}")


def spaced(value):
    """As the grammar writes it: and properties in the order that the instance has."""
    return json.dumps(value, ensure_ascii=False)


# Where the validator's expressions are not ECMAScript's, and what is an annotation since 2019-09.
OTHER_REGEX = {"ECMA 262 \\s matches whitespace", "ECMA 262 \\W matches everything but ascii letters",
               "ECMA 262 \\D matches everything but ascii digits"}
ANNOTATIONS = {"content.json"}

COUNTS = {"schemas": 0, "compiled": 0, "refused": 0, "outputs": 0, "unfinished": 0, "valid": 0, "valid_taken": 0, "invalid": 0}


def has_surrogate(text):
    return any(0xD800 <= ord(c) <= 0xDFFF for c in text)


@pytest.mark.parametrize("draft, path", list(cases()))
def test_suite(tool, draft, path):
    for group in json.loads(path.read_text()):
        schema = group["schema"]
        texts = [spaced(t["data"]) for t in group["tests"]]
        usable = [i for i, t in enumerate(texts) if not has_surrogate(t)]
        for space in (0, 2):
            answer = tool.ask(kind="schema", text=json.dumps(schema), space=space, walks=WALKS, seed=len(texts) + space,
                              **{"try": [texts[i] for i in usable]})
            COUNTS["schemas"] += 1
            if answer["code"]:
                assert answer["code"] in (E_UNSUPPORTED, E_ARGUMENT, E_LIMIT), answer
                assert answer["error"]
                COUNTS["refused"] += 1
                continue
            COUNTS["compiled"] += 1
            validator = VALIDATORS[draft](schema, format_checker=VALIDATORS[draft].FORMAT_CHECKER if "format" in path.parts else None)
            for output in answer["walks"]:
                if output is None:
                    COUNTS["unfinished"] += 1
                    continue
                COUNTS["outputs"] += 1
                value = json.loads(output)
                errors = [] if group["description"] in OTHER_REGEX else list(validator.iter_errors(value))
                assert not errors, (group["description"], schema, output, errors[0].message)
            for i, taken in zip(usable, answer["takes"]):
                test = group["tests"][i]
                assert taken >= 0, (group["description"], texts[i])
                if not test["valid"]:
                    COUNTS["invalid"] += 1
                    known = list(validator.iter_errors(test["data"])) if "format" in path.parts else path.name not in ANNOTATIONS
                    if known:
                        assert not taken, (group["description"], schema, texts[i])
                elif space == 0:
                    COUNTS["valid"] += 1
                    COUNTS["valid_taken"] += taken


def test_enough_of_it_was_held():
    if not SUITE.exists():
        pytest.skip("the suite is not at hand")
    print(COUNTS)
    assert COUNTS["compiled"] >= 300 and COUNTS["outputs"] >= 300
