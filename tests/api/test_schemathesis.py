"""schemathesis against the server: our own description (docs/openapi.yaml) with the shapes of all replies, and OpenAI's published one for
faults of the server's own only, since its fields are more than ours."""
import os
import pathlib
import subprocess
import sys

import pytest

from conftest import BINARY, ROOT

OPENAI = ROOT.parent / "shared" / "data" / "openai-openapi.json"
PROGRAM = pathlib.Path(sys.executable).with_name("schemathesis")
SEED = 8
# Methods that no description has are not tried: libevent answers the ones that it does not know, as QUERY, with a 501 of its own, before
# the server sees the request. A 504 is the right answer to "timeout_ms": 1.
CONFIG = """[phases.coverage]
unexpected-methods = []
[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", 504]
"""

pytestmark = [pytest.mark.skipif(not PROGRAM.exists(), reason="schemathesis is not installed"),
              pytest.mark.skipif("asan" in BINARY, reason="thousands of requests: too slow with a sanitizer")]


@pytest.fixture
def described(start, tmp_path):
    # What is generated ends with the context at the latest.
    return start("-c", 256, "-np", 8, "--queue", 64, "--state-dir", tmp_path / "state")


def run(tmp_path, description, url, *flags):
    config = tmp_path / "schemathesis.toml"
    config.write_text(CONFIG)
    # One worker, and once more after a SystemError: Python 3.11 now and then ends a case with one about its own recursion depth.
    command = [PROGRAM, "--config-file", config, "--no-color", "run", description, "--url", url, "--seed", SEED, "--workers", 1,
               "--generation-database", "none", "--request-timeout", 30, "--warnings", "off", "--no-shrink", *flags]
    for _ in range(2):
        done = subprocess.run(list(map(str, command)), cwd=tmp_path, capture_output=True, text=True, timeout=300,
                              env={**os.environ, "PYTHONWARNINGS": "ignore"})
        if "SystemError" not in done.stdout:
            break
    assert done.returncode == 0, done.stdout[-20000:] + done.stderr[-4000:]


def test_own_description(described, tmp_path):
    checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
    # Second names, and what a vocabulary without markers always refuses.
    twice = [flag for path in ("/completions", "/embeddings", "/v1/health", "/infill") for flag in ("--exclude-path", path)]
    run(tmp_path, ROOT / "docs" / "openapi.yaml", described.url, "--checks", checks, "--phases", "coverage,fuzzing", "--max-examples", 8, *twice)


@pytest.mark.skipif(not OPENAI.exists(), reason="OpenAI's description is not here")
def test_description_of_openai(described, tmp_path):
    paths = r"^/(completions|chat/completions|models|models/\{model\}|embeddings|responses|responses/.*)$"
    # Its fields have more values than the coverage phase gets through in minutes.
    run(tmp_path, OPENAI, described.url + "/v1", "--checks", "not_a_server_error", "--include-path-regex", paths, "--phases", "fuzzing",
        "--max-examples", 15)
