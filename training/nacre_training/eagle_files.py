"""EAGLE-3 drafts as files: written in the layout of vLLM-speculators, read in that
and in SafeAILab's. Variants that `eagle3` does not train are refused."""

from __future__ import annotations

import pathlib
from typing import Dict, List

import torch

from . import TrainingError
from .checkpoint import (has_tensor, llama_shape, read_json, read_tensors, write_json,
                         write_weights)
from .eagle import Eagle

_LAYER = "layers.0."
_IDS = "eagle_aux_hidden_state_layer_ids"
# Of the services' loader, where the file says nothing (model/eagle_config.cc).
_DEFAULT_PLACES = 7
_NOT_TRAINED = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")


def is_eagle(folder: pathlib.Path) -> bool:
    return has_tensor(folder, "fc.weight")


def _read_taps(fields: dict, layers: int) -> List[str]:
    given = fields.get(_IDS)
    # SpecForge and ModelOpt name layers by what they give.
    giving = (fields.get("eagle_config") or {}).get(_IDS)
    if not given and giving:
        given = [layer + 1 for layer in giving]
    return [f"in({layer})" for layer in given or (2, layers // 2, layers - 3)]


def read_eagle(folder: pathlib.Path, embedding: torch.Tensor, head: torch.Tensor,
               target_config: dict) -> Eagle:
    """`embedding`, `head` of the target, for a draft without its own."""
    fields = read_json(folder)
    for name in _NOT_TRAINED:
        if fields.get(name, name == "norm_before_residual" and
                      "speculators_version" in fields):
            raise TrainingError(f"{folder}: {name} is not supported")
    config = llama_shape(fields.get("transformer_layer_config", fields), folder)
    tensors = read_tensors(folder)
    tensors = {name.removeprefix("model.").replace("midlayer.", "layer.")
               .replace(_LAYER, "layer."): value for name, value in tensors.items()}
    tensors.pop("t2d", None)
    said = tensors.pop("d2t", None)
    if said is not None:  # how far a row's token is from its number
        said = torch.arange(len(said)) + said.to(torch.get_default_device())
    embedding = tensors.pop("embed_tokens.weight", embedding).to(embedding)
    methods = fields.get("speculators_config", {}).get("proposal_methods", [{}])
    draft = Eagle(config, _read_taps(fields, target_config["num_hidden_layers"]),
                  target_config["hidden_size"],
                  methods[0].get("speculative_tokens", _DEFAULT_PLACES), embedding,
                  None if "lm_head.weight" in tensors else head, said)
    try:
        draft.load_state_dict({name: value.float() for name, value in tensors.items()})
    except RuntimeError as error:
        raise TrainingError(f"{folder}: {error}") from None
    return draft


def _config(draft: Eagle, target: pathlib.Path) -> dict:
    kept = ("hidden_size", "intermediate_size", "num_attention_heads",
            "num_key_value_heads", "head_dim", "vocab_size", "rms_norm_eps", "rope_theta",
            "max_position_embeddings")
    return {
        "architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3",
        "speculators_version": "0.3.0", "draft_vocab_size": draft.config["vocab_size"],
        "target_hidden_size": draft.config["hidden_size"],
        _IDS: [int(tap[len("in("):-1]) for tap in draft.taps],
        **{name: False for name in _NOT_TRAINED},
        "transformer_layer_config": {
            "model_type": "llama", "num_hidden_layers": 1, "hidden_act": "silu",
            **{name: draft.config[name] for name in kept if name in draft.config}},
        "speculators_config": {
            "algorithm": "eagle3", "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy",
                                  "speculative_tokens": draft.places}],
            "verifier": {"name_or_path": target.name,
                         "architectures": ["LlamaForCausalLM"]}},
        "torch_dtype": "bfloat16"}


def write_eagle(out: pathlib.Path, draft: Eagle, target: pathlib.Path,
                card: dict) -> None:
    """The draft in bf16, its config.json and nacre_draft.json, which holds
    `card`. The embedding, and a head that is the target's, are not in the file."""
    out.mkdir(parents=True, exist_ok=True)
    tensors: Dict[str, torch.Tensor] = {}
    for name, value in draft.state_dict().items():
        name = _LAYER + name[len("layer."):] if name.startswith("layer.") else name
        tensors[name] = value
    write_json(out / "config.json", _config(draft, target))
    write_weights(out / "model.safetensors", tensors, card)
