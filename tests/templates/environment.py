"""jinja2 as the makers of models test their chat templates with it, and the tool that is compared with it."""
import datetime
import json
import os
import pathlib
import subprocess

import jinja2
import jinja2.ext
import jinja2.sandbox

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = os.environ.get("COHORT_JINJA_TOOL", str(ROOT / "build" / "jinja_tool"))
NOW = 1790000000


class Raised(Exception):
    """What a template said by raise_exception."""


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise Raised(message)


def strftime_now(form):
    return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).replace(tzinfo=None).strftime(form)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                       extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    del env.globals["lipsum"]
    return env


ENVIRONMENT = environment()


def parsed(text):
    """The template, or the answer in its place."""
    try:
        return ENVIRONMENT.from_string(text), None
    except Exception as bad:
        return None, {"error": "parse", "message": str(bad)}


def rendered(template, variables):
    try:
        return {"text": template.render(**json.loads(json.dumps(variables)))}
    except Raised as raised:
        return {"error": "raised", "message": str(raised.args[0])}
    except Exception as bad:
        return {"error": "render", "message": f"{type(bad).__name__}: {bad}"}


class Tool:
    def __enter__(self):
        self.process = subprocess.Popen([TOOL], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()

    def ask(self, variables, template=None, marks=None):
        line = {"variables": {name: json.dumps(value) for name, value in variables.items()}, "now": NOW}
        if template is not None:
            line["template"] = template
        if marks is not None:
            line["marks"] = marks
        self.process.stdin.write(json.dumps(line).encode() + b"\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, "the tool is gone"
        return json.loads(answer)


def same(ours, theirs):
    """Equal texts; errors on both sides, with equal words where the template itself says them."""
    if "text" in theirs or "text" in ours:
        return ours.get("text") == theirs.get("text") and ("text" in ours) == ("text" in theirs)
    if "raised" in (ours["error"], theirs["error"]):
        said = " ".join(theirs["message"].replace("\x7f", " ").split())
        return ours["error"] == theirs["error"] and " ".join(ours["message"].split())[:400] == said[:400]
    return True
