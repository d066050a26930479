#!/usr/bin/env python3
"""Makes small tokenizers in the shapes that model families publish.

Needs `tokenizers` 0.23.3 and `sentencepiece` 0.2. Run it from anywhere. It
trains on the prompts beside this folder and writes next to itself
{gemma,codellama,mistral,phi3,phi4,phi4_mini,tekken,deepseek_coder,deepseek_llm,
deepseek_v3,qwen3,big_code}.json and spm_gemma.model. The
vocabularies are small; normalizers, pre-tokenizers, patterns, flags of added
tokens, post-processors and decoders are written after the published files. What the
library makes of them: make_corpus_goldens.py.
"""

import json

from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models
from tokenizers import normalizers, pre_tokenizers, processors, trainers

from golden_texts import MULTILINGUAL, prompts
from make_goldens import HERE, QWEN2, limit_alphabet, save, train_spm
from make_pattern_goldens import DEEPSEEK_CODER, DEEPSEEK_V3, O200K

TEKKEN = O200K.replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "").replace(
    r"\p{N}{1,3}", r"\p{N}")
CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)
# That of make_pattern_goldens.py has the first ranges of this class.
DEEPSEEK_LETTERS = DEEPSEEK_CODER[:-2] + (
    "\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d"
    "\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc"
    "\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102"
    "\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d"
    "\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184"
    "\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d"
    "\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf"
    "\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a"
    "\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb"
    "\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df"
    "\U0001e900-\U0001e943]+")
DEEPSEEK_SIGNS = (
    "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+")
DEEPSEEK_EASTERN = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"


def token(content, **flags):
    return AddedToken(content, **{"normalized": False, **flags})


def special(content, **flags):
    return token(content, special=True, **flags)


# Byte-level BPE


def byte_level(name, splits, added, normalizer=None, first=(), bos=None,
               ignore_merges=False, whole=False, absent=""):
    """`whole`: ByteLevel splits by GPT-2's pattern. `first`: the first ids.
    `absent`: bytes that are no piece."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(splits + [
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=whole)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(prompts() + MULTILINGUAL, trainers.BpeTrainer(
        vocab_size=640, show_progress=False, special_tokens=list(first),
        initial_alphabet=sorted(set(pre_tokenizers.ByteLevel.alphabet()) -
                                set(absent))))
    tokenizer.add_tokens(added)
    steps = [processors.ByteLevel(trim_offsets=False)]
    if bos:
        steps.append(processors.TemplateProcessing(
            single="%s $A" % bos, pair="%s $A %s $B" % (bos, bos),
            special_tokens=[(bos, tokenizer.token_to_id(bos))]))
    tokenizer.post_processor = processors.Sequence(steps)
    save(tokenizer, name + ".json")


def regex_split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def make_byte_level():
    byte_level("tekken", [regex_split(TEKKEN)], [], bos="<s>",
               ignore_merges=True, first=[special(s) for s in (
                   "<unk>", "<s>", "</s>", "[INST]", "[/INST]",
                   "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]",
                   "<pad>", "[PREFIX]", "<SPECIAL_20>", "<SPECIAL_21>")])
    byte_level("phi4", [regex_split(CL100K, "removed", True)],
               [special(s, lstrip=True, rstrip=True) for s in (
                   "<|dummy_0|>", "<|endoftext|>", "<|fim_prefix|>",
                   "<|im_start|>", "<|im_end|>", "<|im_sep|>",
                   "<|endofprompt|>")])
    byte_level("phi4_mini", [regex_split(O200K, "removed", True)],
               [special("<|endoftext|>"), special("<|endofprompt|>"),
                special("<|assistant|>", rstrip=True),
                special("<|end|>", rstrip=True),
                special("<|user|>", rstrip=True),
                token("<|tool|>", rstrip=True), token("<|/tool|>")])
    byte_level("qwen3", [regex_split(QWEN2)],
               [special(s) for s in (
                   "<|endoftext|>", "<|im_start|>", "<|im_end|>",
                   "<|object_ref_start|>", "<|vision_pad|>")] +
               [token(s) for s in (
                   "<tool_call>", "</tool_call>", "<|fim_prefix|>",
                   "<|repo_name|>", "<tool_response>", "<think>", "</think>")],
               normalizer=normalizers.NFC())
    byte_level("big_code", [pre_tokenizers.Digits(individual_digits=True)], [],
               whole=True, first=[special(s) for s in (
                   "<|endoftext|>", "<fim_prefix>", "<fim_middle>",
                   "<fim_suffix>", "<fim_pad>", "<filename>", "<gh_stars>",
                   "<issue_start>", "<issue_comment>", "<jupyter_code>",
                   "<empty_output>", "<commit_msg>", "<reponame>")])
    fim = ["<｜fim▁hole｜>", "<｜fim▁begin｜>", "<｜fim▁end｜>"]
    bars = [special("<｜begin▁of▁sentence｜>", normalized=True),
            special("<｜end▁of▁sentence｜>", normalized=True)]
    # Of bytes that UTF-8 has not: the model lacks them, text may have them.
    absent = "õ÷ÁýÀÿøúþüùöû"
    rare = [token(c, normalized=True) for c in absent]
    digits = pre_tokenizers.Digits(individual_digits=True)
    byte_level("deepseek_coder",
               [regex_split("[\r\n]"), regex_split(r"\s?\p{L}+"),
                regex_split(r"\s?\p{P}+"), regex_split(DEEPSEEK_EASTERN),
                digits],
               rare + bars + [token(s, normalized=True) for s in fim + [
                   "<|User|>", "<|Assistant|>", "<|EOT|>"]],
               normalizer=normalizers.Sequence([]),
               bos="<｜begin▁of▁sentence｜>", absent=absent)
    byte_level("deepseek_llm",
               [regex_split("[\r\n]"), regex_split(DEEPSEEK_LETTERS),
                regex_split(DEEPSEEK_SIGNS), regex_split(r"\s+$"),
                regex_split(DEEPSEEK_EASTERN), digits],
               rare + bars, normalizer=normalizers.Sequence([]),
               bos="<｜begin▁of▁sentence｜>", absent=absent)
    byte_level("deepseek_v3",
               [regex_split(r"\p{N}{1,3}"), regex_split("[一-龥぀-ゟ゠-ヿ]+"),
                regex_split(DEEPSEEK_V3)],
               [token(s, normalized=True) for s in fim + [
                   "<｜User｜>", "<｜Assistant｜>", "<|EOT|>",
                   "<｜tool▁calls▁begin｜>", "<｜tool▁sep｜>", "<think>"]],
               first=[special("<｜begin▁of▁sentence｜>"),
                      special("<｜end▁of▁sentence｜>"),
                      special("<｜▁pad▁｜>")],
               normalizer=normalizers.Sequence([]))


# SentencePiece as tokenizer.json


def pieces_bpe(lines, split, specials, extra_pieces=(), vocab_size=420):
    """BPE with byte pieces: specials first, then bytes, then what is learned."""
    trained = Tokenizer(models.BPE())
    trained.normalizer = normalizers.Replace(" ", "\u2581")
    trained.pre_tokenizer = regex_split(split)
    trained.train_from_iterator(limit_alphabet(lines, 100), trainers.BpeTrainer(
        vocab_size=vocab_size, show_progress=False))
    model = json.loads(trained.to_str())["model"]
    names = list(specials) + ["<0x%02X>" % b for b in range(256)]
    known = set(names)
    for piece in list(extra_pieces) + sorted(model["vocab"],
                                             key=model["vocab"].get):
        if piece not in known:
            known.add(piece)
            names.append(piece)
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" "))
              for m in model["merges"]]
    return models.BPE(vocab={p: i for i, p in enumerate(names)}, merges=merges,
                      unk_token="<unk>", fuse_unk=True, byte_fallback=True)


LLAMA_SPLIT = r"\x{2581}*[^\x{2581}]+|\x{2581}+".replace("\\x{2581}", "\u2581")


def template(bos, tokenizer):
    return processors.TemplateProcessing(
        single="%s $A" % bos, pair="%s $A %s $B" % (bos, bos),
        special_tokens=[(bos, tokenizer.token_to_id(bos))])


def llama_decoder():
    return decoders.Sequence([
        decoders.Replace("\u2581", " "), decoders.ByteFallback(),
        decoders.Fuse(), decoders.Strip(" ", 1, 0)])


def make_gemma():
    runs = ["\n" * n for n in range(2, 8)] + ["\u2581" * n for n in range(2, 9)]
    first = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "[@BOS@]",
             "<unused0>", "<unused1>", "<start_of_turn>", "<end_of_turn>"]
    tags = ["<table>", "</table>", "<h1>", "<code>", "</code>", "<strong>",
            "<start_of_image>"]
    lines = prompts() + MULTILINGUAL + [
        " " * n + "x" + "\n" * n + "y" for n in range(1, 20)]
    tokenizer = Tokenizer(pieces_bpe(
        lines, "\n+|\u2581*[^\u2581\n]+|\u2581+", first, runs + tags, 480))
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([
        decoders.Replace("\u2581", " "), decoders.ByteFallback(),
        decoders.Fuse()])
    tokenizer.add_tokens(
        [special(s) for s in first[:4]] + [token(s) for s in first[4:8]] +
        [special(s) for s in first[8:]] + [token(s) for s in runs + tags])
    tokenizer.post_processor = template("<bos>", tokenizer)
    save(tokenizer, "gemma.json")


def make_llama_like():
    lines = prompts() + MULTILINGUAL
    base = ["<unk>", "<s>", "</s>"]

    def start(extra=(), prepend=True):
        tokenizer = Tokenizer(
            pieces_bpe(lines, LLAMA_SPLIT, base + list(extra)))
        if prepend:
            tokenizer.normalizer = normalizers.Sequence([
                normalizers.Prepend("\u2581"),
                normalizers.Replace(" ", "\u2581")])
        tokenizer.decoder = llama_decoder()
        return tokenizer

    tokenizer = start()
    tokenizer.add_tokens([special(s) for s in base + [
        "\u2581<PRE>", "\u2581<MID>", "\u2581<SUF>", "\u2581<EOT>"]])
    tokenizer.post_processor = template("<s>", tokenizer)
    save(tokenizer, "codellama.json")

    tokenizer = start()
    tokenizer.add_tokens(
        [special("<unk>"), special("<s>"), token("</s>", rstrip=True),
         special("<|endoftext|>"), special("<|assistant|>", rstrip=True),
         special("<|placeholder1|>", rstrip=True),
         special("<|placeholder2|>", rstrip=True),
         special("<|system|>", rstrip=True), special("<|end|>", rstrip=True),
         special("<|user|>", rstrip=True)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A", pair="$A $B", special_tokens=[])
    save(tokenizer, "phi3.json")

    names = ["[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]",
             "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[control_8]"]
    tokenizer = start(names, prepend=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(
        prepend_scheme="first", split=False)
    tokenizer.add_tokens([special(s) for s in base + names])
    tokenizer.post_processor = template("<s>", tokenizer)
    save(tokenizer, "mistral.json")


def make_gemma_model():
    model = train_spm(
        vocab_size=620, normalization_rule_name="identity", byte_fallback=True,
        add_dummy_prefix=False, remove_extra_whitespaces=False,
        split_digits=True, allow_whitespace_only_pieces=True, pad_id=0,
        eos_id=1, bos_id=2, unk_id=3, character_coverage=0.99,
        user_defined_symbols=["<mask>", "[@BOS@]", "<start_of_turn>",
                              "<end_of_turn>", "<table>", "<h1>"] +
        ["\n" * n for n in range(1, 6)] + ["\u2581" * n for n in range(2, 6)])
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model)
    proto.trainer_spec.input[:] = []
    (HERE / "spm_gemma.model").write_bytes(proto.SerializeToString())


if __name__ == "__main__":
    make_byte_level()
    make_gemma()
    make_llama_like()
    make_gemma_model()
