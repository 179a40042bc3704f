#!/usr/bin/env python3
"""`make eval-check`: lm-evaluation-harness runs `local-completions` on a small local task, offline, against a running server, and every
log-likelihood that it gets equals the one that `cohort score` gives for the same ids. Not in CI: the harness brings 800 MB of packages, which
it installs into build/eval-venv. Prints the task's accuracy from both, and the largest difference, which must be 0.

usage: eval_check.py [-m MODEL] [--python PYTHON WITH lm_eval]
"""
import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import urllib.request

from common import BUILD, ROOT, run

HARNESS = "lm_eval[api]==0.4.13"
NAME = "cohort_local"
YAML = """task: {name}
dataset_path: json
dataset_kwargs:
  data_files: {{"test": "{data}"}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{answer}}}}"
target_delimiter: " "
metric_list:
  - metric: acc
"""
FACTS = [("The capital of France is", ["Paris", "Berlin", "a kind of cheese", "Rome"]), ("Two plus two is", ["four", "nine", "blue", "seventeen"]),
         ("The opposite of hot is", ["cold", "warm", "table", "loud"]), ("Water freezes at zero degrees", ["Celsius", "Kelvin", "Sunday", "Paris"]),
         ("A week has seven", ["days", "months", "oceans", "years"]), ("The sun rises in the", ["east", "west", "fridge", "north"]),
         ("Bees make", ["honey", "steel", "milk", "paper"]), ("The first month of the year is", ["January", "June", "Friday", "winter"]),
         ("Shakespeare wrote", ["Hamlet", "Faust", "the Linux kernel", "Don Quixote"]), ("Ice is frozen", ["water", "sand", "air", "wood"]),
         ("A triangle has three", ["sides", "wheels", "moons", "legs"]), ("The largest planet is", ["Jupiter", "Mars", "the Moon", "Pluto"])]


def harness(given):
    if given:
        return given
    python = BUILD / "eval-venv" / "bin" / "python"
    if not python.exists():
        print(f"eval_check: installing {HARNESS} into {python.parents[1]}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", python.parents[1]], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", HARNESS], check=True)
    return python


def write_task(folder):
    """Answers in shuffled order, so that their place says nothing."""
    draw = random.Random(1)
    with open(folder / "docs.jsonl", "w", encoding="utf-8") as f:
        for question, choices in FACTS:
            order = draw.sample(range(len(choices)), len(choices))
            f.write(json.dumps({"question": question, "choices": [choices[i] for i in order], "answer": order.index(0)}) + "\n")
    (folder / f"{NAME}.yaml").write_text(YAML.format(name=NAME, data=folder / "docs.jsonl"))


class Server:
    def __init__(self, model):
        self.process = subprocess.Popen([BUILD / "cohort", "serve", "-m", model, "--port", "0", "-np", "8"], stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if "listening on " in line:
                self.url = line.split("listening on ")[1].strip()
                return
        sys.exit("eval_check: the server did not start")

    def ids(self, text):
        request = urllib.request.Request(self.url + "/tokenize", json.dumps({"prompt": text, "add_special_tokens": False}).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.load(reply)["tokens"]


def run_harness(python, url, folder):
    arguments = f"model=cohort,base_url={url}/v1/completions,tokenizer_backend=remote,num_concurrent=8,max_retries=1"
    done = subprocess.run([python, "-m", "lm_eval", "run", "--model", "local-completions", "--model_args", arguments, "--tasks", NAME,
                           "--include_path", folder, "--log_samples", "--output_path", folder / "out"], text=True, capture_output=True,
                          env={**os.environ, "HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "hf")})
    if done.returncode:
        sys.exit(f"eval_check: lm_eval ended with {done.returncode}:\n{done.stderr[-3000:]}")
    samples = [json.loads(line) for file in (folder / "out").rglob("samples_*.jsonl") for line in open(file, encoding="utf-8")]
    results = [json.load(open(file, encoding="utf-8"))["results"][NAME] for file in (folder / "out").rglob("results_*.json")]
    return samples, results[0]["acc,none"]


def score(model, server, context, continuation):
    """The harness cuts between context and continuation by the ids of the context alone; spaces go to the continuation."""
    whole, n = server.ids(context + continuation), len(server.ids(context))
    values = json.loads(run([BUILD / "cohort", "score", "-m", model, "--json", "--ids", ",".join(map(str, whole))]))["logprobs"]
    return sum(values[n - 1:len(whole) - 1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model")
    parser.add_argument("--python", type=pathlib.Path)
    args = parser.parse_args()
    model = args.model or run([sys.executable, ROOT / "scripts" / "fetch_model.py", "--path"]).strip()
    python = harness(args.python)
    server = Server(model)
    try:
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            write_task(folder)
            samples, accuracy = run_harness(python, server.url, folder)
        most, n, right = 0.0, 0, 0
        for sample in samples:
            ours = []
            for (context, continuation), (theirs, _) in zip(((a["arg_0"], a["arg_1"]) for a in sample["arguments"].values()), sample["filtered_resps"]):
                ours.append(score(model, server, context, continuation))
                most, n = max(most, abs(ours[-1] - float(theirs))), n + 1
            right += ours.index(max(ours)) == int(sample["target"])
    finally:
        server.process.terminate()
        server.process.wait()
    mine = right / len(samples)
    good = most == 0 and n == sum(len(choices) for _, choices in FACTS) and abs(mine - accuracy) < 1e-9
    print(f"eval_check: {n} log-likelihoods, largest difference {most:g}; accuracy {accuracy:.4f} by the harness, {mine:.4f} by cohort score: "
          f"{'ok' if good else 'FAILED'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
