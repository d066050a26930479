"""Hugging Face folders of Llamas: read, and written as the services load them."""

from __future__ import annotations

import hashlib
import json
import pathlib
import shutil
from typing import Dict

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from . import TrainingError
from .corpus import Origin
from .llama import Llama, fill, tensor_name

# What a draft shares with its target, besides weights.
_COPIED = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json",
           "special_tokens_map.json", "generation_config.json")


def read_json(folder: pathlib.Path) -> dict:
    """Its config.json."""
    try:
        return json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TrainingError(f"{folder}/config.json: {error}") from None


def read_config(folder: pathlib.Path) -> dict:
    """config.json of a plain Llama, with what it may leave out filled in."""
    config = read_json(folder)
    if config.get("architectures") != ["LlamaForCausalLM"]:
        raise TrainingError(f"{folder}: architectures is {config.get('architectures')}; "
                            "only LlamaForCausalLM can be trained")
    return llama_shape(config, folder)


def llama_shape(config: dict, folder: pathlib.Path) -> dict:
    """The fields of a Llama, whatever they are those of, likewise."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if rope.get("rope_type", rope.get("type", "default")) != "default":
        raise TrainingError(f"{folder}: rotary scaling {rope} cannot be trained")
    if config.get("hidden_act", "silu") != "silu" or config.get("mlp_bias"):
        raise TrainingError(f"{folder}: only silu without mlp_bias can be trained")
    share = rope.get("partial_rotary_factor", config.get("partial_rotary_factor"))
    if share not in (None, 1, 1.0):
        raise TrainingError(f"{folder}: partial_rotary_factor {share} cannot be trained")
    if config.get("attention_bias"):
        raise TrainingError(f"{folder}: attention_bias cannot be trained")
    heads = config["num_attention_heads"]
    defaults = {"head_dim": config["hidden_size"] // heads, "num_key_value_heads": heads,
                "attention_bias": False, "tie_word_embeddings": False}
    config = {**config, **{name: value for name, value in defaults.items()
                           if config.get(name) is None}}
    config["rope_theta"] = rope.get("rope_theta", config.get("rope_theta", 10000.0))
    return config


def has_tensor(folder: pathlib.Path, name: str) -> bool:
    for file in folder.glob("*.safetensors"):
        with safe_open(file, "pt") as tensors:
            if name in tensors.keys():
                return True
    return False


def read_tensors(folder: pathlib.Path) -> Dict[str, torch.Tensor]:
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise TrainingError(f"{folder} has no .safetensors file")
    tensors: Dict[str, torch.Tensor] = {}
    for file in files:
        tensors.update(load_file(file))
    return tensors


def read_model(folder: pathlib.Path) -> Llama:
    config, tensors = read_config(folder), read_tensors(folder)
    try:
        return fill(Llama(config), tensors)
    except TrainingError as error:
        raise TrainingError(f"{folder}: {error}") from None


def write_weights(file: pathlib.Path, tensors: Dict[str, torch.Tensor],
                  card: dict) -> None:
    """The tensors in bf16, and nacre_draft.json beside them: `card`, and by what
    the file is known again."""
    rounded = {name: value.to("cpu", torch.bfloat16).contiguous()
               for name, value in tensors.items()}
    save_file(rounded, file, metadata={"format": "pt"})
    known = {"parameters": sum(value.numel() for value in rounded.values()),
             "weights_sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
    write_json(file.parent / "nacre_draft.json", card | known)


def write_tensors(out: pathlib.Path, model: Llama, card: dict) -> None:
    """A checkpoint in bf16 and nacre_draft.json, which holds `card`."""
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "config.json", dict(model.config, torch_dtype="bfloat16"))
    write_weights(out / "model.safetensors",
                  {tensor_name(name): value for name, value in model.state_dict().items()},
                  card)


def write_draft(out: pathlib.Path, model: Llama, target: pathlib.Path,
                card: dict) -> None:
    """Likewise, and the target's tokenizer."""
    write_tensors(out, model, card)
    for name in _COPIED:
        if (target / name).exists():
            shutil.copyfile(target / name, out / name)


def write_json(path: pathlib.Path, value: dict) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def check_pair(target: dict, draft: dict, origin: Origin) -> None:
    """Whether corpus, target and draft have one vocabulary."""
    sizes = {"the target": target["vocab_size"], "the draft": draft["vocab_size"],
             "the corpus": origin.vocab_size}
    if len(set(sizes.values())) > 1:
        raise TrainingError(f"vocabulary sizes differ: {sizes}")
