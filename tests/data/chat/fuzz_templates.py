#!/usr/bin/env python3
"""Compares our chat templates with jinja2 on random programs, by hand:

  ninja -C build chat_render_lines
  tests/data/chat/fuzz_templates.py --programs 20000 [--seed 1]

Each program is made from the grammar below, over fixed messages. Texts must be
equal, errors of one kind. What we refuse as unsupported is counted, by message.
Needs jinja2 3.1.6 (reference.py). Exits with 1 if anything differs.
"""

import argparse
import collections
import json
import pathlib
import random
import re
import subprocess
import sys
import warnings

import reference

ROOT = pathlib.Path(__file__).parents[3]

MESSAGES = [
    {"role": "system", "content": " Be Good. "},
    {"role": "user", "content": "Héllo <|x|>\n'wörld' ǆ ß", "n": 3,
     "tags": ["b", "A", "c", "a"]},
    {"role": "assistant", "content": None, "f": 2.5, "ok": True,
     "calls": [{"name": "f", "args": {"x": 1, "y": [1, 2.0, "z"]}}]},
    {"role": "tool", "content": ["p", {"type": "text", "text": "q"}], "n": -1},
]
NAMES = ["messages", "m", "x", "y", "i", "ns", "tools", "nope", "loop",
         "bos_token", "tree", "f", "g"]
EXTRA = {"tree": {"a": {"b": [1, {"c": "d"}]}, "items": [1], "k": "v"},
         "x": 7, "y": "why Not"}
STRINGS = ["", "a", "A b", " x\\n", "content", "role", "é", "ab,cd,ab", "%s-%d",
           "n", "\\t<|im_end|>", "0", "12", "1.50", "ΑΣ", "ß-up"]
FILTERS = ["abs", "capitalize", "count", "default", "dictsort", "first", "float",
           "int", "items", "join", "last", "length", "list", "lower", "max",
           "min", "reverse", "round", "sort", "string", "sum", "title", "tojson",
           "trim", "unique", "upper", "wordcount", "indent", "center", "safe"]
TESTS = ["boolean", "callable", "defined", "even", "false", "float", "integer",
         "iterable", "lower", "mapping", "none", "number", "odd", "sequence",
         "string", "true", "undefined", "upper", "filter", "test"]
METHODS = ["strip", "lstrip", "rstrip", "upper", "lower", "title", "capitalize",
           "split", "rsplit", "splitlines", "isdigit", "isalpha", "isspace",
           "istitle", "isupper", "islower", "isalnum", "swapcase", "keys",
           "values", "items", "copy", "append", "pop", "update", "isnumeric"]


class Maker:
    """Makes one random program."""

    def __init__(self, rng):
        self.rng = rng

    def pick(self, items):
        return self.rng.choice(items)

    def literal(self):
        kind = self.rng.randrange(8)
        if kind < 3:
            text = self.pick(STRINGS)
            return f"'{text}'" if self.rng.random() < 0.8 else f'"{text}"'
        if kind == 3:
            return str(self.rng.choice([0, 1, 2, 3, -1, 10, 255]))
        if kind == 4:
            return self.pick(["1.5", "0.1", "1e20", "2.0", "1e-7", "3.25e3"])
        return self.pick(["true", "false", "none", "True", "None"])

    def primary(self, depth):
        kind = self.rng.randrange(10)
        if depth <= 0 or kind < 3:
            return self.literal()
        if kind < 7:
            return self.pick(NAMES)
        if kind == 7:
            items = [self.expr(depth - 1) for _ in range(self.rng.randrange(4))]
            return "[" + ", ".join(items) + "]"
        if kind == 8:
            items = [f"{self.literal()}: {self.expr(depth - 1)}"
                     for _ in range(self.rng.randrange(3))]
            return "{" + ", ".join(items) + "}"
        items = [self.expr(depth - 1) for _ in range(self.rng.randrange(1, 4))]
        return "(" + ", ".join(items) + self.pick(["", ","]) + ")"

    def index(self, depth):
        kind = self.rng.randrange(6)
        if kind < 2:
            return self.pick(["0", "1", "-1", "5", "'role'", "'content'"])
        if kind == 2:
            return self.pick([":", "1:", ":-1", "::-1", "1:3", "-2:", "::2",
                              "5:0:-2", ":99"])
        return self.expr(depth - 1)

    def postfix(self, text, depth):
        kind = self.rng.randrange(5)
        if kind == 0:
            return text + "." + self.pick(
                ["role", "content", "n", "tags", "calls", "a", "items", "index",
                 "last", "first", "length", "previtem", "nextitem", "revindex",
                 "v", "keys", "get", "nope", "upper"])
        if kind == 1:
            # jinja2 computes items of constants beforehand, by other rules.
            if text not in NAMES:
                text = f"[{text}, 1]"
            return f"{text}[{self.index(depth)}]"
        if kind == 2:
            return f"{text}.{self.pick(METHODS)}()"
        if kind == 3:
            name = self.pick(["split", "replace", "startswith", "endswith",
                              "strip", "get", "find", "count", "join", "index",
                              "rsplit", "partition", "removeprefix", "zfill",
                              "center", "ljust", "rstrip", "rfind"])
            arguments = [self.expr(depth - 1)
                         for _ in range(self.rng.randrange(1, 3))]
            return f"{text}.{name}({', '.join(arguments)})"
        return f"{text}({self.expr(depth - 1)})"

    def filtered(self, text, depth):
        name = self.pick(FILTERS)
        kind = self.rng.randrange(4)
        if kind == 0:
            special = self.pick([
                "map(attribute='role')", "map('upper')", "map('length')",
                "selectattr('n')", "selectattr('role', 'equalto', 'user')",
                "rejectattr('content', 'none')", "select('string')",
                "reject('odd')", "select", "join(', ', attribute='role')",
                "replace('a', 'b')", "replace('a', 'b', 1)", "batch(2)|list",
                "slice(2)|list", "tojson(indent=2)", "round(1)",
                "round(1, 'floor')", "default('d', true)", "sort(reverse=true)",
                "sort(attribute='role')", "dictsort(by='value')", "trim('a')",
                "indent(2, true)", "map(attribute='n', default=0)",
                "tojson(sort_keys=true)", "tojson(ensure_ascii=true)",
                "tojson(separators=(',', ':'))", "attr('role')", "int(9)",
                "unique(attribute='role')", "max(attribute='n')",
                "sum(start=1)", "min", "map('int')|sum", "d", "list|length"])
            return f"{text} | {special}"
        if kind == 1:
            return f"{text} | {name}({self.expr(depth - 1)})"
        return f"{text} | {name}"

    def tested(self, text, depth):
        negated = self.pick(["", "", "not "])
        if self.rng.random() < 0.7:
            return f"{text} is {negated}{self.pick(TESTS)}"
        name = self.pick(["divisibleby", "eq", "ne", "lt", "gt", "ge", "le",
                          "in", "equalto", "sameas"])
        return f"{text} is {negated}{name}({self.expr(depth - 1)})"

    def expr(self, depth):
        if depth <= 0:
            return self.primary(0)
        kind = self.rng.randrange(16)
        if kind < 3:
            return self.primary(depth)
        if kind < 6:
            return self.postfix(self.primary(depth - 1), depth)
        if kind < 8:
            return self.filtered(self.expr(depth - 1), depth)
        if kind == 8:
            return self.tested(self.expr(depth - 1), depth)
        if kind == 9:
            return f"({self.expr(depth - 1)})"
        if kind == 10:
            other = self.pick([f" else {self.expr(depth - 1)}", ""])
            return (f"({self.expr(depth - 1)} if {self.expr(depth - 1)}"
                    f"{other})")
        if kind == 11:
            return f"{self.pick(['not ', '-', '+'])}{self.primary(depth - 1)}"
        if kind == 12:
            name = self.pick(["range", "dict", "namespace"])
            if name == "range":
                return f"range({self.rng.randrange(-2, 6)})"
            return f"{name}(v={self.expr(depth - 1)})"
        operator = self.pick(["+", "-", "*", "/", "//", "%", "~", "~", "==", "!=",
                              "<", ">", "<=", ">=", "in", "not in", "and", "or",
                              "and", "or", "**" if depth < 2 else "+"])
        return f"{self.expr(depth - 1)} {operator} {self.expr(depth - 1)}"

    def open(self):
        return "{%" + self.pick(["", "", "", "-", "-", "+"]) + " "

    def close(self):
        return " " + self.pick(["", "", "", "-", "-", "+"]) + "%}"

    def tag(self, text):
        return self.open() + text + self.close()

    def text(self):
        return self.pick(["", " ", "\n", "\n\n", "t", " t ", "\n  ", "  \n", "<|a|>",
                          "é\n", "\t", "{# c #}", "{#- c -#}\n", "{# c +#}\n"])

    def body(self, depth):
        return "".join(self.statement(depth - 1) + self.text()
                       for _ in range(self.rng.randrange(1, 4)))

    def target(self):
        return self.pick(["x", "y", "i", "ns.v", "ns.w", "x, y", "f", "m"])

    def statement(self, depth):
        kind = self.rng.randrange(16)
        if depth <= 0 or kind < 6:
            sign = self.pick(["", "", "-"])
            return "{{" + sign + " " + self.expr(3) + " " + self.pick(
                ["", "", "-"]) + "}}"
        if kind < 8:
            other = ""
            if self.rng.random() < 0.4:
                other = self.tag("elif " + self.expr(2)) + self.body(depth)
            if self.rng.random() < 0.5:
                other += self.tag("else") + self.body(depth)
            return (self.tag("if " + self.expr(2)) + self.body(depth) + other +
                    self.tag("endif"))
        if kind < 11:
            return self.loop(depth)
        if kind == 11:
            return self.tag(f"set {self.target()} = {self.expr(3)}")
        if kind == 12:
            name = self.pick(["f", "g"])
            parameters = self.pick(["", "x", "x, y=1", "x=m, y='d'"])
            return (self.tag(f"macro {name}({parameters})") +
                    self.body(depth) + self.pick(["", "{{ caller() }}",
                                                  "{{ varargs }}{{ kwargs }}"])
                    + self.tag("endmacro") +
                    "{{ " + name + "(" + self.pick(["", "1", "x=2", "1, 2",
                                                    "1, y=3"]) + ") }}")
        if kind == 13:
            return self.pick([
                lambda: self.tag("set z") + self.body(depth) +
                self.tag("endset"),
                lambda: self.tag("set z | upper | trim") + self.body(depth) +
                self.tag("endset"),
                lambda: self.tag("filter " + self.pick(["upper", "trim", "title"])) +
                self.body(depth) + self.tag("endfilter"),
                lambda: self.tag(f"with x = {self.expr(2)}, y = x") +
                self.body(depth) + self.tag("endwith"),
                lambda: self.tag("generation") + self.body(depth) +
                self.tag("endgeneration"),
                lambda: self.tag("call f(" + self.expr(1) + ")") +
                self.body(depth) + self.tag("endcall"),
            ])()
        if kind == 14:
            return self.pick(["{% raw %}", "{%- raw -%}\n", "\n  {% raw %} "]) + \
                self.text() + "{{ no }}" + self.pick(["{% endraw %}\n",
                                                      " {%- endraw -%} "])
        return self.tag("set ns = namespace(v=" + self.literal() + ")")

    def loop(self, depth):
        target = self.pick(["m", "m", "i", "x, y"])
        source = self.pick(["messages", "messages", "range(3)", "tree.items()",
                            "m.tags", "tree", self.expr(2)])
        test = self.pick(["", "", f" if {self.expr(2)}"])
        recursive = self.pick(["", "", "", " recursive"])
        jump = self.pick(["", "", "", "{% break %}", "{% continue %}",
                          "{% if loop.index == 2 %}{% break %}{% endif %}",
                          "{% if loop.first %}{% continue %}{% endif %}"])
        inner = self.body(depth) + jump + self.pick(
            ["", "{{ loop.index }}/{{ loop.length }}", "{{ loop.last }}",
             "{{ loop.cycle(1, 2) }}", "{{ loop.changed(m.role) }}",
             "{{ loop.revindex0 }}{{ loop.nextitem }}"])
        other = self.pick(["", "", self.tag("else") + self.body(depth)])
        return (self.tag(f"for {target} in {source}{test}{recursive}") + inner +
                other + self.tag("endfor"))

    def program(self):
        start = self.pick(["", "{% set ns = namespace(v=0, w='') %}"])
        return start + self.body(self.rng.randrange(1, 5))


def same(expected, found):
    """None where they agree, else what differs; "refused: ..." if we do not
    support it."""
    told = found.get("parse") or found.get("error") or ""
    if told.startswith("UNIMPLEMENTED"):
        return "refused: " + re.sub(r"line \d+|'[^']*'|\"[^\"]*\"", "", told)
    if "parse" in expected or "parse" in found:
        return None if ("parse" in expected) == ("parse" in found) else "parse"
    if "text" in expected:
        return None if found.get("text") == expected["text"] else "text"
    if "text" in found:
        return "error"
    kind = expected["error"]
    if kind == "raised":
        kind = "the template refuses: "
    return None if kind in told else "kind"


def comparable(expected):
    """Texts with addresses of objects cannot be compared, and Python's limits
    are not ours."""
    text = expected.get("text", "")
    if re.search(r" at 0x[0-9a-f]{6,}", text):
        return False
    return not re.search(r"RecursionError|recursion depth|MemoryError",
                         expected.get("message", ""))


def main():
    parser = argparse.ArgumentParser()
    # Python warns of constants that are called and the like.
    warnings.simplefilter("ignore")
    parser.add_argument("--programs", type=int, default=20000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=10)
    parser.add_argument("--program", default=str(
        ROOT / "build/tests/chat_render_lines"))
    options = parser.parse_args()
    env = reference.environment()
    env.cache = None
    ours = subprocess.Popen([options.program], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True,
                            encoding="utf-8")
    counts = collections.Counter()
    refused = collections.Counter()
    shown = 0
    for number in range(options.programs):
        rng = random.Random(f"{options.seed}.{number}")
        case = {"template": Maker(rng).program(), "messages": MESSAGES,
                "extra": EXTRA, "agp": True}
        expected = reference.render(env, case)
        ours.stdin.write(json.dumps(case) + "\n")
        ours.stdin.flush()
        answer = ours.stdout.readline()
        if not answer:
            print(f"our program died on {case['template']!r}")
            return 1
        if not comparable(expected):
            counts["not comparable"] += 1
            continue
        difference = same(expected, json.loads(answer))
        if difference is None:
            counts["equal " + next(iter(expected))] += 1
        elif difference.startswith("refused"):
            counts["refused"] += 1
            refused[difference] += 1
        else:
            counts["DIFFERENT " + difference] += 1
            if shown < options.show:
                shown += 1
                print(f"--- {options.seed}.{number} ({difference})\n"
                      f"{case['template']!r}\n  jinja2: {expected}\n"
                      f"  ours:   {answer.strip()}")
    print(dict(counts))
    for message, count in refused.most_common(40):
        print(f"{count:6} {message}")
    return 1 if any(key.startswith("DIFF") for key in counts) else 0


if __name__ == "__main__":
    sys.exit(main())
