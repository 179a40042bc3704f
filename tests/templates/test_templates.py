"""Renderings equal jinja2's byte for byte: real chat templates over generated conversations, and small random templates."""
import os
import pathlib

import pytest

from conversations import conversations
from environment import Tool, parsed, rendered, same
from expressions import VALUES, templates

HOME = pathlib.Path(os.environ.get("COHORT_HOME") or pathlib.Path.home() / ".cache" / "cohort")
FOLDER = HOME / "templates"  # scripts/templates.sh puts them there
NAMES = sorted(path.name for path in FOLDER.glob("*.jinja"))
CONVERSATIONS = int(os.environ.get("COHORT_TEMPLATE_CONVERSATIONS", "12"))
EXPRESSIONS = int(os.environ.get("COHORT_TEMPLATE_EXPRESSIONS", "1500"))
SEED = int(os.environ.get("COHORT_TEMPLATE_SEED", "1"))


@pytest.fixture(scope="module")
def tool():
    with Tool() as running:
        yield running


def test_all_templates_are_there():
    assert len(NAMES) == 70


@pytest.mark.parametrize("name", NAMES)
def test_chat_template(tool, name):
    text = (FOLDER / name).read_text()
    template, refused = parsed(text)
    assert not refused
    texts = 0
    for i, variables in enumerate(conversations(CONVERSATIONS, SEED)):
        ours, theirs = tool.ask(variables, text if i == 0 else None), rendered(template, variables)
        assert same(ours, theirs), (i, ours, theirs)
        texts += "text" in theirs
    assert texts  # not all were refused


def comparable(answer):
    """Not what only Python can say: where an object lies in memory, and complex numbers."""
    text = answer.get("text", "")
    return " at 0x" not in text and "object at" not in text and "j)" not in text


@pytest.mark.parametrize("part", range(10))
def test_random_templates(tool, part):
    for text in templates(EXPRESSIONS // 10, SEED * 10 + part):
        template, refused = parsed(text)
        ours, theirs = tool.ask(VALUES, text), refused or rendered(template, VALUES)
        if ours.get("error") == "limit" and "integer" in ours["message"]:
            continue  # integers have 64 bits
        assert not comparable(theirs) or same(ours, theirs), (text, ours, theirs)


def test_marks(tool):
    """Every byte that comes from a message has its mark, and no byte of the template has one."""
    words = [f"w{i}<&>\"\u00e9 " for i in range(4)]
    messages = [{"role": "user", "content": word, "n": i} for i, word in enumerate(words)]
    template = ("{% for m in messages %}[{{ m.content }}|{{ m.content.strip().upper() }}|{{ (m.content ~ '+') | replace('w', 'v') }}|"
                "{{ m | tojson }}|{{ '%s' % m.content }}|{{ '{}'.format(m.n) }}|{{ m.content[::-1] }}]{% endfor %}")
    answer = tool.ask({"messages": messages}, template, marks={"messages": 5})
    at, plain = 0, ""
    text = answer["text"].encode()
    for mark, n in answer["marks"]:
        part = text[at:at + n].decode()
        at += n
        if mark == 0:
            plain += part
    assert at == len(text)
    # The replaced letter and the separators are the template's own; all else is the messages'.
    assert plain == "[||v+||||]" * len(words)
