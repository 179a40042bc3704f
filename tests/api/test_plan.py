"""`cohort inspect --plan` beside the truth: the peak memory of a server whose state was filled and whose rows all answered at one time. With COHORT_TEST_MODEL and `-s` it says so for any model."""
import json
import pathlib
import random
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from conftest import BINARY, MODEL

ROWS, CONTEXT, ANSWER = 4, 1024, 48
# Beside a part of the plan: what tiny models do not hide. Heaps' holes, requests on their way, the system's own pages.
MARGIN, MARGIN_BYTES = 0.05, 3 << 20
pytestmark = pytest.mark.skipif("asan" in BINARY, reason="a sanitizer has memory of its own")


def plan_of(*flags):
    return json.loads(subprocess.run([BINARY, "inspect", "--plan", "--json", "-m", MODEL, *map(str, flags)], check=True, capture_output=True,
                                     text=True).stdout)


def memory(server, name):
    text = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(rf"^{name}:\s+(\d+) kB", text, re.M)[1]) << 10


def prompt(seed, n):
    rng = random.Random(seed)
    return [rng.randrange(100, 400) for _ in range(n)]


def together(server, bodies):
    def ask(body):
        reply = server.post("/v1/completions", {"temperature": 0, "ignore_eos": True, **body})
        assert reply.status_code == 200, reply.text
    with ThreadPoolExecutor(ROWS) as clients:
        list(clients.map(ask, bodies))


def fill(server, plan):
    """Rows of full length, then short ones, until every page of every kind was used: prompts behind their windows keep only windows, and a
    prompt of one block already keeps a recurrent state."""
    rows = [{"prompt": prompt(i, CONTEXT - ANSWER - 1), "max_tokens": 1} for i in range(ROWS)]
    together(server, rows)
    pages = {"window": 0, "recurrent": 0}
    for group in plan["state"]["groups"]:
        kind = "recurrent" if group["kind"] == "recurrent" else "window" if group["window"] else None
        if kind:
            pages[kind] = max(pages[kind], group["pages"])
    short = 256 if pages["window"] else 64
    together(server, [{"prompt": prompt(1000 + i, short), "max_tokens": 1} for i in range(max(pages["window"] * 32 // short, pages["recurrent"]) + ROWS)])
    together(server, [{**row, "max_tokens": ANSWER, "logprobs": 5} for row in rows])  # once read again, all answer at one time
    together(server, [{**row, "max_tokens": ANSWER, "logprobs": 5} for row in rows])


@pytest.mark.parametrize("form", ["f16", "q4_0"])  # with q4_0 windows keep q8_0
def test_a_plan_is_what_a_full_server_takes(start, form):
    flags = ("-c", CONTEXT, "-np", ROWS, "-ctk", form, "-ctv", form)
    plan = plan_of(*flags)
    server = start(*flags)
    begin = memory(server, "VmRSS")
    fill(server, plan)
    peak = memory(server, "VmHWM")
    print(f"\n{form}: at start {begin >> 20} MiB, planned {plan['begin_bytes'] >> 20}; full {peak / 2**20:.1f} MiB, "
          f"planned {plan['total_bytes'] / 2**20:.1f} ({100 * (plan['total_bytes'] / peak - 1):+.1f} %)")
    assert abs(plan["begin_bytes"] - begin) <= MARGIN * begin + MARGIN_BYTES
    assert abs(plan["total_bytes"] - peak) <= MARGIN * peak + MARGIN_BYTES
