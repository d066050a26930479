#!/usr/bin/env python3
"""Writes character_tables.h: what Python says about characters and utf8proc
does not. Run with Python 3.11 (Unicode 14):

  chat/make_character_tables.py > chat/character_tables.h
"""

import sys
import unicodedata

ALL = [chr(c) for c in range(sys.maxunicode + 1)
       if not 0xD800 <= c <= 0xDFFF]


def ranges(name, comment, wanted):
    found = []
    for c in map(ord, filter(wanted, ALL)):
        if found and found[-1][1] == c - 1:
            found[-1][1] = c
        else:
            found.append([c, c])
    print(f"// {comment}\ninline constexpr CharacterRange {name}[] = {{")
    for first, last in found:
        print(f"    {{0x{first:X}, 0x{last:X}}},")
    print("};\n")


def mappings(name, comment, mapped):
    print(f"// {comment}\ninline constexpr CharacterMapping {name}[] = {{")
    for c in ALL:
        text = mapped(c)
        if len(text) > 1:
            codes = "".join(f"\\U{ord(x):08X}" for x in text)
            print(f"    {{0x{ord(c):X}, \"{codes}\"}},")
    print("};\n")


print("""// Written by make_character_tables.py from Unicode %s: do not edit.

#ifndef CHAT_CHARACTER_TABLES_H_
#define CHAT_CHARACTER_TABLES_H_

namespace nacre::chat {

struct CharacterRange {
  char32_t first;
  char32_t last;
};

struct CharacterMapping {
  char32_t from;
  const char* to;  // UTF-8
};
""" % unicodedata.unidata_version)
ranges("kOtherDigits", "str.isdigit() but not of category Nd.",
       lambda c: c.isdigit() and unicodedata.category(c) != "Nd")
ranges("kOtherNumeric", "str.isnumeric() but of no category N*.",
       lambda c: c.isnumeric() and unicodedata.category(c)[0] != "N")
ranges("kOtherLower", "str.islower() but not of category Ll.",
       lambda c: c.islower() and unicodedata.category(c) != "Ll")
ranges("kOtherUpper", "str.isupper() but not of category Lu.",
       lambda c: c.isupper() and unicodedata.category(c) != "Lu")
mappings("kLongUpper", "Upper cases of several characters.", str.upper)
mappings("kLongTitle", "Title cases of several characters.", str.title)
print("""}  // namespace nacre::chat

#endif  // CHAT_CHARACTER_TABLES_H_""")
