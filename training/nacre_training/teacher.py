"""What a target says of texts, for its students."""

from __future__ import annotations

from typing import Dict, List, Sequence, Tuple

import torch

from .batches import Batch
from .corpus import Text
from .llama import Llama


class Teacher:
    """The target's rows. They are computed once where they fit into memory."""

    def __init__(self, model: Llama, texts: List[Text], context: int, mebibytes: int,
                 taps: Sequence[str]):
        self._model = model
        self._taps = list(taps) + ["final"] * ("final" not in taps)
        self._asked = len(taps)
        tokens = sum(min(len(text.token_ids), context) for text in texts)
        row = 2 * sum(map(model.tap_size, self._taps))
        self._keeps = tokens * row <= mebibytes << 20
        self._kept: Dict[int, List[torch.Tensor]] = {}

    @torch.no_grad()
    def look(self, batch: Batch) -> Tuple[torch.Tensor, List[torch.Tensor]]:
        """Logits [positions, vocab_size]; of each tap [rows, length, d]."""
        if all(number in self._kept for number in batch.numbers):
            rows = [torch.nn.utils.rnn.pad_sequence(
                [self._kept[n][i] for n in batch.numbers], batch_first=True)
                for i in range(len(self._taps))]
        else:
            # Rounded whether kept or not: a run that goes on begins with none.
            rows = [tap.bfloat16() for tap in self._model.features(batch.ids, self._taps)]
            if self._keeps:
                for row, number in enumerate(batch.numbers):
                    length = int(batch.columns[batch.rows == row][-1]) + 2
                    self._kept[number] = [tap[row, :length].clone() for tap in rows]
        final = rows[self._taps.index("final")][batch.rows, batch.columns].float()
        return final @ self._model.head().T, [tap.float() for tap in rows[:self._asked]]
