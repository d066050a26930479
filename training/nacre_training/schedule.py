"""How long a run goes on, and how fast it learns."""

from __future__ import annotations

import dataclasses
import math
import time


@dataclasses.dataclass
class Schedule:
    """How far the run is, from 0 to 1, by steps or by time."""

    steps: int
    seconds: float
    cpu_seconds: float
    step: int = 0
    spent: float = 0.0  # seconds of earlier runs
    cpu_spent: float = 0.0
    started: float = dataclasses.field(default_factory=time.monotonic)
    cpu_started: float = dataclasses.field(default_factory=time.process_time)

    def elapsed(self) -> float:
        return self.spent + time.monotonic() - self.started

    def cpu_elapsed(self) -> float:
        return self.cpu_spent + time.process_time() - self.cpu_started

    def progress(self) -> float:
        return min(1.0, max(self.step / self.steps, self.elapsed() / self.seconds,
                            self.cpu_elapsed() / self.cpu_seconds))

    def rate(self, peak: float) -> float:
        """3 % warm-up, then a cosine down to 2 %."""
        progress = self.progress()
        if progress < 0.03:
            return peak * max(0.1, progress / 0.03)
        return peak * (0.02 + 0.49 * (1 + math.cos(math.pi * (progress - 0.03) / 0.97)))
