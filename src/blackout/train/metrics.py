"""metrics.jsonl: one JSON object a line, appended as a run goes on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from blackout.errors import UserError
from blackout.files.plain_json import from_json, to_json


class Metrics:
    """Appends events to a run's metrics file.

    ``keep`` is the length to keep of an existing file: what a killed run wrote after its last
    checkpoint is cut off, since the resumed run will write it again.
    """

    def __init__(self, path: Path, keep: int = 0) -> None:
        self._path = path
        with self._naming_the_file():
            self._file = path.open("ab")
            self._file.truncate(min(keep, self._file.seek(0, os.SEEK_END)))

    def write(self, event: str, **values: Any) -> None:
        """One line, on disk before the next checkpoint speaks of it."""
        with self._naming_the_file():
            self._file.write(to_json({"event": event, **values}).encode() + b"\n")
            self._file.flush()

    @property
    def size(self) -> int:
        """Bytes written so far, safe on disk."""
        with self._naming_the_file():
            os.fsync(self._file.fileno())
            return self._file.seek(0, os.SEEK_END)

    def close(self) -> None:
        self._file.close()

    @contextmanager
    def _naming_the_file(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UserError(f"{self._path}: cannot be written: {error.strerror}") from error


class NoMetrics(Metrics):
    """For ranks of which another one writes the file."""

    def __init__(self) -> None:
        pass

    def write(self, event: str, **values: Any) -> None:
        """Nothing."""

    @property
    def size(self) -> int:
        return 0

    def close(self) -> None:
        """Nothing."""


def read_metrics(path: Path) -> Iterator[dict[str, Any]]:
    """The events of a metrics file; a last line that was cut off is left out."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.endswith(b"\n"):
                try:
                    yield _event(from_json(line))
                except ValueError as error:
                    raise UserError(f"{path}: line {number}: damaged: {error}") from None


# The numbers of each event: whole ones, finite ones, and those that may be null: infinite.
_WHOLE = {
    "epoch": ("epoch", "step", "words"),
    "test": ("words", "sentence_ends", "unknown"),
}
_FINITE = {"epoch": ("seconds", "words_per_second", "lr")}
_OR_NULL = {
    "epoch": ("train_loss", "valid_perplexity", "valid_perplexity_without_unk"),
    "test": ("perplexity", "perplexity_without_unk"),
}
_MOST = 2**53  # what a float holds exactly


def _event(value: Any) -> dict[str, Any]:
    """An event whose numbers are numbers; a ValueError otherwise."""
    if not isinstance(value, dict) or not isinstance(value.get("event"), str):
        raise ValueError("not an event")
    kind = value["event"]
    for name in _WHOLE.get(kind, ()):
        number = value.get(name)
        if type(number) is not int or not 0 <= number <= _MOST:
            raise ValueError(f"{name} is no whole number")
    for name in (*_FINITE.get(kind, ()), *_OR_NULL.get(kind, ())):
        number = value.get(name)
        may_be_infinite = name in _OR_NULL.get(kind, ())
        if may_be_infinite and (number is None or type(number) is float):
            continue
        if type(number) not in (int, float) or not abs(number) < 1e300:  # type: ignore[arg-type]
            raise ValueError(f"{name} is no number")
    return value
