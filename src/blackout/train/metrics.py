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


def read_metrics(path: Path) -> Iterator[dict[str, Any]]:
    """The events of a metrics file; a last line that was cut off is left out."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.endswith(b"\n"):
                try:
                    yield from_json(line)
                except ValueError as error:
                    raise UserError(f"{path}: line {number}: damaged: {error}") from None
