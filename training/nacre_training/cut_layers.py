"""`cut-layers`: a target with fewer layers, as a draft that needs no training.

LayerSkip leaves at an early layer: --keep 0,1,2. Self-speculative decoding skips
layers in between: --layers N drops the others one by one, each time the one whose
loss costs the least acceptance on held-out text.
"""

from __future__ import annotations

import argparse
import pathlib
from typing import List, Sequence

import torch

from . import TrainingError, device
from .acceptance import HeldOut, describe, mean_length
from .checkpoint import read_model, write_draft
from .corpus import read_corpus
from .llama import Llama


def cut(target: Llama, keep: Sequence[int]) -> Llama:
    """The target with these layers, in this order, which share its weights."""
    total = target.config["num_hidden_layers"]
    if not keep or list(keep) != sorted(set(keep)) or not 0 <= keep[0] <= keep[-1] < total:
        raise TrainingError(f"layers {list(keep)} do not rise within 0 to {total - 1}")
    student = Llama(dict(target.config, num_hidden_layers=len(keep)))
    student.embed_tokens, student.norm = target.embed_tokens, target.norm
    student.lm_head = target.lm_head
    student.layers = torch.nn.ModuleList(target.layers[i] for i in keep)
    return student


def choose(target: Llama, layers: int, held_out: HeldOut) -> List[int]:
    """Which `layers` layers to keep, by dropping greedily."""
    total = target.config["num_hidden_layers"]
    if not 1 <= layers <= total:
        raise TrainingError(f"--layers {layers} is not from 1 to {total}")
    keep = list(range(total))
    while len(keep) > layers:
        tries = []
        for dropped in keep:
            rest = [i for i in keep if i != dropped]
            counts = held_out.acceptance(cut(target, rest))
            tries.append((mean_length(counts), rest))
            print(f"layers {rest}: {describe(counts)}", flush=True)
        keep = max(tries, key=lambda tried: tried[0])[1]
    return keep


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", type=pathlib.Path, required=True, help="checkpoint")
    parser.add_argument("--held-out", type=pathlib.Path, required=True,
                        help="what the target wrote, by `text`")
    parser.add_argument("--out", type=pathlib.Path, required=True,
                        help="folder of the new draft")
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--keep", help="layers to keep, as in 0,1,2")
    chosen.add_argument("--layers", type=int, help="how many to keep, the best")
    parser.add_argument("--context", type=int, default=384,
                        help="tokens of a text that count (default %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="default %(default)s")
    device.add_arguments(parser)


def run(arguments: argparse.Namespace) -> None:
    torch.set_num_threads(arguments.threads)
    target = read_model(arguments.target)
    origin, texts = read_corpus(arguments.held_out)
    held_out = HeldOut(texts, origin.vocab_size, arguments.context)
    if arguments.keep is None:
        keep = choose(target, arguments.layers, held_out)
    else:
        try:
            keep = [int(part) for part in arguments.keep.split(",")]
        except ValueError:
            raise TrainingError(f"--keep {arguments.keep}: not numbers") from None
    student = cut(target, keep)
    counts = held_out.acceptance(student)
    write_draft(arguments.out, student, arguments.target, {
        "method": "cut-layers:keep=" + ",".join(map(str, keep)),
        "target_fingerprint": origin.fingerprint,
        "taps": [],
        "held_out_acceptance": {f"{t:g}": round(c.rate, 4) for t, c in counts.items()},
    })
    print(f"{arguments.out}: layers {keep}, held out: {describe(counts)}")
