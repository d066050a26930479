#!/usr/bin/env python3
"""Makes a golden for each family beside Llama with Hugging Face transformers.

Run from the repository root, with torch, transformers and safetensors
installed:

    python3 tests/data/model/make_family_goldens.py

Writes families/NAME/ next to itself: a random checkpoint of awkward sizes in
bf16, as transformers saves it, and golden.json with token ids, positions and
the logits there, computed in float32 from exactly those weights.
"""

import json
import pathlib

import torch
from transformers import (
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

HERE = pathlib.Path(__file__).resolve().parent

SHAPE = dict(
    hidden_size=52,
    intermediate_size=84,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=131,
    max_position_embeddings=256,
    rms_norm_eps=1e-5,
    bos_token_id=1,
    eos_token_id=2,
)


def rope(theta):
    return {"rope_type": "default", "rope_theta": theta}


def models():
    yield "mistral", MistralForCausalLM(
        MistralConfig(
            **SHAPE,
            head_dim=18,  # heads are wider than hidden_size together
            sliding_window=None,
            tie_word_embeddings=False,
            rope_parameters=rope(1e6),
        )
    )
    yield "qwen2", Qwen2ForCausalLM(
        Qwen2Config(
            **{**SHAPE, "hidden_size": 56},
            use_sliding_window=False,
            tie_word_embeddings=True,
            rope_parameters=rope(1e4),
        )
    )


def fill(model, generator):
    """Norms near 1, biases that matter, matrices that keep sizes."""
    with torch.no_grad():
        for name, value in model.named_parameters():
            noise = torch.randn(value.shape, generator=generator)
            if "norm" in name:
                value.copy_(1.0 + 0.3 * noise)
            elif name.endswith("bias"):
                value.copy_(0.5 * noise)
            else:
                value.copy_(noise / value.shape[-1] ** 0.5)


def main():
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(5)
    for name, model in models():
        fill(model, generator)
        folder = HERE / "families" / name
        model.to(torch.bfloat16).save_pretrained(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)
        # Read back: the conversion has rounded rotary frequencies, too.
        model = type(model).from_pretrained(folder, dtype=torch.float32)
        token_ids = torch.randint(
            0, SHAPE["vocab_size"], (60,), generator=generator
        ).tolist()
        positions = list(range(0, 60, 7)) + [59]
        with torch.no_grad():
            logits = model.eval()(torch.tensor([token_ids])).logits[0]
        golden = {
            "token_ids": token_ids,
            "positions": positions,
            "logits": [
                [float(f"{x:.9g}") for x in logits[p].tolist()]
                for p in positions
            ],
        }
        (folder / "golden.json").write_text(json.dumps(golden) + "\n")
        print(name, float(logits.abs().max()))


if __name__ == "__main__":
    main()
