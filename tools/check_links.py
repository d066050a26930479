#!/usr/bin/env python3
"""Checks that what the documents point to is there.

  tools/check_links.py               this repository, exit 1 if a link is dead
  tools/check_links.py --self-test   planted links must be found dead, or not

Of every Markdown file that git has:

* A relative link names a file or a folder, its #anchor a heading there.
* A file in `code` that names its folder, or a C++ or proto source, is the end
  of the path of some file: `wire/session_events.h`, `engine.h`.
* A section beside a document, as in `docs/metrics.md`, "Traces" or in
  [metrics](docs/metrics.md), "Traces", begins a heading of it, or bold words at
  the beginning of a line.

Blocks of code are not read.
"""

import os
import re
import sys

import checked_tree

BLOCK = re.compile(r"^ *```.*?^ *```", re.S | re.M)
LINK = re.compile(r'\]\(([^)\s]+)[^)]*\)|^\[[^\]]+\]: *(\S+)'
                  r'|(?:src|href)="([^"]+)"', re.M)
NAMED = re.compile(r"`((?:[\w.-]+/)+[\w.-]+\.(?:md|py|sh|cmake|js|yaml)"
                   r"|(?:[\w.-]+/)*[\w-]+\.(?:h|cc|cuh?|proto))`")
SECTION = re.compile(r'(?:\]\(([^)\s#]+\.md)(?:#[^)]*)?\)|`([\w./-]+\.md)`),\s"([^"]+)"')
HEADING = re.compile(r"^#+ +(.*)$", re.M)
BOLD = re.compile(r"^(?:[*-] )?\*\*([^*]+)\*\*", re.M)


def without_blocks(text):
    return BLOCK.sub(lambda block: "\n" * block[0].count("\n"), text)


def anchor_of(heading):
    """As GitHub makes it, of headings that are all different."""
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


class Repository:
    """The paths that git has, and the text of its documents by path."""

    def __init__(self, paths, documents):
        self.documents = {path: without_blocks(text)
                          for path, text in documents.items()}
        self.paths, self.ends = {"."}, set()
        for path in paths:
            parts = path.split("/")
            for i in range(len(parts)):
                self.paths.add("/".join(parts[:i + 1]))
                self.ends.add("/".join(parts[i:]))

    def place(self, document, path):
        """`path` as `document` names it, from the root."""
        return os.path.normpath(os.path.join(os.path.dirname(document), path))

    def headings(self, path):
        return HEADING.findall(self.documents.get(path, ""))

    def sections(self, path):
        text = self.documents.get(path, "")
        return self.headings(path) + [" ".join(words.split())
                                      for words in BOLD.findall(text)]

    def link_problem(self, document, link):
        path, _, anchor = link.partition("#")
        place = self.place(document, path) if path else document
        if place not in self.paths:
            return f"{link}: there is no {place}"
        if anchor and place in self.documents and anchor not in map(
                anchor_of, self.headings(place)):
            return f"{link}: {place} has no such heading"
        return None

    def section_problem(self, document, path, section):
        section = " ".join(section.split())
        places = [self.place(document, path), os.path.normpath(path)]
        found = [name for place in places for name in self.sections(place)]
        if any(name.startswith(section) for name in found):
            return None
        return f'{path} has no heading "{section}"'

    def problems(self):
        """[(document, line, what is wrong)]"""
        found = []
        for document, text in sorted(self.documents.items()):
            wrong = []
            for at in LINK.finditer(text):
                link = at[1] or at[2] or at[3]
                if not re.match(r"[a-z]+:", link):
                    wrong.append((at, self.link_problem(document, link)))
            for at in NAMED.finditer(text):
                path = re.sub(r"^(\.\./)+", "", at[1])
                if path not in self.ends:
                    wrong.append((at, f"{path}: no file's path ends so"))
            for at in SECTION.finditer(text):
                wrong.append((at, self.section_problem(
                    document, at[1] or at[2], at[3])))
            found += [(document, text.count("\n", 0, at.start()) + 1, problem)
                      for at, problem in wrong if problem]
        return found


def self_test():
    """Each text as a document beside others: how many dead links it has."""
    texts = [
        ("[a](other.md) [b](../wire) [c](#here) [d](https://x.org/y.md)\n# Here",
         0),
        ("[a](gone.md)", 1),
        ("[a](other.md#a-long-heading)", 0),
        ("[a](other.md#a-short-heading)", 1),
        ("`wire/codec.h`, `../codec.h`, `cache.h` and `run.sh`", 1),
        ("`wire/gone.py`", 1),
        ('`docs/other.md`, "A long", [x](other.md),\n"A long heading"', 0),
        ('`docs/other.md`, "Long heading"', 1),
        ('`docs/other.md`, "Some words"', 0),
        ("```\n[a](gone.md)\n```", 0),
    ]
    wrong = 0
    for text, dead in texts:
        documents = {"docs/this.md": text,
                     "docs/other.md": "# Other\n## A long heading\n* **Some words.**"}
        found = Repository([*documents, "wire/codec.h"], documents).problems()
        if len(found) != dead:
            print(f"self-test: {text!r}: {found}", file=sys.stderr)
            wrong += 1
    print(f"self-test: {len(texts)} texts, {wrong} wrong answers")
    return wrong


def check():
    paths = checked_tree.tracked_files()
    documents = checked_tree.texts(p for p in paths if p.endswith(".md"))
    found = Repository(paths, documents).problems()
    for document, line, problem in found:
        print(f"{document}:{line}: {problem}")
    print(f"check_links: {len(documents)} documents, {len(found)} dead links")
    return len(found)


if __name__ == "__main__":
    sys.exit(checked_tree.run("Finds dead links.", self_test, check))
