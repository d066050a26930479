"""GliDe drafts as folders: a Llama's tensors, and of each layer cross_attn.q_proj and
cross_attn.o_proj (docs/trees.md)."""

from __future__ import annotations

import pathlib

from . import TrainingError
from .checkpoint import (has_tensor, llama_shape, read_json, read_tensors,
                         write_draft)
from .glide_draft import Glide
from .llama import fill

# Of the services' loader (model/glide_config.cc).
_DEFAULT_PLACES = 5


def is_glide(folder: pathlib.Path) -> bool:
    return has_tensor(folder, "model.layers.0.cross_attn.q_proj.weight")


def cross_fields(target_config: dict, places: int) -> dict:
    """What config.json says beside a Llama's fields."""
    return {"large_hidden_size": target_config["hidden_size"],
            "large_num_attention_heads": target_config["num_attention_heads"],
            "large_num_key_value_heads": target_config["num_key_value_heads"],
            "large_head_dim": target_config["head_dim"], "block_size": places}


def read_glide(folder: pathlib.Path, target_config: dict) -> Glide:
    """TrainingError: it is malformed, or not of this target."""
    fields = read_json(folder)
    if fields.get("use_remap"):
        raise TrainingError(f"{folder}: use_remap is not supported")
    config = llama_shape(fields, folder)
    try:
        size = config.get("large_head_dim") or (
            config["large_hidden_size"] // config["large_num_attention_heads"])
        places = config.get("block_size") or _DEFAULT_PLACES
        draft = Glide(dict(config, large_head_dim=size, block_size=places), target_config)
        return fill(draft, read_tensors(folder))
    except KeyError as error:
        raise TrainingError(f"{folder}/config.json has no {error}") from None
    except TrainingError as error:
        raise TrainingError(f"{folder}: {error}") from None


def write_glide(out: pathlib.Path, draft: Glide, target: pathlib.Path, card: dict) -> None:
    """The draft in bf16, its config.json, nacre_draft.json, which holds `card`, and
    the target's tokenizer: a draft worker loads it as it loads other drafts."""
    write_draft(out, draft, target, card)
