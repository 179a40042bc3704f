"""The ids of rendered chats, of real vocabularies with every real template, are those that llama.cpp's tokenizer makes of the same text.

chat_ids.json has fingerprints of what scripts/check_chats.py found equal to the peer's: for each vocabulary one for the built-in template and
one for each of the others, by their names. To be made anew by it where chats, templates or the peer's rules change.
"""
import json
import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import check_chats  # noqa: E402

HOME = pathlib.Path(os.environ.get("COHORT_HOME") or pathlib.Path.home() / ".cache" / "cohort")
TOOL = os.environ.get("COHORT_CHAT_TOOL", str(ROOT / "build" / "tests" / "unit" / "chat_tool"))
TEMPLATES = ["", *sorted(str(path) for path in (HOME / "templates").glob("*.jinja"))]  # scripts/templates.sh puts them there, and these:
VOCABULARIES = HOME / "vocabularies"
STORED = json.loads((pathlib.Path(__file__).parent / "chat_ids.json").read_text())


def test_all_vocabularies_are_compared():
    assert len(STORED) >= 15 and len(TEMPLATES) == 71


@pytest.mark.parametrize("name", STORED)
def test_ids(name):
    answers = check_chats.render(TOOL, str(VOCABULARIES / f"ggml-vocab-{name}.gguf"), TEMPLATES, check_chats.CHATS)
    wanted = STORED[name].split()
    assert answers is not None and len(answers) == len(wanted)
    wrong = [pathlib.Path(t).name or "built-in" for t, got, want in zip(TEMPLATES, answers, wanted) if check_chats.fingerprint(got) != want]
    assert not wrong
