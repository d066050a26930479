#!/usr/bin/env python3
"""Makes patterns.json: what `tokenizers` 0.23.3 finds with regular expressions.

  sets      one-character patterns: how many of ALL each finds, and
            FNV-1a (64 bits) of them as little-endian 32-bit numbers
  patterns  all non-empty matches of each in each of the texts, as lengths in
            characters: gap, match, gap, match, ...

The patterns are those of published tokenizers and every construct that PCRE2
reads otherwise than Oniguruma. Needs the package `tokenizers`.
"""

import json
import pathlib
import random

from tokenizers import Regex, normalizers, pre_tokenizers

from golden_texts import MULTILINGUAL, SPECIAL_CASES, random_text

HERE = pathlib.Path(__file__).resolve().parent
# All that are assigned, and some others.
ALL = "".join(chr(c) for c in range(0x110000)
              if not 0xD800 <= c <= 0xDFFF and not 0x33000 <= c < 0xE0000 and
              not 0xE0200 <= c < 0x10FF00)

CATEGORIES = ("L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S "
              "Sm Sc Sk So Z Zs Zl Zp C Cc Cf Co Cn LC Any Assigned").split()
SCRIPTS = ("Han Hiragana Katakana Latin Cyrillic Greek Arabic Hebrew Thai "
           "Devanagari Bengali Hangul Common Inherited Egyptian_Hieroglyphs "
           "Kannada Hani Egyp Lao Ahom").split()
POSIX = "digit punct space blank cntrl graph print word xdigit ascii".split()
SETS = (
    [r"\p{%s}" % c for c in CATEGORIES + SCRIPTS] +
    [r"[[:%s:]]" % p for p in POSIX] +
    [r"\p{lower case_letter}", r"\p{Other_Letter}", r"\p{^L}", r"\P{^L}", r"\P{Cn}", r"[^\p{Cn}]",
     r"\w", r"\W", r"[\w]", r"[\W]", r"\s", r"\S", r"[\S]", r"\d", r"\D",
     r"[\D]", r"\h", r"\H", r"[\H]", ".", "(?m:.)",
     r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]",
     r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]",
     r"[^\p{L}&&[^\p{Han}]]", r"[\p{L}&&\p{Han}]", r"[^\s\p{L}\p{N}]",
     r"[^\r\n\p{L}\p{P}\p{S}]", r"[\p{C}\p{Han}]", r"[^\p{C}\p{Han}]",
     r"[\p{Cn}&&[^a-z]]", r"[^\p{Cn}\p{Lu}&&[^\p{Han}]x]",
     r"[[^\p{Han}]&&[^\p{Latin}]&&\p{L}]", r"[^[:^word:]\p{Han}]",
     r"[a[^\p{L}]]", r"[^a[^\p{L}]]", r"[^\S\r\n]", r"[\p{P}$+<=>^`|~]"])

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
KIMI_K2 = "|".join([
    r"[\p{Han}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+",
    r"\s+(?!\S)", r"\s+"])
CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+|"
    r" ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
DEEPSEEK_V3 = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|"
    r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK_CODER = (
    r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-Ֆ"
    r"Ⴀ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕ]+"
)
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
GPT2 = (
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|"
    r"\s+(?!\S)|\s+"
)

PATTERNS = [
    LLAMA3, LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}"), O200K, KIMI_K2, CL100K,
    DEEPSEEK_V3, DEEPSEEK_CODER, BLOOM, GPT2, "[一-龥぀-ゟ゠-ヿ]+",
    r"\p{N}{1,3}", r"[0-9][0-9][0-9]", r"(?=(\d{3})+(?!\d))",
    # Classes.
    r"[\p{L}&&[^\p{Han}]]+", r"[a[bc]d]+",
    r"[a-d&&[^b]c-z]+", r"[a-z&&[^b]&&[^c]]+", r"[^a-d&&[^b]]+", r"[a&b]+",
    r"[a&&&b]+", r"[^a&&^b]+", r"[]a]+", r"[^]a]+", r"[a[]b]]+", r"[:alp]+",
    r"[a-c-e]+", r"[--a]+", r"[a-]+", r"[-a]+", r"[a\-e]+", r"[+-\]]+",
    r"[\h]+", r"\h+", r"\H+", r"[\H]+", r"[\W]+", r"[\D]+", r"[^\S\n]+",
    r"[[:digit:]_]+", r"[[:punct:]]+", r"[^[:space:][:^punct:]]+",
    r"[\b\n\x41\101\x{62}\u0063\e]+", r"[^(]+", r"[|)]+", r"[^\p{L}]+",
    # Options and anchors.
    r"(?m:.)+", r".+", r"(?m)a.", r"a(?i)b|c", r"(?i)ab|c", r"(?i:a)b",
    r"(?i-m:a.)", r"(?x: a b # comment" + "\n" + r" | [ ] c )", r"(?-i:a)",
    r"(?#comment)a(?#another)+", r"(?i:[sdmt]|ll|ve|re)", r"(?i:[^s])+",
    r"(?i:\p{Lu}+)", r"(?i:’s)", r"^b", r"a$", r"\Aa", r"\Ga", r"e\z", r"e\Z",
    r"\b\w+\b", r"\B\w", r"\b.", r"\B.", r"a\Kb",
    # Quantifiers.
    r"\p{N}{1,3}+", r"a{1,2}+", r"(?:ab){1,2}+", r"(?:ab){2}+", r"a{2}+",
    r"a{1,2}+?", r"a{1,2}++", r"a{2}?", r"a{2}?b", r"a{1,2}?", r"a{2}{2}",
    r"a{1,2}*", r"a{,2}", r"a{2,}+", r"a{2,}b", r"a{}", r"a{x}", r"a{,}",
    r"a{ 1}", r"a++b?", r"a*+.", r"a?+a", r"a+?b", r"a??b", r"x{2}|a{1",
    # The rest.
    r"\v+", r"\R", r"(a)(b)?\1", r"(?<n>a)\k<n>", r"(?>a|ab)c", r"(?<=a|bc)d",
    r"(?<!\s)x", r"(?=a)\w+", r"(?!a)\w+", r"\u0061+", r"\x{4E2D}+", r"\p{L}?'",
    r"\]\[\}\{\-\&\#\'\"\ \/\<\>\`\~\@\%\,\;\:\!\=\_", r"]|}", r"", r"()",
]

TEXTS = SPECIAL_CASES + MULTILINGUAL + [
    "'s 'LL 've'RE don't I'D we'Tx 's's", "1234 12345678 1 22 ١٢٣٤ Ⅳ½²",
    "<word> a[bc]d - [a]&b ^x", "<|a|>(b)\\c", "ab aab aaab aaaaaaa abab cd bcd",
    "a\nb\na a.\nb\r\n\r\nx\v\f\x85\u2028", "aa aba ada a{1} a{} a{x} a{,} a{ 1}",
    "中文abc中'S漢字Ab кириллица漢", "a²b ½c ³x ¼¾¹", "K\u017f\u212ak sS ’S ’s",
    "क्\u200dष \u200c می\u200cخواهم", "\u3001\u3002\u3005\u3006\u3007ー〃",
    "\U00031350\u094d\u0924 a\U00031350b\U0002ebf0",
    "\ua7cb\u093f \u1c89\u1c8a \U00010d4a\U00010d50\U00010d70 \U00010d40\U00010d41",
    "\U00013460x\U000143fa \U0001fae9 \U0001e5ff \U0001ccf0\U0001ccf1 \U0001171e",
    "x\U00011de0\U00016ff4\U00016ea0y", "][}{-&#'\" /<>`~@%,;:!=_",
]


def members(pattern):
    others = normalizers.Replace(Regex("(?:(?!%s)(?m:.))+" % pattern), "")
    return others.normalize_str(ALL)


def fnv1a(text):
    value = 0xcbf29ce484222325
    for byte in text.encode("utf-32-le"):
        value = (value ^ byte) * 0x100000001b3 & 0xffffffffffffffff
    return value


def matches(pattern, text):
    split = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    row, done = [], 0
    for _, (begin, end) in split.pre_tokenize_str(text):
        row += [begin - done, end - begin]
        done = end
    return row


def main():
    sets = []
    for pattern in SETS:
        found = members(pattern)
        sets.append({"pattern": pattern, "count": len(found),
                     "hash": "%016x" % fnv1a(found)})
    rng = random.Random(41)
    texts = TEXTS + [random_text(rng) for _ in range(40)]
    patterns = []
    for pattern in PATTERNS:
        patterns.append({"pattern": pattern, "matches": [matches(pattern, text)
                                     for text in texts]})
    with open(HERE / "patterns.json", "w", encoding="utf-8") as file:
        file.write('{"sets": [\n')
        file.write(",\n".join(json.dumps(s) for s in sets))
        file.write('],\n"texts": %s,\n"patterns": [\n' % json.dumps(texts))
        file.write(",\n".join(
            json.dumps(p, separators=(",", ":")) for p in patterns))
        file.write("]}\n")


if __name__ == "__main__":
    main()
