#!/usr/bin/env python3
"""Markdown in lines of at most 100 columns. Tables, headings and code stay.

  scripts/wrap_markdown.py --check FILE...   exit 1, naming each longer line
  scripts/wrap_markdown.py FILE...           wraps the paragraphs that have one
"""

import re
import sys
import textwrap

COLUMNS = 100
ITEM = re.compile(r"( *)([*-]|\d+\.) +")
# What ends a paragraph without an empty line.
APART = re.compile(r"( *(```|~~~)|\||#|<[a-z/!]|> |$)", re.I)


def blocks(lines):
    """Lists of lines, each with whether it is a paragraph or an item."""
    block, fenced = [], False
    for line in lines:
        is_fence = re.match(r" *(```|~~~)", line)
        if fenced or APART.match(line) or is_fence:
            if block:
                yield block, True
                block = []
            yield [line], False
            if is_fence:
                fenced = not fenced
            continue
        if ITEM.match(line) and block:
            yield block, True
            block = []
        block.append(line)
    if block:
        yield block, True


def wrapped(block):
    item = ITEM.match(block[0])
    first = item.group(0) if item else re.match(" *", block[0]).group(0)
    later = " " * len(first)
    text = " ".join(line.strip() for line in block)
    if item:
        text = text[len(first.strip()):].strip()
    # Code is copied: short pieces stay on one line.
    text = re.sub(r"`[^`]{1,70}`", lambda m: m[0].replace(" ", "\0"), text)
    # A line that began with these would be an item, a heading or a table.
    text = re.sub(r" ([*+#|>-]|\d+\.)(?= )", "\0\\1", text)
    made = textwrap.wrap(text, COLUMNS, initial_indent=first,
                         subsequent_indent=later, break_long_words=False,
                         break_on_hyphens=False)
    return [line.replace("\0", " ") for line in made]


def main(args):
    check = args[:1] == ["--check"]
    failed = False
    for path in args[1:] if check else args:
        with open(path, encoding="utf-8") as file:
            lines = file.read().split("\n")
        made = []
        for block, is_text in blocks(lines):
            if is_text and any(len(line) > COLUMNS for line in block):
                if check:
                    failed = True
                    print(f"{path}:{len(made) + 1}: over {COLUMNS} columns; "
                          f"run scripts/wrap_markdown.py {path}")
                else:
                    block = wrapped(block)
            made += block
        if not check:
            with open(path, "w", encoding="utf-8") as file:
                file.write("\n".join(made))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
