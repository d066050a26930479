"""What the end of a `with` does, said once."""

from __future__ import annotations

from types import TracebackType
from typing import Optional, Type


class Closing:
    """Closed at the end of a `with`."""

    def close(self) -> None:
        raise NotImplementedError

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()
