#!/usr/bin/env python3
"""Compares the ids of rendered chats with those that llama.cpp's tokenizer makes of the same rendering, markers and all.

usage: check_chats.py --tool BUILD/tests/unit/chat_tool --library LIBLLAMA.SO --models FOLDER --templates FOLDER [--write FILE] [NAME...]

FOLDERs are llama.cpp's models and models/templates. Every vocabulary is tried with every template and with the built-in
one for it. The chats hold no markers: there the two must be the same, id for id. Then the same chats with the template's
own markers in what a user says: no more markers than without.
"""
import argparse
import ctypes
import hashlib
import json
import pathlib
import re
import subprocess
import sys

CALL = {"id": "call12345", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Rome"}'}}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "The weather of a place.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "description": "Its name"}}, "required": ["city"]}}}]


def turn(role, content, **more):
    return {"role": role, "content": content, **more}


CHATS = [
    {"messages": [turn("user", "Hello there!")], "ending": 1},
    {"messages": [turn("system", "Be  brief.\n\n- Really."), turn("user", " What is <b>2+2</b>?\n"), turn("assistant", "It's 4."),
                  turn("user", "Größe? 你好 😀")], "ending": 1},
    {"messages": [turn("user", "def f(x):\n    return x\n"), turn("assistant", "  Fine.  "), turn("user", "a\r\nb\tc")], "ending": 0},
    {"messages": [turn("user", "Write"), turn("assistant", "Once upon ")], "ending": 2},
    {"messages": [turn("user", "Rome?")], "tools": TOOLS, "ending": 1},
    {"messages": [turn("user", "Rome?"), turn("assistant", None, tool_calls=[CALL]),
                  turn("tool", '{"sky": "clear"}', tool_call_id="call12345"), turn("assistant", "Clear."), turn("user", "Thanks")],
     "tools": TOOLS, "ending": 1},
]


class Params(ctypes.Structure):
    """llama_model_params."""

    _fields_ = (
        [(name, ctypes.c_void_p) for name in ("devices", "overrides")]
        + [(name, ctypes.c_int32) for name in ("gpu_layers", "split_mode", "load_mode", "lazy_mode", "main_gpu")]
        + [(name, ctypes.c_void_p) for name in ("tensor_split", "progress", "progress_user", "kv_overrides")]
        + [(name, ctypes.c_bool) for name in ("vocab_only", "check_tensors", "extra_bufts", "no_host", "no_alloc", "load_mtp")])


class Peer:
    """llama.cpp's tokenizer by its C interface, special tokens read as such."""

    def __init__(self, library, model):
        lib = self.lib = ctypes.CDLL(str(library))
        self.quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
        lib.llama_log_set(self.quiet, None)
        lib.llama_backend_init()
        lib.llama_model_default_params.restype = Params
        params = lib.llama_model_default_params()
        params.vocab_only = True
        lib.llama_model_load_from_file.argtypes = [ctypes.c_char_p, Params]
        lib.llama_model_load_from_file.restype = ctypes.c_void_p
        lib.llama_model_get_vocab.argtypes = [ctypes.c_void_p]
        lib.llama_model_get_vocab.restype = ctypes.c_void_p
        lib.llama_tokenize.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32, ctypes.c_bool,
                                       ctypes.c_bool]
        lib.llama_vocab_bos.argtypes = lib.llama_vocab_get_add_bos.argtypes = [ctypes.c_void_p]
        lib.llama_vocab_get_add_bos.restype = ctypes.c_bool
        self.vocab = lib.llama_model_get_vocab(lib.llama_model_load_from_file(str(model).encode(), params))

    def ids(self, text):
        """With the begin token as the vocabulary asks for it, once: llama-server takes away what the template writes."""
        room = (ctypes.c_int32 * (len(text) + 16))()
        n = self.lib.llama_tokenize(self.vocab, text, len(text), room, len(room), False, True)
        ids = list(room[:n])
        bos = self.lib.llama_vocab_bos(self.vocab)
        if self.lib.llama_vocab_get_add_bos(self.vocab) and ids[:1] != [bos]:
            ids.insert(0, bos)
        return ids


def render(tool, model, templates, chats):
    """For each template (a path; "": the built-in one) a text if it is refused, or for each chat (ids, text, ends) or an error's text.
    None: a vocabulary that is none of ours."""
    lines = "".join(json.dumps(chat) + "\n" for chat in chats)
    run = subprocess.run([tool, model, *templates], input=lines.encode(), capture_output=True)
    if run.returncode == 1:
        return None
    if run.returncode:
        sys.exit(f"{model}: {run.returncode} {run.stderr.decode().strip()}")
    out = []
    for line in run.stdout.decode().splitlines():
        if line.startswith("refused"):
            out.append(line)
        elif line == "template":
            out.append([])
        elif line.startswith("error"):
            out[-1].append(line)
        else:
            ids, text, ends = line.split("\t")
            out[-1].append(([int(i) for i in ids.split()], bytes.fromhex(text), [int(i) for i in ends.split()]))
    return out


def fingerprint(answers):
    """Of all the ids that one template gives; what is refused counts as that."""
    ids = answers[:7] if isinstance(answers, str) else [None if isinstance(a, str) else a[0] for a in answers]
    return hashlib.blake2b(json.dumps(ids).encode(), digest_size=6).hexdigest()


def marker_ids(peer, texts):
    """Of the texts' markers those that the vocabulary has as one token."""
    out = {}
    for text in texts:
        ids = peer.ids(b"a" + text)
        if len(ids) and peer.ids(text)[-1:] == ids[-1:] and len(peer.ids(b"a" + text)) == len(peer.ids(b"a")) + 1:
            out[text] = ids[-1]
    return out


def forge(chats, markers):
    """The same chats, with all the markers in everything that is said."""
    said = " ".join(m.decode() for m in markers)
    out = json.loads(json.dumps(chats))
    for chat in out:
        for message in chat["messages"]:
            if message["content"]:
                message["content"] = "x" + said + message["content"] + said + "x"
    return out


def count(ids, markers):
    return {m: ids.count(i) for m, i in markers.items()}


def check(name, got, forged, peer, shown):
    """(chats, those with the peer's ids, forged chats, those without a marker of the user's)"""
    same = tried = 0
    texts = set()
    for g in got:
        if isinstance(g, str):
            continue
        tried += 1
        texts.update(re.findall(rb"<[^<>\s]{1,40}>|\[/?[A-Z_]{2,30}\]", g[1]))
        want = peer.ids(g[1])
        same += g[0] == want
        if g[0] != want and shown[0] < 5:
            shown[0] += 1
            print(f"  {name}: {g[1]!r}\n    got  {g[0]}\n    peer {want}")
    markers = marker_ids(peer, texts - {b"<b>", b"</b>"})
    kept = asked = 0
    for g, f in zip(got, forged(markers)):
        if isinstance(g, str) or isinstance(f, str) or not markers:
            continue
        asked += 1
        good = count(g[0], markers) == count(f[0], markers)
        kept += good
        if not good and shown[0] < 5:
            shown[0] += 1
            print(f"  {name}: forged {f[1]!r}\n    {count(g[0], markers)}\n    {count(f[0], markers)}")
    return tried, same, asked, kept


def check_model(args, model, templates):
    """The sums over all templates, and what is to be stored; None: no vocabulary of ours."""
    answers = render(args.tool, model, templates, CHATS)
    if answers is None:
        return None
    peer, sums, shown = Peer(args.library, model), [0, 0, 0, 0], [0]
    for template, got in zip(templates, answers):
        name = pathlib.Path(template).name or "built-in"
        if isinstance(got, str):
            print(f"  {name}: {got}")
            continue
        more = check(name, got, lambda markers: render(args.tool, model, [template], forge(CHATS, markers))[0], peer, shown)
        sums = [a + b for a, b in zip(sums, more)]
    return sums, " ".join(fingerprint(got) for got in answers)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option in ("--tool", "--library", "--models", "--templates"):
        parser.add_argument(option, required=True)
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--template", default="")
    parser.add_argument("--write", help="a file for the fingerprints of what was equal, which tests/templates compares")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    if args.write and (args.names or args.template):
        parser.error("--write is for all vocabularies and templates")
    ok, stored = True, {}
    templates = ["", *sorted(str(p) for p in pathlib.Path(args.templates).glob("*.jinja") if args.template in p.name)]
    for model in sorted(str(p) for p in pathlib.Path(args.models).glob("ggml-vocab-*.gguf")) + args.model:
        name = pathlib.Path(model).name.removeprefix("ggml-vocab-").removesuffix(".gguf")
        if args.names and name not in args.names:
            continue
        found = check_model(args, model, templates)
        if found is None:
            continue
        sums, fingerprints = found
        print(f"{name:16} {sums[1]}/{sums[0]} chats as the peer's, {sums[3]}/{sums[2]} forged ones without a marker", flush=True)
        good = sums[0] == sums[1] and sums[2] == sums[3] and sums[0] > 0
        ok &= good
        if good:
            stored[name] = fingerprints
    if args.write:
        pathlib.Path(args.write).write_text(json.dumps(stored, indent=0) + "\n")
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
