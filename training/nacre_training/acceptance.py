"""`acceptance`: how often a draft's token is the target's, under shared noise.

The texts are the target's own, so the target need not run: at each position of
an answer the draft draws with the noise of the request's seed, and its token is
compared with the one that stands there. That is what the services do after every
committed token (docs/speculation.md).
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
from typing import Dict, List, Sequence

import numpy
import torch

from . import TrainingError
from .batches import make_batch
from .checkpoint import read_model
from .corpus import Text, read_corpus
from .llama import Llama
from .noise import gumbel_noise
from .progress import Progress


@dataclasses.dataclass
class Count:
    compared: int = 0
    accepted: int = 0

    @property
    def rate(self) -> float:
        return self.accepted / max(1, self.compared)


class HeldOut:
    """Texts of the target, and the noise of each of their positions."""

    _ROWS = 16

    def __init__(self, texts: Sequence[Text], vocab_size: int, context: int) -> None:
        written = [n for n, text in enumerate(texts) if text.temperature is not None
                   and len(text.prompt) < min(len(text.token_ids), context)]
        if not written:
            raise TrainingError("no text that a target wrote is held out")
        written.sort(key=lambda n: len(texts[n].token_ids))
        self._batches = []
        progress = Progress("noise of held-out texts", len(written))
        for begin in range(0, len(written), self._ROWS):
            numbers = written[begin:begin + self._ROWS]
            batch = make_batch(texts, numbers, context)
            draws = []  # (temperature, noise of the text's positions)
            for row, number in enumerate(numbers):
                text = texts[number]
                # A token's position is its index in the text.
                positions = batch.columns[batch.rows == row].numpy() + 1
                draws.append((text.temperature,
                              gumbel_noise(text.seed, positions, vocab_size)
                              if text.temperature > 0 else
                              numpy.zeros((len(positions), 1), numpy.float32)))
            self._batches.append((batch, draws))
            progress.at(begin + len(numbers))
        progress.close()

    @torch.no_grad()
    def acceptance(self, model: Llama) -> Dict[float, Count]:
        """By temperature."""
        counts: Dict[float, Count] = {}
        head = model.head().detach()
        for batch, draws in self._batches:
            hidden = model.hidden(batch.ids)
            for row, (temperature, noise) in enumerate(draws):
                at = batch.rows == row
                logits = hidden[row, batch.columns[at]] @ head.T
                if temperature > 0:
                    logits = logits / temperature + torch.from_numpy(noise)
                count = counts.setdefault(temperature, Count())
                count.compared += logits.shape[0]
                count.accepted += int((logits.argmax(-1) == batch.next_ids[at]).sum())
        return dict(sorted(counts.items()))


def mean_rate(counts: Dict[float, Count]) -> float:
    """Each temperature counts the same."""
    return sum(count.rate for count in counts.values()) / len(counts)


def describe(counts: Dict[float, Count]) -> str:
    return ", ".join(f"T {t:g}: {100 * c.rate:.2f} %" for t, c in counts.items())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--draft", type=pathlib.Path, action="append", required=True,
                        help="checkpoint; repeatable")
    parser.add_argument("--held-out", type=pathlib.Path, required=True,
                        help="corpus of the target, by `text`")
    parser.add_argument("--context", type=int, default=384,
                        help="tokens of a text that count (default %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="default %(default)s")


def run(arguments: argparse.Namespace) -> None:
    torch.set_num_threads(arguments.threads)
    origin, texts = read_corpus(arguments.held_out)
    held_out = HeldOut(texts, origin.vocab_size, arguments.context)
    models: List[Llama] = []
    for folder in arguments.draft:
        model = read_model(folder)
        if model.config["vocab_size"] != origin.vocab_size:
            raise TrainingError(f"{folder}: vocab_size is {model.config['vocab_size']}, "
                                f"that of the texts {origin.vocab_size}")
        models.append(model)
    for folder, model in zip(arguments.draft, models):
        counts = held_out.acceptance(model)
        total = sum(count.compared for count in counts.values())
        print(f"{folder}: {describe(counts)} of {total} tokens")
