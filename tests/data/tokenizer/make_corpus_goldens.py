#!/usr/bin/env python3
"""Compares every tokenizer here with its library on the texts of golden_corpus.py.

Needs `tokenizers` 0.23.3 and `sentencepiece` 0.2. Run it after make_goldens.py
and make_shapes.py. It writes corpus.jsonl, one text a line, and for each
tokenizer corpus_goldens/NAME.txt, one line for each text: 12 characters of
base64, then, for one text in 50, all its ids. The 9 bytes are the lowest of two
FNV-1a (64 bits):

  6  of the ids: as the library adds special tokens; without those; and, of a
     tokenizer.json, without those and with their names read as text
  3  of decoded texts: of the first ids, then of random ones, each without and,
     of a tokenizer.json, with special tokens

Numbers are little-endian. Each list of ids, 32-bit numbers, ends with
0xFFFFFFFF, each text with the byte 0xFF. Random ids are those of random_ids(),
which tests/tokenizer/corpus_test.cc has, too.
"""

import base64
import struct

import sentencepiece
from tokenizers import Tokenizer

from golden_corpus import corpus, escaped
from make_goldens import BUNDLED, HERE

WHOLE = 50


def fnv1a(data):
    value = 0xcbf29ce484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001b3 & 0xffffffffffffffff
    return value


def random_ids(index, size):
    """Of C++'s std::minstd_rand."""
    state = index + 1

    def draw():
        nonlocal state
        state = state * 48271 % 2147483647
        return state

    # Low ids are control and byte pieces.
    top = min(size, 300) if index % 2 else size
    return [draw() % top for _ in range(1 + draw() % 12)]


class HuggingFace:
    def __init__(self, path):
        self.plain = Tokenizer.from_file(str(path))
        self.as_text = Tokenizer.from_file(str(path))
        self.as_text.encode_special_tokens = True
        self.size = max(self.plain.get_vocab().values()) + 1

    def ids(self, text):
        return [self.plain.encode(text).ids,
                self.plain.encode(text, add_special_tokens=False).ids,
                self.as_text.encode(text, add_special_tokens=False).ids]

    def texts(self, ids):
        return [self.plain.decode(ids, skip_special_tokens=skip)
                for skip in (True, False)]


class SentencePiece:
    def __init__(self, path):
        self.processor = sentencepiece.SentencePieceProcessor(
            model_file=str(path))
        self.size = self.processor.get_piece_size()

    def ids(self, text):
        return [self.processor.encode(text)]

    def texts(self, ids):
        return [self.processor.decode(ids)]


def line(tokenizer, index, text):
    lists = tokenizer.ids(text)
    texts = tokenizer.texts(lists[0])
    texts += tokenizer.texts(random_ids(index, tokenizer.size))
    ids = b"".join(struct.pack("<%dI" % (len(ids) + 1), *ids, 0xFFFFFFFF)
                   for ids in lists)
    decoded = b"".join(text.encode() + b"\xff" for text in texts)
    both = struct.pack("<Q", fnv1a(ids))[:6] + struct.pack("<Q", fnv1a(decoded))[:3]
    whole = lists[0] if index % WHOLE == 0 else []
    return " ".join([base64.b64encode(both).decode()] + [str(i) for i in whole])


def main():
    texts = corpus()
    (HERE / "corpus.jsonl").write_text(
        "".join(escaped(text) + "\n" for text in texts), encoding="utf-8")
    tokenizers = {"spm_bundled": SentencePiece(BUNDLED)}
    for path in HERE.glob("*.model"):
        tokenizers[path.stem] = SentencePiece(path)
    for path in HERE.glob("*.json"):
        if path.stem not in ("components", "patterns"):
            tokenizers[path.stem] = HuggingFace(path)
    folder = HERE / "corpus_goldens"
    folder.mkdir(exist_ok=True)
    for name, tokenizer in tokenizers.items():
        lines = [line(tokenizer, i, text) for i, text in enumerate(texts)]
        (folder / (name + ".txt")).write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
