"""Per-word dumps: a line "word<TAB>log10-probability" for each word and sentence end of a text."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from blackout.errors import UserError

__all__ = ["read_dump"]

_LINES = 1 << 16


def read_dump(
    path: str | Path, lines: int = _LINES
) -> Iterator[tuple[list[str], npt.NDArray[np.float64]]]:
    """Words and natural log-probabilities, some lines at a time; a line that is none is refused.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "dump"
    >>> _ = path.write_text("the\\t-1\\n</s>\\t-0.5\\n")
    >>> for words, logs in read_dump(path):
    ...     print(words, (logs / math.log(10)).tolist())
    ['the', '</s>'] [-1.0, -0.5]
    """
    number = 0
    try:
        with Path(path).open("rb") as file:
            while block := list(_some(file, lines)):
                words: list[str] = []
                logs = np.empty(len(block))
                for i, line in enumerate(block):
                    number += 1
                    word, logs[i] = _parse(line, path, number)
                    words.append(word)
                yield words, logs * math.log(10)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    if number == 0:
        raise UserError(f"{path}: no words in it")


def _some(file, lines: int) -> Iterator[bytes]:  # type: ignore[no-untyped-def]
    for _ in range(lines):
        line = file.readline(1 << 17)
        if not line:
            return
        yield line


def _parse(line: bytes, path: str | Path, number: int) -> tuple[str, float]:
    where = f"{path}: line {number}"
    try:
        text = line.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise UserError(f"{where}: invalid UTF-8") from None
    word, tab, digits = text.rpartition("\t")
    if not tab or not word:
        raise UserError(f"{where}: is not a word, a tab and a log10-probability")
    try:
        value = float(digits)
    except ValueError:
        raise UserError(f"{where}: {digits!r} is not a number") from None
    if math.isnan(value) or value > 1e-4:
        raise UserError(f"{where}: {digits} is not a log10-probability: it must not be above 0")
    return word, min(value, 0.0)
