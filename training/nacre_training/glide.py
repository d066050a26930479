"""`glide`: a small Llama that also sees what its target keeps of the text."""

from __future__ import annotations

import argparse
import pathlib

from torch import nn

from . import TrainingError, trainer
from .batches import make_batch, usable
from .checkpoint import check_pair, read_model
from .corpus import read_corpus
from .glide_draft import Glide
from .glide_files import cross_fields, write_glide
from .llama import Llama

# Of weights that are good already; what sees the target learns faster.
_LR = 2e-4
# Of the services' loader (model/glide_config.h).
_MOST_STEPS = 64
_TEXTS_TO_AIM_BY = 64


def add_arguments(parser: argparse.ArgumentParser) -> None:
    trainer.add_arguments(parser, _LR)
    parser.add_argument("--draft", type=pathlib.Path,
                        help="checkpoint to begin with; it stays as it is (default: the "
                             "target's embedding and head, which stay frozen, and its "
                             "last layers)")
    parser.add_argument("--layers", type=int, default=1,
                        help="how many of the target's, without --draft (default "
                             "%(default)s)")
    trainer.add_steps(parser, 5, "after the target's newest keys")
    parser.add_argument("--own-head", action="store_true",
                        help="it gets a head of its own, which begins as the embedding "
                             "and is trained")


def begin(first: Llama, target_config: dict, layers: int, steps: int,
          own_head: bool) -> Glide:
    """With the last `layers` layers of `first`, beside which the target says nothing
    yet. TrainingError: there are not so many, or more than the target's."""
    total = first.config["num_hidden_layers"]
    if not 1 <= layers <= total:
        raise TrainingError(f"--layers {layers} is not from 1 to {total}")
    config = dict(first.config, architectures=["smallLlamaForCausalLM"],
                  num_hidden_layers=layers,
                  **cross_fields(target_config, steps))
    if own_head:
        config["tie_word_embeddings"] = False
    draft = Glide(config, target_config)
    draft.embed_tokens.load_state_dict(first.embed_tokens.state_dict())
    draft.norm.load_state_dict(first.norm.state_dict())
    if draft.lm_head is not None:
        draft.lm_head.load_state_dict({"weight": first.head().detach()})
    for layer, of_first in zip(draft.layers, first.layers[total - layers:]):
        layer.load_state_dict(of_first.state_dict(), strict=False)
        nn.init.zeros_(layer.cross_attn["o_proj"].weight)
    return draft


def run(arguments: argparse.Namespace) -> None:
    trainer.check_steps(arguments, _MOST_STEPS)
    target = read_model(arguments.target)
    trainer.seed(arguments.seed)
    if arguments.draft is None:
        first, layers = target, arguments.layers
    else:
        first = read_model(arguments.draft)
        layers = first.config["num_hidden_layers"]
    student = begin(first, target.config, layers, arguments.steps, arguments.own_head)
    if arguments.draft is None:
        student.embed_tokens.requires_grad_(False)
        if student.lm_head is not None and not arguments.own_head:
            student.lm_head.requires_grad_(False)
    origin, texts = read_corpus(arguments.corpus)
    check_pair(target.config, student.config, origin)
    some = usable(texts, arguments.context)[:_TEXTS_TO_AIM_BY]
    if some:  # else the trainer says so
        student.aim(target, make_batch(texts, some, arguments.context))
    trainer.train_and_write(arguments, student, target,
                            f"glide:steps={arguments.steps}", write_glide)
