"""Text files of n-best lists, line by line; packed when their name ends in .gz or .xz."""

from __future__ import annotations

import gzip
import lzma
import math
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from blackout.errors import UserError
from blackout.files.atomic import replacing
from blackout.rescore.nbest import split_words
from blackout.text.source import LineEnds, check_file

__all__ = ["finite", "format_score", "read_lines", "read_table", "write_lines"]


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file that are not empty, with their numbers."""
    check_file(path)
    try:
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
        elif path.suffix == ".xz":
            data = lzma.decompress(data)
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
        raise UserError(f"{path}: damaged or incomplete {path.suffix[1:]} file: {error}") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None
    ends = LineEnds(path)
    ends.look(np.frombuffer(data, np.uint8))
    ends.check()
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        try:
            text = line.decode()
        except UnicodeDecodeError:
            raise UserError(f"{path}: line {number}: invalid UTF-8") from None
        if "\0" in text:
            raise UserError(f"{path}: line {number}: a NUL byte")
        if text := text.strip(" \t\v\f\r"):
            yield number, text


def read_table(path: Path) -> dict[str, tuple[int, str]]:
    """An archive of lines ``key rest``: line number and rest of each key."""
    table: dict[str, tuple[int, str]] = {}
    for number, line in read_lines(path):
        key = split_words(line)[0]
        if key in table:
            raise UserError(f"{path}: line {number}: {key} is also on line {table[key][0]}")
        table[key] = number, line[len(key) :].strip(" \t\v\f\r")
    if not table:
        raise UserError(f"{path}: there is nothing in it")
    return table


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Writes a file as a whole or not at all; packed as its name says."""
    data = "".join(f"{line}\n" for line in lines).encode()
    if path.suffix == ".gz":
        data = gzip.compress(data, mtime=0)
    elif path.suffix == ".xz":
        data = lzma.compress(data)
    with replacing(path) as file:
        file.write(data)


def finite(text: str, path: Path, line: int, what: str) -> float:
    """A number; anything else is an error that names the place."""
    try:
        value = math.nan if "_" in text else float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UserError(f"{path}: line {line}: {what} {text!r} is not a number")
    return value


def format_score(value: float) -> str:
    """A score with more digits than any recogniser writes."""
    return f"{value + 0.0:.10g}"
