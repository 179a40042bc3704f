"""The state directory from outside: who may have it, what is put in the place of its files, and what happens when it is taken away."""
import json
import os
import random
import resource
import shutil

import socket
import sqlite3
import subprocess
import time

import pytest

from conftest import BINARY, MODEL, SLOW, Server
from test_stored import GREEDY, check_whole, crash, datas, follow, post_stream, stored  # noqa: F401

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
                                  rename_file("journal.begun"), replace_file("journal.db"), replace_file("journal.lock"), replace_file("journal.begun")])
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


# ---- who may have it ----

def test_two_servers_never_share_a_folder(start, tmp_path):
    ways = [(), ("--store", "none"), ("--no-cache",), ("--store", "none", "--no-cache")]
    for i, one in enumerate(ways):
        folder = tmp_path / str(i)
        first = start("--state-dir", folder, *one)
        for other in ways:
            with pytest.raises(RuntimeError, match="another server uses it"):
                Server("--state-dir", folder, *other)
        assert first.stop() == 0
        assert start("--state-dir", folder, *ways[i - 1]).stop() == 0


# ---- what is in the place of its files ----

def refused_with(folder, *flags):
    """What the program says; it ends by itself."""
    done = subprocess.run([BINARY, "serve", "-m", MODEL, "--port", "0", "--state-dir", folder, *flags], capture_output=True, text=True,
                          timeout=30)
    assert done.returncode == 1, (done.returncode, done.stderr)
    return done.stderr


def put_fifo(path):
    os.mkfifo(path)


def put_socket(path):
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(path))


def put_link(path):
    path.with_name("target").write_text("")
    path.symlink_to(path.with_name("target"))


FILES = ["journal.lock", "journal.db", "journal.db-wal", "journal.db-shm", "journal.db-journal", "journal.begun", "lock"]


@pytest.mark.parametrize("name", FILES)
def test_what_is_no_plain_file_is_refused_by_name(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    for put in (put_fifo, put_socket, os.mkdir, put_link):
        folder = tmp_path / put.__name__
        folder.mkdir()
        put((folder / name).relative_to(tmp_path))
        text = refused_with(folder)
        assert str(folder) in text and name in text and "\n" == text[-1] and text.count("\n") == 1, (put, text)
        if put is put_link:
            assert (folder / "target").read_text() == ""


@pytest.mark.parametrize("name", ["index.db", "index.db-wal", "index.db-shm", "index.db-journal"])
def test_an_index_that_is_no_plain_file_hangs_nobody(start, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    for put in (put_fifo, put_socket, put_link):  # state can be computed again: another index is begun
        folder = tmp_path / put.__name__
        folder.mkdir()
        put((folder / name).relative_to(tmp_path))
        server = start("--state-dir", folder)
        assert lines_with(server, "its index was damaged") and server.stop() == 0


# ---- a bit that flips while the server is down ----

PAGE, FRAME = 4096, 4096 + 24


def commits(wal):
    """The frames that end a commit of the last round, from 0."""
    return [i for i in range((len(wal) - 32) // FRAME)
            if wal[32 + i * FRAME + 8:32 + i * FRAME + 16] == wal[16:24] and wal[32 + i * FRAME + 4:32 + i * FRAME + 8] != bytes(4)]


@pytest.mark.parametrize("where", ["head", "salt", "frame", "sum", "page"])
def test_a_flipped_bit_in_front_of_the_file_is_told_and_takes_no_call_along(start, tmp_path, crash, where):
    file = tmp_path / "journal.db-wal"
    for _ in range(5):  # a pause on a busy machine leaves nothing there
        server = stored(start, tmp_path)
        streams = [post_stream(server, GREEDY) for _ in range(4)]
        crash(server)
        wal = bytearray(file.read_bytes())
        ends = commits(wal)
        if len(ends) > 8:
            break
    frame = ends[0] + 1  # the first of the second commit
    at = {"head": 9, "salt": 17, "frame": 32 + frame * FRAME + 2, "sum": 32 + frame * FRAME + 20, "page": 32 + frame * FRAME + 2000}[where]
    wal[at] ^= 4
    file.write_bytes(wal)
    lost = ends[-1] + 1 - (frame if where in ("frame", "sum", "page") else 0)
    server = stored(start, tmp_path)
    told = lines_with(server, "journal.db-wal is damaged")
    assert len(told) == 1 and f"{lost} pages ({lost * FRAME} bytes)" in told[0], server.lines
    assert server.metric("cohort_journal_lost_pages_total") == lost
    assert (tmp_path / "journal.db-wal.damaged").read_bytes() == wal
    assert server.metric("cohort_journal_regained_calls_total") > 0 and len(lines_with(server, "are taken from journal.begun")) == 2, server.lines
    streams.append(post_stream(server, GREEDY))
    check_whole(streams[-1][1])
    assert [follow(server, stream) for stream, _ in streams] == [events for _, events in streams]
    crash(server)
    server = stored(start, tmp_path)  # and it is told once
    assert not lines_with(server, "is damaged") and server.metric("cohort_journal_regained_calls_total") == 0
    assert [follow(server, stream) for stream, _ in streams] == [events for _, events in streams]


@pytest.mark.parametrize("name", ["journal.db", "journal.db-wal", "journal.begun"])
@pytest.mark.parametrize("seed", range(3))
def test_no_flipped_bit_loses_a_call(start, tmp_path, crash, name, seed):
    rng = random.Random(seed)
    runs = {**GREEDY, "n": 2, "max_tokens": 200, "temperature": 1.0, "seed": seed}
    server = stored(start, tmp_path, *SLOW)
    ended = [post_stream(server, GREEDY) for _ in range(3)]
    forgotten = [post_stream(server, GREEDY)[0] for _ in range(2)]
    assert all(server.delete(stream).status_code == 200 for stream in forgotten)
    while name == "journal.db" and (tmp_path / "journal.db-wal").stat().st_size:
        time.sleep(0.05)
    running = [post_stream(server, runs, stop_after=6) for _ in range(2)]
    crash(server)
    data = bytearray((tmp_path / name).read_bytes())
    at = rng.randrange(len(data)) if seed else 100  # of journal.db and journal.begun this is in the head
    data[at] ^= 1 << rng.randrange(8)
    (tmp_path / name).write_bytes(data)
    server = stored(start, tmp_path)
    assert [follow(server, stream) for stream, _ in ended] == [events for _, events in ended]
    assert all(server.get("/v1/streams/" + stream).status_code == 404 for stream in forgotten)
    expected = datas(post_stream(server, runs)[1])
    for stream, head in running:
        events = head + follow(server, stream, len(head))
        check_whole(events)
        assert datas(events) == expected and follow(server, stream) == events


def test_a_kill_is_no_damage(start, tmp_path, crash):
    for _ in range(6):
        server = stored(start, tmp_path, *SLOW)
        assert not lines_with(server, "damaged") and server.metric("cohort_journal_lost_pages_total") == 0
        post_stream(server, {**GREEDY, "max_tokens": 900}, stop_after=30)
        crash(server)


def test_nothing_stays_in_front_of_the_file_for_long(start, tmp_path):
    server = stored(start, tmp_path)
    stream, events = post_stream(server, GREEDY)
    file = tmp_path / "journal.db-wal"
    deadline = time.monotonic() + 20
    while file.stat().st_size:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert follow(server, stream) == events
    check_whole(post_stream(server, GREEDY)[1])
    assert file.stat().st_size


# ---- whose it is ----

def with_key(start, folder, name):
    keys = folder.with_name("keys.json")
    keys.write_text(json.dumps({"keys": [{"name": name, "key": "the-key"}]}))
    keys.chmod(0o600)
    server = stored(start, folder, "--keys", keys, *SLOW)
    server.headers = {"Authorization": "Bearer the-key"}
    return server


def test_no_key_has_what_was_stored_without_keys(start, tmp_path, crash):
    folder = tmp_path / "state"
    server = stored(start, folder, *SLOW)
    streams = [post_stream(server, GREEDY)[0], post_stream(server, {**GREEDY, "max_tokens": 900}, stop_after=3)[0]]
    time.sleep(0.1)
    crash(server)
    server = with_key(start, folder, "default")
    for stream in streams:
        assert server.get("/v1/streams/" + stream).status_code == 404
        assert server.delete(stream).status_code == 404


@pytest.mark.parametrize("before", [False, True])
def test_without_keys_it_is_still_there(start, tmp_path, crash, before):
    server = stored(start, tmp_path, *SLOW)
    done, events = post_stream(server, GREEDY)
    runs, head = post_stream(server, {**GREEDY, "max_tokens": 300}, stop_after=3)
    time.sleep(0.1)
    crash(server)
    if before:  # as earlier versions wrote it
        (tmp_path / "journal.begun").unlink()
        with sqlite3.connect(tmp_path / "journal.db") as db:
            db.execute("UPDATE streams SET owner = 'default'")
    server = stored(start, tmp_path)
    check_whole(head + follow(server, runs, len(head)))
    assert follow(server, done) == events
    for stream in (done, runs):
        assert server.delete(stream).status_code == 200 and server.get("/v1/streams/" + stream).status_code == 404


# ---- what is said ----

def test_a_full_disk_of_the_cache_is_said_once(start, tmp_path):
    server = start("-c", 1000, "--state-dir", tmp_path, "--store", "none")

    def limit(size):
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def until_more(name, prompt):
        before, n = server.metric(name), 0
        while server.metric(name) == before:  # what the disk did is seen when the engine wakes
            assert (n := n + 1) < 200
            server.complete(f"{prompt} {n} " + "and so on " * 60, 1)
            time.sleep(0.05)

    for i in range(4):
        limit(1000)
        until_more("cohort_disk_failures_total", f"{i} lost")
        limit(resource.RLIM_INFINITY)
        until_more("cohort_disk_written_total", f"{i} written")
    assert len(lines_with(server, "state cannot be written")) == 1, server.lines
    assert not lines_with(server, "written again")
    time.sleep(11)
    until_more("cohort_disk_written_total", "well")
    time.sleep(0.2)
    assert len(lines_with(server, "state is written again")) == 1 and len(lines_with(server, "state cannot be written")) == 1


@pytest.mark.parametrize("bad", ["1%00", "%001", "%0a1", "1%0d", "%7f", "1%1f", "%00", "1%00x"])
def test_bytes_that_no_value_has(start, tmp_path, bad):
    server = stored(start, tmp_path)
    stream, events = post_stream(server, GREEDY)
    for value, path in (("last_event_id", f"/v1/streams/{stream}?"), ("last_event_id", f"/v1/streams/{stream}?result=0&"), ("result", f"/v1/streams/{stream}?")):
        reply = server.get(f"{path}{value}={bad}")
        assert reply.status_code == 400 and reply.json()["error"]["param"] == value, (path, reply.text)
    for path in ("/slots/0", "/v1/sessions/x"):
        reply = server.post(f"{path}?action=erase{bad}", {})
        assert reply.status_code == 400 and reply.json()["error"]["param"] == "action", reply.text
    assert server.get(f"/v1/streams/{stream}?last_event_id=%31&result=%30").status_code == 200
    for query in ("last_event_id", "last_event_id=", "result="):
        assert server.get(f"/v1/streams/{stream}?{query}").status_code == 400, query


def test_options_of_the_folder(tmp_path):
    def refused(*flags, **environment):
        done = subprocess.run([BINARY, "serve", "-m", MODEL, "--port", "0", *flags], capture_output=True, text=True, timeout=30,
                              env={**os.environ, **environment})
        assert done.returncode == 2, done
        return done.stderr

    for text in (refused("--state-dir", ""), refused("--state-dir="), refused("--store", "none", "--state-dir", "")):
        assert text == "cohort: --state-dir is empty: it needs the name of a folder\n"
    assert refused(COHORT_STATE_DIR="") == "cohort: COHORT_STATE_DIR is empty: it needs the name of a folder\n"
    for size in ("1X", "1TB", "T", "1000T", "-1K", "1.5G"):
        assert "K, M, G or T" in refused("--state-dir-bytes", size), size
    for size in ("1T", "3t", "1g", "5K", "7", "900T"):
        assert "empty" in refused("--state-dir-bytes", size, "--state-dir", ""), size
