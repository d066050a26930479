"""Sizes of the functions and classes of a C++ file, without a compiler.

Knows as much of the language as clang-format leaves open: declarations end in
";" or a body, macros that annotate are in capitals. What is in the body of a
function belongs to that function.
"""

import re

# String literals first: they may hold what looks like a comment.
NOT_CODE = re.compile(
    r'R"(?P<tag>[^()\\\s]{0,16})\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9A-Za-z_])'(?:\\.|[^'\\\n])+'"
    r"|//[^\n]*|/\*.*?\*/|^[ \t]*#(?:\\\n|[^\n])*", re.S | re.M)
TOKEN = re.compile(r"[A-Za-z_]\w*|[0-9][\w.']*|->|::|\S")
# With their parentheses they are no part of what a declaration declares.
ANNOTATION = re.compile(
    r"[A-Z][A-Z0-9]*_[A-Z0-9_]+|__\w+__|alignas|decltype|noexcept|requires")
CLOSING = {"(": ")", "[": "]", "{": "}"}
# Statements in a class that declare no member of it.
NO_MEMBER = {"using", "typedef", "friend", "static_assert", "enum", "template",
             "class", "struct", "union"}


class Function:
    """`lines` from its first to its last."""

    def __init__(self, name, line, lines):
        self.name, self.line, self.lines = name, line, lines


class Class:
    """`methods`: functions it declares, but for defaulted and deleted ones;
    `members`: variables of each object."""

    def __init__(self, name, line, methods=0, members=0):
        self.name, self.line = name, line
        self.methods, self.members = methods, members


def tokens_of(text):
    """[(token, line)]: without comments, literals and preprocessor."""
    code = NOT_CODE.sub(
        lambda found: ("0" if found[0][0] in "\"'R" else " ") +
        "\n" * found[0].count("\n"), text)
    tokens, line, at = [], 1, 0
    for found in TOKEN.finditer(code):
        line += code.count("\n", at, found.start())
        at = found.start()
        tokens.append((found[0], line))
    return tokens


def skip(tokens, at):
    """The index past what is opened at `at`."""
    opening, depth = tokens[at][0], 0
    while at < len(tokens):
        token = tokens[at][0]
        depth += (token == opening) - (token == CLOSING[opening])
        at += 1
        if depth == 0:
            break
    return at


def bare(tokens):
    """Names and marks of a declaration: without template arguments, what
    stands in parentheses and annotations; "()" for each pair of these."""
    out, at = [], 0
    while at < len(tokens):
        token = tokens[at][0]
        if token == "operator":
            at += 1
            if at + 1 < len(tokens) and tokens[at][0] == "(":
                at += 2  # operator()
            while at < len(tokens) and tokens[at][0] != "(":
                at += 1
            out.append("operator")
        elif token == "(":
            annotates = out and ANNOTATION.fullmatch(out[-1])
            if annotates:
                out.pop()
            elif at + 1 < len(tokens) and tokens[at + 1][0] == "*":
                out.append("pointer")
            else:
                out.append("()")
            at = skip(tokens, at)
        elif token == "[":
            at = skip(tokens, at)
        elif token == "<" and out and re.match(r"[A-Za-z_]", out[-1]):
            depth = 0
            while at < len(tokens):
                depth += (tokens[at][0] == "<") - (tokens[at][0] == ">")
                at = (skip(tokens, at) if tokens[at][0] in CLOSING else at + 1)
                if depth == 0:
                    break
        else:
            out.append(token)
            at += 1
    while out[:1] == ["template"]:
        out.pop(0)
    return out


def declares_function(names):
    """Whether a bare declaration is that of a function."""
    head = names[:names.index("=")] if "=" in names else names
    return "()" in head and not (
        "pointer" in head and head.index("pointer") < head.index("()"))


def name_of(names):
    """What the function or class is called."""
    if "()" in names:
        names = names[:names.index("()")]
    else:
        for word in ("class", "struct", "union"):
            if word in names:
                names = names[names.index(word) + 1:]
                names = names[:names.index(":")] if ":" in names else names
                names = [n for n in names if not ANNOTATION.fullmatch(n)
                         and n != "final"]
                return "".join(names) or "(unnamed)"
    return names[-1] if names else "(unnamed)"


class Reader:
    """Reads one file; `functions` and `classes` are what it has found."""

    def __init__(self, text):
        self.tokens = tokens_of(text)
        self.functions, self.classes = [], []
        at = 0
        while at < len(self.tokens):  # a "}" too many ends a scope, not a file
            at = self.read_scope(at, None) + 1

    def read_scope(self, at, owner):
        """Reads declarations up to the "}" at the returned index."""
        start = at
        while at < len(self.tokens):
            token, _ = self.tokens[at]
            if token == "}":
                return at
            if token == ";":
                self.declared(self.tokens[start:at], owner)
                at = start = at + 1
            elif token in "([":
                at = skip(self.tokens, at)
            elif token == "{":
                at, ends = self.read_braces(start, at, owner)
                start = at if ends else start
            elif token in ("public", "private", "protected") and at == start:
                at = start = at + 2
            else:
                at += 1
        return at

    def read_braces(self, start, at, owner):
        """What begins with the "{" at `at`, in the declaration that begins at
        `start`: the index past it, and whether the declaration ends there."""
        head = self.tokens[start:at]
        names = bare(head)
        if "namespace" in names or names[:1] == ["extern"]:
            return self.read_scope(at + 1, None) + 1, True
        if "enum" in names or "=" in names:
            return skip(self.tokens, at), False
        is_class = any(word in names for word in ("class", "struct", "union"))
        if "()" not in names and "operator" not in names and is_class:
            line = head[0][1]
            found = Class(name_of(names), line)
            self.classes.append(found)
            return self.read_scope(at + 1, found) + 1, False
        if not declares_function(names):
            return skip(self.tokens, at), False
        in_list = ":" in names[names.index("()"):]
        if in_list and re.match(r"\w", self.tokens[at - 1][0]):
            return skip(self.tokens, at), False  # member{value} of a list
        end = skip(self.tokens, at)
        first, last = head[0][1], self.tokens[end - 1][1]
        self.functions.append(Function(name_of(names), first,
                                       last - first + 1))
        if owner is not None:
            owner.methods += 1
        return end, True

    def declared(self, tokens, owner):
        """A declaration that ended in ";"."""
        names = bare_of_classes(tokens)
        if owner is None or not names or names[0] in NO_MEMBER:
            return
        if declares_function(names):
            owner.methods += names[-1] not in ("default", "delete")
        elif "static" not in names:
            owner.members += 1 + names.count(",")


def bare_of_classes(tokens):
    """As bare(); a class that is defined in it is left out, not its variable."""
    at = 0
    kept = []
    while at < len(tokens):
        if tokens[at][0] == "{":
            names = bare(kept)
            if any(w in names for w in ("class", "struct", "union")):
                kept = []
            at = skip(tokens, at)
        else:
            kept.append(tokens[at])
            at += 1
    return bare(kept)

