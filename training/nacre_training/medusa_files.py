"""Medusa heads as FasterDecoding/Medusa and TGI publish them: {k}.{j}.linear of
head k and block j, and of version 1 the head's vocabulary, {k}.{blocks}.weight."""

from __future__ import annotations

import pathlib
from typing import Dict

import torch
from safetensors.torch import load_file

from . import TrainingError
from .checkpoint import write_json, write_weights
from .medusa_heads import Medusa

FILE_NAME = "medusa_lm_head.safetensors"


def _file_name(parameter: str, blocks: int) -> str:
    parts = parameter.split(".")
    if parts[0] == "vocabularies":
        return f"{parts[1]}.{blocks}.weight"
    return f"{parts[1]}.{parts[2]}.linear.{parts[3]}"


def _numbers(names, *parts: str) -> set:
    """Of names such as K.parts..., K."""
    split = [name.split(".") for name in names]
    return {s[0] for s in split if s[1:] == list(parts) and s[0].isdecimal()}


def read_medusa(folder: pathlib.Path, target_head: torch.Tensor,
                target_config: dict) -> Medusa:
    tensors: Dict[str, torch.Tensor] = load_file(folder / FILE_NAME)
    heads = len(_numbers(tensors, "0", "linear", "weight"))
    blocks = sum(f"0.{j}.linear.weight" in tensors for j in range(len(tensors)))
    own = len(_numbers(tensors, str(blocks), "weight"))
    if heads == 0 or own not in (0, heads):
        raise TrainingError(f"{folder}/{FILE_NAME}: {heads} heads of {blocks} blocks, "
                            f"and {own} vocabularies")
    draft = Medusa(target_config, target_head, heads, blocks, own > 0)
    state = {name: tensors.pop(_file_name(name, blocks), None)
             for name in draft.state_dict()}
    missing = [_file_name(name, blocks) for name, value in state.items() if value is None]
    if missing or tensors:
        raise TrainingError(f"{folder}/{FILE_NAME}: missing {missing[:3]}, unknown "
                            f"{sorted(tensors)[:3]}")
    try:
        draft.load_state_dict({name: value.float() for name, value in state.items()})
    except RuntimeError as error:
        raise TrainingError(f"{folder}/{FILE_NAME}: {error}") from None
    return draft


def write_medusa(out: pathlib.Path, draft: Medusa, target: pathlib.Path,
                 card: dict) -> None:
    """The heads in bf16, their config.json and nacre_draft.json, which holds
    `card`."""
    out.mkdir(parents=True, exist_ok=True)
    blocks = len(draft.heads[0])
    write_json(out / "config.json", {
        "base_model_name_or_path": target.name,
        "medusa_num_heads": draft.places, "medusa_num_layers": blocks,
        "version": "1" if len(draft.vocabularies) > 0 else "2",
        "torch_dtype": "bfloat16"})
    write_weights(out / FILE_NAME, {_file_name(name, blocks): value
                                    for name, value in draft.state_dict().items()}, card)
