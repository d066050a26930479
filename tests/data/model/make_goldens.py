#!/usr/bin/env python3
"""Makes the goldens of tests/model with Hugging Face transformers in float32.

Run from the repository root, with torch, transformers, safetensors and
sentencepiece installed:

    python3 tests/data/model/make_goldens.py

Writes next to itself:
  tiny/            a random Llama of awkward sizes (untied head, 3 query heads
                   per KV head, llama3 rope scaling) in two shards, whose
                   tensors are F16, BF16 and F32
  goldens.json     prompts as token ids, the positions whose logits are kept,
                   and rope frequencies, cosines and sines
  *.logits.f32     those logits, [positions, vocab_size], little-endian float32
"""

import json
import pathlib

import numpy
import sentencepiece
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

HERE = pathlib.Path(__file__).resolve().parent
MODELS = HERE.parents[2] / "models"

TINY = dict(
    hidden_size=96,
    intermediate_size=100,
    num_hidden_layers=2,
    num_attention_heads=6,
    num_key_value_heads=2,
    head_dim=20,
    vocab_size=301,
    max_position_embeddings=256,
    rms_norm_eps=1e-5,
    hidden_act="silu",
    attention_bias=False,
    mlp_bias=False,
    tie_word_embeddings=False,
)
TINY_ROPE_THETA = 5000.0
TINY_ROPE = dict(
    rope_type="llama3",
    factor=4.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=32,
)


def llama_config(fields, theta, scaling):
    """A LlamaConfig with rotary parameters as transformers 5 wants them."""
    return LlamaConfig(
        **fields, rope_parameters={"rope_theta": theta, **scaling}
    )


def write_tiny():
    """Writes tiny/ and returns the float32 model of exactly those weights."""
    torch.manual_seed(1)
    config = llama_config(TINY, TINY_ROPE_THETA, TINY_ROPE)
    model = LlamaForCausalLM(config)
    tensors = {}
    for name, value in model.state_dict().items():
        if "norm" in name:
            value = 1.0 + 0.3 * torch.randn(value.shape)
            kind = torch.float32
        else:
            value = torch.randn(value.shape) / value.shape[-1] ** 0.5
            kind = torch.float32
            if ".layers.0." in name or "embed" in name:
                kind = torch.float16
            elif ".layers.1." in name:
                kind = torch.bfloat16
        tensors[name] = value.to(kind).contiguous()
    folder = HERE / "tiny"
    folder.mkdir(exist_ok=True)
    weight_map = {}
    shards = ["model-00001-of-00002.safetensors",
              "model-00002-of-00002.safetensors"]
    for index, shard in enumerate(shards):
        part = {
            name: value
            for name, value in tensors.items()
            if ((".layers.0." in name or "embed" in name) == (index == 0))
        }
        save_file(part, folder / shard, metadata={"format": "pt"})
        weight_map.update({name: shard for name in part})
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": weight_map}, indent=1)
    )
    (folder / "config.json").write_text(
        json.dumps(
            {
                "architectures": ["LlamaForCausalLM"],
                "model_type": "llama",
                **TINY,
                "rope_theta": TINY_ROPE_THETA,
                "rope_scaling": TINY_ROPE,
                "bos_token_id": 1,
                "eos_token_id": [2, 5],
            },
            indent=1,
        )
    )
    model.load_state_dict({k: v.float() for k, v in tensors.items()})
    return model


def logits_golden(model, token_ids, positions, name):
    with torch.no_grad():
        logits = model.float().eval()(torch.tensor([token_ids])).logits[0]
    kept = logits[positions].numpy().astype(numpy.float32)
    kept.tofile(HERE / f"{name}.logits.f32")
    return {
        "name": name,
        "token_ids": token_ids,
        "positions": positions,
        "vocab_size": kept.shape[1],
    }


def rope_golden(name, fields, theta, scaling):
    config = llama_config({**TINY, **fields}, theta, scaling)
    rope = LlamaRotaryEmbedding(config)
    positions = [0, 1, 17, 255, 1999]
    cos, sin = rope(torch.zeros(1), torch.tensor([positions]))
    half = cos.shape[-1] // 2
    return {
        "name": name,
        "head_dim": config.head_dim,
        "rope_theta": theta,
        "rope_scaling": scaling,
        "inverse_frequencies": rope.inv_freq.tolist(),
        "positions": positions,
        "cos": cos[0, :, :half].tolist(),
        "sin": sin[0, :, :half].tolist(),
    }


def main():
    torch.set_num_threads(1)
    goldens = {"logits": [], "rope": []}

    tiny = write_tiny()
    generator = torch.Generator().manual_seed(2)
    token_ids = torch.randint(0, 301, (90,), generator=generator).tolist()
    goldens["logits"].append(
        logits_golden(tiny, token_ids, list(range(0, 90, 5)) + [89], "tiny")
    )

    target = LlamaForCausalLM.from_pretrained(
        MODELS / "target", dtype=torch.float32
    )
    pieces = sentencepiece.SentencePieceProcessor(
        str(MODELS / "target" / "tokenizer.model")
    )
    prompts = {
        "target_math": "Question: Tom has 12 apples and gives 5 of them to "
        "Ann. How many apples does Tom have left?\nAnswer: Tom",
        "target_code": "def fibonacci(n):\n    if n < 2:\n        return n\n"
        "    return",
    }
    for name, text in prompts.items():
        token_ids = [1] + pieces.encode(text)
        last = len(token_ids) - 1
        goldens["logits"].append(
            logits_golden(target, token_ids, [0, 7, last - 1, last], name)
        )

    default = {"rope_type": "default"}
    goldens["rope"] = [
        rope_golden("default", {"head_dim": 20}, 10000.0, default),
        rope_golden(
            "linear", {"head_dim": 8}, 10000.0,
            {"rope_type": "linear", "factor": 4.0},
        ),
        rope_golden("tiny", {}, TINY_ROPE_THETA, TINY_ROPE),
        rope_golden(
            "llama-3.1", {"head_dim": 32}, 500000.0,
            {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
             "high_freq_factor": 4.0,
             "original_max_position_embeddings": 8192},
        ),
    ]
    (HERE / "goldens.json").write_text(json.dumps(goldens) + "\n")


if __name__ == "__main__":
    main()
