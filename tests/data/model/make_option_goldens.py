#!/usr/bin/env python3
"""Makes a golden for each option of each family with Hugging Face transformers.

Run from the repository root, with torch, transformers and safetensors
installed:

    python3 tests/data/model/make_option_goldens.py [NAME ...]

Writes options/NAME.json next to itself: a config.json (under "config"), three
prompts with their logits at some positions, and what greedy decoding says after
each. The config.json is as transformers saves it, or, of a case that says what
to change in that, as older versions did: then transformers reads it again so.
Weights are float32 and follow from the names and shapes of the tensors:
tests/testing/random_checkpoint.h makes the same ones, so none is kept. Names
and shapes are those that transformers saves.
"""

import json
import pathlib
import sys
import tempfile

import numpy
import torch
import transformers
from safetensors import safe_open
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).resolve().parent

# Awkward: nothing is a multiple of a vector or a block.
SHAPE = dict(
    hidden_size=54,
    intermediate_size=84,
    num_hidden_layers=2,
    num_attention_heads=6,
    num_key_value_heads=2,
    head_dim=10,
    vocab_size=131,
    max_position_embeddings=256,
    rms_norm_eps=1e-5,
    tie_word_embeddings=False,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=0,
)

LENGTHS = (150, 23, 70)  # of the prompts
GREEDY = 12
MARGIN = 0.01  # between the best two tokens of each greedy step


def rope(kind="default", theta=1e4, **fields):
    return {"rope_type": kind, "rope_theta": theta, **fields}


def longrope(pairs, **fields):
    return rope(
        "longrope",
        short_factor=[1.0 + 0.01 * j for j in range(pairs)],
        long_factor=[1.0 + 0.7 * j for j in range(pairs)],
        **fields,
    )


def neox(**fields):
    # Heads of 10 elements, of which 4 turn; no grouped queries.
    shape = {**SHAPE, "hidden_size": 60, "layer_norm_eps": 1e-5}
    for name in ("num_key_value_heads", "head_dim", "rms_norm_eps"):
        del shape[name]
    return "GPTNeoX", {
        **shape,
        "rope_parameters": rope(theta=5e3, partial_rotary_factor=0.4),
        **fields,
    }


def starcoder2(**fields):
    shape = {**SHAPE, "norm_epsilon": 1e-5}
    del shape["rms_norm_eps"]
    return "Starcoder2", {
        **shape,
        "rope_parameters": rope(theta=1e5),
        "embedding_dropout": 0.0,
        "attention_dropout": 0.0,
        "residual_dropout": 0.0,
        **fields,
    }


def big_code(**fields):
    return "GPTBigCode", dict(
        n_embd=60,
        n_inner=84,
        n_layer=2,
        n_head=6,
        n_positions=200,
        vocab_size=SHAPE["vocab_size"],
        layer_norm_epsilon=1e-3,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
        **fields,
    )


def llama(**fields):
    return "Llama", {**SHAPE, "rope_parameters": rope(), **fields}


def as_published(case, gone=(), **changes):
    """The case with its config.json in older words: without the fields `gone`
    and with others."""
    kind, fields = case
    return kind, fields, (gone, changes)


CASES = {
    "llama_biases": llama(attention_bias=True, mlp_bias=True),
    "llama_linear": llama(rope_parameters=rope("linear", factor=2.5)),
    "llama_dynamic": llama(rope_parameters=rope("dynamic", factor=4.0)),
    "llama_llama3": llama(
        rope_parameters=rope(
            "llama3",
            theta=5e3,
            factor=8.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position_embeddings=32,
        )
    ),
    "llama_yarn": llama(
        head_dim=22,
        rope_parameters=rope(
            "yarn", theta=5e3, factor=8.0, original_max_position_embeddings=32
        ),
    ),
    "llama_yarn_mscale": llama(
        head_dim=22,
        rope_parameters=rope(
            "yarn",
            factor=4.0,
            original_max_position_embeddings=64,
            beta_fast=24.0,
            beta_slow=2.0,
            mscale=0.8,
            mscale_all_dim=0.5,
        ),
    ),
    # The factor is not that of the two contexts, as it may be in rope_parameters.
    "llama_longrope": llama(
        rope_parameters=longrope(
            5, original_max_position_embeddings=16, factor=6.0
        )
    ),
    "llama_longrope_short": llama(
        rope_parameters=longrope(
            5,
            original_max_position_embeddings=256,
            attention_factor=1.2,
        )
    ),
    "qwen3": (
        "Qwen3",
        {
            **SHAPE,
            "attention_bias": True,
            "use_sliding_window": False,
            "rope_parameters": rope(theta=1e6),
        },
    ),
    # Not what max_window_layers says.
    "qwen3_layer_types": (
        "Qwen3",
        {
            **SHAPE,
            "num_hidden_layers": 3,
            "use_sliding_window": True,
            "sliding_window": 31,
            "max_window_layers": 3,
            "layer_types": [
                "sliding_attention",
                "full_attention",
                "sliding_attention",
            ],
            "rope_parameters": rope(theta=1e6),
        },
    ),
    "phi3_longrope": (
        "Phi3",
        {
            **SHAPE,
            "hidden_size": 60,
            "sliding_window": None,
            "original_max_position_embeddings": 16,
            "rope_parameters": longrope(5, factor=16.0),
        },
    ),
    "phi3_partial": (
        "Phi3",
        {
            **SHAPE,
            "hidden_size": 96,
            "head_dim": 16,
            "sliding_window": None,
            "tie_word_embeddings": True,
            "rope_parameters": rope(partial_rotary_factor=0.75),
        },
    ),
    "phi3_partial_longrope": (
        "Phi3",
        {
            **SHAPE,
            "hidden_size": 96,
            "head_dim": 16,
            "sliding_window": None,
            "tie_word_embeddings": True,
            "original_max_position_embeddings": 16,
            "rope_parameters": longrope(6, partial_rotary_factor=0.75),
        },
    ),
    "phi3_window": (
        "Phi3",
        {**SHAPE, "sliding_window": 21, "rope_parameters": rope()},
    ),
    "mistral_window": (
        "Mistral",
        {**SHAPE, "sliding_window": 37, "rope_parameters": rope(theta=1e6)},
    ),
    "qwen2_window": (
        "Qwen2",
        {
            **SHAPE,
            "num_hidden_layers": 3,
            "use_sliding_window": True,
            "sliding_window": 70,
            "max_window_layers": 1,
            "rope_parameters": rope(),
        },
    ),
    "qwen2_max_window_layers": as_published(
        (
            "Qwen2",
            {
                **SHAPE,
                "num_hidden_layers": 3,
                "use_sliding_window": True,
                "sliding_window": 33,
                "max_window_layers": 2,
            },
        ),
        gone=["layer_types", "rope_parameters"],
        rope_theta=1e4,
    ),
    # As the README of Qwen2.5 says it.
    "qwen2_yarn": as_published(
        ("Qwen2", {**SHAPE, "head_dim": 22}),
        gone=["layer_types", "rope_parameters"],
        rope_theta=5e3,
        rope_scaling={
            "type": "yarn",
            "factor": 8.0,
            "original_max_position_embeddings": 32,
        },
    ),
    "qwen2_yarn_untruncated": (
        "Qwen2",
        {
            **SHAPE,
            "head_dim": 22,
            "rope_parameters": rope(
                "yarn",
                theta=5e3,
                factor=8.0,
                original_max_position_embeddings=32,
                attention_factor=1.3,
                truncate=False,
            ),
        },
    ),
    "gemma": (
        "Gemma",
        {**SHAPE, "tie_word_embeddings": True, "rope_parameters": rope()},
    ),
    # "gelu" is the other one, by tanh.
    "gemma_hidden_act": as_published(
        ("Gemma", {**SHAPE, "tie_word_embeddings": True}),
        gone=["rope_parameters"],
        hidden_act="gelu",
        hidden_activation=None,
        rope_theta=1e4,
    ),
    "gemma2": (
        "Gemma2",
        {
            **SHAPE,
            "num_hidden_layers": 3,
            "sliding_window": 19,
            "query_pre_attn_scalar": 23,
            "attn_logit_softcapping": 1.5,
            "final_logit_softcapping": 3.0,
            "attention_bias": True,
            "rope_parameters": rope(),
        },
    ),
    # Each second layer has no window by default.
    "gemma2_layer_types": (
        "Gemma2",
        {
            **SHAPE,
            "sliding_window": 19,
            "query_pre_attn_scalar": 23,
            "layer_types": ["full_attention", "sliding_attention"],
            "rope_parameters": rope(),
        },
    ),
    "gemma3": (
        "Gemma3",
        {
            **SHAPE,
            "num_hidden_layers": 3,
            "tie_word_embeddings": True,
            "sliding_window": 19,
            "query_pre_attn_scalar": 23,
            "final_logit_softcapping": 4.0,
            "layer_types": [
                "sliding_attention",
                "full_attention",
                "sliding_attention",
            ],
            "rope_parameters": {
                "full_attention": rope("linear", theta=5e4, factor=8.0),
                "sliding_attention": rope(theta=3e2),
            },
        },
    ),
    "gemma3_pattern": as_published(
        (
            "Gemma3",
            {
                **SHAPE,
                "num_hidden_layers": 3,
                "tie_word_embeddings": True,
                "sliding_window": 19,
                "query_pre_attn_scalar": 23,
                "layer_types": ["sliding_attention"] * 3,
            },
        ),
        gone=["layer_types", "rope_parameters"],
        sliding_window_pattern=2,
        rope_theta=5e4,
        rope_local_base_freq=3e2,
        rope_scaling={"rope_type": "linear", "factor": 8.0},
    ),
    "neox": neox(num_hidden_layers=3, hidden_act="gelu"),
    "neox_sequential": neox(
        use_parallel_residual=False,
        hidden_act="gelu_new",
        tie_word_embeddings=True,
    ),
    "neox_few_biases": neox(
        attention_bias=False,
        hidden_act="gelu_fast",
        rope_parameters=rope("linear", factor=2.5, partial_rotary_factor=1.0),
    ),
    # 4 elements of 10 turn, though 0.45 are 4.5.
    "neox_rotary_pct": as_published(
        neox(), gone=["rope_parameters"], rotary_pct=0.45, rotary_emb_base=5e3
    ),
    # 4 elements turn as if 3 did: their exponents are 0 / 3 and 2 / 3.
    "neox_rotary_odd": neox(
        rope_parameters=rope(theta=5e3, partial_rotary_factor=0.3)
    ),
    "starcoder2": starcoder2(
        num_hidden_layers=3, sliding_window=41, tie_word_embeddings=True
    ),
    "starcoder2_no_bias": starcoder2(use_bias=False, hidden_act="gelu"),
    "big_code": big_code(activation_function="gelu"),
    "big_code_many_heads": big_code(
        multi_query=False,
        scale_attn_weights=False,
        tie_word_embeddings=False,
        activation_function="gelu_pytorch_tanh",
    ),
    "mixtral": (
        "Mixtral",
        {
            **SHAPE,
            "num_local_experts": 5,
            "num_experts_per_tok": 2,
            "sliding_window": 50,
            "rope_parameters": rope(),
        },
    ),
    "qwen3_moe": (
        "Qwen3Moe",
        {
            **SHAPE,
            "num_hidden_layers": 3,
            "num_experts": 7,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 28,
            "norm_topk_prob": False,
            "mlp_only_layers": [1],
            "attention_bias": True,
            "rope_parameters": rope(),
        },
    ),
    # The layer in the middle has experts. All are taken: a router whose inputs
    # are rounded would take others.
    "qwen3_moe_sparse_step": (
        "Qwen3Moe",
        {
            **SHAPE,
            "num_hidden_layers": 3,
            "num_experts": 3,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 28,
            "norm_topk_prob": True,
            "decoder_sparse_step": 2,
            "use_sliding_window": True,
            "sliding_window": 33,
            "rope_parameters": rope(),
        },
    ),
    "qwen3_moe_normalized": (
        "Qwen3Moe",
        {
            **SHAPE,
            "num_experts": 6,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 36,
            "norm_topk_prob": True,
            "rope_parameters": rope(),
        },
    ),
}


def fnv1a(text):
    value = 2166136261
    for byte in text.encode():
        value = ((value ^ byte) * 16777619) & 0xFFFFFFFF
    return value


def philox(count, key0, key1):
    """First words of Philox4x32-10 of {0 .. count - 1, 0, 0, 0}."""
    mask = numpy.uint64(0xFFFFFFFF)
    shift = numpy.uint64(32)
    words = [numpy.arange(count, dtype=numpy.uint64)]
    words += [numpy.zeros(count, dtype=numpy.uint64) for _ in range(3)]
    for _ in range(10):
        a = numpy.uint64(0xD2511F53) * words[0]
        b = numpy.uint64(0xCD9E8D57) * words[2]
        words = [
            (b >> shift) ^ words[1] ^ numpy.uint64(key0),
            b & mask,
            (a >> shift) ^ words[3] ^ numpy.uint64(key1),
            a & mask,
        ]
        key0 = (key0 + 0x9E3779B9) & 0xFFFFFFFF
        key1 = (key1 + 0xBB67AE85) & 0xFFFFFFFF
    return words[0].astype(numpy.uint32)


def values(name, shape):
    count = int(numpy.prod(shape))
    bits = philox(count, fnv1a(name), 9)
    uniform = (bits >> 8).astype(numpy.float32) * numpy.float32(2.0**-23)
    uniform -= numpy.float32(1)
    is_norm = "norm" in name or ".ln_" in name
    if is_norm and name.endswith(".weight"):
        result = numpy.float32(1) + numpy.float32(0.3) * uniform
    elif len(shape) == 1:
        result = numpy.float32(0.5) * uniform
    else:
        scale = numpy.sqrt(numpy.float32(3) / numpy.float32(shape[-1]))
        result = scale * uniform
    return result.astype(numpy.float32).reshape(shape)


def random_model(kind, fields, changed=((), {})):
    """The model of random weights, and its config.json."""
    text = "TextConfig" if kind == "Gemma3" else "Config"
    config_class = getattr(transformers, kind + text)
    model_class = getattr(transformers, kind + "ForCausalLM")
    model = model_class(config_class(**fields)).float()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        path = pathlib.Path(folder) / "model.safetensors"
        with safe_open(path, framework="np") as file:
            shapes = {n: file.get_slice(n).get_shape() for n in file.keys()}
        save_file(
            {name: values(name, shape) for name, shape in shapes.items()},
            path,
            metadata={"format": "pt"},
        )
        config_path = pathlib.Path(folder) / "config.json"
        config = json.loads(config_path.read_text())
        config.pop("transformers_version", None)
        gone, changes = changed
        config = {n: v for n, v in config.items() if n not in gone} | changes
        config_path.write_text(json.dumps(config))
        experts = {}
        if any("experts" in field for field in fields):
            experts["experts_implementation"] = "eager"
        model = model_class.from_pretrained(
            folder,
            dtype=torch.float32,
            attn_implementation="eager",
            **experts,
        )
    return model.eval(), config


def logits_of(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0]


def make_prompts(model, generator):
    prompts = []
    margin = float("inf")
    for length in LENGTHS:
        ids = torch.randint(
            0, SHAPE["vocab_size"], (length,), generator=generator
        ).tolist()
        positions = list(range(0, length, 29)) + [length - 2, length - 1]
        logits = logits_of(model, ids)
        greedy = []
        for _ in range(GREEDY):
            row = logits_of(model, ids + greedy)[-1]
            best = torch.topk(row, 2).values
            margin = min(margin, float(best[0] - best[1]))
            greedy.append(int(row.argmax()))
        prompts.append(
            {
                "token_ids": ids,
                "positions": positions,
                "logits": [
                    [float(f"{x:.7g}") for x in logits[p].tolist()]
                    for p in positions
                ],
                "greedy": greedy,
            }
        )
    return prompts, margin


def main():
    torch.set_num_threads(1)
    (HERE / "options").mkdir(exist_ok=True)
    for name, case in CASES.items():
        if len(sys.argv) > 1 and name not in sys.argv[1:]:
            continue
        model, config = random_model(*case)
        generator = torch.Generator().manual_seed(fnv1a(name))
        margin = 0
        while margin < MARGIN:
            prompts, margin = make_prompts(model, generator)
        result = {"config": config, "prompts": prompts}
        path = HERE / "options" / f"{name}.json"
        path.write_text(json.dumps(result) + "\n")
        print(f"{name}: smallest greedy margin {margin:.2g}")


if __name__ == "__main__":
    main()
