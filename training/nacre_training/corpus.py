"""Text of the target as token ids, one JSON object a line.

The first line says what wrote it: `fingerprint`, `numerics_id`, `vocab_size`.
Each further one is a text: `id`, `prompt` and `answer` (token ids), and of what
the target wrote `temperature` and `seed`. A document, which people wrote, has
neither, and no prompt.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import List, Optional, Set, Tuple

from . import TrainingError


@dataclasses.dataclass(frozen=True)
class Text:
    id: str
    prompt: Tuple[int, ...]
    answer: Tuple[int, ...]
    temperature: Optional[float] = None  # None: a document
    seed: int = 0

    @property
    def token_ids(self) -> Tuple[int, ...]:
        return self.prompt + self.answer


@dataclasses.dataclass(frozen=True)
class Origin:
    """The model that wrote a corpus, as the service names it."""

    fingerprint: str
    numerics_id: str
    vocab_size: int


def _origin(path: pathlib.Path, line: str) -> Origin:
    try:
        return Origin(**json.loads(line))
    except (TypeError, ValueError) as error:
        raise TrainingError(f"{path}: line 1 is not that of a corpus: {error}") from None


def _text(path: pathlib.Path, number: int, line: str, vocab_size: int) -> Text:
    try:
        fields = json.loads(line)
        text = Text(fields["id"], tuple(fields["prompt"]), tuple(fields["answer"]),
                    fields.get("temperature"), fields.get("seed", 0))
    except (KeyError, TypeError, ValueError) as error:
        raise TrainingError(f"{path}: line {number}: {error!r}") from None
    for token in text.token_ids:
        if not 0 <= token < vocab_size:
            raise TrainingError(
                f"{path}: line {number}: token {token} is not below {vocab_size}")
    return text


def read_corpus(path: pathlib.Path) -> Tuple[Origin, List[Text]]:
    """All of a corpus. TrainingError: a line that is not a text, with its number."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = list(file)
    except OSError as error:
        raise TrainingError(f"{path}: {error.strerror}") from None
    if not lines:
        raise TrainingError(f"{path} is empty")
    origin = _origin(path, lines[0])
    texts = [_text(path, i, line, origin.vocab_size)
             for i, line in enumerate(lines[1:], 2)]
    if not texts:
        raise TrainingError(f"{path} has no text")
    return origin, texts


class CorpusWriter:
    """Appends texts. What an earlier run left stays; a line that it did not end
    is cut off."""

    def __init__(self, path: pathlib.Path, origin: Origin) -> None:
        self.known: Set[str] = set()
        whole = self._read_known(path, origin) if path.exists() else 0
        self._file = open(path, "a", encoding="utf-8")
        self._file.truncate(whole)
        if whole == 0:
            self._write(dataclasses.asdict(origin))

    def _read_known(self, path: pathlib.Path, origin: Origin) -> int:
        """The bytes of the lines that are whole."""
        whole = 0
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file):
                if not line.endswith("\n"):
                    break
                whole += len(line.encode())
                if number > 0:
                    self.known.add(json.loads(line)["id"])
                elif _origin(path, line) != origin:
                    raise TrainingError(
                        f"{path} was written by {_origin(path, line)}, the service has "
                        f"{origin}: choose another file")
        return whole

    def add(self, text: Text) -> None:
        fields = {"id": text.id, "prompt": text.prompt, "answer": text.answer}
        if text.temperature is not None:
            fields |= {"temperature": text.temperature, "seed": text.seed}
        self._write(fields)
        self.known.add(text.id)

    def _write(self, fields: dict) -> None:
        self._file.write(json.dumps(fields, separators=(",", ":")) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()
