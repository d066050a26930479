"""How far a draft is from its target, given the rows of both.

Exact match under shared noise accepts where both rows have the same winner of
logit / temperature + noise. `Kl`, the forward divergence, brings the
distributions together. `Race` brings the winners together: it is the cross
entropy of the target's winner under the draft's perturbed scores, softened by
`SOFTNESS`, with fresh noise. Rows are logits [positions, vocab_size].
"""

from __future__ import annotations

import torch
from torch.nn import functional

# The calibration of perturbed scores that was measured for bundled pairs is 0.6
# to 0.9.
SOFTNESS = 0.7


class Kl:
    """Of a draft's rows to these of the target, at temperature 1."""

    def __init__(self, target) -> None:
        log_p = target.log_softmax(-1)
        self._p = log_p.exp()
        self._entropy = -(self._p * log_p).sum(-1)

    def loss(self, draft, positions=slice(None)):
        """Mean over rows; row i of the draft is compared with positions[i]."""
        # The entropy needs no pass over the draft's rows.
        return (functional.cross_entropy(draft, self._p[positions])
                - self._entropy[positions].mean())


class Race:
    """`temperatures` [positions] of the target's rows; at 0 there is no noise."""

    def __init__(self, target, temperatures, generator: torch.Generator) -> None:
        greedy = (temperatures == 0)[:, None]
        noise = torch.empty_like(target).exponential_(generator=generator).log_().neg_()
        self._noise = noise.masked_fill_(greedy, 0.0)
        self._divisor = torch.where(greedy, torch.ones(()), temperatures[:, None])
        self._winner = (target / self._divisor + noise).argmax(-1)

    def loss(self, draft, positions=slice(None)):
        """As of Kl."""
        scores = draft / self._divisor[positions] + self._noise[positions]
        return functional.cross_entropy(scores / SOFTNESS, self._winner[positions])
