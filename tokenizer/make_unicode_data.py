#!/usr/bin/env python3
"""Makes unicode_data.cc: what `tokenizers` knows of characters and the machine's
libraries may not, and what it does not know and they may.

Needs Python 3.11 (its tables are Unicode 14, those of the oldest PCRE2 that is
accepted), `tokenizers` 0.23.3 and `unicodedata2` (the newest tables). Every fact
is asked of `tokenizers` itself. Writes next to itself; takes a minute.
"""

import pathlib
import unicodedata

import tokenizers
import unicodedata2
from tokenizers import Regex, normalizers, pre_tokenizers

HERE = pathlib.Path(__file__).resolve().parent
ALL = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
TEXT = "".join(map(chr, ALL))

CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk "
              "So Zs Zl Zp Cc Cf Cs Co Cn").split()
# Every script that Unicode 15 to 17 added a character to, with its short name.
SCRIPTS = dict(
    Common="Zyyy", Inherited="Zinh", Ahom="Ahom", Arabic="Arab", Balinese="Bali",
    Bengali="Beng", Cyrillic="Cyrl", Devanagari="Deva",
    Egyptian_Hieroglyphs="Egyp", Garay="Gara", Gurung_Khema="Gukh", Han="Hani",
    Hiragana="Hira", Kannada="Knda", Katakana="Kana", Kawi="Kawi",
    Khitan_Small_Script="Kits", Khojki="Khoj", Kirat_Rai="Krai", Lao="Laoo",
    Latin="Latn", Myanmar="Mymr", Nag_Mundari="Nagm", Ol_Onal="Onao",
    Sunuwar="Sunu", Telugu="Telu", Todhri="Todr", Tulu_Tigalari="Tutg")


def members(pattern):
    """The characters that a one-character pattern finds."""
    others = normalizers.Replace(Regex("(?:(?!%s)(?m:.))+" % pattern), "")
    return set(map(ord, others.normalize_str(TEXT)))


def runs(items):
    """Neighbours with equal values as [first, last, value]."""
    result = []
    for code, value in sorted(items):
        if result and result[-1][1] == code - 1 and result[-1][2] == value:
            result[-1][1] = code
        else:
            result.append([code, code, value])
    return result


def additions(categories):
    """What Unicode 14 has otherwise than the library's patterns."""
    new = {c for c in ALL
           if unicodedata.category(chr(c)) != categories[c]}
    scripts = {s: members(r"\p{%s}" % s) & new for s in SCRIPTS}
    items = []
    for c in new:
        script = [s for s in SCRIPTS if c in scripts[s]]
        assert len(script) == 1, (hex(c), categories[c], script)
        items.append((c, (categories[c], script[0])))
    return runs(items)


def lowercase():
    """Lower case as an offset, where Unicode 14 has none."""
    lower = normalizers.Lowercase()
    items = []
    for c in ALL:
        text = lower.normalize_str(chr(c))
        if text != chr(c).lower():
            assert len(text) == 1
            items.append((c, ord(text) - c))
    # Every second character of alternating case has an offset of its own.
    return runs(items)


def inert():
    """Characters younger than the library's normalization tables: it neither
    decomposes, composes nor reorders them."""
    nfd, nfkd = normalizers.NFD(), normalizers.NFKD()
    result = set()
    for c in ALL:
        char = chr(c)
        if unicodedata2.decomposition(char) and nfkd.normalize_str(char) == char:
            result.add(c)
        # U+0345 has the highest class of all.
        moved = nfd.normalize_str("a\u0345" + char) == "a" + char + "\u0345"
        if (unicodedata2.combining(char) not in (0, 240) and not moved and
                nfd.normalize_str(char) == char):
            result.add(c)
    for c in sorted(result):
        parts = unicodedata2.decomposition(chr(c)).split()
        if len(parts) != 2 or parts[0].startswith("<"):
            continue
        if not any(int(p, 16) in result for p in parts):
            # One of the two is as young as the pair.
            young = [p for p in parts
                     if unicodedata.category(chr(int(p, 16))) == "Cn"]
            result.add(int((young or parts[1:])[0], 16))
    return runs((c, 0) for c in result)


def punctuation(categories):
    """`Punctuation` against the category P and ASCII's symbols."""
    text = "x".join(map(chr, ALL))
    splitter = pre_tokenizers.Punctuation()
    found = {ord(w) for w, _ in splitter.pre_tokenize_str(text) if len(w) == 1}
    found.discard(ord("x"))
    expected = {c for c in ALL if categories[c][0] == "P"}
    # Newer tables must not add to it either.
    expected |= {c for c in ALL if unicodedata2.category(chr(c))[0] == "P"}
    expected |= set(map(ord, "$+<=>^`|~"))
    return (runs((c, 0) for c in found - expected),
            runs((c, 0) for c in expected - found))


def digits(categories):
    """`Digits` against the category N."""
    splitter = pre_tokenizers.Digits(individual_digits=True)
    text = "x".join(map(chr, ALL))
    found = {ord(w) for w, _ in splitter.pre_tokenize_str(text) if len(w) == 1}
    found.discard(ord("x"))
    expected = {c for c in ALL if categories[c][0] == "N"}
    assert not expected - found
    return runs((c, 0) for c in found - expected)


def pattern_of(rows):
    return "".join(
        "\\\\x{%X}" % first if first == last else
        "\\\\x{%X}-\\\\x{%X}" % (first, last) for first, last, _ in rows)


def lines(items, indent, width=80):
    """`items`, comma-separated, as lines."""
    result, line = [], indent
    for item in items:
        if len(line) + len(item) + 1 > width:
            result.append(line.rstrip())
            line = indent
        line += item + ", "
    return "\n".join(result + [line.rstrip()])


def strings(text):
    """A C++ string literal as lines."""
    units = text.replace("\\\\x", "\n\\\\x").replace("-\n", "-").split("\n")[1:]
    result, line = [], ""
    for unit in units:
        if len(line) + len(unit) > 70:
            result.append(line)
            line = ""
        line += unit
    return "\n".join('    "%s"' % l for l in result + [line])


def main():
    assert unicodedata.unidata_version == "14.0.0"
    assert tokenizers.__version__ == "0.23.3"
    categories = {}
    for name in CATEGORIES:
        if name != "Cs":
            categories.update(dict.fromkeys(members(r"\p{%s}" % name), name))
    rows = additions(categories)
    used = sorted({s for _, _, (_, s) in rows})
    extra, missing = punctuation(categories)
    (HERE / "unicode_data.cc").write_text("""\
// Made by make_unicode_data.py. Do not edit.
// clang-format off

#include "tokenizer/unicode_data.h"

namespace nacre::tokenizer {

const char* const kAddedScripts[][2] = {
%s
};
const size_t kAddedScriptCount = std::size(kAddedScripts);

// Scripts are indices into kAddedScripts. U+1171E is Mn in Unicode 14.
const UnicodeAddition kUnicodeAdditions[] = {
%s
};
const size_t kUnicodeAdditionCount = std::size(kUnicodeAdditions);

const CaseAddition kLowercaseAdditions[] = {
%s
};
const size_t kLowercaseAdditionCount = std::size(kLowercaseAdditions);

const CodePointRange kInertRanges[] = {
%s
};
const size_t kInertRangeCount = std::size(kInertRanges);

const char kPunctuationPattern[] =
    "[\\\\p{P}$+<=>^`|~"
%s
    "&&[^"
%s
    "]]";

const char kDigitsPattern[] =
    "[\\\\p{N}"
%s
    "]";

}  // namespace nacre::tokenizer
""" % (lines(['{"%s", "%s"}' % (s, SCRIPTS[s]) for s in used], "    "),
       lines(["{0x%X, 0x%X, k%s, %d}" % (a, b, gc, used.index(script))
              for a, b, (gc, script) in rows], "    "),
       lines(["{0x%X, 0x%X, %d}" % (a, b, d) for a, b, d in lowercase()],
             "    "),
       lines(["{0x%X, 0x%X}" % (a, b) for a, b, _ in inert()], "    "),
       strings(pattern_of(extra)), strings(pattern_of(missing)),
       strings(pattern_of(digits(categories)))))


if __name__ == "__main__":
    main()
