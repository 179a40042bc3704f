"""llama.cpp's programs as the peer: llama-batched-bench at the flags that a short sweep finds best on this machine."""
import itertools
import os
import pathlib
import sys

import common

SWEEP_ROWS, SWEEP_DECODE = 8, 12
LARGE = 3e8  # weights per token from which the sweep's prompt is shorter
TRIES = 8
START = 16  # tokens of prompt before decoding, as in `cohort bench`


def threads():
    """Numbers of threads worth trying: every CPU, and every second one where they may be halves of cores."""
    cpus = len(os.sched_getaffinity(0))
    return [cpus] if cpus < 4 else [cpus, cpus // 2]


class Peer:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.flags = {}

    def there(self):
        return (self.folder / "llama-batched-bench").exists()

    def _batched(self, model, flags, prompt, decode, rows):
        context = rows * (prompt + decode) + 256
        command = [self.folder / "llama-batched-bench", "-m", model.path, "-c", context, "-b", 2048, "-npp", prompt, "-ntg",
                   decode, "-npl", rows, "--output-format", "jsonl", *flags]
        for _ in range(TRIES):  # it sometimes ends well before its own log thread has printed the result
            if found := common.objects(common.run(command)):
                return found[-1]
        sys.exit("llama-batched-bench printed no result: " + " ".join(map(str, command)))

    def prompt(self, model, tokens):
        return self._batched(model, self.flags["prompt"], tokens, 1, 1)["speed_pp"]

    def decode(self, model, rows, tokens):
        return self._batched(model, self.flags["decode"], START, tokens, rows)["speed_tg"]

    def sweep(self, model, quick):
        """Finds the best flags for prompts and for decoding; what was tried and how fast it was. Quick: takes likely ones."""
        if quick:
            self.flags = {kind: ["-t", threads()[0], "-fa", "on"] for kind in ("prompt", "decode")}
            return []
        tried = []
        sizes = (256, 512) if model.block_macs > LARGE else (256, 512, 1024)
        for t, fa, ub in itertools.product(threads(), ("on", "off"), sizes):
            flags = ["-t", t, "-fa", fa, "-ub", ub]
            tried.append(("prompt", flags, self._batched(model, flags, sizes[-1], 1, 1)["speed_pp"]))
        for t, fa, repack in itertools.product(threads(), ("on", "off"), ("--repack", "--no-repack")):
            flags = ["-t", t, "-fa", fa, repack]
            tried.append(("decode", flags, self._batched(model, flags, START, SWEEP_DECODE, SWEEP_ROWS)["speed_tg"]))
        for kind in ("prompt", "decode"):
            self.flags[kind] = max((item for item in tried if item[0] == kind), key=lambda item: item[2])[1]
        return tried

    def server_flags(self):
        """For llama-server: what is best for decoding, with the batch size that is best for prompts."""
        prompt = self.flags["prompt"]
        return self.flags["decode"] + (prompt[prompt.index("-ub"):][:2] if "-ub" in prompt else [])

    def flags_text(self, kind):
        return " ".join(map(str, self.flags[kind]))
