#!/usr/bin/env python3
"""Everything that `make test` runs, step by step, closing with "N passed, N failed".

usage: test.py [STEP ...]     without names: all steps, in order
Each step's whole output goes to build/test-logs/STEP.log; of a failed one the end is printed.
"""
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
LOGS = ROOT / "build" / "test-logs"
JOBS = str(os.cpu_count() or 2)
PYTHON = str(ROOT / ".venv" / "bin" / "python")
VECTORS = ROOT.parent / "shared" / "vectors"
CROSS = pathlib.Path("/usr/aarch64-linux-gnu")
STEP_TIMEOUT_S = 1800
FUZZ_SECONDS = 60
TAIL_LINES = 60


class Step:
    def __init__(self, name, commands, count, needs=None, env=None):
        self.name, self.commands, self.count, self.needs, self.env = name, commands, count, needs or [], env or {}


def build(preset):
    return [["cmake", "--preset", preset], ["cmake", "--build", str(ROOT / folder(preset)), "--", "-j" + JOBS]]


def folder(preset):
    return "build" if preset == "release" else "build-" + preset


def ctest(preset, *more):
    return [["ctest", "--test-dir", str(ROOT / folder(preset)), "--output-on-failure", "-j", JOBS, *more]]


API = ROOT / "tests" / "api"
# What a larger model can show something by; the others take the tiny one, if it is there.
WHOLE = ["test_answers.py", "test_company.py", "test_streams.py", "test_cli.py", "test_plan.py", "test_whole_tools_openai.py", "test_whole_tools_anthropic.py"]


def pytest(*names):
    return [[PYTHON, "-m", "pytest", "-q", "--maxfail=10", "-p", "no:cacheprovider", *(str(API / name) for name in names or ["."])]]


def templates():
    """Chat templates against jinja2, after they are fetched."""
    return [["scripts/templates.sh"], [PYTHON, "-m", "pytest", "-q", "--maxfail=10", "-p", "no:cacheprovider", str(ROOT / "tests" / "templates")]]


def fuzz():
    """A minute, divided between the targets."""
    targets = sorted((ROOT / "fuzz").glob("fuzz_*.c"))
    seconds = max(1, FUZZ_SECONDS // max(1, len(targets)))
    script = "set -e\n"
    for target in targets:
        name = target.stem
        corpus = ROOT / "fuzz" / "corpus" / name.removeprefix("fuzz_")
        script += (f"mkdir -p build-fuzz/found/{name}\n"
                   f"build-fuzz/fuzz/{name} -max_total_time={seconds} -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 "
                   f"-artifact_prefix=build-fuzz/found/ build-fuzz/found/{name} {corpus if corpus.exists() else ''}\n"
                   f"echo 'fuzz target passed: {name}'\n")
    return [["bash", "-c", script]]


def same_bytes():
    """What the models give here and on an emulated ARM."""
    script = ("set -eu\n"
              f"mkdir -p {LOGS} && cd {LOGS}\n"
              f"{ROOT}/build/tests/vectors/print_bytes >bytes-native\n"
              f"qemu-aarch64-static -L {CROSS} {ROOT}/build-aarch64/tests/vectors/print_bytes >bytes-aarch64\n"
              "diff bytes-native bytes-aarch64\n"
              "sed 's/^/same bytes: /' bytes-aarch64\n")
    return [["bash", "-c", script]]


def one(text):
    return 1, 0


def count_ctest(text):
    found = re.search(r"(\d+) tests? failed out of (\d+)", text)
    return (int(found[2]) - int(found[1]), int(found[1])) if found else (0, 1)


def count_pytest(text):
    last = text.strip().splitlines()[-1] if text.strip() else ""
    passed, failed, errors = (re.search(r"(\d+) " + word, last) for word in ("passed", "failed", "error"))
    return int(passed[1]) if passed else 0, (int(failed[1]) if failed else 0) + (int(errors[1]) if errors else 0)


def count_bytes(text):
    return text.count("same bytes: "), 0


def count_fuzz(text):
    return text.count("fuzz target passed: "), 0


SANITIZERS = {"ASAN_OPTIONS": "detect_stack_use_after_return=1:abort_on_error=0", "UBSAN_OPTIONS": "print_stacktrace=1",
              "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1"}
TINY_MODEL = {"COHORT_TEST_MODEL": str(VECTORS / "gemma3" / "model.gguf")} if VECTORS.exists() else {}
TINY = {**SANITIZERS, "COHORT_BIN": str(ROOT / "build-asan" / "cohort"), **TINY_MODEL}

STEPS = [
    Step("build", build("release"), one),
    Step("unit", ctest("release"), count_ctest),
    Step("templates", templates(), count_pytest, env={"PYTHON": PYTHON}),
    Step("api-whole", pytest(*WHOLE), count_pytest),
    Step("api", pytest(*sorted(p.name for p in API.glob("test_*.py") if p.name not in WHOLE)), count_pytest, env=TINY_MODEL),
    Step("check", [["scripts/check.sh"]], one),
    Step("asan-build", build("asan"), one),
    Step("asan-unit", ctest("asan", "-LE", "slow"), count_ctest, env=SANITIZERS),
    Step("asan-api", pytest(), count_pytest, needs=[VECTORS], env=TINY),
    Step("tsan-build", [["cmake", "--preset", "tsan"], ["cmake", "--build", "build-tsan", "--target", "tsan_tests", "--", "-j" + JOBS]], one),
    Step("tsan", ctest("tsan", "-L", "tsan"), count_ctest, env=SANITIZERS),
    Step("clang-build", build("clang"), one),
    Step("aarch64-build", [["scripts/arm64_sysroot.sh", "build-aarch64/sysroot"], *build("aarch64")], one, needs=[CROSS]),
    Step("aarch64-kernels", ctest("aarch64", "-R", "^(kernels_.*|vectors_few|vectors_weights)$"), count_ctest, needs=[CROSS]),
    Step("aarch64-bytes", same_bytes(), count_bytes, needs=[CROSS, VECTORS]),
    Step("fuzz-build", build("fuzz"), one),
    Step("fuzz", fuzz(), count_fuzz),
]


def run(step):
    begin = time.monotonic()
    output, code = "", 0
    for command in step.commands:
        try:
            done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                                  timeout=STEP_TIMEOUT_S, env={**os.environ, **step.env}, stdin=subprocess.DEVNULL)
            output += done.stdout
            code = done.returncode
        except subprocess.TimeoutExpired as expired:
            output += (expired.stdout or b"").decode(errors="replace") + f"\n{command[0]}: no end after {STEP_TIMEOUT_S} s\n"
            code = 124
        if code:
            break
    passed, failed = step.count(output) if code == 0 or step.count is not one else (0, 1)
    if code and not failed:
        failed = 1
    LOGS.mkdir(parents=True, exist_ok=True)
    (LOGS / (step.name + ".log")).write_text(output)
    print(f"{step.name:15} {passed:5} passed {failed:4} failed  {time.monotonic() - begin:6.0f} s", flush=True)
    if failed:
        print("\n".join(output.splitlines()[-TAIL_LINES:]), flush=True)
    return passed, failed


def main():
    names = sys.argv[1:]
    unknown = set(names) - {step.name for step in STEPS}
    if unknown:
        print(f"test: no step {', '.join(sorted(unknown))}; there are {', '.join(step.name for step in STEPS)}", file=sys.stderr)
        return 2
    passed = failed = skipped = 0
    for step in STEPS:
        if names and step.name not in names:
            continue
        missing = [path.name for path in step.needs if not path.exists()]
        if missing:
            print(f"{step.name:15} skipped: {', '.join(missing)} is not at hand", flush=True)
            skipped += 1
            continue
        p, f = run(step)
        passed, failed = passed + p, failed + f
        if f and step.name == "build":
            break
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
