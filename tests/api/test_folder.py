"""The state directory from outside: who may have it, what is put in the place of its files, and what happens when it is taken away."""
import os
import shutil

import pytest

from test_stored import GREEDY, check_whole, crash, follow, post_stream, stored  # noqa: F401

STORED = {**GREEDY, "store": True}


def lines_with(server, text):
    return [line for line in server.lines if text in line]


# ---- taken away while the server runs ----

def rename_folder(folder):
    folder.rename(folder.with_name("elsewhere"))
    return lambda: folder.with_name("elsewhere").rename(folder)


def another_folder(folder):
    folder.rename(folder.with_name("elsewhere"))
    folder.mkdir()
    def back():
        shutil.rmtree(folder)
        folder.with_name("elsewhere").rename(folder)
    return back


def rename_file(name):
    def take(folder):
        (folder / name).rename(folder / "elsewhere")
        return lambda: (folder / "elsewhere").rename(folder / name)
    return take


def replace_file(name):
    def take(folder):
        os.link(folder / name, folder / "kept")
        shutil.copy(folder / name, folder / "copy")
        (folder / "copy").rename(folder / name)
        return lambda: (folder / "kept").rename(folder / name)
    return take


@pytest.mark.parametrize("take", [rename_folder, another_folder, rename_file("journal.db"), rename_file("journal.lock"), rename_file("journal.db-wal"),
                                  replace_file("journal.db"), replace_file("journal.lock")])
def test_nothing_is_acknowledged_that_the_next_start_would_not_find(start, tmp_path, crash, take):
    folder = tmp_path / "state"
    server = stored(start, folder)
    before, events = post_stream(server, GREEDY)
    put_right = take(folder)
    for body in (STORED, {**STORED, "stream": True}, STORED):
        reply = server.post("/v1/completions", body)
        assert reply.status_code == 503 and "X-Cohort-Stream-Id" not in reply.headers
        error = reply.json()["error"]
        assert error["param"] == "store" and str(folder) in error["message"] and "moved or replaced" in error["message"]
    assert server.complete("x", 2)["usage"]["completion_tokens"] == 2  # whoever asks for nothing notices nothing
    assert len(lines_with(server, "new stored calls are refused")) == 1, server.lines
    put_right()
    stream, again = post_stream(server, GREEDY)
    check_whole(again)
    crash(server)
    server = stored(start, folder)
    assert follow(server, stream) == again and follow(server, before) == events


def test_a_folder_that_was_removed_refuses_until_the_restart(start, tmp_path):
    folder = tmp_path / "state"
    server = stored(start, folder)
    post_stream(server, GREEDY)
    shutil.rmtree(folder)
    for _ in range(2):
        assert server.post("/v1/completions", STORED).status_code == 503
    assert server.complete("x", 2)
    assert server.stop() == 0
    check_whole(post_stream(stored(start, folder), GREEDY)[1])
