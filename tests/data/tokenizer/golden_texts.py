"""Texts that tokenizers stumble over, and some that they should not.

Of make_goldens.py. Seeds are the caller's: the same one gives the same texts.
"""

import json
import pathlib
import random

DATA = pathlib.Path(__file__).resolve().parent.parent

MULTILINGUAL = [
    "Hello world, it's John's 1st day; we'LL see, they'Ve gone, I'M ok, don'T.",
    "Größe, façade, naïve, Ærøskøbing, smørrebrød, čeština, żółć, İstanbul.",
    "Быстрая бурая лиса прыгает через ленивую собаку.",
    "Η γρήγορη καφέ αλεπού πηδάει πάνω από το σκύλο. Σίσυφος ΟΔΟΣ",
    "敏捷的棕色狐狸跳过了懒狗。人工智能模型生成文本。",
    "すばやい茶色の狐はのろまな犬を飛び越える。カタカナ、ひらがな。ｶﾞｷﾞ",
    "빠른 갈색 여우가 게으른 개를 뛰어넘습니다. 각 각",
    "الثعلب البني السريع يقفز فوق الكلب الكسول.",
    "השועל החום המהיר קופץ מעל הכלב העצלן.",
    "तेज़ भूरी लोमड़ी आलसी कुत्ते के ऊपर कूदती है।",
    "สุนัขจิ้งจอกสีน้ำตาลกระโดดข้ามสุนัขขี้เกียจ",
    "👩‍👩‍👧‍👦 family, 🏳️‍🌈 flag, 🇩🇪🇯🇵, 👍🏽 thumbs, ❤️ and 😀😃😄",
    "e\u0301 vs é, ﬁ ligature, ① ② Ⅷ, ½ ¾, ａｂｃ１２３, ㎏ ㈱, Å Å, ẛ̣",
    "a\u0315\u0300\u05ae\u0300\u0062 \u1100\u1161\u11a8 \u0f71\u0f72\u0f74",
    "tabs\tand\t\ttabs, nbsp\u00a0here, em\u2003space, thin\u2009, ideo\u3000, \u180e mvs",
    "zero\u200bwidth\u200djoiner\u200c\u2060 \ufeffBOM \u00adsoft\u2028line\u2029para",
    "kelvin \u212a, long s '\u017f can'\u017f, dotless \u0131, ß ẞ, ǅ ǆ",
    "control \x01\x02\x1f\x7f\x80\x85 chars and \x00 NUL",
]

SPECIAL_CASES = [
    "",
    " ",
    "  ",
    "   ",
    "\n",
    "\n\n\n",
    " \n \n ",
    "\r\n\r\n  x",
    "\t",
    "a",
    " a",
    "  a",
    "a ",
    "a  ",
    "a  b   c    d     e",
    "\u2581",
    "a\u2581b \u2581\u2581 c",
    "x = 1\n    y = 2\n        return x + y  # comment\n",
    "1234567890 12 3 4567 1,000,000.00 -1e-5 0x1F ١٢٣ ९ Ⅳ",
    "!!!???...---***///\\\\\\((([[[{{{",
    "'s 't 're 've 'm 'll 'd 'S 'T 'RE 'LL 'D ' '' 'x",
    "def f(a, b):\n\treturn a\t+ b\n\n\n",
    "trailing newline\n",
    "trailing spaces   \n  leading",
    "\ufffd replacement \ufffd\ufffd",
    "\U0010ffff\U000e0001\ue000\uffff\ufffe",
    "a" * 41,
    "ab" * 23,
    " " * 33 + "x",
    "\n" * 17 + " y",
    "<0x0A>",
    "<0x0a> <0xFF",
]

ALPHABETS = [
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "0123456789",
    " \t  ",
    " ",
    ".,;:!?'\"()[]{}<>+-*/=&|^%$#@~`_\\",
    "äöüßéèêñçøåæœłżźćÀÉÎÕÜ",
    "абвгдежзийклмнопрстуфхцчшщъыьэюя",
    "αβγδεζηθικλμνξοπρστυφχψω",
    "的一是不了人我在有他这中大来上国",
    "あいうえおカキクケコー",
    "가각간갇갈한국어",
    "ابتثجحخدذرز",
    "अआइईउऊकखगघािीु्",
    "😀🎉👍🏽👩‍💻🇫🇷❤️",
    "\u0300\u0301\u0302\u0308\u0323\u0327",
    "\u00a0\u2003\u3000\u200b\u200d\ufeff\u180e\u0085",
    "\x01\x07\x1b\x7f",
    "ﬁﬂ①²½Ⅷａｂ㎏Å",
    "\u2581",
]


def random_text(rng, newlines=True):
    parts = []
    for _ in range(rng.randint(1, 8)):
        if newlines and rng.random() < 0.12:
            parts.append(rng.choice(["\n", "\n\n", "\r\n", " \n", "\n  "]))
        alphabet = rng.choice(ALPHABETS)
        parts.append("".join(rng.choice(alphabet)
                             for _ in range(rng.randint(1, 9))))
        if rng.random() < 0.5:
            parts.append(" ")
    return "".join(parts)


def prompts():
    lines = []
    for name, count in (("gsm8k_100.jsonl", 60), ("humaneval.jsonl", 60)):
        with open(DATA / name, encoding="utf-8") as file:
            for line in list(file)[:count]:
                lines.append(json.loads(line)["prompt"])
    return lines


def texts(seed, extra=()):
    rng = random.Random(seed)
    result = SPECIAL_CASES + MULTILINGUAL + list(extra)
    result += [text[:120] for text in rng.sample(prompts(), 16)]
    result += [random_text(rng) for _ in range(120)]
    return result
