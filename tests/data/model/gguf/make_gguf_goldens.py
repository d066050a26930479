#!/usr/bin/env python3
"""Makes the GGUF goldens of this folder with gguf-py.

Needs the packages `gguf` (0.19.0) and `numpy`. Run it from anywhere; it writes
next to itself:

  {f32,f16,bf16,q8_0,q4_0,q4_1,q5_0,q5_1,q2_k,q3_k,q4_k,q5_k,q6_k}.gguf
               one random llama model each, of that type wherever rows are whole
               blocks, as llama.cpp's converter writes one: rows of queries and
               keys reordered, norms in F32, no output.weight
  parts-0000{1,2,3,4}-of-00004.gguf
               one more, of Q4_0, in four parts: the first has metadata only
  goldens.json of each file: for each tensor of the Hugging Face checkpoint the
               SHA-256 of its values in float32, from `gguf.quants.dequantize`
               with the rows put back

and the fuzzer's seeds, tests/fuzz/corpus/gguf_fuzz.
"""

import hashlib
import json
import pathlib

import gguf
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
SEEDS = HERE.parent.parent.parent / "fuzz" / "corpus" / "gguf_fuzz"
HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INTER, VOCAB = 256, 2, 1, 16, 32, 40
TYPES = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_K", "Q6_K",
         "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q5_K"]
# Those that gguf-py reads but cannot make, and where their scales are.
SCALES = {"Q2_K": slice(80, 84), "Q3_K": slice(108, 110), "Q4_K": slice(0, 4),
          "Q5_K": slice(0, 4), "Q6_K": slice(208, 210)}
# Of the model's names and gguf's.
NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def shapes():
    layer = {
        "self_attn.q_proj": (HEADS * HEAD_DIM, HIDDEN),
        "self_attn.k_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
        "self_attn.v_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
        "self_attn.o_proj": (HIDDEN, HEADS * HEAD_DIM),
        "mlp.gate_proj": (INTER, HIDDEN),
        "mlp.up_proj": (INTER, HIDDEN),
        "mlp.down_proj": (HIDDEN, INTER),
        "input_layernorm": (HIDDEN,),
        "post_attention_layernorm": (HIDDEN,),
    }
    yield "model.embed_tokens.weight", "token_embd.weight", (VOCAB, HIDDEN)
    for name, shape in layer.items():
        yield (f"model.layers.0.{name}.weight", f"blk.0.{NAMES[name]}.weight",
               shape)
    yield "model.norm.weight", "output_norm.weight", (HIDDEN,)


def permute(rows, heads):
    """As llama.cpp's converter: pairs that turn come side by side."""
    return (rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:])
            .swapaxes(1, 2).reshape(rows.shape))


def unpermute(rows, heads):
    return (rows.reshape(heads, rows.shape[0] // heads // 2, 2, *rows.shape[1:])
            .swapaxes(1, 2).reshape(rows.shape))


def random_blocks(kind, shape, generator):
    """Any block is valid but for its scales: small, of either sign, some of
    them subnormal."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = generator.integers(
        0, 256, (shape[0], shape[1] // block, size), dtype=np.uint8)
    scales = generator.standard_normal((*blocks.shape[:2], 2)) * 10.0 ** (
        -generator.integers(4, 8, (*blocks.shape[:2], 1)))
    scales = scales.astype(np.float16).view(np.uint8)
    where = SCALES[kind.name]
    blocks[..., where] = scales[..., :where.stop - where.start]
    return blocks.reshape(shape[0], -1)


def stored(values, kind, generator):
    """The tensor as the file has it, and its type."""
    kinds = gguf.GGMLQuantizationType
    if values.ndim == 1:
        return values, kinds.F32
    if values.shape[1] % gguf.GGML_QUANT_SIZES[kind][0] != 0:
        kind = kinds.Q8_0
    if kind.name in SCALES:
        return random_blocks(kind, values.shape, generator), kind
    return gguf.quants.quantize(values, kind), kind


def write(name, kind, generator, **splitting):
    kind = gguf.GGMLQuantizationType[kind]
    writer = gguf.GGUFWriter(HERE / f"{name}.gguf", "llama", **splitting)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(1)
    writer.add_feed_forward_length(INTER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_rope_freq_base(500000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCAB)
    tokens = ["<unk>", "<s>", "</s>", "\u2581"] + [
        chr(ord("a") + i) for i in range(26)]
    tokens += [f"[PAD{i}]" for i in range(len(tokens), VOCAB)]
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores([-float(i) for i in range(VOCAB)])
    writer.add_token_types([2, 3, 3] + [1] * 27 + [5] * (VOCAB - 30))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_space_prefix(False)
    writer.add_chat_template("{{ bos_token }}{{ messages[0]['content'] }}")
    hashes = {}
    for model_name, file_name, shape in shapes():
        values = generator.standard_normal(shape).astype(np.float32) * 0.1
        heads = {"q_proj": HEADS, "k_proj": KV_HEADS}.get(
            model_name.split(".")[-2])
        if heads:
            values = permute(values, heads)
        data, used = stored(values, kind, generator)
        writer.add_tensor(file_name, data, raw_dtype=used)
        back = gguf.quants.dequantize(data, used).reshape(shape)
        if heads:
            back = unpermute(back, heads)
        hashes[model_name] = hashlib.sha256(
            np.ascontiguousarray(back, np.float32).tobytes()).hexdigest()
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return hashes


def write_seed(name, architecture, tokenizer, **splitting):
    """A file of a few hundred bytes with all that is read, for the fuzzer."""
    writer = gguf.GGUFWriter(SEEDS / name, architecture, **splitting)
    writer.add_context_length(8)
    writer.add_embedding_length(32)
    writer.add_block_count(1)
    writer.add_feed_forward_length(1)
    writer.add_head_count(1)
    writer.add_key_length(2)
    writer.add_value_length(2)
    writer.add_layer_norm_rms_eps(1e-5)
    tokens = ["<unk>", "<s>", "a", "b", "ab"]
    writer.add_tokenizer_model(tokenizer)
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0, 0.0, -1.0, -2.0, -3.0])
    writer.add_token_types([2, 3, 1, 1, 1])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(1)
    kinds = gguf.GGMLQuantizationType
    rows = {"attn_q": 2, "attn_k": 2, "attn_v": 2, "ffn_gate": 1, "ffn_up": 1}
    ones = np.ones(32, np.float32)
    writer.add_tensor("token_embd.weight", gguf.quants.quantize(
        np.ones((5, 32), np.float32), kinds.Q8_0), raw_dtype=kinds.Q8_0)
    for name, count in rows.items():
        writer.add_tensor(f"blk.0.{name}.weight", gguf.quants.quantize(
            np.ones((count, 32), np.float32), kinds.Q4_0),
            raw_dtype=kinds.Q4_0)
    writer.add_tensor("blk.0.attn_output.weight", np.ones((32, 2), np.float16))
    writer.add_tensor("blk.0.ffn_down.weight", np.ones((32, 1), np.float16))
    for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"):
        writer.add_tensor(f"{name}.weight", ones)
    if architecture == "qwen3":
        for name in ("attn_q_norm", "attn_k_norm"):
            writer.add_tensor(f"blk.0.{name}.weight", ones[:2])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_seed_of_parts():
    """Two parts, one behind the other."""
    write_seed("parts", "llama", "llama", split_max_tensors=6)
    parts = [SEEDS / f"parts-{i:05}-of-00002.gguf" for i in (1, 2)]
    (SEEDS / "parts").write_bytes(b"".join(p.read_bytes() for p in parts))
    for part in parts:
        part.unlink()


def main():
    write_seed("llama", "llama", "llama")
    write_seed("qwen3", "qwen3", "gpt2")
    write_seed_of_parts()
    goldens = {}
    for i, name in enumerate(TYPES):
        goldens[name.lower()] = write(
            name.lower(), name, np.random.default_rng(i))
    goldens["parts"] = write("parts", "Q4_0", np.random.default_rng(len(TYPES)),
                             split_max_tensors=4, small_first_shard=True)
    with open(HERE / "goldens.json", "w", encoding="utf-8") as file:
        json.dump(goldens, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
