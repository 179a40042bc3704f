"""Schemas to try: those of JSON-Schema-Test-Suite, if it is at hand, and generated ones, each from its number alone."""
import json
import random
import string

import jsonschema
import referencing
import referencing.jsonschema

from conftest import ROOT

SUITE = ROOT.parent / "shared" / "data" / "JSON-Schema-Test-Suite"
DRAFTS = {"draft7": jsonschema.Draft7Validator, "draft2020-12": jsonschema.Draft202012Validator}
PATTERNS = ["^[a-z]{2,5}$", "^[A-Z][a-z]{1,6}$", "^(yes|no)$", "^[0-9]{3}-[0-9]{2}$", r"^\d{1,3}(\.\d{1,2})?$", "^a*b$", "^[^x]{1,4}$", "^.{2,6}$"]
DEPTH = 4


def suite():
    """[(where, draft, schema)] of every group; optional ones, too."""
    found = []
    for draft in DRAFTS:
        for file in sorted((SUITE / "tests" / draft).rglob("*.json")):
            if file.stem in ("ecmascript-regex", "bignum"):
                continue  # Python's \s and \W are not ECMAScript's; bodies have no integers of more than 64 bits
            for group in json.loads(file.read_text(encoding="utf-8")):
                found.append((f"{draft}/{file.stem}: {group['description']}", draft, group["schema"]))
    return found


def registry():
    """What the suite's schemas refer to from afar."""
    resources = []
    for file in sorted((SUITE / "remotes").rglob("*.json")):
        contents = json.loads(file.read_text(encoding="utf-8"))
        uri = "http://localhost:1234/" + str(file.relative_to(SUITE / "remotes"))
        kind = referencing.jsonschema.DRAFT7 if "draft7" in uri else referencing.jsonschema.DRAFT202012
        resources.append((uri, referencing.Resource.from_contents(contents, default_specification=kind)))
    return referencing.Registry().with_resources(resources)


def generated(number):
    """A schema that some value follows, with bounded strings, arrays and numbers, and definitions that may refer to themselves."""
    rng = random.Random(number)
    names = ["node", "leaf"] if rng.random() < 0.4 else []
    schema = value(rng, DEPTH, names)
    if rng.random() < 0.8 and schema.get("type") != "object":
        schema = {"type": "object", "properties": {"value": schema}, "required": ["value"], "additionalProperties": False}
    if names:
        node = {"type": "object", "properties": {"leaf": {"$ref": "#/$defs/leaf"}, "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]}},
                "required": ["leaf"], "additionalProperties": False}
        schema["$defs"] = {"node": node, "leaf": value(rng, 0, [])}
    if rng.random() < 0.3:
        schema.update(title="T", description='Says "so", \\ and so on', examples=[1])
    return schema


def value(rng, depth, names):
    kinds = ["string", "pattern", "integer", "number", "boolean", "null", "enum", "const"]
    if depth:
        kinds += ["object"] * 5 + ["array"] * 3 + ["anyOf", "tuple"] + ["ref"] * (2 if names else 0)
    kind = rng.choice(kinds)
    if kind == "string":
        low = rng.randrange(0, 4)
        return {"type": "string", "minLength": low, "maxLength": low + rng.randrange(0, 6)}
    if kind == "pattern":
        return {"type": "string", "pattern": rng.choice(PATTERNS)}
    if kind in ("integer", "number"):
        low = rng.randrange(-200, 200)
        limits = [("minimum", low), ("maximum", low + rng.randrange(1, 300))]
        if rng.random() < 0.3:
            limits = [("exclusiveMinimum", low), ("exclusiveMaximum", low + rng.randrange(2, 300))]
        return {"type": kind, **dict(limits if rng.random() < 0.8 else limits[:1])}
    if kind in ("boolean", "null"):
        return {"type": kind}
    if kind == "enum":
        return {"enum": rng.sample(["a", "ä", "\"", "\\", "", 0, -1.5, 10 ** 6, True, None, [1, "x"], {"k": [None]}], rng.randrange(1, 5))}
    if kind == "const":
        return {"const": rng.choice(["x y", 12, None, {"a": {"b": []}}, [False]])}
    if kind == "anyOf":
        return {rng.choice(["anyOf", "anyOf", "oneOf"]): [{"type": "null"}, value(rng, depth - 1, names)]} if rng.random() < 0.5 else {
            "anyOf": [value(rng, depth - 1, names) for _ in range(rng.randrange(1, 4))]}
    if kind == "tuple":
        items = [value(rng, depth - 1, names) for _ in range(rng.randrange(1, 4))]
        return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items)}
    if kind == "array":
        low = rng.randrange(0, 3)
        return {"type": "array", "items": value(rng, depth - 1, names), "minItems": low, "maxItems": low + rng.randrange(0, 3)}
    if kind == "ref":
        return {"$ref": "#/$defs/" + rng.choice(names)}
    keys = ["".join(rng.choice(string.ascii_letters + " _-é\"") for _ in range(rng.randrange(1, 7))) for _ in range(rng.randrange(0, 5))]
    properties = {key: value(rng, depth - 1, names) for key in keys}
    found = {"type": "object", "properties": properties, "required": [key for key in properties if rng.random() < 0.7]}
    if rng.random() < 0.8:
        found["additionalProperties"] = False
    elif rng.random() < 0.5:
        found["additionalProperties"] = {"type": "integer", "minimum": 0, "maximum": 9}
    return found
