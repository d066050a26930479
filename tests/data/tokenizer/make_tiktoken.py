#!/usr/bin/env python3
"""Makes a small vocabulary of tiktoken, and what the libraries make of it.

Needs `tiktoken` 0.14, `blobfile`, `transformers` 5.24, `tokenizers` 0.23.3 and
`sentencepiece` 0.2. Run it after make_corpus_goldens.py. It writes

  tiktoken/tokenizer.model        the 800 pieces of llama3.json, by rank
  tiktoken/tokenizer_config.json  special tokens behind them
  tiktoken/words.txt              words of any bytes in base64, and their ids
  corpus_goldens/tiktoken.txt     the folder, as transformers saves it as
                                  tokenizer.json
  corpus_goldens/tiktoken_{llama3,qwen}.txt
                                  tiktoken, used as Meta's tokenizer.py and
                                  tokenization_qwen.py do, with more ranks:
                                  fill()

The goldens are as make_corpus_goldens.py says.
"""

import base64
import json
import os
import random
import tempfile
import unicodedata

import tiktoken
from transformers import AutoTokenizer

from golden_corpus import corpus
from make_corpus_goldens import HuggingFace, line
from make_goldens import HERE, LLAMA3, QWEN2

FOLDER = HERE / "tiktoken"
# Otherwise a file that was there before may be read, by its path.
os.environ["TIKTOKEN_CACHE_DIR"] = ""


def alphabet():
    """Characters of ByteLevel to bytes."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    return {**{chr(b): b for b in printable},
            **{chr(0x100 + i): b for i, b in enumerate(others)}}


def pieces():
    vocab = json.loads((HERE / "llama3.json").read_text())["model"]["vocab"]
    chars = alphabet()
    return [bytes(chars[c] for c in p) for p in sorted(vocab, key=vocab.get)]


def token(content, **flags):
    return {"content": content, "lstrip": False, "normalized": False,
            "rstrip": False, "single_word": False, "special": True, **flags}


def write_folder(ranks):
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / "tokenizer.model").write_text("".join(
        "%s %d\n" % (base64.b64encode(p).decode(), i)
        for i, p in enumerate(ranks)))
    names = [token("<|begin_of_text|>"), token("<|end_of_text|>"),
             token("<|eot_id|>"), token("<|user|>", rstrip=True),
             token("<|im_start|>", lstrip=True),
             token("<|tool|>", special=False),
             token("<|vision_pad|>", special=False, normalized=True)]
    config = {"add_bos_token": True,
              "added_tokens_decoder": {str(len(ranks) + i): name
                                       for i, name in enumerate(names)},
              "additional_special_tokens": ["<|eot_id|>", "<|placeholder1|>",
                                            "<|placeholder2|>"],
              "bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>",
              "tokenizer_class": "PreTrainedTokenizerFast"}
    (FOLDER / "tokenizer_config.json").write_text(
        json.dumps(config, indent=1) + "\n")


def saved():
    with tempfile.TemporaryDirectory() as folder:
        AutoTokenizer.from_pretrained(FOLDER).save_pretrained(folder)
        return HuggingFace(folder + "/tokenizer.json")


def fill(ranks, size):
    """Up to `size`, by tokens that no UTF-8 has."""
    return ranks + [b"\xff" + rank.to_bytes(3, "big")
                    for rank in range(len(ranks), size)]


class Tiktoken:
    def __init__(self, ranks, pattern, names, bos=(), form=None):
        self.special = {len(ranks) + i: name for i, name in enumerate(names)}
        self.encoding = tiktoken.Encoding(
            "test", pat_str=pattern,
            mergeable_ranks={p: i for i, p in enumerate(ranks)},
            special_tokens={name: i for i, name in self.special.items()})
        self.size = self.encoding.n_vocab
        self.bos = list(bos)
        self.form = form

    def ids(self, text):
        if self.form:
            text = unicodedata.normalize(self.form, text)
        read = self.encoding.encode(text, allowed_special="all")
        return [self.bos + read, read,
                self.encoding.encode(text, disallowed_special=())]

    def texts(self, ids):
        return [self.encoding.decode([i for i in ids if i not in self.special]),
                self.encoding.decode(ids)]


def llama3(ranks):
    names = {0: "begin_of_text", 1: "end_of_text", 6: "start_header_id",
             7: "end_header_id", 9: "eot_id"}
    count = iter(range(256))
    names = ["<|%s|>" % (names.get(i) or "reserved_special_token_%d" % next(count))
             for i in range(256)]
    return Tiktoken(fill(ranks, 128000), LLAMA3, names, bos=[128000])


def write_words(ranks):
    encoding = Tiktoken(ranks, LLAMA3, []).encoding
    rng = random.Random(51)
    parts = [b"  ", b" ", b"=", b"==", b"\n", b"in", b"n", b"e", b"r"]
    lines = []
    for i in range(200):
        if i % 4 == 0:
            word = rng.randbytes(rng.randint(1, 12))
        elif i % 4 == 1:
            word = b"".join(rng.choices(parts, k=rng.randint(2, 20)))
        else:
            word = b"".join(rng.choices(ranks, k=rng.randint(1, 6)))
        if i % 50 == 0:  # tiktoken has another algorithm for long ones
            word = b"".join(rng.choices(parts, k=150))
        ids = encoding._encode_single_piece(word)
        lines.append(" ".join([base64.b64encode(word).decode(), *map(str, ids)]))
    (FOLDER / "words.txt").write_text("\n".join(lines) + "\n")


def main():
    ranks = pieces()
    write_folder(ranks)
    write_words(ranks)
    extras = ["<|extra_%d|>" % i for i in range(205)]
    tokenizers = {
        "tiktoken": saved(),
        "tiktoken_llama3": llama3(ranks),
        "tiktoken_qwen": Tiktoken(
            fill(ranks, 151643), QWEN2,
            ["<|endoftext|>", "<|im_start|>", "<|im_end|>"] + extras,
            form="NFC")}
    for name, tokenizer in tokenizers.items():
        lines = [line(tokenizer, i, text) for i, text in enumerate(corpus())]
        (HERE / "corpus_goldens" / (name + ".txt")).write_text(
            "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
