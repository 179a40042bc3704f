"""What the benchmark scripts share: where things are, what this machine is, what a model costs per token, and where results go."""
import datetime
import json
import os
import pathlib
import platform
import signal
import socket
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(os.environ.get("COHORT_BUILD", ROOT / "build"))
PEER = pathlib.Path(os.path.expanduser("~/.cache/cohort-peer/src/vendor/llama.cpp/build/bin"))
HOME = pathlib.Path(os.environ.get("COHORT_HOME") or os.path.expanduser("~/.cache/cohort"))
RESULTS = BUILD / "bench.jsonl"
CPU_FLAGS = ("avx2", "f16c", "fma", "avx_vnni", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16", "amx_int8", "asimddp", "i8mm", "sve")
STOP_S = 30


def run(command):
    """Standard output of a command that must succeed; its complaint otherwise."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, errors="replace")
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def objects(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def machine():
    """CPU, the instruction sets that matter, CPUs that this process may use, kernel, commit."""
    info = {"model name": platform.machine(), "flags": "", "Features": ""}
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as f:
        for line in f:
            key, _, value = line.partition(":")
            if value and not info.get(key.strip()) or key.strip() == "model name":
                info[key.strip()] = value.strip()
    has = (info["flags"] + " " + info["Features"]).split()
    commit = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True).stdout.strip()
    return {"cpu": info["model name"], "cpu_flags": [flag for flag in CPU_FLAGS if flag in has],
            "cpus": len(os.sched_getaffinity(0)), "os": f"{platform.system()} {platform.release()}", "commit": commit or "unknown"}


def machine_text(m):
    return f"{m['cpu']} ({' '.join(m['cpu_flags'])}), {m['cpus']} CPUs, commit {m['commit']}"


class Model:
    """A file and what a token of it costs at least, from its tensors: bytes that a step reads, multiply-adds."""

    def __init__(self, name, path):
        self.name, self.path = name, pathlib.Path(path)
        about = objects(run([BUILD / "cohort", "inspect", "--json", "-m", path]))[0]
        meta = {key: item["value"] for key, item in about["metadata"].items() if "value" in item}
        tensors = {t["name"]: t for t in about["tensors"]}
        head = tensors.get("output.weight") or tensors["token_embd.weight"]
        blocks = [t for t in about["tensors"] if t["name"].startswith("blk.")]
        self.bytes = sum(t["bytes"] for t in blocks) + head["bytes"]
        self.block_macs = sum(t["shape"][0] * t["shape"][1] for t in blocks if len(t["shape"]) == 2)
        self.head_macs, self.vocab = head["shape"][0] * head["shape"][1], head["shape"][1]
        self._attention(meta)

    def _attention(self, meta):
        arch = meta["general.architecture"]

        def get(key, other):
            return meta.get(f"{arch}.{key}", other)
        heads = get("attention.head_count", 1)
        key = get("attention.key_length", get("embedding_length", 0) // heads)
        value = get("attention.value_length", key)
        self.layers, self.window = get("block_count", 0), get("attention.sliding_window", 0)
        every = {"gemma3": 6, "gemma2": 2}.get(arch)  # of so many layers, one sees all
        self.whole_layers = self.layers // every if every else 0 if self.window else self.layers
        self.seen_macs = heads * (key + value)  # per layer and position that a token sees
        self.seen_bytes = 2 * get("attention.head_count_kv", heads) * (key + value)

    def seen(self, context):
        """(layer, position) pairs that a token behind `context` others sees."""
        near = min(context, self.window) if self.window else context
        return self.whole_layers * context + (self.layers - self.whole_layers) * near

    def decode_cost(self, rows, context):
        """(bytes, multiply-adds) of a step with `rows` rows of `context` tokens."""
        seen = rows * self.seen(context)
        return self.bytes + seen * self.seen_bytes, rows * (self.block_macs + self.head_macs) + seen * self.seen_macs

    def prompt_cost(self, tokens):
        """(bytes, multiply-adds) of a prompt: every weight once, one token's logits."""
        seen = sum(self.seen(n) for n in range(1, tokens + 1))
        return self.bytes, tokens * self.block_macs + self.head_macs + seen * self.seen_macs


def default_model():
    return Model("default", run([sys.executable, ROOT / "scripts" / "fetch_model.py", "--path"]).strip())


def model_named(name):
    """`default`, a file that make_model.py makes (made if it is not there), or a path."""
    if name == "default":
        return default_model()
    if "/" in name or name.endswith(".gguf"):
        return Model(pathlib.Path(name).stem, name)
    path = HOME / "bench" / f"{name}.gguf"
    if not path.exists():
        subprocess.run([sys.executable, ROOT / "bench" / "make_model.py", name], check=True)
    return Model(name, path)


class Results:
    """JSON lines, each with machine, commit and time; written as they come, so that a run cut short leaves what it has."""

    def __init__(self, path):
        self.path, self.machine = pathlib.Path(path), machine()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.touch()
        self.when = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")

    def add(self, record):
        with open(self.path, "a", encoding="utf-8") as f:
            f.write(json.dumps({**record, "run": self.when, **self.machine}) + "\n")


def table(head, rows, markdown):
    """Lines of text: aligned columns, or Markdown."""
    cells = [[str(cell) for cell in row] for row in [head, *rows]]
    if markdown:
        lines = ["| " + " | ".join(row) + " |" for row in cells]
        return "\n".join([lines[0], "|" + "-|" * len(head), *lines[1:]])
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    return "\n".join("  ".join(cell.ljust(width) if i == 0 else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths)))
                     for row in cells)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def stop(process):
    """Ends a server and waits for it."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def note(text):
    print(text, file=sys.stderr, flush=True)
