"""Small templates made at random from a grammar: every operator, filter, test and method, over a fixed set of values."""
import random

VALUES = {"s": "Hello World", "e": "", "u": "Straße İ ǆ 世界 é🎉", "w": "  a b\t c\n", "d": {"a": 1, "b": [1, 2], "ö": None, "items": "shadow"},
          "l": [3, 1, 2], "m": ["b", "A", "a", "C"], "n": None, "t": True, "f": False, "i": 7, "z": 0, "x": -3, "r": 2.5, "q": 1e100, "h": "<b>\"x\" & 'y'</b>",
          "o": [{"k": "v", "n": 2, "p": {"q": 1}}, {"k": "U", "n": 1}, {"k": "u", "n": None}], "deep": {"x": {"y": [{"z": "end"}]}},
          "g": [1, "1", 1.0, True, None, [], {}], "c": "one,two,,three", "num": "42", "fl": " 3.25 ", "b": "a-b_c d", "long": "The quick brown fox jumps over it. " * 4,
          "p": "%s and %s", "fmt": "{} {x} {0}", "y": [[1, 2], [3, 4]], "ml": "one\n\n two\nthree\n"}
NAMES = list(VALUES) + ["missing"]
LITERALS = ["1", "0", "-1", "2", "3", "10", "1.5", "0.0", "-2.5", "1e3", "100000", "''", "'a'", "'o'", "' '", "'é'", "','", "'ab' 'c'", "\"x'y\"", "'\\n\\t\\\\'", "true", "false",
            "none", "[]", "[1, 2, 3]", "['a', 'b']", "()", "(1,)", "(1, 'x')", "{}", "{'a': 1}", "{'k': [1], 2: 'z'}", "'%d items'", "'%5.2f|'", "'%-6s|'", "'{:>8}'"]
BINARY = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]
FILTERS = ["abs", "capitalize", "center(%i)", "count", "length", "default(%e)", "d(%e, true)", "dictsort", "dictsort(false, 'value')", "dictsort(reverse=true)",
           "escape", "e", "filesizeformat", "filesizeformat(true)", "first", "last", "float", "float(%e)", "forceescape", "format(%e)", "format(%e, %e)",
           "groupby('k')", "groupby('n', default=0)", "indent", "indent(%i)", "indent(2, true)", "indent('>', true, true)", "int", "int(%e)", "int(base=16)", "join", "join(%s)",
           "join(', ', attribute='k')", "list", "lower", "map('upper') | list", "map(attribute='k') | list", "map(attribute='n', default=9) | join('-')", "map('default', 'zz') | list",
           "map(attribute='p.q') | list", "max", "min", "max(attribute='n')", "min(case_sensitive=true)", "reject | list", "reject('none') | list", "select | list", "select('string') | list",
           "select('gt', 1) | list", "rejectattr('n') | list", "selectattr('n') | list", "selectattr('k', 'equalto', 'v') | list", "selectattr('n', 'defined') | list",
           "selectattr('k', 'in', ['v', 'u']) | list", "replace(%s, %s)", "replace(%s, %s, %i)", "reverse", "reverse | list", "round", "round(%i)", "round(1, 'floor')", "round(method='ceil')",
           "safe", "slice(2) | list", "slice(3, 'f') | list", "batch(2) | list", "batch(2, 'f') | list", "sort", "sort(true)", "sort(attribute='k')", "sort(case_sensitive=true)", "string",
           "striptags", "sum", "sum(attribute='n')", "sum(start=10)", "title", "tojson", "tojson(indent=2)", "tojson(ensure_ascii=true)", "tojson(separators=(',', ':'), sort_keys=true)", "trim", "trim(%s)",
           "truncate(%i)", "truncate(9, true)", "truncate(12, false, '..', 0)", "unique | list", "unique(attribute='k') | list", "upper", "urlencode", "wordcount", "wordwrap(%i)", "wordwrap(10, false)",
           "xmlattr", "items | list", "attr('upper')", "attr('a')", "list | length", "map('length') | list", "map('int') | sum", "string | length", "join | upper"]
TESTS = ["odd", "even", "divisibleby(3)", "divisibleby 2", "defined", "undefined", "none", "boolean", "false", "true", "integer", "float", "lower", "upper", "string", "mapping", "number",
         "sequence", "iterable", "callable", "sameas(none)", "escaped", "in [1, 2, 'a']", "eq(%e)", "ne(%e)", "lt(%e)", "ge(%e)", "equalto %e", "filter", "test", "not defined", "not none", "gt 1"]
METHODS = ["upper()", "lower()", "title()", "capitalize()", "swapcase()", "casefold()", "strip()", "lstrip()", "rstrip()", "strip(%s)", "lstrip(%s)", "rstrip(%s)", "split()", "split(%s)", "split(%s, 1)",
           "rsplit(%s, 1)", "rsplit(none, 1)", "split(none, 2)", "split(sep=',', maxsplit=2)", "splitlines()", "splitlines(true)", "partition(%s)", "rpartition(%s)", "startswith(%s)", "endswith(%s)",
           "startswith(('H', 'x'))", "find(%s)", "rfind(%s)", "index(%s)", "count(%s)", "count(%s, 2)", "find(%s, 1, 5)", "find('')", "rfind('')", "replace(%s, %s)", "replace(%s, %s, 1)", "join(%e)", "join(['p', 'q'])",
           "ljust(%i)", "rjust(%i, '*')", "center(%i, '-')", "zfill(%i)", "expandtabs()", "isalpha()", "isdigit()", "isalnum()", "isspace()", "isupper()", "islower()", "istitle()", "isnumeric()", "isdecimal()",
           "isidentifier()", "isascii()", "isprintable()", "removeprefix(%s)", "removesuffix(%s)", "format(%e, %e)", "format(%e, x=%e)", "items() | list", "keys() | list", "values() | list", "get(%e)", "get('a', %e)", "get('k')",
           "copy()", "count(%e)", "index(%e)", "append(1)", "pop()", "update({})", "bit_length()", "is_integer()", "a", "b", "k", "x.y", "x.y[0].z", "__class__", "real", "keys()", "items()", "values()"]
FORMATS = ["%5d|", "%-5s|", "%05.1f", "%x", "%#x", "%+d", "%e", "%g", "%r", "%s", "%c", "%%", "%o", "%.3s|", "% d", "%10.3e|", "%i", "%G", "%(a)s", "%(b)r %%", "%*d", "%X"]
SPECS = ["", ":>8", ":<8|", ":^9", ":*^9", ":05d", ":+d", ":,", ":_", ":.2f", ":e", ":g", ":%", ":x", ":#x", ":b", ":o", ":c", ":s", ":.3", ":10.4f", ":08.3f", ":=+8", "!r", "!s", "!r:>10", ":>{1}", ":,.2f", ":n", ":.0f", ":#b", ":012,", ":.1%"]


STRINGS = ["s", "e", "u", "w", "h", "c", "num", "fl", "b", "long", "p", "ml", "'Abc'", "'é'", "deep.x.y[0].z"]
LISTS = ["l", "m", "g", "y", "[1, 2, 3]", "['b', 'a']", "range(5)", "s", "d", "(3, 'x')", "c.split(',')", "d.keys()", "u", "o", "d.values()", "l | reverse | list", "m | map('lower') | list"]
NUMBERS = ["i", "z", "x", "r", "q", "1", "2.5", "-7", "0.1", "1e16", "12345678", "t", "num | int", "1e-5", "l[0]"]
MAPPINGS = ["d", "deep", "o[0]", "{'b': 1, 'A': 2}", "deep.x"]
OBJECTS = ["o", "[{'k': 'a', 'n': 3}, {'k': 'B', 'n': 1}, {'k': 'b', 'n': 2}]", "[{'k': 'q', 'n': 5, 'p': {'q': 2}}]"]


def matching(names, table):
    return [f for f in table if f.split("(")[0].split(" ")[0] in names]


TEXT_FILTERS = matching({"capitalize", "center", "escape", "e", "forceescape", "indent", "length", "lower", "replace", "reverse", "safe", "string", "striptags", "title", "tojson", "trim", "truncate",
                         "upper", "urlencode", "wordcount", "wordwrap", "int", "float", "list", "first", "last", "default", "sort", "unique", "join"}, FILTERS)
LIST_FILTERS = matching({"batch", "first", "last", "length", "count", "join", "list", "max", "min", "reject", "select", "reverse", "slice", "sort", "string", "tojson", "unique", "map", "default"}, FILTERS)
LIST_FILTERS = [f for f in LIST_FILTERS if "attribute" not in f]
NUMBER_FILTERS = matching({"abs", "filesizeformat", "float", "int", "round", "string", "tojson", "default"}, FILTERS)
OBJECT_FILTERS = [f for f in FILTERS if "attr" in f or "groupby" in f or "'k'" in f or f in ("tojson", "first", "length", "tojson(indent=2)")]
MAPPING_FILTERS = matching({"dictsort", "items", "list", "length", "tojson", "xmlattr", "urlencode", "first", "join", "string", "attr"}, FILTERS)
MAPPING_METHODS = matching({"items()", "items", "keys", "values", "get", "copy", "update", "a", "b", "k", "pop", "x"} | {"x.y", "x.y[0].z", "keys()", "values()"}, METHODS)
TEXT_METHODS = [m for m in METHODS if m not in MAPPING_METHODS]


class Maker:
    def __init__(self, seed):
        self.rng = random.Random(seed)

    def fill(self, pattern, depth):
        out = pattern
        while "%" in out and any(k in out for k in ("%e", "%s", "%i")):
            at = min(k for k in (out.find("%e"), out.find("%s"), out.find("%i")) if k >= 0)
            kind = out[at + 1]
            part = {"e": lambda: self.expression(depth - 1), "s": lambda: self.rng.choice(["'o'", "'l'", "','", "' '", "''", "'ab'", "'é'", "s", "'<'", "'\\n'"]),
                    "i": lambda: self.rng.choice(["0", "1", "3", "12", "20", "-2"])}[kind]()
            out = out[:at] + part.replace("%", "\0") + out[at + 2:]
        return out.replace("\0", "%")

    def text(self, depth):
        """Mostly a string."""
        rng = self.rng
        if depth <= 0 or rng.random() < 0.1:
            return rng.choice(STRINGS)
        base = f"({self.text(depth - 1)})"
        kind = rng.randrange(7)
        if kind < 2:
            return f"{base} | {self.fill(rng.choice(TEXT_FILTERS), 1)}"
        if kind < 4:
            return f"{base}.{self.fill(rng.choice(TEXT_METHODS), 1)}"
        if kind == 4:
            return f"{rng.choice(STRINGS)}[{self.slice(depth)}]"
        if kind == 5:
            return f"({base} {rng.choice(['+', '~', '%', '==', '<', 'in', '*'])} {rng.choice([base, self.text(0), '2', self.atom()])})"
        return f"('{rng.choice(FORMATS)}' % {self.number(depth - 1)})"

    def list(self, depth):
        rng = self.rng
        if depth <= 0:
            return rng.choice(LISTS)
        return rng.choice([f"({self.list(depth - 1)}) | {self.fill(rng.choice(LIST_FILTERS), 1)}", f"({rng.choice(OBJECTS)}) | {self.fill(rng.choice(OBJECT_FILTERS), 1)}",
                           f"l[{self.slice(depth)}]", f"(l + {rng.choice(['l', '[9]', 'y'])})", f"{rng.choice(MAPPINGS)} | {self.fill(rng.choice(MAPPING_FILTERS), 1)}",
                           f"({rng.choice(MAPPINGS)}).{self.fill(rng.choice(MAPPING_METHODS), 1)}", f"({self.list(depth - 1)} == {self.list(depth - 1)})",
                           f"({self.list(depth - 1)})[{rng.choice(['0', '-1', '1', '9'])}]", f"({self.list(depth - 1)}) is {self.fill(rng.choice(TESTS), 1)}"])

    def number(self, depth):
        rng = self.rng
        if depth <= 0:
            return rng.choice(NUMBERS)
        return rng.choice([f"({self.number(depth - 1)}) | {self.fill(rng.choice(NUMBER_FILTERS), 1)}", f"(({self.number(depth - 1)}) {rng.choice(BINARY[:5] + BINARY[7:])} {self.number(depth - 1)})", f"({rng.choice(NAMES)} ** {rng.choice(NUMBERS)})",
                           f"({self.number(depth - 1)}) is {self.fill(rng.choice(TESTS), 1)}", f"'{{0{rng.choice(SPECS)}}}'.format({self.number(depth - 1)}, 12)",
                           f"('{rng.choice(FORMATS)}' % {self.number(depth - 1)})", f"-({self.number(depth - 1)})"])

    def atom(self):
        return self.rng.choice(NAMES) if self.rng.random() < 0.6 else self.rng.choice(LITERALS)

    def slice(self, depth):
        parts = [self.rng.choice(["", "", "0", "1", "-1", "2", "-2", "5", "none"]) for _ in range(self.rng.choice([2, 2, 3]))]
        return ":".join(parts)

    def expression(self, depth):
        rng = self.rng
        if depth <= 0:
            return self.atom()
        if rng.random() < 0.6:
            return rng.choice([self.text, self.text, self.list, self.number])(depth)
        kind = rng.randrange(16)
        if kind < 4:
            return f"{self.wrapped(depth)} | {self.fill(rng.choice(FILTERS), depth)}"
        if kind < 7:
            return f"{self.wrapped(depth)}.{self.fill(rng.choice(METHODS), depth)}"
        if kind < 9:
            left = self.expression(depth - 1)
            # jinja2 writes a negative constant in front of ** without parentheses, so that Python negates the power.
            operators = BINARY if not left.startswith("-") else ["+", "-", "*"]
            return f"({left} {rng.choice(operators)} {self.expression(depth - 1)})"
        if kind == 9:
            return f"{self.wrapped(depth)} is {self.fill(rng.choice(TESTS), depth)}"
        if kind == 10:
            return f"{self.wrapped(depth)}[{self.expression(depth - 1)}]"
        if kind == 11:
            return f"({self.expression(depth - 1)} if {self.expression(depth - 1)}{' else ' + self.expression(depth - 1) if rng.random() < 0.8 else ''})"
        if kind == 12:
            return rng.choice([f"[{self.expression(depth - 1)}, {self.expression(depth - 1)}]", f"{{'a': {self.expression(depth - 1)}}}",
                               f"({self.expression(depth - 1)}, {self.expression(depth - 1)})", f"range({rng.randint(-2, 6)}) | list", f"dict(a={self.expression(depth - 1)})"])
        if kind == 13:
            return f"(not {self.expression(depth - 1)})" if rng.random() < 0.5 else f"-{self.wrapped(depth)}"
        if kind == 14:
            return f"('{rng.choice(FORMATS)}' % {self.wrapped(depth)})"
        return f"'{{0{rng.choice(SPECS)}}}'.format({self.expression(depth - 1)}, {rng.choice(['6', '3', '10'])})"

    def wrapped(self, depth):
        inner = self.expression(depth - 1)
        return inner if inner.isalnum() else f"({inner})"

    def statements(self, depth):
        rng, e = self.rng, lambda: self.expression(rng.randrange(3))
        space = rng.choice(["", " ", "\n", "\n  ", "text ", "  \n"])
        inner = (lambda: self.statements(depth - 1)) if depth > 0 else (lambda: "{{ " + e() + " }}")
        begin, end = rng.choice(["{%", "{%", "{%-", "{%+"]), rng.choice(["%}", "%}", "-%}", "+%}"])
        tag = lambda text: f"{begin} {text} {end}"
        name = rng.choice(["v", "k", "s", "i", "ns"])
        kind = rng.randrange(15)
        body = {
            0: lambda: tag(f"if {e()}") + inner() + tag(f"elif {e()}") + inner() + tag("else") + inner() + tag("endif"),
            1: lambda: tag(f"for {name} in {e()}") + "{{ loop.index }}{{ " + name + " }}" + inner() + tag("else") + "none" + tag("endfor"),
            2: lambda: tag(f"for k, v in {rng.choice(['d.items()', 'd | dictsort', 'y', 'o', 'd | items'])}") + "{{ k }}={{ v }}{{ ',' if not loop.last }}" + inner() + tag("endfor"),
            3: lambda: tag(f"set {name} = {e()}") + "{{ " + name + " }}" + inner(),
            4: lambda: tag(f"set {name}") + inner() + tag("endset") + "[{{ " + name + " }}]",
            5: lambda: tag("set ns = namespace(n=0, t='')") + tag(f"for i in {rng.choice(['l', 'm', 's', 'range(4)', 'g'])} if {rng.choice(['i', 'ns.n < 3', 'true', 'i != 1'])}") +
            tag(f"set ns.n = ns.n + 1") + tag("set ns.t = ns.t ~ i") + inner() + tag("endfor") + "{{ ns.n }}{{ ns.t }}",
            6: lambda: tag(f"macro mac(a, b={e()}, c='z')") + "{{ a }}|{{ b }}|{{ c }}{{ varargs }}{{ kwargs }}" + inner() + tag("endmacro") + "{{ " + rng.choice(["mac(1)", "mac()", "mac(1, 2, 3, 4)", "mac(c=s, q=1)", "mac(*l)", "mac(**{'a': i})"]) + " }}",
            7: lambda: tag(f"filter {rng.choice(['upper', 'trim', 'indent(2)', 'replace(' + chr(39) + 'a' + chr(39) + ', ' + chr(39) + 'bb' + chr(39) + ')', 'length', 'title | reverse'])}") + inner() + tag("endfilter"),
            8: lambda: tag(f"with {name} = {e()}, w2 = {name}") + "{{ w2 }}" + inner() + tag("endwith") + "{{ " + name + " }}",
            9: lambda: tag(f"for {name} in {rng.choice(['l', 'm', 'o', 'g'])}") + tag(f"if {e()}") + tag(rng.choice(["break", "continue"])) + tag("endif") + inner() + tag("else") + "E" + tag("endfor"),
            10: lambda: tag("macro dec()") + "<{{ caller(" + rng.choice(["", "1", "s"]) + ") }}>" + tag("endmacro") + tag(rng.choice(["call dec()", "call(q) dec()", "call(q='d') dec()"])) + inner() + "{{ q }}" + tag("endcall"),
            11: lambda: tag("for i in [[1, [2, [3]]], [4]] recursive") + "{{ loop.depth }}:" + "{{ loop(i) if i is iterable else i }}" + tag("endfor"),
            12: lambda: "{% raw %}{{ x }}{%- endraw %}" + inner() + "{#- a comment -#}  \n",
            13: lambda: tag(f"for i in {rng.choice(['l', 'o', 'm'])}") + "{{ loop." + rng.choice(["first", "last", "index0", "revindex", "length", "previtem", "nextitem", "cycle('a', 'b')", "changed(i)", "depth0", "revindex0"]) + " }}" + inner() + tag("endfor"),
            14: lambda: tag("generation") + inner() + tag("endgeneration") + "{{- s -}} \n {{+ e +}}".replace("+}}", "}}"),
        }[kind]()
        return space + body + rng.choice(["", " ", "\n", "\n\n", " \n x"])

    def template(self):
        if self.rng.random() < 0.6:
            return "{{ " + self.expression(self.rng.choice([1, 2, 2, 3])) + " }}"
        return self.statements(self.rng.randrange(3))


def templates(n, seed=1):
    maker = Maker(seed)
    return [maker.template() for _ in range(n)]
