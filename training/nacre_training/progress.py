"""One line of progress on the terminal, or a line now and then in a log."""

from __future__ import annotations

import sys
import time


class Progress:
    """`total` units of work, of which `done` were done before. Prints to stderr."""

    _BAR = 24

    def __init__(self, what: str, total: int, done: int = 0) -> None:
        self._what, self._total = what, total
        self._first = self._done = done
        self._start = time.monotonic()
        self._last = 0.0
        self._terminal = sys.stderr.isatty()

    def at(self, done: int, note: str = "") -> None:
        self._done = done
        now = time.monotonic()
        pause = 0.2 if self._terminal else 15.0
        if now - self._last < pause and done < self._total:
            return
        self._last = now
        spent = now - self._start
        left = spent / max(1, done - self._first) * (self._total - done)
        filled = self._BAR * done // max(1, self._total)
        bar = "#" * filled + "." * (self._BAR - filled)
        line = f"{self._what} [{bar}] {done}/{self._total} {spent:.0f} s, {left:.0f} s left {note}"
        print(line, end="\r" if self._terminal else "\n", file=sys.stderr, flush=True)

    def close(self) -> None:
        if self._terminal:
            print(file=sys.stderr)
