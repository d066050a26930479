"""How far a draft is from its target, given the rows of both.

Exact match under shared noise accepts where both rows have the same winner of
logit / temperature + noise. `kl` brings the distributions together. `race`
brings the winners together: it is the cross entropy of the target's winner under
the draft's perturbed scores, softened by `SOFTNESS`, with fresh noise.
"""

from __future__ import annotations

import torch
from torch.nn import functional

# The calibration of perturbed scores that was measured for bundled pairs is 0.6
# to 0.9.
SOFTNESS = 0.7


def kl(draft, target):
    """Forward Kullback-Leibler divergence at temperature 1, mean over positions.
    Both are logits [positions, vocab_size]."""
    return functional.kl_div(draft.log_softmax(-1), target.log_softmax(-1),
                             reduction="batchmean", log_target=True)


def race(draft, target, temperatures, generator: torch.Generator):
    """As above. `temperatures` [positions]; at 0 there is no noise."""
    greedy = (temperatures == 0)[:, None]
    noise = torch.empty_like(target).exponential_(generator=generator).log_().neg_()
    noise.masked_fill_(greedy, 0.0)
    divisor = torch.where(greedy, torch.ones(()), temperatures[:, None])
    winner = (target / divisor + noise).argmax(-1)
    return functional.cross_entropy((draft / divisor + noise) / SOFTNESS, winner)
