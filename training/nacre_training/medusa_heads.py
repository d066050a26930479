"""Medusa heads (arXiv 2401.10774) over a target's last hidden state.

The target's own head says the next token of that state, head 0 the one after it,
and so on. A head is some blocks x + SiLU(W x + b), and the target's vocabulary or
one of its own.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from .draft import Draft


class Medusa(Draft):
    taps = ("final",)
    first_column = 1

    def __init__(self, target_config: dict, target_head: torch.Tensor, heads: int,
                 blocks: int, own_vocabulary: bool) -> None:
        """`target_head` [vocab_size, d] stays as it is. Blocks add nothing yet, so
        each head says what the target's says."""
        super().__init__()
        self.config, self.places = target_config, heads
        d = target_head.shape[1]
        self.heads = nn.ModuleList(
            nn.ModuleList(nn.Linear(d, d) for _ in range(blocks)) for _ in range(heads))
        for parameter in self.parameters():
            nn.init.zeros_(parameter)
        self._target_head = target_head
        self.vocabularies = nn.ModuleList()
        for _ in range(heads if own_vocabulary else 0):
            self.vocabularies.append(nn.Linear(d, target_head.shape[0], bias=False))
            self.vocabularies[-1].weight.data.copy_(target_head)

    def states(self, batch, features):
        # The last token of a text was drawn from the state before it.
        x = features[0][batch.rows, (batch.columns - 1).clamp(min=0)]
        said = []
        for blocks in self.heads:
            z = x
            for block in blocks:
                z = z + functional.silu(block(z))
            said.append(z)
        return said

    def logits(self, states, place: int):
        if len(self.vocabularies) > 0:
            return self.vocabularies[place](states)
        return states @ self._target_head.T
