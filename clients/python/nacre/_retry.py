"""When a call is made again."""

from __future__ import annotations

import dataclasses
import random
import time
from typing import Any, Optional

from ._refusal import refusal_of
from .answers import Partial
from .errors import StatusError, may_find_room, may_retry, status_error


@dataclasses.dataclass(frozen=True)
class Retry:
    """How calls are made again.

    `attempts`: calls until the first answer; 1: it is never made again.
    `resumes`: calls that go on with an answer that was cut off, in a row without
    a new token; 0: none. The wait before the k-th of either is
    initial * 2^(k - 1) seconds, at most maximum, times a random number of 0.5
    to 1.

    `patience`: seconds that an answer that was cut off waits for a coordinator
    that answers and has room. Meanwhile each is asked in turn, which is no call
    of these.
    """

    attempts: int = 6
    resumes: int = 3
    initial: float = 0.2
    maximum: float = 5.0
    patience: float = 30.0

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"attempts is {self.attempts}, at least 1")
        if self.resumes < 0:
            raise ValueError(f"resumes is {self.resumes}, at least 0")
        if self.initial < 0 or self.maximum < 0 or self.patience < 0:
            raise ValueError("a wait is negative")

    def delay(self, attempt: int) -> float:
        # 2^62 and more would be too large a float for no good.
        longest = min(self.maximum, self.initial * 2.0 ** min(attempt - 1, 62))
        return longest * random.uniform(0.5, 1.0)


_ASK_SECONDS = 5.0  # for an answer of a coordinator that may be gone


class Attempts:
    """The attempts of one call, and the time that they have in all."""

    def __init__(self, retry: Retry, timeout: Optional[float]) -> None:
        if timeout is not None and timeout <= 0:
            raise ValueError(f"timeout is {timeout}, more than 0 or None")
        self._retry = retry
        self._end = None if timeout is None else time.monotonic() + timeout
        self._failed = 0  # in a row without a new token
        self._silent_since: Optional[float] = None  # none has answered since
        self.made = 0

    def begin(self) -> Optional[float]:
        """Counts an attempt. Returns the seconds left, None: no limit."""
        self.made += 1
        return self._left()

    def progress(self) -> None:
        """A token came."""
        self._failed = 0
        self._silent_since = None

    def ask_timeout(self) -> float:
        """Seconds that a coordinator has to answer that it is there."""
        left = self._left()
        return _ASK_SECONDS if left is None else min(_ASK_SECONDS, left)

    def delay_of_silence(self, error: StatusError) -> float:
        """Seconds until the next coordinator is asked; raises `error`, which cut
        the answer off or kept it out, where that takes too long."""
        now = time.monotonic()
        if self._silent_since is None:
            self._silent_since = now
        delay = self._retry.delay(1)
        left = self._left()
        if (
            now + delay - self._silent_since > self._retry.patience
            or left is not None and delay >= left
        ):
            raise error
        return delay

    def delay_of(self, error: Any) -> float:
        """delay_after() of a grpc.RpcError that ended a call without an answer."""
        message, refusal = error.details() or "", refusal_of(error)
        return self.delay_after(
            status_error(error.code(), message, self.made, Partial(), refusal)
        )

    def delay_after(self, error: StatusError, resumes: bool = False) -> float:
        """Seconds until the next attempt; raises `error` if there is none.

        `resumes`: that goes on with an answer. A coordinator without room for it
        now is no failure of it: it is asked again, for `patience`.
        """
        if resumes and self._retry.resumes > 0 and may_find_room(error):
            return self.delay_of_silence(error)
        self._failed += 1
        limit = self._retry.resumes if resumes else self._retry.attempts - 1
        if not may_retry(error) or self._failed > limit:
            raise error
        delay = self._retry.delay(self._failed)
        left = self._left()
        if left is not None and delay >= left:
            raise error
        return delay

    def _left(self) -> Optional[float]:
        if self._end is None:
            return None
        return max(self._end - time.monotonic(), 0.0)
