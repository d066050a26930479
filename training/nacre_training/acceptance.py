"""`acceptance`: how often a draft's token is the target's, under shared noise.

The texts are the target's own, so the target need not run: at each position of
an answer the draft draws with the noise of the request's seed, and its token is
compared with the one that stands there. That is what the services do after every
committed token (docs/speculation.md). A draft of several places is given the
right tokens before each of them.
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
from typing import Dict, List, Optional, Sequence, Tuple

import numpy
import torch

from . import TrainingError, device
from .batches import Batch, make_batch
from .checkpoint import read_model
from .corpus import Text, read_corpus
from .draft import Draft
from .draft_files import read_draft
from .llama import Llama
from .noise import gumbel_noise
from .progress import Progress


@dataclasses.dataclass
class Count:
    """By place. `reached`: of the tokens compared those that were right, as all
    places before them were."""

    compared: List[int] = dataclasses.field(default_factory=list)
    accepted: List[int] = dataclasses.field(default_factory=list)
    reached: List[int] = dataclasses.field(default_factory=list)

    def add(self, place: int, right: torch.Tensor, before: torch.Tensor) -> None:
        """[positions] whether a token is right, and whether those before are."""
        for counts in (self.compared, self.accepted, self.reached):
            counts += [0] * (place + 1 - len(counts))
        self.compared[place] += right.numel()
        self.accepted[place] += int(right.sum())
        self.reached[place] += int((right & before).sum())

    @property
    def rates(self) -> List[float]:
        """Of each place, given the right tokens before it."""
        return [a / max(1, c) for a, c in zip(self.accepted, self.compared)]

    @property
    def rate(self) -> float:
        """Of the first place."""
        return self.rates[0]

    @property
    def length(self) -> float:
        """Right tokens of a chain of all places. Of one place: its rate."""
        return sum(r / max(1, c) for r, c in zip(self.reached, self.compared))


class HeldOut:
    """Texts of the target, and the noise of each of their positions. `target`:
    for drafts with taps."""

    _ROWS = 16

    def __init__(self, texts: Sequence[Text], vocab_size: int, context: int,
                 target: Optional[Llama] = None) -> None:
        written = [n for n, text in enumerate(texts) if text.temperature is not None
                   and len(text.prompt) < min(len(text.token_ids), context)]
        if not written:
            raise TrainingError("no text that a target wrote is held out")
        written.sort(key=lambda n: len(texts[n].token_ids))
        self._batches = []
        self._target = target
        self._features: Dict[Tuple, List[torch.Tensor]] = {}  # by taps, batch
        progress = Progress("noise of held-out texts", len(written))
        for begin in range(0, len(written), self._ROWS):
            numbers = written[begin:begin + self._ROWS]
            batch = make_batch(texts, numbers, context)
            draws = []  # (temperature, noise of the text's positions)
            for row, number in enumerate(numbers):
                text = texts[number]
                # A token's position is its index in the text.
                positions = batch.columns[batch.rows == row].cpu().numpy() + 1
                draws.append((text.temperature,
                              gumbel_noise(text.seed, positions, vocab_size)
                              if text.temperature > 0 else
                              numpy.zeros((len(positions), 1), numpy.float32)))
            self._batches.append((batch, draws))
            progress.at(begin + len(numbers))
        progress.close()

    def _features_of(self, draft: Draft, number: int, batch: Batch):
        if not draft.taps:
            return []
        if self._target is None:
            raise TrainingError("a draft that reads features needs its target")
        key = (*draft.taps, number)
        if key not in self._features:
            self._features[key] = self._target.features(batch.ids, draft.taps)
        return self._features[key]

    @torch.no_grad()
    def acceptance(self, draft: Draft) -> Dict[float, Count]:
        """By temperature."""
        counts: Dict[float, Count] = {}
        for number, (batch, draws) in enumerate(self._batches):
            states = draft.states(batch, self._features_of(draft, number, batch))
            for row, (temperature, noise) in enumerate(draws):
                at = torch.nonzero(batch.rows == row)[:, 0]
                # A prompt of one token, of which there are no features.
                skipped = int((batch.columns[at] < draft.first_column).sum())
                count = counts.setdefault(temperature, Count())
                before = torch.ones(len(at), dtype=torch.bool)
                for place in range(draft.places):
                    starts, ends = at[skipped:len(at) - place], at[skipped + place:]
                    logits = draft.logits(states[place][starts], place)
                    if temperature > 0:
                        logits = logits / temperature + torch.from_numpy(
                            noise[skipped + place:]).to(logits.device)
                    right = logits.argmax(-1) == batch.next_ids[ends]
                    before = before[:len(starts)]
                    count.add(place, right, before)
                    before = before & right
        return dict(sorted(counts.items()))


def mean_length(counts: Dict[float, Count]) -> float:
    """Each temperature counts the same. Of drafts of one place: their rate."""
    return sum(count.length for count in counts.values()) / len(counts)


def describe(counts: Dict[float, Count]) -> str:
    """Percentages; of drafts of several places that of each, and the tokens that
    a chain of them has right."""
    said = []
    for temperature, count in counts.items():
        rates = " ".join(f"{100 * rate:.2f}" for rate in count.rates)
        chain = f" ({count.length:.2f} tokens)" if len(count.rates) > 1 else ""
        said.append(f"T {temperature:g}: {rates} %{chain}")
    return ", ".join(said)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--draft", type=pathlib.Path, action="append", required=True,
                        help="checkpoint; repeatable")
    parser.add_argument("--target", type=pathlib.Path,
                        help="checkpoint; of drafts that read its features")
    parser.add_argument("--held-out", type=pathlib.Path, required=True,
                        help="corpus of the target, by `text`")
    parser.add_argument("--context", type=int, default=384,
                        help="tokens of a text that count (default %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="default %(default)s")
    device.add_arguments(parser)


def run(arguments: argparse.Namespace) -> None:
    torch.set_num_threads(arguments.threads)
    origin, texts = read_corpus(arguments.held_out)
    target = None if arguments.target is None else read_model(arguments.target)
    held_out = HeldOut(texts, origin.vocab_size, arguments.context, target)
    drafts: List[Draft] = []
    for folder in arguments.draft:
        draft = read_draft(folder, target)
        if draft.config["vocab_size"] != origin.vocab_size:
            raise TrainingError(f"{folder}: vocab_size is {draft.config['vocab_size']}, "
                                f"that of the texts {origin.vocab_size}")
        drafts.append(draft)
    for folder, draft in zip(arguments.draft, drafts):
        counts = held_out.acceptance(draft)
        total = sum(count.compared[0] for count in counts.values())
        print(f"{folder}: {describe(counts)} of {total} tokens", flush=True)
