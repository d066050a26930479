"""What the service answers, as plain values. Times are in seconds."""

from __future__ import annotations

import dataclasses
from typing import Optional, Tuple


@dataclasses.dataclass(frozen=True)
class TokenLogprob:
    """The target's log-probability of one token, and its likeliest ones."""

    token_id: int
    logprob: float
    top: Tuple[Tuple[int, float], ...]  # (token id, log-probability), best first


@dataclasses.dataclass(frozen=True)
class Chunk:
    """The next tokens of one choice. `text` never splits a character."""

    index: int  # the choice
    first_index: int  # of token_ids[0] among the choice's tokens
    token_ids: Tuple[int, ...]
    text: str
    logprobs: Tuple[TokenLogprob, ...]  # where asked for


@dataclasses.dataclass(frozen=True)
class Usage:
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


@dataclasses.dataclass(frozen=True)
class Timing:
    """As the coordinator and the workers measured it."""

    total: float
    time_to_first_token: float
    queue: float
    draft_busy: float
    draft_wait: float
    target_busy: float
    target_wait: float
    target_wait_after_miss: float


@dataclasses.dataclass(frozen=True)
class Speculation:
    """How the drafts did (docs/metrics.md)."""

    method: str
    verification: str
    window: int
    policy: str
    rounds: int
    drafted: int
    verified: int
    accepted: int
    committed: int
    degraded_rounds: int
    alpha: float
    cost_ratio: float
    acceptance_histogram: Tuple[int, ...]
    ranks: Tuple[int, ...]
    prepared: int  # of ranks above 1: a branch sent ahead went on after it
    per_round_drafted: Tuple[int, ...]  # with spec_stats
    per_round_accepted: Tuple[int, ...]
    # Proposed by the target itself, from suffixes or heads; in no count above.
    suffix_proposed: int
    suffix_accepted: int

    @property
    def acceptance_rate(self) -> Optional[float]:
        """accepted / verified; None where nothing was verified."""
        return self.accepted / self.verified if self.verified else None

    @property
    def mean_accepted_length(self) -> Optional[float]:
        """committed / rounds, the target's own token included."""
        return self.committed / self.rounds if self.rounds else None


@dataclasses.dataclass(frozen=True)
class ChoiceTokens:
    """Of one choice, from its beginning."""

    index: int  # the choice
    text: str
    token_ids: Tuple[int, ...]
    logprobs: Tuple[TokenLogprob, ...]


@dataclasses.dataclass(frozen=True)
class Choice(ChoiceTokens):
    """One whole answer."""

    finish_reason: str  # "eos", "stop" or "length"
    stop_match: str  # the stop string that ended it
    seed: int
    numerics_id: str
    usage: Usage
    timing: Timing
    speculation: Speculation
    # Of the prompt's tokens but the first, where asked for.
    prompt_logprobs: Tuple[TokenLogprob, ...] = ()


@dataclasses.dataclass(frozen=True)
class Completion:
    """All choices of a request; those of the first one for short."""

    request_id: str
    choices: Tuple[Choice, ...]

    @property
    def text(self) -> str:
        return self.choices[0].text

    @property
    def token_ids(self) -> Tuple[int, ...]:
        return self.choices[0].token_ids

    @property
    def finish_reason(self) -> str:
        return self.choices[0].finish_reason

    @property
    def seed(self) -> int:
        return self.choices[0].seed


@dataclasses.dataclass(frozen=True)
class PartialChoice(ChoiceTokens):
    """What has come of a choice. `finished`: all of it has."""

    seed: int
    numerics_id: str  # "" before the first token
    finished: bool


@dataclasses.dataclass(frozen=True)
class Partial:
    """What has come of a request before it ended."""

    request_id: str = ""
    choices: Tuple[PartialChoice, ...] = ()

    @property
    def tokens(self) -> int:
        return sum(len(choice.token_ids) for choice in self.choices)


@dataclasses.dataclass(frozen=True)
class ModelInfo:
    """What is served."""

    name: str
    vocab_size: int
    context_length: int
    fingerprint: str
    numerics_id: str
    eos_token_ids: Tuple[int, ...]
