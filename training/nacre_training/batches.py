"""Texts as padded batches of token ids, in an order that follows from a seed."""

from __future__ import annotations

import dataclasses
import random
from typing import Iterator, List, Optional, Sequence

import torch

from .corpus import Text

# Batches that are sorted by length together: padding is short, order random.
_SORTED_TOGETHER = 32
_DOCUMENT_TEMPERATURE = 1.0


@dataclasses.dataclass(frozen=True)
class Batch:
    """`ids` [rows, length] is padded with 0 on the right, which no row before it
    sees. A position (row, column) of `rows`, `columns` [positions] predicts
    `next_ids`, at the `temperatures` by which its text was drawn."""

    numbers: List[int]  # of the texts
    ids: torch.Tensor
    rows: torch.Tensor
    columns: torch.Tensor
    next_ids: torch.Tensor
    temperatures: torch.Tensor  # [positions]
    # Numbers of the positions from which chains of several tokens go on; None: all.
    begins: Optional[torch.Tensor] = None

    def thinned(self, every: int, offset: int) -> Batch:
        """With chains from one position of `every` in a text; `offset` says which."""
        if every <= 1:
            return self
        begins = torch.nonzero((self.columns + self.rows + offset) % every == 0)[:, 0]
        return dataclasses.replace(self, begins=begins)

    def place(self, number: int, first_column: int = 0):
        """Two lists of positions: those from `first_column` on from which a chain
        goes on for `number` tokens in its text, and where it is then."""
        starts = torch.arange(len(self.rows))
        if number > 0 and self.begins is not None:
            starts = self.begins
        starts = starts[starts < len(self.rows) - number]
        there = (self.rows[starts] == self.rows[starts + number]) & (
            self.columns[starts] >= first_column)
        return starts[there], starts[there] + number


def side_by_side(rows: torch.Tensor, values: torch.Tensor, count: int):
    """Of positions, sorted by row: the number of each within its row, and `values`
    as [count, most of one row], padded with 0."""
    counts = torch.bincount(rows, minlength=count)
    slots = torch.arange(len(rows)) - (counts.cumsum(0) - counts)[rows]
    table = torch.zeros(count, int(counts.max()), dtype=values.dtype)
    table[rows, slots] = values
    return slots, table


def make_batch(texts: Sequence[Text], numbers: Sequence[int], context: int) -> Batch:
    """The positions are those before the tokens of answers."""
    ids = [list(texts[n].token_ids[:context]) for n in numbers]
    length = max(map(len, ids))
    rows, columns, temperatures = [], [], []
    for row, number in enumerate(numbers):
        first = max(0, len(texts[number].prompt) - 1)
        positions = range(first, len(ids[row]) - 1)
        temperature = texts[number].temperature
        rows += [row] * len(positions)
        columns += positions
        temperatures += [_DOCUMENT_TEMPERATURE if temperature is None
                         else temperature] * len(positions)
    padded = torch.tensor([row + [0] * (length - len(row)) for row in ids])
    rows, columns = torch.tensor(rows, dtype=torch.long), torch.tensor(
        columns, dtype=torch.long)
    return Batch(list(numbers), padded, rows, columns, padded[rows, columns + 1],
                 torch.tensor(temperatures))


def usable(texts: Sequence[Text], context: int) -> List[int]:
    """Numbers of the texts that have something to predict."""
    return [n for n, text in enumerate(texts)
            if min(len(text.token_ids), context) > max(1, len(text.prompt))]


def epoch(texts: Sequence[Text], context: int, rows: int, seed: int) -> Iterator[Batch]:
    """Each text once, `rows` texts a batch (the last one may have fewer)."""
    order = random.Random(seed)
    numbers = usable(texts, context)
    order.shuffle(numbers)
    chunk = rows * _SORTED_TOGETHER
    for begin in range(0, len(numbers), chunk):
        near = sorted(numbers[begin:begin + chunk], key=lambda n: len(texts[n].token_ids))
        batches = [near[i:i + rows] for i in range(0, len(near), rows)]
        order.shuffle(batches)
        for batch in batches:
            yield make_batch(texts, batch, context)
