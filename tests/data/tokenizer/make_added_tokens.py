#!/usr/bin/env python3
"""Folders with added tokens outside the tokenizer's own file, and their ids.

Needs `transformers` 5.24, `tokenizers` 0.23.3 and `sentencepiece` 0.2. Run it
after make_goldens.py. It writes added_tokens.json, a list of folders: the
tokenizer's own file, what its other files hold, all added tokens that
transformers has of the folder, and what it makes of a few texts. In the
folders of a SentencePiece model `legacy` is false, and no text begins with a
space: there transformers and `sentencepiece` have the same ids. Decoded text
is compared for the others only, as transformers decodes by other rules.

With an argument it compares tokens and ids with those of the transformers at
hand, and writes nothing. Those of 4.57 are the same, but it refuses a list of
extra_special_tokens.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

import transformers

from make_goldens import BUNDLED, HERE

OUT = HERE / "added_tokens.json"
CHAT = "a<|im_start|>user\nHi<|im_end|>"
TEXTS = [CHAT, "<|im_start|>", "<|im_end|><|im_start|>x", "  <|im_end|>  y",
         "<|im_start|>assistant\n\u00e9\U0001f600<|im_end|>\n", "<|im_start",
         " <tool>\n", "a<tool>b <tool> c", "in the <tool><|im_end|>", "plain"]
FAST = {"tokenizer_class": "PreTrainedTokenizerFast"}
LLAMA = {"tokenizer_class": "LlamaTokenizer", "legacy": False,
         "add_bos_token": True, "bos_token": "<s>", "eos_token": "</s>",
         "unk_token": "<unk>"}


def token(content, **flags):
    return {"content": content, "lstrip": False, "normalized": False,
            "rstrip": False, "single_word": False, "special": True, **flags}


def decoder(first, *tokens):
    return {"added_tokens_decoder": {str(first + i): t
                                     for i, t in enumerate(tokens)}}


def folders():
    three = ["<|im_start|>", "<|im_end|>", "<tool>"]
    for name, size in [("llama3.json", 803), ("llama2.json", None),
                       ("qwen2.json", None)]:
        if size is None:
            file = json.loads((HERE / name).read_text())
            size = 1 + max([*file["model"]["vocab"].values(),
                            *(t["id"] for t in file["added_tokens"])])
        known = {t["content"]
                 for t in json.loads((HERE / name).read_text())["added_tokens"]}
        new = [t for t in three if t not in known]
        ids = {t: size + i for i, t in enumerate(new)}
        yield name, "decoder", {"tokenizer_config.json": {
            **FAST, **decoder(size, *map(token, new))}}
        yield name, "decoder with flags", {"tokenizer_config.json": {
            **FAST, **decoder(size, *(token(t, lstrip=True, rstrip=i == 1,
                                            special=i != 2, normalized=i == 2)
                                      for i, t in enumerate(new)))}}
        yield name, "added_tokens.json", {
            "tokenizer_config.json": FAST, "added_tokens.json": ids}
        yield name, "added_tokens.json, some special", {
            "tokenizer_config.json": {
                **FAST, "additional_special_tokens": ["<|im_start|>"]},
            "special_tokens_map.json": {"pad_token": "<|im_end|>"},
            "added_tokens.json": ids}
        yield name, "a decoder before added_tokens.json", {
            "tokenizer_config.json": {**FAST, **decoder(size, token(new[0]))},
            "added_tokens.json": {new[-1]: size}}
        for key in ["extra_special_tokens", "additional_special_tokens"]:
            # "in" is in the vocabulary.
            yield name, key, {
                "tokenizer_config.json": {**FAST, key: [*three, "in"]}}
        yield name, "named extra tokens", {"tokenizer_config.json": {
            **FAST, "extra_special_tokens": {"tool_token": "<tool>",
                                             "a_token": "<|im_start|>"}}}
        yield name, "special_tokens_map.json", {
            "tokenizer_config.json": FAST,
            "special_tokens_map.json": {"additional_special_tokens": three}}
    own = json.loads((HERE / "llama3.json").read_text())["added_tokens"]
    yield "llama3.json", "other flags than the tokenizer.json's", {
        "tokenizer_config.json": {**FAST, **decoder(own[0]["id"], *(
            token(t["content"], lstrip=True, rstrip=True) for t in own))}}
    yield "llama3.json", "a name that the vocabulary has", {
        "tokenizer_config.json": {**FAST, **decoder(803, token("in"))}}
    model = "tokenizer.model"
    ids = {t: 4096 + i for i, t in enumerate(three)}
    yield model, "decoder", {"tokenizer_config.json": {
        **LLAMA, **decoder(4096, *map(token, three))}}
    yield model, "added_tokens.json", {
        "tokenizer_config.json": LLAMA,
        "added_tokens.json": {**ids, "<s>": 1, "</s>": 2, "<unk>": 0}}
    yield model, "added_tokens.json, some special", {
        "tokenizer_config.json": {**LLAMA, "pad_token": "<tool>"},
        "special_tokens_map.json": {
            "eos_token": "<|im_end|>", "pad_token": "<tool>"},
        "added_tokens.json": ids}
    yield model, "additional_special_tokens", {
        "tokenizer_config.json": {**LLAMA, "additional_special_tokens": three}}


def texts_of(name):
    if name == "tokenizer.model":
        return [text for text in TEXTS if not text.startswith(" ")]
    if name != "llama3.json":
        return TEXTS
    return TEXTS + ["a <|eot_id|> b", " <|begin_of_text|>\n\n<|end_of_text|>x"]


def read(name, files):
    with tempfile.TemporaryDirectory() as folder:
        own = BUNDLED if name == "tokenizer.model" else HERE / name
        shutil.copy(own, Path(folder, "tokenizer" + Path(name).suffix))
        for file, content in files.items():
            Path(folder, file).write_text(json.dumps(content))
        return transformers.AutoTokenizer.from_pretrained(folder)


def outcome(name, tokenizer):
    texts = []
    for text in texts_of(name):
        ids = tokenizer.encode(text)
        line = {"text": text, "ids": ids}
        if name != "tokenizer.model":
            line["decoded"], line["decoded_all"] = [
                tokenizer.decode(ids, skip_special_tokens=skip,
                                 clean_up_tokenization_spaces=False)
                for skip in (True, False)]
        texts.append(line)
    added = tokenizer.added_tokens_decoder
    return {"tokens": {str(i): t.content for i, t in sorted(added.items())},
            "texts": texts}


def compare():
    print(transformers.__version__)
    for folder in json.loads(OUT.read_text()):
        label = folder["tokenizer"], folder["name"]
        try:
            found = outcome(label[0], read(label[0], folder["files"]))
        except Exception as error:
            print(*label, "REFUSED", str(error)[:80])
            continue
        if found["tokens"] != folder["tokens"]:
            print(*label, found["tokens"], "IS NOT", folder["tokens"])
        for a, b in zip(found["texts"], folder["texts"], strict=True):
            if a["ids"] != b["ids"]:
                print(*label, a["text"], a["ids"], "IS NOT", b["ids"])


def main():
    if len(sys.argv) > 1:
        return compare()
    lines = []
    for name, label, files in folders():
        lines.append(json.dumps({"name": label, "tokenizer": name,
                                 "files": files,
                                 **outcome(name, read(name, files))}))
    OUT.write_text("[" + ",\n".join(lines) + "]\n")


if __name__ == "__main__":
    main()
