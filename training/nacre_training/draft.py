"""What training and measurement need of a draft, whatever its kind."""

from __future__ import annotations

from typing import List, Sequence

from torch import Tensor, nn

from .batches import Batch


class Draft(nn.Module):
    """After a text that ends at column c a draft says `places` tokens. Place s
    says the token at column c + 1 + s, and may see all tokens before it."""

    config: dict
    places = 1
    # Rows of the target that `states` is given, as of Llama.features.
    taps: Sequence[str] = ()
    # No text ends before this column: there are no features yet.
    first_column = 0
    # In training, of so many positions one begins a chain; all have place 0.
    chain_every = 1

    def fresh(self, name: str) -> bool:
        """Whether the parameter begins as nothing, beside others that are trained
        already: it learns faster than they do."""
        return False

    def states(self, batch: Batch, features: List[Tensor]) -> List[Tensor]:
        """Of each place the rows before the head, [positions, d]: of texts that
        end at the batch's columns. Where a text has no such token, no chain begins
        or a text ends before `first_column`, a row means nothing. `features`: of
        each tap, [rows, length, size of the tap]."""
        raise NotImplementedError

    def logits(self, states: Tensor, place: int) -> Tensor:
        """[positions, vocab_size] of rows of `states`."""
        raise NotImplementedError
