"""The 2,000 texts that every tokenizer is compared on.

Of make_corpus_goldens.py, which writes them to corpus.jsonl. The added tokens
of all tokenizers here stand in them: what is a token to one is text to others.
"""

import json
import pathlib
import random
import unicodedata

from golden_texts import ALPHABETS, MULTILINGUAL, SPECIAL_CASES
from golden_texts import prompts, random_text

HERE = pathlib.Path(__file__).resolve().parent
COUNT = 2000

WORDS = [
    "the quick Model's 42nd tokens aren't decoding e-mail NASA iPhone HTTPServer",
    "größer Straße Übermäßig naïve déjà l'été garçon œuvre señor mañana ¿qué?",
    "żółć łódź příliš žluťoučký kůň İstanbul ığdır çok güzel đường Việt Nam",
    "модель слово Ёлка съешь ещё этих мягких булок їжак ґанок Њујорк",
    "μοντέλο λέξη Ἀθῆναι ἄνθρωπος ΣΊΣΥΦΟΣ σίσυφος ὦ άέή",
    "模型生成文本 的 是 了 漢字 語言 中文，标点。「引号」 龍門飛甲 㐀㐁 𠀀𠮷野",
    "日本語 トークン ひらがな カタカナー ｶﾀｶﾅ ゔぁ がぎぐ 東京都、 々〆",
    "한국어 토큰 모델이 생성합니다 각 힣 ㄱㄴㄷ",
    "النموذج كلمة مُحَمَّد لا إله ۱۲۳ فارسی می‌خواهم ہے۔",
    "מודל מילה שָׁלוֹם עולם",
    "मॉडल शब्द क्षेत्र हिन्दी ज़िंदगी १२३ क्‍ष",
    "মডেল শব্দ ক্ষ য় ড়", "மொழி கொடு சொல்", "మోడల్ క్షమించు", "മലയാളം ൻ്റെ",
    "แบบจำลอง คำ น้ำ เก๋ ๑๒๓", "ແບບ ຄໍາ", "ပုံစံ မြန်မာ", "ភាសា ខ្មែរ",
    "მოდელი ᲛᲝᲓᲔᲚᲘ", "մոդել Բառ և", "ሞዴል ቃል፡", "བོད་སྐད།", "ᏣᎳᎩ Ꮳꭰ",
    "x² ½ ¾ ₂ ∑ ∫ ≤ → ∀ ℝ ℵ № ™ © € £ ¥ ₹ 𝒳 𝟘𝟙 ℌ",
]
MARKS = [", ", ". ", "; ", " - ", "... ", "? ", "! ", ": ", " / ", "\n", " ",
         " ", " ", " ", " ", "\u3001", "\u3002", "\u00a0", " \u2014 ", "  "]
CODE = [
    "def {0}(self, {1}: int = {2}) -> list[str]:\n    return [{1} for _ in range({2})]\n",
    "for (int {0} = 0; {0} < {2}; ++{0}) {{\n\tif (!{1}[{0}]) continue;\n}}\n",
    "<div class=\"{0}\" id='{1}'>\n  <p>{2}&nbsp;%</p>\n</div>",
    "{{\"{0}\": [{2}, null, true], \"{1}\": {{\"a\\n\": \"\\u00e9\"}}}}",
    "SELECT {0}.*, COUNT(*) FROM {1} AS {0} WHERE id >= {2} AND name LIKE '%x_';",
    "fn {0}<'a, T>(x: &'a mut T) -> Result<(), Box<dyn Error>> {{ x.{1}()?; Ok(()) }}",
    "#include <{0}.h>\r\n\r\n#define {1}(x) ((x) << {2})\r\n",
    "$ {0} --{1}={2} | grep -v '^#' > /tmp/{1}.txt 2>&1 && echo \"$?\"",
    "{0} := map[string]int{{\"{1}\": {2}}}\n\tdefer func() {{ _ = recover() }}()\n",
    "# {0}\n\n* {1}\n  1. `{2}`\n\n| a | b |\n|---|---|\n",
    "https://www.{0}.com/{1}?q={2}&lang=de#top user.{0}@{1}.org",
    "\\frac{{{0}}}{{{2}}} + \\sum_{{i=1}}^{{n}} x_i^2 \\quad $${1}$$",
]
NAMES = ["i", "foo_bar", "camelCaseName", "HTMLParser2", "__init__", "x1", "Größe",
         "MAX_LEN", "変数", "value", "getURLFor"]
SPACES = [" ", "  ", "   ", "    ", "\t", "\t\t", "\n", "\n\n", "\r\n", "\r", "\n    ",
          " \n", "\u00a0", "\u3000", "\u2003\u2009", "\u2028", "\x0b", "\x0c",
          "\x85", "\u200b", "\u1680", "\u180e", "\u202f", "\n\t\n", "         "]
EMOJI = ["😀", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈", "❤️", "❤", "🇩🇪", "🇯🇵🇫🇷", "👩🏿‍🚀", "1️⃣", "#️⃣",
         "☺︎", "🤷🏻‍♂️", "\u200d", "\ufe0f", "🏴\U000e0067\U000e0062\U000e007f", "🫠", "🪿", "©️"]
MARKERS = "\u0300\u0301\u0302\u0303\u0308\u030a\u0323\u0327\u0328\u0338\u0345" \
          "\u05b4\u064b\u0651\u093c\u0f71\u0f72\u3099\u309a\u1dc0\u20dd"
BASES = "aeiouAOnscyz\u03b1\u03b9\u0438\u0431\u0915\u304b\u30cfgq1 \u00e9\u1ea1\uac00"
FOLDED = "\ufb01\ufb03\u2460\u2168\u00bd\u33a5\u3231\uff21\uff11\uff76\uff9e\u212b" \
         "\u2126\u1e9b\u0344\u0958\u2adc\u1100\u1161\u11a8\u017f\u2075\u2026\ufdfa"
EDGES = "\x00\x01\x08\x1b\x1f\x7f\x80\x9f\u00ad\u061c\u200e\u202e\u2066\u2060\ufeff" \
        "\ufffc\ufffd\ufffe\uffff\ufdd0\ue000\uf8ff\U0001fffe\U000e0001\U000e0100" \
        "\U000f0000\U0010ffff\u0378\u2fe0\U0001f000\u115f\u3164\u2800\u0600\u110bd"


def added_tokens():
    found = []
    for path in sorted(HERE.glob("*.json")):
        for token in json.loads(path.read_text()).get("added_tokens", []):
            content = token["content"]
            if len(content.strip()) > 1 and content not in found:
                found.append(content)
    return found


def sentence(rng):
    words = rng.choice(WORDS).split(" ")
    if rng.random() < 0.25:
        words = words + rng.choice(WORDS).split(" ")
    text = ""
    for _ in range(rng.randint(1, 9)):
        text += rng.choice(words) + rng.choice(MARKS)
    return rng.choice(["", "", " "]) + rng.choice([text, text.strip()])


def code(rng):
    if rng.random() < 0.4:
        text = rng.choice(prompts()[60:])
        begin = rng.randrange(len(text))
        return text[begin:begin + rng.randint(10, 110)]
    return rng.choice(CODE).format(rng.choice(NAMES), rng.choice(NAMES), number(rng))


def prose(rng):
    text = rng.choice(prompts()[:60])
    begin = rng.randrange(len(text))
    return text[begin:begin + rng.randint(10, 110)]


def number(rng):
    n = rng.randrange(10 ** rng.randint(1, 12))
    return rng.choice([
        str(n), "{:,}".format(n), "{:,}".format(n).replace(",", " "), hex(n),
        "%.3e" % n, "-%d.%02d%%" % (n, n % 100), "$%d" % n, "0%d" % n,
        "".join(chr(0x660 + int(d)) for d in str(n)),
        "".join(chr(0x966 + int(d)) for d in str(n)),
        "".join(chr(0xFF10 + int(d)) for d in str(n)), bin(n % 999)])


def numbers(rng):
    parts = [number(rng) for _ in range(rng.randint(1, 4))]
    if rng.random() < 0.3:
        parts.append(rng.choice(["12:30:05", "2024-02-29", "1/2", "v1.2.3-rc4", "3rd",
                                 "10km", "\u2167\u2168", "\u00b2\u00b3\u00bc", "A4"]))
    rng.shuffle(parts)
    return rng.choice([" ", "  ", "", "+", "x", "\n", ", "]).join(parts)


def spaces(rng):
    text = ""
    for _ in range(rng.randint(1, 7)):
        text += "".join(rng.choice(SPACES) for _ in range(rng.randint(1, 3)))
        text += rng.choice(["", "", "a", "word", "return x", "7", ".", "\u4e2d", "'s", "{"])
    return text


def emoji(rng):
    return "".join(rng.choice(EMOJI) + rng.choice(["", "", " ", "a", "!"])
                   for _ in range(rng.randint(1, 7)))


def marks(rng):
    kind = rng.randrange(4)
    if kind == 0:
        form = rng.choice(["NFD", "NFKD", "NFC", "NFKC"])
        return unicodedata.normalize(form, sentence(rng))
    text = ""
    for _ in range(rng.randint(1, 8)):
        text += rng.choice(BASES if kind < 3 else FOLDED)
        text += "".join(rng.choice(MARKERS) for _ in range(rng.randrange(4)))
        text += rng.choice(["", "", "", " ", rng.choice(FOLDED)])
    return text


def tokens(rng, names):
    text = ""
    for _ in range(rng.randint(1, 4)):
        name = rng.choice(names)
        text += rng.choice([name] * 8 + [name[:-1], name[1:], name.upper(), name * 2,
                                         name + name[:3]])
        text += rng.choice(["", "", " ", "  ", "\n", " \n ", "\t", "\u3000", "Hello", " a b",
                            "x", "\u4e2d\u6587", " 12", "e\u0301", "\u0301", "."])
    return rng.choice(["", "", " ", "\n", "say ", "a", "  b  "]) + text


def runs(rng):
    unit = rng.choice(["a", " ", "\n", "\t", "0", "12", "ha", "=", "-", "\u4e2d", "\u3042",
                       "\U0001f600", "\u0301", "a ", " \n", "\r\n", "ab\n", "'s", "<", "\u2581",
                       "\u00e9", "()", "\u0e01", "_", "A", "\x00", "\u2581a", "1,"])
    return rng.choice(["", "x"]) + unit * rng.randint(5, 160 // len(unit)) + \
        rng.choice(["", "y", " y"])


def edges(rng):
    text = ""
    for _ in range(rng.randint(1, 6)):
        text += rng.choice(EDGES) + rng.choice(["", "", " ", "a", "\u00e9", "1", "\n"])
    return text


def code_points(rng):
    text = ""
    while len(text) < rng.randint(1, 10):
        top = rng.choice([0x250, 0x800, 0x3000, 0xFFFF, 0x20000, 0x33000, 0x110000])
        point = rng.randrange(top)
        if not 0xD800 <= point < 0xE000:
            text += chr(point) + rng.choice(["", "", " ", "\n"])
    return text


def contractions(rng):
    text = ""
    for _ in range(rng.randint(1, 5)):
        text += rng.choice(["I", "we", "DON", "it", "x", "", " ", "\u00e9", "\u4e2d", "1", "K\u0130"])
        text += rng.choice(["'", "'", "\u2019", "''"])
        text += rng.choice(["s", "S", "t", "re", "VE", "m", "lL", "d", "\u017f", "sx", "LLs",
                            " s", "D'"])
        text += rng.choice([" ", "", ".", "\n"])
    return text


def corpus():
    rng = random.Random(2000)
    names = added_tokens()
    kinds = [(sentence, 420), (code, 250), (prose, 100), (numbers, 150), (spaces, 200),
             (emoji, 90), (marks, 160), (lambda r: tokens(r, names), 300), (runs, 70),
             (edges, 60), (code_points, 100), (contractions, 50), (random_text, COUNT)]
    found = dict.fromkeys(SPECIAL_CASES + MULTILINGUAL + ALPHABETS)
    for make, count in kinds:
        end = min(len(found) + count, COUNT)
        while len(found) < end:
            found.setdefault(make(rng))
    texts = list(found)
    rng.shuffle(texts)
    return texts


def escaped(text):
    """As JSON. What has no ink of its own, or moves with others, is escaped."""
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(c if c.isprintable() and unicodedata.category(c)[0] != "M"
                   else json.dumps(c)[1:-1] for c in quoted)
