#!/usr/bin/env python3
"""Makes the tokenizer goldens of this folder.

Needs the packages `sentencepiece` and `tokenizers`. Run it from anywhere; it
reads ../gsm8k_100.jsonl, ../humaneval.jsonl, the bundled tokenizer.model and the
texts of golden_texts.py, and writes next to itself:

  spm_bundled.jsonl           the bundled model: ids and decoded text
  spm_rules.model/.jsonl      a small model with a character map, user-defined
                              symbols, no byte fallback, extra spaces removed
  spm_suffix.model/.jsonl     a small model with white space as a suffix
  {llama2,llama3,qwen2,gpt_neox,starcoder2}.json
                              small tokenizers in the published shapes
  {llama2,llama3,qwen2,gpt_neox,starcoder2}.jsonl
                              their goldens
  components.json             one small model under many component settings

A golden line has `text`, `ids` (special tokens added for tokenizer.json),
`decoded` and, where it differs, `decoded_all` (special tokens kept); lines
without `text` decode random ids. Seeds are fixed.
"""

import collections
import copy
import io
import json
import pathlib
import random

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models
from tokenizers import normalizers, pre_tokenizers, processors, trainers

from golden_texts import DATA, MULTILINGUAL, SPECIAL_CASES
from golden_texts import prompts, random_text, texts

HERE = pathlib.Path(__file__).resolve().parent
BUNDLED = DATA.parent.parent / "models" / "target" / "tokenizer.model"

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


def write(name, lines):
    with open(HERE / name, "w", encoding="utf-8") as file:
        for line in lines:
            file.write(json.dumps(line, ensure_ascii=True,
                                  separators=(",", ":")) + "\n")


# SentencePiece


def spm_goldens(processor, seed):
    lines = []
    for text in texts(seed):
        ids = processor.encode(text)
        lines.append({"text": text, "ids": ids,
                      "decoded": processor.decode(ids)})
    rng = random.Random(seed + 1)
    size = processor.get_piece_size()
    for i in range(90):
        # Low ids are the control and byte pieces.
        top = min(size, 300) if i % 2 else size
        ids = [rng.randrange(top) for _ in range(rng.randint(1, 12))]
        if i % 3 == 0 and processor.is_byte(20):
            text = rng.choice(MULTILINGUAL[1:12])
            data = bytearray(rng.choice(text).encode() * 2)
            if rng.random() < 0.5:
                data[rng.randrange(len(data))] = rng.randrange(256)
            ids += [processor.piece_to_id("<0x%02X>" % b) for b in data]
            ids += [rng.randrange(size)] * rng.randint(0, 1)
        lines.append({"ids": ids, "decoded": processor.decode(ids)})
    return lines


def train_spm(**options):
    model = io.BytesIO()
    sentences = [line for text in prompts() + MULTILINGUAL
                 for line in text.split("\n") if line and "\0" not in line]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences), model_writer=model,
        model_type="bpe", num_threads=1, minloglevel=2,
        self_test_sample_size=0, **options)
    return model.getvalue()


def make_spm():
    bundled = sentencepiece.SentencePieceProcessor(model_file=str(BUNDLED))
    write("spm_bundled.jsonl", spm_goldens(bundled, 11))

    rules = HERE / "rules.tsv"
    with open(rules, "w", encoding="utf-8") as file:
        for source, target in (("\u00a0", " "), ("\u3000", " "), ("\t", " "),
                               ("\ufb01", "fi"), ("\u2460", "1"),
                               ("e\u0301", "\u00e9"), ("\u200b", ""),
                               ("\uff41", "a"), ("\uff41\uff42", "AB"),
                               ("\u2122", " TM ")):
            file.write("%s\t%s\n" % (" ".join("%X" % ord(c) for c in source),
                                     " ".join("%X" % ord(c) for c in target)))
    model = train_spm(vocab_size=420, normalization_rule_tsv=str(rules),
                      character_coverage=0.98, byte_fallback=False,
                      user_defined_symbols=["<sep>", "return", "\u3000x"])
    rules.unlink()
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model)
    proto.trainer_spec.input[:] = []
    # Some pieces that merges lead through are unused: they are split again.
    unused = [piece for piece in proto.pieces
              if piece.type == piece.NORMAL and len(piece.piece) > 2]
    for piece in unused[5::9]:
        piece.type = piece.UNUSED
    proto.normalizer_spec.normalization_rule_tsv = ""
    (HERE / "spm_rules.model").write_bytes(proto.SerializeToString())
    processor = sentencepiece.SentencePieceProcessor(
        model_proto=proto.SerializeToString())
    write("spm_rules.jsonl", spm_goldens(processor, 12))

    model = train_spm(vocab_size=620, normalization_rule_name="identity",
                      byte_fallback=True, treat_whitespace_as_suffix=True,
                      character_coverage=0.99, split_digits=True,
                      remove_extra_whitespaces=False)
    (HERE / "spm_suffix.model").write_bytes(model)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    write("spm_suffix.jsonl", spm_goldens(processor, 13))


# tokenizer.json


def golden(tokenizer, ids, text=None):
    decoded = tokenizer.decode(ids)
    decoded_all = tokenizer.decode(ids, skip_special_tokens=False)
    line = {"ids": ids, "decoded": decoded}
    if text is not None:
        line["text"] = text
    if decoded_all != decoded:
        line["decoded_all"] = decoded_all
    return line


def hf_goldens(tokenizer, seed, specials):
    around = [
        "%sHello" % s for s in specials] + [
        "a %s b" % s for s in specials] + [
        "a%s%s\n%s" % (s, s, s) for s in specials] + [
        "  %s  x" % s for s in specials] + [
        s[:-1] + " " + s for s in specials]
    lines = []
    for text in texts(seed, around):
        ids = tokenizer.encode(text).ids
        lines.append(golden(tokenizer, ids, text))
    rng = random.Random(seed + 1)
    size = tokenizer.get_vocab_size()
    for i in range(90):
        top = min(size, 300) if i % 2 else size
        ids = [rng.randrange(top) for _ in range(rng.randint(1, 12))]
        lines.append(golden(tokenizer, ids))
    return lines


def save(tokenizer, name):
    document = json.loads(tokenizer.to_str())
    (HERE / name).write_text(
        json.dumps(document, ensure_ascii=True, separators=(",", ":")) + "\n")


def train_byte_level(pattern, normalizer, vocab_size, specials):
    tokenizer = Tokenizer(models.BPE(ignore_merges=pattern == LLAMA3))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(prompts() + MULTILINGUAL, trainer)
    tokenizer.add_special_tokens(
        [AddedToken(s, special=True, normalized=False) for s in specials])
    return tokenizer


def make_byte_level():
    specials = ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"]
    tokenizer = train_byte_level(LLAMA3, None, 800, specials)
    bos = tokenizer.token_to_id(specials[0])
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(
            single="%s $A" % specials[0], pair="%s $A %s $B" % (
                specials[0], specials[0]),
            special_tokens=[(specials[0], bos)])])
    save(tokenizer, "llama3.json")
    write("llama3.jsonl", hf_goldens(tokenizer, 21, specials))

    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer = train_byte_level(QWEN2, normalizers.NFC(), 700, specials)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    # Merges as pairs in one file, as strings in another.
    save(tokenizer, "qwen2.json")
    document = json.loads((HERE / "qwen2.json").read_text())
    document["model"]["merges"] = [
        " ".join(m) if isinstance(m, list) else m
        for m in document["model"]["merges"]]
    (HERE / "qwen2.json").write_text(
        json.dumps(document, ensure_ascii=True, separators=(",", ":")) + "\n")
    write("qwen2.jsonl", hf_goldens(tokenizer, 22, specials))


def train_gpt2(normalizer, splits, specials):
    """Splits by GPT-2's own pattern; special tokens have the first ids."""
    tokenizer = Tokenizer(models.BPE())
    if normalizer:
        tokenizer.normalizer = normalizer
    whole = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = (
        pre_tokenizers.Sequence(splits + [whole]) if splits else whole)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=700, show_progress=False,
        special_tokens=[AddedToken(s, special=True, normalized=False)
                        for s in specials],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(prompts() + MULTILINGUAL, trainer)
    return tokenizer


def make_gpt2():
    specials = ["<|endoftext|>", "<|padding|>"]
    tokenizer = train_gpt2(normalizers.NFC(), [], specials)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    runs = [" " * n for n in range(24, 1, -1)]
    tokenizer.add_tokens([AddedToken(run, normalized=True) for run in runs])
    save(tokenizer, "gpt_neox.json")
    write("gpt_neox.jsonl", hf_goldens(tokenizer, 24, specials + runs[-3:]))

    specials = ["<|endoftext|>", "<fim_prefix>", "<fim_middle>",
                "<fim_suffix>", "<file_sep>"]
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer = train_gpt2(None, [digits], specials)
    save(tokenizer, "starcoder2.json")
    write("starcoder2.jsonl", hf_goldens(tokenizer, 25, specials))


def limit_alphabet(lines, size):
    """Rare characters become spaces; the trainer's own limit breaks ties by
    hash order, which differs from run to run."""
    counts = collections.Counter("".join(lines))
    kept = set(sorted(counts, key=lambda c: (-counts[c], c))[:size])
    return ["".join(c if c in kept else " " for c in line) for line in lines]


def make_llama2():
    specials = ["<unk>", "<s>", "</s>"]
    trainer_tokenizer = Tokenizer(models.BPE())
    trainer_tokenizer.normalizer = normalizers.Sequence([
        normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    trainer_tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(
        prepend_scheme="never")
    trainer = trainers.BpeTrainer(vocab_size=640, show_progress=False)
    trainer_tokenizer.train_from_iterator(
        limit_alphabet(prompts() + MULTILINGUAL, 90), trainer)
    trained = json.loads(trainer_tokenizer.to_str())["model"]
    names = specials + ["<0x%02X>" % b for b in range(256)]
    names += [p for p, _ in sorted(trained["vocab"].items(),
                                   key=lambda item: item[1])
              if p not in names]
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" "))
              for m in trained["merges"]]
    tokenizer = Tokenizer(models.BPE(
        vocab={p: i for i, p in enumerate(names)}, merges=merges,
        unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = trainer_tokenizer.normalizer
    tokenizer.decoder = decoders.Sequence([
        decoders.Replace("\u2581", " "), decoders.ByteFallback(),
        decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens(
        [AddedToken(s, special=True, normalized=False) for s in specials])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    save(tokenizer, "llama2.json")
    write("llama2.jsonl", hf_goldens(tokenizer, 23, specials))


def make_components():
    base = Tokenizer(models.BPE(unk_token="<unk>"))
    base.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=260, show_progress=False,
                                  special_tokens=["<unk>"])
    base.train_from_iterator(
        limit_alphabet(prompts()[:40] + MULTILINGUAL[:5], 80), trainer)
    document = json.loads(base.to_str())
    document["added_tokens"] = []

    def split(pattern, behavior, invert=False, kind="Regex"):
        return {"type": "Split", "pattern": {kind: pattern},
                "behavior": behavior, "invert": invert}

    def metaspace(scheme, split=True):
        return {"type": "Metaspace", "replacement": "\u2581",
                "prepend_scheme": scheme, "split": split}

    def added(first, *tokens):
        result = []
        for i, (content, flags) in enumerate(tokens):
            token = {"id": first + i, "content": content, "special": False,
                     "single_word": False, "lstrip": False, "rstrip": False,
                     "normalized": False}
            token.update(flags)
            result.append(token)
        return result

    size = len(document["model"]["vocab"])
    special = added(size, ("<s>", {"special": True}),
                    ("</s>", {"special": True}))
    variants = [
        ("plain", {}),
        ("no decoder", {"decoder": None}),
        ("metaspace always", {"pre_tokenizer": metaspace("always"),
                              "decoder": metaspace("always")}),
        ("metaspace first", {"pre_tokenizer": metaspace("first"),
                             "decoder": metaspace("first"),
                             "added_tokens": special}),
        ("metaspace never", {"pre_tokenizer": metaspace("never"),
                             "decoder": metaspace("never"),
                             "added_tokens": special}),
        ("metaspace whole", {"pre_tokenizer": metaspace("first", False),
                             "decoder": metaspace("first", False)}),
        ("whitespace", {"pre_tokenizer": {"type": "Whitespace"}}),
        ("whitespace split", {"pre_tokenizer": {"type": "WhitespaceSplit"}}),
        ("digits", {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Digits", "individual_digits": False},
            {"type": "Punctuation", "behavior": "Contiguous"}]}}),
        ("individual digits", {"pre_tokenizer": {
            "type": "Sequence", "pretokenizers": [
                {"type": "Digits", "individual_digits": True},
                {"type": "Punctuation", "behavior": "MergedWithPrevious"}]}}),
        ("byte level", {"pre_tokenizer": {
            "type": "ByteLevel", "add_prefix_space": True,
            "trim_offsets": True, "use_regex": True},
            "decoder": {"type": "ByteLevel", "add_prefix_space": True,
                        "trim_offsets": True, "use_regex": True}}),
        ("word classes", {"pre_tokenizer": split(r"[\w']+|\s+|^x|\W$",
                                                 "Isolated")}),
        ("literal split", {"pre_tokenizer": split("a.", "Isolated",
                                                  kind="String")}),
        ("empty matches", {"pre_tokenizer": split("e*", "Isolated")}),
        ("literal replace", {"normalizer": {
            "type": "Replace", "pattern": {"String": "  "}, "content": "_"}}),
        ("normalizers", {"normalizer": {"type": "Sequence", "normalizers": [
            {"type": "NFKC"}, {"type": "Lowercase"},
            {"type": "Strip", "strip_left": True, "strip_right": True},
            {"type": "Replace", "pattern": {"Regex": r"\s+"},
             "content": " "}]}}),
        ("NFD", {"normalizer": {"type": "NFD"}}),
        ("NFKD", {"normalizer": {"type": "NFKD"}}),
        ("strip left", {"normalizer": {"type": "Strip", "strip_left": True,
                                       "strip_right": False}}),
        ("added tokens", {
            "normalizer": {"type": "Lowercase"},
            "added_tokens": added(
                size, ("<s>", {"special": True, "rstrip": True}),
                ("</s>", {"special": True, "lstrip": True}),
                ("John", {"single_word": True}),
                ("hello world", {"normalized": True}),
                ("hello", {"normalized": True, "lstrip": True}),
                ("ab", {}), ("abab", {"rstrip": True, "lstrip": True}))}),
        ("template", {"added_tokens": special, "post_processor": {
            "type": "Sequence", "processors": [
                {"type": "ByteLevel", "add_prefix_space": True,
                 "trim_offsets": False, "use_regex": True},
                {"type": "TemplateProcessing",
                 "single": [{"SpecialToken": {"id": "both", "type_id": 0}},
                            {"Sequence": {"id": "A", "type_id": 0}},
                            {"SpecialToken": {"id": "</s>", "type_id": 0}},
                            {"SpecialToken": {"id": "</s>", "type_id": 0}}],
                 "pair": [{"Sequence": {"id": "A", "type_id": 0}},
                          {"Sequence": {"id": "B", "type_id": 0}}],
                 "special_tokens": {
                     "both": {"id": "both", "ids": [size, size + 1],
                              "tokens": ["<s>", "</s>"]},
                     "</s>": {"id": "</s>", "ids": [size + 1],
                              "tokens": ["</s>"]}}}]}}),
        ("fuse unknown", {"model": {"fuse_unk": True}}),
        ("no unknown", {"model": {"unk_token": None}}),
        ("ignore merges", {"model": {"ignore_merges": True}}),
        ("decoder chain", {"decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"},
             "content": " "},
            {"type": "Strip", "content": "e", "start": 1, "stop": 0},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 2, "stop": 2},
            {"type": "Replace", "pattern": {"Regex": "[aeiou]+"},
             "content": "*"}]}}),
    ]
    for behavior in ("Removed", "Isolated", "MergedWithPrevious",
                     "MergedWithNext", "Contiguous"):
        for invert in (False, True):
            variants.append((
                "split %s %s" % (behavior, invert),
                {"pre_tokenizer": split(r"\s|[0-9.,']", behavior, invert)}))

    # Each with texts of its own.
    fused = {"fuse_unk": True}
    first = {"type": "Sequence", "pretokenizers": [
        {"type": "Punctuation", "behavior": "Isolated"}, metaspace("first")]}
    variants += [
        ("joiners", {"model": fused, "pre_tokenizer": {"type": "Whitespace"}},
         ["\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 x",
          "\u0915\u094d\u200d\u0937", "a\u200cb \u200d\u200c",
          "\ufe0f\u200d \u2642\ufe0f", "\u00b2x \U00031350\u094dy"]),
        ("punctuation", {"model": fused, "pre_tokenizer": {
            "type": "Punctuation", "behavior": "Isolated"}},
         ["  \u166d", "a\u061db\u09fdc", "\u1b7d\u2e52x$^`", "\U000111c9y",
          "\U00010d6e\U0001e5ff.", "\u00a7\u00b6\u3001\u300c\uff01"]),
        ("new digits", {"model": fused, "pre_tokenizer": {
            "type": "Digits", "individual_digits": True}},
         ["a\U00010d40\U00011de3b", "\U0001ccf0\u0661\u00b2\u2163",
          "\U00016ff4\U00016ff6x"]),
        ("first of many", {"normalizer": {"type": "NFKD"},
                           "pre_tokenizer": first},
         ["\u2026", "\u2026 a", "a\u2026", "\u2460\u2461 \ufb01", "\u00e9."]),
        ("first after a strip", {"normalizer": {
            "type": "Strip", "strip_left": True, "strip_right": True},
                                 "pre_tokenizer": first},
         ["  a", "a ", " ", "\u3000.a."]),
        ("first after a replacement", {
            "normalizer": {"type": "Sequence", "normalizers": [
                {"type": "Replace", "pattern": {"Regex": "a|bc|^d"},
                 "content": ".x."},
                {"type": "Prepend", "prepend": "e."},
                {"type": "Lowercase"}, {"type": "NFC"}]},
            "pre_tokenizer": first},
         ["a", "bc", "Ba", "da", "ba", "xa", "bca", "\u0130a"]),
        ("overlapping added tokens", {"added_tokens": added(
            size, ("<s>", {"special": True}),
            ("</s>", {"special": True, "rstrip": True}), ("  ", {}),
            ("</t>", {"rstrip": True, "lstrip": True}))},
         ["</s>   y", "</s>  y", "</s>    </s>   ", "</t>   </t>  a",
          "a   </t>    </s>", "   </s> x"]),
        ("normalized added tokens", {
            "normalizer": {"type": "Lowercase"}, "added_tokens": added(
                size, ("<S>", {"special": True, "normalized": True}),
                ("</s>", {"special": True, "normalized": True}),
                ("John", {"normalized": True}), ("HE", {}),
                ("\u0130x", {"normalized": True, "lstrip": True}))},
         ["<s>john</s>", "JOHN HE he <S>", "a i\u0307x", "\u0130X \u0130x"]),
        ("normalization of new characters", {
            "model": fused, "normalizer": {"type": "NFKC"},
            "pre_tokenizer": split(r"\w", "Isolated")},
         ["\u32ff\ua7f2\U00010781", "\U00011935\U00011930 \U00011938",
          "a\u0315\u0897\u0301\u0323"]),
        ("added tokens in white space that another took", {"added_tokens": added(
            size, ("<s>", {"special": True, "rstrip": True}),
            ("  ", {"lstrip": True}), (" \n", {"lstrip": True, "rstrip": True}))},
         ["<s>  a", "a <s>  <s>  b", "  <s>  ", "<s> \n", "<s> \n a",
          "<s> \n \n  b", "a \n<s>\n a<s>", "b   \n<s>"]),
    ]

    rng = random.Random(31)
    pool = SPECIAL_CASES + MULTILINGUAL
    output = []
    for name, patch, *own in variants:
        variant = copy.deepcopy(document)
        for key, value in patch.items():
            if key == "model":
                variant["model"].update(value)
            else:
                variant[key] = value
        tokenizer = Tokenizer.from_str(json.dumps(variant))
        chosen = rng.sample(pool, 14)
        chosen += [random_text(rng) for _ in range(6)]
        chosen += ["<s> Hello</s>World <s>x  </s>\n", "John Johnny John's ab abab",
                   "HELLO world hello World abab  ab ab", "a.a..ab 12 3.45, 6",
                   "eeaee  xe", "\u180e x \u0301y\n^x", "x<s>  hello"]
        chosen += own[0] if own else []
        cases = []
        for text in chosen:
            ids = tokenizer.encode(text).ids
            try:
                cases.append(golden(tokenizer, ids, text))
            except BaseException:  # Strip panics on a text shorter than stop
                if name != "decoder chain":
                    raise
        output.append({"name": name, "patch": patch, "cases": cases})
    (HERE / "components.json").write_text(json.dumps(
        {"base": document, "variants": output}, ensure_ascii=True,
        separators=(",", ":")) + "\n")


if __name__ == "__main__":
    make_spm()
    make_byte_level()
    make_gpt2()
    make_llama2()
    make_components()
