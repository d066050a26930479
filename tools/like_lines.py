#!/usr/bin/env python3
"""Finds places of the product that say the same thing twice.

  tools/like_lines.py               this repository, exit 1 if a pair is found
  tools/like_lines.py --self-test   what is planted in two texts must be found

A pair of places shares 8 or more like lines. How that is counted:

* Product: C++, CUDA, Python, JavaScript and shell outside tests/, docs/, deploy/
  and models/.
* Like: equal but for spaces and literals (texts and numbers).
* A run of like lines goes on after one or two other lines in either place or in
  both. It has three without an interruption somewhere: others are chance.
* Not counted: comments, lines without a word, what the language wants said
  again (SAID_AGAIN below), rows of tables (scripts of the shell have none), and
  declarations that override: the base class says these once, but each class
  must repeat them.
"""

import collections
import re
import sys

import checked_tree

FEWEST = 8
SEED = 3
LONGEST_GAP = 2

PRODUCT = re.compile(r"(?!(tests|docs|deploy|models)/|.*/(tests|examples)/)"
                     r"(.*\.(h|cc|cuh|cu|py|js|sh)|\.ci/run)")

# Literals first: they may hold what looks like a comment.
NOT_COUNTED = {
    "C++": re.compile(
        r'R"(?P<tag>[^()\\\s]{0,16})\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"'
        r"|(?<![0-9A-Za-z_])'(?:\\.|[^'\\\n])+'|`(?:\\.|[^`\\])*`"
        r"|//[^\n]*|/\*.*?\*/", re.S),
    "Python": re.compile(
        r"^(?:from|import) [^\n]*\([^)]*\)"
        r'|[rbf]{0,2}(?:""".*?"""|\'\'\'.*?\'\'\'|"(?:\\.|[^"\\\n])*"'
        r"|'(?:\\.|[^'\\\n])*')|#[^\n]*", re.S | re.M),
    # Programs of other languages in a script count as its lines.
    "shell": re.compile(r'"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|(?<!\S)#[^\n]*'),
}
LANGUAGES = {"py": "Python", "sh": "shell", "run": "shell"}
OVERRIDE = re.compile(r"\b(?:override|final)\s*(?:;|\{[^{}]*\})")
SAID_AGAIN = re.compile(
    r"#|namespace |using |(public|private|protected):|import |from \S+ import"
    r"|export |super\(\)|(done|else|esac|fi|then)$|set -|source ")
# With what a switch gives for each case.
TABLE_ROW = re.compile(r'[{("\[]|\.\w+ = |\W*0\W|case .*:$|return (""|0);$')
NUMBER = re.compile(r"\b[0-9][\w.']*")


def like_lines(path, text):
    """[(line number, what must be equal)] of the lines that count."""
    def plain(found):
        literal = found[0][0] not in "/#"
        return ('""' if literal else "") + "\n" * found[0].count("\n")

    language = LANGUAGES.get(path.rpartition(".")[2].rpartition("/")[2], "C++")
    text = NOT_COUNTED[language].sub(plain, text)
    text = without_overrides(text)
    counted = []
    for number, line in enumerate(text.split("\n"), 1):
        line = NUMBER.sub("0", re.sub(r"\s+", " ", line.strip()))
        if not re.search(r"[A-Za-z]", line):
            continue
        is_row = language != "shell" and TABLE_ROW.match(line)
        if not is_row and not SAID_AGAIN.match(line):
            counted.append((number, line))
    return counted


def without_overrides(text):
    """Empty lines in place of declarations that override."""
    kept, at = [], 0
    for found in OVERRIDE.finditer(text):
        begin = 1 + max(text.rfind(mark, at, found.start()) for mark in ";{}")
        begin = max(begin, at)
        kept += [text[at:begin], "\n" * text.count("\n", begin, found.end())]
        at = found.end()
    return "".join([*kept, text[at:]])


def steps_from(a, b, at_a, at_b, way):
    """The pairs of indices of like lines that follow this pair, forwards (1) or
    backwards (-1)."""
    steps = sorted(((way * i, way * j) for i in range(1, LONGEST_GAP + 2)
                    for j in range(1, LONGEST_GAP + 2)),
                   key=lambda step: abs(sum(step)))
    while True:
        for i, j in steps:
            if (0 <= at_a + i < len(a) and 0 <= at_b + j < len(b)
                    and a[at_a + i][1] == b[at_b + j][1]):
                at_a, at_b = at_a + i, at_b + j
                yield at_a, at_b
                break
        else:
            return


def pairs(files):
    """[(number of like lines, path, first, last, path, first, last)] of
    `files`, path to text; the longest first."""
    lines = {path: like_lines(path, text) for path, text in files.items()}
    places = collections.defaultdict(list)
    for path in sorted(lines):
        words = [line for _, line in lines[path]]
        for at in range(len(words) - SEED + 1):
            places[tuple(words[at:at + SEED])].append((path, at))
    found, seen = [], set()
    for like in places.values():
        for i, (path_a, at_a) in enumerate(like):
            for path_b, at_b in like[i + 1:]:
                if (path_a, at_a, path_b, at_b) in seen:
                    continue
                a, b = lines[path_a], lines[path_b]
                run = [*reversed([*steps_from(a, b, at_a, at_b, -1)]),
                       (at_a, at_b), *steps_from(a, b, at_a, at_b, 1)]
                seen.update((path_a, x, path_b, y) for x, y in run)
                (first_a, first_b), (last_a, last_b) = run[0], run[-1]
                overlaps = path_a == path_b and last_a >= first_b
                if len(run) >= FEWEST and not overlaps:
                    found.append((len(run), path_a, a[first_a][0], a[last_a][0],
                                  path_b, b[first_b][0], b[last_b][0]))
    return sorted(found, reverse=True)


def self_test():
    """Each text against this one: what must be found, and what must not."""
    told = [f"  Tell(kFirst{c}, {i});" for i, c in enumerate("abcdefgh")]
    text = "\n".join(["#include <x>", "void A() {", *told, "}"])
    others = {
        "equal but for literals": (8, [t.replace(", ", ", 1") for t in told]),
        "equal but for comments": (8, [t + "  // Why." for t in told]),
        "with another line in it": (8, told[:4] + ["  Other();"] + told[4:]),
        "with another second line": (8, told[:1] + ["  Other();"] + told[1:]),
        "with two other lines in it": (8, told[:4] + ["  O();", "  P();"] +
                                       told[4:]),
        "with three other lines in it": (0, told[:4] + ["  O();", "  P();",
                                                        "  Q();"] + told[4:]),
        "too few": (0, told[1:]),
        "all others": (0, [t.replace("kFirst", "kLast") for t in told]),
    }
    table = "\n".join(f'    {{"{c}", &Row::{c}}},' for c in "abcdefghi")
    override = "\n".join(f"  void Do{c}(int a,\n int b) override;"
                         for c in "abcdefghi")
    wrong = [why for why, (count, other) in others.items()
             if [p[0] for p in pairs({"a.cc": text,
                                      "b.cc": "\n".join(other)})]
             != [count] * (count > 0)]
    wrong += [why for why, same in (("tables", table), ("overrides", override))
              if pairs({"a.h": same, "b.h": same})]
    script = [f'[[ -n $first_{c} ]] || tell "it\'s" {c}' for c in "abcdefgh"]
    for why, count, other in (
            ("scripts", 1, [line.replace("it's", "no") + "  # Why."
                            for line in script]),
            ("other scripts", 0, [line.replace("first", "last")
                                  for line in script])):
        texts = {"a.sh": "\n".join(script), ".ci/run": "\n".join(other)}
        wrong += [why] * (len(pairs(texts)) != count)
    for why in wrong:
        print(f"self-test: wrong answer: {why}", file=sys.stderr)
    print(f"self-test: {len(others) + 4} texts, {len(wrong)} wrong answers")
    return len(wrong)


def check():
    files = checked_tree.texts(
        filter(PRODUCT.fullmatch, checked_tree.tracked_files()))
    found = pairs(files)
    for count, a, a_first, a_last, b, b_first, b_last in found:
        print(f"{a}:{a_first}-{a_last} and {b}:{b_first}-{b_last}: "
              f"{count} like lines")
    print(f"like_lines: {len(files)} files, {len(found)} pairs of {FEWEST} and more "
          "like lines")
    return len(found)


if __name__ == "__main__":
    sys.exit(checked_tree.run("Finds like lines.", self_test, check))
